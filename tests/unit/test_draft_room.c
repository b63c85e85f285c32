// The room that guesses have in a pass: rows, blocks, and nobody who has to leave for them.
#include "test.h"

#include "remembering_engine.h"

// n sequences that have all but the last of their len tokens evaluated; each one's work, with seven
// drafts, right ones by turns.
static void open_for_drafts(struct remembering *e, struct seq **s, size_t n, size_t len,
                            struct work *w, int32_t (*drafts)[ENGINE_MAX_DRAFTS])
{
    static const int32_t last = 9;
    struct error err = {0};
    for (size_t i = 0; i < n; i++) {
        s[i] = open_seq(e);
        read_to(s[i], len - 1);
        assert_true(seq_append(s[i], &last, 1, &err));
        uint64_t text = rem_text_of(s[i]->ids.data, len);
        for (size_t k = 0; k < ENGINE_MAX_DRAFTS; k++) {
            drafts[i][k] = (rem_sample(text) + (int32_t)(i % 2)) % REM_VOCAB;
            text = rem_text(text, drafts[i][k]);
        }
        w[i] = (struct work){
            .seq = s[i], .n = 1, .n_pick = 1, .drafts = drafts[i], .n_drafts = ENGINE_MAX_DRAFTS};
    }
}

// Of a pass: as many as it takes in all, as there are rows, and as there are blocks, for which
// nobody has to leave. The first ones have theirs.
static void works_have_drafts_while_there_is_room(void **state)
{
    enum { N = 12 };
    static const struct {
        struct rem_params p;
        size_t n, len, want[N];
    } cases[] = {
        {{.n_ctx = 1200, .n_batch = 200, .alike = true},
         12,
         9,
         {7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 0, 0}},
        {{.n_ctx = 400, .n_batch = 20, .alike = true}, 5, 9, {7, 7, 1, 0, 0}},
        {{.n_ctx = 400, .n_batch = 20, .n_states = 30, .alike = true, .draft_rows = 14},
         4,
         9,
         {7, 3, 0, 0}},
        // Eight tokens have two blocks; with seven more they have four, and nine are there.
        {{.n_ctx = 36, .n_batch = 64, .alike = true}, 3, 8, {7, 0, 0}},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct remembering e;
        struct seq *s[N];
        struct work w[N];
        int32_t drafts[N][ENGINE_MAX_DRAFTS];
        const size_t n = cases[k].n, most = n < 8 ? n : 8;
        rem_init(&e, &cases[k].p);
        open_for_drafts(&e, s, n, cases[k].len, w, drafts);
        engine_fit_drafts(&e.base, w, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(w[i].n_drafts, cases[k].want[i]);
        // Looked at: those alone, whatever is asked for. (The engine fails where they are more.)
        struct decoded d[8 * (1 + ENGINE_MAX_DRAFTS)];
        size_t n_marks[N];
        struct error err = {0};
        uint64_t ticket;
        for (size_t i = 0; i < n; i++) {
            n_marks[i] = s[i]->n_marks;
            w[i].n_drafts = ENGINE_MAX_DRAFTS;
        }
        assert_true(engine_submit(&e.base, w, most, NULL, &ticket, &err));
        assert_true(engine_wait(&e.base, ticket, NULL, d, &err));
        for (size_t i = 0; i < n; i++) {
            assert_true(i >= most || s[i]->n_past + 1 == s[i]->ids.len);
            assert_true(s[i]->n_past >= cases[k].len - 1); // nobody was paused
            assert_int_equal(s[i]->n_marks, n_marks[i]);   // nor is what was guessed gone back to
        }
        for (size_t i = 0; i < n; i++)
            seq_free(s[i]);
        engine_free(&e.base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_have_drafts_while_there_is_room),
    };
    return RUN_TESTS("draft_room", tests);
}
