#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/utf8.h"

bool fd_wait_for(int fd, double seconds, const struct cancel *cancel)
{
    // A signal that comes just before poll() is seen after this many milliseconds.
    enum { LATE = 50 };
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const double end = clock_now() + seconds;
    while (!cancel_asked(cancel)) {
        int n = poll(&p, 1, cancel || seconds >= 0 ? LATE : -1);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; // read() will say what is wrong
        if (seconds >= 0 && clock_now() >= end)
            break;
    }
    return false;
}

bool fd_wait(int fd, const struct cancel *cancel)
{
    return fd_wait_for(fd, -1, cancel);
}

bool fd_read_all(int fd, const char *label, size_t max_bytes, const struct cancel *cancel,
                 struct buf *out, struct error *err)
{
    size_t begin = out->len;
    char most[FORMAT_NUMBER];
    for (;;) {
        if (!buf_reserve(out, 65536))
            return error_oom(err, label, out->len + 65536);
        if (!fd_wait(fd, cancel))
            return error_set(err, ERR_INTERRUPTED, "interrupted while reading %s", label);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return error_set(err, ERR_FAIL, "%s: cannot be read: %s", label, strerror(errno));
        if (n == 0)
            break;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len - begin > max_bytes)
            return error_set(err, ERR_FAIL, "%s: larger than %s bytes, the most that is read",
                             label, format_number(most, max_bytes));
    }
    return true;
}

bool file_read(const char *path, size_t max_bytes, struct buf *out, struct error *err)
{
    return file_read_waiting(path, max_bytes, NULL, out, err);
}

bool file_read_setting(const char *path, size_t max_bytes, const struct cancel *cancel,
                       struct buf *out, struct error *err)
{
    if (file_read_waiting(path, max_bytes, cancel, out, err)) {
        utf8_drop_mark(out);
        return true;
    }
    if (err && err->code == ERR_FAIL)
        err->code = ERR_USAGE;
    buf_release(out);
    return false;
}

void file_drop_ends(struct buf *text)
{
    utf8_drop_mark(text);
    if (text->len == 0 || text->data[text->len - 1] != '\n')
        return;
    text->len--;
    text->len -= text->len > 0 && text->data[text->len - 1] == '\r';
    text->data[text->len] = '\0';
}

bool file_read_waiting(const char *path, size_t max_bytes, const struct cancel *cancel,
                       struct buf *out, struct error *err)
{
    if (!*path) // a script's variable that is not set
        return error_set(err, ERR_FAIL, "found an empty name, expected a file's");
    // A named pipe without a writer must not hold open(), which cannot be asked to end.
    int fd = open(path, O_RDONLY | O_CLOEXEC | (cancel ? O_NONBLOCK : 0));
    if (fd < 0)
        return error_set(err, ERR_FAIL, "%s: cannot be opened: %s", path, strerror(errno));
    bool ok = fd_read_all(fd, path, max_bytes, cancel, out, err);
    close(fd);
    return ok;
}

bool fd_write_all(int fd, const char *label, const void *data, size_t n, struct error *err)
{
    const char *p = data;
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN) { // whoever shares it with us made it so: wait for its reader
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (k < 0)
            return error_set(err, ERR_FAIL, "%s: cannot be written: %s", label, strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool file_write_new(const char *path, const void *data, size_t n, struct error *err)
{
    if (!*path)
        return error_set(err, ERR_FAIL, "found an empty name, expected a new file's");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST
                   ? error_set(err, ERR_FAIL, "%s: there is already such a file: name another",
                               path)
                   : error_set(err, ERR_FAIL, "%s: cannot be made: %s", path, strerror(errno));
    bool ok = fd_write_all(fd, path, data, n, err);
    if (close(fd) != 0 && ok)
        ok = error_set(err, ERR_FAIL, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok)
        unlink(path);
    return ok;
}

bool file_identity(const char *path, struct buf *out)
{
    struct stat st;
    // (The time of the contents can be set back, that of the inode cannot.)
    return stat(path, &st) == 0 &&
           buf_printf(out, "%llu:%llu:%lld:%lld.%09ld:%lld.%09ld", (unsigned long long)st.st_dev,
                      (unsigned long long)st.st_ino, (long long)st.st_size,
                      (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                      (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

void fd_fill_standard(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) < 0)
            return; // what is written fails then, and is told
    if ((fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_WRONLY) { // nohup's
        close(STDIN_FILENO); // the next one opened has its number
        open("/dev/null", O_RDONLY);
    }
}
