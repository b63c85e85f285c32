// Filters on text.
#include "jinja/runtime.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/unicode.h"

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

FILTER(filter_center)
{
    UNUSED_ARGS;
    const struct val none = {.kind = V_MISSING};
    self = soft(r, self);
    return like(text_pad(r, self.s, args_int(r, &v[0], 80, "width"), &none, 'c'), self);
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
    bool blank = args_bool(&v[2], false);
    if (args_bool(&v[1], false))
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
    if (!args_bool(&v[1], false)) {
        const struct str space = {.p = " ", .n = 1};
        size_t cut = text_find(r, head, 0, head->n, &space, true);
        if (cut != SIZE_MAX)
            head = str_sub(r, head, 0, cut).s;
    }
    return like(str_concat(r, str_val(head), str_val(end)), self);
}

FILTER(filter_wordcount)
{
    UNUSED_ARGS;
    const struct str *s = soft(r, self).s;
    int64_t count = 0;
    bool in_word = false;
    run_step(r, s->n / 2);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp;
        n = utf8_decode(s->p + i, s->n - i, &cp);
        bool word =
            cp == '_' || (uni_flags(cp) & (UNI_ALPHA | UNI_DECIMAL | UNI_DIGIT | UNI_NUMERIC));
        count += word && !in_word;
        in_word = word;
    }
    return val_int(count);
}

// ---- HTML and URLs ----

FILTER(filter_escape)
{
    UNUSED_ARGS;
    return pyformat_html(r, self);
}

FILTER(filter_forceescape)
{
    UNUSED_ARGS;
    self = pytext_str(r, self); // forgets that it was escaped
    return pyformat_html(r, self);
}

FILTER(filter_safe)
{
    UNUSED_ARGS;
    self = pytext_str(r, self);
    self.safe = true;
    return self;
}

// Removes everything between `open` and the next `close` after it.
static struct str *remove_between(struct run *r, struct str *s, const char *open, const char *close)
{
    const struct str from = {.p = open, .n = strlen(open)}, to = {.p = close, .n = strlen(close)};
    struct sb out = {0};
    size_t at = 0;
    for (;;) {
        size_t begin = text_find(r, s, at, s->n, &from, false);
        size_t end = begin == SIZE_MAX ? begin : text_find(r, s, begin, s->n, &to, false);
        if (end == SIZE_MAX)
            break;
        sb_sub(r, &out, s, at, begin);
        at = end + to.n;
    }
    sb_sub(r, &out, s, at, s->n);
    return sb_val(r, &out).s;
}

// One character reference at s[i] ("&amp;", "&#38;", "&#x26;"). Returns its length, or 0.
static size_t entity(const struct str *s, size_t i, uint32_t *cp)
{
    static const struct {
        const char *name;
        uint32_t cp;
    } names[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                 {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", 0xA0}};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t n = strlen(names[k].name);
        if (s->n - i >= n && memcmp(s->p + i, names[k].name, n) == 0) {
            *cp = names[k].cp;
            return n;
        }
    }
    size_t k = i + 2;
    if (s->n - i < 4 || s->p[i + 1] != '#')
        return 0;
    unsigned base = s->p[k] == 'x' || s->p[k] == 'X' ? 16 : 10;
    k += base == 16;
    size_t first = k;
    for (*cp = 0; k < s->n && k < first + 8; k++) {
        char c = (char)(s->p[k] | 0x20);
        unsigned d = s->p[k] >= '0' && s->p[k] <= '9'     ? (unsigned)(s->p[k] - '0')
                     : base == 16 && c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                                          : 99;
        if (d > 15)
            break;
        *cp = *cp * base + d;
    }
    char text[4];
    if (k == first || k >= s->n || s->p[k] != ';' || !utf8_encode(*cp, text))
        return 0;
    return k + 1 - i;
}

FILTER(filter_striptags)
{
    UNUSED_ARGS;
    struct str *s = remove_between(r, pytext_str(r, self).s, "<!--", "-->");
    s = remove_between(r, s, "<", ">");
    const struct val none = {.kind = V_NONE};
    struct val words = text_split(r, s, &none, -1, false);
    s = text_join(r, val_cstr(r, " ").s, words, false).s;
    struct sb out = {0};
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp;
        const char *amp = memchr(s->p + i, '&', s->n - i);
        run_step(r, 1);
        n = amp ? (size_t)(amp - s->p) - i : s->n - i;
        sb_sub(r, &out, s, i, i + n);
        i += n;
        if (!amp)
            break;
        n = entity(s, i, &cp);
        if (n)
            sb_cp(r, &out, cp, str_origin(str_sub(r, s, i, i + n).s));
        else
            sb_sub(r, &out, s, i, i + 1);
        n = n ? n : 1;
    }
    return sb_val(r, &out);
}

static void url_quote(struct run *r, struct sb *out, struct val v, bool in_query)
{
    const struct str *s = pytext_str(r, v).s;
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        uint32_t origin = str_origin_at(s, i);
        char text[4];
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
            (c && strchr("_.-~", c)) || (c == '/' && !in_query))
            sb_add(r, out, s->p + i, 1, origin);
        else if (c == ' ' && in_query)
            sb_add(r, out, "+", 1, origin);
        else
            sb_add(r, out, text, (size_t)snprintf(text, sizeof text, "%%%02X", c), origin);
    }
}

FILTER(filter_urlencode)
{
    UNUSED_ARGS;
    struct sb out = {0};
    if (self.kind == V_STR || !val_iterable(self)) {
        url_quote(r, &out, self, false);
        return sb_val(r, &out);
    }
    if (self.kind == V_DICT)
        self = eval_native_call(r, dict_method_find(&(struct str){.p = "items", .n = 5}), self,
                                &(struct args){0});
    struct iter storage, *it = iter_begin(r, self, &storage);
    struct val item;
    for (bool first = true; iter_next(r, it, &item); first = false) {
        struct val pair = iter_list(r, item);
        if (pair.l->n != 2)
            run_fail(r, "urlencode needs pairs, found a sequence of length %zu", pair.l->n);
        if (!first)
            sb_add(r, &out, "&", 1, 0);
        url_quote(r, &out, pair.l->v[0], true);
        sb_add(r, &out, "=", 1, 0);
        url_quote(r, &out, pair.l->v[1], true);
    }
    return sb_val(r, &out);
}

FILTER(filter_xmlattr)
{
    UNUSED_ARGS;
    if (self.kind != V_DICT)
        run_fail(r, "xmlattr needs a dict, not %s", val_type(self));
    struct sb out = {0};
    run_step(r, self.d->n_used / 8);
    for (size_t i = 0; i < self.d->n_used; i++) {
        const struct entry *e = &self.d->e[i];
        if (!e->live || e->value.kind == V_NONE || e->value.kind == V_UNDEF)
            continue;
        const struct str *key = args_str(r, &e->key, "attribute name");
        run_step(r, key->n / 8);
        for (size_t k = 0; k < key->n; k++)
            if (!key->p[k] || strchr(" \t\n\r\f\v/>=", key->p[k]))
                run_fail(r, "invalid character in attribute name");
        if (out.n)
            sb_add(r, &out, " ", 1, 0);
        else if (args_bool(&v[0], true))
            sb_add(r, &out, " ", 1, 0);
        sb_str(r, &out, pyformat_html(r, e->key).s);
        sb_add(r, &out, "=\"", 2, 0);
        sb_str(r, &out, pyformat_html(r, e->value).s);
        sb_add(r, &out, "\"", 1, 0);
    }
    return sb_val(r, &out);
}

const struct native filters_text[] = {
    {"upper", filter_upper, 0, ""},
    {"lower", filter_lower, 0, ""},
    {"capitalize", filter_capitalize, 0, ""},
    {"title", filter_title, 0, ""},
    {"trim", filter_trim, 0, "chars"},
    {"replace", filter_replace, 2, "old new count"},
    {"center", filter_center, 0, "width"},
    {"indent", filter_indent, 0, "width first blank"},
    {"truncate", filter_truncate, 0, "length killwords end leeway"},
    {"wordcount", filter_wordcount, 0, ""},
    {"wordwrap", filters_wordwrap, 0, "width break_long_words wrapstring break_on_hyphens"},
    {"escape", filter_escape, 0, ""},
    {"e", filter_escape, 0, ""},
    {"forceescape", filter_forceescape, 0, ""},
    {"safe", filter_safe, 0, ""},
    {"striptags", filter_striptags, 0, ""},
    {"urlencode", filter_urlencode, 0, ""},
    {"xmlattr", filter_xmlattr, 0, "autospace"},
};
const size_t filters_text_n = sizeof filters_text / sizeof *filters_text;
