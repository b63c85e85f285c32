#include "serve/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "engine/engine.h"
#include "engine/settings.h"
#include "serve/messages.h"

// ---- how much it is

bool ask_count(const char *text, size_t n, size_t *n_values)
{
    size_t depth = 0;
    bool quoted = false;
    *n_values = 1;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        *n_values += c == ',' || c == ':' || c == '[' || c == '{';
        if ((c == '[' || c == '{') && ++depth > ASK_MAX_DEPTH) {
            *n_values = i;
            return false;
        }
        depth -= (c == ']' || c == '}') && depth > 0;
    }
    return true;
}

bool ask_cost(const char *text, size_t n, size_t *cost, struct refusal *r)
{
    enum { VALUE_BYTES = 176 }; // of jansson, in an object
    size_t n_values;
    if (!ask_count(text, n, &n_values))
        return refuse(r, 400, NULL, NULL,
                      "the body's JSON is nested more than %d deep at byte %zu: expected less",
                      ASK_MAX_DEPTH, n_values);
    if (n_values > ASK_MAX_VALUES)
        return refuse(r, 400, NULL, NULL, "the body's JSON has %zu values: expected at most %d",
                      n_values, ASK_MAX_VALUES);
    *cost = n + n_values * VALUE_BYTES;
    return true;
}

// ---- fields

static bool has_nul(const json_t *v)
{
    return strlen(json_string_value(v)) != json_string_length(v);
}

static bool read_bool(bool *to, const char *key, const json_t *v, struct refusal *r)
{
    *to = json_is_true(v);
    return json_is_boolean(v) || refuse_value(r, key, v, "true or false");
}

static bool read_model(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    if (!json_is_string(v))
        return refuse_value(r, key, v, "a text");
    return json_text_is(v, a->model) ||
           refuse(r, 404, key, "model_not_found",
                  "\"model\": found \"%.80s\", expected \"%.200s\", the one that is served",
                  json_string_value(v), a->model);
}

static bool read_prompt(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    // What can ask several servers sends the one text of a completion as an array.
    const json_t *only =
        strcmp(key, "prompt") == 0 && json_array_size(v) == 1 ? json_array_get(v, 0) : v;
    if (!json_is_string(only))
        return refuse_value(r, key, v, "one text");
    v = only;
    a->prompt = json_string_value(v);
    a->n_prompt = json_string_length(v);
    return true;
}

static bool read_tokens(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    const json_t *token = NULL;
    bool ok = json_is_array(v);
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = json_is_integer(token = json_array_get(v, i));
    a->tokens = v;
    return ok || refuse_value(r, key, token ? token : v, "an array of token ids");
}

static bool read_flag(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    bool *to = strcmp(key, "stream") == 0        ? &a->stream
               : strcmp(key, "logprobs") == 0    ? &a->logprobs
               : strcmp(key, "add_special") == 0 ? &a->add_special
                                                 : &a->parse_special;
    return read_bool(to, key, v, r);
}

static bool read_stream_options(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    const char *name;
    json_t *value;
    if (!json_is_object(v))
        return refuse_value(r, key, v, "an object");
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        if (strcmp(name, "include_usage") != 0)
            return refuse(r, 400, key, "unsupported",
                          "\"stream_options\": found \"%.80s\", expected \"include_usage\" alone",
                          name);
        if (!read_bool(&a->include_usage, "include_usage", value, r))
            return false;
    }
    return true;
}

static bool read_seed(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    if (!json_read_u64(v, &a->sampler.seed))
        return refuse_value(r, key, v, JSON_U64_EXPECTED);
    a->has_seed = true;
    return true;
}

static bool read_n_predict(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return refuse_value(r, key, v, "a whole number, 1 or more");
    if (a->has_n_predict)
        return refuse(r, 400, key, NULL,
                      "\"max_tokens\" and \"max_completion_tokens\": expected one of them");
    a->has_n_predict = true;
    a->n_predict = json_integer_value(v);
    return true;
}

static bool read_stop(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    static const char expected[] = "a text, or an array of at most 16, none empty or with U+0000";
    _Static_assert(ASK_MAX_STOP == 16, "is said above");
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > ASK_MAX_STOP)
        return refuse_value(r, key, v, expected);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(text) || json_string_length(text) == 0 || has_nul(text))
            return refuse_value(r, key, v, expected);
        a->stop[a->n_stop++] = json_string_value(text);
    }
    return true;
}

static bool read_top_logprobs(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    _Static_assert(ENGINE_MAX_PROBS == 64, "is said below");
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > ENGINE_MAX_PROBS)
        return refuse_value(r, key, v, "a whole number from 0 to 64");
    a->top_logprobs = (uint32_t)json_integer_value(v);
    return true;
}

// The one value with which nothing is asked for.
static bool read_one(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)a;
    return (json_is_integer(v) && json_integer_value(v) == 1) ||
           refuse_value(r, key, v, "1: one answer for a request");
}

// OpenAI's count what the answer has so far; hokku's options of these names, the last tokens, the
// prompt's included.
static bool read_penalty(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)a;
    return (json_is_number(v) && json_number_value(v) == 0) ||
           refuse_value(r, key, v, "0: this penalty is not supported in a request");
}

static bool read_setting(struct ask *a, const char *key, const char *name, const json_t *v,
                         struct refusal *r)
{
    const struct sampler_number *s = sampler_numbers;
    char range[FORMAT_TEXT];
    while (strcmp(s->name, name) != 0)
        s++;
    const double x = json_number_value(v);
    const char *expected = NULL;
    if (!json_is_number(v) || (s->whole && !json_is_integer(v)))
        expected = format_range(range, s->least, s->most);
    else
        expected = sampler_number_expects(s, x, range);
    if (expected)
        return refuse_value(r, key, v, expected);
    void *to = (char *)&a->sampler + s->offset;
    if (s->whole)
        *(int32_t *)to = (int32_t)json_integer_value(v);
    else
        *(float *)to = (float)json_number_value(v);
    return true;
}

static bool read_messages(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)key;
    a->messages = v;
    return messages_check(v, r);
}

static bool read_tools(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)key;
    a->tools = json_array_size(v) > 0 ? v : NULL;
    return tools_check(v, r);
}

// A call that must come, or none beside another, would need a grammar of calls.
static bool read_tool_choice(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    a->no_calls = json_text_is(v, "none");
    return a->no_calls || json_text_is(v, "auto") ||
           refuse_value(r, key, v, "\"auto\" or \"none\"");
}

static bool read_parallel(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)a;
    return json_is_true(v) || refuse_value(r, key, v, "true: as many calls as the model makes");
}

// What a client says of itself asks for nothing: nothing is kept of any request.
static bool read_label(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)a;
    const bool text = strcmp(key, "user") == 0;
    return (text ? json_is_string(v) : json_is_object(v)) ||
           refuse_value(r, key, v, text ? "a text" : "an object");
}

static bool read_store(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    (void)a;
    return json_is_false(v) || refuse_value(r, key, v, "false: no answer is kept");
}

// keys: those that v may have, up to a NULL.
static bool check_keys(const json_t *v, const char *param, const char *const keys[],
                       struct refusal *r)
{
    const char *key;
    json_t *field;
    json_object_foreach((json_t *)(uintptr_t)v, key, field)
    {
        char known[100] = "";
        size_t i = 0, at = 0;
        for (; keys[i] && strcmp(keys[i], key) != 0; i++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", keys[i]);
        if (!keys[i])
            return refuse(r, 400, param, "unsupported",
                          "\"%s\": \"%.60s\" is not supported, expected %s", param, key, known);
    }
    return true;
}

static bool read_format(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    static const char *const outer[] = {"type", "json_schema", NULL};
    static const char *const inner[] = {"schema", "name", "description", "strict", NULL};
    static const char expected[] =
        "{\"type\": \"text\"}, {\"type\": \"json_object\"} or {\"type\": \"json_schema\", "
        "\"json_schema\": {\"name\": ..., \"schema\": {...}}}";
    const json_t *type = json_object_get(v, "type");
    const json_t *of = json_object_get(v, "json_schema"), *schema = json_object_get(of, "schema");
    if (!type || (of && !json_text_is(type, "json_schema")))
        return refuse_value(r, key, v, expected);
    if (!check_keys(v, key, outer, r) || (of && !check_keys(of, "json_schema", inner, r)))
        return false;
    if (json_text_is(type, "text"))
        return true;
    if (json_text_is(type, "json_object"))
        a->schema = strdup("{\"type\":\"object\"}");
    else if (json_text_is(type, "json_schema") && json_is_object(schema))
        a->schema = json_written(schema, JSON_COMPACT);
    else
        return refuse_value(r, key, v, expected);
    return a->schema || refuse(r, 503, key, "out_of_memory", "no memory for the schema");
}

// ---- the whole

#define CHAT       (1u << ASK_CHAT)
#define COMPLETION (1u << ASK_COMPLETION)
#define ANSWER     (CHAT | COMPLETION)
#define TEMPLATE   (1u << ASK_TEMPLATE)
#define TOKENIZE   (1u << ASK_TOKENIZE)
#define DETOKENIZE (1u << ASK_DETOKENIZE)

static const struct {
    const char *key;
    unsigned kinds;
    const char *setting; // of sampler_numbers; NULL: read reads it
    bool (*read)(struct ask *a, const char *key, const json_t *v, struct refusal *r);
    const char *needed; // of the one that each kind must have: what is expected; NULL: any other's
} fields[] = {
    {"messages", CHAT | TEMPLATE, NULL, read_messages, "an array of one message or more"},
    {"prompt", COMPLETION, NULL, read_prompt, "one text"},
    {"content", TOKENIZE, NULL, read_prompt, "one text"},
    {"tokens", DETOKENIZE, NULL, read_tokens, "an array of token ids"},
    {"add_special", TOKENIZE, NULL, read_flag, NULL},
    {"parse_special", TOKENIZE, NULL, read_flag, NULL},
    {"model", ANSWER | TEMPLATE | TOKENIZE | DETOKENIZE, NULL, read_model, NULL},
    {"stream", ANSWER, NULL, read_flag, NULL},
    {"stream_options", ANSWER, NULL, read_stream_options, NULL},
    {"max_tokens", ANSWER, NULL, read_n_predict, NULL},
    {"max_completion_tokens", CHAT, NULL, read_n_predict, NULL},
    {"seed", ANSWER, NULL, read_seed, NULL},
    {"stop", ANSWER, NULL, read_stop, NULL},
    {"temperature", ANSWER, "temp", NULL, NULL},
    {"top_p", ANSWER, "top-p", NULL, NULL},
    {"top_k", ANSWER, "top-k", NULL, NULL},
    {"min_p", ANSWER, "min-p", NULL, NULL},
    {"presence_penalty", ANSWER, NULL, read_penalty, NULL},
    {"frequency_penalty", ANSWER, NULL, read_penalty, NULL},
    {"n", ANSWER, NULL, read_one, NULL},
    {"logprobs", CHAT, NULL, read_flag, NULL},
    {"top_logprobs", CHAT, NULL, read_top_logprobs, NULL},
    {"response_format", CHAT, NULL, read_format, NULL},
    {"tools", CHAT | TEMPLATE, NULL, read_tools, NULL},
    {"tool_choice", CHAT, NULL, read_tool_choice, NULL},
    {"parallel_tool_calls", CHAT, NULL, read_parallel, NULL},
    {"user", ANSWER, NULL, read_label, NULL},
    {"metadata", CHAT, NULL, read_label, NULL},
    {"store", CHAT, NULL, read_store, NULL},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool unknown(enum ask_kind kind, const char *key, struct refusal *r)
{
    char known[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].kinds >> kind & 1)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "",
                                   fields[i].key);
    return refuse(r, 400, key, "unsupported", "\"%.60s\" is not supported: expected %s", key,
                  known);
}

static bool read_field(struct ask *a, const char *key, const json_t *v, struct refusal *r)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!(fields[i].kinds >> a->kind & 1) || strcmp(fields[i].key, key) != 0)
            continue;
        return fields[i].setting ? read_setting(a, key, fields[i].setting, v, r)
                                 : fields[i].read(a, key, v, r);
    }
    return unknown(a->kind, key, r);
}

static size_t subject_of(enum ask_kind kind)
{
    size_t i = 0;
    while (!fields[i].needed || !(fields[i].kinds >> kind & 1))
        i++;
    return i;
}

const char *ask_subject(enum ask_kind kind)
{
    return fields[subject_of(kind)].key;
}

static bool check_together(const struct ask *a, struct refusal *r)
{
    const size_t subject = subject_of(a->kind);
    if (!json_object_get(a->object, fields[subject].key))
        return refuse(r, 400, fields[subject].key, "missing", "\"%s\" is missing: expected %s",
                      fields[subject].key, fields[subject].needed);
    if (a->include_usage && !a->stream)
        return refuse(r, 400, "stream_options", NULL,
                      "\"stream_options\" without \"stream\": expected \"stream\": true");
    if (a->top_logprobs > 0 && !a->logprobs)
        return refuse(r, 400, "top_logprobs", NULL,
                      "\"top_logprobs\" without \"logprobs\": expected \"logprobs\": true");
    if (a->schema && a->tools && !a->no_calls)
        return refuse(r, 400, "response_format", "unsupported",
                      "\"response_format\" with \"tools\" is not supported: expected one of them");
    return true;
}

bool ask_parse(struct ask *a, enum ask_kind kind, const struct ask_defaults *d, const char *text,
               size_t n, struct refusal *r)
{
    const char *key;
    json_t *v;
    json_error_t why;
    *a = (struct ask){.kind = kind,
                      .model = d->model,
                      .sampler = d->sampler,
                      .has_seed = d->seed_given,
                      .n_predict = d->n_predict};
    if (n == 0)
        return refuse(r, 400, NULL, NULL, "found an empty body, expected a JSON object: {...}");
    a->object = json_read(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!a->object && json_no_memory(&why))
        return refuse(r, 503, NULL, "out_of_memory", "no memory for the request");
    if (!a->object)
        return refuse(r, 400, NULL, NULL,
                      "the body cannot be read as JSON: line %d, column %d: %s%s", why.line,
                      why.column, why.text, json_expected(&why));
    if (!json_is_object(a->object))
        return refuse(r, 400, NULL, NULL, "the body is JSON, but no object: expected {...}");
    json_drop_nulls(a->object);
    json_object_foreach(a->object, key, v)
    {
        if (!read_field(a, key, v, r))
            return false;
    }
    return check_together(a, r);
}

void ask_release(struct ask *a)
{
    json_decref(a->object);
    free(a->schema);
    *a = (struct ask){0};
}
