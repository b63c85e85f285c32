// The weight types of a GGUF file: how a block lies in the file, and what tells one type from
// another. The only place that says so, for C and CUDA: sizes, both engines' unpacking, the planes
// of device memory and the tests follow from it. A new type is a structure and a row here, and what
// its bits mean: a dequantiser in quant.c, and in cuda/repack.cu where its planes get their bits.
//
// Layouts are facts of the format (GGML's type numbers), all little-endian. Structures are of bytes
// alone, so that they may lie anywhere and every compiler gives them the same size.
#ifndef HOKKU_GGUF_BLOCKS_H
#define HOKKU_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

// ---- blocks: d is a scale in float16 unless said; y is the weight, q its quant

struct block_f32 {
    uint8_t x[4];
};
struct block_f16 {
    uint8_t x[2];
};
struct block_bf16 {
    uint8_t x[2]; // the upper half of a float
};

// Nibbles of 32 weights are 16 bytes: weight i in the low, i + 16 in the high nibble of byte i.

struct block_q4_0 { // y = d (q - 8)
    uint8_t d[2], q[16];
};
struct block_q4_1 { // y = d q + m
    uint8_t d[2], m[2], q[16];
};
struct block_q5_0 { // y = d (q - 16)
    uint8_t d[2];
    uint8_t high[4]; // the fifth bits, lowest first
    uint8_t q[16];
};
struct block_q5_1 { // y = d q + m
    uint8_t d[2], m[2];
    uint8_t high[4]; // as Q5_0
    uint8_t q[16];
};
struct block_q8_0 { // y = d q
    uint8_t d[2];
    uint8_t q[32]; // signed
};
struct block_iq4_nl { // y = d level[q], see IQ4_LEVELS
    uint8_t d[2], q[16];
};

// Two bits of 256 weights are 64 bytes. Each half of 128 weights has 32 of them: bits 0-1 hold its
// first 32 weights, bits 2-3 the next 32, ...

struct block_q2_k {     // y = d scale q - dmin min
    uint8_t scales[16]; // of 16 weights each: scale, and min in the high nibble
    uint8_t q[64];
    uint8_t d[2], dmin[2];
};
struct block_q3_k {     // y = d (scale - 32) (q - 4)
    uint8_t high[32];   // third bits: bit i of byte j is of weight 32 i + j
    uint8_t q[64];      // low two bits
    uint8_t scales[12]; // 16 of 6 bits: low nibbles as the nibbles of 16 in 8 bytes; the upper two
                        // bits of scale i are bits 2 (i / 4) and up of byte 8 + i % 4
    uint8_t d[2];
};
struct block_q4_k { // y = d scale q - dmin min
    uint8_t d[2], dmin[2];
    uint8_t scales[12]; // eight scales and minima of 6 bits. The first four of each: low six bits
                        // of bytes 0-3 and 4-7; the others: nibbles of bytes 8-11, with their upper
                        // two bits in the top of bytes 0-7
    uint8_t q[128];     // per 64 weights 32 bytes, whose low nibbles are the first 32
};
struct block_q5_k { // as Q4_K
    uint8_t d[2], dmin[2], scales[12];
    uint8_t high[32]; // fifth bits, as Q3_K's third ones
    uint8_t q[128];
};
struct block_q6_k {     // y = d scale (q - 32)
    uint8_t low[128];   // per half of 128 weights 64 bytes: their low nibbles are its first 64
    uint8_t high[64];   // upper two bits, as Q2_K's q
    uint8_t scales[16]; // signed
    uint8_t d[2];
};
struct block_iq4_xs { // y = d (scale - 32) level[q], of 32 weights each
    uint8_t d[2];
    uint8_t scales_high[2]; // two bits each
    uint8_t scales_low[4];  // nibbles
    uint8_t q[128];         // per 32 weights 16 bytes of nibbles
};

// The levels that the nibbles of IQ4_NL and IQ4_XS choose from.
#define IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

// Weights that are codes: a code stands for a value of a small table, and 16 or more weights share
// a scale.

struct block_mxfp4 { // y = scale / 2 * level[q], see E2M1_LEVELS
    uint8_t e;       // scale 2^(e - 127)
    uint8_t q[16];   // nibbles
};
struct block_nvfp4 {   // as MXFP4, 16 weights to a scale
    uint8_t scales[4]; // E4M3 (bias 7) without its sign; 0x7F is 0
    uint8_t q[32];     // nibbles of 16 weights are 8 bytes: the first eight in the low ones
};
struct block_q1_0 { // y = d (2 q - 1)
    uint8_t d[2];
    uint8_t q[16]; // bits, lowest first
};
struct block_q2_0 { // y = d (q - 1)
    uint8_t d[2];
    uint8_t q[16]; // two bits each, lowest first
};
struct block_tq1_0 { // y = d (q - 1), q of 0, 1, 2
    // A byte holds five digits to the base 3 as the fraction byte / 256 of them: times 3, the
    // upper byte is the first digit, the lower one the fraction of the rest. Digit n of byte i is
    // weight 32 n + i; of the second part 160 + 16 n + i; of the last, of four digits,
    // 240 + 4 n + i.
    uint8_t q[32], q16[16], q4[4];
    uint8_t d[2];
};
struct block_tq2_0 { // y = d (q - 1)
    uint8_t q[64];   // as Q2_K
    uint8_t d[2];
};

// Grids (grids.h): an index stands for eight weights of IQ1 and IQ2, for four of IQ3. The signs of
// eight weights are a byte, lowest bit first, set: negative; in seven bits the last one is that
// which makes the number of negative ones even.

struct block_iq2_xxs { // y = d (2 scale + 1) / 8 grid
    uint8_t d[2];
    uint8_t q[64]; // per 32 weights 8 bytes: four indices; four signs of 7 bits, a scale of 4
};
struct block_iq2_xs { // as IQ2_XXS, a scale per 16 weights
    uint8_t d[2];
    uint8_t q[64];     // per eight weights 16 bits: an index of 9, signs of 7
    uint8_t scales[8]; // nibbles
};
struct block_iq2_s { // as IQ2_XS
    uint8_t d[2];
    uint8_t q[32], signs[32]; // of eight weights each
    uint8_t high[8];          // the upper two bits of four indices, lowest first
    uint8_t scales[8];        // nibbles
};
struct block_iq3_xxs { // y = d (2 scale + 1) / 4 grid, a scale per 32 weights
    uint8_t d[2];
    uint8_t q[64];
    uint8_t signs[32]; // per 32 weights 4 bytes: as the second half of IQ2_XXS's
};
struct block_iq3_s { // y = d (2 scale + 1) grid, a scale per 32 weights
    uint8_t d[2];
    uint8_t q[64];
    uint8_t high[8]; // the ninth bits of eight indices
    uint8_t signs[32];
    uint8_t scales[4]; // nibbles
};
struct block_iq1_s { // y = d (2 scale + 1) (grid + delta), a scale and delta per 32 weights
    uint8_t d[2];
    uint8_t q[32];
    uint8_t high[16]; // per 32 weights 16 bits: the upper 3 of four indices, a scale of 3, and set
                      // where delta is -1/8, not 1/8
};
struct block_iq1_m { // as IQ1_S, a scale per 16 weights, a delta per 8
    uint8_t q[32];
    uint8_t high[16];  // per eight weights 4 bits: the upper 3 of the index, the sign of delta
    uint8_t scales[8]; // per 64 weights 16 bits: four scales of 3, and four of the bits of d
};

// E2M1, times 2: what the nibbles of MXFP4 and NVFP4 stand for.
#define E2M1_LEVELS 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

// ---- the types: a row each
//
// X(name, number in the file, structure, weights per block, then of the quants, or codes:
//   bits, high: of one; the high ones lie apart in the file, and in device memory
//   offset: what is taken from a quant before it is scaled
//   group: weights that share a scale; 32 where more than that do
//   sub: bytes that the scales (and minima) within a block take per 32 weights when each has a byte
//        of its own, or shares one with its minimum in nibbles; 0: they share the block's
//   minimum: whether something is taken from a weight after it was scaled
//   planes: the type as which the weights lie in device memory, to the bit the same ones; what
//        follows weights in the row is of that)
#define BLOCK_TYPES(X)                                                                             \
    X(F32, 0, block_f32, 1, 32, 0, 0, 1, 0, false, F32)                                            \
    X(F16, 1, block_f16, 1, 16, 0, 0, 1, 0, false, F16)                                            \
    X(BF16, 30, block_bf16, 1, 16, 0, 0, 1, 0, false, BF16)                                        \
    X(Q4_0, 2, block_q4_0, 32, 4, 0, 8, 32, 0, false, Q4_0)                                        \
    X(Q4_1, 3, block_q4_1, 32, 4, 0, 0, 32, 0, true, Q4_1)                                         \
    X(Q5_0, 6, block_q5_0, 32, 4, 1, 16, 32, 0, false, Q5_0)                                       \
    X(Q5_1, 7, block_q5_1, 32, 4, 1, 0, 32, 0, true, Q5_1)                                         \
    X(Q8_0, 8, block_q8_0, 32, 8, 0, 0, 32, 0, false, Q8_0)                                        \
    X(Q2_K, 10, block_q2_k, 256, 2, 0, 0, 16, 2, true, Q2_K)                                       \
    X(Q3_K, 11, block_q3_k, 256, 2, 1, 4, 16, 2, false, Q3_K)                                      \
    X(Q4_K, 12, block_q4_k, 256, 4, 0, 0, 32, 2, true, Q4_K)                                       \
    X(Q5_K, 13, block_q5_k, 256, 4, 1, 0, 32, 2, true, Q5_K)                                       \
    X(Q6_K, 14, block_q6_k, 256, 4, 2, 32, 16, 2, false, Q6_K)                                     \
    X(IQ4_NL, 20, block_iq4_nl, 32, 4, 0, 0, 32, 0, false, IQ4_NL)                                 \
    X(IQ4_XS, 23, block_iq4_xs, 256, 4, 0, 0, 32, 1, false, IQ4_XS)                                \
    X(MXFP4, 39, block_mxfp4, 32, 4, 0, 0, 32, 0, false, MXFP4)                                    \
    X(NVFP4, 40, block_nvfp4, 64, 4, 0, 0, 16, 0, false, NVFP4)                                    \
    X(IQ1_S, 19, block_iq1_s, 256, 2, 1, 0, 16, 2, false, IQ1_M)                                   \
    X(IQ1_M, 29, block_iq1_m, 256, 2, 1, 0, 16, 2, false, IQ1_M)                                   \
    X(IQ2_XXS, 16, block_iq2_xxs, 256, 2, 1, 0, 16, 2, false, IQ2_S)                               \
    X(IQ2_XS, 17, block_iq2_xs, 256, 2, 1, 0, 16, 2, false, IQ2_S)                                 \
    X(IQ2_S, 22, block_iq2_s, 256, 2, 1, 0, 16, 2, false, IQ2_S)                                   \
    X(IQ3_XXS, 18, block_iq3_xxs, 256, 4, 0, 0, 32, 1, false, IQ3_XXS)                             \
    X(IQ3_S, 21, block_iq3_s, 256, 4, 0, 0, 32, 1, false, IQ3_S)                                   \
    X(Q1_0, 41, block_q1_0, 128, 2, 0, 1, 32, 0, false, Q2_0)                                      \
    X(Q2_0, 42, block_q2_0, 64, 2, 0, 1, 32, 0, false, Q2_0)                                       \
    X(TQ1_0, 34, block_tq1_0, 256, 2, 0, 1, 32, 0, false, Q2_0)                                    \
    X(TQ2_0, 35, block_tq2_0, 256, 2, 0, 1, 32, 0, false, Q2_0)

enum quant_type {
#define TYPE_NUMBER(name, number, ...) QUANT_##name = number,
    BLOCK_TYPES(TYPE_NUMBER)
#undef TYPE_NUMBER
        QUANT_TYPE_MAX = 64, // numbers from here on are refused unnamed
};

struct block_facts {
    uint32_t bytes; // of a block
    uint32_t weights, bits, high, offset, group, sub;
    bool minimum;
    enum quant_type planes;
};

// What constants give is a constant, in kernels too.
#ifdef __cplusplus
#define BLOCKS_FUNCTION static constexpr
#else
#define BLOCKS_FUNCTION __attribute__((always_inline)) static inline
#endif

// All zeros for a number without a row.
BLOCKS_FUNCTION struct block_facts block_facts(uint32_t type)
{
    switch (type) {
#define TYPE_FACTS(name, number, structure, weights, bits, high, offset, group, sub, minimum,      \
                   planes)                                                                         \
    case number: {                                                                                 \
        const struct block_facts facts = {sizeof(struct structure),                                \
                                          weights,                                                 \
                                          bits,                                                    \
                                          high,                                                    \
                                          offset,                                                  \
                                          group,                                                   \
                                          sub,                                                     \
                                          minimum,                                                 \
                                          QUANT_##planes};                                         \
        return facts;                                                                              \
    }
        BLOCK_TYPES(TYPE_FACTS)
#undef TYPE_FACTS
    }
    const struct block_facts none = {0, 0, 0, 0, 0, 0, 0, false, QUANT_F32};
    return none;
}

// Half of MXFP4's scale, 2^(e - 128), as the bits of a float.
BLOCKS_FUNCTION uint32_t mxfp4_scale_bits(uint32_t e)
{
    return e < 2 ? 0x00200000u << e : (e - 1) << 23;
}

// The bits of d, which lie in the highest four of each scale.
BLOCKS_FUNCTION uint32_t iq1_m_d(const struct block_iq1_m *b)
{
    return (uint32_t)b->scales[1] >> 4 | (b->scales[3] & 0xF0u) | (b->scales[5] & 0xF0u) << 4 |
           (b->scales[7] & 0xF0u) << 8;
}

// All eight signs, when the last follows from seven.
BLOCKS_FUNCTION uint32_t eight_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    return seven | ((parity ^ parity >> 1) & 1) << 7;
}

#endif
