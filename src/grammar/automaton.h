// A grammar as a network of states over bytes, in which a state may call a rule and goes on when
// the rule has returned. Immutable. Every state that can be reached can also reach the end of its
// rule: no text that was begun in it can be stuck.
#ifndef HOKKU_GRAMMAR_AUTOMATON_H
#define HOKKU_GRAMMAR_AUTOMATON_H

#include "grammar/expr.h"

enum state_kind {
    STATE_ACCEPT, // the whole text may end here
    STATE_RETURN,
    STATE_EDGES,  // edges[a..b)
    STATE_EITHER, // a or b, without a byte
    STATE_CALL,   // rule a, then state b
};

#define NO_STATE UINT32_MAX

struct state {
    enum state_kind kind;
    uint32_t a, b;
};

struct edge {
    unsigned char lo, hi; // both inside
    uint32_t to;
};

struct automaton_rule {
    uint32_t start; // state
    uint32_t order; // a rule that begins with another one has the lower number
    bool nullable;  // may be the empty text
};

// A wide class of characters, whose beginning is one state: what masks.c makes tables of.
struct automaton_class {
    struct charset chars; // owned
    uint32_t state;       // that its characters begin in
};

struct automaton {
    struct state *states;
    size_t n_states, cap_states;
    struct edge *edges;
    size_t n_edges, cap_edges;
    struct automaton_rule *rules;
    size_t n_rules, cap_rules;
    struct automaton_class *classes;
    size_t n_classes, cap_classes;
    uint32_t
        *distance;  // (n_states) fewest bytes to the end of the rule; NO_STATE: cannot get there
    uint32_t start; // state
    // Bytes that no edge tells apart are one symbol.
    unsigned char symbol_of[256], byte_of[256]; // byte -> symbol, symbol -> one of its bytes
    unsigned n_symbols;
    bool in_alphabet[256]; // some edge takes the byte
};

// root is a rule of b. Errors: ERR_USAGE (rules that begin with themselves, that never end; too
// large), ERR_MEMORY.
bool automaton_init(struct automaton *a, const struct builder *b, uint32_t root, struct error *err);
void automaton_release(struct automaton *a); // zeroed is fine

#endif
