#include "dialog/session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/place.h"
#include "dialog/crc32.h"
#include "dialog/session_codec.h"

// The file: this header, then the sections one after the other. Numbers are little-endian.
//   0  "HOKKUSES"
//   8  u32 version, u32 number of sections
//  16  u64 length of the file
//  24  per section: 4 bytes tag, u32 CRC-32 of its bytes, u64 offset, u64 length
//  ..  u32 CRC-32 of everything before
static const char magic[8] = {'H', 'O', 'K', 'K', 'U', 'S', 'E', 'S'};
enum {
    SEC_META,     // JSON: model, device, counts, settings
    SEC_MESSAGES, // see session_codec.c
    SEC_TIMELINE, // i32 token ids
    SEC_KV,       // what the engine exports, in pieces of KV_PIECE positions
    N_SECTIONS,
};
static const char tags[N_SECTIONS][5] = {"META", "MSGS", "TIME", "KVCH"};
static const char *const section_names[N_SECTIONS] = {"description", "messages", "token timeline",
                                                      "KV cache"};
enum { ENTRY = 24, HEADER = 24 + N_SECTIONS * ENTRY + 4, KV_PIECE = 512, MAX_META = 4 << 20 };

struct section {
    uint32_t crc;
    uint64_t offset, length;
};

static uint32_t template_crc(const struct conversation *c)
{
    return c->tmpl ? c->template_crc : 0;
}

// ----------------------------------------------------------------------------------------- writing

struct writer {
    int fd;
    const char *path;
    struct crc32 crc;
    uint64_t at;
    struct section sections[N_SECTIONS];
};

static bool put(struct writer *w, const void *bytes, size_t n, struct error *err)
{
    crc32_add(&w->crc, bytes, n);
    w->at += n;
    return fd_write_all(w->fd, w->path, bytes, n, err);
}

static void begin_section(struct writer *w, int i)
{
    crc32_take(&w->crc);
    w->sections[i].offset = w->at;
}

static void end_section(struct writer *w, int i)
{
    w->sections[i].length = w->at - w->sections[i].offset;
    w->sections[i].crc = crc32_take(&w->crc);
}

static bool write_kv(struct writer *w, const struct conversation *c, struct error *err)
{
    const struct engine *e = c->session.engine;
    struct seq *s = c->session.seq;
    size_t n = seq_n_past(s), largest = engine_kv_bytes(e, 0, n < KV_PIECE ? n : KV_PIECE);
    unsigned char *piece = malloc(largest + 1);
    bool ok = piece || error_oom(err, "a copy of the KV cache", largest);
    for (size_t i = 0; ok && i < n; i += KV_PIECE) {
        size_t end = n - i < KV_PIECE ? n : i + KV_PIECE;
        ok = seq_export(s, i, end, piece, err) && put(w, piece, engine_kv_bytes(e, i, end), err);
    }
    free(piece);
    return ok;
}

static json_t *safe_string(const char *s)
{
    json_t *j = json_string(s);
    return j ? j : json_string("?");
}

static json_t *describe(const struct conversation *c, const json_t *settings)
{
    const struct engine *e = c->session.engine;
    const struct model *m = c->model;
    json_t *j = json_object();
    if (!j)
        return NULL;
    json_object_set_new(j, "program", json_string("hokku"));
    json_object_set_new(j, "model", safe_string(m->name));
    char *full = m->gguf ? realpath(gguf_file_path(m->gguf, 0), NULL) : NULL;
    if (full)
        json_object_set_new(j, "model_path", safe_string(full));
    free(full);
    if (c->tmpl) {
        size_t n;
        const char *text = template_source(c->tmpl, &n);
        json_object_set_new(j, "template", json_stringn(text, n));
    }
    json_object_set_new(j, "fingerprint", safe_string(m->fingerprint));
    json_object_set_new(j, "device", safe_string(e->device));
    json_object_set_new(j, "kv_format", safe_string(e->kv_format));
    json_object_set_new(j, "kv_positions", json_integer((json_int_t)seq_n_past(c->session.seq)));
    json_object_set_new(j, "n_ctx", json_integer(e->n_ctx));
    json_object_set_new(j, "template_crc", json_integer(template_crc(c)));
    json_object_set_new(j, "plain", json_boolean(!c->tmpl));
    json_object_set_new(j, "now", json_integer(c->now));
    json_object_set_new(j, "saved_at", json_integer((json_int_t)time(NULL)));
    json_object_set_new(j, "turns", json_integer((json_int_t)conversation_n_turns(c)));
    json_object_set_new(j, "tokens", json_integer((json_int_t)seq_len(c->session.seq)));
    json_object_set_new(j, "first_kept", json_integer((json_int_t)c->first_kept));
    json_object_set_new(j, "dropped", json_integer((json_int_t)c->session.stats.n_dropped));
    json_object_set_new(j, "system_merged", json_boolean(c->system_merged));
    if (settings)
        json_object_set_new(j, "settings", json_deep_copy(settings));
    return j;
}

static bool write_body(struct writer *w, const struct conversation *c, const json_t *settings,
                       struct error *err)
{
    struct buf b = {0};
    json_t *meta = describe(c, settings);
    char *text = meta ? json_dumps(meta, JSON_COMPACT) : NULL;
    json_decref(meta);
    bool ok = text || error_oom(err, "the description of a session", 4096);
    static const unsigned char zero[HEADER];
    ok = ok && put(w, zero, sizeof zero, err);
    begin_section(w, SEC_META);
    ok = ok && put(w, text, strlen(text), err);
    end_section(w, SEC_META);
    free(text);
    if (ok && !codec_put_messages(&b, c))
        ok = error_oom(err, "the messages of a session", b.len);
    begin_section(w, SEC_MESSAGES);
    ok = ok && put(w, buf_str(&b), b.len, err);
    end_section(w, SEC_MESSAGES);
    begin_section(w, SEC_TIMELINE);
    buf_clear(&b);
    if (ok && !codec_put_ids(&b, seq_ids(c->session.seq), seq_len(c->session.seq)))
        ok = error_oom(err, "the timeline of a session", b.len);
    ok = ok && put(w, buf_str(&b), b.len, err);
    end_section(w, SEC_TIMELINE);
    begin_section(w, SEC_KV);
    ok = ok && write_kv(w, c, err);
    end_section(w, SEC_KV);
    buf_release(&b);
    return ok;
}

static bool write_header(struct writer *w, struct error *err)
{
    struct buf h = {0};
    buf_append(&h, magic, sizeof magic);
    codec_put_u32(&h, SESSION_VERSION);
    codec_put_u32(&h, N_SECTIONS);
    codec_put_u64(&h, w->at);
    for (int i = 0; i < N_SECTIONS; i++) {
        buf_append(&h, tags[i], 4);
        codec_put_u32(&h, w->sections[i].crc);
        codec_put_u64(&h, w->sections[i].offset);
        codec_put_u64(&h, w->sections[i].length);
    }
    crc32_take(&w->crc);
    crc32_add(&w->crc, buf_str(&h), h.len);
    codec_put_u32(&h, crc32_take(&w->crc));
    bool ok = !h.failed || error_oom(err, "the header of a session", HEADER);
    if (ok && lseek(w->fd, 0, SEEK_SET) != 0)
        ok = error_set(err, ERR_FAIL, "%s: cannot be written: %s", w->path, strerror(errno));
    ok = ok && fd_write_all(w->fd, w->path, h.data, h.len, err);
    buf_release(&h);
    return ok;
}

bool session_file_write(const char *path, const struct conversation *c, const json_t *settings,
                        struct error *err)
{
    struct buf temp = {0};
    struct writer *w = calloc(1, sizeof *w);
    bool ok = w || error_oom(err, "the writer of a session", sizeof *w);
    if (ok) {
        crc32_init(&w->crc);
        w->path = path;
        w->fd = place_create_temp(path, &temp, err);
        ok = w->fd >= 0;
    }
    if (ok && write_body(w, c, settings, err) && write_header(w, err)) {
        ok = place_commit(w->fd, temp.data, path, err);
    } else if (ok) {
        close(w->fd);
        unlink(temp.data);
        ok = false;
    }
    free(w);
    buf_release(&temp);
    return ok;
}

// ----------------------------------------------------------------------------------------- reading

struct reader {
    const char *path;
    int fd;
    uint64_t size;
    struct crc32 crc;
    struct section sections[N_SECTIONS];
};

static bool damaged(const struct reader *r, const char *what, struct error *err)
{
    return error_set(err, ERR_FAIL,
                     "%s: the session is damaged: %s; restore the file from a copy, or begin anew "
                     "under another name",
                     r->path, what);
}

static bool read_at(const struct reader *r, uint64_t offset, void *dst, size_t n, struct error *err)
{
    unsigned char *p = dst;
    while (n > 0) {
        ssize_t k = pread(r->fd, p, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_set(err, ERR_FAIL, "%s: cannot be read: %s", r->path, strerror(errno));
        if (k == 0)
            return damaged(r, "the file ends too early", err);
        p += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return true;
}

static bool reader_open(struct reader *r, const char *path, struct error *err)
{
    struct stat st;
    unsigned char h[HEADER];
    r->path = path;
    crc32_init(&r->crc);
    r->fd = place_open(path, O_RDONLY, err);
    if (r->fd < 0)
        return false;
    if (fstat(r->fd, &st) != 0)
        return error_set(err, ERR_FAIL, "%s: cannot be looked at: %s", path, strerror(errno));
    r->size = (uint64_t)st.st_size;
    size_t n = r->size < HEADER ? (size_t)r->size : HEADER;
    if (!read_at(r, 0, h, n, err))
        return false;
    if (n < 16 || memcmp(h, magic, sizeof magic) != 0)
        return error_set(err, ERR_FAIL, "%s: not a session: it does not begin with \"HOKKUSES\"",
                         path);
    struct codec_cursor cur = {.p = h + 8, .n = n - 8};
    uint32_t version = codec_u32(&cur);
    if (version != SESSION_VERSION)
        return error_set(
            err, ERR_FAIL,
            "%s: session format version %u, this hokku reads version %d; use the hokku "
            "that wrote it",
            path, version, SESSION_VERSION);
    if (n < HEADER)
        return damaged(r, "the file ends in its header", err);
    crc32_add(&r->crc, h, HEADER - 4);
    uint32_t sum = crc32_take(&r->crc);
    struct codec_cursor end = {.p = h + HEADER - 4, .n = 4};
    uint32_t n_sections = codec_u32(&cur);
    uint64_t size = codec_u64(&cur);
    if (codec_u32(&end) != sum || n_sections != N_SECTIONS)
        return damaged(r, "the header's checksum is wrong", err);
    if (size != r->size)
        return damaged(r, "its length is not what the header says (cut off?)", err);
    uint64_t at = HEADER;
    for (int i = 0; i < N_SECTIONS; i++) {
        const void *tag = codec_bytes(&cur, 4);
        struct section *s = &r->sections[i];
        s->crc = codec_u32(&cur);
        s->offset = codec_u64(&cur);
        s->length = codec_u64(&cur);
        if (!tag || memcmp(tag, tags[i], 4) != 0 || s->offset != at || s->length > r->size - at)
            return damaged(r, "the header's table is wrong", err);
        at += s->length;
    }
    return at == r->size || damaged(r, "bytes after the last section", err);
}

// Reads and checks one section into memory that the caller frees.
static unsigned char *read_section(struct reader *r, int i, struct error *err)
{
    const struct section *s = &r->sections[i];
    unsigned char *p = malloc((size_t)s->length + 1);
    if (!p) {
        error_oom(err, "a part of a session", s->length);
        return NULL;
    }
    if (!read_at(r, s->offset, p, (size_t)s->length, err)) {
        free(p);
        return NULL;
    }
    p[s->length] = 0;
    crc32_add(&r->crc, p, (size_t)s->length);
    if (crc32_take(&r->crc) != s->crc) {
        char what[80];
        snprintf(what, sizeof what, "the checksum of the %s is wrong", section_names[i]);
        damaged(r, what, err);
        free(p);
        return NULL;
    }
    return p;
}

// A KV cache can be larger than memory has room for twice: it is read piece by piece, first to
// check it, then to import it.
static bool check_kv(struct reader *r, struct error *err)
{
    enum { PIECE = 1 << 20 };
    const struct section *s = &r->sections[SEC_KV];
    unsigned char *p = malloc(PIECE);
    bool ok = p || error_oom(err, "a part of a session", PIECE);
    for (uint64_t at = 0; ok && at < s->length; at += PIECE) {
        size_t n = s->length - at < PIECE ? (size_t)(s->length - at) : PIECE;
        ok = read_at(r, s->offset + at, p, n, err);
        if (ok)
            crc32_add(&r->crc, p, n);
    }
    if (crc32_take(&r->crc) != s->crc && ok)
        ok = damaged(r, "the checksum of the KV cache is wrong", err);
    free(p);
    return ok;
}

// The timeline to s, the KV cache of its first n tokens with it.
static bool import_kv(struct reader *r, struct seq *s, const struct ids *timeline, size_t n,
                      struct error *err)
{
    const struct engine *e = seq_engine(s);
    size_t largest = engine_kv_bytes(e, 0, n < KV_PIECE ? n : KV_PIECE);
    unsigned char *piece = malloc(largest + 1);
    uint64_t at = r->sections[SEC_KV].offset;
    bool ok = piece || error_oom(err, "a copy of the KV cache", largest);
    seq_trim(s, 0);
    for (size_t i = 0; ok && i < n; i += KV_PIECE) {
        size_t end = n - i < KV_PIECE ? n : i + KV_PIECE, bytes = engine_kv_bytes(e, i, end);
        ok = read_at(r, at, piece, bytes, err) &&
             seq_import(s, timeline->data + i, end - i, piece, err);
        at += bytes;
    }
    ok = ok && seq_append(s, timeline->data + n, timeline->len - n, err);
    if (!ok)
        seq_trim(s, 0);
    free(piece);
    return ok;
}

static json_t *read_meta(struct reader *r, struct error *err)
{
    if (r->sections[SEC_META].length > MAX_META) {
        damaged(r, "its description is too long", err);
        return NULL;
    }
    unsigned char *text = read_section(r, SEC_META, err);
    if (!text)
        return NULL;
    json_t *j = json_loadb((char *)text, (size_t)r->sections[SEC_META].length, 0, NULL);
    free(text);
    if (json_is_object(j))
        return j;
    json_decref(j);
    damaged(r, "its description is no JSON object", err);
    return NULL;
}

static const char *text_of(const json_t *meta, const char *key)
{
    const char *s = json_string_value(json_object_get(meta, key));
    return s ? s : "";
}

static int64_t number_of(const json_t *meta, const char *key)
{
    return json_integer_value(json_object_get(meta, key));
}

// Why the KV bytes cannot be used here; empty: they can.
static void kv_mismatch(const struct reader *r, const json_t *meta, const struct engine *e,
                        size_t n_timeline, char *why, size_t n_why)
{
    int64_t n = number_of(meta, "kv_positions");
    why[0] = '\0';
    if (strcmp(text_of(meta, "kv_format"), e->kv_format) != 0)
        snprintf(why, n_why, "its KV cache is of %.60s, this device uses %.60s",
                 text_of(meta, "kv_format"), e->kv_format);
    else if (n < 0 || (uint64_t)n > n_timeline || (uint64_t)n > e->n_ctx)
        snprintf(why, n_why, "it holds %lld tokens, the context only %u", (long long)n, e->n_ctx);
    else if (codec_kv_bytes(e, (size_t)n, KV_PIECE) != r->sections[SEC_KV].length)
        snprintf(why, n_why, "its KV cache has another size");
}

// Everything that a file says about messages must hang together before it replaces anything.
static bool check_conversation(const struct reader *r, const struct conversation *c,
                               struct error *err)
{
    size_t head = c->has_system ? 1 : 0;
    for (size_t i = head; i < c->n_messages; i++) {
        enum role want = (i - head) % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT;
        if (c->messages[i].role != want)
            return damaged(r, "its messages are out of order", err);
    }
    if ((c->n_messages - head) % 2 != 0)
        return damaged(r, "its last message has no answer", err);
    if (c->first_kept > c->n_messages)
        return damaged(r, "it drops more messages than it has", err);
    return true;
}

bool session_file_read(const char *path, struct conversation *c, session_accept *accept, void *user,
                       struct session_loaded *out, struct error *err)
{
    struct reader *r = calloc(1, sizeof *r);
    struct conversation fresh = {.model = c->model, .tmpl = c->tmpl};
    struct engine *e = c->session.engine;
    struct ids timeline = {0};
    json_t *meta = NULL;
    unsigned char *msgs = NULL, *time_bytes = NULL;
    double start = clock_now();
    bool ok = false;
    *out = (struct session_loaded){0};
    if (!r) {
        error_oom(err, "the reader of a session", sizeof *r);
        return false;
    }
    r->fd = -1;
    if (!reader_open(r, path, err) || !(meta = read_meta(r, err)))
        goto done;
    if (strcmp(text_of(meta, "fingerprint"), c->model->fingerprint) != 0) {
        error_set(
            err, ERR_FAIL,
            "%s: made with the model \"%.80s\" (fingerprint %.12s), this is \"%.80s\" (%.12s); "
            "open it with that model, or use another session name",
            path, text_of(meta, "model"), text_of(meta, "fingerprint"), c->model->name,
            c->model->fingerprint);
        goto done;
    }
    if (!(msgs = read_section(r, SEC_MESSAGES, err)) ||
        !(time_bytes = read_section(r, SEC_TIMELINE, err)) || !check_kv(r, err))
        goto done;
    struct codec_cursor cur = {.p = msgs, .n = (size_t)r->sections[SEC_MESSAGES].length};
    uint32_t n_vocab = c->model->hp.n_vocab;
    if (!codec_messages(&cur, &fresh, n_vocab)) {
        damaged(r, "its messages cannot be read", err);
        goto done;
    }
    cur = (struct codec_cursor){.p = time_bytes, .n = (size_t)r->sections[SEC_TIMELINE].length};
    if (!codec_ids(&cur, cur.n / 4, n_vocab, &timeline) || cur.n != 0) {
        damaged(r, "its token timeline cannot be read", err);
        goto done;
    }
    fresh.now = number_of(meta, "now");
    fresh.first_kept = (size_t)number_of(meta, "first_kept");
    if (number_of(meta, "dropped") < 0) {
        damaged(r, "it has dropped less than nothing", err);
        goto done;
    }
    fresh.system_merged = json_is_true(json_object_get(meta, "system_merged"));
    if (!check_conversation(r, &fresh, err))
        goto done;
    if (accept && !accept(user, json_object_get(meta, "settings"), err)) {
        error_prefix(err, "%s", path);
        goto done;
    }
    out->template_changed = number_of(meta, "template_crc") != template_crc(c) ||
                            json_is_true(json_object_get(meta, "plain")) != !c->tmpl;
    kv_mismatch(r, meta, e, timeline.len, out->kv_reason, sizeof out->kv_reason);
    size_t n_kv = out->kv_reason[0] ? 0 : (size_t)number_of(meta, "kv_positions");
    if (out->kv_reason[0])
        out->kv = SESSION_KV_STALE;
    else
        out->kv = n_kv > 0 ? SESSION_KV_RESTORED : SESSION_KV_NONE;
    // The last token may be sampled and not yet evaluated.
    if (timeline.len > n_kv + 1 || timeline.len > e->n_ctx || out->kv == SESSION_KV_STALE)
        timeline.len = n_kv;
    // Only now does something change; when it fails the memory is empty and is filled when needed.
    if (!import_kv(r, c->session.seq, &timeline, n_kv, err))
        goto done;
    conversation_take_messages(c, &fresh);
    c->session.stats = (struct session_stats){.n_dropped = (size_t)number_of(meta, "dropped")};
    out->seconds = clock_now() - start;
    ok = true;
done:
    if (r->fd >= 0)
        close(r->fd);
    fresh.tmpl = NULL;
    conversation_release(&fresh);
    ids_release(&timeline);
    json_decref(meta);
    free(msgs);
    free(time_bytes);
    free(r);
    return ok;
}

void session_info_release(struct session_info *i)
{
    free(i->model_path);
    free(i->template_text);
    *i = (struct session_info){0};
}

bool session_file_info(const char *path, struct session_info *out, struct error *err)
{
    struct reader *r = calloc(1, sizeof *r);
    json_t *meta = NULL;
    if (!r)
        return error_oom(err, "the reader of a session", sizeof *r);
    r->fd = -1;
    bool ok = reader_open(r, path, err) && (meta = read_meta(r, err)) != NULL;
    if (ok) {
        *out = (struct session_info){.turns = (size_t)number_of(meta, "turns"),
                                     .tokens = (size_t)number_of(meta, "tokens"),
                                     .saved_at = number_of(meta, "saved_at")};
        snprintf(out->model, sizeof out->model, "%s", text_of(meta, "model"));
        snprintf(out->device, sizeof out->device, "%s", text_of(meta, "device"));
        snprintf(out->kv_format, sizeof out->kv_format, "%s", text_of(meta, "kv_format"));
        int64_t n_ctx = number_of(meta, "n_ctx");
        out->n_ctx = n_ctx > 0 && n_ctx <= INT32_MAX ? (uint32_t)n_ctx : 0;
        if (*text_of(meta, "model_path"))
            out->model_path = strdup(text_of(meta, "model_path"));
        if (!json_is_true(json_object_get(meta, "plain")))
            out->template_text = strdup(text_of(meta, "template"));
    }
    json_decref(meta);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
    return ok;
}
