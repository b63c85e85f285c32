// hokku bench --kernels: where the time of a token, of a pass of several sequences, or of a chunk
// of a prompt, goes.
#ifndef HOKKU_TOOLS_BENCH_KERNELS_H
#define HOKKU_TOOLS_BENCH_KERNELS_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/measure.h"

struct bench_kernels {
    uint32_t n_past, n_tokens; // 1: a decoded token, else a chunk
    uint32_t n_seqs; // of a pass, with a token each, like n_tokens; 0: none, or one sequence's own
    double real_s, real_min_s, real_max_s; // as the program does it, without marks: median, spread
    uint32_t n_run;                        // of p
    struct engine_profile p;
};

void bench_kernels_md(const struct bench_kernels *k, struct buf *out);

// A new object; NULL: no memory.
json_t *bench_kernels_json(const struct bench_kernels *k);

#endif
