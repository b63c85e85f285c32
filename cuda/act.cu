// Rows of activations as the products that follow take them: normed (RMSNorm), as float16 or
// quantised, in the places where a product reads them.
#include "added.cuh"

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
static_assert(8 * ACT_KEEP * ACT_THREADS >= ADD_MOST_COLS, "rows that are made here are kept");

// Of a row: the sum of its squares, and the largest of it times norm.
static __device__ __forceinline__ void look(float2 &seen, float v, float w)
{
    seen.x = fmaf(v, v, seen.x);
    seen.y = max_nan(seen.y, fabsf(v * w));
}

struct row_factors {
    float rms, scale; // of the norm; of float16
};

// What each thread has seen: the factors of the row. Of rows up to 8 * ACT_THREADS a thread has one
// eight, so that their number changes no bit.
template <int N_THREAD>
static __device__ __forceinline__ row_factors settle(float2 seen, uint32_t n_cols, bool normed,
                                                     float eps, const struct act_f16 &f16)
{
    constexpr int N_PART = N_THREAD / WARP;
    __shared__ float part[N_PART], tops[N_PART];
    butterfly(seen, WARP / 2, sum_and_top());
    if (threadIdx.x % WARP == 0) {
        part[threadIdx.x / WARP] = seen.x;
        tops[threadIdx.x / WARP] = seen.y;
    }
    __syncthreads();
    seen = {part[threadIdx.x % N_PART], tops[threadIdx.x % N_PART]};
    butterfly(seen, N_PART / 2, sum_and_top());
    const float mean = seen.x / (float)n_cols;
    const float rms = normed ? 1.0f / sqrtf(of_squares(mean + eps)) : 1.0f;
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

struct no_add {
};

enum { NOT_PACKED = 2, NOTHING = 3 }; // beside GEMM_PACKED and GEMM_FEW_PACKED
static constexpr bool is_packed(uint32_t form)
{
    return form != NOT_PACKED && form != NOTHING;
}

// Grid (n). One row that all threads together have in registers, in one packed form or as float32
// and quantised: what every product of a pass waits for, so that nothing is executed but that.
// ADD: add_normed, then x is add.from, and there may be no form at all.
template <int N_THREAD, int KEEP, uint32_t FORM, typename ADD>
static __global__ void __launch_bounds__(N_THREAD)
    act_kept_kernel(const float *x, uint32_t n_cols, const float *norm, float eps, act32 *out32,
                    float *out_f32, const struct act_f16 f16, const ADD add)
{
    constexpr bool ADDS = !std::is_same<ADD, no_add>::value;
    constexpr bool PACKED = is_packed(FORM);
    float kept[KEEP][8] = {}, weight[KEEP][8];
    [[maybe_unused]] row_to_add<N_THREAD, KEEP> owed;
    [[maybe_unused]] uint4 *to[KEEP];
    griddep_launch_dependents();
    if constexpr (ADDS)
        owed.load_weights(add, n_cols);
    // which rows: told before the first launch of a pass, which waits for that
    const float *row = x + (size_t)(f16.rows ? f16.rows[blockIdx.x] : blockIdx.x) * n_cols;
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        const uint32_t i = k * N_THREAD + threadIdx.x;
        for (int e = 0; e < 8; e++)
            weight[k][e] = 1.0f;
        if (norm && 8 * i < n_cols)
            load8<false>(norm, i, n_cols, weight[k]);
        if constexpr (PACKED) {
            to[k] =
                reinterpret_cast<uint4 *>(f16.x + piece_at(FORM, gridDim.x, blockIdx.x, i, n_cols));
            known_by_now(to[k]);
        }
    }
    griddep_wait();
    [[maybe_unused]] uint32_t skip = 0;
    if constexpr (ADDS) {
        skip = add.skip ? *add.skip : 0;
        owed.load(add, blockIdx.x, n_cols);
    }
#pragma unroll
    for (int k = 0; k < KEEP; k++)
        if (8 * (k * N_THREAD + threadIdx.x) < n_cols)
            load8<false>(row, k * N_THREAD + threadIdx.x, n_cols, kept[k]);
    if constexpr (ADDS) {
        if (skip)
            return;
        owed.add(add, blockIdx.x, n_cols, true, kept);
    }
    if constexpr (FORM == NOTHING)
        return;
    struct row_factors f = {1.0f, 1.0f};
    if (PACKED || norm) {
        float2 seen = {};
#pragma unroll
        for (int k = 0; k < KEEP; k++)
            for (int e = 0; e < 8; e++)
                look(seen, kept[k][e], weight[k][e]);
        f = settle<N_THREAD>(seen, n_cols, norm, eps, f16);
    }
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        const uint32_t i = k * N_THREAD + threadIdx.x;
        if constexpr (PACKED) {
            const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16;
            uint32_t pairs[4], v[4];
            halves(kept[k], weight[k], f, pairs);
            piece_of(FORM, pairs, v);
            if (i < n_piece)
                *to[k] = make_uint4(v[0], v[1], v[2], v[3]);
        } else {
            float v[8];
            for (int e = 0; e < 8; e++)
                v[e] = kept[k][e] * f.rms * weight[k][e];
            const bool valid = 8 * i < n_cols;
            if (out_f32 && valid) {
                float4 *out = reinterpret_cast<float4 *>(out_f32 + (size_t)blockIdx.x * n_cols);
                out[2 * i] = make_float4(v[0], v[1], v[2], v[3]);
                out[2 * i + 1] = make_float4(v[4], v[5], v[6], v[7]);
            }
            if (out32) // four lanes per 32 values
                quantize_act<true>(v, out32 + (size_t)blockIdx.x * (n_cols / 32) + i / 4, valid);
        }
    }
}

// Grid (n). One row: RMSNorm (y = x / sqrt(mean(x^2) + eps) * w), then every form asked for, for
// rows and forms that act_kept_kernel does not take. What is added up is the same.
static __global__ void __launch_bounds__(ACT_THREADS)
    act_kernel(const float *x, uint32_t n_cols, const float *norm, float eps, act32 *out32,
               float *out_f32, uint32_t f32_ld, const struct act_f16 f16)
{
    griddep_launch_dependents();
    const float *row = x + (size_t)(f16.rows ? f16.rows[blockIdx.x] : blockIdx.x) * n_cols;
    const uint32_t n_eight = n_cols % 8 == 0 ? n_cols / 8 : 0;
    griddep_wait();
    struct row_factors f = {1.0f, 1.0f};
    if (norm || f16.x) {
        float2 seen = {};
        for (int k = 0; k < ACT_KEEP; k++) {
            const uint32_t i = k * ACT_THREADS + threadIdx.x;
            float v[8], w[8] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
            if (i >= n_eight)
                break;
            load8<false>(row, i, n_cols, v);
            if (norm)
                load8<false>(norm, i, n_cols, w);
            for (int e = 0; e < 8; e++)
                look(seen, v[e], w[e]);
        }
        for (uint32_t i = (n_eight ? 8 * ACT_KEEP * ACT_THREADS : 0) + threadIdx.x; i < n_cols;
             i += ACT_THREADS)
            look(seen, row[i], norm ? norm[i] : 1.0f);
        f = settle<ACT_THREADS>(seen, n_cols, norm, eps, f16);
    }
    auto value = [&](uint32_t i) {
        return i >= n_cols ? 0.0f : norm ? row[i] * f.rms * norm[i] : row[i];
    };
    if (out_f32)
        for (uint32_t i = threadIdx.x; i < f32_ld; i += ACT_THREADS)
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
        for (uint32_t base = 0; base < n_piece; base += ACT_THREADS) {
            const uint32_t i = base + threadIdx.x, col = 8 * i;
            const uint32_t pairs[4] = {pair(col), pair(col + 2), pair(col + 4), pair(col + 6)};
            uint32_t v[4];
            piece_of(f16.ld, pairs, v);
            if (i < n_piece)
                *reinterpret_cast<uint4 *>(f16.x +
                                           piece_at(f16.ld, gridDim.x, blockIdx.x, i, n_cols)) =
                    make_uint4(v[0], v[1], v[2], v[3]);
        }
    } else if (f16.x) {
        uint32_t *out = reinterpret_cast<uint32_t *>(f16.x + (size_t)blockIdx.x * f16.ld);
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < f16.ld / 2; i += ACT_THREADS)
            out[i] = pair(2 * i);
    }
    if (out32) {
        uint32_t n = n_cols / 32 * 4; // four lanes per 32 values
        for (uint32_t base = 0; base < n; base += ACT_THREADS) {
            uint32_t i = base + threadIdx.x;
            float v[8];
            for (int e = 0; e < 8; e++)
                v[e] = i < n ? value(8 * i + e) : 0.0f;
            quantize_act<true>(v, out32 + (size_t)blockIdx.x * (n / 4) + (i < n ? i / 4 : 0),
                               i < n);
        }
    }
}

struct act_args {
    const float *x, *norm;
    uint32_t n_cols;
    float eps;
    act32 *out32;
    float *out_f32;
    struct act_f16 f16;
};

template <uint32_t FORM, typename ADD>
static bool launch_kept(struct launch l, const struct act_args &a, const ADD &add,
                        struct error *err)
{
    const uint32_t n_piece =
        is_packed(FORM) ? div_up(a.n_cols, (uint32_t)GEMM_PACK_COLS) * 16 : a.n_cols / 8;
    const auto by = [&](auto n_thread, auto keep) {
        constexpr int N = decltype(n_thread)::value, KEEP = decltype(keep)::value;
        l.block = dim3(N);
        return launch_kernel(err, l, act_kept_kernel<N, KEEP, FORM, ADD>, a.x, a.n_cols, a.norm,
                             a.eps, a.out32, a.out_f32, a.f16, add);
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
    const struct launch l = {.name = "act",
                             .grid = dim3(n),
                             .block = dim3(ACT_THREADS),
                             .stream = q->stream,
                             .dependent = q->dependent,
                             .recorder = q->recorder};
    const struct act_f16 none = {};
    const struct act_args a = {
        x, norm, n_cols, eps, (act32 *)act32_rows, (float *)act_f32, f16 ? *f16 : none};
    const bool kept = n_cols % 8 == 0 && n_cols <= 8 * ACT_KEEP * ACT_THREADS;
    const bool others = a.out32 || a.out_f32;
    if (kept && a.f16.x && !others && a.f16.ld == GEMM_FEW_PACKED)
        return launch_kept<GEMM_FEW_PACKED>(l, a, no_add(), err);
    if (kept && a.f16.x && !others && a.f16.ld == GEMM_PACKED)
        return launch_kept<GEMM_PACKED>(l, a, no_add(), err);
    if (kept && !a.f16.x)
        return launch_kept<NOT_PACKED>(l, a, no_add(), err);
    return launch_kernel(err, l, act_kernel, a.x, a.n_cols, a.norm, a.eps, a.out32, a.out_f32,
                         act_f32_ld(n_cols), a.f16);
}

bool act_added_launch(const struct queue *q, const struct add_normed *add, uint32_t n,
                      uint32_t n_cols, const float *norm, float eps, const struct act_f16 *f16,
                      struct error *err)
{
    const struct launch l = {.name = f16 ? "act" : "add_normed",
                             .grid = dim3(n),
                             .stream = q->stream,
                             .dependent = q->dependent,
                             .recorder = q->recorder};
    struct add_normed m = *add;
    m.scale = scale_or_one(m.scale);
    const float *const from = m.from ? m.from : m.x;
    const struct act_f16 none = {};
    const struct act_args a = {from, norm, n_cols, eps, NULL, NULL, f16 ? *f16 : none};
    return !f16                         ? launch_kept<NOTHING>(l, a, m, err)
           : f16->ld == GEMM_FEW_PACKED ? launch_kept<GEMM_FEW_PACKED>(l, a, m, err)
                                        : launch_kept<GEMM_PACKED>(l, a, m, err);
}
