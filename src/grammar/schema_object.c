// Objects and arrays.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "grammar/schema_impl.h"

enum { MOST_UNIQUE = 8 }; // values of which arrays without repetition are enumerated: 2^8 states

// ---- what stands between values ----

static void line_break(struct schema *s, struct buf *out, unsigned depth)
{
    if (s->indent == 0)
        return;
    buf_putc(out, '\n');
    for (unsigned i = 0; i < s->indent * depth; i++)
        buf_putc(out, ' ');
}

static uint32_t text_of(struct schema *s, struct buf *text)
{
    s->b->failed |= text->failed;
    uint32_t x = expr_bytes(s->b, buf_str(text), text->len);
    buf_release(text);
    return x;
}

// What stands between the values of an array or object at a depth.
static uint32_t schema_open(struct schema *s, const char *bracket, unsigned depth)
{
    struct buf text = {0};
    buf_puts(&text, bracket);
    line_break(s, &text, depth + 1);
    return text_of(s, &text);
}

static uint32_t schema_comma(struct schema *s, unsigned depth)
{
    return schema_open(s, ",", depth);
}

static uint32_t schema_close(struct schema *s, const char *bracket, unsigned depth)
{
    struct buf text = {0};
    line_break(s, &text, depth);
    buf_puts(&text, bracket);
    return text_of(s, &text);
}

// 100.0 and 1e2 are integers to a schema, and are written as such, as far as it has digits for
// them.
static void write_real(double v, struct buf *out)
{
    char digits[FORMAT_NUMBER];
    if (v == trunc(v) && fabs(v) < 1e40)
        buf_printf(out, "%.0f", v);
    else
        buf_printf(out, "%.*g", format_digits(digits, v) + 1, v);
}

static void write_value(struct schema *s, const json_t *v, unsigned depth, struct buf *out)
{
    if (json_is_string(v)) {
        schema_quote(out, json_string_value(v), json_string_length(v));
    } else if (json_is_integer(v)) {
        buf_printf(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        write_real(json_real_value(v), out);
    } else if (json_is_array(v) || json_is_object(v)) {
        bool object = json_is_object(v), first = true;
        buf_putc(out, object ? '{' : '[');
        for (size_t i = 0; i < json_array_size(v); i++, first = false) {
            if (!first)
                buf_putc(out, ',');
            line_break(s, out, depth + 1);
            write_value(s, json_array_get(v, i), depth + 1, out);
        }
        const char *key;
        json_t *x;
        json_object_foreach((json_t *)(uintptr_t)v, key, x)
        {
            if (!first)
                buf_putc(out, ',');
            first = false;
            line_break(s, out, depth + 1);
            schema_quote(out, key, strlen(key));
            buf_puts(out, s->indent ? ": " : ":");
            write_value(s, x, depth + 1, out);
        }
        if (!first)
            line_break(s, out, depth);
        buf_putc(out, object ? '}' : ']');
    } else {
        buf_puts(out, json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
    }
}

uint32_t schema_value(struct schema *s, const json_t *v, unsigned depth)
{
    struct buf text = {0};
    write_value(s, v, depth, &text);
    return text_of(s, &text);
}

// ---- arrays ----

// The goal of the item at a place; SIZE_MAX: behind all prefixItems.
static uint32_t item_goal(struct schema *s, const struct goal *g, size_t at)
{
    struct part parts[64];
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++) {
        const json_t *x = g->parts[i].schema, *prefix = json_object_get(x, "prefixItems");
        const json_t *of =
            at < json_array_size(prefix) ? json_array_get(prefix, at) : json_object_get(x, "items");
        if (of && n == 64)
            schema_fail(s, x, NULL, "more than 64 schemas for one item");
        else if (of)
            parts[n++] = (struct part){.schema = of};
    }
    return schema_goal(s, parts, n, g->depth + 1);
}

// Arrays without repetition of a few values: a rule for each set of those that were used.
static uint32_t unique_array(struct schema *s, const struct goal *g, const struct merged *m)
{
    struct builder *b = s->b;
    struct goal items = {.depth = g->depth + 1};
    struct merged of = {0};
    json_t *values = NULL;
    size_t n_prefix = 0;
    for (size_t i = 0; i < g->n; i++) {
        const json_t *x = json_object_get(g->parts[i].schema, "items");
        n_prefix += json_array_size(json_object_get(g->parts[i].schema, "prefixItems"));
        if (x && schema_grow(s, &items.parts, items.n, &items.cap, sizeof *items.parts))
            items.parts[items.n++] = (struct part){.schema = x};
    }
    uint32_t result = 0;
    if (n_prefix == 0 && schema_flatten(s, &items) && schema_merge(s, &items, &of))
        values = schema_values(s, &items, &of);
    size_t n = json_array_size(values);
    if (!s->failed && (!values || n > MOST_UNIQUE || n_prefix)) {
        schema_fail(s, g->parts[0].schema, "uniqueItems",
                    "hokku enforces it where maxItems is at most 1, or items is an enum of at most "
                    "%d values: leave it out, or say so",
                    MOST_UNIQUE);
    } else if (!s->failed) {
        uint32_t first = (uint32_t)b->n_rules;
        for (size_t i = 0; i < (size_t)1 << n; i++)
            builder_rule(b);
        uint32_t close = schema_close(s, "]", g->depth), comma = schema_comma(s, g->depth);
        for (uint32_t used = 0; used < 1u << n && builder_ok(b, NULL); used++) {
            uint32_t count = (uint32_t)__builtin_popcount(used);
            struct ids list = {0};
            if (count >= m->min_items && count <= m->max_items)
                ids_push(&list, (int32_t)(used ? close : expr_text(b, "[]")));
            for (size_t i = 0; i < n && count < m->max_items; i++)
                if (!(used >> i & 1))
                    ids_push(&list, (int32_t)expr_seq_of(
                                        b, 3, used ? comma : schema_open(s, "[", g->depth),
                                        schema_value(s, json_array_get(values, i), g->depth + 1),
                                        expr_rule(b, first + (used | 1u << i))));
            builder_define(b, first + used, expr_alt(b, &list));
            ids_release(&list);
        }
        result = expr_rule(b, first);
    }
    json_decref(values);
    free(items.parts);
    free(of.properties);
    return result;
}

uint32_t schema_array(struct schema *s, const struct goal *g, const struct merged *m)
{
    struct builder *b = s->b;
    if (m->max_items < m->min_items)
        return expr_nothing(b);
    if (m->unique && m->max_items > 1)
        return unique_array(s, g, m);
    size_t n_prefix = 0;
    for (size_t i = 0; i < g->n; i++) {
        size_t n = json_array_size(json_object_get(g->parts[i].schema, "prefixItems"));
        n_prefix = n > n_prefix ? n : n_prefix;
    }
    if (n_prefix > m->max_items)
        n_prefix = m->max_items;
    uint32_t open = schema_open(s, "[", g->depth), close = schema_close(s, "]", g->depth);
    uint32_t comma = schema_comma(s, g->depth), x = expr_empty(b);
    // From the last item to the first; behind the prefix all are alike.
    uint32_t from = n_prefix ? (uint32_t)n_prefix : 1;
    if (m->max_items > from) {
        uint32_t item = expr_seq_of(b, 2, comma, item_goal(s, g, n_prefix ? n_prefix : 0));
        x = expr_repeat(b, item, m->min_items > from ? m->min_items - from : 0,
                        m->max_items == UINT32_MAX ? REPEAT_FOREVER : m->max_items - from);
    }
    for (uint32_t i = from; i-- > 0 && m->max_items > 0;) {
        // Each level is a rule, so that a long prefix is not a deep expression.
        uint32_t rule = builder_rule(b);
        x = expr_seq_of(b, 3, i ? comma : open, item_goal(s, g, i), x);
        if (i && i >= m->min_items)
            x = expr_repeat(b, x, 0, 1);
        builder_define(b, rule, x);
        x = expr_rule(b, rule);
    }
    struct ids list = {0};
    if (m->min_items == 0)
        ids_push(&list, (int32_t)expr_text(b, "[]"));
    if (m->max_items > 0)
        ids_push(&list, (int32_t)expr_seq_of(b, 2, x, close));
    x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

// ---- objects ----

// The goal of a property; NULL: of all that are named nowhere.
static uint32_t property_goal(struct schema *s, const struct goal *g, const char *name)
{
    struct part parts[64];
    size_t n = 0;
    if (!schema_work(s, g->n * (1 + (name ? strlen(name) / 64 : 0))))
        return 0;
    for (size_t i = 0; i < g->n; i++) {
        const json_t *x = g->parts[i].schema;
        const json_t *of = name ? json_object_get(json_object_get(x, "properties"), name) : NULL;
        of = of ? of : json_object_get(x, "additionalProperties");
        if (of && n == 64)
            schema_fail(s, x, NULL, "more than 64 schemas for one property");
        else if (of)
            parts[n++] = (struct part){.schema = of};
    }
    return schema_goal(s, parts, n, g->depth + 1);
}

static bool is_closed(const struct goal *g) // no other properties than those with names
{
    for (size_t i = 0; i < g->n; i++)
        if (json_is_false(json_object_get(g->parts[i].schema, "additionalProperties")))
            return true;
    return false;
}

uint32_t schema_object(struct schema *s, const struct goal *g, const struct merged *m)
{
    struct builder *b = s->b;
    size_t n = m->n_properties;
    uint32_t open = schema_open(s, "{", g->depth), close = schema_close(s, "}", g->depth);
    uint32_t comma = schema_comma(s, g->depth);
    // Two rules for each property: from there on when none was written before, and when some was.
    uint32_t none = (uint32_t)b->n_rules, some = none + (uint32_t)n + 1;
    for (size_t i = 0; i < 2 * (n + 1); i++)
        builder_rule(b);
    for (size_t i = 0; i < n && builder_ok(b, NULL) && !s->failed; i++) {
        struct buf key = {0};
        schema_quote(&key, m->properties[i].name, strlen(m->properties[i].name));
        buf_puts(&key, s->indent ? ": " : ":");
        uint32_t pair =
            expr_seq_of(b, 3, text_of(s, &key), property_goal(s, g, m->properties[i].name),
                        expr_rule(b, some + (uint32_t)i + 1));
        uint32_t first = expr_seq_of(b, 2, open, pair), later = expr_seq_of(b, 2, comma, pair);
        if (!m->properties[i].required) {
            first = expr_either(b, first, expr_rule(b, none + (uint32_t)i + 1));
            later = expr_either(b, later, expr_rule(b, some + (uint32_t)i + 1));
        }
        builder_define(b, none + (uint32_t)i, first);
        builder_define(b, some + (uint32_t)i, later);
    }
    uint32_t first = expr_text(b, "{}"), later = close;
    if (!is_closed(g)) {
        uint32_t rule = builder_rule(b);
        uint32_t pair =
            expr_seq_of(b, 4, expr_text(b, "\""), schema_other_key(s, m->properties, n),
                        expr_text(b, s->indent ? ": " : ":"), property_goal(s, g, NULL));
        builder_define(b, rule, pair);
        uint32_t more =
            expr_repeat(b, expr_seq_of(b, 2, comma, expr_rule(b, rule)), 0, REPEAT_FOREVER);
        first = expr_either(b, first, expr_seq_of(b, 4, open, expr_rule(b, rule), more, close));
        later = expr_seq_of(b, 2, more, close);
    }
    builder_define(b, none + (uint32_t)n, first);
    builder_define(b, some + (uint32_t)n, later);
    return expr_rule(b, none);
}
