// The grids of weight types (gguf/grids.h) with a byte for each weight: one load takes eight
// weights, or four, of which only the signs are missing. 34 KB in all, 1 to 16 of a type.
#ifndef HOKKU_CPU_GRIDS_H
#define HOKKU_CPU_GRIDS_H

#include <stdint.h>

struct cpu_grids {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024];
    uint64_t iq1[2048]; // with deltas of +1/8; times 8
    uint32_t iq3_xxs[256], iq3_s[512];
    uint32_t q2_0[256]; // what a byte of four weights stands for
};

extern struct cpu_grids cpu_grids;

// Before the first use of kernels; several threads may.
void cpu_grids_expand(void);

#endif
