#include "dialog/session_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/settings.h"

bool codec_put_u32(struct buf *b, uint32_t v)
{
    unsigned char p[4] = {v & 0xFF, v >> 8 & 0xFF, v >> 16 & 0xFF, v >> 24};
    return buf_append(b, p, 4);
}

bool codec_put_u64(struct buf *b, uint64_t v)
{
    return codec_put_u32(b, (uint32_t)v) && codec_put_u32(b, (uint32_t)(v >> 32));
}

static bool put_f32(struct buf *b, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return codec_put_u32(b, bits);
}

bool codec_put_ids(struct buf *b, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        codec_put_u32(b, (uint32_t)ids[i]);
    return !b->failed;
}

const void *codec_bytes(struct codec_cursor *c, size_t n)
{
    if (c->failed || n > c->n) {
        c->failed = true;
        return NULL;
    }
    const void *p = c->p;
    c->p += n;
    c->n -= n;
    return p;
}

uint32_t codec_u32(struct codec_cursor *c)
{
    const unsigned char *p = codec_bytes(c, 4);
    return p ? p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24 : 0;
}

uint64_t codec_u64(struct codec_cursor *c)
{
    uint64_t low = codec_u32(c);
    return low | (uint64_t)codec_u32(c) << 32;
}

static float read_f32(struct codec_cursor *c)
{
    uint32_t bits = codec_u32(c);
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

bool codec_ids(struct codec_cursor *c, size_t n, uint32_t n_vocab, struct ids *out)
{
    if (n > c->n / 4)
        return !(c->failed = true);
    if (!ids_reserve(out, n))
        return !(c->failed = c->no_memory = true);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = codec_u32(c);
        if (c->failed || id >= n_vocab)
            return !(c->failed = true);
        ids_push(out, (int32_t)id);
    }
    return true;
}

// A size that counts things in memory: anything larger than the file could hold is impossible.
static size_t small(struct codec_cursor *c, uint64_t limit)
{
    uint64_t v = codec_u64(c);
    if (v > limit)
        c->failed = true;
    return c->failed ? 0 : (size_t)v;
}

static uint32_t choice(struct codec_cursor *c, uint32_t last)
{
    uint32_t v = codec_u32(c);
    if (v > last)
        c->failed = true;
    return c->failed ? 0 : v;
}

static float number(struct codec_cursor *c)
{
    float v = read_f32(c);
    if (isnan(v))
        c->failed = true;
    return v;
}

// Message: u32 role, u32 flags (1 end token, 2 partial), u64 text length, text; for an answer also
// u64 prefill ids, u64 thinking begin, end, u64 answer begin, u64 ids, ids, u64 runs, runs.
enum { FLAG_END_TOKEN = 1, FLAG_PARTIAL = 2 };

static void put_sampler(struct buf *b, const struct sampler_settings *s)
{
    codec_put_u64(b, s->seed);
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++) {
        const void *at = (const char *)s + sampler_numbers[i].offset;
        if (sampler_numbers[i].whole)
            codec_put_u32(b, *(const uint32_t *)at);
        else
            put_f32(b, *(const float *)at);
    }
    codec_put_u32(b, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias && i < SAMPLER_MAX_BIAS; i++) {
        codec_put_u32(b, (uint32_t)s->bias[i].id);
        put_f32(b, s->bias[i].bias);
    }
    buf_append(b, s->chain, sizeof s->chain);
}

static void get_sampler(struct codec_cursor *c, struct sampler_settings *s, uint32_t n_vocab)
{
    *s = (struct sampler_settings){0};
    s->seed = codec_u64(c);
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++) {
        void *at = (char *)s + sampler_numbers[i].offset;
        if (sampler_numbers[i].whole)
            *(int32_t *)at = (int32_t)codec_u32(c);
        else
            *(float *)at = number(c);
    }
    s->n_bias = choice(c, SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        s->bias[i].id = (int32_t)choice(c, n_vocab - 1);
        s->bias[i].bias = number(c);
    }
    const unsigned char *chain = codec_bytes(c, sizeof s->chain);
    for (size_t i = 0; chain && i < sizeof s->chain; i++) {
        s->chain[i] = chain[i];
        if (chain[i] > SAMPLER_TEMPERATURE)
            c->failed = true;
    }
    if (s->chain[SAMPLER_MAX_CHAIN - 1] != SAMPLER_END)
        c->failed = true;
}

// In the place of ignore_eos, which no constrained run has.
enum { RUN_CONSTRAINED = 2 };
// In the place of OVERFLOW_SHIFT: the same, and how long the context was follows.
enum { OVERFLOW_SHIFT_IN = 3 };

static void put_run(struct buf *b, const struct answer_run *r)
{
    codec_put_u64(b, r->first_id);
    codec_put_u32(b, r->constrained ? RUN_CONSTRAINED : r->ignore_eos);
    codec_put_u32(b, r->think);
    const bool told = r->overflow == OVERFLOW_SHIFT && r->n_ctx > 0;
    codec_put_u32(b, told ? (uint32_t)OVERFLOW_SHIFT_IN : r->overflow);
    if (told)
        codec_put_u64(b, r->n_ctx);
    codec_put_u64(b, r->first_kept);
    codec_put_u64(b, r->n_keep);
    codec_put_u32(b, r->finish);
    codec_put_u64(b, r->prefix_hash);
    put_sampler(b, &r->sampler);
}

static void get_run(struct codec_cursor *c, struct answer_run *r, size_t n_ids, size_t n_before,
                    uint32_t n_vocab)
{
    r->first_id = small(c, n_ids);
    uint32_t end = choice(c, RUN_CONSTRAINED);
    r->ignore_eos = end == 1;
    r->constrained = end == RUN_CONSTRAINED;
    r->think = (enum think)choice(c, THINK_HIDE);
    uint32_t overflow = choice(c, OVERFLOW_SHIFT_IN);
    const bool told = overflow == OVERFLOW_SHIFT_IN;
    r->overflow = told ? OVERFLOW_SHIFT : (enum overflow)overflow;
    r->n_ctx = told ? small(c, INT32_MAX) : 0;
    c->failed = c->failed || (told && r->n_ctx == 0);
    r->first_kept = small(c, n_before);
    r->n_keep = small(c, UINT32_MAX);
    r->finish = (enum finish)choice(c, FINISH_INTERRUPTED);
    r->prefix_hash = codec_u64(c);
    get_sampler(c, &r->sampler, n_vocab);
    struct error ignored;
    c->failed = c->failed || !sampler_check_numbers(&r->sampler, &ignored) ||
                !sampler_check(&r->sampler, n_vocab, &ignored);
}

bool codec_put_message(struct buf *b, const struct message *m)
{
    codec_put_u32(b, m->role);
    codec_put_u32(b, (m->has_end_token ? FLAG_END_TOKEN : 0) |
                         (m->partial ? (uint32_t)FLAG_PARTIAL : 0));
    codec_put_u64(b, m->text.len);
    buf_append(b, buf_str(&m->text), m->text.len);
    if (m->role != ROLE_ASSISTANT)
        return !b->failed;
    codec_put_u64(b, m->n_prefill);
    codec_put_u64(b, m->thinking_at);
    codec_put_u64(b, m->thinking_end);
    codec_put_u64(b, m->answer_at);
    codec_put_u64(b, m->ids.len);
    codec_put_ids(b, m->ids.data, m->ids.len);
    codec_put_u64(b, m->n_runs);
    for (size_t k = 0; k < m->n_runs; k++)
        put_run(b, &m->runs[k]);
    return !b->failed;
}

bool codec_put_messages(struct buf *b, const struct conversation *c)
{
    codec_put_u64(b, c->n_messages);
    for (size_t i = 0; i < c->n_messages; i++)
        codec_put_message(b, &c->messages[i]);
    return !b->failed;
}

static bool get_message(struct codec_cursor *c, struct message *m, size_t index, uint32_t n_vocab)
{
    m->role = (enum role)choice(c, ROLE_ASSISTANT);
    uint32_t flags = choice(c, FLAG_END_TOKEN | FLAG_PARTIAL);
    m->has_end_token = flags & FLAG_END_TOKEN;
    m->partial = flags & FLAG_PARTIAL;
    size_t n_text = small(c, c->n);
    const void *text = codec_bytes(c, n_text);
    if (!text)
        return false;
    if (!buf_append(&m->text, text, n_text))
        return !(c->no_memory = true);
    if (m->role != ROLE_ASSISTANT)
        return !c->failed && flags == 0 && (m->role == ROLE_USER || index == 0);
    m->n_prefill = small(c, c->n);
    m->thinking_at = small(c, n_text);
    m->thinking_end = small(c, n_text);
    m->answer_at = small(c, n_text);
    if (!codec_ids(c, small(c, c->n), n_vocab, &m->ids))
        return false;
    if (m->n_prefill > m->ids.len || m->thinking_at > m->thinking_end ||
        (m->has_end_token && m->ids.len == 0))
        return false;
    size_t n_runs = small(c, c->n / 64);
    m->runs = n_runs ? calloc(n_runs, sizeof *m->runs) : NULL;
    if (n_runs && !m->runs)
        return !(c->no_memory = true);
    for (; m->n_runs < n_runs && !c->failed; m->n_runs++) {
        struct answer_run *r = &m->runs[m->n_runs];
        get_run(c, r, m->ids.len, index, n_vocab);
        size_t least = m->n_runs == 0 ? m->n_prefill : r[-1].first_id + 1;
        if (r->first_id < least || r->first_id >= m->ids.len)
            return false;
    }
    return !c->failed;
}

bool codec_messages(struct codec_cursor *c, struct conversation *conv, uint32_t n_vocab)
{
    size_t n = small(c, c->n / 16);
    if (c->failed || n_vocab == 0)
        return false;
    conv->messages = calloc(n + 1, sizeof *conv->messages);
    if (!conv->messages)
        return !(c->no_memory = true);
    conv->cap = n + 1;
    for (size_t i = 0; i < n; i++) {
        conv->n_messages = i + 1;
        if (!get_message(c, &conv->messages[i], i, n_vocab))
            return false;
    }
    conv->has_system = n > 0 && conv->messages[0].role == ROLE_SYSTEM;
    return !c->failed && c->n == 0;
}

size_t codec_kv_bytes(const struct engine *e, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i += SESSION_KV_PIECE) {
        size_t bytes = engine_kv_bytes(e, i, n - i < SESSION_KV_PIECE ? n : i + SESSION_KV_PIECE);
        if (bytes > SIZE_MAX - sum)
            return SIZE_MAX;
        sum += bytes;
    }
    return sum;
}
