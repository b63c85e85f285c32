// Random weight blocks of every type, from a fixed sequence.
#ifndef HOKKU_TESTS_UNIT_RANDOM_WEIGHTS_H
#define HOKKU_TESTS_UNIT_RANDOM_WEIGHTS_H

#include "test.h"

#include "base/rng.h"
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

// Random bits make any block valid except for the half-precision scales, which could be NaN.
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
        switch (type) {
        case QUANT_F32:
            memcpy(p, &f, 4);
            break;
        case QUANT_F16:
            put_f16(p, f);
            break;
        case QUANT_BF16:
            memcpy(p, &bf, 2);
            break;
        case QUANT_Q4_1:
        case QUANT_Q5_1:
        case QUANT_Q4_K:
        case QUANT_Q5_K:
            put_f16(p, s);
            put_f16(p + 2, m);
            break;
        case QUANT_Q2_K:
            put_f16(p + 80, s);
            put_f16(p + 82, m);
            break;
        case QUANT_Q3_K:
            put_f16(p + 108, s);
            break;
        case QUANT_Q6_K:
            put_f16(p + 208, s);
            break;
        default:
            put_f16(p, s);
        }
    }
}

#endif
