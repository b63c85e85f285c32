// The CUDA engine from the inside: what its host code shares.
#ifndef HOKKU_CUDA_ENGINE_IMPL_H
#define HOKKU_CUDA_ENGINE_IMPL_H

#include "engine/backend.h"
#include "engine/finite.h"
#include "kernels.h"
#include "sampler.cuh"

enum {
    // Tokens up to which a chunk goes through the matrix-vector kernel: where the weights of more
    // pass through memory once more as float16, and where they do not (queue.hopper).
    MATVEC_MAX_ROWS = 24,
    MATVEC_MAX_ROWS_HOPPER = 2,
    LOGITS_ROWS = 8, // rows of logits kept at a time
};

// Operations of a share of a chunk's work: some milliseconds. A mark costs about as much as a
// launch.
#ifdef HOKKU_CUDA_ON_CPU
#define PACE_OPERATIONS 1.0
#else
#define PACE_OPERATIONS 1e12
#endif

// The weights by enum layer_weight: the matrices in w, the vectors in v (NULL: absent).
struct gpu_layer {
    const struct layer *facts; // of the model
    struct wmat w[N_LAYER_WEIGHTS];
    const float *v[N_LAYER_WEIGHTS];
    struct kv_plane k_cache, v_cache;
    float q_scale;     // see attention
    float gated_bound; // see act_f16
};

// Device memory, taken once and carved.
struct arena {
    uint8_t *base; // NULL: measure only
    uint64_t used, size;
};

// Everything between the matrices, for up to n_batch tokens.
struct scratch {
    struct step_state *step;
    uint32_t *kv_tables;      // (kv_blocks(n_ctx)) see attention
    int32_t *tokens;          // (n_batch)
    float *x;                 // (n_batch, n_embd) the residual stream
    float *q, *k, *v;         // (n_batch, n_head * head_dim | n_head_kv * head_dim)
    float *att;               // (n_batch, n_head * head_dim)
    float *gate, *up;         // (n_batch, n_ff); also (n_batch, n_embd) products
    float *normed;            // (n_batch, n_embd), where norms are launches of their own
    float *logits;            // (LOGITS_ROWS, n_vocab)
    void *act32;              // (MATVEC_MAX_ROWS, widest input)
    void *act_f32;            // the same; (n_batch, widest input) when matrices are F32
    __half *act_f16;          // (n_batch, widest input), or packed
    __half *ff_f16;           // (n_batch, n_ff) packed
    float *undo, *undo_gated; // (n_batch) of the rows of act_f16 and ff_f16, see act_f16
    void *tile; // dequantised weights on their way to cuBLAS; or the sums of gemm_hopper
    size_t tile_bytes;
    float *partial;
    uint32_t *counters, *gemm_counters; // the second after the first
    size_t counter_bytes;               // of both
    __half *q_f16;
    void *blas_workspace;
    size_t blas_workspace_bytes; // 0: no product of this model goes through cuBLAS
};

struct device {
    char name[256];
    int n_sm, major, minor;
    uint64_t total, free;
    size_t smem_max; // shared memory that one block may have
};

struct memory_plan {
    uint64_t weights, kv, scratch, other; // bytes; other: not taken by us (driver, kernels, graph)
    uint32_t n_ctx;
};

struct cuda_engine {
    struct engine base; // must be first
    struct engine_core core;
    struct hparams hp;
    struct layer_sizes largest;
    struct engine_params params;
    struct queue q;
    struct arena weights, kv, work;
    struct gpu_layer *layers; // (n_layer)
    struct wmat tok_embd, output;
    const float *output_norm, *output_norm_bias; // NULL: none
    struct rope_tables ropes;                    // of the model, in its order
    struct scratch s;
    uint32_t *kv_table;  // (kv_blocks(n_ctx)) pinned: what s.kv_tables holds
    uint64_t kv_version; // seq.version of it
    struct gpu_sampler sampler;
    // One decoded token: forward, head, sampler; [1] where the sampler's blocks wait for each
    // other.
    cudaGraphExec_t graph[2];
    // The same without the sampler, which waits for a mask; made when the first is asked for.
    cudaGraphExec_t masked_graph;
    cudaEvent_t pace[2];  // reached when the layers before have ended, by turns
    double layer_weights; // of the largest layer
    bool paced;           // cuda_pace waits for them
    struct error failure; // of a call that could not tell: every later one does
    // pinned host memory
    struct step_state *host_step;
    int32_t *host_tokens;         // (n_batch)
    uint32_t *mask;               // see gpu_sampler_mask; NULL: nobody has asked for a mask yet
    struct finite_search *search; // NULL: no step's result is looked at
    int32_t last_token;           // evaluated, as far as the caller knows
    // of the call under way
    const struct seq *seq;
    size_t n_past; // the position of its first row
    const struct cancel *cancel;
    // the logits that are at hand
    enum engine_logits logits_want;
    size_t n_rows;      // of x after the last eval
    size_t logits_row0; // first row in s.logits
    size_t logits_n;    // rows in s.logits
    size_t n_picked;    // samples given to the caller in this run
    bool mask_missing;  // the pick under way is launched when its mask is known
};

// ---- device.cu

// Makes device `index` the current one, after checking that this program can run on it. Errors:
// ERR_USAGE: there is no such device; ERR_FAIL.
bool cuda_device_select(int index, struct device *d, struct error *err);

// ---- facts.cu

// Refuses, by the fact's name, a model that asks for what the kernels do not compute: ERR_MODEL.
bool cuda_check_facts(const struct model *m, struct error *err);

// ---- plan.cu

// What the engine would take with n_ctx positions.
void cuda_memory_plan(const struct model *m, const struct engine_params *p, uint32_t n_ctx,
                      const struct device *d, struct memory_plan *out);
// Places the weights, vectors, cache and scratch of e (hp, largest, params, base.n_ctx,
// base.n_batch set) in the three arenas; with NULL bases only their sizes result. layers: may be
// scratch of the caller.
void cuda_place(struct cuda_engine *e, const struct model *m);

// ---- load.cu

// Copies and repacks every weight; e is placed. Errors: ERR_FAIL, ERR_MEMORY, ERR_INTERRUPTED.
bool cuda_load(struct cuda_engine *e, const struct model *m, struct error *err);
// Bytes of device memory that it takes and gives back.
uint64_t cuda_load_bytes(const struct model *m);

// ---- range.cu

// Fills what wmat, kv_plane and gpu_layer hold of scales and bounds; the weights are loaded.
bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err);

// ---- engine.cu

// Tells the device where it stands; what was enqueued before must have ended.
bool cuda_set_step(struct cuda_engine *e, int32_t token, size_t pos, struct error *err);
// n tokens of seq at n_past, and the logits of the last if wanted.
bool cuda_enqueue_chunk(struct cuda_engine *e, const int32_t *tokens, size_t n, bool logits,
                        struct error *err);
// Called before the launches of layer i of a chunk of n tokens: waits until the device is near, so
// that little is queued when the chunk is cancelled.
bool cuda_pace(struct cuda_engine *e, uint32_t n, uint32_t i, struct error *err);
// Makes the engine's device the calling thread's current one; fails for ever after a failure that
// could not be told.
bool cuda_begin(struct cuda_engine *e, struct error *err);
// And the sequence the one at work, from its evaluated end on.
bool cuda_work_on(struct cuda_engine *e, const struct seq *s, const struct cancel *cancel,
                  struct error *err);
bool cuda_wait(struct cuda_engine *e, struct error *err); // for all that is enqueued
// One step of decoding, as the graph holds it.
bool cuda_enqueue_step(struct cuda_engine *e, struct error *err);

// Starts cuBLAS, once: only when something is to be multiplied with it, so that nobody else needs
// its library or waits for it.
bool cuda_blas_open(struct cuda_engine *e, struct error *err);

// ---- kv_cache.cu

// Makes the table of s the one that kernels read from now on. While steps run, s has only grown:
// what they read of the table stays.
bool cuda_kv_use(struct cuda_engine *e, const struct seq *s, struct error *err);
// The first n positions of a block to another.
bool cuda_kv_copy_block(struct cuda_engine *e, uint32_t from, uint32_t to, size_t n,
                        struct error *err);
// Copies positions [begin, end) of the sequence of this table (host memory) out of the cache or
// into it, and waits; the host has cuda_kv_bytes of them.
size_t cuda_kv_bytes(const struct cuda_engine *e, size_t begin, size_t end);
bool cuda_kv_copy(struct cuda_engine *e, const uint32_t *table, size_t begin, size_t end,
                  uint8_t *host, bool out, struct error *err);

// ---- finite.cu

// True, or with e->search a look at the residual stream of one token after a step (finite_step).
bool cuda_look(struct cuda_engine *e, const char *what, struct error *err);
// The error of a logit that is not finite: evaluates last_token, at position pos, once more and
// looks after every step. last: the logit is of that token. Nothing is left in x and the logits.
bool cuda_not_finite(struct cuda_engine *e, size_t pos, bool last, uint32_t id, float logit,
                     struct error *err);

// ---- measure.cu, profile.cu, clocks.cu

// backend.measure, backend.profile
bool cuda_measure(struct engine *base, struct engine_peaks *out, struct error *err);
bool cuda_profile(struct engine *base, const struct seq *s, const int32_t *tokens, size_t n,
                  uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                  struct error *err);
// Fills the clocks of *out.
void cuda_clocks(int device, struct engine_peaks *out);

// The queue, for launches that work on these weights: a recorder of their times keeps the name.
static inline const struct queue *cuda_queue(const struct cuda_engine *e, const char *what)
{
    if (e->q.recorder)
        e->q.recorder->what = what;
    return &e->q;
}

// Whether a norm with these biases is a launch of its own: the kernels of products know RMSNorm
// alone.
static inline bool norm_is_apart(const struct hparams *hp, const struct weight *bias)
{
    return hp->norm != NORM_RMS || bias->data;
}

// Whether gate and up can be multiplied in one launch that leaves act(gate) * up.
static inline bool gate_is_fused(const struct layer *l)
{
    return l->w[FFN_GATE].data && !l->w[FFN_UP_BIAS].data &&
           (l->act == ACT_SILU || l->act == ACT_GELU_TANH);
}

// ---- forward.cu

// One token: reads token and position from s.step, leaves the hidden state in x.
bool cuda_forward_one(struct cuda_engine *e, struct error *err);
// The logits of n (<= LOGITS_ROWS) rows of x from row0 on, to s.logits.
bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err);
// n > 1 tokens from s.tokens at position s.step->pos.
bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err);

static inline bool interrupted(const struct cuda_engine *e, struct error *err)
{
    if (!cancel_asked(e->cancel))
        return false;
    error_set(err, ERR_INTERRUPTED, "interrupted");
    return true;
}

#endif
