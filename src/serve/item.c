#include "serve/item.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_text.h"

// Seconds after which a stream that has nothing to say says that it is there: whatever stands
// between it and its client may take silence for death.
static const double PING_S = 15;

static bool send_bytes(struct item *it, struct buf *b, struct error *err)
{
    const bool made = !b->failed, ok = made && job_write(it->job, buf_str(b), b->len);
    buf_release(b);
    if (!made)
        return error_oom(err, "a part of the answer", 0);
    it->written = clock_now();
    it->lost = it->lost || !ok;
    return ok || error_set(err, ERR_FAIL, "the client has gone, or reads too slowly");
}

// An array for what put_logprobs puts into its JSON; NULL: there is nothing to say.
static json_t *logprobs_array(const struct item *it)
{
    return it->with_logprobs && (!it->stream || it->logprobs.len > 0) ? json_array() : NULL;
}

// As values of jansson they would take ten times the memory. Within a text of JSON, quotes are
// escaped: the place is none of a text's.
static bool put_logprobs(struct item *it, struct buf *b)
{
    static const char place[] = "\"logprobs\":{\"content\":[";
    const size_t n = it->logprobs.len;
    if (n == 0)
        return true;
    const char *found = strstr(buf_str(b), place);
    if (!found || it->logprobs.failed)
        return false;
    const size_t at = (size_t)(found - b->data) + strlen(place), end = b->len;
    if (!buf_append(b, it->logprobs.data, n))
        return false;
    memmove(b->data + at + n, b->data + at, end - at);
    memcpy(b->data + at, it->logprobs.data, n);
    buf_release(&it->logprobs);
    return true;
}

// What a client gets at the end takes memory until then; a stream, little.
static bool keep(struct item *it, size_t n)
{
    return it->stream || job_keep_bytes(it->job, n);
}

static bool send_delta(struct item *it, json_t *delta, const char *finish, struct error *err)
{
    struct buf b = {0};
    if (!reply_chunk(&it->reply, delta, logprobs_array(it), finish, &b) || !put_logprobs(it, &b))
        b.failed = true;
    return send_bytes(it, &b, err);
}

static bool give(struct item *it, bool thinking, const char *text, size_t n, struct error *err)
{
    if (n == 0)
        return true;
    if (it->full || !keep(it, n))
        return error_set(err, ERR_MEMORY,
                         "what is kept for clients takes too much memory: try again later, or ask "
                         "for a stream");
    if (!it->stream)
        return buf_append(thinking ? &it->thinking : &it->text, text, n) ||
               error_oom(err, "the answer", n);
    json_t *j = json_text(text, n);
    if (it->reply.chat)
        j = json_pack("{s:o}", thinking ? "reasoning_content" : "content", j);
    return send_delta(it, j, NULL, err);
}

static bool on_text(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err)
{
    struct item *it = user;
    if (part == PART_THINKING)
        return it->hides_thinking || give(it, true, text, n, err);
    struct buf said = {0};
    const bool ok = calls_push(&it->calls, text, n, &said) || error_oom(err, "the answer", n);
    const bool given = ok && give(it, false, buf_str(&said), said.len, err);
    buf_release(&said);
    return given;
}

static void on_token(void *user, const struct decoded *d)
{
    struct item *it = user;
    it->full |= !calls_token(&it->calls, it->reply.tok, d->id);
    if (!it->with_logprobs || it->full || tokenizer_is_end(it->reply.tok, d->id))
        return;
    const size_t before = it->logprobs.len;
    if (before > 0)
        buf_puts(&it->logprobs, ",");
    it->full = !reply_json(reply_token(it->reply.tok, d, it->n_top), false, &it->logprobs) ||
               !keep(it, it->logprobs.len - before);
}

void item_refused(struct item *it, const struct refusal *r)
{
    struct buf b = {0};
    struct desk *d = it->job->desk;
    pthread_mutex_lock(&d->lock);
    d->metrics.n_refused++;
    pthread_mutex_unlock(&d->lock);
    if (it->job->streaming) {
        refusal_json(r, true, &b);
        send_bytes(it, &b, NULL);
        job_end(it->job);
    } else {
        refusal_json(r, false, &b);
        job_answer(it->job, r->status, &b);
    }
}

static bool tell_stream_end(struct item *it, json_t *calls, const char *finish,
                            const struct session_stats *s)
{
    struct buf b = {0};
    json_t *last = it->reply.chat ? json_object() : json_string("");
    if (calls)
        json_object_set(last, "tool_calls", calls);
    if (!send_delta(it, last, finish, NULL))
        return false;
    if (it->reply.with_usage && !reply_usage_chunk(&it->reply, s, &b))
        b.failed = true;
    buf_puts(&b, "data: [DONE]\n\n");
    return send_bytes(it, &b, NULL);
}

static json_t *whole_message(const struct item *it, json_t *calls)
{
    json_t *text =
        calls && it->text.len == 0 ? json_null() : json_text(buf_str(&it->text), it->text.len);
    if (!it->reply.chat)
        return text;
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal");
    if (it->thinking.len > 0)
        json_object_set_new(m, "reasoning_content", json_text(it->thinking.data, it->thinking.len));
    if (calls)
        json_object_set(m, "tool_calls", calls);
    return m;
}

// What is held is calls, or text after all.
static json_t *take_calls(struct item *it)
{
    struct buf rest = {0};
    json_t *found = calls_end(&it->calls, &rest), *calls = found ? reply_calls(found) : NULL;
    it->full |= rest.failed || !give(it, false, buf_str(&rest), rest.len, NULL);
    json_decref(found);
    buf_release(&rest);
    return calls;
}

void item_answered(struct item *it)
{
    const struct session_stats *s = &it->task.stats;
    struct buf b = {0};
    struct refusal r;
    json_t *calls = take_calls(it);
    const char *finish = calls ? "tool_calls" : reply_finish(it->a.g.finish);
    const bool told = it->stream && !it->full && !it->lost && tell_stream_end(it, calls, finish, s);
    if (told || it->lost) {
        job_end(it->job);
    } else if (!it->stream && !it->full &&
               reply_answer(&it->reply, whole_message(it, calls), logprobs_array(it), finish, s,
                            &b) &&
               put_logprobs(it, &b)) {
        job_forget_ask(it->job, it->stop_bytes.len); // all of it is in the body now
        job_answer(it->job, 200, &b);
    } else {
        buf_release(&b);
        refuse(&r, 503, NULL, "out_of_memory", "no memory for the answer");
        item_refused(it, &r);
    }
    json_decref(calls);
}

void item_begin_stream(struct item *it)
{
    json_t *role = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    job_begin_stream(it->job);
    if (it->reply.chat)
        it->full |= !send_delta(it, role, NULL, NULL);
    else
        json_decref(role);
    it->written = clock_now();
}

void item_listen(struct item *it)
{
    it->p.on_text = on_text;
    it->p.on_token = on_token;
    it->p.user = it;
}

void item_ping(struct item *it, double now)
{
    struct buf ping = {0};
    if (!it->stream || now - it->written < PING_S)
        return;
    buf_puts(&ping, ": ping\n\n");
    send_bytes(it, &ping, NULL);
}

void item_release(struct item *it)
{
    answering_release(&it->a);
    message_release(&it->m);
    ids_release(&it->task.rest);
    buf_release(&it->stop_bytes);
    buf_release(&it->text);
    buf_release(&it->thinking);
    calls_release(&it->calls);
    buf_release(&it->logprobs);
}
