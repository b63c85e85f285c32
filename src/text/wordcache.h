// Remembers the tokens of short words within one call: text repeats its words. Direct-mapped, so a
// lookup is one cache line and nothing is ever freed.
#ifndef HOKKU_TEXT_WORDCACHE_H
#define HOKKU_TEXT_WORDCACHE_H

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"

#define WORDCACHE_ENTRIES  16384u
#define WORDCACHE_MAX_TEXT 20
#define WORDCACHE_MAX_IDS  9
// Below this many bytes of text the table costs more than it saves.
#define WORDCACHE_MIN_INPUT 4096

struct wordcache_entry { // 64 bytes
    uint16_t tag;
    unsigned char len; // 0: empty
    unsigned char n_ids;
    char text[WORDCACHE_MAX_TEXT];
    int32_t ids[WORDCACHE_MAX_IDS];
    uint32_t unused;
};

struct wordcache {
    struct wordcache_entry *entries; // NULL: off
};

// Turns the cache on when the input is long enough. Without memory it simply stays off.
static inline void wordcache_init(struct wordcache *c, size_t n_input)
{
    c->entries =
        n_input >= WORDCACHE_MIN_INPUT ? calloc(WORDCACHE_ENTRIES, sizeof *c->entries) : NULL;
}

static inline void wordcache_release(struct wordcache *c)
{
    free(c->entries);
    c->entries = NULL;
}

// The entry where the word belongs, NULL when it is too long or the cache is off.
static inline struct wordcache_entry *wordcache_at(const struct wordcache *c, const char *s,
                                                   size_t n, uint16_t *tag)
{
    if (!c->entries || n > WORDCACHE_MAX_TEXT)
        return NULL;
    uint64_t h = hash_bytes(s, n, 0);
    *tag = (uint16_t)(h >> 48);
    return &c->entries[h % WORDCACHE_ENTRIES];
}

static inline bool wordcache_hit(const struct wordcache_entry *e, uint16_t tag, const char *s,
                                 size_t n)
{
    return e->tag == tag && e->len == n && !memcmp(e->text, s, n);
}

static inline void wordcache_store(struct wordcache_entry *e, uint16_t tag, const char *s, size_t n,
                                   const int32_t *ids, size_t n_ids)
{
    if (n_ids > WORDCACHE_MAX_IDS)
        return;
    e->tag = tag;
    e->len = (unsigned char)n;
    e->n_ids = (unsigned char)n_ids;
    memcpy(e->text, s, n);
    memcpy(e->ids, ids, n_ids * sizeof *ids);
}

#endif
