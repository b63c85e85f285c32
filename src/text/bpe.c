#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/utf8.h"
#include "base/hash.h"

#define EMPTY UINT64_MAX

static bool stands_for_itself(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

// The others in order: 0x00-0x20, 0x7F-0xA0, 0xAD.
static uint32_t byte_char(unsigned char b)
{
    if (stands_for_itself(b))
        return b;
    if (b <= 0x20)
        return 0x100 + b;
    if (b == 0xAD)
        return 0x100 + 33 + 34;
    return 0x100 + 33 + (b - 0x7Fu);
}

// The UTF-8 of the character that stands for a byte, see bpe_char_to_byte; returns its length.
static size_t bpe_byte_to_char(unsigned char byte, char out[2])
{
    uint32_t c = byte_char(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}

int bpe_char_to_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    uint32_t k = cp - 0x100;
    if (k <= 0x20)
        return (int)k;
    if (k < 33 + 34)
        return (int)(0x7F + k - 33);
    return k == 33 + 34 ? 0xAD : -1;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint64_t pair_slot(const struct bpe *b, uint64_t key)
{
    return hash_u64(key, b->vocab->seed) & b->mask;
}

uint32_t bpe_find_pair(const void *ctx, const char *text, const struct piece *left,
                       const struct piece *right, int32_t *id)
{
    (void)text;
    const struct bpe *b = ctx;
    uint64_t key = pair_key(left->id, right->id);
    for (uint64_t i = pair_slot(b, key);; i = (i + 1) & b->mask) {
        const struct bpe_pair *p = &b->pairs[i];
        if (p->key == key) {
            *id = p->id;
            return p->rank;
        }
        if (p->key == EMPTY)
            return MERGE_NONE;
    }
}

static bool bad_merge(struct error *err, uint64_t i, struct gguf_str s, const char *why)
{
    char shown[FORMAT_TEXT];
    return error_set(err, ERR_MODEL,
                     "tokenizer.ggml.merges[%llu] is \"%s\": %s; expected two tokens of the "
                     "vocabulary, separated by one space, that join into a third",
                     (unsigned long long)i, format_text(shown, sizeof shown, s.data, s.len), why);
}

// One merge on its way through the two passes of a block.
struct pending {
    struct gguf_str part[3]; // left, right, joined
    uint64_t hash[3];
    int32_t id[3];
    bool plain; // none of the three is a control token
};

// Splits "left right"; the space may not be the first byte. joined gets both parts.
static bool split_merge(struct gguf_str s, struct pending *p, char *joined)
{
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL;
    if (!space)
        return false;
    p->part[0] = (struct gguf_str){s.data, (size_t)(space - s.data)};
    p->part[1] = (struct gguf_str){space + 1, s.len - p->part[0].len - 1};
    memcpy(joined, s.data, p->part[0].len);
    memcpy(joined + p->part[0].len, p->part[1].data, p->part[1].len);
    p->part[2] = (struct gguf_str){joined, s.len - 1};
    return p->part[1].len > 0;
}

static void insert_pair(struct bpe *b, const int32_t id[3], uint32_t rank)
{
    uint64_t key = pair_key(id[0], id[1]);
    uint64_t i = pair_slot(b, key);
    for (; b->pairs[i].key != EMPTY; i = (i + 1) & b->mask)
        if (b->pairs[i].key == key)
            return; // said twice: the first, better rank counts
    b->pairs[i] = (struct bpe_pair){key, rank, id[2]};
}

static bool load_merges(struct bpe *b, const struct gguf_array *a, char *joined, struct error *err)
{
    enum { BLOCK = 16 };
    const struct vocab *v = b->vocab;
    struct pending block[BLOCK];
    size_t cursor = 0;
    for (uint64_t begin = 0; begin < a->count; begin += BLOCK) {
        uint64_t n = a->count - begin < BLOCK ? a->count - begin : BLOCK;
        // Three random accesses per merge: ask for a whole block of them before using the first.
        for (uint64_t i = 0; i < n; i++) {
            struct gguf_str s;
            if (!gguf_array_next_str(a, &cursor, &s))
                return error_set(err, ERR_MODEL,
                                 "tokenizer.ggml.merges ends after %llu of the %llu it announces",
                                 (unsigned long long)(begin + i), (unsigned long long)a->count);
            if (s.len > v->max_len + 1)
                return bad_merge(err, begin + i, s, "longer than every token");
            if (!split_merge(s, &block[i], joined + i * (v->max_len + 1)))
                return bad_merge(err, begin + i, s, "no two parts");
            for (int k = 0; k < 3; k++) {
                struct gguf_str part = block[i].part[k];
                block[i].hash[k] = vocab_hash(v, part.data, part.len);
                vocab_prefetch(v, block[i].hash[k]);
            }
        }
        for (uint64_t i = 0; i < n; i++) {
            int32_t *id = block[i].id;
            block[i].plain = true;
            for (int k = 0; k < 3; k++) {
                struct gguf_str part = block[i].part[k];
                id[k] = vocab_find_hashed(v, part.data, part.len, block[i].hash[k]);
                if (id[k] < 0) {
                    static const char *const why[] = {"the left part is no token",
                                                      "the right part is no token",
                                                      "what they join into is no token"};
                    struct gguf_str whole = {block[i].part[0].data, block[i].part[2].len + 1};
                    return bad_merge(err, begin + i, whole, why[k]);
                }
                block[i].plain = block[i].plain && vocab_is_plain(v, id[k]);
            }
            __builtin_prefetch(&b->pairs[pair_slot(b, pair_key(id[0], id[1]))], 1);
        }
        // Text must not become a control token by merging, whatever the file says.
        for (uint64_t i = 0; i < n; i++)
            if (block[i].plain)
                insert_pair(b, block[i].id, (uint32_t)(begin + i));
    }
    return true;
}

bool bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, int32_t unk,
              struct error *err)
{
    *b = (struct bpe){.vocab = v};
    struct gguf_array a = {0};
    if (!gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRING, &a, err))
        return false;
    if (a.count > UINT32_MAX / 8)
        return error_set(err, ERR_MODEL, "tokenizer.ggml.merges holds %llu merges, expected <= %u",
                         (unsigned long long)a.count, UINT32_MAX / 8);
    for (int i = 0; i < 256; i++) {
        char c[2];
        size_t n = bpe_byte_to_char((unsigned char)i, c);
        int32_t id = vocab_find(v, c, n);
        b->byte_id[i] = vocab_is_plain(v, id) ? id : unk;
    }
    uint64_t cap = 64;
    while (cap < a.count + a.count / 2)
        cap *= 2;
    bool ok = false;
    char *joined = malloc(16 * (v->max_len + 1));
    b->pairs = malloc(cap * sizeof *b->pairs);
    if (!joined || !b->pairs) {
        error_oom(err, "the table of merges", cap * sizeof *b->pairs);
    } else {
        memset(b->pairs, 0xFF, cap * sizeof *b->pairs);
        b->mask = cap - 1;
        ok = load_merges(b, &a, joined, err);
    }
    free(joined);
    if (!ok)
        bpe_release(b);
    return ok;
}

void bpe_release(struct bpe *b)
{
    if (!b)
        return;
    free(b->pairs);
    *b = (struct bpe){0};
}

// *id: the token whose text is exactly this word, -1.
static bool whole_word(const struct bpe *b, const char *word, size_t n, int32_t *id,
                       struct error *err)
{
    char local[512];
    *id = -1;
    if (n == 0 || n > b->vocab->max_len)
        return true;
    char *text = n > sizeof local / 2 ? malloc(2 * n) : local;
    if (!text)
        return error_oom(err, "a word", 2 * n);
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += bpe_byte_to_char((unsigned char)word[i], text + len);
    const int32_t found = vocab_find(b->vocab, text, len);
    if (vocab_is_plain(b->vocab, found))
        *id = found;
    if (text != local)
        free(text);
    return true;
}

// The tokens of the first stretch of word[0..n): *used bytes of it.
static bool merge_stretch(const struct bpe *b, struct merger *m, const char *word, size_t n_word,
                          size_t *used, struct ids *out, struct error *err)
{
    size_t n = n_word < merger_stretch(m) ? n_word : merger_stretch(m);
    if (!merger_reserve(m, n))
        return error_oom(err, "the pieces of a word", n * sizeof(struct piece));
    for (size_t i = 0; i < n; i++) {
        int32_t byte_id = b->byte_id[(unsigned char)word[i]];
        if (byte_id < 0)
            return error_set(err, ERR_FAIL,
                             "the model's vocabulary has no token for byte 0x%02X of the text and "
                             "no unknown token",
                             (unsigned char)word[i]);
        m->pieces[i] = (struct piece){.begin = (uint32_t)i, .n = 1, .id = byte_id};
    }
    size_t n_out = merger_run(m, n, word, bpe_find_pair, b);
    if (merger_interrupted(m, err))
        return false;
    if (n && !n_out)
        return error_oom(err, "the merges of a word", n * 3 * sizeof(uint64_t));
    n_out = merger_settled(m, n_out, n, n < n_word);
    if (!ids_reserve(out, n_out))
        return error_oom(err, "token ids", n_out * sizeof(int32_t));
    for (size_t i = 0; i < n_out; i++)
        out->data[out->len++] = m->pieces[i].id;
    *used = m->pieces[n_out - 1].begin + m->pieces[n_out - 1].n;
    return true;
}

static bool merge_word(const struct bpe *b, struct merger *m, const char *word, size_t n,
                       struct ids *out, struct error *err)
{
    int32_t id = -1;
    if (b->ignore_merges && !whole_word(b, word, n, &id, err))
        return false;
    if (id >= 0)
        return ids_push(out, id) || error_oom(err, "token ids", sizeof id);
    for (size_t at = 0, used = 0; at < n; at += used)
        if (!merge_stretch(b, m, word + at, n - at, &used, out, err))
            return false;
    return true;
}

bool bpe_encode_word(const struct bpe *b, struct merger *m, struct wordcache *cache,
                     const char *word, size_t n, struct ids *out, struct error *err)
{
    uint16_t tag = 0;
    struct wordcache_entry *e = wordcache_at(cache, word, n, &tag);
    if (e && wordcache_hit(e, tag, word, n)) {
        if (ids_append(out, e->ids, e->n_ids))
            return true;
        return error_oom(err, "token ids", e->n_ids * sizeof(int32_t));
    }
    size_t before = out->len;
    if (!merge_word(b, m, word, n, out, err))
        return false;
    if (e)
        wordcache_store(e, tag, word, n, out->data + before, out->len - before);
    return true;
}
