// What clients are told, as JSON, in the forms of OpenAI's interface.
#ifndef HOKKU_SERVE_REPLY_H
#define HOKKU_SERVE_REPLY_H

#include <jansson.h>

#include "engine/session.h"

struct reply {                   // of one answer
    const char *model;           // borrowed
    const struct tokenizer *tok; // borrowed
    bool chat;
    bool with_usage; // a stream that ends with the usage
    char id[32];
    int64_t created;
};

bool reply_init(struct reply *r, const char *model, const struct tokenizer *tok, bool chat,
                struct error *err);

// A token and its alternatives, as an element of logprobs.content.
json_t *reply_token(const struct tokenizer *t, const struct decoded *d, uint32_t n_top);
// Calls of tools (each with name and arguments) as clients are told of them; NULL: no memory.
json_t *reply_calls(const json_t *calls);
const char *reply_finish(enum finish f); // "stop" or "length"

// Each takes its JSON arguments (NULL: null), appends to out. Errors: without memory, false.
// A whole answer. message: of a chat; text: of a completion.
bool reply_answer(const struct reply *r, json_t *message_or_text, json_t *logprobs,
                  const char *finish, const struct session_stats *s, struct buf *out);
// An event of a stream. delta: of a chat, or text.
bool reply_chunk(const struct reply *r, json_t *delta_or_text, json_t *logprobs, const char *finish,
                 struct buf *out);
bool reply_usage_chunk(const struct reply *r, const struct session_stats *s, struct buf *out);
// Appends j, which is taken, in one line; event: as an event of a stream.
bool reply_json(json_t *j, bool event, struct buf *out);

#endif
