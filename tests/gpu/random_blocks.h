// Random weights of any type as they lie in a file: random bits, with the scales of the blocks set
// to sane values.
#ifndef HOKKU_TESTS_GPU_RANDOM_BLOCKS_H
#define HOKKU_TESTS_GPU_RANDOM_BLOCKS_H

#include <string.h>

#include "base/rng.h"
#include "gguf/quant.h"
#include "../unit/block_scales.h"

static inline double random_uniform(uint64_t seed, uint64_t at) // [-1, 1)
{
    return (double)(rng_u64(seed, at, 0) >> 11) / 4503599627370496.0 - 1.0;
}

// size: largest magnitude of plain weights, and of a block's scale times 100.
static inline void random_blocks(uint32_t type, void *dst, size_t n_bytes, double size,
                                 uint64_t seed)
{
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
    const struct quant_info *qi = quant_info(type);
    for (size_t b = 0; qi->block_elems > 1 && b < n_bytes; b += qi->block_bytes) {
        double d = size * (0.01 + 0.01 * random_uniform(seed, b));
        double m = size * (0.01 + 0.01 * random_uniform(seed, b + 1));
        set_block_scales(type, out + b, (float)d, (float)m);
    }
}

#endif
