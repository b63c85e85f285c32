// Typing one message: readline with several lines (Ctrl-J, Alt-Enter, paste), history with search,
// completion, resize, and signals that never leave the terminal in a bad mode. readline is global,
// and so is this: one editor at a time, after terminal_begin.
#ifndef HOKKU_CHAT_LINEEDIT_H
#define HOKKU_CHAT_LINEEDIT_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor {
    // Candidates for the word that begins at `begin` of line; one more each call, from *state = 0;
    // NULL at the end. Each is malloced. *files set: complete file names instead.
    char *(*complete)(void *user, const char *line, size_t begin, const char *word, int state,
                      bool *files);
    void *user;
};

enum line_result {
    LINE_TEXT,
    LINE_END,       // Ctrl-D at an empty line, or the input is gone
    LINE_INTERRUPT, // Ctrl-C; *was_empty says whether something had been typed
    LINE_DEATH,     // SIGTERM or SIGHUP
};

void lineedit_begin(const struct line_editor *e); // borrowed until lineedit_end
void lineedit_end(void);
void lineedit_add_history(const char *entry);
// initial (may be NULL) stands on the line, ready to be changed. *text is malloced.
enum line_result lineedit_read(const char *prompt, const char *initial, char **text,
                               bool *was_empty);

#endif
