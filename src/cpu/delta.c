// Gated delta nets (struct delta in model/model.h), token by token: a prompt leaves the same state
// as its tokens one at a time.
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

struct delta_job {
    struct cpu_engine *e;
    const struct layer *l;
    size_t state; // where the layer's begins in a slot
    const struct cpu_act *out;
};

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

// x / max(length, eps) * scale, (n)
static void to_length(float *x, size_t n, float eps, float scale)
{
    float squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    const float length = cpu_root(squares);
    scale /= length < eps ? eps : length; // a NaN stays one
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

static void to_length_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct delta_job *j = arg;
    const struct delta *d = &j->l->delta;
    const size_t n_keys = d->n_key_head * d->n_state;
    const float eps = j->e->base.model->hp.norm_eps;
    float *y = j->e->delta.mixed + t * layer_n_channels(j->l);
    for (size_t h = 0; h < d->n_key_head; h++) {
        to_length(y + h * d->n_state, d->n_state, eps, 1 / sqrtf((float)d->n_state));
        to_length(y + n_keys + h * d->n_state, d->n_state, eps, 1);
    }
}

// m (n, n), the memory of one head, takes up a token: o = what it answers to q.
static void remember(float *m, size_t n, const float *q, const float *k, const float *v,
                     float decay, float beta, float *o)
{
    memset(o, 0, n * sizeof *o);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < n; c++) {
            m[i * n + c] *= decay;
            o[c] += k[i] * m[i * n + c]; // M^T k
        }
    float news[1024]; // as wide as facts allow
    for (size_t c = 0; c < n; c++)
        news[c] = beta * (v[c] - o[c]);
    memset(o, 0, n * sizeof *o);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < n; c++) {
            m[i * n + c] += k[i] * news[c];
            o[c] += q[i] * m[i * n + c];
        }
}

// Of one part and head, all tokens.
static void head_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct delta_job *j = arg;
    struct cpu_engine *e = j->e;
    const struct delta *d = &j->l->delta;
    const size_t n = d->n_state, h = item % d->n_head, shared = d->n_head / d->n_key_head;
    const struct cpu_part *p = &e->parts[item / d->n_head];
    const size_t key = d->in_order ? h / shared : h % d->n_key_head;
    const size_t beta = d->in_order ? key * 2 * shared + h % shared : h;
    const size_t alpha = d->in_order ? beta + shared : d->n_head + h;
    const size_t n_channels = layer_n_channels(j->l), n_keys = d->n_key_head * n;
    const size_t at = (d->n_conv - 1) * n_channels + h * n * n;
    const float *before = cpu_state_before(e, p, j->state);
    float *m;
    for (size_t s = 0, t = p->first, end; (m = cpu_state_after(e, p, j->state, s, &end)) != NULL;
         s++, before = m) {
        if (before)
            memcpy(m + at, before + at, n * n * sizeof *m);
        else
            memset(m + at, 0, n * n * sizeof *m);
        for (; t < p->first + end; t++) {
            const float *x = e->delta.mixed + t * n_channels, *ba = e->delta.ba + t * 2 * d->n_head;
            const float g = layer_vector(j->l, DELTA_A)[h] *
                            softplus(ba[alpha] + layer_vector(j->l, DELTA_DT)[h]);
            remember(m + at, n, x + key * n, x + n_keys + key * n, x + 2 * n_keys + h * n, expf(g),
                     sigmoid(ba[beta]), j->out->f + t * j->out->n_pad + h * n);
        }
    }
}

static void gate_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct delta_job *j = arg;
    const struct delta *d = &j->l->delta;
    const size_t n = (size_t)d->n_head * d->n_state;
    float *y = j->out->f + t * j->out->n_pad;
    const float *z = j->e->delta.z + t * n;
    for (size_t h = 0; h < d->n_head; h++)
        j->e->kernels->rms_norm(y + h * d->n_state, layer_vector(j->l, DELTA_NORM), NULL,
                                j->e->base.model->hp.norm_eps, d->n_state, y + h * d->n_state);
    for (size_t i = 0; i < n; i++)
        y[i] *= z[i] * sigmoid(z[i]);
}

bool cpu_delta(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct weight *w = l->w;
    const struct cpu_act *in = &e->normed, out = cpu_as_wide_as(&e->attn_out, layer_n_out(l), n);
    const size_t n_head = l->delta.n_head;
    struct delta_job j = {.e = e, .l = l, .state = cpu_state_of(e, il), .out = &out};
    const struct cpu_mixing mixing = {
        .in = e->delta.in,
        .stride = layer_n_channels(l),
        .n = layer_n_channels(l),
        .n_taps = l->delta.n_conv,
        .w = layer_vector(l, DELTA_CONV),
        .state = j.state,
        .out = e->delta.mixed,
    };
    struct cpu_matmul m[4] = {
        {&w[DELTA_QKV], in, NULL, e->delta.in, layer_n_channels(l), n, false},
        {&w[DELTA_GATE], in, NULL, e->delta.z, layer_n_out(l), n, false},
        {&w[DELTA_BETA], in, NULL, e->delta.ba, 2 * n_head, n, false},
        {&w[DELTA_ALPHA], in, NULL, e->delta.ba + n_head, 2 * n_head, n, false},
    };
    if (w[DELTA_BETA_ALPHA].data)
        m[2].w = &w[DELTA_BETA_ALPHA];
    return cpu_multiply(e, m, w[DELTA_BETA_ALPHA].data ? 3 : 4) && cpu_mix(e, &mixing, n) &&
           cpu_each_token(e, n, to_length_item, &j) &&
           cpu_mark(e, "convolve", w[DELTA_CONV].name) &&
           pool_run(e->pool, e->n_parts * n_head, head_item, &j, e->cancel) &&
           cpu_mark(e, "delta", "state") && cpu_each_token(e, n, gate_item, &j) &&
           cpu_mark(e, "norm", w[DELTA_NORM].name) &&
           cpu_add_product(e, il, ATTN_OUTPUT, NULL, ATTN_POST_NORM, &out, n);
}
