// Numbers that are not finite: a model whose weights are damaged, or overflow, must not answer with
// noise. Nothing on the way of a token checks for them; they arrive in the logits, where sampling
// finds them. Then the engine evaluates the token again and looks after every step.
#ifndef HOKKU_ENGINE_FINITE_H
#define HOKKU_ENGINE_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first of v (n) that is not finite; n: all are.
size_t finite_until(const float *v, size_t n);

// A forward pass that is being looked at. Zero: nothing seen yet.
struct finite_search {
    uint32_t first_layer; // of the file's, that the model's first one is
    bool found;
    char where[48]; // "blk.3.attn_output"
};

// What the residual stream x (n) holds after a step of the pass: "token_embd", or the weights of a
// layer whose product is added to it.
void finite_step(struct finite_search *s, uint32_t layer, const float *x, size_t n,
                 const char *what);

// The error of a logit of token id. s: the pass that led to it; NULL: nobody looked.
bool finite_error(const struct finite_search *s, uint32_t id, float logit, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
