// Products of floats by matrix instructions: each factor is a high and a low bfloat16, whose three
// larger products are added in float. Some 16 bits of it, and the range of a float.
#ifndef HOKKU_CUDA_SPLIT_CUH
#define HOKKU_CUDA_SPLIT_CUH

#include "cuda_common.cuh"

struct two_parts {
    uint32_t high, low; // two numbers each
};

static __device__ __forceinline__ two_parts parts_of(float x, float y)
{
    const uint32_t high = bf16x2(x, y);
    return {high, bf16x2(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xFFFF0000u))};
}

// What multiplies from the left and from the right, see mma_bf16.
struct left {
    uint32_t high[4], low[4];
};
struct right {
    uint32_t high[2], low[2];
};

// Sums of a matrix instruction as what multiplies from the right.
static __device__ __forceinline__ right right_of(const float (&sum)[4])
{
    right r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const two_parts p = parts_of(sum[2 * i], sum[2 * i + 1]);
        r.high[i] = transposed(p.high);
        r.low[i] = transposed(p.low);
    }
    return r;
}

static __device__ __forceinline__ void multiply(float (&sum)[4], const left &a, const right &b)
{
    mma_bf16(sum, a.low, b.high);
    mma_bf16(sum, a.high, b.low);
    mma_bf16(sum, a.high, b.high);
}

// The same in two sums, of which the second has the smaller products: its instructions do not wait
// for those of the first.
static __device__ __forceinline__ void multiply(float (&sum)[4], float (&low)[4], const left &a,
                                                const right &b)
{
    mma_bf16(sum, a.high, b.high);
    mma_bf16(low, a.low, b.high);
    mma_bf16(low, a.high, b.low);
}

// The sums of 16 columns += the product with what `high` and `low` have of them.
static __device__ __forceinline__ void multiply(float (&first)[4], float (&next)[4], const left &a,
                                                const uint32_t (&high)[4], const uint32_t (&low)[4])
{
    mma_bf16(first, a.low, high);
    mma_bf16(next, a.low, high + 2);
    mma_bf16(first, a.high, low);
    mma_bf16(next, a.high, low + 2);
    mma_bf16(first, a.high, high);
    mma_bf16(next, a.high, high + 2);
}

#endif
