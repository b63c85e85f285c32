// Engines that share: a GPU with each other, a process with an engine on another GPU, the calling
// thread with whoever else calls CUDA, the user's patience with a chunk under way. On a GPU, and on
// the emulation, where a device has room for eight blocks and there are two devices.
#include "../unit/test.h"

#include <pthread.h>
#include <stdlib.h>

#include "tiny_engine.h"

#ifdef HOKKU_CUDA_ON_CPU
uint64_t emu_kernels_run(void);
void emu_raise_after(uint64_t n, volatile int *flag);
void emu_fail_next_wait(void);
enum { EMULATED = 1, N_PAST = 1000, N_DECODED = 6, N_ROUND = 2 };
#else
enum { EMULATED = 0, N_PAST = 9000, N_DECODED = 200, N_ROUND = 100 };
#endif

static struct engine *open_with(const struct model *m, const struct engine_params *p)
{
    struct error err = {0};
    struct engine *e = try_open(m, p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static struct engine *open_on(const struct model *m, int device, uint32_t n_ctx)
{
    return open_with(m, &(struct engine_params){
                            .n_ctx = n_ctx, .n_batch = 32, .n_threads = 1, .device_index = device});
}

// ---- two engines at once

// A conversation of N_PAST tokens goes on: by a cache whose values are made up, since reading that
// many would take long.
struct talk {
    struct engine *e;
    const struct fixture *f;
    const char *past;
    uint64_t seed;
    int32_t ids[N_DECODED];
    struct error err;
    bool ok;
};

static bool go_on(struct talk *t)
{
    struct sampler_settings settings = sampler_defaults;
    settings.seed = t->seed;
    settings.top_k = 0;
    settings.temp = 2;
    const struct one_params p = {.sampler = &settings, .max_tokens = N_DECODED};
    one_trim(t->e, 0);
    if (!one_import(t->e, 0, N_PAST, t->past, &t->err) ||
        !one_eval(t->e, t->f->tokens, 1, LOGITS_LAST, &t->err) || !one_start(t->e, &p, &t->err))
        return false;
    bool ok = true;
    for (int i = 0; ok && i < N_DECODED; i++) {
        struct decoded d;
        ok = one_next(t->e, &d, &t->err);
        t->ids[i] = d.id;
    }
    one_stop(t->e, N_PAST);
    return ok;
}

static void *go_on_and_on(void *arg)
{
    struct talk *t = arg;
    int32_t first[N_DECODED];
    memcpy(first, t->ids, sizeof first);
    t->ok = true;
    for (int i = 0; t->ok && i < (quick() ? 2 : N_ROUND); i++)
        t->ok = go_on(t) && memcmp(first, t->ids, sizeof first) == 0;
    return NULL;
}

static void two_engines_decode_at_the_same_time(void **state)
{
    (void)state;
    struct fixture f;
    struct talk talks[2];
    pthread_t threads[2];
    open_model(&f, "llama");
    struct engine *e[2];
    for (int i = 0; i < 2; i++)
        e[i] = open_on(f.m, 0, N_PAST + N_DECODED + 8);
    size_t n = engine_kv_bytes(e[0], 0, N_PAST) / sizeof(uint16_t);
    uint16_t *past = malloc(n * sizeof *past);
    assert_non_null(past);
    for (size_t i = 0; i < n; i++) // float16 from 0.06 to 0.12, of either sign
        past[i] = (uint16_t)(0x2C00u | (rng_u64(3, i, 0) & 0x83FFu));
    for (int i = 0; i < 2; i++) {
        talks[i] = (struct talk){e[i], &f, (const char *)past, 40u + (unsigned)i, {0}, {0}, false};
        if (!go_on(&talks[i])) // alone
            fail_msg("%s", talks[i].err.text);
    }
    assert_memory_not_equal(talks[0].ids, talks[1].ids, sizeof talks[0].ids);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, go_on_and_on, &talks[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        if (!talks[i].ok)
            fail_msg("engine %d: %s", i,
                     talks[i].err.code ? talks[i].err.text : "other ids than alone");
        one_close(e[i]);
    }
    free(past);
    close_model(&f);
}

// ---- devices and threads

// Every call of an engine: prefill, one token, decoding, the cache in and out. logits: of a token.
static bool use(struct engine *e, const struct fixture *f, float *logits, struct error *err)
{
    const struct one_params p = {.sampler = &sampler_defaults, .max_tokens = 3};
    struct decoded d;
    char *kv = malloc(engine_kv_bytes(e, 0, 20));
    one_trim(e, 0);
    bool ok = one_eval(e, f->tokens, 20, LOGITS_NONE, err) && one_export(e, 0, 20, kv, err);
    one_trim(e, 0);
    ok = ok && one_import(e, 0, 20, kv, err) && one_eval(e, f->tokens + 20, 1, LOGITS_LAST, err) &&
         one_logits(e, 0, logits, err) && one_start(e, &p, err) && one_next(e, &d, err) &&
         one_next(e, &d, err);
    one_stop(e, 21);
    free(kv);
    return ok;
}

struct used {
    struct engine *e;
    const struct fixture *f;
    float logits[TINY_VOCAB];
    struct error err;
    bool ok;
};

static void *use_elsewhere(void *arg)
{
    struct used *u = arg;
    u->ok = use(u->e, u->f, u->logits, &u->err);
    return NULL;
}

// The first engine is used after another was opened on the next device, the second one by a thread
// that has never chosen a device.
static void an_engine_finds_its_device_whoever_calls(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    float alone[TINY_VOCAB], got[TINY_VOCAB];
    pthread_t thread;
    int n_device = cuda_device_count(NULL, 0);
    if (EMULATED)
        assert_true(n_device > 1);
    open_model(&f, "qwen2");
    struct engine *a = open_on(f.m, 0, N_CTX);
    if (!use(a, &f, alone, &err))
        fail_msg("alone: %s", err.text);
    struct engine *b = open_on(f.m, n_device > 1, N_CTX);
    if (!use(a, &f, got, &err))
        fail_msg("after another engine was opened: %s", err.text);
    assert_memory_equal(got, alone, sizeof got);
    struct used u = {.e = b, .f = &f};
    assert_int_equal(pthread_create(&thread, NULL, use_elsewhere, &u), 0);
    pthread_join(thread, NULL);
    if (!u.ok)
        fail_msg("in another thread: %s", u.err.text);
    assert_memory_equal(u.logits, alone, sizeof alone);
    one_close(a); // while the other device is the current one
    if (!use(b, &f, got, &err))
        fail_msg("after the other engine was closed: %s", err.text);
    one_close(b);
    close_model(&f);
}

// ---- calls at the wrong time

static void what_comes_between_two_tokens_disturbs_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded d;
    char kv[16384];
    open_model(&f, "llama");
    struct engine *e = open_on(f.m, 0, N_CTX);
    struct sampler_settings greedy = sampler_defaults;
    greedy.temp = 0;
    const struct one_params p = {.sampler = &greedy, .max_tokens = 6};
    int32_t want[6], got[6];
    assert_true(engine_kv_bytes(e, 0, 10) <= sizeof kv);
    for (int run = 0; run < 2; run++) {
        one_trim(e, 0);
        assert_true(one_eval(e, f.tokens, 10, LOGITS_LAST, &err));
        assert_true(one_export(e, 0, 10, kv, &err));
        assert_true(one_start(e, &p, &err));
        for (int i = 0; i < 6; i++) {
            assert_true(one_next(e, &d, &err));
            (run ? got : want)[i] = d.id;
            if (!run)
                continue;
            // With picks under way: what would change the sequence is refused; its cache may be
            // read.
            const struct sampling other = {.sampler = &sampler_defaults};
            for (int call = 0; i < 5 && call < 3; call++) {
                err = (struct error){0};
                const size_t len = seq_len(one(e));
                bool ok = call == 0   ? one_eval(e, f.tokens, 1, LOGITS_LAST, &err)
                          : call == 1 ? seq_sampling(one(e), &other, &err)
                                      : one_import(e, len, len + 1, kv, &err);
                if (ok || err.code != ERR_FAIL || !strstr(err.text, "waited for"))
                    fail_msg("call %d: %s", call, ok ? "accepted" : err.text);
            }
            if (i % 2)
                assert_true(one_export(e, 0, 10, kv, &err));
        }
        one_stop(e, 10);
    }
    assert_memory_equal(got, want, sizeof got); // and nothing was disturbed
    one_close(e);
    close_model(&f);
}

enum { N_LAYER = 6, N_CHUNK = 256, N_LONG = 1500 };

// With layers enough to be stopped between.
static struct model *deep_model(struct buf *b)
{
    struct error err = {0};
    struct tiny t;
    enum { KV = TINY_KV * (TINY_EMBD / TINY_HEADS) };
    static const struct {
        const char *name;
        uint64_t n_cols, rows;
    } all[] = {{"attn_norm", TINY_EMBD, 0},
               {"attn_q", TINY_EMBD, TINY_EMBD},
               {"attn_k", TINY_EMBD, KV},
               {"attn_v", TINY_EMBD, KV},
               {"attn_output", TINY_EMBD, TINY_EMBD},
               {"ffn_norm", TINY_EMBD, 0},
               {"ffn_gate", TINY_EMBD, TINY_FF},
               {"ffn_up", TINY_EMBD, TINY_FF},
               {"ffn_down", TINY_FF, TINY_EMBD}};
    tiny_init(&t, "llama");
    tiny_u32(&t, "llama.block_count", N_LAYER);
    tiny_u32(&t, "llama.context_length", N_LONG + N_CHUNK);
    for (int l = 0; l < N_LAYER; l++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            char name[96];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, all[i].name);
            tiny_tensor(&t, name, all[i].rows ? QUANT_Q8_0 : QUANT_F32, all[i].n_cols, all[i].rows);
        }
    tiny_write(&t, b);
    tiny_release(&t);
    struct gguf *g = gguf_open_memory(b->data, b->len, "tiny.gguf", &err);
    struct model *m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

#ifdef HOKKU_CUDA_ON_CPU

static void a_failure_while_stopping_is_told_by_the_next_call(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded d;
    open_model(&f, "llama");
    struct engine *e = open_on(f.m, 0, N_CTX);
    const struct one_params p = {.sampler = &sampler_defaults, .max_tokens = 6};
    assert_true(one_eval(e, f.tokens, 10, LOGITS_LAST, &err));
    assert_true(one_start(e, &p, &err));
    assert_true(one_next(e, &d, &err));
    emu_fail_next_wait();
    one_stop(e, 10);
    for (int i = 0; i < 2; i++) {
        assert_false(one_eval(e, f.tokens, 1, LOGITS_LAST, &err));
        assert_int_equal(err.code, ERR_FAIL);
        assert_non_null(strstr(err.text, "launch failure"));
    }
    one_close(e);
    close_model(&f);
}

// ---- cancelling

// The device does nothing that nobody waits for, as when the host is far ahead of it. Once it is in
// the first layer the user cancels: three layers are queued then, and not all.
static void a_cancelled_chunk_ends_with_the_layers_at_hand(void **state)
{
    (void)state;
    struct buf b = {0};
    struct error err = {0};
    struct cancel cancel = {0};
    static int32_t tokens[N_CHUNK];
    struct model *m = deep_model(&b);
    struct engine *e = open_with(
        m, &(struct engine_params){
               .n_ctx = 2 * N_CHUNK, .n_batch = N_CHUNK, .n_threads = 1, .cancel = &cancel});
    uint64_t begin = emu_kernels_run();
    if (!one_eval(e, tokens, N_CHUNK, LOGITS_NONE, &err))
        fail_msg("%s", err.text);
    uint64_t whole = emu_kernels_run() - begin;
    one_trim(e, 0);
    one_cancel = &cancel;
    emu_raise_after(3, &cancel.asked);
    begin = emu_kernels_run();
    assert_false(one_eval(e, tokens, N_CHUNK, LOGITS_NONE, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    uint64_t part = emu_kernels_run() - begin;
    print_message("# %d of %d kernels of a chunk of %d layers\n", (int)part, (int)whole, N_LAYER);
    assert_in_range(part, 3, whole * 3 / N_LAYER + 1);
    assert_int_equal(one_past(e), 0);
    one_close(e);
    model_free(m);
    buf_release(&b);
}

#endif

// ---- memory

static struct engine_plan plan_of(const struct model *m, const struct engine_params *p)
{
    struct engine_plan plan;
    struct error err = {0};
    if (!cuda_engine_plan(m, p, &plan, &err))
        fail_msg("%s", err.text);
    return plan;
}

// What the plan says is enough. All that an engine takes it takes when it is opened, kernels
// included: what was free after that is free after prompts and answers of every kind, behind short
// texts and a long one. (Products
// that need cuBLAS open it later; this model has none on Hopper.) A driver's own needs: 2 MB.
static void an_open_engine_takes_no_more_memory(void **state)
{
    (void)state;
    struct buf b = {0};
    struct error err = {0};
    struct decoded d;
    static int32_t tokens[N_CHUNK];
    struct model *m = deep_model(&b);
    const struct engine_params p = {.n_ctx = N_LONG + N_CHUNK, .n_batch = N_CHUNK, .n_threads = 1};
    struct engine_plan plan = plan_of(m, &p);
    struct engine *e = open_with(m, &p);
    uint64_t before = plan_of(m, &p).available, arenas = plan.weights + plan.kv + plan.scratch;
    static const size_t chunks[] = {1, 2, 3, 4, 5, 8, 9, 25, 100, 256};
    for (size_t i = 0; i < (EMULATED ? 9 : 10); i++) {
        enum engine_logits want = i % 2 ? LOGITS_ALL : LOGITS_LAST;
        float logits[TINY_VOCAB];
        one_trim(e, 0);
        if (!one_eval(e, tokens, chunks[i], want, &err) || !one_logits(e, 0, logits, &err))
            fail_msg("%s", err.text);
    }
    void *past = calloc(1, engine_kv_bytes(e, 0, N_LONG)); // made up: reading so much takes long
    assert_non_null(past);
    one_trim(e, 0);
    if (!one_import(e, 0, N_LONG, past, &err) || !one_eval(e, tokens, 9, LOGITS_LAST, &err))
        fail_msg("behind a long text: %s", err.text);
    free(past);
    for (int waits = 0; waits < 2; waits++) {
        struct sampler_settings s = sampler_defaults;
        s.top_k = waits ? 0 : 40;
        const struct one_params dp = {.sampler = &s, .max_tokens = 3};
        one_trim(e, 0);
        assert_true(one_eval(e, tokens, 25, LOGITS_LAST, &err) && one_start(e, &dp, &err) &&
                    one_next(e, &d, &err) && one_next(e, &d, &err));
        one_stop(e, 25);
    }
    uint64_t after = plan_of(m, &p).available;
    print_message(
        "# besides weights, cache and scratch %.1f MB of the planned %.1f; then %.1f more\n",
        ((double)e->mem_used - (double)arenas) * 1e-6, (double)plan.other * 1e-6,
        ((double)before - (double)after) * 1e-6);
    assert_true(e->mem_used <= arenas + plan.other);
    assert_true(after + (EMULATED ? 0 : 2 << 20) >= before);
    one_close(e);
    model_free(m);
    buf_release(&b);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    if (!on_cuda) { // the rest is about GPUs
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(what_comes_between_two_tokens_disturbs_nothing)};
        return RUN_TESTS("shared", tests);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_engines_decode_at_the_same_time),
        cmocka_unit_test(an_engine_finds_its_device_whoever_calls),
        cmocka_unit_test(what_comes_between_two_tokens_disturbs_nothing),
#ifdef HOKKU_CUDA_ON_CPU
        cmocka_unit_test(a_failure_while_stopping_is_told_by_the_next_call),
        cmocka_unit_test(a_cancelled_chunk_ends_with_the_layers_at_hand),
#endif
        cmocka_unit_test(an_open_engine_takes_no_more_memory),
    };
    return RUN_TESTS("shared", tests);
}
