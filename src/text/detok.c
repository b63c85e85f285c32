// Token ids back to bytes, and the streaming detokenizer that cuts only between UTF-8 sequences.
#include <string.h>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/spm.h"
#include "text/tokenizer_impl.h"

static bool decode_bpe(struct gguf_str s, struct buf *out)
{
    for (size_t i = 0, k; i < s.len; i += k) {
        uint32_t cp = 0;
        k = utf8_decode(s.data + i, s.len - i, &cp);
        int byte = k ? bpe_char_to_byte(cp) : -1;
        if (k == 0)
            k = 1;
        // A character outside the alphabet can only stand for itself.
        if (byte >= 0 ? !buf_putc(out, (char)byte) : !buf_append(out, s.data + i, k))
            return false;
    }
    return true;
}

static bool decode_spm(struct gguf_str s, struct buf *out)
{
    for (size_t i = 0; i < s.len;) {
        bool space = s.len - i >= 3 && !memcmp(s.data + i, SPM_SPACE, 3);
        if (!buf_putc(out, space ? ' ' : s.data[i]))
            return false;
        i += space ? 3 : 1;
    }
    return true;
}

bool tokenizer_decode_one(const struct tokenizer *t, int32_t id, bool special, struct buf *out)
{
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return true; // rows of the model beyond its vocabulary have no text
    struct gguf_str s = t->vocab.text[id];
    switch (t->vocab.kind[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
    case TOKEN_UNUSED:
        return !(special || t->is_mark[id]) || buf_append(out, s.data, s.len);
    case TOKEN_USER_DEFINED:
        return buf_append(out, s.data, s.len);
    case TOKEN_BYTE: {
        int byte = spm_byte_value(s);
        if (byte >= 0)
            return buf_putc(out, (char)byte);
        break;
    }
    default:
        break;
    }
    return t->is_spm ? decode_spm(s, out) : decode_bpe(s, out);
}

// Moves everything but an incomplete last sequence from work to out.
static bool release_whole(struct detok *d, struct buf *work, struct buf *out)
{
    size_t tail = utf8_incomplete_tail(buf_str(work), work->len);
    bool ok = buf_append(out, work->data, work->len - tail);
    if (ok && tail)
        memcpy(d->held, work->data + work->len - tail, tail);
    if (ok)
        d->n_held = tail;
    return ok;
}

bool detok_push(struct detok *d, int32_t id, struct buf *out)
{
    struct buf work = {0};
    bool ok = buf_append(&work, d->held, d->n_held) &&
              tokenizer_decode_one(d->tok, id, d->special, &work);
    if (ok && d->strip_space && work.len > 0) {
        d->strip_space = false;
        if (d->tok->is_spm && d->tok->add_space_prefix && work.data[0] == ' ') {
            memmove(work.data, work.data + 1, work.len - 1);
            work.len--;
        }
    }
    ok = ok && release_whole(d, &work, out);
    buf_release(&work);
    return ok;
}

bool detok_flush(struct detok *d, struct buf *out)
{
    bool ok = buf_append(out, d->held, d->n_held);
    if (ok)
        d->n_held = 0;
    return ok;
}
