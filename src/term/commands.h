// The commands of the chat, in one table: dispatch, help and completion are made from it.
#ifndef HOKKU_TERM_COMMANDS_H
#define HOKKU_TERM_COMMANDS_H

#include <string.h>

#include "term/attach.h"
#include "term/repl.h"
#include "term/shelf.h"
#include "term/view.h"
#include "dialog/why.h"
#include "editor/lineedit.h"

struct repl {
    const struct repl_options *o;
    struct options *opt;
    struct conversation *c;
    struct view view;
    struct line_editor *editor; // NULL: lines as the terminal itself gives them
    struct session_lock *session;
    struct shelf shelf;       // what was replaced
    struct attached attached; // by /read: goes before the next message
    struct buf prefill;       // by /prefill: start of the next answer
    char *edit;               // text to put on the next line; owned
    bool edit_no_command;     // it was between three quotes, whatever it begins with
    size_t edit_turn;         // the turn that it replaces, counted from 1; 0: none
    struct why why;           // of the last answer, with --logprobs
    enum finish finish;       // of the last answer
    bool history_failed;      // said so once
    bool line_cut;            // the terminal has cut a line of the message
    bool answered;            // at least once, if only in part: ends a chat of --single-turn
    bool leave;
    bool fatal; // standard output is gone
};

// What an argument completes to.
enum completes {
    COMPLETE_NONE,
    COMPLETE_FILE,
    COMPLETE_SESSION,
    COMPLETE_SETTING,
    COMPLETE_WORDS,
    COMPLETE_PROMPT
};

struct command {
    const char *name, *alias; // with the slash; alias may be NULL
    const char *args;         // "[N]"; "" for none
    const char *help;
    enum completes completes;
    const char *words; // COMPLETE_WORDS: "on|off|hide"
    bool (*run)(struct repl *r, char *arg, struct error *err);
};

const struct command *commands_table(size_t *n);

// Runs "/name argument" (changed while parsed). Errors: ERR_USAGE for an unknown one, with the
// nearest.
bool command_run(struct repl *r, char *line, struct error *err);

// Candidates for the word at `begin` of line (see lineedit.h).
void command_complete(void *repl, const char *line, size_t begin, struct completions *out);

// Lets the user's editor change a text, which is put on the next line. Errors: ERR_FAIL.
bool repl_edit(struct repl *r, const char *text, struct error *err);

enum answer_kind { ANSWER_NEW, ANSWER_CONTINUE };
// Answers what the conversation ends with, shows it, saves a named session. Errors: those of the
// answer; a user's message without an answer has then been taken back.
bool repl_answer(struct repl *r, enum answer_kind kind, struct error *err);
// Another answer instead of the last one, with a seed that stays; if there is none both come back.
bool repl_answer_again(struct repl *r, uint64_t seed, struct error *err);
// Whether the session has a name that somebody gave it.
static inline bool repl_is_named(const struct repl *r)
{
    return r->session->fd >= 0 && !r->session->unnamed;
}
static inline bool repl_is_in(const struct repl *r, const char *session)
{
    return r->session->fd >= 0 && strcmp(r->session->name, session) == 0;
}
// The file of a saved session.
bool repl_saved_path(const struct repl *r, const char *session, struct buf *path,
                     struct error *err);
// The last turn once more on the screen, for a session just opened.
void repl_show_tail(struct repl *r);

#endif
