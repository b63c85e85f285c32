// Which facts of a model the kernels compute. What they do not is refused here, by its name, before
// anything is loaded. Host code only.
#include <math.h>
#include <stdio.h>

#include "engine_impl.h"

static bool refuse(struct error *err, const char *layer, const char *what)
{
    return error_set(err, ERR_MODEL,
                     "%s%s: the CUDA engine does not compute this yet; --device cpu does", layer,
                     what);
}

static const char *unknown_in_model(const struct model *m)
{
    const struct hparams *hp = &m->hp;
    return hp->norm != NORM_RMS         ? "layer norm"
           : hp->embd_scale != 1.0f     ? "a scale of the embedding"
           : hp->residual_scale != 1.0f ? "a scale of what layers add"
           : hp->logit_scale != 1.0f    ? "a scale of the logits"
           : hp->final_softcap != 0.0f  ? "a softcap of the logits"
           : hp->attn_temp_scale != 0   ? "queries scaled by their position"
           : m->output_norm_bias.data   ? "a bias of the last norm"
           : m->n_rope != 1             ? "rotations that differ between layers"
                                        : NULL;
}

// Weights beside those that the forward pass reads.
static const char *unknown_weight(const struct layer *l)
{
    static const enum layer_weight unread[] = {ATTN_NORM_BIAS, ATTN_POST_NORM, FFN_NORM_BIAS,
                                               FFN_UP_BIAS,    FFN_DOWN_BIAS,  FFN_POST_NORM};
    static const char *const without[] = {"no attn_norm", "no attn_q",      "no attn_k",
                                          "no attn_v",    "no attn_output", "no ffn_norm",
                                          "no ffn_gate",  "no ffn_up",      "no ffn_down"};
    static const enum layer_weight needed[] = {ATTN_NORM, ATTN_Q,   ATTN_K, ATTN_V,  ATTN_OUTPUT,
                                               FFN_NORM,  FFN_GATE, FFN_UP, FFN_DOWN};
    for (enum layer_weight w : unread)
        if (l->w[w].data)
            return l->w[w].name;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!l->w[needed[i]].data)
            return without[i];
    return NULL;
}

static const char *unknown_in_layer(const struct layer *l, const struct layer *first)
{
    return l->mixer != MIXER_ATTENTION ? "a layer without attention"
           : l->parallel               ? "attention and feed-forward in parallel"
           : l->n_head != first->n_head || l->n_head_kv != first->n_head_kv ||
                   l->head_dim != first->head_dim
               ? "heads that differ between layers"
           : l->window != first->window ? "sliding windows that differ between layers"
           : l->qk_norm > QK_NORM_HEAD || l->qk_norm_rotated
               ? "a norm of queries and keys other than each head's, before rotation"
           : l->attn_scale != 1.0f / sqrtf((float)l->head_dim)
               ? "a scale of attention other than 1 / sqrt(head size)"
           : l->attn_softcap != 0.0f ? "a softcap of attention"
           : l->n_ff != first->n_ff  ? "feed-forward widths that differ between layers"
           : l->act != ACT_SILU      ? "an activation other than SiLU"
                                     : unknown_weight(l);
}

bool cuda_check_facts(const struct model *m, struct error *err)
{
    const char *what = unknown_in_model(m);
    if (what)
        return refuse(err, "", what);
    if (m->ropes[0].layout == ROPE_NONE)
        return refuse(err, "", "positions that are not rotated");
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layer %u: ", i);
        what = unknown_in_layer(&m->layers[i], &m->layers[0]);
        if (what)
            return refuse(err, layer, what);
    }
    return true;
}
