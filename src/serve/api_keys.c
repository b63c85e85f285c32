#include "serve/api_keys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/place.h"
#include "base/utf8.h"

enum { MAX_FILE_BYTES = 64 << 10, MIN_KEY_BYTES = 16 };

static void digest(const char *text, size_t n, unsigned char out[SHA256_BYTES])
{
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, text, n);
    sha256_final(&h, out);
}

static bool add_lines(struct api_keys *k, const char *path, char *text, struct error *err)
{
    size_t number = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        size_t n = strcspn(line, "\r");
        number++;
        if (n == 0 || line[0] == '#')
            continue;
        if (n < MIN_KEY_BYTES || strcspn(line, " \t") < n)
            return error_set(err, ERR_USAGE,
                             "%s: the key of line %zu has %zu bytes%s: expected %d or more without "
                             "blanks; `openssl rand -hex 32` makes one",
                             path, number, n, n < MIN_KEY_BYTES ? "" : ", and blanks",
                             MIN_KEY_BYTES);
        void *more = realloc(k->digests, (k->n + 1) * sizeof *k->digests);
        if (!more)
            return error_oom(err, "the keys", (k->n + 1) * sizeof *k->digests);
        k->digests = more;
        digest(line, n, k->digests[k->n++]);
    }
    return k->n > 0 ||
           error_set(err, ERR_USAGE,
                     "%s: found no key, expected one on a line that does not begin with #", path);
}

bool api_keys_read(struct api_keys *k, const char *path, struct error *err)
{
    struct buf text = {0};
    struct stat st = {0};
    *k = (struct api_keys){0};
    const int fd = place_open(path, O_RDONLY, err);
    bool ok = fd >= 0;
    if (ok && (fstat(fd, &st) != 0 || (st.st_mode & 077) != 0))
        ok = error_set(err, ERR_USAGE,
                       "%s can be read by others (mode %04o): expected 0600; chmod 600 %s", path,
                       (unsigned)st.st_mode & 07777, path);
    ok = ok && fd_read_all(fd, path, MAX_FILE_BYTES, NULL, &text, err);
    utf8_drop_mark(&text);
    if (ok && memchr(buf_str(&text), '\0', text.len))
        ok = error_set(err, ERR_USAGE, "%s: found a NUL byte, expected a key on a line", path);
    ok = ok && (text.data || buf_puts(&text, "")) && add_lines(k, path, text.data, err);
    if (!ok && err)
        err->code = ERR_USAGE;
    if (fd >= 0)
        close(fd);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_release(&text);
    if (!ok)
        api_keys_release(k);
    return ok || error_prefix(err, "--api-key-file");
}

void api_keys_release(struct api_keys *k)
{
    free(k->digests);
    *k = (struct api_keys){0};
}

bool api_keys_accept(const struct api_keys *k, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    unsigned char given[SHA256_BYTES];
    unsigned found = 0;
    if (!authorization || strncasecmp(authorization, scheme, strlen(scheme)) != 0)
        return false;
    digest(authorization + strlen(scheme), strlen(authorization + strlen(scheme)), given);
    for (size_t i = 0; i < k->n; i++) {
        unsigned differs = 0;
        for (size_t b = 0; b < SHA256_BYTES; b++)
            differs |= k->digests[i][b] ^ given[b];
        found |= differs == 0;
    }
    return found;
}
