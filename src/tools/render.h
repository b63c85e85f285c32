// `hokku render`: a chat template and its variables in, the prompt out, byte for byte.
#ifndef HOKKU_TOOLS_RENDER_H
#define HOKKU_TOOLS_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

struct render_text {
    const char *name, *data; // name: in messages
    size_t n;
};

// Appends what tmpl renders with the variables of context, a JSON object. Its key `now`
// ("2026-01-02T03:04:05", local time, or seconds since the epoch) fixes the clock; without it the
// clock stands at default_now. Errors: ERR_FAIL: bad JSON (with line and column), a bad `now`, the
// template's own exception (its text and nothing else), or the template's error with its place;
// ERR_MEMORY; ERR_INTERRUPTED when asked to end (cancel may be NULL).
bool tool_render(const struct render_text *tmpl, const struct render_text *context,
                 int64_t default_now, const struct cancel *cancel, struct buf *out,
                 struct error *err);

#endif
