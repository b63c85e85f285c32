// The one interface that both devices implement: a loaded model on a device, its KV cache, its
// scratch, and the timeline of evaluated tokens. All memory is taken at open; nothing allocates
// while tokens are decoded.
//
// Timeline: the engine holds n_past evaluated tokens. eval() appends; trim() rewinds. An evaluated
// token's KV does not depend on how the tokens were chunked beyond float rounding (CPU engine: not
// at all, bit for bit).
#ifndef HOKKU_ENGINE_ENGINE_H
#define HOKKU_ENGINE_ENGINE_H

#include "base/cancel.h"
#include "base/error.h"
#include "engine/sampler.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kv_type { KV_F16, KV_Q8_0 };

struct engine_params {
    uint32_t n_ctx;   // positions to hold; 0 = the model's own, reduced to what fits
    uint32_t n_batch; // tokens per prefill chunk; 0 = 512
    enum kv_type type_k, type_v;
    int n_threads;    // CPU engine; 0 = all available
    int device_index; // CUDA engine
    // Called during open while weights are loaded (bytes); may be NULL.
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
    // Polled at open, between layers of a prefill and between decoded tokens; once asked, they give
    // ERR_INTERRUPTED and leaves the timeline as it was at the last whole chunk or token. May be
    // NULL.
    const struct cancel *cancel;
};

// What an engine with these parameters takes, before anything is allocated. Bytes.
struct engine_plan {
    uint64_t weights, kv, scratch, other;
    uint64_t available;    // free device (or host) memory
    uint32_t n_ctx;        // as it would be opened
    uint32_t n_ctx_max;    // the largest that fits with these KV types, capped at the model's own
    uint32_t n_ctx_max_q8; // the same with q8_0 for both
    bool fits;
};

enum engine_logits {
    LOGITS_NONE, // only extend the KV cache
    LOGITS_LAST, // logits of the last token (what decode_start samples from)
    LOGITS_ALL,  // logits of every token of this call (n <= n_batch)
};

enum { ENGINE_MAX_PROBS = 64 };

struct decoded {
    int32_t id;
    float logprob;                           // only when n_probs > 0
    uint32_t n_top;                          // = n_probs asked for
    struct token_prob top[ENGINE_MAX_PROBS]; // most likely first, ties by lower id
};

struct decode_params {
    const struct sampler_settings *sampler; // copied
    // The timeline so far (all evaluated), for penalties: history[n_history], borrowed for the
    // call.
    const int32_t *history;
    size_t n_history;
    uint32_t n_probs;  // alternatives to report per token, 0 = none, <= ENGINE_MAX_PROBS
    size_t max_tokens; // the engine may run ahead of decode_next, but never samples more than this
    // Decoding ends at these ids: they are returned like any other, but never evaluated ahead, and
    // there is no next token after one.
    const int32_t *stop_ids;
    size_t n_stop_ids;
};

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

struct engine;

struct engine_ops {
    // Appends n tokens (n > 0). Errors: ERR_CONTEXT when n_past + n > n_ctx (nothing changed),
    // ERR_INTERRUPTED, ERR_FAIL.
    bool (*eval)(struct engine *e, const int32_t *tokens, size_t n, enum engine_logits want,
                 struct error *err);
    // Rewinds to n tokens (n <= n_past). The logits are then stale: eval before decoding.
    void (*trim)(struct engine *e, size_t n);
    // Copies row i of the last eval's logits to out (n_vocab). LOGITS_LAST: only i = 0. Errors:
    // ERR_INTERRUPTED, ERR_FAIL; finite_error's for a logit that is NaN or infinite, and so does
    // decode_next (engine/finite.h).
    bool (*logits)(struct engine *e, size_t i, float *out, struct error *err);
    // Sampling on the device. Needs fresh logits (the last eval wanted LAST or ALL). Between start
    // and stop only next may be called; what can say so is refused then (ERR_FAIL). next gives the
    // token sampled at position n_past, n_past + 1, ...: each is evaluated before the following one
    // is sampled. stop(n) leaves exactly n evaluated tokens (n <= what was evaluated; a token just
    // returned by next may not be evaluated yet, so the caller evaluates what is missing).
    bool (*decode_start)(struct engine *e, const struct decode_params *p, struct error *err);
    bool (*decode_next)(struct engine *e, struct decoded *out, struct error *err);
    void (*decode_stop)(struct engine *e, size_t n_keep);
    // KV bytes of positions [begin, end) in an engine-specific order; kv_bytes says how many.
    // import appends at n_past
    // == begin and makes n_past = end. The format name is part of a saved session: another engine
    // refuses it.
    size_t (*kv_bytes)(const struct engine *e, size_t begin, size_t end);
    bool (*kv_export)(struct engine *e, size_t begin, size_t end, void *dst, struct error *err);
    bool (*kv_import)(struct engine *e, size_t begin, size_t end, const void *src,
                      struct error *err);
    // Measures the device's peaks; takes about a second. May be NULL.
    bool (*measure)(struct engine *e, struct engine_peaks *out, struct error *err);
    // Evaluates tokens at n_past n_run times after warming up, measuring every kernel. n = 1: a
    // decoded token, with the sampler's default settings; else a chunk of n <= n_batch tokens of a
    // prompt and the logits of its last. n_past stays, the logits are then stale. Errors:
    // ERR_CONTEXT, ERR_INTERRUPTED, ERR_MEMORY, ERR_FAIL. May be NULL.
    bool (*profile)(struct engine *e, const int32_t *tokens, size_t n, uint32_t n_run,
                    struct engine_profile *out, struct error *err);
    void (*free)(struct engine *e);
};

struct engine {
    const struct engine_ops *ops;
    const struct model *model; // borrowed
    char device[128];          // "NVIDIA H200" or "CPU (AVX-512 VNNI, 8 threads)"
    char kv_format[64];        // names device family, layout and types
    uint32_t n_ctx, n_batch;
    size_t n_past;                // evaluated tokens; read-only for callers
    uint64_t mem_used, mem_total; // bytes on the device
};

// Convenience: the calls above, and free that accepts NULL.
static inline void engine_free(struct engine *e)
{
    if (e)
        e->ops->free(e);
}

// The CPU engine (src/cpu). Errors: ERR_MEMORY with the sizes and what would fit, ERR_MODEL.
bool cpu_engine_plan(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                     struct error *err);
struct engine *cpu_engine_open(const struct model *m, const struct engine_params *p,
                               struct error *err);

// The CUDA engine (cuda/), only where HOKKU_CUDA is built in.
// For struct engine_backend: see engine/device.h. The first starts the driver only; the second also
// the device, as opening an engine on it would.
int cuda_device_count(char *why, size_t n);
bool cuda_device_usable(int index, char *why, size_t n);
bool cuda_engine_plan(const struct model *m, const struct engine_params *p,
                      struct engine_plan *plan, struct error *err);
size_t cuda_plan_traffic(const struct model *m, enum kv_type type_k, enum kv_type type_v,
                         uint32_t n_past, struct engine_traffic *out, size_t max);
struct engine *cuda_engine_open(const struct model *m, const struct engine_params *p,
                                struct error *err);

#ifdef __cplusplus
}
#endif
#endif
