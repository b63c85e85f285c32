// obj.name, obj[key], obj[a:b:c], with Jinja2's rules for what is not there.
#include "jinja/runtime.h"

#include <string.h>

static const char *object_name(struct val v)
{
    switch ((enum kind)v.kind) {
    case V_NONE:
        return "None";
    case V_BOOL:
        return "bool object";
    case V_INT:
        return "int object";
    case V_FLOAT:
        return "float object";
    case V_STR:
        return v.safe ? "markupsafe.Markup object" : "str object";
    case V_LIST:
        return "list object";
    case V_TUPLE:
        return "tuple object";
    case V_DICT:
        return "dict object";
    case V_RANGE:
        return "range object";
    case V_NAMESPACE:
        return "jinja2.utils.Namespace object";
    case V_MACRO:
        return "jinja2.runtime.Macro object";
    case V_LOOP:
        return "jinja2.runtime.LoopContext object";
    default:
        return "object";
    }
}

struct val access_undef(struct run *r, struct val obj, struct val name)
{
    return val_undef(r, NULL, object_name(obj), name);
}

static struct val bind(struct run *r, const struct native *fn, struct val self)
{
    struct bound *b = run_alloc(r, sizeof *b);
    *b = (struct bound){fn, self};
    return (struct val){.kind = V_NATIVE, .bound = b};
}

static struct val missing(void)
{
    return (struct val){.kind = V_MISSING};
}

static struct val macro_attr(struct run *r, const struct macro *m, const struct str *name)
{
    if (str_is(name, "name"))
        return m->def->name ? str_val(m->def->name) : val_none();
    if (str_is(name, "caller"))
        return val_bool(m->def->uses_caller);
    if (str_is(name, "catch_kwargs"))
        return val_bool(m->def->uses_kwargs && !m->def->own_kwargs);
    if (str_is(name, "catch_varargs"))
        return val_bool(m->def->uses_varargs && !m->def->own_varargs);
    if (str_is(name, "arguments")) {
        struct val names = val_tuple(r, m->def->n_params);
        for (size_t i = 0; i < m->def->n_params; i++)
            list_push(r, names.l, str_val(m->def->params[i]->name));
        return names;
    }
    return missing();
}

// What Python's getattr(obj, name) would find, or V_MISSING.
struct val access_method(struct run *r, struct val obj, const struct str *name)
{
    const struct native *fn = NULL;
    switch ((enum kind)obj.kind) {
    case V_STR:
        fn = str_method_find(name);
        break;
    case V_LIST:
        fn = list_method_find(name);
        break;
    case V_TUPLE:
        fn = list_tuple_method_find(name);
        break;
    case V_DICT:
        fn = dict_method_find(name);
        break;
    case V_LOOP:
        fn = eval_native_find(loop_methods, 2, name->p, name->n);
        if (!fn)
            return loop_attr(r, obj, name);
        break;
    case V_NAMESPACE: {
        struct val *v = dict_get_name(r, obj.d, name->p, name->n);
        return v ? *v : missing();
    }
    case V_RANGE:
        if (str_is(name, "start"))
            return val_int(obj.range->start);
        if (str_is(name, "stop"))
            return val_int(obj.range->stop);
        if (str_is(name, "step"))
            return val_int(obj.range->step);
        break;
    case V_MACRO:
        return macro_attr(r, obj.macro, name);
    default:
        break;
    }
    return fn ? bind(r, fn, obj) : missing();
}

struct val access_attr(struct run *r, struct val obj, struct str *name)
{
    if (obj.kind == V_UNDEF)
        run_fail_undef(r, &obj);
    struct val v = access_method(r, obj, name);
    if (v.kind != V_MISSING)
        return v;
    if (obj.kind == V_DICT) {
        struct val *item = dict_get(r, obj.d, str_val(name));
        if (item)
            return *item;
    }
    return access_undef(r, obj, str_val(name));
}

static bool as_index(struct val key, int64_t *i)
{
    if (key.kind != V_INT && key.kind != V_BOOL)
        return false;
    *i = key.kind == V_BOOL ? key.b : key.i;
    return true;
}

static bool hashable(const struct val *v)
{
    if (v->kind == V_TUPLE) // its items, but not theirs: deeper lists fail in val_hash
        for (size_t i = 0; i < v->l->n; i++)
            if (v->l->v[i].kind == V_LIST || v->l->v[i].kind == V_DICT)
                return false;
    return v->kind != V_LIST && v->kind != V_DICT;
}

static bool item_of(struct run *r, struct val obj, struct val key, struct val *out)
{
    int64_t i;
    if (obj.kind == V_DICT) {
        struct val *v = hashable(&key) ? dict_get(r, obj.d, key) : NULL;
        if (v)
            *out = *v;
        return v != NULL;
    }
    if (obj.kind != V_STR && obj.kind != V_LIST && obj.kind != V_TUPLE && obj.kind != V_RANGE)
        return false;
    if (!as_index(key, &i))
        return false;
    int64_t n = (int64_t)val_length(r, obj);
    if (i < -n || i >= n)
        return false;
    if (i < 0)
        i += n;
    if (obj.kind == V_STR) {
        size_t begin = str_offset(r, obj.s, (size_t)i), end = begin + 1;
        while (end < obj.s->n && ((unsigned char)obj.s->p[end] & 0xC0) == 0x80)
            end++;
        *out = str_sub(r, obj.s, begin, end);
        out->safe = obj.safe;
    } else if (obj.kind == V_RANGE) {
        *out = val_int(range_item(obj.range, i));
    } else {
        *out = obj.l->v[i];
    }
    return true;
}

struct val access_item(struct run *r, struct val obj, struct val key)
{
    struct val v;
    if (obj.kind == V_UNDEF)
        run_fail_undef(r, &obj);
    if (item_of(r, obj, key, &v))
        return v;
    if (key.kind == V_STR) {
        v = access_method(r, obj, key.s);
        if (v.kind != V_MISSING)
            return v;
    }
    return access_undef(r, obj, key);
}

struct val access_path(struct run *r, struct val obj, struct val path, struct val otherwise)
{
    if (path.kind == V_NONE)
        return obj;
    if (path.kind != V_STR) {
        obj = access_item(r, obj, path);
        return obj.kind == V_UNDEF && otherwise.kind != V_MISSING ? otherwise : obj;
    }
    for (size_t begin = 0; begin <= path.s->n;) {
        const char *dot = memchr(path.s->p + begin, '.', path.s->n - begin);
        size_t end = dot ? (size_t)(dot - path.s->p) : path.s->n;
        run_step(r, 1 + (end - begin) / 64);
        struct val key = str_sub(r, path.s, begin, end);
        bool digits = end > begin && end - begin < 18;
        int64_t number = 0;
        for (size_t i = begin; digits && i < end; i++) {
            digits = path.s->p[i] >= '0' && path.s->p[i] <= '9';
            number = number * 10 + (path.s->p[i] - '0');
        }
        obj = access_item(r, obj, digits ? val_int(number) : key);
        if (obj.kind == V_UNDEF && otherwise.kind != V_MISSING)
            obj = otherwise;
        begin = end + 1;
    }
    return obj;
}

// Python's slice.indices(): the first item, where it stops, and how many there are.
static void slice_bounds(struct run *r, int64_t n, struct val lo, struct val hi, int64_t step,
                         int64_t *first, int64_t *end, int64_t *count)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1, start, stop;
    struct val bounds[2] = {lo, hi};
    int64_t *to[2] = {&start, &stop};
    for (int k = 0; k < 2; k++) {
        if (bounds[k].kind == V_NONE) {
            *to[k] = (k == 0) == (step > 0) ? low : high;
            continue;
        }
        if (bounds[k].kind == V_UNDEF)
            run_fail_undef(r, &bounds[k]);
        if (!as_index(bounds[k], to[k]))
            run_fail(r, "slice indices must be integers or None, not %s", val_type(bounds[k]));
        if (*to[k] < 0)
            *to[k] = *to[k] < -n ? low : *to[k] + n < low ? low : *to[k] + n;
        else if (*to[k] > high)
            *to[k] = high;
    }
    *first = start;
    *end = stop;
    *count = 0;
    if (step > 0 && start < stop)
        *count = (stop - start - 1) / step + 1;
    else if (step < 0 && start > stop)
        *count = (int64_t)(((uint64_t)(start - stop) - 1) / (0 - (uint64_t)step) + 1);
}

static struct val slice_str(struct run *r, struct str *s, int64_t first, int64_t count,
                            int64_t step)
{
    if (!count)
        return val_cstr(r, "");
    if (step == 1) {
        size_t begin = str_offset(r, s, (size_t)first);
        return str_sub(r, s, begin, str_offset(r, s, (size_t)(first + count)));
    }
    struct sb b = {0};
    size_t n_chars = str_chars(r, s);
    size_t *offset = NULL; // of every character, when they are not all one byte
    if (n_chars != s->n) {
        run_step(r, s->n / 8);
        offset = run_alloc(r, n_chars * sizeof *offset);
        size_t k = 0;
        for (size_t i = 0; i < s->n; i++)
            if (((unsigned char)s->p[i] & 0xC0) != 0x80)
                offset[k++] = i;
    }
    for (int64_t k = 0; k < count; k++) {
        run_step(r, 1);
        size_t at = (size_t)(first + k * step);
        size_t begin = offset ? offset[at] : at;
        size_t end = !offset ? at + 1 : at + 1 < n_chars ? offset[at + 1] : s->n;
        sb_sub(r, &b, s, begin, end);
    }
    return sb_val(r, &b);
}

struct val access_slice(struct run *r, struct val obj, struct val lo, struct val hi,
                        struct val step_val)
{
    int64_t step = 1, first, end, count;
    if (obj.kind == V_UNDEF)
        run_fail_undef(r, &obj);
    if (obj.kind == V_DICT)
        run_fail(r, "unhashable type: 'slice'");
    if (obj.kind != V_STR && obj.kind != V_LIST && obj.kind != V_TUPLE && obj.kind != V_RANGE)
        run_fail(r, "'%s' object is not subscriptable", val_type(obj));
    if (step_val.kind == V_UNDEF)
        run_fail_undef(r, &step_val);
    if (step_val.kind != V_NONE && !as_index(step_val, &step))
        run_fail(r, "slice indices must be integers or None, not %s", val_type(step_val));
    if (step == 0)
        run_fail(r, "slice step cannot be zero");
    slice_bounds(r, (int64_t)val_length(r, obj), lo, hi, step, &first, &end, &count);
    if (obj.kind == V_STR) {
        struct val v = slice_str(r, obj.s, first, count, step);
        v.safe = obj.safe;
        return v;
    }
    if (obj.kind == V_RANGE) {
        struct range *g = run_alloc(r, sizeof *g);
        *g = (struct range){.start = range_item(obj.range, first), .n = count};
        if (__builtin_mul_overflow(obj.range->step, step, &g->step) ||
            __builtin_mul_overflow(end, obj.range->step, &g->stop) ||
            __builtin_add_overflow(g->stop, obj.range->start, &g->stop))
            run_fail(r, "integer overflow in the slice of a range");
        return (struct val){.kind = V_RANGE, .range = g};
    }
    struct val out = obj.kind == V_LIST ? val_list(r, (size_t)count) : val_tuple(r, (size_t)count);
    for (int64_t k = 0; k < count; k++)
        list_push(r, out.l, obj.l->v[first + k * step]);
    return val_with_origin(out, obj.origin);
}
