// Rates held against work and time that the test knows: its clock moves when work is done, and only
// then.
#include "test.h"

#include <jansson.h>
#include <math.h>
#include <time.h>

#include "cpu/bandwidth.h"
#include "engine/profile.h"
#include "scripted_engine.h"
#include "tools/bench.h"

static double now = 100; // seconds

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    t->tv_sec = (time_t)now;
    t->tv_nsec = (long)((now - (double)t->tv_sec) * 1e9);
    return 0;
}

enum { MIB = 1 << 20, N_CHUNKS = 5 };

static const unsigned char *data;
static size_t reads_of[N_CHUNKS], n_read;

// A pass takes 5 ms, but the fourth, in which each MiB takes half a millisecond.
static uint64_t slow_read(const void *p, size_t n_bytes)
{
    size_t offset = (size_t)((const unsigned char *)p - data);
    assert_int_equal(offset % MIB, 0);
    assert_int_equal(n_bytes, MIB);
    assert_true(offset / MIB < N_CHUNKS);
    reads_of[offset / MIB]++;
    now += n_read / N_CHUNKS == 3 ? 0.5e-3 : 1e-3;
    n_read++;
    return 1;
}

static void read_bandwidth_is_bytes_by_the_time_of_the_best_pass(void **state)
{
    (void)state;
    struct error err = {0};
    const struct cpu_kernels kernels = {.read = slow_read};
    struct pool *pool = pool_create(1, &err);
    unsigned char *memory = malloc(N_CHUNKS * MIB + 1000);
    assert_non_null(memory);
    data = memory;
    double rate = cpu_read_bandwidth(pool, &kernels, memory, N_CHUNKS * MIB + 1000);
    assert_true(fabs(rate / (MIB / 0.5e-3) - 1) < 1e-5);
    assert_true(n_read >= 4 * N_CHUNKS);
    for (size_t i = 0; i < N_CHUNKS; i++) // each pass reads everything, once
        assert_int_equal(reads_of[i], n_read / N_CHUNKS);
    assert_true(cpu_read_bandwidth(pool, &kernels, memory, MIB - 1) == 0); // too little to tell
    pool_free(pool);
    free(memory);
}

// An evaluated token of a chunk takes 2 ms and a decoded one 10 ms, but of every second run 3 and
// 14 ms, so that least, median and most differ; a token that is sampled alone takes 1 ms, and one
// that is evaluated alone, to go back to a depth, 2.
static size_t n_works;
static struct scripted *worker;
static void work(size_t n_tokens)
{
    if (n_tokens == 0) {
        now += 1e-3;
        return;
    }
    bool slow = (n_tokens > 1 || worker->decoding) && n_works++ % 2 == 1;
    now += worker->decoding ? slow ? 14e-3 : 10e-3 : (double)n_tokens * (slow ? 3e-3 : 2e-3);
}

static double matrix_flops;
static bool known_peak(struct engine *e, struct engine_peaks *out, struct error *err)
{
    (void)e;
    (void)err;
    *out = (struct engine_peaks){
        .bandwidth = 1e9, .bandwidth_how = "known", .matrix_flops = matrix_flops};
    snprintf(out->matrix_how, sizeof out->matrix_how, "%s",
             matrix_flops > 0 ? "by hand" : "no unit for it");
    return true;
}

static const json_t *row(const json_t *report, const char *test, int depth)
{
    size_t i;
    const json_t *r;
    json_array_foreach(json_object_get(report, "results"), i, r)
    {
        if (strcmp(json_string_value(json_object_get(r, "test")), test) == 0 &&
            json_integer_value(json_object_get(r, "depth")) == depth)
            return r;
    }
    fail_msg("no row %s at %d", test, depth);
    return NULL;
}

static void near(const json_t *object, const char *key, double want)
{
    double got = json_number_value(json_object_get(object, key));
    if (!(fabs(got - want) <= 1e-5 * fabs(want) + 1e-12))
        fail_msg("%s is %.9g, expected %.9g", key, got, want);
}

// Four runs and a warm-up: chunks alternate from run to run, decoded tokens from one to the next.
static void bench_divides_known_work_by_known_time(void **state)
{
    (void)state;
    struct buf file, out = {0};
    struct error err = {0};
    struct scripted s;
    struct model *m = scripted_model(&file);
    scripted_init(&s, m, 200, 16);
    struct backend backend = *s.core.backend;
    backend.measure = known_peak;
    s.core.backend = &backend;
    worker = &s;
    s.work = work;
    for (size_t i = 0; i < SCRIPT; i++)
        s.script[i] = 1;
    const uint32_t depths[] = {0, 40};
    const struct bench_params p = {.n_prompt = 16,
                                   .n_gen = 4,
                                   .n_repeat = 4,
                                   .depths = depths,
                                   .n_depths = 2,
                                   .json = true,
                                   .load_s = 0.5,
                                   .load_bytes = 3000000};
    n_works = 0;
    if (!tool_bench(&s.base, &p, &out, &err))
        fail_msg("%s", err.text);
    json_t *j = json_loads(buf_str(&out), 0, NULL);
    assert_non_null(j);

    // A prefill is one chunk: 16 tokens in 32 or 48 ms, two runs of each.
    for (int i = 0; i < 2; i++) {
        const json_t *r = row(j, "prefill", i ? 40 : 0);
        near(r, "tokens", 16);
        near(r, "min_ms", 32);
        near(r, "max_ms", 48);
        near(r, "median_ms", 40);
        near(r, "tokens_per_second", 16 / 40e-3);
        near(r, "bytes_per_second", 0);
    }
    // Decoding is 4 tokens by turns, each evaluated: 10 + 14 + 10 + 14 ms. The cache is that
    // of the middle: 2 of the answer after the depth, of which the script has 1000 bytes each.
    double weights = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++)
        weights += (double)gguf_tensor_at(m->gguf, i)->n_bytes;
    const double embedding_row = 34; // one block of Q8_0; the model is tied
    for (int i = 0; i < 2; i++) {
        const json_t *r = row(j, "decode", i ? 40 : 0);
        double bytes = weights + embedding_row + 1000 * ((i ? 40 : 0) + 2);
        near(r, "tokens", 4);
        near(r, "median_ms", 48);
        near(r, "tokens_per_second", 4 / 48e-3);
        near(r, "bytes_per_token", bytes);
        near(r, "bytes_per_second", bytes * 4 / 48e-3);
        near(r, "steps", 4);
        near(r, "step_ms", 12);
        near(r, "bytes_per_step", bytes);
        near(r, "share_of_peak", bytes / 12e-3 / 1e9);
    }
    // The prompt of 32 tokens in two chunks (32 + 48 ms), and one sampled of what is there.
    const json_t *r = row(j, "first token", 0);
    near(r, "tokens", 1);
    near(r, "min_ms", 81);
    near(r, "max_ms", 81);
    near(j, "weight_bytes", weights);
    near(j, "peak_bytes_per_second", 1e9);
    near(j, "open_s", 0.5);
    near(j, "load_bytes_per_second", 6e6);
    json_decref(j);

    // The table says the same.
    struct bench_params q = p;
    q.json = false;
    q.n_depths = 1;
    buf_clear(&out);
    n_works = 0;
    assert_true(tool_bench(&s.base, &q, &out, &err));
    double bytes = weights + embedding_row + 2000;
    char line[200];
    snprintf(line, sizeof line,
             "| decode | 0 | 83.3 | 12.000 | 48.000 | 48.000..48.000 | %.1f | %.1f | %.0f %% | "
             "0.000 | |",
             bytes * 1e-6, bytes / 12e-3 * 1e-9, 100 * bytes / 12e-3 / 1e9);
    if (!strstr(buf_str(&out), line))
        fail_msg("no %s in\n%s", line, buf_str(&out));
    assert_non_null(
        strstr(buf_str(&out), "| prefill | 0 | 400.0 | 40.000 | 40.000 | 32.000..48.000 | | | |"));
    assert_non_null(strstr(buf_str(&out), "1.0 GB/s (known), matrix rate not measured: no unit"));
    matrix_flops = 2.5e12;
    buf_clear(&out);
    assert_true(tool_bench(&s.base, &q, &out, &err));
    assert_non_null(strstr(buf_str(&out), "1.0 GB/s (known), 2.5 TFLOP/s (by hand)"));
    matrix_flops = 1e6;
    buf_clear(&out);
    n_works = 0;
    assert_true(tool_bench(&s.base, &p, &out, &err));
    j = json_loads(buf_str(&out), 0, NULL);
    assert_non_null(j);
    const double flops = profile_pass_flops(m, 40 + 2, 1); // of the middle of the run
    assert_true(flops > 0);
    r = row(j, "decode", 40);
    near(r, "flops_per_step", flops);
    near(r, "flops_per_second", flops / 12e-3);
    near(r, "share_of_matrix_peak", flops / 12e-3 / 1e6);
    near(row(j, "prefill", 40), "flops_per_step", profile_chunk_flops(m, 40, 16));
    json_decref(j);
    buf_release(&out);
    engine_free(&s.base);
    model_free(m);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_bandwidth_is_bytes_by_the_time_of_the_best_pass),
        cmocka_unit_test(bench_divides_known_work_by_known_time),
    };
    return RUN_TESTS("known_work", tests);
}
