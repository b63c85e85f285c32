// Sequences of a model with a recurrent state, which nothing can be cut from: however one came to
// its tokens (appended, cut, forked, paused), it goes on as a fresh one does, bit for bit.
// `test_states cpu` (the default), or cuda, with shorter texts on the emulation: an engine for
// several sequences, of which that is promised, too. Then the family of the model.
#include "sequences.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/states.h"

enum { MOST = 1500 };

static struct engine *open_engine(uint32_t n_ctx, uint32_t n_batch)
{
    return open_for(4, n_ctx, n_batch);
}

// The same of a fresh sequence with the tokens of s.
static void check(struct seq *s, const struct decoded *got)
{
    check_on(open_engine(2048, 512), s, got);
}

static void test_random_cuts_and_forks_go_on_as_fresh_sequences_do(void **state)
{
    (void)state;
    enum { N_SEQ = 3 };
    const uint32_t n_steps = on_cuda ? 5 : 60, longest = on_cuda ? 50 : 600;
    struct engine *e = open_engine(6000, 64);
    struct seq *s[N_SEQ];
    struct error err = {0};
    struct decoded d;
    int32_t ids[700];
    for (int i = 0; i < N_SEQ; i++)
        s[i] = open_seq(e);
    for (int step = 0; step < (int)n_steps; step++) {
        const uint32_t k = below(N_SEQ), how = below(4), len = (uint32_t)seq_len(s[k]);
        size_t n = how == 0 ? 1 + below(longest) : 1 + below(20);
        if (how == 1)
            seq_trim(s[k], below(len + 1));
        if (how == 2 && len > 0)
            seq_trim(s[k], len - 1 - below(len < 5 ? len : 5));
        if (how == 3) {
            struct seq *f = seq_fork(s[k], below(len + 1), &err);
            assert_non_null(f);
            const uint32_t other = (k + 1) % N_SEQ;
            seq_free(s[other]);
            s[other] = f;
        }
        for (uint32_t i = 0; i < N_SEQ; i++) { // a fork and what it was made of, too
            if (i != k && how != 3)
                continue;
            if (seq_len(s[i]) + n > (on_cuda ? 200 : MOST))
                seq_trim(s[i], on_cuda ? 20 : 100);
            random_ids(ids, n);
            go_on(s[i], ids, n, &d);
            check(s[i], &d);
        }
    }
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    engine_free(e);
}

static void test_the_beginning_and_the_end_of_a_turn_are_kept(void **state)
{
    (void)state;
    struct engine *e = open_engine(4096, 64);
    struct seq *s = open_seq(e);
    struct decoded d;
    int32_t ids[3000];
    random_ids(ids, 3000);
    go_on(s, ids, 300, &d);
    for (int i = 0; i < 10; i++) // an answer
        go_on(s, ids + 300 + i, 1, &d);
    go_on(s, ids + 310, 50, &d);
    seq_trim(s, 350);
    assert_int_equal(seq_n_past(s), 310);
    go_on(s, ids, 2, &d);
    seq_trim(s, 305);
    assert_int_equal(seq_n_past(s), 300);
    assert_int_equal(seq_len(s), 305);
    go_on(s, ids, 1, &d);
    struct error err = {0};
    struct seq *f = seq_fork(s, seq_len(s) - 1, &err); // its last token is not taken back
    go_on(f, ids, 3, &d);
    check(f, &d);
    seq_free(f);
    if (!on_cuda) { // of one long text, no more than 512 and a batch
        go_on(s, ids, 2500, &d);
        seq_trim(s, 2400);
        assert_in_range(seq_n_past(s), 2400 - 512 - 64, 2400);
    }
    seq_trim(s, 0);
    assert_int_equal(seq_n_past(s), 0);
    seq_free(s);
    engine_free(e);
}

// n pieces of a text, behind each of which a state is marked.
static void read_pieces(struct seq *s, size_t n, size_t piece)
{
    int32_t ids[64];
    struct decoded d;
    for (size_t i = 0; i < n; i++) {
        random_ids(ids, piece);
        go_on(s, ids, piece, &d);
    }
}

// In host memory or not, a state is what it was: what goes on from each has the bits of a fresh
// one.
static void test_states_without_a_slot_come_back_from_host_memory(void **state)
{
    (void)state;
    enum { N_SLOTS = 5, N_SEQ = 2 };
    const size_t n = on_cuda ? 5 : 16, piece = on_cuda ? 12 : 60;
    struct engine *e = open_engine(8000, 64);
    struct seq *s[N_SEQ];
    struct error err = {0};
    struct decoded d;
    int32_t ids[8];
    const size_t all = e->core->most_copies;
    assert_in_range(all, N_SEQ * n, SIZE_MAX);
    leave_slots(e, N_SLOTS);
    assert_int_equal(e->core->spares_copies, on_cuda);
    e->core->spares_copies = false;
    for (int i = 0; i < N_SEQ; i++) {
        s[i] = open_seq(e);
        read_pieces(s[i], n, piece);
    }
    for (int i = 0; i < N_SEQ; i++) {
        size_t pos[64];
        assert_int_equal(seq_states(s[i], pos, 64), n);
        for (size_t k = i; k < n; k += on_cuda ? 3 : 1) {
            struct seq *f = seq_fork(s[i], k + 1 < n ? pos[k] + 1 : pos[k], &err);
            assert_non_null(f);
            assert_int_equal(seq_n_past(f), pos[k]);
            random_ids(ids, 8);
            go_on(f, ids, 8, &d);
            check(f, &d);
            seq_free(f);
        }
    }
    for (size_t k = n - 1; k > 0; k -= on_cuda ? 2 : 1) { // back, and on from there
        seq_trim(s[0], k * piece + 3);
        assert_int_equal(seq_n_past(s[0]), k * piece);
        go_on(s[0], ids, 5, &d);
        check(s[0], &d);
        seq_trim(s[0], k * piece);
    }
    e->core->most_copies = 2; // fewer than there are: no more come, and none is missed
    read_pieces(s[1], 2, piece);
    go_on(s[1], ids, 3, &d);
    check(s[1], &d);
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    assert_int_equal(e->core->n_copies, 0);
    engine_free(e);
}

static uint64_t planned_kv(uint32_t n_ctx)
{
    const struct engine_params p = {
        .n_ctx = n_ctx, .n_seqs = 4, .devices = n_devices > 1 ? (1u << n_devices) - 1 : 0};
    const struct engine_plan plan = plan_with(&p);
    assert_in_range(plan.host_states, 1, UINT64_C(4) << 30);
    return plan.kv;
}

// Keys and values grow with the context, states do not.
static void test_a_plan_counts_all_slots(void **state)
{
    (void)state;
    enum { SLACK = 1 << 16 }; // of what is aligned
    struct engine *e = open_engine(4096, 512);
    const uint64_t each = engine_state_bytes(e), planned = 2 * planned_kv(4096) - planned_kv(8192);
    assert_in_range(planned, e->n_states * each, (e->n_states + 1) * each + SLACK);
    engine_free(e);
}

// ---- states within a piece

// The state of s after pos tokens; to be freed.
static float *state_after(struct seq *s, size_t pos)
{
    struct error err = {0};
    float *x = malloc(engine_state_bytes(seq_engine(s)));
    if (!seq_export_state(s, pos, x, &err))
        fail_msg("%s", err.text);
    return x;
}

// The states of a and b after so many tokens; alike: in all bits, or but for rounding.
static void compare_states(struct seq *a, struct seq *b, size_t pos, bool alike)
{
    const size_t n = engine_state_bytes(seq_engine(a)) / sizeof(float);
    float *x = state_after(a, pos), *y = state_after(b, pos);
    double size = 0, off = 0;
    assert_int_equal(engine_state_bytes(seq_engine(b)) / sizeof(float), n);
    for (size_t i = 0; i < n; i++) {
        size += (double)x[i] * x[i];
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    }
    if (alike)
        assert_memory_equal(x, y, n * sizeof *x);
    assert_true(size > 0 && off <= 1e-4 * size);
    free(x);
    free(y);
}

// s goes on from each of its states as a fresh sequence does.
static void goes_on_from_each(struct seq *s)
{
    size_t pos[8];
    struct error err = {0};
    struct decoded d;
    int32_t ids[5];
    for (size_t i = seq_states(s, pos, 8); i > 0; i -= on_cuda && i > 1 ? 2 : 1) {
        struct seq *f = seq_fork(s, pos[i - 1], &err);
        assert_non_null(f);
        assert_int_equal(seq_n_past(f), pos[i - 1]);
        random_ids(ids, 5);
        go_on(f, ids, 5, &d);
        check(f, &d);
        seq_free(f);
    }
}

// Where and what they are is a matter of the text, not of how much of it is evaluated at once.
static void test_states_within_a_piece_are_those_of_shorter_pieces(void **state)
{
    (void)state;
    static const uint32_t batches[] = {2048, 1024, 100, 1};
    static const struct {
        uint32_t n_seqs;
        bool exact, alike;
    } kinds[] = {{4, false, true}, {1, true, true}, {1, false, false}};
    const size_t n = on_cuda ? 1050 : 2000;
    struct decoded want, d;
    int32_t ids[2000];
    size_t pos[8], again[8];
    random_ids(ids, n);
    for (size_t k = 0; k < (on_cuda ? 3 : 1); k++) {
        exact = kinds[k].exact;
        struct engine *e = open_for(kinds[k].n_seqs, 2048, 512);
        struct seq *s = open_seq(e);
        go_on(s, ids, n, &want);
        const size_t n_states = seq_states(s, pos, 8);
        assert_int_equal(n_states, n / STATES_EVERY + 1);
        for (size_t i = 0; i + 1 < n_states; i++)
            assert_int_equal(pos[i], (i + 1) * STATES_EVERY);
        for (size_t i = 0; i < (on_cuda ? 1 : 4); i++) {
            struct engine *other = open_for(kinds[k].n_seqs, 4096, batches[i]);
            struct seq *t = open_seq(other);
            go_on(t, ids, n, &d);
            if (kinds[k].alike)
                assert_alike(&d, &want);
            compare_states(t, s, n, kinds[k].alike);
            if (batches[i] > STATES_EVERY) {
                assert_int_equal(seq_states(t, again, 8), n_states);
                assert_memory_equal(again, pos, n_states * sizeof *pos);
                for (size_t j = 0; j < n_states; j++)
                    compare_states(t, s, pos[j], kinds[k].alike);
            }
            if (batches[i] == 2048 && k == 0)
                goes_on_from_each(t);
            seq_free(t);
            engine_free(other);
        }
        seq_free(s);
        engine_free(e);
    }
    exact = false;
}

// Beside each other in one pass, each with states of its own on the way.
static void test_pieces_of_one_pass_keep_their_states(void **state)
{
    (void)state;
    enum { N_SEQ = 3 };
    const size_t n[N_SEQ] = {3, 520, on_cuda ? 600 : 1100};
    struct engine *e = open_engine(4096, 2048), *alone = open_engine(2048, 512);
    struct seq *s[N_SEQ];
    struct work w[N_SEQ];
    struct error err = {0};
    struct decoded d;
    int32_t ids[1100];
    random_ids(ids, 1100);
    for (int i = 0; i < N_SEQ; i++) {
        s[i] = open_seq(e);
        go_on(s[i], ids + i, 7, &d);
        w[i] = (struct work){.seq = s[i], .ids = ids, .n = n[i]};
    }
    if (!engine_submit(e, w, N_SEQ, NULL, NULL, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < N_SEQ; i++) {
        struct seq *t = open_seq(alone);
        size_t pos[8];
        go_on(t, ids + i, 7, &d);
        go_on(t, ids, n[i], &d);
        const size_t n_states = seq_states(t, pos, 8);
        assert_int_equal(n_states, 2 + n[i] / STATES_EVERY);
        for (size_t j = 0; j < n_states; j++)
            compare_states(s[i], t, pos[j], true);
        seq_free(t);
        goes_on_from_each(s[i]);
        seq_free(s[i]);
    }
    engine_free(alone);
    engine_free(e);
}

// As many tokens at once as there are slots for: all states are there all the same, some of them in
// host memory.
static void test_a_piece_is_shorter_where_slots_are_few(void **state)
{
    (void)state;
    const size_t n = on_cuda ? 1050 : 2000;
    int32_t ids[2000];
    struct decoded d;
    random_ids(ids, n);
    for (uint32_t n_slots = 2; n_slots <= (on_cuda ? 2 : 3); n_slots++) {
        struct engine *e = open_engine(4096, 2048);
        size_t pos[8];
        leave_slots(e, n_slots);
        e->core->spares_copies = false;
        struct seq *s = open_seq(e);
        go_on(s, ids, n, &d);
        check(s, &d);
        assert_int_equal(seq_states(s, pos, 8), n / STATES_EVERY + 1);
        seq_trim(s, 1040);
        assert_int_equal(seq_n_past(s), 1024);
        go_on(s, ids, 20, &d);
        check(s, &d);
        seq_free(s);
        engine_free(e);
    }
}

struct late_cancel {
    struct cancel cancel;
    useconds_t after;
};

static void *ask_late(void *arg)
{
    struct late_cancel *c = arg;
    usleep(c->after);
    cancel_ask(&c->cancel);
    return NULL;
}

// Whenever that is asked for: before it begins, or at some time, which may be behind its end.
static void test_a_piece_that_is_interrupted_leaves_what_was_before(void **state)
{
    (void)state;
    const size_t n = on_cuda ? 1050 : 2000;
    struct engine *e = open_engine(4096, 2048);
    struct seq *s = open_seq(e);
    struct decoded d;
    int32_t ids[2000];
    random_ids(ids, n);
    go_on(s, ids, 30, &d);
    static const useconds_t moments[] = {0, 100, 300, 900, 2700, 8100, 24300};
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        struct late_cancel c = {.after = moments[i]};
        struct error err = {0};
        pthread_t thread;
        const size_t n_free = kv_pool_free(&e->core->states);
        const struct work w = {.seq = s, .ids = ids, .n = n};
        assert_int_equal(pthread_create(&thread, NULL, ask_late, &c), 0);
        if (i == 0)
            pthread_join(thread, NULL);
        const bool done = engine_submit(e, &w, 1, &c.cancel, NULL, &err);
        if (i > 0)
            pthread_join(thread, NULL);
        assert_true(!done || i > 0);
        if (!done) {
            assert_int_equal(err.code, ERR_INTERRUPTED);
            assert_int_equal(seq_len(s), 30);
            assert_int_equal(seq_n_past(s), 30);
            assert_int_equal(kv_pool_free(&e->core->states), n_free);
        }
        seq_trim(s, 30);
    }
    go_on(s, ids, n, &d);
    check(s, &d);
    seq_trim(s, 600);
    assert_int_equal(seq_n_past(s), 30 + STATES_EVERY);
    seq_free(s);
    engine_free(e);
}

static void test_more_sequences_than_states_go_on(void **state)
{
    (void)state;
    struct engine *e = open_engine(80000, 64);
    enum { N_SEQ = 300 };
    struct seq *s[N_SEQ];
    struct decoded d;
    int32_t ids[30];
    assert_in_range(e->n_states, 8, N_SEQ - 1);
    assert_in_range(engine_max_parts(e), 2, e->n_states / 2);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N_SEQ; i++) {
            if (round == 0)
                s[i] = open_seq(e);
            random_ids(ids, 30);
            go_on(s[i], ids, 10 + below(20), &d);
            if (i % 37 == 0)
                check(s[i], &d);
        }
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    engine_free(e);
}

static void test_sequences_of_one_pass_keep_their_states(void **state)
{
    (void)state;
    enum { N_SEQ = 4 };
    const int n_steps = on_cuda ? 5 : 12;
    struct engine *e = open_engine(4000, 64);
    struct seq *s[N_SEQ];
    struct error err = {0};
    struct decoded d;
    int32_t ids[16];
    for (int i = 0; i < N_SEQ; i++)
        s[i] = open_seq(e);
    for (int step = 0; step < n_steps; step++) {
        struct work w[N_SEQ];
        random_ids(ids, 16);
        for (int i = 0; i < N_SEQ; i++)
            w[i] = (struct work){.seq = s[i], .ids = ids + i, .n = 1 + below(12)};
        if (!engine_submit(e, w, N_SEQ, NULL, NULL, &err))
            fail_msg("%s", err.text);
    }
    for (int i = 0; i < N_SEQ; i++) {
        go_on(s[i], ids, 1, &d);
        check(s[i], &d);
        seq_free(s[i]);
    }
    engine_free(e);
}

// What s has: keys and values in two pieces, and of its states the last `most`.
struct exported {
    struct ids ids;
    size_t n_past, cut, pos[3], n_states;
    char *kv[2], *states[3];
};

static void export_all(struct seq *s, size_t most, struct exported *x)
{
    const struct engine *e = seq_engine(s);
    struct error err = {0};
    *x = (struct exported){.n_past = seq_n_past(s), .cut = seq_n_past(s) / 3};
    ids_append(&x->ids, seq_ids(s), seq_len(s));
    for (int i = 0; i < 2; i++) {
        const size_t begin = i ? x->cut : 0, end = i ? x->n_past : x->cut;
        x->kv[i] = malloc(engine_kv_bytes(e, begin, end) + 1);
        assert_true(seq_export(s, begin, end, x->kv[i], &err));
    }
    x->n_states = seq_states(s, x->pos, most);
    assert_int_equal(x->n_states, most);
    assert_int_equal(x->pos[most - 1], x->n_past);
    for (size_t i = 0; i < most; i++) {
        x->states[i] = malloc(engine_state_bytes(e));
        assert_true(seq_export_state(s, x->pos[i], x->states[i], &err));
    }
}

static void release_exported(struct exported *x)
{
    ids_release(&x->ids);
    for (int i = 0; i < 3; i++)
        free(x->states[i]);
    free(x->kv[0]);
    free(x->kv[1]);
}

// Positions and the first n_states states of x.
static struct seq *import_some(struct engine *e, const struct exported *x, size_t n_states)
{
    struct seq *s = open_seq(e);
    struct error err = {0};
    assert_true(seq_import(s, x->ids.data, x->cut, x->kv[0], engine_kv_bytes(e, 0, x->cut), &err));
    assert_true(seq_import(s, x->ids.data + x->cut, x->n_past - x->cut, x->kv[1],
                           engine_kv_bytes(e, x->cut, x->n_past), &err));
    assert_int_equal(seq_len(s), x->n_past);
    assert_int_equal(seq_n_past(s), 0); // not without a state
    for (size_t i = 0; i < n_states; i++)
        assert_true(seq_import_state(s, x->pos[i], x->states[i], &err));
    assert_int_equal(seq_n_past(s), n_states > 0 ? x->pos[n_states - 1] : 0);
    return s;
}

static void test_what_is_imported_goes_on_where_its_last_state_is(void **state)
{
    (void)state;
    enum { MOST_STATES = 3 };
    struct engine *a = open_engine(4096, 64), *b = open_engine(4096, 512);
    struct seq *s = open_seq(a);
    struct error err = {0};
    struct decoded d;
    const size_t half = on_cuda ? 30 : 350, all = 2 * half + 5;
    int32_t ids[800];
    char words[100];
    struct exported x;
    random_ids(ids, 800);
    go_on(s, ids, half, &d);
    go_on(s, ids + half, half, &d);
    for (size_t i = 2 * half; i < all; i++) // an answer
        go_on(s, ids + i, 1, &d);
    export_all(s, MOST_STATES, &x);
    for (size_t n = 0; n <= MOST_STATES; n++) {
        struct seq *t = import_some(b, &x, n);
        go_on(t, ids + all, 20, &d);
        check(t, &d);
        seq_free(t);
    }
    struct seq *t = import_some(b, &x, MOST_STATES); // it can go back to the others
    seq_trim(t, x.n_past - 1);
    assert_int_equal(seq_n_past(t), x.pos[MOST_STATES - 2]);
    go_on(t, ids + all, 20, &d);
    check(t, &d);
    seq_free(t);
    t = import_some(b, &x, 0);
    assert_false(seq_import_state(t, x.n_past + 1, x.states[0], &err));
    snprintf(words, sizeof words, "a state after %zu tokens: expected more than 0, and %zu",
             all + 1, all);
    assert_non_null(strstr(err.text, words));
    seq_trim(t, half + 10); // what is cut off has no keys and values any more
    assert_false(seq_import_state(t, x.n_past, x.states[MOST_STATES - 1], &err));
    go_on(t, ids, 3, &d);
    check(t, &d);
    assert_false(seq_export_state(t, 7, x.states[0], &err));
    assert_non_null(strstr(err.text, "the state after 7 tokens is not kept"));
    seq_free(t);
    release_exported(&x);
    seq_free(s);
    engine_free(b);
    engine_free(a);
}

// Three tickets of a sequence are asked for before the first is waited for.
static void answer(struct seq *s, bool ahead, struct decoded *out, size_t n)
{
    struct engine *e = seq_engine(s);
    struct error err = {0};
    uint64_t tickets[16];
    size_t asked = 0;
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) {
        for (; asked < n && asked <= i + (ahead ? ENGINE_RUN_AHEAD : 0); asked++) {
            const int32_t first = 5;
            const struct work w = {s, asked ? NULL : &first, 1, .n_pick = 1};
            if (!engine_submit(e, &w, 1, NULL, &tickets[asked], &err))
                fail_msg("%s", err.text);
        }
        if (!engine_wait(e, tickets[i], NULL, &out[i], &err))
            fail_msg("%s", err.text);
    }
}

// The device evaluates what the host does not know yet. Where an answer is cut the state is that of
// the tokens that are left, and not of those.
static void test_what_is_evaluated_ahead_has_states_of_its_own(void **state)
{
    (void)state;
    enum { N = 9 };
    struct engine *e = open_for(1, 600, 64);
    struct seq *a = open_seq(e), *b = open_seq(e);
    struct decoded da[N], db[N], next_a, next_b;
    struct error err = {0};
    int32_t ids[40];
    random_ids(ids, 40);
    go_on(a, ids, 40, &next_a);
    go_on(b, ids, 40, &next_b);
    assert_alike(&next_a, &next_b);
    answer(a, true, da, N);
    answer(b, false, db, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(da[i].id, db[i].id);
        assert_alike(&da[i], &db[i]);
    }
    go_on(a, ids, 1, &next_a);
    go_on(b, ids, 1, &next_b);
    assert_alike(&next_a, &next_b);
    for (size_t n = 1; n <= ENGINE_RUN_AHEAD; n++) {
        uint64_t tickets[1 + ENGINE_RUN_AHEAD];
        const size_t len = seq_len(a);
        for (size_t i = 0; i <= ENGINE_RUN_AHEAD; i++) {
            const struct work w = {a, i ? NULL : ids, 1, .n_pick = 1};
            if (!engine_submit(e, &w, 1, NULL, &tickets[i], &err))
                fail_msg("%s", err.text);
        }
        for (size_t i = 0; i < n; i++)
            assert_true(engine_wait(e, tickets[i], NULL, &da[i], &err));
        seq_trim(a, len + n); // the last of them is not evaluated
        assert_int_equal(seq_n_past(a), len + n);
        for (size_t i = 0; i < n; i++) {
            const int32_t id = i ? da[i - 1].id : ids[0];
            go_on(b, &id, 1, &next_b);
            assert_alike(&da[i], &next_b);
        }
        go_on(a, ids, 1, &next_a);
        go_on(b, ids, 1, &next_b);
        assert_alike(&next_a, &next_b);
    }
    seq_free(a);
    seq_free(b);
    engine_free(e);
}

// What is evaluated ahead needs slots, which marks give away while the device works.
static void test_states_move_to_host_memory_while_the_device_is_ahead(void **state)
{
    (void)state;
    enum { N = 9, N_PIECES = 4, PIECE = 11, N_SLOTS = 5 };
    struct engine *e[2] = {open_for(1, 600, 64), open_for(1, 600, 64)};
    struct seq *s[2];
    struct decoded d[2], picks[2][N];
    int32_t ids[PIECE];
    leave_slots(e[1], N_SLOTS);
    for (int k = 0; k < 2; k++)
        s[k] = open_seq(e[k]);
    for (int i = 0; i < N_PIECES; i++) {
        random_ids(ids, PIECE);
        for (int k = 0; k < 2; k++)
            go_on(s[k], ids, PIECE, &d[k]);
        assert_alike(&d[0], &d[1]);
    }
    assert_int_equal(e[1]->core->n_copies, 0);
    for (int k = 0; k < 2; k++)
        answer(s[k], true, picks[k], N);
    for (int i = 0; i < N; i++)
        assert_alike(&picks[0][i], &picks[1][i]);
    assert_int_equal(e[0]->core->n_copies, 0);
    assert_in_range(e[1]->core->n_copies, 1, N_PIECES);
    for (size_t n = N_PIECES; n > 0; n--) {
        for (int k = 0; k < 2; k++) {
            seq_trim(s[k], n * PIECE);
            assert_int_equal(seq_n_past(s[k]), n * PIECE);
            answer(s[k], true, picks[k], 3);
        }
        for (int i = 0; i < 3; i++)
            assert_alike(&picks[0][i], &picks[1][i]);
    }
    for (int k = 0; k < 2; k++) {
        seq_free(s[k]);
        engine_free(e[k]);
    }
}

// test_states [cpu|cuda] [FAMILY]
int main(int argc, char **argv)
{
    char path[1024];
    struct error err = {0};
    use_device(argc > 1 ? argv[1] : "cpu");
    if (!find_family(argc > 2 ? argv[2] : "qwen35", path))
        return 0;
    model = model_load(path, &err);
    if (!model) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_cuts_and_forks_go_on_as_fresh_sequences_do),
        cmocka_unit_test(test_the_beginning_and_the_end_of_a_turn_are_kept),
        cmocka_unit_test(test_sequences_of_one_pass_keep_their_states),
        cmocka_unit_test(test_what_is_evaluated_ahead_has_states_of_its_own),
        cmocka_unit_test(test_states_without_a_slot_come_back_from_host_memory),
        cmocka_unit_test(test_states_move_to_host_memory_while_the_device_is_ahead),
        cmocka_unit_test(test_states_within_a_piece_are_those_of_shorter_pieces),
        cmocka_unit_test(test_pieces_of_one_pass_keep_their_states),
        cmocka_unit_test(test_a_piece_is_shorter_where_slots_are_few),
        cmocka_unit_test(test_a_piece_that_is_interrupted_leaves_what_was_before),
        cmocka_unit_test(test_a_plan_counts_all_slots),
        cmocka_unit_test(test_what_is_imported_goes_on_where_its_last_state_is),
        // of which no device knows anything: the last, where it costs little
        cmocka_unit_test(test_more_sequences_than_states_go_on),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const size_t n_tests = sizeof tests / sizeof *tests - on_cuda;
    const int failed = _cmocka_run_group_tests("states", tests, n_tests, NULL, NULL);
    model_free(model);
    return failed;
}
