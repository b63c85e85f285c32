// Qualifiers and vector types of CUDA C++ for the host compiler.
#ifndef HOKKU_EMU_TYPES_H
#define HOKKU_EMU_TYPES_H

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// __shared__ variables are ordinary statics (so the sanitizers guard them); the blocks of a grid
// take turns in them. emu_shared.cpp finds them in the symbol table, to poison them before each
// block and to swap them when blocks of one grid alternate. For that to hold, a kernel file has no
// other static local variable.
#define __shared__ static
#define __device__
#define __host__
#define __global__
#define __constant__
#define __grid_constant__
#define __managed__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;

#define EMU_VEC2(T, name, align)                                                                   \
    struct alignas(align) name {                                                                   \
        T x, y;                                                                                    \
    };                                                                                             \
    static inline name make_##name(T x, T y)                                                       \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define EMU_VEC3(T, name)                                                                          \
    struct name {                                                                                  \
        T x, y, z;                                                                                 \
    };                                                                                             \
    static inline name make_##name(T x, T y, T z)                                                  \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }
#define EMU_VEC4(T, name, align)                                                                   \
    struct alignas(align) name {                                                                   \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name make_##name(T x, T y, T z, T w)                                             \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

EMU_VEC2(signed char, char2, 2)
EMU_VEC4(signed char, char4, 4)
EMU_VEC2(unsigned char, uchar2, 2)
EMU_VEC4(unsigned char, uchar4, 4)
EMU_VEC2(short, short2, 4)
EMU_VEC4(short, short4, 8)
EMU_VEC2(unsigned short, ushort2, 4)
EMU_VEC4(unsigned short, ushort4, 8)
EMU_VEC2(int, int2, 8)
EMU_VEC3(int, int3)
EMU_VEC4(int, int4, 16)
EMU_VEC2(unsigned, uint2, 8)
EMU_VEC3(unsigned, uint3)
EMU_VEC4(unsigned, uint4, 16)
EMU_VEC2(long long, longlong2, 16)
EMU_VEC2(unsigned long long, ulonglong2, 16)
EMU_VEC2(float, float2, 8)
EMU_VEC3(float, float3)
EMU_VEC4(float, float4, 16)
EMU_VEC2(double, double2, 16)

#undef EMU_VEC2
#undef EMU_VEC3
#undef EMU_VEC4

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#endif
