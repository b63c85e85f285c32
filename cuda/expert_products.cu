// Products with the matrices of chosen experts, which are known in device memory alone.
//
// One row, what decoding waits for: as in matvec.cu a block has equal shares of the work, and its
// warps equal shares of the steps along the rows of weights; but a piece of work is a tile (of gate
// and up: two) of one of the chosen experts. Where experts are summed up a block has all of them of
// its tiles, and adds them in their order. The choice comes from the launch before, so that weights
// cannot be asked for before it has ended; they are asked for before the input is prepared.
//
// Several rows: those of an expert are multiplied together, up to per_item at a time. Whatever else
// is in a chunk, a row's product is the same sum in the same order.
#include "activation.cuh"
#include "experts.h"
#include "quant.cuh"

enum {
    ROW_WARPS = 16,     // of a block for one row: one per multiprocessor
    SUMS_BYTES = 24576, // of a block's pieces, at most: then there are more blocks
    ROWS_WARPS = 8,     // of a block for several rows: a tile each
    MANY = 8,           // rows of an item that are multiplied at once
};

// ---- one row

// Chunks that a lane asks for at a time per matrix.
static constexpr __host__ __device__ int n_ahead(uint32_t type)
{
    return is_plain(type) ? 4 : 2;
}

// How a launch is cut up; made by the launcher.
struct row_grid {
    uint32_t sums_at, warps_at; // in dynamic shared memory, see pieces
};

// This block's pieces, numbered from `first` on: piece i is tile i / n_slot of slot i % n_slot.
template <int T> struct pieces {
    uint32_t first, n, n_step; // steps of a piece
    // Of each piece: the sums of the warp in whose steps it begins, that warp, and the one in whose
    // steps it ends; what the warps after the first have of it is in their heads.
    float (*sums)[T][TILE_ROWS];  // (n)
    float (*heads)[T][TILE_ROWS]; // (warps)
    uint8_t (*warps)[2];          // (n)

    // The first step of warp w: the warps have equal parts, or nearly.
    __device__ __forceinline__ uint32_t begin(uint32_t w) const
    {
        const uint32_t total = n * n_step, n_used = min(total, (uint32_t)ROW_WARPS);
        return w < n_used ? (uint32_t)((uint64_t)w * total / n_used) : total;
    }

    // The sum of row r, of all warps that have steps of it.
    __device__ __forceinline__ float row_sum(uint32_t piece, uint32_t t, uint32_t r) const
    {
        float v = sums[piece][t][r];
        const uint32_t last = warps[piece][1];
        for (uint32_t w = warps[piece][0] + 1; w <= last; w++)
            v += heads[w][t][r];
        return v;
    }
};

// The first of `whole` things that block b of n has.
static __device__ __forceinline__ uint32_t block_begin(uint32_t whole, uint32_t b, uint32_t n)
{
    return (uint32_t)((uint64_t)whole * b / n);
}

static __device__ __forceinline__ uint32_t matrix_of(const struct expert_row &m, uint32_t slot)
{
    return m.chosen ? m.chosen[slot] : slot;
}

// The rows of x, times the norm's weights, in the form that TYPE multiplies with, into shared
// memory. Returns what is left to multiply products with: RMSNorm's factor.
template <uint32_t TYPE>
static __device__ __forceinline__ float prepare_rows(const struct expert_row &m, uint8_t *act,
                                                     float squares[ROW_WARPS])
{
    constexpr uint32_t THREADS = ROW_WARPS * WARP;
    const uint32_t n = m.w[0].n_cols, n_row = m.own_rows ? m.n_slot : 1;
    const uint32_t per_row = (is_plain(TYPE) ? act_f32_ld(n) : n) / 8;
    const uint32_t n_group = n_row * per_row;
    float sum = 0.0f;
#pragma unroll 1
    for (uint32_t base = 0; base < n_group; base += THREADS) {
        const uint32_t i = base + threadIdx.x, row = i / per_row, at = i % per_row;
        const bool valid = i < n_group;
        float v[8] = {}, weight[8];
        if (valid)
            load8<is_plain(TYPE)>(m.x + (size_t)row * n, at, n, v);
        if (m.norm && valid) {
            load8<is_plain(TYPE)>(m.norm, at, n, weight);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                sum = fmaf(v[e], v[e], sum);
                v[e] *= weight[e];
            }
        }
        if constexpr (is_plain(TYPE)) {
            float4 *out = reinterpret_cast<float4 *>(act) + 2 * i;
            if (valid) {
                out[0] = make_float4(v[0], v[1], v[2], v[3]);
                out[1] = make_float4(v[4], v[5], v[6], v[7]);
            }
        } else { // four lanes per chunk, eight values each
            quantize_act(v, reinterpret_cast<act32 *>(act) + (valid ? i / 4 : 0), valid);
        }
    }
    if (m.norm) {
        for (int d = WARP / 2; d > 0; d /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
        if (threadIdx.x % WARP == 0)
            squares[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (!m.norm)
        return 1.0f;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_WARPS; i++)
        sum += squares[i];
    return rsqrtf(sum / (float)n + m.eps);
}

template <uint32_t TYPE, int T> struct row_batch {
    chunk<TYPE> k[T][n_ahead(TYPE)];
};

// Asks for chunks c, c + 4, ... of the rows, which stand at chunk c, as far as they go.
template <uint32_t TYPE, int T>
static __device__ __forceinline__ void load_batch(const struct tile_row t[T], uint32_t c,
                                                  uint32_t n_chunk, row_batch<TYPE, T> &b)
{
#pragma unroll
    for (int u = 0; u < n_ahead(TYPE); u++)
        if (c + 4 * u < n_chunk) {
#pragma unroll
            for (int i = 0; i < T; i++)
                load_chunk<TYPE>(t[i], 4 * u, b.k[i][u]);
        }
}

// This warp's steps; prepare() is called once, after the first weights have been asked for.
template <uint32_t TYPE, int T, typename F>
static __device__ __forceinline__ void
multiply(const struct expert_row &m, const struct pieces<T> &s, const uint8_t *act, F prepare)
{
    constexpr int N = n_ahead(TYPE);
    constexpr uint32_t X = act_chunk_bytes(TYPE), STEP = 4 * N; // chunks
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane % TILE_ROWS, c0 = lane / TILE_ROWS, n_chunk = m.w[0].n_chunk;
    const size_t act_row = m.own_rows ? (is_plain(TYPE) ? act_f32_ld(m.w[0].n_cols) * sizeof(float)
                                                        : n_chunk * sizeof(act32))
                                      : 0;
    uint32_t left = s.begin(warp + 1) - s.begin(warp);
    uint32_t piece = left ? s.begin(warp) / s.n_step : 0;
    uint32_t step = left ? s.begin(warp) % s.n_step : 0;
    uint32_t c = step * STEP + c0, slot = 0, next_slot = 0;
    struct tile_row rows[T] = {};
    row_batch<TYPE, T> now, next;
    // Goes to chunk `to` of a piece.
    auto stand_at = [&](uint32_t p, uint32_t to) {
        const uint32_t i = s.first + p, tile = i / m.n_slot;
        next_slot = i - tile * m.n_slot;
        const uint32_t at = matrix_of(m, next_slot) * m.w[0].n_tile + tile;
#pragma unroll
        for (int k = 0; k < T; k++) {
            rows[k] = tile_begin<TYPE>(m.w[k], at, r);
            tile_move<TYPE>(rows[k], 0, to);
        }
    };
    if (left) {
        stand_at(piece, c);
        slot = next_slot;
        load_batch<TYPE, T>(rows, c, n_chunk, now);
    }
    prepare();

    float(*to)[TILE_ROWS] = step ? s.heads[warp] : s.sums[piece];
    float acc[T] = {};
#pragma unroll 1
    while (left > 0) {
        left--;
        if (step == 0 && lane == 0)
            s.warps[piece][0] = (uint8_t)warp;
        const bool ends = ++step == s.n_step;
        if (left > 0) {
            if (ends) {
                stand_at(piece + 1, c0);
            } else {
#pragma unroll
                for (int k = 0; k < T; k++)
                    tile_move<TYPE>(rows[k], c, c + STEP);
            }
            load_batch<TYPE, T>(rows, ends ? c0 : c + STEP, n_chunk, next);
        }
        const uint8_t *x = act + slot * act_row + c * X;
#pragma unroll
        for (int u = 0; u < N; u++)
            if (c + 4 * u < n_chunk) {
#pragma unroll
                for (int k = 0; k < T; k++)
                    dot_chunk<TYPE, 1>(now.k[k][u], x + 4 * u * X, 0, 1, &acc[k]);
            }
        now = next;
        slot = next_slot;
        c += STEP;
        if (ends || left == 0) { // lanes with the same row: add up the four chunk positions
#pragma unroll
            for (int k = 0; k < T; k++) {
                float v = acc[k];
                v += __shfl_xor_sync(0xFFFFFFFFu, v, 8);
                v += __shfl_xor_sync(0xFFFFFFFFu, v, 16);
                if (lane < TILE_ROWS)
                    to[k][r] = v;
                acc[k] = 0.0f;
            }
            if (ends && lane == 0)
                s.warps[piece][1] = (uint8_t)warp;
            piece++;
            to = s.sums[piece];
            step = 0;
            c = c0;
        }
    }
}

// W x + bias of row `row` of a piece's matrix i, which is that of `slot`.
template <int T>
static __device__ __forceinline__ float finished(const struct expert_row &m,
                                                 const struct pieces<T> &s, uint32_t piece, int i,
                                                 uint32_t slot, uint32_t row, float norm)
{
    const float v = norm * s.row_sum(piece, i, row % TILE_ROWS);
    if (!m.bias[i])
        return v;
    return v + m.bias[i][(size_t)matrix_of(m, slot) * m.w[0].rows + row];
}

// Every piece's rows by themselves.
template <int T>
static __device__ __forceinline__ void finish_each(const struct expert_row &m,
                                                   const struct pieces<T> &s, float norm)
{
    for (uint32_t i = threadIdx.x; i < s.n * TILE_ROWS; i += ROW_WARPS * WARP) {
        const uint32_t piece = i / TILE_ROWS, at = s.first + piece;
        const uint32_t tile = at / m.n_slot, slot = at % m.n_slot;
        const uint32_t row = tile * TILE_ROWS + i % TILE_ROWS;
        if (row >= m.w[0].rows)
            continue;
        const float f = m.weight ? norm * m.weight[slot] : norm;
        float v = finished<T>(m, s, piece, 0, slot, row, f);
        if constexpr (T == 2)
            v = gated(m.act, m.xielu, v, finished<T>(m, s, piece, 1, slot, row, f));
        m.y[(size_t)slot * m.w[0].rows + row] = v;
    }
}

// The rows of the tiles, summed over the slots.
static __device__ __forceinline__ void finish_sums(const struct expert_row &m,
                                                   const struct pieces<1> &s, float norm)
{
    const struct expert_sum &to = m.sum;
    for (uint32_t i = threadIdx.x; i < s.n / m.n_slot * TILE_ROWS; i += ROW_WARPS * WARP) {
        const uint32_t tile = i / TILE_ROWS;
        const uint32_t row = s.first / m.n_slot * TILE_ROWS + i;
        if (row >= m.w[0].rows)
            continue;
        float sum = 0.0f;
        if (to.shared)
            sum = to.shared[row] * (to.shared_weight ? *to.shared_weight : 1.0f);
        for (uint32_t slot = 0; slot < m.n_slot; slot++)
            sum = fmaf(to.weight ? to.weight[slot] : 1.0f,
                       finished<1>(m, s, tile * m.n_slot + slot, 0, slot, row, norm), sum);
        to.y[row] = to.add ? fmaf(to.scale, sum, to.y[row]) : sum;
    }
}

// Grid: a block per multiprocessor, fewer where there is less to do. Dynamic shared memory: the
// input, then what pieces points to.
template <uint32_t TYPE, int T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP, 1)
    expert_row_kernel(const __grid_constant__ struct expert_row m, const struct row_grid g)
{
    __shared__ float squares[ROW_WARPS];
    __shared__ float heads[ROW_WARPS][T][TILE_ROWS];
    uint8_t *smem = dynamic_smem<uint8_t>();
    griddep_launch_dependents();
    griddep_wait(); // nothing can be asked for before it is known of whom
    if (m.skip && *m.skip)
        return;
    const uint32_t n_tile = m.w[0].n_tile;
    const uint32_t of = T == 1 && m.mode == EXPERT_SUM ? m.n_slot : 1; // pieces that stay together
    const uint32_t whole = n_tile * (m.n_slot / of);
    struct pieces<T> s;
    s.first = block_begin(whole, blockIdx.x, gridDim.x) * of;
    s.n = block_begin(whole, blockIdx.x + 1, gridDim.x) * of - s.first;
    s.n_step = div_up(m.w[0].n_chunk, 4u * n_ahead(TYPE));
    s.sums = reinterpret_cast<float(*)[T][TILE_ROWS]>(smem + g.sums_at);
    s.warps = reinterpret_cast<uint8_t(*)[2]>(smem + g.warps_at);
    s.heads = heads;
    float norm = 1.0f;
    multiply<TYPE, T>(m, s, smem, [&] { norm = prepare_rows<TYPE>(m, smem, squares); });
    __syncthreads();
    if constexpr (T == 1) {
        if (m.mode == EXPERT_SUM) {
            finish_sums(m, s, norm);
            return;
        }
    }
    finish_each<T>(m, s, norm);
}

// ---- several rows

// Grid (ceil(tiles / ROWS_WARPS), items, parts).
template <uint32_t TYPE, int N>
static __global__ void __launch_bounds__(ROWS_WARPS *WARP)
    expert_rows_kernel(const __grid_constant__ struct expert_rows m)
{
    constexpr uint32_t X = act_chunk_bytes(TYPE) / 16;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane % TILE_ROWS, part = blockIdx.z;
    const struct wmat &w = m.w[part];
    const uint32_t tile = blockIdx.x * ROWS_WARPS + warp, n_chunk = w.n_chunk;
    griddep_launch_dependents();
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    const uint32_t first = blockIdx.y * m.per_item;
    const struct expert_item item =
        m.items ? m.items[blockIdx.y] : expert_item{0, first, min(m.n_row - first, m.per_item)};
    if (tile >= w.n_tile)
        return;
    const uint32_t act_row =
        is_plain(TYPE) ? act_f32_ld(w.n_cols) / 4 : n_chunk * (uint32_t)(sizeof(act32) / 16);
    const uint8_t *act = static_cast<const uint8_t *>(is_plain(TYPE) ? m.act_f32 : m.act32);
    const uint32_t row = tile * TILE_ROWS + r;
    const float *bias = m.bias[part];
    const float add = bias && row < w.rows ? bias[(size_t)item.expert * w.rows + row] : 0.0f;
#pragma unroll 1
    for (uint32_t done = 0; done < item.n; done += N) {
        const uint32_t place0 = item.first + done, n = min(item.n - done, (uint32_t)N);
        uint32_t x[N]; // of the rows of activations, in units of 16 bytes
#pragma unroll
        for (int i = 0; i < N; i++) { // the sums beyond n repeat the last
            const uint32_t place = place0 + min((uint32_t)i, n - 1);
            x[i] = (m.pair_at ? m.pair_at[place] / m.n_used : place) * act_row;
        }
        struct tile_row t = tile_begin<TYPE>(w, item.expert * w.n_tile + tile, r);
        uint32_t c = lane / TILE_ROWS;
        tile_move<TYPE>(t, 0, c);
        chunk<TYPE> now, next;
        float acc[N] = {};
        if (c < n_chunk)
            load_chunk<TYPE>(t, 0, now);
#pragma unroll 1
        for (; c < n_chunk; c += 4) {
            if (c + 4 < n_chunk) {
                tile_move<TYPE>(t, c, c + 4);
                load_chunk<TYPE>(t, 0, next);
            }
#pragma unroll
            for (int i = 0; i < N; i++)
                dot_chunk<TYPE, 1>(now, act + (size_t)(x[i] + c * X) * 16, 0, 1, &acc[i]);
            now = next;
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            acc[i] += __shfl_xor_sync(0xFFFFFFFFu, acc[i], 8);
            acc[i] += __shfl_xor_sync(0xFFFFFFFFu, acc[i], 16);
            if (lane < TILE_ROWS && row < w.rows && i < (int)n) {
                const uint32_t place = place0 + i;
                const float f = m.weight ? m.weight[m.pair_at[place]] : 1.0f;
                m.y[part][(size_t)place * w.rows + row] =
                    m.weight ? fmaf(f, acc[i], add) : acc[i] + add;
            }
        }
    }
}

// ---- launchers

struct row_blocks {
    uint32_t n;
    struct row_grid at;
    size_t smem; // bytes
};

static struct row_blocks blocks_for(const struct queue *q, const struct expert_row *m)
{
    const struct wmat *w = &m->w[0];
    const bool sums = m->mode == EXPERT_SUM;
    const uint64_t whole = sums ? w->n_tile : (uint64_t)w->n_tile * m->n_slot;
    const uint64_t of = sums ? m->n_slot : 1;
    const uint64_t bytes = (m->mode == EXPERT_GATED ? 2 : 1) * TILE_ROWS * sizeof(float);
    const uint64_t at_least = div_up(whole * of * bytes, (uint64_t)SUMS_BYTES);
    const uint64_t at_once = lesser(whole, (uint64_t)q->n_sm);
    struct row_blocks b;
    b.n = (uint32_t)lesser(at_once > at_least ? at_once : at_least, whole);
    const uint64_t n_piece = div_up(whole, (uint64_t)b.n) * of;
    const size_t act = (m->own_rows ? m->n_slot : 1) * act_row_bytes(w->type, w->n_cols);
    b.smem = act + (n_piece + 1) * bytes + n_piece * sizeof(uint8_t[2]);
    b.at.sums_at = (uint32_t)act;
    b.at.warps_at = (uint32_t)(act + (n_piece + 1) * bytes);
    return b;
}

bool expert_row_fits(const struct queue *q, const struct expert_row *m)
{
    // What the kernel itself declares: heads, squares, alignment.
    const size_t declared = sizeof(float[ROW_WARPS][2][TILE_ROWS]) + 1024;
    return blocks_for(q, m).smem + declared <= q->smem_max;
}

bool expert_row_launch(const struct queue *q, const struct expert_row *m, struct error *err)
{
    const struct row_blocks b = blocks_for(q, m);
    struct launch l = {.name = "expert_row",
                       .grid = dim3(b.n),
                       .block = dim3(ROW_WARPS * WARP),
                       .smem = b.smem,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        return m->mode == EXPERT_GATED
                   ? launch_kernel(err, l, expert_row_kernel<TYPE, 2>, *m, b.at)
                   : launch_kernel(err, l, expert_row_kernel<TYPE, 1>, *m, b.at);
    });
}

bool expert_rows_launch(const struct queue *q, const struct expert_rows *m, struct error *err)
{
    struct launch l = {.name = "expert_rows",
                       .grid =
                           dim3(div_up(m->w[0].n_tile, (uint32_t)ROWS_WARPS), m->n_item, m->n_part),
                       .block = dim3(ROWS_WARPS * WARP),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        if (m->per_item <= EXPERT_FEW)
            return launch_kernel(err, l, expert_rows_kernel<TYPE, EXPERT_FEW>, *m);
        if constexpr (is_plain(TYPE))
            return m->items ? launch_kernel(err, l, expert_rows_kernel<TYPE, MANY>, *m)
                            : expert_plain_launch(q, m, err);
        return expert_tiles_launch(q, m, err);
    });
}
