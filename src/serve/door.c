#include "serve/door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

enum { LATER_MS = 20 }; // until the next look, where nobody can enter now

struct door {
    struct door_params p;
    int fd, closing[2]; // a pipe, whose other end is closed
    pthread_t thread;
};

enum let_in { ENTERED, NOBODY, NOT_NOW };

static enum let_in let_in(const struct door *d)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    if (d->p.n_inside(d->p.user) >= d->p.most)
        return NOT_NOW;
    const int fd = accept4(d->fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) // who went away meanwhile does not matter; descriptors or memory may come back
        return errno == EINTR || errno == ECONNABORTED || errno == EAGAIN || errno == EPROTO
                   ? NOBODY
                   : NOT_NOW;
    d->p.enter(d->p.user, fd, (struct sockaddr *)&from, n);
    return ENTERED;
}

static void *stand(void *user)
{
    const struct door *d = user;
    struct pollfd p[2] = {{.fd = d->closing[0]}, {.fd = d->fd, .events = POLLIN}};
    for (bool open = true;;) {
        const int n = poll(p, open ? 2 : 1, open ? -1 : LATER_MS);
        if (n > 0 && p[0].revents)
            break;
        open = n < 0 || !open || let_in(d) != NOT_NOW;
    }
    while (let_in(d) == ENTERED) // whoever came before
        ;
    return NULL;
}

struct door *door_open(int fd, const struct door_params *p, struct error *err)
{
    struct door *d = malloc(sizeof *d);
    if (!d) {
        error_oom(err, "the server's door", sizeof *d);
        return NULL;
    }
    *d = (struct door){.p = *p, .fd = fd};
    const int flags = fcntl(fd, F_GETFL); // who goes away between poll and accept
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || pipe2(d->closing, O_CLOEXEC)) {
        error_set(err, ERR_FAIL, "connections cannot be accepted: %s", strerror(errno));
        free(d);
        return NULL;
    }
    const int failed = thread_start(&d->thread, 0, stand, d);
    if (failed == 0)
        return d;
    error_set(err, ERR_FAIL, "a thread that accepts connections cannot be started: %s",
              strerror(failed));
    close(d->closing[0]);
    close(d->closing[1]);
    free(d);
    return NULL;
}

void door_close(struct door *d)
{
    if (!d)
        return;
    close(d->closing[1]);
    pthread_join(d->thread, NULL);
    close(d->closing[0]);
    close(d->fd);
    free(d);
}
