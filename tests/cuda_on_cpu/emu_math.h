// Arithmetic intrinsics of device code.
#ifndef HOKKU_EMU_MATH_H
#define HOKKU_EMU_MATH_H

#include "emu_types.h"

#define EMU_BITS(name, To, From)                                                                   \
    static inline To name(From v)                                                                  \
    {                                                                                              \
        To r;                                                                                      \
        memcpy(&r, &v, sizeof r);                                                                  \
        return r;                                                                                  \
    }
EMU_BITS(__float_as_int, int, float)
EMU_BITS(__float_as_uint, unsigned, float)
EMU_BITS(__int_as_float, float, int)
EMU_BITS(__uint_as_float, float, unsigned)
EMU_BITS(__double_as_longlong, long long, double)
EMU_BITS(__longlong_as_double, double, long long)
#undef EMU_BITS

// CUDA's overloads of min and max.
#define EMU_MINMAX(R, A, B)                                                                        \
    static inline R min(A a, B b)                                                                  \
    {                                                                                              \
        return (R)a < (R)b ? (R)a : (R)b;                                                          \
    }                                                                                              \
    static inline R max(A a, B b)                                                                  \
    {                                                                                              \
        return (R)a > (R)b ? (R)a : (R)b;                                                          \
    }
EMU_MINMAX(int, int, int)
EMU_MINMAX(unsigned, unsigned, unsigned)
EMU_MINMAX(unsigned, int, unsigned)
EMU_MINMAX(unsigned, unsigned, int)
EMU_MINMAX(long, long, long)
EMU_MINMAX(unsigned long, unsigned long, unsigned long)
EMU_MINMAX(unsigned long, long, unsigned long)
EMU_MINMAX(unsigned long, unsigned long, long)
EMU_MINMAX(long long, long long, long long)
EMU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
EMU_MINMAX(double, double, double)
#undef EMU_MINMAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

// Bits.
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
static inline int __clz(int v)
{
    return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __clzll(long long v)
{
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
static inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (v >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned sel = s >> (4 * i) & 0xF, byte = (unsigned)(bytes >> (8 * (sel & 7))) & 0xFF;
        if (sel & 8)
            byte = byte & 0x80 ? 0xFF : 0;
        r |= byte << (8 * i);
    }
    return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Byte-wise SIMD and dot products. Unsigned arithmetic: a GPU wraps.
static inline int emu_s8(unsigned v, int i)
{
    return (int8_t)(v >> (8 * i));
}
static inline int emu_u8(unsigned v, int i)
{
    return (uint8_t)(v >> (8 * i));
}
static inline int emu_s16(unsigned v, int i)
{
    return (int16_t)(v >> (16 * i));
}
static inline int __dp4a(int a, int b, int c)
{
    unsigned r = (unsigned)c;
    for (int i = 0; i < 4; i++)
        r += (unsigned)(emu_s8((unsigned)a, i) * emu_s8((unsigned)b, i));
    return (int)r;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++)
        c += (unsigned)(emu_u8(a, i) * emu_u8(b, i));
    return c;
}
static inline int emu_dp4a_us(unsigned a, int b, int c)
{
    unsigned r = (unsigned)c;
    for (int i = 0; i < 4; i++)
        r += (unsigned)((int)emu_u8(a, i) * emu_s8((unsigned)b, i));
    return (int)r;
}
static inline int __dp2a_lo(int a, int b, int c)
{
    unsigned r = (unsigned)c;
    for (int i = 0; i < 2; i++)
        r += (unsigned)(emu_s16((unsigned)a, i) * emu_s8((unsigned)b, i));
    return (int)r;
}
static inline int __dp2a_hi(int a, int b, int c)
{
    unsigned r = (unsigned)c;
    for (int i = 0; i < 2; i++)
        r += (unsigned)(emu_s16((unsigned)a, i) * emu_s8((unsigned)b, 2 + i));
    return (int)r;
}
#define EMU_SIMD4(name, get, expr)                                                                 \
    static inline unsigned name(unsigned va, unsigned vb)                                          \
    {                                                                                              \
        unsigned r = 0;                                                                            \
        for (int i = 0; i < 4; i++) {                                                              \
            int a = get(va, i), b = get(vb, i);                                                    \
            r |= ((unsigned)(expr)&0xFFu) << (8 * i);                                              \
        }                                                                                          \
        return r;                                                                                  \
    }
EMU_SIMD4(__vadd4, emu_u8, a + b)
EMU_SIMD4(__vsub4, emu_u8, a - b)
EMU_SIMD4(__vsubss4, emu_s8, a - b < -128 ? -128 : a - b > 127 ? 127 : a - b)
EMU_SIMD4(__vaddss4, emu_s8, a + b < -128 ? -128 : a + b > 127 ? 127 : a + b)
EMU_SIMD4(__vcmpeq4, emu_u8, a == b ? 0xFF : 0)
EMU_SIMD4(__vcmpne4, emu_u8, a != b ? 0xFF : 0)
EMU_SIMD4(__vmins4, emu_s8, a < b ? a : b)
EMU_SIMD4(__vmaxs4, emu_s8, a > b ? a : b)
#undef EMU_SIMD4
static inline unsigned __vmaxu2(unsigned a, unsigned b)
{
    return ((a & 0xFFFFu) > (b & 0xFFFFu) ? a & 0xFFFFu : b & 0xFFFFu) |
           (a >> 16 > b >> 16 ? a & 0xFFFF0000u : b & 0xFFFF0000u);
}
static inline unsigned __vabs4(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= ((unsigned)(emu_s8(v, i) < 0 ? -emu_s8(v, i) : emu_s8(v, i)) & 0xFFu) << (8 * i);
    return r;
}
static inline unsigned __vneg4(unsigned v)
{
    return __vsub4(0, v);
}

// Floats. The fast versions are the exact ones here: tests compare within tolerances, and what must
// be bit-equal uses none of them.
// (Macros, because glibc's <math.h> declares these names.)
#define rsqrtf(x)          (1.0f / sqrtf(x))
#define __expf(x)          expf(x)
#define __exp10f(x)        powf(10.0f, (x))
#define __logf(x)          logf(x)
#define __log2f(x)         log2f(x)
#define __log10f(x)        log10f(x)
#define __powf(x, y)       powf((x), (y))
#define __sinf(x)          sinf(x)
#define __cosf(x)          cosf(x)
#define __tanhf(x)         tanhf(x)
#define __sincosf(x, s, c) sincosf((x), (s), (c))
static inline void sincospif(float x, float *s, float *c) // of pi x
{
    *s = (float)sin(M_PI * (double)x);
    *c = (float)cos(M_PI * (double)x);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
// Conversions saturate and turn NaN into 0, as on a GPU.
static inline int emu_to_int(double x)
{
    return x != x ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int)x;
}
static inline int __float2int_rn(float x)
{
    return emu_to_int(nearbyint((double)x));
}
static inline int __float2int_rz(float x)
{
    return emu_to_int(trunc((double)x));
}
static inline int __float2int_rd(float x)
{
    return emu_to_int(floor((double)x));
}
static inline int __float2int_ru(float x)
{
    return emu_to_int(ceil((double)x));
}
static inline unsigned __float2uint_rn(float x)
{
    double r = nearbyint((double)x);
    return !(r > 0) ? 0u : r >= 4294967295.0 ? UINT32_MAX : (unsigned)r;
}
static inline unsigned __float2uint_rz(float x)
{
    double r = trunc((double)x);
    return !(r > 0) ? 0u : r >= 4294967295.0 ? UINT32_MAX : (unsigned)r;
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

// Cached and streaming loads and stores are loads and stores.
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldca(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <typename T> static inline void __stcg(T *p, T v)
{
    *p = v;
}
template <typename T> static inline void __stwt(T *p, T v)
{
    *p = v;
}

void emu_yield(void);
static inline void __nanosleep(unsigned)
{
    emu_yield();
}
long long clock64(void);
[[noreturn]] void __trap(void);
#endif
