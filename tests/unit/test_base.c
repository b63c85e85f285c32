#include "test.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/utf8.h"

static void error_keeps_code_and_prefixes(void **state)
{
    (void)state;
    struct error e = {0};
    assert_false(error_set(&e, ERR_MODEL, "found %d, expected %d", 1, 2));
    error_prefix(&e, "file %s", "x.gguf");
    assert_int_equal(e.code, ERR_MODEL);
    assert_string_equal(e.text, "file x.gguf: found 1, expected 2");
    assert_false(error_set(NULL, ERR_FAIL, "nobody listens"));
}

static void buffer_grows_and_failure_sticks(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    assert_false(b.failed);
    assert_int_equal(strncmp(b.data, "0,1,2,", 6), 0);
    assert_false(buf_reserve(&b, SIZE_MAX - 10));
    assert_false(buf_puts(&b, "x"));
    assert_true(b.failed);
    buf_release(&b);
    assert_string_equal(buf_str(&b), "");
}

static void utf8_refuses_what_unicode_calls_ill_formed(void **state)
{
    (void)state;
    static const char *bad[] = {
        "\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xC3"};
    uint32_t cp;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
    char out[4];
    for (cp = 1; cp <= 0x10FFFF; cp += 7) {
        size_t n = utf8_encode(cp, out);
        uint32_t back = 0;
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_int_equal(utf8_decode(out, n, &back), n);
        assert_int_equal(back, cp);
        for (size_t k = 1; k < n; k++)
            assert_int_equal(utf8_incomplete_tail(out, k), k);
        assert_int_equal(utf8_incomplete_tail(out, n), 0);
    }
    assert_int_equal(utf8_incomplete_tail("a\x80\x80", 3), 0);
}

// Known answers of Random123's kat_vectors for philox4x32-10.
static void philox_matches_its_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        uint32_t out[4];
        rng_philox(v[i].ctr, v[i].key, out);
        assert_memory_equal(out, v[i].want, sizeof out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_keeps_code_and_prefixes),
        cmocka_unit_test(buffer_grows_and_failure_sticks),
        cmocka_unit_test(utf8_refuses_what_unicode_calls_ill_formed),
        cmocka_unit_test(philox_matches_its_published_vectors),
    };
    return RUN_TESTS("base", tests);
}
