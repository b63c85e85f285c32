// Attention of many tokens, in two launches: the heads' norms and rotations with the cache's new
// rows, then softmax(q k^T) v. A block takes rows (token, query head) of one KV head, 64 or 128 of
// them, and walks over the cache up to its last token: a warp has one or two tiles of 16 rows, all
// warps share the tile of keys, then of values, and while they work on the one the other arrives.
// Splits of the cache are summed up apart (attention_prompt.cuh): where there are few blocks, by
// one block each. Few rows have other blocks (attention_few.cu), and so have many on Hopper
// (attention_hopper.cu): the second launch is theirs then.
#include "attention_prompt.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    N_TEAM = THREADS / TEAM,
    FEW_POSITIONS = 1024, // with no more blocks are better twice as many than twice as tall
    // With no more rows and positions such a block begins sooner than one of attention_hopper.cu
    // (measured with 32 tokens; of wider heads bits would be others).
    SMALL_ROWS = 128,
    SMALL_REACH = 512,
    SMALL_HEAD_DIM = 128,
};

// Splits with a block of their own, of a multiprocessor. (What small heads keep is little, and
// their splits are short.)
template <int DH> static constexpr size_t splits_apart = DH > 64 ? 4 : 8;

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
    const head_norm<DH> norm = load_norm<DH, PLAIN>(a, norm_of<PLAIN>(a, h), lane);
    const struct seq_row at = a.rows[a.each ? i : 0]; // told before the first launch of a pass
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks;
    const uint32_t position = at.pos + (a.each ? 0 : i);
    griddep_wait();
    const float2 *rope = a.rope ? a.rope + (size_t)i * (a.rope_dim / 2) : NULL;
    head_pairs<DH> v;
    if (h < a.n_head) {
        load_head<DH, PLAIN>(a, a.q_in + (size_t)i * a.ld_q + h * query_stride(&a), rope, lane, v);
        finish_head<DH, PLAIN>(a, norm, lane, v);
        store_query<DH, PLAIN>(a, v, position, a.q_f16 + ((size_t)i * a.n_head + h) * DH, lane);
    } else if (h < a.n_head + 2 * a.n_head_kv && (PLAIN || !a.cached)) {
        bool is_k = h < a.n_head + a.n_head_kv;
        uint32_t kv = h - a.n_head - (is_k ? 0 : a.n_head_kv);
        const float *src = (is_k ? a.k_in : a.v_in) + (size_t)i * a.ld_kv + kv * a.head_dim;
        load_head<DH, PLAIN>(a, src, is_k ? rope : NULL, lane, v);
        finish_head<DH, PLAIN>(a, norm, lane, v);
        size_t row = kv_row(table[position / KV_BLOCK], a.n_head_kv, kv, position);
        store_kv<DH, PLAIN>(a, is_k ? a.k : a.v, row, v, buf[team], NULL, lane);
    }
}

// Grid (ceil(n * group / ROWS), n_head_kv, splits).
template <int DH, int MT, bool PLAIN>
static __global__ void __launch_bounds__(THREADS, 2)
    attention_prefill_kernel(const __grid_constant__ struct attention a, uint32_t n)
{
    constexpr int LD = tile_ld<DH>(), T = shape<DH, MT>::T, NP = T / 16;
    constexpr uint32_t ROWS = shape<DH, MT>::ROWS;
    __half *const q = dynamic_smem<__half>();                              // (ROWS, LD)
    __half *const k_tile = q + ROWS * LD, *const v_tile = k_tile + T * LD; // (T, LD) each
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_launch_dependents();
    const prompt_share<DH, ROWS, T> b(a, n);
    uint32_t t = b.begin.tile0, edge = b.begin.tile1; // of the split
    const uint32_t first = b.first;
    uint32_t kv_block = b.block_of(t);
    griddep_wait();
    if (t == b.end)
        return;

    auto request = [&](const struct kv_plane &plane, uint32_t t, uint32_t block, __half *tile) {
        if (t < b.end) {
            uint32_t first_pos = first + t * T;
            request_rows<DH, T, THREADS>(plane, kv_row(block, a.n_head_kv, b.kv_head, first_pos),
                                         (int)b.n_kv - (int)first_pos, tile, threadIdx.x);
        }
        cp_async_commit();
    };
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < ROWS * (DH / 8); i += THREADS) {
        uint32_t r = i / (DH / 8), piece = i % (DH / 8);
        const __half *from = b.query(a, r);
        cp_async16_or_zero(q + r * LD + piece * 8, from ? from + piece * 8 : a.q_f16, from);
    }
    request(a.k, t, kv_block, k_tile);

    // what some row of the warp sees, and where what all of its rows see begins
    const uint32_t warp_row = warp * MT * M, high = b.position_of(warp_row + MT * M - 1);
    const uint32_t some_begin = window_begin(a, b.position_of(warp_row));
    const uint32_t all_begin = window_begin(a, high);

    softmax<DH, MT> s;
    auto arrive = [&](const struct kv_plane &plane, __half *tile) {
        cp_async_wait<0>();
        __syncthreads();
        if (plane.scales)
            widen_rows<DH, T, THREADS>(tile, threadIdx.x, [] { __syncthreads(); });
    };
#pragma unroll 1
    for (bool kept = false;; kept = true) {
        softmax_init(s);
        for (; t < edge; t++) {
            const uint32_t p0 = first + t * T;
            const bool seen = b.row0 + warp_row <= b.last_row && p0 <= high && p0 + T > some_begin;
            uint32_t p[MT][NP][4];
            arrive(a.k, k_tile); // and everyone is done with the values
            request(a.v, t, kv_block, v_tile);
            kv_block = b.block_of(t + 1);
            if (seen) {
                scores<MT, NP> c;
                multiply_qk<DH>(c, q + warp * MT * M * LD, k_tile, lane);
                const float undo = PLAIN ? a.score_undo : cap(c, a);
                // (the lowest row is at most so many positions before the highest)
                if (p0 < all_begin || p0 + T + MT * M > high + 2) {
                    uint32_t begin[MT][2], end[MT][2];
#pragma unroll
                    for (int i = 0; i < MT; i++)
#pragma unroll
                        for (int h = 0; h < 2; h++)
                            b.seen_by(a, warp_row + i * M + lane / 4 + 8 * h, begin[i][h],
                                      end[i][h]);
                    mask(c, p0, begin, end, lane);
                }
                weigh(s, c, undo, p);
            }
            arrive(a.v, v_tile); // and everyone is done with the keys
            request(a.k, t + 1, kv_block, k_tile);
            if (seen)
                multiply_pv<DH>(s, p, v_tile, lane);
        }
        end_split<DH, MT, THREADS, false>(a, kept, edge < b.end, NULL, s);
        if (edge == b.end)
            break;
        edge = b.behind(edge);
    }

    cp_async_wait<0>(); // for the queries of a part without tiles, which lie where results will
    finish_rows<DH, MT, ROWS, T, THREADS>(a, b, s, reinterpret_cast<float *>(q));
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

void attention_prefill_scratch(int n_sm, uint32_t n_head, uint32_t head_dim, uint32_t n_batch,
                               struct attention_scratch *out)
{
    with_head_dim(head_dim, [&](auto tag) {
        constexpr int DH = decltype(tag)::value, MOST_ROWS = 128;
        // what some blocks share, or what each of any number has
        const size_t some = splits_apart<DH> * n_sm * MOST_ROWS;
        const size_t any = (size_t)(n_batch + MOST_ROWS) * n_head;
        out->partial = kept_floats(1, DH) * (some > any ? some : any) * sizeof(float);
        out->q_f16 = (size_t)n_batch * n_head * DH * sizeof(__half);
        return true;
    });
    // a block has M rows or more
    out->counters = (n_batch * n_head / M + n_head) * sizeof(uint32_t);
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

bool attention_prompt_launch(const struct queue *q, const struct attention *a, uint32_t n,
                             struct error *err)
{
    struct launch l = prompt_launch(q, THREADS);
    const uint32_t n_row = n * (a->n_head / a->n_head_kv);
    const bool small =
        n_row <= SMALL_ROWS && a->reach <= SMALL_REACH && a->head_dim <= SMALL_HEAD_DIM;
    const uint32_t seen = a->n_swa ? lesser(a->reach, a->n_swa + n) : a->reach;
    bool done = false;
    if (!attention_few_launch(q, a, n, &done, err))
        return false;
    if (!done && !small && attention_hopper_takes(q, a))
        return attention_hopper_launch(q, a, n, err);
    return done || with_kernel(*a, [&](auto dim, auto kind) {
               constexpr int DH = decltype(dim)::value, MOST = most_row_tiles<DH>();
               constexpr bool PLAIN = decltype(kind)::plain;
               const auto by = [&](auto tiles) {
                   constexpr int MT = decltype(tiles)::value;
                   constexpr uint32_t ROWS = shape<DH, MT>::ROWS;
                   const uint32_t x = div_up(n_row, ROWS);
                   l.grid = dim3(
                       x, a->n_head_kv,
                       prompt_splits<DH>(q, a, n, ROWS, x * a->n_head_kv, kept_floats(ROWS, DH)));
                   l.smem = prefill_smem<DH, MT>();
                   return launch_kernel(err, l, attention_prefill_kernel<DH, MT, PLAIN>, *a, n);
               };
               return seen <= FEW_POSITIONS ? by(std::integral_constant<int, 1>())
                                            : by(std::integral_constant<int, MOST>());
           });
}

bool attention_prefill_launch(const struct queue *q, const struct attention *a, uint32_t n,
                              struct error *err)
{
    struct attention rest;
    if (a->head_dim > ATTENTION_NARROW_HEAD_DIM)
        return attention_wide_launch(q, a, n, false, err);
    return attention_norm_whole(q, a, n, &rest, err) &&
           with_kernel(rest,
                       [&](auto dim, auto kind) {
                           return launch_kernel(
                               err, rotate_launch(q, a, n),
                               rotate_store_kernel<decltype(dim)::value, decltype(kind)::plain>,
                               rest);
                       }) &&
           attention_prompt_launch(q, &rest, n, err);
}
