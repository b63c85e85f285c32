// The primitives of simd.h for AVX-512 (F, BW, DQ, VL, VNNI). What each does is said in
// simd_plain.h.
#ifndef HOKKU_CPU_SIMD_AVX512_H
#define HOKKU_CPU_SIMD_AVX512_H

#include "cpu/simd_x86.h"

// Columns that a matrix product takes at a time: 32 registers hold 8 and a block of weights.
enum { V16_COLUMNS = 8 };

typedef __m512 v16;
typedef __m512i b64;

// The lanes of one register, and the products of so many rows and columns whose sums stay in 24 of
// the 32.
typedef __m512 vf;
enum { VF_LANES = 16, VF_ROWS = 4, VF_COLUMNS = 6 };
enum { VF_CONVERTS = true }; // costs no time beside so many products
typedef __m512i vi;          // as many whole numbers, or pairs of 16 bits

typedef struct {
    __m512i e, o;
} w64;

INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE vf vf_load_by(v16 (*load)(const void *), const void *p)
{
    return load(p);
}

INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

INLINE void vf_transpose(vf v[VF_LANES])
{
    __m512 t[16];
    __m512d u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            const __m512d a = _mm512_castps_pd(t[i + k]), b = _mm512_castps_pd(t[i + k + 2]);
            u[i + 2 * k] = _mm512_unpacklo_pd(a, b);
            u[i + 2 * k + 1] = _mm512_unpackhi_pd(a, b);
        }
    for (int i = 0; i < 4; i++) { // u[i], in each 128 bits: four rows of another column
        const __m512 a = _mm512_castpd_ps(u[i]), b = _mm512_castpd_ps(u[i + 4]);
        const __m512 c = _mm512_castpd_ps(u[i + 8]), d = _mm512_castpd_ps(u[i + 12]);
        const __m512 even = _mm512_shuffle_f32x4(a, b, 0x88),
                     odd = _mm512_shuffle_f32x4(a, b, 0xdd);
        const __m512 even2 = _mm512_shuffle_f32x4(c, d, 0x88),
                     odd2 = _mm512_shuffle_f32x4(c, d, 0xdd);
        v[i] = _mm512_shuffle_f32x4(even, even2, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(even, even2, 0xdd);
        v[i + 12] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
    }
}

INLINE vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

INLINE vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE vi vi_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

INLINE vi vi_dot(vi sum, vi a, vi b)
{
    // gcc 12 makes a copy of most sums for the function of this instruction.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

INLINE vf vf_of_vi(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

INLINE v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE v16 v16_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

INLINE v16 v16_load8(const void *p)
{
    return _mm512_zextps256_ps512(_mm256_loadu_ps(p));
}

INLINE void v16_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}

INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

INLINE v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}

INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE float v16_sum(v16 a)
{
    __m256 t = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE float v16_hmax(v16 a)
{
    __m256 t = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

INLINE v16 v16_scale2(v16 y, v16 n)
{
    __m512i e = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), e));
}

INLINE v16 v16_range(v16 a, v16 b, int first, int end)
{
    uint32_t below_first = first <= 0 ? 0 : first >= 16 ? 0xffff : (1u << first) - 1;
    uint32_t below_end = end <= 0 ? 0 : end >= 16 ? 0xffff : (1u << end) - 1;
    return _mm512_mask_blend_ps((__mmask16)(below_end & ~below_first), b, a);
}

INLINE float load_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

INLINE v16 v16_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE v16 v16_load_bf16(const void *p)
{
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}

INLINE v16 v16_load_i16(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(p)));
}

INLINE v16 v16_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

INLINE v16 v16_u8(uint64_t lo, uint64_t hi)
{
    __m128i b = _mm_set_epi64x((long long)hi, (long long)lo);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(b));
}

INLINE v16 v16_u8x8_dup(uint64_t v)
{
    __m128i b = _mm_cvtsi64_si128((long long)v);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(b, b)));
}

INLINE v16 v16_load_f16x4_dup(const uint8_t *p, size_t stride)
{
    uint16_t h[4];
    for (size_t i = 0; i < 4; i++)
        memcpy(&h[i], p + i * stride, 2);
    __m128i v = _mm_cvtsi32_si128(h[0]);
    v = _mm_insert_epi16(v, h[1], 1);
    v = _mm_insert_epi16(v, h[2], 2);
    v = _mm_insert_epi16(v, h[3], 3);
    return _mm512_castps256_ps512(_mm256_cvtph_ps(_mm_unpacklo_epi16(v, v)));
}

INLINE v16 v16_load_f16x8_dup18(const uint8_t *p)
{
    const __m512i at = _mm512_castsi256_si512(
        _mm256_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27, 36, 36, 45, 45, 54, 54, 63, 63));
    const __m512i v =
        _mm512_permutex2var_epi16(_mm512_loadu_si512(p), at, _mm512_loadu_si512(p + 64));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(v));
}

INLINE v16 v16_join8(v16 a, v16 b)
{
    return _mm512_insertf32x8(a, _mm512_castps512_ps256(b), 1);
}

INLINE void v16_store_i16(int16_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}

INLINE b64 b64_load2(const void *a, const void *b)
{
    __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256(a));
    return _mm512_inserti64x4(v, _mm256_loadu_si256(b), 1);
}

INLINE void store_places(uint16_t at[32], const uint8_t low[32], uint64_t high0, uint64_t high1,
                         const struct high_bits *bits)
{
    const __m512i from = _mm512_broadcast_i32x4(_mm_set_epi64x((long long)high1, (long long)high0));
    const __m512i word = _mm512_shuffle_epi8(from, _mm512_loadu_si512(bits->from));
    const __m512i v = _mm512_and_si512(_mm512_mullo_epi16(word, _mm512_loadu_si512(bits->times)),
                                       _mm512_set1_epi16((short)bits->mask));
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)low);
    _mm512_storeu_si512(at, _mm512_or_si512(_mm512_cvtepu8_epi16(bytes), v));
}

INLINE b64 b64_of_entries8(const uint64_t *table, struct places at)
{
    const __m512i v = _mm512_castsi256_si512(entries8x4(table, at, 0));
    return _mm512_inserti64x4(v, entries8x4(table, at, 4), 1);
}

INLINE b64 b64_of_entries4(const uint32_t *table, struct places at)
{
    const __m512i v = _mm512_castsi256_si512(entries4x8(table, at, 0));
    return _mm512_inserti64x4(v, entries4x8(table, at, 8), 1);
}

// A block's 16 bytes twice, then the other's.
INLINE __m512i twice(const void *a, const void *b)
{
    const __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128(a));
    return _mm512_mask_broadcast_i64x2(v, 0xf0, _mm_loadu_si128(b));
}

// x where twice has words of low nibbles, y where it has those of high ones
INLINE __m512i by_nibble(short x, short y)
{
    return _mm512_broadcast_i64x4(_mm256_set_m128i(_mm_set1_epi16(y), _mm_set1_epi16(x)));
}

// x in the first half, y in the second
INLINE __m512i by_half(int x, int y)
{
    const __m512i v = _mm512_castsi256_si512(_mm256_set1_epi16((short)x));
    return _mm512_inserti64x4(v, _mm256_set1_epi16((short)y), 1);
}

INLINE b64 b64_nibbles16(const void *a, const void *b)
{
    return _mm512_and_si512(_mm512_srlv_epi16(twice(a, b), by_nibble(0, 4)), _mm512_set1_epi8(15));
}

INLINE b64 b64_nibbles32(const void *p)
{
    __m256i q = _mm256_loadu_si256(p);
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(q), _mm256_srli_epi16(q, 4), 1);
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE b64 b64_nibble(const void *p, bool high)
{
    __m512i v = _mm512_loadu_si512(p);
    return _mm512_and_si512(high ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}

INLINE b64 b64_fields(const void *p, int shift0, int shift1, int mask)
{
    __m256i q = _mm256_loadu_si256(p);
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_srli_epi16(q, shift0)),
                                   _mm256_srli_epi16(q, shift1), 1);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

INLINE b64 b64_bits(uint32_t a, uint32_t b, int value)
{
    return _mm512_maskz_set1_epi8((__mmask64)((uint64_t)b << 32 | a), (char)value);
}

INLINE b64 b64_negative(b64 v, uint64_t where)
{
    return _mm512_mask_sub_epi8(v, (__mmask64)where, _mm512_setzero_si512(), v);
}

INLINE b64 b64_lookup(b64 index, const int8_t table[16])
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return _mm512_shuffle_epi8(t, index);
}

INLINE b64 b64_or(b64 x, b64 y)
{
    return _mm512_or_si512(x, y);
}

INLINE b64 b64_shl(b64 x, int n)
{
    return _mm512_slli_epi16(x, (unsigned)n);
}

INLINE b64 b64_sub(b64 x, b64 y)
{
    return _mm512_sub_epi8(x, y);
}

INLINE b64 b64_sub1(b64 x, int value)
{
    return _mm512_sub_epi8(x, _mm512_set1_epi8((char)value));
}

INLINE w64 w64_widen(b64 v)
{
    return (w64){_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), _mm512_srai_epi16(v, 8)};
}

INLINE w64 w64_widen_positive(b64 v)
{
    return (w64){_mm512_and_si512(v, _mm512_set1_epi16(255)), _mm512_srli_epi16(v, 8)};
}

INLINE w64 w64_nibbles16_x16(const void *a, const void *b, int less)
{
    const __m512i v = twice(a, b), mask = by_nibble(15, 240);
    const __m512i off = by_nibble((short)less, (short)(16 * less));
    return (w64){_mm512_sub_epi16(_mm512_and_si512(v, mask), off),
                 _mm512_sub_epi16(_mm512_and_si512(_mm512_srli_epi16(v, 8), mask), off)};
}

INLINE w64 w64_fields_in_place(const void *p, int shift0, int shift1, int mask)
{
    const __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
    const __m512i m = by_half(mask << shift0, mask << shift1);
    return (w64){_mm512_and_si512(v, m), _mm512_and_si512(_mm512_srli_epi16(v, 8), m)};
}

INLINE __m512i digits_less1(__m512i fraction, __m512i power)
{
    const __m512i low = _mm512_set1_epi16(255), one = _mm512_set1_epi16(1);
    const __m512i f = _mm512_and_si512(_mm512_mullo_epi16(fraction, power), low);
    const __m512i three = _mm512_add_epi16(f, _mm512_slli_epi16(f, 1));
    return _mm512_sub_epi16(_mm512_srli_epi16(three, 8), one);
}

INLINE w64 w64_digits_less1(b64 fraction, const uint8_t power[64])
{
    const w64 f = w64_widen_positive(fraction);
    const w64 p = w64_widen_positive(_mm512_loadu_si512(power));
    return (w64){digits_less1(f.e, p.e), digits_less1(f.o, p.o)};
}

// Sums of the products of 64, by fours: in the lane of 128 bits that its group of 16 has.
INLINE __m512i fours(const w64 *w, const int16_t *x)
{
    __m512i d = _mm512_dpwssd_epi32(_mm512_setzero_si512(), w->e, _mm512_loadu_si512(x));
    return _mm512_dpwssd_epi32(d, w->o, _mm512_loadu_si512(x + 32));
}

// Of two numbers next to each other, and of two sets of them, the sums: a, b, a, b in each 128
// bits.
INLINE __m512i add_pairs(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE v16 w64_dot_groups(const w64 w[4], const int16_t *x)
{
    const __m512i p = add_pairs(fours(&w[0], x), fours(&w[1], x + 64));
    const __m512i q = add_pairs(fours(&w[2], x + 128), fours(&w[3], x + 192));
    const __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_cvtepi32_ps(_mm512_permutexvar_epi32(order, sum));
}

INLINE v16 w64_dot_groups8(const w64 w[2], const int16_t *x)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i p = add_pairs(fours(&w[0], x), fours(&w[1], x + 64));
    const __m512i sum =
        _mm512_add_epi32(_mm512_unpacklo_epi64(p, zero), _mm512_unpackhi_epi64(p, zero));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 2, 2, 2, 2, 2, 2, 2);
    return _mm512_cvtepi32_ps(_mm512_permutexvar_epi32(order, sum));
}

INLINE void w64_store(int16_t *p, const w64 *w)
{
    _mm512_storeu_si512(p, w->e);
    _mm512_storeu_si512(p + 32, w->o);
}

#endif
