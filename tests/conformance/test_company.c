// Several answers beside each other, for each of which the model's own prediction layer guesses:
// all that anybody sees of one is what it is alone without guesses, whoever leaves, fails or waits.
// `test_company NAME` on the CPU, `test_company NAME cuda`: exact engines.
#include "sequences.h"

#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/schedule.h"

enum { N_TASKS = 5 };

static struct model *predictor;
static bool always; // the layer knows what comes

struct answer {
    struct task task;
    struct ids prompt;
    struct sampler_settings sampler;
    struct generate_params p;
    struct generated g;
    struct constraint *held;
    struct buf seen;
    size_t most; // bytes of text that are taken; 0: all
    struct error err;
};

static bool on_text(void *user, const char *text, size_t n, struct error *err)
{
    struct answer *a = user;
    buf_append(&a->seen, text, n);
    a->most -= a->most > n ? n : a->most > 0 ? a->most - 1 : 0;
    return a->most != 1 || error_set(err, ERR_FAIL, "nobody reads on");
}

static void on_token(void *user, const struct decoded *d)
{
    struct answer *a = user;
    buf_append(&a->seen, (const char *)d->top, d->n_top * sizeof *d->top);
    buf_append(&a->seen, (const char *)&d->logprob, sizeof d->logprob);
}

static void make(struct answer *a, size_t i, size_t n)
{
    static const float temps[N_TASKS] = {0, 0.8f, 1.5f, 0.5f, 1};
    static const char *const stop[] = {"st"};
    *a = (struct answer){.sampler = sampler_defaults};
    for (size_t k = 0; k < 3 + 7 * i; k++)
        ids_push(&a->prompt, (int32_t)(50 + (k * k + 31 * i) % 400));
    a->sampler.seed = 3 + i;
    a->sampler.temp = temps[i];
    a->sampler.repeat_penalty = i == 2 ? 1.2f : 1;
    a->sampler.dry_multiplier = i == 3 ? 0.5f : 0;
    a->p = (struct generate_params){.sampler = &a->sampler,
                                    .tok = model->tokenizer,
                                    .n_predict = (int64_t)(n + i),
                                    .ignore_eos = i != 4,
                                    .n_probs = 2,
                                    .stop = stop,
                                    .n_stop = i == 3,
                                    .overflow = OVERFLOW_SHIFT,
                                    .on_text = on_text,
                                    .on_token = on_token,
                                    .user = a};
    if (i == 4) {
        static const char gbnf[] =
            "root ::= (\"stop \" | [a-m]+ \"! \" | [n-z] [a-z]){4,60} \"end\"";
        struct error err = {0};
        struct grammar *g = grammar_from_gbnf(gbnf, strlen(gbnf), NULL, &err);
        a->held =
            constraint_create(g, NULL, model->tokenizer, model->hp.n_vocab, false, &err); // takes g
        assert_non_null(a->held);
        constraint_begin(a->held, NULL, false);
        a->p.constraint = a->held;
    }
    a->most = i == 1 ? 8 : 0;
    a->task = (struct task){.prompt = &a->prompt, .p = &a->p, .g = &a->g};
}

static void answer_release(struct answer *a)
{
    constraint_free(a->held);
    ids_release(&a->prompt);
    generated_release(&a->g);
    buf_release(&a->seen);
}

static struct backend counted;
static bool (*eval_counted)(struct engine *e, struct engine_part *parts, size_t n_parts,
                            const struct cancel *cancel, struct error *err);
static size_t n_together;         // passes of the layer with several texts
static size_t cancel_at, n_evals; // of its passes one is interrupted; 0: none
static struct cancel cancel;

static bool count_pass(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *by, struct error *err)
{
    n_together += n_parts > 1;
    if (++n_evals == cancel_at) {
        cancel_ask(&cancel);
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    }
    return eval_counted(e, parts, n_parts, by, err);
}

// n_ctx: of both engines. n: tokens of an answer. gone: whose client leaves after some steps; of
// N_TASKS: nobody's.
static void check(uint32_t n_ctx, size_t n_parallel, size_t n, size_t gone, bool interrupted)
{
    struct engine *e = open_for(4, n_ctx, 64);
    struct model *const of = model;
    struct schedule s;
    struct answer beside[N_TASKS], alone[N_TASKS];
    struct error err = {0};
    size_t n_drafted = 0, n_accepted = 0;
    shares = e;
    model = predictor;
    struct engine *layer = open_for(4, n_ctx, 64);
    model = of;
    shares = NULL;
    counted = *layer->core->backend;
    eval_counted = counted.eval_parts;
    counted.eval_parts = count_pass;
    layer->core->backend = &counted;
    n_together = n_evals = 0;
    cancel_at = interrupted ? 5 : 0;
    assert_true(schedule_init(&s, e, n_parallel, NULL, &cancel, &err) &&
                schedule_speculate(&s, layer, &err));
    s.guesses.always = true;
    for (size_t i = 0; i < N_TASKS; i++) {
        make(&beside[i], i, n);
        make(&alone[i], i, n);
        assert_true(schedule_add(&s, &beside[i].task, &err));
    }
    size_t n_interrupted = 0;
    for (size_t step = 0; !schedule_idle(&s); step++) {
        assert_true(step < 2000);
        if (!schedule_step(&s, &err)) {
            assert_int_equal(err.code, ERR_INTERRUPTED);
            cancel_clear(&cancel);
            n_interrupted++;
        }
        // Who waits has given back what the layer had read.
        size_t most = 0;
        for (size_t i = 0; i < s.n_running; i++)
            most += engine_blocks(layer, seq_len(s.running[i]->session.seq));
        assert_true(engine_free_blocks(layer) + most >= engine_blocks(layer, layer->n_ctx));
        if (step == 4 && gone < N_TASKS && !beside[gone].task.done)
            schedule_remove(&s, &beside[gone].task);
    }
    assert_int_equal(n_interrupted, interrupted);
    schedule_release(&s);
    assert_true(engine_free_blocks(layer) == engine_blocks(layer, layer->n_ctx));
    for (size_t i = 0; i < N_TASKS; i++) {
        struct answer *a = &beside[i], *b = &alone[i];
        struct session one;
        assert_true(session_init(&one, e, &err));
        const bool ok = session_sync(&one, b->prompt.data, b->prompt.len, NULL, &b->err) &&
                        generate(&one, &b->p, &b->g, &b->err);
        session_release(&one);
        if (i != gone) {
            assert_true(a->task.done && ok == (a->task.error.code == ERR_NONE));
            assert_string_equal(a->task.error.text, b->err.text);
            assert_int_equal(a->g.ids.len, b->g.ids.len);
            assert_memory_equal(a->g.ids.data, b->g.ids.data, b->g.ids.len * sizeof(int32_t));
            assert_true(a->seen.len == b->seen.len &&
                        memcmp(a->seen.data, b->seen.data, b->seen.len) == 0);
            assert_int_equal(a->g.finish, b->g.finish);
            n_drafted += a->task.stats.n_drafted;
            n_accepted += a->task.stats.n_accepted;
        }
        answer_release(a);
        answer_release(b);
    }
    assert_true(n_drafted > 0 && n_accepted <= n_drafted);
    if (always && 3 * n_accepted <= n_drafted) // (not what a grammar or a penalty changes)
        fail_msg("%zu of %zu guesses came true", n_accepted, n_drafted);
    assert_true(n_parallel == 1 || n_together > 0);
    engine_free(layer);
    engine_free(e);
}

static void answers_are_the_same_beside_each_other(void **state)
{
    (void)state;
    check(2048, 3, on_cuda ? 12 : 60, N_TASKS, false);
    if (!on_cuda || !quick())
        check(2048, 1, on_cuda ? 12 : 60, N_TASKS, false);
}

static void who_leaves_leaves_the_others_as_they_are(void **state)
{
    (void)state;
    check(2048, 4, on_cuda ? 10 : 40, 2, false);
}

// More enter than there is memory for once they are long.
static void who_waits_for_memory_goes_on_as_it_was(void **state)
{
    (void)state;
    if (!on_cuda) // (the emulation is slow)
        check(1024, 4, 600, N_TASKS, false);
}

static void an_interruption_while_guesses_are_made_ends_nothing(void **state)
{
    (void)state;
    check(2048, 4, on_cuda ? 10 : 40, N_TASKS, true);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "count-glm4moe";
    char path[1100];
    struct error err = {0};
    use_device(argc > 2 ? argv[2] : "cpu");
    exact = on_cuda;
    always = strncmp(name, "count", 5) == 0;
    if (!find_device())
        return 0;
    n_threads = 1;
    snprintf(path, sizeof path, "%s/predictions/%s.gguf", vectors_dir(0), name);
    model = model_load(path, &err);
    predictor = model ? model_predictor(model, &err) : NULL;
    if (!predictor) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same_beside_each_other),
        cmocka_unit_test(who_leaves_leaves_the_others_as_they_are),
        cmocka_unit_test(who_waits_for_memory_goes_on_as_it_was),
        cmocka_unit_test(an_interruption_while_guesses_are_made_ends_nothing),
    };
    const int failed = RUN_TESTS(name, tests);
    model_free(predictor);
    model_free(model);
    return failed;
}
