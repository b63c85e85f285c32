// Vocabularies of a few tokens, written as GGUF files in memory.
#ifndef HOKKU_TESTS_SMALL_VOCAB_H
#define HOKKU_TESTS_SMALL_VOCAB_H

#include "test.h"

#include "image.h"
#include "text/tokenizer_impl.h"

enum { MAX_TOKENS = 64 };

// A vocabulary; zero means "key absent" except where said otherwise.
struct spec {
    const char *model, *pre;
    const char *tokens[MAX_TOKENS]; // up to the first NULL
    int32_t kinds[MAX_TOKENS];
    float scores[MAX_TOKENS];
    const char *merges[MAX_TOKENS];
    size_t n_kinds, n_scores; // elements written; -1: key absent
    bool no_merges;
    int64_t bos, eos, unk, eot;             // 0: absent; else the value + 1
    int64_t fim_pad, fim_rep, fim_sep;      // as these
    int add_bos, add_eos, add_space_prefix; // 0: absent, 1 false, 2 true
    bool ids_are_signed;
};

#define ABSENT SIZE_MAX

static inline void put_array(struct buf *b, const char *key, uint32_t type, uint64_t n)
{
    put_str(b, key);
    put_u32(b, GGUF_ARRAY);
    put_u32(b, type);
    put_u64(b, n);
}

static inline size_t count(const char *const *s)
{
    size_t n = 0;
    while (n < MAX_TOKENS && s[n])
        n++;
    return n;
}

static inline uint64_t put_id(struct buf *b, const struct spec *s, const char *key, int64_t id)
{
    if (!id)
        return 0;
    put_str(b, key);
    put_u32(b, s->ids_are_signed ? GGUF_INT32 : GGUF_UINT32);
    put_u32(b, (uint32_t)(id - 1));
    return 1;
}

static inline uint64_t put_flag(struct buf *b, const char *key, int flag)
{
    if (!flag)
        return 0;
    put_str(b, key);
    put_u32(b, GGUF_BOOL);
    buf_putc(b, flag == 2);
    return 1;
}

static inline struct buf write_spec(const struct spec *s)
{
    struct buf b = {0}, file = {0};
    uint64_t n_kv = 0;
    size_t n = count(s->tokens);
    if (s->model) {
        put_kv_str(&b, "tokenizer.ggml.model", s->model);
        n_kv++;
    }
    if (s->pre) {
        put_kv_str(&b, "tokenizer.ggml.pre", s->pre);
        n_kv++;
    }
    put_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, n);
    n_kv++;
    for (size_t i = 0; i < n; i++)
        put_str(&b, s->tokens[i]);
    if (s->n_kinds != ABSENT) {
        put_array(&b, "tokenizer.ggml.token_type", GGUF_INT32, s->n_kinds);
        n_kv++;
        for (size_t i = 0; i < s->n_kinds; i++)
            put_u32(&b, (uint32_t)s->kinds[i]);
    }
    if (s->n_scores != ABSENT) {
        put_array(&b, "tokenizer.ggml.scores", GGUF_FLOAT32, s->n_scores);
        n_kv++;
        for (size_t i = 0; i < s->n_scores; i++)
            put_f32(&b, s->scores[i]);
    }
    if (!s->no_merges) {
        put_array(&b, "tokenizer.ggml.merges", GGUF_STRING, count(s->merges));
        n_kv++;
        for (size_t i = 0; i < count(s->merges); i++)
            put_str(&b, s->merges[i]);
    }
    n_kv += put_id(&b, s, "tokenizer.ggml.bos_token_id", s->bos);
    n_kv += put_id(&b, s, "tokenizer.ggml.eos_token_id", s->eos);
    n_kv += put_id(&b, s, "tokenizer.ggml.unknown_token_id", s->unk);
    n_kv += put_id(&b, s, "tokenizer.ggml.eot_token_id", s->eot);
    n_kv += put_id(&b, s, "tokenizer.ggml.fim_pad_token_id", s->fim_pad);
    n_kv += put_id(&b, s, "tokenizer.ggml.fim_rep_token_id", s->fim_rep);
    n_kv += put_id(&b, s, "tokenizer.ggml.fim_sep_token_id", s->fim_sep);
    n_kv += put_flag(&b, "tokenizer.ggml.add_bos_token", s->add_bos);
    n_kv += put_flag(&b, "tokenizer.ggml.add_eos_token", s->add_eos);
    n_kv += put_flag(&b, "tokenizer.ggml.add_space_prefix", s->add_space_prefix);
    put_header(&file, 3, 0, n_kv);
    buf_append(&file, b.data, b.len);
    put_padding(&file, 32);
    buf_release(&b);
    assert_false(file.failed);
    return file;
}

struct made {
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tok;
    struct error err;
};

static inline struct made make(const struct spec *s)
{
    struct made m = {.file = write_spec(s)};
    m.gguf = gguf_open_memory(m.file.data, m.file.len, "test", &m.err);
    if (!m.gguf)
        fail_msg("%s", m.err.text);
    m.tok = tokenizer_create(m.gguf, &m.err);
    return m;
}

static inline void drop(struct made *m)
{
    tokenizer_free(m->tok);
    gguf_free(m->gguf);
    buf_release(&m->file);
}

// A byte-level vocabulary over a few letters, and a SentencePiece one.
static inline struct spec bpe_spec(void)
{
    return (struct spec){
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = {"a", "b", "c", "ab", "abc", "<|im_end|>", "<tool>", "<s>", "</s>", "<unk>"},
        .kinds = {1, 1, 1, 1, 1, 3, 4, 3, 3, 2},
        .merges = {"a b", "ab c"},
        .n_kinds = 10,
        .n_scores = ABSENT,
    };
}

static inline struct spec spm_spec(void)
{
    return (struct spec){
        .model = "llama",
        .tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a", "b",
                   "\xE2\x96\x81"
                   "a",
                   "ab", "<X>"},
        .kinds = {2, 3, 3, 1, 1, 1, 1, 1, 4},
        .scores = {0, 0, 0, -3, -4, -5, -2, -1, 0},
        .n_kinds = 9,
        .n_scores = 9,
        .no_merges = true,
    };
}

#endif
