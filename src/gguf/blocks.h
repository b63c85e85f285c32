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

// ---- the types: a row each
//
// X(name, number in the file, structure, weights per block, then of the quants:
//   bits, high: of a quant; the high ones lie apart in the file, and in device memory
//   offset: what is taken from a quant before it is scaled
//   group: weights that share a scale
//   sub: bytes that the scales (and minima) within a block take per 32 weights when each has a byte
//        of its own, or shares one with its minimum in nibbles; 0: d is the only scale
//   minimum: whether something is taken from a weight after it was scaled)
#define BLOCK_TYPES(X)                                                                             \
    X(F32, 0, block_f32, 1, 32, 0, 0, 1, 0, false)                                                 \
    X(F16, 1, block_f16, 1, 16, 0, 0, 1, 0, false)                                                 \
    X(BF16, 30, block_bf16, 1, 16, 0, 0, 1, 0, false)                                              \
    X(Q4_0, 2, block_q4_0, 32, 4, 0, 8, 32, 0, false)                                              \
    X(Q4_1, 3, block_q4_1, 32, 4, 0, 0, 32, 0, true)                                               \
    X(Q5_0, 6, block_q5_0, 32, 4, 1, 16, 32, 0, false)                                             \
    X(Q5_1, 7, block_q5_1, 32, 4, 1, 0, 32, 0, true)                                               \
    X(Q8_0, 8, block_q8_0, 32, 8, 0, 0, 32, 0, false)                                              \
    X(Q2_K, 10, block_q2_k, 256, 2, 0, 0, 16, 2, true)                                             \
    X(Q3_K, 11, block_q3_k, 256, 2, 1, 4, 16, 2, false)                                            \
    X(Q4_K, 12, block_q4_k, 256, 4, 0, 0, 32, 2, true)                                             \
    X(Q5_K, 13, block_q5_k, 256, 4, 1, 0, 32, 2, true)                                             \
    X(Q6_K, 14, block_q6_k, 256, 4, 2, 32, 16, 2, false)                                           \
    X(IQ4_NL, 20, block_iq4_nl, 32, 4, 0, 0, 32, 0, false)                                         \
    X(IQ4_XS, 23, block_iq4_xs, 256, 4, 0, 0, 32, 1, false)

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
};

// What a constant type gives is a constant. All zeros for a number without a row.
#ifdef __cplusplus
static constexpr
#else
__attribute__((always_inline)) static inline
#endif
    struct block_facts
    block_facts(uint32_t type)
{
    switch (type) {
#define TYPE_FACTS(name, number, structure, ...)                                                   \
    case number: {                                                                                 \
        const struct block_facts facts = {sizeof(struct structure), __VA_ARGS__};                  \
        return facts;                                                                              \
    }
        BLOCK_TYPES(TYPE_FACTS)
#undef TYPE_FACTS
    }
    const struct block_facts none = {0, 0, 0, 0, 0, 0, 0, false};
    return none;
}

#endif
