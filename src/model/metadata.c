// The metadata of an architecture, read key by key, each checked against a sane range: what is read
// here sizes allocations and loops everywhere else.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "model/internal.h"

bool meta_init(struct meta *k, const struct gguf *g, const char *arch, struct error *err)
{
    *k = (struct meta){.g = g, .arch = arch, .err = err};
    k->read = calloc(gguf_n_kv(g) + 1, sizeof *k->read);
    return k->read || error_oom(err, "the marks of the metadata", gguf_n_kv(g));
}

void meta_release(struct meta *k)
{
    free(k->read);
}

// Makes it the key that was asked for last.
static const struct gguf_kv *look_up(struct meta *k)
{
    const struct gguf_kv *kv = gguf_find(k->g, k->key);
    if (kv)
        k->read[kv - gguf_kv_at(k->g, 0)] = true;
    return kv;
}

const struct gguf_kv *meta_find(struct meta *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return look_up(k);
}

static bool in_range(struct meta *k, uint64_t v, uint64_t min, uint64_t max)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER];
    if (v >= min && v <= max)
        return true;
    return error_set(k->err, ERR_MODEL, "metadata key %s is %s, expected %s to %s", k->key,
                     format_number(a, v), format_number(b, min), format_number(c, max));
}

bool meta_u32(struct meta *k, const char *name, bool required, uint32_t min, uint32_t max,
              uint32_t *out)
{
    const bool there = meta_find(k, name) != NULL;
    uint32_t v = *out;
    if (!gguf_get_u32(k->g, k->key, required, &v, k->err))
        return false;
    *out = v;
    return !there || in_range(k, v, min, max);
}

bool meta_u32_or_f32(struct meta *k, const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
    const struct gguf_kv *kv = meta_find(k, name);
    if (!kv || (kv->type != GGUF_FLOAT32 && kv->type != GGUF_FLOAT64))
        return meta_u32(k, name, false, min, max, out);
    if (!(kv->v.f >= min && kv->v.f <= max && kv->v.f == (uint32_t)kv->v.f))
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %g, expected a whole number from %u to %u", k->key,
                         kv->v.f, min, max);
    *out = (uint32_t)kv->v.f;
    return true;
}

static bool read_f32(struct meta *k, const char *name, bool required, float *out)
{
    meta_find(k, name);
    return gguf_get_f32(k->g, k->key, required, out, k->err);
}

bool meta_f32(struct meta *k, const char *name, bool required, double max, float *out)
{
    float v = *out;
    if (!read_f32(k, name, required, &v))
        return false;
    if (gguf_find(k->g, k->key) && !(v > 0 && v <= max))
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is %g, expected above 0 and at most %g", k->key,
                         (double)v, max);
    *out = v;
    return true;
}

bool meta_f32_or_0(struct meta *k, const char *name, bool required, double max, float *out)
{
    float v = *out;
    if (!read_f32(k, name, required, &v))
        return false;
    if (!(v >= 0 && v <= max))
        return error_set(k->err, ERR_MODEL, "metadata key %s is %g, expected 0 to %g", k->key,
                         (double)v, max);
    *out = v;
    return true;
}

static bool is_float(uint32_t type)
{
    return type == GGUF_FLOAT32 || type == GGUF_FLOAT64;
}

static bool of_integers(struct meta *k, const struct gguf_array *a)
{
    return (a->type != GGUF_STRING && a->type != GGUF_ARRAY && !is_float(a->type) &&
            a->type != GGUF_BOOL) ||
           error_set(k->err, ERR_MODEL, "metadata key %s is an array of %s, expected integers",
                     k->key, gguf_value_type_name(a->type));
}

static bool one_each(struct meta *k, const struct gguf_array *a, uint32_t n_layer)
{
    return a->count == n_layer ||
           error_set(k->err, ERR_MODEL,
                     "metadata key %s has %llu values, expected one for each of %u layers", k->key,
                     (unsigned long long)a->count, n_layer);
}

bool meta_per_layer(struct meta *k, const char *name, bool required, uint32_t n_layer, uint32_t min,
                    uint32_t max, uint32_t *out, size_t stride)
{
    const struct gguf_kv *kv = meta_find(k, name);
    if (kv && kv->type == GGUF_ARRAY) {
        const struct gguf_array *a = &kv->v.a;
        if (!of_integers(k, a) || !one_each(k, a, n_layer))
            return false;
        for (uint32_t i = 0; i < n_layer; i++) {
            const int64_t v = gguf_array_i64(a, i);
            if (v < min || v > max)
                return error_set(k->err, ERR_MODEL,
                                 "metadata key %s is %lld at layer %u, expected %u to %u", k->key,
                                 (long long)v, i, min, max);
            *(uint32_t *)((char *)out + i * stride) = (uint32_t)v;
        }
        return true;
    }
    uint32_t v = *out;
    if (!meta_u32(k, name, required, min, max, &v))
        return false;
    for (uint32_t i = 0; kv && i < n_layer; i++)
        *(uint32_t *)((char *)out + i * stride) = v;
    return true;
}

bool meta_parts(struct meta *k, const char *name, uint32_t most, uint32_t whole)
{
    const struct gguf_kv *kv = meta_find(k, name);
    int64_t left = whole;
    if (!kv)
        return true;
    if (kv->type != GGUF_ARRAY)
        return error_set(k->err, ERR_MODEL, "metadata key %s is no array of integers", k->key);
    if (!of_integers(k, &kv->v.a))
        return false;
    if (kv->v.a.count > most)
        return error_set(k->err, ERR_MODEL, "metadata key %s has %llu values, expected at most %u",
                         k->key, (unsigned long long)kv->v.a.count, most);
    for (size_t i = 0; i < kv->v.a.count; i++) {
        const int64_t v = gguf_array_i64(&kv->v.a, i);
        if (v < 0 || v > left)
            return error_set(
                k->err, ERR_MODEL,
                "metadata key %s has %lld at %zu, expected numbers from 0 on whose sum "
                "is at most %u",
                k->key, (long long)v, i, whole);
        left -= v;
    }
    return true;
}

bool meta_f32_per_layer(struct meta *k, const char *key, uint32_t n_layer, float *out,
                        size_t stride)
{
    snprintf(k->key, sizeof k->key, "%s", key);
    const struct gguf_kv *kv = look_up(k);
    if (!kv)
        return error_set(k->err, ERR_MODEL, "metadata key %s is missing", key);
    if (kv->type != GGUF_ARRAY || !is_float(kv->v.a.type))
        return error_set(k->err, ERR_MODEL, "metadata key %s is no array of floats", key);
    if (!one_each(k, &kv->v.a, n_layer))
        return false;
    for (uint32_t i = 0; i < n_layer; i++) {
        const double v = gguf_array_f64(&kv->v.a, i);
        if (!(v >= -1e6 && v <= 1e6))
            return error_set(k->err, ERR_MODEL,
                             "metadata key %s is %g at layer %u, expected -1e6 to 1e6", key, v, i);
        *(float *)((char *)out + i * stride) = (float)v;
    }
    return true;
}

// Keys that change nothing, for hokku or at all.
static bool is_idle(const char *name, size_t len)
{
    static const char *const idle[] = {
        "vocab_size",
        "tensor_data_layout",
        "use_parallel_residual", // where it is not read, the tensors say it
        "rope.scaling.finetuned",
        "attention.layer_norm_epsilon", // beside the one of the norm that the architecture has
        "attention.layer_norm_rms_epsilon",
        "pooling_type",
    };
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (strlen(idle[i]) == len && memcmp(idle[i], name, len) == 0)
            return true;
    return false;
}

static bool is_zero(const struct gguf_kv *kv)
{
    return kv->type == GGUF_FLOAT32 || kv->type == GGUF_FLOAT64 ? kv->v.f == 0
           : kv->type == GGUF_STRING || kv->type == GGUF_ARRAY  ? false
                                                                : kv->v.u == 0;
}

bool meta_all_read(struct meta *k)
{
    const size_t n = strlen(k->arch);
    for (size_t i = 0; i < gguf_n_kv(k->g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(k->g, i);
        const char *name = kv->key.data;
        if (k->read[i] || kv->key.len <= n || memcmp(name, k->arch, n) != 0 || name[n] != '.' ||
            is_idle(name + n + 1, kv->key.len - n - 1) || is_zero(kv))
            continue;
        char shown[FORMAT_TEXT];
        return error_set(k->err, ERR_MODEL,
                         "metadata key %s is not one that hokku knows of architecture %s; without "
                         "it the model would not be what its file says",
                         format_text(shown, sizeof shown, name, kv->key.len), k->arch);
    }
    return true;
}
