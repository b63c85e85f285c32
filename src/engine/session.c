#include "engine/session.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine/backend.h"

// Tokens between two calls of progress within a chunk: few enough for a line that moves on a slow
// machine.
enum { SHOWN_TOKENS = 64 };

bool session_init(struct session *s, struct engine *engine, struct error *err)
{
    *s = (struct session){.engine = engine, .seq = seq_open(engine, 0, err)};
    return s->seq != NULL;
}

static void stop_speculating(struct session *s)
{
    if (s->speculation)
        speculation_release(s->speculation);
    free(s->speculation);
    s->speculation = NULL;
}

void session_release(struct session *s)
{
    if (!s)
        return;
    seq_free(s->seq);
    stop_speculating(s);
    *s = (struct session){0};
}

bool session_guesser(const struct session *s, enum spec *spec, struct engine **from,
                     struct error *err)
{
    if (*spec == SPEC_DRAFT && !s->draft)
        return error_set(err, ERR_USAGE, "spec draft: found no draft model; -md FILE names one");
    if (*spec == SPEC_MTP && !s->predictor)
        return error_set(err, ERR_USAGE,
                         "spec mtp: found no prediction layer of this model that this engine has");
    if (*spec == SPEC_AUTO)
        *spec = s->predictor ? SPEC_MTP : s->draft ? SPEC_DRAFT : SPEC_NGRAM;
    *from = *spec == SPEC_MTP ? s->predictor : *spec == SPEC_DRAFT ? s->draft : NULL;
    return true;
}

bool session_speculate(struct session *s, enum spec spec, struct error *err)
{
    struct engine *draft;
    if (!session_guesser(s, &spec, &draft, err))
        return false;
    if (!engine_takes_drafts(s->engine))
        spec = SPEC_OFF;
    if (s->speculation && s->speculation->source == spec)
        return true;
    stop_speculating(s);
    if (!seq_keep_hidden(s->seq, spec == SPEC_MTP ? drafter_n_hidden(s->engine->n_ctx, 1) : 0, err))
        return false;
    if (spec == SPEC_OFF)
        return true;
    s->speculation = malloc(sizeof *s->speculation);
    if (!s->speculation)
        return error_oom(err, "drafts", sizeof *s->speculation);
    if (speculation_init(s->speculation, s->engine, draft, err))
        return true;
    stop_speculating(s);
    return false;
}

// A sync that is shown: tokens that it has evaluated, and has told of, of all; and of the chunk.
struct shown {
    const struct session *s;
    size_t done, told, total, chunk;
};

static void tell(struct shown *x, size_t done)
{
    x->told = done;
    x->s->progress(x->s->progress_user, done, x->total);
}

static void chunk_under_way(void *user, double share)
{
    struct shown *x = user;
    const size_t done = x->done + (size_t)(share * (double)x->chunk);
    if (share < 1 && done >= x->told + SHOWN_TOKENS)
        tell(x, done);
}

bool session_sync(struct session *s, const int32_t *prefix, size_t n, const struct cancel *cancel,
                  struct error *err)
{
    struct engine *e = s->engine;
    if (n == 0)
        return error_set(err, ERR_USAGE, "the prompt is empty: nothing to continue from");
    if (n > e->n_ctx)
        return error_set(
            err, ERR_CONTEXT,
            "the prompt has %zu tokens but the context holds %u: shorten it, or use -c %zu", n,
            e->n_ctx, n);
    double start = clock_now();
    const int32_t *ids = seq_ids(s->seq);
    size_t common = 0, before = seq_n_past(s->seq);
    if (seq_len(s->seq) > before + 1) // the last one may not have been evaluated yet
        before = seq_len(s->seq) - 1;
    while (common < n && common < before && ids[common] == prefix[common])
        common++;
    before = common;
    if (common == n)
        common =
            n - 1; // the last token is evaluated again: its logits are what decoding starts from
    seq_trim(s->seq, common);
    if (seq_n_past(s->seq) < common)
        seq_trim(s->seq, common = seq_n_past(s->seq)); // so that all that is read is counted

    const size_t most = engine_max_rows(e);
    struct shown shown = {.s = s, .total = n - common};
    size_t done = common;
    bool ok = true;
    if (s->progress) {
        tell(&shown, 0);
        e->core->under_way = chunk_under_way;
        e->core->under_way_user = &shown;
    }
    while (ok && done < n) {
        size_t chunk = n - done < most ? n - done : most;
        struct work w = {.seq = s->seq, .ids = prefix + done, .n = chunk};
        w.n_logits = done + chunk == n;
        w.goes_on = done + chunk < n;
        shown.chunk = chunk;
        ok = engine_submit(e, &w, 1, cancel, NULL, err);
        done = seq_n_past(s->seq);
        shown.done = done - common;
        if (ok && s->progress)
            tell(&shown, shown.done);
    }
    e->core->under_way = NULL;
    s->stats = (struct session_stats){
        .n_prompt = n,
        .n_reused = common,
        .n_evaluated = done - common,
        .n_again = before > common + 1 ? before - common : 0, // but for the last token
        .prefill_s = clock_now() - start,
        .n_dropped = s->stats.n_dropped,
    };
    return ok;
}
