// A recursive descent over a pattern. What it means to match is in regex.c.
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/utf8.h"
#include "grammar/regex.h"

enum { MAX_NESTING = 100, MAX_REPEAT = 10000, BYTE_WORK = 5 };
#define NONE UINT32_MAX

struct reader {
    struct nfa *a;
    struct work *work;
    const char *text, *at, *end;
    unsigned nesting;
    bool failed;
    struct error *err;
};

void nfa_release(struct nfa *a)
{
    for (size_t i = 0; i < a->n_sets; i++) {
        charset_release(a->sets[i]);
        free(a->sets[i]);
    }
    free(a->sets);
    free(a->states);
    *a = (struct nfa){0};
}

static uint32_t add(struct nfa *a, struct nfa_state s)
{
    if (a->n >= REGEX_MAX_STATES)
        a->too_big = true;
    if (a->too_big || !array_grow(&a->failed, &a->states, a->n, &a->cap, sizeof s))
        return 0;
    a->states[a->n] = s;
    return (uint32_t)a->n++;
}

static struct charset *new_set(struct nfa *a)
{
    struct charset *s = calloc(1, sizeof *s);
    if (!s || !array_grow(&a->failed, &a->sets, a->n_sets, &a->cap_sets, sizeof *a->sets)) {
        free(s);
        a->failed = true;
        return NULL;
    }
    return a->sets[a->n_sets++] = s;
}

static bool expected(struct reader *r, const char *at, const char *what)
{
    char text[FORMAT_TEXT];
    if (!r->failed && !r->a->too_big) // what is too big is read no further
        error_set(r->err, ERR_USAGE, "column %zu of the pattern: found \"%s\", expected %s",
                  (size_t)(at - r->text) + 1,
                  format_text(text, sizeof text, at, (size_t)(r->end - at)), what);
    r->failed = true;
    r->at = r->end;
    return false;
}

// A piece of the automaton: where it begins, and the state whose `a` leads on.
struct piece {
    uint32_t begin, end;
};

static struct piece single(struct reader *r, struct nfa_state s)
{
    uint32_t x = add(r->a, s);
    return (struct piece){x, x};
}

static struct piece nothing_between(struct reader *r) // the empty text
{
    return single(r, (struct nfa_state){.kind = NFA_EITHER, .a = NONE, .b = NONE});
}

static void join(struct reader *r, uint32_t end, uint32_t to)
{
    if (end < r->a->n)
        r->a->states[end].a = to;
}

// \d \w \s and their opposites. What programs disagree about (letters, digits and blanks beyond
// ASCII) belongs to neither.
static const struct char_range digits[] = {{'0', '9'}}, not_digits[] = {{0, '/'}, {':', 0x7F}};
static const struct char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range not_word[] = {
    {0, '/'}, {':', '@'}, {'[', '^'}, {'`', '`'}, {'{', 0x7F}};
static const struct char_range blanks[] = {{'\t', '\r'}, {' ', ' '}};
static const struct char_range not_blanks[] = {
    {0, 0x08},        {0x0E, 0x1B},     {0x21, 0x84},     {0x86, 0x9F},
    {0xA1, 0x167F},   {0x1681, 0x1FFF}, {0x200B, 0x2027}, {0x202A, 0x202E},
    {0x2030, 0x205E}, {0x2060, 0x2FFF}, {0x3001, 0xFEFE}, {0xFF00, 0x10FFFF}};

enum place { OUTSIDE, IN_CLASS, IN_NEGATED }; // a class; one that begins with ^

// In a negated class, which leaves out what is in it, a shorthand is all that its opposite is not.
// \d and \w are ASCII there, too, as ECMA-262 has them: [^\d] may be any other character.
static bool shorthand(char c, enum place place, struct charset *s)
{
#define SET(name) name, sizeof name / sizeof *name
    static const struct {
        char c;
        const struct char_range *r;
        size_t n;
    } table[] = {// each before its opposite
                 {'d', SET(digits)},   {'D', SET(not_digits)}, {'w', SET(word)},
                 {'W', SET(not_word)}, {'s', SET(blanks)},     {'S', SET(not_blanks)}};
#undef SET
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].c == c) {
            const bool wide = place == IN_NEGATED && c != 'd' && c != 'w';
            const size_t from = wide ? i ^ 1 : i;
            struct charset set = {0};
            for (size_t k = 0; k < table[from].n; k++)
                charset_add(&set, table[from].r[k].lo, table[from].r[k].hi);
            if (wide)
                charset_negate(&set);
            charset_add_all(s, &set);
            charset_release(&set);
            return true;
        }
    return false;
}

static bool hex(struct reader *r, const char *begin, unsigned n, uint32_t *cp)
{
    *cp = 0;
    for (unsigned i = 0; i < n; i++, r->at++) {
        char c = r->at < r->end ? *r->at : '\0';
        int x = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (x < 0)
            return expected(r, begin, "hexadecimal digits");
        *cp = *cp << 4 | (uint32_t)x;
    }
    return true;
}

// What is behind a backslash at r->at: a set (into s; *cp = NONE) or one character.
static bool escape(struct reader *r, enum place place, struct charset *s, uint32_t *cp)
{
    const char *begin = r->at++;
    char c = r->at < r->end ? *r->at : '\0';
    static const char names[] = "nrtfv0", values[] = "\n\r\t\f\v";
    const char *p;
    *cp = NONE;
    if (c == '\0')
        return expected(r, begin, "a character behind the \\");
    r->at++;
    if (shorthand(c, place, s))
        return true;
    if ((p = strchr(names, c)) && !(c == '0' && r->at < r->end && *r->at >= '0' && *r->at <= '9')) {
        *cp = (unsigned char)values[p - names];
        return true;
    }
    if (c == 'c') { // \cJ: control-J
        const char letter = r->at < r->end ? *r->at : '\0';
        if (!((letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z')))
            return expected(r, begin, "a letter behind \\c");
        r->at++;
        *cp = letter & 31;
        return true;
    }
    if (c == 'x')
        return hex(r, begin, 2, cp);
    if (c == 'u') {
        if (r->at < r->end && *r->at == '{') {
            const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));
            if (!close || close - r->at < 2 || close - r->at > 7)
                return expected(r, begin, "\\u{H...}, one to six hexadecimal digits");
            r->at++;
            if (!hex(r, begin, (unsigned)(close - r->at), cp))
                return false;
            r->at++;
        } else if (!hex(r, begin, 4, cp)) {
            return false;
        }
        uint32_t low;
        if (*cp >= 0xD800 && *cp < 0xDC00 && r->end - r->at >= 6 && memcmp(r->at, "\\u", 2) == 0) {
            r->at += 2;
            if (!hex(r, begin, 4, &low))
                return false;
            if (low >= 0xDC00 && low < 0xE000)
                *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
        }
        if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp < 0xE000))
            return expected(r, begin, "a character up to U+10FFFF that is no half of a pair");
        return true;
    }
    if (place != OUTSIDE && c == 'b') {
        *cp = '\b';
        return true;
    }
    if (strchr("^$\\.*+?()[]{}|/-", c) ||
        (c > ' ' && c < 0x7F && !strchr("_", c) &&
         !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))) {
        *cp = (unsigned char)c;
        return true;
    }
    return expected(r, begin,
                    c == 'b' || c == 'B' ? "no \\b: word boundaries are not enforced"
                    : c == 'p' || c == 'P'
                        ? "no \\p: Unicode's properties are not enforced; write the "
                          "ranges as a class"
                    : c == 'k' || (c >= '1' && c <= '9')
                        ? "no back reference: it is not regular and cannot be enforced"
                        : "an escape of ECMA-262");
}

static bool plain(struct reader *r, uint32_t *cp)
{
    size_t n = utf8_decode(r->at, (size_t)(r->end - r->at), cp);
    if (n == 0)
        return expected(r, r->at, "UTF-8");
    r->at += n;
    return true;
}

static bool class(struct reader *r, struct charset *s)
{
    const char *begin = r->at++;
    bool negated = r->at < r->end && *r->at == '^';
    const enum place place = negated ? IN_NEGATED : IN_CLASS;
    static const char shorthands[] = "dDwWsS";
    unsigned seen = 0; // of these
    r->at += negated;
    for (;;) {
        if (r->at >= r->end)
            return expected(r, begin, "a class that ends with ]");
        if (*r->at == ']')
            break;
        const char *item = r->at;
        uint32_t lo, hi;
        if (!(*r->at == '\\' ? escape(r, place, s, &lo) : plain(r, &lo)))
            return false;
        if (lo == NONE) {
            seen |= 1u << (strchr(shorthands, item[1]) - shorthands);
            continue;
        }
        hi = lo;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            const char *dash = r->at++;
            struct charset unused = {0};
            if (!(*r->at == '\\' ? escape(r, place, &unused, &hi) : plain(r, &hi)))
                return false;
            bool is_set = hi == NONE;
            charset_release(&unused);
            if (is_set) { // [a-\d]: the dash is a character
                r->at = dash;
                hi = lo;
                charset_add(s, '-', '-');
                r->at++;
            } else if (lo > hi) {
                return expected(r, item, "a range whose first character is not behind its last");
            }
        }
        charset_add(s, lo, hi);
    }
    r->at++;
    if (seen & seen >> 1 & 0x15) // one and its opposite: whatever programs disagree about
        charset_add(s, 0, 0x10FFFF);
    charset_tidy(s);
    if (negated)
        charset_negate(s);
    return true;
}

static struct piece alternatives(struct reader *r);

static struct piece group(struct reader *r)
{
    const char *begin = r->at++;
    if (r->nesting >= MAX_NESTING)
        expected(r, begin, "groups no more than 100 deep");
    if (r->end - r->at >= 2 && r->at[0] == '?') {
        char c = r->at[1], behind = r->end - r->at >= 3 && c == '<' ? r->at[2] : c;
        if (c == ':') {
            r->at += 2;
        } else if (behind == '=' || behind == '!') {
            expected(r, begin, "no (?= (?! (?<= (?<!: looking ahead or behind is not enforced");
        } else if (c == '<') {
            const char *close = memchr(r->at, '>', (size_t)(r->end - r->at));
            if (!close)
                expected(r, begin, "a name that ends with >");
            else
                r->at = close + 1;
        } else {
            expected(r, begin, "(, (?: or (?<name>: flags and the like are not enforced");
        }
    }
    r->nesting++;
    struct piece p = alternatives(r);
    r->nesting--;
    if (r->at >= r->end || *r->at != ')')
        expected(r, begin, "a group that ends with )");
    else
        r->at++;
    return p;
}

// One atom at r->at; *is_assertion: nothing may repeat it.
static struct piece atom(struct reader *r, bool *is_assertion)
{
    char c = *r->at;
    *is_assertion = c == '^' || c == '$';
    if (*is_assertion) {
        r->at++;
        return single(r, (struct nfa_state){.kind = c == '^' ? NFA_BEGIN : NFA_END, .a = NONE});
    }
    if (c == '(')
        return group(r);
    struct charset *s = new_set(r->a);
    if (!s) {
        r->failed = true;
        return (struct piece){0};
    }
    uint32_t cp = NONE;
    if (c == '[') {
        class(r, s);
    } else if (c == '.') {
        r->at++;
        charset_add(s, '\n', '\n');
        charset_add(s, '\r', '\r');
        charset_add(s, 0x2028, 0x2029);
        charset_tidy(s);
        charset_negate(s);
    } else if (c == '\\') {
        escape(r, OUTSIDE, s, &cp);
    } else if (strchr("*+?{}])", c)) {
        expected(r, r->at, "something to repeat before it, or a \\ if the character is meant");
    } else {
        plain(r, &cp);
    }
    if (cp != NONE)
        charset_add(s, cp, cp);
    charset_tidy(s);
    r->a->failed |= s->failed;
    return single(r, (struct nfa_state){.kind = NFA_CHAR, .a = NONE, .chars = s});
}

static bool count(struct reader *r, uint32_t *n)
{
    const char *begin = r->at;
    *n = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        *n = *n * 10 + (uint32_t)(*r->at++ - '0');
        if (*n > MAX_REPEAT)
            return expected(r, begin, "a repetition of at most 10000");
    }
    return r->at > begin;
}

// * + ? {m} {m,} {m,n} at r->at, lazy or not: the language is the same.
static bool repetition(struct reader *r, uint32_t *min, uint32_t *max)
{
    const char *begin = r->at;
    char c = r->at < r->end ? *r->at : '\0';
    *min = c == '+';
    *max = c == '?' ? 1 : NONE;
    if (c == '*' || c == '+' || c == '?') {
        r->at++;
    } else if (c == '{') {
        r->at++;
        if (!count(r, min))
            return expected(r, begin, "{m}, {m,} or {m,n}, or \\{ if the character is meant");
        *max = *min;
        if (r->at < r->end && *r->at == ',') {
            r->at++;
            if (!count(r, max))
                *max = NONE;
        }
        if (r->failed || r->at >= r->end || *r->at != '}' || *min > *max)
            return expected(r, begin, "{m}, {m,} or {m,n} with m <= n");
        r->at++;
    } else {
        return false;
    }
    if (r->at < r->end && *r->at == '?')
        r->at++;
    return true;
}

static struct piece sequence(struct reader *r)
{
    struct piece whole = nothing_between(r);
    while (!r->failed && !r->a->too_big && !r->a->failed && r->at < r->end && *r->at != '|' &&
           *r->at != ')') {
        const char *begin = r->at;
        bool is_assertion;
        uint32_t min, max;
        struct piece p = atom(r, &is_assertion);
        if (r->failed)
            break;
        const char *end = r->at;
        if (!repetition(r, &min, &max)) {
            join(r, whole.end, p.begin);
            whole.end = p.end;
            continue;
        }
        if (is_assertion) {
            expected(r, begin, "no repetition of ^ or $");
            break;
        }
        // The atom is read once for each copy; what was made of it first is the first copy.
        const char *after = r->at;
        unsigned nesting = r->nesting;
        uint32_t copies = max == NONE ? (min ? min : 1) : max;
        for (uint32_t i = 0; i < copies && !r->failed && !r->a->too_big && !r->a->failed; i++) {
            if (i > 0) {
                const char *limit = r->end;
                r->at = begin;
                r->end = end;
                if (!work_add(r->work, BYTE_WORK * (uint64_t)(end - begin)))
                    r->failed = true;
                p = r->failed ? p : atom(r, &is_assertion);
                r->end = limit;
            }
            uint32_t out = nothing_between(r).begin;
            bool last = i + 1 == copies;
            if (max == NONE && last) { // loops
                uint32_t loop = add(r->a, (struct nfa_state){NFA_EITHER, .a = out, .b = p.begin});
                join(r, p.end, loop);
                join(r, whole.end, min ? p.begin : loop);
            } else if (i >= min) { // may be left out
                uint32_t skip = add(r->a, (struct nfa_state){NFA_EITHER, .a = p.begin, .b = out});
                join(r, p.end, out);
                join(r, whole.end, skip);
            } else {
                join(r, p.end, out);
                join(r, whole.end, p.begin);
            }
            whole.end = out;
        }
        r->nesting = nesting;
        if (!r->failed)
            r->at = after;
    }
    return whole;
}

static struct piece alternatives(struct reader *r)
{
    struct piece p = sequence(r);
    while (!r->failed && r->at < r->end && *r->at == '|') {
        r->at++;
        struct piece q = sequence(r);
        uint32_t out = nothing_between(r).begin;
        join(r, p.end, out);
        join(r, q.end, out);
        p.begin = add(r->a, (struct nfa_state){NFA_EITHER, .a = p.begin, .b = q.begin});
        p.end = out;
    }
    return p;
}

bool nfa_add(struct nfa *a, const char *pattern, size_t n, struct work *work, struct error *err)
{
    struct reader r = {
        .a = a, .work = work, .text = pattern, .at = pattern, .end = pattern + n, .err = err};
    if (a->n_patterns == REGEX_MAX_PATTERNS)
        return error_set(err, ERR_USAGE, "more than %d patterns for one text", REGEX_MAX_PATTERNS);
    if (!work_add(work, BYTE_WORK * (uint64_t)n))
        return work_ok(work, err);
    struct piece p = alternatives(&r);
    if (!work_ok(work, err))
        return false;
    if (!r.failed && r.at < r.end)
        expected(&r, r.at, "an item or |, or \\) if the character is meant");
    if (r.failed && !a->failed && !a->too_big)
        return false;
    // Any characters may come before it and behind it.
    struct charset *any = new_set(a);
    if (any) {
        charset_add(any, 0, 0x10FFFF);
        charset_tidy(any);
    }
    uint32_t match =
        add(a, (struct nfa_state){.kind = NFA_MATCH, .a = a->n_patterns, .chars = any});
    join(&r, p.end, match);
    uint32_t before = add(a, (struct nfa_state){.kind = NFA_CHAR, .a = NONE, .chars = any});
    uint32_t start = add(a, (struct nfa_state){NFA_EITHER, .a = p.begin, .b = before});
    join(&r, before, start);
    a->start[a->n_patterns++] = start;
    if (a->too_big)
        return error_set(err, ERR_USAGE,
                         "the pattern needs more than %d states: make its repetitions smaller, "
                         "which need two for each character",
                         REGEX_MAX_STATES);
    return !a->failed || error_oom(err, "a pattern", a->n * sizeof *a->states);
}
