#include "editor/painter.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

enum { WHOLE = 1000 }; // rows of a message left in the scrollback

void painter_release(struct painter *p)
{
    buf_release(&p->shown.cells);
    buf_release(&p->next.cells);
    buf_release(&p->out);
    free(p->shown.row);
    free(p->next.row);
    *p = (struct painter){0};
}

static void forget(struct painter *p)
{
    p->shown.n = 0;
    buf_clear(&p->shown.cells);
}

void painter_start(struct painter *p)
{
    forget(p);
    p->row = p->col = 0;
    p->held = false;
}

void painter_put(struct painter *p, const char *s)
{
    buf_puts(&p->out, s);
}

void painter_flush(struct painter *p)
{
    if (p->out.len == 0)
        return;
    fd_write_all(p->fd, "the terminal", buf_str(&p->out), p->out.len, NULL);
    buf_clear(&p->out);
}

// -------------------------------------------------------------------------------- what to show

// The end of the prompt, where all of it would leave no room.
static const char *prompt_tail(const struct painter *p, const char *prompt, size_t *width)
{
    size_t n = strlen(prompt);
    *width = 0;
    for (size_t i = 0; i < n;) {
        struct cluster c = cluster_at(prompt + i, n - i);
        *width += c.width;
        i += c.n;
    }
    while (*width > p->cols / 2) {
        struct cluster c = cluster_at(prompt, n);
        *width -= c.width;
        prompt += c.n;
        n -= c.n;
    }
    return prompt;
}

struct layout painter_layout(const struct painter *p, const struct message *m)
{
    struct layout l = {.s = m->text, .n = m->n, .cols = p->cols};
    prompt_tail(p, m->prompt, &l.prompt);
    return l;
}

// The first visible row: as before if the cursor is then visible, moved no further than it must.
static size_t choose_top(const struct painter *p, const struct layout *l, size_t cursor)
{
    size_t top = layout_row_of(l, p->top < l->n ? p->top : l->n).begin, n = 0;
    if (cursor < top)
        return layout_row_of(l, cursor).begin;
    bool seen = false;
    for (size_t at = top; n < p->rows; n++) {
        struct row r = layout_row(l, at);
        seen = seen || cursor < r.next;
        at = r.next;
        if (r.kind == ROW_LAST) {
            n++;
            break;
        }
    }
    if (!seen)
        return layout_above(l, cursor, p->rows - 1);
    return n < p->rows && top > 0 && !p->held ? layout_above(l, l->n, p->rows - 1) : top;
}

static void add_cell(struct painted *to, const struct cluster *c, const char *s, bool too_wide)
{
    buf_putc(&to->cells, '\0');
    buf_putc(&to->cells, (char)c->width);
    if (too_wide) {
        buf_putc(&to->cells, '?');
    } else if (*s == '\t') {
        for (size_t k = 0; k < c->width; k++)
            buf_putc(&to->cells, ' ');
    } else {
        cluster_show(s, c, &to->cells);
    }
}

// Each character has its style with it: any of them may be painted alone.
static void add_prompt_cell(const struct painter *p, struct painted *to, const struct cluster *c,
                            const char *s)
{
    if (!p->color || *s == ' ') {
        add_cell(to, c, s, false);
        return;
    }
    buf_putc(&to->cells, '\0');
    buf_putc(&to->cells, (char)c->width);
    buf_puts(&to->cells, "\033[0;1;36m");
    cluster_show(s, c, &to->cells);
    buf_puts(&to->cells, "\033[0m");
}

static bool add_row(struct painted *to, const struct painted_row *r)
{
    if (!array_grow(NULL, &to->row, to->n, &to->cap, sizeof *to->row))
        return false;
    if (to->n > 0 && r->uncertain) // it is wiped before it is written: the cursor must stand in it
        to->row[to->n - 1].flows = false;
    to->row[to->n++] = *r;
    return true;
}

// Whether a terminal breaks the line after r, and nowhere else, without being told.
static bool breaks_itself(const struct layout *l, const struct row *r)
{
    uint32_t cp;
    if (r->kind != ROW_SOFT || r->width == l->cols)
        return r->kind == ROW_SOFT;
    return r->width == l->cols - 1 && utf8_decode(l->s + r->next, l->n - r->next, &cp) > 0 &&
           utf8_width(cp) == 2;
}

// Fills p->next with the rows of the window and gives the cursor's place among them.
static bool build(struct painter *p, const struct message *m, size_t rows, size_t *row, size_t *col)
{
    struct painted *to = &p->next;
    struct layout l = {.s = m->text, .n = m->n, .cols = p->cols};
    const char *prompt = prompt_tail(p, m->prompt, &l.prompt);
    to->n = 0;
    *row = *col = 0;
    buf_clear(&to->cells);
    for (size_t at = p->top; to->n < rows;) {
        struct row r = layout_row(&l, at);
        struct painted_row pr = {.width = r.width, .kind = r.kind};
        size_t n_prompt = at == 0 ? strlen(prompt) : 0;
        for (size_t i = 0; i < n_prompt;) {
            struct cluster c = cluster_at(prompt + i, n_prompt - i);
            add_prompt_cell(p, to, &c, prompt + i);
            pr.uncertain = pr.uncertain || c.uncertain;
            i += c.n;
        }
        for (size_t i = r.begin, x = r.col; i < r.end;) {
            bool too_wide;
            struct cluster c = layout_cluster(&l, &r, i, x, &too_wide);
            add_cell(to, &c, l.s + i, too_wide);
            pr.uncertain = pr.uncertain || c.uncertain;
            i += c.n;
            x += c.width;
        }
        if (r.width == 0 && to->n > 0 && to->row[to->n - 1].flows) {
            // The row above is full: something must stand here for the terminal to break it.
            struct cluster space = {.n = 1, .width = 1};
            add_cell(to, &space, " ", false);
            pr.width = 1;
        }
        if (m->cursor >= r.begin && m->cursor < r.next) {
            *row = to->n;
            *col = layout_column(&l, &r, m->cursor);
        }
        pr.end = to->cells.len;
        pr.flows = !pr.uncertain && breaks_itself(&l, &r);
        if (!add_row(to, &pr))
            return false;
        at = r.next;
        if (r.kind == ROW_LAST)
            break;
    }
    return !to->cells.failed;
}

// --------------------------------------------------------------------------------- how to show it

static void go(struct painter *p, size_t row, size_t col)
{
    if (row < p->row)
        buf_printf(&p->out, "\033[%zuA", p->row - row);
    else if (row > p->row)
        buf_printf(&p->out, "\033[%zuB", row - p->row);
    if (col == 0)
        buf_putc(&p->out, '\r');
    else
        buf_printf(&p->out, "\033[%zuG", col + 1);
    p->row = row;
    p->col = col;
}

static size_t row_begin(const struct painted *s, size_t row)
{
    return row > 0 ? s->row[row - 1].end : 0;
}

static size_t next_cell(const struct painted *s, size_t i)
{
    const char *next = memchr(s->cells.data + i + 1, '\0', s->cells.len - i - 1);
    return next ? (size_t)(next - s->cells.data) : s->cells.len;
}

static size_t cell_width(const struct painted *s, size_t i)
{
    return (unsigned char)s->cells.data[i + 1];
}

// The first cell of a row that differs from what is shown, and its column.
static size_t first_difference(const struct painter *p, size_t row, size_t *col)
{
    const struct painted *a = &p->shown, *b = &p->next;
    size_t i = row_begin(a, row), j = row_begin(b, row);
    *col = 0;
    while (i < a->row[row].end && j < b->row[row].end) {
        size_t i_next = next_cell(a, i), j_next = next_cell(b, j);
        if (i_next - i != j_next - j ||
            memcmp(a->cells.data + i, b->cells.data + j, j_next - j) != 0)
            break;
        *col += cell_width(b, j);
        i = i_next;
        j = j_next;
    }
    return j;
}

static bool same_row(const struct painter *p, size_t row, size_t j)
{
    const struct painted_row *a = &p->shown.row[row], *b = &p->next.row[row];
    return j == b->end && a->width == b->width && a->kind == b->kind && a->flows == b->flows &&
           a->end - row_begin(&p->shown, row) == b->end - row_begin(&p->next, row);
}

// A row that is full and now flows into the next: only a character that is written in its last
// column makes the terminal break it there, so that the last one is written again.
static size_t last_cell(const struct painted *s, size_t row, size_t *col)
{
    size_t last = row_begin(s, row);
    for (size_t j = last; j < s->row[row].end; j = next_cell(s, j))
        last = j;
    *col -= cell_width(s, last);
    return last;
}

static void put_cells(struct painter *p, size_t row, size_t j, size_t col)
{
    const struct painted *s = &p->next;
    if (s->row[row].uncertain)
        buf_puts(&p->out, "\033[K");
    while (j < s->row[row].end) {
        size_t next = next_cell(s, j);
        col += cell_width(s, j);
        buf_append(&p->out, s->cells.data + j + 2, next - j - 2);
        // Whatever the terminal thinks of emoji: the next character stands where we say.
        if (s->row[row].uncertain && col < p->cols)
            buf_printf(&p->out, "\033[%zuG", col + 1);
        j = next;
    }
}

static void show_next(struct painter *p)
{
    const struct painted *s = &p->next;
    size_t row = 0, col = 0, j = 0;
    // (Cleared from its very first cell, a window's content goes to the scrollback of tmux.)
    if (p->shown.n == 0)
        buf_puts(&p->out, "\r\033[K\033[C\033[J\r");
    while (row < s->n && row < p->shown.n) {
        j = first_difference(p, row, &col);
        if (!same_row(p, row, j))
            break;
        row++;
        col = 0;
        j = row_begin(s, row);
    }
    if (row < s->n && j == s->row[row].end && s->row[row].flows && col == p->cols)
        j = last_cell(s, row, &col);
    if (row < s->n && (p->row != row || p->col != col))
        go(p, row, col);
    for (; row < s->n; row++) {
        const struct painted_row *r = &s->row[row];
        put_cells(p, row, j, col);
        p->row = row;
        p->col = r->width;
        if (row < p->shown.n && r->width < p->shown.row[row].width)
            buf_puts(&p->out, "\033[K");
        if (row + 1 == s->n)
            break;
        j = r->end;
        col = 0;
        if (!r->flows)
            buf_puts(&p->out, "\n");
    }
    if (p->shown.n > s->n) {
        go(p, s->n, 0);
        buf_puts(&p->out, "\033[J");
    }
    struct painted swap = p->shown;
    p->shown = p->next;
    p->next = swap;
}

void painter_paint(struct painter *p, const struct message *m)
{
    size_t row, col;
    struct layout l = painter_layout(p, m);
    size_t top = choose_top(p, &l, m->cursor);
    p->held = p->held && top >= p->top && top > 0;
    p->top = top;
    if (build(p, m, p->rows, &row, &col)) {
        show_next(p);
        if (p->row != row || p->col != col)
            go(p, row, col);
    } else {
        painter_put(p, "\a");
    }
    painter_flush(p);
}

void painter_leave(struct painter *p, const struct message *m, bool whole)
{
    struct message end = *m;
    size_t row, col, n = 1, top;
    end.cursor = m->n;
    painter_paint(p, &end);
    top = p->top;
    if (top > 0 && whole) {
        struct layout l = painter_layout(p, &end);
        struct row r = layout_row(&l, 0);
        for (; n <= WHOLE && r.kind != ROW_LAST; n++)
            r = layout_row(&l, r.next);
        p->top = 0;
        if (n <= WHOLE && build(p, &end, n, &row, &col)) {
            go(p, 0, 0);
            forget(p);
            show_next(p);
        }
    }
    painter_put(p, "\n");
    painter_flush(p);
    painter_start(p);
    p->top = whole ? 0 : top;
}

void painter_clear_screen(struct painter *p)
{
    buf_puts(&p->out, "\033[H\033[2J");
    forget(p);
    p->row = p->col = 0;
}

// ------------------------------------------------------------------------------------ resizing

// Where the cursor is when the terminal has wrapped the painted lines anew, the first of them from
// column x. col may be `cols`: past the last column.
static void rewrapped(const struct painter *p, size_t cols, size_t x, size_t *row, size_t *col)
{
    const struct painted *s = &p->shown;
    size_t y = 0;
    for (size_t k = 0; k < s->n && k <= p->row; k++) {
        size_t old_x = 0;
        for (size_t j = row_begin(s, k); j < s->row[k].end; j = next_cell(s, j)) {
            size_t w = cell_width(s, j);
            if (x + w > cols) {
                x = 0;
                y++;
            }
            if (k == p->row && old_x == p->col)
                break;
            x += w;
            old_x += w;
        }
        if (k < p->row && !s->row[k].flows) {
            y++;
            x = 0;
        }
    }
    *row = y;
    *col = x;
}

void painter_resize(struct painter *p, const struct message *m, size_t cols, size_t rows,
                    size_t at_row, size_t at_col)
{
    size_t row, col, old_col = p->col < cols ? p->col : cols - 1;
    bool taller = rows > p->rows;
    p->cols = cols;
    p->rows = rows;
    struct layout l = painter_layout(p, m);
    size_t top = p->top < l.n ? p->top : l.n;
    struct row first = layout_row_of(&l, top);
    rewrapped(p, cols, p->held ? layout_column(&l, &first, top) : 0, &row, &col);
    p->top = first.begin;
    if (col >= cols && at_col == 1) { // past the edge: in the next row, or still on the last column
        row++;
        col = 0;
    }
    bool maybe_kept = at_col > 0 && at_col - 1 == old_col;
    if (maybe_kept && at_col - 1 != col)
        row = p->row;
    bool certain = at_row > 0 && (row == p->row || !maybe_kept);
    size_t above = at_row > 0 ? at_row - 1 : rows - 1; // rows that the window has above the cursor
    if (row > above && certain) {
        p->held = true;
        for (size_t k = above; k < row && p->top < l.n; k++)
            p->top = layout_row(&l, p->top).next;
    }
    p->held = p->held && !(taller && row == above);
    for (; p->held && row < above && p->top > 0; row++)
        p->top = layout_above(&l, p->top, 1);
    p->row = row < above ? row : above;
    go(p, 0, 0);
    forget(p);
}
