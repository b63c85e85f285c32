#include "text/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

// Up to here a linear scan for the best pair is faster than a heap.
#define SCAN_MAX 40

void merger_release(struct merger *m)
{
    if (!m)
        return;
    free(m->pieces);
    free(m->heap);
    *m = (struct merger){0};
}

bool merger_reserve(struct merger *m, size_t n)
{
    if (n <= m->cap)
        return true;
    if (n >= MERGE_NONE)
        return false;
    size_t cap = m->cap ? m->cap : 64;
    while (cap < n)
        cap *= 2;
    struct piece *p = realloc(m->pieces, cap * sizeof *p);
    if (!p)
        return false;
    m->pieces = p;
    m->cap = cap;
    return true;
}

size_t merger_settled(const struct merger *m, size_t n_out, size_t n_bytes, bool cut_off)
{
    if (!cut_off || n_out == 0)
        return n_out;
    size_t n = 1, limit = m->pieces[0].begin + n_bytes - n_bytes / 4;
    while (n < n_out && m->pieces[n].begin + m->pieces[n].n <= limit)
        n++;
    return n;
}

static size_t run_scan(struct piece *p, size_t n, const char *text, merge_find *find,
                       const void *ctx)
{
    for (size_t i = 0; i + 1 < n; i++)
        p[i].pair_rank = find(ctx, text, &p[i], &p[i + 1], &p[i].pair_id);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (p[i].pair_rank < p[best].pair_rank)
                best = i;
        if (p[best].pair_rank == MERGE_NONE)
            break;
        p[best].id = p[best].pair_id;
        p[best].n += p[best + 1].n;
        memmove(&p[best + 1], &p[best + 2], (n - best - 2) * sizeof *p);
        n--;
        if (best > 0)
            p[best - 1].pair_rank = find(ctx, text, &p[best - 1], &p[best], &p[best - 1].pair_id);
        if (best + 1 < n)
            p[best].pair_rank = find(ctx, text, &p[best], &p[best + 1], &p[best].pair_id);
    }
    return n;
}

// A heap of 64-bit keys, smallest first, four children per node (fewer cache misses than two).

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t key = h[i];
    for (;;) {
        size_t child = 4 * i + 1;
        if (child >= n)
            break;
        size_t end = child + 4 < n ? child + 4 : n, best = child;
        for (size_t c = child + 1; c < end; c++)
            if (h[c] < h[best])
                best = c;
        if (h[best] >= key)
            break;
        h[i] = h[best];
        i = best;
    }
    h[i] = key;
}

static bool heap_push(struct merger *m, uint64_t key)
{
    if (!array_grow(NULL, &m->heap, m->heap_len, &m->heap_cap, sizeof *m->heap))
        return false;
    size_t i = m->heap_len++;
    while (i > 0 && m->heap[(i - 1) / 4] > key) {
        m->heap[i] = m->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    m->heap[i] = key;
    return true;
}

static bool pair_up(struct merger *m, uint32_t i, const char *text, merge_find *find,
                    const void *ctx)
{
    struct piece *l = &m->pieces[i];
    l->pair_rank = MERGE_NONE;
    if (l->next == MERGE_NONE)
        return true;
    l->pair_rank = find(ctx, text, l, &m->pieces[l->next], &l->pair_id);
    return l->pair_rank == MERGE_NONE || heap_push(m, (uint64_t)l->pair_rank << 32 | i);
}

static size_t run_heap(struct merger *m, size_t n, const char *text, merge_find *find,
                       const void *ctx)
{
    struct piece *p = m->pieces;
    m->heap_len = 0;
    for (size_t i = 0; i < n; i++) {
        p[i].prev = i ? (uint32_t)i - 1 : MERGE_NONE;
        p[i].next = i + 1 < n ? (uint32_t)i + 1 : MERGE_NONE;
    }
    for (size_t i = 0; i < n; i++)
        if (!pair_up(m, (uint32_t)i, text, find, ctx) || (i % 1024 == 0 && cancel_asked(m->cancel)))
            return 0;
    for (size_t n_taken = 1; m->heap_len; n_taken++) {
        if (n_taken % 1024 == 0 && cancel_asked(m->cancel))
            return 0;
        uint64_t key = m->heap[0];
        m->heap[0] = m->heap[--m->heap_len];
        if (m->heap_len)
            sift_down(m->heap, m->heap_len, 0);
        uint32_t i = (uint32_t)key;
        struct piece *l = &p[i];
        // An entry is stale when its pair has changed since (a piece merged away has no pair). One
        // of the same rank stands at the place in the order where the present pair stands too.
        if (l->pair_rank == MERGE_NONE || l->pair_rank != key >> 32)
            continue;
        struct piece *r = &p[l->next];
        l->id = l->pair_id;
        l->n += r->n;
        l->next = r->next;
        if (r->next != MERGE_NONE)
            p[r->next].prev = i;
        r->pair_rank = MERGE_NONE;
        if ((l->prev != MERGE_NONE && !pair_up(m, l->prev, text, find, ctx)) ||
            !pair_up(m, i, text, find, ctx))
            return 0;
    }
    size_t n_out = 0;
    for (uint32_t i = 0; i != MERGE_NONE;) {
        uint32_t next = p[i].next;
        p[n_out++] = p[i];
        i = next;
    }
    return n_out;
}

size_t merger_run(struct merger *m, size_t n, const char *text, merge_find *find, const void *ctx)
{
    if (n <= SCAN_MAX)
        return run_scan(m->pieces, n, text, find, ctx);
    return run_heap(m, n, text, find, ctx);
}
