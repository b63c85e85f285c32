#include "engine/ngram.h"

#include <stdlib.h>
#include <string.h>

const size_t ngram_lengths[NGRAM_LENGTHS] = {8, 5, 3};

enum { FIRST_RUNS = 1024, MOST_RUNS = 1 << 16 }; // of a length: later ones take others' places

// Room for n runs of a length, none of which is there; false: there is no memory.
static bool make_room(struct ngram *g, size_t n)
{
    uint32_t *at = calloc(NGRAM_LENGTHS * n, sizeof *at);
    if (!at)
        return false;
    free(g->at);
    *g = (struct ngram){.at = at, .size = n};
    return true;
}

bool ngram_init(struct ngram *g, struct error *err)
{
    *g = (struct ngram){0};
    return make_room(g, FIRST_RUNS) ||
           error_oom(err, "an index of the text", NGRAM_LENGTHS * FIRST_RUNS * sizeof *g->at);
}

void ngram_release(struct ngram *g)
{
    free(g->at);
    *g = (struct ngram){0};
}

void ngram_forget(struct ngram *g)
{
    memset(g->at, 0, NGRAM_LENGTHS * g->size * sizeof *g->at);
    g->n_indexed = 0;
}

// Where the index keeps what follows the run of ngram_lengths[k] tokens that ends before end.
static uint32_t *place(struct ngram *g, size_t k, const int32_t *end)
{
    uint64_t h = 0;
    for (size_t i = 1; i <= ngram_lengths[k]; i++)
        h = (h ^ (uint32_t)end[-(ptrdiff_t)i]) * UINT64_C(0x9e3779b97f4a7c15);
    return &g->at[k * g->size + (h >> 40) % g->size];
}

// Of what follows before ids + n: behind that nothing is known.
static void index_runs(struct ngram *g, const int32_t *ids, size_t n)
{
    for (; g->n_indexed < n; g->n_indexed++)
        for (size_t k = 0; k < NGRAM_LENGTHS; k++)
            if (g->n_indexed >= ngram_lengths[k])
                *place(g, k, ids + g->n_indexed) = (uint32_t)g->n_indexed;
}

size_t ngram_guess(struct ngram *g, const int32_t *ids, size_t n, size_t most, int32_t *out,
                   size_t *length)
{
    size_t size = g->size;
    while (size < n && size < MOST_RUNS)
        size *= 2;
    if (size > g->size)
        make_room(g, size); // (without, guesses are fewer)
    index_runs(g, ids, n);
    for (size_t k = 0; k < NGRAM_LENGTHS && most > 0; k++) {
        const size_t len = ngram_lengths[k], at = n > len ? *place(g, k, ids + n) : 0;
        // (Another run may have the same hash.)
        if (at == 0 || at >= n || memcmp(ids + at - len, ids + n - len, len * sizeof *ids) != 0)
            continue;
        for (size_t i = 0; i < most; i++) // what repeats goes on
            out[i] = at + i < n ? ids[at + i] : out[at + i - n];
        *length = k;
        return most;
    }
    return 0;
}
