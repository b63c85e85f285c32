// Small vocabularies written here: what metadata asks for, and metadata that is wrong.
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "small_vocab.h"
#include "text/special.h"

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

// Written out by hand: characters merge by the list, not by scores; no space goes before a text.
static void merges_of_characters_follow_the_list(void **state)
{
    (void)state;
    struct spec s = {
        .model = "gemma4",
        .tokens = {"<bos>", "<unk>", "\xE2\x96\x81", "a", "b", "\n", "ab",
                   "\xE2\x96\x81"
                   "a",
                   "\n\n\n", "<0xC3>", "<0xA9>", "aba", "<0x0A>", "\xC3\xBC", "b\n", "\n\n"},
        .kinds = {3, 2, 1, 1, 1, 1, 1, 1, 1, 6, 6, 1, 6, 1, 1, 1},
        .merges = {"a b", "\xE2\x96\x81 a", "ab a", "b \n", "\n \n"},
        .n_kinds = 16,
        .n_scores = ABSENT,
        .bos = 1,
        .unk = 2,
    };
    struct made m = make(&s);
    const struct tokenize_options none = {0}, bos = {.bos = true};
    expect_ids(&m, "ab a", &none, "6 7");
    expect_ids(&m, " aba", &none, "2 11");
    expect_ids(&m, "a", &bos, "0 3");
    expect_ids(&m, "\xC3\xA9\xC3\xBC", &none, "9 10 13"); // bytes of what is no token
    expect_ids(&m, "x", &none, "1");                      // no byte token either
    // A line and its break do not join; three breaks are a token that no merge makes; four are
    // none.
    expect_ids(&m, "ab\n", &none, "6 5");
    expect_ids(&m, "b\nb", &none, "4 5 4");
    expect_ids(&m, "a\n\n\nb", &none, "3 8 4");
    expect_ids(&m, "a\n\n\n\n", &none, "3 15 15");
    assert_string_equal(tokenizer_model(m.tok), "gemma4");
    drop(&m);
    s.add_space_prefix = 2;
    m = make(&s);
    expect_ids(&m, "a", &none, "7");
    drop(&m);
    s.no_merges = true;
    expect_refusal(&s, "tokenizer.ggml.merges");
    s.no_merges = false;
    s.merges[1] = "ab b";
    expect_refusal(&s, "what they join into is no token");
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
    static char long_token[1026]; // looked for at each byte of a text, a text would take for ever
    memset(long_token, 'a', 1025);
    s = bpe_spec();
    s.tokens[6] = long_token;
    expect_refusal(&s, "tokens[6] has 1025 bytes and is no normal token: expected at most 1024");
    s.tokens[6] = long_token + 1;
    struct made longest = make(&s);
    expect_ids(&longest, long_token, &(struct tokenize_options){0}, "6 0");
    drop(&longest);
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

// What would begin another file, or more filling, ends an answer, whatever it is called.
static void tokens_of_filling_in_end_an_answer(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    struct made m = make(&s);
    assert_false(tokenizer_is_end(m.tok, 0) || tokenizer_is_end(m.tok, 2) ||
                 tokenizer_is_end(m.tok, 6));
    drop(&m);
    s.fim_pad = 1;
    s.fim_rep = 3;
    s.fim_sep = 7;
    m = make(&s);
    assert_non_null(m.tok);
    assert_true(tokenizer_is_end(m.tok, 0) && tokenizer_is_end(m.tok, 2) &&
                tokenizer_is_end(m.tok, 6) && !tokenizer_is_end(m.tok, 1));
    drop(&m);
    s.fim_sep = 11;
    expect_refusal(&s, "tokenizer.ggml.fim_sep_token_id is 10, expected an id below the 10 tokens");
}

// They come from the file, and a message is one line.
static void texts_in_messages_are_fit_to_be_read(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    s.model = "a\n\x1B[31m";
    expect_refusal(&s, "tokenizer.ggml.model is \"a\\x0A\\x1B[31m\", expected");
    s = bpe_spec();
    s.pre = "a\n\xFF";
    expect_refusal(&s, "tokenizer.ggml.pre is \"a\\x0A\\xFF\", a pre-tokenizer");
    s = bpe_spec();
    s.tokens[3] = s.tokens[4] = "a\nb";
    expect_refusal(&s, "tokens 3 and 4 have the same text \"a\\x0Ab\"");
    s = bpe_spec();
    s.merges[1] = "a \n\x1B";
    expect_refusal(&s, "tokenizer.ggml.merges[1] is \"a \\x0A\\x1B\"");
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
    char long_word[1001];
    memset(long_word, 'a', 1000);
    long_word[1000] = '\0';
    s.tokens[4] = long_word;
    m = make(&s);
    expect_ids(&m, long_word, &none, "4");
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

// The tokens of a vocabulary that are looked for in a text.
struct looked_for {
    struct made m;
    struct vocab *v;
    struct special special;
};

static struct looked_for look_for(const struct spec *s)
{
    struct looked_for l = {.m = make(s), .v = malloc(sizeof *l.v)};
    struct error err;
    assert_non_null(l.m.tok);
    assert_non_null(l.v);
    assert_true(vocab_init(l.v, l.m.gguf, &err) && special_init(&l.special, l.v, &err));
    return l;
}

static void looked_for_release(struct looked_for *l)
{
    special_release(&l->special);
    vocab_release(l->v);
    free(l->v);
    drop(&l->m);
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
    struct looked_for l = look_for(&s);
    struct special_match found[40];
    uint64_t ctr = 0;
    size_t n_found;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        int32_t at[40];
        size_t n = rng_u64(3, ctr++, 0) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + rng_u64(3, ctr++, 0) % 4);
        size_t n_want = match_plainly(l.v, text, n, at);
        find_all(&l.special, text, n, NULL, found, &n_found);
        assert_int_equal(n_found, n_want);
        for (size_t i = 0; i < n_found; i++)
            assert_int_equal(at[found[i].begin], found[i].id);
    }
    looked_for_release(&l);
}

// In such a text every token overlaps the next one from the beginning to the end: some are settled,
// then what follows, to the same tokens.
static void many_that_overlap_are_settled_a_part_at_a_time(void **state)
{
    (void)state;
    enum { N = 140000, PERIOD = 13, PLACES_AT_A_TIME = 1 << 17 };
    struct spec s = {
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = {"aa", "ab", "ba", "bb", "bab", "abba", "aaaa", "babbab", "abaababa",
                   "aaaaaaaaa"},
        .kinds = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
        .n_kinds = 10,
        .n_scores = ABSENT,
    };
    struct looked_for l = look_for(&s);
    struct special_matches found = {0};
    struct error err = {0};
    char *text = malloc(N);
    int32_t *want = malloc(N * sizeof *want);
    assert_true(text && want);
    for (uint64_t round = 0; round < PERIOD; round++) { // to be cut at each place of the period
        for (size_t i = 0; i < N; i++)
            text[i] = "abaababaaaaab"[(i + round) % PERIOD];
        size_t n_want = match_plainly(l.v, text, N, want), n_found = 0, at = 0;
        do {
            assert_true(special_next(&l.special, text, N, false, NULL, NULL, &at, &found, &err));
            for (size_t i = 0; i < found.n; i++)
                assert_int_equal(want[found.data[i].begin], found.data[i].id);
            n_found += found.n;
        } while (found.n);
        assert_int_equal(n_found, n_want);
        assert_in_range(found.cap, 1, PLACES_AT_A_TIME);
    }
    free(text);
    free(want);
    special_matches_release(&found);
    looked_for_release(&l);
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
    struct looked_for l = look_for(&s);
    struct special_match found[40];
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
        find_all(&l.special, text, n, mask, found, &n_now);
        for (size_t i = 0; i < n_now; i++) {
            assert_int_equal(l.v->kind[found[i].id], TOKEN_CONTROL);
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
    looked_for_release(&l);
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

static void expect_other(struct spec *s, const char *part)
{
    const struct spec first = bpe_spec();
    struct made a = make(&first), b = make(s);
    struct error err = {0};
    const bool same = tokenizer_same(a.tok, b.tok, &err);
    if (same != !part || (part && (err.code != ERR_MODEL || !strstr(err.text, part))))
        fail_msg("found %s (%s), expected %s", same ? "the same" : "another", err.text,
                 part ? part : "the same");
    drop(&a);
    drop(&b);
    *s = bpe_spec();
}

// But for unused tokens at the end, of which models of one family have more or fewer.
static void another_vocabulary_is_told_by_what_differs(void **state)
{
    (void)state;
    struct spec s = bpe_spec();
    expect_other(&s, NULL);
    s.tokens[1] = "d";
    s.merges[0] = "a d";
    s.tokens[3] = "ad";
    s.merges[1] = "ad c";
    s.tokens[4] = "adc";
    expect_other(&s, "token 1 is \"d\", expected \"b\"");
    s.tokens[9] = "<unk\n>";
    expect_other(&s, "token 9 is \"<unk\\x0A>\", expected \"<unk>\"");
    s.tokens[9] = "<unknown>";
    expect_other(&s, "token 9 is \"<unknown>\", expected \"<unk>\"");
    s.kinds[6] = 3;
    expect_other(&s, "token 6 is of kind control, expected user-defined");
    s.bos = 7;
    expect_other(&s, "its BOS token is 6, expected ");
    s.eos = 7;
    expect_other(&s, "its EOS token is 6, expected ");
    s.eot = 7;
    expect_other(&s, "tokens end a text, expected ");
    s.tokens[10] = "<more>";
    s.n_kinds = 11;
    s.kinds[10] = 1;
    expect_other(&s, "it has 11 tokens, expected 10");
    s.tokens[10] = "<more>";
    s.n_kinds = 11;
    s.kinds[10] = 5;
    expect_other(&s, NULL);
    s = spm_spec();
    expect_other(&s, "its tokenizer is \"llama\", expected \"gpt2\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_of_characters_follow_the_list),
        cmocka_unit_test(wrong_metadata_is_refused_by_name_and_value),
        cmocka_unit_test(texts_in_messages_are_fit_to_be_read),
        cmocka_unit_test(ids_of_absent_tokens_are_minus_one),
        cmocka_unit_test(tokens_of_filling_in_end_an_answer),
        cmocka_unit_test(missing_pre_means_default),
        cmocka_unit_test(merges_apply_in_their_order_and_unknown_bytes_need_a_token),
        cmocka_unit_test(forgotten_control_marks_do_not_let_text_end_a_turn),
        cmocka_unit_test(user_defined_tokens_match_everywhere),
        cmocka_unit_test(bos_and_eos_follow_the_metadata_and_are_never_doubled),
        cmocka_unit_test(space_prefix_follows_the_metadata),
        cmocka_unit_test(empty_tokens_and_repeated_merges_are_harmless),
        cmocka_unit_test(longer_special_tokens_win_wherever_they_overlap),
        cmocka_unit_test(many_that_overlap_are_settled_a_part_at_a_time),
        cmocka_unit_test(control_tokens_match_only_where_every_byte_is_masked),
        cmocka_unit_test(sentencepiece_merges_by_its_definition),
        cmocka_unit_test(another_vocabulary_is_told_by_what_differs),
        cmocka_unit_test(long_tokens_are_reached_through_their_parts),
    };
    return RUN_TESTS("tokenizer_metadata", tests);
}
