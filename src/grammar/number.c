// A number is between bounds when, digit by digit from the left, it leaves each bound to the right
// side: as long as it agrees with a bound it is `tight` to it.
#include "grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"

enum { MOST_REMAINDERS = 8000, MULTIPLE_DIGITS = 15 };

static void tidy(struct decimal *d)
{
    unsigned zeros = 0;
    while (zeros + 1 < d->n_whole && d->digit[zeros] == 0)
        zeros++;
    memmove(d->digit, d->digit + zeros, d->n - zeros);
    d->n -= zeros;
    d->n_whole -= zeros;
    while (d->n > d->n_whole && d->digit[d->n - 1] == 0)
        d->n--;
    if (d->n == 1 && d->digit[0] == 0)
        d->negative = false;
}

static void from_double(struct decimal *d, double v)
{
    char text[64];
    *d = (struct decimal){0};
    format_digits(text, v);
    int exponent = atoi(strchr(text, 'e') + 1);
    d->negative = v < 0;
    for (int i = exponent; i < 0; i++)
        d->digit[d->n++] = 0;
    for (const char *p = text; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            d->digit[d->n++] = (char)(*p - '0');
    d->n_whole = exponent > 0 ? (unsigned)exponent + 1 : 1;
    while (d->n < d->n_whole)
        d->digit[d->n++] = 0;
    tidy(d);
}

void decimal_from_json(struct decimal *d, const json_t *number)
{
    char text[64];
    *d = (struct decimal){0};
    if (json_is_integer(number)) {
        int n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
        for (int i = 0; i < n; i++)
            if (text[i] == '-')
                d->negative = true;
            else
                d->digit[d->n++] = (char)(text[i] - '0');
        d->n_whole = d->n;
        return;
    }
    from_double(d, json_real_value(number));
}

static int compare_size(const struct decimal *a, const struct decimal *b)
{
    if (a->n_whole != b->n_whole)
        return a->n_whole < b->n_whole ? -1 : 1;
    for (unsigned i = 0; i < a->n || i < b->n; i++) {
        int x = i < a->n ? a->digit[i] : 0, y = i < b->n ? b->digit[i] : 0;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

void number_at_least(struct number_bounds *n, const json_t *v, bool open)
{
    struct decimal d;
    decimal_from_json(&d, v);
    int order = n->has_lo ? decimal_compare(&d, &n->lo) : 1;
    if (order > 0 || (order == 0 && open)) {
        n->lo = d;
        n->lo_open = open;
        n->has_lo = true;
    }
}

void number_at_most(struct number_bounds *n, const json_t *v, bool open)
{
    struct decimal d;
    decimal_from_json(&d, v);
    int order = n->has_hi ? decimal_compare(&d, &n->hi) : -1;
    if (order < 0 || (order == 0 && open)) {
        n->hi = d;
        n->hi_open = open;
        n->has_hi = true;
    }
}

// ---- sizes: numbers that are not negative ----

struct range {
    struct builder *b;
    struct decimal lo, hi; // hi.n_whole > NUMBER_DIGITS: none
    bool lo_open, hi_open, integer;
    uint32_t multiple; // 0: any
    uint32_t *by_rest; // rules: (digits to come, remainder so far) -> those that make a multiple
    uint32_t n_rest;   // digits to come that there is room for, and one
    uint32_t behind[NUMBER_DIGITS]; // rules: from this digit behind the point on; 0: none yet
};

static uint32_t digits(struct builder *b, int lo, int hi)
{
    char range[3] = {(char)('0' + lo), (char)('0' + hi), 0};
    return lo > hi ? expr_nothing(b) : expr_chars(b, range);
}

// n more digits, after which the number is a multiple.
static uint32_t rest_of_multiple(struct range *r, uint32_t n, uint32_t remainder)
{
    if (n == 0)
        return remainder ? expr_nothing(r->b) : expr_empty(r->b);
    uint32_t *rule = &r->by_rest[n * r->multiple + remainder];
    if (*rule == UINT32_MAX) {
        *rule = builder_rule(r->b);
        struct ids list = {0};
        for (uint32_t d = 0; d < 10; d++)
            ids_push(&list, (int32_t)expr_seq_of(
                                r->b, 2, digits(r->b, (int)d, (int)d),
                                rest_of_multiple(r, n - 1, (remainder * 10 + d) % r->multiple)));
        builder_define(r->b, *rule, expr_alt(r->b, &list));
        ids_release(&list);
    }
    return expr_rule(r->b, *rule);
}

static int fraction_digit(const struct decimal *d, unsigned i)
{
    return d->n_whole + i < d->n ? d->digit[d->n_whole + i] : 0;
}

static bool nothing_behind(const struct decimal *d, unsigned i)
{
    return d->n_whole + i >= d->n;
}

// One digit or more behind i digits behind the point, where no bound says which.
static uint32_t any_behind(struct range *r, unsigned i)
{
    struct builder *b = r->b;
    if (r->behind[i] == 0) {
        r->behind[i] = builder_rule(b) + 1;
        uint32_t x = digits(b, 0, 9);
        if (i + 1 < NUMBER_DIGITS)
            x = expr_seq_of(b, 2, x, expr_either(b, expr_empty(b), any_behind(r, i + 1)));
        builder_define(b, r->behind[i] - 1, x);
    }
    return expr_rule(b, r->behind[i] - 1);
}

// What may follow i digits behind the point.
static uint32_t fraction(struct range *r, unsigned i, bool tight_lo, bool tight_hi)
{
    struct builder *b = r->b;
    if (!tight_lo && !tight_hi && i == NUMBER_DIGITS)
        return expr_empty(b);
    if (!tight_lo && !tight_hi)
        return i > 0 ? expr_either(b, expr_empty(b), any_behind(r, i)) : any_behind(r, i);
    struct ids list = {0};
    bool equal_lo = tight_lo && nothing_behind(&r->lo, i);
    bool equal_hi = tight_hi && nothing_behind(&r->hi, i);
    if (i > 0 && !(tight_lo && (!equal_lo || r->lo_open)) && !(equal_hi && r->hi_open))
        ids_push(&list, (int32_t)expr_empty(b));
    if (i < NUMBER_DIGITS) {
        int lo = tight_lo ? fraction_digit(&r->lo, i) : 0;
        int hi = tight_hi ? fraction_digit(&r->hi, i) : 9;
        for (int d = lo; d <= hi;) {
            bool at_lo = tight_lo && d == lo, at_hi = tight_hi && d == hi;
            int end = at_lo || at_hi ? d : tight_hi ? hi - 1 : hi;
            ids_push(&list, (int32_t)expr_seq_of(b, 2, digits(b, d, end),
                                                 fraction(r, i + 1, at_lo, at_hi)));
            d = end + 1;
        }
    }
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

// What may follow `at` of n digits before the point.
static uint32_t whole(struct range *r, unsigned n, unsigned at, bool tight_lo, bool tight_hi,
                      uint32_t remainder)
{
    struct builder *b = r->b;
    if (at == n) {
        if (r->multiple)
            return remainder ? expr_nothing(b) : expr_empty(b);
        if (r->integer)
            return expr_empty(b);
        struct ids list = {0};
        bool below = tight_lo && (!nothing_behind(&r->lo, 0) || r->lo_open);
        if (!below && !(tight_hi && nothing_behind(&r->hi, 0) && r->hi_open))
            ids_push(&list, (int32_t)expr_empty(b));
        ids_push(&list,
                 (int32_t)expr_seq_of(b, 2, expr_text(b, "."), fraction(r, 0, tight_lo, tight_hi)));
        uint32_t x = expr_alt(b, &list);
        ids_release(&list);
        return x;
    }
    if (!tight_lo && !tight_hi && at > 0)
        return r->multiple ? rest_of_multiple(r, n - at, remainder)
                           : expr_seq_of(b, 2, expr_repeat(b, digits(b, 0, 9), n - at, n - at),
                                         whole(r, n, n, false, false, 0));
    int lo = tight_lo ? r->lo.digit[at] : at == 0 && n > 1, hi = tight_hi ? r->hi.digit[at] : 9;
    struct ids list = {0};
    for (int d = lo; d <= hi;) {
        bool at_lo = tight_lo && d == lo, at_hi = tight_hi && d == hi;
        int end = at_lo || at_hi || r->multiple ? d : tight_hi ? hi - 1 : hi;
        uint32_t next = r->multiple ? (remainder * 10 + (uint32_t)d) % r->multiple : 0;
        ids_push(&list, (int32_t)expr_seq_of(b, 2, digits(b, d, end),
                                             whole(r, n, at + 1, at_lo, at_hi, next)));
        d = end + 1;
    }
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

static uint32_t size_expr(struct range *r)
{
    struct builder *b = r->b;
    int order = compare_size(&r->lo, &r->hi);
    if (order > 0 || (order == 0 && (r->lo_open || r->hi_open)))
        return expr_nothing(b);
    unsigned most = r->multiple ? MULTIPLE_DIGITS : NUMBER_DIGITS;
    unsigned last = r->hi.n_whole < most ? r->hi.n_whole : most;
    bool bounded = r->hi.n_whole <= most;
    struct ids list = {0};
    for (unsigned n = r->lo.n_whole; n <= last; n++) {
        bool tight_lo = n == r->lo.n_whole, tight_hi = bounded && n == r->hi.n_whole;
        unsigned longest = bounded ? last - 1 : last; // that is tight to none
        if (!tight_lo && !tight_hi && !r->multiple && longest > n) {
            // All lengths between the bounds' at once.
            ids_push(&list,
                     (int32_t)expr_seq_of(b, 3, digits(b, 1, 9),
                                          expr_repeat(b, digits(b, 0, 9), n - 1, longest - 1),
                                          whole(r, 0, 0, false, false, 0)));
            n = longest;
            continue;
        }
        ids_push(&list, (int32_t)whole(r, n, 0, tight_lo, tight_hi, 0));
    }
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

// An integer bound of the integers inside.
static void to_integer(struct decimal *d, bool *open, bool up)
{
    bool fraction_left = d->n > d->n_whole;
    d->n = d->n_whole;
    if (up ? fraction_left || *open : !fraction_left && *open) {
        // One more, or one less.
        if (!up && d->n == 1 && d->digit[0] == 0) {
            *open = true; // below zero: nothing is left, order 0 and open say so
            return;
        }
        unsigned i = d->n;
        if (up) {
            while (i > 0 && d->digit[i - 1] == 9)
                d->digit[--i] = 0;
            if (i == 0) {
                memmove(d->digit + 1, d->digit, d->n);
                d->digit[0] = 1;
                d->n++;
                d->n_whole++;
            } else {
                d->digit[i - 1]++;
            }
        } else {
            while (d->digit[i - 1] == 0)
                d->digit[--i] = 9;
            d->digit[i - 1]--;
        }
    }
    *open = false;
    tidy(d);
}

// An open bound of numbers becomes the next double inside: who reads a number as a double must not
// find the bound itself. (Of 0 there is none that 40 digits write, and none is needed.)
static void to_double(struct decimal *d, bool *open, bool up)
{
    char text[DECIMAL_ROOM + 16];
    if (!*open)
        return;
    for (unsigned i = 0; i < d->n; i++)
        text[i] = (char)('0' + d->digit[i]);
    snprintf(text + d->n, sizeof text - d->n, "e-%u", d->n - d->n_whole);
    const double v = strtod(text, NULL), inside = nextafter(v, up ? INFINITY : 0);
    if (v == 0 || !isfinite(inside))
        return;
    from_double(d, inside);
    *open = false;
}

static uint32_t sizes(struct range *r, const struct decimal *lo, bool lo_open,
                      const struct decimal *hi, bool hi_open)
{
    r->lo = lo ? *lo : (struct decimal){.n = 1, .n_whole = 1};
    r->lo.negative = false;
    r->lo_open = lo_open;
    r->hi =
        hi ? *hi
           : (struct decimal){.n = NUMBER_DIGITS + 1, .n_whole = NUMBER_DIGITS + 1, .digit = {1}};
    r->hi.negative = false;
    r->hi_open = hi_open;
    if (r->integer) {
        to_integer(&r->lo, &r->lo_open, true);
        to_integer(&r->hi, &r->hi_open, false);
    } else {
        to_double(&r->lo, &r->lo_open, true);
        to_double(&r->hi, &r->hi_open, false);
    }
    return size_expr(r);
}

bool number_expr(struct builder *b, const struct number_bounds *n, bool integer, uint32_t *out,
                 int64_t *largest)
{
    if (!n->has_lo && !n->has_hi && !n->multiple) {
        uint32_t size =
            expr_either(b, expr_text(b, "0"),
                        expr_seq_of(b, 2, expr_chars(b, "19"),
                                    expr_repeat(b, expr_chars(b, "09"), 0, NUMBER_DIGITS - 1)));
        uint32_t sign = expr_repeat(b, expr_text(b, "-"), 0, 1);
        if (integer) {
            *out = expr_seq_of(b, 2, sign, size);
            return true;
        }
        uint32_t point = expr_seq_of(b, 2, expr_text(b, "."),
                                     expr_repeat(b, expr_chars(b, "09"), 1, NUMBER_DIGITS));
        // Two digits: no exponent leads out of what a double can hold.
        uint32_t power =
            expr_seq_of(b, 3, expr_chars(b, "eeEE"), expr_repeat(b, expr_chars(b, "++--"), 0, 1),
                        expr_repeat(b, expr_chars(b, "09"), 1, 2));
        *out =
            expr_seq_of(b, 4, sign, size, expr_repeat(b, point, 0, 1), expr_repeat(b, power, 0, 1));
        return true;
    }
    struct range r = {.b = b, .integer = integer || n->multiple};
    if (n->multiple > 1) {
        unsigned room = n->has_lo && n->lo.negative ? n->lo.n_whole : 1;
        if (n->has_hi && n->hi.n_whole > room)
            room = n->hi.n_whole;
        if (!n->has_hi || !n->has_lo || room > MULTIPLE_DIGITS)
            room = MULTIPLE_DIGITS;
        r.n_rest = room + 1;
        *largest = MOST_REMAINDERS / (int64_t)r.n_rest;
        if (n->multiple > *largest)
            return false;
        r.multiple = (uint32_t)n->multiple;
        r.by_rest = malloc((size_t)r.n_rest * r.multiple * sizeof *r.by_rest);
        if (!r.by_rest) {
            b->failed = true;
            return true;
        }
        memset(r.by_rest, 0xFF, (size_t)r.n_rest * r.multiple * sizeof *r.by_rest);
    }
    struct ids list = {0};
    if (!n->has_hi || !n->hi.negative)
        ids_push(&list, (int32_t)sizes(&r, n->has_lo && !n->lo.negative ? &n->lo : NULL,
                                       n->has_lo && !n->lo.negative && n->lo_open,
                                       n->has_hi ? &n->hi : NULL, n->has_hi && n->hi_open));
    if (!n->has_lo || n->lo.negative) {
        // Zero has no sign.
        bool below = n->has_hi && n->hi.negative;
        uint32_t size = sizes(&r, below ? &n->hi : NULL, below ? n->hi_open : true,
                              n->has_lo ? &n->lo : NULL, n->has_lo && n->lo_open);
        ids_push(&list, (int32_t)expr_seq_of(b, 2, expr_text(b, "-"), size));
    }
    *out = expr_alt(b, &list);
    ids_release(&list);
    free(r.by_rest);
    return true;
}
