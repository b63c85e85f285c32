// The instructions of compute capability 9.0 (target sm_90a) that other devices lack, as ptx.cuh
// has the common ones: transaction barriers, bulk copies, products of a warpgroup (128 threads).
// Sources: PTX ISA 8.x, sections "mbarrier", "cp.async.bulk", "Asynchronous Warpgroup Level
// Matrix".
#ifndef HOKKU_CUDA_PTX_HOPPER_CUH
#define HOKKU_CUDA_PTX_HOPPER_CUH

#include "ptx.cuh"

// The kernels that use this are compiled for every target; elsewhere they are empty and never
// launched.
#if defined(HOKKU_CUDA_ON_CPU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAVE_HOPPER 1
#else
#define HAVE_HOPPER 0
#endif

enum {
    SWIZZLE_ALIGN = 1024, // of a tile that wgmma_f16 reads
};

#ifdef HOKKU_CUDA_ON_CPU

PTX_FN void mbar_init(uint64_t *bar, uint32_t n_arrive)
{
    emu_mbar_init(bar, n_arrive);
}
PTX_FN void mbar_init_done(void)
{
    emu_mbar_init_done();
}
PTX_FN void mbar_arrive(uint64_t *bar)
{
    emu_mbar_arrive(bar, 0);
}
PTX_FN void mbar_arrive_expect(uint64_t *bar, uint32_t n_bytes)
{
    emu_mbar_arrive(bar, n_bytes);
}
PTX_FN void mbar_wait(uint64_t *bar, uint32_t parity)
{
    emu_mbar_wait(bar, parity);
}
PTX_FN void bulk_copy(void *smem, const void *gmem, uint32_t n_bytes, uint64_t *bar)
{
    emu_bulk_copy(smem, gmem, n_bytes, bar);
}
PTX_FN void mbar_arrive_after_copies(uint64_t *bar)
{
    emu_mbar_arrive_after_copies(bar);
}
template <int N> PTX_FN void more_registers(void)
{
}
template <int N> PTX_FN void fewer_registers(void)
{
}
PTX_FN uint64_t evict_last_policy(void)
{
    return 0;
}
PTX_FN void bulk_prefetch(const void *gmem, uint32_t n_bytes, uint64_t)
{
    emu_bulk_prefetch(gmem, n_bytes);
}
PTX_FN void wgmma_begin(void)
{
    emu_wgmma_begin();
}
PTX_FN void wgmma_commit(void)
{
    emu_wgmma_commit();
}
template <int N> PTX_FN void wgmma_wait(void)
{
    emu_wgmma_wait(N);
}
template <int N> PTX_FN void wgmma_settle(float *)
{
}
PTX_FN uint64_t wgmma_tile(const void *smem)
{
    return (uint64_t)(uintptr_t)smem;
}
PTX_FN uint64_t wgmma_tile_across(const void *smem, uint32_t panel_bytes)
{
    return (uint64_t)panel_bytes / SWIZZLE_ALIGN << 48 | (uint64_t)(uintptr_t)smem;
}
PTX_FN void add_to(float *to, float v)
{
    *to += v;
}
PTX_FN void add_to4(float4 *to, float4 v)
{
    to->x += v.x, to->y += v.y, to->z += v.z, to->w += v.w;
}
PTX_FN uint64_t wgmma_tile_at(uint64_t tile, uint32_t n_bytes)
{
    return tile + n_bytes;
}
PTX_FN const void *wgmma_address(uint64_t tile)
{
    return (const void *)(uintptr_t)(tile << 16 >> 16);
}
template <int N, bool ACROSS = false>
PTX_FN void wgmma_f16(float *d, const uint32_t a[4], uint64_t b, bool add)
{
    for (int i = 0; i < N / 2 && !add; i++)
        d[i] = 0.0f;
    emu_wgmma_f16(d, a, NULL, wgmma_address(b), N, ACROSS ? (b >> 48) * SWIZZLE_ALIGN : 0);
}
template <int N> PTX_FN void wgmma_f16_tiles(float *d, uint64_t a, uint64_t b, bool add)
{
    for (int i = 0; i < N / 2 && !add; i++)
        d[i] = 0.0f;
    emu_wgmma_f16(d, NULL, wgmma_address(a), wgmma_address(b), N, 0);
}
PTX_FN void async_proxy_fence(void)
{
}

#else

// A barrier in shared memory for n_arrive arrivals and the bytes they announce. Its phases count
// from 0; mbar_wait(bar, p) waits for the end of the current phase when its parity is p.
PTX_FN void mbar_init(uint64_t *bar, uint32_t n_arrive)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(n_arrive)
                 : "memory");
}
// After the last mbar_init, before the __syncthreads that lets others use the barriers.
PTX_FN void mbar_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
PTX_FN void mbar_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(bar)) : "memory");
}
PTX_FN void mbar_arrive_expect(uint64_t *bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)),
                 "r"(n_bytes)
                 : "memory");
}
PTX_FN void mbar_wait(uint64_t *bar, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(smem_address(bar)), "r"(parity)
                     : "memory");
    } while (!done);
}
// n_bytes (a multiple of 16, both addresses aligned to 16) to shared memory; counts down what bar
// expects.
PTX_FN void bulk_copy(void *smem, const void *gmem, uint32_t n_bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(smem_address(smem)),
                 "l"(gmem), "r"(n_bytes), "r"(smem_address(bar))
                 : "memory");
}

// As mbar_arrive, when the thread's cp_async of before have come. Each thread is one of n_arrive.
PTX_FN void mbar_arrive_after_copies(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(bar))
                 : "memory");
}
// From here on the threads of a warpgroup have N registers, a multiple of 8; what one group gives
// up another may take.
template <int N> PTX_FN void more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> PTX_FN void fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Of what L2 is to give up last.
PTX_FN uint64_t evict_last_policy(void)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// Asks for n_bytes (a multiple of 16, the address aligned to 16) into L2.
PTX_FN void bulk_prefetch(const void *gmem, uint32_t n_bytes, uint64_t policy)
{
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(gmem),
                 "r"(n_bytes), "l"(policy));
}

// Adds where device memory is, waiting for nothing; of what no other thread looks at in this
// launch.
PTX_FN void add_to(float *to, float v)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(v) : "memory");
}
PTX_FN void add_to4(float4 *to, float4 v)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}

// Before the first wgmma_f16 that reads registers which other instructions wrote.
PTX_FN void wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
PTX_FN void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most N committed groups are still under way.
template <int N> PTX_FN void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from reading sums before a wait that precedes it.
template <int N> PTX_FN void wgmma_settle(float *d)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
// Names a tile of B: row n (a column of B) is 128 bytes at n * 128 from an address aligned to
// SWIZZLE_ALIGN, its 16-byte pieces p at place p ^ (n % 8). _at: from byte n_bytes on, a
// multiple of 32 within the first row or of 1024.
PTX_FN uint64_t wgmma_tile(const void *smem)
{
    // 128-byte swizzle (1 << 62), 1024 bytes from eight rows to the next eight (64 << 32)
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)1 << 16 |
           (smem_address(smem) & 0x3FFFFu) >> 4;
}
PTX_FN uint64_t wgmma_tile_at(uint64_t tile, uint32_t n_bytes)
{
    return tile + (n_bytes >> 4);
}

// The same with rows and columns exchanged: row k of B is a row of the tile; of its columns 64 n
// and up are in panel n, panel_bytes from one to the next.
PTX_FN uint64_t wgmma_tile_across(const void *smem, uint32_t panel_bytes)
{
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)(panel_bytes >> 4) << 16 |
           (smem_address(smem) & 0x3FFFFu) >> 4;
}
// What this thread wrote to shared memory, or waited for with cp_async_wait, is there for wgmma.
PTX_FN void async_proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define PTX_SUMS8(i)                                                                               \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define PTX_SUMS16(i) PTX_SUMS8(i), PTX_SUMS8(i + 8)
#define PTX_SUMS32(i) PTX_SUMS16(i), PTX_SUMS16(i + 16)

// Of operands the first 16 k.
#define PTX_FIRST16                                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, "                                                             \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_FIRST24                                                                                \
    PTX_FIRST16 ", "                                                                               \
                "%16, %17, %18, %19, %20, %21, %22, %23"
#define PTX_FIRST32                                                                                \
    PTX_FIRST16 ", "                                                                               \
                "%16, %17, %18, %19, %20, %21, %22, %23, "                                         \
                "%24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_FIRST48                                                                                \
    PTX_FIRST32 ", "                                                                               \
                "%32, %33, %34, %35, %36, %37, %38, %39, "                                         \
                "%40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_FIRST64                                                                                \
    PTX_FIRST48 ", "                                                                               \
                "%48, %49, %50, %51, %52, %53, %54, %55, "                                         \
                "%56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_FIRST80                                                                                \
    PTX_FIRST64 ", "                                                                               \
                "%64, %65, %66, %67, %68, %69, %70, %71, "                                         \
                "%72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_FIRST96                                                                                \
    PTX_FIRST80 ", "                                                                               \
                "%80, %81, %82, %83, %84, %85, %86, %87, "                                         \
                "%88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_FIRST112                                                                               \
    PTX_FIRST96 ", "                                                                               \
                "%96, %97, %98, %99, %100, %101, %102, %103, "                                     \
                "%104, %105, %106, %107, %108, %109, %110, %111"
#define PTX_FIRST128                                                                               \
    PTX_FIRST112 ", "                                                                              \
                 "%112, %113, %114, %115, %116, %117, %118, %119, "                                \
                 "%120, %121, %122, %123, %124, %125, %126, %127"
// A product of N columns: TO are its sums, the operands behind them are A0 to A3 and up.
#define PTX_WGMMA(N, TO, A0, A1, A2, A3, B, ADD, ACROSS, ...)                                      \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" TO "}, {%" #A0         \
                 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #ACROSS ";\n\t}"           \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((uint32_t)add),         \
                   "n"(across))

// D (64xN, float) = A (64x16) B (16xN), or += that where `add`, started only: wgmma_commit, then
// wgmma_wait before d is read or a is written. Warp w of the four holds rows 16 w and up, with a as
// mma_f16's; d[4 j] to d[4 j + 3] are mma_f16's d for columns 8 j and up. N: 48, or a multiple of
// 32 up to 256. ACROSS: b is a wgmma_tile_across.
template <int N, bool ACROSS = false>
PTX_FN void wgmma_f16(float *d, const uint32_t a[4], uint64_t b, bool add)
{
    constexpr int across = ACROSS;
    if constexpr (N == 32)
        PTX_WGMMA(32, PTX_FIRST16, 16, 17, 18, 19, 20, 21, 22, PTX_SUMS16(0));
    else if constexpr (N == 48)
        PTX_WGMMA(48, PTX_FIRST24, 24, 25, 26, 27, 28, 29, 30, PTX_SUMS16(0), PTX_SUMS8(16));
    else if constexpr (N == 64)
        PTX_WGMMA(64, PTX_FIRST32, 32, 33, 34, 35, 36, 37, 38, PTX_SUMS32(0));
    else if constexpr (N == 96)
        PTX_WGMMA(96, PTX_FIRST48, 48, 49, 50, 51, 52, 53, 54, PTX_SUMS32(0), PTX_SUMS16(32));
    else if constexpr (N == 128)
        PTX_WGMMA(128, PTX_FIRST64, 64, 65, 66, 67, 68, 69, 70, PTX_SUMS32(0), PTX_SUMS32(32));
    else if constexpr (N == 160)
        PTX_WGMMA(160, PTX_FIRST80, 80, 81, 82, 83, 84, 85, 86, PTX_SUMS32(0), PTX_SUMS32(32),
                  PTX_SUMS16(64));
    else if constexpr (N == 192)
        PTX_WGMMA(192, PTX_FIRST96, 96, 97, 98, 99, 100, 101, 102, PTX_SUMS32(0), PTX_SUMS32(32),
                  PTX_SUMS32(64));
    else if constexpr (N == 224)
        PTX_WGMMA(224, PTX_FIRST112, 112, 113, 114, 115, 116, 117, 118, PTX_SUMS32(0),
                  PTX_SUMS32(32), PTX_SUMS32(64), PTX_SUMS16(96));
    else if constexpr (N == 256)
        PTX_WGMMA(256, PTX_FIRST128, 128, 129, 130, 131, 132, 133, 134, PTX_SUMS32(0),
                  PTX_SUMS32(32), PTX_SUMS32(64), PTX_SUMS32(96));
    else
        static_assert(N == 32, "of these widths");
}
// The same with A, too, from a wgmma_tile: 64 rows.
template <int N> PTX_FN void wgmma_f16_tiles(float *d, uint64_t a, uint64_t b, bool add)
{
    static_assert(N == 64, "of this width");
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                 "%31}, "
                 "%32, %33, p, 1, 1, 0, 0;\n\t}"
                 : PTX_SUMS32(0)
                 : "l"(a), "l"(b), "r"((uint32_t)add));
}
#undef PTX_WGMMA
#undef PTX_FIRST128
#undef PTX_FIRST112
#undef PTX_FIRST96
#undef PTX_FIRST80
#undef PTX_FIRST64
#undef PTX_FIRST48
#undef PTX_FIRST32
#undef PTX_FIRST24
#undef PTX_FIRST16
#undef PTX_SUMS32
#undef PTX_SUMS16
#undef PTX_SUMS8

#endif
#endif
