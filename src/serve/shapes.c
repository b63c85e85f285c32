#include "serve/shapes.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

enum { MOST_IDLE = 8 };

struct prepared {
    char *schema; // owned
    struct constraint *constraint;
    size_t n_users;
    struct prepared *next;
};

static void prepared_free(struct prepared *p)
{
    constraint_free(p->constraint);
    free(p->schema);
    free(p);
}

bool shapes_init(struct shapes *s, const struct tokenizer *tok, uint32_t n_vocab, struct error *err)
{
    *s = (struct shapes){.tok = tok, .n_vocab = n_vocab};
    return (s->vocab = grammar_vocab_create(tok, err)) != NULL;
}

static struct prepared *prepare(struct shapes *s, const char *schema, const struct cancel *cancel,
                                struct error *err)
{
    struct grammar *g = grammar_from_schema(schema, strlen(schema), 0, cancel, err);
    if (!g)
        return NULL;
    struct constraint *c = constraint_create(g, s->vocab, s->tok, s->n_vocab, false, err);
    struct prepared *p = c ? calloc(1, sizeof *p) : NULL;
    char *copy = p ? strdup(schema) : NULL;
    if (!copy) {
        if (c)
            error_oom(err, "a schema", strlen(schema));
        constraint_free(c);
        free(p);
        return NULL;
    }
    *p = (struct prepared){.schema = copy, .constraint = c};
    return p;
}

static void forget_idle(struct shapes *s)
{
    size_t n_idle = 0;
    for (struct prepared **p = &s->first, *x; (x = *p);) {
        if (x->n_users == 0 && ++n_idle > MOST_IDLE) {
            *p = x->next;
            prepared_free(x);
        } else {
            p = &x->next;
        }
    }
}

struct constraint *shapes_take(struct shapes *s, const char *schema, const struct cancel *cancel,
                               struct error *err)
{
    struct prepared **p = &s->first, *x;
    while (*p && strcmp((*p)->schema, schema) != 0)
        p = &(*p)->next;
    if ((x = *p))
        *p = x->next;
    else if (!(x = prepare(s, schema, cancel, err)))
        return NULL;
    x->next = s->first;
    s->first = x;
    struct constraint *c = constraint_share(x->constraint, err);
    x->n_users += c != NULL;
    forget_idle(s);
    return c;
}

void shapes_give(struct shapes *s, struct constraint *c)
{
    for (struct prepared *p = s->first; c && p; p = p->next)
        p->n_users -= p->constraint == c->of;
    constraint_free(c);
}

void shapes_release(struct shapes *s)
{
    for (struct prepared *p = s->first, *next; p; p = next) {
        next = p->next;
        prepared_free(p);
    }
    grammar_vocab_free(s->vocab);
    *s = (struct shapes){0};
}
