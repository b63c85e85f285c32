#include "base/json_text.h"

#include "base/buf.h"

json_t *json_text(const char *s, size_t n)
{
    struct buf b = {0};
    buf_append_utf8(&b, s, n);
    json_t *j = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_release(&b);
    return j;
}
