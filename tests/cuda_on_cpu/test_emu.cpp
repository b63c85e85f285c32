// Tests of the emulation itself: right kernels give right answers under every order of threads, and
// each mistake that it exists to catch is caught.
#include "cuda_common.cuh"
#include "ptx_hopper.cuh"
#include "../gpu/tap.h"

#include <functional>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <thread>
#include <vector>

extern "C" {
#include "gguf/quant.h"
}

#include "emu_internal.h" // EMU_ASAN

int tap_failures;

namespace
{

constexpr uint64_t N_SEEDS = 8;

// ---- harness ----

struct error err;

launch shape(const char *name, unsigned grid, unsigned block, size_t smem = 0,
             cudaStream_t stream = nullptr, bool dependent = false, bool cooperative = false)
{
    return {name, dim3(grid), dim3(block), smem, stream, dependent, cooperative};
}

void must(bool ok)
{
    if (!check(ok, "%s", err.text))
        exit(1);
}

template <typename T> T *device(size_t n)
{
    T *p;
    must(CHECK_CUDA(cudaMalloc(&p, n * sizeof(T)), &err));
    return p;
}

template <typename T> T *device(const std::vector<T> &v)
{
    T *p = device<T>(v.size());
    must(CHECK_CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), &err));
    return p;
}

template <typename T> std::vector<T> host(const T *p, size_t n)
{
    std::vector<T> v(n);
    must(CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), &err));
    return v;
}

// What becomes of f in a process of its own.
struct outcome {
    bool died; // by a signal, a sanitizer, or the emulation
    bool answer;
    std::string text; // on stderr
};

outcome run_apart(const std::function<bool()> &f)
{
    fflush(nullptr);
    int fd[2];
    if (pipe(fd) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 2);
        close(fd[0]);
        alarm(60);
        _exit(f() ? 0 : 1);
    }
    close(fd[1]);
    outcome o = {};
    char buf[4096];
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        o.text.append(buf, (size_t)n);
    close(fd[0]);
    int status;
    waitpid(pid, &status, 0);
    o.died = !WIFEXITED(status) || WEXITSTATUS(status) > 1 ||
             o.text.find("Sanitizer") != std::string::npos ||
             o.text.find("runtime error") != std::string::npos;
    o.answer = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return o;
}

// f gives the right answer under every seed.
void expect_right(const char *what, const std::function<bool()> &f)
{
    uint64_t before = emu_seed();
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        emu_set_seed(seed);
        check(f(), "%s: wrong answer with seed %llu", what, (unsigned long long)seed);
    }
    emu_set_seed(before);
}

// f ends the process, saying text.
void expect_death(const char *what, const char *text, const std::function<bool()> &f)
{
    outcome o = run_apart(f);
    check(o.died && o.text.find(text) != std::string::npos,
          "%s: expected a death with \"%s\", %s%s", what, text, o.died ? "it said: " : "it lived",
          o.text.substr(0, 300).c_str());
}

// f gives a wrong answer, or dies, under some of the seeds.
void expect_caught(const char *what, const std::function<bool()> &f)
{
    bool caught = false;
    for (uint64_t seed = 0; seed < N_SEEDS && !caught; seed++)
        caught = !run_apart([&] {
                      emu_set_seed(seed);
                      return f();
                  }).answer;
    check(caught, "%s: right under every seed", what);
}

// ---- a block reduction, and ways to break it ----

enum flaw { RIGHT, NO_BARRIER, READ_PAST, NO_TAIL, UNINITIALISED, SHARED_PAST };

// (NAME_kernel: its shared memory is its own, see emu_shared.cpp.)
template <int FLAW> __global__ void reduce_kernel(const float *x, int n, float *out)
{
    __shared__ float part[8];
    float s = 0;
    int end = FLAW == NO_TAIL ? n / 256 * 256 : FLAW == READ_PAST ? n + 1 : n;
    for (int i = (int)threadIdx.x; i < end; i += 256)
        s += x[i];
    for (int o = 16; o; o >>= 1)
        s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0 && !(FLAW == UNINITIALISED && threadIdx.x == 96))
        part[threadIdx.x / 32] = s;
    if (FLAW != NO_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int w = 0; w < (FLAW == SHARED_PAST ? 9 : 8); w++)
            sum += part[w];
        *out = sum;
    }
}

template <int FLAW> bool reduce_is_right(void)
{
    const int n = 1000;
    std::vector<float> x(n);
    float want = 0;
    for (int i = 0; i < n; i++)
        want += x[(size_t)i] = (float)(i % 17);
    float *dx = device(x), *dout = device<float>(1);
    must(launch_kernel(&err, shape("reduce", 1, 256), reduce_kernel<FLAW>, dx, n, dout));
    float got = host(dout, 1)[0];
    cudaFree(dx);
    cudaFree(dout);
    return got == want;
}

void reduction_is_right_in_every_order(void)
{
    expect_right("reduction", reduce_is_right<RIGHT>);
}

void dropped_barrier_shows(void)
{
    expect_caught("no barrier", reduce_is_right<NO_BARRIER>);
}

void forgotten_tail_shows(void)
{
    expect_caught("no tail", reduce_is_right<NO_TAIL>);
}

void uninitialised_shared_memory_shows(void)
{
    expect_caught("uninitialised", reduce_is_right<UNINITIALISED>);
}

void reading_one_past_the_end_is_caught(void)
{
    if (EMU_ASAN) {
        expect_death("global", "AddressSanitizer", reduce_is_right<READ_PAST>);
        expect_death("shared", "AddressSanitizer", reduce_is_right<SHARED_PAST>);
    } else { // what lies there is poison
        expect_caught("global", reduce_is_right<READ_PAST>);
    }
}

__global__ void fill_dynamic(int n, float *out)
{
    float *s = dynamic_smem<float>();
    s[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[(threadIdx.x + 1) % (unsigned)n];
}

void dynamic_shared_memory_has_its_exact_size(void)
{
    float *out = device<float>(65);
    must(launch_kernel(&err, shape("fill", 1, 64, 64 * sizeof(float)), fill_dynamic, 64, out));
    check(host(out, 64)[63] == 0 && host(out, 64)[0] == 1, "wrong values");
    if (EMU_ASAN)
        expect_death("one past", "AddressSanitizer", [&] {
            return launch_kernel(&err, shape("fill", 1, 65, 64 * sizeof(float)), fill_dynamic, 64,
                                 out) &&
                   cudaDeviceSynchronize() == cudaSuccess;
        });
    cudaFree(out);
}

__global__ void write_past(float *p, int n)
{
    p[n] = 1;
}

__global__ void copy_one(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x];
}

struct hidden_pointer { // in a structure, a pointer argument is not checked at the launch
    const float *p;
};

__global__ void copy_hidden(hidden_pointer h, float *y)
{
    *y = *h.p;
}

void device_memory_is_poisoned_and_guarded(void)
{
    float *x = device<float>(3), *y = device<float>(3);
    must(launch_kernel(&err, shape("copy", 1, 3), copy_one, x, y));
    for (float v : host(y, 3))
        check(v != v, "fresh memory reads as %g, expected NaN", (double)v);
    expect_death("write past", EMU_ASAN ? "AddressSanitizer" : "past its end", [&] {
        launch_kernel(&err, shape("write", 1, 1), write_past, y, 3);
        return cudaFree(y) == cudaSuccess;
    });
    expect_death("write past a part of an arena", EMU_ASAN ? "AddressSanitizer" : "before", [&] {
        unsigned char *arena = device<unsigned char>(1024);
        emu_red_zone(arena + 12, 256);
        launch_kernel(&err, shape("write", 1, 1), write_past, (float *)arena, 3);
        return cudaFree(arena) == cudaSuccess;
    });
    expect_death("copy from freed memory", "memory that was freed", [&] {
        cudaFree(x);
        return cudaMemcpy(y, x, 4, cudaMemcpyDeviceToDevice) == cudaSuccess;
    });
    expect_death("use after free", EMU_ASAN ? "AddressSanitizer" : "", [&] {
        cudaFree(x);
        launch_kernel(&err, shape("copy", 1, 1), copy_hidden, hidden_pointer{x}, y);
        return cudaDeviceSynchronize() == cudaSuccess;
    });
    expect_death("double free", "already freed", [&] {
        cudaFree(x);
        cudaFree(x);
        return true;
    });
    expect_death("copy past", "outside of every device allocation",
                 [&] { return cudaMemset(x, 0, 13) == cudaSuccess; });
    expect_death("host access", "", [&] { return *(volatile float *)x == 0; });
    expect_death("host access to what is new", "", [&] {
        float *z = device<float>(4);
        return *(volatile float *)z == 0;
    });
    expect_death("host access beside a red zone", "", [&] {
        emu_red_zone(x + 1, sizeof *x);
        return *(volatile float *)x == 0;
    });
    expect_death("host pointer", "points to ordinary host memory", [&] {
        float h[3];
        return launch_kernel(&err, shape("copy", 1, 3), copy_one, h, y);
    });
    expect_death("leak", "not freed", [&] {
        exit(0);
        return true;
    });
    cudaFree(x);
    cudaFree(y);
}

__global__ void load_wide(const unsigned char *p, uint4 *out)
{
    *out = ld_stream16(p);
}

void misaligned_wide_load_is_caught(void)
{
    unsigned char *p = device<unsigned char>(64);
    uint4 *out = device<uint4>(1);
    must(launch_kernel(&err, shape("wide", 1, 1), load_wide, p + 16, out));
    check(host(out, 1)[0].w == 0xFFFFFFFFu, "wrong value");
    expect_death("misaligned", "misaligned", [&] {
        launch_kernel(&err, shape("wide", 1, 1), load_wide, p + 8, out);
        return cudaDeviceSynchronize() == cudaSuccess;
    });
    cudaFree(p);
    cudaFree(out);
}

// ---- barriers ----

enum divergence { EXITED, TWO_PLACES, LANE_MISSING, LANE_GONE };

template <int D> __global__ void diverge(int *out)
{
    if (D == EXITED) {
        if (threadIdx.x < 32)
            return;
        __syncthreads();
    } else if (D == TWO_PLACES) {
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
    } else if (D == LANE_MISSING) {
        if (threadIdx.x % 32 != 5)
            __syncwarp();
        __syncthreads();
    } else if (threadIdx.x % 32 != 5) {
        *out = __shfl_sync(~0u, 1, 5);
    }
}

void divergent_barriers_are_named_not_hung(void)
{
    int *out = device<int>(1);
    auto run = [&](auto kernel) {
        return [=] {
            launch_kernel(&err, shape("diverge", 1, 64), kernel, out);
            return cudaDeviceSynchronize() == cudaSuccess;
        };
    };
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        emu_set_seed(seed);
        expect_death("exited", "barrier", run(diverge<EXITED>));
        expect_death("two places", "while others wait at", run(diverge<TWO_PLACES>));
        expect_death("lane missing", "deadlock in kernel diverge", run(diverge<LANE_MISSING>));
        expect_death("lane gone", "kernel diverge", run(diverge<LANE_GONE>));
    }
    cudaFree(out);
}

// ---- warp operations ----

__global__ void warp_operations(uint32_t *out)
{
    unsigned t = threadIdx.x, lane = t % 32;
    uint32_t *o = out + t * 16;
    uint32_t v = lane * lane + 7;
    o[0] = __shfl_sync(~0u, v, (int)(lane * 5 % 32));
    o[1] = __shfl_up_sync(~0u, v, 3, 8);
    o[2] = __shfl_down_sync(~0u, v, 3, 16);
    o[3] = __shfl_xor_sync(~0u, v, 9);
    o[4] = __ballot_sync(~0u, lane % 3 == 0);
    o[5] = (uint32_t)__any_sync(~0u, lane == 31);
    o[6] = (uint32_t)__all_sync(~0u, lane < 31);
    o[7] = __match_any_sync(~0u, lane % 4);
    o[8] = __reduce_add_sync(~0u, v);
    o[9] = (uint32_t)__reduce_min_sync(~0u, (int)lane - 16);
    o[10] = __reduce_max_sync(~0u, v);
    o[11] = __reduce_or_sync(~0u, 1u << (lane / 2));
    o[12] = 0;
    if (lane < 7) // half a warp on its own
        o[12] = __reduce_add_sync(0x7Fu, v);
    double d = __shfl_xor_sync(~0u, (double)lane + 0.5, 1);
    o[13] = (uint32_t)(d * 2);
    o[14] = (uint32_t)__syncthreads_count(t % 5 == 0);
    o[15] = __shfl_sync(~0u, v, 3, 4);
}

bool warp_operations_are_right(void)
{
    uint32_t *out = device<uint32_t>(64 * 16);
    must(launch_kernel(&err, shape("warp", 1, 64), warp_operations, out));
    std::vector<uint32_t> got = host(out, 64 * 16);
    cudaFree(out);
    auto v = [](uint32_t lane) { return lane * lane + 7; };
    uint32_t sum = 0, sum7 = 0, thirds = 0;
    for (uint32_t l = 0; l < 32; l++) {
        sum += v(l);
        sum7 += l < 7 ? v(l) : 0;
        thirds |= (uint32_t)(l % 3 == 0) << l;
    }
    bool ok = true;
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t l = t % 32;
        const uint32_t want[16] = {v(l * 5 % 32),
                                   l % 8 >= 3 ? v(l - 3) : v(l),
                                   l % 16 + 3 < 16 ? v(l + 3) : v(l),
                                   v(l ^ 9),
                                   thirds,
                                   1,
                                   0,
                                   0x11111111u << (l % 4),
                                   sum,
                                   (uint32_t)-16,
                                   v(31),
                                   0xFFFF,
                                   l < 7 ? sum7 : 0,
                                   (l ^ 1) * 2 + 1,
                                   13,
                                   v((l & ~3u) + 3)};
        for (int i = 0; i < 16; i++)
            ok &= check(got[t * 16 + (uint32_t)i] == want[i], "thread %u operation %d: %u, want %u",
                        t, i, got[t * 16 + (uint32_t)i], want[i]);
    }
    return ok;
}

void warp_operations_follow_the_guide(void)
{
    expect_right("warp operations", warp_operations_are_right);
}

// One warp multiplies A (16 x k, row-major) by B^T (8 x k, row-major) as the PTX guide shows:
// ldmatrix for both, k = 16 of 16-bit or 32 of 8-bit elements: 32 bytes a row.
enum matrix_type { F16, BF16, S8 };

template <int TYPE> __global__ void multiply(const uint4 *a, const uint4 *b, float *d)
{
    __shared__ uint4 sa[32], sb[16];
    unsigned t = threadIdx.x;
    sa[t] = a[t];
    if (t < 16)
        sb[t] = b[t];
    __syncwarp();
    uint32_t fa[4], fb[2];
    ldmatrix_x4(fa, &sa[(t % 16) * 2 + t / 16]);
    ldmatrix_x2(fb, &sb[t % 8 * 2 + t / 8 % 2]);
    float f[4] = {0, 0, 0, 0};
    int32_t i[4] = {0, 0, 0, 0};
    if (TYPE == F16)
        mma_f16(f, fa, fb);
    else if (TYPE == BF16)
        mma_bf16(f, fa, fb);
    else
        mma_s8(i, fa, fb);
    for (int r = 0; r < 4; r++)
        d[(t / 4 + 8 * (r / 2)) * 8 + t % 4 * 2 + r % 2] = TYPE == S8 ? (float)i[r] : f[r];
}

template <int TYPE> void check_multiply(void)
{
    const int k = TYPE == S8 ? 32 : 16;
    std::vector<unsigned char> a(16 * 32), b(8 * 32);
    std::vector<float> fa(16 * k), fb(8 * k);
    emu_rng rng = {42};
    auto fill = [&](std::vector<unsigned char> &bytes, std::vector<float> &f) {
        for (size_t i = 0; i < f.size(); i++) {
            f[i] = (float)((int)rng.below(255) - 127);
            if (TYPE == S8) {
                bytes[i] = (unsigned char)(int)f[i];
            } else {
                uint16_t h = TYPE == F16 ? __half(f[i]).bits : __nv_bfloat16(f[i]).bits;
                memcpy(&bytes[i * 2], &h, 2);
            }
        }
    };
    fill(a, fa);
    fill(b, fb);
    unsigned char *da = device(a), *db = device(b);
    float *dd = device<float>(128);
    must(launch_kernel(&err, shape("multiply", 1, 32), multiply<TYPE>, (const uint4 *)da,
                       (const uint4 *)db, dd));
    std::vector<float> d = host(dd, 128);
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 8; col++) {
            float want = 0;
            for (int l = 0; l < k; l++)
                want += fa[(size_t)(row * k + l)] * fb[(size_t)(col * k + l)];
            check(d[(size_t)(row * 8 + col)] == want, "type %d (%d, %d): %g, want %g", TYPE, row,
                  col, (double)d[(size_t)(row * 8 + col)], (double)want);
        }
    cudaFree(da);
    cudaFree(db);
    cudaFree(dd);
}

void matrix_fragments_multiply(void)
{
    check_multiply<F16>();
    check_multiply<BF16>();
    check_multiply<S8>();
}

// ---- asynchronous copies ----

template <bool WAIT> __global__ void copy_async(const uint4 *x, uint4 *y)
{
    __shared__ uint4 s[2][64];
    unsigned t = threadIdx.x;
    for (unsigned i = 0; i < 2; i++) {
        cp_async16(&s[i][t], x + i * 64 + t);
        cp_async_commit();
    }
    if (WAIT)
        cp_async_wait<1>();
    __syncthreads();
    y[t] = s[0][63 - t];
    if (WAIT)
        cp_async_wait<0>();
    __syncthreads();
    y[64 + t] = s[1][63 - t];
    cp_async_wait<0>();
}

template <bool WAIT> bool copy_async_is_right(void)
{
    std::vector<uint4> x(128);
    for (unsigned i = 0; i < 128; i++)
        x[i] = make_uint4(i, i + 1, i + 2, i + 3);
    uint4 *dx = device(x), *dy = device<uint4>(128);
    must(launch_kernel(&err, shape("copy_async", 1, 64), copy_async<WAIT>, dx, dy));
    std::vector<uint4> y = host(dy, 128);
    cudaFree(dx);
    cudaFree(dy);
    bool ok = true;
    for (unsigned i = 0; i < 128; i++)
        ok &= y[i].x == i / 64 * 64 + 63 - i % 64;
    return ok;
}

void asynchronous_copy_needs_its_wait(void)
{
    expect_right("with waits", copy_async_is_right<true>);
    expect_caught("without waits", copy_async_is_right<false>);
}

__global__ void copy_and_return(const uint4 *x)
{
    __shared__ uint4 s[64];
    cp_async16(&s[threadIdx.x], x + threadIdx.x);
    cp_async_wait<0>(); // of what is committed
}

void a_copy_is_committed_and_waited_for(void)
{
    expect_death("cp.async", "returns before 1 asynchronous copies", [] {
        uint4 *x = device(std::vector<uint4>(64));
        must(launch_kernel(&err, shape("copy_and_return", 1, 64), copy_and_return, x));
        return cudaDeviceSynchronize() == cudaSuccess;
    });
}

// A source that somebody writes while the copy is under way.
__global__ void copy_while_it_changes(uint4 *x, uint4 *y)
{
    __shared__ uint4 s[64];
    cp_async16(&s[threadIdx.x], x + threadIdx.x);
    cp_async_commit();
    x[threadIdx.x].x++;
    cp_async_wait<0>();
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}

void a_copy_s_source_must_not_change(void)
{
    expect_death("cp.async", "changed while", [] {
        uint4 *x = device(std::vector<uint4>(64)), *y = device<uint4>(64);
        must(launch_kernel(&err, shape("copy", 1, 64), copy_while_it_changes, x, y));
        return host(y, 64).size() == 64;
    });
}

// ---- bulk copies and products of a warpgroup

enum mistake {
    NO_MISTAKE,
    NO_WAIT_FOR_FULL,
    WAIT_FOR_THE_PHASE_BEFORE,
    NO_WAIT_FOR_EMPTY,
    FREED_TOO_EARLY,
    NO_INIT_DONE,
    NO_BARRIER_AFTER_INIT,
    NOBODY_WAITS_FOR_THE_LAST,
    SOURCE_CHANGES,
    NO_BEGIN,
    WAIT_TOO_LENIENT,
    NO_LAST_WAIT,
};

// Two warps turn n pieces around that come through a ring of two slots.
template <mistake E> __global__ void bulk_ring(uint4 *x, uint4 *y, uint32_t n)
{
    __shared__ __align__(16) uint4 slot[2][32];
    __shared__ uint64_t full[2], empty[2];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto feed = [&](uint32_t i) {
        mbar_arrive_expect(&full[i % 2], sizeof slot[0]);
        bulk_copy(slot[i % 2], x + i * 32, sizeof slot[0], &full[i % 2]);
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(&full[i], 1);
            mbar_init(&empty[i], 2);
        }
        if (E != NO_INIT_DONE)
            mbar_init_done();
        feed(0);
        feed(1);
    }
    if (E != NO_BARRIER_AFTER_INIT)
        __syncthreads();
    if (E == SOURCE_CHANGES)
        x[threadIdx.x].x++;
    for (uint32_t i = 0; i < n; i++) {
        if (E != NO_WAIT_FOR_FULL)
            mbar_wait(&full[i % 2], (i / 2 + (E == WAIT_FOR_THE_PHASE_BEFORE)) % 2);
        if (E == FREED_TOO_EARLY && lane == 0)
            mbar_arrive(&empty[i % 2]);
        __syncwarp();
        uint4 v = slot[i % 2][31 - lane];
        __syncwarp();
        y[(i * 2 + warp) * 32 + lane] = v;
        if (E != FREED_TOO_EARLY && lane == 0)
            mbar_arrive(&empty[i % 2]);
        if (threadIdx.x == 0 && i + 2 < n + (E == NOBODY_WAITS_FOR_THE_LAST)) {
            if (E != NO_WAIT_FOR_EMPTY)
                mbar_wait(&empty[i % 2], i / 2 % 2);
            feed(i + 2);
        }
    }
}

template <mistake E> bool bulk_ring_is_right(void)
{
    const uint32_t n = 6;
    std::vector<uint4> x((n + 1) * 32);
    for (uint32_t i = 0; i < x.size(); i++)
        x[i] = make_uint4(i, i + 1, i + 2, i + 3);
    uint4 *dx = device(x), *dy = device<uint4>(n * 64);
    must(launch_kernel(&err, shape("bulk_ring", 1, 64), bulk_ring<E>, dx, dy, n));
    std::vector<uint4> y = host(dy, n * 64);
    cudaFree(dx);
    cudaFree(dy);
    bool ok = true;
    for (uint32_t i = 0; i < n * 64; i++)
        ok &= y[i].x == i / 64 * 32 + 31 - i % 32 && y[i].w == y[i].x + 3;
    return ok;
}

void bulk_copies_need_their_barriers(void)
{
    expect_right("a ring", bulk_ring_is_right<NO_MISTAKE>);
    expect_caught("no wait for the copy", bulk_ring_is_right<NO_WAIT_FOR_FULL>);
    expect_caught("a wait for the phase before", bulk_ring_is_right<WAIT_FOR_THE_PHASE_BEFORE>);
    expect_caught("no wait for the readers", bulk_ring_is_right<NO_WAIT_FOR_EMPTY>);
    expect_caught("freed too early", bulk_ring_is_right<FREED_TOO_EARLY>);
    expect_caught("used by others at once", bulk_ring_is_right<NO_BARRIER_AFTER_INIT>);
    expect_death("not published", "before mbar_init_done()", bulk_ring_is_right<NO_INIT_DONE>);
    expect_death("a copy too many", "bulk copies are under way",
                 bulk_ring_is_right<NOBODY_WAITS_FOR_THE_LAST>);
    expect_death("a source that changes", "changed while", bulk_ring_is_right<SOURCE_CHANGES>);
}

float wgmma_a(uint32_t row, uint32_t k)
{
    return (float)((row * 3 + k * 5) % 11) - 5;
}

float wgmma_b(uint32_t k, uint32_t col)
{
    return (float)((k * 7 + col * 2) % 9) - 4;
}

// D (64, 64) = A (64, 64) B (64, 64) in steps of 16, at most two of them under way.
template <mistake E> __global__ void multiply_64(float *out)
{
    __shared__ __align__(1024) uint8_t b[64 * 128];
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
        uint32_t col = i / 64, k = i % 64;
        __half v = __float2half_rn(wgmma_b(k, col));
        memcpy(b + col * 128 + (k / 8 ^ col % 8) * 16 + k % 8 * 2, &v, sizeof v);
    }
    __syncthreads();
    float d[32] = {};
    uint32_t a[2][4];
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t r = 0; r < 4; r++) {
            uint32_t row = 16 * warp + g + 8 * (r & 1), k = 16 * step + 2 * t + 8 * (r >> 1);
            a[step % 2][r] = saturated_half2(wgmma_a(row, k), wgmma_a(row, k + 1));
        }
        if (E != NO_BEGIN)
            wgmma_begin();
        wgmma_f16<64>(d, a[step % 2], wgmma_tile_at(wgmma_tile(b), 32 * step), true);
        wgmma_commit();
        wgmma_wait<(E == WAIT_TOO_LENIENT ? 2 : 1)>();
    }
    if (E != NO_LAST_WAIT)
        wgmma_wait<0>();
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t row = 16 * warp + g + 8 * (i % 4 / 2), col = 8 * (i / 4) + 2 * t + i % 2;
        out[row * 64 + col] = d[i];
    }
    wgmma_wait<0>();
}

template <mistake E> bool multiply_64_is_right(void)
{
    float *out = device<float>(64 * 64);
    must(launch_kernel(&err, shape("multiply_64", 1, 128), multiply_64<E>, out));
    std::vector<float> got = host(out, 64 * 64);
    cudaFree(out);
    bool ok = true;
    for (uint32_t i = 0; i < 64 * 64; i++) {
        float want = 0;
        for (uint32_t k = 0; k < 64; k++)
            want += wgmma_a(i / 64, k) * wgmma_b(k, i % 64);
        ok &= got[i] == want;
    }
    return ok;
}

// The same with A from a tile, and with 128 columns of a B whose rows are rows of two panels.
template <bool ACROSS> __global__ void multiply_tiles(float *out)
{
    constexpr int N = ACROSS ? 128 : 64, PANEL = 64 * 128;
    __shared__ __align__(1024) uint8_t a[64 * 128], b[N * 128];
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto put = [](uint8_t *tile, uint32_t row, uint32_t at, float v) {
        const __half h = __float2half_rn(v);
        memcpy(tile + row * 128 + (at / 8 ^ row % 8) * 16 + at % 8 * 2, &h, sizeof h);
    };
    for (uint32_t i = threadIdx.x; i < 64 * 64; i += blockDim.x)
        put(a, i / 64, i % 64, wgmma_a(i / 64, i % 64));
    for (uint32_t i = threadIdx.x; i < 64 * N; i += blockDim.x) {
        const uint32_t k = i / N, col = i % N;
        if (ACROSS)
            put(b + col / 64 * PANEL, k, col % 64, wgmma_b(k, col));
        else
            put(b, col, k, wgmma_b(k, col));
    }
    __syncthreads();
    float d[N / 2] = {};
    uint32_t r[4][4];
    wgmma_begin();
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t row = 16 * warp + g + 8 * (i & 1), k = 16 * step + 2 * t + 8 * (i >> 1);
            r[step][i] = saturated_half2(wgmma_a(row, k), wgmma_a(row, k + 1));
        }
        if constexpr (ACROSS)
            wgmma_f16<N, true>(d, r[step],
                               wgmma_tile_at(wgmma_tile_across(b, PANEL), step * 16 * 128), true);
        else
            wgmma_f16_tiles<N>(d, wgmma_tile_at(wgmma_tile(a), 32 * step),
                               wgmma_tile_at(wgmma_tile(b), 32 * step), step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    for (uint32_t i = 0; i < N / 2; i++) {
        uint32_t row = 16 * warp + g + 8 * (i % 4 / 2), col = 8 * (i / 4) + 2 * t + i % 2;
        out[row * N + col] = d[i];
    }
}

template <bool ACROSS> bool multiply_tiles_is_right(void)
{
    constexpr uint32_t N = ACROSS ? 128 : 64;
    float *out = device<float>(64 * N);
    must(launch_kernel(&err, shape("multiply_tiles", 1, 128), multiply_tiles<ACROSS>, out));
    std::vector<float> got = host(out, 64 * N);
    cudaFree(out);
    bool ok = true;
    for (uint32_t i = 0; i < 64 * N; i++) {
        float want = 0;
        for (uint32_t k = 0; k < 64; k++)
            want += wgmma_a(i / N, k) * wgmma_b(k, i % N);
        ok &= got[i] == want;
    }
    return ok;
}

void products_of_a_warpgroup_need_their_waits(void)
{
    expect_right("both from tiles", multiply_tiles_is_right<false>);
    expect_right("across a tile", multiply_tiles_is_right<true>);
    expect_right("with waits", multiply_64_is_right<NO_MISTAKE>);
    expect_caught("operands overwritten too early", multiply_64_is_right<WAIT_TOO_LENIENT>);
    expect_caught("sums read too early", multiply_64_is_right<NO_LAST_WAIT>);
    expect_death("no wgmma_begin()", "without wgmma_begin()", multiply_64_is_right<NO_BEGIN>);
}

// ---- grids ----

__global__ void last_block(const float *x, float *part, unsigned *counter, float *out)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    if (threadIdx.x == 0) {
        float s = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            s += part[i];
        *out = s;
        *counter = 0;
    }
}

void last_block_sees_all_others(void)
{
    expect_right("last block", [] {
        std::vector<float> x(100, 1.0f);
        float *dx = device(x), *part = device<float>(100), *out = device<float>(1);
        unsigned *counter = device(std::vector<unsigned>(1, 0));
        for (int i = 0; i < 2; i++)
            must(launch_kernel(&err, shape("last", 100, 64), last_block, dx, part, counter, out));
        bool ok = host(out, 1)[0] == 100 && host(counter, 1)[0] == 0;
        cudaFree(dx);
        cudaFree(part);
        cudaFree(out);
        cudaFree(counter);
        return ok;
    });
}

// Every thread leaves something; thread 0 counts its block. The last block adds up, or all do
// (SHARE) when all, or all but MISSING, have come.
template <bool BARRIER, bool SHARE, unsigned MISSING>
__global__ void blocks_meet(float *part, unsigned *counter, float *out)
{
    __shared__ bool go_on;
    const unsigned n = gridDim.x;
    part[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    if (BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        go_on = atomicAdd(counter, 1u) == n - 1 || SHARE;
        while (SHARE && ld_acquire_gpu(counter) < n - MISSING) {
        }
        __threadfence();
    }
    __syncthreads();
    if (!go_on || threadIdx.x != 0)
        return;
    float sum = 0;
    for (unsigned i = 0; i < n * blockDim.x; i++)
        sum += __ldcg(&part[i]);
    out[SHARE ? blockIdx.x : 0] = sum;
}

template <bool BARRIER, bool SHARE, unsigned MISSING> bool blocks_meet_well(void)
{
    const unsigned n = 6, threads = 64;
    bool ok = true;
    for (int run = 0; run < 8; run++) {
        float *part = device<float>(n * threads), *out = device<float>(n);
        unsigned *counter = device(std::vector<unsigned>(1, 0));
        must(launch_kernel(&err, shape("meet", n, threads), blocks_meet<BARRIER, SHARE, MISSING>,
                           part, counter, out));
        for (float v : host(out, SHARE ? n : 1))
            ok &= v == n * threads;
        cudaFree(part);
        cudaFree(out);
        cudaFree(counter);
    }
    return ok;
}

void blocks_that_do_not_wait_for_all_show(void)
{
    expect_right("the last block", blocks_meet_well<true, false, 0>);
    expect_right("all blocks", blocks_meet_well<true, true, 0>);
    expect_caught("counted before all threads are done", blocks_meet_well<false, false, 0>);
    expect_caught("counted before all threads are done", blocks_meet_well<false, true, 0>);
    expect_caught("one block is not waited for", blocks_meet_well<true, true, 1>);
}

// A barrier across the grid: every block waits until all have arrived, `rounds` times.
// Instance 1 keeps its shared memory where every kernel may, the others where only they do.
uint32_t *of_all(void)
{
    __shared__ uint32_t x[32];
    return x;
}
template <int N> __global__ void meet_kernel(uint32_t *counter, int rounds, uint32_t *out)
{
    __shared__ uint32_t own[32];
    uint32_t *mine = N == 1 ? of_all() : own;
    for (int r = 0; r < rounds; r++) {
        mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x + (unsigned)r;
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(counter, 1u);
            while (ld_acquire_gpu(counter) < gridDim.x * (unsigned)(r + 1))
                ptx_nanosleep(20);
        }
        __syncthreads();
    }
    // Shared memory is still this block's own after the others have run.
    out[blockIdx.x * 32 + threadIdx.x] = mine[31 - threadIdx.x];
}

void blocks_can_wait_for_each_other_when_resident(void)
{
    expect_right("grid barrier", [] {
        uint32_t *counter = device(std::vector<uint32_t>(1, 0)), *out = device<uint32_t>(32 * 8);
        must(launch_kernel(&err, shape("grid", 8, 32, 0, nullptr, false, true), meet_kernel<0>,
                           counter, 3, out));
        std::vector<uint32_t> got = host(out, 32 * 8);
        bool ok = true;
        for (uint32_t i = 0; i < 32 * 8; i++)
            ok &= got[i] == i / 32 * 100 + 31 - i % 32 + 2;
        cudaFree(counter);
        cudaFree(out);
        return ok;
    });
    expect_death("waiting for ever", "poll for ever", [] {
        uint32_t *counter = device(std::vector<uint32_t>(1, 0)), *out = device<uint32_t>(32);
        launch_kernel(&err, shape("grid", 200, 32), meet_kernel<0>, counter, 1, out);
        return cudaDeviceSynchronize() == cudaSuccess;
    });
    struct error e = {};
    check(!launch_kernel(&e, shape("grid", 1000, 32, 0, nullptr, false, true), meet_kernel<0>,
                         (uint32_t *)nullptr, 1, (uint32_t *)nullptr) &&
              strstr(e.text, "too many blocks"),
          "a cooperative launch of 1000 blocks: %s", e.text);
}

__global__ void count_threads(uint32_t *counter)
{
    atomicAdd(counter, 1u);
}

// Linux lets a process have 65,530 mappings, and a stack takes two.
void threads_that_have_ended_leave_their_stacks(void)
{
    check(emu_n_stacks() == 0, "not the first test to run a kernel");
    uint32_t *counter = device(std::vector<uint32_t>(2, 0)), *out = device<uint32_t>(32 * 8);
    for (int i = 0; i < 8; i++) {
        must(CHECK_CUDA(cudaMemset(counter, 0, sizeof *counter), &err));
        must(launch_kernel(&err, shape("grid", 8, 32, 0, nullptr, false, true), meet_kernel<0>,
                           counter, 1, out));
        must(launch_kernel(&err, shape("count", 1, 1024), count_threads, counter + 1));
        must(CHECK_CUDA(cudaDeviceSynchronize(), &err));
    }
    check(emu_n_stacks() == 1024, "1,024 threads at a time, %zu stacks", emu_n_stacks());
    cudaFree(counter);
    cudaFree(out);
}

// Blocks that wait for each other, in two streams at once. Each grid has room when it is alone.
bool two_grids_wait(bool cooperative, int first = 0,
                    void (*second)(uint32_t *, int, uint32_t *) = meet_kernel<0>)
{
    cudaStream_t s[2];
    uint32_t *counter[2], *out[2];
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
        counter[i] = device(std::vector<uint32_t>(1, 0));
        out[i] = device<uint32_t>(32 * 6);
    }
    for (int i = 0; i < 2; i++)
        must(launch_kernel(&err, shape("grid", 6, 32, 0, s[i], false, cooperative),
                           i == first ? meet_kernel<0> : second, counter[i], 3, out[i]));
    for (int i = 0; i < 2; i++) {
        cudaStreamSynchronize(s[i]);
        std::vector<uint32_t> got = host(out[i], 32 * 6);
        for (uint32_t k = 0; k < 32 * 6; k++)
            ok &= got[k] == k / 32 * 100 + 31 - k % 32 + 2;
        cudaFree(counter[i]);
        cudaFree(out[i]);
        cudaStreamDestroy(s[i]);
    }
    return ok;
}

void kernels_of_two_streams_share_the_room(void)
{
    expect_right("cooperative", [] { return two_grids_wait(true); });
    expect_right("of different kernels", [] { return two_grids_wait(true, 0, meet_kernel<2>); });
    expect_right("of different kernels, one with a helper's shared memory",
                 [] { return two_grids_wait(true, 1, meet_kernel<1>); });
    expect_right("of a kernel with a helper's shared memory",
                 [] { return two_grids_wait(true, -1, meet_kernel<1>); });
    expect_death("not cooperative", "blocks of 2 kernels at a time poll for ever", [] {
        for (uint64_t seed = 1; seed < N_SEEDS; seed++) {
            emu_set_seed(seed);
            two_grids_wait(false);
        }
        return true;
    });
}

__global__ void nothing(void)
{
}

void illegal_launches_are_refused(void)
{
    const struct {
        launch l;
        const char *why;
    } cases[] = {
        {shape("big block", 1, 1025), "invalid configuration"},
        {shape("no block", 0, 32), "invalid configuration"},
        {shape("no thread", 1, 0), "invalid configuration"},
        {shape("too much shared memory", 1, 32, 227 * 1024 + 1), "invalid argument"},
        {{"tall grid", dim3(1, 65536), dim3(1), 0, nullptr, false, false}, "invalid configuration"},
    };
    for (auto &c : cases) {
        struct error e = {};
        check(!launch_kernel(&e, c.l, nothing) && strstr(e.text, c.why) && strstr(e.text, c.l.name),
              "%s: %s", c.l.name, e.text);
    }
    must(launch_kernel(&err, shape("most shared memory", 1, 32, 227 * 1024), nothing));
    must(CHECK_CUDA(cudaDeviceSynchronize(), &err));
}

// ---- streams, events, graphs ----

__global__ void add(const int *x, int *y, int v)
{
    *y = *x + v;
}

void missing_synchronisation_shows(void)
{
    auto pinned_read = [](bool wait) {
        cudaStream_t s;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        int *x = device(std::vector<int>(1, 5)), *h;
        cudaMallocHost(&h, sizeof *h);
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 1);
        cudaMemcpyAsync(h, x, sizeof *h, cudaMemcpyDeviceToHost, s);
        if (wait)
            cudaStreamSynchronize(s);
        bool ok = *h == 6;
        cudaStreamDestroy(s);
        cudaFree(x);
        cudaFreeHost(h);
        return ok;
    };
    expect_right("with", [&] { return pinned_read(true); });
    expect_caught("without", [&] { return pinned_read(false); });
}

void events_order_streams(void)
{
    auto two_streams = [](bool event) {
        cudaStream_t a, b;
        cudaEvent_t e;
        cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        int *x = device(std::vector<int>(1, 5)), *y = device(std::vector<int>(1, 0));
        for (int i = 0; i < 5; i++)
            launch_kernel(&err, shape("add", 1, 1, 0, a), add, x, x, 1);
        cudaEventRecord(e, a);
        if (event)
            cudaStreamWaitEvent(b, e);
        launch_kernel(&err, shape("add", 1, 1, 0, b), add, x, y, 1);
        cudaStreamSynchronize(b);
        bool ok = host(y, 1)[0] == 11;
        cudaEventDestroy(e);
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaFree(x);
        cudaFree(y);
        return ok;
    };
    expect_right("with an event", [&] { return two_streams(true); });
    expect_caught("without", [&] { return two_streams(false); });
}

// What was made on one device is used while another is the current one.
void a_stream_belongs_to_its_device(void)
{
    cudaStream_t s;
    cudaEvent_t e;
    int *x = device(std::vector<int>(1, 5));
    struct error refused = {};
    size_t before[2], after[2], n_total;
    must(CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), &err));
    must(CHECK_CUDA(cudaEventCreate(&e), &err));
    check(cudaSetDevice(EMU_DEVICES) == cudaErrorInvalidDevice, "a device too many");
    must(CHECK_CUDA(cudaSetDevice(1), &err));
    check(!launch_kernel(&refused, shape("add", 1, 1, 0, s), add, x, x, 1) &&
              strstr(refused.text, "invalid resource handle"),
          "a launch: %s", refused.text);
    check(cudaMemsetAsync(x, 0, sizeof *x, s) == cudaErrorInvalidResourceHandle, "memset");
    cudaMemGetInfo(&before[1], &n_total);
    must(CHECK_CUDA(cudaSetDevice(0), &err));
    cudaMemGetInfo(&before[0], &n_total);
    must(CHECK_CUDA(cudaSetDevice(1), &err));
    int *y = device<int>(1000);
    cudaMemGetInfo(&after[1], &n_total);
    must(CHECK_CUDA(cudaSetDevice(0), &err));
    cudaMemGetInfo(&after[0], &n_total);
    check(after[1] == before[1] - 1000 * sizeof(int) && after[0] == before[0],
          "memory is a device's own");
    must(launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 1));
    cudaStreamSynchronize(s);
    check(host(x, 1)[0] == 6, "the right device");
    cudaFree(x);
    cudaFree(y);
    cudaEventDestroy(e);
    cudaStreamDestroy(s);
}

// Device 1 sends to device 0, which waits for it.
__global__ void send_kernel(uint64_t *inbox, int n)
{
    for (int i = 0; i < n; i++)
        st_packet(inbox + i, 7u + (uint64_t)i);
}

__global__ void receive_kernel(const uint64_t *inbox, int n, const uint32_t *stop, int *n_received)
{
    for (int i = 0; i < n; i++) {
        while (ld_packet(inbox + i) != 7u + (uint64_t)i)
            if (ld_acquire_sys(stop))
                return;
        ++*n_received;
    }
}

// Reads what it has not waited for.
__global__ void hasty_kernel(const uint64_t *inbox, int n, int *n_received)
{
    (void)ld_packet(inbox);
    for (int i = 0; i < n; i++)
        *n_received += inbox[i] == 7u + (uint64_t)i;
}

enum packet_test { RECEIVED, NOT_WAITED_FOR, NEVER_SENT };

int packets_received(enum packet_test what)
{
    enum { N = 40 };
    cudaStream_t from, to;
    uint32_t *stop;
    must(CHECK_CUDA(cudaMallocHost(&stop, sizeof *stop), &err));
    *stop = what == NEVER_SENT;
    uint64_t *inbox = device(std::vector<uint64_t>(N, 0));
    int *n = device(std::vector<int>(1, 0));
    must(CHECK_CUDA(cudaStreamCreateWithFlags(&to, cudaStreamNonBlocking), &err));
    must(CHECK_CUDA(cudaSetDevice(1), &err));
    must(CHECK_CUDA(cudaStreamCreateWithFlags(&from, cudaStreamNonBlocking), &err));
    must(CHECK_CUDA(cudaSetDevice(0), &err));
    auto send = [&] {
        must(CHECK_CUDA(cudaSetDevice(1), &err));
        if (what != NEVER_SENT)
            must(launch_kernel(&err, shape("send", 1, 1, 0, from), send_kernel, inbox, (int)N));
        must(CHECK_CUDA(cudaSetDevice(0), &err));
    };
    auto receive = [&] {
        must(what == NOT_WAITED_FOR
                 ? launch_kernel(&err, shape("hasty", 1, 1, 0, to), hasty_kernel, inbox, (int)N, n)
                 : launch_kernel(&err, shape("receive", 1, 1, 0, to), receive_kernel, inbox, (int)N,
                                 stop, n));
    };
    // In another thread, as the other device's work may come: then the first waits for it.
    std::thread other(send);
    receive();
    must(CHECK_CUDA(cudaStreamSynchronize(to), &err));
    other.join();
    must(CHECK_CUDA(cudaStreamSynchronize(from), &err));
    const int received = host(n, 1)[0];
    cudaStreamDestroy(from);
    cudaStreamDestroy(to);
    cudaFree(inbox);
    cudaFree(n);
    cudaFreeHost(stop);
    return received;
}

void packets_arrive_late_and_are_waited_for(void)
{
    int least = 40;
    expect_death("no peer access", "does not reach",
                 [] { return packets_received(RECEIVED) == 40; });
    must(CHECK_CUDA(cudaSetDevice(1), &err));
    check(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess, "peer access");
    check(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled, "twice");
    must(CHECK_CUDA(cudaSetDevice(0), &err));
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        emu_set_seed(seed);
        check(packets_received(RECEIVED) == 40, "seed %d: lost", (int)seed);
        check(packets_received(NEVER_SENT) == 0, "seed %d: from nowhere", (int)seed);
        const int n = packets_received(NOT_WAITED_FOR);
        least = n < least ? n : least;
    }
    check(least < 40, "what is not waited for is not always there");
}

// The shared memory that a captured launch has must still be allowed when it runs.
void a_limit_lowered_later_shows(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    const size_t n = 100 * 1024;
    auto limit = [](size_t v) {
        return cudaFuncSetAttribute((const void *)nothing,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)v);
    };
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    must(CHECK_CUDA(limit(n), &err));
    must(CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), &err));
    cudaLaunchConfig_t c = {};
    c.dynamicSmemBytes = n;
    c.stream = s;
    must(CHECK_CUDA(cudaLaunchKernelEx(&c, nothing), &err));
    must(CHECK_CUDA(cudaStreamEndCapture(s, &g), &err));
    must(CHECK_CUDA(cudaGraphInstantiate(&exec, g), &err));
    check(cudaGraphLaunch(exec, s) == cudaSuccess, "as captured");
    limit(n - 1);
    check(cudaGraphLaunch(exec, s) == cudaErrorInvalidValue, "lowered");
    limit(n);
    check(cudaGraphLaunch(exec, s) == cudaSuccess, "raised again");
    cudaStreamSynchronize(s);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(g);
    cudaStreamDestroy(s);
}

void graphs_record_and_replay(void)
{
    expect_right("graph", [] {
        cudaStream_t s;
        cudaGraph_t g;
        cudaGraphExec_t exec;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        int *x = device(std::vector<int>(1, 5)), *y = device(std::vector<int>(1, 0));
        must(CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), &err));
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 1);
        launch_kernel(&err, shape("add", 1, 1, 0, s, true), nothing);
        bool refused = cudaStreamSynchronize(s) != cudaSuccess;
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, y, 10);
        must(CHECK_CUDA(cudaStreamEndCapture(s, &g), &err));
        size_t n;
        cudaGraphGetNodes(g, nullptr, &n);
        bool ok = refused && n == 3 && host(y, 1)[0] == 0;
        cudaGraphDestroy(g);
        // The middle node is a dependent launch that never waits: replace the graph by a right one.
        must(CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), &err));
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 1);
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, y, 10);
        must(CHECK_CUDA(cudaStreamEndCapture(s, &g), &err));
        must(CHECK_CUDA(cudaGraphInstantiate(&exec, g), &err));
        cudaGraphDestroy(g);
        for (int i = 0; i < 4; i++)
            must(CHECK_CUDA(cudaGraphLaunch(exec, s), &err));
        cudaStreamSynchronize(s);
        ok &= host(x, 1)[0] == 9 && host(y, 1)[0] == 19;
        cudaGraphExecDestroy(exec);
        cudaStreamDestroy(s);
        cudaFree(x);
        cudaFree(y);
        return ok;
    });
}

// x becomes 105; beside that y becomes x + 10, of the x before if the stream waits for it in time.
enum branch { IN_TIME, AT_THE_END, NEVER, FOR_A_PART };

int captured_branch(enum branch waits)
{
    cudaStream_t s, beside;
    cudaEvent_t turn;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
    cudaEventCreate(&turn);
    int *x = device(std::vector<int>(1, 5)), *y = device(std::vector<int>(1, 0));
    auto wait_for = [&](cudaStream_t by, cudaStream_t of) {
        must(CHECK_CUDA(cudaEventRecord(turn, of), &err));
        must(CHECK_CUDA(cudaStreamWaitEvent(by, turn, 0), &err));
    };
    must(CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), &err));
    wait_for(beside, s);
    must(launch_kernel(&err, shape("add", 1, 1, 0, beside), add, x, y, 10));
    if (waits == IN_TIME || waits == FOR_A_PART)
        wait_for(s, beside);
    if (waits == FOR_A_PART)
        must(launch_kernel(&err, shape("add", 1, 1, 0, beside), add, y, y, 1));
    must(launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 100));
    if (waits == AT_THE_END)
        wait_for(s, beside);
    const cudaError_t ended = cudaStreamEndCapture(s, &g);
    int given = -1;
    if (ended == cudaSuccess) {
        must(CHECK_CUDA(cudaGraphInstantiate(&exec, g), &err));
        cudaGraphDestroy(g);
        must(CHECK_CUDA(cudaGraphLaunch(exec, s), &err));
        cudaStreamSynchronize(s);
        given = host(x, 1)[0] == 105 ? host(y, 1)[0] : -2;
        cudaGraphExecDestroy(exec);
    } else if (ended != cudaErrorStreamCaptureUnjoined || g) {
        given = -3;
    }
    cudaStreamDestroy(s);
    cudaStreamDestroy(beside);
    cudaEventDestroy(turn);
    cudaFree(x);
    cudaFree(y);
    return given;
}

void a_captured_branch_comes_when_it_is_waited_for(void)
{
    check(captured_branch(IN_TIME) == 15, "before");
    check(captured_branch(AT_THE_END) == 115, "as late as may be");
    check(captured_branch(NEVER) == -1, "a branch that never comes back");
    check(captured_branch(FOR_A_PART) == -1, "the rest of a branch that never comes back");
}

enum dependence { WAITS, READS_BEFORE, NEVER_WAITS };

template <int D> __global__ void dependent_add(const int *x, int *y)
{
    __shared__ int early[32];
    early[threadIdx.x] = D == READS_BEFORE ? x[threadIdx.x] : 0;
    if (D != NEVER_WAITS)
        griddep_wait();
    griddep_launch_dependents();
    __syncthreads();
    int v = D == READS_BEFORE ? early[31 - threadIdx.x] : x[31 - threadIdx.x];
    y[31 - threadIdx.x] = v + 1;
}

template <int D> bool dependent_launches_are_right(void)
{
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    int *x[4];
    for (int **p = x; p < x + 4; p++)
        *p = device(std::vector<int>(32, 0));
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 3; i++)
            launch_kernel(&err, shape("dependent", 1, 32, 0, s, true), dependent_add<D>, x[i],
                          x[(i + 1) % 3]);
    cudaStreamSynchronize(s);
    bool ok = host(x[0], 32)[7] == 12;
    for (int *p : x)
        cudaFree(p);
    cudaStreamDestroy(s);
    return ok;
}

// A launch may begin while the one before its predecessor runs: the predecessor lets it, and waits.
__global__ void let_through(void)
{
    griddep_launch_dependents();
    griddep_wait();
}

template <bool EARLY> __global__ void copy_after(const int *x, int *y)
{
    int v = EARLY ? *x : 0;
    griddep_launch_dependents();
    griddep_wait();
    *y = EARLY ? v : *x;
}

template <bool EARLY> bool the_launch_after_next_is_right(void)
{
    cudaStream_t s;
    bool ok = true;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    int *x = device(std::vector<int>(1, 0)), *y = device(std::vector<int>(1, 0));
    for (int i = 1; i <= 8; i++) {
        launch_kernel(&err, shape("add", 1, 1, 0, s), add, x, x, 1);
        launch_kernel(&err, shape("let through", 1, 1, 0, s, true), let_through);
        launch_kernel(&err, shape("copy", 1, 1, 0, s, true), copy_after<EARLY>, x, y);
        cudaStreamSynchronize(s);
        ok &= host(y, 1)[0] == i;
    }
    cudaFree(x);
    cudaFree(y);
    cudaStreamDestroy(s);
    return ok;
}

void dependent_launches_must_wait_before_they_read(void)
{
    expect_right("waits for two", the_launch_after_next_is_right<false>);
    expect_caught("reads what the launch before its predecessor writes",
                  the_launch_after_next_is_right<true>);
    expect_right("waits", dependent_launches_are_right<WAITS>);
    expect_caught("reads before", dependent_launches_are_right<READS_BEFORE>);
    expect_death("never waits", "without griddep_wait", dependent_launches_are_right<NEVER_WAITS>);
}

__global__ void publish(uint32_t *ring, int n)
{
    st_release_sys(ring, (uint32_t)n);
}

void host_can_poll_pinned_memory(void)
{
    expect_right("ring", [] {
        cudaStream_t s;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        uint32_t *ring;
        cudaMallocHost(&ring, sizeof *ring);
        host_store_release(ring, 0);
        for (int i = 1; i <= 5; i++)
            launch_kernel(&err, shape("publish", 1, 1, 0, s), publish, ring, i);
        while (host_load_acquire(ring) != 5)
            ;
        cudaStreamDestroy(s);
        cudaFreeHost(ring);
        return true;
    });
}

void memory_is_finite(void)
{
    struct error e = {};
    void *p = nullptr, *q = nullptr;
    size_t n_free, n_total;
    cudaMemGetInfo(&n_free, &n_total);
    const size_t n_code = n_total - n_free; // of the kernels that have run
    emu_set_memory(n_code + 1000);
    check(cudaMalloc(&p, 600) == cudaSuccess, "600 of 1000 bytes");
    check(!CHECK_CUDA(cudaMalloc(&q, 600), &e) && e.code == ERR_MEMORY, "code %d", (int)e.code);
    cudaMemGetInfo(&n_free, &n_total);
    check(n_free == 400 && n_total == n_code + 1000, "%zu of %zu free", n_free, n_total);
    cudaFree(p);
    emu_set_memory((size_t)8 << 30);
}

// ---- arithmetic ----

void half_conversions_agree_with_the_reference(void)
{
    for (uint32_t b = 0; b < 65536; b++) {
        float f = emu_binary16::widen((uint16_t)b), want = quant_f16_to_f32((uint16_t)b);
        check(f == want || (f != f && want != want), "f16 %04x: %g, want %g", b, (double)f,
              (double)want);
        float g = emu_bfloat16::widen((uint16_t)b), want_b = quant_bf16_to_f32((uint16_t)b);
        check(g == want_b || (g != g && want_b != want_b), "bf16 %04x", b);
        if (f == f)
            check(emu_binary16::narrow(f) == b, "f16 %04x does not come back", b);
        if (g == g)
            check(emu_bfloat16::narrow(g) == b, "bf16 %04x does not come back", b);
    }
    emu_rng rng = {7};
    for (int i = 0; i < 1000000; i++) {
        uint32_t u = (uint32_t)rng.next();
        if (i % 2)
            u = (u & 0x8FFFFFFFu) | 0x30000000u; // around the range of half
        float f = emu_bits_float(u);
        if (f == f)
            check(emu_binary16::narrow(f) == quant_f32_to_f16(f), "%a: %04x, want %04x", (double)f,
                  emu_binary16::narrow(f), quant_f32_to_f16(f));
    }
}

void integer_intrinsics(void)
{
    check(__dp4a((int)0x80FF7F01, (int)0x02030405, 100) == 100 - 256 - 3 + 508 + 5, "dp4a");
    check(__dp4a(0x80FF7F01u, 0x02030405u, 100u) == 100 + 256 + 765 + 508 + 5, "dp4a unsigned");
    check(__dp2a_lo((int)0xFFFF0003, (int)0x7F800502, 1) == 1 + 6 - 5, "dp2a lo");
    check(__dp2a_hi((int)0xFFFF0003, (int)0x7F800502, 1) == 1 - 384 - 127, "dp2a hi");
    check(__byte_perm(0x33221100, 0x77665544, 0x7250) == 0x77225500, "byte_perm");
    check(__byte_perm(0x80, 0, 0x8888) == 0xFFFFFFFFu, "byte_perm sign");
    check(__vsubss4(0x80007F01, 0x01FFFF02) == 0x80017FFF, "vsubss4 %08x",
          __vsubss4(0x80007F01, 0x01FFFF02));
    check(__brev(1) == 0x80000000u && __clz(0) == 32 && __ffs(8) == 4, "bits");
    check(__umulhi(0xFFFFFFFFu, 0xFFFFFFFFu) == 0xFFFFFFFEu, "umulhi");
    check(__float2int_rn(2.5f) == 2 && __float2int_rn(1e20f) == INT32_MAX, "float2int");
    check(__funnelshift_r(0x11223344, 0x55667788, 8) == 0x88112233, "funnelshift");
}

void cublas_multiplies(void)
{
    const int m = 5, n = 3, k = 7;
    for (int ta = 0; ta < 2; ta++)
        for (int tb = 0; tb < 2; tb++) {
            std::vector<__half> a((size_t)(m * k)), b((size_t)(k * n));
            for (size_t i = 0; i < a.size(); i++)
                a[i] = (float)(i % 11) - 5;
            for (size_t i = 0; i < b.size(); i++)
                b[i] = (float)(i % 7) - 3;
            __half *da = device(a), *db = device(b);
            float *dc = device(std::vector<float>((size_t)(m * n), 1.0f));
            cublasHandle_t h;
            cublasCreate(&h);
            float alpha = 2, beta = 3;
            check(cublasGemmEx(h, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                               n, k, &alpha, da, CUDA_R_16F, ta ? k : m, db, CUDA_R_16F, tb ? n : k,
                               &beta, dc, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
                  "gemm");
            std::vector<float> c = host(dc, (size_t)(m * n));
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    float want = 3;
                    for (int l = 0; l < k; l++)
                        want += 2 * (float)a[(size_t)(ta ? i * k + l : l * m + i)] *
                                (float)b[(size_t)(tb ? l * n + j : j * k + l)];
                    check(c[(size_t)(j * m + i)] == want, "(%d, %d)", i, j);
                }
            cublasDestroy(h);
            cudaFree(da);
            cudaFree(db);
            cudaFree(dc);
        }
}

} // namespace

int main(void)
{
    static const tap_test tests[] = {
        {"threads that have ended leave their stacks", threads_that_have_ended_leave_their_stacks},
        {"a reduction is right in every order of threads", reduction_is_right_in_every_order},
        {"a dropped barrier shows", dropped_barrier_shows},
        {"a forgotten tail shows", forgotten_tail_shows},
        {"uninitialised shared memory shows", uninitialised_shared_memory_shows},
        {"reading one past the end is caught", reading_one_past_the_end_is_caught},
        {"dynamic shared memory has its exact size", dynamic_shared_memory_has_its_exact_size},
        {"device memory is poisoned and guarded", device_memory_is_poisoned_and_guarded},
        {"a misaligned wide load is caught", misaligned_wide_load_is_caught},
        {"divergent barriers are named, not hung", divergent_barriers_are_named_not_hung},
        {"warp operations follow the guide", warp_operations_follow_the_guide},
        {"matrix fragments multiply", matrix_fragments_multiply},
        {"an asynchronous copy needs its wait", asynchronous_copy_needs_its_wait},
        {"an asynchronous copy is committed and waited for", a_copy_is_committed_and_waited_for},
        {"the source of an asynchronous copy must not change", a_copy_s_source_must_not_change},
        {"bulk copies need their barriers", bulk_copies_need_their_barriers},
        {"products of a warpgroup need their waits", products_of_a_warpgroup_need_their_waits},
        {"the last block sees all others", last_block_sees_all_others},
        {"blocks that do not wait for all others show", blocks_that_do_not_wait_for_all_show},
        {"resident blocks can wait for each other", blocks_can_wait_for_each_other_when_resident},
        {"kernels of two streams share the room", kernels_of_two_streams_share_the_room},
        {"illegal launches are refused", illegal_launches_are_refused},
        {"a missing synchronisation shows", missing_synchronisation_shows},
        {"events order streams", events_order_streams},
        {"a stream belongs to its device", a_stream_belongs_to_its_device},
        {"packets arrive late and are waited for", packets_arrive_late_and_are_waited_for},
        {"a limit of shared memory lowered later shows", a_limit_lowered_later_shows},
        {"graphs record and replay", graphs_record_and_replay},
        {"a captured branch comes when it is waited for",
         a_captured_branch_comes_when_it_is_waited_for},
        {"dependent launches must wait before they read",
         dependent_launches_must_wait_before_they_read},
        {"the host can poll pinned memory", host_can_poll_pinned_memory},
        {"memory is finite", memory_is_finite},
        {"half conversions agree with the reference", half_conversions_agree_with_the_reference},
        {"integer intrinsics", integer_intrinsics},
        {"cuBLAS multiplies", cublas_multiplies},
    };
    return tap_main(tests);
}
