// Ctrl-C and SIGTERM, for the whole program: the first one asks the running work to end, the second
// does not ask again and kills. The chat on a terminal has handlers of its own (editor/terminal.h)
// that keep the same promise.
#ifndef HOKKU_BASE_SIGNALS_H
#define HOKKU_BASE_SIGNALS_H

#include "base/cancel.h"

// Takes over SIGINT and SIGTERM, unless the parent ignores them. Blocking calls return with EINTR.
// Returns the flag that work must poll; it lives as long as the process.
struct cancel *signals_begin(void);
int signals_caught(void); // SIGINT or SIGTERM: the first that came; 0: none
int signals_forget(void); // the same; the next that comes is the first again

// Ends the process by sig, as if it had never been handled: whoever waits for it can tell.
// Safe in a handler.
void signals_die(int sig);

#endif
