#include "term/termout.h"

#include <string.h>

#include "base/utf8.h"

enum { STYLE_BOLD = 1, STYLE_DIM = 2, STYLE_ACCENT = 4 };

void termout_init(struct termout *t, bool color, bool markdown)
{
    memset(t, 0, sizeof *t);
    t->color = color;
    t->markdown = markdown && color;
    t->indent = true;
    t->previous = '\n';
}

void termout_release(struct termout *t)
{
    buf_release(&t->text);
}

// Styles that are readable on light and on dark, and of the terminal's own palette.
static void sync_style(struct termout *t, struct buf *out)
{
    if (t->style == t->shown || !t->color)
        return;
    buf_puts(out, "\x1b[0");
    if (t->style & STYLE_BOLD)
        buf_puts(out, ";1");
    if (t->style & STYLE_DIM)
        buf_puts(out, ";2");
    if (t->style & STYLE_ACCENT)
        buf_puts(out, ";36");
    buf_putc(out, 'm');
    t->shown = t->style;
}

static void want_style(struct termout *t)
{
    t->style = (t->dim ? STYLE_DIM : 0) | (t->heading || t->bold ? STYLE_BOLD : 0) |
               (t->code || t->fence.n > 0 || fence_line(&t->fence) ? STYLE_ACCENT : 0);
}

static void write_held(struct termout *t, unsigned style, struct buf *out)
{
    if (t->n_held == 0)
        return;
    want_style(t);
    t->style |= style;
    sync_style(t, out);
    buf_append(out, t->held, t->n_held);
    t->n_held = 0;
}

static bool hold(struct termout *t, char c)
{
    t->held_first = t->n_held == 0 ? t->indent : t->held_first;
    t->held[t->n_held++] = c;
    return true;
}

// Whether cp belongs to the marks that are held, and waits with them; else these are written, in
// the style that they have now that it is known.
static bool decide_held(struct termout *t, uint32_t cp, struct buf *out)
{
    char first = t->held[0], last = t->held[t->n_held - 1];
    bool space = cp == ' ', digit = cp >= '0' && cp <= '9';
    switch (first) {
    case '#':
        if (cp == '#' && t->n_held < 6)
            return hold(t, '#');
        t->heading = space;
        write_held(t, 0, out);
        return false;
    case '*':
        if (cp == '*' && t->n_held == 1 && t->bold) {
            hold(t, '*');
            write_held(t, 0, out);
            t->bold = false;
            return true;
        }
        if (cp == '*' && t->n_held == 1)
            return hold(t, '*');
        if (t->n_held == 2)
            t->bold = !space && cp != '\n' && cp != '\t' && cp != '*';
        write_held(t, t->n_held == 1 && t->held_first && space ? STYLE_ACCENT : 0, out);
        return false;
    case '|':
        write_held(t, STYLE_DIM, out);
        t->heading = space && t->n_row == 1;
        return false;
    case '-':
    case '+':
    case '>':
        write_held(t, space ? STYLE_ACCENT : 0, out);
        return false;
    default: // a number
        if ((digit && last >= '0' && last <= '9' && t->n_held < 4) ||
            ((cp == '.' || cp == ')') && last >= '0' && last <= '9'))
            return hold(t, (char)cp);
        write_held(t, space && (last == '.' || last == ')') ? STYLE_ACCENT : 0, out);
        return false;
    }
}

static bool begins_mark(const struct termout *t, uint32_t cp)
{
    if (cp == '*')
        return true;
    return t->indent && ((cp == '#' && t->n_line == 0) || cp == '-' || cp == '+' || cp == '>' ||
                         cp == '|' || (cp >= '0' && cp <= '9'));
}

static void end_line(struct termout *t)
{
    t->heading = t->bold = t->code = t->rule = false;
    t->n_line = 0;
    t->indent = true;
    t->n_above = t->n_row;
    t->n_row = 0;
}

// What follows from a character that was written, or is held.
static void taken(struct termout *t, uint32_t cp, bool code_before)
{
    // Backticks at the start of a line may become a fence: they open, whatever their number.
    bool opening = fence_begins(&t->fence), in_fence = t->fence.n > 0;
    fence_push(&t->fence, cp < 0x80 ? (char)cp : 'x');
    if (cp == '\n') {
        end_line(t);
        return;
    }
    t->n_line++;
    t->indent = t->indent && cp == ' ';
    t->rule = t->rule && (cp == '|' || cp == '-' || cp == ':' || cp == ' ');
    if (!in_fence && cp == '`' && code_before && !opening)
        t->code = false;
}

static void put_markdown(struct termout *t, uint32_t cp, const char *bytes, size_t n,
                         struct buf *out)
{
    bool text = t->fence.n == 0 && !t->code, code_before = t->code;
    if (t->n_held > 0 && decide_held(t, cp, out)) {
        taken(t, cp, false);
        return;
    }
    if (text && begins_mark(t, cp)) {
        if (t->indent && cp == '|') {
            t->n_row = t->n_above + 1;
            t->rule = t->n_row == 2;
        }
        hold(t, (char)cp);
        taken(t, cp, false);
        return;
    }
    if (text && cp == '`' && (t->n_line == 0 || t->previous != '`'))
        t->code = true;
    want_style(t);
    taken(t, cp, code_before);
    // What parts the cells of a table, and its head from its body, steps back behind the words.
    if (text && cp != '\n' && t->n_row > 0 && (t->rule || (cp == '|' && t->previous != '\\')))
        t->style = STYLE_DIM;
    sync_style(t, out);
    buf_append(out, bytes, n);
}

bool termout_push(struct termout *t, const char *text, size_t n, struct buf *out)
{
    buf_clear(&t->text);
    termsafe_push(&t->safe, text, n, &t->text);
    if (!t->markdown) {
        sync_style(t, out);
        buf_append(out, buf_str(&t->text), t->text.len);
        if (t->text.len > 0)
            t->previous = t->text.data[t->text.len - 1];
        return !out->failed && !t->text.failed;
    }
    for (size_t i = 0; i < t->text.len;) {
        uint32_t cp = 0;
        const char *s = t->text.data + i;
        size_t used = utf8_decode(s, t->text.len - i, &cp);
        used = used ? used : 1;
        put_markdown(t, cp, s, used, out);
        t->previous = cp < 0x80 ? (char)cp : 'x';
        i += used;
    }
    return !out->failed && !t->text.failed;
}

void termout_dim(struct termout *t, bool dim, struct buf *out)
{
    t->dim = dim;
    want_style(t);
    sync_style(t, out);
}

bool termout_end(struct termout *t, struct buf *out)
{
    write_held(t, 0, out);
    buf_clear(&t->text);
    termsafe_flush(&t->safe, &t->text);
    buf_append(out, t->text.data, t->text.len);
    if (t->text.len > 0)
        t->previous = 'x';
    t->dim = false;
    t->fence = (struct fence){0};
    end_line(t);
    t->n_above = 0;
    want_style(t);
    sync_style(t, out);
    return !out->failed;
}

bool termout_at_line_start(const struct termout *t)
{
    return t->previous == '\n';
}
