#include "serve/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "serve/reply.h"

bool refuse(struct refusal *r, unsigned status, const char *param, const char *code,
            const char *fmt, ...)
{
    va_list ap;
    *r = (struct refusal){.status = status, .code = code};
    if (param)
        snprintf(r->param, sizeof r->param, "%s", param);
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, ap);
    va_end(ap);
    return false;
}

bool refuse_value(struct refusal *r, const char *param, const json_t *found, const char *expected)
{
    char *text = found ? json_line(found, 0) : NULL;
    refuse(r, 400, param, "invalid_value", "\"%s\": found %.120s%s, expected %s", param,
           text ? text : "nothing", text && strlen(text) > 120 ? "..." : "", expected);
    free(text);
    return false;
}

bool refuse_for(struct refusal *r, const char *param, const struct error *why)
{
    switch (why->code) {
    case ERR_CONTEXT:
        return refuse(r, 400, param, "context_length_exceeded", "%s", why->text);
    case ERR_USAGE:
        return refuse(r, 400, param, NULL, "%s", why->text);
    case ERR_MEMORY:
        return refuse(r, 503, NULL, "out_of_memory", "%s", why->text);
    case ERR_INTERRUPTED:
        return refuse(r, 503, NULL, "shutting_down", "the server ends: ask another one");
    default:
        return refuse(r, 500, NULL, NULL, "%s", why->text);
    }
}

static const char *type_of(unsigned status)
{
    return status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

bool refusal_json(const struct refusal *r, bool event, struct buf *out)
{
    struct buf text = {0}, param = {0};
    buf_append_utf8(&text, r->text, strlen(r->text));
    buf_append_utf8(&param, r->param, strlen(r->param));
    json_t *j =
        json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", buf_str(&text), "type",
                  type_of(r->status), "param", param.len ? param.data : NULL, "code", r->code);
    const bool ok = reply_json(j, event, out);
    buf_release(&text);
    buf_release(&param);
    return ok;
}
