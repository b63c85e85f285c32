// The forward pass, as launches in the order of the model: a decoder-only transformer with RMSNorm,
// rotary positions, grouped-query attention and SwiGLU (Llama: Touvron et al. 2023; Qwen2, Qwen3).
// Once for a single token, where fused matrix-vector kernels do nearly everything, and once for
// many, where matrices meet matrices.
#include "engine_impl.h"

static struct attention attention_args(const struct cuda_engine *e, const struct gpu_layer *l)
{
    const struct hparams *hp = &e->hp;
    struct attention a = {};
    a.n_head = hp->n_head;
    a.n_head_kv = hp->n_head_kv;
    a.head_dim = hp->head_dim;
    a.n_ctx = e->base.n_ctx;
    a.n_swa = hp->n_swa;
    a.eps = hp->rms_eps;
    a.q_norm = l->q_norm;
    a.k_norm = l->k_norm;
    a.rope_halves = hp->rope_layout == ROPE_HALVES;
    a.rope_dim = hp->rope_dim;
    a.rope = e->s.rope;
    a.k = l->k;
    a.v = l->v;
    a.pos0 = &e->s.step->pos;
    a.q_in = e->s.q;
    a.k_in = e->s.k;
    a.v_in = e->s.v;
    a.ld_q = hp->n_head * hp->head_dim;
    a.ld_kv = hp->n_head_kv * hp->head_dim;
    a.out = e->s.att;
    a.partial = e->s.partial;
    a.counters = e->s.counters;
    a.q_f16 = e->s.q_f16;
    return a;
}

static void add_part(struct matvec *m, const struct wmat *w, const float *bias, float *y)
{
    m->w[m->n_part] = *w;
    m->bias[m->n_part] = bias;
    m->y[m->n_part] = y;
    m->ld[m->n_part] = w->rows;
    m->n_part++;
}

// ---- one token

// A matrix-vector launch on one token's input x, normalised unless norm is NULL.
static struct matvec one_column(const struct cuda_engine *e, const float *x, const float *norm,
                                enum matvec_mode mode)
{
    struct matvec m = {};
    m.mode = mode;
    m.n_col = 1;
    m.x = x;
    m.norm = norm;
    m.eps = e->hp.rms_eps;
    m.skip = &e->s.step->done;
    return m;
}

static bool layer_one(const struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    const struct queue *q = &e->q;
    const struct scratch *s = &e->s;

    struct matvec qkv = one_column(e, s->x, l->attn_norm, MATVEC_STORE);
    add_part(&qkv, &l->wq, l->bq, s->q);
    add_part(&qkv, &l->wk, l->bk, s->k);
    add_part(&qkv, &l->wv, l->bv, s->v);

    struct attention attention = attention_args(e, l); // norms, RoPE and KV write included
    attention.skip = &s->step->done;

    struct matvec out = one_column(e, s->att, NULL, MATVEC_ADD);
    add_part(&out, &l->wo, l->bo, s->x);

    struct matvec gate_up = one_column(e, s->x, l->ffn_norm, MATVEC_SWIGLU);
    add_part(&gate_up, &l->w_gate, NULL, s->gate);
    add_part(&gate_up, &l->w_up, NULL, s->up);

    struct matvec down = one_column(e, s->gate, NULL, MATVEC_ADD);
    add_part(&down, &l->w_down, NULL, s->x);

    bool apart = l->w_gate.type != l->w_up.type; // then no kernel multiplies both at once
    if (apart)
        gate_up.mode = MATVEC_STORE;
    return matvec_launch(q, &qkv, err) && attention_decode_launch(q, &attention, err) &&
           matvec_launch(q, &out, err) && matvec_launch(q, &gate_up, err) &&
           (!apart || swiglu_launch(q, s->gate, s->up, e->hp.n_ff, err)) &&
           matvec_launch(q, &down, err);
}

bool cuda_forward_one(struct cuda_engine *e, struct error *err)
{
    const struct scratch *s = &e->s;
    if (!embed_launch(&e->q, &e->tok_embd, &s->step->token, 1, s->x, e->freqs, e->hp.rope_dim / 2,
                      e->magnitude, &s->step->pos, s->rope, &s->step->done, err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (!layer_one(e, &e->layers[i], err))
            return false;
    return true;
}

// ---- many tokens

static bool is_plain_type(const struct wmat *w)
{
    return w->type == QUANT_F32 || w->type == QUANT_F16 || w->type == QUANT_BF16;
}

// Prepares n rows of x (n, n_cols) for the matrices w[0 .. n_w) in the form that they take.
static bool prepare(const struct cuda_engine *e, const float *x, uint32_t n, const float *norm,
                    const struct wmat *const *w, size_t n_w, struct error *err)
{
    const struct scratch *s = &e->s;
    uint32_t n_cols = w[0]->n_cols;
    bool plain = false, quantised = false;
    for (size_t i = 0; i < n_w; i++)
        *(is_plain_type(w[i]) ? &plain : &quantised) = true;
    bool f32 = false, f16 = false;
    for (size_t i = 0; i < n_w; i++)
        *(w[i]->type == QUANT_F32 ? &f32 : &f16) = true;
    if (n > MATVEC_MAX_ROWS)
        return act_launch(&e->q, x, n, n_cols, norm, e->hp.rms_eps, NULL, f32 ? s->act_f32 : NULL,
                          f16 ? s->act_f16 : NULL, gemm_ld(n_cols), err);
    return act_launch(&e->q, x, n, n_cols, norm, e->hp.rms_eps, quantised ? s->act32 : NULL,
                      plain ? s->act_f32 : NULL, NULL, 0, err);
}

// y (n, rows) = W x + bias, or y += ..., from what prepare left.
static bool multiply(const struct cuda_engine *e, const struct wmat *w, const float *bias,
                     uint32_t n, float *y, bool add, struct error *err)
{
    const struct scratch *s = &e->s;
    if (n > MATVEC_MAX_ROWS)
        return gemm_launch(&e->q, w, w->type == QUANT_F32 ? s->act_f32 : s->act_f16, n, y, w->rows,
                           add ? 1.0f : 0.0f, s->tile, s->tile_bytes, err) &&
               (!bias || add_bias_launch(&e->q, y, bias, n, w->rows, err));
    size_t row_bytes = act_row_bytes(w->type, w->n_cols);
    for (uint32_t i = 0; i < n; i += MATVEC_MAX_COLS) {
        struct matvec m = {};
        m.mode = add ? MATVEC_ADD : MATVEC_STORE;
        m.n_col = lesser(n - i, (uint32_t)MATVEC_MAX_COLS);
        m.act32 = (const uint8_t *)s->act32 + i * row_bytes;
        m.act_f32 = (const uint8_t *)s->act_f32 + i * row_bytes;
        add_part(&m, w, bias, y + (size_t)i * w->rows);
        if (!matvec_launch(&e->q, &m, err))
            return false;
    }
    return true;
}

static bool layer_many(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                       struct error *err)
{
    const struct scratch *s = &e->s;
    const struct wmat *qkv[] = {&l->wq, &l->wk, &l->wv}, *out[] = {&l->wo};
    const struct wmat *gate_up[] = {&l->w_gate, &l->w_up}, *down[] = {&l->w_down};
    struct attention attention = attention_args(e, l);
    return prepare(e, s->x, n, l->attn_norm, qkv, 3, err) &&
           multiply(e, &l->wq, l->bq, n, s->q, false, err) &&
           multiply(e, &l->wk, l->bk, n, s->k, false, err) &&
           multiply(e, &l->wv, l->bv, n, s->v, false, err) &&
           attention_prefill_launch(&e->q, &attention, n, err) &&
           prepare(e, s->att, n, NULL, out, 1, err) &&
           multiply(e, &l->wo, l->bo, n, s->x, true, err) &&
           prepare(e, s->x, n, l->ffn_norm, gate_up, 2, err) &&
           multiply(e, &l->w_gate, NULL, n, s->gate, false, err) &&
           multiply(e, &l->w_up, NULL, n, s->up, false, err) &&
           swiglu_launch(&e->q, s->gate, s->up, (size_t)n * e->hp.n_ff, err) &&
           prepare(e, s->gate, n, NULL, down, 1, err) &&
           multiply(e, &l->w_down, NULL, n, s->x, true, err);
}

bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    if (!embed_launch(&e->q, &e->tok_embd, s->tokens, n, s->x, e->freqs, e->hp.rope_dim / 2,
                      e->magnitude, &s->step->pos, s->rope, NULL, err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (interrupted(e, err) || !layer_many(e, &e->layers[i], n, err))
            return false;
    return true;
}

// ---- the head

bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err)
{
    const struct scratch *s = &e->s;
    const float *x = s->x + row0 * e->hp.n_embd;
    struct matvec m = {};
    m.mode = MATVEC_STORE;
    m.n_col = (uint32_t)n;
    m.eps = e->hp.rms_eps;
    m.skip = skip;
    add_part(&m, &e->output, NULL, s->logits);
    if (n == 1) {
        m.x = x;
        m.norm = e->output_norm;
    } else {
        const struct wmat *head[] = {&e->output};
        m.act32 = s->act32;
        m.act_f32 = s->act_f32;
        if (!prepare(e, x, (uint32_t)n, e->output_norm, head, 1, err))
            return false;
    }
    return matvec_launch(&e->q, &m, err);
}
