// Rows of activations as expert_hopper.cu multiplies them: normed, as float16 times a power of two
// each, and laid out by place, once for each expert that the row has chosen.
#include "butterfly.cuh"
#include "experts.h"

enum {
    PACK_THREADS = 256, // at most
    LANES = 8,          // threads for 128 elements of a row: two of its pieces of 16 bytes each
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
// elements 32 t + 4 q and up, t < 4, of each 128: pieces 2 q and 2 q + 1 of gemm_pack_at's.
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
    const float *row = p.x + (size_t)from * p.n_cols;
    float2 seen = {0.0f, 0.0f}; // the sum of squares, the largest of the row times norm
    for (uint32_t i = threadIdx.x; i < n_group; i += blockDim.x)
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t col = i / LANES * GEMM_PACK_COLS + 32 * t + 4 * (i % LANES);
            float4 v = four_at(p, row, col);
            seen.x += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
            if (p.norm)
                v = times(v, four_at(p, p.norm, col));
            seen.y = max_nan(
                seen.y, max_nan(max_nan(fabsf(v.x), fabsf(v.y)), max_nan(fabsf(v.z), fabsf(v.w))));
        }
    butterfly(seen, WARP / 2, sum_and_top());
    if (lane == 0)
        part[warp] = seen;
    __syncthreads();
    seen = lane < blockDim.x / WARP ? part[lane] : float2{0.0f, 0.0f};
    butterfly(seen, WARP / 2, sum_and_top());
    const float rms = p.norm ? 1.0f / sqrtf(seen.x / (float)p.n_cols + p.eps) : 1.0f;
    const float scale = half_range(seen.y * rms);
    for (uint32_t k = threadIdx.x; k < p.n_used; k += blockDim.x)
        p.undo[place_of(pair0 + k)] =
            half_range_undo(scale) * (p.weight ? p.weight[pair0 + k] : 1.0f);
    for (uint32_t i = threadIdx.x; i < n_group; i += blockDim.x) {
        uint32_t even[4], odd[4]; // of neighbours the first and the third, then the others
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t col = i / LANES * GEMM_PACK_COLS + 32 * t + 4 * (i % LANES);
            float4 v = four_at(p, row, col);
            if (p.norm) {
                v = times(v, four_at(p, p.norm, col));
                v = make_float4(v.x * rms, v.y * rms, v.z * rms, v.w * rms);
            }
            even[t] = saturated_half2(v.x * scale, v.z * scale);
            odd[t] = saturated_half2(v.y * scale, v.w * scale);
        }
        const uint32_t piece = 2 * (i % LANES), half = i / LANES * 2 + piece / 8;
        for (uint32_t k = 0; k < p.n_used; k++) {
            const uint32_t rank = p.place ? p.rank[pair0 + k] : pair0 + k;
            uint4 *to = reinterpret_cast<uint4 *>(p.out) +
                        ((size_t)half * p.n_place + place_of(pair0 + k)) * 8;
            to[(piece ^ rank) % 8] = make_uint4(even[0], even[1], even[2], even[3]);
            to[((piece + 1) ^ rank) % 8] = make_uint4(odd[0], odd[1], odd[2], odd[3]);
        }
    }
}

// ---- launcher

bool expert_pack_launch(const struct queue *q, const struct expert_pack *p, uint32_t n,
                        struct error *err)
{
    const uint32_t wanted = div_up(p->n_cols, (uint32_t)GEMM_PACK_COLS) * LANES;
    struct launch l = {
        .name = "expert_pack",
        .grid = dim3(n),
        .block = dim3(lesser(div_up(wanted, (uint32_t)WARP) * WARP, (uint32_t)PACK_THREADS)),
        .stream = q->stream,
        .dependent = q->dependent,
        .recorder = q->recorder};
    return launch_kernel(err, l, expert_pack_kernel, *p);
}
