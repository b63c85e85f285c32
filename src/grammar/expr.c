#include "grammar/expr.h"

#include <stdlib.h>
#include <string.h>

void builder_release(struct builder *b)
{
    for (size_t i = 0; i < b->n_classes; i++)
        charset_release(&b->classes[i]);
    for (size_t i = 0; i < b->n_rules; i++)
        free(b->rules[i].name);
    free(b->exprs);
    free(b->kids);
    free(b->classes);
    free(b->rules);
    buf_release(&b->bytes);
    *b = (struct builder){0};
}

bool builder_ok(const struct builder *b, struct error *err)
{
    if (b->too_big)
        return error_set(err, ERR_USAGE,
                         "the grammar has more than %d parts: make repetitions and lists smaller",
                         GRAMMAR_MAX_EXPRS);
    if (b->failed || b->bytes.failed)
        return error_oom(err, "a grammar", b->n_exprs * sizeof *b->exprs);
    return work_ok(&b->work, err);
}

static uint32_t add(struct builder *b, struct expr x)
{
    if (b->n_exprs >= GRAMMAR_MAX_EXPRS)
        b->too_big = true;
    if (b->too_big || !work_add(&b->work, 1) ||
        !array_grow(&b->failed, &b->exprs, b->n_exprs, &b->cap_exprs, sizeof x))
        return 0; // whoever uses it looks at the failure first
    b->exprs[b->n_exprs] = x;
    return (uint32_t)b->n_exprs++;
}

uint32_t expr_empty(struct builder *b)
{
    return add(b, (struct expr){.kind = EXPR_EMPTY});
}

uint32_t expr_nothing(struct builder *b)
{
    return add(b, (struct expr){.kind = EXPR_NOTHING});
}

uint32_t expr_bytes(struct builder *b, const char *s, size_t n)
{
    if (n == 0)
        return expr_empty(b);
    if (!work_add(&b->work, 4 * (uint64_t)n)) // a state of the automaton for each, or more
        return 0;
    uint32_t first = (uint32_t)b->bytes.len;
    buf_append(&b->bytes, s, n);
    return add(b, (struct expr){.kind = EXPR_BYTES, .first = first, .n = (uint32_t)n});
}

uint32_t expr_text(struct builder *b, const char *s)
{
    return expr_bytes(b, s, strlen(s));
}

uint32_t expr_class(struct builder *b, struct charset *s)
{
    charset_tidy(s);
    b->failed |= s->failed;
    size_t i = 0;
    while (i < b->n_classes && !charset_equal(&b->classes[i], s))
        i++;
    work_add(&b->work, i);
    if (i < b->n_classes) {
        charset_release(s);
    } else if (array_grow(&b->failed, &b->classes, b->n_classes, &b->cap_classes, sizeof *s)) {
        b->classes[b->n_classes++] = *s;
        *s = (struct charset){0};
    } else {
        charset_release(s);
        return 0;
    }
    if (b->classes[i].n == 0)
        return expr_nothing(b);
    return add(b, (struct expr){.kind = EXPR_CLASS, .first = (uint32_t)i});
}

uint32_t expr_chars(struct builder *b, const char *ranges)
{
    struct charset s = {0};
    for (; ranges[0] && ranges[1]; ranges += 2)
        charset_add(&s, (unsigned char)ranges[0], (unsigned char)ranges[1]);
    return expr_class(b, &s);
}

uint32_t expr_rule(struct builder *b, uint32_t rule)
{
    return add(b, (struct expr){.kind = EXPR_RULE, .first = rule});
}

uint32_t expr_repeat(struct builder *b, uint32_t x, uint32_t min, uint32_t max)
{
    if (max == 0)
        return expr_empty(b);
    if (min == 1 && max == 1)
        return x;
    return add(b, (struct expr){.kind = EXPR_REPEAT, .first = x, .min = min, .max = max});
}

static uint32_t add_list(struct builder *b, enum expr_kind kind, const struct ids *list)
{
    b->failed |= list->failed;
    if (list->len == 1)
        return (uint32_t)list->data[0];
    uint32_t first = (uint32_t)b->n_kids;
    for (size_t i = 0; i < list->len; i++)
        if (array_grow(&b->failed, &b->kids, b->n_kids, &b->cap_kids, sizeof *b->kids))
            b->kids[b->n_kids++] = (uint32_t)list->data[i];
    return add(b, (struct expr){.kind = kind, .first = first, .n = (uint32_t)list->len});
}

uint32_t expr_seq(struct builder *b, const struct ids *list)
{
    return list->len || list->failed ? add_list(b, EXPR_SEQ, list) : expr_empty(b);
}

uint32_t expr_alt(struct builder *b, const struct ids *list)
{
    return list->len || list->failed ? add_list(b, EXPR_ALT, list) : expr_nothing(b);
}

uint32_t expr_seq_of(struct builder *b, size_t n, ...)
{
    struct ids list = {0};
    va_list ap;
    va_start(ap, n);
    for (size_t i = 0; i < n; i++)
        ids_push(&list, (int32_t)va_arg(ap, uint32_t));
    va_end(ap);
    uint32_t x = add_list(b, EXPR_SEQ, &list);
    ids_release(&list);
    return x;
}

uint32_t expr_either(struct builder *b, uint32_t x, uint32_t y)
{
    const struct ids list = {.data = (int32_t[]){(int32_t)x, (int32_t)y}, .len = 2};
    return add_list(b, EXPR_ALT, &list);
}

uint32_t builder_rule(struct builder *b)
{
    if (!array_grow(&b->failed, &b->rules, b->n_rules, &b->cap_rules, sizeof *b->rules))
        return 0;
    b->rules[b->n_rules] = (struct rule){.body = UINT32_MAX};
    return (uint32_t)b->n_rules++;
}

void builder_define(struct builder *b, uint32_t rule, uint32_t body)
{
    if (rule < b->n_rules)
        b->rules[rule].body = body;
}
