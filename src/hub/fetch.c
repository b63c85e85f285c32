#include "hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/format.h"
#include "base/place.h"
#include "hub/wait.h"

enum {
    MAX_TRIES = 5,
    MAX_RETRY_AFTER_S = 60,
    PROGRESS_BYTES = 64 << 10, // so much between two failures makes the first forgotten
    PIECE = 1 << 18,
    KEY = 16, // hexadecimal digits in the name of a part file
    ROOM_STEP = 16 << 20,
    ROOM_LEFT = 4 * ROOM_STEP, // a download of unknown length leaves this to others
};

struct download {
    struct fetch *f;
    int fd;
    struct buf final, part; // paths
    struct sha256 hash;     // of the first `at` bytes
    uint64_t at, resumed;
    char etag[128]; // of the answer that the part is from
    bool done;      // another process was faster
    uint64_t room;  // up to here the disk was seen to have room, when the length is not known
};

static void report(const struct download *d, bool finished)
{
    const struct fetch *f = d->f;
    const char *slash = strrchr(f->path, '/');
    struct hub_progress p = {.file = slash ? slash + 1 : f->path,
                             .done = d->at,
                             .total = f->size,
                             .resumed = d->resumed,
                             .part = f->part,
                             .n_part = f->n_part,
                             .finished = finished};
    if (f->o->progress)
        f->o->progress(f->o->user, &p);
}

bool fetch_try_again(const struct hub_options *o, unsigned *n_failed, unsigned retry_after_s,
                     struct error *err)
{
    char line[1200];
    if (++*n_failed >= MAX_TRIES)
        return error_prefix(err, "after %d tries", MAX_TRIES);
    if (retry_after_s > MAX_RETRY_AFTER_S)
        return error_prefix(err, "the server asks to wait %u s", retry_after_s);
    double wait = retry_after_s ? retry_after_s : 0.5 * (1 << (*n_failed - 1));
    snprintf(line, sizeof line, "%s; trying again in %g s (%u of %d)", err->text, wait,
             *n_failed + 1, MAX_TRIES);
    hub_note(o, line);
    return hub_pause(o, wait, err);
}

// Whether a file of n_bytes is one that the user wants (--max-size).
static bool check_size(const struct hub_options *o, uint64_t n_bytes, const char *what,
                       struct error *err)
{
    char found[FORMAT_NUMBER], most[FORMAT_NUMBER];
    return !o->max_bytes || n_bytes <= o->max_bytes ||
           error_set(err, ERR_FAIL, "%s has %s bytes or more, expected at most %s (--max-size)",
                     what, format_number(found, n_bytes), format_number(most, o->max_bytes));
}

bool fetch_check_space(const char *dir, uint64_t n_bytes, const char *what, struct error *err)
{
    struct statvfs fs;
    char at[4096], need[FORMAT_NUMBER], have[FORMAT_NUMBER];
    snprintf(at, sizeof at, "%s", dir);
    while (statvfs(at, &fs) != 0) { // what is not made yet is on its parent's disk
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            return true; // the write will say
        *slash = '\0';
    }
    uint64_t free_bytes;
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &free_bytes))
        free_bytes = UINT64_MAX;
    if (n_bytes <= free_bytes)
        return true;
    return error_set(err, ERR_FAIL,
                     "%s needs %s on the disk of %s, which has %s free: make room, or name another "
                     "place with XDG_CACHE_HOME",
                     what, format_bytes(need, n_bytes), at, format_bytes(have, free_bytes));
}

// ------------------------------------------------------------------------------------ the part
// file

// PATH.KEY.part: the key is made of what tells this content from another, so that a part is never
// continued with the bytes of another version.
static bool part_name(const struct fetch *f, const char *final, struct buf *out)
{
    char hex[SHA256_HEX];
    const char *id = *f->sha256 ? f->sha256 : f->etag;
    sha256_hex_of(id, strlen(id), hex);
    return buf_printf(out, "%s.%.*s.part", final, KEY, hex);
}

static bool start_over(struct download *d, struct error *err)
{
    sha256_init(&d->hash);
    d->at = d->resumed = 0;
    d->etag[0] = '\0';
    if (ftruncate(d->fd, 0) == 0 && lseek(d->fd, 0, SEEK_SET) == 0)
        return true;
    return error_set(err, ERR_FAIL, "%s: cannot be written: %s", d->part.data, strerror(errno));
}

// Whether the finished file is there. One that the record does not know is hashed and adopted.
static bool already_there(struct download *d, bool *there, struct error *err)
{
    struct fetch *f = d->f;
    struct stat st;
    char hash[SHA256_HEX];
    *there = false;
    if (!*f->sha256 || stat(d->final.data, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != f->size)
        return true;
    struct buf dir = {0};
    struct cache now;
    uint64_t size;
    buf_puts(&dir, buf_str(&f->cache->dir));
    if (!cache_open(&now, f->o, &dir, err))
        return false;
    const char *known = cache_sha256(&now, f->path, &size);
    bool ok = true;
    if (known) {
        *there = strcmp(known, f->sha256) == 0;
    } else {
        ok = cache_hash(f->o, d->final.data, hash, err);
        *there = ok && strcmp(hash, f->sha256) == 0;
    }
    cache_release(&now);
    bool adopt = ok && *there && !cache_sha256(f->cache, f->path, &size);
    return ok && (!adopt || cache_set_file(f->cache, f->path, f->size, f->sha256, err));
}

// Opens and locks the part file. A process that had it renamed it when it was done.
static bool lock_part(struct download *d, struct error *err)
{
    bool waited;
    if (!place_make_parents(d->part.data, err))
        return error_prefix(err, "the cache (XDG_CACHE_HOME names another place)");
    d->fd = hub_lock(d->f->o, d->part.data, &waited, err);
    return d->fd >= 0 && (!waited || already_there(d, &d->done, err));
}

// Continues the hash over what an earlier run left.
static bool read_part(struct download *d, struct error *err)
{
    char *piece = malloc(PIECE);
    bool ok = piece || error_oom(err, "a read buffer", PIECE);
    bool usable = *d->f->sha256 || *d->f->etag;
    for (ssize_t n = 1; ok && usable && n > 0;) {
        n = read(d->fd, piece, PIECE);
        if (hub_cancelled(d->f->o, err))
            ok = false;
        else if (n < 0)
            ok = error_set(err, ERR_FAIL, "%s: cannot be read: %s", d->part.data, strerror(errno));
        else {
            sha256_update(&d->hash, piece, (size_t)n);
            d->at += (uint64_t)n;
        }
    }
    free(piece);
    if (ok && (!usable || (d->f->size && d->at > d->f->size)))
        return start_over(d, err);
    d->resumed = d->at;
    memcpy(d->etag, d->f->etag, sizeof d->etag);
    return ok;
}

// -------------------------------------------------------------------------------------- the answer

// Looks at the headers of a 2xx answer before any of its bytes is written.
static bool on_begin(void *user, const struct http_response *r, struct error *err)
{
    struct download *d = user;
    struct fetch *f = d->f;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    bool partial = r->status == 206;
    if (partial && (!r->has_range || r->range_start != d->at))
        return error_set(err, ERR_FAIL, "%s: asked for the bytes from %s on, %s sends others",
                         f->what, format_number(a, d->at), r->host);
    if (!partial && d->at > 0 && !start_over(d, err)) // no ranges there, or another file now
        return false;
    uint64_t total = partial ? r->range_total : r->length;
    bool known = partial ? r->has_range_total : r->has_length;
    if (known && f->size && total != f->size)
        return error_set(err, ERR_FAIL,
                         "%s: %s offers %s bytes, expected %s as announced: the file changed, or "
                         "the server is wrong",
                         f->what, r->host, format_number(a, total), format_number(b, f->size));
    if (*r->linked_sha256 && *f->sha256 && strcmp(r->linked_sha256, f->sha256) != 0)
        return error_set(err, ERR_FAIL,
                         "%s: the server's SHA-256 for it (%.12s...) is not that of its list "
                         "(%.12s...): the repository changes right now; try again",
                         f->what, r->linked_sha256, f->sha256);
    memcpy(d->etag, r->etag, sizeof d->etag);
    if (known && !f->size) {
        f->size = total;
        if (!check_size(f->o, total, f->what, err))
            return false;
        if (!fetch_check_space(d->part.data, f->size - d->at, f->what, err))
            return false;
    }
    report(d, false);
    return true;
}

// A length that nobody announced is bounded all the same: by --max-size, and by what the disk has
// left.
static bool check_room(struct download *d, size_t n, struct error *err)
{
    struct fetch *f = d->f;
    if (!check_size(f->o, d->at + n, f->what, err))
        return false;
    if (f->size || d->at + n <= d->room)
        return true;
    if (!fetch_check_space(d->part.data, ROOM_LEFT + n, f->what, err))
        return error_prefix(err, "the server does not say how long it is");
    d->room = d->at + ROOM_STEP;
    return true;
}

// An address out of a browser is often that of a page about the file; no model begins as one.
static bool is_page(const char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", bytes[i]) && bytes[i])
        i++;
    return i < n && bytes[i] == '<';
}

static bool on_bytes(void *user, const void *bytes, size_t n, struct error *err)
{
    struct download *d = user;
    struct fetch *f = d->f;
    char a[FORMAT_NUMBER];
    if (d->at == 0 && is_page(bytes, n))
        return error_set(err, ERR_FAIL,
                         "%s: found a web page, expected a model's file: hokku pull USER/REPO gets "
                         "one from the Hugging Face Hub, and the address of a file there has "
                         "/resolve/ where that of its page has /blob/",
                         f->what);
    if (f->size && n > f->size - d->at)
        return error_set(err, ERR_FAIL, "%s: the server sends more than the %s bytes it announced",
                         f->what, format_number(a, f->size));
    if (!check_room(d, n, err))
        return false;
    if (!fd_write_all(d->fd, d->part.data, bytes, n, err)) {
        // Whatever was half written: the file and the hash must agree about `at`.
        if (ftruncate(d->fd, (off_t)d->at) != 0)
            unlink(d->part.data);
        return false;
    }
    sha256_update(&d->hash, bytes, n);
    d->at += n;
    report(d, false);
    return true;
}

// Until all bytes are there. Errors: those that trying again does not help, or not any more.
static bool receive(struct download *d, struct error *err)
{
    struct fetch *f = d->f;
    struct http_response r = {0};
    unsigned n_failed = 0;
    bool ok = true, complete = f->size && d->at == f->size;
    while (ok && !complete) {
        char done[FORMAT_NUMBER], all[FORMAT_NUMBER], etag[sizeof d->etag];
        memcpy(etag, d->etag, sizeof etag);
        struct http_request q = {.url = f->url,
                                 .from = d->at,
                                 .if_range = *etag ? etag : NULL,
                                 .begin = on_begin,
                                 .body = on_bytes,
                                 .user = d};
        uint64_t before = d->at;
        enum http_result result = http_get(f->http, &q, &r, err);
        bool with_token = f->o->token && http_is_endpoint(f->http, f->url);
        if (d->at >= before + PROGRESS_BYTES)
            n_failed = 0;
        if (result == HTTP_FAILED) {
            ok = false;
        } else if (result == HTTP_ANSWERED && r.status >= 200 && r.status <= 299) {
            complete = f->size ? d->at == f->size : true;
            if (!complete)
                error_set(err, ERR_FAIL, "%s: %s closed after %s of %s", f->what, r.host,
                          format_bytes(done, d->at), format_bytes(all, f->size));
        } else if (result == HTTP_ANSWERED) {
            http_status_error(&r, f->what, with_token, err);
            if (r.status == 416)
                ok = start_over(d, err);
            else
                ok = http_is_transient(r.status);
        }
        if (ok && !complete)
            ok = fetch_try_again(f->o, &n_failed, r.retry_after_s, err);
    }
    http_response_release(&r);
    return ok;
}

// The digest against what was promised. *again: the part an earlier run left may be to blame.
static bool verify(struct download *d, bool *again, char hex[SHA256_HEX], struct error *err)
{
    struct fetch *f = d->f;
    unsigned char digest[SHA256_BYTES];
    struct sha256 h = d->hash;
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    *again = false;
    if (!*f->sha256 || strcmp(hex, f->sha256) == 0)
        return true;
    if (d->resumed) {
        hub_note(f->o, "the resumed download has a wrong SHA-256: once more from the beginning");
        *again = true;
        return start_over(d, err);
    }
    unlink(d->part.data);
    return error_set(err, ERR_FAIL,
                     "%s: what was downloaded has SHA-256 %.16s..., expected %.16s...: damaged on "
                     "the way, removed; try again",
                     f->what, hex, f->sha256);
}

static bool put_in_place(struct download *d, const char *sha256, struct error *err)
{
    struct fetch *f = d->f;
    bool ok = (fsync(d->fd) == 0 && rename(d->part.data, d->final.data) == 0) ||
              error_set(err, ERR_FAIL, "%s: cannot be written: %s", d->final.data, strerror(errno));
    if (ok)
        place_sync_parent(d->final.data); // the name too must survive a power cut
    return ok && cache_set_file(f->cache, f->path, d->at, sha256, err);
}

bool fetch_file(struct fetch *f, struct error *err)
{
    struct download d = {.f = f, .fd = -1};
    char hex[SHA256_HEX];
    bool again = true;
    sha256_init(&d.hash);
    bool ok = (cache_path(f->cache, f->path, &d.final) && part_name(f, d.final.data, &d.part)) ||
              error_oom(err, "a path", 4096);
    ok = ok && already_there(&d, &d.done, err);
    if (ok && !d.done)
        ok = lock_part(&d, err);
    if (ok && !d.done) {
        ok = read_part(&d, err);
        if (ok && f->size)
            ok = check_size(f->o, f->size, f->what, err) &&
                 fetch_check_space(d.part.data, f->size - d.at, f->what, err);
        while (ok && again)
            ok = receive(&d, err) && verify(&d, &again, hex, err);
        ok = ok && put_in_place(&d, hex, err);
        if (ok) {
            f->size = d.at;
            report(&d, true);
            fetch_drop_parts(f->cache, f->path);
        } else if (err && err->code == ERR_INTERRUPTED && d.at) {
            hub_note(f->o, "interrupted; the same command goes on from here");
        }
    }
    if (d.fd >= 0) {
        struct stat st;
        if ((!ok || d.done) && fstat(d.fd, &st) == 0 && st.st_size == 0)
            unlink(d.part.data); // nothing to go on from
        close(d.fd);
    }
    buf_release(&d.final);
    buf_release(&d.part);
    return ok;
}

bool fetch_part_of(const char *part, struct buf *path)
{
    size_t n = strlen(part), tail = 1 + KEY + strlen(".part");
    return n > tail && part[n - tail] == '.' && strcmp(part + n - 5, ".part") == 0 &&
           strspn(part + n - tail + 1, "0123456789abcdef") == KEY &&
           buf_append(path, part, n - tail);
}

uint64_t fetch_drop_parts(const struct cache *c, const char *path)
{
    struct hub_listing parts = {0};
    struct buf full = {0}, of = {0};
    uint64_t freed = 0;
    cache_walk(buf_str(&c->dir), ".part", false, &parts, NULL);
    for (size_t i = 0; i < parts.n; i++) {
        struct stat st;
        buf_clear(&full);
        buf_clear(&of);
        if (!fetch_part_of(parts.files[i].path, &of) || strcmp(of.data, path) != 0 ||
            !cache_path(c, parts.files[i].path, &full))
            continue;
        bool taken;
        pid_t holder;
        int fd = place_open(full.data, O_RDWR, NULL);
        if (fd >= 0 && place_try_lock(fd, full.data, &taken, &holder, NULL) && taken &&
            fstat(fd, &st) == 0 && unlink(full.data) == 0)
            freed += (uint64_t)st.st_size;
        if (fd >= 0)
            close(fd);
    }
    hub_listing_release(&parts);
    buf_release(&full);
    buf_release(&of);
    return freed;
}
