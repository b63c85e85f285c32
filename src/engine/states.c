#include "engine/states.h"

#include <stdlib.h>
#include <string.h>

static bool has_states(const struct seq *s)
{
    return s->engine->core->states.n_blocks > 0;
}

uint64_t states_host_bytes(uint64_t n_free)
{
    const uint64_t most = UINT64_C(4) << 30;
    return n_free / 4 < most ? n_free / 4 : most;
}

void states_may_take(struct engine *e, uint64_t n_bytes)
{
    e->core->most_copies = e->n_states > 0 ? n_bytes / engine_state_bytes(e) : 0;
}

bool states_reserve(struct seq *s)
{
    enum { TURNS = 256 }; // whose beginnings and ends are marked, beside what a long text has
    s->max_marks = has_states(s) ? TURNS + s->n_max / STATES_EVERY : 0;
    s->marks = malloc(s->max_marks * sizeof *s->marks);
    return s->max_marks == 0 || s->marks;
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

static struct state_mark share_mark(struct engine_core *c, const struct state_mark *m)
{
    if (m->copy)
        m->copy->n_users++;
    return (struct state_mark){m->pos, share(c, m->slot), m->copy};
}

static void remove_mark(struct seq *s, size_t i)
{
    struct engine_core *c = s->engine->core;
    struct state_copy *copy = s->marks[i].copy;
    give(c, &s->marks[i].slot);
    if (copy && --copy->n_users == 0) {
        free(copy);
        c->n_copies--;
    }
    s->n_marks--;
    memmove(&s->marks[i], &s->marks[i + 1], (s->n_marks - i) * sizeof *s->marks);
}

// Whether nobody goes back to where s has n tokens: behind all that it was given.
static bool is_passing_at(const struct seq *s, size_t n)
{
    return s->once && !s->goes_on && s->given > 0 && n > s->given;
}

static bool is_passing(const struct seq *s)
{
    return is_passing_at(s, s->n_past);
}

// How many tokens would have to be evaluated again between the marks beside mark i.
static size_t gap(const struct seq *s, size_t i)
{
    const size_t before = i > 0 ? s->marks[i - 1].pos : 0, pos = s->marks[i].pos;
    const size_t end = !is_passing(s) ? s->n_past : s->given > pos ? s->given : pos;
    return (i + 1 < s->n_marks ? s->marks[i + 1].pos : end) - before;
}

// The newest state of s is that of its last mark, in host memory.
static bool is_away(const struct seq *s)
{
    return has_states(s) && s->n_past > 0 && s->state == NO_STATE;
}

// ---- slots, and the host memory behind them

// Whether nobody but marks has the slot.
static bool is_of_marks(const struct engine_core *c, uint32_t slot)
{
    uint32_t n = 0;
    for (const struct seq *q = c->seqs; q; q = q->next)
        for (size_t i = 0; i < q->n_marks; i++)
            n += q->marks[i].slot == slot;
    return n == c->states.n_users[slot];
}

// Of the slots that only marks have, that of the mark which is farthest behind its sequence's end.
static uint32_t farthest_behind(const struct engine_core *c)
{
    uint32_t slot = NO_STATE;
    size_t most = 0;
    for (const struct seq *q = c->seqs; q; q = q->next)
        for (size_t i = 0; i < q->n_marks; i++) {
            const struct state_mark *m = &q->marks[i];
            const size_t behind = q->n_past - m->pos;
            if (m->slot != NO_STATE && (slot == NO_STATE || behind > most) &&
                is_of_marks(c, m->slot)) {
                slot = m->slot;
                most = behind;
            }
        }
    return slot;
}

// The mark, of `only` or (NULL) of any sequence, that is missed least, to *of and *at; the newest
// is the last. in_slots: of those that have a slot which nobody but marks has.
static bool least_missed(const struct engine_core *c, struct seq *only, bool in_slots,
                         struct seq **of, size_t *at)
{
    *of = NULL;
    *at = 0;
    for (struct seq *q = only ? only : c->seqs; q; q = only ? NULL : q->next)
        for (size_t i = 0; i + is_away(q) < q->n_marks; i++) {
            const uint32_t slot = q->marks[i].slot;
            if ((!*of || gap(q, i) < gap(*of, *at)) &&
                (!in_slots || (slot != NO_STATE && is_of_marks(c, slot)))) {
                *of = q;
                *at = i;
            }
        }
    return *of != NULL;
}

static void thin(const struct engine_core *c, struct seq *only)
{
    struct seq *of;
    size_t at;
    if (least_missed(c, only, false, &of, &at))
        remove_mark(of, at);
}

// Whether a mark in a slot has gone without which nobody reads more than n tokens again.
static bool thin_in_slots(const struct engine_core *c, size_t n)
{
    struct seq *of;
    size_t at;
    if (!least_missed(c, NULL, true, &of, &at) || gap(of, at) > n)
        return false;
    remove_mark(of, at);
    return true;
}

// What the slot holds goes to host memory. False: there is none, or the device cannot.
static bool move_to_host(struct engine *e, uint32_t slot)
{
    struct engine_core *c = e->core;
    struct error ignored;
    struct state_copy *copy =
        c->n_copies < c->most_copies ? malloc(sizeof *copy + engine_state_bytes(e)) : NULL;
    if (!copy)
        return false;
    *copy = (struct state_copy){.bytes = copy + 1};
    if (!c->backend->state_export(e, slot, copy->bytes, &ignored)) {
        free(copy);
        return false;
    }
    c->n_copies++;
    for (struct seq *q = c->seqs; q; q = q->next)
        for (size_t i = 0; i < q->n_marks; i++)
            if (q->marks[i].slot == slot) {
                give(c, &q->marks[i].slot);
                q->marks[i].copy = copy;
                copy->n_users++;
            }
    return true;
}

// Takes a slot; marks make room for it, within: only those that are missed no more than one within
// a piece would be. False: there is none.
static bool find_slot(struct seq *s, bool within, uint32_t *slot)
{
    struct engine_core *c = s->engine->core;
    while (!kv_pool_take(&c->states, slot)) {
        const uint32_t of_marks = farthest_behind(c);
        if (of_marks == NO_STATE)
            return false;
        if ((c->spares_copies && thin_in_slots(c, STATES_EVERY)) ||
            move_to_host(s->engine, of_marks))
            continue;
        if (!within)
            thin(c, NULL);
        else if (!thin_in_slots(c, 2 * STATES_EVERY))
            return false;
    }
    return true;
}

// Errors: ERR_CONTEXT.
static bool take_slot(struct seq *s, uint32_t *slot, struct error *err)
{
    return find_slot(s, false, slot) ||
           error_set(err, ERR_CONTEXT, "no room for another of %u states", s->engine->n_states);
}

static bool bring_back(struct seq *s, struct error *err)
{
    struct engine_core *c = s->engine->core;
    uint32_t slot;
    if (!take_slot(s, &slot, err))
        return false;
    if (!c->backend->state_import(s->engine, slot, s->marks[s->n_marks - 1].copy->bytes, err)) {
        give(c, &slot);
        return false;
    }
    s->state = slot;
    return true;
}

// Keeps the first n of those for what comes next.
static void give_next(struct seq *s, size_t n)
{
    while (s->n_next > n)
        kv_pool_give(&s->engine->core->states, s->next_states[--s->n_next]);
}

bool states_take(struct seq *s, size_t n, struct error *err)
{
    give_next(s, n);
    if (is_away(s) && !bring_back(s, err))
        return false;
    for (; has_states(s) && s->n_next < n; s->n_next++)
        if (!take_slot(s, &s->next_states[s->n_next], err))
            return false;
    return true;
}

size_t states_take_more(struct seq *s, size_t n)
{
    if (!has_states(s))
        return n;
    while (s->n_next < n && find_slot(s, true, &s->next_states[s->n_next]))
        s->n_next++;
    return s->n_next;
}

void states_give(struct seq *s)
{
    give_next(s, 0);
}

size_t states_wanted(const struct seq *s, size_t n, bool given)
{
    size_t k = 1;
    while (has_states(s) && k < STATES_AT_ONCE && k * STATES_EVERY < n &&
           (given || !is_passing_at(s, s->n_past + k * STATES_EVERY)))
        k++;
    return k;
}

void states_advance_all(struct seq *s, size_t n)
{
    for (; s->n_next > 1; n -= STATES_EVERY)
        states_advance(s, STATES_EVERY);
    states_advance(s, n);
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

static size_t last_mark(const struct seq *s)
{
    return s->n_marks > 0 ? s->marks[s->n_marks - 1].pos : 0;
}

void states_mark_due(struct seq *s)
{
    if (s->n_past >= STATES_EVERY + last_mark(s) && !is_passing(s))
        states_mark(s);
}

void states_mark_before(struct seq *s, size_t n)
{
    if (s->n_past + n > STATES_EVERY + last_mark(s) && !is_passing(s))
        states_mark(s);
}

void states_mark(struct seq *s)
{
    if (s->state == NO_STATE || last_mark(s) == s->n_past)
        return;
    if (s->n_marks == s->max_marks)
        thin(s->engine->core, s);
    s->marks[s->n_marks++] = (struct state_mark){s->n_past, share(s->engine->core, s->state), NULL};
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
        f->marks[f->n_marks++] = share_mark(c, &s->marks[i]);
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
    const struct state_mark newest = {s->n_past, s->state, NULL};
    const struct state_mark *from = has_newest(s) && pos == s->n_past ? &newest : NULL;
    for (size_t i = 0; i < s->n_marks; i++)
        if (s->marks[i].pos == pos)
            from = &s->marks[i];
    if (!from)
        return error_set(err, ERR_FAIL, "the state after %zu tokens is not kept", pos);
    if (!from->copy)
        return s->engine->core->backend->state_export(s->engine, from->slot, dst, err);
    memcpy(dst, from->copy->bytes, engine_state_bytes(s->engine));
    return true;
}

bool seq_import_state(struct seq *s, size_t pos, const void *src, struct error *err)
{
    if (!has_states(s) || pos <= s->n_past || pos > s->n_imported)
        return error_set(err, ERR_FAIL,
                         "a state after %zu tokens: expected more than %zu, and %zu at most", pos,
                         s->n_past, s->n_imported);
    if (!engine_settle(s->engine, NULL, err))
        return false;
    if (!states_take(s, 1, err))
        return false;
    if (!s->engine->core->backend->state_import(s->engine, s->next_states[0], src, err))
        return false;
    states_advance(s, pos - s->n_past);
    states_mark(s);
    return true;
}
