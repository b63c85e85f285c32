// Every kernel of every instruction set this machine has, against double precision references over
// odd shapes; and bit for bit against each other. `test_cpu_kernels bench [TYPE]` times the
// products.
#include "test.h"

#include <math.h>
#include <time.h>

#include "cpu/kernels.h"
#include "gguf/quant.h"
#include "random_weights.h"

static const uint32_t types[] = {
#define NUMBER(name, number, ...) number,
    BLOCK_TYPES(NUMBER)
#undef NUMBER
};
enum { N_TYPES = sizeof types / sizeof *types };

static void *checked_alloc(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(p);
    return memset(p, 0, n);
}

static struct cpu_act act_create(uint32_t n_cols, size_t n_tok)
{
    struct cpu_act a = {.n_cols = n_cols, .n_pad = (n_cols + CPU_PAD - 1) / CPU_PAD * CPU_PAD};
    size_t n = a.n_pad * n_tok;
    a.f = checked_alloc(n * 4); // aligned, as the engine's are
    a.q = checked_alloc(n * 2);
    a.scale = checked_alloc(n / 4);
    a.sum = checked_alloc(n / 4);
    a.packed = checked_alloc(n / CPU_PAD * CPU_PACKED_BYTES);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_cols; i++) // one large value now and then, as models have
            a.f[t * a.n_pad + i] = random_float() * (random_u64() % 97 == 0 ? 30.0f : 1.0f);
    return a;
}

static void act_release(struct cpu_act *a)
{
    free(a->f);
    free(a->q);
    free(a->scale);
    free(a->sum);
    free(a->packed);
}

static const struct cpu_kernels *kernels_at(int isa, const char **why)
{
    const struct cpu_kernels *k = cpu_kernels_get((enum cpu_isa)isa);
    *why = k ? "" : "this machine lacks it";
    return k;
}

static void test_products_match_reference_and_each_other(void **state)
{
    (void)state;
    static const uint32_t cols[] = {32,  64,  96,  128, 172,  192,  256,
                                    320, 384, 768, 896, 1536, 3584, 4864};
    static const uint32_t rows[] = {1, 7, 33};
    for (size_t ti = 0; ti < N_TYPES; ti++)
        for (size_t ci = 0; ci < sizeof cols / sizeof *cols; ci++) {
            const struct quant_info *info = quant_info(types[ti]);
            const uint32_t n_cols = cols[ci], n_rows = rows[(ti + ci) % 3];
            if (n_cols % info->block_elems != 0)
                continue;
            // Groups of all sizes, and of many tokens rows of several tiles, too.
            const size_t few = ci % 2 ? 13 : 6, many = n_cols == 64 ? 150 : 50;
            const size_t n_tok = n_cols <= 128 || n_cols == 1536 ? many : few;
            size_t row_bytes = quant_row_bytes(types[ti], n_cols);
            // Exactly as long as the rows: a sanitizer sees any read beyond them.
            uint8_t *data = malloc(row_bytes * n_rows);
            assert_non_null(data);
            random_weights(types[ti], data, (size_t)n_rows * n_cols);
            // Half of the results are added to what is there, half are times a scale.
            const float scale = 0.7f, there = (ti + ci) % 4 < 2 ? 0.3f : 0;
            struct weight w = {.type = types[ti], .rows = n_rows, .n_cols = n_cols, .data = data};
            w.scale = (ti + ci) % 2 ? &scale : NULL;
            struct cpu_act x = act_create(n_cols, n_tok);
            float *bias = checked_alloc(n_rows * 4), *deq = checked_alloc(n_cols * 4);
            for (size_t i = 0; i < n_rows; i++)
                bias[i] = random_float();
            float *first = NULL;
            for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
                const char *why;
                const struct cpu_kernels *k = kernels_at(isa, &why);
                if (!k)
                    continue;
                for (size_t t = 0; t < n_tok; t++)
                    k->quantize(&x, t);
                k->pack(&x, 0, n_tok);
                float *y = checked_alloc(n_tok * n_rows * 4);
                float *single = checked_alloc(n_tok * n_rows * 4);
                for (size_t i = 0; i < n_tok * n_rows; i++)
                    y[i] = single[i] = there;
                struct cpu_matmul m = {&w, &x, bias, y, n_rows, n_tok, there != 0};
                k->matmul(&m, 0, n_rows);
                // One token at a time, rows in two parts: the same bits.
                for (size_t t = 0; t < n_tok; t++) {
                    struct cpu_act xt = x;
                    xt.f += t * x.n_pad;
                    xt.q += t * x.n_pad;
                    xt.scale += t * x.n_pad / CPU_PAD;
                    xt.sum += t * x.n_pad / 16;
                    struct cpu_matmul mt = m;
                    mt.x = &xt, mt.y = single + t * n_rows, mt.n_tok = 1;
                    k->matmul(&mt, n_rows / 2, n_rows);
                    k->matmul(&mt, 0, n_rows / 2);
                }
                if (memcmp(y, single, n_tok * n_rows * 4) != 0)
                    fail_msg("%s %s %u columns: batch differs from single", k->name, info->name,
                             n_cols);
                free(single);
                if (first) {
                    if (memcmp(y, first, n_tok * n_rows * 4) != 0)
                        fail_msg("%s %s %u columns: differs from plain C", k->name, info->name,
                                 n_cols);
                    free(y);
                    continue;
                }
                first = y;
                for (size_t r = 0; r < n_rows; r++) {
                    quant_dequantize(types[ti], data + r * row_bytes, deq, n_cols);
                    for (size_t i = 0; w.scale && i < n_cols; i++)
                        deq[i] *= scale;
                    for (size_t t = 0; t < n_tok; t++) {
                        // What rounding each activation to half a step of its block can do
                        // (random signs: six standard deviations), and float rounding.
                        double want = (double)bias[r] + there, size = 0, steps = 0;
                        for (size_t i = 0; i < n_cols; i++) {
                            double v = (double)deq[i] * x.f[t * x.n_pad + i];
                            want += v;
                            size += fabs(v);
                            double step = x.scale[(t * x.n_pad + i) / CPU_PAD] * (double)deq[i];
                            steps += info->block_elems > 1 ? step * step / 12 : 0;
                        }
                        double off = fabs(y[t * n_rows + r] - want);
                        if (!(off <= 6 * sqrt(steps) + 5e-7 * (size + 1)))
                            fail_msg("%s %s %ux%u row %zu token %zu: %g, expected %g", k->name,
                                     info->name, n_rows, n_cols, r, t, y[t * n_rows + r], want);
                    }
                }
            }
            free(first);
            free(bias);
            free(deq);
            free(data);
            act_release(&x);
        }
}

// The greatest and smallest codes and activations, whose upper and lower bytes are so, too: no sum
// on the way is too large for where it is kept.
static void test_extremes_are_the_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    enum { ROWS = 5, CODES = 3 };
    static const struct {
        uint32_t type;
        size_t scales, n_scales; // bytes of a block that are scales
        uint8_t special[CODES];  // scales that are like no others
    } blocks[] = {{QUANT_Q4_0, 0, 2},
                  {QUANT_Q4_1, 0, 4},
                  {QUANT_Q5_0, 0, 2},
                  {QUANT_Q5_1, 0, 4},
                  {QUANT_Q8_0, 0, 2},
                  {QUANT_Q4_K, 0, 4},
                  {QUANT_Q5_K, 0, 4},
                  {QUANT_Q2_K, 80, 4},
                  {QUANT_Q3_K, 108, 2},
                  {QUANT_TQ2_0, 64, 2},
                  {QUANT_IQ2_S, 0, 2},
                  {QUANT_IQ3_S, 0, 2},
                  {QUANT_IQ1_S, 0, 2},
                  {QUANT_IQ1_M, 48, 8},
                  {QUANT_Q6_K, 208, 2},
                  {QUANT_IQ4_NL, 0, 2},
                  {QUANT_IQ4_XS, 0, 2},
                  {QUANT_MXFP4, 0, 1, {0, 1, 2}},
                  {QUANT_NVFP4, 0, 4, {0x7f, 0xff, 1}}};
    static const uint8_t codes[CODES] = {0, 0xff, 0x80};
    static const int16_t values[] = {-CPU_ACT_TOP, CPU_ACT_TOP, -32512, 255,  -1,
                                     32512,        -256,        128,    -129, 0};
    enum { VALUES = sizeof values / sizeof *values };
    static const uint32_t cols[] = {128, 384, 512, 33024};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
            const struct quant_info *info = quant_info(blocks[b].type);
            const uint32_t n_cols = cols[c];
            if (n_cols % info->block_elems != 0)
                continue;
            const size_t n = (size_t)ROWS * n_cols / info->block_elems;
            const size_t size = quant_row_bytes(blocks[b].type, info->block_elems);
            uint8_t *data = malloc(n * size), *scales = malloc(n * size);
            assert_true(data && scales);
            random_weights(blocks[b].type, scales, (size_t)ROWS * n_cols);
            struct weight w = {
                .type = blocks[b].type, .rows = ROWS, .n_cols = n_cols, .data = data};
            struct cpu_act x = act_create(n_cols, 1);
            // All of one value; then values in turns, and weights as they are.
            for (size_t v = 0; v <= VALUES; v++)
                for (size_t code = 0; code < CODES; code++) {
                    float y[ROWS], first[ROWS];
                    memcpy(data, scales, n * size);
                    if (v < VALUES)
                        for (size_t i = 0; i < n * size; i++)
                            if (i % size - blocks[b].scales >= blocks[b].n_scales)
                                data[i] = codes[code];
                    if (v == VALUES && blocks[b].special[2] > 0)
                        for (size_t i = 0; i < n * size; i++)
                            if (i % size - blocks[b].scales < blocks[b].n_scales)
                                data[i] = blocks[b].special[code];
                    for (size_t i = 0; i < n_cols; i++)
                        x.q[i] = values[v < VALUES ? v : (i / 3 + code) % VALUES];
                    for (size_t i = 0; i < x.n_pad / CPU_PAD; i++)
                        x.scale[i] = 0.01f;
                    for (size_t i = 0; i < x.n_pad / 16; i++) {
                        float sum = 0; // exact
                        for (size_t k = 0; k < 8; k++)
                            sum += (float)x.q[i / 4 * 64 + i % 4 * 8 + k] +
                                   (float)x.q[i / 4 * 64 + 32 + i % 4 * 8 + k];
                        x.sum[i] = sum * 0.01f;
                    }
                    for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
                        const char *why;
                        const struct cpu_kernels *k = kernels_at(isa, &why);
                        if (!k)
                            continue;
                        struct cpu_matmul m = {&w, &x, NULL, y, ROWS, 1, false};
                        k->matmul(&m, 0, ROWS);
                        if (isa == CPU_ISA_PLAIN)
                            memcpy(first, y, sizeof y);
                        else if (memcmp(y, first, sizeof y) != 0)
                            fail_msg(
                                "%s %s %u columns, activations %zu, codes %zu: %g, expected %g",
                                k->name, info->name, n_cols, v, code, y[0], first[0]);
                    }
                }
            act_release(&x);
            free(scales);
            free(data);
        }
}

// Rows of which every other one has bytes that are no numbers: what is behind a row's end, or
// before its beginning, is not in its sums.
static void test_rows_do_not_meet_their_neighbours(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    for (size_t ti = 0; ti < N_TYPES; ti++)
        for (uint32_t n_cols = 32; n_cols <= 544; n_cols += 32) {
            if (n_cols % quant_info(types[ti])->block_elems != 0)
                continue;
            const size_t row_bytes = quant_row_bytes(types[ti], n_cols);
            uint8_t *data = checked_alloc(ROWS * row_bytes);
            random_weights(types[ti], data, (size_t)ROWS * n_cols);
            for (size_t r = 1; r < ROWS; r += 2)
                memset(data + r * row_bytes, 0xff, row_bytes);
            struct weight w = {.type = types[ti], .rows = ROWS, .n_cols = n_cols, .data = data};
            struct cpu_act x = act_create(n_cols, 1);
            float first[ROWS], y[ROWS];
            for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
                const char *why;
                const struct cpu_kernels *k = kernels_at(isa, &why);
                if (!k)
                    continue;
                k->quantize(&x, 0);
                struct cpu_matmul m = {&w, &x, NULL, y, ROWS, 1, false};
                k->matmul(&m, 0, ROWS);
                if (isa == CPU_ISA_PLAIN)
                    memcpy(first, y, sizeof y);
                for (size_t r = 0; r < ROWS; r += 2)
                    if (!isfinite(y[r]) || memcmp(&y[r], &first[r], sizeof *y) != 0)
                        fail_msg("%s %s %u columns, row %zu: %g, expected %g", k->name,
                                 quant_info(types[ti])->name, n_cols, r, y[r], first[r]);
            }
            act_release(&x);
            free(data);
        }
}

static void test_nan_and_infinity_survive_quantisation(void **state)
{
    (void)state;
    for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
        const char *why;
        const struct cpu_kernels *k = kernels_at(isa, &why);
        if (!k)
            continue;
        for (int what = 0; what < 4; what++) {
            uint8_t data[34];
            random_weights(QUANT_Q8_0, data, 32);
            struct weight w = {.type = QUANT_Q8_0, .rows = 1, .n_cols = 32, .data = data};
            struct cpu_act x = act_create(32, 1);
            if (what < 3)
                x.f[11] = what == 0 ? NAN : what == 1 ? INFINITY : -INFINITY;
            k->quantize(&x, 0);
            float y;
            struct cpu_matmul m = {&w, &x, NULL, &y, 1, 1, false};
            k->matmul(&m, 0, 1);
            assert_int_equal(isfinite(y) != 0, what == 3);
            act_release(&x);
        }
    }
}

static void check_layer_norm(const struct cpu_kernels *k, const float *x, const float *w, size_t n,
                             float *y)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    for (int biased = 0; biased < 2; biased++) {
        k->layer_norm(x, w, biased ? x : NULL, 0.02f, n, y);
        for (size_t i = 0; i < n; i++) {
            double want = (x[i] - mean) / sqrt(squares / (double)n + 0.02) * w[i];
            want += biased ? x[i] : 0;
            assert_true(fabs(y[i] - want) <= 2e-6 * (1 + fabs(want)));
        }
    }
}

// Finite numbers whose squares are not: zeros would pass for what is normed, as a capped infinite
// logit would for a logit.
static void check_overflow(const struct cpu_kernels *k, float *x, const float *w, size_t n,
                           float *y)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % 2 ? 1e20f : -1e20f;
    k->rms_norm(x, w, NULL, 1e-5f, n, y);
    for (size_t i = 0; i < n; i++)
        assert_true(isnan(y[i]));
    k->layer_norm(x, w, NULL, 1e-5f, n, y);
    for (size_t i = 0; n > 1 && i < n; i++)
        assert_true(isnan(y[i]));
    for (int what = 0; what < 3; what++) {
        memset(y, 0, n * sizeof *y);
        y[n / 2] = what == 0 ? NAN : what == 1 ? INFINITY : -INFINITY;
        k->softcap(y, 0.7f, 3, n);
        for (size_t i = 0; i < n; i++)
            assert_true((isfinite(y[i]) != 0) == (i != n / 2));
    }
}

static const struct xielu XIELU = {.p = 0.8f, .n = 1.3f, .beta = 0.5f, .eps = -1e-6f};

static double activation(enum activation act, double x)
{
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(u));
    case ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_RELU_SQR:
        return x > 0 ? x * x : 0;
    case ACT_CLAMPED_SWIGLU:
        x = x > 7 ? 7 : x;
        return x / (1 + exp(-1.702 * x));
    case ACT_XIELU:
        break;
    }
    return 0.5 * x +
           (x > 0 ? (double)0.8f * x * x : (double)1.3f * (expm1(fmin(x, (double)-1e-6f)) - x));
}

// What it is multiplied by.
static double beside(enum activation act, double up)
{
    return act == ACT_CLAMPED_SWIGLU ? fmax(fmin(up, 7), -7) + 1 : up;
}

static void test_norms_activations_rope_match_reference(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 16, 64, 172, 896, 4864};
    for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
        const char *why;
        const struct cpu_kernels *k = kernels_at(isa, &why);
        if (!k)
            continue;
        random_counter = 1000;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = sizes[s];
            float *x = checked_alloc(n * 4), *w = checked_alloc(n * 4), *y = checked_alloc(n * 4);
            double squares = 0;
            for (size_t i = 0; i < n; i++) {
                x[i] = random_float() * 12.0f;
                w[i] = random_float();
                squares += (double)x[i] * x[i];
            }
            k->rms_norm(x, w, NULL, 1e-5f, n, y);
            for (size_t i = 0; i < n; i++) {
                double want = x[i] / sqrt(squares / (double)n + 1e-5) * w[i];
                assert_true(fabs(y[i] - want) <= 1e-6 * (1 + fabs(want)));
            }
            k->rms_norm(x, NULL, NULL, 1e-5f, n, y);
            for (size_t i = 0; i < n; i++)
                assert_true(fabs(y[i] - x[i] / sqrt(squares / (double)n + 1e-5)) <= 1e-5);
            check_layer_norm(k, x, w, n, y);
            for (int act = ACT_SILU; act <= ACT_CLAMPED_SWIGLU; act++) {
                for (int gated = 0; gated < 3; gated++) { // x: beyond the clamps
                    const enum activation a = (enum activation)act;
                    const float *up = gated == 0 ? NULL : gated == 1 ? w : x;
                    memcpy(y, x, n * 4);
                    k->activate(a, &XIELU, y, up, n);
                    for (size_t i = 0; i < n; i++) {
                        double want = activation(a, x[i]) * (up ? beside(a, up[i]) : 1);
                        assert_true(fabs(y[i] - want) <= 2e-6 * (1 + fabs(want)));
                    }
                }
                if (act == ACT_RELU_SQR || act == ACT_XIELU)
                    continue;
                for (size_t i = 0; i < n; i++) // of what is far below nothing is left
                    y[i] = i % 2 ? -1e37f : -3e38f;
                k->activate((enum activation)act, &XIELU, y, NULL, n);
                for (size_t i = 0; i < n; i++)
                    assert_true(fabsf(y[i]) <= 1e-6f);
            }
            for (int c = 0; c <= 3; c += 3) {
                memcpy(y, x, n * 4);
                k->softcap(y, 0.7f, (float)c, n);
                for (size_t i = 0; i < n; i++) {
                    double want = c ? c * tanh(0.7 * x[i] / c) : 0.7 * x[i];
                    assert_true(fabs(y[i] - want) <= 1e-6 * (1 + fabs(want)));
                }
            }
            check_overflow(k, x, w, n, y);
            free(x);
            free(w);
            free(y);
        }
        for (int layout = ROPE_INTERLEAVED; layout <= ROPE_HALVES; layout++) {
            float x[80], y[80], cos_sin[64];
            for (int i = 0; i < 80; i++)
                y[i] = x[i] = random_float();
            for (int i = 0; i < 32; i++) {
                cos_sin[2 * i] = (float)cos(i * 0.7);
                cos_sin[2 * i + 1] = (float)sin(i * 0.7);
            }
            k->rope(y, cos_sin, 32, (enum rope_layout)layout);
            for (int i = 0; i < 32; i++) {
                int a = layout == ROPE_INTERLEAVED ? 2 * i : i;
                int b = layout == ROPE_INTERLEAVED ? 2 * i + 1 : i + 32;
                // rotation as a complex product
                double re = x[a] * cos(i * 0.7) - x[b] * sin(i * 0.7);
                double im = x[a] * sin(i * 0.7) + x[b] * cos(i * 0.7);
                assert_true(fabs(y[a] - re) < 1e-6 && fabs(y[b] - im) < 1e-6);
            }
            assert_memory_equal(x + 64, y + 64, 16 * 4); // beyond rope_dim: untouched
        }
    }
}

// Two tokens one after the other.
static void test_states_match_reference_and_each_other(void **state)
{
    (void)state;
    static const struct {
        size_t n_state, n;
    } shapes[] = {{1, 1}, {14, 7}, {16, 16}, {9, 80}, {128, 64}, {3, 45}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t n_state = shapes[s].n_state, n = shapes[s].n, all = n_state * n;
        float *before = checked_alloc(all * 4), *m = checked_alloc(all * 4);
        float *first = checked_alloc((all + n) * 4), *y = checked_alloc(n * 4);
        float b[2][128], c[2][128], x[2][80];
        random_counter = 77;
        for (size_t i = 0; i < all; i++)
            before[i] = random_float();
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < 128; i++) {
                b[t][i] = random_float();
                c[t][i] = random_float();
                x[t][i % 80] = random_float();
            }
        for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
            const char *why;
            const struct cpu_kernels *k = kernels_at(isa, &why);
            if (!k)
                continue;
            memcpy(m, before, all * 4);
            for (int t = 0; t < 2; t++) {
                for (size_t i = 0; i < n; i++)
                    y[i] = 0.5f;
                k->remember(m, n_state, n, 0.9f, b[t], x[t], c[t], y);
            }
            for (size_t j = 0; j < n; j++) {
                double want = 0.5, size = 1;
                for (size_t i = 0; i < n_state; i++) {
                    const double one = 0.9f * (double)before[i * n + j] + (double)b[0][i] * x[0][j];
                    const double two = 0.9f * one + (double)b[1][i] * x[1][j];
                    assert_true(fabs(m[i * n + j] - two) <= 1e-6);
                    want += c[1][i] * two;
                    size += fabs(c[1][i] * two);
                }
                assert_true(fabs(y[j] - want) <= 1e-6 * size);
            }
            if (isa == CPU_ISA_PLAIN) {
                memcpy(first, m, all * 4);
                memcpy(first + all, y, n * 4);
            }
            assert_memory_equal(m, first, all * 4);
            assert_memory_equal(y, first + all, n * 4);
        }
        free(before);
        free(m);
        free(first);
        free(y);
    }
}

struct kv_shape {
    uint32_t head_dim;
    enum cpu_kv type_k, type_v;
    size_t n_pos, window;
    float softcap;
    bool one; // the first three quarters of a key are its value
};

// Stores n_pos random keys and values, attends with 8 queries of which the last sees everything,
// and compares with softmax in double over the values as they were stored.
static void check_attention(const struct cpu_kernels *k, const struct kv_shape *s, float *out_all)
{
    enum { N_QUERY = 8, N_HEAD = 2, HEAD = 1 };
    const size_t d = s->head_dim, d_pad = (d + 15) / 16 * 16, groups = (d + 31) / 32;
    const size_t n_blocks = (s->n_pos + 15) / 16;
    const size_t dv = s->one ? d * 3 / 4 : d;
    struct cpu_kv_layer kv = {.type_k = s->type_k,
                              .type_v = s->type_v,
                              .head_dim = s->head_dim,
                              .value_dim = (uint32_t)dv,
                              .one = s->one};
    kv.k_block_bytes = groups * 64 + d * 16 *
                                         (s->type_k == CPU_KV_F32   ? 4
                                          : s->type_k == CPU_KV_I16 ? 2
                                                                    : 1);
    kv.v_row_bytes = groups * 4 + d_pad * (s->type_v == CPU_KV_I16 ? 2 : 1);
    kv.k_head_bytes = kv.k_block_bytes * n_blocks;
    kv.v_head_bytes = kv.v_row_bytes * s->n_pos;
    kv.k = checked_alloc(kv.k_head_bytes * N_HEAD);
    kv.v = checked_alloc(kv.v_head_bytes * N_HEAD);
    memset(kv.k, 0xff, kv.k_head_bytes * N_HEAD); // what was there before is no number
    float *keys = checked_alloc(s->n_pos * d * 4), *values = checked_alloc(s->n_pos * d * 4);
    for (size_t i = 0; i < s->n_pos * d; i++) {
        keys[i] = random_float() * 2.0f;
        values[i] = s->one ? keys[i] : random_float();
    }
    for (size_t p = 0; p < s->n_pos; p++)
        k->kv_store(&kv, HEAD, p, keys + p * d, s->one ? NULL : values + p * d);

    float *q = checked_alloc(N_QUERY * d * 4), *part_out = checked_alloc(N_QUERY * d_pad * 4);
    float *out = checked_alloc(N_QUERY * d_pad * 4);
    for (size_t i = 0; i < N_QUERY * d; i++)
        q[i] = random_float() * 2.0f;
    struct cpu_attn_part total[N_QUERY] = {{0}};
    struct cpu_attn_split a = {.kv = &kv, .kv_head = HEAD, .n_query = N_QUERY};
    a.scale = 1.0f / sqrtf((float)d);
    a.softcap = s->softcap;
    for (size_t r = 0; r < N_QUERY; r++) {
        a.q[r] = q + r * d;
        a.end[r] = s->n_pos > 7 - r ? s->n_pos - (7 - r) : 1;
        a.first[r] = s->window > 0 && a.end[r] > s->window ? a.end[r] - s->window : 0;
        a.out[r] = part_out + r * d_pad;
    }
    for (a.split = 0; a.split < s->n_pos; a.split += CPU_ATTN_SPLIT) {
        a.at = a.split;
        k->attend(&a);
        for (size_t r = 0; r < N_QUERY; r++)
            k->attn_merge(&total[r], out + r * d_pad, &a.part[r], a.out[r], d_pad);
    }
    // Alone, a query gives the same bits.
    float *alone = checked_alloc(d_pad * 4);
    for (size_t r = 0; r < N_QUERY; r++) {
        struct cpu_attn_part one = {0};
        struct cpu_attn_split b = {
            .kv = &kv, .kv_head = HEAD, .n_query = 1, .scale = a.scale, .softcap = a.softcap};
        b.q[0] = a.q[r];
        b.first[0] = a.first[r];
        b.end[0] = a.end[r];
        b.out[0] = part_out;
        for (b.split = 0; b.split < a.end[r]; b.split += CPU_ATTN_SPLIT) {
            b.at = b.split;
            k->attend(&b);
            k->attn_merge(&one, alone, &b.part[0], b.out[0], d_pad);
        }
        assert_memory_equal(alone, out + r * d_pad, dv * 4);
        assert_memory_equal(&one, &total[r], sizeof one);
    }
    const double tol = (s->type_k == CPU_KV_I8 || s->type_v == CPU_KV_I8) ? 2e-2 : 5e-5;
    double *p = checked_alloc(s->n_pos * sizeof *p);
    for (size_t r = 0; r < N_QUERY; r++) {
        double max = -1e30, sum = 0;
        for (size_t j = a.first[r]; j < a.end[r]; j++) {
            p[j] = 0;
            for (size_t i = 0; i < d; i++)
                p[j] += (double)q[r * d + i] * keys[j * d + i];
            p[j] /= sqrt((double)d);
            if (s->softcap > 0)
                p[j] = s->softcap * tanh(p[j] / s->softcap);
            max = p[j] > max ? p[j] : max;
        }
        for (size_t j = a.first[r]; j < a.end[r]; j++)
            sum += p[j] = exp(p[j] - max);
        for (size_t i = 0; i < dv; i++) {
            double want = 0;
            for (size_t j = a.first[r]; j < a.end[r]; j++)
                want += p[j] / sum * values[j * d + i];
            double got = out[r * d_pad + i] / total[r].sum;
            if (!(fabs(got - want) <= tol))
                fail_msg("%s head_dim %u, %zu positions, window %zu, K %d V %d: %g, expected %g",
                         k->name, s->head_dim, s->n_pos, s->window, s->type_k, s->type_v, got,
                         want);
            out_all[r * d + i] = (float)got;
        }
    }
    free(p);
    free(alone);
    free(part_out);
    free(out);
    free(q);
    free(keys);
    free(values);
    free(kv.k);
    free(kv.v);
}

static void test_attention_matches_reference(void **state)
{
    (void)state;
    static const uint32_t dims[] = {8, 64, 80, 96, 128};
    static const size_t n_pos[] = {1, 17, 256, 300, 777};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++)
            for (int types_kv = 0; types_kv < 9; types_kv++) // the last three: values in keys
                for (int window = 0; window < 2; window++) {
                    struct kv_shape s = {dims[i],
                                         (enum cpu_kv)(types_kv < 6 ? types_kv / 2 : types_kv - 6),
                                         types_kv % 2 ? CPU_KV_I8 : CPU_KV_I16,
                                         n_pos[j],
                                         window ? 130 : 0,
                                         (i + (size_t)window) % 2 ? 2.5f : 0,
                                         types_kv >= 6};
                    float plain[8 * 128] = {0}, other[8 * 128] = {0};
                    for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
                        const char *why;
                        const struct cpu_kernels *k = kernels_at(isa, &why);
                        if (!k)
                            continue;
                        random_counter = 5000 + i * 10 + j;
                        check_attention(k, &s, isa == CPU_ISA_PLAIN ? plain : other);
                        if (isa != CPU_ISA_PLAIN)
                            assert_memory_equal(plain, other, 8 * dims[i] * sizeof(float));
                    }
                }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Best of several runs on one core: GB/s of weights for one token, and for many tokens the
// multiply-adds per second.
static void bench(const char *only)
{
    enum { N_TOK = 64, ROWS = 128 };
    for (int isa = CPU_ISA_PLAIN; isa <= CPU_ISA_AVX512; isa++) {
        const char *why;
        const struct cpu_kernels *k = kernels_at(isa, &why);
        if (!k)
            continue;
        for (size_t ti = 0; ti < N_TYPES; ti++)
            for (int c = 0; c < 2; c++) {
                const uint32_t n_cols = c ? 4864 : 896;
                if (n_cols % quant_info(types[ti])->block_elems != 0 ||
                    (only && strcmp(only, quant_info(types[ti])->name) != 0))
                    continue;
                size_t row_bytes = quant_row_bytes(types[ti], n_cols);
                uint8_t *data = checked_alloc(row_bytes * ROWS);
                random_weights(types[ti], data, (size_t)ROWS * n_cols);
                struct weight w = {.type = types[ti], .rows = ROWS, .n_cols = n_cols, .data = data};
                struct cpu_act x = act_create(n_cols, N_TOK);
                for (size_t t = 0; t < N_TOK; t++)
                    k->quantize(&x, t);
                k->pack(&x, 0, N_TOK);
                float *y = checked_alloc(N_TOK * ROWS * 4);
                double best[2] = {1e9, 1e9};
                for (int run = 0; run < 100; run++)
                    for (int batch = 0; batch < 2; batch++) {
                        struct cpu_matmul m = {&w, &x, NULL, y, ROWS, batch ? N_TOK : 1, false};
                        double t0 = seconds();
                        const uint32_t step = batch ? 48 : ROWS; // as the engine does
                        for (uint32_t row = 0; row < ROWS; row += step)
                            k->matmul(&m, row, row + step < ROWS ? row + step : ROWS);
                        double t = seconds() - t0;
                        best[batch] = t < best[batch] ? t : best[batch];
                    }
                printf("%-12s %-6s %4u: 1 token %6.2f GB/s, %d tokens %6.2f G multiply-adds/s\n",
                       k->name, quant_info(types[ti])->name, n_cols,
                       (double)(row_bytes * ROWS) / best[0] / 1e9, N_TOK,
                       (double)N_TOK * ROWS * n_cols / best[1] / 1e9);
                free(y);
                free(data);
                act_release(&x);
            }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        bench(argc > 2 ? argv[2] : NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_match_reference_and_each_other),
        cmocka_unit_test(test_extremes_are_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(test_rows_do_not_meet_their_neighbours),
        cmocka_unit_test(test_nan_and_infinity_survive_quantisation),
        cmocka_unit_test(test_norms_activations_rope_match_reference),
        cmocka_unit_test(test_states_match_reference_and_each_other),
        cmocka_unit_test(test_attention_matches_reference),
    };
    return RUN_TESTS("cpu_kernels", tests);
}
