#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "tiny_model.h"
#include "vectors.h"

// A model from t, with its file's bytes in a block of exactly their size.
static struct model *load(struct tiny *t, void **block, struct error *err)
{
    struct buf b = {0};
    tiny_write(t, &b);
    assert_false(b.failed);
    *block = malloc(b.len);
    assert_non_null(*block);
    memcpy(*block, b.data, b.len);
    struct gguf *g = gguf_open_memory(*block, b.len, "tiny.gguf", err);
    buf_release(&b);
    tiny_release(t);
    return g ? model_from_gguf(g, "tiny.gguf", err) : NULL;
}

static struct model *load_or_fail(struct tiny *t, void **block)
{
    struct error err = {0};
    struct model *m = load(t, block, &err);
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

static void each_architecture_loads(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < 3; i++) {
        struct tiny t;
        void *block;
        tiny_init(&t, archs[i]);
        struct model *m = load_or_fail(&t, &block);
        assert_string_equal(m->arch, archs[i]);
        assert_string_equal(m->name, "tiny"); // from the file's name
        assert_string_equal(m->quant, "F32"); // most bytes
        assert_null(m->chat_template.data);
        assert_int_equal(m->hp.n_vocab, TINY_VOCAB);
        assert_int_equal(m->layers[1].n_head, TINY_HEADS);
        assert_int_equal(m->layers[1].n_head_kv, TINY_KV);
        assert_int_equal(m->layers[1].head_dim, 8);
        assert_int_equal(m->ropes[0].n_dim, 8);
        assert_int_equal(m->layers[1].window, 0);
        assert_true(m->ropes[0].theta == 10000);
        assert_int_equal(m->ropes[0].layout, i == 0 ? ROPE_INTERLEAVED : ROPE_HALVES);
        assert_true(m->tied);
        assert_ptr_equal(m->output.data, m->tok_embd.data);
        const struct layer *l = &m->layers[1];
        assert_int_equal(l->w[ATTN_K].rows, 16);
        assert_int_equal(l->w[ATTN_K].n_cols, TINY_EMBD);
        assert_int_equal(l->w[ATTN_K].type, QUANT_Q4_0);
        assert_int_equal(l->w[ATTN_K].n_bytes, 16 * 18);
        assert_int_equal(l->w[FFN_DOWN].n_cols, TINY_FF);
        assert_true(layer_vector(l, ATTN_NORM)[31] == 32);
        assert_int_equal(layer_vector(l, ATTN_Q_BIAS) != NULL, i == 1);
        assert_int_equal(layer_vector(l, ATTN_Q_NORM) != NULL, i == 2);
        assert_null(layer_vector(l, ATTN_OUTPUT_BIAS));
        assert_null(m->ropes[0].factors);
        model_free(m);
        free(block);
    }
}

static void metadata_and_optional_tensors_are_honoured(void **state)
{
    (void)state;
    struct tiny t;
    void *block;
    tiny_init(&t, "llama");
    tiny_str(&t, "general.name", "a\nb");
    tiny_u32(&t, "general.file_type", 15);
    tiny_str(&t, "tokenizer.chat_template", "{{ x }}");
    tiny_u32(&t, "llama.attention.key_length", 16);
    tiny_u32(&t, "llama.attention.value_length", 16);
    tiny_u32(&t, "llama.rope.dimension_count", 12);
    tiny_u32(&t, "llama.attention.sliding_window", 7);
    tiny_f32(&t, "llama.rope.freq_base", 5e5f);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char b[16], k[96];
        snprintf(b, sizeof b, "blk.%d", i);
        tiny_tensor(&t, tiny_name(k, b, "attn_q.weight"), QUANT_F16, TINY_EMBD, 64);
        tiny_tensor(&t, tiny_name(k, b, "attn_k.weight"), QUANT_F16, TINY_EMBD, 32);
        tiny_tensor(&t, tiny_name(k, b, "attn_v.weight"), QUANT_F16, TINY_EMBD, 32);
        tiny_tensor(&t, tiny_name(k, b, "attn_output.weight"), QUANT_F16, 64, TINY_EMBD);
        tiny_tensor(&t, tiny_name(k, b, "attn_output.bias"), QUANT_F16, TINY_EMBD, 0);
        tiny_tensor(&t, tiny_name(k, b, "attn_rot_embd.weight"), QUANT_F32, 6, 0);
    }
    tiny_tensor(&t, "output.weight", QUANT_Q4_0, TINY_EMBD, TINY_VOCAB);
    tiny_tensor(&t, "rope_freqs.weight", QUANT_F32, 6, 0);
    struct buf *heads = tiny_key(&t, "llama.attention.head_count_kv"); // one value per layer
    put_u32(heads, GGUF_ARRAY);
    put_u32(heads, GGUF_INT32);
    put_u64(heads, TINY_LAYERS);
    put_u32(heads, TINY_KV);
    put_u32(heads, TINY_KV);
    struct model *m = load_or_fail(&t, &block);
    assert_string_equal(m->name, "a\\x0Ab");
    assert_string_equal(m->quant, "Q4_K_M");
    assert_int_equal(m->chat_template.len, 7);
    assert_int_equal(m->layers[1].head_dim, 16);
    assert_int_equal(m->ropes[0].n_dim, 12);
    assert_int_equal(m->layers[1].window, 7);
    assert_int_equal(m->layers[1].n_head_kv, TINY_KV);
    assert_false(m->tied);
    assert_int_equal(m->output.type, QUANT_Q4_0);
    assert_true(layer_vector(&m->layers[1], ATTN_OUTPUT_BIAS)[2] == 3);
    assert_true(m->ropes[0].factors[5] == 6);
    // All but the embedding, of which one row is read.
    assert_int_equal(model_bytes_per_token(m), m->weight_bytes - (TINY_VOCAB - 1) * 34);
    model_free(m);
    free(block);

    tiny_init(&t, "llama");
    m = load_or_fail(&t, &block);
    assert_int_equal(model_bytes_per_token(m), m->weight_bytes + 34);
    assert_true(model_bytes_per_pass(m, 1) == (double)m->weight_bytes + 34);
    assert_true(model_bytes_per_pass(m, 9) == (double)m->weight_bytes + 9 * 34);
    model_free(m);
    free(block);
}

static void rows_use_more_experts_than_one_and_never_more_than_there_are(void **state)
{
    (void)state;
    assert_true(fabs(experts_expected(8, 2, 1) - 2) < 1e-12);
    assert_true(fabs(experts_expected(8, 2, 2) - (2 + 2 * 6 / 8.0)) < 1e-12);
    assert_true(experts_expected(8, 8, 5) == 8);
    assert_true(experts_expected(128, 8, 256) > 127.99 && experts_expected(128, 8, 256) <= 128);
}

static void vectors_are_converted_or_moved_when_they_must_be(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_BF16};
    for (size_t i = 0; i < 3; i++) {
        struct tiny t;
        tiny_init(&t, "llama");
        tiny_tensor(&t, "output_norm.weight", types[i], TINY_EMBD, 0);
        struct buf b = {0};
        tiny_write(&t, &b);
        tiny_release(&t);
        for (size_t shift = 0; shift < 2; shift++) {
            char *block = malloc(b.len + shift);
            memcpy(block + shift, b.data, b.len);
            struct error err = {0};
            struct gguf *g = gguf_open_memory(block + shift, b.len, "tiny", &err);
            struct model *m = model_from_gguf(g, "tiny", &err);
            assert_non_null(m);
            assert_int_equal((uintptr_t)m->output_norm.data % sizeof(float), 0);
            for (int k = 0; k < TINY_EMBD; k++)
                assert_true(((const float *)m->output_norm.data)[k] == (float)(k + 1));
            model_free(m);
            free(block);
        }
        buf_release(&b);
    }
}

static void per_layer_array(struct tiny *t, const char *key, uint32_t a, uint32_t b)
{
    struct buf *v = tiny_key(t, key);
    put_u32(v, GGUF_ARRAY);
    put_u32(v, GGUF_UINT32);
    put_u64(v, 2);
    put_u32(v, a);
    put_u32(v, b);
}

enum edit { SET_U32, SET_F32, SET_STR, SET_BOOL, DROP_KV, TENSOR, DROP_TENSOR, PER_LAYER };

static void wrong_models_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        enum edit edit;
        const char *name;
        double a, b, type; // the value; a tensor's shape and type
        const char *text;
        const char *message;
    } v[] = {
        {"llama", DROP_KV, "general.architecture",
         .message = "key general.architecture is missing"},
        {"llama", SET_STR, "general.architecture", .text = "mamba\x1B",
         .message =
             "architecture \"mamba\\x1B\" is not supported; these are: llama, qwen2, qwen2vl, "},
        {"llama", SET_STR, "general.type", .text = "adapter",
         .message = "general.type is \"adapter\", expected \"model\""},
        {"qwen2", DROP_KV, "qwen2.block_count", .message = "key qwen2.block_count is missing"},
        {"llama", SET_U32, "llama.block_count", 0, .message = "llama.block_count is 0, expected 1"},
        {"llama", SET_U32, "llama.block_count", 3,
         .message = "tensor blk.2.attn_norm.weight (32) is missing"},
        {"llama", SET_U32, "llama.block_count", 21,
         .message = "is 21, but the file has 20 tensors"},
        {"llama", SET_U32, "llama.block_count", 1,
         .message =
             "tensor blk.1.attn_norm.weight is not one that architecture llama has with 1 l"},
        {"llama", SET_U32, "llama.block_count", 4e9,
         .message = "block_count is 4,000,000,000, exp"},
        {"llama", SET_STR, "llama.block_count", .text = "2",
         .message = "string, expected an integer"},
        {"llama", SET_U32, "llama.embedding_length", 0, .message = "expected 1 to 1,048,576"},
        {"llama", SET_U32, "llama.embedding_length", 34,
         .message = "34 is not a multiple of the 4"},
        {"llama", SET_U32, "llama.embedding_length", 64,
         .message = "tensor token_embd.weight has shape 32 x 264, expected 64 x 264"},
        {"llama", SET_U32, "llama.context_length", 0,
         .message = "context_length is 0, expected 1 to"},
        {"llama", DROP_KV, "llama.context_length", .message = "llama.context_length is missing"},
        {"llama", SET_U32, "llama.feed_forward_length", 65,
         .message = "tensor blk.0.ffn_gate.weight has shape 32 x 64, expected 32 x 65"},
        {"llama", SET_U32, "llama.attention.head_count", 0, .message = "head_count is 0"},
        {"llama", SET_U32, "llama.attention.head_count", 1 << 20, .message = "expected 1 to 4,096"},
        {"llama", SET_U32, "llama.attention.head_count_kv", 3,
         .message = "4 attention heads cannot share 3 KV heads evenly"},
        {"llama", SET_U32, "llama.attention.head_count_kv", 8,
         .message = "cannot share 8 KV heads"},
        {"llama", SET_U32, "llama.attention.key_length", 7, .message = "heads are 7 wide"},
        {"llama", SET_U32, "llama.attention.value_length", 16,
         .message = "value_length is 16 and the key length 8"},
        {"llama", SET_F32, "llama.attention.layer_norm_rms_epsilon", 0,
         .message = "expected above 0"},
        {"llama", SET_F32, "llama.attention.layer_norm_rms_epsilon", -1, .message = "is -1"},
        {"llama", SET_F32, "llama.attention.layer_norm_rms_epsilon", INFINITY, .message = "is inf"},
        {"llama", SET_F32, "llama.attention.layer_norm_rms_epsilon", NAN,
         .message = "finite 32-bit"},
        {"llama", SET_U32, "llama.rope.dimension_count", 3, .message = "is 3, expected an even"},
        {"llama", SET_U32, "llama.rope.dimension_count", 10, .message = "is 10, expected 2 to 8"},
        {"llama", SET_U32, "llama.rope.dimension_count", 0, .message = "is 0, expected 2 to 8"},
        {"llama", SET_F32, "llama.rope.freq_base", -5, .message = "llama.rope.freq_base is -5"},
        {"llama", SET_F32, "llama.rope.freq_base", 0.99, .message = "0.99, expected 1 to 1e15"},
        {"llama", SET_STR, "llama.rope.scaling.type", .text = "longrope",
         .message = "is \"longrope\"; none, linear and yarn are supported"},
        {"llama", SET_F32, "llama.rope.scaling.factor", -2, .message = "factor is -2, expected"},
        {"llama", SET_F32, "llama.rope.scale_linear", 1e9, .message = "scale_linear is 1e+09"},
        {"llama", SET_U32, "llama.expert_count", 8,
         .message = "metadata key llama.expert_used_count is missing"},
        {"qwen2", SET_U32, "qwen2.expert_count", 8, .message = "8 experts per layer"},
        {"llama", SET_BOOL, "llama.attention.causal", 0, .message = "this is an embedding model"},
        {"llama", SET_U32, "llama.attention.sliding_window_pattern", 6,
         .message = "llama.attention.sliding_window_pattern is not one that hokku knows of"},
        {"llama", SET_F32, "llama.attn_logit_softcapping", 50, .message = "is not one that hokku"},
        {"llama", SET_F32, "llama.residual_scale", 2, .message = "is not one that hokku knows"},
        {"llama", SET_U32, "llama.some.new.thing", 1, .message = "llama.some.new.thing is not one"},
        {"llama", PER_LAYER, "llama.feed_forward_length", 64, 128,
         .message = "tensor blk.1.ffn_gate.weight has shape 32 x 64, expected 32 x 128"},
        {"llama", PER_LAYER, "llama.attention.head_count", 4, 0,
         .message = "head_count is 0 at layer 1, expected 1 to 4096"},
        {"llama", PER_LAYER, "llama.attention.head_count_kv", 2, 3,
         .message = "4 attention heads cannot share 3 KV heads evenly"},
        {"llama", DROP_TENSOR, "token_embd.weight",
         .message = "tensor token_embd.weight is missing"},
        {"llama", DROP_TENSOR, "output_norm.weight",
         .message = "output_norm.weight (32) is missing"},
        {"llama", DROP_TENSOR, "blk.1.ffn_down.weight",
         .message = "tensor blk.1.ffn_down.weight (64 x 32) is missing"},
        {"qwen2", DROP_TENSOR, "blk.0.attn_k.bias", .message = "blk.0.attn_k.bias (16) is missing"},
        {"qwen3", DROP_TENSOR, "blk.1.attn_q_norm.weight",
         .message = "q_norm.weight (8) is missing"},
        {"llama", TENSOR, "blk.0.attn_q_norm.weight", 8, 0, QUANT_F32,
         .message = "tensor blk.0.attn_q_norm.weight is not one that architecture llama has"},
        {"llama", TENSOR, "blk.0.ffn_gate_exps.weight", 32, 32, QUANT_F32, .message = "is not one"},
        {"qwen2", TENSOR, "blk.0.ffn_up.bias", 64, 0, QUANT_F32, .message = "is not one that"},
        {"llama", TENSOR, "blk.0.ffn_norm.weight", 31, 0, QUANT_F32,
         .message = "tensor blk.0.ffn_norm.weight has shape 31, expected 32"},
        {"llama", TENSOR, "blk.0.ffn_norm.weight", 32, 2, QUANT_F32,
         .message = "shape 32 x 2, exp"},
        {"llama", TENSOR, "blk.0.ffn_norm.weight", 32, 0, QUANT_Q8_0,
         .message = "is of type Q8_0, expected F32, F16 or BF16"},
        {"llama", TENSOR, "blk.0.attn_k.weight", 16, 32, QUANT_F32,
         .message = "tensor blk.0.attn_k.weight has shape 16 x 32, expected 32 x 16"},
        {"llama", TENSOR, "output.weight", 32, 263, QUANT_F32,
         .message = "32 x 263, expected 32 x 264"},
        {"llama", TENSOR, "token_embd.weight", 32, 265, QUANT_F32,
         .message = "has 265 rows, but the vocabulary has 264 tokens"},
        {"llama", TENSOR, "token_embd.weight", 8448, 0, QUANT_F32,
         .message = "has shape 8448, expe"},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct tiny t;
        tiny_init(&t, v[i].arch);
        switch (v[i].edit) {
        case SET_U32:
            tiny_u32(&t, v[i].name, (uint32_t)v[i].a);
            break;
        case SET_F32:
            tiny_f32(&t, v[i].name, (float)v[i].a);
            break;
        case SET_STR:
            tiny_str(&t, v[i].name, v[i].text);
            break;
        case SET_BOOL:
            tiny_bool(&t, v[i].name, v[i].a != 0);
            break;
        case DROP_KV:
            tiny_drop_kv(&t, v[i].name);
            break;
        case TENSOR:
            tiny_tensor(&t, v[i].name, (uint32_t)v[i].type, (uint64_t)v[i].a, (uint64_t)v[i].b);
            break;
        case DROP_TENSOR:
            // Something must be there in its stead, or the layers are too few tensors.
            tiny_tensor(&t, "rope_freqs.weight", QUANT_F32, 4, 0);
            tiny_drop_tensor(&t, v[i].name);
            break;
        case PER_LAYER:
            per_layer_array(&t, v[i].name, (uint32_t)v[i].a, (uint32_t)v[i].b);
            break;
        }
        struct error err = {0};
        void *block;
        struct model *m = load(&t, &block, &err);
        if (m || !strstr(err.text, v[i].message) || err.code != ERR_MODEL)
            fail_msg("case %zu (%s): \"%s\" does not say \"%s\"", i, v[i].name, err.text,
                     v[i].message);
        assert_int_equal(strncmp(err.text, "tiny.gguf: ", 11), 0);
        free(block);
    }
}

static void frequency_factors_must_be_divisors(void **state)
{
    (void)state;
    static const float bad[] = {0, -1, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        struct tiny t;
        void *block;
        struct error err = {0};
        tiny_init(&t, "llama");
        tiny_tensor(&t, "rope_freqs.weight", QUANT_F32, 4, 0);
        t.weight = bad[i];
        assert_null(load(&t, &block, &err));
        assert_non_null(strstr(err.text, "rope_freqs.weight has"));
        free(block);
    }
}

// Expected values: NumPy, from the formulas as the transformers library states them (inv_freq,
// _compute_linear_scaling_rope_parameters, _compute_yarn_parameters).
static void rotation_frequencies_follow_the_papers(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        float theta, factor;
        uint32_t orig_ctx;
        float fast, slow, attn;
        bool factors;
        double freq[8], magnitude;
    } v[] = {
        {NULL,
         5e5f,
         0,
         0,
         0,
         0,
         0,
         false,
         {1, 0.193922745, 0.0376060309, 0.00729266474, 0.00141421356, 0.000274248176, 5.3182959e-05,
          1.03133854e-05},
         1},
        {NULL,
         5e5f,
         0,
         0,
         0,
         0,
         0,
         true, // divided by 1, 2, 3, ...
         {1, 0.0969613725, 0.0125353436, 0.00182316619, 0.000282842712, 4.57080293e-05,
          7.59756557e-06, 1.28917318e-06},
         1},
        {"linear",
         5e5f,
         4,
         0,
         0,
         0,
         0,
         false,
         {0.25, 0.0484806863, 0.00940150773, 0.00182316619, 0.00035355339, 6.8562044e-05,
          1.32957398e-05, 2.57834635e-06},
         1},
        {"yarn",
         1e4f,
         4,
         2048,
         0,
         0,
         0,
         false,
         {1, 0.316227766, 0.1, 0.025693506, 0.00625, 0.00138349648, 0.00025, 7.90569415e-05},
         1.138629436},
        {"yarn",
         1e6f,
         8,
         512,
         16,
         2,
         0.5f,
         false,
         {1, 0.125961458, 0.0131761569, 0.000702926656, 0.000125, 2.22284926e-05, 3.95284708e-06,
          7.02926656e-07},
         0.5 * 1.20794415},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct tiny t;
        void *block;
        tiny_init(&t, "llama");
        tiny_u32(&t, "llama.attention.head_count", 2); // heads of 16
        tiny_u32(&t, "llama.attention.head_count_kv", 1);
        tiny_f32(&t, "llama.rope.freq_base", v[i].theta);
        if (v[i].type) {
            tiny_str(&t, "llama.rope.scaling.type", v[i].type);
            tiny_f32(&t, "llama.rope.scaling.factor", v[i].factor);
        }
        if (v[i].orig_ctx)
            tiny_u32(&t, "llama.rope.scaling.original_context_length", v[i].orig_ctx);
        if (v[i].fast != 0) {
            tiny_f32(&t, "llama.rope.scaling.yarn_beta_fast", v[i].fast);
            tiny_f32(&t, "llama.rope.scaling.yarn_beta_slow", v[i].slow);
            tiny_f32(&t, "llama.rope.scaling.attn_factor", v[i].attn);
        }
        if (v[i].factors)
            tiny_tensor(&t, "rope_freqs.weight", QUANT_F32, 8, 0);
        struct model *m = load_or_fail(&t, &block);
        float freq[8], magnitude;
        model_rope_freqs(&m->ropes[0], 64, freq, &magnitude);
        for (int k = 0; k < 8; k++)
            if (fabs(freq[k] / v[i].freq[k] - 1) > 3e-7)
                fail_msg("case %zu, pair %d: %.9g, expected %.9g", i, k, (double)freq[k],
                         v[i].freq[k]);
        assert_true(fabs(magnitude - v[i].magnitude) < 1e-6);
        model_free(m);
        free(block);
    }
    // The key of older files; without a type a factor means linear, and 0 none.
    struct tiny t;
    void *block;
    float freq[4], magnitude;
    tiny_init(&t, "llama");
    tiny_f32(&t, "llama.rope.scale_linear", 2);
    struct model *m = load_or_fail(&t, &block);
    model_rope_freqs(&m->ropes[0], 64, freq, &magnitude);
    assert_int_equal(m->ropes[0].scaling, ROPE_SCALING_LINEAR);
    assert_true(freq[0] == 0.5f);
    model_free(m);
    free(block);
    tiny_init(&t, "llama");
    tiny_f32(&t, "llama.rope.scaling.factor", 0);
    m = load_or_fail(&t, &block);
    assert_int_equal(m->ropes[0].scaling, ROPE_SCALING_NONE);
    model_free(m);
    free(block);
}

static void fingerprint_is_of_metadata_not_of_weights(void **state)
{
    (void)state;
    char prints[3][65], samples[3][65];
    for (int i = 0; i < 3; i++) {
        struct tiny t;
        void *block;
        tiny_init(&t, "llama");
        t.weight = i == 1 ? 2 : 1;
        tiny_u32(&t, "llama.context_length", i == 2 ? 65 : 64);
        struct model *m = load_or_fail(&t, &block);
        assert_int_equal(strlen(m->fingerprint), 64);
        strcpy(prints[i], m->fingerprint);
        assert_true(model_sample_weights(m, samples[i]));
        assert_int_equal(strlen(samples[i]), 64);
        model_free(m);
        free(block);
    }
    assert_string_equal(prints[0], prints[1]);
    assert_string_not_equal(prints[0], prints[2]);
    assert_string_not_equal(samples[0], samples[1]); // which the weights alone have
    assert_string_equal(samples[0], samples[2]);
}

// Reads what an engine would read: every byte that a bound pointer reaches.
static double touch(const struct model *m)
{
    double sum = 0;
    float row[4096];
    const struct hparams *hp = &m->hp;
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        for (size_t k = 0; k <= N_LAYER_WEIGHTS; k++) {
            const struct weight *w = k < N_LAYER_WEIGHTS ? &m->layers[i].w[k] : &m->output;
            if (!w->data || w->n_cols > 4096)
                continue;
            size_t n = quant_row_bytes(w->type, w->n_cols);
            const char *last = (const char *)w->data + (w->rows - 1) * n;
            quant_dequantize(w->type, w->data, row, w->n_cols);
            quant_dequantize(w->type, last, row, w->n_cols);
            sum += row[0];
        }
    }
    float *freq = malloc(m->ropes[0].n_dim * sizeof *freq), magnitude;
    if (freq)
        model_rope_freqs(&m->ropes[0], 64, freq, &magnitude);
    free(freq);
    return sum;
}

// Seeded corruptions of a valid file: bytes flipped, integers made extreme, pieces cut out, doubled
// or moved, the end cut off. Nothing may crash, hang or be read out of bounds (run under ASan);
// what is refused is refused as a model that cannot be loaded.
static void corrupted_files_never_crash(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    int n_refused = 0, n_loaded = 0;
    for (size_t a = 0; a < 3; a++) {
        struct tiny t;
        struct buf b = {0};
        tiny_init(&t, archs[a]);
        tiny_tensor(&t, "rope_freqs.weight", QUANT_F32, 4, 0);
        tiny_str(&t, "llama.rope.scaling.type", "yarn");
        tiny_write(&t, &b);
        tiny_release(&t);
        // The tensor data is half of the file: aim most corruptions at what is before it.
        size_t n_header = 12000;
        for (uint32_t round = 0; round < 3000; round++) {
            size_t n = b.len;
            char *image = malloc(2 * n);
            memcpy(image, b.data, n);
            uint32_t draw = 0;
            uint32_t n_edits = 1 + (uint32_t)(rng_u64(1, round, draw++) % 4);
            for (uint32_t e = 0; e < n_edits && n > 16; e++) {
                uint64_t r = rng_u64(a + 1, round, draw++), kind = r % 8;
                size_t limit = r >> 60 ? (n < n_header ? n : n_header) : n;
                size_t at = (size_t)(rng_u64(a + 1, round, draw++) % limit);
                uint64_t what = rng_u64(a + 1, round, draw++);
                if (kind < 3) {
                    image[at] = (char)(image[at] ^ (1 << what % 8));
                } else if (kind == 3) {
                    image[at] = (char)what;
                } else if (kind == 4 && at + 8 <= n) {
                    static const uint64_t extreme[] = {0,          1,          0x7FFFFFFF,
                                                       0xFFFFFFFF, UINT64_MAX, 1ull << 63,
                                                       1ull << 61, 1ull << 32, 255};
                    uint64_t value = extreme[what % (sizeof extreme / sizeof *extreme)];
                    memcpy(image + at, &value, what >> 32 & 1 ? 8 : 4);
                } else if (kind == 5) {
                    n = at;
                } else if (kind == 6) { // cut a piece out
                    size_t k = (size_t)(what % 64);
                    k = k < n - at ? k : n - at;
                    memmove(image + at, image + at + k, n - at - k);
                    n -= k;
                } else if (kind == 7 && n + 64 < 2 * b.len) { // double a piece
                    size_t k = (size_t)(what % 64);
                    k = k < n - at ? k : n - at;
                    memmove(image + at + k, image + at, n - at);
                    n += k;
                }
            }
            char *exact = malloc(n ? n : 1);
            memcpy(exact, image, n);
            free(image);
            struct error err = {0};
            struct gguf *g = gguf_open_memory(exact, n, "fuzzed", &err);
            struct model *m = g ? model_from_gguf(g, "fuzzed", &err) : NULL;
            if (m) {
                touch(m);
                n_loaded++;
            } else {
                assert_int_equal(err.code, ERR_MODEL);
                assert_true(strlen(err.text) > 10);
                n_refused++;
            }
            model_free(m);
            free(exact);
        }
        buf_release(&b);
    }
    // Both happen, or the corruptions are not what they should be.
    assert_true(n_refused > 3000);
    assert_true(n_loaded > 300);
}

// The files of the reference vectors all load.
static void reference_models_load(void **state)
{
    (void)state;
    static const struct {
        const char *file, *arch, *quant;
        uint32_t n_layer, head_dim;
        bool tied;
    } v[] = {
        {"qwen2-tiny-q4_k_m", "qwen2", "Q4_K_M", 2, 64, true},
        {"qwen2-tiny-iq4_xs", "qwen2", "IQ4_XS", 2, 64, true},
        {"qwen2-tiny-bf16", "qwen2", "BF16", 2, 64, true},
        {"llama-tiny-q4_k_m", "llama", "Q4_K_M", 2, 64, false},
        {"qwen3-tiny-q4_k_m", "qwen3", "Q4_K_M", 2, 128, true},
        {"stories", "llama", "F32", 5, 8, false},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/models/%s.gguf", vectors_dir(0), v[i].file);
        struct error err = {0};
        struct model *m = model_load(path, &err);
        if (!m)
            fail_msg("%s", err.text);
        assert_string_equal(m->arch, v[i].arch);
        assert_string_equal(m->quant, v[i].quant);
        assert_int_equal(m->hp.n_layer, v[i].n_layer);
        assert_int_equal(m->layers[1].head_dim, v[i].head_dim);
        assert_int_equal(m->tied, v[i].tied);
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_architecture_loads),
        cmocka_unit_test(metadata_and_optional_tensors_are_honoured),
        cmocka_unit_test(rows_use_more_experts_than_one_and_never_more_than_there_are),
        cmocka_unit_test(vectors_are_converted_or_moved_when_they_must_be),
        cmocka_unit_test(wrong_models_are_refused_with_the_reason),
        cmocka_unit_test(frequency_factors_must_be_divisors),
        cmocka_unit_test(rotation_frequencies_follow_the_papers),
        cmocka_unit_test(fingerprint_is_of_metadata_not_of_weights),
        cmocka_unit_test(corrupted_files_never_crash),
        cmocka_unit_test(reference_models_load),
    };
    return RUN_TESTS("model", tests);
}
