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

// Where no warp brings: half steps of activations on their way to shared memory, what one thread
// starts, in the order in which they are multiplied.
template <int BN> struct feeder {
    const __half *next;
    uint32_t n_col, n_bytes; // columns; bytes of those of the tile
    uint32_t done, left;     // half steps; to the end of the tile, or of what is done of it

    __device__ __forceinline__ void open(const struct gemm &g)
    {
        n_col = gemm_pack_rows(g.n);
        done = left = 0;
    }

    __device__ __forceinline__ void start(const struct gemm &g, const struct cut &c,
                                          const struct share &of, uint8_t *to, uint64_t *full)
    {
        if (left == 0) {
            const struct span at = span_at(c, of, done / 2);
            const uint32_t col = c.col_tiles.rest(at.tile, c.n_col_tile) * BN;
            next = g.x + ((size_t)2 * at.step0 * n_col + col) * HALF;
            n_bytes = lesser(n_col - col, (uint32_t)BN) * 128;
            left = 2 * (at.step1 - at.step0);
        }
        mbar_arrive_expect(full, n_bytes);
        bulk_copy(to, next, n_bytes, full);
        next += (size_t)n_col * HALF;
        done++, left--;
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
    static constexpr bool PIECES = false, USED = false; // nothing to gain: they go to registers
    static constexpr uint32_t BYTES = 0, TILE = 0, H = 0;
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
    static constexpr uint32_t SMALL = D < PIECE ? 8 : PIECE; // a piece of H, S and D
    // Whether pieces begin where they must in every row of tiles.
    static constexpr bool PIECES = D >= SMALL && (S == 0 || S >= SMALL || PER_D % 2 == 0);
    // And whether wide tiles are faster this way: where a step has few bytes, or no plane of high
    // bits (measured with Q4_K and Q8_0; with Q6_K they are not).
    static constexpr bool USED =
        PIECES && SMALL == PIECE && (BYTES <= 10 * 1024 || (H == 0 && BYTES <= 20 * 1024));
};

// Whether blocks have bringing warps: the widest tiles are faster so, whatever the weights, narrow
// ones where these bring the weights, too, and have room for three steps (of Q8_0 there is room for
// two beside TOTALS, and passes of 36 and 64 rows took an eighth longer).
template <uint32_t TYPE> static constexpr __host__ __device__ bool has_bringers(int bn, bool totals)
{
    using R = raw_step<TYPE>;
    return bn == 256 || (bn == 128 ? R::USED : R::PIECES && (!totals || R::BYTES <= 14 * 1024));
}
template <uint32_t TYPE> static constexpr __host__ __device__ bool brings_weights(int bn)
{
    return bn >= 128 ? raw_step<TYPE>::USED : raw_step<TYPE>::PIECES;
}

// Registers of a thread that multiplies, where one that brings has so many: three share those of
// three, 168 each of one block, or 80 each of two.
[[maybe_unused]] static constexpr int registers_left(int bn, int bring)
{
    return (blocks_per_sm(bn) == 1 ? 252 : 120) - bring / 2;
}

// When a warp that multiplies takes its weights of the next step: before it starts the products of
// this one, whose reads of shared memory they would wait behind; but types that take many
// instructions, whose warps wait for those, are faster the other way (measured with MXFP4).
template <uint32_t TYPE> static constexpr bool TAKES_EARLY = !quant_traits<TYPE>::LEVELS;

// Weights on their way: what one warp starts for its tiles, all lanes together.
template <uint32_t TYPE> struct weight_feeder {
    using R = raw_step<TYPE>;
    static constexpr uint32_t Q_ROUNDS = (R::AT_H / R::PIECE + WARP - 1) / WARP;
    static constexpr uint32_t N_SMALL = (R::TILE - R::AT_H) / R::SMALL;
    static constexpr uint32_t ROUNDS = (BRING_TILES * N_SMALL + WARP - 1) / WARP;
    const uint8_t *q[BRING_TILES], *small[ROUNDS];
    uint32_t step; // the next

    // Bytes of the steps before one, in the plane that byte `at` of a tile is of.
    static __device__ __forceinline__ uint32_t small_step(uint32_t at, uint32_t step)
    {
        return at < R::AT_S   ? step * R::CHUNKS * R::H
               : at < R::AT_D ? step * R::CHUNKS * R::S
                              : step * R::CHUNKS / R::PER_D * R::D;
    }
    // How far back those bytes are that stand for a chunk behind the n that there are: the last.
    static __device__ __forceinline__ uint32_t back(uint32_t at, uint32_t chunk_bytes,
                                                    uint32_t piece, uint32_t n)
    {
        const uint32_t unit = chunk_bytes < piece ? piece : chunk_bytes;
        const uint32_t i = at / unit, last = n * chunk_bytes / unit - 1;
        return i > last ? (i - last) * unit : 0;
    }

    // tile(i): where the first row of the i-th begins.
    template <typename F>
    __device__ __forceinline__ void open(uint32_t step0, uint32_t lane, F tile)
    {
        step = step0;
#pragma unroll
        for (uint32_t i = 0; i < BRING_TILES; i++)
            q[i] = tile(i).q + (size_t)step * (R::CHUNKS * R::Q);
#pragma unroll
        for (uint32_t k = 0; k < ROUNDS; k++) {
            const uint32_t i = k * WARP + lane, at = i % N_SMALL * R::SMALL + R::AT_H;
            const struct tile_row row = tile(min(i / N_SMALL, BRING_TILES - 1u));
            const uint8_t *p = at < R::AT_S   ? row.h + (at - R::AT_H)
                               : at < R::AT_D ? row.s + (at - R::AT_S)
                                              : row.d + (at - R::AT_D);
            small[k] = p + small_step(at, step);
        }
    }

    // The next step of rows of n_chunk chunks, to where the tiles lie.
    __device__ __forceinline__ void start(uint32_t n_chunk, uint32_t lane, uint8_t *to)
    {
        const uint32_t n = n_chunk - step * R::CHUNKS;
        if (n >= R::CHUNKS)
            copy<true>(R::CHUNKS, lane, to);
        else
            copy<false>(n, lane, to);
#pragma unroll
        for (uint32_t j = 0; j < BRING_TILES; j++)
            q[j] += R::CHUNKS * R::Q;
#pragma unroll
        for (uint32_t k = 0; k < ROUNDS; k++) {
            const uint32_t at = (k * WARP + lane) % N_SMALL * R::SMALL + R::AT_H;
            small[k] += small_step(at, step + 1) - small_step(at, step);
        }
        step++;
    }

    // n chunks of a step, of which ALL are there.
    template <bool ALL>
    __device__ __forceinline__ void copy(uint32_t n, uint32_t lane, uint8_t *to) const
    {
#pragma unroll
        for (uint32_t j = 0; j < BRING_TILES; j++)
#pragma unroll
            for (uint32_t k = 0; k < Q_ROUNDS; k++) {
                const uint32_t at = (k * WARP + lane) * R::PIECE;
                const uint32_t over = ALL ? 0 : back(at, R::Q, R::PIECE, n);
                if (R::AT_H % (WARP * R::PIECE) == 0 || at < R::AT_H)
                    cp_async16(to + j * R::TILE + at, q[j] + at - over);
            }
#pragma unroll
        for (uint32_t k = 0; k < ROUNDS; k++) {
            const uint32_t i = k * WARP + lane, at = i % N_SMALL * R::SMALL + R::AT_H;
            const uint32_t over = ALL            ? 0
                                  : at < R::AT_S ? back(at - R::AT_H, R::H, R::SMALL, n)
                                  : at < R::AT_D ? back(at - R::AT_S, R::S, R::SMALL, n)
                                  : R::N_D > 1   ? back(at - R::AT_D, R::D, R::SMALL, n)
                                                 : 0;
            uint8_t *const place = to + i / N_SMALL * R::TILE + at;
            if (i < BRING_TILES * N_SMALL) {
                if constexpr (R::SMALL == R::PIECE)
                    cp_async16(place, small[k] - over);
                else
                    cp_async8(place, small[k] - over);
            }
        }
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

// Shared memory of a block, and the barriers that tell what is there. BROUGHT: it has bringing
// warps; RAW: which bring weights, too. N_KEPT: bytes behind all that, for other use.
template <uint32_t TYPE, int BN, bool HAS_BRINGERS, bool BRINGS_WEIGHTS, int N_KEPT = 0>
struct bring_room {
    static constexpr bool BROUGHT = HAS_BRINGERS, RAW = BRINGS_WEIGHTS;
    enum : int {
        // without what is static, or the system's
        ALL = 228 * 1024 / blocks_per_sm(BN) - 3 * 1024 - N_KEPT,
        STAGE = BN * 128, // bytes of half a step of activations
        N_STAGE = RAW && BN == 256  ? 5
                  : RAW && BN == 64 ? (N_KEPT > 0 ? 4 : 6)
                                    : n_stage(BN),
        LEFT = ALL - SWIZZLE_ALIGN - N_STAGE * STAGE,
        FITS = RAW ? LEFT / (int)raw_step<TYPE>::BYTES : 1,
        N_RAW = FITS < 6 ? FITS : 6,
        KEPT_AT = N_STAGE * STAGE + (RAW ? N_RAW * (int)raw_step<TYPE>::BYTES : 0),
        BYTES = SWIZZLE_ALIGN + KEPT_AT + N_KEPT,
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

// Half steps of activations on their way: every N_BRING-th of a block's, from any on.
struct far_feeder {
    const __half *next;
    uint32_t n_bytes;
    int left = 0; // half steps to the end of the tile

    // Half step h of the block; open(h, *this) stands at it. n_half: elements from one to the next.
    template <typename OPEN>
    __device__ __forceinline__ void start(uint32_t h, size_t n_half, uint8_t *to, uint64_t *full,
                                          OPEN open)
    {
        if (left <= 0)
            open(h, *this);
        mbar_arrive_expect(full, n_bytes);
        bulk_copy(to, next, n_bytes, full);
        next += N_BRING * n_half;
        left -= N_BRING;
    }
};

// What a bringing warp does for n_step steps of the block: its tiles' weights of each, all lanes
// together, and every N_BRING-th half step of activations. open_weights(feeder, step) opens the
// tile that a step is of, there, and gives how many steps of it follow; wait() waits for other
// kernels; start_half(h, stage) starts to bring half step h.
template <uint32_t TYPE, typename ROOM, typename OPEN, typename WAIT, typename HALF>
static __device__ __forceinline__ void bring_steps(ROOM &room, uint32_t n_step, uint32_t n_chunk,
                                                   uint32_t warp, uint8_t *raw, OPEN open_weights,
                                                   WAIT wait, HALF start_half)
{
    using R = raw_step<TYPE>;
    const uint32_t lane = threadIdx.x % WARP;
    [[maybe_unused]] std::conditional_t<ROOM::RAW, weight_feeder<TYPE>, int> weights;
    [[maybe_unused]] ring<ROOM::N_RAW> slot;
    [[maybe_unused]] uint32_t n_weights = 0, left = 0; // steps so far; to the end of a tile
    const auto start_weights = [&] {
        if constexpr (ROOM::RAW) {
            if (left == 0)
                left = open_weights(weights, n_weights);
            weights.start(n_chunk, lane,
                          raw + slot.at() * R::BYTES + warp * (BRING_TILES * R::TILE));
            mbar_arrive_after_copies(&room.raw_full[slot.at()]);
            slot.next();
            n_weights++, left--;
        }
    };
    for (uint32_t i = 0; ROOM::RAW && i < ROOM::N_RAW && i < n_step; i++)
        start_weights();
    wait();
    uint32_t half = warp, stage = half % ROOM::N_STAGE, use = half / ROOM::N_STAGE;
#pragma unroll 1
    for (uint32_t step = 0; step < n_step; step++) {
        // what there is room for once the step has been multiplied
        const uint32_t end = 2 * step + ROOM::N_STAGE + 2;
#pragma unroll 1
        for (; lane == 0 && half < 2 * n_step && half < end; half += N_BRING) {
            if (use > 0)
                mbar_wait(&room.empty[stage], (use & 1) ^ 1);
            start_half(half, stage);
            stage += N_BRING;
            if (stage >= ROOM::N_STAGE)
                stage -= ROOM::N_STAGE, use++;
        }
        __syncwarp();
        if (ROOM::RAW && step + ROOM::N_RAW < n_step) {
            mbar_wait(&room.raw_empty[slot.at()], slot.parity() ^ 1);
            start_weights();
        }
    }
}

// Bringing warp 0 .. N_BRING - 1 of a block of gemm_hopper.cuh. Weights depend on no other kernel;
// everything else does.
template <uint32_t TYPE, int BN, typename ROOM>
static __device__ __forceinline__ void bring(const struct gemm &g, const struct cut &c,
                                             const struct share &of, uint32_t warp, uint8_t *stages,
                                             uint8_t *raw, ROOM &room)
{
    struct far_feeder activations;
    const uint32_t n_col = gemm_pack_rows(g.n);
    bring_steps<TYPE>(
        room, of.n_step, g.w[0].n_chunk, warp, raw,
        [&](auto &weights, uint32_t step) {
            const struct span now = span_at(c, of, step);
            const uint32_t row_tile = c.col_tiles.divide(now.tile);
            weights.open(now.step0, threadIdx.x % WARP, [&](uint32_t i) {
                const struct rows16 rows = locate(g, c, row_tile, warp + N_BRING * (i / 2));
                return row_of<TYPE>(g, rows, i % 2, 0);
            });
            return now.step1 - now.step0;
        },
        [] { griddep_wait(); },
        [&](uint32_t h, uint32_t at) {
            activations.start(h, (size_t)n_col * HALF, stages + at * ROOM::STAGE, &room.full[at],
                              [&](uint32_t h, struct far_feeder &f) {
                                  const struct span now = span_at(c, of, h / 2);
                                  const uint32_t col =
                                      c.col_tiles.rest(now.tile, c.n_col_tile) * BN;
                                  f.next =
                                      g.x + ((size_t)(2 * now.step0 + h % 2) * n_col + col) * HALF;
                                  f.n_bytes = lesser(n_col - col, (uint32_t)BN) * 128;
                                  f.left = (int)(2 * (now.step1 - now.step0) - h % 2);
                              });
        });
}

// What a lane of a warp that multiplies takes of a step that has been brought: its strips of two
// rows.
template <uint32_t TYPE, typename ROOM>
static __device__ __forceinline__ void take_step(ROOM &room, ring<ROOM::N_RAW> &slot,
                                                 const uint8_t *raw, uint32_t warp, uint32_t lane,
                                                 strip<TYPE> s[2])
{
    using R = raw_step<TYPE>;
    const uint32_t first = warp % N_BRING * BRING_TILES + warp / N_BRING * 2;
    const uint8_t *from = raw + slot.at() * R::BYTES + first * R::TILE;
    mbar_wait(&room.raw_full[slot.at()], slot.parity());
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        load_chunk<TYPE, true>(raw_row<TYPE>(from + i * R::TILE, lane / 4), lane % 4, s[i].k[0]);
    mbar_arrive(&room.raw_empty[slot.at()]);
    slot.next();
}

#endif
