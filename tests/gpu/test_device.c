// Machines that are not as one wishes: no GPU, no driver or an old one, no code for the GPU, no
// cuBLAS, little shared memory. On the emulation only, which plays them.
#include "../unit/test.h"

#include <math.h>

#include "engine/device.h"
#include "tiny_engine.h"

static const struct engine_backend cpu = {.plan = cpu_engine_plan, .open = cpu_engine_open};
static const struct engine_backend cuda = {.count = cuda_device_count,
                                           .usable = cuda_device_usable,
                                           .plan = cuda_engine_plan,
                                           .open = cuda_engine_open,
                                           .begin = cuda_device_begin,
                                           .end = cuda_device_end};

static void a_device_that_cannot_be_used_is_said_and_never_taken(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *capability, *text;
        bool no_gpu;
    } faults[] = {
        {"no-device", "9.0", "the driver finds no NVIDIA GPU", true},
        {"no-driver", "9.0", "no NVIDIA driver is installed", true},
        {"old-driver", "9.0", "the NVIDIA driver knows CUDA 12.2 and this hokku needs 13.0", false},
        {"no-code", "8.6", "-Dgpu_arch=sm_86", false},
        {"", "7.5", "compute capability 7.5, expected at least 8.0", false},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct device_choice d;
        struct error err = {0};
        setenv("HOKKU_EMU_MACHINE", faults[i].machine, 1);
        setenv("HOKKU_EMU_CAPABILITY", faults[i].capability, 1);
        device_begin("auto", &cuda); // which says nothing, and changes nothing
        assert_true(device_choose("auto", &cpu, &cuda, &d, &err));
        assert_ptr_equal(d.backend, &cpu);
        assert_int_equal(d.no_gpu, faults[i].no_gpu);
        assert_string_equal(faults[i].no_gpu ? d.note : strrchr(d.note, ':'),
                            faults[i].no_gpu ? "no NVIDIA GPU: running on the CPU"
                                             : ": running on the CPU");
        assert_true(faults[i].no_gpu || strstr(d.note, faults[i].text));
        assert_int_equal(device_note_due(&d, false, false), !faults[i].no_gpu);
        assert_true(device_note_due(&d, true, false) && device_note_due(&d, false, true));

        assert_false(device_choose("cuda:0", &cpu, &cuda, &d, &err));
        assert_int_equal(err.code, ERR_FAIL);
        if (!strstr(err.text, faults[i].text))
            fail_msg("%s: %s", faults[i].machine, err.text);
        struct fixture f;
        struct engine_params p = {.n_ctx = N_CTX};
        open_model(&f, "llama");
        err = (struct error){0};
        assert_null(cuda_engine_open(f.m, &p, &err));
        if (!strstr(err.text, faults[i].text))
            fail_msg("%s: %s", faults[i].machine, err.text);
        close_model(&f);
    }
    unsetenv("HOKKU_EMU_MACHINE");
    unsetenv("HOKKU_EMU_CAPABILITY");
    struct device_choice d;
    struct error err = {0};
    assert_true(device_choose("auto", &cpu, &cuda, &d, &err));
    assert_ptr_equal(d.backend, &cuda);
    assert_string_equal(d.note, "");
}

// All matrices of one type, feed-forward n_ff wide.
static void open_plain(struct fixture *f, uint32_t type, uint32_t n_ff)
{
    struct tiny t;
    struct buf b = {0};
    struct error err = {0};
    const struct {
        const char *name;
        uint32_t n_cols, rows;
    } all[] = {{"attn_q", TINY_EMBD, TINY_EMBD},
               {"attn_k", TINY_EMBD, TINY_EMBD / TINY_HEADS * TINY_KV},
               {"attn_v", TINY_EMBD, TINY_EMBD / TINY_HEADS * TINY_KV},
               {"attn_output", TINY_EMBD, TINY_EMBD},
               {"ffn_gate", TINY_EMBD, n_ff},
               {"ffn_up", TINY_EMBD, n_ff},
               {"ffn_down", n_ff, TINY_EMBD}};
    tiny_init(&t, "llama");
    tiny_u32(&t, "llama.feed_forward_length", n_ff);
    for (int l = 0; l < TINY_LAYERS; l++)
        for (int k = 0; k < 7; k++) {
            char name[96];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, all[k].name);
            tiny_tensor(&t, name, type, all[k].n_cols, all[k].rows);
        }
    t.weight = 0.03f;
    tiny_write(&t, &b);
    tiny_release(&t);
    assert_false(b.failed);
    f->block = b.data;
    struct gguf *g = gguf_open_memory(b.data, b.len, "tiny.gguf", &err);
    f->m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!f->m)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < f->m->hp.n_layer; i++) {
        for (size_t j = 0; j < N_LAYER_WEIGHTS; j++)
            if (!f->m->layers[i].w[j].vector)
                fill(&f->m->layers[i].w[j], 20 * (i + 1) + j);
    }
    fill(&f->m->tok_embd, 1);
    for (int i = 0; i < N_TOKENS; i++)
        f->tokens[i] = (int32_t)(rng_u64(7, (uint64_t)i, 0) % TINY_VOCAB);
}

// The logits after the tokens, in chunks; false: *err says why not.
static bool logits_of(const struct fixture *f, bool on_gpu, const size_t *chunks, float *out,
                      struct error *err)
{
    const struct engine_params p = {.n_ctx = N_CTX, .n_batch = 40, .n_threads = 1};
    struct engine *e = on_gpu ? cuda_engine_open(f->m, &p, err) : cpu_engine_open(f->m, &p, err);
    bool ok = e != NULL;
    for (size_t at = 0; ok && *chunks; at += *chunks++)
        ok = one_eval(e, f->tokens + at, *chunks, LOGITS_LAST, err);
    ok = ok && one_logits(e, 0, out, err);
    one_close(e);
    return ok;
}

static void cublas_is_needed_by_nobody_but_who_multiplies_with_it(void **state)
{
    (void)state;
    static const size_t many[] = {33, 1, 0}, few[] = {2, 1, 1, 0}, up_to_few[] = {25, 32, 1, 0};
    float logits[TINY_VOCAB];
    struct fixture f;
    setenv("HOKKU_EMU_MACHINE", "no-cublas", 1);
    for (int i = 0; i < 3; i++) { // Hopper; one before it; float32 weights
        struct error err = {0};
        setenv("HOKKU_EMU_CAPABILITY", i == 1 ? "8.0" : "9.0", 1);
        open_plain(&f, i == 2 ? QUANT_F32 : QUANT_F16, 64);
        if (!logits_of(&f, true, i == 2 ? few : up_to_few, logits, &err))
            fail_msg("%s", err.text);
        bool ok = logits_of(&f, true, many, logits, &err);
        if (ok != (i == 0))
            fail_msg("case %d: %s", i, err.text);
        if (!ok && !strstr(err.text, "cuBLAS could not be started: libcublas.so"))
            fail_msg("%s", err.text);
        close_model(&f);
    }
    unsetenv("HOKKU_EMU_MACHINE");
    unsetenv("HOKKU_EMU_CAPABILITY");
}

static void a_row_wider_than_shared_memory_is_multiplied_all_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *capability;
        uint32_t type, n_ff;
    } cases[] = {
        {"8.6", QUANT_F16, 27001}, {"12.0", QUANT_BF16, 25343}, {"8.9", QUANT_Q8_0, 45056},
        {"8.0", QUANT_F16, 43001}, {"9.0", QUANT_F32, 59999},
    };
    static const size_t chunks[] = {3, 1, 1, 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float want[TINY_VOCAB], got[TINY_VOCAB];
        struct fixture f;
        struct error err = {0};
        open_plain(&f, cases[i].type, cases[i].n_ff);
        setenv("HOKKU_EMU_CAPABILITY", cases[i].capability, 1);
        if (!logits_of(&f, false, chunks, want, &err) || !logits_of(&f, true, chunks, got, &err))
            fail_msg("%s, %u: %s", cases[i].capability, cases[i].n_ff, err.text);
        for (int k = 0; k < TINY_VOCAB; k++)
            if (!(fabsf(got[k] - want[k]) <= 0.02f * (1.0f + fabsf(want[k]))))
                fail_msg("%s, %u: logit %d is %g, expected %g", cases[i].capability, cases[i].n_ff,
                         k, got[k], want[k]);
        close_model(&f);
    }
    unsetenv("HOKKU_EMU_CAPABILITY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_cannot_be_used_is_said_and_never_taken),
        cmocka_unit_test(cublas_is_needed_by_nobody_but_who_multiplies_with_it),
        cmocka_unit_test(a_row_wider_than_shared_memory_is_multiplied_all_the_same),
    };
    return RUN_TESTS("device", tests);
}
