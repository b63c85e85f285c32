// Strings and keys.
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

// JSON's short escapes of control characters, by the letter.
static const char control_letters[] = "btnfr", controls[] = "\b\t\n\f\r";

static void special_chars(struct charset *s) // those that a JSON string must escape
{
    charset_add(s, 0, 0x1F);
    charset_add(s, '"', '"');
    charset_add(s, '\\', '\\');
    charset_tidy(s);
}

static uint32_t hex_digit(struct builder *b, unsigned v)
{
    char range[] = {"0123456789abcdef"[v], "0123456789abcdef"[v], "0123456789ABCDEF"[v],
                    "0123456789ABCDEF"[v], 0};
    return expr_chars(b, range);
}

// The ways in which a special character is written.
static uint32_t escaped(struct builder *b, uint32_t cp)
{
    char text[3] = {'\\', (char)cp, 0};
    if (cp >= ' ')
        return expr_text(b, text);
    uint32_t hex =
        expr_seq_of(b, 3, expr_text(b, "\\u00"), hex_digit(b, cp >> 4), hex_digit(b, cp & 15));
    const char *p = cp ? strchr(controls, (int)cp) : NULL;
    if (!p)
        return hex;
    text[1] = control_letters[p - controls];
    return expr_either(b, expr_text(b, text), hex);
}

// One character of a set (which is taken), each written in one way; control characters with short
// escapes in two.
static uint32_t one_of(struct builder *b, struct charset *s)
{
    struct charset special = {0}, raw = {0};
    struct ids list = {0};
    special_chars(&special);
    charset_add_all(&raw, s);
    charset_tidy(&raw);
    charset_remove(&raw, &special);
    if (raw.n)
        ids_push(&list, (int32_t)expr_class(b, &raw));
    for (uint32_t cp = 0; cp <= '\\'; cp++)
        if (charset_has(&special, cp) && charset_has(s, cp))
            ids_push(&list, (int32_t)escaped(b, cp));
    b->failed |= s->failed || special.failed || raw.failed;
    charset_release(&special);
    charset_release(&raw);
    charset_release(s);
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

static uint32_t key_char(struct schema *s)
{
    if (s->key_char == UINT32_MAX) {
        struct charset all = {0};
        charset_add(&all, 0, 0x10FFFF);
        charset_tidy(&all);
        s->key_char = builder_rule(s->b);
        builder_define(s->b, s->key_char, one_of(s->b, &all));
    }
    return expr_rule(s->b, s->key_char);
}

// Any character in any of the ways in which JSON writes it.
static uint32_t any_char(struct schema *s)
{
    struct builder *b = s->b;
    if (s->plain_char == UINT32_MAX) {
        struct charset special = {0};
        special_chars(&special);
        charset_negate(&special);
        uint32_t hex = expr_chars(b, "09afAF");
        uint32_t hex2 = expr_repeat(b, hex, 2, 2), hex3 = expr_repeat(b, hex, 3, 3);
        uint32_t low = expr_seq_of(b, 4, expr_text(b, "\\u"), expr_chars(b, "ddDD"),
                                   expr_chars(b, "cfCF"), hex2);
        uint32_t high =
            expr_seq_of(b, 4, expr_chars(b, "ddDD"), expr_chars(b, "89abAB"), hex2, low);
        uint32_t alone =
            expr_either(b, expr_seq_of(b, 2, expr_chars(b, "09acefACEF"), hex3),
                        expr_seq_of(b, 3, expr_chars(b, "ddDD"), expr_chars(b, "07"), hex2));
        uint32_t code = expr_seq_of(b, 2, expr_text(b, "u"), expr_either(b, alone, high));
        uint32_t letter = expr_chars(b, "\"\"\\\\//bbffnnrrtt");
        s->plain_char = builder_rule(b);
        builder_define(
            b, s->plain_char,
            expr_either(b, expr_class(b, &special),
                        expr_seq_of(b, 2, expr_text(b, "\\"), expr_either(b, letter, code))));
    }
    return expr_rule(b, s->plain_char);
}

void schema_quote(struct buf *out, const char *text, size_t n)
{
    buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *p = c && c < ' ' ? strchr(controls, c) : NULL;
        if (p)
            buf_printf(out, "\\%c", control_letters[p - controls]);
        else if (c < ' ')
            buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

uint32_t schema_string(struct schema *s, const struct goal *g, const struct merged *m)
{
    struct builder *b = s->b;
    uint32_t quote = expr_text(b, "\"");
    if (m->max_length < m->min_length)
        return expr_nothing(b);
    if (m->n_patterns == 0) {
        if (m->min_length == 0 && m->max_length == UINT32_MAX && s->string != UINT32_MAX)
            return expr_rule(b, s->string);
        uint32_t x = expr_seq_of(b, 3, quote,
                                 expr_repeat(b, any_char(s), m->min_length, m->max_length), quote);
        if (m->min_length == 0 && m->max_length == UINT32_MAX) {
            s->string = builder_rule(b);
            builder_define(b, s->string, x);
            return expr_rule(b, s->string);
        }
        return x;
    }
    struct nfa nfa = {0};
    struct dfa dfa = {0};
    struct error why = {0};
    bool ok = true;
    const json_t *at = g->parts[0].schema;
    const char *key = NULL;
    for (size_t i = 0; ok && i < m->n_patterns; i++) {
        const json_t *pattern = m->patterns[i];
        ok = nfa_add(&nfa, json_string_value(pattern), json_string_length(pattern), &b->work, &why);
        for (size_t k = 0; !ok && k < g->n; k++)
            if (json_object_get(g->parts[k].schema, "pattern") == pattern) {
                at = g->parts[k].schema;
                key = "pattern";
            }
    }
    ok = ok && dfa_init(&dfa, &nfa, m->min_length, m->max_length, &b->work, &why);
    nfa_release(&nfa);
    if (!ok) {
        if (why.code == ERR_MEMORY)
            schema_oom(s);
        else if (schema_work(s, 0))
            schema_fail(s, at, key, "%s", why.text);
        return 0;
    }
    uint32_t first = (uint32_t)b->n_rules;
    for (size_t i = 0; i < dfa.n_states; i++)
        builder_rule(b);
    for (size_t i = 0; i < dfa.n_states && builder_ok(b, NULL); i++) {
        const struct dfa_state *q = &dfa.states[i];
        struct ids list = {0};
        if (q->accepts)
            ids_push(&list, (int32_t)quote);
        // All the characters that lead to a state, at once.
        for (size_t k = q->first; k < q->first + q->n; k++) {
            uint32_t to = dfa.edges[k].to;
            struct charset chars = {0};
            bool done = false;
            if (!schema_work(s, q->n))
                break;
            for (size_t j = q->first; j < k; j++)
                done |= dfa.edges[j].to == to;
            for (size_t j = k; j < q->first + q->n && !done; j++)
                if (dfa.edges[j].to == to)
                    charset_add(&chars, dfa.edges[j].lo, dfa.edges[j].hi);
            charset_tidy(&chars);
            if (!done)
                ids_push(&list,
                         (int32_t)expr_seq_of(b, 2, one_of(b, &chars), expr_rule(b, first + to)));
        }
        builder_define(b, first + (uint32_t)i, expr_alt(b, &list));
        ids_release(&list);
    }
    dfa_release(&dfa);
    return expr_seq_of(b, 2, quote, expr_rule(b, first));
}

// ---- keys that are none of a list ----

// What follows behind the first `at` bytes, in which all the names agree.
static uint32_t tree(struct schema *s, const char **names, size_t n, size_t at, unsigned depth)
{
    struct builder *b = s->b;
    uint32_t others =
        expr_seq_of(b, 2, expr_repeat(b, key_char(s), 0, REPEAT_FOREVER), expr_text(b, "\""));
    struct ids list = {0};
    struct charset other = {0};
    bool is_name = false;
    charset_add(&other, 0, 0x10FFFF);
    charset_tidy(&other);
    for (size_t i = 0; i < n && depth < 500; i++) {
        const char *rest = names[i] + at;
        uint32_t cp;
        size_t len = *rest ? utf8_decode(rest, strlen(rest), &cp) : 0;
        if (len == 0) {
            is_name = true;
            continue;
        }
        if (!charset_has(&other, cp))
            continue; // with an earlier name
        const char **below = calloc(n, sizeof *below);
        size_t n_below = 0;
        for (size_t k = i; below && k < n; k++)
            if (strncmp(names[k] + at, rest, len) == 0)
                below[n_below++] = names[k];
        if (!below)
            b->failed = true;
        struct charset one = {0};
        charset_add(&one, cp, cp);
        charset_tidy(&one);
        charset_remove(&other, &one);
        uint32_t next = b->failed ? 0 : tree(s, below, n_below, at + len, depth + 1);
        uint32_t rule = builder_rule(b);
        builder_define(b, rule, next);
        ids_push(&list, (int32_t)expr_seq_of(b, 2, one_of(b, &one), expr_rule(b, rule)));
        free(below);
    }
    ids_push(&list, (int32_t)expr_seq_of(b, 2, one_of(b, &other), others));
    if (!is_name)
        ids_push(&list, (int32_t)expr_text(b, "\""));
    uint32_t x = expr_alt(b, &list);
    ids_release(&list);
    return x;
}

uint32_t schema_other_key(struct schema *s, const struct property *names, size_t n)
{
    const char **list = calloc(n + 1, sizeof *list);
    if (!list) {
        schema_oom(s);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        list[i] = names[i].name;
        if (strlen(names[i].name) > 400) {
            free(list);
            schema_fail(s, s->root, NULL, "a property's name has more than 400 bytes");
            return 0;
        }
    }
    uint32_t x = tree(s, list, n, 0, 0);
    free(list);
    return x;
}
