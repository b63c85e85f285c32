// Threads beside the program's own, to which signals are left.
#ifndef HOKKU_BASE_THREAD_H
#define HOKKU_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

// pthread_create, for a thread that no signal interrupts but those of its own faults and reads.
// stack_bytes 0: as many as usual.
int thread_start(pthread_t *t, size_t stack_bytes, void *(*run)(void *), void *arg);

#endif
