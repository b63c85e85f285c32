#include "editor/layout.h"

#include <string.h>

#include "base/utf8.h"
#include "base/termsafe.h"

// Longer ones exist only to annoy; what follows is shown as marks without a letter.
enum { MAX_CLUSTER = 128, TAB = 8 };

static bool is_flag_letter(uint32_t cp)
{
    return cp >= 0x1F1E6 && cp <= 0x1F1FF;
}

static bool is_skin_tone(uint32_t cp)
{
    return cp >= 0x1F3FB && cp <= 0x1F3FF;
}

static bool is_pictograph(uint32_t cp)
{
    return (cp >= 0x2190 && cp <= 0x2BFF) || (cp >= 0x1F000 && cp <= 0x1FAFF);
}

static bool extends(uint32_t cp)
{
    return cp >= 0x300 && utf8_width(cp) == 0 && termsafe_plain(cp);
}

static size_t symbol_width(uint32_t cp)
{
    if (cp < 0x20 || cp == 0x7F)
        return 1;
    return cp < 0x10000 ? 8 : cp < 0x100000 ? 9 : 10; // <U+XXXX>
}

struct cluster cluster_at(const char *s, size_t n)
{
    struct cluster c = {.n = 1, .width = 1};
    unsigned char b = (unsigned char)s[0];
    if (b >= 0x20 && b < 0x7F && (n == 1 || (unsigned char)s[1] < 0x80))
        return c;
    uint32_t first, cp;
    size_t used = utf8_decode(s, n, &first);
    if (used == 0)
        return c;
    c.n = used;
    if (!termsafe_plain(first) || utf8_width(first) == 0) {
        c.width = symbol_width(first);
        return c;
    }
    c.width = (size_t)utf8_width(first);
    bool joined = false, half_flag = is_flag_letter(first);
    while (c.n < n && c.n < MAX_CLUSTER && (used = utf8_decode(s + c.n, n - c.n, &cp)) > 0) {
        if (extends(cp)) {
            joined = cp == 0x200D;
            if (cp == 0xFE0F && c.width == 1) {
                c.width = 2;
                c.uncertain = true;
            }
        } else if (is_pictograph(first) && (is_skin_tone(cp) || (joined && is_pictograph(cp)))) {
            c.width += (size_t)utf8_width(cp);
            c.uncertain = true;
            joined = false;
        } else if (half_flag && is_flag_letter(cp)) {
            c.width += 1;
            c.uncertain = true;
            half_flag = false;
        } else {
            break;
        }
        c.n += used;
    }
    return c;
}

size_t cluster_before(const char *s, size_t at)
{
    // From some way back, forward: clusters can only be told from their beginning.
    size_t i = at > 4 * MAX_CLUSTER ? at - 4 * MAX_CLUSTER : 0;
    while (i > 0 && i < at - 1 && ((unsigned char)s[i] & 0xC0) == 0x80)
        i++;
    for (;;) {
        size_t next = i + cluster_at(s + i, at - i).n;
        if (next >= at)
            return i;
        i = next;
    }
}

bool cluster_show(const char *s, const struct cluster *c, struct buf *out)
{
    uint32_t cp;
    size_t used = utf8_decode(s, c->n, &cp);
    if (used > 0 && termsafe_plain(cp) && utf8_width(cp) == 0)
        return buf_printf(out, "<U+%04X>", (unsigned)cp);
    return termsafe_text(s, c->n, true, out);
}

struct cluster layout_cluster(const struct layout *l, const struct row *r, size_t i, size_t col,
                              bool *too_wide)
{
    struct cluster c = {.n = 1};
    if (l->s[i] == '\t') {
        c.width = TAB - col % TAB;
        if (c.width > l->cols - col && col < l->cols)
            c.width = l->cols - col;
    } else {
        c = cluster_at(l->s + i, l->n - i);
    }
    *too_wide = i == r->begin && c.width > l->cols - r->col;
    if (*too_wide) {
        c.width = 1;
        c.uncertain = false;
    }
    return c;
}

struct row layout_row(const struct layout *l, size_t begin)
{
    struct row r = {.begin = begin, .col = begin == 0 ? l->prompt : 0, .kind = ROW_SOFT};
    size_t i = begin, col = r.col;
    bool too_wide;
    while (col < l->cols) {
        if (i == l->n || l->s[i] == '\n') {
            r.kind = i == l->n ? ROW_LAST : ROW_HARD;
            break;
        }
        struct cluster c = layout_cluster(l, &r, i, col, &too_wide);
        if (c.width > l->cols - col)
            break;
        i += c.n;
        col += c.width;
    }
    r.end = i;
    r.next = r.kind == ROW_SOFT ? i : i + 1;
    r.width = col;
    return r;
}

static size_t line_begin(const struct layout *l, size_t pos)
{
    const char *nl = pos > 0 ? memrchr(l->s, '\n', pos) : NULL;
    return nl ? (size_t)(nl - l->s) + 1 : 0;
}

struct row layout_row_of(const struct layout *l, size_t pos)
{
    struct row r = layout_row(l, line_begin(l, pos));
    while (pos >= r.next && r.kind != ROW_LAST)
        r = layout_row(l, r.next);
    return r;
}

size_t layout_above(const struct layout *l, size_t pos, size_t up)
{
    for (;;) {
        size_t line = line_begin(l, pos), before = 0;
        struct row r = layout_row(l, line);
        for (; pos >= r.next && r.kind != ROW_LAST; before++)
            r = layout_row(l, r.next);
        if (before >= up) {
            r = layout_row(l, line);
            for (size_t k = before - up; k > 0; k--)
                r = layout_row(l, r.next);
            return r.begin;
        }
        if (line == 0)
            return 0;
        pos = line - 1; // the break that ends the line above
        up -= before + 1;
    }
}

size_t layout_column(const struct layout *l, const struct row *r, size_t pos)
{
    size_t col = r->col;
    bool too_wide;
    for (size_t i = r->begin; i < pos && i < r->end;) {
        struct cluster c = layout_cluster(l, r, i, col, &too_wide);
        i += c.n;
        col += c.width;
    }
    return col;
}

size_t layout_position(const struct layout *l, const struct row *r, size_t col)
{
    size_t i = r->begin, x = r->col;
    bool too_wide;
    while (i < r->end) {
        struct cluster c = layout_cluster(l, r, i, x, &too_wide);
        if (x + c.width > col || (r->kind == ROW_SOFT && i + c.n >= r->end))
            break;
        i += c.n;
        x += c.width;
    }
    return i;
}
