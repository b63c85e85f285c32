// The facts of a model and of its layers: what the metadata and the architecture's row say.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "model/internal.h"

// ---- heads and widths

// Of value heads that metadata key `name` says, which must be as wide as keys.
static bool check_value_length(struct meta *k, const char *name, uint32_t d)
{
    uint32_t value_length = d;
    if (!meta_u32(k, name, false, 2, 4096, &value_length))
        return false;
    if (value_length != d)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %u and the key length %u; only equal ones are "
                         "supported",
                         k->key, value_length, d);
    return true;
}

// How wide heads are: the same in all layers, or in all windowed ones and in all others. 0: no
// layer has any.
struct head_dims {
    uint32_t full, windowed;
};

static bool read_head_dim(struct meta *k, const struct arch *a, struct model *m,
                          struct head_dims *out)
{
    const struct hparams *hp = &m->hp;
    uint32_t n_head = 0, d = 0, windowed;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        if (m->layers[i].n_head > n_head)
            n_head = m->layers[i].n_head;
    if (n_head == 0 && a->state_space)
        return true; // no layer attends
    if (meta_find(k, "attention.key_length")) {
        if (!meta_u32(k, "attention.key_length", true, 2, 4096, &d))
            return false;
    } else {
        if (n_head == 0 || hp->n_embd % n_head)
            return error_set(k->err, ERR_MODEL,
                             "%s.embedding_length %u is not a multiple of the %u heads, and "
                             "%s.attention.key_length is missing",
                             k->arch, hp->n_embd, n_head, k->arch);
        d = hp->n_embd / n_head;
    }
    windowed = d;
    if (!check_value_length(k, "attention.value_length", d))
        return false;
    if (a->windowed_heads && (!meta_u32(k, "attention.key_length_swa", false, 2, 4096, &windowed) ||
                              !check_value_length(k, "attention.value_length_swa", windowed)))
        return false;
    *out = (struct head_dims){d, windowed};
    for (uint32_t i = 0; i < hp->n_layer; i++)
        m->layers[i].head_dim = is_windowed(&m->layers[i]) ? windowed : d;
    return true;
}

// Refuses a key whose value follows from others.
static bool check_follows(struct meta *k, const char *name, uint32_t value)
{
    uint32_t v = value;
    if (!meta_u32(k, name, false, 0, UINT32_MAX, &v))
        return false;
    return v == value || error_set(k->err, ERR_MODEL,
                                   "metadata key %s is %u, expected %u, which follows from others",
                                   k->key, v, value);
}

// Of latent attention. Files of two kinds: those with key_length_mla describe what is kept of a
// token as one KV head, others the heads that could be made of it.
static bool read_latent(struct meta *k, struct model *m, struct head_dims *out)
{
    struct latent x = {.expands = !meta_find(k, "attention.key_length_mla")};
    uint32_t rotated = 0, key = 0;
    const char *const key_length = x.expands ? "attention.key_length" : "attention.key_length_mla";
    const uint32_t even = m->layers[0].n_head > 0 ? m->hp.n_embd / m->layers[0].n_head : 0;
    if (x.expands && even <= 4096) // where the file does not say
        x.n_value = even;
    if (!meta_u32(k, "attention.q_lora_rank", false, 0, 1u << 16, &x.n_q) ||
        !meta_u32(k, "attention.kv_lora_rank", true, 1, 2048, &x.n_kv) ||
        !meta_u32(k, "rope.dimension_count", true, 2, 2048, &rotated) ||
        !meta_u32(k, key_length, true, rotated + 1, 4096, &key) ||
        !meta_u32(k, x.expands ? "attention.value_length" : "attention.value_length_mla",
                  x.n_value == 0, 1, 4096, &x.n_value) ||
        (!x.expands && (!check_follows(k, "attention.key_length", x.n_kv + rotated) ||
                        !check_follows(k, "attention.value_length", x.n_kv))))
        return false;
    x.n_key = key - rotated;
    *out = (struct head_dims){x.n_kv + rotated, x.n_kv + rotated};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        struct layer *l = &m->layers[i];
        const uint32_t kv = x.expands ? l->n_head : 1;
        if (l->n_head_kv != kv)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s.attention.head_count_kv is %u at layer %u, expected "
                             "%u",
                             k->arch, l->n_head_kv, i, kv);
        l->latent = x;
        l->n_head_kv = 1;
        l->head_dim = out->full;
    }
    return true;
}

static bool read_heads(struct meta *k, const struct arch *a, struct model *m, struct head_dims *d)
{
    struct layer *const first = m->layers;
    const uint32_t n = m->hp.n_layer;
    const bool alone = a->state_space == STATE_SPACE_ALONE;
    const bool replaced = alone || a->short_conv; // attention is, in layers without KV heads
    const uint32_t least = a->gaps || replaced ? 0 : 1;
    struct short_conv conv = {.n = m->hp.n_embd};
    bool attends = false;
    if (!meta_per_layer(k, "attention.head_count", true, n, least, 4096, &first->n_head,
                        sizeof *first))
        return false;
    for (uint32_t i = 0; i < n; i++)
        first[i].n_head_kv = first[i].n_head;
    if (a->short_conv && !meta_u32(k, "shortconv.l_cache", true, 2, 64, &conv.n_taps))
        return false;
    if (!meta_per_layer(k, "attention.head_count_kv", false, n, least, 4096, &first->n_head_kv,
                        sizeof *first) ||
        !(a->latent ? read_latent(k, m, d) : read_head_dim(k, a, m, d)))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct layer *l = &first[i];
        if (replaced && l->n_head == 0 && l->n_head_kv > 0)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s.attention.head_count_kv is %u at layer %u, expected "
                             "0, as attention.head_count",
                             k->arch, l->n_head_kv, i);
        l->mixer = l->n_head == 0 ? MIXER_NONE : l->n_head_kv == 0 ? MIXER_LINEAR : MIXER_ATTENTION;
        if (l->mixer != MIXER_ATTENTION && a->short_conv) {
            l->mixer = MIXER_CONV;
            l->conv = conv;
        }
        attends |= l->mixer == MIXER_ATTENTION;
        if (l->mixer != MIXER_ATTENTION)
            l->n_head = l->n_head_kv = 0;
        else if (l->n_head % l->n_head_kv)
            return error_set(k->err, ERR_MODEL,
                             "%u attention heads cannot share %u KV heads evenly "
                             "(%s.attention.head_count, head_count_kv)",
                             l->n_head, l->n_head_kv, k->arch);
    }
    return attends || alone ||
           error_set(k->err, ERR_MODEL,
                     "no layer has attention heads and KV heads, expected one at least "
                     "(%s.attention.head_count, head_count_kv)",
                     k->arch);
}

// Where the file says of each layer whether it is a delta net, that must be what the interval says
// of those that are evaluated.
static bool check_recurrent(struct meta *k, const struct hparams *hp, uint32_t interval)
{
    const struct gguf_kv *kv = meta_find(k, "attention.recurrent_layers");
    if (!kv)
        return true;
    if (kv->type != GGUF_ARRAY || kv->v.a.type != GGUF_BOOL || kv->v.a.count != hp->n_layer)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is no array of a bool for each of %u layers", k->key,
                         hp->n_layer);
    for (uint32_t i = 0; i < n_evaluated(hp); i++) {
        const bool recurrent = (i + 1) % interval != 0;
        if ((gguf_array_i64(&kv->v.a, i) != 0) != recurrent)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s is %s at layer %u, expected %s: of %u layers "
                             "one attends (%s.full_attention_interval)",
                             k->key, recurrent ? "false" : "true", i, recurrent ? "true" : "false",
                             interval, k->arch);
    }
    return true;
}

// Which layers are delta nets, and how wide.
static bool read_delta(struct meta *k, const struct arch *a, struct model *m)
{
    struct delta x = {.in_order = a->delta_in_order};
    uint32_t interval = 4, inner = 0;
    if (!a->delta)
        return true;
    if (!meta_u32(k, "full_attention_interval", false, 1, m->hp.n_layer, &interval) ||
        !check_recurrent(k, &m->hp, interval) ||
        !meta_u32(k, "ssm.conv_kernel", true, 2, 64, &x.n_conv) ||
        !meta_u32(k, "ssm.state_size", true, 1, 1024, &x.n_state) ||
        !meta_u32(k, "ssm.time_step_rank", true, 1, 1024, &x.n_head) ||
        !meta_u32(k, "ssm.group_count", true, 1, 1024, &x.n_key_head) ||
        !meta_u32(k, "ssm.inner_size", true, 1, UINT32_MAX, &inner))
        return false;
    if (inner != x.n_head * x.n_state)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %u, expected %u: %u heads (ssm.time_step_rank) of %u "
                         "(ssm.state_size)",
                         k->key, inner, x.n_head * x.n_state, x.n_head, x.n_state);
    if (x.n_head % x.n_key_head)
        return error_set(k->err, ERR_MODEL,
                         "%u heads cannot share %u key heads evenly (%s.ssm.time_step_rank, "
                         "group_count)",
                         x.n_head, x.n_key_head, k->arch);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        struct layer *l = &m->layers[i];
        if ((i + 1) % interval == 0 || i >= n_evaluated(&m->hp)) {
            l->gated = a->gated;
            continue;
        }
        l->mixer = MIXER_DELTA;
        l->delta = x;
        l->n_head = l->n_head_kv = 0;
    }
    return true;
}

// Which layers have a selective state space, and how wide.
static bool read_state_space(struct meta *k, const struct arch *a, struct model *m)
{
    static const char *const names[] = {"ssm.conv_kernel", "ssm.state_size", "ssm.time_step_rank",
                                        "ssm.group_count", "ssm.inner_size"};
    struct ssm x = {0};
    for (size_t i = 0; a->state_space_named && i < sizeof names / sizeof *names; i++)
        meta_find(k, names[i]);
    if (!a->state_space)
        return true;
    if (!meta_u32(k, "ssm.conv_kernel", true, 2, 64, &x.n_conv) ||
        !meta_u32(k, "ssm.state_size", true, 1, 1024, &x.n_state) ||
        !meta_u32(k, "ssm.time_step_rank", true, 1, 4096, &x.n_head) ||
        !meta_u32(k, "ssm.group_count", true, 1, 4096, &x.n_group) ||
        !meta_u32(k, "ssm.inner_size", true, 1, 1u << 20, &x.n_inner))
        return false;
    if (x.n_inner % x.n_head)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %u, expected a multiple of the %u heads "
                         "(%s.ssm.time_step_rank)",
                         k->key, x.n_inner, x.n_head, k->arch);
    if (x.n_head % x.n_group)
        return error_set(k->err, ERR_MODEL,
                         "%u heads cannot share %u groups evenly (%s.ssm.time_step_rank, "
                         "group_count)",
                         x.n_head, x.n_group, k->arch);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        struct layer *l = &m->layers[i];
        if (a->one_part && layer_feeds(l)) {
            l->mixer = MIXER_NONE;
            l->n_head = l->n_head_kv = 0;
            continue;
        }
        if (l->mixer != MIXER_ATTENTION)
            l->mixer = MIXER_SSM;
        if (l->mixer == MIXER_SSM || a->state_space == STATE_SPACE_BESIDE)
            l->ssm = x;
    }
    return true;
}

// The last layers attend with the keys and values of the last two that have their own: windowed
// ones with those of the first of the two, the others with those of the second.
static bool read_shared_kv(struct meta *k, const struct arch *a, struct model *m)
{
    const uint32_t n = n_evaluated(&m->hp);
    uint32_t n_shared = 0;
    if (!a->shares_kv)
        return true;
    if (!meta_u32_or_f32(k, "attention.shared_kv_layers", 0, n > 2 ? n - 2 : 0, &n_shared))
        return false;
    const uint32_t n_own = n - n_shared;
    for (uint32_t i = n_own; i < n; i++) {
        struct layer *l = &m->layers[i];
        l->kv_back = i + 1 - n_own + is_windowed(l);
        const struct layer *from = l - l->kv_back;
        if (is_windowed(from) != is_windowed(l) || from->n_head_kv != l->n_head_kv ||
            from->mixer != l->mixer)
            return error_set(k->err, ERR_MODEL,
                             "layer %u has no keys and values of its own (%s is %u), and layer "
                             "%u, whose it would use, has another window or another number of KV "
                             "heads",
                             i, k->key, n_shared, i - l->kv_back);
    }
    return true;
}

// ---- windows

static bool set_windows(struct meta *k, const struct arch *a, struct model *m, uint32_t window)
{
    uint32_t period = a->period;
    const struct gguf_kv *kv = meta_find(k, "attention.sliding_window_pattern");
    const bool each = kv && kv->type == GGUF_ARRAY;
    const uint64_t n_told = each ? kv->v.a.count : 0; // which may leave out prediction layers
    if (a->windows_told && !kv)
        return error_set(k->err, ERR_MODEL, "metadata key %s is missing", k->key);
    if (each &&
        (kv->v.a.type != GGUF_BOOL || (n_told != m->hp.n_layer && n_told != n_evaluated(&m->hp))))
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is an array of %llu values of type %s, expected a number "
                         "or a bool for each of %u layers",
                         k->key, (unsigned long long)n_told, gguf_value_type_name(kv->v.a.type),
                         m->hp.n_layer);
    if (kv && !each && a->dense_rotated)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is a number, expected a bool for each of %u layers",
                         k->key, m->hp.n_layer);
    if (kv && !each &&
        !meta_u32(k, "attention.sliding_window_pattern", false, 1, UINT32_MAX, &period))
        return false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        if (each ? i >= n_told || gguf_array_i64(&kv->v.a, i) == 0 : i % period == period - 1)
            continue;
        if (a->window_needed && window == 0)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s.attention.sliding_window is missing, expected how "
                             "many positions layer %u sees",
                             k->arch, i);
        m->layers[i].window = window;
    }
    return true;
}

static bool read_windows(struct meta *k, const struct arch *a, struct model *m)
{
    uint32_t window = a->window;
    if (!meta_u32(k, "attention.sliding_window", false, a->period ? 1 : 0, UINT32_MAX, &window))
        return false;
    if (!has_windows(a, &m->hp))
        window = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].chunked = a->chunked;
    if (a->period)
        return set_windows(k, a, m, window);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].window = window;
    return true;
}

// ---- scales

// YaRN makes queries and keys longer (Peng et al. 2023, sec. 3.4), here by the scores' scale.
static float latent_scale(const struct layer *l, const struct rope *r, float yarn_log)
{
    const double width = l->latent.n_key + l->head_dim - l->latent.n_kv;
    const double longer =
        r->scaling == ROPE_SCALING_YARN ? 1 + (double)yarn_log * log((double)r->factor) : 1;
    return (float)(longer * longer / sqrt(width));
}

// Those of the embedding and of what layers add, and of the logits (Hu et al. 2024, "MiniCPM").
static bool read_outer_scales(struct meta *k, const struct arch *a, struct hparams *hp)
{
    float logit_scale = 1;
    if (a->scales_implied) {
        hp->embd_scale = 12;
        hp->residual_scale = 1.4f / sqrtf((float)n_evaluated(hp));
        logit_scale = (float)hp->n_embd / 256;
    }
    if (a->scales && (!meta_f32(k, "embedding_scale", false, 1e6, &hp->embd_scale) ||
                      !meta_f32(k, "residual_scale", false, 1e6, &hp->residual_scale)))
        return false;
    if (a->logit_scale && !meta_f32(k, "logit_scale", !a->scales_implied, 1e6, &logit_scale))
        return false;
    hp->logit_scale = a->logit_scale == LOGITS_DIVIDED ? 1 / logit_scale : logit_scale;
    return true;
}

static bool read_scales(struct meta *k, const struct arch *a, struct model *m)
{
    struct hparams *hp = &m->hp;
    float attn_scale = 0, attn_softcap = a->attn_softcap, yarn_log = 0, qkv_clamp = 0;
    if (!meta_f32_or_0(k, "rope.scaling.yarn_log_multiplier", false, 100, &yarn_log))
        return false;
    if (a->qkv_clamped && !meta_f32_or_0(k, "attention.clamp_kqv", false, 1e6, &qkv_clamp))
        return false;
    hp->final_softcap = a->final_softcap;
    if (!read_outer_scales(k, a, hp) ||
        (a->scales && !a->latent && !meta_f32(k, "attention.scale", false, 1e6, &attn_scale)))
        return false;
    if ((a->attn_softcaps &&
         !meta_f32_or_0(k, "attn_logit_softcapping", false, 1e6, &attn_softcap)) ||
        (a->final_softcaps &&
         !meta_f32_or_0(k, "final_logit_softcapping", false, 1e6, &hp->final_softcap)))
        return false;
    if (a->temperature &&
        !meta_f32_or_0(k, "attention.temperature_scale", false, 1e3, &hp->attn_temp_scale))
        return false;
    hp->attn_temp_len = m->ropes[0].orig_ctx;
    if (a->temperature_length &&
        !meta_u32(k, "attention.temperature_length", hp->attn_temp_scale > 0, 1, 1u << 30,
                  &hp->attn_temp_len))
        return false;
    if (a->unrotated_temperature) {
        hp->attn_temp_unrotated = true;
        hp->attn_temp_scale = 0.1f;
        hp->attn_temp_len = 8192;
        hp->attn_temp_offset = 1;
        if (!meta_f32_or_0(k, "attention.temperature_scale", false, 1e3, &hp->attn_temp_scale) ||
            !meta_u32(k, "attention.temperature_length", false, 1, 1u << 30, &hp->attn_temp_len))
            return false;
    }
    if (a->embd_sqrt)
        hp->embd_scale = sqrtf((float)hp->n_embd);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        struct layer *l = &m->layers[i];
        l->attn_softcap = attn_softcap;
        l->qkv_clamp = l->n_head > 0 ? qkv_clamp : 0;
        l->v_normed = a->v_normed && l->n_head > 0;
        l->attn_scale = l->latent.n_kv > 0  ? latent_scale(l, &m->ropes[0], yarn_log)
                        : attn_scale > 0    ? attn_scale
                        : a->attn_scale > 0 ? a->attn_scale
                        : a->n_layer_embd_scale == n_evaluated(hp) && l->n_head > 0
                            ? sqrtf((float)l->n_head / (float)hp->n_embd)
                            : 1.0f / sqrtf(l->head_dim > 0 ? (float)l->head_dim : 1);
    }
    return true;
}

// Whether what layers add is made of their input alone.
static bool read_parallel(struct meta *k, const struct arch *a, struct model *m)
{
    bool parallel = a->second_norm;
    if (a->parallel_told) {
        meta_find(k, "use_parallel_residual");
        if (!gguf_get_bool(k->g, k->key, true, &parallel, k->err))
            return false;
    }
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].parallel = parallel;
    return true;
}

static bool read_told(struct meta *k, const struct arch *a, struct model *m)
{
    return !a->told ||
           meta_u32(k, "embedding_length_per_layer_input", false, 0, 1u << 16, &m->hp.n_embd_layer);
}

// Streams beside the residual one; the files count that one, too.
static bool read_altup(struct meta *k, const struct arch *a, struct model *m)
{
    uint32_t n = 0, active = 0;
    bool scaled = true;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].n_laurel = m->layers[i].mixer == MIXER_ATTENTION ? a->laurel : 0;
    if (!a->altup)
        return true;
    if (!meta_u32(k, "altup.num_inputs", true, 2, 1 + MODEL_MAX_SIDE, &n) ||
        !meta_u32(k, "altup.active_idx", false, 0, UINT32_MAX, &active))
        return false;
    m->hp.n_side = n - 1;
    if (active != 0)
        return error_set(k->err, ERR_MODEL, "metadata key %s is %u; only 0 is supported", k->key,
                         active);
    meta_find(k, "altup.correct_scale");
    return gguf_get_bool(k->g, k->key, false, &scaled, k->err) &&
           (scaled || error_set(k->err, ERR_MODEL,
                                "metadata key %s is false; only true is supported", k->key));
}

// Of each layer, minus infinity where gates are left as they are.
static bool read_sparsity(struct meta *k, const struct arch *a, struct model *m)
{
    static const char name[] = "activation_sparsity_scale";
    if (!a->sparse)
        return true;
    const struct gguf_kv *kv = meta_find(k, name);
    if (!kv)
        return error_set(k->err, ERR_MODEL, "metadata key %s is missing", k->key);
    if (kv->type != GGUF_ARRAY || kv->v.a.type != GGUF_FLOAT32 || kv->v.a.count != m->hp.n_layer)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is no array of a float for each of %u layers", k->key,
                         m->hp.n_layer);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const double v = gguf_array_f64(&kv->v.a, i);
        if (v == -INFINITY)
            continue;
        if (!(fabs(v) <= 100))
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s is %g at layer %u, expected -100 to 100, or minus "
                             "infinity",
                             k->key, v, i);
        m->layers[i].sparse = true;
        m->layers[i].sparsity = (float)v;
    }
    return true;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static bool read_activation(struct meta *k, const struct arch *a, struct model *m)
{
    struct xielu *first = &m->layers[0].xielu;
    const uint32_t n = m->hp.n_layer, stride = sizeof *m->layers;
    for (uint32_t i = 0; i < n; i++)
        m->layers[i].act = a->act;
    if (a->act != ACT_XIELU)
        return true;
    if (!meta_f32_per_layer(k, "xielu.alpha_p", n, &first->p, stride) ||
        !meta_f32_per_layer(k, "xielu.alpha_n", n, &first->n, stride) ||
        !meta_f32_per_layer(k, "xielu.beta", n, &first->beta, stride) ||
        !meta_f32_per_layer(k, "xielu.eps", n, &first->eps, stride))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct xielu *x = &m->layers[i].xielu;
        x->p = softplus(x->p);
        x->n = x->beta + softplus(x->n);
    }
    return true;
}

// ---- the whole

// Things that would change the computation and that no row of the table has.
static bool refuse_unsupported(struct meta *k, const struct arch *a, const struct hparams *hp)
{
    bool causal = true;
    if (a->n_layer_alibi > 0 && hp->n_layer == a->n_layer_alibi)
        return error_set(k->err, ERR_MODEL,
                         "%s.block_count is %u: models of so many layers of this architecture have "
                         "ALiBi in place of rotations, which is not supported",
                         k->arch, hp->n_layer);
    meta_find(k, "attention.causal");
    if (!gguf_get_bool(k->g, k->key, false, &causal, k->err))
        return false;
    return causal ||
           error_set(k->err, ERR_MODEL,
                     "%s is false: this is an embedding model, it does not generate text", k->key);
}

// The last layers of the file, where it has such, guess at tokens after the next one: whatever the
// family, they are layers like the others, which nothing else needs.
static bool read_prediction(struct meta *k, const struct arch *a, struct hparams *hp)
{
    hp->hidden_normed = a->predicts == PREDICTION_OF_NORMED;
    return meta_u32(k, "nextn_predict_layers", false, 0, hp->n_layer - 1, &hp->n_layer_predict);
}

// Every layer has a feed-forward network, of experts or a plain one, of which the metadata say how
// wide it is.
static bool check_feeds(struct meta *k, const struct arch *a, const struct model *m)
{
    for (uint32_t i = 0; i < n_evaluated(&m->hp) && !a->gaps; i++) {
        const struct layer *l = &m->layers[i];
        if (l->n_ff > 0 || (l->experts.n > 0 && !a->experts_beside))
            continue;
        if (!meta_find(k, "feed_forward_length"))
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s is missing, expected the width of the feed-forward "
                             "network of layer %u",
                             k->key, i);
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is 0 at layer %u, expected 1 to %u: the width of its "
                         "feed-forward network",
                         k->key, i, 1u << 24);
    }
    return true;
}

static bool halve_feeds(struct meta *k, const struct arch *a, struct model *m)
{
    for (uint32_t i = 0; a->ff_halved && i < m->hp.n_layer; i++) {
        if (m->layers[i].n_ff % 2 != 0)
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s.feed_forward_length is %u, expected an even number, "
                             "since feed-forward networks are half as wide",
                             k->arch, m->layers[i].n_ff);
        m->layers[i].n_ff /= 2;
    }
    return true;
}

static bool read_all(struct meta *k, const struct arch *a, struct model *m)
{
    struct hparams *hp = &m->hp;
    const size_t n_tensors = gguf_n_tensors(m->gguf);
    struct head_dims d = {0};
    *hp = (struct hparams){.norm = a->norm, .embd_scale = 1, .residual_scale = 1};
    if (a->norm_told && meta_find(k, "attention.layer_norm_rms_epsilon"))
        hp->norm = NORM_RMS;
    if (n_tensors == 0)
        return error_set(k->err, ERR_MODEL, "has no tensors: a vocabulary, not a model");
    if (!meta_u32(k, "block_count", true, 1, 4096, &hp->n_layer))
        return false;
    if (hp->n_layer > n_tensors)
        return error_set(k->err, ERR_MODEL, "%s.block_count is %u, but the file has %zu tensors",
                         k->arch, hp->n_layer, n_tensors);
    m->layers = calloc(hp->n_layer, sizeof *m->layers);
    if (!m->layers)
        return error_oom(k->err, "layer table", hp->n_layer * sizeof *m->layers);
    return meta_u32(k, "embedding_length", true, 1, 1u << 20, &hp->n_embd) &&
           meta_u32(k, "context_length", true, 1, 1u << 30, &hp->n_ctx_train) &&
           meta_per_layer(k, "feed_forward_length", a->gaps, hp->n_layer, 0, 1u << 24,
                          &m->layers->n_ff, sizeof *m->layers) &&
           meta_f32(k,
                    hp->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                         : "attention.layer_norm_epsilon",
                    true, 0.1, &hp->norm_eps) &&
           halve_feeds(k, a, m) && refuse_unsupported(k, a, hp) && read_prediction(k, a, hp) &&
           experts_read(k, a, m) && check_feeds(k, a, m) && read_windows(k, a, m) &&
           read_heads(k, a, m, &d) && read_delta(k, a, m) && read_state_space(k, a, m) &&
           read_shared_kv(k, a, m) && rotation_read(k, a, m, d.full, d.windowed) &&
           read_scales(k, a, m) && read_told(k, a, m) && read_altup(k, a, m) &&
           read_sparsity(k, a, m) && read_activation(k, a, m) && read_parallel(k, a, m) &&
           meta_all_read(k);
}

bool facts_read(struct model *m, const struct arch *a, struct error *err)
{
    struct meta k;
    const bool ok = meta_init(&k, m->gguf, a->name, err) && read_all(&k, a, m);
    m->hp.n_layer = n_evaluated(&m->hp); // their facts are those of all layers
    meta_release(&k);
    return ok;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct layer_sizes model_largest(const struct model *m)
{
    struct layer_sizes s = {0};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        s.n_head = larger(s.n_head, l->n_head);
        s.head_dim = larger(s.head_dim, l->head_dim);
        s.n_q = larger(s.n_q, l->n_head * l->head_dim);
        s.n_out = larger(s.n_out, layer_n_out(l));
        s.n_kv = larger(s.n_kv, l->n_head_kv * l->head_dim);
        s.n_ff = larger(s.n_ff, larger(l->n_ff, larger(l->experts.n_ff, l->experts.n_ff_shared)));
        s.n_out = larger(s.n_out, l->ssm.n_inner);
        s.n_expert = larger(s.n_expert, l->experts.n);
        s.n_latent = larger(s.n_latent, l->experts.n_latent);
        s.n_expert_used = larger(s.n_expert_used, l->experts.n_used);
        s.n_ff = larger(s.n_ff, l->n_laurel);
    }
    s.n_ff = larger(s.n_ff, m->hp.n_embd_layer);
    for (uint32_t i = 0; i < m->n_rope; i++)
        s.rope_dim = larger(s.rope_dim, m->ropes[i].n_dim);
    return s;
}
