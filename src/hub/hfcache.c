#include "hub/hfcache.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/cache.h"

static bool repository(const struct hub_options *o, const struct hub_spec *s, struct buf *out)
{
    return o->hf_cache_dir && *o->hf_cache_dir &&
           buf_printf(out, "%s/models--%s--%s", o->hf_cache_dir, s->user, s->repo);
}

static bool revision_ok(const char *rev)
{
    size_t n = strlen(rev);
    return n > 0 && n < 100 && strspn(rev, "0123456789abcdefABCDEF") == n;
}

bool hfcache_choose(const struct hub_options *o, const struct hub_spec *s, bool exact,
                    struct buf *path)
{
    struct buf repo = {0}, ref = {0}, rev = {0}, dir = {0};
    struct hub_listing l = {0};
    struct hub_choice c;
    bool ok = repository(o, s, &repo) && buf_printf(&ref, "%s/refs/main", repo.data) &&
              file_read(ref.data, 4096, &rev, NULL);
    while (ok && rev.len && isspace((unsigned char)rev.data[rev.len - 1]))
        rev.data[--rev.len] = '\0';
    ok = ok && revision_ok(buf_str(&rev)) &&
         buf_printf(&dir, "%s/snapshots/%s", repo.data, rev.data) &&
         cache_walk(dir.data, ".gguf", true, &l, NULL) &&
         hub_choose(&l, s->label, s->quant, &c, NULL);
    // Without a quant, what another repository listing would make of it is known only for Q4_K_M.
    if (ok && exact && !*s->quant)
        ok = strcmp(c.tag, "Q4_K_M") == 0;
    ok = ok && buf_printf(path, "%s/%s", dir.data, l.files[c.first].path);
    hub_listing_release(&l);
    buf_release(&repo);
    buf_release(&ref);
    buf_release(&rev);
    buf_release(&dir);
    return ok;
}

// Whether `path` is the file that was announced. The name of the blob is its SHA-256; a plain file
// is hashed.
static bool same_file(const struct hub_options *o, const char *path, const struct hub_file *f,
                      bool *same, struct error *err)
{
    struct stat st;
    char target[4096], hash[SHA256_HEX];
    *same = false;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size ||
        !*f->sha256)
        return true;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n > 0) {
        target[n] = '\0';
        const char *slash = strrchr(target, '/');
        *same = strcasecmp(slash ? slash + 1 : target, f->sha256) == 0;
        return true;
    }
    bool ok = cache_hash(o, path, hash, err);
    *same = ok && strcmp(hash, f->sha256) == 0;
    return ok;
}

bool hfcache_find(const struct hub_options *o, const struct hub_spec *s,
                  const struct hub_listing *l, const struct hub_choice *c, struct buf *path,
                  bool *found, struct error *err)
{
    struct buf dir = {0}, name = {0}, full = {0};
    bool ok = true;
    *found = false;
    DIR *d = repository(o, s, &dir) && buf_puts(&dir, "/snapshots") ? opendir(dir.data) : NULL;
    for (struct dirent *e; ok && !*found && d && (e = readdir(d));) {
        if (!revision_ok(e->d_name))
            continue;
        bool all = true;
        for (unsigned i = c->n; ok && all && i >= 1; i--) { // the first part last: its path stays
            buf_clear(&name);
            buf_clear(&full);
            if (!hub_split_part(l->files[c->first].path, i, &name) ||
                !buf_printf(&full, "%s/%s/%s", dir.data, e->d_name, name.data))
                ok = error_oom(err, "a path", 4096);
            const struct hub_file *f = ok ? hub_listing_find(l, name.data) : NULL;
            all = f && same_file(o, full.data, f, &all, err) && all;
            ok = ok && !(err && err->code == ERR_INTERRUPTED);
        }
        *found = ok && all;
    }
    if (ok && *found && !buf_puts(path, full.data))
        ok = error_oom(err, "a path", full.len);
    if (d)
        closedir(d);
    buf_release(&dir);
    buf_release(&name);
    buf_release(&full);
    return ok;
}
