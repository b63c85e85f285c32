// The weights that a layer has, by what its architecture and its facts are: presence, name and
// shape of each. Of a file it knows nothing: bind.c looks there for what is said here.
#ifndef HOKKU_MODEL_LAYER_WEIGHTS_H
#define HOKKU_MODEL_LAYER_WEIGHTS_H

#include "model/internal.h"

enum { TENSOR_NAME_MAX = 64 }; // of those that are asked for, with the NUL

// A weight (enum layer_weight) as files have it.
struct weight_form {
    const char *name, *group; // see struct weight
    const char *fused;        // the tensor that may have it, among others; NULL: none
    bool vector, stacked;     // stacked: of each expert one such matrix, or vector
    uint64_t rows, n_cols;    // of a vector, too: one for each head, channel, expert; else 1 row
};

// Where it is in its fused tensor, in rows, or of a vector in numbers.
struct fused_rows {
    const char *first; // the name of the weight whose rows are the first ones
    uint64_t before, n, all;
};

// All need the facts of the layer, and qk_norm.
struct weight_form layer_weight_form(const struct arch *a, const struct hparams *hp,
                                     const struct layer *l, int w);
// Of one with a fused tensor.
struct fused_rows layer_weight_fused(const struct hparams *hp, const struct layer *l, int w);
// As the architecture says, of the parts that the layer has.
enum presence layer_weight_presence(const struct arch *a, const struct hparams *hp,
                                    const struct layer *l, int w);

// "attn_q", "attn_q.bias" -> "blk.LAYER.attn_q.weight", "blk.LAYER.attn_q.bias", in out
const char *layer_tensor_name(char out[static TENSOR_NAME_MAX], uint32_t layer, const char *name);
// What some files call the tensor of ROUTER_CHOICE_BIAS: without ".bias".
const char *choice_bias_short(char out[static TENSOR_NAME_MAX], uint32_t layer);

#endif
