// Sets of numbers, each kept once: equal sets have equal indices.
#ifndef HOKKU_GRAMMAR_SETPOOL_H
#define HOKKU_GRAMMAR_SETPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct setpool {
    uint64_t *items;
    size_t n_items, cap_items;
    struct set_range {
        size_t first;
        uint32_t n, hash;
    } * sets; // [0] is the empty set
    size_t n_sets, cap_sets;
    uint32_t *slots; // open addressing; set + 1, 0: free
    size_t n_slots;
};

#define SETPOOL_FAILED UINT32_MAX

bool setpool_init(struct setpool *p);    // false: out of memory
void setpool_release(struct setpool *p); // zeroed is fine
// The index of the set of items[0..n), which are sorted here and lose what is there twice.
// SETPOOL_FAILED: out of memory.
uint32_t setpool_add(struct setpool *p, uint64_t *items, size_t n);

static inline const uint64_t *setpool_get(const struct setpool *p, uint32_t set, uint32_t *n)
{
    *n = p->sets[set].n;
    return p->items + p->sets[set].first;
}

static inline size_t setpool_bytes(const struct setpool *p)
{
    return p->n_items * sizeof *p->items + p->n_sets * sizeof *p->sets;
}

#endif
