#include "tools/render.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/json_text.h"
#include "jinja/from_json.h"

// "2026-01-02T03:04:05" (the time may be left out, or have a fraction) as local time.
static bool parse_date(const char *text, int64_t *now)
{
    struct tm tm = {.tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && (*end == 'T' || *end == ' '))
        end = strptime(end + 1, "%H:%M:%S", &tm);
    if (end && *end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    if (!end || *end)
        return false;
    tm.tm_isdst = -1;
    *now = (int64_t)mktime(&tm);
    return true;
}

static bool read_clock(const json_t *v, int64_t *now, struct error *err)
{
    if (!v)
        return true;
    if (json_is_integer(v)) {
        *now = json_integer_value(v);
        return true;
    }
    if (json_is_real(v) && fabs(json_real_value(v)) < 1e15) {
        *now = (int64_t)floor(json_real_value(v));
        return true;
    }
    if (json_is_string(v) && parse_date(json_string_value(v), now))
        return true;
    return error_set(err, ERR_FAIL,
                     "\"now\" must be a date such as \"2026-01-02T03:04:05\" or seconds since the "
                     "epoch%s%.40s%s",
                     json_is_string(v) ? ", found \"" : "",
                     json_is_string(v) ? json_string_value(v) : "", json_is_string(v) ? "\"" : "");
}

bool tool_render(const struct render_text *tmpl, const struct render_text *context,
                 int64_t default_now, const struct cancel *cancel, struct buf *out,
                 struct error *err)
{
    bool ok = false;
    struct template_output result = {0};
    json_error_t e;
    int64_t now = default_now;
    struct template *t = NULL;
    json_t *variables = json_read(context->data, context->n, JSON_ALLOW_NUL, &e);
    if (!variables && json_no_memory(&e)) {
        error_oom(err, "the template's variables", context->n);
        goto done;
    }
    if (!variables) {
        error_set(err, ERR_FAIL, "%s: the template's variables: line %d, column %d: %s%s",
                  context->name, e.line, e.column, e.text, json_expected(&e));
        goto done;
    }
    if (!json_is_object(variables)) {
        error_set(err, ERR_FAIL, "%s: the template's variables must be a JSON object",
                  context->name);
        goto done;
    }
    if (!read_clock(json_object_get(variables, "now"), &now, err)) {
        error_prefix(err, "%s", context->name);
        goto done;
    }
    t = template_parse(tmpl->data, tmpl->n, err);
    if (!t) {
        error_prefix(err, "%s", tmpl->name);
        goto done;
    }
    bool raised;
    const struct template_limits limits = {.cancel = cancel};
    if (!template_render_json(t, variables, now, &limits, &result, &raised, err)) {
        if (!raised)
            error_prefix(err, "%s", tmpl->name);
        goto done;
    }
    ok = buf_append(out, buf_str(&result.text), result.text.len) ||
         error_oom(err, "the rendered prompt", result.text.len);
done:
    template_output_release(&result);
    template_free(t);
    json_decref(variables);
    return ok;
}
