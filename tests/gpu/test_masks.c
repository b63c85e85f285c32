// Picks under masks: a mask depends on the token before, and the device is ahead of the host all
// the same. On the CPU engine, on a GPU, and on the emulation.
#include "../unit/test.h"

#include <stdlib.h>

#include "engine/constrain.h"
#include "engine/schedule.h"
#include "tiny_engine.h"

#ifdef HOKKU_CUDA_ON_CPU
uint64_t emu_kernels_run(void);
void emu_run_all(void);
#endif

enum { N_PROMPT = 20, N_PICK = 9, N_WORDS = (TINY_VOCAB + 31) / 32 };

// Kernels that have run when all that is enqueued has; 0 where nobody counts them.
static uint64_t run_all(void)
{
#ifdef HOKKU_CUDA_ON_CPU
    if (on_cuda) {
        emu_run_all();
        return emu_kernels_run();
    }
#endif
    return 0;
}

static struct engine *open_for(const struct model *m, bool exact)
{
    struct error err = {0};
    const struct engine_params p = {.n_ctx = 512, .n_batch = 32, .exact = exact, .n_threads = 1};
    struct engine *e = try_open(m, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static void must_submit(const struct work *w, uint64_t *ticket)
{
    struct error err = {0};
    if (!engine_submit(seq_engine(w->seq), w, 1, NULL, ticket, &err))
        fail_msg("%s", err.text);
}

static struct decoded must_wait(struct engine *e, uint64_t ticket)
{
    struct error err = {0};
    struct decoded d = {0};
    if (!engine_wait(e, ticket, NULL, &d, &err))
        fail_msg("%s", err.text);
    return d;
}

// A mask that depends on what was sampled before, as a grammar's does.
struct masking {
    struct seq *s;
    size_t n_asked, fail_at;
    struct cancel *cancel; // asked for while a mask is made
    uint64_t n_run[N_PICK + 1];
};

static bool is_allowed(const struct seq *s, size_t n, int32_t id)
{
    return rng_u64(n, (uint64_t)seq_ids(s)[n - 1], (uint64_t)id) % 16 == 0 || id == 7;
}

static bool mask_of(void *user, const int32_t *drafts, size_t n_drafts, uint32_t *allow,
                    struct error *err)
{
    (void)drafts;
    assert_int_equal(n_drafts, 0);
    struct masking *m = user;
    const size_t n = seq_len(m->s);
    assert_int_equal(n, N_PROMPT + m->n_asked); // once for each pick, and it knows those before
    m->n_run[m->n_asked] = run_all();
    if (++m->n_asked == m->fail_at)
        return error_set(err, ERR_USAGE, "no more masks");
    if (m->cancel)
        m->cancel->asked = 1;
    memset(allow, 0, N_WORDS * sizeof *allow);
    allow[TINY_VOCAB / 32] = TINY_VOCAB % 32 ? UINT32_MAX << (TINY_VOCAB % 32) : 0; // no tokens
    for (int32_t id = 0; id < TINY_VOCAB; id++)
        if (is_allowed(m->s, n, id))
            allow[id / 32] |= 1u << (id % 32);
    return true;
}

// What is sampled with: greedily, penalties, DRY.
static struct sampler_settings settings_of(unsigned k)
{
    struct sampler_settings set = sampler_defaults;
    set.seed = 11 + k;
    set.temp = k == 0 ? 0 : 1.2f;
    set.repeat_penalty = k == 2 ? 1.3f : 1;
    set.dry_multiplier = k == 3 ? 0.8f : 0; // a pass picks so one by one
    return set;
}

enum { N_SETTINGS = 4 };

static struct seq *open_masked(struct engine *e, struct masking *m,
                               const struct sampler_settings *set)
{
    struct error err = {0};
    struct seq *s = seq_open(e, 0, &err);
    *m = (struct masking){.s = s};
    const struct sampling how = {.sampler = set, .n_probs = 3, .mask = mask_of, .mask_user = m};
    if (!s || !seq_sampling(s, &how, &err))
        fail_msg("%s", err.text);
    return s;
}

static struct work one_more(struct seq *s)
{
    return (struct work){.seq = s, .n = 1, .n_pick = 1};
}

// The prompt, then n picks, so many of them submitted ahead. What is ahead in the end stays so.
static void answer(struct seq *s, const int32_t *prompt, size_t n, size_t ahead,
                   struct decoded *out)
{
    uint64_t tickets[N_PICK + 1];
    size_t asked = 1;
    must_submit(&(struct work){s, prompt, N_PROMPT, .n_pick = 1}, &tickets[0]);
    for (size_t i = 0; i < n; i++) {
        for (; asked <= i + ahead; asked++) {
            const struct work w = one_more(s);
            must_submit(&w, &tickets[asked]);
        }
        out[i] = must_wait(seq_engine(s), tickets[i]);
        if (i + 1 < n && asked == i + 1) {
            const struct work w = one_more(s);
            must_submit(&w, &tickets[asked++]);
        }
    }
}

static void assert_alike(const struct decoded *a, const struct decoded *b)
{
    assert_int_equal(a->id, b->id);
    assert_memory_equal(&a->logprob, &b->logprob, sizeof a->logprob);
    assert_int_equal(a->n_top, b->n_top);
    for (uint32_t i = 0; i < a->n_top; i++) {
        assert_int_equal(a->top[i].id, b->top[i].id);
        assert_memory_equal(&a->top[i].logprob, &b->top[i].logprob, sizeof a->top[i].logprob);
    }
}

// The same logits behind the same tokens.
static void assert_go_on_alike(struct seq *a, struct seq *b)
{
    struct error err = {0};
    float logits[2][TINY_VOCAB];
    const int32_t id = 9;
    assert_int_equal(seq_len(a), seq_len(b));
    assert_int_equal(seq_n_past(a), seq_n_past(b));
    for (int k = 0; k < 2; k++) {
        struct seq *s = k ? b : a;
        must_submit(&(struct work){s, &id, 1, .n_logits = 1}, NULL);
        assert_true(seq_logits(s, 0, NULL, logits[k], &err));
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

// ---- what is picked

// What is picked is what the host picks from the same logits, of the allowed ones.
static void a_mask_decides_what_is_sampled(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    open_model(&f, "llama");
    for (int exact = 0; exact < 2; exact++) { // 1: passes, which do not run ahead
        struct engine *e = open_for(f.m, exact);
        for (unsigned k = 0; k < N_SETTINGS; k++) {
            const struct sampler_settings set = settings_of(k);
            struct decoded got[N_PICK];
            struct masking m;
            struct seq *s = open_masked(e, &m, &set), *again = seq_open(e, 0, &err);
            const size_t ahead = seq_run_ahead(s);
            assert_int_equal(ahead, on_cuda && exact ? 0 : 1);
            answer(s, f.tokens, N_PICK, ahead, got);
            assert_int_equal(m.n_asked, N_PICK);
            struct sampler cpu;
            float logits[TINY_VOCAB];
            uint32_t allow[N_WORDS];
            assert_true(again && sampler_init(&cpu, &set, TINY_VOCAB, &err));
            must_submit(&(struct work){again, f.tokens, N_PROMPT, .n_logits = 1}, NULL);
            m = (struct masking){.s = again};
            for (size_t i = 0; i < N_PICK; i++) {
                int32_t id;
                assert_true(seq_logits(again, 0, NULL, logits, &err));
                assert_true(mask_of(&m, NULL, 0, allow, &err));
                cpu.allow = allow;
                assert_true(sampler_pick(&cpu, logits, seq_ids(again), N_PROMPT + i, &id, &err));
                assert_int_equal(id, got[i].id);
                assert_true(is_allowed(again, N_PROMPT + i, id));
                must_submit(&(struct work){again, &id, 1, .n_logits = 1}, NULL);
            }
            sampler_release(&cpu);
            seq_free(s);
            seq_free(again);
        }
        engine_free(e);
    }
    close_model(&f);
}

static void the_device_ahead_picks_the_same(void **state)
{
    (void)state;
    for (int states = 0; states < 2; states++) {
        struct fixture f;
        if (states)
            open_state_space(&f);
        else
            open_model(&f, "qwen3");
        struct engine *e = open_for(f.m, false);
        for (unsigned k = 0; k < N_SETTINGS; k++) {
            const struct sampler_settings set = settings_of(k);
            struct decoded want[N_PICK], got[N_PICK];
            // However many are waited for: what was ahead of them is as if it had not been.
            for (size_t n = k == 1 ? 1 : N_PICK; n <= N_PICK; n += quick() ? 4 : 1) {
                struct masking m[2];
                struct seq *a = open_masked(e, &m[0], &set);
                answer(a, f.tokens, n, 0, want);
                struct seq *b = open_masked(e, &m[1], &set);
                answer(b, f.tokens, n, 1, got);
                assert_int_equal(m[0].n_asked, n);
                assert_int_equal(m[1].n_asked, n);
                seq_trim(b, seq_len(b));
                for (size_t i = 0; i < n; i++)
                    assert_alike(&got[i], &want[i]);
                assert_go_on_alike(a, b);
                seq_free(a);
                seq_free(b);
            }
        }
        engine_free(e);
        close_model(&f);
    }
}

// A step is launched behind the pick before it, when that has its mask: once, and before the host
// has seen what was picked.
static void a_step_does_not_wait_for_the_host(void **state)
{
    (void)state;
#ifdef HOKKU_CUDA_ON_CPU
    if (!on_cuda)
        return;
    struct fixture f;
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, false);
    const struct sampler_settings set = settings_of(1);
    struct masking m;
    uint64_t n_step = 0;
    for (size_t ahead = 0; ahead < 2; ahead++) {
        uint64_t tickets[N_PICK], n = 0;
        struct seq *s = open_masked(e, &m, &set);
        const struct work prompt = {s, f.tokens, N_PROMPT, .n_pick = 1};
        struct work w = one_more(s);
        must_submit(&prompt, &tickets[0]); // dropped, with a step that waits for a mask
        must_submit(&w, &tickets[1]);
        seq_trim(s, 0);
        w = prompt;
        for (size_t i = 0; i < N_PICK; i++) {
            if (i == 0 || !ahead)
                must_submit(&w, &tickets[i]);
            w = one_more(s);
            if (i == 0)
                n = run_all();
            else if (!ahead && i == 1)
                n_step = run_all() - n;
            n += i > 0 && !ahead ? n_step : 0;
            if (ahead && i + 1 < N_PICK) {
                must_submit(&w, &tickets[i + 1]);
                assert_int_equal(run_all(), n);
            }
            must_wait(e, tickets[i]);
            assert_int_equal(m.n_run[i], n); // all before the pick, when its mask was asked for
            n += 1 + (ahead && i + 1 < N_PICK ? n_step : 0);
            assert_int_equal(run_all(), n);
        }
        assert_in_range(n_step, 5, 1000);
        seq_free(s);
    }
    engine_free(e);
    close_model(&f);
#endif
}

// ---- how a run ends

static void what_fails_or_stops_ends_a_run_that_is_ahead(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded d, want[N_PICK];
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, false);
    const struct sampler_settings set = settings_of(1);
    struct masking m, m2;
    struct seq *s = open_masked(e, &m, &set);
    answer(s, f.tokens, N_PICK, 0, want);
    seq_free(s);
    for (size_t fail_at = 1; fail_at <= 3; fail_at++) {
        uint64_t tickets[4];
        struct seq *b = open_masked(e, &m2, &set);
        m2.fail_at = fail_at;
        must_submit(&(struct work){b, f.tokens, N_PROMPT, .n_pick = 1}, &tickets[0]);
        for (size_t i = 0; i < fail_at; i++) {
            const struct work w = one_more(b);
            must_submit(&w, &tickets[i + 1]);
            const bool ok = engine_wait(e, tickets[i], NULL, &d, &err);
            assert_int_equal(ok, i + 1 < fail_at);
            assert_true(!ok || d.id == want[i].id);
        }
        assert_int_equal(err.code, ERR_USAGE);
        assert_string_equal(err.text, "no more masks");
        assert_false(engine_wait(e, tickets[fail_at], NULL, &d, &err));
        assert_int_equal(m2.n_asked, fail_at);
        e->failed = false;
        seq_trim(b, N_PROMPT - 1); // and the sequence goes on
        m2 = (struct masking){.s = b};
        must_submit(&(struct work){b, f.tokens + N_PROMPT - 1, 1, .n_pick = 1}, &tickets[0]);
        assert_int_equal(must_wait(e, tickets[0]).id, want[0].id);
        seq_free(b);
    }
    for (size_t i = 0; i < 4; i++) { // a stop id: the first that is one
        const int32_t stop = want[i].id;
        const struct sampling how = {.sampler = &set,
                                     .n_probs = 3,
                                     .stop_ids = &stop,
                                     .n_stop_ids = 1,
                                     .mask = mask_of,
                                     .mask_user = &m2};
        size_t n = 0;
        while (want[n].id != stop)
            n++;
        struct seq *b = open_masked(e, &m2, &set);
        assert_true(seq_sampling(b, &how, &err));
        answer(b, f.tokens, n + 1, 1, &(struct decoded[N_PICK]){0}[0]);
        assert_int_equal(m2.n_asked, n + 1);
        struct masking m3;
        struct seq *a = open_masked(e, &m3, &set);
        answer(a, f.tokens, n + 1, 0, &(struct decoded[N_PICK]){0}[0]);
        seq_trim(b, seq_len(b));
        assert_go_on_alike(a, b);
        seq_free(a);
        seq_free(b);
    }
    engine_free(e);
    close_model(&f);
}

// Interrupted while a mask is made, or before: waited for again, each pick comes, once.
static void an_interrupted_wait_may_be_repeated(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded want[N_PICK], d;
    uint64_t tickets[N_PICK];
    size_t n_interrupted = 0;
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, false);
    const struct sampler_settings set = settings_of(1);
    struct masking m;
    struct seq *s = open_masked(e, &m, &set);
    answer(s, f.tokens, N_PICK, 0, want);
    seq_free(s);
    struct cancel cancel = {0};
    s = open_masked(e, &m, &set);
    m.cancel = &cancel;
    must_submit(&(struct work){s, f.tokens, N_PROMPT, .n_pick = 1}, &tickets[0]);
    for (size_t i = 0; i < N_PICK; i++) {
        // asked for before, between the two waits, or not at all
        const bool early = i % 3 == 0, late = i % 3 == 1;
        const struct work w = one_more(s);
        if (early && i + 1 < N_PICK)
            must_submit(&w, &tickets[i + 1]);
        cancel.asked = i % 2 == 0;
        bool ok = engine_wait(e, tickets[i], &cancel, &d, &err);
        n_interrupted += !ok;
        assert_true(ok || err.code == ERR_INTERRUPTED);
        cancel.asked = 0;
        if (late && !ok && i + 1 < N_PICK)
            must_submit(&w, &tickets[i + 1]);
        m.cancel = NULL;
        if (!ok)
            d = must_wait(e, tickets[i]);
        m.cancel = &cancel;
        if (!early && !(late && !ok) && i + 1 < N_PICK)
            must_submit(&w, &tickets[i + 1]);
        assert_alike(&d, &want[i]);
        assert_int_equal(m.n_asked, i + 1);
    }
    assert_true(n_interrupted >= N_PICK / 2);
    seq_free(s);
    engine_free(e);
    close_model(&f);
}

static void only_one_pick_is_ahead_and_nothing_comes_between(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct decoded d, want[N_PICK];
    open_model(&f, "llama");
    struct engine *e = open_for(f.m, false);
    const struct sampler_settings set = settings_of(1);
    for (int between = 0; between < 2; between++) {
        struct masking m, none;
        struct seq *s = open_masked(e, &m, &set), *other = open_masked(e, &none, &set);
        uint64_t tickets[3];
        const struct work w = one_more(s);
        must_submit(&(struct work){s, f.tokens, N_PROMPT, .n_pick = 1}, &tickets[0]);
        must_submit(&w, &tickets[1]);
        assert_false(engine_submit(e, &w, 1, NULL, &tickets[2], &err));
        assert_non_null(strstr(err.text, "mask"));
        e->failed = false;
        if (between) // the first of them is made then, and the other is void
            must_submit(&(struct work){other, f.tokens, 3}, NULL);
        else // or it is waited for before its time
            assert_false(engine_wait(e, tickets[1], NULL, &d, &err));
        want[0] = must_wait(e, tickets[0]);
        if (between)
            assert_false(engine_wait(e, tickets[1], NULL, &d, &err));
        assert_int_equal(err.code, ERR_FAIL);
        assert_non_null(strstr(err.text, "depends on the one before"));
        assert_int_equal(m.n_asked, 1);
        assert_int_equal(seq_len(s), N_PROMPT + 1);
        e->failed = false;
        must_submit(&w, &tickets[1]); // and it goes on
        want[1] = must_wait(e, tickets[1]);
        seq_free(s);
        s = open_masked(e, &m, &set);
        struct decoded again[2];
        answer(s, f.tokens, 2, 0, again);
        for (int i = 0; i < 2; i++)
            assert_alike(&want[i], &again[i]);
        seq_free(s);
        seq_free(other);
    }
    engine_free(e);
    close_model(&f);
}

// ---- answers

struct answering {
    const struct engine *e;
    struct cancel cancel;
    size_t n, n_ahead, cancel_at;
};

static void on_token(void *user, const struct decoded *d)
{
    struct answering *a = user;
    (void)d;
    a->n_ahead += a->e->core->n_asks;
    a->cancel.asked = ++a->n == a->cancel_at;
}

static bool grammar_mask_of(void *user, const int32_t *drafts, size_t n, uint32_t *allow,
                            struct error *err)
{
    (void)drafts, (void)n;
    return constraint_mask(user, SIZE_MAX, allow, err);
}

// The answer to a prompt, by generate() or a schedule of one. Returns the
// sequence with it; NULL: the schedule's is gone.
static struct seq *answer_by(bool scheduled, struct engine *e, struct session *s,
                             const struct ids *prompt, const struct generate_params *p,
                             struct generated *out)
{
    struct error err = {0};
    struct schedule all;
    struct task task = {.prompt = prompt, .p = p, .g = out};
    bool ok;
    if (!scheduled) {
        ok = session_init(s, e, &err) && session_sync(s, prompt->data, prompt->len, NULL, &err) &&
             generate(s, p, out, &err);
        if (!ok)
            fail_msg("%s", err.text);
        return s->seq;
    }
    ok = schedule_init(&all, e, 1, NULL, p->cancel, &err) && schedule_add(&all, &task, &err);
    while (ok && !task.done)
        ok = schedule_step(&all, &err);
    if (!(ok && task.error.code == ERR_NONE) && err.code != ERR_INTERRUPTED)
        fail_msg("%s%s", err.text, task.error.text);
    schedule_release(&all);
    return NULL;
}

// generate() and a schedule of one submit a pick ahead of each that another may follow, and give
// what is picked step by step, wherever the answer ends.
static void an_answer_is_what_its_grammar_allows_step_by_step(void **state)
{
    (void)state;
    static const char gbnf[] = "root ::= (\"ab\" | [^a-m] [a-c]*){1,12} \"!\"";
    enum { MOST = 24 };
    struct fixture f;
    struct error err = {0};
    open_model(&f, "llama");
    const struct tokenizer *tok = f.m->tokenizer;
    struct grammar *g = grammar_from_gbnf(gbnf, strlen(gbnf), NULL, &err);
    struct constraint *c = g ? constraint_create(g, NULL, tok, TINY_VOCAB, false, &err) : NULL;
    if (!c)
        fail_msg("%s", err.text);
    struct engine *e = open_for(f.m, false);
    for (unsigned k = 0; k < 20; k++) {
        const bool scheduled = k % 2;
        const struct sampler_settings set = settings_of(k / 2 % N_SETTINGS);
        static const int64_t lengths[] = {1, 2, 7, MOST, MOST};
        struct answering a = {.e = e, .cancel_at = k / 2 % 5 == 4 ? 4 : 0};
        const struct generate_params p = {.sampler = &set,
                                          .tok = tok,
                                          .n_predict = lengths[k / 2 % 5],
                                          .n_probs = 2,
                                          .constraint = c,
                                          .cancel = &a.cancel,
                                          .on_token = on_token,
                                          .user = &a};
        struct generated out;
        struct session s;
        struct ids prompt = {0};
        assert_true(ids_append(&prompt, f.tokens + k, N_PROMPT));
        constraint_begin(c, NULL, false);
        struct seq *left = answer_by(scheduled, e, &s, &prompt, &p, &out);
        const size_t n = out.ids.len;
        assert_true(n > 0 && n == a.n);
        assert_int_equal(e->core->n_asks, 0);
        // none is ahead of the last that may be sampled
        assert_int_equal(a.n_ahead, n - (n == (size_t)p.n_predict));
        constraint_begin(c, NULL, false);
        struct sampling how = {.sampler = &set, .mask = grammar_mask_of, .mask_user = c};
        how.stop_ids = tokenizer_end_ids(tok, &how.n_stop_ids);
        struct seq *b = seq_open(e, 0, &err);
        assert_true(b && seq_sampling(b, &how, &err));
        struct work w = {b, prompt.data, N_PROMPT, .n_pick = 1};
        for (size_t i = 0; i < n; i++) {
            uint64_t ticket;
            must_submit(&w, &ticket);
            assert_int_equal(must_wait(e, ticket).id, out.ids.data[i]);
            assert_true(constraint_accept(c, out.ids.data[i], &err));
            w = one_more(b);
        }
        if (left)
            assert_go_on_alike(left, b);
        seq_free(b);
        generated_release(&out);
        ids_release(&prompt);
        if (left)
            session_release(&s);
    }
    engine_free(e);
    constraint_free(c);
    close_model(&f);
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_decides_what_is_sampled),
        cmocka_unit_test(the_device_ahead_picks_the_same),
        cmocka_unit_test(a_step_does_not_wait_for_the_host),
        cmocka_unit_test(what_fails_or_stops_ends_a_run_that_is_ahead),
        cmocka_unit_test(an_interrupted_wait_may_be_repeated),
        cmocka_unit_test(only_one_pick_is_ahead_and_nothing_comes_between),
        cmocka_unit_test(an_answer_is_what_its_grammar_allows_step_by_step),
    };
    return RUN_TESTS("masks", tests);
}
