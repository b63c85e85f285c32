// What requests and answers take is counted as long as it is there.
#include "test.h"

#include "serve/desk.h"

static struct job *asked(struct desk *d, uint64_t n)
{
    struct ask ask = {0};
    assert_true(desk_take_bytes(d, n));
    struct job *j = job_create(d, &ask, n, NULL, -1);
    assert_non_null(j);
    return j;
}

static struct buf body(size_t n)
{
    struct buf b = {0};
    assert_true(buf_reserve(&b, n));
    b.len = n; // (nobody reads it: it takes no memory)
    return b;
}

static void what_is_not_read_yet_counts(void **state)
{
    (void)state;
    struct desk d;
    struct buf large = body(DESK_MOST_BYTES - (1 << 20)), other = body(2 << 20);
    desk_init(&d, 4);
    struct job *first = asked(&d, 100), *second = asked(&d, 0);
    job_answer(first, 200, &large);
    assert_int_equal(first->status, 200);
    job_answer(second, 200, &other);
    assert_int_equal(second->status, 503);
    assert_true(second->out.len < 1000);
    job_leave(first);
    job_leave(second);
    assert_int_equal(d.n_bytes, 0);
    desk_release(&d);
}

static void what_is_copied_from_a_request_counts_until_its_client_is_gone(void **state)
{
    (void)state;
    struct desk d;
    desk_init(&d, 4);
    struct job *j = asked(&d, 1000);
    job_forget_ask(j, 300);
    assert_int_equal(d.n_bytes, 300);
    assert_true(job_keep_bytes(j, 50));
    assert_false(job_keep_bytes(j, DESK_MOST_BYTES));
    assert_int_equal(d.n_bytes, 350);
    job_leave(j);
    assert_int_equal(d.n_bytes, 0);
    desk_release(&d);
}

// All that is there to read of j's stream, behind which `end` comes.
static struct buf rest(struct job *j, ssize_t end)
{
    struct buf all = {0};
    char piece[5000];
    size_t left = j->out.len - j->taken, n_left;
    ssize_t n;
    while ((n = job_read(j, piece, sizeof piece, &n_left)) > 0) {
        assert_true(buf_append(&all, piece, (size_t)n));
        assert_int_equal(n_left, left -= (size_t)n); // it has ended
    }
    assert_int_equal(n, end);
    assert_int_equal(n_left, 0);
    return all;
}

static void a_stream_that_is_cut_off_does_not_end_as_if_it_were_whole(void **state)
{
    (void)state;
    struct desk d;
    char text[1000];
    int connection;
    memset(text, 'x', sizeof text);
    desk_init(&d, 4);
    for (int slow = 0; slow < 2; slow++) {
        struct job *j = asked(&d, 0);
        j->connection = (struct MHD_Connection *)&connection;
        j->n_owners = 2;
        job_begin_stream(j);
        size_t n = 0;
        while ((slow || n < 10) && job_write(j, text, sizeof text))
            n++;
        size_t n_read = slow ? 0 : 1, n_left;
        if (!slow) {
            assert_int_equal(job_read(j, text, n_read, &n_left), n_read);
            assert_int_equal(n_left, 0); // more may come
        }
        job_free(j);
        struct buf all = rest(j, slow ? -1 : -2);
        assert_true(n_read + all.len >= n * sizeof text);
        assert_true(!slow || n * sizeof text > DESK_MOST_UNREAD);
        assert_true(!slow || strstr(buf_str(&all), "data: {\"error\":{"));
        buf_release(&all);
        job_leave(j);
    }
    desk_release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_read_yet_counts),
        cmocka_unit_test(what_is_copied_from_a_request_counts_until_its_client_is_gone),
        cmocka_unit_test(a_stream_that_is_cut_off_does_not_end_as_if_it_were_whole),
    };
    return RUN_TESTS("desk", tests);
}
