// Weight blocks to small signed integers and scales, one function per type: gguf/blocks.h in vector
// form. A unit is four blocks of 32 weights, or one of 256.
#ifndef HOKKU_CPU_UNPACK_H
#define HOKKU_CPU_UNPACK_H

#include "cpu/scales.h"

// weight = scale * q + min, where scale and min have one lane per 16 weights
struct unit {
    w64 q[4];  // 64 weights each; units of 128 use two
    v16 scale; // units of 128 use lanes 0 to 7
    v16 min;   // only of types with a minimum
};

// What scales are times where the nibbles of elements 16 to 31 of 32, of 32 to 63 of 64, are 16
// times what they stand for; fields of two bits, in steps of 4.
#define FOUR_TIMES(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
static const float by_16[16] = {FOUR_TIMES(1, 1 / 16.0f, 1, 1 / 16.0f)};
static const float by_32[16] = {FOUR_TIMES(1, 1, 1 / 16.0f, 1 / 16.0f)};
static const float by_fields[16] = {1,         1,         1 / 4.0f,  1 / 4.0f, 1 / 16.0f, 1 / 16.0f,
                                    1 / 64.0f, 1 / 64.0f, 1,         1,        1 / 4.0f,  1 / 4.0f,
                                    1 / 16.0f, 1 / 16.0f, 1 / 64.0f, 1 / 64.0f};
#undef FOUR_TIMES

INLINE void unpack_q8_0(const void *p, struct unit *u)
{
    const struct block_q8_0 *b = p;
    for (int i = 0; i < 2; i++)
        u->q[i] = w64_widen(b64_load2(b[2 * i].q, b[2 * i + 1].q));
    u->scale = v16_load_f16x4_dup(b->d, sizeof *b);
}

INLINE void unpack_q4_0(const void *p, struct unit *u)
{
    const struct block_q4_0 *b = p;
    for (int i = 0; i < 2; i++)
        u->q[i] = w64_nibbles16_x16(b[2 * i].q, b[2 * i + 1].q, 8);
    u->scale = v16_mul(v16_load_f16x4_dup(b->d, sizeof *b), v16_load(by_16));
}

INLINE void unpack_q4_1(const void *p, struct unit *u)
{
    const struct block_q4_1 *b = p;
    for (int i = 0; i < 2; i++)
        u->q[i] = w64_nibbles16_x16(b[2 * i].q, b[2 * i + 1].q, 0);
    u->scale = v16_mul(v16_load_f16x4_dup(b->d, sizeof *b), v16_load(by_16));
    u->min = v16_load_f16x4_dup(b->m, sizeof *b);
}

INLINE void unpack_q5_0(const void *p, struct unit *u)
{
    const struct block_q5_0 *b = p;
    for (int i = 0; i < 2; i++) {
        const struct block_q5_0 *b0 = b + 2 * i, *b1 = b0 + 1;
        // q - 16 = nibble - 16 where the fifth bit is clear
        b64 low = b64_bits(~load_u32(b0->high), ~load_u32(b1->high), 0xf0);
        u->q[i] = w64_widen(b64_or(b64_nibbles16(b0->q, b1->q), low));
    }
    u->scale = v16_load_f16x4_dup(b->d, sizeof *b);
}

INLINE void unpack_q5_1(const void *p, struct unit *u)
{
    const struct block_q5_1 *b = p;
    for (int i = 0; i < 2; i++) {
        const struct block_q5_1 *b0 = b + 2 * i, *b1 = b0 + 1;
        b64 high = b64_bits(load_u32(b0->high), load_u32(b1->high), 16);
        u->q[i] = w64_widen_positive(b64_or(b64_nibbles16(b0->q, b1->q), high));
    }
    u->scale = v16_load_f16x4_dup(b->d, sizeof *b);
    u->min = v16_load_f16x4_dup(b->m, sizeof *b);
}

INLINE void unpack_iq4_nl(const void *p, struct unit *u)
{
    const struct block_iq4_nl *b = p;
    for (int i = 0; i < 2; i++)
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(b[2 * i].q, b[2 * i + 1].q), iq4_values));
    u->scale = v16_load_f16x4_dup(b->d, sizeof *b);
}

INLINE void unpack_mxfp4(const void *p, struct unit *u)
{
    const struct block_mxfp4 *b = p;
    uint32_t bits[8];
    for (int i = 0; i < 2; i++)
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(b[2 * i].q, b[2 * i + 1].q), e2m1_values));
    for (int i = 0; i < 4; i++)
        bits[2 * i] = bits[2 * i + 1] = mxfp4_scale_bits(b[i].e);
    u->scale = v16_load8(bits);
}

INLINE void unpack_nvfp4(const void *p, struct unit *u)
{
    const struct block_nvfp4 *b = p;
    uint16_t scale[16] = {0}; // as half floats, with the same bits of mantissa and 8 more as bias
    for (int i = 0; i < 2; i++) {
        uint64_t q[4]; // as b64_nibbles16 wants them: 0 to 15 in low nibbles, 16 to 31 in high ones
        for (int j = 0; j < 4; j += 2) {
            const uint64_t first = load_u64(b[i].q + 8 * j), second = load_u64(b[i].q + 8 * j + 8);
            const uint64_t low = 0x0f0f0f0f0f0f0f0f;
            q[j] = (first & low) | (second & low) << 4;
            q[j + 1] = (first >> 4 & low) | (second & ~low);
        }
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(q, q + 2), e2m1_values));
        for (int j = 0; j < 4; j++)
            scale[4 * i + j] = b[i].scales[j] == 0x7f ? 0 : (b[i].scales[j] & 0x7f) << 7;
    }
    u->scale = v16_mul(v16_load_f16(scale), v16_set1(128.0f));
}

INLINE void unpack_iq4_xs(const void *p, struct unit *u)
{
    const struct block_iq4_xs *b = p;
    v16 d = v16_set1(load_f16(b->d));
    u->scale = v16_mul(d, v16_sub(v16_u8x8_dup(iq4_xs_scales(b)), v16_set1(32.0f)));
    for (int i = 0; i < 4; i++) {
        const uint8_t *q = b->q + 32 * i;
        u->q[i] = w64_widen(b64_lookup(b64_nibbles16(q, q + 16), iq4_values));
    }
}

// The eight scales and minima of Q4_K and Q5_K.
INLINE void unpack_k_scales(const uint8_t d[2], const uint8_t dmin[2], const uint8_t scales[12],
                            struct unit *u)
{
    const struct sixteen_bytes s = k_scales(scales);
    u->scale = v16_mul(v16_set1(load_f16(d)), v16_u8x8_dup(s.first));
    u->min = v16_mul(v16_set1(-load_f16(dmin)), v16_u8x8_dup(s.second));
}

INLINE void unpack_q4_k(const void *p, struct unit *u)
{
    const struct block_q4_k *b = p;
    unpack_k_scales(b->d, b->dmin, b->scales, u);
    u->scale = v16_mul(u->scale, v16_load(by_32));
    for (int i = 0; i < 4; i++)
        u->q[i] = w64_fields_in_place(b->q + 32 * i, 0, 4, 15);
}

INLINE void unpack_q5_k(const void *p, struct unit *u)
{
    const struct block_q5_k *b = p;
    unpack_k_scales(b->d, b->dmin, b->scales, u);
    for (int i = 0; i < 4; i++) {
        b64 high = b64_shl(b64_fields(b->high, 2 * i, 2 * i + 1, 1), 4);
        u->q[i] = w64_widen_positive(b64_or(b64_nibbles32(b->q + 32 * i), high));
    }
}

INLINE void unpack_q6_k(const void *p, struct unit *u)
{
    const struct block_q6_k *b = p;
    for (int i = 0; i < 4; i++) {
        b64 low = b64_nibble(b->low + 64 * (i / 2), i % 2);
        b64 high = b64_fields(b->high + 32 * (i / 2), i % 2 * 4, i % 2 * 4 + 2, 3);
        u->q[i] = w64_widen(b64_sub1(b64_or(low, b64_shl(high, 4)), 32));
    }
    u->scale = v16_mul(v16_set1(load_f16(b->d)), v16_load_i8(b->scales));
}

INLINE void unpack_q2_k(const void *p, struct unit *u)
{
    const struct block_q2_k *b = p;
    for (int i = 0; i < 4; i++) {
        const uint8_t *q = b->q + 32 * (i / 2);
        u->q[i] = w64_fields_in_place(q, i % 2 * 4, i % 2 * 4 + 2, 3);
    }
    uint64_t lo = load_u64(b->scales), hi = load_u64(b->scales + 8), mask = 0x0f0f0f0f0f0f0f0f;
    u->scale = v16_mul(v16_mul(v16_set1(load_f16(b->d)), v16_u8(lo & mask, hi & mask)),
                       v16_load(by_fields));
    u->min = v16_mul(v16_set1(-load_f16(b->dmin)), v16_u8(lo >> 4 & mask, hi >> 4 & mask));
}

INLINE void unpack_q3_k(const void *p, struct unit *u)
{
    const struct block_q3_k *b = p;
    for (int i = 0; i < 4; i++) {
        b64 low = b64_fields(b->q + 32 * (i / 2), i % 2 * 4, i % 2 * 4 + 2, 3);
        b64 high = b64_shl(b64_fields(b->high, 2 * i, 2 * i + 1, 1), 2);
        u->q[i] = w64_widen(b64_sub1(b64_or(low, high), 4));
    }
    const struct sixteen_bytes s = q3_k_scales(b->scales);
    v16 scale = v16_sub(v16_u8(s.first, s.second), v16_set1(32.0f));
    u->scale = v16_mul(v16_set1(load_f16(b->d)), scale);
}

#endif
