// From the messages to the record of an answer: fitting the prompt into the context, splitting off
// the thinking, and what is kept of what was generated.
#include "dialog/answering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialog/prefix.h"

// ---------------------------------------------------------------------------------------- overflow

// Tokens that an answer should have room for, without which older turns are dropped.
static size_t room_wanted(const struct conversation *c, const struct answer_params *p)
{
    size_t room = c->session.engine->n_ctx / 16;
    if (p->n_predict >= 0 && (uint64_t)p->n_predict < room)
        room = (size_t)p->n_predict;
    return room > 0 ? room : 1;
}

static void notice(const struct answer_params *p, const char *line)
{
    if (p->on_notice)
        p->on_notice(p->user, line);
}

static size_t head_tokens(struct conversation *c, enum think think)
{
    struct ids ids = {0};
    size_t head = 0;
    struct prefix_request q = {
        .n_messages = c->n_messages, .first_kept = c->first_kept, .think = think, .head = &head};
    struct error ignored;
    if (!prefix_build(c, &q, &ids, NULL, &ignored))
        head = 0;
    ids_release(&ids);
    return head;
}

static size_t first_of_turns(const struct conversation *c)
{
    return c->first_kept > (size_t)c->has_system ? c->first_kept : (size_t)c->has_system;
}

// What would be left of so many tokens if all turns before the last one were dropped: nobody is
// told to drop them where that does not help. n itself where it cannot be said.
static size_t last_turn_alone(struct conversation *c, const struct answer_params *p,
                              size_t n_render, size_t n_tail, size_t n)
{
    const size_t kept = c->first_kept;
    size_t first = first_of_turns(c);
    while (first + 2 < n_render)
        first += 2;
    struct ids ids = {0};
    const char *open_tag = NULL;
    struct error ignored;
    c->first_kept = first;
    if (conversation_prefix(c, n_render, p->think, &ids, &open_tag, &ignored))
        n = ids.len + n_tail;
    c->first_kept = kept;
    ids_release(&ids);
    return n;
}

static bool too_long(struct conversation *c, const struct answer_params *p, size_t n_render,
                     size_t n_tail, size_t n, struct error *err)
{
    size_t n_ctx = c->session.engine->n_ctx;
    bool old_turns = false;
    for (size_t i = first_of_turns(c); i < c->n_messages; i++)
        old_turns |= c->messages[i].role == ROLE_ASSISTANT;
    const bool could = old_turns && p->overflow == OVERFLOW_ERROR && p->makes_room;
    const size_t alone = could ? last_turn_alone(c, p, n_render, n_tail, n) : n;
    if (could && alone + 1 > n_ctx)
        return error_set(err, ERR_CONTEXT,
                         "the prompt takes %zu tokens without the turns before it and the context "
                         "holds %zu: %zu too many with one for an answer; %s",
                         alone, n_ctx, alone + 1 - n_ctx, conversation_make_fit(c));
    if (could)
        return error_set(err, ERR_CONTEXT,
                         "the conversation takes %zu tokens and the context holds %zu: %zu too "
                         "many with one for an answer; %s%s would make room",
                         n, n_ctx, n + 1 - n_ctx, c->no_larger ? "" : "a larger -c, ",
                         p->makes_room);
    return error_set(err, ERR_CONTEXT,
                     "the prompt takes %zu tokens and the context holds %zu: %zu too many with one "
                     "for an answer; %s",
                     n, n_ctx, n + 1 - n_ctx, conversation_make_fit(c));
}

// The prefix, without so many of the turns from first on.
static bool build_without(struct answering *a, struct conversation *c, size_t n_render,
                          size_t first, size_t turns, const struct ids *tail, struct error *err)
{
    c->first_kept = first + 2 * turns; // a user's message and its answer
    ids_clear(&a->prefix);
    return conversation_prefix(c, n_render, a->p->think, &a->prefix, &a->open_tag, err) &&
           (ids_append(&a->prefix, tail->data, tail->len) ||
            error_oom(err, "the prompt's tokens", a->prefix.len));
}

// Fits the prefix into the context as p->overflow says. tail: the ids that follow the rendered part
// (the start of the answer) and must stay.
static bool fit_prefix(struct answering *a, struct conversation *c, size_t n_render,
                       const struct ids *tail, struct error *err)
{
    const struct answer_params *p = a->p;
    struct ids *prefix = &a->prefix;
    size_t n_ctx = c->session.engine->n_ctx, before = prefix->len, kept = c->first_kept, turns = 0;
    char line[160];
    if (p->overflow == OVERFLOW_SHIFT) {
        a->n_keep = head_tokens(c, p->think);
        if (a->n_keep > n_ctx / 2)
            a->n_keep = n_ctx / 2;
        size_t n = overflow_shift(prefix, n_ctx, a->n_keep);
        if (n > 0) {
            snprintf(line, sizeof line,
                     "the context is full: the oldest %zu tokens are left out of what the model "
                     "sees",
                     n);
            notice(p, line);
            a->n_dropped += n;
        }
    } else if (p->overflow == OVERFLOW_DROP && prefix->len + room_wanted(c, p) > n_ctx) {
        // All that stays is read again: there is room for the turns to come, too, however short.
        const size_t target = n_ctx / 4 > 0 ? n_ctx / 4 : 1, first = first_of_turns(c);
        const size_t most = first + 2 < n_render ? (n_render - first - 1) / 2 : 0;
        size_t few = 0, enough = 0; // turns that are too few, that are not: 0, where none is known
        bool fits = prefix->len + target <= n_ctx;
        while (fits ? turns - few > 1 : turns < most) { // twice as many each time, then between
            enough = fits ? turns : enough > turns ? enough : 0;
            few = fits ? few : turns;
            turns = enough             ? few + (enough - few + 1) / 2
                    : turns > most / 2 ? most
                                       : 2 * turns + (turns == 0);
            if (!build_without(a, c, n_render, first, turns, tail, err)) {
                c->first_kept = kept;
                return false;
            }
            fits = prefix->len + target <= n_ctx;
        }
        if (turns > 0 && before > prefix->len) {
            snprintf(line, sizeof line, "dropped the oldest %zu turn%s (%zu tokens) to make room",
                     turns, turns == 1 ? "" : "s", before - prefix->len);
            notice(p, line);
            a->n_dropped += before - prefix->len;
        }
    }
    if (a->n_dropped > 0)
        ids_fit(prefix);
    if (prefix->len + 1 <= n_ctx)
        return true;
    too_long(c, p, n_render, tail->len, prefix->len, err);
    c->first_kept = kept; // what cannot be answered drops nothing
    return false;
}

// ----------------------------------------------------------------------------------------- answers

static bool stream_sink(void *user, enum answer_part part, const char *text, size_t n,
                        struct error *err)
{
    const struct answering *a = user;
    return !a->p->on_text || a->p->on_text(a->p->user, part, text, n, err);
}

static bool stream_text(void *user, const char *text, size_t n, struct error *err)
{
    struct answering *a = user;
    return think_push(&a->split, text, n, stream_sink, a, err);
}

static void stream_token(void *user, const struct decoded *d)
{
    const struct answering *a = user;
    if (a->p->on_token)
        a->p->on_token(a->p->user, d);
}

static bool no_sink(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err)
{
    (void)user, (void)part, (void)text, (void)n, (void)err;
    return true;
}

// Stop texts are for the answer: one that the thinking has would leave it empty.
static bool stops_from(void *user, const char *text, size_t known, size_t n, bool at_end,
                       size_t *from, bool *sure, struct error *err)
{
    struct answering *a = user;
    struct think_split *t = &a->stops;
    if (t->state != THINK_DONE && n > known &&
        !think_push(t, text + known, n - known, no_sink, NULL, err))
        return false;
    const bool done = t->state == THINK_DONE;
    const size_t at = done ? t->answer_at : t->n_seen - t->held.len;
    *from = at > a->n_start ? at - a->n_start : 0;
    *sure = done || (at_end && t->held.len > 0 &&
                     (t->state == THINK_START || t->state == THINK_GAP)); // as think_flush has it
    return true;
}

static bool add_run(struct message *m, const struct answer_run *run, struct error *err)
{
    struct answer_run *p = realloc(m->runs, (m->n_runs + 1) * sizeof *p);
    if (!p)
        return error_oom(err, "the record of an answer", (m->n_runs + 1) * sizeof *p);
    m->runs = p;
    m->runs[m->n_runs++] = *run;
    return true;
}

bool answering_prefill(const struct conversation *c, const struct answer_params *p,
                       struct message *m, struct error *err)
{
    const struct tokenize_options opt = {.continuation = true, .cancel = c->cancel};
    if (p->n_prefill == 0)
        return true;
    if (!conversation_check(c, "the start of the answer", p->prefill, p->n_prefill, err))
        return false;
    if (!tokenizer_encode(c->model->tokenizer, p->prefill, p->n_prefill, &opt, &m->ids, err))
        return false;
    m->n_prefill = m->ids.len;
    return buf_append(&m->text, p->prefill, p->n_prefill) ||
           error_oom(err, "the start of the answer", p->n_prefill);
}

bool answering_prepare(struct answering *a, struct conversation *c, size_t n_messages,
                       const struct answer_params *p, const struct message *m, struct error *err)
{
    const bool was_merged = c->system_merged;
    *a = (struct answering){.c = c, .p = p, .sampler = *p->sampler};
    if (!conversation_prefix(c, n_messages, p->think, &a->prefix, &a->open_tag, err))
        return false;
    if (c->system_merged && !was_merged)
        notice(p,
               "the model's template knows no system prompt: it is put before the first message");
    if (!ids_append(&a->prefix, m->ids.data, m->ids.len))
        return error_oom(err, "the prompt's tokens", a->prefix.len);
    if (!fit_prefix(a, c, n_messages, &m->ids, err))
        return false;
    think_init(&a->split, a->open_tag);
    think_init(&a->stops, a->open_tag);
    a->n_start = m->text.len;
    // The splitter must know what it has seen of an answer that goes on.
    a->shown = m->n_runs > 0;
    if ((a->shown && !think_push(&a->split, buf_str(&m->text), m->text.len, no_sink, NULL, err)) ||
        !think_push(&a->stops, buf_str(&m->text), m->text.len, no_sink, NULL, err))
        return false;
    a->first_kept = c->first_kept;
    if (!conversation_set_breakers(c, &a->sampler, err))
        return false;
    a->gp = (struct generate_params){
        .sampler = &a->sampler,
        .tok = c->model->tokenizer,
        .n_predict = p->n_predict,
        .ignore_eos = p->ignore_eos,
        .stop = p->stop,
        .n_stop = p->n_stop,
        .n_probs = p->n_probs,
        .overflow = p->overflow,
        .n_keep = a->n_keep,
        .cancel = c->cancel,
        .on_text = stream_text,
        .stops_from = stops_from,
        .on_token = stream_token,
        .user = a,
    };
    return answering_constrain(a, m, err);
}

bool answering_constrain(struct answering *a, const struct message *m, struct error *err)
{
    const struct answer_params *p = a->p;
    const struct template *tmpl = a->c->tmpl;
    a->gp.constraint = p->constraint;
    if (!p->constraint)
        return true;
    if (p->ignore_eos) // the command line refuses it, but /set and a session's settings may say so
        return error_set(err, ERR_USAGE,
                         "ignore-eos and a grammar or schema cannot be combined: the answer ends "
                         "where the grammar does");
    size_t n = 0;
    const char *source = tmpl ? template_source(tmpl, &n) : "";
    struct thinking_marks marks;
    think_marks(source, n, a->open_tag, p->think == THINK_OFF, &marks);
    constraint_begin(p->constraint, &marks, a->open_tag != NULL);
    return constraint_text(p->constraint, buf_str(&m->text), m->text.len, err);
}

bool answering_begin(struct answering *a, const struct message *m, struct error *err)
{
    if (a->shown || m->text.len == 0)
        return true;
    a->shown = true;
    return stream_text(a, m->text.data, m->text.len, err);
}

bool answering_end(struct answering *a, struct message *m, bool ok, struct error *err)
{
    const struct generated *g = &a->g;
    struct error late = {0};
    if (!think_flush(&a->split, stream_sink, a, &late) && ok) {
        ok = false;
        if (err)
            *err = late;
    }
    if (g->ids.len > 0) {
        struct answer_run run = {
            .first_id = m->ids.len,
            .sampler = a->sampler,
            .ignore_eos = a->p->ignore_eos,
            .constrained = a->p->constraint != NULL,
            .think = a->p->think,
            .overflow = a->p->overflow,
            .first_kept = a->first_kept,
            .n_keep = a->n_keep,
            .n_ctx = a->p->overflow == OVERFLOW_SHIFT ? a->c->session.engine->n_ctx : 0,
            .finish = ok ? g->finish : FINISH_INTERRUPTED,
            .prefix_hash = conversation_hash(a->prefix.data, a->prefix.len),
        };
        run.sampler.dry_breakers = NULL;
        bool kept = ids_append(&m->ids, g->ids.data, g->ids.len) &&
                    buf_append(&m->text, buf_str(&g->text), g->text.len);
        kept = kept || error_oom(err, "the answer", g->text.len);
        ok = kept && add_run(m, &run, err) && ok;
        m->has_end_token = kept && ok && g->finish == FINISH_STOP &&
                           tokenizer_is_end(a->c->model->tokenizer, m->ids.data[m->ids.len - 1]);
    }
    m->partial = !ok || (g->finish != FINISH_STOP && g->finish != FINISH_STOP_TEXT);
    m->thinking_at = a->split.thinking_at;
    m->thinking_end = a->split.thinking_end;
    m->answer_at = a->split.answer_at;
    return ok;
}

void answering_release(struct answering *a)
{
    think_release(&a->split);
    think_release(&a->stops);
    ids_release(&a->prefix);
    generated_release(&a->g);
    *a = (struct answering){0};
}
