// The parser: tokens to ast.h. parser.c has the statements, parse_expr.c the expressions.
#ifndef HOKKU_JINJA_PARSER_H
#define HOKKU_JINJA_PARSER_H

#include <setjmp.h>

#include "jinja/lexer.h"

enum {
    MAX_HEIGHT = 400,       // of the tree: evaluation recurses this deep at most
    MAX_NESTING = 120,      // of brackets, inline ifs and statements: the parser recurses
    PARSE_MAX_NAMES = 1000, // of parameters, keyword arguments: each is compared with all others
};

struct parser {
    struct template *t;
    const struct token *tok; // the current token
    const struct token *first;
    unsigned nesting;
    unsigned loops; // for loops around the current place, inside the current macro
    bool saw_caller, saw_kwargs, saw_varargs; // names read since the last macro body began
    const char *open_tag;                     // innermost statement waiting for its end
    jmp_buf escape;
    struct error *err;
};

_Noreturn void parse_fail(struct parser *p, size_t pos, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *parse_alloc(struct parser *p, size_t n);
struct node *node_create(struct parser *p, enum node_type type, size_t pos);
void node_above(struct parser *p, struct node *n, const struct node *child); // sets n->height
void node_push(struct parser *p, struct nodes *v, struct node *n);
void parse_enter(struct parser *p);
void parse_leave(struct parser *p);

bool token_is_name(const struct token *t, const char *name);
bool parse_skip(struct parser *p, enum token_type type);
bool parse_skip_name(struct parser *p, const char *name);
const struct token *parse_expect(struct parser *p, enum token_type type);
_Noreturn void parse_unexpected(struct parser *p, const char *expected);

// Expressions (parse_expr.c).
struct node *parse_expression(struct parser *p, bool with_if);
// Several expressions separated by commas make a tuple. `end_name`: a name that ends it, or NULL.
struct node *parse_tuple(struct parser *p, bool with_if, const char *end_name, bool in_parens);
struct node *parse_target(struct parser *p, bool with_tuple, bool with_attr, const char *end_name);
struct node *parse_filters(struct parser *p, struct node *in, bool first_without_pipe);

bool parser_run(struct template *t, struct error *err);

// scope.c: resolves every name of the template to a scope and slot.
bool scope_resolve(struct template *t, struct error *err);

#endif
