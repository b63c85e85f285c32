#include "engine/session.h"

#include "base/clock.h"

bool session_init(struct session *s, struct engine *engine, struct error *err)
{
    *s = (struct session){.engine = engine, .seq = seq_open(engine, 0, err)};
    return s->seq != NULL;
}

void session_release(struct session *s)
{
    if (!s)
        return;
    seq_free(s->seq);
    *s = (struct session){0};
}

bool session_sync(struct session *s, const int32_t *prefix, size_t n, const struct cancel *cancel,
                  struct error *err)
{
    struct engine *e = s->engine;
    if (n == 0)
        return error_set(err, ERR_FAIL, "the prompt is empty: nothing to continue from");
    if (n > e->n_ctx)
        return error_set(
            err, ERR_CONTEXT,
            "the prompt has %zu tokens but the context holds %u: shorten it, or use -c %zu", n,
            e->n_ctx, n);
    double start = clock_now();
    const int32_t *ids = seq_ids(s->seq);
    size_t common = 0, n_past = seq_n_past(s->seq);
    while (common < n && common < n_past && ids[common] == prefix[common])
        common++;
    if (common == n)
        common =
            n - 1; // the last token is evaluated again: its logits are what decoding starts from
    seq_trim(s->seq, common);

    size_t done = common;
    bool ok = true;
    if (s->progress)
        s->progress(s->progress_user, 0, n - common);
    while (ok && done < n) {
        size_t chunk = n - done < e->n_batch ? n - done : e->n_batch;
        struct work w = {.seq = s->seq, .ids = prefix + done, .n = chunk};
        w.n_logits = done + chunk == n;
        ok = engine_submit(e, &w, 1, cancel, NULL, err);
        done = seq_n_past(s->seq);
        if (ok && s->progress)
            s->progress(s->progress_user, done - common, n - common);
    }
    s->stats = (struct session_stats){
        .n_prompt = n,
        .n_reused = common,
        .n_evaluated = done - common,
        .prefill_s = clock_now() - start,
        .n_dropped = s->stats.n_dropped,
    };
    return ok;
}
