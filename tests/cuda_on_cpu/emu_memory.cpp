// Device and pinned memory. Device memory lies in a reserved range of addresses, each allocation
// between red zones on pages of its own, which are accessible only while the device works: host
// code that follows a device pointer stops with a segmentation fault, as it would with a GPU in the
// machine. Freed addresses are never used again.
#include "emu_internal.h"

#include <algorithm>
#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace
{

constexpr size_t PAGE = 4096, RED_ZONE = 4096, ALIGN = 256;
constexpr size_t HUGE_PAGE = (size_t)2 << 20;
constexpr size_t RANGE = (size_t)1 << 38; // reserved addresses
constexpr unsigned char CANARY = 0xFE;    // a huge number or NaN in every float format

struct allocation {
    unsigned char *pages; // accessible part
    size_t n_page_bytes, n;
    bool live;
    int device;
};

struct heap {
    unsigned char *base = nullptr;
    size_t used = 0;
    std::map<uintptr_t, allocation> device; // by address; freed ones stay
    int key = -1;                           // of protection, where the processor has such keys
    std::map<uintptr_t, size_t> zones;      // emu_red_zone's, of allocations that live
    std::map<uintptr_t, size_t> pinned;
    size_t n_in_use[EMU_DEVICES] = {}, n_total = (size_t)8 << 30;
    size_t n_of_others[EMU_DEVICES] = {}; // emu_take_memory
    int depth = 0;                        // of emu_device_enter, where there are no keys
};
thread_local int depth_here; // where there are: a key's rights are a thread's

int &depth_of(heap &h)
{
    return h.key >= 0 ? depth_here : h.depth;
}

void check_leaks(void);

heap *only_heap;

heap &the_heap(void)
{
    if (!only_heap) {
        only_heap = new heap();
        atexit(check_leaks);
    }
    return *only_heap;
}

void check_leaks(void)
{
    heap &h = the_heap();
    size_t n = 0;
    for (auto &[p, a] : h.device)
        n += a.live;
    if (n == 0 && h.pinned.empty())
        return;
    fprintf(stderr,
            "cuda_on_cpu: at exit %zu device allocations (%zu bytes) and %zu pinned ones are not "
            "freed\n",
            n, emu_memory_in_use(), h.pinned.size());
    fflush(nullptr);
    _exit(99);
}

// With keys of protection it is one instruction; without, a call for every allocation.
void protect(heap &h, bool accessible)
{
    if (h.key >= 0) {
        pkey_set(h.key, accessible ? 0 : PKEY_DISABLE_ACCESS);
        return;
    }
    for (auto &[p, a] : h.device)
        if (a.live &&
            mprotect(a.pages, a.n_page_bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
            emu_die("mprotect of device memory failed");
}

// One allocation alone, for what the emulation itself does there.
void protect(heap &h, const allocation &a, bool accessible)
{
    if (depth_of(h))
        return;
    if (h.key >= 0)
        protect(h, accessible);
    else if (mprotect(a.pages, a.n_page_bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE))
        emu_die("mprotect of device memory failed");
}

const allocation *find(const heap &h, const void *p)
{
    auto it = h.device.upper_bound((uintptr_t)p);
    if (it == h.device.begin())
        return nullptr;
    return &(--it)->second;
}

uintptr_t start_of(const allocation &a)
{
    return (uintptr_t)a.pages + a.n_page_bytes - (a.n + ALIGN - 1) / ALIGN * ALIGN;
}

void check_canary(const allocation &a)
{
    const unsigned char *end = (const unsigned char *)start_of(a) + a.n;
    for (const unsigned char *p = end; p < a.pages + a.n_page_bytes; p++)
        if (!EMU_ASAN && *p != CANARY)
            emu_die("device memory at %p was written past its end (%zu bytes, byte %td)",
                    (const void *)start_of(a), a.n, p - (const unsigned char *)start_of(a));
}

// Of an allocation that is freed.
void check_zones(heap &h, const allocation &a)
{
    auto it = h.zones.lower_bound(start_of(a));
    while (it != h.zones.end() && it->first < start_of(a) + a.n) {
        const unsigned char *zone = (const unsigned char *)it->first;
        for (size_t i = 0; i < it->second; i++)
            if (!EMU_ASAN && zone[i] != CANARY)
                emu_die(
                    "what lies before %p in an arena was written past its end (byte %zu of a red "
                    "zone of %zu)",
                    (const void *)zone, i, it->second);
        it = h.zones.erase(it);
    }
}

size_t used_on(const heap &h, int device)
{
    return h.n_in_use[device] + h.n_of_others[device] + emu_loaded_bytes(device);
}

} // namespace

void emu_device_enter(void)
{
    heap &h = the_heap();
    if (depth_of(h)++ == 0)
        protect(h, true);
}

void emu_device_leave(void)
{
    heap &h = the_heap();
    if (--depth_of(h) == 0)
        protect(h, false);
}

cudaError_t emu_malloc(void **out, size_t n)
{
    emu_guard g;
    heap &h = the_heap();
    *out = nullptr;
    if (n == 0)
        return cudaSuccess;
    int device = emu_current_device();
    if (n > h.n_total || used_on(h, device) > h.n_total - n)
        return cudaErrorMemoryAllocation;
    if (!h.base) {
        void *m = mmap(nullptr, RANGE + HUGE_PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED)
            emu_die("cannot reserve addresses for device memory");
        h.base = (unsigned char *)(((uintptr_t)m + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
        h.key = EMU_ASAN ? -1 : pkey_alloc(0, PKEY_DISABLE_ACCESS);
    }
    // (Without keys the processor takes as long to protect memory as it has pages.)
    const size_t page = n < HUGE_PAGE / 2 ? PAGE : HUGE_PAGE;
    const size_t n_page_bytes = (n + ALIGN + page - 1) / page * page;
    const size_t at = (h.used + RED_ZONE + page - 1) / page * page;
    if (at > RANGE || n_page_bytes > RANGE - at)
        emu_die("the emulation's address range is used up");
    allocation a = {h.base + at, n_page_bytes, n, true, device};
    h.used = at + n_page_bytes;
    if (pkey_mprotect(a.pages, n_page_bytes, PROT_READ | PROT_WRITE, h.key) != 0)
        emu_die("no memory for %zu bytes of device memory", n);
    if (page == HUGE_PAGE)
        madvise(a.pages, n_page_bytes, MADV_HUGEPAGE); // a wish
    protect(h, a, true);
    unsigned char *p = (unsigned char *)start_of(a), *end = a.pages + n_page_bytes;
    const size_t before = std::min(PAGE, (size_t)(p - a.pages));
    memset(p - before, CANARY, before);
    memset(p, 0xFF, n);
    memset(p + n, CANARY, (size_t)(end - p) - n);
#if EMU_ASAN
    ASAN_POISON_MEMORY_REGION(a.pages - RED_ZONE, RED_ZONE + n_page_bytes + PAGE);
    ASAN_UNPOISON_MEMORY_REGION(p, n);
#endif
    h.device[(uintptr_t)p] = a;
    h.n_in_use[device] += n;
    protect(h, a, false);
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    emu_guard g;
    cudaDeviceSynchronize();
    heap &h = the_heap();
    auto it = h.device.find((uintptr_t)p);
    if (it == h.device.end() || !it->second.live)
        emu_die("cudaFree of %p, which is not device memory or already freed", p);
    allocation &a = it->second;
    protect(h, a, true);
    check_canary(a);
    check_zones(h, a);
    protect(h, a, false);
    emu_packets_drop(p, a.n);
    a.live = false;
    h.n_in_use[a.device] -= a.n;
    mprotect(a.pages, a.n_page_bytes, PROT_NONE);
    madvise(a.pages, a.n_page_bytes, MADV_DONTNEED);
#if EMU_ASAN
    ASAN_POISON_MEMORY_REGION(a.pages, a.n_page_bytes);
#endif
    return cudaSuccess;
}

cudaError_t emu_malloc_host(void **out, size_t n)
{
    *out = nullptr;
    if (posix_memalign(out, 64, n ? n : 1) != 0)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xFF, n);
    emu_guard g;
    the_heap().pinned[(uintptr_t)*out] = n;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    if (!p)
        return cudaSuccess;
    emu_guard g;
    cudaDeviceSynchronize();
    auto it = the_heap().pinned.find((uintptr_t)p);
    if (it == the_heap().pinned.end())
        emu_die("cudaFreeHost of %p, which is not pinned memory or already freed", p);
    emu_packets_drop(p, it->second);
    the_heap().pinned.erase(it);
    free(p);
    return cudaSuccess;
}

cudaError_t emu_host_device_pointer(void **d, void *h)
{
    *d = h;
    return emu_memory_of(h, 1) == EMU_MEMORY_PINNED ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    emu_guard g;
    heap &h = the_heap();
    size_t used = used_on(h, emu_current_device());
    *n_free = used < h.n_total ? h.n_total - used : 0;
    *n_total = h.n_total;
    return cudaSuccess;
}

bool emu_is_device(const void *p)
{
    const heap &h = the_heap();
    return h.base && (uintptr_t)p - (uintptr_t)h.base < RANGE;
}

int emu_device_of(const void *p)
{
    return find(the_heap(), p)->device;
}

extern "C" void emu_take_memory(int device, long long n)
{
    emu_guard g;
    the_heap().n_of_others[device] += (size_t)n;
}

emu_memory_kind emu_memory_of(const void *p, size_t n)
{
    heap &h = the_heap();
    uintptr_t u = (uintptr_t)p;
    if (emu_is_device(p)) {
        const allocation *a = find(h, p);
        if (!a || u - start_of(*a) > a->n || n > a->n - (u - start_of(*a)))
            emu_die("[%p, + %zu) is outside of every device allocation", p, n);
        if (!a->live)
            emu_die("[%p, + %zu) is device memory that was freed", p, n);
        return EMU_MEMORY_DEVICE;
    }
    auto it = h.pinned.upper_bound(u);
    if (it != h.pinned.begin() && u - (--it)->first <= it->second) {
        if (n > it->second - (u - it->first))
            emu_die("[%p, + %zu) goes past the end of pinned memory", p, n);
        return EMU_MEMORY_PINNED;
    }
    return EMU_MEMORY_HOST;
}

// Without a sanitizer what is written there is seen when the allocation is freed.
void emu_red_zone(void *p, size_t n)
{
#if EMU_ASAN
    ASAN_POISON_MEMORY_REGION(p, n);
#else
    emu_guard g;
    const allocation &a = *find(the_heap(), p);
    protect(the_heap(), a, true);
    memset(p, CANARY, n);
    protect(the_heap(), a, false);
    the_heap().zones[(uintptr_t)p] = n;
#endif
}

void emu_set_memory(size_t n)
{
    the_heap().n_total = n;
}

size_t emu_memory_in_use(void)
{
    size_t n = 0;
    for (size_t of_device : the_heap().n_in_use)
        n += of_device;
    return n;
}
