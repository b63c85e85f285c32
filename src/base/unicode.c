#include "base/unicode.h"

#include "base/unicode_table.h"
#include "base/utf8.h"

static bool in_ranges(uint32_t cp, const struct uni_range *r, size_t n)
{
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (cp > r[lo + half].last) {
            lo += half + 1;
            n -= half + 1;
        } else {
            if (cp >= r[lo + half].first)
                return true;
            n = half;
        }
    }
    return false;
}

#define CLASS(table)                                                                               \
    {                                                                                              \
        table, sizeof table / sizeof *table                                                        \
    }

bool uni_is(uint32_t cp, enum uni_class c)
{
    static const struct {
        const struct uni_range *rows;
        size_t n;
    } classes[] = {
        [UNI_ZERO_WIDTH] = CLASS(zero_width), [UNI_DOUBLE_WIDTH] = CLASS(double_width),
        [UNI_LETTER] = CLASS(letters),        [UNI_DIGIT] = CLASS(digits),
        [UNI_NUMERAL] = CLASS(numerals),      [UNI_UNPRINTABLE] = CLASS(unprintable),
    };
    return in_ranges(cp, classes[c].rows, classes[c].n);
}

bool uni_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool uni_is_line_end(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

// Writes what the tables say of cp; 0: nothing.
static size_t map(uint32_t cp, const struct uni_map *m, size_t n, const uint32_t (*s)[4],
                  size_t n_s, uint32_t out[3])
{
    for (size_t i = 0; i < n_s; i++)
        if (s[i][0] == cp) {
            size_t k = 0;
            for (; k < 3 && s[i][1 + k]; k++)
                out[k] = s[i][1 + k];
            return k;
        }
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    // A range of step 2 may be interleaved with the next one.
    for (size_t i = lo; i < n && i < lo + 2 && m[i].first <= cp; i++)
        if (m[i].last >= cp && (cp - m[i].first) % m[i].step == 0) {
            out[0] = (uint32_t)((int32_t)cp + m[i].delta);
            return 1;
        }
    return 0;
}

#define MAP(name)                                                                                  \
    map(cp, name##_map, sizeof name##_map / sizeof *name##_map, name##_special,                    \
        sizeof name##_special / sizeof *name##_special, out)

size_t uni_case(uint32_t cp, char how, uint32_t out[3])
{
    size_t n = 0;
    if (cp < 0x80) {
        out[0] = how == 'l' ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp)
                            : (cp >= 'a' && cp <= 'z' ? cp - 32 : cp);
        return 1;
    }
    if (how == 'l')
        n = MAP(lower);
    if (how == 't')
        n = MAP(title);
    if (how == 'u' || (how == 't' && n == 0))
        n = MAP(upper);
    if (n == 0)
        out[0] = cp;
    return n ? n : 1;
}

size_t uni_skip_space(const char *s, size_t from, size_t n)
{
    uint32_t cp;
    while (from < n) {
        size_t k = utf8_decode(s + from, n - from, &cp);
        if (!k || !uni_is_space(cp))
            break;
        from += k;
    }
    return from;
}

size_t uni_trim_end(const char *s, size_t begin, size_t n)
{
    while (n > begin) {
        size_t i = n - 1;
        uint32_t cp;
        while (i > begin && ((unsigned char)s[i] & 0xC0) == 0x80)
            i--;
        if (utf8_decode(s + i, n - i, &cp) != n - i || !uni_is_space(cp))
            break;
        n = i;
    }
    return n;
}
