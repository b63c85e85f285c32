// The CPU engine's own parts: what an opened engine holds, and how they are laid out.
#ifndef HOKKU_CPU_CPU_H
#define HOKKU_CPU_CPU_H

#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "engine/backend.h"
#include "engine/finite.h"
#include "engine/profile.h"

struct kv_cache {
    struct cpu_kv_layer *layers; // owned, n_layer
    size_t n_layer;
    size_t position_bytes; // of one position in all layers, exported
    void *memory;          // owned
    size_t n_bytes;
};

// How the engine stores what the user calls f16 or q8_0 (see enum cpu_kv).
enum cpu_kv cpu_kv_key_type(const struct model *m, enum kv_type type);
enum cpu_kv cpu_kv_value_type(enum kv_type type);

// Memory for n_ctx positions, in whole blocks of CPU_ATTN_SPLIT: what attention takes in one go is
// one block. SIZE_MAX when the product overflows.
size_t kv_cache_bytes(const struct model *m, enum kv_type k, enum kv_type v, uint32_t n_ctx);
bool kv_cache_init(struct kv_cache *kv, const struct model *m, enum kv_type k, enum kv_type v,
                   uint32_t n_ctx, struct error *err);
void kv_cache_release(struct kv_cache *kv);
// Bytes of one position of one layer, exported.
size_t kv_position_bytes(const struct cpu_kv_layer *l);
// Positions of a sequence whose table is blocks, one after the other; of each, layer by layer, the
// keys of all heads, then the values.
size_t kv_cache_export_bytes(const struct kv_cache *kv, size_t begin, size_t end);
void kv_cache_export(const struct kv_cache *kv, const uint32_t *blocks, size_t begin, size_t end,
                     void *dst);
void kv_cache_import(const struct kv_cache *kv, const uint32_t *blocks, size_t begin, size_t end,
                     const void *src);
// The first n positions of a block to another.
void kv_cache_copy(const struct kv_cache *kv, uint32_t from, uint32_t to, size_t n);

// Where position pos of a sequence lies in the cache.
static inline size_t kv_cache_at(const uint32_t *blocks, size_t pos)
{
    return (size_t)blocks[pos / CPU_ATTN_SPLIT] * CPU_ATTN_SPLIT + pos % CPU_ATTN_SPLIT;
}

// The times of the steps of one evaluation, for backend.profile.
struct cpu_marks {
    struct profile_launch *launches; // (max)
    double *seconds;                 // (max)
    size_t n, max;                   // n counts on beyond max
    double last;                     // when the step before ended
};

// Which rows of a chunk go to which experts.
struct cpu_routing {
    float *logits, *score; // (n, n_expert)
    uint8_t *state;        // (n, n_expert)
    float *shared;         // (n) the shared expert's logits
    uint32_t *chosen;      // (n, n_expert_used), ascending
    float *weight;         // (n, n_expert_used)
    uint32_t *active;      // (n_expert) those that have rows
    uint32_t *first;       // (n_expert + 1) places of an expert's first rows, and the end
    uint32_t *place;       // (n, n_expert_used) of a choice among the rows sorted by expert
    uint32_t *pair;        // (n * n_expert_used) the index in chosen of the row at a place
};

enum { LOGIT_ROWS = 8 }; // rows of logits computed at a time when all are wanted

// Rows of a chunk that follow one another in one sequence.
struct cpu_part {
    const struct seq *seq;
    const int32_t *ids; // (n)
    size_t pos;         // of the first in its sequence
    size_t first, n;    // rows of the chunk
};

struct cpu_engine {
    struct engine base;
    struct engine_core core;
    const struct cpu_kernels *kernels;
    struct pool *pool;
    struct kv_cache kv;

    // Of the call under way.
    struct cpu_part parts[ENGINE_MAX_PARTS];
    size_t n_parts;
    const struct cancel *cancel;

    // Scratch, carved from one mapping; tokens of one chunk: n <= n_batch.
    void *scratch;
    size_t scratch_bytes;
    size_t head_dim_pad; // rounded up to 16
    struct cpu_rope {
        float *freq;    // (n_dim / 2)
        float *cos_sin; // (n, n_dim / 2, 2) of the chunk
        float magnitude;
    } ropes[MODEL_MAX_ROPES];   // as model.ropes
    uint16_t *part_of;          // (n) the part of each row
    float *x;                   // (n, n_embd) the residual stream
    float *branch;              // (n, n_embd) what is added to it, where that is normed or scaled
    float *q, *k, *v;           // (n, n_head * head_dim), (n, n_head_kv * head_dim) x 2
    float *up;                  // (n, n_ff), as gate for expert_rows, too
    struct cpu_act normed;      // (n, n_embd)
    struct cpu_act attn_out;    // (n, n_head * head_dim)
    struct cpu_act gate;        // (n, n_ff)
    struct cpu_routing routing; // where the model has experts, as the next two
    struct cpu_act expert_in;   // (expert_rows, n_embd)
    float *expert_out;          // (expert_rows, n_embd)
    size_t expert_rows;         // that experts take in one turn: at least n, and one token's
    struct cpu_act hidden;      // (n, n_embd) normed outputs of the last layer, for the head
    float *attn_parts;          // numerators: per thread 2 x 8 rows, or per head and split one row
    struct cpu_attn_part *split_parts; // (n_head, splits of the context)
    float *logits;                     // (LOGIT_ROWS, n_vocab)

    struct cpu_marks *marks;      // NULL: nothing is timed
    struct finite_search *search; // NULL: no step's result is looked at

    // What the last eval left.
    size_t n_hidden;     // rows of hidden
    size_t logits_first; // hidden row of logits row 0
    size_t n_logits;     // rows of logits computed, 0 = none

    struct sampler sampler; // with the settings of the last pick
    uint32_t *allow;        // owned: of masked picks; NULL: there was none yet
};

// The chunk of the next pass: n tokens of s at pos.
void cpu_work_on(struct cpu_engine *e, const struct seq *s, size_t pos, const int32_t *ids,
                 size_t n, const struct cancel *cancel);
// The same for parts of several sequences, whose n rows together are at most n_batch.
void cpu_work_on_parts(struct cpu_engine *e, const struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel);

// The forward pass over the chunk; leaves the normed outputs of the last layer in hidden: of every
// row (of one part), or of the last row of each part, or none. False when cancelled.
bool cpu_forward(struct cpu_engine *e, enum engine_logits want);
// Logits of hidden rows [first, first + n), n <= LOGIT_ROWS. False when cancelled.
bool cpu_head(struct cpu_engine *e, size_t first, size_t n);

// Ends a step that worked on what (see engine_kernel), for e->marks and e->search. Always true.
bool cpu_mark(struct cpu_engine *e, const char *kernel, const char *what);
bool cpu_profile(struct engine *base, const struct seq *s, const int32_t *tokens, size_t n,
                 uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                 struct error *err); // backend.profile

// Sizes of everything in the scratch mapping; with e != NULL also carves base (zeroed) into e.
// SIZE_MAX when it overflows.
size_t cpu_scratch_layout(const struct model *m, uint32_t n_ctx, uint32_t n_batch, int n_threads,
                          struct cpu_engine *e, void *base);

// As cpu_engine_open, with the instruction set named: for tests. ERR_FAIL when the machine lacks
// it.
struct engine *cpu_engine_open_isa(const struct model *m, const struct engine_params *p,
                                   enum cpu_isa isa, struct error *err);

#endif
