// Attention of the CPU engine: the scores of all heads' queries, and the values that they weigh.
#include <math.h>

#include "cpu/forward.h"

// Rows are a part's (token, head of the group) pairs of one KV head, eight at a time.
struct attention_job {
    struct cpu_engine *e;
    const struct layer *layer;
    const struct cpu_kv_layer *kv;
    struct cpu_heads to;
    size_t group;                 // query heads per KV head
    size_t first_split, n_splits; // one row alone: its splits are shared out too
};

static size_t items_per_head(const struct attention_job *j, const struct cpu_part *p)
{
    return (p->n * j->group + 7) / 8;
}

static size_t first_visible(const struct layer *l, size_t pos)
{
    return pos + 1 - layer_seen(l, pos + 1);
}

// Fills the queries of rows [row, row + 8) of a KV head.
static void set_queries(const struct attention_job *j, const struct cpu_part *p,
                        struct cpu_attn_split *a, uint32_t kv_head, size_t row)
{
    const struct cpu_engine *e = j->e;
    const struct layer *l = j->layer;
    const size_t n_rows = p->n * j->group;
    a->kv = j->kv;
    a->kv_head = kv_head;
    a->scale = l->attn_scale;
    a->softcap = l->attn_softcap;
    a->n_query = (int)(n_rows - row < 8 ? n_rows - row : 8);
    for (int r = 0; r < a->n_query; r++) {
        const size_t t = (row + (size_t)r) / j->group, pos = p->pos + t;
        const size_t head = kv_head * j->group + (row + (size_t)r) % j->group;
        a->q[r] = e->q + ((p->first + t) * l->n_head + head) * l->head_dim;
        a->first[r] = first_visible(l, pos);
        a->end[r] = pos + 1;
    }
}

static void put_result(const struct attention_job *j, size_t t, size_t head,
                       const struct cpu_attn_part *part, const float *numerator)
{
    const size_t d = j->kv->value_dim;
    const float *sinks = layer_vector(j->layer, ATTN_SINKS);
    float *out = j->to.out + t * j->to.token + head * j->to.between;
    const float sum = part->sum + (sinks ? expf(sinks[head] - part->max) : 0);
    for (size_t i = 0; i < d; i++)
        out[i] = numerator[i] / sum;
}

// Many rows: an item is eight rows of one KV head of a part over all its splits, one after the
// other.
static void attention_item(void *arg, size_t item, int thread)
{
    const struct attention_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct cpu_part *p = e->parts;
    const size_t d_pad = e->head_dim_pad;
    for (size_t n; item >= (n = j->layer->n_head_kv * items_per_head(j, p)); p++)
        item -= n;
    const uint32_t kv_head = (uint32_t)(item / items_per_head(j, p));
    // The last rows see the most: they begin first, so that no thread ends alone with them.
    const size_t row = 8 * (items_per_head(j, p) - 1 - item % items_per_head(j, p));
    float *total = e->attn_parts + (size_t)thread * 16 * d_pad, *numerator = total + 8 * d_pad;
    struct cpu_attn_part parts[8] = {{0}};
    struct cpu_attn_split a;
    set_queries(j, p, &a, kv_head, row);
    for (int r = 0; r < a.n_query; r++)
        a.out[r] = numerator + (size_t)r * d_pad;
    const size_t end = a.end[a.n_query - 1];
    for (a.split = a.first[0] / CPU_ATTN_SPLIT * CPU_ATTN_SPLIT; a.split < end;
         a.split += CPU_ATTN_SPLIT) {
        a.at = kv_cache_at(kv_cache_blocks(p->seq, j->kv), a.split);
        e->kernels->attend(&a);
        for (int r = 0; r < a.n_query; r++)
            e->kernels->attn_merge(&parts[r], total + (size_t)r * d_pad, &a.part[r], a.out[r],
                                   d_pad);
    }
    for (int r = 0; r < a.n_query; r++)
        put_result(j, p->first + (row + (size_t)r) / j->group,
                   kv_head * j->group + (row + (size_t)r) % j->group, &parts[r],
                   total + (size_t)r * d_pad);
}

// One row alone: an item is eight heads over one split; merged afterwards in the same order.
static void decode_attention_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct attention_job *j = arg;
    const struct cpu_engine *e = j->e;
    const struct cpu_part *p = e->parts;
    const size_t split = item % j->n_splits, rest = item / j->n_splits;
    const uint32_t kv_head = (uint32_t)(rest / items_per_head(j, p));
    const size_t row = 8 * (rest % items_per_head(j, p));
    struct cpu_attn_split a;
    set_queries(j, p, &a, kv_head, row);
    a.split = (j->first_split + split) * CPU_ATTN_SPLIT;
    a.at = kv_cache_at(kv_cache_blocks(p->seq, j->kv), a.split);
    const size_t first = (kv_head * j->group + row) * j->n_splits + split;
    for (int r = 0; r < a.n_query; r++)
        a.out[r] = e->attn_parts + (first + (size_t)r * j->n_splits) * e->head_dim_pad;
    e->kernels->attend(&a);
    for (int r = 0; r < a.n_query; r++)
        e->split_parts[first + (size_t)r * j->n_splits] = a.part[r];
}

static void merge_head(const struct attention_job *j, size_t head)
{
    const struct cpu_engine *e = j->e;
    struct cpu_attn_part *part = e->split_parts + head * j->n_splits;
    float *numerator = e->attn_parts + head * j->n_splits * e->head_dim_pad;
    for (size_t i = 1; i < j->n_splits; i++)
        e->kernels->attn_merge(&part[0], numerator, &part[i], numerator + i * e->head_dim_pad,
                               e->head_dim_pad);
    put_result(j, 0, head, &part[0], numerator);
}

bool cpu_attention(struct cpu_engine *e, size_t il, const struct cpu_heads *to, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    struct attention_job j = {.e = e, .layer = l, .kv = &e->kv.layers[il - l->kv_back], .to = *to};
    j.group = l->n_head / l->n_head_kv;
    size_t n_items = 0;
    for (size_t i = 0; i < e->n_parts; i++)
        n_items += l->n_head_kv * items_per_head(&j, &e->parts[i]);
    if (n > 1) {
        if (!pool_run(e->pool, n_items, attention_item, &j, e->cancel))
            return false;
    } else {
        const size_t pos = e->parts[0].pos;
        j.first_split = first_visible(l, pos) / CPU_ATTN_SPLIT;
        j.n_splits = pos / CPU_ATTN_SPLIT + 1 - j.first_split;
        if (!pool_run(e->pool, n_items * j.n_splits, decode_attention_item, &j, e->cancel))
            return false;
        for (size_t head = 0; head < l->n_head; head++)
            merge_head(&j, head);
    }
    return cpu_mark(e, "attention", "kv");
}
