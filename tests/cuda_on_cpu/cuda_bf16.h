// Shadows the toolkit's <cuda_bf16.h>.
#ifndef HOKKU_EMU_CUDA_BF16_H
#define HOKKU_EMU_CUDA_BF16_H

#include "emu_half.h"

typedef emu_f16<emu_bfloat16> __nv_bfloat16;
typedef emu_f16x2<emu_bfloat16> __nv_bfloat162;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return h;
}
static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __nv_bfloat16(f);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    return __nv_bfloat16(f);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 f)
{
    return {__nv_bfloat16(f.x), __nv_bfloat16(f.y)};
}
static inline __nv_bfloat162 __float2bfloat162_rn(float f)
{
    return {__nv_bfloat16(f), __nv_bfloat16(f)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return make_float2(h.x, h.y);
}
static inline float __low2float(__nv_bfloat162 h)
{
    return h.x;
}
static inline float __high2float(__nv_bfloat162 h)
{
    return h.y;
}
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h)
{
    return {h, h};
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return {a, b};
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short b)
{
    return emu_f16_from_bits<emu_bfloat16>(b);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}

#endif
