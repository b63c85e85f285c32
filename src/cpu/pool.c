#include "cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

// state: job number << 16 | OPEN | threads at work on it. A worker joins by adding one while the
// job is open; the caller closes the job when no item is left and waits for those who joined.
enum { OPEN = 1 << 15, WORKERS = OPEN - 1, JOB_SHIFT = 16 };

// How often to look before sleeping: some tens of microseconds, longer than the caller's own work
// between two jobs of one token.
enum { SPINS = 2000, SPINS_BEFORE_YIELD = 200 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index; // from 1
};

struct pool {
    int n_threads;
    int n_started;
    struct worker *workers;
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic size_t next;
    _Alignas(64) atomic_int n_sleeping;
    atomic_bool quit;
    atomic_bool skipped;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    // the job, written only while it is closed and nobody is at work
    size_t n_items;
    void (*fn)(void *arg, size_t item, int thread);
    void *arg;
    const struct cancel *cancel;
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int pool_online_cpus(void)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > POOL_MAX_THREADS ? POOL_MAX_THREADS : n;
}

static void work(struct pool *p, int thread)
{
    for (;;) {
        if (cancel_asked(p->cancel)) {
            atomic_store(&p->skipped, true);
            return;
        }
        size_t item = atomic_fetch_add(&p->next, 1);
        if (item >= p->n_items)
            return;
        p->fn(p->arg, item, thread);
    }
}

static bool worth_joining(uint64_t state, uint64_t last_job)
{
    return (state & OPEN) && state >> JOB_SHIFT != last_job;
}

static void sleep_until_work(struct pool *p, uint64_t last_job)
{
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (!atomic_load(&p->quit) && !worth_joining(atomic_load(&p->state), last_job))
        pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint64_t last_job = 0;
    int spins = 0;
    while (!atomic_load(&p->quit)) {
        uint64_t state = atomic_load(&p->state);
        if (!worth_joining(state, last_job)) {
            pause_briefly();
            if (++spins > SPINS) {
                sleep_until_work(p, last_job);
                spins = 0;
            }
            continue;
        }
        if (!atomic_compare_exchange_weak(&p->state, &state, state + 1))
            continue;
        last_job = state >> JOB_SHIFT;
        work(p, w->index);
        atomic_fetch_sub(&p->state, 1);
        spins = 0;
    }
    return NULL;
}

struct pool *pool_create(int n_threads, struct error *err)
{
    if (n_threads < 1)
        n_threads = 1;
    if (n_threads > POOL_MAX_THREADS)
        n_threads = POOL_MAX_THREADS;
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) {
        error_oom(err, "the thread pool", sizeof *p);
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        error_oom(err, "the thread pool", (size_t)n_threads * sizeof *p->workers);
        goto fail;
    }
    for (int i = 1; i < n_threads; i++) {
        struct worker *w = &p->workers[p->n_started];
        w->pool = p;
        w->index = i;
        int e = thread_start(&w->thread, 0, worker_main, w);
        if (e != 0) {
            error_set(err, ERR_FAIL, "thread %d of %d does not start: %s; try fewer with -t", i + 1,
                      n_threads, strerror(e));
            goto fail;
        }
        p->n_started++;
    }
    return p;
fail:
    pool_free(p);
    return NULL;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->quit, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->wake);
    free(p->workers);
    free(p);
}

int pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}

bool pool_run(struct pool *p, size_t n, void (*fn)(void *arg, size_t item, int thread), void *arg,
              const struct cancel *cancel)
{
    p->n_items = n;
    p->fn = fn;
    p->arg = arg;
    p->cancel = cancel;
    atomic_store(&p->next, 0);
    atomic_store(&p->skipped, false);
    const bool share = n > 1 && p->n_started > 0;
    if (share) {
        uint64_t job = (atomic_load(&p->state) >> JOB_SHIFT) + 1;
        atomic_store(&p->state, job << JOB_SHIFT | OPEN);
        if (atomic_load(&p->n_sleeping) > 0) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_broadcast(&p->wake);
            pthread_mutex_unlock(&p->mutex);
        }
    }
    work(p, 0);
    if (share) {
        atomic_fetch_and(&p->state, ~(uint64_t)OPEN);
        for (int spins = 0; atomic_load(&p->state) & WORKERS; spins++) {
            pause_briefly();
            if (spins > SPINS_BEFORE_YIELD)
                sched_yield();
        }
    }
    return !atomic_load(&p->skipped);
}
