// Whole files and descriptors: read, write, nothing half done.
#ifndef HOKKU_BASE_FILE_H
#define HOKKU_BASE_FILE_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

// Appends everything of a file, or of an open descriptor, to out. max_bytes bounds it. Errors:
// ERR_FAIL, ERR_MEMORY; ERR_INTERRUPTED when asked to end while waiting (cancel may be
// NULL).
bool file_read(const char *path, size_t max_bytes, struct buf *out, struct error *err);
// A text that says how to answer, without a byte order mark: that it cannot be read is ERR_USAGE,
// too. What fails leaves out as it was, which must be empty.
bool file_read_setting(const char *path, size_t max_bytes, const struct cancel *cancel,
                       struct buf *out, struct error *err);
// Leaves out of a text for a model what is none of it: a byte order mark, and one final newline (a
// carriage return before it belongs to it).
void file_drop_ends(struct buf *text);
// For what may be a pipe whose other end takes its time.
bool file_read_waiting(const char *path, size_t max_bytes, const struct cancel *cancel,
                       struct buf *out, struct error *err);
bool fd_read_all(int fd, const char *label, size_t max_bytes, const struct cancel *cancel,
                 struct buf *out, struct error *err);

// Waits until a read of fd would not wait. False when asked to end (cancel may be NULL).
bool fd_wait(int fd, const struct cancel *cancel);
// The same, but at most so long: then false, too.
bool fd_wait_for(int fd, double seconds, const struct cancel *cancel);

// Standard input, output and error that were closed become /dev/null: else what is opened next
// would get their number. It is there to be read alone: an answer written to a closed output fails.
// An input that is open for writing alone becomes an empty one.
void fd_fill_standard(void);

// Writes a file that does not exist yet. Errors: ERR_FAIL: there is one; what was written is
// removed when it fails.
bool file_write_new(const char *path, const void *data, size_t n, struct error *err);

// Appends what would be different if the file at path were another, or had been written to. False:
// nothing is known of it (errno), or there was no memory.
bool file_identity(const char *path, struct buf *out);

// Writes all n bytes. Errors: ERR_FAIL (disk full and the like).
bool fd_write_all(int fd, const char *label, const void *data, size_t n, struct error *err);

#endif
