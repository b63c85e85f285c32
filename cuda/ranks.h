// A model on several devices (model/slice.h). A rank is one device with its slice, which is an
// engine like any other; a host thread drives each, so that they do the same at the same time. What
// they must agree on they have from each other: sums and logits by sum_ranks_launch and
// gather_ranks_launch, in device memory; here, on the host, whether the user has interrupted, and
// that one of them has failed.
#ifndef HOKKU_CUDA_RANKS_H
#define HOKKU_CUDA_RANKS_H

#include "cuda_common.cuh"
#include "engine/backend.h"
#include "model/slice.h"

struct cuda_engine;
struct device;
struct gpu_layer;
struct rank;

// Of engine_params.devices.
static inline uint32_t cuda_n_rank(const struct engine_params *p)
{
    const uint32_t n = (uint32_t)__builtin_popcount(p->devices);
    return n > 1 ? n : 1;
}

// ---- ranks.cu, ranks_open.cu: the engine that callers see

// As cuda_engine_open and cuda_engine_plan, with two devices or more.
struct engine *cuda_ranks_open(const struct model *m, const struct engine_params *p,
                               struct error *err);
bool cuda_ranks_plan(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                     struct error *err);

// ---- rank.cu: for the engine of a rank, in its thread

// The ranks' memory is known to each other, and zero. Called by all while they are opened, when
// their memory is placed. Errors: ERR_FAIL, and those of other ranks.
bool cuda_rank_join(struct cuda_engine *e, struct error *err);
// Whether the call under way is to end: rank 0 looks, the others do as it does. Each rank asks as
// often.
bool cuda_rank_interrupted(struct cuda_engine *e);
// How long a thread has waited, as long as it looked: what it was stopped for does not count.
struct rank_watch {
    double last, used; // seconds
    bool failed;
};
// Whether no other device has failed, for who waits for his own, nor any has kept all waiting for
// so long that it will not answer.
bool cuda_ranks_alive(struct cuda_engine *e, struct rank_watch *w, struct error *err);
// For the event (NULL: all that is enqueued), but not for ever.
bool cuda_rank_wait(struct cuda_engine *e, cudaEvent_t event, struct error *err);

// What n rows, from row0 on, of a product that ends a block, in s.up, become, which are a part of a
// sum on each rank: the end of the block, x += residual_scale * the sum + bias, or where that is to
// be normed the sum + bias, in s.up. Nothing on one device.
bool cuda_sum_parts(const struct cuda_engine *e, uint32_t row0, const float *bias, bool normed,
                    uint32_t n, const uint32_t *skip, struct error *err);
// y (n, n_embd) = the sum of all ranks' y + bias (NULL: none). Nothing on one device.
bool cuda_sum_apart(const struct cuda_engine *e, float *y, const float *bias, uint32_t n,
                    const uint32_t *skip, struct error *err);
// A sum of so many rows that it goes in spans, for its kernel to be loaded.
bool cuda_enqueue_sum(const struct cuda_engine *e, struct error *err);
// Whether the product of a matrix that ends a block is a part of a sum: not where all have all of
// it.
bool cuda_is_part(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w);
// The layer of the whole model, of which e has a slice.
const struct layer *cuda_whole_layer(const struct cuda_engine *e, const struct layer *slice);
// Whether queries and keys are normed over the heads of all ranks: then by this, behind their
// projections. n rows; else nothing.
bool cuda_norms_across(const struct cuda_engine *e, const struct layer *slice);
bool cuda_norm_heads(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                     const uint32_t *skip, struct error *err);
// The same of what a state space gives, y (n, n_inner), where ranks have heads of one group.
bool cuda_norms_group_across(const struct cuda_engine *e, const struct layer *slice);
bool cuda_norm_group(const struct cuda_engine *e, const struct gpu_layer *l, float *y, uint32_t n,
                     const uint32_t *skip, struct error *err);
// s.logits (n, n_vocab) = all ranks' s.part_logits. Nothing on one device.
bool cuda_gather_logits(const struct cuda_engine *e, uint32_t n, const uint32_t *skip,
                        struct error *err);

// ---- engine.cu: what a rank is

bool cuda_slice_plan(const struct model *slice, const struct engine_params *p,
                     const struct device *d, struct engine_plan *plan, struct error *err);
struct cuda_engine *cuda_slice_open(const struct model *slice, const struct engine_params *p,
                                    const struct device *d, uint32_t n_ctx, struct rank *rank,
                                    struct error *err);
// ERR_MEMORY, with the sizes and what would fit.
bool cuda_does_not_fit(const struct engine_plan *p, const char *device, struct error *err);
extern const struct backend cuda_backend;
// Waits for the oldest pick asked for, which backend.pick_take then has at once. *finite: false if
// it is the error of a logit that is not.
bool cuda_pick_wait(struct cuda_engine *e, const struct seq *s, const struct cancel *cancel,
                    bool *finite, struct error *err);
// backend.pick_take has been called for another rank.
void cuda_pick_taken(struct cuda_engine *e, const struct seq *s);

#endif
