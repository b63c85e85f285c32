// Reads little-endian values from a byte range. Nothing is read outside it: the first read that
// does not fit sets `failed`, and from then on every read gives zero, so a parser may read a whole
// record and check once, before it uses what it read.
#ifndef HOKKU_GGUF_CURSOR_H
#define HOKKU_GGUF_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
    const unsigned char *data;
    size_t size, pos; // pos <= size
    bool failed;
    uint64_t wanted; // the size of the read that failed
};

static inline size_t cursor_left(const struct cursor *c)
{
    return c->size - c->pos;
}

// The next n bytes, or NULL (failed).
static inline const unsigned char *cursor_bytes(struct cursor *c, uint64_t n)
{
    if (c->failed)
        return NULL;
    if (n > cursor_left(c)) {
        c->failed = true;
        c->wanted = n;
        return NULL;
    }
    const unsigned char *p = c->data + c->pos;
    c->pos += (size_t)n;
    return p;
}

// An unsigned value of n_bytes (1-8).
static inline uint64_t cursor_uint(struct cursor *c, unsigned n_bytes)
{
    const unsigned char *p = cursor_bytes(c, n_bytes);
    uint64_t v = 0;
    for (unsigned i = 0; p && i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint32_t cursor_u32(struct cursor *c)
{
    return (uint32_t)cursor_uint(c, 4);
}

static inline uint64_t cursor_u64(struct cursor *c)
{
    return cursor_uint(c, 8);
}

#endif
