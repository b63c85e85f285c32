// `hokku replay --check`: that each of its ways evaluates as it says. An engine that errs only
// where a conversation is evaluated in one of them is found by that one.
#include "test.h"

#include "cpu/kernels.h"
#include "engine/backend.h"
#include "tools/replay.h"
#include "vectors.h"

// What an engine may do that must make no difference, and here does.
enum fault {
    NO_FAULT,
    FAULT_ALWAYS,    // as if another program had recorded it
    FAULT_FROM_ZERO, // a second turn evaluated together with the first one
    FAULT_PIECES_OF_1,
    FAULT_PIECES_OF_7,
    FAULT_PIECES_OF_64,
    FAULT_DRAFTS,
    FAULT_COMPANY,
};

static struct {
    enum fault fault;
    const struct backend *real;
    size_t n_drafts;          // that were checked
    size_t n_beside, n_parts; // passes of several, and the most that one had
    bool mixed;               // one had a prompt's rows beside a decoded one
} engine;

static bool errs(size_t begin, size_t n)
{
    switch (engine.fault) {
    case NO_FAULT:
    case FAULT_DRAFTS:
    case FAULT_COMPANY:
        return false;
    case FAULT_ALWAYS:
        return begin == 0;
    case FAULT_FROM_ZERO:
        return begin == 0 && n > 64;
    case FAULT_PIECES_OF_1:
        return begin == 0 && n == 1;
    case FAULT_PIECES_OF_7:
        return begin == 0 && n == 7;
    case FAULT_PIECES_OF_64:
        return begin == 0 && n == 64;
    }
    return false;
}

// Evaluates other tokens than it was given, where it errs.
static bool eval(struct engine *e, const struct seq *s, const int32_t *ids, size_t n,
                 enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    int32_t other[512];
    assert_in_range(n, 1, 512);
    for (size_t i = 0; i < n; i++)
        other[i] = errs(s->n_past, n) ? ids[i] + 1 : ids[i];
    return engine.real->eval(e, s, other, n, want, cancel, err);
}

static bool eval_parts(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel, struct error *err)
{
    engine.n_drafts += parts->n_drafts;
    if (n_parts > 1) {
        bool read = false, decoded = false;
        for (size_t i = 0; i < n_parts; i++)
            *(parts[i].n > 1 ? &read : &decoded) = true;
        engine.mixed |= read && decoded;
        engine.n_beside++;
        engine.n_parts = n_parts > engine.n_parts ? n_parts : engine.n_parts;
    }
    bool ok = engine.real->eval_parts(e, parts, n_parts, cancel, err);
    if (ok && engine.fault == FAULT_DRAFTS && parts->n_drafts > 0)
        parts->d.id ^= 1;
    for (size_t i = 0; ok && engine.fault == FAULT_COMPANY && n_parts > 1 && i < n_parts; i++)
        parts[i].d.id ^= 1;
    return ok;
}

struct fixture {
    struct model *m;
    struct engine *e;
    struct conversation c;
    struct backend backend;
};

static void say(struct fixture *f, const char *text, struct sampler_settings *sampler)
{
    struct error err = {0};
    struct answer_params p = {.sampler = sampler, .n_predict = 70, .ignore_eos = true};
    enum finish finish;
    assert_true(conversation_add(&f->c, ROLE_USER, text, strlen(text), &err));
    assert_true(conversation_answer(&f->c, &p, &finish, &err));
}

// Turns of a small model, whose answers have two tokens only: they repeat, so there are drafts.
static void record(struct fixture *f, uint32_t n_ctx, int n_turns)
{
    struct error err = {0};
    struct engine_params p = {.n_ctx = n_ctx, .n_batch = 512, .n_threads = 1};
    struct sampler_settings sampler = sampler_defaults;
    sampler.temp = 0;
    sampler.n_bias = 2;
    sampler.bias[0] = (struct logit_bias){300, 1000};
    sampler.bias[1] = (struct logit_bias){301, 1000};
    char path[4096];
    memset(f, 0, sizeof *f);
    memset(&engine, 0, sizeof engine);
    snprintf(path, sizeof path, "%s/models/qwen2-tiny-q8_0.gguf", vectors_dir(0));
    f->m = model_load(path, &err);
    assert_non_null(f->m);
    f->e = cpu_engine_open(f->m, &p, &err);
    assert_non_null(f->e);
    engine.real = f->e->core->backend;
    f->backend = *engine.real;
    f->backend.eval = eval;
    f->backend.eval_parts = eval_parts;
    f->e->core->backend = &f->backend;
    assert_true(conversation_init(&f->c, f->m, f->e, NULL, 0, 0, &err));
    for (int i = 0; i < n_turns; i++)
        say(f, "one two three four five", &sampler);
}

static void release(struct fixture *f)
{
    conversation_release(&f->c);
    engine_free(f->e);
    model_free(f->m);
}

static void each_way_finds_what_only_it_can_see(void **state)
{
    (void)state;
    static const struct {
        enum fault fault;
        const char *found; // by the way of this name; NULL: as it was recorded
        bool unchecked;    // seen without --check, too
    } cases[] = {
        {FAULT_ALWAYS, NULL, true},
        {FAULT_FROM_ZERO, "evaluated anew", false},
        {FAULT_PIECES_OF_1, "in pieces of 1 token", false},
        {FAULT_PIECES_OF_7, "in pieces of 7 tokens", false},
        {FAULT_PIECES_OF_64, "in pieces of 64 tokens", false},
        {FAULT_DRAFTS, "with drafts", false},
        {FAULT_COMPANY, "beside other answers", false},
    };
    struct fixture f;
    struct session_info info = {.device = "CPU"};
    record(&f, 2048, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int check = 0; check < 2; check++) {
            struct error err = {0};
            struct buf text = {0}, json = {0};
            engine.fault = cases[i].fault;
            bool agree = tool_replay(&f.c, &info, false, check, NULL, NULL, &text, &err);
            assert_true(agree == (!check && !cases[i].unchecked));
            assert_true(tool_replay(&f.c, &info, true, check, NULL, NULL, &json, &err) == agree);
            if (!agree) {
                assert_int_equal(err.code, ERR_FAIL);
                assert_null(strstr(buf_str(&text), "agree"));
                assert_non_null(strstr(buf_str(&json), "\"agree\":false"));
            }
            if (!agree && cases[i].found) {
                assert_ptr_equal(strstr(buf_str(&text), cases[i].found), buf_str(&text));
                char way[64];
                snprintf(way, sizeof way, "\"way\":\"%s\"", cases[i].found);
                assert_non_null(strstr(buf_str(&json), way));
            } else if (!agree) {
                assert_ptr_equal(strstr(buf_str(&text), "turn "), buf_str(&text));
                assert_null(strstr(buf_str(&json), "\"way\""));
            }
            buf_release(&text);
            buf_release(&json);
        }
    }
    release(&f);
}

static void without_a_fault_all_ways_agree(void **state)
{
    (void)state;
    struct fixture f;
    struct session_info info = {.device = "CPU"};
    struct error err = {0};
    struct buf text = {0};
    record(&f, 2048, 2);
    assert_true(tool_replay(&f.c, &info, false, true, NULL, NULL, &text, &err));
    assert_ptr_equal(
        strstr(buf_str(&text), "all agree: 140 tokens of 2 answers\nalso evaluated anew, "),
        buf_str(&text));
    assert_non_null(strstr(buf_str(&text), ", beside other answers\n"));
    assert_true(engine.n_drafts > 0);
    // Beside an answer of 70 tokens others come and go, more than once.
    assert_int_equal(engine.n_parts, 4);
    assert_true(engine.n_beside >= 2 * 60 && engine.mixed);
    buf_release(&text);
    release(&f);
}

// An engine that takes one sequence in a pass, and one whose context has no room for two.
static void who_has_no_company_says_so(void **state)
{
    (void)state;
    static const char *const why[] = {"this engine evaluates one answer at a time",
                                      "the context has no room for two"};
    struct session_info info = {.device = "CPU"};
    for (int full = 0; full < 2; full++) {
        struct fixture f;
        struct error err = {0};
        struct buf text = {0}, json = {0};
        char said[128];
        record(&f, full ? CPU_ATTN_SPLIT : 512, 1);
        if (!full)
            f.e->core->max_parts = 1;
        assert_true(tool_replay(&f.c, &info, false, true, NULL, NULL, &text, &err));
        assert_int_equal(engine.n_beside, 0);
        snprintf(said, sizeof said, "with drafts\nnot tried beside other answers: %s", why[full]);
        if (!strstr(buf_str(&text), said))
            fail_msg("no \"%s\" in %s", said, buf_str(&text));
        assert_true(tool_replay(&f.c, &info, true, true, NULL, NULL, &json, &err));
        snprintf(said, sizeof said, "\"not_tried\":{\"beside other answers\":\"%s", why[full]);
        assert_non_null(strstr(buf_str(&json), said));
        buf_release(&text);
        buf_release(&json);
        release(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_finds_what_only_it_can_see),
        cmocka_unit_test(without_a_fault_all_ways_agree),
        cmocka_unit_test(who_has_no_company_says_so),
    };
    return RUN_TESTS("replay", tests);
}
