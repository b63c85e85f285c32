// The forward pass, as launches in the order of the model: a decoder-only transformer (Llama:
// Touvron et al. 2023) whose layers are what their facts say (model/model.h). Once for a single
// token, where fused matrix-vector kernels do nearly everything, and once for many, where matrices
// meet matrices.
#include "altup.h"
#include "engine_impl.h"
#include "owed.h"

static bool attends(const struct gpu_layer *l)
{
    return l->facts->mixer == MIXER_ATTENTION;
}

static void add_part(struct matvec *m, const struct wmat *w, const float *bias, float *y)
{
    m->w[m->n_part] = *w;
    m->bias[m->n_part] = bias;
    m->y[m->n_part] = y;
    m->ld[m->n_part] = w->rows;
    m->n_part++;
}

// Prepares to read n rows of x, normed with weights w (NULL: not) and biases b; keep: also when x
// has changed.
static bool read_normed(const struct cuda_engine *e, const char *what, const float *x,
                        const float *w, const float *b, bool keep, uint32_t n, const uint32_t *skip,
                        struct input *in, struct error *err)
{
    const bool apart = w && (e->hp.norm != NORM_RMS || b || keep);
    in->x = apart ? e->s.normed : x;
    in->norm = apart ? NULL : w;
    return !apart || norm_launch(cuda_queue(e, what), e->hp.norm, x, w, b, e->hp.norm_eps,
                                 e->s.normed, e->hp.n_embd, n, e->hp.n_embd, skip, err);
}

// ---- one token

// A matrix-vector launch on one token's input.
static struct matvec one_column(const struct cuda_engine *e, struct input in, enum matvec_mode mode)
{
    struct matvec m = {};
    m.mode = mode;
    m.n_col = 1;
    m.x = in.x;
    m.add = in.add;
    m.norm = in.norm;
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
    const bool part = cuda_is_part(e, l, w), apart = norm || part;
    struct matvec m = one_column(e, {in, NULL}, apart ? MATVEC_STORE : MATVEC_ADD);
    m.scale = e->hp.residual_scale;
    add_part(&m, &l->w[w], part ? NULL : l->v[bias], apart ? s->up : s->x);
    return multiply_one(e, name_of(l, w), &m, err) &&
           (!part || cuda_sum_parts(e, 0, l->v[bias], norm, 1, &s->step->done, err)) &&
           (!norm || cuda_add_block(e, l, w, norm, 0, err)) && cuda_look(e, l, name_of(l, w), err);
}

// Of latent attention: what cuda_attend_latent begins with.
static bool project_latent_one(const struct cuda_engine *e, const struct gpu_layer *l,
                               struct input in, struct error *err)
{
    const struct latent_scratch *s = &e->latent;
    const bool low = l->facts->latent.n_q > 0;
    struct matvec m = one_column(e, in, MATVEC_STORE);
    add_part(&m, &l->w[low ? ATTN_Q_A : ATTN_Q], NULL, low ? s->q_low : s->q);
    add_part(&m, &l->w[ATTN_KV_A], NULL, e->s.k);
    if (!multiply_one(e, group_of(l, ATTN_KV_A), &m, err))
        return false;
    if (!low)
        return true;
    struct matvec up = one_column(e, {s->q_low, l->v[ATTN_Q_A_NORM]}, MATVEC_STORE);
    add_part(&up, &l->w[ATTN_Q_B], NULL, s->q);
    return multiply_one(e, name_of(l, ATTN_Q_B), &up, err);
}

static bool project_one(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                        struct error *err)
{
    const struct scratch *s = &e->s;
    if (l->facts->latent.n_kv > 0)
        return project_latent_one(e, l, in, err);
    struct matvec qkv = one_column(e, in, MATVEC_STORE);
    add_part(&qkv, &l->w[ATTN_Q], l->v[ATTN_Q_BIAS], s->q);
    if (l->facts->w[ATTN_K].data)
        add_part(&qkv, &l->w[ATTN_K], l->v[ATTN_K_BIAS], s->k);
    if (l->facts->w[ATTN_V].data)
        add_part(&qkv, &l->w[ATTN_V], l->v[ATTN_V_BIAS], s->v);
    return multiply_one(e, group_of(l, ATTN_Q), &qkv, err) && cuda_clamp(e, l, 1, err) &&
           cuda_norm_heads(e, l, 1, &s->step->done, err);
}

static bool attend_one(struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    const struct scratch *s = &e->s;
    return (l->facts->latent.n_kv > 0
                ? cuda_attend_latent(e, l, 1, &s->step->done, err)
                : cuda_ask_ahead(e, l, err) && cuda_attend(e, l, 0, NULL, err)) &&
           add_one(e, l, ATTN_OUTPUT, ATTN_OUTPUT_BIAS, s->att, l->v[ATTN_POST_NORM], err);
}

// The end of a feed-forward network beside experts, which join it to what they give.
static bool experts_beside_one(struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    struct matvec m = one_column(e, {e->s.gate, NULL}, MATVEC_STORE);
    add_part(&m, &l->w[FFN_DOWN], e->rank ? NULL : l->v[FFN_DOWN_BIAS], e->s.beside);
    if (!multiply_one(e, name_of(l, FFN_DOWN), &m, err) ||
        !cuda_sum_apart(e, e->s.beside, l->v[FFN_DOWN_BIAS], 1, m.skip, err) ||
        !cuda_experts_one(e, l, cuda_stream(e), l->v[EXPERT_NORM], err))
        return false;
    e->x_is_away = false; // joined, it is in s.x
    return cuda_look(e, l, name_of(l, EXPERT_DOWN), err);
}

// s.gate (n, n_ff) = act(s.gate) * up
static bool activate(const struct cuda_engine *e, const struct layer *l, const float *up,
                     uint32_t n, struct error *err)
{
    float *gate = e->s.gate;
    return l->sparse
               ? gate_cut_launch(&e->q, l->act, &l->xielu, l->sparsity, gate, up, n, l->n_ff, err)
               : gate_launch(&e->q, l->act, &l->xielu, gate, up, (size_t)n * l->n_ff, err);
}

static bool feed_forward_one(struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                             struct error *err)
{
    const struct scratch *s = &e->s;
    const struct layer *f = l->facts;
    if (f->n_ff == 0)
        return cuda_experts_one(e, l, in.x, in.norm, err) &&
               cuda_look(e, l, name_of(l, EXPERT_DOWN), err);
    const bool gated = f->w[FFN_GATE].data;
    const bool fused = gate_is_fused(f) && l->w[FFN_GATE].type == l->w[FFN_UP].type;
    struct matvec m = one_column(e, in, fused ? MATVEC_GATED : MATVEC_STORE);
    m.act = f->act;
    if (gated)
        add_part(&m, &l->w[FFN_GATE], l->v[FFN_GATE_BIAS], s->gate);
    add_part(&m, &l->w[FFN_UP], l->v[FFN_UP_BIAS], gated ? s->up : s->gate);
    return multiply_one(e, group_of(l, FFN_UP), &m, err) &&
           (fused || activate(e, f, gated ? s->up : NULL, 1, err)) &&
           (is_beside(f)
                ? experts_beside_one(e, l, err)
                : add_one(e, l, FFN_DOWN, FFN_DOWN_BIAS, s->gate, l->v[FFN_POST_NORM], err));
}

// What reads the norm of the feed-forward network.
static const char *feeds(const struct gpu_layer *l)
{
    return l->facts->n_ff > 0 ? group_of(l, FFN_UP) : name_of(l, ROUTER);
}

// What layers are told of the n tokens at `tokens`, but the projection of the embedding.
static bool embed_told(const struct cuda_engine *e, const int32_t *tokens, uint32_t n,
                       const uint32_t *skip, struct error *err)
{
    const struct rope_tables none = {};
    return embed_launch(cuda_queue(e, e->base.model->token_layers.name), &e->token_layers, tokens,
                        n, e->s.told, sqrtf((float)e->hp.n_embd_layer), NULL, &none, &e->s.step->at,
                        true, skip, err);
}

static bool tell(const struct cuda_engine *e, uint32_t n, const uint32_t *skip, struct error *err)
{
    struct told t = {};
    t.proj = e->s.told_proj;
    t.norm = e->token_layers_norm;
    t.told = e->s.told;
    t.n_layer = e->hp.n_layer;
    t.width = e->hp.n_embd_layer;
    t.scale = 1.0f / sqrtf((float)e->hp.n_embd);
    t.eps = e->hp.norm_eps;
    t.skip = skip;
    return tell_launch(&e->q, &t, n, err);
}

// gate (n, width) = act(TOKEN_GATE's product) * what the layer is told
static bool gate_told(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                      uint32_t n, struct error *err)
{
    const uint32_t width = e->hp.n_embd_layer;
    const struct layer *f = l->facts;
    const float *told = e->s.told + (size_t)(l - e->layers) * width;
    if (n == 0 && in.add.y && gate_is_fused(f)) {
        struct matvec m = one_column(e, in, MATVEC_TIMES);
        m.act = f->act;
        add_part(&m, &l->w[TOKEN_GATE], told, e->s.gate);
        return multiply_one(e, name_of(l, TOKEN_GATE), &m, err);
    }
    return cuda_multiply(e, name_of(l, TOKEN_GATE), &l->w[TOKEN_GATE], NULL, in, n, e->s.gate,
                         err) &&
           gate_told_launch(&e->q, f->act, &f->xielu, e->s.gate, told, e->hp.n_layer * width,
                            rows_of_step(n), width, err);
}

// What reads the norm of its mixer.
static const char *mixes(const struct gpu_layer *l)
{
    return attends(l)                        ? group_of(l, ATTN_Q)
           : l->facts->mixer == MIXER_LINEAR ? name_of(l, ATTN_OUTPUT)
                                             : cuda_recurrent_group(l);
}

// n rows of x (n = 0: the one of a step) as the mixer, and as the feed-forward network reads them:
// normed, by whoever reads them or before, with what was owed to them.
static bool read_stream(struct cuda_engine *e, const char *what, const float *w, const float *b,
                        bool keep, uint32_t n, struct input *in, struct error *err)
{
    if (!read_normed(e, what, e->s.x, w, b, keep, rows_of_step(n), n ? NULL : &e->s.step->done, in,
                     err))
        return false;
    cuda_make_owed(e, in);
    return true;
}

static bool read_to_mix(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct input *in, struct error *err)
{
    if (cuda_altup_norms(e, l->facts)) {
        *in = {e->s.normed, NULL, NULL};
        return true;
    }
    return l->facts->mixer == MIXER_NONE ||
           read_stream(e, mixes(l), l->v[ATTN_NORM], l->v[ATTN_NORM_BIAS], input_is_kept(l->facts),
                       n, in, err);
}

static bool read_to_feed(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                         struct input *in, struct error *err)
{
    return read_stream(e, feeds(l), l->v[FFN_NORM], l->v[FFN_NORM_BIAS], false, n, in, err);
}

// In parallel layers: as the mixer does, but where there is a norm of its own.
static bool read_beside(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct input *in, struct error *err)
{
    return !l->facts->w[FFN_NORM].data || read_to_feed(e, l, n, in, err);
}

// The mixer but for attention, which another one may be beside.
static bool mix_beside(struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                       uint32_t n, struct error *err)
{
    if (l->facts->mixer == MIXER_LINEAR)
        return cuda_add_mixed(e, l, ATTN_OUTPUT, in.x, n, err);
    return layer_state_size(l->facts) == 0 || cuda_recur(e, l, in, n, err);
}

static bool layer_one(struct cuda_engine *e, const struct gpu_layer *l, struct error *err)
{
    struct input in = {};
    if (!cuda_altup_predict(e, l, 0, err) || !read_to_mix(e, l, 0, &in, err) ||
        (attends(l) && !project_one(e, l, in, err)) ||
        // parallel: nothing but what is kept reads x once the feed-forward network has
        (l->facts->parallel &&
         !(read_beside(e, l, 0, &in, err) && feed_forward_one(e, l, in, err))) ||
        (attends(l) && !attend_one(e, l, err)) || !mix_beside(e, l, in, 0, err) ||
        !cuda_laurel(e, l, in, 0, err))
        return false;
    return (l->facts->parallel || !layer_feeds(l->facts) ||
            (read_to_feed(e, l, 0, &in, err) && feed_forward_one(e, l, in, err))) &&
           cuda_altup_correct(e, l, 0, err);
}

// ---- many tokens

// How n columns are multiplied with a matrix.
enum product { BY_VECTOR, BY_CUBLAS, BY_HOPPER, BY_FEW, BY_WIDE };

// Of n rows of a pass: gemm_wide or, which gives the same bits, gemm_few, which is faster where
// rows are short as long as it takes one turn.
static bool is_wide(const struct cuda_engine *e, const struct wmat *w, uint32_t n)
{
    // (The head's type stands for the model's: products with one input go one way.)
    const bool soon = w == &e->output || is_plain_type(&e->output);
    const uint32_t few = e->hp.n_embd < 2048 ? (uint32_t)GEMM_FEW
                         : soon              ? (uint32_t)PASS_FEW_PLAIN_ROWS
                                             : (uint32_t)PASS_FEW_ROWS;
    return e->pass && e->q.hopper && n > few;
}

// Whether rows are those of prompts that have products of their own.
static bool is_prompt(const struct cuda_engine *e)
{
    return e->any_pieces && (!e->pass || e->pass->n_chunk > 0);
}

static enum product product_for(const struct cuda_engine *e, const struct wmat *w, uint32_t n)
{
    if (is_prompt(e)) // a row's bits depend on nothing but the row
        return n <= FEW_ROWS ? BY_FEW : BY_HOPPER;
    if (e->pass) // nor do they here
        return w->type == QUANT_F32 ? BY_VECTOR : is_wide(e, w, n) ? BY_WIDE : BY_FEW;
    if (n > 1 && n <= FEW_ROWS && w->type != QUANT_F32)
        return BY_FEW;
    if (n <= cuda_rows_by_vector(e))
        return BY_VECTOR;
    return e->q.hopper && w->type != QUANT_F32 ? BY_HOPPER : BY_CUBLAS;
}

static bool is_packed(enum product by)
{
    return by == BY_HOPPER || by == BY_FEW || by == BY_WIDE;
}

bool cuda_takes_packed(const struct cuda_engine *e, const struct wmat *w, uint32_t n)
{
    return is_packed(product_for(e, w, n));
}

static bool gemm_by(enum product by, const struct queue *q, const struct gemm *g, struct error *err)
{
    return by == BY_FEW    ? gemm_few_launch(q, g, err)
           : by == BY_WIDE ? gemm_wide_launch(q, g, err)
                           : gemm_hopper_launch(q, g, err);
}

// How rows are packed for the product with w and those with the same input.
static uint32_t packed_form(const struct cuda_engine *e, const struct wmat *w, uint32_t n)
{
    const bool few = e->pass && !is_prompt(e) ? !is_wide(e, w, n) : n <= FEW_ROWS;
    return few           ? (uint32_t)GEMM_FEW_PACKED
           : e->q.hopper ? (uint32_t)GEMM_PACKED
                         : gemm_ld(w->n_cols);
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

// Prepares n rows for the matrices in the forms that they take.
static bool prepare(const struct cuda_engine *e, struct input in, uint32_t n,
                    const struct products *p, struct error *err)
{
    const struct scratch *s = &e->s;
    void *act32 = NULL, *f32 = NULL;
    struct act_f16 f16 = {.undo = s->undo,
                          .gated_bound = p->gated_bound,
                          .undo_gated = s->undo_gated,
                          .rows = in.rows};
    uint32_t n_cols = p->w[0]->n_cols;
    f16.ld = packed_form(e, p->w[0], n);
    for (uint32_t i = 0; i < p->n_part; i++) {
        const struct wmat *w = p->w[i];
        if (product_for(e, w, n) == BY_VECTOR)
            *(is_plain_type(w) ? &f32 : &act32) = is_plain_type(w) ? s->act_f32 : s->act32;
        else if (w->type == QUANT_F32)
            f32 = s->act_f32;
        else
            f16.x = s->act_f16;
    }
    const struct queue *q = cuda_queue(e, p->what);
    return in.add.y
               ? act_added_launch(q, &in.add, n, n_cols, in.norm, e->hp.norm_eps, &f16, err)
               : act_launch(q, in.x, n, n_cols, in.norm, e->hp.norm_eps, act32, f32, &f16, err);
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
        m.alike = e->pass != NULL;
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
    const float scale = (p->add ? e->hp.residual_scale : 1.0f) * w->scale;
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
    g.long_chunks = is_prompt(e);
    return g;
}

static void add_to(struct gemm *g, const struct products *p, uint32_t part)
{
    g->w[g->n_part] = *p->w[part];
    g->bias[g->n_part] = p->bias[part];
    g->y[g->n_part++] = p->y[part];
}

// All products, from what prepare left; x: the packed input, where one is taken, and its undo.
static bool multiply(const struct cuda_engine *e, const struct products *p, const __half *x,
                     const float *undo, uint32_t n, struct error *err)
{
    cuda_queue(e, p->what);
    bool led = false;
    for (uint32_t i = 0; i < p->n_part;) {
        enum product by = product_for(e, p->w[i], n);
        if (is_packed(by)) { // neighbours of one type and range at once
            struct gemm g = gemm_args(e, x, undo, n, p->add ? MATVEC_ADD : MATVEC_STORE);
            g.alone = p->n_part == 1;
            const struct wmat *first = p->w[i];
            for (; i < p->n_part && same_range(first, p->w[i]); i++)
                add_to(&g, p, i);
            const struct wmat *other = i < p->n_part ? p->w[i] : NULL;
            const bool both = other && by == BY_FEW && product_for(e, other, n) == BY_FEW &&
                              gemm_few_takes_both(first, other, n);
            for (; both && i < p->n_part && same_range(other, p->w[i]); i++, g.n_other++)
                add_to(&g, p, i);
            g.follows = led;
            g.leads = by == BY_FEW && n <= GEMM_FEW && i < p->n_part &&
                      product_for(e, p->w[i], n) == BY_FEW;
            led = g.leads;
            if (!gemm_by(by, &e->q, &g, err))
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
static bool add_many(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                     enum layer_weight bias, const float *in, const __half *x, const float *undo,
                     const float *norm, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const bool part = cuda_is_part(e, l, w), apart = norm || part;
    struct products p = {
        {&l->w[w]}, {part ? NULL : l->v[bias]}, {apart ? s->up : s->x}, 1, !apart, name_of(l, w)};
    return (!in || prepare(e, {in, NULL}, n, &p, err)) && multiply(e, &p, x, undo, n, err) &&
           (!part || cuda_sum_parts(e, 0, l->v[bias], norm, n, NULL, err)) &&
           (!norm || cuda_add_block(e, l, w, norm, n, err));
}

static bool project_latent_many(const struct cuda_engine *e, const struct gpu_layer *l,
                                struct input in, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const bool low = l->facts->latent.n_q > 0;
    const struct products both = {{&l->w[low ? ATTN_Q_A : ATTN_Q], &l->w[ATTN_KV_A]},
                                  {},
                                  {low ? e->latent.q_low : e->latent.q, s->k},
                                  2,
                                  false,
                                  group_of(l, ATTN_KV_A)};
    const struct products up = {{&l->w[ATTN_Q_B]},   {}, {e->latent.q}, 1, false,
                                name_of(l, ATTN_Q_B)};
    return prepare(e, in, n, &both, err) && multiply(e, &both, s->act_f16, s->undo, n, err) &&
           (!low || (prepare(e, {e->latent.q_low, l->v[ATTN_Q_A_NORM]}, n, &up, err) &&
                     multiply(e, &up, s->act_f16, s->undo, n, err)));
}

static bool project_many(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                         uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    if (l->facts->latent.n_kv > 0)
        return project_latent_many(e, l, in, n, err);
    struct products qkv = {{&l->w[ATTN_Q], &l->w[ATTN_K], &l->w[ATTN_V]},
                           {l->v[ATTN_Q_BIAS], l->v[ATTN_K_BIAS], l->v[ATTN_V_BIAS]},
                           {s->q, s->k, s->v},
                           l->facts->w[ATTN_V].data   ? 3u
                           : l->facts->w[ATTN_K].data ? 2u
                                                      : 1u,
                           false,
                           group_of(l, ATTN_Q)};
    return prepare(e, in, n, &qkv, err) && multiply(e, &qkv, s->act_f16, s->undo, n, err) &&
           cuda_clamp(e, l, n, err) && cuda_norm_heads(e, l, n, NULL, err);
}

// Attention packs its results itself for the product that they are for, if that takes them so: in a
// pass a matter of the layer alone, as a row's bits are.
static bool attention_packs(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n)
{
    return is_packed(product_for(e, &l->w[ATTN_OUTPUT], n)) && l->facts->head_dim % 4 == 0;
}

static bool attend_many(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err)
{
    const struct scratch *s = &e->s;
    const bool latent = l->facts->latent.n_kv > 0, packs = !latent && attention_packs(e, l, n);
    const struct packed_rows packed = {s->act_f16, packed_form(e, &l->w[ATTN_OUTPUT], n), n, 0,
                                       s->undo};
    return (latent ? cuda_attend_latent(e, l, n, NULL, err)
                   : cuda_attend(e, l, n, packs ? &packed : NULL, err)) &&
           add_many(e, l, ATTN_OUTPUT, ATTN_OUTPUT_BIAS, packs ? NULL : s->att, s->act_f16, s->undo,
                    l->v[ATTN_POST_NORM], n, err);
}

// The end of a feed-forward network, of which there may be experts beside; in, x, undo: see
// add_many.
static bool end_feed_many(struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                          const __half *x, const float *undo, uint32_t n, struct error *err)
{
    if (!is_beside(l->facts))
        return add_many(e, l, FFN_DOWN, FFN_DOWN_BIAS, in, x, undo, l->v[FFN_POST_NORM], n, err);
    const float *bias = l->v[FFN_DOWN_BIAS];
    const struct products p = {
        {&l->w[FFN_DOWN]}, {e->rank ? NULL : bias}, {e->s.beside}, 1, false, name_of(l, FFN_DOWN)};
    return (!in || prepare(e, {in, NULL}, n, &p, err)) && multiply(e, &p, x, undo, n, err) &&
           cuda_sum_apart(e, e->s.beside, bias, n, NULL, err) &&
           cuda_experts_many(e, l, e->s.x, l->v[EXPERT_NORM], n, err);
}

static bool feed_forward_many(struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                              uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const struct layer *f = l->facts;
    if (f->n_ff == 0)
        return cuda_experts_many(e, l, in.x, in.norm, n, err);
    const struct wmat *gate = &l->w[FFN_GATE], *up = &l->w[FFN_UP];
    const bool gated = f->w[FFN_GATE].data;
    const enum product by = product_for(e, gate, n);
    const bool fused = gate_is_fused(f) && is_packed(by) && same_range(gate, up) &&
                       product_for(e, &l->w[FFN_DOWN], n) == by;
    struct products both = {
        {gate, up},         {l->v[FFN_GATE_BIAS], l->v[FFN_UP_BIAS]}, {s->gate, s->up}, 2, false,
        group_of(l, FFN_UP)};
    struct products alone = {{up}, {l->v[FFN_UP_BIAS]}, {s->gate}, 1, false, group_of(l, FFN_UP)};
    struct products *p = gated ? &both : &alone;
    p->gated_bound = fused ? l->gated_bound : 0.0f;
    if (!prepare(e, in, n, p, err))
        return false;
    if (fused) {
        struct gemm g = gemm_args(e, s->act_f16, s->undo, n, MATVEC_GATED);
        g.act = f->act;
        g.w[0] = *gate;
        g.w[1] = *up;
        g.n_part = 2;
        g.out = s->ff_f16;
        g.undo_out = s->undo_gated;
        return gemm_by(by, &e->q, &g, err) &&
               end_feed_many(e, l, NULL, s->ff_f16, s->undo_gated, n, err);
    }
    return multiply(e, p, s->act_f16, s->undo, n, err) &&
           activate(e, f, gated ? s->up : NULL, n, err) &&
           end_feed_many(e, l, s->gate, s->act_f16, s->undo, n, err);
}

static bool layer_many(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                       struct error *err)
{
    struct input in = {};
    if (!cuda_altup_predict(e, l, n, err) || !read_to_mix(e, l, n, &in, err) ||
        (attends(l) && !project_many(e, l, in, n, err)) ||
        (l->facts->parallel && // see layer_one
         !(read_beside(e, l, n, &in, err) && feed_forward_many(e, l, in, n, err))) ||
        (attends(l) && !attend_many(e, l, n, err)) || !mix_beside(e, l, in, n, err) ||
        !cuda_laurel(e, l, in, n, err))
        return false;
    return (l->facts->parallel || !layer_feeds(l->facts) ||
            (read_to_feed(e, l, n, &in, err) && feed_forward_many(e, l, in, n, err))) &&
           cuda_altup_correct(e, l, n, err);
}

// ---- what layers are told; n = 0: the one token of a step

static bool tell_all(const struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    const uint32_t *skip = n ? NULL : &s->step->done;
    return !e->token_layers_norm ||
           (embed_told(e, n ? s->tokens : &s->step->token, rows_of_step(n), skip, err) &&
            cuda_multiply(e, e->base.model->token_layers_proj.name, &e->token_layers_proj, NULL,
                          {s->x, NULL, NULL}, n, s->told_proj, err) &&
            tell(e, rows_of_step(n), skip, err));
}

// What follows the feed-forward network in some models.
static bool end_layer(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                      struct error *err)
{
    const struct scratch *s = &e->s;
    const enum layer_weight no_bias = TOKEN_PROJ; // is a matrix, and so no vector
    const float *norm = l->v[TOKEN_POST_NORM];
    struct input in = {e->hp.n_side > 0 ? s->normed : s->x};
    if (!l->facts->w[TOKEN_GATE].data)
        return true;
    cuda_make_owed(e, &in);
    if (!gate_told(e, l, in, n, err))
        return false;
    return e->hp.n_side > 0 ? cuda_altup_add(e, l, TOKEN_PROJ, TOKEN_POST_NORM, s->gate, n, err)
           : n == 0
               ? add_one(e, l, TOKEN_PROJ, no_bias, s->gate, norm, err)
               : add_many(e, l, TOKEN_PROJ, no_bias, s->gate, s->act_f16, s->undo, norm, n, err);
}

// ---- the whole

bool cuda_forward_one(struct cuda_engine *e, struct error *err)
{
    const struct scratch *s = &e->s;
    cuda_owe_nothing(e);
    if (!embed_launch(cuda_queue(e, "token_embd"), &e->tok_embd, &s->step->token, 1, s->x,
                      e->hp.embd_scale, e->positions, &e->ropes, &s->step->at, true, &s->step->done,
                      err) ||
        !cuda_look(e, NULL, "token_embd", err) || !cuda_join(e, 0, err) || !tell_all(e, 0, err) ||
        !cuda_altup_begin(e, 0, err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (!layer_one(e, &e->layers[i], err) || !end_layer(e, &e->layers[i], 0, err))
            return false;
    return cuda_altup_end(e, 0, err);
}

bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct scratch *s = &e->s;
    cuda_owe_nothing(e);
    if (n > s->n_without_blas && !cuda_blas_open(e, err))
        return false;
    if (!embed_launch(cuda_queue(e, "token_embd"), &e->tok_embd, s->tokens, n, s->x,
                      e->hp.embd_scale, e->positions, &e->ropes, e->pass ? s->rows : &s->step->at,
                      !e->pass, NULL, err) ||
        !cuda_join(e, n, err) || !tell_all(e, n, err) || !cuda_altup_begin(e, n, err))
        return false;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (!cuda_pace(e, n, i, err) || interrupted_alike(e, err) ||
            !layer_many(e, &e->layers[i], n, err) || !end_layer(e, &e->layers[i], n, err))
            return false;
    return cuda_altup_end(e, n, err);
}

// ---- for what is computed elsewhere

bool cuda_multiply(const struct cuda_engine *e, const char *what, const struct wmat *w,
                   const float *bias, struct input in, uint32_t n, float *y, struct error *err)
{
    const struct products p = {{w}, {bias}, {y}, 1, false, what};
    struct matvec m = one_column(e, in, MATVEC_STORE);
    add_part(&m, w, bias, y);
    if (n == 0)
        return multiply_one(e, what, &m, err);
    return prepare(e, in, n, &p, err) && multiply(e, &p, e->s.act_f16, e->s.undo, n, err);
}

bool cuda_project(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                  uint32_t n, const enum layer_weight *w, float *const *y, uint32_t n_part,
                  struct error *err)
{
    struct products p = {};
    p.what = group_of(l, w[0]);
    struct matvec m = one_column(e, in, MATVEC_STORE);
    for (uint32_t i = 0; i < n_part; i++) {
        p.w[i] = &l->w[w[i]];
        p.y[i] = y[i];
        add_part(&m, p.w[i], NULL, y[i]);
    }
    p.n_part = n_part;
    if (n == 0)
        return multiply_one(e, p.what, &m, err);
    return prepare(e, in, n, &p, err) && multiply(e, &p, e->s.act_f16, e->s.undo, n, err);
}

bool cuda_add_mixed(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    const float *in, uint32_t n, struct error *err)
{
    const enum layer_weight bias = w == ATTN_OUTPUT ? ATTN_OUTPUT_BIAS : w; // of a matrix: none
    return n == 0
               ? add_one(e, l, w, bias, in, l->v[ATTN_POST_NORM], err)
               : add_many(e, l, w, bias, in, e->s.act_f16, e->s.undo, l->v[ATTN_POST_NORM], n, err);
}

// ---- the head

// Where a product with the output matrix goes.
static float *head_rows(const struct cuda_engine *e)
{
    return e->rank ? e->s.part_logits : e->s.logits;
}

static bool multiply_head(const struct cuda_engine *e, size_t row0, uint32_t n,
                          const uint32_t *skip, struct error *err)
{
    const struct scratch *s = &e->s;
    struct input in = {};
    if (!read_normed(e, "output", s->x + row0 * e->hp.n_embd, e->output_norm, e->output_norm_bias,
                     false, n, skip, &in, err))
        return false;
    struct matvec m = one_column(e, in, MATVEC_STORE);
    m.skip = skip;
    add_part(&m, &e->output, e->output_bias, head_rows(e));
    if (n == 1)
        return multiply_one(e, "output", &m, err);
    const struct queue *q = cuda_queue(e, "output");
    bool plain = is_plain_type(&e->output);
    m.n_col = n;
    m.x = NULL;
    m.act32 = s->act32;
    m.act_f32 = s->act_f32;
    return act_launch(q, in.x, n, e->hp.n_embd, in.norm, e->hp.norm_eps, plain ? NULL : s->act32,
                      plain ? s->act_f32 : NULL, NULL, err) &&
           matvec_launch(q, &m, err);
}

bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err)
{
    const struct hparams *hp = &e->hp;
    return multiply_head(e, row0, (uint32_t)n, skip, err) &&
           cuda_gather_logits(e, (uint32_t)n, skip, err) &&
           finish_logits_launch(&e->q, e->s.logits, n * hp->n_vocab, hp->logit_scale,
                                hp->final_softcap, skip, err);
}

bool cuda_head_of(struct cuda_engine *e, const float *x, const uint32_t *rows, uint32_t n,
                  struct error *err)
{
    const struct hparams *hp = &e->hp;
    struct input in = {NULL, NULL, rows};
    return read_normed(e, "output", x, e->output_norm, e->output_norm_bias, false, n, NULL, &in,
                       err) &&
           cuda_multiply(e, "output", &e->output, e->output_bias, in, n, head_rows(e), err) &&
           cuda_gather_logits(e, n, NULL, err) &&
           finish_logits_launch(&e->q, e->s.logits, (size_t)n * hp->n_vocab, hp->logit_scale,
                                hp->final_softcap, NULL, err);
}
