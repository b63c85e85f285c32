#include "serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage room;
};

static bool is_loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

// What is known of a socket that listens.
static bool describe(struct listening *l, struct error *err)
{
    union address a = {0};
    socklen_t n = sizeof a;
    int listens = 0;
    socklen_t n_listens = sizeof listens;
    if (getsockname(l->fd, &a.any, &n) != 0 ||
        getsockopt(l->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) != 0 || !listens)
        return error_set(err, ERR_FAIL, "descriptor %d is no socket that listens", l->fd);
    l->unix_path = a.any.sa_family == AF_UNIX;
    l->loopback = is_loopback(&a);
    char host[INET6_ADDRSTRLEN] = "";
    const bool v6 = a.any.sa_family == AF_INET6;
    if (l->unix_path)
        buf_printf(&l->name, "unix:%s", a.local.sun_path);
    else if (inet_ntop(a.any.sa_family, v6 ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr, host,
                       sizeof host))
        snprintf(l->host, sizeof l->host, v6 ? "[%s]" : "%s", host);
    if (l->host[0])
        buf_printf(&l->name, "http://%s:%u", l->host, ntohs(v6 ? a.v6.sin6_port : a.v4.sin_port));
    return !l->name.failed || error_oom(err, "an address", l->name.len);
}

static bool open_socket(struct listening *l, const union address *a, socklen_t n, const char *text,
                        struct error *err)
{
    const int on = 1;
    l->fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd >= 0 && a->any.sa_family != AF_UNIX)
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (l->fd >= 0 && bind(l->fd, &a->any, n) == 0 && listen(l->fd, BACKLOG) == 0)
        return true;
    const int why = errno;
    struct stat st;
    const char *hint = a->any.sa_family != AF_UNIX
                           ? ": another program listens there; port 0 finds a free one"
                       : lstat(a->local.sun_path, &st) == 0 && !S_ISSOCK(st.st_mode)
                           ? ": what is there is no socket; remove it, or name another path"
                           : ": another program listens there; name another path";
    return error_set(err, ERR_FAIL, "--listen %s: %s%s", text, strerror(why),
                     why == EADDRINUSE ? hint : "");
}

static bool not_an_address(const char *text, struct error *err)
{
    return error_set(err, ERR_USAGE,
                     "--listen: found \"%.80s\", expected HOST:PORT (a numeric address, or "
                     "localhost, and a PORT from 0 to 65535) or unix:PATH",
                     text);
}

static bool open_address(struct listening *l, const char *text, struct error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[80];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    char *end = NULL;
    if (n == 0 || n >= sizeof host || strtoul(colon + 1, &end, 10) > 65535 || *end ||
        colon[1] < '0' || colon[1] > '9')
        return not_an_address(text, err);
    const bool v6 = text[0] == '[' && n > 2 && text[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(v6 ? n - 2 : n), text + v6);
    if (!v6 && strchr(host, ':'))
        return not_an_address(text, err);
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return not_an_address(text, err);
    union address a = {0};
    memcpy(&a, found->ai_addr, found->ai_addrlen);
    const bool ok = open_socket(l, &a, found->ai_addrlen, text, err);
    freeaddrinfo(found);
    return ok;
}

// What a server that was killed has left may go: nobody answers there.
static void remove_dead(const union address *a)
{
    struct stat st;
    if (lstat(a->local.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
        return;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, &a->any, sizeof a->local) != 0 && errno == ECONNREFUSED)
        unlink(a->local.sun_path);
    if (fd >= 0)
        close(fd);
}

static bool open_path(struct listening *l, const char *text, const char *path, struct error *err)
{
    union address a = {.local = {.sun_family = AF_UNIX}};
    if (path[0] == '\0' || strlen(path) >= sizeof a.local.sun_path)
        return error_set(err, ERR_USAGE,
                         "--listen %.120s: the path has %zu bytes, expected 1 to %zu", text,
                         strlen(path), sizeof a.local.sun_path - 1);
    snprintf(a.local.sun_path, sizeof a.local.sun_path, "%s", path);
    remove_dead(&a);
    const mode_t mask = umask(0177); // nobody else may come
    const bool ok = open_socket(l, &a, sizeof a.local, text, err);
    umask(mask);
    struct stat st;
    if (ok && lstat(path, &st) != 0)
        return error_set(err, ERR_FAIL, "--listen %s: %s", text, strerror(errno));
    if (ok && !(l->path = strdup(path)))
        return error_oom(err, "a path", strlen(path));
    if (ok) {
        l->device = st.st_dev;
        l->inode = st.st_ino;
    }
    return ok;
}

bool listen_open(struct listening *l, const char *text, int inherited, struct error *err)
{
    *l = (struct listening){.fd = inherited};
    if (text && inherited >= 0) {
        l->fd = -1;
        return error_set(err, ERR_USAGE,
                         "--listen %.120s: found a socket that was opened for this program "
                         "(LISTEN_FDS) too, expected one of them",
                         text);
    }
    const char *where = text ? text : "127.0.0.1:8080";
    bool ok = inherited >= 0                    ? true
              : strncmp(where, "unix:", 5) == 0 ? open_path(l, where, where + 5, err)
                                                : open_address(l, where, err);
    ok = ok && describe(l, err);
    if (!ok)
        listen_release(l);
    return ok;
}

void listen_unlink(struct listening *l)
{
    struct stat st;
    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        unlink(l->path);
    free(l->path);
    l->path = NULL;
}

void listen_release(struct listening *l)
{
    listen_unlink(l);
    if (l->fd >= 0)
        close(l->fd);
    buf_release(&l->name);
    *l = (struct listening){.fd = -1};
}
