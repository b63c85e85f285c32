// The forward pass, as launches in the order of the model: a decoder-only transformer (Llama:
// Touvron et al. 2023) whose layers are what their facts say (model/model.h). Once for a single
// token, where fused matrix-vector kernels do nearly everything, and once for many, where matrices
// meet matrices.
#include "engine_impl.h"

static struct attention attention_args(const struct cuda_engine *e, const struct gpu_layer *l)
{
    const struct layer *f = l->facts;
    const struct rope *rope = &e->base.model->ropes[f->rope];
    struct attention a = {};
    a.n_head = f->n_head;
    a.n_head_kv = f->n_head_kv;
    a.head_dim = f->head_dim;
    a.n_swa = f->window;
    a.eps = e->hp.norm_eps;
    a.q_norm = l->v[ATTN_Q_NORM];
    a.k_norm = l->v[ATTN_K_NORM];
    a.norm_whole = f->qk_norm == QK_NORM_WHOLE;
    a.norm_rotated = f->qk_norm_rotated;
    a.softcap = f->attn_softcap;
    a.temp_scale = e->hp.attn_temp_scale;
    a.temp_len = e->hp.attn_temp_len;
    a.rope_halves = rope->layout == ROPE_HALVES;
    a.rope_dim = rope->n_dim;
    a.rope = rope->layout == ROPE_NONE ? NULL : e->ropes.t[f->rope].turns;
    a.k = l->k_cache;
    a.v = l->v_cache;
    a.q_scale = l->q_scale * 1.4426950408889634f * f->attn_scale;
    a.score_undo = half_range_undo(l->q_scale) * half_range_undo(l->k_cache.scale);
    a.v_undo = half_range_undo(l->v_cache.scale);
    a.rows = &e->s.step->at;
    a.tables = e->s.kv_tables;
    a.max_blocks = kv_blocks(e->base.n_ctx);
    a.q_in = e->s.q;
    a.k_in = e->s.k;
    a.v_in = e->s.v;
    a.ld_q = f->n_head * f->head_dim;
    a.ld_kv = f->n_head_kv * f->head_dim;
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

static bool is_plain_type(const struct wmat *w)
{
    return w->type == QUANT_F32 || w->type == QUANT_F16 || w->type == QUANT_BF16;
}

// The weights that something is launched for, as cuda_queue takes it: a matrix alone, or all that
// have the same input.
static const char *name_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].name;
}

static const char *group_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].group;
}

// The norm of what the feed-forward network reads; NULL: none.
static const float *ffn_norm(const struct gpu_layer *l)
{
    return l->v[l->facts->parallel ? ATTN_NORM : FFN_NORM];
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
    m.eps = e->hp.norm_eps;
    m.skip = &e->s.step->done;
    return m;
}

// The launch; `what` as cuda_queue takes it. A row too wide for a block's shared memory is prepared
// by a launch of its own, as several rows are.
static bool multiply_one(const struct cuda_engine *e, const char *what, struct matvec *m,
                         struct error *err)
{
    const struct queue *q = cuda_queue(e, what);
    if (!matvec_row_fits(q, m)) {
        void *forms[2] = {}; // of quantised and of plain matrices
        for (uint32_t i = 0; i < m->n_part; i++)
            forms[is_plain_type(&m->w[i])] = is_plain_type(&m->w[i]) ? e->s.act_f32 : e->s.act32;
        if (!act_launch(q, m->x, 1, m->w[0].n_cols, m->norm, m->eps, forms[0], forms[1], NULL, err))
            return false;
        m->x = NULL;
        m->act32 = forms[0];
        m->act_f32 = forms[1];
    }
    return matvec_launch(q, m, err);
}

// The end of a block: x += residual_scale * (W in + bias), the product normed unless norm is NULL.
static bool add_one(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    enum layer_weight bias, const float *in, const float *norm, struct error *err)
{
    const struct scratch *s = &e->s;
    struct matvec m = one_column(e, in, NULL, norm ? MATVEC_STORE : MATVEC_ADD);
    m.scale = e->hp.residual_scale;
    add_part(&m, &l->w[w], l->v[bias], norm ? s->up : s->x);
    return multiply_one(e, name_of(l, w), &m, err) &&
           (!norm || add_normed_launch(&e->q, s->up, norm, e->hp.norm_eps, e->hp.residual_scale,
                                       s->x, 1, e->hp.n_embd, &s->step->done, err)) &&
           cuda_look(e, name_of(l, w), err);
}

static bool attend_one(struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    const struct scratch *s = &e->s;
    struct matvec qkv = one_column(e, s->x, l->v[ATTN_NORM], MATVEC_STORE);
    add_part(&qkv, &l->w[ATTN_Q], l->v[ATTN_Q_BIAS], s->q);
    add_part(&qkv, &l->w[ATTN_K], l->v[ATTN_K_BIAS], s->k);
    add_part(&qkv, &l->w[ATTN_V], l->v[ATTN_V_BIAS], s->v);
    struct attention attention = attention_args(e, l); // norms, RoPE and KV write included
    attention.skip = &s->step->done;
    return multiply_one(e, group_of(l, ATTN_Q), &qkv, err) &&
           attention_decode_launch(cuda_queue(e, "kv"), &attention, err) &&
           add_one(e, l, ATTN_OUTPUT, ATTN_OUTPUT_BIAS, s->att, l->v[ATTN_POST_NORM], err);
}

static bool feed_forward_one(struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    const struct scratch *s = &e->s;
    // else no kernel multiplies both at once
    const bool fused = l->w[FFN_GATE].type == l->w[FFN_UP].type;
    struct matvec m = one_column(e, s->x, ffn_norm(l), fused ? MATVEC_GATED : MATVEC_STORE);
    m.act = l->facts->act;
    add_part(&m, &l->w[FFN_GATE], NULL, s->gate);
    add_part(&m, &l->w[FFN_UP], NULL, s->up);
    return multiply_one(e, group_of(l, FFN_UP), &m, err) &&
           (fused || gate_launch(&e->q, m.act, s->gate, s->up, l->facts->n_ff, err)) &&
           add_one(e, l, FFN_DOWN, FFN_DOWN_BIAS, s->gate, l->v[FFN_POST_NORM], err);
}

bool cuda_forward_one(struct cuda_engine *e, struct error *err)
{
    const struct scratch *s = &e->s;
    if (!embed_launch(cuda_queue(e, "token_embd"), &e->tok_embd, &s->step->token, 1, s->x,
                      e->hp.embd_scale, &e->ropes, &s->step->at.pos, &s->step->done, err) ||
        !cuda_look(e, "token_embd", err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (!attend_one(e, &e->layers[i], err) || !feed_forward_one(e, &e->layers[i], err))
            return false;
    return true;
}

// ---- many tokens

// How n columns are multiplied with a matrix.
enum product { BY_VECTOR, BY_CUBLAS, BY_HOPPER };

static uint32_t n_by_vector(const struct cuda_engine *e)
{
    return e->q.hopper ? MATVEC_MAX_ROWS_HOPPER : MATVEC_MAX_ROWS;
}

static enum product product_for(const struct cuda_engine *e, const struct wmat *w, uint32_t n)
{
    if (n <= n_by_vector(e))
        return BY_VECTOR;
    return e->q.hopper && w->type != QUANT_F32 ? BY_HOPPER : BY_CUBLAS;
}

// Matrices with the same input, and where their results go: y[i] (n, rows).
struct products {
    const struct wmat *w[MATVEC_MAX_PARTS];
    const float *bias[MATVEC_MAX_PARTS];
    float *y[MATVEC_MAX_PARTS];
    uint32_t n_part;
    bool add;          // to what is there, times residual_scale
    const char *what;  // for a recorder of times
    float gated_bound; // see act_f16
};

// Prepares n rows of x (n, n_cols) for the matrices in the forms that they take.
static bool prepare(const struct cuda_engine *e, const float *x, uint32_t n, const float *norm,
                    const struct products *p, struct error *err)
{
    const struct scratch *s = &e->s;
    void *act32 = NULL, *f32 = NULL;
    struct act_f16 f16 = {};
    uint32_t n_cols = p->w[0]->n_cols;
    f16.ld = e->q.hopper ? (uint32_t)GEMM_PACKED : gemm_ld(n_cols);
    f16.undo = s->undo;
    f16.gated_bound = p->gated_bound;
    f16.undo_gated = s->undo_gated;
    for (uint32_t i = 0; i < p->n_part; i++) {
        const struct wmat *w = p->w[i];
        if (product_for(e, w, n) == BY_VECTOR)
            *(is_plain_type(w) ? &f32 : &act32) = is_plain_type(w) ? s->act_f32 : s->act32;
        else if (w->type == QUANT_F32)
            f32 = s->act_f32;
        else
            f16.x = s->act_f16;
    }
    return act_launch(cuda_queue(e, p->what), x, n, n_cols, norm, e->hp.norm_eps, act32, f32, &f16,
                      err);
}

static bool multiply_by_vector(const struct cuda_engine *e, const struct products *p, uint32_t part,
                               uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const struct wmat *w = p->w[part];
    size_t row_bytes = act_row_bytes(w->type, w->n_cols);
    for (uint32_t i = 0; i < n; i += MATVEC_MAX_COLS) {
        struct matvec m = {};
        m.mode = p->add ? MATVEC_ADD : MATVEC_STORE;
        m.scale = e->hp.residual_scale;
        m.n_col = lesser(n - i, (uint32_t)MATVEC_MAX_COLS);
        m.act32 = (const uint8_t *)s->act32 + i * row_bytes;
        m.act_f32 = (const uint8_t *)s->act_f32 + i * row_bytes;
        add_part(&m, w, p->bias[part], p->y[part] + (size_t)i * w->rows);
        if (!matvec_launch(&e->q, &m, err))
            return false;
    }
    return true;
}

static bool multiply_by_cublas(const struct cuda_engine *e, const struct products *p, uint32_t part,
                               uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const struct wmat *w = p->w[part];
    const float *bias = p->bias[part];
    float *y = p->y[part];
    const float scale = p->add ? e->hp.residual_scale : 1.0f;
    if (w->type == QUANT_F32)
        return gemm_launch(&e->q, w, s->act_f32, n, y, w->rows, scale, p->add ? 1.0f : 0.0f,
                           s->tile, s->tile_bytes, err) &&
               (!bias ||
                finish_product_launch(&e->q, y, NULL, bias, 1.0f, false, y, n, w->rows, err));
    float *product = p->add ? s->gate : y; // nothing else is in there then
    return gemm_launch(&e->q, w, s->act_f16, n, product, w->rows, 1.0f, 0.0f, s->tile,
                       s->tile_bytes, err) &&
           finish_product_launch(&e->q, product, s->undo, bias, scale, p->add, y, n, w->rows, err);
}

static struct gemm gemm_args(const struct cuda_engine *e, const __half *x, const float *undo,
                             uint32_t n, enum matvec_mode mode)
{
    struct gemm g = {};
    g.mode = mode;
    g.n = n;
    g.x = x;
    g.undo = undo;
    g.scale = e->hp.residual_scale;
    g.partial = (float *)e->s.tile;
    g.counters = e->s.gemm_counters;
    return g;
}

// Whether the weights of both may become float16 with the same scale.
static bool same_range(const struct wmat *a, const struct wmat *b)
{
    float r = a->half_scale / b->half_scale;
    return a->type == b->type && !(r > 256.0f) && !(r < 1.0f / 256.0f);
}

// All products, from what prepare left; x: the packed input, where one is taken, and its undo.
static bool multiply(const struct cuda_engine *e, const struct products *p, const __half *x,
                     const float *undo, uint32_t n, struct error *err)
{
    cuda_queue(e, p->what);
    for (uint32_t i = 0; i < p->n_part;) {
        enum product by = product_for(e, p->w[i], n);
        if (by == BY_HOPPER) { // neighbours of one type and range at once
            struct gemm g = gemm_args(e, x, undo, n, p->add ? MATVEC_ADD : MATVEC_STORE);
            const struct wmat *first = p->w[i];
            for (; i < p->n_part && same_range(first, p->w[i]); i++) {
                g.w[g.n_part] = *p->w[i];
                g.bias[g.n_part] = p->bias[i];
                g.y[g.n_part++] = p->y[i];
            }
            if (!gemm_hopper_launch(&e->q, &g, err))
                return false;
        } else if (by == BY_VECTOR ? !multiply_by_vector(e, p, i, n, err)
                                   : !multiply_by_cublas(e, p, i, n, err)) {
            return false;
        } else {
            i++;
        }
    }
    return true;
}

// The end of a block for n tokens, see add_one. x as multiply takes it: prepared from the float32
// rows `in`, or packed already (in NULL).
static bool add_many(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                     enum layer_weight bias, const float *in, const __half *x, const float *undo,
                     const float *norm, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    struct products p = {{&l->w[w]}, {l->v[bias]}, {norm ? s->up : s->x},
                         1,          norm == NULL, name_of(l, w)};
    return (!in || prepare(e, in, n, NULL, &p, err)) && multiply(e, &p, x, undo, n, err) &&
           (!norm || add_normed_launch(&e->q, s->up, norm, e->hp.norm_eps, e->hp.residual_scale,
                                       s->x, n, e->hp.n_embd, NULL, err));
}

static bool attend_many(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err)
{
    const struct scratch *s = &e->s;
    struct products qkv = {{&l->w[ATTN_Q], &l->w[ATTN_K], &l->w[ATTN_V]},
                           {l->v[ATTN_Q_BIAS], l->v[ATTN_K_BIAS], l->v[ATTN_V_BIAS]},
                           {s->q, s->k, s->v},
                           3,
                           false,
                           group_of(l, ATTN_Q)};
    struct attention attention = attention_args(e, l);
    return prepare(e, s->x, n, l->v[ATTN_NORM], &qkv, err) &&
           multiply(e, &qkv, s->act_f16, s->undo, n, err) &&
           attention_prefill_launch(cuda_queue(e, "kv"), &attention, n, err) &&
           add_many(e, l, ATTN_OUTPUT, ATTN_OUTPUT_BIAS, s->att, s->act_f16, s->undo,
                    l->v[ATTN_POST_NORM], n, err);
}

static bool feed_forward_many(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                              struct error *err)
{
    const struct scratch *s = &e->s;
    const struct wmat *gate = &l->w[FFN_GATE], *up = &l->w[FFN_UP];
    struct products in = {{gate, up}, {}, {s->gate, s->up}, 2, false, group_of(l, FFN_UP)};
    const bool fused = product_for(e, gate, n) == BY_HOPPER && same_range(gate, up) &&
                       product_for(e, &l->w[FFN_DOWN], n) == BY_HOPPER;
    in.gated_bound = fused ? l->gated_bound : 0.0f;
    if (!prepare(e, s->x, n, ffn_norm(l), &in, err))
        return false;
    if (fused) {
        struct gemm g = gemm_args(e, s->act_f16, s->undo, n, MATVEC_GATED);
        g.act = l->facts->act;
        g.w[0] = *gate;
        g.w[1] = *up;
        g.n_part = 2;
        g.out = s->ff_f16;
        g.undo_out = s->undo_gated;
        return gemm_hopper_launch(&e->q, &g, err) &&
               add_many(e, l, FFN_DOWN, FFN_DOWN_BIAS, NULL, s->ff_f16, s->undo_gated,
                        l->v[FFN_POST_NORM], n, err);
    }
    return multiply(e, &in, s->act_f16, s->undo, n, err) &&
           gate_launch(&e->q, l->facts->act, s->gate, s->up, (size_t)n * l->facts->n_ff, err) &&
           add_many(e, l, FFN_DOWN, FFN_DOWN_BIAS, s->gate, s->act_f16, s->undo,
                    l->v[FFN_POST_NORM], n, err);
}

bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    if (n > n_by_vector(e) && s->blas_workspace_bytes && !cuda_blas_open(e, err))
        return false;
    if (!embed_launch(cuda_queue(e, "token_embd"), &e->tok_embd, s->tokens, n, s->x,
                      e->hp.embd_scale, &e->ropes, &s->step->at.pos, NULL, err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (!cuda_pace(e, n, i, err) || interrupted(e, err) ||
            !attend_many(e, &e->layers[i], n, err) || !feed_forward_many(e, &e->layers[i], n, err))
            return false;
    return true;
}

// ---- the head

static bool multiply_head(struct cuda_engine *e, size_t row0, uint32_t n, const uint32_t *skip,
                          struct error *err)
{
    const struct scratch *s = &e->s;
    const float *x = s->x + row0 * e->hp.n_embd;
    struct matvec m = {};
    m.mode = MATVEC_STORE;
    m.n_col = n;
    m.eps = e->hp.norm_eps;
    m.skip = skip;
    add_part(&m, &e->output, NULL, s->logits);
    if (n == 1) {
        m.x = x;
        m.norm = e->output_norm;
        return multiply_one(e, "output", &m, err);
    }
    const struct queue *q = cuda_queue(e, "output");
    bool plain = is_plain_type(&e->output);
    m.act32 = s->act32;
    m.act_f32 = s->act_f32;
    return act_launch(q, x, n, e->hp.n_embd, e->output_norm, e->hp.norm_eps,
                      plain ? NULL : s->act32, plain ? s->act_f32 : NULL, NULL, err) &&
           matvec_launch(q, &m, err);
}

bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err)
{
    const struct hparams *hp = &e->hp;
    return multiply_head(e, row0, (uint32_t)n, skip, err) &&
           ((hp->logit_scale == 1.0f && hp->final_softcap == 0.0f) ||
            finish_logits_launch(&e->q, e->s.logits, n * hp->n_vocab, hp->logit_scale,
                                 hp->final_softcap, skip, err));
}
