// A stable merge sort by Python's `<`.
#include "jinja/runtime.h"

#include <string.h>

struct keyed {
    struct val key, value;
};

struct val sort_by_first(struct run *r, struct val item, const void *how)
{
    (void)r;
    (void)how;
    return item.l->v[0];
}

// Is b < a? (Equal items must not change places.)
static bool swapped(struct run *r, const struct keyed *a, const struct keyed *b)
{
    int c = val_compare(r, b->key, a->key, "<");
    return c != 2 && c < 0;
}

static void merge(struct run *r, struct keyed *v, struct keyed *tmp, size_t mid, size_t n)
{
    size_t i = 0, k = mid, out = 0;
    while (i < mid && k < n)
        tmp[out++] = swapped(r, &v[i], &v[k]) ? v[k++] : v[i++];
    while (i < mid)
        tmp[out++] = v[i++];
    while (k < n)
        tmp[out++] = v[k++];
    run_step(r, n / 2);
    memcpy(v, tmp, n * sizeof *v);
}

void sort_values(struct run *r, struct list *l, sort_key key, const void *how, bool reverse)
{
    size_t n = l->n;
    run_step(r, n);
    struct keyed *v = run_alloc(r, n * sizeof *v), *tmp = run_alloc(r, n * sizeof *tmp);
    for (size_t i = 0; i < n; i++) { // reversed before and after, equal items keep their order
        struct val item = l->v[reverse ? n - 1 - i : i];
        v[i] = (struct keyed){key ? key(r, item, how) : item, item};
    }
    for (size_t width = 1; width < n; width *= 2)
        for (size_t at = 0; at + width < n; at += 2 * width)
            merge(r, v + at, tmp, width, n - at < 2 * width ? n - at : 2 * width);
    for (size_t i = 0; i < n; i++)
        l->v[i] = v[reverse ? n - 1 - i : i].value;
}
