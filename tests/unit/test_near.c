// Layers with a window: which they are, what memory they need, and what of it is given up first.
#include "test.h"

#include "engine/windows.h"
#include "remembering_engine.h"

// Layers with these windows; back: that of which layer, so many before, they have keys and values.
static struct model *model_of(struct layer *layers, const uint32_t *windows, const uint32_t *back,
                              uint32_t n)
{
    static struct model m;
    m = (struct model){.layers = layers};
    m.hp.n_layer = n;
    memset(layers, 0, n * sizeof *layers);
    for (uint32_t i = 0; i < n; i++) {
        layers[i].window = windows[i];
        layers[i].kv_back = back[i];
    }
    return &m;
}

static void near_layers_are_those_whose_keys_and_values_only_windows_see(void **state)
{
    (void)state;
    static const uint32_t windows[] = {8, 0, 16, 16, 12, 1, 0}, back[] = {0, 0, 0, 1, 0, 0, 2};
    static const uint32_t others[] = {0, 2, 0, 1, 2, 0, 1}; // 3 has those of 2, 4 too
    struct layer layers[7];
    struct model *m = model_of(layers, windows, back, 7);
    const bool near[] = {true, false, true, true, false, true, false};
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(windows_layer(m, i), near[i]);
    assert_int_equal(windows_reach(m), 16);
    layers[0].window = 20;
    assert_int_equal(windows_reach(m), 20);
    m = model_of(layers, windows, others, 7); // 1 would have those of a layer before the first
    layers[1].kv_back = 1;
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(windows_layer(m, i), i >= 2 && i <= 4);
    layers[0].mixer = MIXER_CONV; // a model with states has none
    layers[0].conv.n_taps = 2;
    layers[0].conv.n = 1;
    for (uint32_t i = 0; i < 7; i++)
        assert_false(windows_layer(m, i));
    assert_int_equal(windows_reach(m), 0);
}

static void the_blocks_of_near_layers_are_enough_and_no_more(void **state)
{
    (void)state;
    static const struct {
        uint32_t window, n_ctx, n_batch, n_seqs, n_blocks; // worked out by hand; blocks of four
    } cases[] = {
        {10, 10000, 16, 1, 3 + 3 + 2 + 128},  // windows, as much behind them, edges, a piece
        {10, 10000, 16, 2, 4 * 8 + 128},      // one to go on from beside each
        {10, 10000, 16, 3, 6 * 8 + 128},      //
        {10, 10000, 1001, 1, 8 + 251},        // a batch
        {10, 10000, 512, 1, 8 + 128},         //
        {13, 10000, 16, 1, 4 + 4 + 2 + 128},  //
        {1, 10000, 16, 1, 1 + 1 + 2 + 128},   //
        {3000, 10000, 16, 1, 1006 + 2 + 128}, // 1024 behind
        {3001, 10000, 16, 1, 1007 + 2 + 128}, //
        {1024, 10000, 16, 1, 512 + 2 + 128},  //
        {1025, 10000, 16, 1, 513 + 2 + 128},  //
        {10, 548, 16, 1, 136},                // of 137
        {10, 540, 16, 1, 135},                // all
        {10, 538, 16, 1, 135},                //
        {10, 300, 16, 1, 75},                 //
        {0, 10000, 16, 1, 2500},              //
        {0, 9997, 16, 4, 2500},               //
        {0, 9996, 16, 4, 2499},               //
    };
    static const uint32_t back[] = {0, 0, 1, 0};
    struct layer layers[4];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t w = cases[i].window, windows[] = {0, w, w, w};
        const struct model *m = model_of(layers, windows, back, 4);
        const uint32_t n_ctx = cases[i].n_ctx, n_batch = cases[i].n_batch;
        const uint32_t n_seqs = cases[i].n_seqs, n = cases[i].n_blocks;
        struct engine_plan plan = {.n_ctx = n_ctx, .n_near = 9, .near_ctx = 9};
        assert_int_equal(windows_blocks(m, n_ctx, n_batch, n_seqs, 4), n);
        windows_plan(m, n_batch, n_seqs, 4, &plan);
        assert_int_equal(plan.near_ctx, n * 4 < n_ctx ? n * 4 : 0);
        assert_int_equal(plan.n_near, n * 4 < n_ctx ? 2 : 0); // layer 2 has those of layer 1
    }
    assert_int_equal(windows_seqs(0), 1);
    assert_int_equal(windows_seqs(1), 1);
    assert_int_equal(windows_seqs(2), 4);
    assert_int_equal(windows_seqs(5), 10);
}

static void sample(struct seq *s, size_t n)
{
    struct error err = {0};
    struct decoded d;
    uint64_t ticket;
    while (n-- > 0) {
        const struct work w = {.seq = s, .n = s->n_past < s->ids.len, .n_pick = 1};
        if (!engine_submit(seq_engine(s), &w, 1, NULL, &ticket, &err) ||
            !engine_wait(seq_engine(s), ticket, NULL, &d, &err))
            fail_msg("%s", err.text);
    }
}

// Whatever is done meanwhile to go back to where the last turn began costs nothing.
static void the_window_of_the_last_turns_beginning_is_kept(void **state)
{
    struct remembering e;
    struct error err = {0};
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 900, .n_batch = 40, .n_seqs = 1, .window = 11});
    assert_int_equal(e.core.near.n_blocks, 8 + 128);
    struct seq *s = open_seq(&e);
    read_to(s, 200);
    read_to(s, 300);
    assert_int_equal(s->turn, 0); // one text, in pieces
    assert_int_equal(s->given, 300);
    seq_trim(s, 299);
    const int32_t id = 5;
    const struct work w = {.seq = s, .ids = &id, .n = 1, .n_pick = 1};
    uint64_t ticket;
    struct decoded d;
    assert_true(engine_submit(&e.base, &w, 1, NULL, &ticket, &err));
    assert_true(engine_wait(&e.base, ticket, NULL, &d, &err));
    sample(s, 20);
    assert_int_equal(s->n_past, 320);
    assert_int_equal(s->turn, 0);
    read_to(s, 340); // what was sampled last, too
    assert_int_equal(s->turn, 320);
    read_to(s, 350);
    assert_int_equal(s->turn, 320);
    struct seq *f = seq_fork(s, 350, &err);
    assert_int_equal(f->turn, 320);
    assert_int_equal(f->given, 350);
    seq_free(f);
    read_to(s, 890);
    assert_int_equal(kv_pool_free(&e.core.near), 0);
    assert_int_equal(s->turn, 320);
    f = seq_fork(s, 320, &err); // is whole there, and for what is written behind it
    assert_int_equal(seq_n_past(f), 320);
    seq_free(f);
    f = seq_fork(s, 316, &err);
    assert_int_equal(seq_n_past(f), 0);
    seq_free(f);
    seq_trim(s, 330);
    assert_int_equal(seq_n_past(s), 320);
    seq_trim(s, 318); // behind its beginning another begins
    read_to(s, 500);
    assert_int_equal(s->turn, 318);
    seq_trim(s, 200);
    assert_int_equal(seq_n_past(s), 0);
    read_to(s, 210);
    assert_int_equal(s->turn, 0);
    seq_free(s);
    engine_free(&e.base);
}

// Beginnings give way before anybody loses a window.
static void a_turns_beginning_gives_way_before_anyone_is_paused(void **state)
{
    enum { N = 32 };
    struct remembering e;
    struct seq *s[N];
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 4000, .n_batch = 40, .n_seqs = 1, .window = 11});
    assert_int_equal(e.core.near.n_blocks, 8 + 128);
    for (int i = 0; i < N; i++) {
        s[i] = open_seq(&e);
        read_to(s[i], 40);
        seq_trim(s[i], 39);
        const int32_t id = 5;
        const struct work w = {.seq = s[i], .ids = &id, .n = 1, .n_pick = 1};
        struct error err = {0};
        struct decoded d;
        uint64_t ticket;
        assert_true(engine_submit(&e.base, &w, 1, NULL, &ticket, &err));
        assert_true(engine_wait(&e.base, ticket, NULL, &d, &err));
        sample(s[i], 10);
        read_to(s[i], 100);
        assert_int_equal(s[i]->turn, 50);
        for (int k = 0; k <= i; k++)
            assert_int_equal(seq_n_past(s[k]), 100);
    }
    for (int i = 0; i < N; i++)
        seq_free(s[i]);
    engine_free(&e.base);
}

// Of one work: none is paused for another.
static void works_that_need_more_windows_than_there_are_fail(void **state)
{
    enum { N = 40 };
    struct remembering e;
    struct seq *s[N];
    struct work w[N];
    struct error err = {0};
    static const int32_t ids[16] = {1, 2, 3};
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 900, .n_batch = 40, .n_seqs = 1, .window = 40});
    assert_int_equal(e.core.near.n_blocks, 22 + 128);
    for (int i = 0; i < N; i++) {
        s[i] = open_seq(&e);
        w[i] = (struct work){.seq = s[i], .ids = ids, .n = 16};
    }
    assert_false(engine_submit(&e.base, w, N, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    for (int i = 0; i < N; i++)
        assert_int_equal(seq_n_past(s[i]), i < 37 ? 16 : 0);
    assert_true(engine_submit(&e.base, &w[37], 1, NULL, NULL, &err)); // alone
    assert_int_equal(seq_n_past(s[36]), 0);
    for (int i = 0; i < N; i++)
        seq_free(s[i]);
    engine_free(&e.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_layers_are_those_whose_keys_and_values_only_windows_see),
        cmocka_unit_test(the_blocks_of_near_layers_are_enough_and_no_more),
        cmocka_unit_test(the_window_of_the_last_turns_beginning_is_kept),
        cmocka_unit_test(a_turns_beginning_gives_way_before_anyone_is_paused),
        cmocka_unit_test(works_that_need_more_windows_than_there_are_fail),
    };
    return RUN_TESTS("near", tests);
}
