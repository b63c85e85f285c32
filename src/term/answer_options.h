// What the options say of an answer, for the chat and for pipes.
#ifndef HOKKU_TERM_ANSWER_OPTIONS_H
#define HOKKU_TERM_ANSWER_OPTIONS_H

#include "cli/options.h"
#include "dialog/conversation.h"

// The start of the answer and the functions are the caller's. Borrows from *o.
static inline struct answer_params answer_options(const struct options *o)
{
    return (struct answer_params){
        .sampler = &o->sampler,
        .n_predict = o->n_predict,
        .ignore_eos = o->ignore_eos,
        .stop = o->stop.items,
        .n_stop = o->stop.n,
        .n_probs = o->logprobs,
        .overflow = o->overflow,
        .makes_room = "--overflow drop (forgets the oldest turns) or --overflow shift",
        .spec = o->spec,
        .think = (enum think)o->think,
    };
}

#endif
