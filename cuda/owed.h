// What blocks add to the stream where it is normed before, made at once or by whoever reads the
// stream next (forward_owed.cu). n = 0: the one token of a step.
#ifndef HOKKU_CUDA_OWED_H
#define HOKKU_CUDA_OWED_H

#include "engine_impl.h"

// How y = W in, normed with weights norm, is added to rows x of the stream: behind the last matrix
// of a layer these are multiplied by the layer's scale, if it has one.
struct add_normed cuda_adding_normed(const struct cuda_engine *e, const struct gpu_layer *l,
                                     enum layer_weight w, const float *norm, float *x,
                                     const uint32_t *skip);
// Adds n rows of y so.
bool cuda_add_normed(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                     const float *y, const float *norm, float *x, uint32_t n, const uint32_t *skip,
                     struct error *err);

// The end of a block: the same of s.up and the stream, the product with ATTN_OUTPUT, FFN_DOWN or
// TOKEN_PROJ: now, or, where that can be, when the stream is read next; of n rows.
bool cuda_add_block(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    const float *norm, uint32_t n, struct error *err);
// *in reads the stream: it makes what is owed to it.
void cuda_make_owed(struct cuda_engine *e, struct input *in);
void cuda_owe_nothing(struct cuda_engine *e);

// Where the stream of one token is: s.x or, in between, s.x_away.
float *cuda_stream(const struct cuda_engine *e);

#endif
