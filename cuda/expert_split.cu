// Rows times one matrix of floats by matrix instructions (split.cuh): the router of a prompt, and
// of passes, whatever number of rows.
//
// A warp has 32 rows of x and 32 of the matrix, and every so many steps of 16 elements: eight warps
// share a block's rows in four parts and steps in two, or, where that makes too few blocks, steps
// alone. Slices come by asynchronous copies, weights from before the kernel's predecessor has
// ended.
#include "experts.h"
#include "quant.cuh"
#include "split.cuh"

enum {
    WARPS = 8,
    THREADS = WARPS * WARP,
    SIDE = 32,  // rows, and rows of the matrix, of a warp
    STEP = 16,  // elements of a matrix instruction
    STAGES = 4, // slices under way
    FEW_ROWS = 32,
};

template <bool WIDE> struct split_shape {
    static constexpr uint32_t PARTS = WIDE ? 2 : 1; // of rows, and of those of the matrix
    static constexpr uint32_t GROUPS = WARPS / PARTS / PARTS;
    static constexpr uint32_t ROWS = PARTS * SIDE, TILES = ROWS / TILE_ROWS;
    static constexpr uint32_t COLS = WIDE ? 64 : 128, CHUNKS = COLS / 4; // of a slice
    static constexpr uint32_t LD = COLS + 8; // floats: four rows are in different banks
    static_assert(COLS % (STEP * GROUPS) == 0, "a step for each");
};

template <typename S> struct split_slice {
    uint4 w[S::TILES][S::CHUNKS][TILE_ROWS];
    float x[S::ROWS][S::LD];
};

// Adds a step's products of a warp.
template <typename S>
static __device__ __forceinline__ void add_step(const split_slice<S> &s, uint32_t x0,
                                                uint32_t tile0, uint32_t step,
                                                float (&sum)[2][SIDE / TILE_ROWS][4])
{
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    struct left a[2];
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const float2 v = *reinterpret_cast<const float2 *>(
                &s.x[x0 + m * 16 + i % 2 * 8 + g][step * STEP + i / 2 * 8 + 2 * t]);
            const two_parts p = parts_of(v.x, v.y);
            a[m].high[i] = p.high;
            a[m].low[i] = p.low;
        }
#pragma unroll
    for (uint32_t j = 0; j < SIDE / TILE_ROWS; j += 2) { // two tiles
        uint32_t high[4], low[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const float2 v = reinterpret_cast<const float2 *>(
                &s.w[tile0 + j + i / 2][step * (STEP / 4) + i % 2 * 2 + t / 2][g])[t % 2];
            const two_parts p = parts_of(v.x, v.y);
            high[i] = p.high;
            low[i] = p.low;
        }
#pragma unroll
        for (uint32_t m = 0; m < 2; m++)
            multiply(sum[m][j], sum[m][j + 1], a[m], high, low);
    }
}

// Grid (ceil(tiles / TILES), ceil(n_row / ROWS), parts). Dynamic shared memory: STAGES slices.
template <bool WIDE>
static __global__ void __launch_bounds__(THREADS, 1)
    expert_split_kernel(const __grid_constant__ struct expert_rows m)
{
    using S = split_shape<WIDE>;
    split_slice<S> *const stages = dynamic_smem<split_slice<S>>();
    const uint32_t warp = threadIdx.x / WARP, group = warp / (S::PARTS * S::PARTS);
    const uint32_t x0 = warp / S::PARTS % S::PARTS * SIDE;
    const uint32_t tile0 = warp % S::PARTS * (SIDE / TILE_ROWS);
    const struct wmat &w = m.w[blockIdx.z];
    const uint32_t ld = act_f32_ld(w.n_cols), n_slice = div_up(w.n_chunk, S::CHUNKS);
    const uint4 *const weights = reinterpret_cast<const uint4 *>(w.q);
    auto request_w = [&](uint32_t k) {
        for (uint32_t i = threadIdx.x; i < S::TILES * S::CHUNKS * TILE_ROWS; i += THREADS) {
            const uint32_t r = i % TILE_ROWS, c = k * S::CHUNKS + i / TILE_ROWS % S::CHUNKS;
            const uint32_t t = i / TILE_ROWS / S::CHUNKS, tile = blockIdx.x * S::TILES + t;
            const bool there = c < w.n_chunk && tile < w.n_tile;
            cp_async16_or_zero(
                &stages[k % STAGES].w[t][c % S::CHUNKS][r],
                weights + (there ? ((size_t)tile * w.n_chunk + c) * TILE_ROWS + r : 0), there);
        }
    };
    auto request_x = [&](uint32_t k) {
        for (uint32_t i = threadIdx.x; i < S::ROWS * S::CHUNKS; i += THREADS) {
            const uint32_t c = k * S::CHUNKS + i % S::CHUNKS, row = i / S::CHUNKS;
            const uint32_t place = min(blockIdx.y * S::ROWS + row, m.n_row - 1);
            const bool there = c < w.n_chunk;
            cp_async16_or_zero(&stages[k % STAGES].x[row][i % S::CHUNKS * 4],
                               static_cast<const float *>(m.act_f32) + (size_t)place * ld +
                                   (there ? c * 4 : 0),
                               there);
        }
    };
    griddep_launch_dependents();
#pragma unroll 1
    for (uint32_t k = 0; k < STAGES - 1; k++)
        request_w(k);
    griddep_wait();
    if (m.skip && *m.skip) {
        cp_async_commit();
        cp_async_wait<0>();
        return;
    }
#pragma unroll 1
    for (uint32_t k = 0; k < STAGES - 1; k++) {
        request_x(k);
        cp_async_commit();
    }
    float sum[2][SIDE / TILE_ROWS][4] = {};
#pragma unroll 1
    for (uint32_t k = 0; k < n_slice; k++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); // all have the slice, and are done with the one before
        request_w(k + STAGES - 1);
        request_x(k + STAGES - 1);
        cp_async_commit();
#pragma unroll
        for (uint32_t i = 0; i < S::COLS / STEP / S::GROUPS; i++)
            add_step<S>(stages[k % STAGES], x0, tile0, i * S::GROUPS + group, sum);
    }
    cp_async_wait<0>();
    __syncthreads();
    // (GROUPS, ROWS of x, ROWS of the matrix)
    constexpr uint32_t N = S::ROWS * S::ROWS;
    float *const sums = dynamic_smem<float>();
    static_assert(sizeof(float) * S::GROUPS * N <= STAGES * sizeof(split_slice<S>), "they fit");
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t j = 0; j < SIDE / TILE_ROWS; j++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                sums[group * N + (x0 + i * 16 + e / 2 * 8 + lane / 4) * S::ROWS +
                     (tile0 + j) * TILE_ROWS + lane % 4 * 2 + e % 2] = sum[i][j][e];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < N; i += THREADS) {
        const uint32_t place = blockIdx.y * S::ROWS + i / S::ROWS;
        const uint32_t row = blockIdx.x * S::ROWS + i % S::ROWS;
        if (place >= m.n_row || row >= w.rows)
            continue;
        float all = sums[i];
#pragma unroll
        for (uint32_t j = 1; j < S::GROUPS; j++)
            all += sums[j * N + i];
        m.y[blockIdx.z][(size_t)place * w.rows + row] =
            fmaf(w.scale, all, m.bias[blockIdx.z] ? m.bias[blockIdx.z][row] : 0.0f);
    }
}

// The same of a few rows, in the order of <false>: eight of them and a tile a block, from
// registers, all of a row's first 2,048 elements under way at once.
static __global__ void __launch_bounds__(THREADS, 1)
    expert_split_few_kernel(const __grid_constant__ struct expert_rows m)
{
    enum { AHEAD = 16 }; // steps of a warp
    constexpr uint32_t GROUPS = split_shape<false>::GROUPS;
    static_assert(GROUPS == WARPS, "a warp's steps are those of a group");
    __shared__ float sums[GROUPS][TILE_ROWS * TILE_ROWS];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t g = lane / 4, t = lane % 4, row0 = blockIdx.y * TILE_ROWS;
    const struct wmat &w = m.w[blockIdx.z];
    const uint32_t n_turn = div_up(w.n_chunk, split_shape<false>::CHUNKS);
    const float2 *const weights = reinterpret_cast<const float2 *>(w.q) +
                                  ((size_t)blockIdx.x * w.n_chunk * TILE_ROWS + g) * 2 + t % 2;
    const float *const x = static_cast<const float *>(m.act_f32) +
                           (size_t)min(row0 + g, m.n_row - 1) * act_f32_ld(w.n_cols) + t % 2 * 2;
    // Chunk k of two of a turn's step that the lane has a half of.
    const auto chunk_of = [&](uint32_t turn, uint32_t k) {
        return (turn * GROUPS + warp) * (STEP / 4) + k * 2 + t / 2;
    };
    float2 v[AHEAD][2], y[AHEAD][2];
    const auto ask_w = [&](uint32_t turn, float2(&to)[2]) {
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t c = chunk_of(turn, k);
            to[k] = make_float2(0.0f, 0.0f);
            if (c < w.n_chunk)
                to[k] = weights[(size_t)c * TILE_ROWS * 2];
        }
    };
    griddep_launch_dependents();
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        ask_w(i, v[i]);
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    float sum[4] = {};
#pragma unroll 1
    for (uint32_t turn = 0; turn < n_turn; turn += AHEAD) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                const uint32_t c = chunk_of(turn + i, k);
                y[i][k] = make_float2(0.0f, 0.0f);
                if (c < w.n_chunk)
                    y[i][k] = *reinterpret_cast<const float2 *>(x + (size_t)c * 4);
            }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            if (turn + i >= n_turn)
                break;
            struct left a = {}; // eight rows of sixteen
            struct right b;
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                const two_parts p = parts_of(y[i][k].x, y[i][k].y);
                const two_parts of = parts_of(v[i][k].x, v[i][k].y);
                a.high[2 * k] = p.high, a.low[2 * k] = p.low;
                b.high[k] = of.high, b.low[k] = of.low;
            }
            multiply(sum, a, b);
            ask_w(turn + i + AHEAD, v[i]);
        }
    }
    *reinterpret_cast<float2 *>(&sums[warp][g * TILE_ROWS + 2 * t]) = make_float2(sum[0], sum[1]);
    __syncthreads();
    const uint32_t i = threadIdx.x, place = row0 + i / TILE_ROWS;
    const uint32_t row = blockIdx.x * TILE_ROWS + i % TILE_ROWS;
    if (i >= TILE_ROWS * TILE_ROWS || place >= m.n_row || row >= w.rows)
        return;
    float all = sums[0][i];
#pragma unroll
    for (uint32_t j = 1; j < GROUPS; j++)
        all += sums[j][i];
    m.y[blockIdx.z][(size_t)place * w.rows + row] =
        fmaf(w.scale, all, m.bias[blockIdx.z] ? m.bias[blockIdx.z][row] : 0.0f);
}

template <bool WIDE>
static struct launch shape_of(const struct queue *q, const struct expert_rows *m)
{
    using S = split_shape<WIDE>;
    struct launch l = {
        .name = "expert_split",
        .grid = dim3(div_up(m->w[0].n_tile, S::TILES), div_up(m->n_row, S::ROWS), m->n_part),
        .block = dim3(THREADS),
        .smem = STAGES * sizeof(split_slice<S>),
        .stream = q->stream,
        .dependent = q->dependent,
        .recorder = q->recorder};
    return l;
}

bool expert_split_takes(const struct queue *q, const struct expert_rows *m)
{
    return m->split && m->w[0].type == QUANT_F32 &&
           (!m->any_bits || m->n_row >= EXPERT_SPLIT_ROWS) &&
           shape_of<true>(q, m).smem <= q->smem_max && shape_of<false>(q, m).smem <= q->smem_max;
}

bool expert_split_launch(const struct queue *q, const struct expert_rows *m, struct error *err)
{
    const struct launch wide = shape_of<true>(q, m);
    struct launch narrow = shape_of<false>(q, m);
    // blocks of a quarter where that leaves more than a third of the multiprocessors with nothing
    if (m->any_bits &&
        3 * (uint64_t)wide.grid.x * wide.grid.y * wide.grid.z >= 2 * (uint32_t)q->n_sm)
        return launch_kernel(err, wide, expert_split_kernel<true>, *m);
    if (m->any_bits || m->n_row > FEW_ROWS)
        return launch_kernel(err, narrow, expert_split_kernel<false>, *m);
    narrow.grid = dim3(m->w[0].n_tile, div_up(m->n_row, (uint32_t)TILE_ROWS), m->n_part);
    narrow.smem = 0;
    return launch_kernel(err, narrow, expert_split_few_kernel, *m);
}
