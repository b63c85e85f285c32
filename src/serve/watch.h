// Looks, while the engine's thread prepares a request and hears nothing, whether that is still
// wanted: its client may leave, and the server is to end some time after it was asked to.
#ifndef HOKKU_SERVE_WATCH_H
#define HOKKU_SERVE_WATCH_H

#include "base/cancel.h"
#include "serve/desk.h"

struct watch {
    struct cancel unwanted;      // what the preparation polls
    const struct cancel *server; // borrowed: somebody wants the end
    double grace;                // seconds between that and the end
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; // of all below
    pthread_cond_t came;
    struct job *job; // that is prepared now
    double until;    // when the server is to end; 0: nobody has asked for that
    bool ended;
};

// w must not move until it is released.
bool watch_init(struct watch *w, const struct cancel *server, double grace, struct error *err);
void watch_release(struct watch *w); // zeroed is fine

// From now on, and until the next call, j is prepared (NULL: none). The flag is clear, or set if it
// is time to end.
void watch_job(struct watch *w, struct job *j);
double watch_until(struct watch *w); // when the server is to end; 0: nobody has asked for that

#endif
