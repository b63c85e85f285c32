// Decoding on the CPU engine: the same seed gives the same tokens, and the same bits in the KV
// cache, however the prompt was cut into chunks; and a stop id is the last token.
#include "test.h"
#include "one_seq.h"

#include <pthread.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "random_weights.h"
#include "tiny_model.h"

enum { N_PROMPT = 75, N_ANSWER = 40, N_CTX = 128, N_PROBS = 5 };

static struct model *open_model(const char *arch, struct buf *b)
{
    struct error err = {0};
    struct tiny t;
    *b = (struct buf){0};
    tiny_init(&t, arch);
    t.weight = 0.05f;
    tiny_write(&t, b);
    tiny_release(&t);
    assert_false(b->failed);
    struct gguf *g = gguf_open_memory(b->data, b->len, "tiny.gguf", &err);
    if (!g)
        fail_msg("%s", err.text);
    random_counter = 5;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        if (x->n_dims == 2)
            random_weights(x->type,
                           (unsigned char *)b->data +
                               ((const unsigned char *)x->data - (unsigned char *)b->data),
                           x->ne[0] * x->ne[1]);
    }
    struct model *m = model_from_gguf(g, "tiny.gguf", &err);
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

static const int32_t *prompt(void)
{
    static int32_t tokens[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        tokens[i] = (i * 37 + i * i / 5) % TINY_VOCAB;
    return tokens;
}

struct outcome {
    struct decoded d[N_ANSWER];
    unsigned char *kv;
    size_t n_kv;
};

// An answer to the prompt, given in chunks, by an engine with that batch size.
static struct outcome answer(const struct model *m, enum kv_type type, uint32_t n_batch,
                             size_t chunk)
{
    struct error err = {0};
    struct outcome o;
    const struct engine_params p = {
        .n_ctx = N_CTX, .n_batch = n_batch, .n_threads = 1, .type_k = type, .type_v = type};
    struct engine *e = cpu_engine_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    assert_int_equal(e->n_batch, n_batch);
    assert_ptr_equal(strstr(e->device, "CPU ("), e->device);
    assert_non_null(strstr(e->device, ", 1 thread)"));
    memset(&o, 0, sizeof o);
    for (size_t at = 0; at < N_PROMPT; at += chunk) {
        size_t n = N_PROMPT - at < chunk ? N_PROMPT - at : chunk;
        if (!one_eval(e, prompt() + at, n, at + n == N_PROMPT ? LOGITS_LAST : LOGITS_NONE, &err))
            fail_msg("%s", err.text);
    }
    struct sampler_settings set = sampler_defaults;
    set.seed = 9;
    set.temp = 1.5f;
    const struct one_params dp = {.sampler = &set, .n_probs = N_PROBS, .max_tokens = N_ANSWER};
    assert_true(one_start(e, &dp, &err));
    for (int i = 0; i < N_ANSWER; i++)
        assert_true(one_next(e, &o.d[i], &err));
    assert_int_equal(one_past(e), N_PROMPT + N_ANSWER - 1);
    one_stop(e, one_past(e));
    o.n_kv = engine_kv_bytes(e, 0, one_past(e));
    o.kv = malloc(o.n_kv);
    assert_non_null(o.kv);
    assert_true(one_export(e, 0, one_past(e), o.kv, &err));
    one_close(e);
    return o;
}

static void chunks_change_no_bit_of_cache_probabilities_or_answer(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    static const struct {
        uint32_t n_batch;
        size_t chunk;
    } ways[] = {{512, N_PROMPT}, {1, 1}, {2, 2}, {7, 7}, {16, 16}, {33, 33}, {8, 75}, {64, 5}};
    for (size_t a = 0; a < 6; a++) {
        struct buf file;
        struct model *m = open_model(archs[a / 2], &file);
        const enum kv_type type = a % 2 ? KV_Q8_0 : KV_F16;
        struct outcome first = answer(m, type, ways[0].n_batch, ways[0].chunk);
        int different = 0;
        for (int i = 1; i < N_ANSWER; i++)
            different += first.d[i].id != first.d[0].id;
        assert_true(different > N_ANSWER / 2); // else there is nothing to see
        for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
            struct outcome o = answer(m, type, ways[w].n_batch, ways[w].chunk);
            assert_int_equal(o.n_kv, first.n_kv);
            if (memcmp(o.d, first.d, sizeof o.d) != 0 || memcmp(o.kv, first.kv, o.n_kv) != 0)
                fail_msg("%s: chunks of %zu in batches of %u differ", m->arch, ways[w].chunk,
                         ways[w].n_batch);
            free(o.kv);
        }
        free(first.kv);
        model_free(m);
        buf_release(&file);
    }
}

static void a_stop_id_is_the_last_token(void **state)
{
    (void)state;
    struct buf file;
    struct error err = {0};
    struct decoded d, want[4];
    struct model *m = open_model("llama", &file);
    const struct engine_params p = {.n_ctx = N_CTX, .n_threads = 1};
    struct engine *e = cpu_engine_open(m, &p, &err);
    assert_non_null(e);
    struct sampler_settings set = sampler_defaults;
    set.seed = 9;
    set.temp = 1.5f;
    struct one_params dp = {.sampler = &set, .max_tokens = 10};
    assert_true(one_eval(e, prompt(), N_PROMPT - 1, LOGITS_LAST, &err));
    bool distinct = false; // a seed whose first four tokens differ
    while (!distinct && set.seed++ < 100) {
        assert_true(one_eval(e, prompt() + N_PROMPT - 1, 1, LOGITS_LAST, &err));
        assert_true(one_start(e, &dp, &err));
        for (int i = 0; i < 4; i++)
            assert_true(one_next(e, &want[i], &err));
        one_stop(e, N_PROMPT - 1);
        assert_int_equal(one_past(e), N_PROMPT - 1);
        distinct = true;
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < i; k++)
                distinct = distinct && want[i].id != want[k].id;
    }
    assert_true(distinct);
    const int32_t stop[] = {want[3].id, want[2].id};
    for (size_t n_stop = 0; n_stop <= 2; n_stop++) { // none, that of the fourth, that of the third
        const size_t n = n_stop == 0 ? 10 : 5 - n_stop;
        dp.stop_ids = stop;
        dp.n_stop_ids = n_stop;
        assert_true(one_eval(e, prompt() + N_PROMPT - 1, 1, LOGITS_LAST, &err));
        assert_true(one_start(e, &dp, &err));
        for (size_t i = 0; i < n; i++) {
            assert_true(one_next(e, &d, &err));
            if (i < 4)
                assert_int_equal(d.id, want[i].id);
        }
        assert_false(one_next(e, &d, &err));
        assert_int_equal(err.code, ERR_FAIL);
        assert_int_equal(one_past(e), N_PROMPT + n - 1); // the last one is not evaluated
        one_stop(e, N_PROMPT - 1);
    }
    one_close(e);
    model_free(m);
    buf_release(&file);
}

static struct cancel cancel;

static void *cancel_soon(void *delay)
{
    usleep(*(const useconds_t *)delay);
    cancel_ask(&cancel);
    return NULL;
}

// Whenever it comes: the chunk counts, or it does not and the call says so. The chunk takes many
// times as long as the thread that interrupts it waits, also where that comes late.
static void an_interrupted_chunk_leaves_the_timeline_as_it_was(void **state)
{
    enum { N_LONG = 4000 };
    (void)state;
    struct buf file;
    struct model *m = open_model("llama", &file);
    static int32_t ids[N_LONG];
    for (int i = 0; i < N_LONG; i++)
        ids[i] = prompt()[i % N_PROMPT];
    const struct engine_params p = {
        .n_ctx = N_LONG, .n_batch = N_LONG, .n_threads = 2, .cancel = &cancel};
    struct error err = {0};
    struct engine *e = cpu_engine_open(m, &p, &err);
    assert_non_null(e);
    assert_non_null(strstr(e->device, ", 2 threads)"));
    one_cancel = &cancel;
    int n_interrupted = 0;
    for (useconds_t i = 0; i < 400 && n_interrupted < 5; i++) {
        pthread_t thread;
        useconds_t delay = 20 * (i % 100);
        cancel_clear(&cancel);
        err = (struct error){0};
        one_trim(e, 0);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &delay), 0);
        bool ok = one_eval(e, ids, N_LONG, LOGITS_LAST, &err);
        pthread_join(thread, NULL);
        assert_int_equal(one_past(e), ok ? N_LONG : 0);
        if (!ok) {
            assert_int_equal(err.code, ERR_INTERRUPTED);
            n_interrupted += delay > 0;
        }
    }
    assert_int_equal(n_interrupted, 5);
    one_close(e);
    model_free(m);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_change_no_bit_of_cache_probabilities_or_answer),
        cmocka_unit_test(a_stop_id_is_the_last_token),
        cmocka_unit_test(an_interrupted_chunk_leaves_the_timeline_as_it_was),
    };
    return RUN_TESTS("cpu_decode", tests);
}
