// Binds the tensors of the file to their places in the model, by name, shape and type.
#include "model/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/format.h"

struct binder {
    struct model *m;
    bool *used; // per tensor of the file
    struct error *err;
};

static const struct gguf_tensor *find(struct binder *b, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(b->m->gguf, name);
    if (t)
        b->used[t - gguf_tensor_at(b->m->gguf, 0)] = true;
    return t;
}

// "4096 x 11008"
static void shape_text(const struct gguf_tensor *t, struct buf *out)
{
    for (uint32_t d = 0; d < t->n_dims; d++)
        buf_printf(out, "%s%llu", d ? " x " : "", (unsigned long long)t->ne[d]);
}

static bool wrong_shape(struct binder *b, const char *name, const struct gguf_tensor *t,
                        uint64_t n_cols, uint64_t rows)
{
    struct buf found = {0};
    shape_text(t, &found);
    if (rows == 1)
        error_set(b->err, ERR_MODEL, "tensor %s has shape %s, expected %llu", name, buf_str(&found),
                  (unsigned long long)n_cols);
    else
        error_set(b->err, ERR_MODEL, "tensor %s has shape %s, expected %llu x %llu", name,
                  buf_str(&found), (unsigned long long)n_cols, (unsigned long long)rows);
    buf_release(&found);
    return false;
}

static bool check_supported(struct binder *b, const char *name, const struct gguf_tensor *t)
{
    const struct quant_info *qi = quant_info(t->type);
    if (qi->supported)
        return true;
    if (qi->name)
        return error_set(b->err, ERR_MODEL,
                         "tensor %s has weight type %s, which is not supported; these are: %s",
                         name, qi->name, quant_supported_list());
    return error_set(b->err, ERR_MODEL, "tensor %s has the unknown weight type %u", name, t->type);
}

static bool set_matrix(struct binder *b, const char *name, const struct gguf_tensor *t,
                       uint64_t rows, uint64_t n_cols, struct weight *w)
{
    if (t->ne[0] != n_cols || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1)
        return wrong_shape(b, name, t, n_cols, rows);
    if (!check_supported(b, name, t))
        return false;
    w->type = t->type;
    w->rows = (uint32_t)rows;
    w->n_cols = (uint32_t)n_cols;
    w->data = t->data;
    w->n_bytes = (size_t)t->n_bytes;
    w->tensor = t;
    return true;
}

static bool missing(struct binder *b, const char *name, uint64_t n_cols, uint64_t rows)
{
    if (rows == 1)
        return error_set(b->err, ERR_MODEL, "tensor %s (%llu) is missing", name,
                         (unsigned long long)n_cols);
    return error_set(b->err, ERR_MODEL, "tensor %s (%llu x %llu) is missing", name,
                     (unsigned long long)n_cols, (unsigned long long)rows);
}

static void set_vector(struct weight *w, const float *v, uint64_t n)
{
    w->type = QUANT_F32;
    w->rows = 1;
    w->n_cols = (uint32_t)n;
    w->data = v;
    w->n_bytes = n * sizeof *v;
}

// A vector of n floats: used in place when it is F32 and aligned, else converted.
static bool bind_vector(struct binder *b, const char *name, enum presence presence, uint64_t n,
                        struct weight *out)
{
    struct model *m = b->m;
    out->vector = true;
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, name);
    if (!t)
        return presence == REQUIRED ? missing(b, name, n, 1) : true;
    if (presence == ABSENT)
        return true; // not marked as used, so it will be refused by name
    find(b, name);
    if (t->ne[0] != n || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1)
        return wrong_shape(b, name, t, n, 1);
    if (t->type != QUANT_F32 && t->type != QUANT_F16 && t->type != QUANT_BF16) {
        const struct quant_info *qi = quant_info(t->type);
        return error_set(b->err, ERR_MODEL, "tensor %s is of type %s, expected F32, F16 or BF16",
                         name, qi->name ? qi->name : "unknown");
    }
    if (t->type == QUANT_F32 && (uintptr_t)t->data % _Alignof(float) == 0) {
        set_vector(out, t->data, n);
        return true;
    }
    float *copy = malloc(n * sizeof *copy);
    float **list = realloc(m->converted, (m->n_converted + 1) * sizeof *list);
    if (list)
        m->converted = list;
    if (!copy || !list) {
        free(copy);
        return error_oom(b->err, name, n * sizeof *copy);
    }
    quant_dequantize(t->type, t->data, copy, n);
    m->converted[m->n_converted++] = copy;
    set_vector(out, copy, n);
    return true;
}

// A length that the facts of the model and of the layer give.
enum dim { N_EMBD, N_Q, N_KV, N_FF, HEAD_DIM };

static uint64_t dim_size(const struct hparams *hp, const struct layer *l, enum dim d)
{
    switch (d) {
    case N_EMBD:
        return hp->n_embd;
    case N_Q:
        return (uint64_t)l->n_head * l->head_dim;
    case N_KV:
        return (uint64_t)l->n_head_kv * l->head_dim;
    case N_FF:
        return l->n_ff;
    case HEAD_DIM:
        break;
    }
    return l->head_dim;
}

// The weights of a layer. Presence: the same for every architecture, or that of a fact of its row.
enum presence_rule { ALWAYS, NEVER, AS_QKV_BIAS, AS_OUT_BIAS, AS_QK_NORM };

static const struct weight_row {
    const char *name; // the tensor is blk.LAYER.NAME, ".weight" appended where there is no dot
    bool vector;
    enum dim rows, n_cols; // rows: of a matrix
    enum presence_rule rule;
    const char *group; // NULL: of its own
} layer_weights[N_LAYER_WEIGHTS] = {
    [ATTN_NORM] = {"attn_norm", true, .n_cols = N_EMBD},
    [ATTN_NORM_BIAS] = {"attn_norm.bias", true, .n_cols = N_EMBD, .rule = NEVER},
    [ATTN_Q] = {"attn_q", false, N_Q, N_EMBD, .group = "attn_q+attn_k+attn_v"},
    [ATTN_K] = {"attn_k", false, N_KV, N_EMBD, .group = "attn_q+attn_k+attn_v"},
    [ATTN_V] = {"attn_v", false, N_KV, N_EMBD, .group = "attn_q+attn_k+attn_v"},
    [ATTN_Q_BIAS] = {"attn_q.bias", true, .n_cols = N_Q, .rule = AS_QKV_BIAS},
    [ATTN_K_BIAS] = {"attn_k.bias", true, .n_cols = N_KV, .rule = AS_QKV_BIAS},
    [ATTN_V_BIAS] = {"attn_v.bias", true, .n_cols = N_KV, .rule = AS_QKV_BIAS},
    [ATTN_Q_NORM] = {"attn_q_norm", true, .n_cols = HEAD_DIM, .rule = AS_QK_NORM},
    [ATTN_K_NORM] = {"attn_k_norm", true, .n_cols = HEAD_DIM, .rule = AS_QK_NORM},
    [ATTN_OUTPUT] = {"attn_output", false, N_EMBD, N_Q},
    [ATTN_OUTPUT_BIAS] = {"attn_output.bias", true, .n_cols = N_EMBD, .rule = AS_OUT_BIAS},
    [ATTN_POST_NORM] = {"post_attention_norm", true, .n_cols = N_EMBD, .rule = NEVER},
    [FFN_NORM] = {"ffn_norm", true, .n_cols = N_EMBD},
    [FFN_NORM_BIAS] = {"ffn_norm.bias", true, .n_cols = N_EMBD, .rule = NEVER},
    [FFN_GATE] = {"ffn_gate", false, N_FF, N_EMBD, .group = "ffn_gate+ffn_up"},
    [FFN_UP] = {"ffn_up", false, N_FF, N_EMBD, .group = "ffn_gate+ffn_up"},
    [FFN_UP_BIAS] = {"ffn_up.bias", true, .n_cols = N_FF, .rule = NEVER},
    [FFN_DOWN] = {"ffn_down", false, N_EMBD, N_FF},
    [FFN_DOWN_BIAS] = {"ffn_down.bias", true, .n_cols = N_EMBD, .rule = NEVER},
    [FFN_POST_NORM] = {"post_ffw_norm", true, .n_cols = N_EMBD, .rule = NEVER},
};

static enum presence presence_of(const struct arch *a, enum presence_rule rule)
{
    return rule == NEVER         ? ABSENT
           : rule == AS_QKV_BIAS ? a->qkv_bias
           : rule == AS_OUT_BIAS ? a->out_bias
           : rule == AS_QK_NORM  ? a->qk_norm
                                 : REQUIRED;
}

static bool bind_layer(struct binder *b, const struct arch *a, uint32_t i, struct layer *l)
{
    const struct hparams *hp = &b->m->hp;
    char name[64];
    for (size_t k = 0; k < N_LAYER_WEIGHTS; k++) {
        const struct weight_row *row = &layer_weights[k];
        struct weight *w = &l->w[k];
        const uint64_t n_cols = dim_size(hp, l, row->n_cols);
        snprintf(name, sizeof name, "blk.%u.%s%s", i, row->name,
                 strchr(row->name, '.') ? "" : ".weight");
        *w = (struct weight){.name = row->name, .group = row->group ? row->group : row->name};
        if (row->vector) {
            if (!bind_vector(b, name, presence_of(a, row->rule), n_cols, w))
                return false;
        } else {
            const uint64_t rows = dim_size(hp, l, row->rows);
            const struct gguf_tensor *t = find(b, name);
            if (!t)
                return missing(b, name, n_cols, rows);
            if (!set_matrix(b, name, t, rows, n_cols, w))
                return false;
        }
    }
    // Rotation frequencies that very old files store per layer; they follow from the metadata.
    snprintf(name, sizeof name, "blk.%u.attn_rot_embd.weight", i);
    find(b, name);
    return true;
}

// The divisors of a rotation's frequencies, where the file has them.
static bool bind_factors(struct binder *b, const char *name, uint32_t n_dim, const float **out)
{
    struct weight w = {0};
    if (!bind_vector(b, name, OPTIONAL, n_dim / 2, &w))
        return false;
    *out = w.data;
    for (uint32_t i = 0; *out && i < n_dim / 2; i++)
        if (!isfinite((*out)[i]) || (*out)[i] <= 0)
            return error_set(b->err, ERR_MODEL,
                             "tensor %s has %g at %u, expected finite numbers above 0", name,
                             (double)(*out)[i], i);
    return true;
}

static bool bind_outer(struct binder *b)
{
    struct model *m = b->m;
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *embd = find(b, "token_embd.weight");
    if (!embd)
        return error_set(b->err, ERR_MODEL, "tensor token_embd.weight is missing");
    if (embd->n_dims != 2 || embd->ne[1] > 1u << 24) {
        struct buf found = {0};
        shape_text(embd, &found);
        error_set(b->err, ERR_MODEL,
                  "tensor token_embd.weight has shape %s, expected %u x vocabulary",
                  buf_str(&found), hp->n_embd);
        buf_release(&found);
        return false;
    }
    hp->n_vocab = (uint32_t)embd->ne[1];
    m->tok_embd.name = m->tok_embd.group = "token_embd";
    m->output_norm.name = m->output_norm.group = "output_norm";
    m->output_norm_bias.name = m->output_norm_bias.group = "output_norm.bias";
    if (!set_matrix(b, "token_embd.weight", embd, hp->n_vocab, hp->n_embd, &m->tok_embd) ||
        !bind_vector(b, "output_norm.weight", REQUIRED, hp->n_embd, &m->output_norm) ||
        !bind_vector(b, "output_norm.bias", ABSENT, hp->n_embd, &m->output_norm_bias) ||
        !bind_factors(b, "rope_freqs.weight", m->ropes[0].n_dim, &m->ropes[0].factors))
        return false;
    const struct gguf_tensor *head = find(b, "output.weight");
    m->tied = !head;
    m->output = m->tok_embd;
    m->output.name = m->output.group = "output";
    return !head || set_matrix(b, "output.weight", head, hp->n_vocab, hp->n_embd, &m->output);
}

static bool refuse_leftovers(struct binder *b, const struct arch *a)
{
    const struct gguf *g = b->m->gguf;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        if (b->used[i])
            continue;
        char name[FORMAT_TEXT];
        const struct gguf_str s = gguf_tensor_at(g, i)->name;
        return error_set(b->err, ERR_MODEL,
                         "tensor %s is not one that architecture %s has with %u layers; without it "
                         "the model would not be what its file says",
                         format_text(name, sizeof name, s.data, s.len), a->name, b->m->hp.n_layer);
    }
    return true;
}

bool model_bind(struct model *m, const struct arch *a, struct error *err)
{
    size_t n = gguf_n_tensors(m->gguf);
    struct binder b = {.m = m, .err = err, .used = calloc(n + 1, sizeof *b.used)};
    bool ok = false;
    if (!b.used) {
        error_oom(err, "the tensors' marks", n);
        goto done;
    }
    if (!bind_outer(&b))
        goto done;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (!bind_layer(&b, a, i, &m->layers[i]))
            goto done;
    if (!refuse_leftovers(&b, a))
        goto done;
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        m->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        m->weight_bytes += t->n_bytes;
    }
    ok = true;
done:
    free(b.used);
    return ok;
}
