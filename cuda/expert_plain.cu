// Many rows times one matrix of floats: the router, and shared experts of files without
// quantisation. The sums are those of expert_rows_kernel, bit for bit: four partial sums by the
// number of the chunk, each in the order of the row, then (0 + 1) + (2 + 3).
//
// A block has ROWS rows of x and TILES tiles of the matrix, and each of its four warps has one of
// the partial sums of all of them, 4 by 4 a lane: eight loads of 16 bytes from shared memory for 64
// multiply-adds. (A lane for each sum, as expert_rows_kernel has it, waits for memory at every
// chunk: 830 us a layer for 128 experts and 512 rows.)
//
// Where that leaves most multiprocessors without a block, and each block waits for every slice, a
// block has one tile and eight rows of x: two warps for each partial sum, a lane for each of a
// tile's rows and four of x. Four slices of 128 chunks are under way at once, weights from before
// the kernel's predecessor has ended. (That is 131 KB of floats and 197 KB of halves: of
// multiprocessors that have less, the other kernel serves.)
#include "experts.h"
#include "quant.cuh"

enum {
    ROWS = 16,  // of x, of a block
    TILES = 4,  // of the matrix
    WARPS = 4,  // partial sums
    SLICE = 64, // floats of a row that are in shared memory at a time
    LD = SLICE + 4,
    N_OUT = ROWS * TILES * TILE_ROWS,
    FEW_ROWS = 8,     // of x, where rows are few
    FEW_CHUNKS = 128, // of a row that come at a time
    FEW_STAGES = 4,   // of those under way
};

struct slices {
    float x[ROWS][LD];
    float w[TILES * TILE_ROWS][LD];
};

// What a thread loads of a slice, while the one before it is multiplied.
template <uint32_t TYPE> struct pieces {
    static constexpr int E = chunk_elems(TYPE), CHUNKS = SLICE / E; // of a row's slice
    static constexpr int N_W = TILES * CHUNKS * TILE_ROWS / (WARPS * WARP);
    static constexpr int N_X = ROWS * (SLICE / 4) / (WARPS * WARP);
    chunk<TYPE> w[N_W];
    float4 x[N_X];

    // Chunks [c0, c0 + CHUNKS) of the rows; zeros beyond the last.
    __device__ __forceinline__ void load(const struct expert_rows &m, const struct wmat &mat,
                                         uint32_t c0)
    {
        const uint32_t ld = act_f32_ld(mat.n_cols);
#pragma unroll
        for (int i = 0; i < N_W; i++) {
            const uint32_t at = i * WARPS * WARP + threadIdx.x, r = at % TILE_ROWS;
            const uint32_t c = c0 + at / TILE_ROWS % CHUNKS;
            const uint32_t tile = blockIdx.x * TILES + at / TILE_ROWS / CHUNKS;
            w[i].v = make_uint4(0, 0, 0, 0);
            if (c < mat.n_chunk && tile < mat.n_tile)
                load_chunk<TYPE>(tile_begin<TYPE>(mat, tile, r), c, w[i]);
        }
#pragma unroll
        for (int i = 0; i < N_X; i++) {
            const uint32_t at = i * WARPS * WARP + threadIdx.x, col = at % (SLICE / 4) * 4;
            const uint32_t row = min(blockIdx.y * ROWS + at / (SLICE / 4), m.n_row - 1);
            const float *from = static_cast<const float *>(m.act_f32) + (size_t)row * ld;
            x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (c0 * E + col < mat.n_chunk * E)
                x[i] = *reinterpret_cast<const float4 *>(from + c0 * E + col);
        }
    }

    __device__ __forceinline__ void store(struct slices &s) const
    {
#pragma unroll
        for (int i = 0; i < N_W; i++) {
            const uint32_t at = i * WARPS * WARP + threadIdx.x, r = at % TILE_ROWS;
            const uint32_t c = at / TILE_ROWS % CHUNKS, tile = at / TILE_ROWS / CHUNKS;
            float v[E];
            dequantize_chunk<TYPE>(w[i], v);
#pragma unroll
            for (int e = 0; e < E; e += 4)
                *reinterpret_cast<float4 *>(&s.w[tile * TILE_ROWS + r][c * E + e]) =
                    make_float4(v[e], v[e + 1], v[e + 2], v[e + 3]);
        }
#pragma unroll
        for (int i = 0; i < N_X; i++) {
            const uint32_t at = i * WARPS * WARP + threadIdx.x;
            *reinterpret_cast<float4 *>(&s.x[at / (SLICE / 4)][at % (SLICE / 4) * 4]) = x[i];
        }
    }
};

// Grid (ceil(tiles / TILES), ceil(n_row / ROWS), parts).
template <uint32_t TYPE>
static __global__ void __launch_bounds__(WARPS *WARP)
    expert_plain_kernel(const __grid_constant__ struct expert_rows m)
{
    using P = pieces<TYPE>;
    __shared__ __align__(16) struct slices smem[2];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t part = blockIdx.z, r = lane % TILE_ROWS, i0 = lane / TILE_ROWS;
    const struct wmat &w = m.w[part];
    griddep_launch_dependents();
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    P next;
    next.load(m, w, 0);
    float acc[4][TILES] = {};
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t c0 = 0; c0 < w.n_chunk; c0 += P::CHUNKS, turn ^= 1) {
        struct slices &s = smem[turn];
        next.store(s);
        __syncthreads(); // (and the slice before last is not read any more)
        if (c0 + P::CHUNKS < w.n_chunk)
            next.load(m, w, c0 + P::CHUNKS);
#pragma unroll
        for (int c = 0; c < P::CHUNKS; c += WARPS)
#pragma unroll
            for (int e = 0; e < P::E; e += 4) {
                const uint32_t at = (c + warp) * P::E + e;
                float4 x[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    x[i] = *reinterpret_cast<const float4 *>(&s.x[i0 + 4 * i][at]);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    const float4 v = *reinterpret_cast<const float4 *>(&s.w[t * TILE_ROWS + r][at]);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        acc[i][t] = fmaf(v.x, x[i].x, acc[i][t]);
                        acc[i][t] = fmaf(v.y, x[i].y, acc[i][t]);
                        acc[i][t] = fmaf(v.z, x[i].z, acc[i][t]);
                        acc[i][t] = fmaf(v.w, x[i].w, acc[i][t]);
                    }
                }
            }
    }
    float *sums = &smem[turn].x[0][0]; // (WARPS, ROWS, TILES * TILE_ROWS), where nobody reads
    static_assert(sizeof(float) * WARPS * N_OUT <= sizeof(struct slices), "the sums fit");
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sums[warp * N_OUT + (i0 + 4 * i) * (TILES * TILE_ROWS) + t * TILE_ROWS + r] = acc[i][t];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < N_OUT; i += WARPS * WARP) {
        const uint32_t place = blockIdx.y * ROWS + i / (TILES * TILE_ROWS);
        const uint32_t row = blockIdx.x * TILES * TILE_ROWS + i % (TILES * TILE_ROWS);
        if (place >= m.n_row || row >= w.rows)
            continue;
        const float sum = (sums[i] + sums[N_OUT + i]) + (sums[2 * N_OUT + i] + sums[3 * N_OUT + i]);
        m.y[part][(size_t)place * w.rows + row] =
            fmaf(w.scale, sum, m.bias[part] ? m.bias[part][row] : 0.0f);
    }
}

// What comes at a time: pieces of a tile as they lie in memory, and of rows of x.
template <uint32_t TYPE> struct few_stage {
    static constexpr uint32_t E = chunk_elems(TYPE), X = FEW_CHUNKS * E / 4, LD = 4 * X + 4;
    uint4 w[FEW_CHUNKS * TILE_ROWS];
    float x[FEW_ROWS][LD];
};

// Grid (tiles, ceil(n_row / FEW_ROWS), parts). Dynamic shared memory: FEW_STAGES of few_stage.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(2 * WARPS * WARP)
    expert_plain_few_kernel(const __grid_constant__ struct expert_rows m)
{
    using S = few_stage<TYPE>;
    enum { THREADS = 2 * WARPS * WARP };
    __shared__ float sums[WARPS][FEW_ROWS][TILE_ROWS];
    S *const stages = dynamic_smem<S>();
    const uint32_t lane = threadIdx.x % WARP, part = blockIdx.z, tile = blockIdx.x;
    const uint32_t nth = threadIdx.x / WARP % WARPS; // partial sum
    const uint32_t r = lane % TILE_ROWS;
    const uint32_t i = threadIdx.x / WARP / WARPS * 4 + lane / TILE_ROWS; // row of x
    const struct wmat &w = m.w[part];
    const uint32_t n_chunk = w.n_chunk, ld = act_f32_ld(w.n_cols);
    const uint4 *const from = reinterpret_cast<const uint4 *>(tile_begin<TYPE>(w, tile, 0).q);
    auto request_w = [&](uint32_t c0) {
        S &s = stages[c0 / FEW_CHUNKS % FEW_STAGES];
        for (uint32_t k = threadIdx.x; k < FEW_CHUNKS * TILE_ROWS; k += THREADS)
            if (c0 + k / TILE_ROWS < n_chunk)
                cp_async16(&s.w[k], from + (size_t)c0 * TILE_ROWS + k);
    };
    auto request_x = [&](uint32_t c0) {
        S &s = stages[c0 / FEW_CHUNKS % FEW_STAGES];
        for (uint32_t k = threadIdx.x; k < FEW_ROWS * S::X; k += THREADS) {
            const uint32_t col = k % S::X * 4, row = k / S::X;
            const uint32_t place = min(blockIdx.y * FEW_ROWS + row, m.n_row - 1);
            if (c0 * S::E + col < n_chunk * S::E)
                cp_async16(&s.x[row][col], static_cast<const float *>(m.act_f32) +
                                               (size_t)place * ld + c0 * S::E + col);
        }
        cp_async_commit(); // what there is none of, too: one for each slice
    };
    griddep_launch_dependents();
#pragma unroll 1
    for (uint32_t k = 0; k < FEW_STAGES; k++)
        request_w(k * FEW_CHUNKS);
    griddep_wait();
    if (m.skip && *m.skip) {
        cp_async_commit();
        cp_async_wait<0>();
        return;
    }
#pragma unroll 1
    for (uint32_t k = 0; k < FEW_STAGES; k++)
        request_x(k * FEW_CHUNKS);
    float acc = 0.0f;
#pragma unroll 1
    for (uint32_t c0 = 0; c0 < n_chunk; c0 += FEW_CHUNKS) {
        cp_async_wait<FEW_STAGES - 1>();
        __syncthreads();
        const S &s = stages[c0 / FEW_CHUNKS % FEW_STAGES];
        const uint32_t n_here = min(n_chunk - c0, (uint32_t)FEW_CHUNKS);
#pragma unroll 8
        for (uint32_t c = nth; c < n_here; c += WARPS) {
            float v[S::E];
            dequantize_chunk<TYPE>({s.w[c * TILE_ROWS + r]}, v);
#pragma unroll
            for (uint32_t e = 0; e < S::E; e += 4) {
                const float4 x = *reinterpret_cast<const float4 *>(&s.x[i][c * S::E + e]);
                acc = fmaf(v[e], x.x, acc);
                acc = fmaf(v[e + 1], x.y, acc);
                acc = fmaf(v[e + 2], x.z, acc);
                acc = fmaf(v[e + 3], x.w, acc);
            }
        }
        __syncthreads();
        request_w(c0 + FEW_STAGES * FEW_CHUNKS);
        request_x(c0 + FEW_STAGES * FEW_CHUNKS);
    }
    cp_async_wait<0>();
    sums[nth][i][r] = acc;
    __syncthreads();
    if (threadIdx.x >= FEW_ROWS * TILE_ROWS)
        return;
    const uint32_t k = threadIdx.x / TILE_ROWS, place = blockIdx.y * FEW_ROWS + k;
    const uint32_t nth_row = threadIdx.x % TILE_ROWS, row = tile * TILE_ROWS + nth_row;
    if (place >= m.n_row || row >= w.rows)
        return;
    const float sum =
        (sums[0][k][nth_row] + sums[1][k][nth_row]) + (sums[2][k][nth_row] + sums[3][k][nth_row]);
    m.y[part][(size_t)place * w.rows + row] =
        fmaf(w.scale, sum, m.bias[part] ? m.bias[part][row] : 0.0f);
}

bool expert_plain_launch(const struct queue *q, const struct expert_rows *m, struct error *err)
{
    struct launch l = {.name = "expert_plain",
                       .grid = dim3(div_up(m->w[0].n_tile, (uint32_t)TILES),
                                    div_up(m->n_row, (uint32_t)ROWS), m->n_part),
                       .block = dim3(WARPS * WARP),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        if constexpr (is_plain(TYPE)) {
            constexpr size_t FEW_SMEM = FEW_STAGES * sizeof(few_stage<TYPE>);
            if ((uint64_t)l.grid.x * l.grid.y * l.grid.z >= (uint32_t)q->n_sm ||
                FEW_SMEM + 2048 > q->smem_max) // there is static shared memory, too
                return launch_kernel(err, l, expert_plain_kernel<TYPE>, *m);
            l.grid = dim3(m->w[0].n_tile, div_up(m->n_row, (uint32_t)FEW_ROWS), m->n_part);
            l.block = dim3(2 * WARPS * WARP);
            l.smem = FEW_SMEM;
            return launch_kernel(err, l, expert_plain_few_kernel<TYPE>, *m);
        } else {
            return error_set(err, ERR_FAIL,
                             "CUDA: quantised weights are no matter of expert_plain");
        }
    });
}
