// One sequence of an engine, driven call by call: what tests of a single timeline are made of. The
// sequence is opened by the first call and freed by one_close.
#ifndef HOKKU_TESTS_UNIT_ONE_SEQ_H
#define HOKKU_TESTS_UNIT_ONE_SEQ_H

#include "engine/backend.h"

static _Thread_local const struct cancel *one_cancel; // of every call of this thread, to one_close

static inline struct seq *one(struct engine *e)
{
    if (!e->core->seqs) {
        struct error err = {0};
        if (!seq_open(e, 0, &err))
            fail_msg("%s", err.text);
    }
    return e->core->seqs;
}

static inline void one_close(struct engine *e)
{
    one_cancel = NULL;
    if (e)
        seq_free(e->core->seqs);
    engine_free(e);
}

static inline size_t one_past(struct engine *e)
{
    return seq_n_past(one(e));
}

static inline bool one_eval(struct engine *e, const int32_t *ids, size_t n, enum engine_logits want,
                            struct error *err)
{
    struct work w = {.seq = one(e), .ids = ids, .n = n};
    w.n_logits = want == LOGITS_ALL ? (uint32_t)n : want == LOGITS_LAST;
    return engine_submit(e, &w, 1, one_cancel, NULL, err);
}

static inline void one_trim(struct engine *e, size_t n)
{
    seq_trim(one(e), n);
}

static inline bool one_logits(struct engine *e, size_t i, float *out, struct error *err)
{
    return seq_logits(one(e), i, one_cancel, out, err);
}

static inline bool one_profile(struct engine *e, const int32_t *tokens, size_t n, uint32_t n_run,
                               struct engine_profile *out, struct error *err)
{
    return engine_profile(one(e), tokens, n, n_run, one_cancel, out, err);
}

static inline bool one_export(struct engine *e, size_t begin, size_t end, void *dst,
                              struct error *err)
{
    return seq_export(one(e), begin, end, dst, err);
}

// Of tokens that nobody looks at: ids 0.
static inline bool one_import(struct engine *e, size_t begin, size_t end, const void *src,
                              struct error *err)
{
    int32_t *ids = calloc(end - begin + 1, sizeof *ids);
    bool ok = begin == seq_len(one(e))
                  ? seq_import(one(e), ids, end - begin, src, engine_kv_bytes(e, begin, end), err)
                  : error_set(err, ERR_FAIL, "not where the sequence ends");
    free(ids);
    return ok;
}

// Tokens decoded with the device ahead, as an answer is.
static _Thread_local struct one_run {
    struct engine *e;
    const int32_t *stop_ids; // borrowed
    size_t n_stop_ids;
    uint64_t ticket[ENGINE_RUN_AHEAD + 1];
    size_t n_asked, n_taken, n_wanted;
} one_runs[4];

static inline struct one_run *one_run(const struct engine *e)
{
    for (size_t i = 0; i < 4; i++)
        if (one_runs[i].e == e)
            return &one_runs[i];
    return NULL;
}

struct one_params {
    const struct sampler_settings *sampler;
    uint32_t n_probs;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    size_t max_tokens;
};

// At most max_tokens, after an eval that left logits of the last token.
static inline bool one_start(struct engine *e, const struct one_params *p, struct error *err)
{
    const struct sampling set = {.sampler = p->sampler,
                                 .n_probs = p->n_probs,
                                 .stop_ids = p->stop_ids,
                                 .n_stop_ids = p->n_stop_ids};
    struct one_run *r = one_run(e) ? one_run(e) : one_run(NULL);
    struct work w = {.seq = one(e), .n_pick = 1};
    if (!seq_sampling(one(e), &set, err))
        return false;
    *r = (struct one_run){e, p->stop_ids, p->n_stop_ids, .n_asked = 1, .n_wanted = p->max_tokens};
    if (engine_submit(e, &w, 1, one_cancel, &r->ticket[0], err))
        return true;
    r->e = NULL;
    return false;
}

static inline bool one_next(struct engine *e, struct decoded *out, struct error *err)
{
    enum { N = ENGINE_RUN_AHEAD + 1 };
    struct one_run *r = one_run(e);
    if (!r || r->n_taken == r->n_wanted)
        return error_set(err, ERR_FAIL, "more tokens than were asked for");
    while (r->n_asked < r->n_wanted && r->n_asked <= r->n_taken + ENGINE_RUN_AHEAD) {
        struct work w = {.seq = one(e), .n = 1, .n_pick = 1};
        struct error full = {0};
        if (!engine_submit(e, &w, 1, one_cancel, &r->ticket[r->n_asked % N], &full)) {
            if (full.code != ERR_CONTEXT || r->n_asked == r->n_taken) {
                *err = full;
                return false;
            }
            r->n_wanted = r->n_asked;
            break;
        }
        r->n_asked++;
    }
    bool ok = engine_wait(e, r->ticket[r->n_taken % N], one_cancel, out, err);
    r->n_taken += ok || err->code != ERR_INTERRUPTED;
    if (!ok) {
        if (err->code != ERR_INTERRUPTED)
            r->n_wanted = r->n_asked; // what runs ahead can be asked for, no more
        return false;
    }
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == out->id)
            r->n_wanted = r->n_taken;
    return true;
}

static inline void one_stop(struct engine *e, size_t n_keep)
{
    if (one_run(e))
        one_run(e)->e = NULL;
    seq_trim(one(e), n_keep);
}

#endif
