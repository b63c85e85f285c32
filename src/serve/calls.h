// What a model writes when it calls tools, in the forms that templates teach: told apart from what
// it says as it streams, and read once it is whole. What cannot be read as calls stays text.
#ifndef HOKKU_SERVE_CALLS_H
#define HOKKU_SERVE_CALLS_H

#include <jansson.h>

#include "base/buf.h"
#include "text/tokenizer.h"

struct calls {
    const struct calls_form *form; // NULL: nothing is a call
    enum { CALLS_START, CALLS_TEXT, CALLS_INSIDE } state;
    struct buf held; // what may be the beginning of a call's mark; then, inside, all from it on
};

// The form that a template (its source) teaches; NULL: none that is known here.
const struct calls_form *calls_form_of(const char *source, size_t n);

void calls_init(struct calls *c, const struct calls_form *form);
void calls_release(struct calls *c); // zeroed is fine
// The next token, before its text: a control token may be a mark, and has no text.
bool calls_token(struct calls *c, const struct tokenizer *t, int32_t id);
// The next text. Appends to out what is certainly none of a call. Errors: without memory, false.
bool calls_push(struct calls *c, const char *text, size_t n, struct buf *out);
// The end. The calls ([{"name", "arguments": an object's text}]), owned by the caller, or NULL,
// then what was held is appended to out.
json_t *calls_end(struct calls *c, struct buf *out);

#endif
