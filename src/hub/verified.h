// The SHA-256 of files that other programs put where they are. Each is hashed before its first use
// and again whenever it has changed since: what is known of a file goes by its inode, size and
// times, kept in STATE/verified.json. The time of the inode's last change cannot be set by hand.
#ifndef HOKKU_HUB_VERIFIED_H
#define HOKKU_HUB_VERIFIED_H

#include "base/sha256.h"
#include "hub/hub.h"

// path: as realpath gives it. Errors: ERR_FAIL, ERR_MEMORY, ERR_INTERRUPTED.
bool verified_sha256(const struct hub_options *o, const char *path, char out[SHA256_HEX],
                     struct error *err);

#endif
