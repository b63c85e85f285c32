// Matrix times many columns on compute capability 9.0: the weights are read as they lie in memory
// and dequantised in registers, from where the tensor cores take them; the activations wait in
// shared memory. So a weight costs its 4 or 5 bits, and no instruction of its own but those that
// widen it, which run while the tensor cores work on the one before.
//
// A block multiplies 128 rows with BN columns; each of its warps holds 16 rows. The inner dimension
// goes in steps of 128 weights, a chunk of 32 for each of the four lanes that share a row: lane t's
// chunk is 32 t .. 32 t + 31. A product of tensor cores wants the lane's elements 2 t, 2 t + 1, 2 t
// + 8, 2 t + 9 of 16, so the order of elements within 128 is changed on both sides: gemm_pack_at
// says where the activations are put. They lie in memory as shared memory is to hold them.
//
// Each block does as many whole tiles as all can have; the steps of those that are left are cut
// evenly among the blocks ("stream-K", Osama et al. 2023), and come first. A tile that several
// blocks share is added up by the last of them to finish, in the order of the steps.
//
// CHUNKED: the sums of a row's chunks are kept apart until they are added in their order, as in
// gemm_few.cu, whose bits these products have: its halves of weights, its places of elements within
// 16. Blocks share a tile at borders of chunks only.
#ifndef HOKKU_CUDA_GEMM_HOPPER_CUH
#define HOKKU_CUDA_GEMM_HOPPER_CUH

#include "block.cuh"
#include "divide.cuh"
#include "gemm.cuh"
#include "ptx_hopper.cuh"

enum {
    HALF = GEMM_PACK_COLS / 2, // what one copy brings: 128 bytes per column
    N_WARP = 8,
    N_THREAD = N_WARP * WARP,
    WARP_ROWS = 16,
    BLOCK_ROWS = N_WARP * WARP_ROWS,
};

// Copies under way or in use: the more, the later a copy may come.
static constexpr __host__ __device__ int n_stage(int bn)
{
    return bn == 256 ? 6 : 8;
}

static constexpr __host__ __device__ int blocks_per_sm(int bn)
{
    return bn <= 64 ? 2 : 1;
}

// How the work is cut: units of one chunk of one tile, those of a tile in a row, the column tiles
// of a row tile in a row. (Unless CHUNKED each step is a chunk.)
struct cut {
    struct row_cut row;
    uint32_t n_col_tile;
    uint32_t n_whole;              // tiles that a block does alone
    uint32_t n_shared, n_sharer;   // units of the tiles behind those; blocks that share them
    struct divisor sharers, units; // by n_sharer, n_shared
    struct divisor chunks, steps, col_tiles;       // by what a name counts
    uint32_t first_row_tile[MATVEC_MAX_PARTS + 1]; // of each part
    struct widening w;
};

// ---- kernel (functions that are no templates are unused before 9.0)

// Of the shared units of a block.
[[maybe_unused]] static __device__ __forceinline__ uint32_t first_unit(const struct cut &c,
                                                                       uint32_t block)
{
    return gridDim.x * c.n_whole * c.row.n_chunk +
           c.sharers.divide(c.n_shared * min(block, c.n_sharer));
}

// Steps before a unit, of all tiles.
[[maybe_unused]] static __device__ __forceinline__ uint32_t first_step(const struct cut &c,
                                                                       uint32_t unit)
{
    const uint32_t row = c.chunks.divide(unit);
    return row * c.row.n_step + (unit - row * c.row.n_chunk) * c.row.chunk;
}

// The block that does a shared unit.
[[maybe_unused]] static __device__ __forceinline__ uint32_t block_of(const struct cut &c,
                                                                     uint32_t unit)
{
    return c.units.divide((unit - first_unit(c, 0) + 1) * c.n_sharer - 1);
}

// Where one warp's rows are: two tiles of eight, rows g and g + 8 of its sixteen. With MATVEC_GATED
// the first is gate's and the second up's, so that a lane gets both factors of an output.
struct rows16 {
    uint32_t part[2], tile[2];
};

[[maybe_unused]] static __device__ __forceinline__ struct rows16
locate(const struct gemm &g, const struct cut &c, uint32_t row_tile, uint32_t warp)
{
    if (g.mode == MATVEC_GATED)
        return {{0, 1}, {row_tile * N_WARP + warp, row_tile * N_WARP + warp}};
    uint32_t part = 0;
    while (part + 1 < g.n_part && row_tile >= c.first_row_tile[part + 1])
        part++;
    uint32_t tile = 2 * ((row_tile - c.first_row_tile[part]) * N_WARP + warp);
    return {{part, part}, {tile, tile + 1}};
}

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
// their way.
template <int BN> struct rows_out {
    // of eight columns: what is added to is requested before anything is stored
    static constexpr int BATCH = BN <= 64 ? 4 : 8;
    column_undo<BN> in;
    float *y;
    uint32_t rows, col, n_valid; // the lane's first of each eight columns; of its two rows
    float b0, b1, old[BATCH][4];

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
        ask(g, 0);
    }
    __device__ __forceinline__ void ask(const struct gemm &g, int j0)
    {
#pragma unroll
        for (int j = 0; j < BATCH; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const uint32_t at = col + 8 * (j0 + j) + e % 2;
                old[j][e] = 0.0f;
                if (g.mode == MATVEC_ADD && at < g.n && e / 2 < (int)n_valid)
                    old[j][e] = y[(size_t)at * rows + e / 2 * TILE_ROWS];
            }
    }
    // Every lane calls.
    __device__ __forceinline__ void store(const struct gemm &g, const struct cut &t,
                                          const float acc[BN / 2], uint32_t lane)
    {
#pragma unroll
        for (int j0 = 0; j0 < BN / 8; j0 += BATCH) {
            if (j0 > 0)
                ask(g, j0);
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const float2 undo = undo_at<BN>(in, j0 + j, lane);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const uint32_t at = col + 8 * (j0 + j) + e % 2;
                    float v = fmaf(acc[4 * (j0 + j) + e], (e % 2 ? undo.y : undo.x) * t.w.undo,
                                   e / 2 ? b1 : b0);
                    if (at < g.n && e / 2 < (int)n_valid)
                        y[(size_t)at * rows + e / 2 * TILE_ROWS] = old[j][e] + v;
                }
            }
        }
    }
};

// Where a block keeps its sums of tiles that it shares: slots of BN / 8 float4 of each thread.
// Unless CHUNKED 0 is for its first tile, 1 for another. CHUNKED: the first chunks of a tile added
// up in slot 0, those of a tile that another block begins one by one behind it.
template <int BN, bool CHUNKED>
static __device__ __forceinline__ float4 *slot(const struct gemm &g, uint32_t block, uint32_t i)
{
    constexpr uint32_t N_SLOT = CHUNKED ? GEMM_CHUNKS : 2;
    return reinterpret_cast<float4 *>(g.partial) +
           (size_t)(N_SLOT * block + i) * (BN / 8) * N_THREAD + threadIdx.x;
}

// So many float4 of a thread are under way at a time; groups of columns that nobody asked for are
// not moved at all. CHUNKED: all, since there is one such wait for each chunk.
template <int BN, bool CHUNKED> static constexpr __host__ __device__ int group()
{
    return BN == 32 || (CHUNKED && BN > 64) ? BN / 8 : BN / 16; // as registers allow
}

template <int BN, bool CHUNKED>
static __device__ __forceinline__ void keep(float4 *to, int n_col, const float acc[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 8; i++)
        if (i / group<BN, CHUNKED>() * group<BN, CHUNKED>() * 8 < n_col)
            to[i * N_THREAD] =
                make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

template <int BN, bool CHUNKED>
static __device__ __forceinline__ void fetch(const float4 *from, int n_col, float acc[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 8; i++) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (i / group<BN, CHUNKED>() * group<BN, CHUNKED>() * 8 < n_col)
            v = __ldcg(&from[i * N_THREAD]);
        acc[4 * i] = v.x, acc[4 * i + 1] = v.y, acc[4 * i + 2] = v.z, acc[4 * i + 3] = v.w;
    }
}

template <int BN, bool CHUNKED>
static __device__ __forceinline__ void fetch_more(const float4 *from, int n_col, float acc[BN / 2])
{
    constexpr int GROUP = group<BN, CHUNKED>();
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
template <int BN, bool CHUNKED>
static __device__ __forceinline__ void gather(const struct gemm &g, const struct cut &c,
                                              uint32_t tile, struct sharers s, float acc[BN / 2])
{
    const uint32_t begin = tile * c.row.n_chunk, end = begin + c.row.n_chunk;
    const int n_col = (int)(g.n - c.col_tiles.rest(tile, c.n_col_tile) * BN);
    if constexpr (CHUNKED && BN == 32) {
        enum { AT_ONCE = 3 }; // units under way, as registers allow
        fetch<BN, true>(slot<BN, true>(g, s.block0, 0), n_col, acc);
        uint32_t block = s.block0 + 1, unit = first_unit(c, block);
#pragma unroll 1
        while (unit < end) {
            float4 v[AT_ONCE][BN / 8];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (unit + k < end && unit + k >= first_unit(c, block + 1))
                    block++;
                const float4 *from = slot<BN, true>(g, block, 1 + unit + k - first_unit(c, block));
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
    } else if constexpr (CHUNKED) {
        fetch<BN, true>(slot<BN, true>(g, s.block0, 0), n_col, acc);
        uint32_t block = s.block0 + 1;
#pragma unroll 1
        for (uint32_t unit = first_unit(c, block); unit < end; unit++) {
            if (unit >= first_unit(c, block + 1))
                block++;
            fetch_more<BN, true>(slot<BN, true>(g, block, 1 + unit - first_unit(c, block)), n_col,
                                 acc);
        }
    } else {
        fetch<BN, false>(slot<BN, false>(g, s.block0, first_unit(c, s.block0) < begin), n_col, acc);
#pragma unroll 1
        for (uint32_t p = 1; p <= s.n_part; p++)
            fetch_more<BN, false>(slot<BN, false>(g, s.block0 + p, 0), n_col, acc);
    }
}

// A half of a strip as operands of the tensor cores: rows i = 0, 1 of a lane.
template <uint32_t TYPE>
static __device__ __forceinline__ void widen_rows(const strip<TYPE> s[2],
                                                  const struct half_scales scales[2], uint32_t half,
                                                  const struct widening &c, uint32_t a[4][4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t q[8] = {}, even[4], odd[4]; // places 2 t and up, 2 t + 8 and up of each 16
        if constexpr (!is_plain(TYPE))
            unpack_chunk<TYPE>(s[i].k[0], q);
        widen_pairs<TYPE>(s[i], q, scales[i], half, c, even, odd);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            a[k][i] = even[k];
            a[k][2 + i] = odd[k];
        }
    }
}

// What a block does: steps [begin, end) of all tiles, the shared ones and its own.
struct share {
    uint32_t begin[2], end[2];
    uint32_t n_shared, n_step; // of the shared ones, of all
};

[[maybe_unused]] static __device__ __forceinline__ struct share share_of(const struct cut &c)
{
    const uint32_t n_own = c.n_whole * c.row.n_step, own = blockIdx.x * n_own;
    struct share of = {{first_step(c, first_unit(c, blockIdx.x)), own},
                       {first_step(c, first_unit(c, blockIdx.x + 1)), own + n_own}};
    of.n_shared = of.end[0] - of.begin[0];
    of.n_step = of.n_shared + n_own;
    return of;
}

// Half steps of activations on their way to shared memory: what one thread starts, in the order in
// which they are multiplied.
template <int BN> struct feeder {
    const __half *x, *next;
    uint32_t n_col, n_col_tile;      // columns, tiles of them
    uint32_t per_row;                // half steps
    uint32_t col_tile, own_col_tile; // now; of the first tile that is not shared
    uint32_t left, left_shared;      // half steps to the end of the row, of what is shared

    __device__ __forceinline__ void begin(uint32_t step)
    {
        next = x + ((size_t)2 * step * n_col + col_tile * BN) * HALF;
        left = per_row - 2 * step;
    }

    __device__ __forceinline__ void open(const struct gemm &g, const struct cut &c,
                                         const struct share &of)
    {
        x = g.x;
        n_col = gemm_pack_rows(g.n);
        n_col_tile = c.n_col_tile;
        per_row = 2 * c.row.n_step;
        own_col_tile = c.col_tiles.rest(c.steps.divide(of.begin[1]), n_col_tile);
        left_shared = 2 * (of.end[0] - of.begin[0]);
        const uint32_t first = left_shared > 0 ? of.begin[0] : of.begin[1];
        col_tile = c.col_tiles.rest(c.steps.divide(first), n_col_tile);
        begin(c.steps.rest(first, c.row.n_step));
    }

    __device__ __forceinline__ void start(uint8_t *to, uint64_t *full)
    {
        const uint32_t n_bytes = lesser(n_col - col_tile * BN, (uint32_t)BN) * 128;
        mbar_arrive_expect(full, n_bytes);
        bulk_copy(to, next, n_bytes, full);
        next += (size_t)n_col * HALF;
        const bool end_of_shared = --left_shared == 0;
        if (--left > 0 && !end_of_shared)
            return;
        col_tile = end_of_shared ? own_col_tile : col_tile + 1 < n_col_tile ? col_tile + 1 : 0;
        begin(0);
    }
};

template <uint32_t TYPE, int BN, bool CHUNKED>
static __device__ __forceinline__ void multiply(const struct gemm &g, const struct cut &c)
{
    constexpr int N_STAGE = n_stage(BN), COLS = BN < 128 ? BN : 128; // columns of one instruction
    // Operands: one is widened while the other is multiplied. Where a multiprocessor has more than
    // eight warps there is one: while a warp waits for its product others work.
    constexpr int N_A = BN <= 64 ? 1 : 2;
    constexpr uint32_t STAGE_BYTES = BN * 128, N = strip<TYPE>::N;
    __shared__ uint64_t full[N_STAGE], empty[N_STAGE];
    // of thread 0, and where registers are short, not in them
    __shared__ struct share shared_of;
    __shared__ struct feeder<BN> shared_feed;
    struct share own_of = share_of(c);
    struct feeder<BN> own_feed;
    constexpr bool SHARED = BN == 64 || BN == 256;
    struct share &of = SHARED ? shared_of : own_of;
    struct feeder<BN> &feed = SHARED ? shared_feed : own_feed;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane / 4, t = lane % 4;
    const uintptr_t smem = (uintptr_t)dynamic_smem<uint8_t>();
    uint8_t *stages =
        reinterpret_cast<uint8_t *>((smem + SWIZZLE_ALIGN - 1) / SWIZZLE_ALIGN * SWIZZLE_ALIGN);

    if (threadIdx.x == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbar_init(&full[i], 1);
            mbar_init(&empty[i], N_WARP);
        }
        mbar_init_done();
        shared_of = own_of;
        feed.open(g, c, of);
    }
    if (SHARED)
        __syncthreads();
    griddep_launch_dependents();

    const uint64_t tile_b = wgmma_tile(stages);
    const uint32_t n_chunk = g.w[0].n_chunk, n_step = of.n_step;
    const auto n_steps = [&] { return BN == 256 ? of.n_step : n_step; };
    uint32_t n_half = 0; // so far: half i lies in slot i % N_STAGE
    bool first = true;
    for (uint32_t done = 0; done < n_steps();) {
        const bool shared = done < of.n_shared;
        const uint32_t at = shared ? of.begin[0] + done : of.begin[1] + done - of.n_shared;
        const uint32_t tile = c.steps.divide(at), step0 = at - tile * c.row.n_step;
        const uint32_t step1 = lesser(c.row.n_step, step0 + (shared ? of.end[0] : of.end[1]) - at);
        const auto keep_sums = [&](uint32_t i, const float *sums) {
            keep<BN, CHUNKED>(slot<BN, CHUNKED>(g, blockIdx.x, i),
                              (int)(g.n - c.col_tiles.rest(tile, c.n_col_tile) * BN), sums);
        };
        const struct rows16 rows = locate(g, c, c.col_tiles.divide(tile), warp);
        struct tile_row row[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const struct wmat &w = g.w[rows.part[i]]; // beyond the matrix: rows that nobody stores
            row[i] = tile_begin<TYPE>(w, min(rows.tile[i], w.n_tile - 1), r);
        }
        strip<TYPE> s[2];
        // Asks for the lane's strips of a step, or for what they have of one half: the last ones of
        // the row where it has no more.
        const auto request = [&](uint32_t i, int from, int to) {
            const uint32_t at = min((4 * i + t) * N, n_chunk - 1);
#pragma unroll
            for (int j = from; j < to; j++) {
                const uint32_t k = N == 1 ? at : min(at + j, n_chunk - 1);
                load_chunk<TYPE>(row[0], k, s[0].k[j]);
                load_chunk<TYPE>(row[1], k, s[1].k[j]);
            }
        };
        float acc[BN / 2];
        [[maybe_unused]] float total[CHUNKED ? BN / 2 : 1]; // of the chunks before
        float *const sums = CHUNKED ? total : acc;
        uint32_t a[N_A][4][4];
        bool add = false; // to what acc has
        [[maybe_unused]] uint32_t in_chunk = min(c.row.chunk, c.row.n_step - step0), n_kept = 0;
        if constexpr (CHUNKED)
#pragma unroll
            for (int i = 0; i < BN / 2; i++)
                total[i] = 0.0f;
        request(step0, 0, N);
        if (first) { // weights depend on no other kernel; everything else does
            if (!SHARED)
                __syncthreads();
            griddep_wait();
            if (threadIdx.x == 0)
#pragma unroll 1
                for (uint32_t i = 0; i < N_STAGE && i < 2 * n_steps(); i++)
                    feed.start(stages + i * STAGE_BYTES, &full[i]);
            __syncwarp();
        }
        first = false;
#pragma unroll 1
        for (uint32_t step = step0; step < step1; step++, done++) {
            const struct half_scales scales[2] = {scales_of<TYPE>(s[0], c.w),
                                                  scales_of<TYPE>(s[1], c.w)};
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                widen_rows<TYPE>(s, scales, half, c.w, a[half % N_A]);
                if (N > 1) // after the last step for nothing
                    request(step + 1, half * N / 2, (half + 1) * N / 2);
                else if (half == 1)
                    request(step + 1, 0, 1);
                const uint32_t slot = n_half % N_STAGE;
                mbar_wait(&full[slot], n_half / N_STAGE % 2);
                wgmma_begin();
                const uint64_t b = wgmma_tile_at(tile_b, slot * STAGE_BYTES);
#pragma unroll
                for (int k = 0; k < 4; k++)
#pragma unroll
                    for (int col = 0; col < BN; col += COLS)
                        wgmma_f16<COLS>(acc + col / 2, a[half % N_A][k],
                                        wgmma_tile_at(b, (uint32_t)(col * 128 + k * 32)),
                                        add || half > 0 || k > 0);
                wgmma_commit();
                // what came before this half is done: its slot may be filled again
                wgmma_wait<N_A - 1>();
                if (lane == 0 && n_half > 0)
                    mbar_arrive(&empty[(n_half - 1) % N_STAGE]);
                // not that slot, which other warps may still read: the one before
                if (threadIdx.x == 0 && n_half > 1 && n_half - 2 + N_STAGE < 2 * n_steps()) {
                    const uint32_t free = (n_half - 2) % N_STAGE;
                    mbar_wait(&empty[free], (n_half - 2) / N_STAGE % 2);
                    feed.start(stages + free * STAGE_BYTES, &full[free]);
                }
                __syncwarp();
                n_half++;
            }
            add = true;
            if constexpr (CHUNKED) {
                if (--in_chunk > 0)
                    continue;
                wgmma_wait<0>();
                wgmma_settle<BN / 2>(acc);
                if (step0 > 0) // another block has the chunks before
                    keep_sums(++n_kept, acc);
                else
#pragma unroll
                    for (int i = 0; i < BN / 2; i++)
                        total[i] += acc[i];
                in_chunk = min(c.row.chunk, c.row.n_step - step - 1);
                add = false;
            }
        }
        wgmma_wait<0>();
        wgmma_settle<BN / 2>(acc);
        const bool whole = step1 - step0 == c.row.n_step;
        struct sharers by = {};
        if (!whole) {
            by = sharers_of(c, tile);
            if (!CHUNKED || step0 == 0)
                keep_sums(CHUNKED ? 0 : of.begin[0] < tile * c.row.n_step, sums);
            if (!last_to_arrive(&g.counters[by.block0], by.n_part + 1))
                continue;
        }
        const struct rows16 to = locate(g, c, c.col_tiles.divide(tile), warp);
        const uint32_t col0 = c.col_tiles.rest(tile, c.n_col_tile) * BN;
        constexpr bool AHEAD = BN == 32; // as registers allow
        struct rows_out<BN> out;
        if (AHEAD && g.mode != MATVEC_GATED)
            out.open(g, to, col0, lane);
        if (!whole)
            gather<BN, CHUNKED>(g, c, tile, by, sums);
        if (!AHEAD && g.mode != MATVEC_GATED)
            out.open(g, to, col0, lane);
        if (g.mode == MATVEC_GATED)
            store_gated<BN>(g, c, to, col0, sums, lane);
        else
            out.store(g, c, sums, lane);
    }
}

// Grid: what is resident at once, at most a block per unit.
template <uint32_t TYPE, int BN, bool CHUNKED>
static __global__ void __launch_bounds__(N_THREAD, blocks_per_sm(BN))
    gemm_hopper_kernel(const __grid_constant__ struct gemm g, const __grid_constant__ struct cut c)
{
    if constexpr (HAVE_HOPPER)
        multiply<TYPE, BN, CHUNKED>(g, c);
}

// ---- launcher

// Blocks that share a tile, more or less: their sums must be added up.
enum { MAX_SHARE = 8 };

// each: blocks have a tile each, of which there are no more than blocks at once.
template <int BN, bool CHUNKED>
static bool launch_tiles(const struct queue *q, const struct gemm *g, struct cut *c, bool each,
                         struct error *err)
{
    const uint32_t n_tile = c->first_row_tile[g->n_part] * div_up(g->n, (uint32_t)BN);
    const uint32_t n_shared = n_tile * lesser(c->row.n_chunk, (uint32_t)MAX_SHARE);
    const uint32_t n_block =
        lesser((uint32_t)(q->n_sm * blocks_per_sm(BN)), each ? n_tile : n_shared);
    const uint32_t n_left = n_tile % n_block;
    c->n_col_tile = div_up(g->n, (uint32_t)BN);
    c->n_whole = n_tile / n_block;
    c->n_shared = n_left * c->row.n_chunk; // times a block's number far below 2^32
    c->n_sharer = n_left > 0 ? lesser(n_block, lesser(c->n_shared, n_left * MAX_SHARE)) : 1;
    c->sharers = divisor_of(c->n_sharer);
    c->units = divisor_of(c->n_shared > 0 ? c->n_shared : 1);
    c->chunks = divisor_of(c->row.n_chunk);
    c->steps = divisor_of(c->row.n_step);
    c->col_tiles = divisor_of(c->n_col_tile);
    struct launch l = {.name = CHUNKED ? "gemm_wide" : "gemm_hopper",
                       .grid = dim3(n_block),
                       .block = dim3(N_THREAD),
                       .smem = (size_t)n_stage(BN) * BN * 128 + SWIZZLE_ALIGN,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(g->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32)
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        else
            return launch_kernel(err, l, gemm_hopper_kernel<T, BN, CHUNKED>, *g, *c);
    });
}

static inline struct cut cut_of(const struct gemm *g, struct row_cut row)
{
    struct cut c = {};
    c.row = row;
    if (g->mode == MATVEC_GATED) { // one part; zeros up to the last step of the next matrix
        uint32_t rows = div_up(g->w[0].rows, (uint32_t)GEMM_PACK_COLS) * GEMM_PACK_COLS;
        c.first_row_tile[g->n_part] = rows / (BLOCK_ROWS / 2);
    } else {
        for (uint32_t i = 0; i < g->n_part; i++)
            c.first_row_tile[i + 1] =
                c.first_row_tile[i] + div_up(g->w[i].rows, (uint32_t)BLOCK_ROWS);
    }
    c.w = gemm_widening(g, 0, g->n_part);
    return c;
}

#endif
