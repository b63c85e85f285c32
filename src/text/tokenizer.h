// A model's own tokenizer, built from its GGUF metadata: byte-level BPE ("gpt2") or SentencePiece
// ("llama"). Immutable after creation; safe to share between threads as long as each uses its own
// scratch (encode allocates its own). No Unicode normalisation is applied: a GGUF carries none.
//
// A byte-level BPE file without tokenizer.ggml.pre is read with the pattern named "default", as
// every other program reads it; an unknown name is an error. Malformed UTF-8 counts as U+FFFD when
// the text falls into words, and still gives the tokens of its bytes. Which characters are letters
// or digits is what the installed PCRE2 says: characters younger than its Unicode version are
// neither.
#ifndef HOKKU_TEXT_TOKENIZER_H
#define HOKKU_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"
#include "gguf/gguf.h"

struct tokenizer; // opaque

enum token_kind { // numbers as stored in tokenizer.ggml.token_type
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

// Reads tokenizer.* of g (borrowed; must outlive the tokenizer). Errors: ERR_MODEL (unknown
// tokenizer.ggml.model or .pre is named together with those that work), ERR_MEMORY.
struct tokenizer *tokenizer_create(const struct gguf *g, struct error *err);
void tokenizer_free(struct tokenizer *t); // NULL is fine
// Whether it is of a kind that can be created, and of how many tokens: in no time, the vocabulary
// is only counted. Errors: ERR_MODEL, as above.
bool tokenizer_knows(const struct gguf *g, uint64_t *n_vocab, struct error *err);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
const char *tokenizer_model(const struct tokenizer *t); // "gpt2" or "llama"
const char *
tokenizer_pre(const struct tokenizer *t); // pre-tokenizer name, "" when the model has none

// Special ids, -1 when the model has none.
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
// True for every id that ends a turn or a text: EOS, EOT, EOM (metadata, and the well-known names
// such as
// <|im_end|>, <|eot_id|>, <|end|>, <|endoftext|>, <end_of_turn> when they are control tokens).
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
// All of them, ascending; *n of them.
const int32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *n);
// Those that the file says never to sample (tokenizer.ggml.suppress_tokens), ascending; *n of them.
enum { TOKENIZER_MAX_SUPPRESSED = 32 };
const int32_t *tokenizer_suppressed(const struct tokenizer *t, size_t *n);
bool tokenizer_add_bos(const struct tokenizer *t); // what the metadata asks for
bool tokenizer_add_eos(const struct tokenizer *t);
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);
// The token's text as stored in the vocabulary (BPE: still in the byte-to-unicode alphabet). id
// must be in range.
struct gguf_str tokenizer_text(const struct tokenizer *t, int32_t id);
// The id of a token with exactly this vocabulary text, or -1.
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

// Whether b has the tokens of a: their bytes, kinds and numbers, those that begin and end a text.
// One may have more unused ones at its end. Errors: ERR_MODEL: what b has, and was expected to.
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, struct error *err);

struct tokenize_options {
    bool bos; // prepend BOS if the metadata says so (and the text does not already begin with it)
    bool eos; // append EOS if the metadata says so
    // Control tokens written as text ("<|im_end|>") become control tokens: nowhere (NULL and
    // special = false), everywhere (special = true), or only where every byte of them has
    // special_mask[i] != 0 (n bytes, as the text). User-defined tokens are always matched.
    bool special;
    const unsigned char *special_mask;
    // Continue after other tokens: no space prefix (SentencePiece) at the start.
    bool continuation;
    const struct cancel *cancel; // ends it with ERR_INTERRUPTED; NULL: nothing does
    // Ends it with ERR_CONTEXT when out has, or is certain to get, more ids than this, long before
    // the whole text is split; 0: nothing does.
    size_t most;
};

// Appends the ids of text[0..n) (any bytes, NUL included) to out. Time is linear in n. Errors:
// ERR_MEMORY, ERR_FAIL (text that the pre-tokenizer pattern cannot match), ERR_INTERRUPTED,
// ERR_CONTEXT (most).
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                      const struct tokenize_options *opt, struct ids *out, struct error *err);

// Appends the bytes of one token. Control tokens give nothing unless `special`; a byte token gives
// its byte; in SentencePiece U+2581 becomes a space. The result need not be whole UTF-8: use the
// streaming detokenizer below.
bool tokenizer_decode_one(const struct tokenizer *t, int32_t id, bool special, struct buf *out);

// Streaming detokenizer: feed ids, get text that never ends inside a UTF-8 sequence.
struct detok {
    const struct tokenizer *tok; // borrowed
    bool special;                // control tokens print their text
    bool strip_space; // SentencePiece: drop one leading space of the very first token (set for a
                      // text's beginning)
    char held[8];
    size_t n_held;
};

// Appends what can be shown after id. Bytes that form no valid UTF-8 pass through as they are.
bool detok_push(struct detok *d, int32_t id, struct buf *out);
// Appends whatever is still held (an incomplete sequence at the end of an answer).
bool detok_flush(struct detok *d, struct buf *out);

#endif
