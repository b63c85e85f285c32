#include "engine/states.h"

#include <string.h>

// A mark for each so many tokens of a long text: more need not be evaluated again.
enum { MARK_EVERY = 512 };

static bool has_states(const struct seq *s)
{
    return s->engine->core->states.n_blocks > 0;
}

static void give(struct engine_core *c, uint32_t *slot)
{
    if (*slot != NO_STATE)
        kv_pool_give(&c->states, *slot);
    *slot = NO_STATE;
}

static uint32_t share(struct engine_core *c, uint32_t slot)
{
    if (slot != NO_STATE)
        kv_pool_share(&c->states, slot);
    return slot;
}

static void remove_mark(struct seq *s, size_t i)
{
    give(s->engine->core, &s->marks[i].slot);
    s->n_marks--;
    memmove(&s->marks[i], &s->marks[i + 1], (s->n_marks - i) * sizeof *s->marks);
}

// How many tokens would have to be evaluated again between the marks beside mark i.
static size_t gap(const struct seq *s, size_t i)
{
    const size_t before = i > 0 ? s->marks[i - 1].pos : 0;
    return (i + 1 < s->n_marks ? s->marks[i + 1].pos : s->n_past) - before;
}

// Removes the mark of s, or with all of any sequence, that is missed least; the newest goes last.
static bool thin(struct seq *s, bool all)
{
    struct seq *from = NULL;
    size_t best = 0;
    for (struct seq *q = all ? s->engine->core->seqs : s; q; q = all ? q->next : NULL)
        for (size_t i = 0; i < q->n_marks; i++)
            if (!from || gap(q, i) < gap(from, best)) {
                from = q;
                best = i;
            }
    if (from)
        remove_mark(from, best);
    return from != NULL;
}

// Keeps the first n of those for what comes next.
static void give_next(struct seq *s, size_t n)
{
    while (s->n_next > n)
        kv_pool_give(&s->engine->core->states, s->next_states[--s->n_next]);
}

bool states_take(struct seq *s, size_t n)
{
    struct engine_core *c = s->engine->core;
    give_next(s, n);
    while (has_states(s) && s->n_next < n) {
        if (kv_pool_take(&c->states, &s->next_states[s->n_next]))
            s->n_next++;
        else if (!thin(s, true))
            return false;
    }
    return true;
}

void states_advance(struct seq *s, size_t n)
{
    s->n_past += n;
    if (!has_states(s))
        return;
    give(s->engine->core, &s->state);
    s->state = s->next_states[0];
    s->n_next--;
    memmove(s->next_states, s->next_states + 1, s->n_next * sizeof *s->next_states);
    states_mark_due(s);
}

void states_mark_due(struct seq *s)
{
    if (s->n_past >= MARK_EVERY + (s->n_marks > 0 ? s->marks[s->n_marks - 1].pos : 0))
        states_mark(s);
}

void states_mark(struct seq *s)
{
    if (s->state == NO_STATE || (s->n_marks > 0 && s->marks[s->n_marks - 1].pos == s->n_past))
        return;
    if (s->n_marks == MAX_STATE_MARKS)
        thin(s, false);
    s->marks[s->n_marks++] = (struct state_mark){s->n_past, share(s->engine->core, s->state)};
}

uint32_t states_hold(struct seq *s)
{
    return share(s->engine->core, s->state);
}

void states_return(struct seq *s, size_t n, uint32_t held)
{
    if (!has_states(s))
        return;
    states_unmark(s, n, true);
    give_next(s, 0);
    give(s->engine->core, &s->state);
    s->state = held;
    s->n_past = n;
}

void states_let_go(struct seq *s, uint32_t held)
{
    give(s->engine->core, &held);
}

bool states_marked(const struct seq *s, size_t n)
{
    for (size_t i = 0; i < s->n_marks; i++)
        if (s->marks[i].pos == n)
            return true;
    return false;
}

void states_unmark(struct seq *s, size_t n, bool behind)
{
    while (s->n_marks > 0 && s->marks[s->n_marks - 1].pos >= n + behind)
        remove_mark(s, s->n_marks - 1);
}

void states_back(struct seq *s, size_t n)
{
    struct engine_core *c = s->engine->core;
    if (s->n_imported > n)
        s->n_imported = n;
    if (!has_states(s)) {
        s->n_past = n < s->n_past ? n : s->n_past;
        return;
    }
    give_next(s, 0);
    if (n >= s->n_past)
        return;
    while (s->n_marks > 0 && s->marks[s->n_marks - 1].pos > n)
        remove_mark(s, s->n_marks - 1);
    give(c, &s->state);
    s->n_past = 0;
    if (s->n_marks > 0) {
        s->n_past = s->marks[s->n_marks - 1].pos;
        s->state = share(c, s->marks[s->n_marks - 1].slot);
    }
}

void states_fork(struct seq *f, const struct seq *s)
{
    struct engine_core *c = s->engine->core;
    if (!has_states(s))
        return;
    const size_t n = f->n_past;
    f->n_past = 0;
    for (size_t i = 0; i < s->n_marks && s->marks[i].pos <= n; i++) {
        f->marks[f->n_marks++] = (struct state_mark){s->marks[i].pos, share(c, s->marks[i].slot)};
        f->n_past = s->marks[i].pos;
    }
    if (n == s->n_past) {
        f->n_past = n;
        f->state = share(c, s->state);
    } else if (f->n_marks > 0) {
        f->state = share(c, f->marks[f->n_marks - 1].slot);
    }
}

// ---- as bytes

size_t engine_state_bytes(const struct engine *e)
{
    return e->n_states > 0 ? e->core->backend->state_bytes(e) : 0;
}

// Where the newest state is no mark, too.
static bool has_newest(const struct seq *s)
{
    return s->state != NO_STATE && (s->n_marks == 0 || s->marks[s->n_marks - 1].pos < s->n_past);
}

size_t seq_states(const struct seq *s, size_t *pos, size_t most)
{
    const size_t all = s->n_marks + has_newest(s), n = all < most ? all : most;
    for (size_t i = 0; i < n; i++) {
        const size_t k = all - n + i;
        pos[i] = k < s->n_marks ? s->marks[k].pos : s->n_past;
    }
    return n;
}

bool seq_export_state(struct seq *s, size_t pos, void *dst, struct error *err)
{
    if (!engine_settle(s->engine, NULL, err))
        return false;
    uint32_t slot = has_newest(s) && pos == s->n_past ? s->state : NO_STATE;
    for (size_t i = 0; i < s->n_marks; i++)
        if (s->marks[i].pos == pos)
            slot = s->marks[i].slot;
    if (slot == NO_STATE)
        return error_set(err, ERR_FAIL, "the state after %zu tokens is not kept", pos);
    return s->engine->core->backend->state_export(s->engine, slot, dst, err);
}

bool seq_import_state(struct seq *s, size_t pos, const void *src, struct error *err)
{
    if (!has_states(s) || pos <= s->n_past || pos > s->n_imported)
        return error_set(err, ERR_FAIL,
                         "a state after %zu tokens: expected more than %zu, and %zu at most", pos,
                         s->n_past, s->n_imported);
    if (!engine_settle(s->engine, NULL, err))
        return false;
    if (!states_take(s, 1))
        return error_set(err, ERR_CONTEXT, "no room for another of %u states", s->engine->n_states);
    if (!s->engine->core->backend->state_import(s->engine, s->next_states[0], src, err))
        return false;
    states_advance(s, pos - s->n_past);
    states_mark(s);
    return true;
}
