// Latent attention (struct latent in model/model.h): queries are brought to where the cache has the
// latent, which no key or value is made of.
#include "cpu/forward.h"

#include <string.h>

#include "gguf/quant.h"

struct latent_job {
    struct cpu_engine *e;
    const struct layer *l;
    const struct cpu_kv_layer *kv;
    size_t n;
    // A product of each head with its rows.
    const struct weight *w;
    const struct cpu_act *x; // (n_head, n, columns)
    struct cpu_heads to;
    uint32_t rows_per_item;
    size_t items_per_head;
};

static size_t rotated(const struct layer *l)
{
    return l->head_dim - l->latent.n_kv;
}

static void norm_q_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct latent_job *j = arg;
    const struct cpu_act *a = &j->e->latent.q_low;
    float *x = a->f + t * a->n_pad;
    cpu_norm_row(j->e, x, layer_vector(j->l, ATTN_Q_A_NORM), NULL, a->n_cols, x);
}

// Stores what the token leaves in the cache, and parts its queries.
static void part_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct latent_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct layer *l = j->l;
    const struct cpu_latent *x = &e->latent;
    const struct rope *rope = &e->base.model->ropes[l->rope];
    const float *cos_sin = e->ropes[l->rope].cos_sin + t * rope->n_dim;
    const size_t n_kv = l->latent.n_kv, n_key = l->latent.n_key, n_rotated = rotated(l);
    const float times = cpu_query_scale(e, l, t);
    float *c = e->k + t * l->head_dim, *q = x->q + t * l->n_head * (n_key + n_rotated);
    cpu_norm_row(e, c, layer_vector(l, ATTN_KV_A_NORM), NULL, n_kv, c);
    e->kernels->rope(c + n_kv, cos_sin, n_rotated / 2, rope->layout);
    e->kernels->kv_store(j->kv, 0, cpu_place_of(e, j->kv, t), c, NULL);
    for (size_t h = 0; h < l->n_head; h++, q += n_key + n_rotated) {
        float *key = x->key.f + (h * j->n + t) * x->key.n_pad;
        float *to = e->q + (t * l->n_head + h) * l->head_dim + n_kv;
        e->kernels->rope(q + n_key, cos_sin, n_rotated / 2, rope->layout);
        for (size_t i = 0; i < n_key; i++)
            key[i] = q[i] * times;
        for (size_t i = 0; i < n_rotated; i++)
            to[i] = q[n_key + i] * times;
    }
}

// ---- the matrices of heads

static void product_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct latent_job *j = arg;
    const size_t head = item / j->items_per_head;
    const uint32_t row0 = (uint32_t)(item % j->items_per_head) * j->rows_per_item;
    const struct weight w = weight_of_expert(j->w, (uint32_t)head);
    const struct cpu_act x = cpu_rows_from(j->x, head * j->n);
    const struct cpu_matmul m = {&w,          &x,   NULL, j->to.out + head * j->to.between,
                                 j->to.token, j->n, false};
    const uint32_t left = w.rows - row0;
    j->e->kernels->matmul(&m, row0, left < j->rows_per_item ? w.rows : row0 + j->rows_per_item);
}

// The transpose: of each row as much as the query's number.
static void transposed_item(void *arg, size_t head, int thread)
{
    (void)thread;
    const struct latent_job *j = arg;
    const struct weight w = weight_of_expert(j->w, (uint32_t)head);
    const size_t n_kv = w.n_cols, row_bytes = quant_row_bytes(w.type, n_kv);
    const float scale = w.scale ? *w.scale : 1;
    float row[2048]; // as wide as facts allow
    for (size_t t = 0; t < j->n; t++)
        memset(j->to.out + t * j->to.token + head * j->to.between, 0, n_kv * sizeof *row);
    for (size_t r = 0; r < w.rows; r++) {
        quant_dequantize(w.type, (const uint8_t *)w.data + r * row_bytes, row, n_kv);
        for (size_t t = 0; t < j->n; t++) {
            const float x = scale * j->x->f[(head * j->n + t) * j->x->n_pad + r];
            float *y = j->to.out + t * j->to.token + head * j->to.between;
            for (size_t i = 0; i < n_kv; i++)
                y[i] += x * row[i];
        }
    }
}

// y of each head = its matrix of w times its rows of x
static bool multiply_heads(struct latent_job *j, const struct weight *w, bool transposed,
                           const struct cpu_act *x, struct cpu_heads to)
{
    struct cpu_engine *e = j->e;
    const size_t n_head = j->l->n_head;
    j->w = w;
    j->x = x;
    j->to = to;
    if (transposed)
        return pool_run(e->pool, n_head, transposed_item, j, e->cancel) &&
               cpu_mark(e, "matmul", w->name);
    j->rows_per_item = cpu_rows_per_item(e, w, n_head * w->rows, j->n);
    j->items_per_head = (w->rows + j->rows_per_item - 1) / j->rows_per_item;
    return (!cpu_is_quantized(w) || cpu_quantize(e, x, n_head, j->n)) &&
           pool_run(e->pool, n_head * j->items_per_head, product_item, j, e->cancel) &&
           cpu_mark(e, "matmul", w->name);
}

// ---- the whole

// latent.q (n, n_head, n_key + rotated), e->k (n, n_kv + rotated)
static bool project(struct latent_job *j)
{
    struct cpu_engine *e = j->e;
    const struct layer *l = j->l;
    const struct weight *w = l->w;
    const size_t n = j->n, n_q = l->n_head * (l->latent.n_key + rotated(l));
    const struct cpu_act *in = &e->normed, *low = &e->latent.q_low;
    const struct cpu_matmul kv = {&w[ATTN_KV_A], in, NULL, e->k, l->head_dim, n, false};
    if (l->latent.n_q == 0) {
        const struct cpu_matmul m[] = {{&w[ATTN_Q], in, NULL, e->latent.q, n_q, n, false}, kv};
        return cpu_multiply(e, m, 2);
    }
    const struct cpu_matmul m[] = {{&w[ATTN_Q_A], in, NULL, low->f, low->n_pad, n, false}, kv};
    const struct cpu_matmul q = {&w[ATTN_Q_B], low, NULL, e->latent.q, n_q, n, false};
    return cpu_multiply(e, m, 2) && cpu_each_token(e, n, norm_q_item, j) &&
           cpu_mark(e, "norm", w[ATTN_Q_A_NORM].name) && cpu_multiply(e, &q, 1);
}

bool cpu_attend_latent(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct cpu_latent *x = &e->latent;
    const struct cpu_act out = cpu_as_wide_as(&e->attn_out, layer_n_out(l), n);
    const struct cpu_heads q = {e->q, (size_t)l->n_head * l->head_dim, l->head_dim},
                           sum = {x->sum.f, x->sum.n_pad, n * x->sum.n_pad},
                           to = {out.f, out.n_pad, l->latent.n_value};
    struct latent_job j = {.e = e, .l = l, .kv = &e->kv.layers[il], .n = n};
    return project(&j) && cpu_each_token(e, n, part_item, &j) && cpu_mark(e, "rotate", "kv") &&
           multiply_heads(&j, &l->w[ATTN_K_B], l->latent.expands, &x->key, q) &&
           cpu_attention(e, il, &sum, n) &&
           multiply_heads(&j, &l->w[ATTN_V_B], false, &x->sum, to) &&
           cpu_add_product(e, il, ATTN_OUTPUT, NULL, ATTN_POST_NORM, &out, n);
}
