#include "term/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/utf8.h"

enum { MAX_LINE = 16 << 20, READ_PIECE = 65536 };

void line_reader_release(struct line_reader *r)
{
    buf_release(&r->in);
    *r = (struct line_reader){.fd = -1};
}

// Appends what there is of the input.
static bool read_more(struct line_reader *r, struct error *err)
{
    struct buf *in = &r->in;
    if (r->at > 0) {
        memmove(in->data, in->data + r->at, in->len - r->at);
        in->len -= r->at;
        r->at = 0;
    }
    if (!buf_reserve(in, READ_PIECE))
        return error_oom(err, "standard input", in->len + READ_PIECE);
    ssize_t n = read(r->fd, in->data + in->len, READ_PIECE);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return error_set(err, ERR_FAIL, "standard input: cannot be read: %s", strerror(errno));
    in->len += n > 0 ? (size_t)n : 0;
    in->data[in->len] = '\0';
    r->eof = n == 0;
    return true;
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0; // (what is wrong with it, read() will say)
}

enum line_next line_reader_next(struct line_reader *r, bool wait, const char **text, size_t *n,
                                struct error *err)
{
    for (;;) {
        const struct buf *in = &r->in;
        if (r->number == 0 && r->at == 0)
            r->at = utf8_mark(buf_str(&r->in), r->in.len);
        const size_t rest = in->len - r->at;
        const char *begin = buf_str(in) + r->at, *end = rest ? memchr(begin, '\n', rest) : NULL;
        *n = end ? (size_t)(end - begin) : rest;
        if (*n > MAX_LINE) {
            char most[FORMAT_NUMBER];
            error_set(
                err, ERR_FAIL,
                "line %zu of standard input is longer than %s bytes: give one text at a time, "
                "without --lines or --turns",
                r->number + 1, format_number(most, MAX_LINE));
            return LINE_FAILED;
        }
        if (end || (r->eof && rest > 0)) {
            *text = begin;
            r->at += *n + (end != NULL);
            r->number++;
            r->n_bytes += *n + (end != NULL);
            return LINE_THERE;
        }
        if (r->eof)
            return LINE_END;
        if (wait && !fd_wait(r->fd, r->cancel)) {
            error_set(err, ERR_INTERRUPTED, "interrupted");
            return LINE_FAILED;
        }
        if (!wait && !is_readable(r->fd))
            return LINE_NOT_YET;
        if (!read_more(r, err))
            return LINE_FAILED;
    }
}
