// The built-in model gives the same greedy answers on the CPU and on the GPU, and goes on from its
// KV cache alike: `test_builtin MODEL.gguf`.
#include "../unit/test.h"

#include "../unit/one_seq.h"
#include "engine/sampler.h"
#include "text/tokenizer.h"

static const char *path;

enum { N_CTX = 512, MAX_TOKENS = 40 };

struct answer {
    int32_t ids[MAX_TOKENS];
    size_t n;
};

// Evaluates `text` (ChatML, control tokens written out) after what is there, then decodes.
static struct answer ask(struct engine *e, const struct tokenizer *t, struct ids *timeline,
                         const char *text)
{
    struct error err = {0};
    struct answer a = {.n = 0};
    const struct tokenize_options options = {.special = true, .continuation = timeline->len > 0};
    const size_t before = timeline->len;
    assert_true(tokenizer_encode(t, text, strlen(text), &options, timeline, &err));
    if (!one_eval(e, timeline->data + before, timeline->len - before, LOGITS_LAST, &err))
        fail_msg("%s", err.text);
    struct sampler_settings greedy = sampler_defaults;
    greedy.temp = 0;
    size_t n_end;
    const int32_t *end = tokenizer_end_ids(t, &n_end);
    const struct one_params p = {
        .sampler = &greedy, .max_tokens = MAX_TOKENS, .stop_ids = end, .n_stop_ids = n_end};
    assert_true(one_start(e, &p, &err));
    while (a.n < MAX_TOKENS) {
        struct decoded d;
        if (!one_next(e, &d, &err))
            fail_msg("%s", err.text);
        if (tokenizer_is_end(t, d.id))
            break;
        a.ids[a.n++] = d.id;
    }
    // what was said stays: evaluated or not, the next turn begins after it
    one_stop(e, timeline->len);
    return a;
}

static void greedy_answers_agree(void **state)
{
    (void)state;
    static const char *const turns[] = {
        "<|im_start|>user\nMy name is Zorblat.<|im_end|>\n<|im_start|>assistant\n",
        "Hello.<|im_end|>\n<|im_start|>user\nWrite a haiku with the word forty-two."
        "<|im_end|>\n<|im_start|>assistant\n",
        "A poem.<|im_end|>\n<|im_start|>user\nWhat is 27 + 48?<|im_end|>\n<|im_start|>assistant\n",
        "75.<|im_end|>\n<|im_start|>user\nWhat is my name?<|im_end|>\n<|im_start|>assistant\n",
    };
    enum { N_TURNS = sizeof turns / sizeof *turns };
    struct error err = {0};
    struct model *m = model_load(path, &err);
    if (!m)
        fail_msg("%s", err.text);
    struct tokenizer *t = tokenizer_create(m->gguf, &err);
    assert_non_null(t);
    struct answer got[2][N_TURNS];
    for (int gpu = 0; gpu < 2; gpu++) {
        const struct engine_params p = {.n_ctx = N_CTX, .n_batch = 64, .n_threads = 1};
        struct engine *e = (gpu ? cuda_engine_open : cpu_engine_open)(m, &p, &err);
        if (!e)
            fail_msg("%s", err.text);
        struct ids timeline = {0};
        for (int i = 0; i < N_TURNS; i++)
            got[gpu][i] = ask(e, t, &timeline, turns[i]);
        ids_release(&timeline);
        one_close(e);
    }
    for (int i = 0; i < N_TURNS; i++) {
        struct buf text = {0};
        for (size_t k = 0; k < got[1][i].n; k++)
            assert_true(tokenizer_decode_one(t, got[1][i].ids[k], false, &text));
        for (size_t k = 0; k < text.len; k++)
            if (text.data[k] == '\n')
                text.data[k] = '/';
        print_message("# %.*s\n", (int)text.len, text.data);
        buf_release(&text);
        assert_true(got[0][i].n > 1);
        assert_int_equal(got[0][i].n, got[1][i].n);
        assert_memory_equal(got[0][i].ids, got[1][i].ids, got[0][i].n * sizeof(int32_t));
    }
    tokenizer_free(t);
    model_free(m);
}

int main(int argc, char **argv)
{
    char why[256] = "";
    path = argc > 1 ? argv[1] : "builtin/hokku-builtin.gguf";
    if (cuda_device_count(why, sizeof why) <= 0) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(greedy_answers_agree)};
    return RUN_TESTS("built-in model", tests);
}
