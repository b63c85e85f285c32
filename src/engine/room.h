// The memory of sequences: blocks for what they evaluate, and what they give up. Whoever finds none
// takes it from the youngest other sequence, which is paused: its tokens stay, and are evaluated
// again.
#ifndef HOKKU_ENGINE_ROOM_H
#define HOKKU_ENGINE_ROOM_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Blocks for positions [n_past, end), that s alone writes to, in so many evaluations (under way, or
// the next). Near layers have theirs by room_take_near. Errors: ERR_CONTEXT, as the next two.
bool room_take(struct seq *s, size_t end, size_t n_evaluations, struct error *err);
// The same of near layers, for a pass over positions [begin, end), which are at most a batch.
bool room_take_near(struct seq *s, size_t begin, size_t end, struct error *err);
// Slots for the states that the next n evaluations leave, and for the one that they go on from.
// Errors: ERR_CONTEXT; the device's.
bool room_take_states(struct seq *s, size_t n, struct error *err);
// The same for the next *n tokens at once. Where there are not as many slots as they lead to states
// these become fewer tokens, rather than that another sequence is paused; whole: one does then,
// behind all.
bool room_take_piece(struct seq *s, size_t *n, bool whole, struct error *err);
// Where the device can, s goes on from its state through the first n rows of its part, i, of the
// pass that was the last: what else they leave is there. Errors: as before; ERR_FAIL.
bool room_advance_state(struct seq *s, size_t i, size_t n, struct error *err);

// Gives back what is not needed for the evaluated positions; nothing is under way.
void room_give(struct seq *s);
// At most n tokens of s stay evaluated: as many as keys, values and states are kept of.
void room_go_back(struct seq *s, size_t n);
// The logits at hand are not s's any more.
void room_forget_logits(struct engine_core *c, const struct seq *s);

#ifdef __cplusplus
}
#endif
#endif
