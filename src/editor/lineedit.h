// Typing one message on a terminal: several lines, paste, history with search, completion, any
// window size, and signals that never leave the terminal in a bad mode. Between terminal_begin and
// terminal_end.
#ifndef HOKKU_EDITOR_LINEEDIT_H
#define HOKKU_EDITOR_LINEEDIT_H

#include "editor/completion.h"

struct line_editor; // opaque

enum line_result {
    LINE_TEXT,
    LINE_EDITOR,    // the same, which is to be changed in an editor
    LINE_END,       // Ctrl-D at an empty line, or the input is gone
    LINE_INTERRUPT, // Ctrl-C; *was_empty says whether something had been typed
    LINE_DEATH,     // SIGTERM or SIGHUP
};

// Adds candidates for the word at `begin` of line, which ends at the cursor.
typedef void complete_fn(void *user, const char *line, size_t begin, struct completions *out);

// Reads keys from fd_in, shows the message on fd_out. complete may be NULL. NULL: no memory.
struct line_editor *lineedit_create(int fd_in, int fd_out, complete_fn *complete, void *user);
void lineedit_set_color(struct line_editor *e, bool on); // of the prompt
void lineedit_free(struct line_editor *e);
void lineedit_add_history(struct line_editor *e, const char *entry);
// initial (may be NULL) stands on the line, ready to be changed. text gets the message: UTF-8
// without NUL. Keys typed after Enter wait for the next call, in TERMINAL_ANSWERING.
enum line_result lineedit_read(struct line_editor *e, const char *prompt, const char *initial,
                               struct buf *text, bool *was_empty);
// Forgets them, as the terminal forgets what was typed ahead of a Ctrl-C.
void lineedit_discard_input(struct line_editor *e);
// Whether one of them is a Ctrl-C, which came when the terminal took it for a key; they are
// forgotten then.
bool lineedit_interrupted(struct line_editor *e);

#endif
