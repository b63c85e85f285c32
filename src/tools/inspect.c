// hokku inspect: metadata, tensors, totals, tokenizer, and what hokku would do with the file.
//
// The file is opened twice: leniently, to show whatever is in it, and as a model, so that the
// verdict is exactly what `-m` would say. Every text of the file passes format_text.
#include "tools/inspect.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/json_text.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "tools/inspect_layers.h"
#include "tools/inspect_split.h"

enum {
    FIRST_ELEMENTS = 8,       // of an array in JSON
    TEXT_ELEMENTS = 5,        // of an array in text
    MAX_JSON_STRING = 1 << 20 // bytes of a metadata string
};

struct inspected {
    struct gguf *gguf;
    struct model *model; // NULL: hokku cannot run it
    struct error why;    // when model is NULL
    struct tokenizer *own_tokenizer;
    const struct tokenizer *tokenizer; // the model's or own_tokenizer; NULL: it cannot be used
    struct error why_no_tokenizer;
};

static bool examine(const char *path, struct inspected *x, struct error *err)
{
    x->gguf = gguf_open_any_type(path, err);
    if (!x->gguf)
        return false;
    x->model = model_load(path, &x->why);
    if (!x->model && x->why.code == ERR_MEMORY) {
        *err = x->why;
        return false;
    }
    error_drop_prefix(&x->why, path); // the caller gave it
    if (x->model)
        x->tokenizer = x->model->tokenizer;
    else
        x->tokenizer = x->own_tokenizer = tokenizer_create(x->gguf, &x->why_no_tokenizer);
    return true;
}

static void inspected_release(struct inspected *x)
{
    tokenizer_free(x->own_tokenizer);
    model_free(x->model);
    gguf_free(x->gguf);
}

static uint64_t n_weights(const struct gguf_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

struct total {
    uint64_t n_tensors, n_params, n_bytes;
};

// Index QUANT_TYPE_MAX: types of unknown number.
static struct total totals(const struct gguf *g, struct total by_type[QUANT_TYPE_MAX + 1])
{
    struct total all = {0};
    memset(by_type, 0, (QUANT_TYPE_MAX + 1) * sizeof *by_type);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct total *of = &by_type[quant_info(t->type)->name ? t->type : QUANT_TYPE_MAX];
        of->n_tensors++;
        of->n_params += n_weights(t);
        of->n_bytes += t->n_bytes;
        all.n_tensors++;
        all.n_params += n_weights(t);
        all.n_bytes += t->n_bytes;
    }
    return all;
}

static const char *type_name(uint32_t type)
{
    const char *name = quant_info(type)->name;
    return name ? name : "unknown";
}

// --- text ---

static void put_text(struct buf *out, struct gguf_str s, size_t cap)
{
    char shown[256];
    buf_puts(out, format_text(shown, cap < sizeof shown ? cap : sizeof shown, s.data, s.len));
}

static void put_number(struct buf *out, uint64_t v)
{
    char n[FORMAT_NUMBER];
    buf_puts(out, format_number(n, v));
}

static bool is_float(enum gguf_value_type type)
{
    return type == GGUF_FLOAT32 || type == GGUF_FLOAT64;
}

static void text_array(struct buf *out, const struct gguf_array *a)
{
    buf_printf(out, "%s[", gguf_value_type_name(a->type));
    put_number(out, a->count);
    buf_puts(out, a->count ? "] " : "]");
    if (a->type == GGUF_ARRAY) {
        buf_puts(out, "...");
        return;
    }
    size_t cursor = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        if (i == TEXT_ELEMENTS) {
            buf_puts(out, ", ...");
            return;
        }
        struct gguf_str s;
        buf_puts(out, i ? ", " : "");
        if (a->type == GGUF_STRING && gguf_array_next_str(a, &cursor, &s)) {
            buf_putc(out, '"');
            put_text(out, s, 24);
            buf_putc(out, '"');
        } else if (is_float(a->type)) {
            buf_printf(out, "%.7g", gguf_array_f64(a, i));
        } else if (a->type == GGUF_BOOL) {
            buf_puts(out, gguf_array_i64(a, i) ? "true" : "false");
        } else {
            buf_printf(out, "%" PRId64, gguf_array_i64(a, i));
        }
    }
}

static void text_value(struct buf *out, const struct gguf_kv *kv)
{
    char number[FORMAT_NUMBER];
    switch (kv->type) {
    case GGUF_STRING:
        put_text(out, kv->v.s, 100);
        break;
    case GGUF_ARRAY:
        text_array(out, &kv->v.a);
        break;
    case GGUF_BOOL:
        buf_puts(out, kv->v.u ? "true" : "false");
        break;
    case GGUF_FLOAT32:
        buf_printf(out, "%.7g", kv->v.f);
        break;
    case GGUF_FLOAT64:
        buf_puts(out, format_real(number, kv->v.f));
        break;
    case GGUF_INT8:
    case GGUF_INT16:
    case GGUF_INT32:
    case GGUF_INT64:
        buf_printf(out, "%" PRId64, kv->v.i);
        break;
    default:
        buf_printf(out, "%" PRIu64, kv->v.u);
    }
}

static void text_tensor(struct buf *out, const struct gguf *g, const struct gguf_tensor *t)
{
    char name[FORMAT_TEXT], a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    struct buf shape = {0};
    for (uint32_t d = 0; d < t->n_dims; d++)
        buf_printf(&shape, "%s%" PRIu64, d ? " x " : "", t->ne[d]);
    buf_printf(out, "  %-32s %-7s %-16s %14s bytes at %s",
               format_text(name, sizeof name, t->name.data, t->name.len), type_name(t->type),
               buf_str(&shape), quant_info(t->type)->name ? format_number(a, t->n_bytes) : "?",
               format_number(b, t->offset));
    if (gguf_n_files(g) > 1)
        buf_printf(out, " of part %u", t->file + 1);
    buf_putc(out, '\n');
    buf_release(&shape);
}

static void text_token(struct buf *out, const struct tokenizer *t, const char *what, int32_t id)
{
    if (id < 0) {
        buf_printf(out, ", no %s", what);
        return;
    }
    buf_printf(out, ", %s %d \"", what, id);
    put_text(out, tokenizer_text(t, id), 40);
    buf_putc(out, '"');
}

static void text_tokenizer(struct buf *out, const struct inspected *x)
{
    const struct tokenizer *t = x->tokenizer;
    buf_puts(out, "tokenizer\n  ");
    if (!t) {
        buf_printf(out, "cannot be used: %s\n", x->why_no_tokenizer.text);
        return;
    }
    buf_puts(out, tokenizer_model(t));
    if (*tokenizer_pre(t))
        buf_printf(out, " (%s)", tokenizer_pre(t));
    buf_puts(out, ", ");
    put_number(out, tokenizer_n_vocab(t));
    buf_puts(out, " tokens");
    text_token(out, t, "BOS", tokenizer_bos(t));
    buf_puts(out, tokenizer_add_bos(t) ? " (added)" : " (not added)");
    text_token(out, t, "EOS", tokenizer_eos(t));
    buf_puts(out, tokenizer_add_eos(t) ? " (added)\n" : "\n");
    size_t n;
    const int32_t *ids = tokenizer_suppressed(t, &n);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%d \"", i ? ", " : "  never sampled: ", ids[i]);
        put_text(out, tokenizer_text(t, ids[i]), 40);
        buf_puts(out, i + 1 < n ? "\"" : "\"\n");
    }
}

// What the prediction layer of its file is to m.
static void text_predictor(struct buf *out, const struct model *m)
{
    char a[FORMAT_NUMBER];
    struct error why = {0};
    struct model *p = model_predictor(m, &why);
    const uint32_t n = m->hp.n_layer_predict;
    buf_printf(out, "  %u prediction layer%s", n, n == 1 ? "" : "s");
    if (p)
        buf_printf(out, ", %s bytes of %s own, left out unless %s guesses (--spec mtp)\n",
                   format_number(a, p->weight_bytes - p->shared_bytes),
                   n == 1 ? "its" : "the first's", n == 1 ? "it" : "that");
    else
        buf_printf(out, ", not used: %s\n", why.text);
    model_free(p);
}

static void text_verdict(struct buf *out, const struct inspected *x)
{
    buf_puts(out, "hokku\n");
    if (!x->model) {
        buf_printf(out, "  cannot run it: %s\n", x->why.text);
        return;
    }
    const struct model *m = x->model;
    const struct hparams *hp = &m->hp;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    buf_printf(out, "  runs it as %s: %s, %s\n", m->arch, m->name, m->quant);
    buf_printf(out, "  %u layers, %u wide, context %s\n", hp->n_layer, hp->n_embd,
               format_number(a, hp->n_ctx_train));
    inspect_layers_text(out, m);
    if (hp->n_layer_predict > 0)
        text_predictor(out, m);
    buf_printf(out, "  head %s, chat template %s\n", m->tied ? "tied to the embedding" : "its own",
               m->chat_template.data ? "present" : "absent (completion only, as with -no-cnv)");
    buf_printf(out, "  one decoded token reads %s bytes of weights (%s)\n",
               format_number(a, model_bytes_per_token(m)),
               format_bytes(b, model_bytes_per_token(m)));
    buf_printf(out, "  fingerprint %s\n", m->fingerprint);
}

// What matters first; what is long last.
static bool text_report(struct buf *out, const struct inspected *x, const struct inspect_options *o,
                        struct error *err)
{
    const struct gguf *g = x->gguf;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], path[256];
    for (size_t i = 0; i < gguf_n_files(g); i++) {
        const char *p = gguf_file_path(g, i);
        buf_printf(out, "%s: %s bytes\n", format_text(path, sizeof path, p, strlen(p)),
                   format_number(a, gguf_file_bytes(g, i)));
    }
    buf_printf(out, "GGUF version %u, alignment %u\n", gguf_version(g), gguf_alignment(g));

    text_verdict(out, x);
    if (x->model && !inspect_split_text(out, x->model, o->devices, err))
        return false;
    struct total by_type[QUANT_TYPE_MAX + 1], all = totals(g, by_type);
    buf_printf(out, "totals\n  %s parameters, ", format_number(a, all.n_params));
    buf_printf(out, "%s bytes (%s)\n", format_number(a, all.n_bytes), format_bytes(b, all.n_bytes));
    for (uint32_t type = 0; type <= QUANT_TYPE_MAX; type++) {
        if (!by_type[type].n_tensors)
            continue;
        buf_printf(out, "  %-7s %5" PRIu64 " tensors %16s parameters", type_name(type),
                   by_type[type].n_tensors, format_number(a, by_type[type].n_params));
        buf_printf(out, " %16s bytes%s\n", format_number(a, by_type[type].n_bytes),
                   quant_info(type)->supported ? "" : " (not supported)");
    }
    text_tokenizer(out, x);
    buf_printf(out, "metadata (%zu)\n", gguf_n_kv(g));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char key[FORMAT_TEXT];
        buf_printf(out, "  %-44s ", format_text(key, sizeof key, kv->key.data, kv->key.len));
        text_value(out, kv);
        buf_putc(out, '\n');
    }
    buf_printf(out, "tensors (%zu)%s\n", gguf_n_tensors(g), o->tensors ? "" : ": -v lists them");
    for (size_t i = 0; o->tensors && i < gguf_n_tensors(g); i++)
        text_tensor(out, g, gguf_tensor_at(g, i));
    return !out->failed || error_oom(err, "description", out->len);
}

// --- JSON ---

// Escaped as in messages. NULL when out of memory.
static json_t *json_escaped(struct gguf_str s)
{
    size_t cap = s.len < MAX_JSON_STRING ? 4 * s.len + 8 : MAX_JSON_STRING;
    char *shown = malloc(cap);
    if (!shown)
        return NULL;
    json_t *j = json_string(format_text(shown, cap, s.data, s.len));
    free(shown);
    return j;
}

// What is no UTF-8 is escaped: JSON has no bytes. Steals nothing; NULL when out of memory.
static json_t *json_shown(struct gguf_str s)
{
    json_t *j = s.len <= MAX_JSON_STRING ? json_stringn(s.data, s.len) : NULL;
    return j ? j : json_escaped(s);
}

// JSON numbers hold neither infinity nor NaN.
static json_t *json_float(double v, enum gguf_value_type type)
{
    v = type == GGUF_FLOAT32 ? format_float((float)v) : v;
    return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *json_array_value(const struct gguf_array *a)
{
    json_t *first = json_array();
    size_t cursor = 0;
    for (uint64_t i = 0; i < a->count && i < FIRST_ELEMENTS && a->type != GGUF_ARRAY; i++) {
        struct gguf_str s;
        json_t *j;
        if (a->type == GGUF_STRING)
            j = gguf_array_next_str(a, &cursor, &s) ? json_shown(s) : json_null();
        else if (is_float(a->type))
            j = json_float(gguf_array_f64(a, i), a->type);
        else if (a->type == GGUF_BOOL)
            j = json_boolean(gguf_array_i64(a, i));
        else if (a->type == GGUF_UINT64)
            j = json_u64((uint64_t)gguf_array_i64(a, i));
        else
            j = json_integer(gguf_array_i64(a, i));
        json_array_append_new(first, j);
    }
    return json_pack("{s:s, s:o, s:o}", "array_of", gguf_value_type_name(a->type), "count",
                     json_u64(a->count), "first", first);
}

static json_t *json_value(const struct gguf_kv *kv)
{
    switch (kv->type) {
    case GGUF_STRING:
        return json_shown(kv->v.s);
    case GGUF_ARRAY:
        return json_array_value(&kv->v.a);
    case GGUF_BOOL:
        return json_boolean(kv->v.u);
    case GGUF_FLOAT32:
    case GGUF_FLOAT64:
        return json_float(kv->v.f, kv->type);
    case GGUF_INT8:
    case GGUF_INT16:
    case GGUF_INT32:
    case GGUF_INT64:
        return json_integer(kv->v.i);
    default:
        return json_u64(kv->v.u);
    }
}

static json_t *json_metadata(const struct gguf *g)
{
    json_t *o = json_object();
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        // jansson has no NUL in a key
        const bool nul = memchr(kv->key.data, '\0', kv->key.len) != NULL;
        json_t *key = nul ? json_escaped(kv->key) : json_shown(kv->key);
        json_object_set_new(o, json_string_value(key), json_value(kv));
        json_decref(key);
    }
    return o;
}

static json_t *json_tensors(const struct gguf *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_u64(t->ne[d]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:i, s:o, s:o, s:o, s:i}", "name",
                                              json_shown(t->name), "type", type_name(t->type),
                                              "type_number", (int)t->type, "shape", shape, "bytes",
                                              json_u64(t->n_bytes), "offset", json_u64(t->offset),
                                              "file", (int)t->file));
    }
    return list;
}

static json_t *json_total(const struct total *t)
{
    return json_pack("{s:o, s:o, s:o}", "tensors", json_u64(t->n_tensors), "parameters",
                     json_u64(t->n_params), "bytes", json_u64(t->n_bytes));
}

static json_t *json_totals(const struct gguf *g)
{
    struct total by_type[QUANT_TYPE_MAX + 1], all = totals(g, by_type);
    json_t *o = json_total(&all), *types = json_object();
    for (uint32_t type = 0; type <= QUANT_TYPE_MAX; type++)
        if (by_type[type].n_tensors)
            json_object_set_new(types, type_name(type), json_total(&by_type[type]));
    json_object_set_new(o, "by_type", types);
    return o;
}

static json_t *json_id(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static json_t *json_tokenizer(const struct inspected *x)
{
    const struct tokenizer *t = x->tokenizer;
    if (!t) {
        const char *why = x->why_no_tokenizer.text;
        return json_pack("{s:b, s:o}", "supported", 0, "reason",
                         json_shown((struct gguf_str){why, strlen(why)}));
    }
    size_t n;
    const int32_t *ids = tokenizer_suppressed(t, &n);
    json_t *suppressed = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(suppressed, json_integer(ids[i]));
    return json_pack("{s:b, s:s, s:s, s:i, s:o, s:o, s:b, s:b, s:o}", "supported", 1, "model",
                     tokenizer_model(t), "pre", tokenizer_pre(t), "tokens",
                     (int)tokenizer_n_vocab(t), "bos", json_id(tokenizer_bos(t)), "eos",
                     json_id(tokenizer_eos(t)), "add_bos", tokenizer_add_bos(t), "add_eos",
                     tokenizer_add_eos(t), "never_sampled", suppressed);
}

// NULL: no memory.
static json_t *json_verdict(const struct inspected *x, uint32_t devices, struct error *err)
{
    const struct model *m = x->model;
    if (!m)
        return json_pack("{s:b, s:o}", "supported", 0, "reason",
                         json_shown((struct gguf_str){x->why.text, strlen(x->why.text)}));
    const struct hparams *hp = &m->hp;
    const struct layer *l = &m->layers[0]; // of others see layer_kinds
    const struct rope *rope = &m->ropes[0];
    json_t *o = json_pack("{s:b, s:s, s:s, s:s, s:s}", "supported", 1, "architecture", m->arch,
                          "name", m->name, "quant", m->quant, "fingerprint", m->fingerprint);
    const struct {
        const char *name;
        uint64_t v;
    } numbers[] = {
        {"vocab", hp->n_vocab},
        {"context", hp->n_ctx_train},
        {"embedding", hp->n_embd},
        {"layers", hp->n_layer},
        {"prediction_layers", hp->n_layer_predict},
        {"heads", l->n_head},
        {"kv_heads", l->n_head_kv},
        {"head_dim", l->head_dim},
        {"feed_forward", l->n_ff},
        {"sliding_window", l->window},
        {"rope_dim", rope->n_dim},
        {"parameters", m->n_params},
        {"weight_bytes", m->weight_bytes},
        {"bytes_per_token", model_bytes_per_token(m)},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(o, numbers[i].name, json_u64(numbers[i].v));
    json_object_set_new(o, "layer_kinds", inspect_layers_json(m));
    json_object_set_new(o, "rope_theta", json_float(rope->theta, GGUF_FLOAT32));
    json_object_set_new(o, "rope_scaling", json_string(rope_scaling_name(rope->scaling)));
    json_object_set_new(o, "rope_factor", json_float(rope->factor, GGUF_FLOAT32));
    json_object_set_new(o, "rope_frequency_factors", json_boolean(rope->factors));
    json_object_set_new(o, "tied_head", json_boolean(m->tied));
    json_object_set_new(o, "chat_template", json_boolean(m->chat_template.data));
    if (inspect_split_json(o, m, devices, err))
        return o;
    json_decref(o);
    return NULL;
}

static bool json_report(struct buf *out, const struct inspected *x, uint32_t devices,
                        struct error *err)
{
    const struct gguf *g = x->gguf;
    json_t *files = json_array();
    for (size_t i = 0; i < gguf_n_files(g); i++) {
        const char *path = gguf_file_path(g, i);
        json_array_append_new(files, json_pack("{s:o, s:o, s:o}", "path",
                                               json_shown((struct gguf_str){path, strlen(path)}),
                                               "bytes", json_u64(gguf_file_bytes(g, i)),
                                               "data_offset", json_u64(gguf_data_offset(g, i))));
    }
    json_t *root =
        json_pack("{s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "files", files, "version",
                  (int)gguf_version(g), "alignment", (int)gguf_alignment(g), "metadata",
                  json_metadata(g), "tensors", json_tensors(g), "totals", json_totals(g),
                  "tokenizer", json_tokenizer(x), "hokku", json_verdict(x, devices, err));
    char *text = root ? json_line(root, 0) : NULL;
    bool ok = text && buf_puts(out, text) && buf_putc(out, '\n');
    free(text);
    json_decref(root);
    return ok || error_oom(err, "JSON", 0);
}

bool tool_inspect(const char *path, const struct inspect_options *o, struct buf *out,
                  struct error *err)
{
    struct inspected x = {0};
    bool ok = examine(path, &x, err);
    ok = ok && (o->json ? json_report(out, &x, o->devices, err) : text_report(out, &x, o, err));
    inspected_release(&x);
    return ok;
}
