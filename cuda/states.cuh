// What the kernels of layers with a recurrent state share: the convolution of a channel, functions.
#ifndef HOKKU_CUDA_STATES_CUH
#define HOKKU_CUDA_STATES_CUH

#include "states.h"

static __device__ __forceinline__ float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __device__ __forceinline__ float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

// A channel's input of row i of a span, or of i < 0 before it, of which the state has `kept`.
template <typename F>
static __device__ __forceinline__ float input_at(const struct state_slots &state,
                                                 const struct state_span &span, int i, int kept,
                                                 uint32_t channel, uint32_t n_channel, F input)
{
    return i >= 0 ? input(span.row0 + (uint32_t)i)
           : span.from == NO_STATE
               ? 0.0f
               : state.base[span.from * state.stride + (size_t)(i + kept) * n_channel + channel];
}

// sum + the sum of w (n_taps) times the channel's inputs, up to that of this row, in the order of
// the taps; input(row): of a row of the pass. What the state has of inputs is (n_taps - 1,
// n_channel): the first row of a span keeps what is older than its rows, each of the last ones
// itself.
template <typename F>
static __device__ __forceinline__ float
convolve(const struct state_slots &state, const struct state_span &span, uint32_t row,
         const float *w, uint32_t n_taps, uint32_t channel, uint32_t n_channel, float sum, F input)
{
    const int t = (int)(row - span.row0), kept = (int)n_taps - 1, end = (int)span.n - kept;
    float *to = state.base + span.to * state.stride + channel, x = 0.0f;
    auto at = [&](int i) { return input_at(state, span, i, kept, channel, n_channel, input); };
    for (int tap = 0; tap <= kept; tap++) {
        x = at(t + tap - kept);
        sum = fmaf(w[tap], x, sum);
    }
    if (t >= end)
        to[(size_t)(t - end) * n_channel] = x;
    for (int k = 0; t == 0 && k < -end; k++)
        to[(size_t)k * n_channel] = at(k + end);
    return sum;
}

// What convolve leaves in the state: here the inputs of channels first, first + step ...;
// input(row, channel).
template <typename F>
static __device__ __forceinline__ void
keep_inputs(const struct state_slots &state, const struct state_span &span, uint32_t n_taps,
            uint32_t n_channel, uint32_t first, uint32_t step, F input)
{
    const int kept = (int)n_taps - 1;
    for (uint32_t c = first; c < n_channel; c += step)
        for (int k = 0; k < kept; k++)
            state.base[span.to * state.stride + (size_t)k * n_channel + c] =
                input_at(state, span, (int)span.n - kept + k, kept, c, n_channel,
                         [&](uint32_t row) { return input(row, c); });
}

static inline struct launch launch_of(const struct queue *q, const char *name, dim3 grid,
                                      uint32_t threads)
{
    struct launch l = {};
    l.name = name;
    l.grid = grid;
    l.block = dim3(threads);
    l.stream = q->stream;
    l.dependent = q->dependent;
    l.recorder = q->recorder;
    return l;
}

#endif
