// The text of one message while it is typed: a cursor, what was cut last, and undo. Knows no
// terminal. Positions are byte offsets at the beginning of a character; the text is UTF-8.
#ifndef HOKKU_EDITOR_EDIT_H
#define HOKKU_EDITOR_EDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct change { // replaced: n_inserted bytes now stand where `removed` stood
    size_t at, n_inserted, cursor;
    struct buf removed;
};

struct edit {
    struct buf text;
    size_t at;         // the cursor
    struct buf killed; // what Ctrl-Y brings back
    struct change *undo;
    size_t n_undo, cap_undo;
    bool typing; // the last change was a typed character: the next one belongs to it
};

enum where {
    WHERE_LEFT, // one character
    WHERE_RIGHT,
    WHERE_WORD_LEFT, // words as Emacs has them: letters and digits
    WHERE_WORD_RIGHT,
    WHERE_BLANK_LEFT, // words as Unix has them: what stands between blanks
    WHERE_LINE_BEGIN,
    WHERE_LINE_END,
    WHERE_TEXT_BEGIN,
    WHERE_TEXT_END,
};

// A zeroed struct edit is an empty one. Functions that return bool fail when memory is short, and
// then change nothing.
void edit_release(struct edit *e);
bool edit_set(struct edit *e, const char *text, size_t n); // cursor at the end, nothing to undo
size_t edit_find(const struct edit *e, enum where where);
bool edit_insert(struct edit *e, const char *s, size_t n);
bool edit_type(struct edit *e, const char *s, size_t n); // one undo takes back a run of these
bool edit_delete(struct edit *e, enum where to);
// A line's end or beginning reached, the line break itself is cut. join: to what was cut before.
bool edit_kill(struct edit *e, enum where to, bool join);
bool edit_transpose(struct edit *e); // the characters before and at the cursor
bool edit_undo(struct edit *e);      // false: nothing to undo

#endif
