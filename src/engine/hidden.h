// Hidden states of the tokens that a sequence has evaluated last, as the backend hands them out:
// what a prediction layer (model_predictor) is given. A ring, on the host.
#ifndef HOKKU_ENGINE_HIDDEN_H
#define HOKKU_ENGINE_HIDDEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct seq;
struct work;

struct hidden {
    float *rows; // owned, (most, n_embd): position p's is row p % most; NULL: none are kept
    size_t most;
    size_t begin, end; // the positions that it has
};

void hidden_release(struct hidden *h); // zeroed is fine

// The last pass has evaluated n tokens of s from s->n_past on, its rows from `row` on: keeps what
// s->hidden has room for. Errors: the backend's.
bool hidden_keep(struct seq *s, size_t row, size_t n, struct error *err);

void hidden_back(struct seq *s); // to s->n_past

// Before w is done: s->given is what w gives, of a model that predicts. Errors: ERR_FAIL: w has
// none where the model predicts, or some where it does not; tokens before are not evaluated.
bool hidden_give(const struct work *w, struct error *err);

#endif
