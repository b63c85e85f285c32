#include "hub/verified.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/place.h"
#include "hub/cache.h"
#include "hub/listing.h"

// What tells this content of the file from another.
static bool identity(const char *path, struct buf *out, struct error *err)
{
    buf_clear(out);
    return file_identity(path, out) ||
           (out->failed ? error_oom(err, "a file's identity", 200)
                        : error_set(err, ERR_FAIL, "%s: cannot be looked at: %m", path));
}

// Files that are gone are forgotten. What cannot be written is hashed again the next time, that is
// all.
static void remember(const char *record, json_t *known)
{
    const char *path;
    json_t *value;
    void *next;
    json_object_foreach_safe(known, next, path, value) if (access(path, F_OK) != 0)
        json_object_del(known, path);
    if (place_make_parents(record, NULL))
        record_write(record, known, NULL);
}

bool verified_sha256(const struct hub_options *o, const char *path, char out[SHA256_HEX],
                     struct error *err)
{
    struct buf record = {0}, before = {0}, after = {0};
    json_t *known = NULL;
    bool ok = !o->state_dir || buf_printf(&record, "%s/verified.json", o->state_dir) ||
              error_oom(err, "a path", 4096);
    if (ok && record.data)
        ok = (known = record_read(record.data, err)) != NULL;
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
