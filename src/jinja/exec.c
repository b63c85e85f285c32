// Statements: what a parsed template does.
#include "jinja/runtime.h"

#include <stdio.h>
#include <string.h>

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

struct loop {
    const struct node *n;
    struct frame *outer;      // where the loop stands
    struct frame *test_frame; // NULL: no `if`, or all items have been tested already
    struct iter storage, *it;
    bool sized;       // the number of items is known without walking them
    size_t length;    // valid if sized
    size_t index;     // 1 in the first round
    struct val after; // the next item when somebody looked ahead; V_MISSING: not
    struct val before, current;
    struct val changed; // the last arguments of loop.changed()
    int64_t depth0;
};

static enum flow exec_body(struct run *r, struct frame *f, const struct nodes *body);

// ---- frames ----

static struct val context_value(struct run *r, const struct str *name)
{
    struct val *v = dict_get_name(r, r->context, name->p, name->n);
    if (v)
        return *v;
    const struct native *fn = globals_find(name);
    if (!fn)
        return (struct val){.kind = V_MISSING};
    struct bound *b = run_alloc(r, sizeof *b);
    *b = (struct bound){fn, val_none()};
    return (struct val){.kind = V_NATIVE, .bound = b};
}

static void frame_load(struct run *r, struct frame *f)
{
    for (size_t i = 0; i < f->scope->n; i++) {
        const struct symbol *s = &f->scope->sym[i];
        if (s->load == LOAD_CONTEXT) {
            f->slots[i] = context_value(r, s->name);
        } else if (s->load == LOAD_OUTER) {
            const struct frame *o = f->outer;
            for (uint32_t up = s->outer.up; up; up--)
                o = o->outer;
            f->slots[i] = o->slots[s->outer.slot];
        } else if (s->load == LOAD_NOTHING) {
            f->slots[i].kind = V_MISSING;
        }
    }
    run_step(r, f->scope->n);
}

static struct frame *frame_create(struct run *r, const struct scope *s, struct frame *outer)
{
    struct frame *f = run_alloc(r, sizeof *f + s->n * sizeof *f->slots);
    f->outer = outer;
    f->scope = s;
    frame_load(r, f);
    return f;
}

// ---- assignment ----

static struct val *var_at(struct frame *f, struct var_ref ref)
{
    for (uint32_t up = ref.up; up; up--)
        f = f->outer;
    return &f->slots[ref.slot];
}

static void check_namespaces(struct run *r, struct frame *f, const struct node *target)
{
    if (target->type == N_NS_ATTR && var_at(f, target->ref)->kind != V_NAMESPACE) {
        r->at = target;
        run_fail(r, "cannot assign attribute on non-namespace object");
    }
    for (size_t i = 0; i < target->items.n; i++)
        check_namespaces(r, f, target->items.v[i]);
}

static void assign(struct run *r, struct frame *f, const struct node *target, struct val v)
{
    if (target->type == N_NAME) {
        *var_at(f, target->ref) = v;
        return;
    }
    if (target->type == N_NS_ATTR) {
        dict_set(r, var_at(f, target->ref)->d, str_val(target->attr), v);
        return;
    }
    r->at = target;
    if (!val_iterable(v))
        run_fail(r, "cannot unpack non-iterable %s object", val_type(v));
    struct val items = v.kind == V_LIST || v.kind == V_TUPLE ? v : iter_list(r, v);
    if (items.l->n > target->items.n)
        run_fail(r, "too many values to unpack (expected %zu)", target->items.n);
    if (items.l->n < target->items.n)
        run_fail(r, "not enough values to unpack (expected %zu, got %zu)", target->items.n,
                 items.l->n);
    run_step(r, target->items.n);
    for (size_t i = 0; i < target->items.n; i++)
        assign(r, f, target->items.v[i], items.l->v[i]);
}

// ---- output ----

static void check_output(struct run *r)
{
    if (r->out->n > r->limits.max_output)
        run_fail_limit(r, "output", r->limits.max_output, "bytes");
}

// Runs a body and returns what it writes.
static struct val capture(struct run *r, struct frame *f, const struct nodes *body, enum flow *flow)
{
    struct sb text = {0}, *outer = r->out;
    r->out = &text;
    enum flow got = exec_body(r, f, body);
    r->out = outer;
    if (flow)
        *flow = got;
    return sb_val(r, &text);
}

// ---- for ----

// The next item that the loop's `if` lets through. False: there is none, and *item is as it was.
static bool pull(struct run *r, struct loop *l, struct val *item)
{
    struct val next;
    while (iter_next(r, l->it, &next)) {
        bool ok = true;
        if (l->test_frame) {
            assign(r, l->test_frame, l->n->a, next);
            frame_load(r, l->test_frame);
            struct val test = eval_value(r, l->test_frame, l->n->c);
            ok = val_truth(&test);
        }
        if (ok) {
            *item = next;
            return true;
        }
    }
    return false;
}

static bool look_ahead(struct run *r, struct loop *l)
{
    return l->after.kind != V_MISSING || pull(r, l, &l->after);
}

size_t loop_length(struct run *r, struct loop *l)
{
    if (!l->sized) { // walk the rest now
        struct val rest = val_list(r, 0), item;
        while (pull(r, l, &item))
            list_push(r, rest.l, item);
        l->length = rest.l->n + l->index + (l->after.kind != V_MISSING);
        l->it = iter_begin(r, rest, &l->storage);
        l->test_frame = NULL;
        l->sized = true;
    }
    return l->length;
}

static enum flow run_loop(struct run *r, struct frame *f, const struct node *n, struct val over,
                          int64_t depth0)
{
    struct loop *l = run_alloc(r, sizeof *l);
    *l = (struct loop){.n = n, .outer = f, .depth0 = depth0};
    l->it = iter_begin(r, over, &l->storage);
    l->sized = !n->c && over.kind != V_ITER;
    l->length = l->sized ? l->it->left : 0;
    if (n->c)
        l->test_frame = frame_create(r, n->test_scope, f);
    struct frame *inner = frame_create(r, n->scope, f);
    bool completed = false;
    struct val item;
    for (;;) {
        if (l->after.kind != V_MISSING) {
            item = l->after;
            l->after.kind = V_MISSING;
        } else if (!pull(r, l, &item)) {
            break;
        }
        l->index++;
        l->before = l->current;
        l->current = item;
        r->at = n->a;
        assign(r, inner, n->a, item);
        inner->slots[n->loop_ref.slot] = (struct val){.kind = V_LOOP, .loop = l};
        frame_load(r, inner);
        enum flow flow = exec_body(r, inner, &n->body);
        if (flow == FLOW_BREAK)
            break;
        if (flow == FLOW_NEXT) // Jinja2 runs `else` when every round ended in `continue`
            completed = true;
    }
    if (completed || !n->orelse.n)
        return FLOW_NEXT;
    return exec_body(r, frame_create(r, n->else_scope, f), &n->orelse);
}

struct val loop_recurse(struct run *r, struct val loop, struct val over)
{
    const struct loop *l = loop.loop;
    if (!l->n->recursive)
        run_fail(r, "the loop must have the 'recursive' marker to be called recursively");
    struct sb text = {0}, *outer = r->out;
    r->out = &text;
    run_enter(r);
    run_loop(r, l->outer, l->n, over, l->depth0 + 1);
    run_leave(r);
    r->out = outer;
    return sb_val(r, &text);
}

static struct val loop_cycle(struct run *r, struct val self, const struct val *v,
                             const struct args *a)
{
    (void)v;
    if (!a->n_pos)
        run_fail(r, "no items for cycling given");
    return a->pos[(self.loop->index - 1) % a->n_pos];
}

static struct val loop_changed(struct run *r, struct val self, const struct val *v,
                               const struct args *a)
{
    (void)v;
    struct val now = val_tuple(r, a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++)
        list_push(r, now.l, a->pos[i]);
    if (self.loop->changed.kind != V_MISSING && val_equal(r, self.loop->changed, now))
        return val_bool(false);
    self.loop->changed = now;
    return val_bool(true);
}

const struct native loop_methods[] = {{"cycle", loop_cycle, 0, "*"},
                                      {"changed", loop_changed, 0, "*"}};

struct val loop_attr(struct run *r, struct val loop, const struct str *name)
{
    struct loop *l = loop.loop;
    if (str_is(name, "index"))
        return val_int((int64_t)l->index);
    if (str_is(name, "index0"))
        return val_int((int64_t)l->index - 1);
    if (str_is(name, "first"))
        return val_bool(l->index == 1);
    if (str_is(name, "last"))
        return val_bool(!look_ahead(r, l));
    if (str_is(name, "length"))
        return val_int((int64_t)loop_length(r, l));
    if (str_is(name, "revindex"))
        return val_int((int64_t)(loop_length(r, l) - l->index + 1));
    if (str_is(name, "revindex0"))
        return val_int((int64_t)(loop_length(r, l) - l->index));
    if (str_is(name, "depth"))
        return val_int(l->depth0 + 1);
    if (str_is(name, "depth0"))
        return val_int(l->depth0);
    const struct val none = {.kind = V_MISSING};
    if (str_is(name, "previtem"))
        return l->index == 1 ? val_undef(r, "there is no previous item", NULL, none) : l->before;
    if (str_is(name, "nextitem"))
        return look_ahead(r, l) ? l->after : val_undef(r, "there is no next item", NULL, none);
    return none;
}

// ---- macros ----

static struct val macro_value(struct run *r, const struct node *n, struct frame *f)
{
    struct macro *m = run_alloc(r, sizeof *m);
    *m = (struct macro){n->macro, n, f};
    return (struct val){.kind = V_MACRO, .macro = m};
}

static const struct val *keyword(struct run *r, const struct args *a, const struct str *name,
                                 bool *used)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (run_equal(r, a->kw_name[i].s, name)) {
            used[i] = true;
            return &a->kw[i];
        }
    return NULL;
}

// "macro 'name'", for errors.
static const char *macro_name(const struct macro_def *m, char out[100])
{
    if (m->name)
        snprintf(out, 100, "macro '%.*s'", (int)(m->name->n < 80 ? m->name->n : 80), m->name->p);
    else
        snprintf(out, 100, "the call block");
    return out;
}

static void bind_extra(struct run *r, const struct macro_def *m, struct frame *f,
                       const struct args *a, bool *used, bool found_caller)
{
    char name[100];
    static const struct str caller_name = {.p = "caller", .n = 6, .n_chars = 6};
    if (m->uses_caller && !found_caller && !m->own_caller) {
        const struct val *v = keyword(r, a, &caller_name, used);
        f->slots[m->caller.slot] =
            v && v->kind != V_NONE
                ? *v
                : val_undef(r, "No caller defined", NULL, (struct val){.kind = V_MISSING});
    }
    if (m->uses_kwargs && !m->own_kwargs) {
        struct val kwargs = val_dict(r);
        for (size_t i = 0; i < a->n_kw; i++)
            if (!used[i])
                dict_set(r, kwargs.d, a->kw_name[i], a->kw[i]);
        f->slots[m->kwargs.slot] = kwargs;
    } else {
        for (size_t i = 0; i < a->n_kw; i++)
            if (!used[i])
                run_fail(r, "%s takes no keyword argument '%.*s'", macro_name(m, name),
                         (int)(a->kw_name[i].s->n < 80 ? a->kw_name[i].s->n : 80),
                         a->kw_name[i].s->p);
    }
    if (m->uses_varargs && !m->own_varargs) {
        struct val rest = val_tuple(r, 0);
        for (size_t i = m->n_params; i < a->n_pos; i++)
            list_push(r, rest.l, a->pos[i]);
        f->slots[m->varargs.slot] = rest;
    } else if (a->n_pos > m->n_params) {
        run_fail(r, "%s takes not more than %zu argument(s)", macro_name(m, name), m->n_params);
    }
}

static void bind_defaults(struct run *r, const struct macro_def *m, struct frame *f)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct val *slot = &f->slots[m->params[i]->ref.slot];
        if (slot->kind != V_MISSING)
            continue;
        if (i + m->defaults.n >= m->n_params) {
            *slot = eval_value(r, f, m->defaults.v[i + m->defaults.n - m->n_params]);
        } else {
            struct sb hint = {0};
            sb_add(r, &hint, "parameter '", 11, 0);
            sb_str(r, &hint, m->params[i]->name);
            sb_add(r, &hint, "' was not provided", 19, 0); // with its NUL
            *slot = val_undef(r, hint.p, NULL, str_val(m->params[i]->name));
        }
    }
}

struct val exec_macro_call(struct run *r, struct val macro, const struct args *a)
{
    const struct macro_def *m = macro.macro->def;
    const struct node *at = r->at;
    run_enter(r);
    struct frame *f = frame_create(r, macro.macro->node->scope, macro.macro->closure);
    bool *used = run_alloc(r, a->n_kw + 1), found_caller = false;
    run_step(r, m->n_params);
    for (size_t i = 0; i < m->n_params; i++) {
        const struct val *v = i < a->n_pos ? &a->pos[i] : keyword(r, a, m->params[i]->name, used);
        if (i >= a->n_pos && str_is(m->params[i]->name, "caller"))
            found_caller = true;
        if (v)
            f->slots[m->params[i]->ref.slot] = *v;
    }
    bind_extra(r, m, f, a, used, found_caller);
    bind_defaults(r, m, f);
    struct val text = capture(r, f, &macro.macro->node->body, NULL);
    run_leave(r);
    r->at = at;
    return text;
}

// ---- statements ----

static struct val call_with_caller(struct run *r, struct frame *f, const struct node *n)
{
    struct val caller = macro_value(r, n, f);
    return eval_call(r, f, n->a, &caller);
}

static enum flow exec_if(struct run *r, struct frame *f, const struct node *n)
{
    struct val test = eval_value(r, f, n->a);
    if (val_truth(&test))
        return exec_body(r, f, &n->body);
    for (size_t i = 0; i < n->elifs.n; i++) {
        const struct node *e = n->elifs.v[i];
        test = eval_value(r, f, e->a);
        if (val_truth(&test))
            return exec_body(r, f, &e->body);
    }
    return exec_body(r, f, &n->orelse);
}

static enum flow exec_with(struct run *r, struct frame *f, const struct node *n)
{
    struct frame *inner = frame_create(r, n->scope, f);
    for (size_t i = 0; i < n->targets.n; i++)
        assign(r, inner, n->targets.v[i], eval_value(r, f, n->items.v[i]));
    frame_load(r, inner);
    return exec_body(r, inner, &n->body);
}

static enum flow exec_capture(struct run *r, struct frame *f, const struct node *n)
{
    enum flow flow;
    struct frame *inner = frame_create(r, n->scope, f);
    struct val text = capture(r, inner, &n->body, &flow);
    if (flow != FLOW_NEXT) // the text is lost, as in Jinja2
        return flow;
    const struct node *filter = n->type == N_SET_BLOCK ? n->b : n->a;
    if (filter)
        text = eval_filter(r, inner, filter, text);
    if (n->type == N_FILTER_BLOCK && text.kind != V_STR)
        run_fail(r, "a filter block gives %s, expected str", val_type(text));
    if (n->type == N_SET_BLOCK) {
        check_namespaces(r, f, n->a);
        assign(r, f, n->a, text);
    } else {
        pytext_str_sb(r, r->out, text);
    }
    return FLOW_NEXT;
}

static enum flow exec_statement(struct run *r, struct frame *f, const struct node *n)
{
    r->at = n;
    run_step(r, 1);
    switch ((enum node_type)n->type) {
    case N_DATA:
        sb_str(r, r->out, n->value.s);
        break;
    case N_PRINT:
        pytext_str_sb(r, r->out, eval_value(r, f, n->a));
        break;
    case N_FOR:
        if (n->recursive) {
            struct sb text = {0}, *outer = r->out;
            struct val over = eval_value(r, f, n->b);
            r->out = &text;
            run_loop(r, f, n, over, 0);
            r->out = outer;
            sb_str(r, r->out, sb_val(r, &text).s);
            break;
        }
        return run_loop(r, f, n, eval_value(r, f, n->b), 0);
    case N_IF:
        return exec_if(r, f, n);
    case N_SET: {
        check_namespaces(r, f, n->a);
        struct val v = eval_value(r, f, n->b);
        assign(r, f, n->a, v);
        break;
    }
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
        return exec_capture(r, f, n);
    case N_MACRO:
        *var_at(f, n->ref) = macro_value(r, n, f);
        break;
    case N_CALL_BLOCK:
        pytext_str_sb(r, r->out, call_with_caller(r, f, n));
        break;
    case N_GENERATION:
        pytext_str_sb(r, r->out, exec_macro_call(r, macro_value(r, n, f), &(struct args){0}));
        break;
    case N_WITH:
        return exec_with(r, f, n);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        break;
    }
    check_output(r);
    return FLOW_NEXT;
}

static enum flow exec_body(struct run *r, struct frame *f, const struct nodes *body)
{
    enum flow flow = FLOW_NEXT;
    run_enter(r);
    for (size_t i = 0; i < body->n && flow == FLOW_NEXT; i++)
        flow = exec_statement(r, f, body->v[i]);
    run_leave(r);
    return flow;
}

void exec_root(struct run *r)
{
    exec_body(r, frame_create(r, r->t->scope, NULL), &r->t->body);
}
