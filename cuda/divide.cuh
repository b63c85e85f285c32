// Divisions that the host prepares: kernels that begin some hundred times a token cannot wait for
// those that the device makes of some twenty instructions.
#ifndef HOKKU_CUDA_DIVIDE_CUH
#define HOKKU_CUDA_DIVIDE_CUH

#include "cuda_common.cuh"

// x / d. Made by divisor_of.
struct divisor {
    uint32_t low, high; // of 2^64 / d, upwards; 0 where d is 1
    uint32_t one;       // d is 1

    // x * 2^64 / d is too large by less than x, which is less than 2^32: the quotient is exact.
    __device__ __forceinline__ uint32_t divide(uint32_t x) const
    {
        return (uint32_t)(((uint64_t)x * high + __umulhi(x, low)) >> 32) + x * one;
    }
    __device__ __forceinline__ uint32_t rest(uint32_t x, uint32_t d) const
    {
        return x - divide(x) * d;
    }
};

static inline struct divisor divisor_of(uint32_t d)
{
    const uint64_t inverse = d > 1 ? UINT64_MAX / d + 1 : 0;
    return {(uint32_t)inverse, (uint32_t)(inverse >> 32), d <= 1};
}

// Which of n < N runs, which lie one behind the other, x is in. first: where each begins, and where
// the last one ends; *begin: where that one begins. (A loop that ends sooner would look them up by
// a number that it has to wait for.)
template <size_t N>
static __device__ __forceinline__ uint32_t run_of(const uint32_t (&first)[N], uint32_t n,
                                                  uint32_t x, uint32_t *begin)
{
    uint32_t run = 0;
    *begin = 0;
#pragma unroll
    for (uint32_t i = 1; i + 1 < N; i++)
        if (i < n && x >= first[i]) {
            run = i;
            *begin = first[i];
        }
    return run;
}

// A number of things in equal parts, or nearly.
struct shares {
    uint32_t each, left; // `left` parts have one more
    uint32_t inverse;    // 2^32 / parts, upwards; 0 where there is one part

    // Where part i begins: things * i / parts. left * i is less than parts^2, what the inverse is
    // too large by makes less than that / 2^32 of it, so less than 1 / parts.
    __device__ __forceinline__ uint32_t begin(uint32_t i) const
    {
        return each * i + __umulhi(left * i, inverse);
    }
};

enum {
    SHARES_MOST = 1600 // parts: its cube is less than 2^32
};

static inline struct shares shares_of(uint32_t things, uint32_t parts)
{
    return {things / parts, things % parts, parts > 1 ? UINT32_MAX / parts + 1 : 0};
}

#endif
