// libFuzzer target: a template and its variables, both untrusted. An input is the template's text,
// optionally followed by a NUL byte and a JSON object; without one a small conversation is used.
#include <stdlib.h>
#include <string.h>

#include "jinja/from_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|>\"},"
    " {\"role\": \"assistant\", \"content\": \"h\\u00e9 \\u65e5\", \"n\": [1, 2.5, null, true]}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"s\": \"a b\", \"i\": 7,"
    " \"l\": [3, 1, 2], \"d\": {\"x\": 1, \"y\": [1]}}";

// What template.h promises about the spans.
static void check(const struct template_output *o)
{
    size_t at = 0;
    for (size_t i = 0; i < o->n_spans; i++) {
        if (o->spans[i].begin != at || o->spans[i].end <= at)
            abort();
        if (i && o->spans[i].origin == o->spans[i - 1].origin)
            abort();
        at = o->spans[i].end;
    }
    if (at != o->text.len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct error err = {0};
    struct template *t = template_parse((const char *)data, n, &err);
    if (!t)
        return 0;
    json_t *context = nul ? json_loadb((const char *)nul + 1, size - n - 1, JSON_ALLOW_NUL, NULL)
                          : json_loads(conversation, 0, NULL);
    struct template_limits limits = {
        .max_steps = 300000, .max_output = 1 << 20, .max_memory = 32 << 20};
    struct template_output out;
    bool raised;
    if (json_is_object(context) &&
        template_render_json(t, context, 1767323045, &limits, &out, &raised, &err)) {
        check(&out);
        template_output_release(&out);
    }
    json_decref(context);
    template_free(t);
    return 0;
}
