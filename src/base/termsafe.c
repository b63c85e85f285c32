#include "base/termsafe.h"

#include <string.h>

#include "base/utf8.h"

// Characters that reorder, hide or break what a reader sees, and those that show nothing, in which
// a text can hide another. What scripts and emoji need stays: joiners (U+034F, U+200C, U+200D),
// Mongolian variation selectors, and VS15 and VS16 (U+FE0E, U+FE0F). Other variation selectors are
// 254 values that nobody sees, a byte each; few terminals have the letters that they choose.
static const struct {
    uint32_t first, last;
} invisible[] = {
    {0x00AD, 0x00AD},   // soft hyphen
    {0x061C, 0x061C},   // Arabic letter mark
    {0x115F, 0x1160},   // Hangul fillers
    {0x17B4, 0x17B5},   // Khmer inherent vowels
    {0x180E, 0x180E},   // Mongolian vowel separator
    {0x200B, 0x200B},   // zero width space
    {0x200E, 0x200F},   // left-to-right and right-to-left marks
    {0x2028, 0x202E},   // line and paragraph separators, embeddings and overrides
    {0x2060, 0x206F},   // word joiner, invisible operators, isolates, deprecated shaping controls
    {0x3164, 0x3164},   // Hangul filler
    {0xFE00, 0xFE0D},   // variation selectors 1 to 14
    {0xFEFF, 0xFEFF},   // byte order mark
    {0xFFA0, 0xFFA0},   // halfwidth Hangul filler
    {0xFFF0, 0xFFFB},   // interlinear annotations, and what is reserved for their like
    {0x13430, 0x1343F}, // joiners and segments of hieroglyphs
    {0x1BCA0, 0x1BCA3}, // steps of shorthand
    {0x1D173, 0x1D17A}, // beams, ties and slurs of music
    {0xE0000, 0xE0FFF}, // tags, variation selectors 17 to 256, and what is reserved for their like
};

static bool is_invisible(uint32_t cp)
{
    for (size_t i = 0; i < sizeof invisible / sizeof *invisible; i++) {
        if (cp >= invisible[i].first && cp <= invisible[i].last)
            return true;
    }
    return false;
}

// What a whole text may hold beside characters.
enum manner {
    TEXT,    // newline and tab
    LINE,    // nothing
    JSON,    // newline and tab; what is unsafe is written as JSON's own escapes
    PAINTED, // newline, tab, and the sequences of is_paint()
};

bool termsafe_plain(uint32_t cp)
{
    return cp >= 0x20 && !(cp >= 0x7F && cp < 0xA0) && !is_invisible(cp);
}

static void put_unsafe(struct buf *out, uint32_t cp, enum manner manner)
{
    char symbol[4];
    if (manner == JSON && cp > 0xFFFF)
        buf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (cp >> 10)),
                   (unsigned)(0xDC00 + (cp & 0x3FF)));
    else if (manner == JSON)
        buf_printf(out, "\\u%04x", (unsigned)cp);
    else if (cp < 0x20) // the control pictures
        buf_append(out, symbol, utf8_encode(0x2400 + cp, symbol));
    else if (cp == 0x7F)
        buf_append(out, symbol, utf8_encode(0x2421, symbol));
    else
        buf_printf(out, "<U+%04X>", (unsigned)cp);
}

// The sequences that hokku itself writes: carriage return (progress lines), styles, cursor left,
// erase to the end of the line. Returns the bytes of the one that s begins with, 0: none.
static size_t is_paint(const char *s, size_t n)
{
    if (s[0] == '\r')
        return 1;
    size_t i = 2;
    if (n < 3 || s[0] != '\x1b' || s[1] != '[')
        return 0;
    while (i < n && i < 16 && ((s[i] >= '0' && s[i] <= '9') || s[i] == ';'))
        i++;
    return i < n && (s[i] == 'm' || s[i] == 'D' || s[i] == 'K') ? i + 1 : 0;
}

static void push_bytes(const char *s, size_t n, enum manner manner, struct buf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used = utf8_decode(s + i, n - i, &cp);
        if (used == 0) {
            buf_puts(out, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        size_t paint = manner == PAINTED ? is_paint(s + i, n - i) : 0;
        if (paint > 0)
            used = paint;
        bool plain =
            paint > 0 || termsafe_plain(cp) || (manner != LINE && (cp == '\n' || cp == '\t'));
        if (plain)
            buf_append(out, s + i, used);
        else
            put_unsafe(out, cp, manner);
        i += used;
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
            push_bytes(t->held, t->n_held - 1, TEXT, out);
            bytes--;
            n++;
        } else {
            push_bytes(t->held, t->n_held, TEXT, out);
        }
        t->n_held = 0;
    }
    if (n > 0) {
        size_t tail = utf8_incomplete_tail(bytes, n);
        push_bytes(bytes, n - tail, TEXT, out);
        memcpy(t->held, bytes + n - tail, tail);
        t->n_held = tail;
    }
    return !out->failed;
}

bool termsafe_flush(struct termsafe *t, struct buf *out)
{
    push_bytes(t->held, t->n_held, TEXT, out);
    t->n_held = 0;
    return !out->failed;
}

bool termsafe_text(const char *bytes, size_t n, bool line, struct buf *out)
{
    push_bytes(bytes, n, line ? LINE : TEXT, out);
    return !out->failed;
}

bool termsafe_json(const char *json, size_t n, struct buf *out)
{
    push_bytes(json, n, JSON, out);
    return !out->failed;
}

bool termsafe_painted(const char *bytes, size_t n, struct buf *out)
{
    push_bytes(bytes, n, PAINTED, out);
    return !out->failed;
}

bool termsafe_all_plain(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0, used; i < n; i += used) {
        used = utf8_decode(s + i, n - i, &cp);
        if (used == 0 || !termsafe_plain(cp))
            return false;
    }
    return true;
}

size_t termsafe_fit(const char *text, size_t n, size_t columns)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        size_t used = utf8_decode(text + i, n - i, &cp);
        size_t w = used ? (size_t)utf8_width(cp) : 1;
        if (w > columns)
            break;
        columns -= w;
        i += used ? used : 1;
    }
    return i;
}

bool termsafe_excerpt(const char *bytes, size_t n, size_t columns, struct buf *out)
{
    enum { MOST = 16 }; // bytes for a column that are looked at: a character with its marks
    struct buf safe = {0};
    size_t some = n;
    if (n / MOST > columns) {
        some = columns * MOST;
        some -= utf8_incomplete_tail(bytes, some);
    }
    termsafe_text(bytes, some, true, &safe);
    const char *text = buf_str(&safe);
    const bool whole = some == n && termsafe_fit(text, safe.len, columns) == safe.len;
    buf_append(out, text, whole ? safe.len : termsafe_fit(text, safe.len, columns - 1));
    buf_puts(out, whole ? "" : "…");
    out->failed |= safe.failed;
    buf_release(&safe);
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

size_t termsafe_name_width(const char *name)
{
    struct buf safe = {0};
    termsafe_text(name, strlen(name), true, &safe);
    const size_t width = termsafe_width(buf_str(&safe), safe.len);
    buf_release(&safe);
    return width;
}

bool termsafe_name_column(const char *name, size_t columns, struct buf *out)
{
    const size_t width = termsafe_name_width(name);
    return buf_printf(out, "%s%*s", name, width < columns ? (int)(columns - width) : 0, "");
}
