// What becomes of the sums of gemm_hopper.cuh: kept for the block that adds up a shared tile, added
// up there, stored.
#ifndef HOKKU_CUDA_GEMM_SUMS_CUH
#define HOKKU_CUDA_GEMM_SUMS_CUH

#include "activation.cuh"
#include "gemm_cut.cuh"

// 1 / the scales of a tile's columns: of every 64 a lane keeps two and asks the others for its own,
// so that all loads are under way at once and take few registers.
template <int BN> struct column_undo {
    static constexpr int N = BN < 64 ? 1 : BN / 64;
    float2 v[N];
};

template <int BN>
static __device__ __forceinline__ column_undo<BN> load_undo(const float *from, uint32_t col0,
                                                            uint32_t lane)
{
    column_undo<BN> u;
#pragma unroll
    for (int i = 0; i < u.N; i++)
        u.v[i] = reinterpret_cast<const float2 *>(from + col0 + 64 * i)[lane % (BN / 2)];
    return u;
}

// Of columns 8 j + lane % 4 * 2 and the next. Every lane calls.
template <int BN>
static __device__ __forceinline__ float2 undo_at(const column_undo<BN> &u, int j, uint32_t lane)
{
    const int from = j % 8 * 4 + (int)(lane % 4);
    return make_float2(__shfl_sync(0xFFFFFFFFu, u.v[j / 8].x, from),
                       __shfl_sync(0xFFFFFFFFu, u.v[j / 8].y, from));
}

// Leaves act(gate) * up, packed for the matrix that follows: in its form columns eight apart are as
// far apart for all.
template <int BN>
static __device__ __forceinline__ void store_gated(const struct gemm &g, const struct cut &t,
                                                   const struct rows16 &r, uint32_t col0,
                                                   const float acc[BN / 2], uint32_t lane)
{
    constexpr uint32_t NEXT = 2; // neighbours in the packed form: a row and the one after the next
    const uint32_t row = r.tile[0] * TILE_ROWS + lane / 4, odd = lane / 4 / NEXT % 2;
    const uint32_t col = col0 + lane % 4 * 2 + odd;
    const bool valid = row < g.w[0].rows; // the packed form is padded with zeros
    column_undo<BN> in = load_undo<BN>(g.undo, col0, lane);
    column_undo<BN> out = load_undo<BN>(g.undo_out, col0, lane);
#pragma unroll
    for (int i = 0; i < in.N; i++) {
        in.v[i] = make_float2(in.v[i].x * t.w.undo, in.v[i].y * t.w.undo);
        out.v[i] = make_float2(half_range_undo(out.v[i].x), half_range_undo(out.v[i].y));
    }
    __half *to = g.out + gemm_pack_at(g.n, col, row - NEXT * odd);
    const auto columns = [&](auto act) {
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
            const float2 undo_in = undo_at<BN>(in, j, lane), undo_out = undo_at<BN>(out, j, lane);
            float v[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float undo = c ? undo_in.y : undo_in.x;
                const float gate = acc[4 * j + c] * undo, up = acc[4 * j + 2 + c] * undo;
                v[c] = activate(act, gate) * up * (c ? undo_out.y : undo_out.x);
                v[c] = valid ? v[c] : 0.0f;
            }
            // the lanes of two neighbours: each takes one column of both
            const float other = __shfl_xor_sync(0xFFFFFFFFu, odd ? v[0] : v[1], 4 * NEXT);
            const uint32_t pair = saturated_half2(odd ? other : v[0], odd ? v[1] : other);
            if (col + 8 * j < g.n)
                *reinterpret_cast<uint32_t *>(to + (size_t)j * 8 * HALF) = pair;
        }
    };
    if (g.act == ACT_GELU_TANH)
        columns(std::integral_constant<enum activation, ACT_GELU_TANH>());
    else
        columns(std::integral_constant<enum activation, ACT_SILU>());
}

// Where a lane's sums go, and what it needs for that: asked for while other blocks' sums are on
// their way. What is there already is added to where it is: nobody waits for it. (Subnormal numbers
// count as zeros there.)
template <int BN> struct rows_out {
    column_undo<BN> in;
    float *y;
    uint32_t rows, col, n_valid; // the lane's first of each eight columns; of its two rows
    float b0, b1;

    __device__ __forceinline__ void open(const struct gemm &g, const struct rows16 &r,
                                         uint32_t col0, uint32_t lane)
    {
        rows = g.w[r.part[0]].rows;
        const uint32_t row0 = r.tile[0] * TILE_ROWS + lane / 4;
        const float *bias = g.bias[r.part[0]];
        y = g.y[r.part[0]] + row0;
        col = col0 + lane % 4 * 2;
        n_valid = row0 + TILE_ROWS < rows ? 2 : row0 < rows;
        b0 = bias && n_valid > 0 ? bias[row0] : 0.0f;
        b1 = bias && n_valid > 1 ? bias[row0 + TILE_ROWS] : 0.0f;
        in = load_undo<BN>(g.undo, col0, lane);
    }
    // Every lane calls.
    __device__ __forceinline__ void store(const struct gemm &g, const struct cut &t,
                                          const float acc[BN / 2], uint32_t lane)
    {
        const auto each = [&](auto put) {
#pragma unroll
            for (int j = 0; j < BN / 8; j++) {
                const float2 undo = undo_at<BN>(in, j, lane);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const uint32_t at = col + 8 * j + e % 2;
                    const float v =
                        fmaf(acc[4 * j + e], (e % 2 ? undo.y : undo.x) * t.w.undo, e / 2 ? b1 : b0);
                    if (at < g.n && e / 2 < (int)n_valid)
                        put(&y[(size_t)at * rows + e / 2 * TILE_ROWS], v);
                }
            }
        };
        if (g.mode == MATVEC_ADD)
            each([](float *to, float v) { add_to(to, v); });
        else
            each([](float *to, float v) { *to = v; });
    }
};

// Where a block keeps sums: slots of BN / 8 float4 of each thread. Of a tile that it begins and
// others end the first chunks added up in slot 0; of a tile that another block begins one by one
// behind it, or those behind the first n_first added up, at most GEMM_KEPT. Then, of a tile that it
// does alone, the first n_first and the others, as far as the block has no registers for them.
template <bool TOTALS> static constexpr uint32_t WHOLE_SLOT = TOTALS ? 0 : GEMM_KEPT + 1;
template <bool TOTALS> static constexpr uint32_t N_SLOT = TOTALS ? GEMM_CHUNKS : GEMM_KEPT + 3;

// What a chunk is part of, which ends with a step, when its block has a tile from step0 on.
struct run {
    bool own;          // its chunks are added up by this block, which has them from the first on
    bool begins, ends; // this chunk is the first, the last
    bool second;       // of those behind the first n_first
};

template <bool TOTALS>
static __device__ __forceinline__ struct run run_at(const struct cut &c, uint32_t step0,
                                                    uint32_t step)
{
    if (TOTALS)
        return {step0 == 0, step < c.row.chunk, false, false};
    const uint32_t first = c.row.n_first * c.row.chunk; // steps
    const bool second = step >= first;
    const uint32_t from = second ? first : 0;
    return {step0 <= from, step - from < c.row.chunk, step + 1 == first, second};
}

template <int BN, bool TOTALS>
static __device__ __forceinline__ float4 *slot_of(const struct gemm &g, uint32_t block, uint32_t i)
{
    return reinterpret_cast<float4 *>(g.partial) +
           (size_t)(N_SLOT<TOTALS> * block + i) * (BN / 8) * N_THREAD + threadIdx.x;
}

// So many float4 of a thread are under way at a time; groups of columns that nobody asked for are
// not moved at all. TOTALS: all, since there is one such wait for each chunk.
template <int BN, bool TOTALS> static constexpr __host__ __device__ int group()
{
    return BN == 32 || (TOTALS ? BN > 64 : BN < 128) ? BN / 8 : BN / 16; // as registers allow
}

template <int BN, bool TOTALS>
static __device__ __forceinline__ void keep(float4 *to, int n_col, const float acc[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 8; i++)
        if (i / group<BN, TOTALS>() * group<BN, TOTALS>() * 8 < n_col)
            to[i * N_THREAD] =
                make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

// Adds to what the same thread has kept, where that is, waiting for nothing. (That sums which are
// no normal numbers count as zeros there is no matter: these are multiples of 2^-48.)
template <int BN, bool TOTALS>
static __device__ __forceinline__ void keep_more(float4 *to, int n_col, const float acc[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 8; i++)
        if (i / group<BN, TOTALS>() * group<BN, TOTALS>() * 8 < n_col)
            add_to4(&to[i * N_THREAD],
                    make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
}

template <int BN, bool TOTALS>
static __device__ __forceinline__ void fetch(const float4 *from, int n_col, float acc[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 8; i++) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (i / group<BN, TOTALS>() * group<BN, TOTALS>() * 8 < n_col)
            v = __ldcg(&from[i * N_THREAD]);
        acc[4 * i] = v.x, acc[4 * i + 1] = v.y, acc[4 * i + 2] = v.z, acc[4 * i + 3] = v.w;
    }
}

template <int BN, bool TOTALS>
static __device__ __forceinline__ void fetch_more(const float4 *from, int n_col, float acc[BN / 2])
{
    constexpr int GROUP = group<BN, TOTALS>();
#pragma unroll
    for (int i0 = 0; i0 < BN / 8; i0 += GROUP) {
        if (i0 * 8 >= n_col)
            break;
        float4 v[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            v[i] = __ldcg(&from[(i0 + i) * N_THREAD]);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            float *sum = acc + 4 * (i0 + i);
            sum[0] += v[i].x, sum[1] += v[i].y, sum[2] += v[i].z, sum[3] += v[i].w;
        }
    }
}

// Of chained tiles: a warp's sums for the same warp of the next block, and those of the block
// before. Each block has a word for each of its warps that tells of them.
template <int BN>
static __device__ __forceinline__ void hand_on(const struct gemm &g, int n_col,
                                               const float acc[BN / 2])
{
    keep<BN, false>(slot_of<BN, false>(g, blockIdx.x, 0), n_col, acc);
    __threadfence();
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        st_release_gpu(&g.counters[blockIdx.x * N_WARP + threadIdx.x / WARP], 1);
}

template <int BN>
static __device__ __forceinline__ void go_on_from(const struct gemm &g, int n_col,
                                                  float acc[BN / 2])
{
    const uint32_t block = blockIdx.x - 1;
    uint32_t *const told = &g.counters[block * N_WARP + threadIdx.x / WARP];
    while (uniform(ld_acquire_gpu(told)) == 0)
        continue;
    __syncwarp(); // what the first lane has seen, all have
    if (threadIdx.x % WARP == 0)
        *told = 0;
    fetch<BN, false>(slot_of<BN, false>(g, block, 0), n_col, acc);
}

// Of a tile that several blocks share, the first of them and how many there are besides.
struct sharers {
    uint32_t block0, n_part;
};

[[maybe_unused]] static __device__ __forceinline__ struct sharers sharers_of(const struct cut &c,
                                                                             uint32_t tile)
{
    const uint32_t begin = tile * c.row.n_chunk, block0 = block_of(c, begin);
    return {block0, block_of(c, begin + c.row.n_chunk - 1) - block0};
}

// The sums of all blocks, in acc: for the one that is the last to have kept its own.
template <int BN, bool TOTALS>
static __device__ __forceinline__ void gather(const struct gemm &g, const struct cut &c,
                                              uint32_t tile, struct sharers s, float acc[BN / 2])
{
    const uint32_t begin = tile * c.row.n_chunk, end = begin + c.row.n_chunk;
    const int n_col = (int)(g.n - c.col_tiles.rest(tile, c.n_col_tile) * BN);
    if constexpr (BN == 32) {
        enum { AT_ONCE = 3 }; // units under way, as registers allow
        fetch<BN, TOTALS>(slot_of<BN, TOTALS>(g, s.block0, 0), n_col, acc);
        uint32_t block = s.block0 + 1, unit = first_unit(c, block);
#pragma unroll 1
        while (unit < end) {
            float4 v[AT_ONCE][BN / 8];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (unit + k < end && unit + k >= first_unit(c, block + 1))
                    block++;
                const float4 *from =
                    slot_of<BN, TOTALS>(g, block, 1 + unit + k - first_unit(c, block));
#pragma unroll
                for (int i = 0; i < BN / 8; i++)
                    v[k][i] = unit + k < end ? __ldcg(&from[i * N_THREAD])
                                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int i = 0; i < BN / 8; i++)
                    if (unit + k < end) {
                        float *sum = acc + 4 * i;
                        sum[0] += v[k][i].x, sum[1] += v[k][i].y;
                        sum[2] += v[k][i].z, sum[3] += v[k][i].w;
                    }
            unit += AT_ONCE;
        }
    } else {
        const uint32_t first = TOTALS ? end : begin + c.row.n_first;
        uint32_t block = s.block0;
        // Slot i of the block, which is the first of a run, and units behind it up to one.
        const auto add_up = [&](uint32_t i, uint32_t to) {
            fetch<BN, TOTALS>(slot_of<BN, TOTALS>(g, block, i), n_col, acc);
#pragma unroll 1
            for (uint32_t unit = first_unit(c, block + 1); unit < to; unit++) {
                if (unit >= first_unit(c, block + 1))
                    block++;
                fetch_more<BN, TOTALS>(
                    slot_of<BN, TOTALS>(g, block, 1 + unit - first_unit(c, block)), n_col, acc);
            }
        };
        if (first == end) {
            add_up(0, end);
            return;
        }
        const float4 *before = slot_of<BN, TOTALS>(g, block, 0); // those of the first run
        if (first_unit(c, block + 1) < first) {
            float4 *const own =
                slot_of<BN, TOTALS>(g, block_number<BN, TOTALS>(c), WHOLE_SLOT<TOTALS>);
            add_up(0, first);
            keep<BN, TOTALS>(own, n_col, acc);
            before = own;
        }
        if (first >= first_unit(c, block + 1))
            block++;
        add_up(1 + first - first_unit(c, block), end);
        fetch_more<BN, TOTALS>(before, n_col, acc);
    }
}

#endif
