#include "term/attach.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/utf8.h"

enum { MAX_FILE = 64 << 20 };

void attached_clear(struct attached *a)
{
    while (a->n > 0)
        attached_drop(a, a->n - 1);
}

void attached_drop(struct attached *a, size_t i)
{
    buf_release(&a->files[i].text);
    buf_release(&a->files[i].name);
    a->n--;
    memmove(&a->files[i], &a->files[i + 1], (a->n - i) * sizeof a->files[0]);
    memset(&a->files[a->n], 0, sizeof a->files[0]);
}

bool attach_path(const char *typed, const char *home, struct buf *path, struct error *err)
{
    const char *p = typed;
    char quote = 0;
    buf_clear(path);
    if (p[0] == '~' && (p[1] == '/' || !p[1]) && home) {
        buf_puts(path, home);
        p++;
    }
    for (; *p; p++) {
        if (quote && *p == quote)
            quote = 0;
        else if (!quote && (*p == '"' || *p == '\''))
            quote = *p;
        else if (*p == '\\' && quote != '\'' && p[1])
            buf_putc(path, *++p);
        else
            buf_putc(path, *p);
    }
    if (path->failed)
        return error_oom(err, "a path", strlen(typed));
    if (quote)
        return error_set(err, ERR_USAGE, "%.200s: found a %c without its end", typed, quote);
    return path->len > 0 || error_set(err, ERR_USAGE, "found an empty name, expected a file's");
}

bool attach_is_text(const char *path, const struct buf *b, struct error *err)
{
    uint32_t cp;
    for (size_t i = 0, used; i < b->len; i += used) {
        used = utf8_decode(b->data + i, b->len - i, &cp);
        if (used == 0 || cp == 0)
            return error_set(err, ERR_USAGE,
                             "%s: it is no text: byte %zu is 0x%02X, expected UTF-8; convert it "
                             "(iconv -t UTF-8) if it is text of another encoding",
                             path, i + 1, (unsigned char)b->data[i]);
    }
    return true;
}

bool attach_file(struct attached *a, const char *path, bool utf8, const struct cancel *cancel,
                 struct error *err)
{
    struct buf text = {0}, name = {0};
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (a->n == ATTACH_MAX)
        return error_set(err, ERR_FAIL, "%d files are attached: send the message, or /detach one",
                         ATTACH_MAX);
    // A pipe would wait for its other end, a device may never end.
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(err, ERR_FAIL, "%s: it is %s, expected a file", path,
                         S_ISDIR(st.st_mode)    ? "a directory"
                         : S_ISFIFO(st.st_mode) ? "a pipe"
                                                : "a device or socket");
    bool ok = file_read_waiting(path, MAX_FILE, cancel, &text, err) &&
              (!utf8 || attach_is_text(path, &text, err));
    file_drop_ends(&text);
    if (ok && text.len == 0)
        ok = error_set(err, ERR_FAIL, "%s: the file is empty", path);
    ok = ok && (buf_puts(&name, slash ? slash + 1 : path) ||
                error_oom(err, "the name of a file", strlen(path)));
    if (!ok) {
        buf_release(&text);
        buf_release(&name);
        return false;
    }
    a->files[a->n].text = text;
    a->files[a->n++].name = name;
    return true;
}

bool attached_text(const struct attached *a, struct buf *out)
{
    for (size_t i = 0; i < a->n; i++) {
        buf_puts(out, i > 0 ? "\n\n" : "");
        buf_append(out, buf_str(&a->files[i].text), a->files[i].text.len);
    }
    return !out->failed;
}

bool attached_names(const struct attached *a, struct buf *out)
{
    for (size_t i = 0; i < a->n; i++)
        buf_printf(out, "%s%s", i > 0 ? " " : "", buf_str(&a->files[i].name));
    return !out->failed;
}
