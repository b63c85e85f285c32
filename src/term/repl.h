// The chat in a terminal: read a message or a command, answer, again.
#ifndef HOKKU_TERM_REPL_H
#define HOKKU_TERM_REPL_H

#include "dialog/conversation.h"
#include "dialog/session_store.h"
#include "cli/options.h"
#include "term/shape.h"

struct repl_options {
    struct conversation *conv; // initialised, system prompt set
    struct options *opt;       // changed by /set
    struct shape *shape;       // the same
    struct cancel *cancel;     // what the engine polls
    bool out_tty, err_tty, out_color, err_color;
    bool dumb;                      // TERM=dumb: no escape sequences at all
    const char *banner;             // untrusted parts are filtered here; NULL: none
    const struct buf *first_prompt; // answered first; empty: none
    struct session_lock *session;   // the session, already loaded; fd -1: none
    bool resumed;                   // its last turn is shown
    const char *home;               // of the user; NULL: none
    const char *editor;             // the command of /editor
    const char *temp_dir;           // for its file
    // Another model for the same conversation, with the options as they are; note: what to tell the
    // user. On failure nothing has changed, but that the model's memory may be empty; or, if not
    // even what was open can be opened again, the conversation has no sequence any more.
    bool (*change_model)(void *user, const char *name, struct buf *note, struct error *err);
    void *user;
};

// The caller has the terminal (terminal_begin). Returns true when the user leaves. *death is the
// signal (SIGTERM, SIGHUP) that ended it, 0: none; the caller dies of it. Errors: those that make
// going on senseless (standard output is gone).
bool repl_run(const struct repl_options *o, int *death, struct error *err);

// Opens a named session for main: takes the lock and, when the file exists, restores conversation
// and settings; with keep_given, those that the command line gave stay. note: what to tell the
// user.
bool session_open(struct session_lock *l, const char *name, struct conversation *c,
                  struct options *o, bool keep_given, struct buf *note, struct buf *warning,
                  struct error *err);
// Takes a name for a chat that has none, so that it is kept; with --no-history, or without a place,
// it is not. What is wrong is told by warning; nothing depends on it.
void session_open_unnamed(struct session_lock *l, const struct options *o, struct buf *warning);
// Removes the file of one without a name, if no turn is in it.
void session_remove_empty(struct session_lock *l);
// A saved session to begin with (--base): a name, or a file; it is read once and never written.
bool session_open_base(const char *name, struct conversation *c, struct options *o,
                       struct buf *note, struct buf *warning, struct error *err);
// Saves it, and waits at most `seconds` for that (< 0: as long as it takes); the rest goes on
// beside what follows. Where only the text can be saved, this is said. False: nothing could.
bool session_save(struct session_lock *l, const struct conversation *c, const struct options *o,
                  double seconds, struct error *err);

#endif
