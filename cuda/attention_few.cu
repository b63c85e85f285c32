// Attention of a prompt's few rows, where blocks of 64 or 128 (attention_prefill.cu,
// attention_hopper.cu) would be few and each would have much to do one thing after another. A block
// has 16 rows (token, query head) of one KV head. Four warps share what there is to do: of a tile
// each has the scores and weights of 16 positions, and some columns of the sums of values; four
// more bring the tiles. The additions are those of attention_hopper.cu, in its order: the same
// bits.
#include "attention_prompt.cuh"

enum {
    N_WARP = 4, // that multiply
    N_MULTIPLY = N_WARP * WARP,
    N_BRING = 4 * WARP,
    THREADS = N_MULTIPLY + N_BRING,
    T = KV_BLOCK, // positions of a tile
    NP = T / 16,
    N_EIGHT = 2, // eights of a tile's positions that a warp has the scores of
};
static_assert(N_WARP * N_EIGHT * 8 == T, "all positions");

template <int DH> using share_of = prompt_share<DH, M, T>;

// Tiles on their way and in use: a ring of PAIRS of keys, and one of values. (Where there are few
// tiles, three pairs instead of two made prompts take 3 to 9 % longer, by more than the kernel
// itself.)
template <int DH, int PAIRS> struct __align__(16) room
{
    static constexpr int LD = tile_ld<DH>(), TILE = T * LD; // in halves
    static constexpr size_t BYTES = sizeof(__half) * (M * LD + 2 * PAIRS * TILE);
    static constexpr uint32_t MOST_TILES = prompt_split<DH> / T; // of a split
    static_assert(M * (DH + 8) * sizeof(float) <= 2 * PAIRS * TILE * sizeof(__half),
                  "results find room in the end");

    uint2 seen[M]; // from which position on a row sees, and up to which
    float4 top[M]; // of its scores, of each warp
    // Of each lane's rows g and g + 8, what eight positions weigh: as pairs, and their sums.
    struct {
        uint32_t pair[2];
        float sum[2];
    } weights[T / 8][WARP];
    uint32_t blocks[MOST_TILES]; // of the cache, that the tiles lie in
};

// Adds to the scores of 16 rows and of the warp's positions what columns BEGIN to END - 1 give.
template <int DH, int BEGIN, int END>
static __device__ __forceinline__ void
multiply_keys(float c[N_EIGHT][4], const uint32_t q[DH / 16][4], const __half *keys)
{
    constexpr int LD = tile_ld<DH>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const __half *const mine =
        keys + (warp * 16 + lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = BEGIN; k < END; k += 16) {
        uint32_t b[4];
        ldmatrix_x4(b, mine + k);
        mma_f16(c[0], q[k / 16], b);
        mma_f16(c[1], q[k / 16], b + 2);
    }
}

// Grid (ceil(n_token * group / 16), n_head_kv, splits).
template <int DH, bool PLAIN, int PAIRS>
static __global__ void __launch_bounds__(THREADS)
    attention_few_kernel(const __grid_constant__ struct attention a, uint32_t n_token)
{
    using R = room<DH, PAIRS>;
    constexpr int LD = R::LD, COLS = DH / N_WARP;
    __shared__ R m;
    __half *const q = dynamic_smem<__half>(); // (M, LD)
    __half *const keys = q + M * LD;          // (PAIRS, T, LD)
    __half *const values = keys + PAIRS * R::TILE;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_launch_dependents();
    const share_of<DH> b(a, n_token);
    const uint32_t n = b.end - b.begin.tile0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        m.blocks[i] = b.block_of(b.begin.tile0 + i);
    __syncthreads();
    griddep_wait();
    if (n == 0)
        return;

    const auto request = [&](const struct kv_plane &plane, uint32_t i, __half *to) {
        if (i < n) {
            const uint32_t position = b.first + (b.begin.tile0 + i) * T;
            request_rows<DH, T, N_BRING>(plane,
                                         kv_row(m.blocks[i], a.n_head_kv, b.kv_head, position),
                                         (int)b.n_kv - (int)position, to, threadIdx.x % N_BRING);
        }
    };
    const auto behind = [](uint32_t at) { return at + 1 == PAIRS ? 0 : at + 1; };
    // Those that bring: what a turn multiplies, the values of its tile and the keys of the next.
    const bool brings = threadIdx.x >= N_MULTIPLY;
    uint32_t at = 0, asked_for = 0; // in the rings, where those that bring are ahead; turns
    const auto request_next = [&] {
        request(a.v, asked_for, values + at * R::TILE);
        at = behind(at);
        request(a.k, ++asked_for, keys + at * R::TILE);
        cp_async_commit();
    };
    if (brings) {
#pragma unroll 1
        while (asked_for + 1 < PAIRS)
            request_next();
    } else {
        for (uint32_t i = threadIdx.x; i < M * (DH / 8); i += N_MULTIPLY) {
            const uint32_t r = i / (DH / 8), piece = i % (DH / 8);
            const __half *const from = b.query(a, r);
            cp_async16_or_zero(q + r * LD + piece * 8, from ? from + piece * 8 : a.q_f16, from);
        }
        request(a.k, 0, keys);
        cp_async_commit();
        if (threadIdx.x < M)
            b.seen_by(a, threadIdx.x, m.seen[threadIdx.x].x, m.seen[threadIdx.x].y);
        cp_async_wait<0>();
    }
    __syncthreads();
    const bool is_capped = !PLAIN && a.softcap != 0.0f;
    const float undo = is_capped ? 1.0f : a.score_undo;
    softmax<COLS, 1> s;
    softmax_init(s);
    float c[N_EIGHT][4] = {};
    // The largest of what the warp has scored of tile i, told to the others.
    const auto tell_top = [&](uint32_t i) {
        const uint32_t position = b.first + (b.begin.tile0 + i) * T + warp * (N_EIGHT * 8);
        float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint2 seen = m.seen[lane / 4 + 8 * h];
#pragma unroll
            for (int t = 0; t < N_EIGHT; t++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const uint32_t p = position + t * 8 + lane % 4 * 2 + e;
                    float &score = c[t][2 * h + e];
                    score = is_capped ? capped(a, score) : score;
                    score = p < seen.x || p >= seen.y ? -INFINITY : score;
                    top[h] = fmaxf(top[h], score);
                }
            top[h] = lane_max<1, 2>(top[h]);
            if (lane % 4 == 0)
                reinterpret_cast<float *>(&m.top[lane / 4 + 8 * h])[warp] = top[h];
        }
    };
    uint32_t of_q[DH / 16][4];
    if (!brings) {
#pragma unroll
        for (int k = 0; k < DH / 16; k++)
            ldmatrix_x4(of_q[k], q + lane % 16 * LD + lane / 16 * 8 + k * 16);
        multiply_keys<DH, 0, DH>(c, of_q, keys);
        tell_top(0);
    }

    // Tile i, whose scores are there: weights, and the sums of values. GO_ON: and the scores of the
    // next one, a product of which waits for the one before: in two parts, so that others have
    // something to do meanwhile.
    const auto turn = [&](uint32_t i, auto go_on) {
        constexpr bool GO_ON = decltype(go_on)::value;
        const __half *const next_keys = keys + behind(at) * R::TILE;
        float next[N_EIGHT][4] = {}, base[2], shrink[2];
        if (GO_ON)
            multiply_keys<DH, 0, DH / 2>(next, of_q, next_keys);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float4 top = m.top[lane / 4 + 8 * h];
            raise_top_to(s, 0, h, fmaxf(fmaxf(top.x, top.y), fmaxf(top.z, top.w)) * undo, base[h],
                         shrink[h]);
#pragma unroll
            for (int t = 0; t < N_EIGHT; t++) {
                const float v0 = weight_of(c[t][2 * h], undo, base[h]),
                            v1 = weight_of(c[t][2 * h + 1], undo, base[h]);
                auto &to = m.weights[warp * N_EIGHT + t][lane];
                to.pair[h] = half2_bits(__floats2half2_rn(v0, v1));
                to.sum[h] = v0 + v1;
            }
        }
        shrink_sums(s, 0, shrink);
        barrier_sync(N_MULTIPLY);
        uint32_t p[1][NP][4];
#pragma unroll
        for (int w = 0; w < T / 8; w++) {
            const auto weight = m.weights[w][lane];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                p[0][w / 2][w % 2 * 2 + h] = weight.pair[h];
                add_weights(s, 0, h, w == 0, weight.sum[h], shrink);
            }
        }
        if (GO_ON)
            multiply_keys<DH, DH / 2, DH>(next, of_q, next_keys);
        multiply_pv<COLS, LD>(s, p, values + at * R::TILE + warp * COLS, lane);
        if (GO_ON) {
#pragma unroll
            for (int t = 0; t < N_EIGHT; t++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    c[t][e] = next[t][e];
            tell_top(i + 1);
            at = behind(at);
        }
    };
    const auto meet = [&] { // when what a turn multiplies is there, and its scores
        if (brings)
            cp_async_wait<PAIRS - 2>();
        __syncthreads();
    };
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < n; i++) {
        meet();
        if (brings)
            request_next();
        else
            turn(i, std::true_type());
    }
    meet();
    if (brings)
        return;
    turn(n - 1, std::false_type());

    if (b.shares()) {
        const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
        keep_sums<COLS, 1, N_MULTIPLY>(s, kept_at<COLS, 1, N_MULTIPLY>(a, blockIdx.z));
        if (!last_to_arrive<N_MULTIPLY>(&a.counters[block], b.n_split))
            return;
        gather_kept<COLS, 1, N_MULTIPLY>(a, b.n_split, s);
    }
    // Results four by four, by way of what was room for tiles: (M, O_LD) floats.
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    float *const out = reinterpret_cast<float *>(keys);
    barrier_sync(N_MULTIPLY);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float sum = row_sum(s, 0, h);
        const uint32_t r = lane / 4 + 8 * h;
        const float scale = a.v_undo / with_sink(a, b.head_of(r), s.top[0][h], sum);
#pragma unroll
        for (int i = 0; i < COLS / 8; i++)
            *reinterpret_cast<float2 *>(out + r * O_LD + warp * COLS + i * 8 + lane % 4 * 2) =
                make_float2(s.o[0][i][2 * h] * scale, s.o[0][i][2 * h + 1] * scale);
    }
    barrier_sync(N_MULTIPLY);
    const uint32_t rows = b.last_row - b.row0 + 1;
    for (uint32_t j = threadIdx.x; j < rows * N; j += N_MULTIPLY)
        store_out(a, b.token_of(j / N), b.head_of(j / N), j % N * 4,
                  *reinterpret_cast<const float4 *>(out + j / N * O_LD + j % N * 4));
}

// ---- host

// Up to how many tiles blocks of 16 rows are sooner done than one of 128, of which `rows` are
// there: that needs longer before the first tile and behind the last one, and for a tile less. As
// measured on an H200 in whole prompts of 8 to 128 tokens behind 0 to 8,000 (tenths of
// microseconds). Of no more rows than that, and heads that are no wider, attention_prefill.cu has
// better blocks for them.
template <int DH> static uint32_t most_tiles(uint32_t rows)
{
    constexpr uint32_t LESS = DH == 64 ? 5 : DH == 128 ? 7 : 3, MOST_ROWS = 128, ALWAYS = 6;
    if (DH <= 128 && rows <= MOST_ROWS)
        return ALWAYS;
    const uint32_t n = (20 + lesser(rows, MOST_ROWS) * DH / 200) / LESS;
    return n > ALWAYS ? n : ALWAYS;
}

// How many blocks share rows, each with a split; 0: the other kernels are sooner, or alone can do
// it. n_block: blocks without splits. *tiles: of a block, at most.
template <int DH>
static uint32_t splits(const struct queue *q, const struct attention *a, uint32_t n_token,
                       uint32_t n_block, uint32_t *tiles)
{
    enum { AT_ONCE = DH > 128 ? 1 : 2 };
    constexpr size_t KEPT = (size_t)kept_sums<DH / N_WARP, 1>::N * N_MULTIPLY * sizeof(float4);
    const struct prompt_reach reach = prompt_reach_of<DH>(a, n_token, M);
    const uint32_t n_row = n_token * (a->n_head / a->n_head_kv), n = n_block * reach.n_split;
    *tiles = lesser(div_up(reach.seen, (uint32_t)T), room<DH, 2>::MOST_TILES);
    if (a->k.scales || a->v.scales || room<DH, 2>::BYTES > q->smem_max)
        return 0;
    if (DH > 128 && !q->hopper) // bits are others there: attention_prefill.cu has tiles of 32
        return 0;
    if (n > AT_ONCE * (uint32_t)q->n_sm || (reach.n_split > 1 && n * KEPT > a->partial_bytes))
        return 0;
    return *tiles <= most_tiles<DH>(n_row) ? reach.n_split : 0;
}

bool attention_few_launch(const struct queue *q, const struct attention *a, uint32_t n, bool *done,
                          struct error *err)
{
    const uint32_t x = div_up(n * (a->n_head / a->n_head_kv), (uint32_t)M);
    struct launch l = prompt_launch(q, THREADS);
    *done = false;
    return with_kernel(*a, [&](auto dim, auto kind) {
        constexpr int DH = decltype(dim)::value;
        constexpr bool PLAIN = decltype(kind)::plain;
        if constexpr (common_head_dim<DH>) {
            uint32_t tiles;
            const uint32_t z = splits<DH>(q, a, n, x * a->n_head_kv, &tiles);
            *done = z > 0;
            l.grid = dim3(x, a->n_head_kv, z);
            // Of few tiles more pairs are no use, and others need the room.
            constexpr uint32_t HALF = room<DH, 2>::MOST_TILES / 2, FEW_TILES = HALF < 6 ? HALF : 6;
            const bool two = tiles <= FEW_TILES || room<DH, 3>::BYTES > q->smem_max;
            l.smem = two ? room<DH, 2>::BYTES : room<DH, 3>::BYTES;
            return !*done ||
                   (two ? launch_kernel(err, l, attention_few_kernel<DH, PLAIN, 2>, *a, n)
                        : launch_kernel(err, l, attention_few_kernel<DH, PLAIN, 3>, *a, n));
        } else {
            return true;
        }
    });
}
