#include "term/shelf.h"

#include <stdlib.h>
#include <string.h>

#include "dialog/session_codec.h"

static void entry_release(struct shelf_entry *e)
{
    buf_release(&e->messages);
    free(e->session);
    *e = (struct shelf_entry){0};
}

void shelf_release(struct shelf *s)
{
    for (size_t i = 0; i < s->n_before; i++)
        entry_release(&s->before[i]);
    for (size_t i = 0; i < s->n_after; i++)
        entry_release(&s->after[i]);
    s->n_before = s->n_after = 0;
}

static void push(struct shelf_entry *list, size_t *n, struct shelf_entry *e)
{
    if (*n == SHELF_MAX) {
        entry_release(&list[0]);
        memmove(list, list + 1, (SHELF_MAX - 1) * sizeof *list);
        --*n;
    }
    list[(*n)++] = *e;
    *e = (struct shelf_entry){0};
}

static bool copy(struct shelf_entry *e, const struct conversation *c, struct error *err)
{
    *e = (struct shelf_entry){
        .first_kept = c->first_kept, .system_merged = c->system_merged, .now = c->now};
    if (codec_put_messages(&e->messages, c))
        return true;
    entry_release(e);
    return error_oom(err, "a copy of the conversation", e->messages.len);
}

bool shelf_put(struct shelf *s, const struct conversation *c, struct error *err)
{
    struct shelf_entry e;
    if (!copy(&e, c, err))
        return false;
    push(s->before, &s->n_before, &e);
    return true;
}

// The lock is not kept: what is on the shelf can be loaded, here or elsewhere.
static void leave(struct shelf_entry *e, struct session_lock *session)
{
    e->left = true;
    e->session = session->fd >= 0 ? strdup(session->name) : NULL;
    session_lock_release(session);
}

void shelf_left(struct shelf *s, struct session_lock *session)
{
    leave(&s->before[s->n_before - 1], session);
}

void shelf_replaced(struct shelf *s, const struct conversation *c)
{
    s->before[s->n_before - 1].turns = conversation_n_turns(c);
}

void shelf_forget(struct shelf *s)
{
    entry_release(&s->before[--s->n_before]);
}

bool shelf_can_undo(const struct shelf *s, const struct conversation *c)
{
    return s->n_before > 0 && s->before[s->n_before - 1].turns == conversation_n_turns(c);
}

bool shelf_can_redo(const struct shelf *s, const struct conversation *c)
{
    return s->n_after > 0 && c->n_undone == 0;
}

// The last entry of `from` and the conversation change places, the latter going to `to`.
static bool exchange(const char *state_dir, struct shelf_entry *from, size_t *n_from,
                     struct shelf_entry *to, size_t *n_to, struct conversation *c,
                     struct session_lock *session, struct error *err)
{
    struct shelf_entry *e = &from[*n_from - 1], mine;
    struct conversation fresh = {0};
    struct codec_cursor cur = {.p = (unsigned char *)e->messages.data, .n = e->messages.len};
    if (!copy(&mine, c, err))
        return false;
    if (!codec_messages(&cur, &fresh, c->model->hp.n_vocab)) {
        conversation_release(&fresh);
        entry_release(&mine);
        return error_oom(err, "a copy of the conversation", e->messages.len);
    }
    fresh.first_kept = e->first_kept;
    fresh.system_merged = e->system_merged;
    fresh.now = e->now;
    size_t turns = e->turns;
    if (e->left) {
        leave(&mine, session);
        if (e->session && session_lock_take(session, state_dir, e->session, NULL))
            session->unnamed = session_is_unnamed(e->session);
    }
    conversation_take_messages(c, &fresh);
    conversation_release(&fresh);
    entry_release(e);
    --*n_from;
    mine.turns = turns;
    push(to, n_to, &mine);
    return true;
}

bool shelf_undo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *err)
{
    return exchange(s->state_dir, s->before, &s->n_before, s->after, &s->n_after, c, session, err);
}

bool shelf_redo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *err)
{
    return exchange(s->state_dir, s->after, &s->n_after, s->before, &s->n_before, c, session, err);
}
