// Binds the tensors of the file to their places in the model, by name, shape and type.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/format.h"
#include "model/layer_weights.h"

struct binder {
    struct model *m;
    bool *used;  // per tensor of the file
    float *ones; // of norms without weights: the model's, or NULL
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
                        uint64_t n_cols, uint64_t rows, uint64_t n_stacked)
{
    struct buf found = {0};
    shape_text(t, &found);
    if (n_stacked > 0)
        error_set(b->err, ERR_MODEL, "tensor %s has shape %s, expected %llu x %llu x %llu", name,
                  buf_str(&found), (unsigned long long)n_cols, (unsigned long long)rows,
                  (unsigned long long)n_stacked);
    else if (rows == 1)
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

static bool has_shape(struct binder *b, const char *name, const struct gguf_tensor *t,
                      uint64_t rows, uint64_t n_cols)
{
    return (t->ne[0] == n_cols && t->ne[1] == rows && t->ne[2] == 1 && t->ne[3] == 1) ||
           wrong_shape(b, name, t, n_cols, rows, 0);
}

// `rows` rows from row0 on of a tensor whose type and shape have been checked.
static void set_matrix(const struct gguf_tensor *t, uint64_t row0, uint64_t rows, struct weight *w)
{
    const size_t row_bytes = quant_row_bytes(t->type, t->ne[0]);
    w->type = t->type;
    w->rows = (uint32_t)rows;
    w->n_cols = (uint32_t)t->ne[0];
    w->data = (const char *)t->data + row0 * row_bytes;
    w->n_bytes = rows * row_bytes;
    w->tensor = t;
}

// The same rows of each of the matrices that the tensor stacks, each_rows long.
static void set_stack(const struct gguf_tensor *t, uint64_t row0, uint64_t rows, uint64_t each_rows,
                      uint32_t n_used, struct weight *w)
{
    set_matrix(t, row0, rows, w);
    w->n_stacked = (uint32_t)(t->ne[1] * t->ne[2] / each_rows);
    w->n_used = n_used;
    w->n_bytes *= w->n_stacked;
    w->stack_bytes = each_rows * quant_row_bytes(t->type, t->ne[0]);
}

static bool has_stacked(struct binder *b, const char *name, const struct gguf_tensor *t,
                        uint64_t rows, uint64_t n_cols, uint32_t n_stacked)
{
    return (t->ne[0] == n_cols && t->ne[1] == rows && t->ne[2] == n_stacked && t->ne[3] == 1) ||
           wrong_shape(b, name, t, n_cols, rows, n_stacked);
}

static bool missing_stack(struct binder *b, const char *name, uint64_t n_cols, uint64_t rows,
                          uint32_t n_stacked)
{
    return error_set(b->err, ERR_MODEL, "tensor %s (%llu x %llu x %u) is missing", name,
                     (unsigned long long)n_cols, (unsigned long long)rows, n_stacked);
}

// n_stacked matrices, one behind the other.
static bool bind_stack(struct binder *b, const char *name, uint64_t rows, uint64_t n_cols,
                       uint32_t n_stacked, uint32_t n_used, struct weight *w)
{
    const struct gguf_tensor *t = find(b, name);
    if (!t)
        return missing_stack(b, name, n_cols, rows, n_stacked);
    if (!has_stacked(b, name, t, rows, n_cols, n_stacked) || !check_supported(b, name, t))
        return false;
    set_stack(t, 0, rows, rows, n_used, w);
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

// Memory that lives as long as the model.
static void *own(struct binder *b, const char *name, size_t n_bytes)
{
    struct model *m = b->m;
    void *p = malloc(n_bytes);
    void **list = realloc(m->converted, (m->n_converted + 1) * sizeof *list);
    if (list)
        m->converted = list;
    if (!p || !list) {
        free(p);
        error_oom(b->err, name, n_bytes);
        return NULL;
    }
    return m->converted[m->n_converted++] = p;
}

// n numbers from `first` on: used in place when they are F32 and aligned, else converted.
static bool set_vector(struct binder *b, const char *name, const struct gguf_tensor *t,
                       uint64_t first, uint64_t n, struct weight *w)
{
    // A vector with the rows of a matrix is quantised by some converters as one: whole rows of it.
    if (strstr(name, ".altup_router.weight")) {
        if (!check_supported(b, name, t))
            return false;
    } else if (t->type != QUANT_F32 && t->type != QUANT_F16 && t->type != QUANT_BF16) {
        const struct quant_info *qi = quant_info(t->type);
        return error_set(b->err, ERR_MODEL, "tensor %s is of type %s, expected F32, F16 or BF16",
                         name, qi->name ? qi->name : "unknown");
    }
    if (n > UINT32_MAX)
        return error_set(b->err, ERR_MODEL, "tensor %s has %llu numbers, expected at most %u", name,
                         (unsigned long long)n, UINT32_MAX);
    const void *data = (const char *)t->data + quant_row_bytes(t->type, first);
    w->type = QUANT_F32;
    w->rows = 1;
    w->n_cols = (uint32_t)n;
    w->n_bytes = n * sizeof(float);
    w->data = data;
    if (b->m->header_only || (t->type == QUANT_F32 && (uintptr_t)data % _Alignof(float) == 0))
        return true;
    float *copy = own(b, name, w->n_bytes);
    if (!copy)
        return false;
    quant_dequantize(t->type, data, copy, n);
    w->data = copy;
    return true;
}

// The weights of a norm that has none. All norms share them.
static bool set_ones(struct binder *b, struct weight *w)
{
    const uint32_t n = b->m->hp.n_embd;
    if (!b->ones) {
        b->ones = own(b, "weights of norms", n * sizeof *b->ones);
        for (uint32_t i = 0; b->ones && i < n; i++)
            b->ones[i] = 1;
    }
    w->type = QUANT_F32;
    w->rows = 1;
    w->n_cols = n;
    w->n_bytes = n * sizeof(float);
    w->vector = true;
    w->data = b->ones;
    return b->ones != NULL;
}

// All numbers of a tensor (n_cols, rows), one after the other.
static bool bind_vector(struct binder *b, const char *name, enum presence presence, uint64_t n_cols,
                        uint64_t rows, struct weight *w)
{
    w->vector = true;
    if (presence == ABSENT)
        return true; // where it is there it stays unmarked, and will be refused by name
    const struct gguf_tensor *t = find(b, name);
    if (!t)
        return presence == OPTIONAL || missing(b, name, n_cols, rows);
    return has_shape(b, name, t, rows, n_cols) && set_vector(b, name, t, 0, n_cols * rows, w);
}

static bool bind_matrix(struct binder *b, const char *name, enum presence presence, uint64_t rows,
                        uint64_t n_cols, struct weight *w)
{
    const struct gguf_tensor *t = find(b, name);
    if (!t)
        return presence == OPTIONAL || missing(b, name, n_cols, rows);
    if (!has_shape(b, name, t, rows, n_cols) || !check_supported(b, name, t))
        return false;
    set_matrix(t, 0, rows, w);
    return true;
}

static void beside(char name[static TENSOR_NAME_MAX], const char *matrix, const char *what)
{
    snprintf(name, TENSOR_NAME_MAX, "%.*s.%s", (int)(strlen(matrix) - strlen(".weight")), matrix,
             what);
}

// NAME.input_scale, one number or of each expert its own: how inputs of w may be rounded, which
// here they are not. Checked, so that nothing else passes under its name.
static bool pass_over_input_scale(struct binder *b, const char *matrix, const struct weight *w,
                                  bool each)
{
    char name[TENSOR_NAME_MAX];
    beside(name, matrix, "input_scale");
    const struct gguf_tensor *t = find(b, name);
    if (!t)
        return true;
    if (t->type != QUANT_F32) {
        const struct quant_info *qi = quant_info(t->type);
        return error_set(b->err, ERR_MODEL, "tensor %s is of type %s, expected F32", name,
                         qi->name ? qi->name : "unknown");
    }
    return has_shape(b, name, t, 1, each && t->ne[0] != 1 ? w->n_stacked : 1);
}

// What the products with `w` are times, beside the matrix of that name: NAME.scale, one number, or
// of each expert its own.
static bool bind_scale(struct binder *b, const char *matrix, struct weight *w, bool each)
{
    char name[TENSOR_NAME_MAX];
    struct weight scale = {0};
    if (!w->data)
        return true;
    beside(name, matrix, "scale");
    if (!bind_vector(b, name, OPTIONAL, each ? w->n_stacked : 1, 1, &scale) ||
        !pass_over_input_scale(b, matrix, w, each))
        return false;
    w->scale = scale.data;
    w->scale_each = each && scale.data;
    return true;
}

static bool bind_scaled(struct binder *b, const char *name, enum presence presence, uint64_t rows,
                        uint64_t n_cols, struct weight *w)
{
    return bind_matrix(b, name, presence, rows, n_cols, w) && bind_scale(b, name, w, false);
}

// ---- layers

static bool has_tensor(const struct binder *b, uint32_t i, const char *name)
{
    char full[TENSOR_NAME_MAX];
    return gguf_find_tensor(b->m->gguf, layer_tensor_name(full, i, name));
}

// Weights are fused when the first of them has no tensor of its own, and that of all is there, for
// all of which the layer has a place, or the family's. (ffn_up is also the name of what is not
// fused.)
static bool is_fused(const struct binder *b, const struct arch *a, uint32_t i,
                     const struct layer *l, int w, const char *fused)
{
    const struct hparams *hp = &b->m->hp;
    const int beside = w < FFN_GATE ? ATTN_K : EXPERT_GATE;
    return !has_tensor(b, i, layer_weight_fused(hp, l, w).first) &&
           (a->fused || (w != FFN_GATE && w != FFN_UP && has_tensor(b, i, fused) &&
                         layer_weight_presence(a, hp, l, beside) != ABSENT));
}

// Of each expert at.n numbers of the tensor, whose shape has been checked.
static bool set_each(struct binder *b, const char *name, const struct gguf_tensor *t,
                     struct fused_rows at, uint32_t n_expert, struct weight *w)
{
    struct weight all = {0};
    if (!set_vector(b, name, t, 0, at.all * n_expert, &all))
        return false;
    w->type = QUANT_F32;
    w->rows = 1;
    w->n_cols = (uint32_t)(at.n * n_expert);
    w->n_bytes = w->n_cols * sizeof(float);
    w->data = all.data;
    if (b->m->header_only)
        return true;
    float *copy = own(b, name, w->n_bytes);
    if (!copy)
        return false;
    for (uint32_t i = 0; i < n_expert; i++)
        memcpy(copy + i * at.n, (const float *)all.data + i * at.all + at.before,
               at.n * sizeof *copy);
    w->data = copy;
    return true;
}

static bool bind_fused(struct binder *b, uint32_t i, struct layer *l, int w,
                       const struct weight_form *f, enum presence presence)
{
    const struct fused_rows at = layer_weight_fused(&b->m->hp, l, w);
    const uint64_t n_cols = f->vector ? at.all : f->n_cols;
    const uint64_t rows = !f->vector ? at.all : f->stacked ? l->experts.n : 1;
    char name[TENSOR_NAME_MAX];
    const struct gguf_tensor *t = find(b, layer_tensor_name(name, i, f->fused));
    if (f->stacked && !f->vector) {
        if (!t)
            return missing_stack(b, name, n_cols, rows, l->experts.n);
        if (!has_stacked(b, name, t, rows, n_cols, l->experts.n) || !check_supported(b, name, t))
            return false;
        set_stack(t, at.before, at.n, rows, l->experts.n_used, &l->w[w]);
        return bind_scale(b, name, &l->w[w], true);
    }
    if (!t)
        return presence == OPTIONAL || missing(b, name, n_cols, rows);
    if (!has_shape(b, name, t, rows, n_cols))
        return false;
    if (f->vector && f->stacked)
        return set_each(b, name, t, at, l->experts.n, &l->w[w]);
    if (f->vector)
        return set_vector(b, name, t, at.before, at.n, &l->w[w]);
    if (!check_supported(b, name, t))
        return false;
    set_matrix(t, at.before, at.n, &l->w[w]);
    return bind_scale(b, name, &l->w[w], false);
}

// One for each head: stacked, or each head's keys and then its values in one matrix.
static bool bind_of_heads(struct binder *b, uint32_t i, struct layer *l, int w,
                          const struct weight_form *f)
{
    const uint64_t n_key = l->latent.n_key, n_kv = l->latent.n_kv;
    const uint64_t each = n_key + l->latent.n_value, all = each * l->n_head;
    char name[TENSOR_NAME_MAX];
    if (!l->latent.expands)
        return bind_stack(b, layer_tensor_name(name, i, f->name), f->rows, f->n_cols, l->n_head,
                          l->n_head, &l->w[w]) &&
               bind_scale(b, name, &l->w[w], false);
    const struct gguf_tensor *t = find(b, layer_tensor_name(name, i, "attn_kv_b"));
    if (!t)
        return missing(b, name, n_kv, all);
    if (!has_shape(b, name, t, all, n_kv) || !check_supported(b, name, t))
        return false;
    set_stack(t, w == ATTN_V_B ? n_key : 0, w == ATTN_V_B ? f->rows : n_key, each, l->n_head,
              &l->w[w]);
    return bind_scale(b, name, &l->w[w], false);
}

// Early files of qwen3next have ssm_in, of each key head in turn its query, its key, the values of
// the heads that share it, and what is for their gates. Here each kind has a matrix of its own.
static bool bind_by_keys(struct binder *b, uint32_t i, struct layer *l, int w,
                         const struct weight_form *f)
{
    const uint64_t n = l->delta.n_state, n_key = l->delta.n_key_head;
    const uint64_t n_shared = l->delta.n_head / l->delta.n_key_head * n;
    const uint64_t each = 2 * (n + n_shared);
    const struct weight_run query = {0, (uint32_t)n}, key = {(uint32_t)n, (uint32_t)n},
                            value = {(uint32_t)(2 * n), (uint32_t)n_shared},
                            gate = {(uint32_t)(2 * n + n_shared), (uint32_t)n_shared};
    const struct weight_run qkv[] = {query, key, value};
    const size_t n_kinds = w == DELTA_QKV ? 3 : 1;
    char name[TENSOR_NAME_MAX];
    const struct gguf_tensor *t = find(b, layer_tensor_name(name, i, "ssm_in"));
    if (!has_shape(b, name, t, each * n_key, f->n_cols) || !check_supported(b, name, t))
        return false;
    set_matrix(t, 0, f->rows, &l->w[w]);
    if (!bind_scale(b, name, &l->w[w], false))
        return false;
    if (b->m->header_only)
        return true;
    const size_t row = quant_row_bytes(t->type, t->ne[0]);
    char *to = own(b, name, l->w[w].n_bytes);
    if (!to)
        return false;
    l->w[w].data = to;
    l->w[w].tensor = NULL;
    for (size_t kind = 0; kind < n_kinds; kind++) {
        const struct weight_run r = w == DELTA_QKV ? qkv[kind] : gate;
        for (uint64_t k = 0; k < n_key; k++, to += r.n * row)
            memcpy(to, (const char *)t->data + (k * each + r.begin) * row, r.n * row);
    }
    return true;
}

// What the file calls it, or NULL: it has no such norm.
static const char *name_in_file(const struct binder *b, const struct arch *a, uint32_t i, int w,
                                const char *name)
{
    const bool two = a->second_norm && has_tensor(b, i, "attn_norm_2");
    if (two && (w == ATTN_NORM || w == ATTN_NORM_BIAS))
        return w == ATTN_NORM ? "attn_norm_2" : "attn_norm_2.bias";
    if (a->second_norm && (w == FFN_NORM || w == FFN_NORM_BIAS))
        return !two ? NULL : w == FFN_NORM ? "attn_norm" : "attn_norm.bias";
    return w == FFN_NORM && a->ffn_norm ? a->ffn_norm : name;
}

static bool bind_weight(struct binder *b, const struct arch *a, uint32_t i, struct layer *l, int w)
{
    const struct hparams *hp = &b->m->hp;
    const enum presence presence = layer_weight_presence(a, hp, l, w);
    const struct weight_form f = layer_weight_form(a, hp, l, w);
    char name[TENSOR_NAME_MAX];
    l->w[w] = (struct weight){.name = f.name, .group = f.group, .vector = f.vector};
    if (presence == ABSENT)
        return true;
    if (w == ROUTER_CHOICE_BIAS && !has_tensor(b, i, f.name) &&
        gguf_find_tensor(b->m->gguf, choice_bias_short(name, i)))
        return bind_vector(b, name, presence, f.n_cols, f.rows, &l->w[w]);
    if (a->norms_bare && (w == ATTN_NORM || w == FFN_NORM))
        return set_ones(b, &l->w[w]);
    if (w == ATTN_K_B || w == ATTN_V_B)
        return bind_of_heads(b, i, l, w, &f);
    if ((w == DELTA_QKV || w == DELTA_GATE) && a->delta_in_order && has_tensor(b, i, "ssm_in") &&
        !has_tensor(b, i, "attn_qkv") && !has_tensor(b, i, "attn_gate"))
        return bind_by_keys(b, i, l, w, &f);
    if (f.fused && is_fused(b, a, i, l, w, f.fused))
        return bind_fused(b, i, l, w, &f, presence);
    const char *in_file = name_in_file(b, a, i, w, f.name);
    if (!in_file)
        return true;
    layer_tensor_name(name, i, in_file);
    // whose names a vector of the layer has
    const bool own =
        (w == ROUTER && layer_weight_presence(a, hp, l, ROUTER_NORM) != ABSENT) ||
        (w == EXPERT_DOWN && layer_weight_presence(a, hp, l, EXPERT_DOWN_SCALE) != ABSENT);
    if (!f.vector)
        return (f.stacked ? bind_stack(b, name, f.rows, f.n_cols, l->experts.n, l->experts.n_used,
                                       &l->w[w])
                          : bind_matrix(b, name, presence, f.rows, f.n_cols, &l->w[w])) &&
               (own ? pass_over_input_scale(b, name, &l->w[w], f.stacked)
                    : bind_scale(b, name, &l->w[w], f.stacked));
    if (w == FFN_NORM && a->ffn_norm_whole)
        snprintf(name, sizeof name, "blk.%u.%s", i, a->ffn_norm);
    return bind_vector(b, name, presence, f.n_cols, f.rows, &l->w[w]);
}

// Rows of w from `first` on, n of them, as floats.
static void dequantize_rows(const struct weight *w, uint64_t first, uint64_t n, float *out)
{
    const size_t row = quant_row_bytes(w->type, w->n_cols);
    quant_dequantize(w->type, (const char *)w->data + first * row, out, n * w->n_cols);
    for (uint64_t i = 0; w->scale && i < n * w->n_cols; i++)
        out[i] *= *w->scale;
}

// attn_q gets the rows of attn_gate, head by head (see struct layer). Where the two are of other
// types, or have scales, both become floats.
static bool join_gate(struct binder *b, uint32_t i, struct layer *l)
{
    struct weight *q = &l->w[ATTN_Q], gate = {.name = "attn_gate"};
    char name[TENSOR_NAME_MAX];
    if (!bind_scaled(b, layer_tensor_name(name, i, gate.name), REQUIRED, q->rows, q->n_cols, &gate))
        return false;
    const bool alike = gate.type == q->type && !gate.scale && !q->scale;
    const uint32_t type = alike ? q->type : QUANT_F32;
    const size_t head = l->head_dim * quant_row_bytes(type, q->n_cols);
    struct weight both = {.name = q->name,
                          .group = q->group,
                          .type = type,
                          .rows = 2 * q->rows,
                          .n_cols = q->n_cols,
                          .data = q->data,
                          .n_bytes = 2 * l->n_head * head};
    char *to = b->m->header_only ? NULL : own(b, name, both.n_bytes);
    if (!b->m->header_only && !to)
        return false;
    if (to)
        both.data = to;
    b->m->grown_bytes += both.n_bytes - q->n_bytes - gate.n_bytes;
    for (uint64_t h = 0; to && h < l->n_head; h++, to += 2 * head) {
        if (alike) {
            memcpy(to, (const char *)q->data + h * head, head);
            memcpy(to + head, (const char *)gate.data + h * head, head);
        } else {
            dequantize_rows(q, h * l->head_dim, l->head_dim, (float *)(void *)to);
            dequantize_rows(&gate, h * l->head_dim, l->head_dim, (float *)(void *)(to + head));
        }
    }
    *q = both;
    l->gated = true;
    return true;
}

// Products with w are half as much.
static bool halve(struct binder *b, struct weight *w)
{
    if (!w->data || b->m->header_only)
        return true;
    float *scale = own(b, w->name, sizeof *scale);
    if (!scale)
        return false;
    *scale = w->scale ? *w->scale / 2 : 0.5f;
    w->scale = scale;
    return true;
}

static bool bind_layer(struct binder *b, const struct arch *a, uint32_t i, struct layer *l)
{
    static const enum layer_weight unused[] = {ATTN_K, ATTN_V, ATTN_K_NORM};
    char name[TENSOR_NAME_MAX];
    l->qk_norm = l->mixer == MIXER_ATTENTION ? a->qk_norm : QK_NORM_NONE;
    const bool rotated = b->m->ropes[l->rope].layout != ROPE_NONE;
    const bool bare = a->qk_norm == QK_NORM_BARE && rotated &&
                      (a->n_expert_bare == 0 || model_largest(b->m).n_expert != a->n_expert_bare);
    l->qk_norm_rotated = a->qk_norm_rotated;
    for (int w = 0; w < N_LAYER_WEIGHTS; w++)
        if (!bind_weight(b, a, i, l, w))
            return false;
    if (a->shared_averaged && !halve(b, &l->w[SHARED_DOWN]))
        return false;
    if (a->gate_apart && l->mixer == MIXER_ATTENTION && !join_gate(b, i, l))
        return false;
    if (l->kv_back > 0) // files may have what was trained with, but is not used
        for (size_t k = 0; k < sizeof unused / sizeof *unused; k++)
            find(b, layer_tensor_name(name, i, l->w[unused[k]].name));
    else if (!l->w[ATTN_Q_NORM].data != !l->w[ATTN_K_NORM].data)
        return error_set(b->err, ERR_MODEL,
                         "layer %u has only one of attn_q_norm and attn_k_norm, expected both or "
                         "none",
                         i);
    if (!l->w[ATTN_Q_NORM].data)
        l->qk_norm = bare ? QK_NORM_BARE : QK_NORM_NONE;
    l->parallel = layer_feeds(l) && (l->parallel || (a->parallel && !l->w[FFN_NORM].data));
    // Rotation frequencies that very old files store per layer; they follow from the metadata.
    find(b, layer_tensor_name(name, i, "attn_rot_embd"));
    return true;
}

// The divisors of a rotation's frequencies, where the file has them.
static bool bind_factors(struct binder *b, const char *name, uint32_t n_dim, const float **out)
{
    struct weight w = {0};
    if (!bind_vector(b, name, OPTIONAL, n_dim / 2, 1, &w))
        return false;
    *out = w.data;
    for (uint32_t i = 0; *out && !b->m->header_only && i < n_dim / 2; i++)
        if (!isfinite((*out)[i]) || (*out)[i] <= 0)
            return error_set(b->err, ERR_MODEL,
                             "tensor %s has %g at %u, expected finite numbers above 0", name,
                             (double)(*out)[i], i);
    return true;
}

// Of the rotation that the metadata describe: what differs from it is not scaled.
static bool bind_rope_factors(struct binder *b, const struct arch *a)
{
    struct rope *r = b->m->ropes;
    if (!bind_factors(b, "rope_freqs.weight", r->n_dim, &r->factors))
        return false;
    if (a->long_factors &&
        (!bind_factors(b, "rope_factors_short.weight", r->n_dim, &r->factors) ||
         !bind_factors(b, "rope_factors_long.weight", r->n_dim, &r->long_factors)))
        return false;
    if (!r->factors != !r->long_factors && a->long_factors)
        return error_set(b->err, ERR_MODEL,
                         "only one of the tensors rope_factors_short and rope_factors_long is "
                         "there, expected both or none");
    return true;
}

// What layers are told of a token.
static bool bind_token_layers(struct binder *b)
{
    struct model *m = b->m;
    const struct hparams *hp = &m->hp;
    const uint64_t n = (uint64_t)hp->n_layer * hp->n_embd_layer;
    m->token_layers.name = m->token_layers.group = "per_layer_token_embd";
    m->token_layers_proj.name = m->token_layers_proj.group = "per_layer_model_proj";
    m->token_layers_norm.name = m->token_layers_norm.group = "per_layer_proj_norm";
    return n == 0 || (bind_matrix(b, "per_layer_token_embd.weight", REQUIRED, hp->n_vocab, n,
                                  &m->token_layers) &&
                      bind_scaled(b, "per_layer_model_proj.weight", REQUIRED, n, hp->n_embd,
                                  &m->token_layers_proj) &&
                      bind_vector(b, "per_layer_proj_norm.weight", REQUIRED, hp->n_embd_layer, 1,
                                  &m->token_layers_norm));
}

// Where the streams beside the residual one come from, and what becomes of them.
static bool bind_altup(struct binder *b)
{
    struct model *m = b->m;
    const uint32_t n = m->hp.n_embd, n_side = m->hp.n_side;
    m->altup_proj.name = m->altup_proj.group = "altup_proj";
    m->altup_unembd_proj.name = m->altup_unembd_proj.group = "altup_unembd_proj";
    return n_side == 0 ||
           (bind_stack(b, "altup_proj.weight", n, n, n_side, n_side, &m->altup_proj) &&
            bind_stack(b, "altup_unembd_proj.weight", n, n, n_side, n_side, &m->altup_unembd_proj));
}

static bool bind_positions(struct binder *b, const struct arch *a)
{
    static const char name[] = "position_embd.weight";
    struct weight *w = &b->m->pos_embd;
    const uint32_t n = b->m->hp.n_embd, rows = b->m->hp.n_ctx_train;
    w->name = w->group = "position_embd";
    if (!a->positions)
        return true;
    if (!bind_vector(b, name, REQUIRED, n, rows, w))
        return false;
    w->vector = false;
    w->rows = rows;
    w->n_cols = n;
    w->tensor = find(b, name);
    if (w->tensor->type != QUANT_F32)
        b->m->grown_bytes += w->n_bytes - w->tensor->n_bytes;
    return true;
}

static bool bind_outer(struct binder *b, const struct arch *a)
{
    struct model *m = b->m;
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *embd = find(b, "token_embd.weight");
    char norm[TENSOR_NAME_MAX];
    snprintf(norm, sizeof norm, "%s.weight", a->output_norm ? a->output_norm : "output_norm");
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
    m->tied = !gguf_find_tensor(m->gguf, "output.weight");
    if (!bind_matrix(b, "token_embd.weight", REQUIRED, hp->n_vocab, hp->n_embd, &m->tok_embd))
        return false;
    m->output = m->tok_embd;
    m->output.name = m->output.group = "output";
    m->output_bias.name = m->output_bias.group = "output.bias";
    return (m->tied ||
            bind_scaled(b, "output.weight", REQUIRED, hp->n_vocab, hp->n_embd, &m->output)) &&
           (a->norms_bare ? set_ones(b, &m->output_norm)
                          : bind_vector(b, norm, REQUIRED, hp->n_embd, 1, &m->output_norm)) &&
           bind_vector(b, "output_norm.bias", a->has & SET(ATTN_NORM_BIAS) ? REQUIRED : ABSENT,
                       hp->n_embd, 1, &m->output_norm_bias) &&
           bind_vector(b, "output.bias", a->output_bias ? REQUIRED : ABSENT, hp->n_vocab, 1,
                       &m->output_bias) &&
           bind_positions(b, a) && bind_rope_factors(b, a) && bind_token_layers(b) && bind_altup(b);
}

static bool refuse_leftover(struct binder *b, size_t i, const struct arch *a, const char *where)
{
    char name[FORMAT_TEXT];
    const struct gguf_str s = gguf_tensor_at(b->m->gguf, i)->name;
    return error_set(b->err, ERR_MODEL,
                     "tensor %s is not one that architecture %s has %s; without it the model would "
                     "not be what its file says",
                     format_text(name, sizeof name, s.data, s.len), a->name, where);
}

static bool refuse_leftovers(struct binder *b, const struct arch *a)
{
    char where[48];
    snprintf(where, sizeof where, "with %u layers", b->m->hp.n_layer);
    for (size_t i = 0; i < gguf_n_tensors(b->m->gguf); i++)
        if (!b->used[i] && model_has_tensor(b->m, gguf_tensor_at(b->m->gguf, i)))
            return refuse_leftover(b, i, a, where);
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
    if (!bind_outer(&b, a))
        goto done;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (!bind_layer(&b, a, i, &m->layers[i]))
            goto done;
    if (!refuse_leftovers(&b, a))
        goto done;
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        if (!model_has_tensor(m, t))
            continue;
        m->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        m->weight_bytes += t->n_bytes;
    }
    ok = true;
done:
    free(b.used);
    return ok;
}

// A tensor of a prediction layer, of rows x n_cols (1 row: a vector).
static bool bind_nextn(struct binder *b, uint32_t block, const char *name, enum presence presence,
                       uint64_t rows, uint64_t n_cols, struct weight *w)
{
    char full[TENSOR_NAME_MAX];
    snprintf(full, sizeof full, "blk.%u.%s.weight", block, name);
    if (presence == OPTIONAL && !gguf_find_tensor(b->m->gguf, full))
        return true; // w stays what it is
    *w = (struct weight){.name = name, .group = name};
    return rows == 1              ? bind_vector(b, full, presence, n_cols, 1, w)
           : w == &b->m->tok_embd ? bind_matrix(b, full, presence, rows, n_cols, w)
                                  : bind_scaled(b, full, presence, rows, n_cols, w);
}

bool predictor_bind(struct model *p, const struct arch *a, uint32_t block, struct error *err)
{
    const uint32_t n = p->hp.n_embd, n_vocab = p->hp.n_vocab;
    const size_t n_tensors = gguf_n_tensors(p->gguf);
    struct binder b = {.m = p, .err = err, .used = calloc(n_tensors + 1, sizeof *b.used)};
    bool ok = b.used || error_oom(err, "the tensors' marks", n_tensors);
    ok = ok && bind_nextn(&b, block, "nextn.eh_proj", REQUIRED, n, 2 * (uint64_t)n, &p->joint) &&
         bind_nextn(&b, block, "nextn.enorm", REQUIRED, 1, n, &p->join_embd_norm) &&
         bind_nextn(&b, block, "nextn.hnorm", REQUIRED, 1, n, &p->join_hidden_norm) &&
         bind_nextn(&b, block, "nextn.embed_tokens", OPTIONAL, n_vocab, n, &p->tok_embd) &&
         bind_nextn(&b, block, "nextn.shared_head_norm", OPTIONAL, 1, n, &p->output_norm) &&
         bind_nextn(&b, block, "nextn.shared_head_head", OPTIONAL, n_vocab, n, &p->output) &&
         bind_layer(&b, a, block, p->layers);
    for (size_t i = 0; ok && i < n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(p->gguf, i);
        if (!model_has_tensor(p, t))
            continue;
        ok = b.used[i] || refuse_leftover(&b, i, a, "in a prediction layer");
        p->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        p->weight_bytes += t->n_bytes;
    }
    free(b.used);
    return ok;
}
