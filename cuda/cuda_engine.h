// The CUDA engine from the inside: what it is made of.
#ifndef HOKKU_CUDA_CUDA_ENGINE_H
#define HOKKU_CUDA_CUDA_ENGINE_H

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

#endif
