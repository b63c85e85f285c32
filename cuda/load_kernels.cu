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

// All that rows of such a matrix may be multiplied by, but for expert_hopper.
static bool enqueue_products(const struct cuda_engine *e, const struct wmat *w, bool half,
                             struct error *err)
{
    struct expert_rows m = {};
    struct queue q = e->q;
    if (half) {
        struct expert_gemm few = {};
        few.w[0] = *w;
        few.n_slot = few.n_place = few.per_item = few.n_used = 1;
        q.n_sm = 1 << 20; // room for teams
        if (!expert_few_launch(&q, &few, err))
            return false;
        q.n_sm = 0; // and for none
        return expert_few_launch(&q, &few, err);
    }
    m.w[0] = *w;
    m.n_part = m.n_row = m.n_item = m.n_used = 1;
    bool ok = true;
    for (uint32_t n : {8u, 16u, (uint32_t)EXPERT_ITEM}) {
        m.per_item = n;
        if (is_plain_type(w)) { // rows are many, or few: see expert_plain.cu and expert_split.cu
            q.n_sm = n == 8 ? 0 : 1 << 20;
            m.split = true;
            for (uint32_t rows : {1u, (uint32_t)EXPERT_SPLIT_ROWS}) {
                m.n_row = rows;
                m.any_bits = rows > 1;
                ok = ok && expert_rows_launch(&q, &m, err);
            }
            m.split = false;
            m.n_row = 1;
        }
        ok = ok && expert_rows_launch(&q, &m, err);
    }
    return ok;
}

// Which ones several rows need is a matter of how many of them an expert has.
static bool enqueue_experts(const struct cuda_engine *e, struct error *err)
{
    uint64_t seen = 0, seen_half = 0; // types
    bool ok = true;
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        for (enum layer_weight w : {ROUTER, EXPERT_LATENT, EXPERT_LATENT_UP, EXPERT_GATE, EXPERT_UP,
                                    EXPERT_DOWN, SHARED_GATE, SHARED_UP, SHARED_DOWN}) {
            const struct gpu_layer *l = &e->layers[i];
            if (!has_experts(l->facts) || !l->facts->w[w].data)
                continue;
            // (what is neither a router nor about latents is multiplied in float16, but alone by
            // expert_row)
            const bool half = cuda_experts_can_be_half(e, l) && w != ROUTER && w != EXPERT_LATENT &&
                              w != EXPERT_LATENT_UP;
            uint64_t *const of = half ? &seen_half : &seen;
            if ((half && !e->passes && l->facts->w[w].n_stacked) || *of >> l->w[w].type & 1)
                continue;
            *of |= 1ull << l->w[w].type;
            ok = ok && enqueue_products(e, &l->w[w], half && e->passes, err);
        }
    return ok;
}

// The driver loads a kernel when it is first launched, and takes device memory for it. Those of a
// prompt are launched here, into graphs that never run, so that what does not fit is found now and
// mem_used is all that the engine takes; but not those of products for which cuBLAS is opened when
// they are needed.
bool cuda_load_kernels(struct cuda_engine *e, struct error *err)
{
    // all shapes of the products' tiles, beyond MOST_DENSE those of experts
    enum { MOST_DENSE = 2048 };
    static const uint32_t of_chunks[] = {2,   4,   8,   16,   MATVEC_MAX_ROWS, FEW_ROWS, 64,
                                         128, 256, 512, 1024, MOST_DENSE,      4096},
                          of_passes[] = {4, 16, 24, 32, 64};
    const uint32_t largest = lesser(e->base.n_batch, e->s.n_without_blas);
    const uint32_t most = e->experts.chosen ? largest : lesser(largest, (uint32_t)MOST_DENSE);
    auto chunk = [&](uint32_t n) {
        return cuda_forward_many(e, n, err) &&
               cuda_head(e, 0, lesser(n, (uint32_t)LOGITS_ROWS), NULL, err) &&
               cuda_head(e, 0, 1, NULL, err) && cuda_enqueue_sum(e, err);
    };
    // Attention behind a long text is by other kernels; so it is of few tokens behind some.
    enum { SOME = 450 };
    auto chunk_behind = [&](uint32_t past, uint32_t n) {
        e->n_past = lesser(past, e->base.n_ctx);
        const bool done = cuda_forward_many(e, n, err);
        e->n_past = 0;
        return done;
    };
    auto behind = [&] {
        return chunk_behind(e->base.n_ctx, largest) && chunk_behind(SOME, of_chunks[0]);
    };
    auto pass = [&](uint32_t n) { return cuda_enqueue_parts(e, n, err); };
    bool ok = load_sizes(e, of_chunks, most, chunk, err) &&
              (largest < of_chunks[0] || load(e, behind, err)) &&
              (!e->passes || load_sizes(e, of_passes, e->base.n_batch, pass, err));
    ok = ok && load(
                   e, [&] { return enqueue_experts(e, err); }, err);
    if (ok && e->base.n_states > 0)
        ok = load(
            e, [&] { return cuda_enqueue_advance(e, err); }, err);
    return ok || error_prefix(err, "making ready for prompts (a smaller -c leaves more memory)");
}
