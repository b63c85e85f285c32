// Threads, blocks and grids. The threads of a block are fibers on one operating-system thread: one
// runs until it waits at a barrier or a warp operation, then another, chosen by the seed. Blocks
// run one after another in an order given by the seed; a block whose threads all poll (emu_yield)
// or wait for the predecessor grid is set aside, with its shared memory, for another one. It stays
// resident: a device has room for a few blocks of all its streams, and the others come when one has
// ended.
#include "emu_internal.h"

#include <map>
#include <new>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#if EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace
{

constexpr size_t STACK_BYTES = EMU_ASAN ? 256 * 1024 : 64 * 1024;
constexpr size_t PAGE = 4096;

struct pending_copy {
    unsigned char *dst;
    const unsigned char *src;
    int n, n_valid;
    unsigned group;
    unsigned char before[16]; // the source at the call
};

struct pending_product {
    float *d;
    const uint32_t *a;
    const void *a_tile, *b;
    int n;
    size_t panel;
    unsigned group;
    emu_site site;
};

// A bulk copy, counted by the barrier at bar.
struct pending_bulk {
    unsigned char *dst;
    const unsigned char *src;
    std::vector<unsigned char> before;
    uint64_t *bar;
    uint64_t turn; // of the block, when it began
};

struct context { // a stack that can be switched to
#ifdef __x86_64__
    void *sp = nullptr;
#else
    ucontext_t uc;
#endif
    const void *stack_bottom = nullptr; // for the address sanitizer
    size_t stack_bytes = 0;
    void *fake_stack = nullptr;
};

struct alignas(64) fiber : emu_thread { // what every switch needs comes first
    emu_block *block;
    unsigned index; // in the block
    bool passed_gate;
    context ctx;
    std::vector<pending_copy> copies;
    unsigned n_groups; // committed cp.async groups
    std::vector<pending_product> products;
    unsigned n_product_groups; // committed
    bool may_multiply;         // wgmma_begin() since the last commit
};

struct warp_group { // lanes gathering for one operation
    unsigned mask, arrived;
    emu_warp_kind kind;
    emu_site site;
};

struct warp_state {
    unsigned n_groups = 0;
    unsigned present = 0, done = 0; // lanes that there are, and that have returned
    warp_group group[32];
    emu_warp_args *args[32] = {};
};

enum pick_mode { PICK_FIRST, PICK_LAST, PICK_RANDOM };

struct ready_lanes {
    unsigned warp, mask;
};

} // namespace

struct emu_block {
    emu_block *next_free = nullptr;
    emu_grid *grid = nullptr;
    uint3 idx = {};
    unsigned n_threads = 0, n_done = 0;
    std::vector<fiber *> fibers; // of its threads, while it is resident
    std::vector<warp_state> warps;
    // Ready threads: a ring of lanes, none of them twice.
    std::vector<ready_lanes> ring;
    unsigned head = 0, n_ready = 0; // entries
    std::vector<fiber *> yielded, gated;
    bool left = false; // other blocks come first, although threads are ready
    bool allows_dependents = false;
    pick_mode mode = PICK_FIRST;
    emu_rng rng = {};
    uint64_t lanes = 0; // random numbers for the next switches
    unsigned n_lanes = 0;
    // The barrier.
    unsigned n_waiting = 0, n_true = 0;
    int result = 0; // of the last one: read before anybody can come to the next
    emu_barrier_op op = EMU_BAR_SYNC;
    emu_site site = {};
    // The barrier of some threads: who waits, how often they met.
    unsigned n_some = 0;
    uint64_t n_some_met = 0;
    // Bulk copies under way.
    std::vector<pending_bulk> bulk;
    bool late = false; // copies come as late as they may, and threads that arrive are held up
    bool mbar_unpublished = false; // initialised, mbar_init_done() is missing
    uint64_t turn = 0;
    // Shared memory.
    void *smem = nullptr;
    std::vector<unsigned char> image; // static shared memory while another block runs
};

emu_thread *emu_self;
uint3 blockIdx;
dim3 blockDim, gridDim;

namespace
{

context host_context;
emu_block *current;               // whose shared memory is in place
emu_block *free_blocks;           // for reuse: a list, never freed
std::vector<fiber *> free_fibers; // likewise, the next one last
size_t n_fibers;
uint64_t n_launches;
size_t n_resident[EMU_DEVICES]; // blocks, of all streams

// ---- switching ----

#ifdef __x86_64__
extern "C" void emu_switch_stack(void **save_sp, void *to_sp);
__asm__(".text\n.p2align 4\n.globl emu_switch_stack\n.type emu_switch_stack,@function\n"
        "emu_switch_stack:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size emu_switch_stack,.-emu_switch_stack\n");
#endif

EMU_NO_ASAN void switch_to(context &from, context &to)
{
#if EMU_ASAN
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
#ifdef __x86_64__
    emu_switch_stack(&from.sp, to.sp);
#else
    swapcontext(&from.uc, &to.uc);
#endif
#if EMU_ASAN
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

fiber *self(void)
{
    return static_cast<fiber *>(emu_self);
}

// ---- choosing the next thread ----

unsigned ring_at(const emu_block &b, unsigned i) // (a remainder would take as long as a switch)
{
    unsigned at = b.head + i, n = (unsigned)b.ring.size();
    return at < n ? at : at - n;
}

void make_ready(emu_block &b, unsigned warp, unsigned mask)
{
    b.ring[ring_at(b, b.n_ready++)] = {warp, mask};
}

void make_ready(emu_block &b, const fiber *f)
{
    make_ready(b, f->index / 32, 1u << f->index % 32);
}

// Every thread; nobody is ready.
void make_all_ready(emu_block &b)
{
    b.head = 0;
    for (unsigned w = 0; w < b.warps.size(); w++)
        make_ready(b, w, b.warps[w].present);
    if (b.mode == PICK_RANDOM)
        for (unsigned i = b.n_ready; i > 1; i--)
            std::swap(b.ring[i - 1], b.ring[b.rng.below(i)]);
}

// Which lane of mask is next.
unsigned pick_lane(pick_mode mode, unsigned mask, uint64_t random)
{
    if (mode == PICK_FIRST)
        return (unsigned)__builtin_ctz(mask);
    if (mode == PICK_LAST)
        return 31 - (unsigned)__builtin_clz(mask);
    const unsigned turn = random % 32, turned = mask >> turn | mask << (32 - turn) % 32;
    return ((unsigned)__builtin_ctz(turned) + turn) % 32;
}

// At random a warp runs on for some operations, in any order of its lanes, and then another: all
// orders of all threads would be no more than that, and find no stack in the cache. One random
// number is for the lanes of several switches, of which there are hundreds of millions in a test.
constexpr unsigned LANE_BITS = 5, LANES_OF_A_NUMBER = 12;

__attribute__((noinline)) void draw_lanes(emu_block &b, unsigned at)
{
    b.lanes = b.rng.next();
    b.n_lanes = LANES_OF_A_NUMBER;
    if (b.rng.below(5) == 0)
        std::swap(b.ring[at], b.ring[ring_at(b, b.rng.below(b.n_ready))]);
}

// Into the cache: what a switch to f will touch, who is likely to follow `before`. Threads that
// wait at the same place have as much on their stacks.
inline void fetch_stack(const fiber *f, const fiber *before)
{
#if defined(__x86_64__) && !EMU_ASAN
    const char *sp = (const char *)f - ((const char *)before - (const char *)before->ctx.sp);
    __builtin_prefetch(f);
    __builtin_prefetch(sp);
    __builtin_prefetch(sp + 64);
    __builtin_prefetch(sp + 128);
#endif
}

__attribute__((always_inline)) inline fiber *pick(emu_block &b)
{
    if (b.n_ready == 0)
        return nullptr;
    const unsigned at = b.mode == PICK_FIRST ? b.head : ring_at(b, b.n_ready - 1);
    if (b.mode == PICK_RANDOM) {
        if (b.n_lanes == 0)
            draw_lanes(b, at);
        b.lanes >>= LANE_BITS;
        b.n_lanes--;
    }
    ready_lanes &r = b.ring[at];
    const unsigned lane = pick_lane(b.mode, r.mask, b.lanes);
    fiber *f = b.fibers[r.warp * 32 + lane];
    r.mask &= ~(1u << lane);
    if (r.mask == 0) {
        b.n_ready--;
        if (b.mode == PICK_FIRST)
            b.head = ring_at(b, 1);
    } else {
        fetch_stack(b.fibers[r.warp * 32 + pick_lane(b.mode, r.mask, b.lanes >> LANE_BITS)], f);
    }
    return f;
}

// Lets other blocks run, before any other thread of this one.
EMU_NO_ASAN void leave_block(fiber *f)
{
    f->block->yielded.push_back(f);
    f->block->left = true;
    emu_self = nullptr;
    switch_to(f->ctx, host_context);
}

// Lets another thread of the block run; returns when this one is chosen again.
EMU_NO_ASAN void leave(fiber *f)
{
    fiber *next = pick(*f->block);
    if (next == f)
        return;
    emu_self = next; // (and whoever switches back says so)
    switch_to(f->ctx, next ? next->ctx : host_context);
}

// Lets all others of the block, then other blocks, go as far as they can.
void wait_a_turn(fiber *f)
{
    f->block->yielded.push_back(f);
    leave(f);
}

const char *describe(const fiber *f, char *buf, size_t n)
{
    const emu_block *b = f->block;
    snprintf(buf, n, "kernel %s block (%u,%u,%u) thread (%u,%u,%u)", b->grid->name.c_str(),
             b->idx.x, b->idx.y, b->idx.z, f->thread_idx.x, f->thread_idx.y, f->thread_idx.z);
    return buf;
}

void run_thread(fiber *f)
{
    emu_block &b = *f->block;
    b.grid->thread();
    if (b.grid->dependent && !f->passed_gate)
        emu_fail("a dependent launch ends without griddep_wait(): its successor may then run "
                 "before its predecessor has ended");
    if (!f->products.empty())
        emu_fail("returns before %zu products of the tensor cores are waited for",
                 f->products.size());
    if (!f->copies.empty())
        emu_fail("returns before %zu asynchronous copies are waited for", f->copies.size());
    b.warps[f->index / 32].done |= 1u << f->index % 32;
    b.n_done++;
    if (b.n_done == b.n_threads && !b.bulk.empty())
        emu_fail("the block ends while %zu bulk copies are under way", b.bulk.size());
    b.grid->n_events++;
    if (b.n_waiting)
        emu_fail("returns while %u threads of the block wait at the barrier %s:%d", b.n_waiting,
                 b.site.file, b.site.line);
}

// A fiber lives on after its thread has ended and runs the next one that it is given.
EMU_NO_ASAN void fiber_main(void)
{
#if EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    for (;;) {
        fiber *f = self();
        run_thread(f);
        leave(f);
    }
}

// A stack takes two of the mappings that Linux lets a process have (65,530), so that blocks, of
// which many are resident where there are several devices, must not keep those that they do not
// use.
EMU_NO_ASAN fiber *new_fiber(void)
{
    char *m = (char *)mmap(nullptr, PAGE + STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED || mprotect(m, PAGE, PROT_NONE) != 0)
        emu_die("no memory for the stack of another thread beside %zu", n_fibers);
    // It lies above its stack, often on the same page. The tops are spread over cache sets.
    char *top = m + PAGE + STACK_BYTES - n_fibers++ % 32 * 128 - (sizeof(fiber) + 63) / 64 * 64;
    // The sanitizer of leaks does not look there, and reads the list of all mappings for every
    // further place that it is told.
    fiber *f = EMU_ASAN ? new fiber() : new (top) fiber();
    f->ctx.stack_bottom = m + PAGE;
    f->ctx.stack_bytes = (size_t)(top - m) - PAGE;
#ifdef __x86_64__
    void **sp = (void **)(top - 8); // aligned as just after a call
    *--sp = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->ctx.sp = sp;
#else
    getcontext(&f->ctx.uc);
    f->ctx.uc.uc_stack.ss_sp = m + PAGE;
    f->ctx.uc.uc_stack.ss_size = f->ctx.stack_bytes;
    makecontext(&f->ctx.uc, fiber_main, 0);
#endif
    return f;
}

fiber *take_fiber(void)
{
    if (free_fibers.empty())
        return new_fiber();
    fiber *f = free_fibers.back();
    free_fibers.pop_back();
    return f;
}

// ---- blocks ----

// Makes b's shared memory the one in place.
void enter_block(emu_block *b, bool fresh)
{
    if (current != b) {
        if (current)
            emu_shared_save(*current->grid->shared, current->image);
        if (!fresh)
            emu_shared_restore(*b->grid->shared, b->image);
        current = b;
    }
    if (fresh)
        emu_shared_poison(*b->grid->shared);
    blockIdx = b->idx;
    blockDim = b->grid->block;
    gridDim = b->grid->grid;
}

emu_block *start_block(emu_grid &g)
{
    emu_block *b = free_blocks;
    if (b)
        free_blocks = b->next_free;
    else
        b = new emu_block();
    uint32_t i = g.order[g.n_started++];
    b->grid = &g;
    b->idx = {i % g.grid.x, i / g.grid.x % g.grid.y, i / g.grid.x / g.grid.y};
    b->n_threads = g.block.x * g.block.y * g.block.z;
    b->n_done = b->n_waiting = b->n_true = b->n_some = 0;
    b->head = b->n_ready = 0;
    b->yielded.clear();
    b->gated.clear();
    b->bulk.clear();
    b->mbar_unpublished = b->allows_dependents = false;
    b->fibers.resize(b->n_threads);
    b->warps.assign((b->n_threads + 31) / 32, warp_state());
    for (unsigned t = 0; t < b->n_threads; t++)
        b->warps[t / 32].present |= 1u << t % 32;
    b->ring.resize(b->n_threads);
    uint64_t seed = emu_seed();
    b->rng.state = seed * 0x9E3779B97F4A7C15u ^ n_launches << 24 ^ i;
    b->mode = seed == 0 ? PICK_FIRST : (pick_mode)b->rng.below(3);
    b->n_lanes = 0;
    b->late = seed != 0 && b->rng.below(4) != 0;
    for (unsigned t = 0; t < b->n_threads; t++) {
        fiber *f = b->fibers[t] = take_fiber();
        f->block = b;
        f->index = t;
        f->thread_idx = {t % g.block.x, t / g.block.x % g.block.y, t / g.block.x / g.block.y};
        f->passed_gate = false;
        f->n_groups = f->n_product_groups = 0;
        f->may_multiply = false;
        f->products.clear();
    }
    make_all_ready(*b);
    // A heap block of its own, so that the address sanitizer sees an access past its end.
    b->smem = nullptr;
    if (g.smem) {
        if (posix_memalign(&b->smem, 128, g.smem) != 0)
            emu_die("no memory for %zu bytes of shared memory", g.smem);
        memset(b->smem, 0xFF, g.smem);
    }
    g.resident.push_back(b);
    g.n_events++;
    enter_block(b, true);
    return b;
}

void finish_block(emu_grid &g, emu_block *b)
{
    for (size_t i = 0; i < g.resident.size(); i++)
        if (g.resident[i] == b) {
            g.resident.erase(g.resident.begin() + (ptrdiff_t)i);
            break;
        }
    // The first thread is the next one to be taken: 32 in a row have their stacks' tops in
    // different cache sets.
    free_fibers.insert(free_fibers.end(), b->fibers.rbegin(), b->fibers.rend());
    free(b->smem);
    b->smem = nullptr;
    if (current == b)
        current = nullptr;
    g.n_done++;
    n_resident[g.device]--;
    b->next_free = free_blocks;
    free_blocks = b;
}

[[noreturn]] void report_deadlock(const emu_block &b)
{
    fprintf(stderr,
            "cuda_on_cpu: deadlock in kernel %s block (%u,%u,%u): %u of %u threads have ended\n",
            b.grid->name.c_str(), b.idx.x, b.idx.y, b.idx.z, b.n_done, b.n_threads);
    if (b.n_waiting)
        fprintf(stderr, "  %u threads wait at the barrier %s:%d\n", b.n_waiting, b.site.file,
                b.site.line);
    for (size_t w = 0; w < b.warps.size(); w++)
        for (unsigned i = 0; i < b.warps[w].n_groups; i++) {
            const warp_group &g = b.warps[w].group[i];
            fprintf(stderr, "  warp %zu: lanes %08x wait at %s:%d for lanes %08x\n", w, g.arrived,
                    g.site.file, g.site.line, g.mask & ~g.arrived);
        }
    if (!b.gated.empty())
        fprintf(stderr, "  %zu threads wait at griddep_wait()\n", b.gated.size());
    fflush(stderr);
    abort();
}

// The sanitizer must know the stack to which fibers return: that of the calling thread.
thread_local void *host_stack;
thread_local size_t host_stack_bytes;

void note_host_stack(void)
{
    if (!host_stack) {
        pthread_attr_t attr;
        if (pthread_getattr_np(pthread_self(), &attr) != 0 ||
            pthread_attr_getstack(&attr, &host_stack, &host_stack_bytes) != 0)
            emu_die("cannot find the bounds of the host stack");
        pthread_attr_destroy(&attr);
    }
    host_context.stack_bottom = host_stack;
    host_context.stack_bytes = host_stack_bytes;
}

// Runs b until it has ended (true) or can only wait for others (false).
EMU_NO_ASAN bool run_block(emu_grid &g, emu_block *b)
{
    note_host_stack();
    enter_block(b, false);
    b->turn++;
    if (g.gate_open && !b->gated.empty()) {
        for (fiber *f : b->gated)
            make_ready(*b, f);
        b->gated.clear();
    }
    for (fiber *f : b->yielded)
        make_ready(*b, f);
    b->yielded.clear();
    b->left = false;
    for (fiber *f; !b->left && (f = pick(*b));) {
        emu_self = f;
        switch_to(host_context, f->ctx);
        emu_self = nullptr;
    }
    if (b->n_done == b->n_threads) {
        finish_block(g, b);
        return true;
    }
    if (b->yielded.empty() && (b->gated.empty() || g.gate_open))
        report_deadlock(*b);
    return false;
}

void prepare(emu_grid &g)
{
    if (!g.order.empty())
        return;
    n_launches++;
    g.shared = &emu_shared_of(g.kernel);
    uint32_t n = g.grid.x * g.grid.y * g.grid.z;
    g.order.resize(n);
    for (uint32_t i = 0; i < n; i++)
        g.order[i] = i;
    emu_rng rng = {emu_seed() ^ n_launches << 32};
    if (emu_seed() != 0)
        for (uint32_t i = n; i > 1; i--)
            std::swap(g.order[i - 1], g.order[rng.below(i)]);
}

} // namespace

size_t emu_n_stacks(void)
{
    return n_fibers;
}

size_t emu_grid_capacity(dim3 block, size_t smem)
{
    size_t n = EMU_SM_THREADS / (((size_t)block.x * block.y * block.z + 31) / 32 * 32);
    if (smem && emu_sm_smem() / (smem + 1024) < n)
        n = emu_sm_smem() / (smem + 1024);
    return n > 16 ? 16 : n;
}

bool emu_grid_preamble(emu_grid &g, size_t n)
{
    prepare(g);
    for (size_t i = 0; i < n && g.n_started < g.order.size(); i++)
        run_block(g, start_block(g));
    for (const emu_block *b : g.resident)
        if (!b->allows_dependents)
            return false;
    return true;
}

void emu_grid_begin(emu_grid &g)
{
    prepare(g);
    g.gate_open = true;
    n_resident[g.device] += g.resident.size();
}

bool emu_grid_step(emu_grid &g)
{
    size_t left = g.order.size() - g.n_started, n = g.cooperative || left == 0 ? left : 1;
    if (n && n_resident[g.device] + n <= EMU_RESIDENT) {
        n_resident[g.device] += n;
        for (; n; n--)
            run_block(g, start_block(g));
    } else {
        // Everyone resident gets a turn, oldest first.
        std::vector<emu_block *> turn = g.resident;
        for (emu_block *b : turn)
            run_block(g, b);
    }
    return g.n_done == g.order.size();
}

// ---- what device code calls ----

void emu_fail(const char *fmt, ...)
{
    char where[256] = "host code";
    if (emu_self)
        describe(self(), where, sizeof where);
    fprintf(stderr, "cuda_on_cpu: %s: ", where);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

void emu_misaligned(const void *p, size_t n)
{
    emu_fail("a load of %zu bytes from the misaligned address %p", n, p);
}

void emu_die(const char *fmt, ...)
{
    fputs("cuda_on_cpu: ", stderr);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

static bool same_site(emu_site a, emu_site b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

int emu_barrier(emu_barrier_op op, int predicate, emu_site site)
{
    if (!emu_self)
        emu_fail("a barrier outside a kernel");
    fiber *f = self();
    emu_block &b = *f->block;
    if (b.n_done)
        emu_fail("waits at the barrier %s:%d, but %u threads of the block have returned", site.file,
                 site.line, b.n_done);
    if (b.n_waiting == 0) {
        b.op = op;
        b.site = site;
        b.n_true = 0;
    } else if (b.op != op || !same_site(b.site, site)) {
        emu_fail("waits at the barrier %s:%d while others wait at %s:%d", site.file, site.line,
                 b.site.file, b.site.line);
    }
    b.n_waiting++;
    b.n_true += predicate != 0;
    if (b.n_waiting == b.n_threads) {
        b.result = op == EMU_BAR_COUNT ? (int)b.n_true
                   : op == EMU_BAR_AND ? b.n_true == b.n_threads
                                       : b.n_true != 0;
        make_all_ready(b);
        b.n_waiting = 0;
        b.grid->n_events++;
    }
    leave(f);
    return b.result;
}

// Whoever waits at one does so until all n have come; a block has one such set of threads.
void emu_barrier_some(unsigned n)
{
    fiber *f = self();
    emu_block &b = *f->block;
    const uint64_t met = b.n_some_met;
    if (++b.n_some == n) {
        b.n_some = 0;
        b.n_some_met++;
        b.grid->n_events++;
    }
    while (b.n_some_met == met)
        wait_a_turn(f);
}

void emu_warp(unsigned mask, emu_warp_kind kind, emu_warp_args *args, emu_site site)
{
    if (!emu_self)
        emu_fail("a warp operation outside a kernel");
    fiber *f = self();
    emu_block &b = *f->block;
    warp_state &w = b.warps[f->index / 32];
    unsigned lane = f->index % 32, bit = 1u << lane;
    if (!(mask & bit))
        emu_fail("%s:%d: the mask %08x does not name the calling lane %u", site.file, site.line,
                 mask, lane);
    mask &= w.present; // lanes past the end of the block count as never there
    if (mask & w.done)
        emu_fail("%s:%d: waits for lane %d, which has returned", site.file, site.line,
                 __builtin_ctz(mask & w.done));
    warp_group *g = nullptr;
    // Lanes may wait with different masks at once; masks that can never be complete end in a
    // deadlock, which is reported.
    for (unsigned i = 0; i < w.n_groups && !g; i++)
        if (w.group[i].mask == mask)
            g = &w.group[i];
    if (!g) {
        g = &w.group[w.n_groups++];
        *g = {mask, 0, kind, site};
    } else if (g->kind != kind || !same_site(g->site, site)) {
        emu_fail("arrives at the warp operation %s:%d while others wait at %s:%d", site.file,
                 site.line, g->site.file, g->site.line);
    }
    g->arrived |= bit;
    w.args[lane] = args;
    if (g->arrived == mask) {
        make_ready(b, f->index / 32, mask);
        if (g != &w.group[--w.n_groups])
            *g = w.group[w.n_groups];
        emu_warp_combine(kind, mask, w.args);
        b.grid->n_events++;
    }
    leave(f);
}

unsigned __activemask(void)
{
    return 1u << self()->index % 32;
}

void emu_yield(void)
{
    if (!emu_self)
        return;
    fiber *f = self();
    emu_block &b = *f->block;
    if (emu_seed() != 0)
        switch (b.rng.below(4)) {
        case 0: // the others come later
            return;
        case 1:
            return leave_block(f);
        }
    wait_a_turn(f);
}

void emu_after_atomic(const void *p)
{
    if (!emu_self || !emu_is_device(p))
        return;
    emu_block &b = *self()->block;
    if (b.grid->order.size() > 1 && emu_seed() != 0 && b.rng.below(8) == 0)
        leave_block(self());
}

void emu_griddep_wait(void)
{
    fiber *f = self();
    f->passed_gate = true;
    if (f->block->grid->gate_open)
        return;
    f->block->gated.push_back(f);
    leave(f);
}

void emu_griddep_launch(void)
{
    self()->block->allows_dependents = true;
}

void *emu_dynamic_smem(void)
{
    emu_block *b = self()->block;
    if (!b->smem)
        emu_fail("dynamic_smem() in a launch without dynamic shared memory");
    return b->smem;
}

// Copies happen as late as they may, and until then the target is poison: reading it before the
// wait, or overwriting what others still read, shows.
void emu_cp_async(void *smem, const void *gmem, int n, int n_valid)
{
    fiber *f = self();
    if (((uintptr_t)smem | (uintptr_t)gmem) % (unsigned)n)
        emu_fail("cp.async of %d bytes: misaligned address %p or %p", n, smem, gmem);
    volatile const unsigned char *src = (const unsigned char *)gmem;
    if (n_valid) { // an address that may not be read is found here, where the stack shows it
        (void)src[0];
        (void)src[n_valid - 1];
    }
    memset(smem, 0xFF, (size_t)n);
    f->copies.push_back(
        {(unsigned char *)smem, (const unsigned char *)gmem, n, n_valid, f->n_groups, {}});
    memcpy(f->copies.back().before, gmem, (size_t)n_valid);
}

void emu_cp_async_commit(void)
{
    self()->n_groups++;
}

void emu_cp_async_wait(int n_pending)
{
    fiber *f = self();
    size_t kept = 0;
    for (const pending_copy &c : f->copies) {
        if (c.group + (unsigned)n_pending >= f->n_groups) {
            f->copies[kept++] = c;
            continue;
        }
        if (memcmp(c.before, c.src, (size_t)c.n_valid) != 0)
            emu_fail("the source %p of a cp.async changed while it was under way", c.src);
        memcpy(c.dst, c.src, (size_t)c.n_valid);
        memset(c.dst + c.n_valid, 0, (size_t)(c.n - c.n_valid));
    }
    f->copies.resize(kept);
}

// Products of a warpgroup happen at the wait, with the operands as they are then.
void emu_wgmma_begin(void)
{
    self()->may_multiply = true;
}

void emu_wgmma_f16(float *d, const uint32_t *a, const void *a_tile, const void *b, int n,
                   size_t panel, const char *file, int line)
{
    fiber *f = self();
    if (!f->may_multiply)
        emu_fail("a product of the tensor cores without wgmma_begin()");
    f->products.push_back({d, a, a_tile, b, n, panel, f->n_product_groups, {file, line}});
}

void emu_wgmma_commit(void)
{
    self()->n_product_groups++;
    self()->may_multiply = false;
}

void emu_wgmma_wait(int n_pending)
{
    fiber *f = self();
    size_t done = 0;
    for (; done < f->products.size(); done++) {
        const pending_product &p = f->products[done];
        if (p.group + (unsigned)n_pending >= f->n_product_groups)
            break;
        emu_warp_args w = {};
        w.d = p.d;
        w.a = p.a;
        // its own 16 of the 64 rows
        w.a_tile = p.a_tile ? (const char *)p.a_tile + f->index / 32 % 4 * 16 * 128 : nullptr;
        w.b = p.b;
        w.n = p.n;
        w.panel = p.panel;
        emu_warp(0xFFFFFFFFu, EMU_WARP_WGMMA_F16, &w, p.site);
    }
    f->products.erase(f->products.begin(), f->products.begin() + (ptrdiff_t)done);
}

namespace
{

struct mbar { // as large as a GPU's; what is not initialised is all ones
    uint32_t phase : 8, n_arrive : 11, n_missing : 13;
    int32_t n_bytes;
};
static_assert(sizeof(mbar) == sizeof(uint64_t), "as large as a GPU's");

mbar load_mbar(const uint64_t *bar)
{
    mbar m;
    memcpy(&m, bar, sizeof m);
    if (m.n_missing > m.n_arrive)
        emu_fail("a transaction barrier is used before mbar_init()");
    if (self()->block->mbar_unpublished)
        emu_fail("a transaction barrier is used before mbar_init_done()");
    return m;
}

void store_mbar(uint64_t *bar, mbar m)
{
    if (m.n_missing == 0 && m.n_bytes == 0) {
        m.phase++;
        m.n_missing = m.n_arrive;
    }
    memcpy(bar, &m, sizeof m);
}

// Ends the bulk copies that bar counts and that may not be under way any longer.
void deliver(uint64_t *bar)
{
    emu_block &b = *self()->block;
    size_t kept = 0;
    for (pending_bulk &p : b.bulk) {
        if (p.bar != bar || (b.late && p.turn == b.turn)) {
            if (&b.bulk[kept] != &p)
                b.bulk[kept] = std::move(p);
            kept++;
            continue;
        }
        if (memcmp(p.before.data(), p.src, p.before.size()) != 0)
            emu_fail("the source %p of a bulk copy changed while it was under way", p.src);
        memcpy(p.dst, p.src, p.before.size());
        mbar m = load_mbar(bar);
        m.n_bytes -= (int32_t)p.before.size();
        store_mbar(bar, m);
        b.grid->n_events++;
    }
    b.bulk.resize(kept);
}

} // namespace

void emu_mbar_init(uint64_t *bar, uint32_t n_arrive)
{
    mbar m = {0, n_arrive & 2047u, n_arrive & 2047u, 0};
    if (m.n_arrive != n_arrive)
        emu_fail("a transaction barrier of %u", n_arrive);
    memcpy(bar, &m, sizeof m);
    self()->block->mbar_unpublished = true;
}

void emu_mbar_init_done(void)
{
    self()->block->mbar_unpublished = false;
}

void emu_mbar_arrive(uint64_t *bar, uint32_t n_bytes)
{
    mbar m = load_mbar(bar);
    if (m.n_missing == 0)
        emu_fail("an arrival too many at a barrier of %u", m.n_arrive);
    m.n_bytes += (int32_t)n_bytes;
    m.n_missing--;
    store_mbar(bar, m);
    // Others may act on it before this thread goes on.
    emu_block &b = *self()->block;
    for (uint32_t turns = b.late ? b.rng.below(3) : 0; turns; turns--)
        wait_a_turn(self());
}

void emu_mbar_arrive_after_copies(uint64_t *bar)
{
    emu_cp_async_commit();
    emu_cp_async_wait(0);
    emu_mbar_arrive(bar, 0);
}

void emu_mbar_wait(uint64_t *bar, uint32_t parity)
{
    while ((load_mbar(bar).phase & 1u) == parity) {
        deliver(bar);
        if ((load_mbar(bar).phase & 1u) == parity)
            wait_a_turn(self());
    }
}

// The target is poison until somebody waits and, under most seeds, every thread of the block has
// come as far as it can without the copy.
void emu_bulk_copy(void *smem, const void *gmem, uint32_t n_bytes, uint64_t *bar)
{
    emu_block &b = *self()->block;
    emu_check_aligned(smem, 16);
    emu_check_aligned(gmem, 16);
    if (n_bytes % 16)
        emu_fail("a bulk copy of %u bytes", n_bytes);
    load_mbar(bar);
    const unsigned char *src = (const unsigned char *)gmem;
    b.bulk.push_back({(unsigned char *)smem, src, {src, src + n_bytes}, bar, b.turn});
    memset(smem, 0xFF, n_bytes);
}

static uint64_t n_prefetched;

uint64_t emu_prefetched(void)
{
    return n_prefetched;
}

void emu_bulk_prefetch(const void *gmem, uint32_t n_bytes)
{
    n_prefetched += n_bytes;
    emu_check_aligned(gmem, 16);
    if (n_bytes % 16)
        emu_fail("a bulk prefetch of %u bytes", n_bytes);
    for (uint32_t i = 0; i < n_bytes; i++) // all of it must be there
        (void)((const volatile unsigned char *)gmem)[i];
}

// ---- packets between devices

namespace
{

std::map<uintptr_t, uint64_t> *packets; // on their way: at most one to a place

void deliver(std::map<uintptr_t, uint64_t>::iterator it)
{
    __atomic_store_n((uint64_t *)it->first, it->second, __ATOMIC_RELAXED);
    packets->erase(it);
}

} // namespace

// It arrives when somebody polls for packets, sooner or later than others, but after those that
// were stored before to the same place.
void emu_packet_store(uint64_t *p, uint64_t v)
{
    emu_check_aligned(p, 8);
    emu_block &b = *self()->block;
    if (emu_memory_of(p, sizeof *p) == EMU_MEMORY_HOST ||
        (emu_is_device(p) && !emu_reaches(b.grid->device, emu_device_of(p))))
        emu_fail("a packet to %p, which device %d does not reach", (void *)p, b.grid->device);
    if (!packets)
        packets = new std::map<uintptr_t, uint64_t>();
    auto it = packets->find((uintptr_t)p);
    if (it != packets->end())
        deliver(it);
    auto at = packets->insert({(uintptr_t)p, v}).first;
    if (emu_seed() == 0 || b.rng.below(8) == 0)
        deliver(at);
    b.grid->n_events++;
}

uint64_t emu_packet_load(const uint64_t *p)
{
    emu_block &b = *self()->block;
    b.grid->awaits_device = true;
    if (packets && !packets->empty()) {
        auto it = packets->lower_bound((uintptr_t)p - b.rng.below(64) * 8);
        for (uint32_t n = b.rng.below(64); n && it != packets->end(); n--) {
            deliver(it++);
            b.grid->n_events++;
        }
    }
    // Many threads of a block poll, so nobody leaves it before the others have sent theirs.
    uint64_t v = __atomic_load_n(p, __ATOMIC_RELAXED);
    if (emu_seed() == 0 || b.rng.below(4))
        wait_a_turn(self());
    return v;
}

void emu_packets_drop(const void *begin, size_t n)
{
    if (packets)
        packets->erase(packets->lower_bound((uintptr_t)begin),
                       packets->lower_bound((uintptr_t)begin + n));
}

long long clock64(void)
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void __trap(void)
{
    emu_fail("__trap()");
}
