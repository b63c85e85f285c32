// What hokku itself knows about characters. Its one source is unicode_table.h, which unicode_gen.py
// writes; the classes in the patterns of pre-tokenizers are PCRE2's.
#ifndef HOKKU_BASE_UNICODE_H
#define HOKKU_BASE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum uni_class {
    UNI_ZERO_WIDTH, // takes no column on a terminal
    UNI_DOUBLE_WIDTH,
    UNI_LETTER,
    UNI_DIGIT,
    UNI_NUMERAL, // digits, fractions, Roman numerals ...
    UNI_UNPRINTABLE,
};
bool uni_is(uint32_t cp, enum uni_class c);
bool uni_is_space(uint32_t cp);    // Python's str.isspace()
bool uni_is_line_end(uint32_t cp); // Python's str.splitlines()

// Writes the upper ('u'), lower ('l') or title ('t') case form of cp. Returns its length, 1 to 3.
size_t uni_case(uint32_t cp, char how, uint32_t out[3]);

// First byte of s[from..n) that is not white space; end of the part of s[0..n) before trailing
// white space. s is valid UTF-8.
size_t uni_skip_space(const char *s, size_t from, size_t n);
size_t uni_trim_end(const char *s, size_t begin, size_t n);

// Rows of the table.
struct uni_range {
    uint32_t first, last;
};
struct uni_map { // every step-th code point of first..last becomes itself + delta
    uint32_t first, last, step;
    int32_t delta;
}; // what becomes several is a row of four: the code point, and those

#endif
