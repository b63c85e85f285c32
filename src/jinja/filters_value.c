// Filters on numbers and on values of any kind, and how a filter is found by its name.
#include "jinja/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                               \
    static struct val name(struct run *r, struct val self, const struct val *v,                    \
                           const struct args *a)
#define UNUSED_ARGS (void)r, (void)self, (void)v, (void)a

FILTER(filter_default)
{
    UNUSED_ARGS;
    if (self.kind == V_UNDEF || (args_bool(&v[1]) && !val_truth(&self)))
        return args_given(&v[0]) ? v[0] : val_cstr(r, "");
    return self;
}

FILTER(filter_length)
{
    UNUSED_ARGS;
    size_t n = val_length(r, self);
    return val_with_origin(val_int((int64_t)n), self.kind == V_STR ? str_origin(self.s) : 0);
}

FILTER(filter_string)
{
    UNUSED_ARGS;
    return self.kind == V_STR ? self : pytext_str(r, self);
}

FILTER(filter_attr)
{
    UNUSED_ARGS;
    struct str *name = args_str(r, &v[0], "attribute name");
    if (self.kind == V_UNDEF)
        run_fail_undef(r, &self);
    struct val found = access_method(r, self, name);
    return found.kind == V_MISSING ? access_undef(r, self, v[0]) : found;
}

FILTER(filter_format)
{
    UNUSED_ARGS;
    if (a->n_pos && a->n_kw)
        run_fail(r, "can't handle positional and keyword arguments at the same time");
    struct val args = val_tuple(r, a->n_pos);
    if (a->n_kw)
        args = globals_dict(r, val_none(), NULL, a);
    else
        for (size_t i = 0; i < a->n_pos; i++)
            list_push(r, args.l, a->pos[i]);
    return pyformat_percent(r, self.kind == V_STR ? self : pytext_str(r, self), args);
}

FILTER(filter_abs)
{
    UNUSED_ARGS;
    if (self.kind == V_FLOAT)
        return val_with_origin(val_float(fabs(self.f)), self.origin);
    if (self.kind == V_UNDEF)
        run_fail_undef(r, &self);
    if (self.kind != V_INT && self.kind != V_BOOL)
        run_fail(r, "bad operand type for abs(): '%s'", val_type(self));
    int64_t i = self.kind == V_BOOL ? self.b : self.i;
    return i < 0 ? ops_negate(r, self, true) : val_with_origin(val_int(i), self.origin);
}

static struct val truncated(struct run *r, struct val f)
{
    if (!(f.f >= -9223372036854775808.0 && f.f < 9223372036854775808.0))
        run_fail(r, "cannot convert float %s to a 64-bit integer",
                 isinf(f.f) ? "infinity" : "value");
    return val_with_origin(val_int((int64_t)f.f), f.origin);
}

FILTER(filter_int)
{
    UNUSED_ARGS;
    struct val otherwise = args_given(&v[0]) ? v[0] : val_int(0);
    struct val f = {.kind = V_MISSING};
    switch ((enum kind)self.kind) {
    case V_INT:
        return self;
    case V_BOOL:
        return val_with_origin(val_int(self.b), self.origin);
    case V_FLOAT:
        return isnan(self.f) ? otherwise : truncated(r, self);
    case V_STR:
        f = text_parse_int(r, self.s, args_int(r, &v[1], 10, "base"));
        if (f.kind == V_INT)
            return f;
        f = text_parse_float(r, self.s);
        return f.kind == V_FLOAT && isfinite(f.f) ? truncated(r, f) : otherwise;
    case V_UNDEF:
        run_fail_undef(r, &self);
    default:
        return otherwise;
    }
}

FILTER(filter_float)
{
    UNUSED_ARGS;
    struct val otherwise = args_given(&v[0]) ? v[0] : val_float(0), f;
    switch ((enum kind)self.kind) {
    case V_FLOAT:
        return self;
    case V_INT:
        return val_with_origin(val_float((double)self.i), self.origin);
    case V_BOOL:
        return val_with_origin(val_float(self.b), self.origin);
    case V_STR:
        f = text_parse_float(r, self.s);
        return f.kind == V_FLOAT ? f : otherwise;
    case V_UNDEF:
        run_fail_undef(r, &self);
    default:
        return otherwise;
    }
}

// Half to even on the exact decimal value, as Python's round(): printf does just that.
static double round_to(struct run *r, double f, int64_t digits)
{
    char text[400];
    if (!isfinite(f) || digits > 330)
        return f;
    if (digits < -330)
        return 0.0 * f;
    if (digits >= 0) {
        if (digits > 60 || fabs(f) > 1e17)
            return f;
        run_step(r, 16);
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-digits);
    return rint(f / unit) * unit;
}

static struct val round_int(struct run *r, struct val v, int64_t digits)
{
    if (digits >= 0)
        return v;
    // Beside so large a unit they are nothing; of 10^19, which does not fit, those up to its half.
    if (digits < -19 || (digits == -19 && v.i / 5000000000000000001 == 0))
        return val_with_origin(val_int(0), v.origin);
    struct val unit = ops_binary(r, OP_POW, val_int(10), val_int(-digits));
    int64_t whole = v.i / unit.i, rest = v.i % unit.i;
    int64_t twice = rest < 0 ? -rest : rest, other = unit.i - twice;
    if (twice > other || (twice == other && whole % 2))
        whole += v.i < 0 ? -1 : 1;
    return ops_binary(r, OP_MUL, val_with_origin(val_int(whole), v.origin), unit);
}

// round(value, precision=0, method="common")
FILTER(filter_round)
{
    UNUSED_ARGS;
    int64_t digits = args_int(r, &v[0], 0, "precision");
    const struct str *how = args_given(&v[1]) ? args_str(r, &v[1], "method") : NULL;
    bool common = !how || str_is(how, "common");
    if (!common && !str_is(how, "ceil") && !str_is(how, "floor"))
        run_fail(r, "method must be common, ceil or floor");
    if (self.kind == V_UNDEF)
        run_fail_undef(r, &self);
    if (self.kind != V_INT && self.kind != V_FLOAT && self.kind != V_BOOL)
        run_fail(r, "type %s doesn't define __round__ method", val_type(self));
    if (self.kind == V_BOOL)
        self = val_with_origin(val_int(self.b), self.origin);
    if (common && self.kind == V_INT)
        return round_int(r, self, digits);
    if (common)
        return val_with_origin(val_float(round_to(r, self.f, digits)), self.origin);
    double f = self.kind == V_INT ? (double)self.i : self.f, unit = pow(10, (double)digits);
    // (The integer on the way has no negative zero.)
    f = (str_is(how, "ceil") ? ceil(f * unit) : floor(f * unit)) + 0.0;
    if (!isfinite(f) || unit == 0)
        run_fail(r, "cannot convert float value to an integer");
    return val_with_origin(val_float(f / unit), self.origin);
}

const struct native filters_value[] = {
    {"default", filter_default, 0, "default_value boolean"},
    {"d", filter_default, 0, "default_value boolean"},
    {"length", filter_length, 0, ""},
    {"count", filter_length, 0, ""},
    {"string", filter_string, 0, ""},
    {"tojson", filters_tojson, 0, "ensure_ascii indent separators sort_keys"},
    {"attr", filter_attr, 1, "name"},
    {"format", filter_format, 0, "*"},
    {"abs", filter_abs, 0, ""},
    {"int", filter_int, 0, "default base"},
    {"float", filter_float, 0, "default"},
    {"round", filter_round, 0, "precision method"},
};
const size_t filters_value_n = sizeof filters_value / sizeof *filters_value;

const struct native *filters_find(const struct str *name)
{
    const struct native *fn = eval_native_find(filters_value, filters_value_n, name->p, name->n);
    if (!fn)
        fn = eval_native_find(filters_text, filters_text_n, name->p, name->n);
    if (!fn)
        fn = eval_native_find(filters_seq, filters_seq_n, name->p, name->n);
    return fn;
}

struct val filters_call(struct run *r, const struct str *name, struct val v, const struct args *a)
{
    const struct native *fn = filters_find(name);
    if (!fn)
        run_fail(r, "no filter named '%.*s' (docs/templates.md lists those there are)",
                 (int)(name->n < 80 ? name->n : 80), name->p);
    return eval_native_call(r, fn, v, a);
}
