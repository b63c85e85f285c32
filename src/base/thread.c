#include "base/thread.h"

void thread_block_signals(sigset_t *before)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

int thread_start(pthread_t *t, size_t stack_bytes, void *(*run)(void *), void *arg)
{
    sigset_t before;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack_bytes > 0 ? stack_bytes : THREAD_STACK_BYTES);
    thread_block_signals(&before);
    const int failed = pthread_create(t, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed;
}
