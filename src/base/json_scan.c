#include "base/json_scan.h"

#include <string.h>

#include "base/utf8.h"

enum { DEEPEST = 1000 };

static const char *white(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

// Each of these returns what is behind its part of a text, or NULL.

static const char *word(const char *p, const char *end, const char *is)
{
    const size_t n = strlen(is);
    return (size_t)(end - p) >= n && memcmp(p, is, n) == 0 ? p + n : NULL;
}

static const char *digits(const char *p, const char *end)
{
    const char *first = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p > first ? p : NULL;
}

static const char *number(const char *p, const char *end)
{
    if (p < end && *p == '-')
        p++;
    p = p < end && *p == '0' ? p + 1 : digits(p, end);
    if (p && p < end && *p == '.')
        p = digits(p + 1, end);
    if (p && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        p = digits(p, end);
    }
    return p;
}

static const char *escape(const char *p, const char *end)
{
    if (p == end || !memchr("\"\\/bfnrtu", *p, 9))
        return NULL;
    if (*p != 'u')
        return p + 1;
    for (int i = 0; i < 4; i++)
        if (++p == end || !memchr("0123456789abcdefABCDEF", *p, 22))
            return NULL;
    return p + 1;
}

static const char *string(const char *p, const char *end)
{
    uint32_t cp;
    if (p == end || *p++ != '"')
        return NULL;
    while (p && p < end) {
        const size_t n = utf8_decode(p, (size_t)(end - p), &cp);
        if (n == 0 || cp < 0x20)
            return NULL;
        p += n;
        if (cp == '"')
            return p;
        if (cp == '\\')
            p = escape(p, end);
    }
    return NULL;
}

// A key with its colon and the white space around it. *after: behind the key.
static const char *key(const char *p, const char *end, const char **after)
{
    p = string(p, end);
    *after = p;
    p = p ? white(p, end) : NULL;
    return p && p < end && *p == ':' ? white(p + 1, end) : NULL;
}

static const char *value(const char *p, const char *end, unsigned depth);

static const char *container(const char *p, const char *end, unsigned depth)
{
    const char *after, close = *p == '{' ? '}' : ']';
    p = white(p + 1, end);
    if (p < end && *p == close)
        return p + 1;
    for (;;) {
        p = close == '}' ? key(p, end, &after) : p;
        p = p ? value(p, end, depth + 1) : NULL;
        p = p ? white(p, end) : NULL;
        if (!p || p == end || (*p != ',' && *p != close))
            return NULL;
        if (*p++ == close)
            return p;
        p = white(p, end);
    }
}

static const char *value(const char *p, const char *end, unsigned depth)
{
    if (p == end || depth == DEEPEST)
        return NULL;
    switch (*p) {
    case '{':
    case '[':
        return container(p, end, depth);
    case '"':
        return string(p, end);
    case 't':
        return word(p, end, "true");
    case 'f':
        return word(p, end, "false");
    case 'n':
        return word(p, end, "null");
    default:
        return number(p, end);
    }
}

bool json_scan_value(struct json_span *rest, struct json_span *found)
{
    const char *end = rest->s + rest->n, *p = white(rest->s, end), *after = value(p, end, 0);
    if (!after)
        return false;
    *found = (struct json_span){p, (size_t)(after - p)};
    after = white(after, end);
    *rest = (struct json_span){after, (size_t)(end - after)};
    return true;
}

bool json_scan_members(struct json_span object, json_member_fn *fn, void *user)
{
    const char *end = object.s + object.n, *p = object.s, *after_key, *after;
    if (p == end || *p != '{')
        return false;
    p = white(p + 1, end);
    if (p < end && *p == '}')
        return true;
    for (;;) {
        const char *at = key(p, end, &after_key);
        after = at ? value(at, end, 1) : NULL;
        if (!after || !fn(user, (struct json_span){p, (size_t)(after_key - p)},
                          (struct json_span){at, (size_t)(after - at)}))
            return false;
        p = white(after, end);
        if (p == end || *p != ',')
            return p < end && *p == '}';
        p = white(p + 1, end);
    }
}
