// Text on a terminal while it streams: made safe and lightly styled. Lines are the terminal's to
// break: what is copied from the screen, or wrapped anew after a resize, is what was written, and
// nothing depends on how wide the terminal thinks a character is.
#ifndef HOKKU_TERM_TERMOUT_H
#define HOKKU_TERM_TERMOUT_H

#include "base/termsafe.h"
#include "term/fence.h"

struct termout {
    // settings
    bool color;    // styles may be used
    bool markdown; // headings, lists, tables, **bold**, `code` and ``` blocks are styled (needs
                   // color)
    // state
    struct termsafe safe;
    struct buf text;       // scratch: the safe text of one call
    unsigned style, shown; // wanted, and last told to the terminal
    bool dim;              // thinking
    struct fence fence;
    size_t n_line;  // characters of the line so far
    bool indent;    // only spaces so far in this line
    size_t n_row;   // of the table that this line is a row of, counted from 1; 0: none
    size_t n_above; // of the one that the line above is a row of
    bool rule;      // only what parts a table's head from its body, so far
    bool heading, bold, code;
    char held[8]; // marks that may style themselves: it depends on what follows
    size_t n_held;
    bool held_first; // they are the first of their line
    char previous;
};

void termout_init(struct termout *t, bool color, bool markdown);
void termout_release(struct termout *t);
// Appends to out the bytes to write to the terminal for text[0..n).
bool termout_push(struct termout *t, const char *text, size_t n, struct buf *out);
// Ends the answer: what is held, styles off. Does not end the line.
bool termout_end(struct termout *t, struct buf *out);
void termout_dim(struct termout *t, bool dim, struct buf *out); // for thinking
bool termout_at_line_start(const struct termout *t);

#endif
