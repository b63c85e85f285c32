// A model on two and three devices of the emulation: it computes what it does on one, the same bits
// run after run, whatever is done to a sequence, and ends with the reason when a device fails.
#include "../unit/further.h"
#include "../unit/test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/measure.h"
#include "tiny_engine.h"

void emu_raise_after(uint64_t n, volatile int *flag);
void emu_fail_next_wait(void);
void emu_fail_launch(int device, uint64_t n);
void emu_hang(int device, bool hangs);
void emu_take_memory(int device, long long n);

enum { N_PICK = 8, N_PROMPT = 24, HEADS = 6, KV_HEADS = 3, HEAD_DIM = 32, FF = 160 };
enum { DEVICE_BYTES = 1 << 30 };

static struct fixture f;

// Three KV heads with two heads each, and five units of a feed-forward network: on two devices one
// has more than the other. All matrices have other types.
static int open_uneven(void **state)
{
    (void)state;
    struct tiny t;
    char k[96];
    tiny_init(&t, "qwen2");
    tiny_u32(&t, "qwen2.feed_forward_length", FF);
    tiny_u32(&t, "qwen2.attention.head_count", HEADS);
    tiny_u32(&t, "qwen2.attention.head_count_kv", KV_HEADS);
    tiny_u32(&t, "qwen2.attention.key_length", HEAD_DIM);
    tiny_u32(&t, "qwen2.attention.value_length", HEAD_DIM);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        const struct {
            const char *name;
            uint32_t type, n_cols, rows;
        } all[] = {{"attn_q.weight", QUANT_Q8_0, TINY_EMBD, HEADS * HEAD_DIM},
                   {"attn_k.weight", QUANT_Q4_0, TINY_EMBD, KV_HEADS * HEAD_DIM},
                   {"attn_v.weight", QUANT_F16, TINY_EMBD, KV_HEADS * HEAD_DIM},
                   {"attn_q.bias", QUANT_F32, HEADS * HEAD_DIM, 0},
                   {"attn_k.bias", QUANT_F32, KV_HEADS * HEAD_DIM, 0},
                   {"attn_v.bias", QUANT_F32, KV_HEADS * HEAD_DIM, 0},
                   {"attn_output.weight", QUANT_Q5_1, HEADS * HEAD_DIM, TINY_EMBD},
                   {"ffn_gate.weight", QUANT_Q8_0, TINY_EMBD, FF},
                   {"ffn_up.weight", QUANT_BF16, TINY_EMBD, FF},
                   {"ffn_down.weight", QUANT_IQ4_NL, FF, TINY_EMBD}};
        char b[16];
        snprintf(b, sizeof b, "blk.%u", i);
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            tiny_tensor(&t, tiny_name(k, b, all[j].name), all[j].type, all[j].n_cols, all[j].rows);
    }
    open_tiny(&f, &t);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) // so that layers add as much as the embedding is
        for (enum layer_weight w = ATTN_NORM; w <= FFN_NORM; w++)
            if ((w == ATTN_NORM || w == FFN_NORM) && f.m->layers[i].w[w].data)
                for (uint32_t j = 0; j < TINY_EMBD; j++)
                    ((float *)f.m->layers[i].w[w].data)[j] = 10.0f + 0.1f * (float)j;
    return 0;
}

static int close_uneven(void **state)
{
    (void)state;
    close_model(&f);
    return 0;
}

static struct engine_params on_devices(uint32_t n)
{
    return (struct engine_params){
        .n_ctx = N_CTX, .n_batch = 32, .n_threads = 1, .devices = n > 1 ? (1u << n) - 1 : 0};
}

static struct engine *open_with(const struct engine_params *p)
{
    struct error err = {0};
    struct engine *e = try_open(f.m, p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static struct engine *open_on(uint32_t n)
{
    const struct engine_params p = on_devices(n);
    return open_with(&p);
}

static void must(bool ok, const struct error *err)
{
    if (!ok)
        fail_msg("%s", err->text);
}

static const struct sampler_settings *hot(void)
{
    static struct sampler_settings s;
    s = sampler_defaults;
    s.seed = 11;
    s.temp = 1.5f;
    s.top_k = 0;
    return &s;
}

// What follows the n tokens of the sequence, the device ahead; the sequence is then n tokens again.
static void talk(struct engine *e, size_t n, struct decoded *out /* (N_PICK) */)
{
    struct error err = {0};
    const struct one_params p = {.sampler = hot(), .n_probs = 4, .max_tokens = N_PICK};
    must(one_start(e, &p, &err), &err);
    for (int i = 0; i < N_PICK; i++)
        must(one_next(e, &out[i], &err), &err);
    one_stop(e, n);
}

static void read_prompt(struct engine *e, size_t n)
{
    struct error err = {0};
    one_trim(e, 0);
    must(one_eval(e, f.tokens, n, LOGITS_LAST, &err), &err);
}

static void assert_same_talk(const struct decoded *a, const struct decoded *b)
{
    for (int i = 0; i < N_PICK; i++) {
        assert_int_equal(a[i].id, b[i].id);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(a[i].top[k].id, b[i].top[k].id);
            assert_memory_equal(&a[i].top[k].logprob, &b[i].top[k].logprob, sizeof(float));
        }
    }
}

// ---- what is computed

// Of every row of a prompt in chunks, then of tokens one by one.
static void all_logits(struct engine *e, size_t chunk, float *out /* (N_PROMPT, TINY_VOCAB) */)
{
    struct error err = {0};
    one_trim(e, 0);
    for (size_t at = 0; at < N_PROMPT; at += chunk) {
        const size_t n = N_PROMPT - at < chunk ? N_PROMPT - at : chunk;
        must(one_eval(e, f.tokens + at, n, LOGITS_ALL, &err), &err);
        for (size_t i = 0; i < n; i++)
            must(one_logits(e, i, out + (at + i) * TINY_VOCAB, &err), &err);
    }
}

static double furthest(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = further(most, fabsf(a[i] - b[i]));
    return most;
}

static void check_against_one(const struct engine_params *p)
{
    static const size_t chunks[] = {N_PROMPT, 5, 1};
    static float want[N_PROMPT * TINY_VOCAB], got[N_PROMPT * TINY_VOCAB];
    struct engine_params alone = on_devices(1);
    alone.device_index = 2; // which has room in every test
    struct engine *one_device = open_with(&alone), *e = open_with(p);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        all_logits(one_device, chunks[i], want);
        all_logits(e, chunks[i], got);
        float top = 0;
        for (size_t k = 0; k < N_PROMPT * TINY_VOCAB; k++)
            top = fmaxf(top, fabsf(want[k]));
        const double off = furthest(want, got, N_PROMPT * TINY_VOCAB);
        print_message("# chunks of %d: logits up to %g off by %g\n", (int)chunks[i], (double)top,
                      off);
        if (!(off <= 0.0005f * top))
            fail_msg("expected at most a 2000th");
    }
    one_close(one_device);
    one_close(e);
}

static void devices_compute_what_one_does(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) {
        const struct engine_params p = on_devices(n);
        check_against_one(&p);
    }
}

// In ten runs, of which five are of another engine.
static void the_text_is_the_same_in_every_run(void **state)
{
    (void)state;
    for (uint32_t n = quick() ? 3 : 2; n <= 3; n++) {
        struct decoded want[N_PICK], got[N_PICK];
        for (int opened = 0; opened < 2; opened++) {
            struct engine *e = open_on(n);
            for (int run = 0; run < 5; run++) {
                read_prompt(e, N_PROMPT);
                talk(e, N_PROMPT, opened + run == 0 ? want : got);
                if (opened + run > 0)
                    assert_same_talk(want, got);
            }
            one_close(e);
        }
    }
}

// Their kernels wait for each other's of the same engine, in room that both share.
struct talker {
    struct engine *e;
    struct decoded got[N_PICK];
};

static void *read_and_talk(void *arg)
{
    struct talker *t = arg;
    for (int i = 0; i < 2; i++) {
        read_prompt(t->e, N_PROMPT);
        talk(t->e, N_PROMPT, t->got);
    }
    return NULL;
}

static void two_models_on_the_same_devices_go_on_beside_each_other(void **state)
{
    (void)state;
    struct talker talkers[2];
    pthread_t threads[2];
    struct decoded want[N_PICK];
    for (int i = 0; i < 2; i++)
        talkers[i].e = open_on(2);
    read_prompt(talkers[0].e, N_PROMPT);
    talk(talkers[0].e, N_PROMPT, want);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_and_talk, &talkers[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_same_talk(want, talkers[i].got);
    }
    for (int i = 0; i < 2; i++)
        one_close(talkers[i].e);
}

// ---- what is done to a sequence

static void trims_and_forks_go_on_as_before(void **state)
{
    (void)state;
    struct error err = {0};
    struct decoded want[N_PICK], got[N_PICK];
    struct engine_params p = on_devices(3);
    p.n_ctx = 3 * 64; // a block for each, and one to copy to
    struct engine *e = open_with(&p);
    read_prompt(e, N_PROMPT);
    talk(e, N_PROMPT, want);
    // Twice the last token is evaluated alone, since that gives other bits than a prompt does.
    must(one_eval(e, f.tokens + N_PROMPT, 9, LOGITS_LAST, &err), &err);
    talk(e, N_PROMPT + 9, got);
    one_trim(e, N_PROMPT - 1);
    must(one_eval(e, f.tokens + N_PROMPT - 1, 1, LOGITS_LAST, &err), &err);
    struct decoded after_trim[N_PICK], after_fork[N_PICK];
    talk(e, N_PROMPT, after_trim);
    for (int i = 0; i < N_PICK; i++)
        assert_int_equal(after_trim[i].id, want[i].id);
    // A fork shares the last block, which it copies before it writes there.
    struct seq *first = one(e), *fork = seq_fork(first, N_PROMPT - 1, &err);
    assert_non_null(fork);
    assert_ptr_equal(one(e), fork);
    must(one_eval(e, f.tokens + 40, 9, LOGITS_LAST, &err), &err);
    talk(e, N_PROMPT + 8, got); // something else, in the copy
    seq_trim(fork, 0);
    seq_free(fork);
    one_trim(e, N_PROMPT - 1);
    must(one_eval(e, f.tokens + N_PROMPT - 1, 1, LOGITS_LAST, &err), &err);
    talk(e, N_PROMPT, after_fork);
    assert_same_talk(after_trim, after_fork);
    one_close(e);
}

static void a_cache_that_was_saved_goes_on(void **state)
{
    (void)state;
    struct error err = {0};
    struct decoded want[N_PICK], got[N_PICK];
    struct engine *e = open_on(2), *alone = open_on(1);
    assert_string_not_equal(e->kv_format, alone->kv_format);
    assert_int_equal(engine_kv_bytes(e, 3, 20), engine_kv_bytes(alone, 3, 20));
    const size_t n_bytes = engine_kv_bytes(e, 0, N_PROMPT - 1);
    char *kv = malloc(n_bytes);
    assert_non_null(kv);
    read_prompt(e, N_PROMPT - 1);
    must(one_export(e, 0, N_PROMPT - 1, kv, &err), &err);
    must(one_eval(e, f.tokens + N_PROMPT - 1, 1, LOGITS_LAST, &err), &err);
    talk(e, N_PROMPT, want);
    one_close(e);
    e = open_on(2);
    must(one_import(e, 0, N_PROMPT - 1, kv, &err), &err);
    must(one_eval(e, f.tokens + N_PROMPT - 1, 1, LOGITS_LAST, &err), &err);
    talk(e, N_PROMPT, got);
    assert_same_talk(want, got);
    free(kv);
    one_close(e);
    one_close(alone);
}

// Four sequences, each with a prompt of its own; then a token of each in one pass, again and again.
static void several_sequences_are_picked_from_in_one_pass(void **state)
{
    (void)state;
    enum { N_SEQ = 4, N_ROUND = 4 };
    struct error err = {0};
    int32_t want[N_SEQ][N_ROUND];
    struct engine_params p = on_devices(3);
    p.n_seqs = N_SEQ;
    p.n_ctx = 64 * N_SEQ;
    struct engine *e = open_with(&p);
    for (int together = 0; together < 2; together++) {
        struct seq *s[N_SEQ];
        struct work w[N_SEQ];
        struct decoded d[N_SEQ];
        uint64_t ticket;
        for (int i = 0; i < N_SEQ; i++) {
            const struct sampling how = {.sampler = hot()};
            s[i] = seq_open(e, 0, &err);
            assert_non_null(s[i]);
            must(seq_sampling(s[i], &how, &err), &err);
        }
        for (int round = 0; round < N_ROUND; round++) {
            for (int i = 0; i < N_SEQ; i++)
                w[i] = round == 0
                           ? (struct work){s[i], f.tokens + 4 * i, (size_t)(5 + i), .n_pick = 1}
                           : (struct work){s[i], NULL, 1, .n_pick = 1};
            for (int i = 0; i < N_SEQ; i += together ? N_SEQ : 1) {
                must(engine_submit(e, w + i, together ? N_SEQ : 1, NULL, &ticket, &err), &err);
                must(engine_wait(e, ticket, NULL, d + i, &err), &err);
            }
            for (int i = 0; i < N_SEQ; i++) {
                if (!together)
                    want[i][round] = d[i].id;
                assert_int_equal(d[i].id, want[i][round]);
            }
        }
        for (int i = 0; i < N_SEQ; i++)
            seq_free(s[i]);
    }
    engine_free(e);
}

// Every third token, which one depends on the token before; asked once a pick.
struct third {
    struct seq *s;
    int n_asked;
    int32_t last; // that was waited for
};

static bool every_third(void *user, const int32_t *drafts, size_t n, uint32_t *allow,
                        struct error *err)
{
    struct third *t = user;
    (void)err;
    memset(allow, 0, (TINY_VOCAB + 31) / 32 * sizeof *allow);
    const int32_t before = n > 0 ? drafts[n - 1] : t->last;
    for (uint32_t i = (uint32_t)(before + 1) % 3; i < TINY_VOCAB; i += 3)
        allow[i / 32] |= 1u << i % 32;
    t->n_asked++;
    return true;
}

// In runs with the device ahead, and in passes.
static void masked_picks_are_those_of_one_device(void **state)
{
    (void)state;
    for (uint32_t n_seqs = 1; n_seqs <= 2; n_seqs++) {
        int32_t want[N_PICK];
        for (uint32_t n = 1; n <= 3; n += 2) {
            struct error err = {0};
            struct engine_params p = on_devices(n);
            p.n_seqs = n_seqs;
            struct engine *e = open_with(&p);
            struct third t = {.s = one(e)};
            struct sampler_settings greedy = sampler_defaults;
            greedy.temp = 0;
            const struct sampling how = {.sampler = &greedy, .mask = every_third, .mask_user = &t};
            read_prompt(e, N_PROMPT);
            must(seq_sampling(t.s, &how, &err), &err);
            for (int i = 0; i < N_PICK; i++) {
                struct decoded d;
                uint64_t ticket;
                const int32_t before = t.last = seq_ids(t.s)[seq_len(t.s) - 1];
                const struct work w = {.seq = t.s, .n = i > 0, .n_pick = 1};
                must(engine_submit(e, &w, 1, NULL, &ticket, &err) &&
                         engine_wait(e, ticket, NULL, &d, &err),
                     &err);
                assert_int_equal(d.id % 3, (before + 1) % 3);
                if (n == 1)
                    want[i] = d.id;
                assert_int_equal(d.id, want[i]);
            }
            assert_int_equal(t.n_asked, N_PICK);
            one_close(e);
        }
    }
}

// In an exact engine a guess is a row: with right ones, with wrong ones and under masks, of which
// each is asked for once, what follows is what does without.
static void guesses_leave_the_text_as_it_is(void **state)
{
    (void)state;
    enum { N = 2 * N_PICK, N_GUESS = 3 };
    struct error err = {0};
    struct engine_params p = on_devices(3);
    p.exact = true;
    struct engine *e = open_with(&p);
    for (int masked = 0; masked < 2; masked++) {
        int32_t want[N + N_GUESS];
        struct third t = {.s = one(e)};
        const struct sampling how = {
            .sampler = hot(), .mask = masked ? every_third : NULL, .mask_user = &t};
        for (int guess = 0; guess < 2; guess++) {
            read_prompt(e, N_PROMPT);
            must(seq_sampling(t.s, &how, &err), &err);
            t.n_asked = 0;
            for (int i = 0, n; i < N; i += n) {
                struct decoded d[1 + N_GUESS];
                int32_t guesses[N_GUESS];
                const int wrong = 1 + i % N_GUESS; // N_GUESS: none
                uint64_t ticket;
                for (int k = 0; k < N_GUESS; k++)
                    guesses[k] = guess ? want[i + k] ^ (k == wrong) : 0;
                const struct work w = {.seq = t.s,
                                       .n = i > 0,
                                       .n_pick = 1,
                                       .drafts = guesses,
                                       .n_drafts = guess && i > 0 ? N_GUESS : 0};
                const int before = t.n_asked;
                t.last = seq_ids(t.s)[seq_len(t.s) - 1];
                must(engine_submit(e, &w, 1, NULL, &ticket, &err) &&
                         engine_wait(e, ticket, NULL, d, &err),
                     &err);
                assert_int_equal(t.n_asked - before, masked ? 1 + w.n_drafts : 0);
                for (n = 0; n <= (int)w.n_drafts && d[n].id >= 0; n++)
                    if (!guess)
                        want[i + n] = d[n].id;
                    else if (i + n < N)
                        assert_int_equal(d[n].id, want[i + n]);
                if (w.n_drafts > 0 && i + N_GUESS < N)
                    assert_int_equal(n, 1 + wrong);
            }
            for (int k = 0; k < N_GUESS; k++)
                want[N + k] = 0;
        }
    }
    one_close(e);
}

// Of rank 0, whose launches wait for those of the others, which are made as well.
static void a_profile_has_what_ranks_tell_each_other(void **state)
{
    (void)state;
    struct error err = {0};
    struct engine *e = open_on(2);
    static const size_t rows[] = {1, 4, 13}; // of the last so many numbers that they go in spans
    for (size_t k = 0; k < 3; k++) {
        const size_t n = rows[k];
        struct engine_profile p = {0};
        uint32_t n_sum = 0;
        bool told = false;
        read_prompt(e, N_PROMPT);
        must(engine_profile(one(e), f.tokens, n, 1, NULL, &p, &err), &err);
        for (size_t i = 0; i < p.n; i++) {
            const struct engine_kernel *row = &p.rows[i];
            const bool sums = strcmp(row->kernel, k < 2 ? "sum_ranks" : "sum_spans") == 0;
            n_sum += sums ? row->n_launch : 0;
            // (a sum is named as the product before it, whose the bytes and operations are)
            if (strcmp(row->what, "ffn_down") == 0 && (row->bytes > 0 || row->flops > 0)) {
                assert_false(sums);
                told = true;
            }
        }
        assert_true(told);
        assert_int_equal(n_sum, 2 * TINY_LAYERS * (k < 2 ? (n * TINY_EMBD + 299) / 300 : 1));
        assert_non_null(strstr(p.how, "; device 0 of 2"));
    }
    read_prompt(e, N_PROMPT); // goes on
    one_close(e);
}

// ---- what goes wrong

// All find it, look for its cause together, and go on.
static void a_number_that_is_not_finite_is_no_failure_of_a_device(void **state)
{
    (void)state;
    float *norm = (float *)f.m->layers[1].w[FFN_NORM].data, was = norm[3];
    struct error err = {0};
    struct decoded d;
    float logits[TINY_VOCAB];
    norm[3] = NAN;
    struct engine *e = open_on(3);
    norm[3] = was;
    const struct one_params p = {.sampler = hot(), .max_tokens = N_PICK};
    for (int run = 0; run < 2; run++) {
        err = (struct error){0};
        read_prompt(e, N_PROMPT);
        assert_false(one_logits(e, 0, logits, &err));
        if (!strstr(err.text, "blk.1.ffn_down"))
            fail_msg("%s", err.text);
        read_prompt(e, N_PROMPT);
        must(one_start(e, &p, &err), &err);
        err = (struct error){0};
        assert_false(one_next(e, &d, &err));
        if (!strstr(err.text, "blk.1.ffn_down"))
            fail_msg("%s", err.text);
        one_stop(e, N_PROMPT);
    }
    one_close(e);
}

// Somewhere in a prompt; what follows is as if nobody had.
static void an_interrupt_ends_all_ranks_at_the_same_place(void **state)
{
    (void)state;
    struct decoded want[N_PICK], got[N_PICK];
    struct engine *e = open_on(3);
    read_prompt(e, N_PROMPT);
    talk(e, N_PROMPT, want);
    for (uint64_t after = 1; after <= 40; after += 13) {
        struct error err = {0};
        struct cancel cancel = {0};
        one_trim(e, 0);
        one_cancel = &cancel;
        emu_raise_after(after, &cancel.asked);
        if (!one_eval(e, f.tokens, N_PROMPT, LOGITS_NONE, &err))
            assert_int_equal(err.code, ERR_INTERRUPTED);
        emu_raise_after(0, NULL);
        one_cancel = NULL;
        read_prompt(e, N_PROMPT);
        talk(e, N_PROMPT, got);
        assert_same_talk(want, got);
    }
    struct error err = {0};
    struct cancel cancel = {.asked = 1};
    one_trim(e, 0);
    one_cancel = &cancel;
    assert_false(one_eval(e, f.tokens, N_PROMPT, LOGITS_NONE, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    one_close(e);
}

// Its packets never come: the others wait for them until they hear of it. Device 1, somewhere in a
// prompt, and with the third step of decoding.
static void nobody_waits_for_a_device_that_has_failed(void **state)
{
    (void)state;
    for (int while_decoding = 0; while_decoding < 2; while_decoding++) {
        struct error err = {0};
        struct decoded d;
        struct engine *e = open_on(3);
        bool ok = true;
        if (while_decoding)
            read_prompt(e, N_PROMPT);
        emu_fail_launch(1, while_decoding ? 4 : 9);
        if (while_decoding) {
            const struct one_params p = {.sampler = hot(), .max_tokens = N_PICK};
            must(one_start(e, &p, &err), &err);
            for (int i = 0; ok && i < N_PICK; i++)
                ok = one_next(e, &d, &err);
        } else {
            ok = one_eval(e, f.tokens, N_PROMPT, LOGITS_LAST, &err);
        }
        emu_fail_launch(1, 0);
        assert_false(ok);
        if (strncmp(err.text, "device 1 (", 10) != 0 || !strstr(err.text, "launch failure"))
            fail_msg("%s", err.text);
        one_close(e);
    }
}

// What it had sent before the others have.
static void a_device_that_fails_ends_the_call_with_its_name(void **state)
{
    (void)state;
    for (int while_decoding = 0; while_decoding < 2; while_decoding++) {
        struct error err = {0};
        struct decoded d;
        struct engine *e = open_on(3);
        read_prompt(e, N_PROMPT);
        if (while_decoding) {
            const struct one_params p = {.sampler = hot(), .max_tokens = N_PICK};
            must(one_start(e, &p, &err), &err);
            must(one_next(e, &d, &err), &err);
            emu_fail_next_wait();
            one_stop(e, N_PROMPT);
        } else {
            emu_fail_next_wait();
        }
        for (int i = 0; i < 2; i++) {
            err = (struct error){0};
            assert_false(one_eval(e, f.tokens, 4, LOGITS_LAST, &err));
            assert_int_equal(err.code, ERR_FAIL);
            if (strncmp(err.text, "device ", 7) != 0 || !strstr(err.text, "launch failure"))
                fail_msg("%s", err.text);
        }
        one_close(e);
    }
}

static struct engine_plan plan_of(const struct engine_params *p)
{
    struct engine_plan plan;
    struct error err = {0};
    must(cuda_engine_plan(f.m, p, &plan, &err), &err);
    return plan;
}

static void a_plan_says_what_each_device_holds(void **state)
{
    (void)state;
    const struct engine_params p = on_devices(2), q = on_devices(1);
    const struct engine_plan plan = plan_of(&p), alone = plan_of(&q);
    assert_int_equal(alone.n_ranks, 0);
    assert_int_equal(plan.n_ranks, 2);
    assert_true(plan.fits);
    assert_int_equal(plan.n_ctx, N_CTX);
    assert_int_equal(plan.ranks[1].device, 1);
    assert_int_equal(plan.weights, plan.ranks[0].weights + plan.ranks[1].weights);
    // evenly: two KV heads and one
    assert_int_equal(plan.kv, plan.ranks[0].kv + plan.ranks[1].kv);
    assert_true(plan.ranks[0].kv > plan.ranks[1].kv && plan.ranks[0].kv < alone.kv);
    struct engine *e = open_with(&p);
    assert_true(e->mem_used >= plan.weights + plan.kv + plan.scratch);
    one_close(e);
}

// Of a gigabyte, all but a little is somebody else's on one of the devices.
static void a_device_that_is_nearly_full_has_less(void **state)
{
    (void)state;
    struct error err = {0};
    struct engine_params p = on_devices(2);
    const struct engine_plan even = plan_of(&p);
    const struct rank_plan *first = &even.ranks[0];
    const uint64_t needed = first->weights + first->kv + first->scratch + first->other;
    const uint64_t left = needed - first->kv / 4; // less than half of all is
    const long long taken = (long long)(first->available - left);
    struct engine *e = open_with(&p);
    char of_even[sizeof e->kv_format];
    memcpy(of_even, e->kv_format, sizeof of_even);
    one_close(e);
    emu_take_memory(0, taken);
    const struct engine_plan plan = plan_of(&p);
    assert_true(plan.fits);
    assert_true(plan.ranks[0].kv < plan.ranks[1].kv);
    check_against_one(&p);
    e = open_with(&p);
    assert_non_null(strstr(e->kv_format, "ranks:2-"));
    assert_string_not_equal(e->kv_format, of_even);
    one_close(e);
    // and then nothing fits
    emu_take_memory(0, (long long)(left - (1 << 20)));
    assert_null(try_open(f.m, &p, &err));
    assert_int_equal(err.code, ERR_MEMORY);
    if (strncmp(err.text, "device 0: ", 10) != 0)
        fail_msg("%s", err.text);
    emu_take_memory(0, -taken - (long long)(left - (1 << 20)));
}

static void assert_refused(const struct engine_params *p, enum error_code code, const char *why)
{
    struct error err = {0};
    struct engine_plan plan;
    assert_null(try_open(f.m, p, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, why))
        fail_msg("found: %s\nexpected: %s", err.text, why);
    assert_false(cuda_engine_plan(f.m, p, &plan, &err));
}

static void devices_that_cannot_be_had_are_refused(void **state)
{
    (void)state;
    struct engine_params p = on_devices(2);
    p.devices = 1u << 1 | 1u << 7;
    assert_refused(&p, ERR_USAGE, "CUDA device 7: found 3 devices");
    p.devices = 0x1FF;
    assert_refused(&p, ERR_USAGE, "9 devices, expected at most 8");
}

// Then packets go through the host's memory, which is said.
static void devices_that_do_not_reach_each_other_compute_the_same(void **state)
{
    (void)state;
    struct decoded want[N_PICK], got[N_PICK];
    struct engine *e = open_on(3);
    read_prompt(e, N_PROMPT);
    talk(e, N_PROMPT, want);
    assert_string_equal(e->note, "");
    one_close(e);
    setenv("HOKKU_EMU_MACHINE", "no-peers", 1);
    e = open_on(3);
    unsetenv("HOKKU_EMU_MACHINE");
    assert_non_null(strstr(e->note, "through the host's"));
    read_prompt(e, N_PROMPT);
    talk(e, N_PROMPT, got);
    assert_same_talk(want, got);
    one_close(e);
}

// Neither fails nor ends anything. Time is not waited for: it passes with each look at the clock.
static volatile bool hurry;

int clock_gettime(clockid_t id, struct timespec *t)
{
    static int64_t ahead; // nanoseconds
    const int failed = (int)syscall(SYS_clock_gettime, id, t);
    const int64_t ns = t->tv_nsec + (hurry ? __atomic_add_fetch(&ahead, 100000000, __ATOMIC_RELAXED)
                                           : __atomic_load_n(&ahead, __ATOMIC_RELAXED));
    t->tv_sec += ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return failed;
}

static void a_device_that_does_not_answer_ends_the_call(void **state)
{
    (void)state;
    const char *seed = getenv("HOKKU_EMU_SEED");
    struct error err = {0};
    if (seed && strcmp(seed, "0") == 0)
        return; // devices work while something is launched
    for (int hangs = quick() ? 2 : 0; hangs < 3; hangs += 2) {
        char name[40];
        struct engine *e = open_on(3);
        read_prompt(e, N_PROMPT);
        emu_hang(hangs, true);
        hurry = true;
        for (int i = 0; i < 2; i++) {
            err = (struct error){0};
            one_trim(e, 0);
            assert_false(one_eval(e, f.tokens, N_PROMPT, LOGITS_LAST, &err));
            assert_int_equal(err.code, ERR_FAIL);
            snprintf(name, sizeof name, "device %d (", hangs);
            if (strncmp(err.text, name, strlen(name)) != 0 || !strstr(err.text, "120 seconds"))
                fail_msg("%s", err.text);
        }
        hurry = false;
        emu_hang(hangs, false); // else its memory stays
        one_close(e);
    }
}

int main(void)
{
    setenv("HOKKU_EMU_DEVICES", "3", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_compute_what_one_does),
        cmocka_unit_test(the_text_is_the_same_in_every_run),
        cmocka_unit_test(two_models_on_the_same_devices_go_on_beside_each_other),
        cmocka_unit_test(trims_and_forks_go_on_as_before),
        cmocka_unit_test(a_cache_that_was_saved_goes_on),
        cmocka_unit_test(several_sequences_are_picked_from_in_one_pass),
        cmocka_unit_test(masked_picks_are_those_of_one_device),
        cmocka_unit_test(guesses_leave_the_text_as_it_is),
        cmocka_unit_test(a_profile_has_what_ranks_tell_each_other),
        cmocka_unit_test(a_number_that_is_not_finite_is_no_failure_of_a_device),
        cmocka_unit_test(an_interrupt_ends_all_ranks_at_the_same_place),
        cmocka_unit_test(nobody_waits_for_a_device_that_has_failed),
        cmocka_unit_test(a_device_that_fails_ends_the_call_with_its_name),
        cmocka_unit_test(a_plan_says_what_each_device_holds),
        cmocka_unit_test(a_device_that_is_nearly_full_has_less),
        cmocka_unit_test(devices_that_cannot_be_had_are_refused),
        cmocka_unit_test(devices_that_do_not_reach_each_other_compute_the_same),
        cmocka_unit_test(a_device_that_does_not_answer_ends_the_call),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("HOKKU_TEST"));
    return cmocka_run_group_tests_name("ranks", tests, open_uneven, close_uneven);
}
