// Prediction layers (model_predictor): what their input is made of; and the hidden states that they
// are given, of the model that they predict for. Host code only.
#include "engine_impl.h"

bool cuda_give_hidden(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                      struct error *err)
{
    const size_t n_embd = e->hp.n_embd;
    float *to = e->prediction.hidden;
    bool ok = true;
    for (size_t i = 0; ok && to && i < n_parts; i++) {
        const struct seq *s = parts[i]->seq;
        const size_t n = parts[i]->n * n_embd;
        ok = CHECK_CUDA(cudaMemcpyAsync(to, s->given_hidden + (s->n_past - s->given_at) * n_embd,
                                        n * sizeof *to, cudaMemcpyHostToDevice, e->q.stream),
                        err);
        to += n;
    }
    return ok;
}

bool cuda_give_again(struct cuda_engine *e, struct error *err)
{
    const size_t n_embd = e->hp.n_embd;
    float *hidden = e->prediction.hidden;
    return !hidden || e->last_row == 0 ||
           CHECK_CUDA(cudaMemcpyAsync(hidden, hidden + e->last_row * n_embd,
                                      n_embd * sizeof *hidden, cudaMemcpyDeviceToDevice,
                                      e->q.stream),
                      err);
}

bool cuda_join(struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct prediction *p = &e->prediction;
    const struct model *m = e->base.model;
    const struct hparams *hp = &e->hp;
    const uint32_t n_embd = hp->n_embd, n_row = rows_of_step(n);
    const uint32_t *skip = n ? NULL : &e->s.step->done;
    return !p->joined ||
           (norm_launch(cuda_queue(e, m->join_embd_norm.name), hp->norm, e->s.x, p->embd_norm, NULL,
                        hp->norm_eps, p->joined, 2 * n_embd, n_row, n_embd, skip, err) &&
            norm_launch(cuda_queue(e, m->join_hidden_norm.name), hp->norm, p->hidden,
                        p->hidden_norm, NULL, hp->norm_eps, p->joined + n_embd, 2 * n_embd, n_row,
                        n_embd, skip, err) &&
            cuda_multiply(e, m->joint.name, &p->joint, NULL, {p->joined, NULL}, n, e->s.x, err) &&
            cuda_look(e, NULL, m->joint.name, err));
}

// n rows of x, from `row` on.
static bool copy_hidden(struct cuda_engine *e, size_t row, size_t n, float *out, struct error *err)
{
    const uint32_t n_embd = e->hp.n_embd;
    const float *x = e->s.x + row * n_embd;
    float *normed = e->s.up; // nobody else reads that any more
    if (e->hp.hidden_normed &&
        !norm_launch(cuda_queue(e, "output"), e->hp.norm, x, e->output_norm, e->output_norm_bias,
                     e->hp.norm_eps, normed, n_embd, (uint32_t)n, n_embd, NULL, err))
        return false;
    return CHECK_CUDA(cudaMemcpyAsync(out, e->hp.hidden_normed ? normed : x,
                                      n * n_embd * sizeof *out, cudaMemcpyDeviceToHost,
                                      e->q.stream),
                      err) &&
           cuda_wait(e, err);
}

bool cuda_hidden(struct engine *base, size_t row, size_t n, float *out, struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    bool ok = cuda_begin(e, err);
    for (size_t i = 0, begin = 0; ok && n > 0 && i < e->n_part_rows; i++) {
        const struct part_rows *p = &e->part_rows[i];
        const size_t end = begin + p->n, now = lesser(n, end > row ? end - row : 0);
        ok = now == 0 || copy_hidden(e, p->row + row - begin, now, out, err);
        row += now;
        n -= now;
        out += now * e->hp.n_embd;
        begin = end;
    }
    return ok;
}
