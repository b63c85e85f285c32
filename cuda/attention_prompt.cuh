// What a block of attention over a prompt has to do, and what it does with its sums, whichever
// instructions make them (attention_prefill.cu, attention_hopper.cu).
#ifndef HOKKU_CUDA_ATTENTION_PROMPT_CUH
#define HOKKU_CUDA_ATTENTION_PROMPT_CUH

#include "attention.cuh"

// Positions, from a multiple of so many on, are a split of the cache, whose sums are made by
// themselves and added in the order of splits: what a row gives depends neither on the rows beside
// it nor on the blocks that share it.
// (Models with small heads have few of them, and so few blocks; as have those with wide ones.)
#ifdef HOKKU_CUDA_ON_CPU // so that few positions are several
template <int DH> static constexpr uint32_t prompt_split = 128;
#else
template <int DH> static constexpr uint32_t prompt_split = DH <= 64 || DH > 256 ? 1024 : 2048;
#endif

// Of a split.
struct tiles {
    uint32_t tile0, tile1;
};

// The share of block (x, KV head, split) of a grid: rows (token, query head) of a KV head, ROWS of
// them, and tiles of T positions of the cache: of one split where the grid has several, else of
// all, one after the other. Row r of the block: token (row0 + r) / group, query head (row0 + r) %
// group of this KV head.
template <int DH, uint32_t ROWS, uint32_t T> struct prompt_share {
    static constexpr uint32_t SPLIT = prompt_split<DH>;
    static_assert(SPLIT % KV_BLOCK == 0, "a tile lies in one split");
    const uint32_t *table;
    uint32_t kv_head, group, row0, last_row, n_row, pos0;
    uint32_t n_kv;      // positions up to the last row's
    uint32_t first;     // position of tile 0
    uint32_t n_split;   // of which the rows see something
    struct tiles begin; // of the block's first split
    uint32_t end;       // of its last one

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
        const uint32_t split0 = first / SPLIT, all_tiles = div_up(n_kv - first, T);
        n_split = (n_kv - 1) / SPLIT - split0 + 1;
        // of one split, beyond all of them nothing
        const auto edge = [&](uint32_t i) {
            return i == 0 ? 0 : min(((split0 + i) * SPLIT - first) / T, all_tiles);
        };
        begin = {edge(blockIdx.z), edge(blockIdx.z + 1)};
        end = gridDim.z == 1 ? all_tiles : begin.tile1;
    }
    // The end of the split that begins there.
    __device__ __forceinline__ uint32_t behind(uint32_t tile) const
    {
        return min(tile + SPLIT / T, end);
    }
    // Whether the splits of its rows have other blocks.
    __device__ __forceinline__ bool shares() const
    {
        return gridDim.z > 1 && n_split > 1;
    }
    // The block of the cache that tile t lies in, if there is such a tile.
    __device__ __forceinline__ uint32_t block_of(uint32_t t) const
    {
        return t < end ? __ldg(&table[(first + t * T) / KV_BLOCK]) : 0;
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
    __device__ __forceinline__ const __half *query(const struct attention &a, uint32_t r) const
    {
        return row0 + r < n_row ? a.q_f16 + ((size_t)token_of(r) * a.n_head + head_of(r)) * DH
                                : NULL;
    }
};

// ---- the sums of splits

// What a thread has of rows, in memory: (o, top, sum) as float4, of neighbouring threads side by
// side.
template <int DH, int MT> struct kept_sums {
    static constexpr int N = MT * (DH / 8 + 1);
};

template <int DH, int MT, uint32_t THREADS>
static __device__ __forceinline__ void keep_sums(const softmax<DH, MT> &s, float4 *to)
{
#pragma unroll
    for (int t = 0; t < MT; t++) {
        float4 *const of = to + (size_t)t * (DH / 8 + 1) * THREADS;
#pragma unroll
        for (int i = 0; i < DH / 8; i++)
            of[i * THREADS] = make_float4(s.o[t][i][0], s.o[t][i][1], s.o[t][i][2], s.o[t][i][3]);
        of[DH / 8 * THREADS] = make_float4(s.top[t][0], s.top[t][1], s.sum[t][0], s.sum[t][1]);
    }
}

// How much two sums count together whose rows' scores have those tops, which *top becomes the
// larger of. What rows have that saw nothing of one of them is what they have of the other, bit for
// bit.
struct counts {
    float before, behind;
};

static __device__ __forceinline__ struct counts count_both(float *top, float behind)
{
    const float most = fmaxf(*top, behind), base = most == -INFINITY ? 0.0f : most;
    const struct counts c = {ptx_exp2(*top - base), ptx_exp2(behind - base)};
    *top = most;
    return c;
}

static __device__ __forceinline__ float sum_both(const struct counts &c, float before, float behind)
{
    return fmaf(behind, c.behind, before * c.before);
}

// Adds the sums of a split to those of the splits before, which were kept (NEAR: in shared memory).
template <int DH, int MT, uint32_t THREADS, bool NEAR>
static __device__ __forceinline__ void add_to_kept(softmax<DH, MT> &s, const float4 *from)
{
    // as registers allow
    constexpr int N = DH / 8, AHEAD = N % 16 == 0 && MT * DH <= 128 ? 16 : N % 8 == 0 ? 8 : 4;
#pragma unroll
    for (int t = 0; t < MT; t++) {
        const float4 *const of = from + (size_t)t * (DH / 8 + 1) * THREADS;
        const auto load = [&](int i) { return NEAR ? of[i * THREADS] : __ldcg(&of[i * THREADS]); };
        const float4 rest = load(DH / 8);
        float top[2] = {rest.x, rest.y};
        struct counts c[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            c[h] = count_both(&top[h], s.top[t][h]);
            s.sum[t][h] = sum_both(c[h], h ? rest.w : rest.z, s.sum[t][h]);
            s.top[t][h] = top[h];
        }
#pragma unroll
        for (int i0 = 0; i0 < DH / 8; i0 += AHEAD) {
            float4 v[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                v[i] = load(i0 + i);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const float kept[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s.o[t][i0 + i][e] = sum_both(c[e / 2], kept[e], s.o[t][i0 + i][e]);
            }
        }
    }
}

// Where a block, or those that share its rows, keep sums: of split i, where each has its own.
template <int DH, int MT, uint32_t THREADS>
static __device__ __forceinline__ float4 *kept_at(const struct attention &a, uint32_t i)
{
    const size_t block = (size_t)(blockIdx.y * gridDim.x + blockIdx.x) * gridDim.z + i;
    return reinterpret_cast<float4 *>(a.partial) + block * kept_sums<DH, MT>::N * THREADS +
           threadIdx.x;
}

// Behind a split of a block that has several: adds what was kept of those before (any), and where
// others follow (more) keeps it all; near: in shared memory, where there is room (NEAR).
template <int DH, int MT, uint32_t THREADS, bool NEAR>
static __device__ __forceinline__ void end_split(const struct attention &a, bool any, bool more,
                                                 float4 *near, softmax<DH, MT> &s)
{
    if (gridDim.z > 1)
        return;
    float4 *const kept = NEAR ? near + threadIdx.x : kept_at<DH, MT, THREADS>(a, 0);
    if (any)
        add_to_kept<DH, MT, THREADS, NEAR>(s, kept);
    if (more)
        keep_sums<DH, MT, THREADS>(s, kept);
}

// The sums of n splits that blocks have kept: the same additions, of some columns at a time.
template <int DH, int MT, uint32_t THREADS>
static __device__ __forceinline__ void gather_kept(const struct attention &a, uint32_t n,
                                                   softmax<DH, MT> &s)
{
    constexpr int AT_ONCE = DH / 8 < 8 ? DH / 8 : DH / 8 % 8 ? 4 : 8;
    static_assert(DH / 8 % AT_ONCE == 0, "whole turns");
    softmax_init(s);
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int i0 = 0; i0 < DH / 8; i0 += AT_ONCE) {
            s.top[t][0] = s.top[t][1] = -INFINITY;
            s.sum[t][0] = s.sum[t][1] = 0.0f;
#pragma unroll 1
            for (uint32_t split = 0; split < n; split++) {
                const float4 *const of =
                    kept_at<DH, MT, THREADS>(a, split) + (size_t)t * (DH / 8 + 1) * THREADS;
                float4 v[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    v[i] = __ldcg(&of[(i0 + i) * THREADS]);
                const float4 rest = __ldcg(&of[DH / 8 * THREADS]);
                const struct counts c[2] = {count_both(&s.top[t][0], rest.x),
                                            count_both(&s.top[t][1], rest.y)};
                s.sum[t][0] = sum_both(c[0], s.sum[t][0], rest.z);
                s.sum[t][1] = sum_both(c[1], s.sum[t][1], rest.w);
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const float kept[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        s.o[t][i0 + i][e] = sum_both(c[e / 2], s.o[t][i0 + i][e], kept[e]);
                }
            }
        }
}

// The end of a block of THREADS threads, or of a block's first THREADS threads: warp w has the sums
// s of rows w * MT * M and up. tile (ROWS, DH + 8) is room that nobody uses any more but the
// threads themselves.
template <int DH, int MT, uint32_t ROWS, uint32_t T, uint32_t THREADS>
static __device__ __forceinline__ void finish_rows(const struct attention &a,
                                                   const prompt_share<DH, ROWS, T> &b,
                                                   softmax<DH, MT> &s, float *tile)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (b.shares()) {
        const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
        keep_sums<DH, MT, THREADS>(s, kept_at<DH, MT, THREADS>(a, blockIdx.z));
        if (!last_to_arrive<THREADS>(&a.counters[block], b.n_split))
            return;
        gather_kept<DH, MT, THREADS>(a, b.n_split, s);
    }
    // To be packed four by four, results lie in the place of all tiles: (ROWS, O_LD) floats.
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    const bool packed = a.packed.x;
    if (packed)
        barrier_sync(THREADS);
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = row_sum(s, t, h);
            const uint32_t r = (warp * MT + t) * M + lane / 4 + 8 * h;
            if (b.row0 + r > b.last_row)
                continue;
            const float scale = a.v_undo / with_sink(a, b.head_of(r), s.top[t][h], sum);
            if (packed) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++)
                    *reinterpret_cast<float2 *>(tile + r * O_LD + i * 8 + lane % 4 * 2) =
                        make_float2(s.o[t][i][2 * h] * scale, s.o[t][i][2 * h + 1] * scale);
                continue;
            }
            float *out =
                a.out +
                ((size_t)b.token_of(r) * a.n_head_out + a.out_head + b.head_of(r)) * a.value_dim;
            auto store = [&](auto finish) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++) {
                    uint32_t d = i * 8 + lane % 4 * 2;
                    if (d < a.value_dim)
                        out[d] = finish(s.o[t][i][2 * h] * scale, d);
                    if (d + 1 < a.value_dim)
                        out[d + 1] = finish(s.o[t][i][2 * h + 1] * scale, d + 1);
                }
            };
            if (a.gated) // apart: else models without gates pay for it, too
                store([&](float v, uint32_t d) {
                    return v * gate_of(a, b.token_of(r), b.head_of(r), d);
                });
            else
                store([](float v, uint32_t) { return v; });
        }
    if (packed) {
        const uint32_t rows = b.last_row - b.row0 + 1;
        barrier_sync(THREADS);
        for (uint32_t j = threadIdx.x; j < rows * N; j += THREADS)
            store_out(a, b.token_of(j / N), b.head_of(j / N), j % N * 4,
                      *reinterpret_cast<const float4 *>(tile + j / N * O_LD + j % N * 4));
    }
}

// ---- host

// What attention_few.cu and attention_hopper.cu have kernels for.
template <int DH> static constexpr bool common_head_dim = DH == 64 || DH == 128 || DH == 256;

// Of one of the kernels; the grid and shared memory are set by its launcher.
static inline struct launch prompt_launch(const struct queue *q, uint32_t threads)
{
    struct launch l = {.name = "attention_prefill",
                       .block = dim3(threads),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return l;
}

// Floats that a block keeps of a split.
static constexpr size_t kept_floats(uint32_t rows, uint32_t dh)
{
    return (size_t)rows * (dh + 8);
}

// How many positions the rows of a block see, at most, and in how many splits these lie.
struct prompt_reach {
    uint32_t seen, n_split;
};

template <int DH>
static struct prompt_reach prompt_reach_of(const struct attention *a, uint32_t n, uint32_t rows)
{
    constexpr uint32_t SPLIT = prompt_split<DH>;
    const uint32_t window = a->n_swa > 0 ? a->n_swa : a->reach;
    const uint32_t tokens = lesser(n, rows / (a->n_head / a->n_head_kv) + 2); // of a block
    const uint32_t seen = lesser(a->reach, window + tokens + KV_BLOCK);
    return {seen, lesser(div_up(a->reach, SPLIT), div_up(seen, SPLIT) + (a->n_swa > 0 ? 1 : 0))};
}

// The grid's splits: a block for each of them where that is sooner and there is room for what all
// keep, else one for all. n_block: blocks of `rows` rows otherwise; kept: floats that each keeps.
template <int DH>
static uint32_t prompt_splits(const struct queue *q, const struct attention *a, uint32_t n,
                              uint32_t rows, uint32_t n_block, size_t kept)
{
    constexpr uint32_t SPLIT = prompt_split<DH>;
    // Of a block, of two splits of one block, of what several have kept: in the time of a tile
    enum { START = 6, BETWEEN = 3, GATHER = 4 };
    const uint32_t n_sm = (uint32_t)q->n_sm;
    const auto [seen, n_split] = prompt_reach_of<DH>(a, n, rows);
    const uint64_t tiles = div_up(seen, (uint32_t)KV_BLOCK);
    const uint64_t of_split = lesser(tiles, (uint64_t)SPLIT / KV_BLOCK);
    const uint64_t alone = div_up(n_block, n_sm) * (START + tiles + (n_split - 1) * BETWEEN);
    const uint64_t apart = div_up((uint64_t)n_block * n_split, (uint64_t)n_sm) * (START + of_split);
    const bool room = (size_t)n_block * n_split * kept * sizeof(float) <= a->partial_bytes;
    return room && apart + GATHER < alone ? n_split : 1;
}

#endif
