// One schema by itself: the names and kinds of its keywords, $ref, type, format, and where in the
// text something is wrong.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/json_text.h"
#include "grammar/schema_impl.h"

// ---- failures ----

enum { MAX_PATH = 300 };

// Appends the way from `from` to a schema that is part of it.
static bool find_path(const json_t *from, const json_t *to, const char **path, size_t *n)
{
    static const char *const numbers = "0\0001\0002\0003\0004\0005\0006\0007\0008\0009"; // texts
    if (from == to)
        return true;
    if (*n == MAX_PATH)
        return false;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v)
    {
        path[(*n)++] = key;
        if (find_path(v, to, path, n))
            return true;
        --*n;
    }
    for (size_t i = 0; i < json_array_size(from) && i < 10; i++) {
        path[(*n)++] = numbers + 2 * i;
        if (find_path(json_array_get(from, i), to, path, n))
            return true;
        --*n;
    }
    return false;
}

static const char *blanks(const char *p, const char *end)
{
    while (p < end && strchr(" \t\r\n", *p))
        p++;
    return p;
}

static const char *behind_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\';
    return p < end ? p + 1 : end;
}

static const char *behind_value(const char *p, const char *end)
{
    int depth = 0;
    do {
        p = blanks(p, end);
        if (p < end && *p == '"') {
            p = behind_string(p, end);
        } else if (p < end && strchr("[{", *p)) {
            depth++;
            p++;
        } else if (p < end && strchr("]}", *p)) {
            depth--;
            p++;
        } else if (p < end) {
            p++;
            while (p < end && !strchr(",:]}[{\" \t\r\n", *p))
                p++;
        }
    } while (p < end && depth > 0);
    return p;
}

// Where the value of a key (an index) begins in the text of an object (array), and the key itself;
// NULL: not found, as for a key with escapes.
static const char *member(const char *p, const char *end, const char *key, const char **at_key)
{
    p = blanks(p, end);
    if (p >= end || !strchr("[{", *p))
        return NULL;
    bool object = *p == '{';
    long index = atol(key);
    for (p = blanks(p + 1, end); p < end && !strchr("]}", *p);) {
        const char *begin = p;
        bool found = !object && index-- == 0;
        if (object) {
            p = behind_string(p, end);
            found = (size_t)(p - begin) == strlen(key) + 2 && !memcmp(begin + 1, key, strlen(key));
            p = blanks(p, end);
            p = blanks(p < end ? p + 1 : end, end); // the colon
        }
        *at_key = begin;
        if (found)
            return p;
        p = blanks(behind_value(p, end), end);
        if (p < end && *p == ',')
            p = blanks(p + 1, end);
    }
    return NULL;
}

bool schema_fail(struct schema *s, const json_t *schema, const char *key, const char *fmt, ...)
{
    if (s->failed)
        return false;
    s->failed = true;
    const char *path[MAX_PATH + 1], *end = s->text + s->n_text, *at = s->text, *at_key = s->text;
    size_t n = 0;
    struct buf pointer = {0};
    buf_putc(&pointer, '#');
    if (find_path(s->root, schema, path, &n) && key)
        path[n++] = key;
    for (size_t i = 0; i < n; i++)
        buf_printf(&pointer, "/%s", path[i]);
    for (size_t i = 0; i < n && at; i++)
        at = member(at, end, path[i], &at_key);
    unsigned line = 1, column = 1;
    for (const char *p = s->text; p < at_key; p++) {
        column = *p == '\n' ? 1 : column + (((unsigned char)*p & 0xC0) != 0x80);
        line += *p == '\n';
    }
    char message[600], where[FORMAT_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    error_set(s->err, ERR_USAGE, "line %u, column %u (%s): %s", line, column,
              format_text(where, sizeof where, buf_str(&pointer), pointer.len), message);
    buf_release(&pointer);
    return false;
}

bool schema_oom(struct schema *s)
{
    if (!s->failed)
        error_oom(s->err, "a JSON Schema", s->n_text);
    s->failed = true;
    return false;
}

bool schema_work(struct schema *s, uint64_t n)
{
    if (s->failed || work_add(&s->b->work, n))
        return !s->failed;
    s->failed = true;
    return work_ok(&s->b->work, s->err);
}

bool schema_grow(struct schema *s, void *array, size_t n, size_t *cap, size_t size)
{
    return array_grow(NULL, array, n, cap, size) || schema_oom(s);
}

// ---- keywords ----

enum kind {
    ANY,
    SCHEMA,
    ITEMS,
    SCHEMAS,
    MAP,
    COUNT,
    NUMBER,
    MULTIPLE,
    NAMES,
    STRING,
    STRINGS,
    LIST,
    BOOLEAN,
    TYPES,
    AT_LEAST,
    AT_MOST,
    NOT
};

static const struct {
    const char *name;
    enum kind kind;
} keywords[] = {
    {"$ref", STRING},
    {"additionalProperties", SCHEMA},
    {"allOf", SCHEMAS},
    {"anyOf", SCHEMAS},
    {"const", ANY},
    {"enum", LIST},
    {"exclusiveMaximum", NUMBER},
    {"exclusiveMinimum", NUMBER},
    {"format", STRING},
    {"items", ITEMS},
    {"maxItems", COUNT},
    {"maxLength", COUNT},
    {"maxProperties", AT_MOST},
    {"maximum", NUMBER},
    {"minItems", COUNT},
    {"minLength", COUNT},
    {"minProperties", AT_LEAST},
    {"minimum", NUMBER},
    {"multipleOf", MULTIPLE},
    {"not", NOT},
    {"oneOf", SCHEMAS},
    {"pattern", STRING},
    {"prefixItems", SCHEMAS},
    {"properties", MAP},
    {"propertyNames", NAMES},
    {"required", STRINGS},
    {"type", TYPES},
    {"uniqueItems", BOOLEAN},
    // These describe, and demand nothing.
    {"$anchor", ANY},
    {"$comment", ANY},
    {"$defs", ANY},
    {"$schema", ANY},
    {"contentEncoding", ANY},
    {"contentMediaType", ANY},
    {"contentSchema", ANY},
    {"default", ANY},
    {"definitions", ANY},
    {"deprecated", ANY},
    {"description", ANY},
    {"discriminator", ANY}, // OpenAPI 3.1: it must not change what is valid
    {"examples", ANY},
    {"readOnly", ANY},
    {"title", ANY},
    {"writeOnly", ANY},
};

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool is_whole(const json_t *v) // 2.0 is one, too
{
    return json_is_number(v) && schema_type_of(v) == TYPE_INTEGER;
}

static bool is_all(const json_t *v) // zod writes {"not": {}} where nothing may be
{
    return json_is_true(v) || (json_is_object(v) && json_object_size(v) == 0);
}

// Every name is a string, so this demands nothing; zod writes it for each record.
static bool is_any_name(const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    return is_all(v) || (type && strcmp(type, "string") == 0 && json_object_size(v) == 1);
}

// How many properties every object that obeys the schema has.
static size_t n_required(const json_t *schema)
{
    json_t *names = json_object(), *x;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, x)
        json_object_set(names, json_string_value(x), x);
    const size_t n = json_object_size(names);
    json_decref(names);
    return n;
}

// v: of the keyword, one of the schema's.
static const char *wrong(enum kind kind, const json_t *schema, const json_t *v)
{
    size_t n = 0, i;
    const char *key;
    json_t *x;
    switch (kind) {
    case ITEMS:
        if (json_is_array(v))
            return "one schema for all items: what has one for each is prefixItems, since 2020";
        return wrong(SCHEMA, schema, v);
    case SCHEMA:
        return is_schema(v) ? NULL : "a schema: an object, true or false";
    case SCHEMAS:
        json_array_foreach((json_t *)(uintptr_t)v, i, x) n += is_schema(x);
        return n > 0 && n == json_array_size(v) ? NULL : "an array of one schema at least";
    case MAP:
        json_object_foreach((json_t *)(uintptr_t)v, key, x) n += is_schema(x);
        return json_is_object(v) && n == json_object_size(v) ? NULL : "an object of schemas";
    case COUNT:
        return is_whole(v) && json_number_value(v) >= 0 ? NULL : "a number of things: 0, 1, 2 ...";
    case NUMBER:
        return json_is_number(v) ? NULL : "a number";
    case MULTIPLE:
        return is_whole(v) && json_number_value(v) > 0 && json_number_value(v) < 1e15
                   ? NULL
                   : "an integer above 0: of other numbers multiples are not enforced";
    case NAMES:
        return is_any_name(v)
                   ? NULL
                   : "{\"type\": \"string\"}, which all names obey: others are not enforced";
    case STRING:
        return json_is_string(v) ? NULL : "a string";
    case STRINGS:
        json_array_foreach((json_t *)(uintptr_t)v, i, x) n +=
            json_is_string(x) && !memchr(json_string_value(x), 0, json_string_length(x));
        return json_is_array(v) && n == json_array_size(v) ? NULL : "an array of strings";
    case LIST:
        return json_is_array(v) && json_array_size(v) ? NULL : "an array of one value at least";
    case BOOLEAN:
        return json_is_boolean(v) ? NULL : "true or false";
    case TYPES:
        return json_is_array(v) && json_array_size(v) == 0
                   ? "the name of a type, or a list of one at least"
                   : NULL;
    case AT_LEAST:
        return is_whole(v) && json_number_value(v) >= 0 &&
                       json_number_value(v) <= (double)n_required(schema)
                   ? NULL
                   : "at most the number of those in required: others are not enforced";
    case AT_MOST:
        return is_whole(v) && json_is_false(json_object_get(schema, "additionalProperties")) &&
                       json_number_value(v) >=
                           (double)json_object_size(json_object_get(schema, "properties"))
                   ? NULL
                   : "at least the number of those in properties, beside additionalProperties "
                     "false: others are not enforced";
    case NOT:
        return json_is_false(v) || is_all(v) ? NULL : "{}, true or false: others are not enforced";
    default:
        return NULL;
    }
}

bool schema_keywords(struct schema *s, const json_t *schema)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)schema, key, v)
    {
        size_t i = 0, n = sizeof keywords / sizeof *keywords;
        while (i < n && strcmp(keywords[i].name, key) != 0)
            i++;
        char name[FORMAT_TEXT];
        if (i == n && !(schema == s->root && strcmp(key, "$id") == 0))
            return schema_fail(
                s, schema, key,
                "found the keyword \"%s\", which hokku does not enforce, expected one "
                "that it does (docs/grammar.md): leave it out, or say it otherwise",
                format_text(name, sizeof name, key, strlen(key)));
        if (i < n && keywords[i].kind != LIST && // of which only the size is looked at
            !schema_work(s, json_array_size(v) + json_object_size(v)))
            return false;
        const char *expected = i < n ? wrong(keywords[i].kind, schema, v) : NULL;
        if (expected) {
            char *found = json_line(v, 0);
            char text[FORMAT_TEXT];
            schema_fail(s, schema, key, "%s is %s, expected %s", key,
                        found ? format_text(text, sizeof text, found, strlen(found)) : "?",
                        expected);
            free(found);
            return false;
        }
    }
    return true;
}

static unsigned type_named(struct schema *s, const json_t *schema, const json_t *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {
        {"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
        {"integer", TYPE_INTEGER}, {"string", TYPE_STRING},
        {"array", TYPE_ARRAY},     {"number", TYPE_INTEGER | TYPE_FRACTION},
        {"object", TYPE_OBJECT},
    };
    for (size_t i = 0; json_is_string(name) && i < sizeof types / sizeof *types; i++)
        if (strcmp(json_string_value(name), types[i].name) == 0)
            return types[i].types;
    char text[FORMAT_TEXT] = "no string";
    if (json_is_string(name))
        format_text(text, sizeof text, json_string_value(name), json_string_length(name));
    schema_fail(
        s, schema, "type",
        "found %s, expected null, boolean, integer, number, string, array, object, or a list "
        "of them",
        text);
    return 0;
}

unsigned schema_types(struct schema *s, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type ? 0 : TYPE_ANY;
    if (type && !json_is_array(type))
        types = type_named(s, schema, type);
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(s, schema, json_array_get(type, i));
    return is_all(json_object_get(schema, "not")) ? 0 : types;
}

// ---- $ref ----

// One name of a JSON pointer in a URI fragment (RFC 6901, section 6): %41, ~0 and ~1 resolved.
static bool pointer_name(const char **at, struct buf *out)
{
    const char *p = *at;
    for (; *p && *p != '/'; p++) {
        unsigned c = (unsigned char)*p;
        if (c == '%') {
            char hex[3] = {p[1], p[1] ? p[2] : '\0', 0}, *end;
            c = (unsigned)strtoul(hex, &end, 16);
            if (end != hex + 2 || c == 0)
                return false;
            p += 2;
        }
        if (c == '~') {
            if (p[1] != '0' && p[1] != '1')
                return false;
            c = *++p == '0' ? '~' : '/';
        }
        buf_putc(out, (char)c);
    }
    *at = p;
    return true;
}

const json_t *schema_ref(struct schema *s, const json_t *schema)
{
    const json_t *ref = json_object_get(schema, "$ref"), *v = s->root;
    const char *p = json_string_value(ref);
    char text[FORMAT_TEXT];
    if (!schema_work(s, json_string_length(ref) / 2))
        return NULL;
    format_text(text, sizeof text, p, json_string_length(ref));
    if (p[0] != '#' || (p[1] && p[1] != '/')) {
        schema_fail(s, schema, "$ref",
                    "found \"%s\", expected # or a place in this schema as #/$defs/name: no other "
                    "file is read",
                    text);
        return NULL;
    }
    for (p++; *p == '/' && v;) {
        struct buf name = {0};
        p++;
        bool ok = pointer_name(&p, &name);
        v = !ok                 ? NULL
            : json_is_object(v) ? json_object_get(v, buf_str(&name))
            : json_is_array(v) && name.len && strspn(buf_str(&name), "0123456789") == name.len
                ? json_array_get(v, strtoul(buf_str(&name), NULL, 10))
                : NULL;
        buf_release(&name);
    }
    if (!v || !is_schema(v)) {
        schema_fail(s, schema, "$ref", "found \"%s\", expected the place of a schema in this file",
                    text);
        return NULL;
    }
    return v;
}

// ---- format ----

// Years from 0001 on: programs that read dates know no other.
#define YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define MONTH                                                                                      \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"          \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
#define DATE "(?:" YEAR "-" MONTH "|" LEAP ")"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE       "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define LABEL_REST "(?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define LABEL      "[A-Za-z0-9]" LABEL_REST
#define HEX        "[0-9a-fA-F]{1,4}"
// RFC 3339, appendix A.
#define COUNT    "\\d{1,9}"
#define SECONDS  COUNT "S"
#define MINUTES  COUNT "M(?:" SECONDS ")?"
#define HOURS    COUNT "H(?:" MINUTES ")?"
#define DAYS     COUNT "D"
#define MONTHS   COUNT "M(?:" DAYS ")?"
#define YEARS    COUNT "Y(?:" MONTHS ")?"
#define OF_A_DAY "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define ATOM     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define URI_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI_MORE "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"
#define URI_HOST "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^" ATOM "(?:\\." ATOM "){0,2}@" LABEL "(?:\\." LABEL "){1,4}$"},
    {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    {"ipv6",
     "^(?:(?:" HEX ":){7}" HEX "|(?:" HEX ":){1,7}:|(?:" HEX ":){1,6}:" HEX "|(?:" HEX
     ":){1,5}(?::" HEX "){2}|(?:" HEX ":){1,4}(?::" HEX "){3}|(?:" HEX ":){1,3}(?::" HEX
     "){4}|(?:" HEX ":){1,2}(?::" HEX "){5}|" HEX ":(?::" HEX "){6}|:(?:(?::" HEX "){1,7}|:))$"},
    {"hostname", "^(?:" LABEL "\\.){0,6}[A-Za-z]" LABEL_REST "$"},
    {"duration",
     "^P(?:(?:" DAYS "|" MONTHS "|" YEARS ")(?:" OF_A_DAY ")?|" OF_A_DAY "|" COUNT "W)$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://(?:" URI_HOST "(?:" URI_HOST "|:)*@)?" URI_HOST
            "+(?::\\d{1,4})?(?:/" URI_CHAR "*)*|/(?:" URI_CHAR "+(?:/" URI_CHAR "*)*)?|" URI_CHAR
            "+(?:/" URI_CHAR "*)*)(?:\\?" URI_MORE "*)?(?:#" URI_MORE "*)?$"},
};

const json_t *schema_format(struct schema *s, const json_t *schema)
{
    const json_t *name = json_object_get(schema, "format");
    size_t n = sizeof formats / sizeof *formats;
    if (!s->formats) {
        s->formats = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(s->formats, json_string(formats[i].pattern));
    }
    for (size_t i = 0; i < n && json_array_size(s->formats) == n; i++)
        if (strcmp(formats[i].name, json_string_value(name)) == 0)
            return json_array_get(s->formats, i);
    if (json_array_size(s->formats) != n) {
        schema_oom(s);
        return NULL;
    }
    char text[FORMAT_TEXT];
    schema_fail(
        s, schema, "format",
        "found \"%s\", which hokku does not enforce, expected date, time, date-time, "
        "duration, uuid, email, hostname, ipv4, ipv6 or uri: leave it out, or use a pattern",
        format_text(text, sizeof text, json_string_value(name), json_string_length(name)));
    return NULL;
}
