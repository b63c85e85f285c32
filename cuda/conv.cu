// Short convolutions (struct short_conv in model/model.h). A sum has the order of the taps, however
// a prompt was cut.
#include "states.cuh"

enum { THREADS = 256 };

// ---- kernels

// Grid (rows, ceil(n / THREADS)).
static __global__ void __launch_bounds__(THREADS) short_conv_kernel(const struct short_conv_rows r)
{
    griddep_launch_dependents();
    const uint32_t c = blockIdx.y * THREADS + threadIdx.x, n = r.conv.n, row = blockIdx.x;
    const struct state_span span = span_of(r.state, row);
    const struct lane_channels channel = {c, c < n, n};
    float sum[1] = {}, own[1], gate = 0.0f;
    uint32_t skip = 0;
    convolve(
        r.state, span, row, r.w, r.conv.n_taps, channel, sum, own,
        [&](uint32_t i, uint32_t) { // b x
            const float *in = r.in + (size_t)i * 3 * n + c;
            return in[0] * in[2 * n];
        },
        [&] {
            skip = r.skip ? *r.skip : 0;
            gate = c < n ? r.in[(size_t)row * 3 * n + n + c] : 0.0f;
        });
    if (c >= n || skip)
        return;
    keep_own(r.state, span, row, r.conv.n_taps, channel, own);
    r.y[(size_t)row * n + c] = gate * sum[0];
}

// Grid (ceil(n / THREADS), layers).
static __global__ void __launch_bounds__(THREADS)
    short_conv_advance_kernel(const struct short_conv_rows *layers)
{
    griddep_launch_dependents();
    const struct short_conv_rows r = layers[blockIdx.y];
    const struct state_span span = r.state.spans[0];
    const uint32_t n = r.conv.n, c = blockIdx.x * THREADS + threadIdx.x;
    griddep_wait();
    keep_inputs(r.state, span, r.conv.n_taps, n, c, gridDim.x * THREADS,
                [&](uint32_t i, uint32_t channel) {
                    const float *in = r.in + (size_t)i * 3 * n + channel;
                    return in[0] * in[2 * n];
                });
}

// ---- launchers

bool short_conv_launch(const struct queue *q, const struct short_conv_rows *c, uint32_t n,
                       struct error *err)
{
    const dim3 grid(n, div_up(c->conv.n, (uint32_t)THREADS));
    return launch_kernel(err, launch_of(q, "short_conv", grid, THREADS), short_conv_kernel, *c);
}

bool short_conv_advance_launch(const struct queue *q, const struct short_conv_rows *layers,
                               const struct short_conv *shape, uint32_t n_layer, struct error *err)
{
    const dim3 grid(div_up(shape->n, (uint32_t)THREADS), n_layer);
    return launch_kernel(err, launch_of(q, "short_conv_advance", grid, THREADS),
                         short_conv_advance_kernel, layers);
}
