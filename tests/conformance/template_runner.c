// Renders templates for the Python tests beside it. One JSON object per line on stdin:
//   {"template": text, "context": object, "now": seconds, "limits": {...}}
// and one per line on stdout:
//   {"text": text, "spans": [[begin, end, origin], ...]} or {"error": text, "raised": bool}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "jinja/from_json.h"

static json_t *failure(const struct error *err, bool raised)
{
    return json_pack("{s:s, s:b}", "error", err->text, "raised", raised);
}

static json_t *render(const json_t *request)
{
    struct error err = {0};
    const json_t *source = json_object_get(request, "template");
    struct template *t =
        template_parse(json_string_value(source), json_string_length(source), &err);
    if (!t)
        return failure(&err, false);
    const json_t *l = json_object_get(request, "limits");
    struct template_limits limits = {
        .max_steps = (uint64_t)json_integer_value(json_object_get(l, "steps")),
        .max_output = (size_t)json_integer_value(json_object_get(l, "output")),
        .max_memory = (size_t)json_integer_value(json_object_get(l, "memory")),
        .max_depth = (uint32_t)json_integer_value(json_object_get(l, "depth")),
    };
    struct template_output out;
    bool raised;
    json_t *answer;
    if (template_render_json(t, json_object_get(request, "context"),
                             json_integer_value(json_object_get(request, "now")), &limits, &out,
                             &raised, &err)) {
        json_t *spans = json_array();
        for (size_t i = 0; i < out.n_spans; i++)
            json_array_append_new(spans, json_pack("[I, I, I]", (json_int_t)out.spans[i].begin,
                                                   (json_int_t)out.spans[i].end,
                                                   (json_int_t)out.spans[i].origin));
        answer = json_object();
        json_object_set_new(answer, "text", json_stringn_nocheck(buf_str(&out.text), out.text.len));
        json_object_set_new(answer, "spans", spans);
        template_output_release(&out);
    } else {
        answer = failure(&err, raised);
    }
    template_free(t);
    return answer;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t e;
        json_t *request = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        if (!request) {
            fprintf(stderr, "template_runner: %s\n", e.text);
            return 1;
        }
        json_t *answer = render(request);
        char *text = json_written(answer, JSON_COMPACT | JSON_ENSURE_ASCII);
        puts(text ? text : "{\"error\": \"not JSON\", \"raised\": false}");
        fflush(stdout);
        free(text);
        json_decref(answer);
        json_decref(request);
    }
    free(line);
    return 0;
}
