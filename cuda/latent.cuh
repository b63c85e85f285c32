// What is done to the queries of latent attention, whichever way they go (struct latent_rows).
#ifndef HOKKU_CUDA_LATENT_CUH
#define HOKKU_CUDA_LATENT_CUH

#include "kernels.h"

// Number k of the n_rotated at x, turned.
static __device__ __forceinline__ float latent_turned(const struct latent_rows &l, uint32_t token,
                                                      const float *x, uint32_t k)
{
    const uint32_t n_pair = l.n_rotated / 2, pair = l.rope_halves ? k % n_pair : k / 2;
    const bool second = l.rope_halves ? k >= n_pair : k % 2;
    const float2 t = l.rope[(size_t)token * n_pair + pair];
    const float a = x[l.rope_halves ? pair : 2 * pair];
    const float b = x[l.rope_halves ? pair + n_pair : 2 * pair + 1];
    return second ? a * t.y + b * t.x : a * t.x - b * t.y;
}

// What queries of the token at `position` are times.
static __device__ __forceinline__ float latent_temperature(const struct latent_rows &l,
                                                           uint32_t position)
{
    return l.temp_scale == 0.0f
               ? 1.0f
               : fmaf(l.temp_scale, logf(1.0f + (float)((position + l.temp_offset) / l.temp_len)),
                      1.0f);
}

#endif
