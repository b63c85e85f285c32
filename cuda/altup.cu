// Streams beside the residual one, and what is added beside attention: a block has a row.
#include "altup.h"

#include "activation.cuh"
#include "block.cuh"

enum { THREADS = 512, N_WARP = THREADS / WARP, MOST = 1 + MODEL_MAX_SIDE };

// What a thread keeps of each of N streams: as much as registers have room for.
template <int N> static constexpr int KEPT_OF = N <= 5 ? 4 : 2;

// ---- a thread's part of rows: elements threadIdx.x, threadIdx.x + BLOCK, ... of n

// The first KEPT of them, of each of N rows, in registers: all are under way at once.
template <int N, int KEPT, uint32_t BLOCK = THREADS> struct kept_rows {
    float v[N][KEPT];

    template <typename R> __device__ __forceinline__ void load(uint32_t n, R row)
    {
#pragma unroll
        for (int r = 0; r < N; r++)
#pragma unroll
            for (uint32_t k = 0; k < KEPT; k++)
                v[r][k] = k * BLOCK + threadIdx.x < n ? row(r)[k * BLOCK + threadIdx.x] : 0.0f;
    }
    // Element i of row r, the thread's k-th.
    template <typename R>
    __device__ __forceinline__ float at(R row, int r, uint32_t i, uint32_t k) const
    {
        return k < KEPT ? v[r][k] : row(r)[i];
    }
};

// use(i, k) for each of them; k = KEPT: those beyond.
template <int KEPT, uint32_t BLOCK = THREADS, typename F>
static __device__ __forceinline__ void each(uint32_t n, F use)
{
#pragma unroll
    for (uint32_t k = 0; k < KEPT; k++)
        if (k * BLOCK + threadIdx.x < n)
            use(k * BLOCK + threadIdx.x, k);
    for (uint32_t i = KEPT * BLOCK + threadIdx.x; i < n; i += BLOCK)
        use(i, KEPT);
}

static __device__ __forceinline__ float rms_factor(float sum, uint32_t n, float eps)
{
    return 1.0f / sqrtf(of_squares(sum / (float)n + eps));
}

// ---- kernels

static __device__ __forceinline__ float *stream(const struct altup &a, uint32_t i)
{
    return (i == 0 ? a.x : a.side + (i - 1) * a.stride) + (size_t)blockIdx.x * a.n_embd;
}

// Waits for what the kernel before has made, and asks for rows of it. False: the step is over.
template <int N, int KEPT, typename R>
static __device__ __forceinline__ bool arrive(const struct altup &a, kept_rows<N, KEPT> &rows,
                                              R row)
{
    griddep_wait();
    const uint32_t skip = a.skip ? *a.skip : 0; // asked for with them
    rows.load(a.n_embd, row);
    return !skip;
}

// What coefficients are made of, asked for before there are streams.
template <int N> struct modes {
    kept_rows<1 + N, KEPT_OF<N>> weights; // of the norm, then the router's
    float coef[N];

    static __device__ __forceinline__ const float *row(const struct altup &a,
                                                       const struct altup_weights &w, int r)
    {
        return r == 0 ? w.norm : w.router + (size_t)(r - 1) * a.n_embd;
    }
    __device__ __forceinline__ void load(const struct altup &a, const struct altup_weights &w,
                                         uint32_t n_to)
    {
        weights.load(a.n_embd, [&](int r) { return row(a, w, r); });
#pragma unroll
        for (int k = 0; k < N; k++)
            coef[k] = threadIdx.x < n_to ? w.coef[threadIdx.x * N + k] : 0.0f;
    }
    // to (n_to) = coef tanh(router normed / n_embd), normed the row of x.
    template <typename X>
    __device__ __forceinline__ void settle(const struct altup &a, const struct altup_weights &w,
                                           X x, uint32_t n_to, float *to)
    {
        __shared__ float part[1 + N][N_WARP];
        float sum[1 + N] = {};
        const auto rows = [&](int r) { return row(a, w, r); };
        each<KEPT_OF<N>>(a.n_embd, [&](uint32_t i, uint32_t k) {
            const float v = x(i, k), normed = v * weights.at(rows, 0, i, k);
            sum[N] = fmaf(v, v, sum[N]);
#pragma unroll
            for (int m = 0; m < N; m++)
                sum[m] = fmaf(normed, weights.at(rows, 1 + m, i, k), sum[m]);
        });
#pragma unroll
        for (int m = 0; m <= N; m++) {
            sum[m] = warp_sum(sum[m]);
            if (threadIdx.x % WARP == 0)
                part[m][threadIdx.x / WARP] = sum[m];
        }
        __syncthreads();
        if (threadIdx.x < n_to) {
#pragma unroll
            for (int m = 0; m <= N; m++) {
                sum[m] = 0.0f;
                for (int p = 0; p < N_WARP; p++)
                    sum[m] += part[m][p];
            }
            const float factor = rms_factor(sum[N], a.n_embd, a.eps) / (float)a.n_embd;
            float c = 0.0f;
#pragma unroll
            for (int m = 0; m < N; m++)
                c = fmaf(coef[m], tanhf(sum[m] * factor), c);
            to[threadIdx.x] = c;
        }
        __syncthreads();
    }
};

// Grid (n). N streams.
template <int N>
static __global__ void __launch_bounds__(THREADS, 1)
    predict_kernel(const struct altup a, const struct altup_weights w, const float *norm,
                   float *normed)
{
    __shared__ float c[N * N], part[N_WARP];
    const auto of_norm = [&](int) { return norm; };
    const auto streams = [&](int r) -> const float * { return stream(a, r); };
    modes<N> m;
    kept_rows<1, KEPT_OF<N>> weights;
    kept_rows<N, KEPT_OF<N>> old;
    griddep_launch_dependents();
    m.load(a, w, N * N);
    weights.load(norm ? a.n_embd : 0, of_norm);
    if (!arrive(a, old, streams))
        return;
    m.settle(
        a, w, [&](uint32_t i, uint32_t k) { return old.at(streams, 0, i, k); }, N * N, c);
    const size_t at = (size_t)blockIdx.x * a.n_embd;
    float sum = 0.0f;
    each<KEPT_OF<N>>(a.n_embd, [&](uint32_t i, uint32_t k) {
        float from[N], to[N];
#pragma unroll
        for (int r = 0; r < N; r++)
            from[r] = to[r] = old.at(streams, r, i, k);
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int o = 0; o < N; o++)
                to[r] = fmaf(c[r * N + o], from[o], to[r]);
            stream(a, r)[i] = to[r];
        }
        a.predicted[at + i] = to[0];
        sum = fmaf(to[0], to[0], sum);
        if (k < KEPT_OF<N>)
            old.v[0][k] = to[0];
    });
    if (!norm)
        return;
    const float factor = rms_factor(block_sum(sum, part), a.n_embd, a.eps);
    each<KEPT_OF<N>>(a.n_embd, [&](uint32_t i, uint32_t k) {
        normed[at + i] = old.at(streams, 0, i, k) * factor * weights.at(of_norm, 0, i, k);
    });
}

// Grid (n)
template <int N>
static __global__ void __launch_bounds__(THREADS, 1)
    correct_kernel(const struct altup a, const struct altup_weights w, const float *scale,
                   float *scaled)
{
    __shared__ float c[N];
    const size_t at = (size_t)blockIdx.x * a.n_embd;
    const auto of_scale = [&](int) { return scale; };
    const auto rows = [&](int r) -> const float * {
        return r < N ? stream(a, r) : a.predicted + at;
    };
    modes<N> m;
    kept_rows<1, KEPT_OF<N>> scales;
    kept_rows<N + 1, KEPT_OF<N>> old;
    griddep_launch_dependents();
    m.load(a, w, N);
    scales.load(scaled ? a.n_embd : 0, of_scale);
    if (!arrive(a, old, rows))
        return;
    m.settle(
        a, w, [&](uint32_t i, uint32_t k) { return old.at(rows, 0, i, k); }, N, c);
    each<KEPT_OF<N>>(a.n_embd, [&](uint32_t i, uint32_t k) {
        const float predicted = old.at(rows, N, i, k), more = old.at(rows, 0, i, k) - predicted;
        const float x = fmaf(1.0f + c[0], more, predicted);
#pragma unroll
        for (int r = 1; r < N; r++)
            stream(a, r)[i] = fmaf(1.0f + c[r], more, old.at(rows, r, i, k));
        stream(a, 0)[i] = x;
        if (scaled)
            scaled[at + i] = scales.at(of_scale, 0, i, k) * x;
    });
}

// Of a row that a kernel has: the sum of its squares.
template <int N, int KEPT, typename R>
static __device__ __forceinline__ float square_sum(const kept_rows<N, KEPT> &kept, R rows, int r,
                                                   uint32_t n, float *part)
{
    float sum = 0.0f;
    each<KEPT>(n, [&](uint32_t i, uint32_t k) {
        const float v = kept.at(rows, r, i, k);
        sum = fmaf(v, v, sum);
    });
    return block_sum(sum, part);
}

// Grid (n)
template <int N>
static __global__ void __launch_bounds__(THREADS, 1)
    altup_add_kernel(const struct altup a, const float *y, const float *norm)
{
    __shared__ float part[N_WARP];
    const auto of_norm = [&](int) { return norm; };
    const auto rows = [&](int r) { // y is where x would be
        return r == 0 ? y + (size_t)blockIdx.x * a.n_embd : stream(a, r);
    };
    kept_rows<1, KEPT_OF<N>> weights;
    kept_rows<N, KEPT_OF<N>> old;
    griddep_launch_dependents();
    weights.load(a.n_embd, of_norm);
    if (!arrive(a, old, rows))
        return;
    const float factor = rms_factor(square_sum(old, rows, 0, a.n_embd, part), a.n_embd, a.eps);
    each<KEPT_OF<N>>(a.n_embd, [&](uint32_t i, uint32_t k) {
        const float add = factor * weights.at(of_norm, 0, i, k) * old.at(rows, 0, i, k);
#pragma unroll
        for (int r = 1; r < N; r++)
            stream(a, r)[i] = old.at(rows, r, i, k) + add;
    });
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    altup_set_kernel(const struct altup a, uint32_t s, const float *y)
{
    __shared__ float part[2][N_WARP];
    const auto rows = [&](int r) {
        return r == 0 ? stream(a, 0) : y + (size_t)blockIdx.x * a.n_embd;
    };
    kept_rows<2, 4> old;
    griddep_launch_dependents();
    if (!arrive(a, old, rows))
        return;
    const float of_x = square_sum(old, rows, 0, a.n_embd, part[0]) / (float)a.n_embd;
    const float of_y = square_sum(old, rows, 1, a.n_embd, part[1]) / (float)a.n_embd;
    // (what is not a number stays so)
    const float times = sqrtf(of_x) / sqrtf(of_squares(of_y < 1e-5f ? 1e-5f : of_y));
    each<4>(a.n_embd,
            [&](uint32_t i, uint32_t k) { stream(a, s)[i] = times * old.at(rows, 1, i, k); });
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS) altup_mean_kernel(const struct altup a)
{
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS) {
        float sum = 0.0f;
        for (uint32_t i = 0; i <= a.n_side; i++)
            sum += stream(a, i)[d];
        stream(a, 0)[d] = sum / (float)(1 + a.n_side);
    }
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    laurel_add_kernel(const struct altup a, const float *n1, const float *y, const float *norm)
{
    __shared__ float part[N_WARP];
    const size_t at = (size_t)blockIdx.x * a.n_embd;
    const auto of_norm = [&](int) { return norm; };
    const auto rows = [&](int r) { return r == 0 ? y + at : r == 1 ? n1 + at : stream(a, 0); };
    kept_rows<1, 4> weights;
    kept_rows<3, 4> old;
    griddep_launch_dependents();
    weights.load(a.n_embd, of_norm);
    if (!arrive(a, old, rows))
        return;
    const float factor = rms_factor(square_sum(old, rows, 0, a.n_embd, part), a.n_embd, a.eps);
    each<4>(a.n_embd, [&](uint32_t i, uint32_t k) {
        const float add = fmaf(factor * weights.at(of_norm, 0, i, k), old.at(rows, 0, i, k),
                               old.at(rows, 1, i, k));
        a.x[at + i] = (old.at(rows, 2, i, k) + add) * 0.70710678118654752f;
    });
}

enum { CUT_THREADS = 1024, CUT_KEPT = 16 };

// Grid (n)
static __global__ void __launch_bounds__(CUT_THREADS)
    gate_cut_kernel(enum activation act, const struct xielu p, float times, float *gate,
                    const float *up, uint32_t n)
{
    __shared__ float sums[CUT_THREADS / WARP], squares[CUT_THREADS / WARP];
    const size_t at = (size_t)blockIdx.x * n;
    const auto rows = [&](int r) -> const float * { return (r == 0 ? gate : up) + at; };
    const auto all = [&](auto use) { each<CUT_KEPT, CUT_THREADS>(n, use); };
    kept_rows<1, CUT_KEPT, CUT_THREADS> v;
    griddep_launch_dependents();
    griddep_wait();
    v.load(n, rows);
    float sum = 0.0f;
    all([&](uint32_t i, uint32_t k) { sum += v.at(rows, 0, i, k); });
    const float mean = block_sum(sum, sums) / (float)n;
    sum = 0.0f;
    all([&](uint32_t i, uint32_t k) {
        const float far = v.at(rows, 0, i, k) - mean;
        sum = fmaf(far, far, sum);
    });
    const float least = fmaf(times, sqrtf(block_sum(sum, squares) / (float)n), mean);
    all([&](uint32_t i, uint32_t k) {
        float x = v.at(rows, 0, i, k);
        x = x <= least ? 0.0f : x - least; // (NaN stays)
        gate[at + i] = up ? gated(act, p, x, rows(1)[i]) : activate_any(act, p, x);
    });
}

// ---- launchers

static struct launch by_row(const struct queue *q, const char *name, uint32_t n)
{
    struct launch l = {.name = name,
                       .grid = dim3(n),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return l;
}

// launch(N) with the number of streams.
template <int N = 2, typename F> static bool with_streams(uint32_t n, F launch)
{
    if constexpr (N < MOST)
        if (n != N)
            return with_streams<N + 1>(n, launch);
    return launch(std::integral_constant<int, N>());
}

bool altup_predict_launch(const struct queue *q, const struct altup *a,
                          const struct altup_weights *w, const float *norm, float *normed,
                          uint32_t n, struct error *err)
{
    return with_streams(1 + a->n_side, [&](auto streams) {
        return launch_kernel(err, by_row(q, "altup_predict", n),
                             predict_kernel<decltype(streams)::value>, *a, *w, norm, normed);
    });
}

bool altup_correct_launch(const struct queue *q, const struct altup *a,
                          const struct altup_weights *w, const float *scale, float *scaled,
                          uint32_t n, struct error *err)
{
    return with_streams(1 + a->n_side, [&](auto streams) {
        return launch_kernel(err, by_row(q, "altup_correct", n),
                             correct_kernel<decltype(streams)::value>, *a, *w, scale, scaled);
    });
}

bool altup_add_launch(const struct queue *q, const struct altup *a, const float *y,
                      const float *norm, uint32_t n, struct error *err)
{
    return with_streams(1 + a->n_side, [&](auto streams) {
        return launch_kernel(err, by_row(q, "altup_add", n),
                             altup_add_kernel<decltype(streams)::value>, *a, y, norm);
    });
}

bool altup_set_launch(const struct queue *q, const struct altup *a, uint32_t i, const float *y,
                      uint32_t n, struct error *err)
{
    return launch_kernel(err, by_row(q, "altup_set", n), altup_set_kernel, *a, i, y);
}

bool altup_mean_launch(const struct queue *q, const struct altup *a, uint32_t n, struct error *err)
{
    return launch_kernel(err, by_row(q, "altup_mean", n), altup_mean_kernel, *a);
}

bool laurel_add_launch(const struct queue *q, const struct altup *a, const float *n1,
                       const float *y, const float *norm, uint32_t n, struct error *err)
{
    return launch_kernel(err, by_row(q, "laurel_add", n), laurel_add_kernel, *a, n1, y, norm);
}

bool gate_cut_launch(const struct queue *q, enum activation act, const struct xielu *p, float times,
                     float *gate, const float *up, uint32_t n, uint32_t n_ff, struct error *err)
{
    struct launch l = by_row(q, "gate_cut", n);
    l.block = dim3(CUT_THREADS);
    return launch_kernel(err, l, gate_cut_kernel, act, *p, times, gate, up, n_ff);
}
