// Rows of activations as expert_few.cu multiplies them: pieces of eight float16 values, times the
// row's power of two (half_range). experts.cu makes them, or else who multiplies them does.
#ifndef HOKKU_CUDA_FEW_ROWS_CUH
#define HOKKU_CUDA_FEW_ROWS_CUH

#include "experts.h"
#include "ptx.cuh"

enum { FEW_STEP_PIECES = GEMM_PACK_COLS / 8 };

// Where the eight values from 8 i on are, as the lanes of a matrix product take them: of a step's
// chunk t of 32 elements piece 4 i + t has 8 i and up.
static __device__ __forceinline__ uint32_t few_piece_at(uint32_t i)
{
    return i / FEW_STEP_PIECES * FEW_STEP_PIECES + i % 4 * 4 + i / 4 % 4;
}

// Of each four of them the first and the third before the others.
static __device__ __forceinline__ uint4 few_piece(const float v[8], float scale)
{
    return make_uint4(
        saturated_half2(v[0] * scale, v[2] * scale), saturated_half2(v[1] * scale, v[3] * scale),
        saturated_half2(v[4] * scale, v[6] * scale), saturated_half2(v[5] * scale, v[7] * scale));
}

#endif
