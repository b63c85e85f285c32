#include "text/spm.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/hash.h"

#define ADJACENT_BITS (1u << 21)

int spm_byte_value(struct gguf_str t)
{
    static const char digits[] = "0123456789ABCDEF";
    if (t.len != 6 || memcmp(t.data, "<0x", 3) != 0 || t.data[5] != '>')
        return -1;
    const char *hi = memchr(digits, t.data[3], 16), *lo = memchr(digits, t.data[4], 16);
    return hi && lo ? (int)((hi - digits) * 16 + (lo - digits)) : -1;
}

// Length of the character at s; a byte that begins none stands alone, in a token and in the text.
static size_t char_len(const char *s, size_t n)
{
    if ((unsigned char)*s < 0x80)
        return 1;
    uint32_t cp;
    size_t len = utf8_decode(s, n, &cp);
    return len ? len : 1;
}

// The bit for two characters standing next to each other.
static uint64_t adjacent_bit(const char *a, size_t n_a, const char *b, size_t n_b)
{
    uint64_t x = 0;
    memcpy(&x, a, n_a);
    memcpy((char *)&x + 4, b, n_b);
    return hash_u64(x, 0x8CB92BA72F3D8DD7u) % ADJACENT_BITS;
}

// BYTE tokens do not arise by merging either: their text stands for something else.
static bool mergeable(const struct vocab *v, int32_t id)
{
    return vocab_is_plain(v, id) && v->kind[id] != TOKEN_BYTE;
}

static void note_adjacent(struct spm *s, struct gguf_str t)
{
    size_t prev = 0, n_prev = 0;
    for (size_t i = 0, k; i < t.len; i += k) {
        k = char_len(t.data + i, t.len - i);
        if (i) {
            uint64_t bit = adjacent_bit(t.data + prev, n_prev, t.data + i, k);
            s->adjacent[bit / 64] |= 1ull << bit % 64;
        }
        prev = i;
        n_prev = k;
    }
}

bool spm_init(struct spm *s, const struct vocab *v, const struct bpe *merges, int32_t unk,
              struct error *err)
{
    *s = (struct spm){.vocab = v, .merges = merges};
    if (!v->score && !merges)
        return error_set(err, ERR_MODEL,
                         "tokenizer.ggml.scores is missing: a SentencePiece vocabulary needs it");
    for (int i = 0; i < 256; i++) {
        char text[8] = {'<', '0', 'x', "0123456789ABCDEF"[i / 16], "0123456789ABCDEF"[i % 16], '>'};
        int32_t id = vocab_find(v, text, 6);
        if (id < 0) { // vocabularies without byte tokens: the character itself, if it is one
            char c = (char)i;
            id = vocab_find(v, &c, 1);
        }
        s->byte_id[i] = vocab_is_plain(v, id) ? id : unk;
    }
    s->adjacent = calloc(ADJACENT_BITS / 64, sizeof *s->adjacent);
    if (!s->adjacent)
        return error_oom(err, "the tokenizer's table of neighbours", ADJACENT_BITS / 8);
    for (uint32_t i = 0; i < v->n; i++)
        if (mergeable(v, (int32_t)i))
            note_adjacent(s, v->text[i]);
    return true;
}

void spm_release(struct spm *s)
{
    if (!s)
        return;
    free(s->adjacent);
    *s = (struct spm){0};
}

// Higher scores first: the order of floats as the reverse order of integers.
static uint32_t score_rank(float score)
{
    uint32_t u;
    score += 0.0f; // -0 equals 0
    memcpy(&u, &score, sizeof u);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    u = ~u;
    return u == MERGE_NONE ? MERGE_NONE - 1 : u;
}

static uint32_t find_joined(const void *ctx, const char *text, const struct piece *left,
                            const struct piece *right, int32_t *id)
{
    const struct spm *s = ctx;
    int32_t t = vocab_find(s->vocab, text + left->begin, (size_t)left->n + right->n);
    if (!mergeable(s->vocab, t))
        return MERGE_NONE;
    *id = t;
    return score_rank(s->vocab->score[t]);
}

static uint32_t find_merge(const void *ctx, const char *text, const struct piece *left,
                           const struct piece *right, int32_t *id)
{
    const struct spm *s = ctx;
    uint32_t rank = bpe_find_pair(s->merges, text, left, right, id);
    return rank != MERGE_NONE && mergeable(s->vocab, *id) ? rank : MERGE_NONE;
}

// Whether text[0..n), which ends where no token reaches across, is a token for being line breaks.
static int32_t line_breaks(const struct spm *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != '\n')
            return -1;
    int32_t id = s->merges ? vocab_find(s->vocab, text, n) : -1;
    return mergeable(s->vocab, id) ? id : -1;
}

static bool push_bytes(const struct spm *s, const char *text, size_t n, struct ids *out,
                       struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = s->byte_id[(unsigned char)text[i]];
        if (id < 0)
            return error_set(err, ERR_FAIL,
                             "the model's vocabulary has no token for byte 0x%02X of the text and "
                             "no unknown token",
                             (unsigned char)text[i]);
        if (!ids_push(out, id))
            return error_oom(err, "token ids", sizeof id);
    }
    return true;
}

// Tokens of n characters that may merge with one another; pieces[0..n) hold their places in text,
// n_bytes of it. cut_off: the last of them may merge with the next one. *used: bytes that the
// tokens stand for.
static bool encode_run(const struct spm *s, struct merger *m, size_t n, const char *text,
                       size_t n_bytes, bool cut_off, size_t *used, struct ids *out,
                       struct error *err)
{
    size_t begin = m->pieces[0].begin, n_out;
    int32_t breaks = cut_off ? -1 : line_breaks(s, text + begin, n_bytes);
    if (breaks >= 0) {
        *used = n_bytes;
        return ids_push(out, breaks) || error_oom(err, "token ids", sizeof breaks);
    }
    n_out = merger_run(m, n, text, s->merges ? find_merge : find_joined, s);
    if (merger_interrupted(m, err))
        return false;
    if (n && !n_out)
        return error_oom(err, "the merges of a text", n * 3 * sizeof(uint64_t));
    n_out = merger_settled(m, n_out, n_bytes, cut_off);
    *used = m->pieces[n_out - 1].begin + m->pieces[n_out - 1].n - begin;
    for (size_t i = 0; i < n_out; i++) {
        const struct piece *p = &m->pieces[i];
        int32_t id = p->id;
        if (id < 0) { // still a single character
            id = vocab_find(s->vocab, text + p->begin, p->n);
            if (!mergeable(s->vocab, id)) {
                if (!push_bytes(s, text + p->begin, p->n, out, err))
                    return false;
                continue;
            }
        }
        if (!ids_push(out, id))
            return error_oom(err, "token ids", sizeof id);
    }
    return true;
}

// Puts the characters of text[begin..n) that may merge with one another into pieces; *end is where
// they end, *cut_off that they might go on: the stretch is full, or the text ends but is not the
// last of it. Returns how many there are, 0 when out of memory.
static size_t gather_run(const struct spm *s, struct merger *m, const char *text, size_t n,
                         size_t begin, bool last, size_t *end, bool *cut_off)
{
    // Where no token holds two neighbouring characters side by side, nothing can merge across: the
    // text falls apart there, mostly into words, which can be remembered.
    size_t at = begin, n_pieces = 0;
    *cut_off = false;
    for (;;) {
        size_t k = char_len(text + at, n - at), next = at + k;
        if (!merger_reserve(m, n_pieces + 1))
            return 0;
        int32_t id = s->merges ? vocab_find(s->vocab, text + at, k) : -1;
        m->pieces[n_pieces++] = (struct piece){
            .begin = (uint32_t)at, .n = (uint32_t)k, .id = mergeable(s->vocab, id) ? id : -1};
        *end = next;
        if (next >= n) {
            *cut_off = !last;
            break;
        }
        uint64_t bit = adjacent_bit(text + at, k, text + next, char_len(text + next, n - next));
        if (!(s->adjacent[bit / 64] >> bit % 64 & 1) ||
            (s->merges && (text[at] == '\n') != (text[next] == '\n')))
            break;
        if (n_pieces == merger_stretch(m)) {
            *cut_off = true;
            break;
        }
        at = next;
    }
    return n_pieces;
}

bool spm_encode(const struct spm *s, struct merger *m, struct wordcache *cache, const char *text,
                size_t n, bool last, size_t *used, struct ids *out, struct error *err)
{
    for (*used = 0; *used < n;) {
        size_t begin = *used, end;
        bool cut_off;
        size_t n_pieces = gather_run(s, m, text, n, begin, last, &end, &cut_off);
        if (n_pieces == 0)
            return error_oom(err, "the pieces of a text", (m->cap + 1) * sizeof(struct piece));
        if (cut_off && n_pieces < merger_stretch(m))
            return true; // to be gone on with when more of the text is there
        uint16_t tag = 0;
        struct wordcache_entry *e =
            cut_off ? NULL : wordcache_at(cache, text + begin, end - begin, &tag);
        size_t len = end - begin;
        if (e && wordcache_hit(e, tag, text + begin, len)) {
            if (!ids_append(out, e->ids, e->n_ids))
                return error_oom(err, "token ids", e->n_ids * sizeof(int32_t));
        } else {
            size_t before = out->len;
            if (!encode_run(s, m, n_pieces, text, end - begin, cut_off, &len, out, err))
                return false;
            if (e)
                wordcache_store(e, tag, text + begin, len, out->data + before, out->len - before);
        }
        *used = begin + len;
    }
    return true;
}
