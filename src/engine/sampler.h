// Sampling: settings, the chain of filters, and the draw. The arithmetic is defined so that every
// device makes the same choice from the same logits: weights are integers (fixed point), so that
// sums do not depend on the order of addition, candidates are ordered by (logit descending, id
// ascending), and the random number is a function of (seed, position).
#ifndef HOKKU_ENGINE_SAMPLER_H
#define HOKKU_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sampler_kind {
    SAMPLER_END = 0,
    SAMPLER_PENALTIES, // repeat, presence, frequency
    SAMPLER_DRY,
    SAMPLER_TOP_N_SIGMA,
    SAMPLER_TOP_K,
    SAMPLER_TYPICAL,
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_XTC,
    SAMPLER_TEMPERATURE,
    SAMPLER_MAX_CHAIN = 16,
};

struct logit_bias {
    int32_t id;
    float bias; // added to the logit; -INFINITY forbids the token
};

enum { SAMPLER_MAX_BIAS = 64 };

struct sampler_settings {
    uint64_t seed;
    uint64_t first;    // of a history that has not the text's first tokens: so many, for positions
    float temp;        // <= 0: argmax
    int32_t top_k;     // <= 0: all
    float top_p;       // >= 1: off
    float min_p;       // <= 0: off
    float typical;     // >= 1: off
    float top_n_sigma; // <= 0: off
    float xtc_probability;                     // <= 0: off
    float xtc_threshold;                       // > 0.5: off
    float repeat_penalty;                      // 1: off
    int32_t repeat_last_n;                     // window of the penalties; 0: off, -1: whole context
    float presence_penalty, frequency_penalty; // 0: off
    float dry_multiplier;                      // 0: off
    float dry_base;
    int32_t dry_allowed_length;
    int32_t dry_penalty_last_n; // 0: off, -1: whole context
    uint32_t n_bias;
    struct logit_bias bias[SAMPLER_MAX_BIAS];
    uint8_t chain[SAMPLER_MAX_CHAIN]; // enum sampler_kind in order, SAMPLER_END terminated
    // DRY: one byte per token id, non-zero where the token's text holds a sequence breaker ("\n",
    // ":", "\"", "*"). Borrowed, n_vocab long; NULL: no breakers.
    const uint8_t *dry_breakers;
};

extern const struct sampler_settings sampler_defaults; // those of the command line contract

// Checks what a sampler must be able to rely on: token ids inside the vocabulary, a chain that
// ends, numbers that are numbers. Every sampler begins with it; the ranges that make sense are in
// engine/settings.h. Errors: ERR_USAGE naming the setting, the value, the expectation.
bool sampler_check(const struct sampler_settings *s, uint32_t n_vocab, struct error *err);
// Logits divided by a temperature above 0 but below this would not be finite any more.
#define SAMPLER_LEAST_TEMP 1e-30f

// "penalties;dry;top_n_sigma;top_k;typical;top_p;min_p;xtc;temperature" (';' or ',' between) ->
// chain; and back.
bool sampler_parse_chain(const char *text, uint8_t chain[SAMPLER_MAX_CHAIN], struct error *err);
void sampler_format_chain(const uint8_t *chain, char *out, size_t n);

// The CPU sampler: settings and scratch for one vocabulary.
struct sampler_candidate {
    int32_t id;
    float logit;
};

// One alternative; natural-log probability of the model's own distribution (before temperature and
// filters).
struct token_prob {
    int32_t id;
    float logprob;
};

struct sampler {
    struct sampler_settings set;
    uint32_t n_vocab;
    struct sampler_candidate *cand, *copy; // owned, n_vocab each
    uint32_t *count; // owned, n_vocab: occurrences or match lengths; all zero between calls
    uint32_t *z;     // owned, DRY scratch, grows with the history
    size_t n_z;
    size_t n_cand; // survivors of the last pick, in ascending id order
    // One bit for each token, (n_vocab + 31) / 32 words: of those without one nothing is left,
    // before any filter. Borrowed; NULL: every token.
    const uint32_t *allow;
};

// Errors: those of sampler_check, ERR_MEMORY.
bool sampler_init(struct sampler *s, const struct sampler_settings *set, uint32_t n_vocab,
                  struct error *err);
void sampler_release(struct sampler *s); // NULL and zeroed are fine

// Picks the token for timeline position n_history from logits (n_vocab, not changed). history:
// every token before it. Errors: ERR_FAIL for a NaN or infinite logit (the first id that has one),
// or when nothing is left to choose; ERR_MEMORY.
bool sampler_pick(struct sampler *s, const float *logits, const int32_t *history, size_t n_history,
                  int32_t *id, struct error *err);

// The n most likely ids with their natural-log probabilities of softmax(logits), most likely first,
// ties by lower id. n <= n_vocab. Errors as sampler_pick.
bool sampler_top_logprobs(const float *logits, uint32_t n_vocab, struct token_prob *top, uint32_t n,
                          struct error *err);
// ln of softmax(logits)[id], computed in double.
double sampler_logprob(const float *logits, uint32_t n_vocab, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
