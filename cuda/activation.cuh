// What a feed-forward makes of its inner values, once for all kernels: x times the logistic
// function of x (SiLU, Elfwing et al. 2017) or of a polynomial of x (GELU, Hendrycks & Gimpel 2016,
// in its tanh form: (1 + tanh(z)) / 2 is the logistic function of 2 z). Never larger than x: the
// ranges of float16 rely on that (range.cu).
#ifndef HOKKU_CUDA_ACTIVATION_CUH
#define HOKKU_CUDA_ACTIVATION_CUH

#include "cuda_common.cuh"
#include "model/model.h"

static __device__ __forceinline__ float activate(enum activation act, float x)
{
    float z = x;
    if (act == ACT_GELU_TANH) // 2 sqrt(2 / pi) (x + 0.044715 x^3)
        z = x * fmaf(0.0713548163f, x * x, 1.5957691216f);
    return __fdividef(x, 1.0f + __expf(-z));
}

#endif
