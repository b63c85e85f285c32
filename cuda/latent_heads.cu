// Latent attention of a prompt (struct latent in model/model.h) by heads that have keys and values
// of their own, as DeepSeek-V2 (DeepSeek-AI 2024) makes them of the latent: with n_key + n_rotated
// and n_value numbers for each pair of a row and a position, where queries brought to the latent
// take 2 n_kv + n_rotated. What it takes to make them, 2 (n_key + n_value) n_kv operations for each
// position and head, many rows share.
//
// A head's keys and values are planes as the cache has them (struct kv_plane), whose blocks are in
// order, so that attention over a prompt reads them as any model's.
#include "attention.cuh"
#include "latent.cuh"
#include "ptx_hopper.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    ROWS = 128, // positions of a tile
    COLS = 64,  // of a head's numbers
    SLICE = 64, // of the latent's numbers: 128 bytes of a row, eight pieces
    STAGES = 3,
    STAGE = (ROWS + COLS) * SLICE, // halves
    OUT_LD = COLS + 8,
    SMEM = STAGES * STAGE * sizeof(__half),
    QUERY_THREADS = 256,
};
static_assert(ROWS % KV_BLOCK == 0 && ROWS * OUT_LD <= STAGES * STAGE, "results find room");

// Where piece p of a row is, so that eight rows' pieces lie in different banks.
static __device__ __forceinline__ uint32_t half_at(uint32_t row, uint32_t piece)
{
    return row * SLICE + (piece ^ row % 8) * 8;
}

// Grid (ceil(n_position / ROWS), ceil((n + n_rotated) / COLS), n_head). TURNED: w has a row for
// each number of the latent, else for each of the head.
template <bool TURNED>
static __global__ void __launch_bounds__(THREADS)
    expand_kernel(const __grid_constant__ struct latent_heads h)
{
    __half *const stages = dynamic_smem<__half>();
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.z;
    const uint32_t position0 = blockIdx.x * ROWS, col0 = blockIdx.y * COLS;
    const uint32_t row_warp = warp / 2 * 64, col_warp = warp % 2 * 32;
    const struct kv_plane &from = h.cache;
    griddep_launch_dependents();
    griddep_wait();
    const uint32_t *const table = h.tables + (size_t)h.rows->slot * h.max_blocks;
    // of a thread: piece threadIdx.x % 8 of every 16th row
    const uint32_t piece = threadIdx.x % 8, row0 = threadIdx.x / 8;
    const uint8_t *blocks[ROWS / KV_BLOCK];
#pragma unroll
    for (uint32_t i = 0; i < ROWS / KV_BLOCK; i++) {
        const uint32_t p = position0 + i * KV_BLOCK;
        blocks[i] = p < h.n_position
                        ? from.data + kv_row(table[p / KV_BLOCK], 1, 0, 0) * from.row_bytes
                        : NULL;
    }
    const __half *const w = h.w + (size_t)head * h.rows_of_head * h.ld;
    const auto request = [&](uint32_t slice) {
        __half *const to = stages + slice % STAGES * STAGE, *const to_w = to + ROWS * SLICE;
        const uint32_t k = slice * SLICE + piece * 8;
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r += THREADS / 8) {
            const uint32_t row = r + row0;
            const uint8_t *const block = blocks[r / KV_BLOCK];
            const bool valid = position0 + row < h.n_position && k * 2 < from.row_bytes;
            cp_async16_or_zero(to + half_at(row, piece),
                               valid ? block + row % KV_BLOCK * from.row_bytes + k * 2 : from.data,
                               valid);
        }
#pragma unroll
        for (uint32_t r = 0; r < COLS; r += THREADS / 8) {
            const uint32_t row = r + row0;
            const uint32_t w_row = TURNED ? slice * SLICE + row : col0 + row;
            const uint32_t w_col = TURNED ? col0 + piece * 8 : k;
            const bool valid = w_row < (TURNED ? h.n_kv : h.n) && w_col < h.ld;
            cp_async16_or_zero(to_w + half_at(row, piece),
                               valid ? w + (size_t)w_row * h.ld + w_col : h.w, valid);
        }
    };
    float sum[4][4][4] = {}; // 16 positions, 8 numbers
    const uint32_t n_slice = col0 < h.n ? div_up(h.n_kv, (uint32_t)SLICE) : 0;
    for (uint32_t i = 0; i + 1 < STAGES; i++) {
        if (i < n_slice)
            request(i);
        cp_async_commit();
    }
#pragma unroll 1
    for (uint32_t i = 0; i < n_slice; i++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); // and everyone is done with the slice before
        if (i + STAGES - 1 < n_slice)
            request(i + STAGES - 1);
        cp_async_commit();
        const __half *const x = stages + i % STAGES * STAGE, *const m = x + ROWS * SLICE;
#pragma unroll
        for (int k = 0; k < SLICE / 16; k++) {
            uint32_t a[4][4], b[2][4];
#pragma unroll
            for (int t = 0; t < 4; t++)
                ldmatrix_x4(a[t], x + half_at(row_warp + t * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t col = col_warp + j * 16;
                if (TURNED)
                    ldmatrix_x4_trans(b[j], m + half_at(k * 16 + lane / 8 % 2 * 8 + lane % 8,
                                                        col / 8 + lane / 16));
                else
                    ldmatrix_x4(b[j],
                                m + half_at(col + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            }
#pragma unroll
            for (int t = 0; t < 4; t++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma_f16(sum[t][j], a[t], b[j / 2] + j % 2 * 2);
        }
    }
    cp_async_wait<0>();
    __syncthreads();
    // (ROWS, OUT_LD)
    __half *const out = stages;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t row = row_warp + t * 16 + lane / 4 + 8 * i;
                const float *const v = &sum[t][j][2 * i];
                *reinterpret_cast<uint32_t *>(out + row * OUT_LD + col_warp + j * 8 +
                                              lane % 4 * 2) =
                    saturated_half2(v[0] * h.factor, v[1] * h.factor);
            }
    __syncthreads();
    // Behind them what is rotated, and zeros up to the row's end.
    const uint32_t col = col0 + threadIdx.x % COLS;
    for (uint32_t row = threadIdx.x / COLS; col >= h.n && row < ROWS; row += THREADS / COLS) {
        const uint8_t *const block = row < KV_BLOCK ? blocks[0] : blocks[ROWS / KV_BLOCK - 1];
        float v = 0.0f;
        if (position0 + row < h.n_position && col < h.n + h.n_rotated)
            v = __half2float(reinterpret_cast<const __half *>(
                    block + row % KV_BLOCK * from.row_bytes)[h.n_kv + col - h.n]) *
                h.rotated_factor;
        out[row * OUT_LD + threadIdx.x % COLS] = __float2half_rn(v);
    }
    __syncthreads();
    for (uint32_t row = row0; row < ROWS; row += THREADS / 8) {
        const uint32_t p = position0 + row, at = (col0 + piece * 8) * 2;
        if (p >= h.n_position || at >= h.to.row_bytes)
            continue;
        *reinterpret_cast<uint4 *>(
            h.to.data + kv_row(p / KV_BLOCK, h.to.n_head, head, p) * h.to.row_bytes + at) =
            *reinterpret_cast<const uint4 *>(out + row * OUT_LD + piece * 8);
    }
}

// ---- the same on compute capability 9.0: two warpgroups have 64 positions' latents each in
// registers, and a third one brings what these are multiplied with, slice by slice, to a ring.

enum {
    GROUP = 4 * WARP, // threads of a warpgroup
    N_MULTIPLY = 2 * GROUP,
    HOPPER_THREADS = N_MULTIPLY + GROUP,
    RING = 16,                     // slices
    RING_BYTES = COLS * SLICE * 2, // of one
    STAGE_ROW = OUT_LD,            // halves of a row of results on its way
    HOPPER_SMEM = SWIZZLE_ALIGN + RING * RING_BYTES + ROWS * STAGE_ROW * (int)sizeof(__half),
    LAG = 6,        // slices on their way behind the one that is asked for
    LOAD_TILES = 3, // tiles that take as long as a block's latents
};

// Calls f(head, the first of its numbers) for each of the block's column tiles.
template <typename F>
static __device__ __forceinline__ void each_tile(const struct latent_heads &h, uint32_t per_block,
                                                 F f)
{
    const uint32_t of_head = div_up(h.n + h.n_rotated, (uint32_t)COLS);
    const uint32_t end = min((blockIdx.y + 1) * per_block, h.to.n_head * of_head);
#pragma unroll 1
    for (uint32_t t = blockIdx.y * per_block; t < end; t++)
        f(t / of_head, t % of_head * COLS);
}

// Grid (ceil(n_position / ROWS), as many as have all column tiles of all heads). N_SLICE: of a row
// of the latent.
template <bool TURNED, int N_SLICE>
static __global__ void __launch_bounds__(HOPPER_THREADS, 1)
    expand_hopper_kernel(const __grid_constant__ struct latent_heads h, uint32_t per_block)
{
    if constexpr (HAVE_HOPPER) {
        __shared__ uint64_t full[RING], empty[RING];
        uint8_t *ring = dynamic_smem<uint8_t>();
        ring += -(uintptr_t)ring % SWIZZLE_ALIGN;
        const uint32_t warp = uniform(threadIdx.x / WARP), lane = threadIdx.x % WARP;
        if (threadIdx.x == 0) {
            for (int i = 0; i < RING; i++) {
                mbar_init(&full[i], GROUP / WARP);
                mbar_init(&empty[i], N_MULTIPLY / WARP);
            }
            mbar_init_done();
        }
        griddep_launch_dependents();
        __syncthreads();
        griddep_wait();
        uint32_t n = 0; // slices so far
        if (warp >= N_MULTIPLY / WARP) {
            fewer_registers<40>();
            const uint32_t piece = threadIdx.x % 8, row0 = threadIdx.x % GROUP / 8;
            const auto told = [&](uint32_t i) {
                async_proxy_fence();
                __syncwarp();
                if (lane == 0)
                    mbar_arrive(&full[i % RING]);
            };
            each_tile(h, per_block, [&](uint32_t head, uint32_t col0) {
                const __half *const w = h.w + (size_t)head * h.rows_of_head * h.ld;
                for (uint32_t i = 0; col0 < h.n && i < N_SLICE; i++, n++) {
                    if (n >= RING)
                        mbar_wait(&empty[n % RING], n / RING % 2 ^ 1);
                    uint8_t *const to = ring + n % RING * RING_BYTES;
#pragma unroll
                    for (uint32_t r = 0; r < COLS; r += GROUP / 8) {
                        const uint32_t row = r + row0;
                        const uint32_t w_row = TURNED ? i * SLICE + row : col0 + row;
                        const uint32_t w_col = (TURNED ? col0 : i * SLICE) + piece * 8;
                        const bool valid = w_row < (TURNED ? h.n_kv : h.n) && w_col < h.ld;
                        cp_async16_or_zero(to + half_at(row, piece) * 2,
                                           valid ? w + (size_t)w_row * h.ld + w_col : h.w, valid);
                    }
                    cp_async_commit();
                    if (n >= LAG) {
                        cp_async_wait<LAG>();
                        told(n - LAG);
                    }
                }
            });
            cp_async_wait<0>();
            for (uint32_t i = n < LAG ? 0 : n - LAG; i < n; i++)
                told(i);
            return;
        }
        more_registers<232>();
        const struct kv_plane &from = h.cache;
        const uint32_t *const table = h.tables + (size_t)h.rows->slot * h.max_blocks;
        const uint32_t first = blockIdx.x * ROWS + warp * 16; // position of the warp's 16
        const uint8_t *const block =
            first < h.n_position
                ? from.data + kv_row(table[first / KV_BLOCK], 1, 0, first) * from.row_bytes
                : NULL;
        uint32_t a[4 * N_SLICE][4];
#pragma unroll
        for (int k = 0; k < 4 * N_SLICE; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t row = lane / 4 + i % 2 * 8;
                const uint32_t at = (k * 16 + i / 2 * 8 + lane % 4 * 2) * 2;
                a[k][i] = first + row < h.n_position && at < from.row_bytes
                              ? __ldcg(reinterpret_cast<const uint32_t *>(
                                    block + row * from.row_bytes + at))
                              : 0;
            }
        // (16, STAGE_ROW) of the warp
        __half *const out =
            reinterpret_cast<__half *>(ring + RING * RING_BYTES) + warp * 16 * STAGE_ROW;
        each_tile(h, per_block, [&](uint32_t head, uint32_t col0) {
            float sum[COLS / 8][4];
            if (col0 < h.n) {
#pragma unroll
                for (int i = 0; i < N_SLICE; i++, n++) {
                    mbar_wait(&full[n % RING], n / RING % 2);
                    const uint8_t *const tile = ring + n % RING * RING_BYTES;
                    wgmma_begin();
                    const uint64_t b =
                        TURNED ? wgmma_tile_across(tile, RING_BYTES) : wgmma_tile(tile);
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        wgmma_f16<COLS, TURNED>(&sum[0][0], a[4 * i + k],
                                                wgmma_tile_at(b, k * (TURNED ? 2048 : 32)),
                                                i + k > 0);
                    wgmma_commit();
                    if (i > 0) {
                        wgmma_wait<1>();
                        if (lane == 0)
                            mbar_arrive(&empty[(n - 1) % RING]);
                    }
                }
                wgmma_wait<0>();
                wgmma_settle<COLS / 2>(&sum[0][0]);
                __syncwarp();
                if (lane == 0)
                    mbar_arrive(&empty[(n - 1) % RING]);
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (col0 < h.n)
                        *reinterpret_cast<uint32_t *>(out + (lane / 4 + 8 * i) * STAGE_ROW + j * 8 +
                                                      lane % 4 * 2) =
                            saturated_half2(sum[j][2 * i] * h.factor, sum[j][2 * i + 1] * h.factor);
            __syncwarp();
            const uint32_t all = h.n | h.n_rotated | h.n_kv;
            if (col0 >= h.n && all % 8 == 0) { // what is rotated, and zeros, by eight
#pragma unroll
                for (uint32_t r = 0; r < 16; r += WARP / 8) {
                    const uint32_t row = r + lane / 8, col = col0 + lane % 8 * 8;
                    uint4 v = make_uint4(0, 0, 0, 0);
                    if (first + row < h.n_position && col < h.n + h.n_rotated)
                        v = __ldcg(reinterpret_cast<const uint4 *>(block + row * from.row_bytes +
                                                                   (h.n_kv + col - h.n) * 2));
                    uint32_t *const e = &v.x;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float2 f = __half22float2(bits_half2(e[i]));
                        e[i] = half2_bits(
                            __floats2half2_rn(f.x * h.rotated_factor, f.y * h.rotated_factor));
                    }
                    *reinterpret_cast<uint4 *>(out + row * STAGE_ROW + lane % 8 * 8) = v;
                }
                __syncwarp();
            } else if (col0 + COLS > h.n) {
                for (uint32_t i = lane; i < 16 * COLS; i += WARP) {
                    const uint32_t row = i / COLS, col = col0 + i % COLS;
                    if (col < h.n)
                        continue;
                    float v = 0.0f;
                    if (first + row < h.n_position && col < h.n + h.n_rotated)
                        v = __half2float(reinterpret_cast<const __half *>(
                                block + row * from.row_bytes)[h.n_kv + col - h.n]) *
                            h.rotated_factor;
                    out[row * STAGE_ROW + i % COLS] = __float2half_rn(v);
                }
                __syncwarp();
            }
#pragma unroll
            for (uint32_t r = 0; r < 16; r += WARP / 8) {
                const uint32_t row = r + lane / 8, p = first + row, at = (col0 + lane % 8 * 8) * 2;
                if (p < h.n_position && at < h.to.row_bytes)
                    *reinterpret_cast<uint4 *>(
                        h.to.data + kv_row(p / KV_BLOCK, h.to.n_head, head, p) * h.to.row_bytes +
                        at) =
                        *reinterpret_cast<const uint4 *>(out + row * STAGE_ROW + lane % 8 * 8);
            }
            __syncwarp();
        });
    }
}

// Grid (n): a token's queries of n_head heads.
static __global__ void __launch_bounds__(QUERY_THREADS)
    heads_query_kernel(const __grid_constant__ struct latent_rows l, uint32_t head0,
                       uint32_t n_head, float scale, __half *query, uint32_t width)
{
    const uint32_t i = blockIdx.x, n_q = l.n_key + l.n_rotated;
    griddep_launch_dependents();
    griddep_wait();
    const struct seq_row at = l.rows[l.each ? i : 0];
    scale *= latent_temperature(l, l.each ? at.pos : at.pos + i);
    const float *const q = l.q + ((size_t)i * l.n_head + head0) * n_q;
    __half2 *const to = reinterpret_cast<__half2 *>(query + (size_t)i * n_head * width);
    const auto value = [&](const float *of_head, uint32_t k) {
        return k < l.n_key ? of_head[k] * scale
               : k < n_q   ? latent_turned(l, i, of_head + l.n_key, k - l.n_key) * scale
                           : 0.0f;
    };
#pragma unroll 4
    for (uint32_t j = threadIdx.x; j < n_head * (width / 2); j += QUERY_THREADS) {
        const uint32_t head = j / (width / 2), k = j % (width / 2) * 2;
        const float *const of_head = q + head * n_q;
        to[j] = __floats2half2_rn(value(of_head, k), value(of_head, k + 1));
    }
}

// ---- launchers

bool latent_heads_query_launch(const struct queue *q, const struct latent_rows *l, uint32_t head0,
                               uint32_t n_head, float scale, __half *query, uint32_t width,
                               struct error *err)
{
    struct launch k = {.name = "heads_query",
                       .grid = dim3(l->n),
                       .block = dim3(QUERY_THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, k, heads_query_kernel, *l, head0, n_head, scale, query, width);
}

// *done: it was launched.
static bool expand_hopper_launch(const struct queue *q, const struct latent_heads *h, bool *done,
                                 struct error *err)
{
    const uint32_t x = div_up(h->n_position, (uint32_t)ROWS);
    const uint32_t n_tile = h->to.n_head * div_up(h->n + h->n_rotated, (uint32_t)COLS);
    // as many tiles to a block as let all blocks end soonest; no bit depends on it
    uint32_t per_block = 1, least = UINT32_MAX;
    for (uint32_t n = 1; n <= n_tile; n++) {
        const uint32_t turns = div_up(x * div_up(n_tile, n), (uint32_t)q->n_sm);
        if (turns * (LOAD_TILES + n) < least)
            least = turns * (LOAD_TILES + n), per_block = n;
    }
    struct launch k = {.name = "latent_expand",
                       .grid = dim3(x, div_up(n_tile, per_block)),
                       .block = dim3(HOPPER_THREADS),
                       .smem = HOPPER_SMEM,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    const auto by = [&](auto slices) {
        constexpr int N = decltype(slices)::value;
        *done = true;
        return h->turned ? launch_kernel(err, k, expand_hopper_kernel<true, N>, *h, per_block)
                         : launch_kernel(err, k, expand_hopper_kernel<false, N>, *h, per_block);
    };
    if (!q->hopper || HOPPER_SMEM > q->smem_max || h->n_kv > 512)
        return true;
    return h->n_kv <= 64    ? by(std::integral_constant<int, 1>())
           : h->n_kv <= 256 ? by(std::integral_constant<int, 4>())
                            : by(std::integral_constant<int, 8>());
}

bool latent_expand_launch(const struct queue *q, const struct latent_heads *h, struct error *err)
{
    struct launch k = {.name = "latent_expand",
                       .grid = dim3(div_up(h->n_position, (uint32_t)ROWS),
                                    div_up(h->n + h->n_rotated, (uint32_t)COLS), h->to.n_head),
                       .block = dim3(THREADS),
                       .smem = SMEM,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    bool done = false;
    if (!expand_hopper_launch(q, h, &done, err))
        return false;
    return done || (h->turned ? launch_kernel(err, k, expand_kernel<true>, *h)
                              : launch_kernel(err, k, expand_kernel<false>, *h));
}

bool latent_heads_fit(size_t smem_max)
{
    return SMEM <= smem_max;
}
