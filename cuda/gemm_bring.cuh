// What the products of gemm_hopper.cuh are made of on its way to shared memory: activations by bulk
// copies, half a step each, and of wide tiles weights as they are, a step each.
#ifndef HOKKU_CUDA_GEMM_BRING_CUH
#define HOKKU_CUDA_GEMM_BRING_CUH

#include "gemm_cut.cuh"

// Copies of activations under way or in use: the more, the later one may come.
static constexpr __host__ __device__ int n_stage(int bn)
{
    return bn == 256 ? 6 : 8;
}

static constexpr __host__ __device__ int blocks_per_sm(int bn)
{
    return bn <= 64 ? 2 : 1;
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

// ---- wide tiles: four more warps bring everything, for the eight that multiply

enum {
    N_BRING = 4,
    BRING_TILES = 2 * N_WARP / N_BRING, // tiles of eight rows that each of them brings
};

// What lies in shared memory of the weights of a step: the planes of each tile of eight rows one
// behind the other.
template <uint32_t TYPE, bool PLAIN = is_plain(TYPE)> struct raw_step {
    static constexpr bool USED = false; // there is nothing to gain: they go to registers
    static constexpr uint32_t BYTES = 0;
};

template <uint32_t TYPE> struct raw_step<TYPE, false> {
    using T = quant_traits<TYPE>;
    static constexpr uint32_t CHUNKS = GEMM_PACK_COLS / 32, PIECE = 16;
    // bytes of a chunk in each plane, D: of PER_D chunks
    static constexpr uint32_t Q = TILE_ROWS * q_bytes<TYPE>(), H = TILE_ROWS * T::H;
    static constexpr uint32_t S = TILE_ROWS * T::S, D = TILE_ROWS * T::D, PER_D = T::D_CHUNKS;
    static constexpr uint32_t N_D = PER_D > CHUNKS ? 1 : CHUNKS / PER_D;
    static constexpr uint32_t AT_H = CHUNKS * Q, AT_S = AT_H + CHUNKS * H;
    static constexpr uint32_t AT_D = AT_S + CHUNKS * S, TILE = AT_D + N_D * D;
    static constexpr uint32_t BYTES = 2 * N_WARP * TILE;
    // Whether pieces begin where they must in every row of tiles, and there are so few bytes that
    // they come faster this way (measured with Q4_K; Q6_K and Q8_0 do not).
    static constexpr bool USED =
        D >= PIECE && (S == 0 || S >= PIECE || PER_D % 2 == 0) && BYTES <= 10 * 1024;
};

// The widest tiles are faster so, whatever the weights.
template <uint32_t TYPE> static constexpr __host__ __device__ bool has_bringers(int bn)
{
    return bn == 256 || (bn == 128 && raw_step<TYPE>::USED);
}

// Weights on their way: what one warp starts for its tiles, all lanes together.
template <uint32_t TYPE> struct weight_feeder {
    using R = raw_step<TYPE>;
    static constexpr uint32_t Q_ROUNDS = (R::AT_H / R::PIECE + WARP - 1) / WARP;
    static constexpr uint32_t N_SMALL = (R::TILE - R::AT_H) / R::PIECE; // pieces of H, S and D
    static constexpr uint32_t ROUNDS = (BRING_TILES * N_SMALL + WARP - 1) / WARP;
    const uint8_t *q[BRING_TILES], *small[ROUNDS];
    uint32_t next = 0, step, left = 0; // of the block's steps; within the tile; to its end

    // Bytes of the steps before one, in the plane that byte `at` of a tile is of.
    static __device__ __forceinline__ uint32_t small_step(uint32_t at, uint32_t step)
    {
        return at < R::AT_S   ? step * R::CHUNKS * R::H
               : at < R::AT_D ? step * R::CHUNKS * R::S
                              : step * R::CHUNKS / R::PER_D * R::D;
    }
    // How far back those bytes are that stand for a chunk behind the n that there are: the last.
    static __device__ __forceinline__ uint32_t back(uint32_t at, uint32_t chunk_bytes, uint32_t n)
    {
        const uint32_t unit = chunk_bytes < R::PIECE ? R::PIECE : chunk_bytes;
        const uint32_t i = at / unit, last = n * chunk_bytes / unit - 1;
        return i > last ? (i - last) * unit : 0;
    }

    __device__ __forceinline__ void open_tile(const struct gemm &g, const struct cut &c,
                                              const struct share &of, uint32_t warp, uint32_t lane)
    {
        const struct span now = span_at(c, of, next);
        const uint32_t row_tile = c.col_tiles.divide(now.tile);
        step = now.step0;
        left = now.step1 - now.step0;
        const auto tile = [&](uint32_t i) { // the warp's i-th
            return row_of<TYPE>(g, locate(g, c, row_tile, warp + N_BRING * (i / 2)), i % 2, 0);
        };
#pragma unroll
        for (uint32_t i = 0; i < BRING_TILES; i++)
            q[i] = tile(i).q + (size_t)step * (R::CHUNKS * R::Q);
#pragma unroll
        for (uint32_t k = 0; k < ROUNDS; k++) {
            const uint32_t i = k * WARP + lane, at = i % N_SMALL * R::PIECE + R::AT_H;
            const struct tile_row row = tile(min(i / N_SMALL, BRING_TILES - 1u));
            const uint8_t *p = row.d + at - R::AT_D;
            if (at < R::AT_D)
                p = row.s + at - R::AT_S;
            if (at < R::AT_S)
                p = row.h + at - R::AT_H;
            small[k] = p + small_step(at, step);
        }
    }

    // The next step, to where the warp's tiles lie. bar: arrives when all has come.
    __device__ __forceinline__ void start(const struct gemm &g, const struct cut &c,
                                          const struct share &of, uint32_t warp, uint32_t lane,
                                          uint8_t *to, uint64_t *bar)
    {
        if (left == 0)
            open_tile(g, c, of, warp, lane);
        const uint32_t n = min(R::CHUNKS, g.w[0].n_chunk - step * R::CHUNKS);
#pragma unroll
        for (uint32_t j = 0; j < BRING_TILES; j++) {
#pragma unroll
            for (uint32_t k = 0; k < Q_ROUNDS; k++) {
                const uint32_t at = (k * WARP + lane) * R::PIECE;
                if (R::AT_H % (WARP * R::PIECE) == 0 || at < R::AT_H)
                    cp_async16(to + j * R::TILE + at, q[j] + at - back(at, R::Q, n));
            }
            q[j] += R::CHUNKS * R::Q;
        }
#pragma unroll
        for (uint32_t k = 0; k < ROUNDS; k++) {
            const uint32_t i = k * WARP + lane, at = i % N_SMALL * R::PIECE + R::AT_H;
            const uint32_t over = at < R::AT_S   ? back(at - R::AT_H, R::H, n)
                                  : at < R::AT_D ? back(at - R::AT_S, R::S, n)
                                  : R::N_D > 1   ? back(at - R::AT_D, R::D, n)
                                                 : 0;
            if (i < BRING_TILES * N_SMALL)
                cp_async16(to + i / N_SMALL * R::TILE + at, small[k] - over);
            small[k] += small_step(at, step + 1) - small_step(at, step);
        }
        mbar_arrive_after_copies(bar);
        next++, step++, left--;
    }
};

// One row of a tile in there.
template <uint32_t TYPE>
static __device__ __forceinline__ struct tile_row raw_row(const uint8_t *tile, uint32_t r)
{
    using R = raw_step<TYPE>;
    using T = quant_traits<TYPE>;
    struct tile_row row = {};
    row.q = tile + r * (T::BITS == 8 ? 16 : q_bytes<TYPE>());
    row.h = tile + R::AT_H + r * T::H;
    row.s = tile + R::AT_S + r * T::S;
    row.d = tile + R::AT_D + r * T::D;
    return row;
}

// A ring of N places in shared memory: which is next, and the parity of its use.
template <int N, bool POWER_OF_TWO = (N & (N - 1)) == 0> struct ring {
    uint32_t n = 0; // uses so far

    __device__ __forceinline__ uint32_t at() const
    {
        return n % N;
    }
    __device__ __forceinline__ uint32_t parity() const
    {
        return n / N % 2;
    }
    __device__ __forceinline__ void next()
    {
        n++;
    }
    // So many uses ago.
    __device__ __forceinline__ ring back(uint32_t k) const
    {
        return {n - k};
    }
};

template <int N> struct ring<N, false> {
    uint32_t place = 0, use = 0;

    __device__ __forceinline__ uint32_t at() const
    {
        return place;
    }
    __device__ __forceinline__ uint32_t parity() const
    {
        return use;
    }
    __device__ __forceinline__ void next()
    {
        if (++place == N)
            place = 0, use ^= 1;
    }
    __device__ __forceinline__ ring back(uint32_t k) const
    {
        return place >= k ? ring{place - k, use} : ring{place + N - k, use ^ 1};
    }
};

// Shared memory of a block, and the barriers that tell what is there.
template <uint32_t TYPE, int BN> struct bring_room {
    static constexpr bool BROUGHT = has_bringers<TYPE>(BN), RAW = BROUGHT && raw_step<TYPE>::USED;
    enum : int {
        ALL = 225 * 1024, // of 227, with what is static
        STAGE = BN * 128, // bytes of half a step of activations
        N_STAGE = BN == 256 && RAW ? 5 : n_stage(BN),
        LEFT = ALL - SWIZZLE_ALIGN - N_STAGE * STAGE,
        FITS = RAW ? LEFT / (int)raw_step<TYPE>::BYTES : 1,
        N_RAW = FITS < 6 ? FITS : 6,
        BYTES = SWIZZLE_ALIGN + N_STAGE * STAGE + (RAW ? N_RAW * (int)raw_step<TYPE>::BYTES : 0),
    };
    static_assert(N_RAW > 0, "room for a step of weights");

    uint64_t full[N_STAGE], empty[N_STAGE], raw_full[N_RAW], raw_empty[N_RAW];

    // By one thread.
    __device__ __forceinline__ void init()
    {
        for (int i = 0; i < N_STAGE; i++) {
            mbar_init(&full[i], 1);
            mbar_init(&empty[i], N_WARP);
        }
        for (int i = 0; RAW && i < N_RAW; i++) {
            mbar_init(&raw_full[i], N_BRING * WARP);
            mbar_init(&raw_empty[i], N_THREAD); // each lane: else racecheck sees a race
        }
        mbar_init_done();
    }
};

// What a bringing warp does, warp 0 .. N_BRING - 1 of them: all steps of the block. Weights depend
// on no other kernel; everything else does.
template <uint32_t TYPE, int BN>
static __device__ __forceinline__ void bring(const struct gemm &g, const struct cut &c,
                                             const struct share &of, uint32_t warp, uint8_t *stages,
                                             uint8_t *raw, bring_room<TYPE, BN> &room)
{
    using ROOM = bring_room<TYPE, BN>;
    using R = raw_step<TYPE>;
    const uint32_t lane = threadIdx.x % WARP, n_half = 2 * of.n_step;
    [[maybe_unused]] std::conditional_t<ROOM::RAW, weight_feeder<TYPE>, int> weights;
    [[maybe_unused]] ring<ROOM::N_RAW> slot;
    const auto start_weights = [&] {
        if constexpr (ROOM::RAW) {
            uint8_t *to = raw + slot.at() * R::BYTES + warp * (BRING_TILES * R::TILE);
            weights.start(g, c, of, warp, lane, to, &room.raw_full[slot.at()]);
            slot.next();
        }
    };
    for (uint32_t i = 0; ROOM::RAW && i < ROOM::N_RAW && i < of.n_step; i++)
        start_weights();
    griddep_wait();
    const bool feeds = warp == 0 && lane == 0;
    struct feeder<BN> activations;
    ring<ROOM::N_STAGE> stage;
    uint32_t n_started = 0;
    const auto start_half = [&] {
        activations.start(stages + stage.at() * ROOM::STAGE, &room.full[stage.at()]);
        stage.next();
        n_started++;
    };
    if (feeds) {
        activations.open(g, c, of);
#pragma unroll 1
        while (n_started < lesser(n_half, (uint32_t)ROOM::N_STAGE))
            start_half();
    }
#pragma unroll 1
    for (uint32_t step = 0; step < of.n_step; step++) {
#pragma unroll 1
        for (int i = 0; feeds && i < 2 && n_started < n_half; i++) {
            mbar_wait(&room.empty[stage.at()], stage.parity() ^ 1);
            start_half();
        }
        __syncwarp();
        if (ROOM::RAW && step + ROOM::N_RAW < of.n_step) {
            mbar_wait(&room.raw_empty[slot.at()], slot.parity() ^ 1);
            start_weights();
        }
    }
}

#endif
