#include "dialog/session_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/place.h"

static const char suffix[] = ".session";

bool session_name_check(const char *name, struct error *err)
{
    size_t n = strlen(name);
    bool ok = n > 0 && n <= 100 && name[0] != '.';
    for (size_t i = 0; ok && i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        ok = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '.' ||
             c == '_' || c == '-' || c >= 0x80;
    }
    return ok ||
           error_set(err, ERR_USAGE,
                     "session name \"%.100s\": expected 1 to 100 letters, digits, '_', '-' or "
                     "'.', not beginning with '.'",
                     name);
}

bool session_path(const char *state_dir, const char *name, struct buf *out, struct error *err)
{
    if (!session_name_check(name, err) || !place_need(state_dir, "sessions", "XDG_STATE_HOME", err))
        return false;
    buf_clear(out);
    return buf_printf(out, "%s/sessions/%s%s", state_dir, name, suffix) ||
           error_oom(err, "a path", strlen(name));
}

bool session_lock_take(struct session_lock *l, const char *state_dir, const char *name,
                       struct error *err)
{
    struct buf lock = {0};
    *l = SESSION_LOCK_NONE;
    if (!session_path(state_dir, name, &l->path, err) || !place_make_parents(l->path.data, err))
        return false;
    // The session's own file is replaced at every save, so the lock is on a file beside it.
    l->name = strdup(name);
    bool ok = l->name && buf_printf(&lock, "%s/sessions/.%s.lock", state_dir, name);
    if (!ok)
        error_oom(err, "a path", strlen(name));
    if (ok) {
        l->fd = place_open(lock.data, O_RDWR | O_CREAT, err);
        ok = l->fd >= 0;
    }
    if (ok && flock(l->fd, LOCK_EX | LOCK_NB) != 0)
        ok = error_set(err, ERR_FAIL,
                       errno == EWOULDBLOCK
                           ? "session %s is in use by another hokku: leave it there first, or use "
                             "another name"
                           : "session %s cannot be locked",
                       name);
    buf_release(&lock);
    if (!ok)
        session_lock_release(l);
    return ok;
}

void session_lock_release(struct session_lock *l)
{
    if (l->fd >= 0)
        close(l->fd);
    free(l->name);
    buf_release(&l->path);
    *l = SESSION_LOCK_NONE;
}

bool session_exists(const struct session_lock *l)
{
    return l->path.data && access(l->path.data, F_OK) == 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **session_names(const char *state_dir, size_t *n)
{
    struct buf path = {0};
    char **names = NULL;
    size_t cap = 0;
    *n = 0;
    if (!state_dir)
        return NULL;
    buf_printf(&path, "%s/sessions", state_dir);
    DIR *d = opendir(buf_str(&path));
    buf_release(&path);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name), tail = sizeof suffix - 1;
        if (e->d_name[0] == '.' || len <= tail || strcmp(e->d_name + len - tail, suffix) != 0)
            continue;
        if (*n == cap) {
            cap = cap ? 2 * cap : 16;
            char **p = realloc(names, cap * sizeof *p);
            if (!p)
                break;
            names = p;
        }
        if (!(names[*n] = strndup(e->d_name, len - tail)))
            break;
        if (session_name_check(names[*n], NULL)) // others could not be opened
            ++*n;
        else
            free(names[*n]);
    }
    if (d)
        closedir(d);
    if (*n > 0)
        qsort(names, *n, sizeof *names, compare);
    return names;
}

void session_names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
