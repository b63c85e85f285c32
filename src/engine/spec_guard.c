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

// ---- what to check

// Until it is measured a draft is thought to cost little, as a row does where reading the weights
// takes the time, or half of what each of many rows takes: to try is how it is measured.
void spec_cost_init(struct spec_cost *c, size_t n_rows)
{
    enum { FEW_ROWS = 8 };
    const size_t n = n_rows > FEW_ROWS ? n_rows : FEW_ROWS;
    *c = (struct spec_cost){.wait = FIRST_WAIT, .share = 1 / (2.0 * (double)n)};
}

double spec_cost_draft_s(const struct spec_cost *c)
{
    return c->measured ? c->draft_s : c->step_s * c->share;
}

// The row of whose guesses another one gives most; NULL: all are chosen.
static struct spec_row *best_row(struct spec_row *rows, size_t n)
{
    struct spec_row *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (rows[i].n_check < rows[i].n && (!best || rows[i].gain > best->gain))
            best = &rows[i];
    return best;
}

// What gives most tokens in a second, when each guess comes true with its row's chance, and only if
// those before it did: the likeliest first, as long as one more pays.
static size_t worth(const struct spec_cost *c, struct spec_row *rows, size_t n, size_t width,
                    size_t most)
{
    const double each = spec_cost_draft_s(c);
    double tokens = (double)width, seconds = c->step_s;
    size_t n_chosen = 0;
    for (size_t i = 0; i < n; i++) {
        rows[i].gain = rows[i].chance;
        rows[i].n_check = 0;
    }
    for (struct spec_row *r; n_chosen < most && (r = best_row(rows, n)) != NULL; n_chosen++) {
        if (r->gain * seconds <= each * tokens)
            break;
        tokens += r->gain;
        seconds += each;
        r->gain *= r->chance;
        r->n_check++;
    }
    return n_chosen;
}

// What one answer is likely to have right; of several each the first, and so on, as many as there
// are answers.
static size_t try_out(struct spec_row *rows, size_t n, size_t width, size_t most)
{
    size_t n_chosen = 0, before;
    if (width > 1 && most > width)
        most = width;
    do {
        before = n_chosen;
        for (size_t i = 0; i < n && n_chosen < most; i++)
            if (rows[i].chance >= 0.5 && rows[i].n_check < rows[i].n) {
                rows[i].n_check++;
                n_chosen++;
            }
    } while (n_chosen > before);
    return n_chosen;
}

bool spec_cost_wants_plain(const struct spec_cost *c, bool reads)
{
    return c->step_s == 0 || (c->n_drafted >= PLAIN_EVERY && !reads);
}

size_t spec_cost_check(struct spec_cost *c, struct spec_row *rows, size_t n, size_t width,
                       size_t most, bool reads)
{
    for (size_t i = 0; i < n; i++)
        rows[i].n_check = 0;
    if (spec_cost_wants_plain(c, reads))
        return 0;
    const size_t k = worth(c, rows, n, width, most);
    if (reads)
        return k;
    if (k > 0) {
        c->n_waited = 0;
        return k;
    }
    // What a draft costs may have changed, or was measured while something else ran.
    bool likely = false;
    for (size_t i = 0; i < n; i++)
        likely |= rows[i].chance >= 0.5 && rows[i].n > 0;
    if (!likely || ++c->n_waited < c->wait)
        return 0;
    c->n_waited = 0;
    c->wait = c->wait < LAST_WAIT ? 2 * c->wait : LAST_WAIT;
    return try_out(rows, n, width, most);
}

// Slowly, and what takes far longer than it ever did (another program ran) counts as if it had
// taken a bit longer.
double spec_blend(double known, double seen, double room)
{
    const double most = 3 * known + room;
    return known + 0.2 * ((seen < most ? seen : most) - known);
}

void spec_cost_step(struct spec_cost *c, size_t n_drafts, double seconds)
{
    if (n_drafts == 0) {
        c->step_s = c->step_s > 0 ? spec_blend(c->step_s, seconds, 0) : seconds;
        c->n_drafted = 0;
        return;
    }
    double each = (seconds - c->step_s) / (double)n_drafts;
    each = each > 0 ? each : 0;
    c->draft_s = c->measured ? spec_blend(c->draft_s, each, c->step_s) : each;
    c->measured = true;
    c->n_drafted++;
}

// ---- one answer

void spec_guard_init(struct spec_guard *g, double share)
{
    *g = (struct spec_guard){.share = share};
    spec_cost_init(&g->cost, 1);
    g->cost.share += share;
}

bool spec_guard_knows(const struct spec_guard *g, size_t kind)
{
    return g->tried[kind] >= LEAST_TRIED;
}

double spec_guard_chance(const struct spec_guard *g, size_t kind)
{
    return spec_guard_knows(g, kind) ? g->right[kind] / g->tried[kind] : 0;
}

size_t spec_guard_check(struct spec_guard *g, size_t kind, size_t n)
{
    struct spec_row row = {.n = n, .chance = spec_guard_chance(g, kind)};
    return spec_cost_check(&g->cost, &row, 1, 1, n, false);
}

// What does not pay by what is known is tried as often as the loss is small, so that no text takes
// much longer than without drafts, and what has changed is seen.
size_t spec_guard_make(struct spec_guard *g, size_t n_behind, size_t most, size_t *n_read)
{
    g->wanted = 0;
    *n_read = 0;
    const struct spec_cost *c = &g->cost;
    if (spec_cost_wants_plain(c, false) || most == 0)
        return 0;
    struct spec_row row = {.n = most, .chance = spec_guard_chance(g, SPEC_MADE)};
    size_t k = c->measured ? worth(c, &row, 1, 1, most) : 0;
    if (k == 0) {
        k = most < MOST_TRIED ? most : MOST_TRIED;
        g->wanted = (double)k * spec_cost_draft_s(c);
    }
    if (n_behind > FEW_BEHIND) {
        const bool all = g->read_known || n_behind <= FIRST_READ;
        *n_read = all ? n_behind : FIRST_READ;
        g->wanted += (double)*n_read * (g->read_s > 0 ? g->read_s : c->step_s * g->share);
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

// No more is put by than the next try needs.
static void earn(struct spec_guard *g, double seconds)
{
    const double steps = CREDIT_STEPS * g->cost.step_s,
                 most = g->wanted > steps ? g->wanted : steps;
    g->credit += seconds;
    if (g->credit > most)
        g->credit = most;
}

void spec_guard_step(struct spec_guard *g, size_t n_drafts, size_t n, double seconds)
{
    spec_cost_step(&g->cost, n_drafts, seconds);
    if (n_drafts > 0)
        earn(g, (double)n * g->cost.step_s - seconds);
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
    g->read_s = g->read_known ? spec_blend(g->read_s, each, g->cost.step_s) : each;
    g->read_known = true;
    g->credit -= seconds;
}
