#include "serve/watch.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

enum { LOOK_MS = 20 };

// The lock is held.
static bool time_to_end(struct watch *w)
{
    if (w->until == 0 && cancel_asked(w->server))
        w->until = clock_now() + w->grace;
    return w->until > 0 && clock_now() > w->until;
}

static void *look(void *arg)
{
    struct watch *w = arg;
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    pthread_mutex_lock(&w->lock);
    while (!w->ended) {
        if (!w->job) {
            pthread_cond_wait(&w->came, &w->lock);
            continue;
        }
        if (time_to_end(w) || !job_has_client(w->job))
            cancel_ask(&w->unwanted);
        pthread_mutex_unlock(&w->lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

bool watch_init(struct watch *w, const struct cancel *server, double grace, struct error *err)
{
    enum { STACK_BYTES = 256 << 10 }; // it only waits and looks
    *w = (struct watch){.server = server, .grace = grace};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    const int failed = thread_start(&w->thread, STACK_BYTES, look, w);
    w->runs = failed == 0;
    if (w->runs)
        return true;
    pthread_cond_destroy(&w->came);
    pthread_mutex_destroy(&w->lock);
    return error_set(err, ERR_FAIL, "a thread could not be started: %s", strerror(failed));
}

void watch_release(struct watch *w)
{
    if (!w->runs)
        return;
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->came);
    pthread_mutex_destroy(&w->lock);
    w->runs = false;
}

void watch_job(struct watch *w, struct job *j)
{
    pthread_mutex_lock(&w->lock);
    w->job = j;
    cancel_clear(&w->unwanted);
    if (time_to_end(w))
        cancel_ask(&w->unwanted);
    if (j)
        pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->lock);
}

double watch_until(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    time_to_end(w);
    const double until = w->until;
    pthread_mutex_unlock(&w->lock);
    return until;
}
