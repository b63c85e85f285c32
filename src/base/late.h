// Shared libraries that few runs need, opened when they are needed: with all that libcurl and
// libmicrohttpd bring along, 32 libraries, the dynamic loader takes 7 ms at every start, and 2
// without.
#ifndef HOKKU_BASE_LATE_H
#define HOKKU_BASE_LATE_H

#include <stddef.h>

#include "base/error.h"

// Opens it once, for good, and stores the addresses of its functions names[i] to *to[i], pointers
// to functions. package: Debian's, for the message. Errors: ERR_FAIL.
bool late_open(const char *library, const char *package, const char *const *names, void *const *to,
               size_t n, struct error *err);

#endif
