// SHA-256 (FIPS 180-4): fingerprints of models and session files, checks of downloads.
#ifndef HOKKU_BASE_SHA256_H
#define HOKKU_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 };

struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes; // fed so far
    unsigned char block[64];
    bool hardware; // the processor's own instructions; the digest is the same
};

void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *data, size_t n);
void sha256_final(struct sha256 *h, unsigned char out[SHA256_BYTES]); // h is then used up
void sha256_hex(const unsigned char digest[SHA256_BYTES], char out[SHA256_HEX]); // lower case, NUL
// Of n bytes, as sha256_hex has it.
void sha256_hex_of(const void *data, size_t n, char out[SHA256_HEX]);

#endif
