// Whole files and descriptors: read, write, nothing half done.
#ifndef HOKKU_BASE_FILE_H
#define HOKKU_BASE_FILE_H

#include "base/buf.h"
#include "base/error.h"

// Appends everything of a file, or of an open descriptor, to out. max_bytes bounds it. Errors:
// ERR_FAIL, ERR_MEMORY; ERR_INTERRUPTED when *cancel becomes non-zero while waiting (cancel may be
// NULL).
bool file_read(const char *path, size_t max_bytes, struct buf *out, struct error *err);
bool fd_read_all(int fd, const char *label, size_t max_bytes, const volatile int *cancel,
                 struct buf *out, struct error *err);

// Writes all n bytes. Errors: ERR_FAIL (disk full and the like).
bool fd_write_all(int fd, const char *label, const void *data, size_t n, struct error *err);

#endif
