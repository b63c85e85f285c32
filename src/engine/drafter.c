#include "engine/drafter.h"

#include <string.h>

#include "text/tokenizer.h"

bool drafter_fits(const struct model *draft, const struct model *m, struct error *err)
{
    return tokenizer_same(m->tokenizer, draft->tokenizer, err);
}

bool drafter_init(struct drafter *d, struct engine *e, uint32_t n_vocab, struct error *err)
{
    const uint32_t mine = e->model->hp.n_vocab;
    *d = (struct drafter){.n_vocab = mine < n_vocab ? mine : n_vocab, .same_size = mine == n_vocab};
    return (d->seq = seq_open(e, 0, err)) != NULL;
}

void drafter_release(struct drafter *d)
{
    seq_free(d->seq);
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
    for (size_t i = 0; i < d->n_stop_ids; i++)
        if (d->stop_ids[i] == id)
            return true;
    return false;
}

bool drafter_sampling(struct drafter *d, const struct sampling *p, struct error *err)
{
    struct sampler_settings set = *p->sampler;
    struct sampling mine = *p;
    mine.sampler = &set;
    mine.n_probs = 0;
    // A mask of another size would be written past its end; such guesses are sorted out later.
    d->mask = d->same_size ? p->mask : NULL;
    d->mask_user = p->mask_user;
    mine.mask = d->mask ? masked : NULL;
    mine.mask_user = d;
    d->stop_ids = p->stop_ids;
    d->n_stop_ids = p->n_stop_ids;
    // Of what only the other model has, nothing is guessed.
    set.n_bias = 0;
    for (uint32_t i = 0; i < p->sampler->n_bias; i++)
        if ((uint32_t)p->sampler->bias[i].id < d->n_vocab)
            set.bias[set.n_bias++] = p->sampler->bias[i];
    // One byte for each token of the other model.
    if (d->n_vocab < seq_engine(d->seq)->model->hp.n_vocab)
        set.dry_breakers = NULL;
    return seq_sampling(d->seq, &mine, err);
}

// The first n tokens of a and b that are the same.
static size_t common(const int32_t *a, const int32_t *b, size_t n)
{
    if (memcmp(a, b, n * sizeof *a) == 0)
        return n;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    return i;
}

size_t drafter_behind(struct drafter *d, const int32_t *ids, size_t n)
{
    struct seq *s = d->seq;
    const size_t len = seq_len(s), same = common(seq_ids(s), ids, n < len ? n : len);
    // The last token is evaluated with the guess.
    const size_t keep = same < n ? same : n - 1;
    if (keep < len)
        seq_trim(s, keep);
    if (n > seq_engine(s)->n_ctx)
        return SIZE_MAX;
    for (size_t i = keep; i < n; i++)
        if ((uint32_t)ids[i] >= d->n_vocab)
            return SIZE_MAX;
    return n - seq_n_past(s);
}

bool drafter_read(struct drafter *d, const int32_t *ids, size_t n, const struct cancel *cancel,
                  struct error *err)
{
    struct engine *e = seq_engine(d->seq);
    bool ok = true;
    for (size_t len; ok && (len = seq_len(d->seq)) < n;) {
        const size_t rest = n - len;
        const struct work w = {
            .seq = d->seq, .ids = ids + len, .n = rest < e->n_batch ? rest : e->n_batch};
        ok = engine_submit(e, &w, 1, cancel, NULL, err);
    }
    return ok;
}

bool drafter_guess(struct drafter *d, const int32_t *ids, size_t n, size_t most,
                   const struct cancel *cancel, int32_t *out, size_t *n_out, struct error *err)
{
    struct engine *e = seq_engine(d->seq);
    const size_t len = seq_len(d->seq), room = e->n_ctx + 1 - n; // the last is not evaluated
    const size_t ahead = engine_runs_ahead(e) && !d->mask ? ENGINE_RUN_AHEAD : 0;
    struct work w = {.seq = d->seq, .ids = ids + len, .n = n - len, .n_pick = 1};
    uint64_t tickets[ENGINE_MAX_DRAFTS];
    size_t n_asked = 0, n_got = 0;
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
    }
    seq_trim(d->seq, seq_len(d->seq)); // what nobody waits for
    *n_out = n_got;
    return ok;
}
