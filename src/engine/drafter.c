#include "engine/drafter.h"

#include <string.h>

#include "text/tokenizer.h"

// As many as a long turn has, so that reading may wait until it pays.
enum { MOST_HIDDEN = 4096 };

bool drafter_fits(const struct model *draft, const struct model *m, struct error *err)
{
    return tokenizer_same(m->tokenizer, draft->tokenizer, err);
}

size_t drafter_n_hidden(uint32_t n_ctx)
{
    return n_ctx < MOST_HIDDEN ? n_ctx : MOST_HIDDEN;
}

uint64_t drafter_hidden_bytes(const struct model *m, uint32_t n_ctx)
{
    return (uint64_t)drafter_n_hidden(n_ctx) * m->hp.n_embd * sizeof(float);
}

bool drafter_init(struct drafter *d, struct engine *e, uint32_t n_vocab, struct error *err)
{
    const uint32_t mine = e->model->hp.n_vocab;
    *d = (struct drafter){.n_vocab = mine < n_vocab ? mine : n_vocab, .same_size = mine == n_vocab};
    d->predicts = e->model->predicts_for != NULL;
    d->seq = seq_open(e, 0, err);
    // (Guesses follow from its own hidden states.)
    return d->seq && (!d->predicts || seq_keep_hidden(d->seq, 1 + ENGINE_MAX_DRAFTS, err));
}

void drafter_release(struct drafter *d)
{
    seq_free(d->seq);
    ids_release(&d->text);
    *d = (struct drafter){0};
}

// What the answer's mask allows behind the guesses so far.
static bool masked(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err)
{
    struct drafter *d = user;
    const size_t n_words = (d->n_vocab + 31) / 32;
    (void)drafts, (void)n; // the draft model is given none
    d->over = !d->mask(d->mask_user, d->out, d->n_out, allow, err);
    size_t i = 0;
    while (!d->over && i < n_words && allow[i] == 0)
        i++;
    d->over = d->over || i == n_words;
    return !d->over || (error_set(err, ERR_FAIL, "nothing can be guessed"), false);
}

static bool is_stop(const struct drafter *d, int32_t id)
{
    for (size_t i = 0; i < d->how.n_stop_ids; i++)
        if (d->how.stop_ids[i] == id)
            return true;
    return false;
}

bool drafter_sampling(struct drafter *d, const struct sampling *p, struct error *err)
{
    d->set = *p->sampler;
    d->how = *p;
    d->how.sampler = &d->set;
    d->how.n_probs = 0;
    // A mask of another size would be written past its end; such guesses are sorted out later.
    d->mask = d->same_size ? p->mask : NULL;
    d->mask_user = p->mask_user;
    d->how.mask = d->mask ? masked : NULL;
    d->how.mask_user = d;
    // Of what only the other model has, nothing is guessed.
    d->set.n_bias = 0;
    for (uint32_t i = 0; i < p->sampler->n_bias; i++)
        if ((uint32_t)p->sampler->bias[i].id < d->n_vocab)
            d->set.bias[d->set.n_bias++] = p->sampler->bias[i];
    // One byte for each token of the other model.
    if (d->n_vocab < seq_engine(d->seq)->model->hp.n_vocab)
        d->set.dry_breakers = NULL;
    d->set.first = d->first;
    return seq_sampling(d->seq, &d->how, err);
}

// The first tokens of a (n_a) and b (n_b) that are the same.
static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    const size_t n = n_a < n_b ? n_a : n_b;
    if (n == 0 || memcmp(a, b, n * sizeof *a) == 0)
        return n;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    return i;
}

// Of the text's tokens its sequence keeps so many, the first ones included.
static void keep(struct drafter *d, size_t n)
{
    if (n - d->first < seq_len(d->seq))
        seq_trim(d->seq, n - d->first);
    if (d->text.len > n)
        d->text.len = n;
}

// Where the same tokens come first, what follows from them stays; else it begins behind the first
// token of which a hidden state is known. False: there is none.
static bool follow(struct drafter *d, const struct seq *text, size_t same)
{
    const size_t begin = seq_hidden_begin(text), n = seq_len(text);
    const bool goes_on = same > d->first && d->first > 0 && begin < same;
    if (seq_n_past(text) + 1 < n || (!goes_on && begin + 1 >= n))
        return false;
    keep(d, goes_on ? same : d->first);
    if (!goes_on) {
        d->first = begin + 1;
        d->text.len = 0;
    }
    return true;
}

size_t drafter_behind(struct drafter *d, const struct seq *text)
{
    struct seq *s = d->seq;
    const int32_t *ids = seq_ids(text);
    const size_t n = seq_len(text);
    const size_t same = d->predicts ? common(d->text.data, d->text.len, ids, n)
                                    : common(seq_ids(s), seq_len(s), ids, n);
    // The last token is evaluated with the guess.
    const size_t most = same < n ? same : n - 1;
    if (!d->predicts)
        keep(d, most);
    else if (!follow(d, text, most))
        return SIZE_MAX;
    if (n - d->first > seq_engine(s)->n_ctx)
        return SIZE_MAX;
    for (size_t i = d->first + seq_len(s); i < n; i++)
        if ((uint32_t)ids[i] >= d->n_vocab)
            return SIZE_MAX;
    return n - d->first - seq_n_past(s);
}

// The next n of the text's tokens, and whether one is sampled behind them; fewer where hidden
// states do not lie one behind the other.
static struct work next_of(const struct drafter *d, const struct seq *text, size_t n)
{
    const size_t at = d->first + seq_len(d->seq);
    struct work w = {.seq = d->seq, .ids = seq_ids(text) + at, .n = n};
    if (d->predicts) {
        size_t n_hidden;
        w.hidden = seq_hidden(text, at - 1, &n_hidden);
        w.n = n < n_hidden ? n : n_hidden;
    }
    return w;
}

// Its sequence follows from the text now, up to what it has of it.
static bool note(struct drafter *d, const struct seq *text, struct error *err)
{
    const size_t n = d->text.len, end = d->first + seq_len(d->seq);
    return !d->predicts || ids_append(&d->text, seq_ids(text) + n, end - n) ||
           error_oom(err, "a text to guess at", end * sizeof *d->text.data);
}

bool drafter_read(struct drafter *d, const struct seq *text, size_t n, const struct cancel *cancel,
                  struct error *err)
{
    struct engine *e = seq_engine(d->seq);
    const size_t end = seq_n_past(d->seq) + n;
    bool ok = true;
    for (size_t len; ok && (len = seq_len(d->seq)) < end;) {
        const size_t rest = end - len;
        const struct work w = next_of(d, text, rest < e->n_batch ? rest : e->n_batch);
        ok = engine_submit(e, &w, 1, cancel, NULL, err) && note(d, text, err);
    }
    return ok;
}

// What is to be evaluated before the first guess, but for what is evaluated with it.
static bool read_rest(struct drafter *d, const struct seq *text, const struct cancel *cancel,
                      struct error *err)
{
    const size_t end = seq_len(text) - d->first;
    bool ok = true;
    for (size_t rest; ok && (rest = end - seq_len(d->seq)) > 0;) {
        const size_t n = next_of(d, text, rest).n;
        if (n == rest)
            break;
        ok = drafter_read(d, text, n, cancel, err);
    }
    if (d->set.first != d->first) {
        d->set.first = d->first;
        ok = ok && seq_sampling(d->seq, &d->how, err);
    }
    return ok;
}

bool drafter_guess(struct drafter *d, const struct seq *text, size_t most,
                   const struct cancel *cancel, int32_t *out, size_t *n_out, struct error *err)
{
    struct engine *e = seq_engine(d->seq);
    const size_t n = seq_len(text) - d->first, room = e->n_ctx + 1 - n; // the last is not evaluated
    const size_t ahead = d->predicts ? 0 : seq_run_ahead(d->seq);
    uint64_t tickets[ENGINE_MAX_DRAFTS];
    size_t n_asked = 0, n_got = 0;
    *n_out = 0;
    if (!read_rest(d, text, cancel, err))
        return false;
    struct work w = next_of(d, text, n - seq_len(d->seq));
    w.n_pick = 1;
    bool ok = true;
    most = most < room ? most : room;
    d->out = out;
    d->over = false;
    for (bool over = false; ok && !over && n_got < most;) {
        while (ok && n_asked < most && n_asked <= n_got + ahead) {
            ok = engine_submit(e, &w, 1, cancel, &tickets[n_asked], err);
            w = (struct work){.seq = d->seq, .n = 1, .n_pick = 1};
            n_asked += ok;
        }
        struct decoded one;
        struct error why = {0};
        d->n_out = n_got;
        ok = ok && engine_wait(e, tickets[n_got], cancel, &one, &why);
        if (!ok && why.code != ERR_NONE && !d->over && err)
            *err = why;
        over = !ok || (uint32_t)one.id >= d->n_vocab;
        ok = ok || d->over;
        if (!over)
            out[n_got++] = one.id;
        over = over || is_stop(d, one.id);
        if (d->predicts && !over) {
            size_t n_hidden;
            w.hidden = seq_hidden(d->seq, seq_n_past(d->seq) - 1, &n_hidden);
        }
    }
    // What nobody waits for; and what follows from hidden states of its own, once the text has it.
    seq_trim(d->seq, d->predicts && n < seq_len(d->seq) ? n : seq_len(d->seq));
    *n_out = n_got;
    return note(d, text, err) && ok;
}
