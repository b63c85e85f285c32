// Files that go before the next message (/read, /detach).
#ifndef HOKKU_TERM_ATTACH_H
#define HOKKU_TERM_ATTACH_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

enum { ATTACH_MAX = 16 };

struct attached {
    struct {
        struct buf text, name;
    } files[ATTACH_MAX];
    size_t n;
};

void attached_clear(struct attached *a); // zeroed is fine
// The file that a person means by what he typed: quotes and backslashes taken off, ~/ put in. home
// may be NULL. Errors: ERR_USAGE.
bool attach_path(const char *typed, const char *home, struct buf *path, struct error *err);
// Reads a regular file; utf8: it must be text. What is attached already stays. Errors: ERR_FAIL,
// ERR_USAGE.
bool attach_file(struct attached *a, const char *path, bool utf8, const struct cancel *cancel,
                 struct error *err);
// Whether b, what a file has, is UTF-8 without a NUL. Errors: ERR_USAGE, with the first byte that
// is not.
bool attach_is_text(const char *path, const struct buf *b, struct error *err);
void attached_drop(struct attached *a, size_t i);
// The texts, a blank line between; the names, a space between.
bool attached_text(const struct attached *a, struct buf *out);
bool attached_names(const struct attached *a, struct buf *out);

#endif
