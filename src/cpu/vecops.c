// The operations between matrix products: quantising activations, RMSNorm, SwiGLU, RoPE. Compiled
// once per instruction set.
#include "cpu/kernels_isa.h"

// n < 16 values, the other lanes 0
static v16 load_part(const float *p, size_t n)
{
    float t[16] = {0};
    memcpy(t, p, n * sizeof *p);
    return v16_load(t);
}

static void store_part(float *p, v16 v, size_t n)
{
    float t[16];
    v16_store(t, v);
    memcpy(p, t, n * sizeof *p);
}

void CPU_NAME(quantize)(const struct cpu_act *a, size_t tok)
{
    for (size_t at = tok * a->n_pad; at < (tok + 1) * a->n_pad; at += CPU_PAD) {
        v16 max = v16_zero(), total = v16_zero();
        for (size_t i = 0; i < CPU_PAD; i += 16) {
            v16 x = v16_load(a->f + at + i);
            max = v16_max(max, v16_abs(x));
            total = v16_add(total, x);
        }
        const float top = v16_hmax(max);
        // A NaN or infinity anywhere must reach the scale: it must not end as a number.
        const float bad = v16_sum(v16_mul(total, v16_zero()));
        const v16 inverse = v16_set1(top > 1e-30f ? 32767.0f / top : 0.0f);
        const float scale = (top > 1e-30f ? top / 32767.0f : 0.0f) + bad;
        int16_t q[CPU_PAD];
        for (size_t i = 0; i < CPU_PAD; i += 16)
            v16_store_i16(q + i, v16_mul(v16_load(a->f + at + i), inverse));
        a->scale[at / CPU_PAD] = scale;
        for (size_t i = 0; i < CPU_PAD; i += 16) {
            int32_t sum = 0;
            for (size_t k = 0; k < 16; k++)
                sum += q[i + k];
            a->sum[(at + i) / 16] = scale * (float)sum;
        }
        for (size_t i = 0; i < CPU_PAD; i += 64) {
            int16_t *even = a->q + at + i, *odd = even + 32;
            for (size_t k = 0; k < 32; k++) {
                even[k] = q[i + 2 * k];
                odd[k] = q[i + 2 * k + 1];
            }
        }
    }
}

void CPU_NAME(rms_norm)(const float *x, const float *w, float eps, size_t n, float *y)
{
    v16 squares = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        squares = v16_fma(v16_load(x + i), v16_load(x + i), squares);
    if (i < n) {
        v16 last = load_part(x + i, n - i);
        squares = v16_fma(last, last, squares);
    }
    const float r = 1.0f / sqrtf(v16_sum(squares) / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = x[i] * r * w[i];
}

INLINE v16 silu(v16 x)
{
    v16 one = v16_set1(1.0f);
    return v16_div(x, v16_add(one, v16_exp(v16_sub(v16_zero(), x))));
}

void CPU_NAME(silu_mul)(float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(gate + i, v16_mul(silu(v16_load(gate + i)), v16_load(up + i)));
    if (i < n)
        store_part(gate + i, v16_mul(silu(load_part(gate + i, n - i)), load_part(up + i, n - i)),
                   n - i);
}

void CPU_NAME(rope)(float *x, const float *cos_sin, size_t n_pairs, enum rope_layout layout)
{
    const size_t step = layout == ROPE_INTERLEAVED ? 2 : 1;
    const size_t other = layout == ROPE_INTERLEAVED ? 1 : n_pairs;
    for (size_t i = 0; i < n_pairs; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float a = x[i * step], b = x[i * step + other];
        x[i * step] = a * c - b * s;
        x[i * step + other] = a * s + b * c;
    }
}

uint64_t CPU_NAME(read)(const void *p, size_t n_bytes)
{
    v16 a = v16_zero(), b = a, c = a, d = a;
    for (size_t i = 0; i < n_bytes; i += 256) {
        const float *f = (const float *)p + i / 4;
        a = v16_max(a, v16_load(f));
        b = v16_max(b, v16_load(f + 16));
        c = v16_max(c, v16_load(f + 32));
        d = v16_max(d, v16_load(f + 48));
    }
    return (uint64_t)(v16_hmax(v16_max(v16_max(a, b), v16_max(c, d))) != 0.0f);
}
