// Whether it pays to have guesses made that cost something, by a draft model or a prediction layer,
// for several answers beside each other: for which, and how many. A round makes one more for each
// of them, in one pass where the device takes several. What it is to check them is struct
// spec_cost's to say. Times are seconds; the text depends on none of it.
#ifndef HOKKU_ENGINE_SPEC_MAKING_H
#define HOKKU_ENGINE_SPEC_MAKING_H

#include "base/error.h"
#include "engine/spec_guard.h"

struct spec_making {
    size_t n_parallel;
    double share;        // of a step, that a round is thought to take
    double *round_s;     // owned (1 + n_parallel): of so many answers; 0: not measured
    double read_s;       // a token of a prompt is read in so long; 0: nothing is known of it
    bool read_known;     // measured
    double tried, right; // guesses for any answer, recent ones count more
    double total_s;      // all steps
    double credit;       // seconds that may be lost
    double wanted;       // credit that the next try needs
};

// An answer that guesses can be made for.
struct spec_wish {
    size_t of;     // whose
    size_t behind; // tokens of its text that are not read yet
    size_t most;   // guesses
    bool is_new;   // nothing is known of what is guessed for it
    double chance; // else: that one comes true, if those before it do
    // To do now:
    size_t n_read; // of those that are behind; the others are read with the first guess
    size_t n_make;
};

// share: see there. Errors: ERR_MEMORY.
bool spec_making_init(struct spec_making *m, size_t n_parallel, double share, struct error *err);
void spec_making_release(struct spec_making *m); // zeroed is fine

// What to read and to make for each of n answers, of the width that a step has, whose costs are c:
// `most` guesses of all at most, most_read tokens of each. It puts them in an order of its own.
// reads: the step has prompts, too; then only what pays by what is known. Returns whether any are
// made as a try: to be checked whatever it costs.
bool spec_making_choose(struct spec_making *m, const struct spec_cost *c, struct spec_wish *w,
                        size_t n, size_t width, size_t most, size_t most_read, bool reads);

// The chance of a guess, as the last ones had it; 0: too few are known.
double spec_making_chance(const struct spec_making *m);

// What was measured: rounds for n answers; so many tokens read of texts that were behind; so many
// of prompts by the model that is guessed for (alone: nothing else was done); a guess that came
// true or did not.
void spec_making_made(struct spec_making *m, size_t n, size_t n_rounds, double step_s,
                      double seconds);
void spec_making_read(struct spec_making *m, size_t n_tokens, double step_s, double seconds);
void spec_making_prompt(struct spec_making *m, size_t n_tokens, bool alone, double seconds);
void spec_making_count(struct spec_making *m, bool right);
// A step of width answers gave n tokens. made: with guesses, in so long, but for what was read.
void spec_making_step(struct spec_making *m, const struct spec_cost *c, size_t width, size_t n,
                      bool made, double seconds);

#endif
