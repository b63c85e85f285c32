#include "base/out.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/termsafe.h"

bool out_is_terminal(enum out_stream s)
{
    return isatty(s);
}

bool out_is_pipe(enum out_stream s)
{
    struct stat st;
    return fstat(s, &st) == 0 && S_ISFIFO(st.st_mode);
}

void out_await_reader(enum out_stream s)
{
    enum { MOMENT_NS = 2000000, PATIENCE = 125 }; // in moments
    int unread = 0, n = 0;
    do {
        nanosleep(&(struct timespec){.tv_nsec = MOMENT_NS}, NULL);
    } while (ioctl(s, FIONREAD, &unread) == 0 && unread > 0 && ++n < PATIENCE);
    if (n > 0)
        nanosleep(&(struct timespec){.tv_nsec = MOMENT_NS}, NULL);
}

size_t out_columns(enum out_stream s)
{
    struct winsize w;
    return ioctl(s, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

bool out_redirect(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0) // safe in a handler
            return false;
    return true;
}

static const char erase_line[] = "\r\x1b[K";

static bool filtered(enum out_stream s, const char *text, size_t n,
                     bool (*filter)(const char *text, size_t n, struct buf *out), struct error *err)
{
    const char *label = s == OUT_STDOUT ? "standard output" : "standard error";
    struct buf safe = {0};
    if (!out_is_terminal(s))
        return fd_write_all(s, label, text, n, err);
    bool ok = filter(text, n, &safe) || error_oom(err, label, n);
    ok = ok && fd_write_all(s, label, buf_str(&safe), safe.len, err);
    buf_release(&safe);
    return ok;
}

static bool filter_text(const char *text, size_t n, struct buf *out)
{
    return termsafe_text(text, n, false, out);
}

bool out_text(enum out_stream s, const char *text, size_t n, struct error *err)
{
    return filtered(s, text, n, filter_text, err);
}

bool out_json(enum out_stream s, const char *json, size_t n, struct error *err)
{
    return filtered(s, json, n, termsafe_json, err);
}

bool out_painted(enum out_stream s, const char *text, size_t n, struct error *err)
{
    return filtered(s, text, n, termsafe_painted, err);
}

bool out_clipboard(enum out_stream s, const char *text, size_t n, struct error *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { MOST = 1 << 20 }; // terminals forget, or choke on, larger ones
    struct buf b = {0};
    if (n > MOST)
        return error_set(err, ERR_FAIL,
                         "%zu bytes are too many for a clipboard, expected at most %d", n, MOST);
    // Base64: nothing in it can end the sequence.
    buf_puts(&b, "\x1b]52;c;");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            buf_putc(&b, i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63]);
    }
    buf_puts(&b, "\x07");
    bool ok = (!b.failed || error_oom(err, "the clipboard", n)) && out_is_terminal(s) &&
              fd_write_all(s, "the terminal", b.data, b.len, err);
    buf_release(&b);
    return ok;
}

bool out_nul(enum out_stream s, struct error *err)
{
    // A terminal shows nothing for it.
    return fd_write_all(s, "standard output", "", 1, err);
}

void out_say(const char *fmt, ...)
{
    struct buf line = {0}, safe = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&line, fmt, ap);
    va_end(ap);
    if (out_is_terminal(OUT_STDERR))
        termsafe_text(buf_str(&line), line.len, true, &safe);
    else
        buf_append(&safe, buf_str(&line), line.len);
    buf_putc(&safe, '\n');
    static const char no_room[] = "hokku: out of memory, even for a message\n";
    bool ok = !line.failed && !safe.failed;
    fd_write_all(OUT_STDERR, "standard error", ok ? safe.data : no_room,
                 ok ? safe.len : sizeof no_room - 1, NULL);
    buf_release(&line);
    buf_release(&safe);
}

void out_progress(const char *fmt, ...)
{
    struct buf raw = {0}, line = {0};
    size_t columns = out_columns(OUT_STDERR), begin;
    if (!out_is_terminal(OUT_STDERR))
        return;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&raw, fmt, ap);
    va_end(ap);
    buf_puts(&line, erase_line);
    begin = line.len;
    termsafe_text(buf_str(&raw), raw.len, true, &line);
    if (!line.failed && columns > 0) // a line that wraps could not be replaced
        line.len = begin + termsafe_fit(line.data + begin, line.len - begin, columns - 1);
    if (!line.failed)
        fd_write_all(OUT_STDERR, "standard error", buf_str(&line), line.len, NULL);
    buf_release(&raw);
    buf_release(&line);
}

void out_progress_clear(void)
{
    if (out_is_terminal(OUT_STDERR))
        fd_write_all(OUT_STDERR, "standard error", erase_line, sizeof erase_line - 1, NULL);
}
