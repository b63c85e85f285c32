// The messages of a request, and the tools that it offers: checked, and as a template is told them.
#ifndef HOKKU_SERVE_MESSAGES_H
#define HOKKU_SERVE_MESSAGES_H

#include "serve/refusal.h"

// Of a request in which no field is null (ask.c).
bool messages_check(const json_t *messages, struct refusal *r);
bool tools_check(const json_t *tools, struct refusal *r);

const char *message_role_name(const json_t *message); // as a template knows it
// Appends the text of a message: that of all its parts.
bool message_content(const json_t *message, struct buf *out);
// Whether a template must be told more of it than its role and text.
bool message_has_fields(const json_t *message);
// All that it must be told; owned by the caller. NULL: no memory.
json_t *message_fields(const json_t *message);

#endif
