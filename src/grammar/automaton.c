#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"

// A class of so many characters is shared by all of its uses, and masks for it are prepared.
enum { WIDE_CLASS = 40 };

struct maker {
    struct automaton *a;
    const struct builder *b;
    uint32_t *rule_of;  // (b->n_rules) rule of a; NO_STATE: not used so far
    uint32_t *class_of; // (b->n_classes) the same for wide classes
    // Rules whose bodies are still to be made: their expressions. (a->n_rules)
    uint32_t *body;
    uint32_t *name; // (a->n_rules) rule of b, NO_STATE: none
    size_t cap_body, cap_name;
    size_t n_done;
    unsigned depth;
    bool too_deep;
    bool failed, too_big;
};

static uint32_t add_state(struct maker *m, enum state_kind kind, uint32_t a, uint32_t b)
{
    struct automaton *t = m->a;
    if (t->n_states >= GRAMMAR_MAX_STATES)
        m->too_big = true;
    if (m->too_big ||
        !array_grow(&m->failed, &t->states, t->n_states, &t->cap_states, sizeof *t->states))
        return 0;
    t->states[t->n_states] = (struct state){kind, a, b};
    return (uint32_t)t->n_states++;
}

static void add_edge(struct maker *m, unsigned char lo, unsigned char hi, uint32_t to)
{
    struct automaton *t = m->a;
    if (t->n_edges >= 8 * (size_t)GRAMMAR_MAX_STATES)
        m->too_big = true;
    else if (array_grow(&m->failed, &t->edges, t->n_edges, &t->cap_edges, sizeof *t->edges))
        t->edges[t->n_edges++] = (struct edge){lo, hi, to};
}

static uint32_t add_rule(struct maker *m, uint32_t body, uint32_t name)
{
    struct automaton *t = m->a;
    size_t n = t->n_rules;
    if (!array_grow(&m->failed, &t->rules, n, &t->cap_rules, sizeof *t->rules) ||
        !array_grow(&m->failed, &m->body, n, &m->cap_body, sizeof *m->body) ||
        !array_grow(&m->failed, &m->name, n, &m->cap_name, sizeof *m->name))
        return 0;
    t->rules[n] = (struct automaton_rule){.start = NO_STATE};
    m->body[n] = body;
    m->name[n] = name;
    return (uint32_t)t->n_rules++;
}

// ---- classes ----

struct spans {
    struct utf8_span *data;
    size_t n, cap;
    bool failed;
};

static void keep_span(void *user, const struct utf8_span *span)
{
    struct spans *s = user;
    if (array_grow(&s->failed, &s->data, s->n, &s->cap, sizeof *s->data))
        s->data[s->n++] = *span;
}

// The state for spans[0..n), which agree in their first `at` ranges. full: of continuation bytes,
// by how many are left; made when needed.
static uint32_t class_states(struct maker *m, const struct utf8_span *spans, size_t n, unsigned at,
                             uint32_t next, uint32_t full[4])
{
    // The states behind come first: a state's edges lie together.
    struct edge edges[256];
    size_t n_edges = 0;
    if (at >= sizeof spans->lo) // no character has more bytes
        return next;
    for (size_t i = 0, k; i < n; i = k) {
        const struct utf8_span *s = &spans[i];
        for (k = i + 1; k < n && spans[k].lo[at] == s->lo[at] && spans[k].hi[at] == s->hi[at]; k++)
            ;
        uint32_t to = next;
        if (at + 1 < s->n) {
            unsigned left = s->n - at - 1;
            bool all = k == i + 1;
            for (unsigned j = at + 1; j < s->n; j++)
                all = all && s->lo[j] == 0x80 && s->hi[j] == 0xBF;
            if (all && full[left] != NO_STATE)
                to = full[left];
            else
                to = class_states(m, s, k - i, at + 1, next, full);
            if (all)
                full[left] = to;
        }
        if (n_edges < 256)
            edges[n_edges++] = (struct edge){s->lo[at], s->hi[at], to};
    }
    uint32_t first = (uint32_t)m->a->n_edges;
    for (size_t i = 0; i < n_edges; i++)
        add_edge(m, edges[i].lo, edges[i].hi, edges[i].to);
    return add_state(m, STATE_EDGES, first, (uint32_t)m->a->n_edges);
}

static uint32_t emit_class(struct maker *m, uint32_t index, uint32_t next)
{
    const struct charset *chars = &m->b->classes[index];
    struct spans s = {0};
    for (size_t i = 0; i < chars->n; i++)
        utf8_spans(chars->r[i].lo, chars->r[i].hi, keep_span, &s);
    uint32_t full[4] = {NO_STATE, NO_STATE, NO_STATE, NO_STATE};
    uint32_t state = class_states(m, s.data, s.n, 0, next, full);
    m->failed |= s.failed;
    free(s.data);
    return state;
}

// The rule of a wide class.
static uint32_t class_rule(struct maker *m, uint32_t index)
{
    if (m->class_of[index] != NO_STATE)
        return m->class_of[index];
    struct automaton *t = m->a;
    uint32_t rule = add_rule(m, NO_STATE, NO_STATE);
    struct automaton_class c = {0};
    charset_add_all(&c.chars, &m->b->classes[index]);
    c.state = emit_class(m, index, add_state(m, STATE_RETURN, 0, 0));
    if (rule < t->n_rules)
        t->rules[rule].start = c.state;
    m->failed |= c.chars.failed;
    if (!array_grow(&m->failed, &t->classes, t->n_classes, &t->cap_classes, sizeof c)) {
        charset_release(&c.chars);
        return 0;
    }
    t->classes[t->n_classes++] = c;
    return m->class_of[index] = rule;
}

// ---- expressions ----

static uint32_t call(struct maker *m, uint32_t rule, uint32_t next)
{
    return add_state(m, STATE_CALL, rule, next);
}

static uint32_t emit(struct maker *m, uint32_t x, uint32_t next);

static uint32_t emit_repeat(struct maker *m, const struct expr *e, uint32_t next)
{
    uint32_t loops = e->max == REPEAT_FOREVER;
    // What is used several times becomes a rule, so that nested repetitions add up, not multiply.
    uint32_t copies = loops ? (e->min ? e->min : 1) : e->max;
    const struct expr *x = &m->b->exprs[e->first];
    uint32_t rule = NO_STATE;
    if (copies > 1 && x->kind != EXPR_RULE && x->kind != EXPR_CLASS && x->kind != EXPR_EMPTY)
        rule = add_rule(m, e->first, NO_STATE);
    uint32_t at = next;
    if (loops) {
        // Behind the last copy: once more, or on.
        uint32_t loop = add_state(m, STATE_EITHER, NO_STATE, next);
        at = rule != NO_STATE ? call(m, rule, loop) : emit(m, e->first, loop);
        if (loop < m->a->n_states)
            m->a->states[loop].a = at;
        if (e->min == 0)
            at = loop;
        copies--;
    }
    for (uint32_t i = 0; i < copies && !m->failed && !m->too_big; i++) {
        at = rule != NO_STATE ? call(m, rule, at) : emit(m, e->first, at);
        if (!loops && i < e->max - e->min)
            at = add_state(m, STATE_EITHER, at, next);
    }
    return at;
}

// The state in which the texts of x begin that go on in `next`.
static uint32_t emit(struct maker *m, uint32_t index, uint32_t next)
{
    const struct expr *x = &m->b->exprs[index];
    if (m->failed || m->too_big || m->too_deep)
        return 0;
    if (++m->depth > 2000)
        m->too_deep = true;
    uint32_t at = next;
    switch (x->kind) {
    case EXPR_EMPTY:
        break;
    case EXPR_NOTHING:
        at = add_state(m, STATE_EDGES, 0, 0);
        break;
    case EXPR_BYTES:
        for (uint32_t i = x->n; i-- > 0;) {
            unsigned char c = (unsigned char)m->b->bytes.data[x->first + i];
            uint32_t first = (uint32_t)m->a->n_edges;
            add_edge(m, c, c, at);
            at = add_state(m, STATE_EDGES, first, first + 1);
        }
        break;
    case EXPR_CLASS:
        at = charset_size(&m->b->classes[x->first]) < WIDE_CLASS
                 ? emit_class(m, x->first, next)
                 : call(m, class_rule(m, x->first), next);
        break;
    case EXPR_SEQ:
        for (uint32_t i = x->n; i-- > 0;)
            at = emit(m, m->b->kids[x->first + i], at);
        break;
    case EXPR_ALT:
        at = emit(m, m->b->kids[x->first + x->n - 1], next);
        for (uint32_t i = x->n - 1; i-- > 0;)
            at = add_state(m, STATE_EITHER, emit(m, m->b->kids[x->first + i], next), at);
        break;
    case EXPR_REPEAT:
        at = emit_repeat(m, x, next);
        break;
    case EXPR_RULE: {
        uint32_t *rule = &m->rule_of[x->first];
        if (*rule == NO_STATE)
            *rule = add_rule(m, m->b->rules[x->first].body, x->first);
        at = call(m, *rule, next);
        break;
    }
    }
    m->depth--;
    return at;
}

// ---- what can be known beforehand ----

// The fewest bytes from every state to the end of its rule: Knuth 1977, "A generalization of
// Dijkstra's algorithm". A call costs what the rule and the rest cost.
struct heap {
    struct heap_entry {
        uint32_t distance, state;
    } * data;
    size_t n, cap;
    bool failed;
};

static void heap_push(struct heap *h, uint32_t distance, uint32_t state)
{
    if (!array_grow(&h->failed, &h->data, h->n, &h->cap, sizeof *h->data))
        return;
    size_t i = h->n++;
    for (; i > 0 && h->data[(i - 1) / 2].distance > distance; i = (i - 1) / 2)
        h->data[i] = h->data[(i - 1) / 2];
    h->data[i] = (struct heap_entry){distance, state};
}

static struct heap_entry heap_pop(struct heap *h)
{
    struct heap_entry top = h->data[0], last = h->data[--h->n];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
        k += k + 1 < h->n && h->data[k + 1].distance < h->data[k].distance;
        if (h->data[k].distance >= last.distance)
            break;
        h->data[i] = h->data[k];
    }
    if (h->n)
        h->data[i] = last;
    return top;
}

// States by the states that lead to them: from[of[s]..of[s + 1]).
struct leads {
    uint32_t *of, *from;
};

static void each_lead(const struct automaton *a, uint32_t s,
                      void (*f)(struct leads *l, uint32_t to, uint32_t from), struct leads *l)
{
    const struct state *q = &a->states[s];
    if (q->kind == STATE_EDGES) {
        for (uint32_t i = q->a; i < q->b; i++)
            f(l, a->edges[i].to, s);
    } else if (q->kind == STATE_EITHER) {
        f(l, q->a, s);
        f(l, q->b, s);
    } else if (q->kind == STATE_CALL) {
        f(l, a->rules[q->a].start, s);
        f(l, q->b, s);
    }
}

static void count_lead(struct leads *l, uint32_t to, uint32_t from)
{
    (void)from;
    l->of[to + 1]++;
}

static void keep_lead(struct leads *l, uint32_t to, uint32_t from)
{
    l->from[l->of[to]++] = from;
}

static bool find_distances(struct automaton *a, struct error *err)
{
    size_t n = a->n_states;
    struct leads l = {.of = calloc(n + 2, sizeof *l.of)};
    struct heap h = {0};
    a->distance = malloc(n * sizeof *a->distance);
    if (!l.of || !a->distance)
        goto oom;
    memset(a->distance, 0xFF, n * sizeof *a->distance);
    for (uint32_t s = 0; s < n; s++)
        each_lead(a, s, count_lead, &l);
    for (size_t s = 0; s < n; s++)
        l.of[s + 1] += l.of[s];
    l.from = malloc((l.of[n] + 1) * sizeof *l.from);
    if (!l.from)
        goto oom;
    for (uint32_t s = 0; s < n; s++)
        each_lead(a, s, keep_lead, &l);
    memmove(l.of + 1, l.of, n * sizeof *l.of); // keep_lead moved each to its end
    l.of[0] = 0;
    for (uint32_t s = 0; s < n; s++)
        if (a->states[s].kind <= STATE_RETURN)
            heap_push(&h, 0, s);
    while (h.n && !h.failed) {
        struct heap_entry e = heap_pop(&h);
        if (a->distance[e.state] != NO_STATE)
            continue;
        a->distance[e.state] = e.distance;
        for (uint32_t i = l.of[e.state]; i < l.of[e.state + 1]; i++) {
            uint32_t s = l.from[i];
            const struct state *q = &a->states[s];
            uint64_t d = (uint64_t)e.distance + (q->kind == STATE_EDGES);
            if (q->kind == STATE_CALL) {
                uint32_t x = a->distance[a->rules[q->a].start], y = a->distance[q->b];
                if (x == NO_STATE || y == NO_STATE)
                    continue;
                d = (uint64_t)x + y;
            }
            if (a->distance[s] == NO_STATE)
                heap_push(&h, d < NO_STATE - 1 ? (uint32_t)d : NO_STATE - 1, s);
        }
    }
    if (h.failed)
        goto oom;
    free(l.of);
    free(l.from);
    free(h.data);
    return true;
oom:
    free(l.of);
    free(l.from);
    free(h.data);
    return error_oom(err, "the distances of a grammar", n * sizeof(uint32_t));
}

static const char *rule_name(const struct maker *m, uint32_t rule, char out[FORMAT_TEXT])
{
    uint32_t i = m->name[rule];
    if (i == NO_STATE || !m->b->rules[i].name)
        return NULL;
    return format_text(out, FORMAT_TEXT, m->b->rules[i].name, strlen(m->b->rules[i].name));
}

static bool begins_with_itself(const struct maker *m, const uint32_t *path, size_t n, uint32_t rule,
                               struct error *err)
{
    // The cycle is what follows rule's first place on the path; one that has a name tells more.
    size_t i = 0;
    while (i < n && path[i] != rule)
        i++;
    char name[FORMAT_TEXT];
    for (; i < n; i++)
        if (rule_name(m, path[i], name)) {
            const struct rule *r = &m->b->rules[m->name[path[i]]];
            return error_set(err, ERR_USAGE,
                             "line %u, column %u: found the rule \"%s\", which begins with itself, "
                             "expected no left recursion: write a repetition (x*) instead",
                             r->line, r->column, name);
        }
    return error_set(err, ERR_USAGE, "a part of it begins with itself, without anything before");
}

// Which rules a rule may begin with, and an order in which they follow it. Iterative: the chain of
// rules may be as long as the grammar.
struct visit {
    uint32_t rule;
    size_t next, end; // of the list of rules that it begins with
};

static bool find_order(struct maker *m, struct error *err)
{
    struct automaton *a = m->a;
    size_t n = a->n_rules;
    unsigned char *mark = calloc(n, 1);                 // 1: on the path, 2: done
    uint32_t *seen = calloc(a->n_states, sizeof *seen); // by the rule + 1 that looked
    struct visit *stack = malloc(n * sizeof *stack);
    uint32_t *path = malloc(n * sizeof *path);
    struct ids list = {0}, todo = {0}; // list: callees of the rules on the path, one after another
    size_t depth = 0;
    uint32_t order = (uint32_t)n;
    bool ok = mark && seen && stack && path;
    for (uint32_t root = 0; ok && root < n; root++) {
        if (mark[root])
            continue;
        uint32_t enter = root;
        for (;;) {
            if (enter != NO_STATE) {
                mark[enter] = 1;
                path[depth] = enter;
                struct visit v = {.rule = enter, .next = list.len};
                ids_push(&todo, (int32_t)a->rules[enter].start);
                while (todo.len) {
                    uint32_t s = (uint32_t)todo.data[--todo.len];
                    if (seen[s] == enter + 1 || a->distance[s] == NO_STATE)
                        continue;
                    seen[s] = enter + 1;
                    const struct state *q = &a->states[s];
                    if (q->kind == STATE_EITHER || q->kind == STATE_CALL) {
                        if (q->kind == STATE_EITHER)
                            ids_push(&todo, (int32_t)q->a);
                        else
                            ids_push(&list, (int32_t)q->a);
                        if (q->kind == STATE_EITHER || a->rules[q->a].nullable)
                            ids_push(&todo, (int32_t)q->b);
                    }
                }
                ok = !list.failed && !todo.failed;
                if (!ok)
                    break;
                v.end = list.len;
                stack[depth++] = v;
                enter = NO_STATE;
            }
            struct visit *v = &stack[depth - 1];
            if (v->next < v->end) {
                uint32_t callee = (uint32_t)list.data[v->next++];
                if (mark[callee] == 1) {
                    ok = begins_with_itself(m, path, depth, callee, err);
                    goto done;
                }
                if (!mark[callee])
                    enter = callee;
                continue;
            }
            mark[v->rule] = 2;
            a->rules[v->rule].order = --order;
            depth--;
            if (depth == 0)
                break;
            list.len = stack[depth - 1].end;
        }
        list.len = 0;
    }
    if (!ok)
        error_oom(err, "the order of a grammar's rules", n * sizeof *stack);
done:
    free(mark);
    free(seen);
    free(stack);
    free(path);
    ids_release(&list);
    ids_release(&todo);
    return ok;
}

static void find_symbols(struct automaton *a)
{
    bool cut[257] = {false}; // a symbol begins at this byte
    for (size_t i = 0; i < a->n_edges; i++) {
        cut[a->edges[i].lo] = cut[a->edges[i].hi + 1] = true;
        for (unsigned c = a->edges[i].lo; c <= a->edges[i].hi; c++)
            a->in_alphabet[c] = true;
    }
    unsigned n = 0;
    for (unsigned c = 0; c < 256; c++) {
        n += c > 0 && cut[c];
        a->symbol_of[c] = (unsigned char)n;
        a->byte_of[n] = (unsigned char)c;
    }
    a->n_symbols = n + 1;
}

static bool check_rules(struct maker *m, struct error *err)
{
    struct automaton *a = m->a;
    char name[FORMAT_TEXT];
    for (uint32_t i = 0; i < a->n_rules; i++) {
        a->rules[i].nullable = a->distance[a->rules[i].start] == 0;
        if (a->distance[a->rules[i].start] == NO_STATE && rule_name(m, i, name)) {
            const struct rule *r = &m->b->rules[m->name[i]];
            return error_set(err, ERR_USAGE,
                             "line %u, column %u: found the rule \"%s\", to which no text belongs "
                             "(every way through it needs itself, or an empty class), expected one "
                             "that comes to an end",
                             r->line, r->column, name);
        }
    }
    if (a->distance[a->start] == NO_STATE)
        return error_set(err, ERR_USAGE,
                         "no text at all obeys it: its parts contradict each other");
    return true;
}

bool automaton_init(struct automaton *a, const struct builder *b, uint32_t root, struct error *err)
{
    *a = (struct automaton){0};
    struct maker m = {.a = a, .b = b};
    m.rule_of = malloc((b->n_rules + 1) * sizeof *m.rule_of);
    m.class_of = malloc((b->n_classes + 1) * sizeof *m.class_of);
    bool ok = false;
    if (!m.rule_of || !m.class_of) {
        error_oom(err, "a grammar", (b->n_rules + b->n_classes) * sizeof *m.rule_of);
        goto done;
    }
    memset(m.rule_of, 0xFF, b->n_rules * sizeof *m.rule_of);
    memset(m.class_of, 0xFF, b->n_classes * sizeof *m.class_of);
    uint32_t accept = add_state(&m, STATE_ACCEPT, 0, 0);
    m.rule_of[root] = add_rule(&m, b->rules[root].body, root);
    a->start = call(&m, m.rule_of[root], accept);
    for (uint32_t i = 0; i < a->n_rules && !m.failed && !m.too_big && !m.too_deep; i++)
        if (a->rules[i].start == NO_STATE) {
            uint32_t start = emit(&m, m.body[i], add_state(&m, STATE_RETURN, 0, 0));
            a->rules[i].start = start;
        }
    if (m.too_big)
        error_set(err, ERR_USAGE,
                  "it needs more than %d states: make its repetitions and lists smaller",
                  GRAMMAR_MAX_STATES);
    else if (m.too_deep)
        error_set(err, ERR_USAGE, "its parts lie more than 2000 deep inside each other");
    else if (m.failed)
        error_oom(err, "a grammar's states", a->n_states * sizeof *a->states);
    else
        ok = find_distances(a, err) && check_rules(&m, err) && find_order(&m, err);
    find_symbols(a);
done:
    free(m.rule_of);
    free(m.class_of);
    free(m.body);
    free(m.name);
    if (!ok)
        automaton_release(a);
    return ok;
}

void automaton_release(struct automaton *a)
{
    for (size_t i = 0; i < a->n_classes; i++)
        charset_release(&a->classes[i].chars);
    free(a->states);
    free(a->edges);
    free(a->rules);
    free(a->classes);
    free(a->distance);
    *a = (struct automaton){0};
}
