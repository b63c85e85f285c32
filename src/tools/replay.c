#include "tools/replay.h"

#include <string.h>

#include "base/json_text.h"
#include "base/termsafe.h"
#include "tools/replay_company.h"

// How the tokens before an answer are evaluated, and the answer is generated.
struct way {
    const char *name; // NULL: as it was recorded, one turn after the other
    size_t piece; // tokens of what comes before that are evaluated together; 0: as many as can be
    enum spec spec;
    bool in_company; // as one of several answers that run together (tools/replay_company.h)
};

static const struct way ways[] = {
    {NULL, 0, SPEC_OFF},
    {"evaluated anew", 0, SPEC_OFF},
    {"in pieces of 1 token", 1, SPEC_OFF},
    {"in pieces of 7 tokens", 7, SPEC_OFF},
    {"in pieces of 64 tokens", 64, SPEC_OFF},
    {"with drafts", 0, SPEC_NGRAM},
    {"beside other answers", 0, SPEC_OFF, .in_company = true}, // the last: see not_tried
};

enum { N_WAYS = sizeof ways / sizeof *ways };

struct replay {
    struct conversation *c;
    const struct way *way;
    bool check;                 // more ways than the recorded one
    size_t n_ways;              // that were gone
    size_t n_answers, n_tokens; // compared
    size_t n_skipped;           // answers whose prompt is no longer what it was
    size_t n_constrained;       // answers held to a grammar or schema
    size_t n_elsewhere;         // answers that shifted a context of unknown length, not this one
    size_t n_met;               // of those that went the way in company, had some
    bool differs;
    size_t turn, index, n_index, position; // of the first token that differs
    int32_t recorded, now;                 // -1: the answer ended there
    const struct way *not_tried;           // the way in company, where there was none; NULL
};

// What comes before an answer.
static bool evaluate(struct replay *r, const struct ids *prefix, struct error *err)
{
    struct conversation *c = r->c;
    bool ok = true;
    if (r->way->name)
        seq_trim(c->session.seq, 0);
    for (size_t n = r->way->piece; ok && n > 0 && n < prefix->len; n += r->way->piece)
        ok = session_sync(&c->session, prefix->data, n, c->cancel, err);
    return ok && session_sync(&c->session, prefix->data, prefix->len, c->cancel, err);
}

static size_t run_tokens(const struct message *m, size_t run)
{
    const size_t end = run + 1 < m->n_runs ? m->runs[run + 1].first_id : m->ids.len;
    return end - m->runs[run].first_id;
}

// The context that all answers have room in: that of an earlier turn may have been larger than the
// last one's, which is the one that the file names.
static size_t context_needed(struct replay *r)
{
    struct conversation *c = r->c;
    size_t most = 0;
    for (size_t i = 0; i < c->n_messages; i++)
        for (size_t k = 0; k < c->messages[i].n_runs; k++) {
            const struct answer_run *rec = &c->messages[i].runs[k];
            struct ids prefix = {0};
            if (!rec->constrained &&
                conversation_run_prefix(c, i, k, &prefix, &(struct error){0}) &&
                conversation_hash(prefix.data, prefix.len) == rec->prefix_hash) {
                const bool shifts = rec->overflow == OVERFLOW_SHIFT;
                const size_t whole = prefix.len + run_tokens(&c->messages[i], k);
                const size_t held = rec->n_ctx > 0 ? rec->n_ctx : prefix.len;
                const size_t n = shifts && held < whole ? held : whole;
                most = n > most ? n : most;
            }
            ids_release(&prefix);
        }
    return most;
}

// An older program did not record how long a context was shifted. What such an answer was made of
// may be another length's, and so may all but its first token.
static bool shifts_unknown(const struct answer_run *rec)
{
    return rec->overflow == OVERFLOW_SHIFT && rec->n_ctx == 0;
}

// What an answer that was recorded as `m` from rec on is now: compared up to the first token that
// differs. Errors: ERR_CONTEXT.
static bool compare(struct replay *r, const struct message *m, struct answer_run *rec, size_t n,
                    const struct generated *g, size_t n_prefix, struct error *err)
{
    const int32_t *recorded = m->ids.data + rec->first_id;
    size_t same = 0;
    while (same < n && same < g->ids.len && g->ids.data[same] == recorded[same])
        same++;
    if (same < n && same == g->ids.len && g->finish == FINISH_CONTEXT)
        return error_set(err, ERR_CONTEXT, "the answer is longer than the context has room for");
    if (same > 0 && same < n && shifts_unknown(rec)) {
        r->n_elsewhere++;
        return true;
    }
    r->n_answers++;
    r->n_tokens += same;
    r->differs = same < n;
    if (shifts_unknown(rec) && !r->differs)
        rec->n_ctx = r->c->session.engine->n_ctx; // it is as if recorded in this one
    if (!r->differs)
        return true;
    r->index = rec->first_id + same;
    r->n_index = m->ids.len;
    r->position = n_prefix + same;
    r->recorded = recorded[same];
    r->now = same < g->ids.len ? g->ids.data[same] : -1;
    return true;
}

// The tokens of one run of the sampler, generated again.
static bool replay_run(struct replay *r, size_t answer, size_t run, struct error *err)
{
    struct conversation *c = r->c;
    const struct message *m = &c->messages[answer];
    struct answer_run *rec = &m->runs[run];
    // A run that /continue followed may have had an end token that was taken off again.
    const size_t n = run_tokens(m, run);
    if (rec->constrained) {
        r->n_constrained++;
        return true;
    }
    struct ids prefix = {0};
    struct generated g = {0};
    struct sampler_settings sampler = rec->sampler;
    bool ok = conversation_set_breakers(c, &sampler, err) &&
              conversation_run_prefix(c, answer, run, &prefix, err);
    if (ok && conversation_hash(prefix.data, prefix.len) != rec->prefix_hash) {
        r->n_elsewhere += shifts_unknown(rec);
        r->n_skipped += !shifts_unknown(rec);
        goto done;
    }
    // What was recorded in a larger context was not shifted where this one is full.
    const bool larger = rec->n_ctx > c->session.engine->n_ctx;
    struct generate_params p = {
        .sampler = &sampler,
        .tok = c->model->tokenizer,
        .n_predict = (int64_t)n,
        .ignore_eos = rec->ignore_eos,
        .overflow = larger ? OVERFLOW_ERROR : rec->overflow,
        .n_keep = rec->n_keep,
        .n_ctx = rec->n_ctx,
        .cancel = c->cancel,
    };
    if (ok && r->way->in_company) {
        bool met = false;
        ok = company_generate(&c->session, &prefix, &p, &g, &met, err);
        r->n_met += met;
    } else {
        ok = ok && session_speculate(&c->session, r->way->spec, err) && evaluate(r, &prefix, err) &&
             generate(&c->session, &p, &g, err);
    }
    if (ok && g.finish == FINISH_INTERRUPTED)
        ok = error_set(err, ERR_INTERRUPTED, "interrupted");
    ok = ok && compare(r, m, rec, n, &g, prefix.len, err);
done:
    ids_release(&prefix);
    generated_release(&g);
    return ok;
}

static void put_token(const struct replay *r, int32_t id, struct buf *out)
{
    struct buf text = {0};
    if (id < 0) {
        buf_puts(out, "the end of the answer");
        return;
    }
    tokenizer_decode_one(r->c->model->tokenizer, id, true, &text);
    buf_printf(out, "%d \"", id);
    termsafe_text(buf_str(&text), text.len, true, out);
    buf_putc(out, '"');
    buf_release(&text);
}

static const char *why_not_tried(const struct replay *r)
{
    return engine_max_parts(r->c->session.engine) < 2
               ? "this engine evaluates one answer at a time (a GPU several with --exact)"
               : "the context has no room for two";
}

// The ways that were not gone, and why; NULL: there are none.
static json_t *ways_not_tried(const struct replay *r)
{
    if (r->not_tried)
        return json_pack("{s:s}", r->not_tried->name, why_not_tried(r));
    if (!r->check || r->n_answers > 0)
        return NULL;
    json_t *j = json_object();
    for (size_t i = 1; i < N_WAYS; i++)
        json_object_set_new(j, ways[i].name, json_string("no answer could be compared"));
    return j;
}

static void report(const struct replay *r, const struct session_info *info, bool json,
                   struct buf *out)
{
    const struct engine *e = r->c->session.engine;
    if (json) {
        json_t *j =
            json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "agree", !r->differs, "answers",
                      (json_int_t)r->n_answers, "tokens", (json_int_t)r->n_tokens, "skipped",
                      (json_int_t)r->n_skipped, "constrained", (json_int_t)r->n_constrained,
                      "context_unknown", (json_int_t)r->n_elsewhere, "recorded_on", info->device,
                      "device", e->device);
        if (j && r->differs)
            json_object_set_new(
                j, "first_difference",
                json_pack("{s:I, s:I, s:I, s:i, s:i, s:s*}", "turn", (json_int_t)r->turn, "token",
                          (json_int_t)r->index, "position", (json_int_t)r->position, "recorded",
                          (int)r->recorded, "now", (int)r->now, "way", r->way->name));
        for (size_t i = 1; j && i < r->n_ways; i++) {
            if (i == 1)
                json_object_set_new(j, "also", json_array());
            json_array_append_new(json_object_get(j, "also"), json_string(ways[i].name));
        }
        json_t *not_tried = ways_not_tried(r);
        if (not_tried)
            json_object_set_new(j, "not_tried", not_tried);
        json_put(j, JSON_COMPACT, out);
        return;
    }
    if (r->differs) {
        if (r->way->name)
            buf_printf(out, "%s: ", r->way->name);
        buf_printf(out, "turn %zu, token %zu of %zu (position %zu): recorded ", r->turn,
                   r->index + 1, r->n_index, r->position);
        put_token(r, r->recorded, out);
        buf_puts(out, ", now ");
        put_token(r, r->now, out);
        buf_putc(out, '\n');
    } else if (r->n_answers > 0) {
        buf_printf(out, "all agree: %zu tokens of %zu answer%s\n", r->n_tokens, r->n_answers,
                   r->n_answers == 1 ? "" : "s");
        for (size_t i = 1; i < r->n_ways; i++)
            buf_printf(out, "%s%s%s", i == 1 ? "also " : ", ", ways[i].name,
                       i + 1 == r->n_ways ? "\n" : "");
        if (r->not_tried)
            buf_printf(out, "not tried %s: %s\n", r->not_tried->name, why_not_tried(r));
    }
    if (r->n_skipped > 0)
        buf_printf(out,
                   "%zu answer%s not compared: what came before them is no longer what it was (the "
                   "system prompt or the chat template was changed)\n",
                   r->n_skipped, r->n_skipped == 1 ? "" : "s");
    if (r->n_elsewhere > 0)
        buf_printf(
            out,
            "%zu answer%s not compared: made with --overflow shift in a context whose length "
            "is not recorded, perhaps another than this one of %u tokens; -c names one\n",
            r->n_elsewhere, r->n_elsewhere == 1 ? "" : "s", e->n_ctx);
    if (r->n_constrained > 0)
        buf_printf(out,
                   "%zu answer%s not compared: held to a grammar or schema, which a session does "
                   "not keep\n",
                   r->n_constrained, r->n_constrained == 1 ? "" : "s");
    if (strcmp(info->device, e->device) != 0)
        buf_printf(out, "recorded on %s, replayed on %s\n", info->device, e->device);
}

// All answers, one way. The counts are those of the last.
static bool replay_all(struct replay *r, void (*progress)(void *user, size_t turn, size_t n),
                       void *user, struct error *err)
{
    const struct conversation *c = r->c;
    const size_t n_turns = conversation_n_turns(c);
    bool ok = true;
    r->turn = r->n_answers = r->n_tokens = 0;
    r->n_skipped = r->n_constrained = r->n_elsewhere = 0;
    for (size_t i = 0; ok && !r->differs && i < c->n_messages; i++) {
        if (c->messages[i].role != ROLE_ASSISTANT)
            continue;
        r->turn++;
        if (progress)
            progress(user, r->turn - 1, n_turns);
        for (size_t k = 0; ok && !r->differs && k < c->messages[i].n_runs; k++)
            ok = replay_run(r, i, k, err);
    }
    if (progress)
        progress(user, n_turns, n_turns);
    const size_t needed = !ok && err->code == ERR_CONTEXT ? context_needed(r) : 0;
    const uint32_t n_ctx = c->session.engine->n_ctx;
    return ok || (needed > n_ctx &&
                  error_set(err, ERR_CONTEXT,
                            "turn %zu does not fit the context of %u tokens: it was recorded in a "
                            "larger one; all turns have room in -c %zu",
                            r->turn, n_ctx, needed));
}

static bool nothing_compared(const struct replay *r, struct error *err)
{
    if (r->n_skipped + r->n_elsewhere > 0)
        return error_set(err, ERR_FAIL, "no answer of the session could be compared");
    return error_set(
        err, ERR_FAIL, "the session has no answer to replay%s",
        r->n_constrained ? ": all were held to a grammar or schema, which it does not keep" : "");
}

bool tool_replay(struct conversation *c, const struct session_info *info, bool json, bool check,
                 void (*progress)(void *user, size_t turn, size_t n), void *user, struct buf *out,
                 struct error *err)
{
    struct replay r = {.c = c, .check = check};
    bool ok = true;
    conversation_rewind(c, 0); // what the file's memory holds must not help
    const bool several = engine_max_parts(c->session.engine) > 1;
    const size_t n_ways = !check ? 1 : several ? N_WAYS : N_WAYS - 1;
    do {
        r.way = &ways[r.n_ways++];
        ok = replay_all(&r, progress, user, err);
    } while (ok && !r.differs && r.n_answers > 0 && r.n_ways < n_ways);
    if (ok && check && !r.differs && r.n_answers > 0 && r.n_met == 0) {
        r.n_ways -= several;
        r.not_tried = &ways[N_WAYS - 1];
    }
    if (!ok)
        return false;
    report(&r, info, json, out);
    if (out->failed)
        return error_oom(err, "the report", out->len);
    if (r.differs)
        return error_set(err, ERR_FAIL, "the replay differs from the recording");
    return r.n_answers > 0 || nothing_compared(&r, err);
}
