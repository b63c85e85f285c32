// An engine's profile: the kernels of a token, of a pass and of a chunk, with what each reads and
// computes. Structure, names and sums; no times, which are bench's to measure and nobody's to test.
// `test_profile cuda` (the default) or cpu.
#include "../unit/test.h"

#include <math.h>

#include "tiny_latent.h"

#include "engine/profile.h"

#ifdef HOKKU_CUDA_ON_CPU
uint64_t emu_kernels_run(void);
#endif

enum { N_BATCH = 48, N_PAST = 11, CHUNK = 40, MAX_TRAFFIC = 64 };

static struct engine *open_engine(const struct model *m, const struct cancel *cancel)
{
    const struct engine_params p = {
        .n_ctx = N_CTX, .n_batch = N_BATCH, .n_threads = 1, .cancel = cancel};
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

static void profile(struct engine *e, const int32_t *tokens, size_t n, struct engine_profile *p)
{
    struct error err = {0};
    if (!one_profile(e, tokens, n, 3, p, &err))
        fail_msg("%s", err.text);
}

static const struct engine_kernel *row(const struct engine_profile *p, const char *kernel,
                                       const char *what)
{
    const struct engine_kernel *found = NULL;
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->rows[i].kernel, kernel) == 0 && strcmp(p->rows[i].what, what) == 0) {
            assert_null(found); // each pair once
            found = &p->rows[i];
        }
    return found;
}

static uint32_t launches(const struct engine_profile *p, const char *kernel)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !kernel || strcmp(p->rows[i].kernel, kernel) == 0 ? p->rows[i].n_launch : 0;
    return n;
}

// ---- the engine's own table

static void launches_become_medians_and_sums(void **state)
{
    (void)state;
    const struct profile_launch l[] = {{"a", "x"}, {"b", "x"}, {"a", "x"}, {"a", "y"}};
    // three runs; a of x: 1 3, 2 9, 4 5 -> each 3.5, totals 4 11 9
    const double s[] = {1, 10, 3, 7, 2, 30, 9, 7, 4, 20, 5, 7};
    struct engine_profile p = {0};
    struct error err = {0};
    assert_true(profile_rows(l, 4, 3, s, &p, &err));
    assert_int_equal(p.n, 3);
    const struct engine_kernel *ax = row(&p, "a", "x");
    assert_ptr_equal(ax, &p.rows[0]);
    assert_int_equal(ax->n_launch, 2);
    assert_true(ax->each == 3.5 && ax->total == 9);
    assert_true(row(&p, "b", "x")->total == 20 && row(&p, "a", "y")->total == 7);
    assert_true(p.sum == 36);

    const char *const beside[] = {"b", NULL};
    assert_ptr_equal(profile_reader(&p, "x", beside), ax);
    assert_null(profile_reader(&p, "x", beside + 1)); // a or b
    assert_null(profile_reader(&p, "z", beside));
    assert_true(profile_names("attn_q+attn_k", "attn_k") && profile_names("attn_q", "attn_q"));
    assert_false(profile_names("attn_q+attn_k", "attn") || profile_names("", "attn_q"));
    assert_false(profile_names("attn_output", "output"));
}

static void every_piece_of_traffic_goes_to_the_next_launch_that_names_it(void **state)
{
    (void)state;
    // two layers of x and y: the first x alone, the last y alone, y and the next x in one launch
    const struct profile_launch l[] = {{"a", "x"}, {"b", "x"}, {"a", "y+x"}, {"a", "y"}, {"c", ""}};
    const struct engine_traffic t[] = {
        {"", "x", "", 0, 1}, {"", "y", "", 0, 20}, {"", "x", "", 0, 300}, {"", "y", "", 0, 4000}};
    const char *const beside[] = {"b", NULL};
    const double s[5] = {0};
    struct engine_profile p = {0};
    struct error err = {0};
    assert_true(profile_rows(l, 5, 1, s, &p, &err) && profile_bytes(&p, l, 5, beside, t, 4, &err));
    assert_int_equal(row(&p, "a", "x")->bytes, 1);
    assert_int_equal(row(&p, "a", "y+x")->bytes, 320);
    assert_int_equal(row(&p, "a", "y")->bytes, 4000);
    assert_true(row(&p, "b", "x")->bytes == 0 && row(&p, "c", "")->bytes == 0);

    // a product in two launches a layer
    const struct profile_launch two[] = {{"a", "x+y"}, {"a", "x+y"}, {"a", "x+y"}, {"a", "x+y"}};
    assert_true(profile_rows(two, 4, 1, s, &p, &err));
    assert_true(profile_bytes(&p, two, 4, beside, t, 4, &err));
    assert_int_equal(row(&p, "a", "x+y")->bytes, 4321);
}

static void more_kinds_of_launches_than_the_table_has_is_an_error(void **state)
{
    (void)state;
    struct profile_launch l[ENGINE_MAX_KERNELS + 1];
    double s[ENGINE_MAX_KERNELS + 1] = {0};
    char names[ENGINE_MAX_KERNELS + 1][8];
    struct engine_profile p;
    struct error err = {0};
    for (int i = 0; i <= ENGINE_MAX_KERNELS; i++) {
        snprintf(names[i], sizeof names[i], "k%d", i);
        l[i] = (struct profile_launch){names[i], ""};
    }
    assert_true(profile_rows(l, ENGINE_MAX_KERNELS, 1, s, &p, &err));
    assert_false(profile_rows(l, ENGINE_MAX_KERNELS + 1, 1, s, &p, &err));
}

static void check_table(const struct engine_profile *p)
{
    double sum = 0;
    assert_true(p->n > 0 && *p->how);
    for (size_t i = 0; i < p->n; i++) {
        const struct engine_kernel *k = &p->rows[i];
        assert_non_null(row(p, k->kernel, k->what));
        assert_true(k->n_launch > 0 && k->each >= 0 && k->total >= 0 && isfinite(k->total));
        sum += k->total;
    }
    assert_true(fabs(sum - p->sum) <= 1e-9 * sum);
    assert_true(p->nothing >= 0);
}

static void a_token_is_told_apart_by_what_it_reads(void **state)
{
    (void)state;
    static const char *const on_gpu[][2] = {
        {"embed", "token_embd"},       {"matvec", "attn_q+attn_k+attn_v"},
        {"attention_decode", "kv"},    {"matvec", "attn_output"},
        {"matvec", "ffn_gate+ffn_up"}, {"matvec", "ffn_down"},
        {"matvec", "output"},          {"sampler", "logits"},
    };
    static const char *const on_cpu[][2] = {
        {"embed", "token_embd"},       {"matmul", "attn_q+attn_k+attn_v"},
        {"attention", "kv"},           {"matmul", "attn_output"},
        {"matmul", "ffn_gate+ffn_up"}, {"matmul", "ffn_down"},
        {"matmul", "output"},          {"sampler", "logits"},
    };
    const char *const(*want)[2] = on_cuda ? on_gpu : on_cpu;
    struct fixture f;
    struct engine_profile p;
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, NULL);
    eval(e, f.tokens, N_PAST, LOGITS_NONE);
    profile(e, f.tokens + N_PAST, 1, &p);
    check_table(&p);
    for (size_t i = 0; i < sizeof on_gpu / sizeof *on_gpu; i++)
        if (!row(&p, want[i][0], want[i][1]))
            fail_msg("no row for %s of %s", want[i][0], want[i][1]);
    assert_int_equal(row(&p, want[2][0], "kv")->n_launch, TINY_LAYERS);
    assert_int_equal(row(&p, want[6][0], "output")->n_launch, 1);

    // all bytes, and a row's own
    uint64_t needed = 0, down = 0, bytes = 0;
    if (on_cuda) {
        struct engine_traffic t[MAX_TRAFFIC];
        size_t n = cuda_plan_traffic(f.m, KV_F16, KV_F16, N_PAST, t, MAX_TRAFFIC);
        for (size_t i = 0; i < n; i++) {
            needed += t[i].needed;
            down += strcmp(t[i].weight, "ffn_down") == 0 ? t[i].needed : 0;
        }
    } else { // what every matrix takes in the file, the cache with this token, and the logits
        const size_t norms = (2 * TINY_LAYERS + 1) * TINY_EMBD * sizeof(float);
        eval(e, f.tokens + N_PAST, 1, LOGITS_NONE);
        needed = model_bytes_per_token(f.m) - norms + engine_kv_bytes(e, 0, one_past(e)) +
                 TINY_VOCAB * sizeof(float);
        for (int i = 0; i < TINY_LAYERS; i++)
            down += f.m->layers[i].w[FFN_DOWN].n_bytes;
    }
    for (size_t i = 0; i < p.n; i++) {
        bytes += p.rows[i].bytes;
        assert_true(p.rows[i].flops == 0);
    }
    assert_int_equal(row(&p, want[5][0], "ffn_down")->bytes, down);
    assert_int_equal(bytes, needed);
    one_close(e);
    close_model(&f);
}

static void a_token_tells_its_state_spaces(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    open_state_space(&f);
    struct engine *e = open_engine(f.m, NULL);
    eval(e, f.tokens, N_PAST, LOGITS_NONE);
    profile(e, f.tokens + N_PAST, 1, &p);
    check_table(&p);
    const struct layer *l = &f.m->layers[0];
    const struct engine_kernel *scan = row(&p, on_cuda ? "ssm" : "scan", "state");
    const struct engine_kernel *in = row(&p, on_cuda ? "matvec" : "matmul", "ssm_in");
    const struct engine_kernel *out = row(&p, on_cuda ? "matvec" : "matmul", "ssm_out");
    assert_true(scan && in && out && row(&p, on_cuda ? "attention_decode" : "attention", "kv"));
    assert_int_equal(scan->n_launch, TINY_LAYERS);
    assert_int_equal(scan->bytes, 2 * TINY_LAYERS * layer_state_size(l) * sizeof(float));
    assert_true(in->bytes >= TINY_LAYERS * l->w[SSM_IN].n_bytes);
    assert_true(out->bytes >= TINY_LAYERS * l->w[SSM_OUT].n_bytes);
    if (on_cuda) { // all that is read has a launch that reads it
        struct engine_traffic t[MAX_TRAFFIC];
        const size_t n = cuda_plan_traffic(f.m, KV_F16, KV_F16, N_PAST, t, MAX_TRAFFIC);
        uint64_t needed = 0, bytes = 0;
        for (size_t i = 0; i < n; i++)
            needed += t[i].needed;
        for (size_t i = 0; i < p.n; i++)
            bytes += p.rows[i].bytes;
        assert_int_equal(bytes, needed);
    }
    one_close(e);
    close_model(&f);
}

static void a_chunk_tells_its_operations(void **state)
{
    (void)state;
    enum { E = TINY_EMBD, F = TINY_FF };
    struct fixture f;
    struct engine_profile p;
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, NULL);
    eval(e, f.tokens, N_PAST, LOGITS_NONE);
    profile(e, f.tokens + N_PAST, CHUNK, &p);
    check_table(&p);
    bool hopper = launches(&p, "gemm_hopper") > 0;
    const char *product = !on_cuda ? "matmul" : hopper ? "gemm_hopper" : "cublas";
    const double each = 2.0 * CHUNK * TINY_LAYERS;
    const struct engine_kernel *out = row(&p, product, "attn_output");
    const struct engine_kernel *down = row(&p, product, "ffn_down");
    const struct engine_kernel *att = row(&p, on_cuda ? "attention_prefill" : "attention", "kv");
    assert_true(out && down && att && row(&p, on_cuda ? "rotate_store" : "rotate", "kv"));
    assert_true(out->flops == each * E * E);
    assert_true(down->flops == each * E * F);
    assert_true(row(&p, on_cuda ? "matvec" : "matmul", "output")->flops ==
                2.0 * E * TINY_VOCAB); // one row of logits
    double seen = 0;
    for (int i = 0; i < CHUNK; i++)
        seen += N_PAST + i + 1;
    assert_true(att->flops == 4 * seen * E * TINY_LAYERS);
    for (size_t i = 0; i < p.n; i++)
        assert_int_equal(p.rows[i].bytes, 0);
    assert_true(
        row(&p, on_cuda ? "act" : "norm", on_cuda ? "attn_q+attn_k+attn_v" : "attn_norm")->flops ==
        0);
    one_close(e);
    close_model(&f);
}

// ---- a pass of several sequences

enum { N_SEQ = 3, PASS_CTX = N_SEQ * 256 }; // a block of the pool for each on either device

// Each has N_PAST tokens of its own evaluated, and one more.
static struct engine *open_pass(const struct model *m, const int32_t *tokens, bool exact,
                                struct seq **s)
{
    const struct engine_params p = {
        .n_ctx = PASS_CTX, .n_batch = N_BATCH, .n_seqs = N_SEQ, .n_threads = 1, .exact = exact};
    struct error err = {0};
    struct engine *e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < N_SEQ; i++) {
        struct work w = {.ids = tokens + i, .n = N_PAST};
        struct sampler_settings set = sampler_defaults;
        set.seed = i;
        assert_non_null(w.seq = s[i] = seq_open(e, 64, &err));
        assert_true(seq_sampling(s[i], &(struct sampling){.sampler = &set}, &err));
        assert_true(engine_submit(e, &w, 1, NULL, NULL, &err));
        assert_true(seq_append(s[i], tokens + 30 + i, 1, &err));
    }
    return e;
}

static void close_pass(struct engine *e, struct seq **s)
{
    for (size_t i = 0; i < N_SEQ; i++)
        seq_free(s[i]);
    engine_free(e);
}

// The next token of the first n sequences, in one pass: ids (n).
static void one_pass(struct engine *e, struct seq **s, size_t n, int32_t *ids)
{
    struct work w[N_SEQ];
    struct decoded d[N_SEQ];
    struct error err = {0};
    uint64_t ticket;
    for (size_t i = 0; i < n; i++)
        w[i] = (struct work){.seq = s[i], .n = 1, .n_pick = 1};
    if (!engine_submit(e, w, n, NULL, &ticket, &err) || !engine_wait(e, ticket, NULL, d, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        ids[i] = d[i].id;
}

// An engine with N_SEQ sequences, s, and what a pass of them does.
static struct engine *profiled_pass(const struct fixture *f, struct seq **s,
                                    struct engine_profile *p)
{
    struct error err = {0};
    struct engine *e = open_pass(f->m, f->tokens, false, s);
    if (!engine_profile_pass(e, s, N_SEQ, 2, NULL, p, &err))
        fail_msg("%s", err.text);
    check_table(p);
    return e;
}

static void a_pass_of_several_is_told_apart_by_what_it_reads(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct seq *s[N_SEQ];
    int32_t before[N_SEQ], after[N_SEQ];
    uint64_t down = 0;
    open_model(&f, "llama");
    for (int i = 0; i < TINY_LAYERS; i++) // once for all
        down += f.m->layers[i].w[FFN_DOWN].n_bytes;
    if (on_cuda) // and, as of a token, a vector in and out
        down += TINY_LAYERS * (TINY_FF + TINY_EMBD) * sizeof(float);

    struct engine *e = open_pass(f.m, f.tokens, false, s);
    one_pass(e, s, N_SEQ, before);
    close_pass(e, s);
    e = profiled_pass(&f, s, &p);
    const struct engine_kernel *kv = row(&p, on_cuda ? "attention_decode" : "attention", "kv");
    const struct engine_kernel *pick = row(&p, on_cuda ? "sampler_rows" : "sampler", "logits");
    const struct engine_kernel *last = row(&p, on_cuda ? "gemm_few" : "matmul", "ffn_down");
    assert_true(kv && pick && last);
    assert_int_equal(kv->bytes, N_SEQ * engine_kv_bytes(e, 0, N_PAST + 1));
    assert_int_equal(pick->bytes, N_SEQ * TINY_VOCAB * sizeof(float));
    assert_int_equal(pick->n_launch, on_cuda ? 1 : N_SEQ);
    assert_int_equal(last->bytes, down);

    // nothing has moved on
    for (size_t i = 0; i < N_SEQ; i++)
        assert_true(seq_len(s[i]) == N_PAST + 1 && seq_n_past(s[i]) == N_PAST);
#ifdef HOKKU_CUDA_ON_CPU
    const uint64_t ran = emu_kernels_run();
#endif
    one_pass(e, s, N_SEQ, after);
    assert_memory_equal(before, after, sizeof before);
#ifdef HOKKU_CUDA_ON_CPU
    if (on_cuda)
        assert_int_equal(launches(&p, NULL), emu_kernels_run() - ran);
#endif
    close_pass(e, s);
    close_model(&f);
}

// As other matrices, and not as those of experts, of which nobody knows who chooses them.
static void a_pass_reads_the_matrices_of_heads_once(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct seq *s[N_SEQ];
    uint64_t want = 0;
    if (!on_cuda)
        return;
    open_model(&f, "llama");
    add_latents(f.m, true);
    for (int i = 0; i < TINY_LAYERS; i++) { // and, as of a token, vectors in and out
        const struct weight *w = &f.m->layers[i].w[ATTN_V_B];
        want += w->n_bytes + w->n_stacked * (w->n_cols + w->rows) * sizeof(float);
    }
    struct engine *e = profiled_pass(&f, s, &p);
    const struct engine_kernel *kv = row(&p, "attention_wide", "kv");
    const struct engine_kernel *heads = row(&p, "expert_tiles", "attn_v_b");
    assert_true(kv && heads);
    assert_int_equal(kv->n_launch, TINY_LAYERS); // one for all sequences
    assert_int_equal(kv->bytes, N_SEQ * engine_kv_bytes(e, 0, N_PAST + 1));
    assert_int_equal(heads->n_launch, TINY_LAYERS);
    assert_int_equal(heads->bytes, want);
    close_pass(e, s);
    close_model(&f);
}

// A router is read by its product, and not by who chooses after it.
static void a_pass_reads_a_router_once(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct seq *s[N_SEQ];
    uint64_t want = 0;
    if (!on_cuda)
        return;
    open_model(&f, "llama");
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        struct weight *w = &add_experts(f.m, i, MXFP4S, 6, 2, 32, 0)->w[ROUTER];
        w->name = w->group = "router";
        want += w->n_bytes + (w->n_cols + w->rows) * sizeof(float); // and vectors, as above
    }
    struct engine *e = profiled_pass(&f, s, &p);
    const struct engine_kernel *product = row(&p, "expert_split", "router");
    const struct engine_kernel *choice = row(&p, "choose_group", "router");
    assert_true(product && choice);
    assert_int_equal(product->bytes, want);
    assert_int_equal(choice->bytes, 0);
    close_pass(e, s);
    close_model(&f);
}

// Where a pass of one sequence is made as those of several, that is what a token is.
static void a_token_of_an_engine_of_passes_is_a_pass(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct error err = {0};
    struct seq *s[N_SEQ];
    int32_t id;
    if (!on_cuda)
        return;
    open_model(&f, "llama");
    for (int exact = 0; exact < 2; exact++) {
        struct engine *e = open_pass(f.m, f.tokens, exact, s);
        one_pass(e, s, 1, &id);
        seq_trim(s[0], N_PAST + 1);
        assert_true(engine_profile(s[0], &id, 1, 2, NULL, &p, &err));
        check_table(&p);
        assert_true(row(&p, "gemm_few", "ffn_down") && row(&p, "sampler_rows", "logits"));
        assert_null(row(&p, "matvec", "ffn_down"));
        assert_true(engine_profile(s[0], f.tokens, CHUNK, 2, NULL, &p, &err));
        check_table(&p);
        assert_int_equal(launches(&p, "attention_decode") > 0, exact);
        assert_int_equal(seq_n_past(s[0]), N_PAST + 1);
        close_pass(e, s);
    }
    close_model(&f);
}

static void a_pass_that_cannot_be_profiled_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct error err = {0};
    struct seq *s[N_SEQ];
    struct cancel cancel = {0};
    open_model(&f, "llama");
    struct engine *e = open_pass(f.m, f.tokens, false, s);
    assert_false(engine_profile_pass(e, s, 1, 2, NULL, &p, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_false(engine_profile_pass(e, s, N_SEQ, 0, NULL, &p, &err));
    seq_trim(s[1], N_PAST);
    assert_false(engine_profile_pass(e, s, N_SEQ, 2, NULL, &p, &err));
    assert_non_null(strstr(err.text, "expected all but one"));
    assert_true(seq_append(s[1], f.tokens, 1, &err));
    cancel_ask(&cancel);
    assert_false(engine_profile_pass(e, s, N_SEQ, 2, &cancel, &p, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    if (!engine_profile_pass(e, s, N_SEQ, 2, NULL, &p, &err))
        fail_msg("%s", err.text);
    close_pass(e, s);
    close_model(&f);
}

// Every launch is in the table: the same evaluation without the recorder runs as many kernels.
static void no_launch_is_missing(void **state)
{
    (void)state;
#ifdef HOKKU_CUDA_ON_CPU
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    static const size_t sizes[] = {1, 2, 9, CHUNK};
    if (!on_cuda)
        return;
    for (size_t a = 0; a <= 3; a++) {
        struct fixture f;
        struct engine_profile p;
        if (a < 3)
            open_model(&f, archs[a]);
        else
            open_state_space(&f);
        struct engine *e = open_engine(f.m, NULL);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            one_trim(e, 0);
            eval(e, f.tokens, N_PAST, LOGITS_NONE);
            profile(e, f.tokens + N_PAST, sizes[i], &p);
            uint64_t before = emu_kernels_run();
            eval(e, f.tokens + N_PAST, sizes[i], LOGITS_LAST);
            // cuBLAS is no kernel of the emulation, and only a decoded token is sampled
            uint32_t n = launches(&p, NULL) - launches(&p, "cublas") - launches(&p, "sampler");
            assert_int_equal(n, emu_kernels_run() - before);
            assert_int_equal(launches(&p, "sampler"), sizes[i] == 1);
        }
        one_close(e);
        close_model(&f);
    }
#endif
}

static void a_profile_leaves_the_timeline_as_it_was(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct error err = {0};
    float before[TINY_VOCAB], after[TINY_VOCAB];
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, NULL);
    eval(e, f.tokens, N_PAST, LOGITS_NONE);
    eval(e, f.tokens + N_PAST, 1, LOGITS_LAST);
    assert_true(one_logits(e, 0, before, &err));
    profile(e, f.tokens + 20, 1, &p);
    profile(e, f.tokens + 20, CHUNK, &p);
    assert_int_equal(one_past(e), N_PAST + 1);
    const struct one_params d = {.sampler = &sampler_defaults, .max_tokens = 1};
    assert_false(one_start(e, &d, &err)); // those logits are gone
    one_trim(e, N_PAST);
    eval(e, f.tokens + N_PAST, 1, LOGITS_LAST);
    assert_true(one_logits(e, 0, after, &err));
    assert_memory_equal(before, after, sizeof before);
    // and decoding works as ever
    struct decoded one;
    assert_true(one_start(e, &d, &err));
    assert_true(one_next(e, &one, &err));
    one_stop(e, N_PAST + 1);
    one_close(e);
    close_model(&f);
}

static void what_cannot_be_profiled_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_profile p;
    struct error err = {0};
    struct cancel cancel = {0};
    open_model(&f, "llama");
    struct engine *e = open_engine(f.m, &cancel);
    one_cancel = &cancel;
    eval(e, f.tokens, 40, LOGITS_NONE);
    assert_false(one_profile(e, f.tokens, N_BATCH + 1, 3, &p, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_false(one_profile(e, f.tokens, 0, 3, &p, &err));
    assert_false(one_profile(e, f.tokens, 1, 0, &p, &err));
    assert_false(one_profile(e, f.tokens, 25, 3, &p, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    const int32_t wrong = TINY_VOCAB;
    assert_false(one_profile(e, &wrong, 1, 3, &p, &err));
    cancel_ask(&cancel);
    assert_false(one_profile(e, f.tokens, 8, 3, &p, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_false(one_profile(e, f.tokens, 1, 3, &p, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    cancel_clear(&cancel);
    assert_int_equal(one_past(e), 40);
    profile(e, f.tokens, 24, &p); // to the last position
    one_close(e);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_become_medians_and_sums),
        cmocka_unit_test(every_piece_of_traffic_goes_to_the_next_launch_that_names_it),
        cmocka_unit_test(more_kinds_of_launches_than_the_table_has_is_an_error),
        cmocka_unit_test(a_token_is_told_apart_by_what_it_reads),
        cmocka_unit_test(a_token_tells_its_state_spaces),
        cmocka_unit_test(a_chunk_tells_its_operations),
        cmocka_unit_test(a_pass_of_several_is_told_apart_by_what_it_reads),
        cmocka_unit_test(a_pass_reads_the_matrices_of_heads_once),
        cmocka_unit_test(a_pass_reads_a_router_once),
        cmocka_unit_test(a_token_of_an_engine_of_passes_is_a_pass),
        cmocka_unit_test(a_pass_that_cannot_be_profiled_is_refused),
        cmocka_unit_test(no_launch_is_missing),
        cmocka_unit_test(a_profile_leaves_the_timeline_as_it_was),
        cmocka_unit_test(what_cannot_be_profiled_is_refused),
    };
    return RUN_TESTS("profile", tests);
}
