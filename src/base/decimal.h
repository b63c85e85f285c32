// Numbers in decimal notation and nothing else: strtol and strtod also take blanks before them, and
// strtod takes 0x1, inf and nan.
#ifndef HOKKU_BASE_DECIMAL_H
#define HOKKU_BASE_DECIMAL_H

#include <stdbool.h>
#include <string.h>

#define DECIMAL_DIGITS "0123456789"

// Whether text is "12", "+12" or "-12".
static inline bool decimal_whole(const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    return *digits && !digits[strspn(digits, DECIMAL_DIGITS)];
}

// Whether text may be "1.5", "-.5" or "1e-3": strtod then says where it ends.
static inline bool decimal_real(const char *text)
{
    const char *first = text + (*text == '-' || *text == '+');
    return *first && strchr(DECIMAL_DIGITS ".", *first) &&
           !text[strspn(text, DECIMAL_DIGITS "+-.eE")];
}

#endif
