#include "serve/desk.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/mhd.h"

void desk_init(struct desk *d, size_t most_open)
{
    pthread_condattr_t monotonic;
    *d = (struct desk){.most_open = most_open};
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&d->came, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void lock(struct desk *d)
{
    pthread_mutex_lock(&d->lock);
}

static void unlock(struct desk *d)
{
    pthread_mutex_unlock(&d->lock);
}

void desk_release(struct desk *d)
{
    for (struct job *j; (j = desk_take(d, 0));)
        job_free(j);
    pthread_cond_destroy(&d->came);
    pthread_mutex_destroy(&d->lock);
}

void desk_close(struct desk *d)
{
    lock(d);
    d->closed = true;
    unlock(d);
}

size_t desk_n_open(struct desk *d)
{
    lock(d);
    const size_t n = d->n_open;
    unlock(d);
    return n;
}

bool desk_take_bytes(struct desk *d, uint64_t n)
{
    lock(d);
    const bool there = n <= DESK_MOST_BYTES - d->n_bytes;
    d->n_bytes += there ? n : 0;
    unlock(d);
    return there;
}

void desk_give_bytes(struct desk *d, uint64_t n)
{
    lock(d);
    d->n_bytes -= n;
    unlock(d);
}

// ---- the connection's side

struct job *job_create(struct desk *d, struct ask *ask, uint64_t n_bytes, struct MHD_Connection *c,
                       int fd)
{
    struct job *j = malloc(sizeof *j);
    if (!j)
        return NULL;
    *j = (struct job){
        .ask = *ask, .n_bytes = n_bytes, .desk = d, .connection = c, .fd = fd, .n_owners = 1};
    *ask = (struct ask){0};
    return j;
}

// The lock is held.
static void wait_for_more(struct job *j)
{
    j->suspended = true;
    mhd.suspend_connection(j->connection);
}

static void wake(struct job *j)
{
    if (j->suspended && j->connection)
        mhd.resume_connection(j->connection);
    j->suspended = false;
}

bool desk_offer(struct desk *d, struct job *j, struct refusal *r)
{
    bool ok = false;
    lock(d);
    if (d->closed) {
        refuse(r, 503, NULL, "shutting_down", "the server is about to end: ask another one");
    } else if (d->n_open >= d->most_open) {
        refuse(r, 429, NULL, "queue_full",
               "%zu requests are answered or wait, and no more are taken: try again later",
               d->n_open);
    } else {
        struct job **p = &d->first;
        while (*p)
            p = &(*p)->next;
        *p = j;
        d->n_open++;
        j->counted = true;
        j->n_owners++;
        wait_for_more(j);
        pthread_cond_signal(&d->came);
        ok = true;
    }
    unlock(d);
    return ok;
}

enum job_came job_came(struct job *j)
{
    lock(j->desk);
    const enum job_came c = j->streaming ? JOB_EVENTS : j->ended ? JOB_ANSWER : JOB_NOTHING;
    if (c == JOB_NOTHING)
        wait_for_more(j);
    unlock(j->desk);
    return c;
}

enum { COMPACT = 64 << 10 }; // bytes that are read, beyond which their memory is used again

ssize_t job_read(struct job *j, char *to, size_t most, size_t *n_left)
{
    lock(j->desk);
    const size_t left = j->out.len - j->taken;
    ssize_t n = (ssize_t)(left < most ? left : most);
    if (n > 0) {
        memcpy(to, j->out.data + j->taken, (size_t)n);
        j->taken += (size_t)n;
    } else if (j->ended) {
        n = j->cut ? -2 : -1;
    } else {
        wait_for_more(j);
    }
    if (j->taken == j->out.len || j->taken > COMPACT) {
        if (j->out.len > j->taken)
            memmove(j->out.data, j->out.data + j->taken, j->out.len - j->taken);
        j->out.len -= j->taken;
        j->taken = 0;
    }
    *n_left = j->ended ? j->out.len - j->taken : 0;
    unlock(j->desk);
    return n;
}

// The lock is held, and given back.
static void disown(struct job *j)
{
    struct desk *d = j->desk;
    const bool last = --j->n_owners == 0;
    unlock(d);
    if (!last)
        return;
    job_forget_ask(j, 0);
    buf_release(&j->out);
    free(j);
}

void job_leave(struct job *j)
{
    lock(j->desk);
    j->connection = NULL;
    disown(j);
}

// ---- the engine's side

struct job *desk_take(struct desk *d, int wait_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += wait_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    lock(d);
    while (wait_ms > 0 && !d->first && pthread_cond_timedwait(&d->came, &d->lock, &until) == 0)
        ;
    struct job *j = d->first;
    if (j)
        d->first = j->next;
    unlock(d);
    return j;
}

void job_forget_ask(struct job *j, uint64_t n_kept)
{
    ask_release(&j->ask);
    desk_give_bytes(j->desk, j->n_bytes - n_kept);
    j->n_bytes = n_kept;
}

bool job_keep_bytes(struct job *j, uint64_t n)
{
    const bool there = desk_take_bytes(j->desk, n);
    j->n_bytes += there ? n : 0;
    return there;
}

bool job_has_client(struct job *j)
{
    lock(j->desk);
    struct pollfd p = {.fd = j->fd, .events = POLLRDHUP};
    // While it is suspended nobody else looks at the socket.
    if (j->connection && poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
        j->ended = j->cut = true;
    const bool has = j->connection && !j->ended;
    unlock(j->desk);
    return has;
}

void job_begin_stream(struct job *j)
{
    lock(j->desk);
    j->streaming = true;
    j->status = 200;
    wake(j);
    unlock(j->desk);
}

// Its client reads too slowly: what it still reads must not look like all. The lock is held.
static void give_up(struct job *j)
{
    struct refusal r;
    struct buf event = {0};
    refuse(&r, 408, NULL, "slow_reader",
           "the stream is cut off here: more than %d bytes of it were not read", DESK_MOST_UNREAD);
    j->cut = !refusal_json(&r, true, &event) || !buf_append(&j->out, event.data, event.len);
    j->ended = true;
    buf_release(&event);
}

bool job_write(struct job *j, const char *text, size_t n)
{
    lock(j->desk);
    bool ok = j->connection && !j->ended;
    if (ok && j->out.len - j->taken > DESK_MOST_UNREAD) {
        give_up(j);
        ok = false;
    } else if (ok && !buf_append(&j->out, text, n)) {
        j->ended = j->cut = true;
        ok = false;
    }
    wake(j);
    unlock(j->desk);
    return ok;
}

// Before its client can know: what that sends next must find the place.
static void leave_queue(struct job *j)
{
    j->desk->n_open -= j->counted;
    j->counted = false;
}

static void end(struct job *j)
{
    j->ended = true;
    leave_queue(j);
    wake(j);
    unlock(j->desk);
}

enum { SMALL = 4 << 10 }; // bytes of a body that do not count: as little as a refusal has

void job_answer(struct job *j, unsigned status, struct buf *body)
{
    if (body->len > SMALL && !job_keep_bytes(j, body->len)) {
        struct refusal r;
        status = 503;
        buf_release(body);
        refuse(&r, status, NULL, "out_of_memory",
               "what others have not read yet takes too much memory: try again later");
        refusal_json(&r, false, body);
    }
    lock(j->desk);
    buf_release(&j->out);
    j->out = *body;
    j->status = status;
    *body = (struct buf){0};
    end(j);
}

void job_end(struct job *j)
{
    lock(j->desk);
    end(j);
}

void job_free(struct job *j)
{
    lock(j->desk);
    j->cut = j->cut || !j->ended;
    j->ended = true;
    wake(j);
    leave_queue(j);
    disown(j);
}
