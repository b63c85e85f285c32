// The vector primitives that the CPU kernels are written in, so that each kernel exists once and is
// compiled once per instruction set. Every primitive gives the same bits on every instruction set
// (fused multiply-add is exact on all of them, sums have one fixed order), so the kernels do too.
//
//   v16  sixteen floats
//   b64  sixty-four bytes: two blocks of 32 quantised weights, each in the order of the row
//   w64  the same weights widened to 16 bits: even and odd elements apart (widening bytes in place
//        is two shifts; activations are stored in the matching order, see kernels.h)
#ifndef HOKKU_CPU_SIMD_H
#define HOKKU_CPU_SIMD_H

#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <math.h>

// Kernels are specialised by inlining functions with constant arguments. Plain C leaves it to the
// compiler: unrolled loops instead of vectors would only be long, and sanitizer builds take
// minutes.
#if defined(__SANITIZE_ADDRESS__) || !(defined(KERNELS_AVX512) || defined(KERNELS_AVX2))
#define INLINE static inline __attribute__((unused))
#else
#define INLINE static inline __attribute__((always_inline, unused))
#endif

INLINE uint32_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

INLINE uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

// Places in a table: numbers of one byte or of two, of which the bits of mask are taken.
struct places {
    const void *at;
    int bytes;
    uint16_t mask;
};

INLINE size_t place(struct places p, int i)
{
    size_t v = p.bytes == 1 ? ((const uint8_t *)p.at)[i]
                            : load_u16((const uint8_t *)p.at + 2 * i) & p.mask;
#ifdef HOKKU_CPU_X86
    __asm__("" : "+r"(v)); // gcc 12 moves it to a register of vectors and back
#endif
    return v;
}

// Where the bits above the lowest eight of 32 places lie: in two of 16 bytes (0x80: in none), a
// word that is so many times as much, where mask is.
struct high_bits {
    uint8_t from[64];
    uint16_t times[32], mask;
};

#if defined(KERNELS_AVX512)
#include "cpu/simd_avx512.h"
#define CPU_NAME(name) name##_avx512
#elif defined(KERNELS_AVX2)
#include "cpu/simd_avx2.h"
#define CPU_NAME(name) name##_avx2
#else
#include "cpu/simd_plain.h"
#define CPU_NAME(name) name##_plain
#endif

// e^x for every lane; below -87 it underflows to about 1e-38, above 88 it saturates. Range
// reduction to [-ln2/2, ln2/2] with a two-part ln 2, then the degree-5 minimax polynomial of Cephes
// expf (Moshier); about 1 ulp.
INLINE v16 v16_exp(v16 x)
{
    x = v16_min(v16_set1(88.0f), v16_max(v16_set1(-87.0f), x)); // in this order a NaN stays one
    const v16 magic = v16_set1(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
    v16 n = v16_sub(v16_fma(x, v16_set1(1.44269504f), magic), magic);
    v16 r = v16_fma(n, v16_set1(-0.693359375f), x);
    r = v16_fma(n, v16_set1(2.12194440e-4f), r);
    v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1f));
    p = v16_fma(p, v16_mul(r, r), v16_add(r, v16_set1(1.0f)));
    return v16_scale2(p, n);
}

// By e^2x: what is lost near 0 is absolute, and of the size of 1's last bit.
INLINE v16 v16_tanh(v16 x)
{
    const v16 one = v16_set1(1.0f);
    return v16_sub(one, v16_div(v16_set1(2.0f), v16_add(one, v16_exp(v16_add(x, x)))));
}

#endif
