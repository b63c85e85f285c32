// The contract of engine.h: timeline, chunks, decoding, the KV cache in and out, and what happens
// when something does not fit. Small random models of every architecture, whose matrices have eight
// different weight types; the CPU engine is the reference. `test_engine cuda` (the default) or cpu.
#include "../unit/further.h"
#include "../unit/test.h"

#include <math.h>
#include <unistd.h>

#include "tiny_experts.h"

static struct engine *open_engine_of(const struct model *m, enum kv_type type, uint32_t n_ctx)
{
    const struct engine_params p = {
        .n_ctx = n_ctx, .n_batch = 32, .type_k = type, .type_v = type, .n_threads = 1};
    struct error err = {0};
    struct engine *e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static struct engine *open_engine(const struct model *m, enum kv_type type)
{
    return open_engine_of(m, type, N_CTX);
}

static void eval(struct engine *e, const int32_t *tokens, size_t n, enum engine_logits want)
{
    struct error err = {0};
    if (!one_eval(e, tokens, n, want, &err))
        fail_msg("%s", err.text);
}

static void get_logits(struct engine *e, size_t i, float *out)
{
    struct error err = {0};
    if (!one_logits(e, i, out, &err))
        fail_msg("%s", err.text);
    for (int k = 0; k < TINY_VOCAB; k++)
        assert_true(isfinite(out[k]));
}

static int32_t argmax(const float *v)
{
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_VOCAB; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

#ifdef HOKKU_CUDA_ON_CPU
size_t emu_loaded_bytes(int device); // by kernels that have been launched, once in this process

// No prompt takes device memory for a kernel that none before it had, but for those that go with
// cuBLAS. The first test, since what another one has launched stays loaded.
static void all_kernels_are_loaded_when_an_engine_opens(void **state)
{
    (void)state;
    const char *capability = getenv("HOKKU_EMU_CAPABILITY");
    const bool has_hopper = !capability || atoi(capability) >= 9;
    // Experts, by the kernels of prompts, with more rows each as prompts grow; nothing but dense
    // layers; experts by the kernels of passes. (What one engine loads stays loaded.)
    static const struct {
        uint32_t n, n_used;
        bool exact;
        size_t n_batch, step;
    } cases[] = {{11, 1, false, 300, 59}, {0, 0, false, N_TOKENS, 1}, {6, 4, true, N_TOKENS, 1}};
    static int32_t tokens[300];
    if (!on_cuda)
        return; // there is nothing to load
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        // beyond that cuBLAS is opened when it is needed
        const size_t most = has_hopper ? cases[c].n_batch : 32;
        struct fixture f;
        struct tiny t;
        tiny_init(&t, "llama");
        for (size_t i = 0; i < t.n_tensors; i++)
            if (t.tensors[i].n_dims == 2 && t.tensors[i].type == QUANT_F32)
                t.tensors[i].type = QUANT_Q8_0;
        open_tiny(&f, &t);
        for (uint32_t i = 0; cases[c].n > 0 && i < TINY_LAYERS; i++)
            add_experts(f.m, i, MXFP4S, cases[c].n, cases[c].n_used, 32, 0);
        const struct engine_params p = {.n_ctx = 320,
                                        .n_batch = (uint32_t)cases[c].n_batch,
                                        .n_threads = 1,
                                        .exact = cases[c].exact};
        struct error err = {0};
        struct engine *e = try_open(f.m, &p, &err);
        if (!e)
            fail_msg("%s", err.text);
        const size_t loaded = emu_loaded_bytes(0);
        for (size_t n = 1; n <= most; n += cases[c].step) {
            one_trim(e, 0);
            eval(e, tokens, n, LOGITS_LAST);
            if (emu_loaded_bytes(0) != loaded)
                fail_msg("case %zu, a prompt of %zu tokens: %zu bytes of kernels, when opened %zu",
                         c, n, emu_loaded_bytes(0), loaded);
        }
        one_close(e);
        close_model(&f);
    }
}
#endif

// Chunks of 30 (matrix products), 8, 5 (several columns) and 1 (fused kernels), with both cache
// types and every architecture.
static void logits_agree_with_the_cpu_engine(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    static const size_t chunks[] = {30, 8, 5, 1, 1, 3};
    for (size_t a = 0; a < 3; a++)
        for (enum kv_type type = KV_F16; type <= KV_Q8_0; type++) {
            struct fixture f;
            struct error err = {0};
            open_model(&f, archs[a]);
            const struct engine_params p = {
                .n_ctx = N_CTX, .n_batch = 32, .type_k = type, .type_v = type, .n_threads = 1};
            struct engine *cpu = cpu_engine_open(f.m, &p, &err), *e = open_engine(f.m, type);
            assert_non_null(cpu);
            float got[TINY_VOCAB], want[TINY_VOCAB];
            size_t at = 0;
            double worst = 0, size = 0;
            for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                eval(e, f.tokens + at, chunks[c], LOGITS_ALL);
                eval(cpu, f.tokens + at, chunks[c], LOGITS_ALL);
                for (size_t i = 0; i < chunks[c]; i++) {
                    get_logits(e, i, got);
                    get_logits(cpu, i, want);
                    for (int k = 0; k < TINY_VOCAB; k++) {
                        worst = further(worst, fabs(got[k] - want[k]));
                        size = fmax(size, fabs(want[k]));
                    }
                }
                at += chunks[c];
                assert_int_equal(one_past(e), at);
            }
            print_message("# %s, %s cache: off by %.4f of logits up to %.2f\n", archs[a],
                          type == KV_F16 ? "f16" : "q8_0", worst, size);
            assert_true(size > 0.5);
            assert_true(worst < (type == KV_F16 ? 0.004 : 0.03) * size);
            one_close(cpu);
            one_close(e);
            close_model(&f);
        }
}

static void the_same_chunks_give_the_same_bits_after_a_trim(void **state)
{
    (void)state;
    struct fixture f;
    float first[TINY_VOCAB], again[TINY_VOCAB];
    open_model(&f, "qwen2");
    struct engine *e = open_engine(f.m, KV_F16);
    eval(e, f.tokens, 30, LOGITS_NONE);
    eval(e, f.tokens + 30, 9, LOGITS_LAST);
    get_logits(e, 0, first);
    one_trim(e, 30);
    assert_int_equal(one_past(e), 30);
    eval(e, f.tokens + 30, 9, LOGITS_LAST);
    get_logits(e, 0, again);
    assert_memory_equal(first, again, sizeof first);
    // other tokens in between leave no trace
    one_trim(e, 3);
    eval(e, f.tokens, 20, LOGITS_NONE);
    one_trim(e, 0);
    eval(e, f.tokens, 30, LOGITS_NONE);
    eval(e, f.tokens + 30, 9, LOGITS_ALL);
    get_logits(e, 8, again);
    print_message("# last row of all against the only row: off by %g\n",
                  (double)fabsf(first[0] - again[0]));
    one_trim(e, 30);
    eval(e, f.tokens + 30, 9, LOGITS_LAST);
    get_logits(e, 0, again);
    assert_memory_equal(first, again, sizeof first);
    one_close(e);
    close_model(&f);
}

static void an_exported_cache_goes_on_where_it_was(void **state)
{
    (void)state;
    for (enum kv_type type = KV_F16; type <= KV_Q8_0; type++) {
        struct fixture f;
        struct error err = {0};
        float want[TINY_VOCAB], got[TINY_VOCAB];
        open_model(&f, "qwen3");
        struct engine *e = open_engine(f.m, type);
        eval(e, f.tokens, 30, LOGITS_NONE);
        eval(e, f.tokens + 30, 5, LOGITS_NONE);
        eval(e, f.tokens + 35, 1, LOGITS_LAST);
        get_logits(e, 0, want);
        size_t n1 = engine_kv_bytes(e, 0, 20), n2 = engine_kv_bytes(e, 20, 35);
        char *part1 = malloc(n1), *part2 = malloc(n2);
        assert_true(part1 && part2 && n1 > 0);
        assert_true(one_export(e, 0, 20, part1, &err));
        assert_true(one_export(e, 20, 35, part2, &err));
        assert_false(one_export(e, 0, 37, part1, &err)); // more than there is
        one_close(e);
        e = open_engine(f.m, type);
        assert_true(one_import(e, 0, 20, part1, &err));
        assert_false(one_import(e, 21, 36, part2, &err)); // not where it ends
        assert_true(one_import(e, 20, 35, part2, &err));
        assert_int_equal(one_past(e), 35);
        eval(e, f.tokens + 35, 1, LOGITS_LAST);
        get_logits(e, 0, got);
        assert_memory_equal(want, got, sizeof want);
        free(part1);
        free(part2);
        one_close(e);
        close_model(&f);
    }
}

static void decoding_gives_what_evaluating_token_by_token_gives(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    float logits[TINY_VOCAB];
    int32_t want[12], got[12];
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, KV_F16);
    eval(e, f.tokens, 10, LOGITS_LAST);
    for (int i = 0; i < 12; i++) {
        get_logits(e, 0, logits);
        want[i] = argmax(logits);
        eval(e, &want[i], 1, LOGITS_LAST);
    }
    struct sampler_settings settings = sampler_defaults;
    settings.temp = 0;
    struct one_params p = {.sampler = &settings, .max_tokens = 12};
    for (int run = 0; run < 2; run++) {
        one_trim(e, 0);
        eval(e, f.tokens, 10, run ? LOGITS_ALL : LOGITS_LAST);
        assert_true(one_start(e, &p, &err));
        for (int i = 0; i < 12; i++) {
            struct decoded d;
            if (!one_next(e, &d, &err))
                fail_msg("%s", err.text);
            got[i] = d.id;
        }
        struct decoded more;
        assert_false(one_next(e, &more, &err)); // not more than asked for
        one_stop(e, 15);
        assert_int_equal(one_past(e), 15);
        assert_memory_equal(got, want, sizeof got);
        // going on from the middle gives the same text
        eval(e, &got[5], 1, LOGITS_LAST);
        get_logits(e, 0, logits);
        assert_int_equal(argmax(logits), want[6]);
    }
    one_close(e);
    close_model(&f);
}

static void the_same_seed_gives_the_same_ids(void **state)
{
    (void)state;
#ifdef HOKKU_CUDA_ON_CPU
    const bool whole = false;
#else
    const bool whole = !getenv("HOKKU_QUICK"); // compute-sanitizer is slow
#endif
    enum { MAX_LENGTH = 2000 };
    const int n_runs = whole ? 21 : 6, length = whole ? MAX_LENGTH : 20;
    const size_t n_bytes = (size_t)length * sizeof(int32_t);
    struct fixture f;
    struct error err = {0};
    static int32_t first[MAX_LENGTH], ids[MAX_LENGTH];
    open_model(&f, "qwen2");
    struct engine *e = open_engine_of(f.m, KV_F16, (uint32_t)length + 12);
    struct sampler_settings settings = sampler_defaults;
    settings.temp = 2;
    settings.top_k = 0;
    struct one_params p = {.sampler = &settings, .max_tokens = (size_t)length};
    int differing = 0;
    for (int run = 0; run < n_runs; run++) {
        settings.seed = run == n_runs - 1 ? 5 : 4;
        one_trim(e, run % 2 ? 7 : 0);
        eval(e, f.tokens + one_past(e), 7 - one_past(e) ? 7 : 5, LOGITS_LAST);
        if (one_past(e) < 12)
            eval(e, f.tokens + 7, 5, LOGITS_LAST);
        assert_true(one_start(e, &p, &err));
        for (int i = 0; i < length; i++) {
            struct decoded d;
            if (!one_next(e, &d, &err))
                fail_msg("%s", err.text);
            (run ? ids : first)[i] = d.id;
        }
        one_stop(e, 12);
        if (run == n_runs - 1)
            differing = memcmp(first, ids, n_bytes) != 0;
        else if (run)
            assert_memory_equal(first, ids, n_bytes);
    }
    assert_true(differing); // another seed
    one_close(e);
    close_model(&f);
}

static void decoding_stops_at_stop_ids_and_at_the_end_of_the_context(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded d;
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, KV_F16);
    struct sampler_settings settings = sampler_defaults;
    settings.temp = 0;
    struct one_params p = {.sampler = &settings, .max_tokens = 1000};
    eval(e, f.tokens, N_TOKENS, LOGITS_LAST);
    assert_true(one_start(e, &p, &err));
    int n = 0;
    while (n < 100 && one_next(e, &d, &err))
        n++;
    // four positions left: four tokens can be evaluated, and a fifth sampled after them
    assert_in_range(n, N_CTX - N_TOKENS, N_CTX - N_TOKENS + 1);
    one_stop(e, one_past(e));

    one_trim(e, 0);
    eval(e, f.tokens, 10, LOGITS_LAST);
    p.max_tokens = 3;
    assert_true(one_start(e, &p, &err));
    assert_true(one_next(e, &d, &err));
    one_stop(e, 10);
    const int32_t stop[] = {d.id};
    p.stop_ids = stop;
    p.n_stop_ids = 1;
    p.max_tokens = 30;
    one_trim(e, 9);
    eval(e, f.tokens + 9, 1, LOGITS_LAST);
    assert_true(one_start(e, &p, &err));
    assert_true(one_next(e, &d, &err));
    assert_int_equal(d.id, stop[0]);
    assert_true(one_past(e) <= 11);
    struct decoded more;
    assert_false(one_next(e, &more, &err)); // nothing was sampled after it
    assert_true(one_past(e) <= 11);
    one_stop(e, one_past(e));
    // and the engine is as good as new
    p.n_stop_ids = 0;
    one_trim(e, 0);
    eval(e, f.tokens, 10, LOGITS_LAST);
    assert_true(one_start(e, &p, &err));
    for (int i = 0; i < 5; i++)
        assert_true(one_next(e, &d, &err));
    one_stop(e, 10);
    one_close(e);
    close_model(&f);
}

static void what_does_not_fit_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    float logits[TINY_VOCAB];
    struct decoded d;
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, KV_F16);
    const struct one_params p = {.sampler = &sampler_defaults, .max_tokens = 1};
    assert_false(one_start(e, &p, &err)); // nothing evaluated
    assert_false(one_next(e, &d, &err));
    eval(e, f.tokens, N_TOKENS, LOGITS_LAST);
    assert_false(one_eval(e, f.tokens, N_CTX - N_TOKENS + 1, LOGITS_LAST, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(one_past(e), N_TOKENS);
    assert_false(one_logits(e, 1, logits, &err)); // only the last one was asked for
    one_close(e);

    // memory: an error that names what would fit, or with 0 a smaller context
    struct engine_params big = {.n_ctx = 1u << 31, .n_threads = 1};
    assert_null(try_open(f.m, &big, &err));
    assert_int_equal(err.code, ERR_MEMORY);
    if (on_cuda) {
        print_message("# %s\n", err.text);
        assert_non_null(strstr(err.text, "weights"));
        assert_non_null(strstr(err.text, "-c "));
        assert_non_null(strstr(err.text, "q8_0"));
    }
    big.n_ctx = 0;
    e = try_open(f.m, &big, &err);
    assert_non_null(e);
    assert_int_equal(e->n_ctx, f.m->hp.n_ctx_train);
    one_close(e);
    if (on_cuda) {
        big.device_index = 77;
        assert_null(try_open(f.m, &big, &err));
        assert_int_equal(err.code, ERR_USAGE);
        struct engine_plan plan;
        big.device_index = 0;
        assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
        assert_true(plan.fits && plan.weights > 0 && plan.kv > 0 && plan.scratch > 0);
        assert_true(plan.n_ctx_max_q8 >= plan.n_ctx_max);
        big.set_aside = plan.available;
        assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
        assert_true(!plan.fits && plan.n_ctx_max == 0);
        big.set_aside = 0;
#ifdef HOKKU_CUDA_ON_CPU // where nobody else takes memory
        // the largest context that fits does fit, and 64 tokens more do not
        const uint32_t trained = f.m->hp.n_ctx_train;
        f.m->hp.n_ctx_train = 1u << 31;
        for (int i = 0; i < 2; i++) {
            big.n_ctx = 0;
            big.type_k = big.type_v = KV_F16;
            assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
            const uint32_t most = i ? plan.n_ctx_max_q8 : plan.n_ctx_max;
            assert_true(most > 0 && most % 64 == 0 && most < 1u << 31);
            big.type_k = big.type_v = i ? KV_Q8_0 : KV_F16;
            f.m->hp.n_ctx_train = most + 64;
            assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
            assert_int_equal(plan.n_ctx, most);
            assert_true(plan.fits);
            big.n_ctx = most + 64;
            assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
            assert_false(plan.fits);
            big.n_ctx = 0;
            f.m->hp.n_ctx_train = most - 1; // all of it
            assert_true(cuda_engine_plan(f.m, &big, &plan, &err));
            assert_int_equal(plan.n_ctx, most - 1);
            f.m->hp.n_ctx_train = 1u << 31;
        }
        f.m->hp.n_ctx_train = trained;
#endif
    }
    close_model(&f);
}

// What no kernel computes must not be computed as something else.
static void a_fact_that_the_kernels_do_not_compute_is_refused_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t at; // of a layer
        uint32_t u;
        size_t and_at; // 0: nothing more
    } facts[] = {
        {"heads wider than 256", offsetof(struct layer, delta.n_state), 257},
        {"layer 1: a state space with states wider", offsetof(struct layer, ssm.n_state), 257},
        {"layer 1: what laurel_l and laurel_r add", offsetof(struct layer, n_laurel), 64,
         offsetof(struct layer, parallel)},
        {"layer 1: gates that are cut off", offsetof(struct layer, sparse), 1,
         offsetof(struct layer, experts.n)},
    };
    const size_t n_facts = sizeof facts / sizeof *facts;
    for (size_t i = 0; on_cuda && i <= n_facts; i++) {
        struct fixture f;
        struct error err = {0};
        struct engine_params p = {.n_ctx = N_CTX, .n_batch = 32};
        struct engine_plan plan;
        const char *name = "layer 1: no attn_norm";
        open_model(&f, "llama");
        if (i < n_facts) {
            name = facts[i].name;
            struct layer *l = &f.m->layers[1];
            memcpy((char *)l + facts[i].at, &facts[i].u, 4);
            if (facts[i].and_at)
                *((char *)l + facts[i].and_at) = 1;
        } else {
            f.m->layers[1].w[ATTN_NORM].data = NULL;
        }
        assert_null(try_open(f.m, &p, &err));
        assert_int_equal(err.code, ERR_MODEL);
        assert_false(cuda_engine_plan(f.m, &p, &plan, &err));
        if (!strstr(err.text, name) || !strstr(err.text, "--device cpu"))
            fail_msg("\"%s\", expected \"%s\"", err.text, name);
        close_model(&f);
    }
}

// Fused tensors hold several matrices one after the other: gate and up are here the two halves of
// one, in a file, since the loader reads files and not their mapping.
static void a_matrix_may_be_some_rows_of_a_tensor(void **state)
{
    (void)state;
    char path[] = "/tmp/hokku-slices-XXXXXX";
    struct tiny t;
    struct buf b = {0};
    struct error err = {0};
    const struct engine_params p = {.n_ctx = N_CTX, .n_batch = 32, .n_threads = 1};
    float whole[TINY_VOCAB], sliced[TINY_VOCAB];
    tiny_init(&t, "llama");
    for (int l = 0; l < TINY_LAYERS; l++) {
        char name[96];
        snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", l);
        tiny_tensor(&t, name, QUANT_Q5_0, TINY_EMBD, TINY_FF);
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", l);
        tiny_tensor(&t, name, QUANT_Q5_0, TINY_EMBD, TINY_FF);
    }
    t.weight = 0.03f;
    tiny_write(&t, &b);
    tiny_release(&t);
    assert_false(b.failed);
    struct gguf *g = gguf_open_memory(b.data, b.len, "tiny.gguf", &err);
    struct model *m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!m)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int k = 0; k < N_LAYER_WEIGHTS; k++)
            if (!m->layers[i].w[k].vector)
                fill(&m->layers[i].w[k], 20 * (i + 1) + (uint64_t)k);
    fill(&m->tok_embd, 1);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, b.data, b.len) == (ssize_t)b.len && close(fd) == 0);
    model_free(m);
    buf_release(&b);

    m = model_load(path, &err);
    if (!m)
        fail_msg("%s", err.text);
    static const int32_t tokens[] = {5, 9, 200, 31};
    for (int i = 0; i < 2; i++) {
        for (uint32_t l = 0; i == 1 && l < m->hp.n_layer; l++) {
            // the lower half of gate and the upper half of up, as a table of fused tensors would
            // say
            struct weight *gate = &m->layers[l].w[FFN_GATE], *up = &m->layers[l].w[FFN_UP];
            const size_t half = gate->n_bytes / 2;
            m->layers[l].n_ff = TINY_FF / 2;
            gate->rows = up->rows = TINY_FF / 2;
            gate->n_bytes = up->n_bytes = half;
            gate->data = (const uint8_t *)gate->data + half;
            up->data = (const uint8_t *)up->data + half;
            m->layers[l].w[FFN_DOWN].n_cols = TINY_FF / 2;
            m->layers[l].w[FFN_DOWN].rows = TINY_EMBD;
        }
        struct engine *cpu = cpu_engine_open(m, &p, &err), *e = try_open(m, &p, &err);
        if (!cpu || !e)
            fail_msg("%s", err.text);
        eval(cpu, tokens, 4, LOGITS_LAST);
        eval(e, tokens, 4, LOGITS_LAST);
        get_logits(cpu, 0, whole);
        get_logits(e, 0, sliced);
        for (int k = 0; k < TINY_VOCAB; k++)
            assert_true(fabsf(whole[k] - sliced[k]) <= 0.02f * (1 + fabsf(whole[k])));
        one_close(cpu);
        one_close(e);
    }
    model_free(m);
    unlink(path);
}

static void the_cancel_flag_is_seen(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct cancel cancel = {1};
    open_model(&f, "llama");
    struct engine_params p = {.n_ctx = N_CTX, .n_batch = 32, .n_threads = 1, .cancel = &cancel};
    if (on_cuda) {
        assert_null(try_open(f.m, &p, &err));
        assert_int_equal(err.code, ERR_INTERRUPTED);
    }
    cancel_clear(&cancel);
    struct engine *e = try_open(f.m, &p, &err);
    assert_non_null(e);
    one_cancel = &cancel;
    eval(e, f.tokens, 10, LOGITS_LAST);
    cancel_ask(&cancel);
    assert_false(one_eval(e, f.tokens, 40, LOGITS_LAST, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_int_equal(one_past(e), 10);
    cancel_clear(&cancel);
    eval(e, f.tokens, 3, LOGITS_LAST);
    const struct one_params d = {.sampler = &sampler_defaults, .max_tokens = 10};
    struct decoded one;
    assert_true(one_start(e, &d, &err));
    cancel_ask(&cancel);
    assert_false(one_next(e, &one, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    one_stop(e, 13);
    assert_int_equal(one_past(e), 13);
    one_close(e);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
#ifdef HOKKU_CUDA_ON_CPU
        cmocka_unit_test(all_kernels_are_loaded_when_an_engine_opens),
#endif
        cmocka_unit_test(logits_agree_with_the_cpu_engine),
        cmocka_unit_test(the_same_chunks_give_the_same_bits_after_a_trim),
        cmocka_unit_test(an_exported_cache_goes_on_where_it_was),
        cmocka_unit_test(decoding_gives_what_evaluating_token_by_token_gives),
        cmocka_unit_test(the_same_seed_gives_the_same_ids),
        cmocka_unit_test(decoding_stops_at_stop_ids_and_at_the_end_of_the_context),
        cmocka_unit_test(what_does_not_fit_is_refused_and_changes_nothing),
        cmocka_unit_test(a_fact_that_the_kernels_do_not_compute_is_refused_by_its_name),
        cmocka_unit_test(a_matrix_may_be_some_rows_of_a_tensor),
        cmocka_unit_test(the_cancel_flag_is_seen),
    };
    return RUN_TESTS("engine", tests);
}
