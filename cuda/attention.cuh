// What decoding and prefill share: a head's vector (norm, rotation, the cache's new row), rows of
// the cache on their way to the matrix units, and the running softmax of a tile of queries
// (FlashAttention, Dao et al. 2022).
#ifndef HOKKU_CUDA_ATTENTION_CUH
#define HOKKU_CUDA_ATTENTION_CUH

#include "block.cuh"
#include "kernels.h"
#include "quant.cuh"

enum {
    M = 16, // rows of a matrix tile
};

// Row stride of a tile in shared memory, in elements: 16 bytes of padding keep the eight rows that
// an ldmatrix reads in different banks.
template <int DH> static constexpr __host__ __device__ int tile_ld()
{
    return DH + 8;
}

static __device__ __forceinline__ uint32_t half2_bits(__half2 h)
{
    return *reinterpret_cast<const uint32_t *>(&h);
}

static __device__ __forceinline__ __half2 bits_half2(uint32_t bits)
{
    return *reinterpret_cast<const __half2 *>(&bits);
}

// First position that the token at `position` sees.
static __device__ __forceinline__ uint32_t window_begin(const struct attention &a,
                                                        uint32_t position)
{
    if (a.chunked)
        return position - position % a.n_swa;
    return a.n_swa && position + 1 > a.n_swa ? position + 1 - a.n_swa : 0;
}

// ---- a head's vector

// Half a warp takes a vector, so that one turn of a block's warps prepares all that a token needs.
enum { TEAM = WARP / 2 };

static __device__ __forceinline__ uint32_t team_mask(void)
{
    return 0xFFFFu << (threadIdx.x & TEAM);
}

static __device__ __forceinline__ float team_sum(float v)
{
    for (int d = TEAM / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(team_mask(), v, d);
    return v;
}

// NaN when any is.
static __device__ __forceinline__ float team_max(float v)
{
    for (int d = TEAM / 2; d > 0; d /= 2)
        v = max_nan(v, __shfl_xor_sync(team_mask(), v, d));
    return v;
}

// In the registers of a team, as the pairs that the rotation (RoPE, Su et al. 2021) turns: pair
// lane + 16 j in v[j]. The elements that it leaves alone follow, two by two.
template <int DH> struct head_pairs {
    static constexpr int N = DH / 2 / TEAM;
    float2 v[N], turn[N];
};

// Kernels come in two kinds. PLAIN: for most models; what else a model may do to its queries and
// scores costs these nothing, nor do heads that are not as long as the kernel's or turned in part.
static inline bool is_plain(const struct attention &a, uint32_t dh)
{
    return !a.norm_rotated && !a.norm_mean && a.norm_stride == 0 && a.softcap == 0.0f &&
           a.temp_scale == 0.0f && !a.v_norm && !a.cached && a.head_dim == dh &&
           (a.rope_dim == dh || !a.rope);
}

// The elements of pair p.
template <int DH, bool PLAIN>
static __device__ __forceinline__ uint2 pair_at(const struct attention &a, uint32_t p)
{
    const uint32_t n_pair = PLAIN ? DH / 2 : a.rope_dim / 2;
    return a.rope_halves && p < n_pair ? make_uint2(p, p + n_pair) : make_uint2(2 * p, 2 * p + 1);
}

// Whether a head has element i.
template <bool PLAIN>
static __device__ __forceinline__ bool has_element(const struct attention &a, uint32_t i)
{
    return PLAIN || i < a.head_dim;
}

// Requests everything at once: nothing here waits for anything else here. rope NULL: no rotation.
template <int DH, bool PLAIN>
static __device__ __forceinline__ void load_head(const struct attention &a, const float *src,
                                                 const float2 *rope, uint32_t lane,
                                                 head_pairs<DH> &h)
{
    // to the layout of pairs even without a rotation: the elements are the same
#pragma unroll
    for (int j = 0; j < h.N; j++) {
        uint32_t p = lane + j * TEAM;
        uint2 i = pair_at<DH, PLAIN>(a, p);
        h.v[j] = make_float2(has_element<PLAIN>(a, i.x) ? src[i.x] : 0.0f,
                             has_element<PLAIN>(a, i.y) ? src[i.y] : 0.0f);
        h.turn[j] = rope && (PLAIN || p < a.rope_dim / 2) ? rope[p] : make_float2(1.0f, 0.0f);
    }
}

// The norm's weights of vector i of a token: of the query heads, then the keys, then the values.
template <bool PLAIN>
static __device__ __forceinline__ const float *norm_of(const struct attention &a, uint32_t i)
{
    const uint32_t k = i - a.n_head, stride = PLAIN ? 0 : a.norm_stride; // norm NULL: no stride
    return i < a.n_head      ? a.q_norm + i * stride
           : k < a.n_head_kv ? a.k_norm + k * stride
           : PLAIN           ? NULL
                             : a.v_norm;
}

// A norm's weights for the elements that a lane has of a vector; of none: that.
template <int DH> struct head_norm {
    float2 w[head_pairs<DH>::N];
    bool any;
};

template <int DH, bool PLAIN>
static __device__ __forceinline__ head_norm<DH> load_norm(const struct attention &a,
                                                          const float *norm, uint32_t lane)
{
    head_norm<DH> n = {};
    n.any = norm;
#pragma unroll
    for (int j = 0; j < head_pairs<DH>::N; j++) {
        const uint2 i = pair_at<DH, PLAIN>(a, lane + j * TEAM);
        if (norm)
            n.w[j] = make_float2(has_element<PLAIN>(a, i.x) ? norm[i.x] : 0.0f,
                                 has_element<PLAIN>(a, i.y) ? norm[i.y] : 0.0f);
    }
    return n;
}

template <int DH>
static __device__ __forceinline__ void subtract_mean(const struct attention &a, uint32_t lane,
                                                     head_pairs<DH> &h)
{
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < h.N; j++)
        sum += h.v[j].x + h.v[j].y; // zeros from head_dim on
    const float mean = team_sum(sum) / (float)a.head_dim;
#pragma unroll
    for (int j = 0; j < h.N; j++) {
        const uint2 i = pair_at<DH, false>(a, lane + j * TEAM);
        h.v[j].x -= i.x < a.head_dim ? mean : 0.0f;
        h.v[j].y -= i.y < a.head_dim ? mean : 0.0f;
    }
}

// Normalises where there is a norm, and rotates.
template <int DH, bool PLAIN>
static __device__ __forceinline__ void
finish_head(const struct attention &a, const head_norm<DH> &norm, uint32_t lane, head_pairs<DH> &h)
{
    auto normalise = [&] {
        if (!PLAIN && a.norm_mean)
            subtract_mean<DH>(a, lane, h);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < h.N; j++)
            sum = fmaf(h.v[j].x, h.v[j].x, fmaf(h.v[j].y, h.v[j].y, sum));
        float rms = rsqrtf(of_squares(team_sum(sum) / (float)a.head_dim + a.eps));
#pragma unroll
        for (int j = 0; j < h.N; j++) {
            uint2 i = pair_at<DH, PLAIN>(a, lane + j * TEAM);
            h.v[j].x *= has_element<PLAIN>(a, i.x) ? rms * norm.w[j].x : 0.0f;
            h.v[j].y *= has_element<PLAIN>(a, i.y) ? rms * norm.w[j].y : 0.0f;
        }
    };
    if (norm.any && (PLAIN || !a.norm_rotated))
        normalise();
#pragma unroll
    for (int j = 0; j < h.N; j++) {
        float2 v = h.v[j], t = h.turn[j];
        h.v[j] = make_float2(v.x * t.x - v.y * t.y, v.x * t.y + v.y * t.x);
    }
    if (!PLAIN && norm.any && a.norm_rotated)
        normalise();
}

// As a row of queries (DH): zeros from head_dim on.
template <int DH, bool PLAIN>
static __device__ __forceinline__ void store_query(const struct attention &a,
                                                   const head_pairs<DH> &h, uint32_t position,
                                                   __half *row, uint32_t lane)
{
    float scale = a.q_scale;
    if (!PLAIN && a.temp_scale != 0.0f)
        scale *=
            fmaf(a.temp_scale, logf(1.0f + (float)((position + a.temp_offset) / a.temp_len)), 1.0f);
#pragma unroll
    for (int j = 0; j < h.N; j++) {
        uint2 i = pair_at<DH, PLAIN>(a, lane + j * TEAM);
        row[i.x] = __float2half_rn(h.v[j].x * scale);
        row[i.y] = __float2half_rn(h.v[j].y * scale);
    }
}

// To the cache, times the plane's scale; and as attention will read it from there to copy (DH)
// unless that is NULL. buf (DH) is the team's.
template <int DH, bool PLAIN>
static __device__ __forceinline__ void
store_kv(const struct attention &a, const struct kv_plane &plane, size_t row,
         const head_pairs<DH> &h, float *buf, __half *copy, uint32_t lane)
{
#pragma unroll
    for (int j = 0; j < h.N; j++) {
        uint2 i = pair_at<DH, PLAIN>(a, lane + j * TEAM);
        buf[i.x] = h.v[j].x * plane.scale;
        buf[i.y] = h.v[j].y * plane.scale;
    }
    __syncwarp(team_mask());
    uint8_t *out = plane.data + row * plane.row_bytes;
    const bool plain = !plane.scales;
#pragma unroll 2
    for (uint32_t g = 0; g < DH / 32; g++) {
        uint32_t i = g * 32 + lane * 2;
        float2 v = *reinterpret_cast<const float2 *>(buf + i);
        __half2 kept = __floats2half2_rn(v.x, v.y);
        if (plain) {
            if (PLAIN || i < plane.row_bytes / 2)
                *reinterpret_cast<__half2 *>(out + 2 * i) = kept;
        } else {
            __half d = __float2half_rn(team_max(max_nan(fabsf(v.x), fabsf(v.y))) * (1.0f / 127.0f));
            float scale = __half2float(d), inverse = scale > 0.0f ? __frcp_rn(scale) : 0.0f;
            int x = min(max(__float2int_rn(v.x * inverse), -127), 127);
            int y = min(max(__float2int_rn(v.y * inverse), -127), 127);
            if (PLAIN || i < plane.row_bytes)
                *reinterpret_cast<uint16_t *>(out + i) =
                    (uint16_t)((uint32_t)(x & 0xFF) | (uint32_t)(y & 0xFF) << 8);
            if (lane == 0 && g < plane.n_group)
                plane.scales[row * plane.n_group + g] = __half_as_ushort(d);
            kept = __floats2half2_rn(scale * (float)x, scale * (float)y);
        }
        if (copy)
            *reinterpret_cast<__half2 *>(copy + i) = kept;
    }
    if (!plain && lane == 0 && plane.n_group > DH / 32) // the one that makes it even
        plane.scales[row * plane.n_group + DH / 32] = 0;
}

// ---- rows of the cache

// Scales per row of a tile in shared memory: an even number, as in the cache (kv_plane).
template <int DH> static constexpr __host__ __device__ uint32_t tile_groups()
{
    return (DH / 32 + 1) / 2 * 2;
}

// The threads' share of 16-byte pieces of ROWS rows, N pieces each: a thread has the same piece of
// every STEP-th row.
template <int ROWS, int N, int THREADS, typename F>
static __device__ __forceinline__ void each_piece(uint32_t thread, F f)
{
    constexpr int LANES = N <= 2 ? 2 : N <= 4 ? 4 : N <= 8 ? 8 : N <= 16 ? 16 : 32;
    constexpr int STEP = THREADS / LANES;
    static_assert(THREADS % LANES == 0 && ROWS % STEP == 0, "whole turns");
    if (LANES == N || thread % LANES < N) {
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP)
            f(thread / LANES, thread % LANES, r);
    }
}

// Threads 0 .. THREADS - 1 request ROWS rows of the cache, from row0 on: a tile (ROWS, LD) of
// float16, or, until widen_rows, the bytes (ROWS, DH) and scales (ROWS, tile_groups) of Q8_0 in the
// same place. Rows from `left` on become zeros (a weight of zero times an uninitialised value could
// be NaN). WHOLE: rows are DH elements.
template <int DH, int ROWS, int THREADS, bool WHOLE = false>
static __device__ __forceinline__ void request_rows(const struct kv_plane &plane, size_t row0,
                                                    int left, __half *tile, uint32_t thread)
{
    static_assert(KV_BLOCK % ROWS == 0, "the rows lie together");
    uint8_t *to = reinterpret_cast<uint8_t *>(tile);
    auto piece = [&](uint32_t r0, uint32_t i, int r, int stride, uint32_t bytes) {
        // one address and one bound per thread; what remains of a piece is a constant
        const uint32_t row_bytes = WHOLE ? bytes : plane.row_bytes;
        const uint8_t *src = plane.data + row0 * row_bytes + r0 * row_bytes + i * 16;
        int limit = WHOLE || i * 16 < row_bytes ? left - (int)r0 : 0;
        cp_async16_or_zero(to + r0 * stride + i * 16 + r * stride,
                           WHOLE || r < limit ? src + (uint32_t)r * row_bytes : plane.data,
                           r < limit);
    };
    if (!plane.scales) {
        each_piece<ROWS, DH / 8, THREADS>(thread, [&](uint32_t r0, uint32_t i, int r) {
            piece(r0, i, r, tile_ld<DH>() * sizeof(__half), DH * sizeof(__half));
        });
        return;
    }
    each_piece<ROWS, DH / 16, THREADS>(
        thread, [&](uint32_t r0, uint32_t i, int r) { piece(r0, i, r, DH, DH); });
    constexpr uint32_t WORDS = tile_groups<DH>() / 2;
    uint32_t *scales = reinterpret_cast<uint32_t *>(to + ROWS * DH);
#pragma unroll 1
    for (uint32_t i = thread; i < ROWS * WORDS; i += THREADS) {
        uint32_t r = i / WORDS, g = i % WORDS * 2;
        if ((int)r < left && g < plane.n_group)
            cp_async4(&scales[i], plane.scales + (row0 + r) * plane.n_group + g);
        else
            scales[i] = 0;
    }
}

// Four signed bytes times d, as float16: exact but for the one rounding of the product.
static __device__ __forceinline__ uint2 widen4(uint32_t bytes, __half2 d)
{
    uint32_t u = bytes ^ 0x80808080u; // + 128; 0x6400 | u is 1024 + u
    __half2 bias = bits_half2(0x64806480u);
    __half2 low = __hsub2(bits_half2(__byte_perm(u, 0x64646464u, 0x4140)), bias);
    __half2 high = __hsub2(bits_half2(__byte_perm(u, 0x64646464u, 0x4342)), bias);
    return make_uint2(half2_bits(__hmul2(low, d)), half2_bits(__hmul2(high, d)));
}

// Makes the rows of Q8_0 that request_rows brought a tile of float16, in place. sync: a barrier of
// the THREADS threads. The copies have been waited for and are visible to all of them.
template <int DH, int ROWS, int THREADS, typename F>
static __device__ __forceinline__ void widen_rows(__half *tile, uint32_t thread, F sync)
{
    constexpr uint32_t PIECES = DH / 16, ALL = ROWS * PIECES, N = (ALL + THREADS - 1) / THREADS;
    const auto is_there = [](uint32_t i) { return ALL % THREADS == 0 || i < ALL; };
    const uint4 *raw = reinterpret_cast<const uint4 *>(tile);
    const uint16_t *scales =
        reinterpret_cast<const uint16_t *>(reinterpret_cast<const uint8_t *>(tile) + ROWS * DH);
    uint4 v[N];
    __half2 d[N];
#pragma unroll
    for (uint32_t n = 0; n < N; n++) {
        uint32_t i = n * THREADS + thread, r = i / PIECES, piece = i % PIECES;
        if (!is_there(i))
            continue;
        v[n] = raw[i];
        d[n] = bits_half2(scales[r * tile_groups<DH>() + piece / 2] * 0x10001u);
    }
    sync();
#pragma unroll
    for (uint32_t n = 0; n < N; n++) {
        uint32_t i = n * THREADS + thread, r = i / PIECES, piece = i % PIECES;
        if (!is_there(i))
            continue;
        uint4 *out = reinterpret_cast<uint4 *>(tile + r * tile_ld<DH>() + piece * 16);
        uint2 x = widen4(v[n].x, d[n]), y = widen4(v[n].y, d[n]);
        uint2 z = widen4(v[n].z, d[n]), w = widen4(v[n].w, d[n]);
        out[0] = make_uint4(x.x, x.y, y.x, y.y);
        out[1] = make_uint4(z.x, z.y, w.x, w.y);
    }
    sync();
}

// ---- softmax(q k^T) v of a warp

// A warp's MT tiles of 16 rows: this thread holds rows g = lane / 4 and g + 8 of each, columns 2
// (lane % 4) and the next of every eight.
template <int DH, int MT> struct softmax {
    float top[MT][2]; // running maximum, in units of log2
    float sum[MT][2]; // of this thread's columns
    float o[MT][DH / 8][4];
};

template <int DH, int MT> static __device__ __forceinline__ void softmax_init(softmax<DH, MT> &s)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        s.top[m][0] = s.top[m][1] = -INFINITY;
        s.sum[m][0] = s.sum[m][1] = 0.0f;
#pragma unroll
        for (int i = 0; i < DH / 8; i++)
            s.o[m][i][0] = s.o[m][i][1] = s.o[m][i][2] = s.o[m][i][3] = 0.0f;
    }
}

// Scores of MT * 16 rows of q against NP * 16 rows of k.
template <int MT, int NP> struct scores {
    float s[MT][2 * NP][4];
};

template <int DH, int MT, int NP>
static __device__ __forceinline__ void multiply_qk(scores<MT, NP> &s, const __half *q,
                                                   const __half *k, uint32_t lane)
{
    constexpr int LD = tile_ld<DH>();
    // Few positions: two sums per element, for shorter chains of dependent products.
    constexpr int CHAINS = NP == 1 ? 2 : 1;
    const uint32_t m = lane / 8; // which 8x8 matrix of an ldmatrix this lane addresses
    float c[CHAINS][MT][2 * NP][4] = {};
#pragma unroll
    for (int ks = 0; ks < DH / 16; ks++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int t = 0; t < MT; t++)
            ldmatrix_x4(a[t], q + (t * M + lane % 16) * LD + ks * 16 + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < NP; j++) {
            uint32_t b[4];
            ldmatrix_x4(b, k + (j * 16 + m / 2 * 8 + lane % 8) * LD + ks * 16 + m % 2 * 8);
#pragma unroll
            for (int t = 0; t < MT; t++) {
                mma_f16(c[ks % CHAINS][t][2 * j], a[t], b);
                mma_f16(c[ks % CHAINS][t][2 * j + 1], a[t], b + 2);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int j = 0; j < 2 * NP; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.s[t][j][e] = CHAINS == 1 ? c[0][t][j][e] : c[0][t][j][e] + c[1 % CHAINS][t][j][e];
}

// Row h of tile t (0: g, 1: g + 8) sees positions begin[t][h] <= p < end[t][h]; s is of the
// positions from `first` on.
template <int MT, int NP>
static __device__ __forceinline__ void mask(scores<MT, NP> &s, uint32_t first,
                                            const uint32_t begin[MT][2], const uint32_t end[MT][2],
                                            uint32_t lane)
{
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int j = 0; j < 2 * NP; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t p = first + j * 8 + lane % 4 * 2 + e % 2;
                if (p < begin[t][e / 2] || p >= end[t][e / 2])
                    s.s[t][j][e] = -INFINITY;
            }
}

// A score s to c tanh(s / c) = c - 2 c / (1 + e^(2 s / c)), in units of log2.
static __device__ __forceinline__ float capped(const struct attention &a, float score)
{
    const float in = 2.0f * a.score_undo / a.softcap, out = 1.4426950408889634f * a.softcap;
    return out - __fdividef(2.0f * out, 1.0f + ptx_exp2(score * in));
}

// Scores so, where there is a cap. Returns what weigh is to multiply them with.
template <int MT, int NP>
static __device__ __forceinline__ float cap(scores<MT, NP> &s, const struct attention &a)
{
    if (a.softcap == 0.0f)
        return a.score_undo;
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int j = 0; j < 2 * NP; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.s[t][j][e] = capped(a, s.s[t][j][e]);
    return 1.0f;
}

// Row h of tile t sees scores up to most, in units of log2: the new maximum of what it has seen,
// what weights are relative to (base), and how much less what has been summed up so far counts.
template <int DH, int MT>
static __device__ __forceinline__ void raise_top_to(softmax<DH, MT> &s, int t, int h, float most,
                                                    float &base, float &shrink)
{
    const float top = fmaxf(s.top[t][h], most);
    base = top == -INFINITY ? 0.0f : top; // nothing seen: -inf - -inf is no number
    shrink = ptx_exp2(s.top[t][h] - base);
    s.top[t][h] = top;
}

// undo: takes the score to units of log2.
static __device__ __forceinline__ float weight_of(float score, float undo, float base)
{
    return ptx_exp2(fmaf(score, undo, -base));
}

// Adds the weights of two neighbouring positions of row h, which are a tile's first in their column
// or not: with those what was summed up before shrinks. Said as one operation, so that no compiler
// makes of it one here and two there.
template <int DH, int MT>
static __device__ __forceinline__ void add_weights(softmax<DH, MT> &s, int t, int h, bool first,
                                                   float pair, const float shrink[2])
{
    s.sum[t][h] = first ? fmaf(s.sum[t][h], shrink[h], pair) : s.sum[t][h] + pair;
}

// Scores to weights, step by step. First, of tile t: the new maximum of each row.
template <int DH, int MT, int NP>
static __device__ __forceinline__ void raise_top(softmax<DH, MT> &s, const scores<MT, NP> &c, int t,
                                                 float undo, float base[2], float shrink[2])
{
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < 2 * NP; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            top[e / 2] = fmaxf(top[e / 2], c.s[t][j][e]);
#pragma unroll
    for (int h = 0; h < 2; h++)
        raise_top_to(s, t, h, lane_max<1, 2>(top[h]) * undo, base[h], shrink[h]);
}

// Second, whenever the sums of values are there.
template <int DH, int MT>
static __device__ __forceinline__ void shrink_sums(softmax<DH, MT> &s, int t, const float shrink[2])
{
    // once a row has seen its largest scores, most tiles change nothing
    if (!__all_sync(0xFFFFFFFFu, shrink[0] == 1.0f && shrink[1] == 1.0f)) {
#pragma unroll
        for (int i = 0; i < DH / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.o[t][i][e] *= shrink[e / 2];
    }
}

// Third, the weights themselves, in the place of the scores.
template <int DH, int MT, int NP>
static __device__ __forceinline__ void weights_of(softmax<DH, MT> &s, scores<MT, NP> &c, int t,
                                                  float undo, const float base[2],
                                                  const float shrink[2])
{
#pragma unroll
    for (int j = 0; j < 2 * NP; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *v = &c.s[t][j][2 * h];
            v[0] = weight_of(v[0], undo, base[h]);
            v[1] = weight_of(v[1], undo, base[h]);
            add_weights(s, t, h, j == 0, v[0] + v[1], shrink);
        }
}

// As the left operand of the product with v: rows g, g + 8, then of the next 8 columns.
template <int MT, int NP>
static __device__ __forceinline__ void pack_weights(const scores<MT, NP> &c, int t,
                                                    uint32_t p[MT][NP][4])
{
#pragma unroll
    for (int j = 0; j < NP; j++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const float *v = &c.s[t][2 * j + r / 2][r % 2 * 2];
            p[t][j][r] = half2_bits(__floats2half2_rn(v[0], v[1]));
        }
}

template <int DH, int MT, int NP>
static __device__ __forceinline__ void weigh(softmax<DH, MT> &s, scores<MT, NP> &c, float undo,
                                             uint32_t p[MT][NP][4])
{
#pragma unroll
    for (int t = 0; t < MT; t++) {
        float base[2], shrink[2];
        raise_top(s, c, t, undo, base, shrink);
        shrink_sums(s, t, shrink);
        weights_of(s, c, t, undo, base, shrink);
        pack_weights(c, t, p);
    }
}

// Adds weighted values: of a tile (NP * 16, LD), or of DH of its columns.
template <int DH, int LD = tile_ld<DH>(), int MT, int NP>
static __device__ __forceinline__ void multiply_pv(softmax<DH, MT> &s, const uint32_t p[MT][NP][4],
                                                   const __half *v, uint32_t lane)
{
    const uint32_t m = lane / 8;
#pragma unroll
    for (int j = 0; j < NP; j++)
#pragma unroll
        for (int i = 0; i < DH / 16; i++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, v + (j * 16 + m % 2 * 8 + lane % 8) * LD + i * 16 + m / 2 * 8);
#pragma unroll
            for (int t = 0; t < MT; t++) {
                mma_f16(s.o[t][2 * i], p[t][j], b);
                mma_f16(s.o[t][2 * i + 1], p[t][j], b + 2);
            }
        }
}

// The sum of row h of tile t, in all four threads that hold it.
template <int DH, int MT>
static __device__ __forceinline__ float row_sum(const softmax<DH, MT> &s, int t, int h)
{
    return lane_sum<1, 2>(s.sum[t][h]);
}

// The divisor of a head's results: with the share of its sink, if it has one, which no value is
// weighed with. top and sum: of all positions seen, in units of log2.
static __device__ __forceinline__ float with_sink(const struct attention &a, uint32_t head,
                                                  float top, float sum)
{
    return a.sinks ? sum + ptx_exp2(fmaf(a.sinks[head], 1.4426950408889634f, -top)) : sum;
}

// ---- results

// What the gate makes of element d of a head.
static __device__ __forceinline__ float gate_of(const struct attention &a, uint32_t token,
                                                uint32_t head, uint32_t d)
{
    const float gate = a.q_in[(size_t)token * a.ld_q + (2 * head + 1) * a.head_dim + d];
    return ptx_reciprocal(1.0f + ptx_exp2(-1.4426950408889634f * gate));
}

// Four results from element d of a head on to a.packed. The last head also brings the zeros that
// fill up the row.
static __device__ __forceinline__ void store_packed(const struct attention &a, uint32_t token,
                                                    uint32_t head, uint32_t d, const float e[4])
{
    const struct packed_rows &p = a.packed;
    const uint32_t row = p.row0 + token, n_cols = a.n_head_out * a.value_dim;
    const uint32_t end = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * GEMM_PACK_COLS;
    const float scale = a.v.scale; // neighbours: see gemm_pack_at
    uint2 v = make_uint2(saturated_half2(e[0] * scale, e[2] * scale),
                         saturated_half2(e[1] * scale, e[3] * scale));
    uint32_t col = (a.out_head + head) * a.value_dim + d;
    if (col == 0)
        p.undo[row] = a.v_undo;
    do {
        if (p.form == GEMM_FEW_PACKED) {
            *reinterpret_cast<uint2 *>(p.x + gemm_few_at(p.n, row, col, n_cols)) = v;
        } else {
            *reinterpret_cast<uint32_t *>(p.x + gemm_pack_at(p.n, row, col)) = v.x;
            *reinterpret_cast<uint32_t *>(p.x + gemm_pack_at(p.n, row, col + 1)) = v.y;
        }
        v = make_uint2(0, 0);
        col += a.value_dim;
    } while (a.out_head + head + 1 == a.n_head_out && col < end);
}

// Four results from element d of a head on.
static __device__ __forceinline__ void store_out(const struct attention &a, uint32_t token,
                                                 uint32_t head, uint32_t d, float4 v)
{
    float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (uint32_t i = 0; a.gated && i < 4; i++)
        if (d + i < a.value_dim)
            e[i] *= gate_of(a, token, head, d + i);
    if (a.packed.x) {
        if (d < a.value_dim)
            store_packed(a, token, head, d, e);
        return;
    }
    float *out = a.out + ((size_t)token * a.n_head_out + a.out_head + head) * a.value_dim;
    if (a.value_dim % 4 == 0) {
        if (d < a.value_dim)
            *reinterpret_cast<float4 *>(out + d) = make_float4(e[0], e[1], e[2], e[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (d + i < a.value_dim)
            out[d + i] = e[i];
}

// ---- what several blocks have summed up

static __device__ __forceinline__ void add_scaled(float4 &sum, float f, float4 v)
{
    sum.x = fmaf(f, v.x, sum.x);
    sum.y = fmaf(f, v.y, sum.y);
    sum.z = fmaf(f, v.z, sum.z);
    sum.w = fmaf(f, v.w, sum.w);
}

static __device__ __forceinline__ float4 scaled(float4 v, float f)
{
    return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}

// ---- host

template <int DH> struct dim_tag {
    static constexpr int value = DH;
};
template <bool PLAIN> struct kind_tag {
    static constexpr bool plain = PLAIN;
};

// Calls f with the padded head dimension as a template argument; false when no kernel fits.
template <typename F> static bool with_head_dim(uint32_t head_dim, F f)
{
    return head_dim <= 32    ? f(dim_tag<32>())
           : head_dim <= 64  ? f(dim_tag<64>())
           : head_dim <= 96  ? f(dim_tag<96>())
           : head_dim <= 128 ? f(dim_tag<128>())
           : head_dim <= 256 ? f(dim_tag<256>())
                             : false;
}

// Calls f(dim_tag, kind_tag) of the kernel for a.
template <typename F> static bool with_kernel(const struct attention &a, F f)
{
    return with_head_dim(a.head_dim, [&](auto dim) {
        return is_plain(a, decltype(dim)::value) ? f(dim, kind_tag<true>())
                                                 : f(dim, kind_tag<false>());
    });
}

// The keys and values of rows [0, n), each at its own place, into the cache.
bool attention_store_launch(const struct queue *q, const struct attention *a, uint32_t n,
                            struct error *err);
// The norm over all heads of n rows, where the model has it, as a launch; *rest: what is left to
// do.
bool attention_norm_whole(const struct queue *q, const struct attention *a, uint32_t n,
                          struct attention *rest, struct error *err);

// What either part needs of attention_scratch and attention_smem.
void attention_decode_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                              uint32_t n_seq, struct attention_scratch *out);
void attention_prefill_scratch(int n_sm, uint32_t n_head, uint32_t head_dim, uint32_t n_batch,
                               struct attention_scratch *out);
size_t attention_decode_smem(uint32_t head_dim);
size_t attention_prefill_smem(uint32_t head_dim);

// ---- attention_few.cu, attention_hopper.cu: the second launch of attention_prefill_launch, where
// they take it

// *done: it was launched.
bool attention_few_launch(const struct queue *q, const struct attention *a, uint32_t n, bool *done,
                          struct error *err);
bool attention_hopper_takes(const struct queue *q, const struct attention *a);
bool attention_hopper_launch(const struct queue *q, const struct attention *a, uint32_t n,
                             struct error *err);

// ---- attention_wide_hopper.cu: the last launch of attention_wide_launch of a prompt, where that
// takes it

bool attention_wide_hopper_takes(const struct queue *q, const struct attention *a);
bool attention_wide_hopper_launch(const struct queue *q, const struct attention *a, uint32_t n,
                                  struct error *err);

#endif
