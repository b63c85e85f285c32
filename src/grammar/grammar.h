// Answers with a guaranteed shape: a grammar (GBNF, or a JSON Schema) says after every token which
// tokens may come next.
//
// A grammar is a network of states over bytes with calls (automaton.h). What was read so far is a
// set of states, each with the frames to which its rule returns (matcher.h); sets are kept once and
// so are the steps between them, so that a byte costs a look-up. A mask is a walk over the
// vocabulary's texts as a tree; where nearly everything is allowed, as in a string, it comes from
// tables made beforehand (mask.c). Tokens may cross rules, and begin or end inside of a character.
#ifndef HOKKU_GRAMMAR_GRAMMAR_H
#define HOKKU_GRAMMAR_GRAMMAR_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"
#include "text/tokenizer.h"

struct grammar; // immutable

// GBNF; the answer is what its rule `root` describes. Errors: ERR_USAGE with line, column and what
// was expected, also for what cannot be obeyed (undefined rules, left recursion, no text at all) or
// is too large; ERR_MEMORY; ERR_INTERRUPTED (cancel, NULL: nothing ends it).
struct grammar *grammar_from_gbnf(const char *text, size_t n, const struct cancel *cancel,
                                  struct error *err);
// JSON Schema 2020-12 (docs/grammar.md: which part). indent: spaces of a level in the answer's
// JSON, 0: one line without blanks. Errors: as above; a keyword that is not enforced is named.
struct grammar *grammar_from_schema(const char *text, size_t n, unsigned indent,
                                    const struct cancel *cancel, struct error *err);
void grammar_free(struct grammar *g); // NULL is fine

enum { GRAMMAR_MAX_INDENT = 16 };

struct grammar_vocab; // what each token emits; immutable, one for a model

// t is borrowed. Errors: ERR_MEMORY.
struct grammar_vocab *grammar_vocab_create(const struct tokenizer *t, struct error *err);
void grammar_vocab_free(struct grammar_vocab *v); // NULL is fine
// A token that emits exactly these bytes (n > 0), -1: none does.
int32_t grammar_vocab_find(const struct grammar_vocab *v, const char *bytes, size_t n);

// The tables and caches of one grammar over one vocabulary; for one thread at a time. Borrows both.
struct grammar_matcher;
struct grammar_matcher *grammar_matcher_create(const struct grammar *g,
                                               const struct grammar_vocab *v, struct error *err);
void grammar_matcher_free(struct grammar_matcher *m); // NULL is fine; no state may be left

// How far an answer has come. The matcher knows its states: they must not be moved in memory.
struct grammar_state {
    struct grammar_matcher *matcher;
    uint32_t config;
    struct grammar_state *prev, *next;
};

void grammar_state_init(struct grammar_state *s, struct grammar_matcher *m); // nothing is read yet
void grammar_state_copy(struct grammar_state *s, const struct grammar_state *from); // s: not in use
void grammar_state_release(struct grammar_state *s); // zeroed is fine

// Goes on by a token, an end token where the answer may end included (then nothing more follows).
// Errors: ERR_FAIL for a token that the mask does not have, the state is as before; ERR_MEMORY.
bool grammar_accept(struct grammar_state *s, int32_t id, struct error *err);
// The same for bytes of an answer. *n_taken: how many of them could follow; true: all.
bool grammar_accept_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_taken,
                          struct error *err);

bool grammar_may_end(const struct grammar_state *s);
// Nothing but the end may follow.
bool grammar_must_end(const struct grammar_state *s);
// The fewest bytes with which the answer can be brought to its end.
uint32_t grammar_distance(const struct grammar_state *s);
// The bytes that must come next, whatever the model says: up to where there is a choice, at most
// `most`. Appended to out.
bool grammar_forced(const struct grammar_state *s, size_t most, struct buf *out, struct error *err);
// The token that leads to the end in the fewest bytes, the longest one among equals. *id = -1: the
// vocabulary has none that does.
bool grammar_closing(const struct grammar_state *s, int32_t *id, struct error *err);

// No rule of the grammar needs more bytes than this to end.
uint32_t grammar_longest(const struct grammar *g);
// Takes from the bits of a mask the tokens after which the end is more than `most` bytes away.
// Looks at every token, which takes milliseconds. Errors: ERR_FAIL, ERR_MEMORY: see grammar_mask.
bool grammar_keep_near(struct grammar_state *s, uint64_t most, uint32_t *bits, size_t n_words,
                       struct error *err);

// One bit for each token (bit id % 32 of word id / 32), n_words of them: 1 is allowed. End tokens
// are where the answer may end, other control tokens never. *n_allowed (may be NULL) counts them.
// Errors: ERR_FAIL (nothing is allowed: the vocabulary has no token for what must follow, or the
// grammar is too ambiguous), ERR_MEMORY.
bool grammar_mask(struct grammar_state *s, uint32_t *bits, size_t n_words, uint32_t *n_allowed,
                  struct error *err);

#endif
