// Recurrent states of sequences, for models that have any. A state is what all recurrent layers
// keep of the tokens before a position: it has a slot of the engine's pool, is written once, and
// then shared. The newest is what the next evaluation goes on from; those that are marked are what
// the sequence can go back to, since no state can be cut as keys and values can. When slots run out
// marked ones are copied to host memory, as far as that may be used; only then marks are given up.
// As bytes: engine/engine.h.
#ifndef HOKKU_ENGINE_STATES_H
#define HOKKU_ENGINE_STATES_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of host memory that states may take where so many are free when an engine opens; and e may
// take n_bytes.
uint64_t states_host_bytes(uint64_t n_free);
void states_may_take(struct engine *e, uint64_t n_bytes);

// Room for the marks of s, which has n_max and none yet. False: out of memory.
bool states_reserve(struct seq *s);
// s has n slots for the next evaluations to write, one each, and its newest state lies in one;
// marks of any sequence give way. Errors: ERR_CONTEXT: there are not as many; the device's.
bool states_take(struct seq *s, size_t n, struct error *err);
// Where n more tokens of s are evaluated at once, the states that are to be written: after each
// STATES_EVERY of them, where a mark is due, and after all. given: s is about to be given them.
size_t states_wanted(const struct seq *s, size_t n, bool given);
// Of n slots s gets as many as can be had beside those that it has, and no mark goes for one that
// is missed more than another within a piece would be: so many it has.
size_t states_take_more(struct seq *s, size_t n);
// What a backend writes of those: it has fewer slots where only the last is needed. The i-th, to
// s->next_states[i], is the state after states_end of the n tokens.
static inline size_t states_written(const struct seq *s, size_t n)
{
    const size_t most = (n - 1) / STATES_EVERY + 1;
    return s->n_next < most ? s->n_next : most;
}
static inline size_t states_end(const struct seq *s, size_t n, size_t i)
{
    return i + 1 < states_written(s, n) ? (i + 1) * STATES_EVERY : n;
}
// n more tokens of s are evaluated: what was written first is the newest state. Or at once, with
// all slots that it had: what was written last is, and those before are marked.
void states_advance(struct seq *s, size_t n);
void states_advance_all(struct seq *s, size_t n);
// s gives its slots for the next evaluations back.
void states_give(struct seq *s);
// The newest state is kept: in any case; where the last that is lies far behind; or will, when n
// more tokens are evaluated at once.
void states_mark(struct seq *s);
void states_mark_due(struct seq *s);
void states_mark_before(struct seq *s, size_t n);
// The newest state, which lies in a slot (states_take), and which whoever holds it can go back to
// with n tokens, or let go of. Nobody else can take it away, as marks are.
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
