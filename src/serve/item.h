// An answer under way, and what its client is told of it: events as it grows, or one body.
#ifndef HOKKU_SERVE_ITEM_H
#define HOKKU_SERVE_ITEM_H

#include "dialog/answering.h"
#include "engine/schedule.h"
#include "serve/calls.h"
#include "serve/desk.h"
#include "serve/reply.h"

struct item {
    struct job *job;
    const char *field; // of the request, which what is done now goes by; NULL: none alone
    struct answer_params p;
    struct sampler_settings sampler;
    struct message m;
    struct answering a;
    struct task task;
    bool scheduled; // the schedule has its task, or had
    struct reply reply;
    bool stream, lost; // lost: there is nobody to write to
    bool hides_thinking;
    struct buf stop_bytes; // the texts of p.stop
    const char *stop[ASK_MAX_STOP];
    struct buf text, thinking; // of an answer that is no stream
    struct calls calls;        // told apart from the text
    bool with_logprobs;
    uint32_t n_top;      // alternatives in each of them
    struct buf logprobs; // elements of JSON that are not sent yet
    bool full;           // there is no more room for what is kept
    double written;      // when the stream was written to
    struct item *next;
};

// Sets the functions of it->p.
void item_listen(struct item *it);
void item_begin_stream(struct item *it);
void item_ping(struct item *it, double now); // says that the stream is there, if it has been silent
void item_answered(struct item *it);         // the answer is whole
void item_refused(struct item *it, const struct refusal *r); // instead of it, or of the rest of it
void item_release(struct item *it); // zeroed is fine; not the constraint, nor a task under way

#endif
