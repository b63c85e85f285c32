// Filters on sequences and dictionaries.
#include "jinja/runtime.h"

#include <string.h>

#define FILTER(name)                                                                               \
    static struct val name(struct run *r, struct val self, const struct val *v,                    \
                           const struct args *a)
#define UNUSED_ARGS (void)r, (void)self, (void)v, (void)a

static const struct val missing = {.kind = V_MISSING};

static struct val generator(struct run *r, struct val list)
{
    return val_iter(r, list, "generator");
}

static struct val ignore_case(struct run *r, struct val v)
{
    return v.kind == V_STR ? text_case(r, v.s, 'l') : v;
}

// How an item becomes what it is compared by.
struct key {
    struct val path;      // V_MISSING, V_NONE: the item itself
    struct val otherwise; // for what is undefined; V_MISSING: stays undefined
    bool case_sensitive;
};

static struct val key_of(struct run *r, struct val item, const void *how)
{
    const struct key *k = how;
    if (k->path.kind != V_MISSING)
        item = access_path(r, item, k->path, k->otherwise);
    return k->case_sensitive ? item : ignore_case(r, item);
}

static struct val none_is_missing(struct val v)
{
    return v.kind == V_NONE ? missing : v;
}

// The key of `sort`: "a,b" sorts by a, then by b.
static struct val keys_of(struct run *r, struct val item, const void *how)
{
    const struct key *k = how;
    struct val out = val_list(r, 1);
    if (k->path.kind != V_STR) {
        list_push(r, out.l, key_of(r, item, how));
        return out;
    }
    struct val comma = val_cstr(r, ","), parts = text_split(r, k->path.s, &comma, -1, false);
    for (size_t i = 0; i < parts.l->n; i++) {
        struct key one = {parts.l->v[i], missing, k->case_sensitive};
        list_push(r, out.l, key_of(r, item, &one));
    }
    return out;
}

FILTER(filter_sort)
{
    UNUSED_ARGS;
    struct key k = {v[2], missing, args_bool(&v[1])};
    struct val list = iter_list(r, self);
    sort_values(r, list.l, keys_of, &k, args_bool(&v[0]));
    return list;
}

static struct val second_of(struct run *r, struct val item, const void *how)
{
    return key_of(r, item.l->v[1], how);
}

static struct val first_of(struct run *r, struct val item, const void *how)
{
    return key_of(r, item.l->v[0], how);
}

static struct val dict_pairs(struct run *r, struct val d)
{
    struct val list = val_list(r, d.d->n_live);
    run_step(r, d.d->n_used / 8);
    for (size_t i = 0; i < d.d->n_used; i++)
        if (d.d->e[i].live)
            list_push(r, list.l, val_pair(r, d.d->e[i].key, d.d->e[i].value));
    return list;
}

// dictsort(value, case_sensitive=False, by="key", reverse=False)
FILTER(filter_dictsort)
{
    UNUSED_ARGS;
    if (self.kind == V_UNDEF)
        run_fail_undef(r, &self);
    if (self.kind != V_DICT)
        run_fail(r, "dictsort needs a dict, not %s", val_type(self));
    const struct str *by = args_given(&v[1]) ? args_str(r, &v[1], "by") : NULL;
    if (by && !str_is(by, "key") && !str_is(by, "value"))
        run_fail(r, "you can only sort by either \"key\" or \"value\"");
    struct key k = {missing, missing, args_bool(&v[0])};
    struct val list = dict_pairs(r, self);
    sort_values(r, list.l, by && str_is(by, "value") ? second_of : first_of, &k, args_bool(&v[2]));
    return list;
}

FILTER(filter_items)
{
    UNUSED_ARGS;
    if (self.kind == V_UNDEF)
        return generator(r, val_list(r, 0));
    if (self.kind != V_DICT)
        run_fail(r, "can only get item pairs from a mapping, not %s", val_type(self));
    return generator(r, dict_pairs(r, self));
}

FILTER(filter_unique)
{
    UNUSED_ARGS;
    struct key k = {none_is_missing(v[1]), missing, args_bool(&v[0])};
    struct val out = val_list(r, 0), seen = val_dict(r), item;
    struct iter storage, *it = iter_begin(r, self, &storage);
    while (iter_next(r, it, &item)) {
        struct val key = key_of(r, item, &k);
        if (dict_get(r, seen.d, key))
            continue;
        dict_set(r, seen.d, key, val_none());
        list_push(r, out.l, item);
    }
    return generator(r, out);
}

static struct val extreme(struct run *r, struct val self, const struct val *v, bool largest)
{
    struct key k = {none_is_missing(v[1]), missing, args_bool(&v[0])};
    struct iter storage, *it = iter_begin(r, self, &storage);
    struct val best, item;
    if (!iter_next(r, it, &best))
        return val_undef(r, "No aggregated item, sequence was empty.", NULL, missing);
    struct val best_key = key_of(r, best, &k);
    while (iter_next(r, it, &item)) {
        struct val key = key_of(r, item, &k);
        int c = val_compare(r, key, best_key, largest ? ">" : "<");
        if (c != 2 && (largest ? c > 0 : c < 0)) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

FILTER(filter_min)
{
    UNUSED_ARGS;
    return extreme(r, self, v, false);
}

FILTER(filter_max)
{
    UNUSED_ARGS;
    return extreme(r, self, v, true);
}

// sum(iterable, attribute=None, start=0)
FILTER(filter_sum)
{
    UNUSED_ARGS;
    struct val total = args_given(&v[1]) ? v[1] : val_int(0), item;
    if (total.kind == V_STR)
        run_fail(r, "sum() can't sum strings; use join instead");
    struct iter storage, *it = iter_begin(r, self, &storage);
    while (iter_next(r, it, &item)) {
        if (args_given(&v[0]))
            item = access_path(r, item, v[0], missing);
        total = ops_binary(r, OP_ADD, total, item);
    }
    return total;
}

FILTER(filter_join)
{
    UNUSED_ARGS;
    struct str *sep = args_given(&v[0]) ? pytext_str(r, v[0]).s : val_cstr(r, "").s;
    if (none_is_missing(v[1]).kind != V_MISSING) {
        struct val list = val_list(r, 0), item;
        struct iter storage, *it = iter_begin(r, self, &storage);
        while (iter_next(r, it, &item))
            list_push(r, list.l, access_path(r, item, v[1], missing));
        self = list;
    }
    return text_join(r, sep, self, true);
}

FILTER(filter_first)
{
    UNUSED_ARGS;
    struct iter storage, *it = iter_begin(r, self, &storage);
    struct val item;
    return iter_next(r, it, &item)
               ? item
               : val_undef(r, "No first item, sequence was empty.", NULL, missing);
}

static struct val reversed_list(struct run *r, struct val v)
{
    struct val list = iter_list(r, v), out = val_list(r, list.l->n);
    for (size_t i = list.l->n; i-- > 0;)
        list_push(r, out.l, list.l->v[i]);
    return out;
}

FILTER(filter_last)
{
    UNUSED_ARGS;
    if (self.kind == V_ITER)
        run_fail(r, "'%s' object is not reversible", val_type(self));
    if (self.kind == V_LIST || self.kind == V_TUPLE || self.kind == V_STR || self.kind == V_RANGE) {
        struct val item = access_item(r, self, val_int(-1));
        if (item.kind != V_UNDEF || val_length(r, self))
            return item;
    }
    struct val list = iter_list(r, self);
    return list.l->n ? list.l->v[list.l->n - 1]
                     : val_undef(r, "No last item, sequence was empty.", NULL, missing);
}

FILTER(filter_reverse)
{
    UNUSED_ARGS;
    if (self.kind == V_STR)
        return access_slice(r, self, val_none(), val_none(), val_int(-1));
    if (!val_iterable(self))
        run_fail(r, "argument must be iterable, not %s", val_type(self));
    struct val list = reversed_list(r, self);
    if (self.kind == V_ITER)
        return list;
    return val_iter(r, list,
                    self.kind == V_LIST    ? "list_reverseiterator"
                    : self.kind == V_RANGE ? "range_iterator"
                                           : "reversed");
}

FILTER(filter_list)
{
    UNUSED_ARGS;
    return iter_list(r, self);
}

// ---- map, select, reject ----

static struct args shifted(const struct args *a, size_t n)
{
    struct args rest = *a;
    rest.pos += n;
    rest.n_pos -= n;
    return rest;
}

static struct val keyword(const struct args *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_is(a->kw_name[i].s, name))
            return a->kw[i];
    return missing;
}

// map(filter, arguments...) or map(attribute=..., default=...)
FILTER(filter_map)
{
    UNUSED_ARGS;
    struct val out = val_list(r, 0), item, path = missing, otherwise = missing;
    const struct str *name = NULL;
    struct args rest = {0};
    if (!val_truth(&self)) // as Jinja2: nothing is looked at
        return generator(r, out);
    if (!a->n_pos && keyword(a, "attribute").kind != V_MISSING) {
        path = keyword(a, "attribute");
        otherwise = none_is_missing(keyword(a, "default"));
        for (size_t i = 0; i < a->n_kw; i++)
            if (!str_is(a->kw_name[i].s, "attribute") && !str_is(a->kw_name[i].s, "default"))
                run_fail(r, "unexpected keyword argument '%.*s'", (int)a->kw_name[i].s->n,
                         a->kw_name[i].s->p);
    } else {
        if (!a->n_pos)
            run_fail(r, "map requires a filter argument");
        name = args_str(r, &a->pos[0], "filter name");
        rest = shifted(a, 1);
    }
    struct iter storage, *it = iter_begin(r, self, &storage);
    while (iter_next(r, it, &item))
        list_push(r, out.l,
                  name ? filters_call(r, name, item, &rest)
                       : access_path(r, item, path, otherwise));
    return generator(r, out);
}

static struct val select_items(struct run *r, struct val self, const struct args *a, bool want,
                               bool by_attribute)
{
    struct val out = val_list(r, 0), item;
    if (!val_truth(&self))
        return generator(r, out);
    if (by_attribute && !a->n_pos)
        run_fail(r, "missing parameter for attribute name");
    size_t off = by_attribute;
    const struct str *name = a->n_pos > off ? args_str(r, &a->pos[off], "test name") : NULL;
    struct args rest = name ? shifted(a, off + 1) : (struct args){0};
    struct iter storage, *it = iter_begin(r, self, &storage);
    while (iter_next(r, it, &item)) {
        struct val v = by_attribute ? access_path(r, item, a->pos[0], missing) : item;
        bool ok = name ? predicates_call(r, name, v, &rest) : val_truth(&v);
        if (ok == want)
            list_push(r, out.l, item);
    }
    return generator(r, out);
}

FILTER(filter_select)
{
    UNUSED_ARGS;
    return select_items(r, self, a, true, false);
}

FILTER(filter_reject)
{
    UNUSED_ARGS;
    return select_items(r, self, a, false, false);
}

FILTER(filter_selectattr)
{
    UNUSED_ARGS;
    return select_items(r, self, a, true, true);
}

FILTER(filter_rejectattr)
{
    UNUSED_ARGS;
    return select_items(r, self, a, false, true);
}

const struct native filters_seq[] = {
    {"join", filter_join, 0, "d attribute"},
    {"first", filter_first, 0, ""},
    {"last", filter_last, 0, ""},
    {"list", filter_list, 0, ""},
    {"items", filter_items, 0, ""},
    {"map", filter_map, 0, "*"},
    {"select", filter_select, 0, "*"},
    {"reject", filter_reject, 0, "*"},
    {"selectattr", filter_selectattr, 0, "*"},
    {"rejectattr", filter_rejectattr, 0, "*"},
    {"sort", filter_sort, 0, "reverse case_sensitive attribute"},
    {"dictsort", filter_dictsort, 0, "case_sensitive by reverse"},
    {"unique", filter_unique, 0, "case_sensitive attribute"},
    {"reverse", filter_reverse, 0, ""},
    {"min", filter_min, 0, "case_sensitive attribute"},
    {"max", filter_max, 0, "case_sensitive attribute"},
    {"sum", filter_sum, 0, "attribute start"},
};
const size_t filters_seq_n = sizeof filters_seq / sizeof *filters_seq;
