// The plain dequantisation of the weight types.
//
// The order of the float operations (scale times sub-scale first, then times the integer, then
// minus the minimum) is the one in which the format's producers define the weights; with
// contraction off the result is exact to the bit.
#include "gguf/quant.h"

#include <string.h>

// Numbers that were given out and withdrawn (4, 5, 31-33, 36-38) have no entry.
static const struct quant_info infos[QUANT_TYPE_MAX] = {
#define TYPE_INFO(name, number, structure, weights, ...)                                           \
    [number] = {#name, weights, sizeof(struct structure), true},
    BLOCK_TYPES(TYPE_INFO)
#undef TYPE_INFO
        // known by name and size
        [9] = {"Q8_1", 32, 36, false},
    [15] = {"Q8_K", 256, 292, false},
    [24] = {"I8", 1, 1, false},
    [25] = {"I16", 1, 2, false},
    [26] = {"I32", 1, 4, false},
    [27] = {"I64", 1, 8, false},
    [28] = {"F64", 1, 8, false},
};

const struct quant_info *quant_info(uint32_t type)
{
    static const struct quant_info unknown = {NULL, 0, 0, false};
    return type < QUANT_TYPE_MAX ? &infos[type] : &unknown;
}

const char *quant_supported_list(void)
{
#define LISTED(name, ...) ", " #name
    static const char list[] = BLOCK_TYPES(LISTED);
#undef LISTED
    return list + strlen(", ");
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

// One block of each type -> y (its weights).

static void dequantize_f32(const void *block, float *y)
{
    y[0] = float_from_bits(load_u32(block));
}

static void dequantize_f16(const void *block, float *y)
{
    y[0] = load_f16(block);
}

static void dequantize_bf16(const void *block, float *y)
{
    y[0] = quant_bf16_to_f32(load_u16(block));
}

static void dequantize_q4_0(const void *block, float *y)
{
    const struct block_q4_0 *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b->q[i] & 0xF) - 8);
        y[i + 16] = d * (float)((b->q[i] >> 4) - 8);
    }
}

static void dequantize_q4_1(const void *block, float *y)
{
    const struct block_q4_1 *b = block;
    float d = load_f16(b->d), m = load_f16(b->m);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b->q[i] & 0xF) + m;
        y[i + 16] = d * (float)(b->q[i] >> 4) + m;
    }
}

static void dequantize_q5_0(const void *block, float *y)
{
    const struct block_q5_0 *b = block;
    float d = load_f16(b->d);
    uint32_t high = load_u32(b->high);
    for (int i = 0; i < 16; i++) {
        int lo = (b->q[i] & 0xF) | (int)(high >> i & 1) << 4;
        int hi = b->q[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)(lo - 16);
        y[i + 16] = d * (float)(hi - 16);
    }
}

static void dequantize_q5_1(const void *block, float *y)
{
    const struct block_q5_1 *b = block;
    float d = load_f16(b->d), m = load_f16(b->m);
    uint32_t high = load_u32(b->high);
    for (int i = 0; i < 16; i++) {
        int lo = (b->q[i] & 0xF) | (int)(high >> i & 1) << 4;
        int hi = b->q[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)lo + m;
        y[i + 16] = d * (float)hi + m;
    }
}

static void dequantize_q8_0(const void *block, float *y)
{
    const struct block_q8_0 *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(int8_t)b->q[i];
}

static void dequantize_q2_k(const void *block, float *y)
{
    const struct block_q2_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32;
        uint8_t s = b->scales[i / 16];
        int v = b->q[32 * half + lane] >> (2 * group) & 3;
        y[i] = d * (float)(s & 0xF) * (float)v - dmin * (float)(s >> 4);
    }
}

static void dequantize_q3_k(const void *block, float *y)
{
    const struct block_q3_k *b = block;
    const uint8_t *s = b->scales;
    float d = load_f16(b->d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32, is = i / 16;
        int low4 = is < 8 ? s[is] & 0xF : s[is - 8] >> 4;
        int scale = low4 | (s[8 + is % 4] >> (2 * (is / 4)) & 3) << 4;
        int v = b->q[32 * half + lane] >> (2 * group) & 3;
        v |= (b->high[lane] >> (4 * half + group) & 1) << 2;
        y[i] = d * (float)(scale - 32) * (float)(v - 4);
    }
}

// Scale and minimum j of Q4_K and Q5_K.
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

static void dequantize_q4_k(const void *block, float *y)
{
    const struct block_q4_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b->scales, j, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = b->q + 32 * (j / 2);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = ds * (float)(q[i] >> (4 * (j % 2)) & 0xF) - dm;
    }
}

static void dequantize_q5_k(const void *block, float *y)
{
    const struct block_q5_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b->scales, j, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = b->q + 32 * (j / 2);
        for (int i = 0; i < 32; i++) {
            int v = (q[i] >> (4 * (j % 2)) & 0xF) | (b->high[i] >> j & 1) << 4;
            y[32 * j + i] = ds * (float)v - dm;
        }
    }
}

static void dequantize_q6_k(const void *block, float *y)
{
    const struct block_q6_k *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i % 128 / 32, lane = i % 32;
        int v = b->low[64 * half + 32 * (group % 2) + lane] >> (4 * (group / 2)) & 0xF;
        v |= (b->high[32 * half + lane] >> (2 * group) & 3) << 4;
        y[i] = d * (float)(int8_t)b->scales[i / 16] * (float)(v - 32);
    }
}

static const int8_t iq4_levels[16] = {IQ4_LEVELS};

static void dequantize_iq4_nl(const void *block, float *y)
{
    const struct block_iq4_nl *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)iq4_levels[b->q[i] & 0xF];
        y[i + 16] = d * (float)iq4_levels[b->q[i] >> 4];
    }
}

static void dequantize_iq4_xs(const void *block, float *y)
{
    const struct block_iq4_xs *b = block;
    float d = load_f16(b->d);
    uint32_t high = load_u16(b->scales_high);
    for (int j = 0; j < 8; j++) {
        int low = b->scales_low[j / 2] >> (4 * (j % 2)) & 0xF;
        float ds = d * (float)((low | (int)(high >> (2 * j) & 3) << 4) - 32);
        const uint8_t *q = b->q + 16 * j;
        for (int i = 0; i < 16; i++) {
            y[32 * j + i] = ds * (float)iq4_levels[q[i] & 0xF];
            y[32 * j + i + 16] = ds * (float)iq4_levels[q[i] >> 4];
        }
    }
}

// Any type that quant_decoder knows.
static void dequantize_codes(uint32_t type, const void *block, float *y)
{
    int8_t q[QUANT_MAX_BLOCK];
    float scale[QUANT_MAX_BLOCK / 16];
    quant_decoder(type)(block, q, scale);
    for (uint32_t i = 0; i < infos[type].block_elems; i++)
        y[i] = scale[i / 16] * (float)q[i];
}

static void (*const block_fns[QUANT_TYPE_MAX])(const void *block, float *y) = {
    [QUANT_F32] = dequantize_f32,       [QUANT_F16] = dequantize_f16,
    [QUANT_BF16] = dequantize_bf16,     [QUANT_Q4_0] = dequantize_q4_0,
    [QUANT_Q4_1] = dequantize_q4_1,     [QUANT_Q5_0] = dequantize_q5_0,
    [QUANT_Q5_1] = dequantize_q5_1,     [QUANT_Q8_0] = dequantize_q8_0,
    [QUANT_Q2_K] = dequantize_q2_k,     [QUANT_Q3_K] = dequantize_q3_k,
    [QUANT_Q4_K] = dequantize_q4_k,     [QUANT_Q5_K] = dequantize_q5_k,
    [QUANT_Q6_K] = dequantize_q6_k,     [QUANT_IQ4_NL] = dequantize_iq4_nl,
    [QUANT_IQ4_XS] = dequantize_iq4_xs,
};

void quant_dequantize(uint32_t type, const void *src, float *dst, size_t n_elems)
{
    const struct quant_info *qi = quant_info(type);
    const uint8_t *b = src;
    if (!qi->supported)
        return;
    for (size_t i = 0; i + qi->block_elems <= n_elems; i += qi->block_elems) {
        if (block_fns[type])
            block_fns[type](b, dst + i);
        else
            dequantize_codes(type, b, dst + i);
        b += qi->block_bytes;
    }
}
