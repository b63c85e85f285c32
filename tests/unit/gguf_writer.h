// Writes a GGUF image of metadata alone into a buffer, value by value, right or wrong as the test
// wants it.
#ifndef HOKKU_TESTS_UNIT_GGUF_WRITER_H
#define HOKKU_TESTS_UNIT_GGUF_WRITER_H

#include <string.h>

#include "base/buf.h"
#include "gguf/gguf.h"

struct gguf_writer {
    struct buf body;
    uint64_t n_kv;
};

static inline void gw_u32(struct buf *b, uint32_t x)
{
    buf_append(b, &x, sizeof x);
}

static inline void gw_u64(struct buf *b, uint64_t x)
{
    buf_append(b, &x, sizeof x);
}

static inline void gw_bytes(struct buf *b, const char *s, size_t n)
{
    gw_u64(b, n);
    buf_append(b, s, n);
}

static inline void gw_key(struct gguf_writer *w, const char *key, enum gguf_value_type type)
{
    gw_bytes(&w->body, key, strlen(key));
    gw_u32(&w->body, type);
    w->n_kv++;
}

static inline void gw_str(struct gguf_writer *w, const char *key, const char *s)
{
    gw_key(w, key, GGUF_STRING);
    gw_bytes(&w->body, s, strlen(s));
}

static inline void gw_uint(struct gguf_writer *w, const char *key, uint32_t x)
{
    gw_key(w, key, GGUF_UINT32);
    gw_u32(&w->body, x);
}

static inline void gw_bool(struct gguf_writer *w, const char *key, bool x)
{
    gw_key(w, key, GGUF_BOOL);
    buf_putc(&w->body, x);
}

// n strings, NUL-terminated each.
static inline void gw_strs(struct gguf_writer *w, const char *key, const char *const *s, size_t n)
{
    gw_key(w, key, GGUF_ARRAY);
    gw_u32(&w->body, GGUF_STRING);
    gw_u64(&w->body, n);
    for (size_t i = 0; i < n; i++)
        gw_bytes(&w->body, s[i], strlen(s[i]));
}

// n 32-bit values of type GGUF_INT32, GGUF_UINT32 or GGUF_FLOAT32.
static inline void gw_words(struct gguf_writer *w, const char *key, enum gguf_value_type type,
                            const void *x, size_t n)
{
    gw_key(w, key, GGUF_ARRAY);
    gw_u32(&w->body, type);
    gw_u64(&w->body, n);
    buf_append(&w->body, x, 4 * n);
}

// The whole file; the writer is emptied.
static inline struct buf gw_finish(struct gguf_writer *w)
{
    struct buf file = {0};
    buf_append(&file, "GGUF", 4);
    gw_u32(&file, 3);
    gw_u64(&file, 0);
    gw_u64(&file, w->n_kv);
    buf_append(&file, w->body.data, w->body.len);
    while (file.len % 32)
        buf_putc(&file, '\0');
    buf_release(&w->body);
    w->n_kv = 0;
    return file;
}

#endif
