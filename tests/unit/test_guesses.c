// Guesses of several answers beside each other, on a CPU engine: no answer depends on them, whoever
// leaves, fails or waits; and they are made where that pays.
#include "lines_of_work.h"

// Each in company brings its own, or one alone; a context that shifts, a grammar, stop texts,
// errors.
static void an_answer_is_the_same_with_guesses(void **state)
{
    (void)state;
    static const size_t parallel[] = {1, 2, 3, 0};
    enum { SHORT, LONG, SHIFTED };
    for (size_t n = 0; n < 4; n += quick() ? 3 : 1)
        for (int how = SHORT; how <= SHIFTED; how++) {
            check(&(struct setting){.n_ctx = (how == SHIFTED ? 2 : 8) * BLOCK,
                                    .n_parallel = parallel[n],
                                    .n_common = n % 2 ? 60 : 0,
                                    .unlimited = how != SHORT,
                                    .overflow = how != SHORT ? OVERFLOW_SHIFT : OVERFLOW_ERROR,
                                    .n_kept = n % 2,
                                    .guesses = true});
            assert_true(guessed.n_drafted > guessed.n_accepted);
            assert_true(guessed.n_steps + guessed.n_accepted >= n_tokens);
            // (What a random model says repeats itself where it is long.)
            assert_true(how == SHORT || (guessed.n_accepted > 0 && guessed.n_steps < n_tokens));
            assert_true(how != LONG || parallel[n] == 1 || (n_beside > 0 && n_beside_prompts > 0));
        }
}

// A draft model guesses for each: what it is right about, unless something is out of step.
static void an_answer_is_the_same_with_a_draft_model(void **state)
{
    (void)state;
    static const size_t parallel[] = {1, 3, 0};
    enum { SHORT, LONG, SHIFTED };
    for (size_t n = 0; n < 3; n += quick() ? 2 : 1)
        for (int how = SHORT; how <= SHIFTED; how++) {
            check(&(struct setting){.n_ctx = (how == SHIFTED ? 2 : 8) * BLOCK,
                                    .n_parallel = parallel[n],
                                    .n_common = n % 2 ? 60 : 0,
                                    .unlimited = how != SHORT,
                                    .overflow = how != SHORT ? OVERFLOW_SHIFT : OVERFLOW_ERROR,
                                    .n_kept = n % 2,
                                    .guesses = true,
                                    .drafts = 16 * BLOCK});
            // (An end that is guessed is the answer's last token, and is not counted.)
            assert_true(guessed.n_drafted > 200 && guessed.n_accepted + 2 >= guessed.n_drafted);
            assert_true(guessed.n_steps * (how == SHORT ? 2 : 5) < n_tokens);
            assert_true(how == SHIFTED || parallel[n] == 1 || n_beside > 60);
        }
    // Memory for one of them, of eight that run: the others guess from their texts.
    const size_t most = guessed.n_accepted;
    check(&(struct setting){.n_ctx = 8 * BLOCK,
                            .unlimited = true,
                            .overflow = OVERFLOW_SHIFT,
                            .guesses = true,
                            .drafts = BLOCK});
    assert_true(guessed.n_accepted > 0 && guessed.n_accepted < most);
}

// A draft model whose weights are damaged ends those answers that it cannot read, and says so.
static void a_draft_model_that_fails_fails_for_one(void **state)
{
    (void)state;
    enum { N = 4, BAD = 2, TOKEN = 70 };
    struct fixture f, damaged;
    struct schedule s;
    struct line l[N], by_itself;
    setup(&f, 8 * BLOCK);
    setup_with(&damaged, 8 * BLOCK, N_BATCH, TOKEN);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    guess(&s, damaged.e, WITH_A_MODEL);
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], 12, i);
        for (size_t k = 0; k < l[i].prompt.len; k++)
            l[i].prompt.data[k] += l[i].prompt.data[k] == TOKEN;
        if (i == BAD)
            ids_push(&l[i].prompt, TOKEN);
        assert_true(schedule_add(&s, &l[i].task, &f.err));
    }
    run(&s);
    for (size_t i = 0; i < N; i++) {
        l[i].err = l[i].task.error;
        l[i].ok = l[i].err.code == ERR_NONE;
        assert_true(l[i].ok == (i != BAD));
        if (i == BAD) // at once
            assert_true(strstr(l[i].err.text, "the draft model: ") && l[i].g.ids.len == 1);
        make_line(&f, &by_itself, 12, i);
        for (size_t k = 0; k < by_itself.prompt.len; k++)
            by_itself.prompt.data[k] += by_itself.prompt.data[k] == TOKEN;
        alone(&f, &by_itself);
        if (i != BAD) {
            same(&l[i], &by_itself, i);
            assert_true(l[i].task.stats.n_accepted > 0);
        }
        line_release(&by_itself);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&damaged);
    teardown(&f);
}

// What it decides by is measured: steps, and prompts.
static void what_steps_take_is_seen(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l;
    setup(&f, 8 * BLOCK);
    struct engine *draft = open_draft(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    guess(&s, draft, WITH_A_MODEL);
    s.guesses.always = false;
    make_line(&f, &l, 12, 20);
    assert_true(schedule_add(&s, &l.task, &f.err));
    assert_true(schedule_step(&s, &f.err));
    const double prompt_s = s.guesses.making.total_s;
    run(&s);
    assert_true(prompt_s > 0 && s.guesses.making.read_s > 0);
    assert_true(s.guesses.making.total_s > prompt_s && s.guesses.costs[1].step_s > 0);
    line_release(&l);
    schedule_release(&s);
    engine_free(draft);
    teardown(&f);
}

// Rows are few, or blocks are: guesses are cut, and nobody has to leave for them.
static void guesses_have_what_room_there_is(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 12; n += quick() ? 9 : 3) {
        check(&(struct setting){
            .n_ctx = 4 * BLOCK, .n_common = 9, .n_batch = n, .unlimited = n > 7, .guesses = true});
        assert_true(n > 1 || guessed.n_drafted == 0);
        assert_true(n <= 7 || n_beside > 0);
    }
    check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true, .guesses = true});
    assert_true(n_tokens > 4000 && n_beside > 0);
}

static void cancel_some(int guesses)
{
    struct fixture f;
    struct schedule s;
    struct line l[N_TASKS], by_itself;
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 4, NULL, NULL, &f.err));
    struct engine *draft = open_draft(&f, guesses == WITH_A_MODEL ? 16 * BLOCK : 0);
    guess(&s, draft, guesses);
    for (size_t i = 0; i < N_TASKS; i++) {
        make_line(&f, &l[i], i, 20);
        l[i].ok = schedule_add(&s, &l[i].task, &l[i].err);
    }
    for (size_t k = 0; k < N_TASKS; k += 2) {
        assert_true(schedule_step(&s, &err));
        if (l[k].ok && !l[k].task.done)
            schedule_remove(&s, &l[k].task);
    }
    run(&s);
    for (size_t i = 1; i < N_TASKS; i += 2) {
        make_line(&f, &by_itself, i, 20);
        alone(&f, &by_itself);
        if (l[i].ok) {
            l[i].err = l[i].task.error;
            l[i].ok = l[i].err.code == ERR_NONE;
        }
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
    }
    for (size_t i = 0; i < N_TASKS; i++)
        line_release(&l[i]);
    schedule_release(&s);
    engine_free(draft);
    teardown(&f);
}

static void the_cancelled_leave_the_others_as_they_are(void **state)
{
    (void)state;
    for (int how = NO_GUESSES; how < GUESSERS; how++)
        cancel_some(how);
}

static void interrupt(int guesses)
{
    struct fixture f;
    struct schedule s;
    struct line l[3], by_itself;
    struct cancel cancel = {0};
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, &cancel, &f.err));
    struct engine *draft = open_draft(&f, guesses == WITH_A_MODEL ? 16 * BLOCK : 0);
    guess(&s, draft, guesses);
    for (size_t i = 0; i < 3; i++) {
        make_line(&f, &l[i], 7, i);
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    assert_true(schedule_step(&s, &f.err));
    cancel_ask(&cancel);
    assert_false(schedule_step(&s, &f.err));
    assert_int_equal(f.err.code, ERR_INTERRUPTED);
    cancel_clear(&cancel);
    run(&s);
    for (size_t i = 0; i < 3; i++) {
        l[i].ok = l[i].task.error.code == ERR_NONE;
        make_line(&f, &by_itself, 7, i);
        alone(&f, &by_itself);
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
        line_release(&l[i]);
    }
    schedule_release(&s);
    engine_free(draft);
    teardown(&f);
}

static void an_interruption_ends_nothing_but_the_pass(void **state)
{
    (void)state;
    for (int how = NO_GUESSES; how < GUESSERS; how++)
        interrupt(how);
}

// What a device is like, in steps without guesses: what a row more takes, a round of guesses for n
// answers (round[0] + n * round[1]), and a token that is read.
struct device {
    double row, round[2], read;
};

// Tokens a second, by those without guesses, of answers of answer to prompts of n_prompt, width
// beside each other: every other one is guessed with the second chance. A new one comes where one
// ends.
static double simulate(const struct device *x, size_t width, const double chance[2], size_t answer,
                       size_t n_prompt, double share, size_t n_steps, size_t *n_drafted)
{
    enum { MOST = ENGINE_MAX_DRAFTS };
    struct going {
        struct spec_guard guard;
        size_t behind, left, n_guesses;
    } *answers = calloc(width, sizeof *answers);
    struct spec_wish *wishes = calloc(width, sizeof *wishes);
    struct spec_row *rows = calloc(width, sizeof *rows);
    struct spec_cost cost;
    struct spec_making making;
    struct error err = {0};
    double seconds = 0;
    uint32_t seed = 7;
    size_t all = 0;
    assert_true(answers && wishes && rows && spec_making_init(&making, width, share, &err));
    spec_cost_init(&cost, width);
    for (size_t i = 0; i < width; i++)
        answers[i].left = 1 + answer * (i + 1) / width;
    *n_drafted = 0;
    for (size_t step = 0; step < n_steps; step++) {
        double made_s = 0, read_s = 0, main_s = 1;
        size_t n_made = 0, n_rounds = 0, n_rows = 0, n_got = 0;
        for (size_t i = 0; i < width; i++) {
            struct going *a = &answers[i];
            wishes[i] = (struct spec_wish){.of = i,
                                           .behind = a->behind,
                                           .most = MOST,
                                           .is_new = !spec_guard_knows(&a->guard, SPEC_MADE),
                                           .chance = spec_guard_chance(&a->guard, SPEC_MADE)};
            a->n_guesses = 0;
        }
        const bool tries = spec_making_choose(&making, &cost, wishes, width, width,
                                              ENGINE_MAX_PASS_DRAFTS, 512, false);
        for (size_t i = 0; i < width; i++) {
            struct going *a = &answers[wishes[i].of];
            if (wishes[i].n_read > 0) {
                const double took = (double)wishes[i].n_read * x->read;
                spec_making_read(&making, wishes[i].n_read, cost.step_s, took);
                read_s += took;
                a->behind -= wishes[i].n_read;
            }
            n_made += wishes[i].n_make > 0;
            n_rounds = wishes[i].n_make > n_rounds ? wishes[i].n_make : n_rounds;
            a->n_guesses = wishes[i].n_make;
        }
        assert_true(n_made * n_rounds <= ENGINE_MAX_PASS_DRAFTS);
        if (n_made > 0) {
            made_s = (double)n_rounds * (x->round[0] + x->round[1] * (double)n_made);
            spec_making_made(&making, n_made, n_rounds, cost.step_s, made_s);
        }
        for (size_t i = 0; i < width; i++) {
            const struct spec_guard *guard = &answers[i].guard;
            rows[i] = (struct spec_row){.n = answers[i].n_guesses,
                                        .chance = spec_guard_knows(guard, SPEC_MADE)
                                                      ? spec_guard_chance(guard, SPEC_MADE)
                                                      : spec_making_chance(&making)};
        }
        spec_cost_check(&cost, rows, width, width, ENGINE_MAX_PASS_DRAFTS, false);
        for (size_t i = 0; i < width; i++) {
            struct going *a = &answers[i];
            const size_t n_check = tries ? a->n_guesses : rows[i].n_check;
            const size_t n_seen = n_check > 0 ? n_check : a->n_guesses > 0;
            size_t got = 1;
            n_rows += n_check;
            for (size_t k = 0, right = 1; right && k < n_seen; k++) {
                seed = seed * 1664525 + 1013904223;
                right = (seed >> 8) / (double)(1 << 24) < chance[i % 2];
                spec_guard_count(&a->guard, SPEC_MADE, right);
                spec_making_count(&making, right);
                got += right && k < n_check;
            }
            a->behind = a->n_guesses > 0 ? 1 : a->behind + got;
            n_got += got;
            if (a->left <= got)
                *a = (struct going){.left = answer, .behind = n_prompt};
            else
                a->left -= got;
        }
        main_s += x->row * (double)n_rows;
        spec_making_step(&making, &cost, width, n_got, n_made > 0, main_s + made_s);
        spec_cost_step(&cost, n_rows, main_s);
        seconds += main_s + made_s + read_s;
        all += n_got;
        *n_drafted += n_rows;
    }
    free(answers);
    free(wishes);
    free(rows);
    spec_making_release(&making);
    return (double)all / (double)width / seconds;
}

static void a_model_guesses_for_several_while_it_pays(void **state)
{
    (void)state;
    const double good[2] = {0.9, 0.9}, half[2] = {0.9, 0}, bad[2] = {0, 0};
    size_t n;
    // Rounds that cost next to nothing, for as many as there are.
    const struct device wide = {.row = 0.01, .round = {0.08, 0.001}, .read = 0.002};
    static const double least[] = {2.8, 2.5, 1.6}; // a pass takes 64 guesses
    for (size_t i = 0; i < 3; i++)
        assert_true(simulate(&wide, (size_t)1 << 2 * i, good, 300, 200, 0.1, 2000, &n) > least[i]);
    // Or that are right so often.
    const double fair[2] = {0.6, 0.6};
    assert_true(simulate(&wide, 16, fair, 300, 200, 0.1, 2000, &n) > 1.2);
    // Only for those whose guesses come true.
    assert_true(simulate(&wide, 4, half, 300, 200, 0.1, 2000, &n) > 1.6);
    assert_true(simulate(&wide, 16, half, 300, 200, 0.1, 2000, &n) > 1.2);
    simulate(&wide, 16, bad, 300, 200, 0.1, 2000, &n);
    assert_true(n < 1000);
    // Never slower than 0.97 of plain speed, whatever a round, a row and a prompt take, are thought
    // to take, and however often guesses are right.
    static const size_t widths[] = {1, 2, 4, 16, 64, 256}, prompts[] = {5, 200, 5000};
    static const double chances[][2] = {{0, 0}, {0, 0.9}, {0.3, 0.3}, {0.6, 0.6}, {0.9, 0.9}};
    static const double rows[] = {0.01, 0.3, 1};   // of what a row of an answer takes
    static const double rounds[] = {0.02, 0.2, 1}; // of a step: of all answers, or for each
    static const double thought[] = {0.02, 0.2, 1};
    for (size_t w = 0; w < (quick() ? 4 : 6); w++)
        for (size_t c = 0; c < 5; c++)
            for (size_t k = w % 2; k < 3 * 3 * 2 * 3 * 3; k += quick() ? 5 : 1) {
                const bool each = k / 9 % 2;
                const double row = rows[k % 3], round = rounds[k / 3 % 3],
                             share = thought[k / 18 % 3];
                const size_t n_prompt = prompts[k / 54], width = widths[w];
                const struct device x = {
                    .row = row / (double)width,
                    .round = {each ? 0 : round, each ? round / (double)width : 0},
                    .read = round / 20};
                const double speed = simulate(&x, width, chances[c], 200, n_prompt, share, 600, &n);
                if (speed < 0.97)
                    fail_msg("%zu answers to prompts of %zu, guesses right %g and %g of the time, "
                             "a row takes %g, a round %g %s (thought: %g): %g times as fast, %zu "
                             "drafts",
                             width, n_prompt, chances[c][0], chances[c][1], row, round,
                             each ? "in all" : "for any", share, speed, n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_guesses_for_several_while_it_pays),
        cmocka_unit_test(an_answer_is_the_same_with_guesses),
        cmocka_unit_test(an_answer_is_the_same_with_a_draft_model),
        cmocka_unit_test(a_draft_model_that_fails_fails_for_one),
        cmocka_unit_test(what_steps_take_is_seen),
        cmocka_unit_test(guesses_have_what_room_there_is),
        cmocka_unit_test(the_cancelled_leave_the_others_as_they_are),
        cmocka_unit_test(an_interruption_ends_nothing_but_the_pass),
    };
    return RUN_TESTS("guesses", tests);
}
