#include "dialog/session_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/place.h"
#include "base/thread.h"
#include "dialog/crc32.h"
#include "dialog/session_codec.h"

// The file: magic, u32 version, u32 zero, two slots, then the records. Numbers are little-endian.
//   slot    u64 generation, u64 length, u32 CRC-32 of these 16 bytes, u32 zero
//   record  4 bytes tag, u32 CRC-32 of the payload, u64 begin, u64 end, u64 length,
//           u32 CRC-32 of these 32 bytes, then the payload
const char log_magic[8] = {'H', 'O', 'K', 'K', 'U', 'S', 'E', 'S'};
enum { SLOT = 24, SLOT_AT = 16, RECORDS_AT = SLOT_AT + 2 * SLOT, HEAD = 36 };
enum { MAX_WAITING = 256 << 20 }; // bytes that wait for the disk

static uint32_t checksum(struct crc32 *c, const void *p, size_t n)
{
    crc32_add(c, p, n);
    return crc32_take(c);
}

// ----------------------------------------------------------------------------------------- reading

bool log_damaged(const char *path, const char *what, struct error *err)
{
    return error_set(err, ERR_FAIL,
                     "%s: the session is damaged: %s; restore the file from a copy, or begin anew "
                     "under another name",
                     path, what);
}

bool log_unreadable(const char *path, const struct codec_cursor *c, const char *what,
                    struct error *err)
{
    return c->no_memory ? error_oom(err, "what a session holds", c->n)
                        : log_damaged(path, what, err);
}

bool log_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n, struct error *err)
{
    unsigned char *p = dst;
    while (n > 0) {
        ssize_t k = pread(fd, p, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_set(err, ERR_FAIL, "%s: cannot be read: %s", path, strerror(errno));
        if (k == 0)
            return log_damaged(path, "the file ends too early", err);
        p += k;
        offset += (uint64_t)k;
        n -= (size_t)k;
    }
    return true;
}

// The slot with the newest state that is all there.
static bool choose_slot(struct log_file *f, struct crc32 *crc, uint64_t size, struct error *err)
{
    unsigned char head[RECORDS_AT];
    if (!log_read_at(f->fd, f->path, 0, head, sizeof head, err))
        return false;
    if (head[12] | head[13] | head[14] | head[15])
        return log_damaged(f->path, "the file's head is wrong", err);
    for (int i = 0; i < 2; i++) {
        struct codec_cursor c = {.p = head + SLOT_AT + i * SLOT, .n = SLOT};
        uint32_t sum = checksum(crc, c.p, 16);
        uint64_t generation = codec_u64(&c), length = codec_u64(&c);
        if (codec_u32(&c) != sum || length < RECORDS_AT || length > size) {
            f->cut = true;
        } else if (generation > f->generation) {
            f->generation = generation;
            f->length = length;
            f->slot = i;
        }
    }
    return f->generation > 0 ||
           log_damaged(f->path, "nothing that was saved is all there (cut off?)", err);
}

bool log_file_read(struct log_file *f, int fd, const char *path, struct error *err)
{
    struct crc32 *crc = malloc(sizeof *crc);
    struct stat st;
    *f = (struct log_file){.path = path, .fd = fd};
    if (!crc)
        return error_oom(err, "the reader of a session", sizeof *crc);
    crc32_init(crc);
    bool ok = fstat(fd, &st) == 0 ||
              error_set(err, ERR_FAIL, "%s: cannot be looked at: %s", path, strerror(errno));
    ok = ok && choose_slot(f, crc, (uint64_t)st.st_size, err);
    size_t cap = 0;
    for (uint64_t at = RECORDS_AT; ok && at < f->length;) {
        unsigned char head[HEAD];
        if (f->length - at < HEAD) {
            ok = log_damaged(path, "its last record is cut", err);
            break;
        }
        ok = log_read_at(fd, path, at, head, sizeof head, err);
        if (!ok)
            break;
        struct log_record r = {.offset = at + HEAD};
        struct codec_cursor c = {.p = head, .n = sizeof head};
        memcpy(r.tag, codec_bytes(&c, LOG_TAG), LOG_TAG);
        r.crc = codec_u32(&c);
        r.begin = codec_u64(&c);
        r.end = codec_u64(&c);
        r.length = codec_u64(&c);
        if (codec_u32(&c) != checksum(crc, head, HEAD - 4) || r.begin > r.end ||
            r.length > f->length - r.offset) {
            ok = log_damaged(path, "the head of a record is wrong", err);
            break;
        }
        if (!array_grow(NULL, &f->records, f->n_records, &cap, sizeof *f->records)) {
            ok = error_oom(err, "the list of a session's records",
                           (f->n_records + 1) * sizeof *f->records);
            break;
        }
        f->records[f->n_records++] = r;
        at = r.offset + r.length;
    }
    free(crc);
    if (!ok)
        log_file_release(f);
    return ok;
}

void log_file_release(struct log_file *f)
{
    free(f->records);
    f->records = NULL;
    f->n_records = 0;
}

bool log_file_payload(const struct log_file *f, const struct log_record *r, void *dst, bool *good,
                      struct error *err)
{
    struct crc32 *crc = malloc(sizeof *crc);
    if (!crc)
        return error_oom(err, "the reader of a session", sizeof *crc);
    bool ok = log_read_at(f->fd, f->path, r->offset, dst, (size_t)r->length, err);
    crc32_init(crc);
    *good = ok && checksum(crc, dst, (size_t)r->length) == r->crc;
    free(crc);
    return ok;
}

// ----------------------------------------------------------------------------------------- writing

enum order { PUT, COMMIT, ABORT };

struct chunk { // something for the thread to do
    struct chunk *next;
    enum order order;
    char tag[LOG_TAG + 1];
    uint64_t begin, end;
    void *data; // owned
    size_t n;
};

struct log_writer {
    char *path;
    // the thread's while a transaction runs, the caller's else
    int fd;                      // of the file that is there; -1: none
    uint64_t length, generation; // of it
    int slot;                    // of it that says so; the next save writes the other one
    int target;                  // where records go: fd, or a new file
    bool anew, failed;
    struct buf temp; // name of the new file
    uint64_t at;
    struct error failure;
    struct crc32 crc;
    // shared
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chunk *first, *last;
    size_t waiting; // bytes
    bool busy;      // from start until commit or abort is done
    bool quit;
};

static void put_number(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = v >> 8 * i & 0xFF;
}

static bool write_at(struct log_writer *w, uint64_t at, const void *data, size_t n)
{
    if (lseek(w->target, (off_t)at, SEEK_SET) < 0)
        return error_set(&w->failure, ERR_FAIL, "%s: cannot be written: %s", w->path,
                         strerror(errno));
    return fd_write_all(w->target, w->path, data, n, &w->failure);
}

static bool write_record(struct log_writer *w, const struct chunk *k)
{
    unsigned char head[HEAD];
    memcpy(head, k->tag, LOG_TAG);
    put_number(head + 4, checksum(&w->crc, k->data, k->n), 4);
    put_number(head + 8, k->begin, 8);
    put_number(head + 16, k->end, 8);
    put_number(head + 24, k->n, 8);
    put_number(head + 32, checksum(&w->crc, head, 32), 4);
    bool ok = write_at(w, w->at, head, sizeof head) && write_at(w, w->at + HEAD, k->data, k->n);
    w->at += HEAD + k->n;
    return ok;
}

static void make_slot(struct log_writer *w, uint64_t generation, uint64_t length,
                      unsigned char slot[SLOT])
{
    memset(slot, 0, SLOT);
    put_number(slot, generation, 8);
    put_number(slot + 8, length, 8);
    put_number(slot + 16, checksum(&w->crc, slot, 16), 4);
}

static bool write_slot(struct log_writer *w, int i, uint64_t generation)
{
    unsigned char slot[SLOT];
    make_slot(w, generation, w->at, slot);
    return write_at(w, (uint64_t)(SLOT_AT + i * SLOT), slot, sizeof slot);
}

static bool sync_file(struct log_writer *w)
{
    return fdatasync(w->target) == 0 ||
           error_set(&w->failure, ERR_FAIL, "%s: cannot be synced: %s", w->path, strerror(errno));
}

// The records must be on the disk before the slot that makes them count.
static bool commit_appended(struct log_writer *w)
{
    if (!sync_file(w) || !write_slot(w, 1 - w->slot, w->generation + 1) || !sync_file(w))
        return false;
    w->generation++;
    w->slot = 1 - w->slot;
    w->length = w->at;
    return true;
}

static bool commit_anew(struct log_writer *w)
{
    // Both slots, so that no other state is ever looked for in this file.
    bool ok = write_slot(w, 1, 1) && write_slot(w, 0, 2);
    int fd = w->target;
    w->target = -1;
    if (!ok) {
        close(fd);
        unlink(buf_str(&w->temp));
        return false;
    }
    if (!place_commit(fd, buf_str(&w->temp), w->path, &w->failure))
        return false;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = place_open(w->path, O_RDWR, &w->failure);
    w->generation = 2;
    w->slot = 0;
    w->length = w->fd >= 0 ? w->at : 0;
    return true; // it is saved; what cannot be opened again is written anew next time
}

static void undo(struct log_writer *w)
{
    if (w->anew) {
        if (w->target >= 0) {
            close(w->target);
            unlink(buf_str(&w->temp));
        }
    } else if (w->fd >= 0 && ftruncate(w->fd, (off_t)w->length) != 0) {
        // What lies behind the length that counts is overwritten by the next save.
        (void)0;
    }
    w->target = -1;
}

static void work(struct log_writer *w, const struct chunk *k)
{
    if (k->order == PUT) {
        if (!w->failed && !write_record(w, k))
            w->failed = true;
        return;
    }
    if (k->order == COMMIT && !w->failed)
        w->failed = !(w->anew ? commit_anew(w) : commit_appended(w));
    if (k->order == ABORT || w->failed)
        undo(w);
}

static void *run(void *user)
{
    struct log_writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->quit)
            pthread_cond_wait(&w->changed, &w->lock);
        struct chunk *k = w->first;
        if (!k)
            break;
        w->first = k->next;
        if (!w->first)
            w->last = NULL;
        pthread_mutex_unlock(&w->lock);
        work(w, k);
        pthread_mutex_lock(&w->lock);
        w->waiting -= sizeof *k + k->n;
        if (k->order != PUT)
            w->busy = false;
        pthread_cond_broadcast(&w->changed);
        free(k->data);
        free(k);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static bool start_thread(struct log_writer *w, struct error *err)
{
    if (w->has_thread)
        return true;
    const int why = thread_start(&w->thread, 0, run, w);
    w->has_thread = why == 0;
    return w->has_thread ||
           error_set(err, ERR_FAIL, "no thread to save a session: %s", strerror(why));
}

struct log_writer *log_writer_create(const char *path, struct error *err)
{
    struct log_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->path = strdup(path))) {
        free(w);
        error_oom(err, "the writer of a session", sizeof *w);
        return NULL;
    }
    w->fd = w->target = -1;
    crc32_init(&w->crc);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void log_writer_free(struct log_writer *w)
{
    if (!w)
        return;
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        w->quit = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    if (w->fd >= 0)
        close(w->fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    buf_release(&w->temp);
    free(w->path);
    free(w);
}

bool log_writer_continue(struct log_writer *w, uint64_t length, uint64_t generation, int slot)
{
    if (generation > INT64_MAX) // on purpose: there must be a next one, and many after it
        return false;
    w->fd = place_open(w->path, O_RDWR, NULL);
    w->length = w->fd >= 0 ? length : 0;
    w->generation = generation;
    w->slot = slot;
    return w->fd >= 0;
}

uint64_t log_writer_length(const struct log_writer *w)
{
    return w->length;
}

bool log_writer_look(struct log_writer *w, struct error *err)
{
    unsigned char want[SLOT], found[SLOT];
    struct stat mine, there = {0};
    if (w->fd < 0)
        return true;
    if (stat(w->path, &there) != 0 && errno == ENOENT) {
        close(w->fd);
        w->fd = -1;
        w->length = 0;
        return true;
    }
    make_slot(w, w->generation, w->length, want);
    bool ok =
        fstat(w->fd, &mine) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev &&
        log_read_at(w->fd, w->path, (uint64_t)(SLOT_AT + w->slot * SLOT), found, SLOT, NULL) &&
        memcmp(want, found, SLOT - 4) == 0; // (the last four say nothing)
    return ok || error_set(err, ERR_FAIL,
                           "%s: another program has changed it since it was saved last; save under "
                           "another name",
                           w->path);
}

bool log_writer_start(struct log_writer *w, bool anew, struct error *err)
{
    bool done;
    log_writer_settle(w, -1, &done, NULL);
    w->anew = anew || w->fd < 0;
    w->failed = false;
    w->failure = (struct error){0};
    if (!start_thread(w, err))
        return false;
    if (w->anew) {
        unsigned char head[RECORDS_AT] = {0};
        w->target = place_create_temp(w->path, &w->temp, err);
        if (w->target < 0)
            return false;
        memcpy(head, log_magic, sizeof log_magic);
        put_number(head + 8, LOG_VERSION, 4);
        if (!fd_write_all(w->target, w->path, head, sizeof head, err)) {
            undo(w);
            return false;
        }
        w->at = RECORDS_AT;
    } else {
        w->target = w->fd;
        w->at = w->length;
        // What a killed process left behind the length that counts.
        if (ftruncate(w->fd, (off_t)w->length) != 0)
            return error_set(err, ERR_FAIL, "%s: cannot be cut to its length: %s", w->path,
                             strerror(errno));
    }
    w->busy = true;
    return true;
}

static void give(struct log_writer *w, const struct chunk *what)
{
    struct chunk *k = malloc(sizeof *k);
    pthread_mutex_lock(&w->lock);
    while (w->waiting > 0 && w->waiting + what->n > MAX_WAITING)
        pthread_cond_wait(&w->changed, &w->lock);
    if (k) {
        *k = *what;
        if (w->last)
            w->last->next = k;
        else
            w->first = k;
        w->last = k;
        w->waiting += sizeof *k + k->n;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        return;
    }
    // No room even for the order: it is done here, after all others.
    while (w->first || w->waiting > 0)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    work(w, what);
    free(what->data);
    if (what->order != PUT)
        w->busy = false;
}

void log_writer_put(struct log_writer *w, const char *tag, uint64_t begin, uint64_t end, void *data,
                    size_t n)
{
    struct chunk k = {.order = PUT, .begin = begin, .end = end, .data = data, .n = n};
    memcpy(k.tag, tag, LOG_TAG);
    give(w, &k);
}

void log_writer_commit(struct log_writer *w)
{
    give(w, &(struct chunk){.order = COMMIT});
}

void log_writer_abort(struct log_writer *w)
{
    give(w, &(struct chunk){.order = ABORT});
}

bool log_writer_settle(struct log_writer *w, double seconds, bool *done, struct error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (seconds > 0) {
        until.tv_sec += (time_t)seconds;
        until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    }
    int why = 0;
    pthread_mutex_lock(&w->lock);
    while (w->busy && why == 0)
        why = seconds < 0 ? pthread_cond_wait(&w->changed, &w->lock)
                          : pthread_cond_timedwait(&w->changed, &w->lock, &until);
    *done = !w->busy;
    bool ok = !*done || !w->failed;
    if (!ok && err)
        *err = w->failure;
    pthread_mutex_unlock(&w->lock);
    return ok;
}
