// What a call and a keeper say to each other: messages of one size over a local socket that keeps
// them apart, with descriptors.
#ifndef HOKKU_KEEP_WIRE_H
#define HOKKU_KEEP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum keep_word {
    // To a keeper.
    KEEP_RUN = 1, // a call. seconds: to keep behind it; began; umask; number: 1: a chat
    KEEP_GO,      // it still wants that; with descriptors
    KEEP_SIGNAL,  // number: came for it
    KEEP_STATUS,  // how are you
    KEEP_LEAVE,   // end, behind what you are at
    KEEP_LEAVE_IF_IDLE,
    KEEP_EDITED, // number: the status of KEEP_EDIT's command, -1: there was none; death: errno
    // From a keeper.
    KEEP_WAIT,    // others are before you. seconds: what loading would take
    KEEP_TAKEN,   // it is your turn: do you still want it?
    KEEP_BEGUN,   // from here on the keeper alone writes and reads
    KEEP_DONE,    // number: its exit code; death
    KEEP_SAYS,    // the answer to KEEP_STATUS, and to KEEP_LEAVE where nobody is to wait
    KEEP_STOPPED, // by SIGTSTP, which was handed on: until SIGCONT is
    KEEP_RAISE,   // number: send your group this signal
    KEEP_EDIT,    // path: have the editor work on this file
};

enum keep_busy { KEEP_IDLE, KEEP_ANSWERS, KEEP_CHATS };
enum { KEEP_FDS = 5 }; // of KEEP_GO: the three streams, the directory, words and environment

struct keep_message {
    uint32_t magic; // of keep_send
    uint32_t word;
    int32_t number, death, pid;
    uint32_t umask, busy; // busy: enum keep_busy
    double seconds, began;
    uint64_t n_bytes;
    char path[1024], device[128];
};

// Never wait. fds: (n) go along; NULL: none.
bool keep_send(int fd, struct keep_message *m, const int *fds, size_t n);
// 1: a message, with n descriptors that are the caller's now; 0: there is none yet; -1: the other
// end is gone, or talks nonsense.
int keep_receive(int fd, struct keep_message *m, int fds[KEEP_FDS], size_t *n);
// 1: something came, or the other end is gone; 0: the time (clock_now) is over; -1: a signal.
int keep_await(int fd, double until);

bool keep_peer_is_me(int fd); // a process of this user
// A connection to a keeper of this user. -1: errno says why.
int keep_connect(const char *path);
// A socket at path, in place of what is there.
int keep_listen(const char *path);

#endif
