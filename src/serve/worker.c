#include "serve/worker.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "engine/settings.h"
#include "serve/item.h"
#include "serve/messages.h"

// Conversations that may go on where they ended: each has its memory as long as nobody needs it.
enum { MOST_KEPT = 64 };

// Of one pass, requests that are begun, and the seconds after which no other is: answers under way,
// and whoever wants the end, wait for them.
enum { MOST_BEGUN = 16 };
static const double BEGIN_S = 0.01;

// A prompt is split until it has so many times the tokens that the context holds: for most that do
// not fit, how much they are too long can be said.
enum { MOST_CONTEXTS = 4 };

// It ends, whatever has come of it.
static void item_end(struct worker *w, struct item *it)
{
    struct item **p = &w->items;
    while (*p && *p != it)
        p = &(*p)->next;
    if (*p) {
        *p = it->next;
        w->n_items--;
    }
    if (it->scheduled && !it->task.done)
        schedule_remove(&w->schedule, &it->task);
    struct constraint *shape = it->p.constraint;
    item_release(it);
    shapes_give(w->shapes, shape);
    job_free(it->job);
    free(it);
}

static void count(struct worker *w, const struct session_stats *s, bool answered, bool cancelled)
{
    pthread_mutex_lock(&w->desk->lock);
    struct metrics *m = &w->desk->metrics;
    m->n_answers += answered;
    m->n_cancelled += cancelled;
    m->n_prompt += s->n_prompt;
    m->n_reused += s->n_reused;
    m->n_generated += s->n_generated;
    m->n_drafted += s->n_drafted;
    m->n_accepted += s->n_accepted;
    pthread_mutex_unlock(&w->desk->lock);
}

// False.
static bool blame_schema(struct item *it, struct error *err)
{
    it->field = "response_format";
    return error_prefix(err, "\"%s\"", it->field);
}

// A task that is done.
static void finish(struct worker *w, struct item *it)
{
    struct error why = it->task.error;
    struct refusal r;
    bool ok = why.code == ERR_NONE;
    ok = answering_end(&it->a, &it->m, ok, ok ? &why : NULL) && ok;
    count(w, &it->task.stats, ok && !it->lost, it->lost);
    if (why.code == ERR_FAIL && it->a.g.off_grammar) { // which its client chose
        why.code = ERR_USAGE;
        blame_schema(it, &why);
    }
    if (ok) {
        item_answered(it);
    } else if (!it->lost) {
        refuse_for(&r, it->field, &why);
        item_refused(it, &r);
    }
    item_end(w, it);
}

// ---- from a request to a task

// fields: an array that keeps what the template is told until it is rendered.
static bool add_message(struct conversation *c, const json_t *m, json_t *fields, struct error *err)
{
    const char *role = message_role_name(m);
    struct buf text = {0};
    bool ok = message_content(m, &text) || error_oom(err, "a message", text.len);
    if (ok && strcmp(role, "system") == 0)
        ok = conversation_set_system(c, buf_str(&text), text.len, err);
    else if (ok)
        ok = conversation_add(c, role[0] == 'a' ? ROLE_ASSISTANT : ROLE_USER, buf_str(&text),
                              text.len, err);
    if (ok && message_has_fields(m)) {
        json_t *f = message_fields(m), *thinking = json_object_get(m, "reasoning_content");
        for (int k = 0; k < THINK_FIELDS; k++) // by the name that the template has for it
            if (json_is_string(thinking) && c->think_fields >> k & 1)
                json_object_set(f, think_field_name(k), thinking);
        c->messages[c->n_messages - 1].fields = f;
        ok = json_array_append_new(fields, f) == 0 || error_oom(err, "a message", text.len);
    }
    buf_release(&text);
    return ok;
}

static bool add_messages(struct worker *w, const struct ask *a, struct error *err)
{
    bool ok = true;
    w->fields = json_array();
    w->chat.now = (int64_t)time(NULL); // what a template says of the date
    w->chat.tools = a->no_calls ? NULL : a->tools;
    for (size_t i = 0; ok && i < json_array_size(a->messages); i++)
        ok = add_message(&w->chat, json_array_get(a->messages, i), w->fields, err);
    return ok;
}

// A call that the template does not show would be lost: its message would be an empty one.
static bool check_calls_told(const struct worker *w, struct item *it, struct error *err)
{
    const json_t *messages = it->job->ask.messages;
    for (size_t i = 0; !w->shows_calls && i < json_array_size(messages); i++)
        if (json_object_get(json_array_get(messages, i), "tool_calls")) {
            it->field = "messages";
            return error_set(err, ERR_USAGE,
                             "messages[%zu] has \"tool_calls\", which are not supported with this "
                             "model: its template shows none; expected messages without",
                             i);
        }
    return true;
}

// The conversation that the request is about, with its messages.
static struct conversation *converse(struct worker *w, struct item *it, struct error *err)
{
    const struct ask *a = &it->job->ask;
    struct conversation *c = a->kind == ASK_COMPLETION ? &w->plain : &w->chat;
    if (a->kind != ASK_COMPLETION && !w->has_chat) {
        it->field = NULL;
        error_set(err, ERR_USAGE,
                  "the model has no chat template: ask /v1/completions, or start the server with "
                  "--chat-template");
        return NULL;
    }
    if (a->tools && !a->no_calls && !w->form) {
        it->field = "tools";
        error_set(err, ERR_USAGE,
                  "tools are not supported with this model: its template teaches no form of calls "
                  "that is read here");
        return NULL;
    }
    const bool ok = a->messages ? check_calls_told(w, it, err) && add_messages(w, a, err)
                                : conversation_add(c, ROLE_USER, a->prompt, a->n_prompt, err);
    return ok ? c : NULL;
}

static void forget_messages(struct worker *w)
{
    struct conversation *both[] = {&w->chat, &w->plain};
    for (int i = 0; i < 2; i++) {
        conversation_restart(both[i]);
        conversation_set_system(both[i], NULL, 0, NULL);
        both[i]->system_merged = false;
        both[i]->tools = NULL;
    }
    json_decref(w->fields);
    w->fields = NULL;
}

// p.stop, in memory of its own.
static bool keep_stops(struct item *it, const struct ask *a, struct error *err)
{
    for (size_t i = 0; i < a->n_stop; i++)
        if (!buf_append(&it->stop_bytes, a->stop[i], strlen(a->stop[i]) + 1))
            return error_oom(err, "the stop texts", it->stop_bytes.len);
    const char *at = buf_str(&it->stop_bytes);
    for (size_t i = 0; i < a->n_stop; i++, at += strlen(at) + 1)
        it->stop[i] = at;
    it->p.stop = it->stop;
    it->p.n_stop = a->n_stop;
    return true;
}

static bool set(struct worker *w, struct item *it, const struct ask *a, struct error *err)
{
    it->sampler = a->sampler;
    it->stream = a->stream;
    it->hides_thinking = w->think == THINK_HIDE;
    it->with_logprobs = a->logprobs;
    it->n_top = a->top_logprobs;
    it->p = (struct answer_params){
        .sampler = &it->sampler,
        .n_predict = a->has_n_predict ? a->n_predict : w->defaults->n_predict,
        .n_probs = a->logprobs && a->top_logprobs == 0 ? 1 : a->top_logprobs,
        .overflow = OVERFLOW_ERROR,
        .think = w->think,
    };
    item_listen(it);
    if (a->tools && !a->no_calls)
        calls_init(&it->calls, w->form);
    if (a->schema &&
        !(it->p.constraint = shapes_take(w->shapes, a->schema, &w->watch.unwanted, err)))
        return blame_schema(it, err);
    if (!a->has_seed && !sampler_random_seed(&it->sampler.seed, err))
        return false;
    return reply_init(&it->reply, w->defaults->model, w->engine->model->tokenizer,
                      a->kind == ASK_CHAT, err) &&
           keep_stops(it, a, err);
}

static bool prepare(struct worker *w, struct item *it, struct error *err)
{
    const struct ask *a = &it->job->ask;
    if (!set(w, it, a, err))
        return false;
    struct conversation *c = converse(w, it, err);
    const bool ok = c && answering_prepare(&it->a, c, c->n_messages, &it->p, &it->m, err) &&
                    answering_begin(&it->a, &it->m, err);
    forget_messages(w);
    if (!ok && err->code == ERR_FAIL) // what the template or the tokenizer refuses
        err->code = ERR_USAGE;
    if (!ok)
        return false;
    it->a.gp.cancel = NULL; // the flag is of what is prepared
    it->reply.with_usage = a->include_usage;
    it->task = (struct task){.prompt = &it->a.prefix, .p = &it->a.gp, .g = &it->a.g};
    it->scheduled = schedule_add(&w->schedule, &it->task, err);
    return it->scheduled;
}

// /apply-template: what the messages become.
static bool render(struct worker *w, struct item *it, struct buf *out, struct error *err)
{
    struct ids ids = {0};
    struct buf text = {0};
    struct conversation *c = converse(w, it, err);
    bool ok = c && conversation_prefix(c, c->n_messages, w->think, &ids, NULL, err);
    for (size_t i = 0; ok && i < ids.len; i++)
        ok = tokenizer_decode_one(c->model->tokenizer, ids.data[i], true, &text) ||
             error_oom(err, "the prompt", text.len);
    forget_messages(w);
    ok = ok && (reply_json(json_pack("{s:o}", "prompt", json_text(buf_str(&text), text.len)), false,
                           out) ||
                error_oom(err, "the prompt", text.len));
    if (!ok && err->code == ERR_FAIL) // as in prepare
        err->code = ERR_USAGE;
    ids_release(&ids);
    buf_release(&text);
    return ok;
}

// /tokenize.
static bool split(const struct worker *w, const struct ask *a, struct buf *out, struct error *err)
{
    const struct tokenize_options opt = {
        .bos = a->add_special, .special = a->parse_special, .cancel = &w->watch.unwanted};
    struct ids ids = {0};
    bool ok =
        tokenizer_encode(w->engine->model->tokenizer, a->prompt, a->n_prompt, &opt, &ids, err);
    if (ok) {
        buf_puts(out, "{\"tokens\":[");
        for (size_t i = 0; i < ids.len; i++)
            buf_printf(out, "%s%d", i ? "," : "", (int)ids.data[i]);
        ok = buf_puts(out, "]}") || error_oom(err, "the tokens", out->len);
    }
    ids_release(&ids);
    return ok;
}

// What was asked for cannot be, or nobody wants it any more.
static void not_begun(struct worker *w, struct item *it, const struct error *why)
{
    struct refusal r;
    refuse_for(&r, it->field, why);
    if (why->code == ERR_INTERRUPTED && !job_has_client(it->job)) {
        count(w, &(struct session_stats){0}, false, true);
        // Who closed its sending side alone reads on.
        refuse(&r, 400, NULL, "client_left",
               "found the client's side of the connection closed, expected it open until the "
               "answer is there (nc without -N)");
    }
    item_refused(it, &r);
    item_end(w, it);
}

// Takes j.
static void begin(struct worker *w, struct job *j)
{
    struct error why = {0};
    struct buf body = {0};
    struct item *it = calloc(1, sizeof *it), **p = &w->items;
    if (!it) {
        job_free(j);
        return;
    }
    it->job = j;
    while (*p)
        p = &(*p)->next;
    *p = it;
    w->n_items++;
    watch_job(&w->watch, j);
    const enum ask_kind kind = j->ask.kind;
    it->field = ask_subject(kind);
    const bool is_text = kind == ASK_TEMPLATE || kind == ASK_TOKENIZE;
    const bool ok = !job_has_client(j)     ? error_set(&why, ERR_INTERRUPTED, "its client has gone")
                    : kind == ASK_TOKENIZE ? split(w, &j->ask, &body, &why)
                    : kind == ASK_TEMPLATE ? render(w, it, &body, &why)
                                           : prepare(w, it, &why);
    watch_job(&w->watch, NULL);
    if (!ok) {
        buf_release(&body);
        not_begun(w, it, &why);
        return;
    }
    if (is_text) {
        job_forget_ask(j, 0);
        job_answer(j, 200, &body);
        item_end(w, it);
        return;
    }
    job_forget_ask(j, it->stop_bytes.len);
    if (it->stream)
        item_begin_stream(it);
}

// ---- the whole

bool worker_init(struct worker *w, struct desk *d, const struct ask_defaults *defaults,
                 const struct model *m, struct engine *e, size_t n_parallel, struct shapes *shapes,
                 const struct buf *template_text, enum think think, const struct cancel *end,
                 double grace, struct error *err)
{
    const int64_t now = (int64_t)time(NULL);
    *w = (struct worker){
        .desk = d, .defaults = defaults, .engine = e, .shapes = shapes, .think = think};
    if (!conversation_init(&w->plain, m, e, NULL, 0, now, err))
        return false;
    w->has_chat = template_text->len > 0;
    if (w->has_chat &&
        !conversation_init(&w->chat, m, e, buf_str(template_text), template_text->len, now, err))
        return false;
    if (w->has_chat) {
        w->form = calls_form_of(buf_str(template_text), template_text->len);
        w->shows_calls = memmem(buf_str(template_text), template_text->len, "tool_calls", 10);
    }
    w->plain.cancel = w->chat.cancel = &w->watch.unwanted;
    w->plain.most_ids = w->chat.most_ids = MOST_CONTEXTS * (size_t)e->n_ctx;
    return watch_init(&w->watch, end, grace, err) &&
           schedule_init(&w->schedule, e, n_parallel, NULL, &w->stop, err) &&
           schedule_keep(&w->schedule, MOST_KEPT, err);
}

bool worker_speculate(struct worker *w, enum spec spec, struct engine *draft,
                      struct engine *predictor, struct error *err)
{
    const struct session s = {.draft = draft, .predictor = predictor};
    struct engine *from;
    return session_guesser(&s, &spec, &from, err) &&
           (spec == SPEC_OFF || schedule_speculate(&w->schedule, from, err));
}

void worker_release(struct worker *w)
{
    struct refusal r;
    struct buf body = {0};
    refuse_for(&r, NULL, &(struct error){.code = ERR_INTERRUPTED});
    while (w->items) {
        item_refused(w->items, &r);
        item_end(w, w->items);
    }
    for (struct job *j; (j = desk_take(w->desk, 0));) { // that came last
        refusal_json(&r, false, &body);
        job_answer(j, r.status, &body);
        job_free(j);
    }
    watch_release(&w->watch);
    schedule_release(&w->schedule);
    conversation_release(&w->chat);
    conversation_release(&w->plain);
}

static void measure(struct worker *w)
{
    pthread_mutex_lock(&w->desk->lock);
    struct metrics *m = &w->desk->metrics;
    m->n_running = w->schedule.n_running;
    m->n_waiting = w->schedule.n_waiting;
    m->n_pool = engine_blocks(w->engine, w->engine->n_ctx);
    m->n_pool_free = engine_free_blocks(w->engine);
    pthread_mutex_unlock(&w->desk->lock);
}

bool worker_step(struct worker *w, int wait_ms, struct error *err)
{
    struct job *j = desk_take(w->desk, w->n_items == 0 ? wait_ms : 0);
    const double began = clock_now();
    for (int n = 1; j; n++) {
        begin(w, j);
        const bool more = n < MOST_BEGUN && clock_now() - began < BEGIN_S;
        j = more ? desk_take(w->desk, 0) : NULL;
    }
    for (struct item *it = w->items, *next; it; it = next) {
        next = it->next;
        if (!it->lost && job_has_client(it->job))
            continue;
        it->lost = true;
        it->task.stats.n_prompt = it->task.prompt->len;
        it->task.stats.n_generated = it->a.g.ids.len;
        count(w, &it->task.stats, false, true);
        item_end(w, it);
    }
    if (!schedule_step(&w->schedule, err))
        return false;
    const double now = clock_now();
    for (struct item *it = w->items, *next; it; it = next) {
        next = it->next;
        if (it->task.done)
            finish(w, it);
        else
            item_ping(it, now);
    }
    measure(w);
    return true;
}
