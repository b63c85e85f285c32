// Many answers on one CPU engine: each is what it is alone, whoever runs beside it; none waits for
// what it does not need, and the memory is never too small.
#include "lines_of_work.h"

static void an_answer_in_company_is_what_it_is_alone(void **state)
{
    (void)state;
    for (size_t n = 0; n < 6; n++) {
        static const size_t parallel[] = {1, 2, 3, 5, 8, 0};
        check(&(struct setting){.n_ctx = 8 * BLOCK, .n_parallel = parallel[n]});
        assert_true(n_tokens > 100);
        check(&(struct setting){
            .n_ctx = 8 * BLOCK, .n_parallel = parallel[n], .n_common = n % 2 ? 300 : 60});
    }
}

static void more_rows_than_a_batch_has_are_several_passes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 6; n += 2)
        check(&(struct setting){.n_ctx = 16 * BLOCK, .n_common = 9, .n_batch = n});
}

static void a_row_without_a_number_fails_alone(void **state)
{
    (void)state;
    enum { N = 6, NAN_TOKEN = 77 };
    struct fixture f;
    struct schedule s;
    struct line l[N], by_itself;
    setup_with(&f, 8 * BLOCK, N_BATCH, NAN_TOKEN);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], 3, i + 1);
        l[i].p.n_predict = 9;
        for (size_t k = 0; k < l[i].prompt.len; k++)
            if (l[i].prompt.data[k] == NAN_TOKEN)
                l[i].prompt.data[k]++;
        if (i % 2)
            l[i].prompt.data[l[i].prompt.len / 2] = NAN_TOKEN;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    run(&s);
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &by_itself, 3, i + 1);
        by_itself.p.n_predict = 9;
        memcpy(by_itself.prompt.data, l[i].prompt.data, l[i].prompt.len * sizeof(int32_t));
        alone(&f, &by_itself);
        l[i].err = l[i].task.error;
        l[i].ok = l[i].err.code == ERR_NONE;
        assert_int_equal(l[i].ok, i % 2 == 0);
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void the_youngest_waits_where_memory_is_short(void **state)
{
    (void)state;
    // Each takes all of the memory before it ends; two have room when they begin.
    check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true});
    assert_true(n_tokens > 4000);
    check(&(struct setting){.n_ctx = 4 * BLOCK, .n_common = 280, .unlimited = true});
}

static void a_full_context_shifts_as_it_does_alone(void **state)
{
    (void)state;
    check(&(struct setting){.n_ctx = BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT});
    assert_true(n_tokens > 2000);
    check(&(struct setting){.n_ctx = 2 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT});
}

static void a_common_beginning_is_evaluated_once(void **state)
{
    (void)state;
    enum { N_COMMON = 300, N = 6 };
    struct fixture f;
    struct schedule s;
    struct line l[N];
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 4, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], i, N_COMMON);
        l[i].p.n_predict = 3;
    }
    for (size_t i = 0; i < N - 1; i++)
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    run(&s);
    // What was evaluated outlives those who had it.
    assert_true(schedule_add(&s, &l[N - 1].task, &l[N - 1].err));
    run(&s);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].task.stats.n_prompt, l[i].prompt.len);
        // (For the last few nobody waits.)
        const size_t reused = l[i].task.stats.n_reused;
        assert_in_range(reused,
                        i == 0       ? 0
                        : i == N - 1 ? N_COMMON
                                     : N_COMMON - 32,
                        i ? N_COMMON : 0);
        assert_int_equal(l[i].task.stats.n_evaluated, l[i].prompt.len - reused);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

// Lines with questions about two documents, as the letters of `order` say, two at a time; *n_read:
// tokens that were evaluated, but for the questions'.
static void ask_about_documents(const char *order, int64_t n_predict, size_t *n_read)
{
    enum { DOCUMENT = 300, QUESTION = 5, MOST = 8 };
    const size_t n = strlen(order);
    struct fixture f;
    struct schedule s;
    struct line l[MOST];
    struct error err = {0};
    setup_with(&f, 16 * BLOCK, 4 * BLOCK, 0); // both documents are read in one pass
    assert_true(schedule_init(&s, f.e, 2, NULL, NULL, &f.err));
    *n_read = 0;
    for (size_t i = 0; i < n || !schedule_idle(&s);) {
        for (; i < n && schedule_wants(&s); i++) {
            make_line(&f, &l[i], 0, 0);
            ids_clear(&l[i].prompt);
            for (size_t k = 0; k < DOCUMENT + QUESTION; k++)
                ids_push(&l[i].prompt,
                         (int32_t)(k < DOCUMENT ? 3 + (k * k / 7 + 101 * (size_t)order[i]) % 256
                                                : 3 + (i + k) % 256));
            l[i].p.n_predict = n_predict;
            l[i].p.ignore_eos = true;
            assert_true(schedule_add(&s, &l[i].task, &l[i].err));
        }
        assert_true(schedule_step(&s, &err));
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(l[i].task.error.code, ERR_NONE);
        const size_t n_evaluated = l[i].task.stats.n_evaluated;
        *n_read += n_evaluated > QUESTION ? n_evaluated - QUESTION : 0;
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void who_ends_in_one_pass_leaves_what_others_begin_with(void **state)
{
    (void)state;
    static const char *const orders[] = {"ABBB", "ABAA", "ABABAB", "ABBA", "AABBAB"};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int64_t n = 1; n < 4; n++) {
            size_t n_read;
            ask_about_documents(orders[i], n, &n_read);
            if (n_read > 600)
                fail_msg("%s, answers of %d tokens: %zu tokens of documents are read", orders[i],
                         (int)n, n_read);
        }
}

static void what_is_kept_changes_no_answer_and_gives_way(void **state)
{
    (void)state;
    for (size_t n_kept = 1; n_kept < 8; n_kept += quick() ? 6 : 3) {
        check(&(struct setting){
            .n_ctx = 8 * BLOCK, .n_parallel = 3, .n_common = 300, .n_kept = n_kept});
        check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true, .n_kept = n_kept});
    }
    check(&(struct setting){
        .n_ctx = 2 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT, .n_kept = 4});
}

static void a_conversation_goes_on_where_any_of_the_last_ones_ended(void **state)
{
    (void)state;
    enum { N = 3, KEPT = 2 };
    struct fixture f;
    struct schedule s;
    struct line l[N], next[N];
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 1, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, KEPT, &f.err));
    for (size_t i = 0; i < N; i++) { // three that have nothing in common
        make_line(&f, &l[i], 3 + 4 * i, 0);
        for (size_t k = 0; k < l[i].prompt.len; k++)
            l[i].prompt.data[k] += (int32_t)i;
        l[i].p = (struct generate_params){
            .sampler = &l[i].sampler, .tok = f.m->tokenizer, .n_predict = 9, .ignore_eos = true};
        l[i].fail_after = 0;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
        run(&s);
        assert_int_equal(l[i].task.stats.n_reused, 0);
    }
    for (size_t i = N; i-- > 0;) { // and what follows in each
        make_line(&f, &next[i], 0, 0);
        next[i].prompt.len = 0;
        next[i].p.n_predict = 2;
        ids_append(&next[i].prompt, l[i].prompt.data, l[i].prompt.len);
        ids_append(&next[i].prompt, l[i].g.ids.data, l[i].g.ids.len);
        const size_t n_before = next[i].prompt.len;
        ids_append(&next[i].prompt, (const int32_t[]){9, 8, 7, 6}, 4);
        assert_true(schedule_add(&s, &next[i].task, &next[i].err));
        run(&s);
        // (What was sampled last is not evaluated yet.)
        assert_int_equal(next[i].task.stats.n_reused, i >= N - KEPT ? n_before - 1 : 0);
    }
    for (size_t i = 0; i < N; i++) {
        line_release(&l[i]);
        line_release(&next[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

// Windows of four for engines for two.
static void of_windows_no_more_are_kept_than_there_is_room_for(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    window = 20;
    setup(&f, 40 * BLOCK);
    assert_true(schedule_init(&s, f.e, 3, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 64, &f.err));
    assert_int_equal(s.most_kept, 1);
    schedule_release(&s);
    assert_true(schedule_init(&s, f.e, 64, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 64, &f.err));
    assert_int_equal(s.n_parallel, 4);
    assert_int_equal(s.most_kept, 0);
    schedule_release(&s);
    teardown(&f);
    for (size_t n = 1; n <= 4; n++) {
        check(&(struct setting){.n_ctx = 40 * BLOCK, .n_parallel = n, .n_kept = 64});
        check(&(struct setting){
            .n_ctx = 40 * BLOCK, .n_parallel = n, .n_common = 300, .n_kept = n % 2});
    }
    check(&(struct setting){
        .n_ctx = 15 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT, .n_kept = 64});
    window = 0;
}

static void what_is_kept_gives_way_before_anyone_who_runs(void **state)
{
    (void)state;
    enum { N = 4, RUNNING = 2 };
    struct fixture f;
    struct schedule s;
    struct line l[N];
    struct error err = {0};
    setup(&f, 6 * BLOCK);
    assert_true(schedule_init(&s, f.e, RUNNING, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 8, &f.err));
    for (size_t i = 0; i < N;
         i++) { // two that end and are kept, then two that need all of the memory
        make_line(&f, &l[i], 1 + 4 * i, 0);
        for (size_t k = 0; k < l[i].prompt.len; k++)
            l[i].prompt.data[k] += (int32_t)i;
        l[i].p = (struct generate_params){.sampler = &l[i].sampler,
                                          .tok = f.m->tokenizer,
                                          .n_predict = i < N - RUNNING ? 5 : 650,
                                          .ignore_eos = true};
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
        if (i < N - RUNNING)
            run(&s);
    }
    assert_int_equal(s.n_kept, N - RUNNING);
    for (size_t n = 0; !l[N - 1].task.done && !l[N - 2].task.done; n++) {
        assert_true(schedule_step(&s, &err));
        assert_int_equal(s.n_waiting, 0);
        assert_true(n < 10000);
    }
    run(&s);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].task.error.code, ERR_NONE);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void what_a_base_has_evaluated_is_not_evaluated_again(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l;
    setup(&f, 4 * BLOCK);
    make_line(&f, &l, 3, 270);
    struct seq *base = seq_open(f.e, 0, &f.err);
    const struct work w = {.seq = base, .ids = l.prompt.data, .n = 280};
    assert_true(engine_submit(f.e, &w, 1, NULL, NULL, &f.err));
    assert_true(schedule_init(&s, f.e, 0, base, NULL, &f.err));
    assert_int_equal(seq_len(base), 0);
    assert_true(schedule_add(&s, &l.task, &l.err));
    run(&s);
    assert_int_equal(l.task.stats.n_reused, 280);
    line_release(&l);
    schedule_release(&s);
    seq_free(base);
    teardown(&f);
}

static void seats_are_taken_in_order_and_at_once(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int64_t n_predict[N] = {30, 2, 2, 2, 2, 2};
    struct fixture f;
    struct schedule s;
    struct line l[N];
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 2, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], 0, i + 1);
        l[i].p.n_predict = n_predict[i];
        l[i].p.ignore_eos = true;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    // The first is decoded all the time, the others beside it, one after the other.
    size_t n_steps = 0, last = 1;
    for (; !schedule_idle(&s); n_steps++) {
        assert_true(schedule_step(&s, &err));
        assert_in_range(s.n_running, s.n_waiting ? 1 : 0, 2);
        for (size_t i = last + 1; i < N; i++)
            assert_false(l[i].task.done && !l[i - 1].task.done);
        while (last < N - 1 && l[last].task.done)
            last++;
    }
    assert_in_range(n_steps, 30, 32);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].g.ids.len, (size_t)n_predict[i]);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void rows_that_run_get_a_token_in_each_pass_while_a_prompt_is_read(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l[2];
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    for (size_t i = 0; i < 2; i++) {
        make_line(&f, &l[i], i, i ? 600 : 0);
        l[i].p.n_predict = 100;
        l[i].p.ignore_eos = true;
    }
    assert_true(schedule_add(&s, &l[0].task, &l[0].err));
    assert_true(schedule_step(&s, &err));
    assert_true(schedule_add(&s, &l[1].task, &l[1].err));
    size_t n_passes = 0;
    for (; l[1].g.ids.len == 0; n_passes++) {
        const size_t before = l[0].g.ids.len;
        assert_true(schedule_step(&s, &err));
        assert_int_equal(l[0].g.ids.len, before + 1);
    }
    // A quarter of a batch is read beside it.
    assert_int_equal(n_passes, (l[1].prompt.len - 1) / (N_BATCH / 4) + 1);
    for (size_t i = 0; i < 2; i++) {
        schedule_remove(&s, &l[i].task);
        line_release(&l[i]);
    }
    assert_true(schedule_idle(&s));
    schedule_release(&s);
    teardown(&f);
}

static void prompts_get_as_much_of_a_pass_as_others_wait(void **state)
{
    (void)state;
    assert_int_equal(schedule_prompt_room(16, 128, 16, 0.010, 0.004), 32); // there is time
    assert_int_equal(schedule_prompt_room(100, 128, 100, 0.010, 0), 128);  // no more than most
    assert_int_equal(schedule_prompt_room(64, 128, 40, 0.010, 0.004), 64); // not all was read
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.040, 0.010), 64); // twice would be late
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.090, 0.010), 32); // 40 of 80 ms
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.100, 0), 32);     // nothing is known
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.900, 0.100), 8);  // a slow device: twice
    assert_int_equal(schedule_prompt_room(4, 128, 4, 9.0, 0.001), 1);      // never none
    size_t room = 16; // a device that takes 2 ms and 1 ms a token settles below 50 ms
    for (int i = 0; i < 20; i++) {
        const double seconds = 0.002 + 0.001 * (double)room;
        room = schedule_prompt_room(room, 128, room, seconds, 0.002);
    }
    assert_in_range(room, 24, 48);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l;
    setup(&f, BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    make_line(&f, &l, 8, 0);
    assert_false(schedule_add(&s, &l.task, &l.err));
    assert_int_equal(l.err.code, ERR_USAGE);
    line_release(&l);
    make_line(&f, &l, 0, BLOCK);
    assert_false(schedule_add(&s, &l.task, &l.err));
    assert_int_equal(l.err.code, ERR_CONTEXT);
    assert_non_null(strstr(l.err.text, "257 tokens"));
    assert_true(schedule_idle(&s));
    line_release(&l);
    // It fills the context: no room for an answer.
    make_line(&f, &l, 0, BLOCK - 1);
    assert_true(schedule_add(&s, &l.task, &l.err));
    run(&s);
    assert_true(l.task.done);
    assert_int_equal(l.task.error.code, ERR_CONTEXT);
    line_release(&l);
    schedule_release(&s);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_company_is_what_it_is_alone),
        cmocka_unit_test(more_rows_than_a_batch_has_are_several_passes),
        cmocka_unit_test(a_row_without_a_number_fails_alone),
        cmocka_unit_test(the_youngest_waits_where_memory_is_short),
        cmocka_unit_test(a_full_context_shifts_as_it_does_alone),
        cmocka_unit_test(a_common_beginning_is_evaluated_once),
        cmocka_unit_test(who_ends_in_one_pass_leaves_what_others_begin_with),
        cmocka_unit_test(what_is_kept_changes_no_answer_and_gives_way),
        cmocka_unit_test(a_conversation_goes_on_where_any_of_the_last_ones_ended),
        cmocka_unit_test(of_windows_no_more_are_kept_than_there_is_room_for),
        cmocka_unit_test(what_is_kept_gives_way_before_anyone_who_runs),
        cmocka_unit_test(what_a_base_has_evaluated_is_not_evaluated_again),
        cmocka_unit_test(seats_are_taken_in_order_and_at_once),
        cmocka_unit_test(rows_that_run_get_a_token_in_each_pass_while_a_prompt_is_read),
        cmocka_unit_test(prompts_get_as_much_of_a_pass_as_others_wait),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return RUN_TESTS("schedule", tests);
}
