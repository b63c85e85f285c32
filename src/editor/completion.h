// Candidates for a word, and the names of files as candidates.
#ifndef HOKKU_EDITOR_COMPLETION_H
#define HOKKU_EDITOR_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct completions {
    const char *word; // what stands before the cursor, from completions_word on
    char **items;     // that begin with it; owned
    size_t n, cap;
};

void completions_release(struct completions *c);
// Where the last word of line begins: at a quote that is not closed, or after the last blank
// without a backslash.
size_t completions_word(const char *line);
// The quote that the word begins with; 0: none.
char completions_quote(const struct completions *c);
// Adds name[0..n) when it begins with the word and is shown as it is: nobody should choose what a
// terminal must not see. Where memory is short, fewer are offered.
void completions_add(struct completions *c, const char *name, size_t n);
// Files and directories (with a slash at the end), a backslash before what would part, quote or
// end them; dot files only when the word begins so. home: what ~ stands for, or NULL.
void completions_add_files(struct completions *c, const char *home);
// The name of a file as it is typed, after a quote (0: without one).
void completions_escape(struct buf *out, const char *name, char quote);
// Bytes that all candidates have in common; whole characters.
size_t completions_common(const struct completions *c);
// The list to show, in columns.
void completions_list(const struct completions *c, size_t cols, struct buf *out);

#endif
