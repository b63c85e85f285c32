// Memory of one parse or one rendering: allocated piece by piece, freed all at once, never beyond
// a cap. Nothing in this folder frees a single value.
#ifndef HOKKU_JINJA_ARENA_H
#define HOKKU_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena {
    struct arena_chunk *head; // owned
    size_t used;              // bytes of all chunks
    size_t max;               // the cap on `used`
    bool refused;             // it was the machine that had no more, not the cap
};

// Returns n bytes, zeroed and aligned for any type, or NULL when the cap or the machine's memory is
// reached.
void *arena_alloc(struct arena *a, size_t n);
// Grows the block p from n_old to n_new bytes, in place when it was the last one handed out.
// The old block stays readable. NULL as above.
void *arena_grow(struct arena *a, void *p, size_t n_old, size_t n_new);
void arena_release(struct arena *a); // zeroed is fine

#endif
