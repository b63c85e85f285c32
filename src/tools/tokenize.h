// `hokku tokenize`: text in, one JSON array of token ids per input out.
#ifndef HOKKU_TOOLS_TOKENIZE_H
#define HOKKU_TOOLS_TOKENIZE_H

#include "base/buf.h"
#include "base/error.h"
#include "text/tokenizer.h"

// Appends the JSON arrays for text[0..n), each followed by a newline: one for the whole text, or,
// with nul, one for each NUL-terminated string in it (an unterminated rest counts as one more).
// Errors: those of tokenizer_encode.
bool tool_tokenize(const struct tokenizer *t, const char *text, size_t n,
                   const struct tokenize_options *opt, bool nul, struct buf *out,
                   struct error *err);

#endif
