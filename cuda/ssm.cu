// Selective state spaces (struct ssm in model/model.h; Dao and Gu 2024, Mamba-2), token by token,
// see scan.cuh.
#include "block.cuh"
#include "scan.cuh"

enum {
    CONV_THREADS = 256,
    GATE_THREADS = 256,
    GATE_KEPT = 4, // fours of a thread
};

// ---- kernels

// Grid (rows, ceil(channels / CONV_THREADS)).
static __global__ void __launch_bounds__(CONV_THREADS) ssm_conv_kernel(const struct ssm_rows s)
{
    griddep_launch_dependents();
    const uint32_t c = blockIdx.y * CONV_THREADS + threadIdx.x, n = ssm_channels(&s.ssm);
    const uint32_t row = blockIdx.x, n_taps = s.ssm.n_conv;
    const struct state_span span = span_of(s.state, row);
    const struct lane_channels channel = {c, c < n, n};
    float y[1] = {c < n && s.bias ? s.bias[c] : 0.0f}, own[1];
    uint32_t skip = 0;
    convolve(
        s.state, span, row, s.w, n_taps, channel, y, own,
        [&](uint32_t i, uint32_t) { return s.in[(size_t)i * s.ld + s.ssm.n_inner + c]; },
        [&] { skip = s.skip ? *s.skip : 0; });
    if (c >= n || skip)
        return;
    keep_own(s.state, span, row, n_taps, channel, own);
    s.mixed[(size_t)row * n + c] = y[0] * logistic(y[0]);
}

// A block's channels of a head go through the rows of a span. GIVES: what the rows give is wanted.
template <int P, bool GIVES>
static __device__ __forceinline__ void
scan_head(const struct ssm_rows &s, const struct state_span &span, stage<P> (&stages)[2])
{
    const struct ssm &d = s.ssm;
    const uint32_t n = d.n_state, width = d.n_inner / d.n_head, head = blockIdx.y;
    const float *b = s.mixed + d.n_inner + head / (d.n_head / d.n_group) * n;
    const struct scan_rows rows = {
        b,     b + d.n_group * n,          s.mixed + head * width, ssm_channels(&d), n,
        width, blockIdx.x * scan_cols<P>()};
    const float direct = s.d[head];
    constexpr int E = scan_fours<P>(), C = scan_lane_cols<P>();
    scan<P, GIVES>(
        s.state, span, ssm_inputs(&d) + (size_t)head * width * n, rows, s.skip, stages,
        [&](uint32_t row) {
            return make_float2(s.in[(size_t)row * s.ld + s.ld - d.n_head + head], 0.0f);
        },
        [&](float2 raw, float &decay, float &gain) {
            gain = softplus(raw.x + s.dt[head]);
            decay = expf(gain * s.a[head]);
        },
        [&](const token_in<C, E> &in, float4(&m)[C][E]) {
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int e = 0; e < E; e++)
                    m[c][e] = fma4(in.a[e], all4(in.gain * in.v[c]), times(in.decay, m[c][e]));
        },
        [&](uint32_t row, uint32_t col, float sum, float v) {
            s.y[(size_t)row * d.n_inner + head * width + col] = fmaf(direct, v, sum);
        });
}

// Grid (ceil(width of a head / scan_cols), n_head, spans).
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1) ssm_kernel(const struct ssm_rows s)
{
    __shared__ __align__(16) stage<P> stages[2];
    griddep_launch_dependents();
    scan_head<P, true>(s, s.state.spans[blockIdx.z], stages);
}

// Grid (ceil(width of a head / scan_cols) + 1, n_head, layers): the last blocks have the inputs.
template <int P>
static __global__ void __launch_bounds__(SCAN_THREADS, 1)
    ssm_advance_kernel(const struct ssm_rows *layers)
{
    __shared__ __align__(16) stage<P> stages[2];
    griddep_launch_dependents();
    const struct ssm_rows s = layers[blockIdx.z];
    const struct state_span span = s.state.spans[0];
    if (blockIdx.x + 1 < gridDim.x) {
        scan_head<P, false>(s, span, stages);
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
// Where fours are aligned, a thread has the first of them in registers, all under way at once.
static __global__ void __launch_bounds__(GATE_THREADS) ssm_gate_kernel(const struct ssm_rows s)
{
    __shared__ float part[GATE_THREADS / WARP];
    griddep_launch_dependents();
    griddep_wait();
    if (s.skip && *s.skip)
        return;
    const uint32_t n = s.ssm.n_inner / s.ssm.n_group, first = blockIdx.y * n;
    const uint32_t n_kept =
        n % 4 == 0 && s.ld % 4 == 0 ? lesser(n, (uint32_t)(4 * GATE_KEPT * GATE_THREADS)) : 0;
    const float *z = s.in + (size_t)blockIdx.x * s.ld + first;
    float *y = s.y + (size_t)blockIdx.x * s.ssm.n_inner + first, squares = 0.0f;
    const auto gate = [&](float y, float z) {
        const float v = y * (z * logistic(z));
        squares = fmaf(v, v, squares);
        return v;
    };
    float4 kept[GATE_KEPT], gates[GATE_KEPT];
#pragma unroll
    for (uint32_t k = 0; k < GATE_KEPT; k++) {
        const uint32_t i = 4 * (threadIdx.x + k * GATE_THREADS);
        kept[k] = i < n_kept ? load_four(y + i) : float4{};
        gates[k] = i < n_kept ? load_four(z + i) : float4{};
    }
#pragma unroll
    for (uint32_t k = 0; k < GATE_KEPT; k++) {
        const float4 v = kept[k], g = gates[k];
        const float a = gate(v.x, g.x), b = gate(v.y, g.y), c = gate(v.z, g.z), d = gate(v.w, g.w);
        kept[k] = make_float4(a, b, c, d);
    }
    for (uint32_t i = n_kept + threadIdx.x; i < n; i += GATE_THREADS)
        y[i] = gate(y[i], z[i]);
    const float rms =
        s.norm ? 1.0f / sqrtf(of_squares(block_sum(squares, part) / (float)n + s.eps)) : 1.0f;
#pragma unroll
    for (uint32_t k = 0; k < GATE_KEPT; k++) {
        const uint32_t i = 4 * (threadIdx.x + k * GATE_THREADS);
        if (i >= n_kept)
            continue;
        float4 v = kept[k];
        if (s.norm) {
            const float4 w = load_four(s.norm + first + i);
            v = make_float4(v.x * (rms * w.x), v.y * (rms * w.y), v.z * (rms * w.z),
                            v.w * (rms * w.w));
        }
        *reinterpret_cast<float4 *>(y + i) = v;
    }
    for (uint32_t i = n_kept + threadIdx.x; s.norm && i < n; i += GATE_THREADS) // each its own
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
    const uint32_t width = s->ssm.n_inner / s->ssm.n_head;
    return with_state(s->ssm.n_state, [&](auto p) {
        const dim3 grid(div_up(width, (uint32_t)scan_cols<p()>()), s->ssm.n_head, s->state.n_span);
        return launch_kernel(err, launch_of(q, "ssm", grid, SCAN_THREADS), ssm_kernel<p()>, *s);
    });
}

bool ssm_gate_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n, struct error *err)
{
    return launch_kernel(err, launch_of(q, "ssm_gate", dim3(n, s->ssm.n_group), GATE_THREADS),
                         ssm_gate_kernel, *s);
}

bool ssm_advance_launch(const struct queue *q, const struct ssm_rows *layers,
                        const struct ssm *shape, uint32_t n_layer, struct error *err)
{
    const uint32_t width = shape->n_inner / shape->n_head;
    return with_state(shape->n_state, [&](auto p) {
        const dim3 grid(div_up(width, (uint32_t)scan_cols<p()>()) + 1, shape->n_head, n_layer);
        return launch_kernel(err, launch_of(q, "ssm_advance", grid, SCAN_THREADS),
                             ssm_advance_kernel<p()>, layers);
    });
}
