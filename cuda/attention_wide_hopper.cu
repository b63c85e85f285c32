// attention_wide.cu for prompts, devices of compute capability 9.0 and a cache in float16: two
// warpgroups have the same 64 rows in shared memory and half of the columns of the values each.
// Both make all weights: to hand them over would take longer than to multiply the keys twice. A
// third warpgroup brings keys and values. A row's additions depend on its position alone, as
// attention_prompt.cuh says, and are others than a single token's.
#include "attention_tiles.cuh"

enum {
    N_GROUP = 2,
    ROWS = 64,
    N_MULTIPLY = N_GROUP * GROUP,
    THREADS = N_MULTIPLY + GROUP,
    DH = 512,
    COLS = DH / N_GROUP, // of the values, that a warpgroup sums up
    TILE = T * DH * 2,
    QUERIES = ROWS * DH * 2,
    BYTES = SWIZZLE_ALIGN + QUERIES + 2 * TILE,
    KEYS = 0, // tiles
    VALUES = 1,
};
static_assert(ROWS * (DH + 8) * 4 <= QUERIES + 2 * TILE, "results find room in the end");

using share_of_wide = prompt_share<DH, ROWS, T>;

// Floats that a block keeps of a split.
static constexpr size_t KEPT = (size_t)kept_sums<COLS, 1>::N * N_MULTIPLY * 4;

struct room {
    uint64_t full[2], empty[2];
};

static __device__ __forceinline__ void bring(const struct attention &a, const share_of_wide &b,
                                             uint32_t thread, uint8_t *tiles, struct room &m)
{
    const uint32_t n = 2 * (b.end - b.begin.tile0);
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = i % 2, t = b.begin.tile0 + i / 2, position = b.first + t * T;
        const size_t row0 = kv_row(b.block_of(t), a.n_head_kv, b.kv_head, position);
        if (i > 1)
            mbar_wait(&m.empty[at], i / 2 % 2 ^ 1);
        request_tile<DH>(at == KEYS ? a.k : a.v, row0, (int)b.n_kv - (int)position,
                         tiles + at * TILE, thread);
        mbar_arrive_after_copies(&m.full[at]);
    }
    cp_async_commit();
    cp_async_wait<0>();
}

// A warpgroup's half of a split's sums; n: tiles of keys so far.
static __device__ __forceinline__ void attend(const struct attention &a, const share_of_wide &b,
                                              const struct tiles &split, const uint8_t *queries,
                                              const uint8_t *tiles, struct room &m, uint32_t &n,
                                              softmax<COLS, 1> &s)
{
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    const uint32_t row = warp % 4 * M, part = warp / 4;
    uint32_t begin[1][2], end[1][2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        b.seen_by(a, row + lane / 4 + 8 * h, begin[0][h], end[0][h]);
    // what all rows of the warp see
    const uint32_t low = b.position_of(row);
    const uint32_t all_begin = window_begin(a, b.position_of(row + M - 1));
    const uint64_t q_tile = wgmma_tile(queries);
    const uint64_t k_tile = wgmma_tile(tiles + KEYS * TILE);
    const uint64_t v_tile =
        wgmma_tile_across(tiles + VALUES * TILE + part * (COLS / 64) * (T * 128), T * 128);
    uint32_t p[1][NP][4];
    scores<1, NP> c;
    float base[2], shrink[2];

    auto take = [&](int at, uint32_t i) {
        mbar_wait(&m.full[at], i % 2);
        async_proxy_fence();
    };
    auto leave = [&](int at) {
        __syncwarp();
        if (lane == 0)
            mbar_arrive(&m.empty[at]);
    };
    auto multiply_keys = [&] {
        take(KEYS, n++);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < DH / 16; k++)
            wgmma_f16_tiles<T>(&c.s[0][0][0],
                               wgmma_tile_at(q_tile, k / 4 * (ROWS * 128) + k % 4 * 32),
                               wgmma_tile_at(k_tile, k / 4 * (T * 128) + k % 4 * 32), k > 0);
        wgmma_commit();
    };
    auto multiply_values = [&](uint32_t i) {
        take(VALUES, i);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < NP; j++)
            wgmma_f16<COLS, true>(&s.o[0][0][0], p[0][j], wgmma_tile_at(v_tile, j * 16 * 128),
                                  true);
        wgmma_commit();
    };
    auto weigh_tile = [&](uint32_t t) {
        const uint32_t p0 = b.first + t * T;
        wgmma_settle<2 * NP * 4>(&c.s[0][0][0]);
        const float undo = cap(c, a);
        if (p0 < all_begin || p0 + T > low + 1)
            mask(c, p0, begin, end, lane);
        raise_top(s, c, 0, undo, base, shrink);
        weights_of(s, c, 0, undo, base, shrink);
        shrink_sums(s, 0, shrink);
        pack_weights(c, 0, p);
    };

    multiply_keys();
    wgmma_wait<0>();
    leave(KEYS);
    weigh_tile(split.tile0);
#pragma unroll 1
    for (uint32_t t = split.tile0; t + 1 < split.tile1; t++) {
        multiply_values(n - 1);
        multiply_keys();
        wgmma_wait<1>();
        wgmma_settle<COLS / 2>(&s.o[0][0][0]);
        leave(VALUES);
        wgmma_wait<0>();
        leave(KEYS);
        weigh_tile(t + 1);
    }
    multiply_values(n - 1);
    wgmma_wait<0>();
    wgmma_settle<COLS / 2>(&s.o[0][0][0]);
    leave(VALUES);
}

static __device__ __forceinline__ void finish(const struct attention &a, const share_of_wide &b,
                                              softmax<COLS, 1> &s, float *tile)
{
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t row = warp % 4 * M, col = warp / 4 * COLS;
    if (b.shares()) {
        const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
        keep_sums<COLS, 1, N_MULTIPLY>(s, kept_at<COLS, 1, N_MULTIPLY>(a, blockIdx.z));
        if (!last_to_arrive<N_MULTIPLY>(&a.counters[block], b.n_split))
            return;
        gather_kept<COLS, 1, N_MULTIPLY>(a, b.n_split, s);
    }
    barrier_sync(N_MULTIPLY); // results lie in the place of all tiles
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t r = row + lane / 4 + 8 * h;
        const float sum = row_sum(s, 0, h);
        if (b.row0 + r > b.last_row)
            continue;
        const float scale = a.v_undo / with_sink(a, b.head_of(r), s.top[0][h], sum);
#pragma unroll
        for (int i = 0; i < COLS / 8; i++)
            *reinterpret_cast<float2 *>(tile + r * O_LD + col + i * 8 + lane % 4 * 2) =
                make_float2(s.o[0][i][2 * h] * scale, s.o[0][i][2 * h + 1] * scale);
    }
    barrier_sync(N_MULTIPLY);
    const uint32_t rows = b.last_row - b.row0 + 1;
    for (uint32_t j = threadIdx.x; j < rows * N; j += N_MULTIPLY)
        store_out(a, b.token_of(j / N), b.head_of(j / N), j % N * 4,
                  *reinterpret_cast<const float4 *>(tile + j / N * O_LD + j % N * 4));
}

// Grid (ceil(n_token * group / ROWS), n_head_kv, splits).
static __global__ void __launch_bounds__(THREADS, 1)
    attention_wide_hopper_kernel(const __grid_constant__ struct attention a, uint32_t n_token)
{
    if constexpr (HAVE_HOPPER) {
        __shared__ struct room m;
        __shared__ __align__(8) uint8_t of_b[sizeof(share_of_wide)]; // registers are short
        uint8_t *queries = dynamic_smem<uint8_t>();
        queries += -(uintptr_t)queries % SWIZZLE_ALIGN;
        uint8_t *const tiles = queries + QUERIES;
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; i++) {
                mbar_init(&m.full[i], GROUP);
                mbar_init(&m.empty[i], N_MULTIPLY / WARP);
            }
            mbar_init_done();
        }
        griddep_launch_dependents();
        const share_of_wide own(a, n_token);
        share_of_wide &b = *reinterpret_cast<share_of_wide *>(of_b);
        if (threadIdx.x == 0)
            b = own;
        struct tiles now = own.begin;
        __syncthreads();
        griddep_wait();
        if (now.tile0 == own.end)
            return;
        if (threadIdx.x >= N_MULTIPLY) {
            fewer_registers<40>();
            bring(a, b, threadIdx.x - N_MULTIPLY, tiles, m);
            return;
        }
        more_registers<232>();
        for (uint32_t i = threadIdx.x; i < ROWS * (DH / 8); i += N_MULTIPLY) {
            const uint32_t r = i / (DH / 8), piece = i % (DH / 8);
            const __half *const from = b.query(a, r);
            *reinterpret_cast<uint4 *>(queries + piece_at(r, piece, ROWS)) =
                from ? __ldcg(reinterpret_cast<const uint4 *>(from + piece * 8))
                     : make_uint4(0, 0, 0, 0);
        }
        async_proxy_fence();
        barrier_sync(N_MULTIPLY);
        softmax<COLS, 1> s;
        uint32_t n = 0;
        bool any = false; // is kept
#pragma unroll 1
        for (uint32_t end;; now = {end, b.behind(end)}) {
            softmax_init(s);
            attend(a, b, now, queries, tiles, m, n, s);
            end = now.tile1;
            end_split<COLS, 1, N_MULTIPLY, false>(a, any, end < b.end, NULL, s);
            any = true;
            if (end == b.end)
                break;
        }
        finish(a, b, s, reinterpret_cast<float *>(queries));
    }
}

// ---- host

size_t attention_wide_prompt_bytes(uint32_t n_head, uint32_t n_batch)
{
    // a block for rows of one KV head, and one more of each head
    return ((size_t)n_batch * n_head / ROWS + n_head) * KEPT * sizeof(float);
}

bool attention_wide_hopper_takes(const struct queue *q, const struct attention *a)
{
    return q->hopper && !a->k.scales && !a->v.scales && BYTES + 1024 <= q->smem_max;
}

bool attention_wide_hopper_launch(const struct queue *q, const struct attention *a, uint32_t n,
                                  struct error *err)
{
    const uint32_t x = div_up(n * (a->n_head / a->n_head_kv), (uint32_t)ROWS);
    struct launch l = prompt_launch(q, THREADS);
    l.smem = BYTES;
    l.grid = dim3(x, a->n_head_kv, prompt_splits<DH>(q, a, n, ROWS, x * a->n_head_kv, KEPT));
    return launch_kernel(err, l, attention_wide_hopper_kernel, *a, n);
}
