// Preloaded by tests/e2e: the system's answers as the environment names them.
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

// TEST_FREE: bytes that every disk has left.
int statvfs(const char *path, struct statvfs *fs)
{
    (void)path;
    memset(fs, 0, sizeof *fs);
    fs->f_frsize = fs->f_bsize = 1;
    fs->f_bavail = strtoull(getenv("TEST_FREE") ? getenv("TEST_FREE") : "1000000000000", NULL, 10);
    return 0;
}

int statvfs64(const char *path, struct statvfs64 *fs) // the same on a 64-bit machine
{
    return statvfs(path, (struct statvfs *)fs);
}

// TEST_PW_DIR: the home that the system has on record.
struct passwd *getpwuid(uid_t uid)
{
    static struct passwd pw = {
        .pw_name = "somebody", .pw_passwd = "x", .pw_gecos = "", .pw_shell = "/bin/sh"};
    pw.pw_uid = uid;
    pw.pw_gid = uid;
    pw.pw_dir = getenv("TEST_PW_DIR");
    return pw.pw_dir ? &pw : NULL;
}

// TEST_COLD: no page of any file is in memory, and every look takes that many microseconds.
int mincore(void *at, size_t n, unsigned char *there)
{
    (void)at;
    if (getenv("TEST_COLD"))
        usleep((useconds_t)strtoul(getenv("TEST_COLD"), NULL, 10));
    memset(there, getenv("TEST_COLD") == NULL, (n + 4095) / 4096);
    return 0;
}

// TEST_DISK_HELD: while there is a file of that name, no disk comes to the end of a write.
static void wait_until_let(const char *name)
{
    const char *held = getenv(name);
    while (held && access(held, F_OK) == 0)
        usleep(1000);
}

static int sync_when_let(int fd, const char *how)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, how);
    wait_until_let("TEST_DISK_HELD");
    return real(fd);
}

int fsync(int fd)
{
    return sync_when_let(fd, "fsync");
}

int fdatasync(int fd)
{
    return sync_when_let(fd, "fdatasync");
}

// TEST_LOCKED: so many times another process has what is to be locked.
int flock(int fd, int how)
{
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    static unsigned long n;
    if ((how & LOCK_NB) && getenv("TEST_LOCKED") && n++ < strtoul(getenv("TEST_LOCKED"), NULL, 10)) {
        errno = EWOULDBLOCK;
        return -1;
    }
    return real(fd, how);
}

// TEST_STAYS: the file whose name ends so cannot be removed.
int unlink(const char *path)
{
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    const char *end = getenv("TEST_STAYS");
    const size_t n = end ? strlen(end) : 0, len = strlen(path);
    if (end && len >= n && strcmp(path + len - n, end) == 0) {
        errno = EIO;
        return -1;
    }
    return real(path);
}

// TEST_UNSEEN: nobody can look at the file or list the directory whose name ends so.
static int is_unseen(const char *path)
{
    const char *end = getenv("TEST_UNSEEN");
    const size_t n = end ? strlen(end) : 0, len = strlen(path);
    if (!end || len < n || strcmp(path + len - n, end) != 0)
        return 0;
    errno = EIO;
    return 1;
}

struct stat;

int lstat64(const char *path, struct stat *st)
{
    int (*real)(const char *, struct stat *) = (int (*)(const char *, struct stat *))dlsym(RTLD_NEXT, "lstat64");
    return is_unseen(path) ? -1 : real(path, st);
}

void *opendir(const char *path)
{
    void *(*real)(const char *) = (void *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
    return is_unseen(path) ? NULL : real(path);
}

// TEST_JSON_HELD: while there is a file of that name, no JSON text of a megabyte or more is read.
struct json_t;

struct json_t *json_loadb(const char *text, size_t n, size_t flags, void *why)
{
    struct json_t *(*real)(const char *, size_t, size_t, void *) =
        (struct json_t * (*)(const char *, size_t, size_t, void *)) dlsym(RTLD_NEXT, "json_loadb");
    if (n >= 1000000)
        wait_until_let("TEST_JSON_HELD");
    return real(text, n, flags, why);
}

// TEST_JSON_LOST: of the JSON that is written so much has no room, counted from 1.
int json_dump_callback(const struct json_t *j, int (*put)(const char *, size_t, void *), void *user, size_t flags)
{
    int (*real)(const struct json_t *, int (*)(const char *, size_t, void *), void *, size_t) =
        (int (*)(const struct json_t *, int (*)(const char *, size_t, void *), void *, size_t))dlsym(RTLD_NEXT, "json_dump_callback");
    static unsigned long n;
    const unsigned long lost = getenv("TEST_JSON_LOST") ? strtoul(getenv("TEST_JSON_LOST"), NULL, 10) : 0;
    return __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) == lost ? -1 : real(j, put, user, flags);
}

// TEST_MEMINFO: the file that says how much memory there is.
FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    const char *told = getenv("TEST_MEMINFO");
    return real(told && strcmp(path, "/proc/meminfo") == 0 ? told : path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

// TEST_GOES_ON: SIGCONT comes with the message of --keep that has this word (src/keep/wire.h), behind what came before it.
ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) = (ssize_t (*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
    const ssize_t n = real(fd, m, flags);
    const char *word = getenv("TEST_GOES_ON");
    uint32_t head[2] = {0};
    if (word && n >= (ssize_t)sizeof head)
        memcpy(head, m->msg_iov->iov_base, sizeof head);
    if (word && head[1] == strtoul(word, NULL, 10))
        kill(getpid(), SIGCONT);
    return n;
}

// TEST_CLOCK: whoever looks at the clock finds it a microsecond later than the one before.
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    static uint64_t looks;
    if (id != CLOCK_MONOTONIC || !getenv("TEST_CLOCK"))
        return real(id, t);
    const uint64_t now = __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
    t->tv_sec = (time_t)(1000 + now / 1000000);
    t->tv_nsec = (long)(now % 1000000 * 1000);
    return 0;
}
