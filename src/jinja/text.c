// Operations on strings that string methods and filters share. Every byte keeps its origin.
#include "jinja/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/unicode.h"

size_t text_find(struct run *r, const struct str *s, size_t from, size_t to, const struct str *what,
                 bool last)
{
    if (to > s->n)
        to = s->n;
    if (from > to || what->n > to - from)
        return SIZE_MAX;
    if (!what->n)
        return last ? to : from;
    // What was looked at is paid for, not what lies behind: a text of many lines may be split.
    if (!last) {
        const char *p = memmem(s->p + from, to - from, what->p, what->n);
        size_t at = p ? (size_t)(p - s->p) : SIZE_MAX;
        run_step(r, 1 + ((p ? at : to) - from) / 32 + what->n / 64);
        return at;
    }
    for (size_t end = to - what->n + 1; end > from;) {
        const char *p = memrchr(s->p + from, what->p[0], end - from);
        size_t at = p ? (size_t)(p - s->p) : from;
        run_step(r, 1 + (end - at) / 64);
        if (!p)
            break;
        run_step(r, what->n / 64);
        if (memcmp(p, what->p, what->n) == 0)
            return at;
        end = at;
    }
    return SIZE_MAX;
}

static uint32_t cp_at(const struct str *s, size_t i, size_t *n)
{
    uint32_t cp = 0;
    *n = utf8_decode(s->p + i, s->n - i, &cp);
    if (!*n)
        *n = 1;
    return cp;
}

static size_t cp_before(const struct str *s, size_t i, uint32_t *cp)
{
    do
        i--;
    while (i > 0 && ((unsigned char)s->p[i] & 0xC0) == 0x80);
    size_t n;
    *cp = cp_at(s, i, &n);
    return i;
}

// ---- case ----

static bool has_case(uint32_t cp)
{
    uint32_t to[3];
    return uni_case(cp, 'l', to) != 1 || to[0] != cp || uni_case(cp, 'u', to) != 1 || to[0] != cp;
}

// how: u upper, l lower, c capitalize, t title, w the title of Jinja2's filter.
struct val text_case(struct run *r, struct str *s, char how)
{
    struct sb b = {0};
    bool in_word = false;
    run_step(r, s->n / 8);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp = cp_at(s, i, &n), to[3];
        char form = how;
        switch (how) {
        case 'c':
            form = i == 0 ? 't' : 'l';
            break;
        case 't':
            form = in_word ? 'l' : 't';
            in_word = has_case(cp);
            break;
        case 'w': {
            bool edge = uni_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
            form = in_word ? 'l' : 'u';
            in_word = !edge;
            break;
        }
        default:
            break;
        }
        uint32_t origin = str_origin_at(s, i);
        size_t n_to = uni_case(cp, form, to);
        for (size_t k = 0; k < n_to; k++)
            sb_cp(r, &b, to[k], origin);
    }
    return sb_val(r, &b);
}

// ---- replace, strip ----

struct val text_replace(struct run *r, struct str *s, struct str *old, struct str *new,
                        int64_t count)
{
    struct sb b = {0};
    size_t at = 0;
    if (!old->n) { // between all characters
        while (count != 0 && at <= s->n) {
            size_t n = 0;
            run_step(r, 1);
            sb_str(r, &b, new);
            count -= count > 0;
            if (at == s->n)
                return sb_val(r, &b);
            cp_at(s, at, &n);
            sb_sub(r, &b, s, at, at + n);
            at += n;
        }
        sb_sub(r, &b, s, at, s->n);
        return sb_val(r, &b);
    }
    while (count != 0) {
        size_t found = text_find(r, s, at, s->n, old, false);
        if (found == SIZE_MAX)
            break;
        run_step(r, 1);
        sb_sub(r, &b, s, at, found);
        sb_str(r, &b, new);
        at = found + old->n;
        count -= count > 0;
    }
    if (at == 0)
        return str_val(s);
    sb_sub(r, &b, s, at, s->n);
    return sb_val(r, &b);
}

static bool in_set(struct run *r, uint32_t cp, const struct str *set)
{
    run_step(r, 1 + (set ? set->n / 64 : 0));
    if (!set)
        return uni_is_space(cp);
    char text[4];
    size_t n = utf8_encode(cp, text);
    return n && memmem(set->p, set->n, text, n) != NULL;
}

struct val text_strip(struct run *r, struct str *s, const struct val *chars, char side)
{
    const struct str *set = NULL;
    if (chars->kind != V_MISSING && chars->kind != V_NONE)
        set = args_str(r, chars, "strip argument");
    size_t begin = 0, end = s->n, n;
    if (side != 'r')
        while (begin < end && in_set(r, cp_at(s, begin, &n), set))
            begin += n;
    if (side != 'l')
        while (end > begin) {
            uint32_t cp;
            size_t i = cp_before(s, end, &cp);
            if (!in_set(r, cp, set))
                break;
            end = i;
        }
    return str_sub(r, s, begin, end);
}

// ---- split, join, pad ----

static size_t find_space(const struct str *s, size_t i)
{
    size_t n;
    while (i < s->n && !uni_is_space(cp_at(s, i, &n)))
        i += n;
    return i;
}

static size_t find_space_before(const struct str *s, size_t i)
{
    while (i > 0) {
        uint32_t cp;
        size_t k = cp_before(s, i, &cp);
        if (uni_is_space(cp))
            break;
        i = k;
    }
    return i;
}

static void reverse(struct list *l)
{
    for (size_t i = 0, k = l->n; i + 1 < k; i++) {
        struct val v = l->v[i];
        l->v[i] = l->v[--k];
        l->v[k] = v;
    }
}

static void split_space(struct run *r, struct str *s, int64_t max, bool right, struct list *out)
{
    run_step(r, s->n / 4);
    if (!right) {
        for (size_t i = uni_skip_space(s->p, 0, s->n); i<s->n; max -= max> 0) {
            size_t end = max == 0 ? uni_trim_end(s->p, i, s->n) : find_space(s, i);
            if (max == 0)
                end = s->n; // the rest as it is
            list_push(r, out, str_sub(r, s, i, end));
            i = uni_skip_space(s->p, end, s->n);
        }
        return;
    }
    for (size_t end = uni_trim_end(s->p, 0, s->n); end > 0; max -= max > 0) {
        size_t begin = max == 0 ? 0 : find_space_before(s, end);
        list_push(r, out, str_sub(r, s, begin, end));
        end = uni_trim_end(s->p, 0, begin);
    }
    reverse(out);
}

struct val text_split(struct run *r, struct str *s, const struct val *sep_val, int64_t max,
                      bool right)
{
    struct val out = val_list(r, 0);
    if (sep_val->kind == V_MISSING || sep_val->kind == V_NONE) {
        split_space(r, s, max, right, out.l);
        return out;
    }
    const struct str *sep = args_str(r, sep_val, "separator");
    if (!sep->n)
        run_fail(r, "empty separator");
    size_t begin = 0, end = s->n, at;
    for (; max != 0; max -= max > 0) {
        at = text_find(r, s, begin, end, sep, right);
        if (at == SIZE_MAX)
            break;
        run_step(r, 1);
        if (right) {
            list_push(r, out.l, str_sub(r, s, at + sep->n, end));
            end = at;
        } else {
            list_push(r, out.l, str_sub(r, s, begin, at));
            begin = at + sep->n;
        }
    }
    list_push(r, out.l, str_sub(r, s, begin, end));
    if (right)
        reverse(out.l);
    return out;
}

struct val text_lines(struct run *r, struct str *s, bool keep_ends)
{
    struct val out = val_list(r, 0);
    run_step(r, s->n / 4);
    for (size_t begin = 0, i = 0; begin < s->n;) {
        size_t n = 0, end;
        while (i < s->n && !uni_is_line_end(cp_at(s, i, &n)))
            i += n;
        end = i;
        if (i < s->n)
            i += s->p[i] == '\r' && i + 1 < s->n && s->p[i + 1] == '\n' ? 2 : n;
        list_push(r, out.l, str_sub(r, s, begin, keep_ends ? i : end));
        begin = i;
    }
    return out;
}

struct val text_join(struct run *r, struct str *sep, struct val items, bool convert)
{
    struct sb b = {0};
    struct iter storage, *it = iter_begin(r, items, &storage);
    struct val item;
    for (size_t i = 0; iter_next(r, it, &item); i++) {
        if (i)
            sb_str(r, &b, sep);
        if (item.kind != V_STR && !convert)
            run_fail(r, "sequence item %zu: expected str instance, %s found", i, val_type(item));
        pytext_str_sb(r, &b, item);
    }
    return sb_val(r, &b);
}

// how: l left, r right, c centred, z zeros after the sign.
struct val text_pad(struct run *r, struct str *s, int64_t width, const struct val *fill_val,
                    char how)
{
    struct str space = {.p = how == 'z' ? "0" : " ", .n = 1, .n_chars = 1}, *fill = &space;
    if (fill_val->kind != V_MISSING)
        fill = args_str(r, fill_val, "fill character");
    if (str_chars(r, fill) != 1)
        run_fail(r, "the fill character must be exactly one character long");
    int64_t n = (int64_t)str_chars(r, s);
    if (width <= n)
        return str_val(s);
    size_t pad = (size_t)(width - n), left = 0, sign = 0;
    if (how == 'r' || how == 'z')
        left = pad;
    else if (how == 'c')
        left = pad / 2 + (pad & (size_t)width & 1);
    struct sb b = {0};
    if (how == 'z' && s->n && (s->p[0] == '+' || s->p[0] == '-'))
        sign = 1;
    sb_sub(r, &b, s, 0, sign);
    sb_fill(r, &b, fill, left);
    sb_sub(r, &b, s, sign, s->n);
    sb_fill(r, &b, fill, pad - left);
    return sb_val(r, &b);
}

// ---- numbers ----

static unsigned digit_value(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'z' ? (unsigned)(c - 'a' + 10)
           : c >= 'A' && c <= 'Z' ? (unsigned)(c - 'A' + 10)
                                  : 99;
}

struct val text_parse_int(struct run *r, struct str *s, int64_t base)
{
    const struct val none = {.kind = V_MISSING};
    run_step(r, s->n / 8);
    if (base != 0 && (base < 2 || base > 36))
        return none;
    size_t i = uni_skip_space(s->p, 0, s->n), end = uni_trim_end(s->p, i, s->n);
    bool negative = i < end && s->p[i] == '-', prefixed = false;
    if (i < end && (s->p[i] == '-' || s->p[i] == '+'))
        i++;
    if (end - i > 2 && s->p[i] == '0') {
        char c = (char)(s->p[i + 1] | 0x20);
        int64_t other = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (other && (base == 0 || base == other)) {
            base = other;
            i += 2;
            prefixed = true;
        }
    }
    bool must_be_zero = base == 0 && i < end && s->p[i] == '0';
    if (base == 0)
        base = 10;
    uint64_t v = 0;
    bool last_digit = prefixed, any = false;
    for (; i < end; i++) {
        if (s->p[i] == '_' && last_digit) {
            last_digit = false;
            continue;
        }
        unsigned d = digit_value(s->p[i]);
        if (d >= (unsigned)base || (must_be_zero && d))
            return none;
        if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, d, &v) ||
            v > (uint64_t)INT64_MAX + negative)
            run_fail(r, "integer overflow: the number in the string exceeds 64 bits");
        last_digit = any = true;
    }
    if (!any || !last_digit)
        return none;
    return val_with_origin(val_int(negative ? (int64_t)(0 - v) : (int64_t)v), str_origin(s));
}

static size_t skip_digits(const char *p, size_t i)
{
    while (p[i] >= '0' && p[i] <= '9')
        i++;
    return i;
}

struct val text_parse_float(struct run *r, struct str *s)
{
    struct val none = {.kind = V_MISSING};
    run_step(r, 8 + s->n / 4);
    size_t begin = uni_skip_space(s->p, 0, s->n), end = uni_trim_end(s->p, begin, s->n), n = 0;
    char *text = run_alloc(r, end - begin + 1);
    for (size_t i = begin; i < end; i++) { // underscores only between digits
        bool between = i > begin && i + 1 < end && digit_value(s->p[i - 1]) < 10 &&
                       digit_value(s->p[i + 1]) < 10;
        if (s->p[i] != '_' || !between)
            text[n++] = s->p[i];
    }
    size_t i = text[0] == '+' || text[0] == '-';
    if (strcasecmp(text + i, "inf") && strcasecmp(text + i, "infinity") &&
        strcasecmp(text + i, "nan")) {
        size_t whole = skip_digits(text, i), digits = whole - i;
        i = whole;
        if (text[i] == '.') {
            size_t k = skip_digits(text, i + 1);
            digits += k - i - 1;
            i = k;
        }
        if (!digits)
            return none;
        if (text[i] == 'e' || text[i] == 'E') {
            size_t k = i + 1 + (text[i + 1] == '+' || text[i + 1] == '-');
            size_t stop = skip_digits(text, k);
            if (stop == k)
                return none;
            i = stop;
        }
        if (i != n)
            return none;
    } else if (strlen(text) != n) {
        return none;
    }
    return val_with_origin(val_float(strtod(text, NULL)), str_origin(s));
}
