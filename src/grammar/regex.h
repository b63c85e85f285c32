// The regular part of ECMA-262's regular expressions, as JSON Schema's `pattern` has them: several
// at once, with bounds on the length, as one deterministic automaton over characters.
#ifndef HOKKU_GRAMMAR_REGEX_H
#define HOKKU_GRAMMAR_REGEX_H

#include "base/buf.h"
#include "base/error.h"
#include "grammar/charset.h"
#include "grammar/work.h"

enum { REGEX_MAX_STATES = 20000, REGEX_MAX_EDGES = 8 * REGEX_MAX_STATES, REGEX_MAX_PATTERNS = 30 };

// Nondeterministic: what the parser makes.
struct nfa_state {
    enum { NFA_CHAR, NFA_EITHER, NFA_BEGIN, NFA_END, NFA_MATCH } kind;
    uint32_t a, b;         // next; EITHER: both; MATCH: a is the pattern's number
    struct charset *chars; // CHAR; borrowed from nfa.sets
};

struct nfa {
    struct nfa_state *states;
    size_t n, cap;
    struct charset **sets; // owned
    size_t n_sets, cap_sets;
    uint32_t start[REGEX_MAX_PATTERNS];
    uint32_t n_patterns;
    bool failed, too_big;
};

void nfa_release(struct nfa *a); // zeroed is fine
// Adds a pattern, which may match anywhere in the text unless it says ^ or $. Errors: ERR_USAGE
// with the column and what was expected; what is not regular is named. ERR_MEMORY; those of
// work_ok.
bool nfa_add(struct nfa *a, const char *pattern, size_t n, struct work *work, struct error *err);

struct dfa_edge {
    uint32_t lo, hi; // characters
    uint32_t to;
};

struct dfa_state {
    size_t first, n; // of edges
    bool accepts;
};

struct dfa {
    struct dfa_state *states; // [0] is the first
    size_t n_states, cap_states;
    struct dfa_edge *edges;
    size_t n_edges, cap_edges;
};

// The texts that all patterns match and that have min to max characters (UINT32_MAX: no bound).
// Errors: ERR_USAGE (more than REGEX_MAX_STATES), those of work_ok, ERR_MEMORY.
bool dfa_init(struct dfa *d, const struct nfa *a, uint32_t min, uint32_t max, struct work *work,
              struct error *err);
void dfa_release(struct dfa *d); // zeroed is fine
// text: UTF-8. False also where there is no more work to be done.
bool dfa_matches(const struct dfa *d, const char *text, size_t n, struct work *work);

#endif
