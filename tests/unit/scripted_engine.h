// An engine that computes nothing and forgets nothing: the token after n evaluated ones is
// script[n]. It runs ahead as a device does, keeps what it was asked for, and asserts the contract
// of engine/backend.h. For one sequence.
#ifndef HOKKU_TESTS_UNIT_SCRIPTED_ENGINE_H
#define HOKKU_TESTS_UNIT_SCRIPTED_ENGINE_H

#include "engine/backend.h"
#include "tiny_model.h"

enum { SCRIPT = 512, SCRIPT_CALLS = 128 };

struct scripted_eval {
    size_t begin, n;
    enum engine_logits want;
};

struct scripted {
    struct engine base;
    struct engine_core core;
    int32_t script[SCRIPT]; // by position
    int32_t known[SCRIPT];  // the tokens evaluated, n_past of them, those ahead included
    size_t n_past;
    bool fresh, decoding, ended;
    size_t n_next, n_asked; // tokens given since pick_start, and asked for
    size_t decode_past;     // evaluated before pick_start
    int32_t stop_ids[16];
    size_t n_stop_ids;
    struct scripted_eval evals[SCRIPT_CALLS];
    size_t n_evals, n_starts;
    size_t most_past; // positions that were ever evaluated
    size_t interrupt; // eval of this position is interrupted; 0: none
    size_t fail_next; // the token number (from 1) whose sampling fails; 0: none
    enum error_code fail_how;
    // What evaluated tokens take on the clock of the test, or a pick alone (0); may be NULL.
    void (*work)(size_t n_tokens);
};

static inline struct scripted *scripted_of(struct engine *e)
{
    return (struct scripted *)e;
}

static inline bool scripted_eval(struct engine *e, const struct seq *q, const int32_t *ids,
                                 size_t n, enum engine_logits want, const struct cancel *cancel,
                                 struct error *err)
{
    struct scripted *s = scripted_of(e);
    assert_false(s->decoding || cancel_asked(cancel));
    assert_in_range(n, 1, e->n_batch);
    assert_true(q->n_past + n <= e->n_ctx && q->n_past <= s->n_past);
    assert_true(q->n_blocks * q->engine->core->backend->kv_block >= q->n_past + n);
    if (s->interrupt && q->n_past + n > s->interrupt)
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (s->n_evals < SCRIPT_CALLS)
        s->evals[s->n_evals++] = (struct scripted_eval){q->n_past, n, want};
    memcpy(s->known + q->n_past, ids, n * sizeof *ids);
    s->n_past = q->n_past + n;
    s->most_past = s->n_past > s->most_past ? s->n_past : s->most_past;
    s->fresh = want != LOGITS_NONE;
    if (s->work)
        s->work(n);
    return true;
}

static inline bool scripted_start(struct engine *e, const struct seq *q, struct error *err)
{
    struct scripted *s = scripted_of(e);
    (void)err;
    assert_true(s->fresh && !s->decoding);
    assert_true(q->ids.len == q->n_past && q->n_past == s->n_past); // all of it is evaluated
    assert_memory_equal(q->ids.data, s->known, q->n_past * sizeof *s->known);
    assert_true(q->stop_ids.len <= 16);
    s->decoding = true;
    s->ended = false;
    s->n_next = 0;
    s->n_asked = 1;
    s->n_stop_ids = q->stop_ids.len;
    for (size_t i = 0; i < q->stop_ids.len; i++)
        s->stop_ids[i] = q->stop_ids.data[i];
    s->decode_past = q->n_past;
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

static inline bool scripted_next(struct engine *e, const struct seq *q, struct error *err)
{
    struct scripted *s = scripted_of(e);
    (void)err;
    assert_true(s->decoding && !s->ended);
    assert_true(s->n_asked - s->n_next <= ENGINE_RUN_AHEAD);
    s->n_asked++;
    assert_true(s->decode_past + s->n_asked - 1 <= e->n_ctx);
    assert_true(q->n_blocks * e->core->backend->kv_block >= s->decode_past + s->n_asked - 1);
    return true;
}

static inline bool scripted_take(struct engine *e, const struct seq *q, bool evaluate,
                                 const struct cancel *cancel, struct decoded *out,
                                 struct error *err)
{
    struct scripted *s = scripted_of(e);
    assert_true(s->decoding);
    assert_false(s->ended);
    assert_true(s->n_next < s->n_asked && evaluate == (s->n_next > 0));
    assert_int_equal(q->ids.len, s->decode_past + s->n_next);
    if (cancel_asked(cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (s->fail_next && s->n_next + 1 == s->fail_next)
        return error_set(err, s->fail_how, "the script fails here");
    *out = (struct decoded){.id = s->script[s->decode_past + s->n_next]};
    s->n_next++;
    s->ended = scripted_is_stop(s, out->id);
    if (s->work)
        s->work(evaluate);
    // As far as it may: not past a stop id, not more than was asked for.
    while (s->n_past + 1 < s->decode_past + s->n_asked &&
           !scripted_is_stop(s, s->script[s->n_past])) {
        s->known[s->n_past] = s->script[s->n_past];
        s->n_past++;
        s->most_past = s->n_past > s->most_past ? s->n_past : s->most_past;
    }
    return true;
}

static inline void scripted_stop(struct engine *e)
{
    struct scripted *s = scripted_of(e);
    assert_true(s->decoding);
    s->decoding = s->fresh = false;
}

static inline size_t scripted_kv_bytes(const struct engine *e, bool near, size_t begin, size_t end)
{
    (void)e;
    return near ? 0 : (end - begin) * 1000;
}

static inline void scripted_free(struct engine *e)
{
    engine_release(e);
}

// Free with engine_free.
static inline void scripted_init(struct scripted *s, const struct model *m, uint32_t n_ctx,
                                 uint32_t n_batch)
{
    static const struct backend backend = {.kv_block = 16,
                                           .eval = scripted_eval,
                                           .pick_start = scripted_start,
                                           .pick_next = scripted_next,
                                           .pick_take = scripted_take,
                                           .pick_stop = scripted_stop,
                                           .kv_bytes = scripted_kv_bytes,
                                           .free = scripted_free};
    struct error err = {0};
    assert_true(n_ctx < SCRIPT);
    memset(s, 0, sizeof *s);
    s->base = (struct engine){.model = m, .device = "script", .n_ctx = n_ctx, .n_batch = n_batch};
    assert_true(engine_init(&s->base, &s->core, &backend, 1, 1, &err));
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
