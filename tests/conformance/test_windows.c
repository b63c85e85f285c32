// Sequences of a model whose layers with a window keep no more than that of a text: however one
// came to its tokens (appended, cut, forked, paused, imported), it goes on as a fresh one does in
// an engine that keeps all positions, bit for bit. `test_windows FAMILY` on the CPU, or
// `test_windows cuda`: an engine for several sequences, of which that is promised, too.
#include "sequences.h"

#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/windows.h"

enum { N_BATCH = 64, MOST = 3000 };

static size_t block; // positions of a block

// For two at a time: windows of four.
static struct engine *open_near(void)
{
    struct engine *e = open_for(2, 16384, N_BATCH);
    assert_int_equal(engine_windows(e), 4);
    assert_int_equal(e->core->reach, windows_reach(model));
    return e;
}

static struct engine *open_whole(void)
{
    struct engine *e = open_for(16, MOST, N_BATCH);
    assert_int_equal(e->core->reach, 0);
    return e;
}

// The same of a fresh sequence with the tokens of s.
static void check(struct seq *s, const struct decoded *got)
{
    check_on(open_whole(), s, got);
}

// Tokens that are sampled, of which all but the last are evaluated.
static void answer(struct seq *s, const int32_t *ids, size_t n, size_t n_answer)
{
    struct decoded d;
    for (size_t i = 0; i < n_answer; i++) {
        const struct work w = {s, i == 0 ? ids : NULL, i == 0 ? n : 1, .n_pick = 1};
        pick(s, &w, &d);
    }
}

static size_t near_blocks(const struct seq *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_blocks; i++)
        n += s->near[i] != NO_BLOCK;
    return n;
}

static struct engine_plan plan_for(uint32_t n_seqs, uint32_t n_ctx)
{
    const struct engine_params p = {.n_ctx = n_ctx, .n_batch = N_BATCH, .n_seqs = n_seqs};
    return plan_with(&p);
}

// By plans for so many sequences that near layers have to keep all positions.
static void a_plan_counts_the_blocks_of_near_layers(void **state)
{
    (void)state;
    enum { N_CTX = 16384, MANY = 250 };
    const uint64_t n = N_CTX / block;
    const uint64_t all = plan_for(MANY, N_CTX).kv, half = plan_for(MANY, N_CTX / 2).kv;
    const uint64_t far = plan_for(1, N_CTX).kv - plan_for(1, N_CTX / 2).kv;
    const uint64_t near_block = (all - half - far) / (n / 2);
    assert_int_equal(plan_for(MANY, N_CTX).n_near, 0);
    assert_true(near_block > 0);
    for (uint32_t n_seqs = 1; n_seqs <= 4; n_seqs *= 4) {
        const struct engine_plan plan = plan_for(n_seqs, N_CTX);
        const uint64_t n_near = windows_blocks(model, N_CTX, N_BATCH, n_seqs, (uint32_t)block);
        assert_in_range(n_near, 1, n - 1);
        assert_int_equal(plan.kv, all - (n - n_near) * near_block);
        assert_int_equal(plan.near_ctx, n_near * block);
        assert_in_range(plan.n_near, 1, model->hp.n_layer);
        struct engine *e = open_for(n_seqs, N_CTX, N_BATCH);
        assert_int_equal(e->core->near.n_blocks, n_near);
        engine_free(e);
    }
}

static void random_cuts_and_forks_go_on_as_fresh_sequences_do(void **state)
{
    (void)state;
    enum { N_SEQ = 3 };
    const uint32_t n_steps = on_cuda ? 4 : 24, longest = on_cuda ? 120 : 1200;
    struct engine *e = open_for(on_cuda ? 2 : 1, 16384, N_BATCH);
    struct seq *s[N_SEQ];
    struct error err = {0};
    struct decoded d;
    size_t n_back = 0;
    int32_t ids[1300];
    for (int i = 0; i < N_SEQ; i++)
        s[i] = open_seq(e);
    for (uint32_t step = 0; step < n_steps; step++) {
        const uint32_t k = below(N_SEQ), how = step < N_SEQ ? 0 : below(4);
        const uint32_t len = (uint32_t)seq_len(s[k]);
        size_t n = how == 0 ? 1 + below(longest) : 1 + below(20);
        if (how == 1)
            seq_trim(s[k], below(len + 1));
        if (how == 2 && len > 0)
            seq_trim(s[k], len - 1 - below(len < 5 ? len : 5));
        n_back += seq_n_past(s[k]) < seq_len(s[k]);
        if (how == 3) {
            struct seq *f = seq_fork(s[k], below(len + 1), &err);
            assert_non_null(f);
            const uint32_t other = (k + 1) % N_SEQ;
            n_back += seq_n_past(f) < seq_len(f);
            seq_free(s[other]);
            s[other] = f;
        }
        for (uint32_t i = 0; i < N_SEQ; i++) { // a fork and what it was made of, too
            if (i != k && how != 3)
                continue;
            if (seq_len(s[i]) + n > (on_cuda ? 600 : MOST - 300))
                seq_trim(s[i], on_cuda ? 20 : 100);
            random_ids(ids, n);
            go_on(s[i], ids, n, &d);
            check(s[i], &d);
        }
    }
    if (!on_cuda)
        assert_in_range(n_back, 1, n_steps);
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    assert_int_equal(kv_pool_free(&e->core->near), e->core->near.n_blocks);
    assert_int_equal(engine_free_blocks(e), e->core->pool.n_blocks);
    engine_free(e);
}

// What a text has given up comes to an end; where the last turn began can be gone back to.
static void a_long_text_keeps_a_window_and_where_its_last_turn_began(void **state)
{
    (void)state;
    struct engine *e = open_for(1, 8192, N_BATCH);
    const size_t n_near = e->core->near.n_blocks, begin = block * (n_near - 2) + 7;
    struct seq *s = open_seq(e);
    struct decoded d;
    int32_t ids[MOST], next = 3;
    assert_int_equal(engine_windows(e), 1);
    assert_int_equal(n_near, windows_blocks(model, 8192, N_BATCH, 1, (uint32_t)block));
    random_ids(ids, MOST);
    answer(s, ids, begin, 5);
    for (int i = 0; i < 2; i++) { // some words, and a long answer
        const size_t turn = seq_n_past(s), end = seq_len(s) + 12;
        answer(s, ids, 12, 3 * block);
        assert_int_equal(kv_pool_free(&e->core->near), 0);
        assert_int_equal(near_blocks(s), n_near);
        seq_trim(s, end); // another answer: the words are read again
        assert_in_range(seq_n_past(s), turn, end);
        answer(s, ids, 1, 3 * block);
        seq_trim(s, turn + 2); // other words
        assert_in_range(seq_n_past(s), turn, turn + 2);
        go_on(s, &next, 1, &d);
        check(s, &d);
        answer(s, ids, 3, 5);
    }
    seq_trim(s, 40); // long given up
    assert_int_equal(seq_n_past(s), 0);
    go_on(s, ids, 3, &d);
    check(s, &d);
    seq_free(s);
    engine_free(e);
}

enum { IN_PASS = 4, N_PICKED = 6 };
static int n_in_pass = IN_PASS;

// Prompts in turn, chunks of all beside each other, then tokens of all, sampled pass by pass.
static void make_passes(struct engine *e, const int32_t *ids, struct decoded (*d)[IN_PASS])
{
    struct seq *s[IN_PASS];
    struct error err = {0};
    uint64_t ticket;
    for (int i = 0; i < n_in_pass; i++) {
        s[i] = open_seq(e);
        go_on(s[i], ids + i, on_cuda ? 250 : 1000, &d[0][i]);
    }
    for (size_t k = 0; k < 6 + N_PICKED; k++) {
        struct work w[IN_PASS];
        const bool picks = k >= 6;
        for (int i = 0; i < n_in_pass; i++)
            w[i] = (struct work){s[i], k > 6 ? NULL : ids + 7 * i, 1, .n_pick = picks};
        for (int i = 0; !picks && i < n_in_pass; i++)
            w[i].n = 1 + (5 * i + 3 * k) % 12;
        if (!engine_submit(e, w, (size_t)n_in_pass, NULL, &ticket, &err) ||
            (picks && !engine_wait(e, ticket, NULL, d[k - 6], &err)))
            fail_msg("%s", err.text);
    }
    for (int i = 0; i < n_in_pass; i++) { // none was paused for another
        assert_int_equal(seq_n_past(s[i]) + 1, seq_len(s[i]));
        seq_free(s[i]);
    }
}

static void sequences_of_one_pass_keep_their_windows(void **state)
{
    (void)state;
    static struct decoded got[N_PICKED][IN_PASS], want[N_PICKED][IN_PASS];
    struct engine *near = open_near(), *whole = open_for(16, 2 * MOST, N_BATCH);
    int32_t ids[1100];
    assert_in_range(engine_max_parts(near), on_cuda ? 2 : IN_PASS, IN_PASS);
    assert_int_equal(whole->core->reach, 0);
    random_ids(ids, 1100);
    make_passes(near, ids, got);
    make_passes(whole, ids, want);
    for (size_t k = 0; k < N_PICKED; k++)
        for (int i = 0; i < n_in_pass; i++) {
            assert_int_equal(got[k][i].id, want[k][i].id);
            assert_memory_equal(got[k][i].top, want[k][i].top, sizeof got[k][i].top);
        }
    engine_free(near);
    engine_free(whole);
}

// More than there are windows for: some are paused, and evaluated again.
static void more_sequences_than_windows_go_on(void **state)
{
    (void)state;
    enum { N_SEQ = 20 };
    struct engine *e = open_near();
    struct seq *s[N_SEQ];
    struct decoded d;
    size_t n_paused = 0;
    int32_t ids[400];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N_SEQ; i++) {
            if (round == 0)
                s[i] = open_seq(e);
            n_paused += seq_n_past(s[i]) < seq_len(s[i]);
            random_ids(ids, 400);
            go_on(s[i], ids, 300, &d);
            if (i % 5 == 0)
                check(s[i], &d);
        }
    assert_in_range(n_paused, 1, N_SEQ);
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    engine_free(e);
}

// All that s has, in pieces, into a new sequence of e.
static struct seq *move(struct seq *s, struct engine *e, size_t *n_without)
{
    struct seq *t = open_seq(e);
    struct error err = {0};
    *n_without = 0;
    for (size_t at = 0, end, n_bytes; at < seq_n_past(s); at = end) {
        end = at + 100 < seq_n_past(s) ? at + 100 : seq_n_past(s);
        end = seq_exports(s, at, end, &n_bytes);
        void *bytes = malloc(n_bytes + 1);
        if (!seq_export(s, at, end, bytes, &err) ||
            !seq_import(t, seq_ids(s) + at, end - at, bytes, n_bytes, &err))
            fail_msg("%s", err.text);
        assert_int_equal(n_bytes == engine_kv_bytes(e, at, end), s->near[at / block] != NO_BLOCK);
        *n_without += n_bytes < engine_kv_bytes(e, at, end) ? end - at : 0;
        free(bytes);
    }
    return t;
}

static void what_is_exported_goes_on_elsewhere(void **state)
{
    (void)state;
    struct engine *e = open_near(), *one = open_for(on_cuda ? 2 : 1, 8192, N_BATCH);
    struct decoded d;
    int32_t ids[MOST];
    size_t n_without;
    random_ids(ids, MOST);
    for (int i = 0; i < (on_cuda ? 1 : 3); i++) {
        const size_t n = i == 0 ? 37 : block * one->core->near.n_blocks + 100 + 93 * (size_t)i;
        struct seq *s = open_seq(one);
        go_on(s, ids, n, &d);
        struct seq *t = move(s, e, &n_without);
        assert_int_equal(n_without > 0, i > 0);
        assert_int_equal(seq_n_past(t), n);
        go_on(t, ids, 20, &d);
        check(t, &d);
        seq_free(t);
        t = move(s, e, &n_without);
        seq_trim(t, 20); // of a long text nothing near has come of these
        assert_int_equal(seq_n_past(t), i == 0 ? 20 : 0);
        go_on(t, ids, 5, &d);
        check(t, &d);
        seq_free(t);
        seq_free(s);
    }
    engine_free(e);
    engine_free(one);
}

// Bytes of another length are refused, and change nothing.
static void bytes_of_another_length_are_refused(void **state)
{
    (void)state;
    struct engine *e = open_near();
    struct seq *s = open_seq(e);
    struct error err = {0};
    const int32_t ids[20] = {1};
    const size_t n = engine_kv_bytes(e, 0, 20);
    char words[100];
    void *bytes = calloc(1, n + 1);
    const size_t wrong[] = {0, n - 1, n + 1, engine_kv_bytes(e, 0, 19)};
    snprintf(words, sizeof words, "expected %zu", n);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(seq_import(s, ids, 20, bytes, wrong[i], &err));
        assert_non_null(strstr(err.text, words));
        assert_int_equal(seq_len(s), 0);
    }
    assert_true(seq_import(s, ids, 20, bytes, n, &err));
    assert_int_equal(seq_n_past(s), 20);
    free(bytes);
    seq_free(s);
    engine_free(e);
}

// Pieces of a session are larger than a batch may be.
static void a_piece_of_a_session_fits(void **state)
{
    (void)state;
    struct engine *e = open_for(1, 8192, 8);
    struct seq *s = open_seq(e);
    struct error err = {0};
    int32_t *ids = calloc(ENGINE_KV_PIECE, sizeof *ids);
    char *bytes = calloc(1, engine_kv_bytes(e, 0, ENGINE_KV_PIECE));
    assert_true(e->core->reach > 0);
    for (size_t at = 0, end = 37; at < 6000; at = end, end += ENGINE_KV_PIECE)
        if (!seq_import(s, ids, end - at, bytes, engine_kv_bytes(e, at, end), &err))
            fail_msg("%s", err.text);
    assert_int_equal(seq_n_past(s), seq_len(s));
    free(bytes);
    free(ids);
    seq_free(s);
    engine_free(e);
}

// A block of near layers that is not there whole counts as none.
static void what_follows_half_a_block_must_be_there_too(void **state)
{
    (void)state;
    struct engine *e = open_near();
    struct seq *s = open_seq(e);
    struct error err = {0};
    const size_t half = block / 2, end = 3 * block;
    int32_t *ids = calloc(end, sizeof *ids);
    char *bytes = calloc(1, engine_kv_bytes(e, 0, end));
    const size_t n_far = e->core->backend->kv_bytes(e, false, half, block + 10);
    assert_true(seq_import(s, ids, half, bytes, engine_kv_bytes(e, 0, half), &err));
    assert_int_equal(seq_n_past(s), half);
    assert_true(seq_import(s, ids, block + 10 - half, bytes, n_far, &err));
    assert_int_equal(seq_n_past(s), 0);
    const size_t n_rest = engine_kv_bytes(e, block + 10, end); // begins within a block
    assert_true(seq_import(s, ids, end - block - 10, bytes, n_rest, &err));
    assert_int_equal(seq_n_past(s), 0);
    assert_int_equal(near_blocks(s), 0);
    assert_true(seq_import(s, ids, block, bytes, engine_kv_bytes(e, end, end + block), &err));
    assert_int_equal(seq_n_past(s), end + block);
    free(bytes);
    free(ids);
    seq_free(s);
    engine_free(e);
}

int main(int argc, char **argv)
{
    char path[1024];
    struct error err = {0};
    use_device(argc > 1 ? argv[1] : "cpu");
    if (!find_family(argc > 1 && !on_cuda ? argv[1] : "gemma3", path))
        return 0;
    model = model_load(path, &err);
    if (!model) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    n_threads = 1;
    if (quick())
        n_in_pass = 2;
    struct engine *e = open_for(1, 1024, N_BATCH);
    block = e->core->backend->kv_block;
    engine_free(e);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_counts_the_blocks_of_near_layers),
        cmocka_unit_test(random_cuts_and_forks_go_on_as_fresh_sequences_do),
        cmocka_unit_test(sequences_of_one_pass_keep_their_windows),
        cmocka_unit_test(what_is_exported_goes_on_elsewhere),
        cmocka_unit_test(a_piece_of_a_session_fits),
        // of which no device knows anything: the last, where it costs little
        cmocka_unit_test(a_long_text_keeps_a_window_and_where_its_last_turn_began),
        cmocka_unit_test(more_sequences_than_windows_go_on),
        cmocka_unit_test(bytes_of_another_length_are_refused),
        cmocka_unit_test(what_follows_half_a_block_must_be_there_too),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const size_t n_tests = sizeof tests / sizeof *tests - (on_cuda ? 4 : 0);
    const int failed = _cmocka_run_group_tests("windows", tests, n_tests, NULL, NULL);
    model_free(model);
    return failed;
}
