// Rotation frequencies of RoPE and its extensions to longer contexts.
//
//   RoPE (Su et al. 2021, sec. 3.2):  f_i = theta^(-2i / n_dim) for pair i of n_dim / 2
//   Frequency factors (Llama 3):      f_i / factor_i, the factors given by the file
//   Linear interpolation (Chen et al. 2023):  f_i / s, s the extension factor
//   YaRN (Peng et al. 2023, sec. 3.2 and 3.4): high frequencies stay, low ones are interpolated,
//     with a linear ramp between the pairs that turn beta_fast and beta_slow times within the
//     original context:
//       pair(beta) = n_dim ln(orig_ctx / (2 pi beta)) / (2 ln theta)
//       low = max(0, floor(pair(beta_fast))), high = min(n_dim - 1, ceil(pair(beta_slow)))
//       keep_i = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
//       f'_i = keep_i f_i + (1 - keep_i) f_i / s
//     and cos and sin are multiplied by 1 + 0.1 ln s, and always by attn_factor.
// Rounding the ramp's ends to whole pairs and dividing by the frequency factors first is how the
// implementations do it that models are trained and distributed with.
#include "model/internal.h"

#include <math.h>

static double yarn_pair(const struct rope *r, double beta)
{
    return r->n_dim * log(r->orig_ctx / (beta * 2 * M_PI)) / (2 * log((double)r->theta));
}

double rope_magnitude(const struct rope *r)
{
    const double longer = r->scaling == ROPE_SCALING_YARN ? 1 + 0.1 * log((double)r->factor) : 1;
    return (double)r->attn_factor * longer;
}

void model_rope_freqs(const struct rope *r, uint32_t n_ctx, float *freq, float *magnitude)
{
    const double s = r->factor;
    const float *factors = r->long_factors && n_ctx > r->orig_ctx ? r->long_factors : r->factors;
    double low = 0, high = 0;
    if (r->scaling == ROPE_SCALING_YARN) {
        low = fmax(0, floor(yarn_pair(r, r->beta_fast)));
        high = fmin(r->n_dim - 1.0, ceil(yarn_pair(r, r->beta_slow)));
    }
    *magnitude = (float)rope_magnitude(r);
    for (uint32_t i = 0; i < r->n_dim / 2; i++) {
        double f = pow(r->theta, -2.0 * i / r->n_dim);
        if (factors)
            f /= factors[i];
        if (r->scaling == ROPE_SCALING_LINEAR) {
            f /= s;
        } else if (r->scaling == ROPE_SCALING_YARN) {
            double keep = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
            f = keep * f + (1 - keep) * f / s;
        }
        freq[i] = (float)f;
    }
}
