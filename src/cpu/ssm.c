// Selective state spaces (struct ssm in model/model.h), token by token: a prompt leaves the same
// state as its tokens one at a time.
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

struct ssm_job {
    struct cpu_engine *e;
    const struct layer *l;
    size_t state; // where the layer's begins in a slot
    const struct cpu_act *out;
};

static size_t in_width(const struct layer *l)
{
    return l->ssm.n_inner + layer_ssm_channels(l) + l->ssm.n_head;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

// Of one part and head, all tokens.
static void head_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct ssm_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct ssm *d = &j->l->ssm;
    const size_t h = item % d->n_head, n = d->n_inner / d->n_head, n_all = n * d->n_state;
    const size_t n_channels = layer_ssm_channels(j->l), group = h / (d->n_head / d->n_group);
    const size_t at = (d->n_conv - 1) * n_channels + h * n_all;
    const struct cpu_part *p = &e->parts[item / d->n_head];
    const float *before = cpu_state_before(e, p, j->state);
    float *s;
    for (size_t i = 0, t = p->first, end; (s = cpu_state_after(e, p, j->state, i, &end)) != NULL;
         i++, before = s) {
        if (before)
            memcpy(s + at, before + at, n_all * sizeof *s);
        else
            memset(s + at, 0, n_all * sizeof *s);
        for (; t < p->first + end; t++) {
            float *x = e->ssm.mixed + t * n_channels + h * n,
                  *y = j->out->f + t * j->out->n_pad + h * n;
            const float *b = e->ssm.mixed + t * n_channels + d->n_inner + group * d->n_state;
            const float *c = b + (size_t)d->n_group * d->n_state;
            const float dt = e->ssm.in[(t + 1) * in_width(j->l) - d->n_head + h];
            const float step = softplus(dt + layer_vector(j->l, SSM_DT)[h]);
            const float direct = layer_vector(j->l, SSM_D)[h];
            for (size_t k = 0; k < n; k++) { // these channels are this head's alone
                y[k] = direct * x[k];
                x[k] *= step;
            }
            e->kernels->remember(s + at, d->n_state, n, expf(step * layer_vector(j->l, SSM_A)[h]),
                                 b, x, c, y);
        }
    }
}

static void gate_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct ssm_job *j = arg;
    const struct ssm *d = &j->l->ssm;
    const size_t n = d->n_inner / d->n_group;
    const float *w = layer_vector(j->l, SSM_NORM);
    float *z = j->e->ssm.in + t * in_width(j->l); // not needed any more
    float *y = j->out->f + t * j->out->n_pad;
    j->e->kernels->activate(ACT_SILU, NULL, z, y, d->n_inner);
    if (!w)
        memcpy(y, z, d->n_inner * sizeof *y);
    for (size_t g = 0; w && g < d->n_group; g++)
        j->e->kernels->rms_norm(z + g * n, w + g * n, NULL, j->e->base.model->hp.norm_eps, n,
                                y + g * n);
}

bool cpu_ssm(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct cpu_act out = cpu_as_wide_as(&e->attn_out, l->ssm.n_inner, n);
    struct ssm_job j = {.e = e, .l = l, .state = cpu_state_of(e, il), .out = &out};
    const struct cpu_matmul in = {&l->w[SSM_IN], &e->normed, NULL, e->ssm.in,
                                  in_width(l),   n,          false};
    const struct cpu_mixing mixing = {
        .in = e->ssm.in + l->ssm.n_inner,
        .stride = in_width(l),
        .n = layer_ssm_channels(l),
        .n_taps = l->ssm.n_conv,
        .w = layer_vector(l, SSM_CONV),
        .bias = layer_vector(l, SSM_CONV_BIAS),
        .state = j.state,
        .out = e->ssm.mixed,
    };
    return cpu_multiply(e, &in, 1) && cpu_mix(e, &mixing, n) &&
           cpu_mark(e, "convolve", l->w[SSM_CONV].name) &&
           pool_run(e->pool, e->n_parts * l->ssm.n_head, head_item, &j, e->cancel) &&
           cpu_mark(e, "scan", "state") && cpu_each_token(e, n, gate_item, &j) &&
           cpu_mark(e, "norm", l->w[SSM_NORM].name) &&
           cpu_add_product(e, il, SSM_OUT, NULL, ATTN_POST_NORM, &out, n);
}
