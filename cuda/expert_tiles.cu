// Several rows times matrices of quantised weights, by the integer matrix units: a warp multiplies
// 16 rows of weights with up to 32 rows of activations. Both are signed bytes (act32: two of them),
// so that the sums over 32 weights are exact; what scales belong to them follows. Weights are
// unpacked once per warp, into shared memory, from where the units take them; those of the next two
// groups are under way while one is multiplied.
//
// Gate and up at once: a warp has a tile of each, so that a lane has both factors of an output, and
// a block has the 32 outputs that are quantised together for the matrix that follows.
#include "activation.cuh"
#include "experts.h"
#include "quant.cuh"

enum {
    N_WARP = 4,
    M = 16,                      // rows of weights of a warp: two tiles
    GROUP = 4,                   // chunks at a time
    A_STRIDE = GROUP * 32 + 16,  // bytes: eight rows begin in different banks,
    B_STRIDE = GROUP * 80 + 16,  // and so do eight of activations
    PIECES = sizeof(act32) / 16, // of 16 bytes in a record
};

// ---- kernel

// What a chunk's integer sums are multiplied with, of one row.
struct row_scale {
    float scale[2], minimum[2];
};

// Groups that are under way while one is multiplied. Of few rows there are few blocks, and more
// would do good; but of types that take more registers (measured: Q4_K and Q6_K) fewer warps are at
// work then.
template <uint32_t TYPE, int COLS>
static constexpr int AHEAD = TYPE == QUANT_MXFP4 &&COLS == 8 ? 4 : 2;

// COLS: rows of activations at most.
template <uint32_t TYPE, int COLS> struct tile_memory {
    alignas(16) uint8_t a[N_WARP][M * A_STRIDE];
    struct row_scale scales[N_WARP][GROUP][M];
    union {
        alignas(16) uint8_t b[AHEAD<TYPE, COLS> + 1][COLS * B_STRIDE]; // and the one in use
        float gated[COLS][N_WARP * TILE_ROWS + 4];                     // in the end
    };
    uint32_t row[COLS]; // of activations
};

// This lane's chunk of both tiles, unpacked.
template <uint32_t TYPE>
static __device__ __forceinline__ void put_chunk(const chunk<TYPE> &k, uint8_t *a,
                                                 struct row_scale *s)
{
    uint32_t w[8];
    unpack_chunk<TYPE>(k, w);
    chunk_scales<TYPE>(k, s->scale, s->minimum);
    uint4 *to = reinterpret_cast<uint4 *>(a);
    to[0] = make_uint4(w[0], w[1], w[2], w[3]);
    to[1] = make_uint4(w[4], w[5], w[6], w[7]);
}

// Sums of tiles of two matrices, or of two tiles of one. For few, and registers are few, too.
template <int N>
static __device__ __forceinline__ void scale_sums(const struct wmat &a, const struct wmat &b,
                                                  uint32_t expert, float (&acc)[N][4])
{
    const float scale[2] = {product_scale(a, expert), product_scale(b, expert)};
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[n][e] *= scale[e / 2];
}

// act(gate) * up, all in a lane: of row g of the warp's tile gate is acc[n][0] and [1], up [2] and
// [3].
template <int COLS>
static __device__ __forceinline__ void
finish_gated(const struct expert_rows &m, const struct expert_item &item,
             const float (&acc)[COLS / 8][4], float (&out)[COLS][N_WARP * TILE_ROWS + 4])
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t in_block = warp * TILE_ROWS + lane / 4, rows = m.w[0].rows;
    const uint32_t row = blockIdx.x * N_WARP * TILE_ROWS + in_block;
    float bias[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (m.bias[i] && row < rows)
            bias[i] = m.bias[i][(size_t)item.expert * rows + row];
    __syncthreads(); // everyone is done with b
#pragma unroll
    for (uint32_t n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const uint32_t col = n * 8 + 2 * (lane % 4) + e, place = item.first + col;
            if (col >= item.n)
                continue;
            const float f = m.weight ? m.weight[m.pair_at[place]] : 1.0f;
            const float v =
                gated(m.act, m.xielu, fmaf(f, acc[n][e], bias[0]), fmaf(f, acc[n][e + 2], bias[1]));
            if (m.out32)
                out[col][in_block] = v;
            else if (row < rows)
                m.y[0][(size_t)place * rows + row] = v;
        }
    if (!m.out32)
        return;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < COLS * 4; i += N_WARP * WARP) { // four lanes a record
        const uint32_t col = i / 4;
        const bool valid = col < item.n;
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = valid ? out[col][i % 4 * 8 + e] : 0.0f;
        act32 *to = static_cast<act32 *>(m.out32) +
                    (valid ? (size_t)(item.first + col) * (rows / 32) + blockIdx.x : 0);
        quantize_act<true>(v, to, valid);
    }
}

// Of a matrix: one of gate and one of up, else two that are neighbours.
static __host__ __device__ __forceinline__ uint32_t tiles_of_warp(const struct expert_rows &m)
{
    return m.gated ? 1 : 2;
}

// Grid (ceil(tiles / (tiles_of_warp N_WARP)), items, parts, of which gate and up are one).
template <uint32_t TYPE, int COLS>
static __global__ void __launch_bounds__(N_WARP *WARP)
    expert_tiles_kernel(const __grid_constant__ struct expert_rows m)
{
    using T = quant_traits<TYPE>;
    constexpr int TILES = COLS / 8;
    __shared__ struct tile_memory<TYPE, COLS> s;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, part = blockIdx.z;
    const uint32_t g = lane / 4, t = lane % 4; // of the matrix units' operands
    const uint32_t r = lane % TILE_ROWS, c0 = lane / TILE_ROWS;
    const struct wmat &w = m.w[part];
    const uint32_t n_chunk = w.n_chunk, tile0 = (blockIdx.x * N_WARP + warp) * tiles_of_warp(m);
    griddep_launch_dependents();
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    const uint32_t first = blockIdx.y * m.per_item;
    const struct expert_item item =
        m.items ? m.items[blockIdx.y] : expert_item{0, first, min(m.n_row - first, m.per_item)};
    if (item.n == 0)
        return;

    if (threadIdx.x < item.n) {
        const uint32_t place = item.first + threadIdx.x;
        s.row[threadIdx.x] = m.pair_at ? m.pair_at[place] / m.n_used : place;
    }
    __syncthreads();
    // records of activations: a thread asks for the same pieces of each group
    const act32 *act = static_cast<const act32 *>(m.act32);
    auto request = [&](uint32_t base, uint8_t *b) {
        for (uint32_t i = threadIdx.x; base < n_chunk && i < item.n * GROUP * PIECES;
             i += N_WARP * WARP) {
            const uint32_t col = i / (GROUP * PIECES), rest = i % (GROUP * PIECES);
            const uint32_t c = base + rest / PIECES;
            const uint8_t *from = reinterpret_cast<const uint8_t *>(
                act + (size_t)s.row[col] * n_chunk + min(c, n_chunk - 1));
            cp_async16_or_zero(b + col * B_STRIDE + rest * 16, from + rest % PIECES * 16,
                               c < n_chunk);
        }
        cp_async_commit(); // of none, too: one for each group
    };
    struct tile_row rows[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) { // where there is no tile the last one serves
        const struct wmat &of = m.gated ? m.w[i] : w;
        const uint32_t tile = min(m.gated ? tile0 : tile0 + i, w.n_tile - 1);
        rows[i] = tile_begin<TYPE>(of, item.expert * w.n_tile + tile, r);
        tile_move<TYPE>(rows[i], 0, c0);
    }
    uint32_t ahead = c0; // the chunk that is asked for next
    auto load = [&](chunk<TYPE>(&k)[2]) {
        if (ahead >= n_chunk)
            return;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_chunk<TYPE>(rows[i], 0, k[i]);
            tile_move<TYPE>(rows[i], ahead, ahead + GROUP);
        }
        ahead += GROUP;
    };
    chunk<TYPE> next[AHEAD<TYPE, COLS>][2]; // of this group and the next ones
#pragma unroll
    for (int i = 0; i < AHEAD<TYPE, COLS>; i++) {
        load(next[i]);
        request(i * GROUP, s.b[i]);
    }

    float acc[TILES][4] = {};
    uint32_t turn = 0; // of b
    auto multiply = [&](uint32_t base, chunk<TYPE>(&k)[2]) {
#pragma unroll
        for (int i = 0; i < 2; i++) // chunks beyond the row are not looked at
            if (base + c0 < n_chunk)
                put_chunk<TYPE>(k[i], s.a[warp] + (i * TILE_ROWS + r) * A_STRIDE + c0 * 32,
                                &s.scales[warp][c0][i * TILE_ROWS + r]);
        cp_async_wait<AHEAD<TYPE, COLS> - 1>();
        __syncthreads(); // and everyone is done with what of b was read last
        load(k);
        request(base + AHEAD<TYPE, COLS> * GROUP,
                s.b[(turn + AHEAD<TYPE, COLS>) % (AHEAD<TYPE, COLS> + 1)]);
        const uint32_t n_here = min(n_chunk - base, (uint32_t)GROUP);
#pragma unroll 1
        for (uint32_t j = 0; j < n_here; j++) {
            uint32_t a[4];
            ldmatrix_x4(a, s.a[warp] + (lane / 8 % 2 * 8 + lane % 8) * A_STRIDE + j * 32 +
                               lane / 16 * 16);
            const struct row_scale low = s.scales[warp][j][g], high = s.scales[warp][j][g + 8];
#pragma unroll
            for (uint32_t n = 0; n < TILES; n++) {
                if (n * 8 >= item.n)
                    break;
                const uint8_t *b = s.b[turn] + n * 8 * B_STRIDE + j * sizeof(act32);
                const uint32_t *mine = reinterpret_cast<const uint32_t *>(b + g * B_STRIDE);
                const uint32_t hi[2] = {mine[t], mine[4 + t]};
                const uint32_t lo[2] = {mine[8 + t], mine[12 + t]};
                constexpr int SUMS = T::HALVES ? 2 : 1;
                int32_t h[SUMS][4] = {}, l[SUMS][4] = {};
                if constexpr (T::HALVES) { // half of the chunk at a time
                    const uint32_t a0[4] = {a[0], a[1], 0, 0}, a1[4] = {0, 0, a[2], a[3]};
                    mma_s8(h[0], a0, hi);
                    mma_s8(l[0], a0, lo);
                    mma_s8(h[1], a1, hi);
                    mma_s8(l[1], a1, lo);
                } else {
                    mma_s8(h[0], a, hi);
                    mma_s8(l[0], a, lo);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) { // row g + 8 (e / 2), column 2 t + e % 2
                    const act32 *x =
                        reinterpret_cast<const act32 *>(b + (2 * t + e % 2) * B_STRIDE);
                    const struct row_scale &k = e < 2 ? low : high;
                    float y = k.scale[0] * (float)(h[0][e] * 256 + l[0][e]);
                    if constexpr (T::HALVES)
                        y += k.scale[1] * (float)(h[1][e] * 256 + l[1][e]);
                    acc[n][e] = fmaf(y, x->scale, acc[n][e]);
                    if constexpr (T::MIN) {
                        if constexpr (T::HALVES)
                            acc[n][e] -= k.minimum[0] * x->sum[0] + k.minimum[1] * x->sum[1];
                        else
                            acc[n][e] -= k.minimum[0] * (x->sum[0] + x->sum[1]);
                    }
                }
            }
        }
        __syncwarp(); // the warp is done with its weights
        turn = (turn + 1) % (AHEAD<TYPE, COLS> + 1);
    };
#pragma unroll 1
    for (uint32_t base = 0; base < n_chunk; base += AHEAD<TYPE, COLS> * GROUP) {
#pragma unroll
        for (int i = 0; i < AHEAD<TYPE, COLS>; i++)
            if (base + i * GROUP < n_chunk)
                multiply(base + i * GROUP, next[i]);
    }
    cp_async_wait<0>();
    if (m.scaled)
        scale_sums(m.w[m.gated ? 0 : part], m.w[m.gated ? 1 : part], item.expert, acc);
    if (m.gated) {
        finish_gated<COLS>(m, item, acc, s.gated);
        return;
    }

    const float *bias = m.bias[part];
#pragma unroll
    for (uint32_t n = 0; n < TILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t row = tile0 * TILE_ROWS + e / 2 * 8 + g, col = n * 8 + 2 * t + e % 2;
            if (row >= w.rows || col >= item.n)
                continue;
            const uint32_t place = item.first + col;
            const float add = bias ? bias[(size_t)item.expert * w.rows + row] : 0.0f;
            const float f = m.weight ? m.weight[m.pair_at[place]] : 1.0f;
            m.y[part][(size_t)place * w.rows + row] = fmaf(f, acc[n][e], add);
        }
}

// ---- launcher

bool expert_tiles_launch(const struct queue *q, const struct expert_rows *rows, struct error *err)
{
    if (rows->per_item > EXPERT_ITEM)
        return error_set(err, ERR_FAIL, "CUDA: items of %u rows of an expert, at most %u",
                         rows->per_item, (uint32_t)EXPERT_ITEM);
    struct expert_rows own = *rows;
    const struct expert_rows *m = &own;
    for (uint32_t i = 0; i < m->n_part; i++)
        own.scaled |= m->w[i].scales || m->w[i].scale != 1.0f;
    struct launch l = {.name = "expert_tiles",
                       .grid = dim3(div_up(m->w[0].n_tile, tiles_of_warp(*m) * N_WARP), m->n_item,
                                    m->gated ? 1 : m->n_part),
                       .block = dim3(N_WARP * WARP),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        if constexpr (is_plain(TYPE))
            return error_set(err, ERR_FAIL, "CUDA: plain weights are no matter of expert_tiles");
        else
            return m->per_item <= 8 ? launch_kernel(err, l, expert_tiles_kernel<TYPE, 8>, *m)
                   : m->per_item <= 16
                       ? launch_kernel(err, l, expert_tiles_kernel<TYPE, 16>, *m)
                       : launch_kernel(err, l, expert_tiles_kernel<TYPE, EXPERT_ITEM>, *m);
    });
}
