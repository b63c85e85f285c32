#include "engine/speculate.h"

enum {
    LEAST_TRIED = 4,  // guesses that must have been seen before one is checked
    PLAIN_EVERY = 64, // steps: one without drafts, to see what it costs
    FIRST_WAIT = 128, // steps; twice as many each time that drafts do not pay,
    LAST_WAIT = 4096, // up to so many
};

bool speculation_init(struct speculation *s, size_t n_ctx, struct error *err)
{
    *s = (struct speculation){.guard.wait = FIRST_WAIT};
    return ngram_init(&s->ngram, n_ctx, err);
}

void speculation_release(struct speculation *s)
{
    ngram_release(&s->ngram);
    *s = (struct speculation){0};
}

void speculation_forget(struct speculation *s)
{
    ngram_forget(&s->ngram);
    s->n_guesses = 0;
}

// How many of n guesses to check: what gives most tokens in a second, when each comes true with the
// chance that the last ones had, and only if those before it did.
static size_t worth(const struct spec_guard *g, size_t length, size_t n)
{
    // Until it is measured a draft costs little: to try is how it is measured.
    const double each = g->measured ? g->draft_s : g->step_s / 16;
    const double chance = g->right[length] / g->tried[length];
    double tokens = 1, next = 1, best = 1 / g->step_s;
    size_t n_best = 0;
    for (size_t k = 1; k <= n; k++) {
        next *= chance;
        tokens += next;
        if (tokens / (g->step_s + (double)k * each) > best) {
            best = tokens / (g->step_s + (double)k * each);
            n_best = k;
        }
    }
    return n_best;
}

static size_t decide(struct spec_guard *g, size_t length, size_t n)
{
    if (g->step_s == 0 || g->tried[length] < LEAST_TRIED || g->n_drafted >= PLAIN_EVERY)
        return 0;
    size_t k = worth(g, length, n);
    if (k > 0) {
        g->n_waited = 0;
        return k;
    }
    // What a draft costs may have changed, or was measured while something else ran.
    if (g->right[length] < g->tried[length] / 2 || ++g->n_waited < g->wait)
        return 0;
    g->n_waited = 0;
    g->wait = g->wait < LAST_WAIT ? 2 * g->wait : LAST_WAIT;
    return n;
}

size_t speculation_next(struct speculation *s, const int32_t *ids, size_t n, size_t most)
{
    s->n_guesses = ngram_guess(&s->ngram, ids, n, most, s->guesses, &s->length);
    if (s->n_guesses == 0 || s->always)
        return s->n_guesses;
    return decide(&s->guard, s->length, s->n_guesses);
}

static void count_guess(struct spec_guard *g, size_t length, bool right)
{
    const double fade = 31.0 / 32;
    g->tried[length] = g->tried[length] * fade + 1;
    g->right[length] = g->right[length] * fade + right;
}

// What something costs, seen once more: slowly, and what takes far longer than it ever did (another
// program ran) counts as if it had taken a bit longer.
static double blend(double known, double seen, double room)
{
    const double most = 3 * known + room;
    return known + 0.2 * ((seen < most ? seen : most) - known);
}

void speculation_step(struct speculation *s, size_t n_drafts, const struct decoded *d, size_t n,
                      double seconds)
{
    struct spec_guard *g = &s->guard;
    if (n_drafts == 0) {
        g->step_s = g->step_s > 0 ? blend(g->step_s, seconds, 0) : seconds;
        g->n_drafted = 0;
    } else {
        double each = (seconds - g->step_s) / (double)n_drafts;
        each = each > 0 ? each : 0;
        g->draft_s = g->measured ? blend(g->draft_s, each, g->step_s) : each;
        g->measured = true;
        g->n_drafted++;
    }
    const size_t n_seen = n_drafts > 0 ? n_drafts : s->n_guesses > 0;
    for (size_t i = 0, right = 1; right && i < n_seen; i++) {
        right = i < n && s->guesses[i] == d[i].id;
        count_guess(g, s->length, right);
    }
    s->n_guesses = 0;
}
