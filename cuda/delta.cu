// Gated delta nets (struct delta in model/model.h; Yang et al. 2024), token by token, see scan.cuh.
#include "delta.cuh"
#include "scan.cuh"

enum { HEAD_WARPS = 4 }; // of a block: each has all channels of a head

// ---- kernels

static __device__ __forceinline__ struct lane_channels channels_of(const struct delta_rows &d,
                                                                   uint32_t head)
{
    const uint32_t n = d.delta.n_state, lane = threadIdx.x % WARP;
    return {head * n + lane, lane < n ? div_up(n - lane, (uint32_t)WARP) : 0,
            (2 * d.delta.n_key_head + d.delta.n_head) * n};
}

// A warp: what a head's channels of a row (queries, keys, then values) are after the convolution
// and its functions. keep(c, own) is told its inputs. False: the step is over.
template <int P, typename F>
static __device__ __forceinline__ bool mix_head(const struct delta_rows &d,
                                                const struct state_span &span, uint32_t row,
                                                uint32_t head, float (&y)[P / WARP], F keep)
{
    const uint32_t n = d.delta.n_state;
    const struct lane_channels c = channels_of(d, head);
    float own[P / WARP];
#pragma unroll
    for (int i = 0; i < P / WARP; i++)
        y[i] = 0.0f;
    uint32_t skip = 0;
    convolve(
        d.state, span, row, d.w, d.delta.n_conv, c, y, own,
        [&](uint32_t at, int i) { return d.in[(size_t)at * c.n_all + c.first + i * WARP]; },
        [&] { skip = d.skip ? *d.skip : 0; });
    if (skip)
        return false;
    keep(c, own);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < P / WARP; i++) {
        y[i] *= logistic(y[i]);
        squares = fmaf(y[i], y[i], squares);
    }
    if (head >= 2 * d.delta.n_key_head) // values
        return true;
    const float length = sqrtf(of_squares(warp_sum(squares)));
    const float scale = (head < d.delta.n_key_head ? 1.0f / sqrtf((float)n) : 1.0f) /
                        (length < d.eps ? d.eps : length); // a NaN stays one
#pragma unroll
    for (int i = 0; i < P / WARP; i++)
        y[i] *= scale;
    return true;
}

// A warp, of what a head gives: the factor that norms it.
template <int P>
static __device__ __forceinline__ float norm_of(const struct delta_rows &d,
                                                const float (&y)[P / WARP])
{
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < P / WARP; i++)
        squares = fmaf(y[i], y[i], squares);
    return 1.0f / sqrtf(of_squares(warp_sum(squares) / (float)d.delta.n_state + d.eps));
}

// Grid (ceil(rows / HEAD_WARPS), heads of queries, keys and values), a warp for a row. P: n_state,
// rounded up.
template <int P>
static __global__ void __launch_bounds__(HEAD_WARPS *WARP, P <= 128 ? 7 : 2)
    delta_conv_kernel(const struct delta_rows d, uint32_t n_row)
{
    griddep_launch_dependents();
    const uint32_t n = d.delta.n_state, head = blockIdx.y, lane = threadIdx.x % WARP;
    const uint32_t row = blockIdx.x * HEAD_WARPS + threadIdx.x / WARP;
    float y[P / WARP];
    if (row >= n_row) {
        griddep_wait();
        return;
    }
    const struct state_span span = span_of(d.state, row);
    if (!mix_head<P>(d, span, row, head, y,
                     [&](const struct lane_channels &c, const float(&own)[P / WARP]) {
                         keep_own(d.state, span, row, d.delta.n_conv, c, own);
                     }))
        return;
#pragma unroll
    for (int i = 0; i < P / WARP; i++)
        if (lane + i * WARP < n)
            d.mixed[((size_t)row * gridDim.y + head) * n + lane + i * WARP] = y[i];
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

static __device__ __forceinline__ void make_gates(const struct delta_rows &d, uint32_t head,
                                                  float2 raw, float &decay, float &gain)
{
    gain = logistic(raw.x);
    decay = expf(d.a[head] * softplus(raw.y + d.dt[head]));
}

// A block's columns of a head's matrix M, transposed, go through the rows of a span: of a token,
// with a decay g, news = beta (v - g M^T k), and M becomes g M + k news^T. What it gives is M^T q
// of that. GIVES: what the rows give is wanted.
template <int P, bool GIVES>
static __device__ __forceinline__ void
scan_head(const struct delta_rows &d, const struct state_span &span, stage<P> (&stages)[2])
{
    const uint32_t n = d.delta.n_state, n_key = d.delta.n_key_head, head = blockIdx.y;
    const struct head_inputs h = inputs_of(d, head);
    const struct scan_rows rows = {d.mixed + (n_key + h.key) * n,
                                   d.mixed + h.key * n,
                                   d.mixed + (2 * n_key + head) * n,
                                   (2 * n_key + d.delta.n_head) * n,
                                   n,
                                   n,
                                   blockIdx.x * scan_cols<P>()};
    constexpr int E = scan_fours<P>(), C = scan_lane_cols<P>();
    scan<P, GIVES>(
        d.state, span, delta_inputs(&d.delta) + (size_t)head * n * n, rows, d.skip, stages,
        [&](uint32_t row) { return load_gates(d, h, row); },
        [&](float2 raw, float &decay, float &gain) { make_gates(d, head, raw, decay, gain); },
        [&](const token_in<C, E> &in, float4(&m)[C][E]) { delta_token(in, m); },
        [&](uint32_t row, uint32_t col, float sum, float) {
            d.y[((size_t)row * d.delta.n_head + head) * n + col] = sum;
        });
}

// Grid (ceil(n_state / scan_cols), n_head, spans).
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1) delta_kernel(const struct delta_rows d)
{
    __shared__ __align__(16) stage<P> stages[2];
    griddep_launch_dependents();
    scan_head<P, true>(d, d.state.spans[blockIdx.z], stages);
}

// Grid (ceil(n_state / scan_cols) + 1, n_head, layers): the last blocks have the inputs.
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1)
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
    float y[P / WARP], gate[P / WARP];
#pragma unroll
    for (int i = 0; i < P / WARP; i++) {
        const uint32_t c = lane + i * WARP;
        y[i] = c < n ? d.y[at + c] : 0.0f;
        gate[i] = c < n ? d.gate[at + c] : 0.0f;
    }
    const float rms = norm_of<P>(d, y);
#pragma unroll
    for (int i = 0; i < P / WARP; i++) {
        const uint32_t c = lane + i * WARP;
        if (c < n)
            d.y[at + c] = y[i] * rms * d.norm[c] * (gate[i] * logistic(gate[i]));
    }
}

// What the warps of a step hand to each other.
template <int P> struct step_parts {
    float query[P], key[P], value[P], given[P];
    float decay, gain;
};

// The warps that compute: two columns to eight lanes.
template <int P>
static __device__ __forceinline__ void step_columns(const struct delta_rows &d,
                                                    const struct state_span &span, step_parts<P> &s)
{
    constexpr int E = scan_fours<P>(), C = scan_lane_cols<P>();
    const uint32_t n = d.delta.n_state, lane = threadIdx.x % SCAN_LANES;
    const uint32_t col = threadIdx.x / SCAN_LANES * C, n_col = col < n ? n - col : 0;
    const size_t at = delta_inputs(&d.delta) + ((size_t)blockIdx.x * n + col) * n;
    float4 m[C][E] = {};
    if (span.from != NO_STATE)
        load_columns(d.state.base + span.from * d.state.stride + at, n, n_col, m);
    griddep_wait();
    if (d.skip && *d.skip)
        return;
    for (uint32_t t = 0; t < span.n; t++) {
        meet();
        token_in<C, E> in;
#pragma unroll
        for (int e = 0; e < E; e++) {
            in.a[e] = reinterpret_cast<const float4 *>(s.key)[lane + SCAN_LANES * e];
            in.b[e] = reinterpret_cast<const float4 *>(s.query)[lane + SCAN_LANES * e];
        }
#pragma unroll
        for (int c = 0; c < C; c++)
            in.v[c] = s.value[col + c];
        in.decay = s.decay;
        in.gain = s.gain;
        delta_token(in, m);
        if (t + 1 == span.n)
            store_columns(d.state.base + span.to * d.state.stride + at, n, n_col, m);
        float sums[C];
        dot_columns(in.b, m, sums);
        const float sum = own_sum<C>(sums);
        if (lane < C)
            s.given[col + lane] = sum;
        meet();
    }
}

// The four warps beside them: three mix what the head reads, the last has the gates, and all finish
// what it gives.
template <int P>
static __device__ __forceinline__ void step_ends(const struct delta_rows &d,
                                                 const struct state_span &span, uint32_t warp,
                                                 step_parts<P> &s)
{
    const uint32_t n = d.delta.n_state, n_key = d.delta.n_key_head, head = blockIdx.x;
    const uint32_t lane = threadIdx.x % WARP, c = warp * WARP + lane;
    const struct head_inputs h = inputs_of(d, head);
    const uint32_t mixes = warp == 0 ? h.key : warp == 1 ? n_key + h.key : 2 * n_key + head;
    const bool first = head == (d.delta.in_order ? h.key * (d.delta.n_head / n_key) : h.key);
    const bool keeps = warp == 2 || first; // heads share queries and keys
    float *const mixed = warp == 0 ? s.query : warp == 1 ? s.key : s.value;
    const float norm = c < n ? d.norm[c] : 0.0f;
    for (uint32_t t = 0; t < span.n; t++) {
        const uint32_t row = span.row0 + t;
        const size_t out = ((size_t)row * d.delta.n_head + head) * n + c;
        float y[P / WARP], own[P / WARP];
        if (warp < 3) {
            const auto later = [&](const struct lane_channels &, const float(&x)[P / WARP]) {
#pragma unroll
                for (int i = 0; i < P / WARP; i++)
                    own[i] = x[i];
            };
            if (!mix_head<P>(d, span, row, mixes, y, later))
                return;
#pragma unroll
            for (int i = 0; i < P / WARP; i++) {
                const uint32_t k = lane + i * WARP;
                mixed[k] = y[i];
                if (d.mixed && keeps && k < n)
                    d.mixed[((size_t)row * (2 * n_key + d.delta.n_head) + mixes) * n + k] = y[i];
            }
        } else {
            if (lane == 0) { // they come from far away
                prefetch_l2(d.a + head);
                prefetch_l2(d.dt + head);
            }
            griddep_wait();
            const uint32_t skip = d.skip ? *d.skip : 0;
            const float2 raw = load_gates(d, h, row);
            if (skip)
                return;
            if (lane == 0)
                make_gates(d, head, raw, s.decay, s.gain);
        }
        const float gate = c < n ? d.gate[out] : 0.0f;
        meet();
        if (warp < 3 && keeps) // while the columns' warps compute
            keep_own(d.state, span, row, d.delta.n_conv, channels_of(d, mixes), own);
        meet();
        if (c >= P)
            continue;
#pragma unroll
        for (int i = 0; i < P / WARP; i++)
            y[i] = s.given[lane + i * WARP];
        const float rms = norm_of<P>(d, y);
        if (c < n)
            d.y[out] = s.given[c] * rms * norm * (gate * logistic(gate));
    }
}

// Grid (n_head, spans), step_threads. Everything that the three kernels do, of a head and the few
// rows of a span, with the same bits. d.mixed NULL: it is not wanted.
template <int P> static constexpr __host__ __device__ int step_threads()
{
    return P / scan_lane_cols<P>() * SCAN_LANES + 4 * WARP;
}

template <int P>
static __global__ void __launch_bounds__(step_threads<P>(), 1)
    delta_step_kernel(const struct delta_rows d)
{
    __shared__ __align__(16) step_parts<P> parts;
    constexpr uint32_t COLUMNS = step_threads<P>() / WARP - 4; // warps
    griddep_launch_dependents();
    const struct state_span span = d.state.spans[blockIdx.y];
    const uint32_t warp = threadIdx.x / WARP;
    if (span.n == 0)
        griddep_wait();
    else if (warp < COLUMNS)
        step_columns<P>(d, span, parts);
    else
        step_ends<P>(d, span, warp - COLUMNS, parts);
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

bool delta_can_step(const struct delta *d)
{
    return d->n_state <= 128;
}

bool delta_step_launch(const struct queue *q, const struct delta_rows *d, struct error *err)
{
    const dim3 grid(d->delta.n_head, d->state.n_span);
    auto go = [&](auto p) {
        return launch_kernel(err, launch_of(q, "delta_step", grid, step_threads<p()>()),
                             delta_step_kernel<p()>, *d);
    };
    const uint32_t n = d->delta.n_state;
    return n <= 32   ? go(std::integral_constant<int, 32>())
           : n <= 64 ? go(std::integral_constant<int, 64>())
                     : go(std::integral_constant<int, 128>());
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
