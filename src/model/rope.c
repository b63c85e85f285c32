// Rotation frequencies of RoPE and its extensions to longer contexts.
//
//   RoPE (Su et al. 2021, sec. 3.2):  f_i = theta^(-2i / rope_dim) for pair i of rope_dim / 2
//   Frequency factors (Llama 3):      f_i / factor_i, the factors given by the file
//   Linear interpolation (Chen et al. 2023):  f_i / s, s the extension factor
//   YaRN (Peng et al. 2023, sec. 3.2 and 3.4): high frequencies stay, low ones are interpolated,
//     with a linear ramp between the pairs that turn beta_fast and beta_slow times within the
//     original context:
//       pair(beta) = rope_dim ln(orig_ctx / (2 pi beta)) / (2 ln theta)
//       low = max(0, floor(pair(beta_fast))), high = min(rope_dim - 1, ceil(pair(beta_slow)))
//       keep_i = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
//       f'_i = keep_i f_i + (1 - keep_i) f_i / s
//     and cos and sin are multiplied by attn_factor (1 + 0.1 ln s).
// Rounding the ramp's ends to whole pairs and dividing by the frequency factors first is how the
// implementations do it that models are trained and distributed with.
#include "model/model.h"

#include <math.h>

static double yarn_pair(const struct hparams *hp, double beta)
{
    return hp->rope_dim * log(hp->rope_orig_ctx / (beta * 2 * M_PI)) /
           (2 * log((double)hp->rope_theta));
}

void model_rope_freqs(const struct model *m, float *freq, float *magnitude)
{
    const struct hparams *hp = &m->hp;
    const double s = hp->rope_factor;
    double low = 0, high = 0;
    *magnitude = 1;
    if (hp->rope_scaling == ROPE_SCALING_YARN) {
        low = fmax(0, floor(yarn_pair(hp, hp->rope_beta_fast)));
        high = fmin(hp->rope_dim - 1.0, ceil(yarn_pair(hp, hp->rope_beta_slow)));
        *magnitude = (float)(hp->rope_attn_factor * (1 + 0.1 * log(s)));
    }
    for (uint32_t i = 0; i < hp->rope_dim / 2; i++) {
        double f = pow(hp->rope_theta, -2.0 * i / hp->rope_dim);
        if (m->rope_freqs)
            f /= m->rope_freqs[i];
        if (hp->rope_scaling == ROPE_SCALING_LINEAR) {
            f /= s;
        } else if (hp->rope_scaling == ROPE_SCALING_YARN) {
            double keep = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
            f = keep * f + (1 - keep) * f / s;
        }
        freq[i] = (float)f;
    }
}
