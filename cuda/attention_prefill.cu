// Attention of many tokens, in two launches: the heads' norms and rotations with the cache's new
// rows, then softmax(q k^T) v. A block takes rows (token, query head) of one KV head, 64 or 128 of
// them, and walks over the cache up to its last token: a warp has one or two tiles of 16 rows, all
// warps share the tile of keys, then of values, and while they work on the one the other arrives.
// Where there are few blocks, several share the walk and the last of them merges.
#include "attention.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    N_TEAM = THREADS / TEAM,
    MAX_PART = 16,        // blocks that share the cache
    PART_POSITIONS = 512, // positions that make a part worth while
    FEW_POSITIONS = 1024, // with no more blocks are better twice as many than twice as tall
};

// Tiles of 16 rows per warp: with two, a tile of keys or values that is read from shared memory
// serves two products; head dimensions above 128 have no registers for it. With either number a row
// has the same bits, unless blocks share it.
template <int DH> static constexpr int most_row_tiles()
{
    return DH > 128 ? 1 : 2;
}

// Rows of a block, and positions per step.
template <int DH, int MT> struct shape {
    static constexpr int ROWS = N_WARP * MT * M, T = DH > 128 ? 32 : 64;
};

// Grid (n, heads of q, k and v / N_TEAM): a team per head and token.
template <int DH, bool PLAIN>
static __global__ void __launch_bounds__(THREADS)
    rotate_store_kernel(const __grid_constant__ struct attention a)
{
    __shared__ __align__(8) float buf[N_TEAM][DH];
    const uint32_t team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
    const uint32_t h = blockIdx.y * N_TEAM + team, i = blockIdx.x;
    griddep_launch_dependents();
    const head_norm<DH> norm = load_norm<DH>(a, norm_of<PLAIN>(a, h), lane);
    const struct seq_row at = a.rows[a.each ? i : 0]; // told before the first launch of a pass
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks;
    const uint32_t position = at.pos + (a.each ? 0 : i);
    griddep_wait();
    const float2 *rope = a.rope ? a.rope + (size_t)i * (a.rope_dim / 2) : NULL;
    head_pairs<DH> v;
    if (h < a.n_head) {
        load_head<DH>(a, a.q_in + (size_t)i * a.ld_q + h * query_stride(&a), rope, lane, v);
        finish_head<DH, PLAIN>(a, norm, lane, v);
        store_query<DH, PLAIN>(a, v, position, a.q_f16 + ((size_t)i * a.n_head + h) * DH, lane);
    } else if (h < a.n_head + 2 * a.n_head_kv && (PLAIN || !a.cached)) {
        bool is_k = h < a.n_head + a.n_head_kv;
        uint32_t kv = h - a.n_head - (is_k ? 0 : a.n_head_kv);
        const float *src = (is_k ? a.k_in : a.v_in) + (size_t)i * a.ld_kv + kv * a.head_dim;
        load_head<DH>(a, src, is_k ? rope : NULL, lane, v);
        finish_head<DH, PLAIN>(a, norm, lane, v);
        size_t row = kv_row(table[position / KV_BLOCK], a.n_head_kv, kv, position);
        store_kv<DH>(a, is_k ? a.k : a.v, row, v, buf[team], NULL, lane);
    }
}

// Grid (ceil(n * group / ROWS), n_head_kv, parts). Row r of the block's matrix: token r / group,
// query head r % group of this KV head.
template <int DH, int MT, bool PLAIN>
static __global__ void __launch_bounds__(THREADS, 2)
    attention_prefill_kernel(const __grid_constant__ struct attention a, uint32_t n)
{
    constexpr int LD = tile_ld<DH>(), T = shape<DH, MT>::T, NP = T / 16;
    constexpr uint32_t ROWS = shape<DH, MT>::ROWS;
    __half *const q = dynamic_smem<__half>();                              // (ROWS, LD)
    __half *const k_tile = q + ROWS * LD, *const v_tile = k_tile + T * LD; // (T, LD) each
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t kv_head = blockIdx.y, group = a.n_head / a.n_head_kv;
    // the longest rows first, so that the short ones fill the gaps at the end
    const uint32_t row0 = (gridDim.x - 1 - blockIdx.x) * ROWS, n_row = n * group;
    griddep_launch_dependents();
    const struct seq_row at = *a.rows;
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks, pos0 = at.pos;
    const uint32_t last_row = min(row0 + ROWS, n_row) - 1;
    const uint32_t n_kv = pos0 + last_row / group + 1;
    const uint32_t first = window_begin(a, pos0 + row0 / group) / T * T;
    // this block's share of the tiles: the cut depends on the shapes and the position alone
    const uint32_t all_tiles = div_up(n_kv - first, (uint32_t)T);
    const uint32_t n_part = min(gridDim.z, div_up(all_tiles, (uint32_t)(PART_POSITIONS / T)));
    const uint32_t per_part = div_up(all_tiles, n_part), part = blockIdx.z;
    const uint32_t tile0 = min(part * per_part, all_tiles);
    const uint32_t tile1 = min(tile0 + per_part, all_tiles);
    auto block_of = [&](uint32_t t) { // if there is such a tile
        return t < tile1 ? __ldg(&table[(first + t * T) / KV_BLOCK]) : 0;
    };
    uint32_t kv_block = part < n_part ? block_of(tile0) : 0;
    griddep_wait();
    if (part >= n_part)
        return;

    auto request = [&](const struct kv_plane &plane, uint32_t t, uint32_t block, __half *tile) {
        if (t < tile1) {
            uint32_t first_pos = first + t * T;
            request_rows<DH, T, THREADS>(plane, kv_row(block, a.n_head_kv, kv_head, first_pos),
                                         (int)n_kv - (int)first_pos, tile, threadIdx.x);
        }
        cp_async_commit();
    };
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < ROWS * (DH / 8); i += THREADS) {
        uint32_t r = i / (DH / 8), piece = i % (DH / 8), row = row0 + r;
        bool valid = row < n_row;
        uint32_t head = kv_head * group + row % group;
        size_t at = valid ? ((size_t)(row / group) * a.n_head + head) * DH + piece * 8 : 0;
        cp_async16_or_zero(q + r * LD + piece * 8, a.q_f16 + at, valid);
    }
    request(a.k, tile0, kv_block, k_tile);

    uint32_t begin[MT][2], end[MT][2];
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t row = row0 + (warp * MT + t) * M + lane / 4 + 8 * h, p = pos0 + row / group;
            begin[t][h] = row < n_row ? window_begin(a, p) : 0;
            end[t][h] = row < n_row ? p + 1 : 0;
        }
    // what some row of the warp sees, and what all of its rows see
    const uint32_t warp_row = row0 + warp * MT * M;
    const uint32_t low = pos0 + min(warp_row, last_row) / group;
    const uint32_t high = pos0 + min(warp_row + MT * M - 1, last_row) / group;
    const uint32_t some_begin = window_begin(a, low), all_begin = window_begin(a, high);

    softmax<DH, MT> s;
    softmax_init(s);
    auto arrive = [&](const struct kv_plane &plane, __half *tile) {
        cp_async_wait<0>();
        __syncthreads();
        if (plane.scales)
            widen_rows<DH, T, THREADS>(tile, threadIdx.x, [] { __syncthreads(); });
    };
    for (uint32_t t = tile0; t < tile1; t++) {
        const uint32_t p0 = first + t * T;
        const bool seen = warp_row <= last_row && p0 <= high && p0 + T > some_begin;
        uint32_t p[MT][NP][4];
        arrive(a.k, k_tile); // and everyone is done with the values
        request(a.v, t, kv_block, v_tile);
        kv_block = block_of(t + 1);
        if (seen) {
            scores<MT, NP> c;
            multiply_qk<DH>(c, q + warp * MT * M * LD, k_tile, lane);
            const float undo = PLAIN ? a.score_undo : cap(c, a);
            if (p0 < all_begin || p0 + T > low + 1)
                mask(c, p0, begin, end, lane);
            weigh(s, c, undo, p);
        }
        arrive(a.v, v_tile); // and everyone is done with the keys
        request(a.k, t + 1, kv_block, k_tile);
        if (seen)
            multiply_pv<DH>(s, p, v_tile, lane);
    }

    // (block, part) -> sums (ROWS, DH), then (ROWS, 2) maxima and divisors
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
    constexpr size_t PART_FLOATS = (size_t)ROWS * (DH + 2);
    float *const parts = a.partial + (size_t)block * gridDim.z * PART_FLOATS;
    auto head_of = [&](uint32_t r) { return kv_head * group + (row0 + r) % group; };
    auto token_of = [&](uint32_t r) { return (row0 + r) / group; };
    const bool gated = a.gated && n_part == 1; // else by whoever adds the parts
    // To be packed four by four, results lie in the place of all tiles: (ROWS, O_LD) floats.
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    const bool packed = a.packed.x && n_part == 1;
    float *const tile = reinterpret_cast<float *>(q);
    if (packed)
        __syncthreads();
#pragma unroll
    for (int t = 0; t < MT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = row_sum(s, t, h);
            uint32_t r = (warp * MT + t) * M + lane / 4 + 8 * h, width = a.head_dim;
            if (row0 + r > last_row)
                continue;
            float scale = a.v_undo / with_sink(a, head_of(r), s.top[t][h], sum);
            if (packed) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++)
                    *reinterpret_cast<float2 *>(tile + r * O_LD + i * 8 + lane % 4 * 2) =
                        make_float2(s.o[t][i][2 * h] * scale, s.o[t][i][2 * h + 1] * scale);
                continue;
            }
            float *out = a.out + ((size_t)token_of(r) * a.n_head + head_of(r)) * a.head_dim;
            if (n_part > 1) {
                float *mine = parts + part * PART_FLOATS;
                if (lane % 4 == 0)
                    reinterpret_cast<float2 *>(mine + ROWS * DH)[r] = make_float2(s.top[t][h], sum);
                out = mine + r * DH;
                scale = 1.0f;
                width = DH;
            }
            auto store = [&](auto finish) {
#pragma unroll
                for (int i = 0; i < DH / 8; i++) {
                    uint32_t d = i * 8 + lane % 4 * 2;
                    if (d < width)
                        out[d] = finish(s.o[t][i][2 * h] * scale, d);
                    if (d + 1 < width)
                        out[d + 1] = finish(s.o[t][i][2 * h + 1] * scale, d + 1);
                }
            };
            if (gated) // apart: else models without gates pay for it, too
                store([&](float v, uint32_t d) {
                    return v * gate_of(a, token_of(r), head_of(r), d);
                });
            else
                store([](float v, uint32_t) { return v; });
        }
    const uint32_t rows = last_row - row0 + 1;
    if (packed) {
        __syncthreads();
        for (uint32_t j = threadIdx.x; j < rows * N; j += THREADS)
            store_out(a, token_of(j / N), head_of(j / N), j % N * 4,
                      *reinterpret_cast<const float4 *>(tile + j / N * O_LD + j % N * 4));
    }
    cp_async_wait<0>(); // for the queries of a part without tiles, which lie where weights will
    if (n_part == 1 || !last_to_arrive(&a.counters[block], n_part))
        return;
    float *const weight = reinterpret_cast<float *>(q); // (n_part, ROWS)
    static_assert(MAX_PART * sizeof(float) <= LD * sizeof(__half), "in the place of the queries");
    for (uint32_t r = threadIdx.x; r < rows; r += THREADS) {
        auto part_ml = [&](uint32_t i) {
            const float *ml = parts + i * PART_FLOATS + ROWS * DH;
            return __ldcg(&reinterpret_cast<const float2 *>(ml)[r]);
        };
        float top = -INFINITY, sum = 0.0f;
        for (uint32_t i = 0; i < n_part; i++)
            top = fmaxf(top, part_ml(i).x);
        for (uint32_t i = 0; i < n_part; i++) {
            float2 ml = part_ml(i);
            weight[i * ROWS + r] = ptx_exp2(ml.x - top);
            sum = fmaf(weight[i * ROWS + r], ml.y, sum);
        }
        const float scale = a.v_undo / with_sink(a, head_of(r), top, sum);
        for (uint32_t i = 0; i < n_part; i++)
            weight[i * ROWS + r] *= scale;
    }
    __syncthreads();
    constexpr uint32_t AHEAD = 4;
    for (uint32_t j = threadIdx.x; j < rows * N; j += AHEAD * THREADS) {
        float4 v[AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++)
            v[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
        for (uint32_t i = 0; i < n_part; i++)
#pragma unroll
            for (uint32_t u = 0; u < AHEAD; u++) {
                uint32_t at = min(j + u * THREADS, rows * N - 1);
                add_scaled(v[u], weight[i * ROWS + at / N],
                           __ldcg(&reinterpret_cast<const float4 *>(parts + i * PART_FLOATS)[at]));
            }
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++) {
            uint32_t at = j + u * THREADS;
            if (at < rows * N)
                store_out(a, token_of(at / N), head_of(at / N), at % N * 4, v[u]);
        }
    }
}

// ---- host

template <int DH, int MT> static constexpr size_t prefill_smem()
{
    using S = shape<DH, MT>;
    static_assert(S::ROWS <= 2 * S::T, "at least as much as (ROWS, O_LD) floats");
    return sizeof(__half) * tile_ld<DH>() * (S::ROWS + 2 * S::T);
}

size_t attention_prefill_smem(uint32_t head_dim)
{
    size_t n = 0;
    with_head_dim(head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value;
        n = prefill_smem<DH, most_row_tiles<DH>()>();
        return true;
    });
    return n;
}

// How many blocks share the cache: as many as make two per multiprocessor, which is what fits at a
// time, where the rows alone make less than one.
static uint32_t n_prefill_part(int n_sm, uint32_t n_block)
{
    return n_block >= (uint32_t)n_sm ? 1 : lesser(2 * (uint32_t)n_sm / n_block, (uint32_t)MAX_PART);
}

void attention_prefill_scratch(int n_sm, uint32_t n_head, uint32_t head_dim, uint32_t n_batch,
                               struct attention_scratch *out)
{
    with_head_dim(head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value, MT = most_row_tiles<DH>();
        out->partial = (size_t)2 * n_sm * shape<DH, MT>::ROWS * (DH + 2) * sizeof(float);
        out->q_f16 = (size_t)n_batch * n_head * DH * sizeof(__half);
        return true;
    });
    out->counters = n_sm * sizeof(uint32_t);
}

static struct launch rotate_launch(const struct queue *q, const struct attention *a, uint32_t n)
{
    const uint32_t n_vector = a->n_head + (a->cached ? 0 : 2 * a->n_head_kv);
    struct launch l = {.name = "rotate_store",
                       .grid = dim3(n, div_up(n_vector, (uint32_t)N_TEAM)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return l;
}

bool attention_store_launch(const struct queue *q, const struct attention *a, uint32_t n,
                            struct error *err)
{
    struct attention keys = *a;
    keys.n_head = 0;
    keys.each = true;
    return with_kernel(keys, [&](auto dim, auto kind) {
        return launch_kernel(err, rotate_launch(q, &keys, n),
                             rotate_store_kernel<decltype(dim)::value, decltype(kind)::plain>,
                             keys);
    });
}

bool attention_prefill_launch(const struct queue *q, const struct attention *a, uint32_t n,
                              struct error *err)
{
    struct attention rest;
    if (a->head_dim > ATTENTION_NARROW_HEAD_DIM)
        return attention_wide_launch(q, a, n, false, err);
    if (!attention_norm_whole(q, a, n, &rest, err))
        return false;
    struct launch l = {.name = "attention_prefill",
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    const uint32_t n_row = n * (a->n_head / a->n_head_kv);
    const uint32_t seen = a->n_swa ? lesser(a->reach, a->n_swa + n) : a->reach;
    return with_kernel(rest, [&](auto dim, auto kind) {
        constexpr int DH = decltype(dim)::value, MOST = most_row_tiles<DH>();
        constexpr bool PLAIN = decltype(kind)::plain;
        const auto by = [&](auto tiles) {
            constexpr int MT = decltype(tiles)::value;
            const uint32_t x = div_up(n_row, (uint32_t)shape<DH, MT>::ROWS);
            const uint32_t n_part = n_prefill_part(q->n_sm, x * a->n_head_kv);
            l.grid = dim3(x, a->n_head_kv, a->one_part ? 1 : n_part);
            l.smem = prefill_smem<DH, MT>();
            return launch_kernel(err, l, attention_prefill_kernel<DH, MT, PLAIN>, rest, n);
        };
        return launch_kernel(err, rotate_launch(q, a, n), rotate_store_kernel<DH, PLAIN>, rest) &&
               (seen <= FEW_POSITIONS ? by(std::integral_constant<int, 1>())
                                      : by(std::integral_constant<int, MOST>()));
    });
}
