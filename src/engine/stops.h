// The texts at which an answer ends, looked for in a text that grows. Of each the bytes are looked
// at once (Knuth, Morris, Pratt 1977), so that no text, and no answer that nearly has it over and
// over, makes a token take long.
#ifndef HOKKU_ENGINE_STOPS_H
#define HOKKU_ENGINE_STOPS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct stop; // how much of one the text ends with

struct stops {
    struct stop *each; // owned, one for each of n texts; NULL: nothing was looked at
    size_t n;
    size_t from; // of the text: where they count from
    size_t seen; // up to where it was looked at
};

// Looks for texts[0..n_texts), always the same, in what has come to text[0..n) since. They count
// from there on: another place begins anew. *at: where the first stands, or n. *hold: where one may
// begin whose rest is not there yet, or n. Errors: ERR_MEMORY.
bool stops_find(struct stops *s, const char *const *texts, size_t n_texts, const char *text,
                size_t n, size_t from, size_t *at, size_t *hold, struct error *err);
void stops_release(struct stops *s);

#endif
