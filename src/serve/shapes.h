// The schemas that answers are held to: what is prepared for one is kept for the next requests that
// ask for the same.
#ifndef HOKKU_SERVE_SHAPES_H
#define HOKKU_SERVE_SHAPES_H

#include "engine/constrain.h"

struct shapes {
    const struct tokenizer *tok; // borrowed
    uint32_t n_vocab;            // of the model's logits
    struct grammar_vocab *vocab; // owned, of all schemas
    struct prepared *first;      // owned, the latest used first
};

// Makes what all schemas share, so that no request waits for it. Errors: ERR_MEMORY.
bool shapes_init(struct shapes *s, const struct tokenizer *tok, uint32_t n_vocab,
                 struct error *err);
// A constraint for one answer, to be given back. Errors: ERR_USAGE: not a schema, or one that
// cannot be obeyed; ERR_MEMORY; ERR_INTERRUPTED (cancel).
struct constraint *shapes_take(struct shapes *s, const char *schema, const struct cancel *cancel,
                               struct error *err);
void shapes_give(struct shapes *s, struct constraint *c); // NULL is fine
void shapes_release(struct shapes *s);                    // all are given back; zeroed is fine

#endif
