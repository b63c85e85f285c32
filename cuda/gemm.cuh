// What the products on matrix units share: weights on their way from their planes to float16.
#ifndef HOKKU_CUDA_GEMM_CUH
#define HOKKU_CUDA_GEMM_CUH

#include "activation.cuh"
#include "kernels.h"
#include "quant.cuh"

// How the weights of a launch become float16.
struct widening {
    uint32_t zero;          // which the compiler cannot know, see widen
    float half_scale, undo; // see wmat, and gemm.scale / it
};

static inline struct widening gemm_widening(const struct gemm *g)
{
    struct widening w = {};
    w.half_scale = g->w[0].half_scale;
    for (uint32_t i = 1; i < g->n_part; i++) // NaN stays
        if (!(w.half_scale <= g->w[i].half_scale) && w.half_scale == w.half_scale)
            w.half_scale = g->w[i].half_scale;
    w.undo = half_range_undo(w.half_scale);
    if (g->mode == MATVEC_ADD && g->scale != 0.0f)
        w.undo *= g->scale;
    return w;
}

// How a row is cut into chunks, whose sums are kept apart: as its length says.
struct row_cut {
    uint32_t n_step, chunk, n_chunk; // steps of GEMM_PACK_COLS; steps of a chunk, but the last
};

static inline struct row_cut gemm_row_cut(uint32_t n_cols)
{
    struct row_cut c = {};
    c.n_step = div_up(n_cols, (uint32_t)GEMM_PACK_COLS);
    c.chunk = div_up(c.n_step, (uint32_t)GEMM_CHUNKS);
    c.n_chunk = div_up(c.n_step, c.chunk);
    return c;
}

// 32 consecutive weights of a row.
template <uint32_t TYPE> struct strip {
    static constexpr int N = 32 / chunk_elems(TYPE);
    chunk<TYPE> k[N];
};

// A lane's way through a row: every fourth strip. Past the row's end it stays where it is, and
// beyond the matrix it takes the last tile: such weights meet activations that are zero, or belong
// to rows that nobody stores.
template <uint32_t TYPE> struct walk {
    static constexpr int N = strip<TYPE>::N, STEP = 4 * N * TILE_ROWS; // units from strip to strip
    struct tile_row at;

    __device__ __forceinline__ walk(const struct wmat &w, uint32_t tile, uint32_t r, uint32_t c)
        : at(tile_begin<TYPE>(w, min(tile, w.n_tile - 1), r))
    {
        tile_move<TYPE>(at, 0, c);
    }

    __device__ __forceinline__ void fetch(uint32_t c, uint32_t n_chunk, strip<TYPE> &s)
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            load_chunk<TYPE>(at, N == 1 ? 0 : min((uint32_t)j, n_chunk - 1 - c), s.k[j]);
    }

    __device__ __forceinline__ void advance(uint32_t c, uint32_t n_chunk)
    {
        if (c + 4 * N < n_chunk) {
            at.q += STEP * q_bytes<TYPE>();
            if constexpr (!is_plain(TYPE)) {
                using T = quant_traits<TYPE>;
                at.h += STEP * T::H;
                at.s += STEP * T::S;
                if (T::D_CHUNKS == 1)
                    at.d += STEP * T::D;
                else if (c & 4) // the second four of eight chunks with the same d
                    at.d += TILE_ROWS * T::D;
            }
        }
    }

    // Loads the strip of chunks c and up, of n_chunk; goes on to the next.
    __device__ __forceinline__ void next(uint32_t c, uint32_t n_chunk, strip<TYPE> &s)
    {
        fetch(c, n_chunk, s);
        advance(c, n_chunk);
    }

    // The same; asks for the one after the next, too.
    __device__ __forceinline__ void load(uint32_t c, uint32_t n_chunk, strip<TYPE> &s)
    {
        fetch(c, n_chunk, s);
        if (c + 8 * N < n_chunk) {
            const uint8_t *ahead = at.q + 2 * STEP * q_bytes<TYPE>();
            prefetch_l2(ahead);
            for (int j = 1; j < N; j++)
                prefetch_l2(ahead + j * TILE_ROWS * 16);
            if constexpr (!is_plain(TYPE)) {
                using T = quant_traits<TYPE>;
                if constexpr (T::BITS == 8)
                    prefetch_l2(ahead + TILE_ROWS * 16);
                if constexpr (T::H > 0)
                    prefetch_l2(at.h + 2 * STEP * T::H);
                if constexpr (T::S > 0)
                    prefetch_l2(at.s + 2 * STEP * T::S);
                prefetch_l2(at.d + 2 * STEP / T::D_CHUNKS * T::D);
            }
        }
        advance(c, n_chunk);
    }
};

// Half of a strip as float16, times half_scale (F16: as it is): word i holds elements 4 i, 4 i + 1
// (low) and 4 i + 2, 4 i + 3 (high).
template <uint32_t TYPE>
static __device__ __forceinline__ void widen(const strip<TYPE> &s, uint32_t half, const widening &c,
                                             uint32_t low[4], uint32_t high[4])
{
    if constexpr (is_plain(TYPE)) {
        // A product must not read a register that a load has written: ptxas would let no two
        // products overlap. So the bits go through an instruction that it cannot leave out.
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 v = s.k[2 * half + i / 2].v;
            uint32_t a = i % 2 ? v.z : v.x, b = i % 2 ? v.w : v.y;
            if constexpr (TYPE == QUANT_BF16) {
                a = saturated_half2(bf16_bits(a & 0xFFFFu) * c.half_scale,
                                    bf16_bits(a >> 16) * c.half_scale);
                b = saturated_half2(bf16_bits(b & 0xFFFFu) * c.half_scale,
                                    bf16_bits(b >> 16) * c.half_scale);
            }
            low[i] = a ^ c.zero;
            high[i] = b ^ c.zero;
        }
    } else {
        constexpr bool SIGNED = quant_traits<TYPE>::SIGNED;
        uint32_t w[8];
        float scale[2], minimum[2];
        unpack_chunk<TYPE>(s.k[0], w);
        chunk_scales<TYPE>(s.k[0], scale, minimum);
        // A quant becomes a float by becoming its mantissa: 1/2 + q / 256 where it has at most 7
        // bits, 1 + (q + 128) / 32768 where it is a signed byte. One multiply-add undoes that.
        const float d = c.half_scale * scale[half];
        const float a = (SIGNED ? 32768.0f : 256.0f) * d;
        const float b = -fmaf(c.half_scale, minimum[half], (SIGNED ? 32896.0f : 128.0f) * d);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t q = w[4 * half + i] ^ (SIGNED ? 0x80808080u : 0u);
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t bits = SIGNED ? __byte_perm(q, 0x3F800000u, 0x7604u + 0x10u * e)
                                       : __byte_perm(q, 0x3F000000u, 0x7044u + 0x100u * e);
                v[e] = fmaf(a, __uint_as_float(bits), b);
            }
            low[i] = saturated_half2(v[0], v[1]);
            high[i] = saturated_half2(v[2], v[3]);
        }
    }
}

// ---- the same for products whose columns do not depend on how many they are (gemm_few.cu,
// gemm_wide.cu): 4 i and 4 i + 2 in even[i], 4 i + 1 and 4 i + 3 in odd[i] of the 16 of a half of a
// strip

static __device__ __forceinline__ __half2 half2_of(uint32_t bits)
{
    return *reinterpret_cast<const __half2 *>(&bits);
}

static __device__ __forceinline__ uint32_t bits_of(__half2 h)
{
    return *reinterpret_cast<const uint32_t *>(&h);
}

// Of both halves of a strip: weight = scale * (1024 + quant - base) + bias. base is as near as an
// integer comes to where weights are zero, so that little is left to bias and to its rounding.
struct half_scales {
    __half2 scale[2], base[2], bias[2];
};

template <uint32_t TYPE>
static __device__ __forceinline__ struct half_scales scales_of(const strip<TYPE> &s,
                                                               const struct widening &c)
{
    struct half_scales h = {};
    if constexpr (!is_plain(TYPE)) {
        using T = quant_traits<TYPE>;
        float scale[2], minimum[2];
        chunk_scales<TYPE>(s.k[0], scale, minimum);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float d = c.half_scale * scale[i], m = c.half_scale * minimum[i];
            float zero = T::SIGNED ? 128.0f : T::OFFSET; // quants of signed types are flipped
            if constexpr (!T::SIGNED && !(T::OFFSET > 0))
                zero = fminf(fmaxf(rintf(__fdividef(m, d)), -1023.0f), 1023.0f);
            h.scale[i] = __float2half2_rn(d);
            h.base[i] = __float2half2_rn(1024.0f + zero);
            if constexpr (!T::SIGNED && !(T::OFFSET > 0))
                h.bias[i] = __float2half2_rn(fmaf(zero, d, -m));
        }
    }
    return h;
}

template <uint32_t TYPE>
static __device__ __forceinline__ void
widen_pairs(const strip<TYPE> &s, const uint32_t w[8], const struct half_scales &h, uint32_t half,
            const struct widening &c, uint32_t even[4], uint32_t odd[4])
{
    if constexpr (is_plain(TYPE)) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 v = s.k[2 * half + i / 2].v;
            uint32_t a = i % 2 ? v.z : v.x, b = i % 2 ? v.w : v.y;
            if constexpr (TYPE == QUANT_BF16) {
                a = saturated_half2(bf16_bits(a & 0xFFFFu) * c.half_scale,
                                    bf16_bits(a >> 16) * c.half_scale);
                b = saturated_half2(bf16_bits(b & 0xFFFFu) * c.half_scale,
                                    bf16_bits(b >> 16) * c.half_scale);
            }
            even[i] = __byte_perm(a, b, 0x5410);
            odd[i] = __byte_perm(a, b, 0x7632);
        }
    } else {
        using T = quant_traits<TYPE>;
        // A byte becomes a float16 by becoming the end of its mantissa: 1024 + byte.
        constexpr uint32_t FLIP = T::SIGNED ? 0x80808080u : 0u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t q = w[4 * half + i] ^ FLIP;
            const __half2 e = __hsub2(half2_of(__byte_perm(q, 0x64646464u, 0x4240)), h.base[half]);
            const __half2 o = __hsub2(half2_of(__byte_perm(q, 0x64646464u, 0x4341)), h.base[half]);
            even[i] = bits_of(__hfma2(e, h.scale[half], h.bias[half]));
            odd[i] = bits_of(__hfma2(o, h.scale[half], h.bias[half]));
        }
    }
}

#endif
