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
    emu_butterfly(v, from, 1, combine);
#else
    butterfly_steps(v, from, combine);
#endif
}

// combine(v, that of lane ^ d) for d = FROM .. TO, each half the one before or twice as much, in
// all lanes of the warp. Here, too, lanes of the emulation meet once.
template <int FROM, int TO, typename T, typename F>
static __device__ __forceinline__ T over_lanes(T v, F combine)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_butterfly(v, FROM, TO, combine);
#else
#pragma unroll
    for (int d = FROM; FROM < TO ? d <= TO : d >= TO; d = FROM < TO ? 2 * d : d / 2)
        combine(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
#endif
    return v;
}

// Over groups of lanes, or over the warp: every lane gets it.
template <int FROM, int TO, typename T> static __device__ __forceinline__ T lane_sum(T v)
{
    return over_lanes<FROM, TO>(v, [](T &sum, T other) { sum += other; });
}
// Of N values each.
template <int FROM, int TO, int N> static __device__ __forceinline__ void lane_sums(float (&v)[N])
{
#ifdef HOKKU_CUDA_ON_CPU
    struct all {
        float v[N];
    };
    emu_butterfly(reinterpret_cast<all &>(v), FROM, TO, [](all &sum, const all &other) {
        for (int i = 0; i < N; i++)
            sum.v[i] += other.v[i];
    });
#else
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = lane_sum<FROM, TO>(v[i]);
#endif
}
template <int FROM, int TO> static __device__ __forceinline__ float lane_max(float v)
{
    return over_lanes<FROM, TO>(v, [](float &top, float other) { top = fmaxf(top, other); });
}
template <int FROM, int TO>
static __device__ __forceinline__ float lane_max_nan(float v) // NaN when any is
{
    return over_lanes<FROM, TO>(v, [](float &top, float other) { top = max_nan(top, other); });
}
static __device__ __forceinline__ float warp_sum(float v)
{
    return lane_sum<WARP / 2, 1>(v);
}
static __device__ __forceinline__ float warp_max(float v)
{
    return lane_max<WARP / 2, 1>(v);
}
static __device__ __forceinline__ float warp_max_nan(float v)
{
    return lane_max_nan<WARP / 2, 1>(v);
}

#endif
