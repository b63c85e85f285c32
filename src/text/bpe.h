// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019, "GPT-2"): a word's
// bytes are the first pieces, and the list of merges in the file says which neighbours join, best
// first.
#ifndef HOKKU_TEXT_BPE_H
#define HOKKU_TEXT_BPE_H

#include "base/buf.h"
#include "text/merge.h"
#include "text/vocab.h"
#include "text/wordcache.h"

struct bpe {
    const struct vocab *vocab; // borrowed
    bool ignore_merges;        // a word that is a token stays whole, whatever the merges say
    int32_t byte_id[256];      // -1: the vocabulary has no token for this byte
    // implementation: (left id, right id) -> merge, open addressing
    struct bpe_pair {
        uint64_t key;
        uint32_t rank;
        int32_t id;
    } * pairs;
    uint64_t mask;
};

// Reads tokenizer.ggml.merges. unk: token for bytes that have none, -1. Errors: ERR_MODEL (no
// merges, a merge that is not two known tokens joined by a space, or whose result is no token),
// ERR_MEMORY.
bool bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, int32_t unk,
              struct error *err);
void bpe_release(struct bpe *b); // NULL and zeroed are fine

// Appends the tokens of one word (any bytes). Errors: ERR_MEMORY, ERR_FAIL (a byte without token).
bool bpe_encode_word(const struct bpe *b, struct merger *m, struct wordcache *cache,
                     const char *word, size_t n, struct ids *out, struct error *err);

// The merge of two neighbouring tokens, as merger_run asks for it; ctx: struct bpe.
uint32_t bpe_find_pair(const void *ctx, const char *text, const struct piece *left,
                       const struct piece *right, int32_t *id);

// The byte that character cp stands for in GPT-2's printable alphabet (visible Latin-1 characters
// stand for themselves, the other 68 bytes for U+0100 and on), -1 when cp is not of that.
int bpe_char_to_byte(uint32_t cp);

#endif
