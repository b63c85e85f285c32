// Chat templates, byte for byte as Jinja2 renders them, the templates' own errors included:
// reference vectors (tests/vectors/README.md, templates; and what HOKKU_CONFORMANCE names).
#include "../unit/test.h"
#include "../unit/vectors.h"

#include <jansson.h>
#include <time.h>

#include "base/buf.h"
#include "jinja/from_json.h"

static bool read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, n);
    fclose(f);
    return !out->failed;
}

static int64_t epoch(const char *date)
{
    struct tm tm = {0};
    assert_non_null(strptime(date, "%Y-%m-%dT%H:%M:%S", &tm));
    tm.tm_isdst = -1;
    return (int64_t)mktime(&tm);
}

// Returns whether the case agrees; says what differs.
static bool run_case(const json_t *c, const char *dir)
{
    const char *name = json_string_value(json_object_get(c, "template"));
    char path[4096];
    struct buf source = {0};
    struct error err = {0};
    struct template_output out = {0};
    bool raised = false;
    snprintf(path, sizeof path, "%s/templates/files/%s", dir, name);
    if (!read_file(path, &source))
        fail_msg("%s cannot be read", path);
    struct template *t = template_parse(source.data, source.len, &err);
    bool ok = t && template_render_json(t, json_object_get(c, "context"),
                                        epoch(json_string_value(json_object_get(c, "now"))), NULL,
                                        &out, &raised, &err);
    const json_t *want = json_object_get(c, "expected");
    bool same;
    if (want)
        same = ok && out.text.len == json_string_length(want) &&
               memcmp(buf_str(&out.text), json_string_value(want), out.text.len) == 0;
    else
        same =
            !ok && raised && strcmp(err.text, json_string_value(json_object_get(c, "error"))) == 0;
    if (!same)
        print_message("# %s, %s: found %s\n", name, json_string_value(json_object_get(c, "case")),
                      ok ? buf_str(&out.text) : err.text);
    template_output_release(&out);
    template_free(t);
    buf_release(&source);
    return same;
}

static void every_case_renders_byte_for_byte(void **state)
{
    (void)state;
    for (size_t k = 0; k < n_vectors_dirs(); k++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/templates/cases.json", vectors_dir(k));
        json_t *cases = json_load_file(path, 0, NULL);
        if (!cases)
            fail_msg("%s cannot be read: ninja -C build writes it", path);
        size_t n = json_array_size(cases), n_same = 0;
        for (size_t i = 0; i < n; i++)
            n_same += run_case(json_array_get(cases, i), vectors_dir(k));
        json_decref(cases);
        assert_true(n >= 240);
        assert_int_equal(n_same, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case_renders_byte_for_byte)};
    return RUN_TESTS("templates", tests);
}
