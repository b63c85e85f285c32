// engine_params.exact: what a token leaves is the same bits wherever it was evaluated: sampled one
// by one, with drafts, or given as a prompt, in pieces of any length, beside others. And without, a
// prompt leaves the same bits whatever pieces it comes in, where an engine says so.
// `test_exact FAMILY` on the CPU, whose engines are all exact, `test_exact FAMILY cuda`; then which
// of the tests, with `*`. FAMILY may be a file: those of families are too narrow for rows in
// chunks.
#include "sequences.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 45, MOST = N_PROMPT + 24, N_CTX = 512 };

static size_t n_all = MOST;    // tokens that are evaluated
static int32_t text[MOST + 1]; // the prompt, and what was sampled after it
static struct decoded at_end;
static unsigned char *kept; // the keys and values of the first n_all tokens, and their state
static size_t n_kv, n_kept;

// To bytes (n_kept), of s with n_all evaluated tokens.
static void export_all(struct seq *s, unsigned char *bytes)
{
    struct error err = {0};
    size_t pos = 0;
    assert_int_equal(seq_n_past(s), n_all);
    if (n_kept > n_kv)
        assert_int_equal(seq_states(s, &pos, 1), 1);
    if (!seq_export(s, 0, n_all, bytes, &err) ||
        (n_kept > n_kv && !seq_export_state(s, n_all, bytes + n_kv, &err)))
        fail_msg("%s", err.text);
}

static void check(struct seq *s, const struct decoded *d)
{
    assert_int_equal(d->id, text[n_all]);
    assert_alike(d, &at_end);
    unsigned char *bytes = malloc(n_kept);
    assert_non_null(bytes);
    export_all(s, bytes);
    assert_memory_equal(bytes, kept, n_kept);
    free(bytes);
}

// One token after the other, as the answer of a conversation.
static int sample_it(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64);
    struct seq *s = open_seq(e);
    struct decoded d;
    struct work w = {.seq = s, .ids = text, .n = N_PROMPT, .n_pick = 1};
    random_ids(text, N_PROMPT);
    for (size_t i = N_PROMPT; i <= n_all; i++) {
        pick(s, &w, &d);
        text[i] = d.id;
        w = (struct work){.seq = s, .n = 1, .n_pick = 1};
    }
    at_end = d;
    n_kv = engine_kv_bytes(e, 0, n_all);
    n_kept = n_kv + engine_state_bytes(e);
    kept = malloc(n_kept);
    assert_non_null(kept);
    export_all(s, kept);
    seq_free(s);
    engine_free(e);
    return 0;
}

static int forget_it(void **state)
{
    (void)state;
    free(kept);
    return 0;
}

// The first n_all tokens as a prompt in such pieces, and what is likely behind it.
static struct seq *read_in_pieces(struct engine *e, size_t piece, struct decoded *d)
{
    struct seq *s = open_seq(e);
    for (size_t i = 0; i < n_all; i += piece) {
        const struct work w = {.seq = s,
                               .ids = text + i,
                               .n = i + piece < n_all ? piece : n_all - i,
                               .n_pick = i + piece >= n_all};
        struct error err = {0};
        if (w.n_pick > 0)
            pick(s, &w, d);
        else if (!engine_submit(e, &w, 1, NULL, NULL, &err))
            fail_msg("%s", err.text);
    }
    return s;
}

static const uint32_t batches[] = {128, 1, 16, 64};

// The second length of pieces to try in a batch so long, and the third.
static size_t next_piece(uint32_t n_batch, size_t piece)
{
    return n_batch < 128 ? 0 : piece == n_all ? 7 : piece == 7 ? 31 : 0;
}

static void any_pieces_leave_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
        if (quick() && batches[k] == 16)
            continue;
        struct engine *e = open_for(1, N_CTX, batches[k]);
        for (size_t piece = n_all; piece > 0; piece = next_piece(batches[k], piece)) {
            struct decoded d;
            struct seq *s = read_in_pieces(e, piece, &d);
            check(s, &d);
            seq_free(s);
        }
        engine_free(e);
    }
}

// The same of a prompt alone where an engine is not exact but says so (any_pieces): for one
// sequence, and for several.
static void a_prompt_in_any_pieces_leaves_the_same_bits(void **state)
{
    (void)state;
    exact = false;
    for (uint32_t n_seqs = 1; n_seqs <= 3; n_seqs += 2) {
        struct decoded want;
        unsigned char *first = NULL;
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
            if (quick() && batches[k] == 16)
                continue;
            struct engine *e = open_for(n_seqs, N_CTX, batches[k]);
            // alone a GPU has recurrent layers go through long pieces in another way, and one
            // before Hopper has cuBLAS multiply
            assert_true(e->any_pieces || (on_cuda && n_seqs == 1 &&
                                          (e->n_states > 0 || getenv("HOKKU_EMU_CAPABILITY"))));
            for (size_t piece = n_all; e->any_pieces && piece > 0;
                 piece = next_piece(batches[k], piece)) {
                struct decoded d;
                struct seq *s = read_in_pieces(e, piece, &d);
                unsigned char *bytes = malloc(n_kept);
                assert_non_null(bytes);
                export_all(s, bytes);
                if (!first) {
                    first = bytes;
                    want = d;
                } else {
                    assert_alike(&d, &want);
                    assert_memory_equal(bytes, first, n_kept);
                    free(bytes);
                }
                seq_free(s);
            }
            engine_free(e);
        }
        free(first);
    }
    exact = true;
}

// Logits of the prompt's last rows, a pick from them, and then several picks asked for at once.
static void a_conversation_has_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t n_logits[] = {1, 20};
    struct engine *e = open_for(1, N_CTX, 64);
    for (int k = 0; k < 2; k++) {
        struct seq *s = open_seq(e);
        struct decoded d;
        struct error err = {0};
        const struct work first = {.seq = s, .ids = text, .n = N_PROMPT, .n_logits = n_logits[k]};
        if (!engine_submit(e, &first, 1, NULL, NULL, &err))
            fail_msg("%s", err.text);
        for (size_t i = N_PROMPT; i <= n_all;) {
            uint64_t tickets[1 + ENGINE_RUN_AHEAD];
            size_t n = 0;
            for (; n <= ENGINE_RUN_AHEAD && i + n <= n_all; n++) {
                const struct work w = {.seq = s, .n = i + n > N_PROMPT, .n_pick = 1};
                if (!engine_submit(e, &w, 1, NULL, &tickets[n], &err))
                    fail_msg("%s", err.text);
            }
            for (size_t j = 0; j < n; j++, i++) {
                if (!engine_wait(e, tickets[j], NULL, &d, &err))
                    fail_msg("%s", err.text);
                assert_int_equal(d.id, text[i]);
            }
        }
        check(s, &d);
        seq_free(s);
    }
    engine_free(e);
}

// Two others, of which one is decoded and one reads a prompt in the same passes.
static void any_company_leaves_the_same_bits(void **state)
{
    (void)state;
    struct engine *e = open_for(3, 3 * N_CTX, 64);
    struct seq *s[3] = {open_seq(e), open_seq(e), open_seq(e)};
    struct decoded d[3];
    struct error err = {0};
    uint64_t ticket;
    int32_t others[40];
    random_ids(others, 40);
    struct work first = {.seq = s[1], .ids = others, .n = 20, .n_pick = 1};
    pick(s[1], &first, d);
    for (size_t i = N_PROMPT; i <= n_all; i++) {
        struct work w[3] = {
            {.seq = s[0], .n = 1, .n_pick = 1},
            {.seq = s[1], .n = 1, .n_pick = 1},
            {.seq = s[2], .ids = others + i % 20, .n = 1 + i % 13, .n_pick = 1},
        };
        if (i == N_PROMPT) {
            w[0].ids = text;
            w[0].n = N_PROMPT;
        }
        if (!engine_submit(e, w, 3, NULL, &ticket, &err) || !engine_wait(e, ticket, NULL, d, &err))
            fail_msg("%s", err.text);
        assert_int_equal(d[0].id, text[i]);
        seq_trim(s[2], 0);
    }
    check(s[0], &d[0]);
    for (int i = 0; i < 3; i++)
        seq_free(s[i]);
    engine_free(e);
}

static void what_was_taken_back_and_given_again_has_the_same_bits(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64);
    struct seq *s = open_seq(e);
    struct decoded d;
    struct work w = {.seq = s, .ids = text, .n = N_PROMPT, .n_pick = 1};
    for (size_t i = N_PROMPT; i < n_all - 3; i++) {
        pick(s, &w, &d);
        w = (struct work){.seq = s, .n = 1, .n_pick = 1};
    }
    seq_trim(s, N_PROMPT - 5);
    const size_t len = seq_len(s);
    w = (struct work){.seq = s, .ids = text + len, .n = n_all - len, .n_pick = 1};
    pick(s, &w, &d);
    check(s, &d);
    seq_free(s);
    engine_free(e);
}

// Of each number of drafts some are right, and all.
static void drafts_leave_the_same_bits(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64);
    struct seq *s = open_seq(e);
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    struct work w = {.seq = s, .ids = text, .n = N_PROMPT, .n_pick = 1};
    pick(s, &w, d);
    size_t last = 0, step = 0;
    for (size_t at = N_PROMPT + 1; at <= n_all; step++) {
        int32_t drafts[ENGINE_MAX_DRAFTS];
        size_t n = 1 + step * 3 % ENGINE_MAX_DRAFTS;
        n = n < n_all - at ? n : n_all - at;
        for (size_t i = 0; i < n; i++)
            drafts[i] = (text[at + i] + (i > step % 4)) % (int32_t)model->hp.n_vocab;
        w = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = n};
        pick(s, &w, d);
        for (last = 0; last <= n && d[last].id >= 0; last++)
            assert_int_equal(d[last].id, text[at++]);
        assert_int_equal(last, n < step % 4 + 1 ? 1 + n : step % 4 + 2);
    }
    check(s, &d[last - 1]);
    seq_free(s);
    engine_free(e);
}

int main(int argc, char **argv)
{
    char path[1024];
    struct error err = {0};
    exact = true;
    use_device(argc > 2 ? argv[2] : "cpu");
    if (!find_family(argc > 1 ? argv[1] : "gemma3", path))
        return 0;
    model = model_load(path, &err);
    if (!model) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    n_threads = 1;
    if (quick())
        n_all = N_PROMPT + 12;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pieces_leave_the_same_bits),
        cmocka_unit_test(a_prompt_in_any_pieces_leaves_the_same_bits),
        cmocka_unit_test(a_conversation_has_the_same_bits),
        cmocka_unit_test(any_company_leaves_the_same_bits),
        cmocka_unit_test(what_was_taken_back_and_given_again_has_the_same_bits),
        cmocka_unit_test(drafts_leave_the_same_bits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    const int failed = cmocka_run_group_tests(tests, sample_it, forget_it);
    model_free(model);
    return failed;
}
