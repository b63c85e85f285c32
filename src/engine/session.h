// One conversation's sequence on one engine. sync() makes it a given full prefix and evaluates only
// what is new, so that editing, undoing and retrying cost only the changed suffix. generate()
// decodes on from there. The generated ids are the truth and are never re-tokenised.
#ifndef HOKKU_ENGINE_SESSION_H
#define HOKKU_ENGINE_SESSION_H

#include "base/buf.h"
#include "engine/constrain.h"
#include "engine/engine.h"
#include "engine/speculate.h"
#include "text/tokenizer.h"

struct session_stats {  // of the last sync and generate
    size_t n_prompt;    // tokens of the prefix
    size_t n_reused;    // of them already in the KV cache
    size_t n_evaluated; // of them evaluated by this sync
    size_t n_again;     // of these evaluated before, too, and given up since (see seq_trim)
    size_t n_generated;
    size_t n_steps; // of generate: fewer than tokens where drafts came true
    size_t n_drafted, n_accepted;
    double prefill_s, decode_s, first_token_s; // seconds; first_token_s from the start of sync
    size_t n_dropped;                          // by --overflow drop|shift
};

struct session {
    struct engine *engine; // borrowed
    struct seq *seq;       // owned: every token up to now; all but possibly the last are evaluated
    bool restored;         // it has what a file had, from which no token has come yet
    struct session_stats stats;
    struct engine *draft;            // borrowed: of a draft model with the vocabulary; NULL: none
    struct engine *predictor;        // borrowed: of the model's prediction layer; NULL: none
    struct speculation *speculation; // owned; NULL: none
    // Called at the start of a sync and after every chunk (tokens of this sync), and on the way as
    // far as the engine tells; may be NULL.
    void (*progress)(void *user, size_t done, size_t total);
    void *progress_user;
};

bool session_init(struct session *s, struct engine *engine, struct error *err); // as seq_open
void session_release(struct session *s); // not the engine; zeroed is fine

// Whose engine guesses under a setting, of those that there are: *from, NULL for texts, and *spec
// becomes what AUTO stands for. Errors: ERR_USAGE: SPEC_DRAFT without a draft model, SPEC_MTP
// without a prediction layer.
bool session_guesser(const struct session *s, enum spec *spec, struct engine **from,
                     struct error *err);
// Where drafts of answers come from, from the next one on. No text depends on it. Errors:
// ERR_MEMORY; those of session_guesser.
bool session_speculate(struct session *s, enum spec spec, struct error *err);

// Makes the sequence equal prefix[0..n) (n > 0), all evaluated, with fresh logits for its last
// token. Errors: ERR_CONTEXT (both lengths; nothing changed), ERR_INTERRUPTED (the sequence is the
// part evaluated so far), those of engine_submit.
bool session_sync(struct session *s, const int32_t *prefix, size_t n, const struct cancel *cancel,
                  struct error *err);

enum overflow { OVERFLOW_ERROR, OVERFLOW_DROP, OVERFLOW_SHIFT };

// OVERFLOW_SHIFT's one rule: drops the older half of what follows the first n_keep tokens, as often
// as it takes to leave room for a token. Returns how many are dropped; 0: there is room, or nothing
// to drop.
size_t overflow_shift(struct ids *v, size_t n_ctx, size_t n_keep);

enum finish {
    FINISH_STOP,        // an end token of the model
    FINISH_STOP_TEXT,   // a stop text
    FINISH_LENGTH,      // n_predict
    FINISH_CONTEXT,     // the context is full
    FINISH_INTERRUPTED, // the cancel flag
};
const char *finish_name(enum finish f); // "stop", "stop_text", "length", "context", "interrupted"

struct generate_params {
    const struct sampler_settings *sampler;
    const struct tokenizer *tok;
    int64_t n_predict; // < 0: no limit
    bool ignore_eos;
    bool special;     // control tokens appear in the text
    bool strip_space; // SentencePiece: the text begins here (see struct detok)
    const char *const
        *stop; // stop texts: the answer ends before the first that appears, also across tokens
    size_t n_stop;
    uint32_t n_probs;
    struct constraint *constraint; // begun; NULL: the answer may be anything
    enum overflow
        overflow;  // SHIFT: when the context is full, drop the older half after n_keep and go on
    size_t n_keep; // SHIFT: tokens at the start that stay
    size_t n_ctx;  // as if the context were so long; 0, or more than the engine's: as long as that
    const struct cancel *cancel;
    // Text as soon as it is certain (whole UTF-8 sequences, not a possible beginning of a stop
    // text). Returning false ends the generation with ERR_FAIL unless err was set. May be NULL.
    bool (*on_text)(void *user, const char *text, size_t n, struct error *err);
    // Up to where no stop text counts in text[0..n), of which text[0..known) was there before.
    // *sure: behind that they do; else it is not known yet (at_end: nothing more comes). NULL: they
    // count everywhere.
    bool (*stops_from)(void *user, const char *text, size_t known, size_t n, bool at_end,
                       size_t *from, bool *sure, struct error *err);
    // Every accepted token, before its text; may be NULL.
    void (*on_token)(void *user, const struct decoded *d);
    void *user;
};

struct generated {
    struct ids ids;  // the answer's tokens, the end token included when there was one
    struct buf text; // the answer's exact text
    enum finish finish;
    bool off_grammar; // where it failed with ERR_FAIL: the grammar could not be followed further
};
void generated_release(struct generated *g);

// Decodes from a fresh sync. On return the sequence holds the prompt and g->ids (after a stop text:
// up to the token that completed it). Partial results are in *g also when it fails or is
// interrupted. Errors: ERR_CONTEXT (OVERFLOW_ERROR and the context was full before n_predict: only
// when not a single token fits; otherwise FINISH_CONTEXT), ERR_FAIL.
bool generate(struct session *s, const struct generate_params *p, struct generated *g,
              struct error *err);

#endif
