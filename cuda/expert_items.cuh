// What expert_hopper.cu and expert_few.cu have in common: items, and what sums are finished with.
#ifndef HOKKU_CUDA_EXPERT_ITEMS_CUH
#define HOKKU_CUDA_EXPERT_ITEMS_CUH

#include "experts.h"
#include "gemm.cuh"

static __device__ __forceinline__ struct expert_item item_at(const struct expert_gemm &m,
                                                             uint32_t i)
{
    const uint32_t first = i * m.per_item;
    return m.items ? m.items[i] : expert_item{0, first, min(m.n_place - first, m.per_item)};
}

static inline struct widening expert_widening(const struct expert_gemm *m)
{
    struct gemm g = {};
    g.w[0] = m->w[0];
    g.w[1] = m->w[1];
    g.w[0].scale = 1.0f; // see product_scale
    return gemm_widening(&g, 0, m->gated ? 2 : 1);
}

#endif
