// What happens to whole rows of activations between the matrices: embedding, RMSNorm and
// quantisation, what becomes of products that no kernel of their own finishes.
#include "activation.cuh"
#include "block.cuh"
#include "butterfly.cuh"
#include "kernels.h"
#include "quant.cuh"

enum { THREADS = 256, N_WARP = THREADS / WARP };

// ---- kernels

// Grid (n, 1 + tables of rotations): the embedding's row, or the rotations of its position.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS)
    embed_kernel(const struct wmat w, const int32_t *tokens, float *x, float scale,
                 const struct rope_tables ropes, const struct seq_row *rows, bool one_seq,
                 const uint32_t *skip)
{
    constexpr int N = chunk_elems(TYPE);
    griddep_launch_dependents();
    if (skip && *skip)
        return;
    const uint32_t i = blockIdx.x;
    if (blockIdx.y > 0) {
        const struct rope_table &t = ropes.t[blockIdx.y - 1];
        const uint32_t position = one_seq ? rows->pos + i : rows[i].pos;
        for (uint32_t p = threadIdx.x; p < t.n_pair; p += THREADS) {
            // In turns, and all but the last one off, in double: of a million radians a float would
            // keep a few hundredths.
            double turns = (double)position * (double)t.freqs[p] * 0.15915494309189535; // 1/2pi
            float sine, cosine;
            sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
            t.turns[(size_t)i * t.n_pair + p] =
                make_float2(cosine * t.magnitude, sine * t.magnitude);
        }
        return;
    }
    const uint32_t token = (uint32_t)tokens[i];
    float *out = x + (size_t)i * w.n_cols;
    const struct tile_row row = tile_begin<TYPE>(w, token / TILE_ROWS, token % TILE_ROWS);
    for (uint32_t c = threadIdx.x; c < w.n_chunk; c += THREADS) {
        chunk<TYPE> k;
        float v[N];
        load_chunk<TYPE>(row, c, k);
        dequantize_chunk<TYPE>(k, v);
        if (w.n_cols % N == 0) {
            for (int e = 0; e < N; e += 4)
                *reinterpret_cast<float4 *>(out + c * N + e) =
                    make_float4(scale * v[e], scale * v[e + 1], scale * v[e + 2], scale * v[e + 3]);
            continue;
        }
        for (int e = 0; e < N; e++)
            if (c * N + e < w.n_cols)
                out[c * N + e] = scale * v[e];
    }
}

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

// Grid (n). One row: RMSNorm (y = x / sqrt(mean(x^2) + eps) * w), then every form asked for. Each
// step of a decoded row waits for this: one trip to L2 for the row, the norm's before that. With
// fewer than ACT_THREADS all of a row is kept. Sums of 32 neighbouring eights are added up for
// themselves, so that the number of threads changes no bit.
template <int N_THREAD>
static __global__ void __launch_bounds__(N_THREAD)
    act_kernel(const float *x, uint32_t n_cols, const float *norm, float eps, act32 *out32,
               float *out_f32, uint32_t f32_ld, const struct act_f16 f16)
{
    constexpr int N_ACT_WARP = N_THREAD / WARP, N_SUM = N_THREAD < ACT_THREADS ? ACT_KEEP : 1;
    constexpr int N_PART = N_SUM * N_ACT_WARP;
    __shared__ float part[N_PART], tops[N_PART];
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
    float rms = 1.0f, scale = 1.0f; // scale: of float16
    if (norm || f16.x) {
        float2 sums[N_SUM] = {}; // of squares, and the largest of the row times norm
        auto look = [&](float2 &seen, float v, float w) {
            seen.x = fmaf(v, v, seen.x);
            seen.y = max_nan(seen.y, fabsf(v * w));
        };
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
        if (norm)
            rms = 1.0f / sqrtf(mean + eps);
        scale = half_range(seen.y * rms);
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
        for (uint32_t i = threadIdx.x; i < f32_ld; i += N_THREAD)
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
    if (f16.x && (f16.ld == GEMM_FEW_PACKED || f16.ld == GEMM_PACKED)) {
        const uint32_t n_piece = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * 16; // of 8 values
        // Piece i of the row, if there is one; whole warps call.
        auto store = [&](uint32_t i, const uint32_t pairs[4]) {
            const uint32_t n = gridDim.x, row = blockIdx.x;
            uint32_t v[4]; // of the even, the odd of each four neighbours
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = __byte_perm(pairs[k / 2 * 2], pairs[k / 2 * 2 + 1], k % 2 ? 0x7632 : 0x5410);
            size_t at;
            if (f16.ld == GEMM_FEW_PACKED) {
                at = gemm_few_at(n, row, 8 * i, n_cols);
            } else { // 16 lanes have 16 pieces of what shared memory wants, a word of four each
                transpose4(v);
                const uint32_t place = 4 * (i % 4) + i / 4 % 4;
                at = gemm_pack_at(n, row, i / 16 * 128 + place / 2 * 4 + place % 2);
            }
            if (i < n_piece)
                *reinterpret_cast<uint4 *>(f16.x + at) = make_uint4(v[0], v[1], v[2], v[3]);
        };
#pragma unroll
        for (int k = 0; k < ACT_KEEP; k++) {
            uint32_t v[4];
            for (int e = 0; e < 4; e++) { // rms is 1 without a norm
                const float w0 = rms * weight[k][2 * e], w1 = rms * weight[k][2 * e + 1];
                v[e] =
                    saturated_half2(kept[k][2 * e] * w0 * scale, kept[k][2 * e + 1] * w1 * scale);
            }
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

static __global__ void __launch_bounds__(THREADS)
    gate_kernel(enum activation act, const struct xielu p, float *gate, const float *up, size_t n)
{
    griddep_launch_dependents();
    griddep_wait();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        gate[i] = up ? gated(act, p, gate[i], up[i]) : activate_any(act, p, gate[i]);
}

// Grid (ceil(n * width / THREADS))
static __global__ void __launch_bounds__(THREADS)
    gate_told_kernel(enum activation act, const struct xielu p, float *gate, const float *told,
                     uint32_t ld, size_t n, uint32_t width)
{
    griddep_launch_dependents();
    griddep_wait();
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        gate[i] = gated(act, p, gate[i], told[i / width * ld + i % width]);
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

// Grid (n, n_layer)
static __global__ void __launch_bounds__(THREADS) tell_kernel(const struct told t)
{
    __shared__ float part[N_WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (t.skip && *t.skip)
        return;
    const size_t at = ((size_t)blockIdx.x * t.n_layer + blockIdx.y) * t.width;
    const float *proj = t.proj + at;
    float *told = t.told + at, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < t.width; i += THREADS)
        sum = fmaf(t.scale * proj[i], t.scale * proj[i], sum);
    const float factor = t.scale / sqrtf(block_sum(sum, part) / (float)t.width + t.eps);
    for (uint32_t i = threadIdx.x; i < t.width; i += THREADS)
        told[i] = fmaf(factor * t.norm[i], proj[i], told[i]) * 0.70710678118654752f;
}

// What a thread has in registers of a row: elements threadIdx.x, threadIdx.x + THREADS, ..., as far
// as N find room. All are under way at once.
template <uint32_t N> struct kept_row {
    float v[N];

    __device__ __forceinline__ void load(const float *row, uint32_t n_cols)
    {
#pragma unroll
        for (uint32_t k = 0; k < N; k++)
            v[k] = k * THREADS + threadIdx.x < n_cols ? row[k * THREADS + threadIdx.x] : 0.0f;
    }
    // f(k, i, v) of each: v[k], which is element i.
    template <typename F> __device__ __forceinline__ void each(uint32_t n_cols, F f) const
    {
#pragma unroll
        for (uint32_t k = 0; k < N; k++)
            if (k * THREADS + threadIdx.x < n_cols)
                f(k, k * THREADS + threadIdx.x, v[k]);
    }
    // The first element of a thread that is not kept.
    static __device__ __forceinline__ uint32_t rest()
    {
        return N * THREADS + threadIdx.x;
    }
};

enum { KEPT = 24, KEPT_TO_JOIN = 12 };

// What add_normed leaves of an element.
static __device__ __forceinline__ float added(float x, float factor, float w, float y, float times)
{
    return fmaf(factor * w, y, x) * times;
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    add_normed_kernel(const struct add_normed m, uint32_t n_cols)
{
    __shared__ float part[N_WARP];
    kept_row<KEPT> y, x, w;
    griddep_launch_dependents();
    w.load(m.norm, n_cols);
    const float times = m.times ? *m.times : 1.0f;
    griddep_wait();
    const uint32_t skip = m.skip ? *m.skip : 0;
    const size_t at = (size_t)blockIdx.x * n_cols;
    y.load(m.y + at, n_cols);
    x.load(m.x + at, n_cols);
    if (skip)
        return;
    float sum = 0.0f;
    y.each(n_cols, [&](uint32_t, uint32_t, float v) { sum = fmaf(v, v, sum); });
    for (uint32_t i = y.rest(); i < n_cols; i += THREADS)
        sum = fmaf(m.y[at + i], m.y[at + i], sum);
    const float factor = m.scale / sqrtf(block_sum(sum, part) / (float)n_cols + m.eps);
    y.each(n_cols, [&](uint32_t k, uint32_t i, float v) {
        m.x[at + i] = added(x.v[k], factor, w.v[k], v, times);
    });
    for (uint32_t i = y.rest(); i < n_cols; i += THREADS)
        m.x[at + i] = added(m.x[at + i], factor, m.norm[i], m.y[at + i], times);
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    join_normed_kernel(const __grid_constant__ struct join_normed j, uint32_t n_cols)
{
    __shared__ float part[3][N_WARP];
    kept_row<KEPT_TO_JOIN> a, b, x, a_norm, b_norm, norm;
    const struct add_normed &m = j.add;
    griddep_launch_dependents();
    a_norm.load(j.a_norm, n_cols);
    b_norm.load(j.b_norm, n_cols);
    norm.load(m.norm, n_cols);
    const float times = m.times ? *m.times : 1.0f;
    griddep_wait();
    const uint32_t skip = m.skip ? *m.skip : 0;
    const size_t at = (size_t)blockIdx.x * n_cols;
    a.load(j.a + at, n_cols);
    b.load(j.b + at, n_cols);
    x.load(m.x + at, n_cols);
    if (skip)
        return;
    float a_sum = 0.0f, b_sum = 0.0f, sum = 0.0f;
    auto see = [&](float va, float vb) {
        a_sum = fmaf(va, va, a_sum);
        b_sum = fmaf(vb, vb, b_sum);
    };
    a.each(n_cols, [&](uint32_t k, uint32_t, float v) { see(v, b.v[k]); });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        see(j.a[at + i], j.b[at + i]);
    const float a_factor = 1.0f / sqrtf(block_sum(a_sum, part[0]) / (float)n_cols + m.eps);
    const float b_factor = 1.0f / sqrtf(block_sum(b_sum, part[1]) / (float)n_cols + m.eps);
    auto joined = [&](float wa, float va, float wb, float vb) {
        return fmaf(a_factor * wa, va, b_factor * wb * vb);
    };
    auto joined_rest = [&](uint32_t i) {
        return joined(j.a_norm[i], j.a[at + i], j.b_norm[i], j.b[at + i]);
    };
    a.each(n_cols, [&](uint32_t k, uint32_t, float v) {
        a.v[k] = joined(a_norm.v[k], v, b_norm.v[k], b.v[k]);
        sum = fmaf(a.v[k], a.v[k], sum);
    });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        sum = fmaf(joined_rest(i), joined_rest(i), sum);
    const float factor = m.scale / sqrtf(block_sum(sum, part[2]) / (float)n_cols + m.eps);
    a.each(n_cols, [&](uint32_t k, uint32_t i, float v) {
        m.x[at + i] = added(x.v[k], factor, norm.v[k], v, times);
    });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        m.x[at + i] = added(m.x[at + i], factor, m.norm[i], joined_rest(i), times);
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    norm_kernel(enum norm_kind kind, const float *x, const float *w, const float *b, float eps,
                float *y, uint32_t ld_y, uint32_t n_cols, const uint32_t *skip)
{
    __shared__ float means[N_WARP], squares[N_WARP];
    kept_row<KEPT> a, weight, bias;
    griddep_launch_dependents();
    weight.load(w, n_cols);
    bias.load(b ? b : w, b ? n_cols : 0);
    griddep_wait();
    const uint32_t over = skip ? *skip : 0;
    x += (size_t)blockIdx.x * n_cols;
    y += (size_t)blockIdx.x * ld_y;
    a.load(x, n_cols);
    if (over)
        return;
    float mean = 0.0f, sum = 0.0f;
    if (kind == NORM_LAYER) {
        a.each(n_cols, [&](uint32_t, uint32_t, float v) { mean += v; });
        for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
            mean += x[i];
        mean = block_sum(mean, means) / (float)n_cols;
    }
    a.each(n_cols, [&](uint32_t, uint32_t, float v) { sum = fmaf(v - mean, v - mean, sum); });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        sum = fmaf(x[i] - mean, x[i] - mean, sum);
    const float factor = 1.0f / sqrtf(block_sum(sum, squares) / (float)n_cols + eps);
    a.each(n_cols, [&](uint32_t k, uint32_t i, float v) {
        y[i] = fmaf((v - mean) * factor, weight.v[k], bias.v[k]);
    });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        y[i] = fmaf((x[i] - mean) * factor, w[i], b ? b[i] : 0.0f);
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

// Grid (n).
static __global__ void __launch_bounds__(THREADS)
    gather_rows_kernel(const float *from, const uint32_t *rows, uint32_t n_cols, float *to)
{
    griddep_launch_dependents();
    griddep_wait();
    from += (size_t)rows[blockIdx.x] * n_cols;
    to += (size_t)blockIdx.x * n_cols;
    for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
        to[i] = from[i];
}

// Grid (any, n_piece)
static __global__ void __launch_bounds__(THREADS) upload_kernel(const struct upload u)
{
    const auto &p = u.piece[blockIdx.y];
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < p.n; i += gridDim.x * THREADS)
        p.to[i] = p.from[i];
}

// ---- launchers

static float scale_or_one(float scale)
{
    return scale != 0.0f ? scale : 1.0f;
}

bool upload_launch(const struct queue *q, const struct upload *u, struct error *err)
{
    enum { MOST = 512 };
    const uint32_t n_block = div_up(u->most, (uint32_t)THREADS);
    // not dependent: kernels in flight may read what it writes
    struct launch l = {.name = "upload",
                       .grid = dim3(lesser(n_block, (uint32_t)MOST), u->n_piece),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .recorder = q->recorder};
    return u->most == 0 || launch_kernel(err, l, upload_kernel, *u);
}

bool gather_rows_launch(const struct queue *q, const float *from, const uint32_t *rows, uint32_t n,
                        uint32_t n_cols, float *to, struct error *err)
{
    struct launch l = {.name = "gather_rows",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, gather_rows_kernel, from, rows, n_cols, to);
}

bool embed_launch(const struct queue *q, const struct wmat *tok_embd, const int32_t *tokens,
                  uint32_t n, float *x, float scale, const struct rope_tables *ropes,
                  const struct seq_row *rows, bool one_seq, const uint32_t *skip, struct error *err)
{
    // Not dependent: kernels that begin early read the position, and this one, the first of a step,
    // keeps them behind the sampler of the step before, which writes it.
    struct launch l = {.name = "embed",
                       .grid = dim3(n, 1 + ropes->n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .recorder = q->recorder};
    return with_type(tok_embd->type, [&](auto tag) {
        return launch_kernel(err, l, embed_kernel<decltype(tag)::value>, *tok_embd, tokens, x,
                             scale, *ropes, rows, one_seq, skip);
    });
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

bool gate_launch(const struct queue *q, enum activation act, const struct xielu *p, float *gate,
                 const float *up, size_t n_total, struct error *err)
{
    struct launch l = {.name = "gate",
                       .grid = dim3((unsigned)div_up(n_total, (size_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, gate_kernel, act, *p, gate, up, n_total);
}

bool gate_told_launch(const struct queue *q, enum activation act, const struct xielu *p,
                      float *gate, const float *told, uint32_t ld, uint32_t n, uint32_t width,
                      struct error *err)
{
    const size_t n_total = (size_t)n * width;
    struct launch l = {.name = "gate_told",
                       .grid = dim3((unsigned)div_up(n_total, (size_t)THREADS)),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, gate_told_kernel, act, *p, gate, told, ld, n_total, width);
}

bool tell_launch(const struct queue *q, const struct told *t, uint32_t n, struct error *err)
{
    struct launch l = {.name = "tell",
                       .grid = dim3(n, t->n_layer),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, tell_kernel, *t);
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
    return launch_kernel(err, l, finish_product_kernel, product, undo, bias, scale_or_one(scale),
                         add, y, n_cols);
}

bool add_normed_launch(const struct queue *q, const struct add_normed *a, uint32_t n,
                       uint32_t n_cols, struct error *err)
{
    struct launch l = {.name = "add_normed",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    struct add_normed m = *a;
    m.scale = scale_or_one(a->scale);
    return launch_kernel(err, l, add_normed_kernel, m, n_cols);
}

bool join_normed_launch(const struct queue *q, const struct join_normed *j, uint32_t n,
                        uint32_t n_cols, struct error *err)
{
    struct launch l = {.name = "join_normed",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    struct join_normed m = *j;
    m.add.scale = scale_or_one(j->add.scale);
    return launch_kernel(err, l, join_normed_kernel, m, n_cols);
}

bool norm_launch(const struct queue *q, enum norm_kind kind, const float *x, const float *w,
                 const float *b, float eps, float *y, uint32_t ld_y, uint32_t n, uint32_t n_cols,
                 const uint32_t *skip, struct error *err)
{
    struct launch l = {.name = "norm",
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, norm_kernel, kind, x, w, b, eps, y, ld_y, n_cols, skip);
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
    return (scale == 1.0f && softcap == 0.0f) ||
           launch_kernel(err, l, finish_logits_kernel, logits, n_total, scale, softcap, skip);
}
