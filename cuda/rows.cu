// What happens to whole rows of activations between the matrices: embedding, RMSNorm and
// quantisation, what becomes of products that no kernel of their own finishes.
#include "activation.cuh"
#include "kernels.h"
#include "quant.cuh"

enum { THREADS = 256, N_WARP = THREADS / WARP };

// ---- kernels

// Grid (n). The embedding's row, and the rotations of this position.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS)
    embed_kernel(const struct wmat w, const int32_t *tokens, float *x, float scale,
                 const struct rope_tables ropes, const uint32_t *pos0, const uint32_t *skip)
{
    constexpr int N = chunk_elems(TYPE);
    griddep_launch_dependents();
    if (skip && *skip)
        return;
    uint32_t i = blockIdx.x, token = (uint32_t)tokens[i];
    float *out = x + (size_t)i * w.n_cols;
    const struct tile_row row = tile_begin<TYPE>(w, token / TILE_ROWS, token % TILE_ROWS);
    for (uint32_t c = threadIdx.x; c < w.n_chunk; c += THREADS) {
        chunk<TYPE> k;
        float v[N];
        load_chunk<TYPE>(row, c, k);
        dequantize_chunk<TYPE>(k, v);
        for (int e = 0; e < N; e++)
            if (c * N + e < w.n_cols)
                out[c * N + e] = scale * v[e];
    }
    for (uint32_t k = 0; k < ropes.n; k++) {
        const struct rope_table &t = ropes.t[k];
        for (uint32_t p = threadIdx.x; p < t.n_pair; p += THREADS) {
            // In turns, and all but the last one off, in double: of a million radians a float would
            // keep a few hundredths.
            double turns = (double)(*pos0 + i) * (double)t.freqs[p] * 0.15915494309189535; // 1/2pi
            float sine, cosine;
            sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
            t.turns[(size_t)i * t.n_pair + p] =
                make_float2(cosine * t.magnitude, sine * t.magnitude);
        }
    }
}

// The row's value pairs (i even): with 8 bytes a load where rows begin on such addresses.
static __device__ __forceinline__ float2 pair_at(const float *p, uint32_t i, uint32_t n)
{
    if (n % 2 == 0)
        return i < n ? *reinterpret_cast<const float2 *>(p + i) : make_float2(0.0f, 0.0f);
    return make_float2(i < n ? p[i] : 0.0f, i + 1 < n ? p[i + 1] : 0.0f);
}

// Grid (n). One row: RMSNorm (y = x / sqrt(mean(x^2) + eps) * w), then every form asked for.
static __global__ void __launch_bounds__(THREADS)
    act_kernel(const float *x, uint32_t n_cols, const float *norm, float eps, act32 *out32,
               float *out_f32, uint32_t f32_ld, const struct act_f16 f16)
{
    __shared__ float part[N_WARP], tops[N_WARP];
    griddep_launch_dependents();
    griddep_wait();
    const float *row = x + (size_t)blockIdx.x * n_cols;
    float rms = 1.0f, scale = 1.0f; // scale: of float16
    if (norm || f16.x) {
        float sum = 0.0f, top = 0.0f; // top: the largest of the row times norm
        auto look = [&](float v, float w) {
            sum = fmaf(v, v, sum);
            top = max_nan(top, fabsf(v * w));
        };
        if (n_cols % 4 == 0) {
            const float4 *row4 = reinterpret_cast<const float4 *>(row);
            const float4 *norm4 = reinterpret_cast<const float4 *>(norm);
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < n_cols / 4; i += THREADS) {
                float4 v = row4[i];
                float4 w = f16.x && norm ? norm4[i] : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
                look(v.x, w.x), look(v.y, w.y), look(v.z, w.z), look(v.w, w.w);
            }
        } else {
            for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
                look(row[i], norm ? norm[i] : 1.0f);
        }
        for (int d = WARP / 2; d > 0; d /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
            top = max_nan(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
        }
        if (threadIdx.x % WARP == 0) {
            part[threadIdx.x / WARP] = sum;
            tops[threadIdx.x / WARP] = top;
        }
        __syncthreads();
        sum = top = 0.0f;
        for (int i = 0; i < N_WARP; i++) {
            sum += part[i];
            top = max_nan(top, tops[i]);
        }
        const float mean = sum / (float)n_cols;
        if (norm)
            rms = 1.0f / sqrtf(mean + eps);
        scale = half_range(top * rms);
        if (f16.x && threadIdx.x == 0) {
            f16.undo[blockIdx.x] = half_range_undo(scale);
            if (f16.gated_bound > 0.0f) // eps makes small rows smaller; there are two factors
                f16.undo_gated[blockIdx.x] =
                    half_range_undo(half_range(f16.gated_bound * (mean * rms * rms)));
        }
    }
    auto value = [&](uint32_t i) {
        return i >= n_cols ? 0.0f : norm ? row[i] * rms * norm[i] : row[i];
    };
    if (out_f32)
        for (uint32_t i = threadIdx.x; i < f32_ld; i += THREADS)
            out_f32[(size_t)blockIdx.x * f32_ld + i] = value(i);
    // two values as float16; i is even
    auto pair = [&](uint32_t i) {
        float2 v = pair_at(row, i, n_cols);
        if (norm) {
            float2 w = pair_at(norm, i, n_cols);
            v.x *= rms * w.x;
            v.y *= rms * w.y;
        }
        return saturated_half2(v.x * scale, v.y * scale);
    };
    if (f16.x && f16.ld == GEMM_PACKED) {
        const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16; // of 8 values
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < n_piece; i += THREADS) {
            uint32_t col = i / 16 * GEMM_PACK_COLS + i % 16 * 2; // and the same of three chunks
            uint4 v = make_uint4(pair(col), pair(col + 32), pair(col + 64), pair(col + 96));
            *reinterpret_cast<uint4 *>(f16.x + gemm_pack_at(gridDim.x, blockIdx.x, col)) = v;
        }
    } else if (f16.x) {
        uint32_t *out = reinterpret_cast<uint32_t *>(f16.x + (size_t)blockIdx.x * f16.ld);
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < f16.ld / 2; i += THREADS)
            out[i] = pair(2 * i);
    }
    if (out32) {
        uint32_t n = n_cols / 32 * 4; // four lanes per 32 values
        for (uint32_t base = 0; base < n; base += THREADS) {
            uint32_t i = base + threadIdx.x;
            float v[8];
            for (int e = 0; e < 8; e++)
                v[e] = i < n ? value(8 * i + e) : 0.0f;
            quantize_act(v, out32 + (size_t)blockIdx.x * (n / 4) + (i < n ? i / 4 : 0), i < n);
        }
    }
}

static __global__ void __launch_bounds__(THREADS)
    gate_kernel(enum activation act, float *gate, const float *up, size_t n)
{
    griddep_launch_dependents();
    griddep_wait();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        gate[i] = activate(act, gate[i]) * up[i];
}

// Grid (n, ceil(n_cols / THREADS))
static __global__ void __launch_bounds__(THREADS)
    finish_product_kernel(const float *product, const float *undo, const float *bias, float scale,
                          bool add, float *y, uint32_t n_cols)
{
    griddep_launch_dependents();
    griddep_wait();
    uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    if (i >= n_cols)
        return;
    const size_t at = (size_t)blockIdx.x * n_cols + i;
    float v = fmaf(product[at], undo ? scale * undo[blockIdx.x] : scale, bias ? bias[i] : 0.0f);
    y[at] = add ? y[at] + v : v;
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    add_normed_kernel(const float *y, const float *norm, float eps, float scale, float *x,
                      uint32_t n_cols, const uint32_t *skip)
{
    __shared__ float part[N_WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (skip && *skip)
        return;
    y += (size_t)blockIdx.x * n_cols;
    x += (size_t)blockIdx.x * n_cols;
    float sum = 0.0f;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
        sum = fmaf(y[i], y[i], sum);
    for (int d = WARP / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < N_WARP; i++)
        sum += part[i];
    const float factor = scale / sqrtf(sum / (float)n_cols + eps);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
        x[i] = fmaf(factor * norm[i], y[i], x[i]);
}

// What is not finite stays that: a limit would hide it.
static __global__ void __launch_bounds__(THREADS)
    finish_logits_kernel(float *logits, size_t n, float scale, float softcap, const uint32_t *skip)
{
    griddep_launch_dependents();
    griddep_wait();
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n || (skip && *skip))
        return;
    const float v = scale * logits[i];
    logits[i] = softcap > 0.0f && isfinite(v) ? softcap * tanhf(v / softcap) : v;
}

// ---- launchers

bool embed_launch(const struct queue *q, const struct wmat *tok_embd, const int32_t *tokens,
                  uint32_t n, float *x, float scale, const struct rope_tables *ropes,
                  const uint32_t *pos0, const uint32_t *skip, struct error *err)
{
    // Not dependent: kernels that begin early read the position, and this one, the first of a step,
    // keeps them behind the sampler of the step before, which writes it.
    struct launch l = {.name = "embed",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .recorder = q->recorder};
    return with_type(tok_embd->type, [&](auto tag) {
        return launch_kernel(err, l, embed_kernel<decltype(tag)::value>, *tok_embd, tokens, x,
                             scale, *ropes, pos0, skip);
    });
}

bool act_launch(const struct queue *q, const float *x, uint32_t n, uint32_t n_cols,
                const float *norm, float eps, void *act32_rows, void *act_f32,
                const struct act_f16 *f16, struct error *err)
{
    struct launch l = {.name = "act",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    const struct act_f16 none = {};
    return launch_kernel(err, l, act_kernel, x, n_cols, norm, eps, (act32 *)act32_rows,
                         (float *)act_f32, act_f32_ld(n_cols), f16 ? *f16 : none);
}

bool gate_launch(const struct queue *q, enum activation act, float *gate, const float *up,
                 size_t n_total, struct error *err)
{
    struct launch l = {.name = "gate",
                       .grid = dim3((unsigned)div_up(n_total, (size_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, gate_kernel, act, gate, up, n_total);
}

bool finish_product_launch(const struct queue *q, const float *product, const float *undo,
                           const float *bias, float scale, bool add, float *y, uint32_t n,
                           uint32_t n_cols, struct error *err)
{
    struct launch l = {.name = "finish_product",
                       .grid = dim3(n, div_up(n_cols, (uint32_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, finish_product_kernel, product, undo, bias,
                         scale != 0.0f ? scale : 1.0f, add, y, n_cols);
}

bool add_normed_launch(const struct queue *q, const float *y, const float *norm, float eps,
                       float scale, float *x, uint32_t n, uint32_t n_cols, const uint32_t *skip,
                       struct error *err)
{
    struct launch l = {.name = "add_normed",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, add_normed_kernel, y, norm, eps, scale != 0.0f ? scale : 1.0f, x,
                         n_cols, skip);
}

bool finish_logits_launch(const struct queue *q, float *logits, size_t n_total, float scale,
                          float softcap, const uint32_t *skip, struct error *err)
{
    struct launch l = {.name = "finish_logits",
                       .grid = dim3((unsigned)div_up(n_total, (size_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, finish_logits_kernel, logits, n_total, scale, softcap, skip);
}
