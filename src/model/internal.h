// Private to model/: the table of architectures, and the pieces of loading.
#ifndef HOKKU_MODEL_INTERNAL_H
#define HOKKU_MODEL_INTERNAL_H

#include "model/model.h"

// Whether a file of this architecture has a tensor.
enum presence {
    ABSENT,   // an error when it is there: hokku would compute the wrong thing
    OPTIONAL, // used when it is there
    REQUIRED,
};

struct arch {
    const char *name; // general.architecture, and the prefix of its metadata keys
    enum rope_layout rope_layout;
    enum presence qkv_bias, out_bias; // of attn_q, attn_k, attn_v; of attn_output
    enum presence qk_norm;
};

// The row of m's architecture, or NULL and ERR_MODEL naming those that work.
const struct arch *arch_find(const struct gguf *g, struct error *err);

// Fills m->hp (all but n_vocab), m->ropes (all but factors) and the facts of m->layers from the
// metadata. Every value is in range afterwards.
bool facts_read(struct model *m, const struct arch *a, struct error *err);

// Finds, checks and binds every tensor to its place; sets hp.n_vocab, tied, n_params, weight_bytes.
// A tensor left over is an error.
bool model_bind(struct model *m, const struct arch *a, struct error *err);

#endif
