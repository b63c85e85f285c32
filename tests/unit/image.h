// Builds GGUF images in memory, byte by byte: nothing of the code under test.
#ifndef HOKKU_TESTS_UNIT_IMAGE_H
#define HOKKU_TESTS_UNIT_IMAGE_H

#include "base/buf.h"
#include "gguf/gguf.h"

static inline void put_uint(struct buf *b, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        buf_putc(b, (char)(v >> (8 * i)));
}

static inline void put_u32(struct buf *b, uint32_t v)
{
    put_uint(b, v, 4);
}

static inline void put_u64(struct buf *b, uint64_t v)
{
    put_uint(b, v, 8);
}

static inline void put_f32(struct buf *b, float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    put_u32(b, bits);
}

static inline void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_puts(b, s);
}

static inline void put_header(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    buf_puts(b, "GGUF");
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_kv_u32(struct buf *b, const char *key, uint32_t v)
{
    put_str(b, key);
    put_u32(b, GGUF_UINT32);
    put_u32(b, v);
}

static inline void put_kv_f32(struct buf *b, const char *key, float v)
{
    put_str(b, key);
    put_u32(b, GGUF_FLOAT32);
    put_f32(b, v);
}

static inline void put_kv_str(struct buf *b, const char *key, const char *v)
{
    put_str(b, key);
    put_u32(b, GGUF_STRING);
    put_str(b, v);
}

static inline void put_tensor(struct buf *b, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *ne, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put_u64(b, ne[d]);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_padding(struct buf *b, size_t alignment)
{
    while (b->len % alignment)
        buf_putc(b, 0);
}

static inline void put_bytes(struct buf *b, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_putc(b, (char)byte);
}

#endif
