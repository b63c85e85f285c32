#include "serve/calls.h"

#include <string.h>

#include "base/json_scan.h"
#include "base/json_text.h"

// ---- forms

// How the calls from a mark on are written.
enum body {
    BODY_BETWEEN, // each between the mark and another: {"name", "arguments"}
    BODY_LIST,    // [{"name", "arguments"}, ...]
    BODY_NAMED,   // each after the mark: name, perhaps [CALL_ID] and an id, another mark, the
                  // arguments
    BODY_BARE,    // the answer is one: {"name", "parameters"}
};

struct calls_form {
    const char *open, *close; // marks
    enum body body;
    const char *taught[2]; // what a template says that teaches it; both
    const char *other;     // but not this, which is another form with the same mark
};

static const struct calls_form forms[] = {
    {"<tool_call>", "</tool_call>", BODY_BETWEEN, {"<tool_call>", "\"arguments\""}, "<function="},
    {"[TOOL_CALLS]", "[ARGS]", BODY_NAMED, {"[TOOL_CALLS]", "[ARGS]"}, NULL},
    {"[TOOL_CALLS]", NULL, BODY_LIST, {"[TOOL_CALLS]", "tool_calls"}, NULL},
    {"<|python_tag|>", NULL, BODY_BARE, {"\"parameters\"", "ipython"}, NULL},
};

static bool has(const char *source, size_t n, const char *word)
{
    return memmem(source, n, word, strlen(word)) != NULL;
}

const struct calls_form *calls_form_of(const char *source, size_t n)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct calls_form *f = &forms[i];
        if (has(source, n, f->taught[0]) && has(source, n, f->taught[1]) &&
            !(f->other && has(source, n, f->other)))
            return f;
    }
    return NULL;
}

static const char CALL_ID[] = "[CALL_ID]";

// ---- the stream

void calls_init(struct calls *c, const struct calls_form *form)
{
    *c = (struct calls){.form = form};
}

void calls_release(struct calls *c)
{
    buf_release(&c->held);
    *c = (struct calls){0};
}

bool calls_token(struct calls *c, const struct tokenizer *t, int32_t id)
{
    struct buf text = {0};
    bool ok = true;
    if (!c->form || tokenizer_kind(t, id) != TOKEN_CONTROL || tokenizer_is_end(t, id))
        return true;
    ok = tokenizer_decode_one(t, id, true, &text);
    const bool open = strcmp(buf_str(&text), c->form->open) == 0;
    if (ok && (open || (c->form->body == BODY_NAMED && c->state == CALLS_INSIDE))) {
        c->state = CALLS_INSIDE;
        ok = buf_append(&c->held, text.data, text.len);
    }
    buf_release(&text);
    return ok;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool calls_push(struct calls *c, const char *text, size_t n, struct buf *out)
{
    if (!c->form)
        return buf_append(out, text, n);
    if (!buf_append(&c->held, text, n))
        return false;
    const char *s = c->held.data;
    size_t len = c->held.len, safe = len, begin = 0;
    while (begin < len && is_space(s[begin]))
        begin++;
    if (c->state == CALLS_START && begin < len)
        c->state = c->form->body == BODY_BARE && s[begin] == '{' ? CALLS_INSIDE : CALLS_TEXT;
    if (c->state != CALLS_TEXT)
        return true;
    // White space before a mark goes with it.
    const char *open = c->form->open, *at = memmem(s, len, open, strlen(open));
    if (at) {
        c->state = CALLS_INSIDE;
        safe = (size_t)(at - s);
    } else {
        for (size_t k = strlen(open) < len ? strlen(open) : len; k > 0; k--)
            if (memcmp(s + len - k, open, k) == 0) {
                safe = len - k;
                break;
            }
    }
    while (safe > 0 && is_space(s[safe - 1]))
        safe--;
    if (!buf_append(out, s, safe))
        return false;
    memmove(c->held.data, s + safe, len - safe);
    c->held.len -= safe;
    return true;
}

// ---- reading

// {"name": ..., "arguments" or "parameters": {...}}, each once.
struct call {
    struct json_span name, arguments, parameters;
};

static bool is_key(struct json_span key, const char *name)
{
    json_error_t why;
    json_t *text = json_read(key.s, key.n, JSON_DECODE_ANY, &why);
    const bool is = json_is_string(text) && strcmp(json_string_value(text), name) == 0;
    json_decref(text);
    return is;
}

static bool put_member(void *user, struct json_span key, struct json_span value)
{
    struct call *call = user;
    struct json_span *to = is_key(key, "name")         ? &call->name
                           : is_key(key, "arguments")  ? &call->arguments
                           : is_key(key, "parameters") ? &call->parameters
                                                       : NULL;
    if (to && to->s)
        return false;
    if (to)
        *to = value;
    return true;
}

// name is taken. The arguments are what the model wrote, to the letter. False: it is no call.
static bool add(json_t *calls, json_t *name, struct json_span arguments)
{
    json_t *text = arguments.n > 0 && *arguments.s == '{' && json_is_string(name)
                       ? json_stringn(arguments.s, arguments.n)
                       : NULL;
    const bool ok = text && json_array_append_new(calls, json_pack("{s:O, s:O}", "name", name,
                                                                   "arguments", text)) == 0;
    json_decref(text);
    json_decref(name);
    return ok;
}

static bool add_call(json_t *calls, struct json_span text)
{
    struct call call = {0};
    if (!json_scan_members(text, put_member, &call) || !call.name.s)
        return false;
    json_error_t why;
    return add(calls, json_read(call.name.s, call.name.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why),
               call.arguments.s ? call.arguments : call.parameters);
}

static bool read_one(json_t *calls, struct json_span *rest)
{
    struct json_span object;
    return json_scan_value(rest, &object) && add_call(calls, object);
}

static bool read_list(json_t *calls, struct json_span *rest)
{
    struct json_span list, value;
    if (!json_scan_value(rest, &list) || *list.s != '[')
        return false;
    do { // over "[" or ","; the last one leaves the "]"
        list = (struct json_span){list.s + 1, list.n - 1};
        if (!json_scan_value(&list, &value) || !add_call(calls, value))
            return false;
    } while (*list.s == ',');
    return true;
}

static bool read_named(const struct calls_form *f, json_t *calls, struct json_span *rest)
{
    const char *s = rest->s, *mark = memmem(s, rest->n, f->close, strlen(f->close));
    struct json_span args;
    if (!mark || memmem(s, (size_t)(mark - s), f->open, strlen(f->open)))
        return false;
    const char *id = memmem(s, (size_t)(mark - s), CALL_ID, strlen(CALL_ID)),
               *behind = mark + strlen(f->close);
    *rest = (struct json_span){behind, rest->n - (size_t)(behind - s)};
    return json_scan_value(rest, &args) &&
           add(calls, json_stringn(s, (size_t)((id ? id : mark) - s)), args);
}

static bool take(struct json_span *rest, const char *mark)
{
    const size_t n = strlen(mark);
    if (rest->n < n || memcmp(rest->s, mark, n) != 0)
        return false;
    *rest = (struct json_span){rest->s + n, rest->n - n};
    while (rest->n > 0 && is_space(*rest->s))
        *rest = (struct json_span){rest->s + 1, rest->n - 1};
    return true;
}

// One mark after the other, with nothing but white space between. Where a call ends its JSON says:
// a text in it may have a mark.
static bool read_marked(const struct calls_form *f, json_t *calls, struct json_span rest)
{
    while (rest.n > 0) {
        const bool between = f->body == BODY_BETWEEN;
        if (!take(&rest, f->open) || !(between                 ? read_one(calls, &rest)
                                       : f->body == BODY_NAMED ? read_named(f, calls, &rest)
                                                               : read_list(calls, &rest)))
            return false;
        if (between && rest.n > 0 && !take(&rest, f->close))
            return false;
    }
    return true;
}

json_t *calls_end(struct calls *c, struct buf *out)
{
    json_t *calls = json_array();
    const char *s = buf_str(&c->held);
    size_t n = c->held.len;
    bool ok = c->state == CALLS_INSIDE && calls;
    while (n > 0 && is_space(*s))
        s++, n--;
    while (n > 0 && is_space(s[n - 1]))
        n--;
    struct json_span rest = {s, n};
    if (ok && c->form->body == BODY_BARE) {
        take(&rest, c->form->open);
        ok = read_one(calls, &rest) && rest.n == 0;
    } else if (ok) {
        ok = read_marked(c->form, calls, rest);
    }
    if (ok && json_array_size(calls) > 0)
        return calls;
    json_decref(calls);
    buf_append(out, c->held.data, c->held.len);
    return NULL;
}
