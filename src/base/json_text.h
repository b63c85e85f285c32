// JSON as models and users write it: bytes that may be no text, numbers of 64 bits, fields that are
// null.
#ifndef HOKKU_BASE_JSON_TEXT_H
#define HOKKU_BASE_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

// What is no UTF-8 becomes U+FFFD. NULL: no memory.
json_t *json_text(const char *s, size_t n);

// Whether v, which may be NULL, is that text, whole: JSON's may have a NUL inside.
bool json_text_is(const json_t *v, const char *text);

// As clients say that they say nothing: a field that is null is one that is not there, also where
// it is none that is known, and within its values. Schemas ("schema", "parameters") are left as
// they are: in them null is a value.
void json_drop_nulls(json_t *v);

// v in one line, as the text of a message quotes it and as a report has it: its numbers with the
// fewest digits that read back the same. flags: JSON_ENSURE_ASCII or 0. NULL: no memory. The caller
// frees it.
char *json_line(const json_t *v, size_t flags);

// Appends j, which is taken, and a line break; flags are json_dumps'. NULL: there was no memory for
// it, and out has failed.
bool json_put(json_t *j, size_t flags, struct buf *out);

// json_loadb, which has no way of its own to do without memory: *why says so then (json_no_memory).
json_t *json_read(const char *text, size_t n, size_t flags, json_error_t *why);
bool json_no_memory(const json_error_t *why); // of a text that could not be read

// Whether jansson had no memory for something in this thread since that was last asked: what was
// made since then may be without it.
bool json_lost(void);
void json_lose(void); // what is made will be without something for which there was no memory
// json_dumps, which leaves out what it has no room for: NULL where it, or json_lost, does, or of
// NULL. The caller frees it (what jansson itself gives, free() does not free).
char *json_written(const json_t *j, size_t flags);

// What stands behind jansson's words (why->text) of what cannot be read: which numbers can be,
// where it was one that cannot.
const char *json_expected(const json_error_t *why);

// A number; from 2^63 on, where jansson's integers end, its digits as a string. NULL: no memory.
json_t *json_u64(uint64_t v);
#define JSON_U64_EXPECTED "a whole number, 0 or more (from 2^63 on in quotes)"
// Reads either; false: it is neither, and *out is as it was.
bool json_read_u64(const json_t *v, uint64_t *out);

#endif
