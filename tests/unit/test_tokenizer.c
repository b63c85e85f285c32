// The tokenizers of the reference vocabularies against the reference vectors, and the promises that
// hold for all of them.
#include "test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "tools/tokenize.h"

static const char *const vocabularies[] = {"qwen2",        "llama-bpe", "gpt-2",
                                           "deepseek-llm", "starcoder", "llama-spm"};
enum { N_VOCAB = sizeof vocabularies / sizeof *vocabularies };

struct loaded {
    struct gguf *gguf;
    struct tokenizer *tok;
};

static const char *conformance_path(const char *name, const char *suffix)
{
    static char path[4096];
    const char *dir = getenv("HOKKU_CONFORMANCE");
    snprintf(path, sizeof path, "%s/tokenizers/%s%s", dir ? dir : ".", name, suffix);
    return path;
}

static bool file_exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    return f != NULL;
}

static struct loaded load(const char *name)
{
    struct loaded l = {0};
    struct error err = {0};
    const char *path = conformance_path(name, ".gguf");
    l.gguf = gguf_open(path, &err);
    if (l.gguf)
        l.tok = tokenizer_create(l.gguf, &err);
    if (!l.tok)
        fail_msg("%s: %s", name, err.text);
    return l;
}

static void unload(struct loaded *l)
{
    tokenizer_free(l->tok);
    gguf_free(l->gguf);
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

static void test_strings_give_the_reference_ids(void **state)
{
    (void)state;
    static const char separator[] = "\n__ggml_vocab_test__\n";
    for (size_t v = 0; v < N_VOCAB; v++) {
        struct loaded l = load(vocabularies[v]);
        struct buf inp = read_file(conformance_path(vocabularies[v], ".inp"));
        struct buf out = read_file(conformance_path(vocabularies[v], ".out"));
        struct ids want = {0};
        const char *expected = out.data;
        int n_cases = 0;
        for (const char *s = inp.data; s;) {
            const char *end = strstr(s, separator);
            expected = parse_ids(expected, &want);
            check_vector(vocabularies[v], l.tok, s,
                         end ? (size_t)(end - s) : (size_t)(inp.data + inp.len - s), false, &want);
            s = end ? end + strlen(separator) : NULL;
            n_cases++;
        }
        assert_true(n_cases > 40);
        ids_release(&want);
        buf_release(&inp);
        buf_release(&out);
        unload(&l);
    }
}

static void random_strings_give_the_reference_ids(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VOCAB; v++) {
        struct loaded l = load(vocabularies[v]);
        struct buf in = read_file(conformance_path("random", ".nul"));
        for (int special = 0; special < 2; special++) {
            const char *path =
                conformance_path(vocabularies[v], special ? ".random-special.out" : ".random.out");
            if (!file_exists(path))
                continue; // not every vocabulary has these
            struct buf out = read_file(path);
            struct ids want = {0};
            const char *expected = out.data;
            int n_cases = 0;
            for (size_t i = 0; i < in.len; i += strlen(in.data + i) + 1) {
                expected = parse_ids(expected, &want);
                check_vector(vocabularies[v], l.tok, in.data + i, strlen(in.data + i), special,
                             &want);
                n_cases++;
            }
            assert_int_equal(n_cases, 150);
            ids_release(&want);
            buf_release(&out);
        }
        buf_release(&in);
        unload(&l);
    }
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
    expect_ids(l.tok, "<|im_end|>", &opt, IDS(151645));

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
    assert_int_equal(ids.data[0], 151644);
    assert_int_equal(ids.data[ids.len - 1], 151645);
    size_t n_control = 0;
    for (size_t i = 0; i < ids.len; i++)
        n_control += tokenizer_kind(l.tok, ids.data[i]) == TOKEN_CONTROL;
    assert_int_equal(n_control, 2);
    ids_release(&ids);
    unload(&l);
}

static void no_control_token_of_any_vocabulary_can_be_typed(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VOCAB; v++) {
        struct loaded l = load(vocabularies[v]);
        size_t n_control = 0;
        for (uint32_t id = 0; id < tokenizer_n_vocab(l.tok); id++) {
            if (tokenizer_kind(l.tok, (int32_t)id) != TOKEN_CONTROL)
                continue;
            n_control++;
            struct gguf_str s = tokenizer_text(l.tok, (int32_t)id);
            struct buf text = {0}; // alone, among letters, twice
            for (int form = 0; form < 3; form++) {
                buf_clear(&text);
                buf_puts(&text, form == 1 ? "a" : "");
                buf_append(&text, s.data, s.len);
                buf_puts(&text, form == 1 ? "b" : "");
                if (form == 2)
                    buf_append(&text, s.data, s.len);
                struct ids ids = encode(l.tok, text.data, text.len, NULL);
                if (has_control(l.tok, &ids))
                    fail_msg("%s: typed \"%s\" became a control token", vocabularies[v], text.data);
                ids_release(&ids);
                struct tokenize_options all = {.special = true};
                ids = encode(l.tok, text.data, text.len, &all);
                assert_true(has_control(l.tok, &ids));
                ids_release(&ids);
            }
            buf_release(&text);
        }
        assert_true(n_control > 0);
        unload(&l);
    }
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
    // gpt-2, qwen2 and llama-bpe have a token for each of the 256 bytes, as llama-spm has.
    static const char *const complete[] = {"qwen2", "llama-bpe", "gpt-2", "llama-spm"};
    for (size_t v = 0; v < sizeof complete / sizeof *complete; v++) {
        struct loaded l = load(complete[v]);
        bool spm = strcmp(tokenizer_model(l.tok), "llama") == 0;
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
    assert_int_equal(tokenizer_bos(l.tok), 128000);
    assert_int_equal(tokenizer_eos(l.tok), 128009);
    expect_ids(l.tok, "Hello", NULL, IDS(9906));
    expect_ids(l.tok, "Hello", &bos, IDS(128000, 9906));
    expect_ids(l.tok, "<|begin_of_text|>Hello", &bos, IDS(128000, 9906));
    expect_ids(l.tok, "", &bos, IDS(128000));
    assert_true(tokenizer_is_end(l.tok, 128001)); // <|end_of_text|>
    assert_true(tokenizer_is_end(l.tok, 128008)); // <|eom_id|>
    assert_true(tokenizer_is_end(l.tok, 128009)); // <|eot_id|>
    assert_false(tokenizer_is_end(l.tok, 128006));
    assert_false(tokenizer_is_end(l.tok, -1));
    assert_false(tokenizer_is_end(l.tok, 1 << 30));
    unload(&l);

    l = load("qwen2"); // has a BOS id, does not want it
    assert_false(tokenizer_add_bos(l.tok));
    expect_ids(l.tok, "Hello", &bos, IDS(9707));
    assert_true(tokenizer_is_end(l.tok, 151643)); // <|endoftext|>
    assert_true(tokenizer_is_end(l.tok, 151645)); // <|im_end|>
    assert_false(tokenizer_is_end(l.tok, 151644));
    unload(&l);
}

// Ids from the sentencepiece package with the same vocabulary.
static void sentencepiece_prefixes_a_space_at_the_start_and_after_special_tokens(void **state)
{
    (void)state;
    struct loaded l = load("llama-spm");
    struct tokenize_options cont = {.continuation = true}, special = {.special = true};
    expect_ids(l.tok, "Hello", NULL, IDS(15043));         // "▁Hello"
    expect_ids(l.tok, "Hello", &cont, IDS(10994));        // "Hello"
    expect_ids(l.tok, " Hello", NULL, IDS(29871, 15043)); // "▁" "▁Hello"
    expect_ids(l.tok, "", NULL, NULL, 0);
    expect_ids(l.tok, "Hello</s>Hello", &special, IDS(15043, 2, 15043));
    cont.special = true;
    expect_ids(l.tok, "Hello</s>Hello", &cont, IDS(10994, 2, 15043));
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
    assert_true(tool_tokenize(l.tok, "Hello<|im_end|>", 15, &opt, false, &out, &err));
    assert_string_equal(out.data, "[9707,151645]\n");
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "Hello\0\0\nHello", 13, &opt, true, &out, &err));
    assert_string_equal(out.data, "[9707]\n[]\n[198,9707]\n");
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "Hello\0", 6, &opt, true, &out, &err));
    assert_string_equal(out.data, "[9707]\n");
    buf_clear(&out);
    assert_true(tool_tokenize(l.tok, "a\0b", 3, &opt, false, &out, &err));
    assert_string_equal(out.data, "[64,188,65]\n");
    buf_release(&out);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    if (!file_exists(conformance_path("qwen2", ".gguf"))) {
        printf("1..0 # SKIP no reference vocabularies at %s\n", conformance_path("", ""));
        return 0;
    }
    return RUN_TESTS("tokenizer", tests);
}
