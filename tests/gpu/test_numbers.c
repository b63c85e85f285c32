// Numbers that are not finite, and magnitudes: the same through every width of a chunk and through
// decoding, on either engine. `test_numbers cuda` (the default) or cpu.
#include "../unit/test.h"

#include <math.h>

#include "tiny_engine.h"

static struct engine *open_engine(const struct model *m, enum kv_type type)
{
    const struct engine_params p = {
        .n_ctx = N_CTX, .n_batch = 32, .type_k = type, .type_v = type, .n_threads = 1};
    struct error err = {0};
    struct engine *e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static void eval(struct engine *e, const int32_t *tokens, size_t n, enum engine_logits want)
{
    struct error err = {0};
    if (!e->ops->eval(e, tokens, n, want, &err))
        fail_msg("%s", err.text);
}

// ---- numbers that are not finite

// The first scale of a matrix, or its first weight.
static void spoil(const struct weight *w, float with)
{
    unsigned char *p = (void *)w->data;
    uint32_t bits;
    memcpy(&bits, &with, sizeof bits);
    const uint16_t half = quant_f32_to_f16(with), bf16 = (uint16_t)(bits >> 16);
    if (w->type == QUANT_F32)
        memcpy(p, &bits, sizeof bits);
    else
        memcpy(p, w->type == QUANT_BF16 ? &bf16 : &half, sizeof half); // they begin with the scale
}

// What the engine says after chunks of n tokens; sampled: by sampling, else by the logits.
static void complaint(struct engine *e, const struct fixture *f, size_t n, bool sampled,
                      struct error *err)
{
    float logits[TINY_VOCAB];
    struct decoded d;
    const struct decode_params p = {
        .sampler = &sampler_defaults, .history = f->tokens, .n_history = n, .max_tokens = 5};
    *err = (struct error){0};
    e->ops->trim(e, 0);
    eval(e, f->tokens, n, LOGITS_LAST);
    if (sampled) {
        assert_true(e->ops->decode_start(e, &p, err));
        struct error again = {0};
        if (!e->ops->decode_next(e, &d, err))
            assert_false(e->ops->decode_next(e, &d, &again));
        assert_string_equal(again.text, err->text);
        e->ops->decode_stop(e, n);
    } else {
        e->ops->logits(e, 0, logits, err);
    }
}

static void the_weights_that_give_no_number_are_named(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 2, 5, 30};
    static const struct {
        const char *name;
        size_t offset; // in struct layer
        bool vector;
        const char *out; // where it can be seen first
    } places[] = {
        {"attn_norm", offsetof(struct layer, attn_norm), true, "attn_output"},
        {"attn_q", offsetof(struct layer, wq), false, "attn_output"},
        {"attn_k", offsetof(struct layer, wk), false, "attn_output"},
        {"attn_v", offsetof(struct layer, wv), false, "attn_output"},
        {"attn_output", offsetof(struct layer, wo), false, "attn_output"},
        {"ffn_norm", offsetof(struct layer, ffn_norm), true, "ffn_down"},
        {"ffn_gate", offsetof(struct layer, w_gate), false, "ffn_down"},
        {"ffn_up", offsetof(struct layer, w_up), false, "ffn_down"},
        {"ffn_down", offsetof(struct layer, w_down), false, "ffn_down"},
    };
    int n_bad = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int kind = 0; kind < 3; kind++) { // the second layer, the first, a cache of Q8_0
            struct fixture f;
            struct error err;
            char want[64];
            const uint32_t layer = kind == 1 ? 0 : 1;
            const float with = NAN;
            open_model(&f, "llama");
            char *at = (char *)&f.m->layers[layer] + places[i].offset;
            if (places[i].vector)
                *(float *)(*(const float **)(void *)at) = with;
            else
                spoil((const struct weight *)(void *)at, with);
            snprintf(want, sizeof want, " comes out of blk.%u.%s:", layer, places[i].out);
            struct engine *e = open_engine(f.m, kind == 2 ? KV_Q8_0 : KV_F16);
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
                for (int sampled = 0; sampled < 2; sampled++) {
                    complaint(e, &f, widths[w], sampled, &err);
                    if (err.code == ERR_FAIL && strstr(err.text, want))
                        continue;
                    print_message("# %g in %s, %zu tokens: %s\n", (double)with, places[i].name,
                                  widths[w], err.code ? err.text : "no error");
                    n_bad++;
                }
            engine_free(e);
            close_model(&f);
        }
    assert_int_equal(n_bad, 0);
}

// A token's own row, which only a prompt with it meets; and what comes after the layers.
static void the_embedding_and_the_head_are_named(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_model(&f, "llama");
    *(float *)f.m->output_norm = NAN;
    struct engine *e = open_engine(f.m, KV_F16);
    complaint(e, &f, 5, true, &err);
    assert_non_null(strstr(err.text, " comes out of output:"));
    engine_free(e);
    close_model(&f);

    open_model(&f, "llama");
    struct weight row = f.m->tok_embd;
    row.data = (const char *)row.data + (size_t)f.tokens[4] * quant_row_bytes(row.type, row.n_cols);
    spoil(&row, NAN);
    e = open_engine(f.m, KV_F16);
    complaint(e, &f, 5, true, &err);
    assert_non_null(strstr(err.text, " comes out of token_embd:"));
    engine_free(e);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_weights_that_give_no_number_are_named),
        cmocka_unit_test(the_embedding_and_the_head_are_named),
    };
    return RUN_TESTS("numbers", tests);
}
