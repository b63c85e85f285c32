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

enum rope_layout {
    ROPE_INTERLEAVED, // pairs (2i, 2i+1): GGUF files of `llama` (their Q/K rows are permuted for
                      // it)
    ROPE_HALVES,      // pairs (i, i + rope_dim/2): qwen2, qwen3
};

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN };

struct hparams {
    uint32_t n_vocab;     // rows of token_embd
    uint32_t n_ctx_train; // context length in the metadata
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_head_kv; // divides n_head
    uint32_t head_dim;  // of Q, K and V; not always n_embd / n_head
    uint32_t n_ff;
    uint32_t n_swa; // sliding window: a token sees itself and the n_swa - 1 before it; 0 = all
    float rms_eps;

    enum rope_layout rope_layout;
    uint32_t rope_dim; // rotated part of a head, even, <= head_dim
    float rope_theta;
    enum rope_scaling rope_scaling;
    float rope_factor;      // linear and YaRN: context extension factor (1 = none)
    uint32_t rope_orig_ctx; // YaRN: context the model was trained on before extension
    float rope_attn_factor; // YaRN: extra magnitude factor of the metadata (1 = none)
    float rope_beta_fast;   // YaRN
    float rope_beta_slow;   // YaRN
};

// A weight matrix W of `rows` rows, each n_cols long: y = W x, x (n_cols), y (rows); or a vector of
// n_cols numbers. data NULL: absent.
struct weight {
    const char *name; // "ffn_down", "attn_q.bias": as in the file, without layer and ".weight"
    uint32_t type;    // enum quant_type; of a vector always QUANT_F32
    uint32_t rows;
    uint32_t n_cols;
    bool vector;
    const void *data; // rows * quant_row_bytes(type, n_cols), as in the file
    size_t n_bytes;
    const struct gguf_tensor *tensor; // that data is of; a matrix may be some of its rows
};

// What a layer has, in the order in which a token meets it. model/bind.c says the name, shape and
// presence of each; whoever handles all of them loops.
enum layer_weight {
    ATTN_NORM,
    ATTN_Q,
    ATTN_K,
    ATTN_V,
    ATTN_Q_BIAS,
    ATTN_K_BIAS,
    ATTN_V_BIAS,
    ATTN_Q_NORM, // of each head, before RoPE
    ATTN_K_NORM,
    ATTN_OUTPUT,
    ATTN_OUTPUT_BIAS,
    FFN_NORM,
    FFN_GATE,
    FFN_UP,
    FFN_DOWN,
    N_LAYER_WEIGHTS,
};

// Vectors are F32, aligned: those of other types in the file are converted at load.
struct layer {
    struct weight w[N_LAYER_WEIGHTS];
};

// (n_cols) numbers; NULL: absent.
static inline const float *layer_vector(const struct layer *l, enum layer_weight i)
{
    return (const float *)l->w[i].data;
}

struct model {
    struct gguf *gguf;           // owned
    struct tokenizer *tokenizer; // owned
    const char *arch;            // "llama", "qwen2", "qwen3"
    char *name;                  // owned: general.name, else the file's base name; untrusted text
    char *quant;       // owned: "Q4_K_M" from general.file_type, else the commonest weight type
    char *fingerprint; // owned: 64 hex digits over metadata and tensor table (not the weights)
    struct gguf_str chat_template; // data NULL: none
    struct hparams hp;
    struct weight tok_embd; // (n_vocab, n_embd)
    struct weight output;   // (n_vocab, n_embd); the same tensor as tok_embd when the head is tied
    bool tied;
    const float *output_norm; // (n_embd)
    const float
        *rope_freqs;      // (rope_dim / 2) divisors of the frequencies (Llama 3), NULL when absent
    struct layer *layers; // owned, n_layer
    uint64_t n_params;
    uint64_t weight_bytes;
    // implementation
    float **converted; // owned: vectors converted to F32
    size_t n_converted;
};

// Opens, checks and binds everything; the tokenizer too. Errors: ERR_MODEL, ERR_MEMORY.
struct model *model_load(const char *path, struct error *err);
// The same from an opened file (takes ownership of g, also on failure).
struct model *model_from_gguf(struct gguf *g, const char *path, struct error *err);
void model_free(struct model *m); // NULL is fine

// Bytes of all weights that one decoded token must read (embedding: one row; the head: all rows).
uint64_t model_bytes_per_token(const struct model *m);

// The frequency and magnitude with which pair i of a head is rotated at position 1 (angle =
// position * freq). Formulas: RoPE (Su et al. 2021), linear interpolation, YaRN (Peng et al. 2023,
// sec. 3), frequency factors (Llama 3). out: freq (rope_dim / 2); *magnitude multiplies cos and sin
// (1 unless YaRN).
void model_rope_freqs(const struct model *m, float *freq, float *magnitude);

// Comma-separated names of the architectures that work.
const char *model_arch_list(void);

#ifdef __cplusplus
}
#endif
#endif
