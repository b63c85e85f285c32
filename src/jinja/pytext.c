// Python's text forms: str() and repr().
#include "jinja/runtime.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "base/unicode.h"

// Python's float.__repr__.
size_t pytext_float(struct run *r, double f, char out[FORMAT_NUMBER])
{
    run_step(r, 64); // up to 17 conversions there and back
    return strlen(format_real(out, f));
}

static void add_text(struct run *r, struct sb *b, const char *text, uint32_t origin)
{
    sb_add(r, b, text, strlen(text), origin);
}

// repr() of a string. `origin` V_... UINT32_MAX: every byte keeps its own.
static void repr_str(struct run *r, struct sb *b, const struct str *s, uint32_t origin)
{
    run_step(r, s->n / 16);
    bool single = memchr(s->p, '\'', s->n) != NULL, dbl = memchr(s->p, '"', s->n) != NULL;
    char quote = single && !dbl ? '"' : '\'', text[16];
    sb_add(r, b, &quote, 1, origin);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0;
        size_t n = utf8_decode(s->p + i, s->n - i, &cp);
        text[0] = '\0';
        if (cp == (unsigned char)quote || cp == '\\')
            snprintf(text, sizeof text, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (uni_is(cp, UNI_UNPRINTABLE))
            snprintf(text, sizeof text,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
        if (text[0])
            add_text(r, b, text, origin);
        else
            sb_add(r, b, s->p + i, n, origin);
        i += n ? n : 1;
    }
    sb_add(r, b, &quote, 1, origin);
}

static void repr_items(struct run *r, struct sb *b, const struct list *l, const char *open,
                       const char *close, uint32_t origin)
{
    add_text(r, b, open, origin);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            add_text(r, b, ", ", origin);
        pytext_repr_sb(r, b, l->v[i], origin);
    }
    add_text(r, b, close, origin);
}

static void repr_dict(struct run *r, struct sb *b, const struct dict *d, uint32_t origin)
{
    bool first = true;
    run_step(r, d->n_used / 8);
    add_text(r, b, "{", origin);
    for (size_t i = 0; i < d->n_used; i++) {
        if (!d->e[i].live)
            continue;
        if (!first)
            add_text(r, b, ", ", origin);
        first = false;
        pytext_repr_sb(r, b, d->e[i].key, origin);
        add_text(r, b, ": ", origin);
        pytext_repr_sb(r, b, d->e[i].value, origin);
    }
    add_text(r, b, "}", origin);
}

static void repr_range(struct run *r, struct sb *b, const struct range *g, uint32_t origin)
{
    char text[80];
    if (g->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)g->start, (long long)g->stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)g->start,
                 (long long)g->stop, (long long)g->step);
    add_text(r, b, text, origin);
}

static void repr_view(struct run *r, struct sb *b, struct val v, uint32_t origin)
{
    add_text(r, b, val_type(v), origin);
    struct iter storage, *it = iter_begin(r, v, &storage);
    struct val item;
    add_text(r, b, "([", origin);
    for (bool first = true; iter_next(r, it, &item); first = false) {
        if (!first)
            add_text(r, b, ", ", origin);
        pytext_repr_sb(r, b, item, origin);
    }
    add_text(r, b, "])", origin);
}

static void repr_other(struct run *r, struct sb *b, struct val v, uint32_t origin)
{
    char text[160];
    if (v.kind == V_LOOP) {
        struct val i = loop_attr(r, v, &(struct str){.p = "index", .n = 5});
        snprintf(text, sizeof text, "<LoopContext %lld/%zu>", (long long)i.i,
                 loop_length(r, v.loop));
    } else if (v.kind == V_MACRO) {
        const struct str *name = v.macro->def->name;
        if (name)
            snprintf(text, sizeof text, "<Macro '%.*s'>", (int)(name->n < 99 ? name->n : 99),
                     name->p);
        else
            snprintf(text, sizeof text, "<Macro anonymous>");
    } else if (v.kind == V_NATIVE) {
        snprintf(text, sizeof text, "<built-in method %s>", v.bound->fn->name);
    } else {
        snprintf(text, sizeof text, "<%s object>", val_type(v));
    }
    add_text(r, b, text, origin);
}

void pytext_repr_sb(struct run *r, struct sb *b, struct val v, uint32_t origin)
{
    char text[40];
    run_step(r, 1);
    run_enter(r);
    switch ((enum kind)v.kind) {
    case V_MISSING:
    case V_UNDEF:
        add_text(r, b, "Undefined", origin);
        break;
    case V_NONE:
        add_text(r, b, "None", origin);
        break;
    case V_BOOL:
        add_text(r, b, v.b ? "True" : "False", origin);
        break;
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        add_text(r, b, text, origin);
        break;
    case V_FLOAT:
        sb_add(r, b, text, pytext_float(r, v.f, text), origin);
        break;
    case V_STR:
        if (v.safe)
            add_text(r, b, "Markup(", origin);
        repr_str(r, b, v.s, origin);
        if (v.safe)
            add_text(r, b, ")", origin);
        break;
    case V_LIST:
        repr_items(r, b, v.l, "[", "]", origin);
        break;
    case V_TUPLE:
        repr_items(r, b, v.l, "(", v.l->n == 1 ? ",)" : ")", origin);
        break;
    case V_DICT:
        repr_dict(r, b, v.d, origin);
        break;
    case V_NAMESPACE:
        add_text(r, b, "<Namespace ", origin);
        repr_dict(r, b, v.d, origin);
        add_text(r, b, ">", origin);
        break;
    case V_RANGE:
        repr_range(r, b, v.range, origin);
        break;
    case V_VIEW:
        repr_view(r, b, v, origin);
        break;
    default:
        repr_other(r, b, v, origin);
        break;
    }
    run_leave(r);
}

struct val pytext_repr(struct run *r, struct val v)
{
    struct sb b = {0};
    pytext_repr_sb(r, &b, v, val_origin(r, v));
    return sb_val(r, &b);
}

void pytext_str_sb(struct run *r, struct sb *b, struct val v)
{
    if (v.kind == V_STR)
        sb_str(r, b, v.s);
    else if (v.kind != V_UNDEF && v.kind != V_MISSING)
        pytext_repr_sb(r, b, v, val_origin(r, v));
}

struct val pytext_str(struct run *r, struct val v)
{
    if (v.kind == V_STR) {
        v.safe = false;
        return v;
    }
    struct sb b = {0};
    pytext_str_sb(r, &b, v);
    return sb_val(r, &b);
}
