// Recurrent states in their slots, and what convolves: short convolutions (struct short_conv in
// model/model.h), and the channels of delta nets and state spaces.
#include "cpu/forward.h"

#include <string.h>

#include "engine/states.h"

size_t cpu_state_of(const struct cpu_engine *e, size_t il)
{
    size_t at = 0;
    for (size_t i = 0; i < il; i++)
        at += layer_state_size(&e->base.model->layers[i]);
    return at;
}

const float *cpu_state_before(const struct cpu_engine *e, const struct cpu_part *p, size_t state)
{
    const struct cpu_states *s = &e->states;
    return p->seq->state == NO_STATE ? NULL : s->base + p->seq->state * s->stride + state;
}

// A pass that only looks (see check_finite) leaves it where nobody reads it.
float *cpu_state_after(const struct cpu_engine *e, const struct cpu_part *p, size_t state, size_t i,
                       size_t *end)
{
    const struct cpu_states *s = &e->states;
    const bool kept = !e->search && p->seq->n_next > 0;
    if (i >= (kept ? states_written(p->seq, p->n) : 1))
        return NULL;
    *end = kept ? states_end(p->seq, p->n, i) : p->n;
    return s->base + (kept ? p->seq->next_states[i] : s->n) * s->stride + state;
}

struct conv_job {
    struct cpu_engine *e;
    const struct layer *l;
    size_t state;
    const struct cpu_act *out;
};

// b x of token i of a part, channel c; of those before the part, by its state.
static float product_of(const struct conv_job *j, const struct cpu_part *p, const float *before,
                        ptrdiff_t i, size_t c)
{
    const size_t n = j->l->conv.n;
    if (i < 0)
        return before ? before[(size_t)(i + (ptrdiff_t)j->l->conv.n_taps - 1) * n + c] : 0;
    const float *row = j->e->conv_in + (p->first + (size_t)i) * 3 * n;
    return row[c] * row[2 * n + c];
}

static void convolve_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct conv_job *j = arg;
    const size_t n = j->l->conv.n, n_taps = j->l->conv.n_taps;
    const struct cpu_part *p = cpu_part_of(j->e, t);
    const float *before = cpu_state_before(j->e, p, j->state), *w = layer_vector(j->l, CONV);
    const float *gate = j->e->conv_in + t * 3 * n + n;
    float *y = j->out->f + t * j->out->n_pad;
    for (size_t c = 0; c < n; c++) {
        float sum = 0;
        for (size_t tap = 0; tap < n_taps; tap++) {
            const ptrdiff_t i = (ptrdiff_t)(t - p->first + tap) - (ptrdiff_t)n_taps + 1;
            sum += w[c * n_taps + tap] * product_of(j, p, before, i, c);
        }
        y[c] = gate[c] * sum;
    }
}

static void keep_item(void *arg, size_t i, int thread)
{
    (void)thread;
    const struct conv_job *j = arg;
    const size_t n = j->l->conv.n, n_kept = j->l->conv.n_taps - 1;
    const struct cpu_part *p = &j->e->parts[i];
    const float *before = cpu_state_before(j->e, p, j->state);
    float *to;
    size_t end;
    for (size_t s = 0; (to = cpu_state_after(j->e, p, j->state, s, &end)) != NULL; s++)
        for (size_t k = 0; k < n_kept; k++)
            for (size_t c = 0; c < n; c++)
                to[k * n + c] =
                    product_of(j, p, before, (ptrdiff_t)(end + k) - (ptrdiff_t)n_kept, c);
}

bool cpu_convolve(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct cpu_act out = cpu_as_wide_as(&e->attn_out, l->conv.n, n);
    struct conv_job j = {.e = e, .l = l, .state = cpu_state_of(e, il), .out = &out};
    const struct cpu_matmul in = {&l->w[CONV_IN], &e->normed, NULL, e->conv_in,
                                  3 * l->conv.n,  n,          false};
    return cpu_multiply(e, &in, 1) && cpu_each_token(e, n, convolve_item, &j) &&
           pool_run(e->pool, e->n_parts, keep_item, &j, e->cancel) &&
           cpu_mark(e, "convolve", l->w[CONV].name) &&
           cpu_add_product(e, il, ATTN_OUTPUT, NULL, ATTN_POST_NORM, &out, n);
}

// ---- channels, each by itself

struct mix_job {
    struct cpu_engine *e;
    const struct cpu_mixing *m;
};

// The inputs of token i of a part, of which the n_taps - 1 before the first are in its state; NULL:
// zeros.
static const float *inputs(const struct mix_job *j, const struct cpu_part *p, ptrdiff_t i)
{
    const struct cpu_mixing *m = j->m;
    const float *before = cpu_state_before(j->e, p, m->state);
    if (i >= 0)
        return m->in + (p->first + (size_t)i) * m->stride;
    return before ? before + (size_t)(i + (ptrdiff_t)m->n_taps - 1) * m->n : NULL;
}

static void mix_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct mix_job *j = arg;
    const struct cpu_mixing *m = j->m;
    const struct cpu_part *p = cpu_part_of(j->e, t);
    float *y = m->out + t * m->n;
    for (size_t c = 0; c < m->n; c++)
        y[c] = m->bias ? m->bias[c] : 0;
    for (size_t tap = 0; tap < m->n_taps; tap++) {
        const float *x = inputs(j, p, (ptrdiff_t)(t - p->first + tap) - (ptrdiff_t)m->n_taps + 1);
        for (size_t c = 0; x && c < m->n; c++)
            y[c] += m->w[c * m->n_taps + tap] * x[c];
    }
    j->e->kernels->activate(ACT_SILU, NULL, y, NULL, m->n);
}

// The last inputs of a part, and of where it has states before.
static void keep_inputs_item(void *arg, size_t i, int thread)
{
    (void)thread;
    const struct mix_job *j = arg;
    const struct cpu_part *p = &j->e->parts[i];
    const size_t n = j->m->n, n_kept = j->m->n_taps - 1;
    float *to;
    size_t end;
    for (size_t s = 0; (to = cpu_state_after(j->e, p, j->m->state, s, &end)) != NULL; s++)
        for (size_t k = 0; k < n_kept; k++) {
            const float *x = inputs(j, p, (ptrdiff_t)(end + k) - (ptrdiff_t)n_kept);
            if (x)
                memcpy(to + k * n, x, n * sizeof *to);
            else
                memset(to + k * n, 0, n * sizeof *to);
        }
}

bool cpu_mix(struct cpu_engine *e, const struct cpu_mixing *m, size_t n)
{
    struct mix_job j = {e, m};
    return cpu_each_token(e, n, mix_item, &j) &&
           pool_run(e->pool, e->n_parts, keep_inputs_item, &j, e->cancel);
}
