// libFuzzer target: any bytes as a GGUF file, as far as a bound model and its tokenizer.
// meson.build here says how to build and run it.
#include <stdlib.h>

#include "gguf/gguf.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

// Where everything that is read goes, so that no read is optimised away.
static volatile double sink;

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct error err = {0};
    struct gguf *g = gguf_open_memory(data, n, "fuzz", &err);
    if (!g)
        return 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (kv->type != GGUF_ARRAY)
            continue;
        struct gguf_str s;
        size_t cursor = 0;
        while (gguf_array_next_str(&kv->v.a, &cursor, &s))
            sink += (double)s.len + (s.len ? s.data[s.len - 1] : 0);
        for (uint64_t k = 0; kv->v.a.type != GGUF_STRING && k < kv->v.a.count && k < 100; k++)
            sink += gguf_array_f64(&kv->v.a, k);
    }
    struct model *m = model_from_gguf(g, "fuzz", &err);
    if (m) {
        model_free(model_predictor(m, &err));
        uint32_t n_pairs = m->ropes[0].n_dim / 2;
        float magnitude, *freq = malloc(n_pairs * sizeof *freq), row[256];
        if (freq)
            model_rope_freqs(&m->ropes[0], m->hp.n_ctx_train, freq, &magnitude);
        free(freq);
        if (m->tok_embd.n_cols <= 256)
            quant_dequantize(m->tok_embd.type,
                             (const char *)m->tok_embd.data + m->tok_embd.n_bytes -
                                 quant_row_bytes(m->tok_embd.type, m->tok_embd.n_cols),
                             row, m->tok_embd.n_cols);
    }
    model_free(m);
    return 0;
}
