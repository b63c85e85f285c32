// The primitives of simd.h in plain C: the definition of what they do, and what runs where no
// other instruction set is known. The loops are written so that compilers vectorise them.
#ifndef HOKKU_CPU_SIMD_PLAIN_H
#define HOKKU_CPU_SIMD_PLAIN_H

#include "gguf/quant.h"

// Columns that a matrix product takes at a time: more would only cost code.
enum { V16_COLUMNS = 4 };

typedef struct {
    float f[16];
} v16;

// Some lanes of a row, and the products of so many rows and columns that are summed together.
typedef v16 vf;
enum { VF_LANES = 16, VF_ROWS = 2, VF_COLUMNS = 2 };
// Whether halves are made floats each time that they meet columns, instead of once.
enum { VF_CONVERTS = false };

// As many whole numbers, or pairs of 16 bits.
typedef union {
    int32_t n[16];
    int16_t q[32];
} vi;

typedef struct {
    int8_t b[64];
} b64;

typedef struct {
    int16_t e[32], o[32];
} w64;

// Exact fused multiply-add. Without the instruction, libm may emulate it very slowly; this is
// exact too: the product of two floats is exact in double, and rounding the double sum to odd
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008) makes the second
// rounding harmless.
INLINE float fma1(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    double p = (double)a * b, d = c, s = p + d;
    double t = s - p, e = (p - (s - t)) + (d - t); // two-sum: s + e = p + d exactly
    union {
        double d;
        uint64_t u;
    } r = {s};
    uint64_t inexact = e != 0.0 && !(r.u & 1) && e - e == 0.0;
    uint64_t outward = (e > 0.0) == (s > 0.0);
    r.u += inexact & outward;
    r.u -= inexact & !outward;
    return (float)r.d;
#endif
}

#define LANES for (int i = 0; i < 16; i++)

INLINE v16 v16_zero(void)
{
    return (v16){{0}};
}

INLINE v16 v16_set1(float x)
{
    v16 r;
    LANES r.f[i] = x;
    return r;
}

INLINE v16 v16_load(const void *p)
{
    v16 r;
    memcpy(&r, p, 64);
    return r;
}

// Lanes 0 to 7; the others are 0.
INLINE v16 v16_load8(const void *p)
{
    v16 r = {{0}};
    memcpy(&r, p, 32);
    return r;
}

INLINE void v16_store(float *p, v16 v)
{
    memcpy(p, &v, 64);
}

INLINE v16 v16_add(v16 a, v16 b)
{
    LANES a.f[i] += b.f[i];
    return a;
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    LANES a.f[i] -= b.f[i];
    return a;
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    LANES a.f[i] *= b.f[i];
    return a;
}

INLINE v16 v16_div(v16 a, v16 b)
{
    LANES a.f[i] /= b.f[i];
    return a;
}

INLINE v16 v16_max(v16 a, v16 b)
{
    LANES a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}

INLINE v16 v16_min(v16 a, v16 b)
{
    LANES a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return a;
}

INLINE v16 v16_abs(v16 a)
{
    LANES a.f[i] = fabsf(a.f[i]);
    return a;
}

// a * b + c, rounded once
INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    LANES c.f[i] = fma1(a.f[i], b.f[i], c.f[i]);
    return c;
}

INLINE vf vf_load(const float *p)
{
    return v16_load(p);
}

// The first lanes of what load gives.
INLINE vf vf_load_by(v16 (*load)(const void *), const void *p)
{
    return load(p);
}

INLINE void vf_store(float *p, vf v)
{
    v16_store(p, v);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return v16_fma(a, b, c);
}

INLINE vf vf_set1(float x)
{
    return v16_set1(x);
}

INLINE vf vf_add(vf a, vf b)
{
    return v16_add(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return v16_mul(a, b);
}

// Lane k of v[i] to lane i of v[k]
INLINE void vf_transpose(vf v[VF_LANES])
{
    vf t[VF_LANES];
    memcpy(t, v, sizeof t);
    for (int i = 0; i < VF_LANES; i++)
        for (int k = 0; k < VF_LANES; k++)
            v[k].f[i] = t[i].f[k];
}

INLINE vi vi_zero(void)
{
    return (vi){{0}};
}

INLINE vi vi_load(const void *p)
{
    vi r;
    memcpy(&r, p, 64);
    return r;
}

// The two numbers at p in every lane.
INLINE vi vi_pair(const int16_t *p)
{
    vi r;
    for (int i = 0; i < 32; i++)
        r.q[i] = p[i % 2];
    return r;
}

// sum + the products of the pairs, which are exact and fit
INLINE vi vi_dot(vi sum, vi a, vi b)
{
    LANES sum.n[i] += a.q[2 * i] * b.q[2 * i] + a.q[2 * i + 1] * b.q[2 * i + 1];
    return sum;
}

INLINE vf vf_of_vi(vi a)
{
    vf r;
    LANES r.f[i] = (float)a.n[i];
    return r;
}

// Halves are added to halves: 16 -> 8 -> 4 -> 2 -> 1.
INLINE float v16_sum(v16 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}

INLINE float v16_hmax(v16 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] = a.f[i] > a.f[i + n] ? a.f[i] : a.f[i + n];
    return a.f[0];
}

INLINE float load_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return quant_f16_to_f32(h);
}

// y * 2^n, n a whole number, result normal; a NaN stays one
INLINE v16 v16_scale2(v16 y, v16 n)
{
    LANES
    {
        uint32_t u;
        memcpy(&u, &y.f[i], 4);
        u += n.f[i] == n.f[i] ? (uint32_t)(int32_t)n.f[i] << 23 : 0;
        memcpy(&y.f[i], &u, 4);
    }
    return y;
}

// Lanes [first, end) of a, the others of b.
INLINE v16 v16_range(v16 a, v16 b, int first, int end)
{
    LANES b.f[i] = i >= first && i < end ? a.f[i] : b.f[i];
    return b;
}

INLINE v16 v16_load_f16(const void *p)
{
    uint16_t h[16];
    memcpy(h, p, 32);
    v16 r;
    LANES r.f[i] = quant_f16_to_f32(h[i]);
    return r;
}

INLINE v16 v16_load_bf16(const void *p)
{
    uint16_t h[16];
    memcpy(h, p, 32);
    v16 r;
    LANES
    {
        uint32_t u = (uint32_t)h[i] << 16;
        memcpy(&r.f[i], &u, 4);
    }
    return r;
}

INLINE v16 v16_load_i16(const void *p)
{
    int16_t h[16];
    memcpy(h, p, 32);
    v16 r;
    LANES r.f[i] = h[i];
    return r;
}

INLINE v16 v16_load_i8(const void *p)
{
    int8_t b[16];
    memcpy(b, p, 16);
    v16 r;
    LANES r.f[i] = b[i];
    return r;
}

// The 16 bytes of lo and hi (little-endian) as unsigned numbers.
INLINE v16 v16_u8(uint64_t lo, uint64_t hi)
{
    v16 r;
    LANES r.f[i] = (float)((i < 8 ? lo : hi) >> 8 * (i % 8) & 255);
    return r;
}

// Eight bytes, each in two neighbouring lanes.
INLINE v16 v16_u8x8_dup(uint64_t v)
{
    v16 r;
    LANES r.f[i] = (float)(v >> 8 * (i / 2) & 255);
    return r;
}

// Four halves, `stride` bytes apart, each in two neighbouring lanes; lanes 8 to 15 are unspecified.
INLINE v16 v16_load_f16x4_dup(const uint8_t *p, size_t stride)
{
    v16 r = {{0}};
    for (int i = 0; i < 4; i++) {
        uint16_t h;
        memcpy(&h, p + (size_t)i * stride, 2);
        r.f[2 * i] = r.f[2 * i + 1] = quant_f16_to_f32(h);
    }
    return r;
}

// Lanes 0 to 7 of a, then those of b.
INLINE v16 v16_join8(v16 a, v16 b)
{
    memcpy(&a.f[8], b.f, 32);
    return a;
}

// Half floats at p, p + 18, ..., p + 126, each twice.
INLINE v16 v16_load_f16x8_dup18(const uint8_t *p)
{
    return v16_join8(v16_load_f16x4_dup(p, 18), v16_load_f16x4_dup(p + 72, 18));
}

// Round to the nearest integer (ties to even), saturate to 16 bits; a NaN gives any value.
INLINE void v16_store_i16(int16_t *p, v16 v)
{
    LANES
    {
        float x = v.f[i] > -32768.0f ? v.f[i] : -32768.0f; // also a NaN
        x = x < 32767.0f ? x : 32767.0f;
        p[i] = (int16_t)((x + 12582912.0f) - 12582912.0f);
    }
}

#undef LANES
#define BYTES for (int i = 0; i < 64; i++)

INLINE b64 b64_load2(const void *a, const void *b)
{
    b64 r;
    memcpy(r.b, a, 32);
    memcpy(r.b + 32, b, 32);
    return r;
}

// 32 places: their lowest bytes, and what is above them, in the 16 bytes of two words.
INLINE void store_places(uint16_t at[32], const uint8_t low[32], uint64_t high0, uint64_t high1,
                         const struct high_bits *bits)
{
    uint8_t byte[16];
    for (int i = 0; i < 16; i++)
        byte[i] = (uint8_t)((i < 8 ? high0 : high1) >> i % 8 * 8);
    for (int i = 0; i < 32; i++) {
        uint32_t word = 0;
        for (int k = 0; k < 2; k++)
            word |= (bits->from[2 * i + k] & 0x80 ? 0u : byte[bits->from[2 * i + k]]) << 8 * k;
        at[i] = (uint16_t)(low[i] | (word * bits->times[i] & bits->mask));
    }
}

// For each of eight words of 16 bits four bytes: all bits where its uppermost is set, or none.
INLINE void store_uppermost(uint64_t bytes[4], const uint8_t words[16])
{
    for (int i = 0; i < 4; i++) {
        const uint64_t low = words[4 * i + 1] >> 7, high = words[4 * i + 3] >> 7;
        bytes[i] = (low | high << 32) * UINT32_MAX;
    }
}

// For each of 32 nibbles, the lower one of a byte first, a byte: all bits where its uppermost is
// set, or none.
INLINE void store_fourths(uint64_t bytes[4], const uint8_t nibbles[16])
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = 0;
        for (int k = 0; k < 8; k++)
            bytes[i] |= (uint64_t)(nibbles[4 * i + k / 2] >> (k % 2 * 4 + 3) & 1) * 255 << 8 * k;
    }
}

// The entries of a table at eight places, the lowest byte of each first.
INLINE b64 b64_of_entries8(const uint64_t *table, struct places at)
{
    b64 r;
    for (int i = 0; i < 64; i++)
        r.b[i] = (int8_t)(table[place(at, i / 8)] >> i % 8 * 8);
    return r;
}

// Of four bytes, at 16 places.
INLINE b64 b64_of_entries4(const uint32_t *table, struct places at)
{
    b64 r;
    for (int i = 0; i < 64; i++)
        r.b[i] = (int8_t)(table[place(at, i / 4)] >> i % 4 * 8);
    return r;
}

// The nibbles of 16 bytes at a, then of 16 bytes at b: low nibbles are elements 0 to 15, high ones
// 16 to 31.
INLINE b64 b64_nibbles16(const void *a, const void *b)
{
    uint8_t t[32];
    memcpy(t, a, 16);
    memcpy(t + 16, b, 16);
    b64 r;
    for (int i = 0; i < 16; i++) {
        r.b[i] = t[i] & 15;
        r.b[i + 16] = t[i] >> 4;
        r.b[i + 32] = t[i + 16] & 15;
        r.b[i + 48] = t[i + 16] >> 4;
    }
    return r;
}

// The low nibbles of 32 bytes, then the high ones.
INLINE b64 b64_nibbles32(const void *a)
{
    uint8_t t[32];
    memcpy(t, a, 32);
    b64 r;
    for (int i = 0; i < 32; i++) {
        r.b[i] = t[i] & 15;
        r.b[i + 32] = t[i] >> 4;
    }
    return r;
}

// 64 bytes, one nibble of each.
INLINE b64 b64_nibble(const void *a, bool high)
{
    uint8_t t[64];
    memcpy(t, a, 64);
    b64 r;
    BYTES r.b[i] = high ? t[i] >> 4 : t[i] & 15;
    return r;
}

// The same 32 bytes twice: (byte >> shift) & mask, with another shift for the second half.
INLINE b64 b64_fields(const void *a, int shift0, int shift1, int mask)
{
    uint8_t t[32];
    memcpy(t, a, 32);
    b64 r;
    for (int i = 0; i < 32; i++) {
        r.b[i] = (t[i] >> shift0) & mask;
        r.b[i + 32] = (t[i] >> shift1) & mask;
    }
    return r;
}

// Byte i is `value` where bit i is set, else 0: bits 0 to 31 of a, then of b.
INLINE b64 b64_bits(uint32_t a, uint32_t b, int value)
{
    b64 r;
    for (int i = 0; i < 32; i++) {
        r.b[i] = (a >> i & 1) ? value : 0;
        r.b[i + 32] = (b >> i & 1) ? value : 0;
    }
    return r;
}

// Byte i is its negative where bit i is set.
INLINE b64 b64_negative(b64 v, uint64_t where)
{
    BYTES v.b[i] = (int8_t)(where >> i & 1 ? -v.b[i] : v.b[i]);
    return v;
}

INLINE b64 b64_lookup(b64 index, const int8_t table[16])
{
    BYTES index.b[i] = table[index.b[i] & 15];
    return index;
}

INLINE b64 b64_or(b64 a, b64 b)
{
    BYTES a.b[i] |= b.b[i];
    return a;
}

// Bytes are small enough not to reach their neighbours.
INLINE b64 b64_shl(b64 a, int n)
{
    BYTES a.b[i] = (int8_t)((uint8_t)a.b[i] << n);
    return a;
}

INLINE b64 b64_sub(b64 a, b64 b)
{
    BYTES a.b[i] = (int8_t)(a.b[i] - b.b[i]);
    return a;
}

INLINE b64 b64_sub1(b64 a, int value)
{
    BYTES a.b[i] = (int8_t)(a.b[i] - value);
    return a;
}

#undef BYTES

INLINE w64 w64_widen(b64 v)
{
    w64 r;
    for (int i = 0; i < 32; i++) {
        r.e[i] = v.b[2 * i];
        r.o[i] = v.b[2 * i + 1];
    }
    return r;
}

// The same for bytes known to be 0 to 127 (cheaper on some instruction sets).
INLINE w64 w64_widen_positive(b64 v)
{
    return w64_widen(v);
}

// The nibbles of b64_nibbles16, less so much. Those of elements 16 to 31 stay where they are in
// their bytes: 16 times the number.
INLINE w64 w64_nibbles16_x16(const void *a, const void *b, int less)
{
    w64 r = w64_widen(b64_sub1(b64_nibbles16(a, b), less));
    for (int i = 0; i < 32; i++) {
        r.e[i] = (int16_t)(r.e[i] * (i % 16 < 8 ? 1 : 16));
        r.o[i] = (int16_t)(r.o[i] * (i % 16 < 8 ? 1 : 16));
    }
    return r;
}

// The fields of b64_fields where they are in their bytes: 2^shift0 and 2^shift1 times the number.
INLINE w64 w64_fields_in_place(const void *p, int shift0, int shift1, int mask)
{
    w64 r = w64_widen(b64_fields(p, shift0, shift1, mask));
    for (int i = 0; i < 32; i++) {
        r.e[i] = (int16_t)(r.e[i] << (i < 16 ? shift0 : shift1));
        r.o[i] = (int16_t)(r.o[i] << (i < 16 ? shift0 : shift1));
    }
    return r;
}

// Of fractions of 256, the first digit to the base 3 after so many others: power is 3 to that
// number. Less 1.
INLINE w64 w64_digits_less1(b64 fraction, const uint8_t power[64])
{
    b64 r;
    for (int i = 0; i < 64; i++)
        r.b[i] = (int8_t)(((uint8_t)fraction.b[i] * power[i] % 256 * 3 >> 8) - 1);
    return w64_widen(r);
}

// Lane i of 4n: the exact sum of w * x over elements 16i to 16i + 15 of n sets of 64, then rounded
// to float; the others are 0. x: in each 64 the 32 even elements come first.
INLINE v16 dot_groups(const w64 *w, const int16_t *x, int n)
{
    v16 r = {{0}};
    for (int i = 0; i < 4 * n; i++) {
        const w64 *v = &w[i / 4];
        const int at = i % 4 * 8;
        const int16_t *even = x + i / 4 * 64 + at, *odd = even + 32;
        int32_t sum = 0;
        for (int k = 0; k < 8; k++)
            sum += v->e[at + k] * even[k] + v->o[at + k] * odd[k];
        r.f[i] = (float)sum;
    }
    return r;
}

INLINE v16 w64_dot_groups(const w64 w[4], const int16_t *x)
{
    return dot_groups(w, x, 4);
}

INLINE v16 w64_dot_groups8(const w64 w[2], const int16_t *x)
{
    return dot_groups(w, x, 2);
}

// 32 even elements, then 32 odd ones
INLINE void w64_store(int16_t *p, const w64 *w)
{
    memcpy(p, w->e, 64);
    memcpy(p + 32, w->o, 64);
}

#endif
