// A tiny model as a list of metadata and tensors that tests edit before it is written: one layer of
// random small weights, a SentencePiece vocabulary of 264 tokens.
#ifndef HOKKU_TESTS_UNIT_TINY_MODEL_H
#define HOKKU_TESTS_UNIT_TINY_MODEL_H

#include "image.h"

enum {
    TINY_VOCAB = 264,
    TINY_EMBD = 32,
    TINY_FF = 64,
    TINY_HEADS = 4,
    TINY_KV = 2,
    TINY_LAYERS = 2
};

struct tiny_kv {
    char key[96];
    struct buf value; // type and value as stored
};

struct tiny_tensor {
    char name[96];
    uint32_t type, n_dims;
    uint64_t ne[4];
};

struct tiny {
    const char *arch;
    struct tiny_kv kv[64];
    size_t n_kv;
    struct tiny_tensor tensors[64];
    size_t n_tensors;
    float weight; // of the vectors
};

// An existing key is overwritten.
static inline struct buf *tiny_key(struct tiny *t, const char *key)
{
    for (size_t i = 0; i < t->n_kv; i++)
        if (strcmp(t->kv[i].key, key) == 0) {
            buf_clear(&t->kv[i].value);
            return &t->kv[i].value;
        }
    assert_true(t->n_kv < 64);
    snprintf(t->kv[t->n_kv].key, sizeof t->kv[0].key, "%s", key);
    return &t->kv[t->n_kv++].value;
}

static inline void tiny_u32(struct tiny *t, const char *key, uint32_t v)
{
    struct buf *b = tiny_key(t, key);
    put_u32(b, GGUF_UINT32);
    put_u32(b, v);
}

static inline void tiny_f32(struct tiny *t, const char *key, float v)
{
    struct buf *b = tiny_key(t, key);
    put_u32(b, GGUF_FLOAT32);
    put_f32(b, v);
}

static inline void tiny_bool(struct tiny *t, const char *key, bool v)
{
    struct buf *b = tiny_key(t, key);
    put_u32(b, GGUF_BOOL);
    buf_putc(b, v);
}

static inline void tiny_str(struct tiny *t, const char *key, const char *v)
{
    struct buf *b = tiny_key(t, key);
    put_u32(b, GGUF_STRING);
    put_str(b, v);
}

static inline void tiny_drop_kv(struct tiny *t, const char *key)
{
    for (size_t i = 0; i < t->n_kv; i++)
        if (strcmp(t->kv[i].key, key) == 0) {
            buf_release(&t->kv[i].value);
            t->kv[i] = t->kv[--t->n_kv];
            return;
        }
    fail_msg("no key %s", key);
}

// An existing tensor is replaced. ne1 = 0: a vector.
static inline void tiny_tensor(struct tiny *t, const char *name, uint32_t type, uint64_t ne0,
                               uint64_t ne1)
{
    size_t i = 0;
    while (i < t->n_tensors && strcmp(t->tensors[i].name, name))
        i++;
    assert_true(i < 64);
    if (i == t->n_tensors)
        t->n_tensors++;
    t->tensors[i] = (struct tiny_tensor){.type = type, .n_dims = ne1 ? 2 : 1, .ne = {ne0, ne1}};
    snprintf(t->tensors[i].name, sizeof t->tensors[i].name, "%s", name);
}

static inline void tiny_drop_tensor(struct tiny *t, const char *name)
{
    for (size_t i = 0; i < t->n_tensors; i++)
        if (strcmp(t->tensors[i].name, name) == 0) {
            t->tensors[i] = t->tensors[--t->n_tensors];
            return;
        }
    fail_msg("no tensor %s", name);
}

static inline void tiny_vocabulary(struct tiny *t)
{
    tiny_str(t, "tokenizer.ggml.model", "llama");
    struct buf *tokens = tiny_key(t, "tokenizer.ggml.tokens");
    put_u32(tokens, GGUF_ARRAY);
    put_u32(tokens, GGUF_STRING);
    put_u64(tokens, TINY_VOCAB);
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    static const char *const last[] = {"\xE2\x96\x81", "a", "b",
                                       ("\xE2\x96\x81"
                                        "a"),
                                       "ab"};
    for (size_t i = 0; i < 3; i++)
        put_str(tokens, first[i]);
    for (int i = 0; i < 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
        put_str(tokens, byte);
    }
    for (size_t i = 0; i < 5; i++)
        put_str(tokens, last[i]);
    struct buf *scores = tiny_key(t, "tokenizer.ggml.scores");
    put_u32(scores, GGUF_ARRAY);
    put_u32(scores, GGUF_FLOAT32);
    put_u64(scores, TINY_VOCAB);
    struct buf *types = tiny_key(t, "tokenizer.ggml.token_type");
    put_u32(types, GGUF_ARRAY);
    put_u32(types, GGUF_INT32);
    put_u64(types, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) {
        put_f32(scores, i < 259 ? 0 : (float)-i);
        put_u32(types, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    }
    tiny_u32(t, "tokenizer.ggml.bos_token_id", 1);
    tiny_u32(t, "tokenizer.ggml.eos_token_id", 2);
    tiny_u32(t, "tokenizer.ggml.unknown_token_id", 0);
}

static inline const char *tiny_name(char out[96], const char *prefix, const char *name)
{
    snprintf(out, 96, "%s.%s", prefix, name);
    return out;
}

static inline void tiny_init(struct tiny *t, const char *arch)
{
    char k[96];
    *t = (struct tiny){.arch = arch, .weight = 1};
    uint32_t head_dim = TINY_EMBD / TINY_HEADS;
    tiny_str(t, "general.architecture", arch);
    tiny_u32(t, tiny_name(k, arch, "block_count"), TINY_LAYERS);
    tiny_u32(t, tiny_name(k, arch, "context_length"), 64);
    tiny_u32(t, tiny_name(k, arch, "embedding_length"), TINY_EMBD);
    tiny_u32(t, tiny_name(k, arch, "feed_forward_length"), TINY_FF);
    tiny_u32(t, tiny_name(k, arch, "attention.head_count"), TINY_HEADS);
    tiny_u32(t, tiny_name(k, arch, "attention.head_count_kv"), TINY_KV);
    tiny_f32(t, tiny_name(k, arch, "attention.layer_norm_rms_epsilon"), 1e-5f);
    tiny_vocabulary(t);
    tiny_tensor(t, "token_embd.weight", QUANT_Q8_0, TINY_EMBD, TINY_VOCAB);
    tiny_tensor(t, "output_norm.weight", QUANT_F32, TINY_EMBD, 0);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        char b[16];
        snprintf(b, sizeof b, "blk.%u", i);
        uint32_t n_kv = TINY_KV * head_dim;
        tiny_tensor(t, tiny_name(k, b, "attn_norm.weight"), QUANT_F32, TINY_EMBD, 0);
        tiny_tensor(t, tiny_name(k, b, "attn_q.weight"), QUANT_Q8_0, TINY_EMBD, TINY_EMBD);
        tiny_tensor(t, tiny_name(k, b, "attn_k.weight"), QUANT_Q4_0, TINY_EMBD, n_kv);
        tiny_tensor(t, tiny_name(k, b, "attn_v.weight"), QUANT_F16, TINY_EMBD, n_kv);
        tiny_tensor(t, tiny_name(k, b, "attn_output.weight"), QUANT_Q5_1, TINY_EMBD, TINY_EMBD);
        tiny_tensor(t, tiny_name(k, b, "ffn_norm.weight"), QUANT_F32, TINY_EMBD, 0);
        tiny_tensor(t, tiny_name(k, b, "ffn_gate.weight"), QUANT_F32, TINY_EMBD, TINY_FF);
        tiny_tensor(t, tiny_name(k, b, "ffn_up.weight"), QUANT_BF16, TINY_EMBD, TINY_FF);
        tiny_tensor(t, tiny_name(k, b, "ffn_down.weight"), QUANT_IQ4_NL, TINY_FF, TINY_EMBD);
        if (strcmp(arch, "qwen2") == 0) {
            tiny_tensor(t, tiny_name(k, b, "attn_q.bias"), QUANT_F32, TINY_EMBD, 0);
            tiny_tensor(t, tiny_name(k, b, "attn_k.bias"), QUANT_F32, n_kv, 0);
            tiny_tensor(t, tiny_name(k, b, "attn_v.bias"), QUANT_F32, n_kv, 0);
        }
        if (strcmp(arch, "qwen3") == 0) {
            tiny_tensor(t, tiny_name(k, b, "attn_q_norm.weight"), QUANT_F32, head_dim, 0);
            tiny_tensor(t, tiny_name(k, b, "attn_k_norm.weight"), QUANT_F32, head_dim, 0);
        }
    }
}

static inline void tiny_release(struct tiny *t)
{
    for (size_t i = 0; i < t->n_kv; i++)
        buf_release(&t->kv[i].value);
}

static inline size_t tiny_bytes(const struct tiny_tensor *t)
{
    return quant_row_bytes(t->type, t->ne[0]) * (t->n_dims == 2 ? t->ne[1] : 1);
}

// Appends the file. Vectors hold t->weight, 2 t->weight, ...; matrices zeros.
static inline void tiny_write(const struct tiny *t, struct buf *b)
{
    put_header(b, 3, t->n_tensors, t->n_kv);
    for (size_t i = 0; i < t->n_kv; i++) {
        put_str(b, t->kv[i].key);
        buf_append(b, t->kv[i].value.data, t->kv[i].value.len);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        const struct tiny_tensor *x = &t->tensors[i];
        put_tensor(b, x->name, x->type, x->n_dims, x->ne, offset);
        offset += (tiny_bytes(x) + 31) / 32 * 32;
    }
    for (size_t i = 0; i < t->n_tensors; i++) {
        const struct tiny_tensor *x = &t->tensors[i];
        put_padding(b, 32);
        for (uint64_t k = 0; x->n_dims == 1 && k < x->ne[0]; k++) {
            float v = t->weight * (float)(k + 1);
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            if (x->type == QUANT_F32)
                put_u32(b, bits);
            else
                put_uint(b, x->type == QUANT_F16 ? quant_f32_to_f16(v) : bits >> 16, 2);
        }
        if (x->n_dims != 1)
            put_bytes(b, 0, tiny_bytes(x));
    }
    put_padding(b, 32);
}

#endif
