#include "hub/verified.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/place.h"
#include "hub/cache.h"
#include "hub/listing.h"

enum { MAX_RECORD = 4 << 20 };

// What tells this content of the file from another.
static bool identity(const char *path, struct buf *out, struct error *err)
{
    struct stat st;
    buf_clear(out);
    if (stat(path, &st) != 0)
        return error_set(err, ERR_FAIL, "%s: cannot be looked at: %m", path);
    return buf_printf(out, "%llu:%llu:%lld:%lld.%09ld:%lld.%09ld", (unsigned long long)st.st_dev,
                      (unsigned long long)st.st_ino, (long long)st.st_size,
                      (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                      (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec) ||
           error_oom(err, "a file's identity", 200);
}

static json_t *read_known(const char *record, struct error *err)
{
    struct buf text = {0};
    json_t *known = NULL;
    bool found;
    if (place_read(record, MAX_RECORD, &text, &found, err)) {
        known = json_loadb(buf_str(&text), text.len, 0, NULL);
        if (!json_is_object(known)) { // missing or damaged: everything is hashed again
            json_decref(known);
            known = json_object();
        }
        if (!known)
            error_oom(err, "the record of verified files", 4096);
    }
    buf_release(&text);
    return known;
}

// Files that are gone are forgotten. What cannot be written is hashed again the next time, that is
// all.
static void remember(const char *record, json_t *known)
{
    struct buf temp = {0};
    const char *path;
    json_t *value;
    void *next;
    json_object_foreach_safe(known, next, path, value) if (access(path, F_OK) != 0)
        json_object_del(known, path);
    char *text = json_dumps(known, JSON_INDENT(1) | JSON_SORT_KEYS);
    int fd = text && place_make_parents(record, NULL) ? place_create_temp(record, &temp, NULL) : -1;
    if (fd >= 0 && fd_write_all(fd, record, text, strlen(text), NULL)) {
        place_commit(fd, temp.data, record, NULL);
    } else if (fd >= 0) {
        close(fd);
        unlink(temp.data);
    }
    free(text);
    buf_release(&temp);
}

bool verified_sha256(const struct hub_options *o, const char *path, char out[SHA256_HEX],
                     struct error *err)
{
    struct buf record = {0}, before = {0}, after = {0};
    json_t *known = NULL;
    bool ok = !o->state_dir || buf_printf(&record, "%s/verified.json", o->state_dir) ||
              error_oom(err, "a path", 4096);
    if (ok && record.data)
        ok = (known = read_known(record.data, err)) != NULL;
    ok = ok && identity(path, &before, err);
    const json_t *entry = ok ? json_object_get(known, path) : NULL;
    const char *id = json_string_value(json_object_get(entry, "file"));
    const char *sha = json_string_value(json_object_get(entry, "sha256"));
    bool same = id && sha && strcmp(id, before.data) == 0 && hub_sha256_text(sha, out);
    if (ok && !same) {
        ok = cache_hash(o, path, out, err) && identity(path, &after, err);
        if (ok && strcmp(before.data, after.data) != 0)
            ok = error_set(err, ERR_FAIL, "%s: changes while it is read", path);
        json_t *add =
            ok && known ? json_pack("{s:s, s:s}", "file", before.data, "sha256", out) : NULL;
        if (add && json_object_set_new(known, path, add) == 0)
            remember(record.data, known);
    }
    json_decref(known);
    buf_release(&record);
    buf_release(&before);
    buf_release(&after);
    return ok;
}
