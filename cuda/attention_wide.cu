// Attention of heads that are too wide for attention_decode.cu and attention_prefill.cu, and latent
// attention, where values are the first numbers of keys and all query heads share them.
//
// A block takes 16 rows (token, query head) of one KV head, or twice as many where there are enough
// of them (TILES): they read half as much of the cache. Of each 16 rows, four warps have 8
// positions each of a tile of 32 for the scores; for the sums, all warps have a part of the columns
// of the values. The cache is cut into splits of 128 positions, later of 256, which are summed up
// by themselves and added in their order: where few rows are attended for, each by another block
// and a launch that adds them, else by one block. So a row's bits depend on its position alone, not
// on what is beside it.
#include "attention.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    N_TEAM = THREADS / TEAM,
    T = 32,              // positions of a tile
    SPLIT = 128,         // positions, of the first SHORT splits,
    LONG_SPLIT = 256,    // and of those behind: what many splits give takes long to add up
#ifdef HOKKU_CUDA_ON_CPU // so that few positions have both
    SHORT = 2,
#else
    SHORT = 32,
#endif
    MERGED = 16,              // splits that are read at a time
    PARTIAL_BYTES = 64 << 20, // that more than one token's splits may take
    SPLIT_TOKENS = 16,        // whose splits are given to blocks of their own, at most
};
static_assert(KV_BLOCK % T == 0 && SPLIT % KV_BLOCK == 0, "a tile lies in one block");

static __host__ __device__ __forceinline__ uint32_t split_begin(uint32_t s)
{
    return s <= SHORT ? s * SPLIT : SHORT * SPLIT + (s - SHORT) * LONG_SPLIT;
}
static __host__ __device__ __forceinline__ uint32_t split_of(uint32_t position)
{
    return position < SHORT * SPLIT ? position / SPLIT
                                    : SHORT + (position - SHORT * SPLIT) / LONG_SPLIT;
}

// Columns that a block adds up: as few as a warp has, so that many wait for memory side by side.
template <int DV> static constexpr int MERGE_COLS = DV < 128 ? DV : 128;

struct wide {
    struct attention a;
    uint32_t n, value_dim;
    bool each; // rows are the next tokens of sequences, else the next ones of one
    // (n, n_head) takes scores to units of log2, in place of a.score_undo; NULL: that. Then keys
    // are values, too.
    const float *undo;
    size_t out_token, out_head; // floats of a.out from one to the next
    uint32_t n_split;           // that a row may have
    bool parted;                // splits are left in part and ml
    float *part;                // (n, n_head, n_split, DV) sums
    float2 *ml;                 // (n, n_head, n_split) maxima and divisors
};

// Asks for P pieces of 16 bytes of each of rows [0, T) of the cache, from `from` on, by all
// threads: a warp has every N_WARP-th row. What is not there becomes zeros.
template <uint32_t P, uint32_t N>
static __device__ __forceinline__ void request_pieces(const uint8_t *from, uint32_t row_bytes,
                                                      int left, uint8_t *to, uint32_t stride)
{
    constexpr uint32_t TURNS = (P + WARP - 1) / WARP;
    const uint32_t warp = threadIdx.x / WARP, at = threadIdx.x % WARP * 16;
    const uint8_t *const mine = from + (size_t)warp * row_bytes + at;
    to += warp * stride + at;
#pragma unroll
    for (uint32_t r = 0; r < T; r += N / WARP)
#pragma unroll
        for (uint32_t i = 0; i < TURNS; i++) {
            const uint32_t offset = i * WARP * 16;
            const bool valid = (int)(r + warp) < left && offset + at < row_bytes;
            if (P % WARP == 0 || offset + at < P * 16)
                cp_async16_or_zero(to + r * stride + offset,
                                   valid ? mine + (size_t)r * row_bytes + offset : from, valid);
        }
}

// Asks for a tile of the cache from row0 on, as request_rows does, by all threads.
template <int DK, int N>
static __device__ __forceinline__ void request_tile(const struct kv_plane &plane, size_t row0,
                                                    int left, __half *tile)
{
    const uint8_t *const from = plane.data + row0 * plane.row_bytes;
    uint8_t *const to = reinterpret_cast<uint8_t *>(tile);
    if (!plane.scales) {
        request_pieces<DK / 8, N>(from, plane.row_bytes, left, to, tile_ld<DK>() * sizeof(__half));
    } else {
        request_pieces<DK / 16, N>(from, plane.row_bytes, left, to, DK);
        constexpr uint32_t WORDS = tile_groups<DK>() / 2;
        uint32_t *scales = reinterpret_cast<uint32_t *>(to + T * DK);
        for (uint32_t i = threadIdx.x; i < T * WORDS; i += N) {
            const uint32_t r = i / WORDS, g = i % WORDS * 2;
            if ((int)r < left && g < plane.n_group)
                cp_async4(&scales[i], plane.scales + (row0 + r) * plane.n_group + g);
            else
                scales[i] = 0;
        }
    }
    cp_async_commit();
}

// What has been summed up of a row in this order: `more`, with a maximum of its own, after `sum`.
struct joined {
    float top, keep, add; // the new maximum, and the factors of both
};
static __device__ __forceinline__ struct joined join(float top, float more_top)
{
    struct joined j;
    j.top = fmaxf(top, more_top);
    const float base = j.top == -INFINITY ? 0.0f : j.top; // nothing seen
    j.keep = ptx_exp2(top - base);
    j.add = ptx_exp2(more_top - base);
    return j;
}
static __device__ __forceinline__ float join_sums(const struct joined &j, float sum, float more)
{
    return __fmaf_rn(more, j.add, __fmul_rn(sum, j.keep));
}

// Tiles of positions that a block of so many tiles of rows has room for: where keys and values are
// apart, and it is alone on a multiprocessor, two of both, so that nobody waits for either.
static constexpr __host__ __device__ int n_buffer(int tiles, bool one_plane)
{
    return tiles > 1 && !one_plane ? 4 : 2;
}

// Grid (TILES tiles of 16 rows, n_head_kv, blocks that share the splits: one where TILES > 1).
template <int DK, int DV, int TILES>
static __global__ void __launch_bounds__(THREADS *TILES)
    wide_kernel(const __grid_constant__ struct wide w)
{
    constexpr int LD = tile_ld<DK>(), P_LD = T + 8, ROWS = M * TILES, ALL = THREADS * TILES;
    constexpr int NT = DV / 8 / (N_WARP * TILES), PART = DV / (N_WARP * TILES); // columns of a warp
    __shared__ __align__(16) __half p_tile[ROWS * P_LD];
    __shared__ float red[N_WARP * TILES][M];
    const struct attention &a = w.a;
    // (ROWS, LD), (n_buffer, T, LD)
    __half *const q = dynamic_smem<__half>(), *const tiles = q + ROWS * LD;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t own = warp / N_WARP, own_row = M * own, quarter = warp % N_WARP; // for scores
    const uint32_t kv_head = blockIdx.y, group = a.n_head / a.n_head_kv;
    const uint32_t per_token = div_up(group, (uint32_t)M), n_row = w.each ? group : w.n * group;
    const uint32_t token0 = w.each ? blockIdx.x / per_token : 0;
    // the longest rows first
    const uint32_t row0 = (w.each ? blockIdx.x % per_token : gridDim.x - 1 - blockIdx.x) * ROWS;
    const bool one_plane = w.undo != NULL;
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    const struct seq_row at = a.rows[token0];
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks;
    const uint32_t last_row = min(row0 + ROWS, n_row) - 1;
    const uint32_t first_pos = window_begin(a, at.pos + row0 / group);
    const uint32_t end_pos = at.pos + last_row / group + 1;
    // row r of the block, as a row of (n, n_head)
    auto row_of = [&](uint32_t r) {
        return (size_t)(token0 + (row0 + r) / group) * a.n_head + kv_head * group +
               (row0 + r) % group;
    };
    auto request = [&](const struct kv_plane &plane, uint32_t t, __half *tile) {
        request_tile<DK, ALL>(plane, kv_row(table[t * T / KV_BLOCK], a.n_head_kv, kv_head, t * T),
                              (int)end_pos - (int)(t * T), tile);
    };
    // Waits for that tile, but not for what has been asked for after it, `ahead` times.
    auto arrive = [&](auto ahead, const struct kv_plane &plane, __half *tile) {
        cp_async_wait<decltype(ahead)::value>();
        __syncthreads();
        if (plane.scales)
            widen_rows<DK, T, ALL>(tile, threadIdx.x, [] { __syncthreads(); });
    };
    constexpr std::integral_constant<int, 0> all_of_it = {};
    constexpr std::integral_constant<int, 1> but_one = {};
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < ROWS * (DK / 8); i += ALL) {
        const uint32_t r = i / (DK / 8), piece = i % (DK / 8);
        const bool valid = row0 + r <= last_row;
        cp_async16_or_zero(q + r * LD + piece * 8,
                           a.q_f16 + (valid ? row_of(r) * DK + piece * 8 : 0), valid);
    }
    uint32_t begin[2], end[2];
    float undo[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t r = own_row + lane / 4 + 8 * h, p = at.pos + (row0 + r) / group;
        const bool valid = row0 + r <= last_row;
        begin[h] = valid ? window_begin(a, p) : 0;
        end[h] = valid ? p + 1 : 0;
        undo[h] = w.undo ? (valid ? w.undo[row_of(r)] : 1.0f) : a.score_undo;
    }

    float all_top[TILES][2], all_sum[TILES][2] = {}, all[TILES][NT][4] = {};
#pragma unroll
    for (int m = 0; m < TILES; m++)
        all_top[m][0] = all_top[m][1] = -INFINITY;
    const uint32_t split_end = split_of(end_pos - 1) + 1;
    const uint32_t last = div_up(end_pos, (uint32_t)T); // tiles of all splits
    const bool four = TILES > 1 && !one_plane;
    const auto buffer = [&](uint32_t i) { return tiles + (size_t)i * T * LD; };
    uint32_t turn = 0;
    bool asked = false;
#pragma unroll 1
    for (uint32_t s = split_of(first_pos) + blockIdx.z; s < split_end; s += gridDim.z) {
        const uint32_t t0 = max(first_pos, split_begin(s)) / T;
        const uint32_t t1 = div_up(min(end_pos, split_begin(s + 1)), (uint32_t)T);
        float top[TILES][2], sum[2] = {}, o[TILES][NT][4] = {};
#pragma unroll
        for (int m = 0; m < TILES; m++)
            top[m][0] = top[m][1] = -INFINITY;
        if (TILES == 1 || !asked) {
            turn = 0;
            request(a.k, t0, tiles);
            if (four)
                request(a.v, t0, buffer(2));
        }
        asked = true;
#pragma unroll 1
        for (uint32_t t = t0; t < t1; t++) {
            // where a block has all splits they follow one another
            const bool more = t + 1 < (TILES > 1 ? last : t1);
            __half *const k = buffer(turn), *const other = buffer(four ? 2 + turn : 1 - turn);
            if (four) {
                arrive(but_one, a.k, k);
                if (more)
                    request(a.k, t + 1, buffer(1 - turn));
                else
                    cp_async_commit();
            } else {
                arrive(all_of_it, a.k, k);
                if (!one_plane)
                    request(a.v, t, other); // everyone is done with the last tile's values
                else if (more)
                    request(a.k, t + 1, other);
            }
            float c[2][4] = {}; // for shorter chains of dependent products
#pragma unroll 6
            for (int ks = 0; ks < DK / 16; ks += 2) {
                uint32_t b[4], x[2][4];
                ldmatrix_x4(b, k + (quarter * 8 + lane % 8) * LD + ks * 16 + lane / 8 * 8);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    ldmatrix_x4(x[i],
                                q + (own_row + lane % 16) * LD + (ks + i) * 16 + lane / 16 * 8);
                    mma_f16(c[i], x[i], b + 2 * i);
                }
            }
            float score[4], tile_top[2] = {-INFINITY, -INFINITY};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const uint32_t p = t * T + quarter * 8 + lane % 4 * 2 + e % 2;
                float v = (c[0][e] + c[1][e]) * undo[e / 2];
                if (a.softcap != 0.0f) { // c tanh(s / c) = c - 2 c / (1 + e^(2 s / c))
                    const float cap = 1.4426950408889634f * a.softcap;
                    v = cap - __fdividef(2.0f * cap, 1.0f + ptx_exp2(v * (2.0f / a.softcap)));
                }
                score[e] = p < begin[e / 2] || p >= end[e / 2] ? -INFINITY : v;
                tile_top[e / 2] = fmaxf(tile_top[e / 2], score[e]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                tile_top[h] = lane_max<1, 2>(tile_top[h]);
                if (lane % 4 == 0)
                    red[warp][lane / 4 + 8 * h] = tile_top[h];
            }
            __syncthreads();
            float shrink[TILES][2];
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t r = lane / 4 + 8 * h;
                    float next = top[m][h];
#pragma unroll
                    for (int i = 0; i < N_WARP; i++)
                        next = fmaxf(next, red[m * N_WARP + i][r]);
                    const float base = next == -INFINITY ? 0.0f : next; // nothing seen
                    shrink[m][h] = ptx_exp2(top[m][h] - base);
                    top[m][h] = next;
                    if (m != (int)own)
                        continue;
                    const float low = ptx_exp2(score[2 * h] - base);
                    const float high = ptx_exp2(score[2 * h + 1] - base);
                    sum[h] = sum[h] * shrink[m][h] + (low + high);
                    *reinterpret_cast<__half2 *>(p_tile + (own_row + r) * P_LD + quarter * 8 +
                                                 lane % 4 * 2) = __floats2half2_rn(low, high);
                }
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int i = 0; i < NT; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        o[m][i][e] *= shrink[m][e / 2];
            const __half *v = k;
            if (one_plane) {
                __syncthreads();
            } else if (four) {
                v = other;
                arrive(but_one, a.v, other);
                if (more)
                    request(a.v, t + 1, buffer(3 - turn));
                else
                    cp_async_commit();
            } else {
                v = other;
                arrive(all_of_it, a.v, other); // and everyone is done with the keys
                if (more)
                    request(a.k, t + 1, k);
            }
            if (four || one_plane)
                turn = 1 - turn;
            const uint32_t m8 = lane / 8;
            v += (m8 % 2 * 8 + lane % 8) * LD + warp * PART + m8 / 2 * 8;
#pragma unroll
            for (int j = 0; j < T / 16; j++) {
                uint32_t p[TILES][4];
#pragma unroll
                for (int m = 0; m < TILES; m++)
                    ldmatrix_x4(p[m], p_tile + (m * M + lane % 16) * P_LD + j * 16 + lane / 16 * 8);
#pragma unroll
                for (int i = 0; i < NT / 2; i++) {
                    uint32_t b[4];
                    ldmatrix_x4_trans(b, v + j * 16 * LD + i * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma_f16(o[m][2 * i], p[m], b);
                        mma_f16(o[m][2 * i + 1], p[m], b + 2);
                    }
                }
            }
        }
        // the divisors, of all warps' positions
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] = lane_sum<1, 2>(sum[h]);
        }
        __syncthreads(); // the maxima have been read
        if (lane % 4 == 0)
            red[warp][lane / 4] = sum[0], red[warp][lane / 4 + 8] = sum[1];
        __syncthreads();
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t r = lane / 4 + 8 * h;
                float divisor = 0.0f;
#pragma unroll
                for (int i = 0; i < N_WARP; i++)
                    divisor += red[m * N_WARP + i][r];
                if (TILES == 1 && w.parted) {
                    if (row0 + r > last_row)
                        continue;
                    const size_t slot = row_of(r) * w.n_split + s;
                    float *to = w.part + slot * DV + warp * PART + lane % 4 * 2;
                    if (threadIdx.x % 4 == 0 && warp == 0)
                        w.ml[slot] = make_float2(top[m][h], divisor);
#pragma unroll
                    for (int i = 0; i < NT; i++)
                        *reinterpret_cast<float2 *>(to + i * 8) =
                            make_float2(o[m][i][2 * h], o[m][i][2 * h + 1]);
                    continue;
                }
                const struct joined j = join(all_top[m][h], top[m][h]);
                all_top[m][h] = j.top;
                all_sum[m][h] = join_sums(j, all_sum[m][h], divisor);
#pragma unroll
                for (int i = 0; i < NT; i++)
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++)
                        all[m][i][e] = join_sums(j, all[m][i][e], o[m][i][e]);
            }
    }
    cp_async_commit(); // of a block that has nothing to do: its queries
    cp_async_wait<0>();
    if (w.parted)
        return;
    // To be packed four by four, results lie in the place of all tiles, which have been read:
    // (ROWS, O_LD) floats.
    constexpr uint32_t O_LD = DV + 8, N = DV / 4;
    static_assert(DV <= DK && ROWS * sizeof(float) <= (ROWS + 2 * T) * sizeof(__half),
                  "they have room");
    float *const o_tile = reinterpret_cast<float *>(q);
    if (TILES > 1) // others may still read the last tile
        __syncthreads();
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t r = m * M + lane / 4 + 8 * h;
            if (row0 + r > last_row)
                continue;
            const uint32_t token = token0 + (row0 + r) / group;
            const uint32_t head = kv_head * group + (row0 + r) % group;
            const float scale = a.v_undo / with_sink(a, head, all_top[m][h], all_sum[m][h]);
            if (a.packed.x) {
#pragma unroll
                for (int i = 0; i < NT; i++)
                    *reinterpret_cast<float2 *>(o_tile + r * O_LD + warp * PART + i * 8 +
                                                lane % 4 * 2) =
                        make_float2(all[m][i][2 * h] * scale, all[m][i][2 * h + 1] * scale);
                continue;
            }
            float *out = a.out + token * w.out_token + head * w.out_head;
#pragma unroll
            for (int i = 0; i < NT; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const uint32_t d = warp * PART + i * 8 + lane % 4 * 2 + e;
                    if (d < w.value_dim)
                        out[d] = all[m][i][2 * h + e] * scale *
                                 (a.gated ? gate_of(a, token, head, d) : 1.0f);
                }
        }
    if (!a.packed.x)
        return;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < (last_row - row0 + 1) * N; j += ALL) {
        const uint32_t row = row0 + j / N;
        store_out(a, token0 + row / group, kv_head * group + row % group, j % N * 4,
                  *reinterpret_cast<const float4 *>(o_tile + j / N * O_LD + j % N * 4));
    }
}

// Grid (n_head, n, DV / columns of a block): adds a row's splits.
template <int DV>
static __global__ void __launch_bounds__(MERGE_COLS<DV> / 4)
    wide_merge_kernel(const __grid_constant__ struct wide w)
{
    const struct attention &a = w.a;
    const uint32_t head = blockIdx.x, token = blockIdx.y;
    const uint32_t d = blockIdx.z * MERGE_COLS<DV> + threadIdx.x * 4;
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    const uint32_t position = w.each ? a.rows[token].pos : a.rows[0].pos + token;
    const size_t slot0 = ((size_t)token * a.n_head + head) * w.n_split;
    float top = -INFINITY, sum = 0.0f, v[4] = {};
    const uint32_t end = split_of(position) + 1;
#pragma unroll 1
    for (uint32_t s = split_of(window_begin(a, position)); s < end; s += MERGED) {
        float2 ml[MERGED];
        float4 more[MERGED];
#pragma unroll
        for (uint32_t i = 0; i < MERGED; i++) { // all under way at once
            const size_t slot = slot0 + s + i;
            const bool is_there = s + i < end;
            ml[i] = is_there ? __ldcg(&w.ml[slot]) : make_float2(-INFINITY, 0.0f);
            more[i] = is_there ? __ldcg(reinterpret_cast<const float4 *>(w.part + slot * DV + d))
                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (uint32_t i = 0; i < MERGED; i++) {
            const struct joined j = join(top, ml[i].x);
            top = j.top;
            sum = join_sums(j, sum, ml[i].y);
            v[0] = join_sums(j, v[0], more[i].x);
            v[1] = join_sums(j, v[1], more[i].y);
            v[2] = join_sums(j, v[2], more[i].z);
            v[3] = join_sums(j, v[3], more[i].w);
        }
    }
    const float scale = a.v_undo / with_sink(a, head, top, sum);
    if (a.packed.x) {
        store_out(a, token, head, d, scaled(make_float4(v[0], v[1], v[2], v[3]), scale));
        return;
    }
    float *out = a.out + token * w.out_token + head * w.out_head;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (d + i < w.value_dim)
            out[d + i] = v[i] * scale * (a.gated ? gate_of(a, token, head, d + i) : 1.0f);
}

// Grid (n, heads of q, k and v / N_TEAM): as rotate_store_kernel, a team per head and token.
template <int DH>
static __global__ void __launch_bounds__(THREADS)
    wide_store_kernel(const __grid_constant__ struct attention a, bool each)
{
    __shared__ __align__(8) float buf[N_TEAM][DH];
    const uint32_t team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
    const uint32_t h = blockIdx.y * N_TEAM + team, i = blockIdx.x;
    griddep_launch_dependents();
    const head_norm<DH> norm = load_norm<DH, false>(a, norm_of<false>(a, h), lane);
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    const float2 *rope = a.rope ? a.rope + (size_t)i * (a.rope_dim / 2) : NULL;
    const struct seq_row at = a.rows[each ? i : 0];
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks;
    const uint32_t position = each ? at.pos : at.pos + i;
    head_pairs<DH> v;
    if (h < a.n_head) {
        load_head<DH, false>(a, a.q_in + (size_t)i * a.ld_q + h * query_stride(&a), rope, lane, v);
        finish_head<DH, false>(a, norm, lane, v);
        store_query<DH, false>(a, v, position, a.q_f16 + ((size_t)i * a.n_head + h) * DH, lane);
    } else if (h < a.n_head + 2 * a.n_head_kv && !a.cached) {
        const bool is_k = h < a.n_head + a.n_head_kv;
        const uint32_t kv = h - a.n_head - (is_k ? 0 : a.n_head_kv);
        const float *src = (is_k ? a.k_in : a.v_in) + (size_t)i * a.ld_kv + kv * a.head_dim;
        load_head<DH, false>(a, src, is_k ? rope : NULL, lane, v);
        finish_head<DH, false>(a, norm, lane, v);
        const size_t row = kv_row(table[position / KV_BLOCK], a.n_head_kv, kv, position);
        store_kv<DH, false>(a, is_k ? a.k : a.v, row, v, buf[team], NULL, lane);
    }
}

// ---- host

template <int DK, int DV> struct widths {
    static constexpr int dk = DK, dv = DV;
    // of blocks of so many tiles of rows
    static constexpr size_t smem(int tiles, bool one_plane)
    {
        return sizeof(__half) * tile_ld<DK>() * (M * tiles + n_buffer(tiles, one_plane) * T);
    }
};

// Calls f with the widths of the kernel; false when none fits. one_plane: keys are values, too.
template <typename F> static bool with_widths(uint32_t key, uint32_t value, bool one_plane, F f)
{
    if (!one_plane)
        return key <= 512 ? f(widths<512, 512>()) : false;
    return key <= 64                    ? f(widths<64, 64>())
           : key <= 320 && value <= 256 ? f(widths<320, 256>())
           : key <= 576 && value <= 512 ? f(widths<576, 512>())
                                        : false;
}

static uint32_t splits_of(uint32_t n_position)
{
    return split_of(n_position - 1) + 1;
}

// Of one token's splits.
static size_t token_bytes(uint32_t n_head, uint32_t dv, uint32_t n_split)
{
    return (size_t)n_head * n_split * (dv + 2) * sizeof(float);
}

bool attention_wide_scratch(uint32_t n_head, uint32_t key, uint32_t value, bool one_plane,
                            uint32_t n_ctx, struct attention_wide_scratch *out)
{
    *out = {};
    return with_widths(key, value, one_plane, [&](auto tag) {
        using W = decltype(tag);
        const size_t each = token_bytes(n_head, W::dv, splits_of(kv_blocks(n_ctx) * KV_BLOCK));
        const size_t n = lesser((size_t)PARTIAL_BYTES / each, (size_t)SPLIT_TOKENS);
        out->partial = (n ? n : 1) * each;
        out->key_width = W::dk;
        out->smem = W::smem(1, one_plane);
        return true;
    });
}

// The last position that there may be.
static uint32_t last_position(const struct attention *a)
{
    return a->max_blocks * KV_BLOCK - 1;
}

// No row is further than `furthest`.
static bool launch(const struct queue *q, struct wide w, uint32_t key, uint32_t furthest,
                   struct error *err)
{
    const struct attention &a = w.a;
    const uint32_t group = a.n_head / a.n_head_kv;
    const uint32_t n_tile =
        w.each ? w.n * div_up(group, (uint32_t)M) : div_up(w.n * group, (uint32_t)M);
    const uint32_t n_block = n_tile * a.n_head_kv;
    w.n_split = splits_of(furthest + 1);
    return with_widths(key, w.value_dim, w.undo != NULL, [&](auto tag) {
        using W = decltype(tag);
        w.parted = w.n_split > 1 && n_block < (uint32_t)q->n_sm &&
                   w.n * token_bytes(a.n_head, W::dv, w.n_split) <= a.partial_bytes;
        w.part = a.partial;
        w.ml = reinterpret_cast<float2 *>(a.partial + (size_t)w.n * a.n_head * w.n_split * W::dv);
        const uint32_t share = lesser(2 * (uint32_t)q->n_sm / n_block, w.n_split);
        struct launch l = {.name = "attention_wide",
                           .grid = dim3(n_tile, a.n_head_kv, w.parted && share ? share : 1),
                           .block = dim3(THREADS),
                           .smem = W::smem(1, w.undo != NULL),
                           .stream = q->stream,
                           .dependent = q->dependent,
                           .recorder = q->recorder};
        struct launch merge = {.name = "wide_merge",
                               .grid = dim3(a.n_head, w.n, W::dv / MERGE_COLS<W::dv>),
                               .block = dim3(MERGE_COLS<W::dv> / 4),
                               .stream = q->stream,
                               .dependent = q->dependent,
                               .recorder = q->recorder};
        if constexpr (W::dv >= 128) { // of narrower ones a warp would have no columns
            constexpr int TWO = 2;
            struct launch two = l;
            two.grid = dim3(div_up(w.n * group, (uint32_t)(TWO * M)), a.n_head_kv);
            two.block = dim3(TWO * THREADS);
            two.smem = W::smem(TWO, w.undo != NULL);
            // (what else a block has there are its rows' weights and maxima)
            if (!w.each && two.grid.x * two.grid.y >= (uint32_t)q->n_sm &&
                two.smem + 8192 <= q->smem_max)
                return launch_kernel(err, two, wide_kernel<W::dk, W::dv, TWO>, w);
        }
        return launch_kernel(err, l, wide_kernel<W::dk, W::dv, 1>, w) &&
               (!w.parted || launch_kernel(err, merge, wide_merge_kernel<W::dv>, w));
    });
}

bool attention_wide_launch(const struct queue *q, const struct attention *a, uint32_t n, bool each,
                           struct error *err)
{
    struct wide w = {};
    if (!attention_norm_whole(q, a, n, &w.a, err))
        return false;
    w.n = n;
    w.value_dim = a->head_dim;
    w.each = each;
    w.out_head = a->head_dim;
    w.out_token = (size_t)a->n_head * a->head_dim;
    const uint32_t n_vector = a->n_head + (a->cached ? 0 : 2 * a->n_head_kv);
    struct launch store = {.name = "wide_store",
                           .grid = dim3(n, div_up(n_vector, (uint32_t)N_TEAM)),
                           .block = dim3(THREADS),
                           .stream = q->stream,
                           .dependent = q->dependent,
                           .recorder = q->recorder};
    if (!launch_kernel(err, store, wide_store_kernel<512>, w.a, each))
        return false;
    return !each && !a->together && attention_wide_hopper_takes(q, &w.a)
               ? attention_wide_hopper_launch(q, &w.a, n, err)
               : launch(q, w, a->head_dim, last_position(a), err);
}

static struct wide latent_of(const struct attention *a, const float *undo, uint32_t value_dim,
                             uint32_t n)
{
    struct wide w = {};
    w.a = *a;
    w.n = n;
    w.value_dim = value_dim;
    w.undo = undo;
    w.out_token = value_dim;
    w.out_head = (size_t)n * value_dim;
    return w;
}

bool attention_latent_launch(const struct queue *q, const struct attention *a, const float *undo,
                             uint32_t value_dim, uint32_t n, struct error *err)
{
    return launch(q, latent_of(a, undo, value_dim, n), a->head_dim, last_position(a), err);
}

// n of the rows of a latent, from row i on.
static struct wide latent_from_row(struct wide w, uint32_t i, uint32_t n, uint32_t key_width)
{
    w.n = n;
    w.a.rows += i;
    w.a.q_f16 += (size_t)i * w.a.n_head * key_width;
    w.a.out += i * w.out_token;
    w.undo += (size_t)i * w.a.n_head;
    return w;
}

// How many of these rows, each on its own, are attended to at a time: all, but where blocks share a
// row's splits as many as the scratch has room for. None is further than `furthest`.
static uint32_t rows_at_once(const struct queue *q, const struct wide *w, uint32_t dv,
                             uint32_t furthest)
{
    const uint32_t n_block = w->n * div_up(w->a.n_head, (uint32_t)M);
    const size_t room = w->a.partial_bytes / token_bytes(w->a.n_head, dv, splits_of(furthest + 1));
    return n_block >= (uint32_t)q->n_sm || room == 0 ? w->n : (uint32_t)lesser(room, (size_t)w->n);
}

bool attention_latent_rows_launch(const struct queue *q, const struct attention *a,
                                  const float *undo, uint32_t value_dim, uint32_t n,
                                  const struct row_span *spans, uint32_t n_span, uint32_t furthest,
                                  uint32_t reach, struct error *err)
{
    const struct wide all = latent_of(a, undo, value_dim, n);
    furthest = lesser(furthest, last_position(a)); // a graph has room for more than there may be
    const uint32_t n_own = n_span > 0 ? spans[0].row0 : n;
    return with_widths(a->head_dim, value_dim, true, [&](auto tag) {
        using W = decltype(tag);
        struct wide own = latent_from_row(all, 0, n_own, W::dk);
        own.each = true;
        const uint32_t most = rows_at_once(q, &own, W::dv, furthest);
        for (uint32_t i = 0; i < n_own; i += most)
            if (!launch(q, latent_from_row(own, i, lesser(n_own - i, most), W::dk), a->head_dim,
                        furthest, err))
                return false;
        for (uint32_t i = 0; i < n_span; i++)
            if (!launch(q, latent_from_row(all, spans[i].row0, spans[i].n, W::dk), a->head_dim,
                        reach, err))
                return false;
        return true;
    });
}
