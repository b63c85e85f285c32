// The lexer. Outside of tags everything is data; where a tag begins, the white space before it
// may belong to the tag ("{%-", or lstrip_blocks), and where it ends the white space after it
// ("-%}", or one newline by trim_blocks). Rules as in Jinja2 3.1 (Template Designer Documentation,
// "Whitespace Control").
#include "jinja/lexer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/runtime.h"
#include "base/unicode.h"

struct lexer {
    struct arena *arena;
    const char *src;
    size_t n, pos;
    struct tokens *out;
    bool line_start; // the last thing read ended with a newline
    char open[256];  // brackets waiting to be closed inside the current tag
    size_t n_open;
    jmp_buf escape;
    struct error *err;
};

static const char *const token_names[] = {
    [T_EOF] = "end of template",
    [T_DATA] = "template data",
    [T_PRINT_BEGIN] = "begin of print statement",
    [T_PRINT_END] = "end of print statement",
    [T_BLOCK_BEGIN] = "begin of statement block",
    [T_BLOCK_END] = "end of statement block",
    [T_NAME] = "name",
    [T_STRING] = "string",
    [T_INT] = "integer",
    [T_FLOAT] = "float",
    [T_ADD] = "+",
    [T_SUB] = "-",
    [T_MUL] = "*",
    [T_DIV] = "/",
    [T_FLOORDIV] = "//",
    [T_MOD] = "%",
    [T_POW] = "**",
    [T_TILDE] = "~",
    [T_EQ] = "==",
    [T_NE] = "!=",
    [T_LT] = "<",
    [T_LE] = "<=",
    [T_GT] = ">",
    [T_GE] = ">=",
    [T_ASSIGN] = "=",
    [T_DOT] = ".",
    [T_COLON] = ":",
    [T_PIPE] = "|",
    [T_COMMA] = ",",
    [T_SEMICOLON] = ";",
    [T_LPAREN] = "(",
    [T_RPAREN] = ")",
    [T_LBRACKET] = "[",
    [T_RBRACKET] = "]",
    [T_LBRACE] = "{",
    [T_RBRACE] = "}",
};

const char *token_name(enum token_type t)
{
    return token_names[t];
}

_Noreturn __attribute__((format(printf, 3, 4))) static void lex_fail(struct lexer *x, size_t pos,
                                                                     const char *fmt, ...)
{
    char message[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    template_error_at(x->err, x->src, x->n, pos, message);
    longjmp(x->escape, 1);
}

static void *lex_alloc(struct lexer *x, size_t n)
{
    void *p = arena_alloc(x->arena, n);
    if (!p) {
        error_oom(x->err, "chat template", n);
        longjmp(x->escape, 1);
    }
    return p;
}

static struct str *new_str(struct lexer *x, const char *p, size_t n)
{
    // The characters are counted now: a parsed template may be shared and is never written to.
    struct str *s = lex_alloc(x, sizeof *s);
    *s = (struct str){.p = p, .n = n, .origin = ORIGIN_TEMPLATE};
    for (size_t i = 0; i < n; i++)
        s->n_chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    return s;
}

static struct token *push(struct lexer *x, enum token_type type, size_t pos)
{
    struct tokens *t = x->out;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        void *p = arena_grow(x->arena, t->v, t->n * sizeof *t->v, cap * sizeof *t->v);
        if (!p) {
            error_oom(x->err, "chat template", cap * sizeof *t->v);
            longjmp(x->escape, 1);
        }
        t->v = p;
        t->cap = cap;
    }
    t->v[t->n] = (struct token){.type = type, .pos = (uint32_t)pos};
    return &t->v[t->n++];
}

static bool at(const struct lexer *x, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return x->n - pos >= n && memcmp(x->src + pos, text, n) == 0;
}

static char peek(const struct lexer *x, size_t pos)
{
    return pos < x->n ? x->src[pos] : '\0';
}

static size_t skip_space(const struct lexer *x, size_t pos)
{
    return uni_skip_space(x->src, pos, x->n);
}

// Data between begin and end, before a tag with the given sign.
static void push_data(struct lexer *x, size_t begin, size_t end, char sign, bool is_print)
{
    if (sign == '-') {
        end = uni_trim_end(x->src, begin, end);
    } else if (sign != '+' && !is_print) { // lstrip_blocks
        size_t line = end;
        while (line > begin && x->src[line - 1] != '\n')
            line--;
        if ((line > begin || x->line_start) && skip_space(x, line) >= end)
            end = line;
    }
    if (end > begin)
        push(x, T_DATA, begin)->text = new_str(x, x->src + begin, end - begin);
}

static void move_to(struct lexer *x, size_t pos)
{
    x->line_start = pos > 0 && x->src[pos - 1] == '\n';
    x->pos = pos;
}

// The end of a tag written `close` ("%}" or "#}") at pos, with its sign and the white space it
// takes. Returns 0 when there is none.
static size_t tag_end(const struct lexer *x, size_t pos, const char *close)
{
    if (peek(x, pos) == '-' && at(x, pos + 1, close))
        return skip_space(x, pos + 3);
    if (peek(x, pos) == '+' && at(x, pos + 1, close))
        return pos + 3;
    if (at(x, pos, close))
        return pos + 2 + (peek(x, pos + 2) == '\n'); // trim_blocks
    return 0;
}

static char sign_at(const struct lexer *x, size_t pos)
{
    char c = peek(x, pos);
    return c == '-' || c == '+' ? c : '\0';
}

// "{%" sign NAME at pos: returns the offset after the name and the white space behind it, or 0.
static size_t tag_named(const struct lexer *x, size_t pos, const char *name, char *sign)
{
    size_t p = pos + 2;
    *sign = sign_at(x, p);
    p = skip_space(x, p + (*sign != '\0'));
    return at(x, p, name) ? skip_space(x, p + strlen(name)) : 0;
}

static size_t raw_begin(const struct lexer *x, size_t pos, char *sign)
{
    size_t p = tag_named(x, pos, "raw", sign);
    if (!p)
        return 0;
    if (at(x, p, "-%}"))
        return skip_space(x, p + 3);
    return at(x, p, "%}") ? p + 2 : 0;
}

static void lex_raw(struct lexer *x, size_t begin, size_t tag)
{
    for (size_t p = begin; p < x->n; p++) {
        const char *brace = memchr(x->src + p, '{', x->n - p);
        if (!brace)
            break;
        p = (size_t)(brace - x->src);
        char sign;
        size_t q = peek(x, p + 1) == '%' ? tag_named(x, p, "endraw", &sign) : 0;
        size_t end = q ? tag_end(x, q, "%}") : 0;
        if (end) {
            push_data(x, begin, p, sign, false);
            move_to(x, end);
            return;
        }
    }
    lex_fail(x, tag, "missing end of raw directive");
}

static void lex_comment(struct lexer *x, size_t begin, size_t tag)
{
    for (size_t p = begin; p < x->n; p++) {
        char c = x->src[p];
        size_t end = c == '-' || c == '+' || c == '#' ? tag_end(x, p, "#}") : 0;
        if (end) {
            move_to(x, end);
            return;
        }
    }
    lex_fail(x, tag, "missing end of comment tag");
}

// ---- inside tags ----

static unsigned hex_value(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                  : 99;
}

// Python's escapes. Returns the bytes written to out (at most as many as the escape is long).
static size_t unescape(struct lexer *x, size_t *pos, char *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t start = *pos, p = start + 1;
    char c = peek(x, p++);
    const char *simple = c ? strchr(from, c) : NULL;
    uint32_t cp = 0;
    if (simple) {
        *out = to[simple - from];
        *pos = p;
        return 1;
    }
    if (c == '\n') {
        *pos = p;
        return 0;
    }
    if (c >= '0' && c <= '7') {
        p--;
        for (int k = 0; k < 3 && peek(x, p) >= '0' && peek(x, p) <= '7'; k++)
            cp = cp * 8 + hex_value(x->src[p++]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        for (int k = 0; k < digits; k++) {
            unsigned h = hex_value(peek(x, p++));
            if (h > 15)
                lex_fail(x, start, "\\%c must be followed by %d hexadecimal digits", c, digits);
            cp = cp * 16 + h;
        }
    } else if (c == 'N') {
        lex_fail(x, start, "\\N{...} escapes are not supported; write the character itself");
    } else {
        *out = '\\'; // not an escape: the backslash stays
        *pos = start + 1;
        return 1;
    }
    size_t n = utf8_encode(cp, out);
    if (!n)
        lex_fail(x, start, "escape U+%04X is not a character", (unsigned)cp);
    *pos = p;
    return n;
}

static void lex_string(struct lexer *x)
{
    size_t start = x->pos, p = start + 1, n = 0;
    char quote = x->src[start];
    while (p < x->n && x->src[p] != quote)
        p += x->src[p] == '\\' ? 2 : 1;
    if (p >= x->n)
        lex_fail(x, start, "string is not closed");
    size_t end = p;
    char *text = lex_alloc(x, end - start);
    for (p = start + 1; p < end;) {
        if (x->src[p] == '\\')
            n += unescape(x, &p, text + n);
        else
            text[n++] = x->src[p++];
    }
    push(x, T_STRING, start)->text = new_str(x, text, n);
    x->pos = end + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// (\d+_)*\d+ : digits with single underscores between them. Returns the end, or pos.
static size_t digits(const struct lexer *x, size_t pos)
{
    size_t p = pos;
    while (is_digit(peek(x, p)))
        p++;
    while (p > pos && peek(x, p) == '_' && is_digit(peek(x, p + 1)))
        for (p++; is_digit(peek(x, p));)
            p++;
    return p;
}

static bool lex_float(struct lexer *x)
{
    size_t start = x->pos, end = digits(x, start);
    if (start > 0 && x->src[start - 1] == '.')
        return false;
    bool is_float = false;
    if (peek(x, end) == '.' && digits(x, end + 1) > end + 1) {
        end = digits(x, end + 1);
        is_float = true;
    }
    if (peek(x, end) == 'e' || peek(x, end) == 'E') {
        size_t p = end + 1 + (peek(x, end + 1) == '+' || peek(x, end + 1) == '-');
        if (digits(x, p) > p) {
            end = digits(x, p);
            is_float = true;
        }
    }
    if (!is_float)
        return false;
    char *text = lex_alloc(x, end - start + 1);
    size_t n = 0;
    for (size_t p = start; p < end; p++)
        if (x->src[p] != '_')
            text[n++] = x->src[p];
    push(x, T_FLOAT, start)->f = strtod(text, NULL);
    x->pos = end;
    return true;
}

static void lex_int(struct lexer *x)
{
    size_t start = x->pos, p = start;
    unsigned base = 10;
    if (x->src[p] == '0') {
        char c = (char)(peek(x, p + 1) | 0x20);
        unsigned other = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        size_t first = p + 2 + (peek(x, p + 2) == '_');
        if (other && hex_value(peek(x, first)) < other) {
            base = other;
            p = first;
        }
    }
    bool zero = base == 10 && x->src[p] == '0'; // only more zeros may follow
    uint64_t v = 0;
    for (;;) {
        size_t q = p + (p > start && peek(x, p) == '_');
        unsigned h = hex_value(peek(x, q));
        if (h >= base || (zero && h))
            break;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, h, &v) ||
            v > INT64_MAX)
            lex_fail(x, start, "integer literal exceeds 64 bits");
        p = q + 1;
    }
    push(x, T_INT, start)->i = (int64_t)v;
    x->pos = p;
}

static bool lex_name(struct lexer *x)
{
    size_t start = x->pos, p = start;
    uint32_t cp;
    while (p < x->n) {
        size_t k = utf8_decode(x->src + p, x->n - p, &cp);
        bool more = p > start && cp >= '0' && cp <= '9';
        if (k == 0 || !(more || cp == '_' || uni_is(cp, UNI_LETTER) ||
                        (p > start && cp >= 0x80 && !uni_is(cp, UNI_UNPRINTABLE))))
            break;
        p += k;
    }
    if (p == start)
        return false;
    push(x, T_NAME, start)->text = new_str(x, x->src + start, p - start);
    x->pos = p;
    return true;
}

static void lex_operator(struct lexer *x)
{
    static const struct {
        const char *text;
        enum token_type type;
    } ops[] = {
        {"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
        {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},      {"/", T_DIV},      {"*", T_MUL},
        {"%", T_MOD},       {"~", T_TILDE},  {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN},
        {")", T_RPAREN},    {"{", T_LBRACE}, {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
        {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},     {",", T_COMMA},
        {";", T_SEMICOLON},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (!at(x, x->pos, ops[i].text))
            continue;
        char c = ops[i].text[0];
        if (c == '(' || c == '[' || c == '{') {
            if (x->n_open == sizeof x->open)
                lex_fail(x, x->pos, "more than %zu brackets inside each other", sizeof x->open);
            x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (!x->n_open)
                lex_fail(x, x->pos, "unexpected '%c'", c);
            if (x->open[--x->n_open] != c)
                lex_fail(x, x->pos, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
        }
        push(x, ops[i].type, x->pos);
        x->pos += strlen(ops[i].text);
        return;
    }
    uint32_t cp = 0;
    utf8_decode(x->src + x->pos, x->n - x->pos, &cp);
    lex_fail(x, x->pos, "unexpected character U+%04X", (unsigned)cp);
}

static void lex_tag(struct lexer *x, bool is_print, size_t tag)
{
    x->n_open = 0;
    for (;;) {
        x->pos = skip_space(x, x->pos);
        if (x->pos >= x->n)
            lex_fail(x, tag, "tag is not closed: expected '%s'", is_print ? "}}" : "%}");
        if (!x->n_open) { // inside brackets "}}" and "%}" are operators
            size_t end = 0;
            if (!is_print)
                end = tag_end(x, x->pos, "%}");
            else if (at(x, x->pos, "-}}"))
                end = skip_space(x, x->pos + 3);
            else if (at(x, x->pos, "}}"))
                end = x->pos + 2;
            if (end) {
                push(x, is_print ? T_PRINT_END : T_BLOCK_END, x->pos);
                move_to(x, end);
                return;
            }
        }
        char c = x->src[x->pos];
        if (c == '"' || c == '\'')
            lex_string(x);
        else if (is_digit(c)) {
            if (!lex_float(x))
                lex_int(x);
        } else if (!lex_name(x))
            lex_operator(x);
    }
}

static void lex_all(struct lexer *x)
{
    while (x->pos < x->n) {
        size_t begin = x->pos, p = begin;
        for (; p < x->n; p++) {
            const char *brace = memchr(x->src + p, '{', x->n - p);
            p = brace ? (size_t)(brace - x->src) : x->n;
            char c = peek(x, p + 1);
            if (c == '%' || c == '{' || c == '#')
                break;
        }
        if (p >= x->n) {
            push_data(x, begin, x->n, '+', false);
            break;
        }
        char c = x->src[p + 1], sign;
        size_t raw = c == '%' ? raw_begin(x, p, &sign) : 0;
        if (raw) {
            push_data(x, begin, p, sign, false);
            move_to(x, raw);
            lex_raw(x, raw, p);
            continue;
        }
        sign = sign_at(x, p + 2);
        push_data(x, begin, p, sign, c == '{');
        x->pos = p + 2 + (sign != '\0');
        if (c == '#') {
            lex_comment(x, x->pos, p);
        } else {
            push(x, c == '{' ? T_PRINT_BEGIN : T_BLOCK_BEGIN, p);
            lex_tag(x, c == '{', p);
        }
    }
    push(x, T_EOF, x->n);
}

bool lexer_run(struct arena *arena, const char *src, size_t n, struct tokens *out,
               struct error *err)
{
    struct lexer x = {
        .arena = arena, .src = src, .n = n, .out = out, .line_start = true, .err = err};
    if (setjmp(x.escape))
        return false;
    lex_all(&x);
    return true;
}
