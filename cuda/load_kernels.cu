// What the driver loads when an engine opens.
#include "engine_impl.h"

// Captures launches, which never run.
template <typename F> static bool load(struct cuda_engine *e, F launches, struct error *err)
{
    cudaGraph_t graph;
    const bool ok = cuda_capture(e, &graph, launches, err);
    if (graph)
        cudaGraphDestroy(graph);
    return ok;
}

// Captures launches(n) for the sizes up to `most`, and for that where it lies between two.
template <size_t N, typename F>
static bool load_sizes(struct cuda_engine *e, const uint32_t (&sizes)[N], uint32_t most, F launches,
                       struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < N && most >= sizes[0] && (i == 0 || sizes[i - 1] < most); i++)
        ok = load(
            e, [&] { return launches(lesser(sizes[i], most)); }, err);
    return ok;
}

// The driver loads a kernel when it is first launched, and takes device memory for it. Those of a
// prompt are launched here, into graphs that never run, so that what does not fit is found now and
// mem_used is all that the engine takes; but not those of products for which cuBLAS is opened when
// they are needed.
bool cuda_load_kernels(struct cuda_engine *e, struct error *err)
{
    // all shapes of the products' tiles, beyond MOST_DENSE those of experts
    enum { MOST_DENSE = 256 };
    static const uint32_t of_chunks[] = {2,        4,    8,   16,         MATVEC_MAX_ROWS,
                                         FEW_ROWS, 64,   128, MOST_DENSE, 512,
                                         1024,     2048, 4096},
                          of_passes[] = {4, 16, 24, 32, 64};
    const uint32_t largest = lesser(e->base.n_batch, e->s.n_without_blas);
    const uint32_t most = e->experts.chosen ? largest : lesser(largest, (uint32_t)MOST_DENSE);
    auto chunk = [&](uint32_t n) {
        return cuda_forward_many(e, n, err) &&
               cuda_head(e, 0, lesser(n, (uint32_t)LOGITS_ROWS), NULL, err) &&
               cuda_head(e, 0, 1, NULL, err) && cuda_enqueue_sum(e, err);
    };
    auto far_chunk = [&] { // attention behind a long text is by other kernels
        e->n_past = e->base.n_ctx;
        const bool done = cuda_forward_many(e, largest, err);
        e->n_past = 0;
        return done;
    };
    auto pass = [&](uint32_t n) { return cuda_enqueue_parts(e, n, err); };
    bool ok = load_sizes(e, of_chunks, most, chunk, err) &&
              (largest < of_chunks[0] || load(e, far_chunk, err)) &&
              (!e->passes || load_sizes(e, of_passes, e->base.n_batch, pass, err));
    ok = ok && load(
                   e, [&] { return cuda_enqueue_expert_kernels(e, err); }, err);
    if (ok && e->base.n_states > 0)
        ok = load(
            e, [&] { return cuda_enqueue_advance(e, err); }, err);
    return ok || error_prefix(err, "making ready for prompts (a smaller -c leaves more memory)");
}
