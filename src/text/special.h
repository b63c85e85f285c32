// Finds control and user-defined tokens written out in a text. Longest first over the whole text,
// as the widely used implementation does it: a longer token wins over one that begins before it.
#ifndef HOKKU_TEXT_SPECIAL_H
#define HOKKU_TEXT_SPECIAL_H

#include "base/cancel.h"
#include "text/vocab.h"

// At each byte of a text so many bytes are compared at most, whatever the text and the vocabulary.
// (The longest ones in use have about a hundred.)
enum { SPECIAL_MOST_BYTES = 1024 };

struct special {
    const struct vocab *vocab; // borrowed
    int32_t *ids;              // (n) tokens to look for, sorted by text
    size_t n;
    uint32_t first[257];          // ids[first[c]..first[c+1]) begin with byte c
    unsigned char any_first[256]; // a user-defined token begins with this byte
    size_t reach;                 // lengths of tokens added up, each once: see special_next
};

struct special_match {
    size_t begin, len;
    int32_t id;
};

struct special_matches {
    struct special_match *data; // owned; in order, not overlapping
    size_t n, cap;
};

bool special_init(struct special *s, const struct vocab *v, struct error *err);
void special_release(struct special *s); // NULL and zeroed are fine

// The next matches from *at on, one or several that had to be settled together; none: no more. *at
// moves on (0 to begin with). Of many that overlap one another as many as fit into a few megabytes
// come at a time. all: control tokens match everywhere; else only where mask (n bytes,
// NULL: nowhere) is non-zero for every byte. User-defined tokens match everywhere. Errors:
// ERR_MEMORY, ERR_INTERRUPTED.
bool special_next(const struct special *s, const char *text, size_t n, bool all,
                  const unsigned char *mask, const struct cancel *cancel, size_t *at,
                  struct special_matches *out, struct error *err);
void special_matches_release(struct special_matches *m); // NULL and zeroed are fine

#endif
