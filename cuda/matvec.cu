// Quantised matrix times one to eight vectors: what decoding waits for, so everything here serves
// one aim, to keep the memory bus busy with weights.
//
//   - A block takes a range of pairs of tiles (16 rows; for gate and up, 8 rows of each) and its
//     warps equal shares of their steps, each a walk along the rows: 8 rows x 4 chunks of both
//     tiles at a time, every load 16 bytes per lane and consecutive across the warp. No warp waits
//     for another before the end, when what several warps have of a row is added up in a fixed
//     order.
//   - The next step's weights are requested before the current ones are used, also across the end
//     of a row and before the kernel's predecessor has ended: weights never depend on it.
//   - One column: every block normalises and quantises the input for itself. That costs a read of
//     the input from L2 per block, and saves a launch per matrix.
//   - What stands before the first request is as short as can be: a block that begins only when its
//     multiprocessor is free pays some 5 ns for every instruction that it fetches there (clocks of
//     a whole layer, H200). So the host does the divisions, and what the sums are finished with is
//     looked for while the input is on its way.
#include "activation.cuh"
#include "added.cuh"
#include "block.cuh"
#include "divide.cuh"

enum {
    SUMS_BYTES = 24576, // of a block's pairs, at most: then there are more blocks
    KEEP = 2,           // groups of 8 inputs that a thread has under way at once
};

// One column: one large block per multiprocessor, since each prepares the input for itself.
template <int NCOL> static constexpr __host__ __device__ int n_warp()
{
    return NCOL == 1 ? 16 : 8;
}

static_assert(8 * KEEP * n_warp<1>() * WARP >= ADD_MOST_COLS, "an input that is made is kept");

template <int NCOL> static constexpr __host__ __device__ int blocks_per_sm()
{
    return NCOL == 1 ? 1 : 2;
}

// How a launch is cut up; made by the launcher.
struct matvec_grid {
    uint32_t n_same;               // the first n_same parts have weight type TA, the rest TB
    uint32_t sums_at, warps_at;    // in dynamic shared memory, see share
    float scale[MATVEC_MAX_PARTS]; // of the products, 1: as they are
    uint32_t first_pair[MATVEC_MAX_PARTS + 1]; // beyond the last part: how many there are
    struct shares blocks;                      // of pairs
    struct divisor steps;                      // of a pair
    uint32_t n_step;
};

// What a kernel knows of its launches: code that it does not need is fetched all the same. Any is
// for those that are few.
enum matvec_kind { ANY_KIND, ONE_MATRIX, MATRICES, GATE_AND_UP };

// ---- kernels

template <int KIND> static __device__ __forceinline__ bool is_gated(const struct matvec &m)
{
    return KIND == ANY_KIND ? m.mode == MATVEC_GATED : KIND == GATE_AND_UP;
}

// The two tiles of a pair, and the matrices that they are of.
struct tile_pair {
    uint32_t matrix[2], tile[2];
};

template <int KIND>
static __device__ __forceinline__ struct tile_pair
locate(const struct matvec &m, const struct matvec_grid &g, uint32_t pair)
{
    if (is_gated<KIND>(m))
        return {{0, 1}, {pair, pair}};
    uint32_t first = 0, part = 0;
    if (KIND != ONE_MATRIX)
        part = run_of(g.first_pair, m.n_part, pair, &first);
    const uint32_t tile = 2 * (pair - first);
    // an odd number of tiles: the last pair computes its only tile twice
    return {{part, part}, {tile, min(tile + 1, m.w[part].n_tile - 1)}};
}

// A batch: the chunks that a lane requests at a time per tile. Several columns have more to do per
// chunk, and need the registers.
static constexpr __host__ __device__ int n_ahead(uint32_t type, int n_col)
{
    return n_col > 1 ? 1 : is_plain(type) ? 4 : 2;
}

template <uint32_t TYPE, int N> struct batch {
    chunk<TYPE> k[2][N];
};

// This lane's row of both tiles, from the chunk on that comes next.
struct row_pair {
    struct tile_row t[2];
};

template <uint32_t TYPE>
static __device__ __forceinline__ struct row_pair
row_at(const struct matvec &m, const struct tile_pair &p, uint32_t row, uint32_t c)
{
    struct row_pair r;
#pragma unroll
    for (int i = 0; i < 2; i++)
        r.t[i] = tile_at<TYPE>(m.w[p.matrix[i]], p.tile[i] * m.w[0].n_chunk + c, row);
    return r;
}

// Requests chunks c, c + 4, ... of both rows, as far as they go; the rows stand at chunk c.
template <uint32_t TYPE, int N>
static __device__ __forceinline__ void load_batch(const struct row_pair &p, uint32_t c,
                                                  uint32_t n_chunk, batch<TYPE, N> &b)
{
#pragma unroll
    for (int u = 0; u < N; u++)
        if (c + 4 * u < n_chunk) {
            load_chunk<TYPE>(p.t[0], 4 * u, b.k[0][u]);
            load_chunk<TYPE>(p.t[1], 4 * u, b.k[1][u]);
        }
}

// The input times the norm's weights, in the form that TYPE multiplies with, into shared memory.
// The norm's factor is left to the end: it is a single number, and nothing has to wait for it.
// squares: the sums of the input's squares per warp. False: nothing to do.
// Every token waits for this some hundred times: few round trips to L2, few instructions. `more` is
// called by every thread when the input has been asked for, to ask for what else is needed of what
// is the predecessor's, or anyone's. ADD: the input is still to be made (added.cuh); it is not
// longer than what threads have under way.
template <uint32_t TYPE, int N_WARP, int ADD, typename F>
static __device__ __forceinline__ bool prepare_input(const struct matvec &m, uint8_t *act,
                                                     float squares[N_WARP], F more)
{
    constexpr uint32_t THREADS = N_WARP * WARP;
    constexpr int N = ADD ? ADD : KEEP;
    const uint32_t n = m.w[0].n_cols;
    const uint32_t n_group = div_up(m.w[0].n_chunk * chunk_elems(TYPE), 8u);
    float weight[8], v[N][8], sum = 0.0f;
    [[maybe_unused]] row_to_add<THREADS, N> owed;
    if (m.norm && threadIdx.x < n_group) // they come from far away
        load8<is_plain(TYPE)>(m.norm, threadIdx.x, n, weight);
    if constexpr (ADD > 0)
        owed.load_weights(m.add, n);
    griddep_wait(); // from here on the predecessor's results may be read
#pragma unroll 1
    for (uint32_t base = 0; base < n_group; base += N * THREADS) {
        if constexpr (ADD > 0)
            owed.load(m.add, 0, n);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (base + k * THREADS + threadIdx.x < n_group)
                load8<is_plain(TYPE)>(m.x, base + k * THREADS + threadIdx.x, n, v[k]);
        if (base == 0) {
            // volatile: asked for here, not before the loop, where everything else waits for it
            const uint32_t skip = m.skip ? *static_cast<const volatile uint32_t *>(m.skip) : 0;
            more();
            if (skip)
                return false;
        }
        if constexpr (ADD > 0)
            owed.add(m.add, 0, n, blockIdx.x == 0, v);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const uint32_t i = base + k * THREADS + threadIdx.x;
            const bool valid = i < n_group;
            if (!__any_sync(ALL_LANES, valid)) // most warps have nothing of a short row
                break;
            if (m.norm && valid) {
                if (i >= THREADS)
                    load8<is_plain(TYPE)>(m.norm, i, n, weight);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sum = fmaf(v[k][e], v[k][e], sum);
                    v[k][e] *= weight[e];
                }
            }
            if constexpr (is_plain(TYPE)) {
                float4 *out = reinterpret_cast<float4 *>(act) + 2 * i;
                if (valid) {
                    out[0] = make_float4(v[k][0], v[k][1], v[k][2], v[k][3]);
                    out[1] = make_float4(v[k][4], v[k][5], v[k][6], v[k][7]);
                }
            } else { // four lanes per chunk, eight values each
                quantize_act<(quant_traits<TYPE>::LIFT > 0)>(
                    v[k], reinterpret_cast<act32 *>(act) + (valid ? i / 4 : 0), valid);
            }
        }
    }
    if (m.norm) {
        for (int d = WARP / 2; d > 0; d /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        if (threadIdx.x % WARP == 0)
            squares[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    return true;
}

// What prepare_input left out: RMSNorm's factor, the same in every thread.
template <int N_WARP>
static __device__ __forceinline__ float norm_factor(const struct matvec &m,
                                                    const float squares[N_WARP])
{
    if (!m.norm)
        return 1.0f;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N_WARP; i++)
        sum += squares[i];
    return rsqrtf(of_squares(sum / (float)m.w[0].n_cols + m.eps));
}

// This block's share of the pairs of one weight type, and what becomes of it.
template <int NCOL> struct share {
    uint32_t first, n; // pairs
    uint32_t n_step;   // of a pair
    // Of each pair: the sums of the warp in whose steps it begins, that warp, and the one in whose
    // steps it ends; what the warps after the first have of it is in their heads.
    float (*sums)[2][TILE_ROWS][NCOL];  // (n)
    float (*heads)[2][TILE_ROWS][NCOL]; // (warps)
    uint8_t (*warps)[2];                // (n)

    // The first step of warp w: the warps have equal parts, or nearly.
    __device__ __forceinline__ uint32_t begin(uint32_t w) const
    {
        const uint32_t total = n * n_step;
        return total >= n_warp<NCOL>() ? w * total / n_warp<NCOL>() : min(w, total);
    }
};

// Of this block's pairs those of the parts [part0, part1); ALL: these are all there are.
template <int NCOL, bool ALL>
static __device__ __forceinline__ struct share<NCOL> block_share(const struct matvec_grid &g,
                                                                 uint32_t part0, uint32_t part1) {
    struct share<NCOL> s;
    s.first = g.blocks.begin(blockIdx.x);
    uint32_t end = g.blocks.begin(blockIdx.x + 1);
    if (!ALL) {
        s.first = max(s.first, g.first_pair[part0]);
        end = max(s.first, min(end, g.first_pair[part1]));
    }
    s.n = end - s.first;
    s.n_step = g.n_step;
    return s;
}

// This warp's steps. `begin` is called once, after the first weights have been requested; false:
// there is nothing to do.
template <uint32_t TYPE, int NCOL, int KIND, typename F>
static __device__ __forceinline__ bool multiply(const struct matvec &m, const struct matvec_grid &g,
                                                const struct share<NCOL> &s, const uint8_t *act,
                                                size_t act_stride, F begin)
{
    constexpr int N = n_ahead(TYPE, NCOL);
    constexpr uint32_t X = act_chunk_bytes(TYPE), STEP = 4 * N; // chunks
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    const uint32_t row = lane % TILE_ROWS, c0 = lane / TILE_ROWS, n_chunk = m.w[0].n_chunk;
    uint32_t left = s.begin(warp + 1) - s.begin(warp);
    uint32_t pair = g.steps.divide(s.begin(warp)), step = s.begin(warp) - pair * s.n_step;
    uint32_t c = step * STEP + c0;
    struct row_pair rows;
    batch<TYPE, N> now, next;
    if (left) {
        rows = row_at<TYPE>(m, locate<KIND>(m, g, s.first + pair), row, c);
        load_batch<TYPE, N>(rows, c, n_chunk, now);
    }
    if (!begin())
        return false;

    float(*to)[TILE_ROWS][NCOL] = step ? s.heads[warp] : s.sums[pair];
    float acc[2][NCOL] = {};
#pragma unroll 1
    while (left > 0) {
        left--;
        if (step == 0 && lane == 0)
            s.warps[pair][0] = (uint8_t)warp;
        const bool ends = ++step == s.n_step;
        if (left > 0) {
            if (ends)
                rows = row_at<TYPE>(m, locate<KIND>(m, g, s.first + pair + 1), row, c0);
            else
#pragma unroll
                for (int i = 0; i < 2; i++)
                    tile_move<TYPE>(rows.t[i], c, c + STEP);
            load_batch<TYPE, N>(rows, ends ? c0 : c + STEP, n_chunk, next);
        }
        const uint8_t *x = act + c * X;
#pragma unroll
        for (int u = 0; u < N; u++)
            if (c + 4 * u < n_chunk) {
                dot_chunk<TYPE, NCOL>(now.k[0][u], x + 4 * u * X, act_stride, m.n_col, acc[0]);
                dot_chunk<TYPE, NCOL>(now.k[1][u], x + 4 * u * X, act_stride, m.n_col, acc[1]);
            }
        now = next;
        c += STEP;
        if (ends || left == 0) { // lanes with the same row: add up the four chunk positions
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int col = 0; col < NCOL; col++) {
                    float v = acc[t][col];
                    v += __shfl_xor_sync(ALL_LANES, v, 8);
                    v += __shfl_xor_sync(ALL_LANES, v, 16);
                    if (lane < TILE_ROWS)
                        to[t][row][col] = v;
                    acc[t][col] = 0.0f;
                }
            if (ends && lane == 0)
                s.warps[pair][1] = (uint8_t)warp;
            pair++;
            to = s.sums[pair];
            step = 0;
            c = c0;
        }
    }
    return true;
}

// Where row i of the block's share goes; GATED: gate's. Row i: of pair i >> shift, there of tile
// tile_of(i).
struct place {
    uint32_t part, row; // row: UINT32_MAX: there is none
};

template <int KIND> static __device__ __forceinline__ uint32_t pair_shift(const struct matvec &m)
{
    return is_gated<KIND>(m) ? 3 : 4;
}

template <int KIND>
static __device__ __forceinline__ uint32_t tile_of(const struct matvec &m, uint32_t i)
{
    return is_gated<KIND>(m) ? 0 : i / TILE_ROWS % 2;
}

template <int KIND, int NCOL>
static __device__ __forceinline__ struct place place_of(const struct matvec &m,
                                                        const struct matvec_grid &g,
                                                        const struct share<NCOL> &s, uint32_t i)
{
    const uint32_t pair = i >> pair_shift<KIND>(m), t = tile_of<KIND>(m, i), r = i % TILE_ROWS;
    struct place p = {0, UINT32_MAX};
    if (pair >= s.n)
        return p;
    const struct tile_pair q = locate<KIND>(m, g, s.first + pair);
    const uint32_t tile = t ? q.tile[1] : q.tile[0];
    p.part = q.matrix[0];
    if (tile * TILE_ROWS + r < m.w[p.part].rows && !(t && q.tile[1] == q.tile[0]))
        p.row = tile * TILE_ROWS + r;
    return p;
}

// What is added to the product: the bias, which no kernel writes, and what is there already.
template <int KIND>
static __device__ __forceinline__ float bias_at(const struct matvec &m, const struct place &p)
{
    const float *bias = is_gated<KIND>(m) ? NULL : m.bias[p.part];
    return bias && p.row != UINT32_MAX ? bias[p.row] : 0.0f;
}

template <int KIND>
static __device__ __forceinline__ float sum_at(const struct matvec &m, const struct place &p,
                                               uint32_t col)
{
    return KIND != GATE_AND_UP && m.mode == MATVEC_ADD && p.row != UINT32_MAX
               ? m.y[p.part][(size_t)col * m.ld[p.part] + p.row]
               : 0.0f;
}

// The sums of row r of N tiles of a pair, from tile t on, of all warps that have steps of it.
template <int N, int NCOL>
static __device__ __forceinline__ void row_sums(const struct share<NCOL> &s, uint32_t pair,
                                                uint32_t t, uint32_t r, int col, float v[N])
{
    constexpr uint32_t AT_ONCE = 4; // more have their code fetched for nothing where warps are few
    const uint32_t first = s.warps[pair][0], last = s.warps[pair][1];
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = s.sums[pair][t + k][r][col];
#pragma unroll 1
    for (uint32_t w = first + 1; w <= last; w += AT_ONCE) {
        float head[AT_ONCE][N] = {};
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int k = 0; k < N; k++)
                if (w + i <= last)
                    head[i][k] = s.heads[w + i][t + k][r][col];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int k = 0; k < N; k++)
                if (w + i <= last)
                    v[k] += head[i][k];
    }
}

// Finishes the rows of a share, one per thread at a time; p, add: this thread's first, and what is
// added to its first column.
template <int KIND, bool ADD, int NCOL>
static __device__ __forceinline__ void finish(const struct matvec &m, const struct matvec_grid &g,
                                              const struct share<NCOL> &s, float norm,
                                              struct place p, float add)
{
    uint32_t i = threadIdx.x;
    if (i >> pair_shift<KIND>(m) >= s.n)
        return;
#pragma unroll 1
    for (;;) {
        const uint32_t pair = i >> pair_shift<KIND>(m), t = tile_of<KIND>(m, i), r = i % TILE_ROWS;
#pragma unroll
        for (int col = 0; col < NCOL; col++) {
            if (col >= (int)m.n_col || p.row == UINT32_MAX)
                break;
            float v;
            if (is_gated<KIND>(m)) {
                float sum[2];
                row_sums<2>(s, pair, 0, r, col, sum);
                v = activate(m.act, norm * g.scale[0] * sum[0]) * (norm * g.scale[1]) * sum[1];
            } else {
                row_sums<1>(s, pair, t, r, col, &v);
                v = __fmul_rn(norm * g.scale[p.part], v); // never one rounding with what is added
                if (ADD && m.mode == MATVEC_TIMES)
                    v = activate(m.act, v) * add;
                else
                    v += col == 0 ? add : bias_at<KIND>(m, p) + sum_at<KIND>(m, p, col);
            }
            m.y[p.part][(size_t)col * m.ld[p.part] + p.row] = v;
        }
        i += n_warp<NCOL>() * WARP;
        if (i >> pair_shift<KIND>(m) >= s.n)
            return;
        p = place_of<KIND>(m, g, s, i);
        add = bias_at<KIND>(m, p) + sum_at<KIND>(m, p, 0);
    }
}

// The block's share of the pairs of the parts [part0, part1), all of type TYPE, to the end. `begin`
// makes the input ready and calls what it is given as prepare_input does; false: there is nothing
// to do. squares: see prepare_input.
template <uint32_t TYPE, int NCOL, int KIND, bool ADD, bool ALL, typename F>
static __device__ __forceinline__ bool
multiply_parts(const struct matvec &m, const struct matvec_grid &g, uint32_t part0, uint32_t part1,
               uint8_t *smem, const uint8_t *act, size_t act_stride,
               const float squares[n_warp<NCOL>()], F begin)
{
    __shared__ float heads[n_warp<NCOL>()][2][TILE_ROWS][NCOL];
    struct share<NCOL> s = block_share<NCOL, ALL>(g, part0, part1);
    s.sums = reinterpret_cast<float(*)[2][TILE_ROWS][NCOL]>(smem + g.sums_at);
    s.warps = reinterpret_cast<uint8_t(*)[2]>(smem + g.warps_at);
    s.heads = heads;
    if (s.n == 0)
        return true;
    // asked for as early as can be: to wait for them at the end costs a round trip to L2
    float bias = 0.0f, sum = 0.0f;
    const auto ask = [&] {
        const struct place first = place_of<KIND>(m, g, s, threadIdx.x);
        bias = bias_at<KIND>(m, first);
        sum = sum_at<KIND>(m, first, 0);
    };
    const bool any =
        multiply<TYPE, NCOL, KIND>(m, g, s, act, act_stride, [&] { return begin(ask); });
    if (!any)
        return false;
    // while others are still at the product; again, since it need not stay in registers
    const struct place p = place_of<KIND>(m, g, s, threadIdx.x);
    float norm = 1.0f;
    if (NCOL == 1 && threadIdx.x >> pair_shift<KIND>(m) < s.n)
        norm = norm_factor<n_warp<NCOL>()>(m, squares);
    __syncthreads();
    finish<KIND, ADD>(m, g, s, norm, p, bias + sum);
    return true;
}

// Grid: blocks_per_sm per multiprocessor, fewer where there are fewer pairs. Dynamic shared memory:
// the input (one column), then what share points to.
template <uint32_t TA, uint32_t TB, int NCOL, int ADD, int KIND>
static __global__ void __launch_bounds__(n_warp<NCOL>() * WARP, NCOL == 2 ? 2 : 1)
    matvec_kernel(const __grid_constant__ struct matvec m,
                  const __grid_constant__ struct matvec_grid g)
{
    constexpr int N_WARP = n_warp<NCOL>();
    __shared__ float squares[N_WARP];
    griddep_launch_dependents();
    uint8_t *smem = dynamic_smem<uint8_t>();
    const uint8_t *act = smem;
    size_t stride = 0;
    if constexpr (NCOL > 1) {
        act = static_cast<const uint8_t *>(is_plain(TA) ? m.act_f32 : m.act32);
        stride = is_plain(TA) ? act_f32_ld(m.w[0].n_cols) * sizeof(float)
                              : m.w[0].n_chunk * sizeof(act32);
    }
    bool begun = false;
    auto begin = [&](auto more) {
        if (begun) {
            __syncthreads(); // the sums of the first type have been read
            more();
            return true;
        }
        begun = true;
        if constexpr (NCOL == 1)
            return prepare_input<TA, N_WARP, ADD>(m, smem, squares, more);
        griddep_wait();
        more();
        return true;
    };
    if (!multiply_parts<TA, NCOL, KIND, (ADD > 0), TA == TB>(m, g, 0, g.n_same, smem, act, stride,
                                                             squares, begin))
        return;
    if constexpr (TA != TB) // few blocks have both
        multiply_parts<TB, NCOL, KIND, (ADD > 0), false>(m, g, g.n_same, m.n_part, smem, act,
                                                         stride, squares, begin);
}

// ---- launchers

size_t act_row_bytes(uint32_t type, uint32_t n_cols)
{
    return is_plain(type) ? act_f32_ld(n_cols) * sizeof(float) : n_cols / 32 * sizeof(act32);
}

// As few blocks for the pairs of one matrix as can be without one that has more to do: of 16 warps
// eight have nothing where a pair has eight steps, and where some blocks have two pairs, those that
// have one end soon for nothing. The multiprocessors left over are there for the next launch. Only
// from a quarter of them on, and not more than half: what brings the weights are all of them.
static uint32_t enough_blocks(uint32_t n, uint32_t n_pair, uint32_t n_step, uint32_t n_sm)
{
    const uint32_t longest = div_up(div_up(n_pair, n) * n_step, (uint32_t)n_warp<1>());
    const uint32_t enough = div_up(n_pair, longest * n_warp<1>() / n_step);
    return 20 * enough >= 9 * n_sm && 4 * enough <= 3 * n_sm ? lesser(enough, n) : n;
}

// The number of blocks, and what each has in dynamic shared memory, for n_pair pairs of n_chunk
// chunks. alone: of one matrix.
struct matvec_blocks {
    uint32_t n, sums_at, warps_at;
    size_t smem; // bytes
};

template <int NCOL>
static struct matvec_blocks blocks_for(const struct queue *q, uint32_t type, uint32_t n_cols,
                                       uint32_t n_chunk, uint32_t n_pair, bool alone)
{
    const size_t pair_bytes = sizeof(float[2][TILE_ROWS][NCOL]);
    const uint32_t at_once = lesser(n_pair, (uint32_t)(q->n_sm * blocks_per_sm<NCOL>()));
    const uint32_t at_least = div_up(n_pair, (uint32_t)(SUMS_BYTES / pair_bytes));
    struct matvec_blocks b;
    b.n = at_once > at_least ? at_once : at_least;
    if (NCOL == 1 && alone)
        b.n = enough_blocks(b.n, n_pair, div_up(n_chunk, 4u * n_ahead(type, NCOL)),
                            (uint32_t)q->n_sm);
    const uint32_t n_share = div_up(n_pair, b.n);
    b.sums_at = NCOL == 1 ? (uint32_t)act_row_bytes(type, n_cols) : 0;
    b.warps_at = b.sums_at + (uint32_t)((n_share + 1) * pair_bytes);
    b.smem = b.warps_at + n_share * sizeof(uint8_t[2]);
    return b;
}

bool matvec_row_fits(const struct queue *q, const struct matvec *m)
{
    // What the kernel itself declares: heads of two weight types, squares, alignment.
    const size_t declared = 2 * sizeof(float[n_warp<1>()][2][TILE_ROWS]) + 1024;
    uint32_t n_pair = 0;
    for (uint32_t i = 0; i < (m->mode == MATVEC_GATED ? 1 : m->n_part); i++)
        n_pair += m->mode == MATVEC_GATED ? m->w[i].n_tile : div_up(m->w[i].n_tile, 2u);
    for (uint32_t i = 0; i < m->n_part; i++)
        if (blocks_for<1>(q, m->w[i].type, m->w[i].n_cols, m->w[i].n_chunk, n_pair, m->n_part == 1)
                    .smem +
                declared >
            q->smem_max)
            return false;
    return true;
}

template <uint32_t TA, uint32_t TB, int NCOL, int ADD = 0>
static bool launch(const struct queue *q, const struct matvec *m, const struct matvec_grid *g,
                   struct error *err)
{
    const uint32_t n_pair = g->first_pair[m->mode == MATVEC_GATED ? 1 : m->n_part];
    const struct matvec_blocks b =
        blocks_for<NCOL>(q, TA, m->w[0].n_cols, m->w[0].n_chunk, n_pair, m->n_part == 1);
    struct matvec_grid grid = *g;
    grid.sums_at = b.sums_at;
    grid.warps_at = b.warps_at;
    grid.n_step = div_up(m->w[0].n_chunk, 4u * n_ahead(TA, NCOL));
    grid.blocks = shares_of(n_pair, b.n);
    grid.steps = divisor_of(grid.n_step);
    bool fits = b.n <= SHARES_MOST;
    for (uint32_t i = 0; i < m->n_part; i++)
        fits &= (uint64_t)m->w[i].n_tile * m->w[i].n_chunk < UINT32_MAX / TILE_ROWS;
    if (!fits)
        return error_set(err, ERR_FAIL, "CUDA: a matrix of %u tiles of %u chunks is too large",
                         m->w[0].n_tile, m->w[0].n_chunk);
    for (uint32_t i = 0; i < m->n_part; i++)
        grid.scale[i] = m->w[i].scale * (m->mode == MATVEC_ADD ? scale_or_one(m->scale) : 1.0f);
    struct launch l = {.name = "matvec",
                       .grid = dim3(b.n),
                       .block = dim3(n_warp<NCOL>() * WARP),
                       .smem = b.smem,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    struct matvec args = *m;
    args.add.scale = scale_or_one(m->add.scale);
    if constexpr (NCOL == 1 && ADD == 0) {
        if constexpr (TA == TB) {
            if (m->mode == MATVEC_GATED)
                return launch_kernel(err, l, matvec_kernel<TA, TB, 1, 0, GATE_AND_UP>, args, grid);
            if (m->n_part == 1)
                return launch_kernel(err, l, matvec_kernel<TA, TB, 1, 0, ONE_MATRIX>, args, grid);
        }
        return launch_kernel(err, l, matvec_kernel<TA, TB, 1, 0, MATRICES>, args, grid);
    } else {
        return launch_kernel(err, l, matvec_kernel<TA, TB, NCOL, ADD, ANY_KIND>, args, grid);
    }
}

// Mixtures of types that the usual quantisers make within one layer's Q, K and V: the second type
// is V's. Others are launched one after the other.
template <uint32_t TA, int ADD>
static bool launch_mixed(const struct queue *q, const struct matvec *m, const struct matvec_grid *g,
                         uint32_t second, bool *known, struct error *err)
{
    *known = true;
    if constexpr (TA == QUANT_Q2_K) {
        if (second == QUANT_Q3_K)
            return launch<TA, QUANT_Q3_K, 1, ADD>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q3_K) {
        if (second == QUANT_Q4_K)
            return launch<TA, QUANT_Q4_K, 1, ADD>(q, m, g, err);
        if (second == QUANT_Q5_K)
            return launch<TA, QUANT_Q5_K, 1, ADD>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q4_K || TA == QUANT_Q5_K) {
        if (second == QUANT_Q6_K)
            return launch<TA, QUANT_Q6_K, 1, ADD>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q5_0 || TA == QUANT_Q5_1) {
        if (second == QUANT_Q8_0)
            return launch<TA, QUANT_Q8_0, 1, ADD>(q, m, g, err);
    }
    *known = false;
    return false;
}

bool matvec_launch(const struct queue *q, const struct matvec *m, struct error *err)
{
    struct matvec_grid g = {};
    uint32_t n_part = m->n_part, n_pair = 0;
    // of what is added: a group for a thread; wider ones need the registers of a second type
    const bool few = m->w[0].n_cols <= 8 * n_warp<1>() * WARP;
    g.n_same = 0;
    while (g.n_same < n_part && m->w[g.n_same].type == m->w[0].type)
        g.n_same++;
    if (m->mode == MATVEC_GATED) {
        if (g.n_same == 1) // gate and up of different types: the caller multiplies them apart
            return error_set(err, ERR_FAIL, "CUDA: gate and up of two weight types in one launch");
        n_pair = m->w[0].n_tile;
        g.first_pair[1] = g.first_pair[2] = n_pair;
        g.n_same = 1;
    } else {
        for (uint32_t i = 0; i < n_part; i++) {
            n_pair += div_up(m->w[i].n_tile, 2u);
            g.first_pair[i + 1] = n_pair;
        }
    }
    if (m->mode != MATVEC_GATED && g.n_same < n_part) {
        bool known = false, same = true;
        for (uint32_t i = g.n_same + 1; i < n_part; i++)
            same &= m->w[i].type == m->w[g.n_same].type;
        if (m->x && same && (!m->add.y || few)) {
            uint32_t second = m->w[g.n_same].type;
            bool ok = with_type(m->w[0].type, [&](auto tag) {
                constexpr uint32_t T = decltype(tag)::value;
                return m->add.y ? launch_mixed<T, 1>(q, m, &g, second, &known, err)
                                : launch_mixed<T, 0>(q, m, &g, second, &known, err);
            });
            if (known)
                return ok;
        }
        struct matvec first = *m, rest = *m; // no such mixture: two launches
        first.n_part = g.n_same;
        rest.n_part = n_part - g.n_same;
        for (uint32_t i = 0; i < rest.n_part; i++) {
            rest.w[i] = m->w[g.n_same + i];
            rest.bias[i] = m->bias[g.n_same + i];
            rest.y[i] = m->y[g.n_same + i];
            rest.ld[i] = m->ld[g.n_same + i];
        }
        return matvec_launch(q, &first, err) && matvec_launch(q, &rest, err);
    }
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t T = decltype(tag)::value;
        return m->add.y && few              ? launch<T, T, 1, 1>(q, m, &g, err)
               : m->add.y                   ? launch<T, T, 1, KEEP>(q, m, &g, err)
               : m->x                       ? launch<T, T, 1>(q, m, &g, err)
               : !m->alike && m->n_col <= 2 ? launch<T, T, 2>(q, m, &g, err)
               : !m->alike && m->n_col <= 4 ? launch<T, T, 4>(q, m, &g, err)
                                            : launch<T, T, 8>(q, m, &g, err);
    });
}
