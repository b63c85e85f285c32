// hokku TOOL ...: opens what a tool needs and calls it.
#ifndef HOKKU_TOOLS_RUN_H
#define HOKKU_TOOLS_RUN_H

#include "base/buf.h"
#include "cli/program.h"

// Appends the tool's result to out (for standard output). Progress goes to standard error when it
// is a terminal.
bool tool_run(const struct program *p, struct buf *out, struct error *err);
// What the tool appends is JSON: it stays so on a terminal, where parts of it must be escaped.
bool tool_prints_json(const struct options *o);
// Errors: ERR_USAGE when there are not min to max arguments.
bool tool_arguments(const struct options *o, size_t min, size_t max, const char *what,
                    struct error *err);

#endif
