#include "engine/guesses.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine/schedule.h"

// Drafters that an engine can have without one taking another's state or window.
static size_t most_drafters(const struct engine *draft)
{
    const size_t windows = engine_windows(draft);
    const size_t states = draft->n_states > 0 ? draft->n_states / 2 : SIZE_MAX;
    return windows < states ? windows : states;
}

bool guesses_init(struct guesses *g, struct engine *e, struct engine *draft, size_t n_parallel,
                  struct error *err)
{
    *g = (struct guesses){.engine = e, .n_parallel = n_parallel};
    if (!engine_takes_drafts(e))
        return true;
    g->costs = malloc((1 + n_parallel) * sizeof *g->costs);
    g->rows = malloc(n_parallel * sizeof *g->rows);
    g->wishes = malloc(n_parallel * sizeof *g->wishes);
    if (!g->costs || !g->rows || !g->wishes)
        return error_oom(err, "drafts", (1 + n_parallel) * sizeof *g->costs);
    for (size_t i = 0; i <= n_parallel; i++)
        spec_cost_init(&g->costs[i], i);
    if (!draft)
        return true;
    g->draft = draft;
    g->most_drafters = most_drafters(draft);
    return spec_making_init(&g->making, n_parallel, speculation_share(draft->model, e->model), err);
}

void guesses_release(struct guesses *g)
{
    free(g->costs);
    free(g->rows);
    free(g->wishes);
    spec_making_release(&g->making);
    *g = (struct guesses){0};
}

// ---- who has a drafter

bool guesses_enter(struct guesses *g, struct task *t, struct error *err)
{
    struct speculation *x = t->session.speculation;
    if (!g->costs)
        return true;
    if (!x) {
        struct engine *draft = g->n_drafters < g->most_drafters ? g->draft : NULL;
        x = malloc(sizeof *x);
        if (!x || !speculation_init_beside(x, g->engine, draft, draft ? &g->making : NULL, err)) {
            free(x);
            return x || error_oom(err, "drafts", sizeof *x);
        }
        g->n_drafters += draft != NULL;
        t->session.speculation = x;
    }
    return x->source != SPEC_MTP ||
           seq_keep_hidden(t->session.seq, drafter_n_hidden(g->engine->n_ctx, g->n_parallel), err);
}

void guesses_pause(struct task *t)
{
    if (t->session.speculation && t->session.speculation->making)
        drafter_forget(&t->session.speculation->drafter);
}

void guesses_leave(struct guesses *g, struct task *t)
{
    struct speculation *x = t->session.speculation;
    if (!x)
        return;
    g->n_drafters -= x->making != NULL;
    speculation_release(x);
    free(x);
    t->session.speculation = NULL;
}

// ---- what is guessed

bool guesses_find(struct guesses *g, struct task *t, size_t n_left, const struct cancel *cancel,
                  struct error *err)
{
    t->n_guesses = t->most_guesses = 0;
    if (!g->costs || t->reading)
        return true;
    const size_t room = seq_max_drafts(t->session.seq);
    t->most_guesses = room < n_left ? room : n_left - 1;
    return generation_guess(&t->gen, n_left, cancel, &t->n_guesses, err);
}

// That a guess of a kind comes true for t, as far as is known: of those that are made, from others.
static double chance(const struct guesses *g, const struct task *t, size_t kind)
{
    const struct spec_guard *guard = &t->session.speculation->guard;
    return kind == SPEC_MADE && !spec_guard_knows(guard, kind) ? spec_making_chance(&g->making)
                                                               : spec_guard_chance(guard, kind);
}

// Those of n tasks for whom guesses can be made, better ones than there are, and for whom the
// engine has room.
static size_t find_wishes(struct guesses *g, struct task **tasks, size_t n)
{
    size_t n_free = engine_free_blocks(g->draft), n_wishes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct task *t = tasks[i];
        struct speculation *x = t->session.speculation;
        if (t->reading || t->most_guesses == 0 || !x->making)
            continue;
        const struct seq *text = t->session.seq;
        const bool is_new = !spec_guard_knows(&x->guard, SPEC_MADE);
        const bool better =
            t->n_guesses == 0 || is_new || chance(g, t, x->kind) < chance(g, t, SPEC_MADE);
        const size_t behind = speculation_is_forced(x) || !(better || g->always)
                                  ? SIZE_MAX
                                  : drafter_behind(&x->drafter, text);
        if (behind == SIZE_MAX)
            continue;
        const size_t needed = drafter_needs_blocks(&x->drafter, text, t->most_guesses);
        if (needed > n_free)
            continue;
        n_free -= needed;
        g->wishes[n_wishes++] =
            (struct spec_wish){.of = i,
                               .behind = behind,
                               .most = t->most_guesses,
                               .is_new = is_new,
                               .chance = spec_guard_chance(&x->guard, SPEC_MADE)};
    }
    return n_wishes;
}

static void failed(struct task *t, const struct error *why)
{
    t->error = *why;
    speculation_says_who(t->session.speculation, &t->error);
}

// What some are behind by is read.
static bool read_wishes(struct guesses *g, struct task **tasks, size_t n, double step_s,
                        const struct cancel *cancel, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct spec_wish *w = &g->wishes[i];
        struct task *t = tasks[w->of];
        struct error why = {0};
        if (w->n_read == 0)
            continue;
        const bool ok = drafter_read(&t->session.speculation->drafter, t->session.seq,
                                     w->n_read - (w->n_read == w->behind), cancel, &why);
        const double seconds = clock_now() - g->began - g->read_s;
        g->read_s += seconds;
        spec_making_read(&g->making, w->n_read, step_s, seconds);
        if (!ok && why.code == ERR_INTERRUPTED)
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        if (!ok)
            failed(t, &why);
    }
    return true;
}

static bool make_wishes(struct guesses *g, struct task **tasks, size_t n, double step_s,
                        const struct cancel *cancel, struct error *err)
{
    struct draft_turn turns[ENGINE_MAX_PASS_DRAFTS];
    int32_t out[ENGINE_MAX_PASS_DRAFTS][ENGINE_MAX_DRAFTS];
    struct task *of[ENGINE_MAX_PASS_DRAFTS];
    size_t n_turns = 0, n_rounds = 0;
    struct error why = {0};
    for (size_t i = 0; i < n && n_turns < ENGINE_MAX_PASS_DRAFTS; i++) {
        const struct spec_wish *w = &g->wishes[i];
        struct task *t = tasks[w->of];
        if (w->n_make == 0 || t->error.code != ERR_NONE)
            continue;
        of[n_turns] = t;
        turns[n_turns] = (struct draft_turn){.d = &t->session.speculation->drafter,
                                             .text = t->session.seq,
                                             .most = w->n_make,
                                             .out = out[n_turns]};
        n_turns++;
    }
    if (n_turns == 0)
        return true;
    const bool ok = drafters_guess(turns, n_turns, cancel, &why);
    g->made_s = clock_now() - g->began - g->read_s;
    if (!ok && why.code == ERR_INTERRUPTED)
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    for (size_t i = 0; i < n_turns; i++) {
        struct task *t = of[i];
        n_rounds = turns[i].n_out > n_rounds ? turns[i].n_out : n_rounds;
        if (turns[i].failed)
            failed(t, &why);
        if (turns[i].failed || turns[i].n_out == 0)
            continue;
        speculation_made(t->session.speculation, turns[i].out, turns[i].n_out);
        struct error its = {0};
        if (!generation_made(&t->gen, &t->n_guesses, &its))
            t->error = its;
    }
    g->made = n_rounds > 0;
    if (g->made)
        spec_making_made(&g->making, n_turns, n_rounds, step_s, g->made_s);
    return true;
}

bool guesses_make(struct guesses *g, struct task **tasks, size_t n, double began,
                  const struct cancel *cancel, struct error *err)
{
    size_t width = 0;
    g->began = began;
    g->made = g->tries = false;
    g->made_s = g->read_s = 0;
    for (size_t i = 0; i < n; i++)
        width += !tasks[i]->reading;
    if (!g->draft || width == 0)
        return true;
    const size_t n_wishes = find_wishes(g, tasks, n);
    const struct spec_cost *c = &g->costs[width];
    if (g->always)
        for (size_t i = 0; i < n_wishes; i++)
            g->wishes[i].n_make = g->wishes[i].most;
    else
        g->tries = spec_making_choose(&g->making, c, g->wishes, n_wishes, width,
                                      ENGINE_MAX_PASS_DRAFTS, g->draft->n_batch, width < n);
    return read_wishes(g, tasks, n_wishes, c->step_s, cancel, err) &&
           make_wishes(g, tasks, n_wishes, c->step_s, cancel, err);
}

// ---- what is checked

size_t guesses_bring(struct guesses *g, struct work *works, struct task **tasks, size_t n)
{
    size_t n_rows = 0, n_decoded = 0, n_brought = 0;
    if (!g->costs)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const struct task *t = tasks[i];
        n_decoded += !t->reading;
        if (!t->reading && t->n_guesses > 0)
            g->rows[n_rows++] =
                (struct spec_row){.n = t->n_guesses,
                                  .chance = chance(g, t, t->session.speculation->kind),
                                  .n_check = t->n_guesses};
    }
    if (n_decoded > 0 && !g->always)
        spec_cost_check(&g->costs[n_decoded], g->rows, n_rows, n_decoded, ENGINE_MAX_PASS_DRAFTS,
                        n_decoded < n);
    n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        const struct task *t = tasks[i];
        if (t->reading || t->n_guesses == 0)
            continue;
        const struct speculation *x = t->session.speculation;
        const size_t n_check = g->rows[n_rows++].n_check;
        works[i].drafts = x->guesses;
        works[i].n_drafts = g->tries && x->kind == SPEC_MADE ? t->n_guesses : n_check;
    }
    engine_fit_drafts(g->engine, works, n);
    for (size_t i = 0; i < n; i++)
        n_brought += works[i].n_drafts;
    return n_brought;
}

void guesses_step(struct guesses *g, size_t width, size_t n_drafts, size_t n, size_t n_read,
                  double seconds)
{
    struct spec_cost *c = g->costs ? &g->costs[width] : NULL;
    const double spent = seconds - g->read_s;
    if (!c)
        return;
    if (g->draft && n_read > 0)
        spec_making_prompt(&g->making, n_read, width == 0, seconds);
    if (n_read > 0 || width == 0)
        return;
    if (g->draft)
        spec_making_step(&g->making, c, width, n, g->made, spent);
    spec_cost_step(c, n_drafts, spent - g->made_s);
}
