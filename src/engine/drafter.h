// Guesses of a small model that knows the same tokens (a draft model): what it would sample next,
// with the settings, the seed and the positions of whom it guesses for. Its sequence is made the
// text each time: what both have in common stays, so that it follows wherever a text goes.
// (The idea: speculative decoding, Leviathan, Kalman and Matias 2023.)
#ifndef HOKKU_ENGINE_DRAFTER_H
#define HOKKU_ENGINE_DRAFTER_H

#include "engine/engine.h"

struct drafter {
    struct seq *seq;  // owned; NULL: there is no draft model
    uint32_t n_vocab; // guesses are below: both models have those tokens
    bool same_size;   // of both vocabularies
    // Of the answer, where it is under a mask: then guesses are, too.
    bool (*mask)(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err);
    void *mask_user;
    const int32_t *stop_ids; // (n_stop_ids) borrowed
    size_t n_stop_ids;
    const int32_t *out; // (n_out) guesses so far
    size_t n_out;
    bool over; // the mask has nothing to follow them
};

// Whether draft has the tokens of m. Errors: ERR_MODEL: what it has, and was expected to.
bool drafter_fits(const struct model *draft, const struct model *m, struct error *err);

// e: the draft model's engine, borrowed. n_vocab: of the model that is guessed for. Errors: as
// seq_open.
bool drafter_init(struct drafter *d, struct engine *e, uint32_t n_vocab, struct error *err);
void drafter_release(struct drafter *d); // zeroed is fine
// How it samples, from the next guess on; stop_ids stay where they are. Errors: as seq_sampling.
bool drafter_sampling(struct drafter *d, const struct sampling *p, struct error *err);

// How many tokens it has to evaluate before it can guess what follows ids (n > 0). SIZE_MAX: it
// cannot, the text is longer than its context or has a token that it does not know.
size_t drafter_behind(struct drafter *d, const int32_t *ids, size_t n);
// Evaluates the next of ids that it has not, up to n of them. Call drafter_behind before. Errors:
// those of engine_submit.
bool drafter_read(struct drafter *d, const int32_t *ids, size_t n, const struct cancel *cancel,
                  struct error *err);
// What may follow ids (n): up to most (<= ENGINE_MAX_DRAFTS) tokens to out, *n_out of them. Fewer
// where its context, or the text, ends. Call drafter_behind before. Errors: those of engine_submit
// and engine_wait.
bool drafter_guess(struct drafter *d, const int32_t *ids, size_t n, size_t most,
                   const struct cancel *cancel, int32_t *out, size_t *n_out, struct error *err);

#endif
