#include "engine/asks.h"

#include <string.h>

#include "engine/states.h"

size_t asks_count(const struct seq *s, bool only_done)
{
    const struct engine_core *c = s->engine->core;
    size_t n = 0;
    for (size_t i = 0; i < c->n_asks; i++)
        n += c->asks[i].seq == s && (!only_done || (c->asks[i].done && !c->asks[i].error.code));
    return n;
}

void asks_remove(struct engine_core *c, size_t i)
{
    c->n_asks--;
    memmove(&c->asks[i], &c->asks[i + 1], (c->n_asks - i) * sizeof *c->asks);
}

bool seq_stops_at(const struct seq *s, int32_t id)
{
    for (size_t i = 0; i < s->stop_ids.len; i++)
        if (s->stop_ids.data[i] == id)
            return true;
    return false;
}

struct ask *asks_oldest(struct engine_core *c)
{
    for (size_t i = 0; i < c->n_asks; i++)
        if (!c->asks[i].done)
            return &c->asks[i];
    return NULL;
}

// No more picks of this run will come: those asked for get this error.
static void end_run(struct engine_core *c, const struct error *why)
{
    c->over = true;
    for (struct ask *a; (a = asks_oldest(c)) != NULL; a->done = true)
        a->error = *why;
}

bool asks_take(struct engine *e, struct ask *a, const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    struct seq *s = a->seq;
    struct error mine = {0};
    if (s->mask && asks_count(s, true) > 0) {
        error_set(&mine, ERR_FAIL,
                  "a pick under a mask depends on the one before: expected engine_wait for that "
                  "one, and no other work until then");
        end_run(c, &mine);
        return true;
    }
    if (!c->backend->pick_take(e, s, a->evaluate, cancel, &a->d, &mine) ||
        (a->evaluate && !hidden_keep(s, 0, 1, &mine))) {
        if (mine.code == ERR_INTERRUPTED) {
            if (err)
                *err = mine;
            return false;
        }
        end_run(c, &mine);
        return true;
    }
    if (a->evaluate)
        states_advance(s, 1);
    a->done = true;
    ids_push(&s->ids, a->d.id); // there is room
    if (seq_stops_at(s, a->d.id)) {
        error_set(&mine, ERR_FAIL, "nothing was sampled after the stop id %d", a->d.id);
        end_run(c, &mine);
    }
    return true;
}

bool engine_settle(struct engine *e, const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    for (struct ask *a; (a = asks_oldest(c)) != NULL;)
        if (!asks_take(e, a, cancel, err))
            return false;
    if (c->run) {
        c->backend->pick_stop(e);
        states_take(c->run, 0, NULL);
    }
    c->run = NULL;
    return true;
}

void asks_add(struct engine_core *c, struct seq *s, uint64_t ticket, bool evaluate)
{
    struct ask *a = &c->asks[c->n_asks++];
    a->ticket = ticket;
    a->seq = s;
    a->evaluate = evaluate;
    a->n_void = 0;
    a->done = false;
    a->error.code = ERR_NONE;
}
