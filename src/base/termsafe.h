// Untrusted text on its way to a terminal: nothing in it may drive the terminal. ESC, the C0 and C1
// controls but newline and tab, DEL, bidirectional controls and other invisible format characters
// become visible symbols; ill-formed UTF-8 becomes U+FFFD. out.h, the door to the terminal, applies
// this to everything; pipes get the exact bytes instead.
#ifndef HOKKU_BASE_TERMSAFE_H
#define HOKKU_BASE_TERMSAFE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct termsafe {
    char held[4]; // the beginning of a sequence that more bytes may complete
    size_t n_held;
};

// Appends what may be shown of bytes[0..n); a sequence cut at the end waits for the next call.
bool termsafe_push(struct termsafe *t, const char *bytes, size_t n, struct buf *out);
bool termsafe_flush(struct termsafe *t, struct buf *out);

// Whole texts. line: newline and tab become visible too, for names and messages of one line.
bool termsafe_text(const char *bytes, size_t n, bool line, struct buf *out);

// JSON: what could drive a terminal becomes \uXXXX, which is the same value to whoever parses it.
bool termsafe_json(const char *json, size_t n, struct buf *out);
// Text with styles: hokku's own sequences pass (carriage return, CSI with m, D or K), nothing else.
// It is for what termsafe made safe piece by piece: in untrusted text even these could hide
// something.
bool termsafe_painted(const char *bytes, size_t n, struct buf *out);
// Whether cp, or all of s, is shown as it is; only such names are offered to be chosen.
bool termsafe_plain(uint32_t cp);
bool termsafe_all_plain(const char *s, size_t n);

// The bytes of text[0..n) (safe, as below) that fit in so many columns.
size_t termsafe_fit(const char *text, size_t n, size_t columns);
// Appends the beginning of a text, on one line, in at most so many columns (1 or more), the last an
// ellipsis where more follows.
bool termsafe_excerpt(const char *bytes, size_t n, size_t columns, struct buf *out);
// The columns that text[0..n) (already safe, without newline and tab) takes on a terminal.
size_t termsafe_width(const char *text, size_t n);
// The columns that a name takes where it is shown, as it comes from a file or a person.
size_t termsafe_name_width(const char *name);
// Appends it, and blanks up to so many columns, for the next one of a table.
bool termsafe_name_column(const char *name, size_t columns, struct buf *out);

#endif
