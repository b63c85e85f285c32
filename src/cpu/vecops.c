// The operations between matrix products: quantising activations, norms, activation functions,
// softcaps, RoPE. Compiled
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
        const v16 inverse = v16_set1(top > 1e-30f ? (float)CPU_ACT_TOP / top : 0.0f);
        const float scale = (top > 1e-30f ? top / (float)CPU_ACT_TOP : 0.0f) + bad;
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

// Sum of (x - mean)^2
static float squares(const float *x, float mean, size_t n)
{
    const v16 m = v16_set1(mean);
    v16 sum = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 d = v16_sub(v16_load(x + i), m);
        sum = v16_fma(d, d, sum);
    }
    if (i < n) {
        float t[16] = {0};
        for (size_t k = i; k < n; k++)
            t[k - i] = x[k] - mean;
        sum = v16_fma(v16_load(t), v16_load(t), sum);
    }
    return v16_sum(sum);
}

void CPU_NAME(rms_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                        float *y)
{
    const float r = 1.0f / cpu_root(squares(x, 0.0f, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = w ? x[i] * r * w[i] : x[i] * r;
    for (size_t i = 0; b && i < n; i++)
        y[i] += b[i];
}

// Ba et al., "Layer normalization", 2016
void CPU_NAME(layer_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                          float *y)
{
    v16 sum = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = v16_add(sum, v16_load(x + i));
    if (i < n)
        sum = v16_add(sum, load_part(x + i, n - i));
    const float mean = v16_sum(sum) / (float)n;
    const float r = 1.0f / cpu_root(squares(x, mean, n) / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = (x[i] - mean) * r * w[i];
    for (i = 0; b && i < n; i++)
        y[i] += b[i];
}

// 1 + e^-x, infinite below -90: v16_exp's largest value would leave something of an x of -1e37.
INLINE v16 one_and_exp_of_minus(v16 x)
{
    const v16 too_low = v16_max(v16_zero(), v16_sub(v16_set1(-88.0f), x));
    const v16 sum = v16_add(v16_set1(1.0f), v16_exp(v16_sub(v16_zero(), x)));
    return v16_fma(too_low, v16_set1(3e38f), sum);
}

INLINE v16 sigmoid(v16 x)
{
    return v16_div(v16_set1(1.0f), one_and_exp_of_minus(x));
}

INLINE v16 silu(v16 x)
{
    return v16_div(x, one_and_exp_of_minus(x));
}

// (1 + tanh(u)) / 2 is sigmoid(2 u)
INLINE v16 gelu_tanh(v16 x)
{
    v16 cubic = v16_fma(v16_mul(x, x), v16_set1(0.044715f), v16_set1(1.0f));
    return v16_mul(x, sigmoid(v16_mul(v16_mul(x, cubic), v16_set1(1.5957691216f))));
}

// x's part above 0 less |x| erfc(|x| / sqrt(2)) / 2; erfc by Abramowitz and Stegun 1964, 7.1.26, to
// 1.5e-7.
INLINE v16 gelu(v16 x)
{
    const v16 one = v16_set1(1.0f), size = v16_max(v16_sub(v16_zero(), x), x);
    const v16 t = v16_div(one, v16_fma(size, v16_set1(0.3275911f * 0.70710678f), one));
    v16 y = v16_fma(t, v16_set1(1.061405429f), v16_set1(-1.453152027f));
    y = v16_fma(t, y, v16_set1(1.421413741f));
    y = v16_fma(t, y, v16_set1(-0.284496736f));
    y = v16_fma(t, y, v16_set1(0.254829592f));
    y = v16_mul(v16_mul(t, y), v16_exp(v16_mul(v16_mul(size, size), v16_set1(-0.5f))));
    return v16_fma(v16_mul(size, v16_set1(-0.5f)), y, v16_max(v16_zero(), x));
}

INLINE v16 relu_sqr(v16 x)
{
    v16 above = v16_max(v16_zero(), x);
    return v16_mul(above, above);
}

INLINE v16 xielu(const struct xielu *p, v16 x)
{
    const v16 one = v16_set1(1.0f);
    const v16 above = v16_max(v16_zero(), x), below = v16_min(v16_zero(), x);
    const v16 is_above = v16_min(one, v16_mul(above, v16_set1(1e30f)));
    const v16 low = v16_sub(v16_sub(v16_exp(v16_min(v16_set1(p->eps), below)), one), below);
    v16 y = v16_mul(v16_set1(p->beta), x);
    y = v16_fma(v16_mul(above, above), v16_set1(p->p), y);
    return v16_fma(v16_mul(low, v16_sub(one, is_above)), v16_set1(p->n), y);
}

INLINE v16 activation(enum activation act, const struct xielu *p, v16 x)
{
    switch (act) {
    case ACT_SILU:
        return silu(x);
    case ACT_GELU_TANH:
        return gelu_tanh(x);
    case ACT_GELU:
        return gelu(x);
    case ACT_RELU_SQR:
        return relu_sqr(x);
    case ACT_XIELU:
        return xielu(p, x);
    case ACT_CLAMPED_SWIGLU:
        break;
    }
    // What is not a number stays so: v16_min and v16_max give their second argument then.
    const v16 a = v16_min(v16_set1(7.0f), x);
    return v16_mul(a, sigmoid(v16_mul(v16_set1(1.702f), a)));
}

// What the activation is multiplied by.
INLINE v16 beside(enum activation act, v16 up)
{
    if (act != ACT_CLAMPED_SWIGLU)
        return up;
    const v16 b = v16_max(v16_set1(-7.0f), v16_min(v16_set1(7.0f), up));
    return v16_add(b, v16_set1(1.0f));
}

INLINE void activate(enum activation act, const struct xielu *p, float *gate, const float *up,
                     size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 y = activation(act, p, v16_load(gate + i));
        v16_store(gate + i, up ? v16_mul(y, beside(act, v16_load(up + i))) : y);
    }
    if (i < n) {
        v16 y = activation(act, p, load_part(gate + i, n - i));
        store_part(gate + i, up ? v16_mul(y, beside(act, load_part(up + i, n - i))) : y, n - i);
    }
}

void CPU_NAME(activate)(enum activation act, const struct xielu *p, float *gate, const float *up,
                        size_t n)
{
    switch (act) {
    case ACT_SILU:
        activate(ACT_SILU, p, gate, up, n);
        break;
    case ACT_GELU_TANH:
        activate(ACT_GELU_TANH, p, gate, up, n);
        break;
    case ACT_GELU:
        activate(ACT_GELU, p, gate, up, n);
        break;
    case ACT_RELU_SQR:
        activate(ACT_RELU_SQR, p, gate, up, n);
        break;
    case ACT_XIELU:
        activate(ACT_XIELU, p, gate, up, n);
        break;
    case ACT_CLAMPED_SWIGLU:
        activate(ACT_CLAMPED_SWIGLU, p, gate, up, n);
        break;
    }
}

// An infinite x does not become c, which is a logit as others are: x - x is 0, or then NaN.
static v16 capped(v16 x, float scale, float c)
{
    x = v16_mul(x, v16_set1(scale));
    if (c <= 0)
        return x;
    const v16 y = v16_mul(v16_tanh(v16_mul(x, v16_set1(1 / c))), v16_set1(c));
    return v16_fma(v16_sub(x, x), x, y);
}

void CPU_NAME(softcap)(float *x, float scale, float c, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, capped(v16_load(x + i), scale, c));
    if (i < n)
        store_part(x + i, capped(load_part(x + i, n - i), scale, c), n - i);
}

// Sixteen channels at a time through all of the state, so that what they answer stays in a
// register.
void CPU_NAME(remember)(float *s, size_t n_state, size_t n, float decay, const float *b,
                        const float *x, const float *c, float *y)
{
    size_t k = 0;
    for (; k + 16 <= n; k += 16) {
        const v16 new = v16_load(x + k), keep = v16_set1(decay);
        v16 sum = v16_load(y + k);
        for (size_t i = 0; i < n_state; i++) {
            float *at = s + i * n + k;
            const v16 now = v16_add(v16_mul(keep, v16_load(at)), v16_mul(v16_set1(b[i]), new));
            v16_store(at, now);
            sum = v16_add(sum, v16_mul(v16_set1(c[i]), now));
        }
        v16_store(y + k, sum);
    }
    for (size_t i = 0; k < n && i < n_state; i++)
        for (size_t t = k; t < n; t++) {
            s[i * n + t] = decay * s[i * n + t] + b[i] * x[t];
            y[t] += c[i] * s[i * n + t];
        }
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
