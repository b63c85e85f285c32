// The schemas that answers are held to: what is prepared for one is kept for the next requests that
// ask for the same.
#ifndef HOKKU_SERVE_SHAPES_H
#define HOKKU_SERVE_SHAPES_H

#include "engine/constrain.h"

struct shapes {
    struct prepared *first;      // owned, the latest used first
    struct grammar_vocab *vocab; // owned, of them all; NULL until one is prepared
};

// A constraint for one answer, to be given back. t and n_vocab are always the same. Errors:
// ERR_USAGE: not a schema, or one that cannot be obeyed; ERR_MEMORY; ERR_INTERRUPTED (cancel).
struct constraint *shapes_take(struct shapes *s, const char *schema, const struct tokenizer *t,
                               uint32_t n_vocab, const struct cancel *cancel, struct error *err);
void shapes_give(struct shapes *s, struct constraint *c); // NULL is fine
void shapes_release(struct shapes *s);                    // all are given back

#endif
