// Experts for the small random model of tests.
#ifndef HOKKU_TESTS_GPU_TINY_EXPERTS_H
#define HOKKU_TESTS_GPU_TINY_EXPERTS_H

#include <math.h>

#include "tiny_engine.h"

// What is added is numbered, so that all layers have their own.
static uint8_t matrices[16][16 * 64 * TINY_EMBD * 4];
static float vectors[24][16 * TINY_FF];

static inline void add_stack(struct layer *l, enum layer_weight w, uint32_t at, uint32_t type,
                             uint32_t n, uint32_t rows, uint32_t n_cols)
{
    const size_t n_bytes = (n ? n : 1) * rows * quant_row_bytes(type, n_cols);
    assert_true(n_bytes <= sizeof matrices[at]);
    random_blocks(type, matrices[at], n_bytes, 0.4, 100 + at);
    l->w[w] = (struct weight){.name = "ffn_added",
                              .group = "ffn_added",
                              .type = type,
                              .rows = rows,
                              .n_cols = n_cols,
                              .n_stacked = n,
                              .data = matrices[at],
                              .n_bytes = n_bytes,
                              .stack_bytes = n ? n_bytes / n : 0};
}

static inline void add_vector(struct layer *l, enum layer_weight w, uint32_t at, uint32_t n,
                              float about)
{
    for (uint32_t i = 0; i < n; i++)
        vectors[at][i] = about + 0.5f * (float)sin(at + 1.7 * i);
    l->w[w] = (struct weight){.name = "added",
                              .group = "added",
                              .type = QUANT_F32,
                              .rows = 1,
                              .n_cols = n,
                              .vector = true,
                              .data = vectors[at],
                              .n_bytes = n * sizeof(float)};
}

// In the place of layer i's feed-forward network: of which types gate, up and down are.
static inline struct layer *add_experts(struct model *m, uint32_t i, const uint32_t types[3],
                                        uint32_t n, uint32_t n_used, uint32_t n_ff,
                                        uint32_t n_ff_shared)
{
    struct layer *l = &m->layers[i];
    const uint32_t at = 8 * i;
    l->experts = (struct experts){.n = n,
                                  .n_used = n_used,
                                  .n_ff = n_ff,
                                  .n_ff_shared = n_ff_shared,
                                  .scale = 1,
                                  .n_group = 1,
                                  .n_group_used = 1};
    l->n_ff = 0;
    l->w[FFN_GATE].data = l->w[FFN_UP].data = l->w[FFN_DOWN].data = NULL;
    add_stack(l, ROUTER, at, QUANT_F32, 0, n, TINY_EMBD);
    add_stack(l, EXPERT_GATE, at + 1, types[0], n, n_ff, TINY_EMBD);
    add_stack(l, EXPERT_UP, at + 2, types[1], n, n_ff, TINY_EMBD);
    add_stack(l, EXPERT_DOWN, at + 3, types[2], n, TINY_EMBD, n_ff);
    if (n_ff_shared) {
        add_stack(l, SHARED_GATE, at + 4, QUANT_Q8_0, 0, n_ff_shared, TINY_EMBD);
        add_stack(l, SHARED_UP, at + 5, i ? QUANT_Q8_0 : QUANT_F16, 0, n_ff_shared, TINY_EMBD);
        add_stack(l, SHARED_DOWN, at + 6, QUANT_F16, 0, TINY_EMBD, n_ff_shared);
    }
    return l;
}

static const uint32_t MXFP4S[] = {QUANT_MXFP4, QUANT_MXFP4, QUANT_MXFP4},
                      MIXED[] = {QUANT_Q4_0, QUANT_Q5_1, QUANT_F16},
                      PLAIN[] = {QUANT_F16, QUANT_F16, QUANT_BF16},
                      AS_SHARED[] = {QUANT_Q8_0, QUANT_Q8_0, QUANT_F16}; // in layer 1

#endif
