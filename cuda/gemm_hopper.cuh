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
// A block has four warps more where that is faster (has_bringers), which bring what the others
// multiply (gemm_bring.cuh): activations, and weights as they are, several steps ahead, which is
// more than registers have room for. So those that multiply wait for nothing but barriers in shared
// memory, and have the registers that the others give up.
//
// A row is cut into chunks, however many columns there are; the sums of a chunk are kept apart and
// added as row_cut says: so a column has the same bits in any company, and whoever
// multiplies it. TOTALS: chunks are those of gemm_few.cu, whose bits these products have (its
// halves of weights, its places of elements within 16), and what is added up has registers of its
// own, or a place in shared memory where bringing warps leave too few. Else they are so long that
// it may wait in memory meanwhile; tiles of 128 columns have registers for it all the same.
//
// Each block does as many whole tiles as all can have; the chunks of those that are left are shared
// out evenly (after "stream-K", Osama et al. 2023), and come first, unless the meeting takes longer
// than it saves: then some blocks have a whole tile more. A tile that several blocks share is added
// up by the last of them to finish. Rows of a single chunk have nothing to add up: there a block
// goes on with what the one before it has done of a tile, from its sums, and so with the same bits.
// It does so in the end, and the one before has done that first.
#ifndef HOKKU_CUDA_GEMM_HOPPER_CUH
#define HOKKU_CUDA_GEMM_HOPPER_CUH

#include "gemm_bring.cuh"
#include "gemm_sums.cuh"

// A half of a strip as operands of the tensor cores: rows i = 0, 1 of a lane.
template <uint32_t TYPE>
static __device__ __forceinline__ void widen_rows(const strip<TYPE> s[2],
                                                  const struct half_scales scales[2], uint32_t half,
                                                  const struct widening &c, uint32_t a[4][4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t q[8] = {}, even[4], odd[4]; // places 2 t and up, 2 t + 8 and up of each 16
        codes_of<TYPE>(s[i], q);
        widen_pairs<TYPE>(s[i], q, scales[i], half, c, even, odd);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            a[k][i] = even[k];
            a[k][2 + i] = odd[k];
        }
    }
}

// Whether what a tile's chunks add up to waits in shared memory, each thread's own.
template <uint32_t TYPE, int BN, bool TOTALS>
static constexpr bool TOTALS_WAIT = has_bringers<TYPE>(BN, TOTALS) && BN < 128 && TOTALS;

template <uint32_t TYPE, int BN, bool TOTALS>
using gemm_room = bring_room<TYPE, BN, has_bringers<TYPE>(BN, TOTALS),
                             has_bringers<TYPE>(BN, TOTALS) && brings_weights<TYPE>(BN),
                             TOTALS_WAIT<TYPE, BN, TOTALS> ? BLOCK_ROWS * BN * 4 : 0>;

// What the warps that multiply do. Where a block has no bringers thread 0 brings activations.
template <uint32_t TYPE, int BN, bool TOTALS>
static __device__ __forceinline__ void
multiply(const struct gemm &g, const struct cut &c, const struct share &of, uint8_t *stages,
         const uint8_t *raw, gemm_room<TYPE, BN, TOTALS> &room)
{
    using ROOM = gemm_room<TYPE, BN, TOTALS>;
    // Operands: one is widened while the other is multiplied. Where a multiprocessor has more than
    // eight warps there is one: while a warp waits for its product others work.
    constexpr int N_A = BN <= 64 ? 1 : 2;
    constexpr bool AT_ONCE = ROOM::BROUGHT && N_A == 1; // a half is done before the next begins
    constexpr uint32_t N = strip<TYPE>::N;
    constexpr bool WAIT = TOTALS_WAIT<TYPE, BN, TOTALS>, EARLY = ROOM::RAW && TAKES_EARLY<TYPE>;
    constexpr bool NEAR = (TOTALS && !WAIT) || BN == 128; // registers for what is added up
    constexpr int TEAM = ROOM::BROUGHT ? N_THREAD : 0;    // who meets where sums are shared
    __shared__ struct feeder<BN> shared_feed; // of thread 0, and where registers are short
    struct feeder<BN> own_feed;
    struct feeder<BN> &feed = BN == 64 ? shared_feed : own_feed;
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    const uint32_t r = lane / 4, t = lane % 4;
    if (!ROOM::BROUGHT && threadIdx.x == 0)
        feed.open(g);

    const uint64_t tile_b = wgmma_tile(stages);
    const uint32_t n_chunk = g.w[0].n_chunk, n_step = of.n_step;
    struct ring<ROOM::N_STAGE> stage;
    [[maybe_unused]] struct ring<ROOM::N_RAW> slot;
    bool first = true;
    const auto columns_of = [&](uint32_t tile) {
        return (int)(g.n - c.col_tiles.rest(tile, c.n_col_tile) * BN);
    };
    for (uint32_t done = 0; done < n_step;) {
        const struct span at = span_at(c, of, done);
        const uint32_t tile = at.tile, step0 = at.step0, step1 = at.step1;
        const bool chained = !TOTALS && c.per_block > 0;
        const bool whole = chained || step1 - step0 == c.row.n_step;
        const auto keep_sums = [&](uint32_t i, const float *sums) {
            keep<BN, TOTALS>(slot_of<BN, TOTALS>(g, block_number<BN, TOTALS>(c), i),
                             columns_of(tile), sums);
        };
        struct tile_row row[2];
        if constexpr (!ROOM::RAW) {
            const struct rows16 rows = locate(g, c, c.col_tiles.divide(tile), warp);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
                row[i] = row_of<TYPE>(g, rows, i, r);
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
        // The same of the next step, from where it was brought.
        const auto take = [&] {
            if constexpr (ROOM::RAW)
                take_step<TYPE>(room, slot, raw, warp, lane, s);
        };
        float acc[BN / 2];
        [[maybe_unused]] float total[NEAR ? BN / 2 : 1]; // of the chunks before
        [[maybe_unused]] float *const kept =             // the same, every N_THREAD-th
            reinterpret_cast<float *>(stages + ROOM::KEPT_AT) + threadIdx.x;
        float *const sums = NEAR ? total : acc;
        uint32_t a[N_A][4][4];
        bool add = false; // to what acc has
        // to the end of a chunk, where more follow
        uint32_t in_chunk = min(c.row.chunk, c.row.n_step - step0);
        uint32_t n_kept = 0; // slots for others' tiles
        if constexpr (NEAR || WAIT)
#pragma unroll
            for (int i = 0; i < BN / 2; i++)
                (NEAR ? total[i] : kept[i * N_THREAD]) = 0.0f;
        if constexpr (ROOM::RAW)
            take();
        else
            request(step0, 0, N);
        if (first) { // weights depend on no other kernel; everything else does
            if (!ROOM::BROUGHT && BN != 64)
                __syncthreads();
            griddep_wait();
            if (!ROOM::BROUGHT && threadIdx.x == 0)
#pragma unroll 1
                for (uint32_t i = 0; i < ROOM::N_STAGE && i < 2 * n_step; i++)
                    feed.start(g, c, of, stages + i * ROOM::STAGE, &room.full[i]);
            __syncwarp();
        }
        first = false;
        bool begun = chained && step0 > 0; // by the block before
        bool owes = false;                 // the half before has not been given back
#pragma unroll 1
        for (uint32_t step = step0; step < step1; step++, done++) {
            if (begun) { // (before the loop ptxas would take it for a use of what is under way)
                wgmma_wait<0>();
                go_on_from<BN>(g, columns_of(tile), acc);
                begun = false, add = true;
            }
            struct half_scales scales[2];
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                if (EARLY)
                    mbar_wait(&room.full[stage.at()], stage.parity());
                if (half == 0)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        scales[i] = scales_of<TYPE>(s[i], c.w);
                widen_rows<TYPE>(s, scales, half, c.w, a[half % N_A]);
                if (N > 1) // after the last step for nothing
                    request(step + 1, half * N / 2, (half + 1) * N / 2);
                else if (!ROOM::RAW && half == 1)
                    request(step + 1, 0, 1);
                const bool takes = ROOM::RAW && half == 1 && step + 1 < step1;
                if (!EARLY)
                    mbar_wait(&room.full[stage.at()], stage.parity());
                else if (takes)
                    take();
                wgmma_begin();
                const uint64_t b = wgmma_tile_at(tile_b, stage.at() * ROOM::STAGE);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    wgmma_f16<BN>(acc, a[half % N_A][k], wgmma_tile_at(b, (uint32_t)k * 32),
                                  add || half > 0 || k > 0);
                wgmma_commit();
                if (!EARLY && takes)
                    take();
                // what came before this half is done, or it is: its place may be filled again
                wgmma_wait<N_A - 1>();
                if (lane == 0 && (AT_ONCE || owes))
                    mbar_arrive(&room.empty[AT_ONCE ? stage.at() : stage.back(1).at()]);
                owes = true;
                if constexpr (!ROOM::BROUGHT) {
                    // not that place, which other warps may still read: the one before
                    const auto free = stage.back(2);
                    // (of.n_step: n_step would take a register more)
                    if (warp == 0 && stage.n > 1 && free.n + ROOM::N_STAGE < 2 * of.n_step) {
                        mbar_wait(&room.empty[free.at()], free.parity()); // all lanes: see uniform
                        if (lane == 0)
                            feed.start(g, c, of, stages + free.at() * ROOM::STAGE,
                                       &room.full[free.at()]);
                    }
                }
                __syncwarp();
                stage.next();
            }
            add = true;
            if (chained || --in_chunk > 0)
                continue;
            wgmma_wait<0>();
            wgmma_settle<BN / 2>(acc);
            const struct run run = run_at<TOTALS>(c, step0, step);
            if (step0 > 0 && (!run.own || run.begins))
                n_kept++;
            if (!run.own) { // another block has the chunks before
                keep_sums(n_kept, acc);
            } else if constexpr (WAIT) {
#pragma unroll
                for (int i = 0; i < BN / 2; i++)
                    acc[i] = kept[i * N_THREAD] + acc[i];
                if (step + 1 < step1)
#pragma unroll
                    for (int i = 0; i < BN / 2; i++)
                        kept[i * N_THREAD] = acc[i];
            } else if constexpr (NEAR) {
#pragma unroll
                for (int i = 0; i < BN / 2; i++)
                    total[i] += acc[i];
                if (run.ends && step + 1 < step1) { // the first of a tile's two
                    keep_sums(WHOLE_SLOT<TOTALS>, total);
#pragma unroll
                    for (int i = 0; i < BN / 2; i++)
                        total[i] = 0.0f;
                }
            } else {
                float4 *const total =
                    slot_of<BN, TOTALS>(g, block_number<BN, TOTALS>(c),
                                        whole ? WHOLE_SLOT<TOTALS> + run.second : n_kept);
                const bool here = whole && step + 1 == step1; // what comes next needs it
                if (!here && !run.begins)
                    keep_more<BN, TOTALS>(total, columns_of(tile), acc);
                else if (!here)
                    keep<BN, TOTALS>(total, columns_of(tile), acc);
            }
            in_chunk = min(c.row.chunk, c.row.n_step - step - 1);
            add = false;
        }
        wgmma_wait<0>();
        wgmma_settle<BN / 2>(acc);
        if (lane == 0 && !AT_ONCE)
            mbar_arrive(&room.empty[stage.back(1).at()]);
        if (chained && step1 < c.row.n_step) {
            hand_on<BN>(g, columns_of(tile), acc);
            continue;
        }
        if constexpr (NEAR)
            if (chained)
#pragma unroll
                for (int i = 0; i < BN / 2; i++)
                    total[i] = acc[i];
        struct sharers by = {};
        if (!whole) {
            by = sharers_of(c, tile);
            if constexpr (NEAR || WAIT) {
                const struct run run = run_at<TOTALS>(c, step0, step1 - 1);
                if (run.own)
                    keep_sums(n_kept, sums);
            }
            if (!last_to_arrive<TEAM>(&g.counters[by.block0], by.n_part + 1))
                continue;
        }
        const struct rows16 to = locate(g, c, c.col_tiles.divide(tile), warp);
        const uint32_t col0 = c.col_tiles.rest(tile, c.n_col_tile) * BN;
        constexpr bool AHEAD = BN == 32; // as registers allow
        struct rows_out<BN> out;
        if (AHEAD && g.mode != MATVEC_GATED)
            out.open(g, to, col0, lane);
        if (!whole) {
            gather<BN, TOTALS>(g, c, tile, by, sums);
        } else if (!TOTALS && !chained) {
            const struct run run = run_at<TOTALS>(c, 0, step1 - 1);
            const uint32_t n = NEAR || run.begins ? run.second : 1 + run.second; // wait in memory
#pragma unroll 1
            for (uint32_t i = n; i-- > 0;)
                fetch_more<BN, TOTALS>(
                    slot_of<BN, TOTALS>(g, block_number<BN, TOTALS>(c), WHOLE_SLOT<TOTALS> + i),
                    columns_of(tile), sums);
        }
        if (!AHEAD && g.mode != MATVEC_GATED)
            out.open(g, to, col0, lane);
        if (g.mode == MATVEC_GATED)
            store_gated<BN>(g, c, to, col0, sums, lane);
        else
            out.store(g, c, sums, lane);
    }
}

template <uint32_t TYPE> static constexpr __host__ __device__ int block_threads(int bn, bool totals)
{
    return N_THREAD + (has_bringers<TYPE>(bn, totals) ? N_BRING * WARP : 0);
}

// Grid: what is resident at once, at most a block per unit.
template <uint32_t TYPE, int BN, bool TOTALS>
static __global__ void __launch_bounds__(block_threads<TYPE>(BN, TOTALS), blocks_per_sm(BN))
    gemm_hopper_kernel(const __grid_constant__ struct gemm g, const __grid_constant__ struct cut c)
{
    if constexpr (HAVE_HOPPER) {
        using ROOM = gemm_room<TYPE, BN, TOTALS>;
        __shared__ ROOM room;
        __shared__ struct share shared_of; // where registers are short
        uint8_t *stages = dynamic_smem<uint8_t>();
        stages += -(uintptr_t)stages % SWIZZLE_ALIGN;
        uint8_t *raw = stages + ROOM::N_STAGE * ROOM::STAGE;
        const struct share own_of = share_of<BN, TOTALS>(c);
        if (threadIdx.x == 0) {
            room.init();
            if (BN == 64)
                shared_of = own_of;
        }
        if (ROOM::BROUGHT || BN == 64)
            __syncthreads();
        griddep_launch_dependents();
        const struct share &of = BN == 64 ? shared_of : own_of;
        if constexpr (ROOM::BROUGHT) {
            constexpr int BRING = BN >= 128               ? (ROOM::RAW ? 88 : 56)
                                  : raw_step<TYPE>::H > 0 ? 64
                                                          : 48;
            if (threadIdx.x >= N_THREAD) {
                fewer_registers<BRING>();
                bring<TYPE, BN>(g, c, of, threadIdx.x / WARP - N_WARP, stages, raw, room);
                return;
            }
            more_registers<registers_left(BN, BRING)>();
        }
        multiply<TYPE, BN, TOTALS>(g, c, of, stages, raw, room);
    }
}

// ---- launcher

// Sums of a tile that blocks share must be added up, which takes about so long.
enum { MEET_STEPS = 3 };

// How tiles are dealt out to blocks.
struct deal {
    uint32_t n_block, n_whole, n_left, n_sharer;
    uint32_t most_units; // of the shared ones, of a block
    uint32_t n_step;     // how long it takes, in steps of a tile
    uint32_t n_late;     // so many of them after a neighbour of the multiprocessor has ended
    bool chained;
};

// Handing a tile on takes about so long, both ends together.
#ifdef HOKKU_CUDA_ON_CPU // so that short rows do
enum { CHAIN_STEPS = 0 };
#else
enum { CHAIN_STEPS = 4 };
#endif

// As many whole tiles as all can have; shared: those that are left chunk by chunk, else one each.
// Between two chunks sums go to memory, for some steps.
static inline struct deal deal_out(uint32_t n_tile, const struct row_cut &row, uint32_t between,
                                   uint32_t most, bool shared)
{
    const uint32_t whole = row.n_step + (row.n_chunk - 1) * between; // steps of a tile
    const uint32_t n_part = shared ? row.n_chunk : 1;
    struct deal d = {};
    d.n_block = lesser(most, n_tile * n_part);
    d.n_whole = n_tile / d.n_block;
    d.n_left = n_tile % d.n_block;
    d.n_sharer = lesser(d.n_block, d.n_left * n_part);
    d.most_units = d.n_left > 0 ? div_up(d.n_left * row.n_chunk, d.n_sharer) : 0;
    d.n_step = d.n_whole * whole;
    if (d.n_left > 0)
        d.n_step += shared ? d.most_units * (row.chunk + between) + MEET_STEPS : whole;
    return d;
}

// Of gemm_hopper.cu: in turns, of which the last leaves blocks without work, where that is sooner.
static inline struct deal deal_sooner(uint32_t n_tile, const struct row_cut &row, int bn,
                                      uint32_t most)
{
    const uint32_t between = bn == 256 ? 3 : bn == 128 ? 0 : 1; // as measured
    const struct deal each = deal_out(n_tile, row, between, most, false);
    if (row.n_chunk == 1) {
        struct deal chain = {};
        chain.n_block = most;
        chain.chained = true;
        chain.n_step = div_up(n_tile * row.n_step, most) + CHAIN_STEPS;
        // of less than a tile each: then one would wait for the other
        return n_tile >= most && chain.n_step < each.n_step ? chain : each;
    }
    struct deal shared = deal_out(n_tile, row, between, most, true);
    // there is room, and no block begins both of a tile's sums for others to finish
    if (shared.n_step < each.n_step &&
        shared.most_units <= lesser((uint32_t)GEMM_KEPT, row.n_first)) {
        const uint32_t units = shared.n_left * row.n_chunk;
        if (bn == 64) {
            const uint32_t of_two = div_up(2 * units, shared.n_sharer);
            shared.n_late = (2 * shared.most_units - of_two) * (row.chunk + between);
        } else { // no more blocks than it takes: shares begin where tiles do, or their second sums
            shared.n_sharer = div_up(units, shared.most_units);
        }
        if (shared.n_whole == 0)
            shared.n_block = shared.n_sharer;
        return shared;
    }
    return each;
}

template <int BN, bool TOTALS>
static bool launch_tiles(const struct queue *q, const struct gemm *g, struct cut *c,
                         struct error *err)
{
    c->n_col_tile = div_up(g->n, (uint32_t)BN);
    const uint32_t n_tile = c->n_row_tile * c->n_col_tile;
    const uint32_t most = (uint32_t)(q->n_sm * blocks_per_sm(BN));
    const struct deal d =
        TOTALS ? deal_out(n_tile, c->row, 0, most, true) : deal_sooner(n_tile, c->row, BN, most);
    c->n_whole = d.n_whole;
    c->n_shared = d.n_left * c->row.n_chunk; // times a block's number far below 2^32
    c->n_sharer = d.n_left > 0 ? d.n_sharer : 1;
    c->per_block = d.chained ? n_tile * c->row.n_step / d.n_block : 0;
    c->n_longer = n_tile * c->row.n_step % d.n_block;
    c->sharers = divisor_of(c->n_sharer);
    c->units = divisor_of(c->n_shared > 0 ? c->n_shared : 1);
    c->chunks = divisor_of(c->row.n_chunk);
    c->steps = divisor_of(c->row.n_step);
    // A chain's blocks wait for the one before, which has come before.
    c->n_twice = d.chained || d.n_block < (uint32_t)q->n_sm ? 0 : d.n_block - (uint32_t)q->n_sm;
    c->n_sm = d.chained ? d.n_block : (uint32_t)q->n_sm;
    c->col_tiles = divisor_of(c->n_col_tile);
    struct launch l = {.name = TOTALS ? "gemm_wide" : "gemm_hopper",
                       .grid = dim3(d.n_block),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(g->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32)
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        else {
            l.block = dim3(block_threads<T>(BN, TOTALS));
            l.smem = gemm_room<T, BN, TOTALS>::BYTES;
            return launch_kernel(err, l, gemm_hopper_kernel<T, BN, TOTALS>, *g, *c);
        }
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
    c.n_row_tile = c.first_row_tile[g->n_part];
    c.w = gemm_widening(g, 0, g->n_part);
    return c;
}

#endif
