// Grammars as expressions: what the readers of GBNF and of JSON Schema build, and what automaton.c
// turns into states. Failures are sticky: build on, look at `failed` in the end.
#ifndef HOKKU_GRAMMAR_EXPR_H
#define HOKKU_GRAMMAR_EXPR_H

#include "base/buf.h"
#include "base/error.h"
#include "grammar/charset.h"
#include "grammar/work.h"

enum expr_kind {
    EXPR_EMPTY,   // the empty text
    EXPR_NOTHING, // no text at all
    EXPR_BYTES,
    EXPR_CLASS,
    EXPR_SEQ,
    EXPR_ALT,
    EXPR_REPEAT,
    EXPR_RULE,
};

#define REPEAT_FOREVER UINT32_MAX

struct expr {
    enum expr_kind kind;
    uint32_t first, n; // BYTES: of bytes; SEQ, ALT: of kids; CLASS, RULE: first is the index;
                       // REPEAT: first is the repeated expression
    uint32_t min, max; // REPEAT
};

struct rule {
    char *name;            // owned; NULL: made by the reader itself
    uint32_t body;         // expression; UINT32_MAX: not defined (yet)
    uint32_t line, column; // GBNF: of the definition, or of the first use while undefined; 0: none
};

// An automaton of more than so many states, an expression of more than so many parts, is refused.
enum { GRAMMAR_MAX_STATES = 1 << 19, GRAMMAR_MAX_EXPRS = 1 << 20 };

struct builder {
    struct expr *exprs;
    size_t n_exprs, cap_exprs;
    uint32_t *kids;
    size_t n_kids, cap_kids;
    struct buf bytes;
    struct charset *classes; // no two the same
    size_t n_classes, cap_classes;
    struct rule *rules;
    size_t n_rules, cap_rules;
    struct work work;
    bool failed;  // out of memory
    bool too_big; // GRAMMAR_MAX_EXPRS
};

void builder_release(struct builder *b); // zeroed is fine
// The sticky failure as an error; true: there is none.
bool builder_ok(const struct builder *b, struct error *err);

uint32_t expr_empty(struct builder *b);
uint32_t expr_nothing(struct builder *b);
uint32_t expr_bytes(struct builder *b, const char *s, size_t n);
uint32_t expr_text(struct builder *b, const char *s);
uint32_t expr_class(struct builder *b, struct charset *s);  // takes what s holds; made tidy
uint32_t expr_chars(struct builder *b, const char *ranges); // "azAZ__": pairs of ASCII characters
uint32_t expr_rule(struct builder *b, uint32_t rule);
uint32_t expr_repeat(struct builder *b, uint32_t x, uint32_t min, uint32_t max);
// Lists of expressions, collected in ids.
uint32_t expr_seq(struct builder *b, const struct ids *list);
uint32_t expr_alt(struct builder *b, const struct ids *list); // an empty one: nothing
// n expressions as arguments.
uint32_t expr_seq_of(struct builder *b, size_t n, ...);
uint32_t expr_either(struct builder *b, uint32_t x, uint32_t y);

uint32_t builder_rule(struct builder *b); // a new one without a name, not defined yet
void builder_define(struct builder *b, uint32_t rule, uint32_t body);

#endif
