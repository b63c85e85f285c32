// Where results of matrix products go.
#ifndef HOKKU_CPU_PUT_H
#define HOKKU_CPU_PUT_H

#include "cpu/kernels.h"
#include "cpu/simd.h"

// The results of n rows from `row` on; changes value.
INLINE void put_few(const struct cpu_matmul *m, uint32_t row, uint32_t n, size_t tok, float *value)
{
    float *y = m->y + tok * m->y_stride + row;
    const float scale = m->w->scale ? *m->w->scale : 1.0f;
    for (uint32_t i = 0; m->w->scale && i < n; i++)
        value[i] *= scale;
    for (uint32_t i = 0; m->bias && i < n; i++)
        value[i] += m->bias[row + i];
    for (uint32_t i = 0; m->accumulate && i < n; i++)
        value[i] = y[i] + value[i];
    memcpy(y, value, n * sizeof *y);
}

INLINE void put(const struct cpu_matmul *m, uint32_t row, size_t tok, float value)
{
    put_few(m, row, 1, tok, &value);
}

// One token is bound by reading weights, and the processor's own read-ahead ends with each page:
// so far ahead they are asked for.
enum { AHEAD = 8192 };

// Asks for n_bytes at p, which may lie beyond what there is, into the second cache: in the first
// one they would take the place of activations, 20 KB of 8,192 columns.
INLINE void fetch(const uint8_t *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

#endif
