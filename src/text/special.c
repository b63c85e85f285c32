#include "text/special.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b, void *ctx)
{
    const struct vocab *v = ctx;
    struct gguf_str x = v->text[*(const int32_t *)a], y = v->text[*(const int32_t *)b];
    int c = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return c ? c : (x.len > y.len) - (x.len < y.len);
}

static bool is_special(const struct vocab *v, uint32_t id)
{
    return v->text[id].len > 0 && (v->kind[id] == TOKEN_CONTROL || v->kind[id] == TOKEN_UNKNOWN ||
                                   v->kind[id] == TOKEN_USER_DEFINED);
}

bool special_init(struct special *s, const struct vocab *v, struct error *err)
{
    *s = (struct special){.vocab = v};
    bool is_length[SPECIAL_MOST_BYTES + 1] = {false};
    size_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const size_t len = v->text[i].len;
        if (!is_special(v, i))
            continue;
        n++;
        if (len > SPECIAL_MOST_BYTES)
            return error_set(err, ERR_MODEL,
                             "tokenizer.ggml.tokens[%u] has %zu bytes and is no normal token: "
                             "expected at most %d, since each is looked for everywhere in a text",
                             i, len, SPECIAL_MOST_BYTES);
        s->reach += is_length[len] ? 0 : len;
        is_length[len] = true;
    }
    s->ids = malloc((n ? n : 1) * sizeof *s->ids);
    if (!s->ids)
        return error_oom(err, "the list of special tokens", n * sizeof *s->ids);
    for (uint32_t i = 0; i < v->n; i++) {
        if (!is_special(v, i))
            continue;
        s->ids[s->n++] = (int32_t)i;
        unsigned char c = (unsigned char)v->text[i].data[0];
        s->first[c + 1]++;
        if (v->kind[i] == TOKEN_USER_DEFINED)
            s->any_first[c] = 1;
    }
    for (int c = 0; c < 256; c++)
        s->first[c + 1] += s->first[c];
    qsort_r(s->ids, s->n, sizeof *s->ids, by_text, (void *)v);
    return true;
}

void special_release(struct special *s)
{
    if (!s)
        return;
    free(s->ids);
    *s = (struct special){0};
}

void special_matches_release(struct special_matches *m)
{
    if (!m)
        return;
    free(m->data);
    *m = (struct special_matches){0};
}

struct query {
    const struct special *s;
    const char *text;
    size_t n;
    bool all;
    const unsigned char *mask;
};

// The longest token that begins at pos and has at most limit bytes: its id and length, or -1. The
// sorted list is walked like a trie: [lo, hi) are the tokens that agree with the text so far.
static int32_t longest_at(const struct query *q, size_t pos, size_t limit, size_t *len)
{
    const struct special *s = q->s;
    const struct vocab *v = s->vocab;
    unsigned char c = (unsigned char)q->text[pos];
    size_t lo = s->first[c], hi = s->first[c + 1];
    int32_t best = -1;
    bool control = q->all || (q->mask && q->mask[pos]); // may every byte so far be control text?
    if (limit > q->n - pos)
        limit = q->n - pos;
    for (size_t depth = 1; lo < hi; depth++) {
        int32_t id = s->ids[lo];
        if (v->text[id].len == depth) {
            if (control || v->kind[id] == TOKEN_USER_DEFINED) {
                best = id;
                *len = depth;
            }
            lo++;
        }
        if (depth >= limit)
            break;
        c = (unsigned char)q->text[pos + depth];
        control = control && (q->all || q->mask[pos + depth]);
        // All tokens of [lo, hi) are longer than depth here: narrow to those with byte c.
        size_t a = lo, b = hi;
        while (a < b) {
            size_t mid = a + (b - a) / 2;
            if ((unsigned char)v->text[s->ids[mid]].data[depth] < c)
                a = mid + 1;
            else
                b = mid;
        }
        lo = a;
        b = hi;
        while (a < b) {
            size_t mid = a + (b - a) / 2;
            if ((unsigned char)v->text[s->ids[mid]].data[depth] <= c)
                a = mid + 1;
            else
                b = mid;
        }
        hi = a;
    }
    return best;
}

static bool push(struct special_matches *m, struct special_match x, struct error *err)
{
    if (!array_grow(NULL, &m->data, m->n, &m->cap, sizeof *m->data))
        return error_oom(err, "the special tokens of a text", (m->n + 1) * sizeof *m->data);
    m->data[m->n++] = x;
    return true;
}

// Longest first, then leftmost.
static bool before(const struct special_match *a, const struct special_match *b)
{
    return a->len != b->len ? a->len > b->len : a->begin < b->begin;
}

static void sift_down(struct special_match *h, size_t n, size_t i)
{
    struct special_match x = h[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child]))
            child++;
        if (!before(&h[child], &x))
            break;
        h[i] = h[child];
    }
    h[i] = x;
}

static int by_begin(const void *a, const void *b)
{
    const struct special_match *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

// Chooses among candidates that overlap one another: m[0..n), each the longest token at its place.
// Leaves the chosen ones, in order, at the front; returns how many. taken: zeroed, covers them all.
static size_t choose(const struct query *q, struct special_match *m, size_t n, unsigned char *taken)
{
    size_t base = m[0].begin, n_heap = n, n_chosen = 0;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(m, n, i);
    // The heap shrinks from m[n_heap - 1] down while chosen ones are collected behind it: one is
    // popped for each that is added.
    while (n_heap) {
        struct special_match x = m[0];
        unsigned char *t = taken + (x.begin - base);
        bool keep = !t[0] && !t[x.len - 1], shorten = !t[0] && t[x.len - 1];
        if (shorten) {
            // What is taken belongs to longer tokens, so it covers the end; try what fits before
            // it.
            size_t room = (size_t)((unsigned char *)memchr(t, 1, x.len) - t);
            x.id = longest_at(q, x.begin, room, &x.len);
            if (x.id >= 0) {
                m[0] = x;
                sift_down(m, n_heap, 0);
                continue;
            }
        }
        m[0] = m[--n_heap];
        if (n_heap)
            sift_down(m, n_heap, 0);
        if (keep) {
            memset(t, 1, x.len);
            m[n - ++n_chosen] = x;
        }
    }
    memmove(m, m + n - n_chosen, n_chosen * sizeof *m);
    qsort(m, n_chosen, sizeof *m, by_begin);
    return n_chosen;
}

// The candidates from some place on were not looked at. One of them changes what begins before it
// only by being longer, and so does what it changes: that goes back by each length once. Keeps what
// begins before `settled`, and leaves where the others are to be looked for to *at.
static void keep_settled(struct special_matches *m, size_t settled, size_t *at)
{
    while (m->n > 0 && m->data[m->n - 1].begin >= settled)
        m->n--;
    *at = settled;
    if (m->n > 0 && m->data[m->n - 1].begin + m->data[m->n - 1].len > settled)
        *at = m->data[m->n - 1].begin + m->data[m->n - 1].len;
}

static bool interrupted(const struct cancel *cancel, struct error *err)
{
    return cancel_asked(cancel) &&
           !error_set(err, ERR_INTERRUPTED, "interrupted while the text was split into tokens");
}

bool special_next(const struct special *s, const char *text, size_t n, bool all,
                  const unsigned char *mask, const struct cancel *cancel, size_t *at,
                  struct special_matches *out, struct error *err)
{
    enum { MANY = 1 << 16 };
    struct query q = {s, text, n, all, mask};
    const size_t most = 2 * s->reach > MANY ? 2 * s->reach : MANY;
    size_t i = *at, end = 0;
    out->n = 0;
    // A candidate that overlaps none of the others stands; those that do are settled together.
    for (; i < n && (out->n == 0 || (i < end && out->n < most)); i++) {
        unsigned char c = (unsigned char)text[i];
        if (i % 4096 == 0 && interrupted(cancel, err))
            return false;
        if (s->first[c] == s->first[c + 1] || !(all || s->any_first[c] || (mask && mask[i])))
            continue;
        struct special_match x = {.begin = i};
        x.id = longest_at(&q, i, n - i, &x.len);
        if (x.id < 0)
            continue;
        if (!push(out, x, err))
            return false;
        end = i + x.len > end ? i + x.len : end;
    }
    *at = i;
    if (out->n > 1) {
        size_t span = end - out->data[0].begin;
        unsigned char *taken = calloc(span, 1);
        if (!taken)
            return error_oom(err, "the special tokens of a text", span);
        out->n = choose(&q, out->data, out->n, taken);
        free(taken);
    }
    if (out->n > 0 && i < end)
        keep_settled(out, i - s->reach, at);
    return true;
}
