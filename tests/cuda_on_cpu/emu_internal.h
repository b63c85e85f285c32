// Between the parts of the emulation.
#ifndef HOKKU_EMU_INTERNAL_H
#define HOKKU_EMU_INTERNAL_H

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifndef EMU_ASAN
#define EMU_ASAN 0
#endif
#define EMU_NO_ASAN __attribute__((no_sanitize("address")))

// Random numbers (splitmix64).
struct emu_rng {
    uint64_t state;
    uint64_t next(void)
    {
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    uint32_t below(uint32_t n)
    {
        return (uint32_t)((next() >> 32) * n >> 32);
    }
};
uint64_t emu_seed(void);

// Stacks of threads that there are, in use or left by threads that have ended.
size_t emu_n_stacks(void);

// The emulation is one at a time: held by whoever works in it. A thread that waits for a kernel
// which polls for another device's packets lets the others in now and then, who may have to launch
// what sends them.
struct emu_guard {
    emu_guard(void);
    ~emu_guard(void);
    emu_guard(const emu_guard &) = delete;
    emu_guard &operator=(const emu_guard &) = delete;
};

enum { EMU_DEVICES = 4 };           // at most: see HOKKU_EMU_DEVICES
int emu_current_device(void);       // of the calling thread
bool emu_reaches(int from, int to); // whether kernels of one device may store to another's memory

// One launch: what to run and how far it has come.
struct emu_block;
struct emu_grid {
    std::string name;
    std::function<void()> thread;
    dim3 grid, block;
    size_t smem;
    bool dependent, cooperative;
    int device;
    const void *kernel;
    // while it runs
    const struct emu_shared_set *shared = nullptr;
    std::vector<uint32_t> order; // of the blocks
    size_t n_started = 0, n_done = 0;
    std::vector<emu_block *> resident; // started, not finished
    bool gate_open = false;            // the predecessor has ended
    uint64_t n_events = 0;             // anything that is progress
    bool awaits_device = false;        // a thread has polled for a packet
};
// Starts up to n blocks of a dependent grid before its predecessor runs: they stop at
// griddep_wait(). Whether all of them let dependents of their own begin.
bool emu_grid_preamble(emu_grid &g, size_t n);
void emu_grid_begin(emu_grid &g); // its predecessor has ended
// Starts a block (of a cooperative grid: all), or gives every resident one a turn; true when the
// grid has ended.
bool emu_grid_step(emu_grid &g);
// Largest number of blocks of this shape that a multiprocessor has room for.
size_t emu_grid_capacity(dim3 block, size_t smem);

// Shared memory that one block may have, and that a multiprocessor has: by compute capability.
size_t emu_block_smem(void);
size_t emu_sm_smem(void);

// Whether HOKKU_EMU_MACHINE names this fault: no-driver, no-device, old-driver, no-code, no-cublas.
bool emu_machine_has(const char *fault);

enum {
    EMU_SM_COUNT = 8,
    EMU_RESIDENT = EMU_SM_COUNT, // blocks at a time, of all streams of a device
    EMU_SM_THREADS = 2048,
    EMU_BLOCK_THREADS = 1024,
    EMU_KERNEL_BYTES = 64 * 1024, // of device memory, for a kernel's code
};

// __shared__ variables (emu_shared.cpp).
struct emu_shared_set; // those that a kernel can reach
const emu_shared_set &emu_shared_of(const void *kernel);
void emu_shared_poison(const emu_shared_set &set);
void emu_shared_save(const emu_shared_set &set, std::vector<unsigned char> &image);
void emu_shared_restore(const emu_shared_set &set, const std::vector<unsigned char> &image);

// Computes the results of a warp operation; args of lanes outside mask are not to be looked at
// (emu_warp.cpp).
void emu_warp_combine(emu_warp_kind kind, unsigned mask, emu_warp_args *const args[32]);

// Queues host work on a stream (emu_stream.cpp).
cudaError_t emu_enqueue(cudaStream_t s, std::function<void()> fn);

extern "C" size_t emu_loaded_bytes(int device); // by kernels
extern "C" size_t emu_last_smem(void); // dynamic shared memory of a block of the last launch

// The n-th launch of a kernel or a graph on that device from now on fails.
extern "C" void emu_fail_launch(int device, uint64_t n);
// Nothing that is queued on that device goes on, as long as it hangs.
extern "C" void emu_hang(int device, bool hangs);

// Device memory is accessible only while the device works (emu_memory.cpp).
void emu_device_enter(void);
void emu_device_leave(void);
enum emu_memory_kind { EMU_MEMORY_HOST, EMU_MEMORY_PINNED, EMU_MEMORY_DEVICE };
bool emu_is_device(const void *p);
int emu_device_of(const void *p);                   // device memory
void emu_packets_drop(const void *begin, size_t n); // those on their way to memory that is freed
// The kind of memory that [p, p + n) is; device memory that is freed or overrun ends the test.
emu_memory_kind emu_memory_of(const void *p, size_t n);

// Prints and aborts, from host code.
[[noreturn]] void emu_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
