// libFuzzer target: what clients of `hokku serve` send, and the calls of tools that a model writes.
// An input is a byte, then a request's body of one of the kinds, or an answer's text.
#include <stdlib.h>
#include <string.h>

#include "serve/ask.h"
#include "serve/calls.h"
#include "serve/messages.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        abort();
}

// A refusal says something, in JSON that says the same.
static void check_refusal(const struct refusal *r)
{
    struct buf text = {0};
    json_error_t why;
    require(r->status >= 400 && r->status < 600 && r->text[0]);
    require(refusal_json(r, false, &text));
    json_t *j = json_loadb(text.data, text.len, 0, &why);
    require(json_is_string(json_object_get(json_object_get(j, "error"), "message")));
    json_decref(j);
    buf_release(&text);
}

static void check_ask(const struct ask *a)
{
    require(a->n_stop <= ASK_MAX_STOP && a->top_logprobs <= 64);
    require(a->kind != ASK_CHAT || json_array_size(a->messages) > 0);
    for (size_t i = 0; i < json_array_size(a->messages); i++) {
        const json_t *m = json_array_get(a->messages, i);
        struct buf text = {0};
        require(message_role_name(m) && message_content(m, &text));
        json_t *fields = message_has_fields(m) ? message_fields(m) : json_object();
        require(json_is_object(fields));
        json_decref(fields);
        buf_release(&text);
    }
}

// However an answer falls into pieces, what is told of it is the same, and nothing is lost.
static void read_calls(const struct calls_form *form, const char *text, size_t n)
{
    struct buf said[2] = {{0}, {0}};
    json_t *calls[2];
    for (int k = 0; k < 2; k++) {
        struct calls c;
        calls_init(&c, form);
        for (size_t at = 0, piece; at < n; at += piece) {
            piece = k ? 1 + (at * 7 + n) % 5 : n;
            piece = piece < n - at ? piece : n - at;
            require(calls_push(&c, text + at, piece, &said[k]));
        }
        calls[k] = calls_end(&c, &said[k]);
        calls_release(&c);
    }
    require(said[0].len == said[1].len && json_equal(calls[0], calls[1]) == (calls[0] != NULL));
    require(said[0].len == 0 || memcmp(said[0].data, said[1].data, said[0].len) == 0);
    require(calls[0] || said[0].len == n);
    for (int k = 0; k < 2; k++) {
        json_decref(calls[k]);
        buf_release(&said[k]);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    static const char *const taught[] = {"<tool_call> \"arguments\"", "[TOOL_CALLS] [ARGS]",
                                         "[TOOL_CALLS] tool_calls", "\"parameters\" ipython"};
    const struct ask_defaults d = {.model = "m", .sampler = sampler_defaults, .n_predict = -1};
    const char *text = (const char *)data + 1;
    if (n == 0)
        return 0;
    n--;
    if (data[0] >= 128) {
        const char *source = taught[data[0] % 4];
        const struct calls_form *form = calls_form_of(source, strlen(source));
        require(form);
        read_calls(form, text, n);
        return 0;
    }
    struct ask a = {0};
    struct refusal r = {0};
    size_t cost;
    if (!ask_cost(text, n, &cost, &r))
        check_refusal(&r);
    else if (ask_parse(&a, (enum ask_kind)(data[0] % 5), &d, text, n, &r))
        check_ask(&a);
    else
        check_refusal(&r);
    ask_release(&a);
    return 0;
}
