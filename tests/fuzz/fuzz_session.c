// libFuzzer target: a session file, untrusted, and written on purpose: the input holds its parts
// and the target makes the heads with right lengths and checksums, so that every mutation gets past
// them. Input that begins with 0xFF is a log: records of u8 tag, u8 begin, u8 end, u16 length and
// the bytes. Else it is of version 1: u16 length, then the bytes, of META, MSGS and TIME; the rest
// is KVCH. What is accepted must be a conversation whose parts hang together, with settings that
// the command line takes, and its messages must come out as they went in.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dialog/crc32.h"
#include "engine/settings.h"
#include "term/repl.h"
#include "dialog/session_codec.h"
#include "engine/backend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_VOCAB = 1000, N_CTX = 64, KV = 4, N_SECTIONS = 4 };

static size_t kv_bytes(const struct engine *e, bool near, size_t begin, size_t end)
{
    (void)e;
    return near ? 0 : (end - begin) * KV;
}

static bool kv_import(struct engine *e, const struct seq *s, bool near, size_t begin, size_t end,
                      const void *src, struct error *err)
{
    (void)near, (void)src;
    if (begin != s->n_past || end > e->n_ctx)
        abort();
    return err != NULL;
}

static void check(const struct message *m)
{
    if (m->thinking_end > m->text.len || m->thinking_at > m->thinking_end ||
        m->answer_at > m->text.len || m->n_prefill > m->ids.len ||
        (m->has_end_token && m->ids.len == 0))
        abort();
    for (size_t i = 0; i < m->ids.len; i++) {
        if (m->ids.data[i] < 0 || m->ids.data[i] >= N_VOCAB)
            abort();
    }
    for (size_t i = 0; i < m->n_runs; i++) {
        const struct answer_run *r = &m->runs[i];
        struct error err;
        if (r->first_id >= m->ids.len || (i > 0 && r->first_id <= r[-1].first_id) ||
            !sampler_check(&r->sampler, N_VOCAB, &err) || !sampler_check_numbers(&r->sampler, &err))
            abort();
    }
}

static struct crc32 crc;

static void put_to_disk(const char *path, struct buf *head, struct buf *body)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, head->data, head->len) != (ssize_t)head->len ||
        write(fd, buf_str(body), body->len) != (ssize_t)body->len || close(fd) != 0)
        abort();
    buf_release(head);
    buf_release(body);
}

static uint32_t checksum(const char *p, size_t n)
{
    crc32_add(&crc, p, n);
    return crc32_take(&crc);
}

static void write_log(const char *path, const uint8_t *data, size_t size)
{
    struct buf head = {0}, body = {0};
    while (size >= 5) {
        size_t at = body.len, n = (size_t)data[3] | (size_t)data[4] << 8;
        n = n < size - 5 ? n : size - 5;
        buf_append(&body, &"METATMPLMSGSTIMEKVCHNEWSSTAT"[4 * (data[0] % 7)], 4);
        codec_put_u32(&body, checksum((const char *)data + 5, n));
        codec_put_u64(&body, data[1]);
        codec_put_u64(&body, data[2]);
        codec_put_u64(&body, n);
        codec_put_u32(&body, checksum(body.data + at, 32));
        buf_append(&body, data + 5, n);
        data += 5 + n;
        size -= 5 + n;
    }
    buf_puts(&head, "HOKKUSES");
    codec_put_u64(&head, 2); // version, and four zeros
    for (uint64_t generation = 1; generation <= 2; generation++) {
        size_t at = head.len;
        codec_put_u64(&head, generation);
        codec_put_u64(&head, 64 + body.len);
        codec_put_u64(&head, checksum(head.data + at, 16));
    }
    put_to_disk(path, &head, &body);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    struct buf head = {0}, body = {0};
    if (!crc.table[0][1])
        crc32_init(&crc);
    if (size > 0 && data[0] == 0xFF) {
        write_log(path, data + 1, size - 1);
        return;
    }
    buf_puts(&head, "HOKKUSES");
    codec_put_u32(&head, 1);
    codec_put_u32(&head, N_SECTIONS);
    codec_put_u64(&head, 0); // the length, below
    for (int i = 0; i < N_SECTIONS; i++) {
        size_t n = size;
        if (i + 1 < N_SECTIONS) {
            n = size < 2 ? 0 : (size_t)data[0] | (size_t)data[1] << 8;
            data += size < 2 ? size : 2;
            size -= size < 2 ? size : 2;
            n = n < size ? n : size;
        }
        crc32_add(&crc, data, n);
        buf_append(&head, &"METAMSGSTIMEKVCH"[4 * i], 4);
        codec_put_u32(&head, crc32_take(&crc));
        codec_put_u64(&head, 24 + N_SECTIONS * 24 + 4 + body.len);
        codec_put_u64(&head, n);
        buf_append(&body, data, n);
        data += n;
        size -= n;
    }
    uint64_t length = head.len + 4 + body.len;
    for (int i = 0; i < 8; i++)
        head.data[16 + i] = (char)(length >> 8 * i);
    crc32_add(&crc, head.data, head.len);
    codec_put_u32(&head, crc32_take(&crc));
    put_to_disk(path, &head, &body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct backend backend = {
        .kv_block = 16, .kv_bytes = kv_bytes, .kv_import = kv_import};
    static char dir[64], path[128], name[] = "fuzz", fingerprint[] = "f";
    struct model m = {.name = name, .fingerprint = fingerprint, .hp.n_vocab = N_VOCAB};
    struct engine e = {.model = &m, .device = "fuzz", .kv_format = "fuzz", .n_ctx = N_CTX};
    struct engine_core core;
    struct conversation c = {.model = &m};
    struct options o = {.sampler = sampler_defaults, .state_dir = dir};
    struct session_lock lock = SESSION_LOCK_NONE;
    struct buf note = {0}, warning = {0};
    struct error err = {0};
    if (!*dir) {
        snprintf(dir, sizeof dir, "/tmp/hokku-fuzz-XXXXXX");
        if (!mkdtemp(dir) || !session_lock_take(&lock, dir, "s", &err))
            abort();
        snprintf(path, sizeof path, "%s", buf_str(&lock.path));
        session_lock_release(&lock);
    }
    write_file(path, data, size);
    if (!engine_init(&e, &core, &backend, 1, 1, &err) || !session_init(&c.session, &e, &err))
        abort();
    if (session_open(&lock, "s", &c, &o, false, &note, &warning, &err)) {
        if (!sampler_check(&o.sampler, N_VOCAB, &err) || !sampler_check_numbers(&o.sampler, &err) ||
            o.n_predict < -1 || o.logprobs > ENGINE_MAX_PROBS)
            abort();
        struct buf out = {0};
        struct conversation again = {0};
        for (size_t i = 0; i < c.n_messages; i++)
            check(&c.messages[i]);
        if (!codec_put_messages(&out, &c))
            abort();
        struct codec_cursor cur = {.p = (const unsigned char *)out.data, .n = out.len};
        struct buf twice = {0};
        if (!codec_messages(&cur, &again, N_VOCAB) || !codec_put_messages(&twice, &again) ||
            twice.len != out.len || memcmp(twice.data, out.data, out.len) != 0)
            abort();
        buf_release(&twice);
        buf_release(&out);
        conversation_release(&again);
    } else if (err.code != ERR_FAIL) {
        abort();
    }
    session_lock_release(&lock);
    buf_release(&note);
    buf_release(&warning);
    conversation_release(&c);
    engine_release(&e);
    return 0;
}
