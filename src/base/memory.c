#include "base/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/thread.h"

void *memory_map(size_t n_bytes)
{
    n_bytes += n_bytes == 0; // so that there is something to unmap
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(p, n_bytes, MADV_HUGEPAGE);
#endif
    return p;
}

void memory_unmap(void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes + (n_bytes == 0));
}

// The number behind "key" at the start of a line (key NULL: the first number of the file).
static bool file_number(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        size_t n = key ? strlen(key) : 0;
        if (n == 0 || strncmp(line, key, n) == 0)
            found = sscanf(line + n, "%" SCNu64, out) == 1;
        if (n == 0)
            break;
    }
    fclose(f);
    return found;
}

// What the control group at dir leaves: its limit, less what is in use and cannot be reclaimed
// (file pages can).
static void limit_by_group(const char *dir, const char *limit_name, const char *usage_name,
                           const char *inactive, const char *active, uint64_t *available)
{
    char path[1200];
    uint64_t limit, usage, cached = 0, n;
    snprintf(path, sizeof path, "%s/%s", dir, limit_name);
    if (!file_number(path, NULL, &limit))
        return; // "max", or no such controller
    snprintf(path, sizeof path, "%s/%s", dir, usage_name);
    if (!file_number(path, NULL, &usage))
        return;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (file_number(path, inactive, &n))
        cached += n;
    if (file_number(path, active, &n))
        cached += n;
    usage -= cached < usage ? cached : usage;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (left < *available)
        *available = left;
}

// The address space in use, but for files mapped to be shared: the model, whose bytes whoever asks
// counts. (Not the sum of VmData, VmExe, …: what only can be read, as the kernels for a GPU that
// lie in the program, is in none of them.)
static uint64_t address_space(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    if (!f)
        return 0;
    uint64_t begin, end, used = 0;
    char kind;
    while (fscanf(f, "%" SCNx64 "-%" SCNx64 " %*3c%c%*[^\n]", &begin, &end, &kind) == 3)
        used += kind == 's' ? 0 : end - begin;
    fclose(f);
    return used;
}

static uint64_t data_bytes(void)
{
    uint64_t kb;
    return file_number("/proc/self/status", "VmData:", &kb) ? kb * 1024 : 0;
}

// What the process's own limits leave.
static void limit_by_process(int n_threads, uint64_t *available)
{
    enum { OTHER = 16 << 20 }; // what a conversation takes beside an engine
    const struct {
        __rlimit_resource_t what;
        uint64_t (*used)(void);
    } limits[] = {{RLIMIT_AS, address_space}, {RLIMIT_DATA, data_bytes}};
    struct rlimit l;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (getrlimit(limits[i].what, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
            continue;
        const uint64_t used = limits[i].used() + OTHER + (uint64_t)n_threads * THREAD_STACK_BYTES;
        const uint64_t left = l.rlim_cur > used ? l.rlim_cur - used : 0;
        if (left < *available)
            *available = left;
    }
}

// What the groups of a line of /proc/self/cgroup leave: ID:CONTROLLERS:/GROUP. A limit is for all
// groups below its own, so each of them is asked, up to the root: which in a container is often the
// container's own group, of which the line then has the name that it has outside.
static void limit_by_groups(char *line, uint64_t *available)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return;
    *group++ = '\0';
    const bool first = strcmp(controllers + 1, "memory") == 0; // version of control groups
    if (!first && controllers[1] != '\0')
        return;
    char dir[1100], *end;
    do {
        snprintf(dir, sizeof dir, "/sys/fs/cgroup%s%s", first ? "/memory" : "", group);
        if (first)
            limit_by_group(dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file", "total_active_file", available);
        else
            limit_by_group(dir, "memory.max", "memory.current", "inactive_file", "active_file",
                           available);
        end = strrchr(group, '/');
        if (end)
            *end = '\0';
    } while (end);
}

uint64_t memory_available(int n_threads)
{
    uint64_t available = UINT64_MAX, kb;
    if (file_number("/proc/meminfo", "MemAvailable:", &kb))
        available = kb * 1024;
    limit_by_process(n_threads, &available);
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return available;
    char line[1024];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        limit_by_groups(line, &available);
    }
    fclose(f);
    return available;
}

uint64_t memory_total(void)
{
    uint64_t kb;
    return file_number("/proc/meminfo", "MemTotal:", &kb) ? kb * 1024 : 0;
}
