// Whether it pays to check guesses of what comes next, and how many: from what steps take and from
// how often guesses came true. The text depends on none of it, so a clock may decide.
#ifndef HOKKU_ENGINE_SPEC_GUARD_H
#define HOKKU_ENGINE_SPEC_GUARD_H

#include <stdbool.h>
#include <stddef.h>

// What steps of so many answers beside each other take: of one, or of several.
struct spec_cost {
    double step_s;    // of a step without drafts; 0: not measured
    double draft_s;   // a draft adds to a step, with what it takes to guess it
    bool measured;    // draft_s was; else it is
    double share;     // of a step
    size_t n_drafted; // steps with drafts since the last without
    // Of guesses that cost nothing: steps that drafts do not pay until their cost is measured again
    size_t wait;
    size_t n_waited;
};

// One of the answers of a step, and guesses of how it goes on.
struct spec_row {
    size_t n;       // guesses
    double chance;  // that one comes true, if those before it do; 0: not known
    double gain;    // tokens that one more is expected to give
    size_t n_check; // how many to check
};

// n_rows: answers that every step has.
void spec_cost_init(struct spec_cost *c, size_t n_rows);
// How many guesses to check of each of n rows, in a step of width answers, and so many of all:
// `most` at most. Where tokens of prompts are in the step (reads), nothing is tried that does not
// pay by what is known, and what it took is not told.
size_t spec_cost_check(struct spec_cost *c, struct spec_row *rows, size_t n, size_t width,
                       size_t most, bool reads);
// A step that checked so many took so long.
void spec_cost_step(struct spec_cost *c, size_t n_drafts, double seconds);
// What a draft adds to a step, as far as is known.
double spec_cost_draft_s(const struct spec_cost *c);
// Whether the next step is to be one without drafts, so that what they cost is known.
bool spec_cost_wants_plain(const struct spec_cost *c, bool reads);
// What something costs, seen once more.
double spec_blend(double known, double seen, double room);

// Of one answer. Guesses have kinds, each with a chance of its own; the last is that of those which
// a model makes.
enum { SPEC_KINDS = 5, SPEC_MADE = SPEC_KINDS - 1 };

struct spec_guard {
    struct spec_cost cost;
    double tried[SPEC_KINDS], right[SPEC_KINDS]; // guesses, recent ones count more
    // Of guesses that cost something:
    double share;    // of a step of the model that is guessed for, which a guess is thought to take
    double read_s;   // the draft model reads a token in so long; 0: nothing is known of it
    bool read_known; // measured
    double credit;   // seconds that may be lost
    double wanted;   // credit that the next try needs
};

// share: see there; 0: guesses cost nothing.
void spec_guard_init(struct spec_guard *g, double share);
// The chance of a guess of that kind, as the last ones had it; 0: too few are known.
bool spec_guard_knows(const struct spec_guard *g, size_t kind);
double spec_guard_chance(const struct spec_guard *g, size_t kind);

// How many of n guesses to check that are there already; they are of that kind.
size_t spec_guard_check(struct spec_guard *g, size_t kind, size_t n);
// How many guesses to make, up to most, that cost something, by a draft model that is behind by
// n_behind tokens. *n_read: so many of these it reads first, which is measured by itself.
size_t spec_guard_make(struct spec_guard *g, size_t n_behind, size_t most, size_t *n_read);

// What was measured: a guess came true or did not; a step that checked so many took so long and
// gave n tokens; the prompt's n tokens were evaluated; the draft model has read n tokens.
void spec_guard_count(struct spec_guard *g, size_t kind, bool right);
void spec_guard_step(struct spec_guard *g, size_t n_drafts, size_t n, double seconds);
void spec_guard_prompt(struct spec_guard *g, size_t n, double seconds);
void spec_guard_read(struct spec_guard *g, size_t n, double seconds);

#endif
