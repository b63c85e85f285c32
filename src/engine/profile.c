#include "engine/profile.h"

#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double profile_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static bool same(const struct engine_kernel *k, const struct profile_launch *l)
{
    return strcmp(k->kernel, l->kernel) == 0 && strcmp(k->what, l->what) == 0;
}

bool profile_rows(const struct profile_launch *launches, size_t n, uint32_t n_run,
                  const double *seconds, struct engine_profile *out, struct error *err)
{
    out->n = 0;
    out->sum = 0;
    for (size_t i = 0; i < n; i++) {
        struct engine_kernel *k = out->rows;
        while (k < out->rows + out->n && !same(k, &launches[i]))
            k++;
        if (k == out->rows + out->n) {
            if (out->n == ENGINE_MAX_KERNELS)
                return error_set(err, ERR_FAIL, "more than %d kinds of launches",
                                 ENGINE_MAX_KERNELS);
            *k = (struct engine_kernel){.kernel = launches[i].kernel, .what = launches[i].what};
            out->n++;
        }
        k->n_launch++;
    }
    double *each = malloc((n + 1) * n_run * sizeof *each), *total = malloc(n_run * sizeof *total);
    bool ok = (each && total) || error_oom(err, "the times", (n + 1) * n_run * sizeof *each);
    for (struct engine_kernel *k = out->rows; ok && k < out->rows + out->n; k++) {
        size_t n_each = 0;
        for (uint32_t run = 0; run < n_run; run++) {
            total[run] = 0;
            for (size_t i = 0; i < n; i++)
                if (same(k, &launches[i])) {
                    each[n_each++] = seconds[run * n + i];
                    total[run] += seconds[run * n + i];
                }
        }
        k->each = profile_median(each, n_each);
        k->total = profile_median(total, n_run);
        out->sum += k->total;
    }
    free(each);
    free(total);
    return ok;
}

bool profile_names(const char *what, const char *weight)
{
    size_t n = strlen(weight);
    for (const char *p = what; *p;) {
        size_t part = strcspn(p, "+");
        if (part == n && memcmp(p, weight, n) == 0)
            return true;
        p += part + (p[part] == '+');
    }
    return false;
}

static bool is_beside(const char *kernel, const char *const *beside)
{
    while (*beside && strcmp(kernel, *beside) != 0)
        beside++;
    return *beside != NULL;
}

// The first piece of this weight that is not taken; n when there is none.
static size_t next_piece(const struct engine_traffic *traffic, size_t n, const bool *taken,
                         const char *name, size_t name_len)
{
    size_t i = 0;
    while (i < n && (taken[i] || strlen(traffic[i].weight) != name_len ||
                     memcmp(traffic[i].weight, name, name_len) != 0))
        i++;
    return i;
}

bool profile_bytes(struct engine_profile *p, const struct profile_launch *launches, size_t n,
                   const char *const *beside, const struct engine_traffic *traffic,
                   size_t n_traffic, struct error *err)
{
    bool *taken = calloc(n_traffic + 1, sizeof *taken);
    if (!taken)
        return error_oom(err, "the pieces of traffic", n_traffic + 1);
    for (size_t i = 0; i < n; i++) {
        if (is_beside(launches[i].kernel, beside))
            continue;
        struct engine_kernel *k = p->rows;
        while (k < p->rows + p->n && !same(k, &launches[i]))
            k++;
        for (const char *name = launches[i].what; *name && k < p->rows + p->n;) {
            size_t len = strcspn(name, "+");
            size_t piece = next_piece(traffic, n_traffic, taken, name, len);
            if (piece < n_traffic) {
                taken[piece] = true;
                k->bytes += traffic[piece].needed;
            }
            name += len + (name[len] == '+');
        }
    }
    free(taken);
    return true;
}

// Of all layers' matrices, and what is beside the layers, the one of that name; NULL: there is
// none.
static const struct weight *matrix_named(const struct model *m, const char *name)
{
    const struct weight *const beside[] = {&m->output, &m->token_layers_proj, &m->altup_proj,
                                           &m->altup_unembd_proj};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (beside[i]->data && strcmp(beside[i]->name, name) == 0)
            return beside[i];
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct weight *w = &m->layers[i].w[k];
            if (w->data && !w->vector && strcmp(w->name, name) == 0)
                return w;
        }
    return NULL;
}

void profile_pass_traffic(struct engine_traffic *traffic, size_t n_traffic, const struct model *m,
                          size_t n)
{
    for (size_t i = 0; i < n_traffic; i++) {
        const struct weight *w = matrix_named(m, traffic[i].weight);
        const uint64_t times = !w ? n : w->n_used < w->n_stacked ? 0 : 1;
        traffic[i].moved *= times;
        traffic[i].needed *= times;
    }
}

struct engine_kernel *profile_reader(struct engine_profile *p, const char *what,
                                     const char *const *beside)
{
    struct engine_kernel *found = NULL;
    for (size_t i = 0; i < p->n; i++) {
        bool reads = strcmp(p->rows[i].what, what) == 0 && !is_beside(p->rows[i].kernel, beside);
        if (reads && found)
            return NULL;
        if (reads)
            found = &p->rows[i];
    }
    return found;
}

static double product(const struct weight *w, const char *what, size_t n)
{
    return w->data && !w->vector && (!what || profile_names(what, w->name))
               ? 2.0 * w->rows * w->n_cols * (double)n * (w->n_stacked ? w->n_used : 1)
               : 0;
}

// Of the products with the matrices that `what` names (NULL: with all); n_head tokens reach the
// head.
static double product_flops(const struct model *m, const char *what, size_t n, size_t n_head)
{
    double flops = product(&m->output, what, n_head) + product(&m->token_layers_proj, what, n) +
                   product(&m->altup_proj, what, n) + product(&m->altup_unembd_proj, what, n);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int k = 0; k < N_LAYER_WEIGHTS; k++)
            flops += product(&m->layers[i].w[k], what, n);
    return flops;
}

// Of the attention of all layers. (Several tokens of latent attention take fewer by heads that have
// keys and values of their own, whoever evaluates them.)
static double attention_flops(const struct model *m, size_t n_past, size_t n)
{
    double flops = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        double seen = 0; // pairs of a token and one that it sees
        for (size_t t = 1; t <= n; t++)
            seen += (double)layer_seen(l, n_past + t);
        const uint32_t n_rotated = l->latent.n_kv > 0 ? l->head_dim - l->latent.n_kv : 0;
        const uint32_t width = n > 1 && l->latent.n_kv > 0
                                   ? l->latent.n_key + n_rotated + l->latent.n_value
                                   : l->head_dim + layer_value_dim(l);
        flops += 2.0 * seen * l->n_head * width; // q k and p v
    }
    return flops;
}

void profile_operations(struct engine_profile *p, const struct model *m, size_t n_past, size_t n,
                        const char *const *beside)
{
    for (size_t i = 0; i < p->n; i++) {
        struct engine_kernel *k = &p->rows[i];
        if (profile_reader(p, k->what, beside) != k)
            continue;
        k->flops = product_flops(m, k->what, n, 1);
        if (profile_names(k->what, "kv"))
            k->flops += attention_flops(m, n_past, n);
    }
}

double profile_chunk_flops(const struct model *m, size_t n_past, size_t n)
{
    return product_flops(m, NULL, n, 1) + attention_flops(m, n_past, n);
}

double profile_pass_flops(const struct model *m, size_t n_past, size_t n)
{
    return product_flops(m, NULL, n, n) + (double)n * attention_flops(m, n_past, 1);
}

bool profile_parts_ended(const struct engine_part *parts, size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (parts[i].error.code != ERR_NONE)
            return error_set(err, parts[i].error.code, "%s", parts[i].error.text);
    return true;
}
