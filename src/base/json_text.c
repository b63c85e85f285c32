#include "base/json_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"

json_t *json_text(const char *s, size_t n)
{
    struct buf b = {0};
    buf_append_utf8(&b, s, n);
    json_t *j = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_release(&b);
    return j;
}

bool json_text_is(const json_t *v, const char *text)
{
    const size_t n = strlen(text);
    return json_is_string(v) && json_string_length(v) == n &&
           memcmp(json_string_value(v), text, n) == 0;
}

void json_drop_nulls(json_t *v)
{
    const char *key;
    json_t *field;
    void *next;
    json_object_foreach_safe(v, next, key, field)
    {
        if (json_is_null(field))
            json_object_del(v, key);
        else if (strcmp(key, "schema") != 0 && strcmp(key, "parameters") != 0)
            json_drop_nulls(field);
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        json_drop_nulls(json_array_get(v, i));
}

static bool put_leaf(struct buf *out, const json_t *v, size_t flags)
{
    char *text = json_dumps(v, flags | JSON_COMPACT | JSON_ENCODE_ANY);
    const bool ok = text && buf_puts(out, text);
    free(text);
    return ok;
}

// (jansson has all numbers written with as many digits.)
static bool put_line(struct buf *out, const json_t *v, size_t flags)
{
    char number[FORMAT_NUMBER];
    bool ok = true;
    if (json_is_array(v)) {
        for (size_t i = 0; ok && i < json_array_size(v); i++)
            ok = buf_putc(out, i ? ',' : '[') && put_line(out, json_array_get(v, i), flags);
        return ok && buf_puts(out, json_array_size(v) ? "]" : "[]");
    }
    if (json_is_object(v)) {
        // jansson's iterators do not change the object; its interface lacks the const.
        json_t *o = (json_t *)(uintptr_t)v;
        char before = '{';
        for (void *it = json_object_iter(o); ok && it; it = json_object_iter_next(o, it)) {
            json_t *key = json_string(json_object_iter_key(it));
            ok = key && buf_putc(out, before) && put_leaf(out, key, flags) && buf_putc(out, ':') &&
                 put_line(out, json_object_iter_value(it), flags);
            json_decref(key);
            before = ',';
        }
        return ok && buf_puts(out, before == ',' ? "}" : "{}");
    }
    return json_is_real(v) ? buf_puts(out, format_real(number, json_real_value(v)))
                           : put_leaf(out, v, flags);
}

char *json_line(const json_t *v, size_t flags)
{
    struct buf out = {0};
    if (v && put_line(&out, v, flags))
        return out.data;
    buf_release(&out);
    return NULL;
}

bool json_put(json_t *j, size_t flags, struct buf *out)
{
    char *text = j ? json_dumps(j, flags) : NULL;
    if (text)
        buf_printf(out, "%s\n", text);
    else
        out->failed = true;
    free(text);
    json_decref(j);
    return !out->failed;
}

const char *json_expected(const json_error_t *why)
{
    return json_error_code(why) == json_error_numeric_overflow
               ? ", expected whole numbers from -2^63 to 2^63 - 1, others up to 1.8e308"
               : "";
}

json_t *json_u64(uint64_t v)
{
    char digits[24];
    if (v <= INT64_MAX)
        return json_integer((json_int_t)v);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    return json_string(digits);
}

bool json_read_u64(const json_t *v, uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    const char *s = json_string_value(v);
    const size_t n = s ? json_string_length(v) : 0;
    if (n == 0 || strspn(s, "0123456789") != n)
        return false;
    errno = 0;
    const unsigned long long u = strtoull(s, NULL, 10);
    if (errno)
        return false;
    *out = u;
    return true;
}
