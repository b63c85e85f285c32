// The terminal's modes and the signals that touch it, for the life of one REPL. A handler can only
// reach static storage, so there is at most one of these at a time.
#ifndef HOKKU_EDITOR_TERMINAL_H
#define HOKKU_EDITOR_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"

// Who has the terminal, where that is another process than the one that writes and reads there.
struct terminal_holder {
    void (*stop)(void);           // stops it; returns when it goes on. Safe in a handler
    bool (*await)(void);          // returns when it is not stopped: whether it was
    void (*send)(int sig);        // to its process group
    void (*dies)(int sig);        // this process, by sig. Safe in a handler
    int (*run)(const char *path); // see terminal_run
};
// For the life of the process.
void terminal_held_by(const struct terminal_holder *h);

enum terminal_mode {
    TERMINAL_COOKED,  // as it was found
    TERMINAL_EDITING, // every key comes as it is typed, Ctrl-C and Ctrl-Z too
    // No echo, no line buffering: what is typed waits for the next prompt, as it was typed.
    TERMINAL_ANSWERING,
};

// Remembers the modes of fd (a terminal) and takes over SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT,
// SIGWINCH, and all signals that would end the program. cancel is set when an answer is to stop.
// ansi: escape sequences may be written to fd_out to undo bracketed paste and colours.
bool terminal_begin(int fd, int fd_out, bool ansi, struct cancel *cancel);
// Restores the modes and the handlers found before.
void terminal_end(void);
void terminal_set_mode(enum terminal_mode mode);
// Who is to hear Ctrl-C. While a line is read: its reader, by terminal_events. Else the work, by
// the flag; a second one before terminal_events has heard of the first kills, or leaves as
// signals_leave has it: then terminal_death has come, too.
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
// Stops the process as SIGTSTP would, with the modes as they were found, unless SIGCONT has come
// behind that; returns when it goes on in the foreground, with the modes that were set, or is to
// end.
void terminal_suspend(void);
// Stops in the background, and its pipeline with it, as whoever sets modes there does, until it has
// the terminal fd. False: it has not, and SIGTERM or SIGHUP waits, or nobody is left to go on for.
bool terminal_wait(int fd);
// To be called before a read: what is typed while the holder is stopped is somebody else's. Whether
// it was: what there was to read may be gone.
bool terminal_await(void);
// A signal for all of a pipeline, as the terminal would send it.
void terminal_signal_group(int sig);
// Has a command of the shell, which has the terminal, work on a file: its status as waitpid has it;
// -1: errno says why there is none. The modes are those that were found. It hears all signals.
int terminal_run(const char *command, const char *path);
// For a process that holds a terminal for another one: remembers its modes, and puts them back when
// the other one cannot.
bool terminal_remember(int fd, int fd_out, bool ansi);
void terminal_put_back(void);
// Restores the modes of fd, the terminal, for a holder that is gone: if they are still those that
// were set here last, since by now the terminal may be somebody else's. From any thread.
void terminal_restore(int fd);

void terminal_size(int fd, size_t *cols, size_t *rows); // 80 and 24 when unknown

#endif
