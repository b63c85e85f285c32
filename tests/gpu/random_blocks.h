// Random weights of any type as they lie in a file: random bits, with the float16 scales of the
// blocks set to sane values.
#ifndef HOKKU_TESTS_GPU_RANDOM_BLOCKS_H
#define HOKKU_TESTS_GPU_RANDOM_BLOCKS_H

#include <string.h>

#include "base/rng.h"
#include "gguf/quant.h"

static inline double random_uniform(uint64_t seed, uint64_t at) // [-1, 1)
{
    return (double)(rng_u64(seed, at, 0) >> 11) / 4503599627370496.0 - 1.0;
}

// size: largest magnitude of plain weights, and of a block's scale times 100.
static inline void random_blocks(uint32_t type, void *dst, size_t n_bytes, double size,
                                 uint64_t seed)
{
    static const struct {
        uint32_t type;
        int at[2]; // where a block's float16 scales are, -1: none
    } scales[] = {
        {QUANT_Q4_0, {0, -1}},   {QUANT_Q4_1, {0, 2}},    {QUANT_Q5_0, {0, -1}},
        {QUANT_Q5_1, {0, 2}},    {QUANT_Q8_0, {0, -1}},   {QUANT_Q2_K, {80, 82}},
        {QUANT_Q3_K, {108, -1}}, {QUANT_Q4_K, {0, 2}},    {QUANT_Q5_K, {0, 2}},
        {QUANT_Q6_K, {208, -1}}, {QUANT_IQ4_NL, {0, -1}}, {QUANT_IQ4_XS, {0, -1}},
    };
    unsigned char *out = (unsigned char *)dst;
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = (unsigned char)rng_u64(seed, i, 1);
    if (type == QUANT_F32)
        for (size_t i = 0; i < n_bytes; i += 4) {
            float f = (float)(size * random_uniform(seed, i));
            memcpy(out + i, &f, sizeof f);
        }
    if (type == QUANT_F16 || type == QUANT_BF16)
        for (size_t i = 0; i < n_bytes; i += 2) {
            float f = (float)(size * random_uniform(seed, i));
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            uint16_t h = type == QUANT_F16 ? quant_f32_to_f16(f) : (uint16_t)(bits >> 16);
            memcpy(out + i, &h, sizeof h);
        }
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t b = 0; scales[s].type == type && b < n_bytes;
             b += quant_info(type)->block_bytes)
            for (int j = 0; j < 2 && scales[s].at[j] >= 0; j++) {
                double d = size * (0.01 + 0.01 * random_uniform(seed, b + (size_t)j));
                uint16_t h = quant_f32_to_f16((float)d);
                memcpy(out + b + scales[s].at[j], &h, sizeof h);
            }
}

#endif
