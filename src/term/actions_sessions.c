// Commands of the chat for saved sessions.
#include <string.h>
#include <unistd.h>

#include "base/out.h"
#include "base/termsafe.h"
#include "term/actions.h"

// Saves under a new name, whose file must not exist unless `replace`.
static bool save_as(struct repl *r, const char *name, struct error *err)
{
    struct session_lock lock;
    if (!session_lock_take(&lock, r->opt->state_dir, name, err))
        return false;
    bool ok =
        (!session_exists(&lock) ||
         error_set(err, ERR_FAIL, "there is already a session %s: /load it, or choose another name",
                   name)) &&
        session_name_check_new(name, err);
    ok = ok && session_save(&lock, r->c, r->opt, -1, err);
    if (!ok) {
        session_lock_release(&lock);
        return false;
    }
    // A chat without a name has one now; it is not kept twice.
    session_lock_wait(r->session);
    if (r->session->unnamed && session_exists(r->session))
        unlink(r->session->path.data);
    session_lock_release(r->session);
    *r->session = lock;
    return true;
}

bool action_save(struct repl *r, char *arg, struct error *err)
{
    if (!*arg && !repl_is_named(r))
        return error_set(err, ERR_USAGE, "this chat has no name yet: /save NAME gives it one");
    bool ok = !*arg || repl_is_in(r, arg) ? session_save(r->session, r->c, r->opt, -1, err)
                                          : save_as(r, arg, err);
    if (ok)
        view_say(&r->view, "(saved as %s, from now on at every turn)\n", r->session->name);
    return ok;
}

bool action_fork(struct repl *r, char *arg, struct error *err)
{
    struct buf from = {0};
    buf_puts(&from, repl_is_named(r) ? r->session->name : "");
    bool ok = !repl_is_in(r, arg) ||
              error_set(err, ERR_USAGE, "this is session %s: a copy needs another name", arg);
    ok = ok && save_as(r, arg, err);
    if (ok && from.len > 0)
        view_say(&r->view, "(now in %s; %s stays as it is)\n", arg, from.data);
    else if (ok)
        view_say(&r->view, "(now in %s)\n", arg);
    buf_release(&from);
    return ok;
}

// A session goes on with the model that it was made with, as long as its file is there.
static bool made_with_this(const struct repl *r, const char *name, const char *path,
                           struct error *err)
{
    struct session_info info = {0};
    struct buf typed = {0};
    // (What is wrong with the file is said when it is loaded.)
    bool ok = !session_file_info(path, &info, NULL) || !info.model_path ||
              strcmp(info.fingerprint, r->c->model->fingerprint) == 0 ||
              access(info.model_path, R_OK) != 0;
    if (!ok) {
        completions_escape(&typed, info.model_path, 0);
        error_set(err, ERR_FAIL, "session %s is of another model (%.80s): /model %s, then /load %s",
                  name, info.model, buf_str(&typed), name);
    }
    buf_release(&typed);
    session_info_release(&info);
    return ok;
}

bool repl_saved_path(const struct repl *r, const char *session, struct buf *path, struct error *err)
{
    return session_path(r->opt->state_dir, session, path, err) &&
           (access(buf_str(path), F_OK) == 0 ||
            error_set(err, ERR_FAIL, "there is no session %s; /sessions lists them", session));
}

bool action_load(struct repl *r, char *arg, struct error *err)
{
    struct session_lock lock;
    struct buf note = {0}, warning = {0}, path = {0};
    if (repl_is_in(r, arg))
        return error_set(err, ERR_USAGE, "this is session %s", arg);
    bool ok = repl_saved_path(r, arg, &path, err);
    ok = ok && made_with_this(r, arg, buf_str(&path), err);
    bool something = conversation_n_turns(r->c) > 0;
    ok = ok && (!something || shelf_put(&r->shelf, r->c, err));
    if (ok && something && !shelf_settings(&r->shelf, r->opt, err)) {
        ok = false;
        shelf_forget(&r->shelf);
    }
    if (ok && !session_open(&lock, arg, r->c, r->opt, false, &note, &warning, err)) {
        ok = false;
        if (something)
            shelf_forget(&r->shelf);
    }
    if (ok) {
        if (something) {
            shelf_left(&r->shelf, r->session);
            shelf_replaced(&r->shelf, r->c);
        } else {
            session_remove_empty(r->session);
            session_lock_release(r->session);
        }
        *r->session = lock;
        view_say(&r->view, "(%s)\n", buf_str(&note));
        if (warning.len > 0)
            view_say(&r->view, "hokku: %s\n", buf_str(&warning));
        repl_show_tail(r);
    }
    buf_release(&note);
    buf_release(&warning);
    buf_release(&path);
    return ok;
}

bool action_sessions(struct repl *r, char *arg, struct error *err)
{
    (void)arg;
    size_t n;
    char **names;
    session_lock_wait(r->session);
    if (!session_names(r->opt->state_dir, &names, &n, err))
        return false;
    static const char here[] = " · here";
    const size_t columns = out_columns(OUT_STDERR), n_here = termsafe_width(here, strlen(here));
    const struct session_table table =
        session_table_of(names, n, columns > n_here ? columns - n_here : columns);
    struct session_row *rows = session_rows(r->opt->state_dir, names, n, err);
    for (size_t i = 0; rows && i < n; i++) {
        struct buf line = {0};
        if (rows[i].good)
            session_info_line(&table, rows[i].name, &rows[i].info, &line);
        else
            session_name_column(&table, rows[i].name, &line);
        view_say(&r->view, "%s%s\n", buf_str(&line),
                 !rows[i].good                 ? rows[i].err.text
                 : repl_is_in(r, rows[i].name) ? here
                                               : "");
        buf_release(&line);
    }
    const bool ok = rows != NULL;
    session_rows_free(rows, n);
    if (n == 0)
        view_say(&r->view, "(no saved sessions; /save NAME saves this one)\n");
    session_names_free(names, n);
    return ok;
}

bool action_rename(struct repl *r, char *arg, struct error *err)
{
    char *to = strpbrk(arg, " \t");
    if (!to)
        return error_set(err, ERR_USAGE, "/rename: found one name, expected NAME NEW");
    *to++ = '\0';
    to += strspn(to, " \t");
    if (repl_is_in(r, arg))
        return error_set(err, ERR_USAGE, "this is session %s: /fork %s, then /delete %s", arg, to,
                         arg);
    if (repl_is_in(r, to))
        return error_set(err, ERR_USAGE, "this is session %s: choose another name for %s", to, arg);
    struct buf path = {0};
    bool ok =
        repl_saved_path(r, arg, &path, err) && session_rename(r->opt->state_dir, arg, to, err);
    if (ok) {
        shelf_renamed(&r->shelf, arg, to);
        view_say(&r->view, "(%s is now %s)\n", arg, to);
    }
    buf_release(&path);
    return ok;
}

bool action_delete(struct repl *r, char *arg, struct error *err)
{
    if (repl_is_in(r, arg))
        return error_set(err, ERR_USAGE, "this is session %s: leave it first, with /clear or /load",
                         arg);
    struct buf path = {0};
    bool ok = repl_saved_path(r, arg, &path, err) && session_remove(r->opt->state_dir, arg, err);
    if (ok)
        view_say(&r->view, "(session %s is removed)\n", arg);
    buf_release(&path);
    return ok;
}
