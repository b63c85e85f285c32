#include "test.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/beside.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_scan.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "base/sha256.h"
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

static void columns_follow_unicode(void **state)
{
    (void)state;
    static const struct {
        uint32_t cp;
        int width;
    } known[] = {{'a', 1},     {0xE9, 1},    {0xAD, 1},     {0x301, 0},   {0x5B0, 0},
                 {0x64E, 0},   {0x9CD, 0},   {0xBCD, 0},    {0xE31, 0},   {0x1160, 0},
                 {0x11A8, 0},  {0x1100, 2},  {0x3042, 2},   {0x4E00, 2},  {0xAC00, 2},
                 {0xFF21, 2},  {0xFF71, 1},  {0x200D, 0},   {0xFE0F, 0},  {0x2764, 1},
                 {0x26A1, 2},  {0x1F600, 2}, {0x1F1E6, 1},  {0x1F3FB, 2}, {0x1FAE0, 2},
                 {0x20000, 2}, {0xE0100, 0}, {0x10FFFF, 1}, {0x378, 1},   {0x7F, 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (utf8_width(known[i].cp) != known[i].width)
            fail_msg("U+%04X takes %d columns, expected %d", (unsigned)known[i].cp,
                     utf8_width(known[i].cp), known[i].width);
    }
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
    struct buf repaired = {0};
    assert_true(buf_append_utf8(&repaired,
                                "\xFF"
                                "a\xC3\xA4\xE2\x82"
                                "b\x80",
                                8));
    assert_string_equal(buf_str(&repaired), "\xEF\xBF\xBD"
                                            "a\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD"
                                            "b"
                                            "\xEF\xBF\xBD");
    buf_release(&repaired);
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

// FIPS 180-4 examples (NIST "Examples with Intermediate Values") and lengths around the padding.
static void sha256_matches_its_published_vectors(void **state)
{
    (void)state;
    static char million[1000000];
    memset(million, 'a', sizeof million);
    const struct {
        const char *text;
        size_t n;
        const char *want;
    } v[] = {
        {"abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {million, sizeof million,
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        // In one piece, and in pieces that never align with the blocks.
        for (int how = 0; how < 4; how++) { // with and without the processor's instructions
            size_t piece = how & 2 ? 17 : 1000017;
            struct sha256 h;
            unsigned char digest[SHA256_BYTES];
            char hex[SHA256_HEX];
            sha256_init(&h);
            h.hardware = h.hardware && !(how & 1);
            for (size_t at = 0; at < v[i].n; at += piece)
                sha256_update(&h, v[i].text + at, v[i].n - at < piece ? v[i].n - at : piece);
            sha256_final(&h, digest);
            sha256_hex(digest, hex);
            assert_string_equal(hex, v[i].want);
        }
    }
}

static void untrusted_text_in_messages_is_one_short_printable_line(void **state)
{
    (void)state;
    char out[16];
    assert_string_equal(format_text(out, sizeof out, "a\nb\x1B[2J", 7), "a\\x0Ab\\x1B[2J");
    assert_string_equal(format_text(out, sizeof out, "fifteen letters", 15), "fifteen letters");
    assert_string_equal(format_text(out, sizeof out, "sixteen letters!", 16), "sixteen lett...");
    assert_string_equal(format_text(out, sizeof out, "\xC3\xA9\xC3", 3), "\xC3\xA9\\xC3");
    assert_string_equal(format_text(out, sizeof out, "%s%n\0x", 6), "%s%n\\x00x");
    assert_string_equal(format_text(out, 8, "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", 8),
                        "\xC3\xA9\xC3\xA9...");
    assert_string_equal(format_text(out, sizeof out, NULL, 0), "");
    char number[FORMAT_NUMBER];
    assert_string_equal(format_number(number, 5021696), "5,021,696");
    assert_string_equal(format_number(number, 0), "0");
    assert_string_equal(format_number(number, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(format_bytes(number, 999), "999 B");
    assert_string_equal(format_bytes(number, 999960), "1.0 MB");
}

static void numbers_have_the_fewest_digits_that_read_back_the_same(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want; // as Python's repr()
    } cases[] = {
        {0.1, "0.1"},
        {1.10, "1.1"},
        {1e-31, "1e-31"},
        {100, "100.0"},
        {-0.0, "-0.0"},
        {1e16, "1e+16"},
        {1e15, "1000000000000000.0"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {9007199254740993.0, "9007199254740992.0"},
        {0.1 + 0.2, "0.30000000000000004"},
    };
    char out[FORMAT_NUMBER];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(format_real(out, cases[i].v), cases[i].want);
    assert_true(format_float(0.1f) == 0.1 && format_float(-1.0f / 3) == -0.33333334 &&
                format_float(3.4e38f) == 3.4e38 && format_float(INFINITY) == INFINITY &&
                isnan(format_float(NAN)) && format_float(1e-45f) == 1e-45);
    static const char text[] =
        "{\"a\":[],\"\\u001F\":{},\"c\":[0.1,1e-31,1,true,null,\"\\\"\"],\"d\":-1.5}";
    json_t *j = json_loads(text, 0, NULL);
    char *line = json_line(j, 0);
    assert_string_equal(line, text);
    free(line);
    json_decref(j);
    j = json_string("\xC3\xA9");
    line = json_line(j, JSON_ENSURE_ASCII);
    assert_string_equal(line, "\"\\u00E9\"");
    free(line);
    json_decref(j);
    assert_null(json_line(NULL, 0));
}

static bool put_value(void *user, struct json_span key, struct json_span value)
{
    struct buf *out = user;
    return buf_printf(out, "%.*s=%.*s;", (int)key.n, key.s, (int)value.n, value.s);
}

static void json_is_found_as_it_was_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value, *rest; // value NULL: none
    } cases[] = {
        {" 1 2", "1", "2"},
        {"-0.5e+10,", "-0.5e+10", ","},
        {"{\"a\" : [ 1, {} , [] ], \"b\":null} \n", "{\"a\" : [ 1, {} , [] ], \"b\":null}", ""},
        {"\"\\u00eF\\\\\\\"}\"x", "\"\\u00eF\\\\\\\"}\"", "x"},
        {"123456789012345678901234567890", "123456789012345678901234567890", ""},
        {"01", "0", "1"},
        {"true false", "true", "false"},
        {"", NULL, ""},
        {"  ", NULL, ""},
        {"-", NULL, ""},
        {"1.", NULL, ""},
        {".5", NULL, ""},
        {"+1", NULL, ""},
        {"1e", NULL, ""},
        {"tru", NULL, ""},
        {"NaN", NULL, ""},
        {"[1", NULL, ""},
        {"[1,]", NULL, ""},
        {"[,1]", NULL, ""},
        {"{\"a\"}", NULL, ""},
        {"{\"a\":}", NULL, ""},
        {"{a:1}", NULL, ""},
        {"{1:1}", NULL, ""},
        {"{\"a\":1,}", NULL, ""},
        {"\"\\x\"", NULL, ""},
        {"\"\\u12g4\"", NULL, ""},
        {"\"\n\"", NULL, ""},
        {"\"\xC3\"", NULL, ""},
        {"\"a", NULL, ""},
        {"\"\\", NULL, ""},
        {"[1}", NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        // A copy without a NUL behind it: what reads too far is found by the sanitizers.
        const size_t n = strlen(cases[i].text);
        char *text = malloc(n + !n);
        memcpy(text, cases[i].text, n);
        struct json_span rest = {text, n}, value = {0};
        assert_int_equal(json_scan_value(&rest, &value), cases[i].value != NULL);
        if (cases[i].value) {
            assert_int_equal(value.n, strlen(cases[i].value));
            assert_memory_equal(value.s, cases[i].value, value.n);
            assert_int_equal(rest.n, strlen(cases[i].rest));
            assert_memory_equal(rest.s, cases[i].rest, rest.n);
        } else {
            assert_true(rest.s == text && rest.n == n && !value.s);
        }
        free(text);
    }
    static const char object[] = "{ \"a\" : 1.10, \"a\":{\"b\":[2 ,3]} }";
    struct buf out = {0};
    assert_true(json_scan_members((struct json_span){object, strlen(object)}, put_value, &out));
    assert_string_equal(buf_str(&out), "\"a\"=1.10;\"a\"={\"b\":[2 ,3]};");
    buf_clear(&out);
    assert_true(json_scan_members((struct json_span){"{ }", 3}, put_value, &out));
    assert_false(json_scan_members((struct json_span){"[1]", 3}, put_value, &out));
    assert_int_equal(out.len, 0);
    buf_release(&out);
    char deep[4000];
    memset(deep, '[', 2000);
    memset(deep + 2000, ']', 2000);
    struct json_span rest = {deep, sizeof deep}, value;
    assert_false(json_scan_value(&rest, &value));
    rest = (struct json_span){deep + 1100, 1800};
    assert_true(json_scan_value(&rest, &value) && rest.n == 0);
}

// At every length around the ends of blocks.
static void sha256_in_hardware_is_sha256(void **state)
{
    (void)state;
    unsigned char text[1000], a[SHA256_BYTES], b[SHA256_BYTES];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * i * 31 + i / 7);
    for (size_t n = 0; n <= sizeof text; n += n < 140 ? 1 : 43) {
        struct sha256 hw, plain;
        sha256_init(&hw);
        sha256_init(&plain);
        if (!hw.hardware)
            return; // the processor has no instructions for it
        plain.hardware = false;
        sha256_update(&hw, text, n / 3);
        sha256_update(&hw, text + n / 3, n - n / 3);
        sha256_update(&plain, text, n);
        sha256_final(&hw, a);
        sha256_final(&plain, b);
        assert_memory_equal(a, b, sizeof a);
    }
}

struct held {
    int may_end[2]; // a pipe
    pthread_t by;
    sigset_t blocked;
};

static void work_until_let(void *user)
{
    struct held *h = user;
    char byte;
    assert_int_equal(read(h->may_end[0], &byte, 1), 1);
    h->by = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &h->blocked);
}

static void work_beside_leaves_time_and_signals_to_its_owner(void **state)
{
    (void)state;
    struct beside b = {0};
    struct held h;
    assert_int_equal(pipe(h.may_end), 0);
    assert_true(beside_has_ended(&b)); // nothing is under way
    beside_begin(&b, work_until_let, &h);
    assert_false(beside_has_ended(&b));
    assert_int_equal(write(h.may_end[1], "", 1), 1);
    beside_wait(&b);
    assert_true(beside_has_ended(&b));
    assert_false(pthread_equal(h.by, pthread_self()));
    assert_true(sigismember(&h.blocked, SIGINT) && sigismember(&h.blocked, SIGTERM));
    assert_false(sigismember(&h.blocked, SIGBUS));
    beside_wait(&b); // once more is fine
    close(h.may_end[0]);
    close(h.may_end[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_keeps_code_and_prefixes),
        cmocka_unit_test(buffer_grows_and_failure_sticks),
        cmocka_unit_test(columns_follow_unicode),
        cmocka_unit_test(utf8_refuses_what_unicode_calls_ill_formed),
        cmocka_unit_test(philox_matches_its_published_vectors),
        cmocka_unit_test(sha256_matches_its_published_vectors),
        cmocka_unit_test(sha256_in_hardware_is_sha256),
        cmocka_unit_test(work_beside_leaves_time_and_signals_to_its_owner),
        cmocka_unit_test(json_is_found_as_it_was_written),
        cmocka_unit_test(numbers_have_the_fewest_digits_that_read_back_the_same),
        cmocka_unit_test(untrusted_text_in_messages_is_one_short_printable_line),
    };
    return RUN_TESTS("base", tests);
}
