// IQ2_XXS, IQ2_XS and IQ1 made ready by AVX-512 as grid_codes.h says: signs that lack an eighth,
// made in registers, since what is read back has to wait for what was written byte by byte.
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
    const struct places at = words_at(r->places + 8 * i, 0xffff);
    return b64_negative(b64_of_entries8(cpu_grids.iq2_xxs, at), r->signs[i]);
}

INLINE b64 codes_iq2_xs(const struct ready *r, int i)
{
    const struct places at = words_at(r->places + 8 * i, 0xffff);
    return b64_negative(b64_of_entries8(cpu_grids.iq2_xs, at), r->signs[i]);
}

// As prepare_iq1_s: the uppermost bit of each 16 is that of 32 weights.
INLINE void prepare_iq1_s_512(const void *p, struct ready *r)
{
    const struct block_iq1_s *b = p;
    const uint64_t low = load_u64(b->high), high = load_u64(b->high + 8);
    store_places(r->places, b->q, low, high, &high_3);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)b->high);
    store_signs(r->signs, _mm256_cvtepi16_epi32(_mm_srai_epi16(v, 15)));
    r->scale = scale_odd(b->d, v16_u8x8_dup(bytes_of_words(low >> 12, high >> 12)), 0.125f);
}

// As prepare_iq1_m: the fourth bit of each nibble is that of eight weights.
INLINE void prepare_iq1_m_512(const void *p, struct ready *r)
{
    const struct block_iq1_m *b = p;
    const uint16_t d = (uint16_t)iq1_m_d(b);
    const uint64_t low = spread_threes(load_u32(b->scales));
    const uint64_t high = spread_threes(load_u32(b->scales + 4));
    store_places(r->places, b->q, load_u64(b->high), load_u64(b->high + 8), &high_4);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)b->high);
    const __m256i pairs = _mm256_cvtepu8_epi16(v), fourth = _mm256_set1_epi8(8);
    const __m256i nibbles = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4));
    store_signs(r->signs, _mm256_cmpeq_epi8(_mm256_and_si256(nibbles, fourth), fourth));
    r->scale = scale_odd(&d, v16_u8(low, high), 0.125f);
}

#endif
