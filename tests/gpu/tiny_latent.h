// Latent attention for the small random model of tests.
#ifndef HOKKU_TESTS_GPU_TINY_LATENT_H
#define HOKKU_TESTS_GPU_TINY_LATENT_H

#include "tiny_experts.h"

static inline void name_latents(struct layer *l)
{
    static const struct {
        enum layer_weight w;
        const char *name, *group;
    } names[] = {
        {ATTN_Q_A, "attn_q_a", "attn_q_a+attn_kv_a_mqa"},
        {ATTN_Q_B, "attn_q_b", "attn_q_b"},
        {ATTN_Q, "attn_q", "attn_q+attn_kv_a_mqa"},
        {ATTN_K_B, "attn_k_b", "attn_k_b"},
        {ATTN_V_B, "attn_v_b", "attn_v_b"},
        {ATTN_OUTPUT, "attn_output", "attn_output"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        l->w[names[i].w].name = names[i].name;
        l->w[names[i].w].group = names[i].group;
        l->w[names[i].w].n_used = l->w[names[i].w].n_stacked; // all heads
    }
    l->w[ATTN_KV_A].name = "attn_kv_a_mqa";
    l->w[ATTN_KV_A].group = l->w[l->latent.n_q > 0 ? ATTN_Q_A : ATTN_Q].group;
}

// Layer 0 with queries from a latent, layer 1 with keys' rows. wide: layer 0 has so many sums over
// rows of several chunks that another order of adding shows, although they become float16.
static inline void add_latents(struct model *m, bool wide)
{
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        struct layer *l = &m->layers[i];
        const bool large = i == 0 && wide;
        const uint32_t n_b = m->ropes[0].n_dim, n_key = 6, n_value = large ? 240 : 8;
        const uint32_t n_kv = large ? 128 : i ? 32 : 21;
        l->latent = (struct latent){
            .n_kv = n_kv, .n_q = i ? 0 : 20, .n_key = n_key, .n_value = n_value, .expands = i};
        l->head_dim = n_kv + n_b;
        l->n_head_kv = 1;
        l->attn_scale = 0.25f;
        l->w[ATTN_K].data = l->w[ATTN_V].data = l->w[ATTN_Q].data = NULL;
        if (i == 0) {
            add_stack(l, ATTN_Q_A, 0, QUANT_F16, 0, 20, TINY_EMBD);
            add_vector(l, ATTN_Q_A_NORM, 0, 20, 1.4f);
            add_stack(l, ATTN_Q_B, 1, QUANT_F16, 0, l->n_head * (n_key + n_b), 20);
        } else {
            add_stack(l, ATTN_Q, 8, QUANT_Q4_0, 0, l->n_head * (n_key + n_b), TINY_EMBD);
        }
        add_stack(l, ATTN_KV_A, 8 * i + 2, QUANT_Q8_0, 0, n_kv + n_b, TINY_EMBD);
        add_vector(l, ATTN_KV_A_NORM, 1 + i, n_kv, 1.0f);
        add_stack(l, ATTN_K_B, 8 * i + 3, i ? QUANT_Q5_0 : QUANT_F16, l->n_head, i ? n_key : n_kv,
                  i ? n_kv : n_key);
        add_stack(l, ATTN_V_B, 8 * i + 4, i || wide ? QUANT_Q8_0 : QUANT_BF16, l->n_head, n_value,
                  n_kv);
        if (large)
            add_stack(l, ATTN_OUTPUT, 5, QUANT_Q8_0, 0, TINY_EMBD, l->n_head * n_value);
        name_latents(l);
    }
}

#endif
