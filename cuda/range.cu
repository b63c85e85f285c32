// What a model's numbers can come to, found once after loading, from the weights alone: RMSNorm
// bounds the input of the projections, so the largest row of a projection bounds its results.
// (Where it is not the input that is normed, but what blocks add to it, that bounds it.) Keys,
// values, queries, gated results and the weights themselves become float16 times powers of two that
// make the bounds fit: no value overflows, and one keeps its eleven bits down to 2^-29 of its
// bound. (A bound is some hundred times what is seen. No activation of gated results is larger than
// its argument.)
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

// The largest magnitude.
static float top_of(const struct weight *v)
{
    const float *p = (const float *)v->data;
    float top = 0.0f;
    for (size_t i = 0; i < (size_t)v->rows * v->n_cols; i++)
        if (!(fabsf(p[i]) <= top))
            top = fabsf(p[i]);
    return top;
}

// Of a head's vector after its norm (data NULL: none) and the rotation, which makes a pair of equal
// values longer by the root of two.
static float head_bound(const struct cuda_engine *e, const struct layer *from, float projected,
                        const struct weight *norm)
{
    const uint32_t width = from->qk_norm == QK_NORM_WHOLE ? norm->n_cols : from->head_dim;
    const float magnitude = e->ropes.t[from->rope].magnitude;
    if (norm->data) // NaN of the projection stays
        projected = top_of(norm) * sqrtf((float)width) + 0.0f * projected;
    return projected * 1.5f * (magnitude > 1.0f ? magnitude : 1.0f);
}

// What makes queries larger than that: their scale, where it does, and that of the last position.
static float query_factor(const struct cuda_engine *e, const struct layer *from)
{
    const struct hparams *hp = &e->hp;
    float factor = from->attn_scale > 1.0f ? from->attn_scale : 1.0f;
    if (hp->attn_temp_scale > 0.0f)
        factor *= 1.0f + hp->attn_temp_scale *
                             logf(1.0f + (float)e->base.n_ctx / (float)hp->attn_temp_len);
    return factor;
}

// rms: a bound of the root of the mean square of x's rows before this layer, then after it; only
// right as long as all that is added is normed (facts.cu: where a projection's input is not).
static void take_layer(const struct cuda_engine *e, const struct layer *from,
                       const struct weight_range *r, float *rms, struct gpu_layer *l)
{
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        struct wmat *w = &l->w[matrices[i].w];
        if (w->type != QUANT_F16) // that is what it is
            w->half_scale = half_range(r[matrices[i].w].top);
    }
    // the bounds are those of inputs whose mean square is one
    const float in = from->w[ATTN_NORM].data || *rms <= 1.0f ? 1.0f : *rms;
    l->q_scale = half_range(query_factor(e, from) *
                            head_bound(e, from, in * r[ATTN_Q].bound, &from->w[ATTN_Q_NORM]));
    l->k_cache.scale = half_range(head_bound(e, from, in * r[ATTN_K].bound, &from->w[ATTN_K_NORM]));
    l->v_cache.scale = half_range(in * r[ATTN_V].bound);
    l->gated_bound = r[FFN_GATE].bound * r[FFN_UP].bound;
    for (enum layer_weight post : {ATTN_POST_NORM, FFN_POST_NORM})
        if (from->w[post].data)
            *rms += fabsf(e->hp.residual_scale) * top_of(&from->w[post]);
}

static bool reads_the_stream(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        any |= !m->layers[i].w[ATTN_NORM].data;
    return any;
}

bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err)
{
    const size_t n = (size_t)e->hp.n_layer * N_LAYER_WEIGHTS, // and the embedding
        n_bytes = (n + 1) * sizeof(struct weight_range);
    float rms = 0.0f;
    struct weight_range *device = NULL, *host = (struct weight_range *)malloc(n_bytes);
    bool ok = (host || error_oom(err, "the ranges of the weights", n_bytes)) &&
              CHECK_CUDA(cudaMalloc(&device, n_bytes), err) &&
              CHECK_CUDA(cudaMemsetAsync(device, 0, n_bytes, e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        ok = launch_layer(e, &e->layers[i], device + i * N_LAYER_WEIGHTS, err);
    if (reads_the_stream(m)) // else nobody asks how large the embedding is
        ok = ok && weight_range_launch(&e->q, &e->tok_embd, NULL, NULL, &device[n], err);
    ok = ok &&
         CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, e->q.stream),
                    err) &&
         CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
    if (ok)
        rms = fabsf(e->hp.embd_scale) * host[n].top;
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        take_layer(e, &m->layers[i], host + i * N_LAYER_WEIGHTS, &rms, &e->layers[i]);
    cudaFree(device);
    free(host);
    return ok;
}
