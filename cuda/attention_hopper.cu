// attention_prefill.cu for devices of compute capability 9.0 and a cache in float16
// (FlashAttention-3, Shah et al. 2024): two warpgroups have 64 rows each in registers, and a third
// one brings tiles of keys and values, in the order in which they are multiplied, to a ring in
// shared memory. Scores of the next tile and sums of this one are multiplied while weights are made
// of scores. The same order of additions as there, and the same bits (but of heads wider than 128).
#include "attention_tiles.cuh"

enum {
    N_GROUP = 2, // that multiply
    GROUP_ROWS = 64,
    ROWS = N_GROUP * GROUP_ROWS,
    N_MULTIPLY = N_GROUP * GROUP,
    THREADS = N_MULTIPLY + GROUP,
    LAG = 2, // tiles on their way behind the one that is asked for
};

template <int DH> struct room {
    static constexpr int TILE = T * DH * 2, N_TILE = DH > 128 ? 4 : 8;
    // With more than 128 there are no registers for queries.
    static constexpr bool KEEPS_Q = DH <= 128;
    static constexpr int Q = KEEPS_Q ? 0 : ROWS * DH * 2;
    // What is kept of splits is behind the tiles, if there is room.
    static constexpr bool NEAR = DH <= 128;
    // Where a split ends keys of the next one are multiplied while its last values are. (With heads
    // of 64 and of 256 what that takes in every turn costs more.)
    static constexpr bool GOES_ON = DH == 128;
    static constexpr int KEPT = NEAR ? kept_sums<DH, 1>::N * N_MULTIPLY * 16 : 0;
    static constexpr int BYTES = SWIZZLE_ALIGN + Q + N_TILE * TILE + KEPT;
    static_assert(ROWS * (DH + 8) * 4 <= Q + N_TILE * TILE, "results find room in the end");
    static_assert(LAG < N_TILE, "what is asked for does not wait for what is not told of");

    uint64_t full[N_TILE], empty[N_TILE];
};

template <int DH> using share_of = prompt_share<DH, ROWS, T>;

// Which tile of the ring: keys 0, keys 1, values 0, keys 2, values 1, ..., the last values; s: the
// tiles that follow one another so.
static __device__ __forceinline__ uint32_t keys_at(const struct tiles &s, uint32_t t)
{
    return t == s.tile0 ? 0 : 2 * (t - s.tile0) - 1;
}
static __device__ __forceinline__ uint32_t values_at(const struct tiles &s, uint32_t t)
{
    return 2 * (t - s.tile0) + (t + 1 == s.tile1 ? 1 : 2);
}

// What is multiplied one behind the other, from where it begins on: all that the block has, or one
// split of it.
template <int DH>
static __device__ __forceinline__ uint32_t end_of_run(const share_of<DH> &b,
                                                      const struct tiles &split)
{
    return room<DH>::GOES_ON ? b.end : split.tile1;
}

// The tiles of all splits of the block.
template <int DH>
static __device__ __forceinline__ void bring(const struct attention &a, const share_of<DH> &b,
                                             uint32_t thread, uint8_t *tiles, room<DH> &m)
{
    using R = room<DH>;
    uint32_t n = 0; // tiles so far
    auto told = [&](uint32_t i) {
        async_proxy_fence();
        __syncwarp();
        if (thread % WARP == 0)
            mbar_arrive(&m.full[i % R::N_TILE]);
    };
    auto tile = [&](const struct kv_plane &plane, uint32_t t, uint32_t block) {
        const uint32_t at = n % R::N_TILE, position = b.first + t * T;
        if (n >= R::N_TILE)
            mbar_wait(&m.empty[at], n / R::N_TILE % 2 ^ 1);
        const size_t row0 = kv_row(block, a.n_head_kv, b.kv_head, position);
        request_tile<DH>(plane, row0, (int)b.n_kv - (int)position, tiles + at * R::TILE, thread);
        cp_async_commit();
        if (n >= LAG) {
            cp_async_wait<LAG>();
            told(n - LAG);
        }
        n++;
    };
    uint32_t t = b.begin.tile0, block = b.block_of(t);
#pragma unroll 1
    for (struct tiles now = b.begin; t < b.end; now = {t, b.behind(t)}) {
        const uint32_t end = end_of_run<DH>(b, now);
        tile(a.k, t, block);
#pragma unroll 1
        for (; t < end; t++) {
            const uint32_t next = b.block_of(t + 1);
            if (t + 1 < end)
                tile(a.k, t + 1, next);
            tile(a.v, t, block);
            block = next;
        }
    }
    cp_async_wait<0>();
    for (uint32_t i = n < LAG ? 0 : n - LAG; i < n; i++)
        told(i);
}

// A warpgroup's queries: in registers, or where there is no room for them as a tile.
template <int DH> struct queries {
    uint32_t q[room<DH>::KEEPS_Q ? DH / 16 : 1][4];
    uint64_t tile;
};

template <int DH>
static __device__ __forceinline__ void
load_queries(const struct attention &a, const share_of<DH> &b, uint8_t *smem_q, queries<DH> &to)
{
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    if constexpr (room<DH>::KEEPS_Q) {
        const uint32_t r = warp * M + lane / 4;
        const __half *const row[2] = {b.query(a, r), b.query(a, r + 8)};
#pragma unroll
        for (int k = 0; k < DH / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const __half *const from = row[i % 2];
                to.q[k][i] = from ? __ldcg(reinterpret_cast<const uint32_t *>(
                                        from + k * 16 + i / 2 * 8 + lane % 4 * 2))
                                  : 0;
            }
    } else {
        uint8_t *const mine = smem_q + warp / 4 * (GROUP_ROWS * DH * 2);
        for (uint32_t i = threadIdx.x % GROUP; i < GROUP_ROWS * (DH / 8); i += GROUP) {
            const uint32_t r = i / (DH / 8), piece = i % (DH / 8);
            const __half *const from = b.query(a, warp / 4 * GROUP_ROWS + r);
            uint4 *const at = reinterpret_cast<uint4 *>(mine + piece_at(r, piece, GROUP_ROWS));
            *at = from ? __ldcg(reinterpret_cast<const uint4 *>(from + piece * 8))
                       : make_uint4(0, 0, 0, 0);
        }
        to.tile = wgmma_tile(mine);
        async_proxy_fence();
        barrier_sync(N_MULTIPLY);
    }
}

// A warpgroup's rows, of the tiles of a run that one of them sees, whose first split is `split`; n:
// tiles of the ring so far. Where a run goes on behind a split what was summed of that is put away
// in the turn behind, and what is summed then begins anew.
template <int DH, bool PLAIN>
static __device__ __forceinline__ void
attend(const struct attention &a, const share_of<DH> &b, const struct tiles &split,
       const queries<DH> &of, uint8_t *tiles, room<DH> &m, uint32_t &n, softmax<DH, 1> &s)
{
    using R = room<DH>;
    constexpr uint32_t N = prompt_split<DH> / T;
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    const uint32_t group_row = warp / 4 * GROUP_ROWS;

    uint32_t begin[1][2], end[1][2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        b.seen_by(a, warp * M + lane / 4 + 8 * h, begin[0][h], end[0][h]);
    // what all rows of the warp see, and the tiles of which some row of the warpgroup sees
    // something
    const uint32_t low = b.position_of(warp * M);
    const uint32_t all_begin = window_begin(a, b.position_of(warp * M + M - 1));
    const uint32_t some_begin = window_begin(a, b.position_of(group_row));
    const struct tiles now = {split.tile0, end_of_run<DH>(b, split)};
    const uint32_t t0 = uniform(max(now.tile0, (some_begin - b.first) / T)), n0 = n;
    const uint32_t t1 = uniform(
        b.row0 + group_row > b.last_row
            ? t0
            : min(now.tile1, (b.position_of(group_row + GROUP_ROWS - 1) - b.first) / T + 1));
    // The first tile of the next split, and of this one, if rows see it.
    uint32_t edge =
        uniform(split.tile1 + (t0 < split.tile1 ? 0 : ((t0 - split.tile1) / N + 1) * N));
    uint32_t begin_tile = t0;

    auto take = [&] {
        mbar_wait(&m.full[n % R::N_TILE], n / R::N_TILE % 2);
        return tiles + n++ % R::N_TILE * R::TILE;
    };
    auto leave = [&](uint32_t i) {
        __syncwarp();
        if (lane == 0)
            mbar_arrive(&m.empty[i % R::N_TILE]);
    };
    auto pass_by = [&](uint32_t until) {
        while (n - n0 < until) {
            take();
            leave(n - 1);
        }
    };
    auto multiply_keys = [&](scores<1, NP> &c, const uint8_t *keys) {
        const uint64_t k_tile = wgmma_tile(keys);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < DH / 16; k++) {
            const uint64_t keys16 = wgmma_tile_at(k_tile, k / 4 * (T * 128) + k % 4 * 32);
            if constexpr (R::KEEPS_Q)
                wgmma_f16<T>(&c.s[0][0][0], of.q[k], keys16, k > 0);
            else
                wgmma_f16_tiles<T>(&c.s[0][0][0],
                                   wgmma_tile_at(of.tile, k / 4 * (GROUP_ROWS * 128) + k % 4 * 32),
                                   keys16, k > 0);
        }
        wgmma_commit();
    };
    auto multiply_values = [&](const uint32_t p[1][NP][4], const uint8_t *values, uint32_t t) {
        const bool add = !R::GOES_ON || t != begin_tile;
        const uint64_t v_tile = wgmma_tile_across(values, T * 128);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < NP; j++)
            wgmma_f16<DH, true>(&s.o[0][0][0], p[0][j], wgmma_tile_at(v_tile, j * 16 * 128),
                                add || j > 0);
        wgmma_commit();
    };
    float4 *const kept = reinterpret_cast<float4 *>(tiles + R::N_TILE * R::TILE);
    bool any = split.tile0 > 0; // is kept
    float base[2], shrink[2];
    float top[2], sum[2]; // of the split before, until it is put away
    auto swap = [&] {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float now_top = s.top[0][h], now_sum = s.sum[0][h];
            s.top[0][h] = top[h], s.sum[0][h] = sum[h];
            top[h] = now_top, sum[h] = now_sum;
        }
    };
    auto weigh_tile = [&](scores<1, NP> &c, uint32_t t) {
        const uint32_t p0 = b.first + t * T;
        wgmma_settle<2 * NP * 4>(&c.s[0][0][0]);
        const float undo = PLAIN ? a.score_undo : cap(c, a);
        if (R::GOES_ON && t == edge) {
            top[0] = top[1] = -INFINITY;
            sum[0] = sum[1] = 0.0f;
            swap();
        }
        if (p0 < all_begin || p0 + T > low + 1)
            mask(c, p0, begin, end, lane);
        raise_top(s, c, 0, undo, base, shrink);
        weights_of(s, c, 0, undo, base, shrink);
    };

    if (t0 < t1) {
        uint32_t p[1][NP][4];
        scores<1, NP> c;
        auto end_values = [&](uint32_t t) { // of the tile before t
            wgmma_wait<0>();
            wgmma_settle<DH / 2>(&s.o[0][0][0]);
            if (t > t0)
                leave(n - 1);
            if (R::GOES_ON && t == edge) {
                swap();
                end_split<DH, 1, N_MULTIPLY, R::NEAR>(a, any, true, kept, s);
                swap();
                any = true;
                begin_tile = t;
                edge += N;
            }
            shrink_sums(s, 0, shrink);
            pack_weights(c, 0, p);
        };
        pass_by(keys_at(now, t0));
        multiply_keys(c, take());
        wgmma_wait<0>();
        leave(n - 1);
        weigh_tile(c, t0);
        // A turn begins with the wait for what the one before has started last: between two waits
        // of one turn ptxas moves the second one up, before all that is to be done meanwhile.
#pragma unroll 1
        for (uint32_t t = t0; t + 1 < t1; t++) {
            end_values(t);
            pass_by(keys_at(now, t + 1));
            multiply_keys(c, take());
            multiply_values(p, take(), t);
            wgmma_wait<1>();
            leave(n - 2);
            weigh_tile(c, t + 1);
        }
        end_values(t1 - 1);
        pass_by(values_at(now, t1 - 1));
        multiply_values(p, take(), t1 - 1);
        wgmma_wait<0>();
        wgmma_settle<DH / 2>(&s.o[0][0][0]);
        leave(n - 1);
    }
    pass_by(2 * (now.tile1 - now.tile0));
    end_split<DH, 1, N_MULTIPLY, R::NEAR>(a, any, now.tile1 < b.end, kept, s);
}

// Grid (ceil(n_token * group / ROWS), n_head_kv, splits).
template <int DH, bool PLAIN>
static __global__ void __launch_bounds__(THREADS, 1)
    attention_hopper_kernel(const __grid_constant__ struct attention a, uint32_t n_token)
{
    if constexpr (HAVE_HOPPER) {
        using R = room<DH>;
        __shared__ R m;
        uint8_t *q = dynamic_smem<uint8_t>();
        q += -(uintptr_t)q % SWIZZLE_ALIGN;
        uint8_t *const tiles = q + R::Q;
        if (threadIdx.x == 0) {
            for (int i = 0; i < R::N_TILE; i++) {
                mbar_init(&m.full[i], GROUP / WARP);
                mbar_init(&m.empty[i], N_MULTIPLY / WARP);
            }
            mbar_init_done();
        }
        griddep_launch_dependents();
        // where registers are short
        __shared__ __align__(8) uint8_t of_b[sizeof(share_of<DH>)];
        const share_of<DH> own_b(a, n_token);
        share_of<DH> &shared_b = *reinterpret_cast<share_of<DH> *>(of_b);
        if (threadIdx.x == 0)
            shared_b = own_b;
        const share_of<DH> &b = DH > 128 ? shared_b : own_b;
        struct tiles now = own_b.begin;
        __syncthreads();
        griddep_wait();
        // Here: of lanes that leave behind the place where warps part ptxas does not know that they
        // leave together, and descriptors would come from vector registers (6 % slower).
        if (now.tile0 == own_b.end)
            return;
        uint32_t n = 0;
        if (threadIdx.x >= N_MULTIPLY) {
            fewer_registers<40>();
            bring<DH>(a, b, threadIdx.x - N_MULTIPLY, tiles, m);
            return;
        }
        more_registers<232>();
        softmax<DH, 1> s;
        queries<DH> of;
        load_queries(a, b, q, of);
#pragma unroll 1
        for (uint32_t end;; now = {end, b.behind(end)}) {
            softmax_init(s);
            attend<DH, PLAIN>(a, b, now, of, tiles, m, n, s);
            end = end_of_run<DH>(b, now);
            if (end == b.end)
                break;
        }
        finish_rows<DH, 1, ROWS, T, N_MULTIPLY>(a, b, s, reinterpret_cast<float *>(q));
    }
}

// ---- host

bool attention_hopper_takes(const struct queue *q, const struct attention *a)
{
    return q->hopper && !a->k.scales && !a->v.scales && with_head_dim(a->head_dim, [&](auto dim) {
               constexpr int DH = decltype(dim)::value;
               if constexpr (common_head_dim<DH>)
                   return room<DH>::BYTES <= q->smem_max;
               else
                   return false;
           });
}

bool attention_hopper_launch(const struct queue *q, const struct attention *a, uint32_t n,
                             struct error *err)
{
    const uint32_t x = div_up(n * (a->n_head / a->n_head_kv), (uint32_t)ROWS);
    // one block finds room on a multiprocessor
    struct launch l = prompt_launch(q, THREADS);
    return with_kernel(*a, [&](auto dim, auto kind) {
        constexpr int DH = decltype(dim)::value;
        if constexpr (common_head_dim<DH>) {
            l.smem = room<DH>::BYTES;
            l.grid =
                dim3(x, a->n_head_kv,
                     prompt_splits<DH>(q, a, n, ROWS, x * a->n_head_kv, kept_floats(ROWS, DH)));
            return launch_kernel(err, l, attention_hopper_kernel<DH, decltype(kind)::plain>, *a, n);
        } else {
            return false;
        }
    });
}
