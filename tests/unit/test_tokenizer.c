// The tokenizers of the reference vocabularies against the reference vectors, and the promises that
// hold for all of them.
#include "test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "tools/tokenize.h"
#include "vectors.h"

static const char *const vocabularies[] = {"qwen2",     "llama-bpe", "gpt-2", "deepseek-llm",
                                           "starcoder", "llama-spm", "gemma4"};
enum { N_VOCAB = sizeof vocabularies / sizeof *vocabularies };

struct loaded {
    struct gguf *gguf;
    struct tokenizer *tok;
};

// Of folder `k` of vectors_dir.
static const char *vector_path(size_t k, const char *name, const char *suffix)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tokenizers/%s%s", vectors_dir(k), name, suffix);
    return path;
}

static bool file_exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    return f != NULL;
}

static struct loaded load_from(size_t k, const char *name)
{
    struct loaded l = {0};
    struct error err = {0};
    const char *path = vector_path(k, name, ".gguf");
    l.gguf = gguf_open(path, &err);
    if (l.gguf)
        l.tok = tokenizer_create(l.gguf, &err);
    if (!l.tok)
        fail_msg("%s: %s", name, err.text);
    return l;
}

static struct loaded load(const char *name)
{
    return load_from(0, name);
}

static void unload(struct loaded *l)
{
    tokenizer_free(l->tok);
    gguf_free(l->gguf);
}

// The vocabularies of a folder: calls check on each.
static void for_each_vocabulary(void check(size_t k, const char *name, const struct tokenizer *t))
{
    for (size_t k = 0; k < n_vectors_dirs(); k++) {
        size_t n = 0;
        for (size_t v = 0; v < N_VOCAB; v++) {
            if (!file_exists(vector_path(k, vocabularies[v], ".gguf")))
                continue; // a folder need not have all of them
            struct loaded l = load_from(k, vocabularies[v]);
            check(k, vocabularies[v], l.tok);
            unload(&l);
            n++;
        }
        if (n < 5)
            fail_msg("%s/tokenizers has %zu vocabularies, expected 5 or more: ninja -C build "
                     "writes them",
                     vectors_dir(k), n);
    }
}

static struct buf read_file(const char *path)
{
    struct buf b = {0};
    char chunk[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(&b, chunk, n);
    fclose(f);
    assert_false(b.failed);
    return b;
}

static struct ids encode(const struct tokenizer *t, const char *text, size_t n,
                         const struct tokenize_options *opt)
{
    static const struct tokenize_options none;
    struct ids ids = {0};
    struct error err = {0};
    if (!tokenizer_encode(t, text, n, opt ? opt : &none, &ids, &err))
        fail_msg("%s", err.text);
    return ids;
}

// The token with this text, as the vocabulary writes it.
static int32_t id_of(const struct tokenizer *t, const char *text)
{
    for (uint32_t id = 0; id < tokenizer_n_vocab(t); id++) {
        struct gguf_str s = tokenizer_text(t, (int32_t)id);
        if (s.len == strlen(text) && memcmp(s.data, text, s.len) == 0)
            return (int32_t)id;
    }
    fail_msg("no token \"%s\"", text);
    return -1;
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((int32_t[]){__VA_ARGS__}) / 4

static void expect_ids(const struct tokenizer *t, const char *text,
                       const struct tokenize_options *opt, const int32_t *want, size_t n_want)
{
    struct ids got = encode(t, text, strlen(text), opt);
    struct buf b = {0};
    for (size_t i = 0; i < got.len; i++)
        buf_printf(&b, " %d", got.data[i]);
    if (got.len != n_want || (n_want && memcmp(got.data, want, n_want * sizeof *want) != 0))
        fail_msg("\"%s\" gave%s", text, buf_str(&b));
    buf_release(&b);
    ids_release(&got);
}

// The numbers of one line, separated by anything.
static const char *parse_ids(const char *s, struct ids *out)
{
    ids_clear(out);
    while (*s && *s != '\n') {
        char *end;
        long v = strtol(s, &end, 10);
        if (end == s) {
            s++;
            continue;
        }
        ids_push(out, (int32_t)v);
        s = end;
    }
    return *s ? s + 1 : s;
}

static void check_vector(const char *what, const struct tokenizer *t, const char *text, size_t n,
                         bool special, const struct ids *want)
{
    struct tokenize_options opt = {.special = special};
    struct ids got = encode(t, text, n, &opt);
    if (got.len != want->len ||
        (got.len && memcmp(got.data, want->data, got.len * sizeof *got.data) != 0))
        fail_msg("%s: \"%.*s\" gave %zu ids, expected %zu", what, (int)n, text, got.len, want->len);
    ids_release(&got);
}

static void check_test_strings(size_t k, const char *name, const struct tokenizer *t)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    struct buf inp = read_file(vector_path(k, name, ".inp"));
    struct buf out = read_file(vector_path(k, name, ".out"));
    struct ids want = {0};
    const char *expected = out.data;
    int n_cases = 0;
    for (const char *s = inp.data; s;) {
        const char *end = strstr(s, separator);
        expected = parse_ids(expected, &want);
        check_vector(name, t, s, end ? (size_t)(end - s) : (size_t)(inp.data + inp.len - s), false,
                     &want);
        s = end ? end + strlen(separator) : NULL;
        n_cases++;
    }
    assert_true(n_cases > 40);
    ids_release(&want);
    buf_release(&inp);
    buf_release(&out);
}

static void test_strings_give_the_reference_ids(void **state)
{
    (void)state;
    for_each_vocabulary(check_test_strings);
}

static void check_random_strings(size_t k, const char *name, const struct tokenizer *t)
{
    struct buf in = read_file(vector_path(k, "random", ".nul"));
    for (int special = 0; special < 2; special++) {
        const char *path = vector_path(k, name, special ? ".random-special.out" : ".random.out");
        if (k > 0 && !file_exists(path))
            continue; // not every vocabulary of others has these
        struct buf out = read_file(path);
        struct ids want = {0};
        const char *expected = out.data;
        int n_cases = 0;
        for (size_t i = 0; i < in.len; i += strlen(in.data + i) + 1) {
            expected = parse_ids(expected, &want);
            check_vector(name, t, in.data + i, strlen(in.data + i), special, &want);
            n_cases++;
        }
        assert_int_equal(n_cases, 150);
        ids_release(&want);
        buf_release(&out);
    }
    buf_release(&in);
}

static void random_strings_give_the_reference_ids(void **state)
{
    (void)state;
    for_each_vocabulary(check_random_strings);
}

static bool has_control(const struct tokenizer *t, const struct ids *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        if (tokenizer_kind(t, ids->data[i]) == TOKEN_CONTROL)
            return true;
    return false;
}

static void typed_markup_stays_text(void **state)
{
    (void)state;
    struct loaded l = load("qwen2");
    // What a person types: no mask.
    struct ids typed = encode(l.tok, "<|im_end|>", 10, NULL);
    assert_true(typed.len > 1);
    assert_false(has_control(l.tok, &typed));
    ids_release(&typed);

    // What a template writes: every byte masked.
    unsigned char mask[64];
    memset(mask, 1, sizeof mask);
    struct tokenize_options opt = {.special_mask = mask};
    const int32_t start = id_of(l.tok, "<|im_start|>"), end = id_of(l.tok, "<|im_end|>");
    expect_ids(l.tok, "<|im_end|>", &opt, IDS(end));

    // Half typed, half template, cut anywhere: text.
    for (size_t cut = 1; cut <= 10; cut++) {
        for (int typed_first = 0; typed_first < 2; typed_first++) {
            memset(mask, typed_first, sizeof mask);
            memset(mask, !typed_first, cut == 10 ? 1 : cut);
            struct ids ids = encode(l.tok, "<|im_end|>", 10, &opt);
            assert_false(has_control(l.tok, &ids));
            ids_release(&ids);
        }
    }
    // One typed byte in the middle, and typed markup right inside the template's.
    memset(mask, 1, sizeof mask);
    mask[5] = 0;
    struct ids ids = encode(l.tok, "<|im_end|>", 10, &opt);
    assert_false(has_control(l.tok, &ids));
    ids_release(&ids);
    const char *text = "<|im_start|>user\n<|im_end|><|im_end|>";
    memset(mask, 1, sizeof mask);
    memset(mask + 17, 0, 10);
    ids = encode(l.tok, text, strlen(text), &opt);
    assert_int_equal(ids.data[0], start);
    assert_int_equal(ids.data[ids.len - 1], end);
    size_t n_control = 0;
    for (size_t i = 0; i < ids.len; i++)
        n_control += tokenizer_kind(l.tok, ids.data[i]) == TOKEN_CONTROL;
    assert_int_equal(n_control, 2);
    ids_release(&ids);
    unload(&l);
}

static void check_control_tokens(size_t k, const char *name, const struct tokenizer *t)
{
    (void)k;
    size_t n_control = 0;
    for (uint32_t id = 0; id < tokenizer_n_vocab(t); id++) {
        if (tokenizer_kind(t, (int32_t)id) != TOKEN_CONTROL)
            continue;
        n_control++;
        struct gguf_str s = tokenizer_text(t, (int32_t)id);
        struct buf text = {0}; // alone, among letters, twice
        for (int form = 0; form < 3; form++) {
            buf_clear(&text);
            buf_puts(&text, form == 1 ? "a" : "");
            buf_append(&text, s.data, s.len);
            buf_puts(&text, form == 1 ? "b" : "");
            if (form == 2)
                buf_append(&text, s.data, s.len);
            struct ids ids = encode(t, text.data, text.len, NULL);
            if (has_control(t, &ids))
                fail_msg("%s: typed \"%s\" became a control token", name, text.data);
            ids_release(&ids);
            struct tokenize_options all = {.special = true};
            ids = encode(t, text.data, text.len, &all);
            assert_true(has_control(t, &ids));
            ids_release(&ids);
        }
        buf_release(&text);
    }
    assert_true(n_control > 0);
}

static void no_control_token_of_any_vocabulary_can_be_typed(void **state)
{
    (void)state;
    for_each_vocabulary(check_control_tokens);
}

static uint64_t counter;

static uint32_t rnd(uint32_t below)
{
    return (uint32_t)(rng_u64(7, counter++, 0) % below);
}

// Mostly well-formed text of all planes; with `malformed`, any bytes among it.
static void random_text(struct buf *b, bool malformed)
{
    static const char *const bits[] = {"\r\n",
                                       "\n\n",
                                       "    ",
                                       "\t",
                                       " hello",
                                       "World",
                                       "123456789",
                                       "3.14",
                                       "e\xCC\x81",
                                       "\xD8\xA7\xD9\x84",
                                       "\xE2\x96\x81",
                                       "don't",
                                       "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                                       "<0x41>",
                                       "\xE2\x96\x81\xE2\x96\x81"};
    buf_clear(b);
    for (uint32_t k = rnd(30); k > 0; k--) {
        char c[4];
        uint32_t plane = rnd(4);
        if (rnd(2))
            buf_puts(b, bits[rnd(sizeof bits / sizeof *bits)]);
        else if (malformed && !rnd(3))
            buf_putc(b, (char)rnd(256));
        else
            buf_append(b, c,
                       utf8_encode(plane == 0   ? rnd(0x80)
                                   : plane == 1 ? rnd(0x800)
                                   : plane == 2 ? rnd(0x10000)
                                                : rnd(0x110000),
                                   c));
    }
}

static void decode(const struct tokenizer *t, const struct ids *ids, bool strip, struct buf *out,
                   bool pieces_are_whole)
{
    struct detok d = {.tok = t, .strip_space = strip};
    for (size_t i = 0; i < ids->len; i++) {
        size_t before = out->len;
        assert_true(detok_push(&d, ids->data[i], out));
        if (pieces_are_whole)
            assert_true(utf8_valid(out->data + before, out->len - before));
    }
    assert_true(detok_flush(&d, out));
}

static void decoding_gives_back_every_byte(void **state)
{
    (void)state;
    // gpt-2, qwen2 and llama-bpe have a token for each of the 256 bytes, as llama-spm and gemma4
    // have.
    static const char *const complete[] = {"qwen2", "llama-bpe", "gpt-2", "llama-spm", "gemma4"};
    for (size_t v = 0; v < sizeof complete / sizeof *complete; v++) {
        struct loaded l = load(complete[v]);
        bool spm = strcmp(tokenizer_model(l.tok), "gpt2") != 0;
        struct buf text = {0}, back = {0}, want = {0};
        for (int round = 0; round < 3000; round++) {
            random_text(&text, round % 2);
            struct ids ids = encode(l.tok, buf_str(&text), text.len, NULL);
            buf_clear(&back);
            buf_clear(&want);
            decode(l.tok, &ids, true, &back, round % 2 == 0);
            // SentencePiece cannot tell a written U+2581 from a space.
            for (size_t i = 0; i < text.len; i++) {
                bool mark = spm && text.len - i >= 3 && !memcmp(text.data + i, "\xE2\x96\x81", 3);
                buf_putc(&want, mark ? ' ' : text.data[i]);
                i += mark ? 2 : 0;
            }
            assert_int_equal(back.len, want.len);
            assert_memory_equal(buf_str(&back), buf_str(&want), want.len);
            ids_release(&ids);
        }
        buf_release(&text);
        buf_release(&back);
        buf_release(&want);
        unload(&l);
    }
}

static void stream_holds_back_half_a_character_and_passes_malformed_bytes(void **state)
{
    (void)state;
    struct loaded l = load("llama-spm");
    struct buf out = {0};
    struct detok d = {.tok = l.tok};
    // Byte tokens: <0x00> is id 3.
    static const int32_t crab[] = {3 + 0xF0, 3 + 0x9F, 3 + 0xA6};
    for (int i = 0; i < 3; i++) {
        assert_true(detok_push(&d, crab[i], &out));
        assert_int_equal(out.len, 0);
    }
    assert_true(detok_push(&d, 3 + 0x80, &out));
    assert_string_equal(out.data, "\xF0\x9F\xA6\x80");
    buf_clear(&out);
    assert_true(detok_push(&d, 3 + 0xE2, &out)); // begins a character ...
    assert_true(detok_push(&d, 3 + 'x', &out));  // ... that never comes
    assert_string_equal(out.data, "\xE2x");
    assert_true(detok_push(&d, 3 + 0x80, &out)); // a continuation of nothing
    assert_string_equal(out.data, "\xE2x\x80");
    assert_true(detok_push(&d, 3 + 0xF0, &out));
    assert_true(detok_flush(&d, &out));
    assert_string_equal(out.data, "\xE2x\x80\xF0");
    assert_true(detok_flush(&d, &out));
    assert_int_equal(out.len, 4);
    // Ids that the vocabulary does not have, and control tokens, are no text.
    assert_true(detok_push(&d, 1, &out) && detok_push(&d, -1, &out) &&
                detok_push(&d, 1 << 30, &out));
    assert_int_equal(out.len, 4);
    d.special = true;
    assert_true(detok_push(&d, 2, &out));
    assert_string_equal(out.data, "\xE2x\x80\xF0</s>");
    buf_release(&out);
    unload(&l);
}

static void bos_is_added_once_and_only_on_request(void **state)
{
    (void)state;
    struct loaded l = load("llama-bpe");
    struct tokenize_options bos = {.bos = true, .eos = true, .special = true};
    assert_true(tokenizer_add_bos(l.tok));
    const int32_t begin = id_of(l.tok, "<|begin_of_text|>"), eot = id_of(l.tok, "<|eot_id|>");
    int32_t hello = id_of(l.tok, "Hello");
    assert_int_equal(tokenizer_bos(l.tok), begin);
    assert_int_equal(tokenizer_eos(l.tok), eot);
    expect_ids(l.tok, "Hello", NULL, IDS(hello));
    expect_ids(l.tok, "Hello", &bos, IDS(begin, hello));
    expect_ids(l.tok, "<|begin_of_text|>Hello", &bos, IDS(begin, hello));
    expect_ids(l.tok, "", &bos, IDS(begin));
    assert_true(tokenizer_is_end(l.tok, id_of(l.tok, "<|end_of_text|>")));
    assert_true(tokenizer_is_end(l.tok, id_of(l.tok, "<|eom_id|>")));
    assert_true(tokenizer_is_end(l.tok, eot));
    assert_false(tokenizer_is_end(l.tok, id_of(l.tok, "<|start_header_id|>")));
    assert_false(tokenizer_is_end(l.tok, -1));
    assert_false(tokenizer_is_end(l.tok, 1 << 30));
    unload(&l);

    l = load("qwen2"); // has a BOS id, does not want it
    assert_false(tokenizer_add_bos(l.tok));
    hello = id_of(l.tok, "Hello");
    expect_ids(l.tok, "Hello", &bos, IDS(hello));
    assert_true(tokenizer_is_end(l.tok, id_of(l.tok, "<|endoftext|>")));
    assert_true(tokenizer_is_end(l.tok, id_of(l.tok, "<|im_end|>")));
    assert_false(tokenizer_is_end(l.tok, id_of(l.tok, "<|im_start|>")));
    unload(&l);
}

// As the sentencepiece package does.
static void sentencepiece_prefixes_a_space_at_the_start_and_after_special_tokens(void **state)
{
    (void)state;
    struct loaded l = load("llama-spm");
    struct tokenize_options cont = {.continuation = true}, special = {.special = true};
    const int32_t bare = id_of(l.tok, "Hello"), spaced = id_of(l.tok, "\xE2\x96\x81Hello"),
                  space = id_of(l.tok, "\xE2\x96\x81");
    expect_ids(l.tok, "Hello", NULL, IDS(spaced));
    expect_ids(l.tok, "Hello", &cont, IDS(bare));
    expect_ids(l.tok, " Hello", NULL, IDS(space, spaced));
    expect_ids(l.tok, "", NULL, NULL, 0);
    expect_ids(l.tok, "Hello</s>Hello", &special, IDS(spaced, 2, spaced));
    cont.special = true;
    expect_ids(l.tok, "Hello</s>Hello", &cont, IDS(bare, 2, spaced));
    unload(&l);
}

static void a_million_bytes_of_anything_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2", "llama-spm"};
    static const char *const units[] = {"a", " ", "\n", "!", "\xC3\xA9", "\xE4\xBD\xA0", "\xFF"};
    struct buf text = {0}, back = {0};
    for (size_t v = 0; v < 2; v++) {
        struct loaded l = load(names[v]);
        for (size_t u = 0; u <= sizeof units / sizeof *units; u++) {
            buf_clear(&text);
            buf_clear(&back);
            while (text.len < 1000000) {
                char c[4];
                if (u < sizeof units / sizeof *units)
                    buf_puts(&text, units[u]);
                else // U+2581 would come back as a space
                    buf_append(&text, c, utf8_encode(0x3000 + rnd(0xFFFF), c));
            }
            struct ids ids = encode(l.tok, text.data, text.len, NULL);
            decode(l.tok, &ids, true, &back, false);
            assert_int_equal(back.len, text.len);
            assert_memory_equal(back.data, text.data, text.len);
            ids_release(&ids);
        }
        unload(&l);
    }
    buf_release(&text);
    buf_release(&back);
}

// Long inputs use the cache of words, short ones do not: word by word both must agree.
static void a_long_text_gives_the_ids_of_its_parts(void **state)
{
    (void)state;
    struct loaded l = load("qwen2");
    struct buf text = {0}, part = {0};
    struct ids parts = {0};
    while (text.len < 200000) {
        buf_clear(&part);
        for (uint32_t k = 1 + rnd(6); k > 0; k--)
            buf_putc(&part, (char)('a' + rnd(3)));
        buf_putc(&part, '\n'); // ends a word whatever follows
        struct ids ids = encode(l.tok, part.data, part.len, NULL);
        ids_append(&parts, ids.data, ids.len);
        ids_release(&ids);
        buf_append(&text, part.data, part.len);
    }
    struct ids whole = encode(l.tok, text.data, text.len, NULL);
    assert_int_equal(whole.len, parts.len);
    assert_memory_equal(whole.data, parts.data, parts.len * sizeof *parts.data);
    ids_release(&whole);
    ids_release(&parts);
    buf_release(&text);
    buf_release(&part);
    unload(&l);
}

static void tool_prints_one_array_per_input(void **state)
{
    (void)state;
    struct loaded l = load("qwen2");
    struct tokenize_options opt = {.special = true};
    struct buf out = {0};
    struct error err = {0};
    const int32_t hello = id_of(l.tok, "Hello");
    char want[64];
    assert_true(tool_tokenize(l.tok, "Hello<|im_end|>", 15, &opt, false, &out, &err));
    snprintf(want, sizeof want, "[%d,%d]\n", hello, id_of(l.tok, "<|im_end|>"));
    assert_string_equal(out.data, want);
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "Hello\0\0\nHello", 13, &opt, true, &out, &err));
    snprintf(want, sizeof want, "[%d]\n[]\n[%d,%d]\n", hello, id_of(l.tok, "\xC4\x8A"), hello);
    assert_string_equal(out.data, want);
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "Hello\0", 6, &opt, true, &out, &err));
    snprintf(want, sizeof want, "[%d]\n", hello);
    assert_string_equal(out.data, want);
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "a\0b", 3, &opt, false, &out, &err));
    // byte 0 is written U+0100
    snprintf(want, sizeof want, "[%d,%d,%d]\n", id_of(l.tok, "a"), id_of(l.tok, "\xC4\x80"),
             id_of(l.tok, "b"));
    assert_string_equal(out.data, want);
    buf_release(&out);
    unload(&l);
}

static void a_limit_of_ids_ends_the_splitting_early_and_lets_pass_what_keeps_it(void **state)
{
    (void)state;
    enum { TIMES = 100000 };
    static const char unit[] = "Some words, 12 \xC3\xA9.\n";
    static char text[TIMES * (sizeof unit - 1)];
    for (size_t i = 0; i < TIMES; i++)
        memcpy(text + i * (sizeof unit - 1), unit, sizeof unit - 1);
    static const char *const names[] = {"qwen2", "llama-spm"};
    for (size_t v = 0; v < 2; v++) {
        struct loaded l = load(names[v]);
        struct ids all = {0}, some = {0};
        struct error err = {0};
        struct tokenize_options opt = {.special = true};
        assert_true(tokenizer_encode(l.tok, text, sizeof text / 10, &opt, &all, &err));
        opt.most = all.len;
        assert_true(tokenizer_encode(l.tok, text, sizeof text / 10, &opt, &some, &err));
        assert_int_equal(some.len, all.len);
        assert_memory_equal(some.data, all.data, all.len * sizeof *all.data);
        ids_clear(&some);
        assert_false(tokenizer_encode(l.tok, text, sizeof text, &opt, &some, &err));
        assert_int_equal(err.code, ERR_CONTEXT);
        assert_true(some.len < 8 * all.len); // (of ten times as much; by pieces of a megabyte)
        ids_release(&all);
        ids_release(&some);
        unload(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_ids_ends_the_splitting_early_and_lets_pass_what_keeps_it),
        cmocka_unit_test(test_strings_give_the_reference_ids),
        cmocka_unit_test(random_strings_give_the_reference_ids),
        cmocka_unit_test(typed_markup_stays_text),
        cmocka_unit_test(no_control_token_of_any_vocabulary_can_be_typed),
        cmocka_unit_test(decoding_gives_back_every_byte),
        cmocka_unit_test(stream_holds_back_half_a_character_and_passes_malformed_bytes),
        cmocka_unit_test(bos_is_added_once_and_only_on_request),
        cmocka_unit_test(sentencepiece_prefixes_a_space_at_the_start_and_after_special_tokens),
        cmocka_unit_test(a_million_bytes_of_anything_come_back),
        cmocka_unit_test(a_long_text_gives_the_ids_of_its_parts),
        cmocka_unit_test(tool_prints_one_array_per_input),
    };
    return RUN_TESTS("tokenizer", tests);
}
