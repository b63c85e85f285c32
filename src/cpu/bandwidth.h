// The read bandwidth that the CPU engine's threads reach: what decode speed is compared with.
#ifndef HOKKU_CPU_BANDWIDTH_H
#define HOKKU_CPU_BANDWIDTH_H

#include <stddef.h>

#include "cpu/kernels.h"
#include "cpu/pool.h"

// Bytes per second of reading data[0..n) (memory that exists; well beyond the caches to be of use)
// with the threads of the pool, the best of several passes. The weights are read where they are
// mapped, so measuring on their own mapping tells what decoding could reach there; huge pages would
// be faster, but only a copy of the file could have them.
double cpu_read_bandwidth(struct pool *pool, const struct cpu_kernels *kernels, const void *data,
                          size_t n);

#endif
