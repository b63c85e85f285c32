// Shows a message while it is typed, in a window of any size: only what changed is written, in one
// write. Lines are broken by the terminal itself, so that they stay lines for its copy and for its
// own rewrapping; a message taller than the window scrolls within it.
#ifndef HOKKU_EDITOR_PAINTER_H
#define HOKKU_EDITOR_PAINTER_H

#include "editor/layout.h"

struct painted {      // rows as they are on the screen
    struct buf cells; // of each character: 0, its columns, the bytes shown
    struct painted_row {
        size_t end; // in cells
        size_t width;
        enum row_end kind;
        bool flows;     // into the next row: the terminal itself breaks the line there
        bool uncertain; // holds an uncertain character
    } * row;
    size_t n, cap;
};

struct painter {
    int fd;
    size_t cols, rows; // of the window
    bool color;        // the prompt has the accent
    size_t top;        // position where the first visible row begins
    size_t row, col;   // the cursor, from the first row painted
    // The rows before top are in the scrollback, where the terminal itself moved them as the window
    // changed: they are not shown a second time as long as they can stay there.
    bool held;
    struct painted shown, next;
    struct buf out; // not yet written
};

struct message {
    const char *prompt; // safe to show
    const char *text;
    size_t n, cursor;
};

void painter_release(struct painter *p);
// What is painted next begins at the line where the cursor is.
void painter_start(struct painter *p);
void painter_paint(struct painter *p, const struct message *m);
// Leaves the message as it stands and goes below it. whole: all of it, where it has no more than a
// thousand rows; else what the window shows.
void painter_leave(struct painter *p, const struct message *m, bool whole);
void painter_clear_screen(struct painter *p);
// The window has another size. at_row, at_col: where the terminal says that the cursor is now, from
// 1, by which those that wrap lines anew, or take rows back from the scrollback, are told from
// those that do not; 0: unknown.
void painter_resize(struct painter *p, const struct message *m, size_t cols, size_t rows,
                    size_t at_row, size_t at_col);
// Other text at the cursor: sent with what is painted next.
void painter_put(struct painter *p, const char *s);
void painter_flush(struct painter *p);
// How the message lies in this window.
struct layout painter_layout(const struct painter *p, const struct message *m);

#endif
