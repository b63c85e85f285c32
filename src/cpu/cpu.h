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
    size_t position_bytes[2]; // of one position in all layers that are not near, or are, exported
    bool apart;               // near layers have fewer blocks than others
    void *memory;             // owned
    size_t n_bytes;
};

// How the engine stores what the user calls f16 or q8_0 (see enum cpu_kv).
enum cpu_kv cpu_kv_key_type(const struct model *m, enum kv_type type);
enum cpu_kv cpu_kv_value_type(enum kv_type type);

// Memory for so many blocks of CPU_ATTN_SPLIT positions, which is what attention takes in one go,
// in near layers for n_near. SIZE_MAX when the product overflows.
size_t kv_cache_bytes(const struct model *m, enum kv_type k, enum kv_type v, uint32_t n_blocks,
                      uint32_t n_near);
bool kv_cache_init(struct kv_cache *kv, const struct model *m, enum kv_type k, enum kv_type v,
                   uint32_t n_blocks, uint32_t n_near, struct error *err);
void kv_cache_release(struct kv_cache *kv);
// Bytes of one position of one layer, exported.
size_t kv_position_bytes(const struct cpu_kv_layer *l);
// Positions of a sequence whose table is blocks, one after the other; of each, layer by layer, near
// ones or others, the keys of all heads, then the values.
size_t kv_cache_export_bytes(const struct kv_cache *kv, bool near, size_t begin, size_t end);
void kv_cache_export(const struct kv_cache *kv, const uint32_t *blocks, bool near, size_t begin,
                     size_t end, void *dst);
void kv_cache_import(const struct kv_cache *kv, const uint32_t *blocks, bool near, size_t begin,
                     size_t end, const void *src);
// The first n positions of a block to another, as backend.kv_copy.
void kv_cache_copy(const struct kv_cache *kv, bool near, uint32_t from, uint32_t to, size_t n);

// The table of a sequence for a layer; and where position pos lies in the cache.
static inline const uint32_t *kv_cache_blocks(const struct seq *s, const struct cpu_kv_layer *l)
{
    return l->near ? s->near : s->blocks;
}

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

// Of latent attention (struct latent in model/model.h).
struct cpu_latent {
    struct cpu_act q_low; // (n, n_q)
    float *q;             // (n, n_head, n_key + rotated)
    struct cpu_act key;   // (n_head, n, n_key) the queries' parts that are not rotated
    struct cpu_act sum;   // (n_head, n, n_kv) of weights * c
};

// Of gated delta nets (struct delta in model/model.h).
struct cpu_delta {
    float *in, *mixed; // (n, channels) of the convolution, and what it gives
    float *z;          // (n, n_head * n_state) gates
    float *ba;         // (n, 2 * n_head) of beta and alpha
};

// Of state spaces (struct ssm in model/model.h).
struct cpu_ssm {
    float *in;    // (n, n_inner + channels + n_head) gates, what is convolved, and steps
    float *mixed; // (n, channels)
};

// Of streams beside the residual one (struct layer in model/model.h).
struct cpu_altup {
    float *side;      // (n_side, n_batch, n_embd)
    float *predicted; // (n, n_embd) what is predicted of the residual stream
};

// Of experts that work on a latent (struct experts in model/model.h).
struct cpu_expert_latent {
    struct cpu_act in, sum; // (n, n_latent)
};

// The recurrent states of sequences: n slots and one that is never read, each with the states of
// all layers, one after the other.
struct cpu_states {
    float *base; // owned
    size_t stride, n, n_bytes;
};

// How many slots an engine has for this model, and their bytes.
uint32_t cpu_n_states(const struct model *m);
size_t cpu_states_bytes(const struct model *m);

enum { LOGIT_ROWS = 8 }; // rows of logits computed at a time when all are wanted

// Rows of a chunk that follow one another in one sequence.
struct cpu_part {
    const struct seq *seq;
    const int32_t *ids; // (n)
    size_t pos;         // of the first in its sequence
    size_t first, n;    // rows of the chunk
    // Of the last so many something may be sampled: their places among all parts' such rows.
    size_t first_last, n_last;
};

struct cpu_engine {
    struct engine base;
    struct engine_core core;
    const struct cpu_kernels *kernels;
    struct pool *pool;
    struct kv_cache kv;
    struct cpu_states states;

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
    } ropes[MODEL_MAX_ROPES]; // as model.ropes
    uint16_t *part_of;        // (n) the part of each row
    float *x;                 // (n, n_embd) the residual stream
    float *branch;            // (n, n_embd) what is added to it, where that is normed or scaled
    float *beside;            // (n, n_embd) the plain network's, in layers with experts beside it;
                              // and what ffn_norm gives in parallel layers that have one
    struct cpu_altup altup;
    float *told;             // (n, n_layer * n_embd_layer) what layers are told of each token
    float *q, *k, *v;        // (n, n_head * head_dim), (n, n_head_kv * head_dim) x 2
    float *up;               // (n, n_ff), as gate for expert_rows, too
    struct cpu_act joined;   // (n, 2 * n_embd) of a prediction layer
    struct cpu_act normed;   // (n, n_embd)
    struct cpu_act attn_out; // (n, what the heads give)
    struct cpu_latent latent;
    struct cpu_delta delta;
    struct cpu_ssm ssm;
    float *conv_in;             // (n, 3 * n_embd) of short convolutions
    float *q_gated;             // (n, n_head, 2 * head_dim) queries beside what silences the head
    struct cpu_act gate;        // (n, n_ff)
    struct cpu_routing routing; // where the model has experts, as the next three
    struct cpu_expert_latent expert_latent;
    struct cpu_act expert_in; // (expert_rows, n_embd or n_latent)
    float *expert_out;        // (expert_rows, n_embd or n_latent)
    size_t expert_rows;       // that experts take in one turn: at least n, and one token's
    struct cpu_act hidden;    // (n, n_embd) normed outputs of the last layer, for the head
    float *attn_parts;        // numerators: per thread 2 x 8 rows, or per head and split one row
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
// row (of one part), or of the last n_last rows of each part, or none. False when cancelled.
bool cpu_forward(struct cpu_engine *e, enum engine_logits want);
// Logits of hidden rows [first, first + n), n <= LOGIT_ROWS. False when cancelled.
bool cpu_head(struct cpu_engine *e, size_t first, size_t n);

// Ends a step that worked on what (see engine_kernel), for e->marks and e->search. Always true.
bool cpu_mark(struct cpu_engine *e, const char *kernel, const char *what);
// backend.hidden
bool cpu_hidden(struct engine *base, size_t row, size_t n, float *out, struct error *err);
bool cpu_profile(struct engine *base, const struct seq *s, const int32_t *tokens, size_t n,
                 uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                 struct error *err); // backend.profile
bool cpu_profile_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                       uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                       struct error *err); // backend.profile_parts
// backend.eval_parts
bool cpu_eval_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                    const struct cancel *cancel, struct error *err);

// Sizes of everything in the scratch mapping, which is carved from base (zeroed) into e; base NULL:
// they are only counted, and e has NULLs there. SIZE_MAX when it overflows.
size_t cpu_scratch_layout(const struct model *m, uint32_t n_ctx, uint32_t n_batch, int n_threads,
                          struct cpu_engine *e, void *base);

// As cpu_engine_open, with the instruction set named: for tests. ERR_FAIL when the machine lacks
// it.
struct engine *cpu_engine_open_isa(const struct model *m, const struct engine_params *p,
                                   enum cpu_isa isa, struct error *err);

#endif
