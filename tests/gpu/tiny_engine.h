// A small random model, whose matrices have eight different weight types, for tests of whole
// engines.
#ifndef HOKKU_TESTS_GPU_TINY_ENGINE_H
#define HOKKU_TESTS_GPU_TINY_ENGINE_H

#include "../unit/one_seq.h"
#include "../unit/tiny_model.h"
#include "engine/engine.h"
#include "random_blocks.h"

static bool on_cuda = true;

enum { N_TOKENS = 60, N_CTX = 64 };

struct fixture {
    struct model *m;
    void *block;
    int32_t tokens[N_TOKENS];
};

static void fill(const struct weight *w, uint64_t seed)
{
    if (w->data)
        random_blocks(w->type, (void *)w->data, w->n_bytes, 0.3, seed);
}

static inline void open_tiny(struct fixture *f, struct tiny *t) // releases t
{
    struct buf b = {0};
    struct error err = {0};
    t->weight = 0.03f;
    tiny_write(t, &b);
    tiny_release(t);
    assert_false(b.failed);
    f->block = b.data;
    struct gguf *g = gguf_open_memory(b.data, b.len, "tiny.gguf", &err);
    f->m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!f->m)
        fail_msg("%s", err.text);
    fill(&f->m->tok_embd, 1);
    for (uint32_t i = 0; i < f->m->hp.n_layer; i++) {
        uint64_t seed = 20 * (i + 1);
        for (size_t j = 0; j < N_LAYER_WEIGHTS; j++) {
            if ((j >= ATTN_Q_A && j <= CONV) || (j >= SSM_IN && j <= SSM_OUT) ||
                (j >= DENSE_POST_NORM && j <= SHARED_DOWN) ||
                (j >= LAUREL_L && j <= LAUREL_POST_NORM) ||
                (j >= ALTUP_ROUTER_NORM && j <= LAYER_SCALE) || j == FFN_GATE_BIAS)
                continue; // not in these models: the others' numbers stay what they were
            if (!f->m->layers[i].w[j].vector)
                fill(&f->m->layers[i].w[j], seed);
            seed++;
        }
    }
    for (int i = 0; i < N_TOKENS; i++)
        f->tokens[i] = (int32_t)(rng_u64(7, (uint64_t)i, 0) % TINY_VOCAB);
}

static inline void open_model(struct fixture *f, const char *arch)
{
    struct tiny t;
    tiny_init(&t, arch);
    open_tiny(f, &t);
}

// Attention with a state space beside it, as a file has them.
static inline void open_state_space(struct fixture *f)
{
    enum { INNER = 48, HEADS = 4, GROUPS = 2, STATE = 10, TAPS = 4 };
    enum { CHANNELS = INNER + 2 * GROUPS * STATE };
    struct tiny t;
    char k[96];
    tiny_init(&t, "falcon-h1");
    tiny_u32(&t, "falcon-h1.ssm.inner_size", INNER);
    tiny_u32(&t, "falcon-h1.ssm.time_step_rank", HEADS);
    tiny_u32(&t, "falcon-h1.ssm.group_count", GROUPS);
    tiny_u32(&t, "falcon-h1.ssm.state_size", STATE);
    tiny_u32(&t, "falcon-h1.ssm.conv_kernel", TAPS);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        char b[16];
        snprintf(b, sizeof b, "blk.%u", i);
        tiny_drop_tensor(&t, tiny_name(k, b, "ffn_norm.weight"));
        tiny_tensor(&t, tiny_name(k, b, "ffn_norm"), QUANT_F32, TINY_EMBD, 0);
        tiny_tensor(&t, tiny_name(k, b, "ssm_in.weight"), QUANT_Q8_0, TINY_EMBD,
                    INNER + CHANNELS + HEADS);
        tiny_tensor(&t, tiny_name(k, b, "ssm_conv1d.weight"), QUANT_F32, TAPS, CHANNELS);
        tiny_tensor(&t, tiny_name(k, b, "ssm_conv1d.bias"), QUANT_F32, CHANNELS, 0);
        tiny_tensor(&t, tiny_name(k, b, "ssm_dt.bias"), QUANT_F32, HEADS, 0);
        tiny_tensor(&t, tiny_name(k, b, "ssm_a"), QUANT_F32, 1, HEADS);
        tiny_tensor(&t, tiny_name(k, b, "ssm_d"), QUANT_F32, 1, HEADS);
        tiny_tensor(&t, tiny_name(k, b, "ssm_out.weight"), QUANT_F16, INNER, TINY_EMBD);
    }
    open_tiny(f, &t);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        fill(&f->m->layers[i].w[SSM_IN], 60 + i);
        fill(&f->m->layers[i].w[SSM_OUT], 70 + i);
    }
}

static void close_model(struct fixture *f)
{
    model_free(f->m);
    free(f->block);
}

static inline struct engine *try_open(const struct model *m, const struct engine_params *p,
                                      struct error *err)
{
    return on_cuda ? cuda_engine_open(m, p, err) : cpu_engine_open(m, p, err);
}

// The engine that the first argument names: cuda (the default) or cpu. False, and the report says
// so, when there is no GPU for it.
static inline bool choose_engine(int argc, char **argv)
{
    char why[256] = "";
    on_cuda = argc < 2 || strcmp(argv[1], "cuda") == 0;
    if (!on_cuda || cuda_device_count(why, sizeof why) > 0)
        return true;
    printf("1..0 # SKIP %s\n", why);
    return false;
}

#endif
