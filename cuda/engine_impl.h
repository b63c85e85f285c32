// The CUDA engine from the inside: what its host code shares.
#ifndef HOKKU_CUDA_ENGINE_IMPL_H
#define HOKKU_CUDA_ENGINE_IMPL_H

#include "engine/backend.h"
#include "engine/finite.h"
#include "experts.h"
#include "kernels.h"
#include "ranks.h"
#include "sampler.cuh"
#include "states.h"

enum {
    // Tokens up to which a chunk goes through the matrix-vector kernel: where the weights of more
    // pass through memory once more as float16, and where they do not (queue.hopper).
    MATVEC_MAX_ROWS = 24,
    MATVEC_MAX_ROWS_HOPPER = 2,
    FEW_ROWS = 32,            // up to which gemm_few is faster than those,
    PASS_FEW_ROWS = 32,       // and than gemm_wide,
    PASS_FEW_PLAIN_ROWS = 16, // with the head, and with weights that are not quantised
    PICK_ROWS = 256,          // and of several sequences, to pick from
    GRAPH_ROWS = 32,          // of a pass that becomes a graph
    GRAPH_AFTER = 3,          // times that it was launched without one
    LOGITS_ROWS = 8,          // rows of logits kept at a time
    SPANS_AHEAD = 32, // steps, or sequences that go back, that may be enqueued at a time, and more
    DRAFT_ROWS = 1 + ENGINE_MAX_DRAFTS, // of a sequence with drafts
    KEPT_ROWS = 4 * DRAFT_ROWS,         // of a pass that states go on from again, at most
};

// Pairs of a row and an expert of its that are multiplied at a time: what they need in memory is
// for so many.
enum {
#ifdef HOKKU_CUDA_ON_CPU // so that rows take several
    EXPERT_PAIRS = 100,
#else
    EXPERT_PAIRS = 16384,
#endif
};

// What ranks exchange in one launch, packets and spans; and how many numbers go in spans. The inbox
// has 18 MB for each rank.
enum {
#ifdef HOKKU_CUDA_ON_CPU // so that rows take several
    EXCHANGE_ROOM = 300,
    EXCHANGE_SPANS = 4,
    EXCHANGE_LINK = 400,
    EXCHANGE_HOST_ROOM = 150,
    EXCHANGE_HOST_SPANS = 2,
#else
    EXCHANGE_ROOM = 1 << 17,
    EXCHANGE_SPANS = 128,
    EXCHANGE_LINK = 1 << 15,
    EXCHANGE_HOST_ROOM = 1 << 15,
    EXCHANGE_HOST_SPANS = 16,
#endif
};
static inline struct exchange exchange_between(uint32_t n_rank, bool through_host)
{
    struct exchange x = {};
    x.n_rank = n_rank;
    x.room = through_host ? EXCHANGE_HOST_ROOM : EXCHANGE_ROOM;
    x.n_span = through_host ? EXCHANGE_HOST_SPANS : EXCHANGE_SPANS;
    x.n_link = EXCHANGE_LINK;
    return x;
}

// Operations of a share of a chunk's work: some milliseconds. A mark costs about as much as a
// launch.
#ifdef HOKKU_CUDA_ON_CPU
#define PACE_OPERATIONS 1.0
#else
#define PACE_OPERATIONS 1e12
#endif

// Of layers with a recurrent state, for some rows.
struct state_scratch {
    float *in;           // (rows, what conv_in, delta_qkv or ssm_in gives)
    float *mixed;        // (rows, channels) see struct ssm_rows and delta_rows, as the next
    float *z;            // (rows, n_head * n_state)
    float *beta, *alpha; // (rows, 2 * n_head)
};

// The weights by enum layer_weight: the matrices in w, the vectors in v (NULL: absent).
struct gpu_layer {
    const struct layer *facts; // of the model
    struct wmat w[N_LAYER_WEIGHTS];
    const float *v[N_LAYER_WEIGHTS];
    struct kv_plane k_cache, v_cache;
    bool near;                        // see engine/windows.h
    float q_scale;                    // see attention
    float head_k_scale, head_v_scale; // of a latent's heads, as those of the cache
    float gated_bound;                // see act_f16
    size_t state_at;                  // floats, in a slot of the recurrent states
    // (cuda_kept_rows) what its state can go on from again, see states.h; in NULL: nothing is kept.
    struct state_scratch kept;
};

// What a block reads: rows of x, to be normed by whoever reads them unless norm is NULL.
struct input {
    const float *x, *norm;
    const uint32_t *rows;  // which of x, where some are picked; NULL: all
    struct add_normed add; // y not NULL: what x is still to be made of, see owed
};

// Device memory, taken once and carved.
struct arena {
    uint8_t *base; // NULL: measure only
    uint64_t used, size;
};

// Everything between the matrices, for up to n_batch tokens.
struct scratch {
    struct step_state *step;
    uint32_t *kv_tables;   // (1 + n_seq, kv_blocks(n_ctx)) see attention
    uint32_t *near_tables; // of near layers, as large; kv_tables where these have as many blocks
    struct seq_row *rows;  // (n_batch), of several sequences'
    uint32_t *picks;       // (cuda_n_picks) the rows of x that tokens are picked after
    float *pick_logits;    // (n_logits, n_vocab rounded up to 4); NULL: n_vocab is
    int32_t *tokens;       // (n_batch)
    float *x;              // (n_batch, n_embd) the residual stream
    float *x_away;         // (n_embd) the same of one token, between two sums that are owed
    float *q, *k, *v;      // (n_batch, n_head * head_dim, gated: twice that | n_head_kv * head_dim)
    float *att;            // (n_batch, what the heads give)
    float *gate, *up;      // (n_batch, n_ff); also (n_batch, n_embd) products
    float *normed;         // (n_batch, n_embd), where norms are launches of their own
    float *beside;         // (n_batch, n_embd) of feed-forward networks beside experts
    float *told;           // (n_batch, n_layer * n_embd_layer) what layers are told of the tokens
    float *told_proj;      // the same, on its way there
    float *side;           // (n_side, n_batch, n_embd) streams beside x
    float *predicted;      // (n_batch, n_embd) see struct altup
    uint32_t n_logits;
    float *logits; // (n_logits, n_vocab)
    // Of a rank alone (ranks.h):
    float *part_logits; // (n_logits, rows of its head)
    uint64_t *inbox;    // (exchange_inbox)
    struct exchange_state *exchange;
    void *act32;              // (MATVEC_MAX_ROWS, widest input)
    void *act_f32;            // the same; (n_batch, widest input) when matrices are F32
    __half *act_f16;          // (n_batch, widest input), or packed
    __half *ff_f16;           // (n_batch, n_ff) packed
    float *undo, *undo_gated; // (n_batch) of the rows of act_f16 and ff_f16, see act_f16
    void *tile; // dequantised weights on their way to cuBLAS; or the sums of gemm_hopper, gemm_wide
    size_t tile_bytes;
    uint32_t n_split_rows; // see attention
    float *partial;
    size_t partial_bytes;
    uint32_t *counters, *gemm_counters, *route_counter; // one after the other
    size_t counter_bytes;                               // of all
    __half *q_f16;
    void *blas_workspace;
    size_t blas_workspace_bytes; // 0: no product of this model goes through cuBLAS
    uint32_t n_without_blas;     // rows up to which none does
};

// Beside that, of layers with experts, for some of the rows and their pairs with experts.
struct expert_scratch {
    float *logits;                  // (rows, n)
    uint32_t *chosen;               // (pairs), and so on
    float *weight;                  // of what is chosen
    uint32_t *place, *pair_at;      // see grouping
    uint32_t *rank, *n_item;        // the same
    struct expert_item *items;      // (expert_items)
    float *gate, *up;               // (pairs, n_ff)
    float *out;                     // (pairs, n_embd or n_latent)
    float *shared_gate, *shared_up; // (rows, n_ff_shared)
    float *shared_out;              // (rows, n_embd)
    float *shared_weight;           // (rows)
    float *latent;                  // (rows, n_latent) what experts are given, then their sums
    void *act32, *act_f32;          // the widest input of all rows, or pairs
    __half *packed;                 // (pairs, the widest input) for expert_hopper_launch
    __half *shared_packed;          // (rows, the widest input of the shared expert)
    float *undo, *shared_undo;      // (pairs | rows) of theirs
    // (EXPERT_FEW_MOST, n_embd) for expert_few_launch, and (pairs) of what it makes of them
    __half *few;
    float *few_undo;
    uint32_t *few_tops;
};

// And of layers with latent attention, see latent_rows.
struct latent_scratch {
    float *q_low;   // (n_batch, latent.n_q)
    float *q;       // (n_batch, n_head, n_key + n_rotated)
    float *key;     // (n_head, n_batch, n_key)
    float *rotated; // (n_batch, n_head, n_rotated)
    float *brought; // (n_head, n_batch, n_kv): to the latent, then sums of it
    float *given;   // (n_head, n_batch, n_value)
    __half *query;  // (n_batch, n_head, key_width)
    float *undo;    // (n_batch, n_head)
    struct expert_item *items;
    void *act32, *act_f32; // (n_head * n_batch, n_key or n_kv)
    // Of prompts, see latent_heads; keys NULL: these go as single tokens do. For so many heads of
    // the layer with most as there is room for, one at least.
    uint8_t *keys, *values; // (blocks of n_ctx, heads, KV_BLOCK, ...)
    size_t plane_bytes;     // of each
    __half *heads_w;        // (heads, ...)
    uint32_t *in_order;     // 0, 1, 2, ...: where the blocks of these planes are
};

// Of a model that predicts (model_predictor): what the input of its layer is made of.
struct prediction {
    struct wmat joint;
    const float *embd_norm, *hidden_norm; // (n_embd)
    float *hidden;                        // (n_batch, n_embd) what the pass's rows were given
    float *joined;                        // (n_batch, 2 * n_embd); NULL: the model does not predict
};

// Of the layers that keep rows, what advances their states: of each kind so many, in device memory.
struct state_advance {
    struct delta_rows *delta;
    struct short_conv_rows *conv;
    struct ssm_rows *ssm;
    uint32_t n_delta, n_conv, n_ssm;
};

// The recurrent states of sequences: n slots of engine/states.c, and one that is never read.
struct state_pool {
    float *base;
    size_t stride;            // floats
    uint32_t n;               // 0: the model has no states
    struct state_span *spans; // (1 + cuda_n_spans) of a pass of one sequence, then of several
    struct state_advance advance;
};

struct device {
    char name[256];
    int n_sm, major, minor;
    uint64_t total, free;
    size_t smem_max, smem_sm; // see struct queue
};

struct memory_plan {
    uint64_t weights, kv, scratch, other; // bytes; other: not taken by us (driver, kernels, graph)
    uint32_t n_ctx;
};

// The rows of several sequences in one pass: first those that are the next token of theirs, with
// its drafts, then chunks of prompts.
struct cuda_pass {
    uint32_t n_row, n_single;
    uint32_t n_span;   // one for the rows of each sequence, and some may be of none
    uint32_t furthest; // the largest position of the rows that are attended to as single ones,
    uint32_t reach;    // and of all
    uint32_t n_chunk;
    struct row_span chunks[ENGINE_MAX_PARTS];
};

// Where a part's rows are in x.
struct part_rows {
    uint32_t row, n;
};

// What a pass of so many next tokens launches, from when that has been launched a few times: then
// the host's part of a pass, which is longer than a small model's, is one call.
struct pass_graph {
    uint32_t furthest; // cuda_pass.furthest at most
    uint32_t n_seen;   // passes of this kind
    cudaGraphExec_t exec;
};

// See side.cu.
struct side {
    struct queue q;   // (stream NULL: there is none)
    cudaEvent_t turn; // of either queue, which the other one waits for
};

struct cuda_engine {
    struct engine base; // must be first
    struct engine_core core;
    struct rank *rank; // NULL: the model is on one device
    struct exchange exchange;
    struct hparams hp;
    struct layer_sizes largest;
    struct engine_params params;
    struct queue q;
    struct side side;
    double ahead_bytes; // of weights that are asked for at a time, at most
    struct arena weights, kv, work;
    struct gpu_layer *layers; // (n_layer)
    struct wmat tok_embd, output;
    struct wmat token_layers, token_layers_proj; // where layers are told of the token
    const float *token_layers_norm;
    struct wmat altup_proj, altup_unembd_proj;   // n_side stacked
    const float *positions;                      // (, n_embd) of model.pos_embd; NULL: none
    const float *output_norm, *output_norm_bias; // NULL: none
    const float *output_bias;                    // (n_vocab), NULL: none
    const float *ones;        // (head_dim), where norms without weights ask for them
    struct rope_tables ropes; // of the model, in its order
    struct scratch s;
    struct expert_scratch experts;
    struct latent_scratch latent;
    struct prediction prediction;
    struct state_scratch mixers; // for n_batch rows
    void *chunks;                // of them, scratch memory (states.h); NULL: rows go one by one
    struct state_pool states;
    struct state_span *host_spans; // (SPANS_AHEAD + cuda_n_spans) pinned: by turns, then of parts
    uint64_t n_spans;              // used of the first
    uint32_t n_near;               // blocks of near layers
    uint32_t *kv_table;            // (2, kv_blocks(n_ctx)) pinned: what both tables hold of slot 0
    uint64_t kv_version;           // seq.version of it
    struct gpu_sampler sampler;
    uint32_t n_seq; // sequences in one pass
    bool passes;    // cuda_has_passes
    // Prompts have products of their own, gemm_hopper's, which give the same bits whatever their
    // pieces; next tokens have others.
    bool any_pieces;
    struct sampler_rows rows;  // where passes: picks of several sequences
    uint32_t *host_tables;     // (2, n_seq, kv_blocks(n_ctx)) pinned: what both hold after slot 0
    uint64_t *table_versions;  // (n_seq)
    struct seq_row *host_rows; // (n_batch) pinned
    uint32_t *host_picks;      // (cuda_n_picks) pinned
    struct engine_part *after; // (2 * ENGINE_MAX_PASS_DRAFTS) see use_picks; NULL: no drafts
    const struct cuda_pass *pass; // under way; NULL: of one sequence
    struct add_normed owed;       // y not NULL: to x, by whoever reads it next (forward_owed.cu)
    bool x_is_away;               // in s.x_away, or will be
    struct pass_graph pass_graphs[1 + GRAPH_ROWS]; // by rows
    bool no_pass_graphs;                           // there was no memory for one
    // One decoded token: forward, head, sampler; [1] where the sampler's blocks wait for each
    // other.
    cudaGraphExec_t graph[2];
    // The same without the sampler, which waits for a mask.
    cudaGraphExec_t masked_graph;
    cudaEvent_t pace[2];  // reached when the layers before have ended, by turns
    double layer_weights; // of the largest layer
    bool paced;           // cuda_pace waits for them
    struct error failure; // of a call that could not tell: every later one does
    bool pick_failed;     // the last error was that of numbers, not of the device
    // pinned host memory
    struct step_state *host_step;
    int32_t *host_tokens;         // (n_batch)
    uint32_t *mask;               // as gpu_sampler.mask
    struct finite_search *search; // NULL: no step's result is looked at
    int32_t last_token;           // evaluated, as far as the caller knows
    uint32_t last_row;            // of the pass that evaluated it
    // of the call under way
    const struct seq *seq;
    size_t n_past; // the position of its first row
    const struct cancel *cancel;
    // the logits that are at hand
    enum engine_logits logits_want;
    size_t n_rows;                                // of x after the last eval
    struct part_rows part_rows[ENGINE_MAX_PARTS]; // of the last pass, as they were given
    size_t n_part_rows;
    size_t logits_row0;           // first row in s.logits
    size_t logits_n;              // rows in s.logits
    size_t n_picked;              // samples given to the caller in this run
    size_t n_asked, n_masked;     // asked for in it; of those, launched with their masks
    bool step_held;               // evaluates behind one that is not, and is launched then
    double step_began, step_took; // when a pick was asked for last; seconds until it was seen
};

// ---- device.cu

// Makes device `index` the current one, after checking that this program can run on it. Errors:
// ERR_USAGE: there is no such device; ERR_FAIL.
bool cuda_device_select(int index, struct device *d, struct error *err);

// ---- facts.cu

// Refuses, by the fact's name, a model that asks for what the kernels do not compute: ERR_MODEL.
bool cuda_check_facts(const struct model *m, struct error *err);

// ---- parts.cu: several sequences in one pass

// backend.eval_parts
bool cuda_eval_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                     const struct cancel *cancel, struct error *err);
// The logits of n (<= s.n_logits) rows of the last pass, from row0 on, to s.logits.
bool cuda_head_of_pass(struct cuda_engine *e, size_t row0, uint32_t n, struct error *err);
// The launches of a pass of n >= 4 rows of whatever is there, to be captured.
bool cuda_enqueue_parts(struct cuda_engine *e, uint32_t n, struct error *err);
bool cuda_parts_open(struct cuda_engine *e, struct error *err); // where there are passes
void cuda_parts_close(struct cuda_engine *e);

// ---- plan.cu

// Picks that one pass makes at most: one of each sequence, and those after drafts.
static inline uint32_t cuda_n_picks(const struct engine_params *p, uint32_t n_seq)
{
    const uint32_t most = ENGINE_MAX_PASS_DRAFTS;
    return n_seq + (p->exact ? lesser(n_seq * ENGINE_MAX_DRAFTS, most) : 0);
}

// Whether one sequence is evaluated in passes, too.
static inline bool cuda_has_passes(const struct engine_params *p, uint32_t n_seq)
{
    return n_seq > 1 || p->exact;
}

// The sequences that a pass takes.
static inline uint32_t cuda_n_seq(const struct engine_params *p)
{
    return p->n_seqs > 1 ? lesser(p->n_seqs, (uint32_t)ENGINE_MAX_PARTS) : 1;
}

enum { CUDA_LEAST_BATCH = 512 };
// Tokens of a chunk: what was asked for, else 2,048, which are faster than fewer; but 1,024 or 512
// where that takes a twentieth of the device's memory less (all of it, whatever else is there, so
// that texts are the same).
uint32_t cuda_n_batch(const struct model *m, const struct engine_params *p, const struct device *d);

// What the engine would take with n_ctx positions.
void cuda_memory_plan(const struct model *m, const struct engine_params *p, uint32_t n_ctx,
                      const struct device *d, struct memory_plan *out);
// Places the weights, vectors, cache and scratch of e (hp, largest, params, base.n_ctx,
// base.n_batch set) in the three arenas; with NULL bases only their sizes result. layers: may be
// scratch of the caller.
void cuda_place(struct cuda_engine *e, const struct model *m);
void *cuda_take(struct arena *a, uint64_t n_bytes); // the next place
// Of what several layers need in one place.
static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// ---- states.cu

// Spans of a pass of several sequences: a graph has as many as rows.
static inline uint32_t cuda_n_spans(uint32_t n_seq)
{
    return n_seq > GRAPH_ROWS ? n_seq : (uint32_t)GRAPH_ROWS;
}

// Rows of a pass that states go on from again.
static inline uint32_t cuda_kept_rows(uint32_t n_seq)
{
    return lesser(n_seq * DRAFT_ROWS, (uint32_t)KEPT_ROWS);
}

// Tokens of a chunk that go through the matrix-vector kernel.
static inline uint32_t cuda_rows_by_vector(const struct cuda_engine *e)
{
    return e->q.hopper ? MATVEC_MAX_ROWS_HOPPER : MATVEC_MAX_ROWS;
}

// The slots of an engine for n_seq sequences in one pass, on a device of so much memory in all; 0:
// the model has no states.
uint32_t cuda_n_states(const struct model *m, uint32_t n_seq, uint64_t device_bytes);
void cuda_place_states(struct cuda_engine *e, const struct model *m);
bool cuda_states_open(struct cuda_engine *e, struct error *err);
// The floats of a slot, to or from the host's memory.
bool cuda_state_copy(struct cuda_engine *e, uint32_t slot, float *host, bool out,
                     struct error *err);
// The n rows that are enqueued next, of one sequence, go on from this slot (NO_STATE: zeros), and
// leave their state in `to` (NO_STATE: where nobody reads it).
bool cuda_state_use(struct cuda_engine *e, uint32_t from, uint32_t to, uint32_t n,
                    struct error *err);
bool cuda_span_use(struct cuda_engine *e, struct state_span span, struct error *err);
// The n rows of a chunk of s lead to its next states.
bool cuda_state_use_chunk(struct cuda_engine *e, const struct seq *s, size_t n, struct error *err);
// The same of parts, whose rows follow each other.
bool cuda_states_use(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                     struct error *err);
// The layer's states in the pass under way.
struct state_slots cuda_state_slots(const struct cuda_engine *e, const struct gpu_layer *l);

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
// Has the driver load the kernels of prompts and passes.
bool cuda_load_kernels(struct cuda_engine *e, struct error *err);

// Starts cuBLAS, once: only when something is to be multiplied with it, so that nobody else needs
// its library or waits for it.
bool cuda_blas_open(struct cuda_engine *e, struct error *err);

// ---- kv_cache.cu

// Makes the tables of s those that kernels read from now on. While steps run, s has only grown, and
// dropped what they do not see: what they read of the tables stays.
bool cuda_kv_use(struct cuda_engine *e, const struct seq *s, struct error *err);
// Those of all sequences that a layer looks at.
const uint32_t *cuda_tables(const struct cuda_engine *e, const struct gpu_layer *l);
// The first n positions of a block to another, as backend.kv_copy.
bool cuda_kv_copy_block(struct cuda_engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                        struct error *err);
// Copies positions [begin, end) of near layers, or of the others, of the sequence of this table
// (host memory) out of the cache or into it, and waits; the host has cuda_kv_bytes of them.
size_t cuda_kv_bytes(const struct cuda_engine *e, bool near, size_t begin, size_t end);
bool cuda_kv_copy(struct cuda_engine *e, const uint32_t *table, bool near, size_t begin, size_t end,
                  uint8_t *host, bool out, struct error *err);

// ---- finite.cu

// True, or with e->search a look at the residual stream of one token after a step (finite_step); l
// NULL: before all layers.
bool cuda_look(struct cuda_engine *e, const struct gpu_layer *l, const char *what,
               struct error *err);
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
bool cuda_profile_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                        uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                        struct error *err); // backend.profile_parts
// Fills the clocks of *out.
void cuda_clocks(int device, struct engine_peaks *out);

// The queue, for launches that work on these weights: a recorder of their times keeps the name.
static inline const struct queue *cuda_queue(const struct cuda_engine *e, const char *what)
{
    if (e->q.recorder)
        e->q.recorder->what = what;
    return &e->q;
}

// The weights that something is launched for, as cuda_queue takes it: a matrix alone, or all that
// have the same input.
static inline const char *name_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].name;
}

static inline const char *group_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].group;
}

static inline bool is_plain_type(const struct wmat *w)
{
    return w->type == QUANT_F32 || w->type == QUANT_F16 || w->type == QUANT_BF16;
}

// Whether a norm with these biases is a launch of its own: the kernels of products know RMSNorm
// alone.
static inline bool norm_is_apart(const struct hparams *hp, const struct weight *bias)
{
    return hp->norm != NORM_RMS || bias->data;
}

// Whether the mixer reads its normed input when it has begun to add to x: so that is kept, by a
// norm of its own.
static inline bool input_is_kept(const struct layer *l)
{
    return l->mixer == MIXER_LINEAR || l->n_laurel > 0 ||
           (l->mixer == MIXER_ATTENTION && l->ssm.n_head > 0);
}

// Whether the layer has a feed-forward network beside its experts.
static inline bool is_beside(const struct layer *l)
{
    return l->experts.n > 0 && l->n_ff > 0;
}

// Whether gate and up can be multiplied in one launch that leaves act(gate) * up.
static inline bool gate_is_fused(const struct layer *l)
{
    return l->w[FFN_GATE].data && !l->sparse && !l->w[FFN_GATE_BIAS].data &&
           !l->w[FFN_UP_BIAS].data && (l->act == ACT_SILU || l->act == ACT_GELU_TANH);
}

// ---- side.cu

bool cuda_side_open(struct cuda_engine *e, struct error *err); // behind e->q
void cuda_side_close(struct cuda_engine *e);
// What is launched there from now on comes behind what has been launched in e->q.
bool cuda_side_begin(const struct cuda_engine *e, struct error *err);
// And what is launched in e->q behind what has been launched there.
bool cuda_side_end(const struct cuda_engine *e, struct error *err);
// The same where that is captured, too: before a capture ends.
bool cuda_side_join(const struct cuda_engine *e, struct error *err);
bool cuda_is_captured(cudaStream_t stream, bool *is, struct error *err);

// ---- ahead.cu

bool cuda_ahead_open(struct cuda_engine *e, struct error *err);
// n pieces of n_bytes each, `stride` bytes apart, all multiples of 16.
struct span {
    const uint8_t *p;
    uint32_t n, stride, n_bytes;
};
struct spans {
    struct span at[3 * 4]; // planes
    uint32_t n;
};
// Of what the products behind attention read, in that order: attn_output, and what the feed-forward
// network begins with, where that comes next.
struct spans cuda_spans_ahead(const struct cuda_engine *e, const struct gpu_layer *l);
// Where a graph is captured: asks for that, when the last launch has ended, beside what follows it.
bool cuda_ask_ahead(const struct cuda_engine *e, const struct gpu_layer *l, struct error *err);

// ---- graphs: what enqueue() launches becomes one instead

template <typename F>
static inline bool cuda_capture(struct cuda_engine *e, cudaGraph_t *graph, F enqueue,
                                struct error *err)
{
    struct error mine = {};
    *graph = NULL;
    if (!CHECK_CUDA(cudaStreamBeginCapture(e->q.stream, cudaStreamCaptureModeRelaxed), err))
        return false;
    bool ok = enqueue();
    ok = cuda_side_join(e, ok ? err : &mine) && ok;
    return CHECK_CUDA(cudaStreamEndCapture(e->q.stream, graph), ok ? err : &mine) && ok;
}

// A graph that can be launched.
template <typename F>
static inline bool cuda_capture_exec(struct cuda_engine *e, cudaGraphExec_t *exec, F enqueue,
                                     struct error *err)
{
    cudaGraph_t graph;
    bool ok = cuda_capture(e, &graph, enqueue, err) &&
              CHECK_CUDA(cudaGraphInstantiate(exec, graph), err) &&
              CHECK_CUDA(cudaGraphUpload(*exec, e->q.stream), err);
    if (graph)
        cudaGraphDestroy(graph);
    return ok;
}

// ---- forward.cu

// Whether a row's bits depend on nothing but the row, and so not on how many there are; skip: see
// step_state.done, of a token alone.
static inline bool cuda_rows_alike(const struct cuda_engine *e, const uint32_t *skip)
{
    return e->pass || (e->any_pieces && !skip);
}

// One token: reads token and position from s.step, leaves the hidden state in x.
bool cuda_forward_one(struct cuda_engine *e, struct error *err);
// The logits of n (<= LOGITS_ROWS) rows of x from row0 on, to s.logits.
bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err);
// n tokens from s.tokens at position s.step->pos, or at s.rows as e->pass says; one alone only
// where rows are alike.
bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err);
// The logits of n (<= s.n_logits) rows of x (any, n_embd), hidden states, to s.logits: the first
// n, or, of an RMSNorm without biases, those that `rows` names.
bool cuda_head_of(struct cuda_engine *e, const float *x, const uint32_t *rows, uint32_t n,
                  struct error *err);

// n = 0, below: the one token of a step. The rows of it:
static inline uint32_t rows_of_step(uint32_t n)
{
    return n ? n : 1;
}

// Whether rows for products with w are packed.
bool cuda_takes_packed(const struct cuda_engine *e, const struct wmat *w, uint32_t n);

// y (n, rows) = w in + bias (rows; NULL: none); what: as cuda_queue takes it.
bool cuda_multiply(const struct cuda_engine *e, const char *what, const struct wmat *w,
                   const float *bias, struct input in, uint32_t n, float *y, struct error *err);
// y[i] (n, rows) = w[i] in, of up to MATVEC_MAX_PARTS matrices.
bool cuda_project(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                  uint32_t n, const enum layer_weight *w, float *const *y, uint32_t n_part,
                  struct error *err);
// x += residual_scale * W(in) (n, n_embd), normed if the layer says so; W: ATTN_OUTPUT or SSM_OUT.
bool cuda_add_mixed(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    const float *in, uint32_t n, struct error *err);

// ---- predict.cu

// Whether w, m's embedding or head, is in the engine of the model that m predicts for.
static inline bool cuda_shares(const struct model *m, const struct weight *w)
{
    const struct model *other = m->predicts_for;
    return other && (w->data == other->tok_embd.data || w->data == other->output.data);
}

// The hidden states that the rows of the next pass are given, of a model that predicts: those of
// the parts, in the order of their rows.
bool cuda_give_hidden(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                      struct error *err);
// The one row that is evaluated next is given what last_row was.
bool cuda_give_again(struct cuda_engine *e, struct error *err);
// x (n, n_embd) = joint (x normed, what was given normed) of a model that predicts; else nothing.
bool cuda_join(struct cuda_engine *e, uint32_t n, struct error *err);
// backend.hidden
bool cuda_hidden(struct engine *base, size_t row, size_t n, float *out, struct error *err);

// ---- forward_states.cu

// Of the layers with a recurrent state, what they need in the arena `work`.
void cuda_place_mixers(struct cuda_engine *e, const struct model *m);
// x += what such a layer makes of in; of attention with a state space beside it, what the latter
// does.
bool cuda_recur(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                struct error *err);
// What the pass last enqueued, of at most cuda_kept_rows, has done to the states of these layers:
// once more, through the rows of the span alone. Only where drafts are taken.
bool cuda_state_advance(struct cuda_engine *e, struct state_span span, struct error *err);
// Fills e->states.advance, once everything is placed.
bool cuda_state_advance_open(struct cuda_engine *e, struct error *err);
// The launches of cuda_state_advance.
bool cuda_enqueue_advance(struct cuda_engine *e, struct error *err);
// What reads the norm of its input, as cuda_queue takes it.
const char *cuda_recurrent_group(const struct gpu_layer *l);

// ---- expert_scratch.cu

static inline bool has_experts(const struct layer *l)
{
    return l->experts.n > 0;
}

// Rows of a chunk that are multiplied at a time: bounds what their pairs with experts need.
static inline uint32_t expert_rows_at_once(uint32_t n_batch, uint32_t n_used)
{
    const uint32_t n = lesser(n_batch, (uint32_t)EXPERT_PAIRS / n_used);
    return n ? n : 1;
}

// Of the layers that have experts, what they need in the arena `work`.
void cuda_place_experts(struct cuda_engine *e, const struct model *m);

// ---- forward_experts.cu

// x += residual_scale * what the experts of the layer give, normed if it says so, with what is
// beside them. in (n, n_embd), to be normed with weights norm (NULL: it is). s.up is scratch.
bool cuda_experts_one(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                      const float *norm, struct error *err);
bool cuda_experts_many(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                       const float *norm, uint32_t n, struct error *err);
// Whether float16 products (expert_hopper.cu, expert_few.cu) take all matrices of the experts.
bool cuda_experts_can_be_half(const struct cuda_engine *e, const struct gpu_layer *l);

// ---- forward_attention.cu

// Of layers that clamp them, n rows of s.q, s.k and s.v.
bool cuda_clamp(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                struct error *err);

// s.att (n, n_head * head_dim) = attention of the one token of a step (n = 0), of n tokens, or of
// the rows of e->pass, from s.q, s.k and s.v; or, of these rows, packed (NULL: not) instead.
bool cuda_attend(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                 const struct packed_rows *packed, struct error *err);

// ---- forward_latent.cu

void cuda_place_latent(struct cuda_engine *e, const struct model *m); // as cuda_place_experts
// Whether prompts make keys and values for each head, see latent_heads.
bool cuda_latent_in_heads(const struct cuda_engine *e, const struct layer *l);
// The wider of a head's keys and values.
static inline uint32_t latent_head_width(const struct layer *l)
{
    const uint32_t n_key = l->latent.n_key + l->head_dim - l->latent.n_kv;
    return n_key > l->latent.n_value ? n_key : l->latent.n_value;
}
// s.att (n, n_head * n_value) = latent attention of n tokens, or the rows of e->pass, from latent.q
// and what attn_kv_a gave in s.k.
bool cuda_attend_latent(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        const uint32_t *skip, struct error *err);

static inline bool interrupted(const struct cuda_engine *e, struct error *err)
{
    if (!cancel_asked(e->cancel))
        return false;
    error_set(err, ERR_INTERRUPTED, "interrupted");
    return true;
}

// The same before launches that all ranks make or none.
static inline bool interrupted_alike(struct cuda_engine *e, struct error *err)
{
    if (!e->rank)
        return interrupted(e, err);
    return cuda_rank_interrupted(e) && !error_set(err, ERR_INTERRUPTED, "interrupted");
}

#endif
