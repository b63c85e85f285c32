// The one way to ask running work to end: a flag that a signal handler or another thread sets and
// that loops poll. Lock-free, so that it may be set in a handler; atomic, so that threads may read
// it. (Compiler builtins, not stdatomic.h: C++ and CUDA read this header too.)
#ifndef HOKKU_BASE_CANCEL_H
#define HOKKU_BASE_CANCEL_H

#include <assert.h>
#include <stdbool.h>

struct cancel { // zeroed: nobody has asked
    int asked;
};
static_assert(__atomic_always_lock_free(sizeof(int), 0), "a handler must never wait for a lock");

// NULL is a flag that is never set.
static inline bool cancel_asked(const struct cancel *c)
{
    return c && __atomic_load_n(&c->asked, __ATOMIC_RELAXED);
}

static inline void cancel_ask(struct cancel *c)
{
    __atomic_store_n(&c->asked, 1, __ATOMIC_RELAXED);
}

static inline void cancel_clear(struct cancel *c)
{
    __atomic_store_n(&c->asked, 0, __ATOMIC_RELAXED);
}

#endif
