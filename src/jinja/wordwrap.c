// The wordwrap filter: the algorithm of Python's textwrap.
#include "jinja/runtime.h"

#include "base/utf8.h"
#include "jinja/unicode.h"

struct text { // one line as code points with their byte offsets
    uint32_t *cp;
    size_t *at; // n + 1 of them
    size_t n;
};

static struct text decode(struct run *r, struct str *s)
{
    struct text t = {.n = str_chars(r, s)};
    t.cp = run_alloc(r, (t.n + 1) * sizeof *t.cp);
    t.at = run_alloc(r, (t.n + 1) * sizeof *t.at);
    run_step(r, t.n);
    for (size_t i = 0, k = 0; k < t.n; k++) {
        t.at[k] = i;
        i += utf8_decode(s->p + i, s->n - i, &t.cp[k]);
    }
    t.at[t.n] = s->n;
    return t;
}

static bool is_space(const struct text *t, size_t i)
{
    return t->cp[i] == ' ' || (t->cp[i] >= '\t' && t->cp[i] <= '\r');
}

static bool is_word(const struct text *t, size_t i)
{
    return t->cp[i] == '_' ||
           (uni_flags(t->cp[i]) & (UNI_ALPHA | UNI_DECIMAL | UNI_DIGIT | UNI_NUMERIC));
}

static bool is_letter(const struct text *t, size_t i)
{
    return is_word(t, i) && !(uni_flags(t->cp[i]) & UNI_DECIMAL);
}

static bool is_word_or_punctuation(const struct text *t, size_t i)
{
    uint32_t c = t->cp[i];
    return is_word(t, i) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' ||
           c == '?';
}

// "--" and more at i, followed by a word: the end of the dashes, or 0.
static size_t dash_end(const struct text *t, size_t i)
{
    size_t end = i;
    while (end < t->n && t->cp[end] == '-')
        end++;
    return end - i >= 2 && end < t->n && is_word(t, end) ? end : 0;
}

// The hyphen at i ends a chunk: letters before it and behind it.
static bool breaks_at_hyphen(const struct text *t, size_t i)
{
    if (t->cp[i] != '-' || i + 2 >= t->n)
        return false;
    bool before = (i >= 2 && is_letter(t, i - 1) && is_letter(t, i - 2)) ||
                  (i >= 3 && is_letter(t, i - 1) && t->cp[i - 2] == '-' && is_letter(t, i - 3));
    size_t k = i + 1;
    if (!before || !is_letter(t, k))
        return false;
    k++;
    return is_letter(t, k) || (t->cp[k] == '-' && k + 1 < t->n && is_letter(t, k + 1));
}

static size_t chunk_end(const struct text *t, size_t begin, bool hyphens)
{
    size_t i = begin;
    if (is_space(t, i)) {
        while (i < t->n && is_space(t, i))
            i++;
        return i;
    }
    if (hyphens && begin > 0 && is_word_or_punctuation(t, begin - 1) && dash_end(t, begin))
        return dash_end(t, begin);
    for (i = begin + 1; i < t->n && !is_space(t, i); i++) {
        if (!hyphens)
            continue;
        if (breaks_at_hyphen(t, i))
            return i + 1;
        if (is_word_or_punctuation(t, i - 1) && dash_end(t, i))
            return i;
    }
    return i;
}

struct wrap {
    struct run *r;
    struct str *s;
    struct text t;
    size_t width;
    bool break_long, hyphens;
    struct sb *out;
    const struct str *newline;
    bool first;
};

static void put_line(struct wrap *w, size_t begin, size_t end)
{
    if (!w->first)
        sb_str(w->r, w->out, w->newline);
    w->first = false;
    sb_sub(w->r, w->out, w->s, w->t.at[begin], w->t.at[end]);
}

// Where a chunk that is longer than a line is cut, `room` columns being left.
static size_t cut_long(const struct wrap *w, size_t begin, size_t end, size_t room)
{
    if (!w->break_long)
        return begin;
    size_t cut = begin + room;
    if (w->hyphens && end - begin > room) {
        size_t hyphen = cut;
        while (hyphen > begin && w->t.cp[hyphen - 1] != '-')
            hyphen--;
        bool other = false;
        for (size_t i = begin; hyphen && i + 1 < hyphen; i++)
            other |= w->t.cp[i] != '-';
        if (hyphen > begin + 1 && other)
            cut = hyphen;
    }
    return cut;
}

static void wrap_line(struct wrap *w)
{
    const struct text *t = &w->t;
    size_t at = 0; // what has not been placed yet; `cut` may split a chunk
    size_t pending = 0;
    bool any = false;
    while (at < t->n) {
        size_t end = pending > at ? pending : chunk_end(t, at, w->hyphens);
        if (any && is_space(t, at)) { // white space at the beginning of a line goes
            at = end;
            pending = 0;
            if (at >= t->n)
                break;
            end = chunk_end(t, at, w->hyphens);
        }
        size_t begin = at, placed = at, last_space = SIZE_MAX;
        while (at < t->n && end - begin <= w->width) {
            last_space = is_space(t, at) ? at : SIZE_MAX;
            placed = at = end;
            pending = 0;
            if (at < t->n)
                end = chunk_end(t, at, w->hyphens);
        }
        if (at < t->n && end - at > w->width) {
            size_t room = w->width - (at - begin);
            size_t cut = cut_long(w, at, end, room ? room : (at == begin ? 1 : 0));
            if (!w->break_long && at == begin)
                cut = end;
            if (cut > at) {
                last_space = SIZE_MAX;
                placed = at = cut;
                pending = cut < end ? end : 0;
            } else {
                pending = end;
            }
        } else if (at < t->n) {
            pending = end;
        }
        if (last_space != SIZE_MAX)
            placed = last_space;
        if (placed > begin) {
            put_line(w, begin, placed);
            any = true;
        } else if (last_space == SIZE_MAX) {
            break; // nothing fits: cannot happen with a width of at least 1
        }
        run_step(w->r, 1 + (at - begin) / 4);
    }
}

// wordwrap(s, width=79, break_long_words=True, wrapstring="\n", break_on_hyphens=True)
struct val filters_wordwrap(struct run *r, struct val self, const struct val *v,
                            const struct args *a)
{
    (void)a;
    struct str *s = args_str(r, &self, "the value of wordwrap");
    int64_t width = args_int(r, &v[0], 79, "width");
    if (width <= 0)
        run_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    struct sb out = {0};
    struct wrap w = {.r = r,
                     .width = (size_t)width,
                     .break_long = args_bool(&v[1], true),
                     .hyphens = args_bool(&v[3], true),
                     .out = &out};
    w.newline = v[2].kind == V_MISSING || v[2].kind == V_NONE ? val_cstr(r, "\n").s
                                                              : args_str(r, &v[2], "wrapstring");
    struct val lines = text_lines(r, s, false);
    for (size_t i = 0; i < lines.l->n; i++) {
        if (i)
            sb_str(r, &out, w.newline);
        w.s = lines.l->v[i].s;
        w.t = decode(r, w.s);
        w.first = true;
        wrap_line(&w);
    }
    return sb_val(r, &out);
}
