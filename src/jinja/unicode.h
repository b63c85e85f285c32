// What Python's str methods know about characters.
#ifndef HOKKU_TEMPLATE_UNICODE_H
#define HOKKU_TEMPLATE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum uni_flag {
    UNI_ALPHA = 1 << 0,
    UNI_DECIMAL = 1 << 1,
    UNI_DIGIT = 1 << 2,
    UNI_NUMERIC = 1 << 3,
    UNI_PRINTABLE = 1 << 4,
    UNI_UPPER = 1 << 5,
    UNI_LOWER = 1 << 6,
    UNI_TITLE = 1 << 7,
    UNI_START = 1 << 8,    // may begin an identifier
    UNI_CONTINUE = 1 << 9, // may continue an identifier
    UNI_CASED = 1 << 10,
    UNI_IGNORABLE = 1 << 11, // skipped by the final sigma rule
};

struct uni_range {
    uint32_t lo, hi;
    uint16_t flags;
};
struct uni_map { // every step-th code point of lo..hi maps to itself + delta
    uint32_t lo, hi, step;
    int32_t delta;
};
struct uni_special {
    uint32_t cp, to[3];
};

extern const struct uni_range uni_ranges[];
extern const struct uni_map uni_upper[], uni_lower[], uni_title[];
extern const struct uni_special uni_upper_special[], uni_lower_special[], uni_title_special[];
extern const size_t uni_n_ranges, uni_n_upper, uni_n_lower, uni_n_title, uni_n_upper_special,
    uni_n_lower_special, uni_n_title_special;

unsigned uni_flags(uint32_t cp);
bool uni_is_space(uint32_t cp);    // str.isspace()
bool uni_is_line_end(uint32_t cp); // str.splitlines()
// Writes the upper ('u'), lower ('l') or title ('t') case form of cp. Returns its length, 1 to 3.
size_t uni_case(uint32_t cp, char how, uint32_t out[3]);

// First byte of s[from..n) that is not white space; end of the part of s[0..n) before trailing
// white space. s is valid UTF-8.
size_t uni_skip_space(const char *s, size_t from, size_t n);
size_t uni_trim_end(const char *s, size_t begin, size_t n);

#endif
