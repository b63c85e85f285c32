// Session and generate loop on an engine that follows a script: what is evaluated and when, what is
// kept, how an answer ends. The engine itself asserts that it is asked for nothing wrong.
#include "test.h"

#include "engine/session.h"
#include "engine/stops.h"
#include "scripted_engine.h"

enum { END = 2, SPACE = 259, A = 260, B = 261, AB = 263 }; // of the tiny vocabulary
enum { C = 3 + 'c', X = 3 + 'x' };                         // byte tokens

struct fixture {
    struct buf file;
    struct model *m;
    struct scripted e;
    struct session s;
    struct generate_params p;
    struct generated g;
    struct buf shown; // what on_text was given, "|" after each
    struct ids seen;  // what on_token was given
    size_t done[64], total[64], n_progress;
    struct error err;
};

static bool on_text(void *user, const char *text, size_t n, struct error *err)
{
    struct fixture *f = user;
    (void)err;
    buf_append(&f->shown, text, n);
    buf_putc(&f->shown, '|');
    return true;
}

static void on_token(void *user, const struct decoded *d)
{
    ids_push(&((struct fixture *)user)->seen, d->id);
}

static void progress(void *user, size_t done, size_t total)
{
    struct fixture *f = user;
    f->done[f->n_progress] = done;
    f->total[f->n_progress++] = total;
}

static void setup(struct fixture *f, uint32_t n_ctx, uint32_t n_batch)
{
    memset(f, 0, sizeof *f);
    f->m = scripted_model(&f->file);
    scripted_init(&f->e, f->m, n_ctx, n_batch);
    assert_true(session_init(&f->s, &f->e.base, &f->err));
    f->s.progress = progress;
    f->s.progress_user = f;
    f->p = (struct generate_params){.sampler = &sampler_defaults,
                                    .tok = f->m->tokenizer,
                                    .n_predict = -1,
                                    .on_text = on_text,
                                    .on_token = on_token,
                                    .user = f};
    for (size_t i = 0; i < SCRIPT; i++)
        f->e.script[i] = A;
}

static void teardown(struct fixture *f)
{
    generated_release(&f->g);
    session_release(&f->s);
    engine_free(&f->e.base);
    buf_release(&f->shown);
    ids_release(&f->seen);
    model_free(f->m);
    buf_release(&f->file);
}

static const int32_t prompt[] = {1, A, B, C, X, A, B, C, X, A, B, C, X, A, B, C, X, A, B, C};

static void sync(struct fixture *f, size_t n)
{
    if (!session_sync(&f->s, prompt, n, NULL, &f->err))
        fail_msg("%s", f->err.text);
}

static void run(struct fixture *f)
{
    if (!generate(&f->s, &f->p, &f->g, &f->err))
        fail_msg("%s", f->err.text);
}

static void check_timeline(struct fixture *f, size_t n_prompt)
{
    assert_int_equal(seq_len(f->s.seq), n_prompt + f->g.ids.len);
    assert_memory_equal(seq_ids(f->s.seq), prompt, n_prompt * sizeof *prompt);
    if (f->g.ids.len)
        assert_memory_equal(seq_ids(f->s.seq) + n_prompt, f->g.ids.data,
                            f->g.ids.len * sizeof *prompt);
    assert_true(seq_n_past(f->s.seq) <= seq_len(f->s.seq));
    assert_true(seq_n_past(f->s.seq) + 1 >= seq_len(f->s.seq));
    assert_memory_equal(seq_ids(f->s.seq), f->e.known, seq_n_past(f->s.seq) * sizeof *prompt);
    assert_int_equal(f->seen.len, f->g.ids.len);
    if (f->seen.len)
        assert_memory_equal(f->seen.data, f->g.ids.data, f->seen.len * sizeof *prompt);
}

static bool eval_in_tenths(struct engine *e, const struct seq *q, const int32_t *ids, size_t n,
                           enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    for (int i = 1; i <= 10 && e->core->under_way; i++)
        e->core->under_way(e->core->under_way_user, i / 10.0);
    return scripted_eval(e, q, ids, n, want, cancel, err);
}

// Who waits for a slow machine sees the share grow more often than once in a batch, whose size
// stays what was asked for.
static void a_shown_prompt_is_read_in_whole_batches_and_told_of_on_the_way(void **state)
{
    (void)state;
    for (int shown = 0; shown < 2; shown++) {
        struct fixture f;
        setup(&f, 210, 150);
        struct backend slow = *f.e.core.backend;
        slow.eval = eval_in_tenths;
        f.e.core.backend = &slow;
        if (!shown)
            f.s.progress = NULL;
        int32_t ids[200];
        for (size_t k = 0; k < 200; k++)
            ids[k] = A;
        assert_true(session_sync(&f.s, ids, 200, NULL, &f.err));
        static const size_t done[] = {0, 75, 150, 200}; // 64 tokens at least, or a batch
        assert_int_equal(f.e.n_evals, 2);
        assert_int_equal(f.e.evals[0].n, 150);
        assert_int_equal(f.n_progress, shown ? 4 : 0);
        for (size_t k = 0; k < f.n_progress; k++)
            assert_int_equal(f.done[k], done[k]);
        assert_null(f.e.core.under_way);
        teardown(&f);
    }
}

static void sync_evaluates_in_chunks_and_only_what_is_new(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 64, 8);
    sync(&f, 20);
    const struct scripted_eval *v = f.e.evals;
    assert_int_equal(f.e.n_evals, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(v[i].begin, 8 * i);
        assert_int_equal(v[i].n, i < 2 ? 8 : 4);
        assert_int_equal(v[i].want, i < 2 ? LOGITS_NONE : LOGITS_LAST);
    }
    static const size_t done[] = {0, 8, 16, 20};
    assert_int_equal(f.n_progress, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(f.done[i], done[i]);
        assert_int_equal(f.total[i], 20);
    }
    assert_int_equal(f.s.stats.n_prompt, 20);
    assert_int_equal(f.s.stats.n_reused, 0);
    assert_int_equal(f.s.stats.n_evaluated, 20);
    assert_true(f.s.stats.prefill_s >= 0 && f.s.stats.prefill_s < 60);

    // another end: what is common stays
    int32_t other[20];
    memcpy(other, prompt, sizeof other);
    other[13] = X;
    f.n_progress = 0;
    assert_true(session_sync(&f.s, other, 15, NULL, &f.err));
    assert_int_equal(f.e.n_evals, 4);
    assert_int_equal(v[3].begin, 13);
    assert_int_equal(v[3].n, 2);
    assert_int_equal(f.s.stats.n_prompt, 15);
    assert_int_equal(f.s.stats.n_reused, 13);
    assert_int_equal(f.s.stats.n_evaluated, 2);
    assert_int_equal(f.n_progress, 2);
    assert_int_equal(f.done[1], 2);
    assert_int_equal(f.total[0], 2);
    assert_int_equal(seq_len(f.s.seq), 15);
    assert_memory_equal(seq_ids(f.s.seq), other, 15 * sizeof *other);

    // nothing new: the last token again, for its logits
    assert_true(session_sync(&f.s, other, 15, NULL, &f.err));
    assert_int_equal(v[4].begin, 14);
    assert_int_equal(v[4].n, 1);
    assert_int_equal(v[4].want, LOGITS_LAST);
    assert_int_equal(f.s.stats.n_reused, 14);
    // a part of it: the last token of the part
    assert_true(session_sync(&f.s, other, 9, NULL, &f.err));
    assert_int_equal(v[5].begin, 8);
    assert_int_equal(v[5].n, 1);
    assert_int_equal(seq_len(f.s.seq), 9);
    assert_int_equal(seq_n_past(f.s.seq), 9);
    teardown(&f);
}

static void what_the_engine_has_not_evaluated_is_not_reused(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 64, 8);
    f.p.n_predict = 1;
    sync(&f, 10);
    f.e.script[10] = prompt[10];
    run(&f);
    assert_int_equal(seq_len(f.s.seq), 11);
    assert_int_equal(seq_n_past(f.s.seq), 10); // the answer's token is known, not evaluated
    sync(&f, 12);
    assert_int_equal(f.s.stats.n_reused, 10);
    assert_int_equal(f.s.stats.n_evaluated, 2);
    teardown(&f);
}

static void sync_refuses_and_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 16, 8);
    sync(&f, 10);
    size_t n = f.e.n_evals;
    assert_false(session_sync(&f.s, prompt, 0, NULL, &f.err));
    assert_int_equal(f.err.code, ERR_USAGE);
    f.err = (struct error){0};
    assert_false(session_sync(&f.s, prompt, 17, NULL, &f.err));
    assert_int_equal(f.err.code, ERR_CONTEXT);
    assert_non_null(strstr(f.err.text, "17 tokens"));
    assert_non_null(strstr(f.err.text, "holds 16"));
    assert_int_equal(f.e.n_evals, n);
    assert_int_equal(seq_len(f.s.seq), 10);
    assert_int_equal(seq_n_past(f.s.seq), 10);
    sync(&f, 16); // and what just fits is taken
    assert_int_equal(seq_n_past(f.s.seq), 16);
    teardown(&f);
}

static void an_interrupted_sync_keeps_whole_chunks(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 64, 8);
    f.e.interrupt = 17;
    assert_false(session_sync(&f.s, prompt, 20, NULL, &f.err));
    assert_int_equal(f.err.code, ERR_INTERRUPTED);
    assert_int_equal(seq_len(f.s.seq), 16);
    assert_int_equal(f.s.stats.n_evaluated, 16);
    f.e.interrupt = 0;
    sync(&f, 20);
    assert_int_equal(f.s.stats.n_reused, 16);
    teardown(&f);
}

static void nothing_is_kept_after_an_end_token(void **state)
{
    (void)state;
    struct fixture f;
    for (int special = 0; special < 2; special++) {
        setup(&f, 64, 8);
        f.p.special = special;
        f.e.script[10] = B;
        f.e.script[11] = C;
        f.e.script[12] = END;
        sync(&f, 10);
        run(&f);
        assert_int_equal(f.g.finish, FINISH_STOP);
        assert_int_equal(f.g.ids.len, 3);
        assert_int_equal(f.g.ids.data[2], END);
        assert_string_equal(buf_str(&f.g.text), special ? "bc</s>" : "bc");
        check_timeline(&f, 10);
        // the engine was told where to stop, and so never evaluated further
        assert_int_equal(f.e.n_stop_ids, 1);
        assert_int_equal(f.e.stop_ids[0], END);
        assert_true(f.e.most_past <= 12);
        assert_int_equal(f.s.stats.n_generated, 3);
        assert_true(f.s.stats.first_token_s > 0 && f.s.stats.first_token_s < 60);
        assert_true(f.s.stats.decode_s >= 0 && f.s.stats.decode_s < 60);
        teardown(&f);
    }
    setup(&f, 64, 8);
    f.p.ignore_eos = true;
    f.p.n_predict = 5;
    f.e.script[11] = END;
    sync(&f, 10);
    run(&f);
    assert_int_equal(f.e.n_stop_ids, 0);
    assert_int_equal(f.g.ids.len, 5);
    assert_int_equal(f.g.finish, FINISH_LENGTH);
    check_timeline(&f, 10);
    teardown(&f);
}

static void as_many_tokens_as_wished(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 6; n++) {
        struct fixture f;
        setup(&f, 64, 8);
        f.p.n_predict = n;
        sync(&f, 10);
        run(&f);
        assert_int_equal(f.g.ids.len, n);
        assert_int_equal(f.g.finish, FINISH_LENGTH);
        assert_int_equal(f.s.stats.n_generated, n);
        check_timeline(&f, 10);
        assert_int_equal(f.e.n_starts, n > 0);
        if (n > 0)
            assert_int_equal(f.e.n_asked, n); // the engine runs ahead of nothing
        teardown(&f);
    }
}

// Stop texts on "b c a b x a b c a a ..." (without spaces).
static void an_answer_ends_before_the_first_stop_text(void **state)
{
    (void)state;
    static const struct {
        const char *stop[3], *text, *shown;
        size_t n_ids;
    } cases[] = {
        {{"ab"}, "bc", "b|c|", 4},
        {{"cabx"}, "b", "b|", 5},
        {{"xabd", "abcaa"}, "bcabx", "b|c|ab|x|", 10}, // two beginnings at once
        {{"", "bx"}, "bca", "bc|a|", 5},               // an empty one is none
        {{"abx", "b"}, "", "", 1},
        {{"zz", "cab", "bca"}, "", "", 3}, // the earliest, not the first of the list
    };
    static const int32_t letters[] = {B, C, A, B, X, A, B, C, A, A};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        setup(&f, 64, 8);
        memcpy(f.e.script + 10, letters, sizeof letters);
        f.p.stop = cases[i].stop;
        while (f.p.n_stop < 3 && cases[i].stop[f.p.n_stop])
            f.p.n_stop++;
        sync(&f, 10);
        run(&f);
        assert_int_equal(f.g.finish, FINISH_STOP_TEXT);
        assert_string_equal(buf_str(&f.g.text), cases[i].text);
        assert_int_equal(f.g.text.len, strlen(cases[i].text));
        assert_string_equal(buf_str(&f.shown), cases[i].shown);
        assert_int_equal(f.g.ids.len, cases[i].n_ids);
        check_timeline(&f, 10);
        teardown(&f);
    }
}

static void a_beginning_of_a_stop_text_is_shown_when_it_does_not_come(void **state)
{
    (void)state;
    static const char *const stop[] = {"bcx"};
    struct fixture f;
    setup(&f, 64, 8);
    f.p.stop = stop;
    f.p.n_stop = 1;
    f.p.n_predict = 3;
    f.e.script[11] = B;
    f.e.script[12] = C;
    sync(&f, 10);
    run(&f);
    assert_string_equal(buf_str(&f.shown), "a|bc|");
    assert_string_equal(buf_str(&f.g.text), "abc");
    assert_int_equal(f.g.finish, FINISH_LENGTH);
    teardown(&f);
    // and the bytes of a sequence that nothing completes
    setup(&f, 64, 8);
    f.p.n_predict = 2;
    f.e.script[11] = 3 + 0xE6;
    sync(&f, 10);
    run(&f);
    assert_string_equal(buf_str(&f.shown), "a|\xE6|");
    teardown(&f);
}

// Where the first of the texts stands in text[0..n), and where one may begin that is not all there.
static void look(const char *const *stop, size_t n_stop, const char *text, size_t n, size_t *at,
                 size_t *hold)
{
    *at = *hold = n;
    for (size_t i = 0; i < n_stop; i++)
        for (size_t k = 0; k < n; k++) {
            const size_t len = strlen(stop[i]), m = n - k < len ? n - k : len;
            if (memcmp(text + k, stop[i], m) == 0 && m == len && k < *at)
                *at = k;
            else if (memcmp(text + k, stop[i], m) == 0 && m < len && k < *hold)
                *hold = k;
        }
}

static void stop_texts_are_found_however_the_text_comes(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (int round = 0; round < 20000; round++) {
        char text[40], texts[3][10] = {0};
        const char *stop[3] = {texts[0], texts[1], texts[2]};
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = "ab"[(x = x * 6364136223846793005u + 1) >> 63];
        for (size_t i = 0; i < 3; i++)
            for (size_t k = (x >> 40) % 9 + 1; k-- > 0;)
                texts[i][k] = "ab"[(x = x * 6364136223846793005u + 1) >> 63];
        struct stops s = {0};
        const size_t from = (x >> 50) % 3;
        for (size_t n = from, at, hold, want, want_hold; n <= sizeof text;) {
            look(stop, 3, text + from, n - from, &want, &want_hold);
            assert_true(stops_find(&s, stop, 3, text, n, from, &at, &hold, NULL));
            assert_int_equal(at, want + from);
            if (at < n)
                break;
            assert_int_equal(hold, want_hold + from);
            n += (x = x * 6364136223846793005u + 1) >> 62;
        }
        stops_release(&s);
    }
}

// Where each place was compared again for each token, this ends tomorrow.
static void stop_texts_that_nearly_come_all_the_time_hold_nothing_up(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = malloc(N + 1), *longer = malloc(2 * N + 1), *nearly = malloc(N / 2 + 2);
    assert_true(text && longer && nearly);
    memset(text, 'a', N);
    memset(longer, 'a', 2 * N);
    memset(nearly, 'a', N / 2);
    longer[2 * N] = '\0';
    strcpy(nearly + N / 2, "b");
    text[N] = 'b';
    const char *const stop[] = {longer, nearly};
    struct stops s = {0};
    size_t at = 0, hold = 0;
    for (size_t n = 1; n <= N; n++)
        assert_true(stops_find(&s, stop, 2, text, n, 0, &at, &hold, NULL) && at == n && hold == 0);
    assert_true(stops_find(&s, stop, 2, text, N + 1, 0, &at, &hold, NULL) && at == N / 2);
    stops_release(&s);
    free(text);
    free(longer);
    free(nearly);
}

static void a_full_context_ends_the_answer(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 16, 8);
    sync(&f, 10);
    run(&f);
    assert_int_equal(f.g.finish, FINISH_CONTEXT);
    assert_int_equal(f.g.ids.len, 6);
    check_timeline(&f, 10);
    teardown(&f);

    setup(&f, 16, 8);
    sync(&f, 16);
    assert_false(generate(&f.s, &f.p, &f.g, &f.err));
    assert_int_equal(f.err.code, ERR_CONTEXT);
    assert_non_null(strstr(f.err.text, "16 tokens"));
    assert_non_null(strstr(f.err.text, "context of 16"));
    assert_int_equal(f.g.ids.len, 0);
    assert_int_equal(seq_len(f.s.seq), 16);
    teardown(&f);
}

static void a_shift_drops_halves_until_there_is_room(void **state)
{
    (void)state;
    enum { N_KEEP = 3, MOST = 60 };
    for (size_t n_ctx = N_KEEP + 2; n_ctx < 12; n_ctx++)
        for (size_t n = 0; n < MOST; n++) {
            struct ids v = {0};
            for (size_t i = 0; i < n; i++)
                assert_true(ids_push(&v, (int32_t)i));
            size_t left = n;
            while (left >= n_ctx)
                left -= (n_ctx - N_KEEP) / 2;
            assert_int_equal(overflow_shift(&v, n_ctx, N_KEEP), n - left);
            assert_int_equal(v.len, left);
            for (size_t i = 0; i < left; i++)
                assert_int_equal(v.data[i], i < N_KEEP ? i : i + n - left);
            ids_release(&v);
        }
}

static void shifting_drops_the_older_half_after_what_stays(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 16, 8);
    f.p.overflow = OVERFLOW_SHIFT;
    f.p.n_keep = 2;
    f.p.n_predict = 9;
    for (size_t i = 0; i < 16; i++)
        f.e.script[i] = (int32_t)(100 + i);
    sync(&f, 10);
    size_t n_evals = f.e.n_evals;
    struct session_stats before = f.s.stats;
    run(&f);
    // full at 16: of the 14 after the first two, seven go, and nine stay
    assert_int_equal(f.s.stats.n_dropped, 7);
    assert_int_equal(f.e.evals[n_evals].begin, 2);
    assert_int_equal(f.g.ids.len, 9);
    assert_int_equal(f.g.finish, FINISH_LENGTH);
    assert_int_equal(seq_len(f.s.seq), 9 + 3);
    static const int32_t want[] = {1,   A,   C,   100 + 10, 100 + 11, 100 + 12,
                                   113, 114, 115, 109,      110,      111};
    int32_t expected[12];
    memcpy(expected, want, sizeof want);
    expected[2] = prompt[9];
    assert_memory_equal(seq_ids(f.s.seq), expected, sizeof expected);
    // what the prompt cost is still told
    assert_int_equal(f.s.stats.n_prompt, before.n_prompt);
    assert_int_equal(f.s.stats.n_evaluated, before.n_evaluated);
    teardown(&f);

    setup(&f, 16, 8); // all of it is to stay
    f.p.overflow = OVERFLOW_SHIFT;
    f.p.n_keep = 100;
    sync(&f, 16);
    assert_false(generate(&f.s, &f.p, &f.g, &f.err));
    assert_int_equal(f.err.code, ERR_CONTEXT);
    assert_non_null(strstr(f.err.text, "nothing to drop"));
    teardown(&f);
}

static struct cancel cancel_flag;
static bool cancel_at_c(void *user, const char *text, size_t n, struct error *err)
{
    on_text(user, text, n, err);
    if (n == 1 && *text == 'c')
        cancel_ask(&cancel_flag);
    return true;
}

static void an_interrupted_answer_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 64, 8);
    cancel_clear(&cancel_flag);
    f.p.cancel = &cancel_flag;
    f.p.on_text = cancel_at_c;
    f.e.script[12] = C;
    sync(&f, 10);
    run(&f);
    assert_int_equal(f.g.finish, FINISH_INTERRUPTED);
    assert_string_equal(buf_str(&f.g.text), "aac");
    check_timeline(&f, 10);
    teardown(&f);
}

static bool refuse(void *user, const char *text, size_t n, struct error *err)
{
    on_text(user, text, n, err);
    return false;
}

static bool refuse_with_a_word(void *user, const char *text, size_t n, struct error *err)
{
    on_text(user, text, n, err);
    return error_set(err, ERR_MEMORY, "no paper left");
}

static void an_answer_that_cannot_be_shown_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        setup(&f, 64, 8);
        f.p.on_text = i ? refuse_with_a_word : refuse;
        f.p.n_predict = 5;
        sync(&f, 10);
        assert_false(generate(&f.s, &f.p, &f.g, &f.err));
        assert_int_equal(f.err.code, i ? ERR_MEMORY : ERR_FAIL);
        assert_string_equal(f.err.text, i ? "no paper left" : "the answer could not be written");
        assert_int_equal(f.g.ids.len, 1);
        check_timeline(&f, 10);
        teardown(&f);
    }
}

static void a_failing_engine_leaves_what_there_was(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 64, 8);
    f.e.fail_next = 4;
    f.e.fail_how = ERR_FAIL;
    sync(&f, 10);
    assert_false(generate(&f.s, &f.p, &f.g, &f.err));
    assert_string_equal(f.err.text, "the script fails here");
    assert_int_equal(f.g.ids.len, 3);
    assert_string_equal(buf_str(&f.g.text), "aaa");
    check_timeline(&f, 10);
    assert_int_equal(f.s.stats.n_generated, 3);
    teardown(&f);

    setup(&f, 64, 8); // interrupted inside the engine: the end of an answer, not a failure
    f.e.fail_next = 4;
    f.e.fail_how = ERR_INTERRUPTED;
    sync(&f, 10);
    run(&f);
    assert_int_equal(f.g.finish, FINISH_INTERRUPTED);
    assert_string_equal(buf_str(&f.g.text), "aaa");
    check_timeline(&f, 10);
    teardown(&f);
}

static void every_end_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(finish_name(FINISH_STOP), "stop");
    assert_string_equal(finish_name(FINISH_STOP_TEXT), "stop_text");
    assert_string_equal(finish_name(FINISH_LENGTH), "length");
    assert_string_equal(finish_name(FINISH_CONTEXT), "context");
    assert_string_equal(finish_name(FINISH_INTERRUPTED), "interrupted");
    generated_release(NULL);
    session_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_evaluates_in_chunks_and_only_what_is_new),
        cmocka_unit_test(a_shown_prompt_is_read_in_whole_batches_and_told_of_on_the_way),
        cmocka_unit_test(what_the_engine_has_not_evaluated_is_not_reused),
        cmocka_unit_test(sync_refuses_and_changes_nothing),
        cmocka_unit_test(an_interrupted_sync_keeps_whole_chunks),
        cmocka_unit_test(nothing_is_kept_after_an_end_token),
        cmocka_unit_test(as_many_tokens_as_wished),
        cmocka_unit_test(an_answer_ends_before_the_first_stop_text),
        cmocka_unit_test(a_beginning_of_a_stop_text_is_shown_when_it_does_not_come),
        cmocka_unit_test(stop_texts_are_found_however_the_text_comes),
        cmocka_unit_test(stop_texts_that_nearly_come_all_the_time_hold_nothing_up),
        cmocka_unit_test(a_full_context_ends_the_answer),
        cmocka_unit_test(a_shift_drops_halves_until_there_is_room),
        cmocka_unit_test(shifting_drops_the_older_half_after_what_stays),
        cmocka_unit_test(an_interrupted_answer_is_kept),
        cmocka_unit_test(an_answer_that_cannot_be_shown_ends),
        cmocka_unit_test(a_failing_engine_leaves_what_there_was),
        cmocka_unit_test(every_end_has_its_name),
    };
    return RUN_TESTS("generate", tests);
}
