// Pieces of messages: numbers with digit groups, and untrusted bytes made fit to be read.
#ifndef HOKKU_BASE_FORMAT_H
#define HOKKU_BASE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum { FORMAT_NUMBER = 32, FORMAT_TEXT = 100 };

// 5021696 -> "5,021,696". Returns out.
const char *format_number(char out[FORMAT_NUMBER], uint64_t v);

// 5021696 -> "5.0 MB" (powers of ten). Returns out.
const char *format_bytes(char out[FORMAT_NUMBER], uint64_t n_bytes);

// The fewest digits that read back as v, which is finite: "1.5e-31". Returns how many of them stand
// behind the point.
int format_digits(char out[FORMAT_NUMBER], double v) __attribute__((nonnull));
// They as Python writes them, which is JSON, too: "0.1", "100.0", "1e-31"; and "nan", "inf",
// "-inf". Returns out.
const char *format_real(char out[FORMAT_NUMBER], double v);

// The number of the fewest digits that reads back as f: 0.1, where (double)f is 0.10000000149...
double format_float(float f);

// What a number may be, for messages: "a number from 0 to 1", "a whole number from 0 to
// 2147483647" where the largest is that of its type, or, of one of 64 bits, "of at least 0".
// Returns out.
const char *format_range(char out[FORMAT_TEXT], double least, double most);

// Copies s[0..n) so that it fits and is one line of valid UTF-8: control bytes and malformed bytes
// become \xNN, what does not fit is cut with "...". cap counts the NUL and is at least 8. Returns
// out.
const char *format_text(char *out, size_t cap, const char *s, size_t n);

#endif
