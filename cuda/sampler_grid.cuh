// What the blocks of the sampling kernel share: its arguments, the state that lasts from pick to
// pick, barriers and reductions over the grid.
#ifndef HOKKU_CUDA_SAMPLER_GRID_CUH
#define HOKKU_CUDA_SAMPLER_GRID_CUH

#include "block.cuh"
#include "engine/sampler.h"
#include "sampler.cuh"

enum {
    THREADS = 512, // per block
    SMALL = 1024,  // candidates that one block handles in shared memory
    BINS = 2048,   // of a histogram: 11 bits of a position
    GROUP = 64,    // tokens that share one entry of maxima
    LISTED = 4096, // groups that are looked through at a time
    MAX_BLOCKS = 160,
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
    bool greedy, penalties, dry, masked;
};

// Zero before the first pick; each pick leaves it ready for the next.
struct sampler_scratch {
    uint32_t arrived;    // blocks at barriers, since the beginning
    uint32_t epoch;      // what it was when this pick began
    uint32_t n_pass;     // histogram passes, since the beginning
    uint32_t not_finite; // ~id of the first token with such a logit; 0: none
    uint32_t n_list;
    uint64_t list[SMALL];
    uint64_t part[2][MAX_BLOCKS][MAX_PARTS]; // of even and odd barriers
    // Of the pass under way, the previous one, and the next one (already zero).
    uint32_t bin_count[3][BINS];
    uint64_t bin_mass[3][BINS];
    // For ln sum exp, by block: its largest logit, and the sum of exp(logit - that one).
    double largest[MAX_BLOCKS], sum_exp[MAX_BLOCKS];
};

struct sampler_args {
    const float *logits; // (n_vocab), 16-byte aligned
    uint32_t n_vocab, slice_len;
    struct gpu_sampler g;
    struct step_state *step;
};

// Shared memory of a block, besides its slice of the logits.
struct block_memory {
    struct sampler_config config;
    struct block_sums<THREADS> sums;
    uint64_t keys[SMALL];
    union {
        struct {
            uint32_t count[BINS], mass_low[BINS], mass_high[BINS]; // mass = high * 2^16 + low
        } bins;
        uint32_t group[LISTED];
        uint64_t distance[SMALL];
    };
    uint32_t n_listed, n_found;
    struct {
        uint32_t digit, n_above, n_in;
        uint64_t mass_above;
    } found;
    uint64_t value; // one result for all threads
    bool last;
    // The pick.
    uint32_t id, failed;
};

// One pick, as each thread sees it. The block owns the tokens [first, first + len): their logits,
// after the edits so far, are slice[0 .. len); NaN marks a token that a filter removed.
struct run {
    const struct sampler_args *a;
    const struct sampler_config *c;
    struct sampler_scratch *s;
    struct block_memory *m;
    float *slice; // 16-byte aligned
    uint32_t first, len, n_blocks;
    uint32_t n;         // candidates left, over all blocks
    uint32_t n_history; // the position that is sampled
    uint32_t epoch, n_barriers, n_pass;
    float max; // of the candidates
    bool max_known;
    bool touched; // slices may differ from the logits as they came
};

// Waits for all blocks; what they wrote before is visible after. Only blocks of a cooperative
// launch may: others wait for ever where another program has taken the room of those that are
// missing.
static __device__ void grid_barrier(struct run *r)
{
    r->n_barriers++;
    __syncthreads();
    if (r->n_blocks == 1)
        return;
    if (!r->a->g.waits)
        __trap(); // sampler_waits() is wrong
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&r->s->arrived, 1u);
        uint32_t target = r->epoch + r->n_barriers * r->n_blocks;
        while ((int32_t)(ld_acquire_gpu(&r->s->arrived) - target) < 0) {
        }
    }
    __syncthreads();
}

// In place of the last barrier: true in the block that comes last, which sees what all others
// wrote and goes on alone; the others have nothing more to do.
static __device__ bool grid_last(struct run *r)
{
    r->n_barriers++;
    __syncthreads();
    if (r->n_blocks == 1)
        return true;
    if (threadIdx.x == 0) {
        __threadfence();
        uint32_t before = atomicAdd(&r->s->arrived, 1u);
        r->m->last = before + 1 == r->epoch + r->n_barriers * r->n_blocks;
        __threadfence();
    }
    __syncthreads();
    return r->m->last;
}

// What another block wrote before the last barrier (past the first-level cache).
static __device__ uint64_t load_other(const uint64_t *p)
{
    return (uint64_t)__ldcg((const unsigned long long *)p);
}

// Combines v[i] with OP[i] over all threads of all blocks, in a fixed order of blocks. Every block
// gets the result and returns true; with LAST only the last one, and the others are done.
template <bool LAST, enum reduction... OP>
static __device__ NOINLINE bool grid_reduce(struct run *r, uint64_t (&v)[sizeof...(OP)])
{
    constexpr enum reduction op[] = {OP...};
    constexpr int N = sizeof...(OP);
    static_assert(N <= MAX_PARTS, "room in sampler_scratch.part");
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = team_reduce<THREADS>(v[i], &r->m->sums, op[i]);
    if (r->n_blocks == 1)
        return true;
    uint64_t(*part)[MAX_PARTS] = r->s->part[r->n_barriers & 1];
    if (threadIdx.x == 0)
        for (int i = 0; i < N; i++)
            part[blockIdx.x][i] = v[i];
    if (!LAST)
        grid_barrier(r);
    else if (!grid_last(r))
        return false;
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint64_t all = 0;
#pragma unroll
        for (uint32_t b = threadIdx.x % WARP; b < MAX_BLOCKS; b += WARP)
            all = combine(op[i], all, b < r->n_blocks ? load_other(&part[b][i]) : 0);
        v[i] = warp_reduce(all, op[i]);
    }
    return true;
}

static __device__ uint64_t grid_sum(struct run *r, uint64_t v)
{
    uint64_t vs[1] = {v};
    grid_reduce<false, SUM>(r, vs);
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

// Logits 4 q .. 4 q + 3 of n; NaN after the end.
static __device__ float4 load_quad(const float *logits, uint32_t n, uint32_t q)
{
    if (q * 4 + 3 < n)
        return reinterpret_cast<const float4 *>(logits)[q];
    const float *l = logits + q * 4;
    return make_float4(q * 4 < n ? l[0] : NAN, q * 4 + 1 < n ? l[1] : NAN,
                       q * 4 + 2 < n ? l[2] : NAN, NAN);
}

#endif
