#include "base/error.h"

#include <stdio.h>
#include <string.h>

bool error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    if (!err)
        return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    err->code = code;
    return false;
}

bool error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return false;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
    return false;
}

void error_drop_prefix(struct error *err, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(err->text, prefix, n) == 0 && strncmp(err->text + n, ": ", 2) == 0) {
        const char *const behind = err->text + n + 2;
        memmove(err->text, behind, strlen(behind) + 1);
    }
}

bool error_oom(struct error *err, const char *what, unsigned long long n_bytes)
{
    return error_set(err, ERR_MEMORY, "out of memory: %s needs %llu bytes", what, n_bytes);
}
