#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/setpool.h"

#define NONE UINT32_MAX

struct maker {
    const struct nfa *a;
    struct dfa *d;
    struct work *work;
    struct setpool sets; // of states, and the length; sets[i] is d->states[i - 1]
    uint64_t *list;      // scratch: the set that is being made
    size_t n, cap;
    uint32_t *seen, epoch; // (a->n)
    uint32_t *stack;       // (2 * a->n + 2)
    uint32_t *cuts;        // where characters stop being alike
    size_t n_cuts, cap_cuts;
    bool failed;
};

// Adds what is reached from a state without a character: states that take one, and matches. begin,
// end: at the beginning, the end of the text.
static void spread(struct maker *m, uint32_t from, bool begin, bool end, uint32_t *matched)
{
    size_t n = 0;
    m->stack[n++] = from;
    while (n && work_add(m->work, 1)) {
        uint32_t s = m->stack[--n];
        if (s == NONE || m->seen[s] == m->epoch)
            continue;
        m->seen[s] = m->epoch;
        const struct nfa_state *q = &m->a->states[s];
        switch (q->kind) {
        case NFA_EITHER:
            m->stack[n++] = q->a;
            m->stack[n++] = q->b;
            break;
        case NFA_BEGIN:
            if (begin)
                m->stack[n++] = q->a;
            break;
        case NFA_END:
            if (end)
                m->stack[n++] = q->a;
            if (!array_grow(&m->failed, &m->list, m->n, &m->cap, sizeof *m->list))
                return;
            m->list[m->n++] = s; // looked at again where the text ends
            break;
        case NFA_MATCH:
            *matched |= 1u << q->a;
            // fall through
        case NFA_CHAR:
            if (!array_grow(&m->failed, &m->list, m->n, &m->cap, sizeof *m->list))
                return;
            m->list[m->n++] = s;
            break;
        }
    }
}

// The state for m->list, at a length; made when it is new. The first one is told from all others,
// for only there the text begins.
static uint32_t state_of(struct maker *m, uint32_t length, bool first)
{
    if (!array_grow(&m->failed, &m->list, m->n, &m->cap, sizeof *m->list))
        return NONE;
    m->list[m->n++] = (uint64_t)(first ? 3 : 1) << 32 | length;
    uint32_t set = setpool_add(&m->sets, m->list, m->n);
    if (set == SETPOOL_FAILED) {
        m->failed = true;
        return NONE;
    }
    if (set > m->d->n_states) {
        struct dfa *d = m->d;
        if (!array_grow(&m->failed, &d->states, d->n_states, &d->cap_states, sizeof *d->states))
            return NONE;
        d->states[d->n_states++] = (struct dfa_state){0};
    }
    return set - 1;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void make_edges(struct maker *m, uint32_t state, uint32_t min, uint32_t max, bool first)
{
    const struct nfa *a = m->a;
    uint32_t n;
    const uint64_t *items = setpool_get(&m->sets, state + 1, &n);
    uint32_t length = (uint32_t)items[n - 1], matched = 0; // the length is the largest number
    // Whether the text may end here.
    m->epoch++;
    m->n = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct nfa_state *q = &a->states[items[i]];
        if (q->kind == NFA_MATCH)
            matched |= 1u << q->a;
        else if (q->kind == NFA_END)
            spread(m, q->a, first, true, &matched);
    }
    m->d->states[state].accepts = length >= min && matched == (1u << a->n_patterns) - 1;
    m->d->states[state].first = m->d->n_edges;
    if (max != NONE && length == max)
        return;
    uint32_t next_length = max != NONE || length < min ? length + 1 : length;
    // Between two cuts all characters lead to the same state.
    m->n_cuts = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct charset *c = a->states[items[i]].chars;
        for (size_t k = 0; c && k < c->n; k++)
            if (array_grow(&m->failed, &m->cuts, m->n_cuts + 1, &m->cap_cuts, sizeof *m->cuts)) {
                m->cuts[m->n_cuts++] = c->r[k].lo;
                m->cuts[m->n_cuts++] = c->r[k].hi + 1;
            }
    }
    if (!work_add(m->work, n + m->n_cuts))
        return;
    if (m->n_cuts)
        qsort(m->cuts, m->n_cuts, sizeof *m->cuts, ascending);
    for (size_t i = 0; i + 1 < m->n_cuts && !m->failed; i++) {
        uint32_t lo = m->cuts[i], hi = m->cuts[i + 1] - 1;
        if (lo > hi || m->cuts[i] == m->cuts[i + 1])
            continue;
        if (!work_add(m->work, n))
            return;
        m->epoch++;
        m->n = 0;
        items = setpool_get(&m->sets, state + 1, &n);
        uint32_t unused = 0;
        for (uint32_t k = 0; k + 1 < n; k++) {
            const struct nfa_state *q = &a->states[items[k]];
            if (q->chars && charset_has(q->chars, lo))
                spread(m, q->kind == NFA_MATCH ? (uint32_t)items[k] : q->a, false, false, &unused);
        }
        if (m->n == 0)
            continue;
        uint32_t to = state_of(m, next_length, false);
        struct dfa *d = m->d;
        struct dfa_edge *last =
            d->n_edges > d->states[state].first ? &d->edges[d->n_edges - 1] : NULL;
        if (last && last->to == to && last->hi + 1 == lo) {
            last->hi = hi;
        } else if (array_grow(&m->failed, &d->edges, d->n_edges, &d->cap_edges, sizeof *d->edges)) {
            d->edges[d->n_edges++] = (struct dfa_edge){lo, hi, to};
        }
    }
    m->d->states[state].n = m->d->n_edges - m->d->states[state].first;
}

// Takes away the edges to states from which nothing is accepted: each would cost a class of its
// own.
static bool trim(struct dfa *d, struct work *work)
{
    bool *lives = calloc(d->n_states + 1, sizeof *lives), changed = true;
    if (!lives)
        return false;
    while (changed && work_add(work, d->n_states + d->n_edges)) {
        changed = false;
        for (size_t i = d->n_states; i-- > 0;) {
            bool now = d->states[i].accepts;
            for (size_t k = 0; k < d->states[i].n; k++)
                now |= lives[d->edges[d->states[i].first + k].to];
            changed |= now && !lives[i];
            lives[i] |= now;
        }
    }
    for (size_t i = 0; i < d->n_states; i++) {
        const size_t first = d->states[i].first;
        size_t n = 0;
        for (size_t k = first; k < first + d->states[i].n; k++)
            if (lives[d->edges[k].to])
                d->edges[first + n++] = d->edges[k];
        d->states[i].n = n;
    }
    free(lives);
    return true;
}

static bool no_memory(const struct nfa *a, struct error *err)
{
    return error_oom(err, "a pattern's automaton", a->n * sizeof *a->states);
}

// *too_big: it needs more states than there may be.
static bool make(struct dfa *d, const struct nfa *a, uint32_t min, uint32_t max, struct work *work,
                 bool *too_big, struct error *err)
{
    *d = (struct dfa){0};
    struct maker m = {.a = a, .d = d, .work = work};
    m.seen = calloc(a->n + 1, sizeof *m.seen);
    m.stack = malloc((2 * a->n + 2) * sizeof *m.stack);
    m.failed = !setpool_init(&m.sets) || !m.seen || !m.stack;
    if (!m.failed) {
        uint32_t unused = 0;
        m.epoch = 1;
        for (uint32_t i = 0; i < a->n_patterns; i++)
            spread(&m, a->start[i], true, false, &unused);
        state_of(&m, 0, true);
    }
    *too_big = false;
    for (uint32_t i = 0; i < d->n_states && !m.failed && !*too_big && work_add(work, 1); i++) {
        make_edges(&m, i, min, max, i == 0);
        *too_big = d->n_states > REGEX_MAX_STATES || d->n_edges > REGEX_MAX_EDGES;
    }
    if (!m.failed && !*too_big && !trim(d, work))
        m.failed = true;
    setpool_release(&m.sets);
    free(m.list);
    free(m.seen);
    free(m.stack);
    free(m.cuts);
    if (!m.failed && !*too_big && work_ok(work, err))
        return true;
    dfa_release(d);
    return m.failed && no_memory(a, err);
}

// How many characters the texts have that it takes. *longest: UINT32_MAX where there is no longest.
// False: no memory.
static bool lengths(const struct dfa *d, struct work *work, uint32_t *shortest, uint32_t *longest)
{
    const size_t n = d->n_states;
    uint32_t *queue = malloc(n * sizeof *queue), *near = malloc(n * sizeof *near);
    uint32_t *far = calloc(n, sizeof *far), *n_in = calloc(n, sizeof *n_in);
    const bool ok = queue && near && far && n_in;
    size_t n_queue = 0;
    *shortest = *longest = 0;
    if (ok) { // breadth first: near
        memset(near, 0xFF, n * sizeof *near);
        near[0] = 0;
        queue[n_queue++] = 0;
        *shortest = NONE;
    }
    for (size_t i = 0; i < n_queue && work_add(work, 1 + d->states[queue[i]].n); i++) {
        const struct dfa_state *q = &d->states[queue[i]];
        if (q->accepts && *shortest == NONE)
            *shortest = near[queue[i]];
        for (size_t k = q->first; k < q->first + q->n; k++) {
            const uint32_t to = d->edges[k].to;
            n_in[to]++;
            if (near[to] == NONE) {
                near[to] = near[queue[i]] + 1;
                queue[n_queue++] = to;
            }
        }
    }
    // In an order in which each state comes behind all that lead to it: far. (The first is led to
    // by none.) Where there is none the way goes round.
    const size_t n_reached = n_queue;
    n_queue = ok;
    for (size_t i = 0; i < n_queue && work_add(work, 1 + d->states[queue[i]].n); i++) {
        const struct dfa_state *q = &d->states[queue[i]];
        if (q->accepts && far[queue[i]] > *longest)
            *longest = far[queue[i]];
        for (size_t k = q->first; k < q->first + q->n; k++) {
            const uint32_t to = d->edges[k].to;
            if (far[to] < far[queue[i]] + 1)
                far[to] = far[queue[i]] + 1;
            if (--n_in[to] == 0)
                queue[n_queue++] = to;
        }
    }
    if (n_queue < n_reached)
        *longest = NONE;
    free(queue);
    free(near);
    free(far);
    free(n_in);
    return ok;
}

static bool refuse_length(const struct dfa *alone, uint32_t max, struct error *err)
{
    // With a length there are at most so many of each state, and of each way from it.
    const size_t n = alone->n_states, edges = alone->n_edges;
    size_t fits = n ? REGEX_MAX_STATES / n : 0;
    if (edges && REGEX_MAX_EDGES / edges < fits)
        fits = REGEX_MAX_EDGES / edges;
    if (fits < 2)
        return error_set(err, ERR_USAGE,
                         "the patterns and the length together need more than %d states: make them "
                         "simpler",
                         REGEX_MAX_STATES);
    return error_set(err, ERR_USAGE,
                     "the patterns (or format) and the length together need more than %d states, "
                     "up to %zu for each character of %s: one of at most %zu fits, or none",
                     REGEX_MAX_STATES, n, max == NONE ? "minLength" : "maxLength", fits - 1);
}

bool dfa_init(struct dfa *d, const struct nfa *a, uint32_t min, uint32_t max, struct work *work,
              struct error *err)
{
    struct dfa alone;
    uint32_t shortest, longest;
    bool too_big, alone_too_big, ok = make(d, a, min, max, work, &too_big, err);
    if (ok || !too_big)
        return ok;
    // Without the length: a bound that all texts keep to anyway takes states for nothing.
    if (!make(&alone, a, 0, NONE, work, &alone_too_big, err))
        return alone_too_big && refuse_length(&alone, max, err);
    if ((lengths(&alone, work, &shortest, &longest) || no_memory(a, err)) && work_ok(work, err)) {
        const uint32_t less_min = min <= shortest ? 0 : min;
        const uint32_t less_max = longest != NONE && max >= longest ? NONE : max;
        if (less_min == 0 && less_max == NONE) {
            *d = alone;
            return true;
        }
        if (less_min != min || less_max != max)
            ok = make(d, a, less_min, less_max, work, &too_big, err);
        if (!ok && too_big)
            refuse_length(&alone, less_max, err);
    }
    dfa_release(&alone);
    return ok;
}

void dfa_release(struct dfa *d)
{
    free(d->states);
    free(d->edges);
    *d = (struct dfa){0};
}

bool dfa_matches(const struct dfa *d, const char *text, size_t n, struct work *work)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = utf8_decode(text + i, n - i, &cp);
        if (len == 0)
            return false;
        const struct dfa_state *s = &d->states[at];
        uint32_t to = NONE;
        if (!work_add(work, 1 + s->n / 8))
            return false;
        for (size_t k = s->first; k < s->first + s->n; k++)
            if (cp >= d->edges[k].lo && cp <= d->edges[k].hi)
                to = d->edges[k].to;
        if (to == NONE)
            return false;
        at = to;
        i += len;
    }
    return d->states[at].accepts;
}
