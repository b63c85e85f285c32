// What a model's numbers can come to, found once after loading, from the weights alone: RMSNorm
// bounds the input of the projections, so the largest row of a projection bounds its results. Keys,
// values, queries, SwiGLU's results and the weights themselves become float16 times powers of two
// that make the bounds fit: no value overflows, and one keeps its eleven bits down to 2^-29 of its
// bound. (A bound is some hundred times what is seen.)
#include <math.h>
#include <stdlib.h>

#include "engine_impl.h"

enum { Q, K, V, O, GATE, UP, DOWN, N_MATRIX };

static bool launch_layer(const struct cuda_engine *e, const struct gpu_layer *l,
                         struct weight_range *out, struct error *err)
{
    const struct queue *q = &e->q;
    return weight_range_launch(q, &l->wq, l->attn_norm, l->bq, &out[Q], err) &&
           weight_range_launch(q, &l->wk, l->attn_norm, l->bk, &out[K], err) &&
           weight_range_launch(q, &l->wv, l->attn_norm, l->bv, &out[V], err) &&
           weight_range_launch(q, &l->wo, NULL, NULL, &out[O], err) &&
           weight_range_launch(q, &l->w_gate, l->ffn_norm, NULL, &out[GATE], err) &&
           weight_range_launch(q, &l->w_up, l->ffn_norm, NULL, &out[UP], err) &&
           weight_range_launch(q, &l->w_down, NULL, NULL, &out[DOWN], err);
}

// Of a head's vector after its own norm (NULL: none) and the rotation, which makes a pair of equal
// values longer by the root of two.
static float head_bound(const struct cuda_engine *e, float projected, const float *norm)
{
    float top = 0.0f;
    for (uint32_t i = 0; norm && i < e->hp.head_dim; i++)
        if (!(fabsf(norm[i]) <= top))
            top = fabsf(norm[i]);
    if (norm) // NaN of the projection stays
        projected = top * sqrtf((float)e->hp.head_dim) + 0.0f * projected;
    return projected * 1.5f * (e->magnitude > 1.0f ? e->magnitude : 1.0f);
}

static void take_layer(const struct cuda_engine *e, const struct layer *from,
                       const struct weight_range *r, struct gpu_layer *l)
{
    struct wmat *const w[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
    for (int i = 0; i < N_MATRIX; i++)
        if (w[i]->type != QUANT_F16) // that is what it is
            w[i]->half_scale = half_range(r[i].top);
    l->q_scale = half_range(head_bound(e, r[Q].bound, from->q_norm));
    l->k.scale = half_range(head_bound(e, r[K].bound, from->k_norm));
    l->v.scale = half_range(r[V].bound);
    l->swiglu_bound = r[GATE].bound * r[UP].bound;
}

bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err)
{
    const size_t n = (size_t)e->hp.n_layer * N_MATRIX, n_bytes = n * sizeof(struct weight_range);
    struct weight_range *device = NULL, *host = (struct weight_range *)malloc(n_bytes);
    bool ok = (host || error_oom(err, "the ranges of the weights", n_bytes)) &&
              CHECK_CUDA(cudaMalloc(&device, n_bytes), err) &&
              CHECK_CUDA(cudaMemsetAsync(device, 0, n_bytes, e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        ok = launch_layer(e, &e->layers[i], device + i * N_MATRIX, err);
    ok = ok &&
         CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, e->q.stream),
                    err) &&
         CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        take_layer(e, &m->layers[i], host + i * N_MATRIX, &e->layers[i]);
    cudaFree(device);
    free(host);
    return ok;
}
