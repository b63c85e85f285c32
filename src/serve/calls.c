#include "serve/calls.h"

#include <stdlib.h>
#include <string.h>

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

// {"name": ..., "arguments" or "parameters": {...}} as a call; call is taken. False: it is none.
static bool add_call(json_t *calls, json_t *call)
{
    json_t *name = json_object_get(call, "name"), *args = json_object_get(call, "arguments");
    args = args ? args : json_object_get(call, "parameters");
    const bool is_one = json_is_string(name) && json_is_object(args);
    char *text = is_one ? json_dumps(args, JSON_COMPACT) : NULL;
    const bool ok = text && json_array_append_new(calls, json_pack("{s:O, s:s}", "name", name,
                                                                   "arguments", text)) == 0;
    free(text);
    json_decref(call);
    return ok;
}

static json_t *load(const char *s, size_t n)
{
    json_error_t why;
    return json_loadb(s, n, JSON_REJECT_DUPLICATES, &why);
}

static bool read_list(json_t *calls, const char *s, size_t n)
{
    json_t *list = load(s, n);
    bool ok = json_array_size(list) > 0;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = add_call(calls, json_incref(json_array_get(list, i)));
    json_decref(list);
    return ok;
}

static bool read_named(const struct calls_form *f, json_t *calls, const char *s, size_t n)
{
    const char *mark = memmem(s, n, f->close, strlen(f->close));
    if (!mark)
        return false;
    const char *args = mark + strlen(f->close),
               *id = memmem(s, (size_t)(mark - s), CALL_ID, strlen(CALL_ID));
    json_t *object = load(args, n - (size_t)(args - s));
    return add_call(calls, json_pack("{s:s#, s:o}", "name", s, (int)((id ? id : mark) - s),
                                     "arguments", object ? object : json_null()));
}

// One mark after the other, with nothing but white space between.
static bool read_marked(const struct calls_form *f, json_t *calls, const char *s, size_t n)
{
    const size_t n_open = strlen(f->open), n_close = f->close ? strlen(f->close) : 0;
    while (n > 0) {
        if (n < n_open || memcmp(s, f->open, n_open) != 0)
            return false;
        s += n_open;
        n -= n_open;
        const bool between = f->body == BODY_BETWEEN;
        const char *next = memmem(s, n, between ? f->close : f->open, between ? n_close : n_open);
        const size_t part = next ? (size_t)(next - s) : n;
        if (!(between                 ? add_call(calls, load(s, part))
              : f->body == BODY_NAMED ? read_named(f, calls, s, part)
                                      : read_list(calls, s, part)))
            return false;
        const size_t used = part + (between && next ? n_close : 0);
        s += used;
        n -= used;
        while (n > 0 && is_space(*s))
            s++, n--;
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
    if (ok && c->form->body == BODY_BARE) {
        const size_t n_open = strlen(c->form->open);
        const bool marked = n > n_open && memcmp(s, c->form->open, n_open) == 0;
        ok = add_call(calls, load(s + (marked ? n_open : 0), n - (marked ? n_open : 0)));
    } else if (ok) {
        ok = read_marked(c->form, calls, s, n);
    }
    if (ok && json_array_size(calls) > 0)
        return calls;
    json_decref(calls);
    buf_append(out, c->held.data, c->held.len);
    return NULL;
}
