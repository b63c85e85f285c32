#include "test.h"

#include "base/utf8.h"
#include "term/termout.h"

// The door (base/out.h) sees each piece by itself and leaves it as it is.
static void passes_the_door(const char *piece, size_t n)
{
    struct buf b = {0};
    assert_true(termsafe_painted(piece, n, &b));
    assert_int_equal(b.len, n);
    assert_memory_equal(buf_str(&b), piece, n);
    buf_release(&b);
}

// What reaches the terminal, without its styles.
static void shown(const char *text, bool color, size_t step, struct buf *out)
{
    struct termout t;
    struct buf all = {0};
    termout_init(&t, color, color);
    for (size_t i = 0, n = strlen(text); i < n; i += step) {
        size_t before = all.len;
        assert_true(termout_push(&t, text + i, n - i < step ? n - i : step, &all));
        if (all.len > before)
            passes_the_door(all.data + before, all.len - before);
    }
    assert_true(termout_end(&t, &all));
    buf_clear(out);
    for (size_t i = 0; i < all.len; i++) {
        if (all.data[i] == '\x1b')
            i += strcspn(all.data + i, "m");
        else
            buf_putc(out, all.data[i]);
    }
    termout_release(&t);
    buf_release(&all);
}

// The terminal breaks the lines: then a selection, and a window of another width, have the text.
static void the_characters_shown_are_those_written(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "The quick brown fox jumps over the lazy dog, and then sleeps in the sun.\n\nShort.\n",
        "See:\n```c\nint main(void) { return printf(\"%d\", 42); }\n```\nDone.",
        "# Title\n## Two\n####### seven\n#not\n- a\n  * b\n+ c\n12. d\n1) e\n12345. f\n-x\n3.14\n",
        "**bold** * ** *** **** a*b **x\ny** `a``b` ```x``` **`c`** *i* 1.\n-",
        "| a | b |\n|:--|---:|\n| 1 | `x\\|y` \\| **z** |\n|x\n||\n",
        "> said\n>x\n1. a\n\n   ```py\n   # no\n   - no\n   ```\n",
        "~~~\n```\n~~~~ \n````\n```\n````\n",
        "|",
        ">",
        "~~",
        "古池や蛙飛び込む水の音 👨‍👩‍👧 🇯🇵 é e\u0301 \t tab",
        "",
        "*",
        "**",
        "#",
        "1",
        "12.",
        "`",
        "``",
        "```",
    };
    struct buf got = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t step = 1; step < 9; step++)
            for (int color = 0; color < 2; color++) {
                shown(texts[i], color, step, &got);
                assert_string_equal(buf_str(&got), texts[i]);
            }
    buf_release(&got);
}

static const char *styled(const char *text)
{
    static struct buf out;
    struct termout t;
    buf_clear(&out);
    termout_init(&t, true, true);
    termout_push(&t, text, strlen(text), &out);
    termout_end(&t, &out);
    termout_release(&t);
    return buf_str(&out);
}

static void markdown_is_styled_and_keeps_its_characters(void **state)
{
    (void)state;
    assert_string_equal(styled("a **b c** d"), "a \x1b[0;1m**b c**\x1b[0m d");
    assert_string_equal(styled("2 ** 3 ** 4"), "2 ** 3 ** 4");
    assert_string_equal(styled("use `x y` now"), "use \x1b[0;36m`x y`\x1b[0m now");
    assert_string_equal(styled("# Hi\nthere"), "\x1b[0;1m# Hi\n\x1b[0mthere");
    assert_string_equal(styled("#hash"), "#hash");
    assert_string_equal(styled("- a\n  * b\n10. c"),
                        "\x1b[0;36m-\x1b[0m a\n  \x1b[0;36m*\x1b[0m b\n\x1b[0;36m10.\x1b[0m c");
    assert_string_equal(styled("-1 3.5 5"), "-1 3.5 5");
    assert_string_equal(styled("**all**"), "\x1b[0;1m**all**\x1b[0m");
    assert_string_equal(styled("```c\nx\n```\ny"), "\x1b[0;36m```c\nx\n```\n\x1b[0my");
    assert_string_equal(styled("`a` b"), "\x1b[0;36m`a`\x1b[0m b");
    assert_string_equal(styled("> said"), "\x1b[0;36m>\x1b[0m said");
    assert_string_equal(styled("`open\nnext"), "\x1b[0;36m`open\n\x1b[0mnext");
}

// A table's columns could only line up by spaces that the model did not write, and only once its
// last row is there: its head is bold, and what parts its cells is dim.
static void tables_are_styled_and_keep_their_characters(void **state)
{
    (void)state;
    assert_string_equal(styled("| a | b |\n|:-:|---|\n| 1 | 2 |\nz"),
                        "\x1b[0;2m|\x1b[0;1m a \x1b[0;2m|\x1b[0;1m b \x1b[0;2m|\x1b[0;1m\n"
                        "\x1b[0;2m|:-:|---|\x1b[0m\n"
                        "\x1b[0;2m|\x1b[0m 1 \x1b[0;2m|\x1b[0m 2 \x1b[0;2m|\x1b[0m\nz");
    assert_string_equal(styled("| `x|y` \\| z"),
                        "\x1b[0;2m|\x1b[0;1m \x1b[0;1;36m`x|y`\x1b[0;1m \\| z\x1b[0m");
    assert_string_equal(styled("a | b"), "a | b");
}

// Inside of a block of code nothing is a mark, and it ends where Markdown says that it does.
static void blocks_of_code_end_where_they_end(void **state)
{
    (void)state;
    assert_string_equal(styled("- x\n  ```c\n  # a\n  - b\n  ```\n- y"),
                        "\x1b[0;36m-\x1b[0m x\n  \x1b[0;36m```c\n  # a\n  - b\n  ```\n-\x1b[0m y");
    assert_string_equal(styled("````\n```\n- x\n`````\n- y"),
                        "\x1b[0;36m````\n```\n- x\n`````\n-\x1b[0m y");
    assert_string_equal(styled("```\n```c\n- x\n```\ny"),
                        "\x1b[0;36m```\n```c\n- x\n```\n\x1b[0my");
    assert_string_equal(styled("```x``` y\nz"), "\x1b[0;36m```x`\x1b[0m`` y\nz");
    assert_string_equal(styled("~~~\n- x\n~~~\ny"), "~~~\x1b[0;36m\n- x\n~~~\n\x1b[0my");
}

// What reaches the terminal from hostile text: no byte below space but newline and tab, no C1.
static void hostile_output_cannot_drive_the_terminal(void **state)
{
    (void)state;
    static const char *const attacks[] = {
        "\x1b]52;c;aGVsbG8=\x07",
        "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\",
        "\x1b[2J\x1b[1;1H",
        "\x1bP1$r0m\x1b\\",
        "\xc2\x9b"
        "2J\xc2\x9d"
        "52;c;x\xc2\x9c",
        "\x9b"
        "2J",
        "\x1b[",
        "\x1b]0;title",
        "a\rb\x08\x7f\x0b\x0c\x0e\x00",
        "\xe2\x80\xae"
        "evil",
        "\xe2\x81\xa6\xe2\x81\xa9",
        "\xf3\xa0\x81\xa1",
    };
    for (size_t a = 0; a < sizeof attacks / sizeof *attacks; a++) {
        size_t n = strlen(attacks[a]);
        for (size_t step = 1; step <= n; step++) {
            struct termout t;
            struct buf out = {0};
            termout_init(&t, false, false);
            for (size_t i = 0; i < n; i += step)
                termout_push(&t, attacks[a] + i, n - i < step ? n - i : step, &out);
            termout_end(&t, &out);
            for (size_t i = 0; i < out.len;) {
                uint32_t cp;
                size_t used = utf8_decode(out.data + i, out.len - i, &cp);
                assert_true(used > 0);
                assert_true(cp >= 0x20 && cp != 0x7F && !(cp >= 0x80 && cp < 0xA0));
                assert_false((cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069));
                assert_false(cp >= 0xE0000 && cp <= 0xE007F);
                i += used;
            }
            assert_true(out.len > 0);
            termout_release(&t);
            buf_release(&out);
        }
    }
    struct buf b = {0};
    termsafe_text("a\x1b[31m\n\t\x9b", 9, false, &b);
    assert_string_equal(buf_str(&b), "a\xe2\x90\x9b[31m\n\t\xef\xbf\xbd");
    buf_clear(&b);
    termsafe_text("a\n\t", 3, true, &b);
    assert_string_equal(buf_str(&b), "a\xe2\x90\x8a\xe2\x90\x89");
    buf_release(&b);
}

static void filter(bool (*f)(const char *s, size_t n, struct buf *out), const char *text,
                   const char *want)
{
    struct buf b = {0};
    assert_true(f(text, strlen(text), &b));
    assert_string_equal(buf_str(&b), want);
    buf_release(&b);
}

static void json_stays_the_same_json(void **state)
{
    (void)state;
    filter(termsafe_json, "{\"a\":\"\x7f\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\xa1\xe2\x82\xac\"}\n",
           "{\"a\":\"\\u007f\\u009b\\u202e\\udb40\\udc61\xe2\x82\xac\"}\n");
    filter(termsafe_json, "\x1b\r\xff", "\\u001b\\u000d\xef\xbf\xbd");
}

// In painted text our own sequences pass; everything else is filtered as ever.
static void only_our_own_sequences_are_paint(void **state)
{
    (void)state;
    filter(termsafe_painted, "\x1b[0;1;36mx\x1b[12D\r\x1b[K\x1b[m\n",
           "\x1b[0;1;36mx\x1b[12D\r\x1b[K\x1b[m\n");
    filter(termsafe_painted, "\x1b[2J\x1b[?25l\x1b[",
           "\xe2\x90\x9b[2J\xe2\x90\x9b[?25l\xe2\x90\x9b[");
    filter(termsafe_painted, "\x1b]0;t\x07\x1b", "\xe2\x90\x9b]0;t\xe2\x90\x87\xe2\x90\x9b");
    filter(termsafe_painted, "\x1b[11111111111111111m", "\xe2\x90\x9b[11111111111111111m");
    filter(termsafe_painted,
           "\xc2\x9b"
           "0m\xe2\x80\xae",
           "<U+009B>0m<U+202E>");
}

static void plain_is_what_no_filter_changes(void **state)
{
    (void)state;
    static const char *const plain[] = {"", "a b.txt", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80",
                                        "$(x)`\"'*~"};
    static const char *const not_plain[] = {"\x1b",     "a\nb", "a\tb",        "\x7f",
                                            "\xc2\x9b", "\x9b", "\xe2\x80\xae"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_true(termsafe_all_plain(plain[i], strlen(plain[i])));
    for (size_t i = 0; i < sizeof not_plain / sizeof *not_plain; i++)
        assert_false(termsafe_all_plain(not_plain[i], strlen(not_plain[i])));
}

// What Unicode has no shape for becomes visible, but for what scripts and emoji need.
static void what_shows_nothing_is_shown(void **state)
{
    (void)state;
    static const struct {
        uint32_t first, last;
    } shown[] = {{0xAD, 0xAD},       {0x61C, 0x61C},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
                 {0x180E, 0x180E},   {0x200B, 0x200B},   {0x200E, 0x200F},   {0x2028, 0x202E},
                 {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFE00, 0xFE0D},   {0xFEFF, 0xFEFF},
                 {0xFFA0, 0xFFA0},   {0xFFF9, 0xFFFB},   {0x13430, 0x13438}, {0x1BCA0, 0x1BCA3},
                 {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F}, {0xE0100, 0xE01EF}};
    static const uint32_t stay[] = {0x20,   0xA0,   0x34F,  0x301,  0x180B, 0x180D,  0x180F,
                                    0x200C, 0x200D, 0xFE0E, 0xFE0F, 0x600,  0x1F600, 0x3000,
                                    0xAC,   0xAE,   0x115E, 0x1161, 0xFE10, 0xDFFFF, 0xE1000};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        for (uint32_t cp = shown[i].first; cp <= shown[i].last; cp++) {
            char s[5] = "", want[16];
            struct buf b = {0};
            utf8_encode(cp, s);
            assert_false(termsafe_plain(cp));
            termsafe_text(s, strlen(s), false, &b);
            snprintf(want, sizeof want, "<U+%04X>", (unsigned)cp);
            assert_string_equal(buf_str(&b), want);
            buf_release(&b);
        }
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_true(termsafe_plain(stay[i]));
    // A family, a heart, and a flag are whole.
    static const char emoji[] =
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x9d\xa4\xef\xb8\x8f"
        "\xf0\x9f\x87\xaf\xf0\x9f\x87\xb5";
    assert_true(termsafe_all_plain(emoji, strlen(emoji)));
}

static void what_fits_is_measured_in_columns(void **state)
{
    (void)state;
    const char *text = "a\xe6\x97\xa5"
                       "e\xcc\x81z"; // 1 + 2 + 1 + 0 + 1
    static const size_t want[] = {0, 1, 1, 4, 7, 8, 8};
    for (size_t columns = 0; columns < sizeof want / sizeof *want; columns++)
        assert_int_equal(termsafe_fit(text, strlen(text), columns), want[columns]);
}

static void cut_sequences_are_completed_and_broken_ones_shown(void **state)
{
    (void)state;
    struct termsafe t = {0};
    struct buf b = {0};
    const char *text = "\xe2\x82\xac \xe2\x82x \xf0\x9f\x98\x80\xc3";
    for (size_t i = 0; i < strlen(text); i++)
        assert_true(termsafe_push(&t, text + i, 1, &b));
    assert_true(termsafe_flush(&t, &b));
    struct buf whole = {0};
    termsafe_text(text, strlen(text), false, &whole);
    assert_string_equal(buf_str(&b), buf_str(&whole));
    assert_string_equal(buf_str(&b),
                        "\xe2\x82\xac \xef\xbf\xbd\xef\xbf\xbdx \xf0\x9f\x98\x80\xef\xbf\xbd");
    buf_release(&b);
    buf_release(&whole);
}

static void an_excerpt_is_cut_between_characters_and_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        size_t columns;
    } cases[] = {{"", "", 5},
                 {"abcde", "abcde", 5},
                 {"abcdef", "abcd\xe2\x80\xa6", 5},
                 {"abcd\xc3\xa9", "abcd\xc3\xa9", 5},
                 {"abc\xc3\xa9\xc3\xa9\xc3\xa9", "abc\xc3\xa9\xe2\x80\xa6", 5},
                 {"ab\xe6\x97\xa5\xe6\x9c\xac", "ab\xe6\x97\xa5\xe2\x80\xa6", 5},
                 {"a\nb\x1b",
                  "a\xe2\x90\x8a"
                  "b\xe2\x90\x9b",
                  5},
                 {"ab", "\xe2\x80\xa6", 1}};
    struct buf b = {0}, marked = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&b);
        assert_true(termsafe_excerpt(cases[i].text, strlen(cases[i].text), cases[i].columns, &b));
        assert_string_equal(buf_str(&b), cases[i].want);
    }
    buf_puts(&marked, "a");
    for (int i = 0; i < 1000; i++) // marks take no column, and no more of them than is looked at
        buf_puts(&marked, "\xcc\x81");
    buf_clear(&b);
    assert_true(termsafe_excerpt(marked.data, marked.len, 5, &b));
    assert_true(b.len < 100 && utf8_valid(b.data, b.len));
    assert_memory_equal(b.data + b.len - 5, "\xcc\x81\xe2\x80\xa6", 5);
    buf_release(&b);
    buf_release(&marked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_characters_shown_are_those_written),
        cmocka_unit_test(markdown_is_styled_and_keeps_its_characters),
        cmocka_unit_test(tables_are_styled_and_keep_their_characters),
        cmocka_unit_test(blocks_of_code_end_where_they_end),
        cmocka_unit_test(hostile_output_cannot_drive_the_terminal),
        cmocka_unit_test(json_stays_the_same_json),
        cmocka_unit_test(only_our_own_sequences_are_paint),
        cmocka_unit_test(plain_is_what_no_filter_changes),
        cmocka_unit_test(what_shows_nothing_is_shown),
        cmocka_unit_test(what_fits_is_measured_in_columns),
        cmocka_unit_test(an_excerpt_is_cut_between_characters_and_says_so),
        cmocka_unit_test(cut_sequences_are_completed_and_broken_ones_shown),
    };
    return RUN_TESTS("termout", tests);
}
