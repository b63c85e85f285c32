// binary16 and bfloat16: storage types whose arithmetic is done in float and rounded back to
// nearest even, as the instructions of a GPU do.
#ifndef HOKKU_EMU_HALF_H
#define HOKKU_EMU_HALF_H

#include "emu_types.h"

static inline float emu_bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t emu_float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

struct emu_binary16 { // 1 sign, 5 exponent, 10 fraction bits
    static float widen(uint16_t h)
    {
        uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 0x3FF;
        if (exp == 31)
            return emu_bits_float(sign | 0x7F800000u | frac << 13);
        if (exp == 0) { // subnormal: frac * 2^-24, exact in float
            float v = (float)frac * 5.9604644775390625e-8f;
            return sign ? -v : v;
        }
        return emu_bits_float(sign | (exp + 112) << 23 | frac << 13);
    }
    static uint16_t narrow(float f)
    {
        uint32_t u = emu_float_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
        if (a > 0x7F800000u) // the GPU's canonical NaN
            return 0x7FFF;
        if (a >= 0x477FF000u) // >= 65520 rounds to infinity
            return (uint16_t)(sign | 0x7C00);
        if (a < 0x38800000u) { // below 2^-14: a multiple of 2^-24, rounded by the addition
            float r = emu_bits_float(a) + 0.5f;
            return (uint16_t)(sign | (emu_float_bits(r) - 0x3F000000u));
        }
        uint32_t r = a + 0xFFF + (a >> 13 & 1);
        return (uint16_t)(sign | ((r >> 13) - (112 << 10)));
    }
};

struct emu_bfloat16 { // the upper half of a float
    static float widen(uint16_t h)
    {
        return emu_bits_float((uint32_t)h << 16);
    }
    static uint16_t narrow(float f)
    {
        uint32_t u = emu_float_bits(f);
        if ((u & 0x7FFFFFFF) > 0x7F800000u)
            return 0x7FFF;
        return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
    }
};

template <typename F> struct emu_f16 {
    uint16_t bits;
    emu_f16() = default;
    emu_f16(float f) : bits(F::narrow(f))
    {
    }
    emu_f16(double d) : bits(F::narrow((float)d))
    {
    }
    emu_f16(int i) : bits(F::narrow((float)i))
    {
    }
    operator float() const
    {
        return F::widen(bits);
    }
};
template <typename F> struct alignas(4) emu_f16x2 {
    emu_f16<F> x, y;
    emu_f16x2() = default;
    emu_f16x2(emu_f16<F> a, emu_f16<F> b) : x(a), y(b)
    {
    }
};

template <typename F> static inline emu_f16<F> emu_f16_from_bits(uint16_t b)
{
    emu_f16<F> h;
    h.bits = b;
    return h;
}

#define EMU_F16_BINARY(name, expr)                                                                 \
    template <typename F> static inline emu_f16<F> name(emu_f16<F> ha, emu_f16<F> hb)              \
    {                                                                                              \
        float a = ha, b = hb;                                                                      \
        return emu_f16<F>(expr);                                                                   \
    }                                                                                              \
    template <typename F> static inline emu_f16x2<F> name##2(emu_f16x2<F> a, emu_f16x2<F> b)       \
    {                                                                                              \
        return {name(a.x, b.x), name(a.y, b.y)};                                                   \
    }
EMU_F16_BINARY(__hadd, a + b)
EMU_F16_BINARY(__hsub, a - b)
EMU_F16_BINARY(__hmul, a *b)
EMU_F16_BINARY(__hmax, fmaxf(a, b))
EMU_F16_BINARY(__hmin, fminf(a, b))
#undef EMU_F16_BINARY

template <typename F> static inline emu_f16<F> __hdiv(emu_f16<F> a, emu_f16<F> b)
{
    return emu_f16<F>((float)a / (float)b);
}
template <typename F> static inline emu_f16<F> __hneg(emu_f16<F> a)
{
    return emu_f16_from_bits<F>(a.bits ^ 0x8000);
}
template <typename F> static inline emu_f16x2<F> __hneg2(emu_f16x2<F> a)
{
    return {__hneg(a.x), __hneg(a.y)};
}
template <typename F> static inline emu_f16<F> __habs(emu_f16<F> a)
{
    return emu_f16_from_bits<F>(a.bits & 0x7FFF);
}
template <typename F> static inline emu_f16<F> __hfma(emu_f16<F> a, emu_f16<F> b, emu_f16<F> c)
{
    return emu_f16<F>((float)((double)(float)a * (double)(float)b + (double)(float)c));
}
template <typename F>
static inline emu_f16x2<F> __hfma2(emu_f16x2<F> a, emu_f16x2<F> b, emu_f16x2<F> c)
{
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <typename F> static inline int __hisnan(emu_f16<F> a)
{
    return (float)a != (float)a;
}

#endif
