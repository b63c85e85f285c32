#include "base/json_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

json_t *json_text(const char *s, size_t n)
{
    struct buf b = {0};
    buf_append_utf8(&b, s, n);
    json_t *j = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_release(&b);
    return j;
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
