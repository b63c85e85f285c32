#include "hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/place.h"
#include "hub/wait.h"

static const char record_name[] = ".hokku.json", lock_name[] = ".hokku.lock";
enum { MAX_RECORD = 16 << 20, HASH_PIECE = 1 << 18 };

json_t *record_read(const char *path, struct error *err)
{
    struct buf text = {0};
    json_t *root = NULL;
    bool found;
    if (place_read(path, MAX_RECORD, &text, &found, err)) {
        json_error_t why;
        root = json_read(buf_str(&text), text.len, 0, &why);
        if (root ? !json_is_object(root) : !json_no_memory(&why)) {
            json_decref(root);
            root = json_object();
        }
        if (!root)
            error_oom(err, "the record of the cache", 4096);
    }
    buf_release(&text);
    return root;
}

bool record_write(const char *path, const json_t *root, struct error *err)
{
    char *text = json_written(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    const bool ok = text ? place_replace(path, text, strlen(text), err)
                         : error_oom(err, "the record of the cache", 4096);
    free(text);
    return ok;
}

bool cache_open(struct cache *c, const struct hub_options *o, struct buf *dir, struct error *err)
{
    *c = (struct cache){.o = o, .dir = *dir};
    *dir = (struct buf){0};
    if (c->dir.failed || !cache_path(c, record_name, &c->record))
        return error_oom(err, "a path", c->dir.len);
    c->root = record_read(c->record.data, err);
    return c->root != NULL;
}

void cache_release(struct cache *c)
{
    if (!c)
        return;
    json_decref(c->root);
    buf_release(&c->dir);
    buf_release(&c->record);
    *c = (struct cache){0};
}

bool cache_path(const struct cache *c, const char *path, struct buf *out)
{
    return buf_printf(out, "%s/%s", buf_str(&c->dir), path);
}

const char *cache_sha256(const struct cache *c, const char *path, uint64_t *size)
{
    const json_t *f = json_object_get(json_object_get(c->root, "files"), path);
    const char *sha = json_string_value(json_object_get(f, "sha256"));
    json_int_t n = json_integer_value(json_object_get(f, "size"));
    char checked[SHA256_HEX];
    struct buf full = {0};
    struct stat st;
    bool there = sha && n > 0 && hub_path_ok(path) && hub_sha256_text(sha, checked) &&
                 cache_path(c, path, &full) && stat(full.data, &st) == 0 && S_ISREG(st.st_mode) &&
                 st.st_size == n;
    buf_release(&full);
    *size = (uint64_t)n;
    return there ? sha : NULL;
}

bool cache_files(const struct cache *c, struct hub_listing *out, struct error *err)
{
    const char *path;
    json_t *value;
    bool ok = true;
    json_object_foreach(json_object_get(c->root, "files"), path, value)
    {
        uint64_t size;
        const char *sha = cache_sha256(c, path, &size);
        ok = ok && (!sha || hub_listing_add(out, path, size, sha, err));
    }
    return ok;
}

const char *cache_choice(const struct cache *c, const char *quant)
{
    const char *path =
        json_string_value(json_object_get(json_object_get(c->root, "choices"), quant));
    if (!path || !hub_path_ok(path) || !hub_split_check(path, NULL))
        return NULL;
    size_t stem;
    unsigned no, count = 1;
    if (hub_split_name(path, &stem, &no, &count) && count > HUB_MAX_PARTS)
        return NULL;
    struct buf part = {0};
    bool all = true;
    for (unsigned i = 1; all && i <= count; i++) {
        uint64_t size;
        buf_clear(&part);
        all = hub_split_part(path, i, &part) && cache_sha256(c, part.data, &size);
    }
    buf_release(&part);
    return all ? path : NULL;
}

static json_t *section_of(json_t *root, const char *name)
{
    json_t *s = json_object_get(root, name);
    if (json_is_object(s))
        return s;
    return json_object_set_new(root, name, json_object()) == 0 ? json_object_get(root, name) : NULL;
}

// Reads the record again, changes it and writes it, alone.
static bool change(struct cache *c, const char *section, const char *key, json_t *value,
                   struct error *err)
{
    struct buf lock = {0};
    bool waited, ok = cache_path(c, lock_name, &lock) || error_oom(err, "a path", c->dir.len);
    ok = ok && place_make_parents(lock.data, err);
    int fd = ok ? hub_lock(c->o, lock.data, &waited, err) : -1;
    buf_release(&lock);
    json_t *root = fd >= 0 ? record_read(c->record.data, err) : NULL, *at = root;
    ok = root != NULL;
    if (root && section)
        at = section_of(root, section);
    if (ok && !at)
        ok = error_oom(err, "the record of the cache", 4096);
    if (ok && value)
        ok =
            json_object_set(at, key, value) == 0 || error_oom(err, "the record of the cache", 4096);
    else if (ok)
        json_object_del(at, key);
    if (ok && json_object_set_new(root, "version", json_integer(1)) != 0)
        ok = error_oom(err, "the record of the cache", 4096);
    ok = ok && record_write(c->record.data, root, err);
    if (ok) {
        json_decref(c->root);
        c->root = json_incref(root);
    }
    json_decref(root);
    json_decref(value);
    if (fd >= 0)
        close(fd);
    return ok;
}

bool cache_set_file(struct cache *c, const char *path, uint64_t size, const char *sha256,
                    struct error *err)
{
    json_t *f = json_pack("{s:I, s:s}", "size", (json_int_t)size, "sha256", sha256);
    return f ? change(c, "files", path, f, err) : error_oom(err, "the record of the cache", 4096);
}

bool cache_set_choice(struct cache *c, const char *quant, const char *path, struct error *err)
{
    json_t *p = json_string(path);
    return p ? change(c, "choices", quant, p, err)
             : error_oom(err, "the record of the cache", 4096);
}

bool cache_set_url(struct cache *c, const char *url, struct error *err)
{
    json_t *u = json_string(url);
    return u ? change(c, NULL, "url", u, err)
             : error_set(err, ERR_USAGE, "the address is no valid UTF-8");
}

bool cache_remove_record(const struct cache *c)
{
    static const char *const names[] = {record_name, lock_name};
    struct buf path = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) {
        buf_clear(&path);
        ok = cache_path(c, names[i], &path);
        if (ok)
            unlink(path.data);
    }
    buf_release(&path);
    return ok;
}

bool cache_forget(struct cache *c, const char *path, struct error *err)
{
    const char *key;
    json_t *value;
    void *next;
    bool ok = change(c, "files", path, NULL, err);
    json_t *choices = json_deep_copy(json_object_get(c->root, "choices"));
    json_object_foreach_safe(choices, next, key, value)
    {
        const char *p = json_string_value(value);
        if (ok && p && strcmp(p, path) == 0)
            ok = change(c, "choices", key, NULL, err);
    }
    json_decref(choices);
    return ok;
}

static bool is_not_ours(void)
{
    return errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP;
}

bool cache_list(const char *path, DIR **d, struct error *err)
{
    *d = opendir(path);
    return *d || is_not_ours() ||
           error_set(err, errno == ENOMEM ? ERR_MEMORY : ERR_FAIL, "%s: cannot be listed: %s", path,
                     strerror(errno));
}

bool cache_look(const char *path, bool links, struct stat *st, struct error *err)
{
    if ((links ? stat(path, st) : lstat(path, st)) == 0)
        return true;
    st->st_mode = 0;
    return is_not_ours() ||
           error_set(err, ERR_FAIL, "%s: cannot be looked at: %s", path, strerror(errno));
}

static bool walk(const char *top, const char *below, int depth, const char *suffix, bool links,
                 struct hub_listing *out, struct error *err)
{
    struct buf dir = {0}, path = {0}, name = {0};
    bool ok =
        buf_printf(&dir, "%s%s%s", top, *below ? "/" : "", below) || error_oom(err, "a path", 4096);
    DIR *d = NULL;
    ok = ok && cache_list(dir.data, &d, err);
    size_t n = strlen(suffix);
    for (struct dirent *e; ok && d && (e = readdir(d));) {
        struct stat st;
        size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.')
            continue;
        buf_clear(&path);
        buf_clear(&name);
        buf_printf(&path, "%s/%s", dir.data, e->d_name);
        buf_printf(&name, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (path.failed || name.failed)
            ok = error_oom(err, "a path", 4096);
        else if (!cache_look(path.data, links, &st, err))
            ok = false;
        else if (S_ISDIR(st.st_mode) && depth > 0)
            ok = walk(top, name.data, depth - 1, suffix, links, out, err);
        else if (S_ISREG(st.st_mode) && len > n && strcasecmp(e->d_name + len - n, suffix) == 0)
            ok = hub_listing_add(out, name.data, (uint64_t)st.st_size, NULL, err);
    }
    if (d)
        closedir(d);
    buf_release(&dir);
    buf_release(&path);
    buf_release(&name);
    return ok;
}

bool cache_walk(const char *dir, const char *suffix, bool links, struct hub_listing *out,
                struct error *err)
{
    return walk(dir, "", 4, suffix, links, out, err);
}

bool cache_hash(const struct hub_options *o, const char *path, char out[SHA256_HEX],
                struct error *err)
{
    struct sha256 h;
    struct stat st = {0};
    unsigned char digest[SHA256_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *piece = malloc(HASH_PIECE);
    const char *slash = strrchr(path, '/');
    struct hub_progress p = {.file = slash ? slash + 1 : path, .checking = true, .n_part = 1};
    bool ok = piece || error_oom(err, "a read buffer", HASH_PIECE);
    if (ok && fd < 0)
        ok = error_set(err, ERR_FAIL, "%s: cannot be opened: %s", path, strerror(errno));
    if (ok && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)))
        ok = error_set(err, ERR_FAIL, "%s: expected a regular file", path);
    p.total = (uint64_t)st.st_size;
    sha256_init(&h);
    for (ssize_t n = 1; ok && n > 0;) {
        n = read(fd, piece, HASH_PIECE);
        if (hub_cancelled(o, err)) {
            ok = false;
        } else if (n < 0) {
            ok = error_set(err, ERR_FAIL, "%s: cannot be read: %s", path, strerror(errno));
        } else {
            sha256_update(&h, piece, (size_t)n);
            p.done += (uint64_t)n;
            p.finished = n == 0;
            if (o->progress)
                o->progress(o->user, &p);
        }
    }
    sha256_final(&h, digest);
    sha256_hex(digest, out);
    free(piece);
    if (fd >= 0)
        close(fd);
    return ok;
}

static void set_use(const char *path, struct timespec use)
{
    const struct timespec t[2] = {use, {.tv_nsec = UTIME_OMIT}};
    utimensat(AT_FDCWD, path, t, 0); // a read-only cache forgets; that is all
}

void cache_touch(const char *path)
{
    set_use(path, (struct timespec){.tv_nsec = UTIME_NOW});
}

void cache_set_use(const char *path, int64_t seconds)
{
    set_use(path, (struct timespec){.tv_sec = seconds});
}
