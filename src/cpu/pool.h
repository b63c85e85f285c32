// A pool of threads that share out the items of one job at a time. Which thread takes an item
// never changes its result. Threads spin for some microseconds between jobs, then sleep; a thread
// that the system does not run is never waited for unless it has taken an item.
#ifndef HOKKU_CPU_POOL_H
#define HOKKU_CPU_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"
#include "base/error.h"

struct pool; // opaque

enum { POOL_MAX_THREADS = 1024 }; // as many as -t takes

// CPUs that this process may run on, at least 1.
int pool_online_cpus(void);

// n_threads includes the caller's: 1 starts none. Errors: ERR_MEMORY, ERR_FAIL.
struct pool *pool_create(int n_threads, struct error *err);
void pool_free(struct pool *p); // NULL is fine
int pool_n_threads(const struct pool *p);

// Calls fn(arg, item, thread) for every item of [0, n), thread in [0, n_threads), and returns when
// all are done. Once `cancel` is asked, items not yet begun are left out and the result is
// false. cancel may be NULL. Only one thread may call this at a time, and fn must not.
bool pool_run(struct pool *p, size_t n, void (*fn)(void *arg, size_t item, int thread), void *arg,
              const struct cancel *cancel);

#endif
