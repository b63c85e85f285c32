// Guesses of what comes next, by a model beside the one that answers. It is a small model that
// knows the same tokens (a draft model: Leviathan, Kalman and Matias 2023), or the model's own
// prediction layer (model_predictor: DeepSeek-AI 2024, sec. 2.2). It guesses what it would sample
// itself, with the settings, the seed and the positions of whom it guesses for. Its sequence is
// made the text each time: what both have in common stays, so that it follows wherever a text goes.
// Several texts have a drafter each, on one engine.
//
// A prediction layer's sequence has the text's tokens behind the first, each with the hidden state
// that the text's sequence has kept of the token before (seq_keep_hidden). Where those are not
// known, as of a saved session, it begins behind them.
#ifndef HOKKU_ENGINE_DRAFTER_H
#define HOKKU_ENGINE_DRAFTER_H

#include "base/buf.h"
#include "engine/engine.h"

struct drafter {
    struct seq *seq;  // owned; NULL: there is none
    uint32_t n_ctx;   // it reads no more tokens: those that it was trained for
    uint32_t n_vocab; // guesses are below: both models have those tokens
    bool same_size;   // of both vocabularies
    bool predicts;    // a prediction layer
    size_t first;     // of the text's tokens, which its sequence has not
    struct ids text;  // owned, predicts: what its sequence follows from, the first ones included
    struct sampling how;
    struct sampler_settings set; // how.sampler
    // Of the answer, where it is under a mask: then guesses are, too.
    bool (*mask)(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err);
    void *mask_user;
    const int32_t *out; // (n_out) guesses so far
    size_t n_out;
    bool over; // the mask has nothing to follow them
};

// Whether draft has the tokens of m. Errors: ERR_MODEL: what it has, and was expected to.
bool drafter_fits(const struct model *draft, const struct model *m, struct error *err);

// Hidden states that each of n texts' sequences keeps for a prediction layer, m; and the bytes of
// those of all, and of its own.
size_t drafter_n_hidden(uint32_t n_ctx, size_t n);
uint64_t drafter_hidden_bytes(const struct model *m, uint32_t n_ctx, size_t n);

// e: the engine of the draft model or prediction layer, borrowed. n_vocab: of the model that is
// guessed for. Errors: as seq_open.
bool drafter_init(struct drafter *d, struct engine *e, uint32_t n_vocab, struct error *err);
void drafter_release(struct drafter *d); // zeroed is fine
void drafter_forget(struct drafter *d);  // gives back the memory of what it has read
// How it samples, from the next guess on; stop_ids stay where they are. Errors: as seq_sampling.
bool drafter_sampling(struct drafter *d, const struct sampling *p, struct error *err);

// How many tokens it has to evaluate before it can guess what follows text (not empty). SIZE_MAX:
// it cannot, the text is longer than its context, has a token that it does not know, or no hidden
// states are at hand.
size_t drafter_behind(struct drafter *d, const struct seq *text);
// Evaluates the next n of those that it has not. Call drafter_behind before. Errors: those of
// engine_submit; ERR_MEMORY.
bool drafter_read(struct drafter *d, const struct seq *text, size_t n, const struct cancel *cancel,
                  struct error *err);
// Blocks of its engine's pool that it takes to guess so many. Call drafter_behind before.
size_t drafter_needs_blocks(const struct drafter *d, const struct seq *text, size_t most);
// What may follow text: up to most (<= ENGINE_MAX_DRAFTS) tokens to out, *n_out of them. Fewer
// where its context, or the text, ends. Call drafter_behind before. Errors: as drafter_read, those
// of engine_wait.
bool drafter_guess(struct drafter *d, const struct seq *text, size_t most,
                   const struct cancel *cancel, int32_t *out, size_t *n_out, struct error *err);

// The same for several texts, whose drafters have one engine: where it takes several sequences in a
// pass, a guess for each is one.
struct draft_turn {
    struct drafter *d;
    const struct seq *text;
    size_t most;
    int32_t *out; // (most)
    size_t n_out;
    bool failed;
};
// n <= ENGINE_MAX_PASS_DRAFTS. Errors: as drafter_guess, of those that have failed; the others have
// their guesses, unless the engine itself fails or is interrupted.
bool drafters_guess(struct draft_turn *turns, size_t n, const struct cancel *cancel,
                    struct error *err);

#endif
