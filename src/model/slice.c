#include "model/slice.h"

#include <stdlib.h>
#include <string.h>

enum {
    FF_UNIT = 8,   // columns of ffn_down, or a block of its type where that is longer
    HEAD_UNIT = 8, // rows of the head: a tile of the engines' layouts
};

static uint32_t div_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b > 0);
}

// ---- units: what is not cut

static uint32_t block_elems(const struct weight *w)
{
    const uint32_t n = quant_info(w->type)->block_elems;
    return n ? n : 1;
}

// KV heads whose columns of attn_output are whole blocks.
static uint32_t kv_heads_of_unit(const struct layer *l)
{
    const uint32_t block = block_elems(&l->w[ATTN_OUTPUT]);
    const uint32_t n_cols = l->n_head / l->n_head_kv * l->head_dim;
    uint32_t n = 1;
    while ((uint64_t)n * n_cols % block != 0)
        n++;
    return n;
}

static uint32_t attention_units(const struct layer *l)
{
    return l->n_head_kv / kv_heads_of_unit(l);
}

// Of a feed-forward network, the experts', or the shared one's, by its last matrix.
static uint32_t ff_unit(const struct weight *down)
{
    const uint32_t block = block_elems(down);
    return block > FF_UNIT ? block : FF_UNIT;
}

static uint32_t ff_units(const struct weight *down, uint32_t n_ff)
{
    return div_up(n_ff, ff_unit(down));
}

static uint32_t head_units(const struct model *m)
{
    return div_up(m->hp.n_vocab, HEAD_UNIT);
}

// ---- what can be split

static const char *unknown_in(const struct model *m, const struct layer *l)
{
    return m->predicts_for                   ? "a prediction layer"
           : m->hp.n_embd_layer > 0          ? "layers that are told of the token once more"
           : l->mixer == MIXER_DELTA         ? "a delta net"
           : l->mixer == MIXER_CONV          ? "a short convolution"
           : l->ssm.n_head > 0               ? "a state space"
           : l->mixer != MIXER_ATTENTION     ? "a mixer that is not attention"
           : l->latent.n_kv > 0              ? "latent attention"
           : l->qk_norm == QK_NORM_WHOLE     ? "a norm of all heads at once"
           : l->qk_norm == QK_NORM_HEADS     ? "a norm with weights for each head"
           : l->experts.n > 0 && l->n_ff > 0 ? "a feed-forward network beside experts"
           : l->experts.n_latent > 0         ? "experts that work on a latent"
           : !layer_feeds(l)                 ? "no feed-forward network"
                                             : NULL;
}

// what: an adjective. down absent: there is no such network.
static bool can_split_ff(uint32_t i, const char *what, const struct weight *down, uint32_t n_ff,
                         uint32_t n_rank, struct error *err)
{
    return n_ff == 0 || ff_units(down, n_ff) >= n_rank ||
           error_set(err, ERR_MODEL,
                     "layer %u: %s %u wide, in units of %u, can be split among at most %u devices, "
                     "not %u",
                     i, what, n_ff, ff_unit(down), ff_units(down, n_ff), n_rank);
}

bool model_can_split(const struct model *m, uint32_t n_rank, struct error *err)
{
    for (uint32_t i = 0; n_rank > 1 && i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        const char *what = unknown_in(m, l);
        if (what)
            return error_set(err, ERR_MODEL,
                             "layer %u: %s: cannot be split among devices yet; one device does it",
                             i, what);
        if (attention_units(l) < n_rank)
            return error_set(
                err, ERR_MODEL,
                "layer %u: attention of %u KV heads, each with %u columns of attn_output in blocks "
                "of %u, can be split among at most %u devices, not %u",
                i, l->n_head_kv, l->n_head / l->n_head_kv * l->head_dim,
                block_elems(&l->w[ATTN_OUTPUT]), attention_units(l), n_rank);
        const struct experts *x = &l->experts;
        if (!can_split_ff(i, "a feed-forward network", &l->w[FFN_DOWN], l->n_ff, n_rank, err) ||
            !can_split_ff(i, "experts", &l->w[EXPERT_DOWN], x->n_ff, n_rank, err) ||
            !can_split_ff(i, "a shared expert", &l->w[SHARED_DOWN], x->n_ff_shared, n_rank, err))
            return false;
    }
    if (head_units(m) < n_rank)
        return error_set(err, ERR_MODEL,
                         "a vocabulary of %u tokens, in units of %u, can be split among at most "
                         "%u devices, not %u",
                         m->hp.n_vocab, HEAD_UNIT, head_units(m), n_rank);
    return true;
}

// ---- how much

// One unit each, then one by one to whoever has the least of its share.
void split_units(uint32_t n, const struct model_split *s, uint32_t *begin)
{
    uint32_t has[MODEL_MAX_RANKS];
    for (uint32_t r = 0; r < s->n_rank; r++)
        has[r] = 1;
    for (uint32_t given = s->n_rank; given < n; given++) {
        uint32_t least = 0;
        for (uint32_t r = 1; r < s->n_rank; r++)
            if ((has[r] + 1) / (double)s->share[r] < (has[least] + 1) / (double)s->share[least])
                least = r;
        has[least]++;
    }
    begin[0] = 0;
    for (uint32_t r = 0; r < s->n_rank; r++)
        begin[r + 1] = begin[r] + has[r];
}

// [begin, end) of n things that come in units.
struct run {
    uint32_t begin, n;
};

static struct run run_of(uint32_t n_unit, uint32_t unit, uint32_t n, const struct model_split *s,
                         uint32_t rank)
{
    uint32_t begin[MODEL_MAX_RANKS + 1];
    split_units(n_unit, s, begin);
    const uint32_t from = begin[rank] * unit;
    const uint64_t to = (uint64_t)begin[rank + 1] * unit;
    return (struct run){from, (to < n ? (uint32_t)to : n) - from};
}

void split_head(const struct model *m, const struct model_split *s, uint32_t *begin)
{
    for (uint32_t r = 0; r < s->n_rank; r++)
        begin[r] = run_of(head_units(m), HEAD_UNIT, m->hp.n_vocab, s, r).begin;
    begin[s->n_rank] = m->hp.n_vocab;
}

// ---- slices

// Rows, or of a vector numbers.
static void take_rows(struct weight *w, struct run r)
{
    if (!w->data)
        return;
    const size_t row = w->vector ? sizeof(float) : quant_row_bytes(w->type, w->n_cols);
    w->data = (const char *)w->data + r.begin * row;
    *(w->vector ? &w->n_cols : &w->rows) = r.n;
    w->n_bytes = r.n * row * (w->n_stacked ? w->n_stacked : 1);
}

static void take_columns(struct weight *w, struct run r)
{
    w->row_stride = quant_row_bytes(w->type, w->n_cols);
    w->data = (const char *)w->data + quant_row_bytes(w->type, r.begin);
    w->n_cols = r.n;
    w->n_bytes = w->rows * quant_row_bytes(w->type, r.n) * (w->n_stacked ? w->n_stacked : 1);
}

// Of a vector that has n numbers for each expert, some for each: a copy.
static bool take_of_each(struct model *slice, struct weight *w, uint32_t n, struct run r,
                         struct error *err)
{
    if (!w->data)
        return true;
    const uint32_t n_expert = w->n_cols / n;
    const size_t n_bytes = (size_t)n_expert * r.n * sizeof(float);
    float **list = realloc(slice->converted, (slice->n_converted + 1) * sizeof *slice->converted);
    if (list)
        slice->converted = list;
    float *copy = list ? malloc(n_bytes) : NULL;
    if (!copy)
        return error_oom(err, "a slice of the model", n_bytes);
    slice->converted[slice->n_converted++] = copy;
    for (uint32_t i = 0; i < n_expert; i++)
        memcpy(copy + (size_t)i * r.n, (const float *)w->data + (size_t)i * n + r.begin,
               r.n * sizeof *copy);
    w->data = copy;
    w->n_cols = n_expert * r.n;
    w->n_bytes = n_bytes;
    return true;
}

static struct run times(struct run r, uint32_t n)
{
    return (struct run){r.begin * n, r.n * n};
}

static void slice_attention(struct layer *l, const struct model_split *s, uint32_t rank)
{
    const struct run kv = run_of(attention_units(l), kv_heads_of_unit(l), l->n_head_kv, s, rank);
    const struct run heads = times(kv, l->n_head / l->n_head_kv);
    const uint32_t query = l->w[ATTN_Q].rows / l->n_head; // gated: twice as wide
    take_rows(&l->w[ATTN_Q], times(heads, query));
    take_rows(&l->w[ATTN_Q_BIAS], times(heads, query));
    for (enum layer_weight w = ATTN_K; w <= ATTN_V; w++)
        take_rows(&l->w[w], times(kv, l->head_dim));
    for (enum layer_weight w = ATTN_K_BIAS; w <= ATTN_V_BIAS; w++)
        take_rows(&l->w[w], times(kv, l->head_dim));
    take_rows(&l->w[ATTN_SINKS], heads);
    take_columns(&l->w[ATTN_OUTPUT], times(heads, l->head_dim));
    l->n_head = heads.n;
    l->n_head_kv = kv.n;
}

static struct run ff_run(const struct weight *down, uint32_t n_ff, const struct model_split *s,
                         uint32_t rank)
{
    return run_of(ff_units(down, n_ff), ff_unit(down), n_ff, s, rank);
}

static void slice_feed_forward(struct layer *l, const struct model_split *s, uint32_t rank)
{
    if (l->n_ff == 0)
        return;
    const struct run ff = ff_run(&l->w[FFN_DOWN], l->n_ff, s, rank);
    take_rows(&l->w[FFN_GATE], ff);
    take_rows(&l->w[FFN_UP], ff);
    take_rows(&l->w[FFN_UP_BIAS], ff);
    take_columns(&l->w[FFN_DOWN], ff);
    l->n_ff = ff.n;
}

// Each rank has a part of every expert, so that it does not matter which are chosen. Their weighted
// biases are added by rank 0 alone.
static bool slice_experts(struct model *slice, struct layer *l, const struct model_split *s,
                          uint32_t rank, struct error *err)
{
    struct experts *x = &l->experts;
    if (x->n == 0)
        return true;
    const struct run ff = ff_run(&l->w[EXPERT_DOWN], x->n_ff, s, rank);
    for (enum layer_weight w = EXPERT_GATE_BIAS; w <= EXPERT_UP_BIAS; w++)
        if (!take_of_each(slice, &l->w[w], x->n_ff, ff, err))
            return false;
    take_rows(&l->w[EXPERT_GATE], ff);
    take_rows(&l->w[EXPERT_UP], ff);
    take_columns(&l->w[EXPERT_DOWN], ff);
    x->n_ff = ff.n;
    if (rank > 0)
        l->w[EXPERT_DOWN_BIAS].data = NULL;
    if (x->n_ff_shared == 0)
        return true;
    const struct run shared = ff_run(&l->w[SHARED_DOWN], x->n_ff_shared, s, rank);
    take_rows(&l->w[SHARED_GATE], shared);
    take_rows(&l->w[SHARED_UP], shared);
    take_columns(&l->w[SHARED_DOWN], shared);
    x->n_ff_shared = shared.n;
    return true;
}

// Of all weights that a slice may have less of: a tied head is none.
static uint64_t bytes_cut(const struct model *m)
{
    uint64_t n =
        m->tied ? 0 : m->output.n_bytes + (m->output_bias.data ? m->output_bias.n_bytes : 0);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (int w = 0; w < N_LAYER_WEIGHTS; w++)
            n += m->layers[i].w[w].data ? m->layers[i].w[w].n_bytes : 0;
    return n;
}

struct model *model_slice(const struct model *m, const struct model_split *s, uint32_t rank,
                          struct error *err)
{
    const size_t n_bytes = m->hp.n_layer * sizeof *m->layers;
    struct model *slice = malloc(sizeof *slice);
    struct layer *layers = malloc(n_bytes);
    if (!slice || !layers) {
        free(slice);
        free(layers);
        error_oom(err, "a slice of the model", n_bytes);
        return NULL;
    }
    memcpy(layers, m->layers, n_bytes);
    *slice = *m;
    slice->layers = layers;
    slice->hp.n_layer_predict = 0; // their facts are not in a slice
    slice->converted = NULL;
    slice->n_converted = 0;
    if (s->n_rank == 1)
        return slice;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        slice_attention(&layers[i], s, rank);
        slice_feed_forward(&layers[i], s, rank);
        if (!slice_experts(slice, &layers[i], s, rank, err)) {
            model_slice_free(slice);
            return NULL;
        }
    }
    uint32_t head[MODEL_MAX_RANKS + 1];
    split_head(m, s, head);
    const struct run rows = {head[rank], head[rank + 1] - head[rank]};
    take_rows(&slice->output, rows);
    take_rows(&slice->output_bias, rows);
    slice->tied = false;
    slice->weight_bytes -= bytes_cut(m);
    slice->weight_bytes += bytes_cut(slice);
    return slice;
}

void model_slice_free(struct model *slice)
{
    if (!slice)
        return;
    for (size_t i = 0; i < slice->n_converted; i++)
        free(slice->converted[i]);
    free(slice->converted);
    free(slice->layers);
    free(slice);
}
