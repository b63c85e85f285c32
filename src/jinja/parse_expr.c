// Expressions, from `a if b else c` down to literals. Precedence as in Jinja2: or, and, not,
// comparison, + -, ~, * / // %, **, unary, then postfix, filters and tests.
#include "jinja/parser.h"

#include <string.h>

#include "jinja/runtime.h"

static struct node *parse_unary(struct parser *p, bool with_filter);

static struct node *binary(struct parser *p, enum node_type type, enum op op, struct node *a,
                           struct node *b, size_t pos)
{
    struct node *n = node_create(p, type, pos);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    node_above(p, n, a);
    node_above(p, n, b);
    return n;
}

static struct node *parse_pow(struct parser *p)
{
    struct node *left = parse_unary(p, true);
    while (p->tok->type == T_POW) {
        size_t pos = p->tok++->pos;
        left = binary(p, N_BINARY, OP_POW, left, parse_unary(p, true), pos);
    }
    return left;
}

static struct node *parse_product(struct parser *p)
{
    struct node *left = parse_pow(p);
    for (;;) {
        enum op op;
        switch (p->tok->type) {
        case T_MUL:
            op = OP_MUL;
            break;
        case T_DIV:
            op = OP_DIV;
            break;
        case T_FLOORDIV:
            op = OP_FLOORDIV;
            break;
        case T_MOD:
            op = OP_MOD;
            break;
        default:
            return left;
        }
        size_t pos = p->tok++->pos;
        left = binary(p, N_BINARY, op, left, parse_pow(p), pos);
    }
}

static struct node *parse_concat(struct parser *p)
{
    struct node *first = parse_product(p);
    if (p->tok->type != T_TILDE)
        return first;
    struct node *n = node_create(p, N_CONCAT, p->tok->pos);
    node_push(p, &n->items, first);
    node_above(p, n, first);
    while (parse_skip(p, T_TILDE)) {
        struct node *item = parse_product(p);
        node_push(p, &n->items, item);
        node_above(p, n, item);
    }
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *left = parse_concat(p);
    while (p->tok->type == T_ADD || p->tok->type == T_SUB) {
        enum op op = p->tok->type == T_ADD ? OP_ADD : OP_SUB;
        size_t pos = p->tok++->pos;
        left = binary(p, N_BINARY, op, left, parse_concat(p), pos);
    }
    return left;
}

static bool compare_op(struct parser *p, enum op *op)
{
    switch (p->tok->type) {
    case T_EQ:
        *op = OP_EQ;
        break;
    case T_NE:
        *op = OP_NE;
        break;
    case T_LT:
        *op = OP_LT;
        break;
    case T_LE:
        *op = OP_LE;
        break;
    case T_GT:
        *op = OP_GT;
        break;
    case T_GE:
        *op = OP_GE;
        break;
    default:
        if (token_is_name(p->tok, "in")) {
            *op = OP_IN;
            break;
        }
        if (token_is_name(p->tok, "not") && token_is_name(p->tok + 1, "in")) {
            *op = OP_NOT_IN;
            p->tok++;
            break;
        }
        return false;
    }
    p->tok++;
    return true;
}

static struct node *parse_compare(struct parser *p)
{
    struct node *first = parse_sum(p), *n = NULL;
    size_t pos = p->tok->pos, cap = 0;
    enum op op;
    while (compare_op(p, &op)) {
        if (!n) {
            n = node_create(p, N_COMPARE, pos);
            node_push(p, &n->items, first);
            node_above(p, n, first);
        }
        if (n->items.n > cap) {
            cap = n->items.n * 2 + 2;
            uint8_t *ops = parse_alloc(p, cap);
            if (n->ops)
                memcpy(ops, n->ops, n->items.n - 1);
            n->ops = ops;
        }
        n->ops[n->items.n - 1] = (uint8_t)op;
        struct node *item = parse_sum(p);
        node_push(p, &n->items, item);
        node_above(p, n, item);
    }
    return n ? n : first;
}

static struct node *parse_not(struct parser *p)
{
    if (!token_is_name(p->tok, "not"))
        return parse_compare(p);
    parse_enter(p);
    struct node *n = node_create(p, N_NOT, p->tok++->pos);
    n->a = parse_not(p);
    node_above(p, n, n->a);
    parse_leave(p);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *left = parse_not(p);
    while (token_is_name(p->tok, "and")) {
        size_t pos = p->tok++->pos;
        left = binary(p, N_AND, 0, left, parse_not(p), pos);
    }
    return left;
}

static struct node *parse_or(struct parser *p)
{
    struct node *left = parse_and(p);
    while (token_is_name(p->tok, "or")) {
        size_t pos = p->tok++->pos;
        left = binary(p, N_OR, 0, left, parse_and(p), pos);
    }
    return left;
}

struct node *parse_expression(struct parser *p, bool with_if)
{
    parse_enter(p);
    struct node *n = parse_or(p);
    while (with_if && token_is_name(p->tok, "if")) {
        struct node *cond = node_create(p, N_COND, p->tok++->pos);
        cond->b = n;
        cond->a = parse_or(p);
        node_above(p, cond, cond->a);
        node_above(p, cond, cond->b);
        if (parse_skip_name(p, "else")) {
            cond->c = parse_expression(p, true);
            node_above(p, cond, cond->c);
        }
        n = cond;
    }
    parse_leave(p);
    return n;
}

// ---- primary expressions ----

static void note_macro_name(struct parser *p, const struct str *name)
{
    p->saw_caller |= str_is(name, "caller");
    p->saw_kwargs |= str_is(name, "kwargs");
    p->saw_varargs |= str_is(name, "varargs");
}

static struct node *constant(struct parser *p, const struct token *t, struct val v)
{
    struct node *n = node_create(p, N_CONST, t->pos);
    n->value = v;
    return n;
}

static struct node *parse_name(struct parser *p, bool with_attr)
{
    const struct token *t = p->tok++;
    if (str_is(t->text, "true") || str_is(t->text, "True"))
        return constant(p, t, val_bool(true));
    if (str_is(t->text, "false") || str_is(t->text, "False"))
        return constant(p, t, val_bool(false));
    if (str_is(t->text, "none") || str_is(t->text, "None"))
        return constant(p, t, val_none());
    struct node *n = node_create(p, N_NAME, t->pos);
    n->name = t->text;
    if (with_attr && p->tok->type == T_DOT) {
        p->tok++;
        n->type = N_NS_ATTR;
        n->attr = parse_expect(p, T_NAME)->text;
    } else {
        note_macro_name(p, t->text);
    }
    return n;
}

static struct node *parse_string(struct parser *p)
{
    const struct token *first = p->tok++;
    if (p->tok->type != T_STRING)
        return constant(p, first, str_val(first->text));
    size_t n = first->text->n, n_chars = first->text->n_chars;
    const struct token *end = p->tok;
    for (; end->type == T_STRING; end++) {
        n += end->text->n;
        n_chars += end->text->n_chars;
    }
    char *text = parse_alloc(p, n + 1);
    n = 0;
    for (const struct token *t = first; t < end; t++) {
        memcpy(text + n, t->text->p, t->text->n);
        n += t->text->n;
    }
    p->tok = end;
    struct str *s = parse_alloc(p, sizeof *s);
    *s = (struct str){.p = text, .n = n, .n_chars = n_chars, .origin = ORIGIN_TEMPLATE};
    return constant(p, first, str_val(s));
}

static struct node *parse_items(struct parser *p, enum node_type type, enum token_type close)
{
    struct node *n = node_create(p, type, p->tok++->pos);
    while (p->tok->type != close) {
        if (n->items.n) {
            parse_expect(p, T_COMMA);
            if (p->tok->type == close)
                break;
        }
        for (int part = 0; part < (type == N_DICT ? 2 : 1); part++) {
            if (part)
                parse_expect(p, T_COLON);
            struct node *item = parse_expression(p, true);
            node_push(p, &n->items, item);
            node_above(p, n, item);
        }
    }
    p->tok++;
    return n;
}

static struct node *parse_primary(struct parser *p, bool with_attr)
{
    const struct token *t = p->tok;
    struct node *n;
    switch (t->type) {
    case T_NAME:
        return parse_name(p, with_attr);
    case T_STRING:
        return parse_string(p);
    case T_INT:
        p->tok++;
        return constant(p, t, val_int(t->i));
    case T_FLOAT:
        p->tok++;
        return constant(p, t, val_float(t->f));
    case T_LPAREN:
        p->tok++;
        n = parse_tuple(p, true, NULL, true);
        parse_expect(p, T_RPAREN);
        return n;
    case T_LBRACKET:
        return parse_items(p, N_LIST, T_RBRACKET);
    case T_LBRACE:
        return parse_items(p, N_DICT, T_RBRACE);
    default:
        parse_unexpected(p, "an expression");
    }
}

static bool is_tuple_end(const struct parser *p, const char *end_name)
{
    return p->tok->type == T_PRINT_END || p->tok->type == T_BLOCK_END || p->tok->type == T_RPAREN ||
           (end_name && token_is_name(p->tok, end_name));
}

// The common part of expression tuples and assignment targets.
static struct node *tuple_of(struct parser *p, bool target, bool with_if, bool with_attr,
                             const char *end_name, bool in_parens)
{
    struct node *only = NULL, *tuple = NULL;
    size_t pos = p->tok->pos;
    for (;;) {
        if (only)
            parse_expect(p, T_COMMA);
        if (is_tuple_end(p, end_name))
            break;
        struct node *item = target ? parse_primary(p, with_attr) : parse_expression(p, with_if);
        if (!only)
            only = item;
        if (!tuple && p->tok->type == T_COMMA)
            tuple = node_create(p, N_TUPLE, pos);
        if (tuple) {
            node_push(p, &tuple->items, item);
            node_above(p, tuple, item);
        }
        if (p->tok->type != T_COMMA)
            break;
    }
    if (tuple)
        return tuple;
    if (only)
        return only;
    if (!in_parens)
        parse_unexpected(p, "an expression");
    return node_create(p, N_TUPLE, pos);
}

struct node *parse_tuple(struct parser *p, bool with_if, const char *end_name, bool in_parens)
{
    return tuple_of(p, false, with_if, false, end_name, in_parens);
}

static void check_target(struct parser *p, const struct node *n)
{
    if (n->type == N_TUPLE)
        for (size_t i = 0; i < n->items.n; i++)
            check_target(p, n->items.v[i]);
    else if (n->type != N_NAME && n->type != N_NS_ATTR)
        parse_fail(p, n->pos, "cannot assign to this; expected a name");
}

struct node *parse_target(struct parser *p, bool with_tuple, bool with_attr, const char *end_name)
{
    parse_enter(p);
    bool caller = p->saw_caller, kwargs = p->saw_kwargs, varargs = p->saw_varargs;
    struct node *n = with_tuple ? tuple_of(p, true, true, with_attr, end_name, false)
                                : parse_primary(p, with_attr);
    check_target(p, n);
    p->saw_caller = caller; // a target is written, not read
    p->saw_kwargs = kwargs;
    p->saw_varargs = varargs;
    parse_leave(p);
    return n;
}

// ---- postfix: .name [item] (call) |filter is test ----

static void args_above(struct parser *p, struct node *n)
{
    for (size_t i = 0; i < n->args->pos.n; i++)
        node_above(p, n, n->args->pos.v[i]);
    for (size_t i = 0; i < n->args->n_kw; i++)
        node_above(p, n, n->args->kw[i].value);
    if (n->args->dyn_pos)
        node_above(p, n, n->args->dyn_pos);
    if (n->args->dyn_kw)
        node_above(p, n, n->args->dyn_kw);
}

static void push_keyword(struct parser *p, struct call_args *a, struct keyword k)
{
    if (a->n_kw == PARSE_MAX_NAMES)
        parse_fail(p, k.value->pos, "more than %d keyword arguments", PARSE_MAX_NAMES);
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_equal(a->kw[i].name, k.name))
            parse_fail(p, k.value->pos, "keyword argument '%.*s' given twice", (int)k.name->n,
                       k.name->p);
    if (a->n_kw == a->cap_kw) {
        a->cap_kw = a->cap_kw ? a->cap_kw * 2 : 4;
        struct keyword *kw = parse_alloc(p, a->cap_kw * sizeof *kw);
        if (a->n_kw)
            memcpy(kw, a->kw, a->n_kw * sizeof *kw);
        a->kw = kw;
    }
    a->kw[a->n_kw++] = k;
}

static void parse_one_arg(struct parser *p, struct call_args *a)
{
    const struct token *t = p->tok;
    bool in_order;
    if (parse_skip(p, T_MUL)) {
        in_order = !a->dyn_pos && !a->dyn_kw;
        a->dyn_pos = parse_expression(p, true);
    } else if (parse_skip(p, T_POW)) {
        in_order = !a->dyn_kw;
        a->dyn_kw = parse_expression(p, true);
    } else if (t->type == T_NAME && t[1].type == T_ASSIGN) {
        in_order = !a->dyn_kw;
        p->tok += 2;
        push_keyword(p, a, (struct keyword){t->text, parse_expression(p, true)});
    } else {
        in_order = !a->dyn_pos && !a->dyn_kw && !a->n_kw;
        node_push(p, &a->pos, parse_expression(p, true));
    }
    if (!in_order)
        parse_fail(p, t->pos, "arguments out of order: expected positional, keyword, *, **");
}

static struct call_args *parse_args(struct parser *p)
{
    struct call_args *a = parse_alloc(p, sizeof *a);
    parse_expect(p, T_LPAREN);
    for (bool first = true; p->tok->type != T_RPAREN; first = false) {
        if (!first) {
            parse_expect(p, T_COMMA);
            if (p->tok->type == T_RPAREN)
                break;
        }
        parse_one_arg(p, a);
    }
    p->tok++;
    return a;
}

static struct node *parse_call(struct parser *p, struct node *fn)
{
    struct node *n = node_create(p, N_CALL, p->tok->pos);
    n->a = fn;
    n->args = parse_args(p);
    node_above(p, n, fn);
    args_above(p, n);
    return n;
}

static struct node *parse_index(struct parser *p)
{
    size_t pos = p->tok->pos;
    struct node *lo = NULL;
    if (p->tok->type != T_COLON) {
        lo = parse_expression(p, true);
        if (p->tok->type != T_COLON)
            return lo;
    }
    p->tok++;
    struct node *n = node_create(p, N_SLICE, pos);
    n->a = lo;
    if (p->tok->type != T_COLON && p->tok->type != T_RBRACKET && p->tok->type != T_COMMA)
        n->b = parse_expression(p, true);
    if (parse_skip(p, T_COLON) && p->tok->type != T_RBRACKET && p->tok->type != T_COMMA)
        n->c = parse_expression(p, true);
    for (int i = 0; i < 3; i++)
        if (i == 0 ? n->a : i == 1 ? n->b : n->c)
            node_above(p, n, i == 0 ? n->a : i == 1 ? n->b : n->c);
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *obj)
{
    const struct token *t = p->tok++;
    struct node *n = node_create(p, N_ITEM, t->pos);
    n->a = obj;
    if (t->type == T_DOT) {
        const struct token *name = p->tok;
        if (name->type == T_NAME) {
            n->type = N_ATTR;
            n->name = name->text;
        } else if (name->type == T_INT) {
            n->b = constant(p, name, val_int(name->i));
        } else {
            parse_unexpected(p, "a name or number after '.'");
        }
        p->tok++;
    } else {
        struct node *tuple = NULL;
        while (p->tok->type != T_RBRACKET) {
            if (n->b)
                parse_expect(p, T_COMMA);
            struct node *item = parse_index(p);
            if (n->b && !tuple) {
                tuple = node_create(p, N_TUPLE, t->pos);
                node_push(p, &tuple->items, n->b);
                node_above(p, tuple, n->b);
            }
            if (item->type == N_SLICE && tuple)
                parse_fail(p, item->pos, "a slice cannot be part of a tuple");
            if (tuple) {
                node_push(p, &tuple->items, item);
                node_above(p, tuple, item);
            }
            n->b = tuple ? tuple : item;
        }
        p->tok++;
        if (!n->b)
            n->b = node_create(p, N_TUPLE, t->pos);
        if (tuple && tuple->items.v[0]->type == N_SLICE)
            parse_fail(p, t->pos, "a slice cannot be part of a tuple");
        node_above(p, n, n->b);
    }
    node_above(p, n, obj);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (p->tok->type == T_DOT || p->tok->type == T_LBRACKET)
            n = parse_subscript(p, n);
        else if (p->tok->type == T_LPAREN)
            n = parse_call(p, n);
        else
            return n;
    }
}

// name, or name.name: no filter or test has a dot, so the first name decides.
static struct str *parse_dotted(struct parser *p)
{
    const struct token *t = parse_expect(p, T_NAME);
    if (p->tok->type == T_DOT)
        parse_fail(p, t->pos, "no filter or test has a dotted name");
    return t->text;
}

struct node *parse_filters(struct parser *p, struct node *in, bool first_without_pipe)
{
    while (first_without_pipe || parse_skip(p, T_PIPE)) {
        first_without_pipe = false;
        struct node *n = node_create(p, N_FILTER, p->tok->pos);
        n->name = parse_dotted(p);
        n->native = filters_find(n->name);
        n->a = in;
        n->args = p->tok->type == T_LPAREN ? parse_args(p) : parse_alloc(p, sizeof *n->args);
        if (in)
            node_above(p, n, in);
        args_above(p, n);
        in = n;
    }
    return in;
}

static bool begins_test_argument(const struct parser *p)
{
    switch (p->tok->type) {
    case T_NAME:
        return !token_is_name(p->tok, "else") && !token_is_name(p->tok, "or") &&
               !token_is_name(p->tok, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    default:
        return false;
    }
}

static struct node *parse_test(struct parser *p, struct node *value)
{
    size_t pos = p->tok++->pos;
    bool negated = parse_skip_name(p, "not");
    struct node *n = node_create(p, N_TEST, p->tok->pos);
    n->name = parse_dotted(p);
    n->native = predicates_find(n->name);
    n->a = value;
    if (p->tok->type == T_LPAREN) {
        n->args = parse_args(p);
    } else {
        n->args = parse_alloc(p, sizeof *n->args);
        if (begins_test_argument(p)) {
            if (token_is_name(p->tok, "is"))
                parse_fail(p, p->tok->pos, "tests cannot be chained with 'is'; use 'and'");
            node_push(p, &n->args->pos, parse_postfix(p, parse_primary(p, false)));
        }
    }
    node_above(p, n, value);
    args_above(p, n);
    if (!negated)
        return n;
    struct node *not = node_create(p, N_NOT, pos);
    not ->a = n;
    node_above(p, not, n);
    return not ;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n;
    if (p->tok->type == T_SUB || p->tok->type == T_ADD) {
        parse_enter(p);
        n = node_create(p, p->tok->type == T_SUB ? N_NEG : N_POS, p->tok->pos);
        p->tok++;
        n->a = parse_unary(p, false);
        node_above(p, n, n->a);
        parse_leave(p);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    while (with_filter) {
        if (p->tok->type == T_PIPE)
            n = parse_filters(p, n, false);
        else if (token_is_name(p->tok, "is"))
            n = parse_test(p, n);
        else if (p->tok->type == T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}
