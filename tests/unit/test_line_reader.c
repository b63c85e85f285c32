#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "term/line_reader.h"

enum { MEGABYTE = 1 << 20 };

static void who_does_not_wait_for_a_long_line_waits_for_a_megabyte_of_it_at_most(void **state)
{
    (void)state;
    enum { N = 5 * MEGABYTE };
    struct error err = {0};
    char *long_line = malloc(N);
    FILE *f = tmpfile();
    assert_true(long_line && f);
    memset(long_line, 'a', N);
    assert_int_equal(fwrite(long_line, 1, N, f), N);
    assert_true(fputs("\nb\n", f) >= 0 && fflush(f) == 0);
    rewind(f);
    struct line_reader r = {.fd = fileno(f)};
    const char *text;
    size_t n, n_calls = 0;
    enum line_next next;
    for (size_t before = 0;
         (next = line_reader_next(&r, false, &text, &n, &err)) == LINE_NOT_YET;) {
        assert_in_range(r.in.len, before + 1, before + MEGABYTE + MEGABYTE / 8);
        before = r.in.len;
        n_calls++;
    }
    assert_int_equal(next, LINE_THERE);
    assert_true(n == N && memcmp(text, long_line, N) == 0);
    assert_in_range(n_calls, 4, 5);
    assert_int_equal(line_reader_next(&r, true, &text, &n, &err), LINE_THERE);
    assert_true(n == 1 && *text == 'b');
    assert_int_equal(line_reader_next(&r, true, &text, &n, &err), LINE_END);
    line_reader_release(&r);
    free(long_line);
    fclose(f);
}

// In as many pieces as there are bytes, and with a mark of their order or without.
static void lines_are_the_same_in_whatever_pieces_they_come(void **state)
{
    (void)state;
    static const char *const marks[] = {"", "\xef\xbb\xbf"};
    static const char *const lines[] = {"", "a", "bc", "", "d\xef\xbb\xbf"};
    for (size_t m = 0; m < 2; m++) {
        struct error err = {0};
        struct buf all = {0};
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        struct line_reader r = {.fd = fds[0]};
        const char *text;
        size_t n, n_lines = 0;
        buf_puts(&all, marks[m]);
        for (size_t i = 0; i < 5; i++)
            buf_printf(&all, "%s\n", lines[i]);
        for (size_t i = 0; i < all.len; i++) {
            assert_int_equal(write(fds[1], all.data + i, 1), 1);
            if (line_reader_next(&r, false, &text, &n, &err) == LINE_NOT_YET)
                continue;
            assert_true(n == strlen(lines[n_lines]) && memcmp(text, lines[n_lines], n) == 0);
            assert_int_equal(all.data[i], '\n');
            n_lines++;
        }
        assert_int_equal(n_lines, 5);
        close(fds[1]);
        assert_int_equal(line_reader_next(&r, false, &text, &n, &err), LINE_END);
        line_reader_release(&r);
        buf_release(&all);
        close(fds[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_wait_for_a_long_line_waits_for_a_megabyte_of_it_at_most),
        cmocka_unit_test(lines_are_the_same_in_whatever_pieces_they_come),
    };
    return RUN_TESTS("line_reader", tests);
}
