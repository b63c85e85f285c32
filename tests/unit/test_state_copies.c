// Recurrent states that a sequence may go back to, when there are more than slots: they lie in host
// memory. On an engine that looks at all of its memory (remembering_engine.h). Linked with --wrap
// for malloc.
#include "test.h"

#include "remembering_engine.h"

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

static bool full; // of host memory

void *__wrap_malloc(size_t n)
{
    return full && n == sizeof(struct state_copy) + sizeof(struct rem_state) ? NULL
                                                                             : __real_malloc(n);
}

enum { PIECE = 10 }; // a mark behind each

static void init(struct remembering *e, uint32_t n_states, uint32_t n_copies)
{
    rem_init(e, &(struct rem_params){.n_ctx = 2000,
                                     .n_batch = 64,
                                     .n_seqs = 4,
                                     .alike = true,
                                     .n_states = n_states,
                                     .n_copies = n_copies});
}

static void release(struct remembering *e)
{
    assert_int_equal(e->core.n_copies, 0);
    assert_int_equal(kv_pool_free(&e->core.states), e->base.n_states);
    engine_free(&e->base);
}

static void read_pieces(struct seq *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        read_to(s, seq_len(s) + PIECE);
}

static size_t count_copies(const struct seq *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_marks; i++)
        n += s->marks[i].copy != NULL;
    return n;
}

// A fork at n tokens reads no more again than what is behind the mark before.
static void goes_back_to(struct remembering *e, struct seq *s, size_t n)
{
    struct error err = {0};
    struct seq *f = seq_fork(s, n, &err);
    assert_non_null(f);
    assert_int_equal(seq_n_past(f), n / PIECE * PIECE);
    const size_t before = e->n_evaluated;
    read_to(f, n + 5);
    assert_int_equal(e->n_evaluated - before, n % PIECE + 5);
    seq_free(f);
}

static void no_mark_is_given_up_while_host_memory_has_room(void **state)
{
    enum { N = 40, N_STATES = 5 };
    struct remembering e;
    (void)state;
    init(&e, N_STATES, N);
    struct seq *s = open_seq(&e);
    read_pieces(s, N);
    assert_int_equal(s->n_marks, N);
    assert_true(count_copies(s) >= N - N_STATES);
    for (size_t i = 0; i + 1 < s->n_marks; i++) // the newest have slots
        assert_true(s->marks[i].copy || !s->marks[i + 1].copy);
    for (size_t n = PIECE; n < N * PIECE; n += 7)
        goes_back_to(&e, s, n);
    assert_int_equal(s->n_marks, N);
    for (size_t n = N - 1; n > 0; n--) {
        seq_trim(s, n * PIECE + 3);
        assert_int_equal(seq_n_past(s), n * PIECE);
        if (n % 3 == 0) { // else it goes back further from there
            const size_t before = e.n_evaluated;
            read_to(s, n * PIECE + 5);
            assert_int_equal(e.n_evaluated - before, 5);
        }
    }
    seq_free(s);
    release(&e);
}

// What is not gone on from needs no slot.
static void a_state_is_brought_back_when_it_is_needed(void **state)
{
    struct remembering e;
    (void)state;
    init(&e, 5, 100);
    struct seq *s = open_seq(&e);
    read_pieces(s, 20);
    seq_trim(s, 100);
    seq_trim(s, 50);
    assert_int_equal(seq_n_past(s), 50);
    assert_int_equal(e.n_imported, 0);
    read_to(s, 51);
    assert_int_equal(e.n_imported, 1);
    read_to(s, 52);
    assert_int_equal(e.n_imported, 1);
    seq_free(s);
    release(&e);
}

static void beyond_the_budget_marks_are_given_up(void **state)
{
    enum { N = 60, N_STATES = 4, N_COPIES = 7 };
    struct remembering e;
    (void)state;
    init(&e, N_STATES, N_COPIES);
    struct seq *s = open_seq(&e);
    read_pieces(s, N);
    assert_int_equal(e.core.n_copies, N_COPIES);
    assert_in_range(s->n_marks, N_COPIES + 1, N_COPIES + N_STATES);
    size_t longest = 0;
    for (size_t i = 0; i < s->n_marks; i++) {
        const size_t gap = s->marks[i].pos - (i > 0 ? s->marks[i - 1].pos : 0);
        longest = gap > longest ? gap : longest;
    }
    assert_in_range(longest, 0, 4 * N * PIECE / (N_COPIES + N_STATES)); // evenly, nearly
    seq_free(s);
    release(&e);
}

static void who_gets_no_host_memory_gives_up_marks(void **state)
{
    enum { N = 30, N_STATES = 6 };
    struct remembering e;
    (void)state;
    init(&e, N_STATES, 1000);
    struct seq *s = open_seq(&e);
    full = true;
    read_pieces(s, N);
    full = false;
    assert_int_equal(e.core.n_copies, 0);
    const size_t n = s->n_marks;
    assert_in_range(n, 2, N_STATES);
    read_pieces(s, N);
    assert_int_equal(s->n_marks, n + N);
    seq_free(s);
    release(&e);
}

static void what_the_device_does_not_give_is_given_up(void **state)
{
    enum { N = 30, N_STATES = 6 };
    struct remembering e;
    (void)state;
    init(&e, N_STATES, 1000);
    struct seq *s = open_seq(&e);
    e.export_fails = true;
    read_pieces(s, N);
    assert_int_equal(e.core.n_copies, 0);
    assert_in_range(s->n_marks, 2, N_STATES);
    seq_free(s);
    release(&e);
}

static void what_the_device_does_not_take_ends_the_work_alone(void **state)
{
    struct remembering e;
    struct error err = {0};
    (void)state;
    init(&e, 5, 100);
    struct seq *s = open_seq(&e);
    read_pieces(s, 20);
    seq_trim(s, 45);
    e.import_fails = true;
    assert_false(read_on(s, 5, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_string_equal(err.text, "no import today");
    assert_int_equal(seq_len(s), 45);
    assert_int_equal(seq_n_past(s), 40);
    e.import_fails = false;
    const size_t before = e.n_evaluated;
    read_to(s, 50);
    assert_int_equal(e.n_evaluated - before, 10);
    seq_free(s);
    release(&e);
}

static void forks_share_what_is_in_host_memory(void **state)
{
    enum { N = 20 };
    struct remembering e;
    struct error err = {0};
    (void)state;
    init(&e, 6, 100);
    struct seq *s = open_seq(&e);
    read_pieces(s, N);
    const size_t n = e.core.n_copies;
    struct seq *f = seq_fork(s, N * PIECE / 2, &err);
    assert_non_null(f);
    assert_int_equal(count_copies(f), N / 2);
    assert_int_equal(e.core.n_copies, n);
    seq_free(s);
    assert_int_equal(e.core.n_copies, N / 2);
    for (size_t i = PIECE; i < N * PIECE / 2; i += 7)
        goes_back_to(&e, f, i);
    seq_free(f);
    release(&e);
}

// A slot that marks of several sequences have is moved once, for all of them.
static void a_slot_is_moved_for_all_who_marked_it(void **state)
{
    struct remembering e;
    struct error err = {0};
    (void)state;
    init(&e, 8, 100);
    struct seq *s = open_seq(&e);
    read_pieces(s, 4);
    struct seq *f = seq_fork(s, 4 * PIECE, &err);
    assert_non_null(f);
    read_pieces(f, 15);
    read_pieces(s, 15);
    assert_int_equal(s->n_marks, 19);
    assert_int_equal(f->n_marks, 19);
    for (size_t i = 0; i < 4; i++)
        assert_ptr_equal(s->marks[i].copy, f->marks[i].copy);
    assert_int_equal(e.core.n_copies, e.n_exported);
    for (size_t n = PIECE; n < 19 * PIECE; n += 7) {
        goes_back_to(&e, s, n);
        goes_back_to(&e, f, n);
    }
    seq_free(f);
    seq_free(s);
    release(&e);
}

static void as_bytes_they_are_what_they_were(void **state)
{
    struct remembering e;
    struct error err = {0};
    struct rem_state x;
    size_t pos[64];
    (void)state;
    init(&e, 5, 100);
    struct seq *s = open_seq(&e);
    read_pieces(s, 20);
    assert_int_equal(seq_states(s, pos, 64), 20);
    for (size_t i = 0; i < 20; i++) {
        assert_true(seq_export_state(s, pos[i], &x, &err));
        assert_int_equal(x.n, (i + 1) * PIECE);
        assert_int_equal(x.text, rem_text_of(seq_ids(s), x.n));
    }
    seq_trim(s, 75); // its newest is not in a slot
    assert_int_equal(seq_states(s, pos, 64), 7);
    assert_true(seq_export_state(s, 70, &x, &err));
    assert_int_equal(x.n, 70);
    seq_free(s);
    release(&e);
}

// Guesses that do not come true go back to the state before them, though its mark was given up
// since.
static void guesses_begin_behind_a_state_that_was_away(void **state)
{
    struct remembering e;
    struct error err = {0};
    struct decoded d[4];
    uint64_t ticket;
    (void)state;
    init(&e, 4, 1);
    struct seq *s = open_seq(&e), *other = open_seq(&e);
    read_pieces(s, 5);
    seq_trim(s, PIECE + 1);
    assert_int_equal(count_copies(s), 1);
    assert_int_equal(seq_n_past(s), PIECE);
    for (size_t n = 30; n <= 90; n += 30)
        read_to(other, n);
    const int32_t drafts[] = {1, 2, 3}; // none is sampled
    const struct work w = {.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = 3};
    if (!engine_submit(&e.base, &w, 1, NULL, &ticket, &err) ||
        !engine_wait(&e.base, ticket, NULL, d, &err))
        fail_msg("%s", err.text);
    assert_int_equal(d[1].id, -1);
    assert_int_equal(count_copies(s), 0);
    assert_int_equal(seq_n_past(s), PIECE + 1);
    rem_check_state(&e, s->state, rem_text_of(seq_ids(s), PIECE + 1), PIECE + 1);
    seq_free(s);
    seq_free(other);
    release(&e);
}

// Of a text that comes in pieces only its ends are marked, and what lies far from them.
static void between_pieces_of_a_text_is_no_mark(void **state)
{
    static const int32_t ids[1500] = {3, 1, 4};
    static const size_t ends[] = {100, 104, 616, 1128, 1305}, n = 1305 - 104;
    (void)state;
    for (int alike = 0; alike < 2; alike++) {
        struct remembering e;
        struct error err = {0};
        size_t pos[64];
        rem_init(
            &e, &(struct rem_params){.n_ctx = 2000, .n_batch = 64, .n_states = 20, .alike = alike});
        struct seq *s = open_seq(&e);
        read_to(s, 100);
        for (int i = 0; i < 4; i++)
            read_to(s, seq_len(s) + 1);           // an answer
        for (size_t at = 0, k; at < n; at += k) { // the last piece has one token
            k = n - at < 32 ? n - at : 32;
            k -= n - at - k == 0 && k > 1;
            const struct work w = {.seq = s, .ids = ids + at, .n = k, .goes_on = at + k < n};
            if (!engine_submit(&e.base, &w, 1, NULL, NULL, &err))
                fail_msg("%s", err.text);
        }
        assert_int_equal(seq_states(s, pos, 64), sizeof ends / sizeof *ends);
        assert_memory_equal(pos, ends, sizeof ends);
        seq_free(s);
        release(&e);
    }
}

static uint32_t below(uint32_t n)
{
    static uint64_t counter = 5;
    counter = counter * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(counter >> 33) % n;
}

static void is_near_a_mark_everywhere(const struct seq *s)
{
    size_t last = 0;
    for (size_t i = 0; i < s->n_marks; last = s->marks[i++].pos)
        assert_in_range(s->marks[i].pos - last, 1, 512);
    assert_in_range(s->n_past - last, 0, 512);
}

// Picks with guesses, most of them right.
static void guess(struct seq *s)
{
    struct error err = {0};
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    int32_t drafts[ENGINE_MAX_DRAFTS];
    uint64_t ticket;
    uint64_t text = rem_text_of(seq_ids(s), seq_len(s));
    const bool first = seq_n_past(s) == seq_len(s);
    const size_t n = first ? 0 : 1 + below(ENGINE_MAX_DRAFTS);
    for (size_t i = 0; i < n; i++) {
        drafts[i] = below(8) > 0 ? rem_sample(text) : 0;
        text = rem_text(text, drafts[i]);
    }
    static const int32_t id = 5;
    const struct work w = {s, first ? &id : NULL, 1, .n_pick = 1, .drafts = drafts, .n_drafts = n};
    if (!engine_submit(seq_engine(s), &w, 1, NULL, &ticket, &err) ||
        !engine_wait(seq_engine(s), ticket, NULL, d, &err))
        fail_msg("%s", err.text);
}

// Where copies are to be spared: of what is near another mark.
static void only_what_is_far_from_others_is_copied(void **state)
{
    enum { N_STATES = 5 };
    struct remembering e;
    (void)state;
    init(&e, N_STATES, 100);
    e.core.spares_copies = true;
    struct seq *s = open_seq(&e), *other = open_seq(&e);
    read_pieces(s, 25);
    read_pieces(other, 25);
    read_pieces(s, 26);
    assert_int_equal(e.n_exported, 0);
    is_near_a_mark_everywhere(s);
    is_near_a_mark_everywhere(other);
    while (seq_len(s) < 1400)
        read_pieces(s, 1);
    assert_in_range(e.n_exported, 1, 5);
    is_near_a_mark_everywhere(s);
    is_near_a_mark_everywhere(other);
    seq_free(s);
    seq_free(other);
    release(&e);
}

// Answers that nobody goes back to: what was given stays near a mark, and where states are few none
// is copied for what comes behind.
static void of_what_is_answered_once_nothing_is_kept(void **state)
{
    enum { N_SEQ = 3, N_GIVEN = 700, N_CTX = 2000 };
    static const int32_t ids[N_GIVEN] = {3, 1, 4};
    struct remembering e;
    struct error err = {0};
    struct seq *s[N_SEQ];
    struct work w[N_SEQ];
    struct decoded d[N_SEQ];
    uint64_t ticket;
    (void)state;
    for (int once = 0; once < 2; once++) {
        rem_init(&e, &(struct rem_params){.n_ctx = N_SEQ * N_CTX,
                                          .n_batch = 1000,
                                          .n_seqs = N_SEQ,
                                          .alike = true,
                                          .n_states = 4 * N_SEQ,
                                          .n_copies = 1000});
        e.core.spares_copies = true;
        for (int i = 0; i < N_SEQ; i++) {
            s[i] = open_seq(&e);
            if (once)
                seq_answers_once(s[i]);
            w[i] = (struct work){s[i], ids, N_GIVEN - 1, .goes_on = true};
            if (!engine_submit(&e.base, &w[i], 1, NULL, NULL, &err))
                fail_msg("%s", err.text);
        }
        for (size_t n = N_GIVEN; n < N_CTX; n++) {
            for (int i = 0; i < N_SEQ; i++)
                w[i] = (struct work){s[i], n == N_GIVEN ? ids : NULL, 1, .n_pick = 1};
            if (!engine_submit(&e.base, w, N_SEQ, NULL, &ticket, &err) ||
                !engine_wait(&e.base, ticket, NULL, d, &err))
                fail_msg("%s", err.text);
        }
        assert_true(once ? e.n_exported == 0 : e.n_exported > 0);
        for (int i = 0; i < N_SEQ; i++) {
            assert_true(seq_n_past(s[i]) >= N_CTX - 1);
            seq_trim(s[i], N_GIVEN);
            assert_in_range(seq_n_past(s[i]), N_GIVEN - 512, N_GIVEN);
            seq_free(s[i]);
        }
        release(&e);
    }
}

// However long a batch is, however a text came: read, guessed, or in company.
static void read_no_more_than_512_again(bool spares_copies)
{
    enum { N_SEQ = 2, N_CTX = 2000, N_STEPS = 3000 };
    static const int32_t ids[1000] = {3, 1, 4};
    struct remembering e;
    struct error err = {0};
    struct seq *s[N_SEQ];
    rem_init(&e, &(struct rem_params){.n_ctx = N_CTX,
                                      .n_batch = 1000,
                                      .n_seqs = 4,
                                      .alike = true,
                                      .n_states = 8,
                                      .n_copies = 1000});
    e.core.spares_copies = spares_copies;
    for (int i = 0; i < N_SEQ; i++)
        s[i] = open_seq(&e);
    for (int step = 0; step < N_STEPS; step++) {
        struct work w[N_SEQ];
        struct seq *one = s[below(N_SEQ)];
        const uint32_t how = below(20);
        if (seq_len(one) > 1 && how > 2) {
            for (int i = 0; i < 20 && seq_len(one) + 8 < N_CTX / N_SEQ; i++)
                guess(one);
        } else if (how == 0) {
            for (int i = 0; i < N_SEQ; i++) {
                seq_trim(s[i], below(N_CTX / N_SEQ));
                const size_t room = N_CTX / N_SEQ - seq_len(s[i]);
                w[i] = (struct work){.seq = s[i], .ids = ids, .n = 1 + below((uint32_t)room)};
            }
            if (!engine_submit(&e.base, w, N_SEQ, NULL, NULL, &err))
                fail_msg("%s", err.text);
        } else {
            seq_trim(one, below(40));
            if (!read_on(one, 1 + below(600), &err))
                fail_msg("%s", err.text);
        }
        for (int i = 0; i < N_SEQ; i++)
            is_near_a_mark_everywhere(s[i]);
    }
    for (int i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    release(&e);
}

static void nobody_reads_more_than_512_tokens_again(void **state)
{
    (void)state;
    read_no_more_than_512_again(false);
    read_no_more_than_512_again(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_what_is_answered_once_nothing_is_kept),
        cmocka_unit_test(no_mark_is_given_up_while_host_memory_has_room),
        cmocka_unit_test(a_state_is_brought_back_when_it_is_needed),
        cmocka_unit_test(beyond_the_budget_marks_are_given_up),
        cmocka_unit_test(who_gets_no_host_memory_gives_up_marks),
        cmocka_unit_test(what_the_device_does_not_give_is_given_up),
        cmocka_unit_test(what_the_device_does_not_take_ends_the_work_alone),
        cmocka_unit_test(forks_share_what_is_in_host_memory),
        cmocka_unit_test(a_slot_is_moved_for_all_who_marked_it),
        cmocka_unit_test(as_bytes_they_are_what_they_were),
        cmocka_unit_test(guesses_begin_behind_a_state_that_was_away),
        cmocka_unit_test(between_pieces_of_a_text_is_no_mark),
        cmocka_unit_test(only_what_is_far_from_others_is_copied),
        cmocka_unit_test(nobody_reads_more_than_512_tokens_again),
    };
    return RUN_TESTS("state_copies", tests);
}
