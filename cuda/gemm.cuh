// What the products on matrix units share: weights on their way from their planes to float16.
#ifndef HOKKU_CUDA_GEMM_CUH
#define HOKKU_CUDA_GEMM_CUH

#include "activation.cuh"
#include "kernels.h"
#include "quant.cuh"

// How the weights of a launch become float16.
struct widening {
    float half_scale, undo; // see wmat, and gemm.scale / it
};

// Of parts begin to end - 1, which are of one type.
static inline struct widening gemm_widening(const struct gemm *g, uint32_t begin, uint32_t end)
{
    struct widening w = {};
    w.half_scale = g->w[begin].half_scale;
    for (uint32_t i = begin + 1; i < end; i++) // NaN stays
        if (!(w.half_scale <= g->w[i].half_scale) && w.half_scale == w.half_scale)
            w.half_scale = g->w[i].half_scale;
    w.undo = half_range_undo(w.half_scale) * g->w[begin].scale;
    if (g->mode == MATVEC_ADD && g->scale != 0.0f)
        w.undo *= g->scale;
    return w;
}

// How a row is cut into chunks, whose sums are kept apart: gemm_row_cut, or of prompts
// gemm_long_cut, whatever the number of columns. Sums are added in the order of chunks; where there
// are many those of the first n_first and those of the others by themselves, and then the two: so
// that whoever has all of either keeps one sum.
struct row_cut {
    uint32_t n_step, chunk, n_chunk; // steps of GEMM_PACK_COLS; steps of a chunk, but the last
    uint32_t n_first;                // n_chunk: all are added in their order
};

static inline struct row_cut gemm_row_cut(uint32_t n_cols)
{
    struct row_cut c = {};
    c.n_step = div_up(n_cols, (uint32_t)GEMM_PACK_COLS);
    c.chunk = div_up(c.n_step, (uint32_t)GEMM_CHUNKS);
    c.n_chunk = c.n_first = div_up(c.n_step, c.chunk);
    return c;
}

// The chunks of a matrix that is multiplied alone and whose rows are long: as many as leave
// multiprocessors the least to do, in steps, with the tiles of 512 columns, of 2,048, of 128, and
// with pairs of few (gemm_few.cu), the last two as much as the first. On any device as on one of
// 132, so that bits are the same.
static inline uint32_t gemm_best_chunks(uint32_t rows, uint32_t n_step)
{
    enum { N_SM = 132, BETWEEN = 3, FEW_BLOCKS = 2 * N_SM, FEW_WARPS = 8 };
    const uint32_t n_tile = div_up(rows, 128u), n_pair = div_up(rows, 16u * FEW_BLOCKS); // a block
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t n = GEMM_CHUNKS; n > 1; n--) {
        const uint32_t chunk = div_up(n_step, n);
        if (div_up(n_step, chunk) != n)
            continue;
        const auto units = [&](uint32_t tiles) { return div_up(tiles * n, (uint32_t)N_SM); };
        const uint32_t steps = units(2 * n_tile) * (chunk + BETWEEN) +
                               units(8 * n_tile) * (chunk + BETWEEN) / 8 + units(n_tile) * chunk +
                               div_up(n_pair * n, (uint32_t)FEW_WARPS) * chunk;
        if (steps < least) {
            least = steps;
            best = n;
        }
    }
    return best;
}

// The same for prompts (gemm_hopper.cu), whose sums wait in memory for the chunks behind them,
// which takes a wide tile as long as three steps. Gate and up have tiles enough for all blocks, few
// columns or many: their rows are one chunk. Others are cut whatever their rows, unless each is
// multiplied alone: which of them are one launch is a matter of how many columns there are.
static inline struct row_cut gemm_long_cut(const struct gemm *g)
{
#ifdef HOKKU_CUDA_ON_CPU // so that rows have several
    enum { CHUNK = 2, FEW_STEPS = 2, FEW_CHUNK = 1, MANY_ROWS = 2, LONG = 5, IN_ORDER = 3 };
#else
    enum { CHUNK = 8, FEW_STEPS = 8, FEW_CHUNK = 2, MANY_ROWS = 3, LONG = 33, IN_ORDER = 5 };
#endif
    const struct wmat *w = &g->w[0];
    const bool many = g->mode == MATVEC_GATED && w->rows / MANY_ROWS >= w->n_cols;
    struct row_cut c = {};
    c.n_step = div_up(w->n_cols, (uint32_t)GEMM_PACK_COLS);
    const uint32_t chunk = c.n_step <= FEW_STEPS ? FEW_CHUNK : CHUNK;
    c.n_chunk = many ? 1
                : g->alone && c.n_step >= LONG
                    ? gemm_best_chunks(w->rows, c.n_step)
                    : lesser((c.n_step + chunk / 2) / chunk, (uint32_t)GEMM_CHUNKS - 1);
    c.chunk = div_up(c.n_step, c.n_chunk);
    c.n_chunk = div_up(c.n_step, c.chunk);
    c.n_first = c.n_chunk <= IN_ORDER ? c.n_chunk : c.n_chunk / 2;
    return c;
}

// 32 consecutive weights of a row.
template <uint32_t TYPE> struct strip {
    static constexpr int N = 32 / chunk_elems(TYPE);
    chunk<TYPE> k[N];
};

static __device__ __forceinline__ __half2 half2_of(uint32_t bits)
{
    return *reinterpret_cast<const __half2 *>(&bits);
}

static __device__ __forceinline__ uint32_t bits_of(__half2 h)
{
    return *reinterpret_cast<const uint32_t *>(&h);
}

// Whether quants are four bits and nothing else: those of a strip's second half are the upper bits
// of the same bytes. What is made of them by fewer instructions takes more registers.
template <uint32_t TYPE, bool PLAIN = is_plain(TYPE)> static constexpr bool is_nibbles = false;
template <uint32_t TYPE>
static constexpr bool is_nibbles<TYPE, false> =
    quant_traits<TYPE>::BITS == 4 && quant_traits<TYPE>::H == 0 && levels<TYPE>::N != 16;

// Of both halves of a strip: weight = scale * (1024 + quant - base) + bias, of nibbles' second half
// scale * (64 + quant - base) + bias. base is as near as an integer comes to where weights are
// zero, so that little is left to bias and to its rounding.
struct half_scales {
    __half2 scale[2], base[2], bias[2];
};

template <uint32_t TYPE, bool NIBBLES = is_nibbles<TYPE>>
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
            // where quants of signed types are flipped, or levels lifted to
            float zero = T::LIFT > 0 ? T::LIFT : T::SIGNED ? 128.0f : T::OFFSET;
            if constexpr (!T::SIGNED && !(T::OFFSET > 0))
                zero = fminf(fmaxf(rintf(m * ptx_reciprocal(d)), -1023.0f), 1023.0f);
            h.scale[i] = __float2half2_rn(d);
            h.base[i] = __float2half2_rn((NIBBLES && i == 1 ? 64.0f : 1024.0f) + zero);
            if constexpr (!T::SIGNED && !(T::OFFSET > 0))
                h.bias[i] = __float2half2_rn(fmaf(zero, d, -m));
        }
    }
    return h;
}

// The quants of a strip as widen_pairs takes them.
template <uint32_t TYPE>
static __device__ __forceinline__ void codes_of(const strip<TYPE> &s, uint32_t w[8])
{
    if constexpr (!is_plain(TYPE))
        unpack_chunk<TYPE, (quant_traits<TYPE>::LIFT > 0)>(s.k[0], w);
}

// A half of a strip as float16, times half_scale (F16: as it is): 4 i and 4 i + 2 in even[i], 4 i +
// 1 and 4 i + 3 in odd[i] of its 16. w: by codes_of.
template <uint32_t TYPE, bool NIBBLES = is_nibbles<TYPE>>
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
    } else if constexpr (NIBBLES) {
        // Bits become a float16 by becoming the end of its mantissa: 1024 + quant, 1024 + 16 quant.
        const uint32_t mask = half ? 0x00F000F0u : 0x000F000Fu;
        const auto from_base = [&](uint32_t q) {
            const __half2 x = half2_of(and_or(q, mask, 0x64006400u));
            return half ? __hfma2(x, __float2half2_rn(0.0625f), __hneg2(h.base[1]))
                        : __hsub2(x, h.base[0]);
        };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t q = s.k[0].q[i];
            even[i] = bits_of(__hfma2(from_base(q), h.scale[half], h.bias[half]));
            odd[i] = bits_of(__hfma2(from_base(q >> 8), h.scale[half], h.bias[half]));
        }
    } else {
        using T = quant_traits<TYPE>;
        // A byte becomes a float16 by becoming the end of its mantissa: 1024 + byte.
        constexpr uint32_t FLIP = T::SIGNED && T::LIFT == 0 ? 0x80808080u : 0u;
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
