// The weight types whose weights are codes of a few values: blocks to small integers and scales.
// Eight weights at a time are worked on as the bytes of one integer, the first in the lowest.
#include "gguf/grids.h"
#include "gguf/quant.h"

#include <string.h>

// The same byte eight times.
static uint64_t eight(uint8_t byte)
{
    return byte * 0x0101010101010101u;
}

static void store8(int8_t *q, uint64_t bytes)
{
    for (int i = 0; i < 8; i++)
        q[i] = (int8_t)(bytes >> 8 * i);
}

static uint32_t load16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t load32(const uint8_t *p)
{
    return load16(p) | load16(p + 2) << 16;
}

static uint64_t load64(const uint8_t *p)
{
    return load32(p) | (uint64_t)load32(p + 4) << 32;
}

static float half_at(const uint8_t *p)
{
    return quant_f16_to_f32((uint16_t)load16(p));
}

// Eight fields of 1, 2 or 4 bits, lowest first, to a byte each.
static uint64_t spread1(uint64_t bits)
{
    bits = (bits | bits << 28) & 0x0000000f0000000fu;
    bits = (bits | bits << 14) & 0x0003000300030003u;
    return (bits | bits << 7) & 0x0101010101010101u;
}

static uint64_t spread2(uint64_t bits)
{
    bits = (bits | bits << 24) & 0x000000ff000000ffu;
    bits = (bits | bits << 12) & 0x000f000f000f000fu;
    return (bits | bits << 6) & 0x0303030303030303u;
}

static uint64_t spread4(uint64_t bits)
{
    bits = (bits | bits << 16) & 0x0000ffff0000ffffu;
    bits = (bits | bits << 8) & 0x00ff00ff00ff00ffu;
    return (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fu;
}

// The negative of those of eight positive bytes whose bit of signs is set.
static uint64_t with_signs(uint64_t bytes, uint32_t signs)
{
    uint64_t negative = spread1(signs);
    return (bytes ^ negative * 0xff) + negative;
}

// ---- nibbles and less

static const int8_t e2m1[16] = {E2M1_LEVELS};

static void decode_mxfp4(const void *block, int8_t *q, float *scale)
{
    const struct block_mxfp4 *b = block;
    const uint32_t bits = mxfp4_scale_bits(b->e);
    memcpy(&scale[0], &bits, sizeof bits);
    scale[1] = scale[0];
    for (int i = 0; i < 16; i++) {
        q[i] = e2m1[b->q[i] & 15];
        q[i + 16] = e2m1[b->q[i] >> 4];
    }
}

// A half float has the same three bits in front of its mantissa, and a bias that is 8 more.
static float nvfp4_scale(uint8_t bits)
{
    return bits == 0x7f ? 0 : quant_f16_to_f32((uint16_t)((bits & 0x7f) << 7)) * 128.0f;
}

static void decode_nvfp4(const void *block, int8_t *q, float *scale)
{
    const struct block_nvfp4 *b = block;
    for (int s = 0; s < 4; s++) {
        scale[s] = nvfp4_scale(b->scales[s]);
        for (int i = 0; i < 8; i++) {
            q[16 * s + i] = e2m1[b->q[8 * s + i] & 15];
            q[16 * s + 8 + i] = e2m1[b->q[8 * s + i] >> 4];
        }
    }
}

static void fill(float *scale, int n, float d)
{
    for (int i = 0; i < n; i++)
        scale[i] = d;
}

static void decode_q1_0(const void *block, int8_t *q, float *scale)
{
    const struct block_q1_0 *b = block;
    fill(scale, 8, half_at(b->d));
    for (int i = 0; i < 16; i++) // 2 q - 1: 1, or -1 where the bit is clear
        store8(q + 8 * i, with_signs(eight(1), ~b->q[i] & 0xffu));
}

// Two bits to -1 .. 2.
static uint64_t less_one(uint64_t bytes)
{
    return ((bytes | eight(0x80)) - eight(1)) ^ eight(0x80);
}

static void decode_q2_0(const void *block, int8_t *q, float *scale)
{
    const struct block_q2_0 *b = block;
    fill(scale, 4, half_at(b->d));
    for (int i = 0; i < 8; i++)
        store8(q + 8 * i, less_one(spread2(load16(b->q + 2 * i))));
}

// Digits 0 .. n_digits - 1 of n bytes, n weights apart.
static void decode_digits(const uint8_t *from, int n, int n_digits, int8_t *q)
{
    for (int i = 0; i < n; i++) {
        uint32_t fraction = from[i];
        for (int k = 0; k < n_digits; k++) {
            fraction = (fraction & 255) * 3;
            q[n * k + i] = (int8_t)((int)(fraction >> 8) - 1);
        }
    }
}

static void decode_tq1_0(const void *block, int8_t *q, float *scale)
{
    const struct block_tq1_0 *b = block;
    fill(scale, 16, half_at(b->d));
    decode_digits(b->q, 32, 5, q);
    decode_digits(b->q16, 16, 5, q + 160);
    decode_digits(b->q4, 4, 4, q + 240);
}

static void decode_tq2_0(const void *block, int8_t *q, float *scale)
{
    const struct block_tq2_0 *b = block;
    fill(scale, 16, half_at(b->d));
    for (int i = 0; i < 256; i += 8) {
        uint64_t bytes = load64(b->q + i / 128 * 32 + i % 32) >> 2 * (i % 128 / 32);
        store8(q + i, less_one(bytes & eight(3)));
    }
}

// ---- grids

static uint64_t iq2_entry(uint32_t entry)
{
    const uint64_t at = spread2(entry); // 0, 1, 2: 8, 25, 43
    return eight(8) + at * 17 + (at >> 1 & eight(1));
}

static void iq2_weights(int8_t *q, uint32_t entry, uint32_t signs)
{
    store8(q, with_signs(iq2_entry(entry), signs));
}

static float iq2_scale(float d, uint32_t scale)
{
    return d * (0.5f + (float)scale) * 0.25f;
}

static void decode_iq2_xxs(const void *block, int8_t *q, float *scale)
{
    const struct block_iq2_xxs *b = block;
    const float d = half_at(b->d);
    for (int j = 0; j < 8; j++) {
        const uint8_t *index = b->q + 8 * j;
        const uint32_t signs = load32(index + 4);
        fill(scale + 2 * j, 2, iq2_scale(d, signs >> 28));
        for (int i = 0; i < 4; i++)
            iq2_weights(q + 32 * j + 8 * i, grid_iq2_xxs[index[i]],
                        eight_signs(signs >> 7 * i & 127));
    }
}

static void decode_iq2_xs(const void *block, int8_t *q, float *scale)
{
    const struct block_iq2_xs *b = block;
    const float d = half_at(b->d);
    for (int i = 0; i < 16; i++)
        scale[i] = iq2_scale(d, b->scales[i / 2] >> 4 * (i % 2) & 15);
    for (int i = 0; i < 32; i++) {
        const uint32_t v = load16(b->q + 2 * i);
        iq2_weights(q + 8 * i, grid_iq2_xs[v & 511], eight_signs(v >> 9));
    }
}

static void decode_iq2_s(const void *block, int8_t *q, float *scale)
{
    const struct block_iq2_s *b = block;
    const float d = half_at(b->d);
    for (int i = 0; i < 16; i++)
        scale[i] = iq2_scale(d, b->scales[i / 2] >> 4 * (i % 2) & 15);
    for (int i = 0; i < 32; i++) {
        const uint32_t high = b->high[i / 4] >> 2 * (i % 4) & 3u;
        iq2_weights(q + 8 * i, grid_iq2_s[b->q[i] | high << 8], b->signs[i]);
    }
}

// Two entries.
static uint64_t iq3_xxs_entries(uint32_t first, uint32_t second)
{
    const uint64_t at = spread4(first | second << 16); // 4, 12, 20, ... 52, and 62 instead of 60
    const uint64_t last = (at & at >> 1 & at >> 2 & eight(1)) << 1;
    return eight(4) + at * 8 + last;
}

static uint64_t iq3_s_entries(uint32_t first, uint32_t second)
{
    return spread4(first | second << 16) * 2 + eight(1); // 1, 3, ... 15
}

static void decode_iq3_xxs(const void *block, int8_t *q, float *scale)
{
    const struct block_iq3_xxs *b = block;
    const float d = half_at(b->d);
    for (int j = 0; j < 8; j++) {
        const uint32_t signs = load32(b->signs + 4 * j);
        fill(scale + 2 * j, 2, d * (0.5f + (float)(signs >> 28)) * 0.5f);
        for (int i = 0; i < 4; i++) {
            const uint8_t *index = b->q + 8 * j + 2 * i;
            store8(q + 32 * j + 8 * i,
                   with_signs(iq3_xxs_entries(grid_iq3_xxs[index[0]], grid_iq3_xxs[index[1]]),
                              eight_signs(signs >> 7 * i & 127)));
        }
    }
}

static void decode_iq3_s(const void *block, int8_t *q, float *scale)
{
    const struct block_iq3_s *b = block;
    const float d = half_at(b->d);
    for (int j = 0; j < 8; j++)
        fill(scale + 2 * j, 2, d * (float)(1 + 2 * (b->scales[j / 2] >> 4 * (j % 2) & 15)));
    for (int i = 0; i < 32; i++) {
        uint32_t entry[2];
        for (int k = 0; k < 2; k++) {
            const uint32_t high = b->high[i / 4] >> (2 * (i % 4) + k) & 1u;
            entry[k] = grid_iq3_s[b->q[2 * i + k] | high << 8];
        }
        store8(q + 8 * i, with_signs(iq3_s_entries(entry[0], entry[1]), b->signs[i]));
    }
}

// Eight times the weights, for they are -1, 0 and 1 and an eighth more or less.
static uint64_t iq1_entry(uint32_t entry, bool less)
{
    const uint64_t at = spread2(entry) * 8; // 0, 8, 16
    return (at + eight((uint8_t)(less ? 0x80 - 9 : 0x80 - 7))) ^ eight(0x80);
}

static void iq1_weights(int8_t *q, uint32_t entry, bool less)
{
    store8(q, iq1_entry(entry, less));
}

static void decode_iq1_s(const void *block, int8_t *q, float *scale)
{
    const struct block_iq1_s *b = block;
    const float d = half_at(b->d);
    for (int j = 0; j < 8; j++) {
        const uint32_t high = load16(b->high + 2 * j);
        fill(scale + 2 * j, 2, d * (float)(2 * (high >> 12 & 7) + 1) * 0.125f);
        for (int i = 0; i < 4; i++)
            iq1_weights(q + 32 * j + 8 * i, grid_iq1[b->q[4 * j + i] | (high >> 3 * i & 7) << 8],
                        high >> 15);
    }
}

static void decode_iq1_m(const void *block, int8_t *q, float *scale)
{
    const struct block_iq1_m *b = block;
    const float d = quant_f16_to_f32((uint16_t)iq1_m_d(b));
    for (int i = 0; i < 16; i++) {
        const uint32_t scales = load16(b->scales + i / 4 * 2);
        scale[i] = d * (float)(2 * (scales >> 3 * (i % 4) & 7) + 1) * 0.125f;
    }
    for (int i = 0; i < 32; i++) {
        const uint32_t high = b->high[i / 2] >> 4 * (i % 2) & 15u;
        iq1_weights(q + 8 * i, grid_iq1[b->q[i] | (high & 7) << 8], high >> 3);
    }
}

quant_decode_fn *quant_decoder(uint32_t type)
{
    switch (type) {
    case QUANT_MXFP4:
        return decode_mxfp4;
    case QUANT_NVFP4:
        return decode_nvfp4;
    case QUANT_Q1_0:
        return decode_q1_0;
    case QUANT_Q2_0:
        return decode_q2_0;
    case QUANT_TQ1_0:
        return decode_tq1_0;
    case QUANT_TQ2_0:
        return decode_tq2_0;
    case QUANT_IQ2_XXS:
        return decode_iq2_xxs;
    case QUANT_IQ2_XS:
        return decode_iq2_xs;
    case QUANT_IQ2_S:
        return decode_iq2_s;
    case QUANT_IQ3_XXS:
        return decode_iq3_xxs;
    case QUANT_IQ3_S:
        return decode_iq3_s;
    case QUANT_IQ1_S:
        return decode_iq1_s;
    case QUANT_IQ1_M:
        return decode_iq1_m;
    }
    return NULL;
}

uint64_t quant_grid(uint32_t type, uint32_t index)
{
    switch (type) {
    case QUANT_Q2_0:
        return less_one(spread2(index)) & UINT32_MAX;
    case QUANT_IQ2_XXS:
        return iq2_entry(grid_iq2_xxs[index]);
    case QUANT_IQ2_XS:
        return iq2_entry(grid_iq2_xs[index]);
    case QUANT_IQ2_S:
        return iq2_entry(grid_iq2_s[index]);
    case QUANT_IQ3_XXS:
        return iq3_xxs_entries(grid_iq3_xxs[index], 0) & UINT32_MAX;
    case QUANT_IQ3_S:
        return iq3_s_entries(grid_iq3_s[index], 0) & UINT32_MAX;
    case QUANT_IQ1_S:
        return iq1_entry(grid_iq1[index], false);
    }
    return 0;
}
