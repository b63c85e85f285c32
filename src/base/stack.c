#include "base/stack.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/thread.h"

static void size_library_threads(void)
{
    size_t n_bytes = 0;
    pthread_attr_t attr;
    if (pthread_getattr_default_np(&attr) != 0)
        return;
    if (pthread_attr_getstacksize(&attr, &n_bytes) == 0 && n_bytes < THREAD_STACK_BYTES &&
        pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES) == 0)
        pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

struct call {
    int (*program)(int argc, char **argv);
    int argc;
    char **argv;
    int code;
};

// A context begins with numbers alone: the two halves of a pointer.
static void begin(unsigned high, unsigned low)
{
    struct call *c = (struct call *)((uintptr_t)high << 16 << 16 | (uintptr_t)low);
    c->code = c->program(c->argc, c->argv);
}

// A limit cannot always be raised: another stack takes the place of the one that has it, with a
// page below that nobody may touch.
static bool run_on_another(struct call *c, struct error *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = THREAD_STACK_BYTES + page;
    const uintptr_t at = (uintptr_t)c;
    char *stack =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    ucontext_t before, own;
    if (stack == MAP_FAILED)
        return error_oom(err, "a stack larger than ulimit -s allows", n);
    bool ok = mprotect(stack, page, PROT_NONE) == 0 && getcontext(&own) == 0;
    if (ok) {
        own.uc_stack.ss_sp = stack + page;
        own.uc_stack.ss_size = THREAD_STACK_BYTES;
        own.uc_link = &before;
        makecontext(&own, (void (*)(void))begin, 2, (unsigned)(at >> 16 >> 16), (unsigned)at);
        ok = swapcontext(&before, &own) == 0;
    }
    if (!ok)
        error_set(err, ERR_FAIL, "a stack larger than ulimit -s allows: %s", strerror(errno));
    munmap(stack, n);
    return ok;
}

bool stack_run(int (*program)(int argc, char **argv), int argc, char **argv, int *code,
               struct error *err)
{
    struct rlimit limit;
    struct call c = {program, argc, argv, 0};
    size_library_threads();
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= THREAD_STACK_BYTES)
        c.code = program(argc, argv);
    else if (!run_on_another(&c, err))
        return false;
    *code = c.code;
    return true;
}
