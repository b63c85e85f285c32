// A word that is cut into stretches gives the ids that it gives as a whole.
#include "test.h"

#include "base/rng.h"
#include "small_vocab.h"

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
        cmocka_unit_test(a_long_word_in_stretches_gives_the_ids_of_the_whole),
        cmocka_unit_test(sentencepiece_in_stretches_and_pieces_gives_the_ids_of_the_whole),
    };
    return RUN_TESTS("tokenizer_stretches", tests);
}
