// Several sequences on one engine: each gives what it gives alone, whatever the others do. On the
// CPU engine, on a GPU, and on the emulation; a block of the cache has 64 or 256 positions there.
#include "../unit/test.h"

#include <stdlib.h>

#include "tiny_latent.h"

enum { N_IDS = 1100, N_PICK = 12, N_BATCH = 32 };

static const uint32_t Q8S[] = {QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0};
static int32_t ids[N_IDS];
static size_t block; // positions

// The CPU engine takes latents that are of one size in all layers, as files have them.
static bool has_latents(void)
{
    return on_cuda;
}

static struct engine *open_for(const struct model *m, uint32_t n_blocks, uint32_t n_seqs)
{
    struct error err = {0};
    struct engine_params p = {
        .n_ctx = 256 * n_blocks, .n_batch = N_BATCH, .n_seqs = n_seqs, .n_threads = 1};
    struct engine *e = try_open(m, &p, &err);
    assert_non_null(e);
    block = e->core->backend->kv_block;
    engine_free(e);
    p.n_ctx = (uint32_t)block * n_blocks;
    e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    assert_int_equal(e->core->pool.n_blocks, n_blocks);
    return e;
}

static struct engine *open_blocks(const struct model *m, uint32_t n_blocks)
{
    return open_for(m, n_blocks, 1);
}

static struct seq *open_seq(struct engine *e, uint64_t seed)
{
    struct error err = {0};
    struct sampler_settings set = sampler_defaults;
    set.seed = seed;
    set.temp = 1.5f;
    set.top_k = 0;
    struct seq *s = seq_open(e, 0, &err);
    assert_non_null(s);
    assert_true(seq_sampling(s, &(struct sampling){.sampler = &set}, &err));
    return s;
}

static void must_submit(struct engine *e, const struct work *w, size_t n, uint64_t *ticket)
{
    struct error err = {0};
    if (!engine_submit(e, w, n, NULL, ticket, &err))
        fail_msg("%s", err.text);
}

static int32_t must_wait(struct engine *e, uint64_t ticket)
{
    struct error err = {0};
    struct decoded d;
    if (!engine_wait(e, ticket, NULL, &d, &err))
        fail_msg("%s", err.text);
    return d.id;
}

// The prompt ids[first, first + n), then N_PICK tokens, the device ahead.
static void answer(struct seq *s, size_t first, size_t n, int32_t *out)
{
    struct engine *e = seq_engine(s);
    uint64_t ticket[N_PICK];
    size_t asked = 0;
    must_submit(e, &(struct work){s, ids + first, n, .n_pick = 1}, 1, &ticket[asked++]);
    for (size_t i = 0; i < N_PICK; i++) {
        for (; asked < N_PICK && asked <= i + ENGINE_RUN_AHEAD; asked++)
            must_submit(e, &(struct work){s, NULL, 1, .n_pick = 1}, 1, &ticket[asked]);
        out[i] = must_wait(e, ticket[i]);
    }
}

static void by_turns_they_give_what_each_gives_alone(void **state)
{
    (void)state;
    struct fixture f;
    open_model(&f, "llama");
    struct engine *e = open_blocks(f.m, 8);
    const size_t n[] = {block - 6, 20}; // one goes over the end of a block
    int32_t want[2][N_PICK], got[2][N_PICK];
    uint64_t ticket[2][N_PICK];
    for (int k = 0; k < 2; k++) {
        struct seq *s = open_seq(e, 5 + (unsigned)k);
        answer(s, 10 * (size_t)k, n[k], want[k]);
        seq_free(s);
    }
    assert_memory_not_equal(want[0], want[1], sizeof want[0]);
    // ahead: how many tokens of the one are under way when the other begins
    for (size_t ahead = 0; ahead <= ENGINE_RUN_AHEAD; ahead++) {
        struct seq *s[] = {open_seq(e, 5), open_seq(e, 6)};
        size_t asked[] = {1, 1};
        const struct work prompts[] = {{s[0], ids, n[0], .n_pick = 1}, {s[1], ids + 10, n[1]}};
        must_submit(e, prompts, 2, &ticket[0][0]);
        // waited for much later, behind the other's chunk
        must_submit(e, &(struct work){s[1], ids + 10 + n[1] - 1, 1}, 1, NULL);
        seq_trim(s[1], n[1] - 1);
        must_submit(e, &(struct work){s[1], ids + 10 + n[1] - 1, 1, .n_pick = 1}, 1, &ticket[1][0]);
        for (size_t i = 0; i < N_PICK; i++)
            for (int k = 0; k < 2; k++) {
                for (; asked[k] < N_PICK && asked[k] <= i + ahead; asked[k]++)
                    must_submit(e, &(struct work){s[k], NULL, 1, .n_pick = 1}, 1,
                                &ticket[k][asked[k]]);
                got[k][i] = must_wait(e, ticket[k][i]);
                assert_int_equal(seq_ids(s[k])[n[k] + i], got[k][i]);
                assert_int_equal(seq_len(s[k]), n[k] + i + 1);
            }
        assert_memory_equal(got, want, sizeof got);
        seq_free(s[0]);
        seq_free(s[1]);
    }
    engine_free(e);
    close_model(&f);
}

// The same prefix in the same chunks, so that all bits are to be the same on a GPU, too.
static void evaluate_as(struct seq *s, const int32_t *tokens, size_t n)
{
    for (size_t at = 0; at < n; at += N_BATCH)
        must_submit(seq_engine(s),
                    &(struct work){s, tokens + at, n - at < N_BATCH ? n - at : N_BATCH}, 1, NULL);
}

static void logits_after(struct seq *s, int32_t id, float *out)
{
    struct error err = {0};
    must_submit(seq_engine(s), &(struct work){s, &id, 1, .n_logits = 1}, 1, NULL);
    if (!seq_logits(s, 0, NULL, out, &err))
        fail_msg("%s", err.text);
}

// A fork after n tokens of a sequence that has more, before and after both write on.
static void a_fork_is_its_first_tokens_evaluated(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    float want[2][TINY_VOCAB], got[TINY_VOCAB];
    open_model(&f, "qwen3");
    struct engine *e = open_blocks(f.m, 8);
    const size_t n_whole = 2 * block + 32;
    struct seq *whole = seq_open(e, 0, &err), *fresh = seq_open(e, 0, &err);
    evaluate_as(whole, ids, n_whole);
    for (size_t end = block; end <= 2 * block; end += block)
        for (int d = -2; d <= 2; d++) {
            const size_t n = end + (size_t)d;
            seq_trim(fresh, 0);
            evaluate_as(fresh, ids, n_whole); // the chunks of the whole, then cut
            seq_trim(fresh, n);
            logits_after(fresh, 7, want[0]);
            logits_after(fresh, 9, want[1]);
            struct seq *fork = seq_fork(whole, n, &err);
            assert_non_null(fork);
            assert_int_equal(seq_n_past(fork), n);
            assert_memory_equal(seq_ids(fork), ids, n * sizeof *ids);
            struct seq *second = seq_fork(fork, n, &err); // a fork's fork, behind its back
            logits_after(fork, 7, got);
            assert_memory_equal(got, want[0], sizeof got);
            logits_after(second, 8, got); // writes where the first fork did, in its own copy
            logits_after(fork, 9, got);
            assert_memory_equal(got, want[1], sizeof got);
            seq_free(fork);
            seq_free(second);
            assert_int_equal(seq_n_past(whole), n_whole); // nor is the whole another one
        }
    seq_trim(fresh, 0);
    evaluate_as(fresh, ids, n_whole);
    logits_after(fresh, 7, want[0]);
    logits_after(whole, 7, got);
    assert_memory_equal(got, want[0], sizeof got);
    // blocks are shared: all forks of the first block together take none
    size_t used = 0, more = 0;
    struct seq *many[20];
    for (uint32_t i = 0; i < e->core->pool.n_blocks; i++)
        used += e->core->pool.n_users[i] > 0;
    for (int i = 0; i < 20; i++)
        assert_non_null(many[i] = seq_fork(whole, block, &err));
    for (uint32_t i = 0; i < e->core->pool.n_blocks; i++)
        more += e->core->pool.n_users[i] > 0;
    assert_int_equal(used, more);
    for (int i = 0; i < 20; i++)
        seq_free(many[i]);
    assert_null(seq_fork(whole, n_whole + 2, &err));
    assert_int_equal(err.code, ERR_FAIL);
    seq_free(whole);
    seq_free(fresh);
    for (uint32_t i = 0; i < e->core->pool.n_blocks; i++)
        assert_int_equal(e->core->pool.n_users[i], 0); // all given back
    engine_free(e);
    close_model(&f);
}

enum { MOST = 13, N_STEPS = 14, N_REST = 21 }; // a prompt's rest and 12 rows are more than a batch

// Sampled tokens and the bits of their probabilities, of N_STEPS steps after a prompt.
struct trace {
    int32_t id[N_STEPS];
    float logprob[N_STEPS];
};

static size_t n_prompt(size_t k)
{
    const size_t n[] = {1, block - 2, 5, 17, 2 * block + 3, 31, 2};
    return n[k % 7];
}

static struct seq *open_row(struct engine *e, size_t k)
{
    struct error err = {0};
    struct sampler_settings set = sampler_defaults;
    set.seed = k;
    set.temp = k % 3 ? 1.5f : 0;
    set.top_k = (int32_t)(k % 5) * 10;
    set.repeat_penalty = k % 4 ? 1 : 1.3f;
    struct seq *s = seq_open(e, 0, &err);
    assert_non_null(s);
    assert_true(seq_sampling(s, &(struct sampling){.sampler = &set, .n_probs = 1 + k % 3}, &err));
    // All of the prompt but its end, which comes with the others' rows.
    if (n_prompt(k) > N_REST)
        evaluate_as(s, ids + 7 * k, n_prompt(k) - N_REST);
    return s;
}

static struct work first_of(struct seq *s, size_t k)
{
    const size_t n = n_prompt(k), rest = n > N_REST ? N_REST : n;
    return (struct work){s, ids + 7 * k + n - rest, rest, .n_pick = 1};
}

static void one_pass_of_many_gives_each_what_it_has_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct trace want[MOST], got[MOST];
    uint64_t ticket;
    struct decoded d[MOST];
    for (size_t arch = 0; arch < 4; arch++) {
        if ((quick() && arch == 1) || (arch == 3 && !has_latents()))
            continue;
        open_model(&f, arch == 1 ? "qwen3" : "llama");
        if (arch == 3)
            add_latents(f.m, true);
        if (arch == 2) { // rows of several chunks, whose sums are sums of sums
            add_experts(f.m, 0, Q8S, 6, 3, 320, 24);
            add_experts(f.m, 1, MXFP4S, 16, 5, 192, 0);
        }
        struct engine *e = open_for(f.m, 40, 16);
        const size_t most = arch == 3 && quick() ? 3 : arch >= 2 ? 8 : MOST;
        assert_true(engine_max_parts(e) > 1);
        for (size_t k = 0; k < most; k++) {
            struct seq *s = open_row(e, k);
            struct work w = first_of(s, k);
            for (size_t i = 0; i < N_STEPS; i++, w = (struct work){s, NULL, 1, .n_pick = 1}) {
                must_submit(e, &w, 1, &ticket);
                assert_true(engine_wait(e, ticket, NULL, d, &err));
                want[k].id[i] = d[0].id;
                want[k].logprob[i] = d[0].logprob;
                assert_int_equal(d[0].n_top, 1 + k % 3);
            }
            seq_free(s);
        }
        // Company of every size, and of the other models the largest; prompts beside decoded rows:
        // each begins a step after the one before.
        const size_t sizes[] = {2, 3, 8, MOST};
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes && sizes[z] <= most; z++) {
            const size_t n = sizes[z];
            if ((arch > 0 || quick()) && n < most)
                continue;
            struct seq *s[MOST];
            for (size_t k = 0; k < n; k++)
                s[k] = open_row(e, k);
            for (size_t step = 0; step < n + N_STEPS; step++) {
                struct work w[MOST];
                size_t who[MOST], n_work = 0;
                for (size_t k = n; k-- > 0;) // the youngest first
                    if (step >= k && step < k + N_STEPS) {
                        who[n_work] = k;
                        w[n_work++] = step == k ? first_of(s[k], k)
                                                : (struct work){s[k], NULL, 1, .n_pick = 1};
                    }
                if (n_work == 0)
                    break;
                must_submit(e, w, n_work, &ticket);
                if (!engine_wait(e, ticket, NULL, d, &err))
                    fail_msg("%s", err.text);
                for (size_t i = 0; i < n_work; i++) {
                    const size_t k = who[i];
                    got[k].id[step - k] = d[i].id;
                    got[k].logprob[step - k] = d[i].logprob;
                    assert_int_equal(seq_len(s[k]), n_prompt(k) + step - k + 1);
                    assert_int_equal(seq_n_past(s[k]), n_prompt(k) + step - k);
                }
            }
            assert_memory_equal(got, want, n * sizeof *got);
            for (size_t k = 0; k < n; k++)
                seq_free(s[k]);
        }
        engine_free(e);
        close_model(&f);
    }
}

// The first steps of two sequences, the longer of n_past tokens: what each gets.
static void steps_of(struct engine *e, size_t n_past, size_t n_step, struct trace *out)
{
    struct seq *s[2];
    struct work w[2];
    struct decoded d[2];
    struct error err = {0};
    uint64_t ticket;
    const size_t n = 2;
    for (size_t k = 0; k < n; k++) {
        s[k] = open_seq(e, k);
        evaluate_as(s[k], ids + 7 * k, k == 0 ? n_past : n_past / 8);
        w[k] = (struct work){s[k], ids + k, 1, .n_pick = 1};
    }
    for (size_t i = 0; i < n_step; i++) {
        must_submit(e, w, n, &ticket);
        if (!engine_wait(e, ticket, NULL, d, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < n; k++) {
            out[k].id[i] = d[k].id;
            out[k].logprob[i] = d[k].logprob;
            w[k] = (struct work){s[k], NULL, 1, .n_pick = 1};
        }
    }
    for (size_t k = 0; k < n; k++)
        seq_free(s[k]);
}

// A device may keep the launches of passes that repeat: they serve positions that come later, too.
static void a_pass_that_repeats_is_the_first_of_its_kind(void **state)
{
    (void)state;
    enum { FEW = 3 }; // steps of which nothing is kept
    for (int latent = 0; latent < 1 + has_latents(); latent++) {
        struct fixture f;
        open_model(&f, "llama");
        if (latent)
            add_latents(f.m, true);
        const size_t at[] = {290, 500, 530}, n = quick() && latent ? 1 : 3;
        struct trace want[3][2] = {0}, got[3][2] = {0};
        for (size_t i = 0; i < n; i++) { // nothing repeats
            struct engine *e = open_for(f.m, 40, 4);
            steps_of(e, at[i], FEW, want[i]);
            engine_free(e);
        }
        struct engine *e = open_for(f.m, 40, 4);
        steps_of(e, at[0], 2 * FEW, got[0]);
        for (size_t i = 0; i < n; i++) {
            steps_of(e, at[i], FEW, got[i]);
            for (size_t k = 0; k < 2; k++) {
                assert_memory_equal(got[i][k].id, want[i][k].id, FEW * sizeof *got[i][k].id);
                assert_memory_equal(got[i][k].logprob, want[i][k].logprob,
                                    FEW * sizeof *got[i][k].logprob);
            }
        }
        engine_free(e);
        close_model(&f);
    }
}

// Also when it is longer than a batch, or its last piece is one token; of experts, too, and of some
// with a latent.
static void a_prompt_has_the_same_bits_however_it_is_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded want = {0}, d;
    uint64_t ticket;
    struct sampler_settings greedy = sampler_defaults;
    greedy.temp = 0;
    const struct sampling how = {.sampler = &greedy, .n_probs = 8};
    for (int arch = 0; arch < 2 + has_latents(); arch++) {
        open_model(&f, "llama");
        if (arch == 1) {
            add_experts(f.m, 0, Q8S, 6, 3, 320, 24);
            add_experts(f.m, 1, MXFP4S, 16, 5, 192, 0);
        } else if (arch == 2) {
            add_latents(f.m, true);
        }
        struct engine *e = open_for(f.m, 40, 16);
        const size_t n = 3 * N_BATCH + 5, pieces[] = {n, N_BATCH, 7, 4, 1, n - 1};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            struct seq *s = seq_open(e, 0, &err);
            assert_non_null(s);
            assert_true(seq_sampling(s, &how, &err));
            for (size_t at = 0; at < n; at += pieces[i]) {
                const size_t rest = n - at, now = rest < pieces[i] ? rest : pieces[i];
                must_submit(e, &(struct work){s, ids + at, now, .n_pick = now == rest}, 1, &ticket);
            }
            assert_true(engine_wait(e, ticket, NULL, &d, &err));
            want = i ? want : d;
            assert_int_equal(d.id, want.id);
            assert_memory_equal(&d.logprob, &want.logprob, sizeof d.logprob);
            assert_memory_equal(d.top, want.top, how.n_probs * sizeof *d.top);
            assert_int_equal(seq_len(s), n + 1);
            assert_int_equal(seq_n_past(s), n);
            seq_free(s);
        }
        engine_free(e);
        close_model(&f);
    }
}

// What is wrong with one work of several leaves all their sequences as they were.
static void a_pass_of_many_is_done_or_not(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct cancel cancel = {1};
    uint64_t ticket;
    struct decoded d[2];
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, 4, 16);
    struct seq *a = open_seq(e, 1), *b = open_seq(e, 2);
    const int32_t bad[] = {3, TINY_VOCAB};
    assert_true(engine_max_parts(e) > 1);
    const struct work wrong[][2] = {
        {{a, ids, 5, .n_pick = 1}, {b, bad, 2, .n_pick = 1}},
        {{a, ids, 5, .n_pick = 1}, {b, NULL, 1, .n_pick = 1}}, // nothing was sampled
        {{a, ids, 5, .n_pick = 1}, {b, ids, 5, .n_pick = 2}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct error){0};
        assert_false(engine_submit(e, wrong[i], 2, NULL, NULL, &err));
        assert_int_equal(err.code, ERR_FAIL);
        assert_int_equal(seq_len(a), 0);
        assert_int_equal(seq_len(b), 0);
        seq_trim(a, 0);
    }
    const struct work both[] = {{a, ids, 5, .n_pick = 1}, {b, ids, 9, .n_pick = 1}};
    assert_false(engine_submit(e, both, 2, &cancel, NULL, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_int_equal(seq_len(a), 0);
    assert_int_equal(seq_len(b), 0);
    // the same sequence twice is no pass of two
    const struct work twice[] = {{a, ids, 5}, {a, ids + 5, 3, .n_pick = 1}};
    must_submit(e, twice, 2, &ticket);
    assert_true(engine_wait(e, ticket, NULL, d, &err));
    struct seq *c = open_seq(e, 1);
    must_submit(e, &(struct work){c, ids, 8, .n_pick = 1}, 1, &ticket);
    assert_int_equal(must_wait(e, ticket), d[0].id);
    seq_free(a);
    seq_free(b);
    seq_free(c);
    engine_free(e);
    close_model(&f);
}

// What is added to the logits themselves is added for every row of a pass.
static void a_pass_has_the_bias_of_the_logits(void **state)
{
    (void)state;
    enum { LIKED = 17 };
    struct fixture f;
    struct error err = {0};
    struct decoded d[2];
    float bias[TINY_VOCAB] = {0};
    uint64_t ticket;
    open_model(&f, "llama");
    bias[LIKED] = 1000;
    f.m->output_bias = (struct weight){.data = bias,
                                       .type = QUANT_F32,
                                       .rows = 1,
                                       .n_cols = TINY_VOCAB,
                                       .vector = true,
                                       .name = "output.bias"};
    struct engine *e = open_for(f.m, 4, 16);
    struct seq *s[2] = {open_seq(e, 1), open_seq(e, 2)};
    const struct work both[] = {{s[0], ids, 5, .n_pick = 1}, {s[1], ids + 5, 9, .n_pick = 1}};
    must_submit(e, both, 2, &ticket);
    assert_true(engine_wait(e, ticket, NULL, d, &err));
    assert_int_equal(d[0].id, LIKED);
    assert_int_equal(d[1].id, LIKED);
    seq_free(s[0]);
    seq_free(s[1]);
    engine_free(e);
    f.m->output_bias.data = NULL;
    close_model(&f);
}

// Of three, the one in the middle remembers what is no number.
static void a_pick_that_fails_is_not_the_others(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    uint64_t ticket;
    struct decoded d[3], want[3];
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, 4, 16);
    struct seq *s[3];
    for (uint64_t k = 0; k < 3; k++) {
        s[k] = open_seq(e, k);
        must_submit(e, &(struct work){s[k], ids + k, 9, .n_pick = 1}, 1, &ticket);
        assert_true(engine_wait(e, ticket, NULL, &want[k], &err));
        seq_trim(s[k], 0);
    }
    const size_t n_bytes = engine_kv_bytes(e, 0, 5);
    void *bytes = malloc(n_bytes);
    assert_non_null(bytes);
    memset(bytes, 0xFF, n_bytes); // NaN as a float and as a half
    for (size_t k = 0; k < 3; k++)
        if (k == 1)
            assert_true(seq_import(s[k], ids + k, 5, bytes, n_bytes, &err));
        else
            must_submit(e, &(struct work){s[k], ids + k, 5}, 1, NULL);
    const struct work rest[] = {{s[0], ids + 5, 4, .n_pick = 1},
                                {s[1], ids + 6, 4, .n_pick = 1},
                                {s[2], ids + 7, 4, .n_pick = 1}};
    must_submit(e, rest, 3, &ticket);
    assert_false(engine_wait(e, ticket, NULL, d, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_non_null(strstr(err.text, "comes out of blk.0.attn_output"));
    assert_int_equal(d[0].id, want[0].id);
    assert_int_equal(d[1].id, -1);
    assert_int_equal(d[2].id, want[2].id);
    const size_t len[] = {10, 9, 10};
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(seq_len(s[k]), len[k]);
    for (size_t k = 0; k < 3; k++)
        seq_free(s[k]);
    free(bytes);
    engine_free(e);
    close_model(&f);
}

// Three blocks for sequences that want two each: the youngest other one is paused, and goes on as
// if it had not been.
static void who_finds_no_memory_is_paused_and_goes_on(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    int32_t want[3][N_PICK], got[3][N_PICK];
    open_model(&f, "llama");
    struct engine *e = open_blocks(f.m, 3);
    const size_t n = block - 5;
    struct sampler_settings greedy = sampler_defaults;
    greedy.temp = 0;
    struct seq *s[3];
    uint64_t ticket;
    for (int k = 0; k < 3; k++) {
        s[k] = seq_open(e, 0, &err);
        assert_true(seq_sampling(s[k], &(struct sampling){.sampler = &greedy}, &err));
        answer(s[k], 40 * (size_t)k, n, want[k]);
        seq_trim(s[k], 0);
    }
    for (int k = 0; k < 3; k++)
        must_submit(e, &(struct work){s[k], ids + 40 * k, n, .n_pick = 1}, 1, NULL);
    size_t paused = 0;
    for (int k = 0; k < 3; k++) {
        got[k][0] = 0;
        seq_trim(s[k], n);
        seq_trim(s[k], n - 1); // and their last token again, for its logits
        must_submit(e, &(struct work){s[k], ids + 40 * k + n - 1, 1, .n_pick = 1}, 1, &ticket);
        got[k][0] = must_wait(e, ticket);
    }
    for (size_t i = 1; i < N_PICK; i++)
        for (int k = 0; k < 3; k++) {
            must_submit(e, &(struct work){s[k], NULL, 1, .n_pick = 1}, 1, &ticket);
            for (int j = 0; j < 3; j++)
                paused += seq_n_past(s[j]) == 0;
            assert_true(seq_n_past(s[k]) > 0); // whoever works has its memory
            got[k][i] = must_wait(e, ticket);
            if (i == 6 && k == 0) { // four tokens more than the block has: s[0] took the room
                assert_int_equal(seq_n_past(s[2]), 0);
                assert_true(seq_n_past(s[1]) > 0);
            }
        }
    assert_true(paused > 0);
    assert_memory_equal(got, want, sizeof got);
    // one alone may have all of it, and not more
    seq_free(s[1]);
    seq_free(s[2]);
    seq_trim(s[0], 0);
    evaluate_as(s[0], ids, 3 * block);
    must_submit(e, &(struct work){s[0], ids, 0, .n_pick = 0}, 0, NULL);
    assert_false(engine_submit(e, &(struct work){s[0], ids, 1}, 1, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(seq_n_past(s[0]), 3 * block);
    // nor two of one submit
    struct seq *other = seq_open(e, 0, &err);
    seq_trim(s[0], 2 * block);
    const struct work both[] = {{s[0], ids, 1}, {other, ids, block}};
    assert_false(engine_submit(e, both, 2, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(seq_n_past(s[0]), 2 * block + 1); // the first is done
    assert_int_equal(seq_len(other), 0);
    assert_null(seq_open(e, 3 * (uint32_t)block + 1, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    seq_free(other);
    seq_free(s[0]);
    engine_free(e);
    close_model(&f);
}

static void cancelling_one_leaves_the_other(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct cancel cancel = {1};
    struct decoded d;
    int32_t want[N_PICK], got[N_PICK];
    uint64_t ticket[2][2];
    open_model(&f, "qwen2");
    struct engine *e = open_blocks(f.m, 4);
    struct seq *a = open_seq(e, 5), *b = open_seq(e, 6);
    answer(a, 0, 30, want);
    seq_trim(a, 0);
    must_submit(e, &(struct work){a, ids, 30, .n_pick = 1}, 1, &ticket[0][0]);
    assert_false(engine_submit(e, &(struct work){b, ids, 40}, 1, &cancel, NULL, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_int_equal(seq_len(b), 0);
    must_submit(e, &(struct work){b, ids, 10, .n_pick = 1}, 1, &ticket[1][0]);
    assert_false(engine_wait(e, ticket[1][0], &cancel, &d, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    got[0] = must_wait(e, ticket[0][0]);
    for (int i = 1; i < N_PICK; i++) {
        must_submit(e, &(struct work){a, NULL, 1, .n_pick = 1}, 1, &ticket[0][0]);
        got[i] = must_wait(e, ticket[0][0]);
        if (i == 3)
            seq_free(b); // with a pick that nobody waited for
    }
    assert_memory_equal(got, want, sizeof got);
    assert_false(engine_wait(e, ticket[1][0], NULL, &d, &err));
    assert_int_equal(err.code, ERR_FAIL);
    seq_free(a);
    engine_free(e);
    close_model(&f);
}

static void work_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    uint64_t ticket;
    struct decoded d;
    open_model(&f, "llama");
    struct engine *e = open_blocks(f.m, 2), *other = open_blocks(f.m, 2);
    struct seq *s = open_seq(e, 1), *foreign = open_seq(other, 1);
    const int32_t bad[] = {3, TINY_VOCAB}, negative[] = {-1};
    const struct work wrong[] = {
        {s, NULL, 0},                                   // nothing
        {s, NULL, 1, .n_pick = 1},                      // nothing was sampled
        {s, NULL, 0, .n_pick = 1},                      // no logits
        {s, NULL, 2, .n_pick = 1},                      // without ids only one
        {s, ids, 5, .n_pick = 2},                       //
        {s, ids, 5, .n_logits = 6},                     // more than there are
        {s, ids, N_BATCH + 1, .n_logits = N_BATCH + 1}, //
        {s, bad, 2},
        {s, negative, 1},
        {foreign, ids, 5},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct error){0};
        if (engine_submit(e, &wrong[i], 1, NULL, NULL, &err) || err.code != ERR_FAIL || !*err.text)
            fail_msg("work %zu: %s", i, err.code ? err.text : "accepted");
        assert_int_equal(seq_len(s), 0);
    }
    must_submit(e, &(struct work){s, ids, 5, .n_pick = 1}, 1, &ticket);
    must_submit(e, &(struct work){s, NULL, 1, .n_pick = 1}, 1, NULL);
    must_submit(e, &(struct work){s, NULL, 1, .n_pick = 1}, 1, NULL);
    assert_false(engine_submit(e, &(struct work){s, NULL, 1, .n_pick = 1}, 1, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_FAIL); // too far ahead
    assert_false(engine_submit(e, &(struct work){s, ids, 1}, 1, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_FAIL); // after what nobody knows
    const int32_t first = must_wait(e, ticket);
    assert_false(engine_wait(e, ticket, NULL, &d, &err)); // only once
    assert_int_equal(err.code, ERR_FAIL);
    assert_int_equal(seq_len(s), 6);
    assert_int_equal(seq_ids(s)[5], first);
    seq_trim(s, 100); // what runs ahead is forgotten
    assert_int_equal(seq_len(s), 6);
    must_submit(e, &(struct work){s, ids, 1, .n_pick = 1}, 1, &ticket);
    must_wait(e, ticket);
    seq_free(s);
    seq_free(foreign);
    engine_free(e);
    engine_free(other);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    for (size_t i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(rng_u64(11, i, 0) % TINY_VOCAB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_turns_they_give_what_each_gives_alone),
        cmocka_unit_test(a_fork_is_its_first_tokens_evaluated),
        cmocka_unit_test(one_pass_of_many_gives_each_what_it_has_alone),
        cmocka_unit_test(a_pass_that_repeats_is_the_first_of_its_kind),
        cmocka_unit_test(a_prompt_has_the_same_bits_however_it_is_cut),
        cmocka_unit_test(a_pass_of_many_is_done_or_not),
        cmocka_unit_test(a_pass_has_the_bias_of_the_logits),
        cmocka_unit_test(a_pick_that_fails_is_not_the_others),
        cmocka_unit_test(who_finds_no_memory_is_paused_and_goes_on),
        cmocka_unit_test(cancelling_one_leaves_the_other),
        cmocka_unit_test(work_that_cannot_be_is_refused),
    };
    return RUN_TESTS("sequences", tests);
}
