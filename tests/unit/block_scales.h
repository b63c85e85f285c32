// The scale of a weight block, wherever its type keeps it.
#ifndef HOKKU_TESTS_UNIT_BLOCK_SCALES_H
#define HOKKU_TESTS_UNIT_BLOCK_SCALES_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "gguf/quant.h"

// Sets the scale of a quantised block to about d (types without a sign: its magnitude), and that of
// its minima, or its minimum, to m. Random bits for the rest make any block a valid one.
static inline void set_block_scales(uint32_t type, uint8_t *block, float d, float m)
{
    size_t at = 0, min_at = 2;
    if (type == QUANT_Q2_K)
        at = offsetof(struct block_q2_k, d), min_at = offsetof(struct block_q2_k, dmin);
    else if (type == QUANT_Q3_K)
        at = offsetof(struct block_q3_k, d);
    else if (type == QUANT_Q6_K)
        at = offsetof(struct block_q6_k, d);
    else if (type == QUANT_TQ1_0)
        at = offsetof(struct block_tq1_0, d);
    else if (type == QUANT_TQ2_0)
        at = offsetof(struct block_tq2_0, d);
    const uint16_t half = quant_f32_to_f16(d), half_m = quant_f32_to_f16(m);
    if (type == QUANT_MXFP4) {
        block[0] = (uint8_t)(127 + ilogbf(fabsf(d) + 1e-10f));
    } else if (type == QUANT_NVFP4) { // not beyond 1/8 or so
        for (int i = 0; i < 4; i++)
            block[i] = (uint8_t)((block[i] & 7) | (3 - i % 3) << 3);
    } else if (type == QUANT_IQ1_M) {
        struct block_iq1_m *b = (struct block_iq1_m *)block;
        for (int i = 0; i < 4; i++)
            b->scales[2 * i + 1] =
                (uint8_t)((b->scales[2 * i + 1] & 15) | (half >> 4 * i & 15) << 4);
    } else {
        memcpy(block + at, &half, 2);
        if (block_facts(type).minimum)
            memcpy(block + min_at, &half_m, 2);
    }
}

#endif
