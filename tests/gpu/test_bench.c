// What hokku bench tells of an engine: the kernels of each run, shares of its peaks, its clocks,
// the first token. Structure, names and sums; no times, which are bench's to measure and nobody's
// to test. `test_bench cuda` (the default) or cpu.
#include "../unit/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "tiny_engine.h"

#include "base/clock.h"
#include "tools/bench.h"

// Its chunks are so small that it multiplies no large matrices; on the emulation the peak of those
// takes seconds to measure.
static struct engine *open_small(const struct model *m)
{
    const struct engine_params p = {.n_ctx = N_CTX, .n_batch = 2, .n_threads = 1};
    struct error err = {0};
    struct engine *e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static json_t *bench_json(struct engine *e, const struct bench_params *p)
{
    struct buf out = {0};
    struct error err = {0};
    if (!tool_bench(e, p, &out, &err))
        fail_msg("%s", err.text);
    json_error_t why;
    json_t *j = json_loads(buf_str(&out), 0, &why);
    if (!j)
        fail_msg("%s: %s", why.text, buf_str(&out));
    buf_release(&out);
    return j;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v))
        fail_msg("%s is not a number", key);
    return json_number_value(v);
}

static const uint32_t depths[] = {0, 4};

static void bench_shows_the_kernels_of_each_run(void **state)
{
    (void)state;
    struct fixture f;
    open_model(&f, "llama");
    struct engine *e = open_small(f.m);
    const struct bench_params p = {.n_prompt = 5, // two chunks and a half
                                   .n_gen = 8,
                                   .n_repeat = 2,
                                   .depths = depths,
                                   .n_depths = 2,
                                   .json = true,
                                   .kernels = true};
    json_t *j = bench_json(e, &p), *all = json_object_get(j, "kernels");
    const struct {
        const char *of;
        int position, tokens, row;
    } want[] = {
        {"prefill", 0, 2, 0}, {"decode", 5, 1, 1}, {"prefill", 4, 2, 2}, {"decode", 8, 1, 3}};
    assert_int_equal(json_array_size(all), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *k = json_array_get(all, i), *rows = json_object_get(k, "kernels");
        const json_t *result = json_array_get(json_object_get(j, "results"), (size_t)want[i].row);
        assert_string_equal(json_string_value(json_object_get(k, "of")), want[i].of);
        assert_string_equal(json_string_value(json_object_get(result, "test")), want[i].of);
        assert_int_equal(number(k, "position"), want[i].position);
        assert_int_equal(number(k, "tokens"), want[i].tokens);
        double sum = 0, shares = 0, share = want[i].tokens / number(result, "tokens");
        for (size_t r = 0; r < json_array_size(rows); r++) {
            sum += number(json_array_get(rows, r), "us");
            shares += number(json_array_get(rows, r), "share");
        }
        assert_true(fabs(sum - number(k, "sum_us")) < 1e-6 * sum);
        assert_true(fabs(shares - 1) < 1e-6);
        assert_true(fabs(number(result, "median_ms") * 1e3 * share / number(k, "real_us") - 1) <
                    1e-6);
        assert_true(number(k, "real_min_us") <= number(k, "real_us"));
        assert_true(number(k, "real_us") <= number(k, "real_max_us"));
    }
    json_decref(j);

    struct bench_params md = p;
    struct buf out = {0};
    struct error err = {0};
    md.json = false;
    assert_true(tool_bench(e, &md, &out, &err));
    assert_non_null(
        strstr(buf_str(&out), "kernels of a chunk of 2 tokens of a prompt at position 4"));
    assert_non_null(strstr(buf_str(&out), "kernels of a decoded token at position 5"));
    assert_non_null(strstr(buf_str(&out), on_cuda ? "\n| matvec | ffn_gate+ffn_up | "
                                                  : "\n| matmul | ffn_gate+ffn_up | "));
    assert_non_null(strstr(buf_str(&out), "\n| sum | | "));
    assert_non_null(strstr(buf_str(&out), "Real time of a token"));
    buf_release(&out);
    one_close(e);
    close_model(&f);
}

static bool round_peaks(struct engine *e, struct engine_peaks *out, struct error *err)
{
    (void)e;
    (void)err;
    *out = (struct engine_peaks){.bandwidth = 1e9, .matrix_flops = 1e6};
    return true;
}

// What a step of n sequences moves and computes, by the shapes of the model.
static void steps_are_held_against_both_peaks(void **state)
{
    (void)state;
    enum { E = TINY_EMBD, F = TINY_FF, KV = TINY_KV * E / TINY_HEADS, N_GEN = 4 };
    static const uint32_t batches[] = {1, 2};
    struct fixture f;
    open_model(&f, "llama");
    struct error err = {0};
    const struct engine_params open = {.n_ctx = 512, .n_batch = 2, .n_seqs = 2, .n_threads = 1};
    struct engine *e = try_open(f.m, &open, &err);
    if (!e)
        fail_msg("%s", err.text);
    const struct backend *whole = e->core->backend;
    struct backend known = *whole;
    known.measure = round_peaks;
    e->core->backend = &known;
    const struct bench_params p = {.n_gen = N_GEN,
                                   .n_repeat = 1,
                                   .depths = depths + 1, // of 4
                                   .n_depths = 1,
                                   .batches = batches,
                                   .n_batches = 2,
                                   .json = true};
    json_t *j = bench_json(e, &p), *rows = json_object_get(j, "results");
    const double layer = 2.0 * (2 * E * E + 2 * E * KV + 3 * E * F) + 4.0 * E * (4 + N_GEN / 2 + 1);
    const double row = TINY_LAYERS * layer + 2.0 * E * TINY_VOCAB;
    const double kv = (double)engine_kv_bytes(e, 0, 4 + N_GEN / 2);
    for (size_t i = 0; i < 3; i++) { // a conversation alone, and both batches
        const json_t *r = json_array_get(rows, i);
        const uint32_t n = i ? batches[i - 1] : 1;
        const double step = number(r, "step_ms") * 1e-3;
        assert_int_equal(number(r, "steps"), N_GEN);
        assert_true(fabs(step * 1e3 * N_GEN / number(r, "median_ms") - 1) < 1e-9);
        assert_true(number(r, "flops_per_step") == n * row);
        assert_true(fabs(number(r, "share_of_matrix_peak") / (n * row / step / 1e6) - 1) < 1e-9);
        assert_true(number(r, "bytes_per_step") == model_bytes_per_pass(f.m, n) + n * kv);
        assert_true(number(r, "bytes_per_token") == number(r, "bytes_per_step") / n);
        assert_true(fabs(number(r, "share_of_peak") * 1e9 / number(r, "bytes_per_second") - 1) <
                    1e-9);
    }
    json_decref(j);
    e->core->backend = whole;
    engine_free(e);
    close_model(&f);
}

static void a_run_that_is_left_out_has_no_kernels(void **state)
{
    (void)state;
    struct fixture f;
    open_model(&f, "llama");
    struct engine *e = open_small(f.m);
    struct bench_params p = {
        .n_gen = 2, .n_repeat = 1, .depths = depths, .n_depths = 1, .json = true, .kernels = true};
    json_t *j = bench_json(e, &p), *k = json_object_get(j, "kernels");
    assert_int_equal(json_array_size(k), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(k, 0), "of")), "decode");
    json_decref(j);
    p.n_gen = 0;
    p.n_prompt = 1; // goes the way of a decoded token, but for the sampler
    j = bench_json(e, &p);
    assert_int_equal(json_array_size(json_object_get(j, "kernels")), 0);
    json_decref(j);
    p.kernels = false;
    j = bench_json(e, &p);
    assert_null(json_object_get(j, "kernels"));
    json_decref(j);
    one_close(e);
    close_model(&f);
}

static void an_engine_that_cannot_tell_its_kernels_apart_says_so(void **state)
{
    (void)state;
    struct fixture f;
    struct buf out = {0};
    struct error err = {0};
    open_model(&f, "llama");
    struct engine *e = open_small(f.m);
    const struct backend *whole = e->core->backend;
    struct backend without = *whole;
    without.profile = NULL;
    e->core->backend = &without;
    const struct bench_params p = {
        .n_gen = 2, .n_repeat = 1, .depths = depths, .n_depths = 1, .kernels = true};
    assert_false(tool_bench(e, &p, &out, &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.text, "--kernels"));
    assert_non_null(strstr(err.text, e->device));
    assert_int_equal(out.len, 0);
    e->core->backend = whole;
    one_close(e);
    close_model(&f);
}

static void clocks_and_the_first_token_are_reported(void **state)
{
    (void)state;
    struct fixture f;
    open_model(&f, "llama");
    struct engine *e = open_small(f.m);
    struct bench_params p = {
        .n_gen = 2, .n_repeat = 1, .depths = depths, .n_depths = 1, .json = true};
    json_t *j = bench_json(e, &p);
    assert_true(json_is_null(json_object_get(j, "start_to_first_token_s"))); // began: not known
    json_t *clocks = json_object_get(j, "clocks");
    if (on_cuda) {
        assert_true(number(clocks, "sm_mhz") > 0 && number(clocks, "memory_mhz") > 0);
        assert_non_null(strstr(json_string_value(json_object_get(clocks, "how")), "NVML"));
#ifdef HOKKU_CUDA_ON_CPU // a device that NVML does not know: its attributes
        assert_int_equal(number(clocks, "sm_mhz"), 1);
        assert_non_null(strstr(json_string_value(json_object_get(clocks, "how")), "the most"));
#endif
    } else {
        assert_true(json_is_null(clocks));
    }
    json_decref(j);

    const double ago = clock_now() / 2; // as if main had begun then; the clock may be a young one
    p.began = clock_now() - ago;
    j = bench_json(e, &p);
    assert_true(number(j, "start_to_first_token_s") > ago);
    json_decref(j);
    struct buf out = {0};
    struct error err = {0};
    p.json = false;
    assert_true(tool_bench(e, &p, &out, &err));
    const char label[] = "\nstart to first token: ", *line = strstr(buf_str(&out), label);
    assert_non_null(line);
    assert_true(strtod(line + sizeof label - 1, NULL) > ago);
    assert_true(!strstr(buf_str(&out), "\nclocks: SM ") == !on_cuda);
    buf_release(&out);
    one_close(e);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_shows_the_kernels_of_each_run),
        cmocka_unit_test(steps_are_held_against_both_peaks),
        cmocka_unit_test(a_run_that_is_left_out_has_no_kernels),
        cmocka_unit_test(an_engine_that_cannot_tell_its_kernels_apart_says_so),
        cmocka_unit_test(clocks_and_the_first_token_are_reported),
    };
    return RUN_TESTS("bench", tests);
}
