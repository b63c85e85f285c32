// The methods of str, list, tuple and dict that templates call.
#include "jinja/runtime.h"

#include <string.h>

#include "base/utf8.h"
#include "base/unicode.h"

#define METHOD(name)                                                                               \
    static struct val name(struct run *r, struct val self, const struct val *v,                    \
                           const struct args *a)
#define UNUSED_ARGS (void)r, (void)self, (void)v, (void)a

static struct val like(struct val v, struct val self)
{
    v.safe = self.safe;
    return v;
}

// Its pieces are as safe as the string that they are of.
static struct val all_like(struct val pieces, struct val self)
{
    for (size_t i = 0; self.safe && i < pieces.l->n; i++)
        pieces.l->v[i].safe = true;
    return pieces;
}

// What comes into a safe string is escaped, as markupsafe does it.
static struct val into(struct run *r, struct val v, struct val self)
{
    return self.safe && v.kind != V_MISSING ? pyformat_html(r, v) : v;
}

// ---- str: case, strip, split ----

METHOD(str_upper)
{
    UNUSED_ARGS;
    return like(text_case(r, self.s, 'u'), self);
}

METHOD(str_lower)
{
    UNUSED_ARGS;
    return like(text_case(r, self.s, 'l'), self);
}

METHOD(str_capitalize)
{
    UNUSED_ARGS;
    return like(text_case(r, self.s, 'c'), self);
}

METHOD(str_title)
{
    UNUSED_ARGS;
    return like(text_case(r, self.s, 't'), self);
}

METHOD(str_strip)
{
    UNUSED_ARGS;
    return like(text_strip(r, self.s, &v[0], 'b'), self);
}

METHOD(str_lstrip)
{
    UNUSED_ARGS;
    return like(text_strip(r, self.s, &v[0], 'l'), self);
}

METHOD(str_rstrip)
{
    UNUSED_ARGS;
    return like(text_strip(r, self.s, &v[0], 'r'), self);
}

METHOD(str_split)
{
    UNUSED_ARGS;
    return all_like(text_split(r, self.s, &v[0], args_int(r, &v[1], -1, "maxsplit"), false), self);
}

METHOD(str_rsplit)
{
    UNUSED_ARGS;
    return all_like(text_split(r, self.s, &v[0], args_int(r, &v[1], -1, "maxsplit"), true), self);
}

METHOD(str_splitlines)
{
    UNUSED_ARGS;
    return all_like(text_lines(r, self.s, args_bool(&v[0])), self);
}

static struct val partition(struct run *r, struct str *s, const struct val *sep_val, bool right)
{
    struct str *sep = args_str(r, sep_val, "separator");
    if (!sep->n)
        run_fail(r, "empty separator");
    size_t at = text_find(r, s, 0, s->n, sep, right);
    struct val out = val_tuple(r, 3), empty = val_cstr(r, "");
    if (at == SIZE_MAX) {
        list_push(r, out.l, right ? empty : str_val(s));
        list_push(r, out.l, empty);
        list_push(r, out.l, right ? str_val(s) : empty);
    } else {
        list_push(r, out.l, str_sub(r, s, 0, at));
        list_push(r, out.l, str_sub(r, s, at, at + sep->n));
        list_push(r, out.l, str_sub(r, s, at + sep->n, s->n));
    }
    return out;
}

METHOD(str_partition)
{
    UNUSED_ARGS;
    return all_like(partition(r, self.s, &v[0], false), self);
}

METHOD(str_rpartition)
{
    UNUSED_ARGS;
    return all_like(partition(r, self.s, &v[0], true), self);
}

METHOD(str_removeprefix)
{
    UNUSED_ARGS;
    const struct str *p = args_str(r, &v[0], "prefix");
    run_step(r, p->n / 64);
    bool there = p->n <= self.s->n && memcmp(self.s->p, p->p, p->n) == 0;
    return there ? like(str_sub(r, self.s, p->n, self.s->n), self) : self;
}

METHOD(str_removesuffix)
{
    UNUSED_ARGS;
    const struct str *p = args_str(r, &v[0], "suffix");
    run_step(r, p->n / 64);
    size_t n = self.s->n;
    bool there = p->n && p->n <= n && memcmp(self.s->p + n - p->n, p->p, p->n) == 0;
    return there ? like(str_sub(r, self.s, 0, n - p->n), self) : self;
}

// ---- str: search ----

static int64_t bound_arg(struct run *r, const struct val *v, int64_t otherwise, int64_t n)
{
    if (v->kind == V_NONE)
        return otherwise;
    int64_t i = args_int(r, v, otherwise, "index");
    if (i < 0)
        i = i < -n ? 0 : i + n;
    return i;
}

// The part of s between the optional arguments start and end, in bytes. False: an empty range
// that even "" is not in.
static bool part(struct run *r, struct str *s, const struct val *v, size_t *from, size_t *to)
{
    int64_t n = (int64_t)str_chars(r, s);
    int64_t start = bound_arg(r, &v[0], 0, n), end = bound_arg(r, &v[1], n, n);
    if (end > n)
        end = n;
    if (start > end)
        return false;
    *from = str_offset(r, s, (size_t)start);
    *to = str_offset(r, s, (size_t)end);
    return true;
}

static int64_t chars_before(struct run *r, struct str *s, size_t byte)
{
    struct val head = str_sub(r, s, 0, byte);
    return (int64_t)str_chars(r, head.s);
}

static int64_t find(struct run *r, struct str *s, const struct val *v, bool last)
{
    size_t from, to;
    struct str *what = args_str(r, &v[0], "substring");
    if (!part(r, s, v + 1, &from, &to))
        return -1;
    size_t at = text_find(r, s, from, to, what, last);
    return at == SIZE_MAX ? -1 : chars_before(r, s, at);
}

METHOD(str_find)
{
    UNUSED_ARGS;
    return val_int(find(r, self.s, v, false));
}

METHOD(str_rfind)
{
    UNUSED_ARGS;
    return val_int(find(r, self.s, v, true));
}

METHOD(str_index)
{
    UNUSED_ARGS;
    int64_t i = find(r, self.s, v, false);
    if (i < 0)
        run_fail(r, "substring not found");
    return val_int(i);
}

METHOD(str_rindex)
{
    UNUSED_ARGS;
    int64_t i = find(r, self.s, v, true);
    if (i < 0)
        run_fail(r, "substring not found");
    return val_int(i);
}

METHOD(str_count)
{
    UNUSED_ARGS;
    size_t from, to;
    int64_t count = 0;
    struct str *what = args_str(r, &v[0], "substring");
    if (!part(r, self.s, v + 1, &from, &to))
        return val_int(0);
    if (!what->n)
        return val_int((int64_t)str_chars(r, str_sub(r, self.s, from, to).s) + 1);
    for (;; count++) {
        run_step(r, 1);
        from = text_find(r, self.s, from, to, what, false);
        if (from == SIZE_MAX)
            return val_int(count);
        from += what->n;
    }
}

static bool affix(struct run *r, struct str *s, const struct val *v, bool end)
{
    size_t from, to;
    if (!part(r, s, v + 1, &from, &to))
        return false;
    struct list one = {.v = &(struct val){0}, .n = 1}, *all = &one;
    one.v[0] = v[0];
    if (v[0].kind == V_TUPLE)
        all = v[0].l;
    for (size_t i = 0; i < all->n; i++) {
        const struct str *x = args_str(r, &all->v[i], end ? "suffix" : "prefix");
        run_step(r, 1);
        if (x->n > to - from)
            continue;
        run_step(r, x->n / 64);
        if (memcmp(s->p + (end ? to - x->n : from), x->p, x->n) == 0)
            return true;
    }
    return false;
}

METHOD(str_startswith)
{
    UNUSED_ARGS;
    return val_bool(affix(r, self.s, v, false));
}

METHOD(str_endswith)
{
    UNUSED_ARGS;
    return val_bool(affix(r, self.s, v, true));
}

// ---- str: the rest ----

METHOD(str_replace)
{
    UNUSED_ARGS;
    const struct val new = into(r, v[1], self);
    return like(text_replace(r, self.s, args_str(r, &v[0], "old"), args_str(r, &new, "new"),
                             args_int(r, &v[2], -1, "count")),
                self);
}

METHOD(str_join)
{
    UNUSED_ARGS;
    if (!self.safe)
        return text_join(r, self.s, v[0], false);
    struct val items = val_list(r, 0), item;
    struct iter storage, *it = iter_begin(r, v[0], &storage);
    while (iter_next(r, it, &item))
        list_push(r, items.l, into(r, item, self));
    return like(text_join(r, self.s, items, false), self);
}

METHOD(str_format)
{
    UNUSED_ARGS;
    return like(pyformat_braces(r, self, a), self);
}

METHOD(str_center)
{
    UNUSED_ARGS;
    const struct val with = into(r, v[1], self);
    return like(text_pad(r, self.s, args_int(r, &v[0], 0, "width"), &with, 'c'), self);
}

METHOD(str_ljust)
{
    UNUSED_ARGS;
    const struct val with = into(r, v[1], self);
    return like(text_pad(r, self.s, args_int(r, &v[0], 0, "width"), &with, 'l'), self);
}

METHOD(str_rjust)
{
    UNUSED_ARGS;
    const struct val with = into(r, v[1], self);
    return like(text_pad(r, self.s, args_int(r, &v[0], 0, "width"), &with, 'r'), self);
}

METHOD(str_zfill)
{
    UNUSED_ARGS;
    const struct val none = {.kind = V_MISSING};
    return like(text_pad(r, self.s, args_int(r, &v[0], 0, "width"), &none, 'z'), self);
}

static bool all_chars(struct run *r, const struct str *s, bool letters, bool numerals, bool digits)
{
    run_step(r, s->n / 2);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp;
        n = utf8_decode(s->p + i, s->n - i, &cp);
        if (!(letters && uni_is(cp, UNI_LETTER)) && !(numerals && uni_is(cp, UNI_NUMERAL)) &&
            !(digits && uni_is(cp, UNI_DIGIT)))
            return false;
    }
    return s->n != 0;
}

METHOD(str_isalpha)
{
    UNUSED_ARGS;
    return val_bool(all_chars(r, self.s, true, false, false));
}

METHOD(str_isalnum)
{
    UNUSED_ARGS;
    return val_bool(all_chars(r, self.s, true, true, true));
}

METHOD(str_isdigit)
{
    UNUSED_ARGS;
    return val_bool(all_chars(r, self.s, false, false, true));
}

METHOD(str_isnumeric)
{
    UNUSED_ARGS;
    return val_bool(all_chars(r, self.s, false, true, false));
}

METHOD(str_isascii)
{
    UNUSED_ARGS;
    return val_bool(str_chars(r, self.s) == self.s->n);
}

METHOD(str_isspace)
{
    UNUSED_ARGS;
    run_step(r, self.s->n / 4);
    return val_bool(self.s->n && uni_skip_space(self.s->p, 0, self.s->n) == self.s->n);
}

// Every letter that has two cases is in one, how: 'l' or 'u'.
static bool is_case(struct run *r, const struct str *s, char how)
{
    bool any = false;
    run_step(r, s->n / 2);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp, to[3];
        n = utf8_decode(s->p + i, s->n - i, &cp);
        if (uni_case(cp, how, to) != 1 || to[0] != cp)
            return false;
        any = any || uni_case(cp, how == 'l' ? 'u' : 'l', to) != 1 || to[0] != cp;
    }
    return any;
}

METHOD(str_islower)
{
    UNUSED_ARGS;
    return val_bool(is_case(r, self.s, 'l'));
}

METHOD(str_isupper)
{
    UNUSED_ARGS;
    return val_bool(is_case(r, self.s, 'u'));
}

// ---- list and tuple ----

METHOD(seq_index)
{
    UNUSED_ARGS;
    int64_t n = (int64_t)self.l->n;
    int64_t from = bound_arg(r, &v[1], 0, n), to = bound_arg(r, &v[2], n, n);
    for (int64_t i = from; i < to && i < n; i++)
        if (val_equal(r, self.l->v[i], v[0]))
            return val_int(i);
    struct val what = pytext_repr(r, v[0]);
    run_fail(r, "%.*s is not in %s", (int)(what.s->n < 100 ? what.s->n : 100), what.s->p,
             val_type(self));
}

METHOD(seq_count)
{
    UNUSED_ARGS;
    int64_t count = 0;
    for (size_t i = 0; i < self.l->n; i++)
        count += val_equal(r, self.l->v[i], v[0]);
    return val_int(count);
}

METHOD(list_append)
{
    UNUSED_ARGS;
    list_push(r, self.l, v[0]);
    return val_none();
}

METHOD(list_extend)
{
    UNUSED_ARGS;
    struct val more = iter_list(r, v[0]);
    for (size_t i = 0; i < more.l->n; i++)
        list_push(r, self.l, more.l->v[i]);
    return val_none();
}

METHOD(list_insert)
{
    UNUSED_ARGS;
    struct list *l = self.l;
    int64_t at = bound_arg(r, &v[0], 0, (int64_t)l->n);
    if (at > (int64_t)l->n)
        at = (int64_t)l->n;
    list_push(r, l, v[1]);
    run_step(r, l->n / 8);
    memmove(l->v + at + 1, l->v + at, (l->n - 1 - (size_t)at) * sizeof *l->v);
    l->v[at] = v[1];
    return val_none();
}

static struct val list_take(struct run *r, struct list *l, size_t at)
{
    struct val v = l->v[at];
    run_step(r, (l->n - at) / 8);
    memmove(l->v + at, l->v + at + 1, (l->n - at - 1) * sizeof *l->v);
    l->n--;
    return v;
}

METHOD(list_pop)
{
    UNUSED_ARGS;
    int64_t n = (int64_t)self.l->n, at = args_int(r, &v[0], -1, "index");
    if (!n)
        run_fail(r, "pop from empty list");
    if (at < 0)
        at += n;
    if (at < 0 || at >= n)
        run_fail(r, "pop index out of range");
    return list_take(r, self.l, (size_t)at);
}

METHOD(list_remove)
{
    UNUSED_ARGS;
    for (size_t i = 0; i < self.l->n; i++)
        if (val_equal(r, self.l->v[i], v[0])) {
            list_take(r, self.l, i);
            return val_none();
        }
    run_fail(r, "list.remove(x): x not in list");
}

METHOD(list_clear)
{
    UNUSED_ARGS;
    self.l->n = 0;
    return val_none();
}

METHOD(list_copy)
{
    UNUSED_ARGS;
    return val_with_origin(iter_list(r, self), self.origin);
}

METHOD(list_reverse)
{
    UNUSED_ARGS;
    struct val copy = iter_list(r, self);
    for (size_t i = 0; i < copy.l->n; i++)
        self.l->v[i] = copy.l->v[copy.l->n - 1 - i];
    return val_none();
}

METHOD(list_sort)
{
    UNUSED_ARGS;
    sort_values(r, self.l, NULL, NULL, args_bool(&v[0]));
    return val_none();
}

// ---- dict ----

static struct val view(struct run *r, struct val self, enum view_kind what)
{
    struct view *w = run_alloc(r, sizeof *w);
    *w = (struct view){what, self.d, self.origin};
    return (struct val){.kind = V_VIEW, .view = w, .origin = self.origin};
}

METHOD(dict_keys)
{
    UNUSED_ARGS;
    return view(r, self, VIEW_KEYS);
}

METHOD(dict_values)
{
    UNUSED_ARGS;
    return view(r, self, VIEW_VALUES);
}

METHOD(dict_items)
{
    UNUSED_ARGS;
    return view(r, self, VIEW_ITEMS);
}

METHOD(dict_get_method)
{
    UNUSED_ARGS;
    struct val *found = dict_get(r, self.d, v[0]);
    return found ? *found : args_given(&v[1]) ? v[1] : val_none();
}

METHOD(dict_pop)
{
    UNUSED_ARGS;
    struct val found;
    if (dict_remove(r, self.d, v[0], &found))
        return found;
    if (args_given(&v[1]))
        return v[1];
    struct val what = pytext_repr(r, v[0]);
    run_fail(r, "key %.*s is not in the dict", (int)(what.s->n < 100 ? what.s->n : 100), what.s->p);
}

METHOD(dict_setdefault)
{
    UNUSED_ARGS;
    struct val *found = dict_get(r, self.d, v[0]);
    if (found)
        return *found;
    struct val value = args_given(&v[1]) ? v[1] : val_none();
    dict_set(r, self.d, v[0], value);
    return value;
}

METHOD(dict_update)
{
    UNUSED_ARGS;
    struct val more = globals_dict(r, val_none(), NULL, a);
    for (size_t i = 0; i < more.d->n_used; i++)
        dict_set(r, self.d, more.d->e[i].key, more.d->e[i].value);
    return val_none();
}

METHOD(dict_copy)
{
    UNUSED_ARGS;
    struct val copy = val_with_origin(val_dict(r), self.origin);
    run_step(r, self.d->n_used / 8);
    for (size_t i = 0; i < self.d->n_used; i++)
        if (self.d->e[i].live)
            dict_set(r, copy.d, self.d->e[i].key, self.d->e[i].value);
    return copy;
}

METHOD(dict_clear)
{
    UNUSED_ARGS;
    *self.d = (struct dict){0};
    return val_none();
}

// ---- tables ----

static const struct native str_methods[] = {
    {"strip", str_strip, 0, "chars"},
    {"lstrip", str_lstrip, 0, "chars"},
    {"rstrip", str_rstrip, 0, "chars"},
    {"split", str_split, 0, "sep maxsplit"},
    {"rsplit", str_rsplit, 0, "sep maxsplit"},
    {"splitlines", str_splitlines, 0, "keepends"},
    {"partition", str_partition, 1, "sep"},
    {"rpartition", str_rpartition, 1, "sep"},
    {"startswith", str_startswith, 1, "prefix start end"},
    {"endswith", str_endswith, 1, "suffix start end"},
    {"removeprefix", str_removeprefix, 1, "prefix"},
    {"removesuffix", str_removesuffix, 1, "suffix"},
    {"replace", str_replace, 2, "old new count"},
    {"find", str_find, 1, "sub start end"},
    {"rfind", str_rfind, 1, "sub start end"},
    {"index", str_index, 1, "sub start end"},
    {"rindex", str_rindex, 1, "sub start end"},
    {"count", str_count, 1, "sub start end"},
    {"upper", str_upper, 0, ""},
    {"lower", str_lower, 0, ""},
    {"title", str_title, 0, ""},
    {"capitalize", str_capitalize, 0, ""},
    {"join", str_join, 1, "iterable"},
    {"format", str_format, 0, "*"},
    {"center", str_center, 1, "width fillchar"},
    {"ljust", str_ljust, 1, "width fillchar"},
    {"rjust", str_rjust, 1, "width fillchar"},
    {"zfill", str_zfill, 1, "width"},
    {"isalpha", str_isalpha, 0, ""},
    {"isalnum", str_isalnum, 0, ""},
    {"isdigit", str_isdigit, 0, ""},
    {"isnumeric", str_isnumeric, 0, ""},
    {"isspace", str_isspace, 0, ""},
    {"islower", str_islower, 0, ""},
    {"isupper", str_isupper, 0, ""},
    {"isascii", str_isascii, 0, ""},
};

static const struct native list_methods[] = {
    {"index", seq_index, 1, "value start stop"},
    {"count", seq_count, 1, "value"},
    {"append", list_append, 1, "object"},
    {"extend", list_extend, 1, "iterable"},
    {"insert", list_insert, 2, "index object"},
    {"pop", list_pop, 0, "index"},
    {"remove", list_remove, 1, "value"},
    {"clear", list_clear, 0, ""},
    {"copy", list_copy, 0, ""},
    {"reverse", list_reverse, 0, ""},
    {"sort", list_sort, 0, "reverse"},
};

static const struct native dict_methods[] = {
    {"items", dict_items, 0, ""},        {"keys", dict_keys, 0, ""},
    {"values", dict_values, 0, ""},      {"get", dict_get_method, 1, "key default"},
    {"pop", dict_pop, 1, "key default"}, {"setdefault", dict_setdefault, 1, "key default"},
    {"update", dict_update, 0, "*"},     {"copy", dict_copy, 0, ""},
    {"clear", dict_clear, 0, ""},
};

const struct native *str_method_find(const struct str *name)
{
    return eval_native_find(str_methods, sizeof str_methods / sizeof *str_methods, name->p,
                            name->n);
}

const struct native *list_method_find(const struct str *name)
{
    return eval_native_find(list_methods, sizeof list_methods / sizeof *list_methods, name->p,
                            name->n);
}

const struct native *list_tuple_method_find(const struct str *name)
{
    return eval_native_find(list_methods, 2, name->p, name->n); // index and count
}

const struct native *dict_method_find(const struct str *name)
{
    return eval_native_find(dict_methods, sizeof dict_methods / sizeof *dict_methods, name->p,
                            name->n);
}
