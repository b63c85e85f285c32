// What a layer computes is what its facts say: each fact of model/model.h, changed in a small
// random model, against a forward pass in double that reads like the comment there. In several
// chunkings.
#include "../unit/further.h"
#include "../unit/test.h"

#include <math.h>

#include "facts_cases.h"

enum { AT_ONCE = N_EVAL / 2 }; // of a text whose first and last tokens come one by one

static bool is_latent(const struct model *m)
{
    return m->layers[0].latent.n_kv > 0;
}

static double furthest(struct engine *e, const struct fixture *f, size_t chunk,
                       double want[N_EVAL][TINY_VOCAB], double *size)
{
    float got[TINY_VOCAB];
    struct error err = {0};
    double off = 0;
    *size = 0;
    one_trim(e, 0);
    for (size_t done = 0, n; done < N_EVAL; done += n) {
        const size_t left = N_EVAL - done,
                     piece = chunk == 1 && done == AT_ONCE / 2 ? AT_ONCE : chunk;
        n = left < piece ? left : piece;
        if (!one_eval(e, f->tokens + done, n, LOGITS_ALL, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++) {
            if (!one_logits(e, i, got, &err))
                fail_msg("%s", err.text);
            for (uint32_t k = 0; k < TINY_VOCAB; k++) {
                off = further(off, fabs(got[k] - want[done + i][k]));
                *size = fmax(*size, fabs(want[done + i][k]));
            }
        }
    }
    return off;
}

static void every_fact_is_computed(void **state)
{
    (void)state;
    static const size_t chunks[] = {N_EVAL, 1, 5};
    static double want[N_EVAL][TINY_VOCAB];
    size_t n_bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t kind = 0; kind < 3; kind++) {
            if ((quick() || !cases[i].all_kinds) && kind != i % 3)
                continue; // for the sake of time
            struct fixture f;
            open_case(&f, kind, i);
            reference(&f, want);
            for (int exact = 0; exact < 2; exact++) {
                const struct engine_params p = {.n_ctx = N_CTX, .n_batch = N_EVAL, .exact = exact};
                struct error err = {0};
                if (exact && (!on_cuda || !is_latent(f.m)))
                    continue; // the CPU engine has one way
                struct engine *e = try_open(f.m, &p, &err);
                if (!e)
                    fail_msg("%s: %s", cases[i].name, err.text);
                for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
                    if (quick() && k == 1 + i % 2)
                        continue;
                    double size, off = furthest(e, &f, chunks[k], want, &size);
                    print_message("# %s, kind %zu, in chunks of %zu%s: off by %g of %g\n",
                                  cases[i].name, kind, chunks[k], exact ? ", exact" : "", off,
                                  size);
                    n_bad += !(off <= 2e-3 * size);
                }
                one_close(e);
            }
            close_model(&f);
        }
    if (n_bad)
        fail_msg("%zu of them are further off than float16 explains", n_bad);
}

static void evaluate(struct seq *s, const int32_t *tokens, size_t n, float *logits)
{
    struct error err = {0};
    const struct work w = {.seq = s, .ids = tokens, .n = n, .n_logits = logits ? 1 : 0};
    if (!engine_submit(seq_engine(s), &w, 1, NULL, NULL, &err) ||
        (logits && !seq_logits(s, 0, NULL, logits, &err)))
        fail_msg("%s", err.text);
}

// What a layer keeps of a token is copied with the block that it lies in, wherever that is.
static void forks_and_trimmed_sequences_go_on(void **state)
{
    (void)state;
    enum { N_SHARED = 13, N_REST = N_EVAL - N_SHARED };
    static const char *const kept[] = {"keys and values of an earlier layer",
                                       "normed values, keys that are values", "latent attention"};
    static double want[N_EVAL][TINY_VOCAB];
    size_t k = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && k < 3; i++) {
        if (strcmp(cases[i].name, kept[k]) != 0)
            continue;
        k++;
        const struct engine_params p = {.n_ctx = 1024, .n_batch = N_EVAL};
        struct fixture f;
        struct error err = {0};
        float forked[TINY_VOCAB], trimmed[TINY_VOCAB];
        open_case(&f, 0, i);
        reference(&f, want);
        struct engine *e = try_open(f.m, &p, &err);
        struct seq *whole = e ? seq_open(e, 0, &err) : NULL;
        if (!whole)
            fail_msg("%s: %s", cases[i].name, err.text);
        evaluate(whole, f.tokens, N_EVAL, NULL);
        struct seq *fork = seq_fork(whole, N_SHARED, &err);
        assert_non_null(fork);
        seq_trim(whole, N_SHARED);
        evaluate(whole, f.tokens + N_EVAL, N_REST, NULL); // something else, behind its back
        evaluate(fork, f.tokens + N_SHARED, N_REST, forked);
        seq_trim(whole, N_SHARED);
        evaluate(whole, f.tokens + N_SHARED, N_REST, trimmed);
        assert_memory_equal(forked, trimmed, sizeof forked);
        for (uint32_t t = 0; t < TINY_VOCAB; t++)
            assert_true(fabs(forked[t] - want[N_EVAL - 1][t]) <= 0.02);
        seq_free(whole);
        seq_free(fork);
        engine_free(e);
        close_model(&f);
    }
    assert_int_equal(k, 3);
}

static void a_context_beyond_the_positions_is_refused(void **state)
{
    (void)state;
    const struct engine_params p = {.n_ctx = N_CTX + 1, .n_batch = N_EVAL};
    struct tiny t;
    struct fixture f;
    struct error err = {0};
    tiny_init(&t, "llama");
    open_tiny(&f, &t);
    positions(f.m);
    assert_null(try_open(f.m, &p, &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.text, "a context of 65 tokens: the model has 64 positions"));
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(forks_and_trimmed_sequences_go_on),
                                       cmocka_unit_test(a_context_beyond_the_positions_is_refused),
                                       cmocka_unit_test(every_fact_is_computed)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
