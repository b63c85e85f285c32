// What simd_avx2.h and simd_avx512.h share, and their single tokens: entries of tables at places
// (simd.h), four of eight bytes, four and eight of four bytes; bits to bytes.
#ifndef HOKKU_CPU_SIMD_X86_H
#define HOKKU_CPU_SIMD_X86_H

#include <immintrin.h>

INLINE __m256i entries8x4(const uint64_t *table, struct places at, int i)
{
    const double *t = (const double *)(const void *)table;
    const __m128d a = _mm_loadh_pd(_mm_load_sd(&t[place(at, i)]), &t[place(at, i + 1)]);
    const __m128d b = _mm_loadh_pd(_mm_load_sd(&t[place(at, i + 2)]), &t[place(at, i + 3)]);
    return _mm256_castpd_si256(_mm256_set_m128d(b, a));
}

INLINE __m128i entries4x4(const uint32_t *table, struct places at, int i)
{
    return _mm_set_epi32((int)table[place(at, i + 3)], (int)table[place(at, i + 2)],
                         (int)table[place(at, i + 1)], (int)table[place(at, i)]);
}

INLINE __m256i entries4x8(const uint32_t *table, struct places at, int i)
{
    return _mm256_set_m128i(entries4x4(table, at, i + 4), entries4x4(table, at, i));
}

INLINE void store_uppermost(uint64_t bytes[4], const uint8_t words[16])
{
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)words);
    _mm256_storeu_si256((__m256i *)(void *)bytes, _mm256_cvtepi16_epi32(_mm_srai_epi16(v, 15)));
}

INLINE void store_fourths(uint64_t bytes[4], const uint8_t nibbles[16])
{
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)nibbles);
    const __m256i pairs = _mm256_cvtepu8_epi16(v), fourth = _mm256_set1_epi8(8);
    const __m256i each = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4));
    _mm256_storeu_si256((__m256i *)(void *)bytes,
                        _mm256_cmpeq_epi8(_mm256_and_si256(each, fourth), fourth));
}

// The first 16 bytes of a block of Q4_K or Q5_K, which are d, dmin and what k_scales takes apart:
// its eight scales and minima, in bytes.
INLINE __m128i k_scale_bytes(__m128i x)
{
    const int six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
    const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(x, 0xed), _mm_setr_epi32(0, 0, 0, 4));
    const __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(x, 0x94), 2);
    return _mm_or_si128(_mm_and_si128(low, _mm_setr_epi32(six, four, six, four)),
                        _mm_and_si128(high, _mm_setr_epi32(0, two, 0, two)));
}

#endif
