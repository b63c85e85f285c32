// Rotation: the facts of a model's frequencies, and of which layers have which (rope.c computes
// them).
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "model/internal.h"

static bool says(const struct gguf_str *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->data, text, s->len) == 0;
}

// Files of before rope.scaling.* have only the factor, which then is linear; 0 means none.
static bool read_scaling(struct meta *k, const struct arch *a, struct rope *r)
{
    const bool has_factor = meta_find(k, "rope.scaling.factor") != NULL;
    float factor = 0;
    meta_find(k, has_factor ? "rope.scaling.factor" : "rope.scale_linear");
    if (!gguf_get_f32(k->g, k->key, false, &factor, k->err))
        return false;
    if (!(factor == 0 || (factor >= 1e-3f && factor <= 1e6f)))
        return error_set(k->err, ERR_MODEL, "metadata key %s is %g, expected 0.001 to 1e6", k->key,
                         (double)factor);
    struct gguf_str type = {factor != 0 ? "linear" : "none", factor != 0 ? 6 : 4};
    meta_find(k, "rope.scaling.type");
    if (!gguf_get_str(k->g, k->key, false, &type, k->err))
        return false;
    if (says(&type, "none") || (a->long_factors && says(&type, "longrope"))) {
        r->scaling = ROPE_SCALING_NONE;
    } else if (says(&type, "linear")) {
        r->scaling = ROPE_SCALING_LINEAR;
    } else if (says(&type, "yarn")) {
        r->scaling = ROPE_SCALING_YARN;
    } else {
        char shown[FORMAT_TEXT];
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is \"%s\"; none, linear and yarn are supported", k->key,
                         format_text(shown, sizeof shown, type.data, type.len));
    }
    if (r->scaling != ROPE_SCALING_NONE && factor != 0)
        r->factor = factor;
    return true;
}

static bool read_yarn(struct meta *k, const struct arch *a, struct rope *r)
{
    float ext_factor = 1, yarn_attn_factor = 1, log_multiplier = 0;
    if (!meta_u32(k, "rope.scaling.original_context_length", false, 1, 1u << 30, &r->orig_ctx) ||
        !meta_f32(k, "rope.scaling.attn_factor", false, 1e3, &r->attn_factor) ||
        !meta_f32(k, "rope.scaling.yarn_beta_fast", false, 1e6, &r->beta_fast) ||
        !meta_f32(k, "rope.scaling.yarn_beta_slow", false, 1e6, &r->beta_slow) ||
        !meta_f32_or_0(k, "rope.scaling.yarn_log_multiplier", false, 100, &log_multiplier) ||
        !meta_f32(k, "rope.scaling.yarn_attn_factor", false, 1e3, &yarn_attn_factor) ||
        !meta_f32_or_0(k, "rope.scaling.yarn_ext_factor", false, 1e3, &ext_factor))
        return false;
    if (r->scaling != ROPE_SCALING_YARN)
        return true;
    if (r->theta <= 1)
        return error_set(k->err, ERR_MODEL, "%s.rope.freq_base is %g, expected above 1 with YaRN",
                         k->arch, (double)r->theta);
    // It would change the formula; no model is known to set it.
    if (ext_factor != 1)
        return error_set(k->err, ERR_MODEL,
                         "%s.rope.scaling.yarn_ext_factor is %g; only 1 is supported", k->arch,
                         (double)ext_factor);
    if (a->unmagnified && r->attn_factor != 1)
        return error_set(k->err, ERR_MODEL,
                         "%s.rope.scaling.attn_factor is %g; only 1 is supported", k->arch,
                         (double)r->attn_factor);
    // Of latent attention, files have a tenth of the multiplier.
    const double times = a->unmagnified ? 0.1 : (a->latent ? 1 : 0.1) * (double)log_multiplier;
    r->attn_factor /= (float)(1 + times * log((double)r->factor));
    // Some files say what is multiplied by in all, which follows from the others.
    const double magnitude = rope_magnitude(r);
    return yarn_attn_factor == 1 || fabs((double)yarn_attn_factor / magnitude - 1) <= 1e-3 ||
           error_set(k->err, ERR_MODEL,
                     "%s.rope.scaling.yarn_attn_factor is %g, expected %g, which follows from "
                     "others",
                     k->arch, (double)yarn_attn_factor, magnitude);
}

// How much of a head is rotated.
static bool read_rope_dim(struct meta *k, const char *name, uint32_t head_dim, uint32_t *out)
{
    *out = head_dim;
    if (!meta_u32(k, name, false, 2, head_dim, out))
        return false;
    if (*out % 2 == 0)
        return true;
    if (!gguf_find(k->g, k->key))
        return error_set(k->err, ERR_MODEL,
                         "heads are %u wide and metadata key %s is missing, expected an even "
                         "number that is rotated",
                         head_dim, k->key);
    return error_set(k->err, ERR_MODEL, "metadata key %s is %u, expected an even number", k->key,
                     *out);
}

static bool read_theta(struct meta *k, const char *name, float *theta)
{
    return meta_f32(k, name, false, 1e15, theta) &&
           (*theta >= 1 || error_set(k->err, ERR_MODEL, "metadata key %s is %g, expected 1 to 1e15",
                                     k->key, (double)*theta));
}

// A larger base in place of interpolation ("NTK-aware"): theta alpha^(d / (d - 2)), d the width of
// a head.
static bool grow_theta(struct meta *k, uint32_t head_dim, float *theta)
{
    float alpha = 0;
    if (!meta_f32_or_0(k, "rope.scaling.alpha", false, 1e6, &alpha))
        return false;
    if (alpha == 0)
        return true;
    if (head_dim <= 2)
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %g, and heads are %u wide, expected more than 2",
                         k->key, (double)alpha, head_dim);
    const double d = head_dim, grown = (double)*theta * pow((double)alpha, d / (d - 2));
    if (!(grown >= 1 && grown <= 1e15))
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %g, which makes rope.freq_base %g, expected 1 to 1e15",
                         k->key, (double)alpha, grown);
    *theta = (float)grown;
    return true;
}

// A number of each layer that changes nothing here.
static bool pass_over_each(struct meta *k, const char *name, uint32_t n_layer)
{
    const struct gguf_kv *kv = meta_find(k, name);
    return !kv ||
           (kv->type == GGUF_ARRAY && kv->v.a.count == n_layer && kv->v.a.type != GGUF_STRING &&
            kv->v.a.type != GGUF_ARRAY) ||
           error_set(k->err, ERR_MODEL,
                     "metadata key %s is no array of a number for each of %u layers", k->key,
                     n_layer);
}

// Which channel of a position turns which pairs, and what images are given to: all channels of a
// text's positions are equal.
static bool read_vision(struct meta *k, const struct arch *a, uint32_t n_layer, struct rope *r)
{
    static const char sections[] = "rope.dimension_sections";
    uint32_t n_deepstack = 0;
    if (a->deepstack_mapped && !pass_over_each(k, "deepstack_mapping", n_layer))
        return false;
    if (!a->vision)
        return true;
    if (!meta_parts(k, sections, 4, r->n_dim / 2) ||
        !meta_u32(k, "n_deepstack_layers", false, 0, UINT32_MAX, &n_deepstack))
        return false;
    const struct gguf_kv *kv = meta_find(k, sections);
    if (a->sections_halve && kv && kv->v.a.count > 1 && gguf_array_i64(&kv->v.a, 1) > 0)
        r->layout = ROPE_HALVES;
    return true;
}

// Of layers that see all.
static bool read_rope(struct meta *k, const struct arch *a, struct model *m, uint32_t head_dim)
{
    struct rope *r = &m->ropes[0];
    bool rotated = a->rope != ROPE_NONE && head_dim > 0;
    *r = (struct rope){.layout = a->rope,
                       .theta = 10000,
                       .factor = 1,
                       .orig_ctx = m->hp.n_ctx_train,
                       .attn_factor = 1,
                       .beta_fast = 32,
                       .beta_slow = 1};
    meta_find(k, "rope.scaling.finetuned");
    if (a->rotation_told && !gguf_get_bool(k->g, k->key, false, &rotated, k->err))
        return false;
    static const char n_dim[] = "rope.dimension_count";
    if ((rotated && !read_rope_dim(k, n_dim, head_dim, &r->n_dim)) ||
        (!rotated && head_dim > 0 && !meta_u32(k, n_dim, false, 2, head_dim, &r->n_dim)) ||
        !read_theta(k, "rope.freq_base", &r->theta) ||
        (a->base_grows && !grow_theta(k, head_dim, &r->theta)))
        return false;
    if (!rotated) {
        r->layout = ROPE_NONE;
        r->n_dim = 0;
    }
    return read_vision(k, a, m->hp.n_layer, r) && read_scaling(k, a, r) && read_yarn(k, a, r);
}

// Which layers are rotated otherwise than the metadata say of all.
static bool set_other_rope(struct meta *k, const struct arch *a, struct model *m,
                           uint32_t windowed_head_dim)
{
    struct rope *other = &m->ropes[1];
    const bool windowed = a->windowed_rope != WINDOWED_AS_FULL;
    *other = m->ropes[0];
    if (windowed) {
        other->scaling = ROPE_SCALING_NONE;
        other->factor = other->attn_factor = 1;
        if (a->windowed_rope == WINDOWED_OWN_BASE)
            other->theta = 10000;
        if (a->windowed_rope != WINDOWED_UNSCALED &&
            !read_theta(k, "rope.freq_base_swa", &other->theta))
            return false;
        if (a->windowed_heads &&
            !read_rope_dim(k, "rope.dimension_count_swa", windowed_head_dim, &other->n_dim))
            return false;
    } else {
        other->layout = ROPE_NONE;
        other->n_dim = 0;
    }
    m->n_rope = 1;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        struct layer *l = &m->layers[i];
        const bool full = !is_windowed(l) && !(a->dense_rotated && l->experts.n == 0);
        const bool unrotated = (a->full_unrotated && has_windows(a, &m->hp) && full) ||
                               (a->unrotated_every && (i + 1) % a->unrotated_every == 0);
        l->rope = windowed ? is_windowed(l) : unrotated;
        if (l->rope)
            m->n_rope = 2;
    }
    return true;
}

bool rotation_read(struct meta *k, const struct arch *a, struct model *m, uint32_t head_dim,
                   uint32_t windowed_head_dim)
{
    return read_rope(k, a, m, head_dim) && set_other_rope(k, a, m, windowed_head_dim);
}
