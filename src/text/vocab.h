// The token table of a GGUF: texts, kinds, scores, and text -> id. Everything is checked here, so
// that the rest of text/ can trust it.
#ifndef HOKKU_TEXT_VOCAB_H
#define HOKKU_TEXT_VOCAB_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

struct vocab {
    uint32_t n;
    struct gguf_str *text; // (n) borrowed from the file
    unsigned char *kind;   // (n) enum token_kind
    float *score;          // (n) finite; NULL when the file has none
    size_t max_len;        // of a token's text in bytes
    // implementation: open addressing, empty slots have id -1
    struct vocab_slot {
        uint32_t tag;
        int32_t id;
    } * slots;
    uint64_t mask, seed;
};

// Errors: ERR_MODEL (missing or wrongly sized arrays, kinds out of range, NaN scores, two tokens
// with the same text), ERR_MEMORY.
bool vocab_init(struct vocab *v, const struct gguf *g, struct error *err);
void vocab_release(struct vocab *v); // NULL and zeroed are fine

int32_t vocab_find(const struct vocab *v, const char *s, size_t n); // -1 when absent

// The two halves of vocab_find, for callers that look up many and want the memory requested early.
uint64_t vocab_hash(const struct vocab *v, const char *s, size_t n);
void vocab_prefetch(const struct vocab *v, uint64_t hash);
int32_t vocab_find_hashed(const struct vocab *v, const char *s, size_t n, uint64_t hash);

// True for tokens that text may turn into by merging: not control and not unknown tokens, which
// only the matching of special tokens may produce.
static inline bool vocab_is_plain(const struct vocab *v, int32_t id)
{
    return id >= 0 && v->kind[id] != TOKEN_CONTROL && v->kind[id] != TOKEN_UNKNOWN;
}

#endif
