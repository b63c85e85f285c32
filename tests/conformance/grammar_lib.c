// The grammar engine as a shared library, for test_grammar.py and test_json_schema.py.
#include <stdlib.h>
#include <string.h>

#include "grammar/matcher.h"

#define EXPORT __attribute__((visibility("default")))

struct handle {
    struct grammar *g;
    struct grammar_matcher *m;
};

EXPORT struct grammar_vocab *hokku_vocab(const char *bytes, const uint32_t *begin, uint32_t n,
                                         const int32_t *end_ids, size_t n_end_ids);
EXPORT struct grammar_vocab *hokku_vocab_of(const char *path, char *message, size_t n_message);
EXPORT uint32_t hokku_vocab_size(const struct grammar_vocab *v);
EXPORT void hokku_vocab_free(struct grammar_vocab *v);
EXPORT struct handle *hokku_grammar(bool schema, const char *text, size_t n, unsigned indent,
                                    const struct grammar_vocab *v, int *code, char *message,
                                    size_t n_message);
EXPORT void hokku_grammar_free(struct handle *h);
EXPORT size_t hokku_grammar_states(const struct handle *h);
EXPORT struct grammar_state *hokku_state(struct handle *h, const struct grammar_state *from);
EXPORT void hokku_state_free(struct grammar_state *s);
EXPORT int hokku_take(struct grammar_state *s, const char *bytes, size_t n, size_t *n_taken);
EXPORT int hokku_accept(struct grammar_state *s, int32_t id);
EXPORT int hokku_may_end(const struct grammar_state *s);
EXPORT uint32_t hokku_distance(const struct grammar_state *s);
EXPORT int32_t hokku_closing(const struct grammar_state *s);
EXPORT int hokku_mask(struct grammar_state *s, uint32_t *bits, size_t n_words);
EXPORT int hokku_mask_by_walk(struct grammar_state *s, uint32_t *bits, size_t n_words);
EXPORT size_t hokku_forced(const struct grammar_state *s, char *out, size_t n);

struct grammar_vocab *hokku_vocab(const char *bytes, const uint32_t *begin, uint32_t n,
                                  const int32_t *end_ids, size_t n_end_ids)
{
    struct grammar_vocab *v = calloc(1, sizeof *v);
    struct trie_text *texts = malloc((n + 1) * sizeof *texts);
    size_t n_texts = 0;
    v->n = n;
    buf_append(&v->bytes, bytes, begin[n]);
    v->begin = malloc((n + 1) * sizeof *begin);
    memcpy(v->begin, begin, (n + 1) * sizeof *begin);
    for (uint32_t i = 0; i < n; i++)
        if (begin[i + 1] > begin[i])
            texts[n_texts++] = (struct trie_text){
                .s = v->bytes.data + begin[i], .n = begin[i + 1] - begin[i], .id = (int32_t)i};
    v->end_ids = malloc((n_end_ids + 1) * sizeof *end_ids);
    memcpy(v->end_ids, end_ids, n_end_ids * sizeof *end_ids);
    v->n_end_ids = n_end_ids;
    if (!trie_init(&v->trie, texts, n_texts))
        abort();
    free(texts);
    return v;
}

// The vocabulary of a GGUF.
struct grammar_vocab *hokku_vocab_of(const char *path, char *message, size_t n_message)
{
    struct error err = {0};
    struct grammar_vocab *v = NULL;
    struct gguf *g = gguf_open(path, &err);
    struct tokenizer *t = g ? tokenizer_create(g, &err) : NULL;
    if (t)
        v = grammar_vocab_create(t, &err);
    tokenizer_free(t);
    gguf_free(g);
    if (!v)
        strncpy(message, err.text, n_message - 1);
    return v;
}

uint32_t hokku_vocab_size(const struct grammar_vocab *v)
{
    return v->n;
}

void hokku_vocab_free(struct grammar_vocab *v)
{
    grammar_vocab_free(v);
}

struct handle *hokku_grammar(bool schema, const char *text, size_t n, unsigned indent,
                             const struct grammar_vocab *v, int *code, char *message,
                             size_t n_message)
{
    struct error err = {0};
    struct handle *h = calloc(1, sizeof *h);
    h->g = schema ? grammar_from_schema(text, n, indent, NULL, &err)
                  : grammar_from_gbnf(text, n, NULL, &err);
    if (h->g)
        h->m = grammar_matcher_create(h->g, v, &err);
    if (h->m)
        return h;
    *code = err.code;
    strncpy(message, err.text, n_message - 1);
    hokku_grammar_free(h);
    return NULL;
}

void hokku_grammar_free(struct handle *h)
{
    grammar_matcher_free(h->m);
    grammar_free(h->g);
    free(h);
}

size_t hokku_grammar_states(const struct handle *h)
{
    return h->g->a.n_states;
}

struct grammar_state *hokku_state(struct handle *h, const struct grammar_state *from)
{
    struct grammar_state *s = malloc(sizeof *s);
    if (from)
        grammar_state_copy(s, from);
    else
        grammar_state_init(s, h->m);
    return s;
}

void hokku_state_free(struct grammar_state *s)
{
    grammar_state_release(s);
    free(s);
}

int hokku_take(struct grammar_state *s, const char *bytes, size_t n, size_t *n_taken)
{
    struct error err = {0};
    return grammar_accept_bytes(s, bytes, n, n_taken, &err);
}

int hokku_accept(struct grammar_state *s, int32_t id)
{
    struct error err = {0};
    return grammar_accept(s, id, &err);
}

int hokku_may_end(const struct grammar_state *s)
{
    return grammar_may_end(s);
}

uint32_t hokku_distance(const struct grammar_state *s)
{
    return grammar_distance(s);
}

int32_t hokku_closing(const struct grammar_state *s)
{
    int32_t id = -1;
    return grammar_closing(s, &id, NULL) ? id : -2;
}

int hokku_mask(struct grammar_state *s, uint32_t *bits, size_t n_words)
{
    return grammar_mask(s, bits, n_words, NULL, NULL);
}

int hokku_mask_by_walk(struct grammar_state *s, uint32_t *bits, size_t n_words)
{
    if (n_words != s->matcher->n_words)
        return 0;
    return masks_compute(s->matcher, s->config, false, bits);
}

size_t hokku_forced(const struct grammar_state *s, char *out, size_t n)
{
    struct buf b = {0};
    if (!grammar_forced(s, n, &b, NULL))
        return SIZE_MAX;
    size_t len = b.len;
    memcpy(out, buf_str(&b), len);
    buf_release(&b);
    return len;
}
