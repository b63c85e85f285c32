// The table of architectures: a family is a row. What a field means, and what a row that does not
// set it says, is in internal.h; which layer has what follows in facts.c and layer_weights.c.
#include "model/internal.h"

#include <string.h>

#include "base/buf.h"
#include "base/format.h"

static const struct arch archs[] = {
    // Llama 1-3.3, Mistral, SmolLM2, TinyLlama, distills on Llama; with experts Mixtral
    {"llama", ROPE_INTERLEAVED, .may_have = ALL_BIASES, .experts = MAY_HAVE_EXPERTS,
     .experts_normed = true},
    // Qwen2, Qwen2.5, distills on them; the text part of Qwen2-VL and Qwen2.5-VL
    {"qwen2", ROPE_HALVES, .has = QKV_BIAS, .may_have = OUT_BIAS},
    {"qwen2vl", ROPE_HALVES, .has = QKV_BIAS, .may_have = OUT_BIAS, .vision = true},
    // Qwen3 dense, and with experts; the text parts of Qwen3-VL
    {"qwen3", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD},
    {"qwen3vl", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .vision = true},
    {"qwen3moe", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .experts = HAS_EXPERTS, .experts_normed = true},
    {"qwen3vlmoe", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .experts = HAS_EXPERTS, .experts_normed = true, .vision = true},
    // Qwen1.5 and Qwen2 with experts
    {"qwen2moe", ROPE_HALVES, .has = QKV_BIAS | SET(SHARED_ROUTER), .may_have = OUT_BIAS,
     .experts = HAS_EXPERTS},
    // gpt-oss: what precedes its experts is named as others name a post-norm
    {"gpt-oss", ROPE_HALVES, .act = ACT_CLAMPED_SWIGLU,
     .has = QKV_BIAS | OUT_BIAS | EXPERT_BIAS | SET(ATTN_SINKS), .ffn_norm = "post_attention_norm",
     .period = 2, .window_needed = true, .experts = HAS_EXPERTS, .experts_normed = true},
    // Gemma 2: the 27B model, of 46 layers, scales scores by its width over its heads
    {"gemma2", ROPE_HALVES, .act = ACT_GELU_TANH, .has = POST_NORMS, .period = 2, .window = 4096,
     .embd_sqrt = true, .attn_softcaps = true, .final_softcaps = true, .attn_softcap = 50,
     .final_softcap = 30, .n_layer_embd_scale = 46},
    // Gemma 3 (text): the 27B model has 62 layers
    {"gemma3", ROPE_HALVES, .act = ACT_GELU_TANH, .has = POST_NORMS | QK_NORM,
     .qk_norm = QK_NORM_HEAD, .period = 6, .windowed_rope = WINDOWED_OWN_BASE, .embd_sqrt = true,
     .final_softcaps = true, .n_layer_embd_scale = 62},
    // Gemma 4 (text), dense and with experts
    {"gemma4",
     ROPE_HALVES,
     .act = ACT_GELU_TANH,
     .has = POST_NORMS | QK_NORM | TWO_FEEDS | TOLD,
     .may_have = SET(LAYER_SCALE),
     .fused = true,
     .qk_norm = QK_NORM_HEAD,
     .k_is_v = true,
     .v_normed = true,
     .shares_kv = true,
     .told = true,
     .experts = MAY_HAVE_EXPERTS,
     .experts_normed = true,
     .experts_beside = true,
     .period = 1,
     .window_needed = true,
     .windows_told = true,
     .windowed_heads = true,
     .windowed_rope = WINDOWED_OWN_BASE,
     .embd_sqrt = true,
     .attn_scale = 1,
     .final_softcaps = true},
    // Phi-3, Phi-3.5, Phi-4
    {"phi3", ROPE_HALVES, .may_have = QKV_BIAS, .fused = true, .long_factors = true},
    // Phi-3.5 with experts: as its files are read everywhere, RMS norms with biases
    {"phimoe", ROPE_HALVES, .has = NORM_BIAS | QKV_BIAS | OUT_BIAS, .output_bias = true,
     .long_factors = true, .experts = HAS_EXPERTS, .experts_normed = true},
    // Granite 3 and 4, dense and with experts
    {"granite", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS, .state_space_named = true,
     .rotation_told = true, .scales = true, .logit_scale = LOGITS_DIVIDED,
     .deepstack_mapped = true},
    {"granitemoe", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS, .state_space_named = true,
     .rotation_told = true, .scales = true, .logit_scale = LOGITS_DIVIDED, .experts = HAS_EXPERTS,
     .experts_normed = true},
    // Granite 4
    {"granitehybrid", ROPE_INTERLEAVED, .has = SSM | SET(SSM_NORM), .may_have = QKV_BIAS | OUT_BIAS,
     .state_space = STATE_SPACE_ALONE, .rotation_told = true, .scales = true,
     .logit_scale = LOGITS_DIVIDED, .experts = MAY_HAVE_EXPERTS, .experts_normed = true},
    {"smollm3", ROPE_INTERLEAVED, .unrotated_every = 4},
    // Ministral 3, Mistral Large 3 and later
    {"mistral3", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS, .temperature = true},
    // OLMo 2, and with windows OLMo 3
    {"olmo2", ROPE_HALVES, .has = POST_NORMS | QK_NORM, .lacks = PRE_NORMS,
     .qk_norm = QK_NORM_WHOLE, .period = 4, .windowed_rope = WINDOWED_UNSCALED},
    {"olmoe", ROPE_HALVES, .has = QK_NORM, .qk_norm = QK_NORM_WHOLE, .experts = HAS_EXPERTS},
    // EXAONE 4: the 32B model, of 64 layers, has windows
    {"exaone4", ROPE_HALVES, .has = POST_NORMS | QK_NORM, .lacks = PRE_NORMS,
     .qk_norm = QK_NORM_HEAD, .period = 4, .window = 4096, .n_layer_windowed = 64,
     .full_unrotated = true},
    // GLM-4 0414; the text part of GLM-4.1V and 4.6V-Flash, whose files have their rows of queries
    // and keys in another order
    {"glm4", ROPE_INTERLEAVED, .has = POST_NORMS, .may_have = QKV_BIAS, .fused = true,
     .vision = true, .sections_halve = true},
    // GLM-4.5 to 4.7, the text part of 4.5V and 4.6V: what precedes its feed-forward network is
    // named as others name a post-norm
    {"glm4moe", ROPE_HALVES, .may_have = QKV_BIAS | QK_NORM | CHOICE, .qk_norm = QK_NORM_HEAD,
     .ffn_norm = "post_attention_norm", .predicts = PREDICTION_OF_STREAM, .experts = HAS_EXPERTS,
     .expert_gate = EXPERT_SIGMOID, .shared = SHARED_BY_COUNT, .vision = true},
    // Seed-OSS: what precedes its feed-forward network is named as others name a post-norm
    {"seed_oss", ROPE_HALVES, .may_have = QKV_BIAS | OUT_BIAS, .ffn_norm = "post_attention_norm"},
    // Command R, Command R7B and A
    {"command-r", ROPE_INTERLEAVED, NORM_LAYER, .lacks = SET(FFN_NORM), .may_have = QK_NORM,
     .qk_norm = QK_NORM_HEADS, .parallel = true, .logit_scale = LOGITS_TIMES},
    {"cohere2", ROPE_INTERLEAVED, NORM_LAYER, .lacks = SET(FFN_NORM), .parallel = true, .period = 4,
     .window_needed = true, .full_unrotated = true, .logit_scale = LOGITS_TIMES},
    {"starcoder2", ROPE_HALVES, NORM_LAYER, ACT_GELU_TANH, .has = NORM_BIAS | OUT_BIAS | FFN_BIAS,
     .may_have = QKV_BIAS, .lacks = GATE},
    {"stablelm", ROPE_HALVES, NORM_LAYER, .has = SET(ATTN_NORM_BIAS),
     .may_have = SET(FFN_NORM) | SET(FFN_NORM_BIAS) | QKV_BIAS | QK_NORM, .qk_norm = QK_NORM_HEADS,
     .parallel = true},
    {"nemotron", ROPE_HALVES, NORM_LAYER, ACT_RELU_SQR, .has = NORM_BIAS,
     .may_have = QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE},
    // Nemotron-H, Nemotron Nano 2; with experts Nemotron 3
    {"nemotron_h", ROPE_NONE, .act = ACT_RELU_SQR, .has = SSM | SET(SSM_NORM),
     .may_have = QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE, .ffn_norm = "attn_norm",
     .state_space = STATE_SPACE_ALONE, .one_part = true, .gaps = true},
    {"nemotron_h_moe", ROPE_NONE, .act = ACT_RELU_SQR, .has = SSM | SET(SSM_NORM) | EXPERT_LATENTS,
     .may_have = QKV_BIAS | OUT_BIAS | CHOICE, .lacks = GATE, .ffn_norm = "attn_norm",
     .state_space = STATE_SPACE_ALONE, .one_part = true, .gaps = true, .experts = HAS_EXPERTS,
     .expert_gate = EXPERT_SIGMOID, .experts_normed = true, .experts_latent = true},
    {"arcee", ROPE_INTERLEAVED, .act = ACT_RELU_SQR, .lacks = GATE},
    {"apertus", ROPE_HALVES, .act = ACT_XIELU, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .lacks = GATE, .qk_norm = QK_NORM_HEAD},
    // InternLM 2, 2.5
    {"internlm2", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS},
    {"ernie4_5", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS},
    {"ernie4_5-moe", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS | CHOICE,
     .experts = HAS_EXPERTS, .experts_normed = true},
    // Hunyuan dense, and with experts
    {"hunyuan-dense", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .qk_norm_rotated = true, .base_grows = true},
    {"hunyuan-moe", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .qk_norm_rotated = true, .experts = HAS_EXPERTS,
     .experts_normed = true},
    // dots.llm1
    {"dots1", ROPE_HALVES, .has = QK_NORM, .may_have = CHOICE, .qk_norm = QK_NORM_HEAD,
     .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID, .shared = SHARED_BY_COUNT},
    // Ling 2, Ring 2
    {"bailingmoe2", ROPE_HALVES, .has = QK_NORM, .may_have = CHOICE, .fused = true,
     .qk_norm = QK_NORM_HEAD, .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID,
     .shared = SHARED_BY_COUNT},
    {"minimax-m2", ROPE_HALVES, .has = QK_NORM, .may_have = CHOICE, .qk_norm = QK_NORM_WHOLE,
     .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID, .experts_normed = true},
    // Llama 4 (text): that of 128 experts has no norms of queries and keys
    {"llama4", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS, .qk_norm = QK_NORM_BARE,
     .qk_norm_rotated = true, .period = 4, .window = 8192, .chunked = true, .full_unrotated = true,
     .unrotated_temperature = true, .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID,
     .experts_weigh_input = true, .shared = SHARED_SAME, .n_expert_bare = 128},
    // DeepSeek V2, V3, R1 and what is of their shape: Kimi K2, Mistral Large 3, GLM-4.7-Flash
    // (whose files do not say that its gate is a sigmoid), and models without experts
    {"deepseek2", ROPE_INTERLEAVED, .has = LATENT, .may_have = CHOICE, .latent = true,
     .experts = MAY_HAVE_EXPERTS, .choice_by_sigmoid = true, .shared = SHARED_BY_COUNT,
     .unmagnified = true, .temperature = true, .temperature_length = true},
    // Mistral 4
    {"mistral4", ROPE_INTERLEAVED, .has = LATENT, .may_have = CHOICE, .latent = true,
     .experts = HAS_EXPERTS, .experts_normed = true, .shared = SHARED_BY_COUNT, .temperature = true,
     .temperature_length = true},
    // Qwen3.5 and 3.6 (text), dense and with experts; Qwen3-Next
    {"qwen35", ROPE_HALVES, .has = QK_NORM | DELTA | SET(DELTA_BETA) | SET(DELTA_ALPHA),
     .qk_norm = QK_NORM_HEAD, .ffn_norm = "post_attention_norm", .delta = true, .gated = true,
     .predicts = PREDICTION_OF_NORMED, .vision = true},
    {"qwen35moe", ROPE_HALVES,
     .has = QK_NORM | DELTA | SET(DELTA_BETA) | SET(DELTA_ALPHA) | SET(SHARED_ROUTER),
     .qk_norm = QK_NORM_HEAD, .ffn_norm = "post_attention_norm", .delta = true, .gated = true,
     .predicts = PREDICTION_OF_NORMED, .experts = HAS_EXPERTS, .experts_normed = true,
     .vision = true},
    {"qwen3next", ROPE_HALVES, .has = QK_NORM | DELTA | SET(DELTA_BETA_ALPHA) | SET(SHARED_ROUTER),
     .qk_norm = QK_NORM_HEAD, .ffn_norm = "post_attention_norm", .delta = true,
     .delta_in_order = true, .gated = true, .predicts = PREDICTION_OF_NORMED,
     .experts = HAS_EXPERTS, .experts_normed = true},
    // LFM2, LFM2.5, dense and with experts
    {"lfm2", ROPE_HALVES, .has = QK_NORM | SET(CONV_IN) | SET(CONV), .qk_norm = QK_NORM_HEAD,
     .output_norm = "token_embd_norm", .short_conv = true},
    {"lfm2moe", ROPE_HALVES, .has = QK_NORM | SET(CONV_IN) | SET(CONV), .may_have = CHOICE,
     .qk_norm = QK_NORM_HEAD, .output_norm = "token_embd_norm", .short_conv = true,
     .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID, .experts_normed = true},
    // Mamba 2, Codestral Mamba
    {"mamba2", ROPE_NONE, .has = SSM | SET(SSM_NORM), .state_space = STATE_SPACE_ALONE,
     .gaps = true},
    // Falcon-H1
    {"falcon-h1", ROPE_HALVES, .has = SSM, .may_have = SET(SSM_CONV_BIAS) | SET(SSM_NORM),
     .ffn_norm = "ffn_norm", .ffn_norm_whole = true, .state_space = STATE_SPACE_BESIDE},
    // Llama-Nemotron (Nano, Super, Ultra), DeciLM
    {"deci", ROPE_INTERLEAVED, .may_have = QKV_BIAS | OUT_BIAS, .gaps = true},
    // EXAONE 3, 3.5, Deep
    {"exaone", ROPE_HALVES, .may_have = QKV_BIAS},
    // Gemma, CodeGemma
    {"gemma", ROPE_HALVES, .act = ACT_GELU_TANH, .embd_sqrt = true},
    // GLM-4 9B, GLM-Edge, CodeGeeX4
    {"chatglm", ROPE_INTERLEAVED, .may_have = QKV_BIAS, .fused = true},
    // MiniCPM 1, 2 and 4
    {"minicpm", ROPE_INTERLEAVED, .long_factors = true, .scales = true, .scales_implied = true,
     .logit_scale = LOGITS_DIVIDED},
    // Ling and Ring of before 2
    {"bailingmoe", ROPE_INTERLEAVED, .experts = HAS_EXPERTS, .shared = SHARED_BY_COUNT},
    // DeepSeek with experts of before V2, GigaChat 20B
    {"deepseek", ROPE_INTERLEAVED, .experts = HAS_EXPERTS, .shared = SHARED_BY_COUNT},
    // K-EXAONE
    {"exaone-moe", ROPE_HALVES, .has = QK_NORM, .may_have = CHOICE, .qk_norm = QK_NORM_HEAD,
     .period = 4, .window_needed = true, .full_unrotated = true, .experts = HAS_EXPERTS,
     .expert_gate = EXPERT_SIGMOID},
    // Phi-1.5, Phi-2
    {"phi2", ROPE_HALVES, NORM_LAYER, ACT_GELU_TANH,
     .has = SET(ATTN_NORM_BIAS) | QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE | SET(FFN_NORM),
     .parallel = true, .output_bias = true},
    // MiniCPM 3
    {"minicpm3", ROPE_HALVES, .has = LATENT, .latent = true, .long_factors = true, .scales = true,
     .scales_implied = true, .logit_scale = LOGITS_DIVIDED},
    // HunyuanOCR, Hunyuan-VL (text)
    {"hunyuan_vl", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .qk_norm_rotated = true, .base_grows = true, .vision = true},
    // Arcee Trinity
    {"afmoe", ROPE_HALVES, .has = POST_NORMS | QK_NORM, .may_have = CHOICE, .gate_apart = true,
     .qk_norm = QK_NORM_HEAD, .period = 4, .window_needed = true, .full_unrotated = true,
     .embd_sqrt = true, .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID,
     .shared = SHARED_BY_COUNT},
    // OLMo 1
    {"olmo", ROPE_INTERLEAVED, NORM_LAYER, .norms_bare = true, .qkv_clamped = true},
    // Hy3, Hy-MT2
    {"hy_v3", ROPE_HALVES, .has = QK_NORM, .may_have = CHOICE, .qk_norm = QK_NORM_HEAD,
     .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID, .dense_unsaid = true},
    // Qwen, the first
    {"qwen", ROPE_HALVES, .has = QKV_BIAS, .ff_halved = true},
    // Baichuan, Baichuan 2
    {"baichuan", ROPE_INTERLEAVED, .n_layer_alibi = 40},
    {"orion", ROPE_HALVES, NORM_LAYER, .has = NORM_BIAS},
    // openPangu-Embedded
    {"pangu-embedded", ROPE_HALVES, .may_have = QKV_BIAS | OUT_BIAS},
    {"plm", ROPE_INTERLEAVED, .act = ACT_RELU_SQR, .has = LATENT, .lacks = GATE, .latent = true},
    // Gemma 3n (text)
    {"gemma3n", ROPE_HALVES, .act = ACT_GELU_TANH,
     .has = POST_NORMS | QK_NORM | TOLD | LAUREL | ALTUP, .qk_norm = QK_NORM_HEAD, .v_normed = true,
     .shares_kv = true, .told = true, .altup = true, .laurel = 64, .sparse = true, .period = 5,
     .window_needed = true, .windowed_rope = WINDOWED_OWN_BASE, .embd_sqrt = true, .attn_scale = 1,
     .final_softcaps = true, .final_softcap = 30},
    // Command A and R with experts
    {"cohere2moe", ROPE_INTERLEAVED, NORM_LAYER, .norm_told = true, .lacks = SET(FFN_NORM),
     .parallel = true, .period = 1, .window_needed = true, .windows_told = true,
     .full_unrotated = true, .dense_rotated = true, .logit_scale = LOGITS_TIMES,
     .experts = HAS_EXPERTS, .expert_gate = EXPERT_SIGMOID, .shared_averaged = true},
    // GPT-NeoX, Pythia, Dolly 2, RedPajama-INCITE
    {"gptneox", ROPE_HALVES, NORM_LAYER, ACT_GELU, .has = NORM_BIAS | FFN_BIAS,
     .may_have = QKV_BIAS | OUT_BIAS, .lacks = GATE, .parallel_told = true},
    // Falcon 7B; 40B and 180B have two norms
    {"falcon", ROPE_HALVES, NORM_LAYER, ACT_GELU, .has = NORM_BIAS, .lacks = GATE,
     .second_norm = true},
    // GPT-2, Cerebras-GPT
    {"gpt2", ROPE_NONE, NORM_LAYER, ACT_GELU_TANH,
     .has = NORM_BIAS | QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE, .positions = true},
    // StarCoder, the first; Granite Code 20B
    {"starcoder", ROPE_NONE, NORM_LAYER, ACT_GELU_TANH,
     .has = NORM_BIAS | QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE, .positions = true},
    {"jais2", ROPE_HALVES, NORM_LAYER, ACT_RELU_SQR,
     .has = NORM_BIAS | QKV_BIAS | OUT_BIAS | FFN_BIAS, .lacks = GATE},
    // Mellum 2
    {"mellum", ROPE_HALVES, .has = QK_NORM, .may_have = QKV_BIAS | OUT_BIAS,
     .qk_norm = QK_NORM_HEAD, .period = 4, .windowed_rope = WINDOWED_BASE_TOLD,
     .experts = HAS_EXPERTS, .experts_normed = true},
};

enum { N_ARCH = sizeof archs / sizeof *archs };

static void refuse(const struct gguf_str *name, struct error *err)
{
    char shown[FORMAT_TEXT];
    struct buf list = {0};
    for (size_t i = 0; i < N_ARCH; i++)
        buf_printf(&list, "%s%s", i ? ", " : "", archs[i].name);
    error_set(err, ERR_MODEL, "architecture \"%s\" is not supported; these are: %s",
              format_text(shown, sizeof shown, name->data, name->len), buf_str(&list));
    buf_release(&list);
}

bool model_knows(const char *architecture, struct error *err)
{
    const struct gguf_str name = {architecture, strlen(architecture)};
    for (size_t i = 0; i < N_ARCH; i++)
        if (strcmp(archs[i].name, architecture) == 0)
            return true;
    refuse(&name, err);
    return false;
}

const struct arch *arch_find(const struct gguf *g, struct error *err)
{
    struct gguf_str type = {"model", 5}, name;
    char shown[FORMAT_TEXT];
    if (!gguf_get_str(g, "general.type", false, &type, err))
        return NULL;
    if (type.len != 5 || memcmp(type.data, "model", 5)) {
        error_set(err, ERR_MODEL, "general.type is \"%s\", expected \"model\"",
                  format_text(shown, sizeof shown, type.data, type.len));
        return NULL;
    }
    if (!gguf_get_str(g, "general.architecture", true, &name, err))
        return NULL;
    for (size_t i = 0; i < N_ARCH; i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.data, name.len) == 0)
            return &archs[i];
    refuse(&name, err);
    return NULL;
}
