// Greedy merging of neighbouring pieces, best pair first, leftmost first among equals: the loop
// that byte pair encoding and SentencePiece share. Time is O(n log n).
#ifndef HOKKU_TEXT_MERGE_H
#define HOKKU_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/error.h"

#define MERGE_NONE UINT32_MAX

// What merges is cut into stretches of at most so many pieces, so that the memory for it does not
// grow with the text. Of a stretch that was cut off only the first three quarters count; the next
// one begins where they end. Merges happen in the order of their ranks, and the end of a text can
// change what is left of it only through pairs of ever later ranks, one piece further each time: a
// quarter of a stretch is more than the vocabularies in use can carry that.
#define MERGE_STRETCH (1u << 18)

struct piece {
    uint32_t begin, n; // bytes of the text
    int32_t id;        // token, -1 when no token has this text
    // implementation
    uint32_t prev, next; // neighbours in the list, MERGE_NONE at the ends
    uint32_t pair_rank;  // of this piece with the next, MERGE_NONE when they do not merge
    int32_t pair_id;     // the token they merge into
};

// Whether left and right (neighbours in text) merge: sets the token they become, returns the rank
// of the merge (lower first), MERGE_NONE when they do not.
typedef uint32_t merge_find(const void *ctx, const char *text, const struct piece *left,
                            const struct piece *right, int32_t *id);

struct merger {
    struct piece *pieces; // (cap)
    uint64_t *heap;       // (heap_cap) rank << 32 | index of the left piece
    size_t cap, heap_cap, heap_len;
    const struct cancel *cancel; // polled while a long text merges; NULL: nothing ends it
    size_t stretch;              // pieces; 0: MERGE_STRETCH
};

static inline size_t merger_stretch(const struct merger *m)
{
    return m->stretch ? m->stretch : MERGE_STRETCH;
}

// How many of pieces[0..n_out), which cover n_bytes, count: all of them, or, of a stretch that was
// cut off, those that end in its first three quarters, but one at least.
size_t merger_settled(const struct merger *m, size_t n_out, size_t n_bytes, bool cut_off);

void merger_release(struct merger *m); // NULL and zeroed are fine

// Room for n pieces; fill pieces[0..n) with begin, n, id, then run. False: out of memory.
bool merger_reserve(struct merger *m, size_t n);

// Merges pieces[0..n) until nothing merges; the remaining ones end up in pieces[0..return value) in
// order. Returns 0 for n > 0 only when out of memory or asked to end.
size_t merger_run(struct merger *m, size_t n, const char *text, merge_find *find, const void *ctx);

// Whether the text is no longer wanted: ERR_INTERRUPTED.
static inline bool merger_interrupted(const struct merger *m, struct error *err)
{
    return cancel_asked(m->cancel) &&
           !error_set(err, ERR_INTERRUPTED, "interrupted while the text was split into tokens");
}

#endif
