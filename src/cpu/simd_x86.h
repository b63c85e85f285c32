// What simd_avx2.h and simd_avx512.h share: entries of tables at places (simd.h), four of eight
// bytes, four and eight of four bytes.
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

#endif
