// The header of one GGUF file: magic, version, metadata, tensor table.
//
// The file is not trusted. Counts are compared with what the remaining bytes could hold before
// anything is allocated, and arrays grow with what was really read, so memory stays within a small
// multiple of the file's size.
#include "gguf/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "gguf/cursor.h"

enum {
    MAX_DEPTH = 8,          // of arrays in arrays
    MAX_KEY = 65535,        // bytes; the specification's limit
    MAX_TENSOR_NAME = 64,   // bytes; the specification's limit
    MIN_KV_BYTES = 14,      // length, one byte of key, type, one byte of value
    MIN_TENSOR_BYTES = 33,  // length, one byte of name, n_dims, one dimension, type, offset
    DEFAULT_ALIGNMENT = 32, // bytes; unless general.alignment says otherwise
};

// Bytes of a value; 0 for strings and arrays, whose size is in the data.
static unsigned value_bytes(uint32_t type)
{
    static const unsigned char bytes[] = {
        [GGUF_UINT8] = 1,  [GGUF_INT8] = 1,  [GGUF_UINT16] = 2,  [GGUF_INT16] = 2,
        [GGUF_UINT32] = 4, [GGUF_INT32] = 4, [GGUF_FLOAT32] = 4, [GGUF_BOOL] = 1,
        [GGUF_STRING] = 0, [GGUF_ARRAY] = 0, [GGUF_UINT64] = 8,  [GGUF_INT64] = 8,
        [GGUF_FLOAT64] = 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

// The reason for a cursor that ran out of bytes.
static bool cut_short(const struct cursor *c, struct error *err)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], n[FORMAT_NUMBER];
    return error_set(err, ERR_MODEL,
                     "%s bytes are wanted at byte %s but the file has %s (truncated or damaged?)",
                     format_number(a, c->wanted), format_number(b, c->pos),
                     format_number(n, c->size));
}

static bool check_magic(struct cursor *c, uint32_t *version, struct error *err)
{
    const unsigned char *m = cursor_bytes(c, 4);
    *version = cursor_u32(c);
    if (c->failed) {
        char n[FORMAT_NUMBER];
        return error_set(err, ERR_MODEL, "has %s bytes, too few for a GGUF file",
                         format_number(n, c->size));
    }
    if (memcmp(m, "GGUF", 4)) {
        static const struct {
            char magic[5];
            const char *what;
        } known[] = {
            {"FUGG", "a big-endian GGUF file; only little-endian ones work"},
            {"lmgg", "a GGML file of before GGUF; convert the model again"},
            {"tjgg", "a GGJT file of before GGUF; convert the model again"},
            {"fmgg", "a GGMF file of before GGUF; convert the model again"},
            {"vers", "perhaps a Git LFS pointer; fetch the real file (git lfs pull)"},
            {"<!DO", "a web page; the download went wrong"},
            {"<!do", "a web page; the download went wrong"},
            {"<htm", "a web page; the download went wrong"},
            {"PK\x03\x04", "a zip archive or a PyTorch checkpoint; convert it to GGUF"},
            {"\x28\xB5\x2F\xFD", "packed by zstd; unpack it first"},
        };
        const char *what = NULL;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (memcmp(m, known[i].magic, 4) == 0)
                what = known[i].what;
        if (memcmp(m, "\x1F\x8B", 2) == 0)
            what = "packed by gzip; unpack it first";
        // Its first eight bytes are a length.
        else if (cursor_left(c) >= 2 && memcmp(m + 8, "{\"", 2) == 0)
            what = "a safetensors file; convert it to GGUF";
        char shown[FORMAT_TEXT];
        return error_set(err, ERR_MODEL, "begins with \"%s\", expected \"GGUF\"%s%s%s",
                         format_text(shown, sizeof shown, (const char *)m, 4), what ? " (" : "",
                         what ? what : "", what ? ")" : "");
    }
    if (*version != 2 && *version != 3) {
        uint32_t swapped = __builtin_bswap32(*version);
        if (swapped >= 1 && swapped <= 0xFFFF)
            return error_set(err, ERR_MODEL,
                             "is a big-endian GGUF file (version %u with its bytes reversed); only "
                             "little-endian ones work",
                             swapped);
        return error_set(err, ERR_MODEL, "has GGUF version %u, expected 2 or 3%s", *version,
                         *version == 1 ? " (convert the model again)" : "");
    }
    return true;
}

static bool read_str(struct cursor *c, struct gguf_str *out)
{
    uint64_t n = cursor_u64(c);
    out->data = (const char *)cursor_bytes(c, n);
    out->len = out->data ? (size_t)n : 0;
    return !c->failed;
}

static bool check_bools(const unsigned char *p, uint64_t n, struct error *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return error_set(err, ERR_MODEL, "a bool has the value %u, expected 0 or 1", p[i]);
    return true;
}

// Everything inside an array is walked once here, so that nothing needs checking later.
static bool read_array(struct cursor *c, unsigned depth, struct gguf_array *out, struct error *err)
{
    uint32_t type = cursor_u32(c);
    uint64_t count = cursor_u64(c);
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    if (c->failed)
        return cut_short(c, err);
    if (type > GGUF_FLOAT64)
        return error_set(err, ERR_MODEL, "array of value type %u, expected 0-%d", type,
                         GGUF_FLOAT64);
    // The fewest bytes that an element can have.
    unsigned least = type == GGUF_STRING ? 8 : type == GGUF_ARRAY ? 12 : value_bytes(type);
    if (count > cursor_left(c) / least)
        return error_set(err, ERR_MODEL,
                         "array of %s elements of type %s, but only %s bytes of the file are left "
                         "(truncated or damaged?)",
                         format_number(a, count), gguf_value_type_name(type),
                         format_number(b, cursor_left(c)));
    size_t begin = c->pos;
    if (type == GGUF_STRING) {
        struct gguf_str s;
        for (uint64_t i = 0; i < count; i++)
            if (!read_str(c, &s)) {
                cut_short(c, err);
                return error_prefix(err, "string %s of %s", format_number(a, i),
                                    format_number(b, count));
            }
    } else if (type == GGUF_ARRAY) {
        if (depth >= MAX_DEPTH)
            return error_set(err, ERR_MODEL, "arrays nested more than %d deep", MAX_DEPTH);
        struct gguf_array inner;
        for (uint64_t i = 0; i < count; i++)
            if (!read_array(c, depth + 1, &inner, err))
                return false;
    } else {
        const unsigned char *p = cursor_bytes(c, count * value_bytes(type));
        if (type == GGUF_BOOL && !check_bools(p, count, err))
            return false;
    }
    *out = (struct gguf_array){
        .type = type, .count = count, .data = c->data + begin, .n_bytes = c->pos - begin};
    return true;
}

static bool read_value(struct cursor *c, struct gguf_kv *kv, struct error *err)
{
    uint64_t raw = 0;
    if (kv->type > GGUF_FLOAT64)
        return error_set(err, ERR_MODEL, "value type %u, expected 0-%d", (unsigned)kv->type,
                         GGUF_FLOAT64);
    if (kv->type == GGUF_STRING)
        return read_str(c, &kv->v.s) || cut_short(c, err);
    if (kv->type == GGUF_ARRAY)
        return read_array(c, 1, &kv->v.a, err);
    raw = cursor_uint(c, value_bytes(kv->type));
    if (c->failed)
        return cut_short(c, err);
    float f;
    uint32_t raw32 = (uint32_t)raw;
    switch (kv->type) {
    case GGUF_INT8:
        kv->v.i = (int8_t)raw;
        break;
    case GGUF_INT16:
        kv->v.i = (int16_t)raw;
        break;
    case GGUF_INT32:
        kv->v.i = (int32_t)raw;
        break;
    case GGUF_INT64:
        kv->v.i = (int64_t)raw;
        break;
    case GGUF_FLOAT32:
        memcpy(&f, &raw32, sizeof f);
        kv->v.f = f;
        break;
    case GGUF_FLOAT64:
        memcpy(&kv->v.f, &raw, sizeof kv->v.f);
        break;
    case GGUF_BOOL:
        if (raw > 1)
            return error_set(err, ERR_MODEL, "a bool has the value %u, expected 0 or 1",
                             (unsigned)raw);
        kv->v.u = raw;
        break;
    default:
        kv->v.u = raw;
    }
    return true;
}

// Makes room for one more element of an array of n. *cap is in elements.
static bool grow(void **array, size_t n, size_t *cap, size_t elem_size, const char *what,
                 struct error *err)
{
    if (n < *cap)
        return true;
    size_t new_cap = *cap ? *cap * 2 : 64;
    if (new_cap > SIZE_MAX / elem_size)
        return error_oom(err, what, UINT64_MAX);
    void *p = realloc(*array, new_cap * elem_size);
    if (!p)
        return error_oom(err, what, new_cap * elem_size);
    *array = p;
    *cap = new_cap;
    return true;
}

static bool read_metadata(struct cursor *c, struct gguf_part *part, uint64_t n_kv,
                          struct error *err)
{
    size_t cap = 0;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], name[FORMAT_TEXT];
    for (uint64_t i = 0; i < n_kv; i++) {
        struct gguf_kv kv = {0};
        if (!read_str(c, &kv.key)) {
            cut_short(c, err);
            return error_prefix(err, "metadata key %s of %s", format_number(a, i + 1),
                                format_number(b, n_kv));
        }
        if (kv.key.len < 1 || kv.key.len > MAX_KEY)
            return error_set(err, ERR_MODEL,
                             "metadata key %s of %s is %zu bytes long, expected 1-%d",
                             format_number(a, i + 1), format_number(b, n_kv), kv.key.len, MAX_KEY);
        format_text(name, sizeof name, kv.key.data, kv.key.len);
        kv.type = cursor_u32(c);
        if (c->failed)
            cut_short(c, err);
        if (c->failed || !read_value(c, &kv, err))
            return error_prefix(err, "metadata key %s", name);
        void *p = part->kv;
        bool ok = grow(&p, part->n_kv, &cap, sizeof kv, "metadata", err);
        part->kv = p;
        if (!ok)
            return false;
        part->kv[part->n_kv++] = kv;
    }
    return true;
}

static bool read_alignment(struct gguf_part *part, struct error *err)
{
    static const char key[] = "general.alignment";
    part->alignment = DEFAULT_ALIGNMENT;
    for (size_t i = 0; i < part->n_kv; i++) {
        const struct gguf_kv *kv = &part->kv[i];
        if (kv->key.len != sizeof key - 1 || memcmp(kv->key.data, key, sizeof key - 1))
            continue;
        uint64_t v;
        if (!gguf_kv_uint(kv, UINT32_MAX, &v, err))
            return false;
        // The specification asks for a multiple of 8, not for a power of two.
        if (v == 0 || v % 8)
            return error_set(err, ERR_MODEL, "%s is %llu, expected a multiple of 8", key,
                             (unsigned long long)v);
        part->alignment = (uint32_t)v;
    }
    return true;
}

static bool check_type(const struct gguf_tensor *t, enum gguf_types types, struct error *err)
{
    const struct quant_info *qi = quant_info(t->type);
    if (qi->supported || types == GGUF_TYPES_ANY)
        return true;
    if (qi->name)
        return error_set(err, ERR_MODEL,
                         "has weight type %s, which is not supported; these are: %s", qi->name,
                         quant_supported_list());
    return error_set(err, ERR_MODEL, "has weight type number %u, which is unknown; these work: %s",
                     t->type, quant_supported_list());
}

static bool read_tensor(struct cursor *c, struct gguf_tensor *t, struct error *err)
{
    t->n_dims = cursor_u32(c);
    if (c->failed)
        goto cut;
    if (t->n_dims < 1 || t->n_dims > 4)
        return error_set(err, ERR_MODEL, "has %u dimensions, expected 1-4", t->n_dims);
    for (uint32_t d = 0; d < 4; d++)
        t->ne[d] = d < t->n_dims ? cursor_u64(c) : 1;
    t->type = cursor_u32(c);
    t->offset = cursor_u64(c); // for now relative to the data
    if (!c->failed)
        return true;
cut:
    cut_short(c, err);
    return error_prefix(err, "has a damaged entry");
}

// Sizes, from dimensions and type; n_bytes stays 0 where the block size is not known.
static bool measure(struct gguf_tensor *t, struct error *err)
{
    uint64_t n = 1;
    char a[FORMAT_NUMBER];
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0)
            return error_set(err, ERR_MODEL, "has 0 as its dimension %u, expected at least 1", d);
        if (t->ne[d] > INT64_MAX || __builtin_mul_overflow(n, t->ne[d], &n) || n > INT64_MAX)
            return error_set(err, ERR_MODEL,
                             "has %s as its dimension %u: more weights than any file holds",
                             format_number(a, t->ne[d]), d);
    }
    const struct quant_info *qi = quant_info(t->type);
    if (!qi->name)
        return true;
    if (t->ne[0] % qi->block_elems)
        return error_set(err, ERR_MODEL, "has rows of %s weights, expected a multiple of %u (%s)",
                         format_number(a, t->ne[0]), qi->block_elems, qi->name);
    if (__builtin_mul_overflow(n / qi->block_elems, (uint64_t)qi->block_bytes, &t->n_bytes))
        return error_set(err, ERR_MODEL, "has %s weights: more than any file holds",
                         format_number(a, n));
    return true;
}

// "has 0 dimensions" -> "tensor NAME has 0 dimensions"
static bool name_tensor(const struct gguf_tensor *t, struct error *err)
{
    char name[FORMAT_TEXT], text[sizeof err->text];
    if (!err)
        return false;
    memcpy(text, err->text, sizeof text);
    return error_set(err, err->code, "tensor %s %s",
                     format_text(name, sizeof name, t->name.data, t->name.len), text);
}

// Turns the offset into one from the file's beginning and checks that the data is in the file.
static bool place(const struct gguf_part *part, struct gguf_tensor *t, struct error *err)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    if (t->offset % part->alignment)
        return error_set(err, ERR_MODEL, "has offset %s, expected a multiple of the alignment, %u",
                         format_number(a, t->offset), part->alignment);
    uint64_t begin, end;
    if (__builtin_add_overflow(part->data_offset, t->offset, &begin) ||
        __builtin_add_overflow(begin, t->n_bytes, &end))
        return error_set(err, ERR_MODEL, "has offset %s and %s bytes: beyond any file",
                         format_number(a, t->offset), format_number(b, t->n_bytes));
    if (end > part->size)
        return error_set(err, ERR_MODEL,
                         "ends at byte %s but the file has %s (truncated download?)",
                         format_number(a, end), format_number(b, part->size));
    t->offset = begin;
    t->data = (const char *)part->map + begin;
    return true;
}

bool gguf_parse_part(struct gguf_part *part, uint32_t file, enum gguf_types types,
                     struct gguf_tensor **tensors, size_t *n_tensors, size_t *cap_tensors,
                     struct error *err)
{
    struct cursor c = {.data = part->map, .size = part->size};
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    if (!check_magic(&c, &part->version, err))
        return false;
    uint64_t n_new = cursor_u64(&c), n_kv = cursor_u64(&c);
    if (c.failed)
        return cut_short(&c, err);
    if (n_kv > cursor_left(&c) / MIN_KV_BYTES)
        return error_set(err, ERR_MODEL,
                         "says it has %s metadata keys, but only %s bytes follow (damaged?)",
                         format_number(a, n_kv), format_number(b, cursor_left(&c)));
    if (n_new > cursor_left(&c) / MIN_TENSOR_BYTES)
        return error_set(err, ERR_MODEL,
                         "says it has %s tensors, but only %s bytes follow (damaged?)",
                         format_number(a, n_new), format_number(b, cursor_left(&c)));
    if (!read_metadata(&c, part, n_kv, err) || !read_alignment(part, err))
        return false;

    size_t first = *n_tensors;
    for (uint64_t i = 0; i < n_new; i++) {
        struct gguf_tensor t = {.file = file};
        bool ok = read_str(&c, &t.name) || cut_short(&c, err);
        if (ok && (t.name.len < 1 || t.name.len > MAX_TENSOR_NAME))
            ok = error_set(err, ERR_MODEL, "has a name of %zu bytes, expected 1-%d", t.name.len,
                           MAX_TENSOR_NAME);
        if (!ok)
            return error_prefix(err, "tensor %s of %s", format_number(a, i + 1),
                                format_number(b, n_new));
        if (!read_tensor(&c, &t, err) || !check_type(&t, types, err) || !measure(&t, err))
            return name_tensor(&t, err);
        void *p = *tensors;
        ok = grow(&p, *n_tensors, cap_tensors, sizeof t, "tensor table", err);
        *tensors = p;
        if (!ok)
            return false;
        (*tensors)[(*n_tensors)++] = t;
    }
    part->header_bytes = c.pos;
    part->data_offset = ((uint64_t)c.pos + part->alignment - 1) / part->alignment * part->alignment;
    for (size_t i = first; i < *n_tensors; i++) {
        struct gguf_tensor *t = &(*tensors)[i];
        if (!place(part, t, err))
            return name_tensor(t, err);
    }
    return true;
}
