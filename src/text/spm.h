// SentencePiece as Llama uses it (Kudo & Richardson 2018, with the greedy merging of its BPE mode):
// characters are the first pieces; the neighbours whose joined text is the token of the highest
// score join first; what ends up outside the vocabulary becomes byte tokens. A space is U+2581.
// Gemma 4's files have a list of merges instead of scores; lines and line breaks do not join there,
// and a run of line breaks that is a token is one whatever the merges say.
#ifndef HOKKU_TEXT_SPM_H
#define HOKKU_TEXT_SPM_H

#include "base/buf.h"
#include "text/bpe.h"
#include "text/merge.h"
#include "text/vocab.h"
#include "text/wordcache.h"

struct spm {
    const struct vocab *vocab; // borrowed
    const struct bpe *merges;  // borrowed; NULL: scores say who joins first
    int32_t byte_id[256];      // token for a byte that no token covers; -1: none
    uint64_t *adjacent;        // Bloom filter of the neighbouring characters inside tokens
};

// unk: token for bytes without one, -1. Errors: ERR_MODEL (no scores), ERR_MEMORY.
bool spm_init(struct spm *s, const struct vocab *v, const struct bpe *merges, int32_t unk,
              struct error *err);
void spm_release(struct spm *s); // NULL and zeroed are fine

// Appends the tokens of text[0..n), in which spaces already are U+2581; n is below 4 GB. last: no
// more of the text follows; else the tokens end where what follows cannot change them, after *used
// bytes. Errors: ERR_MEMORY, ERR_FAIL (a byte without token).
bool spm_encode(const struct spm *s, struct merger *m, struct wordcache *cache, const char *text,
                size_t n, bool last, size_t *used, struct ids *out, struct error *err);

// The value of a byte token's text "<0xHH>", -1 when it is none.
int spm_byte_value(struct gguf_str text);

#endif
