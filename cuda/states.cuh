// What the kernels of layers with a recurrent state share: the convolution of a channel, functions.
#ifndef HOKKU_CUDA_STATES_CUH
#define HOKKU_CUDA_STATES_CUH

#include "states.h"

static __device__ __forceinline__ float4 load_four(const float *p)
{
    return *reinterpret_cast<const float4 *>(p);
}

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

// Channels of a layer's n_all that a lane has: first, first + WARP, ..., n of them.
struct lane_channels {
    uint32_t first, n, n_all;
};

// sum[i] += the sum of w (n_all, n_taps) times the inputs of channel i of the lane's, up to that of
// this row, in the order of the taps. input(row, i): of a row of the pass, which the predecessor
// may have written; until that has ended the rest is requested. own: the inputs of this row. more()
// is called once by every lane when that row's have been asked for, to ask for what else is needed.
template <int N, typename F, typename M>
static __device__ __forceinline__ void
convolve(const struct state_slots &state, const struct state_span &span, uint32_t row,
         const float *w, uint32_t n_taps, const struct lane_channels &c, float (&sum)[N],
         float (&own)[N], F input, M more)
{
    constexpr int TAPS = 3; // older inputs of a channel that are requested at a time
    const int t = (int)(row - span.row0), kept = (int)n_taps - 1;
    const bool any = span.from != NO_STATE; // what the state has; else zeros
    const float *const before = state.base + (any ? span.from : 0) * state.stride + c.first;
    if (t == 0 && any && kept == TAPS && c.n == N) { // a token: the same without bounds
        float4 weight[N];
        float x[TAPS][N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            weight[i] = load_four(w + (size_t)(c.first + i * WARP) * (TAPS + 1));
#pragma unroll
            for (int k = 0; k < TAPS; k++)
                x[k][i] = before[(size_t)k * c.n_all + i * WARP];
        }
        griddep_wait();
#pragma unroll
        for (int i = 0; i < N; i++)
            own[i] = input(row, i);
        more();
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum[i] = fmaf(weight[i].x, x[0][i], sum[i]);
            sum[i] = fmaf(weight[i].y, x[1][i], sum[i]);
            sum[i] = fmaf(weight[i].z, x[2][i], sum[i]);
            sum[i] = fmaf(weight[i].w, own[i], sum[i]);
        }
        return;
    }
    const float *weights[N]; // of a channel
    float newest[N] = {};    // weights
#pragma unroll
    for (int i = 0; i < N; i++) {
        weights[i] = w + (size_t)(c.first + i * WARP) * n_taps;
        if (i < (int)c.n)
            newest[i] = weights[i][kept];
    }
    for (int tap0 = 0; tap0 == 0 || tap0 < kept; tap0 += TAPS) {
        float weight[TAPS][N] = {}, x[TAPS][N] = {};
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            const int at = t + tap0 + k - kept;
            const float *const from = before + (size_t)(at + kept) * c.n_all;
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (tap0 + k < kept && i < (int)c.n)
                    weight[k][i] = weights[i][tap0 + k];
                if (tap0 + k < kept && i < (int)c.n && at < 0 && any)
                    x[k][i] = from[i * WARP];
            }
        }
        griddep_wait();
#pragma unroll
        for (int i = 0; i < N; i++)
            if (tap0 == 0)
                own[i] = i < (int)c.n ? input(row, i) : 0.0f;
        if (tap0 == 0)
            more();
#pragma unroll
        for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int at = t + tap0 + k - kept;
                if (tap0 + k < kept && i < (int)c.n && at >= 0)
                    x[k][i] = input(span.row0 + (uint32_t)at, i);
            }
#pragma unroll
        for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (tap0 + k < kept)
                    sum[i] = fmaf(weight[k][i], x[k][i], sum[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = fmaf(newest[i], own[i], sum[i]);
}

// A lane's inputs go to where the state in this slot has those of the k-th of its rows. STEP: from
// one of its channels to the next.
template <int STEP, int N>
static __device__ __forceinline__ void put_own(const struct state_slots &state, uint32_t slot,
                                               int k, const struct lane_channels &c,
                                               const float (&own)[N])
{
    float *to = state.base + slot * state.stride + (size_t)k * c.n_all + c.first;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < (int)c.n)
            to[i * STEP] = own[i];
}

// The inputs that the next rows need, once all of a span have been through this. What the state has
// of them is (n_taps - 1, n_all): the first row keeps what is older than the span's, each of the
// last ones its own. So does each before a state within the span.
template <int STEP = WARP, int N>
static __device__ __forceinline__ void
keep_own(const struct state_slots &state, const struct state_span &span, uint32_t row,
         uint32_t n_taps, const struct lane_channels &c, const float (&own)[N])
{
    const int t = (int)(row - span.row0), kept = (int)n_taps - 1, end = (int)span.n - kept;
    const int of_within = t % STATES_EVERY - (STATES_EVERY - kept);
    if (of_within >= 0) { // seldom, so that nobody else asks for those slots
        const struct state_span &where = span_of(state, row);
        if (t / STATES_EVERY < (int)where.n_within)
            put_own<STEP>(state, where.within[t / STATES_EVERY], of_within, c, own);
    }
    if (t >= end)
        put_own<STEP>(state, span.to, t - end, c, own);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= (int)c.n)
            break;
        const uint32_t channel = c.first + i * STEP;
        float *to = state.base + span.to * state.stride + channel;
        for (int k = 0; t == 0 && k < -end; k++) // from before the span
            to[(size_t)k * c.n_all] = input_at(state, span, k + end, kept, channel, c.n_all,
                                               [](uint32_t) { return 0.0f; });
    }
}

// What keep_own leaves in the state: here the inputs of channels first, first + step ...;
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
