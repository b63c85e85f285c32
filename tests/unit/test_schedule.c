// Many answers on one CPU engine: each is what it is alone, whoever runs beside it; none waits for
// what it does not need, and the memory is never too small.
#include "test.h"

#include "engine/backend.h"
#include "engine/schedule.h"
#include "random_weights.h"
#include "tiny_model.h"

enum { N_BATCH = 48, BLOCK = 256, N_TASKS = 14 };

struct fixture {
    struct buf file;
    struct model *m;
    struct engine *e;
    struct grammar *g;
    struct constraint *constraint;
    struct error err;
};

static uint32_t window; // of all layers; 0: none

// nan_token: a token whose row of the embedding is none; 0: no token.
static void setup_with(struct fixture *f, uint32_t n_ctx, uint32_t n_batch, int32_t nan_token)
{
    struct tiny t;
    *f = (struct fixture){0};
    tiny_init(&t, "qwen3");
    t.weight = 0.05f;
    if (window > 0)
        tiny_u32(&t, "qwen3.attention.sliding_window", window);
    tiny_tensor(&t, "output.weight", QUANT_Q8_0, TINY_EMBD, TINY_VOCAB);
    tiny_write(&t, &f->file);
    tiny_release(&t);
    struct gguf *g = gguf_open_memory(f->file.data, f->file.len, "tiny.gguf", &f->err);
    assert_non_null(g);
    random_counter = 5;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        if (x->n_dims == 2)
            random_weights(x->type,
                           (unsigned char *)f->file.data +
                               ((const unsigned char *)x->data - (unsigned char *)f->file.data),
                           x->ne[0] * x->ne[1]);
    }
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    if (nan_token) // the scale of a block
        memset(f->file.data + ((const char *)embd->data - f->file.data) +
                   (size_t)nan_token * quant_row_bytes(QUANT_Q8_0, TINY_EMBD),
               0x7F, 2);
    f->m = model_from_gguf(g, "tiny.gguf", &f->err);
    assert_non_null(f->m);
    const struct engine_params p = {
        .n_ctx = n_ctx, .n_batch = n_batch, .n_seqs = window > 0 ? 2 : 0, .n_threads = 1};
    f->e = cpu_engine_open(f->m, &p, &f->err);
    assert_non_null(f->e);
    static const char gbnf[] = "root ::= (\"ab\" | [^a-m] [a-c]*){1,40} \"!\"";
    f->g = grammar_from_gbnf(gbnf, strlen(gbnf), NULL, &f->err);
    assert_non_null(f->g);
    f->constraint = constraint_create(f->g, NULL, f->m->tokenizer, f->m->hp.n_vocab, false,
                                      &f->err); // takes it
    assert_non_null(f->constraint);
}

static void setup(struct fixture *f, uint32_t n_ctx)
{
    setup_with(f, n_ctx, N_BATCH, 0);
}

static void teardown(struct fixture *f)
{
    constraint_free(f->constraint);
    engine_free(f->e);
    model_free(f->m);
    buf_release(&f->file);
}

// One line of work, the same alone and in company.
struct line {
    struct task task;
    struct ids prompt;
    struct sampler_settings sampler;
    struct generate_params p;
    struct generated g;
    struct buf shown;
    size_t fail_after; // bytes that on_text takes; 0: all
    bool ok;
    struct error err;
};

static bool on_text(void *user, const char *text, size_t n, struct error *err)
{
    struct line *l = user;
    buf_append(&l->shown, text, n);
    return l->fail_after == 0 || l->shown.len <= l->fail_after ||
           error_set(err, ERR_FAIL, "nobody reads on");
}

static const char *const stops[] = {"b", "a"};

// Line i: every one is different, the first n_common tokens aside.
static void make_line(struct fixture *f, struct line *l, size_t i, size_t n_common)
{
    static const uint16_t lengths[N_TASKS] = {1, 30, 3, 70, 200, 5, 49, 48, 47, 2, 96, 12, 8, 33};
    static const int16_t answers[N_TASKS] = {20, 3, 60, 1, 12, 0, 33, 90, 7, 41, 5, 2, 64, 25};
    *l = (struct line){.sampler = sampler_defaults};
    for (size_t k = 0; k < n_common; k++)
        ids_push(&l->prompt, (int32_t)(3 + (k * 31 + k * k / 7) % 256));
    for (size_t k = 0; k < lengths[i % N_TASKS]; k++)
        ids_push(&l->prompt, (int32_t)(3 + (k * 37 + i * 11 + k * i / 3) % 256));
    l->sampler.seed = 100 + i % 5;
    l->sampler.temp = i % 4 == 3 ? 0 : 1.3f;
    l->sampler.repeat_penalty = i % 3 == 1 ? 1.2f : 1;
    l->sampler.frequency_penalty = i % 3 == 2 ? 0.3f : 0;
    l->p = (struct generate_params){.sampler = &l->sampler,
                                    .tok = f->m->tokenizer,
                                    .n_predict = answers[i % N_TASKS],
                                    .n_probs = i % 5 == 2 ? 3 : 0,
                                    .ignore_eos = i % 6 == 1,
                                    .stop = stops,
                                    .n_stop = i % 7 == 2 ? 2 : 0,
                                    .on_text = on_text,
                                    .user = l};
    if (i % 4 == 2) {
        l->p.constraint = constraint_share(f->constraint, &f->err);
        l->p.ignore_eos = false;
        constraint_begin(l->p.constraint, NULL, false);
    }
    l->fail_after = i % 5 == 4 ? 6 : 0;
    if (i % 9 == 8) // refused
        l->prompt.len = 0;
    l->task = (struct task){.prompt = &l->prompt, .p = &l->p, .g = &l->g};
}

static void line_release(struct line *l)
{
    constraint_free(l->p.constraint);
    ids_release(&l->prompt);
    generated_release(&l->g);
    buf_release(&l->shown);
}

static void alone(struct fixture *f, struct line *l)
{
    struct session s;
    assert_true(session_init(&s, f->e, &f->err));
    l->ok = session_sync(&s, l->prompt.data, l->prompt.len, NULL, &l->err) &&
            generate(&s, &l->p, &l->g, &l->err);
    session_release(&s);
}

static void run(struct schedule *s)
{
    struct error err = {0};
    for (size_t n = 0; !schedule_idle(s); n++) {
        if (!schedule_step(s, &err))
            fail_msg("%s", err.text);
        assert_true(n < 10000);
    }
}

static void same(const struct line *a, const struct line *b, size_t i)
{
    if (a->ok != b->ok || strcmp(a->err.text, b->err.text) != 0)
        fail_msg("line %zu: %d '%s', alone %d '%s'", i, a->ok, a->err.text, b->ok, b->err.text);
    assert_int_equal(a->err.code, b->err.code);
    assert_string_equal(buf_str(&a->shown), buf_str(&b->shown));
    assert_string_equal(buf_str(&a->g.text), buf_str(&b->g.text));
    assert_int_equal(a->g.ids.len, b->g.ids.len);
    if (a->g.ids.len)
        assert_memory_equal(a->g.ids.data, b->g.ids.data, a->g.ids.len * sizeof(int32_t));
    if (a->ok)
        assert_int_equal(a->g.finish, b->g.finish);
}

struct setting {
    uint32_t n_ctx;
    size_t n_parallel, n_common;
    bool unlimited;
    enum overflow overflow;
    uint32_t n_batch; // 0: N_BATCH
    size_t n_kept;
    bool guesses; // always, and all that there are
};

static size_t n_tokens;              // generated, of the last run
static struct session_stats guessed; // drafts, and steps, of all
static size_t n_beside;              // drafts that came true in passes with those of others, or
static size_t n_beside_prompts;      // with a prompt's rows

static struct backend counted;
static bool (*eval_counted)(struct engine *e, struct engine_part *parts, size_t n_parts,
                            const struct cancel *cancel, struct error *err);

static bool count_pass(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel, struct error *err)
{
    size_t n_with = 0, n_right = 0;
    bool reads = false;
    if (!eval_counted(e, parts, n_parts, cancel, err))
        return false;
    for (size_t i = 0; i < n_parts; i++) {
        n_with += parts[i].n_drafts > 0;
        n_right += parts[i].pick ? parts[i].n_more : 0;
        reads |= parts[i].given;
    }
    n_beside += n_with > 1 ? n_right : 0;
    n_beside_prompts += reads ? n_right : 0;
    return true;
}

static void count_passes(struct engine *e)
{
    counted = *e->core->backend;
    eval_counted = counted.eval_parts;
    counted.eval_parts = count_pass;
    e->core->backend = &counted;
    n_beside = n_beside_prompts = 0;
}

static void check(const struct setting *x)
{
    struct fixture f;
    struct schedule s;
    struct line together[N_TASKS], by_itself[N_TASKS];
    setup_with(&f, x->n_ctx, x->n_batch ? x->n_batch : N_BATCH, 0);
    assert_true(schedule_init(&s, f.e, x->n_parallel, NULL, NULL, &f.err));
    assert_true(x->n_kept == 0 || schedule_keep(&s, x->n_kept, &f.err));
    if (x->guesses) {
        assert_true(schedule_speculate(&s, &f.err));
        s.guess_always = true;
    }
    n_tokens = 0;
    guessed = (struct session_stats){0};
    for (size_t i = 0; i < N_TASKS; i++) {
        for (int k = 0; k < 2; k++) {
            struct line *l = k ? &by_itself[i] : &together[i];
            make_line(&f, l, i, x->n_common);
            l->p.overflow = x->overflow;
            l->p.n_keep = 4;
            if (x->unlimited && !l->p.constraint) {
                l->p.n_predict = x->overflow == OVERFLOW_SHIFT ? 400 : -1;
                l->p.ignore_eos = true;
                l->p.n_stop = 0;
            }
        }
        together[i].ok = schedule_add(&s, &together[i].task, &together[i].err);
    }
    if (x->guesses)
        count_passes(f.e);
    run(&s);
    schedule_release(&s);
    for (size_t i = 0; i < N_TASKS; i++) {
        alone(&f, &by_itself[i]);
        if (together[i].ok) {
            assert_true(together[i].task.done);
            together[i].err = together[i].task.error;
            together[i].ok = together[i].err.code == ERR_NONE;
            assert_true(!together[i].ok || x->overflow == OVERFLOW_SHIFT ||
                        together[i].task.n_tokens ==
                            together[i].prompt.len + together[i].g.ids.len);
        }
        same(&together[i], &by_itself[i], i);
        n_tokens += together[i].g.ids.len;
        guessed.n_drafted += together[i].task.stats.n_drafted;
        guessed.n_accepted += together[i].task.stats.n_accepted;
        guessed.n_steps += together[i].task.stats.n_steps;
        line_release(&together[i]);
        line_release(&by_itself[i]);
    }
    teardown(&f);
}

static void an_answer_in_company_is_what_it_is_alone(void **state)
{
    (void)state;
    for (size_t n = 0; n < 6; n++) {
        static const size_t parallel[] = {1, 2, 3, 5, 8, 0};
        check(&(struct setting){.n_ctx = 8 * BLOCK, .n_parallel = parallel[n]});
        assert_true(n_tokens > 100);
        check(&(struct setting){
            .n_ctx = 8 * BLOCK, .n_parallel = parallel[n], .n_common = n % 2 ? 300 : 60});
    }
}

// Each in company brings its own, or one alone; a context that shifts, a grammar, stop texts,
// errors.
static void an_answer_is_the_same_with_guesses(void **state)
{
    (void)state;
    static const size_t parallel[] = {1, 2, 3, 0};
    enum { SHORT, LONG, SHIFTED };
    for (size_t n = 0; n < 4; n += quick() ? 3 : 1)
        for (int how = SHORT; how <= SHIFTED; how++) {
            check(&(struct setting){.n_ctx = (how == SHIFTED ? 2 : 8) * BLOCK,
                                    .n_parallel = parallel[n],
                                    .n_common = n % 2 ? 60 : 0,
                                    .unlimited = how != SHORT,
                                    .overflow = how != SHORT ? OVERFLOW_SHIFT : OVERFLOW_ERROR,
                                    .n_kept = n % 2,
                                    .guesses = true});
            assert_true(guessed.n_drafted > guessed.n_accepted);
            assert_true(guessed.n_steps + guessed.n_accepted >= n_tokens);
            // (What a random model says repeats itself where it is long.)
            assert_true(how == SHORT || (guessed.n_accepted > 0 && guessed.n_steps < n_tokens));
            assert_true(how != LONG || parallel[n] == 1 || (n_beside > 0 && n_beside_prompts > 0));
        }
}

// Rows are few, or blocks are: guesses are cut, and nobody has to leave for them.
static void guesses_have_what_room_there_is(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 12; n += quick() ? 9 : 3) {
        check(&(struct setting){
            .n_ctx = 4 * BLOCK, .n_common = 9, .n_batch = n, .unlimited = n > 7, .guesses = true});
        assert_true(n > 1 || guessed.n_drafted == 0);
        assert_true(n <= 7 || n_beside > 0);
    }
    check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true, .guesses = true});
    assert_true(n_tokens > 4000 && n_beside > 0);
}

static void more_rows_than_a_batch_has_are_several_passes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 6; n += 2)
        check(&(struct setting){.n_ctx = 16 * BLOCK, .n_common = 9, .n_batch = n});
}

static void a_row_without_a_number_fails_alone(void **state)
{
    (void)state;
    enum { N = 6, NAN_TOKEN = 77 };
    struct fixture f;
    struct schedule s;
    struct line l[N], by_itself;
    setup_with(&f, 8 * BLOCK, N_BATCH, NAN_TOKEN);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], 3, i + 1);
        l[i].p.n_predict = 9;
        for (size_t k = 0; k < l[i].prompt.len; k++)
            if (l[i].prompt.data[k] == NAN_TOKEN)
                l[i].prompt.data[k]++;
        if (i % 2)
            l[i].prompt.data[l[i].prompt.len / 2] = NAN_TOKEN;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    run(&s);
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &by_itself, 3, i + 1);
        by_itself.p.n_predict = 9;
        memcpy(by_itself.prompt.data, l[i].prompt.data, l[i].prompt.len * sizeof(int32_t));
        alone(&f, &by_itself);
        l[i].err = l[i].task.error;
        l[i].ok = l[i].err.code == ERR_NONE;
        assert_int_equal(l[i].ok, i % 2 == 0);
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void the_youngest_waits_where_memory_is_short(void **state)
{
    (void)state;
    // Each takes all of the memory before it ends; two have room when they begin.
    check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true});
    assert_true(n_tokens > 4000);
    check(&(struct setting){.n_ctx = 4 * BLOCK, .n_common = 280, .unlimited = true});
}

static void a_full_context_shifts_as_it_does_alone(void **state)
{
    (void)state;
    check(&(struct setting){.n_ctx = BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT});
    assert_true(n_tokens > 2000);
    check(&(struct setting){.n_ctx = 2 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT});
}

static void a_common_beginning_is_evaluated_once(void **state)
{
    (void)state;
    enum { N_COMMON = 300, N = 6 };
    struct fixture f;
    struct schedule s;
    struct line l[N];
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 4, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], i, N_COMMON);
        l[i].p.n_predict = 3;
    }
    for (size_t i = 0; i < N - 1; i++)
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    run(&s);
    // What was evaluated outlives those who had it.
    assert_true(schedule_add(&s, &l[N - 1].task, &l[N - 1].err));
    run(&s);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].task.stats.n_prompt, l[i].prompt.len);
        // (For the last few nobody waits.)
        const size_t reused = l[i].task.stats.n_reused;
        assert_in_range(reused,
                        i == 0       ? 0
                        : i == N - 1 ? N_COMMON
                                     : N_COMMON - 32,
                        i ? N_COMMON : 0);
        assert_int_equal(l[i].task.stats.n_evaluated, l[i].prompt.len - reused);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void what_is_kept_changes_no_answer_and_gives_way(void **state)
{
    (void)state;
    for (size_t n_kept = 1; n_kept < 8; n_kept += quick() ? 6 : 3) {
        check(&(struct setting){
            .n_ctx = 8 * BLOCK, .n_parallel = 3, .n_common = 300, .n_kept = n_kept});
        check(&(struct setting){.n_ctx = 4 * BLOCK, .unlimited = true, .n_kept = n_kept});
    }
    check(&(struct setting){
        .n_ctx = 2 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT, .n_kept = 4});
}

static void a_conversation_goes_on_where_any_of_the_last_ones_ended(void **state)
{
    (void)state;
    enum { N = 3, KEPT = 2 };
    struct fixture f;
    struct schedule s;
    struct line l[N], next[N];
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 1, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, KEPT, &f.err));
    for (size_t i = 0; i < N; i++) { // three that have nothing in common
        make_line(&f, &l[i], 3 + 4 * i, 0);
        for (size_t k = 0; k < l[i].prompt.len; k++)
            l[i].prompt.data[k] += (int32_t)i;
        l[i].p = (struct generate_params){
            .sampler = &l[i].sampler, .tok = f.m->tokenizer, .n_predict = 9, .ignore_eos = true};
        l[i].fail_after = 0;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
        run(&s);
        assert_int_equal(l[i].task.stats.n_reused, 0);
    }
    for (size_t i = N; i-- > 0;) { // and what follows in each
        make_line(&f, &next[i], 0, 0);
        next[i].prompt.len = 0;
        next[i].p.n_predict = 2;
        ids_append(&next[i].prompt, l[i].prompt.data, l[i].prompt.len);
        ids_append(&next[i].prompt, l[i].g.ids.data, l[i].g.ids.len);
        const size_t n_before = next[i].prompt.len;
        ids_append(&next[i].prompt, (const int32_t[]){9, 8, 7, 6}, 4);
        assert_true(schedule_add(&s, &next[i].task, &next[i].err));
        run(&s);
        // (What was sampled last is not evaluated yet.)
        assert_int_equal(next[i].task.stats.n_reused, i >= N - KEPT ? n_before - 1 : 0);
    }
    for (size_t i = 0; i < N; i++) {
        line_release(&l[i]);
        line_release(&next[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

// Windows of four for engines for two.
static void of_windows_no_more_are_kept_than_there_is_room_for(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    window = 20;
    setup(&f, 40 * BLOCK);
    assert_true(schedule_init(&s, f.e, 3, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 64, &f.err));
    assert_int_equal(s.most_kept, 1);
    schedule_release(&s);
    assert_true(schedule_init(&s, f.e, 64, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 64, &f.err));
    assert_int_equal(s.n_parallel, 4);
    assert_int_equal(s.most_kept, 0);
    schedule_release(&s);
    teardown(&f);
    for (size_t n = 1; n <= 4; n++) {
        check(&(struct setting){.n_ctx = 40 * BLOCK, .n_parallel = n, .n_kept = 64});
        check(&(struct setting){
            .n_ctx = 40 * BLOCK, .n_parallel = n, .n_common = 300, .n_kept = n % 2});
    }
    check(&(struct setting){
        .n_ctx = 15 * BLOCK, .unlimited = true, .overflow = OVERFLOW_SHIFT, .n_kept = 64});
    window = 0;
}

static void what_is_kept_gives_way_before_anyone_who_runs(void **state)
{
    (void)state;
    enum { N = 4, RUNNING = 2 };
    struct fixture f;
    struct schedule s;
    struct line l[N];
    struct error err = {0};
    setup(&f, 6 * BLOCK);
    assert_true(schedule_init(&s, f.e, RUNNING, NULL, NULL, &f.err));
    assert_true(schedule_keep(&s, 8, &f.err));
    for (size_t i = 0; i < N;
         i++) { // two that end and are kept, then two that need all of the memory
        make_line(&f, &l[i], 1 + 4 * i, 0);
        for (size_t k = 0; k < l[i].prompt.len; k++)
            l[i].prompt.data[k] += (int32_t)i;
        l[i].p = (struct generate_params){.sampler = &l[i].sampler,
                                          .tok = f.m->tokenizer,
                                          .n_predict = i < N - RUNNING ? 5 : 650,
                                          .ignore_eos = true};
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
        if (i < N - RUNNING)
            run(&s);
    }
    assert_int_equal(s.n_kept, N - RUNNING);
    for (size_t n = 0; !l[N - 1].task.done && !l[N - 2].task.done; n++) {
        assert_true(schedule_step(&s, &err));
        assert_int_equal(s.n_waiting, 0);
        assert_true(n < 10000);
    }
    run(&s);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].task.error.code, ERR_NONE);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void what_a_base_has_evaluated_is_not_evaluated_again(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l;
    setup(&f, 4 * BLOCK);
    make_line(&f, &l, 3, 270);
    struct seq *base = seq_open(f.e, 0, &f.err);
    const struct work w = {.seq = base, .ids = l.prompt.data, .n = 280};
    assert_true(engine_submit(f.e, &w, 1, NULL, NULL, &f.err));
    assert_true(schedule_init(&s, f.e, 0, base, NULL, &f.err));
    assert_int_equal(seq_len(base), 0);
    assert_true(schedule_add(&s, &l.task, &l.err));
    run(&s);
    assert_int_equal(l.task.stats.n_reused, 280);
    line_release(&l);
    schedule_release(&s);
    seq_free(base);
    teardown(&f);
}

static void seats_are_taken_in_order_and_at_once(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int64_t n_predict[N] = {30, 2, 2, 2, 2, 2};
    struct fixture f;
    struct schedule s;
    struct line l[N];
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 2, NULL, NULL, &f.err));
    for (size_t i = 0; i < N; i++) {
        make_line(&f, &l[i], 0, i + 1);
        l[i].p.n_predict = n_predict[i];
        l[i].p.ignore_eos = true;
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    // The first is decoded all the time, the others beside it, one after the other.
    size_t n_steps = 0, last = 1;
    for (; !schedule_idle(&s); n_steps++) {
        assert_true(schedule_step(&s, &err));
        assert_in_range(s.n_running, s.n_waiting ? 1 : 0, 2);
        for (size_t i = last + 1; i < N; i++)
            assert_false(l[i].task.done && !l[i - 1].task.done);
        while (last < N - 1 && l[last].task.done)
            last++;
    }
    assert_in_range(n_steps, 30, 32);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(l[i].g.ids.len, (size_t)n_predict[i]);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void rows_that_run_get_a_token_in_each_pass_while_a_prompt_is_read(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l[2];
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    for (size_t i = 0; i < 2; i++) {
        make_line(&f, &l[i], i, i ? 600 : 0);
        l[i].p.n_predict = 100;
        l[i].p.ignore_eos = true;
    }
    assert_true(schedule_add(&s, &l[0].task, &l[0].err));
    assert_true(schedule_step(&s, &err));
    assert_true(schedule_add(&s, &l[1].task, &l[1].err));
    size_t n_passes = 0;
    for (; l[1].g.ids.len == 0; n_passes++) {
        const size_t before = l[0].g.ids.len;
        assert_true(schedule_step(&s, &err));
        assert_int_equal(l[0].g.ids.len, before + 1);
    }
    // A quarter of a batch is read beside it.
    assert_int_equal(n_passes, (l[1].prompt.len - 1) / (N_BATCH / 4) + 1);
    for (size_t i = 0; i < 2; i++) {
        schedule_remove(&s, &l[i].task);
        line_release(&l[i]);
    }
    assert_true(schedule_idle(&s));
    schedule_release(&s);
    teardown(&f);
}

static void prompts_get_as_much_of_a_pass_as_others_wait(void **state)
{
    (void)state;
    assert_int_equal(schedule_prompt_room(16, 128, 16, 0.010, 0.004), 32); // there is time
    assert_int_equal(schedule_prompt_room(100, 128, 100, 0.010, 0), 128);  // no more than most
    assert_int_equal(schedule_prompt_room(64, 128, 40, 0.010, 0.004), 64); // not all was read
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.040, 0.010), 64); // twice would be late
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.090, 0.010), 32); // 40 of 80 ms
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.100, 0), 32);     // nothing is known
    assert_int_equal(schedule_prompt_room(64, 128, 64, 0.900, 0.100), 8);  // a slow device: twice
    assert_int_equal(schedule_prompt_room(4, 128, 4, 9.0, 0.001), 1);      // never none
    size_t room = 16; // a device that takes 2 ms and 1 ms a token settles below 50 ms
    for (int i = 0; i < 20; i++) {
        const double seconds = 0.002 + 0.001 * (double)room;
        room = schedule_prompt_room(room, 128, room, seconds, 0.002);
    }
    assert_in_range(room, 24, 48);
}

static void cancel_some(bool guesses)
{
    struct fixture f;
    struct schedule s;
    struct line l[N_TASKS], by_itself;
    struct error err;
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 4, NULL, NULL, &f.err));
    assert_true(!guesses || schedule_speculate(&s, &f.err));
    s.guess_always = guesses;
    for (size_t i = 0; i < N_TASKS; i++) {
        make_line(&f, &l[i], i, 20);
        l[i].ok = schedule_add(&s, &l[i].task, &l[i].err);
    }
    for (size_t k = 0; k < N_TASKS; k += 2) {
        assert_true(schedule_step(&s, &err));
        if (l[k].ok && !l[k].task.done)
            schedule_remove(&s, &l[k].task);
    }
    run(&s);
    for (size_t i = 1; i < N_TASKS; i += 2) {
        make_line(&f, &by_itself, i, 20);
        alone(&f, &by_itself);
        if (l[i].ok) {
            l[i].err = l[i].task.error;
            l[i].ok = l[i].err.code == ERR_NONE;
        }
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
    }
    for (size_t i = 0; i < N_TASKS; i++)
        line_release(&l[i]);
    schedule_release(&s);
    teardown(&f);
}

static void the_cancelled_leave_the_others_as_they_are(void **state)
{
    (void)state;
    cancel_some(false);
    cancel_some(true);
}

static void interrupt(bool guesses)
{
    struct fixture f;
    struct schedule s;
    struct line l[3], by_itself;
    struct cancel cancel = {0};
    setup(&f, 8 * BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, &cancel, &f.err));
    assert_true(!guesses || schedule_speculate(&s, &f.err));
    s.guess_always = guesses;
    for (size_t i = 0; i < 3; i++) {
        make_line(&f, &l[i], 7, i);
        assert_true(schedule_add(&s, &l[i].task, &l[i].err));
    }
    assert_true(schedule_step(&s, &f.err));
    cancel_ask(&cancel);
    assert_false(schedule_step(&s, &f.err));
    assert_int_equal(f.err.code, ERR_INTERRUPTED);
    cancel_clear(&cancel);
    run(&s);
    for (size_t i = 0; i < 3; i++) {
        l[i].ok = l[i].task.error.code == ERR_NONE;
        make_line(&f, &by_itself, 7, i);
        alone(&f, &by_itself);
        same(&l[i], &by_itself, i);
        line_release(&by_itself);
        line_release(&l[i]);
    }
    schedule_release(&s);
    teardown(&f);
}

static void an_interruption_ends_nothing_but_the_pass(void **state)
{
    (void)state;
    interrupt(false);
    interrupt(true);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct schedule s;
    struct line l;
    setup(&f, BLOCK);
    assert_true(schedule_init(&s, f.e, 0, NULL, NULL, &f.err));
    make_line(&f, &l, 8, 0);
    assert_false(schedule_add(&s, &l.task, &l.err));
    assert_int_equal(l.err.code, ERR_USAGE);
    line_release(&l);
    make_line(&f, &l, 0, BLOCK);
    assert_false(schedule_add(&s, &l.task, &l.err));
    assert_int_equal(l.err.code, ERR_CONTEXT);
    assert_non_null(strstr(l.err.text, "257 tokens"));
    assert_true(schedule_idle(&s));
    line_release(&l);
    // It fills the context: no room for an answer.
    make_line(&f, &l, 0, BLOCK - 1);
    assert_true(schedule_add(&s, &l.task, &l.err));
    run(&s);
    assert_true(l.task.done);
    assert_int_equal(l.task.error.code, ERR_CONTEXT);
    line_release(&l);
    schedule_release(&s);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_company_is_what_it_is_alone),
        cmocka_unit_test(an_answer_is_the_same_with_guesses),
        cmocka_unit_test(guesses_have_what_room_there_is),
        cmocka_unit_test(more_rows_than_a_batch_has_are_several_passes),
        cmocka_unit_test(a_row_without_a_number_fails_alone),
        cmocka_unit_test(the_youngest_waits_where_memory_is_short),
        cmocka_unit_test(a_full_context_shifts_as_it_does_alone),
        cmocka_unit_test(a_common_beginning_is_evaluated_once),
        cmocka_unit_test(what_is_kept_changes_no_answer_and_gives_way),
        cmocka_unit_test(a_conversation_goes_on_where_any_of_the_last_ones_ended),
        cmocka_unit_test(of_windows_no_more_are_kept_than_there_is_room_for),
        cmocka_unit_test(what_is_kept_gives_way_before_anyone_who_runs),
        cmocka_unit_test(what_a_base_has_evaluated_is_not_evaluated_again),
        cmocka_unit_test(seats_are_taken_in_order_and_at_once),
        cmocka_unit_test(rows_that_run_get_a_token_in_each_pass_while_a_prompt_is_read),
        cmocka_unit_test(prompts_get_as_much_of_a_pass_as_others_wait),
        cmocka_unit_test(the_cancelled_leave_the_others_as_they_are),
        cmocka_unit_test(an_interruption_ends_nothing_but_the_pass),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return RUN_TESTS("schedule", tests);
}
