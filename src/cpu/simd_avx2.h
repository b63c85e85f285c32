// The primitives of simd.h for AVX2 + FMA + F16C. What each does is said in simd_plain.h.
#ifndef HOKKU_CPU_SIMD_AVX2_H
#define HOKKU_CPU_SIMD_AVX2_H

#include "cpu/simd_x86.h"

// Columns that a matrix product takes at a time: measured faster than 4, although the sums spill.
enum { V16_COLUMNS = 8 };

typedef struct {
    __m256 a, b; // lanes 0 to 7, 8 to 15
} v16;

// The lanes of one register, and the products of so many rows and columns whose sums stay in twelve
// of the sixteen.
typedef __m256 vf;
enum { VF_LANES = 8, VF_ROWS = 4, VF_COLUMNS = 3 };
enum { VF_CONVERTS = false };
typedef __m256i vi; // as many whole numbers, or pairs of 16 bits

typedef struct {
    __m256i a, b;
} b64;

typedef struct {
    __m256i ea, eb, oa, ob;
} w64;

INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE vf vf_load_by(v16 (*load)(const void *), const void *p)
{
    return load(p).a;
}

INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

INLINE void vf_transpose(vf v[VF_LANES])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            u[i + 2 * k] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0x44);
            u[i + 2 * k + 1] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

INLINE vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

INLINE vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE vi vi_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

INLINE vi vi_dot(vi sum, vi a, vi b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum)); // products are not held back until no register is left
    return sum;
}

INLINE vf vf_of_vi(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

INLINE v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

INLINE v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

INLINE v16 v16_load(const void *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8)};
}

INLINE v16 v16_load8(const void *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_setzero_ps()};
}

INLINE void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}

INLINE v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)};
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)};
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)};
}

INLINE v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)};
}

INLINE v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)};
}

INLINE v16 v16_min(v16 a, v16 b)
{
    return (v16){_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)};
}

INLINE v16 v16_abs(v16 a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.a), _mm256_andnot_ps(sign, a.b)};
}

INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}

INLINE float v16_sum(v16 a)
{
    __m256 t = _mm256_add_ps(a.a, a.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE float v16_hmax(v16 a)
{
    __m256 t = _mm256_max_ps(a.a, a.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

INLINE __m256 scale2_ps(__m256 y, __m256 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), e));
}

INLINE v16 v16_scale2(v16 y, v16 n)
{
    return (v16){scale2_ps(y.a, n.a), scale2_ps(y.b, n.b)};
}

INLINE v16 v16_range(v16 a, v16 b, int first, int end)
{
    __m256i ia = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i ib = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    __m256i lo = _mm256_set1_epi32(first - 1), hi = _mm256_set1_epi32(end);
    __m256i ma = _mm256_and_si256(_mm256_cmpgt_epi32(ia, lo), _mm256_cmpgt_epi32(hi, ia));
    __m256i mb = _mm256_and_si256(_mm256_cmpgt_epi32(ib, lo), _mm256_cmpgt_epi32(hi, ib));
    return (v16){_mm256_blendv_ps(b.a, a.a, _mm256_castsi256_ps(ma)),
                 _mm256_blendv_ps(b.b, a.b, _mm256_castsi256_ps(mb))};
}

INLINE float load_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

INLINE v16 v16_load_f16(const void *p)
{
    const __m128i *h = p;
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}

INLINE __m256 bf16x8_ps(const __m128i *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}

INLINE v16 v16_load_bf16(const void *p)
{
    return (v16){bf16x8_ps(p), bf16x8_ps((const __m128i *)p + 1)};
}

INLINE v16 v16_load_i16(const void *p)
{
    const __m128i *h = p;
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(h))),
                 _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(h + 1)))};
}

INLINE v16 v16_load_i8(const void *p)
{
    __m128i v = _mm_loadu_si128(p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}

INLINE v16 u8x16_ps(__m128i v)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                 _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}

INLINE v16 v16_u8(uint64_t lo, uint64_t hi)
{
    return u8x16_ps(_mm_set_epi64x((long long)hi, (long long)lo));
}

INLINE v16 v16_u8x8_dup(uint64_t v)
{
    __m128i b = _mm_cvtsi64_si128((long long)v);
    return u8x16_ps(_mm_unpacklo_epi8(b, b));
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
    return (v16){_mm256_cvtph_ps(_mm_unpacklo_epi16(v, v)), _mm256_setzero_ps()};
}

INLINE v16 v16_join8(v16 a, v16 b)
{
    return (v16){a.a, b.a};
}

INLINE v16 v16_load_f16x8_dup18(const uint8_t *p)
{
    return v16_join8(v16_load_f16x4_dup(p, 18), v16_load_f16x4_dup(p + 72, 18));
}

INLINE void v16_store_i16(int16_t *p, v16 v)
{
    __m256i t = _mm256_packs_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(t, 0xd8));
}

INLINE b64 b64_load2(const void *a, const void *b)
{
    return (b64){_mm256_loadu_si256(a), _mm256_loadu_si256(b)};
}

INLINE void store_places(uint16_t at[32], const uint8_t low[32], uint64_t high0, uint64_t high1,
                         const struct high_bits *bits)
{
    const __m256i from =
        _mm256_broadcastsi128_si256(_mm_set_epi64x((long long)high1, (long long)high0));
    const __m256i mask = _mm256_set1_epi16((short)bits->mask);
    for (int i = 0; i < 32; i += 16) {
        const __m256i pick = _mm256_loadu_si256((const __m256i *)(bits->from + 2 * i));
        const __m256i times = _mm256_loadu_si256((const __m256i *)(bits->times + i));
        const __m256i v = _mm256_mullo_epi16(_mm256_shuffle_epi8(from, pick), times);
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(low + i));
        _mm256_storeu_si256((__m256i *)(at + i), _mm256_or_si256(_mm256_cvtepu8_epi16(bytes),
                                                                 _mm256_and_si256(v, mask)));
    }
}

INLINE b64 b64_of_entries8(const uint64_t *table, struct places at)
{
    return (b64){entries8x4(table, at, 0), entries8x4(table, at, 4)};
}

INLINE b64 b64_of_entries4(const uint32_t *table, struct places at)
{
    return (b64){entries4x8(table, at, 0), entries4x8(table, at, 8)};
}

INLINE __m256i nibbles16(const void *p)
{
    __m128i q = _mm_loadu_si128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), _mm256_set1_epi8(15));
}

INLINE b64 b64_nibbles16(const void *a, const void *b)
{
    return (b64){nibbles16(a), nibbles16(b)};
}

INLINE b64 b64_nibbles32(const void *p)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i q = _mm256_loadu_si256(p);
    return (b64){_mm256_and_si256(q, mask), _mm256_and_si256(_mm256_srli_epi16(q, 4), mask)};
}

INLINE b64 b64_nibble(const void *p, bool high)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i a = _mm256_loadu_si256(p), b = _mm256_loadu_si256((const __m256i *)p + 1);
    if (high) {
        a = _mm256_srli_epi16(a, 4);
        b = _mm256_srli_epi16(b, 4);
    }
    return (b64){_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)};
}

INLINE b64 b64_fields(const void *p, int shift0, int shift1, int mask)
{
    const __m256i m = _mm256_set1_epi8((char)mask);
    __m256i v = _mm256_loadu_si256(p);
    return (b64){_mm256_and_si256(_mm256_srli_epi16(v, shift0), m),
                 _mm256_and_si256(_mm256_srli_epi16(v, shift1), m)};
}

INLINE __m256i bits32(uint32_t bits, int value)
{
    const __m256i pick = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), pick);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)value));
}

INLINE b64 b64_bits(uint32_t a, uint32_t b, int value)
{
    return (b64){bits32(a, value), bits32(b, value)};
}

INLINE __m256i negative32(__m256i v, uint32_t where)
{
    const __m256i all = bits32(where, 0xff);
    return _mm256_sub_epi8(_mm256_xor_si256(v, all), all);
}

INLINE b64 b64_negative(b64 v, uint64_t where)
{
    return (b64){negative32(v.a, (uint32_t)where), negative32(v.b, (uint32_t)(where >> 32))};
}

INLINE b64 b64_lookup(b64 index, const int8_t table[16])
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (b64){_mm256_shuffle_epi8(t, index.a), _mm256_shuffle_epi8(t, index.b)};
}

INLINE b64 b64_or(b64 x, b64 y)
{
    return (b64){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}

INLINE b64 b64_shl(b64 x, int n)
{
    return (b64){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}

INLINE b64 b64_sub(b64 x, b64 y)
{
    return (b64){_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)};
}

INLINE b64 b64_sub1(b64 x, int value)
{
    const __m256i v = _mm256_set1_epi8((char)value);
    return (b64){_mm256_sub_epi8(x.a, v), _mm256_sub_epi8(x.b, v)};
}

INLINE w64 w64_widen(b64 v)
{
    return (w64){_mm256_srai_epi16(_mm256_slli_epi16(v.a, 8), 8),
                 _mm256_srai_epi16(_mm256_slli_epi16(v.b, 8), 8), _mm256_srai_epi16(v.a, 8),
                 _mm256_srai_epi16(v.b, 8)};
}

INLINE w64 w64_widen_positive(b64 v)
{
    const __m256i low = _mm256_set1_epi16(255);
    return (w64){_mm256_and_si256(v.a, low), _mm256_and_si256(v.b, low), _mm256_srli_epi16(v.a, 8),
                 _mm256_srli_epi16(v.b, 8)};
}

INLINE w64 w64_nibbles16_x16(const void *a, const void *b, int less)
{
    const __m256i mask = _mm256_set_m128i(_mm_set1_epi16(240), _mm_set1_epi16(15));
    const __m256i off =
        _mm256_set_m128i(_mm_set1_epi16((short)(16 * less)), _mm_set1_epi16((short)less));
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128(a));
    const __m256i y = _mm256_broadcastsi128_si256(_mm_loadu_si128(b));
    return (w64){_mm256_sub_epi16(_mm256_and_si256(x, mask), off),
                 _mm256_sub_epi16(_mm256_and_si256(y, mask), off),
                 _mm256_sub_epi16(_mm256_and_si256(_mm256_srli_epi16(x, 8), mask), off),
                 _mm256_sub_epi16(_mm256_and_si256(_mm256_srli_epi16(y, 8), mask), off)};
}

INLINE w64 w64_fields_in_place(const void *p, int shift0, int shift1, int mask)
{
    const __m256i m0 = _mm256_set1_epi16((short)(mask << shift0));
    const __m256i m1 = _mm256_set1_epi16((short)(mask << shift1));
    const __m256i v = _mm256_loadu_si256(p), high = _mm256_srli_epi16(v, 8);
    return (w64){_mm256_and_si256(v, m0), _mm256_and_si256(v, m1), _mm256_and_si256(high, m0),
                 _mm256_and_si256(high, m1)};
}

INLINE __m256i digits_less1(__m256i fraction, __m256i power)
{
    const __m256i low = _mm256_set1_epi16(255), one = _mm256_set1_epi16(1);
    const __m256i f = _mm256_and_si256(_mm256_mullo_epi16(fraction, power), low);
    const __m256i three = _mm256_add_epi16(f, _mm256_slli_epi16(f, 1));
    return _mm256_sub_epi16(_mm256_srli_epi16(three, 8), one);
}

INLINE w64 w64_digits_less1(b64 fraction, const uint8_t power[64])
{
    const w64 f = w64_widen_positive(fraction);
    const w64 p = w64_widen_positive(b64_load2(power, power + 32));
    return (w64){digits_less1(f.ea, p.ea), digits_less1(f.eb, p.eb), digits_less1(f.oa, p.oa),
                 digits_less1(f.ob, p.ob)};
}

// Sums of the products of 64, by fours: 0 and 1, then 2 and 3 of its groups of 16.
INLINE b64 fours(const w64 *w, const int16_t *x)
{
    const __m256i *v = (const __m256i *)x;
    return (b64){_mm256_add_epi32(_mm256_madd_epi16(w->ea, _mm256_loadu_si256(v)),
                                  _mm256_madd_epi16(w->oa, _mm256_loadu_si256(v + 2))),
                 _mm256_add_epi32(_mm256_madd_epi16(w->eb, _mm256_loadu_si256(v + 1)),
                                  _mm256_madd_epi16(w->ob, _mm256_loadu_si256(v + 3)))};
}

// The sums of eight groups.
INLINE __m256 groups8(const w64 *w, const int16_t *x)
{
    const b64 p = fours(w, x), q = fours(w + 1, x + 64);
    const __m256i sum = _mm256_hadd_epi32(_mm256_hadd_epi32(p.a, p.b), _mm256_hadd_epi32(q.a, q.b));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_cvtepi32_ps(_mm256_permutevar8x32_epi32(sum, order));
}

INLINE v16 w64_dot_groups(const w64 w[4], const int16_t *x)
{
    return (v16){groups8(w, x), groups8(w + 2, x + 128)};
}

INLINE v16 w64_dot_groups8(const w64 w[2], const int16_t *x)
{
    return (v16){groups8(w, x), _mm256_setzero_ps()};
}

INLINE void w64_store(int16_t *p, const w64 *w)
{
    __m256i *v = (__m256i *)p;
    _mm256_storeu_si256(v, w->ea);
    _mm256_storeu_si256(v + 1, w->eb);
    _mm256_storeu_si256(v + 2, w->oa);
    _mm256_storeu_si256(v + 3, w->ob);
}

#endif
