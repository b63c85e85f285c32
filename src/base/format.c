#include "base/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

const char *format_number(char out[FORMAT_NUMBER], uint64_t v)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, v);
    char *p = out;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            *p++ = ',';
        *p++ = digits[i];
    }
    *p = '\0';
    return out;
}

const char *format_bytes(char out[FORMAT_NUMBER], uint64_t n_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)n_bytes;
    size_t unit = 0;
    while (v >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        v /= 1000;
        unit++;
    }
    snprintf(out, FORMAT_NUMBER, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return out;
}

int format_digits(char out[FORMAT_NUMBER], double v)
{
    int behind = 0;
    do
        snprintf(out, FORMAT_NUMBER, "%.*e", behind, v);
    while (strtod(out, NULL) != v && ++behind < 17);
    return behind;
}

const char *format_real(char out[FORMAT_NUMBER], double v)
{
    if (!isfinite(v)) {
        snprintf(out, FORMAT_NUMBER, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return out;
    }
    char digits[FORMAT_NUMBER];
    const int behind = format_digits(digits, v);
    const char *e = strchr(digits, 'e');
    const int exponent = atoi(e + 1);
    if (exponent >= -4 && exponent < 16) {
        const int decimals = behind - exponent;
        snprintf(out, FORMAT_NUMBER, "%.*f", decimals > 0 ? decimals : 1, v);
    } else {
        snprintf(out, FORMAT_NUMBER, "%.*se%c%02d", (int)(e - digits), digits,
                 exponent < 0 ? '-' : '+', abs(exponent));
    }
    return out;
}

double format_float(float f)
{
    char digits[FORMAT_NUMBER];
    int behind = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", behind, (double)f);
    while (strtof(digits, NULL) != f && ++behind < 9);
    return isfinite(f) ? strtod(digits, NULL) : (double)f;
}

const char *format_range(char out[FORMAT_TEXT], double least, double most)
{
    if (most > INT32_MAX)
        snprintf(out, FORMAT_TEXT, "a whole number of at least %.10g", least);
    else
        snprintf(out, FORMAT_TEXT, "a %snumber from %.10g to %.10g",
                 most == INT32_MAX ? "whole " : "", least, most);
    return out;
}

const char *format_text(char *out, size_t cap, const char *s, size_t n)
{
    static const char cut[] = "...";
    size_t len = 0, i = 0;
    size_t fits = 0; // the longest prefix after which the cut mark still has room
    while (i < n) {
        uint32_t cp = 0;
        size_t used = utf8_decode(s + i, n - i, &cp);
        char piece[8];
        size_t k;
        if (used && cp >= 0x20 && cp != 0x7F && !(cp >= 0x80 && cp < 0xA0)) {
            memcpy(piece, s + i, used);
            k = used;
        } else {
            used = 1;
            k = (size_t)snprintf(piece, sizeof piece, "\\x%02X", (unsigned char)s[i]);
        }
        if (len + k >= cap)
            break;
        memcpy(out + len, piece, k);
        len += k;
        i += used;
        if (len + sizeof cut <= cap)
            fits = len;
    }
    if (i < n) {
        memcpy(out + fits, cut, sizeof cut);
        return out;
    }
    out[len] = '\0';
    return out;
}
