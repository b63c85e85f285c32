// Selective state spaces (struct ssm in model/model.h; Dao and Gu 2024, Mamba-2), token by token as
// delta nets are: a head's state stays in registers from the first row of a sequence to the last,
// so a prompt leaves the same bits however it was cut.
#include "block.cuh"
#include "states.cuh"

enum {
    CONV_THREADS = 256,
    GATE_THREADS = 512,
};

// ---- kernels

// Grid (rows, ceil(channels / CONV_THREADS)).
static __global__ void __launch_bounds__(CONV_THREADS) ssm_conv_kernel(const struct ssm_rows s)
{
    griddep_launch_dependents();
    const uint32_t c = blockIdx.y * CONV_THREADS + threadIdx.x, n = ssm_channels(&s.ssm);
    const uint32_t row = blockIdx.x, n_taps = s.ssm.n_conv;
    const struct state_span span = span_of(s.state, row);
    griddep_wait();
    if (c >= n || (s.skip && *s.skip))
        return;
    const float y = convolve(
        s.state, span, row, s.w + (size_t)c * n_taps, n_taps, c, n, s.bias ? s.bias[c] : 0.0f,
        [&](uint32_t i) { return s.in[(size_t)i * s.ld + s.ssm.n_inner + c]; });
    s.mixed[(size_t)row * n + c] = y * logistic(y);
}

// What one stage has of its tokens. P: n_state, rounded up.
template <int P> struct ssm_stage {
    float b[SCAN_STAGE][P], c[SCAN_STAGE][P], x[SCAN_STAGE][SCAN_COLS];
    float decay[SCAN_STAGE], step[SCAN_STAGE];
};

template <int P>
static __device__ __forceinline__ void load_stage(const struct ssm_rows &s, uint32_t head,
                                                  uint32_t row0, uint32_t n_row, ssm_stage<P> &to)
{
    const struct ssm &d = s.ssm;
    const uint32_t n = d.n_state, width = d.n_inner / d.n_head, n_channel = ssm_channels(&d);
    const uint32_t group = head / (d.n_head / d.n_group);
    for (uint32_t i = threadIdx.x; i < n_row * P; i += SCAN_THREADS) {
        const uint32_t t = i / P, k = i % P;
        const float *b = s.mixed + (size_t)(row0 + t) * n_channel + d.n_inner + group * n;
        to.b[t][k] = k < n ? b[k] : 0.0f;
        to.c[t][k] = k < n ? b[d.n_group * n + k] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n_row * SCAN_COLS; i += SCAN_THREADS) {
        const uint32_t t = i / SCAN_COLS, k = blockIdx.x * SCAN_COLS + i % SCAN_COLS;
        const float *x = s.mixed + (size_t)(row0 + t) * n_channel + head * width;
        to.x[t][i % SCAN_COLS] = k < width ? x[k] : 0.0f;
    }
    if (threadIdx.x < n_row) {
        const float *in = s.in + (size_t)(row0 + threadIdx.x) * s.ld;
        const float step = softplus(in[s.ld - d.n_head + head] + s.dt[head]);
        to.step[threadIdx.x] = step;
        to.decay[threadIdx.x] = expf(step * s.a[head]);
    }
}

// A head's state goes through the rows of a span. Four lanes have what it keeps of one channel:
// fours of it by turns. GIVES: what the rows give is wanted, too.
template <int P, bool GIVES>
static __device__ __forceinline__ void scan(const struct ssm_rows &s, const struct state_span &span,
                                            ssm_stage<P> &stage)
{
    constexpr int E = P / 4 / SCAN_LANES; // fours of a lane
    const uint32_t n = s.ssm.n_state, head = blockIdx.y, width = s.ssm.n_inner / s.ssm.n_head;
    const uint32_t lane = threadIdx.x % SCAN_LANES, in_block = threadIdx.x / SCAN_LANES;
    const uint32_t k = blockIdx.x * SCAN_COLS + in_block;
    const size_t at = ssm_inputs(&s.ssm) + ((size_t)head * width + k) * n;
    const float direct = s.d[head];
    float4 m[E] = {};
    if (k < width && span.from != NO_STATE)
        load_column(s.state.base + span.from * s.state.stride + at, lane, n, m);
    griddep_wait();
    if (span.n == 0 || (s.skip && *s.skip))
        return;
    for (uint32_t t0 = 0; t0 < span.n; t0 += SCAN_STAGE) {
        const uint32_t n_row = lesser(span.n - t0, (uint32_t)SCAN_STAGE);
        __syncthreads();
        load_stage<P>(s, head, span.row0 + t0, n_row, stage);
        __syncthreads();
        for (uint32_t t = 0; t < n_row; t++) {
            const float4 *b = reinterpret_cast<const float4 *>(stage.b[t]) + lane;
            const float4 *c = reinterpret_cast<const float4 *>(stage.c[t]) + lane;
            const float x = stage.x[t][in_block];
            const float4 news = all4(stage.step[t] * x);
            float4 sum = {};
#pragma unroll
            for (int e = 0; e < E; e++) {
                m[e] = fma4(b[SCAN_LANES * e], news, times(stage.decay[t], m[e]));
                if (GIVES)
                    sum = fma4(c[SCAN_LANES * e], m[e], sum); // S^T c
            }
            if (!GIVES)
                continue;
            const float y = fmaf(direct, x, of_column(sum));
            if (lane == 0 && k < width)
                s.y[(size_t)(span.row0 + t0 + t) * s.ssm.n_inner + head * width + k] = y;
        }
    }
    if (k < width)
        store_column(s.state.base + span.to * s.state.stride + at, lane, n, m);
}

// Grid (ceil(width of a head / SCAN_COLS), n_head, spans). (A block is enough for a multiprocessor,
// says 1: else the compiler keeps room for more, and spills.)
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1) ssm_kernel(const struct ssm_rows s)
{
    __shared__ __align__(16) ssm_stage<P> stage;
    griddep_launch_dependents();
    scan<P, true>(s, s.state.spans[blockIdx.z], stage);
}

// Grid (ceil(width of a head / SCAN_COLS) + 1, n_head, layers): the last blocks have the inputs.
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1)
    ssm_advance_kernel(const struct ssm_rows *layers)
{
    __shared__ __align__(16) ssm_stage<P> stage;
    griddep_launch_dependents();
    const struct ssm_rows s = layers[blockIdx.z];
    const struct state_span span = s.state.spans[0];
    if (blockIdx.x + 1 < gridDim.x) {
        scan<P, false>(s, span, stage);
        return;
    }
    griddep_wait();
    keep_inputs(s.state, span, s.ssm.n_conv, ssm_channels(&s.ssm),
                blockIdx.y * SCAN_THREADS + threadIdx.x, gridDim.y * SCAN_THREADS,
                [&](uint32_t row, uint32_t channel) {
                    return s.in[(size_t)row * s.ld + s.ssm.n_inner + channel];
                });
}

// Grid (rows, n_group). y silu(z), the channels of a group normed where there are weights for that.
static __global__ void __launch_bounds__(GATE_THREADS) ssm_gate_kernel(const struct ssm_rows s)
{
    __shared__ float part[GATE_THREADS / WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (s.skip && *s.skip)
        return;
    const uint32_t n = s.ssm.n_inner / s.ssm.n_group, first = blockIdx.y * n;
    const float *z = s.in + (size_t)blockIdx.x * s.ld + first;
    float *y = s.y + (size_t)blockIdx.x * s.ssm.n_inner + first, squares = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += GATE_THREADS) {
        y[i] *= z[i] * logistic(z[i]);
        squares = fmaf(y[i], y[i], squares);
    }
    if (!s.norm)
        return;
    const float rms = 1.0f / sqrtf(block_sum(squares, part) / (float)n + s.eps);
    for (uint32_t i = threadIdx.x; i < n; i += GATE_THREADS) // each its own
        y[i] *= rms * s.norm[first + i];
}

// ---- launchers

bool ssm_conv_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n, struct error *err)
{
    const dim3 grid(n, div_up(ssm_channels(&s->ssm), (uint32_t)CONV_THREADS));
    return launch_kernel(err, launch_of(q, "ssm_conv", grid, CONV_THREADS), ssm_conv_kernel, *s);
}

bool ssm_launch(const struct queue *q, const struct ssm_rows *s, struct error *err)
{
    const uint32_t n = s->ssm.n_state, width = s->ssm.n_inner / s->ssm.n_head;
    const dim3 grid(div_up(width, (uint32_t)SCAN_COLS), s->ssm.n_head, s->state.n_span);
    const struct launch l = launch_of(q, "ssm", grid, SCAN_THREADS);
    return n <= 32    ? launch_kernel(err, l, ssm_kernel<32>, *s)
           : n <= 64  ? launch_kernel(err, l, ssm_kernel<64>, *s)
           : n <= 128 ? launch_kernel(err, l, ssm_kernel<128>, *s)
                      : launch_kernel(err, l, ssm_kernel<256>, *s);
}

bool ssm_gate_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n, struct error *err)
{
    return launch_kernel(err, launch_of(q, "ssm_gate", dim3(n, s->ssm.n_group), GATE_THREADS),
                         ssm_gate_kernel, *s);
}

bool ssm_advance_launch(const struct queue *q, const struct ssm_rows *layers,
                        const struct ssm *shape, uint32_t n_layer, struct error *err)
{
    const uint32_t n = shape->n_state, width = shape->n_inner / shape->n_head;
    const dim3 grid(div_up(width, (uint32_t)SCAN_COLS) + 1, shape->n_head, n_layer);
    const struct launch l = launch_of(q, "ssm_advance", grid, SCAN_THREADS);
    return n <= 32    ? launch_kernel(err, l, ssm_advance_kernel<32>, layers)
           : n <= 64  ? launch_kernel(err, l, ssm_advance_kernel<64>, layers)
           : n <= 128 ? launch_kernel(err, l, ssm_advance_kernel<128>, layers)
                      : launch_kernel(err, l, ssm_advance_kernel<256>, layers);
}
