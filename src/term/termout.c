#include "term/termout.h"

#include <string.h>

#include "base/utf8.h"

enum { STYLE_BOLD = 1, STYLE_DIM = 2, STYLE_CODE = 4 };

void termout_init(struct termout *t, size_t width, bool color, bool markdown)
{
    memset(t, 0, sizeof *t);
    t->width = width >= 8 ? width : 0; // narrower ones: leave it to the terminal
    t->color = color;
    t->markdown = markdown && color;
    t->previous = '\n';
}

void termout_release(struct termout *t)
{
    buf_release(&t->text);
    buf_release(&t->word);
}

static void put_style(struct termout *t, unsigned style, struct buf *out)
{
    if (!t->color)
        return;
    buf_puts(out, "\x1b[0");
    if (style & STYLE_BOLD)
        buf_puts(out, ";1");
    if (style & STYLE_DIM)
        buf_puts(out, ";2");
    if (style & STYLE_CODE)
        buf_puts(out, ";36");
    buf_putc(out, 'm');
}

static void sync_style(struct termout *t, struct buf *out)
{
    if (t->style == t->shown)
        return;
    put_style(t, t->style, out);
    if (t->word.len > 0)
        put_style(t, t->style, &t->word);
    t->shown = t->style;
}

static void want_style(struct termout *t)
{
    t->style = (t->dim ? STYLE_DIM : 0) | (t->heading || t->bold ? STYLE_BOLD : 0) |
               (t->code || t->in_fence || t->fence_line ? STYLE_CODE : 0);
}

static void end_word(struct termout *t)
{
    buf_clear(&t->word);
    t->word_width = 0;
}

static void spaces(struct buf *out, size_t n)
{
    while (n-- > 0)
        buf_putc(out, ' ');
}

// Moves the cursor by the columns of one character, as the terminal does.
static void advance(struct termout *t, size_t w)
{
    if (t->width == 0)
        return;
    if (t->col + w > t->width)
        t->col = 0;
    t->col += w;
}

// The word being written does not fit: blank it, fill the line, and write it on the next.
static void move_word(struct termout *t, struct buf *out)
{
    unsigned style = t->shown;
    if (t->word_width > 0)
        buf_printf(out, "\x1b[%zuD", t->word_width);
    put_style(t, 0, out);
    spaces(out, t->width - (t->col - t->word_width));
    put_style(t, t->word_style, out);
    buf_append(out, t->word.data, t->word.len);
    if (t->word_style == style && !t->color)
        style = 0;
    t->col = t->word_width;
}

static void put_char(struct termout *t, uint32_t cp, const char *bytes, size_t n, struct buf *out)
{
    size_t w = (size_t)utf8_width(cp);
    sync_style(t, out);
    if (cp == '\n') {
        end_word(t);
        buf_putc(out, '\n');
        t->col = 0;
        return;
    }
    if (cp == '\t') {
        end_word(t);
        size_t to = (t->col / 8 + 1) * 8;
        buf_putc(out, '\t');
        if (t->width > 0 && to > t->width - 1)
            to = t->width - 1;
        t->col = to;
        return;
    }
    // A column is kept free for the space after a word, so that the space is never lost at the
    // edge.
    bool wrap = t->width > 0 && !t->in_fence && !t->fence_line;
    if (cp == ' ' || w == 2) {
        // East Asian text breaks anywhere: the terminal does that by itself.
        end_word(t);
        buf_append(out, bytes, n);
        advance(t, w);
        return;
    }
    if (t->word.len == 0) {
        t->word_style = t->shown;
        if (wrap && t->col >= t->width - 1 && t->col < t->width && w > 0 &&
            (t->previous == ' ' || t->previous == '\t')) {
            spaces(out, t->width - t->col); // only the kept column is left: start on the next line
            t->col = t->width;
        }
    }
    if (wrap && w > 0 && t->col + w > t->width - 1 && t->col < t->width && t->word_width > 0 &&
        t->col > t->word_width && t->word_width + w <= t->width - 1)
        move_word(t, out);
    buf_append(out, bytes, n);
    if (t->word_width <= t->width) { // longer ones never move: no need to remember them
        buf_append(&t->word, bytes, n);
        t->word_width += w;
    }
    advance(t, w);
}

// What a character means as Markdown; called before it is written.
static void markdown_before(struct termout *t, uint32_t cp)
{
    if (t->bold_next) {
        t->bold = cp != ' ' && cp != '\n' && cp != '\t' && cp != '*';
        t->bold_next = false;
    }
    if (t->in_fence || t->fence_line)
        return;
    if (cp == '`' && !t->code && t->n_line > 0 && t->previous != '`')
        t->code = true;
    else if (cp == '`' && !t->code && t->n_line == 0)
        t->code = true;
}

// Backticks at the start of a line may become a fence: they open, whatever their number.
static bool only_backticks(const struct termout *t)
{
    return t->n_line < 3 && memcmp(t->line, "```", t->n_line) == 0;
}

static void markdown_after(struct termout *t, uint32_t cp, bool code_before)
{
    bool opening = only_backticks(t);
    if (cp == '\n') {
        if (t->fence_line) {
            t->in_fence = !t->in_fence;
            t->fence_line = false;
        }
        t->heading = t->bold = t->code = t->bold_next = false;
        t->stars = 0;
        t->n_line = 0;
        return;
    }
    if (t->n_line < sizeof t->line)
        t->line[t->n_line] = cp < 0x80 ? (char)cp : '?';
    t->n_line++;
    if (t->n_line == 3 && memcmp(t->line, "```", 3) == 0) {
        t->fence_line = true;
        t->code = false;
    }
    if (t->in_fence || t->fence_line)
        return;
    if (cp == '`' && code_before && !opening)
        t->code = false;
    if (cp == ' ' && t->n_line >= 2 && t->n_line <= 7) {
        size_t hashes = 0;
        while (hashes < t->n_line - 1 && t->line[hashes] == '#')
            hashes++;
        t->heading = t->heading || hashes == t->n_line - 1;
    }
    if (t->code)
        return;
    t->stars = cp == '*' ? t->stars + 1 : 0;
    if (t->stars == 2) {
        t->stars = 0;
        if (t->bold)
            t->bold = false;
        else
            t->bold_next = true;
    }
}

bool termout_push(struct termout *t, const char *text, size_t n, struct buf *out)
{
    buf_clear(&t->text);
    termsafe_push(&t->safe, text, n, &t->text);
    for (size_t i = 0; i < t->text.len;) {
        uint32_t cp = 0;
        const char *s = t->text.data + i;
        size_t used = utf8_decode(s, t->text.len - i, &cp);
        bool code_before = t->code;
        if (used == 0)
            used = 1;
        if (t->markdown) {
            markdown_before(t, cp);
            want_style(t);
        }
        put_char(t, cp, s, used, out);
        if (t->markdown) {
            markdown_after(t, cp, code_before);
            want_style(t);
        }
        t->previous = cp < 0x80 ? (char)cp : 'x';
        i += used;
    }
    return !out->failed && !t->text.failed && !t->word.failed;
}

void termout_dim(struct termout *t, bool dim, struct buf *out)
{
    t->dim = dim;
    want_style(t);
    sync_style(t, out);
}

bool termout_end(struct termout *t, struct buf *out)
{
    buf_clear(&t->text);
    termsafe_flush(&t->safe, &t->text);
    buf_append(out, t->text.data, t->text.len);
    t->col += t->text.len > 0;
    t->dim = t->heading = t->bold = t->code = t->in_fence = t->fence_line = t->bold_next = false;
    t->n_line = 0;
    t->stars = 0;
    want_style(t);
    sync_style(t, out);
    end_word(t);
    return !out->failed;
}

void termout_resize(struct termout *t, size_t width)
{
    t->width = width >= 8 ? width : 0;
    end_word(t);
    if (t->width > 0)
        t->col %= t->width;
}

bool termout_at_line_start(const struct termout *t)
{
    return t->col == 0;
}
