// What stands between the threads that talk to clients and the one that has the engine: requests
// wait here for it, and what it answers is here to be read, by each client as fast as it can.
#ifndef HOKKU_SERVE_DESK_H
#define HOKKU_SERVE_DESK_H

#include <pthread.h>
#include <sys/types.h>

#include "serve/ask.h"

struct MHD_Connection;

struct metrics {
    uint64_t n_answers, n_cancelled, n_refused; // requests for an answer: how they ended
    uint64_t n_prompt, n_reused, n_generated;   // tokens
    uint64_t n_drafted, n_accepted;             // guesses of them
    uint64_t n_running, n_waiting;              // answers, now
    uint64_t n_pool, n_pool_free;               // blocks of keys and values
};

struct desk {
    pthread_mutex_t lock; // of all below, of every job, and of what jobs' connections wait for
    pthread_cond_t came;
    struct job *first; // that nobody has taken, oldest first
    size_t n_open;     // jobs that are not ended, taken or not
    size_t most_open;  // more are refused
    bool closed;       // nothing more is taken in
    uint64_t n_bytes;  // that requests on their way, and answers that nobody has read yet, take
    struct metrics metrics;
};

// Bytes that they may take, all together.
static const uint64_t DESK_MOST_BYTES = 256 << 20;
// Of a stream, bytes that its client has not read yet, beyond which it is given up.
enum { DESK_MOST_UNREAD = 1 << 20 };

struct job {          // a request for what only the engine's thread can do
    struct ask ask;   // of its maker until it is offered, then of whoever takes it
    uint64_t n_bytes; // that count at the desk as long as it has them
    // Of the desk:
    struct desk *desk;
    struct MHD_Connection *connection; // NULL: it is closed
    int fd;                            // its socket
    bool suspended;                    // the connection waits for what comes next
    bool streaming;                    // what comes is events; else one body
    bool ended;                        // nothing comes any more
    bool cut;                          // and of a stream that has not said why
    bool counted;                      // it is one of n_open
    unsigned status;                   // of HTTP, when it is ended or streaming
    struct buf out;                    // of which `taken` bytes are read
    size_t taken;
    unsigned n_owners;
    struct job *next;
};

void desk_init(struct desk *d, size_t most_open);
void desk_release(struct desk *d);
void desk_close(struct desk *d);    // offers are refused from now on
size_t desk_n_open(struct desk *d); // jobs that are not ended, taken or not

// Takes n bytes of what requests may take; false: they are not there.
bool desk_take_bytes(struct desk *d, uint64_t n);
void desk_give_bytes(struct desk *d, uint64_t n);

// ---- for the threads of the connections

// NULL: no memory. Takes *ask and n_bytes, which were taken before.
struct job *job_create(struct desk *d, struct ask *ask, uint64_t n_bytes, struct MHD_Connection *c,
                       int fd);
// Lets it wait for the engine's thread, and its connection for it. False: refused.
bool desk_offer(struct desk *d, struct job *j, struct refusal *r);
enum job_came { JOB_NOTHING, JOB_EVENTS, JOB_ANSWER };
enum job_came job_came(struct job *j);
// The next bytes of a stream; 0: none yet, the connection is suspended; -1: the end; -2: the end of
// one that was cut off and does not say so. *n_left: of a stream that has ended, what is still to
// be read; 0 of any other.
ssize_t job_read(struct job *j, char *to, size_t most, size_t *n_left);
void job_leave(struct job *j); // the connection ends; j is no longer the caller's

// ---- for the engine's thread

// The next one, or NULL when none came for so long.
struct job *desk_take(struct desk *d, int wait_ms);
// What its client asked is read: its memory is free, but for n_kept bytes that were copied from it.
void job_forget_ask(struct job *j, uint64_t n_kept);
// n more bytes are kept for its client, until it is gone. False: they are not there.
bool job_keep_bytes(struct job *j, uint64_t n);
bool job_has_client(struct job *j); // which still wants its answer
void job_begin_stream(struct job *j);
// Adds to its stream whole events. False: there is no client, or one that does not read: its stream
// ends with an event that says so.
bool job_write(struct job *j, const char *text, size_t n);
// Ends it: with a body, which is taken (and counts, until it is read: without room for it the
// client is told that instead), or the end of the stream.
void job_answer(struct job *j, unsigned status, struct buf *body);
void job_end(struct job *j);
void job_free(struct job *j); // no longer the caller's; ended if it was not

#endif
