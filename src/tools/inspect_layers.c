// What the layers of a model are, for `hokku inspect`: layers of a kind together.
#include "tools/inspect_layers.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"

static bool same_weights(const struct layer *a, const struct layer *b)
{
    for (int i = 0; i < N_LAYER_WEIGHTS; i++)
        if (!a->w[i].data != !b->w[i].data)
            return false;
    return true;
}

static bool same_kind(const struct layer *a, const struct layer *b)
{
    return a->mixer == b->mixer && a->parallel == b->parallel && a->n_head == b->n_head &&
           a->n_head_kv == b->n_head_kv && a->head_dim == b->head_dim && a->window == b->window &&
           a->attn_softcap == b->attn_softcap && a->rope == b->rope && a->qk_norm == b->qk_norm &&
           a->chunked == b->chunked && !a->kv_back == !b->kv_back && a->n_ff == b->n_ff &&
           a->experts.n == b->experts.n && a->act == b->act && a->sparse == b->sparse &&
           a->sparsity == b->sparsity && same_weights(a, b);
}

// Whether layer i is the first of its kind.
static bool is_first(const struct model *m, uint32_t i)
{
    uint32_t k = 0;
    while (!same_kind(&m->layers[k], &m->layers[i]))
        k++;
    return k == i;
}

static const char *activation_name(const struct layer *l)
{
    static const char *const names[] = {"SiLU",         "GELU",  "exact GELU",
                                        "squared ReLU", "xIELU", "clamped SwiGLU"};
    return names[l->act];
}

const char *rope_scaling_name(enum rope_scaling s)
{
    static const char *const names[] = {"none", "linear", "yarn"};
    return names[s];
}

static bool has(const struct layer *l, enum layer_weight w)
{
    return l->w[w].data != NULL;
}

static uint32_t n_of_kind(const struct model *m, const struct layer *kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        n += same_kind(kind, &m->layers[i]);
    return n;
}

// "0-4, 6-10"
static void put_runs(struct buf *out, const struct model *m, uint32_t first)
{
    const struct layer *kind = &m->layers[first];
    for (uint32_t i = first; i < m->hp.n_layer; i++) {
        uint32_t end = i;
        while (end < m->hp.n_layer && same_kind(kind, &m->layers[end]))
            end++;
        if (end == i)
            continue;
        buf_printf(out, "%s%u", i == first ? "" : ", ", i);
        if (end > i + 1)
            buf_printf(out, "-%u", end - 1);
        i = end;
    }
}

static void put_rope(struct buf *out, const struct rope *r)
{
    if (r->layout == ROPE_NONE) {
        buf_puts(out, ", not rotated");
        return;
    }
    buf_printf(out, ", RoPE theta %g over %u of a head", (double)r->theta, r->n_dim);
    if (r->scaling != ROPE_SCALING_NONE)
        buf_printf(out, ", %s scaling by %g", rope_scaling_name(r->scaling), (double)r->factor);
    if (r->long_factors)
        buf_printf(out, ", frequency factors for contexts up to %u and beyond", r->orig_ctx);
    else if (r->factors)
        buf_puts(out, ", frequency factors");
}

static void put_state_space(struct buf *out, const struct layer *l)
{
    buf_printf(out, "a state space of %u heads of %u by %u sharing %u group%s, over %u tokens%s",
               l->ssm.n_head, l->ssm.n_inner / l->ssm.n_head, l->ssm.n_state, l->ssm.n_group,
               l->ssm.n_group > 1 ? "s" : "", l->ssm.n_conv, has(l, SSM_NORM) ? ", normed" : "");
}

static void put_attention(struct buf *out, const struct model *m, const struct layer *l)
{
    static const char *const norms[] = {"", ", norms of each head", ", norms of each head",
                                        ", norms of all heads", ", bare norms of each head"};
    char window[FORMAT_NUMBER];
    if (l->mixer == MIXER_DELTA)
        buf_printf(out, "a delta net of %u heads of %u sharing %u keys, over %u tokens",
                   l->delta.n_head, l->delta.n_state, l->delta.n_key_head, l->delta.n_conv);
    if (l->mixer == MIXER_CONV)
        buf_printf(out, "a convolution over %u tokens", l->conv.n_taps);
    if (l->mixer == MIXER_SSM)
        put_state_space(out, l);
    if (l->mixer == MIXER_NONE)
        buf_puts(out, "no attention");
    if (l->mixer == MIXER_LINEAR)
        buf_puts(out, "a matrix in place of attention");
    if (l->mixer != MIXER_ATTENTION)
        return;
    const struct latent *x = &l->latent;
    if (x->n_kv > 0)
        buf_printf(out, "%u heads of %u + %u sharing a latent of %u", l->n_head, x->n_key,
                   l->head_dim - x->n_kv, x->n_kv);
    else
        buf_printf(out, "%u heads of %u sharing %u KV head%s", l->n_head, l->head_dim, l->n_head_kv,
                   l->n_head_kv > 1 ? "s" : "");
    if (x->n_q > 0)
        buf_printf(out, ", queries from one of %u", x->n_q);
    if (l->window)
        buf_printf(out, l->chunked ? ", chunks of %s" : ", sliding window %s",
                   format_number(window, l->window));
    put_rope(out, &m->ropes[l->rope]);
    if (l->kv_back)
        buf_puts(out, ", keys and values of an earlier layer");
    else if (!has(l, ATTN_V) && x->n_kv == 0)
        buf_puts(out, ", keys that are values");
    buf_puts(out, norms[l->qk_norm]);
    if (l->qkv_clamp > 0)
        buf_printf(out, ", clamped to %g", (double)l->qkv_clamp);
    if (l->attn_softcap > 0)
        buf_printf(out, ", softcap %g", (double)l->attn_softcap);
    if (l->gated)
        buf_puts(out, ", gated");
    if (has(l, ATTN_SINKS))
        buf_puts(out, ", sinks");
    if (l->n_laurel > 0)
        buf_printf(out, ", beside it a matrix of rank %u", l->n_laurel);
    if (l->ssm.n_head > 0) {
        buf_puts(out, "; beside it ");
        put_state_space(out, l);
    }
}

static void put_feed_forward(struct buf *out, const struct layer *l)
{
    const struct experts *x = &l->experts;
    if (!layer_feeds(l)) {
        buf_puts(out, "; no feed-forward");
        return;
    }
    if (x->n > 0) {
        if (l->n_ff > 0)
            buf_printf(out, "; feed-forward %u, %s%s, and", l->n_ff,
                       has(l, FFN_GATE) ? "gated " : "", activation_name(l));
        buf_printf(out, "%s %s%u of %u experts of %u, %s%s, by %s", l->n_ff > 0 ? "" : ";",
                   l->parallel ? "beside it " : "", x->n_used, x->n, x->n_ff,
                   has(l, EXPERT_GATE) ? "gated " : "", activation_name(l),
                   x->gate == EXPERT_SIGMOID ? "sigmoid" : "softmax");
        if (x->n_group_used < x->n_group)
            buf_printf(out, " from %u of %u groups", x->n_group_used, x->n_group);
        if (x->n_latent > 0)
            buf_printf(out, ", on a latent of %u", x->n_latent);
        if (x->n_ff_shared > 0)
            buf_printf(out, ", and a shared one of %u", x->n_ff_shared);
        return;
    }
    buf_printf(out, "; %sfeed-forward %u, %s%s", l->parallel ? "beside it " : "", l->n_ff,
               has(l, FFN_GATE) ? "gated " : "", activation_name(l));
}

void inspect_layers_text(struct buf *out, const struct model *m)
{
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (!is_first(m, i))
            continue;
        buf_puts(out, n_of_kind(m, l) > 1 ? "  layers " : "  layer ");
        put_runs(out, m, i);
        buf_puts(out, ": ");
        put_attention(out, m, l);
        put_feed_forward(out, l);
        if (l->sparse)
            buf_printf(out, " above %g deviations", (double)l->sparsity);
        if (has(l, ATTN_POST_NORM))
            buf_puts(out, has(l, ATTN_NORM) ? "; norms before and after" : "; norms after");
        if (has(l, TOKEN_GATE))
            buf_printf(out, "; told %u of the token", m->hp.n_embd_layer);
        if (m->hp.n_side > 0)
            buf_printf(out, "; %u streams", 1 + m->hp.n_side);
        buf_puts(out, "\n");
    }
}

static json_t *layer_numbers(const struct model *m, uint32_t first)
{
    json_t *list = json_array();
    for (uint32_t i = first; i < m->hp.n_layer; i++)
        if (same_kind(&m->layers[first], &m->layers[i]))
            json_array_append_new(list, json_integer(i));
    return list;
}

static json_t *rope_json(const struct rope *r)
{
    if (r->layout == ROPE_NONE)
        return json_null();
    return json_pack("{s:i, s:f, s:s, s:f, s:b, s:b}", "dim", (int)r->n_dim, "theta",
                     format_float(r->theta), "scaling", rope_scaling_name(r->scaling), "factor",
                     format_float(r->factor), "frequency_factors", r->factors != NULL,
                     "long_factors", r->long_factors != NULL);
}

static json_t *experts_json(const struct layer *l)
{
    const struct experts *x = &l->experts;
    if (x->n == 0)
        return json_null();
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:i, s:i}", "count", (int)x->n, "used",
                     (int)x->n_used, "feed_forward", (int)x->n_ff, "shared_feed_forward",
                     (int)x->n_ff_shared, "gate", x->gate == EXPERT_SIGMOID ? "sigmoid" : "softmax",
                     "groups", (int)x->n_group, "groups_used", (int)x->n_group_used);
}

static json_t *state_space_json(const struct layer *l)
{
    const struct ssm *x = &l->ssm;
    if (x->n_head == 0)
        return json_null();
    return json_pack("{s:i, s:i, s:i, s:i, s:i}", "heads", (int)x->n_head, "inner", (int)x->n_inner,
                     "groups", (int)x->n_group, "state", (int)x->n_state, "taps", (int)x->n_conv);
}

json_t *inspect_layers_json(const struct model *m)
{
    static const char *const mixers[] = {"attention",   "linear",      "delta",
                                         "convolution", "state space", "none"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (!is_first(m, i))
            continue;
        const bool attends = l->mixer == MIXER_ATTENTION;
        json_t *o = json_pack(
            "{s:o, s:s, s:i, s:i, s:i, s:i, s:I, s:o, s:i, s:b, s:s, s:b}", "layers",
            layer_numbers(m, i), "mixer", mixers[l->mixer], "heads", (int)l->n_head, "kv_heads",
            (int)l->n_head_kv, "head_dim", (int)l->head_dim, "latent", (int)l->latent.n_kv,
            "sliding_window", (json_int_t)l->window, "rope",
            attends ? rope_json(&m->ropes[l->rope]) : json_null(), "feed_forward", (int)l->n_ff,
            "gated", has(l, FFN_GATE), "activation", activation_name(l), "parallel", l->parallel);
        json_object_set_new(o, "sparsity",
                            l->sparse ? json_real((double)l->sparsity) : json_null());
        json_object_set_new(o, "experts", experts_json(l));
        json_object_set_new(o, "state_space", state_space_json(l));
        json_array_append_new(list, o);
    }
    return list;
}
