#include "keep/name.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/place.h"
#include "base/sha256.h"

static const char suffix[] = ".keep", hex_digits[] = "0123456789abcdef";
enum { N_HEX = 16 };

static bool is_mine(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 077) == 0;
}

bool keep_place(const struct options *o, bool make, struct buf *dir, bool *there, struct error *err)
{
    struct stat st;
    *there = false;
    if (!o->runtime_dir)
        return error_set(err, ERR_FAIL, "XDG_RUNTIME_DIR names no directory");
    if (stat(o->runtime_dir, &st) != 0 || !is_mine(&st))
        return error_set(err, ERR_FAIL,
                         "%.300s (XDG_RUNTIME_DIR) is no directory of yours alone (0700)",
                         o->runtime_dir);
    if (!buf_printf(dir, "%s/hokku/", o->runtime_dir))
        return error_oom(err, "a path", strlen(o->runtime_dir));
    if (make && !place_make_parents(dir->data, err))
        return false;
    dir->data[--dir->len] = '\0'; // (a link with a slash behind it is what it leads to)
    *there = lstat(dir->data, &st) == 0;
    if (*there && !is_mine(&st))
        return error_set(err, ERR_FAIL, "%.300s is no directory of yours alone (0700)", dir->data);
    if (make && !*there)
        return error_set(err, ERR_FAIL, "%.300s: %s", dir->data, strerror(errno));
    return buf_putc(dir, '/') || error_oom(err, "a path", dir->len);
}

bool keep_is_name(const char *name)
{
    if (strspn(name, hex_digits) != N_HEX || name[N_HEX] != '.')
        return false;
    const char *tail = name + N_HEX + 1;
    return strcmp(name + N_HEX, suffix) == 0 || (*tail && strspn(tail, hex_digits) == strlen(tail));
}

bool keep_aside(const char *name, struct buf *out)
{
    return buf_printf(out, "%.*s.%x", (int)(strlen(name) - (sizeof suffix - 1)), name,
                      (unsigned)getpid());
}

static void add_file(struct buf *b, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        buf_printf(b, "%s %llu %llu %lld\n", path, (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino, (long long)st.st_ctim.tv_sec);
}

static void add_link(struct buf *b, const char *path)
{
    char target[256];
    const ssize_t n = readlink(path, target, sizeof target);
    buf_append(b, target, n > 0 ? (size_t)n : 0);
    buf_putc(b, '\n');
}

// What it may do beyond its user and groups, or not.
static void add_powers(struct buf *b)
{
    static const char *const lines[] = {"Cap", "NoNewPrivs:", "Seccomp:"};
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            if (strncmp(line, lines[i], strlen(lines[i])) == 0)
                buf_puts(b, line);
    if (f)
        fclose(f);
    f = fopen("/proc/self/attr/current", "re"); // of AppArmor, SELinux
    if (f && fgets(line, sizeof line, f))
        buf_puts(b, line);
    if (f)
        fclose(f);
}

// What bounds the control group of a process and those around it: its own limits, with the group
// that they are of, since they are for all in it together. Of groups of the first version the
// names.
static void add_group_limits(struct buf *b)
{
    static const char *const limits[] = {"memory.max", "memory.high", "memory.swap.max",
                                         "cpu.max",    "cpuset.cpus", "pids.max"};
    char line[PATH_MAX], path[2 * PATH_MAX], value[256];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) != 0) {
            if (strstr(line, "memory") || strstr(line, "cpu") || strstr(line, "pids"))
                buf_printf(b, "%s\n", line);
            continue;
        }
        for (char *group = line + 3, *end = group + strlen(group); end > group; *end = '\0') {
            for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
                snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, limits[i]);
                FILE *g = fopen(path, "re");
                if (g && fgets(value, sizeof value, g) && strncmp(value, "max", 3) != 0)
                    buf_printf(b, "%s %s\n", path, value);
                if (g)
                    fclose(g);
            }
            end = strrchr(group, '/');
        }
    }
    if (f)
        fclose(f);
}

// (As many as there may be are more than a small stack holds.)
static void add_groups(struct buf *b)
{
    const int most = getgroups(0, NULL);
    gid_t *groups = most > 0 ? malloc((size_t)most * sizeof *groups) : NULL;
    const int n = groups ? getgroups(most, groups) : 0;
    b->failed |= most > 0 && !groups;
    buf_append(b, groups, n > 0 ? (size_t)n * sizeof *groups : 0);
    free(groups);
}

// What a process has of its parents, and what a call could be told from another one by.
static void add_surroundings(struct buf *b)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    buf_printf(b, "%u %u %u %d\n", geteuid(), getegid(), getuid(), getpriority(PRIO_PROCESS, 0));
    add_groups(b);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        buf_append(b, &cpus, sizeof cpus);
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
        struct rlimit r = {0};
        getrlimit((__rlimit_resource_t)i, &r);
        buf_append(b, &r, sizeof r);
    }
    add_powers(b);
    add_group_limits(b);
    add_file(b, "/");
    add_link(b, "/proc/self/ns/mnt");
    add_link(b, "/proc/self/ns/net");
    add_link(b, "/proc/self/ns/pid");
    add_link(b, "/proc/self/ns/user");
}

// What libraries read when they begin; all else of the environment goes along with a call.
static void add_environment(struct buf *b, char **envp)
{
    static const char *const begins[] = {"CUDA_", "NVIDIA_", "LD_", "MALLOC_", "GLIBC_"};
    for (; *envp; envp++)
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            if (strncmp(*envp, begins[i], strlen(begins[i])) == 0)
                buf_printf(b, "%s\n", *envp);
}

bool keep_name(const char *model, char **envp, struct buf *out, struct error *err)
{
    struct buf b = {0};
    char hex[SHA256_HEX];
    char *real = realpath(model, NULL);
    // The name as it was said too: messages and sessions have it.
    buf_printf(&b, "%s\n%s\n", model, real ? real : "");
    free(real);
    add_file(&b, "/proc/self/exe");
    add_surroundings(&b);
    add_environment(&b, envp);
    sha256_hex_of(buf_str(&b), b.len, hex);
    const bool ok = !b.failed && buf_printf(out, "%.*s%s", N_HEX, hex, suffix);
    buf_release(&b);
    return ok || error_oom(err, "a name", strlen(model));
}
