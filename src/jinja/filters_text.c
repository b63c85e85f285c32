// Filters on text.
#include "jinja/runtime.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "base/unicode.h"

#define FILTER(name)                                                                               \
    static struct val name(struct run *r, struct val self, const struct val *v,                    \
                           const struct args *a)
#define UNUSED_ARGS (void)r, (void)self, (void)v, (void)a

// str(value), but markup stays markup.
static struct val soft(struct run *r, struct val v)
{
    return v.kind == V_STR ? v : pytext_str(r, v);
}

static struct val like(struct val v, struct val other)
{
    v.safe = other.safe;
    return v;
}

FILTER(filter_upper)
{
    UNUSED_ARGS;
    self = soft(r, self);
    return like(text_case(r, self.s, 'u'), self);
}

FILTER(filter_lower)
{
    UNUSED_ARGS;
    self = soft(r, self);
    return like(text_case(r, self.s, 'l'), self);
}

FILTER(filter_capitalize)
{
    UNUSED_ARGS;
    self = soft(r, self);
    return like(text_case(r, self.s, 'c'), self);
}

FILTER(filter_title)
{
    UNUSED_ARGS;
    return text_case(r, soft(r, self).s, 'w');
}

FILTER(filter_trim)
{
    UNUSED_ARGS;
    self = soft(r, self);
    return like(text_strip(r, self.s, &v[0], 'b'), self);
}

FILTER(filter_replace)
{
    UNUSED_ARGS;
    int64_t count = v[2].kind == V_NONE ? -1 : args_int(r, &v[2], -1, "count");
    return text_replace(r, pytext_str(r, self).s, pytext_str(r, v[0]).s, pytext_str(r, v[1]).s,
                        count);
}

// indent(s, width=4, first=False, blank=False): the lines of s + "\n", every one but the first
// (and, unless `blank`, the empty ones) behind an indentation.
FILTER(filter_indent)
{
    UNUSED_ARGS;
    struct str *s = args_str(r, &self, "the value of indent");
    struct sb pad = {0}, out = {0};
    if (v[0].kind == V_STR)
        sb_str(r, &pad, v[0].s);
    else
        for (int64_t n = args_int(r, &v[0], 4, "width"); n > 0; n--)
            sb_add(r, &pad, " ", 1, 0);
    struct str *indent = sb_val(r, &pad).s;
    struct sb text = {0};
    sb_str(r, &text, s);
    sb_add(r, &text, "\n", 1, 0);
    struct val lines = text_lines(r, sb_val(r, &text).s, false);
    bool blank = args_bool(&v[2]);
    if (args_bool(&v[1]))
        sb_str(r, &out, indent);
    for (size_t i = 0; i < lines.l->n; i++) {
        if (i)
            sb_add(r, &out, "\n", 1, 0);
        if (i && (blank || lines.l->v[i].s->n))
            sb_str(r, &out, indent);
        sb_str(r, &out, lines.l->v[i].s);
    }
    return like(sb_val(r, &out), self);
}

// truncate(s, length=255, killwords=False, end="...", leeway=5)
FILTER(filter_truncate)
{
    UNUSED_ARGS;
    int64_t length = args_int(r, &v[0], 255, "length");
    struct str *end = args_given(&v[2]) ? args_str(r, &v[2], "end") : val_cstr(r, "...").s;
    int64_t leeway = v[3].kind == V_NONE ? 5 : args_int(r, &v[3], 5, "leeway");
    int64_t n_end = (int64_t)str_chars(r, end);
    if (length < n_end)
        run_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0)
        run_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    if ((int64_t)val_length(r, self) - leeway <= length)
        return self;
    struct str *s = args_str(r, &self, "the value of truncate");
    struct str *head = str_sub(r, s, 0, str_offset(r, s, (size_t)(length - n_end))).s;
    if (!args_bool(&v[1])) {
        const struct str space = {.p = " ", .n = 1};
        size_t cut = text_find(r, head, 0, head->n, &space, true);
        if (cut != SIZE_MAX)
            head = str_sub(r, head, 0, cut).s;
    }
    return like(str_concat(r, str_val(head), str_val(end)), self);
}

// ---- HTML ----

FILTER(filter_escape)
{
    UNUSED_ARGS;
    return pyformat_html(r, self);
}

FILTER(filter_safe)
{
    UNUSED_ARGS;
    self = pytext_str(r, self);
    self.safe = true;
    return self;
}

const struct native filters_text[] = {
    {"upper", filter_upper, 0, ""},
    {"lower", filter_lower, 0, ""},
    {"capitalize", filter_capitalize, 0, ""},
    {"title", filter_title, 0, ""},
    {"trim", filter_trim, 0, "chars"},
    {"replace", filter_replace, 2, "old new count"},
    {"indent", filter_indent, 0, "width first blank"},
    {"truncate", filter_truncate, 0, "length killwords end leeway"},
    {"escape", filter_escape, 0, ""},
    {"e", filter_escape, 0, ""},
    {"safe", filter_safe, 0, ""},
};
const size_t filters_text_n = sizeof filters_text / sizeof *filters_text;
