// The smallest test harness that serves both a GPU and its emulation: a table of named tests, each
// a function that calls check(); results as TAP.
#ifndef HOKKU_TESTS_GPU_TAP_H
#define HOKKU_TESTS_GPU_TAP_H

#include <stdarg.h>
#include <stdio.h>

#include <cuda_runtime.h>

struct tap_test {
    const char *name;
    void (*run)(void);
};

extern int tap_failures; // of the test that runs

// Notes a failure with its place in words; returns ok.
static inline bool check(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool check(bool ok, const char *fmt, ...)
{
    if (ok)
        return true;
    if (tap_failures++ < 10) {
        va_list ap;
        va_start(ap, fmt);
        printf("# ");
        vprintf(fmt, ap);
        printf("\n");
        va_end(ap);
    }
    return false;
}

template <size_t N> static inline int tap_main(const tap_test (&tests)[N])
{
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("1..0 # SKIP no GPU\n");
        return 0;
    }
    int bad = 0;
    printf("1..%zu\n", N);
    for (size_t i = 0; i < N; i++) {
        tap_failures = 0;
        tests[i].run();
        bad += tap_failures != 0;
        printf("%sok %zu - %s\n", tap_failures ? "not " : "", i + 1, tests[i].name);
        fflush(stdout);
    }
    return bad != 0;
}

#endif
