// Text on a terminal while it streams: made safe, wrapped at words, lightly styled.
//
// Wrapping leaves copy and paste alone: a line is filled with spaces up to the edge and the
// terminal itself wraps it, so that it stays one line for the terminal. Code blocks are not wrapped
// at words. A word appears as it comes and moves to the next line only when it does not fit.
#ifndef HOKKU_CHAT_TERMOUT_H
#define HOKKU_CHAT_TERMOUT_H

#include "base/termsafe.h"

struct termout {
    // settings
    size_t width;  // columns; 0: no wrapping
    bool color;    // styles may be used
    bool markdown; // **bold**, `code`, # headings and ``` blocks are styled (needs color)
    // state
    struct termsafe safe;
    struct buf text;       // scratch: the safe text of one call
    size_t col;            // of the cursor, 0 = left; == width: the terminal will wrap next
    struct buf word;       // bytes of the word being written, styles included
    size_t word_width;     // its columns
    unsigned word_style;   // in force where it began
    unsigned style, shown; // wanted, and last told to the terminal
    bool dim;              // thinking
    char line[8];          // first bytes of the line, to know headings and fences
    size_t n_line;         // bytes of the line so far
    bool in_fence, fence_line, heading, bold, code;
    int stars;      // of a run of * just seen
    bool bold_next; // ** came: bold begins if no space follows
    char previous;
};

void termout_init(struct termout *t, size_t width, bool color, bool markdown);
void termout_release(struct termout *t);
// Appends to out the bytes to write to the terminal for text[0..n).
bool termout_push(struct termout *t, const char *text, size_t n, struct buf *out);
// Ends the answer: what is held, styles off. Does not end the line.
bool termout_end(struct termout *t, struct buf *out);
void termout_dim(struct termout *t, bool dim, struct buf *out); // for thinking
void termout_resize(struct termout *t, size_t width);
bool termout_at_line_start(const struct termout *t);

#endif
