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
    int norm, norm_bias, bias;
} matrices[] = {
    {ATTN_Q, ATTN_NORM, ATTN_NORM_BIAS, ATTN_Q_BIAS},
    {ATTN_K, ATTN_NORM, ATTN_NORM_BIAS, ATTN_K_BIAS},
    {ATTN_V, ATTN_NORM, ATTN_NORM_BIAS, ATTN_V_BIAS},
    {ATTN_Q_A, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {ATTN_Q_B, ATTN_Q_A_NORM, NONE, NONE},
    {ATTN_KV_A, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {ATTN_K_B, NONE, NONE, NONE},
    {ATTN_V_B, NONE, NONE, NONE},
    {DELTA_QKV, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {DELTA_GATE, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {DELTA_BETA, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {DELTA_ALPHA, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {DELTA_BETA_ALPHA, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {CONV_IN, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {SSM_IN, ATTN_NORM, ATTN_NORM_BIAS, NONE},
    {ATTN_OUTPUT, NONE, NONE, NONE},
    {SSM_OUT, NONE, NONE, NONE},
    {FFN_GATE, FFN_NORM, FFN_NORM_BIAS, NONE},
    {FFN_UP, FFN_NORM, FFN_NORM_BIAS, NONE},
    {FFN_DOWN, NONE, NONE, NONE},
    {EXPERT_GATE, NONE, NONE, NONE},
    {EXPERT_UP, NONE, NONE, NONE},
    {EXPERT_DOWN, NONE, NONE, NONE},
    {SHARED_GATE, NONE, NONE, NONE},
    {SHARED_UP, NONE, NONE, NONE},
    {SHARED_DOWN, NONE, NONE, NONE},
    {LAUREL_L, NONE, NONE, NONE},
    {LAUREL_R, NONE, NONE, NONE},
    {TOKEN_GATE, NONE, NONE, NONE},
    {TOKEN_PROJ, NONE, NONE, NONE},
};

// Parallel blocks with one norm read the same.
static int norm_of(const struct layer *l, size_t i)
{
    const bool same = l->parallel && !l->w[FFN_NORM].data;
    return same && matrices[i].norm == FFN_NORM ? ATTN_NORM : matrices[i].norm;
}

// Those stacked are one matrix of whole tiles.
static struct wmat whole_stack(const struct wmat *w, uint32_t n_stacked)
{
    struct wmat all = *w;
    if (n_stacked > 0) {
        all.n_tile *= n_stacked;
        all.rows = all.n_tile * TILE_ROWS;
    }
    return all;
}

static bool launch_layer(const struct cuda_engine *e, const struct gpu_layer *l,
                         struct weight_range *out /* (N_LAYER_WEIGHTS) */, struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof matrices / sizeof *matrices; i++) {
        const float *norm = matrices[i].norm == NONE ? NULL : l->v[norm_of(l->facts, i)];
        const bool normed_here = matrices[i].norm_bias != NONE;
        if (norm && normed_here && norm_is_apart(&e->hp, &l->facts->w[matrices[i].norm_bias]))
            norm = NULL; // what the kernel is given is normed already
        const struct weight *facts = &l->facts->w[matrices[i].w];
        const bool of_heads = matrices[i].w == ATTN_K_B || matrices[i].w == ATTN_V_B;
        if (!facts->data ||
            (facts->n_stacked > 0 && !of_heads && !e->q.hopper)) // nobody asks there
            continue;
        const float *bias = matrices[i].bias == NONE ? NULL : l->v[matrices[i].bias];
        const struct wmat w = whole_stack(&l->w[matrices[i].w], facts->n_stacked);
        ok = weight_range_launch(&e->q, &w, norm, bias, &out[matrices[i].w], err);
    }
    return ok;
}

// The largest magnitude.
static float top_of(const struct weight *v)
{
    const float *p = (const float *)v->data;
    float top = 0.0f;
    for (size_t i = 0; p && i < (size_t)v->rows * v->n_cols; i++)
        if (!(fabsf(p[i]) <= top))
            top = fabsf(p[i]);
    return top;
}

// Of a head's vector after its norm (data NULL: none) and the rotation, which makes a pair of equal
// values longer by the root of two.
static float head_bound(const struct cuda_engine *e, const struct layer *from, float projected,
                        const struct weight *norm)
{
    const uint32_t width = from->qk_norm == QK_NORM_WHOLE
                               ? cuda_whole_layer(e, from)->w[norm - from->w].n_cols
                               : from->head_dim;
    const float magnitude = e->ropes.t[from->rope].magnitude;
    if (norm->data || from->qk_norm == QK_NORM_BARE) { // NaN of the projection stays
        const float top = norm->data ? top_of(norm) : 1.0f;
        projected = top * sqrtf((float)width) + 0.0f * projected;
    }
    return projected * 1.5f * (magnitude > 1.0f ? magnitude : 1.0f);
}

// What makes queries larger than that: their scale, where it does, and that of the last position.
static float query_factor(const struct cuda_engine *e, const struct layer *from)
{
    const struct hparams *hp = &e->hp;
    float factor = from->attn_scale > 1.0f ? from->attn_scale : 1.0f;
    if (hp->attn_temp_scale > 0.0f)
        factor *= 1.0f + hp->attn_temp_scale *
                             logf(1.0f + ((float)e->base.n_ctx + (float)hp->attn_temp_offset) /
                                             (float)hp->attn_temp_len);
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
    float in = 1.0f;
    if (!from->w[ATTN_NORM].data)
        in = *rms;
    else if (norm_is_apart(&e->hp, &from->w[ATTN_NORM_BIAS]))
        in = top_of(&from->w[ATTN_NORM]) + top_of(&from->w[ATTN_NORM_BIAS]);
    in = in <= 1.0f ? 1.0f : in;
    const float q = from->latent.n_q > 0 ? r[ATTN_Q_B].bound : in * r[ATTN_Q].bound;
    l->q_scale = half_range(query_factor(e, from) * head_bound(e, from, q, &from->w[ATTN_Q_NORM]));
    l->k_cache.scale = half_range(head_bound(e, from, in * r[ATTN_K].bound, &from->w[ATTN_K_NORM]));
    float v = in * r[from->w[ATTN_V].data ? ATTN_V : ATTN_K].bound;
    if (from->v_normed) // NaN of the projection stays
        v = sqrtf((float)from->head_dim) + 0.0f * v;
    l->v_cache.scale = half_range(v);
    if (from->latent.n_kv > 0) { // c, r: NaN of the projection stays
        const float c = top_of(&from->w[ATTN_KV_A_NORM]) * sqrtf((float)from->latent.n_kv);
        const float r_bound = head_bound(e, from, in * r[ATTN_KV_A].bound, &from->w[ATTN_K_NORM]);
        l->k_cache.scale = half_range(c > r_bound ? c : r_bound);
        // a row of so many weights is as long as their root times the largest, at most
        const float of_row = c * sqrtf((float)from->latent.n_kv);
        const float k = of_row * r[ATTN_K_B].top * fabsf(l->w[ATTN_K_B].scale);
        l->head_k_scale = half_range(k > r_bound ? k : r_bound);
        l->head_v_scale = half_range(of_row * r[ATTN_V_B].top * fabsf(l->w[ATTN_V_B].scale));
    }
    l->gated_bound = r[FFN_GATE].bound * r[FFN_UP].bound;
    for (enum layer_weight post : {ATTN_POST_NORM, FFN_POST_NORM})
        if (from->w[post].data)
            *rms += fabsf(e->hp.residual_scale) * top_of(&from->w[post]);
}

static bool reads_the_stream(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        any |= m->layers[i].mixer != MIXER_NONE && !m->layers[i].w[ATTN_NORM].data;
    return any;
}

bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err)
{
    const size_t n = (size_t)e->hp.n_layer * N_LAYER_WEIGHTS, // and five that no layer has
        n_bytes = (n + 5) * sizeof(struct weight_range);
    struct wmat *const altup[] = {&e->altup_proj, &e->altup_unembd_proj};
    float rms = 0.0f;
    struct weight_range *device = NULL, *host = (struct weight_range *)malloc(n_bytes);
    bool ok = (host || error_oom(err, "the ranges of the weights", n_bytes)) &&
              CHECK_CUDA(cudaMalloc(&device, n_bytes), err) &&
              CHECK_CUDA(cudaMemsetAsync(device, 0, n_bytes, e->q.stream), err);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        ok = launch_layer(e, &e->layers[i], device + i * N_LAYER_WEIGHTS, err);
    if (reads_the_stream(m)) // else nobody asks how large the embedding is
        ok = ok && weight_range_launch(&e->q, &e->tok_embd, NULL, NULL, &device[n], err);
    if (m->token_layers.data)
        ok = ok &&
             weight_range_launch(&e->q, &e->token_layers_proj, NULL, NULL, &device[n + 1], err);
    if (m->predicts_for)
        ok =
            ok && weight_range_launch(&e->q, &e->prediction.joint, NULL, NULL, &device[n + 2], err);
    for (int i = 0; ok && i < 2 && e->hp.n_side > 0; i++) {
        const struct wmat w = whole_stack(altup[i], e->hp.n_side);
        ok = weight_range_launch(&e->q, &w, NULL, NULL, &device[n + 3 + i], err);
    }
    ok = ok &&
         CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, e->q.stream),
                    err) &&
         CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
    if (ok)
        rms = fabsf(e->hp.embd_scale) * host[n].top;
    if (ok && m->token_layers.data && e->token_layers_proj.type != QUANT_F16)
        e->token_layers_proj.half_scale = half_range(host[n + 1].top);
    if (ok && m->predicts_for && e->prediction.joint.type != QUANT_F16)
        e->prediction.joint.half_scale = half_range(host[n + 2].top);
    for (int i = 0; ok && i < 2 && e->hp.n_side > 0; i++)
        if (altup[i]->type != QUANT_F16)
            altup[i]->half_scale = half_range(host[n + 3 + i].top);
    for (uint32_t i = 0; ok && i < e->hp.n_layer; i++)
        take_layer(e, &m->layers[i], host + i * N_LAYER_WEIGHTS, &rms, &e->layers[i]);
    cudaFree(device);
    free(host);
    return ok;
}
