// Text on a terminal: characters as a reader counts them (grapheme clusters, near enough), and the
// rows that they make. A row is laid out from where it begins; nothing is kept, so that a text of
// megabytes costs what its visible rows cost.
#ifndef HOKKU_EDITOR_LAYOUT_H
#define HOKKU_EDITOR_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct cluster {
    size_t n;     // bytes
    size_t width; // columns, at least 1
    // Terminals disagree about joined emoji and variation selectors: width is then the largest
    // answer, and whoever paints must say where the next character goes.
    bool uncertain;
};

// The character that begins at s; n > 0. A mark without a letter, a control and whatever else is
// not shown as it is are characters of their own, as wide as the symbol that stands for them.
struct cluster cluster_at(const char *s, size_t n);
size_t cluster_before(const char *s, size_t at); // where the one before `at` begins; at > 0
bool cluster_show(const char *s, const struct cluster *c, struct buf *out);

struct layout {
    const char *s;
    size_t n;
    size_t cols;   // of the window, at least 1
    size_t prompt; // columns taken before the first character; < cols
};

enum row_end {
    ROW_HARD, // a line break follows
    ROW_SOFT, // the line goes on in the next row
    ROW_LAST,
};

// A row holds the positions begin <= p < next; one as wide as the window always has a next one, so
// that every position has a column.
struct row {
    size_t begin, end, next;
    size_t col, width; // columns where it begins (the prompt) and ends
    enum row_end kind;
};

struct row layout_row(const struct layout *l, size_t begin);
struct row layout_row_of(const struct layout *l, size_t pos);
// Where the row `up` rows above that of pos begins, or 0 when there are fewer.
size_t layout_above(const struct layout *l, size_t pos, size_t up);
size_t layout_column(const struct layout *l, const struct row *r, size_t pos);
// The position in r nearest to a column, not right of it.
size_t layout_position(const struct layout *l, const struct row *r, size_t col);
// The character at i, whose width depends on the column: a tab, or one that fits no row (shown as
// a question mark).
struct cluster layout_cluster(const struct layout *l, const struct row *r, size_t i, size_t col,
                              bool *too_wide);

#endif
