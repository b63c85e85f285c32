#include "keep/wire.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum { MAGIC = 0x6b6b6f01, BACKLOG = 64 };

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(KEEP_FDS * sizeof(int))];
};

bool keep_send(int fd, struct keep_message *m, const int *fds, size_t n)
{
    union control c = {0};
    struct iovec iov = {.iov_base = m, .iov_len = sizeof *m};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    m->magic = MAGIC;
    m->pid = getpid();
    if (n > 0) {
        h.msg_control = &c;
        h.msg_controllen = CMSG_SPACE(n * sizeof *fds);
        struct cmsghdr *x = CMSG_FIRSTHDR(&h);
        x->cmsg_level = SOL_SOCKET;
        x->cmsg_type = SCM_RIGHTS;
        x->cmsg_len = CMSG_LEN(n * sizeof *fds);
        memcpy(CMSG_DATA(x), fds, n * sizeof *fds);
    }
    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *m;
}

int keep_receive(int fd, struct keep_message *m, int fds[KEEP_FDS], size_t *n)
{
    union control c;
    struct iovec iov = {.iov_base = m, .iov_len = sizeof *m};
    struct msghdr h = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = fds ? sizeof c : 0};
    if (n)
        *n = 0;
    const int flags = MSG_DONTWAIT | MSG_CMSG_CLOEXEC;
    ssize_t k = recvmsg(fd, &h, flags);
    if (k < 0 && errno == ECONNRESET) // told once, and before what had come: the end is behind that
        k = recvmsg(fd, &h, flags);
    if (k < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    struct cmsghdr *x = fds ? CMSG_FIRSTHDR(&h) : NULL;
    if (k > 0 && x && x->cmsg_level == SOL_SOCKET && x->cmsg_type == SCM_RIGHTS) {
        *n = (x->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
        memcpy(fds, CMSG_DATA(x), *n * sizeof *fds);
    }
    if (k == (ssize_t)sizeof *m && m->magic == MAGIC && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        m->path[sizeof m->path - 1] = m->device[sizeof m->device - 1] = '\0';
        return 1;
    }
    for (size_t i = 0; n && i < *n; i++)
        close(fds[i]);
    return -1;
}

int keep_await(int fd, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const double left = (until - clock_now()) * 1e3;
    const int k = poll(&p, 1, left > 0 ? (int)fmin(ceil(left), 1e6) : 0);
    return k > 0 ? 1 : k == 0 ? 0 : -1;
}

bool keep_peer_is_me(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static int open_socket(const char *path, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t n = strlen(path);
    if (n >= sizeof a->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(a->sun_path, path, n + 1);
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int failed(int fd, int why)
{
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

int keep_connect(const char *path)
{
    struct sockaddr_un a;
    const int fd = open_socket(path, &a);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        return failed(fd, errno);
    return keep_peer_is_me(fd) ? fd : failed(fd, EPERM);
}

int keep_listen(const char *path)
{
    struct sockaddr_un a;
    const int fd = open_socket(path, &a);
    unlink(path);
    const mode_t mask = umask(0177);
    const bool ok =
        fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, BACKLOG) == 0;
    const int why = errno;
    umask(mask);
    return ok ? fd : failed(fd, why);
}
