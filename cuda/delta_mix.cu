// What delta_conv does (delta.cu) for a gated delta net's many rows: mix.cuh, and lengths of 1.
#include "delta.cuh"
#include "mix.cuh"

template <int P>
static __global__ void __launch_bounds__(MIX_WARPS *WARP, 5)
    delta_mix_kernel(const struct delta_rows d)
{
    griddep_launch_dependents();
    const uint32_t n_key = d.delta.n_key_head, n_all = (2 * n_key + d.delta.n_head) * P;
    const uint32_t channel = mix_channel(), head = channel / P;
    const bool keys = head < 2 * n_key; // or queries
    mix_rows(d.state, d.in, n_all, d.w, n_all, channel, mix_row(), float4{}, d.mixed,
             [&](float(&y)[4]) {
                 if (blockIdx.y * MIX_CHANNELS >= 2 * n_key * P) // none of the warp's
                     return;
                 float squares = 0.0f;
#pragma unroll
                 for (uint32_t i = 0; i < 4; i++)
                     squares = fmaf(y[i], y[i], squares);
#pragma unroll
                 for (int o = P / 8; o > 0; o /= 2)
                     squares += __shfl_xor_sync(0xFFFFFFFFu, squares, o);
                 const float length = sqrtf(of_squares(squares));
                 const float scale = (head < n_key ? 1.0f / sqrtf((float)P) : 1.0f) /
                                     (length < d.eps ? d.eps : length); // a NaN stays one
#pragma unroll
                 for (uint32_t i = 0; i < 4; i++)
                     y[i] *= keys ? scale : 1.0f;
             });
}

bool delta_mix_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                      struct error *err)
{
    if (d->delta.n_conv != MIX_TAPS)
        return delta_conv_launch(q, d, n, err);
    const uint32_t n_all = (2 * d->delta.n_key_head + d->delta.n_head) * d->delta.n_state;
    return with_chunk_width(d->delta.n_state, [&](auto p) {
        return launch_kernel(err, mix_launch(q, "delta_mix", n, n_all), delta_mix_kernel<p()>, *d);
    });
}
