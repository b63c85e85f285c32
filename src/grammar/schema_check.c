// Whether a JSON value obeys a schema: for the values of enum and const, which are written out.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

bool schema_decimal(struct schema *s, const json_t *v)
{
    return schema_work(s, json_is_real(v) ? 1024 : 16);
}

// A name that is looked for.
static bool name_work(struct schema *s, const char *name)
{
    return schema_work(s, 1 + strlen(name) / 64);
}

// As numbers are written: only an integer and a real have to be for that.
static int compare_numbers(struct schema *s, const json_t *a, const json_t *b)
{
    struct decimal x, y;
    if (json_is_integer(a) && json_is_integer(b)) {
        const json_int_t m = json_integer_value(a), n = json_integer_value(b);
        return (m > n) - (m < n);
    }
    if (json_is_real(a) && json_is_real(b)) {
        const double m = json_real_value(a), n = json_real_value(b);
        return (m > n) - (m < n);
    }
    if (!schema_decimal(s, a) || !schema_decimal(s, b))
        return 0;
    decimal_from_json(&x, a);
    decimal_from_json(&y, b);
    return decimal_compare(&x, &y);
}

// 1 and 1.0 are. What is in both is paid for, as far as it is looked at.
static bool json_same(struct schema *s, const json_t *a, const json_t *b)
{
    if (!schema_work(s, 4 + json_string_length(a) / 64))
        return false;
    if (json_is_number(a) && json_is_number(b))
        return compare_numbers(s, a, b) == 0 && !s->failed;
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; same && i < json_array_size(a); i++)
            same = json_same(s, json_array_get(a, i), json_array_get(b, i));
        return same;
    }
    if (json_is_object(a)) {
        bool same = json_object_size(a) == json_object_size(b);
        const char *key;
        json_t *v;
        json_object_foreach((json_t *)(uintptr_t)a, key, v)
        {
            const json_t *w = same && name_work(s, key) ? json_object_get(b, key) : NULL;
            same = w && json_same(s, v, w);
        }
        return same;
    }
    return json_equal(a, b);
}

// What are the same have the same one. Paid for as json_same is.
static uint64_t hash_of(struct schema *s, const json_t *v)
{
    const char *key;
    json_t *x;
    struct decimal d;
    double real;
    uint64_t h = json_is_number(v) ? JSON_REAL : json_typeof(v), bits;
    if (!schema_work(s, 1 + json_string_length(v) / 16))
        return 0;
    switch (json_typeof(v)) {
    case JSON_STRING:
        for (size_t i = 0; i < json_string_length(v); i++)
            h = (h ^ (unsigned char)json_string_value(v)[i]) * 0x100000001B3u;
        break;
    case JSON_INTEGER:
    case JSON_REAL: // 1.0 is 1
        if (schema_type_of(v) == TYPE_FRACTION) {
            real = json_real_value(v);
            memcpy(&bits, &real, sizeof bits);
            h = (h ^ bits) * 0x9E3779B97F4A7C15u;
            break;
        }
        if (!schema_decimal(s, v))
            return 0;
        decimal_from_json(&d, v);
        h += d.n_whole + 1000 * d.negative;
        for (unsigned i = 0; i < d.n; i++)
            h = (h ^ (unsigned)d.digit[i]) * 0x100000001B3u;
        break;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_array_size(v); i++)
            h = (h ^ hash_of(s, json_array_get(v, i))) * 0x100000001B3u;
        break;
    case JSON_OBJECT: // in any order
        json_object_foreach((json_t *)(uintptr_t)v, key, x)
        {
            uint64_t h_key = 0;
            if (!schema_work(s, strlen(key) / 16))
                return 0;
            for (const char *c = key; *c; c++)
                h_key = (h_key ^ (unsigned char)*c) * 0x100000001B3u;
            h += hash_of(s, x) ^ (h_key ^ h_key >> 29) * 0x9E3779B97F4A7C15u;
        }
        break;
    default:
        break;
    }
    return (h ^ h >> 29) * 0x9E3779B97F4A7C15u;
}

// The slot of a value of an enum (NULL: of the enum's own entry), or the free one where it belongs.
static size_t enum_slot(struct schema *s, const json_t *of, const json_t *value)
{
    const uint64_t h = (value ? hash_of(s, value) : 0) + (uintptr_t)of * 0x9E3779B97F4A7C15u;
    size_t k = (h ^ h >> 32) & (s->cap_enums - 1);
    for (; s->enums[k].of && schema_work(s, 1); k = (k + 1) & (s->cap_enums - 1)) {
        const struct enum_value *e = &s->enums[k];
        if (e->of == of &&
            (value ? e->at != SIZE_MAX && json_same(s, json_array_get(of, e->at), value)
                   : e->at == SIZE_MAX))
            break;
    }
    return k;
}

static void enum_put(struct schema *s, const json_t *of, size_t at)
{
    const size_t k = enum_slot(s, of, at == SIZE_MAX ? NULL : json_array_get(of, at));
    if (s->failed || s->enums[k].of)
        return;
    s->enums[k] = (struct enum_value){of, at};
    s->n_enums++;
}

static bool enum_room(struct schema *s, size_t n)
{
    struct enum_value *old = s->enums;
    size_t n_old = s->cap_enums, cap = n_old ? n_old : 256;
    while (cap < 2 * (s->n_enums + n))
        cap *= 2;
    if (cap == n_old)
        return true;
    if (!(s->enums = calloc(cap, sizeof *s->enums))) {
        s->enums = old;
        return schema_oom(s);
    }
    s->cap_enums = cap;
    s->n_enums = 0;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].of)
            enum_put(s, old[i].of, old[i].at);
    free(old);
    return !s->failed;
}

size_t schema_enum_find(struct schema *s, const json_t *of, const json_t *value)
{
    const size_t n = json_array_size(of);
    if (!enum_room(s, 1))
        return SIZE_MAX;
    if (!s->enums[enum_slot(s, of, NULL)].of) {
        if (!enum_room(s, n + 1))
            return SIZE_MAX;
        enum_put(s, of, SIZE_MAX);
        for (size_t i = 0; i < n && !s->failed; i++)
            enum_put(s, of, i);
    }
    const size_t k = enum_slot(s, of, value);
    return s->failed || !s->enums[k].of ? SIZE_MAX : s->enums[k].at;
}

unsigned schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == trunc(json_real_value(v)) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    default:
        return TYPE_OBJECT;
    }
}

static size_t characters(const json_t *v)
{
    const char *p = json_string_value(v);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += ((unsigned char)p[i] & 0xC0) != 0x80;
    return n;
}

static bool matches(struct schema *s, const json_t *schema, const json_t *pattern, const json_t *v)
{
    struct nfa nfa = {0};
    struct dfa dfa = {0};
    struct error why = {0};
    bool ok =
        nfa_add(&nfa, json_string_value(pattern), json_string_length(pattern), &s->b->work, &why) &&
        dfa_init(&dfa, &nfa, 0, UINT32_MAX, &s->b->work, &why);
    bool yes = ok && dfa_matches(&dfa, json_string_value(v), json_string_length(v), &s->b->work);
    if (schema_work(s, 0) && !ok)
        schema_fail(s, schema, "pattern", "%s", why.text);
    nfa_release(&nfa);
    dfa_release(&dfa);
    return yes;
}

static bool number_obeys(struct schema *s, const json_t *schema, const json_t *v)
{
    static const struct {
        const char *key;
        int sign;
        bool open;
    } bounds[] = {{"minimum", 1, false},
                  {"exclusiveMinimum", 1, true},
                  {"maximum", -1, false},
                  {"exclusiveMaximum", -1, true}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const json_t *bound = json_object_get(schema, bounds[i].key);
        if (!bound)
            continue;
        int order = bounds[i].sign * compare_numbers(s, v, bound);
        if (order < 0 || (order == 0 && bounds[i].open))
            return false;
    }
    const json_t *m = json_object_get(schema, "multipleOf");
    if (m) {
        const double of = json_number_value(m); // (exact up to 2^53, as all of a file's are)
        if (json_is_integer(v) && of == floor(of))
            return json_integer_value(v) % (json_int_t)of == 0;
        return schema_type_of(v) == TYPE_INTEGER && fmod(json_number_value(v), of) == 0;
    }
    return true;
}

static bool array_obeys(struct schema *s, const json_t *schema, const json_t *v, unsigned depth)
{
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items"), *n;
    size_t size = json_array_size(v);
    if (!schema_work(s, size))
        return false;
    if (((n = json_object_get(schema, "minItems")) && (double)size < json_number_value(n)) ||
        ((n = json_object_get(schema, "maxItems")) && (double)size > json_number_value(n)))
        return false;
    for (size_t i = 0; i < size; i++) {
        const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (of && !schema_obeys(s, of, json_array_get(v, i), depth))
            return false;
        for (size_t k = 0; json_is_true(json_object_get(schema, "uniqueItems")) && k < i; k++)
            if (json_same(s, json_array_get(v, i), json_array_get(v, k)) || s->failed)
                return false;
    }
    return true;
}

static bool object_obeys(struct schema *s, const json_t *schema, const json_t *v, unsigned depth)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *required = json_object_get(schema, "required");
    const char *key;
    json_t *x;
    for (size_t i = 0; i < json_array_size(required); i++) {
        key = json_string_value(json_array_get(required, i));
        if (!name_work(s, key) || !json_object_get(v, key))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        if (!name_work(s, key))
            return false;
        const json_t *of = json_object_get(properties, key);
        of = of ? of : others;
        if (of && !schema_obeys(s, of, x, depth))
            return false;
    }
    return true;
}

bool schema_obeys(struct schema *s, const json_t *schema, const json_t *v, unsigned depth)
{
    if (!schema_work(s, 64))
        return false;
    if (depth > SCHEMA_MAX_DEPTH)
        return schema_fail(s, schema, NULL, "schemas lie more than %d deep inside each other",
                           SCHEMA_MAX_DEPTH);
    if (json_is_boolean(schema))
        return json_is_true(schema);
    depth++;
    unsigned type = schema_type_of(v);
    if (!schema_no_circle(s, schema) || !schema_keywords(s, schema) ||
        !(schema_types(s, schema) & type))
        return false;
    const json_t *x;
    if ((x = json_object_get(schema, "const")) && !json_same(s, x, v))
        return false;
    if ((x = json_object_get(schema, "enum")) && schema_enum_find(s, x, v) == SIZE_MAX)
        return false;
    if (json_object_get(schema, "$ref")) {
        const json_t *target = schema_ref(s, schema);
        if (!target || !schema_obeys(s, target, v, depth))
            return false;
    }
    x = json_object_get(schema, "allOf");
    for (size_t i = 0; i < json_array_size(x); i++)
        if (!schema_obeys(s, json_array_get(x, i), v, depth))
            return false;
    size_t any = 0, one = 0;
    const json_t *any_of = json_object_get(schema, "anyOf"),
                 *one_of = json_object_get(schema, "oneOf");
    for (size_t i = 0; i < json_array_size(any_of); i++)
        any += schema_obeys(s, json_array_get(any_of, i), v, depth);
    for (size_t i = 0; i < json_array_size(one_of); i++)
        one += schema_obeys(s, json_array_get(one_of, i), v, depth);
    if ((any_of && !any) || (one_of && (s->one_is_any ? !one : one != 1)))
        return false;
    if (type & (TYPE_INTEGER | TYPE_FRACTION))
        return number_obeys(s, schema, v);
    if (type == TYPE_STRING) {
        if (!schema_work(s, json_string_length(v) / 8))
            return false;
        if (((x = json_object_get(schema, "minLength")) &&
             (double)characters(v) < json_number_value(x)) ||
            ((x = json_object_get(schema, "maxLength")) &&
             (double)characters(v) > json_number_value(x)))
            return false;
        if ((x = json_object_get(schema, "pattern")) && !matches(s, schema, x, v))
            return false;
        if (json_object_get(schema, "format"))
            return (x = schema_format(s, schema)) && matches(s, schema, x, v);
    }
    if (type == TYPE_ARRAY)
        return array_obeys(s, schema, v, depth);
    if (type == TYPE_OBJECT)
        return object_obeys(s, schema, v, depth);
    return true;
}
