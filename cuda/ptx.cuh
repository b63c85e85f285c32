// Inline PTX, one small function per instruction, each with its host twin (tests/cuda_on_cpu).
// Sources: PTX ISA 8.x, sections "Data Movement", "Asynchronous Copy", "Warp Level Matrix".
#ifndef HOKKU_CUDA_PTX_CUH
#define HOKKU_CUDA_PTX_CUH

#include <stdint.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifdef HOKKU_CUDA_ON_CPU

#define PTX_FN static inline

// Host twins: plain loads, delayed copies, and warp-wide matrix products in plain loops.
PTX_FN uint4 ld_stream16(const void *p)
{
    emu_check_aligned(p, 16);
    return *static_cast<const uint4 *>(p);
}
PTX_FN uint2 ld_stream8(const void *p)
{
    emu_check_aligned(p, 8);
    return *static_cast<const uint2 *>(p);
}
PTX_FN uint32_t ld_stream4(const void *p)
{
    emu_check_aligned(p, 4);
    return *static_cast<const uint32_t *>(p);
}
PTX_FN void prefetch_l2(const void *)
{
}
PTX_FN void cp_async16(void *smem, const void *gmem)
{
    emu_cp_async(smem, gmem, 16, 16);
}
PTX_FN void cp_async16_or_zero(void *smem, const void *gmem, bool valid)
{
    emu_cp_async(smem, gmem, 16, valid ? 16 : 0);
}
PTX_FN void cp_async8(void *smem, const void *gmem)
{
    emu_cp_async(smem, gmem, 8, 8);
}
PTX_FN void cp_async4(void *smem, const void *gmem)
{
    emu_cp_async(smem, gmem, 4, 4);
}
PTX_FN void cp_async_commit(void)
{
    emu_cp_async_commit();
}
template <int N> PTX_FN void cp_async_wait(void)
{
    emu_cp_async_wait(N);
}
PTX_FN float ptx_exp2(float x)
{
    return exp2f(x);
}
PTX_FN float ptx_reciprocal(float x)
{
    return 1.0f / x;
}
PTX_FN void barrier_sync(uint32_t n_thread)
{
    emu_barrier_some(n_thread);
}
PTX_FN void griddep_wait(void)
{
    emu_griddep_wait();
}
PTX_FN uint32_t and_or(uint32_t v, uint32_t with, uint32_t more)
{
    return (v & with) | more;
}
PTX_FN void griddep_launch_dependents(void)
{
    emu_griddep_launch();
}
template <typename T> PTX_FN void known_by_now(T *&)
{
}
PTX_FN void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_mma_f16(d, a, b, false);
}
PTX_FN void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_mma_f16(d, a, b, true);
}
PTX_FN void mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_mma_s8(d, a, b);
}
PTX_FN void ldmatrix_x4(uint32_t r[4], const void *smem_row)
{
    emu_ldmatrix(r, smem_row, 4, false);
}
PTX_FN void ldmatrix_x2(uint32_t r[2], const void *smem_row)
{
    emu_ldmatrix(r, smem_row, 2, false);
}
PTX_FN void ldmatrix_x4_trans(uint32_t r[4], const void *smem_row)
{
    emu_ldmatrix(r, smem_row, 4, true);
}
PTX_FN uint32_t transposed(uint32_t x)
{
    const uint32_t lane = threadIdx.x % 32, from = lane % 4 * 8 + lane / 8,
                   half = lane / 4 % 2 * 16;
    const uint32_t first = __shfl_sync(0xFFFFFFFFu, x, from),
                   next = __shfl_sync(0xFFFFFFFFu, x, from + 4);
    return (first >> half & 0xFFFFu) | (next >> half & 0xFFFFu) << 16;
}
PTX_FN void st_release_sys(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
PTX_FN uint32_t ld_acquire_sys(const uint32_t *p)
{
    emu_yield(); // a thread that polls lets the others run
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
PTX_FN void st_release_gpu(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
PTX_FN uint32_t ld_acquire_gpu(const uint32_t *p)
{
    emu_yield();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
PTX_FN void st_packet(uint64_t *p, uint64_t v)
{
    emu_packet_store(p, v);
}
PTX_FN uint64_t ld_packet(const uint64_t *p)
{
    return emu_packet_load(p);
}
PTX_FN void st_packet_release(uint64_t *p, uint64_t v)
{
    emu_packet_store(p, v);
}
PTX_FN uint64_t ld_packet_acquire(const uint64_t *p)
{
    return emu_packet_load(p);
}
PTX_FN uint32_t ptx_nanosleep(uint32_t ns)
{
    emu_yield();
    return ns;
}
PTX_FN float max_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}
PTX_FN float saturated(float x)
{
    return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}
PTX_FN uint32_t byte_perm_signs(uint32_t a, uint32_t b, uint32_t selector)
{
    return __byte_perm(a, b, selector);
}
PTX_FN int32_t dp4a_unsigned_signed(uint32_t a, int32_t b, int32_t c)
{
    return emu_dp4a_us(a, b, c);
}
PTX_FN uint32_t bf16x2(float low, float high)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
PTX_FN uint32_t saturated_half2(float low, float high)
{
    return (uint32_t)__half_as_ushort(__float2half_rn(saturated(low))) |
           (uint32_t)__half_as_ushort(__float2half_rn(saturated(high))) << 16;
}

#else

#define PTX_FN static __device__ __forceinline__

// Loads of weights: read once per token, so they should not displace what L1 has. (To have L2 give
// them up first costs more than it gives: a policy has to be moved to uniform registers for every
// load in a loop.) Only for memory that no kernel in flight writes. The pointer is aligned to the
// size.
PTX_FN uint4 ld_stream16(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}
PTX_FN uint2 ld_stream8(const void *p)
{
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
PTX_FN uint32_t ld_stream4(const void *p)
{
    uint32_t v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// Asks for the 32 bytes there and what follows up to a line's end, for whoever reads them later.
PTX_FN void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

PTX_FN uint32_t smem_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// As __syncthreads, of n_thread threads of the block: whole warps, always the same.
PTX_FN void barrier_sync(uint32_t n_thread)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n_thread) : "memory");
}

// Asynchronous copies to shared memory: valid after cp_async_wait and a barrier.
PTX_FN void cp_async16(void *smem, const void *gmem)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(smem)), "l"(gmem)
                 : "memory");
}
// Zeroes when !valid (gmem is not read then, but must be a device address).
PTX_FN void cp_async16_or_zero(void *smem, const void *gmem, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(smem)),
                 "l"(gmem), "r"(valid ? 16 : 0)
                 : "memory");
}
PTX_FN void cp_async8(void *smem, const void *gmem)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(smem_address(smem)), "l"(gmem)
                 : "memory");
}
PTX_FN void cp_async4(void *smem, const void *gmem)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem_address(smem)), "l"(gmem)
                 : "memory");
}
PTX_FN void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most N of this thread's committed groups are still under way.
template <int N> PTX_FN void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// 2^x within 2 units of the last place; results below the normal range become zero.
PTX_FN float ptx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x within a unit of the last place; x below the normal range gives an infinity.
PTX_FN float ptx_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Programmatic dependent launch: wait for the predecessor's results / let the successor begin.
PTX_FN void griddep_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
PTX_FN void griddep_launch_dependents(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// (v & with) | more by one instruction, which of two constants nvcc makes two.
PTX_FN uint32_t and_or(uint32_t v, uint32_t with, uint32_t more)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "r"(with), "r"(more));
    return r;
}
// An address that is not to be found later than here: behind a wait others would wait for that,
// too.
template <typename T> PTX_FN void known_by_now(T *&p)
{
    asm volatile("" : "+l"(p));
}

// D (16x8, float) += A (16x16) B (16x8); g = lane / 4, t = lane % 4, two elements per register:
// a[0] (g, 2t..) a[1] (g+8, 2t..) a[2] (g, 2t+8..) a[3] (g+8, 2t+8..); b[0] (2t.., g) b[1]
// (2t+8.., g); d[0..1] (g, 2t..) d[2..3] (g+8, 2t..).
PTX_FN void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same with bfloat16.
PTX_FN void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// D (16x8, int32) += A (16x32, int8) B (32x8, int8): as above, four elements per register:
// a[0] (g, 4t..) a[1] (g+8, 4t..) a[2] (g, 4t+16..) a[3] (g+8, 4t+16..); b[0] (4t.., g) b[1]
// (4t+16.., g).
PTX_FN void mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 8x8 matrices of 16-bit elements from shared memory: lane i gives the address of row i % 8 of
// matrix i / 8 (16 bytes, 16-byte aligned); r[m] are elements (lane / 4, 2 (lane % 4) ..) of matrix
// m, of its transpose with _trans.
PTX_FN void ldmatrix_x4(uint32_t r[4], const void *smem_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(smem_row))
                 : "memory");
}
PTX_FN void ldmatrix_x2(uint32_t r[2], const void *smem_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(smem_address(smem_row))
                 : "memory");
}
PTX_FN void ldmatrix_x4_trans(uint32_t r[4], const void *smem_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(smem_row))
                 : "memory");
}

// An 8x8 matrix of 16-bit elements in a warp's registers, as ldmatrix gives it, with rows and
// columns exchanged.
PTX_FN uint32_t transposed(uint32_t x)
{
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}

// Flags between blocks, and between the device and the host (pinned memory).
PTX_FN void st_release_sys(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
PTX_FN uint32_t ld_acquire_sys(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
PTX_FN void st_release_gpu(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
PTX_FN uint32_t ld_acquire_gpu(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
// Eight bytes that become visible at once, in another device's memory, too: what they say does not
// depend on any other store.
PTX_FN void st_packet(uint64_t *p, uint64_t v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
PTX_FN uint64_t ld_packet(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
// A packet behind what this thread, and others before a barrier with it, have stored: who has it
// from there, and others behind a barrier, find that.
PTX_FN void st_packet_release(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
PTX_FN uint64_t ld_packet_acquire(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
PTX_FN uint32_t ptx_nanosleep(uint32_t ns)
{
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
    return ns;
}

// The larger one; NaN when either is (fmaxf forgets it).
PTX_FN float max_nan(float a, float b)
{
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
    return v;
}

// Two float16 in one word; a value beyond their range becomes the largest of its sign, a NaN stays.
PTX_FN uint32_t saturated_half2(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

// Two bfloat16, rounded to the nearest.
PTX_FN uint32_t bf16x2(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

// Four bytes of a and b, each named by four bits of the selector, of which the fourth asks for its
// sign bit, eight times.
PTX_FN uint32_t byte_perm_signs(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(selector));
    return v;
}

// c + the products of four unsigned bytes of a with four signed ones of b.
PTX_FN int32_t dp4a_unsigned_signed(uint32_t a, int32_t b, int32_t c)
{
    int32_t v;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
    return v;
}

#endif
#endif
