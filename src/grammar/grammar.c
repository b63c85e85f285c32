#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/gbnf.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

static struct grammar *finish(struct builder *b, uint32_t root, struct error *err)
{
    struct grammar *g = calloc(1, sizeof *g);
    if (!g)
        error_oom(err, "a grammar", sizeof *g);
    else if (!automaton_init(&g->a, b, root, err)) {
        free(g);
        g = NULL;
    }
    builder_release(b);
    return g;
}

struct grammar *grammar_from_gbnf(const char *text, size_t n, const struct cancel *cancel,
                                  struct error *err)
{
    struct builder b = {.work.cancel = cancel};
    uint32_t root;
    if (!gbnf_read(&b, text, n, &root, err)) {
        builder_release(&b);
        return NULL;
    }
    return finish(&b, root, err);
}

struct grammar *grammar_from_schema(const char *text, size_t n, unsigned indent,
                                    const struct cancel *cancel, struct error *err)
{
    struct builder b = {.work.cancel = cancel};
    uint32_t root;
    if (!schema_read(&b, text, n, indent, &root, err)) {
        builder_release(&b);
        return NULL;
    }
    return finish(&b, root, err);
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    automaton_release(&g->a);
    free(g);
}

struct grammar_vocab *grammar_vocab_create(const struct tokenizer *t, struct error *err)
{
    uint32_t n = tokenizer_n_vocab(t);
    struct grammar_vocab *v = calloc(1, sizeof *v);
    struct trie_text *texts = malloc((n + 1) * sizeof *texts);
    size_t n_texts = 0;
    bool ok = v && texts && (v->begin = malloc((n + 1ull) * sizeof *v->begin));
    for (uint32_t id = 0; ok && id < n; id++) {
        v->begin[id] = (uint32_t)v->bytes.len;
        // A token that ends the answer is no text, whatever its kind.
        if (!tokenizer_is_end(t, (int32_t)id))
            ok = tokenizer_decode_one(t, (int32_t)id, false, &v->bytes);
        if (v->bytes.len - v->begin[id] > TRIE_MAX_DEPTH)
            v->bytes.len = v->begin[id]; // never allowed: no vocabulary in use has one
        ok = ok && v->bytes.len < UINT32_MAX;
    }
    if (ok) {
        v->n = n;
        v->begin[n] = (uint32_t)v->bytes.len;
        for (uint32_t id = 0; id < n; id++)
            if (v->begin[id + 1] > v->begin[id])
                texts[n_texts++] = (struct trie_text){.s = v->bytes.data + v->begin[id],
                                                      .n = v->begin[id + 1] - v->begin[id],
                                                      .id = (int32_t)id};
        const int32_t *ends = tokenizer_end_ids(t, &v->n_end_ids);
        v->end_ids = malloc((v->n_end_ids + 1) * sizeof *v->end_ids);
        ok = v->end_ids && trie_init(&v->trie, texts, n_texts);
        if (ok && v->n_end_ids)
            memcpy(v->end_ids, ends, v->n_end_ids * sizeof *ends);
    }
    free(texts);
    if (!ok) {
        grammar_vocab_free(v);
        error_oom(err, "the vocabulary's tree", n * sizeof *texts);
        return NULL;
    }
    return v;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v)
        return;
    buf_release(&v->bytes);
    free(v->begin);
    free(v->end_ids);
    trie_release(&v->trie);
    free(v);
}

int32_t grammar_vocab_find(const struct grammar_vocab *v, const char *bytes, size_t n)
{
    size_t depth = 0;
    for (uint32_t i = 0; i < v->trie.n_nodes;) {
        const struct trie_node *node = &v->trie.nodes[i];
        if (node->depth <= depth)
            break; // what is below the text so far has been seen
        if (node->byte != (unsigned char)bytes[depth]) {
            i = node->end;
            continue;
        }
        if (++depth == n)
            return node[1].first > node->first ? v->trie.entries[node->first].id : -1;
        i++;
    }
    return -1;
}

// ---- states ----

static void enlist(struct grammar_state *s, struct grammar_matcher *m, uint32_t config)
{
    *s = (struct grammar_state){.matcher = m, .config = config, .next = m->states};
    if (m->states)
        m->states->prev = s;
    m->states = s;
}

void grammar_state_init(struct grammar_state *s, struct grammar_matcher *m)
{
    enlist(s, m, m->start);
}

void grammar_state_copy(struct grammar_state *s, const struct grammar_state *from)
{
    enlist(s, from->matcher, from->config);
}

void grammar_state_release(struct grammar_state *s)
{
    if (!s->matcher)
        return;
    *(s->prev ? &s->prev->next : &s->matcher->states) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    *s = (struct grammar_state){0};
}

bool grammar_accept_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_taken,
                          struct error *err)
{
    struct grammar_matcher *m = s->matcher;
    *n_taken = 0;
    if (!matcher_tidy(m, err))
        return false;
    for (; *n_taken < n; ++*n_taken) {
        uint32_t to = matcher_step(m, s->config, (unsigned char)bytes[*n_taken]);
        if (!matcher_ok(m, err))
            return false;
        if (to == CONFIG_DEAD)
            return error_set(err, ERR_FAIL, "byte %zu, 0x%02x, cannot follow in the grammar",
                             *n_taken, (unsigned char)bytes[*n_taken]);
        s->config = to;
    }
    return true;
}

bool grammar_accept(struct grammar_state *s, int32_t id, struct error *err)
{
    const struct grammar_vocab *v = s->matcher->vocab;
    uint32_t before = s->config;
    size_t n_taken;
    for (size_t i = 0; i < v->n_end_ids; i++)
        if (v->end_ids[i] == id) {
            if (!grammar_may_end(s))
                return error_set(err, ERR_FAIL,
                                 "the answer ended where the grammar wants more of it");
            s->config = CONFIG_DEAD;
            return true;
        }
    if (id < 0 || (uint32_t)id >= v->n || v->begin[id] == v->begin[id + 1])
        return error_set(err, ERR_FAIL, "token %d has no text, expected one that the grammar takes",
                         id);
    if (!matcher_tidy(s->matcher, err))
        return false;
    before = s->config;
    if (grammar_accept_bytes(s, v->bytes.data + v->begin[id], v->begin[id + 1] - v->begin[id],
                             &n_taken, err))
        return true;
    s->config = before;
    return false;
}

bool grammar_may_end(const struct grammar_state *s)
{
    return matcher_accepting(s->matcher, s->config);
}

bool grammar_must_end(const struct grammar_state *s)
{
    return grammar_may_end(s) && s->matcher->configs.sets[s->config].n == 1;
}

uint32_t grammar_distance(const struct grammar_state *s)
{
    return matcher_distance(s->matcher, s->config);
}

uint32_t grammar_longest(const struct grammar *g)
{
    uint32_t most = 0;
    for (size_t i = 0; i < g->a.n_rules; i++) {
        uint32_t d = g->a.distance[g->a.rules[i].start];
        most = d != NO_STATE && d > most ? d : most;
    }
    return most;
}

bool grammar_forced(const struct grammar_state *s, size_t most, struct buf *out, struct error *err)
{
    struct grammar_matcher *m = s->matcher;
    uint32_t at = s->config;
    for (size_t n = 0; n < most && !matcher_accepting(m, at); n++) {
        uint32_t to = CONFIG_DEAD;
        int byte = -1;
        for (int c = 0; c < 256; c++) {
            uint32_t next = matcher_step(m, at, (unsigned char)c);
            if (next == CONFIG_DEAD)
                continue;
            if (byte >= 0)
                return matcher_ok(m, err);
            byte = c;
            to = next;
        }
        if (byte < 0)
            break;
        if (!buf_putc(out, (char)byte))
            return error_oom(err, "what a grammar forces", out->len);
        at = to;
    }
    return matcher_ok(m, err);
}

bool grammar_closing(const struct grammar_state *s, int32_t *id, struct error *err)
{
    struct grammar_matcher *m = s->matcher;
    const struct trie *t = &m->vocab->trie;
    uint32_t *at = m->walk, best = 0, n = matcher_distance(m, s->config);
    *id = n == 0 && m->vocab->n_end_ids ? m->vocab->end_ids[0] : -1;
    at[0] = s->config;
    for (uint32_t i = 0; i < t->n_nodes && n > 0 && !m->too_many;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t to = matcher_step(m, at[node->depth - 1], node->byte);
        matcher_work(m, m->configs.sets[to].n);
        if (to == CONFIG_DEAD || matcher_distance(m, to) + node->depth != n) {
            i = node->end;
            continue;
        }
        at[node->depth] = to;
        if (node->depth > best && node[1].first > node->first) {
            best = node->depth;
            *id = t->entries[node->first].id;
        }
        i++;
    }
    return matcher_ok(m, err);
}
