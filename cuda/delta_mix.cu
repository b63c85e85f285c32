// The convolution and the functions behind it of a gated delta net's many rows: what delta_conv
// does (delta.cu), by lanes with four channels next to each other that go from row to row, so that
// weights are read once and inputs are, but for a run's first, not read again.
#include "delta.cuh"

enum {
    TAPS = 4,
    RUN = 8, // rows of a warp
    MIX_WARPS = 4,
    MIX_CHANNELS = 4 * WARP, // of a warp: of one head or several whole ones
};

static __device__ __forceinline__ float4 load_four(const float *p)
{
    return *reinterpret_cast<const float4 *>(p);
}

// Grid (ceil(rows / (MIX_WARPS * RUN)), ceil(channels / MIX_CHANNELS)), of the only span. (d.skip
// is for steps of a token, which these rows are not.)
template <int P>
static __global__ void __launch_bounds__(MIX_WARPS *WARP, 5)
    delta_mix_kernel(const struct delta_rows d)
{
    griddep_launch_dependents();
    const struct state_span &span = d.state.spans[0];
    const uint32_t n_all = (2 * d.delta.n_key_head + d.delta.n_head) * P;
    const uint32_t channel = blockIdx.y * MIX_CHANNELS + threadIdx.x % WARP * 4, head = channel / P;
    const int t0 = (int)((blockIdx.x * MIX_WARPS + threadIdx.x / WARP) * RUN), n = (int)span.n;
    const bool mine = channel < n_all;
    float4 w[4] = {}, x[RUN + TAPS - 1]; // a channel's weights; inputs from row t0 - (TAPS - 1) on
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (mine)
            w[i] = load_four(&d.w[(size_t)(channel + i) * TAPS]);
    griddep_wait();
    if (t0 >= n)
        return;
#pragma unroll
    for (int k = 0; k < RUN + TAPS - 1; k++) {
        const int t = t0 + k - (TAPS - 1);
        const bool before = t < 0 && span.from != NO_STATE;
        const float *const from =
            before ? d.state.base + span.from * d.state.stride + (size_t)(t + TAPS - 1) * n_all
                   : d.in + (size_t)(span.row0 + (uint32_t)(t < 0 ? 0 : t)) * n_all;
        x[k] = mine && (before || (t >= 0 && t < n)) ? load_four(from + channel) : float4{};
    }
    const bool keys = head < 2 * d.delta.n_key_head; // or queries: of length 1
#pragma unroll
    for (int k = 0; k < RUN; k++) {
        const int t = t0 + k;
        float y[4], squares = 0.0f;
        auto at = [&](int tap, uint32_t i) {
            const float4 v = x[k + tap];
            return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
        };
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float sum = fmaf(w[i].x, at(0, i), 0.0f);
            sum = fmaf(w[i].y, at(1, i), sum);
            sum = fmaf(w[i].z, at(2, i), sum);
            sum = fmaf(w[i].w, at(3, i), sum);
            y[i] = sum * logistic(sum);
            squares = fmaf(y[i], y[i], squares);
        }
        if (blockIdx.y * MIX_CHANNELS < 2 * d.delta.n_key_head * P) { // some of the warp's
#pragma unroll
            for (int o = P / 8; o > 0; o /= 2)
                squares += __shfl_xor_sync(0xFFFFFFFFu, squares, o);
            const float length = sqrtf(squares);
            const float scale = (head < d.delta.n_key_head ? 1.0f / sqrtf((float)P) : 1.0f) /
                                (length < d.eps ? d.eps : length); // a NaN stays one
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                y[i] *= keys ? scale : 1.0f;
        }
        if (!mine || t >= n)
            continue;
        const uint32_t row = span.row0 + (uint32_t)t;
        const float own[] = {at(3, 0), at(3, 1), at(3, 2), at(3, 3)};
        keep_own<1>(d.state, span, row, TAPS, {channel, 4, n_all}, own);
        *reinterpret_cast<float4 *>(&d.mixed[(size_t)row * n_all + channel]) =
            make_float4(y[0], y[1], y[2], y[3]);
    }
}

bool delta_mix_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                      struct error *err)
{
    if (d->delta.n_conv != TAPS)
        return delta_conv_launch(q, d, n, err);
    const uint32_t n_all = (2 * d->delta.n_key_head + d->delta.n_head) * d->delta.n_state;
    const dim3 grid(div_up(n, (uint32_t)(MIX_WARPS * RUN)), div_up(n_all, (uint32_t)MIX_CHANNELS));
    return with_chunk_width(d->delta.n_state, [&](auto p) {
        return launch_kernel(err, launch_of(q, "delta_mix", grid, MIX_WARPS * WARP),
                             delta_mix_kernel<p()>, *d);
    });
}
