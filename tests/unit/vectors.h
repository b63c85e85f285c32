// Where the reference vectors are: tests/vectors/README.md.
#ifndef VECTORS_H
#define VECTORS_H

#include <stddef.h>
#include <stdlib.h>

// How many folders there are: the one that the build has written, and that of HOKKU_CONFORMANCE.
static inline size_t n_vectors_dirs(void)
{
    return getenv("HOKKU_CONFORMANCE") ? 2 : 1;
}

// Folder i of them. HOKKU_VECTORS names the first where the build folder has moved.
static inline const char *vectors_dir(size_t i)
{
    const char *dir = getenv(i == 0 ? "HOKKU_VECTORS" : "HOKKU_CONFORMANCE");
    return dir ? dir : VECTORS_DIR;
}

#endif
