#include "test.h"

#include <jansson.h>

#include "jinja/named.h"
#include "jinja/from_json.h"
#include "tools/render.h"

// Renders source with the JSON text context. NULL on error (text in *err). The caller frees.
static char *render_limited(const char *source, const char *context,
                            const struct template_limits *limits, bool *raised, struct error *err)
{
    json_t *c = json_loads(context, 0, NULL);
    assert_non_null(c);
    json_t *before = json_deep_copy(c);
    struct template *t = template_parse(source, strlen(source), err);
    struct template_output out = {0};
    char *text = NULL;
    if (t && template_render_json(t, c, 0, limits, &out, raised, err)) {
        text = strdup(buf_str(&out.text));
        template_output_release(&out);
    }
    assert_true(json_equal(before, c)); // whatever a template does, the caller's data stays
    template_free(t);
    json_decref(before);
    json_decref(c);
    return text;
}

static void expect_text(const char *source, const char *context, const char *want)
{
    struct error err = {0};
    char *text = render_limited(source, context, NULL, NULL, &err);
    if (!text)
        fail_msg("%s: %s", source, err.text);
    assert_string_equal(text, want);
    free(text);
}

static void expect_error(const char *source, const char *want)
{
    struct error err = {0};
    bool raised = false;
    char *text = render_limited(source, "{}", NULL, &raised, &err);
    if (text)
        fail_msg("%s gave \"%s\", expected the error: %s", source, text, want);
    assert_string_equal(err.text, want);
    assert_int_equal(err.code, ERR_FAIL);
    assert_false(raised);
}

// tests/unit/template_snippets.json: what Jinja2 3.1 renders; see make_template_snippets.py.
static void snippets_render_what_jinja2_renders(void **state)
{
    (void)state;
    const char *root = getenv("HOKKU_SOURCE");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/unit/template_snippets.json", root ? root : ".");
    json_error_t e;
    json_t *table = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!table)
        fail_msg("%s: %s", path, e.text);
    json_t *context = json_object_get(table, "context");
    const json_t *rows = json_object_get(table, "snippets");
    int64_t now = json_integer_value(json_object_get(table, "now"));
    assert_true(json_array_size(rows) > 300);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *source = json_string_value(json_object_get(row, "template"));
        const json_t *want = json_object_get(row, "text");
        struct error err = {0};
        struct template_output out = {0};
        bool raised = false, ok = false;
        struct template *t = template_parse(source, strlen(source), &err);
        ok = t && template_render_json(t, context, now, NULL, &out, &raised, &err);
        if (want) {
            if (!ok)
                fail_msg("%s\nfails: %s", source, err.text);
            if (out.text.len != json_string_length(want) ||
                memcmp(buf_str(&out.text), json_string_value(want), out.text.len) != 0)
                fail_msg("%s\ngives   %s\nexpected %s", source, buf_str(&out.text),
                         json_string_value(want));
        } else if (ok) {
            fail_msg("%s\ngives %s\nexpected an error", source, buf_str(&out.text));
        } else if (json_object_get(row, "raised")) {
            assert_true(raised);
            assert_string_equal(err.text, json_string_value(json_object_get(row, "raised")));
        } else {
            assert_false(raised);
        }
        template_output_release(&out);
        template_free(t);
    }
    json_decref(table);
}

static void errors_name_line_and_column_and_quote_the_line(void **state)
{
    (void)state;
    expect_error("a\nb {{ foo.bar }} c",
                 "line 2, column 9: 'foo' is undefined, in: b {{ foo.bar }} c");
    expect_error("{% if x %}\n  y",
                 "line 1, column 4: 'if' is never closed: expected 'elif' before "
                 "the end, in: {% if x %}");
    expect_error("\xC3\xA9\n\xC3\xA9\xC3\xA9 {{ 1 + }}",
                 "line 2, column 11: expected an expression, found 'end of print statement', in: "
                 "\xC3\xA9\xC3\xA9 {{ 1 + }}");
    expect_error("{{ 'a' + 1 }}",
                 "line 1, column 8: can only concatenate str (not \"int\") to str, "
                 "in: {{ 'a' + 1 }}");
    expect_error("{% include 'x' %}",
                 "line 1, column 4: 'include' is not supported: a chat template "
                 "is one file of its own, in: {% include 'x' %}");
    expect_error("{{ x|random }}",
                 "line 1, column 6: no filter named 'random' (docs/templates.md lists those "
                 "there are), in: {{ x|random }}");
    expect_error(
        "{{ 9223372036854775807 + 1 }}",
        "line 1, column 24: integer overflow: 9223372036854775807 + 1 exceeds 64 bits, in: "
        "{{ 9223372036854775807 + 1 }}");
    expect_error("{{ 2 ** 63 }}",
                 "line 1, column 6: integer overflow: 2 ** 63 exceeds 64 bits, in: "
                 "{{ 2 ** 63 }}");
    expect_error("{{ 9223372036854775808 }}",
                 "line 1, column 4: integer literal exceeds 64 bits, in: "
                 "{{ 9223372036854775808 }}");
    struct error err = {0};
    assert_null(template_parse("a\xFF", 2, &err));
    assert_string_equal(err.text, "chat template is not valid UTF-8");
}

static void a_templates_own_exception_is_passed_on_as_it_is(void **state)
{
    (void)state;
    struct error err = {0};
    bool raised = false;
    assert_null(render_limited("{{ raise_exception('no %s\nroles: ' ~ n) }}", "{\"n\": 3}", NULL,
                               &raised, &err));
    assert_true(raised);
    assert_string_equal(err.text, "no %s\nroles: 3");
}

// Hugging Face's sandbox refuses these, but templates in use (Kimi K2) call them.
static void lists_and_dicts_of_the_template_can_change(void **state)
{
    (void)state;
    expect_text("{% set a = [] %}{% for m in m %}{% set _ = a.append(m) %}{% endfor %}{{ a }}"
                "{{ m.pop() }}{{ m }}",
                "{\"m\": [1, 2]}", "[1, 2]2[1]");
    expect_text("{% set _ = d.update({'b': 2}, c=3) %}{{ d.pop('a') }}{{ d }}{{ d.pop('q', 5) }}",
                "{\"d\": {\"a\": 1}}", "1{'b': 2, 'c': 3}5");
}

static void expect_limit(const char *source, const char *context,
                         const struct template_limits *limits, const char *what)
{
    struct error err = {0};
    char *text = render_limited(source, context, limits, NULL, &err);
    if (text)
        fail_msg("%s is not stopped", source);
    if (!strstr(err.text, what))
        fail_msg("%s: found \"%s\", expected it to name %s", source, err.text, what);
}

static void a_template_cannot_use_more_than_it_may(void **state)
{
    (void)state;
    const struct template_limits steps = {.max_steps = 100000}, output = {.max_output = 10000},
                                 memory = {.max_memory = 1 << 20}, none = {0};
    expect_limit("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                 "{}", &steps, "100000 steps");
    expect_limit("{% for i in range(99999) %}x{% endfor %}", "{}", &output, "10000 bytes");
    expect_limit("{{ 'x' * 9223372036854775807 }}", "{}", &memory, "memory");
    expect_limit("{% set ns = namespace(s='ab') %}{% for i in range(99999) %}{% set ns.s = ns.s + "
                 "ns.s %}{% endfor %}",
                 "{}", &memory, "memory");
    expect_limit("{{ 'a'.center(9223372036854775807) }}", "{}", &memory, "memory");
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", &none, "1000 levels");
    expect_limit("{% for x in l recursive %}{{ loop(l) }}{% endfor %}", "{\"l\": [1]}", &none,
                 "1000 levels");
    // Values that contain themselves, or one another thousands of times over.
    expect_limit("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "{}", &none, "1000 levels");
    expect_limit("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "{}", &none,
                 "1000 levels");
    expect_limit("{% set ns = namespace(l=[]) %}{% for i in range(50000) %}{% set ns.l = [ns.l] %}"
                 "{% endfor %}{{ ns.l == [ns.l] }}",
                 "{}", &none, "1000 levels");
}

// (Jinja2 would write out 10 to that power.)
static void digits_without_end_round_an_integer_to_nothing(void **state)
{
    (void)state;
    expect_text("{{ 5|round(-9223372036854775807 - 1) }} {{ -5|round(-9223372036854775807) }}",
                "{}", "0 0");
    expect_text("{{ (-9223372036854775807 - 1)|round(-20) }}", "{}", "0");
    expect_text("{{ 2.5|round(-9223372036854775807 - 1) }}", "{}", "0.0");
}

static void repeat(struct buf *b, const char *text, int n)
{
    while (n--)
        buf_puts(b, text);
}

static void nesting_and_length_of_the_source_do_not_exhaust_the_stack(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *many, *end;
    } cases[] = {
        {"{{ ", "(", "}}"},
        {"{{ ", "[", "}}"},
        {"{{ ", "{1:", "}}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ 1", " + 1", " }}"},
        {"{{ 1", "|abs", " }}"},
        {"{{ x", ".y", " }}"},
        {"{{ x", "[0]", " }}"},
        {"{{ 1", " and 1", "}}"},
        {"{{ 1", " if 1 else 1", "}}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"{{ f", "(f", ""},
        {"", "{% filter upper %}", ""},
        {"{% set ", "(", "a"},
        {"{{ 1", " is defined", "}}"},
        {"{% for ", "(", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = {0};
        struct error err = {0};
        buf_puts(&b, cases[i].begin);
        repeat(&b, cases[i].many, 50000);
        buf_puts(&b, cases[i].end);
        assert_null(template_parse(b.data, b.len, &err));
        assert_int_equal(err.code, ERR_FAIL);
        buf_release(&b);
    }
    // Flat things may be long.
    struct buf b = {0};
    buf_puts(&b, "{{ 'a'");
    repeat(&b, " ~ 'a'", 20000);
    buf_puts(&b, " }}");
    repeat(&b, "{% if x %}{% elif y %}{% endif %}", 5000);
    struct error err = {0};
    struct template *t = template_parse(b.data, b.len, &err);
    assert_non_null(t);
    template_free(t);
    buf_release(&b);
}

static void named_templates_render_a_conversation(void **state)
{
    (void)state;
    static const char context[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
        "\"content\": \"U\"}, {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", "
        "\"content\": \"V\"}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\", "
        "\"eos_token\": \"</s>\"}";
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
                   "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                   "<|im_start|>assistant\n"},
        {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"},
        {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral", "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"},
        {"gemma", "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n"
                  "A<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"},
        {"phi3", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\n"
                 "V<|end|>\n<|assistant|>\n"},
        {"zephyr", "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n"
                   "<|assistant|>\n"},
        {"vicuna", "<s>S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:"},
        {"alpaca", "<s>S\n\n### Instruction:\nU\n\n### Response:\nA</s>\n\n### Instruction:\nV\n\n"
                   "### Response:\n"},
    };
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_non_null(named_template(cases[i].name, &n));
        expect_text(named_template(cases[i].name, &n), context, cases[i].want);
    }
    for (size_t i = 0; i < named_templates_n; i++) {
        struct error err = {0};
        char *text = render_limited(named_templates[i].text, context, NULL, NULL, &err);
        if (!text)
            fail_msg("%s: %s", named_templates[i].name, err.text);
        free(text);
    }
    assert_null(named_template("chatm", &n));
    struct buf names = {0};
    assert_true(named_template_list(&names));
    assert_int_equal(strncmp(names.data, "alpaca, chatml, ", 16), 0);
    buf_release(&names);
}

static bool rendered(const char *source, const char *context, struct buf *out, struct error *err)
{
    const struct render_text tmpl = {"t.jinja", source, strlen(source)};
    const struct render_text variables = {"c.json", context, strlen(context)};
    return tool_render(&tmpl, &variables, 0, NULL, out, err);
}

static void the_render_tool_reads_its_clock_from_the_context(void **state)
{
    (void)state;
    static const char source[] = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}";
    struct buf out = {0};
    struct error err = {0};
    static const char date[] = "{\"now\": \"2026-01-02T03:04:05\"}";
    assert_true(rendered(source, date, &out, &err));
    assert_string_equal(buf_str(&out), "2026-01-02 03:04:05");
    buf_release(&out);
    static const char bad[] = "{\"now\": \"tomorrow\"}", broken[] = "{\"messages\": [1,\n]}";
    assert_false(rendered(source, bad, &out, &err));
    assert_non_null(strstr(err.text, "found \"tomorrow\""));
    assert_false(rendered(source, broken, &out, &err));
    assert_non_null(strstr(err.text, "line 2, column 1"));
    assert_false(rendered(source, "[]", &out, &err));
    assert_string_equal(err.text, "c.json: the template's variables must be a JSON object");
    assert_int_equal(out.len, 0);
}

static void what_a_template_reads_of_the_context_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        bool x;
    } templates[] = {
        {"{{ x }}", true},
        {"{% for y in [1] %}{% if x is defined %}{% endif %}{% endfor %}", true},
        {"{% macro f(y) %}{{ x }}{% endmacro %}", true},
        {"{% if y %}{% set x = 1 %}{% endif %}{{ x }}", true},
        {"{{ f(x=1) }}{{ y.x }}{{ 'x' }} x", false},
        {"{% set x = 1 %}{{ x }}", false},
        {"{% macro f(x) %}{{ x }}{% endmacro %}{% for x in y %}{{ x }}{% endfor %}", false},
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct template *t = template_parse(templates[i].source, strlen(templates[i].source), NULL);
        assert_non_null(t);
        if (template_reads(t, "x") != templates[i].x || template_reads(t, "xy"))
            fail_msg("%s", templates[i].source);
        template_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippets_render_what_jinja2_renders),
        cmocka_unit_test(errors_name_line_and_column_and_quote_the_line),
        cmocka_unit_test(a_templates_own_exception_is_passed_on_as_it_is),
        cmocka_unit_test(lists_and_dicts_of_the_template_can_change),
        cmocka_unit_test(what_a_template_reads_of_the_context_is_known),
        cmocka_unit_test(a_template_cannot_use_more_than_it_may),
        cmocka_unit_test(digits_without_end_round_an_integer_to_nothing),
        cmocka_unit_test(nesting_and_length_of_the_source_do_not_exhaust_the_stack),
        cmocka_unit_test(named_templates_render_a_conversation),
        cmocka_unit_test(the_render_tool_reads_its_clock_from_the_context),
    };
    return RUN_TESTS("template", tests);
}
