// Drafts for an answer under way, and whether they pay. The text does not depend on any of it: an
// engine keeps of drafts what it would have sampled. So a clock may decide.
#ifndef HOKKU_ENGINE_SPECULATE_H
#define HOKKU_ENGINE_SPECULATE_H

#include "engine/engine.h"
#include "engine/ngram.h"

enum spec { SPEC_AUTO, SPEC_OFF, SPEC_NGRAM };

// How often guesses came true, and what it costs to check them. Whether they come true is also seen
// without checking: the first guess is compared with what a step without drafts samples.
struct spec_guard {
    double step_s;  // of a step without drafts; 0: not measured
    double draft_s; // a draft adds to a step; measured: it was
    bool measured;
    double tried[NGRAM_LENGTHS], right[NGRAM_LENGTHS]; // guesses, recent ones count more
    size_t n_drafted;                                  // steps with drafts since the last without
    size_t wait; // steps that drafts do not pay until their cost is measured again
    size_t n_waited;
};

struct speculation {
    struct ngram ngram;
    struct spec_guard guard;
    bool always;   // draft whatever it costs
    size_t length; // of the run that the guesses follow (see ngram_guess)
    size_t n_guesses;
    int32_t guesses[ENGINE_MAX_DRAFTS]; // of what the step under way samples
};

bool speculation_init(struct speculation *s, size_t n_ctx, struct error *err); // ERR_MEMORY
void speculation_release(struct speculation *s);                               // zeroed is fine
// The text is another one than before, by more than tokens at its end. What was measured stays.
void speculation_forget(struct speculation *s);
// How many drafts the step after ids (n) is to check, up to most: they are in s->guesses.
size_t speculation_next(struct speculation *s, const int32_t *ids, size_t n, size_t most);
// A step that checked so many took so long, and gave n tokens (at least one).
void speculation_step(struct speculation *s, size_t n_drafts, const struct decoded *d, size_t n,
                      double seconds);

#endif
