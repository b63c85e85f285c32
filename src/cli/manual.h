// What is printed about the program itself: shell completion and the man page, made from the same
// tables as the help.
#ifndef HOKKU_CLI_MANUAL_H
#define HOKKU_CLI_MANUAL_H

#include "base/buf.h"
#include "base/error.h"

// A command of the chat: "/name", its alias or NULL, "[N]", what it does.
struct manual_command {
    const char *name, *alias, *args, *help;
};

// kind: "bash", "zsh", "fish" or "man". Errors: ERR_USAGE for another one.
bool manual_print(const char *kind, const char *version, const struct manual_command *commands,
                  size_t n_commands, struct buf *out, struct error *err);

#endif
