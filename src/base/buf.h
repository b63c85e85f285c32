// A growable byte buffer with a sticky failure flag: append freely, check `failed` once at the end.
#ifndef HOKKU_BASE_BUF_H
#define HOKKU_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; // owned; NUL-terminated whenever non-NULL (the NUL is not counted in len)
    size_t len, cap;
    bool failed; // an allocation failed or a size overflowed; the content is then incomplete
};

// A zeroed struct buf is a valid empty buffer.
void buf_release(struct buf *b); // accepts NULL and zeroed; leaves a zeroed buffer
void buf_clear(struct buf *b);   // len = 0, keeps the memory, forgets a failure
bool buf_reserve(struct buf *b, size_t n_more);
bool buf_append(struct buf *b, const void *bytes, size_t n);
bool buf_puts(struct buf *b, const char *s);
bool buf_putc(struct buf *b, char c);
bool buf_append_utf8(struct buf *b, const char *s, size_t n); // what is no UTF-8 becomes U+FFFD
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool buf_vprintf(struct buf *b, const char *fmt, va_list ap);
const char *buf_str(const struct buf *b); // never NULL: "" for an empty buffer

// A growable array of 32-bit token ids, same manners.
struct ids {
    int32_t *data; // owned
    size_t len, cap;
    bool failed;
};

void ids_release(struct ids *v);
void ids_clear(struct ids *v);
bool ids_reserve(struct ids *v, size_t n_more);
bool ids_push(struct ids *v, int32_t id);
bool ids_append(struct ids *v, const int32_t *ids, size_t n);
void ids_fit(struct ids *v); // gives back the memory of those that it has no more

// Room for one more element, of size bytes, behind the n of an array. array: the address of the
// pointer to it; *cap: the elements that it has room for. False without memory; *failed is set then
// (NULL: who calls says so).
bool array_grow(bool *failed, void *array, size_t n, size_t *cap, size_t size);

#endif
