// Files that are mapped into memory. When one is cut, or its disk fails, reading what is gone
// raises SIGBUS. Whoever reads it is not killed: the pages read as zeros from then on, running work
// is asked to end, and the program says what happened in its own time.
#ifndef HOKKU_BASE_MAPPED_H
#define HOKKU_BASE_MAPPED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

void mapped_add(const void *at, size_t n, const char *path); // path is copied, its end if need be
void mapped_remove(const void *at);
void mapped_watch(struct cancel *cancel); // asked when a page is gone; NULL: nobody

// In a handler of SIGBUS: whether the address is in such a file; then it can be read.
bool mapped_fault(const void *address);
const char *mapped_failed(void); // the file that lost a page; NULL: none did

// What to say of it; false. Errors: ERR_MODEL.
bool mapped_error(bool saved, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
