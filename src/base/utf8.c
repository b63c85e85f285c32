#include "base/utf8.h"

#include <string.h>

#include "base/unicode.h"

// Expected length from the lead byte and the allowed range of the second byte (Unicode table 3-7).
static size_t lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return 2;
    if (c >= 0xE0 && c <= 0xEF) {
        if (c == 0xE0)
            *lo = 0xA0;
        if (c == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F;
        return 4;
    }
    return 0;
}

// Bytes of s[0..n) that agree with a well-formed sequence of length *len (0 when the lead is bad).
static size_t match(const char *s, size_t n, size_t *len)
{
    unsigned char lo, hi;
    *len = lead((unsigned char)s[0], &lo, &hi);
    size_t i = 1;
    for (; i < *len && i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < (i == 1 ? lo : 0x80) || c > (i == 1 ? hi : 0xBF))
            break;
    }
    return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    size_t len;
    if (match(s, n, &len) < len || len == 0)
        return 0;
    uint32_t c = (unsigned char)s[0];
    if (len > 1)
        c &= 0x7Fu >> len;
    for (size_t i = 1; i < len; i++)
        c = c << 6 | ((unsigned char)s[i] & 0x3F);
    *cp = c;
    return len;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            return 0;
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp > 0x10FFFF)
        return 0;
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_incomplete_tail(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const char *p = s + n - back;
        if (((unsigned char)*p & 0xC0) == 0x80)
            continue;
        size_t len;
        size_t have = match(p, back, &len);
        return len > back && have == back ? back : 0;
    }
    return 0;
}

bool utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        size_t k = utf8_decode(s + i, n - i, &cp);
        if (!k)
            return false;
        i += k;
    }
    return true;
}

size_t utf8_piece(const char *s, size_t n, const char **piece, size_t *n_piece)
{
    uint32_t cp;
    size_t used = 0;
    for (size_t k; used < n && (k = utf8_decode(s + used, n - used, &cp)) > 0;)
        used += k;
    *piece = used ? s : "\xEF\xBF\xBD";
    *n_piece = used ? used : 3;
    return used ? used : 1;
}

int utf8_width(uint32_t cp)
{
    if (cp >= 0x20 && cp < 0x7F)
        return 1;
    if (uni_is(cp, UNI_ZERO_WIDTH))
        return 0;
    return uni_is(cp, UNI_DOUBLE_WIDTH) ? 2 : 1;
}

size_t utf8_mark(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void utf8_drop_mark(struct buf *text)
{
    const size_t n = utf8_mark(buf_str(text), text->len);
    if (n > 0) {
        memmove(text->data, text->data + n, text->len - n + 1); // with the NUL
        text->len -= n;
    }
}
