// What each command of the chat does. The argument has no white space around it and may be changed.
#ifndef HOKKU_TERM_ACTIONS_H
#define HOKKU_TERM_ACTIONS_H

#include "term/commands.h"
#include "editor/terminal.h"

bool action_help(struct repl *r, char *arg, struct error *err);
bool action_bye(struct repl *r, char *arg, struct error *err);
bool action_clear(struct repl *r, char *arg, struct error *err);
bool action_undo(struct repl *r, char *arg, struct error *err);
bool action_redo(struct repl *r, char *arg, struct error *err);
bool action_retry(struct repl *r, char *arg, struct error *err);
bool action_edit(struct repl *r, char *arg, struct error *err);
bool action_continue(struct repl *r, char *arg, struct error *err);
bool action_prefill(struct repl *r, char *arg, struct error *err);
bool action_read(struct repl *r, char *arg, struct error *err);
bool action_detach(struct repl *r, char *arg, struct error *err);
bool action_copy(struct repl *r, char *arg, struct error *err);
bool action_write(struct repl *r, char *arg, struct error *err);
bool action_editor(struct repl *r, char *arg, struct error *err);
bool action_rename(struct repl *r, char *arg, struct error *err);
bool action_delete(struct repl *r, char *arg, struct error *err);
bool action_export(struct repl *r, char *arg, struct error *err);
bool action_system(struct repl *r, char *arg, struct error *err);
bool action_set(struct repl *r, char *arg, struct error *err);
bool action_think(struct repl *r, char *arg, struct error *err);
bool action_model(struct repl *r, char *arg, struct error *err);
bool action_show(struct repl *r, char *arg, struct error *err);
bool action_context(struct repl *r, char *arg, struct error *err);
bool action_stats(struct repl *r, char *arg, struct error *err);
bool action_why(struct repl *r, char *arg, struct error *err);
bool action_save(struct repl *r, char *arg, struct error *err);
bool action_load(struct repl *r, char *arg, struct error *err);
bool action_fork(struct repl *r, char *arg, struct error *err);
bool action_sessions(struct repl *r, char *arg, struct error *err);

#endif
