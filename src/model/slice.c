#include "model/slice.h"

#include <stdlib.h>
#include <string.h>

enum {
    FF_UNIT = 32,  // columns of ffn_down, or a block of its type where that is longer
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

static uint32_t ff_unit(const struct layer *l)
{
    const uint32_t block = block_elems(&l->w[FFN_DOWN]);
    return block > FF_UNIT ? block : FF_UNIT;
}

static uint32_t ff_units(const struct layer *l)
{
    return div_up(l->n_ff, ff_unit(l));
}

static uint32_t head_units(const struct model *m)
{
    return div_up(m->hp.n_vocab, HEAD_UNIT);
}

// ---- what can be split

static const char *unknown_in(const struct model *m, const struct layer *l)
{
    return m->predicts_for               ? "a prediction layer"
           : m->hp.n_embd_layer > 0      ? "layers that are told of the token once more"
           : l->mixer == MIXER_DELTA     ? "a delta net"
           : l->mixer == MIXER_CONV      ? "a short convolution"
           : l->ssm.n_head > 0           ? "a state space"
           : l->mixer != MIXER_ATTENTION ? "a mixer that is not attention"
           : l->latent.n_kv > 0          ? "latent attention"
           : l->qk_norm == QK_NORM_WHOLE ? "a norm of all heads at once"
           : l->qk_norm == QK_NORM_HEADS ? "a norm with weights for each head"
           : l->experts.n > 0            ? "experts"
           : l->n_ff == 0                ? "no feed-forward network"
                                         : NULL;
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
        if (ff_units(l) < n_rank)
            return error_set(err, ERR_MODEL,
                             "layer %u: a feed-forward network %u wide, in units of %u, can be "
                             "split among at most %u devices, not %u",
                             i, l->n_ff, ff_unit(l), ff_units(l), n_rank);
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
    w->n_bytes = r.n * row;
}

static void take_columns(struct weight *w, struct run r)
{
    w->row_stride = quant_row_bytes(w->type, w->n_cols);
    w->data = (const char *)w->data + quant_row_bytes(w->type, r.begin);
    w->n_cols = r.n;
    w->n_bytes = w->rows * quant_row_bytes(w->type, r.n);
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

static void slice_feed_forward(struct layer *l, const struct model_split *s, uint32_t rank)
{
    const struct run ff = run_of(ff_units(l), ff_unit(l), l->n_ff, s, rank);
    take_rows(&l->w[FFN_GATE], ff);
    take_rows(&l->w[FFN_UP], ff);
    take_rows(&l->w[FFN_UP_BIAS], ff);
    take_columns(&l->w[FFN_DOWN], ff);
    l->n_ff = ff.n;
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
    if (s->n_rank == 1)
        return slice;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        slice_attention(&layers[i], s, rank);
        slice_feed_forward(&layers[i], s, rank);
    }
    uint32_t head[MODEL_MAX_RANKS + 1];
    split_head(m, s, head);
    const struct run rows = {head[rank], head[rank + 1] - head[rank]};
    take_rows(&slice->output, rows);
    take_rows(&slice->output_bias, rows);
    slice->tied = false;
    return slice;
}

void model_slice_free(struct model *slice)
{
    if (slice)
        free(slice->layers);
    free(slice);
}
