// The stack that the program's first thread has.
#ifndef HOKKU_BASE_STACK_H
#define HOKKU_BASE_STACK_H

#include "base/error.h"

// Runs program, once and before there are other threads, to *code. Where the limit of stacks
// (ulimit -s) is lower than THREAD_STACK_BYTES it has that instead, and so have threads that
// libraries start, whose the limit would be. Errors: ERR_MEMORY, ERR_FAIL: there is none; nothing
// was run.
bool stack_run(int (*program)(int argc, char **argv), int argc, char **argv, int *code,
               struct error *err);

#endif
