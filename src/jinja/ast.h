// The parsed form of a template. Nodes live in the template's arena and never change after
// parse; names are resolved to (scopes up, slot) by scope.c.
#ifndef HOKKU_JINJA_AST_H
#define HOKKU_JINJA_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jinja/arena.h"
#include "jinja/value.h"

enum node_type {
    // expressions
    N_CONST,
    N_NAME,
    N_TUPLE,
    N_LIST,
    N_DICT,    // items: key, value, key, value, ...
    N_CONCAT,  // items joined by ~
    N_COMPARE, // items[0] ops[0] items[1] ops[1] items[2] ...
    N_BINARY,
    N_NEG,
    N_POS,
    N_NOT,
    N_AND,
    N_OR,
    N_COND,  // b if a else c
    N_ATTR,  // a.name
    N_ITEM,  // a[b]
    N_SLICE, // [a:b:c], only as b of N_ITEM
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NS_ATTR, // name.attr as a target
    // statements
    N_DATA,
    N_PRINT,
    N_FOR,
    N_IF,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_GENERATION,
    N_BREAK,
    N_CONTINUE,
};

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct nodes {
    struct node **v;
    size_t n, cap;
};

struct keyword {
    struct str *name;
    struct node *value;
};

struct call_args {
    struct nodes pos;
    struct keyword *kw;
    size_t n_kw, cap_kw;
    struct node *dyn_pos, *dyn_kw; // *a and **a; NULL: none
};

struct var_ref {
    uint32_t up, slot;
};

// How a variable of a scope begins its life each time the scope is entered.
enum load {
    LOAD_PARAMETER, // somebody else fills it
    LOAD_CONTEXT,   // from the render context, or a global function
    LOAD_OUTER,     // a copy of the outer scope's variable of the same name
    LOAD_NOTHING,   // not set yet
};

struct symbol {
    struct str *name;
    enum load load;
    struct var_ref outer;
};

struct scope {
    struct scope *parent;
    struct symbol *sym;
    size_t n, cap;
    uint32_t *index; // hash of names, symbol number + 1
    size_t n_index;
};

struct macro_def {
    struct str *name;
    struct node **params; // N_NAME
    size_t n_params;
    struct nodes defaults; // of the last defaults.n parameters
    bool uses_caller, uses_kwargs, uses_varargs;
    bool own_caller, own_kwargs, own_varargs; // declared as parameters by the template
    struct var_ref caller, kwargs, varargs;
};

struct node {
    uint8_t type;       // enum node_type
    uint8_t op;         // enum op of N_BINARY
    uint16_t height;    // of the expression or statement tree below
    uint32_t pos;       // byte offset in the source
    struct str *name;   // N_NAME, N_ATTR, N_FILTER, N_TEST, N_NS_ATTR (the namespace's)
    struct str *attr;   // N_NS_ATTR
    struct var_ref ref; // N_NAME, N_NS_ATTR, N_MACRO
    struct node *a, *b, *c;
    struct nodes items;          // N_TUPLE, N_LIST, N_DICT, N_CONCAT, N_COMPARE; N_WITH: values
    uint8_t *ops;                // N_COMPARE: enum op, items.n - 1 of them
    struct val value;            // N_CONST, N_DATA
    struct call_args *args;      // N_CALL, N_FILTER, N_TEST
    const struct native *native; // N_FILTER, N_TEST; NULL: no such filter or test
    // Statements: N_FOR: a = target, b = iterable, c = test. N_IF: a = condition. N_SET: a =
    // target, b = value. N_SET_BLOCK: a = target, b = filter or NULL. N_CALL_BLOCK: a = the call.
    // N_FILTER_BLOCK: a = filter. N_WITH: targets and items.
    struct nodes body, orelse; // orelse of N_IF: N_IF nodes for elif, then the else body's nodes
    struct nodes elifs;
    struct nodes targets;
    bool recursive;
    struct scope *scope;                   // of the body
    struct scope *test_scope, *else_scope; // N_FOR
    struct var_ref loop_ref;               // N_FOR: the variable `loop`
    struct macro_def *macro;               // N_MACRO, N_CALL_BLOCK
};

struct template
{
    struct arena arena;
    const char *source; // as it was given
    size_t n_source;
    const char *src; // newlines are \n, one newline at the end removed; valid UTF-8
    size_t n_src;
    struct nodes body;
    struct scope *scope;
    struct str **read; // the names of variables that a scope takes from the render context
    size_t n_read, cap_read;
};

#endif
