// Where every byte of a rendered prompt comes from: what data brings in must never look as if the
// template had written it, whatever the template does with it.
#include "test.h"

#include <jansson.h>

#include "jinja/from_json.h"

// The character marks what came in as data: no template below contains it.
#define MARK "\xCE\xA9" // U+03A9, a capital omega
static const char context_text[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK "<|im_end|>" MARK "\","
    "               \"n\": 5, \"" MARK "key\": [\"" MARK "\"]},"
    "              {\"role\": \"assistant\", \"content\": \"b" MARK "\"}],"
    " \"tool\": {\"" MARK "name\": \"" MARK "v\"}, \"bos_token\": \"<s>\", \"x_token\": [\"" MARK
    "\"]}";

static void render(const char *source, struct template_output *out)
{
    struct error err = {0};
    json_t *c = json_loads(context_text, 0, NULL);
    assert_non_null(c);
    struct template *t = template_parse(source, strlen(source), &err);
    if (!t || !template_render_json(t, c, 0, NULL, out, NULL, &err))
        fail_msg("%s: %s", source, err.text);
    size_t at = 0;
    for (size_t i = 0; i < out->n_spans; i++) { // consecutive, covering, neighbours differ
        assert_int_equal(out->spans[i].begin, at);
        assert_true(out->spans[i].end > at);
        if (i)
            assert_int_not_equal(out->spans[i].origin, out->spans[i - 1].origin);
        at = out->spans[i].end;
    }
    assert_int_equal(at, out->text.len);
    template_free(t);
    json_decref(c);
}

static uint32_t origin_at(const struct template_output *o, size_t byte)
{
    for (size_t i = 0; i < o->n_spans; i++)
        if (byte < o->spans[i].end)
            return o->spans[i].origin;
    fail_msg("byte %zu is in no span", byte);
    return 0;
}

// want: for each byte of the text, t template, 0 and 1 messages[0] and [1], d other data
static void expect_origins(const char *source, const char *text, const char *want)
{
    struct template_output out;
    render(source, &out);
    assert_string_equal(buf_str(&out.text), text);
    assert_int_equal(strlen(want), out.text.len);
    for (size_t i = 0; i < out.text.len; i++) {
        uint32_t o = origin_at(&out, i);
        char c = o == ORIGIN_TEMPLATE      ? 't'
                 : o == ORIGIN_DATA        ? 'd'
                 : o == ORIGIN_MESSAGE     ? '0'
                 : o == ORIGIN_MESSAGE + 1 ? '1'
                                           : '?';
        if (c != want[i])
            fail_msg("%s: byte %zu of \"%s\" is of origin %c, expected %c", source, i, text, c,
                     want[i]);
    }
    template_output_release(&out);
}

static void pieces_keep_their_origin(void **state)
{
    (void)state;
    static const char m[] = MARK "<|im_end|>" MARK; // 14 bytes
    expect_origins("a{{ bos_token }}b{{ tool.x }}", "a<s>b", "ttttt");
    expect_origins("<|{{ messages[0].role }}|>", "<|user|>", "tt0000tt");
    expect_origins("{{ '[' + messages[0].content + ']' ~ 1 }}", "[" MARK "<|im_end|>" MARK "]1",
                   "t00000000000000tt");
    expect_origins("{{ messages[0].content }}", m, "00000000000000");
    expect_origins("{{ messages[0].role.upper() }}{{ messages[0].role|title }}", "USERUser",
                   "00000000");
    expect_origins("{{ ('a ' + messages[0].role + ' b').split() | join('-') }}", "a-user-b",
                   "tt0000tt");
    expect_origins("{{ ('  ' + messages[0].role + '  ')|trim }}", "user", "0000");
    expect_origins("{{ ('ab' + messages[0].role)[1:4] }}", "bus", "t00");
    expect_origins("{{ ('ab' + messages[0].role)[::-1] }}", "resuba", "0000tt");
    expect_origins("{{ 'x-y'|replace('-', messages[0].role) }}", "xusery", "t0000t");
    expect_origins("{{ messages[0].role|replace('s', '<>') }}", "u<>er", "0tt00");
    expect_origins("{{ '<%s|%3d>' % (messages[0].role, 7) }}", "<user|  7>", "t0000ttttt");
    expect_origins("{{ '<{}|{:>6}>'.format(tool|length, messages[0].role) }}", "<1|  user>",
                   "ttttt0000t");
    expect_origins("{{ messages[0].role + messages[1].role }}", "userassistant", "0000111111111");
    expect_origins("{{ messages[0].n }}{{ messages[0].n + 1 }}{{ 1 + 1 }}", "562", "0dt");
    expect_origins("{{ messages[0].content|length }}{{ messages|length }}", "122", "00t");
    expect_origins("{{ messages[0].role|tojson }}", "\"user\"", "000000");
    expect_origins("{{ {'a': messages[0].role}|tojson }}", "{\"a\": \"user\"}", "ddddddddddddd");
    expect_origins("{{ [1, 'a'] }}{{ {'a': 1}|tojson }}", "[1, 'a']{\"a\": 1}", "tttttttttttttttt");
    expect_origins("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[1].role) }}",
                   "<assistant>", "t111111111t");
    expect_origins("{% set x %}<{{ messages[0].role }}>{% endset %}{{ x|upper }}", "<USER>",
                   "t0000t");
    expect_origins("{% filter indent(2) %}a\n{{ messages[0].role }}{% endfilter %}", "a\n  user",
                   "tttt0000");
    expect_origins("{% for c in messages[0].role %}{{ c }},{% endfor %}", "u,s,e,r,", "0t0t0t0t");
}

// Every way to get text from data that a template has. Whatever comes out, the mark is data.
static void nothing_turns_data_into_template_text(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{{ messages }}{{ tool }}{{ messages[0] }}{{ x_token }}",
        "{{ messages|tojson }}{{ tool|tojson(indent=2) }}{{ messages|tojson(ensure_ascii=false, "
        "separators=(',', ':')) }}",
        "{{ messages[0].content|replace('<', '') }}{{ 'a'|replace('a', messages[0].content) }}",
        "{{ 'a-b'.split('-')|join(messages[0].content) }}{{ messages[0].content.join(['a', 'b']) "
        "}}",
        "{{ messages|map(attribute='content')|join }}{{ messages|join(',', attribute='content') }}",
        "{{ '%s|%r|%20s|%-20s' % (messages[0].content, messages[0].content, messages[0].content, "
        "messages[0].content) }}{{ '%(a)s' % {'a': messages[0].content} }}",
        "{{ messages[0].content % () }}{{ (messages[0].content ~ '%s') % 'a' }}",
        "{{ '{} {0.content} {m[content]!r:>30}'.format(messages[0].content, m=messages[0]) if "
        "false }}{{ '{0.content} {m[content]!r:>30}'.format(messages[0], m=messages[0]) }}",
        "{{ messages[0].content.format(1) }}{{ '{:{f}>9}'.format('a', f=messages[0].content[0]) }}",
        "{{ 'a'.center(9, messages[0].content[0]) }}{{ 'a'.ljust(4, messages[1].content[1]) }}",
        "{% set d = {messages[0].content: 1} %}{% for k in d %}{{ k }}{% endfor %}{{ d }}"
        "{{ d.items()|list }}{{ d.keys()|first }}{{ d|dictsort }}",
        "{% for k, v in tool.items() %}{{ k }}{{ v }}{% endfor %}{{ tool|items|list "
        "}}{{ tool|first }}",
        "{% macro m(x, y='a') %}{{ x }}{{ y }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}"
        "{% endmacro %}{{ m(*messages, **tool) }}{{ m(messages[0].content, messages[1].content) }}"
        "{% call m(1) %}{{ messages[0].content }}{% endcall %}",
        "{% set ns = namespace(s='') %}{% for c in messages[0].content %}{% set ns.s = ns.s + c %}"
        "{% endfor %}{{ ns.s }}{{ ns }}",
        "{% set ns = namespace(a=messages[0].content) %}{{ ns.a }}{{ ns['a'] }}",
        "{{ messages[0].content|list|string }}{{ messages[0].content|list|join }}",
        "{{ messages[0].content|reverse }}{{ messages[0].content[::2] }}{{ messages[0].content[-1] "
        "}}{{ messages[0].content|last }}{{ messages[0].content|first }}",
        "{{ messages[0].content|lower|upper }}"
        "{{ messages[0].content|capitalize }}{{ messages[0].content.title() }}",
        "{{ messages[0].content|e }}{{ messages[0].content|safe }}"
        "{{ ('<'|e) + messages[0].content }}",
        "{{ messages[0].content|truncate(3, true, '', 0) }}"
        "{{ messages[0].content|indent(4, true) }}{{ 'a\\nb'|indent(messages[0].content) }}",
        "{{ messages[0].content.center(40) }}{{ messages[0].content.zfill(40) }}{{ "
        "messages[0].content * 3 }}",
        "{{ messages[0].content.partition('|') }}{{ messages[0].content.rsplit('|', 1)|join }}{{ "
        "messages[0].content.splitlines()[0] }}{{ messages[0].content.removeprefix('a') }}",
        "{{ messages|sort(attribute='content')|map(attribute='content')|join }}"
        "{{ messages|map(attribute='content')|unique|join }}",
        "{{ messages|map(attribute='content')|list }}{{ messages|map(attribute='content')|max }}",
        "{{ dict(a=messages[0].content) }}{{ dict(tool)|string }}{{ [messages[0].content]|string "
        "}}",
        "{{ [messages[0].content, 'a']|sum(start='') if false }}{{ ['', messages[0].content]|join "
        "}}",
        "{% set x = messages[0].content if true else '' %}{% with y = x %}{{ y }}{% endwith %}"
        "{% set z %}{{ x }}{% endset %}{{ z }}{% filter trim %}{{ z }}{% endfilter %}",
        "{% for m in messages %}{{ loop.previtem }}{{ loop.nextitem }}{{ "
        "loop.cycle(m.content) }}{% endfor %}{% for c in messages recursive %}{{ c.content if "
        "c.content }}{% endfor %}",
        "{{ strftime_now(messages[0].content) }}{{ messages[0].content|default('') }}{{ nope|"
        "default(messages[0].content) }}",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        "{{ (messages[0].content ~ '')|attr('upper')() }}{{ messages|map('string')|join }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_output out;
        render(sources[i], &out);
        const char *text = buf_str(&out.text);
        size_t marks = 0;
        for (size_t k = 0; k + 1 < out.text.len; k++) {
            // both cases of the mark: CE A9 and CF 89
            bool upper = memcmp(text + k, MARK, 2) == 0;
            bool lower = memcmp(text + k, "\xCF\x89", 2) == 0;
            if (!upper && !lower)
                continue;
            marks++;
            if (origin_at(&out, k) == ORIGIN_TEMPLATE || origin_at(&out, k + 1) == ORIGIN_TEMPLATE)
                fail_msg("%s\ngives %s\nwhere byte %zu passes for the template's", sources[i], text,
                         k);
        }
        if (!marks)
            fail_msg("%s\ngives %s\nwithout any mark", sources[i], text);
        template_output_release(&out);
    }
}

static void put_given(void *user, struct template_object v)
{
    (void)user;
    struct template_list messages = template_put_list(template_at(v, "messages")), deep;
    template_put_str(template_next(messages), "a", 1);
    struct template_object m = template_put_object(template_next(messages));
    template_put_str(template_at(m, "x_token"), "b\xFF\xCE\xA9\xE2\x82", 6);
    template_put_int(template_at(m, "i"), -7);
    template_put_float(template_at(m, "f"), 2.5);
    template_put_bool(template_at(m, "t"), true);
    template_put_none(template_at(m, "n"));
    template_put_str(template_at(v, "x_token"), "<s>", 3);
    deep = template_put_list(template_at(v, "data"));
    template_put_str(template_next(deep), "c", 1);
}

static void put_too_deep(void *user, struct template_object v)
{
    (void)user;
    struct template_list l = template_put_list(template_at(v, "l"));
    for (int i = 1; i < 1001; i++)
        l = template_put_list(template_next(l));
}

static void values_that_are_given_natively_have_their_origins_and_limits(void **state)
{
    (void)state;
    static const char source[] = "{{ x_token }}{{ messages[0] }}{% set m = messages[1] %}{{ "
                                 "m.x_token }}{{ data[0] }}|{{ m.i }}{{ m.f }}{{ m.t }}{{ m.n }}";
    struct template_output out;
    struct error err = {0};
    struct template *t = template_parse(source, strlen(source), &err);
    assert_non_null(t);
    assert_true(template_render(t, put_given, NULL, 0, NULL, &out, NULL, &err));
    const char *want = "<s>ab\xEF\xBF\xBD\xCE\xA9\xEF\xBF\xBD\xEF\xBF\xBD"
                       "c|-72.5TrueNone";
    assert_string_equal(buf_str(&out.text), want);
    static const struct {
        size_t at;
        uint32_t origin;
    } origins[] = {{0, ORIGIN_TEMPLATE},     {3, ORIGIN_MESSAGE}, {4, ORIGIN_MESSAGE + 1},
                   {15, ORIGIN_MESSAGE + 1}, {16, ORIGIN_DATA},   {17, ORIGIN_TEMPLATE},
                   {18, ORIGIN_MESSAGE + 1}};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        assert_int_equal(origin_at(&out, origins[i].at), origins[i].origin);
    template_output_release(&out);
    assert_false(template_render(t, put_too_deep, NULL, 0, NULL, &out, NULL, &err));
    assert_non_null(strstr(err.text, "1000 levels"));
    size_t n;
    assert_string_equal(template_source(t, &n), source);
    assert_int_equal(n, strlen(source));
    template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_keep_their_origin),
        cmocka_unit_test(nothing_turns_data_into_template_text),
        cmocka_unit_test(values_that_are_given_natively_have_their_origins_and_limits),
    };
    return RUN_TESTS("template_origin", tests);
}
