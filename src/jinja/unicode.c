#include "jinja/unicode.h"

#include "base/utf8.h"

unsigned uni_flags(uint32_t cp)
{
    size_t lo = 0, hi = uni_n_ranges;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (uni_ranges[mid].hi < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < uni_n_ranges && uni_ranges[lo].lo <= cp ? uni_ranges[lo].flags : 0;
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

static size_t map(uint32_t cp, const struct uni_map *m, size_t n, const struct uni_special *s,
                  size_t n_s, uint32_t out[3])
{
    for (size_t i = 0; i < n_s; i++)
        if (s[i].cp == cp) {
            size_t k = 0;
            while (k < 3 && s[i].to[k]) {
                out[k] = s[i].to[k];
                k++;
            }
            return k;
        }
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m[mid].hi < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    out[0] = cp;
    // A range of step 2 may be interleaved with the next one.
    for (size_t i = lo; i < n && i < lo + 2 && m[i].lo <= cp; i++)
        if (m[i].hi >= cp && (cp - m[i].lo) % m[i].step == 0) {
            out[0] = (uint32_t)((int32_t)cp + m[i].delta);
            break;
        }
    return 1;
}

size_t uni_case(uint32_t cp, char how, uint32_t out[3])
{
    if (cp < 0x80) {
        out[0] = how == 'l' ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp)
                            : (cp >= 'a' && cp <= 'z' ? cp - 32 : cp);
        return 1;
    }
    switch (how) {
    case 'l':
        return map(cp, uni_lower, uni_n_lower, uni_lower_special, uni_n_lower_special, out);
    case 'u':
        return map(cp, uni_upper, uni_n_upper, uni_upper_special, uni_n_upper_special, out);
    default:
        return map(cp, uni_title, uni_n_title, uni_title_special, uni_n_title_special, out);
    }
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
