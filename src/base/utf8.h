// UTF-8: decode, encode, and "how much of this is complete".
#ifndef HOKKU_BASE_UTF8_H
#define HOKKU_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

// Decodes one code point from s[0..n). Returns the bytes used (1-4), or 0 when s is not the start
// of a well-formed sequence (Unicode 15, table 3-7: no overlong forms, no surrogates). n must be >
// 0.
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);

// Writes cp as UTF-8 into out[0..4). Returns the bytes written, 0 for a surrogate or cp > 0x10FFFF.
size_t utf8_encode(uint32_t cp, char out[4]);

// Number of bytes at the end of s[0..n) that begin a sequence which more bytes could complete: 0-3.
// A malformed tail is not held back: 0.
size_t utf8_incomplete_tail(const char *s, size_t n);

bool utf8_valid(const char *s, size_t n);

// The next piece of s[0..n) (n > 0) as UTF-8: the well-formed bytes at its beginning, or U+FFFD for
// one byte that begins nothing. Returns how many bytes of s it stands for.
size_t utf8_piece(const char *s, size_t n, const char **piece, size_t *n_piece);

// Returns the terminal columns of cp: 0 (combining, control), 1 or 2 (East Asian wide, emoji).
int utf8_width(uint32_t cp);

// The bytes of the byte order mark with which some editors begin a text of UTF-8: 3, or 0.
size_t utf8_mark(const char *s, size_t n);
void utf8_drop_mark(struct buf *text); // leaves it out

#endif
