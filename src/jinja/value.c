// Lists, dictionaries, iteration, comparison: Python's rules for values.
#include "jinja/runtime.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

struct val val_none(void)
{
    return (struct val){.kind = V_NONE};
}

struct val val_bool(bool b)
{
    return (struct val){.kind = V_BOOL, .b = b};
}

struct val val_int(int64_t i)
{
    return (struct val){.kind = V_INT, .i = i};
}

struct val val_float(double f)
{
    return (struct val){.kind = V_FLOAT, .f = f};
}

struct val val_with_origin(struct val v, uint32_t origin)
{
    v.origin = origin;
    return v;
}

struct val val_undef(struct run *r, const char *hint, const char *object, struct val name)
{
    struct undef *u = run_alloc(r, sizeof *u);
    *u = (struct undef){hint, object, name};
    return (struct val){.kind = V_UNDEF, .undef = u};
}

static struct val new_list(struct run *r, size_t cap, enum kind kind)
{
    struct list *l = run_alloc(r, sizeof *l);
    if (cap > SIZE_MAX / sizeof *l->v)
        run_fail_limit(r, "memory", r->limits.max_memory, "bytes");
    if (cap)
        l->v = run_alloc(r, cap * sizeof *l->v);
    l->cap = cap;
    return (struct val){.kind = (uint8_t)kind, .l = l};
}

struct val val_list(struct run *r, size_t cap)
{
    return new_list(r, cap, V_LIST);
}

struct val val_tuple(struct run *r, size_t cap)
{
    return new_list(r, cap, V_TUPLE);
}

struct val val_pair(struct run *r, struct val a, struct val b)
{
    struct val t = val_tuple(r, 2);
    list_push(r, t.l, a);
    list_push(r, t.l, b);
    return t;
}

struct val val_dict(struct run *r)
{
    return (struct val){.kind = V_DICT, .d = run_alloc(r, sizeof(struct dict))};
}

struct val val_iter(struct run *r, struct val list, const char *type)
{
    struct iter *it = run_alloc(r, sizeof *it);
    iter_begin(r, list, it);
    it->type = type;
    return (struct val){.kind = V_ITER, .iter = it, .origin = list.origin};
}

void list_push(struct run *r, struct list *l, struct val v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        l->v = run_grow(r, l->v, l->n * sizeof *l->v, cap * sizeof *l->v);
        l->cap = cap;
    }
    run_step(r, 1);
    l->v[l->n++] = v;
}

// ---- type names, truth, equality, order ----

const char *val_type(struct val v)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    switch ((enum kind)v.kind) {
    case V_MISSING:
    case V_UNDEF:
        return "Undefined";
    case V_NONE:
        return "NoneType";
    case V_BOOL:
        return "bool";
    case V_INT:
        return "int";
    case V_FLOAT:
        return "float";
    case V_STR:
        return v.safe ? "Markup" : "str";
    case V_LIST:
        return "list";
    case V_TUPLE:
        return "tuple";
    case V_DICT:
        return "dict";
    case V_RANGE:
        return "range";
    case V_VIEW:
        return views[v.view->what];
    case V_ITER:
        return v.iter->type ? v.iter->type : "generator";
    case V_NAMESPACE:
        return "Namespace";
    case V_MACRO:
        return "Macro";
    case V_NATIVE:
        return "builtin_function_or_method";
    case V_LOOP:
        return "LoopContext";
    }
    return "object";
}

bool val_truth(const struct val *v)
{
    switch ((enum kind)v->kind) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE:
        return false;
    case V_BOOL:
        return v->b;
    case V_INT:
        return v->i != 0;
    case V_FLOAT:
        return v->f != 0;
    case V_STR:
        return v->s->n != 0;
    case V_LIST:
    case V_TUPLE:
        return v->l->n != 0;
    case V_DICT:
        return v->d->n_live != 0;
    case V_RANGE:
        return v->range->n != 0;
    case V_VIEW:
        return v->view->d->n_live != 0;
    default:
        return true;
    }
}

static bool is_number(struct val v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}

static int64_t int_of(struct val v)
{
    return v.kind == V_BOOL ? v.b : v.i;
}

// An integer against a float, exactly: a double cannot hold every 64-bit integer.
static int compare_int_float(int64_t i, double f)
{
    if (isnan(f))
        return 2;
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)f;
    if (i != whole)
        return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(struct val a, struct val b)
{
    if (a.kind == V_FLOAT && b.kind == V_FLOAT)
        return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    if (a.kind == V_FLOAT) {
        int c = compare_int_float(int_of(b), a.f);
        return c == 2 ? 2 : -c;
    }
    if (b.kind == V_FLOAT)
        return compare_int_float(int_of(a), b.f);
    int64_t x = int_of(a), y = int_of(b);
    return (x > y) - (x < y);
}

bool val_same(struct run *r, struct val a, struct val b)
{
    if (a.kind != b.kind)
        return false;
    switch ((enum kind)a.kind) {
    case V_MISSING:
    case V_NONE:
        return true;
    case V_BOOL:
        return a.b == b.b;
    case V_INT:
        return a.i == b.i;
    case V_FLOAT:
        return a.f == b.f;
    case V_STR: // Python shares equal literals; nothing here depends on more than that
        return a.s == b.s || run_equal(r, a.s, b.s);
    default:
        return a.l == b.l;
    }
}

static bool equal_dicts(struct run *r, const struct dict *a, const struct dict *b)
{
    if (a->n_live != b->n_live)
        return false;
    run_step(r, a->n_used / 8);
    for (size_t i = 0; i < a->n_used; i++) {
        if (!a->e[i].live)
            continue;
        struct val *other = dict_get(r, b, a->e[i].key);
        if (!other || !val_equal(r, a->e[i].value, *other))
            return false;
    }
    return true;
}

bool val_equal(struct run *r, struct val a, struct val b)
{
    run_step(r, 1);
    if (is_number(a) && is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    bool same = true;
    switch ((enum kind)a.kind) {
    case V_UNDEF:
    case V_NONE:
        return true;
    case V_STR:
        return run_equal(r, a.s, b.s);
    case V_LIST:
    case V_TUPLE:
        if (a.l == b.l)
            return true;
        if (a.l->n != b.l->n)
            return false;
        run_enter(r);
        for (size_t i = 0; same && i < a.l->n && i < b.l->n; i++)
            same = val_equal(r, a.l->v[i], b.l->v[i]);
        run_leave(r);
        return same;
    case V_DICT:
        if (a.d == b.d)
            return true;
        run_enter(r);
        same = equal_dicts(r, a.d, b.d);
        run_leave(r);
        return same;
    case V_RANGE:
        if (a.range->n != b.range->n)
            return false;
        return a.range->n == 0 || (a.range->start == b.range->start &&
                                   (a.range->n == 1 || a.range->step == b.range->step));
    case V_NATIVE:
        return a.bound == b.bound ||
               (a.bound->fn == b.bound->fn && val_same(r, a.bound->self, b.bound->self));
    default:
        return val_same(r, a, b);
    }
}

int val_compare(struct run *r, struct val a, struct val b, const char *op)
{
    run_step(r, 1);
    if (is_number(a) && is_number(b))
        return compare_numbers(a, b);
    if (a.kind == V_STR && b.kind == V_STR) {
        run_step(r, (a.s->n < b.s->n ? a.s->n : b.s->n) / 64);
        return str_compare(a.s, b.s);
    }
    if ((a.kind == V_LIST || a.kind == V_TUPLE) && a.kind == b.kind) {
        for (size_t i = 0; i < a.l->n && i < b.l->n; i++)
            if (!val_equal(r, a.l->v[i], b.l->v[i])) {
                run_enter(r);
                int c = val_compare(r, a.l->v[i], b.l->v[i], op);
                run_leave(r);
                return c;
            }
        return (a.l->n > b.l->n) - (a.l->n < b.l->n);
    }
    if (a.kind == V_UNDEF)
        run_fail_undef(r, &a);
    if (b.kind == V_UNDEF)
        run_fail_undef(r, &b);
    run_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, val_type(a),
             val_type(b));
}

bool val_contains(struct run *r, struct val item, struct val in)
{
    if (in.kind == V_STR) {
        if (item.kind != V_STR)
            run_fail(r, "'in <string>' requires string as left operand, not %s", val_type(item));
        return text_find(r, in.s, 0, in.s->n, item.s, false) != SIZE_MAX;
    }
    if (in.kind == V_DICT)
        return dict_get(r, in.d, item) != NULL;
    if (in.kind == V_VIEW && in.view->what == VIEW_KEYS)
        return dict_get(r, in.view->d, item) != NULL;
    if (in.kind != V_UNDEF && !val_iterable(in))
        run_fail(r, "argument of type '%s' is not iterable", val_type(in));
    struct iter storage, *it = iter_begin(r, in, &storage);
    struct val v;
    while (iter_next(r, it, &v))
        if (val_equal(r, v, item))
            return true;
    return false;
}

size_t val_length(struct run *r, struct val v)
{
    switch ((enum kind)v.kind) {
    case V_UNDEF:
        return 0;
    case V_STR:
        return str_chars(r, v.s);
    case V_LIST:
    case V_TUPLE:
        return v.l->n;
    case V_DICT:
        return v.d->n_live;
    case V_RANGE:
        return (size_t)v.range->n;
    case V_VIEW:
        return v.view->d->n_live;
    case V_LOOP:
        return loop_length(r, v.loop);
    default:
        run_fail(r, "object of type '%s' has no len()", val_type(v));
    }
}

uint32_t val_origin(struct run *r, struct val v)
{
    run_step(r, 1);
    uint32_t o = v.origin;
    if (v.kind == V_STR)
        return str_origin(v.s);
    if (v.kind == V_LIST || v.kind == V_TUPLE) {
        run_enter(r);
        for (size_t i = 0; i < v.l->n && o != ORIGIN_DATA; i++)
            o = str_origin_merge(o, val_origin(r, v.l->v[i]));
        run_leave(r);
    } else if (v.kind == V_DICT || v.kind == V_NAMESPACE || v.kind == V_VIEW) {
        const struct dict *d = v.kind == V_VIEW ? v.view->d : v.d;
        run_step(r, d->n_used / 8);
        run_enter(r);
        for (size_t i = 0; i < d->n_used && o != ORIGIN_DATA; i++)
            if (d->e[i].live)
                o = str_origin_merge(
                    o, str_origin_merge(val_origin(r, d->e[i].key), val_origin(r, d->e[i].value)));
        run_leave(r);
    } else if (v.kind == V_ITER) {
        o = str_origin_merge(o, val_origin(r, v.iter->over));
    }
    return o;
}

// ---- dictionaries ----

static uint64_t mix(uint64_t h)
{
    return hash_u64(h, 0);
}

static uint64_t val_hash(struct run *r, struct val v)
{
    switch ((enum kind)v.kind) {
    case V_STR:
        run_step(r, 1 + v.s->n / 16);
        return hash_bytes(v.s->p, v.s->n, 0);
    case V_BOOL:
        return mix((uint64_t)v.b);
    case V_INT:
        return mix((uint64_t)v.i);
    case V_FLOAT: // equal numbers hash alike
        if (v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == (double)(int64_t)v.f)
            return mix((uint64_t)(int64_t)v.f);
        return hash_bytes((const char *)&v.f, sizeof v.f, 0);
    case V_TUPLE: {
        uint64_t h = v.l->n;
        run_step(r, v.l->n);
        run_enter(r);
        for (size_t i = 0; i < v.l->n; i++)
            h = mix(h * 31 + val_hash(r, v.l->v[i]));
        run_leave(r);
        return h;
    }
    case V_LIST:
    case V_DICT:
        run_fail(r, "unhashable type: '%s'", val_type(v));
    case V_UNDEF:
    case V_NONE:
        return mix(v.kind);
    default:
        return mix((uint64_t)(uintptr_t)v.l);
    }
}

enum { SMALL_DICT = 8 };

static void index_insert(struct dict *d, uint64_t hash, size_t number)
{
    size_t i = hash & (d->n_index - 1);
    while (d->index[i])
        i = (i + 1) & (d->n_index - 1);
    d->index[i] = (uint32_t)number + 1;
}

static struct entry *find_entry(struct run *r, const struct dict *d, struct val key, uint64_t hash)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n_used; i++)
            if (d->e[i].live && d->e[i].hash == hash && val_equal(r, d->e[i].key, key))
                return &d->e[i];
        return NULL;
    }
    for (size_t i = hash & (d->n_index - 1); d->index[i]; i = (i + 1) & (d->n_index - 1)) {
        struct entry *e = &d->e[d->index[i] - 1];
        run_step(r, 1); // keys chosen to collide pay for it
        if (e->live && e->hash == hash && val_equal(r, e->key, key))
            return e;
    }
    return NULL;
}

struct val *dict_get(struct run *r, const struct dict *d, struct val key)
{
    struct entry *e = find_entry(r, d, key, val_hash(r, key));
    return e ? &e->value : NULL;
}

struct val *dict_get_name(struct run *r, const struct dict *d, const char *p, size_t n)
{
    struct str s = {.p = p, .n = n, .n_chars = SIZE_MAX};
    return dict_get(r, d, str_val(&s));
}

static void grow_dict(struct run *r, struct dict *d)
{
    if (d->n_used == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        if (cap > UINT32_MAX / 4)
            run_fail_limit(r, "memory", r->limits.max_memory, "bytes");
        d->e = run_grow(r, d->e, d->n_used * sizeof *d->e, cap * sizeof *d->e);
        d->cap = cap;
    }
    if (d->n_used >= SMALL_DICT && d->n_used * 2 >= d->n_index) {
        d->n_index = d->n_index ? d->n_index * 2 : SMALL_DICT * 4;
        d->index = run_alloc(r, d->n_index * sizeof *d->index);
        run_step(r, d->n_used);
        for (size_t i = 0; i < d->n_used; i++)
            index_insert(d, d->e[i].hash, i);
    }
}

void dict_set(struct run *r, struct dict *d, struct val key, struct val value)
{
    uint64_t hash = val_hash(r, key);
    run_step(r, 1);
    struct entry *e = find_entry(r, d, key, hash);
    if (e) {
        e->value = value; // as in Python the first key stays
        return;
    }
    grow_dict(r, d);
    d->e[d->n_used] = (struct entry){key, value, hash, true};
    if (d->index)
        index_insert(d, hash, d->n_used);
    d->n_used++;
    d->n_live++;
}

bool dict_remove(struct run *r, struct dict *d, struct val key, struct val *value)
{
    struct entry *e = find_entry(r, d, key, val_hash(r, key));
    if (!e)
        return false;
    *value = e->value;
    e->live = false;
    d->n_live--;
    return true;
}

// ---- iteration ----

bool val_iterable(struct val v)
{
    switch ((enum kind)v.kind) {
    case V_UNDEF:
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_ITER:
        return true;
    default:
        return false;
    }
}

struct iter *iter_begin(struct run *r, struct val v, struct iter *storage)
{
    if (v.kind == V_ITER)
        return v.iter;
    if (!val_iterable(v))
        run_fail(r, "'%s' object is not iterable", val_type(v));
    *storage = (struct iter){.over = v, .left = val_length(r, v)};
    return storage;
}

static bool next_entry(struct run *r, struct iter *it, const struct dict *d, size_t *number)
{
    for (size_t skipped = 1; it->at < d->n_used; skipped++) {
        if (skipped % 8 == 0) // removed entries are still passed by
            run_step(r, 1);
        size_t i = it->backwards ? d->n_used - 1 - it->at : it->at;
        it->at++;
        if (d->e[i].live) {
            *number = i;
            return true;
        }
    }
    return false;
}

bool iter_next(struct run *r, struct iter *it, struct val *item)
{
    run_step(r, 1);
    if (!it->left)
        return false;
    it->left--;
    struct val v = it->over;
    size_t i = it->at;
    switch ((enum kind)v.kind) {
    case V_LIST:
    case V_TUPLE:
        if (i >= v.l->n) {
            it->left = 0;
            return false;
        }
        it->at++;
        *item = v.l->v[it->backwards ? v.l->n - 1 - i : i];
        return true;
    case V_RANGE: {
        it->at++;
        int64_t k = it->backwards ? v.range->n - 1 - (int64_t)i : (int64_t)i;
        *item = val_with_origin(val_int(range_item(v.range, k)), v.origin);
        return true;
    }
    case V_STR: {
        size_t end = i + 1;
        while (end < v.s->n && ((unsigned char)v.s->p[end] & 0xC0) == 0x80)
            end++;
        *item = str_sub(r, v.s, i, end);
        it->at = end;
        return true;
    }
    case V_DICT:
        if (!next_entry(r, it, v.d, &i))
            return false;
        *item = v.d->e[i].key;
        return true;
    case V_VIEW: {
        struct dict *d = v.view->d;
        if (!next_entry(r, it, d, &i))
            return false;
        *item = v.view->what == VIEW_KEYS     ? d->e[i].key
                : v.view->what == VIEW_VALUES ? d->e[i].value
                                              : val_pair(r, d->e[i].key, d->e[i].value);
        return true;
    }
    default:
        return false;
    }
}

struct val iter_list(struct run *r, struct val v)
{
    struct iter storage, *it = iter_begin(r, v, &storage);
    struct val out = val_list(r, it->left < 1024 ? it->left : 1024), item;
    while (iter_next(r, it, &item))
        list_push(r, out.l, item);
    return out;
}
