// A few rows times the matrices of chosen experts, to the bits of expert_hopper.cu: its halves of
// weights and activations, its order along a row, by matrix instructions of eight columns
// (mma.sync), which add up as those of many columns do (wgmma; test_experts_hopper compares them).
//
// What a step of one sequence or a few waits for is how soon weights come and how few instructions
// follow one another. A warp has 16 rows, or eight of gate and of up, from end to end, so that
// their sums stay in its registers, and several steps of weights under way; the rows of an item
// come to shared memory meanwhile, or become float16 there, times the power of two that their
// largest asks for.
// Where there are fewer such warps than find room, two or four of them, a team, take its steps by
// turns: a step's eight products wait for one another, and while one warp's do, others widen what
// comes next. Who has multiplied hands its sums on, so they are added up in the same order.
#include "block.cuh"
#include "divide.cuh"
#include "expert_items.cuh"
#include "few_rows.cuh"
#include "ptx_hopper.cuh"

enum {
    FEW_WARPS = 4,
    FEW_COLS = EXPERT_FEW_ROWS, // of an item: a tile of the matrix unit's columns
    SPREAD = 4,                 // more of them from row to row: in different banks
};

struct few_items {
    uint32_t n_step, team, log_team; // team: warps of a tile, a power of two
    uint32_t n_chunk;                // of one of the matrices
    struct divisor n_used;
    struct widening w;
};

// When a step's weights become operands: after the step before has been multiplied, whose eight
// instructions wait for one another, or while it is (SOON), for types that take many instructions
// to unpack; the registers for it leave room for fewer warps. TEAM: others of the team multiply.
enum few_way { THEN, SOON, TEAM };
template <uint32_t TYPE> static constexpr enum few_way ALONE = levels<TYPE>::N > 0 ? SOON : THEN;

// Steps of weights that a lane has under way: more warps gain more than more steps of each.
template <uint32_t TYPE, enum few_way WAY> static constexpr int few_deep()
{
    if (WAY == SOON)
        return 4;
    return is_nibbles<TYPE> && WAY == THEN ? 3 : 2;
}

// Blocks of a multiprocessor, as registers allow.
template <uint32_t TYPE, enum few_way WAY> static constexpr int few_blocks()
{
    if (WAY == SOON)
        return 2;
    if constexpr (is_plain(TYPE))
        return WAY == TEAM ? 2 : 3;
    else if (WAY == THEN)
        return quant_traits<TYPE>::H > 0 ? 5 : 6;
    return ALONE<TYPE> == SOON ? 3 : 4;
}

// ---- kernel

// Where rows are is found before the wait.
template <uint32_t TYPE> static __device__ __forceinline__ void known_by_now(struct tile_row &t)
{
    known_by_now(t.q);
    if constexpr (!is_plain(TYPE)) {
        if constexpr (quant_traits<TYPE>::H > 0)
            known_by_now(t.h);
        if constexpr (quant_traits<TYPE>::S > 0)
            known_by_now(t.s);
        known_by_now(t.d);
    }
}

// The columns of an item, one a lane: what is asked for before weights, for which it would wait.
struct few_column {
    uint32_t place, pair, top; // the bits of the row's largest, if it is known

    __device__ __forceinline__ few_column(const struct expert_gemm &m,
                                          const struct expert_item &item)
        : place(item.first + min(threadIdx.x % FEW_COLS, item.n - 1)),
          pair(m.pair_at ? m.pair_at[place] : place), top(m.top ? m.top[place] : 0)
    {
    }
};

// The powers of two of an item's rows: those of the lane's column.
template <bool PLAIN>
static __device__ __forceinline__ float find_scale(const struct expert_gemm &m, uint32_t n,
                                                   uint32_t row)
{
    constexpr uint32_t THREADS = FEW_WARPS * WARP;
    __shared__ float tops[FEW_COLS][FEW_WARPS];
    const uint32_t n_cols = m.w[0].n_cols, n_eight = div_up(n_cols, 8u);
#pragma unroll 1
    for (uint32_t col = 0; col < n; col++) {
        const float *x = m.rows + (size_t)__shfl_sync(ALL_LANES, row, col) * m.ld;
        float top = 0.0f;
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < n_eight; i += THREADS) {
            float v[8];
            load8<PLAIN>(x, i, n_cols, v);
#pragma unroll
            for (int e = 0; e < 8; e++)
                top = max_nan(top, fabsf(v[e]));
        }
        top = warp_max_nan(top);
        if (threadIdx.x % WARP == 0)
            tops[col][threadIdx.x / WARP] = top;
    }
    __syncthreads();
    const uint32_t col = min(threadIdx.x % FEW_COLS, n - 1);
    float top = tops[col][0];
#pragma unroll
    for (int w = 1; w < FEW_WARPS; w++)
        top = max_nan(top, tops[col][w]);
    return half_range(top);
}

// The rows as halves, to (item.n, n_step * FEW_STEP_PIECES + SPREAD). undo: 1 / the power of two,
// times what else the row is weighed with. PLAIN: rows of floats may begin anywhere.
template <bool PLAIN>
static __device__ __forceinline__ void
bring_rows(const struct expert_gemm &m, const struct few_items &c, uint32_t n,
           const struct few_column &own, uint4 *to, float undo[FEW_COLS])
{
    constexpr uint32_t THREADS = FEW_WARPS * WARP, AT_ONCE = 2;
    const uint32_t n_cols = m.w[0].n_cols, n_piece = c.n_step * FEW_STEP_PIECES;
    const uint32_t row = m.pair_at ? c.n_used.divide(own.pair) : own.place;
    float factor;
    if (m.x) {
#pragma unroll 1
        for (uint32_t col = 0; col < n; col++) {
            const uint4 *from = reinterpret_cast<const uint4 *>(m.x) +
                                (size_t)__shfl_sync(ALL_LANES, row, col) * n_piece;
#pragma unroll 1
            for (uint32_t i = threadIdx.x; i < n_piece; i += THREADS)
                cp_async16(to + i, from + i);
            to += n_piece + SPREAD;
        }
        cp_async_commit();
        factor = m.undo[row];
    } else {
        const float scale =
            m.top ? half_range(__uint_as_float(own.top)) : find_scale<PLAIN>(m, n, row);
        factor = half_range_undo(scale);
#pragma unroll 1
        for (uint32_t col = 0; col < n; col++) {
            const float *from = m.rows + (size_t)__shfl_sync(ALL_LANES, row, col) * m.ld;
            const float by = __shfl_sync(ALL_LANES, scale, col);
#pragma unroll 1
            for (uint32_t i0 = threadIdx.x; i0 < n_piece; i0 += AT_ONCE * THREADS) {
                float v[AT_ONCE][8] = {};
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    if (8 * (i0 + k * THREADS) < n_cols)
                        load8<PLAIN>(from, i0 + k * THREADS, n_cols, v[k]);
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    if (i0 + k * THREADS < n_piece)
                        to[few_piece_at(i0 + k * THREADS)] = few_piece(v[k], by);
            }
            to += n_piece + SPREAD;
        }
    }
    if (threadIdx.x < n)
        undo[threadIdx.x] = factor * (m.weight ? m.weight[own.pair] : 1.0f);
    cp_async_wait<0>();
    __syncthreads();
}

// The sums of a tile, from warp to warp of a team.
struct few_hands {
    uint64_t given[FEW_WARPS]; // to each warp
    float4 sums[FEW_WARPS][WARP];

    // By one thread.
    __device__ __forceinline__ void init()
    {
        for (int i = 0; i < FEW_WARPS; i++)
            mbar_init(&given[i], WARP);
        mbar_init_done();
    }
    __device__ __forceinline__ void give(uint32_t warp, uint32_t lane, const float acc[4])
    {
        sums[warp][lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
        mbar_arrive(&given[warp]);
    }
    // nth: time that this warp takes.
    __device__ __forceinline__ void take(uint32_t warp, uint32_t lane, uint32_t nth, float acc[4])
    {
        mbar_wait(&given[warp], nth % 2);
        const float4 v = sums[warp][lane];
        acc[0] = v.x, acc[1] = v.y, acc[2] = v.z, acc[3] = v.w;
    }
};

// Grid (teams of all tiles / those of a block, items).
template <uint32_t TYPE, enum few_way WAY>
static __global__ void __launch_bounds__(FEW_WARPS *WARP, (few_blocks<TYPE, WAY>()))
    expert_few_kernel(const __grid_constant__ struct expert_gemm m,
                      const __grid_constant__ struct few_items c)
{
    constexpr int DEEP = few_deep<TYPE, WAY>();
    // Quants that are widened where they came to leave their registers late: what is asked for
    // meanwhile takes the place of the step before. (A team has more warps that ask.)
    constexpr int LAG = is_nibbles<TYPE> && WAY == THEN;
    constexpr uint32_t N = strip<TYPE>::N;
    __shared__ float undo[FEW_COLS];
    uint4 *const x = dynamic_smem<uint4>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane / 4, t = lane % 4, n_chunk = m.w[0].n_chunk;
    const uint32_t team = WAY == TEAM ? c.team : 1, member = warp & (team - 1);
    const uint32_t at = (blockIdx.x * FEW_WARPS + warp) >> (WAY == TEAM ? c.log_team : 0);
    [[maybe_unused]] __shared__ struct few_hands hands;
    if (HAVE_HOPPER && WAY == TEAM && threadIdx.x == 0)
        hands.init();       // bring_rows lets the others see it
    struct tile_row row[2]; // of the first matrix
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) { // beyond the matrix another, which nobody stores
        const struct wmat &w = m.w[m.gated ? i : 0];
        row[i] = tile_begin<TYPE>(w, min(m.gated ? at : 2 * at + i, w.n_tile - 1), r);
        known_by_now<TYPE>(row[i]);
    }
    griddep_launch_dependents();
    griddep_wait();
    const struct expert_item item = item_at(m, blockIdx.y);
    if (item.n == 0)
        return;
    const struct few_column own(m, item);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        tile_move<TYPE>(row[i], 0, item.expert * c.n_chunk);
    strip<TYPE> s[DEEP][2];
    // Of the warp's own steps one; behind the row its last chunks.
    const auto request = [&](uint32_t own, strip<TYPE>(&to)[2]) {
        const uint32_t k0 = (4 * (own * team + member) + t) * N;
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
            const uint32_t k = min(k0 + j, n_chunk - 1);
#pragma unroll
            for (int i = 0; i < 2; i++)
                load_chunk<TYPE>(row[i], k, to[i].k[j]);
        }
    };
#pragma unroll
    for (int d = 0; d < DEEP - LAG; d++)
        request(d, s[d]);
    bring_rows<is_plain(TYPE)>(m, c, item.n, own, x, undo);

    uint32_t a[WAY == SOON ? 2 : 1][2][4][4]; // of steps by turns: halves
    const auto widen = [&](uint32_t own, int d, uint32_t(&to)[2][4][4]) {
        strip<TYPE>(&of)[2] = s[d];
        struct half_scales h[2];
        uint32_t q[2][8] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            h[i] = scales_of<TYPE>(of[i], c.w);
            codes_of<TYPE>(of[i], q[i]);
        }
        if (LAG > 0)
            request(own + DEEP - LAG, s[(d + DEEP - LAG) % DEEP]);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t even[4], odd[4];
                widen_pairs<TYPE>(of[i], q[i], h[i], half, c.w, even, odd);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    to[half][k][i] = even[k];
                    to[half][k][2 + i] = odd[k];
                }
            }
        if (LAG == 0)
            request(own + DEEP, of);
    };
    float acc[4] = {};
    // (columns beyond the item's are the first one again: nobody stores them)
    const uint4 *column = x + (r < item.n ? r : 0) * (c.n_step * FEW_STEP_PIECES + SPREAD) + t +
                          member * FEW_STEP_PIECES;
    if (WAY == SOON)
        widen(0, 0, a[0]);
#pragma unroll 1
    for (uint32_t own = 0; own * team + member < c.n_step; own += DEEP) {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const uint32_t step = (own + d) * team + member;
            if (step >= c.n_step)
                break;
            uint4 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = column[4 * i];
            column += team * FEW_STEP_PIECES;
            if constexpr (WAY == SOON)
                widen(own + d + 1, (d + 1) % DEEP, a[(d + 1) % 2]);
            else
                widen(own + d, d, a[0]);
            if (HAVE_HOPPER && WAY == TEAM && step > 0)
                hands.take(warp, lane, own + d - (member == 0), acc);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const uint4 &w = v[k / 2];
                const uint32_t b[2] = {k % 2 ? w.z : w.x, k % 2 ? w.w : w.y};
                mma_f16(acc, a[WAY == SOON ? d % 2 : 0][k / 4][k % 4], b);
            }
            if (HAVE_HOPPER && WAY == TEAM && step + 1 < c.n_step)
                hands.give(warp - member + (member + 1) % team, lane, acc);
        }
    }
    if (WAY == TEAM && member != (c.n_step - 1) % team)
        return; // another has the sums

    const uint32_t rows = m.w[0].rows, row0 = (m.gated ? at : 2 * at) * TILE_ROWS + r;
    float bias[2], scale[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t own = m.gated ? row0 : row0 + i * TILE_ROWS;
        const float *const from = m.bias[m.gated ? i : 0];
        bias[i] = from && own < rows ? from[(size_t)item.expert * rows + own] : 0.0f;
        scale[i] = c.w.undo * product_scale(m.w[m.gated ? i : 0], item.expert);
    }
    uint32_t top = 0; // exponents of both, which are in the order of their numbers
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
        const uint32_t col = 2 * t + e;
        if (col >= item.n || row0 >= rows)
            continue;
        const float f = undo[col];
        float *const to = m.y + (size_t)(item.first + col) * rows + row0;
        const float v = fmaf(acc[e], f * scale[0], bias[0]);
        const float w = fmaf(acc[e + 2], f * scale[1], bias[1]);
        const float value = m.gated ? gated(m.act, {}, v, w) : v;
        to[0] = value;
        top |= (__float_as_uint(value) >> 23 & 0xFFu) << 16 * e;
        if (!m.gated && row0 + TILE_ROWS < rows)
            to[TILE_ROWS] = w;
    }
    if (!m.y_top)
        return;
#pragma unroll
    for (uint32_t d = WARP / 2; d >= 4; d /= 2)
        top = __vmaxu2(top, __shfl_xor_sync(ALL_LANES, top, d));
#pragma unroll
    for (uint32_t e = 0; e < 2; e++)
        if (r == 0 && 2 * t + e < item.n)
            atomicMax(&m.y_top[item.first + 2 * t + e], (top >> 16 * e & 0xFFu) << 23);
}

// ---- launcher

static size_t few_smem(uint32_t n_row, uint32_t n_cols)
{
    const uint32_t n_step = div_up(n_cols, (uint32_t)GEMM_PACK_COLS);
    return (size_t)n_row * (n_step * FEW_STEP_PIECES + SPREAD) * sizeof(uint4);
}

uint32_t expert_few_rows(const struct queue *q, uint32_t n_cols, uint32_t n, uint32_t likely)
{
    // What a multiprocessor has beside shared memory is its first-level cache, which brings the
    // rest of each line of weights: a block's rows leave half of it, and where an expert is not
    // likely to have more, those of four blocks do.
    enum { BLOCKS = 4 };
    const size_t declared = 1024, half = lesser(q->smem_sm / 2, q->smem_max - declared);
    const size_t most = half / few_smem(1, n_cols), of_each = most / BLOCKS;
    size_t rows = likely > 2 ? likely : 2;
    rows = rows > of_each ? rows : of_each;
    return (uint32_t)lesser(lesser(rows, most), (size_t)lesser(n, (uint32_t)EXPERT_FEW_ROWS));
}

bool expert_few_suits(uint32_t type, uint32_t n, uint32_t n_used, uint32_t n_expert,
                      uint32_t per_item)
{
    if (n <= EXPERT_FEW_PASS || n > EXPERT_FEW_MOST)
        return n <= EXPERT_FEW_PASS;
    // An expert's rows in the mean, by fours, up to which this is faster than expert_hopper.cu:
    // seven where items have as many as are likely, six of types that take many instructions
    // (measured with Q4_K and Q6_K, and MXFP4).
    const uint32_t likely = div_up(2 * n * n_used, n_expert);
    return with_type(type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        constexpr bool SLOW = ALONE<T> == SOON;
        const bool whole = !is_plain(T) && per_item >= lesser(likely, EXPERT_FEW_ROWS - 1u);
        const uint32_t most = whole ? (SLOW ? 24 : 28) : SLOW ? 7 : 10;
        return 4 * n * n_used <= most * n_expert;
    });
}

// Warps for each of n_tile tiles: as many as find room at once on all multiprocessors, of which one
// has so many blocks, as far as there are steps for them.
static uint32_t team_size(const struct queue *q, uint32_t n_tile, uint32_t n_block, size_t smem,
                          uint32_t n_step)
{
    const uint32_t room = lesser(n_block, (uint32_t)(q->smem_sm / (smem + 2048)));
    for (uint32_t team = FEW_WARPS; q->hopper && team > 1; team /= 2)
        if (team <= n_step &&
            (uint64_t)n_tile * team <= (uint64_t)FEW_WARPS * room * (uint32_t)q->n_sm)
            return team;
    return 1;
}

bool expert_few_launch(const struct queue *q, const struct expert_gemm *m, struct error *err)
{
    struct few_items c = {};
    c.n_step = div_up(m->w[0].n_cols, (uint32_t)GEMM_PACK_COLS);
    c.n_chunk = m->w[0].n_tile * m->w[0].n_chunk;
    c.n_used = divisor_of(m->pair_at ? m->n_used : 1);
    c.w = expert_widening(m);
    const uint32_t n_tile = m->gated ? m->w[0].n_tile : div_up(m->w[0].n_tile, 2u);
    const size_t smem = few_smem(m->per_item, m->w[0].n_cols);
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        if constexpr (T == QUANT_F32) {
            return error_set(err, ERR_FAIL, "CUDA: a float32 matrix in a float16 product");
        } else {
            c.team = team_size(q, n_tile * m->n_slot, few_blocks<T, TEAM>(), smem, c.n_step);
            c.log_team = c.team == 4 ? 2 : c.team == 2 ? 1 : 0;
            struct launch l = {.name = "expert_few",
                               .grid =
                                   dim3(div_up(n_tile * c.team, (uint32_t)FEW_WARPS), m->n_slot),
                               .block = dim3(FEW_WARPS * WARP),
                               .smem = smem,
                               .stream = q->stream,
                               .dependent = q->dependent,
                               .recorder = q->recorder};
            return c.team > 1 ? launch_kernel(err, l, expert_few_kernel<T, TEAM>, *m, c)
                              : launch_kernel(err, l, expert_few_kernel<T, ALONE<T>>, *m, c);
        }
    });
}
