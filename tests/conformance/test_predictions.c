// Prediction layers (model_predictor): what they answer is what the NumPy pass of their formula
// does (tests/vectors/predictions.py), in any chunks; hidden states are those of the tokens at
// hand, whatever a sequence has gone through. `test_predictions NAME` on the CPU,
// `test_predictions NAME cuda`: exact engines.
#include "../unit/further.h"
#include "sequences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { N_CTX = 256, N_ALONE = 4 };

static char path[1024];
static struct model *predictor;
static struct buf expected;
static const int32_t *ids; // (n_ids)
static size_t n_ids;
static const float *rows; // (n_ids - 1, n_vocab)

// Beside e, which is to be freed later.
static struct engine *open_predictor(const struct engine *e, uint32_t n_batch)
{
    struct model *main_model = model;
    model = predictor;
    shares = e;
    struct engine *d = open_for(1, N_CTX, n_batch);
    shares = NULL;
    model = main_model;
    return d;
}

static void submit(const struct work *w)
{
    struct error err = {0};
    if (!engine_submit(seq_engine(w->seq), w, 1, NULL, NULL, &err))
        fail_msg("%s", err.text);
}

static void keep(struct seq *s, size_t n)
{
    struct error err = {0};
    if (!seq_keep_hidden(s, n, &err))
        fail_msg("%s", err.text);
}

// Logits of row i of s's last work are those of the prediction behind token `at`.
static void assert_predicts(struct seq *s, size_t i, size_t at)
{
    const size_t n_vocab = model->hp.n_vocab;
    const float *want = rows + (at - 1) * n_vocab;
    float *got = malloc(n_vocab * sizeof *got);
    struct error err = {0};
    double worst = 0;
    assert_non_null(got);
    if (!seq_logits(s, i, NULL, got, &err))
        fail_msg("%s", err.text);
    for (size_t k = 0; k < n_vocab; k++)
        worst = further(worst, fabs((double)got[k] - (double)want[k]));
    // A GPU multiplies in float16 (as in test_models.c).
    if (!(worst < (on_cuda ? 3e-2 : 2e-3)))
        fail_msg("logits behind token %zu differ by %g", at, worst);
    free(got);
}

// The rows of tokens [begin, end), with the hidden states that s has kept, as logits ask.
static void predict(struct seq *p, const struct seq *s, size_t begin, size_t end)
{
    for (size_t n; begin < end; begin += n) {
        const float *h = seq_hidden(s, begin - 1, &n);
        assert_non_null(h);
        n = n < end - begin ? n : end - begin;
        const struct work w = {
            .seq = p, .ids = ids + begin, .n = n, .hidden = h, .n_logits = (uint32_t)n};
        submit(&w);
        for (size_t i = 0; i < n; i++)
            assert_predicts(p, i, begin + i);
    }
}

static void predictions_are_those_of_the_formula(void **state)
{
    (void)state;
    static const uint32_t batches[] = {64, 7, 1};
    for (size_t b = 0; b < 3; b++) {
        struct engine *e = open_for(1, N_CTX, batches[b]), *d = open_predictor(e, 64);
        struct seq *s = open_seq(e), *p = open_seq(d);
        const size_t n = n_ids - N_ALONE;
        // A ring that wraps: the layer reads in between.
        keep(s, b == 0 ? N_CTX : 11);
        for (size_t at = 0; at < n - 1;) {
            const size_t k = b == 0 ? n - 1 : at + 9 < n - 1 ? 9 : n - 1 - at;
            submit(&(struct work){.seq = s, .ids = ids + at, .n = k});
            predict(p, s, at + 1, at + k + 1);
            at += k;
        }
        // On from its own hidden states.
        keep(p, 3);
        seq_trim(p, n - 2);
        predict(p, s, n - 1, n);
        for (size_t i = n; i < n_ids; i++) {
            size_t n_own;
            const float *own = seq_hidden(p, i - 2, &n_own);
            assert_non_null(own);
            submit(&(struct work){.seq = p, .ids = ids + i, .n = 1, .hidden = own, .n_logits = 1});
            assert_predicts(p, 0, i);
        }
        seq_free(p);
        seq_free(s);
        engine_free(d);
        engine_free(e);
    }
}

// More rows than a batch has are given theirs in each chunk.
static void predictions_of_a_long_work_are_those_of_the_formula(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64), *d = open_predictor(e, 7);
    struct seq *s = open_seq(e), *p = open_seq(d);
    const size_t n = n_ids - N_ALONE - 1;
    size_t n_hidden;
    keep(s, N_CTX);
    submit(&(struct work){.seq = s, .ids = ids, .n = n});
    const float *h = seq_hidden(s, 0, &n_hidden);
    submit(&(struct work){.seq = p, .ids = ids + 1, .n = n, .hidden = h, .n_logits = 1});
    assert_predicts(p, 0, n);
    seq_free(p);
    seq_free(s);
    engine_free(d);
    engine_free(e);
}

// As sampled tokens, in a pass with drafts, behind a trim, beside another sequence: always those of
// a prompt.
static void hidden_states_follow_a_sequence(void **state)
{
    (void)state;
    struct engine *e = open_for(3, 4 * N_CTX, 64);
    struct seq *s = open_seq(e), *other = open_seq(e), *plain = open_seq(e);
    const size_t n_embd = model->hp.n_embd;
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    size_t n;
    assert_int_equal(seq_hidden_begin(s), 0);
    keep(s, 32);
    pick(s, &(struct work){.seq = s, .ids = ids, .n = 20, .n_pick = 1}, d);
    assert_int_equal(seq_hidden_begin(s), 0);
    for (size_t i = 0; i < 3; i++)
        pick(s, &(struct work){.seq = s, .n = 1, .n_pick = 1}, d);
    const int32_t wrong[] = {(d->id + 1) % 600, 5, 6};
    pick(s, &(struct work){.seq = s, .n = 1, .n_pick = 1, .drafts = wrong, .n_drafts = 3}, d);
    seq_trim(s, 22);
    assert_true(seq_hidden_begin(s) <= seq_n_past(s));
    submit(&(struct work){.seq = s, .ids = ids, .n = 3});
    const struct work both[] = {{.seq = other, .ids = ids + 3, .n = 5},
                                {.seq = s, .ids = ids + 7, .n = 14, .n_pick = 1}},
                      // What was sampled, behind a prompt's rows: a device has an order of its own.
        last[] = {{.seq = other, .ids = ids, .n = 6}, {.seq = s, .n = 1}};
    struct error err = {0};
    uint64_t ticket;
    if (!engine_submit(e, both, 2, NULL, &ticket, &err) || !engine_wait(e, ticket, NULL, d, &err) ||
        !engine_submit(e, last, 2, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(seq_len(s), 40);
    assert_int_equal(seq_hidden_begin(s), 8); // a ring of 32
    keep(plain, 40);
    submit(&(struct work){.seq = plain, .ids = seq_ids(s), .n = 40});
    for (size_t i = 8; i < 40; i++) {
        const float *a = seq_hidden(s, i, &n), *b = seq_hidden(plain, i, &n);
        assert_non_null(a);
        assert_memory_equal(a, b, n_embd * sizeof *a);
    }
    assert_null(seq_hidden(s, 7, &n));
    assert_null(seq_hidden(s, 40, &n));
    seq_trim(s, 5);
    assert_int_equal(seq_hidden_begin(s), seq_n_past(s));
    assert_null(seq_hidden(s, 8, &n));
    seq_free(plain);
    seq_free(other);
    seq_free(s);
    engine_free(e);
}

static void work_for_a_prediction_layer_has_hidden_states(void **state)
{
    (void)state;
    struct engine *e = open_for(1, N_CTX, 64), *d = open_predictor(e, 64);
    struct seq *s = open_seq(e), *p = open_seq(d);
    const float *h = calloc(2, model->hp.n_embd * sizeof *h);
    struct error err = {0};
    const struct work without = {.seq = p, .ids = ids, .n = 2},
                      with = {.seq = s, .ids = ids, .n = 2, .hidden = h},
                      behind = {.seq = p, .ids = ids, .n = 1, .hidden = h};
    assert_false(engine_submit(d, &without, 1, NULL, NULL, &err));
    assert_string_equal(
        err.text,
        "work of 2 rows without hidden states, expected one for each: the model predicts");
    assert_false(engine_submit(e, &with, 1, NULL, NULL, &err));
    assert_string_equal(err.text, "work of 2 rows with hidden states, expected none");
    assert_true(!engine_takes_drafts(d) && engine_takes_drafts(e));
    assert_true(seq_append(p, ids, 1, &err));
    assert_false(engine_submit(d, &behind, 1, NULL, NULL, &err));
    assert_string_equal(err.text,
                        "hidden states for the tokens from 1 on, but only 0 are evaluated");
    free((void *)h);
    seq_free(p);
    seq_free(s);
    engine_free(d);
    engine_free(e);
}

// What its weights have made of a number is said by their name in the file.
static void a_damaged_join_is_named(void **state)
{
    (void)state;
    struct model *const main_model = model, *const main_predictor = predictor;
    struct buf file = {0};
    struct error err = {0};
    char name[64];
    assert_true(file_read(path, 1 << 24, &file, &err));
    struct gguf *g = gguf_open_memory(file.data, file.len, "damaged", &err);
    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", model->hp.n_layer);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_true(t && t->type == QUANT_F16);
    memset(file.data + ((const char *)t->data - (const char *)file.data), 0x7F, 2);
    model = model_from_gguf(g, "damaged", &err);
    predictor = model_predictor(model, &err);
    struct engine *e = open_for(1, N_CTX, 64), *d = open_predictor(e, 64);
    struct seq *s = open_seq(e), *p = open_seq(d);
    size_t n;
    uint64_t ticket;
    struct decoded one;
    keep(s, N_CTX);
    submit(&(struct work){.seq = s, .ids = ids, .n = 5});
    const float *h = seq_hidden(s, 0, &n);
    float *logits = malloc(model->hp.n_vocab * sizeof *logits);
    assert_non_null(logits);
    const struct work asks = {.seq = p, .ids = ids + 1, .n = 4, .hidden = h, .n_logits = 4},
                      picks = {.seq = p, .ids = ids + 1, .n = 4, .hidden = h, .n_pick = 1};
    submit(&asks);
    assert_false(seq_logits(p, 3, NULL, logits, &err));
    name[strlen(name) - strlen(".weight")] = '\0';
    assert_non_null(strstr(err.text, name));
    seq_trim(p, 0);
    err = (struct error){0};
    assert_true(engine_submit(d, &picks, 1, NULL, &ticket, &err));
    assert_false(engine_wait(d, ticket, NULL, &one, &err));
    assert_non_null(strstr(err.text, name));
    free(logits);
    seq_free(p);
    seq_free(s);
    engine_free(d);
    engine_free(e);
    model_free(predictor);
    model_free(model);
    buf_release(&file);
    model = main_model;
    predictor = main_predictor;
}

static bool plan(const struct model *m, const struct engine_params *p, struct engine_plan *out,
                 struct error *err)
{
#ifdef HOKKU_CUDA
    if (on_cuda)
        return cuda_engine_plan(m, p, out, err);
#endif
    return cpu_engine_plan(m, p, out, err);
}

// What both have is counted once.
static void a_prediction_layer_takes_what_is_its_own(void **state)
{
    (void)state;
    uint64_t own = 0, others = 0;
    for (size_t i = 0; i < gguf_n_tensors(model->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model->gguf, i);
        char begin[32];
        const size_t len = (size_t)snprintf(begin, sizeof begin, "blk.%u.", model->hp.n_layer);
        const bool of_layer = t->name.len > len && memcmp(t->name.data, begin, len) == 0;
        *(of_layer ? &own : &others) += t->n_bytes;
        assert_int_equal(model_has_tensor(predictor, t), of_layer);
        assert_true(!of_layer || !model_has_tensor(model, t));
    }
    struct engine_params params = {.n_ctx = N_CTX, .exact = exact};
    struct engine_plan layer, main_plan;
    struct error err = {0};
    if (!plan(predictor, &params, &layer, &err) || !plan(model, &params, &main_plan, &err))
        fail_msg("%s", err.text);
    assert_int_equal(predictor->hp.n_layer, 1);
    if (!on_cuda) {
        assert_true(own > 0 && layer.weights == own);
        assert_true(main_plan.weights <= others); // (of several prediction layers one is used)
        return;
    }
    // In the device's layout, which is larger, but by less than what both have.
    const size_t shared = (predictor->tok_embd.data == model->tok_embd.data) +
                          (!model->tied && predictor->output.data == model->output.data);
    assert_true(layer.weights >= own && main_plan.weights <= others + own);
    assert_true(layer.weights < own + (shared ? shared * model->tok_embd.n_bytes : own));
    // No more is taken than was planned. (A GPU takes whole pages, and others may take some, too.)
    struct engine *e = open_for(1, N_CTX, 0), *d = open_predictor(e, 0);
    assert_true(layer.n_ctx == d->n_ctx);
    assert_true(!strstr(d->device, "emulation") ||
                d->mem_used <= layer.weights + layer.kv + layer.scratch + layer.other);
    engine_free(d);
    engine_free(e);
}

// A model is opened first, and leaves memory for its prediction layer.
static void what_is_set_aside_is_left_to_others(void **state)
{
    (void)state;
    struct engine_params params = {.n_ctx = N_CTX, .exact = exact, .n_threads = n_threads};
    struct engine_plan whole, rest;
    struct error err = {0};
    if (!plan(model, &params, &whole, &err) || !whole.fits)
        fail_msg("%s", err.text);
    params.set_aside = UINT64_MAX;
    assert_true(plan(model, &params, &rest, &err) && !rest.fits && rest.available == 0);
    assert_null(open_with(model, &params, &err));
    assert_int_equal(err.code, ERR_MEMORY);
}

static void a_device_without_exact_passes_refuses_a_prediction_layer(void **state)
{
    (void)state;
    struct engine_params params = {.n_ctx = N_CTX};
    struct engine_plan layer;
    struct error err = {0};
    if (!on_cuda) {
        assert_true(plan(predictor, &params, &layer, &err));
        return;
    }
    assert_false(plan(predictor, &params, &layer, &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_string_equal(err.text, "no guesses are checked on a GPU without --exact: expected "
                                  "--exact, or --device cpu");
    exact = false;
    struct engine *e = open_for(1, N_CTX, 0);
    exact = true;
    assert_false(engine_gives_hidden(e) || engine_takes_drafts(e));
    engine_free(e);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "glm4moe";
    use_device(argc > 2 ? argv[2] : "cpu");
    exact = on_cuda;
    char bin[1024];
    struct error err = {0};
    if (!find_device())
        return 0;
    snprintf(path, sizeof path, "%s/predictions/%s.gguf", vectors_dir(0), name);
    snprintf(bin, sizeof bin, "%s/predictions/%s.bin", vectors_dir(0), name);
    model = model_load(path, &err);
    predictor = model ? model_predictor(model, &err) : NULL;
    if (!predictor || !file_read(bin, 1 << 24, &expected, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    n_ids = *(const uint32_t *)(const void *)expected.data;
    ids = (const int32_t *)(const void *)expected.data + 1;
    rows = (const float *)(const void *)(ids + n_ids);
    n_threads = 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_those_of_the_formula),
        cmocka_unit_test(predictions_of_a_long_work_are_those_of_the_formula),
        cmocka_unit_test(hidden_states_follow_a_sequence),
        cmocka_unit_test(work_for_a_prediction_layer_has_hidden_states),
        cmocka_unit_test(a_damaged_join_is_named),
        cmocka_unit_test(a_prediction_layer_takes_what_is_its_own),
        cmocka_unit_test(what_is_set_aside_is_left_to_others),
        cmocka_unit_test(a_device_without_exact_passes_refuses_a_prediction_layer),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    buf_release(&expected);
    model_free(predictor);
    model_free(model);
    return failed;
}
