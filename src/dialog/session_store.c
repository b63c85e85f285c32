#include "dialog/session_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/format.h"
#include "base/place.h"

static const char suffix[] = ".session";

static bool name_check(const char *name, struct error *err)
{
    char text[FORMAT_TEXT];
    return place_is_name(name, strlen(name)) ||
           error_set(err, ERR_USAGE, "session name \"%s\": expected " PLACE_NAME_RULE,
                     format_text(text, sizeof text, name, strlen(name)));
}

bool session_path(const char *state_dir, const char *name, struct buf *out, struct error *err)
{
    if (!name_check(name, err) || !place_need(state_dir, "sessions", "XDG_STATE_HOME", err))
        return false;
    buf_clear(out);
    return buf_printf(out, "%s/sessions/%s%s", state_dir, name, suffix) ||
           error_oom(err, "a path", strlen(name));
}

// DIR/NAME.session -> DIR/.NAME.lock
static bool lock_path(const struct session_lock *l, struct buf *out, struct error *err)
{
    const char *slash = strrchr(l->path.data, '/');
    return buf_printf(out, "%.*s.%s.lock", (int)(slash + 1 - l->path.data), l->path.data,
                      l->name) ||
           error_oom(err, "a path", l->path.len);
}

// Opens and locks; -1 with *busy: another process has it. The lock goes away with its file when it
// is released: one that was removed meanwhile locks nothing.
static int take(const char *path, bool *busy, struct error *err)
{
    *busy = false;
    for (;;) {
        struct stat mine, there;
        int fd = place_open(path, O_RDWR | O_CREAT, err);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            *busy = errno == EWOULDBLOCK;
            close(fd);
            error_set(err, ERR_FAIL, "%s: cannot be locked: %s", path, strerror(errno));
            return -1;
        }
        if (fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

// Locks that killed processes left behind.
static void sweep(const char *state_dir)
{
    static const char tail[] = ".lock";
    struct buf path = {0};
    buf_printf(&path, "%s/sessions/", state_dir);
    size_t n_dir = path.len;
    DIR *d = opendir(buf_str(&path));
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name), k = sizeof tail - 1;
        bool busy;
        if (e->d_name[0] != '.' || n <= k + 1 || strcmp(e->d_name + n - k, tail) != 0)
            continue;
        path.len = n_dir;
        buf_puts(&path, e->d_name);
        int fd = path.failed ? -1 : take(path.data, &busy, NULL);
        if (fd >= 0) {
            unlink(path.data);
            close(fd);
        }
    }
    if (d)
        closedir(d);
    buf_release(&path);
}

enum { PATIENT = 40 }; // tries: a fifth of a second

// Again where another process has it, which may be for the moment alone in which that one sweeps.
static int take_soon(const char *path, int tries, bool *busy, struct error *err)
{
    enum { PAUSE_NS = 5000000 };
    struct error why = {0};
    int fd;
    while ((fd = take(path, busy, &why)) < 0 && *busy && --tries > 0)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    if (fd < 0 && err)
        *err = why;
    return fd;
}

// False with *busy: another process has it.
static bool lock_take(struct session_lock *l, const char *state_dir, const char *name, int tries,
                      bool *busy, struct error *err)
{
    struct buf lock = {0};
    *busy = false;
    *l = SESSION_LOCK_NONE;
    if (!session_path(state_dir, name, &l->path, err))
        return false;
    if (!place_make_parents(l->path.data, err))
        return error_prefix(err, "the sessions (XDG_STATE_HOME names another place)");
    sweep(state_dir);
    // The session's own file may be replaced, so the lock is on a file beside it.
    l->name = strdup(name);
    bool ok = (l->name || error_oom(err, "a name", strlen(name))) && lock_path(l, &lock, err);
    if (ok) {
        l->fd = take_soon(lock.data, tries, busy, err);
        ok = l->fd >= 0;
    }
    if (*busy)
        error_set(err, ERR_FAIL,
                  "session %s is in use by another hokku: leave it there first, or choose another",
                  name);
    buf_release(&lock);
    if (!ok)
        session_lock_release(l);
    return ok;
}

bool session_lock_take(struct session_lock *l, const char *state_dir, const char *name,
                       struct error *err)
{
    bool busy;
    return lock_take(l, state_dir, name, PATIENT, &busy, err);
}

void session_lock_release(struct session_lock *l)
{
    session_writer_free(l->writer);
    if (l->fd >= 0) {
        struct buf lock = {0};
        if (lock_path(l, &lock, NULL))
            unlink(lock.data); // while it is still ours
        buf_release(&lock);
        close(l->fd);
    }
    free(l->name);
    buf_release(&l->path);
    *l = SESSION_LOCK_NONE;
}

bool session_exists(const struct session_lock *l)
{
    return l->path.data && access(l->path.data, F_OK) == 0;
}

static bool is_protected(const struct stat *st)
{
    return S_ISREG(st->st_mode) && !(st->st_mode & S_IWUSR);
}

bool session_may_change(const struct session_lock *l, struct error *err)
{
    struct stat st;
    return lstat(buf_str(&l->path), &st) != 0 || !is_protected(&st) ||
           error_set(err, ERR_FAIL,
                     "%s: its mode %04o keeps it as it is: chmod u+w to go on with it; --base %s "
                     "begins with it and leaves it so",
                     buf_str(&l->path), (unsigned)st.st_mode & 07777, l->name);
}

void session_lock_wait(const struct session_lock *l)
{
    if (l->writer)
        session_writer_wait(l->writer);
}

struct session_mark session_mark(const struct session_lock *l)
{
    struct session_mark m = {0};
    struct stat st;
    session_lock_wait(l);
    int fd = l->path.data ? place_open(l->path.data, O_RDONLY, NULL) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        m.dev = st.st_dev;
        m.ino = st.st_ino;
        if (pread(fd, m.head, sizeof m.head, 0) < 0)
            memset(m.head, 0, sizeof m.head);
    }
    if (fd >= 0)
        close(fd);
    return m;
}

bool session_is_as_left(const struct session_lock *l, const struct session_mark *left,
                        struct error *err)
{
    const struct session_mark now = session_mark(l);
    if (!session_exists(l))
        return true;
    if (now.ino == 0 || now.dev != left->dev || now.ino != left->ino ||
        memcmp(now.head, left->head, sizeof now.head) != 0)
        return error_set(err, ERR_FAIL, "session %s was changed by another hokku since", l->name);
    return session_may_change(l, err);
}

bool session_is_unnamed(const char *name)
{
    static const char shape[] = "chat-dddddddd-dddddd";
    size_t i = 0;
    for (; shape[i]; i++)
        if (shape[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != shape[i])
            return false;
    return name[i] == '\0' ||
           (name[i] == '-' && strspn(name + i + 1, "0123456789") == strlen(name + i + 1));
}

bool session_name_check_new(const char *name, struct error *err)
{
    return name_check(name, err) &&
           (name[0] != '-' ||
            error_set(err, ERR_USAGE,
                      "session name \"%.100s\": found an option, expected a name that does not "
                      "begin with '-'",
                      name)) &&
           (!session_is_unnamed(name) ||
            error_set(err, ERR_USAGE,
                      "session name \"%.100s\": found a name that chats without one have, expected "
                      "another: only the newest %d of those are kept",
                      name, SESSION_UNNAMED_MAX));
}

bool session_latest(const char *state_dir, char **name, struct error *err)
{
    size_t n;
    char **names;
    struct timespec newest = {0};
    struct buf path = {0};
    *name = NULL;
    bool ok = session_names(state_dir, &names, &n, err);
    for (size_t i = 0; ok && i < n; i++) {
        struct stat st;
        if (!session_path(state_dir, names[i], &path, NULL) || lstat(path.data, &st) != 0 ||
            !S_ISREG(st.st_mode) || st.st_mtim.tv_sec < newest.tv_sec ||
            (st.st_mtim.tv_sec == newest.tv_sec && st.st_mtim.tv_nsec < newest.tv_nsec))
            continue;
        newest = st.st_mtim;
        free(*name);
        *name = strdup(names[i]);
        ok = *name || error_oom(err, "a name", strlen(names[i]));
    }
    session_names_free(names, n);
    buf_release(&path);
    return ok;
}

static bool is_file(const char *name)
{
    struct stat st;
    return strchr(name, '/') || (stat(name, &st) == 0 && !S_ISDIR(st.st_mode));
}

bool session_find(const char *state_dir, const char *name, struct buf *path, struct error *err)
{
    struct error none = {0};
    buf_clear(path);
    if (session_path(state_dir, name, path, &none) && access(path->data, F_OK) == 0)
        return true;
    if (none.code == ERR_MEMORY)
        return error_oom(err, "a path", strlen(name));
    buf_clear(path);
    if (is_file(name))
        return buf_puts(path, name) || error_oom(err, "a path", strlen(name));
    return session_path(state_dir, name, path, err) &&
           error_set(err, ERR_FAIL,
                     "there is no session %s, and no such file; hokku sessions lists them", name);
}

// The lock of one that can be removed.
static bool take_removable(struct session_lock *l, const char *state_dir, const char *name,
                           int tries, struct error *err)
{
    bool busy;
    struct stat st = {0};
    struct buf path = {0};
    bool ok = session_path(state_dir, name, &path, err);
    if (ok && lstat(path.data, &st) != 0)
        ok = error_set(err, ERR_FAIL, "there is no session %s; hokku sessions lists them", name);
    else if (ok && S_ISDIR(st.st_mode))
        ok = error_set(err, ERR_FAIL, "%s: found a folder, expected a session", path.data);
    else if (ok && is_protected(&st))
        ok = error_set(err, ERR_FAIL, "%s: its mode %04o keeps it as it is: chmod u+w to remove it",
                       path.data, (unsigned)st.st_mode & 07777);
    buf_release(&path);
    *l = SESSION_LOCK_NONE;
    return ok && lock_take(l, state_dir, name, tries, &busy, err);
}

bool session_removable(const char *state_dir, const char *name, struct error *err)
{
    struct session_lock l;
    if (!take_removable(&l, state_dir, name, PATIENT, err))
        return false;
    session_lock_release(&l);
    return true;
}

static bool remove_existing(const char *state_dir, const char *name, int tries, struct error *err)
{
    struct session_lock l;
    if (!take_removable(&l, state_dir, name, tries, err))
        return false;
    bool ok = unlink(l.path.data) == 0 ||
              error_set(err, ERR_FAIL, "%s: cannot be removed: %s", l.path.data, strerror(errno));
    session_lock_release(&l);
    return ok;
}

bool session_remove(const char *state_dir, const char *name, struct error *err)
{
    return remove_existing(state_dir, name, PATIENT, err);
}

void session_remove_old(const struct session_lock *l, const char *state_dir)
{
    size_t n, n_unnamed = 1; // this one
    char **names;
    session_names(state_dir, &names, &n, NULL);
    for (size_t i = n; i > 0; i--) // their names sort by time
        if (session_is_unnamed(names[i - 1]) && strcmp(names[i - 1], l->name) != 0 &&
            ++n_unnamed > SESSION_UNNAMED_MAX)
            remove_existing(state_dir, names[i - 1], 1, NULL); // not one that is in use
    session_names_free(names, n);
}

bool session_lock_take_unnamed(struct session_lock *l, const char *state_dir, int64_t now,
                               struct error *err)
{
    enum { TRIES = 100 };
    time_t t = (time_t)now;
    struct tm tm;
    char when[32], name[64];
    *l = SESSION_LOCK_NONE;
    if (!localtime_r(&t, &tm) || !strftime(when, sizeof when, "chat-%Y%m%d-%H%M%S", &tm))
        return error_set(err, ERR_FAIL, "the clock tells no time");
    for (int i = 1; i <= TRIES; i++) {
        snprintf(name, sizeof name, i > 1 ? "%s-%d" : "%s", when, i);
        bool busy; // another chat began in this second; what else is wrong is so for all
        if (!lock_take(l, state_dir, name, 1, &busy, err)) {
            if (!busy)
                return false;
            continue;
        }
        if (!session_exists(l)) {
            l->unnamed = true;
            return true;
        }
        session_lock_release(l);
    }
    return false;
}

bool session_rename(const char *state_dir, const char *from, const char *to, struct error *err)
{
    struct session_lock l, other = SESSION_LOCK_NONE;
    if (!session_name_check_new(to, err) || !take_removable(&l, state_dir, from, PATIENT, err))
        return false;
    if (strcmp(from, to) == 0) {
        session_lock_release(&l);
        return error_set(err, ERR_FAIL, "session %s has that name already", from);
    }
    bool ok = session_lock_take(&other, state_dir, to, err);
    if (ok && session_exists(&other))
        ok = error_set(err, ERR_FAIL, "there is already a session %s: choose another name", to);
    ok = ok && place_move(l.path.data, other.path.data, err);
    session_lock_release(&other);
    session_lock_release(&l);
    return ok;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool read_names(DIR *d, char ***names, size_t *n, struct error *err)
{
    size_t cap = 0;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0) {
        size_t len = strlen(e->d_name), tail = sizeof suffix - 1;
        if (e->d_name[0] == '.' || len <= tail || strcmp(e->d_name + len - tail, suffix) != 0)
            continue;
        if (!array_grow(NULL, names, *n, &cap, sizeof **names) ||
            !((*names)[*n] = strndup(e->d_name, len - tail)))
            return error_oom(err, "the names of the sessions", len);
        if (name_check((*names)[*n], NULL)) // others could not be opened
            ++*n;
        else
            free((*names)[*n]);
    }
    return errno == 0 || error_set(err, ERR_FAIL, "%s", strerror(errno));
}

bool session_names(const char *state_dir, char ***names, size_t *n, struct error *err)
{
    struct buf path = {0};
    *names = NULL;
    *n = 0;
    if (!state_dir)
        return true;
    if (!buf_printf(&path, "%s/sessions", state_dir))
        return error_oom(err, "a path", strlen(state_dir));
    DIR *d = opendir(path.data);
    bool ok = d ? read_names(d, names, n, err)
                : errno == ENOENT || error_set(err, ERR_FAIL, "%s", strerror(errno));
    if (!ok)
        error_prefix(err, "%s: cannot be read", path.data);
    if (d)
        closedir(d);
    buf_release(&path);
    if (!ok) {
        session_names_free(*names, *n);
        *names = NULL;
        *n = 0;
    }
    if (*n > 0)
        qsort(*names, *n, sizeof **names, compare);
    return ok;
}

void session_names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
