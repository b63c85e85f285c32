#include "model/slice_cut.h"

#include <stdlib.h>
#include <string.h>

struct weight_run run_times(struct weight_run r, uint32_t n)
{
    return (struct weight_run){r.begin * n, r.n * n};
}

struct runs runs_times(const struct runs *r, uint32_t n)
{
    struct runs out = *r;
    for (uint32_t i = 0; i < r->n; i++)
        out.run[i] = run_times(r->run[i], n);
    return out;
}

struct runs runs_of_one(struct weight_run r)
{
    return (struct runs){1, {r}};
}

void runs_add(struct runs *r, uint32_t from, struct weight_run run)
{
    struct weight_run *last = r->n > 0 ? &r->run[r->n - 1] : NULL;
    if (last && last->begin + last->n == from + run.begin)
        last->n += run.n;
    else
        r->run[r->n++] = (struct weight_run){from + run.begin, run.n};
}

static uint32_t total(const struct runs *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        n += r->run[i].n;
    return n;
}

// The slice's, to be filled; NULL: no memory.
static void *own(struct cutter *c, size_t n_bytes)
{
    struct model *m = c->slice;
    void **list = realloc(m->converted, (m->n_converted + 1) * sizeof *list);
    if (list)
        m->converted = list;
    void *p = list ? malloc(n_bytes) : NULL;
    if (p)
        m->converted[m->n_converted++] = p;
    else if (!c->failed)
        c->failed = !error_oom(c->err, "a slice of the model", n_bytes);
    return p;
}

static const struct weight_run *own_runs(struct cutter *c, const struct runs *r)
{
    struct weight_run *p = own(c, r->n * sizeof *p);
    if (p)
        memcpy(p, r->run, r->n * sizeof *p);
    return p;
}

static void take_numbers(struct cutter *c, struct weight *w, const struct runs *r)
{
    const float *from = w->data;
    w->n_cols = total(r);
    w->n_bytes = w->n_cols * sizeof *from;
    if (r->n == 1) {
        w->data = from + r->run[0].begin;
        return;
    }
    float *copy = own(c, w->n_bytes);
    if (!copy)
        return;
    w->data = copy;
    for (uint32_t i = 0; i < r->n; copy += r->run[i++].n)
        memcpy(copy, from + r->run[i].begin, r->run[i].n * sizeof *copy);
}

void cut_rows(struct cutter *c, struct weight *w, const struct runs *r)
{
    if (!w->data)
        return;
    if (w->vector) {
        take_numbers(c, w, r);
        return;
    }
    const size_t row = quant_row_bytes(w->type, w->n_cols);
    w->rows = total(r);
    w->n_bytes = w->rows * row * (w->n_stacked ? w->n_stacked : 1);
    if (r->n == 1) {
        w->data = (const char *)w->data + r->run[0].begin * row;
        return;
    }
    w->row_runs = own_runs(c, r);
    w->n_row_runs = r->n;
}

void cut_columns(struct cutter *c, struct weight *w, const struct runs *r)
{
    if (!w->data)
        return;
    w->row_stride = quant_row_bytes(w->type, w->n_cols);
    w->n_cols = total(r);
    w->n_bytes = w->rows * quant_row_bytes(w->type, w->n_cols) * (w->n_stacked ? w->n_stacked : 1);
    if (r->n == 1) {
        w->data = (const char *)w->data + quant_row_bytes(w->type, r->run[0].begin);
        return;
    }
    w->col_runs = own_runs(c, r);
    w->n_col_runs = r->n;
}

void cut_of_each(struct cutter *c, struct weight *w, uint32_t n, struct weight_run r)
{
    if (!w->data)
        return;
    const uint32_t n_expert = w->n_cols / n;
    const size_t n_bytes = (size_t)n_expert * r.n * sizeof(float);
    float *copy = own(c, n_bytes);
    if (!copy)
        return;
    for (uint32_t i = 0; i < n_expert; i++)
        memcpy(copy + (size_t)i * r.n, (const float *)w->data + (size_t)i * n + r.begin,
               r.n * sizeof *copy);
    w->data = copy;
    w->n_cols = n_expert * r.n;
    w->n_bytes = n_bytes;
}

void cut_stack(struct weight *w, struct weight_run r)
{
    if (!w->data)
        return;
    w->data = (const char *)w->data + r.begin * w->stack_bytes;
    w->n_bytes = w->n_bytes / w->n_stacked * r.n;
    w->n_stacked = w->n_used = r.n;
}
