// The first version of the session's file, read only: a header with a table, then four sections.
//   0  "HOKKUSES"
//   8  u32 version, u32 number of sections
//  16  u64 length of the file
//  24  per section: 4 bytes tag, u32 CRC-32 of its bytes, u64 offset, u64 length
//  ..  u32 CRC-32 of everything before
#include <stdlib.h>
#include <string.h>

#include "dialog/crc32.h"
#include "dialog/session_codec.h"
#include "dialog/session_log.h"
#include "dialog/session_parts.h"

enum { SEC_META, SEC_MESSAGES, SEC_TIMELINE, SEC_KV, N_SECTIONS };
static const char tags[N_SECTIONS][5] = {"META", "MSGS", "TIME", "KVCH"};
static const char *const section_names[N_SECTIONS] = {"description", "messages", "token timeline",
                                                      "KV cache"};
enum { ENTRY = 24, HEADER = 24 + N_SECTIONS * ENTRY + 4 };

struct section {
    uint32_t crc;
    uint64_t offset, length;
};

struct reader {
    const char *path;
    int fd;
    uint64_t size;
    struct crc32 crc;
    struct section sections[N_SECTIONS];
};

static bool read_header(struct reader *r, struct error *err)
{
    unsigned char h[HEADER];
    if (r->size < HEADER)
        return log_damaged(r->path, "the file ends in its header", err);
    if (!log_read_at(r->fd, r->path, 0, h, sizeof h, err))
        return false;
    struct codec_cursor cur = {.p = h + 12, .n = HEADER - 16}, end = {.p = h + HEADER - 4, .n = 4};
    crc32_add(&r->crc, h, HEADER - 4);
    uint32_t sum = crc32_take(&r->crc), n_sections = codec_u32(&cur);
    uint64_t size = codec_u64(&cur), at = HEADER;
    if (codec_u32(&end) != sum || n_sections != N_SECTIONS)
        return log_damaged(r->path, "the header's checksum is wrong", err);
    if (size != r->size)
        return log_damaged(r->path, "its length is not what the header says (cut off?)", err);
    for (int i = 0; i < N_SECTIONS; i++) {
        const void *tag = codec_bytes(&cur, 4);
        struct section *s = &r->sections[i];
        s->crc = codec_u32(&cur);
        s->offset = codec_u64(&cur);
        s->length = codec_u64(&cur);
        if (!tag || memcmp(tag, tags[i], 4) != 0 || s->offset != at || s->length > r->size - at)
            return log_damaged(r->path, "the header's table is wrong", err);
        at += s->length;
    }
    return at == r->size || log_damaged(r->path, "bytes after the last section", err);
}

static bool wrong_checksum(const struct reader *r, int i, struct error *err)
{
    char what[80];
    snprintf(what, sizeof what, "the checksum of the %s is wrong", section_names[i]);
    return log_damaged(r->path, what, err);
}

static bool read_section(struct reader *r, int i, struct buf *out, struct error *err)
{
    const struct section *s = &r->sections[i];
    if (!buf_reserve(out, (size_t)s->length + 1))
        return error_oom(err, "a part of a session", s->length);
    if (!log_read_at(r->fd, r->path, s->offset, out->data, (size_t)s->length, err))
        return false;
    out->len = (size_t)s->length;
    out->data[out->len] = '\0';
    crc32_add(&r->crc, out->data, out->len);
    return crc32_take(&r->crc) == s->crc || wrong_checksum(r, i, err);
}

// A KV cache can be larger than memory has room for twice: it is checked piece by piece.
static bool check_kv(struct reader *r, struct error *err)
{
    enum { PIECE = 1 << 20 };
    const struct section *s = &r->sections[SEC_KV];
    unsigned char *p = malloc(PIECE);
    bool ok = p || error_oom(err, "a part of a session", PIECE);
    for (uint64_t at = 0; ok && at < s->length; at += PIECE) {
        size_t n = s->length - at < PIECE ? (size_t)(s->length - at) : PIECE;
        ok = log_read_at(r->fd, r->path, s->offset + at, p, n, err);
        if (ok)
            crc32_add(&r->crc, p, n);
    }
    if (crc32_take(&r->crc) != s->crc && ok)
        ok = wrong_checksum(r, SEC_KV, err);
    free(p);
    return ok;
}

// Pieces of 512 positions, one after the other. A length that does not fit leaves one piece that no
// engine takes.
static bool find_pieces(struct session_parts *p, const struct reader *r, const struct engine *e,
                        struct error *err)
{
    int64_t n = json_integer_value(json_object_get(p->meta, "kv_positions"));
    const struct section *s = &r->sections[SEC_KV];
    if (n < 0 || (uint64_t)n > p->timeline.len)
        return log_damaged(r->path, "it has a KV cache of more tokens than it has", err);
    p->pieces = calloc((size_t)n / SESSION_KV_PIECE + 2, sizeof *p->pieces);
    if (!p->pieces)
        return error_oom(err, "the list of a session's KV", (size_t)n);
    uint64_t at = s->offset, last = (uint64_t)n;
    bool fits = n <= e->n_ctx && codec_kv_bytes(e, (size_t)n) == s->length;
    for (uint64_t i = 0; fits && i < last; i += SESSION_KV_PIECE) {
        uint64_t end = last - i < SESSION_KV_PIECE ? last : i + SESSION_KV_PIECE;
        uint64_t bytes = engine_kv_bytes(e, (size_t)i, (size_t)end);
        p->pieces[p->n_pieces++] = (struct kv_piece){i, end, end, at, bytes, 0, true};
        at += bytes;
    }
    if (!fits && n > 0)
        p->pieces[p->n_pieces++] = (struct kv_piece){0, last, last, at, s->length, 0, true};
    return true;
}

bool session_v1_read(struct session_parts *p, int fd, const char *path, enum session_want want,
                     const struct engine *e, struct error *err)
{
    struct reader *r = calloc(1, sizeof *r);
    struct buf text = {0};
    if (!r)
        return error_oom(err, "the reader of a session", sizeof *r);
    *r = (struct reader){.path = path, .fd = fd, .size = p->size};
    crc32_init(&r->crc);
    bool ok = read_header(r, err) && read_section(r, SEC_META, &text, err) &&
              session_parts_meta(p, path, buf_str(&text), text.len, err);
    if (ok) {
        const char *tmpl = json_string_value(json_object_get(p->meta, "template"));
        ok = buf_puts(&p->tmpl, tmpl ? tmpl : "") || error_oom(err, "a chat template", 0);
    }
    if (ok && want >= WANT_MESSAGES)
        ok = read_section(r, SEC_MESSAGES, &p->messages, err);
    if (ok && want == WANT_ALL) {
        buf_clear(&text);
        ok = read_section(r, SEC_TIMELINE, &text, err) && check_kv(r, err);
        struct codec_cursor c = {.p = (unsigned char *)buf_str(&text), .n = text.len};
        if (ok && (!codec_ids(&c, c.n / 4, INT32_MAX, &p->timeline) || c.n != 0))
            ok = log_unreadable(path, &c, "its token timeline cannot be read", err);
        ok = ok && find_pieces(p, r, e, err);
    }
    if (ok && p->tmpl.failed)
        ok = error_oom(err, "a session", p->size);
    buf_release(&text);
    free(r);
    return ok;
}
