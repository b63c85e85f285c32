// Recurrent states within a piece of a text that is evaluated at once: where they are kept, how
// many tokens a piece has, where slots are few. On an engine that looks at all of its memory
// (remembering_engine.h): what is written to each slot, and what is gone on from.
#include "test.h"

#include "remembering_engine.h"

enum { N_CTX = 6000 };

static void init(struct remembering *e, uint32_t n_batch, uint32_t n_states, bool alike)
{
    rem_init(
        e,
        &(struct rem_params){
            .n_ctx = N_CTX, .n_batch = n_batch, .n_seqs = 4, .n_states = n_states, .alike = alike});
}

static void submit(struct remembering *e, const struct work *w, size_t n)
{
    struct error err = {0};
    if (!engine_submit(&e->base, w, n, NULL, NULL, &err))
        fail_msg("%s", err.text);
}

// No slot is lost.
static void release(struct remembering *e)
{
    assert_int_equal(kv_pool_free(&e->core.states), e->base.n_states);
    engine_free(&e->base);
}

// However many of its tokens are evaluated at once.
static void of_a_long_text_a_state_is_kept_every_512_tokens(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_batch;
        size_t n_passes, marks[4];
    } cases[] = {
        {64, 24, {512, 1024, 1500}}, // 8 * 64 = 512
        {73, 21, {511, 1022, 1500}}, // 7 * 73 = 511
        {100, 15, {500, 1000, 1500}}, {512, 3, {512, 1024, 1500}},  {513, 3, {512, 1024, 1500}},
        {1000, 3, {512, 1024, 1500}}, {1024, 2, {512, 1024, 1500}}, {1025, 2, {512, 1024, 1500}},
        {1535, 2, {512, 1024, 1500}}, {1536, 1, {512, 1024, 1500}}, {2048, 1, {512, 1024, 1500}},
    };
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        struct remembering e;
        const size_t i = k / 2, whole = cases[i].n_batch / STATES_EVERY * STATES_EVERY;
        init(&e, cases[i].n_batch, 20, k % 2);
        assert_int_equal(engine_max_rows(&e.base), whole ? whole : cases[i].n_batch);
        struct seq *s = open_seq(&e);
        read_to(s, 1500);
        assert_int_equal(e.n_passes, cases[i].n_passes);
        rem_has_states_after(s, cases[i].marks);
        seq_trim(s, 1400);
        assert_int_equal(seq_n_past(s), cases[i].marks[1]);
        seq_free(s);
        release(&e);
    }
}

// Where turns begin and end, and behind that, as with pieces of 512.
static void pieces_of_2048_keep_the_states_of_pieces_of_512(void **state)
{
    static const size_t ends[] = {1, 2, 300, 301, 813, 814, 1400, 1912, 1913, 4000, 5000};
    (void)state;
    for (int k = 0; k < 2; k++) {
        size_t pos[2][64], n[2], n_passes[2];
        for (int i = 0; i < 2; i++) {
            struct remembering e;
            init(&e, i ? 2048 : 512, 40, k);
            struct seq *s = open_seq(&e);
            for (size_t j = 0; j < sizeof ends / sizeof *ends; j++)
                read_to(s, ends[j]);
            n[i] = seq_states(s, pos[i], 64);
            n_passes[i] = e.n_passes;
            for (size_t j = n[i]; j-- > 0;) { // it goes on from each
                seq_trim(s, pos[i][j]);
                assert_int_equal(seq_n_past(s), pos[i][j]);
                read_to(s, pos[i][j] + 2);
            }
            seq_free(s);
            release(&e);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(pos[0], pos[1], n[0] * sizeof *pos[0]);
        assert_int_equal(n_passes[1], n_passes[0] - 5);
    }
}

static void a_piece_has_no_more_states_than_a_pass_can_have(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct remembering e;
        init(&e, N_CTX, 40, k);
        assert_int_equal(engine_max_rows(&e.base), STATES_AT_ONCE * STATES_EVERY);
        struct seq *s = open_seq(&e);
        read_to(s, 5500);
        assert_int_equal(e.n_passes, 2);
        seq_trim(s, 5499);
        assert_int_equal(seq_n_past(s), 5120);
        seq_trim(s, 4095);
        assert_int_equal(seq_n_past(s), 3584);
        seq_free(s);
        release(&e);
    }
}

// A piece has as many tokens as there are slots for, and nothing is refused that one of 512 has.
static void where_slots_are_few_pieces_are_shorter(void **state)
{
    (void)state;
    static const size_t n_passes[][2] = {
        // of 2,000 tokens, then as many again, where others have slots, of which not all go
        [2] = {3, 4},
        [3] = {2, 4},
        [4] = {1, 3},
        [5] = {1, 2},
    };
    for (uint32_t n_states = 2; n_states <= 5; n_states++)
        for (int k = 0; k < 2; k++) {
            struct remembering e;
            init(&e, 2048, n_states, k);
            struct seq *s = open_seq(&e);
            read_to(s, 2000);
            assert_int_equal(e.n_passes, n_passes[n_states][0]);
            e.n_passes = 0;
            read_to(s, 4000);
            assert_int_equal(e.n_passes, n_passes[n_states][1]);
            seq_free(s);
            release(&e);
        }
}

static void nobody_is_paused_for_states_within_a_piece(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct remembering e;
        init(&e, 2048, 5, k);
        struct seq *a = open_seq(&e), *b = open_seq(&e), *c = open_seq(&e);
        read_to(a, 20);
        read_to(b, 30);
        e.n_passes = 0;
        read_to(c, 2000); // with three slots
        assert_int_equal(e.n_passes, 2);
        read_to(c, 4000); // with two, then with three
        assert_int_equal(seq_n_past(a), 20);
        assert_int_equal(seq_n_past(b), 30);
        read_to(c, 4001); // as that is, of one each
        read_to(a, 21);
        read_to(b, 31);
        assert_int_equal(seq_n_past(c), 4001);
        seq_free(a);
        seq_free(b);
        seq_free(c);
        release(&e);
    }
}

// Pieces of several sequences: a pass, if there are slots for all of their states.
static void pieces_of_several_sequences_are_one_pass_where_slots_suffice(void **state)
{
    static const int32_t ids[2048] = {3, 1, 4, 1, 5};
    (void)state;
    for (uint32_t n_states = 6; n_states <= 9; n_states++) {
        struct remembering e;
        init(&e, 2048, n_states, true);
        struct seq *s[3];
        for (int i = 0; i < 3; i++) {
            s[i] = open_seq(&e);
            read_to(s[i], 10 + i);
        }
        e.n_passes = 0;
        const struct work w[] = {{.seq = s[0], .ids = ids, .n = 3},
                                 {.seq = s[1], .ids = ids, .n = 600},
                                 {.seq = s[2], .ids = ids, .n = 1200}};
        submit(&e, w, 3); // 3 have states, 6 are to come
        assert_int_equal(e.n_passes, n_states == 9 ? 1 : 2);
        for (int i = 0; i < 3; i++)
            assert_int_equal(seq_n_past(s[i]), 10 + (size_t)i + w[i].n);
        if (n_states == 9) {
            seq_trim(s[1], 600);
            assert_int_equal(seq_n_past(s[1]), 11 + 512);
            seq_trim(s[2], 1200);
            assert_int_equal(seq_n_past(s[2]), 12 + 1024);
            seq_trim(s[2], 1000);
            assert_int_equal(seq_n_past(s[2]), 12 + 512);
        }
        for (int i = 0; i < 3; i++) {
            read_to(s[i], 2000);
            seq_free(s[i]);
        }
        release(&e);
    }
}

// Others, that are in no pass, are not paused for such states either.
static void nobody_is_paused_for_states_within_a_pass_of_several(void **state)
{
    static const int32_t ids[600] = {3, 1, 4, 1, 5};
    (void)state;
    for (uint32_t n_states = 5; n_states <= 9; n_states++) {
        struct remembering e;
        init(&e, 2048, n_states, true);
        struct seq *idle = open_seq(&e), *a = open_seq(&e), *b = open_seq(&e);
        read_to(idle, 700);
        read_to(a, 10);
        read_to(b, 11);
        const struct work w[] = {{.seq = a, .ids = ids, .n = 600},
                                 {.seq = b, .ids = ids, .n = 600}};
        submit(&e, w, 2);
        assert_int_equal(seq_n_past(idle), 700);
        seq_free(idle);
        seq_free(a);
        seq_free(b);
        release(&e);
    }
}

// Where a mark has to go for each new one, pieces become shorter rather than that the older ones
// go.
static void where_marks_are_few_long_pieces_leave_those_of_short_ones(void **state)
{
    (void)state;
    for (uint32_t n_batch = 512; n_batch <= 4096; n_batch *= 2)
        for (int k = 0; k < 2; k++) {
            struct remembering e;
            rem_init(
                &e, &(struct rem_params){
                        .n_ctx = 8000, .n_batch = n_batch, .n_seqs = 4, .n_states = 8, .alike = k});
            struct seq *s = open_seq(&e);
            read_to(s, 7900);
            size_t pos[8], n = seq_states(s, pos, 8), most = pos[0];
            for (size_t i = 1; i < n; i++)
                most = pos[i] - pos[i - 1] > most ? pos[i] - pos[i - 1] : most;
            assert_in_range(most, STATES_EVERY, 4 * STATES_EVERY);
            seq_free(s);
            release(&e);
        }
}

// A prompt that answers once and comes in two, as where several part: states within each.
static void a_text_that_comes_in_two_has_states_within_both(void **state)
{
    static const int32_t ids[2938] = {3, 1, 4, 1, 5};
    static const size_t marks[] = {92, 604, 1116, 1628, 2140, 2652, 3030, 0};
    (void)state;
    for (uint32_t n_batch = 512; n_batch <= 4096; n_batch *= 2)
        for (int k = 0; k < 2; k++) {
            struct remembering e;
            init(&e, n_batch, 40, k);
            struct seq *s = open_seq(&e);
            seq_answers_once(s);
            read_to(s, 92);
            const struct work w = {.seq = s, .ids = ids, .n = 2938};
            submit(&e, &w, 1);
            rem_has_states_after(s, marks);
            seq_free(s);
            release(&e);
        }
}

// Of a piece that does not come to its end nothing stays, no slot either.
static void a_piece_that_fails_leaves_what_was_before(void **state)
{
    struct error err = {0};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct remembering e;
        init(&e, 2048, 12, k);
        struct seq *s = open_seq(&e);
        read_to(s, 700);
        rem_has_states_after(s, (const size_t[]){512, 700, 0});
        e.fails_in = 2;
        e.fails_how = ERR_INTERRUPTED;
        assert_false(read_on(s, 4000, &err));
        assert_int_equal(err.code, ERR_INTERRUPTED);
        assert_int_equal(seq_len(s), 700 + 2048);
        assert_int_equal(seq_n_past(s), 700 + 2048);
        const size_t marks[] = {512, 700, 1212, 1724, 2236, 2748, 0};
        rem_has_states_after(s, marks);
        assert_int_equal(s->n_next, 0);
        assert_int_equal(kv_pool_free(&e.core.states), 12 - 6);
        read_to(s, 5000);
        seq_trim(s, 4999);
        assert_int_equal(seq_n_past(s), 4796);
        seq_free(s);
        release(&e);
    }
}

// Whoever answers once goes back to no more than what it was given: there are no states behind that
// within a piece, and that one is not cut.
static void behind_what_is_given_once_no_states_are_kept_within_a_piece(void **state)
{
    static const int32_t answer[1800] = {3, 1, 4, 1, 5};
    struct error err = {0};
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct remembering e;
        init(&e, k < 2 ? 512 : 2048, 5, k % 2); // of which one stays free
        struct seq *s = open_seq(&e);
        seq_answers_once(s);
        read_to(s, 1100);
        rem_has_states_after(s, (const size_t[]){512, 1024, 1100, 0});
        e.n_passes = 0;
        if (!seq_append(s, answer, 1800, &err)) // as if it had been paused behind that
            fail_msg("%s", err.text);
        const struct work w = {.seq = s, .n = 1};
        submit(&e, &w, 1);
        rem_has_states_after(s, (const size_t[]){512, 1024, 1100, 2900, 0});
        assert_int_equal(e.n_passes, k < 2 ? 4 : 1);
        seq_free(s);
        release(&e);
    }
}

// They are of one pass, whatever slots there are, with a state behind all.
static void rows_of_which_logits_are_asked_are_not_cut(void **state)
{
    static const int32_t ids[2000] = {3, 1, 4, 1, 5};
    (void)state;
    for (uint32_t n_states = 2; n_states <= 9; n_states += 7) {
        struct remembering e;
        init(&e, 2048, n_states, false);
        struct seq *s = open_seq(&e);
        const struct work w = {.seq = s, .ids = ids, .n = 2000, .n_logits = 1900};
        submit(&e, &w, 1);
        assert_int_equal(e.n_passes, 2);
        rem_has_states_after(s, (const size_t[]){100, 2000, 0});
        seq_free(s);
        release(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_long_text_a_state_is_kept_every_512_tokens),
        cmocka_unit_test(pieces_of_2048_keep_the_states_of_pieces_of_512),
        cmocka_unit_test(a_piece_has_no_more_states_than_a_pass_can_have),
        cmocka_unit_test(where_slots_are_few_pieces_are_shorter),
        cmocka_unit_test(nobody_is_paused_for_states_within_a_piece),
        cmocka_unit_test(pieces_of_several_sequences_are_one_pass_where_slots_suffice),
        cmocka_unit_test(nobody_is_paused_for_states_within_a_pass_of_several),
        cmocka_unit_test(where_marks_are_few_long_pieces_leave_those_of_short_ones),
        cmocka_unit_test(a_text_that_comes_in_two_has_states_within_both),
        cmocka_unit_test(rows_of_which_logits_are_asked_are_not_cut),
        cmocka_unit_test(a_piece_that_fails_leaves_what_was_before),
        cmocka_unit_test(behind_what_is_given_once_no_states_are_kept_within_a_piece),
    };
    return RUN_TESTS("state_pieces", tests);
}
