// What a client asks for: the JSON of a request's body, checked whole before anything is done.
// A field that is not known, or not supported with its value, is refused by its name.
#ifndef HOKKU_SERVE_ASK_H
#define HOKKU_SERVE_ASK_H

#include <jansson.h>

#include "engine/sampler.h"
#include "serve/refusal.h"

enum ask_kind { ASK_CHAT, ASK_COMPLETION, ASK_TEMPLATE, ASK_TOKENIZE, ASK_DETOKENIZE };

// What the server was started with.
struct ask_defaults {
    const char *model; // its name for clients
    struct sampler_settings sampler;
    bool seed_given; // else each request has a random one
    int64_t n_predict;
};

enum { ASK_MAX_STOP = 16, ASK_MAX_BODY = 8 << 20, ASK_MAX_DEPTH = 64, ASK_MAX_VALUES = 200000 };

struct ask { // strings and values are borrowed from object
    enum ask_kind kind;
    const char *model;      // the one that is served, borrowed
    json_t *object;         // owned
    const json_t *messages; // checked; NULL: a prompt
    const char *prompt;     // or text to tokenize
    size_t n_prompt;
    const json_t *tokens; // to detokenize
    bool stream, include_usage, logprobs, add_special, parse_special;
    uint32_t top_logprobs;
    struct sampler_settings sampler;
    bool has_seed, has_n_predict;
    int64_t n_predict;
    const char *stop[ASK_MAX_STOP];
    size_t n_stop;
    const json_t *tools; // checked; NULL: none
    bool no_calls;       // it is not to call them
    char *schema;        // owned: what the answer is held to; NULL: nothing
};

// How many values the JSON of text[0..n) has at most. False: it is nested more than ASK_MAX_DEPTH
// deep, at byte *n_values.
bool ask_count(const char *text, size_t n, size_t *n_values);
// The memory that the JSON of text[0..n) takes at most, counted without taking it. Refuses what is
// nested too deeply or has too many values.
bool ask_cost(const char *text, size_t n, size_t *cost, struct refusal *r);
// d is borrowed for the call, its model as long as a.
bool ask_parse(struct ask *a, enum ask_kind kind, const struct ask_defaults *d, const char *text,
               size_t n, struct refusal *r);
void ask_release(struct ask *a); // zeroed is fine
// The field that such a request must have: what is answered, rendered, split or joined.
const char *ask_subject(enum ask_kind kind);

#endif
