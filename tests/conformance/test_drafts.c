// Work that brings drafts: whatever they are, what is sampled is what is sampled without, bit for
// bit, and so is what the sequence then holds. `test_drafts FAMILY` on the CPU, `test_drafts FAMILY
// cuda`: an exact engine, of which that is promised, too.
#include "sequences.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/backend.h"

enum { N_PROMPT = 40, MOST_ANSWER = 60, N_CTX = 256, N_SHOWN = 3 };

static size_t n_drawn = MOST_ANSWER; // tokens of an answer

static int32_t prompt[N_PROMPT];

struct way {
    const char *name;
    struct sampler_settings set;
    bool stops;  // at an id that the answer has
    bool masked; // each token depends on the one before it
};

static struct sampler_settings settings(float temp)
{
    struct sampler_settings s = sampler_defaults;
    s.seed = 11;
    s.temp = temp;
    return s;
}

static size_t make_ways(struct way *w)
{
    size_t n = 0;
    static const float temps[] = {0, 0.3f, 0.8f, 1.5f};
    for (size_t i = 0; i < 4; i++)
        w[n++] = (struct way){"temperature", settings(temps[i]), i % 2 > 0};
    w[n] = (struct way){"penalties", settings(0.7f), false};
    w[n].set.repeat_penalty = 1.3f;
    w[n].set.presence_penalty = 0.4f;
    w[n++].set.frequency_penalty = 0.6f;
    w[n] = (struct way){"dry", settings(0), false};
    w[n].set.dry_multiplier = 1.5f;
    w[n++].set.dry_allowed_length = 1;
    w[n] = (struct way){"xtc", settings(1), false};
    w[n].set.xtc_probability = 0.7f;
    w[n++].set.xtc_threshold = 0.02f;
    w[n] = (struct way){"typical", settings(1.2f), false};
    w[n].set.typical = 0.6f;
    w[n].set.min_p = 0;
    w[n++].set.top_k = 0;
    w[n++] = (struct way){"a mask", settings(0.9f), false, true};
    w[n] = (struct way){"top-nsigma", settings(1.1f), true};
    w[n++].set.top_n_sigma = 1.5f;
    w[n] = (struct way){"a mask and top-nsigma", settings(1.1f), false, true};
    w[n++].set.top_n_sigma = 1.5f;
    return n;
}

// What was waited for of a sequence under a mask.
struct known {
    int32_t last;
    size_t len;
};

// A fourth of the tokens, another one at each place and after each token.
static bool some(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err)
{
    const struct known *k = user;
    const uint32_t before = (uint32_t)(n > 0 ? drafts[n - 1] : k->last),
                   n_vocab = model->hp.n_vocab;
    (void)err;
    memset(allow, 0, (n_vocab + 31) / 32 * sizeof *allow);
    for (uint32_t id = 0; id < n_vocab; id++)
        if ((id + 5 * before + 3 * (k->len + n)) % 4 == 0)
            allow[id / 32] |= 1u << (id % 32);
    return true;
}

static void set_sampling(struct seq *s, const struct way *w, const int32_t *stop, struct known *k)
{
    struct error err = {0};
    struct sampling how = {
        .sampler = &w->set, .n_probs = N_SHOWN, .stop_ids = stop, .n_stop_ids = stop != NULL};
    if (w->masked) {
        how.mask = some;
        how.mask_user = k;
        *k = (struct known){0, N_PROMPT};
    }
    if (!seq_sampling(s, &how, &err))
        fail_msg("%s", err.text);
}

static void assert_same(const struct way *w, size_t at, const struct decoded *a,
                        const struct decoded *b)
{
    bool same = a->id == b->id && a->n_top == b->n_top && a->logprob == b->logprob;
    for (size_t i = 0; same && i < N_SHOWN; i++)
        same = a->top[i].id == b->top[i].id && a->top[i].logprob == b->top[i].logprob;
    if (!same)
        fail_msg("%s %g: token %zu is %d (%g), without drafts %d (%g)", w->name, w->set.temp, at,
                 a->id, a->logprob, b->id, b->logprob);
}

// The answer without drafts; keys and values of all tokens but the last.
static void answer_plainly(struct seq *s, const struct way *w, struct decoded *d)
{
    struct work work = {.seq = s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    struct known known;
    set_sampling(s, w, NULL, &known);
    for (size_t i = 0; i < n_drawn; i++) {
        pick(s, &work, &d[i]);
        known = (struct known){d[i].id, seq_len(s)};
        work = (struct work){.seq = s, .n = 1, .n_pick = 1};
    }
}

static void assert_same_bytes(struct seq *a, struct seq *b)
{
    const size_t end = seq_n_past(a) < seq_n_past(b) ? seq_n_past(a) : seq_n_past(b);
    const size_t n = engine_kv_bytes(seq_engine(a), 0, end);
    unsigned char *x = malloc(2 * n);
    struct error err = {0};
    assert_non_null(x);
    if (!seq_export(a, 0, end, x, &err) || !seq_export(b, 0, end, x + n, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(x, x + n, n);
    free(x);
}

// Drafts: the next tokens as they will be, but wrong from one on, at random (or behind the last).
// As many picks as there are right ones, and one more, up to a stop id.
static void drafts_change_no_bit_of_an_answer(void **state)
{
    (void)state;
    struct way ways[16];
    const size_t n_ways = make_ways(ways);
    // (The emulation is slow.)
    const size_t each = !on_cuda ? 1 : quick() ? 9 : 3;
    size_t n_steps = 0, n_more = 0;
    for (size_t k = 0; k < n_ways; k++) {
        const struct way *w = &ways[k];
        if (k % each > 0 && !w->masked)
            continue;
        struct engine *e = open_for(1, N_CTX, 64);
        struct seq *plain = open_seq(e), *s = open_seq(e);
        struct decoded want[MOST_ANSWER + 1] = {0}, got[1 + ENGINE_MAX_DRAFTS];
        answer_plainly(plain, w, want);
        size_t n_answer = n_drawn;
        int32_t stop = want[n_drawn / 2].id;
        for (size_t i = 0; w->stops && i < n_answer; i++)
            if (want[i].id == stop)
                n_answer = i + 1;
        struct known known;
        set_sampling(s, w, w->stops ? &stop : NULL, &known);
        struct work work = {.seq = s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
        pick(s, &work, got);
        assert_same(w, 0, got, want);
        for (size_t at = 1; at < n_answer;) {
            int32_t drafts[ENGINE_MAX_DRAFTS];
            known = (struct known){seq_ids(s)[seq_len(s) - 1], seq_len(s)};
            const size_t n = below(1 + ENGINE_MAX_DRAFTS), wrong = below(2 + ENGINE_MAX_DRAFTS);
            size_t n_right = 0;
            for (size_t i = 0; i < n; i++) {
                const int32_t right = at + i < n_drawn ? want[at + i].id : 0;
                drafts[i] = i == wrong ? (right + 1) % (int32_t)model->hp.n_vocab : right;
                n_right += i == n_right && i != wrong && at + i + 1 < n_answer;
            }
            if (seq_max_drafts(s) == 0)
                n_right = 0; // a state is evaluated again first
            work = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = n};
            pick(s, &work, got);
            size_t n_picks = 0;
            while (n_picks <= n && got[n_picks].id >= 0) {
                if (at < n_drawn)
                    assert_same(w, at, &got[n_picks], &want[at]);
                at++;
                n_picks++;
            }
            if (at <= n_drawn)
                assert_int_equal(n_picks, 1 + n_right);
            for (size_t i = n_picks; i <= n; i++)
                assert_int_equal(got[i].id, -1);
            assert_int_equal(seq_len(s), N_PROMPT + at);
            assert_int_equal(seq_n_past(s), seq_len(s) - 1);
            n_steps++;
            n_more += n_picks - 1;
            // Back by some tokens, as an answer is taken back.
            if (at < n_answer && below(5) == 0) {
                const size_t back = below(at < 6 ? (uint32_t)at : 6);
                seq_trim(s, N_PROMPT + at - back);
                at -= back;
                if (seq_n_past(s) == seq_len(s)) { // the last was evaluated: its logits are gone
                    const int32_t last = seq_ids(s)[seq_len(s) - 1];
                    seq_trim(s, seq_len(s) - 1);
                    known = (struct known){last, seq_len(s) + 1};
                    work = (struct work){.seq = s, .ids = &last, .n = 1, .n_pick = 1};
                    pick(s, &work, got);
                    if (at < n_drawn)
                        assert_same(w, at, got, &want[at]);
                    at++;
                }
            }
        }
        if (e->n_states == 0)
            assert_same_bytes(plain, s);
        seq_free(plain);
        seq_free(s);
        engine_free(e);
    }
    assert_true(n_steps > 0 && n_more > 0);
}

// The newest state, of a model that has any.
static unsigned char *newest_state(struct seq *s, size_t *n)
{
    struct error err = {0};
    size_t pos = 0;
    *n = engine_state_bytes(seq_engine(s));
    unsigned char *state = malloc(*n + 1);
    assert_non_null(state);
    if (*n > 0) {
        assert_int_equal(seq_states(s, &pos, 1), 1);
        assert_int_equal(pos, seq_n_past(s));
        if (!seq_export_state(s, pos, state, &err))
            fail_msg("%s", err.text);
    }
    return state;
}

static struct backend counted;
static bool (*eval_counted)(struct engine *e, struct engine_part *parts, size_t n_parts,
                            const struct cancel *cancel, struct error *err);
static size_t n_passes;

static bool count_pass(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel, struct error *err)
{
    n_passes++;
    return eval_counted(e, parts, n_parts, cancel, err);
}

static void count_passes(struct engine *e)
{
    counted = *e->core->backend;
    eval_counted = counted.eval_parts;
    counted.eval_parts = count_pass;
    e->core->backend = &counted;
    n_passes = 0;
}

// Three sequences of one engine: one has drafts, the others have their tokens in passes of both.
// After each step all bits of the state are those of a sequence that had no drafts and no company;
// and a GPU made one pass, whatever became of the drafts.
static void drafts_between_passes_of_others_leave_the_same_state(void **state)
{
    (void)state;
    enum { N = 30 };
    struct engine *e = open_for(3, 3 * N_CTX, 64), *alone = open_for(1, N_CTX, 64);
    struct seq *s = open_seq(e), *others[2] = {open_seq(e), open_seq(e)}, *plain = open_seq(alone);
    struct decoded got[1 + ENGINE_MAX_DRAFTS], want[N + 1], aside[2];
    const struct way w = {"beside others", settings(0.8f), false};
    struct error err = {0};
    uint64_t ticket;
    size_t n_back = 0;
    const struct backend *backend = e->core->backend;
    for (int i = 0; i < 2; i++) {
        const struct work first = {.seq = others[i], .ids = prompt + i, .n = 9, .n_pick = 1};
        pick(others[i], &first, aside);
    }
    struct work work = {.seq = plain, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    set_sampling(plain, &w, NULL, NULL);
    for (size_t i = 0; i <= N; i++) {
        pick(plain, &work, &want[i]);
        work = (struct work){.seq = plain, .n = 1, .n_pick = 1};
    }
    seq_trim(plain, 0);
    work = (struct work){.seq = plain, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    pick(plain, &work, &want[0]);
    work.seq = s;
    set_sampling(s, &w, NULL, NULL);
    pick(s, &work, got);
    assert_same(&w, 0, got, want);
    for (size_t at = 1, step = 0; at + ENGINE_MAX_DRAFTS < N; step++) {
        int32_t drafts[ENGINE_MAX_DRAFTS];
        // Mostly as many rows as the others have together: passes of both kinds become graphs.
        const size_t n = step % 3 == 2 ? 1 + below(ENGINE_MAX_DRAFTS) : 1, right = step % 3;
        for (size_t i = 0; i < n; i++)
            drafts[i] = (want[at + i].id + (i >= right)) % (int32_t)model->hp.n_vocab;
        work = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = n};
        count_passes(e);
        pick(s, &work, got);
        e->core->backend = backend;
        assert_int_equal(n_passes, 1 + (n > right && e->n_states > 0 && !on_cuda));
        size_t n_more = 0;
        while (n_more < n && got[1 + n_more].id >= 0)
            n_more++;
        assert_int_equal(n_more, right < n ? right : n);
        n_back += n_more < n;
        for (size_t i = 0; i <= n_more; i++, at++) {
            assert_same(&w, at, &got[i], &want[at]);
            work = (struct work){.seq = plain, .n = 1, .n_pick = 1};
            pick(plain, &work, &aside[0]);
            assert_int_equal(aside[0].id, want[at].id);
        }
        size_t n_bytes;
        unsigned char *a = newest_state(s, &n_bytes), *b = newest_state(plain, &n_bytes);
        assert_int_equal(seq_n_past(s), seq_n_past(plain));
        assert_memory_equal(a, b, n_bytes);
        free(a);
        free(b);
        const struct work both[2] = {{.seq = others[0], .n = 1, .n_pick = 1},
                                     {.seq = others[1], .n = 1, .n_pick = 1}};
        if (!engine_submit(e, both, 2, NULL, &ticket, &err) ||
            !engine_wait(e, ticket, NULL, aside, &err))
            fail_msg("%s", err.text);
    }
    assert_true(n_back > 0);
    // Their drafts left alone the states of others, too.
    for (int i = 0; i < 2; i++) {
        struct seq *fresh = open_seq(alone);
        struct decoded d[2];
        const int32_t last = seq_ids(others[i])[seq_len(others[i]) - 1];
        seq_trim(plain, 0);
        go_on(fresh, seq_ids(others[i]), seq_len(others[i]), &d[0]);
        seq_trim(others[i], seq_len(others[i]) - 1);
        go_on(others[i], &last, 1, &d[1]);
        assert_alike(&d[0], &d[1]);
        seq_free(fresh);
        seq_free(others[i]);
    }
    seq_free(s);
    seq_free(plain);
    engine_free(e);
    engine_free(alone);
}

// One of several answers under way, and what it is alone.
struct answer {
    struct way way;
    struct seq *s;
    struct known known;
    struct decoded want[MOST_ANSWER];
    size_t at;
    int32_t drafts[ENGINE_MAX_DRAFTS];
    size_t n_drafts, n_right;
};

// Guesses of what comes next, right up to one; work for it.
static struct work guessed_work(struct answer *a)
{
    const size_t n = below(1 + ENGINE_MAX_DRAFTS), wrong = below(2 + ENGINE_MAX_DRAFTS);
    a->known = (struct known){seq_ids(a->s)[seq_len(a->s) - 1], seq_len(a->s)};
    a->n_drafts = a->n_right = 0;
    while (a->n_drafts < n && a->at + a->n_drafts < n_drawn) {
        const size_t i = a->n_drafts++;
        a->drafts[i] = (a->want[a->at + i].id + (i == wrong)) % (int32_t)model->hp.n_vocab;
        a->n_right += i == a->n_right && i != wrong && a->at + i + 1 < n_drawn;
    }
    if (seq_max_drafts(a->s) == 0)
        a->n_right = 0;
    return (struct work){
        .seq = a->s, .n = 1, .n_pick = 1, .drafts = a->drafts, .n_drafts = a->n_drafts};
}

// Three answers in one pass, each with guesses of its own, right or wrong, and a prompt that is
// read beside them; one goes back by some tokens now and then, another ends before the others.
static void drafts_of_several_in_one_pass_change_no_bit(void **state)
{
    (void)state;
    enum { N = 3, N_READ = 5 };
    static int32_t text[N_CTX];
    static struct answer a[N];
    struct engine *e = open_for(N + 1, (N + 1) * N_CTX, 128), *alone = open_for(1, N_CTX, 64);
    struct seq *reader = open_seq(e);
    struct decoded got[N * (1 + ENGINE_MAX_DRAFTS)], d;
    const struct backend *backend = e->core->backend;
    struct error err = {0};
    uint64_t ticket;
    size_t n_more = 0, n_together = 0, n_wrong = 0;
    random_ids(text, N_CTX);
    a[0].way = (struct way){"of several", settings(0.8f), false};
    a[1].way = (struct way){"of several, a mask", settings(1), false, true};
    a[2].way = (struct way){"of several, penalties", settings(0.7f), false};
    a[2].way.set.repeat_penalty = 1.3f;
    for (size_t k = 0; k < N; k++) {
        struct seq *plain = open_seq(alone);
        answer_plainly(plain, &a[k].way, a[k].want);
        seq_free(plain);
        a[k].s = open_seq(e);
        set_sampling(a[k].s, &a[k].way, NULL, &a[k].known);
        const struct work first = {.seq = a[k].s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
        pick(a[k].s, &first, got);
        assert_same(&a[k].way, 0, got, a[k].want);
        a[k].at = 1;
    }
    for (size_t step = 0, n = 1; n > 0; step++) {
        struct work w[N + 1];
        struct answer *of[N];
        bool back = false;
        n = 0;
        for (size_t k = 0; k < N; k++)
            if (a[k].at < n_drawn) {
                w[n] = guessed_work(&a[k]);
                of[n++] = &a[k];
            }
        if (n == 0)
            break;
        const bool reads = step % 3 == 0 && seq_len(reader) + N_READ <= N_CTX;
        if (reads)
            w[n] = (struct work){.seq = reader, .ids = text + seq_len(reader), .n = N_READ};
        // All of them are looked at.
        struct work fits[N + 1];
        memcpy(fits, w, sizeof w);
        engine_fit_drafts(e, fits, n + reads);
        for (size_t i = 0; i < n; i++)
            assert_true(fits[i].n_drafts == w[i].n_drafts || seq_max_drafts(w[i].seq) == 0);
        count_passes(e);
        if (!engine_submit(e, w, n + reads, NULL, &ticket, &err) ||
            !engine_wait(e, ticket, NULL, got, &err))
            fail_msg("%s", err.text);
        e->core->backend = backend;
        const struct decoded *next = got;
        for (size_t i = 0; i < n; i++, next += 1 + of[i - 1]->n_drafts) {
            size_t n_picks = 0;
            while (n_picks <= of[i]->n_drafts && next[n_picks].id >= 0) {
                if (of[i]->at < n_drawn)
                    assert_same(&of[i]->way, of[i]->at, &next[n_picks], &of[i]->want[of[i]->at]);
                of[i]->at++;
                n_picks++;
            }
            if (of[i]->at <= n_drawn)
                assert_int_equal(n_picks, 1 + of[i]->n_right);
            for (size_t k = n_picks; k <= of[i]->n_drafts; k++)
                assert_int_equal(next[k].id, -1);
            assert_int_equal(seq_len(of[i]->s), N_PROMPT + of[i]->at);
            assert_int_equal(seq_n_past(of[i]->s) + 1, seq_len(of[i]->s));
            back |= n_picks <= of[i]->n_drafts;
            n_more += n_picks - 1;
            n_together += n_picks > 1 && n > 1;
            n_wrong += n_picks <= of[i]->n_drafts;
        }
        // What has states and goes back is evaluated again, of all in one pass.
        assert_true(n_passes <= 1 || (back && n_passes == 2 && e->n_states > 0 && !on_cuda));
        if (a[1].at > 9 && below(4) == 0 && a[1].at < n_drawn) {
            const size_t n_back = 1 + below(5);
            a[1].at -= n_back;
            seq_trim(a[1].s, N_PROMPT + a[1].at - 1);
            const int32_t last = a[1].want[a[1].at - 1].id;
            assert_true(seq_append(a[1].s, &last, 1, &err));
        }
    }
    assert_true(n_more > 0 && n_together > 0 && n_wrong > 0);
    // Each is what it would be, the prompt too.
    for (size_t k = 0; k <= N; k++) {
        struct seq *s = k < N ? a[k].s : reader, *fresh = open_seq(alone);
        struct decoded want;
        const size_t len = seq_len(s);
        const int32_t last = seq_ids(s)[len - 1];
        const struct sampling plainly = {.sampler = &sampler_defaults, .n_probs = N_PROBS};
        assert_true(seq_sampling(s, &plainly, &err));
        go_on(fresh, seq_ids(s), len, &want);
        if (seq_n_past(s) < len) {
            const struct work w = {.seq = s, .n = 1, .n_pick = 1};
            pick(s, &w, &d);
        } else {
            seq_trim(s, len - 1);
            go_on(s, &last, 1, &d);
        }
        assert_alike(&d, &want);
        seq_free(fresh);
        seq_free(s);
    }
    engine_free(e);
    engine_free(alone);
}

#ifdef HOKKU_CUDA_ON_CPU
static uint64_t free_bytes(void)
{
    const struct engine_params p = {.n_ctx = N_CTX, .exact = true};
    struct engine_plan plan;
    struct error err = {0};
    if (!cuda_engine_plan(model, &p, &plan, &err))
        fail_msg("%s", err.text);
    return plan.available;
}

// Kernels are loaded, too, which takes memory when it is first done.
static void what_drafts_need_was_taken_when_the_engine_was_opened(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64);
    const uint64_t before = free_bytes();
    struct seq *s = open_seq(e);
    struct decoded d[3];
    struct work w = {.seq = s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    pick(s, &w, d);
    for (int i = 0; i < 2; i++) {
        const int32_t drafts[2] = {(d->id + 1) % (int32_t)model->hp.n_vocab};
        w = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = 2};
        pick(s, &w, d);
    }
    assert_int_equal(free_bytes(), before);
    seq_free(s);
    engine_free(e);
}
#endif

// An answer that has drafts at each step, of which few stay.
static void a_long_answer_can_be_cut_near_to_where_it_was(void **state)
{
    (void)state;
    enum { N = 1200, EVERY = 512 };
    struct engine *e = open_for(1, 2048, 64);
    struct seq *s = open_seq(e);
    struct decoded d[2];
    struct work w = {.seq = s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    for (size_t i = 0; i < N; i++) {
        pick(s, &w, d);
        static int32_t draft;
        draft = (d->id + 1) % (int32_t)model->hp.n_vocab;
        w = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = &draft, .n_drafts = 1};
    }
    for (size_t n = seq_len(s) - 1; n > N_PROMPT; n = n > 100 ? n - 100 : 0) {
        seq_trim(s, n);
        assert_in_range(seq_n_past(s), n > EVERY + 8 ? n - EVERY - 8 : 0, n);
    }
    seq_free(s);
    engine_free(e);
}

// Layers with a window have given up what is behind it, and more with each row.
static void drafts_behind_a_long_text_change_nothing(void **state)
{
    (void)state;
    enum { N_LONG = 2500, N = 24, CTX = 16384 };
    static int32_t text[N_LONG];
    struct engine *e[2];
    struct decoded want[N], got[1 + ENGINE_MAX_DRAFTS];
    const struct way w = {"behind a long text", settings(1), false};
    random_ids(text, N_LONG);
    for (int k = 0; k < 2; k++)
        e[k] = open_for(1, CTX, 64);
    struct seq *plain = open_seq(e[0]), *s = open_seq(e[1]);
    struct work work = {.seq = plain, .ids = text, .n = N_LONG, .n_pick = 1};
    set_sampling(plain, &w, NULL, NULL);
    for (size_t i = 0; i < N; i++) {
        pick(plain, &work, &want[i]);
        work = (struct work){.seq = plain, .n = 1, .n_pick = 1};
    }
    work = (struct work){.seq = s, .ids = text, .n = N_LONG, .n_pick = 1};
    set_sampling(s, &w, NULL, NULL);
    pick(s, &work, got);
    for (size_t at = 1; at < N;) {
        int32_t drafts[4];
        for (size_t i = 0; i < 4; i++) // of which the last is wrong
            drafts[i] = at + i < N && i < 3 ? want[at + i].id : 0;
        work = (struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = 4};
        pick(s, &work, got);
        for (size_t i = 0; i <= 4 && got[i].id >= 0; i++, at++)
            if (at < N)
                assert_same(&w, at, &got[i], &want[at]);
        assert_int_equal(seq_n_past(s) + 1, seq_len(s));
    }
    seq_free(plain);
    seq_free(s);
    engine_free(e[0]);
    engine_free(e[1]);
}

// Tokens become NaN. A draft that was not sampled may do so; what was sampled is told as it is
// without drafts, and nothing is lost.
static void what_fails_beside_drafts_fails_as_without(void **state)
{
    (void)state;
    if (model->output.data == model->tok_embd.data)
        return; // tied: then there would be no logits at all
    const size_t row_bytes = (size_t)model->tok_embd.n_cols * 2; // float16
    unsigned char *const rows = (unsigned char *)model->tok_embd.data;
    struct engine *e = open_for(1, 1024, 64);
    struct seq *s[2] = {open_seq(e), open_seq(e)};
    struct decoded d[4], want[3];
    struct error err[2] = {0};
    uint64_t ticket;
    const struct work first = {.seq = s[0], .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    for (int k = 0; k < 2; k++) {
        struct work w = first;
        w.seq = s[k];
        pick(s[k], &w, d);
    }
    struct work plain = {.seq = s[0], .n = 1, .n_pick = 1};
    pick(s[0], &plain, &want[0]);
    const int32_t draft = (want[0].id + 1) % (int32_t)model->hp.n_vocab;
    const int32_t drafts[3] = {draft, draft, draft};
    struct work guessed = {.seq = s[1], .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = 3};
    unsigned char kept[2][4096];
    assert_true(row_bytes <= sizeof kept[0] && want[0].id != draft);
    for (int k = 0; k < 2; k++) {
        unsigned char *row = rows + (size_t)(k == 0 ? draft : want[0].id) * row_bytes;
        memcpy(kept[k], row, row_bytes);
        memset(row, 0xff, row_bytes);
    }
    assert_int_equal(seq_max_drafts(s[1]), ENGINE_MAX_DRAFTS); // (it was not paused)
    pick(s[1], &guessed, d);
    assert_int_equal(d[0].id, want[0].id);
    assert_int_equal(d[1].id, -1);
    for (int k = 0; k < 2; k++) {
        const size_t len = seq_len(s[k]);
        assert_false(engine_submit(e, k == 0 ? &plain : &guessed, 1, NULL, &ticket, &err[k]) &&
                     engine_wait(e, ticket, NULL, d, &err[k]));
        assert_int_equal(seq_len(s[k]), len);
    }
    assert_int_equal(err[0].code, ERR_FAIL);
    assert_string_equal(err[1].text, err[0].text);
    // Beside another one, which goes on: both have guesses.
    struct seq *sound = open_seq(e);
    struct work both[2] = {guessed, guessed};
    const struct work other = {.seq = sound, .ids = prompt, .n = 9, .n_pick = 1};
    struct decoded of_both[8] = {0};
    struct error beside = {0};
    pick(sound, &other, &of_both[0]);
    assert_int_not_equal(of_both[0].id, draft);
    if (of_both[0].id != want[0].id) {
        seq_trim(s[1], seq_len(s[1]) - 1);
        assert_true(seq_append(s[1], &want[0].id, 1, &beside));
        both[1].seq = sound;
        assert_true(engine_submit(e, both, 2, NULL, &ticket, &beside));
        assert_false(engine_wait(e, ticket, NULL, of_both, &beside));
        assert_string_equal(beside.text, err[0].text);
        assert_true(of_both[0].id == -1 && of_both[4].id >= 0);
        assert_true(of_both[5].id == -1); // (what is behind a draft is none)
        assert_int_equal(seq_len(sound), 9 + 2);
    }
    seq_free(sound);
    for (int k = 0; k < 2; k++)
        memcpy(rows + (size_t)(k == 0 ? draft : want[0].id) * row_bytes, kept[k], row_bytes);
    for (int k = 0; k < 2; k++) {
        seq_trim(s[k], N_PROMPT);
        struct work again = first;
        again.seq = s[k];
        pick(s[k], &again, &want[1 + k]);
    }
    assert_int_equal(want[1].id, want[2].id);
    for (int k = 0; k < 2; k++)
        seq_free(s[k]);
    engine_free(e);
}

static bool refused(struct engine *e, const struct work *w, const char *why)
{
    struct error err = {0};
    uint64_t ticket;
    return !engine_submit(e, w, 1, NULL, &ticket, &err) && err.code == ERR_FAIL &&
           strstr(err.text, why);
}

static void drafts_that_nobody_can_check_are_left_out_or_refused(void **state)
{
    (void)state;
    struct engine *e = open_for(1, 64, 64);
    struct seq *s = open_seq(e);
    struct decoded d[1 + ENGINE_MAX_DRAFTS + 1];
    int32_t drafts[ENGINE_MAX_DRAFTS + 1] = {0};
    const struct work good = {.seq = s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = 3};
    struct work w = {.seq = s, .ids = prompt, .n = N_PROMPT, .n_pick = 1};
    pick(s, &w, d);
    w = good;
    w.ids = prompt;
    assert_true(refused(e, &w, "without ids"));
    w = good;
    w.n_drafts = ENGINE_MAX_DRAFTS + 1;
    assert_true(refused(e, &w, "8 drafts, expected at most 7"));
    drafts[2] = (int32_t)model->hp.n_vocab;
    assert_true(refused(e, &good, "as a draft, expected 0 to"));
    drafts[2] = 0;
    assert_int_equal(seq_max_drafts(s), ENGINE_MAX_DRAFTS);
    struct error err = {0};
    // The context ends.
    while (seq_len(s) < 64) {
        w = (struct work){.seq = s, .n = 1, .n_pick = 1};
        pick(s, &w, d);
        assert_true(seq_max_drafts(s) <= 64 - seq_len(s));
    }
    assert_int_equal(seq_max_drafts(s), 0);
    pick(s, &good, d);
    assert_true(d[0].id >= 0 && d[1].id == -1);
    // Picks that nobody has waited for.
    uint64_t ticket;
    seq_trim(s, 50);
    assert_true(seq_append(s, prompt, 2, &err));
    w = (struct work){.seq = s, .ids = prompt, .n = 1, .n_pick = 1};
    assert_true(engine_submit(e, &w, 1, NULL, &ticket, &err));
    assert_int_equal(seq_max_drafts(s), 0);
    seq_free(s);
    engine_free(e);
}

int main(int argc, char **argv)
{
    char path[1024];
    struct error err = {0};
    exact = true;
    use_device(argc > 2 ? argv[2] : "cpu");
    if (!find_family(argc > 1 ? argv[1] : "gemma3", path))
        return 0;
    struct buf file = {0}; // in memory of our own: a test spoils it
    struct gguf *g = file_read(path, SIZE_MAX, &file, &err)
                         ? gguf_open_memory(file.data, file.len, path, &err)
                         : NULL;
    model = g ? model_from_gguf(g, path, &err) : NULL;
    if (!model) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    n_threads = 1;
    if (quick())
        n_drawn = 20;
    random_ids(prompt, N_PROMPT);
    const struct CMUnitTest tests[] = {
#ifdef HOKKU_CUDA_ON_CPU
        cmocka_unit_test(what_drafts_need_was_taken_when_the_engine_was_opened),
#endif
        cmocka_unit_test(drafts_change_no_bit_of_an_answer),
        cmocka_unit_test(drafts_that_nobody_can_check_are_left_out_or_refused),
        cmocka_unit_test(drafts_between_passes_of_others_leave_the_same_state),
        cmocka_unit_test(drafts_of_several_in_one_pass_change_no_bit),
        // on the CPU alone, where a long text and other weights cost little
        cmocka_unit_test(a_long_answer_can_be_cut_near_to_where_it_was),
        cmocka_unit_test(drafts_behind_a_long_text_change_nothing),
        cmocka_unit_test(what_fails_beside_drafts_fails_as_without),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const size_t n_tests = sizeof tests / sizeof *tests - (on_cuda ? 3 : 0);
    const int failed = _cmocka_run_group_tests("drafts", tests, n_tests, NULL, NULL);
    model_free(model);
    buf_release(&file);
    return failed;
}
