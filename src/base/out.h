// The door to standard output and standard error: everything that the program writes there goes
// through it, and tests/structure refuses any other way. Each stream is judged by itself: a pipe or
// a file gets the exact bytes; a terminal gets nothing that could drive it (see termsafe.h).
#ifndef HOKKU_BASE_OUT_H
#define HOKKU_BASE_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum out_stream { OUT_STDOUT = 1, OUT_STDERR = 2 }; // the descriptors

bool out_is_terminal(enum out_stream s);
bool out_is_pipe(enum out_stream s);
// Waits until the pipe's reader has all that was written, and a moment more, in which it may write
// it on; a quarter of a second at most.
void out_await_reader(enum out_stream s);
size_t out_columns(enum out_stream s); // of the terminal; 0 when unknown

// Standard input, output and error become these (duplicated). Safe in a handler, and while others
// write: what waits in a write goes on there after a signal.
bool out_redirect(const int fds[3]);

// Text of any kind, JSON, and text that the caller made safe and styled with hokku's own sequences.
// Errors: ERR_FAIL (disk full and the like), ERR_MEMORY. err may be NULL.
bool out_text(enum out_stream s, const char *text, size_t n, struct error *err);
bool out_json(enum out_stream s, const char *json, size_t n, struct error *err);
// Gives a text to the clipboard of the terminal (OSC 52), which may refuse it. Errors: ERR_FAIL.
bool out_clipboard(enum out_stream s, const char *text, size_t n, struct error *err);
bool out_nul(enum out_stream s, struct error *err); // a separator for programs
bool out_painted(enum out_stream s, const char *text, size_t n, struct error *err);

// One line on standard error (the newline is added): on a terminal a newline inside is made
// visible, so that no name can pass for another message. Nobody is told when it cannot be written.
void out_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Replaces, or clears, the line under the cursor; it is cut to the terminal's width. Nothing
// happens unless standard error is a terminal.
void out_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void out_progress_clear(void);

#endif
