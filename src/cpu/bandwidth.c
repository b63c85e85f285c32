#include "cpu/bandwidth.h"

#include <string.h>

#include "base/clock.h"
#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "cpu/pool.h"

enum { CHUNK = 1 << 20, PASSES = 8 };

struct job {
    const struct cpu_kernels *kernels;
    unsigned char *data;
    bool write;
};

static void job_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct job *j = arg;
    unsigned char *p = j->data + item * CHUNK;
    if (j->write)
        memset(p, (int)(item & 0x3f), CHUNK); // not zeros: pages must exist, each its own
    else if (j->kernels->read(p, CHUNK) > 1)
        p[0] = 1; // never: keeps the reading
}

double cpu_read_bandwidth(int n_threads, size_t n_bytes, struct error *err)
{
    if (n_bytes == 0)
        n_bytes = 1000u * CHUNK;
    const size_t n_chunks = n_bytes / CHUNK > 0 ? n_bytes / CHUNK : 1;
    double best = 0;
    struct job j = {.kernels = cpu_kernels_get(CPU_ISA_AUTO), .data = memory_map(n_chunks * CHUNK)};
    if (!j.data) {
        error_oom(err, "the buffer to read", n_chunks * CHUNK);
        return 0;
    }
    struct pool *pool = pool_create(n_threads > 0 ? n_threads : pool_online_cpus(), err);
    if (pool) {
        j.write = true;
        pool_run(pool, n_chunks, job_item, &j, NULL);
        j.write = false;
        for (int i = 0; i < PASSES; i++) {
            double begin = clock_now();
            pool_run(pool, n_chunks, job_item, &j, NULL);
            double rate = (double)(n_chunks * CHUNK) / (clock_now() - begin) / 1e9;
            best = rate > best ? rate : best;
        }
    }
    pool_free(pool);
    memory_unmap(j.data, n_chunks * CHUNK);
    return best;
}
