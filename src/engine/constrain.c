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
    c->marks = from->marks;
    buf_clear(&c->held);
    return buf_append(&c->held, from->held.data, from->held.len) ||
           error_oom(err, "the answer's thinking", from->held.len);
}

void constraint_begin(struct constraint *c, const struct thinking_marks *marks, bool inside)
{
    grammar_state_release(&c->state);
    grammar_state_init(&c->state, c->matcher);
    c->marks = marks ? *marks : (struct thinking_marks){0};
    c->part = inside ? CONSTRAIN_THINKING : c->marks.open ? CONSTRAIN_START : CONSTRAIN_ANSWER;
    c->ended = false;
    buf_clear(&c->held);
}

// Into the thinking. Its opening mark, where it belongs to a header, comes as text of it.
static bool open_thinking(struct constraint *c, struct error *err)
{
    c->part = CONSTRAIN_THINKING;
    return buf_append(&c->held, c->marks.close, c->marks.header) ||
           error_oom(err, "the answer's thinking", c->marks.header);
}

// Text of thinking, and what may follow it in the same token.
static bool think(struct constraint *c, const char *text, size_t n, struct error *err)
{
    size_t n_tag = strlen(c->marks.close), n_taken;
    if (!buf_append(&c->held, text, n))
        return error_oom(err, "the answer's thinking", c->held.len);
    const char *found = memmem(c->held.data, c->held.len, c->marks.close, n_tag);
    if (!found) {
        if (c->marks.again && strlen(c->marks.again) > n_tag)
            n_tag = strlen(c->marks.again);
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
        size_t at = strspn(text, blanks), n_tag = strlen(c->marks.open);
        bool opens = n - at >= n_tag && memcmp(text + at, c->marks.open, n_tag) == 0;
        c->part = CONSTRAIN_ANSWER;
        if (opens) {
            at += c->marks.header > 0 ? 0 : n_tag;
            text += at;
            n -= at;
            if (!open_thinking(c, err))
                return false;
        }
    }
    size_t n_taken;
    struct error why = {0};
    const bool thinking = c->part == CONSTRAIN_THINKING;
    if (n == 0 || (thinking ? think(c, text, n, &why)
                            : grammar_accept_bytes(&c->state, text, n, &n_taken, &why)))
        return true;
    if (why.code != ERR_FAIL)
        return error_set(err, why.code, "%s", why.text);
    if (thinking)
        return error_set(err, ERR_USAGE,
                         "what the answer begins with behind its thinking does not obey the "
                         "grammar (%s): change that beginning, or the grammar",
                         why.text);
    return error_set(
        err, ERR_USAGE,
        "the beginning of the answer obeys the grammar for %zu of its %zu bytes, expected "
        "for all: change that beginning, or the grammar",
        n_taken, n);
}

static void add(const struct constraint *c, int32_t id, uint32_t *allow)
{
    if (id >= 0 && (size_t)id / 32 < c->n_words)
        allow[id / 32] |= 1u << (id % 32);
}

// Bytes of a mark with which the thinking ends so far.
static size_t mark_begun(const struct constraint *c, const char *mark)
{
    size_t n = mark ? strlen(mark) - 1 : 0;
    n = c->held.len < n ? c->held.len : n;
    while (n > 0 && memcmp(c->held.data + c->held.len - n, mark, n) != 0)
        n--;
    return n;
}

// The token whose text are the first n bytes of text; -1: none.
static int32_t token_of(const struct constraint *c, const char *text, size_t n)
{
    int32_t id = tokenizer_find(c->tok, text, n); // also a control token
    return id >= 0 ? id : grammar_vocab_find(c->vocab, text, n);
}

// The longest token with which text begins; -1: none.
static int32_t longest_token(const struct constraint *c, const char *text)
{
    int32_t id = -1;
    for (size_t n = strlen(text); id < 0 && n > 0; n--)
        id = token_of(c, text, n);
    return id;
}

// All tokens with which text begins.
static void add_beginnings(const struct constraint *c, const char *text, uint32_t *allow)
{
    for (size_t n = strlen(text); n > 0; n--)
        add(c, token_of(c, text, n), allow);
}

// Whether a token that begins with rest, or has the whole tag inside, goes on behind it with what
// the grammar has not been asked about.
static bool goes_beyond(const struct constraint *c, const struct buf *text, const char *rest)
{
    const size_t n_tag = strlen(c->marks.close), n_rest = strlen(rest);
    const char *end = text->data + text->len, *at = NULL;
    if (text->len >= n_rest && memcmp(text->data, rest, n_rest) == 0)
        at = text->data + n_rest;
    else if ((at = memmem(text->data, text->len, c->marks.close, n_tag)))
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
    if (begun == 0 && all->never_beyond == c->marks.close)
        return true;
    for (uint32_t id = 0; ok && id < tokenizer_n_vocab(c->tok); id++) {
        buf_clear(&text);
        ok = tokenizer_decode_one(c->tok, (int32_t)id, true, &text);
        if (!ok || text.len == 0 || !goes_beyond(c, &text, c->marks.close + begun))
            continue;
        found = true;
        if (id / 32 < c->n_words)
            allow[id / 32] &= ~(1u << (id % 32));
    }
    if (begun == 0)
        all->never_beyond = ok && !found ? c->marks.close : NULL;
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
    const char *close = c->marks.close, *again = c->marks.again;
    const size_t begun = mark_begun(c, close), once_more = mark_begun(c, again);
    size_t n;
    if (c->close && n_left <= needed + strlen(close) + 1) {
        int32_t id = longest_token(c, once_more > begun ? again + once_more : close + begun);
        if (id >= 0)
            return only(c, id, allow);
    }
    if (c->marks.header > 0 && (begun >= c->marks.sure || once_more >= c->marks.sure)) {
        memset(allow, 0, c->n_words * sizeof *allow);
        if (begun >= c->marks.sure)
            add_beginnings(c, close + begun, allow);
        if (once_more >= c->marks.sure)
            add_beginnings(c, again + once_more, allow);
        return true;
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
    if (c->part == CONSTRAIN_START && c->marks.header > 0)
        return only(c, longest_token(c, c->marks.open), allow);
    if (!grammar_mask(&c->state, allow, c->n_words, NULL, err))
        return false;
    // A token may open what needs long to be closed: looked at only where that is near.
    if (c->close && n_left > needed && n_left <= needed + c->reserve &&
        !grammar_keep_near(&c->state, n_left - 2, allow, c->n_words, err))
        return false;
    // Thinking may begin, or a blank line may part it from the answer.
    if (c->part == CONSTRAIN_START && (!c->close || n_left > needed + strlen(c->marks.close) + 2))
        add(c, tokenizer_find(c->tok, c->marks.open, strlen(c->marks.open)), allow);
    if (c->part == CONSTRAIN_GAP && (!c->close || n_left > needed)) {
        add(c, grammar_vocab_find(c->vocab, "\n", 1), allow);
        add(c, grammar_vocab_find(c->vocab, "\n\n", 2), allow);
    }
    return true;
}

bool constraint_accept(struct constraint *c, int32_t id, struct error *err)
{
    if (c->part == CONSTRAIN_START && c->marks.header > 0 && !open_thinking(c, err))
        return false;
    if (c->part == CONSTRAIN_THINKING) {
        struct buf text = {0};
        bool ok = tokenizer_decode_one(c->tok, id, true, &text) ||
                  error_oom(err, "a token's text", text.len);
        ok = ok && think(c, buf_str(&text), text.len, err);
        buf_release(&text);
        return ok;
    }
    if (c->part == CONSTRAIN_START &&
        id == tokenizer_find(c->tok, c->marks.open, strlen(c->marks.open)))
        return open_thinking(c, err);
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
