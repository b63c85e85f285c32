// Pre-tokenizers: how a text falls into the words inside which byte pairs may merge. A GGUF names
// its pre-tokenizer (tokenizer.ggml.pre); the patterns are those of the models' own tokenizer.json.
#ifndef HOKKU_TEXT_PRETOKENIZER_H
#define HOKKU_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct pretokenizer; // compiled patterns; immutable

// name as in tokenizer.ggml.pre. Errors: ERR_MODEL (unknown name, with those that work),
// ERR_MEMORY.
struct pretokenizer *pretokenizer_create(const char *name, size_t len, struct error *err);
void pretokenizer_free(struct pretokenizer *p); // NULL is fine
// Whether there is one of that name. Errors as above.
bool pretokenizer_knows(const char *name, size_t len, struct error *err);

const char *pretokenizer_name(const struct pretokenizer *p);
// Facts that the widely used implementation ties to the name: words that are tokens stay whole
// without looking at the merges; BOS is added unless the metadata says otherwise.
bool pretokenizer_ignore_merges(const struct pretokenizer *p);
bool pretokenizer_add_bos(const struct pretokenizer *p);
// For tests: false makes every split use the patterns alone, without the ASCII shortcuts.
void pretokenizer_set_shortcuts(struct pretokenizer *p, bool on);

// Called for each word in order; together they cover the text. False stops the split.
typedef bool pretokenizer_word(void *ctx, const char *word, size_t n, struct error *err);

// Splits text[0..n), which must be valid UTF-8 (NUL is a character like others). Errors:
// ERR_MEMORY, ERR_FAIL (the pattern engine gave up), those of word.
bool pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n,
                        pretokenizer_word *word, void *ctx, struct error *err);

// The rows of the table, for tests and messages: NULL after the last.
const char *pretokenizer_row_name(size_t i);

#endif
