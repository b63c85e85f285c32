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
    static const char *const without[] = {"no attn_q", "no attn_k", "no attn_output", "no ffn_up",
                                          "no ffn_down"};
    static const enum layer_weight needed[] = {ATTN_Q, ATTN_K, ATTN_OUTPUT, FFN_UP, FFN_DOWN};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const bool unused =
            (needed[i] == ATTN_K && l->kv_back > 0) ||
            (needed[i] <= ATTN_K && l->mixer != MIXER_ATTENTION) ||
            (needed[i] == ATTN_OUTPUT && (l->mixer == MIXER_SSM || l->mixer == MIXER_NONE)) ||
            (needed[i] >= FFN_UP && l->n_ff == 0);
        if (!l->w[needed[i]].data && !unused)
            return without[i];
    }
    return NULL;
}

// What a feed-forward network and experts give is joined by norms, all or none of the five.
static bool joins(const struct layer *l, enum norm_kind norm)
{
    return norm == NORM_RMS && !l->parallel && l->w[DENSE_POST_NORM].data &&
           l->w[EXPERT_NORM].data && l->w[EXPERT_POST_NORM].data && l->w[FFN_POST_NORM].data &&
           l->w[ROUTER_NORM].data && !l->w[SHARED_ROUTER].data;
}

static const char *unknown_latent(const struct layer *l, enum norm_kind norm)
{
    struct attention_wide_scratch wide;
    if (norm != NORM_RMS)
        return "latent attention with layer norms";
    if (l->parallel)
        return "latent attention beside a feed-forward network";
    if (!attention_wide_scratch(l->n_head, l->head_dim, l->latent.n_kv, true, 1, &wide))
        return "a latent of more than 512 numbers, or more than 576 with what is rotated";
    return NULL;
}

static const char *unknown_in_layer(const struct layer *l, enum norm_kind norm)
{
    return l->delta.n_state > DELTA_MAX_STATE ? "a delta net of heads wider than 256"
           : l->ssm.n_state > SSM_MAX_STATE   ? "a state space with states wider than 256"
           : l->parallel && l->mixer != MIXER_ATTENTION
               ? "a feed-forward network beside something else than attention"
           : l->parallel && l->w[FFN_NORM].data && l->ssm.n_head > 0
               ? "a state space beside a feed-forward network with a norm of its own"
           : input_is_kept(l) && !l->w[ATTN_NORM].data
               ? "a mixer that reads what it adds to, without attn_norm"
           : l->qkv_clamp > 0.0f && (l->gated || l->latent.n_kv > 0)
               ? "queries, keys and values that are clamped, gated or of latents"
           : l->n_laurel > 0 && (l->parallel || l->mixer != MIXER_ATTENTION)
               ? "what laurel_l and laurel_r add beside something else than attention alone"
           : l->sparse && (l->experts.n > 0 || !l->w[FFN_GATE].data)
               ? "gates that are cut off, of experts or without their matrix"
           : l->gated && l->latent.n_kv > 0 ? "gated latent attention"
           : l->latent.n_kv > 0             ? unknown_latent(l, norm)
           : norm != NORM_RMS && l->qk_norm == QK_NORM_WHOLE
               ? "layer norm of all queries and keys at once"
           : norm != NORM_RMS && l->v_normed ? "normed values where other norms are layer norms"
           : norm != NORM_RMS && (l->w[ATTN_POST_NORM].data || l->w[FFN_POST_NORM].data)
               ? "layer norm after a block"
           : l->qk_norm == QK_NORM_WHOLE && l->kv_back == 0 && !l->w[ATTN_V].data
               ? "values that are keys, which are normed all at once"
           : l->parallel && (l->w[ATTN_POST_NORM].data || l->w[FFN_POST_NORM].data)
               ? "norms after parallel blocks"
           : l->w[LAYER_SCALE].data &&
                   !l->w[l->w[TOKEN_GATE].data ? TOKEN_POST_NORM : FFN_POST_NORM].data
               ? "a scale of the layer without a norm of what it adds last"
           : is_beside(l) && !joins(l, norm)
               ? "a feed-forward network beside experts without the norms that join them"
               : unknown_weight(l);
}

bool cuda_check_facts(const struct model *m, struct error *err)
{
    bool bounded = !m->predicts_for && !m->pos_embd.data; // the stream, see range.cu
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layer %u: ", i);
        const struct layer *l = &m->layers[i];
        const char *what = unknown_in_layer(l, m->hp.norm);
        if (!what && !bounded && l->mixer != MIXER_NONE && !l->w[ATTN_NORM].data)
            what = "no attn_norm, and not all that was added before is normed";
        if (!what && m->hp.n_side > 0 && l->w[LAYER_SCALE].data)
            what = "a scale of the layer, of several streams";
        if (what)
            return refuse(err, layer, what);
        bounded &= l->w[ATTN_POST_NORM].data && l->w[FFN_POST_NORM].data &&
                   !l->w[TOKEN_GATE].data && !l->w[LAYER_SCALE].data && l->ssm.n_head == 0;
    }
    return true;
}
