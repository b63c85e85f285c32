// Weights asked for ahead. While attention to a short text works on a single token, memory has
// nothing to do for some microseconds: meanwhile a few warps, on a branch of the token's graph, ask
// for what the products behind it read, into L2. No other kernel of the token waits for them, and
// no result depends on them.
#include "engine_impl.h"
#include "ptx_hopper.cuh"

enum {
    N_BLOCK = 32,       // of a warp each: they ask for about as much in a time as memory brings
    PIECES_PER_SM = 4,  // of a plane of which a share is asked for
    WHOLE_PIECE = 4096, // bytes of one that is asked for as a whole
    LEAST_PIECE = 128,
};

// ---- kernel

// *skip: non-zero when the token is one behind the end. The first is asked for while that is read.
static __global__ void __launch_bounds__(WARP)
    ask_kernel(const __grid_constant__ struct spans s, const uint32_t *skip)
{
#if HAVE_HOPPER
    const uint64_t policy = evict_last_policy();
    const uint32_t over = *skip;
    const auto ask = [&](const struct span &a) {
        for (uint32_t i = blockIdx.x * WARP + threadIdx.x; i < a.n; i += gridDim.x * WARP)
            bulk_prefetch(a.p + (size_t)i * a.stride, a.n_bytes, policy);
    };
    ask(s.at[0]); // (none: n is 0)
    if (over)
        return;
#pragma unroll 1
    for (uint32_t k = 1; k < s.n; k++)
        ask(s.at[k]);
#endif
}

// ---- what is asked for

// Of a plane the share f: evenly, so that all warps of a product find as much of theirs.
static void add_plane(struct spans *s, const uint8_t *p, uint64_t n_bytes, double f, uint32_t n_sm)
{
    const uint64_t size = f < 1.0 ? (uint64_t)((double)n_bytes * f) : n_bytes;
    if (!p || size < LEAST_PIECE)
        return;
    const uint64_t most = f < 1.0 ? size / LEAST_PIECE : size / WHOLE_PIECE;
    const uint64_t n = f < 1.0 ? lesser<uint64_t>(most, PIECES_PER_SM * n_sm) : most;
    struct span *a = &s->at[s->n++];
    a->p = p;
    a->n = n > 0 ? (uint32_t)n : 1;
    a->stride = (uint32_t)(n_bytes / a->n) & ~15u;
    a->n_bytes = (uint32_t)(size / a->n) & ~15u;
}

static double bytes_of(const struct wmat *w)
{
    return w->q ? (double)cuda_layout_bytes(w->type, w->rows, w->n_cols) : 0.0;
}

static void add(struct spans *s, const struct wmat *w, double f, uint32_t n_sm)
{
    if (!w->q)
        return;
    const struct quant_planes *pl = cuda_quant_planes(w->type);
    const uint64_t n_chunk = (uint64_t)w->n_tile * TILE_ROWS * w->n_chunk;
    add_plane(s, w->q, n_chunk * pl->q, f, n_sm);
    add_plane(s, w->h, n_chunk * pl->h, f, n_sm);
    add_plane(s, w->s, n_chunk * pl->s, f, n_sm);
    add_plane(s, w->d, pl->d_chunks ? n_chunk / pl->d_chunks * pl->d : 0, f, n_sm);
}

struct spans cuda_spans_ahead(const struct cuda_engine *e, const struct gpu_layer *l)
{
    const struct wmat *out = &l->w[ATTN_OUTPUT], *gate = &l->w[FFN_GATE], *up = &l->w[FFN_UP];
    const uint32_t n_sm = (uint32_t)e->q.n_sm;
    const double n_out = bytes_of(out), of_out = 0.4 * e->ahead_bytes;
    const double n_feed = bytes_of(gate) + bytes_of(up);
    const double left = e->ahead_bytes - lesser(of_out, n_out);
    // What has not come when the product begins is in its way: half of it, or all of a little.
    const double of_feed = n_feed < left / 2 ? n_feed : lesser(left, n_feed / 2);
    struct spans s = {};
    add(&s, out, of_out / n_out, n_sm);
    // (in parallel layers they come before attention, and what is beside attention before them)
    if (!l->facts->parallel && layer_state_size(l->facts) == 0) {
        add(&s, gate, of_feed / n_feed, n_sm);
        add(&s, up, of_feed / n_feed, n_sm);
    }
    return s;
}

bool cuda_ask_ahead(const struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    const struct launch ask = {.name = "ask",
                               .grid = dim3(N_BLOCK),
                               .block = dim3(WARP),
                               .smem = 0,
                               .stream = e->side.q.stream};
    bool captured = false;
    if (e->ahead_bytes <= 0.0)
        return true;
    if (!cuda_is_captured(e->q.stream, &captured, err))
        return false;
    return !captured ||
           (cuda_side_begin(e, err) &&
            launch_kernel(err, ask, ask_kernel, cuda_spans_ahead(e, l), &e->s.step->done));
}

bool cuda_ahead_open(struct cuda_engine *e, struct error *err)
{
    static const double share_of_l2 = 0.4; // more displaces what others need (docs/performance.md)
    int l2 = 0;
    if (!e->q.hopper)
        return true; // other GPUs were not measured
    if (!CHECK_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, e->params.device_index),
                    err))
        return false;
    e->ahead_bytes = share_of_l2 * l2;
    return true;
}
