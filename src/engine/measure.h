// What a device can do and where the time of an evaluation goes: what a benchmark asks of an
// engine.
#ifndef HOKKU_ENGINE_MEASURE_H
#define HOKKU_ENGINE_MEASURE_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the device itself can do, measured now: what a benchmark's results are held against.
struct engine_peaks {
    double bandwidth;       // bytes per second; 0: not measured
    char bandwidth_how[80]; // "copy of 2 GB, read + written", "read of 256 MB by 2 threads"
    double matrix_flops;    // operations per second of a large matrix product; 0: not measured
    char matrix_how[160];   // or why it was not measured; "": there is no such thing to measure
    uint32_t sm_mhz, memory_mhz; // clocks; 0: not known
    char clocks_how[120];        // "NVML, while the device multiplied"; "" when not known
};

// Where the time of one evaluation goes: a kernel and what it works on. Seconds.
struct engine_kernel {
    const char *kernel; // "matvec", "attention_decode", ...
    const char *what;   // weights by the names of engine_traffic, "+" between several; "": none
    uint32_t n_launch;  // in one evaluation
    double each;        // of a launch: median over all of them in all runs
    double total;       // of the launches of one evaluation: median over the runs
    uint64_t bytes;     // that they must move; 0: not known, or time is not a matter of bytes
    double flops;       // operations of their matrix products; 0: as above
};

enum { ENGINE_MAX_KERNELS = 48 };

struct engine_profile {
    struct engine_kernel rows[ENGINE_MAX_KERNELS]; // in the order of their first launch
    size_t n;
    double sum;     // of all rows' totals
    double nothing; // what is measured when nothing is launched: part of every launch's time
    char how[160];  // it was measured
};

// The bytes that one decoded token moves through device memory, for one kind of work.
struct engine_traffic {
    const char *kernel; // "matvec", "attention", ...
    const char *weight; // "ffn_down", "kv", ...
    const char *type;   // "Q4_K"
    uint64_t moved;     // bytes as laid out on the device
    uint64_t needed; // bytes of the weights in the file (or of the cache), each read once, and of
                     // the vectors in and out
};

// Measures the device's peaks; takes about a second. Zeros where the engine cannot. Errors:
// ERR_FAIL, ERR_MEMORY.
bool engine_measure(struct engine *e, struct engine_peaks *out, struct error *err);

bool engine_can_profile(const struct engine *e);
// Evaluates tokens after s (all of it is evaluated) n_run times after warming up, measuring every
// kernel. n = 1: a decoded token, with the sampler's default settings (where passes of one sequence
// are made as those of several, with s's own); else a chunk of n <= n_batch tokens of a prompt and
// the logits of its last. s stays, the logits at hand are then stale.
// Errors: ERR_CONTEXT, ERR_INTERRUPTED, ERR_MEMORY, ERR_FAIL.
bool engine_profile(struct seq *s, const int32_t *tokens, size_t n, uint32_t n_run,
                    const struct cancel *cancel, struct engine_profile *out, struct error *err);
// The same of a pass of n sequences (2 to engine_max_parts, and n_batch), each with one token that
// is not evaluated, and a pick after it. All of them stay. Errors: as above.
bool engine_profile_pass(struct engine *e, struct seq *const *s, size_t n, uint32_t n_run,
                         const struct cancel *cancel, struct engine_profile *out,
                         struct error *err);

// The CUDA engine's traffic of one token decoded with n_past before it: see struct engine_backend.
size_t cuda_plan_traffic(const struct model *m, enum kv_type type_k, enum kv_type type_v,
                         uint32_t n_past, struct engine_traffic *out, size_t max);

#ifdef __cplusplus
}
#endif
#endif
