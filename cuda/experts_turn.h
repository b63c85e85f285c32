// Rows of a pass or a prompt that go through the experts of a layer together (forward_experts.cu),
// and the experts' products with them in float16 (forward_experts_half.cu).
#ifndef HOKKU_CUDA_EXPERTS_TURN_H
#define HOKKU_CUDA_EXPERTS_TURN_H

#include "engine_impl.h"

// What the products of a turn share.
struct turn {
    const struct cuda_engine *e;
    const struct gpu_layer *l;
    uint32_t n, per_item; // rows; of an item at most
    bool half;            // by expert_hopper.cu,
    // or expert_few.cu, which gives the same bits: the chosen ones, the shared one
    bool few, few_shared;
    bool aside; // the shared expert in the side's queue
    const uint32_t *skip;
};

// What experts read: rows, ld floats apart, which a norm with these weights is still to be taken
// of; NULL: it has been. few: the chosen ones have them as expert_few.cu takes them.
struct rows_in {
    const float *x, *norm;
    uint32_t ld;
    bool few;
};

// What the shared expert gives, if there is one, to experts.shared_out; and what the chosen ones
// do, to experts.out by place.
bool cuda_feed_shared_half(const struct turn *t, const struct rows_in *from, struct error *err);
bool cuda_feed_chosen_half(const struct turn *t, const struct rows_in *from, struct error *err);

#endif
