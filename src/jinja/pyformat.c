// "%s" % x, "{}".format(x) and HTML escaping. The literal parts of a format keep their origin, and
// so does what is put in between.
#include "jinja/runtime.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_PRECISION = 400, MAX_WIDTH = 1 << 20 };

struct spec {
    struct str fill; // one character
    char align;      // < > ^ =, or 0: the default of the type
    char sign;       // + - space, or 0
    bool alt;        // #
    char group;      // , or _ between thousands
    int64_t width;
    int64_t precision; // -1: none
    char type;         // 0: none given
};

static const struct str blank = {.p = " ", .n = 1, .n_chars = 1},
                        zero = {.p = "0", .n = 1, .n_chars = 1};

static void fill(struct run *r, struct sb *out, const struct str *with, int64_t n)
{
    if (n > 0)
        sb_fill(r, out, with, (size_t)n);
}

static void put_padded(struct run *r, struct sb *out, const struct spec *f, const char *prefix,
                       struct str *body, char default_align, uint32_t origin)
{
    char align = f->align ? f->align : default_align;
    int64_t pad = f->width - (int64_t)strlen(prefix) - (int64_t)str_chars(r, body);
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (pad <= 0)
        pad = left = 0;
    fill(r, out, &f->fill, left);
    sb_add(r, out, prefix, strlen(prefix), origin);
    if (align == '=') {
        fill(r, out, &f->fill, pad);
        left = pad;
    }
    sb_str(r, out, body);
    fill(r, out, &f->fill, pad - left);
}

// Digits with a separator between groups, counted from the right of the whole part.
static size_t group_digits(const char *digits, size_t n_whole, char sep, size_t size, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_whole; i++) {
        if (i && (n_whole - i) % size == 0)
            out[n++] = sep;
        out[n++] = digits[i];
    }
    return n + (size_t)sprintf(out + n, "%s", digits + n_whole);
}

// How many zeros stand before n_whole digits, in groups, so that they have width columns or one
// more: a separator is not the first of them.
static size_t zeros_before(size_t n_whole, int64_t width, size_t size, size_t most)
{
    size_t n = n_whole;
    while ((int64_t)(n + (n - 1) / size) < width && n - n_whole < most)
        n++;
    return n - n_whole;
}

static void int_digits(uint64_t v, unsigned base, bool upper, char *out)
{
    char reversed[72];
    size_t n = 0;
    do
        reversed[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base];
    while ((v /= base));
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = '\0';
}

static void float_digits(struct run *r, double f, const struct spec *s, char type, char *out,
                         size_t cap)
{
    int64_t precision = s->precision < 0 ? 6 : s->precision;
    run_step(r, 32);
    if (precision > MAX_PRECISION)
        run_fail(r, "precision %lld is larger than %d", (long long)precision, MAX_PRECISION);
    if (isnan(f) || isinf(f)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        snprintf(out, cap, "%s", isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
        if (type == '%')
            strcat(out, "%");
    } else if (type == 'r') { // str()
        size_t n = pytext_float(r, f, out);
        char *e = strchr(out, 'e');
        if (s->alt && e && !strchr(out, '.')) { // 1.e+16
            memmove(e + 1, e, n + 1 - (size_t)(e - out));
            *e = '.';
        }
    } else if (type == '%') {
        snprintf(out, cap, s->alt ? "%#.*f%%" : "%.*f%%", (int)precision, f * 100);
    } else {
        char format[8];
        snprintf(format, sizeof format, "%%%s.*%c", s->alt ? "#" : "", type);
        // The format is built from a flag and one of e f g and their capitals.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(out, cap, format, (int)precision, f);
#pragma GCC diagnostic pop
        if (s->type == 0 && !strpbrk(out, ".e"))
            strcat(out, ".0");
    }
}

// Writes an integer or a float as the specification says. min_digits: of %5.3d.
static void put_number(struct run *r, struct sb *out, struct val v, const struct spec *s, char type,
                       int64_t min_digits)
{
    char digits[1024], grouped[2048], prefix[8] = "";
    bool negative;
    size_t size = 3;
    run_step(r, 8);
    if (type && strchr("bdoxX", type)) {
        unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
        negative = v.i < 0;
        int_digits(negative ? 0 - (uint64_t)v.i : (uint64_t)v.i, base, type == 'X', digits);
        if (base != 10)
            size = 4;
        if (negative || s->sign == '+' || s->sign == ' ')
            snprintf(prefix, sizeof prefix, "%c", negative ? '-' : s->sign);
        if (s->alt && base != 10)
            snprintf(prefix + strlen(prefix), 4, "0%c", type);
    } else {
        negative = signbit(v.f) && !isnan(v.f);
        float_digits(r, fabs(v.f), s, type, digits, sizeof digits - 8);
        if (negative || s->sign == '+' || s->sign == ' ')
            snprintf(prefix, sizeof prefix, "%c", negative ? '-' : s->sign);
    }
    size_t n_whole =
        strspn(digits, type == 'x' || type == 'X' ? "0123456789abcdefABCDEF" : "0123456789");
    size_t n = strlen(digits);
    const char *text = digits;
    if (s->group && n_whole) {
        // Zeros in front grow the number by whole groups: 0,001,234.
        if (s->align == '=' && str_is(&s->fill, "0")) {
            const int64_t room = s->width - (int64_t)(strlen(prefix) + n - n_whole);
            const size_t most = sizeof digits - 1 - n, // (behind them zeros are but padding)
                zeros = zeros_before(n_whole, room, size, most);
            memmove(digits + zeros, digits, n + 1);
            memset(digits, '0', zeros);
            n_whole += zeros;
        }
        n = group_digits(digits, n_whole, s->group, size, grouped);
        text = grouped;
    }
    struct sb b = {0};
    fill(r, &b, &zero, min_digits - (int64_t)n);
    sb_add(r, &b, text, n, 0);
    struct str body = {.p = b.p ? b.p : "", .n = b.n, .n_chars = b.n, .origin = v.origin};
    put_padded(r, out, s, prefix, &body, '>', v.origin);
}

static struct val as_float(struct val v)
{
    if (v.kind == V_FLOAT)
        return v;
    return val_with_origin(val_float((double)(v.kind == V_BOOL ? v.b : v.i)), v.origin);
}

static struct str *cut(struct run *r, struct str *s, int64_t n_chars)
{
    if (n_chars < 0 || (uint64_t)n_chars >= str_chars(r, s))
        return s;
    return str_sub(r, s, 0, str_offset(r, s, (size_t)n_chars)).s;
}

static struct val repr_ascii(struct run *r, struct val v, bool ascii)
{
    struct val text = pytext_repr(r, v);
    if (!ascii || str_chars(r, text.s) == text.s->n)
        return text;
    struct sb b = {0};
    for (size_t i = 0, n; i < text.s->n; i += n) {
        uint32_t cp;
        char escape[16];
        n = utf8_decode(text.s->p + i, text.s->n - i, &cp);
        if (cp < 0x80)
            snprintf(escape, sizeof escape, "%c", (char)cp);
        else
            snprintf(escape, sizeof escape,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
        sb_add(r, &b, escape, strlen(escape), str_origin_at(text.s, i));
    }
    return sb_val(r, &b);
}

// ---- % ----

struct percent {
    struct run *r;
    const struct str *fmt;
    bool safe; // what comes into it is escaped
    size_t at;
    struct val args;
    size_t next; // of a tuple; 1 when the single value is used up
};

static struct val next_arg(struct percent *p)
{
    size_t n = p->args.kind == V_TUPLE ? p->args.l->n : 1;
    if (p->next >= n)
        run_fail(p->r, "not enough arguments for format string");
    size_t i = p->next++;
    return p->args.kind == V_TUPLE ? p->args.l->v[i] : p->args;
}

static struct val keyed_arg(struct percent *p)
{
    if (p->args.kind != V_DICT)
        run_fail(p->r, "format requires a mapping");
    size_t begin = ++p->at;
    unsigned depth = 1;
    for (; p->at < p->fmt->n; p->at++) {
        depth += p->fmt->p[p->at] == '(';
        if (p->fmt->p[p->at] == ')' && !--depth)
            break;
    }
    if (p->at >= p->fmt->n)
        run_fail(p->r, "incomplete format key");
    run_step(p->r, (p->at - begin) / 16);
    struct val *v = dict_get_name(p->r, p->args.d, p->fmt->p + begin, p->at - begin);
    if (!v)
        run_fail(p->r, "format key '%.*s' is not in the mapping", (int)(p->at - begin),
                 p->fmt->p + begin);
    p->at++;
    return *v;
}

static int64_t percent_number(struct percent *p)
{
    int64_t n = 0;
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '*') {
        p->at++;
        struct val v = next_arg(p);
        n = args_int(p->r, &v, 0, "* in a format");
    }
    for (; p->at < p->fmt->n && p->fmt->p[p->at] >= '0' && p->fmt->p[p->at] <= '9'; p->at++)
        n = n < MAX_WIDTH ? n * 10 + (p->fmt->p[p->at] - '0') : n;
    if (n > MAX_WIDTH)
        run_fail(p->r, "format width is larger than %d", MAX_WIDTH);
    return n;
}

static void percent_int(struct percent *p, struct sb *out, struct val v, struct spec *s, char type)
{
    if (v.kind == V_FLOAT && type == 'd') {
        if (!(v.f > -9.2e18 && v.f < 9.2e18))
            run_fail(p->r, "integer overflow: the number to format exceeds 64 bits");
        v = val_with_origin(val_int((int64_t)v.f), v.origin);
    }
    if (v.kind == V_BOOL)
        v = val_with_origin(val_int(v.b), v.origin);
    if (v.kind != V_INT)
        run_fail(p->r, "%%%c format: %s is required, not %s", type,
                 type == 'd' ? "a real number" : "an integer", val_type(v));
    put_number(p->r, out, v, s, type, s->precision);
}

static void percent_char(struct percent *p, struct sb *out, struct val v, const struct spec *s)
{
    if (v.kind == V_BOOL)
        v = val_with_origin(val_int(v.b), v.origin);
    if (v.kind == V_INT) {
        struct sb b = {0};
        char text[4];
        if (v.i < 0 || v.i > 0x10FFFF || !utf8_encode((uint32_t)v.i, text))
            run_fail(p->r, "%%c argument is not a character");
        sb_cp(p->r, &b, (uint32_t)v.i, v.origin);
        v = sb_val(p->r, &b);
    }
    if (v.kind != V_STR || str_chars(p->r, v.s) != 1)
        run_fail(p->r, "%%c requires int or char");
    put_padded(p->r, out, s, "", v.s, '>', 0);
}

static void percent_one(struct percent *p, struct sb *out)
{
    struct spec s = {.fill = blank, .precision = -1};
    struct val v = {.kind = V_MISSING};
    bool minus = false, zeros = false;
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '%') {
        sb_sub(p->r, out, p->fmt, p->at, p->at + 1);
        p->at++;
        return;
    }
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '(')
        v = keyed_arg(p);
    for (; p->at < p->fmt->n && strchr("#0- +", p->fmt->p[p->at]) && p->fmt->p[p->at]; p->at++) {
        char c = p->fmt->p[p->at];
        minus |= c == '-';
        zeros |= c == '0';
        s.alt |= c == '#';
        if (c == '+' || (c == ' ' && s.sign != '+'))
            s.sign = c;
    }
    s.width = percent_number(p);
    if (s.width < 0) {
        minus = true;
        s.width = -s.width;
    }
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '.') {
        p->at++;
        s.precision = percent_number(p);
        if (s.precision < 0)
            s.precision = 0;
    }
    while (p->at < p->fmt->n && strchr("hlL", p->fmt->p[p->at]) && p->fmt->p[p->at])
        p->at++;
    if (p->at >= p->fmt->n)
        run_fail(p->r, "incomplete format");
    char type = p->fmt->p[p->at++];
    if (v.kind == V_MISSING)
        v = next_arg(p);
    s.align = minus ? '<' : '>';
    if (zeros && !minus && !strchr("srac", type)) {
        s.align = '=';
        s.fill = zero;
    }
    s.type = type;
    if (type == 's' || type == 'r' || type == 'a') {
        struct val text = type == 's' ? v : repr_ascii(p->r, v, type == 'a');
        text = p->safe ? pyformat_html(p->r, text) : pytext_str(p->r, text);
        put_padded(p->r, out, &s, "", cut(p->r, text.s, s.precision), '>', 0);
    } else if (p->safe && strchr("coxX", type))
        run_fail(p->r, "%%%c format of a safe string: an integer is required", type);
    else if (type == 'c')
        percent_char(p, out, v, &s);
    else if (type == 'd' || type == 'i' || type == 'u')
        percent_int(p, out, v, &s, 'd');
    else if (type == 'o' || type == 'x' || type == 'X')
        percent_int(p, out, v, &s, type);
    else if (type && strchr("eEfFgG", type)) {
        if (v.kind != V_INT && v.kind != V_FLOAT && v.kind != V_BOOL)
            run_fail(p->r, "must be real number, not %s", val_type(v));
        put_number(p->r, out, as_float(v), &s, type, 0);
    } else {
        run_fail(p->r, "unsupported format character '%c' (0x%x)", type >= ' ' ? type : '?',
                 (unsigned)(unsigned char)type);
    }
}

struct val pyformat_percent(struct run *r, struct val fmt, struct val args)
{
    struct sb out = {0};
    struct percent p = {.r = r, .fmt = fmt.s, .safe = fmt.safe, .args = args};
    while (p.at < fmt.s->n) {
        const char *next = memchr(fmt.s->p + p.at, '%', fmt.s->n - p.at);
        size_t end = next ? (size_t)(next - fmt.s->p) : fmt.s->n;
        sb_sub(r, &out, fmt.s, p.at, end);
        p.at = end + 1;
        run_step(r, 1);
        if (next)
            percent_one(&p, &out);
    }
    bool left = args.kind == V_TUPLE ? p.next < args.l->n
                                     : p.next == 0 && args.kind != V_DICT && args.kind != V_LIST &&
                                           args.kind != V_UNDEF;
    if (left)
        run_fail(r, "not all arguments converted during string formatting");
    struct val v = sb_val(r, &out);
    v.safe = fmt.safe;
    return v;
}

// ---- {} ----

struct braces {
    struct run *r;
    const struct args *a;
    bool safe;    // what comes into it is escaped
    int64_t next; // automatic numbering; -1 when the template numbers itself
};

static void braces_into(struct braces *b, struct str *fmt, struct sb *out, int depth);

// What Python refuses to have beside each other, in a specification without type for a value of
// default_type.
static void check_spec(struct run *r, const struct spec *f, char default_type)
{
    const char type = f->type ? f->type : default_type;
    if (f->group && !strchr("deEfFgG%", type) && !(f->group == '_' && strchr("boxX", type)))
        run_fail(r, "cannot specify '%c' with '%c'", f->group, type);
    if (type == 's' && f->sign)
        run_fail(r, "sign not allowed in string format specifier");
    if (type == 's' && f->alt)
        run_fail(r, "alternate form (#) not allowed in string format specifier");
    if (type == 's' && f->align == '=')
        run_fail(r, "'=' alignment not allowed in string format specifier");
    if (strchr("bcdoxXn", type) && default_type == 'd' && f->precision >= 0)
        run_fail(r, "precision not allowed in integer format specifier");
    if (type == 'c' && (f->sign || f->alt))
        run_fail(r, "%s not allowed with integer format specifier 'c'",
                 f->sign ? "sign" : "alternate form (#)");
}

// default_type: of the value: s, d or g.
static struct spec parse_spec(struct run *r, struct str *s, char default_type)
{
    bool has_fill = false;
    struct spec f = {.fill = blank, .precision = -1};
    size_t i = 0, n = s->n ? str_offset(r, s, 1) : 0;
    if (n < s->n && s->p[n] && strchr("<>^=", s->p[n])) {
        f.fill = *str_sub(r, s, 0, n).s;
        f.align = s->p[n];
        has_fill = true;
        i = n + 1;
    } else if (s->n && s->p[0] && strchr("<>^=", s->p[0])) {
        f.align = s->p[i++];
    }
    if (i < s->n && (s->p[i] == '+' || s->p[i] == '-' || s->p[i] == ' '))
        f.sign = s->p[i++];
    if (i < s->n && s->p[i] == '#') {
        f.alt = true;
        i++;
    }
    if (i < s->n && s->p[i] == '0' && !has_fill) {
        f.fill = zero;
        f.align = f.align || default_type == 's' ? f.align : '=';
        i++;
    }
    for (; i < s->n && s->p[i] >= '0' && s->p[i] <= '9'; i++)
        f.width = f.width < MAX_WIDTH ? f.width * 10 + (s->p[i] - '0') : f.width;
    if (f.width > MAX_WIDTH)
        run_fail(r, "format width is larger than %d", MAX_WIDTH);
    if (i < s->n && (s->p[i] == ',' || s->p[i] == '_'))
        f.group = s->p[i++];
    if (i < s->n && s->p[i] == '.') {
        f.precision = 0;
        size_t first = ++i;
        for (; i < s->n && s->p[i] >= '0' && s->p[i] <= '9'; i++)
            f.precision =
                f.precision < MAX_WIDTH ? f.precision * 10 + (s->p[i] - '0') : f.precision;
        if (i == first)
            run_fail(r, "format specifier missing precision");
    }
    if (i < s->n)
        f.type = s->p[i++];
    if (i != s->n)
        run_fail(r, "invalid format specifier '%.*s'", (int)(s->n < 60 ? s->n : 60), s->p);
    check_spec(r, &f, default_type);
    return f;
}

static void put_formatted(struct run *r, struct sb *out, struct val v, struct str *spec_text,
                          bool safe)
{
    if (safe && v.kind == V_STR && v.safe) {
        if (spec_text->n)
            run_fail(r, "format specifier '%.*s' given, but a safe string takes none",
                     (int)(spec_text->n < 60 ? spec_text->n : 60), spec_text->p);
        sb_str(r, out, v.s);
        return;
    }
    if (safe) {
        struct sb plain = {0};
        put_formatted(r, &plain, v, spec_text, false);
        sb_str(r, out, pyformat_html(r, sb_val(r, &plain)).s);
        return;
    }
    if (!spec_text->n) {
        pytext_str_sb(r, out, v);
        return;
    }
    bool is_int = v.kind == V_INT || v.kind == V_BOOL;
    struct spec s = parse_spec(r, spec_text, v.kind == V_STR ? 's' : is_int ? 'd' : 'g');
    if (v.kind == V_STR) {
        if (s.type && s.type != 's')
            run_fail(r, "unknown format code '%c' for object of type 'str'", s.type);
        put_padded(r, out, &s, "", cut(r, v.s, s.precision), '<', 0);
    } else if (is_int && (!s.type || strchr("bdnoxX", s.type))) {
        if (v.kind == V_BOOL)
            v = val_with_origin(val_int(v.b), v.origin);
        put_number(r, out, v, &s, !s.type || s.type == 'n' ? 'd' : s.type, 0);
    } else if (is_int && s.type == 'c') {
        struct percent p = {.r = r};
        if (v.kind == V_BOOL)
            v = val_with_origin(val_int(v.b), v.origin);
        percent_char(&p, out, v, &s);
    } else if ((is_int || v.kind == V_FLOAT) && (!s.type || strchr("eEfFgGn%", s.type))) {
        char type = s.type ? s.type : s.precision < 0 ? 'r' : 'g';
        put_number(r, out, as_float(v), &s, type == 'n' ? 'g' : type, 0);
    } else if (is_int || v.kind == V_FLOAT) {
        run_fail(r, "unknown format code '%c' for object of type '%s'", s.type, val_type(v));
    } else {
        run_fail(r, "unsupported format string passed to %s.__format__", val_type(v));
    }
}

static struct val field_root(struct braces *b, const struct str *f, size_t n)
{
    int64_t number = 0;
    bool digits = n < 18;
    for (size_t i = 0; i < n && digits; i++) {
        digits = f->p[i] >= '0' && f->p[i] <= '9';
        number = number * 10 + (f->p[i] - '0');
    }
    if (!n || digits) {
        if (n ? b->next > 0 : b->next < 0)
            run_fail(b->r, "cannot mix automatic and manual field numbering");
        if (!n)
            number = b->next++;
        else
            b->next = -1;
        if ((uint64_t)number >= b->a->n_pos)
            run_fail(b->r, "replacement index %lld out of range for positional arguments",
                     (long long)number);
        return b->a->pos[number];
    }
    run_step(b->r, b->a->n_kw);
    for (size_t i = 0; i < b->a->n_kw; i++)
        if (b->a->kw_name[i].s->n == n && memcmp(b->a->kw_name[i].s->p, f->p, n) == 0)
            return b->a->kw[i];
    run_fail(b->r, "format argument '%.*s' is missing", (int)(n < 80 ? n : 80), f->p);
}

// name.attr[key]...
static struct val field_value(struct braces *b, struct str *f)
{
    size_t i = 0;
    while (i < f->n && f->p[i] != '.' && f->p[i] != '[')
        i++;
    struct val v = field_root(b, f, i);
    while (i < f->n) {
        bool attr = f->p[i] == '.';
        size_t begin = ++i;
        while (i < f->n && (attr ? f->p[i] != '.' && f->p[i] != '[' : f->p[i] != ']'))
            i++;
        struct val key = str_sub(b->r, f, begin, i);
        if (!attr && i >= f->n)
            run_fail(b->r, "missing ']' in format string");
        i += !attr;
        struct val number = text_parse_int(b->r, key.s, 10);
        v = attr ? access_attr(b->r, v, key.s)
                 : access_item(b->r, v, number.kind == V_INT ? number : key);
        if (i < f->n && f->p[i] != '.' && f->p[i] != '[')
            run_fail(b->r, "only '.' or '[' may follow ']' in a format field");
    }
    return v;
}

// {field!conversion:spec}, without the braces
static void braces_field(struct braces *b, struct str *f, struct sb *out, int depth)
{
    size_t end = 0;
    for (bool in_key = false; end < f->n; end++) {
        if (!in_key && (f->p[end] == ':' || f->p[end] == '!'))
            break;
        in_key = f->p[end] == '[' || (in_key && f->p[end] != ']');
    }
    struct val v = field_value(b, str_sub(b->r, f, 0, end).s);
    if (end < f->n && f->p[end] == '!') {
        char how = end + 1 < f->n ? f->p[end + 1] : 0;
        if (how != 's' && how != 'r' && how != 'a')
            run_fail(b->r, "unknown conversion specifier in format string; expected s, r or a");
        v = how == 's' ? pytext_str(b->r, v) : repr_ascii(b->r, v, how == 'a');
        end += 2;
        if (end < f->n && f->p[end] != ':')
            run_fail(b->r, "expected ':' after conversion specifier");
    }
    struct sb spec = {0};
    if (end < f->n)
        braces_into(b, str_sub(b->r, f, end + 1, f->n).s, &spec, depth + 1);
    put_formatted(b->r, out, v, sb_val(b->r, &spec).s, b->safe);
}

static void braces_into(struct braces *b, struct str *fmt, struct sb *out, int depth)
{
    if (depth > 2)
        run_fail(b->r, "max string recursion exceeded");
    run_step(b->r, fmt->n / 4); // a field is looked at more than once
    for (size_t i = 0; i < fmt->n;) {
        size_t end = i;
        while (end < fmt->n && fmt->p[end] != '{' && fmt->p[end] != '}')
            end++;
        sb_sub(b->r, out, fmt, i, end);
        run_step(b->r, 1);
        if (end >= fmt->n)
            return;
        if (end + 1 < fmt->n && fmt->p[end + 1] == fmt->p[end]) { // {{ or }}
            sb_sub(b->r, out, fmt, end, end + 1);
            i = end + 2;
            continue;
        }
        if (fmt->p[end] == '}')
            run_fail(b->r, "single '}' encountered in format string");
        size_t begin = end + 1;
        int open = 1;
        for (end = begin; end < fmt->n; end++) {
            open += fmt->p[end] == '{';
            if (fmt->p[end] == '}' && !--open)
                break;
        }
        if (end >= fmt->n)
            run_fail(b->r, "expected '}' before end of string");
        braces_field(b, str_sub(b->r, fmt, begin, end).s, out, depth);
        i = end + 1;
    }
}

struct val pyformat_braces(struct run *r, struct val fmt, const struct args *a)
{
    struct sb out = {0};
    struct braces b = {.r = r, .a = a, .safe = fmt.safe};
    braces_into(&b, fmt.s, &out, 0);
    return sb_val(r, &out);
}

// ---- HTML ----

struct val pyformat_html(struct run *r, struct val v)
{
    if (v.kind == V_STR && v.safe)
        return v;
    struct str *s = pytext_str(r, v).s;
    struct sb out = {0};
    run_step(r, s->n / 8);
    for (size_t i = 0, end; i < s->n; i = end + 1) {
        end = i;
        while (end < s->n && !(s->p[end] && strchr("&<>\"'", s->p[end])))
            end++;
        sb_sub(r, &out, s, i, end);
        if (end >= s->n)
            break;
        const char *name = s->p[end] == '&'   ? "&amp;"
                           : s->p[end] == '<' ? "&lt;"
                           : s->p[end] == '>' ? "&gt;"
                           : s->p[end] == '"' ? "&#34;"
                                              : "&#39;";
        sb_add(r, &out, name, strlen(name), str_origin_at(s, end));
    }
    v = sb_val(r, &out);
    v.safe = true;
    return v;
}
