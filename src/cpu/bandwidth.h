// The read bandwidth of main memory as the CPU engine's threads reach it: what decode speed is
// compared with.
#ifndef HOKKU_CPU_BANDWIDTH_H
#define HOKKU_CPU_BANDWIDTH_H

#include <stddef.h>

#include "base/error.h"

// GB/s (1e9 bytes) of reading n_bytes (0 = 1 GB: well beyond the caches) with n_threads threads
// (0 = all), the best of several passes over some tenths of a second. 0 with err set when memory or
// threads are refused.
double cpu_read_bandwidth(int n_threads, size_t n_bytes, struct error *err);

#endif
