// Streams beside the residual one, and what is added beside attention: a block has a row.
#include "altup.h"

#include "activation.cuh"
#include "block.cuh"

enum { THREADS = 256, N_WARP = THREADS / WARP, MOST = 1 + MODEL_MAX_SIDE };

// ---- kernels

static __device__ __forceinline__ float *stream(const struct altup &a, uint32_t i)
{
    return (i == 0 ? a.x : a.side + (i - 1) * a.stride) + (size_t)blockIdx.x * a.n_embd;
}

static __device__ __forceinline__ float rms_factor(float sum, uint32_t n, float eps)
{
    return 1.0f / sqrtf(sum / (float)n + eps);
}

// to (n_to) = coef tanh(router normed / n_embd), normed the row of x; when it returns all threads
// have read x.
template <int N>
static __device__ __forceinline__ void
coefficients(const struct altup &a, const struct altup_weights &w, uint32_t n_to, float *to)
{
    __shared__ float part[1 + N][N_WARP];
    const float *x = stream(a, 0);
    float sum[1 + N] = {};
    for (uint32_t i = threadIdx.x; i < a.n_embd; i += THREADS) {
        const float v = x[i], normed = v * w.norm[i];
        sum[N] = fmaf(v, v, sum[N]);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] = fmaf(normed, w.router[(size_t)k * a.n_embd + i], sum[k]);
    }
#pragma unroll
    for (int k = 0; k <= N; k++) {
        sum[k] = warp_sum(sum[k]);
        if (threadIdx.x % WARP == 0)
            part[k][threadIdx.x / WARP] = sum[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k <= N; k++) {
        sum[k] = 0.0f;
        for (int p = 0; p < N_WARP; p++)
            sum[k] += part[k][p];
    }
    const float factor = rms_factor(sum[N], a.n_embd, a.eps) / (float)a.n_embd;
    if (threadIdx.x < n_to) {
        float c = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++)
            c = fmaf(w.coef[threadIdx.x * N + k], tanhf(sum[k] * factor), c);
        to[threadIdx.x] = c;
    }
    __syncthreads();
}

// Grid (n). N streams.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    predict_kernel(const struct altup a, const struct altup_weights w)
{
    __shared__ float c[N * N];
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    coefficients<N>(a, w, N * N, c);
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS) {
        float old[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            old[k] = stream(a, k)[d];
#pragma unroll
        for (int i = 0; i < N; i++) {
            float v = old[i];
#pragma unroll
            for (int k = 0; k < N; k++)
                v = fmaf(c[i * N + k], old[k], v);
            stream(a, i)[d] = v;
            if (i == 0)
                a.predicted[(size_t)blockIdx.x * a.n_embd + d] = v;
        }
    }
}

// Grid (n)
template <int N>
static __global__ void __launch_bounds__(THREADS)
    correct_kernel(const struct altup a, const struct altup_weights w, const float *scale,
                   float *scaled)
{
    __shared__ float c[N];
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    coefficients<N>(a, w, N, c);
    const size_t at = (size_t)blockIdx.x * a.n_embd;
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS) {
        const float predicted = a.predicted[at + d], more = stream(a, 0)[d] - predicted;
        const float x = fmaf(1.0f + c[0], more, predicted);
        stream(a, 0)[d] = x;
        if (scaled)
            scaled[at + d] = scale[d] * x;
#pragma unroll
        for (int i = 1; i < N; i++)
            stream(a, i)[d] = fmaf(1.0f + c[i], more, stream(a, i)[d]);
    }
}

static __device__ __forceinline__ float square_sum(const float *row, uint32_t n, float *part)
{
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        sum = fmaf(row[i], row[i], sum);
    return block_sum(sum, part);
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    altup_add_kernel(const struct altup a, const float *y, const float *norm)
{
    __shared__ float part[N_WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    y += (size_t)blockIdx.x * a.n_embd;
    const float factor = rms_factor(square_sum(y, a.n_embd, part), a.n_embd, a.eps);
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS) {
        const float add = factor * norm[d] * y[d];
        for (uint32_t i = 1; i <= a.n_side; i++)
            stream(a, i)[d] += add;
    }
}

// Grid (n)
static __global__ void __launch_bounds__(THREADS)
    altup_set_kernel(const struct altup a, uint32_t i, const float *y)
{
    __shared__ float x_part[N_WARP], part[N_WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    y += (size_t)blockIdx.x * a.n_embd;
    const float of_x = square_sum(stream(a, 0), a.n_embd, x_part) / (float)a.n_embd;
    const float of_y = square_sum(y, a.n_embd, part) / (float)a.n_embd;
    // (what is not a number stays so)
    const float times = sqrtf(of_x) / sqrtf(of_y < 1e-5f ? 1e-5f : of_y);
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS)
        stream(a, i)[d] = times * y[d];
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
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    const size_t at = (size_t)blockIdx.x * a.n_embd;
    const float factor = rms_factor(square_sum(y + at, a.n_embd, part), a.n_embd, a.eps);
    for (uint32_t d = threadIdx.x; d < a.n_embd; d += THREADS)
        a.x[at + d] =
            (a.x[at + d] + fmaf(factor * norm[d], y[at + d], n1[at + d])) * 0.70710678118654752f;
}

enum { CUT_THREADS = 512 };

// Grid (n)
static __global__ void __launch_bounds__(CUT_THREADS)
    gate_cut_kernel(enum activation act, const struct xielu p, float times, float *gate,
                    const float *up, uint32_t n)
{
    __shared__ float sums[CUT_THREADS / WARP], squares[CUT_THREADS / WARP];
    griddep_launch_dependents();
    griddep_wait();
    gate += (size_t)blockIdx.x * n;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += CUT_THREADS)
        sum += gate[i];
    const float mean = block_sum(sum, sums) / (float)n;
    sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += CUT_THREADS)
        sum = fmaf(gate[i] - mean, gate[i] - mean, sum);
    const float least = fmaf(times, sqrtf(block_sum(sum, squares) / (float)n), mean);
    for (uint32_t i = threadIdx.x; i < n; i += CUT_THREADS) {
        const float v = gate[i] <= least ? 0.0f : gate[i] - least; // (NaN stays)
        gate[i] = up ? gated(act, p, v, up[(size_t)blockIdx.x * n + i]) : activate_any(act, p, v);
    }
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
                          const struct altup_weights *w, uint32_t n, struct error *err)
{
    return with_streams(1 + a->n_side, [&](auto streams) {
        return launch_kernel(err, by_row(q, "altup_predict", n),
                             predict_kernel<decltype(streams)::value>, *a, *w);
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
    return launch_kernel(err, by_row(q, "altup_add", n), altup_add_kernel, *a, y, norm);
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
