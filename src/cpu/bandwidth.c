#include "cpu/bandwidth.h"

#include <stdint.h>

#include "base/clock.h"

enum { CHUNK = 1 << 20, PASSES = 8 };

struct job {
    const struct cpu_kernels *kernels;
    const unsigned char *data;
    _Atomic uint64_t sum; // keeps the reading
};

static void job_item(void *arg, size_t item, int thread)
{
    (void)thread;
    struct job *j = arg;
    j->sum += j->kernels->read(j->data + item * CHUNK, CHUNK);
}

double cpu_read_bandwidth(struct pool *pool, const struct cpu_kernels *kernels, const void *data,
                          size_t n)
{
    struct job j = {.kernels = kernels, .data = data};
    double best = 0;
    size_t n_chunks = n / CHUNK;
    for (int i = 0; i < PASSES && n_chunks > 0; i++) {
        double begin = clock_now();
        pool_run(pool, n_chunks, job_item, &j, NULL);
        double rate = (double)(n_chunks * CHUNK) / (clock_now() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}
