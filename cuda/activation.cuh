// What a feed-forward makes of its inner values, once for all kernels: x times the logistic
// function of x (SiLU, Elfwing et al. 2017) or of a polynomial of x (GELU, Hendrycks & Gimpel 2016,
// in its tanh form: (1 + tanh(z)) / 2 is the logistic function of 2 z). These two are never larger
// than x: the ranges of float16 rely on that (range.cu).
#ifndef HOKKU_CUDA_ACTIVATION_CUH
#define HOKKU_CUDA_ACTIVATION_CUH

#include "cuda_common.cuh"
#include "model/model.h"

// ACT_SILU and ACT_GELU_TANH.
static __device__ __forceinline__ float activate(enum activation act, float x)
{
    float z = x;
    if (act == ACT_GELU_TANH) // 2 sqrt(2 / pi) (x + 0.044715 x^3)
        z = x * fmaf(0.0713548163f, x * x, 1.5957691216f);
    return __fdividef(x, 1.0f + __expf(-z));
}

// Those too that may be larger than x, or that are never made at once with a product.
static __device__ __forceinline__ float activate_any(enum activation act, const struct xielu &p,
                                                     float x)
{
    const float above = x > 0.0f ? x : 0.0f * x; // no number stays none
    if (act == ACT_RELU_SQR)
        return above * above;
    if (act == ACT_GELU)
        return 0.5f * x * erfcf(-0.7071067812f * x);
    if (act == ACT_XIELU)
        return x > 0.0f ? x * fmaf(p.p, x, p.beta)
                        : fmaf(p.n, expm1f(fminf(x, p.eps)) - x, p.beta * x);
    if (act == ACT_CLAMPED_SWIGLU) {
        const float a = x > 7.0f ? 7.0f : x;
        return __fdividef(a, 1.0f + __expf(-1.702f * a));
    }
    return activate(act, x);
}

// act(gate) * up, for any of them.
static __device__ __forceinline__ float gated(enum activation act, const struct xielu &p,
                                              float gate, float up)
{
    if (act == ACT_CLAMPED_SWIGLU) // what is not a number stays so
        up = (up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up) + 1.0f;
    return activate_any(act, p, gate) * up;
}

#endif
