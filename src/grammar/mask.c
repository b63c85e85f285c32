// Which tokens may follow a configuration.
//
// In general: a walk over the vocabulary's tree, which leaves out what is below a byte that cannot
// follow. That takes long where nearly everything can, which is in strings: a repetition of a wide
// class of characters, counted or not. For each such class there are tables of the tokens that lie
// inside of it, by their number of characters, and a tree of what follows in the tokens that leave
// it. How many characters of the class may follow is found by taking steps with one of them: they
// are alike as long as no other alternative takes a byte that one of them begins with.
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/matcher.h"

enum {
    MOST_TABLES = 16,
    COUNTS = 32, // tokens of more characters are rare: looked at one by one
    MOST_MASK_BYTES = 24 << 20,
    PREPARED = 8, // masks made before an answer begins, as long as they take fewer rounds
    PREPARED_ROUNDS = 1 << 22,
};

struct class_table {
    uint32_t state; // that its characters begin in
    bool lead[256]; // bytes that they begin with
    char one[4];    // one of them
    size_t n_one;
    uint32_t *inside;         // (COUNTS + 1, n_words) tokens of at most so many characters of it
    struct trie_text *longer; // (n_longer) those of more, fewest first: id, tag = characters
    size_t n_longer;
    uint32_t most; // characters of it in any token, from the beginning
    // What follows in tokens that leave it after one character or more; tag = how many. (Those that
    // do not begin in it are in the vocabulary's own tree, together.)
    struct trie leaving;
};

static void set_bit(uint32_t *bits, int32_t id)
{
    bits[id / 32] |= 1u << (id % 32);
}

// ---- tables ----

static void table_free(struct class_table *t)
{
    if (!t)
        return;
    free(t->inside);
    free(t->longer);
    trie_release(&t->leaving);
    free(t);
}

static int by_tag(const void *a, const void *b)
{
    const struct trie_text *x = a, *y = b;
    return x->tag != y->tag ? (x->tag < y->tag ? -1 : 1) : x->id < y->id ? -1 : x->id > y->id;
}

// Where a walk of the class's own states has come to, by depth of the vocabulary's tree.
struct place {
    uint32_t state; // of the class
    uint32_t begin; // byte at which the current character begins
    uint32_t n;     // characters before it
};

static const struct edge *edge_for(const struct automaton *a, uint32_t state, unsigned char byte)
{
    const struct state *q = &a->states[state];
    for (uint32_t i = q->a; i < q->b; i++)
        if (byte >= a->edges[i].lo && byte <= a->edges[i].hi)
            return &a->edges[i];
    return NULL;
}

// The tokens below a node, which all leave the class at the same byte.
static void keep_leaving(const struct grammar_matcher *m, const struct class_table *t,
                         const struct trie_node *node, struct place at, struct trie_text *texts,
                         size_t *n)
{
    const struct grammar_vocab *v = m->vocab;
    const bool *alphabet = m->grammar->a.in_alphabet;
    const struct trie_node *end = &v->trie.nodes[node->end];
    for (uint32_t e = node->first; e < end->first; e++) {
        int32_t id = v->trie.entries[e].id;
        const char *s = v->bytes.data + v->begin[id] + at.begin;
        uint32_t len = v->begin[id + 1] - v->begin[id] - at.begin, i = 0;
        // Where the table is used no other alternative begins with a byte of the class.
        if (t->lead[(unsigned char)s[0]])
            return;
        while (i < len && alphabet[(unsigned char)s[i]])
            i++;
        if (i == len)
            texts[(*n)++] = (struct trie_text){s, len, id, at.n};
    }
}

static bool fill(struct grammar_matcher *m, struct class_table *t, struct place *places,
                 struct trie_text *texts)
{
    const struct automaton *a = &m->grammar->a;
    const struct trie *v = &m->vocab->trie;
    size_t n_leaving = 0, cap_longer = 0;
    places[0] = (struct place){.state = t->state};
    for (uint32_t i = 0; i < v->n_nodes;) {
        const struct trie_node *node = &v->nodes[i];
        struct place at = places[node->depth - 1];
        const struct edge *edge = edge_for(a, at.state, node->byte);
        t->most = at.n > t->most ? at.n : t->most;
        if (!edge) {
            if (at.n > 0)
                keep_leaving(m, t, node, at, texts, &n_leaving);
            i = node->end;
            continue;
        }
        bool whole = a->states[edge->to].kind == STATE_RETURN;
        uint32_t n = at.n + 1; // an incomplete one is one, too
        places[node->depth] = whole ? (struct place){t->state, node->depth, n}
                                    : (struct place){edge->to, at.begin, at.n};
        for (uint32_t e = node->first; e < v->nodes[i + 1].first; e++) {
            t->most = n > t->most ? n : t->most;
            if (n <= COUNTS) {
                set_bit(t->inside + n * m->n_words, v->entries[e].id);
                continue;
            }
            if (!array_grow(NULL, &t->longer, t->n_longer, &cap_longer, sizeof *t->longer))
                return false;
            t->longer[t->n_longer++] = (struct trie_text){.id = v->entries[e].id, .tag = n};
        }
        i++;
    }
    for (size_t n = 1; n <= COUNTS; n++)
        for (size_t w = 0; w < m->n_words; w++)
            t->inside[n * m->n_words + w] |= t->inside[(n - 1) * m->n_words + w];
    if (t->n_longer)
        qsort(t->longer, t->n_longer, sizeof *t->longer, by_tag);
    return trie_init(&t->leaving, texts, n_leaving);
}

static struct class_table *table_create(struct grammar_matcher *m, const struct automaton_class *c)
{
    struct class_table *t = calloc(1, sizeof *t);
    struct place *places = malloc((m->vocab->trie.max_depth + 1) * sizeof *places);
    struct trie_text *texts = malloc((m->vocab->trie.n_entries + 1) * sizeof *texts);
    bool ok = t && places && texts;
    if (ok) {
        const struct automaton *a = &m->grammar->a;
        t->state = c->state;
        t->n_one = utf8_encode(c->chars.r[0].lo, t->one);
        const struct state *q = &a->states[c->state];
        for (uint32_t i = q->a; i < q->b; i++)
            memset(t->lead + a->edges[i].lo, true, a->edges[i].hi - a->edges[i].lo + 1u);
        t->inside = calloc((COUNTS + 1) * m->n_words, sizeof *t->inside);
        ok = t->inside && fill(m, t, places, texts);
    }
    free(places);
    free(texts);
    if (!ok) {
        table_free(t);
        return NULL;
    }
    return t;
}

bool masks_init(struct grammar_matcher *m, struct error *err)
{
    const struct automaton *a = &m->grammar->a;
    m->n_words = (m->vocab->n + 31) / 32;
    size_t n_tables = a->n_classes < MOST_TABLES ? a->n_classes : MOST_TABLES;
    m->walk = malloc((m->vocab->trie.max_depth + 1) * sizeof *m->walk);
    m->tables = calloc(n_tables + 1, sizeof *m->tables);
    bool ok = m->walk && m->tables;
    for (size_t i = 0; ok && i < n_tables; i++)
        ok = (m->tables[i] = table_create(m, &a->classes[i])) != NULL;
    return ok || error_oom(err, "the tables of a grammar",
                           n_tables * (COUNTS + 1) * m->n_words * sizeof *m->masks);
}

void masks_forget(struct grammar_matcher *m)
{
    m->n_masks = 0;
    if (m->mask_of)
        memset(m->mask_of, 0, m->cap_mask_of * sizeof *m->mask_of);
}

void masks_release(struct grammar_matcher *m)
{
    for (size_t i = 0; m->tables && m->tables[i]; i++)
        table_free(m->tables[i]);
    free(m->tables);
    free(m->walk);
    free(m->masks);
    free(m->mask_of);
}

// ---- masks ----

// The entries of t that can follow config and whose tag is in [lo, hi]; not those that begin with a
// byte of skip (NULL: none).
static void walk(struct grammar_matcher *m, const struct trie *t, uint32_t config, uint32_t lo,
                 uint32_t hi, const bool *skip, uint32_t *bits)
{
    uint32_t *at = m->walk;
    at[0] = config;
    for (uint32_t i = 0; i < t->n_nodes && !m->too_many;) {
        const struct trie_node *node = &t->nodes[i];
        if (skip && node->depth == 1 && skip[node->byte]) {
            i = node->end;
            continue;
        }
        uint32_t to = matcher_step(m, at[node->depth - 1], node->byte);
        if (to == CONFIG_DEAD) {
            i = node->end;
            continue;
        }
        at[node->depth] = to;
        for (uint32_t e = node->first; e < node[1].first; e++)
            if (t->entries[e].tag >= lo && t->entries[e].tag <= hi)
                set_bit(bits, t->entries[e].id);
        i++;
    }
}

// Whether of all that can follow config only the class itself takes the bytes it begins with.
// *inside: characters of the class can follow.
static bool alone(struct grammar_matcher *m, const struct class_table *t, uint32_t config,
                  bool *inside)
{
    const struct automaton *a = &m->grammar->a;
    uint32_t n;
    const uint64_t *pairs = setpool_get(&m->configs, config, &n);
    *inside = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t state = (uint32_t)(pairs[i] >> 32);
        const struct state *q = &a->states[state];
        if (state == t->state) {
            *inside = true;
            continue;
        }
        matcher_work(m, 1 + (q->kind == STATE_EDGES ? 8 * (q->b - q->a) : 0));
        for (uint32_t k = q->a; q->kind == STATE_EDGES && k < q->b; k++)
            for (unsigned c = a->edges[k].lo; c <= a->edges[k].hi; c++)
                if (t->lead[c])
                    return false;
    }
    return true;
}

static const struct class_table *table_of(const struct grammar_matcher *m, uint32_t config)
{
    uint32_t n;
    const uint64_t *pairs = setpool_get(&m->configs, config, &n);
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; m->tables[k]; k++)
            if (m->tables[k]->state == pairs[i] >> 32)
                return m->tables[k];
    return NULL;
}

// False: the table says nothing here.
static bool from_table(struct grammar_matcher *m, const struct class_table *t, uint32_t config,
                       uint32_t *bits)
{
    // How far: characters of the class, one after another, while they are alike.
    uint32_t n = 0, at = config;
    bool inside, loops = false;
    for (; n <= t->most && !m->too_many; n++) {
        if (!alone(m, t, at, &inside))
            return false;
        if (!inside)
            break;
        uint32_t to = at;
        for (size_t i = 0; i < t->n_one; i++)
            to = matcher_step(m, to, (unsigned char)t->one[i]);
        loops = to == at;
        if (loops)
            break;
        at = to;
    }
    if (loops)
        n = t->most;
    memcpy(bits, t->inside + (n < COUNTS ? n : COUNTS) * m->n_words, m->n_words * sizeof *bits);
    for (size_t i = 0; i < t->n_longer && t->longer[i].tag <= n; i++)
        set_bit(bits, t->longer[i].id);
    walk(m, &m->vocab->trie, config, 0, UINT32_MAX, t->lead, bits);
    // What leaves the class after 1, 2 ... characters.
    at = config;
    for (uint32_t lo = 0; lo <= n;) {
        uint32_t hi = lo, to = at;
        if (lo < n) {
            for (size_t i = 0; i < t->n_one; i++)
                to = matcher_step(m, to, (unsigned char)t->one[i]);
            if (to == at)
                hi = t->most; // the same from here on
        }
        walk(m, &t->leaving, at, lo, hi, NULL, bits);
        at = to;
        lo = hi + 1;
    }
    return true;
}

bool masks_compute(struct grammar_matcher *m, uint32_t config, bool tables, uint32_t *bits)
{
    const struct class_table *t = tables ? table_of(m, config) : NULL;
    if (!t || !from_table(m, t, config, bits)) {
        memset(bits, 0, m->n_words * sizeof *bits);
        walk(m, &m->vocab->trie, config, 0, UINT32_MAX, NULL, bits);
    }
    if (matcher_accepting(m, config))
        for (size_t i = 0; i < m->vocab->n_end_ids; i++)
            set_bit(bits, m->vocab->end_ids[i]);
    return !m->failed && !m->too_many;
}

// Room for one more mask; all are forgotten when there are many.
static uint32_t *mask_for(struct grammar_matcher *m, uint32_t config)
{
    size_t most = MOST_MASK_BYTES / (m->n_words * sizeof *m->masks + 1) + 1;
    if (m->n_masks >= most)
        masks_forget(m);
    if (m->n_masks == m->cap_masks) {
        size_t cap = m->cap_masks ? 2 * m->cap_masks : 16;
        cap = cap < most ? cap : most;
        uint32_t *masks = realloc(m->masks, cap * m->n_words * sizeof *masks);
        if (!masks)
            return NULL;
        m->masks = masks;
        m->cap_masks = cap;
    }
    if (config >= m->cap_mask_of) {
        size_t cap = 2 * ((size_t)config + 1);
        uint32_t *of = realloc(m->mask_of, cap * sizeof *of);
        if (!of)
            return NULL;
        memset(of + m->cap_mask_of, 0, (cap - m->cap_mask_of) * sizeof *of);
        m->mask_of = of;
        m->cap_mask_of = cap;
    }
    return m->masks + m->n_masks * m->n_words;
}

// The mask of a configuration, made when it is asked for the first time.
static const uint32_t *mask_at(struct grammar_matcher *m, uint32_t config, struct error *err)
{
    uint32_t known = config < m->cap_mask_of ? m->mask_of[config] : 0;
    if (!known) {
        uint32_t *mask = mask_for(m, config);
        if (!mask) {
            error_oom(err, "the masks of a grammar", m->n_words * sizeof *mask);
            return NULL;
        }
        masks_compute(m, config, true, mask);
        if (!matcher_ok(m, err))
            return NULL;
        known = m->mask_of[config] = (uint32_t)++m->n_masks;
    }
    return m->masks + (known - 1) * m->n_words;
}

void masks_prepare(struct grammar_matcher *m)
{
    uint32_t configs[PREPARED] = {m->start}, n = 1;
    struct error ignored;
    const uint64_t most = m->done + PREPARED_ROUNDS;
    for (uint32_t i = 0; i < n && m->done <= most && mask_at(m, configs[i], &ignored); i++)
        for (unsigned byte = 0; byte < 256 && n < PREPARED; byte++) {
            const uint32_t to = matcher_step(m, configs[i], (unsigned char)byte);
            bool known = to == CONFIG_DEAD;
            for (uint32_t k = 0; k < n && !known; k++)
                known = configs[k] == to;
            if (!known)
                configs[n++] = to;
        }
    matcher_ok(m, &ignored);
}

bool grammar_mask(struct grammar_state *s, uint32_t *bits, size_t n_words, uint32_t *n_allowed,
                  struct error *err)
{
    struct grammar_matcher *m = s->matcher;
    const uint32_t *mask = matcher_tidy(m, err) ? mask_at(m, s->config, err) : NULL;
    if (!mask)
        return false;
    size_t n = m->n_words < n_words ? m->n_words : n_words;
    uint32_t count = 0;
    memcpy(bits, mask, n * sizeof *bits);
    memset(bits + n, 0, (n_words - n) * sizeof *bits);
    for (size_t i = 0; i < n; i++)
        count += (uint32_t)__builtin_popcount(bits[i]);
    if (n_allowed)
        *n_allowed = count;
    if (count == 0)
        return error_set(err, ERR_FAIL,
                         "no token of the vocabulary can follow here and obey the grammar%s",
                         matcher_accepting(m, s->config) ? ", and the model has no end token" : "");
    return true;
}

bool grammar_keep_near(struct grammar_state *s, uint64_t most, uint32_t *bits, size_t n_words,
                       struct error *err)
{
    struct grammar_matcher *m = s->matcher;
    const struct trie *t = &m->vocab->trie;
    m->walk[0] = s->config;
    for (uint32_t i = 0; i < t->n_nodes && !m->too_many;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t to = matcher_step(m, m->walk[node->depth - 1], node->byte);
        if (to == CONFIG_DEAD) {
            i = node->end;
            continue;
        }
        m->walk[node->depth] = to;
        matcher_work(m, m->configs.sets[to].n);
        bool near = matcher_distance(m, to) <= most;
        for (uint32_t e = node->first; e < node[1].first && !near; e++) {
            int32_t id = t->entries[e].id;
            if ((size_t)id / 32 < n_words)
                bits[id / 32] &= ~(1u << (id % 32));
        }
        i++;
    }
    return matcher_ok(m, err);
}
