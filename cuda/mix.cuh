// The convolution before the states of many rows: what convolve() does for a row (states.cuh), by
// lanes with four channels next to each other that go from row to row, so that weights are read
// once and inputs are, but for a run's first, not read again.
#ifndef HOKKU_CUDA_MIX_CUH
#define HOKKU_CUDA_MIX_CUH

#include "states.cuh"

enum {
    MIX_TAPS = 4,
    MIX_RUN = 8, // rows of a warp
    MIX_WARPS = 4,
    MIX_CHANNELS = 4 * WARP, // of a warp
};

// A warp's rows from the t0-th of the only span on. in: (n, ld), its channels first; w (n_all,
// MIX_TAPS); sums begin with `start`. more(y) is called by every lane for each row, once y have
// been through their function; it may change them.
template <typename F>
static __device__ __forceinline__ void
mix_rows(const struct state_slots &state, const float *in, uint32_t ld, const float *w,
         uint32_t n_all, uint32_t channel, int t0, float4 start, float *mixed, F more)
{
    const struct state_span &span = state.spans[0];
    const int n = (int)span.n;
    const bool mine = channel < n_all;
    float4 weight[4] = {}, x[MIX_RUN + MIX_TAPS - 1]; // from row t0 - (MIX_TAPS - 1) on
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (mine)
            weight[i] = load_four(&w[(size_t)(channel + i) * MIX_TAPS]);
    griddep_wait();
    if (t0 >= n)
        return;
#pragma unroll
    for (int k = 0; k < MIX_RUN + MIX_TAPS - 1; k++) {
        const int t = t0 + k - (MIX_TAPS - 1);
        const bool before = t < 0 && span.from != NO_STATE;
        const float *const from =
            before ? state.base + span.from * state.stride + (size_t)(t + MIX_TAPS - 1) * n_all
                   : in + (size_t)(span.row0 + (uint32_t)(t < 0 ? 0 : t)) * ld;
        x[k] = mine && (before || (t >= 0 && t < n)) ? load_four(from + channel) : float4{};
    }
#pragma unroll
    for (int k = 0; k < MIX_RUN; k++) {
        const int t = t0 + k;
        float y[4];
        auto at = [](float4 v, uint32_t i) {
            return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
        };
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float sum = fmaf(weight[i].x, at(x[k], i), at(start, i));
            sum = fmaf(weight[i].y, at(x[k + 1], i), sum);
            sum = fmaf(weight[i].z, at(x[k + 2], i), sum);
            sum = fmaf(weight[i].w, at(x[k + 3], i), sum);
            y[i] = sum * logistic(sum);
        }
        more(y);
        if (!mine || t >= n)
            continue;
        const uint32_t row = span.row0 + (uint32_t)t;
        const float4 newest = x[k + MIX_TAPS - 1];
        const float own[] = {newest.x, newest.y, newest.z, newest.w};
        keep_own<1>(state, span, row, MIX_TAPS, {channel, 4, n_all}, own);
        *reinterpret_cast<float4 *>(&mixed[(size_t)row * n_all + channel]) =
            make_float4(y[0], y[1], y[2], y[3]);
    }
}

// Grid (ceil(rows / (MIX_WARPS * MIX_RUN)), ceil(channels / MIX_CHANNELS)): of a block's warp and
// lane.
static __device__ __forceinline__ int mix_row(void)
{
    return (int)((blockIdx.x * MIX_WARPS + threadIdx.x / WARP) * MIX_RUN);
}

static __device__ __forceinline__ uint32_t mix_channel(void)
{
    return blockIdx.y * MIX_CHANNELS + threadIdx.x % WARP * 4;
}

static inline struct launch mix_launch(const struct queue *q, const char *name, uint32_t n,
                                       uint32_t n_all)
{
    return launch_of(
        q, name,
        dim3(div_up(n, (uint32_t)(MIX_WARPS * MIX_RUN)), div_up(n_all, (uint32_t)MIX_CHANNELS)),
        MIX_WARPS * WARP);
}

#endif
