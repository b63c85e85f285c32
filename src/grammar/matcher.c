#include "grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

// Kept configurations and frames are forgotten beyond this; one mask may take four times as much,
// and so many rounds, which take a second or two.
enum {
    MOST_CONFIGS = 1 << 15,
    MOST_POOL_BYTES = 32 << 20,
    MOST_PAIRS = 1 << 16,
    MOST_ROUNDS = 1 << 26
};

// More is kept than one mask may take.
static bool too_large(const struct grammar_matcher *m)
{
    return m->configs.n_sets > 4 * MOST_CONFIGS ||
           setpool_bytes(&m->configs) + setpool_bytes(&m->frames) > 4 * (size_t)MOST_POOL_BYTES;
}

static void push(struct grammar_matcher *m, struct pairs *p, uint64_t x)
{
    if (p->n >= MOST_PAIRS)
        m->too_many = true;
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        uint64_t *data = realloc(p->data, cap * sizeof *data);
        if (!data) {
            m->failed = true;
            return;
        }
        p->data = data;
        p->cap = cap;
    }
    p->data[p->n++] = x;
}

// ---- a set of the pairs that were met ----

static size_t slot_of(const uint64_t *seen, size_t cap, uint64_t x)
{
    uint64_t h = x * 0x9E3779B97F4A7C15u;
    size_t k = (h >> 32) & (cap - 1);
    while (seen[k] && seen[k] != x + 1)
        k = (k + 1) & (cap - 1);
    return k;
}

// False: it was there already.
static bool meet(struct grammar_matcher *m, uint64_t x)
{
    if (2 * (m->n_seen + 1) > m->cap_seen) {
        size_t cap = m->cap_seen ? 2 * m->cap_seen : 256;
        uint64_t *seen = calloc(cap, sizeof *seen);
        if (!seen) {
            m->failed = true;
            return false;
        }
        for (size_t i = 0; i < m->cap_seen; i++)
            if (m->seen[i])
                seen[slot_of(seen, cap, m->seen[i] - 1)] = m->seen[i];
        free(m->seen);
        m->seen = seen;
        m->cap_seen = cap;
    }
    size_t k = slot_of(m->seen, m->cap_seen, x);
    if (m->seen[k])
        return false;
    m->seen[k] = x + 1;
    m->n_seen++;
    return true;
}

static void forget_seen(struct grammar_matcher *m)
{
    if (m->cap_seen > 4096) { // a rare large one is not cleared again and again
        free(m->seen);
        m->seen = NULL;
        m->cap_seen = 0;
    } else if (m->n_seen) {
        memset(m->seen, 0, m->cap_seen * sizeof *m->seen);
    }
    m->n_seen = 0;
}

// ---- steps ----

static bool alive(const struct automaton *a, uint32_t state)
{
    return a->distance[state] != NO_STATE;
}

// A call, kept until all calls of its rule at this position are known: a heap by the rules' order.
static void call(struct grammar_matcher *m, uint32_t rule, uint32_t next, uint32_t frames)
{
    const struct automaton *a = &m->grammar->a;
    struct pairs *c = &m->calls;
    size_t i = c->n;
    push(m, c, rule);
    push(m, c, pair_of(next, frames));
    if (m->failed)
        return;
    // Two numbers an entry: the rule, and the frame.
    uint32_t order = a->rules[rule].order;
    for (i /= 2; i > 0; i = (i - 1) / 2) {
        size_t up = (i - 1) / 2;
        if (a->rules[c->data[2 * up]].order <= order)
            break;
        memcpy(&c->data[2 * i], &c->data[2 * up], 2 * sizeof *c->data);
    }
    c->data[2 * i] = rule;
    c->data[2 * i + 1] = pair_of(next, frames);
}

static uint64_t pop_call(struct grammar_matcher *m)
{
    const struct automaton *a = &m->grammar->a;
    struct pairs *c = &m->calls;
    uint64_t frame = c->data[1], rule = c->data[c->n - 2], last = c->data[c->n - 1];
    c->n -= 2;
    size_t n = c->n / 2, i = 0;
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        k += k + 1 < n && a->rules[c->data[2 * (k + 1)]].order < a->rules[c->data[2 * k]].order;
        if (a->rules[c->data[2 * k]].order >= a->rules[rule].order)
            break;
        memcpy(&c->data[2 * i], &c->data[2 * k], 2 * sizeof *c->data);
    }
    if (n) {
        c->data[2 * i] = rule;
        c->data[2 * i + 1] = last;
    }
    return frame;
}

// Everything that todo reaches without a byte. fresh: the rule was called at this very position,
// and its return is left out, for a call of a rule that may be empty has gone on already.
static void spread(struct grammar_matcher *m, bool fresh)
{
    const struct automaton *a = &m->grammar->a;
    while (m->todo.n && !m->failed && !m->too_many) {
        uint64_t x = m->todo.data[--m->todo.n];
        matcher_work(m, 1);
        uint32_t state = (uint32_t)(x >> 32), frames = (uint32_t)x;
        if (!alive(a, state) || !meet(m, x))
            continue;
        const struct state *q = &a->states[state];
        switch (q->kind) {
        case STATE_ACCEPT:
            push(m, &m->out, x);
            break;
        case STATE_EDGES:
            if (q->b > q->a)
                push(m, &m->out, x);
            break;
        case STATE_EITHER:
            push(m, &m->todo, pair_of(q->b, frames));
            push(m, &m->todo, pair_of(q->a, frames));
            break;
        case STATE_RETURN: {
            uint32_t n;
            const uint64_t *f = setpool_get(&m->frames, frames, &n);
            for (uint32_t i = 0; !fresh && i < n; i++)
                push(m, &m->todo, f[i]);
            break;
        }
        case STATE_CALL:
            if (a->states[q->b].kind == STATE_RETURN) { // the callee returns to the caller's frames
                uint32_t n;
                const uint64_t *f = setpool_get(&m->frames, frames, &n);
                matcher_work(m, n);
                for (uint32_t i = 0; i < n; i++)
                    call(m, q->a, (uint32_t)(f[i] >> 32), (uint32_t)f[i]);
            } else {
                call(m, q->a, q->b, frames);
            }
            if (a->rules[q->a].nullable)
                push(m, &m->todo, pair_of(q->b, frames));
            break;
        }
    }
    m->todo.n = 0;
}

// The configuration that the pairs in m->todo are the beginning of.
static uint32_t close_over(struct grammar_matcher *m)
{
    const struct automaton *a = &m->grammar->a;
    m->out.n = m->calls.n = 0;
    spread(m, false);
    while (m->calls.n && !m->failed && !m->too_many) {
        // A rule's calls follow each other, and no rule that comes later can add one.
        uint32_t rule = (uint32_t)m->calls.data[0];
        m->seeds.n = 0;
        while (m->calls.n && m->calls.data[0] == rule)
            push(m, &m->seeds, pop_call(m));
        uint32_t frames = setpool_add(&m->frames, m->seeds.data, m->seeds.n);
        if (frames == SETPOOL_FAILED) {
            m->failed = true;
            break;
        }
        // Each rule of a chain may have all the frames of the one before it, and one more.
        m->too_many |= too_large(m);
        push(m, &m->todo, pair_of(a->rules[rule].start, frames));
        spread(m, true);
    }
    forget_seen(m);
    if (m->failed || m->too_many)
        return CONFIG_DEAD;
    uint32_t config = setpool_add(&m->configs, m->out.data, m->out.n);
    if (config == SETPOOL_FAILED) {
        m->failed = true;
        return CONFIG_DEAD;
    }
    return config;
}

// Room for the steps of a configuration.
static bool step_rows(struct grammar_matcher *m, size_t n)
{
    size_t width = m->grammar->a.n_symbols;
    if (n > m->cap_steps) {
        size_t cap = m->cap_steps ? m->cap_steps : 256;
        while (cap < n)
            cap *= 2;
        uint32_t *steps = realloc(m->steps, cap * width * sizeof *steps);
        if (!steps) {
            m->failed = true;
            return false;
        }
        m->steps = steps;
        m->cap_steps = cap;
    }
    if (n > m->n_steps) {
        memset(m->steps + m->n_steps * width, 0xFF, (n - m->n_steps) * width * sizeof *m->steps);
        m->n_steps = n;
    }
    return true;
}

uint32_t matcher_compute_step(struct grammar_matcher *m, uint32_t config, unsigned symbol)
{
    const struct automaton *a = &m->grammar->a;
    if (m->failed || m->too_many || !step_rows(m, config + 1))
        return CONFIG_DEAD;
    unsigned char byte = a->byte_of[symbol];
    m->todo.n = 0;
    uint32_t n;
    const uint64_t *pairs = setpool_get(&m->configs, config, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct state *q = &a->states[pairs[i] >> 32];
        matcher_work(m, 1 + (q->kind == STATE_EDGES ? q->b - q->a : 0));
        if (q->kind != STATE_EDGES)
            continue;
        for (uint32_t k = q->a; k < q->b; k++)
            if (byte >= a->edges[k].lo && byte <= a->edges[k].hi)
                push(m, &m->todo, pair_of(a->edges[k].to, (uint32_t)pairs[i]));
    }
    uint32_t to = m->todo.n ? close_over(m) : CONFIG_DEAD;
    m->too_many |= too_large(m);
    if (!m->failed && !m->too_many)
        m->steps[config * a->n_symbols + symbol] = to;
    return m->failed || m->too_many ? CONFIG_DEAD : to;
}

bool matcher_ok(struct grammar_matcher *m, struct error *err)
{
    bool failed = m->failed, too_many = m->too_many;
    m->failed = m->too_many = false;
    m->most = m->done + MOST_ROUNDS;
    if (failed)
        return error_oom(err, "the grammar's automaton",
                         setpool_bytes(&m->configs) + setpool_bytes(&m->frames));
    if (too_many)
        return error_set(err, ERR_FAIL,
                         "the grammar is too ambiguous here: more than %d ways to read the answer, "
                         "%d states between tokens, or %d steps for the next one; make its "
                         "alternatives begin differently",
                         MOST_PAIRS, 4 * MOST_CONFIGS, MOST_ROUNDS);
    return true;
}

static uint32_t shortest(const struct grammar_matcher *m, const uint64_t *pairs, uint32_t n)
{
    uint64_t best = NO_STATE;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t d = (uint64_t)m->grammar->a.distance[pairs[i] >> 32] + m->rest[(uint32_t)pairs[i]];
        best = d < best ? d : best;
    }
    return (uint32_t)best;
}

uint32_t matcher_distance(struct grammar_matcher *m, uint32_t config)
{
    uint32_t n;
    const uint64_t *pairs;
    if (m->frames.n_sets > m->cap_rest) {
        size_t cap = 2 * m->frames.n_sets;
        uint32_t *rest = realloc(m->rest, cap * sizeof *rest);
        if (!rest) {
            m->failed = true;
            return NO_STATE;
        }
        m->rest = rest;
        m->cap_rest = cap;
    }
    for (; m->n_rest < m->frames.n_sets; m->n_rest++) { // frames only name older ones
        pairs = setpool_get(&m->frames, (uint32_t)m->n_rest, &n);
        m->rest[m->n_rest] = n ? shortest(m, pairs, n) : 0;
    }
    pairs = setpool_get(&m->configs, config, &n);
    return shortest(m, pairs, n);
}

bool matcher_accepting(const struct grammar_matcher *m, uint32_t config)
{
    uint32_t n;
    const uint64_t *pairs = setpool_get(&m->configs, config, &n);
    return n > 0 &&
           pairs[0] == pair_of(0, 0); // the accepting state is the first one, without frames
}

// ---- keeping little ----

static bool start_over(struct grammar_matcher *m)
{
    m->todo.n = 0;
    push(m, &m->todo, pair_of(m->grammar->a.start, 0));
    m->start = close_over(m);
    return !m->failed && !m->too_many;
}

bool matcher_tidy(struct grammar_matcher *m, struct error *err)
{
    if (m->configs.n_sets <= MOST_CONFIGS &&
        setpool_bytes(&m->configs) + setpool_bytes(&m->frames) <= MOST_POOL_BYTES)
        return true;
    struct setpool frames = m->frames, configs = m->configs;
    uint32_t *moved = calloc(frames.n_sets, sizeof *moved); // 0: not needed, 1: needed, new + 2
    if (!moved || !setpool_init(&m->frames) || !setpool_init(&m->configs)) {
        free(moved);
        setpool_release(&m->frames);
        m->frames = frames;
        m->configs = configs;
        return error_oom(err, "the grammar's automaton", frames.n_sets * sizeof *moved);
    }
    // What the states need; frames only name older ones, so one look from the youngest on finds
    // all.
    uint32_t n;
    for (struct grammar_state *s = m->states; s; s = s->next) {
        const uint64_t *pairs = setpool_get(&configs, s->config, &n);
        for (uint32_t i = 0; i < n; i++)
            moved[(uint32_t)pairs[i]] = 1;
    }
    for (size_t f = frames.n_sets; f-- > 0;) {
        const uint64_t *pairs = setpool_get(&frames, (uint32_t)f, &n);
        for (uint32_t i = 0; moved[f] && i < n; i++)
            moved[(uint32_t)pairs[i]] = 1;
    }
    for (size_t f = 0; f < frames.n_sets; f++) {
        if (!moved[f])
            continue;
        const uint64_t *pairs = setpool_get(&frames, (uint32_t)f, &n);
        m->seeds.n = 0;
        for (uint32_t i = 0; i < n; i++)
            push(m, &m->seeds, pair_of((uint32_t)(pairs[i] >> 32), moved[(uint32_t)pairs[i]] - 2));
        uint32_t to = setpool_add(&m->frames, m->seeds.data, m->seeds.n);
        m->failed |= to == SETPOOL_FAILED;
        moved[f] = to + 2;
    }
    for (struct grammar_state *s = m->states; s; s = s->next) {
        const uint64_t *pairs = setpool_get(&configs, s->config, &n);
        m->seeds.n = 0;
        for (uint32_t i = 0; i < n; i++)
            push(m, &m->seeds, pair_of((uint32_t)(pairs[i] >> 32), moved[(uint32_t)pairs[i]] - 2));
        s->config = setpool_add(&m->configs, m->seeds.data, m->seeds.n);
        m->failed |= s->config == SETPOOL_FAILED;
    }
    free(moved);
    setpool_release(&frames);
    setpool_release(&configs);
    m->n_steps = m->n_rest = 0;
    masks_forget(m);
    if (m->failed || !start_over(m))
        for (struct grammar_state *s = m->states; s; s = s->next)
            s->config = CONFIG_DEAD; // its number may mean anything
    return matcher_ok(m, err);
}

struct grammar_matcher *grammar_matcher_create(const struct grammar *g,
                                               const struct grammar_vocab *v, struct error *err)
{
    struct grammar_matcher *m = calloc(1, sizeof *m);
    if (!m) {
        error_oom(err, "a grammar's matcher", sizeof *m);
        return NULL;
    }
    m->grammar = g;
    m->vocab = v;
    m->most = MOST_ROUNDS;
    if (!setpool_init(&m->frames) || !setpool_init(&m->configs))
        m->failed = true;
    else
        start_over(m);
    if (!matcher_ok(m, err) || !masks_init(m, err)) {
        grammar_matcher_free(m);
        return NULL;
    }
    masks_prepare(m);
    return m;
}

void grammar_matcher_free(struct grammar_matcher *m)
{
    if (!m)
        return;
    masks_release(m);
    setpool_release(&m->frames);
    setpool_release(&m->configs);
    free(m->steps);
    free(m->rest);
    free(m->seeds.data);
    free(m->todo.data);
    free(m->out.data);
    free(m->calls.data);
    free(m->seen);
    free(m);
}
