// Prediction layers (model_predictor): what their input is made of; and the hidden states that they
// are given, of the model that they predict for.
#include "cpu/forward.h"

#include <string.h>

// joined = (join_embd_norm(x), join_hidden_norm(the hidden state given with the token))
static void join_item(void *arg, size_t t, int thread)
{
    (void)thread;
    struct cpu_engine *e = arg;
    const struct model *m = e->base.model;
    const size_t n = m->hp.n_embd;
    const struct seq *s = cpu_part_of(e, t)->seq;
    const float *h = s->given_hidden + (cpu_position_of(e, t) - s->given_at) * n;
    float *y = e->joined.f + t * e->joined.n_pad;
    cpu_norm_row(e, e->x + t * n, m->join_embd_norm.data, NULL, n, y);
    cpu_norm_row(e, h, m->join_hidden_norm.data, NULL, n, y + n);
}

bool cpu_join(struct cpu_engine *e, size_t n)
{
    const struct model *m = e->base.model;
    const struct cpu_matmul product = {&m->joint, &e->joined, NULL, e->x, m->hp.n_embd, n, false};
    return cpu_each_token(e, n, join_item, e) && cpu_mark(e, "norm", m->join_embd_norm.name) &&
           cpu_multiply(e, &product, 1);
}

bool cpu_hidden(struct engine *base, size_t row, size_t n, float *out, struct error *err)
{
    const struct cpu_engine *e = (const struct cpu_engine *)base;
    const struct model *m = base->model;
    const size_t n_embd = m->hp.n_embd;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        const float *x = e->x + (row + i) * n_embd;
        if (m->hp.hidden_normed)
            cpu_norm_row(e, x, m->output_norm.data, m->output_norm_bias.data, n_embd,
                         out + i * n_embd);
        else
            memcpy(out + i * n_embd, x, n_embd * sizeof *out);
    }
    return true;
}
