// Recurrent states of sequences, for models that have any. A state is what all recurrent layers
// keep of the tokens before a position: it has a slot of the engine's pool, is written once, and
// then shared. The newest is what the next evaluation goes on from; those that are marked are what
// the sequence can go back to, since no state can be cut as keys and values can. As bytes:
// engine/engine.h.
#ifndef HOKKU_ENGINE_STATES_H
#define HOKKU_ENGINE_STATES_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// s has n slots for the next evaluations to write, one each; marks of any sequence give way. False:
// there are not as many.
bool states_take(struct seq *s, size_t n);
// n more tokens of s are evaluated: what was written is the newest state.
void states_advance(struct seq *s, size_t n);
// The newest state is kept: in any case, or where the last that is lies far behind.
void states_mark(struct seq *s);
void states_mark_due(struct seq *s);
// The newest state, which whoever holds it can go back to with n tokens, or let go of. Nobody else
// can take it away, as marks are.
uint32_t states_hold(struct seq *s);
void states_return(struct seq *s, size_t n, uint32_t held);
void states_let_go(struct seq *s, uint32_t held);
// Whether the state after n tokens is marked, and the marks from there on (or behind it) go.
bool states_marked(const struct seq *s, size_t n);
void states_unmark(struct seq *s, size_t n, bool behind);
// s goes back to at most n evaluated tokens: n_past is that of the last state kept.
void states_back(struct seq *s, size_t n);
// f, without states, takes over those of s up to its n_past, which may become less.
void states_fork(struct seq *f, const struct seq *s);

#ifdef __cplusplus
}
#endif
#endif
