#include "term/shelf.h"

#include <stdlib.h>
#include <string.h>

#include "dialog/session_codec.h"
#include "term/repl.h"

static void entry_release(struct shelf_entry *e)
{
    buf_release(&e->messages);
    free(e->session);
    free(e->settings);
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

static bool copy(struct shelf_entry *e, const struct shelf *s, const struct conversation *c,
                 struct error *err)
{
    *e = (struct shelf_entry){.first_kept = c->first_kept,
                              .system_merged = c->system_merged,
                              .now = c->now,
                              .n_model = s->n_model};
    if (codec_put_messages(&e->messages, c))
        return true;
    entry_release(e);
    return error_oom(err, "a copy of the conversation", e->messages.len);
}

bool shelf_put(struct shelf *s, const struct conversation *c, struct error *err)
{
    struct shelf_entry e;
    if (!copy(&e, s, c, err))
        return false;
    shelf_cut(s, conversation_n_turns(c));
    push(s->before, &s->n_before, &e);
    return true;
}

static void remember(struct shelf_entry *list, size_t n, const char *session,
                     const struct session_mark *file)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].session && strcmp(list[i].session, session) == 0)
            list[i].file = *file;
}

// The lock is not kept: what is on the shelf can be loaded, here or elsewhere. What is in the file
// by then was seen here, so earlier states of it may come back, too.
static void leave(struct shelf *s, struct shelf_entry *e, struct session_lock *session)
{
    e->left = true;
    session_remove_empty(session);
    e->session = session->fd >= 0 ? strdup(session->name) : NULL;
    if (e->session) {
        e->file = session_mark(session);
        remember(s->before, s->n_before, e->session, &e->file);
        remember(s->after, s->n_after, e->session, &e->file);
    }
    session_lock_release(session);
}

void shelf_left(struct shelf *s, struct session_lock *session)
{
    leave(s, &s->before[s->n_before - 1], session);
}

static void rename_in(struct shelf_entry *list, size_t n, const char *from, const char *to)
{
    for (size_t i = 0; i < n; i++) {
        char *name = list[i].session && strcmp(list[i].session, from) == 0 ? strdup(to) : NULL;
        if (name) { // (without memory it is one that is gone)
            free(list[i].session);
            list[i].session = name;
        }
    }
}

void shelf_renamed(struct shelf *s, const char *from, const char *to)
{
    rename_in(s->before, s->n_before, from, to);
    rename_in(s->after, s->n_after, from, to);
}

// The session in which what comes back was, to be saved there again.
static void go_back(const struct shelf *s, const struct shelf_entry *e,
                    struct session_lock *session, struct error *alone)
{
    if (!session_lock_take(session, s->opt->state_dir, e->session, alone))
        return;
    session->unnamed = session_is_unnamed(e->session);
    if (!session_is_as_left(session, &e->file, alone))
        session_lock_release(session);
}

bool shelf_settings(struct shelf *s, const struct options *before, struct error *err)
{
    struct options *o = malloc(sizeof *o);
    if (!o)
        return error_oom(err, "a copy of the settings", sizeof *o);
    *o = *before;
    s->before[s->n_before - 1].settings = o;
    return true;
}

void shelf_model_changed(struct shelf *s)
{
    s->n_model++;
}

void shelf_replaced(struct shelf *s, const struct conversation *c)
{
    s->before[s->n_before - 1].turns = conversation_n_turns(c);
}

void shelf_forget(struct shelf *s)
{
    entry_release(&s->before[--s->n_before]);
}

void shelf_cut(struct shelf *s, size_t turns)
{
    for (size_t i = 0; i < s->n_before; i++)
        if (s->before[i].turns > turns)
            s->before[i].turns = turns;
}

bool shelf_can_undo(const struct shelf *s, const struct conversation *c)
{
    const size_t turns = conversation_n_turns(c);
    return s->n_before > 0 && (turns == 0 || s->before[s->n_before - 1].turns == turns);
}

bool shelf_can_redo(const struct shelf *s, const struct conversation *c)
{
    return s->n_after > 0 && c->n_undone == 0;
}

// What of the settings that came back means something of another model's is as if it were not set.
static void fit_settings(struct shelf *s, const struct conversation *c)
{
    s->biases_gone = s->opt->sampler.n_bias > 0;
    s->opt->sampler.n_bias = 0;
    if (s->opt->spec == SPEC_MTP && !c->session.predictor)
        s->opt->spec = SPEC_AUTO;
}

// The last entry of `from` and the conversation change places, the latter going to `to`; so many
// turns at its end count as taken back.
static bool exchange(struct shelf *s, struct shelf_entry *from, size_t *n_from,
                     struct shelf_entry *to, size_t *n_to, struct conversation *c, size_t undone,
                     struct session_lock *session, struct error *alone, struct error *err)
{
    struct shelf_entry *e = &from[*n_from - 1], mine;
    struct conversation fresh = {0};
    s->biases_gone = false;
    struct codec_cursor cur = {.p = (unsigned char *)e->messages.data, .n = e->messages.len};
    bool other_model = e->n_model != s->n_model;
    if (!copy(&mine, s, c, err))
        return false;
    bool ok = codec_messages(&cur, &fresh, other_model ? INT32_MAX : c->model->hp.n_vocab) ||
              error_oom(err, "a copy of the conversation", e->messages.len);
    if (!ok || (other_model && !conversation_read_anew(&fresh, c, err))) {
        conversation_release(&fresh);
        entry_release(&mine);
        return false;
    }
    fresh.first_kept = e->first_kept;
    fresh.system_merged = e->system_merged;
    fresh.now = e->now;
    size_t turns = e->turns, undone_there = e->undone;
    if (e->left) {
        leave(s, &mine, session);
        if (e->session)
            go_back(s, e, session, alone);
    }
    if (e->settings) {
        struct options now = *s->opt;
        *s->opt = *e->settings;
        *e->settings = now;
        mine.settings = e->settings;
        e->settings = NULL;
        if (other_model)
            fit_settings(s, c);
    }
    conversation_take_messages(c, &fresh);
    if (undone_there > 0)
        conversation_undo(c, undone_there);
    conversation_release(&fresh);
    entry_release(e);
    --*n_from;
    mine.turns = turns;
    mine.undone = undone;
    push(to, n_to, &mine);
    return true;
}

bool shelf_undo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *alone, struct error *err)
{
    const size_t turns = conversation_n_turns(c), then = s->before[s->n_before - 1].turns;
    const size_t redone = conversation_redo(c, SIZE_MAX), kept = then > turns ? then - turns : 0;
    const size_t undone = redone > kept ? redone - kept : 0;
    if (exchange(s, s->before, &s->n_before, s->after, &s->n_after, c, undone, session, alone, err))
        return true;
    conversation_undo(c, redone);
    return false;
}

bool shelf_redo(struct shelf *s, struct conversation *c, struct session_lock *session,
                struct error *alone, struct error *err)
{
    return exchange(s, s->after, &s->n_after, s->before, &s->n_before, c, 0, session, alone, err);
}
