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

static const char *unknown_in_model(const struct model *m)
{
    const struct hparams *hp = &m->hp;
    return hp->norm != NORM_RMS       ? "layer norm"
           : hp->attn_temp_scale != 0 ? "queries scaled by their position"
           : m->output_norm_bias.data ? "a bias of the last norm"
                                      : NULL;
}

// Weights beside those that the forward pass reads.
static const char *unknown_weight(const struct layer *l)
{
    static const enum layer_weight unread[] = {ATTN_NORM_BIAS, FFN_NORM_BIAS, FFN_UP_BIAS};
    static const char *const without[] = {"no attn_q",      "no attn_k",   "no attn_v",
                                          "no attn_output", "no ffn_gate", "no ffn_up",
                                          "no ffn_down"};
    static const enum layer_weight needed[] = {ATTN_Q,   ATTN_K, ATTN_V,  ATTN_OUTPUT,
                                               FFN_GATE, FFN_UP, FFN_DOWN};
    for (enum layer_weight w : unread)
        if (l->w[w].data)
            return l->w[w].name;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!l->w[needed[i]].data)
            return without[i];
    return NULL;
}

static const char *unknown_in_layer(const struct layer *l)
{
    return l->mixer != MIXER_ATTENTION   ? "a layer without attention"
           : l->parallel                 ? "attention and feed-forward in parallel"
           : l->qk_norm == QK_NORM_HEADS ? "a norm of queries and keys with weights for each head"
           : l->act != ACT_SILU && l->act != ACT_GELU_TANH
               ? "an activation other than SiLU and GELU"
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
    const char *what = unknown_in_model(m);
    bool bounded = true; // the stream, see range.cu
    if (what)
        return refuse(err, "", what);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layer %u: ", i);
        const struct layer *l = &m->layers[i];
        what = unknown_in_layer(l);
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
