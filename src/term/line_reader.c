#include "term/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/utf8.h"

enum { MAX_LINE = 16 << 20, READ_PIECE = 65536, PIECES_AT_ONCE = 16 };

void line_reader_release(struct line_reader *r)
{
    buf_release(&r->in);
    *r = (struct line_reader){.fd = -1};
}

// Appends what there is of the input.
static bool read_more(struct line_reader *r, struct error *err)
{
    struct buf *in = &r->in;
    if (r->at == in->len) { // (what a long line took is not kept)
        buf_release(in);
        r->at = 0;
    } else if (r->at > 0) {
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

// The first n bytes that are not done with are.
static void pass_over(struct line_reader *r, size_t n)
{
    r->at += n;
    r->n_bytes += n;
    r->searched = 0;
}

// Where the line that begins at `at` ends, NULL: not in what there is of it, which is not searched
// again.
static const char *find_end(struct line_reader *r)
{
    const size_t from = r->at + r->searched, rest = r->in.len - from;
    const char *end = rest ? memchr(r->in.data + from, '\n', rest) : NULL;
    if (!end)
        r->searched += rest;
    return end;
}

// Leaves out what there is of a line of which no more is wanted.
static void skip(struct line_reader *r)
{
    const size_t rest = r->in.len - r->at;
    const char *begin = buf_str(&r->in) + r->at, *end = find_end(r);
    pass_over(r, end ? (size_t)(end - begin) + 1 : rest);
    r->skipping = !end;
}

static enum line_next too_long(struct line_reader *r, struct error *err)
{
    char most[FORMAT_NUMBER];
    r->number++;
    r->skipping = true;
    error_set(err, ERR_FAIL,
              "longer than %s bytes, the most that a line may have: give this text alone, without "
              "--lines or --turns",
              format_number(most, MAX_LINE));
    return LINE_TOO_LONG;
}

enum line_next line_reader_next(struct line_reader *r, bool wait, const char **text, size_t *n,
                                struct error *err)
{
    // Where it does not wait, its caller has other work, and a line may be long or have no end.
    for (size_t n_pieces = 0; wait || n_pieces <= PIECES_AT_ONCE; n_pieces++) {
        if (r->skipping)
            skip(r);
        const struct buf *in = &r->in;
        if (r->number == 0 && r->at == 0 && (r->at = utf8_mark(buf_str(in), in->len)) > 0)
            r->searched = 0;
        const size_t rest = in->len - r->at;
        const char *begin = buf_str(in) + r->at, *end = find_end(r);
        *n = end ? (size_t)(end - begin) : rest;
        if (*n > MAX_LINE)
            return too_long(r, err);
        if (end || (r->eof && rest > 0)) {
            *text = begin;
            pass_over(r, *n + (end != NULL));
            r->number++;
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
    return LINE_NOT_YET;
}
