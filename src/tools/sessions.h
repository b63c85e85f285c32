// hokku sessions: the conversations that are saved.
#ifndef HOKKU_TOOLS_SESSIONS_H
#define HOKKU_TOOLS_SESSIONS_H

#include "cli/options.h"

// No arguments or "list": a line for each, newest first (or JSON); "rm" NAME...; "mv" NAME NEW;
// "export" NAME FILE.md ("-": standard output); "search" TEXT: where it was said. Errors:
// ERR_USAGE, ERR_FAIL.
bool tool_sessions(const struct options *o, struct buf *out, struct error *err);

#endif
