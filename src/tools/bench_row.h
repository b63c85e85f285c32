// A row of hokku bench's results: how long one kind of run takes, and what it moves and computes,
// beside what the device can do.
#ifndef HOKKU_TOOLS_BENCH_ROW_H
#define HOKKU_TOOLS_BENCH_ROW_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/measure.h"

struct bench_row {
    const char *name;
    uint32_t depth;
    uint32_t batch;                // sequences; 0: a conversation alone
    uint32_t n_tokens;             // of one run
    uint32_t n_step;               // passes of one run that decode; 1: a prompt, in whatever chunks
    double median_s, min_s, max_s; // of one run
    double bytes;                  // that a step must move; 0: it is not limited by bytes
    double flops;                  // of a step, all its rows
};

void bench_rows_md(const struct bench_row *rows, size_t n, const struct model *m,
                   const struct engine_peaks *peaks, struct buf *out);

// A new object; NULL: no memory.
json_t *bench_row_json(const struct bench_row *r, const struct model *m,
                       const struct engine_peaks *peaks);

#endif
