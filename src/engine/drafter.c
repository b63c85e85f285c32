#include "engine/drafter.h"

#include <string.h>

#include "text/tokenizer.h"

enum {
    // As many as a long turn has, so that reading may wait until it pays.
    MOST_HIDDEN = 4096,
    MOST_HIDDEN_IN_ALL = 4 * MOST_HIDDEN,
    OWN_HIDDEN = 1 + ENGINE_MAX_DRAFTS, // guesses follow from those of its own
};

bool drafter_fits(const struct model *draft, const struct model *m, struct error *err)
{
    return tokenizer_same(m->tokenizer, draft->tokenizer, err);
}

size_t drafter_n_hidden(uint32_t n_ctx, size_t n)
{
    const size_t each = n > MOST_HIDDEN_IN_ALL / MOST_HIDDEN ? MOST_HIDDEN_IN_ALL / n : MOST_HIDDEN;
    return n_ctx < each ? n_ctx : each;
}

uint64_t drafter_hidden_bytes(const struct model *m, uint32_t n_ctx, size_t n)
{
    const size_t n_texts = n > 0 ? n : 1;
    return (uint64_t)n_texts * (drafter_n_hidden(n_ctx, n_texts) + OWN_HIDDEN) * m->hp.n_embd *
           sizeof(float);
}

bool drafter_init(struct drafter *d, struct engine *e, uint32_t n_vocab, struct error *err)
{
    const uint32_t mine = e->model->hp.n_vocab, trained = e->model->hp.n_ctx_train;
    *d = (struct drafter){.n_vocab = mine < n_vocab ? mine : n_vocab, .same_size = mine == n_vocab};
    d->n_ctx = trained > 0 && trained < e->n_ctx ? trained : e->n_ctx;
    d->predicts = e->model->predicts_for != NULL;
    d->seq = seq_open(e, d->n_ctx, err);
    return d->seq && (!d->predicts || seq_keep_hidden(d->seq, OWN_HIDDEN, err));
}

void drafter_release(struct drafter *d)
{
    seq_free(d->seq);
    ids_release(&d->text);
    *d = (struct drafter){0};
}

void drafter_forget(struct drafter *d)
{
    seq_trim(d->seq, 0);
    d->text.len = 0;
    d->first = 0;
}

size_t drafter_needs_blocks(const struct drafter *d, const struct seq *text, size_t most)
{
    const size_t end = seq_len(text) - d->first + most;
    return seq_needs_blocks(d->seq, end < d->n_ctx ? end : d->n_ctx);
}

// What the answer's mask allows behind the guesses so far.
static bool masked(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err)
{
    struct drafter *d = user;
    const size_t n_words = (d->n_vocab + 31) / 32;
    struct error why = {0};           // (the answer's own step says it)
    (void)drafts, (void)n, (void)err; // the draft model is given none
    d->over = !d->mask(d->mask_user, d->out, d->n_out, allow, &why);
    size_t i = 0;
    while (!d->over && i < n_words && allow[i] == 0)
        i++;
    d->over = d->over || i == n_words;
    if (d->over) // a token that nobody takes
        memset(allow, 0xFF, n_words * sizeof *allow);
    return true;
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
    if (n - d->first > d->n_ctx)
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

// ---- guesses of several, each after the one before

static bool goes_on(const struct draft_turn *t)
{
    return !t->failed && !t->d->over && t->n_out < t->most;
}

static bool any_goes_on(const struct draft_turn *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (goes_on(&t[i]))
            return true;
    return false;
}

static bool begin_turn(struct draft_turn *t, const struct cancel *cancel, struct error *err)
{
    struct drafter *d = t->d;
    const size_t n = seq_len(t->text) - d->first, room = d->n_ctx + 1 - n; // (the last: not read)
    t->most = t->most < room ? t->most : room;
    t->n_out = 0;
    d->out = t->out;
    d->n_out = 0;
    d->over = false;
    t->failed = t->most > 0 && !read_rest(d, t->text, cancel, err);
    return !t->failed;
}

static struct work next_guess(const struct draft_turn *t, bool first)
{
    struct drafter *d = t->d;
    struct work w = {.seq = d->seq, .n = 1};
    size_t n_hidden;
    if (first)
        w = next_of(d, t->text, seq_len(t->text) - d->first - seq_len(d->seq));
    else if (d->predicts)
        w.hidden = seq_hidden(d->seq, seq_n_past(d->seq) - 1, &n_hidden);
    w.n_pick = 1;
    return w;
}

static void take_guess(struct draft_turn *t, int32_t id)
{
    struct drafter *d = t->d;
    d->over = d->over || (uint32_t)id >= d->n_vocab;
    if (d->over)
        return;
    t->out[t->n_out++] = id;
    d->n_out = t->n_out;
    d->over = is_stop(d, id);
}

// What nobody waits for goes; and what follows from hidden states of its own, once the text has it.
static bool end_turn(struct draft_turn *t, struct error *err)
{
    struct drafter *d = t->d;
    const size_t n = seq_len(t->text) - d->first, len = seq_len(d->seq);
    seq_trim(d->seq, d->predicts && n < len ? n : len);
    return note(d, t->text, err);
}

// Asks for the next guess of each of n that goes on, of which `round` are asked for: *n_works,
// those of turns of[].
static bool ask_round(struct draft_turn *turns, size_t n, size_t round, size_t *of, size_t *n_works,
                      uint64_t *ticket, const struct cancel *cancel, struct error *err)
{
    struct work works[ENGINE_MAX_PASS_DRAFTS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (goes_on(&turns[i]) && round < turns[i].most) {
            of[k] = i;
            works[k++] = next_guess(&turns[i], round == 0);
        }
    *n_works = k;
    return k == 0 || engine_submit(seq_engine(turns[0].d->seq), works, k, cancel, ticket, err);
}

// Takes those of n_works turns. False: some have failed.
static bool take_round(struct draft_turn *turns, const size_t *of, size_t n_works, uint64_t ticket,
                       const struct cancel *cancel, struct error *err)
{
    struct decoded picks[ENGINE_MAX_PASS_DRAFTS];
    for (size_t i = 0; i < n_works; i++)
        picks[i].id = -1;
    const bool ok = engine_wait(seq_engine(turns[0].d->seq), ticket, cancel, picks, err);
    for (size_t i = 0; i < n_works; i++) {
        struct draft_turn *t = &turns[of[i]];
        t->failed = picks[i].id < 0;
        if (!t->failed)
            take_guess(t, picks[i].id);
    }
    return ok;
}

bool drafters_guess(struct draft_turn *turns, size_t n, const struct cancel *cancel,
                    struct error *err)
{
    const struct drafter *first = turns[0].d;
    // (What is asked for ahead of the guess before it is one text's.)
    const size_t ahead = n > 1 || first->predicts ? 0 : seq_run_ahead(first->seq);
    uint64_t tickets[ENGINE_MAX_DRAFTS];
    size_t of[ENGINE_MAX_PASS_DRAFTS], n_works = 0, n_asked = 0, n_got = 0;
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok &= begin_turn(&turns[i], cancel, err);
    for (;;) {
        size_t n_new = 1;
        while (n_new > 0 && n_asked <= n_got + ahead) {
            const bool asked =
                ask_round(turns, n, n_asked, of, &n_new, &tickets[n_asked], cancel, err);
            for (size_t i = 0; !asked && i < n_new; i++)
                turns[of[i]].failed = true;
            ok &= asked;
            n_works = n_new > 0 ? n_new : n_works;
            n_asked += asked && n_new > 0;
        }
        if (n_asked == n_got || !any_goes_on(turns, n))
            break;
        ok &= take_round(turns, of, n_works, tickets[n_got++], cancel, err);
    }
    for (size_t i = 0; i < n; i++)
        ok &= end_turn(&turns[i], err);
    return ok;
}

bool drafter_guess(struct drafter *d, const struct seq *text, size_t most,
                   const struct cancel *cancel, int32_t *out, size_t *n_out, struct error *err)
{
    struct draft_turn t = {.d = d, .text = text, .most = most, .out = out};
    const bool ok = drafters_guess(&t, 1, cancel, err);
    *n_out = t.n_out;
    return ok;
}
