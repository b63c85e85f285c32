// Numbers that are not finite, and magnitudes: the same through every width of a chunk and through
// decoding, on either engine. `test_numbers cuda` (the default) or cpu.
#include "../unit/further.h"
#include "../unit/test.h"

#include <math.h>

#include "tiny_experts.h"

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
    if (!one_eval(e, tokens, n, want, &err))
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
    const struct one_params p = {.sampler = &sampler_defaults, .max_tokens = 5};
    *err = (struct error){0};
    one_trim(e, 0);
    eval(e, f->tokens, n, LOGITS_LAST);
    if (sampled) {
        assert_true(one_start(e, &p, err));
        struct error again = {0};
        if (!one_next(e, &d, err))
            assert_false(one_next(e, &d, &again));
        assert_string_equal(again.text, err->text);
        one_stop(e, n);
    } else {
        one_logits(e, 0, logits, err);
    }
}

static void the_weights_that_give_no_number_are_named(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 2, 5, 30}; // sampled, read, ...
    static const struct {
        const char *name;
        enum layer_weight w;
        const char *out; // where it can be seen first
    } places[] = {
        {"attn_norm", ATTN_NORM, "attn_output"},     {"attn_q", ATTN_Q, "attn_output"},
        {"attn_k", ATTN_K, "attn_output"},           {"attn_v", ATTN_V, "attn_output"},
        {"attn_output", ATTN_OUTPUT, "attn_output"}, {"ffn_norm", FFN_NORM, "ffn_down"},
        {"ffn_gate", FFN_GATE, "ffn_down"},          {"ffn_up", FFN_UP, "ffn_down"},
        {"ffn_down", FFN_DOWN, "ffn_down"},
    };
    int n_bad = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int kind = 0; kind < 4; kind++) { // second layer, first, cache of Q8_0, infinity
            struct fixture f;
            struct error err;
            char want[64];
            const uint32_t layer = kind == 1 ? 0 : 1;
            const float with = kind == 3 ? INFINITY : NAN;
            open_model(&f, "llama");
            const struct weight *spoilt = &f.m->layers[layer].w[places[i].w];
            if (spoilt->vector)
                *(float *)spoilt->data = with;
            else
                spoil(spoilt, with);
            snprintf(want, sizeof want, " comes out of blk.%u.%s:", layer, places[i].out);
            struct engine *e = open_engine(f.m, kind == 2 ? KV_Q8_0 : KV_F16);
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                complaint(e, &f, widths[w], w % 2 == 0, &err);
                if (err.code == ERR_FAIL && strstr(err.text, want))
                    continue;
                print_message("# %g in %s, %zu tokens: %s\n", (double)with, places[i].name,
                              widths[w], err.code ? err.text : "no error");
                n_bad++;
            }
            one_close(e);
            close_model(&f);
        }
    assert_int_equal(n_bad, 0);
}

// The same of a layer that is nothing but a mixer, or behind one.
static void a_layer_without_a_feed_forward_network_is_named(void **state)
{
    (void)state;
    static const struct {
        enum layer_weight w;
        const char *out;
    } places[] = {
        {ATTN_Q, "attn_output"}, {ATTN_OUTPUT, "attn_output"}, {SSM_IN, "ssm_out"},
        {SSM_CONV, "ssm_out"},   {SSM_CONV_BIAS, "ssm_out"},   {SSM_DT, "ssm_out"},
        {SSM_A, "ssm_out"},      {SSM_D, "ssm_out"},           {SSM_OUT, "ssm_out"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (uint32_t layer = 0; layer < TINY_LAYERS; layer++) {
            struct fixture f;
            struct error err;
            char want[64];
            open_state_space(&f);
            for (uint32_t k = 0; k < TINY_LAYERS; k++) {
                struct layer *l = &f.m->layers[k];
                l->n_ff = 0;
                l->w[FFN_NORM].data = l->w[FFN_GATE].data = l->w[FFN_UP].data =
                    l->w[FFN_DOWN].data = NULL;
            }
            const struct weight *spoilt = &f.m->layers[layer].w[places[i].w];
            if (!spoilt->vector)
                spoil(spoilt, NAN);
            for (uint32_t k = 0; spoilt->vector && k < spoilt->n_cols; k++)
                ((float *)spoilt->data)[k] = NAN; // the first tap may have no token yet
            snprintf(want, sizeof want, " comes out of blk.%u.%s:", layer, places[i].out);
            struct engine *e = open_engine(f.m, KV_F16);
            for (size_t n = 1; n <= 5; n += 4) {
                complaint(e, &f, n, n == 1, &err);
                if (err.code != ERR_FAIL || !strstr(err.text, want))
                    fail_msg("%zu tokens, expected%s %s", n, want, err.text);
            }
            one_close(e);
            close_model(&f);
        }
}

// A token's own row, which only a prompt with it meets; and what comes after the layers.
static void the_embedding_and_the_head_are_named(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    open_model(&f, "llama");
    *(float *)f.m->output_norm.data = NAN;
    struct engine *e = open_engine(f.m, KV_F16);
    complaint(e, &f, 5, true, &err);
    assert_non_null(strstr(err.text, " comes out of output:"));
    one_close(e);
    close_model(&f);

    open_model(&f, "llama");
    struct weight row = f.m->tok_embd;
    row.data = (const char *)row.data + (size_t)f.tokens[4] * quant_row_bytes(row.type, row.n_cols);
    spoil(&row, NAN);
    e = open_engine(f.m, KV_F16);
    complaint(e, &f, 5, true, &err);
    assert_non_null(strstr(err.text, " comes out of token_embd:"));
    one_close(e);
    close_model(&f);
}

// ---- magnitudes

// Every weight times 2^n.
static void shift(const struct weight *w, int n)
{
    unsigned char *p = (void *)w->data;
    if (w->type == QUANT_BF16)
        for (size_t i = 0; i < w->n_bytes; i += 2) {
            uint32_t bits = (uint32_t)(p[i] | p[i + 1] << 8) << 16;
            float v;
            memcpy(&v, &bits, sizeof v);
            v = ldexpf(v, n);
            memcpy(&bits, &v, sizeof bits);
            p[i] = (unsigned char)(bits >> 16);
            p[i + 1] = (unsigned char)(bits >> 24);
        }
    else if (w->type == QUANT_F32)
        for (size_t i = 0; i < w->n_bytes; i += 4) {
            float v;
            memcpy(&v, p + i, sizeof v);
            v = ldexpf(v, n);
            memcpy(p + i, &v, sizeof v);
        }
    else // the block's scale
        for (size_t i = 0; i < w->n_bytes; i += quant_info(w->type)->block_bytes) {
            uint16_t half;
            memcpy(&half, p + i, sizeof half);
            half = quant_f32_to_f16(ldexpf(quant_f16_to_f32(half), n));
            memcpy(p + i, &half, sizeof half);
        }
}

// Matrices of `type`, and ffn_down of type `down`; embeddings in float32.
static void open_model_of(struct fixture *f, uint32_t type, uint32_t down)
{
    struct tiny t;
    tiny_init(&t, "llama"); // no biases, which would not be scaled
    for (size_t i = 0; i < t.n_tensors; i++) {
        struct tiny_tensor *x = &t.tensors[i];
        if (x->n_dims == 2)
            x->type = strstr(x->name, "token_embd") ? QUANT_F32
                      : strstr(x->name, "ffn_down") ? down
                                                    : type;
    }
    open_tiny(f, &t);
}

// What is multiplied with powers of two in all layers: where they do not cancel, the CPU engine
// knows what they make.
struct magnitudes {
    const char *what;
    int q, k, v, o, gate, up, down, embd, attn_norm, ffn_norm;
};

static void scale_model(const struct fixture *f, const struct magnitudes *x)
{
    shift(&f->m->tok_embd, x->embd);
    for (uint32_t i = 0; i < f->m->hp.n_layer; i++) {
        const struct layer *l = &f->m->layers[i];
        shift(&l->w[ATTN_Q], x->q);
        shift(&l->w[ATTN_K], x->k);
        shift(&l->w[ATTN_V], x->v);
        shift(&l->w[ATTN_OUTPUT], x->o);
        shift(&l->w[FFN_GATE], x->gate);
        shift(&l->w[FFN_UP], x->up);
        shift(&l->w[FFN_DOWN], x->down);
        for (uint32_t k = 0; k < f->m->hp.n_embd; k++) {
            ((float *)l->w[ATTN_NORM].data)[k] =
                ldexpf(layer_vector(l, ATTN_NORM)[k], x->attn_norm);
            ((float *)l->w[FFN_NORM].data)[k] = ldexpf(layer_vector(l, FFN_NORM)[k], x->ffn_norm);
        }
    }
}

static void agrees_with_cpu(const struct fixture *f, const char *what, enum kv_type type)
{
    static const size_t chunks[] = {30, 8, 3, 2, 1, 1};
    const struct engine_params p = {
        .n_ctx = N_CTX, .n_batch = 32, .type_k = type, .type_v = type, .n_threads = 1};
    struct error err = {0};
    struct engine *cpu = cpu_engine_open(f->m, &p, &err), *e = open_engine(f->m, type);
    assert_non_null(cpu);
    float got[TINY_VOCAB], want[TINY_VOCAB];
    double worst = 0, size = 0;
    size_t at = 0;
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; at += chunks[c++]) {
        eval(e, f->tokens + at, chunks[c], LOGITS_ALL);
        eval(cpu, f->tokens + at, chunks[c], LOGITS_ALL);
        for (size_t i = 0; i < chunks[c]; i++) {
            if (!one_logits(e, i, got, &err) || !one_logits(cpu, i, want, &err))
                fail_msg("%s: %s", what, err.text);
            for (int k = 0; k < TINY_VOCAB; k++) {
                worst = further(worst, fabs(got[k] - want[k]));
                size = fmax(size, fabs(want[k]));
            }
        }
    }
    print_message("# %s, %s cache: off by %.5g of logits up to %.5g\n", what,
                  type == KV_F16 ? "f16" : "q8_0", worst, size);
    assert_true(size > 0);
    assert_true(worst < (type == KV_F16 ? 0.004 : 0.03) * size);
    one_close(cpu);
    one_close(e);
}

static void any_magnitude_gives_what_the_cpu_engine_gives(void **state)
{
    (void)state;
    static const struct magnitudes all[] = {
        {.what = "nothing scaled"},
        {.what = "SwiGLU times 2^18", .up = 18, .down = -18},
        {.what = "SwiGLU times 2^30", .up = 30, .down = -30},
        {.what = "SwiGLU times 2^-18", .up = -18, .down = 18},
        {.what = "values times 2^18", .v = 18, .o = -18},
        {.what = "values times 2^-18", .v = -18, .o = 18},
        {.what = "keys times 2^18", .k = 18, .q = -18},
        {.what = "queries times 2^18", .k = -18, .q = 18},
        {.what = "normalised times 2^17",
         .attn_norm = 17,
         .q = -17,
         .k = -17,
         .v = -17,
         .ffn_norm = 17,
         .gate = -17,
         .up = -17},
        {.what = "normalised times 2^-20",
         .attn_norm = -20,
         .q = 20,
         .k = 20,
         .v = 20,
         .ffn_norm = -20,
         .gate = 20,
         .up = 20},
        {.what = "residuals times 2^17", .embd = 17, .o = 17, .down = 17},
        {.what = "residuals times 2^-17", .embd = -17, .o = -17, .down = -17},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct fixture f;
        open_model_of(&f, QUANT_BF16, QUANT_BF16);
        scale_model(&f, &all[i]);
        agrees_with_cpu(&f, all[i].what, KV_F16);
        if (all[i].k > 0 || all[i].v > 0)
            agrees_with_cpu(&f, all[i].what, KV_Q8_0);
        close_model(&f);
    }
    // weights beyond float16 that are quantised
    const struct magnitudes big = {.up = 18, .down = -18};
    struct fixture f;
    open_model_of(&f, QUANT_Q8_0, QUANT_BF16);
    scale_model(&f, &big);
    agrees_with_cpu(&f, "Q8_0 times 2^18", KV_F16);
    close_model(&f);
}

// The last expert's inner values times 2^n, which its down undoes: the matrices of a stack become
// float16 with one scale.
static void experts_of_any_magnitude_give_what_the_cpu_engine_gives(void **state)
{
    (void)state;
    static const uint32_t bf16s[] = {QUANT_BF16, QUANT_BF16, QUANT_BF16},
                          q8s[] = {QUANT_Q8_0, QUANT_Q8_0, QUANT_BF16};
    static const struct {
        const char *what;
        const uint32_t *types;
        int n;
    } all[] = {
        {"experts of MXFP4", MXFP4S, 0},    {"mixed experts", MIXED, 0},
        {"plain experts", PLAIN, 0},        {"an expert times 2^18", bf16s, 18},
        {"an expert of 2^-18", bf16s, -18}, {"an expert of Q8_0 times 2^18", q8s, 18},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct fixture f;
        open_model_of(&f, QUANT_BF16, QUANT_BF16);
        for (uint32_t k = 0; k < f.m->hp.n_layer; k++) {
            const struct layer *l = add_experts(f.m, k, all[i].types, 4, 2, 32, k ? 24 : 0);
            for (int up = 0; up < 2 && all[i].n; up++) {
                struct weight w = l->w[up ? EXPERT_UP : EXPERT_DOWN];
                w.data = (const unsigned char *)w.data + 3 * w.stack_bytes;
                w.n_bytes = w.stack_bytes;
                shift(&w, up ? all[i].n : -all[i].n);
            }
        }
        agrees_with_cpu(&f, all[i].what, KV_F16);
        close_model(&f);
    }
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_weights_that_give_no_number_are_named),
        cmocka_unit_test(a_layer_without_a_feed_forward_network_is_named),
        cmocka_unit_test(the_embedding_and_the_head_are_named),
        cmocka_unit_test(any_magnitude_gives_what_the_cpu_engine_gives),
        cmocka_unit_test(experts_of_any_magnitude_give_what_the_cpu_engine_gives),
    };
    return RUN_TESTS("numbers", tests);
}
