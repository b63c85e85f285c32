// Where clients come to: an address, a socket with a path, or a socket that systemd has opened.
#ifndef HOKKU_SERVE_LISTEN_H
#define HOKKU_SERVE_LISTEN_H

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

struct listening {
    int fd;         // owned until somebody takes it; -1: none
    bool unix_path; // nobody else on the network can reach it
    bool loopback;  // the same
    char *path;     // owned: of the socket that was made, removed at the end; NULL: none
    dev_t device;   // of path's file: another server may put its own there
    ino_t inode;
    char host[50];   // of its address, as a header Host has it; "": a path
    struct buf name; // of it, for people: a URL, or unix:PATH
};

// text: HOST:PORT (a numeric address or localhost; port 0: one that is free) or unix:PATH; NULL:
// 127.0.0.1:8080. inherited: a descriptor that listens already, instead; -1: none.
// Errors: ERR_USAGE: it is none of these, or both are given; ERR_FAIL: it is in use, or not to be
// had.
bool listen_open(struct listening *l, const char *text, int inherited, struct error *err);
// Removes path, if it is still this socket's: while it is open, so that no other can have its
// number.
void listen_unlink(struct listening *l);
void listen_release(struct listening *l);

#endif
