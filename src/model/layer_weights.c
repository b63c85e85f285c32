#include "model/layer_weights.h"

#include <stdio.h>
#include <string.h>

// A length that the facts of the model and of the layer give.
enum dim {
    ONE,
    N_EMBD,
    N_Q,
    N_KV,
    N_HEAD,
    N_FF,
    N_FF_SHARED,
    N_FF_EXPERT,
    N_EXPERT,
    OF_Q_NORM,
    OF_K_NORM,
    N_TOLD,
    N_OUT,
    N_LATENT_Q,
    N_LATENT_KV,
    N_LATENT_KEY,
    N_LATENT_VALUE,
    N_CACHED,
    N_CONV,
    N_CONV_IN,
    N_CONV_TAPS,
    N_DELTA,
    N_DELTA_HEAD,
    N_DELTA_HEADS,
    N_DELTA_STATE,
    N_DELTA_CHANNELS,
    N_DELTA_TAPS,
    N_SSM,
    N_SSM_IN,
    N_SSM_HEAD,
    N_SSM_CHANNELS,
    N_SSM_TAPS,
    N_SSM_OF_GROUP,
    N_EXPERT_IO,
    N_LATENT,
    N_LAUREL,
    N_STREAMS,
};

#define DELTA_GROUP "attn_qkv+attn_gate+ssm_beta+ssm_alpha+ssm_ba"

// The weights of a layer. Those that are fused are the rows of one tensor, one after the other in
// the order of this table.
static const struct row {
    const char *name;      // see layer_tensor_name
    enum dim rows, n_cols; // ONE row: a vector
    const char *fused;     // the tensor that may have it, among others
    const char *group;     // NULL: of its own
    bool stacked;          // of each expert one such matrix, or vector
} table[N_LAYER_WEIGHTS] = {
    [ATTN_NORM] = {"attn_norm", ONE, N_EMBD},
    [ATTN_NORM_BIAS] = {"attn_norm.bias", ONE, N_EMBD},
    [ATTN_Q] = {"attn_q", N_Q, N_EMBD, "attn_qkv", "attn_q+attn_k+attn_v"},
    [ATTN_K] = {"attn_k", N_KV, N_EMBD, "attn_qkv", "attn_q+attn_k+attn_v"},
    [ATTN_V] = {"attn_v", N_KV, N_EMBD, "attn_qkv", "attn_q+attn_k+attn_v"},
    [ATTN_Q_BIAS] = {"attn_q.bias", ONE, N_Q, "attn_qkv.bias"},
    [ATTN_K_BIAS] = {"attn_k.bias", ONE, N_KV, "attn_qkv.bias"},
    [ATTN_V_BIAS] = {"attn_v.bias", ONE, N_KV, "attn_qkv.bias"},
    [ATTN_Q_NORM] = {"attn_q_norm", ONE, OF_Q_NORM},
    [ATTN_K_NORM] = {"attn_k_norm", ONE, OF_K_NORM},
    [ATTN_Q_A] = {"attn_q_a", N_LATENT_Q, N_EMBD, NULL, "attn_q_a+attn_kv_a_mqa"},
    [ATTN_Q_A_NORM] = {"attn_q_a_norm", ONE, N_LATENT_Q},
    [ATTN_Q_B] = {"attn_q_b", N_Q, N_LATENT_Q},
    [ATTN_KV_A] = {"attn_kv_a_mqa", N_CACHED, N_EMBD},
    [ATTN_KV_A_NORM] = {"attn_kv_a_norm", ONE, N_LATENT_KV},
    [ATTN_K_B] = {"attn_k_b", N_LATENT_KV, N_LATENT_KEY},
    [ATTN_V_B] = {"attn_v_b", N_LATENT_VALUE, N_LATENT_KV},
    [ATTN_SINKS] = {"attn_sinks", ONE, N_HEAD},
    [DELTA_QKV] = {"attn_qkv", N_DELTA_CHANNELS, N_EMBD, NULL, DELTA_GROUP},
    [DELTA_GATE] = {"attn_gate", N_DELTA, N_EMBD, NULL, DELTA_GROUP},
    [DELTA_BETA] = {"ssm_beta", N_DELTA_HEAD, N_EMBD, NULL, DELTA_GROUP},
    [DELTA_ALPHA] = {"ssm_alpha", N_DELTA_HEAD, N_EMBD, NULL, DELTA_GROUP},
    [DELTA_BETA_ALPHA] = {"ssm_ba", N_DELTA_HEADS, N_EMBD, NULL, DELTA_GROUP},
    [DELTA_CONV] = {"ssm_conv1d", ONE, N_DELTA_TAPS},
    [DELTA_DT] = {"ssm_dt.bias", ONE, N_DELTA_HEAD},
    [DELTA_A] = {"ssm_a", ONE, N_DELTA_HEAD},
    [DELTA_NORM] = {"ssm_norm", ONE, N_DELTA_STATE},
    [CONV_IN] = {"shortconv.in_proj", N_CONV_IN, N_EMBD},
    [CONV] = {"shortconv.conv", ONE, N_CONV_TAPS},
    [ATTN_OUTPUT] = {"attn_output", N_EMBD, N_OUT},
    [ATTN_OUTPUT_BIAS] = {"attn_output.bias", ONE, N_EMBD},
    [ATTN_POST_NORM] = {"post_attention_norm", ONE, N_EMBD},
    [LAUREL_L] = {"laurel_l", N_LAUREL, N_EMBD},
    [LAUREL_R] = {"laurel_r", N_EMBD, N_LAUREL},
    [LAUREL_POST_NORM] = {"laurel_post_norm", ONE, N_EMBD},
    [SSM_IN] = {"ssm_in", N_SSM_IN, N_EMBD},
    [SSM_CONV] = {"ssm_conv1d", ONE, N_SSM_TAPS},
    [SSM_CONV_BIAS] = {"ssm_conv1d.bias", ONE, N_SSM_CHANNELS},
    [SSM_DT] = {"ssm_dt.bias", ONE, N_SSM_HEAD},
    [SSM_A] = {"ssm_a", ONE, ONE},
    [SSM_D] = {"ssm_d", ONE, ONE},
    [SSM_NORM] = {"ssm_norm", ONE, N_SSM_OF_GROUP},
    [SSM_OUT] = {"ssm_out", N_EMBD, N_SSM},
    [FFN_NORM] = {"ffn_norm", ONE, N_EMBD},
    [FFN_NORM_BIAS] = {"ffn_norm.bias", ONE, N_EMBD},
    [FFN_GATE] = {"ffn_gate", N_FF, N_EMBD, "ffn_up", "ffn_gate+ffn_up"},
    [FFN_UP] = {"ffn_up", N_FF, N_EMBD, "ffn_up", "ffn_gate+ffn_up"},
    [FFN_GATE_BIAS] = {"ffn_gate.bias", ONE, N_FF},
    [FFN_UP_BIAS] = {"ffn_up.bias", ONE, N_FF},
    [FFN_DOWN] = {"ffn_down", N_EMBD, N_FF},
    [FFN_DOWN_BIAS] = {"ffn_down.bias", ONE, N_EMBD},
    [DENSE_POST_NORM] = {"post_ffw_norm_1", ONE, N_EMBD},
    [EXPERT_NORM] = {"pre_ffw_norm_2", ONE, N_EMBD},
    [ROUTER] = {"ffn_gate_inp", N_EXPERT, N_EMBD},
    [ROUTER_BIAS] = {"ffn_gate_inp.bias", ONE, N_EXPERT},
    [ROUTER_NORM] = {"ffn_gate_inp.scale", ONE, N_EMBD},
    [ROUTER_CHOICE_BIAS] = {"exp_probs_b.bias", ONE, N_EXPERT},
    [EXPERT_LATENT] = {"ffn_latent_down", N_LATENT, N_EMBD},
    [EXPERT_GATE] = {"ffn_gate_exps", N_FF_EXPERT, N_EXPERT_IO, "ffn_gate_up_exps",
                     "ffn_gate_exps+ffn_up_exps", true},
    [EXPERT_UP] = {"ffn_up_exps", N_FF_EXPERT, N_EXPERT_IO, "ffn_gate_up_exps",
                   "ffn_gate_exps+ffn_up_exps", true},
    [EXPERT_DOWN] = {"ffn_down_exps", N_EXPERT_IO, N_FF_EXPERT, NULL, NULL, true},
    [EXPERT_GATE_BIAS] = {"ffn_gate_exps.bias", ONE, N_FF_EXPERT, "ffn_gate_up_exps.bias", NULL,
                          true},
    [EXPERT_UP_BIAS] = {"ffn_up_exps.bias", ONE, N_FF_EXPERT, "ffn_gate_up_exps.bias", NULL, true},
    [EXPERT_DOWN_BIAS] = {"ffn_down_exps.bias", ONE, N_EMBD, NULL, NULL, true},
    [EXPERT_DOWN_SCALE] = {"ffn_down_exps.scale", ONE, N_EXPERT},
    [EXPERT_LATENT_UP] = {"ffn_latent_up", N_EMBD, N_LATENT},
    [EXPERT_POST_NORM] = {"post_ffw_norm_2", ONE, N_EMBD},
    [SHARED_ROUTER] = {"ffn_gate_inp_shexp", ONE, N_EMBD},
    [SHARED_GATE] = {"ffn_gate_shexp", N_FF_SHARED, N_EMBD, NULL, "ffn_gate_shexp+ffn_up_shexp"},
    [SHARED_UP] = {"ffn_up_shexp", N_FF_SHARED, N_EMBD, NULL, "ffn_gate_shexp+ffn_up_shexp"},
    [SHARED_DOWN] = {"ffn_down_shexp", N_EMBD, N_FF_SHARED},
    [FFN_POST_NORM] = {"post_ffw_norm", ONE, N_EMBD},
    [ALTUP_ROUTER_NORM] = {"altup_router_norm", ONE, N_EMBD},
    [ALTUP_ROUTER] = {"altup_router", ONE, N_EMBD},
    [ALTUP_PREDICT] = {"altup_predict_coef", ONE, N_STREAMS},
    [ALTUP_CORRECT] = {"altup_correct_coef", ONE, N_STREAMS},
    [ALTUP_SCALE] = {"altup_correct_scale", ONE, N_EMBD},
    [TOKEN_GATE] = {"inp_gate", N_TOLD, N_EMBD},
    [TOKEN_PROJ] = {"proj", N_EMBD, N_TOLD},
    [TOKEN_POST_NORM] = {"post_norm", ONE, N_EMBD},
    [LAYER_SCALE] = {"layer_output_scale", ONE, ONE},
};

static uint64_t dim_size(const struct hparams *hp, const struct layer *l, enum dim d)
{
    const uint32_t q_dim = l->head_dim - l->latent.n_kv + l->latent.n_key;
    const uint64_t n_q = (uint64_t)l->n_head * q_dim;
    const uint64_t n_kv = (uint64_t)l->n_head_kv * l->head_dim;
    const bool shared = l->qk_norm == QK_NORM_HEAD;
    switch (d) {
    case ONE:
        return 1;
    case N_EMBD:
        return hp->n_embd;
    case N_Q:
        return l->gated ? 2 * n_q : n_q;
    case N_CONV:
        return l->conv.n;
    case N_CONV_IN:
        return 3 * (uint64_t)l->conv.n;
    case N_CONV_TAPS:
        return l->conv.n_taps;
    case N_DELTA:
        return layer_n_out(l);
    case N_DELTA_HEAD:
        return l->delta.n_head;
    case N_DELTA_HEADS:
        return 2 * l->delta.n_head;
    case N_DELTA_STATE:
        return l->delta.n_state;
    case N_DELTA_CHANNELS:
        return layer_n_channels(l);
    case N_DELTA_TAPS:
        return l->delta.n_conv;
    case N_SSM:
        return l->ssm.n_inner;
    case N_SSM_IN:
        return (uint64_t)l->ssm.n_inner + layer_ssm_channels(l) + l->ssm.n_head;
    case N_SSM_HEAD:
        return l->ssm.n_head;
    case N_SSM_CHANNELS:
        return layer_ssm_channels(l);
    case N_SSM_TAPS:
        return l->ssm.n_conv;
    case N_SSM_OF_GROUP:
        return l->ssm.n_group > 0 ? l->ssm.n_inner / l->ssm.n_group : 0;
    case N_EXPERT_IO:
        return l->experts.n_latent > 0 ? l->experts.n_latent : hp->n_embd;
    case N_LATENT:
        return l->experts.n_latent;
    case N_LAUREL:
        return l->n_laurel;
    case N_STREAMS:
        return 1 + hp->n_side;
    case N_OUT:
        return l->mixer == MIXER_LINEAR ? hp->n_embd : layer_n_out(l);
    case N_LATENT_Q:
        return l->latent.n_q;
    case N_LATENT_KV:
        return l->latent.n_kv;
    case N_LATENT_KEY:
        return l->latent.n_key;
    case N_LATENT_VALUE:
        return l->latent.n_value;
    case N_CACHED:
        return l->head_dim;
    case N_KV:
        return n_kv;
    case N_HEAD:
        return l->n_head;
    case N_FF:
        return l->n_ff;
    case N_FF_SHARED:
        return l->experts.n_ff_shared;
    case N_FF_EXPERT:
        return l->experts.n_ff;
    case N_EXPERT:
        return l->experts.n;
    case OF_Q_NORM:
        return shared ? l->head_dim : n_q;
    case OF_K_NORM:
        break;
    case N_TOLD:
        return hp->n_embd_layer;
    }
    return shared ? l->head_dim : n_kv;
}

_Static_assert(N_LAYER_WEIGHTS <= 128, "a set of them has 128 bits");

// The part of a layer that a weight belongs to.
static bool has_part(const struct hparams *hp, const struct layer *l, int w)
{
    static const weight_set keys =
        SET(ATTN_K) | SET(ATTN_V) | SET(ATTN_K_BIAS) | SET(ATTN_V_BIAS) | SET(ATTN_K_NORM);
    static const weight_set linear = SET(ATTN_NORM) | SET(ATTN_NORM_BIAS) | SET(ATTN_OUTPUT) |
                                     SET(ATTN_OUTPUT_BIAS) | SET(ATTN_POST_NORM);
    if (w == LAYER_SCALE)
        return true;
    if (w == ALTUP_SCALE)
        return hp->n_side > 0 && hp->n_embd_layer > 0;
    if (ALTUP & SET(w))
        return hp->n_side > 0;
    if (LAUREL & SET(w))
        return l->n_laurel > 0;
    if (TOLD & SET(w))
        return hp->n_embd_layer > 0;
    if (TWO_FEEDS & SET(w))
        return l->n_ff > 0 && l->experts.n > 0;
    if (w >= SSM_IN && w <= SSM_OUT)
        return l->ssm.n_head > 0;
    if (EXPERT_LATENTS & SET(w))
        return l->experts.n_latent > 0;
    if (w == CONV_IN || w == CONV)
        return l->mixer == MIXER_CONV;
    if (w >= DELTA_QKV && w <= DELTA_NORM)
        return l->mixer == MIXER_DELTA;
    if (LATENT & SET(w) && l->latent.n_kv == 0)
        return false;
    if (w >= ATTN_Q_A && w <= ATTN_Q_B)
        return l->latent.n_q > 0;
    if (w == ATTN_Q && l->latent.n_q > 0)
        return false;
    if ((l->kv_back > 0 || l->latent.n_kv > 0) && keys & SET(w))
        return false;
    if (w <= ATTN_POST_NORM)
        return l->mixer == MIXER_ATTENTION || (l->mixer == MIXER_SSM && w <= ATTN_NORM_BIAS) ||
               (l->mixer != MIXER_NONE && l->mixer != MIXER_SSM && linear & SET(w));
    if (w == FFN_NORM || w == FFN_NORM_BIAS || w == FFN_POST_NORM)
        return layer_feeds(l);
    return w <= FFN_DOWN_BIAS      ? l->n_ff > 0
           : w <= EXPERT_DOWN_BIAS ? l->experts.n > 0
                                   : l->experts.n_ff_shared > 0;
}

enum presence layer_weight_presence(const struct arch *a, const struct hparams *hp,
                                    const struct layer *l, int w)
{
    if (!has_part(hp, l, w) || a->lacks & SET(w))
        return ABSENT;
    if (a->may_have & SET(w) || (w == ATTN_V && a->k_is_v && l->window == 0))
        return OPTIONAL;
    return (PLAIN_WEIGHTS | a->has) & SET(w) ? REQUIRED : ABSENT;
}

// What the tensor is called without blk.LAYER and .weight.
static const char *name_of(const struct layer *l, int w)
{
    if (w == ATTN_OUTPUT && l->mixer == MIXER_DELTA)
        return "ssm_out";
    if (w == ATTN_OUTPUT && l->mixer == MIXER_CONV)
        return "shortconv.out_proj";
    return table[w].name;
}

static const char *group_of(const struct arch *a, const struct layer *l, int w)
{
    const bool gated = !(a->lacks & GATE);
    if (w == ATTN_Q && l->latent.n_kv > 0)
        return "attn_q+attn_kv_a_mqa";
    if (w == ATTN_KV_A)
        return group_of(a, l, l->latent.n_q > 0 ? ATTN_Q_A : ATTN_Q);
    if (table[w].group && ((w != FFN_UP && w != EXPERT_UP && w != SHARED_UP) || gated))
        return table[w].group;
    return name_of(l, w);
}

struct weight_form layer_weight_form(const struct arch *a, const struct hparams *hp,
                                     const struct layer *l, int w)
{
    const struct row *row = &table[w];
    struct weight_form f = {.name = name_of(l, w),
                            .group = group_of(a, l, w),
                            .fused = row->fused,
                            .vector = row->rows == ONE,
                            .stacked = row->stacked,
                            .rows = dim_size(hp, l, row->rows),
                            .n_cols = dim_size(hp, l, row->n_cols)};
    if (f.vector && f.stacked)
        f.rows = l->experts.n;
    if (w == SSM_CONV)
        f.rows = layer_ssm_channels(l);
    if (w == SSM_A || w == SSM_D)
        f.rows = l->ssm.n_head;
    if (w == SSM_NORM)
        f.rows = l->ssm.n_group;
    if (w == ALTUP_ROUTER)
        f.rows = 1 + hp->n_side;
    if (w == ALTUP_PREDICT)
        f.rows = f.n_cols * f.n_cols;
    if (w == ALTUP_CORRECT)
        f.rows = f.n_cols;
    if (w == DELTA_CONV || w == CONV)
        f.rows = w == CONV ? l->conv.n : layer_n_channels(l);
    if (l->qk_norm == QK_NORM_HEADS && (w == ATTN_Q_NORM || w == ATTN_K_NORM)) {
        f.rows = f.n_cols / l->head_dim;
        f.n_cols = l->head_dim;
    }
    return f;
}

struct fused_rows layer_weight_fused(const struct hparams *hp, const struct layer *l, int w)
{
    struct fused_rows f = {0};
    for (int k = 0; k < N_LAYER_WEIGHTS; k++)
        if (table[k].fused && strcmp(table[k].fused, table[w].fused) == 0) {
            const uint64_t n =
                dim_size(hp, l, table[k].rows == ONE ? table[k].n_cols : table[k].rows);
            f.first = f.first ? f.first : table[k].name;
            f.before += k < w ? n : 0;
            f.n = k == w ? n : f.n;
            f.all += n;
        }
    return f;
}

const char *layer_tensor_name(char out[static TENSOR_NAME_MAX], uint32_t i, const char *name)
{
    const bool parted = strchr(name, '.') && strncmp(name, "shortconv.", 10) != 0;
    const bool whole =
        parted || strcmp(name, table[SSM_A].name) == 0 || strcmp(name, table[SSM_D].name) == 0;
    snprintf(out, TENSOR_NAME_MAX, "blk.%u.%s%s", i, name, whole ? "" : ".weight");
    return out;
}

const char *choice_bias_short(char out[static TENSOR_NAME_MAX], uint32_t i)
{
    snprintf(out, TENSOR_NAME_MAX, "blk.%u.exp_probs_b", i);
    return out;
}
