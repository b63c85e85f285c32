// Private to model/: the table of architectures, and the pieces of loading.
#ifndef HOKKU_MODEL_INTERNAL_H
#define HOKKU_MODEL_INTERNAL_H

#include "model/model.h"

// Sets of layer weights.
__extension__ typedef unsigned __int128 weight_set;
#define SET(w)     ((weight_set)1 << (w))
#define QKV_BIAS   (SET(ATTN_Q_BIAS) | SET(ATTN_K_BIAS) | SET(ATTN_V_BIAS))
#define OUT_BIAS   SET(ATTN_OUTPUT_BIAS)
#define QK_NORM    (SET(ATTN_Q_NORM) | SET(ATTN_K_NORM))
#define PRE_NORMS  (SET(ATTN_NORM) | SET(FFN_NORM))
#define POST_NORMS (SET(ATTN_POST_NORM) | SET(FFN_POST_NORM))
#define NORM_BIAS  (SET(ATTN_NORM_BIAS) | SET(FFN_NORM_BIAS))
#define FFN_BIAS   (SET(FFN_UP_BIAS) | SET(FFN_DOWN_BIAS))
#define ALL_BIASES (QKV_BIAS | OUT_BIAS | FFN_BIAS | SET(FFN_GATE_BIAS))
#define GATE       (SET(FFN_GATE) | SET(EXPERT_GATE) | SET(SHARED_GATE))
#define CHOICE     SET(ROUTER_CHOICE_BIAS)
#define LATENT                                                                                     \
    (SET(ATTN_Q_A) | SET(ATTN_Q_A_NORM) | SET(ATTN_Q_B) | SET(ATTN_KV_A) | SET(ATTN_KV_A_NORM) |   \
     SET(ATTN_K_B) | SET(ATTN_V_B))
#define LAUREL (SET(LAUREL_L) | SET(LAUREL_R) | SET(LAUREL_POST_NORM))
#define ALTUP                                                                                      \
    (SET(ALTUP_ROUTER_NORM) | SET(ALTUP_ROUTER) | SET(ALTUP_PREDICT) | SET(ALTUP_CORRECT) |        \
     SET(ALTUP_SCALE))
#define TOLD (SET(TOKEN_GATE) | SET(TOKEN_PROJ) | SET(TOKEN_POST_NORM))
// Of a layer with both kinds of feed-forward network.
#define TWO_FEEDS                                                                                  \
    (SET(DENSE_POST_NORM) | SET(EXPERT_NORM) | SET(ROUTER_NORM) | SET(EXPERT_DOWN_SCALE) |         \
     SET(EXPERT_POST_NORM))
#define EXPERT_BIAS                                                                                \
    (SET(ROUTER_BIAS) | SET(EXPERT_GATE_BIAS) | SET(EXPERT_UP_BIAS) | SET(EXPERT_DOWN_BIAS))
#define DELTA                                                                                      \
    (SET(DELTA_QKV) | SET(DELTA_GATE) | SET(DELTA_CONV) | SET(DELTA_DT) | SET(DELTA_A) |           \
     SET(DELTA_NORM))
#define SSM                                                                                        \
    (SET(SSM_IN) | SET(SSM_CONV) | SET(SSM_CONV_BIAS) | SET(SSM_DT) | SET(SSM_A) | SET(SSM_D) |    \
     SET(SSM_OUT))
#define EXPERT_LATENTS (SET(EXPERT_LATENT) | SET(EXPERT_LATENT_UP))
// What an architecture has unless its row says otherwise, in the layers that have such a part.
#define PLAIN_WEIGHTS                                                                              \
    (PRE_NORMS | SET(ATTN_Q) | SET(ATTN_K) | SET(ATTN_V) | SET(ATTN_OUTPUT) | GATE | SET(FFN_UP) | \
     SET(FFN_DOWN) | SET(ROUTER) | SET(EXPERT_UP) | SET(EXPERT_DOWN) | SET(SHARED_UP) |            \
     SET(SHARED_DOWN))

// Whether a file of this architecture has a tensor.
enum presence {
    ABSENT,   // an error when it is there: hokku would compute the wrong thing
    OPTIONAL, // used when it is there
    REQUIRED,
};

// How windowed layers are rotated where full ones are as the metadata says.
enum windowed_rope {
    WINDOWED_AS_FULL,
    WINDOWED_UNSCALED,  // the same base, no scaling for longer contexts
    WINDOWED_OWN_BASE,  // rope.freq_base_swa, no scaling
    WINDOWED_BASE_TOLD, // ... which is the same base where the file has none
};

// Whether a family has layers with experts, and a shared one beside them.
enum mixture { NO_EXPERTS, MAY_HAVE_EXPERTS, HAS_EXPERTS };
enum shared_expert {
    SHARED_BY_WIDTH, // where expert_shared_feed_forward_length is not 0
    SHARED_BY_COUNT, // expert_shared_count times that, or times the width of the others
    SHARED_SAME,     // always, as wide as the others
};

// Reads ssm.*, and which layers have a selective state space.
enum state_space {
    NO_STATE_SPACE,
    STATE_SPACE_ALONE,  // those without attention
    STATE_SPACE_BESIDE, // all, beside their attention
};

// What the prediction layers of a family (nextn_predict_layers) are given of a token before.
enum prediction {
    PREDICTION_LEFT_OUT, // what they compute is not known here
    PREDICTION_OF_STREAM,
    PREDICTION_OF_NORMED,
};

enum logit_scale { LOGITS_UNSCALED, LOGITS_TIMES, LOGITS_DIVIDED };

// What a family is, beside what its metadata says. Zero: as in Llama.
struct arch {
    const char *name; // general.architecture, and the prefix of its metadata keys
    enum rope_layout rope;
    enum norm_kind norm;
    enum activation act;
    bool norm_told; // norms are NORM_RMS where the metadata have the epsilon of that
    weight_set has, may_have, lacks;    // beside PLAIN_WEIGHTS
    const char *ffn_norm, *output_norm; // their names, where they are others
    bool norms_bare;                    // those and attn_norm have no weights
    bool ffn_norm_whole;                // ... without ".weight" behind it
    bool second_norm; // layers are parallel; what attention is given is normed by attn_norm_2 where
                      // the file has it, and then the feed-forward network by attn_norm
    bool fused; // attn_qkv, ffn_gate_up_exps, and ffn_up with the rows of the gate before its own;
                // the first two may be in files of all families
    enum qk_norm qk_norm; // of those that has or may_have qk norms
    bool qk_norm_rotated;
    bool parallel;      // a layer without ffn_norm is parallel (see struct layer)
    bool parallel_told; // reads use_parallel_residual: true: all layers are
    bool short_conv;    // layers with 0 KV heads are; reads shortconv.l_cache
    bool delta;         // reads full_attention_interval and ssm.*: the other layers are delta nets
    bool delta_in_order;
    enum state_space state_space;
    bool state_space_named; // files may have ssm.*, of a state space that no layer has
    bool one_part;          // a layer with a feed-forward network is nothing else
    bool gated;             // attention is (see struct layer)
    bool gate_apart;        // ... and what silences heads is attn_gate
    bool latent;            // reads attention.kv_lora_rank, .q_lora_rank, .key_length_mla, ...
    bool k_is_v;            // layers that see all may lack attn_v
    bool v_normed;
    bool shares_kv;  // reads attention.shared_kv_layers
    bool told;       // reads embedding_length_per_layer_input
    bool altup;      // reads altup.num_inputs, altup.active_idx, altup.correct_scale
    uint32_t laurel; // the rank of what is added beside attention, which no key says
    bool sparse;     // reads activation_sparsity_scale
    bool ff_halved;  // feed-forward networks are half as wide as feed_forward_length says
    bool gaps;       // layers may lack attention, queries and keys, or the feed-forward network
    bool output_bias;
    bool positions;   // position_embd, as many rows as context_length
    bool qkv_clamped; // reads attention.clamp_kqv
    enum prediction predicts;

    enum mixture experts;
    enum expert_gate expert_gate; // where the metadata do not say it, as the next two
    bool choice_by_sigmoid;       // ... but EXPERT_SIGMOID where experts have a bias of the choice
    bool experts_normed;
    bool experts_weigh_input;
    bool experts_latent; // reads moe_latent_size
    bool experts_beside; // a plain feed-forward network, whose width feed_forward_length is
    bool dense_unsaid; // without leading_dense_block_count those before the first with a router are
    enum shared_expert shared;
    bool shared_averaged;   // half of what experts give is added, and of what the shared one does
    uint32_t n_expert_bare; // models of so many experts have no norms of queries and keys

    // Windows: layer i has one when i % period < period - 1; 0: all have the one of the metadata.
    uint32_t period;
    uint32_t window;           // where the metadata have none
    bool window_needed;        // they must have one where a layer is windowed
    uint32_t n_layer_windowed; // only models of so many layers have windows; 0: all
    bool windows_told;         // only the metadata say which layers have one
    bool windowed_heads;       // theirs are key_length_swa wide, rope.dimension_count_swa rotated
    enum windowed_rope windowed_rope;
    bool chunked;             // windows are (see struct layer)
    bool base_grows;          // reads rope.scaling.alpha
    bool rotation_told;       // reads rope.scaling.finetuned: false: no layer is rotated
    bool full_unrotated;      // in models that have windows
    bool dense_rotated;       // ... but layers without experts are, and only a bool for each says
                              // which layers have a window
    uint32_t unrotated_every; // layer i is not rotated when (i + 1) % this == 0; 0: all are

    bool embd_sqrt;              // the embedding is multiplied by sqrt(n_embd)
    float attn_scale;            // of the scores; 0: 1 / sqrt(head_dim)
    uint32_t n_layer_embd_scale; // models of so many layers scale scores by sqrt(n_head / n_embd)
    bool scales;                 // reads embedding_scale, residual_scale, attention.scale
    bool scales_implied;         // files may leave out them and logit_scale: they are MiniCPM's
    enum logit_scale logit_scale;
    bool attn_softcaps,
        final_softcaps;                // reads attn_logit_softcapping, final_logit_softcapping, ...
    float attn_softcap, final_softcap; // ... which are these where the metadata have none
    bool temperature;                  // reads attention.temperature_scale
    bool temperature_length;           // ... and .temperature_length; else the original context
    bool unmagnified;                  // YaRN changes no cosine and sine
    bool unrotated_temperature;        // ... and .temperature_length: 0.1 and 8192 where absent
    bool long_factors;                 // rope_factors_short and rope_factors_long
    uint32_t n_layer_alibi; // models of so many layers have ALiBi in place of rotations: refused
    bool vision;            // the text part of a model that also sees
    bool deepstack_mapped;  // ... of which deepstack_mapping is
    bool sections_halve;    // where the file has sections, rope is ROPE_HALVES
};

// The row of m's architecture, or NULL and ERR_MODEL naming those that work.
const struct arch *arch_find(const struct gguf *g, struct error *err);

// ---- metadata.c: the metadata of an architecture. What nobody asked for is refused in the end.

struct meta {
    const struct gguf *g;
    const char *arch;
    struct error *err;
    bool *read;   // owned: per key of the file
    char key[96]; // that was asked for last
};

bool meta_init(struct meta *k, const struct gguf *g, const char *arch, struct error *err);
void meta_release(struct meta *k);
// "rope.freq_base" -> the value of "llama.rope.freq_base", or NULL
const struct gguf_kv *meta_find(struct meta *k, const char *name);
// All leave *out as it is when an optional key is absent, and refuse what is out of range.
bool meta_u32(struct meta *k, const char *name, bool required, uint32_t min, uint32_t max,
              uint32_t *out);
// 0 < value <= max; 0 <= value <= max.
bool meta_f32(struct meta *k, const char *name, bool required, double max, float *out);
bool meta_f32_or_0(struct meta *k, const char *name, bool required, double max, float *out);
// One value for all layers, or an array of one for each: value i goes to *(out + i * stride bytes).
bool meta_per_layer(struct meta *k, const char *name, bool required, uint32_t n_layer, uint32_t min,
                    uint32_t max, uint32_t *out, size_t stride);
// Checks an array of integers, at most `most` parts of `whole`.
bool meta_parts(struct meta *k, const char *name, uint32_t most, uint32_t whole);
// meta_per_layer without the architecture's name before the key; an array it must be.
bool meta_f32_per_layer(struct meta *k, const char *key, uint32_t n_layer, float *out,
                        size_t stride);
// meta_u32 of an optional key whose value may be written as a float.
bool meta_u32_or_f32(struct meta *k, const char *name, uint32_t min, uint32_t max, uint32_t *out);
// Refuses the first key of the architecture that was not asked for, unless it is 0, or known to
// change nothing.
bool meta_all_read(struct meta *k);

// ---- facts of several files

// Without the prediction layers at their end.
static inline uint32_t n_evaluated(const struct hparams *hp)
{
    return hp->n_layer - hp->n_layer_predict;
}

static inline bool is_windowed(const struct layer *l)
{
    return l->window > 0;
}

static inline bool has_windows(const struct arch *a, const struct hparams *hp)
{
    return a->n_layer_windowed == 0 || a->n_layer_windowed == n_evaluated(hp);
}

// ---- rotation.c, rope.c

// Fills m->ropes (all but factors), m->n_rope and the rope of each layer, whose window is known.
// Widths of heads of layers that see all, 0: there are none, and of windowed ones.
bool rotation_read(struct meta *k, const struct arch *a, struct model *m, uint32_t head_dim,
                   uint32_t windowed_head_dim);
// What cosines and sines are multiplied by.
double rope_magnitude(const struct rope *r);

// ---- facts.c, experts.c, bind.c

// Fills m->hp (all but n_vocab), m->ropes (all but factors) and the facts of m->layers (all but
// those that follow from the tensors that are there) from the metadata. Every value is in range
// afterwards.
bool facts_read(struct model *m, const struct arch *a, struct error *err);

// The same of the experts of each layer, whose n_ff is that of a plain feed-forward network before,
// and 0 after it in layers with experts.
bool experts_read(struct meta *k, const struct arch *a, struct model *m);

// Finds, checks and binds every tensor to its place; sets hp.n_vocab, tied, n_params, weight_bytes,
// and of a layer qk_norm and parallel. A tensor left over is an error.
bool model_bind(struct model *m, const struct arch *a, struct error *err);

// The same of p, a copy of predicts_for with one layer, which is `block` of the file: what it has
// of its own.
bool predictor_bind(struct model *p, const struct arch *a, uint32_t block, struct error *err);

#endif
