// Shadows the toolkit's <cuda_fp16.h>.
#ifndef HOKKU_EMU_CUDA_FP16_H
#define HOKKU_EMU_CUDA_FP16_H

#include "emu_half.h"

typedef emu_f16<emu_binary16> __half;
typedef emu_f16x2<emu_binary16> __half2;
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

static inline float __half2float(__half h)
{
    return h;
}
static inline __half __float2half(float f)
{
    return __half(f);
}
static inline __half __float2half_rn(float f)
{
    return __half(f);
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return {__half(a), __half(b)};
}
static inline __half2 __float22half2_rn(float2 f)
{
    return {__half(f.x), __half(f.y)};
}
static inline __half2 __float2half2_rn(float f)
{
    return {__half(f), __half(f)};
}
static inline float2 __half22float2(__half2 h)
{
    return make_float2(h.x, h.y);
}
static inline float __low2float(__half2 h)
{
    return h.x;
}
static inline float __high2float(__half2 h)
{
    return h.y;
}
static inline __half __low2half(__half2 h)
{
    return h.x;
}
static inline __half __high2half(__half2 h)
{
    return h.y;
}
static inline __half2 __half2half2(__half h)
{
    return {h, h};
}
static inline __half2 __halves2half2(__half a, __half b)
{
    return {a, b};
}
static inline __half2 make_half2(__half a, __half b)
{
    return {a, b};
}
static inline __half __ushort_as_half(unsigned short b)
{
    return emu_f16_from_bits<emu_binary16>(b);
}
static inline __half __short_as_half(short b)
{
    return emu_f16_from_bits<emu_binary16>((uint16_t)b);
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
static inline short __half_as_short(__half h)
{
    return (short)h.bits;
}
static inline int __half2int_rn(__half h)
{
    return (int)nearbyintf(h);
}
static inline __half __int2half_rn(int i)
{
    return __half((float)i);
}

#endif
