// Attacks on the interpreter's time: everything that a template can make long is paid for in steps,
// so that the number of steps bounds the time; and a rendering ends when it is asked to.
#include "test.h"

#include <jansson.h>
#include <pthread.h>
#include <time.h>

#include "jinja/from_json.h"

enum { BYTES = 1 << 18, ITEMS = 5000, ROUNDS = 1000, STEPS = 400000 };

// Evaluated ROUNDS times. s: BYTES times 'a'; t: the same but for the last byte; x: but for the
// first; w: spaces; u: as many bytes of 'é'; l, m: lists of ITEMS numbers, equal; z: of strings;
// d, e: dicts of ITEMS entries, equal; h: a dict from which as many were removed; k: { "s": s }.
static const char *const attacks[] = {
    // compared
    "s.startswith(t)",
    "s.endswith(x)",
    "s.startswith((t, t))",
    "s.removeprefix(t)",
    "s.removesuffix(x)",
    "s == t",
    "s < t",
    "s is sameas(t)",
    "s is eq(t)",
    "s.upper == t.upper",
    "[s] == [t]",
    "l == m",
    "d == e",
    "l < m",
    "loop.changed(s, t)",
    "loop.changed(l + [])",
    // searched
    "'b' in s",
    "t[9:] in s",
    "s.find('b')",
    "s.rfind('b')",
    "s.count('b')",
    "s.partition('b')",
    "s.split('b')",
    "s.rsplit('b')",
    "s.replace('b', 'c')",
    "-1 in l",
    "'q' in z",
    "-1 in d.values()",
    "l.count(-1)",
    "z.count('q')",
    // looked at
    "s.split()",
    "s.rsplit()",
    "s.splitlines()",
    "w.strip()",
    "w.lstrip()",
    "w.rstrip()",
    "s.strip('a')",
    "w.isspace()",
    "s.isalpha()",
    "s.isdigit() or s.isalnum()",
    "s.islower()",
    "s is lower",
    "w|int",
    "s|int",
    "w|float",
    "u[100000]",
    "u[:100000]",
    "u.find('b', 1)",
    "u[100000:].isascii()",
    "{s: 1}",
    "d[s]",
    "d.get(s)",
    "s in d",
    "(s, 1) in d",
    "d[(s, 1)]",
    "s|format",
    "s.format()",
    "'%(s)s' % k",
    // copied
    "s + s",
    "s ~ s",
    "s * 2",
    "s[::2]",
    "s[::-1]",
    "s|reverse",
    "s|upper",
    "s|title",
    "s.lower()",
    "s.capitalize()",
    "s.center(2000000)",
    "s.zfill(2000000)",
    "s|replace('a', '')",
    "s|escape",
    "s|indent",
    "s|tojson",
    "[s]|string",
    "'%s' % s",
    "'%r' % s",
    "'{}'.format(s)",
    "'{s}'.format(**k)",
    "s|list",
    "s|join('')",
    "[s, s]|join",
    "s|first ~ s|sort|first",
    "u|length + u|list|length",
    "''.join([s, s])",
    "l + l",
    "l * 2",
    "l[1:]",
    "l[::2] + l[1:]",
    "l.copy()",
    "l|list",
    "l|sort",
    "l|reverse|list",
    "l|unique|list",
    "l|map('abs')|list",
    "l|select('odd')|list",
    "l|sum + l|max",
    "l|string",
    "l|tojson",
    "l|join",
    "z|map('upper')|join",
    "z|sort|first",
    "dict(d)",
    "dict(**d)",
    "namespace(**d)",
    "d.copy()",
    "d|items|list",
    "d|dictsort",
    "d.items()|list",
    "d.values()|list",
    "d|tojson",
    "d|string",
    "d|list",
    "mac(**d)",
    "mac(*l)",
    "'{}'.format(*l)",
    "'{s0}'.format(**d)",
    // removed entries are passed by
    "h == h.copy()",
    "h|list",
    "h|items|list",
    "h|tojson",
    "h|string",
    "dict(h)",
    "dict(**h)",
};

static json_t *letters(char c, size_t n, size_t at, char other)
{
    char *text = malloc(n);
    memset(text, c, n);
    if (at < n)
        text[at] = other;
    json_t *j = json_stringn(text, n);
    free(text);
    return j;
}

static json_t *make_context(int n)
{
    json_t *c = json_object(), *l = json_array(), *z = json_array(), *d = json_object();
    char name[32];
    for (int i = 0; i < ITEMS; i++) {
        snprintf(name, sizeof name, "s%d", i);
        json_array_append_new(l, json_integer(i));
        json_array_append_new(z, json_string(name));
        json_object_set_new(d, name, json_integer(i));
    }
    char *e_acute = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        e_acute[i] = i % 2 ? '\xA9' : '\xC3';
    json_object_set_new(c, "n", json_integer(n));
    json_object_set_new(c, "s", letters('a', BYTES, BYTES, 0));
    json_object_set_new(c, "t", letters('a', BYTES, BYTES - 1, 'b'));
    json_object_set_new(c, "x", letters('a', BYTES, 0, 'b'));
    json_object_set_new(c, "w", letters(' ', BYTES, BYTES, 0));
    json_object_set_new(c, "u", json_stringn(e_acute, BYTES));
    json_object_set_new(c, "m", json_deep_copy(l));
    json_object_set_new(c, "l", l);
    json_object_set_new(c, "z", z);
    json_object_set_new(c, "e", json_deep_copy(d));
    json_object_set_new(c, "d", d);
    free(e_acute);
    return c;
}

// h is made only where it is used: it takes steps too.
static char *make_source(const char *attack)
{
    static const char make_h[] =
        "{% set h = dict(e) %}{% for a in z %}{% set _ = h.pop(a) %}{% endfor %}"
        "{% set _ = h.update(q=1) %}";
    bool uses_h = attack[0] == 'h' || strstr(attack, "(h") || strstr(attack, "*h");
    char *source = malloc(4096);
    snprintf(source, 4096,
             "{%% macro mac() %%}{{ kwargs|length + varargs|length }}{%% endmacro %%}%s"
             "{%% set k = {'s': s} %%}{%% for i in range(n) %%}{%% if %s %%}{%% endif %%}"
             "{%% endfor %%}",
             uses_h ? make_h : "", attack);
    return source;
}

static bool render(const char *source, const json_t *context, const struct template_limits *limits,
                   struct error *err)
{
    struct template *t = template_parse(source, strlen(source), err);
    struct template_output out;
    if (!t)
        fail_msg("%s: %s", source, err->text);
    bool ok = template_render_json(t, context, 0, limits, &out, NULL, err);
    template_output_release(&out);
    template_free(t);
    return ok;
}

static void everything_long_is_paid_for_in_steps(void **state)
{
    (void)state;
    size_t n_stopped = 0;
    json_t *none = make_context(0), *many = make_context(ROUNDS);
    const struct template_limits limits = {.max_steps = STEPS, .max_seconds = 1e9};
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        char *source = make_source(attacks[i]);
        struct error err = {0};
        if (!render(source, none, &limits, &err))
            fail_msg("%s: what it is made of is too expensive: %s", attacks[i], err.text);
        if (render(source, many, &limits, &err))
            fprintf(stderr, "%s: %d rounds are not stopped by %d steps\n", attacks[i], ROUNDS,
                    STEPS);
        else if (!strstr(err.text, "400000 steps"))
            fprintf(stderr, "%s: stopped by \"%s\", expected the steps\n", attacks[i], err.text);
        else
            n_stopped++;
        free(source);
    }
    assert_int_equal(n_stopped, sizeof attacks / sizeof *attacks);
    json_decref(none);
    json_decref(many);
}

static const char endless[] =
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";

static void what_the_steps_do_not_foresee_ends_by_the_clock(void **state)
{
    (void)state;
    json_t *c = json_object();
    struct error err = {0};
    struct template_limits limits = {.max_steps = UINT64_MAX / 2, .max_seconds = 0.05};
    assert_false(render(endless, c, &limits, &err));
    assert_non_null(strstr(err.text, "the limit of 0.05 seconds"));
    assert_non_null(strstr(err.text, "--chat-template"));
    limits.max_seconds = 0; // the default
    assert_false(render(endless, c, &limits, &err));
    assert_non_null(strstr(err.text, "the limit of 2 seconds"));
    json_decref(c);
}

static void *ask_soon(void *cancel)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    cancel_ask(cancel);
    return NULL;
}

// The time until it ends is what the structure of the steps promises; here only that it does.
static void a_rendering_ends_when_asked_to(void **state)
{
    (void)state;
    json_t *c = json_object();
    struct error err = {0};
    struct cancel cancel = {0};
    const struct template_limits limits = {
        .max_steps = UINT64_MAX / 2, .max_seconds = 1e9, .cancel = &cancel};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_soon, &cancel), 0);
    assert_false(render(endless, c, &limits, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    pthread_join(thread, NULL);
    err = (struct error){0};
    assert_false(render("short", c, &limits, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    json_decref(c);
}

static void names_that_are_compared_with_one_another_are_few(void **state)
{
    (void)state;
    static const char *const begins[] = {"{{ f(", "{% macro f("}, *const ends[] = {") }}", ") %}"};
    for (int k = 0; k < 2; k++) {
        struct buf b = {0};
        struct error err = {0};
        buf_puts(&b, begins[k]);
        for (int i = 0; i < 80000; i++)
            buf_printf(&b, k ? "%sa%d" : "%sa%d=1", i ? "," : "", i);
        buf_puts(&b, ends[k]);
        assert_null(template_parse(b.data, b.len, &err));
        assert_non_null(strstr(err.text, "more than 1000"));
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_long_is_paid_for_in_steps),
        cmocka_unit_test(what_the_steps_do_not_foresee_ends_by_the_clock),
        cmocka_unit_test(a_rendering_ends_when_asked_to),
        cmocka_unit_test(names_that_are_compared_with_one_another_are_few),
    };
    return RUN_TESTS("template_limits", tests);
}
