// Inputs of a kernel that come late: a kernel that begins before its predecessor has ended, and
// reads what that writes too early, finds something else.
#ifndef HOKKU_TESTS_GPU_LATE_INPUTS_H
#define HOKKU_TESTS_GPU_LATE_INPUTS_H

#include "gpu_test.h"

enum { MOST_LATE = 4 };

struct copies {
    const uint32_t *from[MOST_LATE];
    uint32_t *to[MOST_LATE];
    size_t n[MOST_LATE];
};

static __global__ void late_kernel(const struct copies c)
{
    griddep_launch_dependents();
    griddep_wait();
    for (int i = 0; i < MOST_LATE; i++)
        for (size_t k = blockIdx.x * WARP + threadIdx.x; k < c.n[i]; k += gridDim.x * WARP)
            c.to[i][k] = c.from[i][k];
}

// What the launch before a kernel writes, which may begin before that has ended: until then it is
// something else.
struct late_inputs {
    std::vector<std::unique_ptr<device_array<uint32_t>>> arrays;
    struct copies copies = {};
    int n = 0, before; // each byte

    explicit late_inputs(int before_ = 0xFF) : before(before_) // no number
    {
    }
    template <typename T> T *add(const std::vector<T> &v)
    {
        static_assert(sizeof(T) == sizeof(uint32_t), "words");
        std::vector<uint32_t> words(v.size());
        if (!v.empty())
            memcpy(words.data(), v.data(), v.size() * sizeof(T));
        arrays.emplace_back(new device_array<uint32_t>(words));
        copies.from[n] = arrays.back()->p;
        arrays.emplace_back(new device_array<uint32_t>(words.size()));
        copies.to[n] = arrays.back()->p;
        copies.n[n] = words.size();
        return reinterpret_cast<T *>(copies.to[n++]);
    }
    // The next launch is given them.
    void come(void) const
    {
        for (int i = 0; i < n; i++)
            must(CHECK_CUDA(
                cudaMemsetAsync(copies.to[i], before, copies.n[i] * sizeof(uint32_t), Q.stream),
                &ERR));
        const struct launch l = {.name = "late",
                                 .grid = dim3(4),
                                 .block = dim3(WARP),
                                 .stream = Q.stream,
                                 .dependent = Q.dependent};
        must(launch_kernel(&ERR, l, late_kernel, copies));
    }
};

#endif
