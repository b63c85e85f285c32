#include "dialog/session_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_text.h"
#include "dialog/session_codec.h"
#include "dialog/session_log.h"

enum { MAX_TEMPLATE = 16 << 20 };

// What a description may say; a key that is not there is one that an older program did not know.
static const struct {
    const char *key;
    json_type type;       // JSON_TRUE: a truth value
    int64_t least, most;  // of a number
    const char *words[3]; // that a text must be one of
} keys[] = {
    {"program", JSON_STRING, 0, 0, {0}},
    {"model", JSON_STRING, 0, 0, {0}},
    {"model_path", JSON_STRING, 0, 0, {0}},
    {"fingerprint", JSON_STRING, 0, 0, {0}},
    {"weights", JSON_STRING, 0, 0, {0}},
    {"device", JSON_STRING, 0, 0, {0}},
    {"kv_format", JSON_STRING, 0, 0, {0}},
    {"kv_positions", JSON_INTEGER, 0, INT64_MAX, {0}},
    {"n_ctx", JSON_INTEGER, 1, INT32_MAX, {0}},
    {"exact", JSON_TRUE, 0, 0, {0}},
    {"cache_type_k", JSON_STRING, 0, 0, {"f16", "q8_0"}},
    {"cache_type_v", JSON_STRING, 0, 0, {"f16", "q8_0"}},
    {"template_crc", JSON_INTEGER, 0, UINT32_MAX, {0}},
    {"plain", JSON_TRUE, 0, 0, {0}},
    {"special", JSON_TRUE, 0, 0, {0}},
    {"now", JSON_INTEGER, INT64_MIN, INT64_MAX, {0}},
    {"saved_at", JSON_INTEGER, INT64_MIN, INT64_MAX, {0}},
    {"turns", JSON_INTEGER, 0, INT64_MAX, {0}},
    {"tokens", JSON_INTEGER, 0, INT64_MAX, {0}},
    {"first_kept", JSON_INTEGER, 0, INT64_MAX, {0}},
    {"dropped", JSON_INTEGER, 0, INT64_MAX, {0}},
    {"system_merged", JSON_TRUE, 0, 0, {0}},
    {"settings", JSON_OBJECT, 0, 0, {0}},
};

static bool can_be(const json_t *v, size_t i)
{
    const char *const *words = keys[i].words;
    if (keys[i].type == JSON_TRUE)
        return json_is_boolean(v);
    if (json_typeof(v) != keys[i].type)
        return false;
    if (json_is_integer(v))
        return json_integer_value(v) >= keys[i].least && json_integer_value(v) <= keys[i].most;
    for (size_t k = 0; words[k]; k++)
        if (strcmp(json_string_value(v), words[k]) == 0)
            return true;
    return !words[0];
}

static void put_expected(struct buf *b, size_t i)
{
    const char *const *words = keys[i].words;
    if (words[0])
        buf_printf(b, "\"%s\" or \"%s\"", words[0], words[1]);
    else if (keys[i].type == JSON_TRUE)
        buf_puts(b, "true or false");
    else if (keys[i].type == JSON_STRING)
        buf_puts(b, "a text");
    else if (keys[i].type == JSON_OBJECT)
        buf_puts(b, "an object");
    else if (keys[i].least == INT64_MIN)
        buf_puts(b, "a whole number");
    else if (keys[i].most == INT64_MAX)
        buf_printf(b, "a whole number of at least %lld", (long long)keys[i].least);
    else
        buf_printf(b, "a whole number from %lld to %lld", (long long)keys[i].least,
                   (long long)keys[i].most);
}

static bool impossible(const char *path, const json_t *v, size_t i, struct error *err)
{
    struct buf what = {0};
    char *found = json_line(v, JSON_ENSURE_ASCII);
    buf_printf(&what, "%s of its description is %.80s, expected ", keys[i].key,
               found ? found : "?");
    put_expected(&what, i);
    log_damaged(path, buf_str(&what), err);
    free(found);
    buf_release(&what);
    return false;
}

static bool check_meta(const json_t *meta, const char *path, struct error *err)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(meta, keys[i].key);
        if (v && !can_be(v, i))
            return impossible(path, v, i, err);
    }
    return true;
}

bool session_parts_meta(struct session_parts *p, const char *path, const char *text, size_t n,
                        struct error *err)
{
    json_error_t why = {0};
    p->meta = n <= SESSION_META ? json_read(text, n, 0, &why) : NULL;
    if (!p->meta && json_no_memory(&why))
        return error_oom(err, "the description of a session", n);
    if (!json_is_object(p->meta))
        return log_damaged(path, "its description is no JSON object of at most 4 MiB", err);
    return check_meta(p->meta, path, err);
}

// Appends a record's bytes to out.
static bool payload(const struct log_file *f, const struct log_record *r, const char *what,
                    struct buf *out, struct error *err)
{
    bool good;
    if (!buf_reserve(out, (size_t)r->length + 1))
        return error_oom(err, "a part of a session", r->length);
    if (!log_file_payload(f, r, out->data + out->len, &good, err))
        return false;
    if (!good) {
        char text[80];
        snprintf(text, sizeof text, "the checksum of the %s is wrong", what);
        return log_damaged(f->path, text, err);
    }
    out->len += (size_t)r->length;
    out->data[out->len] = '\0';
    return true;
}

// The last record of a kind; NULL: none.
static const struct log_record *last_of(const struct log_file *f, const char *tag)
{
    for (size_t i = f->n_records; i > 0; i--)
        if (strcmp(f->records[i - 1].tag, tag) == 0)
            return &f->records[i - 1];
    return NULL;
}

static bool describe(struct session_parts *p, const struct log_file *f, struct error *err)
{
    const struct log_record *meta = last_of(f, "META"), *tmpl = last_of(f, "TMPL");
    struct buf text = {0};
    if (!meta)
        return log_damaged(f->path, "it has no description", err);
    if (tmpl && tmpl->length > MAX_TEMPLATE)
        return log_damaged(f->path, "its template is too long", err);
    bool ok = payload(f, meta, "description", &text, err) &&
              session_parts_meta(p, f->path, buf_str(&text), text.len, err) &&
              (!tmpl || payload(f, tmpl, "template", &p->tmpl, err));
    buf_release(&text);
    return ok;
}

// Each record replaces the list from its `begin` on.
static bool gather_messages(struct session_parts *p, const struct log_file *f, struct error *err)
{
    const struct log_record **live = calloc(f->n_records + 1, sizeof *live);
    size_t n = 0;
    if (!live)
        return error_oom(err, "the list of a session's messages", f->n_records * sizeof *live);
    bool ok = true;
    for (size_t i = 0; ok && i < f->n_records; i++) {
        const struct log_record *r = &f->records[i];
        if (strcmp(r->tag, "MSGS") != 0)
            continue;
        ok = (r->begin <= n && r->end - r->begin <= 1) ||
             log_damaged(f->path, "its messages are out of order", err);
        n = ok ? (size_t)r->begin : 0;
        if (ok && r->end > r->begin)
            live[n++] = r;
    }
    codec_put_u64(&p->messages, n);
    for (size_t i = 0; ok && i < n; i++)
        ok = payload(f, live[i], "messages", &p->messages, err);
    free(live);
    return ok;
}

// What pieces and states hold from position `at` on counts no more.
static void cut_pieces(struct session_parts *p, uint64_t at)
{
    while (p->n_pieces > 0 && p->pieces[p->n_pieces - 1].begin >= at)
        p->n_pieces--;
    if (p->n_pieces > 0 && p->pieces[p->n_pieces - 1].use > at)
        p->pieces[p->n_pieces - 1].use = at;
    while (p->n_states > 0 && p->states[p->n_states - 1].pos > at)
        p->n_states--;
}

static bool gather_timeline(struct session_parts *p, const struct log_file *f, struct error *err)
{
    struct buf bytes = {0};
    bool ok = true;
    p->pieces = calloc(f->n_records + 1, sizeof *p->pieces);
    p->states = calloc(f->n_records + 1, sizeof *p->states);
    if (!p->pieces || !p->states)
        return error_oom(err, "the list of a session's KV", f->n_records * sizeof *p->pieces);
    for (size_t i = 0; ok && i < f->n_records; i++) {
        const struct log_record *r = &f->records[i];
        uint64_t n = r->end - r->begin;
        if (strcmp(r->tag, "TIME") == 0) {
            ok = (r->begin <= p->timeline.len && r->length % 4 == 0 && n == r->length / 4) ||
                 log_damaged(f->path, "its token timeline is out of order", err);
            buf_clear(&bytes);
            ok = ok && payload(f, r, "token timeline", &bytes, err);
            if (!ok)
                break;
            p->timeline.len = (size_t)r->begin;
            struct codec_cursor c = {.p = (unsigned char *)bytes.data, .n = bytes.len};
            ok = codec_ids(&c, (size_t)n, INT32_MAX, &p->timeline) ||
                 log_unreadable(f->path, &c, "its token timeline cannot be read", err);
            cut_pieces(p, r->begin);
        } else if (strcmp(r->tag, "KVCH") == 0) {
            uint64_t held = p->n_pieces > 0 ? p->pieces[p->n_pieces - 1].use : 0;
            ok = (r->begin == held && n > 0) ||
                 log_damaged(f->path, "its KV cache is out of order", err);
            p->pieces[p->n_pieces++] =
                (struct kv_piece){r->begin, r->end, r->end, r->offset, r->length, r->crc, false};
        } else if (strcmp(r->tag, "STAT") == 0) {
            const uint64_t last = p->n_states > 0 ? p->states[p->n_states - 1].pos : 0;
            ok = (r->begin == r->end && r->begin > last && r->begin <= p->timeline.len) ||
                 log_damaged(f->path, "its recurrent states are out of order", err);
            p->states[p->n_states++] = (struct state_piece){r->begin, r->offset, r->length, r->crc};
        }
    }
    cut_pieces(p, p->timeline.len);
    buf_release(&bytes);
    return ok;
}

static bool read_log(struct session_parts *p, int fd, const char *path, enum session_want want,
                     struct error *err)
{
    struct log_file f;
    if (!log_file_read(&f, fd, path, err))
        return false;
    p->length = f.length;
    p->generation = f.generation;
    p->slot = f.slot;
    p->cut = f.cut;
    bool ok = describe(p, &f, err);
    ok = ok && (want < WANT_MESSAGES || gather_messages(p, &f, err)) &&
         (want < WANT_ALL || gather_timeline(p, &f, err));
    if (ok && (p->messages.failed || p->tmpl.failed))
        ok = error_oom(err, "a session", p->size);
    log_file_release(&f);
    return ok;
}

bool session_parts_read(struct session_parts *p, int fd, const char *path, enum session_want want,
                        const struct engine *e, struct error *err)
{
    unsigned char head[12];
    struct stat st;
    *p = (struct session_parts){0};
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof head)
        return log_damaged(path, "it is not a session, or cut off in its first bytes", err);
    p->size = (uint64_t)st.st_size;
    bool ok = log_read_at(fd, path, 0, head, sizeof head, err);
    struct codec_cursor c = {.p = head + 8, .n = 4};
    uint32_t version = codec_u32(&c);
    if (ok && memcmp(head, log_magic, sizeof log_magic) != 0)
        ok =
            error_set(err, ERR_FAIL,
                      "%s: it begins as no session of hokku does; hokku sessions lists them", path);
    else if (ok && version != 1 && version != LOG_VERSION)
        ok = error_set(err, ERR_FAIL,
                       "%s: session format version %u, this hokku reads versions 1 and %d; use the "
                       "hokku that wrote it",
                       path, version, LOG_VERSION);
    p->version = (int)version;
    ok = ok && (version == 1 ? session_v1_read(p, fd, path, want, e, err)
                             : read_log(p, fd, path, want, err));
    if (!ok)
        session_parts_release(p);
    return ok;
}

void session_parts_release(struct session_parts *p)
{
    json_decref(p->meta);
    buf_release(&p->tmpl);
    buf_release(&p->messages);
    ids_release(&p->timeline);
    free(p->pieces);
    free(p->states);
    *p = (struct session_parts){0};
}
