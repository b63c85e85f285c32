// Streams, events, graphs, copies, launches. Work is queued and runs in stream order: all that is
// needed when something waits for it, and some at arbitrary calls before that, by the seed. Kernels
// of several streams run at the same time, now and then.
#include "emu_internal.h"

#include <map>
#include <mutex>
#include <set>
#include <stdlib.h>
#include <time.h>

namespace
{

constexpr uint64_t MAX_IDLE_ROUNDS = 2000;
constexpr uint64_t IDLE_ROUNDS = 8; // of kernels that wait for packets, until they are left, ...
constexpr uint64_t MAX_PAUSES = 500000; // ... that often without any progress
constexpr uint32_t HELD_FOR = 32;       // operations, in the mean
constexpr size_t EARLY_GRIDS = 3;       // dependent launches that may begin before their time

struct op {
    std::function<void()> fn;       // a copy, a host function ...
    std::shared_ptr<emu_grid> grid; // or a kernel
    emu_event *record = nullptr;    // or an event reached
    emu_event *wait = nullptr;      // or an event waited for
    uint64_t version = 0;
};

} // namespace

struct emu_event {
    int device;
    uint64_t recorded = 0, reached = 0;
    double time = 0;
    emu_graph *capture = nullptr; // recorded while this graph was captured
    emu_stream *of = nullptr;     // in this stream,
    size_t after = 0;             // when it had been given so much there
};

struct emu_graph {
    std::vector<op> ops;
    std::vector<emu_stream *> streams; // that take part in the capture
    // What others than the first were given: it comes as late as may be, when somebody waits.
    struct branch {
        std::vector<op> ops;
        size_t n_moved = 0; // of those before
    };
    std::vector<branch> beside;
};

struct emu_graph_exec {
    std::vector<op> ops;
};

struct emu_stream {
    int device = 0;
    std::deque<op> queue;
    std::shared_ptr<emu_grid> running;
    bool blocking = true;         // ordered with the default stream
    emu_graph *capture = nullptr; // being captured into this
};

namespace
{

struct device {
    std::recursive_mutex lock;
    emu_stream null_stream;
    std::vector<emu_stream *> streams;
    emu_stream *held = nullptr; // lags behind for a while: the others go first
    emu_rng rng;
    uint64_t seed = 1, n_kernels = 0;
    unsigned depth = 0;                          // of guards of the thread that has the lock
    bool running = false;                        // an operation is under way
    std::vector<emu_stream *> active;            // whose kernels have begun and not ended
    uint64_t n_left = 0;                         // times that they were left without any progress
    bool reaches[EMU_DEVICES][EMU_DEVICES] = {}; // peer access
    // Raised limits of dynamic shared memory, and what the machine allowed a block then.
    std::map<const void *, std::pair<int, size_t>> max_smem[EMU_DEVICES];
    std::set<const void *> loaded[EMU_DEVICES]; // kernels
    size_t last_smem = 0;                       // dynamic, of a block of the last launch
    unsigned n_captures = 0;
    uint64_t raise_at = 0; // when n_kernels is this,
    volatile int *raise = nullptr;
    bool fail_wait = false;
    uint64_t fail_launch[EMU_DEVICES] = {}; // 1: the next one fails; 0: none does
    bool hangs[EMU_DEVICES] = {};           // nothing that is queued goes on

    device(void)
    {
        const char *s = getenv("HOKKU_EMU_SEED");
        if (s)
            seed = strtoull(s, nullptr, 10);
        rng.state = seed;
        streams.push_back(&null_stream);
    }
};

thread_local int current_device;
thread_local const char *next_name;
thread_local cudaError_t last_error = cudaSuccess;
device *the_device; // no function-local static anywhere: see emu_shared.cpp

device &dev(void)
{
    if (!the_device)
        the_device = new device();
    return *the_device;
}

using guard = emu_guard;

// Lets other threads in.
void pause(void)
{
    device &d = dev();
    const unsigned depth = d.depth;
    d.depth = 0;
    for (unsigned i = 0; i < depth; i++)
        d.lock.unlock();
    const timespec t = {0, 20000};
    nanosleep(&t, nullptr);
    for (unsigned i = 0; i < depth; i++)
        d.lock.lock();
    d.depth = depth;
}

cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

emu_stream *resolve(cudaStream_t s)
{
    return s ? s : &dev().null_stream;
}

bool runnable(const emu_stream &s)
{
    if (s.queue.empty() || dev().hangs[s.device])
        return false;
    const op &o = s.queue.front();
    return !o.wait || o.wait->reached >= o.version;
}

// The kernel at the head of s begins. So may its successors, as far as their griddep_wait(): the
// later ones where those before let them.
void begin_kernel(emu_stream &s)
{
    device &d = dev();
    s.running = std::move(s.queue.front().grid);
    s.queue.pop_front();
    bool early = d.seed != 0;
    for (size_t i = 0; early && i < EARLY_GRIDS && i < s.queue.size(); i++) {
        emu_grid *next = s.queue[i].grid.get();
        early = next && next->dependent && !next->cooperative && d.rng.below(2) &&
                emu_grid_preamble(*next, 1 + d.rng.below(2));
    }
    emu_grid_begin(*s.running);
}

[[noreturn]] void report_stuck(const std::vector<emu_stream *> &active)
{
    for (const emu_stream *s : active) {
        const emu_grid &g = *s->running;
        fprintf(stderr, "cuda_on_cpu: kernel %s: of %zu blocks %zu have ended, %zu are resident\n",
                g.name.c_str(), g.order.size(), g.n_done, g.resident.size());
    }
    emu_die("the resident blocks of %zu kernels at a time poll for ever: a device has room for %d, "
            "and only those of a cooperative launch are sure to be resident together",
            active.size(), (int)EMU_RESIDENT);
}

// What is at the head of s, and no kernel.
void run_plain(emu_stream &s)
{
    op o = std::move(s.queue.front());
    s.queue.pop_front();
    if (o.fn)
        o.fn();
    if (o.record && o.record->reached < o.version) {
        o.record->reached = o.version;
        o.record->time = (double)clock64() * 1e-6;
    }
}

// Runs the kernels that have begun to their end, perhaps while other streams get on. False: what is
// left waits for packets of a device that has not been given its work yet.
bool run_kernels(void)
{
    device &d = dev();
    std::vector<emu_stream *> &active = d.active;
    for (uint64_t idle = 0; !active.empty();) {
        for (emu_stream *s : d.streams) {
            if ((idle == 0 && (d.seed == 0 || s == d.held)) || s->running || !runnable(*s) ||
                d.rng.below(2))
                continue;
            if (s->queue.front().grid) {
                active.push_back(s);
                begin_kernel(*s);
            } else {
                run_plain(*s);
            }
        }
        size_t i = d.rng.below((uint32_t)active.size());
        emu_grid &g = *active[i]->running;
        uint64_t seen = g.n_events;
        bool ended = emu_grid_step(g);
        idle = ended || g.n_events != seen ? 0 : idle + 1;
        bool awaits_device = false;
        for (const emu_stream *s : active)
            awaits_device |= s->running->awaits_device;
        if (idle == 0)
            d.n_left = 0;
        else if (awaits_device && idle > IDLE_ROUNDS * active.size() && d.n_left++ < MAX_PAUSES)
            return false;
        else if (idle > MAX_IDLE_ROUNDS * active.size())
            report_stuck(active);
        if (ended) {
            active[i]->running = nullptr;
            active.erase(active.begin() + (ptrdiff_t)i);
            if (++d.n_kernels == d.raise_at && d.raise) {
                *d.raise = 1;
                d.raise = nullptr;
            }
        }
    }
    return true;
}

// Goes on with the kernels that were left, if any. False: they still wait.
bool run_left(void)
{
    device &d = dev();
    d.running = true;
    emu_device_enter();
    bool ended = run_kernels();
    emu_device_leave();
    d.running = false;
    return ended;
}

// The same for who waits: other threads are let in, who may have to launch what sends the packets.
bool wait_for_left(void)
{
    if (dev().active.empty())
        return false;
    if (!run_left())
        pause();
    return true;
}

void run_head(emu_stream &s)
{
    device &d = dev();
    d.running = true;
    emu_device_enter();
    if (s.queue.front().grid) {
        d.active.push_back(&s);
        begin_kernel(s);
        run_kernels();
    } else {
        run_plain(s);
    }
    emu_device_leave();
    d.running = false;
}

// Runs one operation of some stream for which only(stream) holds; false when there is none.
template <typename F> bool run_one(F only)
{
    device &d = dev();
    if (d.running)
        emu_die("a host function on a stream must not call the runtime");
    if (d.seed != 0 && d.rng.below(HELD_FOR) == 0)
        d.held = d.streams[d.rng.below((uint32_t)d.streams.size())];
    for (bool all : {false, true}) {
        const auto may = [&](emu_stream *s) {
            return only(*s) && runnable(*s) && (all || s != d.held);
        };
        unsigned n = 0;
        for (emu_stream *s : d.streams)
            n += may(s);
        if (n == 0)
            continue;
        unsigned k = d.rng.below(n);
        for (emu_stream *s : d.streams)
            if (may(s) && k-- == 0) {
                run_head(*s);
                return true;
            }
    }
    return false;
}

bool any_stream(const emu_stream &)
{
    return true;
}

bool any_runnable(void)
{
    for (const emu_stream *s : dev().streams)
        if (runnable(*s))
            return true;
    return false;
}

// Until s is empty. Other streams run as far as needed, or by chance.
void drain(emu_stream &s)
{
    device &d = dev();
    if (s.queue.empty() && !s.running)
        return;
    emu_device_enter();
    while (!s.queue.empty() || s.running) {
        if (wait_for_left())
            continue;
        bool others = d.seed != 0 && d.rng.below(4) == 0;
        if (!others && runnable(s))
            run_head(s);
        else if (!run_one(any_stream))
            emu_die("a stream waits for an event that is never reached");
    }
    emu_device_leave();
}

void drain_blocking(void)
{
    for (size_t i = 0; i < dev().streams.size(); i++)
        if (dev().streams[i]->blocking)
            drain(*dev().streams[i]);
}

void pump(void)
{
    device &d = dev();
    if (d.running || d.seed == 0 || d.raise || d.rng.below(2)) // the device lags behind
        return;
    unsigned n = d.rng.below(4);
    if (n == 0 || (!any_runnable() && d.active.empty()))
        return;
    emu_device_enter(); // once for all
    while (n && (d.active.empty() ? run_one(any_stream) : run_left()))
        n--;
    emu_device_leave();
}

// What a stream is given while it is captured; NULL: the first one's goes into the graph.
emu_graph::branch *branch_of(emu_stream &s)
{
    emu_graph &g = *s.capture;
    for (size_t i = 1; i < g.streams.size(); i++)
        if (g.streams[i] == &s)
            return &g.beside[i];
    return nullptr;
}

std::vector<op> &captured_for(emu_stream &s)
{
    emu_graph::branch *b = branch_of(s);
    return b ? b->ops : s.capture->ops;
}

cudaError_t submit(cudaStream_t stream, op o)
{
    device &d = dev();
    emu_stream &s = *resolve(stream);
    if (d.running)
        emu_die("device work must not call the runtime");
    if (s.capture) {
        captured_for(s).push_back(std::move(o));
        return cudaSuccess;
    }
    if (&s == &d.null_stream) {
        if (d.n_captures)
            return fail(cudaErrorStreamCaptureUnsupported);
        drain_blocking();
        s.queue.push_back(std::move(o));
        drain(s);
        return cudaSuccess;
    }
    s.queue.push_back(std::move(o));
    if (d.seed == 0)
        drain(s);
    else
        pump();
    return cudaSuccess;
}

// A call that waits: not allowed on a stream that is being captured.
cudaError_t check_wait(const emu_stream &s)
{
    return s.capture ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

bool kind_fits(cudaMemcpyKind kind, emu_memory_kind dst, emu_memory_kind src)
{
    bool d = dst == EMU_MEMORY_DEVICE, s = src == EMU_MEMORY_DEVICE;
    // Pinned memory is mapped: it may also stand for device memory.
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !d && !s;
    case cudaMemcpyHostToDevice:
        return (d || dst == EMU_MEMORY_PINNED) && !s;
    case cudaMemcpyDeviceToHost:
        return !d && (s || src == EMU_MEMORY_PINNED);
    case cudaMemcpyDeviceToDevice:
        return (d || dst == EMU_MEMORY_PINNED) && (s || src == EMU_MEMORY_PINNED);
    default:
        return true;
    }
}

void copy_2d(char *dst, size_t dpitch, const char *src, size_t spitch, size_t width, size_t height)
{
    for (size_t y = 0; y < height; y++)
        memcpy(dst + y * dpitch, src + y * spitch, width);
}

cudaError_t copy(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t stream, bool sync, bool symbol)
{
    guard g;
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (height > 1 && (dpitch < width || spitch < width))
        return fail(cudaErrorInvalidValue);
    size_t nd = dpitch * (height - 1) + width, ns = spitch * (height - 1) + width;
    emu_memory_kind kd = symbol ? EMU_MEMORY_DEVICE : emu_memory_of(dst, nd);
    emu_memory_kind ks = emu_memory_of(src, ns);
    if (!kind_fits(kind, kd, ks))
        return fail(cudaErrorInvalidValue);
    op o;
    bool staged = !sync && ks == EMU_MEMORY_HOST && height == 1;
    if (staged) { // pageable memory is read at the call
        auto bytes = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + ns);
        o.fn = [=] { copy_2d((char *)dst, dpitch, bytes->data(), spitch, width, height); };
    } else {
        o.fn = [=] { copy_2d((char *)dst, dpitch, (const char *)src, spitch, width, height); };
    }
    // The target is unknown until the copy has been made.
    if (!sync && kd == EMU_MEMORY_PINNED && height == 1 && !resolve(stream)->capture &&
        dev().seed != 0)
        memset(dst, 0xFF, nd);
    cudaError_t e = submit(stream, std::move(o));
    if (e == cudaSuccess && !resolve(stream)->capture && (sync || kd == EMU_MEMORY_HOST))
        drain(*resolve(stream));
    return e;
}

} // namespace

emu_guard::emu_guard(void)
{
    dev().lock.lock();
    dev().depth++;
}

emu_guard::~emu_guard(void)
{
    dev().depth--;
    dev().lock.unlock();
}

// ---- errors and devices ----

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
        return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnjoined:
        return "cudaErrorStreamCaptureUnjoined";
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorCooperativeLaunchTooLarge:
        return "too many blocks in cooperative launch";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined:
        return "capturing stream has unjoined work";
    default:
        return "unknown error";
    }
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

bool emu_machine_has(const char *fault)
{
    const char *machine = getenv("HOKKU_EMU_MACHINE");
    return machine && strcmp(machine, fault) == 0;
}

static int n_devices(void)
{
    const char *n = getenv("HOKKU_EMU_DEVICES");
    return n && atoi(n) >= 1 && atoi(n) <= EMU_DEVICES ? atoi(n) : 2;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (emu_machine_has("no-driver") || emu_machine_has("old-driver"))
        return fail(cudaErrorInsufficientDriver);
    if (emu_machine_has("no-device"))
        return fail(cudaErrorNoDevice);
    *n = n_devices();
    return cudaSuccess;
}

// 8.6, 8.9 and 12.0 have less shared memory than 8.0, and that less than 9.0.
static void capability(int *major, int *minor)
{
    const char *text = getenv("HOKKU_EMU_CAPABILITY");
    if (!text || sscanf(text, "%d.%d", major, minor) != 2) {
        *major = 9;
        *minor = 0;
    }
}

size_t emu_sm_smem(void)
{
    int major, minor;
    capability(&major, &minor);
    int kb = major == 12 || (major == 8 && minor != 0) ? 100 : major == 8 ? 164 : 228;
    return (size_t)(major < 8 ? 64 : kb) * 1024;
}

size_t emu_block_smem(void)
{
    return emu_sm_smem() - 1024;
}

static bool is_device(int device)
{
    return device >= 0 && device < n_devices();
}

cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device))
        return fail(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

int emu_current_device(void)
{
    return current_device;
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (!is_device(device))
        return fail(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "CUDA on CPU (test emulation)");
    size_t n_free;
    cudaMemGetInfo(&n_free, &p->totalGlobalMem);
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = emu_block_smem();
    p->sharedMemPerMultiprocessor = emu_sm_smem();
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = EMU_BLOCK_THREADS;
    p->maxThreadsPerMultiProcessor = EMU_SM_THREADS;
    capability(&p->major, &p->minor);
    p->multiProcessorCount = EMU_SM_COUNT;
    p->l2CacheSize = 1 << 20;
    p->cooperativeLaunch = 1;
    p->memoryBusWidth = 64;
    p->asyncEngineCount = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr attr, int device)
{
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return e;
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *v = p.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *v = p.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *v = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *v = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *v = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *v = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *v = (int)p.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrCooperativeLaunch:
        *v = p.cooperativeLaunch;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *v = p.memoryBusWidth;
        break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        *v = 1000;
        break;
    default:
        return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int n, int device)
{
    snprintf(out, (size_t)n, "0000:00:00.0"); // of no GPU
    return is_device(device) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && !emu_machine_has("no-peers");
    return is_device(device) && is_device(peer) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    guard g;
    int can;
    cudaError_t e = cudaDeviceCanAccessPeer(&can, current_device, peer);
    if (e != cudaSuccess || !can)
        return e != cudaSuccess ? e : fail(cudaErrorPeerAccessUnsupported);
    if (dev().reaches[current_device][peer])
        return fail(cudaErrorPeerAccessAlreadyEnabled);
    dev().reaches[current_device][peer] = true;
    return cudaSuccess;
}

bool emu_reaches(int from, int to)
{
    return from == to || dev().reaches[from][to];
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = emu_machine_has("no-driver") ? 0 : emu_machine_has("old-driver") ? 12020 : 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard g;
    if (dev().n_captures)
        return fail(cudaErrorStreamCaptureUnsupported);
    for (size_t i = 0; i < dev().streams.size(); i++)
        drain(*dev().streams[i]);
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

// ---- copies ----

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
    return copy(dst, n, src, n, n, 1, kind, nullptr, true, false);
}

cudaError_t emu_copy_to_symbol(void *symbol, const void *src, size_t n)
{
    return copy(symbol, n, src, n, n, 1, cudaMemcpyHostToDevice, nullptr, true, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    return copy(dst, n, src, n, n, 1, kind, s, false, false);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind)
{
    return copy(dst, dpitch, src, spitch, width, height, kind, nullptr, true, false);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    return copy(dst, dpitch, src, spitch, width, height, kind, s, false, false);
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
    guard g;
    if (n == 0)
        return cudaSuccess;
    if (emu_memory_of(p, n) == EMU_MEMORY_HOST)
        return fail(cudaErrorInvalidValue);
    if (s && s->device != current_device)
        return fail(cudaErrorInvalidResourceHandle);
    op o;
    o.fn = [=] { memset(p, v, n); };
    return submit(s, std::move(o));
}

cudaError_t cudaMemset(void *p, int v, size_t n)
{
    return cudaMemsetAsync(p, v, n, nullptr);
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    guard g;
    *s = new emu_stream();
    (*s)->device = current_device;
    (*s)->blocking = !(flags & cudaStreamNonBlocking);
    dev().streams.push_back(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    guard g;
    drain(*s);
    std::vector<emu_stream *> &v = dev().streams;
    for (size_t i = 0; i < v.size(); i++)
        if (v[i] == s)
            v.erase(v.begin() + (ptrdiff_t)i);
    if (dev().held == s)
        dev().held = nullptr;
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    guard g;
    cudaError_t e = check_wait(*resolve(s));
    if (e == cudaSuccess && !s)
        drain_blocking();
    if (e == cudaSuccess)
        drain(*resolve(s));
    if (e == cudaSuccess && dev().fail_wait) {
        dev().fail_wait = false;
        return fail(cudaErrorLaunchFailure);
    }
    return e;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    guard g;
    cudaError_t e = check_wait(*resolve(s));
    if (e != cudaSuccess)
        return e;
    pump();
    return resolve(s)->queue.empty() && !resolve(s)->running ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    guard g;
    emu_stream &st = *resolve(s);
    if (e->capture) { // the stream joins the capture, whose order already has what it waits for
        if (st.capture && st.capture != e->capture)
            return fail(cudaErrorStreamCaptureUnsupported);
        if (!st.capture) {
            st.capture = e->capture;
            e->capture->streams.push_back(&st);
            e->capture->beside.emplace_back();
        }
        emu_graph::branch *from = branch_of(*e->of);
        if (e->of != &st && from && e->after > from->n_moved) { // what came before the record
            std::vector<op> &to = captured_for(st);
            const auto end = from->ops.begin() + (ptrdiff_t)(e->after - from->n_moved);
            to.insert(to.end(), from->ops.begin(), end);
            from->ops.erase(from->ops.begin(), end);
            from->n_moved = e->after;
        }
        return cudaSuccess;
    }
    op o;
    o.wait = e;
    o.version = e->recorded;
    return submit(s, std::move(o));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *user)
{
    guard g;
    op o;
    o.fn = [=] { fn(user); };
    return submit(s, std::move(o));
}

cudaError_t emu_enqueue(cudaStream_t s, std::function<void()> fn)
{
    guard g;
    op o;
    o.fn = std::move(fn);
    return submit(s, std::move(o));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new emu_event();
    (*e)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    guard g;
    for (size_t i = 0; i < dev().streams.size(); i++) // its records and waits must not outlive it
        if (!dev().streams[i]->capture)
            drain(*dev().streams[i]);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    guard g;
    emu_graph *capture = resolve(s)->capture;
    if (s && s->device != e->device)
        return fail(cudaErrorInvalidResourceHandle);
    e->capture = capture;
    e->of = resolve(s);
    if (capture) {
        const emu_graph::branch *b = branch_of(*e->of);
        e->after = b ? b->n_moved + b->ops.size() : 0;
        return cudaSuccess;
    }
    op o;
    o.record = e;
    o.version = ++e->recorded;
    return submit(s, std::move(o));
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    guard g;
    if (e->capture)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (e->reached == e->recorded)
        return cudaSuccess;
    emu_device_enter();
    while (e->reached < e->recorded)
        if (!wait_for_left() && !run_one(any_stream))
            emu_die("an event is waited for that is never reached");
    emu_device_leave();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    guard g;
    pump();
    return e->reached < e->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    guard g;
    if (begin->reached < begin->recorded || end->reached < end->recorded)
        return fail(cudaErrorNotReady);
    *ms = (float)(end->time - begin->time);
    return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    guard g;
    if (!s || s->capture)
        return fail(cudaErrorStreamCaptureUnsupported);
    s->capture = new emu_graph();
    s->capture->streams.push_back(s);
    s->capture->beside.emplace_back();
    dev().n_captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    guard g;
    *out = nullptr;
    if (!s || !s->capture || s->capture->streams[0] != s)
        return fail(cudaErrorInvalidValue);
    emu_graph *graph = s->capture;
    for (emu_stream *t : graph->streams)
        t->capture = nullptr;
    dev().n_captures--;
    for (const emu_graph::branch &left : graph->beside)
        if (!left.ops.empty()) { // nobody waited for it
            delete graph;
            return fail(cudaErrorStreamCaptureUnjoined);
        }
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    *status = resolve(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long)
{
    *e = new emu_graph_exec{g->ops};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

// Whether this launch is to fail.
static bool launch_fails(int device)
{
    uint64_t &n = dev().fail_launch[device];
    return n > 0 && --n == 0;
}

static size_t smem_limit(const void *kernel, int device)
{
    auto limit = dev().max_smem[device].find(kernel);
    const bool raised =
        limit != dev().max_smem[device].end() && limit->second.second == emu_block_smem();
    return raised ? (size_t)limit->second.first : 48u * 1024;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    guard g;
    if (launch_fails(resolve(s)->device))
        return fail(cudaErrorLaunchFailure);
    // A limit that was lowered since the capture holds for the captured launch, too.
    for (const op &o : e->ops)
        if (o.grid && o.grid->smem > smem_limit(o.grid->kernel, o.grid->device))
            return fail(cudaErrorInvalidValue);
    for (op o : e->ops) {
        if (o.grid) // a grid carries the state of its run: every replay has its own
            o.grid = std::make_shared<emu_grid>(*o.grid);
        resolve(s)->queue.push_back(std::move(o));
    }
    if (dev().seed == 0 || !s)
        drain(*resolve(s));
    else
        pump();
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *, size_t *n)
{
    *n = g->ops.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    delete e;
    return cudaSuccess;
}

// ---- kernels ----

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attr, int value)
{
    guard g;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value > emu_block_smem())
        return fail(cudaErrorInvalidValue);
    dev().max_smem[current_device][kernel] = {value, emu_block_smem()};
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, const void *kernel)
{
    guard g;
    *attr = cudaFuncAttributes();
    attr->maxDynamicSharedSizeBytes = (int)smem_limit(kernel, current_device);
    return emu_machine_has("no-code") ? fail(cudaErrorNoKernelImageForDevice) : cudaSuccess;
}

cudaError_t emu_occupancy(int *n_blocks, const void *, int n_threads, size_t smem)
{
    *n_blocks = emu_grid_capacity(dim3((unsigned)n_threads), smem) > 0; // EMU_RESIDENT in all
    return cudaSuccess;
}

void emu_name_next_launch(const char *name)
{
    next_name = name;
}

void emu_check_pointer(const void *p)
{
    guard g;
    if (p && emu_memory_of(p, 0) == EMU_MEMORY_HOST)
        emu_die("kernel %s: the argument %p points to ordinary host memory",
                next_name ? next_name : "?", p);
}

cudaError_t emu_launch(const cudaLaunchConfig_t &cfg, const void *kernel,
                       std::function<void()> thread)
{
    guard guard_;
    device &d = dev();
    auto g = std::make_shared<emu_grid>();
    g->name = next_name ? next_name : "?";
    next_name = nullptr;
    g->thread = std::move(thread);
    g->grid = cfg.gridDim;
    g->block = cfg.blockDim;
    g->smem = cfg.dynamicSmemBytes;
    g->kernel = kernel;
    g->device = current_device;
    g->dependent = g->cooperative = false;
    for (unsigned i = 0; i < cfg.numAttrs; i++) {
        if (cfg.attrs[i].id == cudaLaunchAttributeCooperative)
            g->cooperative = cfg.attrs[i].val.cooperative != 0;
        if (cfg.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            g->dependent = cfg.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
    if (cfg.stream && cfg.stream->device != current_device)
        return fail(cudaErrorInvalidResourceHandle);
    dim3 b = g->block, n = g->grid;
    uint64_t n_threads = (uint64_t)b.x * b.y * b.z, n_blocks = (uint64_t)n.x * n.y * n.z;
    if (n_threads == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 || n_threads > EMU_BLOCK_THREADS ||
        n_blocks == 0 || n.x > 0x7FFFFFFF || n.y > 65535 || n.z > 65535)
        return fail(cudaErrorInvalidConfiguration);
    if (n_blocks > 0xFFFFFFFFu)
        emu_die("kernel %s: %llu blocks are too many for the emulation", g->name.c_str(),
                (unsigned long long)n_blocks);
    if (g->smem > smem_limit(kernel, g->device))
        return fail(cudaErrorInvalidValue);
    if (g->cooperative && n_blocks > EMU_RESIDENT)
        return fail(cudaErrorCooperativeLaunchTooLarge);
    if (!resolve(cfg.stream)->capture && launch_fails(g->device))
        return fail(cudaErrorLaunchFailure);
    // A kernel is loaded when it is first launched.
    size_t n_free, n_total;
    cudaMemGetInfo(&n_free, &n_total);
    if (!d.loaded[g->device].count(kernel) && n_free < EMU_KERNEL_BYTES)
        return fail(cudaErrorMemoryAllocation);
    d.loaded[g->device].insert(kernel);
    d.last_smem = g->smem;
    op o;
    o.grid = std::move(g);
    return submit(cfg.stream, std::move(o));
}

// ---- the emulation itself ----

void emu_wait(void)
{
    guard g;
    if (dev().running)
        return;
    emu_device_enter();
    if (!wait_for_left() && !run_one(any_stream))
        pause();
    emu_device_leave();
}

void emu_pump(void)
{
    guard g;
    pump();
}

void emu_set_seed(uint64_t seed)
{
    guard g;
    dev().seed = seed;
    dev().rng.state = seed;
}

uint64_t emu_seed(void)
{
    return dev().seed;
}

extern "C" size_t emu_loaded_bytes(int device)
{
    return dev().loaded[device].size() * EMU_KERNEL_BYTES;
}

extern "C" size_t emu_last_smem(void)
{
    return dev().last_smem;
}

extern "C" void emu_raise_after(uint64_t n, volatile int *flag)
{
    guard g;
    dev().raise_at = dev().n_kernels + n;
    dev().raise = flag;
}

extern "C" void emu_fail_next_wait(void)
{
    guard g;
    dev().fail_wait = true;
}

extern "C" void emu_fail_launch(int device, uint64_t n)
{
    guard g;
    dev().fail_launch[device] = n;
}

extern "C" void emu_hang(int device, bool hangs)
{
    guard g;
    dev().hangs[device] = hangs;
}

extern "C" void emu_run_all(void)
{
    cudaDeviceSynchronize();
}

extern "C" uint64_t emu_kernels_run(void)
{
    return dev().n_kernels;
}
