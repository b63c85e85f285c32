#include "serve/reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/json_text.h"
#include "engine/settings.h"

bool reply_init(struct reply *r, const char *model, const struct tokenizer *tok, bool chat,
                struct error *err)
{
    uint64_t id;
    if (!sampler_random_seed(&id, err))
        return false;
    *r = (struct reply){.model = model, .tok = tok, .chat = chat, .created = time(NULL)};
    snprintf(r->id, sizeof r->id, "%s-%014llx", chat ? "chatcmpl" : "cmpl", (unsigned long long)id);
    return true;
}

static json_t *token_object(const struct tokenizer *t, int32_t id, float logprob)
{
    struct buf text = {0};
    if (!tokenizer_decode_one(t, id, true, &text))
        json_lose();
    json_t *bytes = json_array();
    for (size_t i = 0; i < text.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text.data[i]));
    json_t *j = json_pack("{s:o, s:f, s:o}", "token", json_text(buf_str(&text), text.len),
                          "logprob", isfinite(logprob) ? (double)logprob : -9999.0, "bytes", bytes);
    buf_release(&text);
    return j;
}

json_t *reply_token(const struct tokenizer *t, const struct decoded *d, uint32_t n_top)
{
    json_t *j = token_object(t, d->id, d->logprob), *top = json_array();
    for (uint32_t i = 0; i < d->n_top && i < n_top; i++)
        json_array_append_new(top, token_object(t, d->top[i].id, d->top[i].logprob));
    json_object_set_new(j, "top_logprobs", top);
    return j;
}

json_t *reply_calls(const json_t *calls)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        char id[10] = ""; // some templates want nine letters and digits
        uint64_t n;
        if (!sampler_random_seed(&n, NULL))
            break;
        for (size_t k = 0; k < sizeof id - 1; k++, n /= 36)
            id[k] = digits[n % 36];
        json_array_append_new(out, json_pack("{s:I, s:s, s:s, s:{s:O, s:O}}", "index",
                                             (json_int_t)i, "id", id, "type", "function",
                                             "function", "name", json_object_get(call, "name"),
                                             "arguments", json_object_get(call, "arguments")));
    }
    return out;
}

const char *reply_finish(enum finish f)
{
    return f == FINISH_LENGTH || f == FINISH_CONTEXT ? "length" : "stop";
}

bool reply_json(json_t *j, bool event, struct buf *out)
{
    char *s = json_written(j, JSON_COMPACT);
    const bool ok = s && (!event || buf_puts(out, "data: ")) && buf_puts(out, s) &&
                    (!event || buf_puts(out, "\n\n"));
    free(s);
    json_decref(j);
    return ok;
}

static json_t *usage(const struct session_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)s->n_prompt,
                     "completion_tokens", (json_int_t)s->n_generated, "total_tokens",
                     (json_int_t)(s->n_prompt + s->n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)s->n_reused);
}

// choices: taken.
static json_t *envelope(const struct reply *r, bool chunk, json_t *choices)
{
    const char *object = !r->chat ? "text_completion"
                         : chunk  ? "chat.completion.chunk"
                                  : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", r->id, "object", object, "created",
                     (json_int_t)r->created, "model", r->model, "choices", choices);
}

static json_t *choice(const struct reply *r, const char *key, json_t *what, json_t *logprobs,
                      const char *finish)
{
    json_t *l = logprobs ? json_pack("{s:o, s:n}", "content", logprobs, "refusal") : json_null();
    return json_pack("[{s:i, s:o, s:o, s:s?}]", "index", 0, r->chat ? key : "text", what,
                     "logprobs", l, "finish_reason", finish);
}

bool reply_answer(const struct reply *r, json_t *message_or_text, json_t *logprobs,
                  const char *finish, const struct session_stats *s, struct buf *out)
{
    json_t *j = envelope(r, false, choice(r, "message", message_or_text, logprobs, finish));
    json_object_set_new(j, "usage", usage(s));
    return reply_json(j, false, out);
}

bool reply_chunk(const struct reply *r, json_t *delta_or_text, json_t *logprobs, const char *finish,
                 struct buf *out)
{
    json_t *j = envelope(r, true, choice(r, "delta", delta_or_text, logprobs, finish));
    if (r->with_usage)
        json_object_set_new(j, "usage", json_null());
    return reply_json(j, true, out);
}

bool reply_usage_chunk(const struct reply *r, const struct session_stats *s, struct buf *out)
{
    json_t *j = envelope(r, true, json_array());
    json_object_set_new(j, "usage", usage(s));
    return reply_json(j, true, out);
}
