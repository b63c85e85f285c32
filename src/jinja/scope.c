// Which variable a name means, decided once after parsing. The rules are Jinja2's (its idtracking):
// every loop body, macro, call, filter, set and with block is a scope; `if` is not. A scope that
// assigns a name anywhere has a variable of its own, which begins as a copy of the outer one; a
// scope that only reads uses the nearest outer scope that knows the name, or the render context.
//
// Two passes per scope: first all names the scope itself reads or assigns are collected, then its
// expressions are resolved and its inner scopes entered.
#include "jinja/parser.h"
#include "jinja/runtime.h"

#include <string.h>

#include "base/hash.h"

static size_t hash_name(const struct str *s)
{
    return hash_bytes(s->p, s->n, 0);
}

static struct scope *scope_create(struct parser *p, struct scope *parent)
{
    struct scope *s = parse_alloc(p, sizeof *s);
    s->parent = parent;
    return s;
}

static struct symbol *find_symbol(const struct scope *s, const struct str *name)
{
    if (!s->n_index) {
        for (size_t i = 0; i < s->n; i++)
            if (str_equal(s->sym[i].name, name))
                return &s->sym[i];
        return NULL;
    }
    for (size_t i = hash_name(name) & (s->n_index - 1); s->index[i]; i = (i + 1) & (s->n_index - 1))
        if (str_equal(s->sym[s->index[i] - 1].name, name))
            return &s->sym[s->index[i] - 1];
    return NULL;
}

static bool find_ref(const struct scope *s, const struct str *name, struct var_ref *ref)
{
    for (uint32_t up = 0; s; s = s->parent, up++) {
        const struct symbol *sym = find_symbol(s, name);
        if (sym) {
            *ref = (struct var_ref){up, (uint32_t)(sym - s->sym)};
            return true;
        }
    }
    return false;
}

static void index_symbol(struct scope *s, size_t number)
{
    size_t i = hash_name(s->sym[number].name) & (s->n_index - 1);
    while (s->index[i])
        i = (i + 1) & (s->n_index - 1);
    s->index[i] = (uint32_t)number + 1;
}

static void note_read(struct parser *p, struct str *name)
{
    struct template *t = p->t;
    if (t->n_read == t->cap_read) {
        t->cap_read = t->cap_read ? t->cap_read * 2 : 32;
        struct str **read = parse_alloc(p, t->cap_read * sizeof *read);
        if (t->n_read)
            memcpy(read, t->read, t->n_read * sizeof *read);
        t->read = read;
    }
    t->read[t->n_read++] = name;
}

static struct symbol *define(struct parser *p, struct scope *s, struct str *name, enum load load)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 8;
        struct symbol *sym = parse_alloc(p, s->cap * sizeof *sym);
        if (s->n)
            memcpy(sym, s->sym, s->n * sizeof *sym);
        s->sym = sym;
    }
    s->sym[s->n] = (struct symbol){.name = name, .load = load};
    s->n++;
    if (load == LOAD_CONTEXT)
        note_read(p, name);
    if (s->n >= 16 && s->n * 2 > s->n_index) {
        s->n_index = s->n_index ? s->n_index * 2 : 64;
        s->index = parse_alloc(p, s->n_index * sizeof *s->index);
        for (size_t i = 0; i < s->n; i++)
            index_symbol(s, i);
    } else if (s->n_index) {
        index_symbol(s, s->n - 1);
    }
    return &s->sym[s->n - 1];
}

static struct var_ref declare(struct parser *p, struct scope *s, struct str *name)
{
    struct symbol *sym = find_symbol(s, name);
    if (sym)
        sym->load = LOAD_PARAMETER;
    else
        sym = define(p, s, name, LOAD_PARAMETER);
    return (struct var_ref){0, (uint32_t)(sym - s->sym)};
}

static struct var_ref declare_text(struct parser *p, struct scope *s, const char *name)
{
    struct str *str = parse_alloc(p, sizeof *str);
    *str = (struct str){.p = name, .n = strlen(name), .n_chars = SIZE_MAX};
    return declare(p, s, str);
}

static void note_load(struct parser *p, struct scope *s, struct str *name)
{
    struct var_ref ref;
    if (!find_ref(s, name, &ref))
        define(p, s, name, LOAD_CONTEXT);
}

// in_if: the assignment may not happen, so the variable must hold the outer value until then.
static void note_store(struct parser *p, struct scope *s, struct str *name, bool in_if)
{
    if (find_symbol(s, name))
        return;
    struct var_ref outer;
    if (s->parent && find_ref(s->parent, name, &outer))
        define(p, s, name, LOAD_OUTER)->outer = outer;
    else
        define(p, s, name, in_if ? LOAD_CONTEXT : LOAD_NOTHING);
}

// ---- first pass: what a scope itself reads and assigns ----

static void note_expr(struct parser *p, struct scope *s, struct node *n);

static void note_args(struct parser *p, struct scope *s, const struct call_args *a)
{
    for (size_t i = 0; i < a->pos.n; i++)
        note_expr(p, s, a->pos.v[i]);
    for (size_t i = 0; i < a->n_kw; i++)
        note_expr(p, s, a->kw[i].value);
    note_expr(p, s, a->dyn_pos);
    note_expr(p, s, a->dyn_kw);
}

static void note_expr(struct parser *p, struct scope *s, struct node *n)
{
    if (!n)
        return;
    if (n->type == N_NAME)
        note_load(p, s, n->name);
    note_expr(p, s, n->a);
    note_expr(p, s, n->b);
    note_expr(p, s, n->c);
    for (size_t i = 0; i < n->items.n; i++)
        note_expr(p, s, n->items.v[i]);
    if (n->args)
        note_args(p, s, n->args);
}

static void note_target(struct parser *p, struct scope *s, struct node *n, bool in_if)
{
    if (n->type == N_NAME)
        note_store(p, s, n->name, in_if);
    else if (n->type == N_NS_ATTR)
        note_load(p, s, n->name);
    for (size_t i = 0; i < n->items.n; i++)
        note_target(p, s, n->items.v[i], in_if);
}

static void declare_target(struct parser *p, struct scope *s, struct node *n)
{
    if (n->type == N_NAME)
        declare(p, s, n->name);
    for (size_t i = 0; i < n->items.n; i++)
        declare_target(p, s, n->items.v[i]);
}

static void note_body(struct parser *p, struct scope *s, const struct nodes *body, bool in_if);

static void note_statement(struct parser *p, struct scope *s, struct node *n, bool in_if)
{
    switch ((enum node_type)n->type) {
    case N_PRINT:
    case N_CALL_BLOCK:
    case N_FILTER_BLOCK:
        note_expr(p, s, n->a);
        break;
    case N_FOR:
        note_expr(p, s, n->b);
        break;
    case N_IF:
        note_expr(p, s, n->a);
        note_body(p, s, &n->body, true);
        note_body(p, s, &n->elifs, true);
        note_body(p, s, &n->orelse, true);
        break;
    case N_SET:
        note_expr(p, s, n->b);
        note_target(p, s, n->a, in_if);
        break;
    case N_SET_BLOCK:
        note_target(p, s, n->a, in_if);
        break;
    case N_MACRO:
        note_store(p, s, n->name, in_if);
        break;
    case N_WITH:
        for (size_t i = 0; i < n->items.n; i++)
            note_expr(p, s, n->items.v[i]);
        break;
    default:
        break;
    }
}

static void note_body(struct parser *p, struct scope *s, const struct nodes *body, bool in_if)
{
    for (size_t i = 0; i < body->n; i++)
        note_statement(p, s, body->v[i], in_if);
}

// ---- second pass: names to (scopes up, slot) ----

static void resolve_body(struct parser *p, struct scope *s, const struct nodes *body);

static void resolve_name(struct parser *p, struct scope *s, struct node *n)
{
    note_load(p, s, n->name); // known already, but for the filter of a set block
    find_ref(s, n->name, &n->ref);
}

static void resolve_expr(struct parser *p, struct scope *s, struct node *n)
{
    if (!n)
        return;
    if (n->type == N_NAME || n->type == N_NS_ATTR)
        resolve_name(p, s, n);
    resolve_expr(p, s, n->a);
    resolve_expr(p, s, n->b);
    resolve_expr(p, s, n->c);
    for (size_t i = 0; i < n->items.n; i++)
        resolve_expr(p, s, n->items.v[i]);
    if (!n->args)
        return;
    for (size_t i = 0; i < n->args->pos.n; i++)
        resolve_expr(p, s, n->args->pos.v[i]);
    for (size_t i = 0; i < n->args->n_kw; i++)
        resolve_expr(p, s, n->args->kw[i].value);
    resolve_expr(p, s, n->args->dyn_pos);
    resolve_expr(p, s, n->args->dyn_kw);
}

static void resolve_for(struct parser *p, struct scope *s, struct node *n)
{
    resolve_expr(p, s, n->b);
    // The targets come first in both scopes, so that they have the same slots in both.
    n->scope = scope_create(p, s);
    declare_target(p, n->scope, n->a);
    n->loop_ref = declare_text(p, n->scope, "loop");
    note_body(p, n->scope, &n->body, false);
    resolve_expr(p, n->scope, n->a);
    resolve_body(p, n->scope, &n->body);
    if (n->c) {
        n->test_scope = scope_create(p, s);
        declare_target(p, n->test_scope, n->a);
        note_expr(p, n->test_scope, n->c);
        resolve_expr(p, n->test_scope, n->c);
    }
    if (n->orelse.n) {
        n->else_scope = scope_create(p, s);
        note_body(p, n->else_scope, &n->orelse, false);
        resolve_body(p, n->else_scope, &n->orelse);
    }
}

static void resolve_macro(struct parser *p, struct scope *s, struct node *n)
{
    struct macro_def *m = n->macro;
    n->scope = scope_create(p, s);
    for (size_t i = 0; i < m->n_params; i++)
        m->params[i]->ref = declare(p, n->scope, m->params[i]->name);
    if (m->uses_caller)
        m->caller = declare_text(p, n->scope, "caller");
    if (m->uses_kwargs)
        m->kwargs = declare_text(p, n->scope, "kwargs");
    if (m->uses_varargs)
        m->varargs = declare_text(p, n->scope, "varargs");
    for (size_t i = 0; i < m->defaults.n; i++)
        note_expr(p, n->scope, m->defaults.v[i]);
    note_body(p, n->scope, &n->body, false);
    for (size_t i = 0; i < m->defaults.n; i++)
        resolve_expr(p, n->scope, m->defaults.v[i]);
    resolve_body(p, n->scope, &n->body);
}

static void resolve_statement(struct parser *p, struct scope *s, struct node *n)
{
    switch ((enum node_type)n->type) {
    case N_PRINT:
        resolve_expr(p, s, n->a);
        break;
    case N_FOR:
        resolve_for(p, s, n);
        break;
    case N_IF:
        resolve_expr(p, s, n->a);
        resolve_body(p, s, &n->body);
        resolve_body(p, s, &n->elifs);
        resolve_body(p, s, &n->orelse);
        break;
    case N_SET:
        resolve_expr(p, s, n->b);
        resolve_expr(p, s, n->a);
        break;
    case N_SET_BLOCK:
    case N_FILTER_BLOCK: {
        struct node *filter = n->type == N_SET_BLOCK ? n->b : n->a;
        n->scope = scope_create(p, s);
        note_body(p, n->scope, &n->body, false);
        note_expr(p, n->scope, filter);
        resolve_body(p, n->scope, &n->body);
        resolve_expr(p, n->scope, filter);
        if (n->type == N_SET_BLOCK)
            resolve_expr(p, s, n->a);
        break;
    }
    case N_MACRO:
        resolve_name(p, s, n);
        resolve_macro(p, s, n);
        break;
    case N_CALL_BLOCK:
        resolve_expr(p, s, n->a);
        resolve_macro(p, s, n);
        break;
    case N_GENERATION:
        resolve_macro(p, s, n);
        break;
    case N_WITH:
        n->scope = scope_create(p, s);
        for (size_t i = 0; i < n->targets.n; i++)
            declare_target(p, n->scope, n->targets.v[i]);
        note_body(p, n->scope, &n->body, false);
        for (size_t i = 0; i < n->targets.n; i++) {
            resolve_expr(p, n->scope, n->targets.v[i]);
            resolve_expr(p, s, n->items.v[i]);
        }
        resolve_body(p, n->scope, &n->body);
        break;
    default:
        break;
    }
}

static void resolve_body(struct parser *p, struct scope *s, const struct nodes *body)
{
    for (size_t i = 0; i < body->n; i++)
        resolve_statement(p, s, body->v[i]);
}

bool scope_resolve(struct template *t, struct error *err)
{
    struct parser p = {.t = t, .err = err};
    if (setjmp(p.escape))
        return false;
    t->scope = scope_create(&p, NULL);
    note_body(&p, t->scope, &t->body, false);
    resolve_body(&p, t->scope, &t->body);
    return true;
}
