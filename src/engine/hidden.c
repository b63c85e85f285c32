#include "engine/hidden.h"

#include <stdlib.h>

#include "engine/backend.h"

void hidden_release(struct hidden *h)
{
    free(h->rows);
    *h = (struct hidden){0};
}

bool engine_gives_hidden(const struct engine *e)
{
    return e->core->gives_hidden;
}

bool seq_keep_hidden(struct seq *s, size_t n, struct error *err)
{
    const size_t n_embd = s->engine->model->hp.n_embd;
    struct hidden h = {.rows = n > 0 ? calloc(n, n_embd * sizeof *h.rows) : NULL, .most = n};
    if (n > 0 && !engine_gives_hidden(s->engine)) {
        free(h.rows);
        return error_set(err, ERR_FAIL, "%s gives no hidden states", s->engine->device);
    }
    if (n > 0 && !h.rows)
        return error_oom(err, "hidden states", n * n_embd * sizeof *h.rows);
    hidden_release(&s->hidden);
    s->hidden = h;
    return true;
}

const float *seq_hidden(const struct seq *s, size_t pos, size_t *n)
{
    const struct hidden *h = &s->hidden;
    const size_t past = seq_n_past(s), end = h->end < past ? h->end : past;
    *n = 0;
    if (!h->rows || pos < h->begin || pos >= end)
        return NULL;
    const size_t row = pos % h->most;
    *n = end - pos < h->most - row ? end - pos : h->most - row;
    return h->rows + row * s->engine->model->hp.n_embd;
}

size_t seq_hidden_begin(const struct seq *s)
{
    const size_t past = seq_n_past(s);
    return s->hidden.end >= past && s->hidden.begin < past ? s->hidden.begin : past;
}

void hidden_back(struct seq *s)
{
    struct hidden *h = &s->hidden;
    if (h->end > s->n_past)
        h->end = s->n_past;
    if (h->begin > h->end)
        h->begin = h->end;
}

bool hidden_keep(struct seq *s, size_t row, size_t n, struct error *err)
{
    struct hidden *h = &s->hidden;
    struct engine *e = s->engine;
    if (!h->rows)
        return true;
    size_t pos = s->n_past;
    const size_t end = pos + n;
    if (pos > h->end || pos < h->begin) // what is between is not known
        h->begin = pos;
    h->end = end;
    if (end - h->begin > h->most)
        h->begin = end - h->most;
    if (pos < h->begin) {
        row += h->begin - pos;
        pos = h->begin;
    }
    while (pos < end) {
        const size_t at = pos % h->most, rest = end - pos;
        const size_t k = rest < h->most - at ? rest : h->most - at;
        if (!e->core->backend->hidden(e, row, k, h->rows + at * e->model->hp.n_embd, err)) {
            h->end = h->begin;
            return false;
        }
        row += k;
        pos += k;
    }
    return true;
}

bool hidden_give(const struct work *w, struct error *err)
{
    struct seq *s = w->seq;
    const bool predicts = s->engine->model->predicts_for != NULL;
    s->given_hidden = w->hidden;
    s->given_at = w->ids ? s->ids.len : s->ids.len - 1;
    if (predicts != (w->hidden != NULL) && w->n > 0)
        return error_set(err, ERR_FAIL, "work of %zu rows %s hidden states, expected %s", w->n,
                         w->hidden ? "with" : "without",
                         predicts ? "one for each: the model predicts" : "none");
    return !predicts || w->n == 0 || s->n_past == s->given_at ||
           error_set(err, ERR_FAIL,
                     "hidden states for the tokens from %zu on, but only %zu are evaluated",
                     s->given_at, s->n_past);
}
