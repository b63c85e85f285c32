// A counter-based random number generator: Philox4x32-10 (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). A number is a pure function of (seed, position, index), so the
// same seed gives the same choice at the same position however the caller got there, on the host
// and on a GPU.
#ifndef HOKKU_BASE_RNG_H
#define HOKKU_BASE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define RNG_FN static __host__ __device__ inline
#else
#define RNG_FN static inline
#endif

// Four random 32-bit words for counter ctr and key.
RNG_FN void rng_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// 64 random bits: draw number `index` for the token at `position` under `seed`.
RNG_FN uint64_t rng_u64(uint64_t seed, uint64_t position, uint32_t index)
{
    const uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), index, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    rng_philox(ctr, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

#endif
