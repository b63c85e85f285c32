// The three ways in: a chat, one answer, many.
#ifndef HOKKU_TERM_CHAT_H
#define HOKKU_TERM_CHAT_H

#include "cli/program.h"

// Reads what is to be answered, opens what the options name, and answers. *death is the signal that
// ended the chat, 0: none; the caller dies of it. Errors: those of every part.
bool chat_run(const struct program *p, const char *version, int *death, struct error *err);

#endif
