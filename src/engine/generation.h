// An answer under way, a token at a time: what generate() does for one conversation, and a schedule
// (schedule.h) for many, where the sampled tokens come from is theirs.
#ifndef HOKKU_ENGINE_GENERATION_H
#define HOKKU_ENGINE_GENERATION_H

#include "engine/session.h"
#include "engine/stops.h"

struct generation {
    struct session *s;               // borrowed; its sequence: the prompt, and what was accepted
    const struct generate_params *p; // borrowed
    struct generated *g;             // borrowed
    struct detok detok;
    size_t shown; // bytes of g->text already given to on_text
    size_t known; // to stops_from
    struct stops stops;
    // What is allowed behind drafts: owned, where n_ahead of them are taken. NULL: not needed so
    // far.
    struct constraint *ahead;
    size_t n_ahead;
    size_t len;   // tokens behind which the next is sampled
    bool done;    // no token may follow; g->finish says why
    bool stopped; // by a stop text
    double start; // of decoding, on the clock of clock_now
};

// Begins with an empty g. The generation must not move until it ends.
void generation_begin(struct generation *r, struct session *s, const struct generate_params *p,
                      struct generated *g);
// Gives its sequence (which may have become another one) how it samples. Errors: as seq_sampling.
bool generation_sampling(struct generation *r, struct error *err);

// Tokens that its context holds.
size_t generation_context(const struct generation *r);
// How many tokens may be sampled behind len tokens; none: r->done, or the context is full and
// generation_shift is to make room. Errors: ERR_CONTEXT: not a single one fits behind the prompt.
bool generation_room(struct generation *r, size_t len, size_t *n, struct error *err);
// The context is full under OVERFLOW_SHIFT: ids, all tokens so far, become what the sequence is to
// be, evaluated anew at its new positions (exact, unlike rotating the cache in place). Errors:
// ERR_CONTEXT.
bool generation_shift(struct generation *r, struct ids *ids, struct error *err);
// How many of the guesses of its session's speculation the next step is to check, which may give
// n_left tokens: *n_drafts, 0 where there is none. Nothing is asked for that was not waited for.
// Errors: those of speculation_next.
bool generation_guess(struct generation *r, size_t n_left, const struct cancel *cancel,
                      size_t *n_drafts, struct error *err);
// The same of guesses that were made since (speculation_made).
bool generation_made(struct generation *r, size_t *n_drafts, struct error *err);
// Takes what a step that checked n_drafts has sampled (1 + n_drafts), up to the last token of the
// answer; those behind it go. seconds: what it took to evaluate a token, guesses included; 0: it
// evaluated a prompt, or nothing. Errors: those of p's functions,
// ERR_MEMORY.
bool generation_take(struct generation *r, const struct decoded *d, size_t n_drafts, double seconds,
                     struct error *err);
// Ends: gives what was still held (an incomplete character, what might have become a stop text).
// ok: nothing has failed; the result is its, or what fails now.
bool generation_end(struct generation *r, bool ok, struct error *err);

#endif
