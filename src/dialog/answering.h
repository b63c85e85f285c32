// One answer from the messages to its record, in steps, so that one conversation and a schedule of
// many lines go through the same: prepared (what is to be evaluated), begun once that is evaluated,
// decoded by generate() or a schedule, ended.
#ifndef HOKKU_DIALOG_ANSWERING_H
#define HOKKU_DIALOG_ANSWERING_H

#include "dialog/conversation.h"

struct answering { // must not move between prepare and release; zeroed: nothing
    const struct conversation *c;
    const struct answer_params *p; // borrowed
    struct ids prefix;             // what is to be evaluated before the first token
    size_t n_keep;                 // of its start: what overflow shift keeps
    const char *open_tag;          // the thinking tag that it leaves open, or NULL
    size_t first_kept;             // of c's messages
    size_t n_dropped;              // tokens, by p->overflow
    struct sampler_settings sampler;
    struct think_split split;
    struct think_split stops;  // the same of what was generated so far: where stop texts count
    size_t n_start;            // bytes of the answer that was there before
    bool shown;                // the start that the user gave
    struct generate_params gp; // for generate() or a generation; c->cancel ends it
    struct generated g;        // its result
};

// Makes the start that p gives (p->prefill) that of m, an empty answer.
bool answering_prefill(const struct conversation *c, const struct answer_params *p,
                       struct message *m, struct error *err);
// Renders the first n_messages of c and puts what m (an answer) has already behind them, fitted to
// the context as p->overflow says. The notice functions of p may be called. Errors: those of the
// template and tokenizer; ERR_CONTEXT (both lengths); ERR_USAGE: m does not obey the constraint.
bool answering_prepare(struct answering *a, struct conversation *c, size_t n_messages,
                       const struct answer_params *p, const struct message *m, struct error *err);
// Holds the prepared answer, of which the start is there (m), to p->constraint, where that was not
// set before. Errors: ERR_USAGE: m does not obey.
bool answering_constrain(struct answering *a, const struct message *m, struct error *err);
// The prefix is evaluated: shows the start of m that the user gave. Errors: on_text's.
bool answering_begin(struct answering *a, const struct message *m, struct error *err);
// Records in m what was generated (a->g). ok: nothing has failed; the result is its, or what fails
// now. m->n_runs grows if there was a token.
bool answering_end(struct answering *a, struct message *m, bool ok, struct error *err);
void answering_release(struct answering *a);

#endif
