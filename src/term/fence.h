// Blocks of code between lines of ``` or ~~~ (CommonMark 0.31, 4.5), found while text streams. Any
// indentation will do: models put blocks into lists.
#ifndef HOKKU_TERM_FENCE_H
#define HOKKU_TERM_FENCE_H

#include <stdbool.h>
#include <stddef.h>

struct fence { // zeroed: the text begins
    char mark; // of the block that is open
    size_t n;  // how many of them opened it; 0: none is open
    // the line so far
    enum { FENCE_INDENT, FENCE_MARKS, FENCE_REST, FENCE_NO } at;
    char line_mark;
    size_t line_n;
};

// Whether the line so far, if it ended here, would open or close a block.
bool fence_line(const struct fence *f);
// The next character of the text (beyond ASCII: any that is no mark and no space).
void fence_push(struct fence *f, char c);
// Whether only indentation, or marks after it, are in the line so far.
static inline bool fence_begins(const struct fence *f)
{
    return f->at == FENCE_INDENT || f->at == FENCE_MARKS;
}

#endif
