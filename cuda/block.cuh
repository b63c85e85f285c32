// Work that a team of threads does together: reductions, prefix sums, a sort. A team is the whole
// block (T threads), or its first warp alone (T == WARP): that one needs no barriers.
// Every function is called by all threads of the team and ends with a barrier where it must.
#ifndef HOKKU_CUDA_BLOCK_CUH
#define HOKKU_CUDA_BLOCK_CUH

#include "butterfly.cuh"
#include "cuda_common.cuh"

static const unsigned ALL_LANES = 0xFFFFFFFFu;

// What all lanes of a warp have, for the compiler to know it: what it does not know, it computes in
// vector registers, and a wgmma whose descriptors come from there waits for their way to uniform
// ones. So a loop that a warp leaves on such a value, and no other, is no place where lanes part.
[[maybe_unused]] static __device__ __forceinline__ uint32_t uniform(uint32_t v)
{
    return __shfl_sync(ALL_LANES, v, 0);
}

enum { SHARES = 16 };

// Of SHARES shares of work the one that warp w takes. Of k x SHARES + e pieces the shares w with
// floor((w + 1) e / SHARES) > floor(w e / SHARES) have one more, which for e = 4 are 3, 7, 11 and
// 15; and the warps w, w + 4, w + 8, ... have one of the multiprocessor's four schedulers.
static constexpr __host__ __device__ uint32_t share_of_warp(uint32_t w)
{
    return (uint32_t)(0xCEDF9BA875462031ull >> 4 * w) & 15;
}

// Whether no scheduler has more than its part of the e shares that have one more, and of the first
// e shares.
static constexpr bool shares_are_even(uint32_t e)
{
    uint32_t more[4] = {}, first[4] = {};
    bool even = true;
    for (uint32_t w = 0; w < SHARES; w++) {
        const uint32_t share = share_of_warp(w);
        more[w % 4] += (share + 1) * e / SHARES > share * e / SHARES;
        first[w % 4] += share < e;
    }
    for (int i = 0; i < 4; i++)
        even = even && more[i] <= (e + 3) / 4 && first[i] <= (e + 3) / 4;
    return even && (e == SHARES || shares_are_even(e + 1));
}
static_assert(shares_are_even(1), "whatever the number of pieces");

// use(i, get(i)) for i = first, first + STEP, ... below n. BATCH of them are under way at once: a
// loop that stops at n waits for each.
template <uint32_t BATCH, uint32_t STEP, typename G, typename U>
static __device__ __forceinline__ void for_each_of(uint32_t first, uint32_t n, G get, U use)
{
#pragma unroll 1
    for (uint32_t base = first; base < n; base += BATCH * STEP) {
        decltype(get(0u)) v[BATCH];
#pragma unroll
        for (uint32_t e = 0; e < BATCH; e++)
            if (base + e * STEP < n)
                v[e] = get(base + e * STEP);
#pragma unroll
        for (uint32_t e = 0; e < BATCH; e++)
            if (base + e * STEP < n)
                use(base + e * STEP, v[e]);
    }
}

// Shared memory for reductions of up to THREADS threads.
template <int THREADS> struct block_sums {
    uint64_t warp[THREADS / WARP];
};

// What a reduction combines with. The identity of all is 0.
enum reduction { SUM, LARGEST, SUM_DOUBLE }; // SUM_DOUBLE: the bits of doubles

template <int T> static __device__ __forceinline__ void team_sync()
{
    if (T == WARP)
        __syncwarp();
    else
        __syncthreads();
}

// The number of threads for which v holds.
template <int T> static __device__ __forceinline__ uint32_t team_count(bool v)
{
    return T == WARP ? (uint32_t)__popc(__ballot_sync(ALL_LANES, v))
                     : (uint32_t)__syncthreads_count(v);
}

static __device__ __forceinline__ uint64_t combine(enum reduction op, uint64_t a, uint64_t b)
{
    if (op == LARGEST)
        return a > b ? a : b;
    if (op == SUM)
        return a + b;
    return (uint64_t)__double_as_longlong(__longlong_as_double((long long)a) +
                                          __longlong_as_double((long long)b));
}

// Butterflies: the same order of operations every time, so that doubles may be summed too.
static __device__ __forceinline__ uint64_t warp_reduce(uint64_t v, enum reduction op)
{
    return over_lanes<WARP / 2, 1>(
        (unsigned long long)v,
        [op](unsigned long long &all, unsigned long long other) { all = combine(op, all, other); });
}

// The sum over a block of whole warps, in the same order every time; everyone gets it. part has a
// number for each warp, which nobody may still be reading.
static __device__ __forceinline__ float block_sum(float v, float *part)
{
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0.0f;
    for (uint32_t i = 0; i < blockDim.x / WARP; i++)
        v += part[i];
    return v;
}

// True for all threads of the last of n blocks to come here; what the others wrote to global memory
// before is visible then. The counter is left zero for the next launch. N_THREAD: the block's first
// threads, which come here alone; 0: all of them.
template <int N_THREAD = 0>
static __device__ __forceinline__ bool last_to_arrive(uint32_t *counter, uint32_t n)
{
    __shared__ uint32_t is_last;
    const auto meet = [] {
        if constexpr (N_THREAD > 0)
            barrier_sync(N_THREAD);
        else
            __syncthreads();
    };
    meet();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1u) == n - 1;
        if (is_last)
            *counter = 0;
        __threadfence();
    }
    meet();
    return is_last;
}

// The sum of v over lanes 0 .. this one.
static __device__ __forceinline__ uint64_t warp_scan(uint64_t v)
{
    for (unsigned o = 1; o < WARP; o <<= 1) {
        uint64_t below = (uint64_t)__shfl_up_sync(ALL_LANES, (unsigned long long)v, o);
        v += threadIdx.x % WARP >= o ? below : 0;
    }
    return v;
}

// Combines v over the team; everyone gets the result.
template <int T, int THREADS>
static __device__ __forceinline__ uint64_t team_reduce(uint64_t v, struct block_sums<THREADS> *m,
                                                       enum reduction op)
{
    v = warp_reduce(v, op);
    if (T == WARP)
        return v;
    __syncthreads(); // m may still be read by an earlier call
    if (threadIdx.x % WARP == 0)
        m->warp[threadIdx.x / WARP] = v;
    __syncthreads();
    v = threadIdx.x % WARP < T / WARP ? m->warp[threadIdx.x % WARP] : 0;
    return warp_reduce(v, op);
}

// The sum of v over threads 0 .. this one; *total: over the team.
template <int T, int THREADS>
static __device__ __forceinline__ uint64_t team_scan(uint64_t v, struct block_sums<THREADS> *m,
                                                     uint64_t *total)
{
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_scan(v);
    if (T == WARP) {
        *total = (uint64_t)__shfl_sync(ALL_LANES, (unsigned long long)v, WARP - 1);
        return v;
    }
    __syncthreads();
    if (lane == WARP - 1)
        m->warp[warp] = v;
    __syncthreads();
    uint64_t before = 0, all = 0;
    for (unsigned w = 0; w < T / WARP; w++) {
        before += w < warp ? m->warp[w] : 0;
        all += m->warp[w];
    }
    *total = all;
    return before + v;
}

// Sorts keys[0 .. n), which are distinct, in descending order. A block: bitonic sort (Batcher
// 1968); room for the next power of two is needed, and no key is 0. (A step of up to WARP exchanges
// within the 2 WARP keys of a warp.) A warp, with at most two keys per lane: each key's place is
// the number of larger ones.
template <int T> static __device__ NOINLINE void team_sort_descending(uint64_t *keys, uint32_t n)
{
    if (T == WARP) {
        uint32_t a = threadIdx.x, b = a + WARP, place_a = 0, place_b = 0;
        __syncwarp();
        uint64_t x = a < n ? keys[a] : 0, y = b < n ? keys[b] : 0;
#pragma unroll 4
        for (uint32_t k = 0; k < n; k++) {
            place_a += keys[k] > x;
            place_b += keys[k] > y;
        }
        __syncwarp();
        if (a < n)
            keys[place_a] = x;
        if (b < n)
            keys[place_b] = y;
        __syncwarp();
        return;
    }
    uint32_t size = 1;
    while (size < n)
        size *= 2;
    for (uint32_t i = n + threadIdx.x; i < size; i += T)
        keys[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (uint32_t k = 2; k <= size; k *= 2) {
#pragma unroll 1
        for (uint32_t j = k / 2, before = 1; j; before = j, j /= 2) {
            if (j > WARP || before > WARP)
                __syncthreads();
            else
                __syncwarp();
#pragma unroll 1
            for (uint32_t t = threadIdx.x; t < size / 2; t += T) {
                uint32_t a = t + (t & ~(j - 1)), b = a + j;
                uint64_t x = keys[a], y = keys[b];
                if ((x < y) == ((a & k) == 0)) {
                    keys[a] = y;
                    keys[b] = x;
                }
            }
        }
    }
    __syncthreads();
}

#endif
