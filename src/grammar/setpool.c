#include "grammar/setpool.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static uint32_t hash_of(const uint64_t *items, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ items[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool grow(void *array, size_t need, size_t *cap, size_t size)
{
    if (need <= *cap)
        return true;
    void **data = array;
    size_t more = *cap ? 2 * *cap : 256;
    while (more < need)
        more *= 2;
    void *p = realloc(*data, more * size);
    if (!p)
        return false;
    *data = p;
    *cap = more;
    return true;
}

static bool rehash(struct setpool *p)
{
    size_t n = p->n_slots ? 2 * p->n_slots : 1024;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    free(p->slots);
    p->slots = slots;
    p->n_slots = n;
    for (size_t i = 0; i < p->n_sets; i++) {
        size_t k = p->sets[i].hash & (n - 1);
        while (slots[k])
            k = (k + 1) & (n - 1);
        slots[k] = (uint32_t)i + 1;
    }
    return true;
}

bool setpool_init(struct setpool *p)
{
    *p = (struct setpool){0};
    return setpool_add(p, NULL, 0) == 0;
}

void setpool_release(struct setpool *p)
{
    free(p->items);
    free(p->sets);
    free(p->slots);
    *p = (struct setpool){0};
}

uint32_t setpool_add(struct setpool *p, uint64_t *items, size_t n)
{
    if (n > 1) {
        if (n <= 16) { // nearly always
            for (size_t i = 1; i < n; i++) {
                uint64_t x = items[i];
                size_t k = i;
                for (; k > 0 && items[k - 1] > x; k--)
                    items[k] = items[k - 1];
                items[k] = x;
            }
        } else {
            qsort(items, n, sizeof *items, ascending);
        }
        size_t unique = 1;
        for (size_t i = 1; i < n; i++)
            if (items[i] != items[unique - 1])
                items[unique++] = items[i];
        n = unique;
    }
    if (2 * (p->n_sets + 1) > p->n_slots && !rehash(p))
        return SETPOOL_FAILED;
    uint32_t hash = hash_of(items, n);
    size_t k = hash & (p->n_slots - 1);
    for (; p->slots[k]; k = (k + 1) & (p->n_slots - 1)) {
        const struct set_range *s = &p->sets[p->slots[k] - 1];
        if (s->hash == hash && s->n == n &&
            (n == 0 || memcmp(p->items + s->first, items, n * sizeof *items) == 0))
            return p->slots[k] - 1;
    }
    if (p->n_sets >= SETPOOL_FAILED - 1 || n > UINT32_MAX ||
        !grow(&p->sets, p->n_sets + 1, &p->cap_sets, sizeof *p->sets) ||
        !grow(&p->items, p->n_items + n, &p->cap_items, sizeof *p->items))
        return SETPOOL_FAILED;
    if (n)
        memcpy(p->items + p->n_items, items, n * sizeof *items);
    p->sets[p->n_sets] = (struct set_range){p->n_items, (uint32_t)n, hash};
    p->n_items += n;
    p->slots[k] = (uint32_t)p->n_sets + 1;
    return (uint32_t)p->n_sets++;
}
