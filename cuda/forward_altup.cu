// Streams beside the residual one, and what is added beside attention, as launches (altup.h).
#include "altup.h"

// n = 0, here and below: the one row of a step.
static struct altup streams(const struct cuda_engine *e, uint32_t n)
{
    struct altup a = {};
    a.x = e->s.x;
    a.side = e->s.side;
    a.predicted = e->s.predicted;
    a.stride = (size_t)e->base.n_batch * e->hp.n_embd;
    a.n_side = e->hp.n_side;
    a.n_embd = e->hp.n_embd;
    a.eps = e->hp.norm_eps;
    a.skip = n ? NULL : &e->s.step->done;
    return a;
}

// Matrix i of a stack that lies as cuda_layout_stack says.
static struct wmat stacked(const struct weight *facts, const struct wmat *stack, uint32_t i)
{
    const struct quant_planes *p = cuda_quant_planes(stack->type);
    const uint64_t units = (uint64_t)i * stack->n_tile * TILE_ROWS * stack->n_chunk;
    struct wmat w = *stack;
    w.q += units * p->q;
    w.h += w.h ? units * p->h : 0;
    w.s += w.s ? units * p->s : 0;
    w.d += w.d ? units / p->d_chunks * p->d : 0;
    w.scales = NULL;
    if (facts->scale_each)
        w.scale = facts->scale[i];
    return w;
}

// Each stream but x becomes a matrix times itself, or times x, and as long as x.
static bool project(const struct cuda_engine *e, const struct weight *facts,
                    const struct wmat *stack, bool itself, uint32_t n, struct error *err)
{
    const struct altup a = streams(e, n);
    bool ok = true;
    for (uint32_t i = 1; ok && i <= a.n_side; i++) {
        const struct wmat w = stacked(facts, stack, i - 1);
        const float *in = itself ? a.side + (i - 1) * a.stride : a.x;
        ok = cuda_multiply(e, facts->name, &w, NULL, {in, NULL, NULL}, n, e->s.up, err) &&
             altup_set_launch(cuda_queue(e, facts->name), &a, i, e->s.up, rows_of_step(n), err);
    }
    return ok;
}

bool cuda_altup_begin(struct cuda_engine *e, uint32_t n, struct error *err)
{
    return e->hp.n_side == 0 ||
           project(e, &e->base.model->altup_proj, &e->altup_proj, false, n, err);
}

bool cuda_altup_end(struct cuda_engine *e, uint32_t n, struct error *err)
{
    const struct weight *facts = &e->base.model->altup_unembd_proj;
    const struct altup a = streams(e, n);
    return a.n_side == 0 ||
           (project(e, facts, &e->altup_unembd_proj, true, n, err) &&
            altup_mean_launch(cuda_queue(e, facts->name), &a, rows_of_step(n), err));
}

static struct altup_weights weights(const struct gpu_layer *l, enum layer_weight coef)
{
    return {l->v[ALTUP_ROUTER_NORM], l->v[ALTUP_ROUTER], l->v[coef]};
}

bool cuda_altup_predict(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err)
{
    const struct altup a = streams(e, n);
    const struct altup_weights w = weights(l, ALTUP_PREDICT);
    const char *name = name_of(l, ALTUP_PREDICT);
    const float *norm = cuda_altup_norms(e, l->facts) ? l->v[ATTN_NORM] : NULL;
    return a.n_side == 0 || (altup_predict_launch(cuda_queue(e, name), &a, &w, norm, e->s.normed,
                                                  rows_of_step(n), err) &&
                             cuda_look(e, l, name, err));
}

bool cuda_altup_correct(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err)
{
    const struct altup a = streams(e, n);
    const struct altup_weights w = weights(l, ALTUP_CORRECT);
    const char *name = name_of(l, ALTUP_CORRECT);
    const float *scale = l->v[ALTUP_SCALE];
    return a.n_side == 0 ||
           (altup_correct_launch(cuda_queue(e, name), &a, &w, scale, scale ? e->s.normed : NULL,
                                 rows_of_step(n), err) &&
            cuda_look(e, l, name, err));
}

bool cuda_altup_add(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight matrix,
                    enum layer_weight norm, const float *in, uint32_t n, struct error *err)
{
    const struct altup a = streams(e, n);
    const char *name = name_of(l, matrix);
    return cuda_multiply(e, name, &l->w[matrix], NULL, {in, NULL, NULL}, n, e->s.up, err) &&
           altup_add_launch(cuda_queue(e, name), &a, e->s.up, l->v[norm], rows_of_step(n), err) &&
           cuda_look(e, l, name, err);
}

bool cuda_laurel(struct cuda_engine *e, const struct gpu_layer *l, struct input n1, uint32_t n,
                 struct error *err)
{
    const struct altup a = streams(e, n);
    const char *low = name_of(l, LAUREL_L), *high = name_of(l, LAUREL_R);
    return l->facts->n_laurel == 0 ||
           (cuda_multiply(e, low, &l->w[LAUREL_L], NULL, n1, n, e->s.gate, err) &&
            cuda_multiply(e, high, &l->w[LAUREL_R], NULL, {e->s.gate, NULL, NULL}, n, e->s.up,
                          err) &&
            laurel_add_launch(cuda_queue(e, high), &a, n1.x, e->s.up, l->v[LAUREL_POST_NORM],
                              rows_of_step(n), err) &&
            cuda_look(e, l, high, err));
}
