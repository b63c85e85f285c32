// Lines of work on a schedule of a CPU engine, each the same alone and in company.
#ifndef HOKKU_TESTS_UNIT_LINES_OF_WORK_H
#define HOKKU_TESTS_UNIT_LINES_OF_WORK_H

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
static inline void setup_with(struct fixture *f, uint32_t n_ctx, uint32_t n_batch,
                              int32_t nan_token)
{
    struct tiny t;
    *f = (struct fixture){0};
    tiny_init(&t, "qwen3");
    t.weight = 0.05f;
    tiny_u32(&t, "qwen3.context_length", 8 * BLOCK);
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

static inline void setup(struct fixture *f, uint32_t n_ctx)
{
    setup_with(f, n_ctx, N_BATCH, 0);
}

static inline void teardown(struct fixture *f)
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

static inline bool on_text(void *user, const char *text, size_t n, struct error *err)
{
    struct line *l = user;
    buf_append(&l->shown, text, n);
    return l->fail_after == 0 || l->shown.len <= l->fail_after ||
           error_set(err, ERR_FAIL, "nobody reads on");
}

static const char *const stops[] = {"b", "a"};

// Line i: every one is different, the first n_common tokens aside.
static inline void make_line(struct fixture *f, struct line *l, size_t i, size_t n_common)
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

static inline void line_release(struct line *l)
{
    constraint_free(l->p.constraint);
    ids_release(&l->prompt);
    generated_release(&l->g);
    buf_release(&l->shown);
}

static inline void alone(struct fixture *f, struct line *l)
{
    struct session s;
    assert_true(session_init(&s, f->e, &f->err));
    l->ok = session_sync(&s, l->prompt.data, l->prompt.len, NULL, &l->err) &&
            generate(&s, &l->p, &l->g, &l->err);
    session_release(&s);
}

static inline void run(struct schedule *s)
{
    struct error err = {0};
    for (size_t n = 0; !schedule_idle(s); n++) {
        if (!schedule_step(s, &err))
            fail_msg("%s", err.text);
        assert_true(n < 10000);
    }
}

static inline void same(const struct line *a, const struct line *b, size_t i)
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
    bool guesses;    // always, and all that there are
    uint32_t drafts; // positions for the same model as a draft model, which is right; 0: none
};

static inline struct engine *open_draft(struct fixture *f, uint32_t n_ctx)
{
    const struct engine_params p = {
        .n_ctx = n_ctx, .n_batch = N_BATCH, .n_seqs = 4, .n_threads = 1};
    struct engine *e = n_ctx > 0 ? cpu_engine_open(f->m, &p, &f->err) : NULL;
    assert_true(e || n_ctx == 0);
    return e;
}

static size_t n_tokens;              // generated, of the last run
static struct session_stats guessed; // drafts, and steps, of all
static size_t n_beside;              // drafts that came true in passes with those of others, or
static size_t n_beside_prompts;      // with a prompt's rows

static struct backend counted;
static bool (*eval_counted)(struct engine *e, struct engine_part *parts, size_t n_parts,
                            const struct cancel *cancel, struct error *err);

static inline bool count_pass(struct engine *e, struct engine_part *parts, size_t n_parts,
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

static inline void count_passes(struct engine *e)
{
    counted = *e->core->backend;
    eval_counted = counted.eval_parts;
    counted.eval_parts = count_pass;
    e->core->backend = &counted;
    n_beside = n_beside_prompts = 0;
}

static inline void check(const struct setting *x)
{
    struct fixture f;
    struct schedule s;
    struct line together[N_TASKS], by_itself[N_TASKS];
    setup_with(&f, x->n_ctx, x->n_batch ? x->n_batch : N_BATCH, 0);
    struct engine *draft = open_draft(&f, x->drafts);
    assert_true(schedule_init(&s, f.e, x->n_parallel, NULL, NULL, &f.err));
    assert_true(x->n_kept == 0 || schedule_keep(&s, x->n_kept, &f.err));
    if (x->guesses) {
        assert_true(schedule_speculate(&s, draft, &f.err));
        s.guesses.always = true;
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
    assert_int_equal(s.guesses.n_drafters, 0);
    schedule_release(&s);
    assert_true(!draft || engine_free_blocks(draft) == engine_blocks(draft, draft->n_ctx));
    engine_free(draft);
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

// How guesses are made: from texts, or by a draft model, the same, too; all, whatever it costs.
enum { NO_GUESSES, FROM_TEXTS, WITH_A_MODEL, GUESSERS };

static inline void guess(struct schedule *s, struct engine *draft, int how)
{
    struct error err = {0};
    assert_true(how == NO_GUESSES ||
                schedule_speculate(s, how == WITH_A_MODEL ? draft : NULL, &err));
    s->guesses.always = how != NO_GUESSES;
}

#endif
