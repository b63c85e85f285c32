// Several rows times the matrices of chosen experts on compute capability 9.0: gemm_hopper.cuh,
// where a tile is some rows of one expert's matrix and the columns that chose it. Which tiles there
// are is known in device memory alone (grouping); a block takes every so many-th of them, and the
// row tiles of an item follow each other, so that its columns stay in L2. A block does the whole of
// a tile: a column's sums are the same whatever else is in its chunk.
//
// The activations lie by place, as expert_pack_launch puts them: the columns of an item are one
// piece of memory for each half step. Weights of the next tile are requested before the last step
// of this one is multiplied.
#include "experts.h"
#include "gemm_hopper.cuh"

// Of a block: where items have few columns tiles of half the rows come out more even.
static constexpr __host__ __device__ uint32_t n_warp(int bn)
{
    return bn == 32 ? N_WARP / 2 : N_WARP;
}

static constexpr __host__ __device__ int items_per_sm(int bn)
{
    return blocks_per_sm(bn) * N_WARP / (int)n_warp(bn);
}

// How a launch is cut up.
struct item_tiles {
    uint32_t n_row_tile, n_step;
    struct widening w;
};

// ---- kernel (functions that are no templates are unused before 9.0)

static __device__ __forceinline__ struct expert_item item_at(const struct expert_gemm &m,
                                                             uint32_t i)
{
    const uint32_t first = i * m.per_item;
    return m.items ? m.items[i] : expert_item{0, first, min(m.n_place - first, m.per_item)};
}

// As locate of gemm_hopper.cuh: rows g and g + 8 of a warp, or row g of gate and up.
[[maybe_unused]] static __device__ __forceinline__ struct rows16
rows_at(const struct expert_gemm &m, uint32_t row_tile, uint32_t warp, uint32_t n_warp)
{
    const uint32_t at = row_tile * n_warp + warp;
    return m.gated ? rows16{{0, 1}, {at, at}} : rows16{{0, 0}, {2 * at, 2 * at + 1}};
}

// As feeder: half steps of the columns of a block's tiles, one tile after the other.
struct item_feeder {
    const __half *next;
    uint32_t tile, n_bytes, left; // of the tile's half steps

    __device__ __forceinline__ void begin(const struct expert_gemm &m, const struct item_tiles &c,
                                          uint32_t at)
    {
        const struct expert_item item = item_at(m, at / c.n_row_tile);
        next = m.x + (size_t)item.first * HALF;
        tile = at;
        n_bytes = item.n * HALF * (uint32_t)sizeof(__half);
        left = 2 * c.n_step;
    }

    // Not beyond the block's last tile.
    __device__ __forceinline__ void start(const struct expert_gemm &m, const struct item_tiles &c,
                                          uint8_t *to, uint64_t *full)
    {
        if (left == 0)
            begin(m, c, tile + gridDim.x);
        mbar_arrive_expect(full, n_bytes);
        bulk_copy(to, next, n_bytes, full);
        next += (size_t)m.n_place * HALF;
        left--;
    }
};

// As load_undo, from any column on; beyond n there are none.
template <int BN>
static __device__ __forceinline__ column_undo<BN> item_undo(const float *from, uint32_t n,
                                                            uint32_t lane)
{
    column_undo<BN> u;
#pragma unroll
    for (int i = 0; i < u.N; i++) {
        const uint32_t col = 64 * i + 2 * (lane % (BN / 2));
        u.v[i] = make_float2(from[min(col, n - 1)], from[min(col + 1, n - 1)]);
    }
    return u;
}

template <int BN, enum activation ACT>
static __device__ __forceinline__ void
store_gated(const struct expert_gemm &m, const struct item_tiles &c, const struct expert_item &item,
            uint32_t row, const float acc[BN / 2], uint32_t lane)
{
    const uint32_t rows = m.w[0].rows;
    const bool valid = row < rows;
    const size_t at = (size_t)item.expert * rows + (valid ? row : 0);
    const float bias[2] = {m.bias[0] ? m.bias[0][at] : 0.0f, m.bias[1] ? m.bias[1][at] : 0.0f};
    const float scale[2] = {c.w.undo * product_scale(m.w[0], item.expert),
                            c.w.undo * product_scale(m.w[1], item.expert)};
    const column_undo<BN> in = item_undo<BN>(m.undo + item.first, item.n, lane);
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        const float2 undo = undo_at<BN>(in, j, lane);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const uint32_t col = 8 * j + lane % 4 * 2 + e;
            const float f = e ? undo.y : undo.x;
            const float v = gated(ACT, {}, fmaf(acc[4 * j + e], f * scale[0], bias[0]),
                                  fmaf(acc[4 * j + 2 + e], f * scale[1], bias[1]));
            if (valid && col < item.n)
                m.y[(size_t)(item.first + col) * rows + row] = v;
        }
    }
}

template <int BN>
static __device__ __forceinline__ void
store(const struct expert_gemm &m, const struct item_tiles &c, const struct expert_item &item,
      uint32_t row0, const float acc[BN / 2], uint32_t lane)
{
    const uint32_t rows = m.w[0].rows;
    const bool valid[2] = {row0 < rows, row0 + TILE_ROWS < rows};
    float bias[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        bias[h] = m.bias[0] && valid[h]
                      ? m.bias[0][(size_t)item.expert * rows + row0 + h * TILE_ROWS]
                      : 0.0f;
    const column_undo<BN> in = item_undo<BN>(m.undo + item.first, item.n, lane);
    const float scale = c.w.undo * product_scale(m.w[0], item.expert);
    float *y = m.y + (size_t)item.first * rows + row0;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        const float2 undo = undo_at<BN>(in, j, lane);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t col = 8 * j + lane % 4 * 2 + e % 2;
            const float f = (e % 2 ? undo.y : undo.x) * scale;
            if (valid[e / 2] && col < item.n)
                y[(size_t)col * rows + e / 2 * TILE_ROWS] = fmaf(acc[4 * j + e], f, bias[e / 2]);
        }
    }
}

// The four products of a half step, of N columns, started.
template <int N>
static __device__ __forceinline__ void multiply_half(float *acc, const uint32_t a[4][4], uint64_t b,
                                                     bool add)
{
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_f16<N>(acc, a[k], wgmma_tile_at(b, (uint32_t)(k * 32)), add || k > 0);
    wgmma_commit();
}

template <uint32_t TYPE, int BN>
static __device__ __forceinline__ void multiply_items(const struct expert_gemm &m,
                                                      const struct item_tiles &c)
{
    constexpr int N_STAGE = n_stage(BN), N_A = BN <= 64 ? 1 : 2; // see multiply
    constexpr uint32_t STAGE_BYTES = BN * 128, N = strip<TYPE>::N;
    __shared__ uint64_t full[N_STAGE], empty[N_STAGE];
    __shared__ struct item_feeder feed; // of thread 0
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane / 4, t = lane % 4, n_chunk = m.w[0].n_chunk;
    const uintptr_t smem = (uintptr_t)dynamic_smem<uint8_t>();
    uint8_t *stages =
        reinterpret_cast<uint8_t *>((smem + SWIZZLE_ALIGN - 1) / SWIZZLE_ALIGN * SWIZZLE_ALIGN);
    if (threadIdx.x == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbar_init(&full[i], 1);
            mbar_init(&empty[i], n_warp(BN));
        }
        mbar_init_done();
    }
    __syncthreads();
    griddep_launch_dependents();
    griddep_wait();
    const uint32_t n_item = m.items ? *m.n_item : div_up(m.n_place, m.per_item);
    const uint32_t n_tile = n_item * c.n_row_tile;
    if (blockIdx.x >= n_tile)
        return;
    const uint32_t last = n_tile - 1 - (n_tile - 1 - blockIdx.x) % gridDim.x;    // of this block
    const uint32_t n_all = ((last - blockIdx.x) / gridDim.x + 1) * 2 * c.n_step; // half steps

    struct tile_row row[2];
    const auto stand_at = [&](uint32_t tile, uint32_t expert) {
        const struct rows16 rows = rows_at(m, tile % c.n_row_tile, warp, n_warp(BN));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const struct wmat &w = m.w[rows.part[i]]; // beyond the matrix: rows that nobody stores
            row[i] = tile_begin<TYPE>(w, expert * w.n_tile + min(rows.tile[i], w.n_tile - 1), r);
        }
    };
    strip<TYPE> s[2];
    const auto request = [&](uint32_t step, int from, int to) { // see multiply
        const uint32_t at = min((4 * step + t) * N, n_chunk - 1);
#pragma unroll
        for (int j = from; j < to; j++) {
            const uint32_t k = N == 1 ? at : min(at + j, n_chunk - 1);
            load_chunk<TYPE>(row[0], k, s[0].k[j]);
            load_chunk<TYPE>(row[1], k, s[1].k[j]);
        }
    };
    stand_at(blockIdx.x, item_at(m, blockIdx.x / c.n_row_tile).expert);
    request(0, 0, N);
    if (threadIdx.x == 0) {
        feed.begin(m, c, blockIdx.x);
#pragma unroll 1
        for (uint32_t i = 0; i < N_STAGE && i < n_all; i++)
            feed.start(m, c, stages + i * STAGE_BYTES, &full[i]);
    }
    __syncwarp();

    const uint64_t tile_b = wgmma_tile(stages);
    uint32_t n_half = 0; // so far: half i lies in slot i % N_STAGE
#pragma unroll 1
    for (uint32_t tile = blockIdx.x; tile <= last; tile += gridDim.x) {
        const bool narrow = item_at(m, tile / c.n_row_tile).n <= BN / 2;
        const uint32_t next = min(tile + gridDim.x, last);
        const uint32_t next_expert = item_at(m, next / c.n_row_tile).expert;
        float acc[BN / 2];
        uint32_t a[N_A][4][4];
#pragma unroll 1
        for (uint32_t step = 0; step < c.n_step; step++) {
            const struct half_scales scales[2] = {scales_of<TYPE>(s[0], c.w),
                                                  scales_of<TYPE>(s[1], c.w)};
            const bool ends = step + 1 == c.n_step;
            if (ends)
                stand_at(next, next_expert);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                widen_rows<TYPE>(s, scales, half, c.w, a[half % N_A]);
                if (N > 1) // after the last tile for nothing
                    request(ends ? 0 : step + 1, half * N / 2, (half + 1) * N / 2);
                else if (half == 1)
                    request(ends ? 0 : step + 1, 0, 1);
                const uint32_t slot = n_half % N_STAGE;
                mbar_wait(&full[slot], n_half / N_STAGE % 2);
                const uint64_t b = wgmma_tile_at(tile_b, slot * STAGE_BYTES);
                if (BN > 32 && narrow)
                    multiply_half<BN == 32 ? BN : BN / 2>(acc, a[half % N_A], b,
                                                          step > 0 || half > 0);
                else
                    multiply_half<BN>(acc, a[half % N_A], b, step > 0 || half > 0);
                // as in multiply: what came before this half is done, the slot before that is free
                wgmma_wait<N_A - 1>();
                if (lane == 0 && n_half > 0)
                    mbar_arrive(&empty[(n_half - 1) % N_STAGE]);
                if (threadIdx.x == 0 && n_half > 1 && n_half - 2 + N_STAGE < n_all) {
                    const uint32_t free = (n_half - 2) % N_STAGE;
                    mbar_wait(&empty[free], (n_half - 2) / N_STAGE % 2);
                    feed.start(m, c, stages + free * STAGE_BYTES, &full[free]);
                }
                __syncwarp();
                n_half++;
            }
        }
        wgmma_wait<0>();
        wgmma_settle<BN / 2>(acc);
        const struct expert_item item = item_at(m, tile / c.n_row_tile);
        const uint32_t row0 =
            rows_at(m, tile % c.n_row_tile, warp, n_warp(BN)).tile[0] * TILE_ROWS + r;
        if (!m.gated)
            store<BN>(m, c, item, row0, acc, lane);
        else if (m.act == ACT_SILU)
            store_gated<BN, ACT_SILU>(m, c, item, row0, acc, lane);
        else if (m.act == ACT_GELU_TANH)
            store_gated<BN, ACT_GELU_TANH>(m, c, item, row0, acc, lane);
        else
            store_gated<BN, ACT_CLAMPED_SWIGLU>(m, c, item, row0, acc, lane);
    }
}

// Grid: what is resident at once, at most a block per tile.
template <uint32_t TYPE, int BN>
static __global__ void __launch_bounds__(n_warp(BN) * WARP, items_per_sm(BN))
    expert_hopper_kernel(const __grid_constant__ struct expert_gemm m,
                         const __grid_constant__ struct item_tiles c)
{
    if constexpr (HAVE_HOPPER)
        multiply_items<TYPE, BN>(m, c);
}

// ---- launcher

bool expert_act_is_fused(enum activation act)
{
    return act == ACT_SILU || act == ACT_GELU_TANH || act == ACT_CLAMPED_SWIGLU;
}

uint32_t expert_hopper_width(uint32_t n_expert, uint32_t n_pair)
{
    // Wide tiles widen a weight for more columns, but what an expert's columns leave empty is lost.
    const uint32_t mean = n_pair / n_expert;
    return mean <= 24 ? 32 : mean <= 96 ? 64 : 128;
}

template <int BN>
static bool launch_items(const struct queue *q, const struct expert_gemm *m, struct error *err)
{
    struct gemm g = {};
    g.w[0] = m->w[0];
    g.w[1] = m->w[1];
    g.w[0].scale = 1.0f; // see product_scale
    g.n_part = m->gated ? 2 : 1;
    struct item_tiles c = {};
    c.n_row_tile = div_up(m->w[0].rows, n_warp(BN) * WARP_ROWS / (m->gated ? 2 : 1));
    c.n_step = div_up(m->w[0].n_cols, (uint32_t)GEMM_PACK_COLS);
    c.w = gemm_widening(&g, 0, g.n_part);
    const uint64_t at_most = (uint64_t)m->n_slot * c.n_row_tile;
    struct launch l = {.name = "expert_hopper",
                       .grid =
                           dim3((uint32_t)lesser(at_most, (uint64_t)q->n_sm * items_per_sm(BN))),
                       .block = dim3(n_warp(BN) * WARP),
                       .smem = (size_t)n_stage(BN) * BN * 128 + SWIZZLE_ALIGN,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32)
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        else
            return launch_kernel(err, l, expert_hopper_kernel<T, BN>, *m, c);
    });
}

bool expert_hopper_launch(const struct queue *q, const struct expert_gemm *m, struct error *err)
{
    return m->per_item == 32   ? launch_items<32>(q, m, err)
           : m->per_item == 64 ? launch_items<64>(q, m, err)
                               : launch_items<128>(q, m, err);
}
