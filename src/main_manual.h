// What is printed about the program itself: shell completion and the man page, made from the same
// tables as the help.
#ifndef HOKKU_MAIN_MANUAL_H
#define HOKKU_MAIN_MANUAL_H

#include "base/buf.h"
#include "base/error.h"

// kind: "bash", "zsh" or "man". Errors: ERR_USAGE for another one.
bool manual_print(const char *kind, const char *version, struct buf *out, struct error *err);

#endif
