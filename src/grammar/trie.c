#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

struct key {
    uint64_t head; // the first eight bytes, the first one highest
    uint32_t index;
};

static int by_text(const void *a, const void *b)
{
    const struct trie_text *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : x->n != y->n ? (x->n < y->n ? -1 : 1) : x->id < y->id ? -1 : 1;
}

// By counting, on the first eight bytes; the few that agree in them are compared. (A comparison of
// texts for each step of a sort takes several times as long as all the rest of the preparation.)
static bool sort_texts(struct trie_text *texts, size_t n)
{
    struct key *keys = malloc((n + 1) * sizeof *keys), *other = malloc((n + 1) * sizeof *other);
    struct trie_text *sorted = malloc((n + 1) * sizeof *sorted);
    bool ok = keys && other && sorted;
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t head = 0;
        for (uint32_t k = 0; k < 8; k++)
            head = head << 8 | (k < texts[i].n ? (unsigned char)texts[i].s[k] : 0);
        keys[i] = (struct key){head, (uint32_t)i};
    }
    for (int shift = 0; ok && shift < 64; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < n; i++)
            at[(keys[i].head >> shift & 255) + 1]++;
        for (int c = 0; c < 256; c++)
            at[c + 1] += at[c];
        for (size_t i = 0; i < n; i++)
            other[at[keys[i].head >> shift & 255]++] = keys[i];
        struct key *swap = keys;
        keys = other;
        other = swap;
    }
    for (size_t i = 0; ok && i < n; i++)
        sorted[i] = texts[keys[i].index];
    for (size_t i = 0, k; ok && i < n; i = k) {
        for (k = i + 1; k < n && keys[k].head == keys[i].head; k++)
            ;
        if (k - i > 1)
            qsort(sorted + i, k - i, sizeof *sorted, by_text);
    }
    if (ok && n)
        memcpy(texts, sorted, n * sizeof *texts);
    free(keys);
    free(other);
    free(sorted);
    return ok;
}

static uint32_t common(const struct trie_text *a, const struct trie_text *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->s[i] == b->s[i])
        i++;
    return i;
}

bool trie_init(struct trie *t, struct trie_text *texts, size_t n)
{
    *t = (struct trie){0};
    if (!sort_texts(texts, n))
        return false;
    size_t n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        n_nodes += texts[i].n - (i ? common(&texts[i - 1], &texts[i]) : 0);
        t->max_depth = texts[i].n > t->max_depth ? texts[i].n : t->max_depth;
    }
    t->nodes = malloc((n_nodes + 1) * sizeof *t->nodes);
    t->entries = malloc((n + 1) * sizeof *t->entries);
    uint32_t *open = malloc((t->max_depth + 1) * sizeof *open); // by depth: the node that is filled
    if (!t->nodes || !t->entries || !open || n_nodes > UINT32_MAX - 1) {
        free(open);
        trie_release(t);
        return false;
    }
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t same = i ? common(&texts[i - 1], &texts[i]) : 0;
        for (; depth > same; depth--)
            t->nodes[open[depth]].end = t->n_nodes;
        for (; depth < texts[i].n; depth++) {
            open[depth + 1] = t->n_nodes;
            t->nodes[t->n_nodes++] = (struct trie_node){.first = t->n_entries,
                                                        .depth = (uint16_t)(depth + 1),
                                                        .byte = (unsigned char)texts[i].s[depth]};
        }
        t->entries[t->n_entries++] = (struct trie_entry){texts[i].id, texts[i].tag};
    }
    for (; depth > 0; depth--)
        t->nodes[open[depth]].end = t->n_nodes;
    t->nodes[t->n_nodes] = (struct trie_node){.end = t->n_nodes, .first = t->n_entries};
    free(open);
    return true;
}

void trie_release(struct trie *t)
{
    free(t->nodes);
    free(t->entries);
    *t = (struct trie){0};
}
