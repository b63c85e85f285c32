// What is in the cache: listed and removed.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "hub/cache.h"
#include "hub/fetch.h"
#include "hub/hub.h"
#include "hub/listing.h"

struct list {
    struct hub_model *items;
    size_t n, cap;
};

void hub_models_release(struct hub_models *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->items[i].name);
        free(m->items[i].path);
    }
    free(m->items);
    *m = (struct hub_models){0};
}

void hub_keep_last_use(const struct hub_model *m)
{
    cache_set_use(m->path, m->last_use);
}

// Takes name and path over.
static bool add(struct list *l, struct buf *name, struct buf *path, uint64_t n_bytes, bool complete,
                struct error *err)
{
    struct stat st = {0};
    if (name->failed || path->failed || !name->data || !path->data ||
        !array_grow(NULL, &l->items, l->n, &l->cap, sizeof *l->items)) {
        buf_release(name);
        buf_release(path);
        return error_oom(err, "the list of models", (l->n + 1) * sizeof *l->items);
    }
    stat(path->data, &st);
    l->items[l->n++] = (struct hub_model){
        .name = name->data,
        .path = path->data,
        .n_bytes = n_bytes,
        .last_use = st.st_atime > st.st_mtime ? st.st_atime : st.st_mtime,
        .complete = complete,
    };
    *name = *path = (struct buf){0};
    return true;
}

static bool later_part(const char *path)
{
    size_t stem;
    unsigned no, count;
    return hub_split_name(path, &stem, &no, &count) && no > 1;
}

// Size of all parts that are there; *complete: all are.
static uint64_t total_size(const struct cache *c, const char *first, bool *complete)
{
    size_t stem;
    unsigned no, count = 1;
    uint64_t total = 0, size;
    struct buf part = {0};
    hub_split_name(first, &stem, &no, &count);
    *complete = count <= HUB_MAX_PARTS;
    for (unsigned i = 1; *complete && i <= count; i++) {
        buf_clear(&part);
        if (hub_split_part(first, i, &part) && cache_sha256(c, part.data, &size))
            total += size;
        else
            *complete = false;
    }
    buf_release(&part);
    return total;
}

static void model_name(const struct hub_listing *files, const char *label, const char *path,
                       bool by_tag, struct buf *out)
{
    char tag[HUB_TAG], other[HUB_TAG];
    hub_tag(path, tag);
    size_t same = 0;
    for (size_t i = 0; i < files->n; i++) {
        hub_tag(files->files[i].path, other);
        same += !later_part(files->files[i].path) && strcmp(tag, other) == 0;
    }
    buf_printf(out, "%s:%s", label, by_tag && *tag && same == 1 ? tag : path);
}

// label: USER/REPO; NULL: an address.
static bool list_directory(struct list *l, struct cache *c, const char *label, struct error *err)
{
    struct hub_listing files = {0}, parts = {0};
    const char *url = json_string_value(json_object_get(c->root, "url"));
    struct buf name = {0}, path = {0};
    bool ok =
        cache_files(c, &files, err) && cache_walk(buf_str(&c->dir), ".part", false, &parts, err);
    for (size_t i = 0; ok && i < files.n; i++) {
        const char *file = files.files[i].path;
        bool complete;
        if (later_part(file))
            continue;
        uint64_t size = total_size(c, file, &complete);
        cache_path(c, file, &path);
        if (label)
            model_name(&files, label, file, complete, &name);
        else
            hub_url_public(url ? url : file, &name);
        ok = add(l, &name, &path, size, complete, err);
    }
    for (size_t i = 0; ok && i < parts.n; i++) {
        struct buf of = {0};
        if (fetch_part_of(parts.files[i].path, &of)) {
            cache_path(c, parts.files[i].path, &path);
            buf_printf(&name, "%s:%s", label ? label : "url", of.data);
            ok = add(l, &name, &path, parts.files[i].size, false, err);
        }
        buf_release(&of);
    }
    hub_listing_release(&files);
    hub_listing_release(&parts);
    return ok;
}

// What is done with each directory of the cache.
typedef bool (*visit_fn)(void *user, struct cache *c, const char *label, struct error *err);

static bool visit_one(const struct hub_options *o, const char *dir, const char *label,
                      visit_fn visit, void *user, struct error *err)
{
    struct buf path = {0};
    struct cache c;
    buf_puts(&path, dir);
    bool ok = cache_open(&c, o, &path, err) && visit(user, &c, label, err);
    cache_release(&c);
    return ok;
}

// CACHE/hub/USER/REPO (levels 2) and CACHE/url/HASH (levels 1).
static bool visit_below(const struct hub_options *o, const char *top, const char *below, int levels,
                        bool url, visit_fn visit, void *user, struct error *err)
{
    DIR *d;
    bool ok = cache_list(top, &d, err);
    for (struct dirent *e; ok && d && (e = readdir(d));) {
        struct buf dir = {0}, label = {0};
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        buf_printf(&dir, "%s/%s", top, e->d_name);
        buf_printf(&label, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (dir.failed || label.failed)
            ok = error_oom(err, "a path", 4096);
        else if (!cache_look(dir.data, false, &st, err))
            ok = false;
        else if (S_ISDIR(st.st_mode))
            ok = levels > 1
                     ? visit_below(o, dir.data, label.data, levels - 1, url, visit, user, err)
                     : visit_one(o, dir.data, url ? NULL : label.data, visit, user, err);
        buf_release(&dir);
        buf_release(&label);
    }
    if (d)
        closedir(d);
    return ok;
}

static bool visit_all(const struct hub_options *o, visit_fn visit, void *user, struct error *err)
{
    struct buf hub = {0}, url = {0};
    bool ok =
        (buf_printf(&hub, "%s/hub", o->cache_dir) && buf_printf(&url, "%s/url", o->cache_dir)) ||
        error_oom(err, "a path", 4096);
    ok = ok && visit_below(o, hub.data, "", 2, false, visit, user, err) &&
         visit_below(o, url.data, "", 1, true, visit, user, err);
    buf_release(&hub);
    buf_release(&url);
    return ok;
}

static bool list_one(void *user, struct cache *c, const char *label, struct error *err)
{
    return list_directory(user, c, label, err);
}

static int by_name(const void *a, const void *b)
{
    return strcasecmp(((const struct hub_model *)a)->name, ((const struct hub_model *)b)->name);
}

bool hub_list(const struct hub_options *o, struct hub_models *out, struct error *err)
{
    struct list l = {0};
    bool ok = visit_all(o, list_one, &l, err);
    if (l.n)
        qsort(l.items, l.n, sizeof *l.items, by_name);
    *out = (struct hub_models){l.items, l.n};
    if (!ok)
        hub_models_release(out);
    return ok;
}

// ----------------------------------------------------------------------------------------- removal

struct removal {
    const char *name;
    bool only_looks; // nothing is removed
    uint64_t freed;
    size_t n;
};

// Unlinks DIR/path, and the directories that are empty then, up to the cache's own.
static bool remove_file(struct cache *c, const char *path, struct removal *r, struct error *err)
{
    struct buf full = {0};
    struct stat st;
    if (!cache_path(c, path, &full))
        return error_oom(err, "a path", 4096);
    bool ok = cache_look(full.data, false, &st, err);
    if (ok && st.st_mode != 0) {
        ok = unlink(full.data) == 0 ||
             error_set(err, ERR_FAIL, "%s: cannot be removed: %m", full.data);
        r->freed += ok ? (uint64_t)st.st_size : 0;
    }
    if (ok && hub_path_ok(path))
        ok = cache_forget(c, path, err);
    for (char *slash = strrchr(full.data, '/'); ok && slash > full.data + strlen(buf_str(&c->dir));
         slash = strrchr(full.data, '/')) {
        *slash = '\0';
        rmdir(full.data);
    }
    buf_release(&full);
    return ok;
}

static bool remove_model(struct cache *c, const char *first, struct removal *r, struct error *err)
{
    size_t stem;
    unsigned no, count = 1;
    struct buf part = {0};
    bool ok = true;
    r->n++;
    if (r->only_looks)
        return true;
    if (hub_split_name(first, &stem, &no, &count) && count > HUB_MAX_PARTS)
        count = 1;
    for (unsigned i = 1; ok && i <= count; i++) {
        buf_clear(&part);
        ok = hub_split_part(first, i, &part) || error_oom(err, "a path", 4096);
        ok = ok && remove_file(c, part.data, r, err);
        if (ok)
            r->freed += fetch_drop_parts(c, part.data);
    }
    buf_release(&part);
    return ok;
}

// The directory too, once nothing is in it but the record.
static void remove_if_empty(struct cache *c)
{
    struct hub_listing rest = {0};
    struct buf path = {0};
    if (cache_walk(buf_str(&c->dir), "", false, &rest, NULL) && rest.n == 0 &&
        cache_remove_record(c) && cache_path(c, "x", &path)) {
        char *dir = path.data;
        for (int i = 0; i < 2; i++) { // REPO, USER
            *strrchr(dir, '/') = '\0';
            if (rmdir(dir) != 0)
                break;
        }
    }
    hub_listing_release(&rest);
    buf_release(&path);
}

static bool remove_matching(void *user, struct cache *c, const char *label, struct error *err)
{
    struct removal *r = user;
    const char *url = json_string_value(json_object_get(c->root, "url"));
    struct buf stored = {0}, asked = {0}; // an address goes by what is shown of it
    hub_url_public(url ? url : "", &stored);
    hub_url_public(r->name, &asked);
    bool all = label ? strcasecmp(label, r->name) == 0
                     : url && strcmp(buf_str(&stored), buf_str(&asked)) == 0;
    buf_release(&stored);
    buf_release(&asked);
    struct hub_listing files = {0}, parts = {0}, known = {0};
    size_t before = r->n;
    bool ok = cache_files(c, &known, err) &&
              cache_walk(buf_str(&c->dir), ".gguf", false, &files, err) &&
              cache_walk(buf_str(&c->dir), ".part", false, &parts, err);
    // What is left of interrupted downloads has a name of its own in the list.
    for (size_t i = 0; ok && i < parts.n; i++) {
        struct buf of = {0};
        if (fetch_part_of(parts.files[i].path, &of) &&
            !hub_listing_add(&files, of.data, 0, NULL, err))
            ok = false;
        buf_release(&of);
    }
    for (size_t i = 0; ok && i < files.n; i++) {
        const char *file = files.files[i].path;
        struct buf by_tag = {0}, by_path = {0};
        model_name(&known, label ? label : "url", file, hub_listing_find(&known, file) != NULL,
                   &by_tag);
        model_name(&known, label ? label : "url", file, false, &by_path);
        bool named = strcasecmp(buf_str(&by_tag), r->name) == 0 ||
                     strcasecmp(buf_str(&by_path), r->name) == 0;
        if (all || named)
            ok = remove_model(c, file, r, err);
        buf_release(&by_tag);
        buf_release(&by_path);
    }
    if (ok && r->n > before && !r->only_looks)
        remove_if_empty(c);
    hub_listing_release(&known);
    hub_listing_release(&files);
    hub_listing_release(&parts);
    return ok;
}

static bool visit_named(const struct hub_options *o, struct removal *r, struct error *err)
{
    const char *name = r->name;
    struct hub_models there = {0};
    bool ok = visit_all(o, remove_matching, r, err);
    if (!ok || r->n)
        return ok;
    char shown[FORMAT_TEXT];
    struct buf names = {0};
    ok = hub_list(o, &there, err);
    for (size_t i = 0; ok && i < there.n && names.len < 700; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", there.items[i].name);
    if (ok)
        error_set(err, ERR_FAIL, "no model \"%s\" in the cache; there %s %s",
                  format_text(shown, sizeof shown, name, strlen(name)), there.n == 1 ? "is" : "are",
                  there.n ? buf_str(&names) : "none");
    buf_release(&names);
    hub_models_release(&there);
    return false;
}

bool hub_has(const struct hub_options *o, const char *name, struct error *err)
{
    return visit_named(o, &(struct removal){.name = name, .only_looks = true}, err);
}

bool hub_remove(const struct hub_options *o, const char *name, uint64_t *freed, struct error *err)
{
    struct removal r = {.name = name};
    const bool ok = visit_named(o, &r, err);
    *freed = r.freed;
    return ok;
}
