#include "engine/spec_making.h"

#include <stdlib.h>

enum {
    LEAST_TRIED = 4,  // guesses that must have been seen before one counts on them
    FEW_BEHIND = 8,   // tokens that are read with the first guess
    FIRST_READ = 64,  // by themselves, to see what that takes
    TRIED = 2,        // rounds made to see whether guesses come true
    CREDIT_STEPS = 8, // are put by for tries
    FIRST_STEPS = 4,  // are lent for the first ones,
    LENT_STEPS = 8,   // and for what is expected to pay that back soon, with
    LENT = 100,       // one second of so many:
    SOON_STEPS = 32,  // within these
    LOSS = 64,        // one second of so many may be lost
};

bool spec_making_init(struct spec_making *m, size_t n_parallel, double share, struct error *err)
{
    *m = (struct spec_making){.n_parallel = n_parallel, .share = share};
    m->round_s = calloc(1 + n_parallel, sizeof *m->round_s);
    return m->round_s || error_oom(err, "drafts", (1 + n_parallel) * sizeof *m->round_s);
}

void spec_making_release(struct spec_making *m)
{
    free(m->round_s);
    *m = (struct spec_making){0};
}

// What a round for n answers takes: between what was measured of fewer and of more. For more than
// were measured it is thought to take little more, as where reading the weights takes the time: so
// it comes to be measured.
static double round_s(const struct spec_making *m, const struct spec_cost *c, size_t n)
{
    size_t less = n, more = n;
    while (less > 0 && m->round_s[less] == 0)
        less--;
    while (more <= m->n_parallel && m->round_s[more] == 0)
        more++;
    if (less == 0 && more > m->n_parallel)
        return c->step_s * m->share;
    if (less > 0 && more <= m->n_parallel && less < more)
        return m->round_s[less] +
               (m->round_s[more] - m->round_s[less]) * (double)(n - less) / (double)(more - less);
    return m->round_s[less > 0 ? less : more];
}

double spec_making_chance(const struct spec_making *m)
{
    return m->tried < LEAST_TRIED ? 0 : m->right / m->tried;
}

// ---- what to do

static bool is_ready(const struct spec_wish *w)
{
    return w->behind <= FEW_BEHIND;
}

// Those that are ready first, the likeliest first; then those that give most for what is to be
// read.
static int by_use(const void *a, const void *b)
{
    const struct spec_wish *x = a, *y = b;
    if (is_ready(x) != is_ready(y))
        return is_ready(x) ? -1 : 1;
    const double x_costs = is_ready(x) ? 1 : FIRST_READ + (double)x->behind;
    const double y_costs = is_ready(y) ? 1 : FIRST_READ + (double)y->behind;
    const double more = x->chance * y_costs - y->chance * x_costs;
    if (more != 0)
        return more > 0 ? -1 : 1;
    if (x->behind != y->behind)
        return x->behind < y->behind ? -1 : 1;
    return x->of < y->of ? -1 : x->of > y->of;
}

// Tokens that k guesses are expected to give.
static double expected(const struct spec_wish *w, size_t k)
{
    double sum = 0, next = w->chance;
    for (size_t i = 0; i < k && i < w->most; i++, next *= w->chance)
        sum += next;
    return sum;
}

// How many guesses for each of the first *n_for of n answers give most tokens in a second, when all
// are checked; 0: none give more than a step without does. *gain: so much more, of that.
static size_t worth(const struct spec_making *m, const struct spec_cost *c,
                    const struct spec_wish *w, size_t n, size_t width, size_t most, size_t *n_for,
                    double *gain)
{
    const double row_s = spec_cost_draft_s(c);
    double best = (double)width / c->step_s;
    size_t best_k = 0, longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = w[i].most > longest ? w[i].most : longest;
    for (size_t k = 1; k <= longest; k++) {
        double tokens = (double)width;
        for (size_t i = 0; i < n && (i + 1) * k <= most; i++) {
            const double rows = (double)((i + 1) * k);
            tokens += expected(&w[i], k);
            const double seconds = c->step_s + (double)k * round_s(m, c, i + 1) + rows * row_s;
            if (tokens > best * seconds) {
                best = tokens / seconds;
                best_k = k;
                *n_for = i + 1;
            }
        }
    }
    *gain = best * c->step_s / (double)width - 1;
    return best_k;
}

// Whether there is credit for what takes so long.
static bool afford(struct spec_making *m, double seconds, double *left)
{
    if (seconds > *left) {
        m->wanted = seconds > m->wanted ? seconds : m->wanted;
        return false;
    }
    *left -= seconds;
    return true;
}

// What it takes to read what w is behind by, or as much as shows that.
static double read_s(const struct spec_making *m, const struct spec_cost *c,
                     const struct spec_wish *w)
{
    const double each = m->read_s > 0 ? m->read_s : c->step_s * m->share;
    return each * (double)(m->read_known || w->behind < FIRST_READ ? w->behind : FIRST_READ);
}

static void read_now(const struct spec_making *m, struct spec_wish *w, size_t most)
{
    const size_t n = m->read_known || w->behind < FIRST_READ ? w->behind : FIRST_READ;
    w->n_read = n < most ? n : most;
}

static double try_s(const struct spec_making *m, const struct spec_cost *c, size_t n)
{
    return TRIED * (round_s(m, c, n) + (double)n * spec_cost_draft_s(c));
}

// Seconds that may be spent to see how guesses do.
static double credit(const struct spec_making *m, const struct spec_cost *c)
{
    return m->credit + (m->tried < LEAST_TRIED ? FIRST_STEPS * c->step_s : 0);
}

// And to begin with what is expected to pay: a debt that is paid back by what is won.
static double loan(const struct spec_making *m, const struct spec_cost *c)
{
    return m->credit + LENT_STEPS * c->step_s + m->total_s / LENT;
}

// Guesses pay: those that are not read yet join as what is won allows.
static void read_more(struct spec_making *m, const struct spec_cost *c, struct spec_wish *w,
                      size_t n, size_t most)
{
    double left = m->credit;
    for (size_t i = 0; i < n && afford(m, read_s(m, c, &w[i]), &left); i++) {
        read_now(m, &w[i], most);
        if (!m->read_known)
            break;
    }
}

// Of n that are ready some are tried: those of which nothing is known, else any.
static bool try_some(struct spec_making *m, const struct spec_cost *c, struct spec_wish *w,
                     size_t n, bool only_new, size_t most)
{
    size_t n_try = 0, n_made = 0;
    double left = credit(m, c);
    for (size_t i = 0; i < n; i++)
        n_try += w[i].is_new || !only_new;
    n_try = n_try < most / TRIED ? n_try : most / TRIED;
    while (n_try > 1 && try_s(m, c, n_try) > left)
        n_try--;
    if (n_try == 0 || !afford(m, try_s(m, c, n_try), &left))
        return false;
    for (size_t i = 0; n_made < n_try; i++)
        if (w[i].is_new || !only_new) {
            w[i].n_make = TRIED < w[i].most ? TRIED : w[i].most;
            n_made++;
        }
    return true;
}

// No guesses pay, of the first n_ready of n. Those that would, together with others, are read: all
// at once, since who is read and not guessed for falls behind again. Else some are tried, or one is
// read that will be. Returns whether some are tried.
static bool explore(struct spec_making *m, const struct spec_cost *c, struct spec_wish *w,
                    size_t n_ready, size_t n, size_t width, size_t most, size_t most_read)
{
    double left, all = 0, gain;
    size_t n_for = 0, next = n_ready;
    bool any_new = false;
    if (worth(m, c, w, n, width, most, &n_for, &gain) > 0 && n_for > n_ready) {
        if (!m->read_known)
            n_for = n_ready + 1;
        for (size_t i = n_ready; i < n_for; i++)
            all += read_s(m, c, &w[i]);
        left = all < gain * SOON_STEPS * c->step_s ? loan(m, c) : m->credit;
        for (size_t i = n_ready, can = afford(m, all, &left); can && i < n_for; i++)
            read_now(m, &w[i], most_read);
        return false;
    }
    left = credit(m, c);
    for (size_t i = 0; i < n_ready; i++)
        any_new |= w[i].is_new;
    while (next < n && !w[next].is_new)
        next++;
    if (n_ready > 0 && (any_new || next == n))
        return try_some(m, c, w, n_ready, any_new, most);
    next = next < n ? next : n_ready;
    if (next < n && afford(m, read_s(m, c, &w[next]) + try_s(m, c, 1), &left))
        read_now(m, &w[next], most_read);
    return false;
}

bool spec_making_choose(struct spec_making *m, const struct spec_cost *c, struct spec_wish *w,
                        size_t n, size_t width, size_t most, size_t most_read, bool reads)
{
    size_t n_ready = 0, n_for = 0;
    double gain;
    m->wanted = 0;
    for (size_t i = 0; i < n; i++) {
        w[i].n_make = w[i].n_read = 0;
        if (w[i].is_new)
            w[i].chance = spec_making_chance(m);
        n_ready += is_ready(&w[i]);
    }
    if (spec_cost_wants_plain(c, reads))
        return false;
    qsort(w, n, sizeof *w, by_use);
    const size_t k = worth(m, c, w, n_ready, width, most, &n_for, &gain);
    if (k == 0)
        return !reads && explore(m, c, w, n_ready, n, width, most, most_read);
    for (size_t i = 0; i < n_for; i++)
        w[i].n_make = k < w[i].most ? k : w[i].most;
    if (!reads)
        read_more(m, c, w + n_ready, n - n_ready, most_read);
    return false;
}

// ---- what was measured

static double see(double known, double seen, double room)
{
    return known > 0 ? spec_blend(known, seen, room) : seen;
}

void spec_making_made(struct spec_making *m, size_t n, size_t n_rounds, double step_s,
                      double seconds)
{
    m->round_s[n] = see(m->round_s[n], seconds / (double)n_rounds, step_s);
}

void spec_making_read(struct spec_making *m, size_t n_tokens, double step_s, double seconds)
{
    const double each = seconds / (double)n_tokens;
    m->read_s = m->read_known ? spec_blend(m->read_s, each, step_s) : each;
    m->read_known = true;
    m->credit -= seconds;
}

void spec_making_prompt(struct spec_making *m, size_t n_tokens, bool alone, double seconds)
{
    enum { ENOUGH = 16 }; // tokens, to know from what one takes
    m->total_s += seconds;
    m->credit += seconds / LOSS;
    if (alone && n_tokens >= ENOUGH && !m->read_known)
        m->read_s = m->share * seconds / (double)n_tokens;
}

void spec_making_count(struct spec_making *m, bool right)
{
    const double fade = 255.0 / 256;
    m->tried = m->tried * fade + 1;
    m->right = m->right * fade + right;
}

void spec_making_step(struct spec_making *m, const struct spec_cost *c, size_t width, size_t n,
                      bool made, double seconds)
{
    const double steps = CREDIT_STEPS * c->step_s, most = m->wanted > steps ? m->wanted : steps;
    m->total_s += seconds;
    if (made)
        m->credit += (double)n / (double)width * c->step_s - seconds;
    m->credit += seconds / LOSS;
    if (m->credit > most)
        m->credit = most;
}
