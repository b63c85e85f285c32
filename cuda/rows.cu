// What happens to whole rows of activations between the matrices: embedding, norms that no product
// knows, what becomes of products that no kernel of their own finishes.
#include "activation.cuh"
#include "added.cuh"
#include "block.cuh"
#include "kernels.h"
#include "quant.cuh"

enum { THREADS = 256, N_WARP = THREADS / WARP };

// ---- kernels

// Grid (n, 1 + tables of rotations): the embedding's row, or the rotations of its position.
template <uint32_t TYPE>
static __global__ void __launch_bounds__(THREADS)
    embed_kernel(const struct wmat w, const int32_t *tokens, float *x, float scale,
                 const float *positions, const struct rope_tables ropes, const struct seq_row *rows,
                 bool one_seq, const uint32_t *skip)
{
    constexpr int N = chunk_elems(TYPE);
    griddep_launch_dependents();
    if (skip && *skip)
        return;
    const uint32_t i = blockIdx.x, position = one_seq ? rows->pos + i : rows[i].pos;
    if (blockIdx.y > 0) {
        const struct rope_table &t = ropes.t[blockIdx.y - 1];
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
    const float *own = positions ? positions + (size_t)position * w.n_cols : NULL;
    float *out = x + (size_t)i * w.n_cols;
    const struct tile_row row = tile_begin<TYPE>(w, token / TILE_ROWS, token % TILE_ROWS);
    for (uint32_t c = threadIdx.x; c < w.n_chunk; c += THREADS) {
        chunk<TYPE> k;
        float v[N];
        load_chunk<TYPE>(row, c, k);
        dequantize_chunk<TYPE>(k, v);
        for (int e = 0; e < N; e++) {
            v[e] *= scale;
            if (own && c * N + e < w.n_cols)
                v[e] += own[c * N + e];
        }
        if (w.n_cols % N == 0) {
            for (int e = 0; e < N; e += 4)
                *reinterpret_cast<float4 *>(out + c * N + e) =
                    make_float4(v[e], v[e + 1], v[e + 2], v[e + 3]);
            continue;
        }
        for (int e = 0; e < N; e++)
            if (c * N + e < w.n_cols)
                out[c * N + e] = v[e];
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

// Grid (ceil(most n / THREADS), 3)
static __global__ void __launch_bounds__(THREADS) clamp_kernel(const struct clamp_rows c)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float *x = c.x[blockIdx.y];
    griddep_launch_dependents();
    griddep_wait();
    if (i < c.n[blockIdx.y]) // what is not a number stays so
        x[i] = x[i] > c.most ? c.most : x[i] < -c.most ? -c.most : x[i];
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
    const float factor = t.scale / sqrtf(of_squares(block_sum(sum, part) / (float)t.width + t.eps));
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

enum { MOST_KEPT = 24, MOST_KEPT_TO_JOIN = 12 };

// Grid (n): of rows that no reader makes (added.cuh).
static __global__ void __launch_bounds__(THREADS)
    add_normed_kernel(const struct add_normed m, uint32_t n_cols)
{
    __shared__ float part[N_WARP];
    griddep_launch_dependents();
    const float times = m.times ? *m.times : 1.0f;
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    const size_t at = (size_t)blockIdx.x * n_cols;
    const float *const from = (m.from ? m.from : m.x) + at;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
        sum = fmaf(m.y[at + i], m.y[at + i], sum);
    const float factor = m.scale / sqrtf(of_squares(block_sum(sum, part) / (float)n_cols + m.eps));
    for (uint32_t i = threadIdx.x; i < n_cols; i += THREADS)
        m.x[at + i] = added(from[i], factor, m.norm[i] * m.y[at + i], times);
}

// Grid (n). KEPT, here and below: see with_kept.
template <uint32_t KEPT>
static __global__ void __launch_bounds__(THREADS)
    join_normed_kernel(const __grid_constant__ struct join_normed j, uint32_t n_cols)
{
    __shared__ float part[3][N_WARP];
    kept_row<KEPT> a, b, x, a_norm, b_norm, norm;
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
    const float *const from = (m.from ? m.from : m.x) + at;
    x.load(from, n_cols);
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
    const float a_factor =
        1.0f / sqrtf(of_squares(block_sum(a_sum, part[0]) / (float)n_cols + m.eps));
    const float b_factor =
        1.0f / sqrtf(of_squares(block_sum(b_sum, part[1]) / (float)n_cols + m.eps));
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
    const float factor =
        m.scale / sqrtf(of_squares(block_sum(sum, part[2]) / (float)n_cols + m.eps));
    a.each(n_cols, [&](uint32_t k, uint32_t i, float v) {
        m.x[at + i] = added(x.v[k], factor, norm.v[k] * v, times);
    });
    for (uint32_t i = a.rest(); i < n_cols; i += THREADS)
        m.x[at + i] = added(from[i], factor, m.norm[i] * joined_rest(i), times);
}

// Grid (n)
template <uint32_t KEPT>
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
    const float factor = 1.0f / sqrtf(of_squares(block_sum(sum, squares) / (float)n_cols + eps));
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

static constexpr uint32_t lesser_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

// launch(KEPT): what a thread keeps of rows of n_cols, and little more than that, since what it
// need not do takes time, too. It changes no bit.
template <uint32_t MOST, typename F> static bool with_kept(uint32_t n_cols, F launch)
{
    if (n_cols <= 4 * THREADS)
        return launch(std::integral_constant<uint32_t, 4>());
    if (n_cols <= 8 * THREADS)
        return launch(std::integral_constant<uint32_t, 8>());
    if (n_cols <= 12 * THREADS)
        return launch(std::integral_constant<uint32_t, 12>());
    if (n_cols <= lesser_of(16u, MOST) * THREADS)
        return launch(std::integral_constant<uint32_t, lesser_of(16u, MOST)>());
    return launch(std::integral_constant<uint32_t, MOST>());
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
                  uint32_t n, float *x, float scale, const float *positions,
                  const struct rope_tables *ropes, const struct seq_row *rows, bool one_seq,
                  const uint32_t *skip, struct error *err)
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
                             scale, positions, *ropes, rows, one_seq, skip);
    });
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

bool clamp_launch(const struct queue *q, const struct clamp_rows *c, struct error *err)
{
    size_t most = c->n[0] > c->n[1] ? c->n[0] : c->n[1];
    most = most > c->n[2] ? most : c->n[2];
    struct launch l = {.name = "clamp",
                       .grid = dim3((unsigned)div_up(most, (size_t)THREADS), 3),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, clamp_kernel, *c);
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
    if (add_is_made_by_readers(n_cols)) // their way, whoever adds it up
        return act_added_launch(q, a, n, n_cols, NULL, 0.0f, NULL, err);
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
    return with_kept<MOST_KEPT_TO_JOIN>(n_cols, [&](auto kept) {
        return launch_kernel(err, l, join_normed_kernel<kept()>, m, n_cols);
    });
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
    return with_kept<MOST_KEPT>(n_cols, [&](auto kept) {
        return launch_kernel(err, l, norm_kernel<kept()>, kind, x, w, b, eps, y, ld_y, n_cols,
                             skip);
    });
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
