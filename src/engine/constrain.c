#include "engine/constrain.h"

#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

struct constraint *constraint_create(struct grammar *g, const struct grammar_vocab *vocab,
                                     const struct tokenizer *tok, uint32_t n_vocab, bool close,
                                     struct error *err)
{
    struct constraint *c = calloc(1, sizeof *c);
    if (!c) {
        grammar_free(g);
        error_oom(err, "a grammar", sizeof *c);
        return NULL;
    }
    *c = (struct constraint){.grammar = g, .tok = tok, .close = close, .vocab = vocab};
    c->n_words = (n_vocab + 31) / 32;
    c->reserve = 64 + 2 * (uint64_t)grammar_longest(g);
    if (!vocab)
        c->vocab = c->own_vocab = grammar_vocab_create(tok, err);
    if (c->vocab)
        c->matcher = grammar_matcher_create(g, c->vocab, err);
    if (c->matcher)
        return c;
    constraint_free(c);
    return NULL;
}

struct constraint *constraint_share(struct constraint *c, struct error *err)
{
    struct constraint *other = malloc(sizeof *other);
    if (!other) {
        error_oom(err, "a grammar's state", sizeof *other);
        return NULL;
    }
    *other = (struct constraint){.of = c->of ? c->of : c,
                                 .grammar = c->grammar,
                                 .vocab = c->vocab,
                                 .matcher = c->matcher,
                                 .tok = c->tok,
                                 .close = c->close,
                                 .reserve = c->reserve,
                                 .n_words = c->n_words};
    return other;
}

void constraint_free(struct constraint *c)
{
    if (!c)
        return;
    grammar_state_release(&c->state);
    if (!c->of) {
        grammar_matcher_free(c->matcher);
        grammar_vocab_free(c->own_vocab);
        grammar_free(c->grammar);
    }
    buf_release(&c->held);
    free(c);
}

bool constraint_follow(struct constraint *c, const struct constraint *from, struct error *err)
{
    grammar_state_release(&c->state);
    grammar_state_copy(&c->state, &from->state);
    c->part = from->part;
    c->ended = from->ended;
    c->open_tag = from->open_tag;
    c->close_tag = from->close_tag;
    buf_clear(&c->held);
    return buf_append(&c->held, from->held.data, from->held.len) ||
           error_oom(err, "the answer's thinking", from->held.len);
}

void constraint_begin(struct constraint *c, const char *open_tag, const char *close_tag,
                      bool inside)
{
    grammar_state_release(&c->state);
    grammar_state_init(&c->state, c->matcher);
    c->open_tag = open_tag;
    c->close_tag = close_tag;
    c->part = inside ? CONSTRAIN_THINKING : open_tag ? CONSTRAIN_START : CONSTRAIN_ANSWER;
    c->ended = false;
    buf_clear(&c->held);
}

// Text of thinking, and what may follow it in the same token.
static bool think(struct constraint *c, const char *text, size_t n, struct error *err)
{
    size_t n_tag = strlen(c->close_tag), n_taken;
    if (!buf_append(&c->held, text, n))
        return error_oom(err, "the answer's thinking", c->held.len);
    const char *found = memmem(c->held.data, c->held.len, c->close_tag, n_tag);
    if (!found) {
        size_t keep = c->held.len < n_tag ? c->held.len : n_tag - 1;
        memmove(c->held.data, c->held.data + c->held.len - keep, keep);
        c->held.len = keep;
        return true;
    }
    size_t at = (size_t)(found - c->held.data) + n_tag;
    while (at < c->held.len && memchr(blanks, c->held.data[at], sizeof blanks - 1))
        at++;
    c->part = at < c->held.len ? CONSTRAIN_ANSWER : CONSTRAIN_GAP;
    return grammar_accept_bytes(&c->state, c->held.data + at, c->held.len - at, &n_taken, err);
}

bool constraint_text(struct constraint *c, const char *text, size_t n, struct error *err)
{
    if (c->part == CONSTRAIN_START && n > 0) {
        size_t at = strspn(text, blanks), n_tag = strlen(c->open_tag);
        bool opens = n - at >= n_tag && memcmp(text + at, c->open_tag, n_tag) == 0;
        c->part = opens ? CONSTRAIN_THINKING : CONSTRAIN_ANSWER;
        if (opens) {
            text += at + n_tag;
            n -= at + n_tag;
        }
    }
    if (c->part == CONSTRAIN_THINKING)
        return think(c, text, n, err);
    size_t n_taken;
    struct error why = {0};
    if (n == 0 || grammar_accept_bytes(&c->state, text, n, &n_taken, &why))
        return true;
    if (why.code != ERR_FAIL)
        return error_set(err, why.code, "%s", why.text);
    return error_set(
        err, ERR_USAGE,
        "the beginning of the answer obeys the grammar for %zu of its %zu bytes, expected "
        "for all: change --prefill, or the grammar",
        n_taken, n);
}

static void add(const struct constraint *c, int32_t id, uint32_t *allow)
{
    if (id >= 0 && (size_t)id / 32 < c->n_words)
        allow[id / 32] |= 1u << (id % 32);
}

// Bytes of the closing tag with which the thinking ends so far.
static size_t tag_begun(const struct constraint *c)
{
    size_t n = strlen(c->close_tag) - 1;
    n = c->held.len < n ? c->held.len : n;
    while (n > 0 && memcmp(c->held.data + c->held.len - n, c->close_tag, n) != 0)
        n--;
    return n;
}

// The longest token with which the closing tag goes on; -1: none.
static int32_t tag_token(const struct constraint *c, size_t begun)
{
    const char *rest = c->close_tag + begun;
    int32_t id = begun == 0 ? tokenizer_find(c->tok, rest, strlen(rest)) : -1;
    for (size_t n = strlen(rest); id < 0 && n > 0; n--)
        id = grammar_vocab_find(c->vocab, rest, n);
    return id;
}

// Whether a token that begins with rest, or has the whole tag inside, goes on behind it with what
// the grammar has not been asked about.
static bool goes_beyond(const struct constraint *c, const struct buf *text, const char *rest)
{
    const size_t n_tag = strlen(c->close_tag), n_rest = strlen(rest);
    const char *end = text->data + text->len, *at = NULL;
    if (text->len >= n_rest && memcmp(text->data, rest, n_rest) == 0)
        at = text->data + n_rest;
    else if ((at = memmem(text->data, text->len, c->close_tag, n_tag)))
        at += n_tag;
    while (at && at < end && memchr(blanks, *at, sizeof blanks - 1))
        at++;
    return at && at < end;
}

// Takes those tokens from a mask. Such a token is rare, and what begins a tag is, too.
static bool forbid_beyond_tag(struct constraint *c, size_t begun, uint32_t *allow,
                              struct error *err)
{
    struct buf text = {0};
    bool ok = true, found = false;
    struct constraint *all = c->of ? c->of : c; // it holds for every answer
    if (begun == 0 && all->never_beyond == c->close_tag)
        return true;
    for (uint32_t id = 0; ok && id < tokenizer_n_vocab(c->tok); id++) {
        buf_clear(&text);
        ok = tokenizer_decode_one(c->tok, (int32_t)id, true, &text);
        if (!ok || text.len == 0 || !goes_beyond(c, &text, c->close_tag + begun))
            continue;
        found = true;
        if (id / 32 < c->n_words)
            allow[id / 32] &= ~(1u << (id % 32));
    }
    if (begun == 0)
        all->never_beyond = ok && !found ? c->close_tag : NULL;
    buf_release(&text);
    return ok || error_oom(err, "a token's text", text.len);
}

static bool only(const struct constraint *c, int32_t id, uint32_t *allow)
{
    memset(allow, 0, c->n_words * sizeof *allow);
    add(c, id, allow);
    return true;
}

// Anything but the end. needed: tokens that the answer takes at least.
static bool mask_thinking(struct constraint *c, size_t n_left, uint64_t needed, uint32_t *allow,
                          struct error *err)
{
    size_t n, begun = tag_begun(c);
    if (c->close && n_left <= needed + strlen(c->close_tag) + 1) {
        int32_t id = tag_token(c, begun);
        if (id >= 0)
            return only(c, id, allow);
    }
    const int32_t *ends = tokenizer_end_ids(c->tok, &n);
    memset(allow, 0xFF, c->n_words * sizeof *allow);
    for (size_t i = 0; i < n; i++)
        if ((size_t)ends[i] / 32 < c->n_words)
            allow[ends[i] / 32] &= ~(1u << (ends[i] % 32));
    return forbid_beyond_tag(c, begun, allow, err);
}

bool constraint_mask(struct constraint *c, size_t n_left, uint32_t *allow, struct error *err)
{
    // A byte is a token at worst, and the end is one.
    const uint64_t needed = (uint64_t)grammar_distance(&c->state) + 1;
    if (c->part == CONSTRAIN_THINKING)
        return mask_thinking(c, n_left, needed, allow, err);
    if (c->close && n_left <= needed) {
        int32_t id;
        if (!grammar_closing(&c->state, &id, err))
            return false;
        if (id >= 0)
            return only(c, id, allow);
    }
    if (!grammar_mask(&c->state, allow, c->n_words, NULL, err))
        return false;
    // A token may open what needs long to be closed: looked at only where that is near.
    if (c->close && n_left > needed && n_left <= needed + c->reserve &&
        !grammar_keep_near(&c->state, n_left - 2, allow, c->n_words, err))
        return false;
    // Thinking may begin, or a blank line may part it from the answer.
    if (c->part == CONSTRAIN_START && (!c->close || n_left > needed + strlen(c->close_tag) + 2))
        add(c, tokenizer_find(c->tok, c->open_tag, strlen(c->open_tag)), allow);
    if (c->part == CONSTRAIN_GAP && (!c->close || n_left > needed)) {
        add(c, grammar_vocab_find(c->vocab, "\n", 1), allow);
        add(c, grammar_vocab_find(c->vocab, "\n\n", 2), allow);
    }
    return true;
}

bool constraint_accept(struct constraint *c, int32_t id, struct error *err)
{
    if (c->part == CONSTRAIN_THINKING) {
        struct buf text = {0};
        bool ok = tokenizer_decode_one(c->tok, id, true, &text) ||
                  error_oom(err, "a token's text", text.len);
        ok = ok && think(c, buf_str(&text), text.len, err);
        buf_release(&text);
        return ok;
    }
    if (c->part == CONSTRAIN_START &&
        id == tokenizer_find(c->tok, c->open_tag, strlen(c->open_tag))) {
        c->part = CONSTRAIN_THINKING;
        return true;
    }
    bool gap = c->part == CONSTRAIN_GAP;
    c->part = CONSTRAIN_ANSWER;
    if (grammar_accept(&c->state, id, gap ? NULL : err)) {
        c->ended = tokenizer_is_end(c->tok, id);
        return true;
    }
    // The answer begins with the next token.
    return gap &&
           (id == grammar_vocab_find(c->vocab, "\n", 1) ||
            id == grammar_vocab_find(c->vocab, "\n\n", 2) || grammar_accept(&c->state, id, err));
}

bool constraint_forced(const struct constraint *c, size_t n, struct buf *out, struct error *err)
{
    return c->part != CONSTRAIN_ANSWER || grammar_forced(&c->state, n, out, err);
}

bool constraint_obeyed(const struct constraint *c)
{
    return c->ended || (c->part == CONSTRAIN_ANSWER && grammar_may_end(&c->state));
}

bool constraint_is_over(const struct constraint *c)
{
    size_t n;
    tokenizer_end_ids(c->tok, &n);
    return n == 0 && c->part == CONSTRAIN_ANSWER && grammar_must_end(&c->state);
}
