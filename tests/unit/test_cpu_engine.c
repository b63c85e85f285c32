// The CPU engine through engine.h: a token's result never depends on how it was reached.
#include "test.h"
#include "one_seq.h"

#include <math.h>

#include "cpu/cpu.h"
#include "cpu/plan.h"
#include "random_weights.h"
#include "tiny_model.h"

struct fixture {
    unsigned char *block; // the file's bytes
    struct model *m;
};

// A tiny model of random weights.
static struct fixture load(const char *arch, uint32_t window)
{
    struct fixture f;
    struct error err = {0};
    struct tiny t;
    struct buf b = {0};
    tiny_init(&t, arch);
    t.weight = 0.05f;
    if (window > 0) {
        char key[96];
        tiny_u32(&t, tiny_name(key, arch, "attention.sliding_window"), window);
    }
    tiny_write(&t, &b);
    assert_false(b.failed);
    f.block = malloc(b.len);
    assert_non_null(f.block);
    memcpy(f.block, b.data, b.len);
    struct gguf *g = gguf_open_memory(f.block, b.len, "tiny.gguf", &err);
    if (!g)
        fail_msg("%s", err.text);
    buf_release(&b);
    tiny_release(&t);
    random_counter = 77;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        if (x->n_dims == 2)
            random_weights(x->type, f.block + ((const unsigned char *)x->data - f.block),
                           x->ne[0] * x->ne[1]);
    }
    f.m = model_from_gguf(g, "tiny.gguf", &err);
    if (!f.m)
        fail_msg("%s", err.text);
    return f;
}

static void unload(struct fixture *f)
{
    model_free(f->m);
    free(f->block);
}

static struct engine *open_engine(const struct model *m, const struct engine_params *p,
                                  enum cpu_isa isa)
{
    struct error err = {0};
    struct engine *e = cpu_engine_open_isa(m, p, isa, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

enum { N_TOKENS = 600, N_CTX = 700 };

static const int32_t *some_tokens(void)
{
    static int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 31 + i * i / 7) % TINY_VOCAB;
    return tokens;
}

static void eval(struct engine *e, const int32_t *tokens, size_t n, enum engine_logits want)
{
    struct error err = {0};
    if (!one_eval(e, tokens, n, want, &err))
        fail_msg("%s", err.text);
}

static void last_logits(struct engine *e, float out[TINY_VOCAB])
{
    struct error err = {0};
    if (!one_logits(e, 0, out, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < TINY_VOCAB; i++)
        assert_true(isfinite(out[i]));
}

static void chunks_threads_and_instruction_sets_do_not_change_a_bit(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    static const size_t chunks[] = {N_TOKENS, 512, 7, 1};
    static const int threads[] = {1, 2, 5};
    const int32_t *tokens = some_tokens();
    for (size_t i = 0; i < 6; i++) {
        if (quick() && i % 2 && i / 2 != 1)
            continue; // 8-bit keys and values: of one family
        struct fixture f = load(archs[i / 2], 0);
        float first[TINY_VOCAB], other[TINY_VOCAB];
        bool have_first = false;
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 3; t++) {
                // Each instruction set once is enough: they are compared over all chunk sizes.
                const enum cpu_isa isa = (enum cpu_isa)(CPU_ISA_PLAIN + (c + t) % 3);
                if (!cpu_kernels_get(isa))
                    continue;
                const enum kv_type kv = i % 2 ? KV_Q8_0 : KV_F16;
                const struct engine_params p = {
                    .n_ctx = N_CTX, .n_threads = threads[t], .type_k = kv, .type_v = kv};
                struct engine *e = open_engine(f.m, &p, isa);
                for (size_t done = 0; done < N_TOKENS; done += chunks[c]) {
                    size_t n = N_TOKENS - done < chunks[c] ? N_TOKENS - done : chunks[c];
                    eval(e, tokens + done, n, LOGITS_LAST);
                }
                assert_int_equal(one_past(e), N_TOKENS);
                last_logits(e, have_first ? other : first);
                if (have_first && memcmp(first, other, sizeof first) != 0)
                    fail_msg("%s: chunks of %zu on %s differ", f.m->arch, chunks[c], e->device);
                have_first = true;
                one_close(e);
            }
        unload(&f);
    }
}

static void all_logits_are_those_of_each_token_alone(void **state)
{
    (void)state;
    struct fixture f = load("qwen2", 0);
    struct error err = {0};
    const struct engine_params p = {.n_ctx = 64, .n_threads = 2};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    static float all[21][TINY_VOCAB];
    eval(e, some_tokens(), 21, LOGITS_ALL);
    for (size_t k = 0; k < 21; k++) { // not in order
        size_t i = k * 8 % 21;
        assert_true(one_logits(e, i, all[i], &err));
    }
    assert_false(one_logits(e, 21, all[0] + 0, &err));
    one_trim(e, 0);
    for (size_t i = 0; i < 21; i++) {
        float one[TINY_VOCAB];
        eval(e, some_tokens() + i, 1, LOGITS_LAST);
        last_logits(e, one);
        assert_memory_equal(one, all[i], sizeof one);
    }
    one_close(e);
    unload(&f);
}

static void trim_and_evaluate_again_gives_the_same(void **state)
{
    (void)state;
    struct fixture f = load("llama", 0);
    const struct engine_params p = {.n_ctx = N_CTX, .n_threads = 2};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    const int32_t *tokens = some_tokens();
    float want[TINY_VOCAB], got[TINY_VOCAB];
    eval(e, tokens, 300, LOGITS_LAST);
    last_logits(e, want);
    eval(e, tokens + 7, 100, LOGITS_NONE); // another continuation, forgotten again
    one_trim(e, 255);
    eval(e, tokens + 255, 45, LOGITS_LAST);
    last_logits(e, got);
    assert_memory_equal(want, got, sizeof want);
    one_close(e);
    unload(&f);
}

struct told {
    size_t n;
    double last;
};

static void hear(void *user, double share)
{
    struct told *t = user;
    assert_true(share > t->last && share <= 1);
    t->last = share;
    t->n++;
}

static void a_chunk_tells_how_much_of_it_is_done(void **state)
{
    (void)state;
    struct fixture f = load("llama", 0);
    const struct engine_params p = {.n_ctx = N_CTX, .n_threads = 2};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    for (int i = 0; i < 2; i++) {
        struct told t = {0};
        e->core->under_way = hear;
        e->core->under_way_user = &t;
        eval(e, some_tokens(), i ? 1 : 100, i ? LOGITS_LAST : LOGITS_NONE);
        assert_true(t.n == f.m->hp.n_layer && t.last == 1);
    }
    one_close(e);
    unload(&f);
}

static void saved_positions_go_on_as_if_never_saved(void **state)
{
    (void)state;
    struct fixture f = load("llama", 0);
    const int32_t *tokens = some_tokens();
    for (int types = 0; types < 4; types++) {
        struct error err = {0};
        const struct engine_params p = {.n_ctx = 128,
                                        .n_threads = 2,
                                        .type_k = types & 1 ? KV_Q8_0 : KV_F16,
                                        .type_v = types & 2 ? KV_Q8_0 : KV_F16};
        struct engine *a = open_engine(f.m, &p, CPU_ISA_AUTO);
        struct engine *b = open_engine(f.m, &p, CPU_ISA_AUTO);
        float want[TINY_VOCAB], got[TINY_VOCAB];
        eval(a, tokens, 90, LOGITS_NONE);
        const size_t part[] = {engine_kv_bytes(a, 0, 37), engine_kv_bytes(a, 37, 90)};
        unsigned char *saved[2]; // exactly as long as announced: a sanitizer sees any excess
        for (int i = 0; i < 2; i++) {
            saved[i] = malloc(part[i]);
            assert_non_null(saved[i]);
        }
        assert_true(one_export(a, 0, 37, saved[0], &err));
        assert_true(one_export(a, 37, 90, saved[1], &err));
        assert_false(one_export(a, 37, 91, saved[1], &err));
        assert_string_equal(a->kv_format, b->kv_format);
        assert_false(one_import(b, 37, 90, saved[1], &err)); // not at n_past
        assert_true(one_import(b, 0, 37, saved[0], &err));
        assert_true(one_import(b, 37, 90, saved[1], &err));
        assert_int_equal(one_past(b), 90);
        eval(a, tokens + 90, 10, LOGITS_LAST);
        eval(b, tokens + 90, 10, LOGITS_LAST);
        last_logits(a, want);
        last_logits(b, got);
        assert_memory_equal(want, got, sizeof want);
        for (int i = 0; i < 2; i++)
            free(saved[i]);
        one_close(a);
        one_close(b);
    }
    unload(&f);
}

static int argmax(const float *logits)
{
    int best = 0;
    for (int i = 1; i < TINY_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void decoding_is_evaluating_what_was_picked(void **state)
{
    (void)state;
    struct fixture f = load("qwen3", 0);
    struct error err = {0};
    const int32_t *tokens = some_tokens();
    const struct engine_params p = {.n_ctx = 64, .n_threads = 2};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    float logits[TINY_VOCAB];
    int32_t want[8];
    eval(e, tokens, 20, LOGITS_LAST);
    for (int i = 0; i < 8; i++) {
        last_logits(e, logits);
        want[i] = argmax(logits);
        eval(e, &want[i], 1, LOGITS_LAST);
    }
    one_trim(e, 20);
    struct sampler_settings s = sampler_defaults;
    s.temp = 0;
    struct one_params d = {.sampler = &s, .n_probs = 3, .max_tokens = 8};
    assert_false(one_start(e, &d, &err)); // trim made the logits stale
    one_trim(e, 19);
    eval(e, tokens + 19, 1, LOGITS_LAST);
    assert_true(one_start(e, &d, &err));
    for (int i = 0; i < 8; i++) {
        struct decoded got;
        assert_true(one_next(e, &got, &err));
        assert_int_equal(got.id, want[i]);
        assert_int_equal(got.n_top, 3);
        assert_int_equal(got.top[0].id, got.id);
        assert_true(got.logprob <= 0 && fabsf(got.logprob - got.top[0].logprob) < 1e-4f);
        assert_true(got.top[0].logprob >= got.top[1].logprob);
    }
    struct decoded more;
    assert_false(one_next(e, &more, &err)); // max_tokens
    one_stop(e, 22);
    assert_int_equal(one_past(e), 22);
    eval(e, &want[2], 1, LOGITS_LAST);
    last_logits(e, logits);
    assert_int_equal(argmax(logits), want[3]);
    one_close(e);
    unload(&f);
}

static void tokens_before_the_window_do_not_matter(void **state)
{
    (void)state;
    // Two layers with a window of 5: a token's result reaches back over 2 * 4 tokens.
    struct fixture f = load("llama", 5);
    assert_int_equal(f.m->layers[0].window, 5);
    const struct engine_params p = {.n_ctx = N_CTX, .n_threads = 2};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    float logits[3][TINY_VOCAB];
    for (int i = 0; i < 3; i++) {
        int32_t tokens[300];
        memcpy(tokens, some_tokens(), sizeof tokens);
        // the newest token out of reach, then the oldest one within
        if (i > 0)
            tokens[i == 1 ? 300 - 10 : 300 - 9] ^= 1;
        one_trim(e, 0);
        eval(e, tokens, 300, LOGITS_LAST);
        last_logits(e, logits[i]);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_not_equal(logits[0], logits[2], sizeof logits[0]);
    one_close(e);
    unload(&f);
}

static void refusals_change_nothing(void **state)
{
    (void)state;
    struct fixture f = load("llama", 0);
    struct error err = {0};
    struct cancel cancel = {0};
    const int32_t *tokens = some_tokens();
    const int32_t bad[] = {3, TINY_VOCAB}, negative[] = {-1};
    const struct engine_params p = {.n_ctx = 40, .n_threads = 2, .cancel = &cancel};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    one_cancel = &cancel;
    float want[TINY_VOCAB], got[TINY_VOCAB];
    eval(e, tokens, 30, LOGITS_LAST);
    last_logits(e, want);
    one_trim(e, 20);

    assert_false(one_eval(e, tokens, 21, LOGITS_LAST, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_false(one_eval(e, bad, 2, LOGITS_LAST, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_non_null(strstr(err.text, "264"));
    assert_false(one_eval(e, negative, 1, LOGITS_LAST, &err));
    assert_false(one_eval(e, tokens, 0, LOGITS_LAST, &err));
    cancel_ask(&cancel);
    assert_false(one_eval(e, tokens, 5, LOGITS_LAST, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    cancel_clear(&cancel);
    assert_int_equal(one_past(e), 20);
    eval(e, tokens + 20, 10, LOGITS_LAST);
    last_logits(e, got);
    assert_memory_equal(want, got, sizeof want);
    one_close(e);
    unload(&f);
}

// Sets the flag when its items begin, as a signal in the middle of a product would.
struct interruption {
    struct cancel cancel;
    int n_run;
};

static void interrupt_at_ten(void *arg, size_t item, int thread)
{
    struct interruption *i = arg;
    (void)thread;
    i->n_run++;
    if (item == 10)
        cancel_ask(&i->cancel);
}

static void a_job_stops_between_items(void **state)
{
    (void)state;
    struct interruption i = {0};
    struct error err = {0};
    struct pool *p = pool_create(1, &err);
    assert_non_null(p);
    assert_false(pool_run(p, 1000, interrupt_at_ten, &i, &i.cancel));
    assert_int_equal(i.n_run, 11);
    cancel_clear(&i.cancel);
    assert_true(pool_run(p, 5, interrupt_at_ten, &i, &i.cancel));
    pool_free(p);
}

static void count_item(void *arg, size_t item, int thread)
{
    unsigned char *counts = arg;
    assert_true(thread >= 0 && thread < 5);
    counts[item]++;
}

static void every_item_runs_once(void **state)
{
    (void)state;
    struct error err = {0};
    struct pool *p = pool_create(5, &err); // more than most test machines have CPUs
    assert_non_null(p);
    static unsigned char counts[64];
    for (int job = 0; job < 3000; job++) {
        const size_t n = (size_t)job % 64;
        memset(counts, 0, sizeof counts);
        assert_true(pool_run(p, n, count_item, counts, NULL));
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(counts[i], i < n);
    }
    pool_free(p);
}

// The first n weights of a norm are `value`: no token comes of it.
static void expect_no_token(size_t n, float value)
{
    struct fixture f = load("llama", 0);
    struct error err = {0};
    const struct gguf_tensor *norm = gguf_find_tensor(f.m->gguf, "blk.1.ffn_norm.weight");
    assert_non_null(norm);
    assert_true(n <= norm->ne[0]);
    for (size_t i = 0; i < n; i++)
        memcpy(f.block + ((const unsigned char *)norm->data - f.block) + i * sizeof value, &value,
               sizeof value);
    const struct engine_params p = {.n_ctx = 40, .n_threads = 1};
    struct engine *e = open_engine(f.m, &p, CPU_ISA_AUTO);
    eval(e, some_tokens(), 5, LOGITS_LAST);
    struct one_params d = {.sampler = &sampler_defaults, .max_tokens = 1};
    struct decoded got;
    assert_true(one_start(e, &d, &err));
    assert_false(one_next(e, &got, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_non_null(strstr(err.text, "is nan, expected a finite number"));
    one_close(e);
    unload(&f);
}

static void nan_is_an_error_not_a_token(void **state)
{
    (void)state;
    expect_no_token(1, NAN);
}

// Of finite numbers whose squares are infinite a norm would make zeros, and of these a token.
static void overflow_is_an_error_not_a_token(void **state)
{
    (void)state;
    expect_no_token(32, 1e12f);
}

static void the_plan_says_what_fits(void **state)
{
    (void)state;
    struct fixture f = load("llama", 0);
    f.m->hp.n_ctx_train = 1 << 20;
    struct engine_params p = {.n_ctx = 1 << 20, .n_batch = 64, .n_threads = 2};
    struct engine_plan plan;
    struct error err = {0};
    assert_true(cpu_plan(f.m, &p, 50u << 20, &plan, &err));
    assert_false(plan.fits);
    assert_true(plan.n_ctx_max > 0 && plan.n_ctx_max < plan.n_ctx_max_q8);
    assert_false(cpu_plan_error(&plan, &p, &err));
    assert_int_equal(err.code, ERR_MEMORY);
    char advice[64], number[32];
    snprintf(advice, sizeof advice, "-c %u would fit, or -c %u with", plan.n_ctx_max,
             plan.n_ctx_max_q8);
    assert_non_null(strstr(err.text, advice));
    snprintf(number, sizeof number, "%u", 1u << 20);
    assert_non_null(strstr(err.text, number));
    assert_non_null(strstr(err.text, "52,428,800")); // available

    p.n_ctx = plan.n_ctx_max; // the advice is true
    struct engine_plan again;
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_true(again.fits);
    assert_true(again.weights + again.kv + again.scratch + again.other <= again.available);
    p = (struct engine_params){.n_ctx = plan.n_ctx_max_q8,
                               .n_batch = 64,
                               .n_threads = 2,
                               .type_k = KV_Q8_0,
                               .type_v = KV_Q8_0};
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_true(again.fits);
    p.n_ctx = plan.n_ctx_max_q8 + 512;
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_false(again.fits);
    p = (struct engine_params){.n_batch = 64, .n_threads = 2}; // 0: reduced to what fits
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_true(again.fits);
    assert_int_equal(again.n_ctx, plan.n_ctx_max);
    f.m->hp.n_ctx_train = 256; // of a larger one that is asked for as much as has room is told
    p.n_ctx = 1 << 20;
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_false(again.fits);
    assert_int_equal(again.n_ctx_max, plan.n_ctx_max);
    p.n_ctx = 0;
    assert_true(cpu_plan(f.m, &p, 50u << 20, &again, &err));
    assert_int_equal(again.n_ctx_max, 256);
    assert_true(cpu_plan(f.m, &p, 1000, &again, &err)); // nothing fits
    assert_false(again.fits);
    assert_false(cpu_plan_error(&again, &p, &err));
    assert_non_null(strstr(err.text, "no context fits"));
    unload(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_threads_and_instruction_sets_do_not_change_a_bit),
        cmocka_unit_test(all_logits_are_those_of_each_token_alone),
        cmocka_unit_test(trim_and_evaluate_again_gives_the_same),
        cmocka_unit_test(a_chunk_tells_how_much_of_it_is_done),
        cmocka_unit_test(saved_positions_go_on_as_if_never_saved),
        cmocka_unit_test(decoding_is_evaluating_what_was_picked),
        cmocka_unit_test(tokens_before_the_window_do_not_matter),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(a_job_stops_between_items),
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(nan_is_an_error_not_a_token),
        cmocka_unit_test(overflow_is_an_error_not_a_token),
        cmocka_unit_test(the_plan_says_what_fits),
    };
    return RUN_TESTS("cpu_engine", tests);
}
