#include "text/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/format.h"
#include "base/hash.h"

// Ids are int32_t everywhere; no model comes near.
#define MAX_TOKENS (1u << 28)

static bool load_texts(struct vocab *v, const struct gguf *g, struct error *err)
{
    struct gguf_array a = {0};
    if (!gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &a, err))
        return false;
    if (a.count == 0 || a.count > MAX_TOKENS)
        return error_set(err, ERR_MODEL,
                         "tokenizer.ggml.tokens holds %llu tokens, expected 1 to %u",
                         (unsigned long long)a.count, MAX_TOKENS);
    v->n = (uint32_t)a.count;
    v->text = malloc(v->n * sizeof *v->text);
    v->kind = malloc(v->n);
    if (!v->text || !v->kind)
        return error_oom(err, "the token table", v->n * (sizeof *v->text + 1ull));
    memset(v->kind, TOKEN_NORMAL, v->n);
    size_t cursor = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!gguf_array_next_str(&a, &cursor, &v->text[i]))
            return error_set(err, ERR_MODEL,
                             "tokenizer.ggml.tokens ends after %u of the %u tokens it announces", i,
                             v->n);
        if (v->text[i].len > v->max_len)
            v->max_len = v->text[i].len;
    }
    return true;
}

static bool load_kinds(struct vocab *v, const struct gguf *g, struct error *err)
{
    static const char *key = "tokenizer.ggml.token_type";
    if (!gguf_find(g, key))
        return true; // all normal
    struct gguf_array a = {0};
    if (!gguf_get_array(g, key, GGUF_INT32, &a, err))
        return false;
    if (a.count != v->n)
        return error_set(err, ERR_MODEL, "%s holds %llu values, expected one for each of %u tokens",
                         key, (unsigned long long)a.count, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t k = gguf_array_i64(&a, i);
        if (k < 0 || k > TOKEN_BYTE)
            return error_set(err, ERR_MODEL, "%s[%u] is %lld, expected 0 to %d", key, i,
                             (long long)k, TOKEN_BYTE);
        v->kind[i] = k ? (unsigned char)k : TOKEN_NORMAL; // 0: undefined, says nothing
    }
    return true;
}

static bool load_scores(struct vocab *v, const struct gguf *g, struct error *err)
{
    static const char *key = "tokenizer.ggml.scores";
    if (!gguf_find(g, key))
        return true;
    struct gguf_array a = {0};
    if (!gguf_get_array(g, key, GGUF_FLOAT32, &a, err))
        return false;
    if (a.count != v->n)
        return error_set(err, ERR_MODEL, "%s holds %llu values, expected one for each of %u tokens",
                         key, (unsigned long long)a.count, v->n);
    v->score = malloc(v->n * sizeof *v->score);
    if (!v->score)
        return error_oom(err, "the token scores", v->n * sizeof *v->score);
    for (uint32_t i = 0; i < v->n; i++) {
        double s = gguf_array_f64(&a, i);
        if (isnan(s))
            return error_set(err, ERR_MODEL, "%s[%u] is not a number", key, i);
        v->score[i] = (float)s;
    }
    return true;
}

uint64_t vocab_hash(const struct vocab *v, const char *s, size_t n)
{
    return hash_bytes(s, n, v->seed);
}

void vocab_prefetch(const struct vocab *v, uint64_t hash)
{
    __builtin_prefetch(&v->slots[hash & v->mask]);
}

int32_t vocab_find_hashed(const struct vocab *v, const char *s, size_t n, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        int32_t id = v->slots[i].id;
        if (id < 0)
            return -1;
        if (v->slots[i].tag == tag && v->text[id].len == n && !memcmp(v->text[id].data, s, n))
            return id;
    }
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    if (n == 0 || n > v->max_len)
        return -1;
    return vocab_find_hashed(v, s, n, vocab_hash(v, s, n));
}

static bool twice(int32_t first, uint32_t second, struct gguf_str text, struct error *err)
{
    char shown[FORMAT_TEXT];
    return error_set(err, ERR_MODEL,
                     "tokenizer.ggml.tokens: tokens %d and %u have the same text \"%s\", expected "
                     "every text once",
                     first, second, format_text(shown, sizeof shown, text.data, text.len));
}

static bool build_index(struct vocab *v, struct error *err)
{
    uint64_t cap = 64;
    while (cap < 2ull * v->n)
        cap *= 2;
    v->slots = malloc(cap * sizeof *v->slots);
    if (!v->slots)
        return error_oom(err, "the token index", cap * sizeof *v->slots);
    memset(v->slots, 0xFF, cap * sizeof *v->slots);
    v->mask = cap - 1;
    if (getentropy(&v->seed, sizeof v->seed) != 0)
        v->seed = 0x2545F4914F6CDD1Du;

    // Blocks: hash and request the slots of a whole block first, then fill them.
    enum { BLOCK = 32 };
    uint64_t hash[BLOCK];
    for (uint32_t begin = 0; begin < v->n; begin += BLOCK) {
        uint32_t end = v->n - begin < BLOCK ? v->n : begin + BLOCK;
        for (uint32_t i = begin; i < end; i++) {
            hash[i - begin] = vocab_hash(v, v->text[i].data, v->text[i].len);
            vocab_prefetch(v, hash[i - begin]);
        }
        for (uint32_t i = begin; i < end; i++) {
            struct gguf_str s = v->text[i];
            if (s.len == 0)
                continue; // a hole in the vocabulary: no text means it
            uint64_t h = hash[i - begin];
            uint32_t tag = (uint32_t)(h >> 32);
            uint64_t k = h & v->mask;
            for (; v->slots[k].id >= 0; k = (k + 1) & v->mask) {
                struct gguf_str o = v->text[v->slots[k].id];
                if (v->slots[k].tag == tag && o.len == s.len && !memcmp(o.data, s.data, s.len))
                    return twice(v->slots[k].id, i, s, err);
            }
            v->slots[k].tag = tag;
            v->slots[k].id = (int32_t)i;
        }
    }
    return true;
}

bool vocab_init(struct vocab *v, const struct gguf *g, struct error *err)
{
    *v = (struct vocab){0};
    if (load_texts(v, g, err) && load_kinds(v, g, err) && load_scores(v, g, err) &&
        build_index(v, err))
        return true;
    vocab_release(v);
    return false;
}

void vocab_release(struct vocab *v)
{
    if (!v)
        return;
    free(v->text);
    free(v->kind);
    free(v->score);
    free(v->slots);
    *v = (struct vocab){0};
}
