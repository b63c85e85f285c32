// Weight blocks to small signed integers and scales, one function per type: the layouts of
// gguf/quant.c in vector form. A unit is four blocks of 32 weights, or one of 256.
#ifndef HOKKU_CPU_UNPACK_H
#define HOKKU_CPU_UNPACK_H

#include "cpu/simd.h"

// weight = scale * q + min, where scale and min have one lane per 16 weights
struct unit {
    w64 q[4];  // 64 weights each; units of 128 use two
    v16 scale; // units of 128 use lanes 0 to 7
    v16 min;   // only of types with a minimum
};

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

INLINE uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

// Q8_0, 34 bytes per 32: half d, int8 q[32]
INLINE void unpack_q8_0(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 68)
        u->q[i] = w64_widen(b64_load2(p + 2, p + 36));
    u->scale = v16_load_f16x4_dup(p - 136, 34);
}

// Q4_0, 18 bytes per 32: half d, nibbles; weight = d * (q - 8)
INLINE void unpack_q4_0(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 36)
        u->q[i] = w64_widen(b64_sub1(b64_nibbles16(p + 2, p + 20), 8));
    u->scale = v16_load_f16x4_dup(p - 72, 18);
}

// Q4_1, 20 bytes per 32: half d, half m, nibbles; weight = d * q + m
INLINE void unpack_q4_1(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 40)
        u->q[i] = w64_widen_positive(b64_nibbles16(p + 4, p + 24));
    u->scale = v16_load_f16x4_dup(p - 80, 20);
    u->min = v16_load_f16x4_dup(p - 78, 20);
}

// Q5_0, 22 bytes per 32: half d, fifth bits, nibbles; weight = d * (q - 16)
INLINE void unpack_q5_0(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 44) {
        // q - 16 = nibble - 16 where the fifth bit is clear
        b64 low = b64_bits(~load_u32(p + 2), ~load_u32(p + 24), 0xf0);
        u->q[i] = w64_widen(b64_or(b64_nibbles16(p + 6, p + 28), low));
    }
    u->scale = v16_load_f16x4_dup(p - 88, 22);
}

// Q5_1, 24 bytes per 32: half d, half m, fifth bits, nibbles; weight = d * q + m
INLINE void unpack_q5_1(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 48) {
        b64 high = b64_bits(load_u32(p + 4), load_u32(p + 28), 16);
        u->q[i] = w64_widen_positive(b64_or(b64_nibbles16(p + 8, p + 32), high));
    }
    u->scale = v16_load_f16x4_dup(p - 96, 24);
    u->min = v16_load_f16x4_dup(p - 94, 24);
}

// IQ4_NL, 18 bytes per 32: half d, nibbles that index a table
INLINE void unpack_iq4_nl(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 2; i++, p += 36)
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(p + 2, p + 20), iq4_values));
    u->scale = v16_load_f16x4_dup(p - 72, 18);
}

// Eight fields of 2 or 4 bits, each to a byte of its own.
INLINE uint64_t spread_bits(uint64_t v, int bits)
{
    v = (v | v << (32 - 4 * bits)) & (bits == 4 ? 0x0000ffff0000ffffu : 0x000000ff000000ffu);
    v = (v | v << (16 - 2 * bits)) & (bits == 4 ? 0x00ff00ff00ff00ffu : 0x000f000f000f000fu);
    return (v | v << (8 - bits)) & (bits == 4 ? 0x0f0f0f0f0f0f0f0fu : 0x0303030303030303u);
}

// IQ4_XS, 136 bytes per 256: half d, 8 scales of 6 bits (2 high bits together, then 4 low ones),
// nibbles that index a table in 8 blocks of 16 bytes; weight = d * (scale - 32) * table[q]
INLINE void unpack_iq4_xs(const uint8_t *p, struct unit *u)
{
    uint32_t high = p[2] | (uint32_t)p[3] << 8, low = load_u32(p + 4);
    uint64_t s = spread_bits(low, 4) | spread_bits(high, 2) << 4;
    v16 d = v16_set1(load_f16(p));
    u->scale = v16_mul(d, v16_sub(v16_u8x8_dup(s), v16_set1(32.0f)));
    for (int i = 0; i < 4; i++) {
        const uint8_t *q = p + 8 + 32 * i;
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(q, q + 16), iq4_values));
    }
}

// The scales and minima of Q4_K and Q5_K: 8 of each, 6 bits, in 12 bytes at p + 4; their own
// scales are the halves at p and p + 2. Bytes 0-3: the first four scales, bytes 4-7: the first four
// minima; the two high bits of these belong to the last four, whose low bits are in bytes 8-11.
INLINE void unpack_k_scales(const uint8_t *p, struct unit *u)
{
    uint32_t a = load_u32(p + 4), b = load_u32(p + 8), c = load_u32(p + 12);
    uint64_t s = (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)) << 32 | (a & 0x3f3f3f3f);
    uint64_t m = (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) << 32 | (b & 0x3f3f3f3f);
    u->scale = v16_mul(v16_set1(load_f16(p)), v16_u8x8_dup(s));
    u->min = v16_mul(v16_set1(-load_f16(p + 2)), v16_u8x8_dup(m));
}

// Q4_K, 144 bytes per 256: weight = d * scale * q - dmin * min
INLINE void unpack_q4_k(const uint8_t *p, struct unit *u)
{
    unpack_k_scales(p, u);
    for (int i = 0; i < 4; i++)
        u->q[i] = w64_widen_positive(b64_nibbles32(p + 16 + 32 * i));
}

// Q5_K, 176 bytes per 256: as Q4_K, fifth bits in 32 bytes (bit i of each: block i)
INLINE void unpack_q5_k(const uint8_t *p, struct unit *u)
{
    unpack_k_scales(p, u);
    for (int i = 0; i < 4; i++) {
        b64 high = b64_shl(b64_fields(p + 16, 2 * i, 2 * i + 1, 1), 4);
        u->q[i] = w64_widen_positive(b64_or(b64_nibbles32(p + 48 + 32 * i), high));
    }
}

// Q6_K, 210 bytes per 256: low nibbles (128), high 2 bits (64), 16 int8 scales, half d;
// weight = d * scale * (q - 32)
INLINE void unpack_q6_k(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 4; i++) {
        b64 low = b64_nibble(p + 64 * (i / 2), i % 2);
        b64 high = b64_fields(p + 128 + 32 * (i / 2), i % 2 * 4, i % 2 * 4 + 2, 3);
        u->q[i] = w64_widen(b64_sub1(b64_or(low, b64_shl(high, 4)), 32));
    }
    u->scale = v16_mul(v16_set1(load_f16(p + 208)), v16_load_i8(p + 192));
}

// Q2_K, 84 bytes per 256: 16 bytes (scale, min nibbles), 2-bit quants (64), half d, half dmin
INLINE void unpack_q2_k(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 4; i++) {
        const uint8_t *q = p + 16 + 32 * (i / 2);
        u->q[i] = w64_widen_positive(b64_fields(q, i % 2 * 4, i % 2 * 4 + 2, 3));
    }
    uint64_t a = load_u64(p), b = load_u64(p + 8), mask = 0x0f0f0f0f0f0f0f0f;
    u->scale = v16_mul(v16_set1(load_f16(p + 80)), v16_u8(a & mask, b & mask));
    u->min = v16_mul(v16_set1(-load_f16(p + 82)), v16_u8(a >> 4 & mask, b >> 4 & mask));
}

// Q3_K, 110 bytes per 256: third bits (32 bytes, bit i of each: block i), low 2 bits (64), 16
// scales of 6 bits (8 bytes of low nibbles, 4 of high bits), half d;
// weight = d * (scale - 32) * (q - 4)
INLINE void unpack_q3_k(const uint8_t *p, struct unit *u)
{
    for (int i = 0; i < 4; i++) {
        b64 low = b64_fields(p + 32 + 32 * (i / 2), i % 2 * 4, i % 2 * 4 + 2, 3);
        b64 high = b64_shl(b64_fields(p, 2 * i, 2 * i + 1, 1), 2);
        u->q[i] = w64_widen(b64_sub1(b64_or(low, high), 4));
    }
    uint64_t a = load_u64(p + 96), c = load_u32(p + 104);
    const uint64_t low = 0x0f0f0f0f0f0f0f0f, two = 0x0303030303030303;
    uint64_t s0 = (a & low) | ((c | c >> 2 << 32) & two) << 4;
    uint64_t s1 = (a >> 4 & low) | ((c >> 4 | c >> 6 << 32) & two) << 4;
    v16 scale = v16_sub(v16_u8(s0, s1), v16_set1(32.0f));
    u->scale = v16_mul(v16_set1(load_f16(p + 108)), scale);
}

#endif
