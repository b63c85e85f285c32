// What a model's numbers can come to, found once after loading, from the weights alone: RMSNorm
// bounds the input of the projections, so the largest row of a projection bounds its results. Keys,
// values, queries, SwiGLU's results and the weights themselves become float16 times powers of two
// that make the bounds fit: no value overflows, and one keeps its eleven bits down to 2^-29 of its
// bound. (A bound is some hundred times what is seen.)
#include <math.h>
#include <stdlib.h>

#include "engine_impl.h"

enum { NONE = N_LAYER_WEIGHTS }; // stands for a vector that is never there

// The matrices of a layer, the norm of their input and their bias.
static const struct {
    enum layer_weight w;
    int norm, bias;
} matrices[] = {
    {ATTN_Q, ATTN_NORM, ATTN_Q_BIAS}, {ATTN_K, ATTN_NORM, ATTN_K_BIAS},
    {ATTN_V, ATTN_NORM, ATTN_V_BIAS}, {ATTN_OUTPUT, NONE, NONE},
    {FFN_GATE, FFN_NORM, NONE},       {FFN_UP, FFN_NORM, NONE},
    {FFN_DOWN, NONE, NONE},
};

static bool launch_layer(const struct cuda_engine *e, const struct gpu_layer *l,
                         struct weight_range *out /* (N_LAYER_WEIGHTS) */, struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof matrices / sizeof *matrices; i++) {
        const float *norm = matrices[i].norm == NONE ? NULL : l->v[matrices[i].norm];
        const float *bias = matrices[i].bias == NONE ? NULL : l->v[matrices[i].bias];
        ok = weight_range_launch(&e->q, &l->w[matrices[i].w], norm, bias, &out[matrices[i].w], err);
    }
    return ok;
}

// Of a head's vector after its own norm (NULL: none) and the rotation, which makes a pair of equal
// values longer by the root of two.
static float head_bound(const struct cuda_engine *e, float projected, const float *norm)
{
    float top = 0.0f;
    for (uint32_t i = 0; norm && i < e->facts.head_dim; i++)
        if (!(fabsf(norm[i]) <= top))
            top = fabsf(norm[i]);
    if (norm) // NaN of the projection stays
        projected = top * sqrtf((float)e->facts.head_dim) + 0.0f * projected;
    return projected * 1.5f * (e->magnitude > 1.0f ? e->magnitude : 1.0f);
}

static void take_layer(const struct cuda_engine *e, const struct layer *from,
                       const struct weight_range *r, struct gpu_layer *l)
{
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        struct wmat *w = &l->w[matrices[i].w];
        if (w->type != QUANT_F16) // that is what it is
            w->half_scale = half_range(r[matrices[i].w].top);
    }
    l->q_scale = half_range(head_bound(e, r[ATTN_Q].bound, layer_vector(from, ATTN_Q_NORM)));
    l->k_cache.scale = half_range(head_bound(e, r[ATTN_K].bound, layer_vector(from, ATTN_K_NORM)));
    l->v_cache.scale = half_range(r[ATTN_V].bound);
    l->swiglu_bound = r[FFN_GATE].bound * r[FFN_UP].bound;
}

bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err)
{
    const size_t n = (size_t)e->hp.n_layer * N_LAYER_WEIGHTS,
                 n_bytes = n * sizeof(struct weight_range);
    struct weight_range *device = NULL, *host = (struct weight_range *)malloc(n_bytes);
    bool ok = (host || error_oom(err, "the ranges of the weights", n_bytes)) &&
              CHECK_CUDA(cudaMalloc(&device, n_bytes), err) &&
              CHECK_CUDA(cudaMemsetAsync(device, 0, n_bytes, e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        ok = launch_layer(e, &e->layers[i], device + i * N_LAYER_WEIGHTS, err);
    ok = ok &&
         CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, e->q.stream),
                    err) &&
         CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        take_layer(e, &m->layers[i], host + i * N_LAYER_WEIGHTS, &e->layers[i]);
    cudaFree(device);
    free(host);
    return ok;
}
