#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/json_text.h"
#include "grammar/schema_impl.h"

// ---- goals ----

static bool same_parts(const struct goal *g, const struct part *parts, size_t n, unsigned depth,
                       bool shared)
{
    bool same = g->n == n && g->depth == depth && g->shared == shared;
    for (size_t i = 0; same && i < n; i++)
        same = g->parts[i].schema == parts[i].schema &&
               g->parts[i].any_decided == parts[i].any_decided &&
               g->parts[i].one_decided == parts[i].one_decided &&
               g->parts[i].side == parts[i].side &&
               g->parts[i].is_alternative == parts[i].is_alternative;
    return same;
}

static bool more_slots(struct schema *s)
{
    size_t n = s->n_slots ? 2 * s->n_slots : 256;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return schema_oom(s);
    for (size_t i = 0; i < s->n_goals; i++) {
        size_t k = s->goals[i].hash & (n - 1);
        while (slots[k])
            k = (k + 1) & (n - 1);
        slots[k] = (uint32_t)i + 1;
    }
    free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    return true;
}

static uint32_t goal(struct schema *s, const struct part *parts, size_t n, unsigned depth,
                     bool shared)
{
    if (s->indent == 0)
        depth = 0;
    uint64_t hash = 0x9E3779B97F4A7C15u + 2 * depth + shared;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (uintptr_t)parts[i].schema ^ parts[i].any_decided ^
                (unsigned)parts[i].one_decided << 1 ^ (unsigned)parts[i].side << 2) *
               0x100000001B3u;
        hash ^= hash >> 31;
    }
    if (s->failed || (2 * (s->n_goals + 1) > s->n_slots && !more_slots(s)))
        return 0;
    size_t k = hash & (s->n_slots - 1);
    for (; s->slots[k]; k = (k + 1) & (s->n_slots - 1))
        if (same_parts(&s->goals[s->slots[k] - 1], parts, n, depth, shared))
            return expr_rule(s->b, s->goals[s->slots[k] - 1].rule);
    if (s->n_goals == SCHEMA_MAX_GOALS) {
        schema_fail(s, s->root, NULL,
                    "it leads to more than %d combinations of schemas: make its anyOf, oneOf and "
                    "allOf smaller",
                    SCHEMA_MAX_GOALS);
        return 0;
    }
    struct goal g = {.n = n, .cap = n, .depth = depth, .hash = hash, .shared = shared};
    g.parts = malloc((n + 1) * sizeof *g.parts);
    if (!g.parts || !schema_grow(s, &s->goals, s->n_goals, &s->cap_goals, sizeof g)) {
        free(g.parts);
        schema_oom(s);
        return 0;
    }
    if (n)
        memcpy(g.parts, parts, n * sizeof *parts);
    g.rule = builder_rule(s->b);
    s->goals[s->n_goals++] = g;
    s->slots[k] = (uint32_t)s->n_goals;
    return expr_rule(s->b, g.rule);
}

uint32_t schema_goal(struct schema *s, const struct part *parts, size_t n, unsigned depth)
{
    return goal(s, parts, n, depth, false);
}

// side: as struct part has it. One that is there already stays what it is: of both sides it counts
// as a part of one.
static bool add_part(struct schema *s, struct goal *g, const json_t *schema, uint8_t side)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->parts[i].schema == schema)
            return true;
    if (!schema_work(s, g->n))
        return false;
    if (g->n == SCHEMA_MAX_PARTS)
        return schema_fail(s, schema, NULL, "more than %d schemas have to be obeyed at once",
                           SCHEMA_MAX_PARTS);
    if (!schema_grow(s, &g->parts, g->n, &g->cap, sizeof *g->parts))
        return false;
    g->parts[g->n++] = (struct part){.schema = schema, .side = side};
    return true;
}

static bool add_alternative(struct schema *s, struct goal *g, const json_t *schema, uint8_t side)
{
    const size_t n = g->n;
    if (!add_part(s, g, schema, side))
        return false;
    if (g->n > n)
        g->parts[n].is_alternative = true;
    return true;
}

// What has no circle through it, each found once.
static bool checked(const struct schema *s, const json_t *x)
{
    size_t k = (uintptr_t)x / 16 & (s->cap_checked - 1);
    for (; s->cap_checked && s->checked[k]; k = (k + 1) & (s->cap_checked - 1))
        if (s->checked[k] == x)
            return true;
    return false;
}

static bool set_checked(struct schema *s, const json_t *x)
{
    if (2 * (s->n_checked + 1) > s->cap_checked) {
        size_t n_old = s->cap_checked, cap = n_old ? 2 * n_old : 256;
        const json_t **old = s->checked;
        s->checked = calloc(cap, sizeof *s->checked);
        if (!s->checked) {
            s->checked = old;
            return schema_oom(s);
        }
        s->cap_checked = cap;
        s->n_checked = 0;
        for (size_t i = 0; i < n_old; i++)
            if (old[i])
                set_checked(s, old[i]);
        free(old);
    }
    size_t k = (uintptr_t)x / 16 & (s->cap_checked - 1);
    while (s->checked[k])
        k = (k + 1) & (s->cap_checked - 1);
    s->checked[k] = x;
    s->n_checked++;
    return true;
}

// path[0..n): how it was reached.
static bool no_circle(struct schema *s, const json_t *x, const json_t **path, size_t n)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    if (checked(s, x) || json_is_boolean(x))
        return true;
    for (size_t i = 0; i < n; i++)
        if (path[i] == x)
            return schema_fail(s, x, NULL,
                               "it leads back to itself by $ref, allOf, anyOf or oneOf alone, and "
                               "says nothing then: expected a property or an item between");
    if (n == SCHEMA_MAX_DEPTH)
        return schema_fail(s, x, NULL,
                           "$ref, allOf, anyOf and oneOf lie more than %d deep inside each other",
                           SCHEMA_MAX_DEPTH);
    path[n++] = x;
    if (!schema_keywords(s, x))
        return false;
    if (json_object_get(x, "$ref")) {
        const json_t *target = schema_ref(s, x);
        if (!target || !no_circle(s, target, path, n))
            return false;
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(x, lists[i]);
        for (size_t k = 0; k < json_array_size(list); k++)
            if (!no_circle(s, json_array_get(list, k), path, n))
                return false;
    }
    return set_checked(s, x);
}

bool schema_no_circle(struct schema *s, const json_t *x)
{
    const json_t *path[SCHEMA_MAX_DEPTH];
    return no_circle(s, x, path, 0);
}

bool schema_flatten(struct schema *s, struct goal *g)
{
    for (size_t i = 0; i < g->n; i++) {
        const json_t *x = g->parts[i].schema;
        if (!schema_no_circle(s, x))
            return false;
        if (json_object_get(x, "$ref")) {
            const json_t *target = schema_ref(s, x);
            if (!target || !add_part(s, g, target, g->parts[i].side))
                return false;
        }
        const json_t *all = json_object_get(x, "allOf");
        for (size_t k = 0; k < json_array_size(all); k++)
            if (!add_part(s, g, json_array_get(all, k), g->parts[i].side))
                return false;
    }
    return true;
}

// ---- what the parts say together ----

static uint32_t count_of(const json_t *v)
{
    double n = json_number_value(v);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static void at_least(const json_t *schema, const char *key, uint32_t *n)
{
    const json_t *v = json_object_get(schema, key);
    if (v && count_of(v) > *n)
        *n = count_of(v);
}

static void at_most(const json_t *schema, const char *key, uint32_t *n)
{
    const json_t *v = json_object_get(schema, key);
    if (v && count_of(v) < *n)
        *n = count_of(v);
}

static bool merge_numbers(struct schema *s, const json_t *x, struct merged *m)
{
    static const char *const bounds[] = {"minimum", "exclusiveMinimum", "maximum",
                                         "exclusiveMaximum"};
    const json_t *v;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if ((v = json_object_get(x, bounds[i])) && !schema_decimal(s, v))
            return false;
    if ((v = json_object_get(x, "minimum")))
        number_at_least(&m->number, v, false);
    if ((v = json_object_get(x, "exclusiveMinimum")))
        number_at_least(&m->number, v, true);
    if ((v = json_object_get(x, "maximum")))
        number_at_most(&m->number, v, false);
    if ((v = json_object_get(x, "exclusiveMaximum")))
        number_at_most(&m->number, v, true);
    if ((v = json_object_get(x, "multipleOf"))) {
        int64_t a = m->number.multiple ? m->number.multiple : 1, b = (int64_t)json_number_value(v);
        int64_t p = a, q = b;
        while (q) { // Euclid; then the least common multiple
            int64_t r = p % q;
            p = q;
            q = r;
        }
        if (a / p > INT64_MAX / b)
            return schema_fail(s, x, "multipleOf", "the common multiples are too large");
        m->number.multiple = a / p * b;
    }
    return true;
}

static bool merge_string(struct schema *s, const json_t *x, struct merged *m)
{
    const json_t *patterns[2] = {json_object_get(x, "pattern"), NULL};
    at_least(x, "minLength", &m->min_length);
    at_most(x, "maxLength", &m->max_length);
    if (json_object_get(x, "format") && !(patterns[1] = schema_format(s, x)))
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (!patterns[i])
            continue;
        if (m->n_patterns == sizeof m->patterns / sizeof *m->patterns)
            return schema_fail(s, x, "pattern", "more than %zu patterns for one string",
                               m->n_patterns);
        m->patterns[m->n_patterns++] = patterns[i];
    }
    return true;
}

static struct property *property(struct schema *s, struct merged *m, const char *name)
{
    const size_t size = 1 + strlen(name) / 64;
    for (size_t i = 0; i < m->n_properties && schema_work(s, size); i++)
        if (strcmp(m->properties[i].name, name) == 0)
            return &m->properties[i];
    if (s->failed ||
        !schema_grow(s, &m->properties, m->n_properties, &m->cap_properties, sizeof *m->properties))
        return NULL;
    m->properties[m->n_properties] = (struct property){.name = name};
    return &m->properties[m->n_properties++];
}

bool schema_merge(struct schema *s, const struct goal *g, struct merged *m)
{
    *m = (struct merged){.types = TYPE_ANY, .max_length = UINT32_MAX, .max_items = UINT32_MAX};
    for (size_t i = 0; i < g->n; i++) {
        const json_t *x = g->parts[i].schema, *v;
        const char *key;
        json_t *of;
        if (json_is_false(x))
            m->types = 0;
        m->types &= schema_types(s, x);
        m->values = m->values ? m->values : json_object_get(x, "enum");
        m->value = m->value ? m->value : json_object_get(x, "const");
        if (!merge_numbers(s, x, m) || !merge_string(s, x, m))
            return false;
        at_least(x, "minItems", &m->min_items);
        at_most(x, "maxItems", &m->max_items);
        m->unique |= json_is_true(json_object_get(x, "uniqueItems"));
        json_object_foreach(json_object_get(x, "properties"), key, of)
        {
            if (!property(s, m, key))
                return false;
        }
        for (int one = 0; one < 2 && !m->choice; one++)
            if ((v = json_object_get(x, one ? "oneOf" : "anyOf")) &&
                !(one ? g->parts[i].one_decided : g->parts[i].any_decided)) {
                m->choice = v;
                m->choice_part = i;
                m->choice_is_one = one;
            }
    }
    for (size_t i = 0; i < g->n; i++) {
        const json_t *names = json_object_get(g->parts[i].schema, "required");
        for (size_t k = 0; k < json_array_size(names); k++) {
            struct property *p = property(s, m, json_string_value(json_array_get(names, k)));
            if (!p)
                return false;
            p->required = true;
        }
    }
    return !s->failed;
}

// Whether a value obeys all parts. In a shared goal without the question of whether it obeys only
// one alternative of a oneOf: that is asked for by the goal itself, and one that obeys both must
// not be lost. But what does not obey the alternatives themselves, as they are, obeys not both.
static bool obeys_all(struct schema *s, const struct goal *g, const json_t *v)
{
    bool obeys = true;
    for (size_t k = 0; obeys && k < g->n; k++) {
        s->one_is_any = g->shared && !g->parts[k].is_alternative;
        obeys = schema_obeys(s, g->parts[k].schema, v, 0);
    }
    s->one_is_any = false;
    return obeys && !s->failed;
}

// Of a shared goal: whether wherever its values are written they are written out one by one.
static bool is_listed(const struct goal *g)
{
    bool lists[3] = {false};
    for (size_t i = 0; i < g->n; i++)
        lists[g->parts[i].side] |= json_object_get(g->parts[i].schema, "enum") ||
                                   json_object_get(g->parts[i].schema, "const");
    return lists[0] || (lists[1] && lists[2]);
}

json_t *schema_values(struct schema *s, const struct goal *g, const struct merged *m)
{
    json_lost(); // of what came before
    json_t *candidates = json_array(), *out = json_array();
    if (m->value) {
        json_array_append(candidates, (json_t *)(uintptr_t)m->value);
    } else if (m->values) {
        json_array_extend(candidates, (json_t *)(uintptr_t)m->values);
    } else if (!(m->types & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN))) {
        json_array_append_new(candidates, json_null());
        json_array_append_new(candidates, json_false());
        json_array_append_new(candidates, json_true());
    } else {
        json_decref(candidates);
        json_decref(out);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(candidates) && !s->failed; i++) {
        json_t *v = json_array_get(candidates, i);
        bool obeys =
            obeys_all(s, g, v) && !(g->shared && (schema_type_of(v) & (TYPE_NULL | TYPE_BOOLEAN)));
        if (obeys && !m->value && m->values) // what is there twice is one value
            obeys = schema_enum_find(s, m->values, v) == i;
        if (obeys)
            json_array_append(out, v);
    }
    json_decref(candidates);
    if (json_lost())
        schema_oom(s);
    return out;
}

// ---- rules ----

// Whether all that a schema allows are values that are written out one by one: each is then held
// against all parts of its goal, a oneOf included.
static bool listed(struct schema *s, const json_t *x, unsigned depth)
{
    static const char *const lists[] = {"anyOf", "oneOf"};
    if (json_is_boolean(x))
        return json_is_false(x);
    if (depth == SCHEMA_MAX_DEPTH || !schema_work(s, 64) || !schema_keywords(s, x))
        return false;
    if (json_object_get(x, "const") || json_object_get(x, "enum") ||
        !(schema_types(s, x) & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN)))
        return true;
    if (json_object_get(x, "$ref")) {
        const json_t *target = schema_ref(s, x);
        if (!target || listed(s, target, depth + 1))
            return target != NULL;
    }
    const json_t *all = json_object_get(x, "allOf");
    for (size_t k = 0; k < json_array_size(all); k++)
        if (listed(s, json_array_get(all, k), depth + 1))
            return true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(x, lists[i]);
        size_t n = json_array_size(list), k = 0;
        while (k < n && listed(s, json_array_get(list, k), depth + 1))
            k++;
        if (n && k == n)
            return true;
    }
    return false;
}

static uint32_t choice(struct schema *s, struct goal *g, const struct merged *m)
{
    struct ids list = {0};
    size_t n = json_array_size(m->choice);
    const json_t *of = g->parts[m->choice_part].schema;
    const uint8_t side = g->parts[m->choice_part].side;
    *(m->choice_is_one ? &g->parts[m->choice_part].one_decided
                       : &g->parts[m->choice_part].any_decided) = true;
    size_t n_parts = g->n;
    for (size_t i = 0; i < n && !s->failed; i++) {
        g->n = n_parts;
        if (add_part(s, g, json_array_get(m->choice, i), side))
            ids_push(&list, (int32_t)goal(s, g->parts, g->n, g->depth, g->shared));
        // What a shared goal would compare is part of what the goal without the other alternative
        // compares.
        bool compare = m->choice_is_one && !g->shared;
        for (size_t k = i + 1; k < n && compare && !s->failed; k++) {
            if (listed(s, json_array_get(m->choice, i), 0) &&
                listed(s, json_array_get(m->choice, k), 0))
                continue; // what both list is left out of both
            g->n = n_parts;
            if (!add_alternative(s, g, json_array_get(m->choice, i), 1) ||
                !add_alternative(s, g, json_array_get(m->choice, k), 2) ||
                !schema_grow(s, &s->disjoints, s->n_disjoints, &s->cap_disjoints,
                             sizeof *s->disjoints))
                break;
            uint32_t both = goal(s, g->parts, g->n, g->depth, true);
            if (!s->failed && builder_ok(s->b, NULL))
                s->disjoints[s->n_disjoints++] =
                    (struct disjoint){s->b->exprs[both].first, of, i + 1, k + 1};
        }
    }
    uint32_t x = expr_alt(s->b, &list);
    ids_release(&list);
    return x;
}

static uint32_t values(struct schema *s, const struct goal *g, const struct merged *m)
{
    json_t *list = schema_values(s, g, m);
    struct ids alternatives = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        ids_push(&alternatives, (int32_t)schema_value(s, json_array_get(list, i), g->depth));
    uint32_t x = expr_alt(s->b, &alternatives);
    ids_release(&alternatives);
    json_decref(list);
    return x;
}

static bool has_values(struct schema *s, const struct goal *g, const struct merged *m)
{
    json_t *list = schema_values(s, g, m);
    const bool any = json_array_size(list) > 0;
    json_decref(list);
    return any;
}

static uint32_t number(struct schema *s, const struct goal *g, const struct merged *m)
{
    uint32_t x = 0;
    int64_t largest;
    bool integer = !(m->types & TYPE_FRACTION);
    bool any = !m->number.has_lo && !m->number.has_hi && !m->number.multiple;
    uint32_t *rule = integer ? &s->integer : &s->number;
    if (any && *rule != UINT32_MAX)
        return expr_rule(s->b, *rule);
    if (!number_expr(s->b, &m->number, integer, &x, &largest))
        schema_fail(s, g->parts[0].schema, NULL,
                    "numbers have to be multiples of %lld; with these bounds at most %lld can be "
                    "enforced: make minimum and maximum narrower, or the multiple smaller",
                    (long long)m->number.multiple, (long long)largest);
    if (!any)
        return x;
    *rule = builder_rule(s->b);
    builder_define(s->b, *rule, x);
    return expr_rule(s->b, *rule);
}

static uint32_t any_of_types(struct schema *s, const struct goal *g, const struct merged *m)
{
    struct ids list = {0};
    struct builder *b = s->b;
    json_t *const few[] = {json_null(), json_true(), json_false()}; // values without an owner
    for (size_t i = 0; i < sizeof few / sizeof *few && !g->shared; i++)
        if ((m->types & schema_type_of(few[i])) && obeys_all(s, g, few[i]))
            ids_push(&list, (int32_t)schema_value(s, few[i], g->depth));
    if (m->types & TYPE_INTEGER)
        ids_push(&list, (int32_t)number(s, g, m));
    if (m->types & TYPE_STRING)
        ids_push(&list, (int32_t)schema_string(s, g, m));
    bool too_deep = s->indent && g->depth >= SCHEMA_INDENT_DEPTH;
    if ((m->types & TYPE_ARRAY) && !too_deep)
        ids_push(&list, (int32_t)schema_array(s, g, m));
    if ((m->types & TYPE_OBJECT) && !too_deep)
        ids_push(&list, (int32_t)schema_object(s, g, m));
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

static void make_rule(struct schema *s, size_t index)
{
    struct goal g = {.depth = s->goals[index].depth, .shared = s->goals[index].shared};
    struct merged m = {0};
    uint32_t rule = s->goals[index].rule, x = 0;
    g.n = g.cap = s->goals[index].n;
    g.parts = malloc((g.n + 1) * sizeof *g.parts);
    if (!g.parts) {
        schema_oom(s);
        return;
    }
    if (g.n)
        memcpy(g.parts, s->goals[index].parts, g.n * sizeof *g.parts);
    if (schema_flatten(s, &g) && schema_merge(s, &g, &m)) {
        const bool few = m.value || m.values;
        if (g.shared && (is_listed(&g) || (few && m.choice && !has_values(s, &g, &m))))
            x = expr_alt(s->b, &(struct ids){0});
        else if (few && !(g.shared && m.choice)) // (the other alternative may list them, too)
            x = values(s, &g, &m);
        else
            x = m.choice ? choice(s, &g, &m) : any_of_types(s, &g, &m);
    }
    builder_define(s->b, rule, x);
    free(g.parts);
    free(m.properties);
}

// ---- what has an end ----

static bool lives(struct builder *b, const bool *rule_lives, uint32_t index)
{
    const struct expr *x = &b->exprs[index];
    if (!work_add(&b->work, 1))
        return false;
    switch (x->kind) {
    case EXPR_NOTHING:
        return false;
    case EXPR_RULE:
        return rule_lives[x->first];
    case EXPR_REPEAT:
        return x->min == 0 || lives(b, rule_lives, x->first);
    case EXPR_SEQ:
        for (uint32_t i = 0; i < x->n; i++)
            if (!lives(b, rule_lives, b->kids[x->first + i]))
                return false;
        return true;
    case EXPR_ALT:
        for (uint32_t i = 0; i < x->n; i++)
            if (lives(b, rule_lives, b->kids[x->first + i]))
                return true;
        return false;
    default:
        return true;
    }
}

// Of each rule whether a text belongs to it; NULL: a failure. The caller frees it.
static bool *living_rules(struct schema *s)
{
    struct builder *b = s->b;
    bool *rule_lives = calloc(b->n_rules + 1, sizeof *rule_lives), changed = true, up = true;
    if (!rule_lives) {
        schema_oom(s);
        return NULL;
    }
    while (changed && work_add(&b->work, b->n_rules)) {
        changed = false;
        up = !up; // a rule may need those that were made before it, or after it
        for (size_t k = 0; k < b->n_rules; k++) {
            const size_t i = up ? k : b->n_rules - 1 - k;
            if (!rule_lives[i] && b->rules[i].body != UINT32_MAX &&
                lives(b, rule_lives, b->rules[i].body))
                rule_lives[i] = changed = true;
        }
    }
    return rule_lives;
}

// The alternatives of each oneOf must exclude each other, but for values that are left out of both:
// then it is an anyOf.
static bool check_disjoint(struct schema *s, const bool *rule_lives)
{
    for (size_t i = 0; i < s->n_disjoints && schema_work(s, 1); i++)
        if (rule_lives[s->disjoints[i].rule])
            schema_fail(
                s, s->disjoints[i].schema, "oneOf",
                "a value may obey alternatives %zu and %zu at once; oneOf is enforced where "
                "they exclude each other (by type, const, enum, bounds, or a required "
                "property): make them, or use anyOf",
                s->disjoints[i].first, s->disjoints[i].second);
    return !s->failed;
}

// A rule without which this one, to which no text belongs, has none; UINT32_MAX: it has none
// itself.
static uint32_t dead_below(struct builder *b, const bool *rule_lives, uint32_t rule)
{
    uint32_t index = b->rules[rule].body;
    while (index != UINT32_MAX) {
        const struct expr *x = &b->exprs[index];
        uint32_t i = 0;
        if (x->kind == EXPR_RULE)
            return x->first;
        if (x->kind == EXPR_REPEAT) {
            index = x->first;
        } else if (x->kind == EXPR_SEQ) {
            while (i + 1 < x->n && lives(b, rule_lives, b->kids[x->first + i]))
                i++;
            index = b->kids[x->first + i];
        } else if (x->kind == EXPR_ALT && x->n > 0) {
            index = b->kids[x->first + x->n - 1]; // the last: an object's without the property
        } else {
            return UINT32_MAX;
        }
    }
    return UINT32_MAX;
}

static bool is_long(const struct decimal *d) // it cannot be written
{
    return d->n_whole > NUMBER_DIGITS || d->n - d->n_whole > NUMBER_DIGITS;
}

// Why no value obeys a goal of which no part is to blame by itself.
static bool fail_empty(struct schema *s, const struct goal *of, const json_t *where)
{
    struct goal g = {.depth = of->depth};
    struct merged m = {0};
    for (size_t i = 0; i < of->n; i++)
        if (schema_grow(s, &g.parts, g.n, &g.cap, sizeof *g.parts))
            g.parts[g.n++] = of->parts[i];
    const bool merged = schema_flatten(s, &g) && schema_merge(s, &g, &m);
    const struct number_bounds *n = &m.number;
    const char *why = "its parts contradict each other";
    if (merged && of->n > 0 &&
        (json_is_false(of->parts[of->n - 1].schema) ||
         !schema_types(s, of->parts[of->n - 1].schema)))
        why = "what it needs has the schema false";
    else if (merged && s->indent && g.depth >= SCHEMA_INDENT_DEPTH &&
             (m.types & (TYPE_ARRAY | TYPE_OBJECT)))
        why = "with --json-indent values lie at most 32 deep";
    else if (merged && !m.value && !m.values && (m.types & TYPE_INTEGER) &&
             ((n->has_lo && is_long(&n->lo)) || (n->has_hi && is_long(&n->hi))))
        why = "numbers are written with at most 40 digits before the point, and behind it";
    free(g.parts);
    free(m.properties);
    return schema_fail(s, where, NULL, "no text at all obeys it: %s", why);
}

// Follows what has no text from the root on, to the schema that is to blame.
static bool check_start(struct schema *s, const bool *rule_lives, uint32_t rule)
{
    if (rule_lives[rule])
        return true;
    struct builder *b = s->b;
    uint32_t *goal_of = calloc(b->n_rules + 1, sizeof *goal_of); // goal + 1; 0: none
    bool *seen = calloc(b->n_rules + 1, sizeof *seen);
    if (!goal_of || !seen) {
        free(goal_of);
        free(seen);
        return schema_oom(s);
    }
    for (size_t i = 0; i < s->n_goals; i++)
        goal_of[s->goals[i].rule] = (uint32_t)i + 1;
    const struct goal *at = &s->goals[0];
    const json_t *where = s->root;
    for (; rule != UINT32_MAX && !seen[rule]; rule = dead_below(b, rule_lives, rule)) {
        seen[rule] = true;
        if (goal_of[rule] == 0)
            continue;
        at = &s->goals[goal_of[rule] - 1];
        const json_t *x = at->n ? at->parts[at->n - 1].schema : NULL;
        if (json_is_object(x)) // true and false have no place of their own
            where = x;
    }
    if (rule == UINT32_MAX)
        fail_empty(s, at, where);
    else
        schema_fail(
            s, where, NULL,
            "no text at all obeys it: it needs a value of its own kind inside, without end");
    free(goal_of);
    free(seen);
    return false;
}

static bool check_ends(struct schema *s, uint32_t start)
{
    bool *rule_lives = living_rules(s);
    const bool ok = rule_lives && schema_work(s, 0) && check_disjoint(s, rule_lives) &&
                    check_start(s, rule_lives, start);
    free(rule_lives);
    return ok;
}

bool schema_read(struct builder *b, const char *text, size_t n, unsigned indent, uint32_t *root,
                 struct error *err)
{
    json_error_t why;
    struct schema s = {.b = b, .text = text, .n_text = n, .indent = indent, .err = err};
    s.string = s.number = s.integer = s.plain_char = s.key_char = UINT32_MAX;
    s.root = json_read(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!s.root && json_no_memory(&why))
        return error_oom(err, "a JSON Schema", n);
    if (!s.root) {
        char what[FORMAT_TEXT];
        if (n == 0)
            return error_set(err, ERR_USAGE, "found an empty text, expected a JSON Schema");
        return error_set(err, ERR_USAGE, "line %d, column %d: cannot be read as JSON: %s%s",
                         why.line, why.column,
                         format_text(what, sizeof what, why.text, strlen(why.text)),
                         json_expected(&why));
    }
    if (!json_is_object(s.root) && !json_is_boolean(s.root))
        schema_fail(&s, s.root, NULL, "found no schema, expected an object, true or false");
    struct part part = {.schema = s.root};
    uint32_t start = schema_goal(&s, &part, 1, 0);
    for (size_t i = 0; i < s.n_goals && !s.failed && builder_ok(b, NULL); i++)
        make_rule(&s, i);
    bool ok = !s.failed && builder_ok(b, err) && check_ends(&s, b->exprs[start].first);
    if (ok)
        *root = b->exprs[start].first;
    for (size_t i = 0; i < s.n_goals; i++)
        free(s.goals[i].parts);
    free(s.goals);
    free(s.slots);
    free(s.checked);
    free(s.disjoints);
    free(s.enums);
    json_decref(s.formats);
    json_decref(s.root);
    return ok;
}
