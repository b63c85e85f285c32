// Block layouts of the weight types and their plain dequantisation.
//
// A block holds 32 or 256 consecutive weights of a row. Every block type below is described by its
// byte offsets, so that unaligned data and either compiler give the same result. The order of the
// float operations (scale times sub-scale first, then times the integer, then minus the minimum) is
// the one in which the format's producers define the weights; with contraction off the result is
// exact to the bit.
#include "gguf/quant.h"

#include <string.h>

// Numbers that were given out and withdrawn (4, 5, 31-33, 36-38) have no entry.
static const struct quant_info infos[QUANT_TYPE_MAX] = {
    [QUANT_F32] = {"F32", 1, 4, true},
    [QUANT_F16] = {"F16", 1, 2, true},
    [QUANT_Q4_0] = {"Q4_0", 32, 18, true},
    [QUANT_Q4_1] = {"Q4_1", 32, 20, true},
    [QUANT_Q5_0] = {"Q5_0", 32, 22, true},
    [QUANT_Q5_1] = {"Q5_1", 32, 24, true},
    [QUANT_Q8_0] = {"Q8_0", 32, 34, true},
    [9] = {"Q8_1", 32, 36, false},
    [QUANT_Q2_K] = {"Q2_K", 256, 84, true},
    [QUANT_Q3_K] = {"Q3_K", 256, 110, true},
    [QUANT_Q4_K] = {"Q4_K", 256, 144, true},
    [QUANT_Q5_K] = {"Q5_K", 256, 176, true},
    [QUANT_Q6_K] = {"Q6_K", 256, 210, true},
    [15] = {"Q8_K", 256, 292, false},
    [16] = {"IQ2_XXS", 256, 66, false},
    [17] = {"IQ2_XS", 256, 74, false},
    [18] = {"IQ3_XXS", 256, 98, false},
    [19] = {"IQ1_S", 256, 50, false},
    [QUANT_IQ4_NL] = {"IQ4_NL", 32, 18, true},
    [21] = {"IQ3_S", 256, 110, false},
    [22] = {"IQ2_S", 256, 82, false},
    [QUANT_IQ4_XS] = {"IQ4_XS", 256, 136, true},
    [24] = {"I8", 1, 1, false},
    [25] = {"I16", 1, 2, false},
    [26] = {"I32", 1, 4, false},
    [27] = {"I64", 1, 8, false},
    [28] = {"F64", 1, 8, false},
    [29] = {"IQ1_M", 256, 56, false},
    [QUANT_BF16] = {"BF16", 1, 2, true},
    [34] = {"TQ1_0", 256, 54, false},
    [35] = {"TQ2_0", 256, 66, false},
    [39] = {"MXFP4", 32, 17, false},
    [40] = {"NVFP4", 64, 36, false},
    [41] = {"Q1_0", 128, 18, false},
};

const struct quant_info *quant_info(uint32_t type)
{
    static const struct quant_info unknown = {NULL, 0, 0, false};
    return type < QUANT_TYPE_MAX ? &infos[type] : &unknown;
}

const char *quant_supported_list(void)
{
    return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
           "IQ4_XS";
}

size_t quant_row_bytes(uint32_t type, uint64_t n_elems)
{
    const struct quant_info *qi = quant_info(type);
    if (!qi->name || n_elems % qi->block_elems)
        return 0;
    uint64_t n_blocks = n_elems / qi->block_elems;
    if (n_blocks > SIZE_MAX / qi->block_bytes)
        return 0;
    return (size_t)n_blocks * qi->block_bytes;
}

static float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1F, mantissa = h & 0x3FF;
    if (exponent == 0x1F) // infinity, NaN
        return float_from_bits(sign | 0x7F800000 | mantissa << 13);
    if (exponent) // rebias 15 -> 127
        return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f; // zero and subnormals: exact in binary32
    return sign ? -f : f;
}

uint16_t quant_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) // NaN: keep it one (quiet bit), with what fits of its payload
        return (uint16_t)(sign | 0x7E00 | (bits >> 13 & 0x3FF));
    if (bits >= 0x477FF000) // 65520 and above round to infinity
        return sign | 0x7C00;
    if (bits < 0x33000000) // below half of the smallest subnormal
        return sign;
    uint32_t exponent = bits >> 23;
    uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
    // Bits to drop: 13 for a normal result, more for a subnormal one.
    uint32_t drop = exponent >= 113 ? 13 : 126 - exponent;
    uint32_t kept = mantissa >> drop;
    uint32_t rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    // A carry out of the mantissa moves into the exponent, which is right.
    if (exponent >= 113)
        kept += (exponent - 113) << 10;
    return (uint16_t)(sign | kept);
}

float quant_bf16_to_f32(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float load_f16(const uint8_t *p)
{
    return quant_f16_to_f32(load_u16(p));
}

// One block of each type: b (block_bytes) -> y (block_elems).

static void block_f32(const uint8_t *b, float *y)
{
    y[0] = float_from_bits(load_u32(b));
}

static void block_f16(const uint8_t *b, float *y)
{
    y[0] = load_f16(b);
}

static void block_bf16(const uint8_t *b, float *y)
{
    y[0] = quant_bf16_to_f32(load_u16(b));
}

// f16 d | 16 bytes: weight i in the low, i + 16 in the high nibble. y = d (q - 8).
static void block_q4_0(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b[2 + i] & 0xF) - 8);
        y[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

// f16 d, m | 16 bytes of nibbles. y = d q + m.
static void block_q4_1(const uint8_t *b, float *y)
{
    float d = load_f16(b), m = load_f16(b + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b[4 + i] & 0xF) + m;
        y[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

// f16 d | 32 fifth bits | 16 bytes of nibbles. y = d (q - 16).
static void block_q5_0(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    uint32_t high = load_u32(b + 2);
    for (int i = 0; i < 16; i++) {
        int lo = (b[6 + i] & 0xF) | (int)(high >> i & 1) << 4;
        int hi = b[6 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)(lo - 16);
        y[i + 16] = d * (float)(hi - 16);
    }
}

// f16 d, m | 32 fifth bits | 16 bytes of nibbles. y = d q + m.
static void block_q5_1(const uint8_t *b, float *y)
{
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t high = load_u32(b + 4);
    for (int i = 0; i < 16; i++) {
        int lo = (b[8 + i] & 0xF) | (int)(high >> i & 1) << 4;
        int hi = b[8 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)lo + m;
        y[i + 16] = d * (float)hi + m;
    }
}

// f16 d | 32 int8. y = d q.
static void block_q8_0(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(int8_t)b[2 + i];
}

// 16 bytes (scale | min << 4), one per 16 weights | 64 bytes of 2-bit q | f16 d, dmin.
// Each half of 128 weights uses 32 bytes of q: bits 0-1 hold its first 32 weights, bits 2-3 the
// next 32, ... y = d scale q - dmin min.
static void block_q2_k(const uint8_t *b, float *y)
{
    const uint8_t *scales = b, *q = b + 16;
    float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32;
        uint8_t s = scales[i / 16];
        int v = q[32 * half + lane] >> (2 * group) & 3;
        y[i] = d * (float)(s & 0xF) * (float)v - dmin * (float)(s >> 4);
    }
}

// 32 bytes of third bits | 64 bytes of 2-bit q (as Q2_K) | 12 bytes: 16 6-bit scales | f16 d.
// y = d (scale - 32) (q - 4), q with its third bit.
static void block_q3_k(const uint8_t *b, float *y)
{
    const uint8_t *high = b, *q = b + 32, *s = b + 96;
    float d = load_f16(b + 108);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32, is = i / 16;
        int low4 = is < 8 ? s[is] & 0xF : s[is - 8] >> 4;
        int scale = low4 | (s[8 + is % 4] >> (2 * (is / 4)) & 3) << 4;
        int v = q[32 * half + lane] >> (2 * group) & 3;
        v |= (high[lane] >> (4 * half + group) & 1) << 2;
        y[i] = d * (float)(scale - 32) * (float)(v - 4);
    }
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes, as Q4_K and Q5_K pack them: the first four
// of each in the low six bits of bytes 0-3 and 4-7; the others as nibbles of bytes 8-11 with their
// upper two bits in the top of bytes 0-7.
static void scale_min(const uint8_t s[12], int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 0xF) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

// f16 d, dmin | 12 bytes of scales | 128 bytes of nibbles: per 64 weights, 32 bytes whose low
// nibbles are the first 32. y = d scale q - dmin min.
static void block_q4_k(const uint8_t *b, float *y)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b + 4, j, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = b + 16 + 32 * (j / 2);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = ds * (float)(q[i] >> (4 * (j % 2)) & 0xF) - dm;
    }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte i belongs to weight 32j +
// i.
static void block_q5_k(const uint8_t *b, float *y)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    const uint8_t *high = b + 16;
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b + 4, j, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = b + 48 + 32 * (j / 2);
        for (int i = 0; i < 32; i++) {
            int v = (q[i] >> (4 * (j % 2)) & 0xF) | (high[i] >> j & 1) << 4;
            y[32 * j + i] = ds * (float)v - dm;
        }
    }
}

// 128 bytes of low nibbles | 64 bytes of upper two bits | 16 int8 scales | f16 d.
// Per half of 128 weights: four groups of 32; groups 0, 1 are the low and 2, 3 the high nibbles of
// 64 bytes; the upper bits of group g are bits 2g of 32 bytes. y = d scale (q - 32).
static void block_q6_k(const uint8_t *b, float *y)
{
    const uint8_t *low = b, *high = b + 128, *scales = b + 192;
    float d = load_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32;
        int v = low[64 * half + 32 * (group % 2) + lane] >> (4 * (group / 2)) & 0xF;
        v |= (high[32 * half + lane] >> (2 * group) & 3) << 4;
        y[i] = d * (float)(int8_t)scales[i / 16] * (float)(v - 32);
    }
}

// The 16 levels that the nibbles of IQ4_NL and IQ4_XS choose from.
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

// f16 d | 16 bytes of nibbles (as Q4_0). y = d level[q].
static void block_iq4_nl(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)iq4_levels[b[2 + i] & 0xF];
        y[i + 16] = d * (float)iq4_levels[b[2 + i] >> 4];
    }
}

// f16 d | eight upper 2-bit scales | eight lower 4-bit scales | per 32 weights 16 bytes of nibbles
// (as Q4_0). y = d (scale - 32) level[q].
static void block_iq4_xs(const uint8_t *b, float *y)
{
    float d = load_f16(b);
    uint32_t high = load_u16(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale = (b[4 + j / 2] >> (4 * (j % 2)) & 0xF) | (int)(high >> (2 * j) & 3) << 4;
        float ds = d * (float)(scale - 32);
        const uint8_t *q = b + 8 + 16 * j;
        for (int i = 0; i < 16; i++) {
            y[32 * j + i] = ds * (float)iq4_levels[q[i] & 0xF];
            y[32 * j + i + 16] = ds * (float)iq4_levels[q[i] >> 4];
        }
    }
}

static void (*const block_fns[QUANT_TYPE_MAX])(const uint8_t *b, float *y) = {
    [QUANT_F32] = block_f32,   [QUANT_F16] = block_f16,       [QUANT_Q4_0] = block_q4_0,
    [QUANT_Q4_1] = block_q4_1, [QUANT_Q5_0] = block_q5_0,     [QUANT_Q5_1] = block_q5_1,
    [QUANT_Q8_0] = block_q8_0, [QUANT_Q2_K] = block_q2_k,     [QUANT_Q3_K] = block_q3_k,
    [QUANT_Q4_K] = block_q4_k, [QUANT_Q5_K] = block_q5_k,     [QUANT_Q6_K] = block_q6_k,
    [QUANT_BF16] = block_bf16, [QUANT_IQ4_NL] = block_iq4_nl, [QUANT_IQ4_XS] = block_iq4_xs,
};

void quant_dequantize(uint32_t type, const void *src, float *dst, size_t n_elems)
{
    const struct quant_info *qi = quant_info(type);
    const uint8_t *b = src;
    if (!qi->supported)
        return;
    for (size_t i = 0; i + qi->block_elems <= n_elems; i += qi->block_elems) {
        block_fns[type](b, dst + i);
        b += qi->block_bytes;
    }
}
