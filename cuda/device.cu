// Which GPUs there are, and whether this program can run on one: the compute capability that the
// kernels ask for, and code for it in this binary.
#include <stdio.h>
#include <string.h>

#include "base/beside.h"
#include "base/thread.h"
#include "engine_impl.h"

enum { LEAST_CAPABILITY = 80 }; // Ampere: asynchronous copies, and room for attention's tiles

#define TEXT_(...) #__VA_ARGS__
#define TEXT(...)  TEXT_(__VA_ARGS__)
#ifndef HOKKU_GPU_ARCH // what -Dgpu_arch named
#define HOKKU_GPU_ARCH none
#endif

// Stands for all kernels: they are compiled for the same GPUs.
static __global__ void any_kernel(void)
{
}

// The driver's start takes some 0.1 s, and as long again a device's context.
static struct {
    struct beside work;
    bool begun;
    int index;
} start;

static void start_device(void *)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && start.index < count)
        cudaSetDevice(start.index);
    (void)cudaGetLastError();
}

extern "C" void cuda_device_begin(int index)
{
    if (start.begun)
        return;
    start.begun = true;
    start.index = index;
    beside_begin(&start.work, start_device, NULL);
}

extern "C" void cuda_device_end(void)
{
    beside_wait(&start.work);
}

extern "C" int cuda_device_count(char *why, size_t n)
{
    cuda_device_end();
    int count = 0, driver = 0, runtime = 0;
    sigset_t before; // the driver may start threads, which are to hear no signals
    thread_block_signals(&before);
    cudaError_t e = cudaGetDeviceCount(&count);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e == cudaSuccess && count > 0)
        return count;
    (void)cudaGetLastError();
    if (e == cudaSuccess || e == cudaErrorNoDevice) {
        snprintf(why, n, "the driver finds no NVIDIA GPU");
        return 0;
    }
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
        snprintf(why, n, "no NVIDIA driver is installed");
        return 0;
    }
    if (e == cudaErrorInsufficientDriver && cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        snprintf(why, n, "the NVIDIA driver knows CUDA %d.%d and this hokku needs %d.%d: update it",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(why, n, "the NVIDIA driver cannot be used: %s", cudaGetErrorString(e));
    (void)cudaGetLastError();
    return -1;
}

// Leaves the device the current one.
static bool check_device(int index, struct cudaDeviceProp *prop, struct error *err)
{
    struct cudaFuncAttributes attributes;
    if (!CHECK_CUDA(cudaGetDeviceProperties(prop, index), err))
        return false;
    const int capability = prop->major * 10 + prop->minor;
    if (capability < LEAST_CAPABILITY)
        return error_set(err, ERR_FAIL,
                         "%s has compute capability %d.%d, expected at least 8.0 (Ampere)",
                         prop->name, prop->major, prop->minor);
    if (!CHECK_CUDA(cudaSetDevice(index), err))
        return false;
    cudaError_t e = cudaFuncGetAttributes(&attributes, (const void *)any_kernel);
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
        e == cudaErrorUnsupportedPtxVersion) {
        (void)cudaGetLastError();
        return error_set(err, ERR_FAIL,
                         "%s has compute capability %d.%d and this hokku holds code for %s: build "
                         "it with meson configure build -Dgpu_arch=sm_%d && ninja -C build",
                         prop->name, prop->major, prop->minor, TEXT(HOKKU_GPU_ARCH), capability);
    }
    return CHECK_CUDA(e, err);
}

extern "C" bool cuda_device_usable(int index, char *why, size_t n)
{
    struct cudaDeviceProp prop;
    struct error err = {};
    if (check_device(index, &prop, &err))
        return true;
    snprintf(why, n, "%s", err.text);
    return false;
}

bool cuda_device_select(int index, struct device *d, struct error *err)
{
    char why[256] = "";
    struct cudaDeviceProp prop;
    size_t mem_free = 0, mem_total = 0;
    int n = cuda_device_count(why, sizeof why);
    if (n <= 0)
        return error_set(err, ERR_FAIL, "no usable CUDA device: %s", why);
    if (index < 0 || index >= n)
        return error_set(err, ERR_USAGE, "CUDA device %d: found %d device%s, numbered from 0",
                         index, n, n == 1 ? "" : "s");
    sigset_t before; // as there
    thread_block_signals(&before);
    const bool ok =
        check_device(index, &prop, err) && CHECK_CUDA(cudaMemGetInfo(&mem_free, &mem_total), err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok)
        return false;
    snprintf(d->name, sizeof d->name, "%s", prop.name);
    d->n_sm = prop.multiProcessorCount;
    d->major = prop.major;
    d->minor = prop.minor;
    d->total = mem_total;
    d->free = mem_free;
    d->smem_max = prop.sharedMemPerBlockOptin;
    d->smem_sm = prop.sharedMemPerMultiprocessor;
    return true;
}
