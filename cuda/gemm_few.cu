// Matrix times few columns, GEMM_FEW at a time, on matrix units that every device has had since
// compute capability 8.0: what a step of several sequences waits for, so everything here serves one
// aim, to keep the memory bus busy with weights.
//
//   - A block takes a range of pairs of tiles, as many as its shared memory has room for sums of at
//     a time, and its warps take turns at their chunks: walks along 16 rows in steps of 128
//     weights, which are widened in registers. Weights are requested a slice of several steps
//     before they are used, also before the kernel's predecessor has ended.
//   - The columns come as the matrix units want them (gemm_few_at), from the first-level cache:
//     all warps of a multiprocessor read the same ones.
//   - A row is cut into chunks as its length says, whose sums are added as row_cut says: what a row
//     and a column give does not depend on who multiplied it, nor on the other columns. As many
//     pairs as give every warp the same number are multiplied by one warp each, which adds chunk by
//     chunk; those left over are shared by all, a chunk at a time, and their sums kept one by one.
//     Where a row is a single chunk warps are chained instead: each does about as many steps, in
//     the end those of a pair that the warp before it has begun, from its sums on (see few_chain).
#include "block.cuh"
#include "divide.cuh"
#include "gemm.cuh"
#include "ptx_hopper.cuh"

enum {
    SUM_LD = 20, // of 16 sums of a column: different banks
};

// Of a multiprocessor, at most: the rest is the first-level cache. Where it has that of Hopper, all
// sums of gate and up of a 7B find room; others have 100 KB or more.
template <int NT> static size_t smem(const struct queue *q)
{
    return (size_t)(NT <= 4 && q->smem_sm >= 228 << 10 ? 164 : 96) << 10;
}

// Words of a quantised strip in the first two planes.
static constexpr __host__ __device__ int words(uint32_t type)
{
    return block_facts(type).bits + (int)block_facts(type).high;
}

// Of a slice: steps whose weights a lane has in registers, where they are replaced by those of the
// next slice as they are used. Two, where they find room (tests/check_spills.py): of float16
// weights one is all, and with three or four tiles of columns (NT) of types that take many to
// unpack.
template <uint32_t TYPE, int NT> static constexpr __host__ __device__ int slice_steps()
{
    constexpr bool light = words(TYPE) <= 4 && levels<TYPE>::N == 0;
    constexpr bool two =
        light || (NT == 4 && (TYPE == QUANT_Q8_0 || TYPE == QUANT_Q5_1 || TYPE == QUANT_IQ3_XXS ||
                              TYPE == QUANT_IQ3_S || TYPE == QUANT_IQ4_XS));
    return is_plain(TYPE) || (NT > 2 && NT <= 4 && !two) ? 1 : 2;
}

// NT: tiles of eight columns, more of which need registers.
template <uint32_t TYPE, int NT> static constexpr __host__ __device__ int blocks_per_sm()
{
    return is_plain(TYPE) || NT > 4 ? 1 : 2;
}

template <uint32_t TYPE, int NT> static constexpr __host__ __device__ uint32_t n_warp()
{
    if (!is_plain(TYPE))
        return NT == 4 && (TYPE == QUANT_Q5_1 || TYPE == QUANT_MXFP4) ? 6 : 8; // as they spill
    return NT <= 2 ? 16 : NT <= 4 ? 12 : 8;
}

// Whether rows of a type end with a step: of the others a lane's chunk may be missing in the last.
template <uint32_t TYPE> static constexpr __device__ bool whole_steps()
{
    if constexpr (is_plain(TYPE))
        return false;
    else
        return quant_traits<TYPE>::D_CHUNKS % 4 == 0;
}

// Blocks that share the pairs of parts of one type.
struct few_blocks {
    uint32_t first_part, first_pair, n_pair, n_block;
    struct shares pairs;
    struct widening w;
};

// How a launch is cut up: of two types, where some parts are of another one than the first.
struct few_cut {
    struct row_cut row;
    bool chain;      // where pairs are left over: rows are a single chunk
    uint32_t n_slot; // of a block: sums of a pair that it has room for
    uint32_t two;    // 1 where chunks are added up in two parts, else 0
    struct few_blocks of[2];
    struct divisor chunks, columns;            // by row.n_chunk, by the number of columns
    uint32_t first_pair[MATVEC_MAX_PARTS + 1]; // of each part
};

// The two tiles of a pair: of gate and up with MATVEC_GATED.
struct few_pair {
    uint32_t part[2], tile[2];
};

static __device__ __forceinline__ struct few_pair locate(const struct gemm &g,
                                                         const struct few_cut &c, uint32_t pair)
{
    if (g.mode == MATVEC_GATED)
        return {{0, 1}, {pair, pair}};
    uint32_t first;
    const uint32_t part = run_of(c.first_pair, g.n_part, pair, &first), tile = 2 * (pair - first);
    return {{part, part}, {tile, tile + 1}};
}

// The pairs that a block multiplies at a time, from `first` on: the first n_whole by one warp each,
// with a slot of sums (columns, SUM_LD) or two of them, the others with one for each chunk.
struct few_round {
    uint32_t first, n_whole, n_pair;

    __device__ __forceinline__ few_round(const struct few_cut &c, uint32_t n_warp, uint32_t begin,
                                         uint32_t end)
        : first(begin)
    {
        const uint32_t n = end - begin, whole = n / n_warp * n_warp;
        n_whole = min(whole, (c.n_slot >> c.two) / n_warp * n_warp);
        n_pair = n_whole;
        if (n_whole == whole)
            n_pair += min(n - whole, c.chunks.divide(c.n_slot - (n_whole << c.two)));
    }
    __device__ __forceinline__ uint32_t slot(const struct few_cut &c, uint32_t pair,
                                             uint32_t nth) const
    {
        return pair < n_whole ? (pair << c.two) + (nth >= c.row.n_first)
                              : (n_whole << c.two) + (pair - n_whole) * c.row.n_chunk + nth;
    }
};

// The units of a warp, each of a pair: steps up to `end` of its chunk nth.
struct few_unit {
    uint32_t pair, nth, step, end;
};

// What a kernel has code for: of few columns what is executed once takes a large part of the time,
// so those without a chain have a kernel without that code.
enum few_chains { UNCHAINED, CHAINED, EITHER };
enum { MOST_SPLIT = 4 }; // tiles of columns up to which there are two

// A chain of N warps: what warp `warp` does of a round's pairs, one behind the other. First what it
// does of its last pair, which the next warp waits for; then whole ones; then the rest of its
// first.
template <uint32_t N> struct few_chain {
    uint32_t n_step;
    uint32_t first, first_step, last, last_step; // from a step of a pair to one of another
    uint32_t n_round;                            // so far

    // For the next round; there is none where all pairs are multiplied by one warp each.
    __device__ __forceinline__ void open(const struct few_round &m, uint32_t steps,
                                         uint32_t warp) volatile
    {
        if (m.n_whole == 0 || m.n_whole == m.n_pair) {
            n_step = 0;
            return;
        }
        const auto step = [&](uint32_t w) { // where slices of whole rows begin, too
            return m.n_pair * w % N * steps / N / 4 * 4;
        };
        n_step = steps;
        first = m.n_pair * warp / N;
        first_step = step(warp);
        last = m.n_pair * (warp + 1) / N;
        last_step = step(warp + 1);
        n_round++;
    }
    __device__ __forceinline__ uint32_t own() const volatile // the first whole one
    {
        return first + (first_step > 0);
    }
    __device__ __forceinline__ struct few_unit from(uint32_t pair) const volatile
    {
        if (pair < last)
            return {pair, 0, 0, n_step};
        return {first, first_step == 0, first_step, n_step}; // chunk 1: there is none
    }
    __device__ __forceinline__ struct few_unit begin() const volatile
    {
        if (last_step > 0)
            return {last, 0, 0, last_step};
        return from(own());
    }
    __device__ __forceinline__ struct few_unit behind(const struct few_unit &u) const volatile
    {
        if (u.pair == last)
            return from(own());
        if (u.pair < own())
            return {u.pair, 1, 0, 0};
        return from(u.pair + 1);
    }
};

template <int NT> static __device__ __forceinline__ constexpr uint32_t slot_floats()
{
    return NT * 8 * SUM_LD;
}

// Row r of 16 and a column of a pair, all its chunks as row_cut says.
template <int NT>
static __device__ __forceinline__ float pair_sum(const struct few_cut &c, const struct few_round &m,
                                                 const float *sums, uint32_t pair, uint32_t r,
                                                 uint32_t col)
{
    const float *from = sums + (size_t)m.slot(c, pair, 0) * slot_floats<NT>() + col * SUM_LD + r;
    const bool whole = pair < m.n_whole;
    const auto add_up = [&](uint32_t begin, uint32_t end) {
        float v = from[begin * slot_floats<NT>()];
#pragma unroll 4
        for (uint32_t i = begin + 1; i < end; i++)
            v += from[i * slot_floats<NT>()];
        return v;
    };
    if (c.two == 0) // which needs little code: all of it is executed once
        return add_up(0, whole ? 1 : c.row.n_chunk);
    const uint32_t second = whole ? 1 : c.row.n_first, n = whole ? 2 : c.row.n_chunk;
    return add_up(0, second) + add_up(second, n);
}

// act(gate) * up as the next product takes it; beyond the matrix, up to its last step, zeros.
static __device__ __forceinline__ __half gated_half(const struct gemm &g, bool inside, float gate,
                                                    float up, float undo_out)
{
    const float v = activate(g.act, gate) * up * half_range_undo(undo_out);
    const uint32_t bits = saturated_half2(inside ? v : 0.0f, 0.0f);
    return __ushort_as_half((unsigned short)(bits & 0xFFFFu));
}

// The round's results, of gate and up.
template <int NT>
static __device__ __forceinline__ void finish_gated(const struct gemm &g, const struct few_cut &c,
                                                    const struct few_round &m, const float *sums,
                                                    float undo_w)
{
    for (uint32_t i = threadIdx.x; i < m.n_pair * TILE_ROWS * g.n; i += blockDim.x) {
        const uint32_t r = i % TILE_ROWS, pair = c.columns.divide(i / TILE_ROWS);
        const uint32_t col = i / TILE_ROWS - pair * g.n;
        const uint32_t row = (m.first + pair) * TILE_ROWS + r;
        const float undo = g.undo[col] * undo_w;
        const float gate = pair_sum<NT>(c, m, sums, pair, r, col) * undo;
        const float up = pair_sum<NT>(c, m, sums, pair, TILE_ROWS + r, col) * undo;
        g.out[gemm_few_at(g.n, col, row, g.w[0].rows)] =
            gated_half(g, row < g.w[0].rows, gate, up, g.undo_out[col]);
    }
}

// The same of other products.
template <int NT>
static __device__ __forceinline__ void finish_rows(const struct gemm &g, const struct few_cut &c,
                                                   const struct few_round &m, const float *sums,
                                                   float undo_w)
{
    for (uint32_t i = threadIdx.x; i < m.n_pair * 16 * g.n; i += blockDim.x) {
        const uint32_t r = i % 16, pair = c.columns.divide(i / 16), col = i / 16 - pair * g.n;
        const struct few_pair p = locate(g, c, m.first + pair);
        const uint32_t part = p.part[0], row = p.tile[0] * TILE_ROWS + r, rows = g.w[part].rows;
        if (row >= rows)
            continue;
        float *y = g.y[part] + (size_t)col * rows + row;
        const float old = g.mode == MATVEC_ADD ? *y : 0.0f;
        const float bias = g.bias[part] ? g.bias[part][row] : 0.0f;
        const float v = pair_sum<NT>(c, m, sums, pair, r, col);
        *y = old + fmaf(v, g.undo[col] * undo_w, bias);
    }
}

// A result that is found, and asked for what it is made of besides its sum, before that is there:
// of up to eight columns a thread mostly has one. Of more, finish_gated and finish_rows are 2 to 4
// % of a pass faster than finish_all (docs/performance.md).
struct few_result {
    uint32_t pair, r, col;
    void *to;        // NULL: there is none
    float undo, old; // old: of gate and up 0 beyond the matrix, else 1
    float more;      // the bias; of gate and up what g.undo_out has
};

template <bool GATED>
static __device__ __forceinline__ uint32_t results(const struct gemm &g, const struct few_round &m)
{
    return m.n_pair * g.n * (GATED ? TILE_ROWS : 16);
}

// The round's result i.
template <bool GATED>
static __device__ __forceinline__ struct few_result
result_of(const struct gemm &g, const struct few_cut &c, const struct few_round &m, uint32_t i)
{
    constexpr uint32_t ROWS = GATED ? TILE_ROWS : 16;
    struct few_result f = {};
    const uint32_t nth = i / ROWS;
    f.r = i % ROWS;
    f.pair = c.columns.divide(nth);
    f.col = nth - f.pair * g.n;
    if (GATED) {
        const uint32_t row = (m.first + f.pair) * TILE_ROWS + f.r;
        f.to = g.out + gemm_few_at(g.n, f.col, row, g.w[0].rows);
        f.old = row < g.w[0].rows ? 1.0f : 0.0f;
        return f;
    }
    const struct few_pair p = locate(g, c, m.first + f.pair);
    const uint32_t part = p.part[0], row = p.tile[0] * TILE_ROWS + f.r, rows = g.w[part].rows;
    if (row >= rows)
        return f;
    f.to = g.y[part] + (size_t)f.col * rows + row;
    if (g.bias[part])
        f.more = g.bias[part][row];
    return f;
}

// Asks for what the launch before this one has written.
template <bool GATED>
static __device__ __forceinline__ void ask(const struct gemm &g, struct few_result &f)
{
    if (f.to == NULL)
        return;
    f.undo = g.undo[f.col];
    if (GATED)
        f.more = g.undo_out[f.col];
    else if (g.mode == MATVEC_ADD)
        f.old = *static_cast<float *>(f.to);
}

template <int NT, bool GATED>
static __device__ __forceinline__ void finish(const struct gemm &g, const struct few_cut &c,
                                              const struct few_round &m, const float *sums,
                                              float undo_w, const struct few_result &f)
{
    if (f.to == NULL)
        return;
    const float undo = f.undo * undo_w, sum = pair_sum<NT>(c, m, sums, f.pair, f.r, f.col);
    if (GATED) {
        const float up = pair_sum<NT>(c, m, sums, f.pair, TILE_ROWS + f.r, f.col) * undo;
        *static_cast<__half *>(f.to) = gated_half(g, f.old != 0.0f, sum * undo, up, f.more);
    } else {
        *static_cast<float *>(f.to) = f.old + fmaf(sum, undo, f.more);
    }
}

// The thread's results, of which the first has been asked for.
template <int NT, uint32_t N_THREAD, bool GATED>
static __device__ __forceinline__ void finish_all(const struct gemm &g, const struct few_cut &c,
                                                  const struct few_round &m, const float *sums,
                                                  float undo_w, struct few_result &f)
{
    for (uint32_t i = threadIdx.x; i < results<GATED>(g, m); i += N_THREAD) {
        if (i != threadIdx.x) {
            f = result_of<GATED>(g, c, m, i);
            ask<GATED>(g, f);
        }
        finish<NT, GATED>(g, c, m, sums, undo_w, f);
    }
}

// What block `block` of those of the NTH type does.
template <uint32_t TYPE, int NT, int NTH, enum few_chains CHAIN>
static __device__ __forceinline__ void multiply(const struct gemm &g, const struct few_cut &c,
                                                uint32_t block)
{
    const struct few_blocks &of = c.of[NTH];
    const uint32_t first_pair = NTH ? of.first_pair : 0;
    constexpr int STEPS = slice_steps<TYPE, NT>();
    // where there are registers for it
    constexpr bool EARLY = NT == 1, NIBBLES = NT == 1 && is_nibbles<TYPE>;
    constexpr uint32_t N = strip<TYPE>::N;
    float *const sums = dynamic_smem<float>();
    const uint32_t lane = threadIdx.x % WARP, r = lane / 4, t = lane % 4;
    const uint32_t n_chunk = g.w[NTH ? of.first_part : 0].n_chunk; // of a row of weights
    const uint32_t pair_begin = first_pair + of.pairs.begin(block);
    const uint32_t pair_end = first_pair + of.pairs.begin(block + 1);
    if (!g.leads || g.follows)
        griddep_launch_dependents();
    bool waited = g.follows;
    const uint32_t warp = uniform(threadIdx.x / WARP);
    constexpr uint32_t N_WARP = n_warp<TYPE, NT>();
    __shared__ uint64_t begun[N_WARP]; // of a chain: what each warp does of its last pair
    // (in registers its facts would take room from weights under way)
    __shared__ few_chain<N_WARP> chains[N_WARP];
    volatile few_chain<N_WARP> &chain = chains[warp];
    const auto has_chains = [&] {
        return HAVE_HOPPER && (CHAIN == CHAINED || (CHAIN == EITHER && c.chain));
    };
    if (has_chains()) {
        if (lane == 0) {
            mbar_init(&begun[warp], WARP);
            mbar_init_done();
            chain.n_round = 0;
        }
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t begin = pair_begin; begin < pair_end;) {
        const struct few_round m(c, N_WARP, begin, pair_end);
        begin += m.n_pair;
        if (has_chains()) {
            if (lane == 0)
                chain.open(m, c.row.n_step, warp);
            __syncwarp();
        }
        const auto chained = [&] { return has_chains() && chain.n_step > 0; };
        // Without a chain units are chunks. At any time the warps have about the same columns in
        // hand: those of shared pairs are dealt out chunk by chunk.
        const auto settle = [&](struct few_unit &u) {
            while (u.pair >= m.n_pair && u.nth < c.row.n_chunk)
                u.pair -= m.n_pair - m.n_whole, u.nth++;
            u.step = u.nth * c.row.chunk;
            u.end = min(u.step + c.row.chunk, c.row.n_step);
        };
        const auto go_on = [&](struct few_unit &u) {
            if (chained()) {
                u = chain.behind(u);
                return;
            }
            if (u.pair >= m.n_whole) {
                u.pair += N_WARP;
            } else if (++u.nth == c.row.n_chunk) {
                u.nth = 0;
                u.pair += N_WARP; // behind the last: where shared ones begin
            }
            settle(u);
        };
        struct few_unit now = {warp, 0, 0, 0};
        if (chained())
            now = chain.begin();
        else
            settle(now);
        struct few_unit next = now; // slice that is requested, of n_next steps
        uint32_t n_next = 0;
        strip<TYPE> s[STEPS][2];
        struct tile_row at[2]; // the lane's first chunk of that slice; or of the row
        const auto begin_slice = [&]() {
            n_next = next.nth < c.row.n_chunk ? min((uint32_t)STEPS, next.end - next.step) : 0;
        };
        const auto begin_unit = [&]() {
            begin_slice();
            if (n_next == 0)
                return;
            const struct few_pair p = locate(g, c, m.first + next.pair);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const struct wmat &w = g.w[p.part[i]];
                at[i] = tile_begin<TYPE>(w, min(p.tile[i], w.n_tile - 1), r);
                if (whole_steps<TYPE>())
                    tile_move<TYPE>(at[i], 0, 4 * next.step + t);
            }
        };
        const auto move = [&](uint32_t from, uint32_t to) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (whole_steps<TYPE>())
                    tile_move<TYPE>(at[i], from, to);
            begin_slice();
        };
        const auto advance = [&]() {
            const uint32_t step = next.step, pair = next.pair;
            next.step += STEPS;
            if (next.step >= next.end) {
                go_on(next);
                if (next.pair == pair)
                    move(4 * step + t, 4 * next.step + t);
                else
                    begin_unit();
                return;
            }
            // (where slices begin at even steps those have the same place in a block of scales)
            const uint32_t from = STEPS % 2 == 0 ? 0 : 4 * step + t;
            move(from, from + 4 * STEPS);
        };
        const auto request = [&](int j) {
            if (j >= (int)n_next)
                return;
#pragma unroll
            for (uint32_t m = 0; m < 2 * N; m++) {
                struct tile_row row = at[m / N];
                uint32_t k = 4 * N * j + m % N; // chunk of row
                if constexpr (whole_steps<TYPE>()) {
                    // two steps of a block share its scales, and may be of two slices (of an
                    // even number of steps each, or of one)
                    if (j % 2 == 1)
                        row.d += next.step % 2 * (TILE_ROWS * quant_traits<TYPE>::D);
                } else {
                    k = min((4 * (next.step + j) + t) * N + m % N, n_chunk - 1);
                }
                load_chunk<TYPE>(row, k, s[j][m / N].k[m % N]);
            }
        };
        begin_unit();
#pragma unroll
        for (int j = 0; j < STEPS; j++)
            request(j);
        advance();
        const bool gated = g.mode == MATVEC_GATED;
        struct few_result result = {};
        if (EARLY && gated && threadIdx.x < results<true>(g, m))
            result = result_of<true>(g, c, m, threadIdx.x);
        if (EARLY && !gated && threadIdx.x < results<false>(g, m))
            result = result_of<false>(g, c, m, threadIdx.x);
        if (!waited) {
            griddep_wait();
            if (g.leads) // x is complete
                griddep_launch_dependents();
        }
        waited = true;
        if (EARLY && gated)
            ask<true>(g, result);
        else if (EARLY)
            ask<false>(g, result);
        float acc[NT][4] = {};
        const auto columns_at = [&](uint32_t step) {
            return reinterpret_cast<const uint4 *>(g.x) + (size_t)step * 4 * NT * WARP + lane;
        };
        const uint4 *x = columns_at(now.step);
        const auto multiply = [&](int j) {
            struct half_scales h[2];
            uint32_t q[2][8] = {};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                h[i] = scales_of<TYPE, NIBBLES>(s[j][i], of.w);
                codes_of<TYPE>(s[j][i], q[i]);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t a[4][4];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    uint32_t even[4], odd[4];
                    widen_pairs<TYPE, NIBBLES>(s[j][i], q[i], h[i], half, of.w, even, odd);
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        a[k][i] = even[k];
                        a[k][2 + i] = odd[k];
                    }
                }
                if (half == 1)
                    request(j);
#pragma unroll
                for (int i = 0; i < NT; i++) {
                    const uint4 *from = x + (j * 2 + half) * NT * 2 * WARP + i * 2 * WARP;
                    const uint4 v0 = from[0], v1 = from[WARP];
                    const uint32_t b[4][2] = {
                        {v0.x, v0.y}, {v0.z, v0.w}, {v1.x, v1.y}, {v1.z, v1.w}};
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        mma_f16(acc[i], a[k], b[k]);
                }
            }
        };
#pragma unroll 1
        while (now.nth < c.row.n_chunk) {
            const uint32_t n_here = min((uint32_t)STEPS, now.end - now.step);
#pragma unroll
            for (int j = 0; j < STEPS; j++)
                if (j < (int)n_here)
                    multiply(j);
                else
                    request(j);
            now.step += n_here;
            x += n_here * 4 * NT * WARP;
            if (now.step == now.end) {
                float *to = sums + (size_t)m.slot(c, now.pair, now.nth) * slot_floats<NT>() +
                            2 * t * SUM_LD + r;
                const bool more = now.pair < m.n_whole && now.nth > 0 && now.nth != c.row.n_first;
#pragma unroll
                for (int j = 0; j < NT; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float *sum = &to[(8 * j + e % 2) * SUM_LD + e / 2 * TILE_ROWS];
                        *sum = more ? *sum + acc[j][e] : acc[j][e];
                        acc[j][e] = 0.0f;
                    }
                if (chained() && now.pair == chain.last)
                    mbar_arrive(&begun[warp]);
                go_on(now);
                x = columns_at(now.step);
                if (chained() && now.step > 0) {
                    mbar_wait(&begun[warp - 1], (chain.n_round - 1) % 2);
                    to = sums + (size_t)now.pair * slot_floats<NT>() + 2 * t * SUM_LD + r;
#pragma unroll
                    for (int j = 0; j < NT; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            acc[j][e] = to[(8 * j + e % 2) * SUM_LD + e / 2 * TILE_ROWS];
                }
            }
            advance();
        }
        __syncthreads();
        if (EARLY && gated)
            finish_all<NT, N_WARP * WARP, true>(g, c, m, sums, of.w.undo, result);
        else if (EARLY)
            finish_all<NT, N_WARP * WARP, false>(g, c, m, sums, of.w.undo, result);
        else if (gated)
            finish_gated<NT>(g, c, m, sums, of.w.undo);
        else
            finish_rows<NT>(g, c, m, sums, of.w.undo);
        __syncthreads();
    }
    if (g.follows) // whoever waits for this launch waits for the one before it
        griddep_wait();
}

// Grid: first the blocks of TYPE, then those of OTHER (TYPE: there is none).
template <uint32_t TYPE, uint32_t OTHER, int NT, enum few_chains CHAIN>
static __global__ void __launch_bounds__(n_warp<TYPE, NT>() * WARP, (blocks_per_sm<TYPE, NT>()))
    gemm_few_kernel(const __grid_constant__ struct gemm g, const __grid_constant__ struct few_cut c)
{
    if (OTHER == TYPE || blockIdx.x < c.of[0].n_block)
        multiply<TYPE, NT, 0, CHAIN>(g, c, blockIdx.x);
    else
        multiply<OTHER, NT, 1, CHAIN>(g, c, blockIdx.x - c.of[0].n_block);
}

// ---- launcher

// Blocks for n_pair pairs, of which a block has n_warp warps and room for `room` slots.
static void share_out(struct few_cut *c, struct few_blocks *of, uint32_t n_block, uint32_t n_warp)
{
    of->n_block = n_block;
    of->pairs = shares_of(of->n_pair, n_block);
    for (uint32_t n : {div_up(of->n_pair, n_block), of->n_pair / n_block}) { // pairs of a block
        const uint32_t rest = n % n_warp, all = ((n - rest) << c->two) + rest * c->row.n_chunk;
        c->n_slot = c->n_slot > all ? c->n_slot : all;
    }
}

template <uint32_t TYPE, uint32_t OTHER, int NT>
static bool launch(const struct queue *q, const struct gemm *g, struct few_cut *c,
                   struct error *err)
{
    constexpr uint32_t PER_SM = blocks_per_sm<TYPE, NT>(), N_WARP = n_warp<TYPE, NT>();
    static_assert(PER_SM == blocks_per_sm<OTHER, NT>() && N_WARP == n_warp<OTHER, NT>(),
                  "two types in one launch have blocks alike");
    const size_t slot = NT * 8 * SUM_LD * sizeof(float);
    struct few_blocks *one = &c->of[0], *other = &c->of[1];
    const uint32_t n_pair = one->n_pair + other->n_pair;
    const uint32_t n_block = lesser(n_pair, (uint32_t)q->n_sm * PER_SM);
    const uint32_t room = (uint32_t)(lesser(q->smem_max, smem<NT>(q) / PER_SM) / slot);
    if (room < c->row.n_chunk || room < N_WARP << c->two)
        return error_set(err, ERR_FAIL,
                         "CUDA: rows of %u weights: a block's shared memory has no room for the "
                         "sums of one",
                         g->w[0].n_cols);
    c->n_slot = 0;
    uint32_t n_other = (uint32_t)((uint64_t)n_block * other->n_pair / n_pair);
    if (other->n_pair > 0) {
        n_other = n_other > 0 ? n_other : 1;
        share_out(c, other, n_other, N_WARP);
    }
    share_out(c, one, n_block - n_other, N_WARP);
    c->n_slot = lesser(c->n_slot, room);
    c->chunks = divisor_of(c->row.n_chunk);
    c->columns = divisor_of(g->n);
    struct launch l = {.name = "gemm_few",
                       .grid = dim3(n_block),
                       .block = dim3(N_WARP * WARP),
                       .smem = c->n_slot * slot,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    if constexpr (NT > MOST_SPLIT) {
        return launch_kernel(err, l, gemm_few_kernel<TYPE, OTHER, NT, EITHER>, *g, *c);
    } else {
        if constexpr (TYPE == OTHER) // gate and up
            if (c->chain)
                return launch_kernel(err, l, gemm_few_kernel<TYPE, OTHER, NT, CHAINED>, *g, *c);
        return launch_kernel(err, l, gemm_few_kernel<TYPE, OTHER, NT, UNCHAINED>, *g, *c);
    }
}

// Tiles of columns up to which two types, TYPE the first, find room in one kernel.
template <uint32_t TYPE> static constexpr uint32_t BOTH_TILES = TYPE == QUANT_Q5_0 ? 3 : 4;

template <uint32_t TYPE, uint32_t OTHER>
static bool launch_types(const struct queue *q, const struct gemm *g, struct few_cut *c,
                         struct error *err)
{
    const auto by = [&](auto tiles) {
        constexpr uint32_t NT = decltype(tiles)::value;
        if constexpr (TYPE == OTHER || NT <= BOTH_TILES<TYPE>)
            return launch<TYPE, OTHER, NT>(q, g, c, err);
        else
            return false; // see gemm_few_takes_both
    };
    switch (gemm_few_tiles(g->n)) {
    case 1:
        return by(std::integral_constant<uint32_t, 1>());
    case 2:
        return by(std::integral_constant<uint32_t, 2>());
    case 3:
        return by(std::integral_constant<uint32_t, 3>());
    case 4:
        return by(std::integral_constant<uint32_t, 4>());
    default:
        return by(std::integral_constant<uint32_t, 8>());
    }
}

// Types that have kernels together: those of queries, keys and values in the files people download.
template <typename F> static bool with_both(uint32_t type, uint32_t other, F f)
{
    const auto is = [&](auto one, auto two) {
        return type == decltype(one)::value && other == decltype(two)::value && f(one, two);
    };
    return is(type_tag<QUANT_Q4_K>(), type_tag<QUANT_Q6_K>()) ||
           is(type_tag<QUANT_Q5_K>(), type_tag<QUANT_Q6_K>()) ||
           is(type_tag<QUANT_Q5_0>(), type_tag<QUANT_Q8_0>());
}

bool gemm_few_takes_both(const struct wmat *a, const struct wmat *b, uint32_t n)
{
    return n <= GEMM_FEW && with_both(a->type, b->type, [&](auto one, auto) {
               return gemm_few_tiles(n) <= BOTH_TILES<decltype(one)::value>;
           });
}

static bool launch_group(const struct queue *q, const struct gemm *g, struct few_cut *c,
                         struct error *err)
{
    if (g->n_other > 0)
        return with_both(g->w[0].type, g->w[g->n_part - 1].type, [&](auto one, auto two) {
            return launch_types<decltype(one)::value, decltype(two)::value>(q, g, c, err);
        });
    return with_type(g->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32)
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        if constexpr (T != QUANT_F32)
            return launch_types<T, T>(q, g, c, err);
    });
}

bool gemm_few_launch(const struct queue *q, const struct gemm *all, struct error *err)
{
    struct gemm g = *all;
    struct few_cut c = {};
    c.row = g.long_chunks ? gemm_long_cut(&g) : gemm_row_cut(g.w[0].n_cols);
    c.chain = q->hopper && g.long_chunks && c.row.n_chunk == 1;
    c.two = c.row.n_first < c.row.n_chunk;
    if (g.mode == MATVEC_GATED) { // one part; zeros up to the last step of the next matrix
        c.of[0].n_pair =
            div_up(g.w[0].rows, (uint32_t)GEMM_PACK_COLS) * (GEMM_PACK_COLS / TILE_ROWS);
    } else {
        for (uint32_t i = 0; i < g.n_part; i++)
            c.first_pair[i + 1] = c.first_pair[i] + div_up(g.w[i].rows, 16u);
        struct few_blocks *other = &c.of[1];
        other->first_part = g.n_part - g.n_other;
        other->first_pair = c.of[0].n_pair = c.first_pair[other->first_part];
        other->n_pair = c.first_pair[g.n_part] - other->first_pair;
    }
    c.of[0].w = gemm_widening(&g, 0, g.n_part - g.n_other);
    if (g.n_other > 0)
        c.of[1].w = gemm_widening(&g, g.n_part - g.n_other, g.n_part);
    for (uint32_t i = 0; i < all->n; i += GEMM_FEW) {
        g.n = lesser(all->n - i, (uint32_t)GEMM_FEW);
        if (!launch_group(q, &g, &c, err))
            return false;
        g.x += gemm_few_at(all->n, GEMM_FEW, 0, g.w[0].n_cols);
        g.undo += GEMM_FEW;
        if (g.mode == MATVEC_GATED) {
            g.out += gemm_few_at(all->n, GEMM_FEW, 0, g.w[0].rows);
            g.undo_out += GEMM_FEW;
        }
        for (uint32_t k = 0; g.mode != MATVEC_GATED && k < g.n_part; k++)
            g.y[k] += (size_t)GEMM_FEW * g.w[k].rows;
    }
    return true;
}
