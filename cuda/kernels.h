// The launchers of cuda/: each takes pointers, shapes and a queue, and enqueues work that reads and
// writes device memory. All pointers are device addresses. A launcher fails only when the launch
// itself does.
#ifndef HOKKU_CUDA_KERNELS_H
#define HOKKU_CUDA_KERNELS_H

#include "cuda_common.cuh"
#include "layout.h"
#include "model/slice.h"

struct expert_item; // experts.h

struct queue {
    cudaStream_t stream;
    cublasHandle_t blas;
    int n_sm;        // multiprocessors
    size_t smem_max; // shared memory that one block may have
    size_t smem_sm;  // that all blocks of a multiprocessor have, and 1 KB of it each for itself
    bool dependent;  // programmatic dependent launch works (compute capability >= 9.0)
    bool hopper;     // compute capability 9.0: the kernels of gemm_hopper.cuh run
    // NULL: launches are not timed
    struct recorder *recorder;
};

// Whose token a row of activations belongs to: its sequence's place in the tables of the KV cache,
// and its position there.
struct alignas(8) seq_row {
    uint32_t slot, pos;
};

// Where decoding stands, in device memory: the one graph of a decoded token reads it, so the same
// graph serves every position.
struct step_state {
    struct seq_row at; // of the token to evaluate
    int32_t token;
    uint32_t done; // non-zero: kernels of a step return at once
    uint32_t n_sampled;
};

// ---- repack.cu -----------------------------------------------------------------------------

// Splits rows [row0, row0 + n_rows) of a matrix of that type, as they lie in the file at src (any
// alignment), into the planes of w. row0 is a multiple of TILE_ROWS; rows that fill up the last
// tile become zeros.
bool repack_launch(const struct queue *q, uint32_t type, const void *src, const struct wmat *w,
                   uint32_t row0, uint32_t n_rows, struct error *err);

// Rows [row0, row0 + n_rows) as plain numbers, float32 for F32, else float16: dst (n_rows, ld), ld
// = gemm_ld(n_cols), columns from n_cols on are zeros.
bool dequant_launch(const struct queue *q, const struct wmat *w, uint32_t row0, uint32_t n_rows,
                    void *dst, uint32_t ld, struct error *err);

// What a matrix makes of its inputs, as far as its weights tell. Combined into *out, which begins
// as zeros; NaN when a weight is no number.
struct weight_range {
    float top; // the largest magnitude of a weight
    // The largest magnitude of a result when the input is x * norm, x's squares add up to n_cols,
    // and bias is added (Cauchy-Schwarz): what any RMSNorm gives.
    float bound;
};
// norm (n_cols), bias (rows): NULL: all ones, none.
bool weight_range_launch(const struct queue *q, const struct wmat *w, const float *norm,
                         const float *bias, struct weight_range *out, struct error *err);

// ---- matvec.cu -----------------------------------------------------------------------------

enum matvec_mode {
    MATVEC_STORE, // y = W x + bias
    MATVEC_ADD,   // y += scale * W x + bias
    MATVEC_GATED, // y[0] = act(w[0] x) * (w[1] x)
    MATVEC_TIMES, // y = act(W x) * bias; only where add.y is there
};

enum {
    MATVEC_MAX_COLS = 8,
    MATVEC_MAX_PARTS = 4,
};

// x = (from + scale (0: 1) * y), y normalised (RMSNorm) with weights norm (n_cols); then x *=
// *times, unless that is NULL. All (n, n_cols). from NULL: x.
struct add_normed {
    const float *y, *norm;
    float eps, scale;
    const float *times;
    float *x;
    const uint32_t *skip; // see matvec
    const float *from;
};
// Whether those who read such rows can make them: matvec for one, act for any number.
enum { ADD_MOST_COLS = 8192 }; // that the threads of one block have in registers
static inline bool add_is_made_by_readers(uint32_t n_cols)
{
    return n_cols % 8 == 0 && n_cols <= ADD_MOST_COLS;
}

// A factor that is 1 unless it is given.
static inline float scale_or_one(float scale)
{
    return scale != 0.0f ? scale : 1.0f;
}

// Up to MATVEC_MAX_PARTS matrices times the same input in one launch.
struct matvec {
    struct wmat w[MATVEC_MAX_PARTS];     // same n_cols
    const float *bias[MATVEC_MAX_PARTS]; // (rows), NULL: none
    float *y[MATVEC_MAX_PARTS];          // (n_col, ld) rows of it written
    uint32_t ld[MATVEC_MAX_PARTS];
    uint32_t n_part;
    enum matvec_mode mode;
    enum activation act; // of the last two modes: ACT_SILU or ACT_GELU_TANH
    float scale;         // MATVEC_ADD; 0: 1
    uint32_t n_col;      // 1 .. MATVEC_MAX_COLS
    // One column, x not NULL: the input as floats, normalised (RMSNorm, Zhang & Sennrich 2019) and
    // quantised by the kernel itself.
    const float *x;    // (n_cols)
    const float *norm; // (n_cols) weights of the norm; NULL: no norm
    float eps;
    // y not NULL: x is made of these first, which add_is_made_by_readers allows; x is add.from, and
    // not where the kernel leaves it for others, since all its blocks read it.
    struct add_normed add;
    // x NULL: columns prepared by act_launch, one row of act_row_bytes each. Quantised and plain
    // weight types take different forms.
    const void *act32, *act_f32;
    const uint32_t *skip; // non-zero there: return at once; NULL: never
    bool alike;           // x NULL: as many columns as there may be or one, each has the same bits
};

bool matvec_launch(const struct queue *q, const struct matvec *m, struct error *err);

// Whether a block has room for the one column x. If not, the columns' form serves: see act_launch.
bool matvec_row_fits(const struct queue *q, const struct matvec *m);

// Bytes of one row of activations as matrices of this type take them.
size_t act_row_bytes(uint32_t type, uint32_t n_cols);

// Floats in a row of plain activations: whole chunks of F16 (hence of F32, too).
static inline __host__ __device__ uint32_t act_f32_ld(uint32_t n_cols)
{
    return (n_cols + 7) / 8 * 8;
}

// ---- rows.cu: what happens to whole rows of activations between the matrices ------------------

// The rotations of a model's heads: turns[i] = (cos, sin) of every pair at the position of row i,
// times magnitude.
struct rope_table {
    const float *freqs; // (n_pair)
    uint32_t n_pair;
    float magnitude;
    float2 *turns; // (n, n_pair)
};

struct rope_tables {
    struct rope_table t[MODEL_MAX_ROPES];
    uint32_t n;
};

// x[i] = row tokens[i] of the embedding, times scale, plus the row of its position in positions
// (, n_embd; NULL: none); all rotations of the position of row i: rows[i].pos, or rows[0].pos + i
// for rows of one sequence.
bool embed_launch(const struct queue *q, const struct wmat *tok_embd, const int32_t *tokens,
                  uint32_t n, float *x /* (n, n_embd) */, float scale, const float *positions,
                  const struct rope_tables *ropes, const struct seq_row *rows, bool one_seq,
                  const uint32_t *skip, struct error *err);

// to[i] = from[rows[i]] (n, n_cols)
bool gather_rows_launch(const struct queue *q, const float *from, const uint32_t *rows, uint32_t n,
                        uint32_t n_cols, float *to, struct error *err);

// What the host has in pinned memory, in whole words, brought by one kernel: a copy by the driver
// costs more of the host and of the device than such pieces do. The host leaves them alone until
// the stream has come that far.
enum { UPLOAD_PIECES = 8 };
struct upload {
    struct {
        uint32_t *to;
        const uint32_t *from;
        uint32_t n; // words
    } piece[UPLOAD_PIECES];
    uint32_t n_piece, most; // words of the longest
};

template <typename T>
static inline void upload_add(struct upload *u, T *to, const T *from, size_t n)
{
    static_assert(sizeof(T) % sizeof(uint32_t) == 0, "whole words");
    const uint32_t words = (uint32_t)(n * sizeof(T) / sizeof(uint32_t));
    u->piece[u->n_piece++] = {(uint32_t *)to, (const uint32_t *)from, words};
    u->most = words > u->most ? words : u->most;
}

bool upload_launch(const struct queue *q, const struct upload *u, struct error *err);

// Rows as float16: each times a power of two that takes its largest value to the upper end of
// float16's range; whoever multiplies with them undoes that.
struct act_f16 {
    __half *x; // NULL: not wanted
    // of rows padded with zeros; GEMM_PACKED: as gemm_hopper_launch and gemm_wide_launch take them,
    // GEMM_FEW_PACKED: as gemm_few_launch does
    uint32_t ld;
    float *undo; // (n) 1 / the power of two
    // A bound of what MATVEC_GATED makes of a normalised row of squares that add up to n_cols, 0:
    // none;
    // then undo_gated (n) gets the same for that row of results, which nobody has seen yet.
    float gated_bound;
    float *undo_gated;
    const uint32_t *rows; // (n) which rows of x are taken, in every form; NULL: the first n
};
enum { GEMM_PACKED = 0, GEMM_FEW_PACKED = 1 };

// The same of who knows a bound of all rows before there are any: they have one power of two.
struct packed_rows {
    __half *x;     // NULL: not wanted
    uint32_t form; // GEMM_PACKED or GEMM_FEW_PACKED
    uint32_t n;    // rows of x
    uint32_t row0; // the first that a launch writes
    float *undo;   // (n) 1 / the power of two
};

// Prepares n rows of x (n, n_cols) for matrices: normalised unless norm is NULL, then in each form
// whose pointer is not NULL.
bool act_launch(const struct queue *q, const float *x, uint32_t n, uint32_t n_cols,
                const float *norm, float eps, void *act32, void *act_f32, const struct act_f16 *f16,
                struct error *err);

// The same of what `add` makes, which add_is_made_by_readers allows, in f16's form, a packed one.
bool act_added_launch(const struct queue *q, const struct add_normed *add, uint32_t n,
                      uint32_t n_cols, const float *norm, float eps, const struct act_f16 *f16,
                      struct error *err);

// gate (n, n_ff) = act(gate) * up; up NULL: ones. p: of ACT_XIELU.
bool gate_launch(const struct queue *q, enum activation act, const struct xielu *p, float *gate,
                 const float *up, size_t n_total, struct error *err);

// No element of x[i] (n[i]) is further from 0 than `most`.
struct clamp_rows {
    float *x[3];
    size_t n[3];
    float most;
};
bool clamp_launch(const struct queue *q, const struct clamp_rows *c, struct error *err);

// y (n, n_cols), rows ld_y apart, = x (n, n_cols) normed with weights w and biases b (n_cols), b
// NULL: none. For the norms that no other kernel knows.
bool norm_launch(const struct queue *q, enum norm_kind kind, const float *x, const float *w,
                 const float *b, float eps, float *y, uint32_t ld_y, uint32_t n, uint32_t n_cols,
                 const uint32_t *skip, struct error *err);

// y (n, n_cols) = scale (0: 1) * product (n, n_cols) * undo (n) + bias (n_cols), or all of it added
// to y. undo, bias NULL: none. product may be y.
bool finish_product_launch(const struct queue *q, const float *product, const float *undo,
                           const float *bias, float scale, bool add, float *y, uint32_t n,
                           uint32_t n_cols, struct error *err);

bool add_normed_launch(const struct queue *q, const struct add_normed *a, uint32_t n,
                       uint32_t n_cols, struct error *err);

// The same of y = (a normed with weights a_norm + b normed with b_norm), all by RMSNorm; a and b
// (n, n_cols).
struct join_normed {
    const float *a, *a_norm, *b, *b_norm;
    struct add_normed add; // but for y
};
bool join_normed_launch(const struct queue *q, const struct join_normed *j, uint32_t n,
                        uint32_t n_cols, struct error *err);

// What the layers are told of n tokens (struct model): told (n, n_layer, width), which comes with
// the tokens' rows of token_layers, times sqrt(width), becomes
//   (RMSNorm(scale * proj) with weights norm (width) + told) / sqrt(2)
struct told {
    const float *proj; // (n, n_layer, width)
    const float *norm;
    float *told;
    uint32_t n_layer, width;
    float scale, eps;
    const uint32_t *skip;
};
bool tell_launch(const struct queue *q, const struct told *t, uint32_t n, struct error *err);

// gate (n, width) = act(gate) * rows of told (n, ld), which is what one layer is told.
bool gate_told_launch(const struct queue *q, enum activation act, const struct xielu *p,
                      float *gate, const float *told, uint32_t ld, uint32_t n, uint32_t width,
                      struct error *err);

// Logits times scale, and softcap * tanh(logit / softcap) of that unless softcap is 0.
bool finish_logits_launch(const struct queue *q, float *logits, size_t n_total, float scale,
                          float softcap, const uint32_t *skip, struct error *err);

// ---- attention_decode.cu, attention_prefill.cu, attention_few.cu, attention_hopper.cu ---------

// The KV cache is a pool of blocks of KV_BLOCK positions; a block has all layers' keys and values,
// and a table per sequence says which block holds positions [i * KV_BLOCK, (i + 1) * KV_BLOCK).
// 64: what a step of attention_prefill reads at once, and whole tiles of attention_decode, so no
// tile straddles two blocks; a head's block is 4 to 32 KB in one piece, and half a block, what a
// sequence wastes on average, is some megabytes of a large model.
enum {
    KV_BLOCK = 64,
};

static inline __host__ __device__ uint32_t kv_blocks(uint32_t n_position)
{
    return (n_position + KV_BLOCK - 1) / KV_BLOCK;
}

// The keys (or values) of one layer: row (block, head, position in the block), kv_row, at data +
// row * row_bytes. Q8_0: signed bytes, and one float16 scale per 32 at scales + row * n_group, a
// scale more where that makes their number even (four bytes are copied at a time).
struct kv_plane {
    uint8_t *data;
    uint16_t *scales;   // NULL: data is float16
    uint32_t row_bytes; // a multiple of 16
    uint32_t n_group;   // kv_groups(head_dim)
    uint32_t n_head;
    float scale; // a power of two: what is stored is the value times this
};

static inline __host__ __device__ uint32_t kv_groups(uint32_t head_dim)
{
    return (head_dim + 63) / 64 * 2;
}

static inline __host__ __device__ size_t kv_row(uint32_t block, uint32_t n_head_kv, uint32_t head,
                                                uint32_t position)
{
    return (size_t)(block * n_head_kv + head) * KV_BLOCK + position % KV_BLOCK;
}

struct attention {
    uint32_t n_head, n_head_kv, head_dim;
    uint32_t value_dim; // of what a head gives: head_dim, but of heads of a latent
    uint32_t n_swa;     // a token sees itself and the n_swa - 1 before it; 0: all
    bool chunked;       // ... or its own one of the runs of n_swa that positions are cut in
    float eps;
    const float *q_norm, *k_norm; // (head_dim), NULL: none
    uint32_t norm_stride;         // from one head's to the next one's: 0, or head_dim
    bool norm_mean;               // they are layer norms, without v_norm
    const float *v_norm;          // (head_dim), NULL: none
    // Keys and values are in the cache, where an earlier layer put them: k_in and v_in are not
    // read.
    bool cached;
    bool norm_whole;   // of all heads at once: (n_head * head_dim), (n_head_kv * head_dim)
    bool norm_rotated; // after the rotation instead of before, not with norm_whole
    bool rope_halves;  // pairs (i, i + rope_dim / 2), else (2 i, 2 i + 1)
    uint32_t rope_dim;
    // Queries become float16 times this: log2(e), the factor of the scores (1 / sqrt(head_dim)) and
    // a power of two.
    float q_scale;
    float score_undo;   // 1 / (that power of two * k.scale): then scores are in units of log2
    float v_undo;       // 1 / v.scale
    float softcap;      // c: scores s become c tanh(s / c); 0: they do not
    const float *sinks; // (n_head) scores of no position, see ATTN_SINKS; NULL: none
    // Queries, rotated, times 1 + temp_scale ln(1 + floor((position + temp_offset) / temp_len)); 0:
    // they are not.
    float temp_scale;
    uint32_t temp_len, temp_offset;
    const float2 *rope; // (n, rope_dim / 2) cos and sin; NULL: no rotation
    struct kv_plane k, v;
    // Where the tokens are, see the launchers; and which blocks hold position 0, KV_BLOCK, ... of
    // the sequences (n_slot, max_blocks).
    const struct seq_row *rows;
    const uint32_t *tables;
    uint32_t max_blocks;
    uint32_t max_split; // set by the launchers
    uint32_t reach;     // prefill: the last position and one; no bit depends on it
    bool each;          // prefill: rows[i] is the place of the i-th token; set by the launchers
    bool together;      // rows: several may be of one sequence
    // Results of the projections, biases added; one row per token. norm_whole: normed in place.
    // gated: behind each head's query there is its gate, as wide: the results are times sigmoids.
    float *q_in, *k_in; // (n, ld_q), (n, ld_kv)
    bool gated;         // then ld_q is n_head * 2 * head_dim
    const float *v_in;  // (n, ld_kv)
    uint32_t ld_q, ld_kv;
    float *out; // (n, n_head_out * value_dim), of which these heads' are from out_head on
    uint32_t n_head_out, out_head; // n_head and 0, but of heads of a latent
    // x not NULL: results go there instead, times v.scale: they are means of values, and what the
    // cache holds of these fits into float16. value_dim is a multiple of four then.
    struct packed_rows packed;
    const uint32_t *skip;
    // Scratch: sizes by attention_scratch, and attention_wide_scratch.
    uint32_t n_split_rows;
    float *partial;
    size_t partial_bytes; // only prompts and attention_wide.cu ask
    uint32_t *counters;   // zero before the first use; left zero
    __half *q_f16;        // prefill: (n, n_head, padded head_dim)
};

// Floats of q_in from one head to the next.
static inline __host__ __device__ uint32_t query_stride(const struct attention *a)
{
    return a->gated ? 2 * a->head_dim : a->head_dim;
}

// The same from row i on.
static inline struct attention attention_from_row(struct attention a, uint32_t i)
{
    a.rows += i;
    a.rope = a.rope ? a.rope + (size_t)i * (a.rope_dim / 2) : NULL;
    a.q_in += (size_t)i * a.ld_q;
    a.k_in += (size_t)i * a.ld_kv;
    a.v_in += (size_t)i * a.ld_kv;
    a.out += (size_t)i * a.n_head_out * a.value_dim;
    a.packed.row0 += i;
    return a;
}

enum {
    ATTENTION_NARROW_HEAD_DIM = 256, // beyond that attention_wide.cu does what the others do
    ATTENTION_MAX_HEAD_DIM = 512,
};

struct attention_scratch {
    size_t partial, counters, q_f16; // bytes
    uint32_t n_split_rows;
};
// For up to n_seq sequences at once.
void attention_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                       uint32_t n_batch, uint32_t n_seq, struct attention_scratch *out);

// What vectors of up to 256 numbers are padded to.
uint32_t attention_padded_dim(uint32_t head_dim);

// The least shared memory that the kernels for this head_dim need; 0: no kernel for it.
size_t attention_smem(uint32_t head_dim);

// One token, at rows[0]: norms (norm_whole: in a launch of its own), rotates q and k, appends k and
// v to the cache, attends over the whole cache. The kernel looks at *rows, the tables, *skip and
// the rows of the cache before this one while its predecessors may still run: none of the launches
// that are chained by early starts (launch.dependent) may write them. A step's first launch, embed,
// is not chained.
bool attention_decode_launch(const struct queue *q, const struct attention *a, struct error *err);
// Rows that follow one another in a sequence.
struct row_span {
    uint32_t row0, n;
};

// The next tokens of n sequences, at rows[0 .. n), of which none is further than `furthest`: each
// has the bits that attention_decode_launch makes. together: rows may follow one another in a
// sequence, since all are in the cache before any of them looks; such bits are those of rows of
// launches that are `together`. spans: where they do, in order, up to the last row; rows in none
// have the same bits, but read the cache by themselves.
bool attention_rows_launch(const struct queue *q, const struct attention *a, uint32_t n,
                           const struct row_span *spans, uint32_t n_span, uint32_t furthest,
                           struct error *err);
// n tokens of one sequence, the first at rows[0]: the same in two launches or three.
bool attention_prefill_launch(const struct queue *q, const struct attention *a, uint32_t n,
                              struct error *err);
// The last of these: q_f16 are the queries, and the cache has all keys and values. head_dim, up to
// 256, is the larger of the widths of keys and values.
bool attention_prompt_launch(const struct queue *q, const struct attention *a, uint32_t n,
                             struct error *err);

// ---- attention_wide.cu, which the launchers above call for wide heads --------------------------

// n tokens of one sequence, or the next ones of n sequences.
bool attention_wide_launch(const struct queue *q, const struct attention *a, uint32_t n, bool each,
                           struct error *err);

// Latent attention (struct latent in model/model.h) of n tokens of one sequence, the first at
// rows[0]: a->head_dim is the width of what the cache holds, of which the first value_dim are the
// values, n_head_kv is 1. a->q_f16 (n, n_head, key_width) are the queries, which undo (n, n_head)
// takes to scores in units of log2. a->out (n_head, n, value_dim): what heads give, head after
// head.
bool attention_latent_launch(const struct queue *q, const struct attention *a, const float *undo,
                             uint32_t value_dim, uint32_t n, struct error *err);
// The same of rows of several sequences, at rows[0 .. n), all of which the cache has, to the same
// bits. spans: those that follow one another in a sequence, up to the last row; of the rows before
// them none is further than `furthest`, and of all none than `reach`.
bool attention_latent_rows_launch(const struct queue *q, const struct attention *a,
                                  const float *undo, uint32_t value_dim, uint32_t n,
                                  const struct row_span *spans, uint32_t n_span, uint32_t furthest,
                                  uint32_t reach, struct error *err);

struct attention_wide_scratch {
    size_t partial, smem; // bytes
    uint32_t key_width;   // of queries
};
// Of partial, for prompts of wide heads on compute capability 9.0 with a cache in float16.
size_t attention_wide_prompt_bytes(uint32_t n_head, uint32_t n_batch);
// latent: keys are values, too. False: heads too wide.
bool attention_wide_scratch(uint32_t n_head, uint32_t key, uint32_t value, bool latent,
                            uint32_t n_ctx, struct attention_wide_scratch *out);

// ---- latent.cu ---------------------------------------------------------------------------------

// What latent attention does to n tokens around its products.
struct latent_rows {
    uint32_t n, n_head, n_kv, n_key, n_rotated, n_value;
    const struct seq_row *rows; // each: where they are; else the first of one sequence's
    bool each;
    // Parts kv (n, n_kv + n_rotated) into what the cache keeps, with c normed with weights norm
    // (n_kv), and q (n, n_head, n_key + n_rotated) into key (n_head, n, n_key) and rotated (n,
    // n_head, n_rotated), times 1 + temp_scale ln(1 + floor((position + temp_offset) / temp_len)).
    // key NULL: q is not looked at.
    const float *kv, *norm, *q;
    float eps;
    const float2 *rope; // (n, n_rotated / 2)
    bool rope_halves;
    float temp_scale;
    uint32_t temp_len, temp_offset;
    struct kv_plane cache;
    const uint32_t *tables;
    uint32_t max_blocks;
    float *key, *rotated;
    struct expert_item *items; // the rows of each head, cut by per_item; NULL: not wanted
    uint32_t per_item;
    // Joins brought (n_head, n, n_kv) and rotated to queries (n, n_head, key_width) for
    // attention_latent_launch; score: times this a score is in units of log2.
    const float *brought;
    __half *query;
    float *undo, score;
    uint32_t key_width;
    const uint32_t *skip;
};
bool latent_part_launch(const struct queue *q, const struct latent_rows *l, struct error *err);
bool latent_query_launch(const struct queue *q, const struct latent_rows *l, struct error *err);

// y (n_head, n, n_cols) = the transpose of each head's matrix of w (rows, n_cols), stacked, times x
// (n_head, n, rows).
bool latent_transposed_launch(const struct queue *q, const struct wmat *w, uint32_t n_head,
                              const float *x, uint32_t n, float *y, const uint32_t *skip,
                              struct error *err);

// to (n, n_head, width) = from (n_head, n, width)
bool heads_to_rows_launch(const struct queue *q, const float *from, uint32_t n_head, uint32_t n,
                          uint32_t width, float *to, struct error *err);

// ---- latent_heads.cu ---------------------------------------------------------------------------

// Keys or values that heads have of their own, of positions [0, n_position) of the sequence that
// *rows is of: to (blocks of positions in order, to.n_head), each w c times factor, saturated, and
// behind these keys what the latent has that is rotated, times rotated_factor. c: the first n_kv
// numbers of a row of cache, in float16.
struct latent_heads {
    struct kv_plane cache, to;
    const struct seq_row *rows;
    const uint32_t *tables;
    uint32_t max_blocks;
    uint32_t n_position, n_kv;
    // The first head's matrix in float16, as dequant_launch leaves it, and how many of its rows
    // there are from one head to the next. turned: its rows are the latent's numbers, else the
    // head's.
    const __half *w;
    uint32_t ld, rows_of_head;
    bool turned;
    uint32_t n, n_rotated; // numbers of the head, then those that follow
    float factor, rotated_factor;
};
bool latent_expand_launch(const struct queue *q, const struct latent_heads *h, struct error *err);
// query (n, n_head, width): l's queries of heads head0 and up, times temperature and scale, with
// zeros behind them.
bool latent_heads_query_launch(const struct queue *q, const struct latent_rows *l, uint32_t head0,
                               uint32_t n_head, float scale, __half *query, uint32_t width,
                               struct error *err);
// Whether a device has room for these kernels' blocks.
bool latent_heads_fit(size_t smem_max);

// ---- gemm.cu -------------------------------------------------------------------------------

// y (n, ld) = beta * y + alpha * x W^T for many columns: W is dequantised to float16 in pieces that
// stay in the L2 cache and multiplied by cuBLAS; float32 weights stay float32. x (n,
// gemm_ld(n_cols)) as act_launch's f16, whose scale is not undone, or, for float32 weights, f32.
bool gemm_launch(const struct queue *q, const struct wmat *w, const void *x, uint32_t n, float *y,
                 uint32_t ld, float alpha, float beta, void *tile, size_t tile_bytes,
                 struct error *err);

// Row stride, in elements, of a product's operands for n_cols columns.
static inline uint32_t gemm_ld(uint32_t n_cols)
{
    return (n_cols + 7) / 8 * 8;
}

// ---- gemm_hopper.cu: the same without cuBLAS, on devices of compute capability 9.0 ------------

enum {
    GEMM_PACK_COLS = 128, // packed activations are padded with zeros to a multiple of this
};

// Packed activations have room for a multiple of eight rows.
static inline __host__ __device__ uint32_t gemm_pack_rows(uint32_t n)
{
    return (n + 7) / 8 * 8;
}

static inline size_t gemm_pack_bytes(uint32_t n, uint32_t n_cols)
{
    return (size_t)gemm_pack_rows(n) * ((n_cols + GEMM_PACK_COLS - 1) / GEMM_PACK_COLS) *
           GEMM_PACK_COLS * 2;
}

// Scales of rows are read for whole tiles.
static inline uint32_t gemm_undo_room(uint32_t n)
{
    return (n + 255) / 256 * 256;
}

// Where element col of row i of n is, in halves; an element that is even in steps of four, or one
// more, and the one after the next are neighbours. Of four neighbours the first and the third, then
// the others: so put, element 32 t + 2 p + e of 128 goes to place 8 p + 2 t + e (see
// gemm_hopper.cuh); 64 places of all rows lie together, and a row's eight pieces of 16 bytes in the
// order that shared memory wants.
static inline __host__ __device__ size_t gemm_pack_at(uint32_t n, uint32_t i, uint32_t col)
{
    col = col / 4 * 4 + col % 2 * 2 + col % 4 / 2;
    const uint32_t t = col % 128 / 32, p = col % 32 / 2;
    size_t row = (size_t)(2 * (col / 128) + p / 8) * gemm_pack_rows(n) + i;
    return row * 64 + ((p ^ i) % 8) * 8 + 2 * t + col % 2;
}

// Whether one launch takes both: their weights may become float16 with the same scale, and so may
// their products.
static inline bool same_range(const struct wmat *a, const struct wmat *b)
{
    float r = a->half_scale / b->half_scale;
    return a->type == b->type && a->scale == b->scale && !(r > 256.0f) && !(r < 1.0f / 256.0f);
}

// Up to three matrices of one type, but float32, times the same n columns. The weights become
// float16 with the smallest half_scale of them all.
struct gemm {
    struct wmat w[MATVEC_MAX_PARTS];     // same n_cols and type
    const float *bias[MATVEC_MAX_PARTS]; // (rows), NULL: none
    float *y[MATVEC_MAX_PARTS];          // (n, rows)
    uint32_t n_part;
    enum matvec_mode mode;
    enum activation act; // as in matvec
    float scale;         // as in matvec
    uint32_t n;
    const __half *x;       // (n, n_cols) packed
    const float *undo;     // (gemm_undo_room(n)) of the rows of x, see act_f16
    __half *out;           // MATVEC_GATED: (n, rows) packed, instead of y
    const float *undo_out; // (gemm_undo_room(n)) of the rows of out
    float *partial;        // scratch: sizes by gemm_scratch
    uint32_t *counters;    // zero before the first use; left zero
    bool long_chunks;      // gemm_few: those of gemm_hopper instead, whose bits products then have
    bool alone;            // no other matrix has this input, however many columns there are
    uint32_t n_other;      // gemm_few: of the last parts, of another type: see gemm_few_takes_both
    // gemm_few, n <= GEMM_FEW: the next launch follows this one, with the same x: it begins when
    // that is complete, and works beside this one.
    bool leads, follows;
};

bool gemm_hopper_launch(const struct queue *q, const struct gemm *g, struct error *err);

// ---- gemm_few.cu: the same for few columns, or GEMM_FEW after GEMM_FEW, which come and go in
// another order, on every device. A column's results depend on nothing but itself and the weights.

enum { GEMM_FEW = 64 };

// Tiles of eight columns that a product of n <= GEMM_FEW has.
static inline __host__ __device__ uint32_t gemm_few_tiles(uint32_t n)
{
    return n <= 32 ? (n + 7) / 8 : 8;
}

// Where element col of n_cols of column i of n is, in halves. Of 128, lane 4 * (i % 8) + t of a
// warp has elements 32 t and up, in two pieces of eight for each half of them.
static inline __host__ __device__ size_t gemm_few_at(uint32_t n, uint32_t i, uint32_t col,
                                                     uint32_t n_cols)
{
    const uint32_t group = i / GEMM_FEW, rest = n - group * GEMM_FEW;
    const uint32_t n_tile = gemm_few_tiles(rest < GEMM_FEW ? rest : (uint32_t)GEMM_FEW);
    const uint32_t n_step = (n_cols + GEMM_PACK_COLS - 1) / GEMM_PACK_COLS;
    // of four neighbours the first and the third, then the others
    const uint32_t e = col % 128, half = e % 32 / 16, k = e % 16 / 4 * 4 + e % 2 * 2 + e % 4 / 2;
    const size_t tile = (col / 128 * 2 + half) * n_tile + i % GEMM_FEW / 8;
    return (size_t)group * GEMM_FEW * n_step * GEMM_PACK_COLS +
           ((tile * 2 + k / 8) * 32 + i % 8 * 4 + e / 32) * 8 + k % 8;
}

static inline size_t gemm_few_bytes(uint32_t n, uint32_t n_cols)
{
    return gemm_pack_bytes((n + GEMM_FEW - 1) / GEMM_FEW * GEMM_FEW, n_cols);
}

bool gemm_few_launch(const struct queue *q, const struct gemm *g, struct error *err);
// Whether one launch takes matrices like a and, behind them, others like b.
bool gemm_few_takes_both(const struct wmat *a, const struct wmat *b, uint32_t n);

// ---- gemm_wide.cu: the same bits as gemm_few.cu, faster for many columns, on devices of compute
// capability 9.0.

enum {
    GEMM_CHUNKS = 8, // of a row, at most: the products of each are summed up by a matrix unit
    GEMM_KEPT = 4, // of gemm_hopper.cu: that a block has of a tile that another one begins, at most
};

bool gemm_wide_launch(const struct queue *q, const struct gemm *g, struct error *err);
size_t gemm_wide_partial(int n_sm); // bytes of gemm.partial, as gemm_scratch says for the others

struct gemm_scratch {
    size_t partial, counters; // bytes
};
void gemm_scratch(int n_sm, struct gemm_scratch *out);

// ---- exchange.cu: between the ranks of a model that is on several devices --------------------

struct exchange_state {
    uint32_t epoch; // of the next launch: begins as 1
    uint32_t n_ended;
};

// Of all ranks, in pinned memory: what they and the host tell each other.
struct exchange_words {
    uint32_t stop;
    uint32_t waits_for[MODEL_MAX_RANKS]; // 1 + whom a rank has waited for a while for; 0: nobody
};

// Numbers of a span, behind which there is a word that says that they have arrived.
#ifdef HOKKU_CUDA_ON_CPU
enum { EXCHANGE_SPAN = 160 };
#else
enum { EXCHANGE_SPAN = 16384 };
#endif

// All ranks make the same launches with one, in the same order; else they wait for each other until
// words->stop is not zero, and what they compute from then on is nothing.
struct exchange {
    uint32_t rank, n_rank;
    // Of each rank, zeros first: packets (2, n_rank, room), numbers (2, n_rank, n_span,
    // EXCHANGE_SPAN), words (2, n_rank, n_span): in its memory, or where devices do not reach each
    // other's in pinned memory of the host.
    uint64_t *inbox[MODEL_MAX_RANKS];
    uint32_t room;                // packets that a launch exchanges; a longer row takes several
    uint32_t n_span;              // spans that a launch exchanges
    uint32_t n_link;              // so many numbers and more go in spans
    struct exchange_state *state; // in the memory of this one
    struct exchange_words *words;
    uint32_t head[MODEL_MAX_RANKS + 1]; // see split_head
};

// What the spans of an epoch and a rank take in units of eight bytes.
static inline __host__ __device__ size_t exchange_eights(const struct exchange &x)
{
    return (size_t)x.n_span * (EXCHANGE_SPAN / 2);
}

// What the inbox of a rank takes in units of eight bytes: of `x` n_rank, room and n_span.
static inline size_t exchange_inbox(const struct exchange &x)
{
    return (size_t)2 * x.n_rank * (x.room + exchange_eights(x) + x.n_span);
}

// y (n, n_cols) = scale (0: 1) * the sum of the ranks' parts (n, n_cols) + bias (n_cols), or all of
// it added to y. The sum is that in the order of ranks. bias NULL: none. part may be y.
struct rank_sum {
    const float *part, *bias;
    float scale;
    bool add;
    float *y;
    uint32_t n_cols;
    const uint32_t *skip;
};
bool sum_ranks_launch(const struct queue *q, const struct exchange *x, const struct rank_sum *s,
                      uint32_t n, struct error *err);

// Rows that each rank has a part of, normed over all of them (RMS): x (n, n_cols), rows ld apart,
// of rows that are n_whole long, times w (n_cols). Up to two such at once.
struct rank_norm {
    struct {
        float *x;
        const float *w;
        uint32_t ld, n_cols, n_whole;
    } part[2];
    uint32_t n_part;
    float eps;
    const uint32_t *skip;
};
bool norm_ranks_launch(const struct queue *q, const struct exchange *x, const struct rank_norm *s,
                       uint32_t n, struct error *err);

// y (n, n_vocab) = the ranks' parts (n, rows of its head), one behind the other.
bool gather_ranks_launch(const struct queue *q, const struct exchange *x, const float *part,
                         uint32_t n, float *y, const uint32_t *skip, struct error *err);

#endif
