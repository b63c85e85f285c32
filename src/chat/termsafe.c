#include "chat/termsafe.h"

#include <string.h>

#include "base/utf8.h"

// Format characters that reorder, hide or break what a reader sees. Joiners (U+200C, U+200D) and
// variation selectors stay: scripts and emoji need them.
static const struct {
    uint32_t first, last;
} invisible[] = {
    {0x061C, 0x061C},   // Arabic letter mark
    {0x180E, 0x180E},   // Mongolian vowel separator
    {0x200B, 0x200B},   // zero width space
    {0x200E, 0x200F},   // left-to-right and right-to-left marks
    {0x2028, 0x202E},   // line and paragraph separators, embeddings and overrides
    {0x2060, 0x206F},   // word joiner, invisible operators, isolates, deprecated shaping controls
    {0xFEFF, 0xFEFF},   // byte order mark
    {0xFFF9, 0xFFFB},   // interlinear annotations
    {0xE0000, 0xE007F}, // tags
};

static bool is_invisible(uint32_t cp)
{
    for (size_t i = 0; i < sizeof invisible / sizeof *invisible; i++) {
        if (cp >= invisible[i].first && cp <= invisible[i].last)
            return true;
    }
    return false;
}

static void put(struct buf *out, uint32_t cp, const char *bytes, size_t n, bool line)
{
    char symbol[4];
    if ((cp == '\n' || cp == '\t') && !line)
        buf_putc(out, (char)cp);
    else if (cp < 0x20) // the control pictures
        buf_append(out, symbol, utf8_encode(0x2400 + cp, symbol));
    else if (cp == 0x7F)
        buf_append(out, symbol, utf8_encode(0x2421, symbol));
    else if ((cp >= 0x80 && cp < 0xA0) || is_invisible(cp))
        buf_printf(out, "<U+%04X>", (unsigned)cp);
    else
        buf_append(out, bytes, n);
}

static void push_bytes(const char *s, size_t n, bool line, struct buf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used = utf8_decode(s + i, n - i, &cp);
        if (used > 0) {
            put(out, cp, s + i, used, line);
            i += used;
        } else {
            buf_puts(out, "\xEF\xBF\xBD");
            i++;
        }
    }
}

bool termsafe_push(struct termsafe *t, const char *bytes, size_t n, struct buf *out)
{
    // Complete what was held, one byte at a time, so that the rest needs no copy.
    while (t->n_held > 0 && n > 0) {
        t->held[t->n_held++] = *bytes++;
        n--;
        if (utf8_incomplete_tail(t->held, t->n_held) == t->n_held)
            continue;
        uint32_t cp;
        size_t used = utf8_decode(t->held, t->n_held, &cp);
        if (used == 0) { // the last byte does not continue the sequence: it starts anew
            push_bytes(t->held, t->n_held - 1, false, out);
            bytes--;
            n++;
        } else {
            push_bytes(t->held, t->n_held, false, out);
        }
        t->n_held = 0;
    }
    if (n > 0) {
        size_t tail = utf8_incomplete_tail(bytes, n);
        push_bytes(bytes, n - tail, false, out);
        memcpy(t->held, bytes + n - tail, tail);
        t->n_held = tail;
    }
    return !out->failed;
}

bool termsafe_flush(struct termsafe *t, struct buf *out)
{
    push_bytes(t->held, t->n_held, false, out);
    t->n_held = 0;
    return !out->failed;
}

bool termsafe_text(const char *bytes, size_t n, bool line, struct buf *out)
{
    push_bytes(bytes, n, line, out);
    return !out->failed;
}

size_t termsafe_width(const char *text, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used = utf8_decode(text + i, n - i, &cp);
        width += used ? (size_t)utf8_width(cp) : 1;
        i += used ? used : 1;
    }
    return width;
}
