// What was read so far, and the steps from there: insides of grammar.h.
//
// A configuration is a set of pairs (state, frames): a state that takes a byte, and the index of
// the set of frames that its rule returns to. A frame is such a pair, too: the state behind the
// call, and the frames of the caller. This is the graph-structured stack of generalised parsers
// (Tomita 1985; Scott & Johnstone 2010) with equal parts shared over positions too: no ambiguity
// makes it grow faster than the positions do.
#ifndef HOKKU_GRAMMAR_MATCHER_H
#define HOKKU_GRAMMAR_MATCHER_H

#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/setpool.h"
#include "grammar/trie.h"

struct grammar {
    struct automaton a;
};

struct grammar_vocab {
    uint32_t n; // tokens
    struct buf bytes;
    uint32_t *begin; // (n + 1) of a token's text in bytes; empty: emits nothing
    struct trie trie;
    int32_t *end_ids; // owned
    size_t n_end_ids;
};

enum { CONFIG_DEAD = 0, CONFIG_UNKNOWN = UINT32_MAX };

struct pairs { // a growing list
    uint64_t *data;
    size_t n, cap;
};

struct class_table; // of a wide class over the vocabulary, see mask.c

struct grammar_matcher {
    const struct grammar *grammar;
    const struct grammar_vocab *vocab;
    struct setpool frames, configs; // [0]: no frames; no configuration
    uint32_t start;                 // configuration
    uint32_t *steps;                // (cap_steps, n_symbols) by configuration
    size_t n_steps, cap_steps;      // rows
    struct grammar_state *states;   // all that are in use
    // Scratch of a step.
    struct pairs seeds, todo, out, calls;
    uint64_t *seen; // open addressing: pairs + 1, 0: free
    size_t n_seen, cap_seen;
    bool failed, too_many; // since matcher_ok was asked last
    uint64_t done, most;   // rounds of steps; and how many there may be until it is asked again
    uint32_t *rest;        // (n_rest) fewest bytes behind a set of frames to the end of the text
    size_t n_rest, cap_rest;
    // Masks (mask.c).
    struct class_table **tables; // (n_classes) NULL: none
    uint32_t *walk;              // (max_depth + 1) configurations along a path
    uint32_t *masks;             // (cap_masks, n_words)
    size_t n_masks, cap_masks, n_words;
    uint32_t *mask_of; // (cap_mask_of) by configuration: mask + 1, 0: none
    size_t cap_mask_of;
};

static inline uint64_t pair_of(uint32_t state, uint32_t frames)
{
    return (uint64_t)state << 32 | frames;
}

// The configuration after a byte; CONFIG_DEAD: it cannot follow, or a failure (matcher_ok).
uint32_t matcher_compute_step(struct grammar_matcher *m, uint32_t config, unsigned symbol);

static inline uint32_t matcher_step(struct grammar_matcher *m, uint32_t config, unsigned char byte)
{
    unsigned symbol = m->grammar->a.symbol_of[byte];
    uint32_t to =
        config < m->n_steps ? m->steps[config * m->grammar->a.n_symbols + symbol] : CONFIG_UNKNOWN;
    return to != CONFIG_UNKNOWN ? to : matcher_compute_step(m, config, symbol);
}

// n more rounds of a loop that a grammar may make long.
static inline void matcher_work(struct grammar_matcher *m, uint64_t n)
{
    m->done += n;
    m->too_many |= m->done > m->most;
}

// Asked at the end of each look at what may follow.
bool matcher_ok(struct grammar_matcher *m, struct error *err);
// The fewest bytes from it to the end of the text. Takes a round for each of its pairs, which
// whoever asks for many has to count.
uint32_t matcher_distance(struct grammar_matcher *m, uint32_t config);
bool matcher_accepting(const struct grammar_matcher *m, uint32_t config);
// Forgets what no state needs, when much is kept. Configurations of states get other numbers.
bool matcher_tidy(struct grammar_matcher *m, struct error *err);

// Not from the cache; and, for tests, with or without the tables of wide classes: bits[n_words].
bool masks_compute(struct grammar_matcher *m, uint32_t config, bool tables, uint32_t *bits);
bool masks_init(struct grammar_matcher *m, struct error *err);
// The masks that an answer begins with, so that it does not wait for them. What fails here fails
// again where it is told.
void masks_prepare(struct grammar_matcher *m);
void masks_release(struct grammar_matcher *m);
void masks_forget(struct grammar_matcher *m);

#endif
