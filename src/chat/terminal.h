// The terminal's modes and the signals that touch it, for the life of one REPL. A handler can only
// reach static storage, so there is at most one of these at a time.
#ifndef HOKKU_CHAT_TERMINAL_H
#define HOKKU_CHAT_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

enum terminal_mode {
    TERMINAL_COOKED,    // as it was found
    TERMINAL_EDITING,   // readline owns the modes
    TERMINAL_ANSWERING, // no echo, no line buffering: what is typed waits for the next prompt
};

// Remembers the modes of fd (a terminal) and takes over SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP,
// SIGWINCH, SIGPIPE and the crash signals. cancel becomes 1 when an answer is to stop. ansi: escape
// sequences may be written to fd_out to undo bracketed paste and colours.
bool terminal_begin(int fd, int fd_out, bool ansi, volatile int *cancel);
// Restores the modes and the handlers found before.
void terminal_end(void);
void terminal_set_mode(enum terminal_mode mode);

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

#endif
