// Products of one token, for the weight types that gain by another shape than matmul.c's:
// decode_avx2.c, decode_avx512.c.
#ifndef HOKKU_CPU_DECODE_H
#define HOKKU_CPU_DECODE_H

#include "cpu/kernels.h"
#include "cpu/simd.h"

enum {
    DECODE_MOST_BLOCKS = 128, // of 256 columns: their activations lie on the stack
    DECODE_REST_BYTES = 256   // room for as many weights as are unpacked at a time
};

// Rows [row0, row1) of a product with m->n_tok 1, to the same bits as matmul.c; false: nothing is
// done, since the type or the shape is not one of these, or has more columns.
bool CPU_NAME(decode_rows)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1);

#endif
