// The forward pass of a small model in double, which reads like the comments in model/model.h.
#ifndef HOKKU_TESTS_GPU_FACTS_REFERENCE_H
#define HOKKU_TESTS_GPU_FACTS_REFERENCE_H

#include <math.h>

#include "tiny_engine.h"

enum { MOST = TINY_FF, N_LAYER = TINY_LAYERS, N_EVAL = 24, MOST_EXPERTS = 16 };

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
        const double scale = w->scale ? *w->scale : 1;
        for (uint32_t i = 0; i < w->n_cols; i++)
            y[r] += scale * row[i] * x[i];
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
    if (act == ACT_CLAMPED_SWIGLU)
        return fmin(x, 7) / (1 + exp(-1.702 * fmin(x, 7)));
    if (act == ACT_GELU)
        return x * erfc(-x / sqrt(2)) / 2;
    return act == ACT_GELU_TANH ? x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2
                                : x / (1 + exp(-x));
}

// What up becomes beside an activated gate.
static double beside(enum activation act, double up)
{
    return act == ACT_CLAMPED_SWIGLU ? fmax(-7, fmin(7, up)) + 1 : up;
}

struct cache {
    double k[N_LAYER][N_EVAL][MOST], v[N_LAYER][N_EVAL][MOST];
    // of state spaces: what each token's convolution was given, and the state after the last one
    double given[N_LAYER][N_EVAL][4 * MOST], state[N_LAYER][MOST * MOST];
};

// Queries or keys (n_head, head_dim): normed as the layer says, and rotated.
static void turn(const struct model *m, const struct layer *l, const struct weight *weights,
                 uint32_t n_head, size_t pos, double *x)
{
    const uint32_t d = l->head_dim;
    if (l->qk_norm == QK_NORM_WHOLE)
        norm(m, weights, x, n_head * d, x);
    for (uint32_t h = 0; h < n_head; h++) {
        struct weight own = *weights;
        if (l->qk_norm == QK_NORM_HEADS)
            own.data = (const float *)weights->data + h * d;
        const bool each = l->qk_norm == QK_NORM_HEAD || l->qk_norm == QK_NORM_HEADS;
        if (each && !l->qk_norm_rotated)
            norm(m, &own, x + h * d, d, x + h * d);
        rotate(&m->ropes[l->rope], pos, x + h * d);
        if (each && l->qk_norm_rotated)
            norm(m, &own, x + h * d, d, x + h * d);
        double sum = 0;
        for (uint32_t i = 0; i < d; i++)
            sum += x[h * d + i] * x[h * d + i];
        for (uint32_t i = 0; l->qk_norm == QK_NORM_BARE && i < d; i++)
            x[h * d + i] /= sqrt(sum / d + m->hp.norm_eps);
    }
}

// Each of n_head heads by RMS norm, without weights.
static void norm_bare(const struct model *m, double *x, uint32_t n_head, uint32_t d)
{
    for (uint32_t h = 0; h < n_head; h++) {
        double sum = 0;
        for (uint32_t i = 0; i < d; i++)
            sum += x[h * d + i] * x[h * d + i];
        for (uint32_t i = 0; i < d; i++)
            x[h * d + i] /= sqrt(sum / d + m->hp.norm_eps);
    }
}

// struct latent, as it reads
static void attend_latent(const struct model *m, uint32_t il, struct cache *c, size_t pos,
                          const double *x, double *out)
{
    const struct layer *l = &m->layers[il];
    const struct latent *f = &l->latent;
    const uint32_t n_b = l->head_dim - f->n_kv, n_q = f->n_key + n_b;
    double low[MOST], q[MOST], att[MOST] = {0}, *k = c->k[il][pos];
    linear(&l->w[ATTN_KV_A], NULL, x, k);
    norm(m, &l->w[ATTN_KV_A_NORM], k, f->n_kv, k);
    rotate(&m->ropes[l->rope], pos, k + f->n_kv);
    if (f->n_q > 0) {
        linear(&l->w[ATTN_Q_A], NULL, x, low);
        norm(m, &l->w[ATTN_Q_A_NORM], low, f->n_q, low);
        linear(&l->w[ATTN_Q_B], NULL, low, q);
    } else {
        linear(&l->w[ATTN_Q], NULL, x, q);
    }
    for (uint32_t h = 0; h < l->n_head; h++) {
        const struct weight k_b = weight_of_expert(&l->w[ATTN_K_B], h);
        const struct weight v_b = weight_of_expert(&l->w[ATTN_V_B], h);
        double *a = q + h * n_q, brought[MOST] = {0}, s[N_EVAL], mean[MOST] = {0};
        double top = -INFINITY, sum = 0;
        rotate(&m->ropes[l->rope], pos, a + f->n_key);
        if (m->hp.attn_temp_scale > 0)
            for (uint32_t i = 0; i < n_q; i++)
                a[i] *=
                    1 + m->hp.attn_temp_scale *
                            log(1 + (double)((pos + m->hp.attn_temp_offset) / m->hp.attn_temp_len));
        if (!f->expands)
            linear(&k_b, NULL, a, brought);
        for (uint32_t r = 0; f->expands && r < f->n_key; r++) {
            double *row = row_of(&k_b, r);
            for (uint32_t i = 0; i < f->n_kv; i++)
                brought[i] += row[i] * a[r];
            free(row);
        }
        for (size_t p = 0; p <= pos; p++) {
            s[p] = 0;
            for (uint32_t i = 0; i < f->n_kv; i++)
                s[p] += brought[i] * c->k[il][p][i] * l->attn_scale;
            for (uint32_t i = 0; i < n_b; i++)
                s[p] += a[f->n_key + i] * c->k[il][p][f->n_kv + i] * l->attn_scale;
            top = fmax(top, s[p]);
        }
        for (size_t p = 0; p <= pos; p++)
            sum += s[p] = exp(s[p] - top);
        for (size_t p = 0; p <= pos; p++)
            for (uint32_t i = 0; i < f->n_kv; i++)
                mean[i] += s[p] / sum * c->k[il][p][i];
        linear(&v_b, NULL, mean, att + h * f->n_value);
    }
    linear(&l->w[ATTN_OUTPUT], NULL, att, out);
}

static void attend(const struct model *m, uint32_t il, struct cache *c, size_t pos, const double *x,
                   double *out)
{
    const struct layer *l = &m->layers[il];
    const uint32_t d = l->head_dim, group = l->n_head / l->n_head_kv;
    const size_t first = l->window && l->chunked            ? pos / l->window * l->window
                         : l->window && pos + 1 > l->window ? pos + 1 - l->window
                                                            : 0;
    const bool grows = m->hp.attn_temp_scale > 0 &&
                       !(m->hp.attn_temp_unrotated && m->ropes[l->rope].layout != ROPE_NONE);
    const float *sinks = l->w[ATTN_SINKS].data;
    double q[MOST], att[MOST] = {0}, s[N_EVAL], *k = c->k[il][pos], *v = c->v[il][pos];
    if (l->latent.n_kv > 0) {
        attend_latent(m, il, c, pos, x, out);
        return;
    }
    linear(&l->w[ATTN_Q], &l->w[ATTN_Q_BIAS], x, q);
    turn(m, l, &l->w[ATTN_Q_NORM], l->n_head, pos, q);
    if (l->kv_back == 0) {
        linear(&l->w[ATTN_K], &l->w[ATTN_K_BIAS], x, k);
        if (l->w[ATTN_V].data)
            linear(&l->w[ATTN_V], &l->w[ATTN_V_BIAS], x, v);
        else
            memcpy(v, k, l->n_head_kv * d * sizeof *v);
        if (l->v_normed)
            norm_bare(m, v, l->n_head_kv, d);
        turn(m, l, &l->w[ATTN_K_NORM], l->n_head_kv, pos, k);
    }
    il -= l->kv_back;
    for (uint32_t i = 0; grows && i < l->n_head * d; i++)
        q[i] *= 1 + m->hp.attn_temp_scale *
                        log(1 + (double)((pos + m->hp.attn_temp_offset) / m->hp.attn_temp_len));
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
        sum += sinks ? exp(sinks[h] - top) : 0;
        for (size_t p = first; p <= pos; p++)
            for (uint32_t i = 0; i < d; i++)
                att[h * d + i] += s[p] / sum * c->v[il][p][h / group * d + i];
    }
    linear(&l->w[ATTN_OUTPUT], &l->w[ATTN_OUTPUT_BIAS], att, out);
}

// struct ssm, as it reads
static void state_space(const struct model *m, uint32_t il, struct cache *c, size_t pos,
                        const double *x, double *out)
{
    const struct layer *l = &m->layers[il];
    const struct ssm *f = &l->ssm;
    const uint32_t n = layer_ssm_channels(l), width = f->n_inner / f->n_head;
    const uint32_t of_group = f->n_inner / f->n_group;
    const float *taps = l->w[SSM_CONV].data, *bias = l->w[SSM_CONV_BIAS].data;
    const float *weights = l->w[SSM_NORM].data;
    double in[8 * MOST], mixed[4 * MOST], y[MOST] = {0}, squares[MOST] = {0};
    assert_true(n <= 4 * MOST && f->n_inner <= MOST && f->n_state <= MOST);
    linear(&l->w[SSM_IN], NULL, x, in);
    memcpy(c->given[il][pos], in + f->n_inner, n * sizeof *in);
    for (uint32_t i = 0; i < n; i++) {
        double sum = bias ? bias[i] : 0;
        for (uint32_t back = 0; back < f->n_conv && back <= pos; back++)
            sum += taps[i * f->n_conv + f->n_conv - 1 - back] * c->given[il][pos - back][i];
        mixed[i] = activated(ACT_SILU, sum);
    }
    for (uint32_t i = 0; i < f->n_inner; i++) {
        const uint32_t head = i / width, group = i / of_group;
        const double *b = mixed + f->n_inner + group * f->n_state,
                     *read = b + f->n_group * f->n_state;
        const double t = in[f->n_inner + n + head] + ((const float *)l->w[SSM_DT].data)[head];
        const double step = log1p(exp(t));
        double *s = c->state[il] + (size_t)i * f->n_state;
        for (uint32_t k = 0; k < f->n_state; k++) {
            s[k] =
                exp(step * ((const float *)l->w[SSM_A].data)[head]) * s[k] + b[k] * step * mixed[i];
            y[i] += s[k] * read[k];
        }
        y[i] += ((const float *)l->w[SSM_D].data)[head] * mixed[i];
        y[i] *= activated(ACT_SILU, in[i]);
        squares[group] += y[i] * y[i] / of_group;
    }
    for (uint32_t i = 0; weights && i < f->n_inner; i++)
        y[i] *= weights[i] / sqrt(squares[i / of_group] + m->hp.norm_eps);
    linear(&l->w[SSM_OUT], NULL, y, out);
}

// out += weight * down(act(gate x) * up x) of one expert; given: what x is multiplied by. Without a
// gate it is up x that is activated.
static void add_expert(const struct layer *l, enum layer_weight first, uint32_t expert,
                       double given, double weight, const double *x, double *out)
{
    // gate, up and down follow each other, and so do their biases
    const bool stacked = first == EXPERT_GATE;
    struct weight w[3], bias[3] = {{0}};
    double in[TINY_EMBD], gate[MOST], up[MOST], y[TINY_EMBD];
    for (int i = 0; i < 3; i++) {
        w[i] = l->w[first + i];
        if (stacked && w[i].data)
            w[i] = weight_of_expert(&w[i], expert);
        if (stacked && l->w[EXPERT_GATE_BIAS + i].data) {
            bias[i] = l->w[EXPERT_GATE_BIAS + i];
            bias[i].data = (const float *)bias[i].data + expert * w[i].rows;
        }
    }
    for (uint32_t i = 0; i < w[1].n_cols; i++)
        in[i] = given * x[i];
    if (w[0].data)
        linear(&w[0], &bias[0], in, gate);
    linear(&w[1], &bias[1], in, up);
    for (uint32_t i = 0; i < w[1].rows; i++)
        up[i] = w[0].data ? activated(l->act, gate[i]) * beside(l->act, up[i])
                          : activated(l->act, up[i]);
    linear(&w[2], &bias[2], up, y);
    for (uint32_t i = 0; i < w[2].rows; i++)
        out[i] += weight * y[i];
}

static int compare_down(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// The n largest of score (n_all), marked; the sizes are small.
static void take_best(const double *score, size_t n_all, size_t n, bool *taken)
{
    double sorted[MOST_EXPERTS];
    memcpy(sorted, score, n_all * sizeof *score);
    qsort(sorted, n_all, sizeof *sorted, compare_down);
    for (size_t i = 0; i < n_all; i++)
        taken[i] = score[i] >= sorted[n - 1];
}

// asked: what the router is given
static void experts(const struct layer *l, const double *asked, const double *x, double *out)
{
    const struct experts *f = &l->experts;
    const uint32_t size = f->n / f->n_group;
    const float *choice = l->w[ROUTER_CHOICE_BIAS].data;
    const float *down_scale = l->w[EXPERT_DOWN_SCALE].data;
    double p[MOST_EXPERTS], score[MOST_EXPERTS], group[MOST_EXPERTS], sum = 0, chosen = 0;
    double latent[TINY_EMBD], total[TINY_EMBD] = {0}, wide[TINY_EMBD];
    bool open[MOST_EXPERTS], taken[MOST_EXPERTS];
    linear(&l->w[ROUTER], &l->w[ROUTER_BIAS], asked, p);
    for (uint32_t i = 0; i < f->n; i++)
        sum += p[i] = f->gate == EXPERT_SOFTMAX ? exp(p[i]) : 1 / (1 + exp(-p[i]));
    for (uint32_t i = 0; i < f->n; i++) {
        p[i] /= f->gate == EXPERT_SOFTMAX ? sum : 1;
        score[i] = p[i] + (choice ? choice[i] : 0);
    }
    for (uint32_t g = 0; g < f->n_group; g++) {
        double best[MOST_EXPERTS];
        memcpy(best, score + g * size, size * sizeof *best);
        qsort(best, size, sizeof *best, compare_down);
        group[g] = best[0] + (size > 1 ? best[1] : 0);
    }
    take_best(group, f->n_group, f->n_group_used, open);
    for (uint32_t i = 0; i < f->n; i++)
        score[i] = open[i / size] ? score[i] : -1e9;
    take_best(score, f->n, f->n_used, taken);
    for (uint32_t i = 0; i < f->n; i++)
        chosen += taken[i] ? p[i] : 0;
    memset(out, 0, TINY_EMBD * sizeof *out);
    if (f->n_ff_shared > 0) {
        double gate[MOST] = {0};
        if (l->w[SHARED_ROUTER].data)
            linear(&l->w[SHARED_ROUTER], NULL, x, gate);
        add_expert(l, SHARED_GATE, 0, 1, l->w[SHARED_ROUTER].data ? 1 / (1 + exp(-gate[0])) : 1, x,
                   out);
    }
    if (f->n_latent > 0)
        linear(&l->w[EXPERT_LATENT], NULL, x, latent);
    for (uint32_t i = 0; i < f->n; i++) {
        const double w =
            p[i] / (f->normed ? chosen : 1) * f->scale * (down_scale ? down_scale[i] : 1);
        if (taken[i])
            add_expert(l, EXPERT_GATE, i, f->weighs_input ? w : 1, f->weighs_input ? 1 : w,
                       f->n_latent > 0 ? latent : x, f->n_latent > 0 ? total : out);
    }
    if (f->n_latent > 0)
        linear(&l->w[EXPERT_LATENT_UP], NULL, total, wide);
    for (uint32_t i = 0; f->n_latent > 0 && i < TINY_EMBD; i++)
        out[i] += wide[i];
}

static void feed_forward(const struct layer *l, const double *x, double *out)
{
    double gate[MOST], up[MOST];
    if (l->n_ff == 0) {
        experts(l, x, x, out);
        return;
    }
    linear(&l->w[FFN_UP], &l->w[FFN_UP_BIAS], x, up);
    if (l->w[FFN_GATE].data)
        linear(&l->w[FFN_GATE], &l->w[FFN_GATE_BIAS], x, gate);
    for (uint32_t i = 0; i < l->n_ff; i++)
        up[i] = l->w[FFN_GATE].data ? beside(l->act, up[i]) * activated(l->act, gate[i])
                                    : activated(l->act, up[i]);
    linear(&l->w[FFN_DOWN], &l->w[FFN_DOWN_BIAS], up, out);
}

// out = dense_post_norm(out) + expert_post_norm(experts(expert_norm(x)))
static void join_experts(const struct model *m, const struct layer *l, const double *x, double *out)
{
    double asked[TINY_EMBD], in[TINY_EMBD], y[TINY_EMBD];
    norm(m, &l->w[ROUTER_NORM], x, TINY_EMBD, asked);
    for (uint32_t i = 0; i < TINY_EMBD; i++)
        asked[i] /= sqrt(TINY_EMBD);
    norm(m, &l->w[EXPERT_NORM], x, TINY_EMBD, in);
    experts(l, asked, in, y);
    norm(m, &l->w[EXPERT_POST_NORM], y, TINY_EMBD, y);
    norm(m, &l->w[DENSE_POST_NORM], out, TINY_EMBD, out);
    for (uint32_t i = 0; i < TINY_EMBD; i++)
        out[i] += y[i];
}

// What layer il is told of a token, whose embedding is x: (n_embd_layer)
static void tell(const struct model *m, int32_t token, uint32_t il, const double *x, double *told)
{
    const uint32_t n = m->hp.n_embd_layer;
    double all[MOST], *own = row_of(&m->token_layers, (uint32_t)token);
    linear(&m->token_layers_proj, NULL, x, all);
    for (uint32_t i = 0; i < n; i++)
        told[i] = all[il * n + i] / sqrt(TINY_EMBD);
    norm(m, &m->token_layers_norm, told, n, told);
    for (uint32_t i = 0; i < n; i++)
        told[i] = (told[i] + sqrt(n) * own[il * n + i]) / sqrt(2);
    free(own);
}

// x += token_post_norm(token_proj(act(token_gate x) * told))
static void add_told(const struct model *m, const struct layer *l, const double *told, double *x)
{
    double gate[MOST], y[TINY_EMBD];
    linear(&l->w[TOKEN_GATE], NULL, x, gate);
    for (uint32_t i = 0; i < m->hp.n_embd_layer; i++)
        gate[i] = activated(l->act, gate[i]) * told[i];
    linear(&l->w[TOKEN_PROJ], NULL, gate, y);
    norm(m, &l->w[TOKEN_POST_NORM], y, TINY_EMBD, y);
    for (uint32_t i = 0; i < TINY_EMBD; i++)
        x[i] += m->hp.residual_scale * y[i];
}

// x += residual_scale * what is to be added, normed
static void add(const struct model *m, const struct weight *post_norm, const double *y, double *x)
{
    double z[TINY_EMBD];
    norm(m, post_norm, y, TINY_EMBD, z);
    for (uint32_t i = 0; i < TINY_EMBD; i++)
        x[i] += m->hp.residual_scale * z[i];
}

// The logits after each of the tokens.
static void reference(const struct fixture *f, double logits[N_EVAL][TINY_VOCAB])
{
    const struct model *m = f->m;
    struct cache *c = calloc(1, sizeof *c);
    double x[TINY_EMBD], n[TINY_EMBD], y[TINY_EMBD];
    assert_non_null(c);
    for (size_t t = 0; t < N_EVAL; t++) {
        double *row = row_of(&m->tok_embd, (uint32_t)f->tokens[t]);
        for (uint32_t i = 0; i < TINY_EMBD; i++)
            x[i] = row[i] * m->hp.embd_scale +
                   (m->pos_embd.data ? ((const float *)m->pos_embd.data)[t * TINY_EMBD + i] : 0);
        free(row);
        double embedded[TINY_EMBD];
        memcpy(embedded, x, sizeof x);
        for (uint32_t il = 0; il < N_LAYER; il++) {
            const struct layer *l = &m->layers[il];
            double given[TINY_EMBD];
            memcpy(given, x, sizeof x);
            norm_biased(m, &l->w[ATTN_NORM], &l->w[ATTN_NORM_BIAS], x, TINY_EMBD, n);
            if (l->mixer == MIXER_ATTENTION)
                attend(m, il, c, t, n, y);
            if (l->mixer == MIXER_LINEAR)
                linear(&l->w[ATTN_OUTPUT], &l->w[ATTN_OUTPUT_BIAS], n, y);
            if (l->mixer == MIXER_ATTENTION || l->mixer == MIXER_LINEAR)
                add(m, &l->w[ATTN_POST_NORM], y, x);
            if (l->ssm.n_head > 0) {
                state_space(m, il, c, t, n, y);
                add(m, &l->w[ATTN_POST_NORM], y, x);
            }
            if (!l->parallel || l->w[FFN_NORM].data)
                norm_biased(m, &l->w[FFN_NORM], &l->w[FFN_NORM_BIAS], l->parallel ? given : x,
                            TINY_EMBD, n);
            if (layer_feeds(l)) {
                feed_forward(l, n, y);
                if (l->n_ff > 0 && l->experts.n > 0)
                    join_experts(m, l, x, y);
                add(m, &l->w[FFN_POST_NORM], y, x);
            }
            if (l->w[TOKEN_GATE].data) {
                double told[MOST];
                tell(m, f->tokens[t], il, embedded, told);
                add_told(m, l, told, x);
            }
            for (uint32_t i = 0; l->w[LAYER_SCALE].data && i < TINY_EMBD; i++)
                x[i] *= *(const float *)l->w[LAYER_SCALE].data;
        }
        norm_biased(m, &m->output_norm, &m->output_norm_bias, x, TINY_EMBD, n);
        linear(&m->output, &m->output_bias, n, logits[t]);
        for (uint32_t i = 0; i < TINY_VOCAB; i++) {
            const double v = logits[t][i] * m->hp.logit_scale, cap = m->hp.final_softcap;
            logits[t][i] = cap ? cap * tanh(v / cap) : v;
        }
    }
    free(c);
}

#endif
