// The bytes that one decoded token moves through device memory, kernel by kernel, and the bytes it
// could not do without: for hokku bench --plan. Pure functions; no device is touched.
#ifndef HOKKU_CUDA_PLAN_H
#define HOKKU_CUDA_PLAN_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_traffic {
    const char *kernel; // "matvec", "attention", ...
    const char *weight; // "ffn_down", "kv", ...
    const char *type;   // "Q4_K"
    uint64_t moved;     // bytes as laid out on the device
    uint64_t needed; // bytes of the weights in the file (or of the cache), each read once, and of
                     // the vectors in and out
};

// Rows for one token decoded with n_past tokens before it, in the order of the forward pass. Fills
// out[0 .. max) and returns how many there are (out may be NULL when max is 0).
size_t cuda_plan_traffic(const struct model *m, enum kv_type type_k, enum kv_type type_v,
                         uint32_t n_past, struct cuda_traffic *out, size_t max);

#ifdef __cplusplus
}
#endif
#endif
