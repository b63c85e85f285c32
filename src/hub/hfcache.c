#include "hub/hfcache.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/place.h"
#include "hub/cache.h"
#include "hub/verified.h"
#include "hub/wait.h"

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

// Whether a file can be used without asking the Hub what it should be: it is the user's own or
// root's, and has the SHA-256 that its blob is named after. *found tells; the reason is said.
static bool vouch(const struct hub_options *o, const char *path, bool *found, struct error *err)
{
    struct error why = {0};
    char expected[SHA256_HEX], hash[SHA256_HEX];
    char *real = realpath(path, NULL);
    *found = false;
    if (!real)
        return true;
    const char *name = strrchr(real, '/') + 1;
    bool ok = true, named = hub_sha256_text(name, expected);
    *found = place_check(real, &why);
    if (*found && named && !verified_sha256(o, real, hash, &why))
        *found = false;
    else if (*found && named && strcmp(hash, expected) != 0)
        *found = error_set(&why, ERR_FAIL,
                           "%s: refused: its SHA-256 is %.16s..., expected its name", real, hash);
    if (why.code == ERR_INTERRUPTED || why.code == ERR_MEMORY)
        ok = error_set(err, why.code, "%s", why.text);
    else if (!*found)
        hub_note(o, why.text);
    free(real);
    return ok;
}

bool hfcache_choose(const struct hub_options *o, const struct hub_spec *s, bool exact,
                    struct buf *path, bool *found, struct error *err)
{
    struct buf repo = {0}, ref = {0}, rev = {0}, dir = {0}, part = {0}, name = {0};
    struct hub_listing l = {0};
    struct hub_choice c;
    struct error why = {0};
    bool ok = true, there = false;
    *found = repository(o, s, &repo) && buf_printf(&ref, "%s/refs/main", repo.data) &&
             place_read(ref.data, 4096, &rev, &there, &why) && there;
    if (why.code)
        hub_note(o, why.text);
    while (*found && rev.len && isspace((unsigned char)rev.data[rev.len - 1]))
        rev.data[--rev.len] = '\0';
    *found = *found && revision_ok(buf_str(&rev)) &&
             buf_printf(&dir, "%s/snapshots/%s", repo.data, rev.data) &&
             cache_walk(dir.data, ".gguf", true, &l, NULL) &&
             hub_choose(&l, s->label, s->quant, &c, NULL);
    // Without a quant, what another repository listing would make of it is known only for Q4_K_M.
    if (*found && exact && !*s->quant)
        *found = strcmp(c.tag, "Q4_K_M") == 0;
    for (unsigned i = *found ? c.n : 0; ok && *found && i >= 1; i--) { // the first part last
        buf_clear(&name);
        buf_clear(&part);
        ok = (hub_split_part(l.files[c.first].path, i, &name) &&
              buf_printf(&part, "%s/%s", dir.data, name.data)) ||
             error_oom(err, "a path", 4096);
        ok = ok && vouch(o, part.data, found, err);
    }
    if (ok && *found && !buf_puts(path, part.data))
        ok = error_oom(err, "a path", part.len);
    hub_listing_release(&l);
    buf_release(&repo);
    buf_release(&ref);
    buf_release(&rev);
    buf_release(&dir);
    buf_release(&part);
    buf_release(&name);
    return ok;
}

// Whether `path` is the file that the Hub has announced, whoever put it there.
static bool same_file(const struct hub_options *o, const char *path, const struct hub_file *f,
                      bool *same, struct error *err)
{
    struct stat st;
    char hash[SHA256_HEX];
    struct error why = {0};
    *same = false;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size ||
        !*f->sha256)
        return true;
    char *real = realpath(path, NULL);
    char named[SHA256_HEX];
    // A blob that is named after another SHA-256 need not be hashed to be another file.
    bool other =
        real && hub_sha256_text(strrchr(real, '/') + 1, named) && strcmp(named, f->sha256) != 0;
    bool known = real && !other && verified_sha256(o, real, hash, &why);
    free(real);
    *same = known && strcmp(hash, f->sha256) == 0;
    if (why.code == ERR_INTERRUPTED || why.code == ERR_MEMORY)
        return error_set(err, why.code, "%s", why.text);
    if (why.code)
        hub_note(o, why.text);
    return true;
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
            all = f != NULL;
            ok = ok && (!f || same_file(o, full.data, f, &all, err));
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
