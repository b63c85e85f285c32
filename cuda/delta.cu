// Gated delta nets (struct delta in model/model.h; Yang et al. 2024), token by token, see scan.cuh.
#include "scan.cuh"

enum { HEAD_WARPS = 4 }; // of a block: each has all channels of a head

// ---- kernels

// Grid (ceil(rows / HEAD_WARPS), heads of queries, keys and values), a warp for a row. P: n_state,
// rounded up.
template <int P>
static __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    delta_conv_kernel(const struct delta_rows d, uint32_t n_row)
{
    griddep_launch_dependents();
    const uint32_t n = d.delta.n_state, head = blockIdx.y, n_channel = gridDim.y * n;
    const uint32_t row = blockIdx.x * HEAD_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const struct state_span span = span_of(d.state, lesser(row, n_row - 1));
    griddep_wait();
    if (row >= n_row || (d.skip && *d.skip))
        return;
    constexpr int N = P / WARP, TAPS = 4; // channels of a lane; inputs that are asked for at a time
    const int t = (int)(row - span.row0), kept = (int)d.delta.n_conv - 1, end = (int)span.n - kept;
    const float *w = d.w + (size_t)head * n * d.delta.n_conv;
    float y[N] = {}, x[TAPS][N], squares = 0.0f;
    // The inputs of a head of row i of the span, or of before it; NULL: zeros.
    auto inputs = [&](int i) {
        return i >= 0                  ? d.in + (size_t)(span.row0 + i) * n_channel + head * n
               : span.from == NO_STATE ? NULL
                                       : d.state.base + span.from * d.state.stride +
                                             (size_t)(i + kept) * n_channel + head * n;
    };
    for (int tap0 = 0; tap0 <= kept; tap0 += TAPS) { // in the order of the taps
        float weight[TAPS][N];
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            const int tap = tap0 + k;
            const float *from = tap <= kept ? inputs(t + tap - kept) : NULL;
#pragma unroll
            for (int i = 0; i < N; i++) {
                const uint32_t c = lane + i * WARP;
                x[k][i] = from && c < n ? from[c] : 0.0f;
                weight[k][i] = tap <= kept && c < n ? w[c * d.delta.n_conv + tap] : 0.0f;
            }
        }
#pragma unroll
        for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int i = 0; i < N; i++)
                y[i] = fmaf(weight[k][i], x[k][i], y[i]);
    }
    float *to = d.state.base + span.to * d.state.stride + head * n;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t c = lane + i * WARP;
        if (t >= end && c < n)
            to[(size_t)(t - end) * n_channel + c] = inputs(t)[c];
        for (int k = 0; t == 0 && k < -end && c < n; k++) {
            const float *from = inputs(k + end);
            to[(size_t)k * n_channel + c] = from ? from[c] : 0.0f;
        }
        y[i] *= logistic(y[i]);
        squares = fmaf(y[i], y[i], squares);
    }
    float scale = 1.0f;
    if (head < 2 * d.delta.n_key_head) { // queries, then keys
        const float length = sqrtf(warp_sum(squares));
        scale = (head < d.delta.n_key_head ? 1.0f / sqrtf((float)n) : 1.0f) /
                (length < d.eps ? d.eps : length); // a NaN stays one
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + i * WARP < n)
            d.mixed[(size_t)row * n_channel + head * n + lane + i * WARP] = y[i] * scale;
}

// See scan_head: a lane's part of some columns.
template <int C, int E>
static __device__ __forceinline__ void delta_token(const token_in<C, E> &in, float4 (&m)[C][E])
{
    float of_key[C];
    dot_columns(in.a, m, of_key);
    add_lanes(of_key);
#pragma unroll
    for (int c = 0; c < C; c++) {
        const float news = in.gain * fmaf(-in.decay, of_key[c], in.v[c]);
#pragma unroll
        for (int e = 0; e < E; e++)
            m[c][e] = fma4(in.a[e], all4(news), times(in.decay, m[c][e]));
    }
}

// A block's columns of a head's matrix M, transposed, go through the rows of a span: of a token,
// with a decay g, news = beta (v - g M^T k), and M becomes g M + k news^T. What it gives is M^T q
// of that. GIVES: what the rows give is wanted.
template <int P, bool GIVES>
static __device__ __forceinline__ void
scan_head(const struct delta_rows &d, const struct state_span &span, stage<P> (&stages)[2])
{
    const uint32_t n = d.delta.n_state, n_key = d.delta.n_key_head, head = blockIdx.y;
    const uint32_t shared = d.delta.n_head / n_key;
    const uint32_t key = d.delta.in_order ? head / shared : head % n_key;
    const struct scan_rows rows = {d.mixed + (n_key + key) * n,
                                   d.mixed + key * n,
                                   d.mixed + (2 * n_key + head) * n,
                                   (2 * n_key + d.delta.n_head) * n,
                                   n,
                                   n,
                                   blockIdx.x * scan_cols<P>()};
    const uint32_t ld = d.paired ? 2 * d.delta.n_head : d.delta.n_head;
    const uint32_t beta = d.paired ? key * 2 * shared + head % shared : head;
    const uint32_t alpha = d.paired ? beta + shared : head;
    constexpr int E = scan_fours<P>(), C = scan_lane_cols<P>();
    scan<P, GIVES>(
        d.state, span, delta_inputs(&d.delta) + (size_t)head * n * n, rows, d.skip, stages,
        [&](uint32_t row) {
            return make_float2(d.beta[(size_t)row * ld + beta], d.alpha[(size_t)row * ld + alpha]);
        },
        [&](float2 raw, float &decay, float &gain) {
            gain = logistic(raw.x);
            decay = expf(d.a[head] * softplus(raw.y + d.dt[head]));
        },
        [&](const token_in<C, E> &in, float4(&m)[C][E]) { delta_token(in, m); },
        [&](uint32_t row, uint32_t col, float sum, float) {
            d.y[((size_t)row * d.delta.n_head + head) * n + col] = sum;
        });
}

// Grid (ceil(n_state / scan_cols), n_head, spans).
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, scan_blocks<P>())
    delta_kernel(const struct delta_rows d)
{
    __shared__ __align__(16) stage<P> stages[2];
    griddep_launch_dependents();
    scan_head<P, true>(d, d.state.spans[blockIdx.z], stages);
}

// Grid (ceil(n_state / scan_cols) + 1, n_head, layers): the last blocks have the inputs.
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, scan_blocks<P>())
    delta_advance_kernel(const struct delta_rows *layers)
{
    __shared__ __align__(16) stage<P> stages[2];
    griddep_launch_dependents();
    const struct delta_rows d = layers[blockIdx.z];
    const struct state_span span = d.state.spans[0];
    if (blockIdx.x + 1 < gridDim.x) {
        scan_head<P, false>(d, span, stages);
        return;
    }
    const uint32_t n_channel = (2 * d.delta.n_key_head + d.delta.n_head) * d.delta.n_state;
    griddep_wait();
    keep_inputs(d.state, span, d.delta.n_conv, n_channel, blockIdx.y * SCAN_THREADS + threadIdx.x,
                gridDim.y * SCAN_THREADS, [&](uint32_t row, uint32_t channel) {
                    return d.in[(size_t)row * n_channel + channel];
                });
}

// Grid (rows, ceil(n_head / HEAD_WARPS)), a warp for a head.
template <int P>
static __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    delta_gate_kernel(const struct delta_rows d)
{
    griddep_launch_dependents();
    const uint32_t n = d.delta.n_state, lane = threadIdx.x % WARP;
    const uint32_t head = blockIdx.y * HEAD_WARPS + threadIdx.x / WARP;
    const size_t at = ((size_t)blockIdx.x * d.delta.n_head + head) * n;
    griddep_wait();
    if (head >= d.delta.n_head || (d.skip && *d.skip))
        return;
    float y[P / WARP], gate[P / WARP], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < P / WARP; i++) {
        const uint32_t c = lane + i * WARP;
        y[i] = c < n ? d.y[at + c] : 0.0f;
        gate[i] = c < n ? d.gate[at + c] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < P / WARP; i++)
        squares = fmaf(y[i], y[i], squares);
    const float rms = 1.0f / sqrtf(warp_sum(squares) / (float)n + d.eps);
#pragma unroll
    for (int i = 0; i < P / WARP; i++) {
        const uint32_t c = lane + i * WARP;
        if (c < n)
            d.y[at + c] = y[i] * rms * d.norm[c] * (gate[i] * logistic(gate[i]));
    }
}

// ---- launchers

bool delta_conv_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err)
{
    const dim3 grid(div_up(n, (uint32_t)HEAD_WARPS), 2 * d->delta.n_key_head + d->delta.n_head);
    return with_state(d->delta.n_state, [&](auto p) {
        return launch_kernel(err, launch_of(q, "delta_conv", grid, HEAD_WARPS * WARP),
                             delta_conv_kernel<p()>, *d, n);
    });
}

bool delta_launch(const struct queue *q, const struct delta_rows *d, struct error *err)
{
    const uint32_t n = d->delta.n_state;
    return with_state(n, [&](auto p) {
        const dim3 grid(div_up(n, (uint32_t)scan_cols<p()>()), d->delta.n_head, d->state.n_span);
        return launch_kernel(err, launch_of(q, "delta", grid, SCAN_THREADS), delta_kernel<p()>, *d);
    });
}

bool delta_gate_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err)
{
    const dim3 grid(n, div_up(d->delta.n_head, (uint32_t)HEAD_WARPS));
    return with_state(d->delta.n_state, [&](auto p) {
        return launch_kernel(err, launch_of(q, "delta_gate", grid, HEAD_WARPS * WARP),
                             delta_gate_kernel<p()>, *d);
    });
}

bool delta_advance_launch(const struct queue *q, const struct delta_rows *layers,
                          const struct delta *shape, uint32_t n_layer, struct error *err)
{
    const uint32_t n = shape->n_state;
    return with_state(n, [&](auto p) {
        const dim3 grid(div_up(n, (uint32_t)scan_cols<p()>()) + 1, shape->n_head, n_layer);
        return launch_kernel(err, launch_of(q, "delta_advance", grid, SCAN_THREADS),
                             delta_advance_kernel<p()>, layers);
    });
}
