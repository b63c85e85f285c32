// Drafts for an answer under way, from what it is held to, from the text itself, from a draft model
// or from the model's own prediction layer. The text does not depend on any of it: an engine keeps
// of drafts what it would have sampled.
#ifndef HOKKU_ENGINE_SPECULATE_H
#define HOKKU_ENGINE_SPECULATE_H

#include "base/buf.h"
#include "engine/drafter.h"
#include "engine/ngram.h"
#include "engine/spec_making.h"

// AUTO: MTP where there is a prediction layer, else DRAFT where there is a draft model, else NGRAM.
enum spec { SPEC_AUTO, SPEC_OFF, SPEC_NGRAM, SPEC_DRAFT, SPEC_MTP };

// Whether guesses come true is also seen without checking where they cost nothing: the first guess
// is compared with what a step without drafts samples.
struct speculation {
    enum spec source; // NGRAM, DRAFT or MTP
    struct ngram ngram;
    struct drafter drafter;
    struct spec_guard guard;
    // Of an answer beside others, for all of which guesses are made together (engine/guesses.h):
    // what costs something is made there. NULL: it is one by itself.
    struct spec_making *making;
    bool always;   // draft whatever it costs: whoever asks decides
    size_t kind;   // of the guesses, as the guard counts them
    double read_s; // of the step under way: what the draft model took to catch up
    size_t n_guesses;
    int32_t guesses[ENGINE_MAX_DRAFTS]; // of what the step under way samples
};

// e: whom the guesses are for; draft: the engine of a model with its vocabulary, or of its
// prediction layer, borrowed; NULL: guesses come from the text. Errors: ERR_MEMORY.
bool speculation_init(struct speculation *s, const struct engine *e, struct engine *draft,
                      struct error *err);
// The same of an answer beside others: guesses that cost nothing come from it, and whether any pay
// is not asked. making: borrowed.
bool speculation_init_beside(struct speculation *s, const struct engine *e, struct engine *draft,
                             struct spec_making *making, struct error *err);
// What a token of the model draft is thought to take of one of m.
double speculation_share(const struct model *draft, const struct model *m);
void speculation_release(struct speculation *s); // zeroed is fine
// An answer begins, behind a prompt of which n tokens took so many seconds to evaluate. p: how it
// is sampled. What was measured stays. Errors: those of seq_sampling.
bool speculation_begin(struct speculation *s, const struct sampling *p, size_t n, double seconds,
                       struct error *err);
// The text is another one than before, by more than tokens at its end.
void speculation_forget(struct speculation *s);
// How many drafts the step after text is to check, up to most: *n_drafts, in s->guesses. forced
// (most at most, or none): what is likely because hardly anything else is allowed. Errors: those of
// the draft model's engine.
bool speculation_next(struct speculation *s, const struct seq *text, size_t most,
                      const struct ids *forced, const struct cancel *cancel, size_t *n_drafts,
                      struct error *err);
// Whether those at hand are the forced ones.
bool speculation_is_forced(const struct speculation *s);
// Guesses that were made for it (n <= ENGINE_MAX_DRAFTS), in the place of those at hand.
void speculation_made(struct speculation *s, const int32_t *guesses, size_t n);
// The message of an error of the draft model's engine says whose it is.
bool speculation_says_who(const struct speculation *s, struct error *err);
// A step that checked so many took so long, speculation_next included, and gave n tokens (at least
// one).
void speculation_step(struct speculation *s, size_t n_drafts, const struct decoded *d, size_t n,
                      double seconds);

#endif
