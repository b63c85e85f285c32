// What every file of cuda/ shares: error checks, the one way to launch a kernel, and the few
// instructions that need inline PTX, each as a small function. Under HOKKU_CUDA_ON_CPU the same
// files are compiled by the host compiler against tests/cuda_on_cpu, where each PTX function has a
// twin with the same meaning.
//
// Rules that keep a kernel portable: no <<<>>> (use launch_kernel), dynamic shared memory only
// through dynamic_smem(), no static local but __shared__ ones, no inline PTX outside ptx.cuh.
#ifndef HOKKU_CUDA_COMMON_CUH
#define HOKKU_CUDA_COMMON_CUH

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>

#include "base/error.h"
#include "ptx.cuh"
#include "recorder.cuh"

enum {
    WARP = 32,
};

// For device functions that would bloat their callers.
#ifdef HOKKU_CUDA_ON_CPU
#define NOINLINE
#else
#define NOINLINE __noinline__
#endif

// False, with what failed and what the driver says in *err, unless e is success.
static inline bool cuda_check(cudaError_t e, const char *what, struct error *err)
{
    if (e == cudaSuccess)
        return true;
    (void)cudaGetLastError(); // an error that is reported here must not be found again later
    return error_set(err, e == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_FAIL,
                     "CUDA: %s failed: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

// if (!CHECK_CUDA(cudaMemsetAsync(p, 0, n, stream), err)) goto done;
#define CHECK_CUDA(call, err) cuda_check((call), #call, (err))

// How a kernel is launched. Zero means: one block / no dynamic shared memory / the default stream.
struct launch {
    const char *name; // of the kernel, for error messages and diagnoses
    dim3 grid, block;
    size_t smem; // dynamic shared memory, bytes
    cudaStream_t stream;
    // Programmatic dependent launch: the kernel may begin before its predecessor in the stream has
    // ended, and calls griddep_wait() (every thread) before it touches anything that a predecessor
    // wrote or still reads. Pass true only on devices of compute capability >= 9.0.
    bool dependent;
    bool cooperative; // all blocks are resident at once, so they may wait for each other
    // NULL: not timed
    struct recorder *recorder;
};

// Lets the kernel have n bytes of dynamic shared memory: by raising its limit, if need be, to all
// that a block can have. It is never lowered, since launches in a graph depend on it.
static inline cudaError_t allow_smem(const void *kernel, size_t n)
{
    enum { FREE = 48 << 10 }; // what needs no permission, the kernel's own arrays included
    struct cudaFuncAttributes a;
    int device = 0, most = 0;
    cudaError_t e = cudaFuncGetAttributes(&a, kernel);
    if (e != cudaSuccess || a.sharedSizeBytes + n <= FREE ||
        (size_t)a.maxDynamicSharedSizeBytes > FREE)
        return e;
    e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 most - (int)a.sharedSizeBytes);
    return e;
}

// The only way to launch: launch_kernel(err, {.name = ...}-like struct, kernel, arguments...).
// Arguments are converted to the parameter types of the kernel.
template <typename... P, typename... A>
static inline bool launch_kernel(struct error *err, const struct launch &l, void (*kernel)(P...),
                                 A... args)
{
    static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
    cudaLaunchAttribute attr[2];
    unsigned n_attr = 0;
    if (l.dependent) {
        attr[n_attr].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n_attr++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (l.cooperative) {
        attr[n_attr].id = cudaLaunchAttributeCooperative;
        attr[n_attr++].val.cooperative = 1;
    }
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = l.grid;
    cfg.blockDim = l.block;
    cfg.dynamicSmemBytes = l.smem;
    cfg.stream = l.stream;
    cfg.attrs = attr;
    cfg.numAttrs = n_attr;
    cudaError_t e = cudaSuccess;
    if (l.smem > 0)
        e = allow_smem((const void *)kernel, l.smem);
#ifdef HOKKU_CUDA_ON_CPU
    emu_name_next_launch(l.name);
#endif
    if (e == cudaSuccess)
        e = recorder_before(l.recorder, l.name, l.stream);
    if (e == cudaSuccess)
        e = cudaLaunchKernelEx(&cfg, kernel, static_cast<P>(args)...);
    if (e == cudaSuccess)
        e = recorder_after(l.recorder, l.stream);
    if (e == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return error_set(err, e == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_FAIL,
                     "CUDA: launching %s (grid %u,%u,%u block %u,%u,%u, %zu bytes of shared "
                     "memory) failed: %s (%s)",
                     l.name, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z, l.smem,
                     cudaGetErrorString(e), cudaGetErrorName(e));
}

// The block's dynamic shared memory, 16-byte aligned.
template <typename T> static __device__ __forceinline__ T *dynamic_smem()
{
#ifdef HOKKU_CUDA_ON_CPU
    return static_cast<T *>(emu_dynamic_smem());
#else
    extern __shared__ __align__(16) unsigned char hokku_dynamic_smem[];
    return reinterpret_cast<T *>(hokku_dynamic_smem);
#endif
}

// One place of a carved arena: on the emulation [p, p + n) becomes a red zone that no kernel may
// touch; a GPU has none, so leave the bytes unused there or do not reserve any.
static inline void device_red_zone(void *p, size_t n)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_red_zone(p, n);
#else
    (void)p, (void)n;
#endif
}

// Bytes worth leaving between the parts of an arena for device_red_zone.
#ifdef HOKKU_CUDA_ON_CPU
enum { DEVICE_RED_ZONE = 256 };
#else
enum { DEVICE_RED_ZONE = 0 };
#endif

// Scratch memory that cuBLAS is given (32 MB is what it asks for on Hopper); the emulation needs
// none.
#ifdef HOKKU_CUDA_ON_CPU
enum { BLAS_WORKSPACE = 4096 };
#else
enum { BLAS_WORKSPACE = 32 << 20 };
#endif

// The host's look at a word of pinned memory that the device writes with st_release_sys: what was
// written before that is visible after a look that sees it.
static inline uint32_t host_load_acquire(const uint32_t *p)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_pump(); // the device works on while the host polls
#endif
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

// Between two looks of a thread that waits for the device.
static inline void host_pause(void)
{
#ifdef HOKKU_CUDA_ON_CPU
    emu_wait();
#else
    const struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
#endif
}

static inline void host_store_release(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

// Of a sum of squares by whose root something is divided. Squares are infinite long before what was
// squared is: then it is NaN, since a quotient of 0 would pass for a result (engine/finite.h).
static __device__ __forceinline__ float of_squares(float v)
{
    return v + (v - v);
}

template <typename T> static __host__ __device__ __forceinline__ T lesser(T a, T b)
{
    return a < b ? a : b;
}

// The power of two that takes values up to top to at most 2^15, half of float16's range: a value
// keeps its eleven bits down to 2^-29 of top. NaN when top is not finite.
static inline __host__ __device__ float half_range(float top)
{
    uint32_t bits;
    memcpy(&bits, &top, sizeof bits);
    const uint32_t exponent = bits >> 23 & 0xFFu; // top < 2^(exponent - 126)
    bits = exponent == 255  ? 0x7FC00000u
           : exponent == 0  ? 0x3F800000u // zero, or nearly
           : exponent <= 15 ? 253u << 23  // the other way it must be one, too
                            : (268 - exponent) << 23;
    memcpy(&top, &bits, sizeof top);
    return top;
}

// 1 / a power of two that half_range gives.
static inline __host__ __device__ float half_range_undo(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits = bits == 0x7FC00000u ? bits : 0x7F000000u - bits;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

template <typename T> static __host__ __device__ __forceinline__ T div_up(T a, T b)
{
    return (a + b - 1) / b;
}

#endif
