// The door: a thread that accepts connections and hands them over. (libmicrohttpd can accept them
// itself, but when it is to stop doing so, MHD_quiesce_daemon, its threads and the caller may both
// take the socket out of an event queue, and whoever comes second ends the program.)
#ifndef HOKKU_SERVE_DOOR_H
#define HOKKU_SERVE_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/error.h"

struct door;

struct door_params {
    size_t (*n_inside)(void *user); // connections that are there
    size_t most;                    // of them: others wait outside
    // Takes fd, also when it cannot serve it.
    void (*enter)(void *user, int fd, const struct sockaddr *from, socklen_t n);
    void *user;
};

// Takes fd, which listens, when it succeeds. Errors: ERR_FAIL, ERR_MEMORY.
struct door *door_open(int fd, const struct door_params *p, struct error *err);
void door_close(struct door *d); // nobody enters from now on; NULL is fine

#endif
