// Why there is nothing to choose, though all logits are finite as they come: said by the CPU
// sampler and for the CUDA one. Both are ERR_FAIL.
#ifndef HOKKU_ENGINE_SAMPLER_FAILURE_H
#define HOKKU_ENGINE_SAMPLER_FAILURE_H

#include <stdbool.h>

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// No candidate is left, and biases forbid tokens.
bool sampler_none_left(struct error *err);
// The largest logit that is left is infinite: large ones overflow when biases and penalties are
// added, or when they are divided by a small temperature.
bool sampler_overflow(struct error *err);

#ifdef __cplusplus
}
#endif
#endif
