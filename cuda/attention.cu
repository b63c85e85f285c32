// Attention: the heads' norms and rotations, the KV cache's new rows, and softmax(q k^T) v on the
// matrix units, decode and prefill alike (FlashAttention, Dao et al. 2022: the running maximum and
// sum; Flash-Decoding for the split over positions).
//
// All query heads that share a KV head form the rows of one matrix tile, so every key and value is
// read once per token however many heads use it (GQA, Ainslie et al. 2023).
//
//   decode   the cache is cut into chunks of ATTENTION_CHUNK positions, dealt out to the blocks of
//   a
//            KV head; each block merges its warps, the last block to finish merges the blocks. The
//            cut depends on the position alone, so the same position gives the same bits.
//   prefill  a block takes 64 rows (token, head) and walks over the cache up to its last token;
//            where a short prompt follows a long text, several blocks share the walk.
#include "kernels.h"
#include "quant.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    M = 16,            // rows of a warp's tile
    PREFILL_TILE = 32, // positions per step of prefill
    MAX_SPLIT = 64,    // blocks per KV head while decoding
    MAX_PART = 16,     // blocks that share the cache in prefill
    PART_TILES = 8,    // tiles that make a part worth while
};

// ---- kernels

// Row stride of a tile in shared memory, in elements: 16 bytes of padding keep the eight rows that
// an ldmatrix reads in different banks.
template <int DH> static constexpr __host__ __device__ int tile_ld()
{
    return DH + 8;
}

// Two tiles in turn while there is room.
template <int DH> static constexpr __host__ __device__ int n_stage()
{
    return DH > 128 ? 1 : 2;
}

static __device__ __forceinline__ float warp_sum(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, d);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    return v;
}

static __device__ __forceinline__ uint32_t pack_half2(float low, float high)
{
    return (uint32_t)__half_as_ushort(__float2half_rn(low)) |
           (uint32_t)__half_as_ushort(__float2half_rn(high)) << 16;
}

// One warp: a head's vector src (head_dim) to buf, normalised unless norm is NULL, rotated unless
// rope is NULL (RoPE, Su et al. 2021).
static __device__ void prepare_head(const struct attention &a, const float *src, const float *norm,
                                    const float2 *rope, float *buf, uint32_t lane)
{
    float sum = 0.0f;
    for (uint32_t i = lane; i < a.head_dim; i += WARP) {
        float v = src[i];
        buf[i] = v;
        sum = fmaf(v, v, sum);
    }
    if (norm) {
        float rms = 1.0f / sqrtf(warp_sum(sum) / (float)a.head_dim + a.eps);
        for (uint32_t i = lane; i < a.head_dim; i += WARP)
            buf[i] = buf[i] * rms * norm[i];
    }
    __syncwarp();
    if (rope) {
        uint32_t n_pair = a.rope_dim / 2;
        for (uint32_t p = lane; p < n_pair; p += WARP) {
            uint32_t i = a.rope_halves ? p : 2 * p, j = a.rope_halves ? p + n_pair : 2 * p + 1;
            float2 r = rope[p];
            float x = buf[i], y = buf[j];
            buf[i] = x * r.x - y * r.y;
            buf[j] = x * r.y + y * r.x;
        }
        __syncwarp();
    }
}

// One warp: buf (head_dim) to the cache.
static __device__ void store_kv(const struct attention &a, const struct kv_plane &plane,
                                uint32_t head, uint32_t position, const float *buf, uint32_t lane)
{
    size_t row = (size_t)head * a.n_ctx + position;
    if (!plane.scales) {
        __half *out = reinterpret_cast<__half *>(plane.data + row * plane.row_bytes);
        for (uint32_t i = lane; i < plane.row_bytes / 2; i += WARP)
            out[i] = __float2half_rn(i < a.head_dim ? buf[i] : 0.0f);
        return;
    }
    int8_t *out = reinterpret_cast<int8_t *>(plane.data + row * plane.row_bytes);
    for (uint32_t g = 0; g < plane.n_group; g++) {
        uint32_t i = g * 32 + lane;
        float v = i < a.head_dim ? buf[i] : 0.0f;
        __half d = __float2half_rn(warp_max(fabsf(v)) / 127.0f);
        float scale = __half2float(d);
        int q = scale > 0.0f ? __float2int_rn(v / scale) : 0;
        if (i < plane.row_bytes)
            out[i] = (int8_t)min(max(q, -127), 127);
        if (lane == 0)
            plane.scales[row * plane.n_group + g] = __half_as_ushort(d);
    }
}

// One warp: buf * scale to a row of a query tile, zeros from head_dim to DH.
template <int DH>
static __device__ void store_query(const float *buf, uint32_t head_dim, float scale, __half *row,
                                   uint32_t lane)
{
    for (uint32_t i = lane; i < DH; i += WARP)
        row[i] = __float2half_rn(i < head_dim ? buf[i] * scale : 0.0f);
}

// Threads 0 .. n_thread - 1 request n_row rows of a head, from position first on, as float16 in
// shared memory; rows from n_kv on become zeros (a weight of zero times an uninitialised value
// could be NaN).
template <int DH>
static __device__ __forceinline__ void
load_kv(const struct kv_plane &plane, uint32_t n_ctx, uint32_t head, uint32_t first, uint32_t n_kv,
        __half *tile, uint32_t n_row, uint32_t thread, uint32_t n_thread)
{
    const size_t head0 = (size_t)head * n_ctx;
    if (!plane.scales) {
        for (uint32_t i = thread; i < n_row * (DH / 8); i += n_thread) {
            uint32_t r = i / (DH / 8), piece = i % (DH / 8), p = first + r;
            bool valid = p < n_kv && piece * 16 < plane.row_bytes;
            const uint8_t *src =
                plane.data + (valid ? (head0 + p) * plane.row_bytes + piece * 16 : 0);
            cp_async16_or_zero(tile + r * tile_ld<DH>() + piece * 8, src, valid);
        }
        return;
    }
    for (uint32_t i = thread; i < n_row * (DH / 16); i += n_thread) {
        uint32_t r = i / (DH / 16), piece = i % (DH / 16), p = first + r;
        uint4 *dst = reinterpret_cast<uint4 *>(tile + r * tile_ld<DH>() + piece * 16);
        uint32_t packed[8] = {0};
        if (p < n_kv && piece * 16 < plane.row_bytes) {
            uint4 v = *reinterpret_cast<const uint4 *>(plane.data + (head0 + p) * plane.row_bytes +
                                                       piece * 16);
            float d = half_bits(plane.scales[(head0 + p) * plane.n_group + piece / 2]);
            const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < 16; e += 2)
                packed[e / 2] = pack_half2(d * (float)(int8_t)(word[e / 4] >> 8 * (e % 4)),
                                           d * (float)(int8_t)(word[e / 4] >> 8 * (e % 4 + 1)));
        }
        dst[0] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        dst[1] = make_uint4(packed[4], packed[5], packed[6], packed[7]);
    }
}

// A warp's 16 rows: this thread holds rows g = lane / 4 and g + 8, columns 2 (lane % 4) and the
// next of every eight.
template <int DH> struct softmax {
    float top[2]; // running maximum, in units of log2
    float sum[2]; // of this thread's columns
    float o[DH / 8][4];
};

template <int DH> static __device__ __forceinline__ void softmax_init(softmax<DH> &s)
{
    s.top[0] = s.top[1] = -INFINITY;
    s.sum[0] = s.sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < DH / 8; i++)
        s.o[i][0] = s.o[i][1] = s.o[i][2] = s.o[i][3] = 0.0f;
}

// Rows of q against NP * 16 positions from `first` on; row h (0: g, 1: g + 8) sees positions
// begin[h]
// <= p < end[h]. Scores are in units of log2 (the query carries log2(e) / sqrt(head_dim)).
template <int DH, int NP>
static __device__ __forceinline__ void
attend(softmax<DH> &s, const __half *q, const __half *k, const __half *v, uint32_t first,
       const uint32_t begin[2], const uint32_t end[2], uint32_t lane)
{
    constexpr int LD = tile_ld<DH>();
    const uint32_t m = lane / 8; // which 8x8 matrix of an ldmatrix this lane addresses
    float score[2 * NP][4] = {};
#pragma unroll
    for (int ks = 0; ks < DH / 16; ks++) {
        uint32_t a[4];
        ldmatrix_x4(a, q + (lane % 16) * LD + ks * 16 + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < NP; j++) {
            uint32_t b[4];
            ldmatrix_x4(b, k + (j * 16 + m / 2 * 8 + lane % 8) * LD + ks * 16 + m % 2 * 8);
            mma_f16(score[2 * j], a, b);
            mma_f16(score[2 * j + 1], a, b + 2);
        }
    }
    float top[2] = {s.top[0], s.top[1]};
#pragma unroll
    for (int j = 0; j < 2 * NP; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t p = first + j * 8 + lane % 4 * 2 + e % 2;
            if (p < begin[e / 2] || p >= end[e / 2])
                score[j][e] = -INFINITY;
            top[e / 2] = fmaxf(top[e / 2], score[j][e]);
        }
    float base[2], shrink[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 2));
        base[h] = top[h] == -INFINITY ? 0.0f : top[h]; // nothing seen yet: -inf - -inf is no number
        shrink[h] = exp2f(s.top[h] - base[h]);
        s.top[h] = top[h];
        s.sum[h] *= shrink[h];
    }
#pragma unroll
    for (int i = 0; i < DH / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s.o[i][e] *= shrink[e / 2];
#pragma unroll
    for (int j = 0; j < 2 * NP; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            score[j][e] = exp2f(score[j][e] - base[e / 2]);
            s.sum[e / 2] += score[j][e];
        }
#pragma unroll
    for (int j = 0; j < NP; j++) {
        const uint32_t a[4] = {pack_half2(score[2 * j][0], score[2 * j][1]),
                               pack_half2(score[2 * j][2], score[2 * j][3]),
                               pack_half2(score[2 * j + 1][0], score[2 * j + 1][1]),
                               pack_half2(score[2 * j + 1][2], score[2 * j + 1][3])};
#pragma unroll
        for (int i = 0; i < DH / 16; i++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, v + (j * 16 + m % 2 * 8 + lane % 8) * LD + i * 16 + m / 2 * 8);
            mma_f16(s.o[2 * i], a, b);
            mma_f16(s.o[2 * i + 1], a, b + 2);
        }
    }
}

// First position that the token at `position` sees.
static __device__ __forceinline__ uint32_t window_begin(const struct attention &a,
                                                        uint32_t position)
{
    return a.n_swa && position + 1 > a.n_swa ? position + 1 - a.n_swa : 0;
}

static __device__ __forceinline__ float query_scale(const struct attention &a)
{
    return 1.4426950408889634f / sqrtf((float)a.head_dim); // log2(e) / sqrt(d)
}

// Merges the partial results of a KV head's blocks: softmax weights first, then the sum in the
// order of the blocks. part (n_part, n_row, head_dim), ml (n_part, n_row, 2).
static __device__ void merge_blocks(const struct attention &a, const float *part, const float *ml,
                                    uint32_t n_part, uint32_t n_row, uint32_t head0, float *weight)
{
    for (uint32_t r = threadIdx.x; r < n_row; r += THREADS) {
        float top = -INFINITY, sum = 0.0f;
        for (uint32_t i = 0; i < n_part; i++)
            top = fmaxf(top, __ldcg(&ml[(i * n_row + r) * 2]));
        for (uint32_t i = 0; i < n_part; i++) {
            float w = exp2f(__ldcg(&ml[(i * n_row + r) * 2]) - top);
            weight[i * M + r] = w;
            sum += w * __ldcg(&ml[(i * n_row + r) * 2 + 1]);
        }
        for (uint32_t i = 0; i < n_part; i++)
            weight[i * M + r] /= sum;
    }
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < n_row * a.head_dim; j += THREADS) {
        uint32_t r = j / a.head_dim;
        float v = 0.0f;
#pragma unroll 8
        for (uint32_t i = 0; i < n_part; i++)
            v = fmaf(weight[i * M + r], __ldcg(&part[(size_t)i * n_row * a.head_dim + j]), v);
        a.out[head0 * a.head_dim + j] = v;
    }
}

// Grid (splits, n_head_kv, groups of 16 query heads).
template <int DH>
static __global__ void __launch_bounds__(THREADS)
    attention_decode_kernel(const __grid_constant__ struct attention a)
{
    constexpr int LD = tile_ld<DH>(), STAGES = n_stage<DH>();
    __shared__ float head_buf[N_WARP][ATTENTION_MAX_HEAD_DIM];
    __shared__ float warp_top[N_WARP][M], warp_sum_[N_WARP][M];
    __shared__ uint32_t is_last;
    __half *q = dynamic_smem<__half>(); // (M, LD)
    __half *tiles = q + M * LD;         // (N_WARP, STAGES, 2, M, LD)
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t split = blockIdx.x, n_split = gridDim.x, kv_head = blockIdx.y;
    const uint32_t group = a.n_head / a.n_head_kv, row0 = blockIdx.z * M;
    const uint32_t n_row = min(group - row0, (uint32_t)M);
    const uint32_t head0 = kv_head * group + row0;

    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    const uint32_t position = *a.pos0, n_kv = position + 1;
    const uint32_t first = window_begin(a, position), chunk0 = first / ATTENTION_CHUNK;
    const uint32_t n_chunk = position / ATTENTION_CHUNK - chunk0 + 1;
    const uint32_t n_active = min(n_split, n_chunk);
    if (split >= n_active)
        return;

    for (uint32_t r = warp; r < M; r += N_WARP) {
        if (r < n_row)
            prepare_head(a, a.q_in + (head0 + r) * a.head_dim, a.q_norm, a.rope, head_buf[warp],
                         lane);
        store_query<DH>(head_buf[warp], r < n_row ? a.head_dim : 0, query_scale(a), q + r * LD,
                        lane);
        __syncwarp();
    }
    if (split == (n_chunk - 1) % n_split) { // this block reads the newest position
        if (warp == 0) {
            prepare_head(a, a.k_in + kv_head * a.head_dim, a.k_norm, a.rope, head_buf[0], lane);
            store_kv(a, a.k, kv_head, position, head_buf[0], lane);
        } else if (warp == 1) {
            prepare_head(a, a.v_in + kv_head * a.head_dim, NULL, NULL, head_buf[1], lane);
            store_kv(a, a.v, kv_head, position, head_buf[1], lane);
        }
    }
    __syncthreads();

    softmax<DH> s;
    softmax_init(s);
    const uint32_t begin[2] = {first, first}, end[2] = {n_kv, n_kv};
    auto tile = [&](int stage, int v) {
        return tiles + ((warp * STAGES + stage) * 2 + v) * M * LD;
    };
    auto load = [&](int stage, uint32_t c) {
        uint32_t p = (chunk0 + c) * ATTENTION_CHUNK + warp * M;
        load_kv<DH>(a.k, a.n_ctx, kv_head, p, n_kv, tile(stage, 0), M, lane, WARP);
        load_kv<DH>(a.v, a.n_ctx, kv_head, p, n_kv, tile(stage, 1), M, lane, WARP);
        cp_async_commit();
    };
    int stage = 0;
    if (STAGES == 2)
        load(0, split);
    for (uint32_t c = split; c < n_chunk; c += n_split) {
        if (STAGES == 1) {
            load(0, c);
            cp_async_wait<0>();
        } else if (c + n_split < n_chunk) {
            load(stage ^ 1, c + n_split);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncwarp();
        attend<DH, 1>(s, q, tile(stage, 0), tile(stage, 1),
                      (chunk0 + c) * ATTENTION_CHUNK + warp * M, begin, end, lane);
        __syncwarp();
        stage ^= STAGES - 1;
    }

    // merge the warps; their tiles have been read and make room for the sums
    __syncthreads();
    float *o = reinterpret_cast<float *>(tiles); // (N_WARP, M, DH)
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = s.sum[h];
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        if (lane % 4 == 0) {
            warp_top[warp][lane / 4 + 8 * h] = s.top[h];
            warp_sum_[warp][lane / 4 + 8 * h] = sum;
        }
    }
#pragma unroll
    for (int i = 0; i < DH / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            o[(warp * M + lane / 4 + e / 2 * 8) * DH + i * 8 + lane % 4 * 2 + e % 2] = s.o[i][e];
    __syncthreads();
    const uint32_t n_part_row = min(group, (uint32_t)M);
    const size_t slot = (size_t)(kv_head * gridDim.z + blockIdx.z) * n_split;
    float *part = a.partial + slot * n_part_row * a.head_dim;
    float *ml = a.partial + (size_t)a.n_head_kv * gridDim.z * n_split * n_part_row * a.head_dim +
                slot * n_part_row * 2;
    for (uint32_t j = threadIdx.x; j < n_row * a.head_dim; j += THREADS) {
        uint32_t r = j / a.head_dim, d = j % a.head_dim;
        float top = -INFINITY, sum = 0.0f, v = 0.0f;
        for (int w = 0; w < N_WARP; w++)
            top = fmaxf(top, warp_top[w][r]);
        for (int w = 0; w < N_WARP; w++) {
            float f = exp2f(warp_top[w][r] - top);
            sum += f * warp_sum_[w][r];
            v = fmaf(f, o[(w * M + r) * DH + d], v);
        }
        if (n_active == 1) {
            a.out[head0 * a.head_dim + j] = v / sum;
        } else {
            part[(size_t)split * n_row * a.head_dim + j] = v;
            if (d == 0) {
                ml[(split * n_row + r) * 2] = top;
                ml[(split * n_row + r) * 2 + 1] = sum;
            }
        }
    }
    if (n_active == 1)
        return;

    // merge the blocks: the last one to arrive does it
    uint32_t *counter = a.counters + kv_head * gridDim.z + blockIdx.z;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(counter, 1u) == n_active - 1;
        if (is_last)
            *counter = 0; // for the next layer
    }
    __syncthreads();
    if (is_last) {
        __threadfence();
        merge_blocks(a, part, ml, n_active, n_row, head0, reinterpret_cast<float *>(tiles));
    }
}

// Grid (n, heads of q, k and v / N_WARP): a warp per head and token.
template <int DH>
static __global__ void __launch_bounds__(THREADS)
    rotate_store_kernel(const __grid_constant__ struct attention a)
{
    __shared__ float head_buf[N_WARP][ATTENTION_MAX_HEAD_DIM];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t h = blockIdx.y * N_WARP + warp, i = blockIdx.x;
    griddep_launch_dependents();
    griddep_wait();
    const float2 *rope = a.rope + (size_t)i * (a.rope_dim / 2);
    float *buf = head_buf[warp];
    if (h < a.n_head) {
        prepare_head(a, a.q_in + (size_t)i * a.ld_q + h * a.head_dim, a.q_norm, rope, buf, lane);
        store_query<DH>(buf, a.head_dim, query_scale(a), a.q_f16 + ((size_t)i * a.n_head + h) * DH,
                        lane);
    } else if (h < a.n_head + a.n_head_kv) {
        uint32_t kv = h - a.n_head;
        prepare_head(a, a.k_in + (size_t)i * a.ld_kv + kv * a.head_dim, a.k_norm, rope, buf, lane);
        store_kv(a, a.k, kv, *a.pos0 + i, buf, lane);
    } else if (h < a.n_head + 2 * a.n_head_kv) {
        uint32_t kv = h - a.n_head - a.n_head_kv;
        prepare_head(a, a.v_in + (size_t)i * a.ld_kv + kv * a.head_dim, NULL, NULL, buf, lane);
        store_kv(a, a.v, kv, *a.pos0 + i, buf, lane);
    }
}

// Grid (ceil(n * group / 64), n_head_kv, parts). Row r of the block's matrix: token r / group,
// query head r % group of this KV head.
template <int DH>
static __global__ void __launch_bounds__(THREADS)
    attention_prefill_kernel(const __grid_constant__ struct attention a, uint32_t n)
{
    constexpr int LD = tile_ld<DH>(), STAGES = n_stage<DH>(), T = PREFILL_TILE;
    constexpr int ROWS = N_WARP * M;
    __half *q = dynamic_smem<__half>(); // (ROWS, LD)
    __half *tiles = q + ROWS * LD;      // (STAGES, 2, T, LD)
    __shared__ uint32_t is_last;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t kv_head = blockIdx.y, group = a.n_head / a.n_head_kv;
    // the longest rows first, so that the short ones fill the gaps at the end
    const uint32_t row0 = (gridDim.x - 1 - blockIdx.x) * ROWS, n_row = n * group;
    griddep_launch_dependents();
    griddep_wait();
    const uint32_t pos0 = *a.pos0;

    const uint32_t last_row = min(row0 + ROWS, n_row) - 1;
    const uint32_t n_kv = pos0 + last_row / group + 1;
    const uint32_t first = window_begin(a, pos0 + row0 / group) / T * T;
    // this block's share of the tiles: the cut depends on the shapes and the position alone
    const uint32_t all_tiles = div_up(n_kv - first, (uint32_t)T);
    const uint32_t n_part = min(gridDim.z, div_up(all_tiles, (uint32_t)PART_TILES));
    const uint32_t per_part = div_up(all_tiles, n_part), part = blockIdx.z;
    if (part >= n_part)
        return;
    const uint32_t tile0 = min(part * per_part, all_tiles);
    const uint32_t n_tile = min(tile0 + per_part, all_tiles);

    for (uint32_t i = threadIdx.x; i < ROWS * (DH / 8); i += THREADS) {
        uint32_t r = i / (DH / 8), piece = i % (DH / 8), row = row0 + r;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (row < n_row) {
            uint32_t head = kv_head * group + row % group;
            v = reinterpret_cast<const uint4 *>(
                a.q_f16)[((size_t)(row / group) * a.n_head + head) * (DH / 8) + piece];
        }
        reinterpret_cast<uint4 *>(q + r * LD)[piece] = v;
    }
    uint32_t begin[2], end[2];
    for (int h = 0; h < 2; h++) {
        uint32_t row = row0 + warp * M + lane / 4 + 8 * h, p = pos0 + row / group;
        begin[h] = row < n_row ? window_begin(a, p) : 0;
        end[h] = row < n_row ? p + 1 : 0;
    }
    softmax<DH> s;
    softmax_init(s);
    auto tile = [&](int stage, int v) { return tiles + (stage * 2 + v) * T * LD; };
    auto load = [&](int stage, uint32_t t) {
        uint32_t p = first + t * T;
        load_kv<DH>(a.k, a.n_ctx, kv_head, p, n_kv, tile(stage, 0), T, threadIdx.x, THREADS);
        load_kv<DH>(a.v, a.n_ctx, kv_head, p, n_kv, tile(stage, 1), T, threadIdx.x, THREADS);
        cp_async_commit();
    };
    int stage = 0;
    if (STAGES == 2 && tile0 < n_tile)
        load(0, tile0);
    for (uint32_t t = tile0; t < n_tile; t++) {
        if (STAGES == 1) {
            load(0, t);
            cp_async_wait<0>();
        } else if (t + 1 < n_tile) {
            load(stage ^ 1, t + 1);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        attend<DH, T / 16>(s, q + warp * M * LD, tile(stage, 0), tile(stage, 1), first + t * T,
                           begin, end, lane);
        __syncthreads();
        stage ^= STAGES - 1;
    }

    // (block, part) -> sums (ROWS, head_dim), then (ROWS, 2) maxima and divisors
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
    const size_t part_floats = (size_t)ROWS * (a.head_dim + 2);
    float *const parts = a.partial + (size_t)block * gridDim.z * part_floats;
    auto destination = [&](uint32_t row) {
        return a.out +
               ((size_t)(row / group) * a.n_head + kv_head * group + row % group) * a.head_dim;
    };
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = s.sum[h];
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        uint32_t r = warp * M + lane / 4 + 8 * h, row = row0 + r;
        if (row >= n_row)
            continue;
        float *out = destination(row);
        if (n_part > 1) {
            out = parts + part * part_floats + (size_t)r * a.head_dim;
            if (lane % 4 == 0) {
                float *ml = parts + part * part_floats + (size_t)ROWS * a.head_dim + 2 * r;
                ml[0] = s.top[h];
                ml[1] = sum;
            }
            sum = 1.0f;
        }
#pragma unroll
        for (int i = 0; i < DH / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t d = i * 8 + lane % 4 * 2 + e;
                if (d < a.head_dim)
                    out[d] = s.o[i][2 * h + e] / sum;
            }
    }
    if (n_part == 1)
        return;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&a.counters[block], 1u) == n_part - 1;
        if (is_last)
            a.counters[block] = 0; // for the next layer
    }
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    for (uint32_t j = threadIdx.x; j < (last_row - row0 + 1) * a.head_dim; j += THREADS) {
        uint32_t r = j / a.head_dim, d = j % a.head_dim;
        const float *o = parts + j, *ml = parts + (size_t)ROWS * a.head_dim + 2 * r;
        float top = -INFINITY, sum = 0.0f, v = 0.0f;
        for (uint32_t i = 0; i < n_part; i++)
            top = fmaxf(top, __ldcg(&ml[i * part_floats]));
        for (uint32_t i = 0; i < n_part; i++) {
            float f = exp2f(__ldcg(&ml[i * part_floats]) - top);
            sum = fmaf(f, __ldcg(&ml[i * part_floats + 1]), sum);
            v = fmaf(f, __ldcg(&o[i * part_floats]), v);
        }
        destination(row0 + r)[d] = v / sum;
    }
}

// ---- launchers

// Calls f with the padded head dimension as a template argument; false when no kernel fits.
template <int DH> struct dim_tag {
    static constexpr int value = DH;
};

template <typename F> static bool with_head_dim(uint32_t head_dim, F f)
{
    return head_dim <= 32    ? f(dim_tag<32>())
           : head_dim <= 64  ? f(dim_tag<64>())
           : head_dim <= 96  ? f(dim_tag<96>())
           : head_dim <= 128 ? f(dim_tag<128>())
           : head_dim <= 256 ? f(dim_tag<256>())
                             : false;
}

template <int DH> static size_t decode_smem()
{
    return sizeof(__half) * tile_ld<DH>() * (M + N_WARP * n_stage<DH>() * 2 * M);
}

template <int DH> static size_t prefill_smem()
{
    return sizeof(__half) * tile_ld<DH>() * (N_WARP * M + n_stage<DH>() * 2 * PREFILL_TILE);
}

size_t attention_smem(uint32_t head_dim)
{
    size_t n = 0;
    with_head_dim(head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value;
        n = decode_smem<DH>() > prefill_smem<DH>() ? decode_smem<DH>() : prefill_smem<DH>();
        return true;
    });
    return n;
}

static uint32_t n_split(int n_sm, uint32_t n_head_kv, uint32_t n_ctx)
{
    uint32_t n = div_up(2 * (uint32_t)n_sm, n_head_kv);
    uint32_t n_chunk = div_up(n_ctx, (uint32_t)ATTENTION_CHUNK);
    return lesser(lesser(n, (uint32_t)MAX_SPLIT), n_chunk);
}

// Blocks of prefill for n_row rows per KV head, and how many share the cache: only while there are
// fewer blocks than multiprocessors.
static uint32_t n_prefill_part(int n_sm, uint32_t n_row, uint32_t n_head_kv)
{
    uint32_t blocks = div_up(n_row, (uint32_t)(N_WARP * M)) * n_head_kv;
    return blocks >= (uint32_t)n_sm
               ? 1
               : lesser(div_up(2 * (uint32_t)n_sm, blocks), (uint32_t)MAX_PART);
}

void attention_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                       uint32_t n_ctx, uint32_t n_batch, struct attention_scratch *out)
{
    size_t group = n_head / n_head_kv, rows = lesser(group, (size_t)M),
           z = div_up(group, (size_t)M);
    size_t slots = n_head_kv * z * n_split(n_sm, n_head_kv, n_ctx);
    out->partial = slots * rows * (head_dim + 2) * sizeof(float);
    out->counters = n_head_kv * z * sizeof(uint32_t);
    // prefill: fewer than n_sm blocks of at most 2 * n_sm / blocks + 1 parts
    size_t parts = 3 * (size_t)n_sm * N_WARP * M * (head_dim + 2) * sizeof(float);
    out->partial = out->partial > parts ? out->partial : parts;
    if (out->counters < n_sm * sizeof(uint32_t))
        out->counters = n_sm * sizeof(uint32_t);
    out->q_f16 = 0;
    with_head_dim(head_dim, [&](auto tag) {
        out->q_f16 = (size_t)n_batch * n_head * decltype(tag)::value * sizeof(__half);
        return true;
    });
}

bool attention_decode_launch(const struct queue *q, const struct attention *a, struct error *err)
{
    uint32_t group = a->n_head / a->n_head_kv;
    struct launch l = {.name = "attention_decode",
                       .grid = dim3(n_split(q->n_sm, a->n_head_kv, a->n_ctx), a->n_head_kv,
                                    div_up(group, (uint32_t)M)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent};
    return with_head_dim(a->head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value;
        l.smem = decode_smem<DH>();
        return launch_kernel(err, l, attention_decode_kernel<DH>, *a);
    });
}

bool attention_prefill_launch(const struct queue *q, const struct attention *a, uint32_t n,
                              struct error *err)
{
    uint32_t n_vector = a->n_head + 2 * a->n_head_kv;
    uint32_t n_row = n * (a->n_head / a->n_head_kv);
    struct launch rotate = {.name = "rotate_store",
                            .grid = dim3(n, div_up(n_vector, (uint32_t)N_WARP)),
                            .block = dim3(THREADS),
                            .stream = q->stream,
                            .dependent = q->dependent};
    struct launch l = {.name = "attention_prefill",
                       .grid = dim3(div_up(n_row, (uint32_t)(N_WARP * M)), a->n_head_kv,
                                    n_prefill_part(q->n_sm, n_row, a->n_head_kv)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent};
    return with_head_dim(a->head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value;
        l.smem = prefill_smem<DH>();
        return launch_kernel(err, rotate, rotate_store_kernel<DH>, *a) &&
               launch_kernel(err, l, attention_prefill_kernel<DH>, *a, n);
    });
}
