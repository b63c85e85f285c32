// Expressions: what a parsed expression is worth, and how functions are called.
#include "jinja/runtime.h"

#include <string.h>

static struct val read_name(struct run *r, struct frame *f, const struct node *n)
{
    run_step(r, n->ref.up / 8);
    for (uint32_t up = n->ref.up; up; up--)
        f = f->outer;
    struct val v = f->slots[n->ref.slot];
    return v.kind == V_MISSING ? val_undef(r, NULL, NULL, str_val(n->name)) : v;
}

// ---- calls ----

static void push_keyword(struct run *r, struct list *names, struct list *values, struct val name,
                         struct val value)
{
    for (size_t i = 0; i < names->n; i++)
        if (run_equal(r, names->v[i].s, name.s))
            run_fail(r, "got multiple values for keyword argument '%.*s'",
                     (int)(name.s->n < 80 ? name.s->n : 80), name.s->p);
    list_push(r, names, name);
    list_push(r, values, value);
}

static struct args eval_args(struct run *r, struct frame *f, const struct call_args *a,
                             const struct val *caller)
{
    struct list pos = {0}, names = {0}, values = {0};
    for (size_t i = 0; i < a->pos.n; i++)
        list_push(r, &pos, eval_value(r, f, a->pos.v[i]));
    for (size_t i = 0; i < a->n_kw; i++)
        push_keyword(r, &names, &values, str_val(a->kw[i].name), eval_value(r, f, a->kw[i].value));
    if (caller)
        push_keyword(r, &names, &values, val_cstr(r, "caller"), *caller);
    if (a->dyn_pos) {
        struct iter storage, *it = iter_begin(r, eval_value(r, f, a->dyn_pos), &storage);
        struct val item;
        while (iter_next(r, it, &item))
            list_push(r, &pos, item);
    }
    if (a->dyn_kw) {
        struct val kw = eval_value(r, f, a->dyn_kw);
        if (kw.kind != V_DICT)
            run_fail(r, "argument after ** must be a mapping, not %s", val_type(kw));
        run_step(r, kw.d->n_used / 8);
        for (size_t i = 0; i < kw.d->n_used; i++) {
            if (!kw.d->e[i].live)
                continue;
            if (kw.d->e[i].key.kind != V_STR)
                run_fail(r, "keywords must be strings");
            push_keyword(r, &names, &values, kw.d->e[i].key, kw.d->e[i].value);
        }
    }
    return (struct args){pos.v, pos.n, names.v, values.v, names.n};
}

struct val eval_call(struct run *r, struct frame *f, const struct node *n, const struct val *caller)
{
    struct val fn = eval_value(r, f, n->a);
    struct args a = eval_args(r, f, n->args, caller);
    r->at = n;
    return eval_call_value(r, fn, &a);
}

struct val eval_call_value(struct run *r, struct val fn, const struct args *a)
{
    run_step(r, 1);
    switch ((enum kind)fn.kind) {
    case V_NATIVE:
        return eval_native_call(r, fn.bound->fn, fn.bound->self, a);
    case V_MACRO:
        return exec_macro_call(r, fn, a);
    case V_LOOP:
        if (a->n_pos != 1 || a->n_kw)
            run_fail(r, "loop() takes exactly one argument, the iterable to walk");
        return loop_recurse(r, fn, a->pos[0]);
    case V_UNDEF:
        run_fail_undef(r, &fn);
    default:
        run_fail(r, "'%s' object is not callable", val_type(fn));
    }
}

// The index of the parameter called name in a list of names separated by spaces, or -1.
static int param_index(const char *params, const struct str *name)
{
    int i = 0;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (n == name->n && memcmp(p, name->p, n) == 0)
            return i;
        p += n + (p[n] == ' ');
    }
    return -1;
}

static size_t count_params(const char *params)
{
    size_t n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

struct val eval_native_call(struct run *r, const struct native *fn, struct val self,
                            const struct args *a)
{
    if (strcmp(fn->params, "*") == 0)
        return fn->fn(r, self, NULL, a);
    struct val v[MAX_PARAMS] = {{0}};
    size_t n_params = count_params(fn->params);
    if (a->n_pos > n_params)
        run_fail(r, "%s() takes at most %zu argument%s, %zu given", fn->name, n_params,
                 n_params == 1 ? "" : "s", a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++)
        v[i] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        const struct str *name = a->kw_name[i].s;
        int k = param_index(fn->params, name);
        if (k < 0)
            run_fail(r, "%s() got an unexpected keyword argument '%.*s'", fn->name,
                     (int)(name->n < 80 ? name->n : 80), name->p);
        if (v[k].kind != V_MISSING)
            run_fail(r, "%s() got multiple values for argument '%.*s'", fn->name,
                     (int)(name->n < 80 ? name->n : 80), name->p);
        v[k] = a->kw[i];
    }
    for (size_t i = 0; i < fn->n_required; i++)
        if (v[i].kind == V_MISSING)
            run_fail(r, "%s() is missing argument %zu of %u required (%s)", fn->name, i + 1,
                     fn->n_required, fn->params);
    return fn->fn(r, self, v, a);
}

const struct native *eval_native_find(const struct native *table, size_t n, const char *name,
                                      size_t n_name)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == n_name && memcmp(table[i].name, name, n_name) == 0)
            return &table[i];
    return NULL;
}

bool args_given(const struct val *v)
{
    return v->kind != V_MISSING;
}

int64_t args_int(struct run *r, const struct val *v, int64_t otherwise, const char *what)
{
    if (v->kind == V_MISSING)
        return otherwise;
    if (v->kind == V_BOOL)
        return v->b;
    if (v->kind == V_UNDEF)
        run_fail_undef(r, v);
    if (v->kind != V_INT)
        run_fail(r, "%s must be an integer, not %s", what, val_type(*v));
    return v->i;
}

bool args_bool(const struct val *v)
{
    return v->kind != V_MISSING && val_truth(v);
}

struct str *args_str(struct run *r, const struct val *v, const char *what)
{
    if (v->kind == V_UNDEF)
        run_fail_undef(r, v);
    if (v->kind != V_STR)
        run_fail(r, "%s must be a string, not %s", what, val_type(*v));
    return v->s;
}

// ---- filters and tests ----

struct val eval_filter(struct run *r, struct frame *f, const struct node *n, struct val in)
{
    // A chain in a filter block: its innermost filter has no value of its own.
    struct val v =
        n->a ? (n->a->type == N_FILTER ? eval_filter(r, f, n->a, in) : eval_value(r, f, n->a)) : in;
    struct args a = eval_args(r, f, n->args, NULL);
    r->at = n;
    run_step(r, 1);
    if (!n->native)
        run_fail(r, "no filter named '%.*s' (docs/templates.md lists those there are)",
                 (int)(n->name->n < 80 ? n->name->n : 80), n->name->p);
    return eval_native_call(r, n->native, v, &a);
}

static bool eval_test(struct run *r, struct frame *f, const struct node *n)
{
    struct val v = eval_value(r, f, n->a);
    struct args a = eval_args(r, f, n->args, NULL);
    r->at = n;
    if (!n->native)
        run_fail(r, "no test named '%.*s'", (int)(n->name->n < 80 ? n->name->n : 80), n->name->p);
    struct val result = eval_native_call(r, n->native, v, &a);
    return val_truth(&result);
}

// ---- operators ----

static bool eval_compare(struct run *r, struct frame *f, const struct node *n)
{
    struct val left = eval_value(r, f, n->items.v[0]);
    for (size_t i = 1; i < n->items.n; i++) {
        struct val right = eval_value(r, f, n->items.v[i]);
        r->at = n;
        if (!ops_compare(r, (enum op)n->ops[i - 1], left, right))
            return false;
        left = right;
    }
    return true;
}

static struct val eval_concat(struct run *r, struct frame *f, const struct node *n)
{
    struct val text = pytext_str(r, eval_value(r, f, n->items.v[0]));
    for (size_t i = 1; i < n->items.n; i++)
        text = str_concat(r, text, pytext_str(r, eval_value(r, f, n->items.v[i])));
    return text;
}

static struct val eval_items(struct run *r, struct frame *f, const struct node *n)
{
    struct val v = n->type == N_LIST ? val_list(r, n->items.n) : val_tuple(r, n->items.n);
    for (size_t i = 0; i < n->items.n; i++)
        list_push(r, v.l, eval_value(r, f, n->items.v[i]));
    return v;
}

static struct val eval_dict(struct run *r, struct frame *f, const struct node *n)
{
    struct val v = val_dict(r);
    for (size_t i = 0; i + 1 < n->items.n; i += 2) {
        struct val key = eval_value(r, f, n->items.v[i]);
        dict_set(r, v.d, key, eval_value(r, f, n->items.v[i + 1]));
    }
    return v;
}

static struct val eval_item(struct run *r, struct frame *f, const struct node *n)
{
    struct val obj = eval_value(r, f, n->a);
    if (n->b->type != N_SLICE) {
        struct val key = eval_value(r, f, n->b);
        r->at = n;
        return access_item(r, obj, key);
    }
    const struct val none = val_none();
    struct val lo = n->b->a ? eval_value(r, f, n->b->a) : none;
    struct val hi = n->b->b ? eval_value(r, f, n->b->b) : none;
    struct val step = n->b->c ? eval_value(r, f, n->b->c) : none;
    r->at = n;
    return access_slice(r, obj, lo, hi, step);
}

static struct val eval_cond(struct run *r, struct frame *f, const struct node *n)
{
    struct val test = eval_value(r, f, n->a);
    if (val_truth(&test))
        return eval_value(r, f, n->b);
    if (n->c)
        return eval_value(r, f, n->c);
    return val_undef(r,
                     "the inline if-expression evaluated to false and no else section was defined",
                     NULL, (struct val){.kind = V_MISSING});
}

static struct val eval_node(struct run *r, struct frame *f, const struct node *n)
{
    struct val a, b;
    switch ((enum node_type)n->type) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return read_name(r, f, n);
    case N_TUPLE:
    case N_LIST:
        return eval_items(r, f, n);
    case N_DICT:
        return eval_dict(r, f, n);
    case N_CONCAT:
        return eval_concat(r, f, n);
    case N_COMPARE:
        return val_bool(eval_compare(r, f, n));
    case N_BINARY:
        a = eval_value(r, f, n->a);
        b = eval_value(r, f, n->b);
        r->at = n;
        return ops_binary(r, (enum op)n->op, a, b);
    case N_NEG:
    case N_POS:
        a = eval_value(r, f, n->a);
        r->at = n;
        return ops_negate(r, a, n->type == N_NEG);
    case N_NOT:
        a = eval_value(r, f, n->a);
        return val_bool(!val_truth(&a));
    case N_AND:
        a = eval_value(r, f, n->a);
        return val_truth(&a) ? eval_value(r, f, n->b) : a;
    case N_OR:
        a = eval_value(r, f, n->a);
        return val_truth(&a) ? a : eval_value(r, f, n->b);
    case N_COND:
        return eval_cond(r, f, n);
    case N_ATTR:
        a = eval_value(r, f, n->a);
        r->at = n;
        return access_attr(r, a, n->name);
    case N_ITEM:
        return eval_item(r, f, n);
    case N_CALL:
        return eval_call(r, f, n, NULL);
    case N_FILTER:
        return eval_filter(r, f, n, val_none());
    case N_TEST:
        return val_bool(eval_test(r, f, n));
    default:
        run_fail(r, "cannot be evaluated");
    }
}

struct val eval_value(struct run *r, struct frame *f, const struct node *n)
{
    run_step(r, 1);
    run_enter(r);
    r->at = n;
    struct val v = eval_node(r, f, n);
    run_leave(r);
    return v;
}
