// What a message of JSON says: a text, or an array of parts {"type": "text", "text": TEXT}.
#ifndef HOKKU_DIALOG_CONTENT_H
#define HOKKU_DIALOG_CONTENT_H

#include <jansson.h>

#include "base/buf.h"

// Whether it is one of these; else *found, borrowed, is what is none (NULL: nothing is there), and
// *expected says what should be there.
bool content_check(const json_t *content, const json_t **found, const char **expected);
// Appends the text of one that was checked: that of all its parts.
bool content_text(const json_t *content, struct buf *out);

#endif
