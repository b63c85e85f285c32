// Attention of a prompt's few rows, where blocks of 64 or 128 (attention_prefill.cu,
// attention_hopper.cu) would be few and each would have much to do one thing after another. A block
// has 16 rows (token, query head) of one KV head. Its warps share what there is to do: of a tile
// each has the scores and weights of eight positions, and some columns of the sums of values. The
// additions are those of attention_hopper.cu, in its order: the same bits.
#include "attention_prompt.cuh"

enum {
    N_WARP = 8,
    THREADS = N_WARP * WARP,
    T = KV_BLOCK, // positions of a tile
    NP = T / 16,
    OF_WARP = T / N_WARP, // scores of a row
};
static_assert(OF_WARP == 8, "what one product gives");

template <int DH> using share_of = prompt_share<DH, M, T>;

template <int DH> struct __align__(16) room
{
    static constexpr int LD = tile_ld<DH>(), TILE = T * LD; // in halves
    // Tiles on their way and in use, of keys and of values in turns. (With six where four are four
    // prompts took 3 to 9 % longer, by more than the kernel itself: as is believed since its
    // neighbours then find the multiprocessor's memory divided otherwise.)
    static constexpr uint32_t N_TILE = DH > 64 ? 4 : 8;
    static constexpr size_t BYTES = sizeof(__half) * (M * LD + N_TILE * TILE);
    static constexpr uint32_t MOST_TILES = prompt_split<DH> / T; // of a split
    static_assert(M * (DH + 8) * sizeof(float) <= N_TILE * TILE * sizeof(__half),
                  "results find room in the end");

    float top[M][N_WARP]; // of a row's scores of a warp
    // Of each lane's rows g and g + 8, what a warp's positions weigh: as pairs, and their sums.
    struct {
        uint32_t pair[2];
        float sum[2];
    } weights[N_WARP][WARP];
    uint32_t blocks[MOST_TILES]; // of the cache, that the tiles lie in
};

// The scores of 16 rows and of the warp's eight positions.
template <int DH>
static __device__ __forceinline__ void multiply_keys(float c[4], const __half *q,
                                                     const __half *keys)
{
    constexpr int LD = tile_ld<DH>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const __half *const rows = q + lane % 16 * LD + lane / 16 * 8;
    const __half *const mine = keys + (warp * OF_WARP + lane % 8) * LD + lane / 8 * 8;
#pragma unroll
    for (int k = 0; k < DH; k += 32) {
        uint32_t b[4];
        ldmatrix_x4(b, mine + k);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t a[4];
            ldmatrix_x4(a, rows + k + i * 16);
            mma_f16(c, a, b + 2 * i);
        }
    }
}

// Adds the weighted values of the warp's COLS columns.
template <int DH, int COLS>
static __device__ __forceinline__ void
multiply_values(softmax<COLS, 1> &s, const uint32_t p[1][NP][4], const __half *values)
{
    constexpr int LD = tile_ld<DH>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const __half *const mine = values + lane % 16 * LD + warp * COLS + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < NP; j++)
        if constexpr (COLS == 8) {
            uint32_t b[2];
            ldmatrix_x2_trans(b, mine + j * 16 * LD);
            mma_f16(s.o[0][0], p[0][j], b);
        } else {
#pragma unroll
            for (int i = 0; i < COLS / 16; i++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, mine + j * 16 * LD + i * 16);
                mma_f16(s.o[0][2 * i], p[0][j], b);
                mma_f16(s.o[0][2 * i + 1], p[0][j], b + 2);
            }
        }
}

// Grid (ceil(n_token * group / 16), n_head_kv, splits).
template <int DH, bool PLAIN>
static __global__ void __launch_bounds__(THREADS)
    attention_few_kernel(const __grid_constant__ struct attention a, uint32_t n_token)
{
    using R = room<DH>;
    constexpr int LD = R::LD, COLS = DH / N_WARP;
    __shared__ R m;
    __half *const q = dynamic_smem<__half>(); // (M, LD)
    __half *const tiles = q + M * LD;         // (N_TILE, T, LD)
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_launch_dependents();
    const share_of<DH> b(a, n_token);
    const uint32_t n = 2 * (b.end - b.begin.tile0);
    for (uint32_t i = threadIdx.x; i < n / 2; i += THREADS)
        m.blocks[i] = b.block_of(b.begin.tile0 + i);
    __syncthreads();
    griddep_wait();
    if (n == 0)
        return;

    // Tile i: keys 0, values 0, keys 1, values 1, ...
    auto request = [&](uint32_t i) {
        if (i < n) {
            const struct kv_plane &plane = i % 2 ? a.v : a.k;
            const uint32_t position = b.first + (b.begin.tile0 + i / 2) * T;
            request_rows<DH, T, THREADS>(
                plane, kv_row(m.blocks[i / 2], a.n_head_kv, b.kv_head, position),
                (int)b.n_kv - (int)position, tiles + i % R::N_TILE * R::TILE, threadIdx.x);
        }
        cp_async_commit();
    };
    // All warps are done with tile i - 1, and see tile i.
    auto take = [&](uint32_t i) {
        cp_async_wait<R::N_TILE - 2>();
        __syncthreads();
        request(i + R::N_TILE - 1);
        return tiles + i % R::N_TILE * R::TILE;
    };
    for (uint32_t i = threadIdx.x; i < M * (DH / 8); i += THREADS) {
        const uint32_t r = i / (DH / 8), piece = i % (DH / 8);
        const __half *const from = b.query(a, r);
        cp_async16_or_zero(q + r * LD + piece * 8, from ? from + piece * 8 : a.q_f16, from);
    }
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < R::N_TILE; i++)
        request(i);

    uint32_t begin[2], end[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        b.seen_by(a, lane / 4 + 8 * h, begin[h], end[h]);
    const bool is_capped = !PLAIN && a.softcap != 0.0f;
    const float undo = is_capped ? 1.0f : a.score_undo;
    softmax<COLS, 1> s;
    softmax_init(s);
#pragma unroll 1
    for (uint32_t i = 0; i < n; i += 2) {
        float c[4] = {}, top[2] = {-INFINITY, -INFINITY}, base[2], shrink[2];
        multiply_keys<DH>(c, q, take(i));
        const uint32_t position = b.first + (b.begin.tile0 + i / 2) * T + warp * OF_WARP;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t p = position + lane % 4 * 2 + e % 2;
            c[e] = is_capped ? capped(a, c[e]) : c[e];
            c[e] = p < begin[e / 2] || p >= end[e / 2] ? -INFINITY : c[e];
            top[e / 2] = fmaxf(top[e / 2], c[e]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            top[h] = lane_max<1, 2>(top[h]);
            if (lane % 4 == 0)
                m.top[lane / 4 + 8 * h][warp] = top[h];
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *const of = m.top[lane / 4 + 8 * h];
#pragma unroll
            for (int w = 0; w < N_WARP; w++)
                top[h] = fmaxf(top[h], of[w]);
            raise_top_to(s, 0, h, top[h] * undo, base[h], shrink[h]);
            const float v0 = weight_of(c[2 * h], undo, base[h]),
                        v1 = weight_of(c[2 * h + 1], undo, base[h]);
            m.weights[warp][lane].pair[h] = half2_bits(__floats2half2_rn(v0, v1));
            m.weights[warp][lane].sum[h] = v0 + v1;
        }
        shrink_sums(s, 0, shrink);
        const __half *const values = take(i + 1);
        uint32_t p[1][NP][4];
#pragma unroll
        for (int w = 0; w < N_WARP; w++) {
            const auto of = m.weights[w][lane];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                p[0][w / 2][w % 2 * 2 + h] = of.pair[h];
                add_weights(s, 0, h, w == 0, of.sum[h], shrink);
            }
        }
        multiply_values<DH, COLS>(s, p, values);
    }

    if (b.shares()) {
        const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
        keep_sums<COLS, 1, THREADS>(s, kept_at<COLS, 1, THREADS>(a, blockIdx.z));
        if (!last_to_arrive(&a.counters[block], b.n_split))
            return;
        gather_kept<COLS, 1, THREADS>(a, b.n_split, s);
    }
    // Results four by four, by way of what was room for tiles: (M, O_LD) floats.
    constexpr uint32_t O_LD = DH + 8, N = DH / 4;
    float *const out = reinterpret_cast<float *>(tiles);
    __syncthreads();
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
    __syncthreads();
    const uint32_t rows = b.last_row - b.row0 + 1;
    for (uint32_t j = threadIdx.x; j < rows * N; j += THREADS)
        store_out(a, b.token_of(j / N), b.head_of(j / N), j % N * 4,
                  *reinterpret_cast<const float4 *>(out + j / N * O_LD + j % N * 4));
}

// ---- host

template <int DH> static constexpr bool HAS_KERNEL = DH == 64 || DH == 128 || DH == 256;

// Up to how many tiles blocks of 16 rows are sooner done than one of 128, of which `rows` are
// there: that needs longer before the first tile and behind the last one, and for a tile less. As
// measured on an H200 with prompts of 8 to 128 tokens behind 0 to 16,000 (tenths of microseconds).
// Of no more rows than that, and heads that are no wider, attention_prefill.cu has better blocks
// for them.
template <int DH> static uint32_t most_tiles(uint32_t rows)
{
    constexpr uint32_t LESS = DH == 64 ? 5 : DH == 128 ? 7 : 8, MOST_ROWS = 128, ALWAYS = 6;
    if (DH <= 128 && rows <= MOST_ROWS)
        return ALWAYS;
    const uint32_t n = (20 + lesser(rows, MOST_ROWS) * DH / 200) / LESS;
    return n > ALWAYS ? n : ALWAYS;
}

// How many blocks share rows, each with a split; 0: the other kernels are sooner, or alone can do
// it. n_block: blocks without splits.
template <int DH>
static uint32_t splits(const struct queue *q, const struct attention *a, uint32_t n_token,
                       uint32_t n_block)
{
    enum { AT_ONCE = DH > 128 ? 1 : 2 };
    constexpr size_t KEPT = (size_t)kept_sums<DH / N_WARP, 1>::N * THREADS * sizeof(float4);
    const struct prompt_reach reach = prompt_reach_of<DH>(a, n_token, M);
    const uint32_t n_row = n_token * (a->n_head / a->n_head_kv), n = n_block * reach.n_split;
    if (a->k.scales || a->v.scales || room<DH>::BYTES > q->smem_max)
        return 0;
    if (DH > 128 && !q->hopper) // bits are others there: attention_prefill.cu has tiles of 32
        return 0;
    if (n > AT_ONCE * (uint32_t)q->n_sm || (reach.n_split > 1 && n * KEPT > a->partial_bytes))
        return 0;
    const uint32_t n_tile = lesser(div_up(reach.seen, (uint32_t)T), room<DH>::MOST_TILES);
    return n_tile <= most_tiles<DH>(n_row) ? reach.n_split : 0;
}

bool attention_few_launch(const struct queue *q, const struct attention *a, uint32_t n, bool *done,
                          struct error *err)
{
    const uint32_t x = div_up(n * (a->n_head / a->n_head_kv), (uint32_t)M);
    struct launch l = prompt_launch(q, THREADS);
    *done = false;
    return with_kernel(*a, [&](auto dim, auto kind) {
        constexpr int DH = decltype(dim)::value;
        if constexpr (HAS_KERNEL<DH>) {
            const uint32_t z = splits<DH>(q, a, n, x * a->n_head_kv);
            *done = z > 0;
            l.grid = dim3(x, a->n_head_kv, z);
            l.smem = room<DH>::BYTES;
            return !*done ||
                   launch_kernel(err, l, attention_few_kernel<DH, decltype(kind)::plain>, *a, n);
        } else {
            return true;
        }
    });
}
