// Guesses of how the answers of a schedule go on: each brings those of the best source that it has,
// what its form leaves no choice about, what a draft model or the prediction layer makes, its own
// text; and of all a pass checks those that pay. No answer depends on any.
//
// For what costs something there is a drafter for each answer, which follows its text, on one
// engine whose memory they share: who finds no room there, is not read yet, or would not pay, goes
// on with its text. None takes another's.
#ifndef HOKKU_ENGINE_GUESSES_H
#define HOKKU_ENGINE_GUESSES_H

#include "engine/engine.h"
#include "engine/spec_making.h"

struct task; // engine/schedule.h

struct guesses {                   // zeroed: none are made
    struct engine *engine, *draft; // borrowed; draft NULL: there is none
    size_t n_parallel;
    struct spec_cost *costs; // owned (1 + n_parallel), of passes by their answers; NULL: no guesses
    struct spec_row *rows;   // owned (n_parallel)
    struct spec_making making;
    struct spec_wish *wishes; // owned (n_parallel)
    size_t n_drafters, most_drafters;
    bool always; // make and check all, whatever it costs
    // Of the step under way:
    bool made, tries;
    double began, read_s, made_s; // one after the other
};

// Of n_parallel answers on e at most. draft: the engine of a model with e's vocabulary, or of its
// prediction layer; NULL: guesses come from texts. Where e takes none there are none. Errors:
// ERR_MEMORY.
bool guesses_init(struct guesses *g, struct engine *e, struct engine *draft, size_t n_parallel,
                  struct error *err);
void guesses_release(struct guesses *g);

// A task has a sequence, for the first time or anew; before generation_sampling. Errors:
// ERR_MEMORY.
bool guesses_enter(struct guesses *g, struct task *t, struct error *err);
void guesses_pause(struct task *t); // and none for now
void guesses_leave(struct guesses *g, struct task *t);

// Finds those of t, which may go on by n_left tokens, that cost nothing. Errors: as
// generation_guess.
bool guesses_find(struct guesses *g, struct task *t, size_t n_left, const struct cancel *cancel,
                  struct error *err);
// Has them made for those of n tasks for whom it pays, in a step that began at that time. Where
// that fails for one, its error is set. Errors: ERR_INTERRUPTED.
bool guesses_make(struct guesses *g, struct task **tasks, size_t n, double began,
                  const struct cancel *cancel, struct error *err);
// The n works of the next pass, those of tasks, bring what pays. Returns how many.
size_t guesses_bring(struct guesses *g, struct work *works, struct task **tasks, size_t n);
// The step has decoded width rows with n_drafts drafts, which gave n tokens, has read n_read tokens
// of prompts beside them, and took so long.
void guesses_step(struct guesses *g, size_t width, size_t n_drafts, size_t n, size_t n_read,
                  double seconds);

#endif
