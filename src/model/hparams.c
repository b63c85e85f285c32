// Hyper-parameters from the metadata, each checked against a sane range: what is read here sizes
// allocations and loops everywhere else.
#include "model/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"

// What the getters below share.
struct reader {
    const struct gguf *g;
    const char *arch;
    struct error *err;
    char key[96];
};

// "llama" + "rope.freq_base" -> "llama.rope.freq_base"
static const char *key(struct reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->key;
}

static bool in_range(struct reader *r, uint64_t v, uint64_t min, uint64_t max)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER];
    if (v >= min && v <= max)
        return true;
    return error_set(r->err, ERR_MODEL, "metadata key %s is %s, expected %s to %s", r->key,
                     format_number(a, v), format_number(b, min), format_number(c, max));
}

static bool read_u32(struct reader *r, const char *name, bool required, uint32_t min, uint32_t max,
                     uint32_t *out)
{
    uint32_t v = *out;
    if (!gguf_get_u32(r->g, key(r, name), required, &v, r->err))
        return false;
    bool absent = !required && !gguf_find(r->g, r->key);
    *out = v;
    return absent || in_range(r, v, min, max);
}

// The same where newer files may give one value per layer: they must all be equal.
static bool read_per_layer(struct reader *r, const char *name, bool required, uint32_t n_layer,
                           uint32_t min, uint32_t max, uint32_t *out)
{
    const struct gguf_kv *kv = gguf_find(r->g, key(r, name));
    if (!kv || kv->type != GGUF_ARRAY)
        return read_u32(r, name, required, min, max, out);
    const struct gguf_array *a = &kv->v.a;
    if (a->type == GGUF_STRING || a->type == GGUF_ARRAY || a->type == GGUF_FLOAT32 ||
        a->type == GGUF_FLOAT64 || a->type == GGUF_BOOL)
        return error_set(r->err, ERR_MODEL, "metadata key %s is an array of %s, expected integers",
                         r->key, gguf_value_type_name(a->type));
    if (a->count != n_layer)
        return error_set(r->err, ERR_MODEL,
                         "metadata key %s has %llu values, expected one for each of %u layers",
                         r->key, (unsigned long long)a->count, n_layer);
    int64_t first = gguf_array_i64(a, 0);
    for (uint64_t i = 1; i < a->count; i++)
        if (gguf_array_i64(a, i) != first)
            return error_set(r->err, ERR_MODEL,
                             "metadata key %s differs between layers (%lld, then %lld at layer "
                             "%llu); only models whose layers are all alike are supported",
                             r->key, (long long)first, (long long)gguf_array_i64(a, i),
                             (unsigned long long)i);
    if (first < 0)
        return error_set(r->err, ERR_MODEL, "metadata key %s is %lld, expected %u to %u", r->key,
                         (long long)first, min, max);
    *out = (uint32_t)first;
    return in_range(r, (uint64_t)first, min, max);
}

// min < value <= max
static bool read_f32(struct reader *r, const char *name, bool required, double above, double max,
                     float *out)
{
    float v = *out;
    if (!gguf_get_f32(r->g, key(r, name), required, &v, r->err))
        return false;
    if (!gguf_find(r->g, r->key))
        return true;
    if (!(v > above && v <= max))
        return error_set(r->err, ERR_MODEL,
                         "metadata key %s is %g, expected above %g and at most %g", r->key,
                         (double)v, above, max);
    *out = v;
    return true;
}

static bool read_heads(struct reader *r, const struct hparams *hp, struct layer *l)
{
    if (!read_per_layer(r, "attention.head_count", true, hp->n_layer, 1, 4096, &l->n_head))
        return false;
    l->n_head_kv = l->n_head;
    if (!read_per_layer(r, "attention.head_count_kv", false, hp->n_layer, 1, 4096, &l->n_head_kv))
        return false;
    if (l->n_head % l->n_head_kv)
        return error_set(r->err, ERR_MODEL,
                         "%u attention heads cannot share %u KV heads evenly "
                         "(%s.attention.head_count, head_count_kv)",
                         l->n_head, l->n_head_kv, r->arch);

    bool has_key_length = gguf_find(r->g, key(r, "attention.key_length")) != NULL;
    if (has_key_length) {
        if (!read_u32(r, "attention.key_length", true, 2, 4096, &l->head_dim))
            return false;
    } else {
        if (hp->n_embd % l->n_head)
            return error_set(r->err, ERR_MODEL,
                             "%s.embedding_length %u is not a multiple of the %u heads, and "
                             "%s.attention.key_length is missing",
                             r->arch, hp->n_embd, l->n_head, r->arch);
        l->head_dim = hp->n_embd / l->n_head;
    }
    uint32_t value_length = l->head_dim;
    if (!read_u32(r, "attention.value_length", false, 2, 4096, &value_length))
        return false;
    if (value_length != l->head_dim)
        return error_set(r->err, ERR_MODEL,
                         "%s.attention.value_length is %u and the key length %u; only equal ones "
                         "are supported",
                         r->arch, value_length, l->head_dim);
    if (l->head_dim < 2 || l->head_dim % 2)
        return error_set(r->err, ERR_MODEL, "heads are %u wide, expected an even number",
                         l->head_dim);
    return true;
}

static bool read_rope(struct reader *r, uint32_t n_ctx_train, uint32_t head_dim, struct rope *p)
{
    p->n_dim = head_dim;
    p->theta = 10000;
    p->factor = 1;
    p->orig_ctx = n_ctx_train;
    p->attn_factor = 1;
    p->beta_fast = 32;
    p->beta_slow = 1;
    if (!read_u32(r, "rope.dimension_count", false, 2, head_dim, &p->n_dim) ||
        !read_f32(r, "rope.freq_base", false, 0, 1e15, &p->theta))
        return false;
    if (p->n_dim % 2)
        return error_set(r->err, ERR_MODEL,
                         "%s.rope.dimension_count is %u, expected an even number", r->arch,
                         p->n_dim);

    // Files of before rope.scaling.* have only the factor, which then is linear; 0 means none.
    bool has_factor = gguf_find(r->g, key(r, "rope.scaling.factor")) != NULL;
    float factor = 0;
    if (!gguf_get_f32(r->g, key(r, has_factor ? "rope.scaling.factor" : "rope.scale_linear"), false,
                      &factor, r->err))
        return false;
    if (!(factor == 0 || (factor >= 1e-3f && factor <= 1e6f)))
        return error_set(r->err, ERR_MODEL, "metadata key %s is %g, expected 0.001 to 1e6", r->key,
                         (double)factor);
    struct gguf_str type = {factor != 0 ? "linear" : "none", factor != 0 ? 6 : 4};
    if (!gguf_get_str(r->g, key(r, "rope.scaling.type"), false, &type, r->err))
        return false;
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
        p->scaling = ROPE_SCALING_NONE;
    } else if (type.len == 6 && memcmp(type.data, "linear", 6) == 0) {
        p->scaling = ROPE_SCALING_LINEAR;
    } else if (type.len == 4 && memcmp(type.data, "yarn", 4) == 0) {
        p->scaling = ROPE_SCALING_YARN;
    } else {
        char shown[FORMAT_TEXT];
        return error_set(r->err, ERR_MODEL,
                         "metadata key %s is \"%s\"; none, linear and yarn are supported", r->key,
                         format_text(shown, sizeof shown, type.data, type.len));
    }
    if (p->scaling != ROPE_SCALING_NONE && factor != 0)
        p->factor = factor;
    if (p->scaling != ROPE_SCALING_YARN)
        return true;
    if (!read_u32(r, "rope.scaling.original_context_length", false, 1, 1u << 30, &p->orig_ctx) ||
        !read_f32(r, "rope.scaling.attn_factor", false, 0, 1e3, &p->attn_factor) ||
        !read_f32(r, "rope.scaling.yarn_beta_fast", false, 0, 1e6, &p->beta_fast) ||
        !read_f32(r, "rope.scaling.yarn_beta_slow", false, 0, 1e6, &p->beta_slow))
        return false;
    if (p->theta <= 1)
        return error_set(r->err, ERR_MODEL, "%s.rope.freq_base is %g, expected above 1 with YaRN",
                         r->arch, (double)p->theta);
    // These would change the formula; no model of these architectures is known to set them.
    float ext_factor = 1, log_multiplier = 0;
    if (!gguf_get_f32(r->g, key(r, "rope.scaling.yarn_ext_factor"), false, &ext_factor, r->err))
        return false;
    if (ext_factor != 1)
        return error_set(r->err, ERR_MODEL, "metadata key %s is %g; only 1 is supported", r->key,
                         (double)ext_factor);
    if (!gguf_get_f32(r->g, key(r, "rope.scaling.yarn_log_multiplier"), false, &log_multiplier,
                      r->err))
        return false;
    if (log_multiplier != 0)
        return error_set(r->err, ERR_MODEL, "metadata key %s is %g; only 0 is supported", r->key,
                         (double)log_multiplier);
    return true;
}

// Things that would change the computation and that no row of the table has.
static bool refuse_unsupported(struct reader *r)
{
    uint32_t n_expert = 0;
    bool causal = true;
    if (!gguf_get_u32(r->g, key(r, "expert_count"), false, &n_expert, r->err))
        return false;
    if (n_expert)
        return error_set(r->err, ERR_MODEL,
                         "the model has %u experts per layer (%s); mixture-of-experts models are "
                         "not supported",
                         n_expert, r->key);
    if (!gguf_get_bool(r->g, key(r, "attention.causal"), false, &causal, r->err))
        return false;
    if (!causal)
        return error_set(r->err, ERR_MODEL,
                         "%s is false: this is an embedding model, it does not generate text",
                         r->key);
    if (gguf_find(r->g, key(r, "attention.sliding_window_pattern")))
        return error_set(r->err, ERR_MODEL,
                         "%s: sliding windows that differ between layers are not supported",
                         r->key);
    return true;
}

// What every layer of these architectures is.
static bool read_layer(struct reader *r, const struct hparams *hp, struct layer *l)
{
    *l = (struct layer){.mixer = MIXER_ATTENTION, .act = ACT_SILU};
    return read_per_layer(r, "feed_forward_length", true, hp->n_layer, 1, 1u << 24, &l->n_ff) &&
           read_u32(r, "attention.sliding_window", false, 0, UINT32_MAX, &l->window) &&
           read_heads(r, hp, l);
}

bool facts_read(struct model *m, const struct arch *a, struct error *err)
{
    const struct gguf *g = m->gguf;
    struct hparams *hp = &m->hp;
    struct reader r = {.g = g, .arch = a->name, .err = err};
    struct layer alike;
    // A layer has nine tensors at least, so this bounds n_layer by the size of the file.
    size_t most = gguf_n_tensors(g) / 9;
    uint32_t max_layers = most > 4096 ? 4096 : most < 1 ? 1 : (uint32_t)most;
    *hp = (struct hparams){.norm = NORM_RMS,
                           .embd_scale = 1,
                           .residual_scale = 1,
                           .logit_scale = 1,
                           .attn_temp_len = 1};
    m->n_rope = 1;
    m->ropes[0] = (struct rope){.layout = a->rope_layout};
    if (gguf_n_tensors(g) == 0)
        return error_set(err, ERR_MODEL, "has no tensors: a vocabulary, not a model");
    if (!read_u32(&r, "block_count", true, 1, 4096, &hp->n_layer))
        return false;
    if (hp->n_layer > max_layers)
        return error_set(err, ERR_MODEL,
                         "%s.block_count is %u, but %zu tensors are enough for %zu layers at most",
                         a->name, hp->n_layer, gguf_n_tensors(g), most);
    if (!read_u32(&r, "embedding_length", true, 1, 1u << 20, &hp->n_embd) ||
        !read_u32(&r, "context_length", true, 1, 1u << 30, &hp->n_ctx_train) ||
        !read_f32(&r, "attention.layer_norm_rms_epsilon", true, 0, 0.1, &hp->norm_eps) ||
        !refuse_unsupported(&r) || !read_layer(&r, hp, &alike) ||
        !read_rope(&r, hp->n_ctx_train, alike.head_dim, &m->ropes[0]))
        return false;
    alike.attn_scale = 1.0f / sqrtf((float)alike.head_dim);
    alike.qk_norm = a->qk_norm == ABSENT ? QK_NORM_NONE : QK_NORM_HEAD;
    m->layers = malloc(hp->n_layer * sizeof *m->layers);
    if (!m->layers)
        return error_oom(err, "layer table", hp->n_layer * sizeof *m->layers);
    for (uint32_t i = 0; i < hp->n_layer; i++)
        m->layers[i] = alike;
    return true;
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
        s.n_kv = larger(s.n_kv, l->n_head_kv * l->head_dim);
        s.n_ff = larger(s.n_ff, l->n_ff);
    }
    for (uint32_t i = 0; i < m->n_rope; i++)
        s.rope_dim = larger(s.rope_dim, m->ropes[i].n_dim);
    return s;
}
