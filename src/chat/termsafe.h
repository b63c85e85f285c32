// Untrusted text on its way to a terminal: nothing in it may drive the terminal. ESC, the C0 and C1
// controls but newline and tab, DEL, bidirectional controls and other invisible format characters
// become visible symbols; ill-formed UTF-8 becomes U+FFFD. Pipes get the exact bytes instead: they
// do not come here.
#ifndef HOKKU_CHAT_TERMSAFE_H
#define HOKKU_CHAT_TERMSAFE_H

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

// The columns that text[0..n) (already safe, without newline and tab) takes on a terminal.
size_t termsafe_width(const char *text, size_t n);

#endif
