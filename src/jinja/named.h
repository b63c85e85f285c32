// Templates for models that bring none: `--chat-template NAME`. The files are in named/.
#ifndef HOKKU_JINJA_NAMED_H
#define HOKKU_JINJA_NAMED_H

#include <stddef.h>

#include "base/buf.h"

struct named_template {
    const char *name;
    const char *text; // n bytes of Jinja, NUL-terminated
    size_t n;
};

extern const struct named_template named_templates[]; // in the order of their names
extern const size_t named_templates_n;

// The template called name, n_text bytes, or NULL.
const char *named_template(const char *name, size_t *n_text);
// Appends "alpaca, chatml, ..." for messages.
bool named_template_list(struct buf *out);

#endif
