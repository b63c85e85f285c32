// Rows of activations as the products that follow take them: normed (RMSNorm), as float16 or
// quantised, in the places where a product reads them.
#include "butterfly.cuh"
#include "kernels.h"
#include "quant.cuh"

// The row's value pairs (i even): with 8 bytes a load where rows begin on such addresses.
static __device__ __forceinline__ float2 pair_at(const float *p, uint32_t i, uint32_t n)
{
    if (n % 2 == 0)
        return i < n ? *reinterpret_cast<const float2 *>(p + i) : make_float2(0.0f, 0.0f);
    return make_float2(i < n ? p[i] : 0.0f, i + 1 < n ? p[i + 1] : 0.0f);
}

// Word k of lane t becomes word t of lane k, of the four lanes t = lane / 4 % 4.
static __device__ __forceinline__ void transpose4(uint32_t v[4])
{
    const uint32_t lane = threadIdx.x % WARP;
    const auto swap = [&](uint32_t &a, uint32_t &b, uint32_t d) { // a of the one and b of the other
        const uint32_t mine = lane & d ? a : b;
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, d);
        a = lane & d ? other : a;
        b = lane & d ? b : other;
    };
    swap(v[0], v[1], 4);
    swap(v[2], v[3], 4);
    swap(v[0], v[2], 8);
    swap(v[1], v[3], 8);
}

enum {
    ACT_THREADS = 512,
    ACT_KEEP = 2, // eights of a row that a thread has in registers
};

// Of a row: the sum of its squares, and the largest of it times norm.
static __device__ __forceinline__ void look(float2 &seen, float v, float w)
{
    seen.x = fmaf(v, v, seen.x);
    seen.y = max_nan(seen.y, fabsf(v * w));
}

struct row_factors {
    float rms, scale; // of the norm; of float16
};

// What all threads have seen, sums[k] of their k-th eights: the factors of the row. Sums of 32
// neighbouring eights are added up for themselves, so that the number of threads changes no bit.
template <int N_THREAD, int N_SUM>
static __device__ __forceinline__ row_factors settle(float2 (&sums)[N_SUM], uint32_t n_cols,
                                                     bool normed, float eps,
                                                     const struct act_f16 &f16)
{
    constexpr int N_ACT_WARP = N_THREAD / WARP, N_PART = N_SUM * N_ACT_WARP;
    __shared__ float part[N_PART], tops[N_PART];
#pragma unroll
    for (int k = 0; k < N_SUM; k++) {
        butterfly(sums[k], WARP / 2, sum_and_top());
        if (threadIdx.x % WARP == 0) {
            part[k * N_ACT_WARP + threadIdx.x / WARP] = sums[k].x;
            tops[k * N_ACT_WARP + threadIdx.x / WARP] = sums[k].y;
        }
    }
    __syncthreads();
    float2 seen = {part[threadIdx.x % N_PART], tops[threadIdx.x % N_PART]};
    butterfly(seen, N_PART / 2, sum_and_top());
    const float mean = seen.x / (float)n_cols;
    const float rms = normed ? 1.0f / sqrtf(mean + eps) : 1.0f;
    const float scale = half_range(seen.y * rms);
    if (f16.x && threadIdx.x == N_THREAD - 1) { // whose warp is the first to have no eights
        f16.undo[blockIdx.x] = half_range_undo(scale);
        if (f16.gated_bound > 0.0f) // eps makes small rows smaller; there are two factors
            f16.undo_gated[blockIdx.x] =
                half_range_undo(half_range(f16.gated_bound * (mean * rms * rms)));
    }
    return {rms, scale};
}

// The eight of a row, as float16.
static __device__ __forceinline__ void halves(const float v[8], const float weight[8],
                                              struct row_factors f, uint32_t pairs[4])
{
#pragma unroll
    for (int e = 0; e < 4; e++) { // rms is 1 without a norm
        const float w0 = f.rms * weight[2 * e], w1 = f.rms * weight[2 * e + 1];
        pairs[e] = saturated_half2(v[2 * e] * w0 * f.scale, v[2 * e + 1] * w1 * f.scale);
    }
}

// Where piece i of a row, eight values, is in a packed form.
static __device__ __forceinline__ size_t piece_at(uint32_t form, uint32_t n, uint32_t row,
                                                  uint32_t i, uint32_t n_cols)
{
    if (form == GEMM_FEW_PACKED)
        return gemm_few_at(n, row, 8 * i, n_cols);
    // 16 lanes have 16 pieces of what shared memory wants, a word of four each
    const uint32_t place = 4 * (i % 4) + i / 4 % 4;
    return gemm_pack_at(n, row, i / 16 * 128 + place / 2 * 4 + place % 2);
}

// What is there: words of the even, and of the odd, of each four neighbours; or a part of what
// lanes have together. Whole warps call.
static __device__ __forceinline__ void piece_of(uint32_t form, const uint32_t pairs[4],
                                                uint32_t v[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = __byte_perm(pairs[k / 2 * 2], pairs[k / 2 * 2 + 1], k % 2 ? 0x7632 : 0x5410);
    if (form != GEMM_FEW_PACKED)
        transpose4(v);
}

// Grid (n). One row that all threads together have in registers, in one packed form: what every
// product of a pass waits for, so that no instruction is executed but for this.
template <int N_THREAD, int KEEP, uint32_t FORM>
static __global__ void __launch_bounds__(N_THREAD)
    pack_kernel(const float *x, uint32_t n_cols, const float *norm, float eps,
                const struct act_f16 f16)
{
    const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16;
    float kept[KEEP][8] = {}, weight[KEEP][8];
    uint4 *to[KEEP];
    griddep_launch_dependents();
    // which rows: told before the first launch of a pass, which waits for that
    const float *row = x + (size_t)(f16.rows ? f16.rows[blockIdx.x] : blockIdx.x) * n_cols;
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        const uint32_t i = k * N_THREAD + threadIdx.x;
        for (int e = 0; e < 8; e++)
            weight[k][e] = 1.0f;
        if (norm && 8 * i < n_cols)
            load8<false>(norm, i, n_cols, weight[k]);
        to[k] = reinterpret_cast<uint4 *>(f16.x + piece_at(FORM, gridDim.x, blockIdx.x, i, n_cols));
        known_by_now(to[k]);
    }
    griddep_wait();
#pragma unroll
    for (int k = 0; k < KEEP; k++)
        if (8 * (k * N_THREAD + threadIdx.x) < n_cols)
            load8<false>(row, k * N_THREAD + threadIdx.x, n_cols, kept[k]);
    constexpr int N_SUM = N_THREAD < ACT_THREADS ? KEEP : 1;
    float2 sums[N_SUM] = {};
#pragma unroll
    for (int k = 0; k < KEEP; k++)
        for (int e = 0; e < 8; e++)
            look(sums[k % N_SUM], kept[k][e], weight[k][e]);
    const struct row_factors f = settle<N_THREAD>(sums, n_cols, norm, eps, f16);
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        uint32_t pairs[4], v[4];
        halves(kept[k], weight[k], f, pairs);
        piece_of(FORM, pairs, v);
        if (k * N_THREAD + threadIdx.x < n_piece)
            *to[k] = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

// Grid (n). One row: RMSNorm (y = x / sqrt(mean(x^2) + eps) * w), then every form asked for. Each
// step of a decoded row waits for this: one trip to L2 for the row, the norm's before that. With
// fewer than ACT_THREADS all of a row is kept.
template <int N_THREAD>
static __global__ void __launch_bounds__(N_THREAD)
    act_kernel(const float *x, uint32_t n_cols, const float *norm, float eps, act32 *out32,
               float *out_f32, uint32_t f32_ld, const struct act_f16 f16)
{
    constexpr int N_SUM = N_THREAD < ACT_THREADS ? ACT_KEEP : 1;
    // which rows: told before the first launch of a pass, which waits for that
    const float *row = x + (size_t)(f16.rows ? f16.rows[blockIdx.x] : blockIdx.x) * n_cols;
    const uint32_t n_eight = n_cols % 8 == 0 ? n_cols / 8 : 0;
    float kept[ACT_KEEP][8] = {}, weight[ACT_KEEP][8];
    griddep_launch_dependents();
#pragma unroll
    for (int k = 0; k < ACT_KEEP; k++) {
        const uint32_t i = k * N_THREAD + threadIdx.x;
        for (int e = 0; e < 8; e++)
            weight[k][e] = 1.0f;
        if (norm && i < n_eight)
            load8<false>(norm, i, n_cols, weight[k]);
    }
    griddep_wait();
    struct row_factors f = {1.0f, 1.0f};
    if (norm || f16.x) {
        float2 sums[N_SUM] = {};
#pragma unroll
        for (int k = 0; k < ACT_KEEP; k++) {
            const uint32_t i = k * N_THREAD + threadIdx.x;
            if (i < n_eight)
                load8<false>(row, i, n_cols, kept[k]);
        }
#pragma unroll
        for (int k = 0; k < ACT_KEEP; k++)
            if (k * N_THREAD + threadIdx.x < n_eight)
                for (int e = 0; e < 8; e++)
                    look(sums[k % N_SUM], kept[k][e], weight[k][e]);
        for (uint32_t i = (n_eight ? 8 * ACT_KEEP * N_THREAD : 0) + threadIdx.x; i < n_cols;
             i += N_THREAD)
            look(sums[0], row[i], norm ? norm[i] : 1.0f);
        f = settle<N_THREAD>(sums, n_cols, norm, eps, f16);
    }
    auto value = [&](uint32_t i) {
        return i >= n_cols ? 0.0f : norm ? row[i] * f.rms * norm[i] : row[i];
    };
    if (out_f32)
        for (uint32_t i = threadIdx.x; i < f32_ld; i += N_THREAD)
            out_f32[(size_t)blockIdx.x * f32_ld + i] = value(i);
    // two values as float16; i is even
    auto pair = [&](uint32_t i) {
        float2 v = pair_at(row, i, n_cols);
        if (norm) {
            float2 w = pair_at(norm, i, n_cols);
            v.x *= f.rms * w.x;
            v.y *= f.rms * w.y;
        }
        return saturated_half2(v.x * f.scale, v.y * f.scale);
    };
    if (f16.x && (f16.ld == GEMM_FEW_PACKED || f16.ld == GEMM_PACKED)) {
        const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16; // of 8 values
        // Piece i of the row, if there is one; whole warps call.
        auto store = [&](uint32_t i, const uint32_t pairs[4]) {
            uint32_t v[4];
            piece_of(f16.ld, pairs, v);
            if (i < n_piece)
                *reinterpret_cast<uint4 *>(f16.x +
                                           piece_at(f16.ld, gridDim.x, blockIdx.x, i, n_cols)) =
                    make_uint4(v[0], v[1], v[2], v[3]);
        };
#pragma unroll
        for (int k = 0; k < ACT_KEEP; k++) {
            uint32_t v[4];
            halves(kept[k], weight[k], f, v);
            if (n_eight)
                store(k * N_THREAD + threadIdx.x, v);
        }
        for (uint32_t base = n_eight ? ACT_KEEP * N_THREAD : 0; base < n_piece; base += N_THREAD) {
            const uint32_t i = base + threadIdx.x, col = 8 * i;
            const uint32_t v[4] = {pair(col), pair(col + 2), pair(col + 4), pair(col + 6)};
            store(i, v);
        }
    } else if (f16.x) {
        uint32_t *out = reinterpret_cast<uint32_t *>(f16.x + (size_t)blockIdx.x * f16.ld);
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < f16.ld / 2; i += N_THREAD)
            out[i] = pair(2 * i);
    }
    if (out32) {
        uint32_t n = n_cols / 32 * 4; // four lanes per 32 values
        for (uint32_t base = 0; base < n; base += N_THREAD) {
            uint32_t i = base + threadIdx.x;
            float v[8];
            for (int e = 0; e < 8; e++)
                v[e] = i < n ? value(8 * i + e) : 0.0f;
            quantize_act<true>(v, out32 + (size_t)blockIdx.x * (n / 4) + (i < n ? i / 4 : 0),
                               i < n);
        }
    }
}

template <uint32_t FORM>
static bool launch_pack(struct launch l, const float *x, uint32_t n_cols, const float *norm,
                        float eps, const struct act_f16 *f16, struct error *err)
{
    const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16;
    const auto by = [&](auto n_thread, auto keep) {
        constexpr int N = decltype(n_thread)::value, KEEP = decltype(keep)::value;
        l.block = dim3(N);
        return launch_kernel(err, l, pack_kernel<N, KEEP, FORM>, x, n_cols, norm, eps, *f16);
    };
    constexpr std::integral_constant<int, 1> one = {};
    return n_piece <= 64            ? by(std::integral_constant<int, 64>(), one)
           : n_piece <= 128         ? by(std::integral_constant<int, 128>(), one)
           : n_piece <= 256         ? by(std::integral_constant<int, 256>(), one)
           : n_piece <= ACT_THREADS ? by(std::integral_constant<int, ACT_THREADS>(), one)
                                    : by(std::integral_constant<int, ACT_THREADS>(),
                                         std::integral_constant<int, ACT_KEEP>());
}

bool act_launch(const struct queue *q, const float *x, uint32_t n, uint32_t n_cols,
                const float *norm, float eps, void *act32_rows, void *act_f32,
                const struct act_f16 *f16, struct error *err)
{
    struct launch l = {.name = "act",
                       .grid = dim3(n),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    if (f16 && f16->x && !act32_rows && !act_f32 && n_cols % 8 == 0 &&
        n_cols <= 8 * ACT_KEEP * ACT_THREADS) {
        if (f16->ld == GEMM_FEW_PACKED)
            return launch_pack<GEMM_FEW_PACKED>(l, x, n_cols, norm, eps, f16, err);
        if (f16->ld == GEMM_PACKED)
            return launch_pack<GEMM_PACKED>(l, x, n_cols, norm, eps, f16, err);
    }
    const struct act_f16 none = {};
    const auto by = [&](auto n_thread) {
        l.block = dim3(n_thread);
        return launch_kernel(err, l, act_kernel<decltype(n_thread)::value>, x, n_cols, norm, eps,
                             (act32 *)act32_rows, (float *)act_f32, act_f32_ld(n_cols),
                             f16 ? *f16 : none);
    };
    // The fewest threads that keep a row: of a few rows, of more than would find room at once, and
    // of short ones (heads of latent attention). In between blocks so small crowd where there is
    // room first.
    const bool fewest = n <= 8 || n > 2 * (uint32_t)q->n_sm || n_cols <= 512;
    const uint32_t n_needed = fewest && n_cols % 8 == 0 ? div_up(n_cols, (uint32_t)(8 * ACT_KEEP))
                                                        : (uint32_t)ACT_THREADS;
    return n_needed <= 64    ? by(std::integral_constant<int, 64>())
           : n_needed <= 128 ? by(std::integral_constant<int, 128>())
           : n_needed <= 256 ? by(std::integral_constant<int, 256>())
                             : by(std::integral_constant<int, ACT_THREADS>());
}
