// Streams beside the residual one, and what is added beside attention (struct layer in
// model/model.h): launchers, and what they do in a forward pass.
#ifndef HOKKU_CUDA_ALTUP_H
#define HOKKU_CUDA_ALTUP_H

#include "engine_impl.h"

// Of n rows: x is stream 0, stream i > 0 begins at side + (i - 1) * stride.
struct altup {
    float *x;         // (n, n_embd)
    float *side;      // (n_side, ..., n_embd)
    float *predicted; // (n, n_embd) what was predicted of x
    size_t stride;
    uint32_t n_side, n_embd;
    float eps;
    const uint32_t *skip;
};

// What coefficients are made of: altup_router_norm (n_embd), altup_router (1 + n_side, n_embd), and
// altup_predict or altup_correct.
struct altup_weights {
    const float *norm, *router, *coef;
};

// Streams become what is predicted of them; normed (n, n_embd) = x normed with weights norm then,
// norm NULL: nothing.
bool altup_predict_launch(const struct queue *q, const struct altup *a,
                          const struct altup_weights *w, const float *norm, float *normed,
                          uint32_t n, struct error *err);
// And that corrected by what became of x; scaled (n, n_embd; NULL: not wanted) = scale * x then.
bool altup_correct_launch(const struct queue *q, const struct altup *a,
                          const struct altup_weights *w, const float *scale, float *scaled,
                          uint32_t n, struct error *err);
// Each stream but x += y (n, n_embd) normed with weights norm.
bool altup_add_launch(const struct queue *q, const struct altup *a, const float *y,
                      const float *norm, uint32_t n, struct error *err);
// Stream i = y (n, n_embd), its rows as long as those of x.
bool altup_set_launch(const struct queue *q, const struct altup *a, uint32_t i, const float *y,
                      uint32_t n, struct error *err);
// x = the mean of all streams
bool altup_mean_launch(const struct queue *q, const struct altup *a, uint32_t n, struct error *err);

// x = (x + n1 + y normed with weights norm) / sqrt(2), all (n, n_embd)
bool laurel_add_launch(const struct queue *q, const struct altup *a, const float *n1,
                       const float *y, const float *norm, uint32_t n, struct error *err);

// gate (n, n_ff) = act(max(gate - mean - times deviations, 0)) * up, mean and deviation those of
// its row; up NULL: nothing.
bool gate_cut_launch(const struct queue *q, enum activation act, const struct xielu *p, float times,
                     float *gate, const float *up, uint32_t n, uint32_t n_ff, struct error *err);

// ---- forward_altup.cu: each does nothing in a model that has none of it; n = 0: the one row of a
// step

// The streams begin, of the embedding, and end.
bool cuda_altup_begin(struct cuda_engine *e, uint32_t n, struct error *err);
bool cuda_altup_end(struct cuda_engine *e, uint32_t n, struct error *err);
// Before all else in a layer.
bool cuda_altup_predict(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err);
// Whether it leaves in s.normed what the mixer reads.
static inline bool cuda_altup_norms(const struct cuda_engine *e, const struct layer *l)
{
    return e->hp.n_side > 0 && input_is_kept(l) && !norm_is_apart(&e->hp, &l->w[ATTN_NORM_BIAS]);
}
// Behind all but what the layer is told of the token: then s.normed is what token_gate is given.
bool cuda_altup_correct(struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        struct error *err);
// Each stream but x += norm(matrix in)
bool cuda_altup_add(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight matrix,
                    enum layer_weight norm, const float *in, uint32_t n, struct error *err);
// Behind attention, whose normed input n1 was.
bool cuda_laurel(struct cuda_engine *e, const struct gpu_layer *l, struct input n1, uint32_t n,
                 struct error *err);

#endif
