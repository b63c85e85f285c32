// hokku TOOL ...: opens what a tool needs and calls it.
#ifndef HOKKU_TOOLS_RUN_H
#define HOKKU_TOOLS_RUN_H

#include "base/buf.h"
#include "engine/device.h"
#include "cli/options.h"

struct tool_context {
    const struct options *opt;
    const struct engine_backend *cpu, *cuda; // cuda NULL: not built in
    const struct cancel *cancel;
    bool stderr_tty;
    double began; // clock_now() when main began
};

// Appends the tool's result to out (for standard output). Progress goes to standard error when it
// is a terminal.
bool tool_run(const struct tool_context *t, struct buf *out, struct error *err);
// What the tool appends is JSON: it stays so on a terminal, where parts of it must be escaped.
bool tool_prints_json(const struct options *o);

#endif
