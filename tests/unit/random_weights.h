// Random weight blocks of every type, from a fixed sequence.
#ifndef HOKKU_TESTS_UNIT_RANDOM_WEIGHTS_H
#define HOKKU_TESTS_UNIT_RANDOM_WEIGHTS_H

#include "test.h"

#include "base/rng.h"
#include "block_scales.h"
#include "gguf/quant.h"

static uint64_t random_counter; // set it for a fixed sequence

static inline uint64_t random_u64(void)
{
    return rng_u64(20240607, random_counter++, 0);
}

// (-1, 1)
static inline float random_float(void)
{
    return (float)(int32_t)(random_u64() >> 32) * 0x1p-31f;
}

static inline void put_f16(uint8_t *p, float f)
{
    uint16_t h = quant_f32_to_f16(f);
    memcpy(p, &h, 2);
}

// Random bits make any block valid except for its scale, which could be no number.
static inline void random_weights(uint32_t type, uint8_t *p, size_t n)
{
    const struct quant_info *info = quant_info(type);
    for (size_t b = 0; b < n / info->block_elems; b++, p += info->block_bytes) {
        for (size_t i = 0; i < info->block_bytes; i++)
            p[i] = (uint8_t)random_u64();
        float f = random_float(), s = random_float() * 0.02f, m = random_float() * 0.02f;
        uint32_t u;
        memcpy(&u, &f, 4);
        uint16_t bf = (uint16_t)(u >> 16);
        if (type == QUANT_F32)
            memcpy(p, &f, 4);
        else if (type == QUANT_F16)
            put_f16(p, f);
        else if (type == QUANT_BF16)
            memcpy(p, &bf, 2);
        else
            set_block_scales(type, p, s, m);
    }
}

#endif
