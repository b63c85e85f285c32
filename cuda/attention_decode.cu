// Attention of one token over the cache, or of the next tokens of several sequences: each row by
// itself, cut up as it would be alone. All query heads that share a KV head form the rows of one
// matrix tile, so every key and value is read once however many heads use it (GQA, Ainslie et al.
// 2023). The cache is cut into tiles of 16 positions, consecutive tiles are dealt out to the blocks
// of a KV head and in turn to their warps (Flash-Decoding); each block merges its warps, and the
// block that comes last what they all have summed up, since a block must not wait for others, which
// may have no room while another program uses the GPU. The cut depends on the shapes and the
// position alone, so the same position gives the same bits. Where rows follow one another in a
// sequence, those that are cut up alike, as sixteen neighbours are, share what is read from the
// cache: a row of a matrix tile does not depend on the others. Where many rows have more splits
// than there are multiprocessors, a block takes several, one after the other.
//
// A token waits for this kernel once per layer, and after a short text it is all latency. So the
// older keys and values, which no kernel in flight writes, are requested before the predecessor has
// ended; everything that the predecessor did write is requested at once; and up to two turns of
// every warp are under way at a time, which at full depth is what a multiprocessor needs in flight.
#include "attention.cuh"

enum {
    MAX_WARP = 8,
    FEW_WARP = 4,     // where shared memory is short
    MAX_SPLIT = 64,   // blocks per KV head
    SPLIT_TILES = 8,  // tiles that make a block worth while,
    ALONE_TILES = 16, // and what one block does faster than several blocks and a merge
    SPLIT_ROWS = 64,  // that blocks share at a time
    GROUP_TILES = 2,  // matrix tiles of a group of rows
};

// Rows that follow one another in a sequence, in groups of `size`, a power of two that divides M:
// those whose positions have the same multiple of it below them. size 0: rows are on their own, and
// n_block blocks share the splits of a KV head of one, of which the furthest has up to n_split.
struct row_groups {
    uint32_t n, size, n_block, n_split;
};

// Turns of K and V tiles under way per warp. Crowded: after short texts, where there are more
// blocks than multiprocessors, two have room on each if every warp has one turn under way.
template <int DH> static constexpr __host__ __device__ int n_stage(bool crowded = false)
{
    return DH > 128 || crowded ? 1 : 2;
}

template <int DH> static constexpr bool may_be_crowded()
{
    return DH == 128; // two blocks of narrower heads have room anyway
}

template <int DH> static constexpr __host__ __device__ uint32_t tile_elems()
{
    return M * tile_ld<DH>();
}

// Norms of the vectors that a block prepares: of query heads head0 .. head0 + n_head - 1 of each
// token, n_row in all, then of the key and the value. The i-th, for a team.
// ALONE: there is one token, n_row is n_head.
template <int DH, bool PLAIN, bool ALONE>
static __device__ __forceinline__ head_norm<DH>
load_norm_of(const struct attention &a, uint32_t kv_head, uint32_t head0, uint32_t n_head,
             uint32_t n_row, uint32_t i)
{
    const uint32_t vector = i < n_row ? head0 + (ALONE ? i : i % n_head)
                                      : a.n_head + (i - n_row) * a.n_head_kv + kv_head;
    return load_norm<DH, PLAIN>(a, i < n_row + 2 ? norm_of<PLAIN>(a, vector) : NULL,
                                threadIdx.x % TEAM);
}

// Prepares the vectors that the predecessor left in row `token` and those after it: those of
// load_norm_of, the token's key and value if `newest`. norm: of the team's first. buf (2, DH), copy
// (2, DH): for key and value. `more` is called once by every thread, when the first vector has been
// requested.
template <int DH, bool PLAIN, bool ALONE, typename F>
static __device__ __forceinline__ void
prepare(const struct attention &a, uint32_t token, uint32_t kv_head, uint32_t head0,
        uint32_t n_head, uint32_t n_row, bool newest, uint32_t position, size_t cache_row,
        head_norm<DH> norm, __half *q, float *buf, __half *copy, F more)
{
    const uint32_t lane = threadIdx.x % TEAM, n = n_row + (newest ? 2 : 0);
    const size_t kv_at = (size_t)token * a.ld_kv + kv_head * a.head_dim;
    bool begun = false;
#pragma unroll 1
    for (uint32_t i = threadIdx.x / TEAM; i < n || !begun; i += blockDim.x / TEAM) {
        const uint32_t later = !ALONE && i < n_row ? i / n_head : 0; // tokens
        const float2 *const rope =
            a.rope ? a.rope + (size_t)(token + later) * (a.rope_dim / 2) : NULL;
        const float *const q_in = a.q_in + (size_t)(token + later) * a.ld_q;
        const float *src = i < n_row    ? q_in + (head0 + i - later * n_head) * query_stride(&a)
                           : i == n_row ? a.k_in + kv_at
                                        : a.v_in + kv_at;
        head_pairs<DH> h = {};
        if (i < n)
            load_head<DH, PLAIN>(a, src, i <= n_row ? rope : NULL, lane, h);
        if (begun)
            norm = load_norm_of<DH, PLAIN, ALONE>(a, kv_head, head0, n_head, n_row, i);
        else
            more();
        begun = true;
        if (i >= n)
            break;
        finish_head<DH, PLAIN>(a, norm, lane, h);
        if (i < n_row)
            store_query<DH, PLAIN>(a, h, position + later, q + i * tile_ld<DH>(), lane);
        else
            store_kv<DH, PLAIN>(a, i == n_row ? a.k : a.v, cache_row, h, buf + (i - n_row) * DH,
                                copy + (i - n_row) * DH, lane);
    }
}

struct merge_buffer {
    float weight[MAX_SPLIT][M]; // of a block's sums, by row
    float sum[M];
    float4 v[MAX_WARP * WARP];
};

// Merges what n_part blocks have summed up: part (n_part, ld, DH), ml (n_part, ld), n_row of ld.
// The pieces of a row, four values each, are dealt out to the threads; where there are fewer pieces
// than threads, several threads share the blocks of one. Everything is added in an order that the
// shapes alone decide. The first row is head0 of a token.
template <int DH>
static __device__ void merge_blocks(const struct attention &a, const float4 *part, const float2 *ml,
                                    uint32_t n_part, uint32_t n_row, uint32_t ld, uint32_t token,
                                    uint32_t head0, struct merge_buffer *b)
{
    constexpr uint32_t N = DH / 4, AT_ONCE = DH > 32 ? 8 : 4; // few enough not to spill
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t n_piece = n_row * N, width = min(n_piece, blockDim.x);
    const uint32_t n_share = blockDim.x / width, share = threadIdx.x / width;
    float4 v[AT_ONCE];
    // AT_ONCE loads of a thread are under way together
    auto load = [&](uint32_t piece, uint32_t p0) {
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
            uint32_t p = p0 + j * n_share;
            v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (share < n_share && piece < n_piece && p < n_part)
                v[j] = __ldcg(&part[(size_t)p * ld * N + piece]);
        }
    };
    load(threadIdx.x % width, share);
    for (uint32_t r = warp; r < n_row; r += blockDim.x / WARP) {
        float2 x[MAX_SPLIT / WARP];
        float top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < MAX_SPLIT / WARP; i++) {
            uint32_t p = lane + i * WARP;
            x[i] = p < n_part ? __ldcg(&ml[p * ld + r]) : make_float2(-INFINITY, 0.0f);
            top = fmaxf(top, x[i].x);
        }
        top = warp_max(top);
#pragma unroll
        for (uint32_t i = 0; i < MAX_SPLIT / WARP; i++) {
            uint32_t p = lane + i * WARP;
            float f = ptx_exp2(x[i].x - top);
            sum = fmaf(x[i].y, f, sum);
            if (p < n_part)
                b->weight[p][r] = f;
        }
        sum = warp_sum(sum);
        if (lane == 0)
            b->sum[r] = with_sink(a, head0 + r, top, sum);
    }
    __syncthreads();
    for (uint32_t first = 0; first < n_piece; first += width) {
        const uint32_t piece = first + threadIdx.x % width, r = piece / N, d = piece % N * 4;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (uint32_t p0 = share; p0 < n_part; p0 += AT_ONCE * n_share) {
            if (first > 0 || p0 != share)
                load(piece, p0);
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; j++)
                if (piece < n_piece && p0 + j * n_share < n_part)
                    add_scaled(total, b->weight[p0 + j * n_share][r], v[j]);
        }
        if (n_share > 1) { // then all pieces are dealt out at once
            b->v[threadIdx.x] = total;
            __syncthreads();
            for (uint32_t i = 1; i < n_share; i++)
                add_scaled(total, 1.0f, b->v[i * width + threadIdx.x % width]);
        }
        if (share == 0 && piece < n_piece)
            store_out(a, token, head0 + r, d, scaled(total, a.v_undo / b->sum[r]));
    }
}

// KIND of a kernel: blocks have a split each; two of them have room on a multiprocessor; or each
// has several splits, one after the other, as if it were several blocks: what a split needs is
// requested while the one before is merged.
enum decode_kind { SINGLE, CROWDED, SEVERAL };

// Grid (blocks that share splits, n_head_kv, rows * groups of 16 query heads; or groups of rows),
// FEW_WARP or MAX_WARP warps. MT > 1: groups of rows, which the cache has, without windows.
template <int DH, bool PLAIN, int MT, int KIND>
static __global__ void __launch_bounds__(MAX_WARP *WARP, KIND == CROWDED ? 2 : 1)
    attention_decode_kernel(const __grid_constant__ struct attention a,
                            const __grid_constant__ struct row_groups groups)
{
    constexpr int STAGES = n_stage<DH>(KIND == CROWDED),
                  O_LD = DH + 8; // rows of sums in different banks, too
    static_assert(sizeof(struct merge_buffer) <=
                      FEW_WARP * 2 * STAGES * tile_elems<DH>() * sizeof(__half),
                  "what blocks merge takes the place of the tiles, too");
    static_assert(MT * M * O_LD * sizeof(float) <= MT * 2 * tile_elems<DH>() * sizeof(__half) &&
                      MT <= STAGES,
                  "a warp's sums take the place of its tiles, of the last turn where MT is 1");
    __shared__ float tops[MAX_WARP][MT * M], sums[MAX_WARP][MT * M];
    __shared__ __align__(16) __half newest[2][DH]; // key and value, as the cache holds them
    __shared__ __align__(16) float buf[2][DH];
    __shared__ uint32_t last_slot[MAX_WARP]; // where a warp's sums are
    const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    const uint32_t n_warp = blockDim.x / WARP;
    __half *q = dynamic_smem<__half>(); // (MT * M, LD)
    // (n_warp, STAGES, 2, M, LD); later (n_warp, M, O_LD) floats, as far apart
    __half *tiles = q + tile_elems<DH>() * (MT + warp * STAGES * 2);
    const uint32_t kv_head = blockIdx.y;
    const uint32_t group = a.n_head / a.n_head_kv, n_tile_row = div_up(group, (uint32_t)M);
    uint32_t token = gridDim.z == n_tile_row ? 0 : blockIdx.z / n_tile_row, n_token = 1;
    const uint32_t row0 = MT > 1 ? 0 : (blockIdx.z - token * n_tile_row) * M;
    const uint32_t n_head = min(group - row0, (uint32_t)M), head0 = kv_head * group + row0;

    griddep_launch_dependents();
    bool skip = a.skip && *a.skip;
    if constexpr (MT > 1) { // the first group may have begun before
        const uint32_t before = a.rows[0].pos % groups.size, from = blockIdx.z * groups.size;
        const uint32_t end = min(from + groups.size - before, groups.n);
        token = from > before ? from - before : 0;
        skip |= token >= end;
        n_token = skip ? 1 : end - token;
        token = skip ? 0 : token;
    }
    const uint32_t n_row = n_token * n_head;
    const struct seq_row at = a.rows[token];
    const uint32_t position = at.pos + n_token - 1; // of the last
    const uint32_t *const table = a.tables + (size_t)at.slot * a.max_blocks;
    const uint32_t first = window_begin(a, position), base = first / M * M;
    const uint32_t n_tile = position / M - base / M + 1;
    const uint32_t n_wanted =
        n_tile <= ALONE_TILES ? 1 : min(a.max_split, n_tile / (uint32_t)SPLIT_TILES);
    uint32_t per_split = n_tile, n_split = 1;
    if (n_wanted > 1) { // two divisions
        per_split = div_up(n_tile, n_wanted);
        n_split = div_up(n_tile, per_split);
    }
    const uint32_t per_block = KIND == SEVERAL ? div_up(n_split, groups.n_block) : 1; // splits
    const uint32_t split0 = blockIdx.x * per_block;
    if (skip || split0 >= n_split) {
        griddep_wait();
        return;
    }
    const uint32_t split_end = KIND == SEVERAL ? min(split0 + per_block, n_split) : split0 + 1;
    const auto n_of = [&](uint32_t split) { return min(per_split, n_tile - split * per_split); };
    const uint32_t n_mine = n_of(split0), p0 = base + split0 * per_split * M;
    // A tile of this warp: the t-th of a split.
    struct tile {
        uint32_t split, t;
    };
    const auto is_there = [&](struct tile x) {
        return KIND == SEVERAL ? x.split < split_end : x.t < n_mine;
    };
    const auto first_of = [&](struct tile x) {
        return KIND == SEVERAL ? base + (x.split * per_split + x.t) * M : p0 + x.t * M;
    };
    const auto settled = [&](struct tile x) { // where a split has no more for the warp, the next
        while (KIND == SEVERAL && x.split < split_end && x.t >= n_of(x.split))
            x = {x.split + 1, warp};
        return x;
    };
    const auto behind = [&](struct tile x) { return settled({x.split, x.t + n_warp}); };
    // What an earlier layer put into the cache, a kernel in flight may have written.
    const bool cached = !PLAIN && a.cached;
    const uint32_t n_there = position + cached;
    if (cached)
        griddep_wait();
    auto slot = [&](uint32_t turn, int kv) {
        return tiles + (turn % STAGES * 2 + kv) * tile_elems<DH>();
    };
    struct tile now = settled({split0, warp}), ahead = now; // ahead: what is requested next
    uint32_t turn = 0, asked = 0;
    const auto block_ahead = [&] {
        return is_there(ahead) ? __ldg(&table[first_of(ahead) / KV_BLOCK]) : 0;
    };
    // Keys, then values.
    const auto request = [&](int kv, uint32_t block) {
        const uint32_t first_pos = first_of(ahead);
        if (is_there(ahead))
            request_rows<DH, M, WARP, PLAIN>(kv ? a.v : a.k,
                                             kv_row(block, a.n_head_kv, kv_head, first_pos),
                                             (int)n_there - (int)first_pos, slot(asked, kv), lane);
        cp_async_commit();
        if (kv == 1) {
            ahead = behind(ahead);
            asked++;
        }
    };
    // half of them: they stand before the queries in the way to the memory
    const auto request_some = [&](int from, int to) {
#pragma unroll 1
        for (int i = from; i < to; i++)
            request(i % 2, block_ahead());
    };
    request_some(0, STAGES);
    const size_t new_row =
        kv_row(__ldg(&table[position / KV_BLOCK]), a.n_head_kv, kv_head, position);
    const head_norm<DH> norm =
        load_norm_of<DH, PLAIN, MT == 1>(a, kv_head, head0, n_head, n_row, threadIdx.x / TEAM);
    griddep_wait();
    prepare<DH, PLAIN, MT == 1>(a, token, kv_head, head0, n_head, n_row,
                                !cached && split_end == n_split, at.pos, new_row, norm, q, buf[0],
                                newest[0], [&] { request_some(STAGES, 2 * STAGES); });
    __syncthreads();

    softmax<DH, MT> s;
    uint32_t begin[MT][2], end[MT][2];
#pragma unroll
    for (uint32_t h = 0; h < 2 * MT; h++) {
        begin[h / 2][h % 2] = first;
        end[h / 2][h % 2] = MT == 1 ? position + 1 : at.pos + (lane / 4 + 8 * h) / n_head + 1;
    }
    // The tile `now`, and what is requested next. last: of a split, whose sums take this tile's
    // place, so what comes there is requested behind them.
    const auto multiply = [&](bool last) {
        const uint32_t first_pos = first_of(now), next = block_ahead();
        auto arrive = [&](const struct kv_plane &plane, int kv) {
            if (last && kv == 1) // nothing was requested behind the keys
                cp_async_wait<2 * STAGES - 2>();
            else
                cp_async_wait<2 * STAGES - 1>();
            __syncwarp();
            __half *tile = slot(turn, kv);
            if (plane.scales)
                widen_rows<DH, M, WARP>(tile, lane, [] { __syncwarp(); });
            // the newest row is not in the cache yet for all to see
            if (!cached && position - first_pos < M) {
                if (lane < DH / 8)
                    reinterpret_cast<uint4 *>(tile + (position - first_pos) * tile_ld<DH>())[lane] =
                        reinterpret_cast<const uint4 *>(newest[kv])[lane];
                __syncwarp();
            }
            return tile;
        };
        scores<MT, 1> c;
        uint32_t p[MT][1][4];
        multiply_qk<DH>(c, q, arrive(a.k, 0), lane);
        __syncwarp();
        if (!last)
            request(0, next);
        const float undo = PLAIN ? a.score_undo : cap(c, a);
        if (first_pos < first || position - first_pos < M)
            mask(c, first_pos, begin, end, lane);
        weigh(s, c, undo, p);
        multiply_pv<DH>(s, p, arrive(a.v, 1), lane);
        __syncwarp();
        if (!last)
            request(1, next);
        now = behind(now);
        turn++;
    };
    constexpr uint32_t N = DH / 4;
    struct row_parts { // where the splits of this row leave what they have summed up
        float4 *v;
        float2 *ml;
    };
    const auto parts = [&]() -> struct row_parts {
        const uint32_t n_part_row = MT > 1 ? group *groups.size : min(group, (uint32_t)M);
        const uint32_t n_most = KIND == SEVERAL ? groups.n_split : gridDim.x;
        const size_t n_slot = (size_t)a.n_head_kv * gridDim.z * n_most;
        const size_t slot0 = (size_t)(kv_head * gridDim.z + blockIdx.z) * n_most;
        const size_t row = slot0 * n_part_row;
        return {reinterpret_cast<float4 *>(a.partial) + row * N,
                reinterpret_cast<float2 *>(a.partial + n_slot * n_part_row * DH) + row};
    };
    // Of the warps.
    const auto merge = [&](uint32_t split) {
        const uint32_t n_used = min(n_warp, KIND == SEVERAL ? n_of(split) : n_mine);
        if (warp < n_used) {
            float *o = reinterpret_cast<float *>(KIND == SEVERAL ? slot(turn - 1, 0) : tiles);
            if (KIND == SEVERAL && lane == 0)
                last_slot[warp] = (turn - 1) % STAGES;
#pragma unroll
            for (int h = 0; h < 2 * MT; h++) {
                uint32_t r = lane / 4 + 8 * h;
                float sum = row_sum(s, h / 2, h % 2);
                if (r >= n_row)
                    continue;
                if (lane % 4 == 0) {
                    tops[warp][r] = s.top[h / 2][h % 2];
                    sums[warp][r] = sum;
                }
#pragma unroll
                for (int i = 0; i < DH / 8; i++)
                    *reinterpret_cast<float2 *>(o + r * O_LD + i * 8 + lane % 4 * 2) =
                        make_float2(s.o[h / 2][i][h % 2 * 2], s.o[h / 2][i][h % 2 * 2 + 1]);
            }
        }
        __syncthreads();
        const struct row_parts to = parts();
        for (uint32_t i = threadIdx.x; i < n_row * N; i += blockDim.x) {
            uint32_t r = i / N, d = i % N * 4;
            const uint32_t later = MT > 1 ? r / n_head : 0, head = r - later * n_head;
            const __half *o = q + MT * tile_elems<DH>();
            float top = -INFINITY, sum = 0.0f;
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (uint32_t w = 0; w < MAX_WARP; w++)
                top = w < n_used ? fmaxf(top, tops[w][r]) : top;
#pragma unroll 4
            for (uint32_t w = 0; w < n_used; w++) {
                const uint32_t nth = w * STAGES + (KIND == SEVERAL ? last_slot[w] : 0);
                float f = ptx_exp2(tops[w][r] - top);
                sum = fmaf(f, sums[w][r], sum);
                add_scaled(v, f,
                           *reinterpret_cast<const float4 *>(
                               reinterpret_cast<const float *>(o + nth * 2 * tile_elems<DH>()) +
                               r * O_LD + d));
            }
            if (n_split == 1) {
                sum = with_sink(a, head0 + head, top, sum);
                store_out(a, token + later, head0 + head, d, scaled(v, a.v_undo / sum));
            } else {
                to.v[split * n_row * N + i] = v;
                if (d == 0)
                    to.ml[split * n_row + r] = make_float2(top, sum);
            }
        }
    };
    if constexpr (KIND == SEVERAL) {
#pragma unroll 1
        for (uint32_t split = split0; split < split_end; split++) {
            const uint32_t before = turn;
            softmax_init(s);
            while (now.split == split)
                multiply(behind(now).split != split);
            merge(split);
            if (split + 1 == split_end)
                break;
            __syncthreads();
            for (int kv = 0; kv < 2 && turn > before; kv++)
                request(kv, block_ahead());
        }
    } else {
        softmax_init(s);
        while (is_there(now))
            multiply(false);
        merge(split0);
    }
    if (n_split == 1)
        return;
    uint32_t *counter = a.counters + kv_head * gridDim.z + blockIdx.z;
    if (!last_to_arrive(counter, div_up(n_split, per_block)))
        return;
    const struct row_parts from = parts();
    for (uint32_t i = 0; i < n_token; i++) { // each as it would be alone
        if (i > 0)
            __syncthreads();
        merge_blocks<DH>(a, from.v + i * n_head * N, from.ml + i * n_head, n_split, n_head, n_row,
                         token + i, head0,
                         reinterpret_cast<struct merge_buffer *>(q + MT * tile_elems<DH>()));
    }
}

// ---- host

template <int DH>
static constexpr size_t decode_smem(uint32_t n_warp, int n_tile = 1, bool crowded = false)
{
    return sizeof(__half) * tile_elems<DH>() * (n_tile + n_warp * n_stage<DH>(crowded) * 2);
}

// On this device.
template <int DH> static uint32_t decode_warps(const struct queue *q)
{
    const size_t declared = 8192; // more than the kernel's own shared arrays
    return decode_smem<DH>(MAX_WARP, GROUP_TILES) + declared <= q->smem_max ? MAX_WARP : FEW_WARP;
}

size_t attention_decode_smem(uint32_t head_dim)
{
    size_t n = 0;
    with_head_dim(head_dim, [&](auto tag) {
        n = decode_smem<decltype(tag)::value>(FEW_WARP);
        return true;
    });
    return n;
}

// One block per multiprocessor.
static uint32_t max_split(int n_sm, uint32_t n_head, uint32_t n_head_kv)
{
    uint32_t blocks = n_head_kv * div_up(n_head / n_head_kv, (uint32_t)M);
    uint32_t n = lesser((uint32_t)n_sm / blocks, (uint32_t)MAX_SPLIT);
    return n ? n : 1;
}

void attention_decode_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                              uint32_t n_seq, struct attention_scratch *out)
{
    size_t group = n_head / n_head_kv, z = div_up(group, (size_t)M);
    size_t rows = n_head_kv * z * max_split(n_sm, n_head, n_head_kv) * lesser(group, (size_t)M);
    out->n_split_rows = lesser(n_seq, (uint32_t)SPLIT_ROWS);
    with_head_dim(head_dim, [&](auto tag) {
        out->partial = out->n_split_rows * rows * (decltype(tag)::value + 2) * sizeof(float);
        return true;
    });
    out->counters = n_seq * n_head_kv * z * sizeof(uint32_t);
}

// The blocks that share a KV head of a row at most that far, as the kernel has it.
static uint32_t n_split_at(const struct attention *a, uint32_t position)
{
    const uint32_t n_tile = position / M + 1; // a window only makes it less
    return n_tile <= ALONE_TILES
               ? 1
               : lesser(a->max_split, lesser(n_tile / (uint32_t)SPLIT_TILES, (uint32_t)MAX_SPLIT));
}

// How many blocks share a KV head of a row, of n such: as many as let all end soonest, a block
// taking as long to begin as for three splits, and a row having as many as after 2,000 positions.
// (How far rows are the launch does not know: a graph is launched for many positions.)
static uint32_t n_block_of(const struct queue *q, uint32_t n)
{
    enum { START = 3, SPLITS = 16 };
    uint64_t best = UINT64_MAX;
    uint32_t n_block = 1;
    for (uint32_t i = 1; i <= SPLITS; i++) {
        const uint64_t time =
            div_up((uint64_t)n * i, (uint64_t)q->n_sm) * (START + div_up((uint32_t)SPLITS, i));
        if (time < best)
            best = time, n_block = i;
    }
    return n_block;
}

// n rows, each the next of its sequence, or in groups; split: the most blocks that share a KV head
// of one.
static bool launch_rows(const struct queue *q, const struct attention *a, struct row_groups groups,
                        uint32_t split, struct error *err)
{
    const uint32_t n = groups.n, n_tile = div_up(a->n_head / a->n_head_kv, (uint32_t)M);
    groups.n_split = split;
    groups.n_block =
        groups.size || n == 1 ? split : lesser(split, n_block_of(q, n * n_tile * a->n_head_kv));
    struct launch l = {.name = "attention_decode",
                       .grid = dim3(groups.n_block, a->n_head_kv,
                                    groups.size ? div_up(n, groups.size) + 1 : n * n_tile),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_kernel(*a, [&](auto dim, auto kind) {
        constexpr int DH = decltype(dim)::value;
        constexpr bool PLAIN = decltype(kind)::plain;
        const uint32_t n_warp = decode_warps<DH>(q);
        // after long texts a block's warps have more turns, and need all that can be under way
        const bool crowded = may_be_crowded<DH>() && !groups.size && split == 1 &&
                             l.grid.y * l.grid.z > (uint32_t)q->n_sm;
        l.block = dim3(n_warp * WARP);
        l.smem = decode_smem<DH>(n_warp, groups.size ? GROUP_TILES : 1, crowded);
        if constexpr (n_stage<DH>() > 1 && !PLAIN)
            if (groups.size)
                return launch_kernel(
                    err, l, attention_decode_kernel<DH, false, GROUP_TILES, SINGLE>, *a, groups);
        if constexpr (may_be_crowded<DH>())
            if (crowded)
                return launch_kernel(err, l, attention_decode_kernel<DH, PLAIN, 1, CROWDED>, *a,
                                     groups);
        if (groups.n_block < split)
            return launch_kernel(err, l, attention_decode_kernel<DH, PLAIN, 1, SEVERAL>, *a,
                                 groups);
        return launch_kernel(err, l, attention_decode_kernel<DH, PLAIN, 1, SINGLE>, *a, groups);
    });
}

// Of rows that follow one another in a sequence; 0: each is on its own.
static uint32_t group_size(const struct attention *a)
{
    const uint32_t group = a->n_head / a->n_head_kv;
    uint32_t size = 1;
    while (2 * size <= M && 2 * size * group <= GROUP_TILES * M)
        size *= 2;
    return size > 1 && group <= M && a->n_swa == 0 && a->head_dim <= 128 ? size : 0;
}

bool attention_decode_launch(const struct queue *q, const struct attention *a, struct error *err)
{
    struct attention rest;
    if (a->head_dim > ATTENTION_NARROW_HEAD_DIM)
        return attention_wide_launch(q, a, 1, true, err);
    if (!attention_norm_whole(q, a, 1, &rest, err))
        return false;
    rest.max_split = max_split(q->n_sm, a->n_head, a->n_head_kv);
    return launch_rows(q, &rest, {.n = 1}, rest.max_split, err);
}

// As many rows at a time as the scratch has room for.
static bool launch_by_turns(const struct queue *q, struct attention a, struct row_groups rows,
                            uint32_t furthest, struct error *err)
{
    const uint32_t split = n_split_at(&a, furthest);
    // blocks that share a row leave what they have in scratch
    const uint32_t room = a.n_split_rows * a.max_split / split;
    uint32_t most = split == 1 ? rows.n : room;
    if (rows.n == 1 || (split > 1 && room < 2 * rows.size))
        rows.size = 0;
    if (split > 1 && rows.size) // a group more: the first may have begun before
        most = (room / rows.size - 1) * rows.size;
    for (uint32_t i = 0; i < rows.n; i += most) {
        const uint32_t n = lesser(rows.n - i, most);
        if (!launch_rows(q, &a, {.n = n, .size = rows.size}, split, err))
            return false;
        a = attention_from_row(a, n);
    }
    return true;
}

bool attention_rows_launch(const struct queue *q, const struct attention *a, uint32_t n,
                           const struct row_span *spans, uint32_t n_span, uint32_t furthest,
                           struct error *err)
{
    struct attention rest;
    if (a->head_dim > ATTENTION_NARROW_HEAD_DIM)
        return attention_wide_launch(q, a, n, true, err);
    if (!attention_norm_whole(q, a, n, &rest, err) ||
        (a->together && !a->cached && !attention_store_launch(q, &rest, n, err)))
        return false;
    rest.cached |= a->together;
    rest.max_split = max_split(q->n_sm, a->n_head, a->n_head_kv);
    const uint32_t size = rest.cached ? group_size(&rest) : 0;
    const uint32_t n_own = n_span > 0 ? spans[0].row0 : n;
    bool ok = n_own == 0 || launch_by_turns(q, rest, {.n = n_own}, furthest, err);
    for (uint32_t i = 0; ok && i < n_span; i++)
        ok = launch_by_turns(q, attention_from_row(rest, spans[i].row0),
                             {.n = spans[i].n, .size = size}, furthest, err);
    return ok;
}
