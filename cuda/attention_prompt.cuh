// What a block of attention over a prompt has to do, and what it does with its sums, whichever
// instructions make them (attention_prefill.cu, attention_hopper.cu).
#ifndef HOKKU_CUDA_ATTENTION_PROMPT_CUH
#define HOKKU_CUDA_ATTENTION_PROMPT_CUH

#include "attention.cuh"

enum {
    PROMPT_MAX_PART = 16,        // blocks that share the cache
    PROMPT_PART_POSITIONS = 512, // positions that make a part worth while
};

// The share of block (x, KV head, part) of a grid: rows (token, query head) of a KV head, ROWS of
// them, and tiles of T positions of the cache. Row r of the block: token (row0 + r) / group, query
// head (row0 + r) % group of this KV head.
template <uint32_t ROWS, uint32_t T> struct prompt_share {
    const uint32_t *table;
    uint32_t kv_head, group, row0, last_row, n_row, pos0;
    uint32_t n_kv;                       // positions up to the last row's
    uint32_t first;                      // position of tile 0
    uint32_t n_part, part, tile0, tile1; // this part's tiles

    // Before griddep_wait: what it reads was told before the first launch of a pass.
    __device__ __forceinline__ prompt_share(const struct attention &a, uint32_t n)
    {
        const struct seq_row at = *a.rows;
        table = a.tables + (size_t)at.slot * a.max_blocks;
        pos0 = at.pos;
        kv_head = blockIdx.y;
        group = a.n_head / a.n_head_kv;
        // the longest rows first, so that the short ones fill the gaps at the end
        row0 = (gridDim.x - 1 - blockIdx.x) * ROWS;
        n_row = n * group;
        last_row = min(row0 + ROWS, n_row) - 1;
        n_kv = pos0 + last_row / group + 1;
        first = window_begin(a, pos0 + row0 / group) / T * T;
        // the cut depends on the shapes and the position alone
        const uint32_t all_tiles = div_up(n_kv - first, T);
        n_part = min(gridDim.z, div_up(all_tiles, (uint32_t)PROMPT_PART_POSITIONS / T));
        const uint32_t per_part = div_up(all_tiles, n_part);
        part = blockIdx.z;
        tile0 = min(part * per_part, all_tiles);
        tile1 = min(tile0 + per_part, all_tiles);
    }
    // The block of the cache that tile t lies in, if there is such a tile.
    __device__ __forceinline__ uint32_t block_of(uint32_t t) const
    {
        return part < n_part && t < tile1 ? __ldg(&table[(first + t * T) / KV_BLOCK]) : 0;
    }
    __device__ __forceinline__ uint32_t head_of(uint32_t r) const
    {
        return kv_head * group + (row0 + r) % group;
    }
    __device__ __forceinline__ uint32_t token_of(uint32_t r) const
    {
        return (row0 + r) / group;
    }
    // The place of row r's token; of the last one for rows behind it.
    __device__ __forceinline__ uint32_t position_of(uint32_t r) const
    {
        return pos0 + min(row0 + r, last_row) / group;
    }
    // Row r sees positions begin <= p < end: of a row that is not there none.
    __device__ __forceinline__ void seen_by(const struct attention &a, uint32_t r, uint32_t &begin,
                                            uint32_t &end) const
    {
        const uint32_t p = pos0 + token_of(r);
        begin = row0 + r < n_row ? window_begin(a, p) : 0;
        end = row0 + r < n_row ? p + 1 : 0;
    }
    // Where the queries of row r begin; NULL: there is no such row.
    template <int DH>
    __device__ __forceinline__ const __half *query(const struct attention &a, uint32_t r) const
    {
        return row0 + r < n_row ? a.q_f16 + ((size_t)token_of(r) * a.n_head + head_of(r)) * DH
                                : NULL;
    }
};

// The end of a block of THREADS threads, or of a block's first THREADS threads: warp w has the sums
// s of rows w * MT * M and up. tile (ROWS, DH + 8) is room that nobody uses any more but the
// threads themselves.
template <int DH, int MT, uint32_t ROWS, uint32_t T, uint32_t THREADS>
static __device__ __forceinline__ void finish_rows(const struct attention &a,
                                                   const prompt_share<ROWS, T> &b,
                                                   const softmax<DH, MT> &s, float *tile)
{
    // (block, part) -> sums (ROWS, DH), then (ROWS, 2) maxima and divisors
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
    constexpr size_t PART_FLOATS = (size_t)ROWS * (DH + 2);
    float *const parts = a.partial + (size_t)block * gridDim.z * PART_FLOATS;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t n_part = b.n_part, part = b.part;
    const bool gated = a.gated && n_part == 1; // else by whoever adds the parts
    // To be packed four by four, results lie in the place of all tiles: (ROWS, O_LD) floats.
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    const bool packed = a.packed.x && n_part == 1;
    if (packed)
        barrier_sync(THREADS);
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = row_sum(s, t, h);
            uint32_t r = (warp * MT + t) * M + lane / 4 + 8 * h, width = a.head_dim;
            if (b.row0 + r > b.last_row)
                continue;
            float scale = a.v_undo / with_sink(a, b.head_of(r), s.top[t][h], sum);
            if (packed) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++)
                    *reinterpret_cast<float2 *>(tile + r * O_LD + i * 8 + lane % 4 * 2) =
                        make_float2(s.o[t][i][2 * h] * scale, s.o[t][i][2 * h + 1] * scale);
                continue;
            }
            float *out = a.out + ((size_t)b.token_of(r) * a.n_head + b.head_of(r)) * a.head_dim;
            if (n_part > 1) {
                float *mine = parts + part * PART_FLOATS;
                if (lane % 4 == 0)
                    reinterpret_cast<float2 *>(mine + ROWS * DH)[r] = make_float2(s.top[t][h], sum);
                out = mine + r * DH;
                scale = 1.0f;
                width = DH;
            }
            auto store = [&](auto finish) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++) {
                    uint32_t d = i * 8 + lane % 4 * 2;
                    if (d < width)
                        out[d] = finish(s.o[t][i][2 * h] * scale, d);
                    if (d + 1 < width)
                        out[d + 1] = finish(s.o[t][i][2 * h + 1] * scale, d + 1);
                }
            };
            if (gated) // apart: else models without gates pay for it, too
                store([&](float v, uint32_t d) {
                    return v * gate_of(a, b.token_of(r), b.head_of(r), d);
                });
            else
                store([](float v, uint32_t) { return v; });
        }
    const uint32_t rows = b.last_row - b.row0 + 1;
    if (packed) {
        barrier_sync(THREADS);
        for (uint32_t j = threadIdx.x; j < rows * N; j += THREADS)
            store_out(a, b.token_of(j / N), b.head_of(j / N), j % N * 4,
                      *reinterpret_cast<const float4 *>(tile + j / N * O_LD + j % N * 4));
    }
    if (n_part == 1 || !last_to_arrive<THREADS>(&a.counters[block], n_part))
        return;
    float *const weight = tile; // (n_part, ROWS)
    static_assert((uint32_t)PROMPT_MAX_PART <= O_LD, "in the same place");
    for (uint32_t r = threadIdx.x; r < rows; r += THREADS) {
        auto part_ml = [&](uint32_t i) {
            const float *ml = parts + i * PART_FLOATS + ROWS * DH;
            return __ldcg(&reinterpret_cast<const float2 *>(ml)[r]);
        };
        float top = -INFINITY, sum = 0.0f;
        for (uint32_t i = 0; i < n_part; i++)
            top = fmaxf(top, part_ml(i).x);
        for (uint32_t i = 0; i < n_part; i++) {
            float2 ml = part_ml(i);
            weight[i * ROWS + r] = ptx_exp2(ml.x - top);
            sum = fmaf(weight[i * ROWS + r], ml.y, sum);
        }
        const float scale = a.v_undo / with_sink(a, b.head_of(r), top, sum);
        for (uint32_t i = 0; i < n_part; i++)
            weight[i * ROWS + r] *= scale;
    }
    barrier_sync(THREADS);
    constexpr uint32_t AHEAD = 4;
    for (uint32_t j = threadIdx.x; j < rows * N; j += AHEAD * THREADS) {
        float4 v[AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++)
            v[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
        for (uint32_t i = 0; i < n_part; i++)
#pragma unroll
            for (uint32_t u = 0; u < AHEAD; u++) {
                uint32_t at = min(j + u * THREADS, rows * N - 1);
                add_scaled(v[u], weight[i * ROWS + at / N],
                           __ldcg(&reinterpret_cast<const float4 *>(parts + i * PART_FLOATS)[at]));
            }
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++) {
            uint32_t at = j + u * THREADS;
            if (at < rows * N)
                store_out(a, b.token_of(at / N), b.head_of(at / N), at % N * 4, v[u]);
        }
    }
}

// ---- host

// How many blocks share the cache: as many as find room at a time, per_sm on a multiprocessor,
// where the rows alone make less than one each.
static inline uint32_t prompt_parts(const struct queue *q, const struct attention *a,
                                    uint32_t n_block, uint32_t per_sm)
{
    const uint32_t n_sm = (uint32_t)q->n_sm;
    return a->one_part || n_block >= n_sm
               ? 1
               : lesser(per_sm * n_sm / n_block, (uint32_t)PROMPT_MAX_PART);
}

#endif
