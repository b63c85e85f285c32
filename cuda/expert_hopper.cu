// Several rows times the matrices of chosen experts on compute capability 9.0: gemm_hopper.cuh,
// where a tile is some rows of one expert's matrix and the columns that chose it. Which tiles there
// are is known in device memory alone (grouping); a block takes every so many-th of them, and the
// row tiles of an item follow each other, so that its columns stay in L2. A block does the whole of
// a tile: a column's sums are the same whatever else is in its chunk.
//
// The activations lie by place, as expert_pack_launch puts them: the columns of an item are one
// piece of memory for each half step. They are brought by four warps of a block for the eight that
// multiply, and so are weights, as they are, but those that are not quantised: across the ends of
// tiles. What a warp that multiplies executes is what the widths of few columns wait for.
#include "expert_items.cuh"
#include "gemm_hopper.cuh"

template <uint32_t TYPE, int BN>
using item_room = bring_room<TYPE, BN, true, raw_step<TYPE>::PIECES>;

// How a launch is cut up.
struct item_tiles {
    uint32_t n_row_tile, n_step;
    struct divisor row_tiles, steps;
    struct widening w;
};

// ---- kernel (functions that are no templates are unused before 9.0)

// As locate of gemm_hopper.cuh: rows g and g + 8 of a warp, or row g of gate and up.
[[maybe_unused]] static __device__ __forceinline__ struct rows16
rows_at(const struct expert_gemm &m, uint32_t row_tile, uint32_t warp)
{
    const uint32_t at = row_tile * N_WARP + warp;
    return m.gated ? rows16{{0, 1}, {at, at}} : rows16{{0, 0}, {2 * at, 2 * at + 1}};
}

// Tiles that a block does: every so many-th from its own number on.
struct item_share {
    uint32_t n_tile, n_step; // of all blocks; of its own tiles
};

[[maybe_unused]] static __device__ __forceinline__ struct item_share
items_of(const struct expert_gemm &m, const struct item_tiles &c)
{
    const uint32_t n_item = m.items ? *m.n_item : div_up(m.n_place, m.per_item);
    struct item_share of = {n_item * c.n_row_tile, 0};
    if (blockIdx.x < of.n_tile)
        of.n_step = ((of.n_tile - 1 - blockIdx.x) / gridDim.x + 1) * c.n_step;
    return of;
}

// Where a tile is: the rows of an item.
struct item_tile {
    struct expert_item item;
    uint32_t row_tile;
};

[[maybe_unused]] static __device__ __forceinline__ struct item_tile
tile_of(const struct expert_gemm &m, const struct item_tiles &c, uint32_t tile)
{
    const uint32_t i = c.row_tiles.divide(tile);
    return {item_at(m, i), tile - i * c.n_row_tile};
}

// Row r of one of a warp's two tiles of eight, i; beyond the matrix another, which nobody stores.
template <uint32_t TYPE>
static __device__ __forceinline__ struct tile_row row_at(const struct expert_gemm &m,
                                                         const struct item_tile &at, uint32_t warp,
                                                         uint32_t i, uint32_t r)
{
    const struct rows16 rows = rows_at(m, at.row_tile, warp);
    const struct wmat &w = m.w[i ? rows.part[1] : rows.part[0]];
    return tile_begin<TYPE>(
        w, at.item.expert * w.n_tile + min(i ? rows.tile[1] : rows.tile[0], w.n_tile - 1), r);
}

// A warp that brings, see bring.
template <uint32_t TYPE, int BN>
static __device__ __forceinline__ void
bring_items(const struct expert_gemm &m, const struct item_tiles &c, const struct item_share &of,
            uint32_t warp, uint8_t *stages, uint8_t *raw, item_room<TYPE, BN> &room)
{
    using ROOM = item_room<TYPE, BN>;
    struct far_feeder activations;
    uint32_t next = blockIdx.x;
    bring_steps<TYPE>(
        room, of.n_step, m.w[0].n_chunk, warp, raw,
        [&](auto &weights, uint32_t) {
            const struct item_tile at = tile_of(m, c, next);
            weights.open(0, threadIdx.x % WARP, [&](uint32_t i) {
                return row_at<TYPE>(m, at, warp + N_BRING * (i / 2), i % 2, 0);
            });
            next += gridDim.x;
            return c.n_step;
        },
        [] {},
        [&](uint32_t h, uint32_t at) {
            activations.start(h, (size_t)m.n_place * HALF, stages + at * ROOM::STAGE,
                              &room.full[at], [&](uint32_t h, struct far_feeder &f) {
                                  const uint32_t k = c.steps.divide(h / 2),
                                                 done = h - 2 * k * c.n_step;
                                  const struct expert_item item =
                                      tile_of(m, c, blockIdx.x + k * gridDim.x).item;
                                  f.next = m.x + ((size_t)done * m.n_place + item.first) * HALF;
                                  f.n_bytes = item.n * HALF * (uint32_t)sizeof(__half);
                                  f.left = (int)(2 * c.n_step - done);
                              });
        });
}

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

// What a lane's sums become, and where: of rows row0 and row0 + 8 of an item's matrix, or of row0
// of gate and up.
template <int BN> struct item_out {
    struct expert_item item;
    uint32_t row0;
    float bias[2], scale[2];
    column_undo<BN> undo;

    // What sums are finished with, asked for.
    __device__ __forceinline__ void open(const struct expert_gemm &m, const struct item_tiles &c,
                                         const struct expert_item &of, uint32_t row, uint32_t lane)
    {
        item = of;
        row0 = row;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t own = m.gated ? row : row + i * TILE_ROWS;
            const struct wmat &w = m.w[m.gated ? i : 0];
            const float *const from = m.bias[m.gated ? i : 0];
            bias[i] = from && own < w.rows ? from[(size_t)item.expert * w.rows + own] : 0.0f;
            scale[i] = c.w.undo * product_scale(w, item.expert);
        }
        undo = item_undo<BN>(m.undo + item.first, item.n, lane);
    }

    // make(i, h, factor): of the column whose factor that is, its sums acc[i] and acc[i + 2], what
    // row h of ROWS gets. Without a branch for each, so that none waits for another.
    template <uint32_t ROWS, typename MAKE>
    __device__ __forceinline__ void store_each(const struct expert_gemm &m, uint32_t lane,
                                               MAKE make) const
    {
        constexpr int AT_ONCE = 4; // eights of columns
        const uint32_t rows = m.w[0].rows, col0 = lane % 4 * 2;
        float *to = m.y + (size_t)(item.first + col0) * rows + row0;
#pragma unroll
        for (int j0 = 0; j0 < BN / 8; j0 += AT_ONCE) {
            if (8 * j0 >= (int)item.n)
                break;
            float v[AT_ONCE * 2 * ROWS];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const float2 f = undo_at<BN>(undo, j0 + j, lane);
#pragma unroll
                for (uint32_t k = 0; k < 2 * ROWS; k++)
                    v[2 * ROWS * j + k] =
                        make(4 * (j0 + j) + (int)(k / ROWS), k % ROWS, k / ROWS ? f.y : f.x);
            }
            wgmma_settle<AT_ONCE * 2 * ROWS>(v);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++, to += 8 * (size_t)rows)
#pragma unroll
                for (uint32_t k = 0; k < 2 * ROWS; k++)
                    if (8 * (j0 + j) + col0 + k / ROWS < item.n &&
                        row0 + k % ROWS * TILE_ROWS < rows)
                        to[(size_t)(k / ROWS) * rows + k % ROWS * TILE_ROWS] = v[2 * ROWS * j + k];
        }
    }

    template <enum activation ACT>
    __device__ __forceinline__ void store_gated(const struct expert_gemm &m,
                                                const float acc[BN / 2], uint32_t lane) const
    {
        store_each<1>(m, lane, [&](int i, uint32_t, float f) {
            return gated(ACT, {}, fmaf(acc[i], f * scale[0], bias[0]),
                         fmaf(acc[i + 2], f * scale[1], bias[1]));
        });
    }

    __device__ __forceinline__ void store(const struct expert_gemm &m, const float acc[BN / 2],
                                          uint32_t lane) const
    {
        store_each<2>(m, lane, [&](int i, uint32_t h, float f) {
            return fmaf(acc[i + 2 * (int)h], f * scale[h], bias[h]);
        });
    }
};

// The four products of a half step, started: of no more columns than a multiple of 32 that has n
// (of tiles of 64 columns, of 16), but of wide tiles of 64 at least, since it takes longer to widen
// the weights for them.
template <int BN, int N = BN>
static __device__ __forceinline__ void multiply_half(float *acc, const uint32_t a[4][4], uint64_t b,
                                                     bool add, uint32_t n)
{
    constexpr int LESS = BN == 64 ? 16 : 32;
    if constexpr (N > (BN > 64 ? 64 : 32))
        if (n <= N - LESS)
            return multiply_half<BN, N - LESS>(acc, a, b, add, n);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_f16<N>(acc, a[k], wgmma_tile_at(b, (uint32_t)(k * 32)), add || k > 0);
    wgmma_commit();
}

// Of a thread that brings: a plane of high bits takes some.
template <uint32_t TYPE, int BN>
static constexpr int BRING_REGISTERS = BN == 256 && is_plain(TYPE)                      ? 56
                                       : BN >= 128                                      ? 88
                                       : is_plain(TYPE)                                 ? 32
                                       : BN == 32 && raw_step<TYPE>::H == 8 * TILE_ROWS ? 80
                                       : raw_step<TYPE>::H > 0                          ? 64
                                                                                        : 48;

// What the warps that multiply do.
template <uint32_t TYPE, int BN>
static __device__ __forceinline__ void
multiply_items(const struct expert_gemm &m, const struct item_tiles &c, const struct item_share &of,
               uint8_t *stages, const uint8_t *raw, item_room<TYPE, BN> &room)
{
    using ROOM = item_room<TYPE, BN>;
    // See multiply; as registers allow.
    constexpr int N_A = BN == 64 || (BN == 32 && raw_step<TYPE>::H == 8 * TILE_ROWS) ? 1 : 2;
    // (the narrowest and the widest tiles are not faster so)
    constexpr bool EARLY = ROOM::RAW && TAKES_EARLY<TYPE> && (BN == 64 || BN == 128);
    constexpr uint32_t N = strip<TYPE>::N;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane / 4, t = lane % 4, n_chunk = m.w[0].n_chunk;
    [[maybe_unused]] struct tile_row row[2];
    strip<TYPE> s[2];
    [[maybe_unused]] const auto stand_at = [&](uint32_t tile) {
        const struct item_tile at = tile_of(m, c, tile);
#pragma unroll
        for (int i = 0; i < 2; i++)
            row[i] = row_at<TYPE>(m, at, warp, i, r);
    };
    const auto request = [&](uint32_t step, int from, int to) { // see multiply
        const uint32_t at = min((4 * step + t) * N, n_chunk - 1);
#pragma unroll
        for (int j = from; j < to; j++) {
            const uint32_t k = N == 1 ? at : min(at + j, n_chunk - 1);
            load_chunk<TYPE>(row[0], k, s[0].k[j]);
            load_chunk<TYPE>(row[1], k, s[1].k[j]);
        }
    };
    [[maybe_unused]] struct ring<ROOM::N_RAW> slot;
    const auto take = [&] {
        if constexpr (ROOM::RAW)
            take_step<TYPE>(room, slot, raw, warp, lane, s);
    };
    if constexpr (ROOM::RAW) {
        take();
    } else {
        stand_at(blockIdx.x);
        request(0, 0, N);
    }

    const uint64_t tile_b = wgmma_tile(stages);
    // A step's halves are in neighbouring places, found together, where that comes out even.
    constexpr uint32_t PAIR = ROOM::N_STAGE % 2 == 0 ? 2 : 1;
    struct ring<ROOM::N_STAGE / (int)PAIR> stage;
    bool owes = false;         // the half before has not been given back
    uint32_t left = of.n_step; // steps
#pragma unroll 1
    for (uint32_t tile = blockIdx.x; tile < of.n_tile; tile += gridDim.x) {
        const uint32_t n_col = tile_of(m, c, tile).item.n;
        float acc[BN / 2];
        uint32_t a[N_A][4][4];
#pragma unroll 1
        for (uint32_t step = 0; step < c.n_step; step++) {
            struct half_scales scales[2];
            const bool ends = step + 1 == c.n_step;
            left--;
            if (!ROOM::RAW && ends && left > 0)
                stand_at(tile + gridDim.x);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t place = PAIR * stage.at() + half % PAIR;
                if (EARLY)
                    mbar_wait(&room.full[place], stage.parity());
                if (half == 0)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        scales[i] = scales_of<TYPE>(s[i], c.w);
                widen_rows<TYPE>(s, scales, half, c.w, a[half % N_A]);
                if (!ROOM::RAW) // after the last tile for nothing
                    request(ends ? 0 : step + 1, half * N / 2, (half + 1) * N / 2);
                const bool takes = half == 1 && left > 0;
                if (!EARLY)
                    mbar_wait(&room.full[place], stage.parity());
                else if (takes)
                    take();
                const uint64_t b = wgmma_tile_at(tile_b, place * ROOM::STAGE);
                multiply_half<BN>(acc, a[half % N_A], b, step > 0 || half > 0, n_col);
                if (!EARLY && takes)
                    take();
                wgmma_wait<N_A - 1>();
                const uint32_t done = N_A == 1           ? place
                                      : half % PAIR == 1 ? place - 1
                                                         : PAIR * stage.back(1).at() + PAIR - 1;
                if (lane == 0 && (N_A == 1 || owes))
                    mbar_arrive(&room.empty[done]);
                owes = true;
                __syncwarp();
                if (half % PAIR == PAIR - 1)
                    stage.next();
            }
        }
        // while the last products are under way
        const struct item_tile at = tile_of(m, c, tile);
        struct item_out<BN> out;
        out.open(m, c, at.item, rows_at(m, at.row_tile, warp).tile[0] * TILE_ROWS + r, lane);
        wgmma_wait<0>();
        wgmma_settle<BN / 2>(acc);
        if (!m.gated)
            out.store(m, acc, lane);
        else if (m.act == ACT_SILU)
            out.template store_gated<ACT_SILU>(m, acc, lane);
        else if (m.act == ACT_GELU_TANH)
            out.template store_gated<ACT_GELU_TANH>(m, acc, lane);
        else
            out.template store_gated<ACT_CLAMPED_SWIGLU>(m, acc, lane);
    }
}

// Grid: what is resident at once, at most a block per tile.
template <uint32_t TYPE, int BN>
static __global__ void __launch_bounds__(N_THREAD + N_BRING * WARP, blocks_per_sm(BN))
    expert_hopper_kernel(const __grid_constant__ struct expert_gemm m,
                         const __grid_constant__ struct item_tiles c)
{
    if constexpr (HAVE_HOPPER) {
        __shared__ item_room<TYPE, BN> room;
        uint8_t *stages = dynamic_smem<uint8_t>();
        stages += -(uintptr_t)stages % SWIZZLE_ALIGN;
        uint8_t *raw = stages + room.N_STAGE * room.STAGE;
        if (threadIdx.x == 0)
            room.init();
        __syncthreads();
        griddep_launch_dependents();
        griddep_wait();
        const struct item_share of = items_of(m, c);
        if (of.n_step == 0)
            return;
        if (threadIdx.x >= N_THREAD) {
            fewer_registers<BRING_REGISTERS<TYPE, BN>>();
            bring_items<TYPE, BN>(m, c, of, threadIdx.x / WARP - N_WARP, stages, raw, room);
            return;
        }
        more_registers<registers_left(BN, BRING_REGISTERS<TYPE, BN>)>();
        multiply_items<TYPE, BN>(m, c, of, stages, raw, room);
    }
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
    return mean <= 24 ? 32 : mean <= 48 ? 64 : mean <= 96 ? 128 : 256;
}

template <int BN>
static bool launch_items(const struct queue *q, const struct expert_gemm *m, struct error *err)
{
    struct item_tiles c = {};
    c.n_row_tile = div_up(m->w[0].rows, (uint32_t)BLOCK_ROWS / (m->gated ? 2 : 1));
    c.n_step = div_up(m->w[0].n_cols, (uint32_t)GEMM_PACK_COLS);
    c.row_tiles = divisor_of(c.n_row_tile);
    c.steps = divisor_of(c.n_step);
    c.w = expert_widening(m);
    const uint64_t at_most = (uint64_t)m->n_slot * c.n_row_tile;
    struct launch l = {.name = "expert_hopper",
                       .grid =
                           dim3((uint32_t)lesser(at_most, (uint64_t)q->n_sm * blocks_per_sm(BN))),
                       .block = dim3(N_THREAD + N_BRING * WARP),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32)
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        else {
            constexpr int W =
                is_plain(T) && BN == 32 ? 64 : BN; // for which registers would be short
            l.smem = item_room<T, W>::BYTES;
            return launch_kernel(err, l, expert_hopper_kernel<T, W>, *m, c);
        }
    });
}

bool expert_hopper_launch(const struct queue *q, const struct expert_gemm *m, struct error *err)
{
    return m->per_item == 32    ? launch_items<32>(q, m, err)
           : m->per_item == 64  ? launch_items<64>(q, m, err)
           : m->per_item == 128 ? launch_items<128>(q, m, err)
                                : launch_items<256>(q, m, err);
}
