// Typed access to metadata values.
#include "gguf/parse.h"

#include <math.h>
#include <float.h>
#include <string.h>

#include "base/format.h"
#include "gguf/cursor.h"

const char *gguf_value_type_name(uint32_t type)
{
    static const char *const names[] = {
        [GGUF_UINT8] = "uint8",     [GGUF_INT8] = "int8",     [GGUF_UINT16] = "uint16",
        [GGUF_INT16] = "int16",     [GGUF_UINT32] = "uint32", [GGUF_INT32] = "int32",
        [GGUF_FLOAT32] = "float32", [GGUF_BOOL] = "bool",     [GGUF_STRING] = "string",
        [GGUF_ARRAY] = "array",     [GGUF_UINT64] = "uint64", [GGUF_INT64] = "int64",
        [GGUF_FLOAT64] = "float64",
    };
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static bool is_unsigned(uint32_t type)
{
    return type == GGUF_UINT8 || type == GGUF_UINT16 || type == GGUF_UINT32 || type == GGUF_UINT64;
}

static bool is_signed(uint32_t type)
{
    return type == GGUF_INT8 || type == GGUF_INT16 || type == GGUF_INT32 || type == GGUF_INT64;
}

static bool wrong_type(const struct gguf_kv *kv, const char *expected, struct error *err)
{
    char name[FORMAT_TEXT];
    return error_set(err, ERR_MODEL, "metadata key %s is of type %s, expected %s",
                     format_text(name, sizeof name, kv->key.data, kv->key.len),
                     gguf_value_type_name(kv->type), expected);
}

bool gguf_kv_uint(const struct gguf_kv *kv, uint64_t max, uint64_t *out, struct error *err)
{
    char name[FORMAT_TEXT];
    format_text(name, sizeof name, kv->key.data, kv->key.len);
    if (is_signed(kv->type)) {
        if (kv->v.i < 0 || (uint64_t)kv->v.i > max)
            return error_set(err, ERR_MODEL, "metadata key %s is %lld, expected 0-%llu", name,
                             (long long)kv->v.i, (unsigned long long)max);
        *out = (uint64_t)kv->v.i;
        return true;
    }
    if (!is_unsigned(kv->type))
        return wrong_type(kv, "an integer", err);
    if (kv->v.u > max)
        return error_set(err, ERR_MODEL, "metadata key %s is %llu, expected 0-%llu", name,
                         (unsigned long long)kv->v.u, (unsigned long long)max);
    *out = kv->v.u;
    return true;
}

// *kv = NULL and true: absent and not required.
static bool find(const struct gguf *g, const char *key, bool required, const struct gguf_kv **kv,
                 struct error *err)
{
    *kv = gguf_find(g, key);
    if (!*kv && required)
        return error_set(err, ERR_MODEL, "metadata key %s is missing", key);
    return true;
}

// An integer of any type, from least (0, or below) to most.
static bool get_whole(const struct gguf *g, const char *key, bool required, int64_t least,
                      int64_t most, int64_t *out, struct error *err)
{
    const struct gguf_kv *kv;
    uint64_t v;
    if (!find(g, key, required, &kv, err))
        return false;
    if (!kv)
        return true;
    if (least < 0 && is_signed(kv->type) && kv->v.i < 0) {
        if (kv->v.i < least)
            return error_set(err, ERR_MODEL, "metadata key %s is %lld, expected %lld to %lld", key,
                             (long long)kv->v.i, (long long)least, (long long)most);
        *out = kv->v.i;
        return true;
    }
    if (!gguf_kv_uint(kv, (uint64_t)most, &v, err))
        return false;
    *out = (int64_t)v;
    return true;
}

bool gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out,
                  struct error *err)
{
    int64_t x = required ? 0 : *out;
    if (!get_whole(g, key, required, 0, UINT32_MAX, &x, err))
        return false;
    *out = (uint32_t)x;
    return true;
}

bool gguf_get_i32(const struct gguf *g, const char *key, bool required, int32_t *out,
                  struct error *err)
{
    int64_t x = required ? 0 : *out;
    if (!get_whole(g, key, required, INT32_MIN, INT32_MAX, &x, err))
        return false;
    *out = (int32_t)x;
    return true;
}

bool gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out,
                  struct error *err)
{
    const struct gguf_kv *kv;
    if (!find(g, key, required, &kv, err))
        return false;
    if (!kv)
        return true;
    double v;
    if (kv->type == GGUF_FLOAT32 || kv->type == GGUF_FLOAT64)
        v = kv->v.f;
    else if (is_unsigned(kv->type))
        v = (double)kv->v.u;
    else if (is_signed(kv->type))
        v = (double)kv->v.i;
    else
        return wrong_type(kv, "a number", err);
    if (!isfinite(v) || fabs(v) > FLT_MAX)
        return error_set(err, ERR_MODEL, "metadata key %s is %g, expected a finite 32-bit float",
                         key, v);
    *out = (float)v;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out,
                   struct error *err)
{
    const struct gguf_kv *kv;
    if (!find(g, key, required, &kv, err))
        return false;
    if (!kv)
        return true;
    if (kv->type != GGUF_BOOL)
        return wrong_type(kv, "bool", err);
    *out = kv->v.u != 0;
    return true;
}

bool gguf_kv_str(const struct gguf_kv *kv, struct gguf_str *out, struct error *err)
{
    if (kv->type != GGUF_STRING)
        return wrong_type(kv, "string", err);
    *out = kv->v.s;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, bool required, struct gguf_str *out,
                  struct error *err)
{
    const struct gguf_kv *kv;
    return find(g, key, required, &kv, err) && (!kv || gguf_kv_str(kv, out, err));
}

bool gguf_get_array(const struct gguf *g, const char *key, enum gguf_value_type elem,
                    struct gguf_array *out, struct error *err)
{
    const struct gguf_kv *kv;
    if (!find(g, key, true, &kv, err))
        return false;
    if (kv->type != GGUF_ARRAY)
        return wrong_type(kv, "array", err);
    if (kv->v.a.type != elem)
        return error_set(err, ERR_MODEL, "metadata key %s is an array of %s, expected of %s", key,
                         gguf_value_type_name(kv->v.a.type), gguf_value_type_name(elem));
    *out = kv->v.a;
    return true;
}

bool gguf_array_next_str(const struct gguf_array *a, size_t *cursor, struct gguf_str *out)
{
    struct cursor c = {.data = a->data, .size = a->n_bytes, .pos = *cursor};
    if (a->type != GGUF_STRING || c.pos >= c.size)
        return false;
    uint64_t n = cursor_u64(&c);
    const unsigned char *p = cursor_bytes(&c, n);
    if (!p)
        return false;
    *out = (struct gguf_str){(const char *)p, (size_t)n};
    *cursor = c.pos;
    return true;
}

// Element i, zero-extended; the size of an element in *n_bytes.
static uint64_t element(const struct gguf_array *a, uint64_t i, unsigned *n_bytes)
{
    *n_bytes = a->count ? (unsigned)(a->n_bytes / a->count) : 0;
    struct cursor c = {.data = a->data, .size = a->n_bytes, .pos = (size_t)i * *n_bytes};
    return cursor_uint(&c, *n_bytes);
}

int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i)
{
    unsigned n;
    if (a->type == GGUF_FLOAT32 || a->type == GGUF_FLOAT64) {
        double v = gguf_array_f64(a, i);
        return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : 0;
    }
    if (a->type == GGUF_STRING || a->type == GGUF_ARRAY)
        return 0;
    uint64_t v = element(a, i, &n);
    if (is_signed(a->type) && n < 8) { // extend the sign
        uint64_t sign = (uint64_t)1 << (8 * n - 1);
        return (int64_t)((v ^ sign) - sign);
    }
    return (int64_t)v;
}

double gguf_array_f64(const struct gguf_array *a, uint64_t i)
{
    unsigned n;
    if (a->type == GGUF_FLOAT32) {
        uint32_t raw = (uint32_t)element(a, i, &n);
        float f;
        memcpy(&f, &raw, sizeof f);
        return f;
    }
    if (a->type == GGUF_FLOAT64) {
        uint64_t raw = element(a, i, &n);
        double d;
        memcpy(&d, &raw, sizeof d);
        return d;
    }
    if (a->type == GGUF_UINT64)
        return (double)element(a, i, &n);
    return (double)gguf_array_i64(a, i);
}
