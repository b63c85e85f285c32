// The words of a text, the shortcuts against the patterns, and merging against its definition.
#include "test.h"

#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/wordcache.h"

static bool collect(void *ctx, const char *word, size_t n, struct error *err)
{
    (void)err;
    struct buf *b = ctx;
    return buf_append(b, word, n) && buf_putc(b, '|');
}

static struct pretokenizer *open_row(const char *name)
{
    struct error err = {0};
    struct pretokenizer *p = pretokenizer_create(name, strlen(name), &err);
    if (!p)
        fail_msg("%s", err.text);
    return p;
}

static void check_words(const char *row, const char *text, const char *want)
{
    struct pretokenizer *p = open_row(row);
    for (int shortcuts = 0; shortcuts < 2; shortcuts++) {
        struct buf got = {0};
        struct error err = {0};
        pretokenizer_set_shortcuts(p, shortcuts);
        if (!pretokenizer_split(p, text, strlen(text), collect, &got, &err))
            fail_msg("%s", err.text);
        if (strcmp(buf_str(&got), want) != 0)
            fail_msg("%s: \"%s\" gave %s, expected %s", row, text, buf_str(&got), want);
        buf_release(&got);
    }
    pretokenizer_free(p);
}

// Written out by hand from the patterns.
static void words_are_those_of_the_patterns(void **state)
{
    (void)state;
    check_words("gpt-2", "Hello  world's 123!\n\nx", "Hello| | world|'s| 123|!|\n|\n|x|");
    check_words("gpt-2", "a\t b", "a|\t| b|");
    check_words("starcoder", "ab 12", "ab| |1|2|");
    check_words("qwen2", "I'LL be 2024...\n\n  ok", "I|'LL| be| |2|0|2|4|...\n\n| | ok|");
    check_words("llama-bpe", "12345 \r\n(x)", "123|45| \r\n|(x|)|");
    check_words("tekken", "HelloWorld ABCd 12", "Hello|World| ABCd| |1|2|");
    check_words("gpt-4o", "HelloWorld'S 1234/\n", "Hello|World'S| |123|4|/\n|");
    check_words("deepseek-llm", "one 12,  x  ", "one| |12|,| | x|  |");
    check_words("deepseek-v3", "a1234 +b\xE4\xBD\xA0", "a|123|4| +|b|\xE4\xBD\xA0|");
    check_words("youtu", "aB'S 12\xED\x95\x9C\xEF\xBC\x8C\xE6\xBC\xA2\xE3\x84\x85/\n",
                "a|B'S| |1|2|\xED\x95\x9C|\xEF\xBC\x8C|\xE6\xBC\xA2|\xE3\x84\x85|/\n|");
    check_words("exaone-moe", "one two  three's 12/\n\nx", "one two| | three|'s| |1|2|/\n|\n|x|");
    check_words("afmoe", "a1234 12345\xE0\xB8\x81\xE0\xBA\x81 +b",
                "a|1|234| |12|345|\xE0\xB8\x81|\xE0\xBA\x81| +|b|");
    check_words("jais-2", "a       b1234!\n  \n     x   ",
                "a|    |  | b|123|4|!\n|  \n|    | x|  | |");
    check_words("falcon", "a.b 1234", "a|.|b| |123|4|");
    check_words("default", "a.b 1234", "a|.|b| |123|4|");
    // U+180E is no white space (PCRE2's \s thinks it is); U+017F is no s of a contraction.
    check_words("qwen2", "a \xE1\xA0\x8E", "a| \xE1\xA0\x8E|");
    check_words("qwen2", "it'\xC5\xBF", "it|'\xC5\xBF|");
}

static void unknown_name_is_refused_with_those_that_work(void **state)
{
    (void)state;
    struct error err = {0};
    assert_null(pretokenizer_create("qwen9", 5, &err));
    assert_int_equal(err.code, ERR_MODEL);
    assert_non_null(strstr(err.text, "\"qwen9\""));
    for (size_t i = 0; pretokenizer_row_name(i); i++)
        assert_non_null(strstr(err.text, pretokenizer_row_name(i)));
    assert_null(pretokenizer_create("qwen22", 6, &err));
    assert_null(pretokenizer_create("qwen", 4, &err));
    assert_null(pretokenizer_create("", 0, &err));
}

static uint32_t rnd(uint64_t *ctr, uint32_t below)
{
    return (uint32_t)(rng_u64(42, (*ctr)++, 0) % below);
}

// Text in which every class of the patterns meets every other.
static size_t random_text(uint64_t *ctr, char *out, size_t max)
{
    static const char *const bits[] = {
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\v",
        "'s",
        "'LL",
        "'",
        "a",
        "Z",
        "word",
        "7",
        "42",
        "!",
        "?!",
        "...",
        "$",
        "\x1C",
        "\x7F",
        "\xC3\xA9",
        "\xC2\xA0",
        "\xC2\xB2",
        "\xE3\x80\x80",
        "\xCC\x81",
        "\xE4\xBD\xA0",
        "\xF0\x9F\x98\x80",
        "\xE2\x80\x99",
        "\xC2\x85",
        "'r",
        "'v",
        "/",
        "\xD9\xA3",
        "\xEF\xBF\xBD",
    };
    size_t n = 0;
    for (uint32_t k = 1 + rnd(ctr, 24); k > 0; k--) {
        // Two thirds of the texts' pieces are ASCII, where the shortcuts decide.
        const char *s = bits[rnd(ctr, rnd(ctr, 3) ? 20 : sizeof bits / sizeof *bits)];
        if (n + strlen(s) > max)
            break;
        memcpy(out + n, s, strlen(s));
        n += strlen(s);
    }
    return n;
}

static void shortcuts_equal_the_patterns(void **state)
{
    (void)state;
    static const char *const with[] = {"gpt-2",     "llama-bpe", "qwen2",
                                       "starcoder", "falcon",    "default"};
    uint64_t ctr = 0;
    for (size_t r = 0; r < sizeof with / sizeof *with; r++) {
        struct pretokenizer *p = open_row(with[r]);
        for (int round = 0; round < 20000; round++) {
            char text[256];
            size_t n = random_text(&ctr, text, sizeof text);
            struct buf fast = {0}, slow = {0};
            struct error err = {0};
            pretokenizer_set_shortcuts(p, true);
            assert_true(pretokenizer_split(p, text, n, collect, &fast, &err));
            pretokenizer_set_shortcuts(p, false);
            assert_true(pretokenizer_split(p, text, n, collect, &slow, &err));
            if (strcmp(buf_str(&fast), buf_str(&slow)) != 0)
                fail_msg("%s: \"%.*s\": shortcut %s, pattern %s", with[r], (int)n, text,
                         buf_str(&fast), buf_str(&slow));
            buf_release(&fast);
            buf_release(&slow);
        }
        pretokenizer_free(p);
    }
}

struct coverage {
    const char *next;
    size_t n_words;
};

static bool cover(void *ctx, const char *word, size_t n, struct error *err)
{
    (void)err;
    struct coverage *c = ctx;
    assert_ptr_equal(word, c->next);
    assert_true(n > 0);
    c->next += n;
    c->n_words++;
    return true;
}

// 100 KB of what is hardest: a pattern whose time is quadratic would not come back before the
// test's timeout.
static void every_row_splits_long_runs_of_anything(void **state)
{
    (void)state;
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "7",
                                        "!",
                                        " a",
                                        "\t\n",
                                        "A",
                                        "'",
                                        "(",
                                        "\xCC\x81",
                                        "\xE4\xBD\xA0",
                                        "\xE3\x80\x80",
                                        "aA",
                                        "\xF0\x9F\x98\x80",
                                        "  \n",
                                        "\xE2\x80\x8D"};
    size_t max = 100000;
    char *text = malloc(max + 8);
    assert_non_null(text);
    for (size_t r = 0; pretokenizer_row_name(r); r++) {
        struct pretokenizer *p = open_row(pretokenizer_row_name(r));
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = 0, len = strlen(units[u]);
            for (; n < max; n += len)
                memcpy(text + n, units[u], len);
            // A last character that spoils a match that ran to the end.
            text[n++] = 'x';
            struct coverage c = {.next = text};
            struct error err = {0};
            if (!pretokenizer_split(p, text, n, cover, &c, &err))
                fail_msg("%s", err.text);
            assert_ptr_equal(c.next, text + n);
        }
        pretokenizer_free(p);
    }
    free(text);
}

// A made-up rule over small ids: ranks collide often, so ties matter.
static uint32_t toy_rule(const void *ctx, const char *text, const struct piece *l,
                         const struct piece *r, int32_t *id)
{
    (void)text;
    uint64_t h =
        rng_u64(*(const uint64_t *)ctx, (uint64_t)(uint32_t)l->id << 32 | (uint32_t)r->id, 0);
    if (h % 3 == 0)
        return MERGE_NONE;
    *id = (int32_t)(h >> 8 & 7);
    return (uint32_t)(h >> 16 & 7);
}

// The definition: take the best neighbours of all, leftmost among equals, until none merge.
static size_t merge_plainly(struct piece *p, size_t n, const void *ctx)
{
    for (;;) {
        uint32_t best_rank = MERGE_NONE;
        size_t best = 0;
        int32_t best_id = 0, id = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = toy_rule(ctx, NULL, &p[i], &p[i + 1], &id);
            if (rank < best_rank) {
                best_rank = rank;
                best = i;
                best_id = id;
            }
        }
        if (best_rank == MERGE_NONE)
            return n;
        p[best].id = best_id;
        p[best].n += p[best + 1].n;
        memmove(&p[best + 1], &p[best + 2], (n - best - 2) * sizeof *p);
        n--;
    }
}

static void merging_follows_its_definition_at_every_length(void **state)
{
    (void)state;
    struct merger m = {0};
    uint64_t ctr = 1u << 20;
    for (uint64_t round = 0; round < 3000; round++) {
        size_t n = rnd(&ctr, 120);
        struct piece want[128];
        assert_true(merger_reserve(&m, n + 1));
        for (size_t i = 0; i < n; i++)
            want[i] = m.pieces[i] =
                (struct piece){.begin = (uint32_t)i, .n = 1, .id = (int32_t)rnd(&ctr, 8)};
        size_t n_got = merger_run(&m, n, NULL, toy_rule, &round);
        size_t n_want = merge_plainly(want, n, &round);
        assert_int_equal(n_got, n_want);
        for (size_t i = 0; i < n_got; i++) {
            assert_int_equal(m.pieces[i].id, want[i].id);
            assert_int_equal(m.pieces[i].begin, want[i].begin);
            assert_int_equal(m.pieces[i].n, want[i].n);
        }
    }
    merger_release(&m);
}

static void the_cache_of_words_compares_the_words_themselves(void **state)
{
    (void)state;
    struct wordcache c;
    uint16_t tag = 0;
    const int32_t ids[] = {7, 8};
    wordcache_init(&c, WORDCACHE_MIN_INPUT);
    struct wordcache_entry *e = wordcache_at(&c, "word", 4, &tag);
    assert_non_null(e);
    assert_false(wordcache_hit(e, tag, "word", 4));
    wordcache_store(e, tag, "word", 4, ids, 2);
    assert_true(wordcache_hit(e, tag, "word", 4));
    assert_false(wordcache_hit(e, tag, "ward", 4)); // as if both had the same hash
    assert_false(wordcache_hit(e, tag, "words", 5));
    assert_null(wordcache_at(&c, "a word of more than 20", 22, &tag));
    wordcache_release(&c);
    wordcache_init(&c, 1); // a short text has none
    assert_null(wordcache_at(&c, "word", 4, &tag));
    wordcache_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_the_patterns),
        cmocka_unit_test(unknown_name_is_refused_with_those_that_work),
        cmocka_unit_test(shortcuts_equal_the_patterns),
        cmocka_unit_test(every_row_splits_long_runs_of_anything),
        cmocka_unit_test(merging_follows_its_definition_at_every_length),
        cmocka_unit_test(the_cache_of_words_compares_the_words_themselves),
    };
    return RUN_TESTS("pretokenizer", tests);
}
