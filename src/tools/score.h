// How well a model predicts a text: the log-probability of every token (score), and the perplexity
// over windows.
#ifndef HOKKU_TOOLS_SCORE_H
#define HOKKU_TOOLS_SCORE_H

#include "base/buf.h"
#include "engine/engine.h"

// Tokenises text as the model wants it (BOS if its metadata says so, control tokens parsed) and
// appends to out
// {"tokens":[...],"positions":[{"top":[[id,logprob],...],"next":logprob},...],"nll_per_token":x};
// natural logarithms; the last position has no "next", and of one token alone x is null. top_k <=
// ENGINE_MAX_PROBS. Errors: ERR_CONTEXT when the text does not fit, ERR_USAGE for an empty text,
// those of the engine.
bool tool_score(const struct model *m, struct engine *e, const char *text, size_t n, uint32_t top_k,
                const struct cancel *cancel, struct buf *out, struct error *err);

struct perplexity {
    double ppl, ppl_error; // exp(mean nll), and its standard error
    double nll;            // mean over the scored tokens
    size_t n_scored, n_windows;
    uint32_t window;
};

// The usual rule: the text (BOS in front if the metadata says so) is cut into windows of n_window
// tokens without overlap; each window is evaluated on its own (its first token replaced by BOS if
// the model wants one) and the tokens of its second half, from n_window / 2 + 1 on, are scored.
// Tokens after the last whole window are not used. Errors: ERR_USAGE when the text has fewer than
// two windows. progress may be NULL; once it was called, its last call has done == total.
bool tool_perplexity(const struct model *m, struct engine *e, const char *text, size_t n,
                     uint32_t n_window, const struct cancel *cancel,
                     void (*progress)(void *user, size_t done, size_t total, double ppl),
                     void *user, struct perplexity *out, struct error *err);

#endif
