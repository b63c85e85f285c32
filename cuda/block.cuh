// Work that the threads of one block do together: reductions, prefix sums, a sort.
// Every function is called by all threads of the block and ends with a barrier where it must.
#ifndef HOKKU_CUDA_BLOCK_CUH
#define HOKKU_CUDA_BLOCK_CUH

#include "cuda_common.cuh"

static const unsigned ALL_LANES = 0xFFFFFFFFu;

template <int THREADS> struct block_sums {
    uint64_t warp[THREADS / WARP];
};

// What a reduction combines with. The identity of all is 0.
enum reduction { SUM, LARGEST, SUM_DOUBLE }; // SUM_DOUBLE: the bits of doubles

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
    for (int o = WARP / 2; o; o >>= 1)
        v = combine(op, v, (uint64_t)__shfl_xor_sync(ALL_LANES, (unsigned long long)v, o));
    return v;
}

// Combines v over the block's threads; everyone gets the result.
template <int THREADS>
static __device__ NOINLINE uint64_t block_reduce(uint64_t v, struct block_sums<THREADS> *m,
                                                 enum reduction op)
{
    v = warp_reduce(v, op);
    __syncthreads(); // m may still be read by an earlier call
    if (threadIdx.x % WARP == 0)
        m->warp[threadIdx.x / WARP] = v;
    __syncthreads();
    v = threadIdx.x % WARP < THREADS / WARP ? m->warp[threadIdx.x % WARP] : 0;
    return warp_reduce(v, op);
}

// The sum of v over threads 0 .. this one; *total: over all threads.
template <int THREADS>
static __device__ NOINLINE uint64_t block_scan(uint64_t v, struct block_sums<THREADS> *m,
                                               uint64_t *total)
{
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (unsigned o = 1; o < WARP; o <<= 1) {
        uint64_t below = (uint64_t)__shfl_up_sync(ALL_LANES, (unsigned long long)v, o);
        if (lane >= o)
            v += below;
    }
    __syncthreads();
    if (lane == WARP - 1)
        m->warp[warp] = v;
    __syncthreads();
    uint64_t before = 0, all = 0;
    for (unsigned w = 0; w < THREADS / WARP; w++) {
        before += w < warp ? m->warp[w] : 0;
        all += m->warp[w];
    }
    *total = all;
    return before + v;
}

// Sorts keys[0 .. n) in descending order; room for the next power of two is needed, and no key is
// 0. Bitonic sort (Batcher 1968).
template <int THREADS>
static __device__ NOINLINE void block_sort_descending(uint64_t *keys, uint32_t n)
{
    uint32_t size = 1;
    while (size < n)
        size *= 2;
    for (uint32_t i = n + threadIdx.x; i < size; i += THREADS)
        keys[i] = 0;
    for (uint32_t k = 2; k <= size; k *= 2) {
        for (uint32_t j = k / 2; j; j /= 2) {
            __syncthreads();
            for (uint32_t t = threadIdx.x; t < size / 2; t += THREADS) {
                uint32_t a = (t / j) * 2 * j + t % j, b = a + j;
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
