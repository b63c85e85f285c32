#include "engine/session.h"

#include <string.h>

#include "base/clock.h"

void session_init(struct session *s, struct engine *engine)
{
    *s = (struct session){.engine = engine};
}

void session_release(struct session *s)
{
    if (!s)
        return;
    ids_release(&s->timeline);
    *s = (struct session){0};
}

bool session_sync(struct session *s, const int32_t *prefix, size_t n, struct error *err)
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
    size_t common = 0;
    while (common < n && common < s->timeline.len && s->timeline.data[common] == prefix[common])
        common++;
    if (common > e->n_past)
        common = e->n_past;
    if (common == n)
        common =
            n - 1; // the last token is evaluated again: its logits are what decoding starts from
    struct ids next = {0};
    if (!ids_append(&next, prefix, n))
        return error_oom(err, "the token timeline", n * sizeof *prefix);
    e->ops->trim(e, common);
    ids_release(&s->timeline);
    s->timeline = next;

    size_t done = common;
    bool ok = true;
    if (s->progress)
        s->progress(s->progress_user, 0, n - common);
    while (ok && done < n) {
        size_t chunk = n - done < e->n_batch ? n - done : e->n_batch;
        ok = e->ops->eval(e, prefix + done, chunk, done + chunk == n ? LOGITS_LAST : LOGITS_NONE,
                          err);
        done = e->n_past;
        if (ok && s->progress)
            s->progress(s->progress_user, done - common, n - common);
    }
    if (!ok)
        s->timeline.len = e->n_past;
    s->stats = (struct session_stats){
        .n_prompt = n,
        .n_reused = common,
        .n_evaluated = done - common,
        .prefill_s = clock_now() - start,
        .n_dropped = s->stats.n_dropped,
    };
    return ok;
}
