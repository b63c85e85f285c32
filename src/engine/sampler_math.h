// The arithmetic of sampling, shared by the CPU sampler and the CUDA one, so that both make the
// same choice from the same logits, bit for bit. Plain IEEE operations only; compile without
// contraction (-ffp-contract=off, nvcc -fmad=false).
//
// Weight of a candidate: w = trunc(2^32 * exp(logit - max)), an integer: sums of weights do not
// depend on the order of addition. Probability = w / sum of w. The draw: r = floor(random64 * total
// / 2^64); the chosen candidate is the first in ascending id order whose running sum of weights
// exceeds r.
#ifndef HOKKU_ENGINE_SAMPLER_MATH_H
#define HOKKU_ENGINE_SAMPLER_MATH_H

#include <stdint.h>
#include <string.h>

#include "base/rng.h"

// Random numbers used at one position (the `index` of rng_u64).
enum { SAMPLER_DRAW_PICK = 0, SAMPLER_DRAW_XTC = 1 };

// exp(x) for x <= 0 with a relative error below 4e-7; 0 below -80. Cody-Waite reduction, then the
// polynomial of degree 7.
RNG_FN float sampler_exp(float x)
{
    if (!(x > -80.0f))
        return 0.0f;
    // n = round(x / ln 2) as an integer; x <= 0, so adding -0.5 and truncating rounds to nearest.
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float fn = (float)n;
    float r = x - fn * 0.693359375f; // exact: 0.693359375 has 9 significant bits
    r = r - fn * -2.12194440e-4f;
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits = (uint32_t)(n + 127) << 23; // 2^n, n >= -116
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

// The fixed-point weight of a logit, given the largest one (logit <= max). 2^32 for the largest.
RNG_FN uint64_t sampler_weight(float logit, float max)
{
    float d = logit - max;
    if (!(d > -23.0f)) // also -inf
        return 0;
    return (uint64_t)(sampler_exp(d) * 4294967296.0f);
}

// Typical sampling: sum over candidates of w * (max - logit), in units of 1/16.
RNG_FN uint64_t sampler_typical_term(uint64_t w, float logit, float max)
{
    return w ? (uint64_t)((double)w * (double)(max - logit) * 16.0) : 0;
}

// How far a candidate's surprise is from the entropy: | (-ln p) - H | = | (max - logit) - mean(max
// - logit) |.
RNG_FN double sampler_typical_distance(float logit, float max, uint64_t term_sum, uint64_t total)
{
    double mean = (double)term_sum / 16.0 / (double)total;
    double d = (double)(max - logit) - mean;
    return d < 0 ? -d : d;
}

// Top-n-sigma: distance from the maximum in units of 1/4096, at most 2000; sums of it and of its
// square fit 64 bits for vocabularies up to 2^18.
RNG_FN uint64_t sampler_sigma_term(float logit, float max)
{
    float d = max - logit;
    return (uint64_t)((d < 2000.0f ? d : 2000.0f) * 4096.0f);
}

// Logits below the result are removed. n = candidates with a finite logit.
RNG_FN float sampler_sigma_limit(float max, float n_sigma, uint64_t sum, uint64_t sum_sq,
                                 uint64_t n)
{
    double mean = (double)sum / (double)n;
    double var = (double)sum_sq / (double)n - mean * mean;
    double x = var > 0 ? var : 0;
    // Square root by Newton steps: the same bits everywhere without asking for a correctly rounded
    // library function.
    double root = x > 1 ? x : 1;
    for (int i = 0; i < 64 && x > 0; i++)
        root = 0.5 * (root + x / root);
    return x > 0 ? (float)((double)max - (double)n_sigma * root / 4096.0) : max;
}

// Whether a fraction p of total is reached by sum; p in (0, 1).
RNG_FN int sampler_reaches(uint64_t sum, uint64_t total, float p)
{
    return (double)sum >= (double)p * (double)total;
}

// floor(random * total / 2^64)
RNG_FN uint64_t sampler_scale_random(uint64_t random, uint64_t total)
{
    uint64_t a = random >> 32, b = random & 0xFFFFFFFFu, c = total >> 32, d = total & 0xFFFFFFFFu;
    uint64_t mid = a * d + (b * d >> 32);
    uint64_t mid2 = b * c + (mid & 0xFFFFFFFFu);
    return a * c + (mid >> 32) + (mid2 >> 32);
}

// XTC acts at this position when the random number is below its probability (24 bits are compared).
RNG_FN int sampler_xtc_acts(uint64_t seed, uint64_t position, float probability)
{
    return (float)(rng_u64(seed, position, SAMPLER_DRAW_XTC) >> 40) < probability * 16777216.0f;
}

// Repetition penalties on a token that occurs `count` > 0 times in the window (repeat: Keskar et
// al. 2019, CTRL, sec. 4.1; frequency and presence: subtracted from the logit).
RNG_FN float sampler_penalize(float logit, uint32_t count, float repeat, float frequency,
                              float presence)
{
    float l = logit <= 0 ? logit * repeat : logit / repeat;
    float f = (float)count * frequency;
    l = l - f;
    return l - presence;
}

// DRY: penalty for continuing a repetition of match_len tokens.
RNG_FN float sampler_dry_penalty(uint32_t match_len, int32_t allowed_length, float multiplier,
                                 float base)
{
    float p = multiplier;
    for (uint32_t k = (uint32_t)allowed_length; k < match_len && p < 1e30f; k++)
        p = p * base;
    return p < 1e30f ? p : 1e30f;
}

#endif
