#include "engine/room.h"

#include <assert.h>

#include "engine/states.h"
#include "engine/windows.h"

void seq_new_version(struct seq *s)
{
    s->version = ++s->engine->core->versions;
}

void room_give(struct seq *s)
{
    struct engine_core *c = s->engine->core;
    const size_t n = s->n_imported > s->n_past ? s->n_imported : s->n_past;
    const size_t keep = (n + c->backend->kv_block - 1) / c->backend->kv_block;
    while (s->n_blocks > keep) {
        kv_pool_give(&c->pool, s->blocks[--s->n_blocks]);
        if (c->reach > 0)
            windows_give(s, s->n_blocks);
    }
    states_give(s);
}

void room_go_back(struct seq *s, size_t n)
{
    states_back(s, n);
    if (s->engine->core->reach > 0)
        s->n_past = windows_back(s, s->n_past);
    hidden_back(s);
    room_give(s);
}

void room_forget_logits(struct engine_core *c, const struct seq *s)
{
    if (c->logits_of == s)
        c->logits_of = NULL;
}

// Gives back the memory of the youngest sequence but s and those of the same submit.
static bool pause_another(const struct seq *s, struct error *err)
{
    struct engine_core *c = s->engine->core;
    for (struct seq *q = c->seqs; q; q = q->next) {
        if (q == s || q->at_work || (q->n_blocks == 0 && q->state == NO_STATE))
            continue;
        assert(c->run != q); // whoever needs memory is the one that runs, or nobody does
        room_forget_logits(c, q);
        room_go_back(q, 0);
        return true;
    }
    return error_set(err, ERR_CONTEXT,
                     "the memory for %u tokens is full, and what has it is needed for this work: "
                     "use a larger -c",
                     s->engine->n_ctx);
}

bool room_take_states(struct seq *s, size_t n, struct error *err)
{
    struct error mine = {0};
    while (!states_take(s, n, &mine)) {
        if (mine.code != ERR_CONTEXT)
            return error_set(err, mine.code, "%s", mine.text);
        if (!pause_another(s, err))
            return false;
    }
    return true;
}

bool room_take_piece(struct seq *s, size_t *n, bool whole, struct error *err)
{
    const size_t n_states = whole ? 1 : states_wanted(s, *n, false);
    if (!room_take_states(s, 1, err))
        return false;
    if (states_take_more(s, n_states) < n_states)
        *n = s->n_next * STATES_EVERY;
    return true;
}

bool room_advance_state(struct seq *s, size_t i, size_t n, struct error *err)
{
    const struct backend *b = s->engine->core->backend;
    if (s->engine->n_states == 0 || !b->state_advance)
        return true;
    if (!room_take_states(s, 1, err) || !b->state_advance(s->engine, s, i, n, err))
        return false;
    states_advance(s, n);
    return true;
}

// The block that s is in the midst of becomes its own.
static bool own_block(struct seq *s, bool near, struct error *err)
{
    struct engine_core *c = s->engine->core;
    struct kv_pool *pool = near ? &c->near : &c->pool;
    const size_t i = s->n_past / c->backend->kv_block, used = s->n_past % c->backend->kv_block;
    uint32_t *own = near ? &s->near[i] : &s->blocks[i], block;
    while (used && kv_pool_shared(pool, *own)) {
        if (!(near ? windows_block(c, &block) : kv_pool_take(pool, &block))) {
            if (!pause_another(s, err))
                return false;
            continue; // perhaps who shared it
        }
        if (!c->backend->kv_copy(s->engine, near, *own, block, used, err)) {
            kv_pool_give(pool, block);
            return false;
        }
        kv_pool_give(pool, *own);
        *own = block;
        seq_new_version(s);
    }
    return true;
}

bool room_take(struct seq *s, size_t end, size_t n_evaluations, struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (!own_block(s, false, err) || !room_take_states(s, n_evaluations, err))
        return false;
    s->n_imported = 0; // what there is behind n_past is written over
    while (s->n_blocks * (uint64_t)c->backend->kv_block < end) {
        if (kv_pool_take(&c->pool, &s->blocks[s->n_blocks])) {
            if (c->reach > 0)
                s->near[s->n_blocks] = NO_BLOCK;
            s->n_blocks++;
            seq_new_version(s);
        } else if (!pause_another(s, err)) {
            return false;
        }
    }
    return true;
}

bool room_take_near(struct seq *s, size_t begin, size_t end, struct error *err)
{
    if (s->engine->core->reach == 0)
        return true;
    if (begin == s->n_past && !own_block(s, true, err))
        return false;
    while (!windows_take(s, begin, end))
        if (!pause_another(s, err))
            return false;
    return true;
}
