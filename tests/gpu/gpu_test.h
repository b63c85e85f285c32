// What the tests of kernels share: a queue on device 0, buffers, random numbers and blocks of every
// weight type. The references are plain loops in double on the host.
#ifndef HOKKU_TESTS_GPU_GPU_TEST_H
#define HOKKU_TESTS_GPU_GPU_TEST_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <memory>
#include <vector>

#include "../unit/further.h"
#include "kernels.h"
#include "moved.h"
#include "random_blocks.h"
#include "tap.h"

// The larger shapes are for real devices, and there not under compute-sanitizer (HOKKU_QUICK=1).
static inline bool full_size(void)
{
#ifdef HOKKU_CUDA_ON_CPU
    return false;
#else
    return !getenv("HOKKU_QUICK");
#endif
}

// HOKKU_QUICK=1, as the default tests of the emulation have it: fewer cases of a kind. Suite slow
// has them all.
static inline bool quick(void)
{
    return getenv("HOKKU_QUICK");
}

extern struct queue Q;
extern struct error ERR;

static inline void must(bool ok)
{
    if (!check(ok, "%s", ERR.text)) {
        printf("Bail out! %s\n", ERR.text);
        exit(1);
    }
}

// Owned device memory.
template <typename T> struct device_array {
    T *p = nullptr;
    size_t n = 0;
    explicit device_array(size_t count) : n(count)
    {
        must(CHECK_CUDA(cudaMalloc(&p, (n ? n : 1) * sizeof(T)), &ERR));
    }
    explicit device_array(const std::vector<T> &v) : device_array(v.size())
    {
        put(v);
    }
    device_array(const device_array &) = delete;
    ~device_array()
    {
        cudaFree(p);
    }
    void put(const std::vector<T> &v)
    {
        // in the stream: a copy from pageable memory may end after the call has returned
        must(CHECK_CUDA(
            cudaMemcpyAsync(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice, Q.stream),
            &ERR));
    }
    void spoil(void) const // with NaNs
    {
        must(CHECK_CUDA(cudaMemsetAsync(p, 0xFF, n * sizeof(T), Q.stream), &ERR));
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
        must(CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), &ERR));
        return v;
    }
};

// Random numbers: a stream per test, the same every run.
struct random_stream {
    uint64_t seed, at = 0;
    uint64_t u64()
    {
        return rng_u64(seed, at++, 0);
    }
    double uniform() // [-1, 1)
    {
        return (double)(u64() >> 11) / 4503599627370496.0 - 1.0;
    }
    std::vector<float> floats(size_t n, double scale = 1.0)
    {
        std::vector<float> v(n);
        for (float &x : v)
            x = (float)(uniform() * scale);
        return v;
    }
};

// A random matrix on the device, repacked, and its weights as the reference dequantises them.
struct test_matrix {
    struct wmat w;
    std::vector<float> values; // (rows, n_cols)
    device_array<uint8_t> planes;
    test_matrix(struct random_stream &r, uint32_t type, uint32_t rows, uint32_t n_cols);
};

// Opens the queue where there is a device and runs the tests.
void gpu_test_begin(void);
void gpu_test_end(void);
template <size_t N> static inline int gpu_test_main(const tap_test (&tests)[N])
{
    gpu_test_begin();
    int bad = tap_main(tests);
    gpu_test_end();
    return bad;
}

static const struct xielu XIELU = {0.8f, 0.3f, 0.5f, -1e-6f};

// act(x) as it is defined.
static inline double activated(enum activation act, double x)
{
    if (act == ACT_RELU_SQR)
        return x > 0 ? x * x : 0 * x;
    if (act == ACT_XIELU)
        return x > 0 ? XIELU.p * x * x + XIELU.beta * x
                     : XIELU.n * (expm1(fmin(x, XIELU.eps)) - x) + XIELU.beta * x;
    if (act == ACT_GELU_TANH)
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    if (act == ACT_GELU)
        return 0.5 * x * erfc(-x / sqrt(2.0));
    return x / (1 + exp(-x));
}

static const uint32_t ALL_TYPES[] = {
#define NUMBER(name, number, ...) number,
    BLOCK_TYPES(NUMBER)
#undef NUMBER
};

#endif
