// The terminal's modes and the signals that touch it, for the life of one REPL. A handler can only
// reach static storage, so there is at most one of these at a time.
#ifndef HOKKU_EDITOR_TERMINAL_H
#define HOKKU_EDITOR_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"

enum terminal_mode {
    TERMINAL_COOKED,  // as it was found
    TERMINAL_EDITING, // every key comes as it is typed, Ctrl-C and Ctrl-Z too
    // No echo, no line buffering: what is typed waits for the next prompt, as it was typed.
    TERMINAL_ANSWERING,
};

// Remembers the modes of fd (a terminal) and takes over SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP,
// SIGWINCH, SIGPIPE and the crash signals. cancel is set when an answer is to stop. ansi: escape
// sequences may be written to fd_out to undo bracketed paste and colours.
bool terminal_begin(int fd, int fd_out, bool ansi, struct cancel *cancel);
// Restores the modes and the handlers found before.
void terminal_end(void);
void terminal_set_mode(enum terminal_mode mode);
// Who is to hear Ctrl-C. While a line is read: its reader, by terminal_events. Else the work, by
// the flag; a second one before terminal_events has heard of the first kills.
void terminal_set_reading(bool on);

// A descriptor that becomes readable when a signal came; terminal_events clears it and says which.
int terminal_event_fd(void);
struct terminal_events {
    bool interrupt; // SIGINT
    bool stop;      // SIGTSTP
    bool resize;    // SIGWINCH
};
struct terminal_events terminal_events(void);
// SIGTERM or SIGHUP came: leave soon, having saved. 0: none. A second one kills at once.
int terminal_death(void);
// Stops the process as SIGTSTP would; returns when it goes on. The caller has restored the modes.
void terminal_suspend(void);

void terminal_size(int fd, size_t *cols, size_t *rows); // 80 and 24 when unknown

#endif
