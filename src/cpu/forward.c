// The forward pass of a decoder-only transformer, n tokens at a time, as the facts of its layers
// say (model/model.h). cpu_forward at the end is the whole of it; above are its steps.
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

#include "gguf/quant.h"

bool cpu_each_token(struct cpu_engine *e, size_t n, void (*fn)(void *, size_t, int), void *arg)
{
    if (n > 1)
        return pool_run(e->pool, n, fn, arg, e->cancel);
    fn(arg, 0, 0);
    return true;
}

// ---- matrix products: several over the same input are shared out together

enum { MAX_PRODUCTS = 4 };

struct products {
    const struct cpu_kernels *kernels;
    struct cpu_matmul m[MAX_PRODUCTS];
    uint32_t rows_per_item[MAX_PRODUCTS];
    size_t first_item[MAX_PRODUCTS + 1];
    int n;
};

static void product_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct products *p = arg;
    int i = 0;
    while (item >= p->first_item[i + 1])
        i++;
    const uint32_t step = p->rows_per_item[i], n_rows = p->m[i].w->rows;
    const uint32_t row0 = (uint32_t)(item - p->first_item[i]) * step;
    p->kernels->matmul(&p->m[i], row0, n_rows - row0 < step ? n_rows : row0 + step);
}

bool cpu_is_quantized(const struct weight *w)
{
    return quant_info(w->type)->block_elems > 1;
}

struct input_job {
    const struct cpu_kernels *kernels;
    const struct cpu_act *x;
    size_t n; // rows of a group
    size_t packs;
};

static void quantize_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct input_job *j = arg;
    j->kernels->quantize(j->x, t);
}

static void pack_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct input_job *j = arg;
    const size_t begin = item % j->packs * CPU_PACKED, left = j->n - begin;
    j->kernels->pack(j->x, item / j->packs * j->n + begin, left < CPU_PACKED ? left : CPU_PACKED);
}

bool cpu_quantize(struct cpu_engine *e, const struct cpu_act *x, size_t n_groups, size_t n)
{
    struct input_job j = {e->kernels, x, n, (n + CPU_PACKED - 1) / CPU_PACKED};
    return cpu_each_token(e, n_groups * n, quantize_item, &j) &&
           (n < CPU_PACKED || pool_run(e->pool, n_groups * j.packs, pack_item, &j, e->cancel));
}

uint32_t cpu_rows_per_item(const struct cpu_engine *e, const struct weight *w, size_t n_rows,
                           size_t n_tok)
{
    // One token is bound by reading weights: long runs keep the memory's read-ahead going (items of
    // 16 KB cost half of the bandwidth), two per thread so that none waits long for another. Many
    // tokens: 48 rows or more, whole tiles of them, which share the activations in cache.
    const size_t row_bytes = quant_row_bytes(w->type, w->n_cols);
    size_t rows = row_bytes < 16384 ? 16384 / row_bytes : 1;
    const size_t share = n_rows / (2 * (size_t)pool_n_threads(e->pool));
    if (n_tok > 1)
        rows = rows < 48 ? 48 : rows;
    else if (share > rows)
        rows = share;
    return (uint32_t)(rows < w->rows ? rows : w->rows);
}

bool cpu_multiply(struct cpu_engine *e, const struct cpu_matmul *m, int n_products)
{
    struct products p = {.kernels = e->kernels, .n = n_products};
    bool quantized = false;
    for (int i = 0; i < n_products; i++) {
        const size_t rows = cpu_rows_per_item(e, m[i].w, m[i].w->rows, m[i].n_tok);
        quantized |= cpu_is_quantized(m[i].w);
        p.m[i] = m[i];
        p.rows_per_item[i] = (uint32_t)rows;
        p.first_item[i + 1] = p.first_item[i] + (m[i].w->rows + rows - 1) / rows;
    }
    return (!quantized || cpu_quantize(e, m[0].x, 1, m[0].n_tok)) &&
           pool_run(e->pool, p.first_item[n_products], product_item, &p, e->cancel) &&
           cpu_mark(e, "matmul", m[0].w->group);
}

// ---- embedding and positions

struct token_job {
    struct cpu_engine *e;
    const float *w, *b; // of a norm
    const float *in;    // (n, n_embd)
    const struct cpu_act *out;
    const struct layer *layer;
    const struct cpu_kv_layer *kv;
    bool gated; // of an activation
};

void cpu_work_on_parts(struct cpu_engine *e, const struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel)
{
    size_t row = 0, n_last = 0;
    e->cancel = cancel;
    e->n_parts = n_parts;
    for (size_t i = 0; i < n_parts; i++) {
        const struct engine_part *p = &parts[i];
        const size_t last = 1 + (p->pick ? p->n_drafts : 0);
        e->parts[i] = (struct cpu_part){p->seq, p->ids, p->seq->n_past, row, p->n, n_last, last};
        n_last += last;
        for (const size_t end = row + p->n; row < end; row++)
            e->part_of[row] = (uint16_t)i;
    }
}

void cpu_work_on(struct cpu_engine *e, const struct seq *s, size_t pos, const int32_t *ids,
                 size_t n, const struct cancel *cancel)
{
    const struct engine_part part = {.seq = s, .ids = ids, .n = n};
    cpu_work_on_parts(e, &part, 1, cancel);
    e->parts[0].pos = pos;
}

const struct cpu_part *cpu_part_of(const struct cpu_engine *e, size_t t)
{
    return &e->parts[e->part_of[t]];
}

size_t cpu_position_of(const struct cpu_engine *e, size_t t)
{
    const struct cpu_part *p = cpu_part_of(e, t);
    return p->pos + t - p->first;
}

size_t cpu_place_of(const struct cpu_engine *e, const struct cpu_kv_layer *l, size_t t)
{
    return kv_cache_at(kv_cache_blocks(cpu_part_of(e, t)->seq, l), cpu_position_of(e, t));
}

int32_t cpu_token_of(const struct cpu_engine *e, size_t t)
{
    const struct cpu_part *p = cpu_part_of(e, t);
    return p->ids[t - p->first];
}

static void embed_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const struct cpu_engine *e = j->e;
    const size_t id = (size_t)cpu_token_of(e, t), pos = cpu_position_of(e, t);
    const struct weight *w = &e->base.model->tok_embd;
    const struct hparams *hp = &e->base.model->hp;
    const uint8_t *row = (const uint8_t *)w->data + id * quant_row_bytes(w->type, w->n_cols);
    float *x = e->x + t * hp->n_embd;
    quant_dequantize(w->type, row, x, hp->n_embd);
    for (size_t i = 0; hp->embd_scale != 1 && i < hp->n_embd; i++)
        x[i] *= hp->embd_scale;
    const float *own = e->base.model->pos_embd.data;
    for (size_t i = 0; own && i < hp->n_embd; i++)
        x[i] += own[pos * hp->n_embd + i];

    for (uint32_t r = 0; r < e->base.model->n_rope; r++) {
        const uint32_t n_dim = e->base.model->ropes[r].n_dim;
        const struct cpu_rope *rope = &e->ropes[r];
        float *cos_sin = rope->cos_sin + t * n_dim;
        for (size_t i = 0; i < n_dim / 2; i++) {
            double angle = (double)pos * rope->freq[i];
            cos_sin[2 * i] = (float)cos(angle) * rope->magnitude;
            cos_sin[2 * i + 1] = (float)sin(angle) * rope->magnitude;
        }
    }
}

bool cpu_look(struct cpu_engine *e, size_t il, const char *what)
{
    if (e->search)
        finite_step(e->search, (uint32_t)il, e->x, e->base.model->hp.n_embd, what);
    return true;
}

static bool embed(struct cpu_engine *e, size_t n)
{
    struct token_job j = {.e = e};
    return cpu_each_token(e, n, embed_item, &j) && cpu_look(e, 0, "token_embd") &&
           cpu_mark(e, "embed", "token_embd") &&
           (!e->base.model->predicts_for ||
            (cpu_join(e, n) && cpu_look(e, 0, e->base.model->joint.name))) &&
           (e->base.model->hp.n_embd_layer == 0 || cpu_tell(e, n)) &&
           (e->base.model->hp.n_side == 0 || cpu_altup_begin(e, n));
}

// ---- steps per token: norm, rotation, activation

void cpu_norm_row(const struct cpu_engine *e, const float *x, const float *w, const float *b,
                  size_t n, float *y)
{
    const struct hparams *hp = &e->base.model->hp;
    if (!w)
        memmove(y, x, n * sizeof *y);
    else if (hp->norm == NORM_RMS)
        e->kernels->rms_norm(x, w, b, hp->norm_eps, n, y);
    else
        e->kernels->layer_norm(x, w, b, hp->norm_eps, n, y);
}

static void norm_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const size_t n = j->e->base.model->hp.n_embd;
    cpu_norm_row(j->e, j->in + t * n, j->w, j->b, n, j->out->f + t * j->out->n_pad);
}

static bool norm(struct cpu_engine *e, const struct weight *w, const struct weight *b,
                 const float *in, const struct cpu_act *out, size_t n)
{
    struct token_job j = {.e = e, .in = in, .w = w->data, .b = b ? b->data : NULL, .out = out};
    return cpu_each_token(e, n, norm_item, &j) && cpu_mark(e, "norm", w->name);
}

// Each head by itself, without weights.
static void norm_bare(const struct cpu_engine *e, const struct layer *l, float *x, size_t n_head)
{
    const size_t d = l->head_dim;
    for (size_t h = 0; h < n_head; h++)
        e->kernels->rms_norm(x + h * d, NULL, NULL, e->base.model->hp.norm_eps, d, x + h * d);
}

// All heads of a token's queries or keys, as the layer norms them.
static void norm_heads(const struct cpu_engine *e, const struct layer *l, const float *w, float *x,
                       size_t n_head)
{
    const size_t d = l->head_dim;
    if (l->qk_norm == QK_NORM_NONE)
        return;
    if (l->qk_norm == QK_NORM_BARE) {
        norm_bare(e, l, x, n_head);
        return;
    }
    if (l->qk_norm == QK_NORM_WHOLE) {
        cpu_norm_row(e, x, w, NULL, n_head * d, x);
        return;
    }
    for (size_t h = 0; h < n_head; h++)
        cpu_norm_row(e, x + h * d, l->qk_norm == QK_NORM_HEADS ? w + h * d : w, NULL, d, x + h * d);
}

static void rotate_heads(const struct cpu_engine *e, const struct layer *l, size_t t, float *x,
                         size_t n_head)
{
    const struct rope *rope = &e->base.model->ropes[l->rope];
    const float *cos_sin = e->ropes[l->rope].cos_sin + t * rope->n_dim;
    for (size_t h = 0; h < n_head; h++)
        e->kernels->rope(x + h * l->head_dim, cos_sin, rope->n_dim / 2, rope->layout);
}

float cpu_query_scale(const struct cpu_engine *e, const struct layer *l, size_t t)
{
    const struct hparams *hp = &e->base.model->hp;
    const bool rotated = e->base.model->ropes[l->rope].layout != ROPE_NONE;
    if (hp->attn_temp_scale == 0 || (hp->attn_temp_unrotated && rotated))
        return 1;
    const size_t turns = (cpu_position_of(e, t) + hp->attn_temp_offset) / hp->attn_temp_len;
    return 1 + hp->attn_temp_scale * logf(1 + (float)turns);
}

static void clamp(float most, float *x, size_t n)
{
    for (size_t i = 0; most > 0 && i < n; i++)
        x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i]; // NaN stays
}

static void rotate_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct layer *l = j->layer;
    const size_t d = l->head_dim, place = cpu_place_of(e, j->kv, t);
    const uint32_t n_own = l->kv_back > 0 ? 0 : l->n_head_kv;
    const float *q_norm = layer_vector(l, ATTN_Q_NORM), *k_norm = layer_vector(l, ATTN_K_NORM);
    float *q = e->q + t * l->n_head * d;
    float *k = e->k + t * l->n_head_kv * d, *v = e->v + t * l->n_head_kv * d;
    for (size_t h = 0; l->gated && h < l->n_head; h++)
        memcpy(q + h * d, e->q_gated + (t * l->n_head + h) * 2 * d, d * sizeof *q);
    if (!l->w[ATTN_V].data)
        memcpy(v, k, n_own * d * sizeof *v);
    clamp(l->qkv_clamp, q, l->n_head * d);
    clamp(l->qkv_clamp, k, n_own * d);
    clamp(l->qkv_clamp, v, n_own * d);
    if (l->v_normed)
        norm_bare(e, l, v, n_own);
    if (!l->qk_norm_rotated) {
        norm_heads(e, l, q_norm, q, l->n_head);
        norm_heads(e, l, k_norm, k, n_own);
    }
    rotate_heads(e, l, t, q, l->n_head);
    rotate_heads(e, l, t, k, n_own);
    if (l->qk_norm_rotated) {
        norm_heads(e, l, q_norm, q, l->n_head);
        norm_heads(e, l, k_norm, k, n_own);
    }
    const float times = cpu_query_scale(e, l, t);
    for (size_t i = 0; times != 1 && i < l->n_head * d; i++)
        q[i] *= times;
    for (uint32_t h = 0; h < n_own; h++)
        e->kernels->kv_store(j->kv, h, place, k + h * d, v + h * d);
}

static bool rotate_and_store(struct cpu_engine *e, size_t il, size_t n)
{
    struct token_job j = {.e = e, .layer = &e->base.model->layers[il], .kv = &e->kv.layers[il]};
    return cpu_each_token(e, n, rotate_item, &j) && cpu_mark(e, "rotate", "kv");
}

// Leaves of x (n) what is more than `times` its deviation above its mean.
static void cut_off(float *x, size_t n, float times)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const float least = (float)(mean + (double)times * sqrt(squares / (double)n));
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] <= least ? 0 : x[i] - least; // (what is not finite stays so)
}

static void activate_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const struct layer *l = j->layer;
    const size_t n = j->out->n_cols;
    if (l->sparse)
        cut_off(j->out->f + t * j->out->n_pad, n, l->sparsity);
    j->e->kernels->activate(l->act, &l->xielu, j->out->f + t * j->out->n_pad,
                            j->gated ? j->e->up + t * n : NULL, n);
}

bool cpu_activate(struct cpu_engine *e, const struct layer *l, const struct cpu_act *gate,
                  bool gated, const char *what, size_t n)
{
    struct token_job j = {.e = e, .layer = l, .out = gate, .gated = gated};
    return cpu_each_token(e, n, activate_item, &j) && cpu_mark(e, "activate", what);
}

static void add_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct hparams *hp = &e->base.model->hp;
    float *x = e->x + t * hp->n_embd, *add = e->branch + t * hp->n_embd;
    cpu_norm_row(e, add, j->w, NULL, hp->n_embd, add);
    for (size_t i = 0; i < hp->n_embd; i++)
        x[i] += hp->residual_scale * add[i];
}

// ---- the whole

struct cpu_act cpu_rows_from(const struct cpu_act *a, size_t row)
{
    struct cpu_act x = *a;
    x.f += row * x.n_pad;
    x.q += row * x.n_pad;
    x.scale += row * (x.n_pad / CPU_PAD);
    x.sum += row * (x.n_pad / 16);
    x.packed += row * (x.n_pad / CPU_PAD) * CPU_PACKED_BYTES;
    return x;
}

struct cpu_act cpu_as_wide_as(const struct cpu_act *a, uint32_t n_cols, size_t n)
{
    struct cpu_act view = *a;
    view.n_cols = n_cols;
    view.n_pad = (n_cols + CPU_PAD - 1) / CPU_PAD * CPU_PAD;
    for (size_t t = 0; t < n; t++) // layers of other widths leave their numbers there
        memset(view.f + t * view.n_pad + n_cols, 0, (view.n_pad - n_cols) * sizeof *view.f);
    return view;
}

bool cpu_add_product(struct cpu_engine *e, size_t il, enum layer_weight w, const float *bias,
                     enum layer_weight post_norm, const struct cpu_act *in, size_t n)
{
    const struct hparams *hp = &e->base.model->hp;
    const struct layer *l = &e->base.model->layers[il];
    struct cpu_matmul m = {&l->w[w], in, bias, e->x, hp->n_embd, n, true};
    if (!l->w[post_norm].data && hp->residual_scale == 1)
        return cpu_multiply(e, &m, 1) && cpu_look(e, il, l->w[w].name);
    struct token_job j = {.e = e, .w = l->w[post_norm].data};
    m.y = e->branch;
    m.accumulate = false;
    return cpu_multiply(e, &m, 1) && cpu_each_token(e, n, add_item, &j) &&
           cpu_look(e, il, l->w[w].name) && cpu_mark(e, "add", l->w[w].name);
}

static void silence_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const size_t d = j->layer->head_dim, n_head = j->layer->n_head;
    float *y = j->out->f + t * j->out->n_pad;
    for (size_t h = 0; h < n_head; h++) {
        const float *gate = j->e->q_gated + (t * n_head + h) * 2 * d + d;
        for (size_t i = 0; i < d; i++)
            y[h * d + i] /= 1 + expf(-gate[i]);
    }
}

static bool silence(struct cpu_engine *e, const struct layer *l, const struct cpu_act *out,
                    size_t n)
{
    struct token_job j = {.e = e, .layer = l, .out = out};
    return cpu_each_token(e, n, silence_item, &j) && cpu_mark(e, "activate", l->w[ATTN_Q].group);
}

// attn_output(softmax(q k) v), of normed
static bool attend(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const uint32_t n_q = l->n_head * l->head_dim, n_kv = l->n_head_kv * l->head_dim;
    const struct cpu_act *in = &e->normed, out = cpu_as_wide_as(&e->attn_out, n_q, n);
    const float *bq = layer_vector(l, ATTN_Q_BIAS), *bk = layer_vector(l, ATTN_K_BIAS),
                *bv = layer_vector(l, ATTN_V_BIAS);
    const struct cpu_matmul qkv[] = {
        {&l->w[ATTN_Q], in, bq, l->gated ? e->q_gated : e->q, l->w[ATTN_Q].rows, n, false},
        {&l->w[ATTN_K], in, bk, e->k, n_kv, n, false}, // (n, n_head_kv * head_dim)
        {&l->w[ATTN_V], in, bv, e->v, n_kv, n, false}, // (n, n_head_kv * head_dim)
    };
    const struct cpu_heads to = {out.f, out.n_pad, l->head_dim};
    const int n_products = l->kv_back > 0 ? 1 : l->w[ATTN_V].data ? 3 : 2;
    return cpu_multiply(e, qkv, n_products) && rotate_and_store(e, il, n) &&
           cpu_attention(e, il, &to, n) && (!l->gated || silence(e, l, &out, n)) &&
           cpu_add_product(e, il, ATTN_OUTPUT, layer_vector(l, ATTN_OUTPUT_BIAS), ATTN_POST_NORM,
                           &out, n);
}

// wide = act(gate n2) * up n2, or act(up n2); n2 is normed
static bool widen(struct cpu_engine *e, const struct layer *l, struct cpu_act *out, size_t n)
{
    const struct cpu_act *in = &e->normed, wide = *out = cpu_as_wide_as(&e->gate, l->n_ff, n);
    const struct weight *gate = &l->w[FFN_GATE], *up = &l->w[FFN_UP];
    const float *bias = layer_vector(l, FFN_UP_BIAS), *gate_bias = layer_vector(l, FFN_GATE_BIAS);
    const struct cpu_matmul gated[] = {
        {gate, in, gate_bias, wide.f, wide.n_pad, n, false}, // (n, n_ff)
        {up, in, bias, e->up, l->n_ff, n, false},            // (n, n_ff)
    };
    const struct cpu_matmul plain = {up, in, bias, wide.f, wide.n_pad, n, false};
    return (gate->data ? cpu_multiply(e, gated, 2) : cpu_multiply(e, &plain, 1)) &&
           cpu_activate(e, l, &wide, gate->data, up->group, n);
}

// x += residual_scale * ffn_post_norm(down(wide))
static bool feed_forward(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    struct cpu_act wide;
    return widen(e, l, &wide, n) && cpu_add_product(e, il, FFN_DOWN, layer_vector(l, FFN_DOWN_BIAS),
                                                    FFN_POST_NORM, &wide, n);
}

// normed = what the router is given, where that is not what the experts are given.
static void router_norm_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const size_t n = j->e->base.model->hp.n_embd;
    float *y = j->e->normed.f + t * j->e->normed.n_pad;
    const float scale = 1 / sqrtf((float)n);
    j->e->kernels->rms_norm(j->e->x + t * n, j->w, NULL, j->e->base.model->hp.norm_eps, n, y);
    for (size_t i = 0; i < n; i++)
        y[i] *= scale;
}

// beside = down(wide), of the plain network beside experts; then normed is what these are given.
static bool feed_beside(struct cpu_engine *e, const struct layer *l, size_t n)
{
    const uint32_t n_embd = e->base.model->hp.n_embd;
    struct token_job j = {.e = e, .w = l->w[ROUTER_NORM].data};
    struct cpu_act wide;
    const struct cpu_matmul m = {
        &l->w[FFN_DOWN], &wide, layer_vector(l, FFN_DOWN_BIAS), e->beside, n_embd, n, false};
    return widen(e, l, &wide, n) && cpu_multiply(e, &m, 1) &&
           cpu_each_token(e, n, router_norm_item, &j) &&
           cpu_mark(e, "norm", l->w[ROUTER_NORM].name) && cpu_route(e, l, n) &&
           norm(e, &l->w[EXPERT_NORM], NULL, e->x, &e->normed, n);
}

static void add_beside_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const size_t n = j->e->base.model->hp.n_embd;
    float *y = j->e->branch + t * n, *add = j->e->beside + t * n;
    cpu_norm_row(j->e, y, layer_vector(j->layer, EXPERT_POST_NORM), NULL, n, y);
    cpu_norm_row(j->e, add, layer_vector(j->layer, DENSE_POST_NORM), NULL, n, add);
    for (size_t i = 0; i < n; i++)
        y[i] += add[i];
}

// x += residual_scale * post_norm(what the experts make of normed)
static bool experts(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    struct token_job j = {.e = e, .layer = l, .w = l->w[FFN_POST_NORM].data};
    const bool both = l->n_ff > 0;
    return (both ? feed_beside(e, l, n) : cpu_route(e, l, n)) && cpu_experts(e, l, n) &&
           (!both || cpu_each_token(e, n, add_beside_item, &j)) &&
           cpu_each_token(e, n, add_item, &j) && cpu_look(e, il, l->w[EXPERT_DOWN].name) &&
           cpu_mark(e, "add", l->w[EXPERT_DOWN].name);
}

static void scale_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const size_t n = j->e->base.model->hp.n_embd;
    for (size_t i = t * n; i < (t + 1) * n; i++)
        j->e->x[i] *= j->w[0];
}

// x *= layer_scale
static bool scale_stream(struct cpu_engine *e, const struct layer *l, size_t n)
{
    struct token_job j = {.e = e, .w = l->w[LAYER_SCALE].data};
    return cpu_each_token(e, n, scale_item, &j) && cpu_mark(e, "add", l->w[LAYER_SCALE].name);
}

// What the feed-forward network is given: of a parallel layer n1, or what is in beside.
static bool norm_to_feed(struct cpu_engine *e, const struct layer *l, size_t n)
{
    const struct weight *w = l->w;
    return l->parallel ? !w[FFN_NORM].data || cpu_copy_to_normed(e, e->beside, NULL, n)
                       : norm(e, &w[FFN_NORM], &w[FFN_NORM_BIAS], e->x, &e->normed, n);
}

// As struct layer says.
static bool layer(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct weight *w = l->w;
    const bool streams = e->base.model->hp.n_side > 0;
    const struct cpu_act beside = {.f = e->beside, .n_pad = e->base.model->hp.n_embd};
    bool ok = !streams || cpu_altup_predict(e, il, n);
    if (ok && l->parallel && w[FFN_NORM].data)
        ok = norm(e, &w[FFN_NORM], &w[FFN_NORM_BIAS], e->x, &beside, n);
    if (ok && l->mixer != MIXER_NONE)
        ok = norm(e, &w[ATTN_NORM], &w[ATTN_NORM_BIAS], e->x, &e->normed, n);
    if (ok && l->mixer == MIXER_ATTENTION)
        ok = l->latent.n_kv > 0 ? cpu_attend_latent(e, il, n) : attend(e, il, n);
    else if (ok && l->mixer == MIXER_DELTA)
        ok = cpu_delta(e, il, n);
    else if (ok && l->mixer == MIXER_CONV)
        ok = cpu_convolve(e, il, n);
    else if (ok && l->mixer == MIXER_LINEAR)
        ok = cpu_add_product(e, il, ATTN_OUTPUT, layer_vector(l, ATTN_OUTPUT_BIAS), ATTN_POST_NORM,
                             &e->normed, n);
    if (ok && l->ssm.n_head > 0)
        ok = cpu_ssm(e, il, n);
    if (ok && l->n_laurel > 0)
        ok = cpu_laurel(e, il, n);
    if (ok && layer_feeds(l))
        ok = norm_to_feed(e, l, n);
    if (ok && l->experts.n > 0)
        ok = experts(e, il, n);
    else if (ok && l->n_ff > 0)
        ok = feed_forward(e, il, n);
    return ok && (!streams || cpu_altup_correct(e, il, n)) &&
           (!l->w[TOKEN_GATE].data || cpu_told(e, il, n)) &&
           (!l->w[LAYER_SCALE].data || scale_stream(e, l, n));
}

// The last rows of part i; x stays as it is (backend.hidden).
static void norm_last_item(void *arg, size_t i, int thread)
{
    (void)thread;
    const struct token_job *j = arg;
    const struct cpu_part *p = &j->e->parts[i];
    const size_t n = j->e->base.model->hp.n_embd, row = p->first + p->n - p->n_last;
    for (size_t k = 0; k < p->n_last; k++)
        cpu_norm_row(j->e, j->e->x + (row + k) * n, j->w, j->b, n,
                     j->out->f + (p->first_last + k) * j->out->n_pad);
}

// n layers are done.
static void tell(const struct cpu_engine *e, size_t n)
{
    if (e->core.under_way)
        e->core.under_way(e->core.under_way_user, (double)n / e->base.model->hp.n_layer);
}

bool cpu_forward(struct cpu_engine *e, enum engine_logits want)
{
    const struct model *m = e->base.model;
    const struct cpu_part *last = &e->parts[e->n_parts - 1];
    const size_t n = last->first + last->n;
    bool ok = embed(e, n); // x (n, n_embd)
    for (size_t il = 0; ok && il < m->hp.n_layer; il++) {
        ok = layer(e, il, n);
        if (ok)
            tell(e, il + 1);
    }
    if (!ok || want == LOGITS_NONE)
        return ok;
    if (m->hp.n_side > 0 && !cpu_altup_end(e, n))
        return false;
    e->n_hidden = want == LOGITS_ALL ? n : last->first_last + last->n_last;
    struct token_job j = {
        .e = e, .w = m->output_norm.data, .b = m->output_norm_bias.data, .out = &e->hidden};
    return want == LOGITS_ALL ? norm(e, &m->output_norm, &m->output_norm_bias, e->x, &e->hidden, n)
                              : cpu_each_token(e, e->n_parts, norm_last_item, &j) &&
                                    cpu_mark(e, "norm", m->output_norm.name);
}

bool cpu_head(struct cpu_engine *e, size_t first, size_t n)
{
    const struct model *m = e->base.model;
    const struct cpu_act x = cpu_rows_from(&e->hidden, first);
    const struct cpu_matmul head = {&m->output, &x,   m->output_bias.data, e->logits, m->hp.n_vocab,
                                    n,          false};
    e->n_logits = 0;
    if (!cpu_multiply(e, &head, 1))
        return false;
    if (m->hp.logit_scale != 1 || m->hp.final_softcap > 0) {
        e->kernels->softcap(e->logits, m->hp.logit_scale, m->hp.final_softcap, n * m->hp.n_vocab);
        cpu_mark(e, "softcap", "logits");
    }
    e->logits_first = first;
    e->n_logits = n;
    return true;
}
