// From a name to a file: the cache, the Hugging Face cache, the network, in that order.
#include "hub/hub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/place.h"
#include "hub/cache.h"
#include "hub/fetch.h"
#include "hub/hfcache.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/wait.h"

static const char default_endpoint[] = "https://huggingface.co";
enum { MAX_PAGE = 4 << 20, MAX_PAGES = 100 };

// What one call of hub_fetch has open.
struct job {
    const struct hub_options *o;
    struct hub_spec spec;
    struct buf endpoint; // without a '/' at the end
    struct http *http;
    struct cache cache;
    struct hub_listing listing;
};

static void job_release(struct job *j)
{
    http_free(j->http);
    cache_release(&j->cache);
    hub_listing_release(&j->listing);
    buf_release(&j->endpoint);
}

static bool connect(struct job *j, struct error *err)
{
    const char *e = j->o->endpoint && *j->o->endpoint ? j->o->endpoint : default_endpoint;
    size_t n = strlen(e);
    while (n && e[n - 1] == '/')
        n--;
    if (!buf_append(&j->endpoint, e, n))
        return error_oom(err, "an address", n);
    j->http = http_create(j->o, j->endpoint.data, err);
    return j->http != NULL;
}

// The parts of `first`, all in the cache with these checksums; the path of the first is appended.
static bool return_path(const struct job *j, const char *first, struct buf *path, struct error *err)
{
    size_t begin = path->len, stem;
    unsigned no, count = 1;
    struct buf part = {0}, full = {0};
    bool ok = true;
    hub_split_name(first, &stem, &no, &count);
    for (unsigned i = 1; ok && i <= count; i++) {
        buf_clear(&part);
        buf_clear(&full);
        ok = (hub_split_part(first, i, &part) && cache_path(&j->cache, part.data, &full)) ||
             error_oom(err, "a path", 4096);
        ok = ok && place_check(full.data, err);
    }
    buf_release(&part);
    buf_release(&full);
    if (ok && !cache_path(&j->cache, first, path))
        ok = error_oom(err, "a path", 4096);
    if (ok)
        cache_touch(path->data + begin);
    return ok;
}

// ------------------------------------------------------------------------------------ the file
// list

static bool append_body(void *user, const void *bytes, size_t n, struct error *err)
{
    struct buf *b = user;
    if (b->len + n > MAX_PAGE)
        return error_set(err, ERR_FAIL, "the server's list of files is longer than %d bytes",
                         MAX_PAGE);
    return buf_append(b, bytes, n) || error_oom(err, "the list of files", b->len + n);
}

static bool restart_body(void *user, const struct http_response *r, struct error *err)
{
    (void)r;
    (void)err;
    buf_clear(user);
    return true;
}

static bool get_page(struct job *j, const char *url, struct buf *body, struct http_response *r,
                     struct error *err)
{
    struct http_request q = {.url = url, .begin = restart_body, .body = append_body, .user = body};
    unsigned n_failed = 0;
    for (;;) {
        enum http_result result = http_get(j->http, &q, r, err);
        if (result == HTTP_ANSWERED && r->status >= 200 && r->status <= 299)
            return true;
        if (result == HTTP_ANSWERED)
            http_status_error(r, j->spec.label, j->o->token != NULL, err);
        if (result == HTTP_FAILED || (result == HTTP_ANSWERED && !http_is_transient(r->status)) ||
            !fetch_try_again(j->o, &n_failed, r->retry_after_s, err))
            return false;
    }
}

static bool list_repository(struct job *j, struct error *err)
{
    struct buf url = {0}, body = {0};
    struct http_response r = {0};
    bool ok = buf_printf(&url, "%s/api/models/%s/tree/main?recursive=true", j->endpoint.data,
                         j->spec.label) ||
              error_oom(err, "an address", 4096);
    for (int page = 0; ok; page++) {
        ok = get_page(j, url.data, &body, &r, err) &&
             (hub_listing_parse(&j->listing, buf_str(&body), body.len, err) ||
              error_prefix(err, "%s", j->spec.label));
        buf_clear(&url);
        if (!ok || !hub_link_next(buf_str(&r.link), &url))
            break;
        if (page == MAX_PAGES)
            ok = error_set(err, ERR_FAIL, "%s: the server's list of files has no end",
                           j->spec.label);
        else if (!http_is_endpoint(j->http, url.data))
            ok = error_set(err, ERR_FAIL,
                           "%s: the server's list of files goes on at another server: refused",
                           j->spec.label);
    }
    http_response_release(&r);
    buf_release(&url);
    buf_release(&body);
    return ok;
}

// --------------------------------------------------------------------------------------- USER/REPO

static bool resolve_url(const struct job *j, const char *path, struct buf *out)
{
    buf_printf(out, "%s/%s/resolve/main/", j->endpoint.data, j->spec.label);
    for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
        if (isalnum(*p) || strchr("-._~/", *p))
            buf_putc(out, (char)*p);
        else
            buf_printf(out, "%%%02X", *p);
    }
    return !out->failed;
}

static bool is_cached(const struct job *j, const struct hub_file *f)
{
    uint64_t size;
    const char *sha = cache_sha256(&j->cache, f->path, &size);
    return sha && size == f->size && strcmp(sha, f->sha256) == 0;
}

// Remembers what was chosen, so that the next time needs no network. A cache that cannot be written
// to does not remember; the model is there all the same.
static void remember(struct job *j, const char *tag, const char *first)
{
    char key[HUB_TAG];
    size_t n = strlen(tag);
    for (size_t i = 0; i <= n; i++)
        key[i] = (char)tolower((unsigned char)tag[i]);
    const char *keys[] = {j->spec.quant, key};
    bool ok = true;
    for (int i = 0; ok && i < (*key ? 2 : 1); i++) {
        const char *now = cache_choice(&j->cache, keys[i]);
        if (!now || strcmp(now, first) != 0)
            ok = cache_set_choice(&j->cache, keys[i], first, NULL);
    }
}

// Downloads what is missing of the choice. Until all parts are there the choice is forgotten: an
// update that is interrupted must not leave parts of two versions under one name.
static bool fetch_parts(struct job *j, const struct hub_choice *c, struct error *err)
{
    const char *first = j->listing.files[c->first].path;
    struct buf name = {0}, url = {0};
    uint64_t missing = 0;
    unsigned n_missing = 0;
    bool ok = true;
    for (int pass = 0; ok && pass < 2; pass++) {
        for (unsigned i = 1; ok && i <= c->n; i++) {
            buf_clear(&name);
            buf_clear(&url);
            ok = hub_split_part(first, i, &name) || error_oom(err, "a path", 4096);
            const struct hub_file *f = ok ? hub_listing_find(&j->listing, name.data) : NULL;
            if (!ok || is_cached(j, f))
                continue;
            n_missing += pass == 0;
            if (pass == 0 && __builtin_add_overflow(missing, f->size, &missing))
                missing = UINT64_MAX;
            if (pass == 0)
                continue;
            struct fetch get = {.o = j->o,
                                .http = j->http,
                                .cache = &j->cache,
                                .url = url.data,
                                .path = f->path,
                                .what = f->path,
                                .size = f->size,
                                .part = i,
                                .n_part = c->n};
            memcpy(get.sha256, f->sha256, SHA256_HEX);
            if (!*f->sha256)
                ok = error_set(err, ERR_FAIL,
                               "%s: the server tells no SHA-256 of %s, so it cannot be verified",
                               j->spec.label, f->path);
            else if (!resolve_url(j, f->path, &url))
                ok = error_oom(err, "an address", 4096);
            get.url = buf_str(&url);
            ok = ok && fetch_file(&get, err);
        }
        // An interrupted download takes less than this; its own check knows.
        if (ok && pass == 0 && n_missing > 1)
            ok = fetch_check_space(buf_str(&j->cache.dir), missing, j->spec.label, err);
        if (ok && pass == 0 && n_missing && cache_choice(&j->cache, j->spec.quant))
            ok = cache_forget(&j->cache, first, err);
    }
    buf_release(&name);
    buf_release(&url);
    return ok;
}

// Says before a download that the model cannot run, where the server knows what it is. It may know
// another of the repository's files, so the user decides; no answer is no reason to stop either.
// False: interrupted.
static bool say_if_it_cannot_run(struct job *j, struct error *err)
{
    struct buf url = {0}, body = {0}, name = {0}, line = {0};
    struct http_response r = {0};
    struct error why = {0}, ignored = {0};
    struct http_request q = {.begin = restart_body, .body = append_body, .user = &body};
    enum http_result result = HTTP_BROKEN;
    if (!j->o->runs || !j->o->note)
        return true;
    if (buf_printf(&url, "%s/api/models/%s?expand%%5B%%5D=gguf", j->endpoint.data, j->spec.label)) {
        q.url = url.data;
        result = http_get(j->http, &q, &r, &ignored);
    }
    if (result == HTTP_ANSWERED && r.status == 200 &&
        hub_architecture(buf_str(&body), body.len, &name) && !j->o->runs(name.data, &why) &&
        buf_printf(&line, "%s cannot run here, says the Hub: %s", j->spec.label, why.text))
        j->o->note(j->o->user, line.data);
    http_response_release(&r);
    buf_release(&url);
    buf_release(&body);
    buf_release(&name);
    buf_release(&line);
    return !cancel_asked(j->o->cancel) ||
           error_set(err, ERR_INTERRUPTED, "interrupted before the download");
}

static bool offline_error(const struct job *j, const struct hub_listing *there, struct error *err)
{
    struct error reason = {0};
    struct hub_choice c;
    if (there->n && !hub_choose(there, j->spec.label, j->spec.quant, &c, &reason))
        return error_set(err, ERR_FAIL, "--offline: in the cache, %s", reason.text);
    return error_set(err, ERR_FAIL,
                     "--offline: %s%s%s is not downloaded; hokku models lists what is",
                     j->spec.label, *j->spec.quant ? ":" : "", j->spec.quant);
}

static bool fetch_offline(struct job *j, struct buf *path, struct error *err)
{
    struct hub_listing there = {0};
    struct hub_choice c;
    bool ok = cache_files(&j->cache, &there, err);
    bool found;
    if (ok && hub_choose(&there, j->spec.label, j->spec.quant, &c, NULL))
        ok = return_path(j, there.files[c.first].path, path, err);
    else if (ok)
        ok = hfcache_choose(j->o, &j->spec, false, path, &found, err) &&
             (found || offline_error(j, &there, err));
    hub_listing_release(&there);
    return ok;
}

static bool fetch_repository(struct job *j, const char *name, struct buf *path, struct error *err)
{
    struct buf dir = {0};
    if (!hub_spec_parse(name, &j->spec, err))
        return false;
    buf_printf(&dir, "%s/hub/%s", j->o->cache_dir, j->spec.label);
    if (!cache_open(&j->cache, j->o, &dir, err))
        return false;
    if (!j->o->refresh || j->o->offline) {
        const char *known = cache_choice(&j->cache, j->spec.quant);
        if (known)
            return return_path(j, known, path, err);
        bool there;
        if (!j->o->offline && (!hfcache_choose(j->o, &j->spec, true, path, &there, err) || there))
            return there;
    }
    if (j->o->offline)
        return fetch_offline(j, path, err);
    struct hub_choice c;
    if (!connect(j, err) || !list_repository(j, err) ||
        !hub_choose(&j->listing, j->spec.label, j->spec.quant, &c, err))
        return false;
    const struct hub_file *first = &j->listing.files[c.first];
    bool found = is_cached(j, first);
    if (!found && (!hfcache_find(j->o, &j->spec, &j->listing, &c, path, &found, err) || found))
        return found;
    if ((!found && !say_if_it_cannot_run(j, err)) || !fetch_parts(j, &c, err))
        return false;
    remember(j, c.tag, first->path);
    return return_path(j, first->path, path, err);
}

// -------------------------------------------------------------------------------------- an address

// The last component of the address' path as a file's name.
static void url_name(const char *url, char *out, size_t cap)
{
    size_t n = strcspn(url, "?#"), begin = n;
    while (begin && url[begin - 1] != '/')
        begin--;
    size_t k = 0;
    for (size_t i = begin; i < n && k < cap - 6; i++) {
        bool plain =
            isalnum((unsigned char)url[i]) || strchr("-_+=", url[i]) || (url[i] == '.' && k > 0);
        out[k++] = plain ? url[i] : '_';
    }
    if (k == 0)
        k = (size_t)snprintf(out, cap, "model");
    out[k] = '\0';
    if (!hub_path_ok(out))
        strcpy(out + k, ".gguf");
}

// What the server tells before the download: size, checksum, version. A server that does not answer
// HEAD tells nothing.
static bool ask_url(struct job *j, struct fetch *f, struct error *err)
{
    struct http_response r = {0};
    struct http_request q = {.url = f->url, .head = true};
    unsigned n_failed = 0;
    bool ok = true, again = true;
    while (ok && again) {
        enum http_result result = http_get(j->http, &q, &r, err);
        again = result == HTTP_BROKEN ||
                (result == HTTP_ANSWERED && http_is_transient(r.status) && r.status != 500);
        if (result == HTTP_FAILED) {
            ok = false;
        } else if (again) {
            if (result == HTTP_ANSWERED)
                http_status_error(&r, f->what, false, err);
            ok = fetch_try_again(j->o, &n_failed, r.retry_after_s, err);
        } else if (r.status >= 200 && r.status <= 299) {
            f->size = r.has_length ? r.length : 0;
            memcpy(f->sha256, r.linked_sha256, sizeof f->sha256);
            memcpy(f->etag, r.etag, sizeof f->etag);
        } else if (r.status == 404 || r.status == 410) {
            ok = http_status_error(&r, f->what, false, err);
        }
    }
    http_response_release(&r);
    return ok;
}

static bool fetch_one_url(struct job *j, struct fetch *f, struct error *err)
{
    uint64_t size;
    if (!ask_url(j, f, err))
        return false;
    const char *sha = cache_sha256(&j->cache, f->path, &size);
    if (sha && size == f->size && (!*f->sha256 || strcmp(sha, f->sha256) == 0))
        return true;
    if (!*f->sha256)
        hub_note(j->o, "this server publishes no checksum: only the length can be checked");
    return fetch_file(f, err);
}

static bool fetch_url(struct job *j, const char *url, struct buf *path, struct error *err)
{
    char name[HUB_MAX_PATH / 2], hex[SHA256_HEX];
    struct buf dir = {0}, part_url = {0}, part = {0}, shown = {0};
    size_t stem, n_url = strcspn(url, "?#");
    unsigned no = 1, count = 1;
    url_name(url, name, sizeof name);
    if (!hub_split_check(name, err))
        return false;
    bool split = hub_split_name(name, &stem, &no, &count) && n_url > strlen(name) &&
                 memcmp(url + n_url - strlen(name), name, strlen(name)) == 0;
    if (!split)
        count = 1;
    if (split && (no != 1 || count > HUB_MAX_PARTS))
        return error_set(err, ERR_USAGE, "%s: part %u of %u of a split model, expected part 1",
                         name, no, count);
    sha256_hex_of(url, strlen(url), hex);
    buf_printf(&dir, "%s/url/%.16s", j->o->cache_dir, hex);
    if (!cache_open(&j->cache, j->o, &dir, err))
        return false;
    const char *known = j->o->refresh && !j->o->offline ? NULL : cache_choice(&j->cache, "");
    if (known)
        return return_path(j, known, path, err);
    if (j->o->offline)
        return error_set(err, ERR_FAIL,
                         "--offline: %s is not downloaded; hokku models lists what is", name);
    bool ok = connect(j, err);
    for (unsigned i = 1; ok && i <= count; i++) {
        buf_clear(&part);
        buf_clear(&part_url);
        if (split) { // the address of part i: the name in it is STEM-0000i-of-...
            buf_append(&part_url, url, n_url - strlen(name));
            hub_split_part(name, i, &part_url);
            buf_puts(&part_url, url + n_url);
        } else {
            buf_puts(&part_url, url);
        }
        hub_split_part(name, i, &part);
        struct fetch f = {.o = j->o,
                          .http = j->http,
                          .cache = &j->cache,
                          .url = buf_str(&part_url),
                          .path = buf_str(&part),
                          .what = buf_str(&part),
                          .part = i,
                          .n_part = count};
        ok = (!part.failed && !part_url.failed) ? fetch_one_url(j, &f, err)
                                                : error_oom(err, "an address", 4096);
    }
    ok = ok && (hub_url_public(url, &shown) || error_oom(err, "an address", strlen(url))) &&
         cache_set_url(&j->cache, shown.data, err) && cache_set_choice(&j->cache, "", name, err) &&
         return_path(j, name, path, err);
    buf_release(&part);
    buf_release(&part_url);
    buf_release(&shown);
    return ok;
}

bool hub_name_check(const char *name, struct error *err)
{
    struct hub_spec spec;
    return strncmp(name, "https://", 8) == 0 || hub_spec_parse(name, &spec, err);
}

bool hub_fetch(const struct hub_options *o, const char *name, struct buf *path, struct error *err)
{
    struct job j = {.o = o};
    bool ok = strncmp(name, "https://", 8) == 0 ? fetch_url(&j, name, path, err)
                                                : fetch_repository(&j, name, path, err);
    job_release(&j);
    return ok;
}
