#include "jinja/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    alignas(max_align_t) char data[];
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 4 << 20, ALIGN = alignof(max_align_t) };

static size_t round_up(size_t n)
{
    return (n + (ALIGN - 1)) & ~(size_t)(ALIGN - 1);
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    n = round_up(n ? n : 1);
    struct arena_chunk *c = a->head;
    if (!c || c->cap - c->used < n) {
        size_t cap = c ? c->cap * 2 : FIRST_CHUNK;
        if (cap > LARGEST_CHUNK)
            cap = LARGEST_CHUNK;
        if (cap < n)
            cap = n;
        if (cap > a->max - a->used) // the doubling must not fail where the request itself fits
            cap = n;
        if (a->used > a->max || cap > a->max - a->used)
            return NULL;
        c = calloc(1, sizeof *c + cap); // pages that are never used are never touched
        a->refused |= !c;
        if (!c)
            return NULL;
        c->next = a->head;
        c->used = 0;
        c->cap = cap;
        a->head = c;
        a->used += cap;
    }
    void *p = c->data + c->used;
    c->used += n;
    return p;
}

void *arena_grow(struct arena *a, void *p, size_t n_old, size_t n_new)
{
    struct arena_chunk *c = a->head;
    if (p && c && n_new <= SIZE_MAX / 2) {
        size_t old = round_up(n_old ? n_old : 1), want = round_up(n_new);
        if ((char *)p + old == c->data + c->used && want >= old && want - old <= c->cap - c->used) {
            c->used += want - old;
            return p;
        }
    }
    void *q = arena_alloc(a, n_new);
    if (q && n_old)
        memcpy(q, p, n_old);
    return q;
}

void arena_release(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}
