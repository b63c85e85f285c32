// The keys with which clients may come: a line each of a file that only its user can read.
#ifndef HOKKU_SERVE_API_KEYS_H
#define HOKKU_SERVE_API_KEYS_H

#include "base/error.h"
#include "base/sha256.h"

struct api_keys {
    unsigned char (*digests)[SHA256_BYTES]; // owned
    size_t n;
};

// Errors: ERR_USAGE: there is no such file, it is somebody else's or can be read by others, it has
// no key or a short one.
bool api_keys_read(struct api_keys *k, const char *path, struct error *err);
void api_keys_release(struct api_keys *k); // zeroed is fine
// Whether a header "Authorization: Bearer KEY" (NULL: there is none) has one of them. Takes the
// same time wherever it differs.
bool api_keys_accept(const struct api_keys *k, const char *authorization);

#endif
