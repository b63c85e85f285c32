// `tojson` as Hugging Face defines it: json.dumps without ASCII escaping.
#include "jinja/runtime.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

struct dump {
    struct run *r;
    struct sb *b;
    uint32_t origin; // of the whole text: where a mixture begins and ends is nobody's business
    bool ascii, sort_keys, pretty;
    struct val indent; // V_STR, one level
    struct str *comma, *colon;
};

static void dump_value(struct dump *d, struct val v, unsigned level);

static void dump_text(struct dump *d, const char *text, size_t n)
{
    sb_add(d->r, d->b, text, n, d->origin);
}

static void dump_str(struct dump *d, const struct str *s)
{
    char text[32];
    run_step(d->r, s->n / 16);
    dump_text(d, "\"", 1);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp = 0;
        size_t plain = i;
        while (plain < s->n && (unsigned char)s->p[plain] >= 0x20 && s->p[plain] != '"' &&
               s->p[plain] != '\\' && (!d->ascii || (unsigned char)s->p[plain] < 0x7F))
            plain++;
        if (plain > i) {
            n = plain - i;
            dump_text(d, s->p + i, n);
            continue;
        }
        n = utf8_decode(s->p + i, s->n - i, &cp);
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *simple = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (simple)
            snprintf(text, sizeof text, "\\%c", to[simple - from]);
        else if (cp >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x",
                     (unsigned)(0xD800 + ((cp - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((cp - 0x10000) & 0x3FF)));
        else
            snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
        dump_text(d, text, strlen(text));
        n = n ? n : 1;
    }
    dump_text(d, "\"", 1);
}

static void dump_newline(struct dump *d, unsigned level)
{
    if (!d->pretty)
        return;
    dump_text(d, "\n", 1);
    while (level--)
        dump_text(d, d->indent.s->p, d->indent.s->n);
}

static void dump_number(struct dump *d, struct val v)
{
    char text[40];
    size_t n;
    if (v.kind == V_FLOAT && !isfinite(v.f))
        n = (size_t)snprintf(text, sizeof text,
                             isnan(v.f) ? "NaN"
                             : v.f < 0  ? "-Infinity"
                                        : "Infinity");
    else if (v.kind == V_FLOAT)
        n = pytext_float(d->r, v.f, text);
    else
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i);
    dump_text(d, text, n);
}

static struct val key_text(struct dump *d, struct val key)
{
    switch ((enum kind)key.kind) {
    case V_STR:
        return key;
    case V_NONE:
        return val_cstr(d->r, "null");
    case V_BOOL:
        return val_cstr(d->r, key.b ? "true" : "false");
    case V_INT:
    case V_FLOAT:
        return pytext_str(d->r, key);
    default:
        run_fail(d->r, "keys must be str, int, float, bool or None, not %s", val_type(key));
    }
}

static struct val sorted_items(struct dump *d, struct val dict)
{
    struct val items = val_list(d->r, dict.d->n_live);
    run_step(d->r, dict.d->n_used / 8);
    for (size_t i = 0; i < dict.d->n_used; i++)
        if (dict.d->e[i].live)
            list_push(d->r, items.l, val_pair(d->r, dict.d->e[i].key, dict.d->e[i].value));
    if (d->sort_keys)
        sort_values(d->r, items.l, sort_by_first, NULL, false);
    return items;
}

static void dump_dict(struct dump *d, struct val v, unsigned level)
{
    struct val items = sorted_items(d, v);
    dump_text(d, "{", 1);
    for (size_t i = 0; i < items.l->n; i++) {
        if (i)
            dump_text(d, d->comma->p, d->comma->n);
        dump_newline(d, level + 1);
        dump_str(d, key_text(d, items.l->v[i].l->v[0]).s);
        dump_text(d, d->colon->p, d->colon->n);
        dump_value(d, items.l->v[i].l->v[1], level + 1);
    }
    if (items.l->n)
        dump_newline(d, level);
    dump_text(d, "}", 1);
}

static void dump_list(struct dump *d, const struct list *l, unsigned level)
{
    dump_text(d, "[", 1);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            dump_text(d, d->comma->p, d->comma->n);
        dump_newline(d, level + 1);
        dump_value(d, l->v[i], level + 1);
    }
    if (l->n)
        dump_newline(d, level);
    dump_text(d, "]", 1);
}

static void dump_value(struct dump *d, struct val v, unsigned level)
{
    run_step(d->r, 1);
    run_enter(d->r);
    switch ((enum kind)v.kind) {
    case V_NONE:
        dump_text(d, "null", 4);
        break;
    case V_BOOL:
        dump_text(d, v.b ? "true" : "false", v.b ? 4 : 5);
        break;
    case V_INT:
    case V_FLOAT:
        dump_number(d, v);
        break;
    case V_STR:
        dump_str(d, v.s);
        break;
    case V_LIST:
    case V_TUPLE:
        dump_list(d, v.l, level);
        break;
    case V_DICT:
        dump_dict(d, v, level);
        break;
    default:
        run_fail(d->r, "Object of type %s is not JSON serializable", val_type(v));
    }
    run_leave(d->r);
}

static void read_indent(struct dump *d, const struct val *v)
{
    if (v->kind == V_MISSING || v->kind == V_NONE)
        return;
    d->pretty = true;
    if (v->kind == V_STR) {
        d->indent = *v;
        return;
    }
    struct sb b = {0};
    int64_t n = args_int(d->r, v, 0, "indent");
    if (n > 0)
        sb_fill(d->r, &b, &(struct str){.p = " ", .n = 1}, (size_t)n);
    d->indent = sb_val(d->r, &b);
}

// tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)
struct val filters_tojson(struct run *r, struct val self, const struct val *v, const struct args *a)
{
    (void)a;
    struct sb b = {0};
    struct dump d = {.r = r, .b = &b, .origin = val_origin(r, self)};
    d.ascii = args_bool(&v[0]);
    read_indent(&d, &v[1]);
    d.comma = val_cstr(r, d.pretty ? "," : ", ").s;
    d.colon = val_cstr(r, ": ").s;
    if (v[2].kind != V_MISSING && v[2].kind != V_NONE) {
        struct val pair = iter_list(r, v[2]);
        if (pair.l->n != 2)
            run_fail(r, "separators must be two strings, found %zu values", pair.l->n);
        d.comma = args_str(r, &pair.l->v[0], "separators[0]");
        d.colon = args_str(r, &pair.l->v[1], "separators[1]");
        d.origin = str_origin_merge(d.origin, val_origin(r, pair));
    }
    if (d.pretty)
        d.origin = str_origin_merge(d.origin, str_origin(d.indent.s));
    d.sort_keys = args_bool(&v[3]);
    dump_value(&d, self, 0);
    return sb_val(r, &b);
}
