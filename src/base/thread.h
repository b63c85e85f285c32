// Threads beside the program's own, to which signals are left.
#ifndef HOKKU_BASE_THREAD_H
#define HOKKU_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { THREAD_STACK_BYTES = 2 << 20 }; // what glibc gives them where none is set

// pthread_create, for a thread that no signal interrupts but those of its own faults and reads.
// stack_bytes 0: THREAD_STACK_BYTES, whatever limit there is for that of the first thread.
int thread_start(pthread_t *t, size_t stack_bytes, void *(*run)(void *), void *arg);
// From here on the calling thread hears none but those, and neither do threads that somebody else
// starts for it, until pthread_sigmask(SIG_SETMASK, before, NULL).
void thread_block_signals(sigset_t *before);

#ifdef __cplusplus
}
#endif

#endif
