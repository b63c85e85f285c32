// The public face: what a GGUF's metadata asks for, and how a text falls into special tokens and
// the stretches between them.
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

enum { SPM_PIECE = 1 << 20 }; // bytes of a text that are copied at once

// Ids that files use for "none".
#define NO_ID UINT32_MAX

static bool get_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id,
                   struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    uint32_t u = NO_ID;
    // -1 is a way to say none, too.
    bool minus_one = kv && kv->v.i == -1 &&
                     (kv->type == GGUF_INT8 || kv->type == GGUF_INT16 || kv->type == GGUF_INT32 ||
                      kv->type == GGUF_INT64);
    if (!kv)
        return true;
    if (!minus_one && !gguf_get_u32(g, key, false, &u, err))
        return false;
    if (u != NO_ID && u >= t->vocab.n)
        return error_set(err, ERR_MODEL, "%s is %u, expected an id below the %u tokens", key, u,
                         t->vocab.n);
    *id = u == NO_ID ? -1 : (int32_t)u;
    return true;
}

// The first of the names that is a token which text cannot become by itself, -1.
static int32_t find_control(const struct tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = vocab_find(&t->vocab, *names, strlen(*names));
        if (id >= 0 && !vocab_is_plain(&t->vocab, id))
            return id;
    }
    return -1;
}

// Tokens that end a turn or a text in some family, whatever kind the file gives them: a conversion
// that forgot to mark them must not let typed text end a turn.
static const char *const end_names[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<｜end▁of▁sentence｜>",
    NULL,
};
// More names that are markup and never text.
static const char *const markup_names[] = {
    "<|im_start|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<fim_prefix>",
    "<fim_middle>",
    "<fim_suffix>",
    "<fim_pad>",
    "<start_of_turn>",
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁end｜>",
    NULL,
};

// Marks that part a model's thinking from its answer. Nobody can type them, but what was generated
// cannot be read without them: they are shown though they are control tokens.
static const char *const answer_marks[] = {
    "<think>",
    "</think>",
    "<seed:think>",
    "</seed:think>",
    "[THINK]",
    "[/THINK]",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|inner_prefix|>",
    "<|inner_suffix|>",
    "<|channel>",
    "<channel|>",
    NULL,
};
// gpt-oss writes several messages in one answer: what ends one of them does not end the answer.
static const char *const message_marks[] = {"<|channel|>", "<|message|>", "<|start|>", "<|end|>",
                                            NULL};

static void show_marks(struct tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = vocab_find(&t->vocab, *names, strlen(*names));
        if (id >= 0)
            t->is_mark[id] = 1;
    }
}

static void mark_control(struct tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = vocab_find(&t->vocab, *names, strlen(*names));
        if (id >= 0)
            t->vocab.kind[id] = TOKEN_CONTROL;
    }
}

// More tokens that end an answer. Those of fill-in-the-middle come where what was to be filled in
// is complete, and another file would begin.
enum { N_MORE_ENDS = 5 };
static const char *const more_end_keys[N_MORE_ENDS] = {
    "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
};

static bool load_special_ids(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char *const bos_names[] = {"<s>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>",
                                            NULL};
    static const char *const eos_names[] = {"</s>", "<|end_of_text|>", "<｜end▁of▁sentence｜>",
                                            "<|endoftext|>", NULL};
    static const char *const unk_names[] = {"<unk>", NULL};
    int32_t more[N_MORE_ENDS] = {-1, -1, -1, -1, -1};
    mark_control(t, end_names);
    mark_control(t, markup_names);
    t->bos = find_control(t, bos_names);
    t->eos = find_control(t, eos_names);
    t->unk = find_control(t, unk_names);
    if (!get_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err) ||
        !get_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err) ||
        !get_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, err))
        return false;
    for (size_t i = 0; i < N_MORE_ENDS; i++)
        if (!get_id(t, g, more_end_keys[i], &more[i], err))
            return false;

    // Text that no token covers becomes the unknown token; never a control token, though some files
    // name their end of text here.
    if (t->unk >= 0 && t->vocab.kind[t->unk] == TOKEN_CONTROL)
        t->unk = -1;

    t->is_end = calloc(t->vocab.n, 1);
    t->is_mark = calloc(t->vocab.n, 1);
    if (!t->is_end || !t->is_mark)
        return error_oom(err, "the table of end tokens", t->vocab.n);
    if (t->eos >= 0)
        t->is_end[t->eos] = 1;
    for (size_t i = 0; i < N_MORE_ENDS; i++)
        if (more[i] >= 0)
            t->is_end[more[i]] = 1;
    for (const char *const *name = end_names; *name; name++) {
        int32_t id = vocab_find(&t->vocab, *name, strlen(*name));
        if (id >= 0)
            t->is_end[id] = 1;
    }
    show_marks(t, answer_marks);
    int32_t end = vocab_find(&t->vocab, "<|end|>", 7);
    if (end >= 0 && end != t->eos && vocab_find(&t->vocab, "<|channel|>", 11) >= 0 &&
        vocab_find(&t->vocab, "<|return|>", 10) >= 0) {
        show_marks(t, message_marks);
        t->is_end[end] = 0;
    }
    for (uint32_t i = 0; i < t->vocab.n; i++)
        if (t->is_end[i] && !ids_push(&t->ends, (int32_t)i))
            return error_oom(err, "the list of end tokens", t->ends.len * sizeof i);
    return true;
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool load_suppressed(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.suppress_tokens";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return true;
    if (kv->type != GGUF_ARRAY || (kv->v.a.type != GGUF_INT32 && kv->v.a.type != GGUF_UINT32))
        return error_set(err, ERR_MODEL, "%s is no array of token ids", key);
    if (kv->v.a.count > TOKENIZER_MAX_SUPPRESSED)
        return error_set(err, ERR_MODEL, "%s has %llu ids, expected at most %d", key,
                         (unsigned long long)kv->v.a.count, TOKENIZER_MAX_SUPPRESSED);
    for (size_t i = 0; i < kv->v.a.count; i++) {
        const int64_t id = gguf_array_i64(&kv->v.a, i);
        if (id < 0 || id >= t->vocab.n)
            return error_set(err, ERR_MODEL, "%s has %lld, expected ids below the %u tokens", key,
                             (long long)id, t->vocab.n);
        if (!ids_push(&t->suppressed, (int32_t)id))
            return error_oom(err, "the list of suppressed tokens", i * sizeof(int32_t));
    }
    if (t->suppressed.len > 0)
        qsort(t->suppressed.data, t->suppressed.len, sizeof(int32_t), by_id);
    return true;
}

static bool load_rules(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    t->add_bos = t->is_spm || pretokenizer_add_bos(t->pre);
    t->add_space_prefix = t->is_spm && !t->has_merges;
    if (!gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &t->add_bos, err) ||
        !gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &t->add_eos, err) ||
        !gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &t->add_space_prefix, err))
        return false;
    if (t->add_bos && t->bos < 0 && gguf_find(g, "tokenizer.ggml.add_bos_token"))
        return error_set(err, ERR_MODEL,
                         "tokenizer.ggml.add_bos_token is true but the file names no BOS token; "
                         "expected tokenizer.ggml.bos_token_id");
    if (t->add_eos && t->eos < 0)
        return error_set(err, ERR_MODEL,
                         "tokenizer.ggml.add_eos_token is true but the file names no EOS token; "
                         "expected tokenizer.ggml.eos_token_id");
    t->add_bos = t->add_bos && t->bos >= 0;
    return true;
}

static bool get_pre(const struct gguf *g, struct gguf_str *pre, struct error *err)
{
    // A file without the key was converted before pre-tokenizers had names. Everyone reads those
    // with the pattern called "default", so the ids are what other programs give.
    *pre = (struct gguf_str){"default", 7};
    return gguf_get_str(g, "tokenizer.ggml.pre", false, pre, err);
}

static bool load_kind(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_str model = {0};
    char shown[FORMAT_TEXT];
    if (!gguf_get_str(g, "tokenizer.ggml.model", true, &model, err))
        return false;
    t->has_merges = model.len == 6 && !memcmp(model.data, "gemma4", 6);
    t->is_spm = t->has_merges || (model.len == 5 && !memcmp(model.data, "llama", 5));
    if (!t->is_spm && !(model.len == 4 && !memcmp(model.data, "gpt2", 4)))
        return error_set(err, ERR_MODEL,
                         "tokenizer.ggml.model is \"%s\", expected one of gpt2 (byte-level BPE), "
                         "llama (SentencePiece), gemma4 (SentencePiece with merges)",
                         format_text(shown, sizeof shown, model.data, model.len));
    return true;
}

bool tokenizer_knows(const struct gguf *g, uint64_t *n_vocab, struct error *err)
{
    struct tokenizer t = {0};
    struct gguf_str pre;
    struct gguf_array tokens = {0};
    if (!load_kind(&t, g, err) ||
        (!t.is_spm && (!get_pre(g, &pre, err) || !pretokenizer_knows(pre.data, pre.len, err))) ||
        !gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err))
        return false;
    *n_vocab = tokens.count;
    return true;
}

static bool init(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_str pre;
    if (!load_kind(t, g, err) || (!t->is_spm && !get_pre(g, &pre, err)))
        return false;
    t->pre = t->is_spm ? NULL : pretokenizer_create(pre.data, pre.len, err);
    if (!t->is_spm && !t->pre)
        return false;
    if (!vocab_init(&t->vocab, g, err) || !load_special_ids(t, g, err) || !load_rules(t, g, err) ||
        !load_suppressed(t, g, err) || !special_init(&t->special, &t->vocab, err))
        return false;
    if ((t->has_merges || !t->is_spm) && !bpe_init(&t->bpe, &t->vocab, g, t->unk, err))
        return false;
    if (t->is_spm)
        return spm_init(&t->spm, &t->vocab, t->has_merges ? &t->bpe : NULL, t->unk, err);
    t->bpe.ignore_merges = pretokenizer_ignore_merges(t->pre);
    return true;
}

struct tokenizer *tokenizer_create(const struct gguf *g, struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        error_oom(err, "the tokenizer", sizeof *t);
        return NULL;
    }
    if (!init(t, g, err)) {
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->is_end);
    free(t->is_mark);
    ids_release(&t->ends);
    ids_release(&t->suppressed);
    spm_release(&t->spm);
    bpe_release(&t->bpe);
    pretokenizer_free(t->pre);
    special_release(&t->special);
    vocab_release(&t->vocab);
    free(t);
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->vocab.n;
}

const char *tokenizer_model(const struct tokenizer *t)
{
    return t->has_merges ? "gemma4" : t->is_spm ? "llama" : "gpt2";
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre ? pretokenizer_name(t->pre) : "";
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

const int32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *n)
{
    *n = t->ends.len;
    return t->ends.data;
}

const int32_t *tokenizer_suppressed(const struct tokenizer *t, size_t *n)
{
    *n = t->suppressed.len;
    return t->suppressed.data;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n && t->is_end[id];
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_add_eos(const struct tokenizer *t)
{
    return t->add_eos;
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n ? (enum token_kind)t->vocab.kind[id] : TOKEN_UNUSED;
}

struct gguf_str tokenizer_text(const struct tokenizer *t, int32_t id)
{
    return t->vocab.text[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
    return vocab_find(&t->vocab, text, len);
}

// One call of encode: what it needs besides the tokenizer.
struct encoder {
    const struct tokenizer *t;
    struct merger merger;
    struct wordcache cache;
    struct buf work; // a stretch of text as the algorithm wants it
    struct ids *out;
    size_t most;                         // ids in out
    const char *original, *original_end; // the text from its next byte on, when words come from a
                                         // repaired copy
};

// n: bytes that are still to come.
static bool too_many(const struct encoder *e, size_t n, struct error *err)
{
    const size_t longest = e->t->vocab.max_len > 4 ? e->t->vocab.max_len : 4;
    return (e->out->len > e->most || n / longest > e->most - e->out->len) &&
           !error_set(err, ERR_CONTEXT, "the text takes more than %zu tokens", e->most);
}

static bool bpe_word(void *ctx, const char *word, size_t n, struct error *err)
{
    struct encoder *e = ctx;
    return !merger_interrupted(&e->merger, err) && !too_many(e, n, err) &&
           bpe_encode_word(&e->t->bpe, &e->merger, &e->cache, word, n, e->out, err);
}

// The same for a word of a text in which malformed bytes were shown to the patterns as U+FFFD: the
// tokens are those of the bytes as they are, so that decoding gives them back.
static bool bpe_repaired_word(void *ctx, const char *word, size_t n, struct error *err)
{
    struct encoder *e = ctx;
    const char *begin = e->original;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t shown = utf8_decode(word + i, n - i, &cp);
        // A whole U+FFFD of the original equals its image; a lone byte never does.
        bool same = (size_t)(e->original_end - e->original) >= shown &&
                    !memcmp(e->original, word + i, shown);
        e->original += same ? shown : 1;
        i += shown;
    }
    return bpe_word(e, begin, (size_t)(e->original - begin), err);
}

static bool encode_bpe(struct encoder *e, const char *text, size_t n, struct error *err)
{
    if (utf8_valid(text, n))
        return pretokenizer_split(e->t->pre, text, n, bpe_word, e, err);
    buf_clear(&e->work);
    if (!buf_append_utf8(&e->work, text, n))
        return error_oom(err, "a copy of the text", e->work.len + n);
    e->original = text;
    e->original_end = text + n;
    return pretokenizer_split(e->t->pre, e->work.data, e->work.len, bpe_repaired_word, e, err);
}

// By pieces: the copy with U+2581 for spaces would be three times as long as a text of spaces.
static bool encode_spm(struct encoder *e, const char *text, size_t n, bool prefix,
                       struct error *err)
{
    buf_clear(&e->work);
    if (prefix)
        buf_puts(&e->work, SPM_SPACE);
    for (size_t i = 0; i < n;) {
        size_t end = n - i < SPM_PIECE ? n : i + SPM_PIECE;
        while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80 && end - i < SPM_PIECE + 4)
            end++; // no character is cut
        while (i < end) {
            const char *space = memchr(text + i, ' ', end - i);
            size_t stop = space ? (size_t)(space - text) : end;
            buf_append(&e->work, text + i, stop - i);
            if (space)
                buf_puts(&e->work, SPM_SPACE);
            i = stop + (space != NULL);
        }
        size_t used;
        if (too_many(e, n - i, err))
            return false;
        if (e->work.failed)
            return error_oom(err, "a copy of the text", 3 * (unsigned long long)SPM_PIECE);
        if (!spm_encode(&e->t->spm, &e->merger, &e->cache, e->work.data, e->work.len, i == n, &used,
                        e->out, err))
            return false;
        e->work.len -= used;
        memmove(e->work.data, e->work.data + used, e->work.len);
    }
    return true;
}

// A stretch without special tokens. after_special: it begins a text or follows a special token.
static bool encode_plain(struct encoder *e, const char *text, size_t n, bool after_special,
                         struct error *err)
{
    if (too_many(e, n, err))
        return false;
    if (n == 0)
        return true;
    if (e->t->is_spm)
        return encode_spm(e, text, n, after_special && e->t->add_space_prefix, err);
    return encode_bpe(e, text, n, err);
}

static bool encode_all(struct encoder *e, const char *text, size_t n,
                       const struct tokenize_options *opt, struct special_matches *found,
                       struct error *err)
{
    const struct tokenizer *t = e->t;
    size_t at = 0, pos = 0;
    int32_t last = -1;
    if (!special_next(&t->special, text, n, opt->special, opt->special_mask, opt->cancel, &at,
                      found, err))
        return false;
    bool begins_with_bos = found->n && found->data[0].begin == 0 && found->data[0].id == t->bos;
    if (opt->bos && t->add_bos && !begins_with_bos && !ids_push(e->out, t->bos))
        return error_oom(err, "token ids", sizeof(int32_t));
    bool after_special = !opt->continuation;
    while (found->n) {
        for (size_t i = 0; i < found->n; i++) {
            struct special_match m = found->data[i];
            if (!encode_plain(e, text + pos, m.begin - pos, after_special, err))
                return false;
            if (!ids_push(e->out, m.id))
                return error_oom(err, "token ids", sizeof(int32_t));
            after_special = true;
            last = m.id;
            pos = m.begin + m.len;
        }
        if (!special_next(&t->special, text, n, opt->special, opt->special_mask, opt->cancel, &at,
                          found, err))
            return false;
    }
    if (!encode_plain(e, text + pos, n - pos, after_special, err))
        return false;
    bool ends_with_eos = last >= 0 && pos == n && last == t->eos;
    if (opt->eos && t->add_eos && !ends_with_eos && !ids_push(e->out, t->eos))
        return error_oom(err, "token ids", sizeof(int32_t));
    return true;
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                      const struct tokenize_options *opt, struct ids *out, struct error *err)
{
    struct encoder e = {.t = t, .out = out, .merger.cancel = opt->cancel};
    e.most = opt->most > 0 ? opt->most : SIZE_MAX;
    struct special_matches found = {0};
    wordcache_init(&e.cache, n);
    bool ok = encode_all(&e, text, n, opt, &found, err);
    special_matches_release(&found);
    wordcache_release(&e.cache);
    merger_release(&e.merger);
    buf_release(&e.work);
    return ok;
}
