// Why a request is not answered, as its client is told.
#ifndef HOKKU_SERVE_REFUSAL_H
#define HOKKU_SERVE_REFUSAL_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"

struct refusal {      // zeroed: none
    unsigned status;  // of HTTP
    char param[64];   // the field of the request that is wrong; "": none is
    const char *code; // a word for programs; NULL: none
    char text[sizeof((struct error *)0)->text]; // what was found, what was expected
};

// Sets all of it; false. param and code may be NULL.
bool refuse(struct refusal *r, unsigned status, const char *param, const char *code,
            const char *fmt, ...) __attribute__((format(printf, 5, 6)));
// The same, 400, of a value (NULL: there is none) where another was expected.
bool refuse_value(struct refusal *r, const char *param, const json_t *found, const char *expected);
// The same of what failed while the request was prepared or answered; false. param: the field of
// the request that was at work, which is told where the request is to blame; NULL: none was.
bool refuse_for(struct refusal *r, const char *param, const struct error *why);
// Appends {"error": {"message", "type", "param", "code"}}; event: as an event of a stream.
bool refusal_json(const struct refusal *r, bool event, struct buf *out);

#endif
