// Rows that are still to be made when they are read: x = (from + scale * y normed) * times, see
// struct add_normed. The threads of a block have a row in eights; all who make one that way add up
// in the same order.
#ifndef HOKKU_CUDA_ADDED_CUH
#define HOKKU_CUDA_ADDED_CUH

#include "butterfly.cuh"
#include "kernels.h"
#include "quant.cuh"

// What becomes of an element; weighted: y * w.
static __device__ __forceinline__ float added(float from, float factor, float weighted, float times)
{
    return fmaf(factor, weighted, from) * times;
}

// What a thread has of a row: eights threadIdx.x + k * N_THREAD, as far as the row goes.
template <int N_THREAD, int KEEP> struct row_to_add {
    float y[KEEP][8], weight[KEEP][8], times;

    template <typename F> static __device__ __forceinline__ void each(uint32_t n_cols, F f)
    {
#pragma unroll
        for (int k = 0; k < KEEP; k++)
            if (8 * (k * N_THREAD + threadIdx.x) < n_cols)
                f(k, k * N_THREAD + threadIdx.x);
    }
    __device__ __forceinline__ void load_weights(const struct add_normed &a, uint32_t n_cols)
    {
        each(n_cols, [&](int k, uint32_t i) { load8<false>(a.norm, i, n_cols, weight[k]); });
        times = a.times ? *a.times : 1.0f;
    }
    // What the predecessor wrote.
    __device__ __forceinline__ void load(const struct add_normed &a, uint32_t row, uint32_t n_cols)
    {
        const float *const p = a.y + (size_t)row * n_cols;
        each(n_cols, [&](int k, uint32_t i) { load8<false>(p, i, n_cols, y[k]); });
    }
    // v: from, then x, which the block stores if it is told to. The whole block calls.
    __device__ __forceinline__ void add(const struct add_normed &a, uint32_t row, uint32_t n_cols,
                                        bool store, float v[KEEP][8])
    {
        constexpr int N_PART = N_THREAD / WARP;
        __shared__ float part[N_PART];
        float sum = 0.0f;
        each(n_cols, [&](int k, uint32_t) {
            for (int e = 0; e < 8; e++) {
                sum = fmaf(y[k][e], y[k][e], sum);
                y[k][e] *= weight[k][e];
            }
        });
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = sum;
        __syncthreads();
        sum = lane_sum<N_PART / 2, 1>(part[threadIdx.x % N_PART]);
        const float factor = a.scale / sqrtf(of_squares(sum / (float)n_cols + a.eps));
        float4 *const x = reinterpret_cast<float4 *>(a.x + (size_t)row * n_cols);
        each(n_cols, [&](int k, uint32_t i) {
            for (int e = 0; e < 8; e++)
                v[k][e] = added(v[k][e], factor, y[k][e], times);
            if (store) {
                x[2 * i] = make_float4(v[k][0], v[k][1], v[k][2], v[k][3]);
                x[2 * i + 1] = make_float4(v[k][4], v[k][5], v[k][6], v[k][7]);
            }
        });
    }
};

#endif
