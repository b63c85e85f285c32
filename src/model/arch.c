// The table of architectures. A model family that computes the same forward pass is one row.
#include "model/internal.h"

#include <string.h>

#include "base/format.h"

static const struct arch archs[] = {
    // Llama 1-3.3, Mistral, SmolLM2, TinyLlama, distills on Llama
    {"llama", ROPE_INTERLEAVED, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .qk_norm = ABSENT},
    // Qwen2, Qwen2.5, distills on them
    {"qwen2", ROPE_HALVES, .qkv_bias = REQUIRED, .out_bias = OPTIONAL, .qk_norm = ABSENT},
    // Qwen3 dense
    {"qwen3", ROPE_HALVES, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .qk_norm = REQUIRED},
};

const char *model_arch_list(void)
{
    return "llama, qwen2, qwen3";
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
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.data, name.len) == 0)
            return &archs[i];
    error_set(err, ERR_MODEL, "architecture \"%s\" is not supported; these are: %s",
              format_text(shown, sizeof shown, name.data, name.len), model_arch_list());
    return NULL;
}
