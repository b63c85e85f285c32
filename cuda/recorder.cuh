// The times of launches, for hokku bench --kernels: an event before and after each. A queue has no
// recorder but while one evaluation is being timed; then launch_kernel costs one look at a NULL.
#ifndef HOKKU_CUDA_RECORDER_CUH
#define HOKKU_CUDA_RECORDER_CUH

#include <cuda_runtime.h>

struct recorded {
    const char *kernel, *what;
    cudaEvent_t begin, end;
};

struct recorder {
    const char *what;       // the next launches work on: a weight's name, several joined by "+"
    struct recorded *marks; // (max), events created; NULL: launches are only counted
    size_t n, max;
};

static inline cudaError_t recorder_before(struct recorder *r, const char *kernel,
                                          cudaStream_t stream)
{
    if (!r || !r->marks)
        return cudaSuccess;
    if (r->n >= r->max) // more launches than the same evaluation had before
        return cudaErrorInvalidValue;
    struct recorded *m = &r->marks[r->n];
    m->kernel = kernel;
    m->what = r->what;
    return cudaEventRecord(m->begin, stream);
}

static inline cudaError_t recorder_after(struct recorder *r, cudaStream_t stream)
{
    if (!r)
        return cudaSuccess;
    size_t i = r->n++;
    return r->marks ? cudaEventRecord(r->marks[i].end, stream) : cudaSuccess;
}

#endif
