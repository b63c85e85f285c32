// The generate loop: tokens from the engine, stop rules, text that is certain, overflow.
#include "base/clock.h"
#include "engine/generation.h"

#include <math.h>
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

static bool show(struct generation *r, size_t end, struct error *err)
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
static bool show_certain(struct generation *r, bool at_end, struct error *err)
{
    const struct generate_params *p = r->p;
    const char *text = buf_str(&r->g->text);
    size_t stop, hold, from = 0, n = r->g->text.len;
    bool sure = true;
    if (p->n_stop == 0)
        return show(r, n, err);
    if (p->stops_from) {
        if (!p->stops_from(p->user, text, r->known, n, at_end, &from, &sure, err))
            return false;
        r->known = n;
    }
    if (!sure)
        return show(r, at_end ? n : from, err);
    if (!stops_find(&r->stops, p->stop, p->n_stop, text, n, from, &stop, &hold, err))
        return false;
    if (stop < n) {
        r->stopped = true;
        r->g->text.len = stop;
        r->g->text.data[stop] = '\0';
        return show(r, stop, err);
    }
    return show(r, at_end ? n : hold, err);
}

size_t overflow_shift(struct ids *v, size_t n_ctx, size_t n_keep)
{
    if (n_ctx < 2 || n_keep >= n_ctx - 1 || v->len < n_ctx)
        return 0;
    const size_t half = (n_ctx - n_keep) / 2, dropped = ((v->len - n_ctx) / half + 1) * half;
    v->len -= dropped;
    memmove(v->data + n_keep, v->data + n_keep + dropped, (v->len - n_keep) * sizeof *v->data);
    return dropped;
}

void generation_begin(struct generation *r, struct session *s, const struct generate_params *p,
                      struct generated *g)
{
    *g = (struct generated){.finish = FINISH_LENGTH};
    *r = (struct generation){
        .s = s,
        .p = p,
        .g = g,
        .detok = {.tok = p->tok,
                  .special = p->special,
                  .strip_space =
                      p->strip_space && !p->constraint}, // (what the grammar took is what is shown)
        .start = clock_now(),
    };
}

// r->ahead is where the answer would be behind n drafts. Errors: ERR_FAIL: the grammar does not
// have them; ERR_MEMORY.
static bool look_ahead(struct generation *r, const int32_t *drafts, size_t n, struct error *err)
{
    if (!r->ahead && !(r->ahead = constraint_share(r->p->constraint, err)))
        return false;
    if (r->n_ahead == 0 && !constraint_follow(r->ahead, r->p->constraint, err))
        return false;
    while (r->n_ahead < n) {
        if (!constraint_accept(r->ahead, drafts[r->n_ahead], err))
            return false;
        r->n_ahead++;
    }
    return true;
}

size_t generation_context(const struct generation *r)
{
    const size_t n_ctx = r->s->engine->n_ctx, asked = r->p->n_ctx;
    return asked > 0 && asked < n_ctx ? asked : n_ctx;
}

// What the constraint allows next (sampling.mask). The engine asks while the device is at work.
static bool mask(void *user, const int32_t *drafts, size_t n_drafts, uint32_t *allow,
                 struct error *err)
{
    struct generation *r = user;
    const size_t n_ctx = generation_context(r), n = r->g->ids.len;
    size_t n_left = r->p->overflow == OVERFLOW_SHIFT ? SIZE_MAX : n_ctx - r->len;
    if (r->p->n_predict >= 0 && n_left > (uint64_t)r->p->n_predict - n)
        n_left = (size_t)((uint64_t)r->p->n_predict - n);
    if (n_drafts > 0 && n_left != SIZE_MAX)
        n_left -= n_drafts;
    const bool ok = n_drafts == 0 ? constraint_mask(r->p->constraint, n_left, allow, err)
                                  : look_ahead(r, drafts, n_drafts, err) &&
                                        constraint_mask(r->ahead, n_left, allow, err);
    r->g->off_grammar = !ok;
    return ok;
}

// Forbids what the model's file says never to sample, but where the user has a bias of their own.
static bool suppress(struct sampler_settings *set, const struct tokenizer *tok, struct error *err)
{
    size_t n;
    const int32_t *ids = tokenizer_suppressed(tok, &n);
    const uint32_t n_own = set->n_bias;
    for (size_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < n_own && set->bias[k].id != ids[i])
            k++;
        if (k < n_own)
            continue;
        if (set->n_bias >= SAMPLER_MAX_BIAS)
            return error_set(err, ERR_USAGE,
                             "--logit-bias: %u of them beside the %zu of "
                             "tokenizer.ggml.suppress_tokens, expected at most %d together",
                             n_own, n, SAMPLER_MAX_BIAS);
        set->bias[set->n_bias++] = (struct logit_bias){ids[i], -INFINITY};
    }
    return true;
}

bool generation_sampling(struct generation *r, struct error *err)
{
    const struct generate_params *p = r->p;
    const struct session_stats *t = &r->s->stats;
    struct sampler_settings set = *p->sampler;
    struct sampling sampling = {.sampler = &set, .n_probs = p->n_probs};
    if (!suppress(&set, p->tok, err))
        return false;
    if (!p->ignore_eos)
        sampling.stop_ids = tokenizer_end_ids(p->tok, &sampling.n_stop_ids);
    if (p->constraint) {
        sampling.mask = mask;
        sampling.mask_user = r;
    }
    return (!r->s->speculation ||
            speculation_begin(r->s->speculation, &sampling, t->n_evaluated, t->prefill_s, err)) &&
           seq_sampling(r->s->seq, &sampling, err);
}

static bool end_as(struct generation *r, enum finish finish)
{
    r->g->finish = finish;
    return r->done = true;
}

bool generation_room(struct generation *r, size_t len, size_t *n, struct error *err)
{
    const struct generate_params *p = r->p;
    const size_t n_ctx = generation_context(r), n_given = r->g->ids.len;
    *n = 0;
    r->len = len;
    if (p->n_predict >= 0 && n_given >= (uint64_t)p->n_predict)
        return end_as(r, FINISH_LENGTH);
    *n = len < n_ctx ? n_ctx - len : 0;
    if (*n == 0 && p->overflow == OVERFLOW_SHIFT)
        return true;
    if (*n == 0) {
        end_as(r, FINISH_CONTEXT);
        return n_given > 0 ||
               error_set(err, ERR_CONTEXT,
                         "the prompt has %zu tokens and fills the context of %zu: no room for an "
                         "answer; shorten it, use a larger -c, or --overflow drop|shift",
                         len, n_ctx);
    }
    if (p->n_predict >= 0 && *n > (uint64_t)p->n_predict - n_given)
        *n = (size_t)((uint64_t)p->n_predict - n_given);
    if (p->constraint && constraint_is_over(p->constraint))
        end_as(r, FINISH_STOP);
    return true;
}

bool generation_shift(struct generation *r, struct ids *ids, struct error *err)
{
    const size_t n_ctx = generation_context(r), drop = overflow_shift(ids, n_ctx, r->p->n_keep);
    r->s->stats.n_dropped += drop;
    return drop > 0 ||
           error_set(err, ERR_CONTEXT,
                     "the context of %zu tokens is full and --overflow shift has nothing to drop",
                     n_ctx);
}

// The next token. r->done: it was the last.
static bool push(struct generation *r, const struct decoded *d, struct error *err)
{
    const struct generate_params *p = r->p;
    struct generated *g = r->g;
    if (g->ids.len == 0)
        r->s->stats.first_token_s = r->s->stats.prefill_s + clock_now() - r->start;
    const bool is_end = !p->ignore_eos && tokenizer_is_end(p->tok, d->id);
    g->off_grammar = p->constraint && !constraint_accept(p->constraint, d->id, err);
    if (g->off_grammar)
        return false;
    if (!ids_push(&g->ids, d->id))
        return error_oom(err, "the answer's tokens", g->ids.len * sizeof d->id);
    if (p->on_token)
        p->on_token(p->user, d);
    bool ok = true;
    if (!is_end || p->special) {
        if (!detok_push(&r->detok, d->id, &g->text))
            return error_oom(err, "the answer's text", g->text.len);
        ok = show_certain(r, false, err);
    }
    if (is_end || r->stopped)
        end_as(r, r->stopped ? FINISH_STOP_TEXT : FINISH_STOP);
    return ok;
}

bool generation_end(struct generation *r, bool ok, struct error *err)
{
    struct generated *g = r->g;
    constraint_free(r->ahead);
    r->ahead = NULL;
    if (!r->stopped) {
        if (!detok_flush(&r->detok, &g->text))
            ok = error_oom(err, "the answer's text", g->text.len);
        struct error mine = {0};
        if (!show_certain(r, true, ok ? err : &mine))
            ok = false;
        if (r->stopped && ok)
            g->finish = FINISH_STOP_TEXT;
    }
    stops_release(&r->stops);
    r->s->stats.n_generated = g->ids.len;
    r->s->stats.decode_s = clock_now() - r->start;
    return ok;
}

// ---- guesses

// The tokens of the text that the constraint leaves no choice about, most at most, up to a byte
// that is no token (one that has it and others may be sampled all the same).
static bool find_forced(struct generation *r, size_t most, struct ids *out, struct error *err)
{
    enum { TOKEN_BYTES = 16 };
    const struct tokenize_options how = {.continuation = true};
    struct buf text = {0};
    struct error why = {0};
    bool ok = constraint_forced(r->p->constraint, most * TOKEN_BYTES, &text, err);
    if (ok && !tokenizer_encode(r->p->tok, buf_str(&text), text.len, &how, out, &why))
        ok = why.code == ERR_FAIL || error_set(err, why.code, "%s", why.text);
    buf_release(&text);
    if (out->len > most)
        out->len = most;
    return ok;
}

// How many of n guesses the constraint has, up to one that ends the answer.
static bool cut_guesses(struct generation *r, const int32_t *guesses, size_t *n, struct error *err)
{
    struct error why = {0};
    size_t i = 0;
    r->n_ahead = 0;
    for (bool ends = false; i < *n && !ends; i++) {
        ends = tokenizer_is_end(r->p->tok, guesses[i]);
        if (!look_ahead(r, guesses, i + 1, &why))
            break;
    }
    *n = i;
    r->n_ahead = 0;
    return why.code == ERR_NONE || why.code == ERR_FAIL || error_set(err, why.code, "%s", why.text);
}

bool generation_guess(struct generation *r, size_t n_left, const struct cancel *cancel,
                      size_t *n_drafts, struct error *err)
{
    const struct session *s = r->s;
    struct ids forced = {0};
    *n_drafts = 0;
    if (!s->speculation)
        return true;
    const size_t room = seq_max_drafts(s->seq), most = room < n_left ? room : n_left - 1;
    const bool held = r->p->constraint && most > 0;
    r->n_ahead = 0;
    const bool ok =
        (!held || find_forced(r, most, &forced, err)) &&
        speculation_next(s->speculation, s->seq, most, &forced, cancel, n_drafts, err) &&
        (!held || cut_guesses(r, s->speculation->guesses, n_drafts, err));
    ids_release(&forced);
    return ok;
}

bool generation_made(struct generation *r, size_t *n_drafts, struct error *err)
{
    const struct speculation *x = r->s->speculation;
    *n_drafts = x->n_guesses;
    return !r->p->constraint || cut_guesses(r, x->guesses, n_drafts, err);
}

// Of a step that checked so many drafts.
static size_t count_sampled(const struct decoded *d, size_t n_drafts)
{
    size_t n = 1;
    while (n <= n_drafts && d[n].id >= 0)
        n++;
    return n;
}

bool generation_take(struct generation *r, const struct decoded *d, size_t n_drafts, double seconds,
                     struct error *err)
{
    struct session *s = r->s;
    const size_t n = count_sampled(d, n_drafts), before = seq_len(s->seq) - n;
    size_t n_taken = 0;
    bool ok = true;
    if (s->speculation && seconds > 0)
        speculation_step(s->speculation, n_drafts, d, n, seconds);
    s->stats.n_steps++;
    s->stats.n_drafted += n_drafts;
    s->stats.n_accepted += n - 1;
    while (ok && n_taken < n && !r->done)
        ok = push(r, &d[n_taken++], err);
    if (n_taken < n)
        seq_trim(s->seq, before + n_taken);
    return ok;
}

// ---- one answer, the device ahead of the host

// Picks that are submitted and not waited for.
struct ahead {
    uint64_t tickets[ENGINE_RUN_AHEAD + 1];
    size_t n;
    bool fresh; // nothing was picked since the last sync
};

// Submits picks until the device has work for a while, n_left at most. The first is made from the
// logits at hand, each other after the one before. What may be guessed depends on that one: then
// nothing runs ahead.
static bool ask(struct generation *r, size_t n_left, struct ahead *a, struct error *err)
{
    const size_t most = r->s->speculation ? 1 : 1 + seq_run_ahead(r->s->seq);
    while (a->n < n_left && a->n < most) {
        struct work w = {.seq = r->s->seq, .n = a->fresh ? 0 : 1, .n_pick = 1};
        if (!engine_submit(r->s->engine, &w, 1, r->p->cancel, &a->tickets[a->n], err))
            return false;
        a->fresh = false;
        a->n++;
    }
    return true;
}

// The next token of at most n_left, or several, where guesses come true.
static bool decode(struct generation *r, size_t n_left, struct ahead *a, struct error *err)
{
    struct session *s = r->s;
    const struct cancel *cancel = r->p->cancel;
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    struct error mine = {0};
    const bool evaluates = !a->fresh;
    const double begin = clock_now();
    size_t n_drafts = 0;
    bool ok = (a->fresh || generation_guess(r, n_left, cancel, &n_drafts, &mine)) &&
              (!cancel_asked(cancel) || error_set(&mine, ERR_INTERRUPTED, "interrupted"));
    if (ok && n_drafts > 0) {
        const struct work w = {.seq = s->seq,
                               .n = 1,
                               .n_pick = 1,
                               .drafts = s->speculation->guesses,
                               .n_drafts = n_drafts};
        ok = engine_submit(s->engine, &w, 1, cancel, &a->tickets[a->n++], &mine);
    }
    ok = ok && (n_drafts > 0 || ask(r, n_left, a, &mine)) &&
         engine_wait(s->engine, a->tickets[0], cancel, d, &mine);
    if (!ok && mine.code == ERR_INTERRUPTED) {
        end_as(r, FINISH_INTERRUPTED);
        return true;
    }
    if (!ok) {
        if (err)
            *err = mine;
        return false;
    }
    memmove(a->tickets, a->tickets + 1, --a->n * sizeof *a->tickets);
    // Whoever asked may know that it was computed from what is no longer there (a page of the
    // model's file): the token is not kept.
    if (cancel_asked(cancel)) {
        seq_trim(s->seq, seq_len(s->seq) - count_sampled(d, n_drafts));
        end_as(r, FINISH_INTERRUPTED);
        return true;
    }
    return generation_take(r, d, n_drafts, evaluates ? clock_now() - begin : 0, err);
}

static bool shift(struct generation *r, struct ahead *a, struct error *err)
{
    struct session *s = r->s;
    struct ids rest = {0};
    bool ok = ids_append(&rest, seq_ids(s->seq), seq_len(s->seq)) ||
              error_oom(err, "the shifted context", seq_len(s->seq) * sizeof *rest.data);
    ok = ok && generation_shift(r, &rest, err);
    struct session_stats stats = s->stats;
    ok = ok && session_sync(s, rest.data, rest.len, r->p->cancel, err);
    ids_release(&rest);
    s->stats = stats;
    if (s->speculation)
        speculation_forget(s->speculation);
    *a = (struct ahead){.fresh = true};
    return ok;
}

bool generate(struct session *s, const struct generate_params *p, struct generated *g,
              struct error *err)
{
    struct generation r;
    struct ahead a = {.fresh = true};
    generation_begin(&r, s, p, g);
    bool ok = generation_sampling(&r, err);
    while (ok && !r.done) {
        size_t n_left;
        ok = generation_room(&r, seq_len(s->seq), &n_left, err);
        if (ok && !r.done)
            ok = n_left > 0 ? decode(&r, n_left, &a, err) : shift(&r, &a, err);
    }
    seq_trim(s->seq, seq_len(s->seq)); // what runs ahead of what was accepted
    return generation_end(&r, ok, err);
}
