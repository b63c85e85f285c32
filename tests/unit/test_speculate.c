// Guesses from a text's own past and from a draft model, whether they pay, and that no answer of
// the built-in model depends on them. `test_speculate cuda`: prediction layers on exact engines of
// a GPU.
#include "test.h"

#include <stdlib.h>

#include "engine/backend.h"
#include "engine/session.h"
#include "vectors.h"

enum { N_TEXT = 400, MOST = ENGINE_MAX_DRAFTS };

static void what_followed_the_longest_run_is_guessed(void **state)
{
    (void)state;
    static const int32_t run[] = {11, 12, 13, 14, 15, 16, 17, 18};
    struct ngram g;
    struct error err = {0};
    int32_t text[N_TEXT], out[MOST];
    size_t n = 0, length = 9;
    assert_true(ngram_init(&g, &err));
    for (size_t i = 0; i < 8; i++)
        text[n++] = run[i];
    text[n++] = 100; // after eight
    for (size_t i = 0; i < 9; i++)
        text[n++] = 200 + (int32_t)i;
    for (size_t i = 5; i < 8; i++)
        text[n++] = run[i];
    text[n++] = 300; // after the last three, later
    text[n++] = 301;
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ngram_guess(&g, text, n, MOST, out, &length), i < 3 ? 0 : MOST);
        text[n++] = run[i];
    }
    // Whether the text came at once or token by token.
    for (int k = 0; k < 2; k++, ngram_forget(&g)) {
        assert_int_equal(ngram_guess(&g, text, n, 3, out, &length), 3);
        assert_int_equal(length, 0);
        assert_int_equal(out[0], 100);
        assert_int_equal(out[2], 201);
    }
    text[n - 8] = 99; // the run has seven now, of which five are looked at
    assert_int_equal(ngram_guess(&g, text, n, 1, out, &length), 1);
    assert_int_equal(length, 1);
    assert_int_equal(out[0], 100);
    text[n - 4] = 98; // and three
    ngram_forget(&g);
    assert_int_equal(ngram_guess(&g, text, n, 2, out, &length), 2);
    assert_int_equal(length, 2);
    assert_int_equal(out[0], 300);
    text[n - 1] = 97;
    assert_int_equal(ngram_guess(&g, text, n, 2, out, &length), 0);
    ngram_release(&g);
}

static void what_repeats_is_guessed_to_go_on(void **state)
{
    (void)state;
    struct ngram g;
    struct error err = {0};
    int32_t text[6], out[MOST];
    size_t length;
    assert_true(ngram_init(&g, &err));
    for (int i = 0; i < 6; i++)
        text[i] = i % 2;
    assert_int_equal(ngram_guess(&g, text, 6, MOST, out, &length), MOST);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(out[i], i % 2);
    ngram_release(&g);
}

// A text that was cut and went on otherwise, without a word to the index, gives bad guesses at
// most.
static void any_text_may_be_asked_about(void **state)
{
    (void)state;
    struct ngram g;
    struct error err = {0};
    int32_t text[N_TEXT], out[MOST];
    size_t length;
    uint32_t seed = 1;
    assert_true(ngram_init(&g, &err));
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525 + 1013904223;
        const size_t n = 1 + (seed >> 8) % N_TEXT;
        for (size_t k = (seed >> 20) % n; k < n; k++)
            text[k] = (int32_t)((seed >> (k % 24)) & 3);
        if (i == 0)
            memset(text, 0, sizeof text);
        const size_t got = ngram_guess(&g, text, n, MOST, out, &length);
        for (size_t k = 0; k < got; k++)
            assert_in_range(out[k], 0, 3);
    }
    ngram_release(&g);
}

// Seconds of an answer of n tokens to a text that repeats itself, in which a guess comes true with
// that chance; a step takes 1, a draft that more.
static double simulate(size_t n, double chance, double draft_s, size_t *n_drafted)
{
    static struct engine_core core;
    struct engine e = {.core = &core, .n_ctx = (uint32_t)n + 64};
    const struct ids none = {0};
    struct speculation s;
    struct error err = {0};
    int32_t *text = malloc((n + 64) * sizeof *text);
    double seconds = 0;
    uint32_t seed = 7;
    size_t len = 24;
    assert_non_null(text);
    assert_true(speculation_init(&s, &e, NULL, &err));
    for (size_t i = 0; i < len; i++)
        text[i] = (int32_t)(i % 12);
    *n_drafted = 0;
    while (len < n + 24) {
        struct decoded d[1 + MOST];
        size_t k, got = 0;
        const struct seq so_far = {.engine = &e, .ids = {.data = text, .len = len}};
        assert_true(speculation_next(&s, &so_far, MOST, &none, NULL, &k, &err));
        assert_true(k <= MOST);
        // What is sampled is the guess, or what was never seen before, and then the text once more.
        for (bool right = true; right && got <= k; got++) {
            seed = seed * 1664525 + 1013904223;
            right = (seed >> 8) / (double)(1 << 24) < chance;
            const int32_t next = text[len - 12];
            d[got].id = right ? next : (int32_t)(1000 + len);
            right = right && got < k && s.guesses[got] == next;
            text[len++] = d[got].id;
        }
        speculation_step(&s, k, d, got, 1 + draft_s * (double)k);
        seconds += 1 + draft_s * (double)k;
        *n_drafted += k;
    }
    const double each = seconds / (double)(len - 24);
    speculation_release(&s);
    free(text);
    return each;
}

static void drafts_are_made_while_they_pay(void **state)
{
    (void)state;
    size_t n;
    // Rows that cost next to nothing, and guesses that come true.
    assert_true(simulate(1000, 1, 0.02, &n) < 0.3);
    assert_true(n > 500);
    assert_true(simulate(1000, 0.95, 0.1, &n) < 0.6);
    // Never slower than 0.97 of plain speed, whatever a row costs and how often guesses are right.
    static const double chances[] = {0, 0.2, 0.5, 0.8, 0.9, 1},
                        costs[] = {0, 0.05, 0.3, 0.7, 1, 1.5};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 6; k++) {
            const double each = simulate(2000, chances[i], costs[k], &n);
            if (each > 1 / 0.97)
                fail_msg("guesses right %g of the time, a draft costs %g of a step: a token takes "
                         "%g with %zu drafts",
                         chances[i], costs[k], each, n);
        }
    simulate(1000, 0, 0.02, &n);
    assert_int_equal(n, 0);
}

// Tokens a second of so many answers beside each other, by those without guesses: a pass takes 1, a
// draft that more. Every other answer is guessed with the second chance.
static double simulate_several(size_t width, const double chance[2], double draft_s, size_t n_steps,
                               size_t *n_drafted)
{
    struct spec_guard guards[ENGINE_MAX_PARTS];
    struct spec_row rows[ENGINE_MAX_PARTS];
    struct spec_cost cost;
    double seconds = 0;
    uint32_t seed = 7;
    size_t n_tokens = 0;
    spec_cost_init(&cost, width);
    for (size_t i = 0; i < width; i++)
        spec_guard_init(&guards[i], 0);
    *n_drafted = 0;
    for (size_t step = 0; step < n_steps; step++) {
        for (size_t i = 0; i < width; i++)
            rows[i] = (struct spec_row){.n = MOST, .chance = spec_guard_chance(&guards[i], 0)};
        const size_t k = spec_cost_check(&cost, rows, width, width, ENGINE_MAX_PASS_DRAFTS, false);
        size_t n_checked = 0;
        for (size_t i = 0; i < width; i++) {
            n_checked += rows[i].n_check;
            assert_true(rows[i].n_check <= MOST);
            for (size_t got = 0, right = 1; right && got < (rows[i].n_check ? rows[i].n_check : 1);
                 got++) {
                seed = seed * 1664525 + 1013904223;
                right = (seed >> 8) / (double)(1 << 24) < chance[i % 2];
                spec_guard_count(&guards[i], 0, right);
                n_tokens += right && rows[i].n_check > 0;
            }
        }
        assert_true(n_checked == k && k <= ENGINE_MAX_PASS_DRAFTS);
        n_tokens += width;
        const double took = 1 + draft_s * (double)k;
        spec_cost_step(&cost, k, took);
        seconds += took;
        *n_drafted += k;
    }
    return (double)n_tokens / (double)width / seconds;
}

static void several_make_drafts_while_they_pay(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 2, 4, 16, 64, 256};
    static const double chances[][2] = {{0, 0},     {0, 0.9},   {0.2, 0.5}, {0.5, 0.5},
                                        {0.8, 0.8}, {0.9, 0.9}, {1, 0},     {1, 1}};
    static const double costs[] = {0, 0.3, 0.7, 1, 1.5}; // of what a row of an answer takes
    const double good[2] = {0.95, 0.95}, half[2] = {0.95, 0};
    size_t n, n_half;
    // Rows that cost next to nothing.
    assert_true(simulate_several(4, good, 0.02, 1000, &n) > 3);
    assert_true(n > 20000);
    // Only those are guessed that come true.
    assert_true(simulate_several(4, half, 0.02, 1000, &n_half) > 2);
    assert_true(n_half < n * 6 / 10);
    // The more rows a pass has, the fewer guesses pay: a draft costs the same in each.
    simulate_several(2, good, 0.1, 500, &n);
    for (size_t width = 4; width <= 32; width *= 2) {
        size_t n_wider;
        simulate_several(width, good, 0.1, 500, &n_wider);
        assert_true(n_wider * 2 / width < n);
        n = n_wider * 2 / width;
    }
    for (size_t w = 0; w < 6; w++)
        for (size_t i = 0; i < 8; i++)
            for (size_t k = 0; k < 5; k++) {
                const double draft_s = costs[k] / (double)widths[w];
                const double speed = simulate_several(widths[w], chances[i], draft_s, 1000, &n);
                if (speed < 0.97)
                    fail_msg("%zu answers, guesses right %g and %g of the time, a draft costs %g "
                             "of a step: %g times as fast, %zu drafts",
                             widths[w], chances[i][0], chances[i][1], draft_s, speed, n);
            }
}

// What a draft model makes of an answer of n tokens to a prompt of n_prompt: a step takes 1, a
// draft that more, a token of the prompt a twentieth, one that the draft model reads a twentieth of
// what it takes for one that it makes. The chance of a guess is another one in each half of the
// answer.
static double simulate_model(size_t n, size_t n_prompt, const double chance[2], double share,
                             double draft, size_t *n_drafted)
{
    struct spec_guard g;
    double seconds = 0, plain = (double)(n + n_prompt / 20.0);
    uint32_t seed = 7;
    size_t len = 0, behind = n_prompt;
    spec_guard_init(&g, share);
    spec_guard_prompt(&g, n_prompt, n_prompt / 20.0);
    seconds += n_prompt / 20.0;
    *n_drafted = 0;
    while (len < n) {
        size_t n_read;
        const size_t k = spec_guard_make(&g, behind, MOST, &n_read);
        size_t got = 1;
        if (n_read > 0)
            spec_guard_read(&g, n_read, (double)n_read * draft / 20);
        seconds += (double)n_read * draft / 20;
        behind -= n_read;
        for (bool right = true; right && got <= k; got += right) {
            seed = seed * 1664525 + 1013904223;
            right = (seed >> 8) / (double)(1 << 24) < chance[len > n / 2];
            spec_guard_count(&g, SPEC_MADE, right);
        }
        behind = k > 0 ? 1 : behind + 1;
        len += got;
        spec_guard_step(&g, k, got, 1 + draft * (double)k);
        seconds += 1 + draft * (double)k;
        *n_drafted += k;
    }
    return seconds / plain;
}

static void a_draft_model_guesses_while_it_pays(void **state)
{
    (void)state;
    static const double chances[] = {0, 0.2, 0.5, 0.8, 0.95}, drafts[] = {0.02, 0.1, 0.4, 1, 1.5};
    static const size_t prompts[] = {20, 500, 5000};
    const double good[2] = {0.95, 0.95}, bad[2] = {0, 0}, late[2] = {0, 0.9};
    size_t n;
    assert_true(simulate_model(1000, 100, good, 0.1, 0.1, &n) < 0.4);
    assert_true(simulate_model(4000, 100, late, 0.1, 0.1, &n) < 0.8);
    simulate_model(1000, 100, bad, 0.1, 0.1, &n);
    assert_true(n < 300);
    // What was won long ago is not lost on a text that is no longer guessed.
    const double early[2] = {0.95, 0};
    size_t n_before;
    simulate_model(2000, 100, good, 0.1, 0.1, &n_before);
    simulate_model(4000, 100, early, 0.1, 0.1, &n);
    assert_true(n < n_before + 1000);
    // Never slower than 0.97 of plain speed, whatever it is thought to take and takes, and however
    // often its guesses are right.
    for (size_t i = 0; i < 25; i++)
        for (size_t k = 0; k < 25; k++)
            for (size_t p = 0; p < 3; p++) {
                const double chance[2] = {chances[i / 5], chances[i % 5]};
                const double share = drafts[k / 5], draft = drafts[k % 5];
                const double times = simulate_model(2000, prompts[p], chance, share, draft, &n);
                if (times > 1 / 0.97)
                    fail_msg("guesses right %g, then %g of the time, a draft costs %g of a step "
                             "(thought: %g), a prompt of %zu: the answer takes %g times as long, "
                             "%zu drafts",
                             chance[0], chance[1], draft, share, prompts[p], times, n);
            }
}

// ---- answers

static struct model *model, *coarse; // the same with coarser weights

struct ending {
    const char *name;
    const char *gbnf, *schema; // NULL: the answer may be anything
    bool close, thinks;        // thinks: up to a full stop the answer is free
    struct sampler_settings set;
    struct generate_params p;
};

static bool on_cuda;

// shares: see engine_params.
static struct engine *open_for(const struct model *m, uint32_t n_ctx, const struct engine *shares)
{
    const struct engine_params p = {
        .n_ctx = n_ctx, .n_threads = 1, .exact = on_cuda, .shares = shares};
    struct error err = {0};
#ifdef HOKKU_CUDA
    struct engine *e = on_cuda ? cuda_engine_open(m, &p, &err) : cpu_engine_open(m, &p, &err);
#else
    struct engine *e = cpu_engine_open(m, &p, &err);
#endif
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

static bool keep_text(void *user, const char *text, size_t n, struct error *err)
{
    (void)err;
    return buf_append(user, text, n);
}

static void keep_logprob(void *user, const struct decoded *d)
{
    buf_append(user, (const char *)d->top, d->n_top * sizeof *d->top);
    buf_append(user, (const char *)&d->logprob, sizeof d->logprob);
}

// Answers to the same prompt, one after the other, of which some tokens are taken back in between:
// everything that anybody sees of them.
static void answers(const struct ending *how, enum spec spec, const struct model *draft,
                    struct buf *out, struct session_stats *stats)
{
    const uint32_t n_ctx = on_cuda ? 64 : 256; // (the emulation is slow)
    struct error err = {0};
    struct session s;
    struct engine *e = open_for(model, n_ctx, NULL);
    struct engine *small = draft ? open_for(draft, n_ctx, e) : NULL;
    struct ids text = {0};
    struct grammar *g0 = how->gbnf ? grammar_from_gbnf(how->gbnf, strlen(how->gbnf), NULL, &err)
                         : how->schema
                             ? grammar_from_schema(how->schema, strlen(how->schema), 0, NULL, &err)
                             : NULL;
    struct constraint *held =
        g0 ? constraint_create(g0, NULL, model->tokenizer, model->hp.n_vocab, how->close, &err)
           : NULL;
    *stats = (struct session_stats){0};
    assert_true(held || !(how->gbnf || how->schema));
    assert_true(session_init(&s, e, &err));
    if (draft && draft->predicts_for)
        s.predictor = small;
    else
        s.draft = small;
    assert_true(session_speculate(&s, spec, &err));
    if (s.speculation)
        s.speculation->always = true;
    static const char prompt[] = "A frog jumps into the pond. A frog jumps into the pond. A frog";
    const struct tokenize_options opt = {0};
    assert_true(tokenizer_encode(model->tokenizer, prompt, sizeof prompt - 1, &opt, &text, &err));
    for (int turn = 0; turn < 2; turn++) {
        struct generate_params p = how->p;
        struct generated g;
        if ((p.constraint = held))
            constraint_begin(
                held, how->thinks ? &(struct thinking_marks){.open = "(", .close = "."} : NULL,
                how->thinks);
        p.sampler = &how->set;
        p.tok = model->tokenizer;
        p.on_text = keep_text;
        p.on_token = keep_logprob;
        p.user = out;
        if (!session_sync(&s, text.data, text.len, NULL, &err) || !generate(&s, &p, &g, &err))
            fail_msg("%s: %s", how->name, err.text);
        stats->n_drafted += s.stats.n_drafted;
        stats->n_accepted += s.stats.n_accepted;
        stats->n_generated += s.stats.n_generated;
        stats->n_steps += s.stats.n_steps;
        buf_append(out, buf_str(&g.text), g.text.len);
        buf_append(out, (const char *)g.ids.data, g.ids.len * sizeof *g.ids.data);
        buf_append(out, (const char *)&g.finish, sizeof g.finish);
        buf_append(out, (const char *)seq_ids(s.seq), seq_len(s.seq) * sizeof(int32_t));
        assert_true(seq_n_past(s.seq) + 1 >= seq_len(s.seq));
        assert_true(!how->close || constraint_obeyed(held));
        if (p.overflow == OVERFLOW_SHIFT)
            assert_true(seq_len(s.seq) < text.len + g.ids.len);
        else { // half of the answer is taken back
            ids_append(&text, g.ids.data, g.ids.len / 2);
            assert_true(text.len < 250);
        }
        generated_release(&g);
    }
    ids_release(&text);
    constraint_free(held);
    session_release(&s);
    engine_free(small);
    engine_free(e);
}

static struct model *load(const char *folder, const char *name)
{
    char path[1100];
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct model *m = model_load(path, &err);
    if (!m)
        fprintf(stderr, "%s\n", err.text);
    return m;
}

enum { MOST_WAYS = 24 };

// *n_free: the first so many are under no grammar.
static size_t make_ways(struct ending *ways, size_t *n_free)
{
    // Texts that come about in the midst of what is guessed: the answer repeats itself.
    static const char *const stops[] = {"d. speed. speed. speed. spe",
                                        "d. speed. speed. speed. speed.",
                                        "d. speed. speed. speed. speed. sp"};
    const struct generate_params plain = {.n_predict = 60, .n_probs = 2, .ignore_eos = true};
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"temperature\":{\"type\":\"integer\"},"
        "\"description\":{\"type\":\"string\"},\"available\":{\"type\":\"boolean\"}},"
        "\"required\":[\"temperature\",\"description\",\"available\"],"
        "\"additionalProperties\":false}";
    size_t n = 0;
    static const float temps[] = {0, 0.5f, 1, 1.5f};
    for (size_t i = 0; i < 4; i++) {
        ways[n] = (struct ending){.name = "temperature", .set = sampler_defaults, .p = plain};
        ways[n++].set.temp = temps[i];
    }
    ways[n] = (struct ending){.name = "penalties", .set = sampler_defaults, .p = plain};
    ways[n].set.repeat_penalty = 1.1f;
    ways[n++].set.dry_multiplier = 0.5f;
    ways[n] = (struct ending){.name = "end tokens", .set = sampler_defaults, .p = plain};
    ways[n++].p.ignore_eos = false;
    for (size_t i = 0; i < 3; i++) {
        ways[n] = (struct ending){.name = "stop texts", .set = sampler_defaults, .p = plain};
        ways[n].set.temp = 0;
        ways[n].p.stop = &stops[i];
        ways[n++].p.n_stop = 1;
    }
    ways[n] = (struct ending){.name = "a full context", .set = sampler_defaults, .p = plain};
    ways[n].set.temp = 0;
    ways[n].p.n_predict = 300;
    ways[n++].p.overflow = OVERFLOW_SHIFT;
    *n_free = n;
    static const float held_temps[] = {0, 0.8f, 1.5f};
    for (size_t i = 0; i < 9; i++) {
        struct ending *w = &ways[n++];
        *w = (struct ending){.set = sampler_defaults, .p = plain};
        w->p.ignore_eos = false;
        w->set.temp = held_temps[i / 3];
        w->set.repeat_penalty = i == 4 ? 1.3f : 1;
        w->close = i % 3 == 2;
        w->name = i % 3 == 0 ? "a grammar" : w->close ? "a schema that ends in time" : "a schema";
        if (i % 3 == 0)
            w->gbnf = "root ::= (\"frogs jump \" | \"the old pond. \" | [a-z]+ \"! \")+";
        else
            w->schema = schema;
        w->p.n_predict = i == 5 ? -1 : w->close ? 40 : 60; // -1: the context ends it
        w->thinks = i == 4 || i == 8;
    }
    for (size_t i = 0; i < n; i++)
        ways[i].set.seed = 5 + i;
    return n;
}

// Fewer, for a device.
static size_t make_device_ways(struct ending *ways, size_t *n_free)
{
    struct ending all[MOST_WAYS];
    const size_t n = make_ways(all, n_free);
    ways[0] = all[0];
    ways[0].p.n_predict = 20;
    ways[1] = all[*n_free - 1]; // a full context
    ways[1].set.temp = 0.8f;
    ways[1].p.n_predict = 50;
    ways[2] = all[n - 6]; // a grammar
    ways[2].p.n_predict = 12;
    *n_free = 2;
    return 3;
}

static void no_answer_depends_on_drafts(void **state)
{
    (void)state;
    struct ending ways[MOST_WAYS];
    size_t n_free;
    const size_t n = make_ways(ways, &n_free);
    // Own: guesses that come true unless something is out of step; those of coarser weights come
    // true now and then.
    const struct {
        enum spec spec;
        const struct model *draft;
    } sources[] = {{SPEC_NGRAM, NULL}, {SPEC_DRAFT, model}, {SPEC_AUTO, coarse}};
    for (size_t i = 0; i < n; i++) {
        struct buf want = {0};
        struct session_stats off, on;
        answers(&ways[i], SPEC_OFF, NULL, &want, &off);
        assert_int_equal(off.n_drafted, 0);
        assert_int_equal(off.n_steps, off.n_generated);
        // (Every other one with the last: it takes longest. Quickly: each with one of the three.)
        const size_t n_sources = sizeof sources / sizeof *sources;
        for (size_t k = quick() ? i % n_sources : 0; k < n_sources - (quick() ? 0 : i % 2);
             k += quick() ? n_sources : 1) {
            struct buf got = {0};
            answers(&ways[i], sources[k].spec, sources[k].draft, &got, &on);
            if (got.len != want.len || memcmp(got.data, want.data, want.len) != 0)
                fail_msg("%s (%zu): other answers with drafts of source %zu", ways[i].name, i, k);
            assert_true(on.n_accepted <= on.n_drafted && on.n_steps <= on.n_generated);
            if (sources[k].draft == model && ways[i].p.n_stop == 0 && i < n_free)
                assert_int_equal(on.n_accepted, on.n_drafted);
            if (ways[i].schema && on.n_generated > 60)
                assert_true(on.n_accepted > 0);
            if (on.n_generated > 100 && i < n_free && (ways[i].set.temp == 0 || sources[k].draft))
                assert_true(on.n_accepted > 0 && on.n_steps < on.n_generated);
            buf_release(&got);
        }
        buf_release(&want);
    }
}

// Guesses of a prediction layer (tests/vectors/predictions.py). They are right: always, where it
// knows from the hidden state what comes; mostly, where it is the model's only layer over again,
// which but for the first token sees the same; by chance, with random weights.
static void no_answer_depends_on_a_prediction_layer(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool always, mostly;
    } files[] = {{"count-glm4moe.gguf", true, false},
                 {"count-qwen35.gguf", true, false},
                 {"twin-glm4moe.gguf", false, true},
                 {"qwen35.gguf", false, false}};
    struct model *const own = model;
    struct ending ways[MOST_WAYS];
    size_t n_free;
    const size_t n = (on_cuda ? make_device_ways : make_ways)(ways, &n_free);
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/predictions", vectors_dir(0));
    for (size_t k = on_cuda; k < sizeof files / sizeof *files; k++) {
        struct error err = {0};
        model = load(folder, files[k].name);
        struct model *layer = model ? model_predictor(model, &err) : NULL;
        if (!layer)
            fail_msg("%s", err.text);
        const size_t each = !quick() ? 1 : on_cuda ? 3 : 2;
        for (size_t i = k % each; i < n; i += each) {
            struct buf want = {0}, got = {0};
            struct session_stats off, on;
            answers(&ways[i], SPEC_OFF, NULL, &want, &off);
            answers(&ways[i], i / 2 % 2 ? SPEC_MTP : SPEC_AUTO, layer, &got, &on);
            if (got.len != want.len || memcmp(got.data, want.data, want.len) != 0)
                fail_msg("%s, %s (%zu): other answers with a prediction layer", files[k].name,
                         ways[i].name, i);
            if (i < n_free)
                assert_true(on.n_drafted > 0);
            if (i < n_free && files[k].always)
                assert_int_equal(on.n_accepted, on.n_drafted);
            if (i < n_free && files[k].mostly)
                assert_true(3 * on.n_accepted > on.n_drafted);
            buf_release(&want);
            buf_release(&got);
        }
        model_free(layer);
        model_free(model);
    }
    model = own;
}

// n tokens of s from `from` on, one higher each.
static void count_on(struct seq *s, int32_t from, size_t n)
{
    int32_t ids[64];
    struct error err = {0};
    for (size_t i = 0; i < n; i++)
        ids[i] = from + (int32_t)i;
    const struct work w = {.seq = s, .ids = ids, .n = n};
    if (!engine_submit(seq_engine(s), &w, 1, NULL, NULL, &err))
        fail_msg("%s", err.text);
}

// The layer is behind by so many tokens, and right about what comes next.
static void assert_counts(struct drafter *d, const struct seq *s, size_t behind)
{
    enum { N = 3 };
    int32_t out[N];
    size_t n;
    struct error err = {0};
    assert_int_equal(drafter_behind(d, s), behind);
    if (behind > 4) { // some of it before
        assert_true(drafter_read(d, s, behind - 2, NULL, &err));
        assert_int_equal(drafter_behind(d, s), 2);
    }
    if (!drafter_guess(d, s, N, NULL, out, &n, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n, N);
    for (int32_t i = 0; i < N; i++)
        assert_int_equal(out[i], seq_ids(s)[seq_len(s) - 1] + 1 + i);
}

static void a_prediction_layer_reads_what_is_new(void **state)
{
    (void)state;
    const struct sampling how = {.sampler = &sampler_defaults};
    struct error err = {0};
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/predictions", vectors_dir(0));
    struct model *counts = load(folder, "count-glm4moe.gguf");
    struct model *layer = counts ? model_predictor(counts, &err) : NULL;
    struct engine *e = layer ? open_for(counts, 512, NULL) : NULL;
    struct engine *small = e ? open_for(layer, 512, e) : NULL;
    struct seq *s = small ? seq_open(e, 0, &err) : NULL, *saved = s ? seq_open(e, 0, &err) : NULL;
    struct drafter d = {0};
    if (!saved || !seq_keep_hidden(s, 16, &err) || !seq_keep_hidden(saved, 16, &err) ||
        !drafter_init(&d, small, counts->hp.n_vocab, &err) || !drafter_sampling(&d, &how, &err))
        fail_msg("%s", err.text);
    // What a guess takes is known by what it reads: all that is its own, and the model's head.
    const size_t row = quant_row_bytes(counts->tok_embd.type, counts->tok_embd.n_cols);
    uint64_t reads = counts->output.n_bytes + row;
    for (size_t i = 0; i < gguf_n_tensors(counts->gguf); i++)
        if (model_has_tensor(layer, gguf_tensor_at(counts->gguf, i)))
            reads += gguf_tensor_at(counts->gguf, i)->n_bytes;
    assert_int_equal(model_bytes_per_token(layer), reads);
    count_on(s, 100, 1);
    assert_true(drafter_behind(&d, s) == SIZE_MAX); // there is no token before it
    count_on(s, 101, 29);
    assert_counts(&d, s, 15); // hidden states of 16 are kept
    count_on(s, 130, 1);
    assert_counts(&d, s, 1);
    count_on(s, 300, 2);
    assert_counts(&d, s, 2);
    seq_trim(s, 28); // taken back, and something else
    count_on(s, 400, 3);
    assert_counts(&d, s, 3);
    seq_trim(s, 28); // the same once more: only the last token
    count_on(s, 400, 3);
    assert_counts(&d, s, 1);
    seq_trim(s, 0); // another text
    count_on(s, 200, 5);
    assert_counts(&d, s, 4);
    count_on(s, 205, 1);
    assert_counts(&d, s, 1);
    count_on(s, 206, 40); // longer than what is kept: it begins anew
    assert_counts(&d, s, 15);
    // What comes from a file has left no hidden states; those of a text that is gone are not its.
    count_on(saved, 90, 60);
    seq_trim(saved, 0);
    const size_t n = seq_n_past(s), n_bytes = engine_kv_bytes(e, 0, n);
    unsigned char *bytes = malloc(n_bytes);
    assert_non_null(bytes);
    assert_true(seq_export(s, 0, n, bytes, &err));
    assert_true(seq_import(saved, seq_ids(s), n, bytes, n_bytes, &err));
    assert_true(drafter_behind(&d, saved) == SIZE_MAX);
    count_on(saved, 500, 1);
    assert_true(drafter_behind(&d, saved) == SIZE_MAX);
    count_on(saved, 501, 2);
    assert_counts(&d, saved, 2);
    free(bytes);
    drafter_release(&d);
    seq_free(saved);
    seq_free(s);
    engine_free(small);
    engine_free(e);
    model_free(layer);
    model_free(counts);
}

int main(int argc, char **argv)
{
    on_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
#ifdef HOKKU_CUDA
    char why[256] = "";
    if (on_cuda && cuda_device_count(why, sizeof why) <= 0) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
#endif
    const char *root = getenv("HOKKU_SOURCE");
    model = load(root ? root : ".", "builtin/hokku-builtin.gguf");
    coarse = load(vectors_dir(0), "drafts/coarse.gguf");
    if (!model || !coarse)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_the_longest_run_is_guessed),
        cmocka_unit_test(what_repeats_is_guessed_to_go_on),
        cmocka_unit_test(any_text_may_be_asked_about),
        cmocka_unit_test(drafts_are_made_while_they_pay),
        cmocka_unit_test(several_make_drafts_while_they_pay),
        cmocka_unit_test(a_draft_model_guesses_while_it_pays),
        cmocka_unit_test(no_answer_depends_on_drafts),
        cmocka_unit_test(no_answer_depends_on_a_prediction_layer),
        cmocka_unit_test(a_prediction_layer_reads_what_is_new),
    };
    const struct CMUnitTest of_device[] = {
        cmocka_unit_test(no_answer_depends_on_a_prediction_layer),
        cmocka_unit_test(a_prediction_layer_reads_what_is_new),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = on_cuda
                           ? cmocka_run_group_tests_name("prediction layers", of_device, NULL, NULL)
                           : cmocka_run_group_tests_name("speculate", tests, NULL, NULL);
    model_free(model);
    model_free(coarse);
    return failed;
}
