// Why these words: for each token of an answer its probability and the alternatives, recomputed
// from the model for any answer that is still in the conversation, or recorded while it was made.
#ifndef HOKKU_DIALOG_WHY_H
#define HOKKU_DIALOG_WHY_H

#include "dialog/conversation.h"

struct why {
    struct decoded *tokens; // owned
    size_t n, cap;
};

void why_release(struct why *w); // zeroed is fine
bool why_add(struct why *w, const struct decoded *d);
// The last answer, with n_top alternatives (1..ENGINE_MAX_PROBS); its end token included. The
// conversation is left as it was. Errors: no answer, ERR_INTERRUPTED, those of the engine.
bool why_last_answer(struct conversation *c, uint32_t n_top, struct why *w, struct error *err);

// One row per token: its text, its probability, the alternatives with theirs; at most width
// columns (0: no limit). Coloured by surprise.
bool why_format(const struct why *w, const struct tokenizer *tok, uint32_t n_alternatives,
                size_t width, bool color, struct buf *out);

#endif
