// IQ2_XXS and IQ2_XS made ready by AVX-512 as grid_codes.h says: signs that lack an eighth, made in
// registers, since what is read back has to wait for what was written byte by byte.
#ifndef HOKKU_CPU_SIMD_GRID_SIGNS_H
#define HOKKU_CPU_SIMD_GRID_SIGNS_H

#include "cpu/grid_codes.h"

// The eighth of seven signs in each byte, which makes the number of those that are set even.
INLINE __m512i with_eighth(__m512i seven)
{
    __m512i parity = _mm512_xor_si512(seven, _mm512_srli_epi16(seven, 4));
    parity = _mm512_xor_si512(parity, _mm512_srli_epi16(parity, 2));
    parity = _mm512_xor_si512(parity, _mm512_srli_epi16(parity, 1));
    const __m512i eighth = _mm512_and_si512(_mm512_slli_epi16(parity, 7), _mm512_set1_epi8(-128));
    return _mm512_or_si512(seven, eighth);
}

// Of each 32 bits the low 28, four times seven, to the low seven of its bytes.
INLINE __m512i spread_sevens(__m512i v)
{
    const __m512i low14 = _mm512_set1_epi32(0x00003fff), high14 = _mm512_set1_epi32(0x0fffc000);
    v = _mm512_or_si512(_mm512_and_si512(v, low14),
                        _mm512_slli_epi32(_mm512_and_si512(v, high14), 2));
    const __m512i low7 = _mm512_set1_epi16(0x007f), high7 = _mm512_set1_epi16(0x3f80);
    return _mm512_or_si512(_mm512_and_si512(v, low7),
                           _mm512_slli_epi16(_mm512_and_si512(v, high7), 1));
}

// Eight scales, of which each has two lanes.
INLINE v16 scales_of_words(__m256i word)
{
    const __m512i twice = _mm512_cvtepu32_epi64(_mm256_srli_epi32(word, 28));
    return (v16)_mm512_cvtepi32_ps(_mm512_or_si512(twice, _mm512_slli_epi64(twice, 32)));
}

INLINE void store_signs(uint64_t signs[4], __m256i s)
{
    _mm256_storeu_si256((__m256i *)(void *)signs, s);
}

INLINE void prepare_iq2_xxs(const void *p, struct ready *r)
{
    const struct block_iq2_xxs *b = p;
    const __m512i v = _mm512_loadu_si512(b->q);
    const __m256i places = _mm512_cvtepi64_epi32(v);
    const __m256i word = _mm512_cvtepi64_epi32(_mm512_srli_epi64(v, 32));
    _mm512_storeu_si512(r->places, _mm512_cvtepu8_epi16(places));
    const __m512i seven = spread_sevens(_mm512_castsi256_si512(word));
    store_signs(r->signs, _mm512_castsi512_si256(with_eighth(seven)));
    r->scale = scale_half(b->d, scales_of_words(word), 0.25f);
}

INLINE void prepare_iq2_xs(const void *p, struct ready *r)
{
    const struct block_iq2_xs *b = p;
    const __m512i v = _mm512_loadu_si512(b->q);
    _mm512_storeu_si512(r->places, _mm512_and_si512(v, _mm512_set1_epi16(511)));
    store_signs(r->signs, _mm512_cvtepi16_epi8(with_eighth(_mm512_srli_epi16(v, 9))));
    r->scale = scale_half(b->d, v16_nibbles(b->scales), 0.25f);
}

INLINE b64 codes_iq2_xxs(const struct ready *r, int i)
{
    return codes_iq2(cpu_grids.iq2_xxs, r, i);
}

INLINE b64 codes_iq2_xs(const struct ready *r, int i)
{
    return codes_iq2(cpu_grids.iq2_xs, r, i);
}

#endif
