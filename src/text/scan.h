// Hand-written equals of the commonest pre-tokenizer patterns for ASCII text: most text is ASCII
// and this is several times faster than a regular expression. Where a character beyond ASCII could
// change the answer they say nothing, and the pattern decides.
#ifndef HOKKU_TEXT_SCAN_H
#define HOKKU_TEXT_SCAN_H

#include <stddef.h>

// Length of the first piece of s[0..n), n > 0, or 0 when the pattern must be asked.
typedef size_t scan_fn(const char *s, size_t n);

scan_fn scan_gpt2;
scan_fn scan_llama3; // digits in groups of up to three
scan_fn scan_qwen2;  // digits one by one

#endif
