// Picks that were asked for and not yet waited for (core->asks), in the order of asking: what the
// device has told of them, and what it has not.
#ifndef HOKKU_ENGINE_ASKS_H
#define HOKKU_ENGINE_ASKS_H

#include "engine/backend.h"

// How many there are of s; only_done: whose token is known.
size_t asks_count(const struct seq *s, bool only_done);
// The next whose token is not known; NULL: there is none.
struct ask *asks_oldest(struct engine_core *c);
// There is room for it (ENGINE_MAX_ASKS).
void asks_add(struct engine_core *c, struct seq *s, uint64_t ticket, bool evaluate);
void asks_remove(struct engine_core *c, size_t i);
// Takes the result of the oldest one under way; false only when interrupted.
bool asks_take(struct engine *e, struct ask *a, const struct cancel *cancel, struct error *err);
// Whether sampling for s ends with this token.
bool seq_stops_at(const struct seq *s, int32_t id);

#endif
