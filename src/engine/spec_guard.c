#include "engine/spec_guard.h"

enum {
    LEAST_TRIED = 4,  // guesses that must have been seen before one counts on them
    PLAIN_EVERY = 64, // steps: one without drafts, to see what it costs
    FIRST_WAIT = 128, // steps; twice as many each time that drafts do not pay,
    LAST_WAIT = 4096, // up to so many
    FEW_BEHIND = 8,   // tokens that are read in the step itself
    FIRST_READ = 64,  // by themselves, to see what that takes
    MOST_TRIED = 2,   // guesses made to see whether they come true
    CREDIT_STEPS = 8, // are put by for tries
    LOSS = 40,        // one second of so many may be lost
};

void spec_guard_init(struct spec_guard *g, double share)
{
    *g = (struct spec_guard){.wait = FIRST_WAIT, .share = share};
}

// Until it is measured a draft that costs no guess is thought to cost little: to try is how it is
// measured.
static double draft_s(const struct spec_guard *g)
{
    return g->measured ? g->draft_s : g->step_s / 16 + g->step_s * g->share;
}

// How many of n guesses to check: what gives most tokens in a second, when each comes true with the
// chance that the last ones had, and only if those before it did.
static size_t worth(const struct spec_guard *g, size_t kind, size_t n)
{
    const double each = draft_s(g), chance = g->right[kind] / g->tried[kind];
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

size_t spec_guard_check(struct spec_guard *g, size_t kind, size_t n)
{
    if (g->step_s == 0 || g->tried[kind] < LEAST_TRIED || g->n_drafted >= PLAIN_EVERY)
        return 0;
    size_t k = worth(g, kind, n);
    if (k > 0) {
        g->n_waited = 0;
        return k;
    }
    // What a draft costs may have changed, or was measured while something else ran.
    if (g->right[kind] < g->tried[kind] / 2 || ++g->n_waited < g->wait)
        return 0;
    g->n_waited = 0;
    g->wait = g->wait < LAST_WAIT ? 2 * g->wait : LAST_WAIT;
    return n;
}

// What does not pay by what is known is tried as often as the loss is small, so that no text takes
// much longer than without drafts, and what has changed is seen.
size_t spec_guard_make(struct spec_guard *g, size_t n_behind, size_t most, size_t *n_read)
{
    g->wanted = 0;
    *n_read = 0;
    if (g->step_s == 0 || g->n_drafted >= PLAIN_EVERY || most == 0)
        return 0;
    const bool known = g->measured && g->tried[0] >= LEAST_TRIED;
    size_t k = known ? worth(g, 0, most) : 0;
    if (k == 0) {
        k = most < MOST_TRIED ? most : MOST_TRIED;
        g->wanted = (double)k * draft_s(g);
    }
    if (n_behind > FEW_BEHIND) {
        const bool all = g->read_known || n_behind <= FIRST_READ;
        *n_read = all ? n_behind : FIRST_READ;
        g->wanted += (double)*n_read * (g->read_s > 0 ? g->read_s : g->step_s * g->share);
        k = all ? k : 0;
    }
    if (g->wanted <= g->credit)
        return k;
    *n_read = 0;
    return 0;
}

void spec_guard_count(struct spec_guard *g, size_t kind, bool right)
{
    const double fade = 31.0 / 32;
    g->tried[kind] = g->tried[kind] * fade + 1;
    g->right[kind] = g->right[kind] * fade + right;
}

// What something costs, seen once more: slowly, and what takes far longer than it ever did (another
// program ran) counts as if it had taken a bit longer.
static double blend(double known, double seen, double room)
{
    const double most = 3 * known + room;
    return known + 0.2 * ((seen < most ? seen : most) - known);
}

// No more is put by than the next try needs.
static void earn(struct spec_guard *g, double seconds)
{
    const double steps = CREDIT_STEPS * g->step_s, most = g->wanted > steps ? g->wanted : steps;
    g->credit += seconds;
    if (g->credit > most)
        g->credit = most;
}

void spec_guard_step(struct spec_guard *g, size_t n_drafts, size_t n, double seconds)
{
    if (n_drafts == 0) {
        g->step_s = g->step_s > 0 ? blend(g->step_s, seconds, 0) : seconds;
        g->n_drafted = 0;
    } else {
        double each = (seconds - g->step_s) / (double)n_drafts;
        each = each > 0 ? each : 0;
        g->draft_s = g->measured ? blend(g->draft_s, each, g->step_s) : each;
        g->measured = true;
        g->n_drafted++;
        earn(g, (double)n * g->step_s - seconds);
    }
    earn(g, seconds / LOSS);
}

void spec_guard_prompt(struct spec_guard *g, size_t n, double seconds)
{
    enum { ENOUGH = 16 }; // tokens, to know from what one takes
    if (g->share == 0 || n == 0)
        return;
    if (n >= ENOUGH && !g->read_known)
        g->read_s = g->share * seconds / (double)n;
    g->credit += seconds / LOSS;
}

void spec_guard_read(struct spec_guard *g, size_t n, double seconds)
{
    const double each = seconds / (double)n;
    g->read_s = g->read_known ? blend(g->read_s, each, g->step_s) : each;
    g->read_known = true;
    g->credit -= seconds;
}
