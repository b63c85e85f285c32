// Quantised matrix times one to eight vectors: what decoding waits for, so everything here serves
// one aim, to keep the memory bus busy with weights.
//
//   - A warp takes a pair of tiles (16 rows; for gate and up, 8 rows of each) and walks along the
//     row: 8 rows x 4 chunks per step, every load 16 bytes per lane and consecutive across the
//     warp. The pair shares the activations a lane has in registers.
//   - The next step's weights are requested before the current ones are used, also across the end
//     of a row and before the kernel's predecessor has ended: weights never depend on it.
//   - Where rows are few, several warps share a pair (warps_per_pair) and add up in a fixed order.
//   - One column: every block normalises and quantises the input for itself. That costs a read of
//     the input from L2 per block, and saves a launch per matrix.
#include "kernels.h"
#include "quant.cuh"

enum {
    THREADS = 256,
    N_WARP = THREADS / WARP,
    BLOCKS_PER_SM = 2,
    PREFETCH_BYTES = 32768, // of plane Q, per block, to L2 while the predecessor still runs
};

// How a launch is cut up; made by the launcher.
struct matvec_grid {
    uint32_t warps_per_pair; // 1, 2, 4 or 8
    uint32_t n_same;         // the first n_same parts have weight type TA, the rest TB
    uint32_t first_pair[MATVEC_MAX_PARTS + 1];
};

// ---- kernels

// The two tiles of a pair.
struct tile_pair {
    const struct wmat *w[2];
    uint32_t tile[2];
    uint32_t part;
};

static __device__ __forceinline__ struct tile_pair
locate(const struct matvec &m, const struct matvec_grid &g, uint32_t pair)
{
    struct tile_pair p;
    if (m.mode == MATVEC_SWIGLU) {
        p.part = 0;
        p.w[0] = &m.w[0];
        p.w[1] = &m.w[1];
        p.tile[0] = p.tile[1] = pair;
    } else {
        p.part = 0;
        while (p.part + 1 < m.n_part && pair >= g.first_pair[p.part + 1])
            p.part++;
        p.w[0] = p.w[1] = &m.w[p.part];
        p.tile[0] = 2 * (pair - g.first_pair[p.part]);
        // an odd number of tiles: the last pair computes its only tile twice
        p.tile[1] = min(p.tile[0] + 1, m.w[p.part].n_tile - 1);
    }
    return p;
}

// Chunks requested at a time per tile and lane: some 32 bytes. Several columns have more to do per
// chunk, and need the registers.
template <uint32_t TYPE, int NCOL> static constexpr __host__ __device__ int n_ahead()
{
    return NCOL > 1 || TYPE == QUANT_Q8_0 ? 1 : TYPE == QUANT_Q2_K ? 3 : 2;
}

template <uint32_t TYPE, int N> struct batch {
    chunk<TYPE> k[2][N];
};

// This lane's row of both tiles.
struct row_pair {
    struct tile_row t[2];
};

template <uint32_t TYPE>
static __device__ __forceinline__ struct row_pair row_begin(const struct tile_pair &p, uint32_t row)
{
    return {{tile_begin<TYPE>(*p.w[0], p.tile[0], row), tile_begin<TYPE>(*p.w[1], p.tile[1], row)}};
}

// Requests chunks c, c + step, ... of both rows, as far as they go.
template <uint32_t TYPE, int N>
static __device__ __forceinline__ void
load_batch(const struct row_pair &p, uint32_t c, uint32_t step, uint32_t n_chunk, batch<TYPE, N> &b)
{
#pragma unroll
    for (int u = 0; u < N; u++)
        if (c + u * step < n_chunk) {
            load_chunk<TYPE>(p.t[0], c + u * step, b.k[0][u]);
            load_chunk<TYPE>(p.t[1], c + u * step, b.k[1][u]);
        }
}

// The sum over the block, in a fixed order.
static __device__ float block_sum(float v)
{
    __shared__ float part[N_WARP];
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, d);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0.0f;
    for (int i = 0; i < N_WARP; i++)
        v += part[i];
    return v;
}

// The input in the form that TYPE multiplies with, into shared memory. False: nothing to do.
template <uint32_t TYPE>
static __device__ __forceinline__ bool prepare_input(const struct matvec &m, uint8_t *act)
{
    griddep_wait(); // from here on the predecessor's results may be read
    if (m.skip && *m.skip)
        return false;
    const float *x = m.x;
    uint32_t n = m.w[0].n_cols, n_chunk = m.w[0].n_chunk;
    float rms = 1.0f;
    if (m.norm) {
        float sum = 0.0f;
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            sum = fmaf(x[i], x[i], sum);
        rms = 1.0f / sqrtf(block_sum(sum) / (float)n + m.eps);
    }
    if constexpr (is_plain(TYPE)) {
        float *out = reinterpret_cast<float *>(act);
        for (uint32_t i = threadIdx.x; i < n_chunk * chunk_elems(TYPE); i += THREADS) {
            float v = i < n ? x[i] * rms : 0.0f;
            out[i] = m.norm && i < n ? v * m.norm[i] : v;
        }
    } else {
        // four lanes per chunk, eight values each
        act32 *out = reinterpret_cast<act32 *>(act);
        for (uint32_t base = 0; base < n_chunk * 4; base += THREADS) {
            uint32_t i = base + threadIdx.x;
            bool valid = i < n_chunk * 4;
            float v[8] = {0};
            if (valid) {
                const float4 *p = reinterpret_cast<const float4 *>(x) + 2 * i;
                float4 a = p[0], b = p[1];
                v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
                v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
                if (m.norm) {
                    const float4 *w = reinterpret_cast<const float4 *>(m.norm) + 2 * i;
                    a = w[0], b = w[1];
                    v[0] *= rms * a.x, v[1] *= rms * a.y, v[2] *= rms * a.z, v[3] *= rms * a.w;
                    v[4] *= rms * b.x, v[5] *= rms * b.y, v[6] *= rms * b.z, v[7] *= rms * b.w;
                }
            }
            quantize_act(v, out + (valid ? i / 4 : 0), valid);
        }
    }
    __syncthreads();
    return true;
}

// Sums of one pair: (warp, tile of the pair, row, column); two buffers, so that one barrier per
// pair is enough.
template <int NCOL> using pair_sums = float[N_WARP][2][TILE_ROWS][NCOL];

// Finishes a pair: lanes 0-7 of its first warp own the rows of the first tile, 8-15 of the second.
template <int NCOL>
static __device__ __forceinline__ void
finish_pair(const struct matvec &m, const struct tile_pair &p, const pair_sums<NCOL> &sums,
            uint32_t warp, uint32_t n_warp, uint32_t lane)
{
    if (lane >= 2 * TILE_ROWS)
        return;
    uint32_t t = lane / TILE_ROWS, r = lane % TILE_ROWS;
    uint32_t row = (t ? p.tile[1] : p.tile[0]) * TILE_ROWS + r; // no run-time index: registers
    bool swiglu = m.mode == MATVEC_SWIGLU;
    if (row >= p.w[0]->rows || (t == 1 && (swiglu || p.tile[1] == p.tile[0])))
        return;
    const float *bias = m.bias[p.part];
    float b = bias ? bias[row] : 0.0f;
#pragma unroll
    for (int col = 0; col < NCOL; col++) {
        if (col >= (int)m.n_col)
            break;
        float v = 0.0f, up = 0.0f;
        for (uint32_t i = 0; i < n_warp; i++) {
            v += sums[warp + i][t][r][col];
            if (swiglu)
                up += sums[warp + i][1][r][col];
        }
        float *y = m.y[p.part] + (size_t)col * m.ld[p.part] + row;
        if (swiglu)
            *y = v / (1.0f + expf(-v)) * up;
        else if (m.mode == MATVEC_ADD)
            *y = *y + (v + b);
        else
            *y = v + b;
    }
}

// All pairs of parts [part0, part1). `begin` is called once, after the first weights have been
// requested; `shift` staggers which warps begin where the previous call's ended.
template <uint32_t TYPE, int NCOL, typename F>
static __device__ __forceinline__ bool
multiply(const struct matvec &m, const struct matvec_grid &g, uint32_t part0, uint32_t part1,
         uint32_t shift, const uint8_t *act, size_t act_stride, pair_sums<NCOL> *sums, F begin)
{
    constexpr int N = n_ahead<TYPE, NCOL>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t row = lane % TILE_ROWS, wpp = g.warps_per_pair;
    const uint32_t n_group = gridDim.x * (N_WARP / wpp); // groups of wpp warps in the grid
    const uint32_t group0 = blockIdx.x * (N_WARP / wpp) + warp / wpp;
    const uint32_t begin_pair = g.first_pair[part0], end_pair = g.first_pair[part1];
    const uint32_t step = wpp * 4; // chunks between two steps of this warp
    const uint32_t base0 = warp % wpp * 4, c0 = base0 + lane / TILE_ROWS;
    const uint32_t n_chunk = m.w[part0].n_chunk;

    // The group's first pair, and the number of turns that every warp of the block makes.
    uint32_t pair = begin_pair + (group0 + n_group - shift % n_group) % n_group;
    uint32_t n_turn = div_up(end_pair - begin_pair, n_group);
    struct row_pair rows = row_begin<TYPE>(locate(m, g, min(pair, end_pair - 1)), row);
    batch<TYPE, N> now, next;
    if (pair < end_pair)
        load_batch<TYPE, N>(rows, c0, step, n_chunk, now);
    if (!begin())
        return false;

    for (uint32_t turn = 0; turn < n_turn; turn++, pair += n_group) {
        float acc[2][NCOL] = {};
        for (uint32_t base = base0; pair < end_pair && base < n_chunk; base += N * step) {
            uint32_t c = base + lane / TILE_ROWS;
            if (base + N * step < n_chunk) {
                load_batch<TYPE, N>(rows, c + N * step, step, n_chunk, next);
            } else if (pair + n_group < end_pair) {
                rows = row_begin<TYPE>(locate(m, g, pair + n_group), row);
                load_batch<TYPE, N>(rows, c0, step, n_chunk, next);
            }
#pragma unroll
            for (int u = 0; u < N; u++)
                if (c + u * step < n_chunk) {
                    const uint8_t *x = act + (c + u * step) * act_chunk_bytes(TYPE);
                    dot_chunk<TYPE, NCOL>(now.k[0][u], x, act_stride, m.n_col, acc[0]);
                    dot_chunk<TYPE, NCOL>(now.k[1][u], x, act_stride, m.n_col, acc[1]);
                }
            now = next;
        }
        // lanes with the same row: add up the four chunk positions
        pair_sums<NCOL> &s = sums[turn % 2];
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int col = 0; col < NCOL; col++) {
                float v = acc[t][col];
                v += __shfl_xor_sync(0xFFFFFFFFu, v, 8);
                v += __shfl_xor_sync(0xFFFFFFFFu, v, 16);
                if (lane < TILE_ROWS)
                    s[warp][t][row][col] = v;
            }
        if (wpp == 1)
            __syncwarp();
        else
            __syncthreads();
        if (warp % wpp == 0 && pair < end_pair)
            finish_pair<NCOL>(m, locate(m, g, pair), s, warp, wpp, lane);
    }
    return true;
}

// Asks for the block's first weights in L2, beyond those that go to registers.
static __device__ __forceinline__ void prefetch_first(const struct matvec &m,
                                                      const struct matvec_grid &g, uint32_t q_bytes)
{
    uint32_t pair = blockIdx.x * (N_WARP / g.warps_per_pair);
    if (pair >= g.first_pair[1])
        return;
    uint32_t tile = m.mode == MATVEC_SWIGLU ? pair : 2 * pair;
    size_t tile_bytes = (size_t)m.w[0].n_chunk * TILE_ROWS * q_bytes;
    uint32_t n_stream = m.mode == MATVEC_SWIGLU ? 2 : 1;
    for (uint32_t i = threadIdx.x; i < PREFETCH_BYTES / 128; i += THREADS) {
        uint32_t stream = i % n_stream;
        size_t at = tile * tile_bytes + i / n_stream * 128;
        if (at < m.w[stream].n_tile * tile_bytes)
            prefetch_l2(m.w[stream].q + at);
    }
}

// Grid: BLOCKS_PER_SM per multiprocessor, fewer where there are fewer pairs.
template <uint32_t TA, uint32_t TB, int NCOL>
static __global__ void __launch_bounds__(THREADS, NCOL > 2 ? 1 : BLOCKS_PER_SM)
    matvec_kernel(const __grid_constant__ struct matvec m,
                  const __grid_constant__ struct matvec_grid g)
{
    __shared__ float sums[2][N_WARP][2][TILE_ROWS][NCOL];
    griddep_launch_dependents();
    const uint8_t *act;
    size_t stride = 0;
    if constexpr (NCOL > 1) {
        act = static_cast<const uint8_t *>(is_plain(TA) ? m.act_f32 : m.act32);
        stride = is_plain(TA) ? act_f32_ld(m.w[0].n_cols) * sizeof(float)
                              : m.w[0].n_chunk * sizeof(act32);
    } else {
        act = dynamic_smem<uint8_t>();
        prefetch_first(m, g, q_bytes<TA>());
    }
    auto begin = [&] {
        if constexpr (NCOL > 1) {
            griddep_wait();
            return true;
        } else {
            return prepare_input<TA>(m, dynamic_smem<uint8_t>());
        }
    };
    if (!multiply<TA, NCOL>(m, g, 0, g.n_same, 0, act, stride, sums, begin))
        return;
    if constexpr (TA != TB) {
        __syncthreads(); // the sums of the last pair have been read
        multiply<TB, NCOL>(m, g, g.n_same, m.n_part, g.first_pair[g.n_same], act, stride, sums,
                           [] { return true; });
    }
}

// ---- launchers

size_t act_row_bytes(uint32_t type, uint32_t n_cols)
{
    return is_plain(type) ? act_f32_ld(n_cols) * sizeof(float) : n_cols / 32 * sizeof(act32);
}

// Warps per pair that waste least: turns of the grid times steps of a warp, plus two steps' worth
// of time to finish a pair.
static uint32_t pick_warps_per_pair(uint32_t n_pair, uint32_t n_chunk, uint32_t n_block_max)
{
    uint32_t best = 1;
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t wpp = 1; wpp <= N_WARP; wpp *= 2) {
        uint64_t turns = div_up(n_pair, n_block_max * (N_WARP / wpp));
        uint64_t cost = turns * (div_up(n_chunk, 4 * wpp) + 2);
        if (cost < best_cost) {
            best_cost = cost;
            best = wpp;
        }
    }
    return best;
}

template <uint32_t TA, uint32_t TB, int NCOL>
static bool launch(const struct queue *q, const struct matvec *m, const struct matvec_grid *g,
                   struct error *err)
{
    uint32_t n_pair = g->first_pair[m->mode == MATVEC_SWIGLU ? 1 : m->n_part];
    uint32_t n_block = div_up(n_pair, N_WARP / g->warps_per_pair);
    uint32_t n_max = (uint32_t)q->n_sm * BLOCKS_PER_SM;
    struct launch l = {.name = "matvec",
                       .grid = dim3(n_block < n_max ? n_block : n_max),
                       .block = dim3(THREADS),
                       .smem = NCOL == 1 ? act_row_bytes(TA, m->w[0].n_cols) : 0,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, matvec_kernel<TA, TB, NCOL>, *m, *g);
}

// Mixtures of types that the usual quantisers make within one layer's Q, K and V: the second type
// is V's. Others are launched one after the other.
template <uint32_t TA>
static bool launch_mixed(const struct queue *q, const struct matvec *m, const struct matvec_grid *g,
                         uint32_t second, bool *known, struct error *err)
{
    *known = true;
    if constexpr (TA == QUANT_Q2_K) {
        if (second == QUANT_Q3_K)
            return launch<TA, QUANT_Q3_K, 1>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q3_K) {
        if (second == QUANT_Q4_K)
            return launch<TA, QUANT_Q4_K, 1>(q, m, g, err);
        if (second == QUANT_Q5_K)
            return launch<TA, QUANT_Q5_K, 1>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q4_K || TA == QUANT_Q5_K) {
        if (second == QUANT_Q6_K)
            return launch<TA, QUANT_Q6_K, 1>(q, m, g, err);
    }
    if constexpr (TA == QUANT_Q5_0 || TA == QUANT_Q5_1) {
        if (second == QUANT_Q8_0)
            return launch<TA, QUANT_Q8_0, 1>(q, m, g, err);
    }
    *known = false;
    return false;
}

bool matvec_launch(const struct queue *q, const struct matvec *m, struct error *err)
{
    struct matvec_grid g = {};
    uint32_t n_part = m->n_part, n_pair = 0;
    g.n_same = 0;
    while (g.n_same < n_part && m->w[g.n_same].type == m->w[0].type)
        g.n_same++;
    if (m->mode == MATVEC_SWIGLU) {
        if (g.n_same == 1) // gate and up of different types: the caller multiplies them apart
            return error_set(err, ERR_FAIL, "CUDA: SwiGLU of two weight types in one launch");
        n_pair = m->w[0].n_tile;
        g.first_pair[1] = g.first_pair[2] = n_pair;
        g.n_same = 1;
    } else {
        for (uint32_t i = 0; i < n_part; i++) {
            n_pair += div_up(m->w[i].n_tile, 2u);
            g.first_pair[i + 1] = n_pair;
        }
    }
    g.warps_per_pair =
        pick_warps_per_pair(n_pair, m->w[0].n_chunk, (uint32_t)q->n_sm * BLOCKS_PER_SM);

    if (m->mode != MATVEC_SWIGLU && g.n_same < n_part) {
        bool known = false, same = true;
        for (uint32_t i = g.n_same + 1; i < n_part; i++)
            same &= m->w[i].type == m->w[g.n_same].type;
        if (m->x && same) {
            uint32_t second = m->w[g.n_same].type;
            bool ok = with_type(m->w[0].type, [&](auto tag) {
                return launch_mixed<decltype(tag)::value>(q, m, &g, second, &known, err);
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
        return m->x            ? launch<T, T, 1>(q, m, &g, err)
               : m->n_col <= 2 ? launch<T, T, 2>(q, m, &g, err)
               : m->n_col <= 4 ? launch<T, T, 4>(q, m, &g, err)
                               : launch<T, T, 8>(q, m, &g, err);
    });
}
