// The weight types as kernels see them: loading one chunk of layout.h, unpacking it into dp4a words
// or floats, and its product with activations.
//
// Activations are quantised once per input to 16-bit fixed point with one scale per 32 values: x =
// scale * (256 * hi + lo), both planes signed bytes, so that two dp4a per four weights give the
// exact integer sum. With 8 bits the rounding of activations would dominate the error of every
// type above 4 bits; 16 bits cost instructions but no bytes of weights, and decode waits for those.
#ifndef HOKKU_CUDA_QUANT_CUH
#define HOKKU_CUDA_QUANT_CUH

#include "butterfly.cuh"
#include "cuda_common.cuh"
#include "layout.h"

// 32 quantised activations.
struct __align__(16) act32
{
    uint4 hi[2], lo[2]; // signed bytes, element order
    float scale;
    float sum[2];  // sum of the 16 values of each half (scale applied), for the minimum of a block
    int32_t total; // sum of the integers, for levels that are lifted
};

static_assert(sizeof(act32) == 80, "a stride of 20 words keeps four chunks in different banks");

static __device__ __forceinline__ float half_bits(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

// Small integers as floats in two instructions of full rate; the conversion instruction for bytes
// has a quarter of it.
static __device__ __forceinline__ float u8_float(uint32_t byte)
{
    return __uint_as_float(0x4B000000u | byte) - 8388608.0f; // 2^23 + byte, exactly
}

static __device__ __forceinline__ float s8_float(uint32_t byte)
{
    return __uint_as_float(0x4B000000u | (byte ^ 0x80u)) - 8388736.0f;
}

static __device__ __forceinline__ float bf16_bits(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

// What the codes of a type stand for. 2-bit codes with a high bit of their own have eight levels.
#define LEVELS_OF(list)                                                                            \
    {                                                                                              \
        list                                                                                       \
    }
template <uint32_t TYPE> struct levels {
    static constexpr int N = 0;
};
template <> struct levels<QUANT_IQ4_NL> {
    static constexpr int N = 16, LEVEL[N] = {IQ4_LEVELS};
};
template <> struct levels<QUANT_IQ4_XS> : levels<QUANT_IQ4_NL> {
};
template <> struct levels<QUANT_MXFP4> {
    static constexpr int N = 16, LEVEL[N] = {E2M1_LEVELS};
};
template <> struct levels<QUANT_NVFP4> : levels<QUANT_MXFP4> {
};
template <> struct levels<QUANT_IQ3_XXS> { // the high bit of the code is the sign
    static constexpr int N = 16, LEVEL[N] = {4,  12,  20,  28,  36,  44,  52,  62,
                                             -4, -12, -20, -28, -36, -44, -52, -62};
};
template <> struct levels<QUANT_IQ3_S> {
    static constexpr int N = 16,
                         LEVEL[N] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
};
template <> struct levels<QUANT_IQ2_S> {
    static constexpr int N = 8, LEVEL[N] = {8, 25, 43, 0, -8, -25, -43, 0};
};
template <> struct levels<QUANT_IQ1_M> { // eight times grid + delta; the high bit: delta is -1/8
    static constexpr int N = 8, LEVEL[N] = {-7, 1, 9, 0, -9, -1, 7, 0};
};

// Levels i .. i + 3 as bytes, raised by `lift`.
template <uint32_t TYPE> static constexpr uint32_t level_word(int i, int lift = 0)
{
    uint32_t word = 0;
    for (int b = 0; b < 4; b++)
        word |= (uint32_t)(uint8_t)(levels<TYPE>::LEVEL[i + b] + lift) << 8 * b;
    return word;
}

// What levels below 64 are raised by, so that every one has the top bit of a byte set: see
// lifted_levels. Both halves of a chunk must have one scale.
template <uint32_t TYPE> static constexpr int levels_lift()
{
    if constexpr (levels<TYPE>::N == 16) {
        for (int level : levels<TYPE>::LEVEL)
            if (level < -64 || level > 63)
                return 0;
        return block_facts(TYPE).group == 16 ? 0 : 192;
    }
    return 0;
}

// What tells the quantised types apart in device memory (32 weights per chunk), as follows from
// their row in gguf/blocks.h. Only types whose planes are their own.
template <uint32_t TYPE> struct quant_traits {
    static constexpr struct block_facts FACTS = block_facts(TYPE);
    static constexpr int BITS = FACTS.bits;  // of a quant in plane Q
    static constexpr int H = FACTS.high * 4; // bytes per chunk
    static constexpr int S = FACTS.sub;
    // bytes per D_CHUNKS chunks
    static constexpr int D = TYPE == QUANT_MXFP4 ? 1 : FACTS.minimum ? 4 : 2;
    static constexpr int D_CHUNKS = FACTS.weights == 256 ? 8 : 1;
    static constexpr bool HALVES = FACTS.group == 16; // each half of a chunk has its own scale
    static constexpr float OFFSET = FACTS.offset;
    // weight = scale * quant - minimum; an offset goes into the minimum
    static constexpr bool MIN = FACTS.minimum || FACTS.offset > 0;
    static constexpr bool LEVELS = levels<TYPE>::N > 0; // quants are codes
    static constexpr int LIFT = levels_lift<TYPE>();    // of levels in lifted_levels
    static constexpr bool SIGNED = BITS == 8 || LEVELS; // as unpacked
    static constexpr int QW = BITS; // words per chunk in plane Q: 32 * BITS / 32
    static constexpr int HW = H / 4;
};

static constexpr __host__ __device__ bool is_plain(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

static constexpr __host__ __device__ int chunk_elems(uint32_t type)
{
    return type == QUANT_F32 ? 4 : is_plain(type) ? 8 : 32;
}

// Bytes per chunk in plane Q.
template <uint32_t TYPE> static constexpr __host__ __device__ uint32_t q_bytes()
{
    if constexpr (is_plain(TYPE))
        return 16;
    else
        return quant_traits<TYPE>::QW * 4;
}

// One chunk as loaded, before any arithmetic: what is in flight while another is computed.
template <uint32_t TYPE, bool PLAIN = is_plain(TYPE)> struct chunk;

template <uint32_t TYPE> struct chunk<TYPE, false> {
    using T = quant_traits<TYPE>;
    uint32_t q[T::QW];
    uint32_t h[T::HW ? T::HW : 1];
    uint32_t s, d;
};

template <uint32_t TYPE> struct chunk<TYPE, true> {
    uint4 v; // 4 floats or 8 halves
};

// Where a row of a tile begins in each plane: computed once, so that a chunk costs one multiply-add
// per plane.
struct tile_row {
    const uint8_t *q, *h, *s, *d;
};

// Row r (0 .. 7) of tile `tile`.
template <uint32_t TYPE>
static __device__ __forceinline__ struct tile_row tile_begin(const wmat &w, uint32_t tile,
                                                             uint32_t r)
{
    const size_t unit = (size_t)tile * w.n_chunk * TILE_ROWS; // of the tile's first chunk
    struct tile_row t = {};
    if constexpr (is_plain(TYPE)) {
        t.q = w.q + (unit + r) * 16;
    } else {
        using T = quant_traits<TYPE>;
        // 8-bit chunks lie in two halves of 16 bytes, see load_chunk
        t.q = w.q + unit * q_bytes<TYPE>() + r * (T::BITS == 8 ? 16 : q_bytes<TYPE>());
        if constexpr (T::H > 0)
            t.h = w.h + (unit + r) * T::H;
        if constexpr (T::S > 0)
            t.s = w.s + (unit + r) * T::S;
        t.d = w.d + (unit / T::D_CHUNKS + r) * T::D;
    }
    return t;
}

// The same at a chunk of it; unit: the chunk's number among those of all tiles, of which there are
// less than 2^29.
template <uint32_t TYPE>
static __device__ __forceinline__ struct tile_row tile_at(const wmat &w, uint32_t unit, uint32_t r)
{
    const uint32_t at = unit * TILE_ROWS + r;
    struct tile_row t = {};
    if constexpr (is_plain(TYPE)) {
        t.q = w.q + (size_t)at * 16;
    } else {
        using T = quant_traits<TYPE>;
        if constexpr (T::BITS == 8)
            t.q = w.q + (size_t)unit * (TILE_ROWS * 32) + r * 16;
        else
            t.q = w.q + (size_t)at * q_bytes<TYPE>();
        if constexpr (T::H > 0)
            t.h = w.h + (size_t)at * T::H;
        if constexpr (T::S > 0)
            t.s = w.s + (size_t)at * T::S;
        t.d = w.d + (size_t)(unit / T::D_CHUNKS * TILE_ROWS + r) * T::D;
    }
    return t;
}

// Goes from chunk `from` of the row to chunk `to`.
template <uint32_t TYPE>
static __device__ __forceinline__ void tile_move(tile_row &t, uint32_t from, uint32_t to)
{
    const size_t n = (size_t)(to - from) * TILE_ROWS;
    t.q += n * q_bytes<TYPE>();
    if constexpr (!is_plain(TYPE)) {
        using T = quant_traits<TYPE>;
        if constexpr (T::H > 0)
            t.h += n * T::H;
        if constexpr (T::S > 0)
            t.s += n * T::S;
        t.d += (size_t)(to / T::D_CHUNKS - from / T::D_CHUNKS) * (TILE_ROWS * T::D);
    }
}

// 4, 8 or 16 bytes of a plane.
template <bool SHARED, typename T> static __device__ __forceinline__ T ld_plane(const uint8_t *p)
{
    if constexpr (SHARED)
        return *reinterpret_cast<const T *>(p);
    else if constexpr (sizeof(T) == 16)
        return ld_stream16(p);
    else if constexpr (sizeof(T) == 8)
        return ld_stream8(p);
    else
        return ld_stream4(p);
}

// Chunk c of the row. SHARED: t is in shared memory.
template <uint32_t TYPE, bool SHARED = false>
static __device__ __forceinline__ void load_chunk(const tile_row &t, uint32_t c, chunk<TYPE> &k)
{
    const uint32_t unit = c * TILE_ROWS;
    if constexpr (is_plain(TYPE)) {
        k.v = ld_plane<SHARED, uint4>(t.q + (size_t)unit * 16);
    } else {
        using T = quant_traits<TYPE>;
        const uint8_t *q = t.q + (size_t)unit * q_bytes<TYPE>();
        if constexpr (T::BITS == 8) {
            uint4 a = ld_plane<SHARED, uint4>(q), b = ld_plane<SHARED, uint4>(q + TILE_ROWS * 16);
            k.q[0] = a.x, k.q[1] = a.y, k.q[2] = a.z, k.q[3] = a.w;
            k.q[4] = b.x, k.q[5] = b.y, k.q[6] = b.z, k.q[7] = b.w;
        } else if constexpr (T::BITS == 4) {
            uint4 a = ld_plane<SHARED, uint4>(q);
            k.q[0] = a.x, k.q[1] = a.y, k.q[2] = a.z, k.q[3] = a.w;
        } else {
            uint2 a = ld_plane<SHARED, uint2>(q);
            k.q[0] = a.x, k.q[1] = a.y;
        }
        if constexpr (T::H == 8) {
            uint2 a = ld_plane<SHARED, uint2>(t.h + (size_t)unit * 8);
            k.h[0] = a.x, k.h[T::HW - 1] = a.y;
        } else if constexpr (T::H == 4) {
            k.h[0] = ld_plane<SHARED, uint32_t>(t.h + (size_t)unit * 4);
        }
        if constexpr (T::S == 2)
            k.s = *reinterpret_cast<const uint16_t *>(t.s + (size_t)unit * 2);
        else if constexpr (T::S == 1)
            k.s = t.s[unit];
        const uint8_t *d = t.d + (size_t)(c / T::D_CHUNKS) * (TILE_ROWS * T::D);
        if constexpr (T::D == 4)
            k.d = *reinterpret_cast<const uint32_t *>(d);
        else if constexpr (T::D == 1)
            k.d = *d;
        else
            k.d = *reinterpret_cast<const uint16_t *>(d);
    }
}

// Sixteen levels (signed bytes) looked up for the eight nibbles of q: even ones to *even, odd ones
// to *odd. A byte permutation picks among eight bytes by three bits; the fourth bit then chooses
// between two such picks.
template <uint32_t TYPE>
static __device__ __forceinline__ void sixteen_levels(uint32_t q, uint32_t *even, uint32_t *odd)
{
    constexpr uint32_t t0 = level_word<TYPE>(0), t1 = level_word<TYPE>(4);
    constexpr uint32_t t2 = level_word<TYPE>(8), t3 = level_word<TYPE>(12);
    uint32_t pick[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t sel = q >> (16 * i);
        uint32_t low = __byte_perm(t0, t1, sel & 0x7777u);
        uint32_t high = __byte_perm(t2, t3, sel & 0x7777u);
        pick[i] = __byte_perm(low, high, 0x3210u | (sel & 0x8888u) >> 1);
    }
    *even = __byte_perm(pick[0], pick[1], 0x6420u);
    *odd = __byte_perm(pick[0], pick[1], 0x7531u);
}

// The same levels, each raised by LIFT (unsigned bytes), in fewer instructions: a permutation whose
// fourth bit is set gives the sign of the byte it picks, which is set in all of these, eight times.
// So the table that a code is not of gives 255.
template <uint32_t TYPE>
static __device__ __forceinline__ void lifted_levels(uint32_t q, uint32_t *even, uint32_t *odd)
{
    constexpr int LIFT = quant_traits<TYPE>::LIFT;
    constexpr uint32_t t0 = level_word<TYPE>(0, LIFT), t1 = level_word<TYPE>(4, LIFT);
    constexpr uint32_t t2 = level_word<TYPE>(8, LIFT), t3 = level_word<TYPE>(12, LIFT);
    const uint32_t other = q ^ 0x88888888u;
    uint32_t pick[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        pick[i] = byte_perm_signs(t0, t1, q >> 16 * i) & byte_perm_signs(t2, t3, other >> 16 * i);
    *even = __byte_perm(pick[0], pick[1], 0x6420u);
    *odd = __byte_perm(pick[0], pick[1], 0x7531u);
}

// Eight levels (signed bytes) looked up for four codes, each a byte.
template <uint32_t TYPE> static __device__ __forceinline__ uint32_t eight_levels(uint32_t codes)
{
    constexpr uint32_t t0 = level_word<TYPE>(0), t1 = level_word<TYPE>(4);
    codes = (codes | codes >> 4) & 0x00FF00FFu; // a permutation wants them as nibbles
    return __byte_perm(t0, t1, codes | codes >> 8);
}

// The quants as eight words of four signed bytes, element order. LIFTED: unsigned, LIFT more.
template <uint32_t TYPE, bool LIFTED = false>
static __device__ __forceinline__ void unpack_chunk(const chunk<TYPE> &k, uint32_t w[8])
{
    using T = quant_traits<TYPE>;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (T::BITS == 8) {
            w[i] = k.q[i];
        } else if constexpr (levels<TYPE>::N == 16) {
            if constexpr (LIFTED) {
                if (i < 4)
                    lifted_levels<TYPE>(k.q[i], &w[i], &w[i + 4]);
            } else if (i < 4) {
                sixteen_levels<TYPE>(k.q[i], &w[i], &w[i + 4]);
            }
        } else if constexpr (T::BITS == 4) {
            w[i] = (i < 4 ? k.q[i] : k.q[i - 4] >> 4) & 0x0F0F0F0Fu;
            if constexpr (T::H == 4)
                w[i] |= (k.h[0] >> i & 0x01010101u) << 4;
            else if constexpr (T::H == 8)
                w[i] |= (k.h[i / 4] >> 2 * (i % 4) & 0x03030303u) << 4;
        } else {
            w[i] = k.q[i & 1] >> 2 * (i / 2) & 0x03030303u;
            if constexpr (T::H == 4)
                w[i] |= (k.h[0] >> i & 0x01010101u) << 2;
            if constexpr (levels<TYPE>::N == 8)
                w[i] = eight_levels<TYPE>(w[i]);
        }
    }
}

// weight = scale[half] * quant - minimum[half].
template <uint32_t TYPE>
static __device__ __forceinline__ void chunk_scales(const chunk<TYPE> &k, float scale[2],
                                                    float minimum[2])
{
    using T = quant_traits<TYPE>;
    float d = half_bits(k.d & 0xFFFFu);
    [[maybe_unused]] float dmin = half_bits(k.d >> 16);
    minimum[0] = minimum[1] = 0.0f;
    if constexpr (TYPE == QUANT_Q4_0 || TYPE == QUANT_Q5_0 || TYPE == QUANT_Q2_0) {
        scale[0] = scale[1] = d;
        minimum[0] = minimum[1] = T::OFFSET * d;
    } else if constexpr (TYPE == QUANT_Q4_1 || TYPE == QUANT_Q5_1) {
        scale[0] = scale[1] = d;
        minimum[0] = minimum[1] = -dmin; // these add their minimum
    } else if constexpr (TYPE == QUANT_Q8_0 || TYPE == QUANT_IQ4_NL) {
        scale[0] = scale[1] = d;
    } else if constexpr (TYPE == QUANT_IQ4_XS) {
        scale[0] = scale[1] = d * s8_float(k.s);
    } else if constexpr (TYPE == QUANT_MXFP4) {
        scale[0] = scale[1] = __uint_as_float(mxfp4_scale_bits(k.d));
    } else if constexpr (TYPE == QUANT_NVFP4) { // a half float has a bias that is 8 more
        scale[0] = half_bits((k.d & 0xFFu) << 7) * 128.0f;
        scale[1] = half_bits(k.d >> 8 << 7) * 128.0f;
    } else if constexpr (TYPE == QUANT_IQ3_XXS || TYPE == QUANT_IQ3_S) {
        scale[0] = scale[1] = (TYPE == QUANT_IQ3_XXS ? 0.25f : 1.0f) * d * u8_float(k.s);
    } else if constexpr (TYPE == QUANT_IQ2_S || TYPE == QUANT_IQ1_M) {
        scale[0] = 0.125f * d * u8_float(k.s & 0xFFu);
        scale[1] = 0.125f * d * u8_float(k.s >> 8);
    } else if constexpr (TYPE == QUANT_Q4_K || TYPE == QUANT_Q5_K) {
        scale[0] = scale[1] = d * u8_float(k.s & 0xFFu);
        minimum[0] = minimum[1] = dmin * u8_float(k.s >> 8);
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t s = k.s >> 8 * half & 0xFFu;
            if constexpr (TYPE == QUANT_Q2_K) {
                scale[half] = d * u8_float(s & 15u);
                minimum[half] = dmin * u8_float(s >> 4);
            } else { // Q3_K, Q6_K
                scale[half] = d * s8_float(s);
                minimum[half] = T::OFFSET * scale[half];
            }
        }
    }
}

// The weights of a chunk as floats: chunk_elems(TYPE) of them.
template <uint32_t TYPE>
static __device__ __forceinline__ void dequantize_chunk(const chunk<TYPE> &k, float *out)
{
    if constexpr (is_plain(TYPE)) {
        const uint32_t v[4] = {k.v.x, k.v.y, k.v.z, k.v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (TYPE == QUANT_F32) {
                out[i] = __uint_as_float(v[i]);
            } else if constexpr (TYPE == QUANT_F16) {
                out[2 * i] = half_bits(v[i] & 0xFFFFu);
                out[2 * i + 1] = half_bits(v[i] >> 16);
            } else {
                out[2 * i] = bf16_bits(v[i] & 0xFFFFu);
                out[2 * i + 1] = bf16_bits(v[i] >> 16);
            }
        }
    } else {
        uint32_t w[8];
        float scale[2], minimum[2];
        unpack_chunk<TYPE>(k, w);
        chunk_scales<TYPE>(k, scale, minimum);
#pragma unroll
        for (int e = 0; e < 32; e++)
            out[e] = scale[e / 16] * (float)(int8_t)(w[e / 4] >> 8 * (e % 4)) - minimum[e / 16];
    }
}

// Activations in the form that a weight type multiplies with: act32 records for quantised types,
// plain floats (rows padded with zeros to whole chunks) for the others.
static constexpr __host__ __device__ size_t act_chunk_bytes(uint32_t type)
{
    return is_plain(type) ? chunk_elems(type) * sizeof(float) : sizeof(act32);
}

// Adds the product of one chunk with n_col <= NCOL columns of activations, act_stride bytes apart
// (the sums beyond n_col repeat the last column).
template <uint32_t TYPE, int NCOL>
static __device__ __forceinline__ void dot_chunk(const chunk<TYPE> &k, const uint8_t *act,
                                                 size_t act_stride, uint32_t n_col, float acc[NCOL])
{
    auto column = [&](int col) {
        return NCOL == 1 ? act : act + min((uint32_t)col, n_col - 1) * act_stride;
    };
    if constexpr (is_plain(TYPE)) {
        float w[8];
        dequantize_chunk<TYPE>(k, w);
#pragma unroll
        for (int col = 0; col < NCOL; col++) {
            const float4 *x = reinterpret_cast<const float4 *>(column(col));
#pragma unroll
            for (int i = 0; i < chunk_elems(TYPE) / 4; i++) {
                float4 a = x[i];
                acc[col] = fmaf(w[4 * i], a.x, acc[col]);
                acc[col] = fmaf(w[4 * i + 1], a.y, acc[col]);
                acc[col] = fmaf(w[4 * i + 2], a.z, acc[col]);
                acc[col] = fmaf(w[4 * i + 3], a.w, acc[col]);
            }
        }
    } else {
        using T = quant_traits<TYPE>;
        constexpr bool LIFTED = T::LIFT > 0;
        auto dot4 = [](uint32_t quants, uint32_t x, int sum) {
            return LIFTED ? dp4a_unsigned_signed(quants, (int)x, sum)
                          : __dp4a((int)quants, (int)x, sum);
        };
        uint32_t w[8];
        float scale[2], minimum[2];
        unpack_chunk<TYPE, LIFTED>(k, w);
        chunk_scales<TYPE>(k, scale, minimum);
#pragma unroll
        for (int col = 0; col < NCOL; col++) {
            const act32 *a = reinterpret_cast<const act32 *>(column(col));
            constexpr int SUMS = T::HALVES ? 2 : 1;
            int hi[SUMS] = {}, lo[SUMS] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 x = a->hi[half], y = a->lo[half];
                int &h = hi[half % SUMS], &l = lo[half % SUMS];
                h = dot4(w[4 * half], x.x, h);
                l = dot4(w[4 * half], y.x, l);
                h = dot4(w[4 * half + 1], x.y, h);
                l = dot4(w[4 * half + 1], y.y, l);
                h = dot4(w[4 * half + 2], x.z, h);
                l = dot4(w[4 * half + 2], y.z, l);
                h = dot4(w[4 * half + 3], x.w, h);
                l = dot4(w[4 * half + 3], y.w, l);
            }
            int product = hi[0] * 256 + lo[0];
            if constexpr (LIFTED)
                product -= T::LIFT * a->total;
            float y = scale[0] * (float)product;
            if constexpr (T::HALVES)
                y += scale[1] * (float)(hi[1] * 256 + lo[1]);
            acc[col] = fmaf(y, a->scale, acc[col]);
            if constexpr (T::MIN) {
                if constexpr (T::HALVES)
                    acc[col] -= minimum[0] * a->sum[0] + minimum[1] * a->sum[1];
                else
                    acc[col] -= minimum[0] * (a->sum[0] + a->sum[1]);
            }
        }
    }
}

// Values [8 i, 8 i + 8) of x (n), zeros beyond. Rows of quantised types are multiples of 8.
// FROM_L2: not from the first-level cache, for what is read before griddep_wait().
template <bool PLAIN, bool FROM_L2 = false>
static __device__ __forceinline__ void load8(const float *x, uint32_t i, uint32_t n, float v[8])
{
    if (!PLAIN || (8 * i + 8 <= n && n % 4 == 0)) { // other rows are not aligned
        const float4 *p = reinterpret_cast<const float4 *>(x) + 2 * i;
        const float4 a = FROM_L2 ? __ldcg(p) : p[0], b = FROM_L2 ? __ldcg(p + 1) : p[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = 8 * i + e >= n ? 0.0f : FROM_L2 ? __ldcg(x + 8 * i + e) : x[8 * i + e];
    }
}

// Eight values of a group of 32, held by four neighbouring lanes (lane % 4 says which eight), as
// fixed point: this lane's part of *out. All lanes of the warp take part; `valid` lanes store.
// TOTAL: out->total too, which levels that are lifted need.
template <bool TOTAL>
static __device__ __forceinline__ void quantize_act(const float x[8], act32 *out, bool valid)
{
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++)
        top = max_nan(top, fabsf(x[i]));
    top = lane_max_nan<1, 2>(top);
    // A NaN or an infinity becomes the scale, so that no product with it is a finite number.
    // 32512 = 127 * 256: the largest whose high digit, rounded, is still 127
    const float scale = top * (1.0f / 32512.0f);
    const float inverse = top > 1e-30f ? __fdividef(32512.0f, top) : 0.0f;
    // q = hi * 256 + lo with balanced digits. Adding 1.5 * 2^23 + 128 rounds to an integer and
    // leaves q + 128 in the low two bytes: the high one is hi, the low one lo with its sign turned
    // over.
    const float magic = 12583040.0f;
    uint32_t hi[2], lo[2], sum_bits = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            b[i] = __float_as_uint(fmaf(x[4 * h + i], inverse, magic));
            sum_bits += b[i];
        }
        const uint32_t low = __byte_perm(b[0], b[1], 0x5140),
                       high = __byte_perm(b[2], b[3], 0x5140);
        hi[h] = __byte_perm(low, high, 0x7632);
        lo[h] = __byte_perm(low, high, 0x5410) ^ 0x80808080u;
    }
    uint32_t sum = sum_bits - 8 * 0x4B400080u;   // signed; it wraps where a NaN is among the values
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1); // lanes 0, 1: first half; 2, 3: second
    const int total = TOTAL ? (int)(sum + __shfl_xor_sync(0xFFFFFFFFu, sum, 2)) : 0;
    if (!valid)
        return;
    unsigned part = threadIdx.x % 4;
    reinterpret_cast<uint2 *>(out->hi)[part] = make_uint2(hi[0], hi[1]);
    reinterpret_cast<uint2 *>(out->lo)[part] = make_uint2(lo[0], lo[1]);
    if (part == 0) {
        out->scale = scale;
        out->total = total;
    }
    if (part % 2 == 0)
        out->sum[part / 2] = scale * (float)(int)sum;
}

template <uint32_t TYPE> struct type_tag {
    static constexpr uint32_t value = TYPE;
};

// Calls f(type_tag<TYPE>()) for the type of planes that a number names, so that a launcher picks a
// kernel in one line; false for any other number.
template <typename F> static inline bool with_type(uint32_t type, F f)
{
    switch (type) {
#define TYPE_CASE(name, number, ...)                                                               \
    case number:                                                                                   \
        if constexpr (block_facts(number).planes == number)                                        \
            return f(type_tag<number>());                                                          \
        break;
        BLOCK_TYPES(TYPE_CASE)
#undef TYPE_CASE
    }
    return false;
}

#endif
