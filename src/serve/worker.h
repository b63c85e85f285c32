// The one thread that has the engine: takes requests from the desk, answers them together by a
// schedule, and writes what comes of each to its job.
#ifndef HOKKU_SERVE_WORKER_H
#define HOKKU_SERVE_WORKER_H

#include "dialog/conversation.h"
#include "engine/schedule.h"
#include "serve/desk.h"
#include "serve/shapes.h"
#include "serve/watch.h"

struct worker {
    struct desk *desk; // borrowed, as the next two
    const struct ask_defaults *defaults;
    struct engine *engine;
    enum think think;
    struct conversation chat, plain; // with the model's template, and without
    bool has_chat;
    json_t *fields;                // owned: of the messages that are rendered now
    const struct calls_form *form; // in which the template teaches to call tools; NULL: in none
    bool shows_calls;              // the template, those of earlier answers
    struct shapes *shapes;         // borrowed
    struct cancel stop;            // of the schedule
    struct watch watch;            // over the request that is prepared
    struct schedule schedule;
    struct item *items; // owned: answers under way, oldest first
    size_t n_items;
};

// template_text empty: the model has none. end, borrowed: when it is set, the server ends after
// grace seconds. Errors: those of the template, ERR_MEMORY. w must not move until it is released.
bool worker_init(struct worker *w, struct desk *d, const struct ask_defaults *defaults,
                 const struct model *m, struct engine *e, size_t n_parallel, struct shapes *shapes,
                 const struct buf *template_text, enum think think, const struct cancel *end,
                 double grace, struct error *err);
// Before the first step: answers bring guesses, as --spec says; draft, predictor: borrowed, NULL:
// there is none. Errors: ERR_MEMORY; those of session_guesser.
bool worker_speculate(struct worker *w, enum spec spec, struct engine *draft,
                      struct engine *predictor, struct error *err);
// Ends what is under way or has come; each client is told why. The desk is closed.
void worker_release(struct worker *w);
// One pass over the answers under way, after some of what has come is taken; waits wait_ms for that
// if there is nothing else to do. Errors: ERR_INTERRUPTED (stop).
bool worker_step(struct worker *w, int wait_ms, struct error *err);

#endif
