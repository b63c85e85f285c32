// Products of one token with AVX2, for the weight types that gain by another shape than matmul.c's.
#ifndef HOKKU_CPU_DECODE_AVX2_H
#define HOKKU_CPU_DECODE_AVX2_H

#include "cpu/kernels.h"

// Rows [row0, row1) of a product with m->n_tok 1, to the same bits as matmul.c; false: nothing is
// done, since the type or the shape is not one of these.
bool decode_rows_avx2(const struct cpu_matmul *m, uint32_t row0, uint32_t row1);

#endif
