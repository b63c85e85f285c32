// What the blocks of the sampling kernel share: its arguments, the state that lasts from pick to
// pick, barriers and reductions over the grid.
#ifndef HOKKU_CUDA_SAMPLER_GRID_CUH
#define HOKKU_CUDA_SAMPLER_GRID_CUH

#include "block.cuh"
#include "engine/sampler.h"
#include "sampler.cuh"

enum {
    THREADS = 512,     // per block
    SMALL = 1024,      // candidates that one block handles in shared memory
    BINS = 2048,       // of a histogram: 11 bits of a position
    MAX_BLOCKS = 128,  // all resident at once
    MAX_PARTS = 4,     // numbers that a reduction combines
    SLICE_MAX = 32768, // tokens per block
};

enum { TOKEN_BREAKER = 1, TOKEN_STOP = 2 };

// Fixed between two calls of gpu_sampler_begin.
struct sampler_config {
    struct sampler_settings set;
    float log_min_p;  // by the host's logf, like the CPU sampler
    uint32_t dry_cap; // longer repetitions are penalised no more than this one
    uint32_t n_probs;
    bool greedy, penalties, dry;
};

// Zero before the first pick; each pick leaves it ready for the next.
struct sampler_scratch {
    uint32_t arrived; // blocks at barriers, since the beginning
    uint32_t epoch;   // what it was when this pick began
    uint32_t n_pass;  // histogram passes, since the beginning
    uint32_t n_list;
    uint64_t list[SMALL];
    uint64_t part[2][MAX_BLOCKS][MAX_PARTS]; // of even and odd barriers
    // Of the pass under way, the previous one, and the next one (already zero).
    uint32_t bin_count[3][BINS];
    uint64_t bin_mass[3][BINS];
    // The alternatives to report: from the logits as they come.
    uint32_t n_top;
    double log_sum_exp;
    struct token_prob top[ENGINE_MAX_PROBS];
};

struct sampler_args {
    const float *logits; // (n_vocab)
    uint32_t n_vocab, slice_len;
    const struct sampler_config *c;
    struct sampler_scratch *s;
    int32_t *history;
    uint32_t *count;
    const uint8_t *flags;
    struct step_state *step;
    struct ring_slot *ring;
};

// Shared memory of a block, besides its slice of the logits.
struct block_memory {
    struct block_sums<THREADS> sums;
    uint64_t keys[SMALL];
    uint64_t mass[BINS];
    uint32_t count[BINS];
    uint64_t value; // one result for all threads
    uint32_t index;
    struct {
        uint32_t digit, n_above, n_in;
        uint64_t mass_above;
    } found;
};

// One pick, as each thread sees it. The block owns the tokens [first, first + len): their logits,
// after the edits so far, are slice[0 .. len); NaN marks a token that a filter removed.
struct run {
    const struct sampler_args *a;
    const struct sampler_config *c;
    struct block_memory *m;
    float *slice;
    uint32_t first, len;
    uint32_t n;         // candidates left, over all blocks
    uint32_t n_history; // the position that is sampled
    uint32_t epoch, n_barriers, n_pass;
    uint64_t not_finite; // a key above all others if this thread saw such a logit
    float max;           // of the candidates
    bool max_known;
};

// Waits for all blocks; what they wrote before is visible after.
static __device__ void grid_barrier(struct run *r)
{
    r->n_barriers++;
    __syncthreads();
    if (gridDim.x == 1)
        return;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&r->a->s->arrived, 1u);
        uint32_t target = r->epoch + r->n_barriers * gridDim.x;
        while ((int32_t)(ld_acquire_gpu(&r->a->s->arrived) - target) < 0) {
        }
    }
    __syncthreads();
}

// As grid_barrier, for a block that has nothing more to do: it does not wait, and must not come to
// another barrier.
static __device__ void grid_leave(struct run *r)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&r->a->s->arrived, 1u);
    }
}

// What another block wrote before the last barrier (past the first-level cache).
static __device__ uint64_t load_other(const uint64_t *p)
{
    return (uint64_t)__ldcg((const unsigned long long *)p);
}

// Combines v[i] with op[i] over all threads of all blocks, in a fixed order of blocks.
template <int N>
static __device__ NOINLINE void grid_reduce(struct run *r, uint64_t (&v)[N],
                                            const enum reduction (&op)[N])
{
    static_assert(N <= MAX_PARTS, "room in sampler_scratch.part");
    for (int i = 0; i < N; i++)
        v[i] = block_reduce(v[i], &r->m->sums, op[i]);
    if (gridDim.x == 1)
        return;
    uint64_t(*part)[MAX_PARTS] = r->a->s->part[r->n_barriers & 1];
    if (threadIdx.x == 0)
        for (int i = 0; i < N; i++)
            part[blockIdx.x][i] = v[i];
    grid_barrier(r);
    for (int i = 0; i < N; i++) {
        uint64_t all = 0;
        for (uint32_t b = threadIdx.x % WARP; b < gridDim.x; b += WARP)
            all = combine(op[i], all, load_other(&part[b][i]));
        v[i] = warp_reduce(all, op[i]);
    }
}

static __device__ NOINLINE uint64_t grid_reduce_one(struct run *r, uint64_t v, enum reduction op)
{
    uint64_t vs[1] = {v};
    grid_reduce(r, vs, {op});
    return vs[0];
}

static __device__ uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// The order of candidates: a larger key is an earlier candidate (higher logit, then lower id).
static __device__ uint32_t order_of(float logit)
{
    uint32_t u = __float_as_uint(logit + 0.0f); // -0 becomes +0
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static __device__ uint64_t key_of(float logit, uint32_t id)
{
    return (uint64_t)order_of(logit) << 32 | (uint32_t)~id;
}

static __device__ uint32_t key_id(uint64_t key)
{
    return ~(uint32_t)key;
}

static __device__ float key_logit(uint64_t key)
{
    uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u & 0x7FFFFFFFu : ~u);
}

// Descending order of the result is ascending order of ids.
static __device__ uint64_t key_by_id(uint64_t key)
{
    return key << 32 | key >> 32;
}

static __device__ bool present(float logit)
{
    return logit == logit;
}

#endif
