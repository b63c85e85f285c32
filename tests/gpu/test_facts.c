// What a layer computes is what its facts say: each fact of model/model.h, changed in a small
// random model, against a forward pass in double that reads like the comment there. In several
// chunkings.
#include "../unit/test.h"

#include <math.h>

#include "tiny_engine.h"

enum { MOST = TINY_FF, N_LAYER = TINY_LAYERS, N_EVAL = 24 };

static float vectors[16][TINY_VOCAB]; // that the cases add to a model

// ---- the reference

static double *row_of(const struct weight *w, uint32_t row)
{
    float *f = malloc(w->n_cols * sizeof *f);
    double *d = malloc(w->n_cols * sizeof *d);
    assert_true(f && d);
    quant_dequantize(w->type, (const uint8_t *)w->data + row * quant_row_bytes(w->type, w->n_cols),
                     f, w->n_cols);
    for (uint32_t i = 0; i < w->n_cols; i++)
        d[i] = f[i];
    free(f);
    return d;
}

// y (rows) = W x + bias
static void linear(const struct weight *w, const struct weight *bias, const double *x, double *y)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        double *row = row_of(w, r);
        y[r] = bias && bias->data ? ((const float *)bias->data)[r] : 0;
        for (uint32_t i = 0; i < w->n_cols; i++)
            y[r] += row[i] * x[i];
        free(row);
    }
}

// y = x, normed unless there are no weights.
static void norm_biased(const struct model *m, const struct weight *w, const struct weight *bias,
                        const double *x, uint32_t n, double *y)
{
    const float *v = w->data, *b = bias ? bias->data : NULL;
    double sum = 0, mean = 0;
    for (uint32_t i = 0; m->hp.norm == NORM_LAYER && i < n; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    for (uint32_t i = 0; i < n; i++)
        y[i] = v ? (x[i] - mean) / sqrt(sum / n + m->hp.norm_eps) * v[i] + (b ? b[i] : 0) : x[i];
}

static void norm(const struct model *m, const struct weight *w, const double *x, uint32_t n,
                 double *y)
{
    norm_biased(m, w, NULL, x, n, y);
}

static void rotate(const struct rope *r, size_t pos, double *head)
{
    for (uint32_t i = 0; r->layout != ROPE_NONE && i < r->n_dim / 2; i++) {
        const uint32_t a = r->layout == ROPE_HALVES ? i : 2 * i;
        const uint32_t b = r->layout == ROPE_HALVES ? i + r->n_dim / 2 : a + 1;
        const double angle = (double)pos * pow(r->theta, -2.0 * i / r->n_dim) / r->factor;
        const double x = head[a], y = head[b];
        head[a] = x * cos(angle) - y * sin(angle);
        head[b] = x * sin(angle) + y * cos(angle);
    }
}

static const struct xielu XIELU = {0.8f, 0.3f, 0.5f, -1e-6f};

static double activated(enum activation act, double x)
{
    if (act == ACT_RELU_SQR)
        return x > 0 ? x * x : 0;
    if (act == ACT_XIELU)
        return XIELU.beta * x +
               (x > 0 ? XIELU.p * x * x : XIELU.n * (expm1(fmin(x, XIELU.eps)) - x));
    return act == ACT_GELU_TANH ? x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2
                                : x / (1 + exp(-x));
}

struct cache {
    double k[N_LAYER][N_EVAL][MOST], v[N_LAYER][N_EVAL][MOST];
};

// Queries or keys (n_head, head_dim): normed as the layer says, and rotated.
static void turn(const struct model *m, const struct layer *l, const struct weight *weights,
                 uint32_t n_head, size_t pos, double *x)
{
    const uint32_t d = l->head_dim;
    if (l->qk_norm == QK_NORM_WHOLE)
        norm(m, weights, x, n_head * d, x);
    for (uint32_t h = 0; h < n_head; h++) {
        if (l->qk_norm == QK_NORM_HEAD && !l->qk_norm_rotated)
            norm(m, weights, x + h * d, d, x + h * d);
        rotate(&m->ropes[l->rope], pos, x + h * d);
        if (l->qk_norm == QK_NORM_HEAD && l->qk_norm_rotated)
            norm(m, weights, x + h * d, d, x + h * d);
    }
}

static void attend(const struct model *m, uint32_t il, struct cache *c, size_t pos, const double *x,
                   double *out)
{
    const struct layer *l = &m->layers[il];
    const uint32_t d = l->head_dim, group = l->n_head / l->n_head_kv;
    const size_t first = l->window && pos + 1 > l->window ? pos + 1 - l->window : 0;
    double q[MOST], att[MOST] = {0}, s[N_EVAL], *k = c->k[il][pos];
    linear(&l->w[ATTN_Q], &l->w[ATTN_Q_BIAS], x, q);
    linear(&l->w[ATTN_K], &l->w[ATTN_K_BIAS], x, k);
    linear(&l->w[ATTN_V], &l->w[ATTN_V_BIAS], x, c->v[il][pos]);
    turn(m, l, &l->w[ATTN_Q_NORM], l->n_head, pos, q);
    turn(m, l, &l->w[ATTN_K_NORM], l->n_head_kv, pos, k);
    for (uint32_t i = 0; m->hp.attn_temp_scale > 0 && i < l->n_head * d; i++)
        q[i] *= 1 + m->hp.attn_temp_scale * log(1 + (double)(pos / m->hp.attn_temp_len));
    for (uint32_t h = 0; h < l->n_head; h++) {
        double top = -INFINITY, sum = 0;
        for (size_t p = first; p <= pos; p++) {
            s[p] = 0;
            for (uint32_t i = 0; i < d; i++)
                s[p] += q[h * d + i] * c->k[il][p][h / group * d + i] * l->attn_scale;
            if (l->attn_softcap > 0)
                s[p] = l->attn_softcap * tanh(s[p] / l->attn_softcap);
            top = fmax(top, s[p]);
        }
        for (size_t p = first; p <= pos; p++)
            sum += s[p] = exp(s[p] - top);
        for (size_t p = first; p <= pos; p++)
            for (uint32_t i = 0; i < d; i++)
                att[h * d + i] += s[p] / sum * c->v[il][p][h / group * d + i];
    }
    linear(&l->w[ATTN_OUTPUT], &l->w[ATTN_OUTPUT_BIAS], att, out);
}

static void feed_forward(const struct layer *l, const double *x, double *out)
{
    double gate[MOST], up[MOST];
    linear(&l->w[FFN_UP], &l->w[FFN_UP_BIAS], x, up);
    if (l->w[FFN_GATE].data)
        linear(&l->w[FFN_GATE], NULL, x, gate);
    for (uint32_t i = 0; i < l->n_ff; i++)
        up[i] = l->w[FFN_GATE].data ? up[i] * activated(l->act, gate[i]) : activated(l->act, up[i]);
    linear(&l->w[FFN_DOWN], &l->w[FFN_DOWN_BIAS], up, out);
}

// The logits after each of the tokens.
static void reference(const struct fixture *f, double logits[N_EVAL][TINY_VOCAB])
{
    const struct model *m = f->m;
    struct cache *c = calloc(1, sizeof *c);
    double x[TINY_EMBD], n[TINY_EMBD], y[TINY_EMBD], z[TINY_EMBD];
    assert_non_null(c);
    for (size_t t = 0; t < N_EVAL; t++) {
        double *row = row_of(&m->tok_embd, (uint32_t)f->tokens[t]);
        for (uint32_t i = 0; i < TINY_EMBD; i++)
            x[i] = row[i] * m->hp.embd_scale;
        free(row);
        for (uint32_t il = 0; il < N_LAYER; il++) {
            const struct layer *l = &m->layers[il];
            norm_biased(m, &l->w[ATTN_NORM], &l->w[ATTN_NORM_BIAS], x, TINY_EMBD, n);
            attend(m, il, c, t, n, y);
            norm(m, &l->w[ATTN_POST_NORM], y, TINY_EMBD, z);
            for (uint32_t i = 0; i < TINY_EMBD; i++)
                x[i] += m->hp.residual_scale * z[i];
            if (!l->parallel)
                norm_biased(m, &l->w[FFN_NORM], &l->w[FFN_NORM_BIAS], x, TINY_EMBD, n);
            feed_forward(l, n, y);
            norm(m, &l->w[FFN_POST_NORM], y, TINY_EMBD, z);
            for (uint32_t i = 0; i < TINY_EMBD; i++)
                x[i] += m->hp.residual_scale * z[i];
        }
        norm_biased(m, &m->output_norm, &m->output_norm_bias, x, TINY_EMBD, n);
        linear(&m->output, NULL, n, logits[t]);
        for (uint32_t i = 0; i < TINY_VOCAB; i++) {
            const double v = logits[t][i] * m->hp.logit_scale, cap = m->hp.final_softcap;
            logits[t][i] = cap ? cap * tanh(v / cap) : v;
        }
    }
    free(c);
}

// ---- cases

static void add_vector(struct layer *l, enum layer_weight w, uint32_t at, uint32_t n, float about)
{
    for (uint32_t i = 0; i < n; i++)
        vectors[at][i] = about + 0.5f * (float)sin(at + 1.7 * i);
    l->w[w] = (struct weight){.name = "added",
                              .group = "added",
                              .type = QUANT_F32,
                              .rows = 1,
                              .n_cols = n,
                              .vector = true,
                              .data = vectors[at],
                              .n_bytes = n * sizeof(float)};
}

static void post_norms(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_POST_NORM, 2 * i, TINY_EMBD, 0.9f);
        add_vector(&m->layers[i], FFN_POST_NORM, 2 * i + 1, TINY_EMBD, 1.1f);
    }
}

static void gelu(struct model *m)
{
    m->layers[0].act = m->layers[1].act = ACT_GELU_TANH;
}

static void different_activations(struct model *m)
{
    m->layers[1].act = ACT_GELU_TANH;
}

static void scales(struct model *m)
{
    m->hp.embd_scale = 5.6f;
    m->hp.residual_scale = 0.22f;
    m->hp.logit_scale = 0.125f;
}

static void softcap(struct model *m)
{
    m->hp.final_softcap = 2.0f;
}

static void normed_only_after(struct model *m)
{
    post_norms(m);
    for (uint32_t i = 0; i < N_LAYER; i++)
        m->layers[i].w[ATTN_NORM].data = m->layers[i].w[FFN_NORM].data = NULL;
    m->hp.embd_scale = 30.0f; // inputs that no norm has made small
}

static void all_scales_and_post_norms(struct model *m)
{
    post_norms(m);
    scales(m);
    gelu(m);
    softcap(m);
}

static void biases(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_OUTPUT_BIAS, 2 * i, TINY_EMBD, 0.3f);
        add_vector(&m->layers[i], FFN_DOWN_BIAS, 2 * i + 1, TINY_EMBD, -0.2f);
    }
}

static void biases_and_post_norms(struct model *m)
{
    post_norms(m);
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_OUTPUT_BIAS, 4 + 2 * i, TINY_EMBD, 0.3f);
        add_vector(&m->layers[i], FFN_DOWN_BIAS, 5 + 2 * i, TINY_EMBD, -0.2f);
    }
}

static void two_rotations(struct model *m)
{
    m->n_rope = 2;
    m->ropes[1] = m->ropes[0];
    m->ropes[1].layout = ROPE_HALVES;
    m->ropes[1].n_dim = 6;
    m->ropes[1].theta = 100.0f;
    m->ropes[1].scaling = ROPE_SCALING_LINEAR;
    m->ropes[1].factor = 2.0f;
    m->layers[1].rope = 1;
}

static void no_rotation(struct model *m)
{
    m->n_rope = 2;
    m->ropes[1] = (struct rope){.layout = ROPE_NONE, .factor = 1, .attn_factor = 1};
    m->layers[0].rope = 1;
}

static void windows(struct model *m)
{
    m->layers[0].window = 7;
}

static void attention_facts(struct model *m)
{
    m->layers[0].attn_scale = 0.11f;
    m->layers[1].attn_scale = 2.5f;
    m->layers[1].attn_softcap = 1.5f;
    m->hp.attn_temp_scale = 0.4f;
    m->hp.attn_temp_len = 8;
}

static void norms_of_queries_and_keys(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = &m->layers[i];
        const bool whole = i == 1;
        l->qk_norm = whole ? QK_NORM_WHOLE : QK_NORM_HEAD;
        l->qk_norm_rotated = !whole;
        add_vector(l, ATTN_Q_NORM, 2 * i, whole ? l->n_head * l->head_dim : l->head_dim, 1.2f);
        add_vector(l, ATTN_K_NORM, 2 * i + 1, whole ? l->n_head_kv * l->head_dim : l->head_dim,
                   0.8f);
    }
}

static void ungated(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        m->layers[i].w[FFN_GATE].data = NULL;
        add_vector(&m->layers[i], FFN_UP_BIAS, i, TINY_FF, 0.2f);
    }
    m->layers[0].act = ACT_RELU_SQR;
    m->layers[1].act = ACT_GELU_TANH;
}

static void gates_that_grow(struct model *m)
{
    m->layers[0].act = ACT_XIELU;
    m->layers[0].xielu = XIELU;
    m->layers[1].act = ACT_RELU_SQR;
    add_vector(&m->layers[1], FFN_UP_BIAS, 0, TINY_FF, 0.2f);
}

static void parallel(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        m->layers[i].parallel = true;
        m->layers[i].w[FFN_NORM].data = NULL;
    }
}

static void layer_norms(struct model *m)
{
    m->hp.norm = NORM_LAYER;
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_NORM_BIAS, 2 * i, TINY_EMBD, 0.1f);
        add_vector(&m->layers[i], FFN_NORM_BIAS, 2 * i + 1, TINY_EMBD, -0.1f);
    }
    m->output_norm_bias = m->layers[0].w[ATTN_NORM_BIAS];
}

static void parallel_layer_norms(struct model *m)
{
    parallel(m);
    m->hp.norm = NORM_LAYER;
}

// One layer has half of the heads, and half of the inner width.
static void layers_of_two_sizes(struct model *m)
{
    struct layer *l = &m->layers[1];
    l->n_head = TINY_HEADS / 2;
    l->n_head_kv = 1;
    l->n_ff = TINY_FF / 2;
    const uint32_t n_q = l->n_head * l->head_dim, rows[] = {n_q, l->head_dim, l->head_dim};
    for (int i = 0; i < 3; i++) {
        l->w[ATTN_Q + i].rows = rows[i];
        l->w[ATTN_Q + i].n_bytes =
            rows[i] * quant_row_bytes(l->w[ATTN_Q + i].type, l->w[ATTN_Q + i].n_cols);
    }
    // plain weights, whose rows may end anywhere
    static uint16_t out[TINY_EMBD][TINY_EMBD / 2], down[TINY_EMBD][TINY_FF / 2];
    random_blocks(QUANT_F16, out, sizeof out, 0.3, 77);
    random_blocks(QUANT_F16, down, sizeof down, 0.3, 78);
    l->w[ATTN_OUTPUT].type = l->w[FFN_DOWN].type = QUANT_F16;
    l->w[ATTN_OUTPUT].n_cols = n_q;
    l->w[ATTN_OUTPUT].data = out;
    l->w[ATTN_OUTPUT].n_bytes = sizeof out;
    l->w[FFN_DOWN].n_cols = l->n_ff;
    l->w[FFN_DOWN].data = down;
    l->w[FFN_DOWN].n_bytes = sizeof down;
    for (int i = FFN_GATE; i <= FFN_UP; i++) {
        l->w[i].rows = l->n_ff;
        l->w[i].n_bytes /= 2;
    }
}

static void nothing(struct model *m)
{
    (void)m;
}

static const struct {
    const char *name;
    void (*change)(struct model *);
    bool all_kinds; // of gate and up
} cases[] = {
    {"none", nothing},
    {"norms after blocks", post_norms},
    {"GELU", gelu},
    {"activations that differ", different_activations},
    {"scales", scales},
    {"softcap of the logits", softcap},
    {"norms after blocks alone", normed_only_after, true},
    {"scales, GELU, softcap, norms after blocks", all_scales_and_post_norms, true},
    {"biases", biases},
    {"biases, norms after blocks", biases_and_post_norms},
    {"two rotations", two_rotations},
    {"a layer that is not rotated", no_rotation},
    {"a window in one layer", windows},
    {"layers of two sizes", layers_of_two_sizes},
    {"scales, softcap and temperature of attention", attention_facts},
    {"norms of queries and keys", norms_of_queries_and_keys},
    {"no gates", ungated, true},
    {"gates that grow", gates_that_grow},
    {"parallel blocks", parallel},
    {"layer norms with biases", layer_norms},
    {"parallel blocks, layer norms", parallel_layer_norms, true},
};

// Gate and up of two types, which no kernel multiplies at once, and of one.
static void open_case(struct fixture *f, size_t kind, size_t i)
{
    struct tiny t;
    char name[96], block[16];
    tiny_init(&t, "llama");
    for (uint32_t l = 0; kind > 0 && l < N_LAYER; l++) {
        const uint32_t type = kind == 1 ? QUANT_F16 : QUANT_Q8_0;
        snprintf(block, sizeof block, "blk.%u", l);
        tiny_tensor(&t, tiny_name(name, block, "ffn_gate.weight"), type, TINY_EMBD, TINY_FF);
        tiny_tensor(&t, tiny_name(name, block, "ffn_up.weight"), type, TINY_EMBD, TINY_FF);
    }
    open_tiny(f, &t);
    cases[i].change(f->m);
}

// ---- tests

static double furthest(struct engine *e, const struct fixture *f, size_t chunk,
                       double want[N_EVAL][TINY_VOCAB], double *size)
{
    float got[TINY_VOCAB];
    struct error err = {0};
    double off = 0;
    *size = 0;
    one_trim(e, 0);
    for (size_t done = 0; done < N_EVAL; done += chunk) {
        const size_t n = N_EVAL - done < chunk ? N_EVAL - done : chunk;
        if (!one_eval(e, f->tokens + done, n, LOGITS_ALL, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++) {
            if (!one_logits(e, i, got, &err))
                fail_msg("%s", err.text);
            for (uint32_t k = 0; k < TINY_VOCAB; k++) {
                const double d = fabs(got[k] - want[done + i][k]);
                off = d <= off ? off : d; // a NaN stays
                *size = fmax(*size, fabs(want[done + i][k]));
            }
        }
    }
    return off;
}

static void every_fact_is_computed(void **state)
{
    (void)state;
    static const size_t chunks[] = {N_EVAL, 1, 5};
    static double want[N_EVAL][TINY_VOCAB];
    size_t n_bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t kind = 0; kind < 3; kind++) {
            if (!cases[i].all_kinds && kind != i % 3)
                continue; // for the sake of time
            const struct engine_params p = {.n_ctx = N_CTX, .n_batch = N_EVAL};
            struct fixture f;
            struct error err = {0};
            open_case(&f, kind, i);
            struct engine *e = try_open(f.m, &p, &err);
            if (!e)
                fail_msg("%s: %s", cases[i].name, err.text);
            reference(&f, want);
            for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
                double size, off = furthest(e, &f, chunks[k], want, &size);
                print_message("# %s, kind %zu, in chunks of %zu: off by %g of %g\n", cases[i].name,
                              kind, chunks[k], off, size);
                n_bad += !(off <= 2e-3 * size);
            }
            one_close(e);
            close_model(&f);
        }
    if (n_bad)
        fail_msg("%zu of them are further off than float16 explains", n_bad);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fact_is_computed)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
