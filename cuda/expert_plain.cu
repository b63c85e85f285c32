// Many rows times one matrix of floats: the router, and shared experts of files without
// quantisation. The sums are those of expert_rows_kernel, bit for bit: four partial sums by the
// number of the chunk, each in the order of the row, then (0 + 1) + (2 + 3).
//
// A warp has one of the partial sums of a block's rows of x and tiles of the matrix. Where rows are
// many a block has 16 of them and four tiles, 4 by 4 a lane: eight loads of 16 bytes from shared
// memory for 64 multiply-adds. Where blocks of eight rows and one tile, a sum a lane, need no more
// than two turns of all multiprocessors, these are faster. Slices of the rows come by asynchronous
// copies, several under way at once, weights from before the kernel's predecessor has ended. (Few
// rows need 131 KB of floats and 197 KB of halves: where there is less, the other shape serves.)
#include "experts.h"
#include "quant.cuh"

enum {
    PARTS = 4,  // partial sums
    STAGES = 4, // slices under way
    FEW_TURNS = 2,
};

template <uint32_t TYPE, bool MANY> struct shape {
    static constexpr uint32_t E = chunk_elems(TYPE);
    static constexpr uint32_t TILES = MANY ? 4 : 1, ROWS = MANY ? 16 : 8; // of a block
    static constexpr uint32_t EACH = MANY ? 4 : 1;                        // of those a lane's
    static constexpr uint32_t THREADS = ROWS / EACH / 4 * PARTS * WARP;
    static constexpr uint32_t CHUNKS = MANY ? 128 / E : 128; // of a row that come at a time
    static constexpr uint32_t X = CHUNKS * E / 4, LD = 4 * X + 4;
    static constexpr uint32_t N_OUT = ROWS * TILES * TILE_ROWS;
};

// What comes at a time: pieces of tiles as they lie in memory, and of rows of x.
template <typename S> struct slice {
    uint4 w[S::TILES][S::CHUNKS][TILE_ROWS];
    float x[S::ROWS][S::LD];
};

// A block's part of the product, and its slices in shared memory.
template <uint32_t TYPE, bool MANY> struct plain_block {
    using S = shape<TYPE, MANY>;
    const struct expert_rows &m;
    const struct wmat &w;
    slice<S> *const stages;

    __device__ __forceinline__ slice<S> &stage(uint32_t c0) const
    {
        return stages[c0 / S::CHUNKS % STAGES];
    }

    __device__ __forceinline__ void request_w(uint32_t c0) const
    {
        for (uint32_t k = threadIdx.x; k < S::TILES * S::CHUNKS * TILE_ROWS; k += S::THREADS) {
            const uint32_t r = k % TILE_ROWS, c = k / TILE_ROWS % S::CHUNKS;
            const uint32_t t = k / TILE_ROWS / S::CHUNKS, tile = blockIdx.x * S::TILES + t;
            if (c0 + c < w.n_chunk && tile < w.n_tile)
                cp_async16(&stage(c0).w[t][c][r],
                           reinterpret_cast<const uint4 *>(tile_begin<TYPE>(w, tile, 0).q) +
                               (size_t)(c0 + c) * TILE_ROWS + r);
        }
    }

    __device__ __forceinline__ void request_x(uint32_t c0) const
    {
        const uint32_t ld = act_f32_ld(w.n_cols);
        for (uint32_t k = threadIdx.x; k < S::ROWS * S::X; k += S::THREADS) {
            const uint32_t col = k % S::X * 4, row = k / S::X;
            const uint32_t place = min(blockIdx.y * S::ROWS + row, m.n_row - 1);
            if (c0 * S::E + col < w.n_chunk * S::E)
                cp_async16(&stage(c0).x[row][col], static_cast<const float *>(m.act_f32) +
                                                       (size_t)place * ld + c0 * S::E + col);
        }
        cp_async_commit(); // what there is none of, too: one for each slice
    }

    // Adds this lane's products of a slice: row r of each tile, rows i0, i0 + 4, ... of x.
    __device__ __forceinline__ void add(uint32_t c0, uint32_t part, uint32_t r, uint32_t i0,
                                        float (&acc)[S::EACH][S::TILES]) const
    {
        const slice<S> &s = stage(c0);
        const uint32_t n_here = min(w.n_chunk - c0, S::CHUNKS);
#pragma unroll(MANY ? 2 : 8)
        for (uint32_t c = part; c < n_here; c += PARTS) {
            float v[S::TILES][S::E];
#pragma unroll
            for (uint32_t t = 0; t < S::TILES; t++)
                dequantize_chunk<TYPE>({s.w[t][c][r]}, v[t]);
#pragma unroll
            for (uint32_t e = 0; e < S::E; e += 4)
#pragma unroll
                for (uint32_t i = 0; i < S::EACH; i++) {
                    const float4 x =
                        *reinterpret_cast<const float4 *>(&s.x[i0 + 4 * i][c * S::E + e]);
#pragma unroll
                    for (uint32_t t = 0; t < S::TILES; t++) {
                        acc[i][t] = fmaf(v[t][e], x.x, acc[i][t]);
                        acc[i][t] = fmaf(v[t][e + 1], x.y, acc[i][t]);
                        acc[i][t] = fmaf(v[t][e + 2], x.z, acc[i][t]);
                        acc[i][t] = fmaf(v[t][e + 3], x.w, acc[i][t]);
                    }
                }
        }
    }
};

// Grid (ceil(tiles / TILES), ceil(n_row / ROWS), parts). Dynamic shared memory: STAGES slices.
template <uint32_t TYPE, bool MANY>
static __global__ void __launch_bounds__(shape<TYPE, MANY>::THREADS)
    expert_plain_kernel(const __grid_constant__ struct expert_rows m)
{
    using S = shape<TYPE, MANY>;
    const uint32_t lane = threadIdx.x % WARP, nth = threadIdx.x / WARP % PARTS;
    const uint32_t r = lane % TILE_ROWS;
    const uint32_t i0 = threadIdx.x / WARP / PARTS * 4 * S::EACH + lane / TILE_ROWS;
    const struct wmat &w = m.w[blockIdx.z];
    const plain_block<TYPE, MANY> b = {m, w, dynamic_smem<slice<S>>()};
    griddep_launch_dependents();
#pragma unroll 1
    for (uint32_t k = 0; k < STAGES; k++)
        b.request_w(k * S::CHUNKS);
    griddep_wait();
    if (m.skip && *m.skip) {
        cp_async_commit();
        cp_async_wait<0>();
        return;
    }
#pragma unroll 1
    for (uint32_t k = 0; k < STAGES; k++)
        b.request_x(k * S::CHUNKS);
    float acc[S::EACH][S::TILES] = {};
#pragma unroll 1
    for (uint32_t c0 = 0; c0 < w.n_chunk; c0 += S::CHUNKS) {
        cp_async_wait<STAGES - 1>();
        __syncthreads();
        b.add(c0, nth, r, i0, acc);
        __syncthreads();
        b.request_w(c0 + STAGES * S::CHUNKS);
        b.request_x(c0 + STAGES * S::CHUNKS);
    }
    cp_async_wait<0>();
    float *const sums = dynamic_smem<float>(); // (PARTS, ROWS, TILES * TILE_ROWS)
    static_assert(sizeof(float) * PARTS * S::N_OUT <= STAGES * sizeof(slice<S>), "they fit");
#pragma unroll
    for (uint32_t i = 0; i < S::EACH; i++)
#pragma unroll
        for (uint32_t t = 0; t < S::TILES; t++)
            sums[nth * S::N_OUT + ((i0 + 4 * i) * S::TILES + t) * TILE_ROWS + r] = acc[i][t];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < S::N_OUT; i += S::THREADS) {
        const uint32_t place = blockIdx.y * S::ROWS + i / (S::TILES * TILE_ROWS);
        const uint32_t row = blockIdx.x * S::TILES * TILE_ROWS + i % (S::TILES * TILE_ROWS);
        if (place >= m.n_row || row >= w.rows)
            continue;
        const float sum =
            (sums[i] + sums[S::N_OUT + i]) + (sums[2 * S::N_OUT + i] + sums[3 * S::N_OUT + i]);
        m.y[blockIdx.z][(size_t)place * w.rows + row] =
            fmaf(w.scale, sum, m.bias[blockIdx.z] ? m.bias[blockIdx.z][row] : 0.0f);
    }
}

template <uint32_t TYPE, bool MANY>
static struct launch launch_of(const struct queue *q, const struct expert_rows *m)
{
    using S = shape<TYPE, MANY>;
    struct launch l = {
        .name = "expert_plain",
        .grid = dim3(div_up(m->w[0].n_tile, S::TILES), div_up(m->n_row, S::ROWS), m->n_part),
        .block = dim3(S::THREADS),
        .smem = STAGES * sizeof(slice<S>),
        .stream = q->stream,
        .dependent = q->dependent,
        .recorder = q->recorder};
    return l;
}

bool expert_plain_launch(const struct queue *q, const struct expert_rows *m, struct error *err)
{
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        if constexpr (is_plain(TYPE)) {
            const struct launch few = launch_of<TYPE, false>(q, m);
            if ((uint64_t)few.grid.x * few.grid.y * few.grid.z <= FEW_TURNS * (uint32_t)q->n_sm &&
                few.smem <= q->smem_max)
                return launch_kernel(err, few, expert_plain_kernel<TYPE, false>, *m);
            return launch_kernel(err, launch_of<TYPE, true>(q, m), expert_plain_kernel<TYPE, true>,
                                 *m);
        } else {
            return error_set(err, ERR_FAIL,
                             "CUDA: quantised weights are no matter of expert_plain");
        }
    });
}
