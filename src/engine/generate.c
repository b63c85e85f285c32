// The generate loop: tokens from the engine, stop rules, text that is certain, overflow.
#include "base/clock.h"
#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

const char *finish_name(enum finish f)
{
    static const char *const names[] = {"stop", "stop_text", "length", "context", "interrupted"};
    return names[f];
}

void generated_release(struct generated *g)
{
    if (!g)
        return;
    ids_release(&g->ids);
    buf_release(&g->text);
    *g = (struct generated){0};
}

// Position of the first stop text in text[from..n), or n. *hold is set to where a possible
// beginning of one starts.
static size_t find_stop(const struct generate_params *p, const char *text, size_t from, size_t n,
                        size_t *hold)
{
    size_t best = n;
    *hold = n;
    for (size_t i = 0; i < p->n_stop; i++) {
        size_t len = strlen(p->stop[i]);
        if (len == 0)
            continue;
        for (size_t at = from; at < n && at < best; at++) {
            size_t m = n - at < len ? n - at : len;
            if (memcmp(text + at, p->stop[i], m) != 0)
                continue;
            if (m == len)
                best = at;
            else if (at < *hold)
                *hold = at;
            break;
        }
    }
    return best;
}

struct run {
    struct session *s;
    const struct generate_params *p;
    struct generated *g;
    struct detok detok;
    size_t shown; // bytes of g->text already given to on_text
    bool stopped; // by a stop text
};

static bool show(struct run *r, size_t end, struct error *err)
{
    if (end <= r->shown)
        return true;
    const char *text = r->g->text.data + r->shown;
    size_t n = end - r->shown;
    r->shown = end;
    struct error mine = {0};
    if (!r->p->on_text || r->p->on_text(r->p->user, text, n, &mine))
        return true;
    if (mine.code == ERR_NONE)
        error_set(&mine, ERR_FAIL, "the answer could not be written");
    if (err)
        *err = mine;
    return false;
}

// Shows text up to the first stop text, or up to where one may begin.
static bool show_certain(struct run *r, bool at_end, struct error *err)
{
    size_t hold, n = r->g->text.len;
    size_t stop = find_stop(r->p, buf_str(&r->g->text), r->shown, n, &hold);
    if (stop < n) {
        r->stopped = true;
        r->g->text.len = stop;
        r->g->text.data[stop] = '\0';
        return show(r, stop, err);
    }
    return show(r, at_end ? n : hold, err);
}

static bool accept(struct run *r, const struct decoded *d, bool is_end, struct error *err)
{
    if (!ids_push(&r->g->ids, d->id))
        return error_oom(err, "the answer's tokens", r->g->ids.len * sizeof d->id);
    if (r->p->on_token)
        r->p->on_token(r->p->user, d);
    if (is_end && !r->p->special)
        return true;
    if (!detok_push(&r->detok, d->id, &r->g->text))
        return error_oom(err, "the answer's text", r->g->text.len);
    return show_certain(r, false, err);
}

size_t overflow_shift(struct ids *v, size_t n_ctx, size_t n_keep)
{
    size_t dropped = 0;
    if (n_ctx < 2 || n_keep >= n_ctx - 1)
        return 0;
    size_t half = (n_ctx - n_keep) / 2;
    while (half > 0 && v->len >= n_ctx) {
        memmove(v->data + n_keep, v->data + n_keep + half,
                (v->len - n_keep - half) * sizeof *v->data);
        v->len -= half;
        dropped += half;
    }
    return dropped;
}

// Context full under OVERFLOW_SHIFT: what is left is evaluated again at its new positions (exact,
// unlike rotating the cache in place).
static bool shift(struct run *r, struct error *err)
{
    struct session *s = r->s;
    struct ids rest = {0};
    if (!ids_append(&rest, seq_ids(s->seq), seq_len(s->seq))) {
        ids_release(&rest);
        return error_oom(err, "the shifted context", seq_len(s->seq) * sizeof *rest.data);
    }
    size_t drop = overflow_shift(&rest, s->engine->n_ctx, r->p->n_keep);
    if (drop == 0) {
        ids_release(&rest);
        return error_set(
            err, ERR_CONTEXT,
            "the context of %u tokens is full and --overflow shift has nothing to drop",
            s->engine->n_ctx);
    }
    struct session_stats stats = s->stats;
    bool ok = session_sync(s, rest.data, rest.len, r->p->cancel, err);
    ids_release(&rest);
    s->stats = stats;
    s->stats.n_dropped += drop;
    return ok;
}

// Submits picks until the device has work for a while, n_left at most; n_ahead of them are under
// way. The first is made from the logits at hand, each other after the one before. What a
// constraint allows depends on that one: then nothing runs ahead.
static bool ask(struct run *r, size_t n_left, bool *first, uint64_t *tickets, size_t *n_ahead,
                struct error *err)
{
    const size_t most = r->p->constraint ? 1 : ENGINE_RUN_AHEAD + 1;
    while (*n_ahead < n_left && *n_ahead < most) {
        struct work w = {.seq = r->s->seq, .n = *first ? 0 : 1, .n_pick = 1};
        if (!engine_submit(r->s->engine, &w, 1, r->p->cancel, &tickets[*n_ahead], err))
            return false;
        *first = false;
        ++*n_ahead;
    }
    return true;
}

// Tokens from a fresh sync on, at most n; *done: the answer has ended.
static bool decode(struct run *r, size_t n, double start, bool *done, struct error *err)
{
    struct session *s = r->s;
    const struct generate_params *p = r->p;
    struct generated *g = r->g;
    uint64_t tickets[ENGINE_RUN_AHEAD + 1];
    size_t n_ahead = 0;
    bool ok = true, first = true;
    for (size_t i = 0; ok && !*done && i < n; i++) {
        if (p->constraint && constraint_is_over(p->constraint)) {
            g->finish = FINISH_STOP;
            *done = true;
            break;
        }
        struct decoded d;
        struct error mine = {0};
        ok = !cancel_asked(p->cancel) || error_set(&mine, ERR_INTERRUPTED, "interrupted");
        ok = ok && ask(r, n - i, &first, tickets, &n_ahead, &mine) &&
             engine_wait(s->engine, tickets[0], p->cancel, &d, &mine);
        if (!ok && mine.code == ERR_INTERRUPTED) {
            g->finish = FINISH_INTERRUPTED;
            ok = *done = true;
            break;
        }
        if (!ok) {
            if (err)
                *err = mine;
            break;
        }
        memmove(tickets, tickets + 1, --n_ahead * sizeof *tickets);
        // Whoever asked may know that it was computed from what is no longer there (a page of the
        // model's file): the token is not kept.
        if (cancel_asked(p->cancel)) {
            seq_trim(s->seq, seq_len(s->seq) - 1);
            g->finish = FINISH_INTERRUPTED;
            *done = true;
            break;
        }
        if (g->ids.len == 0)
            s->stats.first_token_s = s->stats.prefill_s + clock_now() - start;
        bool is_end = !p->ignore_eos && tokenizer_is_end(p->tok, d.id);
        ok = (!p->constraint || constraint_accept(p->constraint, d.id, err)) &&
             accept(r, &d, is_end, err);
        if (is_end || r->stopped) {
            g->finish = r->stopped ? FINISH_STOP_TEXT : FINISH_STOP;
            *done = true;
        }
    }
    seq_trim(s->seq, seq_len(s->seq)); // what runs ahead of what was accepted
    return ok;
}

// What the constraint allows next (sampling.mask). The engine asks while the device is at work.
static bool mask(void *user, uint32_t *allow, struct error *err)
{
    const struct run *r = user;
    const size_t len = seq_len(r->s->seq), n_ctx = r->s->engine->n_ctx, n = r->g->ids.len;
    size_t n_left = r->p->overflow == OVERFLOW_SHIFT ? SIZE_MAX : n_ctx - len;
    if (r->p->n_predict >= 0 && n_left > (uint64_t)r->p->n_predict - n)
        n_left = (size_t)((uint64_t)r->p->n_predict - n);
    return constraint_mask(r->p->constraint, n_left, allow, err);
}

bool generate(struct session *s, const struct generate_params *p, struct generated *g,
              struct error *err)
{
    const uint32_t n_ctx = s->engine->n_ctx;
    *g = (struct generated){0};
    struct run r = {
        .s = s,
        .p = p,
        .g = g,
        .detok = {.tok = p->tok,
                  .special = p->special,
                  .strip_space = p->strip_space &&
                                 !p->constraint}}; // (what the grammar took is what is shown)
    struct sampling sampling = {.sampler = p->sampler, .n_probs = p->n_probs};
    if (!p->ignore_eos)
        sampling.stop_ids = tokenizer_end_ids(p->tok, &sampling.n_stop_ids);

    double start = clock_now();
    if (p->constraint) {
        sampling.mask = mask;
        sampling.mask_user = &r;
    }
    bool ok = seq_sampling(s->seq, &sampling, err), done = false;
    g->finish = FINISH_LENGTH;
    while (ok && !done) {
        if (p->n_predict >= 0 && g->ids.len >= (uint64_t)p->n_predict)
            break;
        size_t len = seq_len(s->seq), room = len < n_ctx ? n_ctx - len : 0;
        if (room == 0 && p->overflow == OVERFLOW_SHIFT) {
            ok = shift(&r, err);
            continue;
        }
        if (room == 0) {
            g->finish = FINISH_CONTEXT;
            if (g->ids.len == 0)
                ok = error_set(err, ERR_CONTEXT,
                               "the prompt has %zu tokens and fills the context of %u: no room for "
                               "an answer; shorten "
                               "it, use a larger -c, or --overflow drop|shift",
                               len, n_ctx);
            break;
        }
        if (p->n_predict >= 0 && room > (uint64_t)p->n_predict - g->ids.len)
            room = (size_t)((uint64_t)p->n_predict - g->ids.len);
        ok = decode(&r, room, start, &done, err);
    }
    // What is still held: an incomplete UTF-8 sequence, a beginning of a stop text that did not
    // come.
    if (!r.stopped) {
        if (!detok_flush(&r.detok, &g->text))
            ok = error_oom(err, "the answer's text", g->text.len);
        struct error mine = {0};
        if (!show_certain(&r, true, ok ? err : &mine))
            ok = false;
        if (r.stopped && ok)
            g->finish = FINISH_STOP_TEXT;
    }
    s->stats.n_generated = g->ids.len;
    s->stats.decode_s = clock_now() - start;
    return ok;
}
