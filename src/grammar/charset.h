// Sets of Unicode characters (scalar values: no surrogates), as sorted ranges.
#ifndef HOKKU_GRAMMAR_CHARSET_H
#define HOKKU_GRAMMAR_CHARSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct char_range {
    uint32_t lo, hi; // both inside
};

struct charset {
    struct char_range *r; // owned; after charset_tidy: ascending, disjoint, with gaps between
    size_t n, cap;
    bool failed; // out of memory
};

void charset_release(struct charset *s); // zeroed is fine; leaves an empty set
// Adds lo..hi (surrogates inside are left out by charset_tidy).
void charset_add(struct charset *s, uint32_t lo, uint32_t hi);
void charset_add_all(struct charset *s, const struct charset *other);
void charset_tidy(struct charset *s);
// These take and leave tidy sets.
void charset_negate(struct charset *s);
void charset_remove(struct charset *s, const struct charset *other); // s minus other
bool charset_has(const struct charset *s, uint32_t cp);
bool charset_equal(const struct charset *a, const struct charset *b);
uint64_t charset_size(const struct charset *s);

// The bytes of the characters lo..hi as sequences of byte ranges, each of one length, in order.
// Of one set's sequences two have the same first range, or disjoint ones. Calls f for each.
struct utf8_span {
    unsigned char lo[4], hi[4];
    unsigned n;
};
void utf8_spans(uint32_t lo, uint32_t hi, void (*f)(void *user, const struct utf8_span *span),
                void *user);

#endif
