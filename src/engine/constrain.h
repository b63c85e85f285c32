// An answer held to a grammar: which tokens may be sampled next, while a model's thinking stays
// free. The grammar begins where the thinking has ended.
#ifndef HOKKU_ENGINE_CONSTRAIN_H
#define HOKKU_ENGINE_CONSTRAIN_H

#include "grammar/grammar.h"

// How a model's thinking begins and ends. Where it answers in messages with headers (header > 0),
// thinking is all that comes before the last message: `close` is what stands from the end of one to
// the text of the last, `again` to that of one more, NULL where there may be none. Their first
// `header` bytes end where the first message of an answer begins; behind their first `sure` nothing
// may follow but the rest.
struct thinking_marks {
    const char *open, *close; // NULL: none
    const char *again;
    size_t header, sure;
};

struct constraint {
    struct constraint *of;   // whose the next two are; NULL: its own
    struct grammar *grammar; // owned, as is the next
    struct grammar_matcher *matcher;
    const struct grammar_vocab *vocab;
    struct grammar_vocab *own_vocab; // NULL: borrowed
    const struct tokenizer *tok;     // borrowed
    bool close;                      // bring the answer to its end while there is room for that
    uint64_t reserve;                // tokens before that in which each is looked at
    const char *never_beyond;        // no token of the vocabulary has this close and more behind it
    // Of the answer that was begun:
    struct grammar_state state;
    enum { CONSTRAIN_START, CONSTRAIN_THINKING, CONSTRAIN_GAP, CONSTRAIN_ANSWER } part;
    bool ended; // by an end token
    struct thinking_marks marks;
    struct buf held; // the end of the thinking, where its close may have begun
    size_t n_words;  // of a mask
};

// Takes g, also when it fails. vocab: of tok, borrowed; NULL: it makes one. n_vocab: the model's
// logits. Errors: ERR_MEMORY.
struct constraint *constraint_create(struct grammar *g, const struct grammar_vocab *vocab,
                                     const struct tokenizer *tok, uint32_t n_vocab, bool close,
                                     struct error *err);
// Another answer held to the same, whose tables it borrows: for the same thread, freed before c.
// Errors: ERR_MEMORY.
struct constraint *constraint_share(struct constraint *c, struct error *err);
void constraint_free(struct constraint *c); // NULL is fine
// c, which shares the same, is where `from` is in its answer. Errors: ERR_MEMORY.
bool constraint_follow(struct constraint *c, const struct constraint *from, struct error *err);

// A new answer. marks: of the model's thinking, NULL without; inside: the prompt has opened it.
void constraint_begin(struct constraint *c, const struct thinking_marks *marks, bool inside);
// The beginning of the answer that is there already. Errors: ERR_USAGE: it does not obey.
bool constraint_text(struct constraint *c, const char *text, size_t n, struct error *err);
// One bit for each token that may be next, to allow (a bit for each of the n_vocab tokens). n_left:
// tokens for which there is room. Errors: ERR_FAIL, ERR_MEMORY: see grammar_mask.
bool constraint_mask(struct constraint *c, size_t n_left, uint32_t *allow, struct error *err);
// Goes on by a token that the mask has. Errors: ERR_FAIL, ERR_MEMORY.
bool constraint_accept(struct constraint *c, int32_t id, struct error *err);
// The text that must come next, whatever the model says, at most n bytes of it. Appended to out;
// none in thinking. Errors: ERR_MEMORY.
bool constraint_forced(const struct constraint *c, size_t n, struct buf *out, struct error *err);
// Whether the answer obeys as it is.
bool constraint_obeyed(const struct constraint *c);
// Whether nothing may follow, and no end token says so: the vocabulary has none.
bool constraint_is_over(const struct constraint *c);

#endif
