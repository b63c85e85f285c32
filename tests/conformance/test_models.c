// What an engine computes, against reference vectors (tests/vectors/README.md, models and families;
// and what HOKKU_CONFORMANCE names): log-probabilities, likelihood and greedy text of every model
// and prompt, with the prompt evaluated in chunks of 512, 64, 7 and 1 tokens. Engine-agnostic:
// `test_models cpu` (the default) or any other name that open_engine knows, "cuda:2" for one model
// on two devices, "exact" for passes of rows (engine_params.exact) by the CUDA engine; then a part
// of the names to run, the chunks ("64,7"), and a part of the names to leave out. HOKKU_QUICK=1:
// the first tokens of the greedy text alone, of which the second is the first that is decoded.
#include "../unit/further.h"
#include "../unit/test.h"
#include "../unit/vectors.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>

#include "../unit/one_seq.h"
#include "engine/sampler.h"

static const char *engine_name = "cpu";
static uint32_t n_devices = 1;
static bool exact;
static size_t chunks[8] = {512, 64, 7, 1};
static size_t n_chunks = 4;

static struct engine *open_engine(const struct model *m, const struct engine_params *p,
                                  struct error *err)
{
#ifdef HOKKU_CUDA
    struct engine_params q = *p;
    q.devices = n_devices > 1 ? (1u << n_devices) - 1 : 0;
    q.exact = exact;
    if (strcmp(engine_name, "cuda") == 0)
        return cuda_engine_open(m, &q, err);
#endif
    if (strcmp(engine_name, "cpu") == 0)
        return cpu_engine_open(m, p, err);
    error_set(err, ERR_USAGE, "engine %s: not in this build", engine_name);
    return NULL;
}

struct difference {
    double sum, max, nll;
    size_t n, n_near_tie; // numbers compared; positions left out
};

static double log_sum_exp(const float *logits, size_t n)
{
    double max = logits[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

static void add_difference(struct difference *d, double got, double want)
{
    double off = fabs(got - want);
    d->sum += off;
    d->n++;
    d->max = further(d->max, off);
}

// Differences of the listed tokens at one position.
static void compare_position(const json_t *want, const float *logits, size_t n_vocab,
                             struct difference *d)
{
    const double norm = log_sum_exp(logits, n_vocab);
    const json_t *top = json_object_get(want, "top");
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);
        size_t id = (size_t)json_integer_value(json_array_get(pair, 0));
        assert_true(id < n_vocab);
        add_difference(d, logits[id] - norm, json_number_value(json_array_get(pair, 1)));
    }
}

static int32_t *token_ids(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static struct difference evaluate(struct engine *e, const json_t *expected, const int32_t *tokens,
                                  size_t n, size_t chunk)
{
    struct difference d = {0};
    struct error err = {0};
    const size_t n_vocab = e->model->hp.n_vocab;
    const json_t *positions = json_object_get(expected, "positions");
    float *logits = malloc(n_vocab * sizeof *logits);
    size_t n_next = 0;
    assert_non_null(logits);
    one_trim(e, 0);
    for (size_t done = 0; done < n; done += chunk) {
        const size_t m = n - done < chunk ? n - done : chunk;
        if (!one_eval(e, tokens + done, m, LOGITS_ALL, &err))
            fail_msg("eval: %s", err.text);
        for (size_t i = 0; i < m; i++) {
            if (!one_logits(e, i, logits, &err))
                fail_msg("logits: %s", err.text);
            if (done + i + 1 < n) {
                d.nll += log_sum_exp(logits, n_vocab) - logits[tokens[done + i + 1]];
                n_next++;
            }
            const json_t *want = json_array_get(positions, done + i);
            // Activations in float16 may choose another expert at a router's near tie, which all
            // positions after it see a little of: these count to the mean alone.
            const double max = d.max;
            if (strcmp(engine_name, "cpu") != 0 &&
                json_is_true(json_object_get(want, "near_tie"))) {
                d.n_near_tie++;
                continue;
            }
            compare_position(want, logits, n_vocab, &d);
            if (d.n_near_tie > 0)
                d.max = max;
        }
    }
    d.nll /= (double)(n_next ? n_next : 1);
    free(logits);
    return d;
}

// Goes on after the n tokens that were evaluated last.
static void check_greedy(struct engine *e, const json_t *expected, size_t n)
{
    struct error err = {0};
    size_t n_greedy;
    int32_t *greedy = token_ids(json_object_get(expected, "greedy"), &n_greedy);
    const json_t *gaps = json_object_get(expected, "greedy_gap");
    if (quick() && n_greedy > 4)
        n_greedy = 4;
    struct sampler_settings settings = sampler_defaults;
    settings.temp = 0;
    const struct one_params p = {.sampler = &settings, .max_tokens = n_greedy};
    if (!one_start(e, &p, &err))
        fail_msg("decode_start: %s", err.text);
    for (size_t i = 0; i < n_greedy; i++) {
        struct decoded got;
        if (!one_next(e, &got, &err))
            fail_msg("decode_next: %s", err.text);
        if (got.id == greedy[i])
            continue;
        double gap = json_number_value(json_array_get(gaps, i));
        if (gap > 0.05)
            fail_msg("greedy token %zu is %d, expected %d (gap %g)", i, got.id, greedy[i], gap);
        break; // a near tie: from here on the texts may differ
    }
    one_stop(e, n);
    free(greedy);
}

// Of a folder of others there may be models that hokku does not run, or only the CPU engine (see
// cuda/facts.cu).
static bool may_be_refused(const char *path, const char *why)
{
    const bool own = strncmp(path, vectors_dir(0), strlen(vectors_dir(0))) == 0;
    return (n_devices > 1 && (strstr(why, "can be split among at most") ||
                              strstr(why, "cannot be split among devices yet"))) ||
           (!own && (strstr(why, "the CUDA engine does not compute this yet") ||
                     strstr(why, "is not supported; these are") || strstr(why, "expert") ||
                     strstr(why, "has weight type")));
}

// state: ".../models/expected/MODEL.p1.json"
static void agrees_with_the_reference(void **state)
{
    const char *path = *state, *name = strrchr(path, '/') + 1;
    char model_path[1024];
    struct error err = {0};
    json_error_t jerr;
    json_t *expected = json_load_file(path, JSON_ALLOW_NUL, &jerr);
    if (!expected)
        fail_msg("%s: %s", path, jerr.text);
    snprintf(model_path, sizeof model_path, "%.*s../%.*s.gguf", (int)(name - path), path,
             (int)(strlen(name) - strlen(".p1.json")), name);
    struct model *m = model_load(model_path, &err);
    // Context 512: p2 is longer than what some models say they were trained for. Of families it
    // chooses among rotations, and their answers are for 2048.
    const struct engine_params params = {.n_ctx = strstr(path, "/families/") ? 2048 : 512,
                                         .n_batch = 512};
    struct engine *e = m ? open_engine(m, &params, &err) : NULL;
    if (!e && may_be_refused(path, err.text)) { // by name: that is what is promised of it
        print_message("# refused: %s\n", err.text);
        model_free(m);
        json_decref(expected);
        return;
    }
    if (!e)
        fail_msg("%s", err.text);

    const bool is_float = strcmp(m->quant, "F32") == 0 || strcmp(m->quant, "F16") == 0 ||
                          strcmp(m->quant, "BF16") == 0;
    const bool is_cpu = strcmp(engine_name, "cpu") == 0;
    const double max_mean = !is_float ? 0.030 : is_cpu ? 0.002 : 0.010;
    const double max_max = !is_float ? 0.16 : is_cpu ? 0.012 : 0.05;
    const double nll = json_number_value(json_object_get(expected, "nll_per_token"));
    size_t n;
    int32_t *tokens = token_ids(json_object_get(expected, "tokens"), &n);
    assert_true(n > 0 && n <= 512);
    for (size_t i = 0; i < n_chunks; i++) {
        struct difference d = evaluate(e, expected, tokens, n, chunks[i]);
        double mean = d.sum / (double)d.n;
        print_message("# %s in chunks of %zu: log-probabilities off by %.5f mean, %.4f max; nll "
                      "%.4f, expected %.4f\n",
                      name, chunks[i], mean, d.max, d.nll, nll);
        if (d.n_near_tie > n / 4)
            fail_msg("%zu of %zu positions are near ties", d.n_near_tie, n);
        if (!(mean <= max_mean) || !(d.max <= max_max))
            fail_msg("expected at most %g mean, %g max", max_mean, max_max);
        // (what is said of a position left out may be that of another expert)
        const double max_nll = 0.01 + 0.5 * (double)d.n_near_tie / (double)n;
        if (!(fabs(d.nll - nll) <= max_nll))
            fail_msg("nll per token differs by more than %g", max_nll);
    }
    check_greedy(e, expected, n);
    free(tokens);
    one_close(e);
    model_free(m);
    json_decref(expected);
}

enum { MAX_TESTS = 512 };
static struct CMUnitTest tests[MAX_TESTS];

// One test for every MODEL.p1.json of a folder of `kind` whose name contains `filter`, but not
// `without`.
static bool add_tests(const char *vectors, const char *kind, const char *filter,
                      const char *without, size_t *n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/expected", vectors, kind);
    DIR *dir = opendir(path);
    if (!dir) {
        fprintf(stderr, "%s cannot be opened: reference vectors were expected there\n", path);
        return false;
    }
    for (struct dirent *entry; *n < MAX_TESTS && (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name), size = strlen(path) + len + 2;
        if (len <= 8 || strcmp(entry->d_name + len - 5, ".json") != 0 ||
            !strstr(entry->d_name, filter) || (without && strstr(entry->d_name, without)))
            continue;
        char *name = malloc(size);
        if (!name)
            return false;
        snprintf(name, size, "%s/%s", path, entry->d_name);
        tests[(*n)++] = (struct CMUnitTest){
            .name = name, .test_func = agrees_with_the_reference, .initial_state = name};
    }
    closedir(dir);
    return true;
}

static int compare_tests(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        engine_name = argv[1];
    if (strncmp(engine_name, "cuda:", 5) == 0) {
        n_devices = (uint32_t)atoi(engine_name + 5);
        engine_name = "cuda";
    }
    exact = strcmp(engine_name, "exact") == 0;
    if (exact)
        engine_name = "cuda";
#ifdef HOKKU_CUDA
    char why[256] = "fewer devices";
    if (strcmp(engine_name, "cuda") == 0 && cuda_device_count(why, sizeof why) < (int)n_devices) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
#endif
    if (argc > 3) { // "64,7": other chunks, where all of them take too long
        char *at = argv[3];
        for (n_chunks = 0; n_chunks < 8 && *at; at += *at == ',')
            if ((chunks[n_chunks++] = strtoul(at, &at, 10)) == 0)
                return 2;
    }
    size_t n = 0;
    for (size_t i = 0; i < n_vectors_dirs(); i++)
        for (size_t k = 0; k < 2; k++)
            if (!add_tests(vectors_dir(i), k == 0 ? "models" : "families", argc > 2 ? argv[2] : "",
                           argc > 4 ? argv[4] : NULL, &n))
                return 1;
    if (n == 0) {
        fprintf(stderr, "no vectors at %s: ninja -C build writes them\n", vectors_dir(0));
        return 1;
    }
    qsort(tests, n, sizeof *tests, compare_tests);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    int failed = _cmocka_run_group_tests("models", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free(tests[i].initial_state);
    return failed;
}
