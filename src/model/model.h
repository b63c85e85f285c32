// What a language model is: hyper-parameters, the tensors it found, the tokenizer, the chat
// template. Immutable after load. All weight pointers are borrowed from the memory-mapped file.
#ifndef HOKKU_MODEL_MODEL_H
#define HOKKU_MODEL_MODEL_H

#include <stdbool.h>

#include "base/error.h"
#include "gguf/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer;

// Nothing here names a model family: an engine reads these facts, and computes what they say. What
// it does not know how to compute, it refuses by the fact's name.

enum rope_layout {
    ROPE_NONE,        // positions are not rotated
    ROPE_INTERLEAVED, // pairs (2i, 2i+1)
    ROPE_HALVES,      // pairs (i, i + n_dim/2)
};

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN };

// One way to rotate queries and keys by their position.
struct rope {
    enum rope_layout layout;
    uint32_t n_dim; // rotated part of a head, even, <= head_dim; 0 with ROPE_NONE
    float theta;
    enum rope_scaling scaling;
    float factor;              // linear and YaRN: context extension factor (1 = none)
    uint32_t orig_ctx;         // context the model was trained on before extension
    float attn_factor;         // cos and sin are multiplied by it (1 = not)
    float beta_fast;           // YaRN
    float beta_slow;           // YaRN
    const float *factors;      // (n_dim / 2) divisors of the frequencies; NULL: none
    const float *long_factors; // (n_dim / 2) in their place when the engine's context is longer
                               // than orig_ctx; NULL: factors, always
};

enum norm_kind {
    NORM_RMS,   // x / sqrt(mean(x^2) + eps) * w
    NORM_LAYER, // (x - mean(x)) / sqrt(var(x) + eps) * w + b
};

// What the whole model shares.
struct hparams {
    uint32_t n_vocab;     // rows of token_embd
    uint32_t n_ctx_train; // context length in the metadata
    uint32_t n_embd;
    uint32_t
        n_embd_layer; // what each layer is told of the token once more (see struct layer); or 0
    uint32_t n_side;  // streams beside the residual one (see struct layer); at most MODEL_MAX_SIDE
    uint32_t n_layer;
    uint32_t
        n_layer_predict; // beside n_layer: those that only guess at later tokens; not evaluated
    // What a prediction layer is given of a token (see model_predictor), its hidden state: as
    // output_norm leaves it, for the head; else as the last layer does.
    bool hidden_normed;
    enum norm_kind norm; // of every norm
    float norm_eps;
    float embd_scale;     // the embedding is multiplied by it
    float residual_scale; // what attention and feed-forward add is multiplied by it
    float logit_scale;    // logits are multiplied by it, ...
    float final_softcap;  // ... then become c tanh(logit / c); 0: they do not
    // Queries, after rotation, times
    // 1 + attn_temp_scale ln(1 + floor((position + attn_temp_offset) / attn_temp_len))
    float attn_temp_scale;  // 0: none
    uint32_t attn_temp_len; // not 0
    uint32_t attn_temp_offset;
    bool attn_temp_unrotated; // only in layers without rotation
};

struct weight_run {
    uint32_t begin, n;
};

// A weight matrix W of `rows` rows, each n_cols long: y = W x, x (n_cols), y (rows); or a vector of
// n_cols numbers; or, of experts, n_stacked such matrices, one behind the other. data NULL: absent.
struct weight {
    const char *name;  // "ffn_down", "attn_q.bias": as in the file, without layer and ".weight"
    const char *group; // "ffn_gate+ffn_up": of the matrices of its layer that share an input
    uint32_t type;     // enum quant_type; of a vector always QUANT_F32
    uint32_t rows;
    uint32_t n_cols;
    uint32_t n_stacked; // 0: one matrix
    uint32_t n_used;    // of those stacked a token uses so many
    bool vector;
    const void *data;   // rows * quant_row_bytes(type, n_cols), as in the file
    size_t n_bytes;     // of all
    size_t stack_bytes; // from one of those stacked to the next
    size_t row_stride;  // bytes from a row to the next, where it is some columns (model/slice.h);
                        // 0: rows follow one another
    // Of those some alone, one run behind the other, where these do not follow one another in the
    // file (model/slice.h): (n_...), NULL: all.
    const struct weight_run *row_runs, *col_runs;
    uint32_t n_row_runs, n_col_runs;
    // That data is of; a matrix may be some of its rows. NULL: the matrix has them in another
    // order, in memory of the model's own.
    const struct gguf_tensor *tensor;
    const float *scale; // its products are times this; scale_each: (n_stacked), of each its own;
    bool scale_each;    // NULL: 1
};

// What a layer may have, in the order in which a token meets it. model/layer_weights.c says the
// name, shape and presence of each; whoever handles all of them loops.
enum layer_weight {
    ATTN_NORM,
    ATTN_NORM_BIAS,
    ATTN_Q,
    ATTN_K,
    ATTN_V, // absent: what attn_k gives, before norm and rotation, is the values, too
    ATTN_Q_BIAS,
    ATTN_K_BIAS,
    ATTN_V_BIAS,
    ATTN_Q_NORM, // see enum qk_norm
    ATTN_K_NORM,
    ATTN_Q_A, // see struct latent, as the next six
    ATTN_Q_A_NORM,
    ATTN_Q_B,
    ATTN_KV_A,
    ATTN_KV_A_NORM,
    ATTN_K_B, // one for each head, stacked, as the next
    ATTN_V_B,
    ATTN_SINKS, // (n_head): a score of no position, which takes its share of the softmax
    DELTA_QKV,  // see struct delta, as the next eight
    DELTA_GATE,
    DELTA_BETA,
    DELTA_ALPHA,
    DELTA_BETA_ALPHA, // in place of both: of each key head its heads' rows of beta, then of alpha
    DELTA_CONV,
    DELTA_DT,
    DELTA_A,
    DELTA_NORM,
    CONV_IN, // see struct short_conv, as the next
    CONV,
    ATTN_OUTPUT,
    ATTN_OUTPUT_BIAS,
    ATTN_POST_NORM, // of what attention adds
    LAUREL_L,       // see struct layer, as the next two
    LAUREL_R,
    LAUREL_POST_NORM,
    SSM_IN, // see struct ssm, as the next seven
    SSM_CONV,
    SSM_CONV_BIAS,
    SSM_DT,
    SSM_A,
    SSM_D,
    SSM_NORM,
    SSM_OUT,
    FFN_NORM,
    FFN_NORM_BIAS,
    FFN_GATE, // absent: down(act(up))
    FFN_UP,
    FFN_GATE_BIAS,
    FFN_UP_BIAS,
    FFN_DOWN,
    FFN_DOWN_BIAS,
    DENSE_POST_NORM, // see struct layer, as the next, EXPERT_POST_NORM and those behind it
    EXPERT_NORM,
    ROUTER, // see struct experts
    ROUTER_NORM,
    ROUTER_BIAS,
    ROUTER_CHOICE_BIAS, // (n): of the choice of experts, not of their weights
    EXPERT_LATENT,      // see struct experts
    EXPERT_GATE,        // stacked, as are the next two
    EXPERT_UP,
    EXPERT_DOWN,
    EXPERT_GATE_BIAS, // (n, rows), and so on
    EXPERT_UP_BIAS,
    EXPERT_DOWN_BIAS,
    EXPERT_DOWN_SCALE, // (n): what each expert gives is multiplied by its own
    EXPERT_LATENT_UP,
    EXPERT_POST_NORM,
    SHARED_ROUTER, // (n_embd)
    SHARED_GATE,
    SHARED_UP,
    SHARED_DOWN,
    FFN_POST_NORM, // of what the feed-forward network adds
    ALTUP_ROUTER_NORM,
    ALTUP_ROUTER,
    ALTUP_PREDICT, // (streams^2, streams), used before all else
    ALTUP_CORRECT, // (streams, streams)
    ALTUP_SCALE,
    TOKEN_GATE,
    TOKEN_PROJ,
    TOKEN_POST_NORM,
    LAYER_SCALE, // (1)
    N_LAYER_WEIGHTS,
};

enum mixer {
    MIXER_ATTENTION,
    MIXER_LINEAR, // attn_output(attn_norm(x)) alone: no queries, keys and values
    MIXER_DELTA,  // see struct delta
    MIXER_CONV,   // see struct short_conv
    MIXER_SSM,    // see struct ssm
    MIXER_NONE,   // only the feed-forward network
};

// What queries and keys are normed over, with hparams.norm, and so the shape of the weights.
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,  // each head, all with the same weights: (head_dim)
    QK_NORM_HEADS, // each head, with weights of its own: (n_head, head_dim), (n_head_kv, head_dim)
    QK_NORM_WHOLE, // all heads at once: (n_head * head_dim), (n_head_kv * head_dim)
    QK_NORM_BARE,  // each head, without weights
};

// Latent attention (DeepSeek-AI 2024, "DeepSeek-V2", sec. 2.1): all that is kept of a token is what
// all heads share, n_kv numbers c and a rotated key r.
//
//   c, r = attn_kv_a n1; c is normed with attn_kv_a_norm, r rotated whole
//   a head's query: n_key numbers a, then b, as wide as r and rotated, of attn_q n1, or where there
//   is an n_q, of attn_q_b norm(attn_q_a n1)
//   score = attn_k_b a . c + b . r, and the head gives attn_v_b (sum of weights * c)
//
// So it is attention with one KV head, of which c is the value and c, r the key, head_dim wide.
struct latent {
    uint32_t n_kv;           // 0: the layer has no such attention
    uint32_t n_q;            // 0: queries come from attn_q
    uint32_t n_key, n_value; // of a head
    bool expands;            // attn_k_b has the rows of keys, (n_key, n_kv): its transpose is meant
};

// A gated delta net (Yang et al. 2024): its memory of all tokens before is a state of fixed size.
// qkv = delta_qkv n1 has the queries and keys of n_key_head heads and the values of n_head, each
// n_state wide. Each of its channels becomes silu(the sum of delta_conv times its last n_conv
// numbers, this token's last); then queries and keys are divided by max(length, norm_eps), and
// queries by sqrt(n_state). With b = sigmoid(delta_beta n1) and
// g = delta_a * log(1 + e^(delta_alpha n1 + delta_dt)), a head's state M (n_state, n_state) becomes
//   M = e^g M, M += k (b (v - M^T k))^T
// and the head gives RMS norm(M^T q) * delta_norm * silu(delta_gate n1), attn_output all of them.
struct delta {
    uint32_t n_head, n_key_head, n_state, n_conv;
    bool in_order; // head i has key head i / (n_head / n_key_head), else i mod n_key_head
};

// A short convolution (Liquid AI 2025, LFM2): b, c and x, each n wide, are the thirds of conv_in
// n1; attn_output is given c times, in each channel, the sum of conv times b x of the last n_taps
// tokens, this one's last. Its state is b x of those before.
struct short_conv {
    uint32_t n, n_taps;
};

// A selective state space (Dao and Gu 2024, Mamba-2): ssm_in n1 has z and x, each n_inner wide, the
// b and then the c of n_group groups, each n_state wide, and a t of each head. Each channel of x, b
// and c becomes silu(ssm_conv1d.bias + the sum of ssm_conv1d times its last n_conv numbers, this
// token's last). With d = log(1 + e^(t + ssm_dt)), and b and c of the group of the head, which is
// one of n_head / n_group that follow one another, its state S (n_state, n_inner / n_head) becomes
//   S = e^(d ssm_a) S + b (d x)^T
// and the head gives y = S^T c + ssm_d x. ssm_out is given y silu(z), of which, where there is an
// ssm_norm, each group's channels are normed (RMS) first.
struct ssm {
    uint32_t n_inner, n_head, n_group, n_state, n_conv; // n_head 0: the layer has none
};

enum activation {
    ACT_SILU,      // x / (1 + e^-x)
    ACT_GELU_TANH, // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
    ACT_GELU,      // x (1 + erf(x / sqrt(2))) / 2, from which that is 5e-4 off at most
    ACT_RELU_SQR,  // max(x, 0)^2
    ACT_XIELU,     // see struct xielu
    // With a = min(gate, 7), b = min(max(up, -7), 7): a / (1 + e^(-1.702 a)) (b + 1)
    ACT_CLAMPED_SWIGLU,
};

// x > 0: p x^2 + beta x; else n (expm1(min(x, eps)) - x) + beta x (Huang and Schlag 2024)
struct xielu {
    float p, n, beta, eps;
};

enum expert_gate { EXPERT_SOFTMAX, EXPERT_SIGMOID };

// A mixture of experts (Shazeer et al. 2017): p = gate(router x + router_bias) over all n; n_used
// of them are chosen, those with the largest p + choice_bias; each weighs p. The sum of what they
// give, times their weights, is what the feed-forward network adds. Where there is a router_norm,
// the router is given RMS norm (x) * router_norm / sqrt(n_embd). The shared one is for every
// token (Dai et al. 2024); where there is a shared_router it weighs sigmoid(shared_router x),
// else 1.
struct experts {
    uint32_t n;           // 0: the layer has none
    uint32_t n_used;      // of each token; 1 to n
    uint32_t n_ff;        // the width of each
    uint32_t n_ff_shared; // 0: no shared one
    enum expert_gate gate;
    bool normed;       // weights are divided by the sum of those chosen, ...
    float scale;       // ... and then multiplied by it
    bool weighs_input; // weights multiply what experts are given instead of what they give
    // 0, or the width of what the experts but the shared one are given and give: ffn_latent_down n2
    // and, summed, what ffn_latent_up is given
    uint32_t n_latent;
    // n_group runs of equal length; those with the largest sums of their best two can be chosen
    // from
    uint32_t n_group, n_group_used; // n_group_used = n_group: all
};

// Vectors are F32, aligned: those of other types in the file are converted at load. Layers of one
// model may differ in anything.
//
//   n1 = attn_norm(x)
//   x += residual_scale * attn_post_norm(mixer(n1))
//   x += residual_scale * ffn_post_norm(down(act(gate n2) * up n2)), n2 = ffn_norm(x)
//
// An absent norm leaves its input as it is; parallel: n2 is ffn_norm of the x that n1 is of, or n1
// where there is no ffn_norm. A layer of MIXER_ATTENTION that has an ssm adds that of n1, too. One
// with n_laurel goes on (Menghani et al. 2024, "LAuReL") with
//
//   x = (x + n1 + laurel_post_norm(laurel_r laurel_l n1)) / sqrt(2)
//
// With experts, they are in the place of down(...), and of that form each. With both, there is in
// its place
//
//   dense_post_norm(down(...)) + expert_post_norm(experts(expert_norm(x)))
//
// Where the model has n_embd_layer, the layer goes on with its part t of model.token_layers, (n):
//
//   x += token_post_norm(token_proj(act(token_gate x) * t))
//
// and where there is a layer_scale, x *= layer_scale in the end.
//
// Where the model has n_side streams x_1, x_2, ... beside x = x_0 (alternating updates, Baykal et
// al. 2023), a layer first predicts what it will make of all of them, and last corrects that by
// what it made of x. With m = tanh(altup_router altup_router_norm(x) / n_embd) of the x of each
// time
//
//   p_i = x_i + sum over k of c[i][k] x_k, c = altup_predict m;         x = p_0, and so on as above
//   x_i = p_i + (1 + d[i]) (x - p_0), d = altup_correct m
//
// and what the layer is told of the token is added to x_1, x_2, ..., not to x, of which token_gate
// is given altup_scale * x.
struct layer {
    struct weight w[N_LAYER_WEIGHTS]; // data NULL: absent
    enum mixer mixer;
    bool parallel;
    uint32_t n_head;    // 0 unless MIXER_ATTENTION
    uint32_t n_head_kv; // divides n_head; 0 unless MIXER_ATTENTION
    uint32_t head_dim;  // of Q, K and V; not always n_embd / n_head
    uint32_t kv_back;   // keys and values are those of the layer so many before it; 0: its own
    struct latent latent;
    struct delta delta;     // of MIXER_DELTA
    struct short_conv conv; // of MIXER_CONV
    struct ssm ssm;         // of MIXER_SSM, or beside MIXER_ATTENTION
    float qkv_clamp; // what attn_q, attn_k and attn_v give is at most so far from 0; 0: anything
    bool gated;      // a head of attn_q: the query, then what silences the head, by its sigmoid
    bool v_normed;   // each head of the values by RMS norm, without weights
    uint32_t window; // a token sees itself and the window - 1 before it; 0 = all
    bool chunked;    // ... or its own one of the runs of that length that the context is cut in
    uint32_t rope;   // index of model.ropes
    enum qk_norm qk_norm;
    bool qk_norm_rotated; // after the rotation instead of before
    float attn_scale;     // of the scores, which ...
    float attn_softcap;   // ... then become c tanh(score / c); 0: they do not
    uint32_t n_laurel;    // 0, or the rank of laurel_r laurel_l
    uint32_t n_ff;        // 0: no feed-forward network but that of experts
    // Of a plain network: the gate becomes max(gate - mean - sparsity * deviation, 0), both over
    // the token's n_ff, before it is activated.
    bool sparse;
    float sparsity;
    struct experts experts;
    enum activation act;
    struct xielu xielu; // of ACT_XIELU
};

// How wide the values of a head are in the cache, and what the heads give together.
static inline uint32_t layer_value_dim(const struct layer *l)
{
    return l->latent.n_kv > 0 ? l->latent.n_kv : l->head_dim;
}

static inline uint32_t layer_n_out(const struct layer *l)
{
    if (l->mixer == MIXER_DELTA)
        return l->delta.n_head * l->delta.n_state;
    if (l->mixer == MIXER_CONV)
        return l->conv.n;
    return l->n_head * (l->latent.n_kv > 0 ? l->latent.n_value : l->head_dim);
}

// The channels of a delta net's convolution, and the floats of its state: the inputs of the last
// n_conv - 1 tokens, (n_conv - 1, channels), then of each head its matrix.
static inline uint32_t layer_n_channels(const struct layer *l)
{
    return (2 * l->delta.n_key_head + l->delta.n_head) * l->delta.n_state;
}

// The same of a state space.
static inline uint32_t layer_ssm_channels(const struct layer *l)
{
    return l->ssm.n_inner + 2 * l->ssm.n_group * l->ssm.n_state;
}

static inline size_t layer_state_size(const struct layer *l)
{
    if (l->ssm.n_head > 0)
        return (size_t)(l->ssm.n_conv - 1) * layer_ssm_channels(l) +
               (size_t)l->ssm.n_inner * l->ssm.n_state;
    if (l->mixer == MIXER_CONV)
        return (size_t)(l->conv.n_taps - 1) * l->conv.n;
    if (l->mixer != MIXER_DELTA)
        return 0;
    return (size_t)(l->delta.n_conv - 1) * layer_n_channels(l) +
           (size_t)l->delta.n_head * l->delta.n_state * l->delta.n_state;
}

static inline bool layer_feeds(const struct layer *l)
{
    return l->n_ff > 0 || l->experts.n > 0;
}

// (n_cols) numbers; NULL: absent.
static inline const float *layer_vector(const struct layer *l, enum layer_weight i)
{
    return (const float *)l->w[i].data;
}

enum { MODEL_MAX_ROPES = 2, MODEL_MAX_SIDE = 7 };

struct model {
    struct gguf *gguf;           // owned
    struct tokenizer *tokenizer; // owned
    const char *arch;            // general.architecture: for people, no code depends on it
    char *name;                  // owned: general.name, else the file's base name; untrusted text
    char *quant;       // owned: "Q4_K_M" from general.file_type, else the commonest weight type
    char *fingerprint; // owned: 64 hex digits over metadata and tensor table (not the weights)
    struct gguf_str chat_template; // data NULL: none
    struct hparams hp;
    struct weight tok_embd; // (n_vocab, n_embd)
    // (positions, n_embd), F32: the row of its position is added to a token's embedding, scaled;
    // no sequence is longer. data NULL: none.
    struct weight pos_embd;
    struct weight output; // (n_vocab, n_embd); the same tensor as tok_embd when the head is tied
    bool tied;
    struct weight output_norm, output_norm_bias; // (n_embd); bias: data NULL when absent
    struct weight output_bias;                   // (n_vocab); data NULL when absent
    // With n_embd_layer = E, what layers are told of a token is, layer after layer, (n_layer * E):
    //   (RMS norm of each E of (token_layers_proj x / sqrt(n_embd)) * token_layers_norm
    //    + sqrt(E) * the token's row of token_layers) / sqrt(2), x the embedding, scaled
    struct weight token_layers;      // (n_vocab, n_layer * E)
    struct weight token_layers_proj; // (n_layer * E, n_embd)
    struct weight token_layers_norm; // (E)
    // With n_side: stream i begins as altup_proj_i x, x the embedding, scaled; in the end
    // output_norm is given the mean of x and all altup_unembd_proj_i x_i. Each of these products is
    // made as long as x is there: times sqrt(mean(x^2) / max(its mean square, 1e-5)).
    struct weight altup_proj, altup_unembd_proj; // n_side stacked, (n_embd, n_embd)
    // Of a model that model_predictor has made: what it predicts for, borrowed. Its layers are
    // given
    //   joint (join_embd_norm(the embedding), join_hidden_norm(h))
    // one behind the other, h the hidden state that the token before has in that model.
    const struct model *predicts_for;
    struct weight joint;                            // (n_embd, 2 * n_embd)
    struct weight join_embd_norm, join_hidden_norm; // (n_embd)
    struct rope ropes[MODEL_MAX_ROPES];
    uint32_t n_rope;
    struct layer *layers; // owned, n_layer, and behind them the facts of n_layer_predict more
    uint64_t n_params;
    uint64_t weight_bytes; // as they are in the file
    uint64_t shared_bytes; // of these, those that predicts_for has, too
    uint64_t grown_bytes;  // in memory beside them: of weights that are of a wider type there
    // implementation
    void **converted; // owned: vectors converted to F32; a slice's vectors and runs
    size_t n_converted;
    bool header_only; // vectors are as in the file
};

// Whether a general.architecture is one of those that hokku computes. Errors: ERR_MODEL, with a
// list.
bool model_knows(const char *architecture, struct error *err);
// Whether model_load would take the file, as far as its header tells: architecture, keys, names,
// shapes and types of tensors, the kind of the tokenizer. Reads nothing else. Errors: as there.
bool model_can_load(const char *path, struct error *err);
// Opens, checks and binds everything; the tokenizer too. Errors: ERR_MODEL, ERR_MEMORY.
struct model *model_load(const char *path, struct error *err);
// The same from an opened file (takes ownership of g, also on failure).
struct model *model_from_gguf(struct gguf *g, const char *path, struct error *err);
void model_free(struct model *m); // NULL is fine
// SHA-256, as hex digits, of a few bytes of each tensor: weights that were trained on have another.
// false: there is no file.
bool model_sample_weights(const struct model *m, char out[65]);

// The first prediction layer of m's file as a model of its own (multi-token prediction, DeepSeek-AI
// 2024, sec. 2.2): from the hidden state of a token and the token after it, it guesses the one
// after that. m, which has the file, the tokenizer, and where the file has no others the embedding
// and the head, is borrowed and outlives it. Errors: ERR_MODEL: there is none, or it is not one
// that is computed; a tensor that is missing, or of another shape or type; ERR_MEMORY.
struct model *model_predictor(const struct model *m, struct error *err);

// Which of the file's layers m's first one is.
static inline uint32_t model_first_layer(const struct model *m)
{
    return m->predicts_for ? m->predicts_for->hp.n_layer : 0;
}

// Whether a tensor of the file is m's own: not those of prediction layers, but of model_predictor's
// those of its layer alone.
bool model_has_tensor(const struct model *m, const struct gguf_tensor *t);

// The matrix of one expert.
static inline struct weight weight_of_expert(const struct weight *w, uint32_t i)
{
    struct weight one = *w;
    one.n_stacked = 0;
    one.n_bytes = w->n_bytes / w->n_stacked;
    one.data = (const char *)w->data + i * w->stack_bytes;
    one.scale = w->scale_each ? w->scale + i : w->scale;
    one.scale_each = false;
    return one;
}

// What one token reads of a weight of the layer: of experts, those that it uses.
static inline uint64_t weight_bytes_used(const struct weight *w)
{
    return w->n_stacked ? w->n_bytes / w->n_stacked * w->n_used : w->n_bytes;
}

// Bytes of all weights that one decoded token must read (embedding: one row; the head: all rows; of
// experts those that it uses).
uint64_t model_bytes_per_token(const struct model *m);
// How many different experts of n are expected where n_rows tokens choose n_used each, all alike
// often and independently.
double experts_expected(uint32_t n, uint32_t n_used, uint32_t n_rows);
// Bytes of all weights that a pass with a token of each of n_rows sequences must read once; of
// experts those of experts_expected.
double model_bytes_per_pass(const struct model *m, uint32_t n_rows);

// The largest that any layer has: what scratch memory is sized by.
struct layer_sizes {
    uint32_t n_head, head_dim;
    uint32_t n_q, n_kv; // n_head * head_dim, n_head_kv * head_dim
    uint32_t n_out;     // that heads give, of state spaces, too
    uint32_t n_ff;      // of experts, too
    uint32_t n_expert, n_expert_used, n_latent;
    uint32_t rope_dim;
};
struct layer_sizes model_largest(const struct model *m);

// How many of `n` positions up to and including the last one a layer sees.
static inline uint64_t layer_seen(const struct layer *l, uint64_t n)
{
    if (!l->window || n <= l->window)
        return n;
    return l->chunked ? (n - 1) % l->window + 1 : l->window;
}

// The frequency and magnitude with which pair i of a head is rotated at position 1 (angle =
// position * freq) in an engine with room for n_ctx positions. Formulas: RoPE (Su et al. 2021),
// linear interpolation, YaRN (Peng et al. 2023, sec. 3), frequency factors (Llama 3; LongRoPE, Ding
// et al. 2024). out: freq (n_dim / 2); *magnitude multiplies cos and sin.
void model_rope_freqs(const struct rope *r, uint32_t n_ctx, float *freq, float *magnitude);

#ifdef __cplusplus
}
#endif
#endif
