// Latent attention around its products (struct latent in model/model.h): what the cache keeps of a
// token, queries in parts and joined again, and the product with a transposed matrix.
#include "attention.cuh"
#include "experts.h"
#include "latent.cuh"

enum {
    THREADS = 128,
    N_WARP = THREADS / WARP,
    TURNED_THREADS = 256, // eight rows of 32 chunks
    TURNED_TOKENS = 2,    // that share a weight
};

// The sum, or the largest magnitude (NaN when there is one), over a block of THREADS.
template <bool LARGEST>
static __device__ __forceinline__ float over_block(float v, float part[N_WARP])
{
    v = LARGEST ? warp_max_nan(v) : warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int i = 1; i < N_WARP; i++)
        v = LARGEST ? max_nan(v, part[i]) : v + part[i];
    return v;
}

// A row of the cache; row (n_kv + n_rotated) is in shared memory.
static __device__ __forceinline__ void keep(const struct latent_rows &l, const float *row,
                                            size_t at)
{
    const struct kv_plane &p = l.cache;
    const uint32_t n = l.n_kv + l.n_rotated;
    uint8_t *out = p.data + at * p.row_bytes;
    if (!p.scales) {
        __half *to = reinterpret_cast<__half *>(out);
        for (uint32_t i = threadIdx.x; i < p.row_bytes / 2; i += THREADS)
            to[i] = __float2half_rn(i < n ? row[i] * p.scale : 0.0f);
        return;
    }
    // a warp for 32 numbers
    for (uint32_t g = threadIdx.x / WARP; g < p.n_group; g += N_WARP) {
        const uint32_t i = g * 32 + threadIdx.x % WARP;
        const float v = i < n ? row[i] * p.scale : 0.0f;
        const float top = warp_max_nan(fabsf(v));
        const __half d = __float2half_rn(top * (1.0f / 127.0f));
        const float scale = __half2float(d), inverse = scale > 0.0f ? __frcp_rn(scale) : 0.0f;
        if (i < p.row_bytes)
            out[i] = (uint8_t)(int8_t)min(max(__float2int_rn(v * inverse), -127), 127);
        if (threadIdx.x % WARP == 0)
            p.scales[at * p.n_group + g] = __half_as_ushort(d);
    }
}

// Grid (n, 1 + n_head or 1): what is kept of the token, and its queries. Dynamic shared memory: a
// row of the cache.
static __global__ void __launch_bounds__(THREADS)
    latent_part_kernel(const __grid_constant__ struct latent_rows l)
{
    __shared__ float part[N_WARP];
    float *const row = dynamic_smem<float>();
    const uint32_t i = blockIdx.x, n_cached = l.n_kv + l.n_rotated;
    griddep_launch_dependents();
    griddep_wait();
    if (l.skip && *l.skip)
        return;
    const struct seq_row at = l.rows[l.each ? i : 0];
    const uint32_t position = l.each ? at.pos : at.pos + i;
    if (blockIdx.y == 0) {
        const float *kv = l.kv + (size_t)i * n_cached;
        float sum = 0.0f;
        for (uint32_t k = threadIdx.x; k < l.n_kv; k += THREADS)
            sum = fmaf(kv[k], kv[k], sum);
        const float rms =
            1.0f / sqrtf(of_squares(over_block<false>(sum, part) / (float)l.n_kv + l.eps));
        for (uint32_t k = threadIdx.x; k < n_cached; k += THREADS)
            row[k] =
                k < l.n_kv ? kv[k] * rms * l.norm[k] : latent_turned(l, i, kv + l.n_kv, k - l.n_kv);
        __syncthreads();
        const uint32_t *table = l.tables + (size_t)at.slot * l.max_blocks;
        keep(l, row, kv_row(table[position / KV_BLOCK], 1, 0, position));
        // the rows of head h are [h * n, (h + 1) * n)
        const uint32_t of_head = l.items ? div_up(l.n, l.per_item) : 0;
        for (uint32_t k = threadIdx.x; i == 0 && k < l.n_head * of_head; k += THREADS) {
            const uint32_t head = k / of_head, done = k % of_head * l.per_item;
            l.items[k] = {head, head * l.n + done, min(l.n - done, l.per_item)};
        }
        return;
    }
    const uint32_t h = blockIdx.y - 1, n_q = l.n_key + l.n_rotated;
    const float *q = l.q + ((size_t)i * l.n_head + h) * n_q;
    const float times = latent_temperature(l, position);
    float *key = l.key + ((size_t)h * l.n + i) * l.n_key;
    float *rotated = l.rotated + ((size_t)i * l.n_head + h) * l.n_rotated;
    for (uint32_t k = threadIdx.x; k < n_q; k += THREADS) {
        if (k < l.n_key)
            key[k] = q[k] * times;
        else
            rotated[k - l.n_key] = latent_turned(l, i, q + l.n_key, k - l.n_key) * times;
    }
}

// Grid (n, n_head).
static __global__ void __launch_bounds__(THREADS)
    latent_query_kernel(const __grid_constant__ struct latent_rows l)
{
    __shared__ float part[N_WARP];
    const uint32_t i = blockIdx.x, h = blockIdx.y;
    griddep_launch_dependents();
    griddep_wait();
    if (l.skip && *l.skip)
        return;
    const size_t at = (size_t)i * l.n_head + h;
    const float *brought = l.brought + ((size_t)h * l.n + i) * l.n_kv;
    const float *rotated = l.rotated + at * l.n_rotated;
    auto value = [&](uint32_t k) {
        return k < l.n_kv ? brought[k] : k < l.n_kv + l.n_rotated ? rotated[k - l.n_kv] : 0.0f;
    };
    float top = 0.0f;
    for (uint32_t k = threadIdx.x; k < l.n_kv + l.n_rotated; k += THREADS)
        top = max_nan(top, fabsf(value(k)));
    const float scale = half_range(over_block<true>(top, part));
    for (uint32_t k = threadIdx.x; k < l.key_width; k += THREADS)
        l.query[at * l.key_width + k] = __float2half_rn(value(k) * scale);
    if (threadIdx.x == 0)
        l.undo[at] = l.score * half_range_undo(scale) * half_range_undo(l.cache.scale);
}

// Grid (ceil(n_chunk / 32), n_head, ceil(n / TURNED_TOKENS)): thread 8 c + r has chunk c of rows r,
// r + 8, ... of a head's matrix.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(TURNED_THREADS)
    latent_transposed_kernel(const struct wmat w, const float *x, uint32_t n, float *y,
                             const uint32_t *skip)
{
    constexpr int N = chunk_elems(TYPE);
    const uint32_t r = threadIdx.x % TILE_ROWS, c = blockIdx.x * 32 + threadIdx.x / TILE_ROWS;
    const uint32_t head = blockIdx.y, token0 = blockIdx.z * TURNED_TOKENS;
    griddep_launch_dependents();
    griddep_wait();
    if (skip && *skip)
        return;
    const float *row[TURNED_TOKENS];
#pragma unroll
    for (int t = 0; t < TURNED_TOKENS; t++)
        row[t] = x + ((size_t)head * n + min(token0 + t, n - 1)) * w.rows;
    float acc[TURNED_TOKENS][N] = {};
#pragma unroll 1
    for (uint32_t tile = 0; c < w.n_chunk && tile < w.n_tile; tile++) {
        const uint32_t at = tile * TILE_ROWS + r;
        chunk<TYPE> k;
        float v[N];
        load_chunk<TYPE>(tile_begin<TYPE>(w, head * w.n_tile + tile, r), c, k);
        dequantize_chunk<TYPE>(k, v);
#pragma unroll
        for (int t = 0; t < TURNED_TOKENS; t++) {
            const float f = at < w.rows ? row[t][at] : 0.0f;
#pragma unroll
            for (int e = 0; e < N; e++)
                acc[t][e] = fmaf(f, v[e], acc[t][e]);
        }
    }
#pragma unroll
    for (int t = 0; t < TURNED_TOKENS; t++)
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float v = lane_sum<1, 4>(acc[t][e]) * w.scale;
            if (r == (uint32_t)e % TILE_ROWS && c < w.n_chunk && c * N + e < w.n_cols &&
                token0 + t < n)
                y[((size_t)head * n + token0 + t) * w.n_cols + c * N + e] = v;
        }
}

// Grid (n, n_head).
static __global__ void __launch_bounds__(THREADS)
    heads_to_rows_kernel(const float *from, uint32_t width, float *to)
{
    const uint32_t i = blockIdx.x, h = blockIdx.y;
    griddep_launch_dependents();
    griddep_wait();
    for (uint32_t k = threadIdx.x; k < width; k += THREADS)
        to[((size_t)i * gridDim.y + h) * width + k] = from[((size_t)h * gridDim.x + i) * width + k];
}

// ---- launchers

bool latent_part_launch(const struct queue *q, const struct latent_rows *l, struct error *err)
{
    struct launch k = {.name = "latent_part",
                       .grid = dim3(l->n, l->key ? 1 + l->n_head : 1),
                       .block = dim3(THREADS),
                       .smem = (l->n_kv + l->n_rotated) * sizeof(float),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, k, latent_part_kernel, *l);
}

bool latent_query_launch(const struct queue *q, const struct latent_rows *l, struct error *err)
{
    struct launch k = {.name = "latent_query",
                       .grid = dim3(l->n, l->n_head),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, k, latent_query_kernel, *l);
}

bool latent_transposed_launch(const struct queue *q, const struct wmat *w, uint32_t n_head,
                              const float *x, uint32_t n, float *y, const uint32_t *skip,
                              struct error *err)
{
    struct launch l = {
        .name = "latent_transposed",
        .grid = dim3(div_up(w->n_chunk, 32u), n_head, div_up(n, (uint32_t)TURNED_TOKENS)),
        .block = dim3(TURNED_THREADS),
        .stream = q->stream,
        .dependent = q->dependent,
        .recorder = q->recorder};
    return with_type(w->type, [&](auto tag) {
        return launch_kernel(err, l, latent_transposed_kernel<decltype(tag)::value>, *w, x, n, y,
                             skip);
    });
}

bool heads_to_rows_launch(const struct queue *q, const float *from, uint32_t n_head, uint32_t n,
                          uint32_t width, float *to, struct error *err)
{
    struct launch l = {.name = "heads_to_rows",
                       .grid = dim3(n, n_head),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, heads_to_rows_kernel, from, width, to);
}
