// Speed of a model on an engine, beside the peak that the same run measures.
#ifndef HOKKU_TOOLS_BENCH_H
#define HOKKU_TOOLS_BENCH_H

#include "base/buf.h"
#include "engine/measure.h"

struct bench_params {
    uint32_t n_prompt, n_gen, n_repeat; // 0 prompt or gen tokens: that row is left out
    const uint32_t *depths;             // tokens already in the context
    size_t n_depths;
    const uint32_t *batches; // sequences that are decoded together, 1 to ENGINE_MAX_PARTS
    size_t n_batches;        // 0: no such row
    bool json;
    bool kernels;        // also where the time of a token and of a chunk of n_prompt goes
    double load_s;       // how long opening the model and the engine took
    uint64_t load_bytes; // of the model's files
    double began;        // clock_now() when main began; 0: not known
    const struct cancel *cancel;
    // Before each of n runs, and the one that warms up (run 0); behind all name is NULL. May be
    // NULL.
    void (*progress)(void *user, const char *name, uint32_t depth, uint32_t run, uint32_t n);
    void *progress_user;
};

// Runs after one warm-up; shows the median, least and most of n_repeat runs. Decoding samples with
// the default settings (the sampler's cost is part of a token). Bytes of a step: every weight once
// (of experts, as many as its rows are expected to use), a row of the embedding for each of its
// rows, and their KV cache at that depth; no recurrent states. Operations: engine/profile.h.
// Errors: ERR_CONTEXT when a depth does not fit, ERR_USAGE when kernels are asked for and the
// engine cannot tell them apart.
bool tool_bench(struct engine *e, const struct bench_params *p, struct buf *out, struct error *err);

// Positions of the context that a sequence of a batch takes.
uint64_t bench_room(uint32_t depth, uint32_t n_gen);

#endif
