// Gated delta nets (struct delta in model/model.h; Yang et al. 2024), token by token: a head's
// matrix stays in registers from the first row of a sequence to the last, and what is done for a
// token does not depend on which rows are beside it. So a prompt leaves the same bits however it
// was cut.
#include "block.cuh"
#include "states.cuh"

// ---- kernels

// Grid (rows, heads of queries, keys and values), a thread for each number of a head.
static __global__ void __launch_bounds__(DELTA_MAX_STATE)
    delta_conv_kernel(const struct delta_rows d)
{
    __shared__ float part[DELTA_MAX_STATE / WARP];
    griddep_launch_dependents();
    const uint32_t n = d.delta.n_state, head = blockIdx.y, row = blockIdx.x;
    const uint32_t n_channel = gridDim.y * n, channel = head * n + threadIdx.x;
    const struct state_span span = span_of(d.state, row);
    const bool mine = threadIdx.x < n;
    griddep_wait();
    if (d.skip && *d.skip)
        return;
    float y = 0.0f;
    if (mine) {
        y = convolve(d.state, span, row, d.w + (size_t)channel * d.delta.n_conv, d.delta.n_conv,
                     channel, n_channel, 0.0f,
                     [&](uint32_t i) { return d.in[(size_t)i * n_channel + channel]; });
        y *= logistic(y);
    }
    if (head < 2 * d.delta.n_key_head) { // queries, then keys
        const float length = sqrtf(block_sum(y * y, part));
        const float scale = head < d.delta.n_key_head ? 1.0f / sqrtf((float)n) : 1.0f;
        y *= scale / (length < d.eps ? d.eps : length); // a NaN stays one
    }
    if (mine)
        d.mixed[(size_t)row * n_channel + channel] = y;
}

// What one stage has of its tokens. P: n_state, rounded up.
template <int P> struct stage {
    float q[SCAN_STAGE][P], k[SCAN_STAGE][P], v[SCAN_STAGE][SCAN_COLS];
    float decay[SCAN_STAGE], beta[SCAN_STAGE];
};

template <int P>
static __device__ __forceinline__ void load_stage(const struct delta_rows &d, uint32_t head,
                                                  uint32_t row0, uint32_t n_row, stage<P> &s)
{
    const uint32_t n = d.delta.n_state, n_key = d.delta.n_key_head;
    const uint32_t shared = d.delta.n_head / n_key;
    const uint32_t key = d.delta.in_order ? head / shared : head % n_key;
    const uint32_t n_channel = (2 * n_key + d.delta.n_head) * n;
    for (uint32_t i = threadIdx.x; i < n_row * P; i += SCAN_THREADS) {
        const uint32_t t = i / P, c = i % P;
        const float *x = d.mixed + (size_t)(row0 + t) * n_channel;
        s.q[t][c] = c < n ? x[key * n + c] : 0.0f;
        s.k[t][c] = c < n ? x[(n_key + key) * n + c] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n_row * SCAN_COLS; i += SCAN_THREADS) {
        const uint32_t t = i / SCAN_COLS, c = blockIdx.x * SCAN_COLS + i % SCAN_COLS;
        const float *x = d.mixed + (size_t)(row0 + t) * n_channel + (2 * n_key + head) * n;
        s.v[t][i % SCAN_COLS] = c < n ? x[c] : 0.0f;
    }
    if (threadIdx.x < n_row) {
        const size_t row = row0 + threadIdx.x, ld = d.paired ? 2 * d.delta.n_head : d.delta.n_head;
        const uint32_t beta = d.paired ? key * 2 * shared + head % shared : head;
        const uint32_t alpha = d.paired ? beta + shared : head;
        s.beta[threadIdx.x] = logistic(d.beta[row * ld + beta]);
        s.decay[threadIdx.x] = expf(d.a[head] * softplus(d.alpha[row * ld + alpha] + d.dt[head]));
    }
}

// A head's matrix goes through the rows of a span. Four lanes have a column of it, all keys of one
// value: fours of them by turns. GIVES: what the rows give is wanted, too.
template <int P, bool GIVES>
static __device__ __forceinline__ void scan(const struct delta_rows &d,
                                            const struct state_span &span, stage<P> &s)
{
    constexpr int E = P / 4 / SCAN_LANES; // fours of a lane
    const uint32_t n = d.delta.n_state, head = blockIdx.y;
    const uint32_t lane = threadIdx.x % SCAN_LANES, in_block = threadIdx.x / SCAN_LANES;
    const uint32_t c = blockIdx.x * SCAN_COLS + in_block;
    const size_t at = delta_inputs(&d.delta) + ((size_t)head * n + c) * n;
    float4 m[E] = {};
    if (c < n && span.from != NO_STATE)
        load_column(d.state.base + span.from * d.state.stride + at, lane, n, m);
    griddep_wait();
    if (span.n == 0 || (d.skip && *d.skip))
        return;
    for (uint32_t t0 = 0; t0 < span.n; t0 += SCAN_STAGE) {
        const uint32_t n_row = lesser(span.n - t0, (uint32_t)SCAN_STAGE);
        __syncthreads();
        load_stage<P>(d, head, span.row0 + t0, n_row, s);
        __syncthreads();
        for (uint32_t t = 0; t < n_row; t++) {
            const float4 *k = reinterpret_cast<const float4 *>(s.k[t]) + lane;
            const float4 *q = reinterpret_cast<const float4 *>(s.q[t]) + lane;
            float4 sum = {};
#pragma unroll
            for (int e = 0; e < E; e++) {
                m[e] = times(s.decay[t], m[e]);
                sum = fma4(k[SCAN_LANES * e], m[e], sum); // M^T k
            }
            const float news = s.beta[t] * (s.v[t][in_block] - of_column(sum));
            sum = {};
#pragma unroll
            for (int e = 0; e < E; e++) {
                m[e] = fma4(k[SCAN_LANES * e], all4(news), m[e]);
                if (GIVES)
                    sum = fma4(q[SCAN_LANES * e], m[e], sum);
            }
            if (!GIVES)
                continue;
            const float y = of_column(sum);
            if (lane == 0 && c < n)
                d.y[((size_t)(span.row0 + t0 + t) * d.delta.n_head + head) * n + c] = y;
        }
    }
    if (c < n)
        store_column(d.state.base + span.to * d.state.stride + at, lane, n, m);
}

// Grid (ceil(n_state / SCAN_COLS), n_head, spans).
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS) delta_kernel(const struct delta_rows d)
{
    __shared__ __align__(16) stage<P> s;
    griddep_launch_dependents();
    scan<P, true>(d, d.state.spans[blockIdx.z], s);
}

// Grid (ceil(n_state / SCAN_COLS) + 1, n_head, layers): the last blocks have the inputs. (A block
// is enough for a multiprocessor, says 1: else the compiler keeps room for more, and spills.)
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1)
    delta_advance_kernel(const struct delta_rows *layers)
{
    __shared__ __align__(16) stage<P> s;
    griddep_launch_dependents();
    const struct delta_rows d = layers[blockIdx.z];
    const struct state_span span = d.state.spans[0];
    if (blockIdx.x + 1 < gridDim.x) {
        scan<P, false>(d, span, s);
        return;
    }
    const uint32_t n_channel = (2 * d.delta.n_key_head + d.delta.n_head) * d.delta.n_state;
    griddep_wait();
    keep_inputs(d.state, span, d.delta.n_conv, n_channel, blockIdx.y * SCAN_THREADS + threadIdx.x,
                gridDim.y * SCAN_THREADS, [&](uint32_t row, uint32_t channel) {
                    return d.in[(size_t)row * n_channel + channel];
                });
}

// Grid (rows, n_head), a thread for each number of a head.
static __global__ void __launch_bounds__(DELTA_MAX_STATE)
    delta_gate_kernel(const struct delta_rows d)
{
    __shared__ float part[DELTA_MAX_STATE / WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (d.skip && *d.skip)
        return;
    const uint32_t n = d.delta.n_state, i = threadIdx.x;
    const size_t at = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * n + i;
    const float y = i < n ? d.y[at] : 0.0f;
    const float rms = 1.0f / sqrtf(block_sum(y * y, part) / (float)n + d.eps);
    if (i < n)
        d.y[at] = y * rms * d.norm[i] * (d.gate[at] * logistic(d.gate[at]));
}

// ---- launchers

static uint32_t threads_of(const struct delta_rows *d)
{
    return div_up(d->delta.n_state, (uint32_t)WARP) * WARP;
}

bool delta_conv_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err)
{
    const dim3 grid(n, 2 * d->delta.n_key_head + d->delta.n_head);
    return launch_kernel(err, launch_of(q, "delta_conv", grid, threads_of(d)), delta_conv_kernel,
                         *d);
}

bool delta_launch(const struct queue *q, const struct delta_rows *d, struct error *err)
{
    const uint32_t n = d->delta.n_state;
    const dim3 grid(div_up(n, (uint32_t)SCAN_COLS), d->delta.n_head, d->state.n_span);
    const struct launch l = launch_of(q, "delta", grid, SCAN_THREADS);
    return n <= 32    ? launch_kernel(err, l, delta_kernel<32>, *d)
           : n <= 64  ? launch_kernel(err, l, delta_kernel<64>, *d)
           : n <= 128 ? launch_kernel(err, l, delta_kernel<128>, *d)
                      : launch_kernel(err, l, delta_kernel<256>, *d);
}

bool delta_gate_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err)
{
    return launch_kernel(err, launch_of(q, "delta_gate", dim3(n, d->delta.n_head), threads_of(d)),
                         delta_gate_kernel, *d);
}

bool delta_advance_launch(const struct queue *q, const struct delta_rows *layers,
                          const struct delta *shape, uint32_t n_layer, struct error *err)
{
    const uint32_t n = shape->n_state;
    const dim3 grid(div_up(n, (uint32_t)SCAN_COLS) + 1, shape->n_head, n_layer);
    const struct launch l = launch_of(q, "delta_advance", grid, SCAN_THREADS);
    return n <= 32    ? launch_kernel(err, l, delta_advance_kernel<32>, layers)
           : n <= 64  ? launch_kernel(err, l, delta_advance_kernel<64>, layers)
           : n <= 128 ? launch_kernel(err, l, delta_advance_kernel<128>, layers)
                      : launch_kernel(err, l, delta_advance_kernel<256>, layers);
}
