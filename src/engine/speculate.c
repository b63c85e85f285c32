#include "engine/speculate.h"

#include <string.h>

#include "base/clock.h"

// Kinds of guesses: for each length of a run, and what is forced.
enum { FORCED = NGRAM_LENGTHS };
_Static_assert((int)SPEC_MADE == (int)FORCED + 1, "a chance for each kind");

// Bytes are read, and layers are launched one after the other.
double speculation_share(const struct model *draft, const struct model *m)
{
    const double bytes = (double)model_bytes_per_token(draft) / (double)model_bytes_per_token(m);
    const double layers = (double)draft->hp.n_layer / m->hp.n_layer;
    return bytes > layers ? bytes : layers;
}

bool speculation_init(struct speculation *s, const struct engine *e, struct engine *draft,
                      struct error *err)
{
    const bool predicts = draft && draft->model->predicts_for;
    *s = (struct speculation){.source = predicts ? SPEC_MTP : draft ? SPEC_DRAFT : SPEC_NGRAM};
    spec_guard_init(&s->guard, draft ? speculation_share(draft->model, e->model) : 0);
    return draft ? drafter_init(&s->drafter, draft, e->model->hp.n_vocab, err)
                 : ngram_init(&s->ngram, err);
}

bool speculation_init_beside(struct speculation *s, const struct engine *e, struct engine *draft,
                             struct spec_making *making, struct error *err)
{
    if (!speculation_init(s, e, draft, err) || (draft && !ngram_init(&s->ngram, err))) {
        speculation_release(s);
        return false;
    }
    s->making = making;
    s->always = true;
    return true;
}

static bool drafts(const struct speculation *s)
{
    return s->source != SPEC_NGRAM;
}

// Guesses come from the text, too.
static bool looks_back(const struct speculation *s)
{
    return s->ngram.at != NULL;
}

void speculation_release(struct speculation *s)
{
    ngram_release(&s->ngram);
    drafter_release(&s->drafter);
    *s = (struct speculation){0};
}

bool speculation_begin(struct speculation *s, const struct sampling *p, size_t n, double seconds,
                       struct error *err)
{
    speculation_forget(s);
    spec_guard_prompt(&s->guard, n, seconds);
    return !drafts(s) || drafter_sampling(&s->drafter, p, err);
}

void speculation_forget(struct speculation *s)
{
    if (looks_back(s))
        ngram_forget(&s->ngram);
    s->n_guesses = 0;
}

static bool next_of_drafter(struct speculation *s, const struct seq *text, size_t most,
                            const struct cancel *cancel, struct error *err)
{
    const size_t behind = drafter_behind(&s->drafter, text);
    if (behind == SIZE_MAX)
        return true;
    size_t n_read = 0;
    const size_t k = s->always ? most : spec_guard_make(&s->guard, behind, most, &n_read);
    if (n_read > 0) { // the last is read with the guess
        const double begin = clock_now();
        if (!drafter_read(&s->drafter, text, n_read - (n_read == behind), cancel, err))
            return false;
        s->read_s = clock_now() - begin;
        spec_guard_read(&s->guard, n_read, s->read_s);
    }
    return k == 0 || drafter_guess(&s->drafter, text, k, cancel, s->guesses, &s->n_guesses, err);
}

bool speculation_is_forced(const struct speculation *s)
{
    return s->n_guesses > 0 && s->kind == FORCED;
}

void speculation_made(struct speculation *s, const int32_t *guesses, size_t n)
{
    memcpy(s->guesses, guesses, n * sizeof *guesses);
    s->n_guesses = n;
    s->kind = SPEC_MADE;
}

bool speculation_says_who(const struct speculation *s, struct error *err)
{
    return error_prefix(err, s->source == SPEC_MTP ? "the prediction layer" : "the draft model");
}

bool speculation_next(struct speculation *s, const struct seq *text, size_t most,
                      const struct ids *forced, const struct cancel *cancel, size_t *n_drafts,
                      struct error *err)
{
    *n_drafts = 0;
    s->n_guesses = 0;
    s->kind = 0;
    s->read_s = 0;
    if (forced->len > 0) {
        s->kind = FORCED;
        s->n_guesses = forced->len;
        memcpy(s->guesses, forced->data, forced->len * sizeof *s->guesses);
    } else if (!looks_back(s)) {
        s->kind = SPEC_MADE;
        const bool ok = next_of_drafter(s, text, most, cancel, err);
        *n_drafts = s->n_guesses;
        return ok || speculation_says_who(s, err);
    }
    if (s->n_guesses == 0)
        s->n_guesses =
            ngram_guess(&s->ngram, seq_ids(text), seq_len(text), most, s->guesses, &s->kind);
    *n_drafts = s->n_guesses == 0 || s->always ? s->n_guesses
                                               : spec_guard_check(&s->guard, s->kind, s->n_guesses);
    return true;
}

void speculation_step(struct speculation *s, size_t n_drafts, const struct decoded *d, size_t n,
                      double seconds)
{
    // (Those that a constraint does not have were made, too.)
    const bool made = s->kind == SPEC_MADE;
    spec_guard_step(&s->guard, made ? s->n_guesses : n_drafts, n, seconds - s->read_s);
    const size_t n_seen = n_drafts > 0 ? n_drafts : s->n_guesses > 0;
    for (size_t i = 0, right = 1; right && i < n_seen; i++) {
        right = i < n && s->guesses[i] == d[i].id;
        spec_guard_count(&s->guard, s->kind, right);
        if (made && s->making)
            spec_making_count(s->making, right);
    }
    s->n_guesses = 0;
    s->read_s = 0;
}
