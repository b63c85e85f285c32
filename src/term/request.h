// One line of --lines: a prompt as it is, or a JSON object that says more.
#ifndef HOKKU_TERM_REQUEST_H
#define HOKKU_TERM_REQUEST_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"

// {"prompt": TEXT} or {"messages": [{"role": ..., "content": ...}, ...]}, and what is said of this
// answer alone: "seed", "max_tokens" (or "n_predict"), "temperature". A field that is null is left
// out, as `hokku serve` takes it.
struct request {
    json_t *object;         // owned; NULL: the line is the prompt itself
    const char *prompt;     // borrowed from object; NULL: messages
    size_t n_prompt;        // its bytes
    const json_t *messages; // borrowed
    bool has_seed, has_temp, has_n_predict;
    uint64_t seed;
    int64_t n_predict;
    float temp;
};

// A line that begins with a brace, a name in quotes and a colon is an object; any other text is a
// prompt. Errors: ERR_USAGE: an object that is broken or has none or both of "prompt" and
// "messages", a key that is not known, a value that cannot be.
bool request_parse(struct request *r, const char *text, size_t n, struct error *err);
void request_release(struct request *r);

// Message i: its role ("system", "user" or "assistant") and text, borrowed.
size_t request_n_messages(const struct request *r);
const char *request_role(const struct request *r, size_t i);
const char *request_content(const struct request *r, size_t i, size_t *n);

#endif
