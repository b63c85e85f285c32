// What the shapes of products share (unpack.h, decode_avx2.c, decode_avx512.c): the tables that
// nibbles choose from, and scales that are packed bit by bit, each in a byte of its own.
#ifndef HOKKU_CPU_SCALES_H
#define HOKKU_CPU_SCALES_H

#include "cpu/simd.h"
#include "gguf/blocks.h"

static const int8_t iq4_values[16] = {IQ4_LEVELS};
static const int8_t e2m1_values[16] = {E2M1_LEVELS};

struct sixteen_bytes {
    uint64_t first, second; // of eight each, lowest first
};

// The eight scales of Q4_K and Q5_K, then their minima.
INLINE struct sixteen_bytes k_scales(const uint8_t scales[12])
{
    const uint32_t a = load_u32(scales), b = load_u32(scales + 4), c = load_u32(scales + 8);
    const uint32_t s = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    const uint32_t m = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return (struct sixteen_bytes){(uint64_t)s << 32 | (a & 0x3f3f3f3f),
                                  (uint64_t)m << 32 | (b & 0x3f3f3f3f)};
}

// The sixteen scales of Q3_K, 32 too large.
INLINE struct sixteen_bytes q3_k_scales(const uint8_t scales[12])
{
    const uint64_t a = load_u64(scales), c = load_u32(scales + 8);
    const uint64_t low = 0x0f0f0f0f0f0f0f0f, two = 0x0303030303030303;
    return (struct sixteen_bytes){(a & low) | ((c | c >> 2 << 32) & two) << 4,
                                  (a >> 4 & low) | ((c >> 4 | c >> 6 << 32) & two) << 4};
}

// Eight fields of 2 or 4 bits, each to a byte of its own.
INLINE uint64_t spread_bits(uint64_t v, int bits)
{
    v = (v | v << (32 - 4 * bits)) & (bits == 4 ? 0x0000ffff0000ffffu : 0x000000ff000000ffu);
    v = (v | v << (16 - 2 * bits)) & (bits == 4 ? 0x00ff00ff00ff00ffu : 0x000f000f000f000fu);
    return (v | v << (8 - bits)) & (bits == 4 ? 0x0f0f0f0f0f0f0f0fu : 0x0303030303030303u);
}

// The eight scales of IQ4_XS, 32 too large.
INLINE uint64_t iq4_xs_scales(const struct block_iq4_xs *b)
{
    const uint32_t high = b->scales_high[0] | (uint32_t)b->scales_high[1] << 8;
    return spread_bits(load_u32(b->scales_low), 4) | spread_bits(high, 2) << 4;
}

// The exponents of eight blocks of MXFP4, four at p and four at q.
INLINE uint64_t mxfp4_exponents(const uint8_t *p, const uint8_t *q)
{
    const size_t size = sizeof(struct block_mxfp4);
    uint64_t v = 0;
    for (size_t i = 0; i < 4; i++)
        v |= (uint64_t)p[i * size] << 8 * i | (uint64_t)q[i * size] << (32 + 8 * i);
    return v;
}

#endif
