// The sampler's seam to the engine.
#ifndef HOKKU_CUDA_SAMPLER_CUH
#define HOKKU_CUDA_SAMPLER_CUH

#include "engine/engine.h"
#include "kernels.h"

enum { RING = 8 };

// One sampled token, in pinned memory. seq is written last: the number of the sample, from 1.
struct ring_slot {
    struct decoded d;
    uint32_t failed; // the logits held a NaN, or nothing was left to choose
    uint32_t seq;
};

struct gpu_sampler {
    struct ring_slot *ring; // (RING), pinned
};

size_t gpu_sampler_bytes(uint32_t n_vocab, uint32_t n_ctx);
void gpu_sampler_place(struct gpu_sampler *s, uint32_t n_vocab, uint32_t n_ctx, void *base);
bool gpu_sampler_begin(const struct queue *q, struct gpu_sampler *s, const struct decode_params *p,
                       struct error *err);
bool gpu_sampler_launch(const struct queue *q, struct gpu_sampler *s, const float *logits,
                        uint32_t n_vocab, struct step_state *step, struct error *err);
// What ring_slot.failed means.
const char *gpu_sampler_failure(uint32_t failed);

#endif
