#include "term/history.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/place.h"

// The file is read from its end: large pastes must not cost the history.
enum { MAX_BYTES = 16 << 20, MAX_ENTRY = 1 << 20 };

static bool escape(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s == '\n')
            buf_puts(out, "\\n");
        else if (*s == '\\')
            buf_puts(out, "\\\\");
        else
            buf_putc(out, *s);
    }
    return buf_putc(out, '\n');
}

static void unescape(char *s)
{
    char *w = s;
    for (; *s; s++) {
        if (*s == '\\' && s[1] == 'n') {
            *w++ = '\n';
            s++;
        } else {
            if (*s == '\\' && s[1] == '\\')
                s++;
            *w++ = *s;
        }
    }
    *w = '\0';
}

// Without the NUL bytes that a crash may leave in a file: the text would end at the first.
static void drop_nuls(struct buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        if (text->data[i])
            text->data[n++] = text->data[i];
    if (n < text->len)
        text->data[n] = '\0';
    text->len = n;
}

bool history_load(const char *path, void (*add)(void *user, const char *entry), void *user,
                  struct error *err)
{
    struct buf text = {0};
    int fd = place_open(path, O_RDONLY, err);
    if (fd < 0)
        return errno == ENOENT;
    bool cut = lseek(fd, 0, SEEK_END) > MAX_BYTES;
    lseek(fd, cut ? -(off_t)MAX_BYTES : 0, cut ? SEEK_END : SEEK_SET);
    // (Another run may append meanwhile.)
    bool ok = fd_read_all(fd, path, 2 * MAX_BYTES, NULL, &text, err);
    close(fd);
    if (!ok) {
        buf_release(&text);
        return false;
    }
    drop_nuls(&text);
    size_t n_lines = 0;
    for (size_t i = 0; i < text.len; i++)
        n_lines += text.data[i] == '\n';
    char *p = text.data;
    size_t skip = n_lines > HISTORY_MAX ? n_lines - HISTORY_MAX : cut; // cut: half an entry
    for (; skip > 0; skip--)
        p = strchr(p, '\n') ? strchr(p, '\n') + 1 : p + strlen(p);
    if (cut || n_lines > 2 * HISTORY_MAX)
        place_replace(path, p, text.len - (size_t)(p - text.data), NULL); // else it stays as it is
    while (p && *p) {
        char *end = strchr(p, '\n');
        if (end)
            *end = '\0';
        unescape(p);
        if (*p)
            add(user, p);
        p = end ? end + 1 : NULL;
    }
    buf_release(&text);
    return true;
}

// Whether the last line has no end: a full disk has taken half of it.
static bool is_cut_off(int fd)
{
    char last = '\n';
    const off_t n = lseek(fd, 0, SEEK_END);
    return n > 0 && pread(fd, &last, 1, n - 1) == 1 && last != '\n';
}

bool history_append(const char *path, const char *entry, struct error *err)
{
    struct buf line = {0};
    if (strlen(entry) > MAX_ENTRY)
        return error_set(err, ERR_FAIL,
                         "a message of %zu bytes, expected at most %d (shorter ones are kept)",
                         strlen(entry), MAX_ENTRY);
    bool ok = place_make_parents(path, err);
    if (ok) {
        int fd = place_open(path, O_RDWR | O_CREAT | O_APPEND, err);
        ok = fd >= 0;
        if (ok) {
            fchmod(fd, 0600); // also when another program made it readable to all
            if (is_cut_off(fd))
                buf_putc(&line, '\n');
            ok = escape(entry, &line) || error_oom(err, "a line of the history", strlen(entry));
            ok = ok && fd_write_all(fd, path, line.data, line.len, err);
            close(fd);
        }
    }
    buf_release(&line);
    return ok;
}
