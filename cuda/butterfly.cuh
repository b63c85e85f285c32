// What the lanes of a warp combine pairwise, until all of them have the whole.
#ifndef HOKKU_CUDA_BUTTERFLY_CUH
#define HOKKU_CUDA_BUTTERFLY_CUH

#include "cuda_common.cuh"

// x: a sum; y: the largest value, a NaN if there is one.
struct sum_and_top {
    __device__ __forceinline__ void operator()(float2 &v, float2 other) const
    {
        v.x += other.x;
        v.y = max_nan(v.y, other.y);
    }
};

// combine(v, that of lane ^ d) for d = from, from / 2 .. 1, in all lanes of the warp.
template <typename F>
static __device__ __forceinline__ void butterfly_steps(float2 &v, int from, F combine)
{
    for (int d = from; d > 0; d /= 2) {
        const float x = __shfl_xor_sync(0xFFFFFFFFu, v.x, d);
        const float y = __shfl_xor_sync(0xFFFFFFFFu, v.y, d);
        combine(v, make_float2(x, y));
    }
}

// The same. Lanes of the emulation meet once, not twice for each step, which is most of what these
// kernels take there; tests/gpu/test_rows.cu compares the two.
template <typename F>
static __device__ __forceinline__ void butterfly(float2 &v, int from, F combine)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_butterfly(v, from, combine);
#else
    butterfly_steps(v, from, combine);
#endif
}

// The sum over the lanes of a warp, which all of them get.
static __device__ __forceinline__ float warp_sum(float v)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_butterfly(v, WARP / 2, [](float &sum, float other) { sum += other; });
#else
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, d);
#endif
    return v;
}

#endif
