#include "base/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { RANDOM_BYTES = 8 };

static const char temp_suffix[] = ".tmp";

// The group that only its user is in, as Debian makes one for everybody.
static bool private_group(gid_t gid, uid_t owner)
{
    struct passwd *pw = getpwuid(owner);
    if (!pw || pw->pw_gid != gid)
        return false;
    struct group *g = getgrgid(gid);
    if (!g || strcmp(g->gr_name, pw->pw_name) != 0)
        return false;
    for (char **m = g->gr_mem; m && *m; m++)
        if (strcmp(*m, pw->pw_name) != 0)
            return false;
    return true;
}

// also: one more owner who is trusted.
static bool check(const char *path, const struct stat *st, uid_t also, struct error *err)
{
    unsigned mode = st->st_mode & 07777;
    if (!S_ISREG(st->st_mode))
        return error_set(err, ERR_FAIL, "%s: refused: it is %s, expected a regular file", path,
                         S_ISLNK(st->st_mode)    ? "a symbolic link"
                         : S_ISDIR(st->st_mode)  ? "a directory"
                         : S_ISFIFO(st->st_mode) ? "a pipe"
                                                 : "a device or socket");
    if (st->st_uid != geteuid() && st->st_uid != 0 && st->st_uid != also)
        return error_set(err, ERR_FAIL,
                         "%s: refused: it belongs to user %u, expected you (user %u) or root: "
                         "remove it, or chown it",
                         path, (unsigned)st->st_uid, (unsigned)geteuid());
    if (mode & S_IWOTH || (mode & S_IWGRP && !private_group(st->st_gid, st->st_uid)))
        return error_set(err, ERR_FAIL,
                         "%s: refused: its mode %04o lets %s change it, expected its owner alone: "
                         "look at what it holds, then chmod go-w",
                         path, mode, mode & S_IWOTH ? "everybody" : "its group");
    return true;
}

// Whether path is a link that may be followed: what counts is whose it is, and the file.
static bool may_follow(const char *path, bool *is_link, struct error *err)
{
    struct stat st;
    *is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    return !*is_link || st.st_uid == geteuid() || st.st_uid == 0 ||
           error_set(err, ERR_FAIL,
                     "%s: refused: it is a symbolic link of user %u, expected one of you (user %u) "
                     "or root: remove it",
                     path, (unsigned)st.st_uid, (unsigned)geteuid());
}

// linked: path may be a link of the user or root.
static int open_checked(const char *path, int flags, bool linked, uid_t also, struct error *err)
{
    bool is_link = false;
    if (linked && !may_follow(path, &is_link, err)) {
        errno = EPERM;
        return -1;
    }
    // Not blocking: a name that is a pipe must not wait for its other end.
    int fd =
        open(path, flags | (is_link ? 0 : O_NOFOLLOW) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 && is_link) {
        error_set(err, ERR_FAIL,
                  "%s: a symbolic link to what cannot be opened: %s: remove it, or bring back what "
                  "it names",
                  path, strerror(errno));
        errno = EPERM;
        return -1;
    }
    if (fd < 0) {
        int why = errno;
        // The link, pipe or directory itself says more than the reason why it cannot be opened.
        if (lstat(path, &st) != 0 || S_ISREG(st.st_mode) || check(path, &st, also, err))
            error_set(err, ERR_FAIL, "%s: cannot be opened: %s", path, strerror(why));
        errno = why == ENOTDIR ? ENOENT : why;
        return -1;
    }
    if (fstat(fd, &st) != 0) {
        error_set(err, ERR_FAIL, "%s: cannot be looked at: %s", path, strerror(errno));
    } else if (check(path, &st, also, err)) {
        return fd;
    }
    close(fd);
    errno = EPERM;
    return -1;
}

int place_open(const char *path, int flags, struct error *err)
{
    return open_checked(path, flags, false, geteuid(), err);
}

static bool read_checked(const char *path, size_t max_bytes, bool linked, uid_t also,
                         struct buf *out, bool *found, struct error *err)
{
    struct error why = {0}; // a file that is not there is no error
    int fd = open_checked(path, O_RDONLY, linked, also, &why);
    *found = fd >= 0 || errno != ENOENT;
    if (fd < 0 && *found && err)
        *err = why;
    if (fd < 0)
        return !*found;
    bool ok = fd_read_all(fd, path, max_bytes, NULL, out, err);
    close(fd);
    return ok;
}

bool place_read(const char *path, size_t max_bytes, struct buf *out, bool *found, struct error *err)
{
    return read_checked(path, max_bytes, false, geteuid(), out, found, err);
}

bool place_read_linked(const char *path, size_t max_bytes, struct buf *out, bool *found,
                       struct error *err)
{
    return read_checked(path, max_bytes, true, geteuid(), out, found, err);
}

bool place_read_shipped(const char *path, size_t max_bytes, struct buf *out, bool *found,
                        struct error *err)
{
    struct stat st;
    uid_t owner = stat("/proc/self/exe", &st) == 0 ? st.st_uid : geteuid();
    return read_checked(path, max_bytes, false, owner, out, found, err);
}

bool place_is_name(const char *name, size_t n)
{
    bool ok = n > 0 && n <= PLACE_NAME_MAX && name[0] != '.';
    for (size_t i = 0; ok && i < n; i++) {
        const unsigned char c = (unsigned char)name[i];
        ok = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '.' ||
             c == '_' || c == '-' || c >= 0x80;
    }
    return ok;
}

bool place_check(const char *path, struct error *err)
{
    int fd = place_open(path, O_RDONLY, err);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

// ----------------------------------------------------------------------------------- replaced
// files

// DIR/.NAME. of DIR/NAME; the length of "DIR/".
static size_t temp_prefix(const char *path, struct buf *out)
{
    const char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    buf_append(out, path, dir);
    buf_printf(out, ".%s.", path + dir);
    return dir;
}

static void remove_leftovers(const char *prefix, size_t n_dir)
{
    struct buf dir = {0};
    const char *name = prefix + n_dir;
    size_t n = strlen(name), n_all = n + 2 * RANDOM_BYTES + strlen(temp_suffix);
    buf_append(&dir, prefix, n_dir);
    buf_putc(&dir, '.');
    DIR *d = dir.failed ? NULL : opendir(dir.data);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strlen(e->d_name) == n_all && memcmp(e->d_name, name, n) == 0 &&
            strspn(e->d_name + n, "0123456789abcdef") == 2 * RANDOM_BYTES &&
            strcmp(e->d_name + n + 2 * RANDOM_BYTES, temp_suffix) == 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    buf_release(&dir);
}

int place_create_temp(const char *path, struct buf *temp, struct error *err)
{
    unsigned char bytes[RANDOM_BYTES];
    buf_clear(temp);
    size_t n_dir = temp_prefix(path, temp);
    if (!temp->failed)
        remove_leftovers(temp->data, n_dir);
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        error_set(err, ERR_FAIL, "no random name: getrandom: %s", strerror(errno));
        return -1;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        buf_printf(temp, "%02x", bytes[i]);
    if (!buf_puts(temp, temp_suffix)) {
        error_oom(err, "a path", strlen(path));
        return -1;
    }
    int fd = open(temp->data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        error_set(err, ERR_FAIL, "%s: cannot be made: %s", temp->data, strerror(errno));
    return fd;
}

void place_sync_parent(const char *path)
{
    struct buf dir = {0};
    const char *slash = strrchr(path, '/');
    buf_append(&dir, path, slash ? (size_t)(slash - path) + 1 : 0);
    buf_putc(&dir, '.');
    int fd = dir.failed ? -1 : open(dir.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); // file systems that cannot sync a directory have nothing to sync
        close(fd);
    }
    buf_release(&dir);
}

bool place_commit(int fd, const char *temp, const char *path, struct error *err)
{
    bool ok = fsync(fd) == 0 ||
              error_set(err, ERR_FAIL, "%s: cannot be synced: %s", path, strerror(errno));
    if (close(fd) != 0 && ok)
        ok = error_set(err, ERR_FAIL, "%s: cannot be written: %s", path, strerror(errno));
    if (ok && rename(temp, path) != 0)
        ok = error_set(err, ERR_FAIL, "%s: cannot be put in its place: %s", path, strerror(errno));
    if (!ok)
        unlink(temp);
    else
        place_sync_parent(path);
    return ok;
}

bool place_replace(const char *path, const void *data, size_t n, struct error *err)
{
    struct buf temp = {0};
    const int fd = place_create_temp(path, &temp, err);
    const bool written = fd >= 0 && fd_write_all(fd, path, data, n, err);
    if (fd >= 0 && !written) {
        close(fd);
        unlink(temp.data);
    }
    const bool ok = written && place_commit(fd, temp.data, path, err);
    buf_release(&temp);
    return ok;
}

bool place_move(const char *from, const char *to, struct error *err)
{
    if (link(from, to) != 0)
        return error_set(err, ERR_FAIL, "%s: cannot be made: %s", to, strerror(errno));
    if (unlink(from) == 0 || errno == ENOENT) // (somebody else removed it)
        return true;
    error_set(err, ERR_FAIL, "%s: cannot be removed: %s", from, strerror(errno));
    unlink(to); // there is one of it, as before
    return false;
}

// ---------------------------------------------------------------------------------------
// directories

bool place_need(const char *dir, const char *what, const char *xdg, struct error *err)
{
    return dir || error_set(err, ERR_FAIL,
                            "no place for %s: HOME is not set, and user %u has no home on record: "
                            "set HOME, or %s to a directory of yours",
                            what, (unsigned)geteuid(), xdg);
}

bool place_make_parents(const char *path, struct error *err)
{
    char *copy = strdup(path);
    if (!copy)
        return error_oom(err, "a path", strlen(path));
    bool ok = true;
    for (char *p = copy + 1; ok && (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
            int why = errno;
            struct stat st; // a read-only disk says EROFS also for what is there
            ok = (stat(copy, &st) == 0 && S_ISDIR(st.st_mode)) ||
                 error_set(err, ERR_FAIL, "%s: the directory cannot be made: %s", copy,
                           strerror(why));
        }
        *p = '/';
    }
    free(copy);
    return ok;
}

// ---------------------------------------------------------------------------------------------
// locks

bool place_try_lock(int fd, const char *path, bool *taken, pid_t *holder, struct error *err)
{
    // A record lock, not flock(2): it can tell who has it, and only who may write the file can.
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *taken = fcntl(fd, F_SETLK, &l) == 0;
    *holder = 0;
    if (*taken)
        return true;
    if (errno != EACCES && errno != EAGAIN && errno != EINTR)
        return error_set(err, ERR_FAIL, "%s: cannot be locked: %s", path, strerror(errno));
    l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK && l.l_pid > 0)
        *holder = l.l_pid;
    return true;
}
