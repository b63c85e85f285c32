// The facts of a mixture of experts: which layers have one, and how it is routed.
#include "model/layer_weights.h"

static bool has_choice_bias(const struct meta *k, uint32_t n_layer)
{
    char name[TENSOR_NAME_MAX];
    for (uint32_t i = 0; i < n_layer; i++)
        if (gguf_find_tensor(k->g, layer_tensor_name(name, i, "exp_probs_b.bias")) ||
            gguf_find_tensor(k->g, choice_bias_short(name, i)))
            return true;
    return false;
}

static bool read_gate(struct meta *k, const struct arch *a, uint32_t n_layer, struct experts *x)
{
    uint32_t gate = 0;
    x->gate = a->choice_by_sigmoid && has_choice_bias(k, n_layer) ? EXPERT_SIGMOID : a->expert_gate;
    x->normed = a->experts_normed;
    x->weighs_input = a->experts_weigh_input;
    if (!meta_u32(k, "expert_gating_func", false, 0, 2, &gate))
        return false;
    if (gate)
        x->gate = gate == 2 ? EXPERT_SIGMOID : EXPERT_SOFTMAX;
    meta_find(k, "expert_weights_norm");
    if (!gguf_get_bool(k->g, k->key, false, &x->normed, k->err) ||
        !meta_f32_or_0(k, "expert_weights_scale", false, 1e6, &x->scale))
        return false;
    if (x->scale == 0) // says as much as no such key
        x->scale = 1;
    return true;
}

static bool read_groups(struct meta *k, struct experts *x)
{
    if (!meta_u32(k, "expert_group_count", false, 0, x->n, &x->n_group))
        return false;
    if (x->n_group == 0)
        x->n_group = 1;
    if (x->n % x->n_group)
        return error_set(k->err, ERR_MODEL,
                         "%s.expert_count %u is not a multiple of the %u groups (%s)", k->arch,
                         x->n, x->n_group, k->key);
    x->n_group_used = x->n_group;
    if (!meta_u32(k, "expert_group_used_count", x->n_group > 1, x->n_group > 1, x->n_group,
                  &x->n_group_used))
        return false;
    if (x->n_group_used == 0)
        x->n_group_used = 1;
    const uint32_t n = x->n / x->n_group * x->n_group_used;
    return x->n_used <= n ||
           error_set(k->err, ERR_MODEL,
                     "%s.expert_used_count is %u, expected 1 to %u: the experts of %u groups of "
                     "%u (%s)",
                     k->arch, x->n_used, n, x->n_group_used, x->n_group, k->key);
}

// Layers before the first that has a router.
static uint32_t n_without_router(const struct meta *k, uint32_t n_layer)
{
    char name[TENSOR_NAME_MAX];
    uint32_t n = 0;
    while (n < n_layer && !gguf_find_tensor(k->g, layer_tensor_name(name, n, "ffn_gate_inp")))
        n++;
    return n < n_layer ? n : 0;
}

static const uint32_t most_wide = 1u << 24;

// As the file says it of each layer, whether that has experts or not.
static bool read_widths(struct meta *k, const struct arch *a, struct model *m, uint32_t *n_shared,
                        uint32_t *n_latent)
{
    const uint32_t n = m->hp.n_layer;
    struct layer *const first = m->layers;
    return (!a->experts_latent || meta_u32(k, "moe_latent_size", false, 0, 1u << 20, n_latent)) &&
           meta_per_layer(k, "expert_shared_feed_forward_length", false, n, 0, most_wide,
                          &first->experts.n_ff_shared, sizeof *first) &&
           meta_u32(k, "expert_shared_count", false, 0, 4096, n_shared) &&
           meta_per_layer(k, "expert_feed_forward_length", false, n, 0, most_wide,
                          &first->experts.n_ff, sizeof *first);
}

// Of layer i, which has experts: what else the file says takes the place of what it does not.
static bool set_widths(struct meta *k, const struct arch *a, uint32_t i, uint32_t n_ff,
                       uint32_t n_shared, struct experts *x)
{
    if (!meta_find(k, "expert_feed_forward_length")) {
        if (n_ff == 0 || a->experts_beside)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s is missing, and feed_forward_length gives no width "
                             "of experts in its place",
                             k->key);
        x->n_ff = n_ff;
    }
    if (x->n_ff == 0)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is 0 at layer %u, expected 1 to %u: it has experts",
                         k->key, i, most_wide);
    uint64_t width = x->n_ff_shared;
    if (a->shared == SHARED_SAME)
        width = x->n_ff;
    if (a->shared == SHARED_BY_COUNT)
        width = (uint64_t)n_shared * (width ? width : x->n_ff);
    x->n_ff_shared = (uint32_t)width;
    return width <= most_wide ||
           error_set(k->err, ERR_MODEL,
                     "metadata key %s.expert_shared_count is %u, and the shared "
                     "experts %llu wide, expected at most %u",
                     k->arch, n_shared, (unsigned long long)width, most_wide);
}

// Of a model without experts the file may say how they would be routed, and how wide they would be.
static void pass_over(struct meta *k)
{
    static const char *const names[] = {
        "expert_used_count",          "expert_gating_func",
        "expert_weights_norm",        "expert_weights_scale",
        "expert_group_count",         "expert_group_used_count",
        "expert_feed_forward_length", "expert_shared_feed_forward_length",
        "expert_shared_count",        "leading_dense_block_count",
        "interleave_moe_layer_step",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        meta_find(k, names[i]);
}

bool experts_read(struct meta *k, const struct arch *a, struct model *m)
{
    const uint32_t n_layer = m->hp.n_layer;
    struct experts x = {.n_ff = 0};
    uint32_t dense = 0, step = 1, n_shared = 0;
    const bool required = a->experts == HAS_EXPERTS, none = a->experts == NO_EXPERTS;
    if (!meta_u32(k, "expert_count", required, required, none ? UINT32_MAX : 4096, &x.n))
        return false;
    if (none && x.n > 0)
        return error_set(k->err, ERR_MODEL,
                         "the model has %u experts per layer (%s); hokku knows this architecture "
                         "without experts only",
                         x.n, k->key);
    if (x.n == 0) {
        pass_over(k);
        return true;
    }
    if (!meta_u32(k, "expert_used_count", true, 1, x.n, &x.n_used) ||
        !read_gate(k, a, n_layer, &x) || !read_groups(k, &x) ||
        !read_widths(k, a, m, &n_shared, &x.n_latent) ||
        !meta_u32(k, "leading_dense_block_count", false, 0, n_layer, &dense) ||
        !meta_u32(k, "interleave_moe_layer_step", false, 1, UINT32_MAX, &step))
        return false;
    if (a->dense_unsaid && !meta_find(k, "leading_dense_block_count"))
        dense = n_without_router(k, n_layer);
    for (uint32_t i = 0; i < n_layer; i++) {
        struct layer *l = &m->layers[i];
        x.n_ff = l->experts.n_ff;
        x.n_ff_shared = l->experts.n_ff_shared;
        l->experts = (struct experts){0};
        if (i < dense || (i + 1) % step || (a->one_part && l->n_ff == 0))
            continue;
        if (!set_widths(k, a, i, l->n_ff, n_shared, &x))
            return false;
        l->experts = x;
        if (a->shared_averaged && x.n_ff_shared > 0)
            l->experts.scale /= 2;
        if (!a->experts_beside)
            l->n_ff = 0;
    }
    return true;
}
