// Monotonic time for statistics.
#ifndef HOKKU_BASE_CLOCK_H
#define HOKKU_BASE_CLOCK_H

#include <time.h>

static inline double clock_now(void) // seconds
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
