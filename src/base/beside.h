// One piece of work on a thread of its own, while its owner goes on.
#ifndef HOKKU_BASE_BESIDE_H
#define HOKKU_BASE_BESIDE_H

#include <pthread.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct beside { // must not move while it is under way; zeroed: nothing is
    void (*work)(void *user);
    void *user;
    pthread_t thread;
    bool under_way; // begun, and its end not seen yet
    bool ended;
};

// Nothing is under way. Where there can be no thread, the work is done here and now.
void beside_begin(struct beside *b, void (*work)(void *user), void *user);
// Whether it has ended, so that all it did can be seen; nothing under way has.
bool beside_has_ended(struct beside *b);
void beside_wait(struct beside *b); // until it has

#ifdef __cplusplus
}
#endif
#endif
