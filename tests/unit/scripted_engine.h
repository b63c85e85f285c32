// An engine that computes nothing and forgets nothing: the token after n evaluated ones is
// script[n]. It runs ahead as a device does, keeps what it was asked for, and asserts the contract
// of engine.h.
#ifndef HOKKU_TESTS_UNIT_SCRIPTED_ENGINE_H
#define HOKKU_TESTS_UNIT_SCRIPTED_ENGINE_H

#include "engine/engine.h"
#include "tiny_model.h"

enum { SCRIPT = 512, SCRIPT_AHEAD = 3, SCRIPT_CALLS = 128 };

struct scripted_eval {
    size_t begin, n;
    enum engine_logits want;
};

struct scripted {
    struct engine base;
    int32_t script[SCRIPT]; // by position
    int32_t known[SCRIPT];  // the tokens evaluated, base.n_past of them
    bool fresh, decoding, ended;
    size_t n_next, n_asked; // tokens given since decode_start, of at most
    size_t decode_past;     // evaluated before decode_start
    int32_t stop_ids[16];
    size_t n_stop_ids;
    struct scripted_eval evals[SCRIPT_CALLS];
    size_t n_evals, n_starts;
    size_t kept;      // by the last decode_stop
    size_t most_past; // positions that were ever evaluated
    size_t interrupt; // eval of this position is interrupted; 0: none
    size_t fail_next; // the token number (from 1) whose sampling fails; 0: none
    enum error_code fail_how;
    // What an evaluated token takes on the clock of the test; may be NULL.
    void (*work)(size_t n_tokens);
};

static inline struct scripted *scripted_of(struct engine *e)
{
    return (struct scripted *)e;
}

static inline bool scripted_eval(struct engine *e, const int32_t *tokens, size_t n,
                                 enum engine_logits want, struct error *err)
{
    struct scripted *s = scripted_of(e);
    assert_false(s->decoding);
    assert_in_range(n, 1, e->n_batch);
    assert_true(e->n_past + n <= e->n_ctx);
    if (s->interrupt && e->n_past + n > s->interrupt)
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (s->n_evals < SCRIPT_CALLS)
        s->evals[s->n_evals++] = (struct scripted_eval){e->n_past, n, want};
    memcpy(s->known + e->n_past, tokens, n * sizeof *tokens);
    e->n_past += n;
    s->most_past = e->n_past > s->most_past ? e->n_past : s->most_past;
    s->fresh = want != LOGITS_NONE;
    if (s->work)
        s->work(n);
    return true;
}

static inline void scripted_trim(struct engine *e, size_t n)
{
    assert_true(n <= e->n_past);
    if (n < e->n_past)
        scripted_of(e)->fresh = false;
    e->n_past = n;
}

static inline bool scripted_start(struct engine *e, const struct decode_params *p,
                                  struct error *err)
{
    struct scripted *s = scripted_of(e);
    (void)err;
    assert_true(s->fresh && !s->decoding && p->max_tokens > 0);
    assert_true(e->n_past + p->max_tokens <= e->n_ctx + 1);
    assert_int_equal(p->n_history, e->n_past); // all of it is evaluated, and nothing else is
    assert_memory_equal(p->history, s->known, e->n_past * sizeof *s->known);
    assert_true(p->n_stop_ids <= 16);
    s->decoding = true;
    s->ended = false;
    s->n_next = 0;
    s->n_asked = p->max_tokens;
    s->n_stop_ids = p->n_stop_ids;
    for (size_t i = 0; i < p->n_stop_ids; i++)
        s->stop_ids[i] = p->stop_ids[i];
    s->decode_past = e->n_past;
    s->n_starts++;
    return true;
}

static inline bool scripted_is_stop(const struct scripted *s, int32_t id)
{
    for (size_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

static inline bool scripted_next(struct engine *e, struct decoded *out, struct error *err)
{
    struct scripted *s = scripted_of(e);
    assert_true(s->decoding);
    assert_false(s->ended);
    assert_true(s->n_next < s->n_asked);
    if (s->fail_next && s->n_next + 1 == s->fail_next)
        return error_set(err, s->fail_how, "the script fails here");
    *out = (struct decoded){.id = s->script[s->decode_past + s->n_next]};
    s->n_next++;
    s->ended = scripted_is_stop(s, out->id);
    if (s->work)
        s->work(1);
    // As far as it may: not past a stop id, not more than was asked for.
    while (e->n_past < e->n_ctx && e->n_past < s->decode_past + s->n_next + SCRIPT_AHEAD &&
           e->n_past + 1 < s->decode_past + s->n_asked &&
           !scripted_is_stop(s, s->script[e->n_past])) {
        s->known[e->n_past] = s->script[e->n_past];
        e->n_past++;
        s->most_past = e->n_past > s->most_past ? e->n_past : s->most_past;
    }
    return true;
}

static inline void scripted_stop(struct engine *e, size_t n_keep)
{
    struct scripted *s = scripted_of(e);
    assert_true(s->decoding);
    assert_true(n_keep <= e->n_past);
    s->decoding = s->fresh = false;
    s->kept = e->n_past = n_keep;
}

static inline size_t scripted_kv_bytes(const struct engine *e, size_t begin, size_t end)
{
    (void)e;
    return (end - begin) * 1000;
}

static inline void scripted_free(struct engine *e)
{
    (void)e;
}

static inline void scripted_init(struct scripted *s, const struct model *m, uint32_t n_ctx,
                                 uint32_t n_batch)
{
    static const struct engine_ops ops = {.eval = scripted_eval,
                                          .trim = scripted_trim,
                                          .decode_start = scripted_start,
                                          .decode_next = scripted_next,
                                          .decode_stop = scripted_stop,
                                          .kv_bytes = scripted_kv_bytes,
                                          .free = scripted_free};
    assert_true(n_ctx < SCRIPT);
    memset(s, 0, sizeof *s);
    s->base = (struct engine){
        .ops = &ops, .model = m, .device = "script", .n_ctx = n_ctx, .n_batch = n_batch};
}

// A model for it: its tokenizer and its sizes are what counts. Free with model_free, then b.
static inline struct model *scripted_model(struct buf *b)
{
    struct tiny t;
    struct error err = {0};
    *b = (struct buf){0};
    tiny_init(&t, "llama");
    tiny_write(&t, b);
    tiny_release(&t);
    assert_false(b->failed);
    struct gguf *g = gguf_open_memory(b->data, b->len, "tiny.gguf", &err);
    struct model *m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

#endif
