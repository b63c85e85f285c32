// Rows of activations as expert_hopper.cu multiplies them: normed, as float16 times a power of two
// each, and laid out by place, once for each expert that the row has chosen.
#include "block.cuh"
#include "butterfly.cuh"
#include "experts.h"

enum {
    PACK_THREADS = 256, // at most
    LANES = 8,          // threads for 128 elements of a row: two of its pieces of 16 bytes each
    AT_ONCE = 4,        // places of a row asked for together
};

// ---- kernel

// Four neighbours of a row times the norm's weights; zeros beyond it.
static __device__ __forceinline__ float4 four_at(const struct expert_pack &p, const float *row,
                                                 uint32_t i)
{
    float v[4];
    if (p.n_cols % 4 == 0 && i < p.n_cols) {
        const float4 x = *reinterpret_cast<const float4 *>(row + i);
        v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    } else {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            v[e] = i + e < p.n_cols ? row[i + e] : 0.0f;
    }
    return make_float4(v[0], v[1], v[2], v[3]);
}

static __device__ __forceinline__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

// Grid (rows of x): the row's pairs are [blockIdx.x * n_used, + n_used). Thread q of eight has
// elements 32 t + 4 q and up, t < 4, of each 128: pieces 2 q and 2 q + 1 of gemm_pack_at's. Where a
// block has them all a thread keeps its own.
static __global__ void __launch_bounds__(PACK_THREADS)
    expert_pack_kernel(const __grid_constant__ struct expert_pack p)
{
    __shared__ float2 part[PACK_THREADS / WARP];
    const uint32_t pair0 = blockIdx.x * p.n_used;
    const uint32_t n_group = div_up(p.n_cols, (uint32_t)GEMM_PACK_COLS) * LANES;
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    griddep_launch_dependents();
    griddep_wait();
    const auto place_of = [&](uint32_t pair) { return p.place ? p.place[pair] : pair; };
    const uint32_t from = p.by_place ? place_of(pair0) : blockIdx.x;
    const float *row = p.x + (size_t)from * p.ld;
    float2 seen = {0.0f, 0.0f}; // the sum of squares, the largest of the row times norm
    float4 v[4] = {};           // the row times norm
    const auto take = [&](uint32_t i) {
        const uint32_t first = i / LANES * GEMM_PACK_COLS + 4 * (i % LANES);
#pragma unroll
        for (uint32_t t = 0; t < 4; t++)
            v[t] = four_at(p, row, first + 32 * t);
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            seen.x += fmaf(v[t].x, v[t].x, v[t].y * v[t].y) + fmaf(v[t].z, v[t].z, v[t].w * v[t].w);
            if (p.norm)
                v[t] = times(v[t], four_at(p, p.norm, first + 32 * t));
            seen.y = max_nan(seen.y, max_nan(max_nan(fabsf(v[t].x), fabsf(v[t].y)),
                                             max_nan(fabsf(v[t].z), fabsf(v[t].w))));
        }
    };
    for (uint32_t i = threadIdx.x; i < n_group; i += blockDim.x)
        take(i);
    butterfly(seen, WARP / 2, sum_and_top());
    if (lane == 0)
        part[warp] = seen;
    __syncthreads();
    seen = lane < blockDim.x / WARP ? part[lane] : float2{0.0f, 0.0f};
    butterfly(seen, WARP / 2, sum_and_top());
    const float rms = p.norm ? 1.0f / sqrtf(of_squares(seen.x / (float)p.n_cols + p.eps)) : 1.0f;
    const float scale = half_range(seen.y * rms);
    for (uint32_t k = threadIdx.x; k < p.n_used; k += blockDim.x)
        p.undo[place_of(pair0 + k)] =
            half_range_undo(scale) * (p.weight ? p.weight[pair0 + k] : 1.0f);
    const bool upper = lane % LANES >= LANES / 2;
#pragma unroll 1
    for (uint32_t i0 = 0; i0 < n_group; i0 += blockDim.x) {
        const uint32_t i = i0 + threadIdx.x;
        if (n_group > blockDim.x)
            take(min(i, n_group - 1));
        uint32_t even[4], odd[4]; // of neighbours the first and the third, then the others
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const float4 x = {v[t].x * rms, v[t].y * rms, v[t].z * rms, v[t].w * rms};
            even[t] = saturated_half2(x.x * scale, x.z * scale);
            odd[t] = saturated_half2(x.y * scale, x.w * scale);
        }
        // Of 128 elements four threads have the first half and four the other: they exchange, so
        // that eight write a half's eight pieces, then the other's.
        uint32_t first[4], second[4];
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t other = __shfl_xor_sync(ALL_LANES, upper ? even[t] : odd[t], LANES / 2);
            first[t] = upper ? other : even[t];
            second[t] = upper ? odd[t] : other;
        }
        if (i >= n_group)
            continue;
        const uint32_t piece = 2 * (lane % (LANES / 2)) + upper;
        const size_t half = 8 * (size_t)p.n_place; // pieces
        uint4 *const out = reinterpret_cast<uint4 *>(p.out) + 2 * (i / LANES) * half;
        for (uint32_t k0 = 0; k0 < p.n_used; k0 += AT_ONCE) {
            uint32_t place[AT_ONCE] = {}, rank[AT_ONCE] = {};
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                const uint32_t pair = pair0 + k0 + k;
                if (k0 + k >= p.n_used)
                    break;
                place[k] = place_of(pair);
                rank[k] = p.place ? p.rank[pair] : pair;
            }
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                uint4 *const to = out + (size_t)place[k] * 8 + (piece ^ rank[k]) % 8;
                if (k0 + k >= p.n_used)
                    break;
                to[0] = make_uint4(first[0], first[1], first[2], first[3]);
                to[half] = make_uint4(second[0], second[1], second[2], second[3]);
            }
        }
    }
}

// ---- launcher

bool expert_pack_launch(const struct queue *q, const struct expert_pack *p, uint32_t n,
                        struct error *err)
{
    struct expert_pack own = *p;
    if (own.ld == 0)
        own.ld = p->n_cols;
    const uint32_t wanted = div_up(p->n_cols, (uint32_t)GEMM_PACK_COLS) * LANES;
    struct launch l = {
        .name = "expert_pack",
        .grid = dim3(n),
        .block = dim3(lesser(div_up(wanted, (uint32_t)WARP) * WARP, (uint32_t)PACK_THREADS)),
        .stream = q->stream,
        .dependent = q->dependent,
        .recorder = q->recorder};
    return launch_kernel(err, l, expert_pack_kernel, own);
}
