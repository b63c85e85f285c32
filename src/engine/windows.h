// Near layers, which see no further back than a window. Of their keys and values an engine keeps
// the windows of its sequences, and what room is left behind them, in blocks of a second pool;
// seq.near says where. What is behind the window of every token to come gives way to new tokens,
// and a sequence that goes back to where a window is not whole any more goes back further, to where
// one is. A model with recurrent states has no near layers: its states say where it goes back to.
#ifndef HOKKU_ENGINE_WINDOWS_H
#define HOKKU_ENGINE_WINDOWS_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether layer i is near: it, and all that attend with its keys and values, have windows.
bool windows_layer(const struct model *m, uint32_t i);
// The longest window of the near layers; 0: there are none.
uint32_t windows_reach(const struct model *m);
// The sequences whose windows an engine for n_seqs (engine_params) has room for: beside each of
// several there is one to go on from.
uint32_t windows_seqs(uint32_t n_seqs);
// The blocks that near layers have in an engine: all n_ctx positions, or fewer.
uint32_t windows_blocks(const struct model *m, uint32_t n_ctx, uint32_t n_batch, uint32_t n_seqs,
                        uint32_t kv_block);

// The same as a plan for n_ctx says it.
void windows_plan(const struct model *m, uint32_t n_batch, uint32_t n_seqs, uint32_t kv_block,
                  struct engine_plan *plan);

// Of sequences of an engine whose near layers have fewer (engine_core.reach > 0).

// A block; what no token to come sees, of any sequence, gives way. False: there is none.
bool windows_block(struct engine_core *c, uint32_t *block);
// s has near blocks for positions [begin, end), for which it has others. False: as windows_block.
bool windows_take(struct seq *s, size_t begin, size_t end);
// The last position, n at most, before which the window of the token there is whole.
size_t windows_back(const struct seq *s, size_t n);
// Gives back the near block i, if s has it.
void windows_give(struct seq *s, size_t i);
// f, with blocks of its own table for all that it has evaluated, shares those that s has.
void windows_fork(struct seq *f, const struct seq *s);
// Tokens are given to s next: if the last was sampled, a turn begins. Its window is kept as long as
// there is room beside the windows of what comes next.
void windows_turn(struct seq *s);

#ifdef __cplusplus
}
#endif
#endif
