// How much more of a weight type is moved than its file has.
#ifndef HOKKU_TESTS_GPU_MOVED_H
#define HOKKU_TESTS_GPU_MOVED_H

#include "gguf/quant.h"

// At most so many times the file's bytes: 5 % more, but for types that are widened to codes.
static inline double most_moved(uint32_t type)
{
    switch (type) {
    case QUANT_IQ1_S:
        return 2.29;
    case QUANT_IQ1_M:
        return 2.04;
    case QUANT_IQ2_XXS:
        return 1.73;
    case QUANT_IQ2_XS:
        return 1.55;
    case QUANT_IQ2_S:
        return 1.4;
    case QUANT_IQ3_XXS:
        return 1.41;
    case QUANT_IQ3_S:
        return 1.26;
    case QUANT_Q1_0:
        return 2.23;
    case QUANT_Q2_0:
        return 1.12;
    case QUANT_TQ1_0:
        return 1.49;
    case QUANT_TQ2_0:
        return 1.22;
    }
    return 1.05;
}

#endif
