// Small vocabularies written here: what metadata asks for, and metadata that is wrong.
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "image.h"
#include "text/special.h"
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
    int add_bos, add_eos, add_space_prefix; // 0: absent, 1 false, 2 true
    bool ids_are_signed;
};

#define ABSENT SIZE_MAX

static void put_array(struct buf *b, const char *key, uint32_t type, uint64_t n)
{
    put_str(b, key);
    put_u32(b, GGUF_ARRAY);
    put_u32(b, type);
    put_u64(b, n);
}

static size_t count(const char *const *s)
{
    size_t n = 0;
    while (n < MAX_TOKENS && s[n])
        n++;
    return n;
}

static uint64_t put_id(struct buf *b, const struct spec *s, const char *key, int64_t id)
{
    if (!id)
        return 0;
    put_str(b, key);
    put_u32(b, s->ids_are_signed ? GGUF_INT32 : GGUF_UINT32);
    put_u32(b, (uint32_t)(id - 1));
    return 1;
}

static uint64_t put_flag(struct buf *b, const char *key, int flag)
{
    if (!flag)
        return 0;
    put_str(b, key);
    put_u32(b, GGUF_BOOL);
    buf_putc(b, flag == 2);
    return 1;
}

static struct buf write_spec(const struct spec *s)
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

static struct made make(const struct spec *s)
{
    struct made m = {.file = write_spec(s)};
    m.gguf = gguf_open_memory(m.file.data, m.file.len, "test", &m.err);
    if (!m.gguf)
        fail_msg("%s", m.err.text);
    m.tok = tokenizer_create(m.gguf, &m.err);
    return m;
}

static void drop(struct made *m)
{
    tokenizer_free(m->tok);
    gguf_free(m->gguf);
    buf_release(&m->file);
}

// A byte-level vocabulary over a few letters, and a SentencePiece one.
static struct spec bpe_spec(void)
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

static struct spec spm_spec(void)
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

static void expect_ids(const struct made *m, const char *text, const struct tokenize_options *opt,
                       const char *want)
{
    struct ids ids = {0};
    struct buf b = {0};
    struct error err = {0};
    if (!m->tok)
        fail_msg("%s", m->err.text);
    if (!tokenizer_encode(m->tok, text, strlen(text), opt, &ids, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.len; i++)
        buf_printf(&b, "%s%d", i ? " " : "", ids.data[i]);
    if (strcmp(buf_str(&b), want) != 0)
        fail_msg("\"%s\" gave %s, expected %s", text, buf_str(&b), want);
    ids_release(&ids);
    buf_release(&b);
}

// Creation fails as a model error whose text holds `part`.
static void expect_refusal(const struct spec *s, const char *part)
{
    struct made m = make(s);
    if (m.tok)
        fail_msg("accepted, expected: %s", part);
    assert_int_equal(m.err.code, ERR_MODEL);
    if (!strstr(m.err.text, part))
        fail_msg("said \"%s\", expected \"%s\" in it", m.err.text, part);
    drop(&m);
}

static void wrong_metadata_is_refused_by_name_and_value(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    s.model = "wordpiece";
    expect_refusal(&s, "\"wordpiece\", expected one of gpt2");
    s.model = NULL;
    expect_refusal(&s, "tokenizer.ggml.model");
    s = bpe_spec();
    s.pre = "no-such";
    expect_refusal(&s, "\"no-such\"");
    s = bpe_spec();
    s.tokens[0] = NULL;
    expect_refusal(&s, "holds 0 tokens");
    s = bpe_spec();
    s.n_kinds = 9;
    expect_refusal(&s, "token_type holds 9 values, expected one for each of 10");
    s = bpe_spec();
    s.n_kinds = 11;
    expect_refusal(&s, "token_type holds 11");
    s = bpe_spec();
    s.kinds[3] = 77;
    expect_refusal(&s, "token_type[3] is 77");
    s.kinds[3] = -1;
    expect_refusal(&s, "token_type[3] is -1");
    s = bpe_spec();
    s.tokens[4] = "ab";
    expect_refusal(&s, "tokens 3 and 4 have the same text \"ab\"");
    s = bpe_spec();
    s.no_merges = true;
    expect_refusal(&s, "tokenizer.ggml.merges");
    static const struct {
        const char *merge, *part;
    } merges[] = {
        {"a x", "the right part is no token"},
        {"x a", "the left part is no token"},
        {"b a", "what they join into is no token"},
        {"ab", "no two parts"},
        {"a ", "no two parts"},
        {"", "no two parts"},
        {" a", "no two parts"},
        {"<|im_end|> <|im_end|>", "longer than every token"},
    };
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        s = bpe_spec();
        s.merges[1] = merges[i].merge;
        expect_refusal(&s, merges[i].part);
        expect_refusal(&s, "tokenizer.ggml.merges[1]");
    }
    s = bpe_spec();
    s.bos = 10 + 1;
    expect_refusal(&s, "bos_token_id is 10, expected an id below the 10 tokens");
    s = bpe_spec();
    s.eot = 0x7FFFFFFF + 1ll;
    expect_refusal(&s, "eot_token_id is 2147483647");
    s = bpe_spec();
    s.ids_are_signed = true;
    s.eos = -7 + 1;
    expect_refusal(&s, "eos_token_id");
    s = bpe_spec();
    s.tokens[7] = "d";
    s.kinds[7] = 1;
    s.add_bos = 2;
    expect_refusal(&s, "names no BOS token");
    s = bpe_spec();
    s.tokens[8] = "d";
    s.kinds[8] = 1;
    s.add_eos = 2;
    expect_refusal(&s, "names no EOS token");

    s = spm_spec();
    s.n_scores = ABSENT;
    expect_refusal(&s, "scores is missing");
    s = spm_spec();
    s.n_scores = 8;
    expect_refusal(&s, "scores holds 8 values, expected one for each of 9");
    s = spm_spec();
    s.scores[4] = NAN;
    expect_refusal(&s, "scores[4] is not a number");
}

static void ids_of_absent_tokens_are_minus_one(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    s.bos = 0xFFFFFFFFll + 1; // a way to say none
    struct made m = make(&s);
    assert_non_null(m.tok);
    assert_int_equal(tokenizer_bos(m.tok), -1);
    assert_int_equal(tokenizer_eos(m.tok), 8); // by its well-known name
    assert_false(tokenizer_add_bos(m.tok));
    drop(&m);
    s.ids_are_signed = true;
    m = make(&s);
    assert_non_null(m.tok);
    assert_int_equal(tokenizer_bos(m.tok), -1);
    drop(&m);
}

static void missing_pre_means_default(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    s.pre = NULL;
    struct made m = make(&s);
    assert_non_null(m.tok);
    assert_string_equal(tokenizer_pre(m.tok), "default");
    expect_ids(&m, "abc", &(struct tokenize_options){0}, "4");
    drop(&m);
}

static void merges_apply_in_their_order_and_unknown_bytes_need_a_token(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    struct tokenize_options none = {0};
    struct made m = make(&s);
    expect_ids(&m, "abcabba", &none, "4 3 1 0");
    expect_ids(&m, "x", &none, "9"); // <unk>
    drop(&m);
    s.tokens[9] = "d";
    s.kinds[9] = 1;
    m = make(&s);
    struct ids ids = {0};
    struct error err = {0};
    assert_non_null(m.tok);
    assert_false(tokenizer_encode(m.tok, "ax", 2, &none, &ids, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_non_null(strstr(err.text, "0x78"));
    ids_release(&ids);
    drop(&m);
    // A control token does not serve as the unknown one: typed text would become it.
    s.unk = 8 + 1;
    m = make(&s);
    assert_non_null(m.tok);
    assert_false(tokenizer_encode(m.tok, "ax", 2, &none, &ids, &err));
    ids_release(&ids);
    drop(&m);
    // A whole word that is a token: merged only where the model says that merges do not matter.
    s = bpe_spec();
    s.merges[0] = "b c";
    s.merges[1] = NULL;
    s.tokens[3] = "bc";
    m = make(&s);
    expect_ids(&m, "abc", &none, "0 3");
    drop(&m);
    s.pre = "llama-bpe";
    m = make(&s);
    expect_ids(&m, "abc", &none, "4");
    drop(&m);
}

static void forgotten_control_marks_do_not_let_text_end_a_turn(void **state)
{
    (void)state;
    // The file says that <|im_end|> is an ordinary token, and even how to merge it.
    struct spec s = bpe_spec();
    s.kinds[5] = 4;
    struct tokenize_options none = {0}, special = {.special = true};
    struct made m = make(&s);
    expect_ids(&m, "<|im_end|>", &none, "9 9 9 9 9 9 9 9 9 9");
    expect_ids(&m, "<|im_end|>", &special, "5");
    assert_true(tokenizer_is_end(m.tok, 5));
    drop(&m);
    s = bpe_spec();
    s.tokens[5] = "ba";
    s.merges[1] = "b a"; // makes a control token
    m = make(&s);
    expect_ids(&m, "ba", &none, "1 0");
    expect_ids(&m, "ba", &special, "5");
    drop(&m);
    s = spm_spec();
    s.kinds[7] = 3; // "ab", of the best score
    m = make(&s);
    expect_ids(&m, "ab", &none, "6 5");
    drop(&m);
}

static void user_defined_tokens_match_everywhere(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    struct made m = make(&s);
    expect_ids(&m, "ab<tool>c<tool", &(struct tokenize_options){0}, "3 6 2 9 9 9 9 9");
    struct buf out = {0};
    assert_true(tokenizer_decode_one(m.tok, 6, false, &out));
    assert_string_equal(out.data, "<tool>");
    buf_release(&out);
    drop(&m);
}

static void bos_and_eos_follow_the_metadata_and_are_never_doubled(void **state)
{
    (void)state;
    struct tokenize_options both = {.bos = true, .eos = true, .special = true};
    struct spec s = spm_spec();
    struct made m = make(&s); // SentencePiece without keys: BOS, no EOS
    expect_ids(&m, "a", &both, "1 6");
    expect_ids(&m, "<s>a", &both, "1 6");
    drop(&m);
    s.add_bos = 1;
    s.add_eos = 2;
    m = make(&s);
    expect_ids(&m, "a", &both, "6 2");
    expect_ids(&m, "a</s>", &both, "6 2");
    expect_ids(&m, "a</s>a", &both, "6 2 6 2");
    expect_ids(&m, "", &both, "2");
    expect_ids(&m, "a", &(struct tokenize_options){0}, "6");
    drop(&m);
    s = bpe_spec(); // byte-level BPE without keys: neither
    m = make(&s);
    expect_ids(&m, "a", &both, "0");
    drop(&m);
    s.pre = "llama-bpe"; // this family: BOS
    m = make(&s);
    expect_ids(&m, "a", &both, "7 0");
    drop(&m);
    s.add_bos = 1;
    m = make(&s);
    expect_ids(&m, "a", &both, "0");
    drop(&m);
}

static void space_prefix_follows_the_metadata(void **state)
{
    (void)state;
    struct tokenize_options none = {0}, cont = {.continuation = true};
    struct spec s = spm_spec();
    struct made m = make(&s);
    expect_ids(&m, "a b", &none, "6 3 5");
    expect_ids(&m, "a b", &cont, "4 3 5");
    expect_ids(&m, "<X>a", &none, "8 6"); // after a special token, too
    expect_ids(&m, "<X>a", &cont, "8 6");
    expect_ids(&m, "b<X>", &cont, "5 8");
    expect_ids(&m, "\xC3\xA9", &cont, "0 0"); // no byte tokens: unknown
    drop(&m);
    s.add_space_prefix = 1;
    m = make(&s);
    expect_ids(&m, "a b", &none, "4 3 5");
    expect_ids(&m, "<X>a", &none, "8 4");
    drop(&m);
}

static void empty_tokens_and_repeated_merges_are_harmless(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    s.tokens[8] = s.tokens[9] = "";
    s.kinds[8] = 3;
    s.kinds[9] = 4;
    s.merges[2] = "a b";
    struct made m = make(&s);
    expect_ids(&m, "abc", &(struct tokenize_options){.special = true}, "4");
    assert_int_equal(tokenizer_find(m.tok, "", 0), -1);
    assert_int_equal(tokenizer_find(m.tok, "abc", 3), 4);
    drop(&m);
}

// The definition: each token in turn, longest first, takes every place that is still free.
static size_t match_plainly(const struct vocab *v, const char *text, size_t n, int32_t *at)
{
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++)
        at[i] = -1;
    for (size_t len = v->max_len; len > 0; len--) {
        for (size_t i = 0; i + len <= n; i++) {
            bool is_free = true;
            for (size_t k = 0; k < len; k++)
                is_free = is_free && at[i + k] == -1;
            int32_t id = is_free ? vocab_find(v, text + i, len) : -1;
            if (id < 0)
                continue;
            for (size_t k = 0; k < len; k++)
                at[i + k] = -2;
            at[i] = id;
            n_found++;
        }
    }
    return n_found;
}

// All matches of a text, in *all.
static void find_all(const struct special *s, const char *text, size_t n, const unsigned char *mask,
                     struct special_match *all, size_t *n_all)
{
    struct special_matches found = {0};
    struct error err = {0};
    size_t at = 0;
    *n_all = 0;
    do {
        assert_true(special_next(s, text, n, false, mask, NULL, &at, &found, &err));
        for (size_t i = 0; i < found.n; i++)
            all[(*n_all)++] = found.data[i];
    } while (found.n);
    assert_int_equal(at, n);
    special_matches_release(&found);
}

static void longer_special_tokens_win_wherever_they_overlap(void **state)
{
    (void)state;
    struct spec s = {
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = {"a", "ab", "bcd", "abca", "cdabc", "bb", "dddd", "ddd", "dd", "cab", "abcabcab"},
        .kinds = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
        .n_kinds = 11,
        .n_scores = ABSENT,
    };
    struct made m = make(&s);
    assert_non_null(m.tok);
    struct vocab v;
    struct special special;
    struct special_match found[40];
    struct error err = {0};
    assert_true(vocab_init(&v, m.gguf, &err));
    assert_true(special_init(&special, &v, &err));
    uint64_t ctr = 0;
    size_t n_found;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        int32_t at[40];
        size_t n = rng_u64(3, ctr++, 0) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + rng_u64(3, ctr++, 0) % 4);
        size_t n_want = match_plainly(&v, text, n, at);
        find_all(&special, text, n, NULL, found, &n_found);
        assert_int_equal(n_found, n_want);
        for (size_t i = 0; i < n_found; i++)
            assert_int_equal(at[found[i].begin], found[i].id);
    }
    special_release(&special);
    vocab_release(&v);
    drop(&m);
}

// The same with control tokens and random masks: never one that covers an unmasked byte.
static void control_tokens_match_only_where_every_byte_is_masked(void **state)
{
    (void)state;
    struct spec s = {
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = {"a", "b", "ab", "aba", "<", "<<", "<a>", "<ab>"},
        .kinds = {1, 1, 1, 1, 1, 3, 3, 3},
        .n_kinds = 8,
        .n_scores = ABSENT,
    };
    struct made m = make(&s);
    assert_non_null(m.tok);
    struct vocab v;
    struct special special;
    struct special_match found[40];
    struct error err = {0};
    assert_true(vocab_init(&v, m.gguf, &err));
    assert_true(special_init(&special, &v, &err));
    uint64_t ctr = 0;
    size_t n_found = 0, n_now;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        unsigned char mask[40], covered[40] = {0};
        size_t n = rng_u64(5, ctr++, 0) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            text[i] = "ab<>"[rng_u64(5, ctr++, 0) % 4];
            mask[i] = rng_u64(5, ctr++, 0) % 5 != 0;
        }
        find_all(&special, text, n, mask, found, &n_now);
        for (size_t i = 0; i < n_now; i++) {
            assert_int_equal(v.kind[found[i].id], TOKEN_CONTROL);
            for (size_t k = 0; k < found[i].len; k++) {
                assert_true(mask[found[i].begin + k]);
                covered[found[i].begin + k] = 1;
            }
        }
        n_found += n_now;
        // And none that could match is missed.
        for (size_t i = 0; i + 3 <= n; i++) {
            bool is_free = !memcmp(text + i, "<a>", 3) && mask[i] && mask[i + 1] && mask[i + 2];
            for (size_t k = 0; k < 3; k++)
                is_free = is_free && !covered[i + k];
            assert_false(is_free);
        }
    }
    assert_true(n_found > 1000);
    special_release(&special);
    vocab_release(&v);
    drop(&m);
}

// SentencePiece by its definition: the best-scored token that two neighbours form, leftmost among
// equals, over the whole text; control tokens never.
static size_t spm_plainly(const struct spec *s, const char *text, size_t n, int32_t *ids)
{
    size_t begin[80], len[80], n_pieces = n;
    for (size_t i = 0; i < n; i++) {
        begin[i] = i;
        len[i] = 1;
    }
    for (;;) {
        size_t best = SIZE_MAX;
        float best_score = 0;
        for (size_t i = 0; i + 1 < n_pieces; i++)
            for (size_t k = 0; k < count(s->tokens); k++)
                if (s->kinds[k] == TOKEN_NORMAL && strlen(s->tokens[k]) == len[i] + len[i + 1] &&
                    !memcmp(s->tokens[k], text + begin[i], len[i] + len[i + 1]) &&
                    (best == SIZE_MAX || s->scores[k] > best_score)) {
                    best = i;
                    best_score = s->scores[k];
                }
        if (best == SIZE_MAX)
            break;
        len[best] += len[best + 1];
        n_pieces--;
        memmove(&begin[best + 1], &begin[best + 2], (n_pieces - best - 1) * sizeof *begin);
        memmove(&len[best + 1], &len[best + 2], (n_pieces - best - 1) * sizeof *len);
    }
    for (size_t i = 0; i < n_pieces; i++)
        for (size_t k = 0; k < count(s->tokens); k++)
            if (strlen(s->tokens[k]) == len[i] && !memcmp(s->tokens[k], text + begin[i], len[i]))
                ids[i] = (int32_t)k;
    return n_pieces;
}

static void sentencepiece_merges_by_its_definition(void **state)
{
    (void)state;
    struct tokenize_options cont = {.continuation = true};
    uint64_t ctr = 0;
    for (int round = 0; round < 100; round++) {
        // Five letters, and words of up to twelve with few different scores; some are control
        // tokens.
        char words[50][16];
        struct spec s = {.model = "llama", .no_merges = true};
        size_t n = 0;
        while (n < 50) {
            size_t len = n < 5 ? 1 : 2 + rng_u64(9, ctr++, 0) % (n < 25 ? 2 : 11);
            for (size_t i = 0; i < len; i++)
                words[n][i] = (char)('a' + (n < 5 ? n : rng_u64(9, ctr++, 0) % 5));
            words[n][len] = '\0';
            bool again = false;
            for (size_t k = 0; k < n; k++)
                again = again || !strcmp(words[k], words[n]);
            if (again)
                continue;
            s.tokens[n] = words[n];
            s.kinds[n] = n < 5 || rng_u64(9, ctr++, 0) % 8 ? TOKEN_NORMAL : TOKEN_CONTROL;
            s.scores[n] = (float)(rng_u64(9, ctr++, 0) % 9) - 4;
            n++;
        }
        s.n_kinds = s.n_scores = n;
        struct made m = make(&s);
        if (!m.tok)
            fail_msg("%s", m.err.text);
        for (int k = 0; k < 30; k++) {
            char text[48];
            int32_t want[80];
            size_t n_text = rng_u64(9, ctr++, 0) % sizeof text;
            for (size_t i = 0; i < n_text; i++)
                text[i] = (char)('a' + rng_u64(9, ctr++, 0) % 5);
            // Now and then a whole token, so that the long ones occur.
            const char *word = words[rng_u64(9, ctr++, 0) % n];
            if (strlen(word) < n_text)
                memcpy(text, word, strlen(word));
            struct ids got = {0};
            struct error err = {0};
            assert_true(tokenizer_encode(m.tok, text, n_text, &cont, &got, &err));
            size_t n_want = spm_plainly(&s, text, n_text, want);
            assert_int_equal(got.len, n_want);
            if (n_want)
                assert_memory_equal(got.data, want, n_want * sizeof *want);
            ids_release(&got);
        }
        drop(&m);
    }
}

// Where no token spans two neighbours the text is cut before merging; a token that spans them only
// deep inside must still be found.
static void long_tokens_are_reached_through_their_parts(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnop";
    static char words[31][20];
    struct spec s = {.model = "llama", .no_merges = true};
    size_t n = 0;
    for (size_t len = 1; len <= 16; len *= 2)
        for (size_t begin = 0; begin < 16; begin += len, n++) {
            memcpy(words[n], &letters[begin], len);
            s.tokens[n] = words[n];
            s.kinds[n] = TOKEN_NORMAL;
            s.scores[n] = -(float)len;
        }
    s.n_kinds = s.n_scores = n;
    struct made m = make(&s);
    struct tokenize_options cont = {.continuation = true};
    expect_ids(&m, letters, &cont, "30");
    expect_ids(&m, "efghijklmnopabcd", &cont, "25 29 24");
    drop(&m);
}

// -----------------------------------------------------------------------------------------
// stretches

// Of a text over a few letters: without chance, periodic, and of one letter.
static void fill_text(struct buf *text, int kind, size_t n)
{
    static const char *const periods[] = {"a", "ab", "abb", "abcab"};
    buf_clear(text);
    for (size_t i = 0; i < n; i++) {
        const char *p = periods[kind % 4];
        buf_putc(text,
                 kind < 4 ? p[i % strlen(p)] : (char)('a' + rng_u64(7, i, (uint32_t)kind) % 3));
    }
}

static void expect_same(const struct ids *a, const struct ids *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len * sizeof *a->data);
}

// A word that is cut into stretches gives the ids that it gives as a whole: as far as the end of a
// stretch can be felt (seven merges of at most four bytes) is less than the quarter of it that is
// done again.
static void a_long_word_in_stretches_gives_the_ids_of_the_whole(void **state)
{
    (void)state;
    struct spec s = {
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = {"a", "b", "c", "ab", "ca", "abc", "bb", "aa", "abab", "bbb"},
        .merges = {"a b", "c a", "ab c", "b b", "a a", "ab ab", "bb b"},
        .n_kinds = ABSENT,
        .n_scores = ABSENT,
    };
    struct made m = make(&s);
    assert_non_null(m.tok);
    struct buf text = {0};
    struct wordcache off = {0};
    for (int kind = 0; kind < 12; kind++) {
        fill_text(&text, kind, 20000);
        struct ids whole = {0}, parts = {0};
        struct merger all = {0}, some = {.stretch = 128 + (size_t)kind};
        struct error err = {0};
        assert_true(bpe_encode_word(&m.tok->bpe, &all, &off, text.data, text.len, &whole, &err));
        assert_true(bpe_encode_word(&m.tok->bpe, &some, &off, text.data, text.len, &parts, &err));
        assert_true(some.cap <= 256 && all.cap >= 20000);
        expect_same(&whole, &parts);
        merger_release(&all);
        merger_release(&some);
        ids_release(&whole);
        ids_release(&parts);
    }
    buf_release(&text);
    drop(&m);
}

static void sentencepiece_in_stretches_and_pieces_gives_the_ids_of_the_whole(void **state)
{
    (void)state;
    struct spec s = {
        .model = "llama",
        .tokens = {"<unk>", "a", "b", "c", "ab", "ca", "abc", "bb", "aa", "abab", "bbb"},
        .kinds = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        .scores = {0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10},
        .n_kinds = 11,
        .n_scores = 11,
        .no_merges = true,
        .unk = 1,
    };
    struct made m = make(&s);
    assert_non_null(m.tok);
    struct buf text = {0};
    struct wordcache off = {0};
    for (int kind = 0; kind < 12; kind++) {
        fill_text(&text, kind, 20000);
        struct ids whole = {0}, parts = {0};
        struct merger all = {0}, some = {.stretch = 128 + (size_t)kind};
        struct error err = {0};
        size_t used, at = 0, n = 0;
        assert_true(
            spm_encode(&m.tok->spm, &all, &off, text.data, text.len, true, &used, &whole, &err));
        assert_int_equal(used, text.len);
        while (n < text.len) { // what arrives piece by piece
            n += 1 + rng_u64(9, n, 0) % 700;
            n = n < text.len ? n : text.len;
            assert_true(spm_encode(&m.tok->spm, &some, &off, text.data + at, n - at, n == text.len,
                                   &used, &parts, &err));
            at += used;
        }
        assert_int_equal(at, text.len);
        assert_true(some.cap <= 256);
        expect_same(&whole, &parts);
        merger_release(&all);
        merger_release(&some);
        ids_release(&whole);
        ids_release(&parts);
    }
    buf_release(&text);
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_metadata_is_refused_by_name_and_value),
        cmocka_unit_test(ids_of_absent_tokens_are_minus_one),
        cmocka_unit_test(missing_pre_means_default),
        cmocka_unit_test(merges_apply_in_their_order_and_unknown_bytes_need_a_token),
        cmocka_unit_test(forgotten_control_marks_do_not_let_text_end_a_turn),
        cmocka_unit_test(user_defined_tokens_match_everywhere),
        cmocka_unit_test(bos_and_eos_follow_the_metadata_and_are_never_doubled),
        cmocka_unit_test(space_prefix_follows_the_metadata),
        cmocka_unit_test(empty_tokens_and_repeated_merges_are_harmless),
        cmocka_unit_test(longer_special_tokens_win_wherever_they_overlap),
        cmocka_unit_test(control_tokens_match_only_where_every_byte_is_masked),
        cmocka_unit_test(sentencepiece_merges_by_its_definition),
        cmocka_unit_test(a_long_word_in_stretches_gives_the_ids_of_the_whole),
        cmocka_unit_test(sentencepiece_in_stretches_and_pieces_gives_the_ids_of_the_whole),
        cmocka_unit_test(long_tokens_are_reached_through_their_parts),
    };
    return RUN_TESTS("tokenizer_metadata", tests);
}
