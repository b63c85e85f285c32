// The lines of a descriptor as they come, one at a time, in bounded memory.
#ifndef HOKKU_TERM_LINE_READER_H
#define HOKKU_TERM_LINE_READER_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

struct line_reader { // the first two are the caller's to set
    int fd;
    const struct cancel *cancel;
    struct buf in;
    size_t at;        // of it, the first so many bytes are done with
    size_t searched;  // bytes behind those, in which no line ends
    bool eof;         // there is no more to read
    bool skipping;    // what comes belongs to a line that was too long
    size_t number;    // lines given so far, blank ones included
    uint64_t n_bytes; // of them
};

void line_reader_release(struct line_reader *r); // zeroed is fine

enum line_next { LINE_THERE, LINE_TOO_LONG, LINE_NOT_YET, LINE_END, LINE_FAILED };

// The next line without its end, borrowed until the next call. wait: until it is there; else
// LINE_NOT_YET may come, after a megabyte also where there is more to read. LINE_TOO_LONG: more
// than 16 MB, err says so; it has a number, and the next call goes on behind it. Errors: ERR_FAIL
// (cannot be read), ERR_MEMORY, ERR_INTERRUPTED.
enum line_next line_reader_next(struct line_reader *r, bool wait, const char **text, size_t *n,
                                struct error *err);

// What is said where lines that nobody asked for may have come.
#define LINES_LEFT "standard input was not read to its end"

#endif
