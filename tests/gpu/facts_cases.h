// The facts that test_facts.c changes in a small random model, each by itself or some together.
#ifndef HOKKU_TESTS_GPU_FACTS_CASES_H
#define HOKKU_TESTS_GPU_FACTS_CASES_H

#include "facts_reference.h"
#include "tiny_latent.h"

static void post_norms(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_POST_NORM, 2 * i, TINY_EMBD, 0.9f);
        add_vector(&m->layers[i], FFN_POST_NORM, 2 * i + 1, TINY_EMBD, 1.1f);
    }
}

static void gelu(struct model *m)
{
    m->layers[0].act = m->layers[1].act = ACT_GELU_TANH;
}

static void different_activations(struct model *m)
{
    m->layers[1].act = ACT_GELU_TANH;
}

static void scales(struct model *m)
{
    m->hp.embd_scale = 5.6f;
    m->hp.residual_scale = 0.22f;
    m->hp.logit_scale = 0.125f;
}

static void softcap(struct model *m)
{
    m->hp.final_softcap = 2.0f;
}

static void positions(struct model *m)
{
    static float rows[N_CTX][TINY_EMBD];
    random_blocks(QUANT_F32, rows, sizeof rows, 0.7, 79);
    m->pos_embd = (struct weight){.name = "position_embd",
                                  .group = "position_embd",
                                  .type = QUANT_F32,
                                  .rows = N_CTX,
                                  .n_cols = TINY_EMBD,
                                  .data = rows,
                                  .n_bytes = sizeof rows,
                                  .tensor = m->tok_embd.tensor};
    m->ropes[0].layout = ROPE_NONE;
    m->ropes[0].n_dim = 0;
    m->hp.embd_scale = 1.5f;
}

static void normed_only_after(struct model *m)
{
    post_norms(m);
    for (uint32_t i = 0; i < N_LAYER; i++)
        m->layers[i].w[ATTN_NORM].data = m->layers[i].w[FFN_NORM].data = NULL;
    m->hp.embd_scale = 30.0f; // inputs that no norm has made small
}

static void all_scales_and_post_norms(struct model *m)
{
    post_norms(m);
    scales(m);
    gelu(m);
    softcap(m);
}

static void biases(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_OUTPUT_BIAS, 2 * i, TINY_EMBD, 0.3f);
        add_vector(&m->layers[i], FFN_DOWN_BIAS, 2 * i + 1, TINY_EMBD, -0.2f);
    }
}

static void biases_and_post_norms(struct model *m)
{
    post_norms(m);
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_OUTPUT_BIAS, 4 + 2 * i, TINY_EMBD, 0.3f);
        add_vector(&m->layers[i], FFN_DOWN_BIAS, 5 + 2 * i, TINY_EMBD, -0.2f);
    }
}

static void two_rotations(struct model *m)
{
    m->n_rope = 2;
    m->ropes[1] = m->ropes[0];
    m->ropes[1].layout = ROPE_HALVES;
    m->ropes[1].n_dim = 6;
    m->ropes[1].theta = 100.0f;
    m->ropes[1].scaling = ROPE_SCALING_LINEAR;
    m->ropes[1].factor = 2.0f;
    m->layers[1].rope = 1;
}

static void no_rotation(struct model *m)
{
    m->n_rope = 2;
    m->ropes[1] = (struct rope){.layout = ROPE_NONE, .factor = 1, .attn_factor = 1};
    m->layers[0].rope = 1;
}

static void windows(struct model *m)
{
    m->layers[0].window = 7;
}

static void attention_facts(struct model *m)
{
    m->layers[0].attn_scale = 0.11f;
    m->layers[1].attn_scale = 2.5f;
    m->layers[1].attn_softcap = 1.5f;
    m->hp.attn_temp_scale = 0.4f;
    m->hp.attn_temp_len = 8;
}

static void norms_of_queries_and_keys(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = &m->layers[i];
        const bool whole = i == 1;
        l->qk_norm = whole ? QK_NORM_WHOLE : QK_NORM_HEAD;
        l->qk_norm_rotated = !whole;
        add_vector(l, ATTN_Q_NORM, 2 * i, whole ? l->n_head * l->head_dim : l->head_dim, 1.2f);
        add_vector(l, ATTN_K_NORM, 2 * i + 1, whole ? l->n_head_kv * l->head_dim : l->head_dim,
                   0.8f);
    }
}

static void ungated(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        m->layers[i].w[FFN_GATE].data = NULL;
        add_vector(&m->layers[i], FFN_UP_BIAS, i, TINY_FF, 0.2f);
    }
    m->layers[0].act = ACT_RELU_SQR;
    m->layers[1].act = ACT_GELU_TANH;
}

static void exact_gelu(struct model *m)
{
    m->layers[0].act = m->layers[1].act = ACT_GELU;
    m->layers[1].w[FFN_GATE].data = NULL;
}

static void gates_with_biases(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++)
        add_vector(&m->layers[i], FFN_GATE_BIAS, i, TINY_FF, 0.3f);
    add_vector(&m->layers[1], FFN_UP_BIAS, N_LAYER, TINY_FF, -0.2f);
}

static void gates_that_grow(struct model *m)
{
    m->layers[0].act = ACT_XIELU;
    m->layers[0].xielu = XIELU;
    m->layers[1].act = ACT_RELU_SQR;
    add_vector(&m->layers[1], FFN_UP_BIAS, 0, TINY_FF, 0.2f);
}

static void parallel(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        m->layers[i].parallel = true;
        m->layers[i].w[FFN_NORM].data = NULL;
    }
}

static void layer_norms(struct model *m)
{
    m->hp.norm = NORM_LAYER;
    for (uint32_t i = 0; i < N_LAYER; i++) {
        add_vector(&m->layers[i], ATTN_NORM_BIAS, 2 * i, TINY_EMBD, 0.1f);
        add_vector(&m->layers[i], FFN_NORM_BIAS, 2 * i + 1, TINY_EMBD, -0.1f);
    }
    m->output_norm_bias = m->layers[0].w[ATTN_NORM_BIAS];
}

static void layer_norms_of_each_head(struct model *m)
{
    layer_norms(m); // vectors 0 to 3
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = &m->layers[i];
        l->qk_norm = QK_NORM_HEADS;
        l->qk_norm_rotated = i;
        add_vector(l, ATTN_Q_NORM, 4 + 2 * i, l->n_head * l->head_dim, 1.2f);
        add_vector(l, ATTN_K_NORM, 5 + 2 * i, l->n_head_kv * l->head_dim, 0.8f);
    }
}

static void parallel_layer_norms(struct model *m)
{
    parallel(m);
    m->hp.norm = NORM_LAYER;
}

static void parallel_with_two_norms(struct model *m)
{
    m->layers[0].parallel = m->layers[1].parallel = true;
}

static void parallel_with_two_layer_norms(struct model *m)
{
    layer_norms(m);
    parallel_with_two_norms(m);
}

// One layer has half of the heads, and half of the inner width.
static void layers_of_two_sizes(struct model *m)
{
    struct layer *l = &m->layers[1];
    l->n_head = TINY_HEADS / 2;
    l->n_head_kv = 1;
    l->n_ff = TINY_FF / 2;
    const uint32_t n_q = l->n_head * l->head_dim, rows[] = {n_q, l->head_dim, l->head_dim};
    for (int i = 0; i < 3; i++) {
        l->w[ATTN_Q + i].rows = rows[i];
        l->w[ATTN_Q + i].n_bytes =
            rows[i] * quant_row_bytes(l->w[ATTN_Q + i].type, l->w[ATTN_Q + i].n_cols);
    }
    // plain weights, whose rows may end anywhere
    static uint16_t out[TINY_EMBD][TINY_EMBD / 2], down[TINY_EMBD][TINY_FF / 2];
    random_blocks(QUANT_F16, out, sizeof out, 0.3, 77);
    random_blocks(QUANT_F16, down, sizeof down, 0.3, 78);
    l->w[ATTN_OUTPUT].type = l->w[FFN_DOWN].type = QUANT_F16;
    l->w[ATTN_OUTPUT].n_cols = n_q;
    l->w[ATTN_OUTPUT].data = out;
    l->w[ATTN_OUTPUT].n_bytes = sizeof out;
    l->w[FFN_DOWN].n_cols = l->n_ff;
    l->w[FFN_DOWN].data = down;
    l->w[FFN_DOWN].n_bytes = sizeof down;
    for (int i = FFN_GATE; i <= FFN_UP; i++) {
        l->w[i].rows = l->n_ff;
        l->w[i].n_bytes /= 2;
    }
}

static void sinks(struct model *m)
{
    add_vector(&m->layers[0], ATTN_SINKS, 0, TINY_HEADS, 0.5f);
    add_vector(&m->layers[1], ATTN_SINKS, 1, TINY_HEADS, -1.0f);
    m->layers[1].window = 5;
}

static void chunks_of_attention(struct model *m)
{
    m->layers[0].window = 7;
    m->layers[0].chunked = true;
}

static void norms_without_weights(struct model *m)
{
    m->layers[0].qk_norm = m->layers[1].qk_norm = QK_NORM_BARE;
    m->layers[1].qk_norm_rotated = true;
}

static void grows_where_not_rotated(struct model *m)
{
    no_rotation(m);
    m->hp.attn_temp_scale = 0.9f;
    m->hp.attn_temp_len = 5;
    m->hp.attn_temp_offset = 1;
    m->hp.attn_temp_unrotated = true;
}

static void clamped(struct model *m)
{
    m->layers[0].act = m->layers[1].act = ACT_CLAMPED_SWIGLU;
    m->hp.norm_eps = 1e-5f;
}

static void bias_of_the_logits(struct model *m)
{
    add_vector(&m->layers[0], ATTN_OUTPUT_BIAS, 0, TINY_VOCAB, 0.4f);
    m->output_bias = m->layers[0].w[ATTN_OUTPUT_BIAS];
    m->layers[0].w[ATTN_OUTPUT_BIAS].data = NULL;
    m->hp.logit_scale = 0.5f;
}

// ---- experts

static void mixture(struct model *m)
{
    add_experts(m, 0, MIXED, 7, 2, 64, 0)->experts.normed = true;
    add_experts(m, 1, MXFP4S, 16, 5, 32, 0);
}

static void mixture_beside_dense(struct model *m)
{
    post_norms(m); // vectors 0 to 3
    m->hp.residual_scale = 0.3f;
    add_experts(m, 1, PLAIN, 5, 1, 20, 0)->experts.scale = 2.5f; // rows that fill no tile
}

static void shared_and_groups(struct model *m)
{
    struct layer *a = add_experts(m, 0, MIXED, 12, 3, 32, 24);
    a->experts.gate = EXPERT_SIGMOID;
    a->experts.n_group = 4;
    a->experts.n_group_used = 2;
    a->experts.normed = true;
    a->experts.scale = 1.7f;
    add_vector(a, ROUTER_CHOICE_BIAS, 0, 12, 0.2f);
    struct layer *b = add_experts(m, 1, MXFP4S, 6, 2, 32, 40);
    add_vector(b, SHARED_ROUTER, 1, TINY_EMBD, 0.1f);
    b->experts.gate = EXPERT_SIGMOID;
}

static void biased_experts(struct model *m)
{
    clamped(m);
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = add_experts(m, i, i ? PLAIN : MXFP4S, 6, 2, i ? 20 : 32, 0);
        const uint32_t n_ff = l->experts.n_ff;
        add_vector(l, ROUTER_BIAS, 8 * i, 6, 0.1f);
        add_vector(l, EXPERT_GATE_BIAS, 8 * i + 1, 6 * n_ff, 0.2f);
        add_vector(l, EXPERT_UP_BIAS, 8 * i + 2, 6 * n_ff, -0.3f);
        add_vector(l, EXPERT_DOWN_BIAS, 8 * i + 3, 6 * TINY_EMBD, 0.1f);
        l->experts.normed = true;
    }
}

static void weighed_inputs(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = add_experts(m, i, i ? AS_SHARED : MXFP4S, 8, 3, 32, 32);
        l->experts.gate = EXPERT_SIGMOID;
        l->experts.weighs_input = true;
    }
    add_vector(&m->layers[1], SHARED_ROUTER, 0, TINY_EMBD, 0.1f);
}

// The plain network of layer 1 stays.
static void experts_beside(struct model *m)
{
    struct layer before = m->layers[1];
    post_norms(m); // vectors 0 to 3
    struct layer *l = add_experts(m, 1, MIXED, 6, 2, 32, 0);
    for (int i = FFN_GATE; i <= FFN_DOWN; i++)
        l->w[i].data = before.w[i].data;
    l->n_ff = before.n_ff;
    l->experts.normed = true;
    l->act = ACT_GELU_TANH;
    add_vector(l, DENSE_POST_NORM, 4, TINY_EMBD, 1.2f);
    add_vector(l, EXPERT_NORM, 5, TINY_EMBD, 0.8f);
    add_vector(l, EXPERT_POST_NORM, 6, TINY_EMBD, 1.0f);
    add_vector(l, ROUTER_NORM, 7, TINY_EMBD, 5.0f);
    add_vector(l, EXPERT_DOWN_SCALE, 8, 6, 1.0f);
}

static void keys_of_an_earlier_layer(struct model *m)
{
    norms_of_queries_and_keys(m);
    struct layer *l = &m->layers[1];
    l->kv_back = 1;
    l->qk_norm = QK_NORM_HEAD;
    add_vector(l, ATTN_Q_NORM, 2, l->head_dim, 1.2f);
    l->w[ATTN_K].data = l->w[ATTN_V].data = l->w[ATTN_K_NORM].data = NULL;
    l->window = m->layers[0].window = 9;
}

static void normed_values(struct model *m)
{
    m->layers[0].v_normed = m->layers[1].v_normed = true;
    m->layers[1].w[ATTN_V].data = NULL;
    m->layers[1].qk_norm = QK_NORM_BARE;
}

static void told_of_the_token(struct model *m)
{
    enum { N_TOLD = 10 };
    m->hp.n_embd_layer = N_TOLD;
    m->hp.embd_scale = 3.0f;
    struct layer holder = {.n_ff = 0}; // what is nobody's
    add_stack(&holder, 0, 0, QUANT_F16, 0, TINY_VOCAB, N_LAYER * N_TOLD);
    add_stack(&holder, 1, 1, QUANT_F16, 0, N_LAYER * N_TOLD, TINY_EMBD);
    add_vector(&holder, 2, 0, N_TOLD, 1.3f);
    m->token_layers = holder.w[0];
    m->token_layers_proj = holder.w[1];
    m->token_layers_norm = holder.w[2];
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = &m->layers[i];
        add_stack(l, TOKEN_GATE, 2 + 2 * i, i ? QUANT_F32 : QUANT_Q8_0, 0, N_TOLD, TINY_EMBD);
        add_stack(l, TOKEN_PROJ, 3 + 2 * i, QUANT_F16, 0, TINY_EMBD, N_TOLD);
        add_vector(l, TOKEN_POST_NORM, 1 + i, TINY_EMBD, 0.7f);
        l->act = ACT_GELU_TANH;
    }
    m->layers[1].w[TOKEN_POST_NORM].data = NULL;
}

static void scales_of_layers(struct model *m)
{
    post_norms(m);
    add_vector(&m->layers[0], LAYER_SCALE, 0, 1, 0.6f);
    add_vector(&m->layers[1], LAYER_SCALE, 1, 1, -1.5f);
}

static void scale_behind_what_is_told(struct model *m)
{
    told_of_the_token(m);
    add_vector(&m->layers[0], LAYER_SCALE, 0, 1, -1.4f);
}

static void latent_attention(struct model *m)
{
    add_latents(m, false);
}

static void latent_attention_that_grows(struct model *m)
{
    latent_attention(m);
    m->hp.attn_temp_scale = 0.5f;
    m->hp.attn_temp_len = 5;
    m->hp.attn_temp_offset = 2;
    m->ropes[0].layout = ROPE_HALVES;
}

// ---- layers without attention, and without a feed-forward network

static void lack_attention(struct layer *l, enum mixer mixer)
{
    l->mixer = mixer;
    l->n_head = l->n_head_kv = 0;
    l->w[ATTN_Q].data = l->w[ATTN_K].data = l->w[ATTN_V].data = NULL;
    if (mixer != MIXER_LINEAR)
        l->w[ATTN_OUTPUT].data = NULL;
    if (mixer == MIXER_NONE)
        l->w[ATTN_NORM].data = NULL;
}

static void lack_feed_forward(struct layer *l)
{
    l->n_ff = 0;
    l->w[FFN_NORM].data = l->w[FFN_GATE].data = l->w[FFN_UP].data = l->w[FFN_DOWN].data = NULL;
}

static void a_matrix_for_attention(struct model *m)
{
    scales(m);
    lack_attention(&m->layers[1], MIXER_LINEAR);
}

static void a_matrix_and_biases(struct model *m)
{
    biases_and_post_norms(m);
    lack_attention(&m->layers[0], MIXER_LINEAR);
    lack_feed_forward(&m->layers[0]);
}

static void one_thing_a_layer(struct model *m)
{
    lack_feed_forward(&m->layers[0]);
    lack_attention(&m->layers[1], MIXER_NONE);
}

static void one_thing_a_layer_normed_after(struct model *m)
{
    normed_only_after(m);
    one_thing_a_layer(m);
}

static const struct ssm TWO_GROUPS = {48, 4, 2, 10, 4}, ONE_GROUP = {36, 3, 1, 20, 5};

// To layer i.
static void add_state_space(struct model *m, uint32_t i, struct ssm shape, bool normed)
{
    struct layer *l = &m->layers[i];
    l->ssm = shape;
    const struct ssm *f = &l->ssm;
    const uint32_t n = layer_ssm_channels(l), v = 10 * i, at = 8 * i;
    add_stack(l, SSM_IN, at, i ? QUANT_F16 : QUANT_Q8_0, 0, f->n_inner + n + f->n_head, TINY_EMBD);
    add_vector(l, SSM_CONV, v, n * f->n_conv, 0.2f);
    if (normed)
        add_vector(l, SSM_CONV_BIAS, v + 1, n, 0.1f);
    add_vector(l, SSM_DT, v + 2, f->n_head, -0.5f);
    add_vector(l, SSM_A, v + 3, f->n_head, -0.7f);
    add_vector(l, SSM_D, v + 4, f->n_head, 0.4f);
    if (normed)
        add_vector(l, SSM_NORM, v + 5, f->n_inner, 1.1f);
    add_stack(l, SSM_OUT, at + 1, i ? QUANT_F32 : QUANT_F16, 0, TINY_EMBD, f->n_inner);
}

static void state_spaces(struct model *m)
{
    m->hp.residual_scale = 0.3f;
    for (uint32_t i = 0; i < N_LAYER; i++) {
        lack_attention(&m->layers[i], MIXER_SSM);
        add_state_space(m, i, TWO_GROUPS, true);
    }
}

static void nothing_but_state_spaces(struct model *m)
{
    state_spaces(m);
    for (uint32_t i = 0; i < N_LAYER; i++)
        lack_feed_forward(&m->layers[i]);
}

static void state_spaces_scaled(struct model *m)
{
    scales(m);
    lack_attention(&m->layers[1], MIXER_SSM);
    add_state_space(m, 1, ONE_GROUP, true);
    add_vector(&m->layers[1], ATTN_POST_NORM, 20, TINY_EMBD, 0.9f);
}

static void state_spaces_beside_attention(struct model *m)
{
    m->hp.residual_scale = 0.4f;
    for (uint32_t i = 0; i < N_LAYER; i++)
        add_state_space(m, i, ONE_GROUP, i == 0);
}

static void all_beside_each_other(struct model *m)
{
    state_spaces_beside_attention(m);
    m->layers[0].parallel = m->layers[1].parallel = true;
    m->layers[0].w[FFN_NORM].data = m->layers[1].w[FFN_NORM].data = NULL;
}

// Without gates.
static void experts_on_a_latent(struct model *m)
{
    for (uint32_t i = 0; i < N_LAYER; i++) {
        struct layer *l = add_experts(m, i, i ? PLAIN : MIXED, 8, 3, 32, i ? 24 : 0);
        const uint32_t n_latent = l->experts.n_latent = i ? 12 : 32, at = 8 * i;
        l->act = ACT_RELU_SQR;
        l->experts.weighs_input = l->experts.normed = i;
        l->w[EXPERT_GATE].data = l->w[SHARED_GATE].data = NULL;
        add_stack(l, EXPERT_UP, at + 2, i ? QUANT_BF16 : QUANT_Q4_0, 8, 32, n_latent);
        add_stack(l, EXPERT_DOWN, at + 3, i ? QUANT_F16 : QUANT_Q5_1, 8, n_latent, 32);
        add_stack(l, EXPERT_LATENT, at + 1, i ? QUANT_F16 : QUANT_Q8_0, 0, n_latent, TINY_EMBD);
        add_stack(l, EXPERT_LATENT_UP, at + 7, i ? QUANT_F32 : QUANT_Q8_0, 0, TINY_EMBD, n_latent);
    }
    m->hp.residual_scale = 0.3f;
    add_vector(&m->layers[1], FFN_POST_NORM, 0, TINY_EMBD, 1.1f);
}

// All of layer i, and of its experts each its own.
static void scale_products(struct model *m, uint32_t i)
{
    static float numbers[N_LAYER][N_LAYER_WEIGHTS][MOST_EXPERTS];
    for (int w = 0; w < N_LAYER_WEIGHTS; w++) {
        struct weight *to = &m->layers[i].w[w];
        for (int k = 0; k < MOST_EXPERTS; k++)
            numbers[i][w][k] = 1.0f + 0.4f * (float)sin(3 * w + 5 * k + i);
        to->scale = to->data && !to->vector ? numbers[i][w] : NULL;
        to->scale_each = to->scale && to->n_stacked > 0;
    }
}

static void scaled_products(struct model *m)
{
    all_scales_and_post_norms(m); // vectors 0 to 3
    m->layers[1].w[ATTN_POST_NORM].data = NULL;
    scale_products(m, 0);
    scale_products(m, 1);
}

static void scaled_experts(struct model *m)
{
    biased_experts(m);
    scale_products(m, 0);
    scale_products(m, 1);
}

static void scaled_and_shared_experts(struct model *m)
{
    weighed_inputs(m);
    scale_products(m, 0);
    scale_products(m, 1);
}

static void nothing(struct model *m)
{
    (void)m;
}

static const struct {
    const char *name;
    void (*change)(struct model *);
    bool all_kinds; // of gate and up
} cases[] = {
    {"none", nothing},
    {"norms after blocks", post_norms},
    {"GELU", gelu},
    {"activations that differ", different_activations},
    {"scales", scales},
    {"softcap of the logits", softcap},
    {"norms after blocks alone", normed_only_after, true},
    {"scales, GELU, softcap, norms after blocks", all_scales_and_post_norms, true},
    {"biases", biases},
    {"biases, norms after blocks", biases_and_post_norms},
    {"two rotations", two_rotations},
    {"a layer that is not rotated", no_rotation},
    {"a window in one layer", windows},
    {"layers of two sizes", layers_of_two_sizes},
    {"scales, softcap and temperature of attention", attention_facts},
    {"norms of queries and keys", norms_of_queries_and_keys},
    {"no gates", ungated, true},
    {"exact GELU", exact_gelu},
    {"gates that grow", gates_that_grow},
    {"parallel blocks", parallel},
    {"layer norms with biases", layer_norms},
    {"parallel blocks, layer norms", parallel_layer_norms, true},
    {"parallel blocks with two norms", parallel_with_two_norms},
    {"parallel blocks with two layer norms", parallel_with_two_layer_norms, true},
    {"sinks", sinks, true},
    {"attention within chunks", chunks_of_attention},
    {"norms of queries and keys without weights", norms_without_weights},
    {"queries that grow where they are not rotated", grows_where_not_rotated},
    {"a clamped activation", clamped},
    {"a bias of the logits", bias_of_the_logits},
    {"experts", mixture},
    {"experts in one layer, norms after blocks", mixture_beside_dense},
    {"shared experts, groups", shared_and_groups},
    {"experts with biases", biased_experts},
    {"experts whose inputs are weighed", weighed_inputs},
    {"experts beside a feed-forward network", experts_beside, true},
    {"keys and values of an earlier layer", keys_of_an_earlier_layer},
    {"normed values, keys that are values", normed_values},
    {"layers that are told of the token", told_of_the_token, true},
    {"scales of layers", scales_of_layers},
    {"latent attention", latent_attention},
    {"latent attention that grows", latent_attention_that_grows},
    {"a matrix in the place of attention", a_matrix_for_attention},
    {"a matrix in its place, biases, norms after blocks", a_matrix_and_biases},
    {"attention, then a feed-forward network", one_thing_a_layer},
    {"the same, normed after alone", one_thing_a_layer_normed_after},
    {"state spaces", state_spaces},
    {"state spaces alone", nothing_but_state_spaces},
    {"state spaces, scales, norms after blocks", state_spaces_scaled},
    {"state spaces beside attention", state_spaces_beside_attention},
    {"all beside each other", all_beside_each_other},
    {"experts on a latent", experts_on_a_latent},
    {"layer norms of each head", layer_norms_of_each_head},
    {"scaled products", scaled_products, true},
    {"scaled products of experts", scaled_experts},
    {"scaled products of shared experts", scaled_and_shared_experts},
    {"a scale behind what a layer is told", scale_behind_what_is_told},
    {"gates with biases", gates_with_biases},
    {"positions that are added", positions, true},
};

// Gate and up of two types, which no kernel multiplies at once, and of one.
static void open_case(struct fixture *f, size_t kind, size_t i)
{
    struct tiny t;
    char name[96], block[16];
    tiny_init(&t, "llama");
    for (uint32_t l = 0; kind > 0 && l < N_LAYER; l++) {
        const uint32_t type = kind == 1 ? QUANT_F16 : QUANT_Q8_0;
        snprintf(block, sizeof block, "blk.%u", l);
        tiny_tensor(&t, tiny_name(name, block, "ffn_gate.weight"), type, TINY_EMBD, TINY_FF);
        tiny_tensor(&t, tiny_name(name, block, "ffn_up.weight"), type, TINY_EMBD, TINY_FF);
    }
    open_tiny(f, &t);
    cases[i].change(f->m);
}

#endif
