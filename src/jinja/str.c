// Strings and string builders that carry the origin of every byte.
#include "jinja/runtime.h"

#include <string.h>

#include "base/utf8.h"

uint32_t str_origin_merge(uint32_t a, uint32_t b)
{
    return a == b ? a : ORIGIN_DATA;
}

struct val str_val(struct str *s)
{
    return (struct val){.kind = V_STR, .s = s};
}

struct val val_str(struct run *r, const char *p, size_t n, uint32_t origin)
{
    struct sb b = {0};
    sb_add(r, &b, p, n, origin);
    return sb_val(r, &b);
}

struct val val_borrowed(struct run *r, const char *p, size_t n, uint32_t origin)
{
    struct str *s = run_alloc(r, sizeof *s);
    run_step(r, n / 64);
    *s = (struct str){.p = p, .n = n, .n_chars = SIZE_MAX, .origin = n ? origin : 0};
    return str_val(s);
}

struct val val_cstr(struct run *r, const char *text)
{
    struct str *s = run_alloc(r, sizeof *s);
    *s = (struct str){.p = text, .n = strlen(text), .n_chars = SIZE_MAX};
    return str_val(s);
}

size_t str_chars(struct run *r, struct str *s)
{
    if (s->n_chars == SIZE_MAX) {
        run_step(r, s->n / 16);
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
        s->n_chars = n;
    }
    return s->n_chars;
}

size_t str_offset(struct run *r, struct str *s, size_t n_chars)
{
    size_t total = str_chars(r, s);
    if (n_chars >= total)
        return s->n;
    if (total == s->n)
        return n_chars;
    run_step(r, n_chars / 8);
    size_t i = 0;
    while (n_chars--)
        for (i++; i < s->n && ((unsigned char)s->p[i] & 0xC0) == 0x80;)
            i++;
    return i;
}

// The first segment that ends beyond `byte`.
static size_t seg_at(const struct str *s, size_t byte)
{
    size_t lo = 0, hi = s->n_segs - 1;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->segs[mid].end > byte)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

uint32_t str_origin_at(const struct str *s, size_t byte)
{
    return s->n_segs ? s->segs[seg_at(s, byte)].origin : s->origin;
}

uint32_t str_origin(const struct str *s)
{
    if (!s->n_segs)
        return s->origin;
    uint32_t o = s->segs[0].origin;
    // Neighbours differ, and a mixture stays one: this does not walk far.
    for (size_t i = 1; i < s->n_segs && o != ORIGIN_DATA; i++)
        o = str_origin_merge(o, s->segs[i].origin);
    return o;
}

struct val str_sub(struct run *r, struct str *s, size_t begin, size_t end)
{
    if (begin == 0 && end == s->n)
        return str_val(s);
    struct str *t = run_alloc(r, sizeof *t);
    *t = (struct str){.p = s->p + begin, .n = end - begin, .n_chars = SIZE_MAX};
    if (s->n_chars == s->n)
        t->n_chars = t->n;
    if (begin == end)
        return str_val(t);
    if (!s->n_segs) {
        t->origin = s->origin;
        return str_val(t);
    }
    size_t first = seg_at(s, begin), last = seg_at(s, end - 1);
    if (first == last) {
        t->origin = s->segs[first].origin;
        return str_val(t);
    }
    run_step(r, (last - first) / 16);
    struct seg *segs = run_alloc(r, (last - first + 1) * sizeof *segs);
    for (size_t i = first; i <= last; i++)
        segs[i - first] = (struct seg){s->segs[i].end - begin, s->segs[i].origin};
    t->segs = segs;
    t->n_segs = last - first + 1;
    return str_val(t);
}

bool str_is(const struct str *s, const char *text)
{
    size_t n = strlen(text);
    return s->n == n && memcmp(s->p, text, n) == 0;
}

bool str_equal(const struct str *a, const struct str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

// Byte order of UTF-8 is code point order.
int str_compare(const struct str *a, const struct str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->p, b->p, n) : 0;
    if (c == 0)
        return (a->n > b->n) - (a->n < b->n);
    return c < 0 ? -1 : 1;
}

static void push_seg(struct run *r, struct sb *b, size_t end, uint32_t origin)
{
    if (b->n_segs == b->cap_segs) {
        size_t cap = b->cap_segs ? b->cap_segs * 2 : 8;
        b->segs = run_grow(r, b->segs, b->n_segs * sizeof *b->segs, cap * sizeof *b->segs);
        b->cap_segs = cap;
    }
    b->segs[b->n_segs++] = (struct seg){end, origin};
}

void sb_add(struct run *r, struct sb *b, const char *p, size_t n, uint32_t origin)
{
    if (!n)
        return;
    if (b->cap - b->n < n) {
        size_t cap = b->cap ? b->cap * 2 : 32;
        if (n > SIZE_MAX / 4)
            run_fail_limit(r, "memory", r->limits.max_memory, "bytes");
        if (cap < b->n + n) // with room for what a template puts behind a message
            cap = b->n + n + (b->n + n) / 8;
        b->p = run_grow(r, b->p, b->n, cap);
        b->cap = cap;
    }
    run_step(r, 1 + n / 64);
    memcpy(b->p + b->n, p, n);
    if (b->n_segs) {
        if (b->segs[b->n_segs - 1].origin == origin)
            b->segs[b->n_segs - 1].end = b->n + n;
        else
            push_seg(r, b, b->n + n, origin);
    } else if (b->n == 0) {
        b->origin = origin;
    } else if (b->origin != origin) {
        push_seg(r, b, b->n, b->origin);
        push_seg(r, b, b->n + n, origin);
    }
    b->n += n;
}

void sb_cp(struct run *r, struct sb *b, uint32_t cp, uint32_t origin)
{
    char out[4];
    sb_add(r, b, out, utf8_encode(cp, out), origin);
}

void sb_sub(struct run *r, struct sb *b, const struct str *s, size_t begin, size_t end)
{
    if (begin >= end)
        return;
    if (!s->n_segs) {
        sb_add(r, b, s->p + begin, end - begin, s->origin);
        return;
    }
    for (size_t i = seg_at(s, begin); begin < end; i++) {
        size_t stop = i + 1 == s->n_segs || s->segs[i].end > end ? end : s->segs[i].end;
        sb_add(r, b, s->p + begin, stop - begin, s->segs[i].origin);
        begin = stop;
    }
}

void sb_str(struct run *r, struct sb *b, const struct str *s)
{
    sb_sub(r, b, s, 0, s->n);
}

void sb_fill(struct run *r, struct sb *b, const struct str *s, size_t times)
{
    for (; times && s->n; times--) {
        run_step(r, 1);
        sb_str(r, b, s);
    }
}

struct val sb_val(struct run *r, struct sb *b)
{
    struct str *s = run_alloc(r, sizeof *s);
    *s = (struct str){.p = b->p ? b->p : "",
                      .n = b->n,
                      .n_chars = SIZE_MAX,
                      .segs = b->segs,
                      .n_segs = b->n_segs,
                      .origin = b->origin};
    return str_val(s);
}

// Appending to a string that is still the whole content of its builder extends it in place, so that
// a loop that builds a text piece by piece takes linear time.
struct val str_concat(struct run *r, struct val a, struct val b)
{
    if (!a.s->n)
        return b;
    if (!b.s->n)
        return a;
    struct sb *grow = a.s->grow;
    if (!grow || grow->n != a.s->n) {
        grow = run_alloc(r, sizeof *grow);
        sb_str(r, grow, a.s);
    }
    sb_str(r, grow, b.s);
    struct val v = sb_val(r, grow);
    v.s->grow = grow;
    return v;
}
