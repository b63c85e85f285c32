#include "serve/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "dialog/content.h"
#include "serve/ask.h"

// What a message may have, by its role.
enum { SYSTEM = 1, USER = 2, ASSISTANT = 4, TOOL = 8, ALL = 15 };
static const struct {
    const char *name;
    unsigned roles;
} fields[] = {
    {"role", ALL},
    {"content", ALL},
    {"reasoning_content", ASSISTANT},
    {"tool_calls", ASSISTANT},
    {"tool_call_id", TOOL},
    {"name", TOOL},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

const char *message_role_name(const json_t *message)
{
    const json_t *role = json_object_get(message, "role");
    return json_text_is(role, "developer") ? "system" : json_string_value(role);
}

static unsigned role_of(const json_t *message)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    const json_t *role = json_object_get(message, "role");
    if (json_text_is(role, "developer"))
        return SYSTEM;
    for (unsigned i = 0; i < 4; i++)
        if (json_text_is(role, names[i]))
            return 1u << i;
    return 0;
}

bool message_content(const json_t *message, struct buf *out)
{
    return content_text(json_object_get(message, "content"), out);
}

static const json_t *arguments_of(const json_t *call)
{
    return json_object_get(json_object_get(call, "function"), "arguments");
}

// The arguments of a call, which are JSON in a text, as the object that templates expect. (A model
// wrote them, who may say a key twice: the last one counts, as in Python.)
static json_t *load_arguments(const json_t *call, bool *no_memory)
{
    const json_t *text = arguments_of(call);
    json_error_t why = {0};
    json_t *v = json_is_string(text) ? json_read(json_string_value(text), json_string_length(text),
                                                 JSON_ALLOW_NUL, &why)
                                     : NULL;
    *no_memory = !v && json_no_memory(&why);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

// ---- checks

static bool check_content(const char *param, const json_t *v, struct refusal *r)
{
    const char *expected;
    return content_check(v, &v, &expected) || refuse_value(r, param, v, expected);
}

static bool check_calls(const char *param, const json_t *v, struct refusal *r)
{
    static const char expected[] = "{\"id\", \"type\": \"function\", \"function\": {\"name\", "
                                   "\"arguments\": an object's JSON in a text}}";
    if (!json_is_array(v) || json_array_size(v) == 0)
        return refuse_value(r, param, v, "an array of calls");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *call = json_array_get(v, i), *f = json_object_get(call, "function");
        bool no_memory;
        json_t *arguments = load_arguments(call, &no_memory);
        const bool ok = arguments && json_is_string(json_object_get(call, "id")) &&
                        json_text_is(json_object_get(call, "type"), "function") &&
                        json_is_string(json_object_get(f, "name")) && json_object_size(f) == 2 &&
                        json_object_size(call) <= 4; // ("index", of a stream)
        json_decref(arguments);
        if (no_memory)
            return refuse(r, 503, param, "out_of_memory", "no memory for the arguments of a call");
        if (!ok)
            return refuse_value(r, param, call, expected);
    }
    return true;
}

// Arguments are JSON of their own, which the text of the body hides: its limits hold for all of
// them together, before any is read.
static bool check_arguments(const json_t *messages, struct refusal *r)
{
    size_t n_all = 0, n;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *text = arguments_of(json_array_get(calls, k));
            char param[64];
            snprintf(param, sizeof param, "messages[%zu].tool_calls", i);
            if (!json_is_string(text))
                continue;
            if (!ask_count(json_string_value(text), json_string_length(text), &n))
                return refuse(r, 400, param, NULL,
                              "%s: the JSON of call %zu's arguments is nested more than %d deep at "
                              "byte %zu: expected less",
                              param, k, ASK_MAX_DEPTH, n);
            n_all += n;
            if (n_all > ASK_MAX_VALUES)
                return refuse(r, 400, param, NULL,
                              "%s: the arguments up to call %zu's have %zu values: expected at "
                              "most %d in all messages",
                              param, k, n_all, ASK_MAX_VALUES);
        }
    }
    return true;
}

static bool check_field(const json_t *message, const char *key, const json_t *v, size_t i,
                        struct refusal *r)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].%.32s", i, key);
    size_t k = 0;
    while (k < N_FIELDS && strcmp(fields[k].name, key) != 0)
        k++;
    if (strcmp(key, "content") == 0)
        return check_content(param, v, r);
    if (strcmp(key, "annotations") == 0 && role_of(message) == ASSISTANT && json_is_array(v) &&
        json_array_size(v) == 0) // OpenAI's own answers have such lists of links
        return true;
    if (k == N_FIELDS || !(fields[k].roles & role_of(message)))
        return refuse(r, 400, param, "unsupported",
                      "messages[%zu]: found \"%.60s\" in a message of role %s, expected \"role\", "
                      "\"content\"%s",
                      i, key, message_role_name(message),
                      role_of(message) == ASSISTANT ? ", \"reasoning_content\", \"tool_calls\""
                      : role_of(message) == TOOL    ? ", \"tool_call_id\", \"name\""
                                                    : "");
    if (strcmp(key, "tool_calls") == 0)
        return check_calls(param, v, r);
    return json_is_string(v) || refuse_value(r, param, v, "a text");
}

static bool check_message(const json_t *m, size_t i, struct refusal *r)
{
    const char *key;
    json_t *field;
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(m))
        return refuse_value(r, param, m, "an object with \"role\" and \"content\"");
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!role_of(m) || (role_of(m) == SYSTEM && i > 0))
        return refuse_value(r, param, json_object_get(m, "role"),
                            "\"user\", \"assistant\", \"tool\" or, first of all, \"system\" or "
                            "\"developer\"");
    json_object_foreach((json_t *)(uintptr_t)m, key, field)
    {
        if (!check_field(m, key, field, i, r))
            return false;
    }
    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (!json_object_get(m, "content") && !json_object_get(m, "tool_calls"))
        return refuse_value(r, param, NULL, "a text, or an array of parts");
    return true;
}

bool messages_check(const json_t *messages, struct refusal *r)
{
    const size_t n = json_array_size(messages);
    if (n == 0)
        return refuse_value(r, "messages", messages, "an array of one message or more");
    if (!check_arguments(messages, r))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!check_message(json_array_get(messages, i), i, r))
            return false;
    const json_t *last = json_array_get(messages, n - 1);
    return (role_of(last) & (USER | TOOL)) ||
           refuse(r, 400, "messages", "invalid_value",
                  "\"messages\": the last one is the %s's, expected a user's or a tool's, which is "
                  "answered",
                  message_role_name(last));
}

bool tools_check(const json_t *tools, struct refusal *r)
{
    static const char expected[] = "{\"type\": \"function\", \"function\": {\"name\", "
                                   "\"description\", \"parameters\": {...}}}";
    if (!json_is_array(tools))
        return refuse_value(r, "tools", tools, "an array of tools");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *f = json_object_get(tool, "function");
        const json_t *said = json_object_get(f, "description"),
                     *p = json_object_get(f, "parameters"), *strict = json_object_get(f, "strict");
        const size_t n_known = 1 + (said != NULL) + (p != NULL) + (strict != NULL);
        if (strict && !json_is_false(strict))
            return refuse_value(r, "tools", tool,
                                "no \"strict\": what a model calls is not held to a schema");
        if (!json_text_is(json_object_get(tool, "type"), "function") ||
            json_object_size(tool) != 2 || !json_is_string(json_object_get(f, "name")) ||
            json_object_size(f) != n_known || (said && !json_is_string(said)) ||
            (p && !json_is_object(p)))
            return refuse_value(r, "tools", tool, expected);
        if (json_string_length(json_object_get(f, "name")) == 0)
            return refuse_value(r, "tools", tool, "a \"name\" that is not empty");
    }
    return true;
}

// ---- for templates

bool message_has_fields(const json_t *message)
{
    return role_of(message) == TOOL || json_is_array(json_object_get(message, "tool_calls")) ||
           json_is_string(json_object_get(message, "reasoning_content"));
}

static json_t *template_calls(const json_t *calls)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        bool no_memory;
        json_t *c = json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", json_object_get(call, "id"), "type",
                              "function", "function", "name",
                              json_object_get(json_object_get(call, "function"), "name"),
                              "arguments", load_arguments(call, &no_memory));
        if (json_array_append_new(out, c) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

json_t *message_fields(const json_t *message)
{
    struct buf text = {0};
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *m = NULL;
    bool ok = true;
    if (message_content(message, &text))
        m = json_pack("{s:s, s:s#}", "role", message_role_name(message), "content", buf_str(&text),
                      (int)text.len);
    for (size_t i = 2; m && i < N_FIELDS; i++) {
        json_t *v = json_object_get(message, fields[i].name);
        ok &= !json_is_string(v) || json_object_set(m, fields[i].name, v) == 0;
    }
    if (m && json_is_array(calls))
        ok &= json_object_set_new(m, "tool_calls", template_calls(calls)) == 0;
    buf_release(&text);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}
