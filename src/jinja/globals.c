// Global functions: range, dict, namespace, raise_exception, strftime_now.
#include "jinja/runtime.h"

#include <string.h>
#include <time.h>

#include "base/utf8.h"

enum {
    MAX_RANGE = 100000, // as Jinja2's sandbox
    MAX_DATE_FORMAT = 254,
};

static struct val global_range(struct run *r, struct val self, const struct val *v,
                               const struct args *a)
{
    (void)self;
    (void)a;
    int64_t start = 0, stop = args_int(r, &v[0], 0, "range() argument"), step = 1;
    uint32_t origin = v[0].origin;
    if (args_given(&v[1])) {
        start = stop;
        stop = args_int(r, &v[1], 0, "range() argument");
        step = args_int(r, &v[2], 1, "range() argument");
        origin = str_origin_merge(origin, v[1].origin);
        if (args_given(&v[2]))
            origin = str_origin_merge(origin, v[2].origin);
    }
    if (!step)
        run_fail(r, "range() arg 3 must not be zero");
    uint64_t n = 0;
    if (step > 0 && start < stop)
        n = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    else if (step < 0 && start > stop)
        n = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    if (n > MAX_RANGE)
        run_fail(r, "range too big: %llu items, at most %d are allowed", (unsigned long long)n,
                 MAX_RANGE);
    struct range *g = run_alloc(r, sizeof *g);
    *g = (struct range){start, stop, step, (int64_t)n};
    return (struct val){.kind = V_RANGE, .range = g, .origin = origin};
}

struct val globals_dict(struct run *r, struct val self, const struct val *v, const struct args *a)
{
    (void)self;
    (void)v;
    struct val out = val_dict(r);
    if (a->n_pos > 1)
        run_fail(r, "dict expected at most 1 argument, got %zu", a->n_pos);
    if (a->n_pos && a->pos[0].kind == V_DICT) {
        const struct dict *d = a->pos[0].d;
        run_step(r, d->n_used / 8);
        for (size_t i = 0; i < d->n_used; i++)
            if (d->e[i].live)
                dict_set(r, out.d, d->e[i].key, d->e[i].value);
    } else if (a->n_pos) {
        struct iter storage, *it = iter_begin(r, a->pos[0], &storage);
        struct val item;
        while (iter_next(r, it, &item)) {
            struct val pair = iter_list(r, item);
            if (pair.l->n != 2)
                run_fail(r, "a dict needs pairs, found a sequence of length %zu", pair.l->n);
            dict_set(r, out.d, pair.l->v[0], pair.l->v[1]);
        }
    }
    for (size_t i = 0; i < a->n_kw; i++)
        dict_set(r, out.d, a->kw_name[i], a->kw[i]);
    return out;
}

static struct val global_namespace(struct run *r, struct val self, const struct val *v,
                                   const struct args *a)
{
    struct val out = globals_dict(r, self, v, a);
    out.kind = V_NAMESPACE;
    return out;
}

static struct val global_raise(struct run *r, struct val self, const struct val *v,
                               const struct args *a)
{
    (void)self;
    (void)a;
    struct val text = pytext_str(r, v[0]);
    run_raise(r, text.s->p, text.s->n);
}

// The format for the C library, without what Python's naive datetime has of its own: %f is of a
// clock of whole seconds, and %z, %:z (since Python 3.12) and %Z of no zone. Returns its end.
static char *put_pattern(char *to, const struct str *format)
{
    for (size_t i = 0; i < format->n; i++) {
        const char of = format->p[i] == '%' && i + 1 < format->n ? format->p[i + 1] : '\0';
        const bool colon = of == ':' && i + 2 < format->n && format->p[i + 2] == 'z';
        if (of == 'f') {
            memcpy(to, "000000", 6);
            to += 6;
        } else if (of != 'z' && of != 'Z' && !colon) {
            *to++ = format->p[i];
            if (of)
                *to++ = of;
        }
        i += (of != '\0') + colon;
    }
    return to;
}

static struct val global_strftime(struct run *r, struct val self, const struct val *v,
                                  const struct args *a)
{
    (void)self;
    (void)a;
    struct str *format = args_str(r, &v[0], "format");
    char pattern[3 * MAX_DATE_FORMAT + 2], text[1024];
    if (format->n > MAX_DATE_FORMAT || memchr(format->p, '\0', format->n))
        run_fail(r, "the date format is longer than %d bytes", MAX_DATE_FORMAT);
    time_t now = (time_t)r->now;
    struct tm tm;
    run_step(r, 64); // strftime knows slow words
    if (!localtime_r(&now, &tm))
        run_fail(r, "the current time cannot be expressed as a date");
    char *end = put_pattern(pattern, format);
    // A character behind it tells an empty result from one that does not fit.
    memcpy(end, " ", 2);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, pattern, &tm);
#pragma GCC diagnostic pop
    if (!n || !utf8_valid(text, n))
        run_fail(r, "the date format gives no text, or one longer than %zu bytes", sizeof text - 2);
    return val_str(r, text, n - 1, str_origin(format));
}

static const struct native globals[] = {
    {"range", global_range, 1, "start stop step"},  {"dict", globals_dict, 0, "*"},
    {"namespace", global_namespace, 0, "*"},        {"raise_exception", global_raise, 1, "message"},
    {"strftime_now", global_strftime, 1, "format"},
};

const struct native *globals_find(const struct str *name)
{
    return eval_native_find(globals, sizeof globals / sizeof *globals, name->p, name->n);
}
