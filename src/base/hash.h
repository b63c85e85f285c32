// The hash of every table: fast, not cryptographic, with a seed. A table whose entries a file decides
// has a seed of its own, so that no file can be written whose entries all collide (the interpreter's
// pay for every look instead); results never depend on it. Not for what is stored: it reads words as
// the machine has them.
#ifndef HOKKU_BASE_HASH_H
#define HOKKU_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t m = (__uint128_t)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash_u64(uint64_t x, uint64_t seed)
{
    return hash_mix(x ^ seed, 0x9E3779B97F4A7C15u);
}

static inline uint64_t hash_bytes(const char *s, size_t n, uint64_t seed)
{
    uint64_t h = seed ^ (n * 0xD6E8FEB86659FD93u), w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = hash_mix(h ^ w, 0xA0761D6478BD642Fu);
    }
    w = 0;
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)(unsigned char)s[i] << (8 * i);
    return hash_mix(h ^ w, 0xE7037ED1A0B428DBu);
}

#endif
