// What device code sees: thread indices, barriers, warp operations, atomics, intrinsics.
#ifndef HOKKU_EMU_DEVICE_H
#define HOKKU_EMU_DEVICE_H

#include "emu_types.h"

struct emu_thread {
    uint3 thread_idx;
};
extern emu_thread *emu_self; // the running thread; NULL on the host
#define threadIdx (emu_self->thread_idx)
extern uint3 blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

// The place of a call, so that threads meeting at different barriers are told apart.
struct emu_site {
    const char *file;
    int line;
};
#define EMU_SITE_PARAMS const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_SITE        (emu_site{emu_file, emu_line})

// Barriers. op: what is computed over the block's predicates.
enum emu_barrier_op { EMU_BAR_SYNC, EMU_BAR_COUNT, EMU_BAR_AND, EMU_BAR_OR };
int emu_barrier(emu_barrier_op op, int predicate, emu_site site);
static inline void __syncthreads(EMU_SITE_PARAMS)
{
    emu_barrier(EMU_BAR_SYNC, 0, EMU_SITE);
}
static inline int __syncthreads_count(int p, EMU_SITE_PARAMS)
{
    return emu_barrier(EMU_BAR_COUNT, p, EMU_SITE);
}
static inline int __syncthreads_and(int p, EMU_SITE_PARAMS)
{
    return emu_barrier(EMU_BAR_AND, p, EMU_SITE);
}
static inline int __syncthreads_or(int p, EMU_SITE_PARAMS)
{
    return emu_barrier(EMU_BAR_OR, p, EMU_SITE);
}

void emu_barrier_some(unsigned n_threads); // of a block: the others don't come

void emu_yield(void); // lets other threads run: for loops that poll
// Eight bytes to the memory of a device that this one reaches, where they arrive later; and a look
// at such a place.
void emu_packet_store(uint64_t *p, uint64_t v);
uint64_t emu_packet_load(const uint64_t *p);
void emu_griddep_wait(void);
void emu_griddep_launch(void);
void *emu_dynamic_smem(void);
void emu_cp_async(void *smem, const void *gmem, int n_bytes, int n_valid);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int n_pending_groups);
void emu_misaligned(const void *p, size_t n);
static inline void emu_check_aligned(const void *p, size_t n)
{
    if ((uintptr_t)p % n)
        emu_misaligned(p, n);
}
[[noreturn]] void emu_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Warp operations: the lanes named by mask meet; the last to arrive computes everybody's result.
enum emu_warp_kind {
    EMU_WARP_SYNC,
    EMU_WARP_SHFL,
    EMU_WARP_SHFL_UP,
    EMU_WARP_SHFL_DOWN,
    EMU_WARP_SHFL_XOR,
    EMU_WARP_BALLOT,
    EMU_WARP_MATCH,
    EMU_WARP_ADD,
    EMU_WARP_MIN_U,
    EMU_WARP_MAX_U,
    EMU_WARP_MIN_S,
    EMU_WARP_MAX_S,
    EMU_WARP_AND,
    EMU_WARP_OR,
    EMU_WARP_XOR,
    EMU_WARP_MMA_F16,
    EMU_WARP_MMA_BF16,
    EMU_WARP_MMA_S8,
    EMU_WARP_LDMATRIX,
    EMU_WARP_WGMMA_F16,
    EMU_WARP_BUTTERFLY,
};
struct emu_warp_args {
    uint64_t in, out;
    int lane_arg, width; // shuffles
    void *d;             // matrix operations
    const void *a, *b, *a_tile;
    int n;
    size_t panel;
    bool flag;
};
void emu_warp(unsigned mask, emu_warp_kind kind, emu_warp_args *args, emu_site site);

template <typename T>
static inline T emu_shuffle(unsigned mask, emu_warp_kind kind, T v, int arg, int width,
                            emu_site site)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    emu_warp_args a = {};
    memcpy(&a.in, &v, sizeof v);
    a.lane_arg = arg;
    a.width = width;
    emu_warp(mask, kind, &a, site);
    memcpy(&v, &a.out, sizeof v);
    return v;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32, EMU_SITE_PARAMS)
{
    return emu_shuffle(mask, EMU_WARP_SHFL, v, lane, width, EMU_SITE);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, EMU_SITE_PARAMS)
{
    return emu_shuffle(mask, EMU_WARP_SHFL_UP, v, (int)delta, width, EMU_SITE);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32,
                                 EMU_SITE_PARAMS)
{
    return emu_shuffle(mask, EMU_WARP_SHFL_DOWN, v, (int)delta, width, EMU_SITE);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T v, int lane_mask, int width = 32, EMU_SITE_PARAMS)
{
    return emu_shuffle(mask, EMU_WARP_SHFL_XOR, v, lane_mask, width, EMU_SITE);
}
static inline uint64_t emu_reduce(unsigned mask, emu_warp_kind kind, uint64_t v, emu_site site)
{
    emu_warp_args a = {};
    a.in = v;
    emu_warp(mask, kind, &a, site);
    return a.out;
}
static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EMU_SITE_PARAMS)
{
    emu_reduce(mask, EMU_WARP_SYNC, 0, EMU_SITE);
}
static inline unsigned __ballot_sync(unsigned mask, int p, EMU_SITE_PARAMS)
{
    return (unsigned)emu_reduce(mask, EMU_WARP_BALLOT, p != 0, EMU_SITE);
}
static inline int __any_sync(unsigned mask, int p, EMU_SITE_PARAMS)
{
    return emu_reduce(mask, EMU_WARP_BALLOT, p != 0, EMU_SITE) != 0;
}
static inline int __all_sync(unsigned mask, int p, EMU_SITE_PARAMS)
{
    return emu_reduce(mask, EMU_WARP_BALLOT, p == 0, EMU_SITE) == 0;
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v, EMU_SITE_PARAMS)
{
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    return (unsigned)emu_reduce(mask, EMU_WARP_MATCH, bits, EMU_SITE);
}
// Only the caller is certain to be active: a stricter answer than a GPU gives.
unsigned __activemask(void);

#define EMU_REDUCE(name, T, kind)                                                                  \
    static inline T name(unsigned mask, T v, EMU_SITE_PARAMS)                                      \
    {                                                                                              \
        return (T)emu_reduce(mask, kind, (uint64_t)(int64_t)v, EMU_SITE);                          \
    }
EMU_REDUCE(__reduce_add_sync, unsigned, EMU_WARP_ADD)
EMU_REDUCE(__reduce_add_sync, int, EMU_WARP_ADD)
EMU_REDUCE(__reduce_min_sync, unsigned, EMU_WARP_MIN_U)
EMU_REDUCE(__reduce_min_sync, int, EMU_WARP_MIN_S)
EMU_REDUCE(__reduce_max_sync, unsigned, EMU_WARP_MAX_U)
EMU_REDUCE(__reduce_max_sync, int, EMU_WARP_MAX_S)
EMU_REDUCE(__reduce_and_sync, unsigned, EMU_WARP_AND)
EMU_REDUCE(__reduce_or_sync, unsigned, EMU_WARP_OR)
EMU_REDUCE(__reduce_xor_sync, unsigned, EMU_WARP_XOR)
#undef EMU_REDUCE

// All steps of a butterfly at once: combine(v, that of lane ^ d) for d = from .. to, each half the
// one before or twice as much.
struct emu_combine {
    const void *f;
    void (*call)(const emu_combine *const of[32], void *const v[32]); // for all lanes
    int from, to;
};
template <typename T, typename F>
static inline void emu_butterfly(T &v, int from, int to, F combine, EMU_SITE_PARAMS)
{
    const emu_combine c = {&combine,
                           [](const emu_combine *const of[32], void *const v[32]) {
                               const int from = of[0]->from, to = of[0]->to;
                               for (int d = from; d > 0 && (from < to ? d <= to : d >= to);
                                    d = from < to ? 2 * d : d / 2) {
                                   T before[32];
                                   for (int lane = 0; lane < 32; lane++)
                                       before[lane] = *static_cast<T *>(v[lane]);
                                   for (int lane = 0; lane < 32; lane++)
                                       (*static_cast<const F *>(of[lane]->f))(
                                           *static_cast<T *>(v[lane]), before[lane ^ d]);
                               }
                           },
                           from, to};
    emu_warp_args w = {};
    w.d = &v;
    w.a = &c;
    emu_warp(0xFFFFFFFFu, EMU_WARP_BUTTERFLY, &w, EMU_SITE);
}

static inline void emu_mma(emu_warp_kind kind, void *d, const void *a, const void *b, emu_site site)
{
    emu_warp_args w = {};
    w.d = d;
    w.a = a;
    w.b = b;
    emu_warp(0xFFFFFFFFu, kind, &w, site);
}
static inline void emu_mma_f16(float *d, const uint32_t *a, const uint32_t *b, bool bf16,
                               EMU_SITE_PARAMS)
{
    emu_mma(bf16 ? EMU_WARP_MMA_BF16 : EMU_WARP_MMA_F16, d, a, b, EMU_SITE);
}
static inline void emu_mma_s8(int32_t *d, const uint32_t *a, const uint32_t *b, EMU_SITE_PARAMS)
{
    emu_mma(EMU_WARP_MMA_S8, d, a, b, EMU_SITE);
}
static inline void emu_ldmatrix(uint32_t *r, const void *row, int n, bool trans, EMU_SITE_PARAMS)
{
    emu_warp_args w = {};
    w.d = r;
    w.a = row;
    w.n = n;
    w.flag = trans;
    emu_warp(0xFFFFFFFFu, EMU_WARP_LDMATRIX, &w, EMU_SITE);
}

// One warp's sixteen rows of a product of a warpgroup, which every warp does alone. Nothing happens
// before the wait: a and B are read there, and d is written. B is read through the 128-byte
// swizzle.
void emu_wgmma_begin(void);
// A is in a, or, if that is NULL, in the rows at a_tile; panel: of B with rows and columns exchanged
// (wgmma_tile_across), else 0.
void emu_wgmma_f16(float *d, const uint32_t *a, const void *a_tile, const void *b, int n_cols,
                   size_t panel, EMU_SITE_PARAMS);
void emu_wgmma_commit(void);
void emu_wgmma_wait(int n_pending_groups);

// Transaction barriers: the phase ends when all have arrived and no announced byte is missing.
void emu_mbar_init(uint64_t *bar, uint32_t n_arrive);
void emu_mbar_init_done(void);
void emu_mbar_arrive(uint64_t *bar, uint32_t n_bytes);
void emu_mbar_arrive_after_copies(uint64_t *bar); // cp.async of this thread, which come now
void emu_mbar_wait(uint64_t *bar, uint32_t parity);
void emu_bulk_copy(void *smem, const void *gmem, uint32_t n_bytes, uint64_t *bar);
void emu_bulk_prefetch(const void *gmem, uint32_t n_bytes);
uint64_t emu_prefetched(void); // bytes so far

// Memory order: the threads of the emulation run one at a time, so fences only need to exist.
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// Atomics. After one on device memory other blocks may run before any thread of this one goes on.
void emu_after_atomic(const void *p);
#define EMU_ATOMIC(name, T, expr)                                                                  \
    static inline T name(T *p, T v)                                                                \
    {                                                                                              \
        T old = *p;                                                                                \
        *p = (expr);                                                                               \
        emu_after_atomic(p);                                                                       \
        return old;                                                                                \
    }
#define EMU_ATOMIC_INT(T)                                                                          \
    EMU_ATOMIC(atomicMin, T, v < old ? v : old)                                                    \
    EMU_ATOMIC(atomicMax, T, v > old ? v : old)                                                    \
    EMU_ATOMIC(atomicExch, T, v)                                                                   \
    EMU_ATOMIC(atomicAnd, T, old &v)                                                               \
    EMU_ATOMIC(atomicOr, T, old | v)                                                               \
    EMU_ATOMIC(atomicXor, T, old ^ v)                                                              \
    static inline T atomicCAS(T *p, T expected, T v)                                               \
    {                                                                                              \
        T old = *p;                                                                                \
        if (old == expected)                                                                       \
            *p = v;                                                                                \
        return old;                                                                                \
    }
EMU_ATOMIC_INT(int)
EMU_ATOMIC_INT(unsigned)
EMU_ATOMIC_INT(unsigned long long)
EMU_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)v))
EMU_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)v))
EMU_ATOMIC(atomicAdd, unsigned, old + v)
EMU_ATOMIC(atomicSub, unsigned, old - v)
EMU_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
EMU_ATOMIC(atomicAdd, unsigned long long, old + v)
EMU_ATOMIC(atomicAdd, float, old + v)
EMU_ATOMIC(atomicAdd, double, old + v)
EMU_ATOMIC(atomicExch, float, v)
#undef EMU_ATOMIC
#undef EMU_ATOMIC_INT

#include "emu_math.h"

#endif
