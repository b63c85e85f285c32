// What layers are told of a token beside the stream (struct model in model/model.h).
#include "cpu/forward.h"

#include <math.h>

#include "gguf/quant.h"

struct told_job {
    struct cpu_engine *e;
    const struct cpu_act *out;
    size_t layer;
};

static void tell_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct told_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct model *m = e->base.model;
    const struct weight *w = &m->token_layers;
    const size_t n = m->hp.n_embd_layer, block = quant_info(w->type)->block_elems;
    const uint8_t *row =
        (const uint8_t *)w->data + (size_t)cpu_token_of(e, t) * quant_row_bytes(w->type, w->n_cols);
    const float scale = 1 / sqrtf((float)m->hp.n_embd), own_scale = sqrtf((float)n);
    float *told = e->told + t * w->n_cols, own[256];
    for (size_t i = 0; i < w->n_cols; i++)
        told[i] *= scale;
    for (size_t l = 0; l < m->hp.n_layer; l++)
        e->kernels->rms_norm(told + l * n, m->token_layers_norm.data, NULL, m->hp.norm_eps, n,
                             told + l * n);
    const size_t most = 256 / block * block;
    for (size_t i = 0; i < w->n_cols; i += most) {
        const size_t some = w->n_cols - i < most ? w->n_cols - i : most;
        quant_dequantize(w->type, row + quant_row_bytes(w->type, i), own, some);
        for (size_t k = 0; k < some; k++)
            told[i + k] = (told[i + k] + own[k] * own_scale) / sqrtf(2);
    }
}

bool cpu_tell(struct cpu_engine *e, size_t n)
{
    const struct model *m = e->base.model;
    struct told_job j = {.e = e};
    const struct weight *w = &m->token_layers_proj;
    const struct cpu_matmul proj = {w, &e->normed, NULL, e->told, w->rows, n, false};
    return cpu_copy_to_normed(e, e->x, NULL, n) && cpu_multiply(e, &proj, 1) &&
           cpu_each_token(e, n, tell_item, &j) && cpu_mark(e, "embed", m->token_layers.name);
}

// out = act(out) * what the layer is told
static void activate_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct told_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct layer *l = &e->base.model->layers[j->layer];
    const struct hparams *hp = &e->base.model->hp;
    const float *told = e->told + (t * hp->n_layer + j->layer) * hp->n_embd_layer;
    e->kernels->activate(l->act, &l->xielu, j->out->f + t * j->out->n_pad, told, hp->n_embd_layer);
}

bool cpu_told(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct hparams *hp = &e->base.model->hp;
    const struct cpu_act out = cpu_as_wide_as(&e->gate, hp->n_embd_layer, n);
    struct told_job j = {.e = e, .out = &out, .layer = il};
    const struct cpu_matmul gate = {&l->w[TOKEN_GATE], &e->normed, NULL, out.f,
                                    out.n_pad,         n,          false};
    const struct cpu_matmul proj = {&l->w[TOKEN_PROJ], &out, NULL, e->branch, hp->n_embd, n, false};
    const bool told = cpu_copy_to_normed(e, e->x, layer_vector(l, ALTUP_SCALE), n) &&
                      cpu_multiply(e, &gate, 1) && cpu_each_token(e, n, activate_item, &j) &&
                      cpu_mark(e, "activate", l->w[TOKEN_GATE].group);
    if (hp->n_side > 0)
        return told && cpu_multiply(e, &proj, 1) &&
               cpu_altup_add(e, il, TOKEN_POST_NORM, proj.w->name, n);
    return told && cpu_add_product(e, il, TOKEN_PROJ, NULL, TOKEN_POST_NORM, &out, n);
}
