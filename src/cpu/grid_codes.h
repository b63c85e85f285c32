// Weights that are places in a grid: what a block has is made ready first, then 64 of its 256
// weights are looked up at a time. The same integers and scales as quant_decoder's, to the bit.
#ifndef HOKKU_CPU_GRID_CODES_H
#define HOKKU_CPU_GRID_CODES_H

#include "cpu/grids.h"
#include "cpu/scales.h"

struct ready {
    uint16_t places[64]; // or the first 32
    uint64_t signs[4];   // a bit for each weight that is negative, of IQ1 that is less
    v16 scale;           // one lane per 16 weights
};

INLINE struct places bytes_at(const uint8_t *low)
{
    return (struct places){low, 1, 0};
}

INLINE struct places words_at(const void *at, uint16_t mask)
{
    return (struct places){at, 2, mask};
}

// d (1/2 + s) unit
INLINE v16 scale_half(const uint8_t d[2], v16 s, float unit)
{
    return v16_mul(v16_mul(v16_set1(load_f16(d)), v16_add(v16_set1(0.5f), s)), v16_set1(unit));
}

// d (2 s + 1) unit
INLINE v16 scale_odd(const void *d, v16 s, float unit)
{
    const v16 odd = v16_fma(s, v16_set1(2.0f), v16_set1(1.0f));
    return v16_mul(v16_mul(v16_set1(load_f16(d)), odd), v16_set1(unit));
}

INLINE v16 v16_nibbles(const uint8_t q[8])
{
    return v16_u8(spread_bits(load_u32(q), 4), spread_bits(load_u32(q + 4), 4));
}

// Two bits each, four in a byte.
#define BYTE(i) i, 0x80, i, 0x80, i, 0x80, i, 0x80
#define TIMES   256, 64, 16, 4
static const struct high_bits high_2 = {
    {BYTE(0), BYTE(1), BYTE(2), BYTE(3), BYTE(4), BYTE(5), BYTE(6), BYTE(7)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x300};
#undef TIMES

INLINE void prepare_iq2_s(const void *p, struct ready *r)
{
    const struct block_iq2_s *b = p;
    store_places(r->places, b->q, load_u64(b->high), 0, &high_2);
    memcpy(r->signs, b->signs, sizeof b->signs);
    r->scale = scale_half(b->d, v16_nibbles(b->scales), 0.25f);
}

// 64 weights of IQ2.
INLINE b64 codes_iq2(const uint64_t *grid, const struct ready *r, int i)
{
    const struct places at = words_at(r->places + 8 * i, 0xffff);
    return b64_negative(b64_of_entries8(grid, at), r->signs[i]);
}

INLINE b64 codes_iq2_s(const struct ready *r, int i)
{
    return codes_iq2(cpu_grids.iq2_s, r, i);
}

// One bit each.
#define TIMES 256, 128, 64, 32, 16, 8, 4, 2
static const struct high_bits high_1 = {
    {BYTE(0), BYTE(0), BYTE(1), BYTE(1), BYTE(2), BYTE(2), BYTE(3), BYTE(3)},
    {TIMES, TIMES, TIMES, TIMES},
    0x100};
#undef TIMES
#undef BYTE

INLINE void prepare_iq3_s(const void *p, struct ready *r)
{
    const struct block_iq3_s *b = p;
    store_places(r->places, b->q, load_u32(b->high), 0, &high_1);
    store_places(r->places + 32, b->q + 32, load_u32(b->high + 4), 0, &high_1);
    memcpy(r->signs, b->signs, sizeof b->signs);
    r->scale = scale_odd(b->d, v16_u8x8_dup(spread_bits(load_u32(b->scales), 4)), 1.0f);
}

INLINE b64 codes_iq3_s(const struct ready *r, int i)
{
    const struct places at = words_at(r->places + 16 * i, 0xffff);
    return b64_negative(b64_of_entries4(cpu_grids.iq3_s, at), r->signs[i]);
}

// Eight times the weights: -8, 0, 8, and 1 more, or less where a bit is set.
INLINE b64 codes_iq1(const struct ready *r, int i)
{
    const uint64_t less = r->signs[i];
    const b64 two = b64_bits((uint32_t)less, (uint32_t)(less >> 32), 2);
    return b64_sub(b64_of_entries8(cpu_grids.iq1, words_at(r->places + 8 * i, 0xffff)), two);
}

// Three bits each, four in a word.
#define WORD(i) i, 0x80, i, 0x80, i, i + 1, i + 1, 0x80
#define TIMES   256, 32, 4, 128
static const struct high_bits high_3 = {
    {WORD(0), WORD(2), WORD(4), WORD(6), WORD(8), WORD(10), WORD(12), WORD(14)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x700};
#undef WORD
#undef TIMES

// Three bits each, two in a byte.
#define BYTES(i) i, 0x80, i, 0x80, i + 1, 0x80, i + 1, 0x80
#define TIMES    256, 16, 256, 16
static const struct high_bits high_4 = {
    {BYTES(0), BYTES(2), BYTES(4), BYTES(6), BYTES(8), BYTES(10), BYTES(12), BYTES(14)},
    {TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES},
    0x700};
#undef BYTES
#undef TIMES

// The lowest three bits of four words of 16 bits, and of four more, to bytes.
INLINE uint64_t bytes_of_words(uint64_t a, uint64_t b)
{
    const uint64_t three = 0x0007000700070007u, two = 0x0000ffff0000ffffu;
    a = ((a & three) | (a & three) >> 8) & two;
    b = ((b & three) | (b & three) >> 8) & two;
    return ((a | a >> 16) & UINT32_MAX) | (b | b >> 16) << 32;
}

INLINE void prepare_iq1_s(const void *p, struct ready *r)
{
    const struct block_iq1_s *b = p;
    const uint64_t low = load_u64(b->high), high = load_u64(b->high + 8);
    store_places(r->places, b->q, low, high, &high_3);
    store_uppermost(r->signs, b->high);
    r->scale = scale_odd(b->d, v16_u8x8_dup(bytes_of_words(low >> 12, high >> 12)), 0.125f);
}

// Twice four fields of three bits, in words of 16, to bytes.
INLINE uint64_t spread_threes(uint64_t v)
{
    v = (v & 0x0fffu) | (v & 0x0fff0000u) << 16;
    v = (v & 0x0000003f0000003fu) | (v & 0x00000fc000000fc0u) << 10;
    return (v & 0x0007000700070007u) | (v & 0x0038003800380038u) << 5;
}

INLINE void prepare_iq1_m(const void *p, struct ready *r)
{
    const struct block_iq1_m *b = p;
    const uint16_t d = (uint16_t)iq1_m_d(b);
    const uint64_t low = spread_threes(load_u32(b->scales));
    const uint64_t high = spread_threes(load_u32(b->scales + 4));
    store_places(r->places, b->q, load_u64(b->high), load_u64(b->high + 8), &high_4);
    store_fourths(r->signs, b->high);
    r->scale = scale_odd(&d, v16_u8(low, high), 0.125f);
}

#endif
