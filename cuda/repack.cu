// From the file's blocks to the planes of layout.h, once at load, and from the planes to plain rows
// for matrix products. Both kernels: one thread per chunk.
#include "gguf/grids.h"
#include "kernels.h"
#include "quant.cuh"

enum { THREADS = 256 };

// ---- kernels

// A type's block as gguf/blocks.h describes it.
template <uint32_t TYPE> struct file_type;
#define FILE_TYPE(name, number, structure, ...)                                                    \
    template <> struct file_type<number> {                                                         \
        using block = struct structure;                                                            \
    };
BLOCK_TYPES(FILE_TYPE)
#undef FILE_TYPE

template <uint32_t TYPE> using file_block = typename file_type<TYPE>::block;

static __device__ uint32_t u16_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static __device__ uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

static __device__ uint32_t nibble_at(const uint8_t *p, uint32_t i, bool high)
{
    return high ? p[i] >> 4 : p[i] & 15u;
}

// Digit n to the base 3 of a byte of TQ1_0.
static __device__ uint32_t digit_at(uint32_t fraction, uint32_t n)
{
    for (; n > 0; n--)
        fraction = fraction * 3 & 255u;
    return fraction * 3 >> 8;
}

// Sign e % 8 of those of 32 weights in four times seven bits.
static __device__ uint32_t sign_of_seven(uint32_t signs, uint32_t e)
{
    return eight_signs(signs >> 7 * (e / 8) & 127u) >> e % 8 & 1u;
}

// The quant, or code, of weight e (0 .. 31) of chunk `sub` of a block, offset included as stored.
template <uint32_t TYPE>
static __device__ uint32_t file_quant(const file_block<TYPE> &b, uint32_t sub, uint32_t e)
{
    const uint32_t i = 32 * sub + e; // within the block
    if constexpr (TYPE == QUANT_Q8_0) {
        return b.q[e];
    } else if constexpr (TYPE == QUANT_Q4_0 || TYPE == QUANT_Q4_1 || TYPE == QUANT_IQ4_NL ||
                         TYPE == QUANT_MXFP4) {
        return nibble_at(b.q, e % 16, e >= 16);
    } else if constexpr (TYPE == QUANT_Q5_0 || TYPE == QUANT_Q5_1) {
        return nibble_at(b.q, e % 16, e >= 16) | (b.high[e / 8] >> e % 8 & 1u) << 4;
    } else if constexpr (TYPE == QUANT_Q4_K) {
        return nibble_at(b.q, sub / 2 * 32 + e, sub % 2);
    } else if constexpr (TYPE == QUANT_Q5_K) {
        return nibble_at(b.q, sub / 2 * 32 + e, sub % 2) | (b.high[e] >> sub & 1u) << 4;
    } else if constexpr (TYPE == QUANT_Q2_K || TYPE == QUANT_TQ2_0) {
        return b.q[sub / 4 * 32 + e] >> 2 * (sub % 4) & 3u;
    } else if constexpr (TYPE == QUANT_Q3_K) {
        uint32_t low = b.q[sub / 4 * 32 + e] >> 2 * (sub % 4) & 3u;
        return low | (b.high[e] >> sub & 1u) << 2;
    } else if constexpr (TYPE == QUANT_Q6_K) {
        uint32_t low = nibble_at(b.low, sub / 4 * 64 + sub % 2 * 32 + e, sub % 4 >= 2);
        return low | (b.high[sub / 4 * 32 + e] >> 2 * (sub % 4) & 3u) << 4;
    } else if constexpr (TYPE == QUANT_IQ4_XS) {
        return nibble_at(b.q, sub * 16 + e % 16, e >= 16);
    } else if constexpr (TYPE == QUANT_NVFP4) {
        return nibble_at(b.q, i / 16 * 8 + i % 8, i % 16 >= 8);
    } else if constexpr (TYPE == QUANT_Q1_0) { // 2 q - 1 = 2 q - offset
        return (b.q[i / 8] >> i % 8 & 1u) * 2;
    } else if constexpr (TYPE == QUANT_Q2_0) {
        return b.q[i / 4] >> 2 * (i % 4) & 3u;
    } else if constexpr (TYPE == QUANT_TQ1_0) {
        return i < 160   ? digit_at(b.q[i % 32], i / 32)
               : i < 240 ? digit_at(b.q16[i % 16], (i - 160) / 16)
                         : digit_at(b.q4[i % 4], (i - 240) / 4);
    } else if constexpr (TYPE == QUANT_IQ2_XXS) {
        const uint32_t entry = grid_iq2_xxs[b.q[8 * sub + e / 8]];
        return (entry >> 2 * (e % 8) & 3u) | sign_of_seven(u32_at(b.q + 8 * sub + 4), e) << 2;
    } else if constexpr (TYPE == QUANT_IQ2_XS) {
        const uint32_t v = u16_at(b.q + i / 8 * 2), entry = grid_iq2_xs[v & 511u];
        return (entry >> 2 * (e % 8) & 3u) | (eight_signs(v >> 9) >> e % 8 & 1u) << 2;
    } else if constexpr (TYPE == QUANT_IQ2_S) {
        const uint32_t high = b.high[sub] >> 2 * (e / 8) & 3u;
        const uint32_t entry = grid_iq2_s[b.q[i / 8] | high << 8];
        return (entry >> 2 * (e % 8) & 3u) | (b.signs[i / 8] >> e % 8 & 1u) << 2;
    } else if constexpr (TYPE == QUANT_IQ3_XXS) {
        const uint32_t entry = grid_iq3_xxs[b.q[i / 4]];
        return (entry >> 4 * (e % 4) & 7u) | sign_of_seven(u32_at(b.signs + 4 * sub), e) << 3;
    } else if constexpr (TYPE == QUANT_IQ3_S) {
        const uint32_t high = b.high[sub] >> e / 4 & 1u;
        const uint32_t entry = grid_iq3_s[b.q[i / 4] | high << 8];
        return (entry >> 4 * (e % 4) & 7u) | (b.signs[i / 8] >> e % 8 & 1u) << 3;
    } else if constexpr (TYPE == QUANT_IQ1_S) {
        const uint32_t high = u16_at(b.high + 2 * sub);
        const uint32_t entry = grid_iq1[b.q[i / 8] | (high >> 3 * (e / 8) & 7u) << 8];
        return (entry >> 2 * (e % 8) & 3u) | high >> 15 << 2;
    } else { // IQ1_M
        const uint32_t high = nibble_at(b.high, i / 16, i / 8 % 2);
        const uint32_t entry = grid_iq1[b.q[i / 8] | (high & 7u) << 8];
        return (entry >> 2 * (e % 8) & 3u) | high >> 3 << 2;
    }
}

// 6-bit scale and minimum j (0 .. 7) of the 12 bytes of Q4_K and Q5_K.
static __device__ void k4_scale(const uint8_t *s, uint32_t j, uint32_t *scale, uint32_t *minimum)
{
    if (j < 4) {
        *scale = s[j] & 63u;
        *minimum = s[j + 4] & 63u;
    } else {
        *scale = (s[j + 4] & 15u) | (s[j - 4] >> 6 & 3u) << 4;
        *minimum = (s[j + 4] >> 4 & 15u) | (s[j] >> 6 & 3u) << 4;
    }
}

// 6-bit scale j (0 .. 15) of the 12 bytes of Q3_K, without its offset of 32.
static __device__ int k3_scale(const uint8_t *s, uint32_t j)
{
    uint32_t low = j < 8 ? s[j] & 15u : s[j - 8] >> 4 & 15u;
    uint32_t high = s[8 + j % 4] >> 2 * (j / 4) & 3u;
    return (int)(low | high << 4) - 32;
}

// Plane S of chunk `sub`.
template <uint32_t TYPE>
static __device__ uint32_t file_scales(const file_block<TYPE> &b, uint32_t sub)
{
    if constexpr (TYPE == QUANT_Q4_K || TYPE == QUANT_Q5_K) {
        uint32_t scale, minimum;
        k4_scale(b.scales, sub, &scale, &minimum);
        return scale | minimum << 8;
    } else if constexpr (TYPE == QUANT_Q2_K || TYPE == QUANT_Q6_K) {
        return u16_at(b.scales + 2 * sub);
    } else if constexpr (TYPE == QUANT_Q3_K) {
        return (uint32_t)(k3_scale(b.scales, 2 * sub) & 0xFF) |
               (uint32_t)(k3_scale(b.scales, 2 * sub + 1) & 0xFF) << 8;
    } else if constexpr (TYPE == QUANT_IQ4_XS) {
        uint32_t low = nibble_at(b.scales_low, sub / 2, sub % 2);
        uint32_t high = u16_at(b.scales_high) >> 2 * sub & 3u;
        return (uint32_t)(((int)(low | high << 4) - 32) & 0xFF);
    } else if constexpr (TYPE == QUANT_IQ3_XXS) {
        return 2 * (b.signs[4 * sub + 3] >> 4) + 1u;
    } else if constexpr (TYPE == QUANT_IQ3_S) {
        return 2 * nibble_at(b.scales, sub / 2, sub % 2) + 1;
    } else if constexpr (TYPE == QUANT_IQ2_XXS) { // as the rest: one for each half
        return (2 * (b.q[8 * sub + 7] >> 4) + 1u) * 0x0101u;
    } else if constexpr (TYPE == QUANT_IQ2_XS || TYPE == QUANT_IQ2_S) {
        return 2 * ((b.scales[sub] & 15u) | (b.scales[sub] & 0xF0u) << 4) + 0x0101u;
    } else if constexpr (TYPE == QUANT_IQ1_S) {
        return (2 * (b.high[2 * sub + 1] >> 4 & 7u) + 1) * 0x0101u;
    } else { // IQ1_M
        uint32_t two = u16_at(b.scales + sub / 2 * 2) >> 6 * (sub % 2);
        return 2 * ((two & 7u) | (two >> 3 & 7u) << 8) + 0x0101u;
    }
}

// NVFP4's scale without what its reader need not know: the only byte that is no number is 0.
static __device__ uint32_t e4m3(uint32_t bits)
{
    return bits == 0x7Fu ? 0 : bits & 0x7Fu;
}

// Plane D of the block, or of its chunk `sub`: d, and the minimum or its scale above it.
template <uint32_t TYPE> static __device__ uint32_t file_d(const file_block<TYPE> &b, uint32_t sub)
{
    if constexpr (TYPE == QUANT_MXFP4)
        return b.e;
    else if constexpr (TYPE == QUANT_NVFP4)
        return e4m3(b.scales[2 * sub]) | e4m3(b.scales[2 * sub + 1]) << 8;
    else if constexpr (TYPE == QUANT_IQ1_M)
        return iq1_m_d(&b);
    else if constexpr (TYPE == QUANT_Q4_1 || TYPE == QUANT_Q5_1)
        return u16_at(b.d) | u16_at(b.m) << 16;
    else if constexpr (block_facts(TYPE).minimum)
        return u16_at(b.d) | u16_at(b.dmin) << 16;
    else
        return u16_at(b.d);
}

// TYPE: the file's. Grid (chunks of the tiles / THREADS). A padding row has no source: its planes
// become zeros.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS)
    repack_kernel(const uint8_t *src, const struct wmat w, uint32_t row0, uint32_t n_rows,
                  uint32_t row_bytes)
{
    uint32_t n_tile = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (size_t)n_tile * TILE_ROWS * w.n_chunk)
        return;
    // Neighbouring threads take neighbouring rows of a chunk: their writes are consecutive.
    uint32_t r = i % TILE_ROWS, c = i / TILE_ROWS % w.n_chunk;
    uint32_t tile = (uint32_t)(i / TILE_ROWS / w.n_chunk), row = tile * TILE_ROWS + r;
    bool real = row < n_rows;
    const uint8_t *line = src + (size_t)row * row_bytes;
    size_t column = (size_t)(row0 / TILE_ROWS + tile) * w.n_chunk + c;
    size_t unit = column * TILE_ROWS + r;
    uint8_t *q = const_cast<uint8_t *>(w.q);
    if constexpr (is_plain(TYPE)) {
        uint32_t word[4] = {0, 0, 0, 0};
        for (uint32_t b = 0; b < 16; b++)
            if (real && c * 16 + b < row_bytes)
                word[b / 4] |= (uint32_t)line[c * 16 + b] << 8 * (b % 4);
        reinterpret_cast<uint4 *>(q)[unit] = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
        using T = quant_traits<block_facts(TYPE).planes>;
        constexpr int PER_BLOCK = block_facts(TYPE).weights / 32; // chunks of a file block
        const file_block<TYPE> &block =
            reinterpret_cast<const file_block<TYPE> *>(line)[c / PER_BLOCK];
        uint32_t sub = c % PER_BLOCK;
        uint32_t words[8] = {0}, high[2] = {0};
        for (uint32_t e = 0; real && e < 32; e++) {
            uint32_t v = file_quant<TYPE>(block, sub, e), k = e / 4, b = e % 4;
            if constexpr (T::BITS == 8)
                words[k] |= v << 8 * b;
            else if constexpr (T::BITS == 4)
                words[k % 4] |= (v & 15u) << (8 * b + 4 * (k / 4));
            else
                words[k % 2] |= (v & 3u) << (8 * b + 2 * (k / 2));
            if constexpr (T::H == 4)
                high[0] |= v >> T::BITS << (8 * b + k);
            else if constexpr (T::H == 8)
                high[k / 4] |= v >> T::BITS << (8 * b + 2 * (k % 4));
        }
        uint4 first = make_uint4(words[0], words[1], words[2], words[3]);
        if constexpr (T::BITS == 8) {
            uint4 *p = reinterpret_cast<uint4 *>(q + column * 256);
            p[r] = first;
            p[TILE_ROWS + r] = make_uint4(words[4], words[5], words[6], words[7]);
        } else if constexpr (T::BITS == 4) {
            reinterpret_cast<uint4 *>(q)[unit] = first;
        } else {
            reinterpret_cast<uint2 *>(q)[unit] = make_uint2(words[0], words[1]);
        }
        uint8_t *h = const_cast<uint8_t *>(w.h), *s = const_cast<uint8_t *>(w.s);
        uint8_t *d = const_cast<uint8_t *>(w.d);
        if constexpr (T::H == 4)
            reinterpret_cast<uint32_t *>(h)[unit] = high[0];
        else if constexpr (T::H == 8)
            reinterpret_cast<uint2 *>(h)[unit] = make_uint2(high[0], high[1]);
        if constexpr (T::S == 2)
            reinterpret_cast<uint16_t *>(s)[unit] =
                (uint16_t)(real ? file_scales<TYPE>(block, sub) : 0);
        else if constexpr (T::S == 1)
            s[unit] = (uint8_t)(real ? file_scales<TYPE>(block, sub) : 0);
        if (T::D_CHUNKS == 1 || sub == 0) {
            size_t group = unit;
            if constexpr (T::D_CHUNKS == 8)
                group = ((column - c) / 8 + c / 8) * TILE_ROWS + r;
            uint32_t bits = real ? file_d<TYPE>(block, sub) : 0;
            if constexpr (T::D == 4)
                reinterpret_cast<uint32_t *>(d)[group] = bits;
            else if constexpr (T::D == 1)
                d[group] = (uint8_t)bits;
            else
                reinterpret_cast<uint16_t *>(d)[group] = (uint16_t)bits;
        }
    }
}

// Grid (ceil(n_chunk * TILE_ROWS / THREADS), tiles). Rows outside [row0, row0 + n_rows) of the last
// tile are dropped.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS)
    dequant_kernel(const struct wmat w, uint32_t row0, uint32_t n_rows, void *dst, uint32_t ld)
{
    constexpr int N = chunk_elems(TYPE);
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    // Neighbouring threads take neighbouring chunks of a row: their writes are consecutive.
    uint32_t c = i % w.n_chunk, r = i / w.n_chunk, row = blockIdx.y * TILE_ROWS + r;
    griddep_launch_dependents();
    const bool any = r < TILE_ROWS && row < n_rows;
    chunk<TYPE> k;
    float v[N];
    if (any)
        load_chunk<TYPE>(tile_begin<TYPE>(w, row0 / TILE_ROWS + blockIdx.y, r), c, k);
    griddep_wait(); // for those who read what was there
    if (!any)
        return;
    dequantize_chunk<TYPE>(k, v);
    const size_t at = (size_t)row * ld + (size_t)c * N;
    if constexpr (TYPE == QUANT_F32) { // stays as it is; the last of an odd number pads the row
        float4 *out = reinterpret_cast<float4 *>(static_cast<float *>(dst) + at);
        out[0] = make_float4(v[0], v[1], v[2], v[3]);
        if (c + 1 == w.n_chunk && (c + 1) * N < ld)
            out[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        return;
    }
    __half *out = static_cast<__half *>(dst) + at;
    uint32_t packed[N / 2];
#pragma unroll
    for (int e = 0; e < N; e += 2)
        packed[e / 2] = saturated_half2(v[e] * w.half_scale, v[e + 1] * w.half_scale);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        reinterpret_cast<uint4 *>(out)[j] =
            make_uint4(packed[4 * j], packed[4 * j + 1], packed[4 * j + 2], packed[4 * j + 3]);
}

// Grid (tiles / N_WARP), a tile per warp and turn: 8 rows x 4 chunks at a time.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS, 4)
    weight_range_kernel(const struct wmat w, const float *norm, const float *bias,
                        struct weight_range *out)
{
    constexpr int N = chunk_elems(TYPE), N_WARP = THREADS / WARP;
    const uint32_t lane = threadIdx.x % WARP, r = lane % TILE_ROWS;
    float top = 0.0f, bound = 0.0f;
    for (uint32_t tile = blockIdx.x * N_WARP + threadIdx.x / WARP; tile < w.n_tile;
         tile += gridDim.x * N_WARP) {
        const struct tile_row at = tile_begin<TYPE>(w, tile, r);
        const uint32_t row = tile * TILE_ROWS + r;
        double squares = 0; // of weights up to 3e38
        for (uint32_t c = lane / TILE_ROWS; c < w.n_chunk; c += WARP / TILE_ROWS) {
            chunk<TYPE> k;
            float v[N];
            load_chunk<TYPE>(at, c, k);
            dequantize_chunk<TYPE>(k, v);
            for (int e = 0; e < N; e++) {
                const uint32_t col = c * N + e;
                const bool there = !is_plain(TYPE) || col < w.n_cols;
                const double x = (double)v[e] * (norm && there ? norm[col] : 1.0f);
                top = max_nan(top, fabsf(v[e]));
                squares += x * x;
            }
        }
        squares = lane_sum<8, 16>(squares) * w.n_cols;
        const float b = bias && row < w.rows ? fabsf(bias[row]) : 0.0f;
        // (a root in double would be a call)
        const float root =
            squares < 1e38 ? sqrtf((float)squares) : 1e19f * sqrtf((float)(squares * 1e-38));
        bound = max_nan(bound, root * fabsf(w.scale) + b);
    }
    top = warp_max_nan(top);
    bound = warp_max_nan(bound);
    if (lane == 0) { // bits of floats without a sign have their order, NaN above all
        atomicMax(reinterpret_cast<uint32_t *>(&out->top), __float_as_uint(fabsf(top)));
        atomicMax(reinterpret_cast<uint32_t *>(&out->bound), __float_as_uint(fabsf(bound)));
    }
}

// ---- launchers

bool weight_range_launch(const struct queue *q, const struct wmat *w, const float *norm,
                         const float *bias, struct weight_range *out, struct error *err)
{
    const uint32_t n_block = div_up(w->n_tile, (uint32_t)(THREADS / WARP));
    struct launch l = {.name = "weight_range",
                       .grid = dim3(lesser(n_block, (uint32_t)(8 * q->n_sm))),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .recorder = q->recorder};
    return with_type(w->type, [&](auto tag) {
        return launch_kernel(err, l, weight_range_kernel<decltype(tag)::value>, *w, norm, bias,
                             out);
    });
}

// As with_type, for every type that a file may have.
template <typename F> static bool with_file_type(uint32_t type, F f)
{
    switch (type) {
#define TYPE_CASE(name, number, ...)                                                               \
    case number:                                                                                   \
        return f(type_tag<number>());
        BLOCK_TYPES(TYPE_CASE)
#undef TYPE_CASE
    }
    return false;
}

bool repack_launch(const struct queue *q, uint32_t type, const void *src, const struct wmat *w,
                   uint32_t row0, uint32_t n_rows, struct error *err)
{
    size_t row_bytes = quant_row_bytes(type, w->n_cols);
    size_t chunks = (size_t)div_up(n_rows, (uint32_t)TILE_ROWS) * TILE_ROWS * w->n_chunk;
    struct launch l = {.name = "repack",
                       .grid = dim3((unsigned)div_up(chunks, (size_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .recorder = q->recorder};
    return with_file_type(type, [&](auto tag) {
        return launch_kernel(err, l, repack_kernel<decltype(tag)::value>, (const uint8_t *)src, *w,
                             row0, n_rows, (uint32_t)row_bytes);
    });
}

bool dequant_launch(const struct queue *q, const struct wmat *w, uint32_t row0, uint32_t n_rows,
                    void *dst, uint32_t ld, struct error *err)
{
    struct launch l = {.name = "dequant",
                       .grid = dim3(div_up(w->n_chunk * TILE_ROWS, (uint32_t)THREADS),
                                    div_up(n_rows, (uint32_t)TILE_ROWS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(w->type, [&](auto tag) {
        return launch_kernel(err, l, dequant_kernel<decltype(tag)::value>, *w, row0, n_rows, dst,
                             ld);
    });
}
