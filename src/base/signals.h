// Ctrl-C, SIGTERM and SIGHUP, for the whole program: the first one asks the running work to end,
// the second does not ask again and kills. The chat on a terminal has handlers of its own
// (editor/terminal.h) that keep the same promise.
#ifndef HOKKU_BASE_SIGNALS_H
#define HOKKU_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/cancel.h"

// Takes over SIGINT, SIGTERM and SIGHUP, unless the parent ignores them (nohup). Blocking calls
// return with EINTR. Returns the flag that work must poll; it lives as long as the process.
struct cancel *signals_begin(void);
int signals_caught(void); // the first of them that came; 0: none
int signals_forget(void); // the same; the next that comes is the first again

// Whether that signal is no second one, but the one before it once more: timeout(1) and others
// signal a child and then its whole group. It is, if it asks to end (SIGINT, SIGTERM, SIGHUP) and
// the same process (from; code: siginfo_t's) sent it at most SIGNALS_ECHO_S before. Safe in a
// handler; to be asked of each signal, once.
#define SIGNALS_ECHO_S 0.05
bool signals_echoes(int sig, int code, pid_t from, double now);

// For a process that does the work of others, which hand signals on to its thread (pthread_kill):
// the second one that comes so does not kill. leave(sig) has whoever sent it die; the work is
// unseen from there on, and ends as the first one asked. For the life of the process; safe in a
// handler.
void signals_let_leave(void (*leave)(int sig));
// In a handler: whether a second signal has done that; else the process is to die.
bool signals_leave_by(int sig, const siginfo_t *info);

// Ends the process by sig, as if it had never been handled: whoever waits for it can tell.
// Safe in a handler.
void signals_die(int sig);

#endif
