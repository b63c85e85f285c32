#include "base/buf.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_release(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

bool buf_reserve(struct buf *b, size_t n_more)
{
    if (b->failed)
        return false;
    if (n_more > SIZE_MAX / 2 || b->len > SIZE_MAX / 2 - n_more - 1) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + n_more + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap *= 2;
    char *p = realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    b->data[b->len] = '\0';
    return true;
}

bool buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (!buf_reserve(b, n))
        return false;
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

bool buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

bool buf_append_utf8(struct buf *b, const char *s, size_t n)
{
    const char *piece;
    for (size_t i = 0, n_piece; i < n;) {
        i += utf8_piece(s + i, n - i, &piece, &n_piece);
        buf_append(b, piece, n_piece);
    }
    return !b->failed;
}

bool buf_putc(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

bool buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0) {
        b->failed = true;
    } else if (buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return !b->failed;
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool ok = buf_vprintf(b, fmt, ap);
    va_end(ap);
    return ok;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

void ids_release(struct ids *v)
{
    if (!v)
        return;
    free(v->data);
    *v = (struct ids){0};
}

void ids_clear(struct ids *v)
{
    v->len = 0;
    v->failed = false;
}

bool ids_reserve(struct ids *v, size_t n_more)
{
    if (v->failed)
        return false;
    if (n_more > SIZE_MAX / 16 || v->len > SIZE_MAX / 16 - n_more) {
        v->failed = true;
        return false;
    }
    size_t need = v->len + n_more;
    if (need <= v->cap)
        return true;
    size_t cap = v->cap ? v->cap : 64;
    while (cap < need)
        cap *= 2;
    if (v->cap == 0 && need > 64)
        cap = need; // who knows how many there will be says so
    int32_t *p = realloc(v->data, cap * sizeof *p);
    if (!p) {
        v->failed = true;
        return false;
    }
    v->data = p;
    v->cap = cap;
    return true;
}

bool ids_push(struct ids *v, int32_t id)
{
    return ids_append(v, &id, 1);
}

bool ids_append(struct ids *v, const int32_t *ids, size_t n)
{
    if (!ids_reserve(v, n))
        return false;
    if (n)
        memcpy(v->data + v->len, ids, n * sizeof *ids);
    v->len += n;
    return true;
}

void ids_fit(struct ids *v)
{
    int32_t *p = v->len > 0 ? realloc(v->data, v->len * sizeof *p) : NULL;
    if (!p)
        return;
    v->data = p;
    v->cap = v->len;
}

bool array_grow(bool *failed, void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    void **data = array;
    size_t more = *cap ? 2 * *cap : 64;
    void *p = realloc(*data, more * size);
    if (!p && failed)
        *failed = true;
    if (!p)
        return false;
    *data = p;
    *cap = more;
    return true;
}
