// A recursive descent over the text with a cursor whose error is sticky.
//
//   grammar     := { name "::=" alternatives }           rules end with their line
//   alternatives:= sequence { "|" sequence }
//   sequence    := { item [ "*" | "+" | "?" | "{m}" | "{m,}" | "{,n}" | "{m,n}" ] }
//   item        := "text" | [class] | "." | name | "(" alternatives ")"
#include "grammar/gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/format.h"
#include "base/hash.h"
#include "base/utf8.h"

enum { MAX_NESTING = 200, MAX_REPEAT = 100000 };

struct reader {
    struct builder *b;
    const char *text, *at, *end;
    unsigned nesting;
    struct error *err;
    bool failed;
    // Names -> rules: a hash table with open addressing, so that a long list takes no square of it.
    uint32_t *slots; // rule + 1; 0: free
    size_t n_slots;
    uint64_t seed;
    // The last position that was asked for: they come in ascending order, mostly.
    const char *known;
    uint32_t line, column;
};

static void position(struct reader *r, const char *at, uint32_t *line, uint32_t *column)
{
    if (!r->known || at < r->known) {
        r->known = r->text;
        r->line = r->column = 1;
    }
    for (; r->known < at; r->known++) {
        if (*r->known == '\n') {
            r->line++;
            r->column = 1;
        } else if (((unsigned char)*r->known & 0xC0) != 0x80) {
            r->column++; // characters, not bytes
        }
    }
    *line = r->line;
    *column = r->column;
}

// What stands at `at`, for a message.
static const char *found(const struct reader *r, const char *at, char out[FORMAT_TEXT])
{
    if (at >= r->end)
        return "the end of the text";
    if (*at == '\n')
        return "the end of the line";
    size_t n = 0;
    while (at + n < r->end && at[n] != '\n' && n < 24)
        n++;
    char text[FORMAT_TEXT - 4];
    format_text(text, sizeof text, at, n);
    out[0] = '"';
    strcpy(out + 1, text);
    strcat(out, "\"");
    return out;
}

static bool expected(struct reader *r, const char *at, const char *what)
{
    if (!r->failed) {
        char text[FORMAT_TEXT];
        uint32_t line, column;
        position(r, at, &line, &column);
        r->failed = true;
        error_set(r->err, ERR_USAGE, "line %u, column %u: found %s, expected %s", line, column,
                  found(r, at, text), what);
    }
    r->at = r->end; // every loop ends
    return false;
}

// Blanks and comments; newlines too where a rule may go on.
static void skip(struct reader *r, bool newlines)
{
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r')) ||
                 (c == '\r' && r->at + 1 < r->end && r->at[1] == '\n'))
            r->at++;
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_length(const struct reader *r)
{
    size_t n = 0;
    while (r->at + n < r->end && is_name(r->at[n]))
        n++;
    return n;
}

static size_t slot_of(const struct reader *r, const char *name, size_t n)
{
    size_t k = hash_bytes(name, n, r->seed) & (r->n_slots - 1);
    for (; r->slots[k]; k = (k + 1) & (r->n_slots - 1)) {
        const char *other = r->b->rules[r->slots[k] - 1].name;
        if (strlen(other) == n && memcmp(other, name, n) == 0)
            break;
    }
    return k;
}

// The rule of that name, made when it is met first.
static uint32_t rule_named(struct reader *r, const char *name, size_t n)
{
    if (2 * r->b->n_rules + 2 > r->n_slots) {
        uint32_t *old = r->slots;
        size_t n_old = r->n_slots;
        r->n_slots = n_old ? 2 * n_old : 64;
        r->slots = calloc(r->n_slots, sizeof *r->slots);
        if (!r->slots) {
            r->slots = old;
            r->n_slots = n_old;
            r->b->failed = true;
            return 0;
        }
        for (size_t i = 0; i < n_old; i++)
            if (old[i]) {
                const char *s = r->b->rules[old[i] - 1].name;
                r->slots[slot_of(r, s, strlen(s))] = old[i];
            }
        free(old);
    }
    size_t k = slot_of(r, name, n);
    if (r->slots[k])
        return r->slots[k] - 1;
    char *copy = strndup(name, n);
    size_t before = r->b->n_rules;
    uint32_t rule = builder_rule(r->b);
    if (!copy || r->b->n_rules == before) {
        free(copy);
        r->b->failed = true;
        return 0;
    }
    r->b->rules[rule].name = copy;
    position(r, name, &r->b->rules[rule].line, &r->b->rules[rule].column);
    r->slots[k] = rule + 1;
    return rule;
}

// One character of a text or a class, escapes resolved. False after a failure.
static bool character(struct reader *r, uint32_t *cp)
{
    const char *begin = r->at;
    if (r->at >= r->end)
        return expected(r, r->at, "a character");
    if (*r->at != '\\') {
        size_t n = utf8_decode(r->at, (size_t)(r->end - r->at), cp);
        if (n == 0)
            return expected(r, r->at, "UTF-8");
        r->at += n;
        return true;
    }
    static const char *const escapes =
        "\\n or \\r or \\t or \\\\ or \\\" or \\[ or \\] or \\- or \\^ or \\/ or \\xHH or "
        "\\uHHHH or \\UHHHHHHHH";
    if (r->end - r->at < 2)
        return expected(r, begin, escapes);
    size_t digits = 0;
    char c = r->at[1];
    r->at += 2;
    switch (c) {
    case 'n':
        *cp = '\n';
        return true;
    case 'r':
        *cp = '\r';
        return true;
    case 't':
        *cp = '\t';
        return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/':
        *cp = (unsigned char)c;
        return true;
    case 'x':
        digits = 2;
        break;
    case 'u':
        digits = 4;
        break;
    case 'U':
        digits = 8;
        break;
    default:
        return expected(r, begin, escapes);
    }
    uint64_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        char d = r->at < r->end ? *r->at : '\0';
        int x = d >= '0' && d <= '9'   ? d - '0'
                : d >= 'a' && d <= 'f' ? d - 'a' + 10
                : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                       : -1;
        if (x < 0)
            return expected(r, begin, escapes);
        v = v << 4 | (unsigned)x;
        r->at++;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
        return expected(r, begin, "a character up to U+10FFFF that is no surrogate");
    *cp = (uint32_t)v;
    return true;
}

static uint32_t literal(struct reader *r)
{
    const char *begin = r->at++;
    struct buf text = {0};
    for (;;) {
        if (r->at >= r->end || *r->at == '\n') {
            expected(r, r->failed ? begin : r->at, "the \" that ends the text");
            break;
        }
        if (*r->at == '"') {
            r->at++;
            break;
        }
        uint32_t cp;
        char utf8[4];
        if (!character(r, &cp))
            break;
        buf_append(&text, utf8, utf8_encode(cp, utf8));
    }
    r->b->failed |= text.failed;
    uint32_t x = expr_bytes(r->b, text.data, text.len);
    buf_release(&text);
    return x;
}

static uint32_t class(struct reader *r)
{
    struct charset s = {0};
    r->at++;
    bool negated = r->at < r->end && *r->at == '^';
    r->at += negated;
    for (;;) {
        if (r->at >= r->end || *r->at == '\n') {
            expected(r, r->at, "the ] that ends the class");
            break;
        }
        if (*r->at == ']') {
            r->at++;
            break;
        }
        uint32_t lo, hi;
        const char *begin = r->at;
        if (!character(r, &lo))
            break;
        hi = lo;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (!character(r, &hi))
                break;
        }
        if (lo > hi) {
            expected(r, begin, "a range whose first character is not behind its last");
            break;
        }
        charset_add(&s, lo, hi);
    }
    if (negated) {
        charset_tidy(&s);
        charset_negate(&s);
    }
    return expr_class(r->b, &s);
}

static bool number(struct reader *r, uint32_t *out)
{
    const char *begin = r->at;
    uint32_t v = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        v = v * 10 + (uint32_t)(*r->at++ - '0');
        if (v > MAX_REPEAT)
            return expected(r, begin, "a repetition of at most 100000");
    }
    *out = v;
    return r->at > begin;
}

// * + ? {m} {m,} {,n} {m,n} behind an item; several may follow each other.
static uint32_t repetitions(struct reader *r, uint32_t x)
{
    for (unsigned times = 0; !r->failed && r->at < r->end; times++) {
        const char *begin = r->at;
        uint32_t min = 0, max = REPEAT_FOREVER;
        if (*r->at == '*') {
            r->at++;
        } else if (*r->at == '+') {
            min = 1;
            r->at++;
        } else if (*r->at == '?') {
            max = 1;
            r->at++;
        } else if (*r->at == '{') {
            r->at++;
            skip(r, false);
            bool any = number(r, &min);
            skip(r, false);
            if (r->at < r->end && *r->at == ',') {
                r->at++;
                skip(r, false);
                if (!number(r, &max))
                    max = REPEAT_FOREVER;
                else
                    any = true;
                skip(r, false);
            } else {
                max = min;
            }
            if (r->at >= r->end || *r->at != '}' || !any) {
                expected(r, r->at, "{m}, {m,}, {,n} or {m,n}");
                return 0;
            }
            r->at++;
            if (min > max) {
                expected(r, begin, "a repetition {m,n} with m <= n");
                return 0;
            }
        } else {
            break;
        }
        if (times == MAX_NESTING) {
            expected(r, begin, "at most 200 repetitions of each other");
            return 0;
        }
        x = expr_repeat(r->b, x, min, max);
        skip(r, r->nesting > 0);
    }
    return x;
}

static uint32_t alternatives(struct reader *r);

// False: none begins here.
static bool item(struct reader *r, uint32_t *x)
{
    char c = r->at < r->end ? *r->at : '\0';
    if (c == '"') {
        *x = literal(r);
    } else if (c == '[') {
        *x = class(r);
    } else if (c == '.') {
        struct charset any = {0};
        charset_add(&any, 0, 0x10FFFF);
        *x = expr_class(r->b, &any);
        r->at++;
    } else if (c == '(') {
        const char *begin = r->at++;
        if (r->nesting == MAX_NESTING)
            return expected(r, begin, "groups no more than 200 deep");
        r->nesting++;
        *x = alternatives(r);
        if (r->at >= r->end || *r->at != ')')
            return expected(r, r->at, "an item, | or )");
        r->at++;
        r->nesting--;
    } else if (c == '<' || c == '!') {
        return expected(r, r->at, "text, for tokens cannot be named in a grammar");
    } else if (is_name(c)) {
        size_t n = name_length(r);
        *x = expr_rule(r->b, rule_named(r, r->at, n));
        r->at += n;
    } else {
        return false;
    }
    skip(r, r->nesting > 0);
    return !r->failed;
}

// Whether a new rule begins here: at the beginning of a line inside a group that was not closed.
static bool at_definition(struct reader *r)
{
    const char *p = r->at + name_length(r);
    if (p == r->at)
        return false;
    while (p < r->end && (*p == ' ' || *p == '\t'))
        p++;
    return r->end - p >= 3 && memcmp(p, "::=", 3) == 0;
}

static uint32_t sequence(struct reader *r)
{
    struct ids list = {0};
    uint32_t x = 0;
    while (!at_definition(r) && item(r, &x))
        ids_push(&list, (int32_t)repetitions(r, x));
    x = expr_seq(r->b, &list);
    ids_release(&list);
    return x;
}

static uint32_t alternatives(struct reader *r)
{
    struct ids list = {0};
    for (;;) {
        skip(r, true);
        ids_push(&list, (int32_t)sequence(r));
        // A | may also begin the next line.
        const char *line_end = r->at;
        skip(r, true);
        if (r->at >= r->end || *r->at != '|') {
            if (!r->failed)
                r->at = r->nesting ? r->at : line_end;
            break;
        }
        r->at++;
    }
    uint32_t x = expr_alt(r->b, &list);
    ids_release(&list);
    return x;
}

static void definition(struct reader *r)
{
    const char *begin = r->at;
    size_t n = name_length(r);
    if (n == 0) {
        expected(r, r->at, "the name of a rule");
        return;
    }
    uint32_t rule = rule_named(r, begin, n);
    r->at += n;
    skip(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0) {
        expected(r, r->at, "::=");
        return;
    }
    if (!builder_ok(r->b, r->err)) {
        r->failed = true;
        r->at = r->end;
        return;
    }
    struct rule *known = &r->b->rules[rule];
    if (known->body != UINT32_MAX) {
        char why[128];
        snprintf(why, sizeof why, "a rule of another name (this one is defined in line %u)",
                 known->line);
        expected(r, begin, why);
        return;
    }
    position(r, begin, &known->line, &known->column);
    r->at += 3;
    uint32_t body = alternatives(r);
    builder_define(r->b, rule, body);
    skip(r, false);
    if (!r->failed && r->at < r->end && *r->at != '\n')
        expected(r, r->at, "an item, |, or the end of the line");
}

static bool all_defined(struct reader *r, uint32_t *root)
{
    if (r->n_slots == 0 || !r->slots[slot_of(r, "root", 4)])
        return error_set(r->err, ERR_USAGE,
                         "the grammar has no rule \"root\": define it (root ::= ...), the answer "
                         "begins there");
    *root = r->slots[slot_of(r, "root", 4)] - 1;
    for (size_t i = 0; i < r->b->n_rules; i++) {
        const struct rule *rule = &r->b->rules[i];
        char name[FORMAT_TEXT];
        if (rule->body == UINT32_MAX)
            return error_set(r->err, ERR_USAGE,
                             "line %u, column %u: found the rule \"%s\", which is defined nowhere, "
                             "expected a line %s ::= ...",
                             rule->line, rule->column,
                             format_text(name, sizeof name, rule->name, strlen(rule->name)), name);
    }
    return true;
}

bool gbnf_read(struct builder *b, const char *text, size_t n, uint32_t *root, struct error *err)
{
    struct reader r = {.b = b, .text = text, .at = text, .end = text + n, .err = err};
    if (getentropy(&r.seed, sizeof r.seed) != 0)
        r.seed = 0x2545F4914F6CDD1Du;
    for (skip(&r, true); r.at < r.end; skip(&r, true))
        definition(&r);
    bool ok = !r.failed && builder_ok(b, err) && all_defined(&r, root);
    free(r.slots);
    return ok;
}
