// One file of a server into the cache: resumed, checked, verified, then given its name.
#ifndef HOKKU_HUB_FETCH_H
#define HOKKU_HUB_FETCH_H

#include "hub/cache.h"
#include "hub/http.h"

struct fetch {
    const struct hub_options *o;
    struct http *http;
    struct cache *cache;
    const char *url, *path;  // path: in the cache's directory
    const char *what;        // for messages
    uint64_t size;           // 0: not known
    char sha256[SHA256_HEX]; // "": not known
    char etag[128];          // of the whole file, strong; "": not known
    unsigned part, n_part;
};

// Downloads f->path unless another process just did. The lock of the part file keeps two processes
// from writing it at once. Errors: ERR_FAIL, ERR_MEMORY, ERR_INTERRUPTED; the part file stays.
bool fetch_file(struct fetch *f, struct error *err);

// Counts a failure (*n_failed) and waits before the next try, longer each time or as the server
// asks. False, with *err as it was, when it is no use to go on; or ERR_INTERRUPTED.
bool fetch_try_again(const struct hub_options *o, unsigned *n_failed, unsigned retry_after_s,
                     struct error *err);

// Whether n_bytes fit on the disk of `dir` (or where it will be made). Errors: ERR_FAIL.
bool fetch_check_space(const char *dir, uint64_t n_bytes, const char *what, struct error *err);

// Removes what interrupted downloads of path left, but not what another process is writing. Returns
// the bytes freed.
uint64_t fetch_drop_parts(const struct cache *c, const char *path);
// The file that NAME.KEY.part is a part of; false: it is no such name.
bool fetch_part_of(const char *part, struct buf *path);

#endif
