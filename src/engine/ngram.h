// Guesses from a text's own past: what followed the longest run of tokens that the text ends with,
// where it was before. (The idea: prompt lookup decoding, Saxena 2023.)
#ifndef HOKKU_ENGINE_NGRAM_H
#define HOKKU_ENGINE_NGRAM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { NGRAM_LENGTHS = 3 };
extern const size_t ngram_lengths[NGRAM_LENGTHS]; // of runs, the longest first

struct ngram {
    uint32_t *at;     // owned: (NGRAM_LENGTHS, size) what follows a run of that hash; 0: none
    size_t size;      // a power of two, that grows with the text
    size_t n_indexed; // runs that end before that many tokens are there
};

bool ngram_init(struct ngram *g, struct error *err); // Errors: ERR_MEMORY
void ngram_release(struct ngram *g);                 // zeroed is fine
// The text is another one than before, by more than tokens at its end.
void ngram_forget(struct ngram *g);
// What may follow ids (n): up to most tokens to out. *length: which of ngram_lengths the run has.
// Takes a constant time for each token that is new.
size_t ngram_guess(struct ngram *g, const int32_t *ids, size_t n, size_t most, int32_t *out,
                   size_t *length);

#endif
