// Which facts of a model the kernels compute. What they do not is refused here, by its name, before
// anything is loaded. Host code only.
#include <stdio.h>

#include "engine_impl.h"

static bool refuse(struct error *err, const char *layer, const char *what)
{
    return error_set(err, ERR_MODEL,
                     "%s%s: the CUDA engine does not compute this yet; --device cpu does", layer,
                     what);
}

// Weights that the forward pass needs.
static const char *unknown_weight(const struct layer *l)
{
    static const char *const without[] = {"no attn_q",      "no attn_k", "no attn_v",
                                          "no attn_output", "no ffn_up", "no ffn_down"};
    static const enum layer_weight needed[] = {ATTN_Q,      ATTN_K, ATTN_V,
                                               ATTN_OUTPUT, FFN_UP, FFN_DOWN};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!l->w[needed[i]].data)
            return without[i];
    return NULL;
}

static const char *unknown_in_layer(const struct layer *l, enum norm_kind norm)
{
    return l->mixer != MIXER_ATTENTION   ? "a layer without attention"
           : l->qk_norm == QK_NORM_HEADS ? "a norm of queries and keys with weights for each head"
           : norm != NORM_RMS && l->qk_norm != QK_NORM_NONE ? "layer norm of queries and keys"
           : norm != NORM_RMS && (l->w[ATTN_POST_NORM].data || l->w[FFN_POST_NORM].data)
               ? "layer norm after a block"
           : l->qk_norm == QK_NORM_BARE   ? "norms of queries and keys without weights"
           : l->w[ATTN_SINKS].data        ? "a sink of attention"
           : l->window > 0 && l->chunked  ? "attention within chunks"
           : l->experts.n > 0             ? "a mixture of experts"
           : l->act == ACT_CLAMPED_SWIGLU ? "a clamped activation"
           : l->parallel && (l->w[ATTN_POST_NORM].data || l->w[FFN_POST_NORM].data)
               ? "norms after parallel blocks"
           : l->n_ff == 0 ? "a layer without a feed-forward network"
                          : unknown_weight(l);
}

// The kernels scale products, not the biases that are added to them.
static bool has_end_bias(const struct layer *l)
{
    return (l->w[ATTN_OUTPUT_BIAS].data && !l->w[ATTN_POST_NORM].data) ||
           (l->w[FFN_DOWN_BIAS].data && !l->w[FFN_POST_NORM].data);
}

bool cuda_check_facts(const struct model *m, struct error *err)
{
    bool bounded = true; // the stream, see range.cu
    if (m->output_bias.data)
        return refuse(err, "", "a bias of the logits");
    if (m->hp.attn_temp_unrotated)
        return refuse(err, "", "queries that grow in layers without rotation alone");
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layer %u: ", i);
        const struct layer *l = &m->layers[i];
        const char *what = unknown_in_layer(l, m->hp.norm);
        if (!what && !bounded && !l->w[ATTN_NORM].data)
            what = "no attn_norm, and not all that was added before is normed";
        if (!what && m->hp.residual_scale != 1.0f && has_end_bias(l))
            what = "a bias of what the layer adds, which is scaled";
        if (what)
            return refuse(err, layer, what);
        bounded &= l->w[ATTN_POST_NORM].data && l->w[FFN_POST_NORM].data;
    }
    return true;
}
