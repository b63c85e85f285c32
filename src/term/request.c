#include "term/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "dialog/content.h"
#include "engine/settings.h"

static bool wrong(const char *key, const json_t *found, const char *expected, struct error *err)
{
    char *text = json_line(found, 0);
    error_set(err, ERR_USAGE, "\"%s\": found %.80s, expected %s", key, text ? text : "no value",
              expected);
    free(text);
    return false;
}

static bool read_prompt(struct request *r, const char *key, const json_t *v, struct error *err)
{
    if (!json_is_string(v))
        return wrong(key, v, "a text", err);
    r->prompt = json_string_value(v);
    r->n_prompt = json_string_length(v);
    return true;
}

// A message with parts becomes one with their text.
static bool read_content(json_t *message, struct error *err)
{
    const json_t *found;
    const char *expected;
    struct buf text = {0};
    json_t *v = json_object_get(message, "content");
    if (!content_check(v, &found, &expected))
        return wrong("content", found, expected, err);
    if (json_is_string(v))
        return true;
    const bool ok =
        (content_text(v, &text) &&
         json_object_set_new(message, "content", json_stringn(buf_str(&text), text.len)) == 0) ||
        error_oom(err, "a message", text.len);
    buf_release(&text);
    return ok;
}

static bool read_message(json_t *v, bool first, struct error *err)
{
    const char *key;
    json_t *field;
    const json_t *role = json_object_get(v, "role");
    if (!json_is_object(v))
        return wrong("messages", v, "objects with \"role\" and \"content\"", err);
    json_object_foreach(v, key, field)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0)
            return error_set(err, ERR_USAGE,
                             "a message with \"%.80s\": expected \"role\" and \"content\" alone",
                             key);
    }
    const bool newer = json_text_is(role, "developer");
    if (!json_text_is(role, "user") && !json_text_is(role, "assistant") &&
        !(first && (newer || json_text_is(role, "system"))))
        return wrong("role", role,
                     "\"user\", \"assistant\" or, first of all, \"system\" or \"developer\"", err);
    if (newer && json_object_set_new(v, "role", json_string("system")) != 0)
        return error_oom(err, "a message", strlen("system"));
    return read_content(v, err);
}

static bool read_messages(struct request *r, const char *key, const json_t *v, struct error *err)
{
    const size_t n = json_array_size(v);
    if (n == 0)
        return wrong(key, v, "an array of one message or more", err);
    for (size_t i = 0; i < n; i++)
        if (!read_message(json_array_get(v, i), i == 0, err))
            return error_prefix(err, "message %zu", i + 1);
    r->messages = v;
    if (strcmp(request_role(r, n - 1), "user") != 0)
        return error_set(err, ERR_USAGE,
                         "the last message is the %s's: expected a user's, which is answered",
                         request_role(r, n - 1));
    return true;
}

static bool read_seed(struct request *r, const char *key, const json_t *v, struct error *err)
{
    if (!json_read_u64(v, &r->seed))
        return wrong(key, v, JSON_U64_EXPECTED, err);
    r->has_seed = true;
    return true;
}

static bool read_n_predict(struct request *r, const char *key, const json_t *v, struct error *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < -1)
        return wrong(key, v, "a whole number, -1 or more", err);
    if (r->has_n_predict)
        return error_set(err, ERR_USAGE, "\"max_tokens\" and \"n_predict\": expected one of them");
    r->has_n_predict = true;
    r->n_predict = json_integer_value(v);
    return true;
}

static bool read_temp(struct request *r, const char *key, const json_t *v, struct error *err)
{
    const struct sampler_number *s = &sampler_numbers[SAMPLER_TEMP];
    char range[FORMAT_TEXT];
    const char *expected = json_is_number(v)
                               ? sampler_number_expects(s, json_number_value(v), range)
                               : format_range(range, s->least, s->most);
    if (expected)
        return wrong(key, v, expected, err);
    r->has_temp = true;
    r->temp = (float)json_number_value(v);
    return true;
}

static const struct {
    const char *key;
    bool (*read)(struct request *r, const char *key, const json_t *v, struct error *err);
} fields[] = {
    {"prompt", read_prompt},        {"messages", read_messages},   {"seed", read_seed},
    {"max_tokens", read_n_predict}, {"n_predict", read_n_predict}, {"temperature", read_temp},
};

#define OF_A_TEXT "; a text that begins so is given as {\"prompt\": TEXT}"

static bool read_field(struct request *r, const char *key, const json_t *v, struct error *err)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].key, key) == 0)
            return fields[i].read(r, key, v, err);
    return error_set(err, ERR_USAGE,
                     "unknown key \"%.80s\": expected prompt or messages, seed, max_tokens, "
                     "temperature" OF_A_TEXT,
                     key);
}

static size_t skip_blanks(const char *text, size_t n, size_t at)
{
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r'))
        at++;
    return at;
}

static bool is_key(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strlen(fields[i].key) == n && memcmp(fields[i].key, name, n) == 0)
            return true;
    return false;
}

// Whether a line is meant as an object: a brace, a name in quotes, perhaps another language's, and
// a colon, or all that there is of these in a line that is cut off; or a name that is one of ours,
// whatever follows.
static bool is_meant_as_one(const char *text, size_t n)
{
    size_t at = skip_blanks(text, n, 0);
    if (at == n || text[at] != '{')
        return false;
    at = skip_blanks(text, n, at + 1);
    if (at == n || (text[at] != '"' && text[at] != '\''))
        return false;
    const char quote = text[at++];
    const size_t name = at;
    while (at < n && text[at] != quote)
        at += text[at] == '\\' ? 2 : 1;
    if (at >= n)
        return quote == '"'; // (the other one is an apostrophe)
    if (is_key(text + name, at - name))
        return true;
    at = skip_blanks(text, n, at + 1);
    return at == n || text[at] == ':';
}

bool request_parse(struct request *r, const char *text, size_t n, struct error *err)
{
    const char *key;
    json_t *v;
    json_error_t why;
    *r = (struct request){0};
    if (!is_meant_as_one(text, n))
        return true;
    r->object = json_read(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!r->object && json_no_memory(&why))
        return error_oom(err, "a request", n);
    if (!r->object)
        return error_set(err, ERR_USAGE, "column %d of a JSON object: %s%s" OF_A_TEXT, why.column,
                         why.text, json_expected(&why));
    json_drop_nulls(r->object);
    json_object_foreach(r->object, key, v)
    {
        if (!read_field(r, key, v, err))
            return false;
    }
    if (!r->prompt == !r->messages)
        return error_set(err, ERR_USAGE,
                         "found %s \"prompt\" %s \"messages\": expected one of them",
                         r->prompt ? "both" : "neither", r->prompt ? "and" : "nor");
    return true;
}

void request_release(struct request *r)
{
    json_decref(r->object);
    *r = (struct request){0};
}

size_t request_n_messages(const struct request *r)
{
    return json_array_size(r->messages);
}

const char *request_role(const struct request *r, size_t i)
{
    return json_string_value(json_object_get(json_array_get(r->messages, i), "role"));
}

const char *request_content(const struct request *r, size_t i, size_t *n)
{
    const json_t *v = json_object_get(json_array_get(r->messages, i), "content");
    *n = json_string_length(v);
    return json_string_value(v);
}
