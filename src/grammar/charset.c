#include "grammar/charset.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { LAST_CHAR = 0x10FFFF, FIRST_SURROGATE = 0xD800, LAST_SURROGATE = 0xDFFF };

void charset_release(struct charset *s)
{
    free(s->r);
    *s = (struct charset){0};
}

void charset_add(struct charset *s, uint32_t lo, uint32_t hi)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        struct char_range *r = realloc(s->r, cap * sizeof *r);
        if (!r) {
            s->failed = true;
            return;
        }
        s->r = r;
        s->cap = cap;
    }
    s->r[s->n++] = (struct char_range){lo, hi};
}

void charset_add_all(struct charset *s, const struct charset *other)
{
    for (size_t i = 0; i < other->n; i++)
        charset_add(s, other->r[i].lo, other->r[i].hi);
    s->failed |= other->failed;
}

static int by_lo(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void charset_tidy(struct charset *s)
{
    // Ranges over the surrogates fall in two.
    for (size_t i = s->n; i-- > 0;) {
        struct char_range r = s->r[i];
        if (r.lo < FIRST_SURROGATE && r.hi > LAST_SURROGATE) {
            s->r[i].hi = FIRST_SURROGATE - 1;
            charset_add(s, LAST_SURROGATE + 1, r.hi);
        } else if (r.hi >= FIRST_SURROGATE && r.lo <= LAST_SURROGATE) {
            if (r.lo >= FIRST_SURROGATE && r.hi <= LAST_SURROGATE)
                s->r[i] = s->r[--s->n];
            else if (r.lo < FIRST_SURROGATE)
                s->r[i].hi = FIRST_SURROGATE - 1;
            else
                s->r[i].lo = LAST_SURROGATE + 1;
        }
    }
    if (s->n < 2)
        return;
    qsort(s->r, s->n, sizeof *s->r, by_lo);
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        struct char_range *last = &s->r[n - 1];
        if (s->r[i].lo <= last->hi + 1)
            last->hi = s->r[i].hi > last->hi ? s->r[i].hi : last->hi;
        else
            s->r[n++] = s->r[i];
    }
    s->n = n;
}

void charset_negate(struct charset *s)
{
    struct charset out = {.failed = s->failed};
    uint32_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > at)
            charset_add(&out, at, s->r[i].lo - 1);
        at = s->r[i].hi + 1;
    }
    if (at <= LAST_CHAR)
        charset_add(&out, at, LAST_CHAR);
    charset_tidy(&out);
    charset_release(s);
    *s = out;
}

void charset_remove(struct charset *s, const struct charset *other)
{
    charset_negate(s); // s minus other is not (not s or other)
    charset_add_all(s, other);
    charset_tidy(s);
    charset_negate(s);
}

bool charset_has(const struct charset *s, uint32_t cp)
{
    for (size_t i = 0; i < s->n; i++)
        if (cp >= s->r[i].lo && cp <= s->r[i].hi)
            return true;
    return false;
}

bool charset_equal(const struct charset *a, const struct charset *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->r, b->r, a->n * sizeof *a->r) == 0);
}

uint64_t charset_size(const struct charset *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += s->r[i].hi - s->r[i].lo + 1;
    return n;
}

void utf8_spans(uint32_t lo, uint32_t hi, void (*f)(void *user, const struct utf8_span *span),
                void *user)
{
    static const uint32_t last_of_length[] = {0x7F, 0x7FF, 0xFFFF, LAST_CHAR};
    while (lo <= hi) {
        // As far as one sequence of ranges reaches: one length, and all the continuation bytes
        // behind the first that differs take every value.
        uint32_t end = hi;
        for (int i = 0; i < 4; i++)
            if (lo <= last_of_length[i]) {
                end = end < last_of_length[i] ? end : last_of_length[i];
                break;
            }
        for (int bits = 6; bits <= 18; bits += 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((lo & ~mask) == (end & ~mask))
                break;
            if (lo & mask) {
                end = lo | mask;
                break;
            }
            if ((end & mask) != mask)
                end = (end & ~mask) - 1;
        }
        char a[4], b[4];
        struct utf8_span span = {.n = (unsigned)utf8_encode(lo, a)};
        utf8_encode(end, b);
        memcpy(span.lo, a, span.n);
        memcpy(span.hi, b, span.n);
        f(user, &span);
        lo = end + 1;
    }
}
