// JSON numbers between bounds, as digits.
#ifndef HOKKU_GRAMMAR_NUMBER_H
#define HOKKU_GRAMMAR_NUMBER_H

#include <jansson.h>

#include "grammar/expr.h"

// A number that a grammar writes has at most so many digits before the point, and behind it.
enum { NUMBER_DIGITS = 40, DECIMAL_ROOM = 400 };

// A finite decimal number: digits with a point behind the first n_whole.
struct decimal {
    bool negative;
    unsigned n, n_whole;      // n >= n_whole >= 1
    char digit[DECIMAL_ROOM]; // 0 to 9; no needless zeros
};

struct number_bounds {
    bool has_lo, lo_open, has_hi, hi_open;
    struct decimal lo, hi;
    int64_t multiple; // of which integers only; 0: any number
};

void decimal_from_json(struct decimal *d, const json_t *number);
int decimal_compare(const struct decimal *a, const struct decimal *b);
// Makes the bounds narrower, if v is.
void number_at_least(struct number_bounds *n, const json_t *v, bool open);
void number_at_most(struct number_bounds *n, const json_t *v, bool open);

// integer: only those, written without point. False: the multiple is too large to be enforced with
// these bounds (largest: what would not be).
bool number_expr(struct builder *b, const struct number_bounds *n, bool integer, uint32_t *out,
                 int64_t *largest);

#endif
