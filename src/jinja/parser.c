// Statements: for, if, set, macro, call, filter, with, print, break, continue, generation.
#include "jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jinja/runtime.h"

// ---- what parser.h declares for both files ----

void parse_fail(struct parser *p, size_t pos, const char *fmt, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    template_error_at(p->err, p->t->src, p->t->n_src, pos, message);
    longjmp(p->escape, 1);
}

void *parse_alloc(struct parser *p, size_t n)
{
    void *q = arena_alloc(&p->t->arena, n);
    if (!q) {
        error_oom(p->err, "chat template", n);
        longjmp(p->escape, 1);
    }
    return q;
}

struct node *node_create(struct parser *p, enum node_type type, size_t pos)
{
    struct node *n = parse_alloc(p, sizeof *n);
    n->type = (uint8_t)type;
    n->pos = (uint32_t)pos;
    n->height = 1;
    return n;
}

void node_above(struct parser *p, struct node *n, const struct node *child)
{
    if (child->height >= MAX_HEIGHT)
        parse_fail(p, n->pos, "expression or statement nested more than %d levels deep",
                   MAX_HEIGHT);
    if (n->height <= child->height)
        n->height = (uint16_t)(child->height + 1);
}

void node_push(struct parser *p, struct nodes *v, struct node *n)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 4;
        void *q = arena_grow(&p->t->arena, v->v, v->n * sizeof *v->v, cap * sizeof *v->v);
        if (!q) {
            error_oom(p->err, "chat template", cap * sizeof *v->v);
            longjmp(p->escape, 1);
        }
        v->v = q;
        v->cap = cap;
    }
    v->v[v->n++] = n;
}

void parse_enter(struct parser *p)
{
    if (++p->nesting > MAX_NESTING)
        parse_fail(p, p->tok->pos, "nested more than %d levels deep", MAX_NESTING);
}

void parse_leave(struct parser *p)
{
    p->nesting--;
}

bool token_is_name(const struct token *t, const char *name)
{
    return t->type == T_NAME && str_is(t->text, name);
}

bool parse_skip(struct parser *p, enum token_type type)
{
    if (p->tok->type != type)
        return false;
    p->tok++;
    return true;
}

bool parse_skip_name(struct parser *p, const char *name)
{
    if (!token_is_name(p->tok, name))
        return false;
    p->tok++;
    return true;
}

void parse_unexpected(struct parser *p, const char *expected)
{
    if (p->tok->type == T_NAME)
        parse_fail(p, p->tok->pos, "expected %s, found '%.*s'", expected,
                   (int)(p->tok->text->n < 60 ? p->tok->text->n : 60), p->tok->text->p);
    parse_fail(p, p->tok->pos, "expected %s, found '%s'", expected, token_name(p->tok->type));
}

const struct token *parse_expect(struct parser *p, enum token_type type)
{
    if (p->tok->type != type) {
        char expected[64];
        snprintf(expected, sizeof expected, "'%s'", token_name(type));
        parse_unexpected(p, expected);
    }
    return p->tok++;
}

// ---- statements ----

static void parse_body(struct parser *p, struct nodes *out, const char *const *ends,
                       const struct node *owner);

static void body_above(struct parser *p, struct node *n, const struct nodes *body)
{
    for (size_t i = 0; i < body->n; i++)
        node_above(p, n, body->v[i]);
}

// The body of a statement: after its "%}" up to and including the name of the tag that ends it.
static void parse_block(struct parser *p, struct node *owner, struct nodes *out,
                        const char *const *ends)
{
    parse_skip(p, T_COLON);
    parse_expect(p, T_BLOCK_END);
    parse_enter(p);
    parse_body(p, out, ends, owner);
    parse_leave(p);
    body_above(p, owner, out);
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    struct node *n = node_create(p, N_FOR, p->tok++->pos);
    n->a = parse_target(p, true, false, "in");
    if (!parse_skip_name(p, "in"))
        parse_unexpected(p, "'in'");
    n->b = parse_tuple(p, false, "recursive", false);
    if (parse_skip_name(p, "if"))
        n->c = parse_expression(p, true);
    n->recursive = parse_skip_name(p, "recursive");
    node_above(p, n, n->a);
    node_above(p, n, n->b);
    if (n->c)
        node_above(p, n, n->c);
    p->loops++;
    parse_block(p, n, &n->body, ends);
    p->loops--;
    if (token_is_name(p->tok++, "else")) {
        parse_block(p, n, &n->orelse, last);
        p->tok++;
    }
    return n;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    struct node *first = node_create(p, N_IF, p->tok++->pos), *n = first;
    for (;;) {
        n->a = parse_tuple(p, false, NULL, false);
        node_above(p, n, n->a);
        parse_block(p, n, &n->body, ends);
        if (n != first)
            node_above(p, first, n);
        const struct token *t = p->tok++;
        if (token_is_name(t, "elif")) {
            n = node_create(p, N_IF, t->pos);
            node_push(p, &first->elifs, n);
            continue;
        }
        if (token_is_name(t, "else")) {
            parse_block(p, first, &first->orelse, last);
            p->tok++;
        }
        return first;
    }
}

static struct node *parse_set(struct parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    struct node *n = node_create(p, N_SET, p->tok++->pos);
    n->a = parse_target(p, true, true, NULL);
    node_above(p, n, n->a);
    if (parse_skip(p, T_ASSIGN)) {
        n->b = parse_tuple(p, true, NULL, false);
        node_above(p, n, n->b);
        return n;
    }
    n->type = N_SET_BLOCK;
    n->b = parse_filters(p, NULL, false);
    if (n->b)
        node_above(p, n, n->b);
    parse_block(p, n, &n->body, ends);
    p->tok++;
    return n;
}

static void parse_signature(struct parser *p, struct node *owner, struct macro_def *m)
{
    struct nodes params = {0};
    parse_expect(p, T_LPAREN);
    while (p->tok->type != T_RPAREN) {
        if (params.n)
            parse_expect(p, T_COMMA);
        struct node *name = parse_target(p, false, false, NULL);
        if (name->type != N_NAME)
            parse_fail(p, name->pos, "expected a parameter name");
        if (params.n == PARSE_MAX_NAMES)
            parse_fail(p, name->pos, "more than %d parameters", PARSE_MAX_NAMES);
        for (size_t i = 0; i < params.n; i++)
            if (str_equal(params.v[i]->name, name->name))
                parse_fail(p, name->pos, "parameter given twice");
        if (parse_skip(p, T_ASSIGN)) {
            node_push(p, &m->defaults, parse_expression(p, true));
            node_above(p, owner, m->defaults.v[m->defaults.n - 1]);
        } else if (m->defaults.n) {
            parse_fail(p, name->pos, "parameter without default after one with a default");
        }
        node_push(p, &params, name);
        m->own_caller |= str_is(name->name, "caller");
        m->own_kwargs |= str_is(name->name, "kwargs");
        m->own_varargs |= str_is(name->name, "varargs");
    }
    p->tok++;
    m->params = params.v;
    m->n_params = params.n;
}

// A macro body is a function of its own: loops around it do not reach in, and whether it reads
// caller, kwargs or varargs decides what it accepts.
static void parse_macro_body(struct parser *p, struct node *n, const char *const *ends)
{
    struct macro_def *m = n->macro;
    bool caller = p->saw_caller, kwargs = p->saw_kwargs, varargs = p->saw_varargs;
    unsigned loops = p->loops;
    p->saw_caller = p->saw_kwargs = p->saw_varargs = false;
    p->loops = 0;
    parse_block(p, n, &n->body, ends);
    p->tok++;
    m->uses_caller = p->saw_caller;
    m->uses_kwargs = p->saw_kwargs;
    m->uses_varargs = p->saw_varargs;
    p->saw_caller |= caller;
    p->saw_kwargs |= kwargs;
    p->saw_varargs |= varargs;
    p->loops = loops;
    if (m->uses_caller && m->own_caller) {
        for (size_t i = 0; i + m->defaults.n < m->n_params; i++)
            if (str_is(m->params[i]->name, "caller"))
                parse_fail(p, n->pos, "the parameter 'caller' must be left out or have a default");
    }
}

static struct node *parse_macro(struct parser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct node *n = node_create(p, N_MACRO, p->tok++->pos);
    n->macro = parse_alloc(p, sizeof *n->macro);
    n->macro->name = parse_expect(p, T_NAME)->text;
    n->name = n->macro->name;
    parse_signature(p, n, n->macro);
    parse_macro_body(p, n, ends);
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    static const char *const ends[] = {"endcall", NULL};
    struct node *n = node_create(p, N_CALL_BLOCK, p->tok++->pos);
    n->macro = parse_alloc(p, sizeof *n->macro);
    if (p->tok->type == T_LPAREN)
        parse_signature(p, n, n->macro);
    n->a = parse_expression(p, true);
    if (n->a->type != N_CALL)
        parse_fail(p, n->pos, "expected a call after 'call'");
    node_above(p, n, n->a);
    parse_macro_body(p, n, ends);
    return n;
}

// {% generation %} marks what the model has written, for training. It renders as its content, in a
// scope of its own.
static struct node *parse_generation(struct parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct node *n = node_create(p, N_GENERATION, p->tok++->pos);
    n->macro = parse_alloc(p, sizeof *n->macro);
    parse_macro_body(p, n, ends);
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct node *n = node_create(p, N_FILTER_BLOCK, p->tok++->pos);
    n->a = parse_filters(p, NULL, true);
    node_above(p, n, n->a);
    parse_block(p, n, &n->body, ends);
    p->tok++;
    return n;
}

static struct node *parse_with(struct parser *p)
{
    static const char *const ends[] = {"endwith", NULL};
    struct node *n = node_create(p, N_WITH, p->tok++->pos);
    while (p->tok->type != T_BLOCK_END) {
        if (n->targets.n)
            parse_expect(p, T_COMMA);
        struct node *target = parse_target(p, false, false, NULL);
        parse_expect(p, T_ASSIGN);
        struct node *value = parse_expression(p, true);
        node_push(p, &n->targets, target);
        node_push(p, &n->items, value);
        node_above(p, n, target);
        node_above(p, n, value);
    }
    parse_block(p, n, &n->body, ends);
    p->tok++;
    return n;
}

// {% print a, b %}
static struct node *parse_print(struct parser *p, struct nodes *out)
{
    size_t pos = p->tok++->pos;
    struct node *n = NULL;
    while (p->tok->type != T_BLOCK_END) {
        if (n) {
            parse_expect(p, T_COMMA);
            node_push(p, out, n);
        }
        n = node_create(p, N_PRINT, pos);
        n->a = parse_expression(p, true);
        node_above(p, n, n->a);
    }
    return n;
}

static struct node *parse_loop_control(struct parser *p, enum node_type type)
{
    const struct token *t = p->tok++;
    if (!p->loops)
        parse_fail(p, t->pos, "'%.*s' outside of a loop", (int)t->text->n, t->text->p);
    return node_create(p, type, t->pos);
}

static struct node *parse_statement(struct parser *p, struct nodes *out)
{
    static const char *const refused[] = {"include", "import",     "from",  "extends",
                                          "block",   "autoescape", "do",    "trans",
                                          "debug",   "pluralize",  "super", NULL};
    const struct token *t = p->tok;
    if (t->type != T_NAME)
        parse_unexpected(p, "a statement name");
    if (str_is(t->text, "for"))
        return parse_for(p);
    if (str_is(t->text, "if"))
        return parse_if(p);
    if (str_is(t->text, "set"))
        return parse_set(p);
    if (str_is(t->text, "macro"))
        return parse_macro(p);
    if (str_is(t->text, "call"))
        return parse_call_block(p);
    if (str_is(t->text, "filter"))
        return parse_filter_block(p);
    if (str_is(t->text, "with"))
        return parse_with(p);
    if (str_is(t->text, "print"))
        return parse_print(p, out);
    if (str_is(t->text, "generation"))
        return parse_generation(p);
    if (str_is(t->text, "break"))
        return parse_loop_control(p, N_BREAK);
    if (str_is(t->text, "continue"))
        return parse_loop_control(p, N_CONTINUE);
    for (size_t i = 0; refused[i]; i++)
        if (str_is(t->text, refused[i]))
            parse_fail(p, t->pos, "'%s' is not supported: a chat template is one file of its own",
                       refused[i]);
    if (p->open_tag)
        parse_fail(p, t->pos, "unknown statement '%.*s'; expected the end of '%s'",
                   (int)(t->text->n < 60 ? t->text->n : 60), t->text->p, p->open_tag);
    parse_fail(p, t->pos, "unknown statement '%.*s'", (int)(t->text->n < 60 ? t->text->n : 60),
               t->text->p);
}

static const char *statement_name(const struct node *n)
{
    switch ((enum node_type)n->type) {
    case N_FOR:
        return "for";
    case N_IF:
        return "if";
    case N_SET_BLOCK:
        return "set";
    case N_MACRO:
        return "macro";
    case N_CALL_BLOCK:
        return "call";
    case N_FILTER_BLOCK:
        return "filter";
    case N_WITH:
        return "with";
    default:
        return "generation";
    }
}

// Parses until a tag whose name is in `ends` (left as the current token), or the end of the
// template when ends is NULL.
static void parse_body(struct parser *p, struct nodes *out, const char *const *ends,
                       const struct node *owner)
{
    const char *outer_tag = p->open_tag;
    p->open_tag = owner ? statement_name(owner) : NULL;
    for (;;) {
        const struct token *t = p->tok;
        struct node *n = NULL;
        if (t->type == T_EOF) {
            if (ends)
                parse_fail(p, owner->pos, "'%s' is never closed: expected '%s' before the end",
                           p->open_tag, ends[0]);
            break;
        }
        p->tok++;
        if (t->type == T_DATA) {
            n = node_create(p, N_DATA, t->pos);
            n->value = str_val(t->text);
        } else if (t->type == T_PRINT_BEGIN) {
            n = node_create(p, N_PRINT, t->pos);
            n->a = parse_tuple(p, true, NULL, false);
            node_above(p, n, n->a);
            parse_expect(p, T_PRINT_END);
        } else { // T_BLOCK_BEGIN
            bool ended = false;
            for (size_t i = 0; ends && ends[i]; i++)
                ended |= token_is_name(p->tok, ends[i]);
            if (ended)
                break;
            n = parse_statement(p, out);
            parse_expect(p, T_BLOCK_END);
        }
        if (n)
            node_push(p, out, n);
    }
    p->open_tag = outer_tag;
}

bool parser_run(struct template *t, struct error *err)
{
    struct tokens tokens = {0};
    if (!lexer_run(&t->arena, t->src, t->n_src, &tokens, err))
        return false;
    struct parser p = {.t = t, .tok = tokens.v, .first = tokens.v, .err = err};
    if (setjmp(p.escape))
        return false;
    parse_body(&p, &t->body, NULL, NULL);
    return true;
}
