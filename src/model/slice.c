#include "model/slice.h"

#include <stdlib.h>
#include <string.h>

#include "model/slice_cut.h"

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

// What a mixer is cut into, but never fewer than `per` of them together.
struct parts {
    const char *what, *part; // "attention", "KV heads"
    enum layer_weight out;   // the matrix that adds up what they give
    uint32_t n, per;         // n 0: there is nothing of the kind
    uint32_t n_cols;         // of `out`, of each
};

// So many that the columns are whole blocks.
static uint32_t per_unit(const struct layer *l, enum layer_weight out, uint32_t n_cols)
{
    const uint32_t block = block_elems(&l->w[out]);
    uint32_t n = 1;
    while ((uint64_t)n * n_cols % block != 0)
        n++;
    return n;
}

static struct parts parts_of(const struct layer *l, const char *what, const char *part,
                             enum layer_weight out, uint32_t n, uint32_t n_cols)
{
    return (struct parts){what, part, out, n, per_unit(l, out, n_cols), n_cols};
}

// KV heads with the heads that use them; where there is one, all have it, and some of the heads.
static struct parts kv_heads(const struct layer *l)
{
    if (l->n_head_kv == 1)
        return parts_of(l, "attention", "heads", ATTN_OUTPUT, l->n_head, l->head_dim);
    return parts_of(l, "attention", "KV heads", ATTN_OUTPUT, l->n_head_kv,
                    l->n_head / l->n_head_kv * l->head_dim);
}

// The layer whose keys and values layer i attends with.
static uint32_t owner(const struct model *m, uint32_t i)
{
    while (m->layers[i].kv_back > 0)
        i -= m->layers[i].kv_back;
    return i;
}

// Of layers that share keys and values those of the largest unit, so that all are cut alike.
static struct parts attention_parts(const struct model *m, uint32_t i)
{
    struct parts p = kv_heads(&m->layers[i]);
    for (uint32_t k = 0; k < m->hp.n_layer; k++) {
        const struct layer *l = &m->layers[k];
        if (l->mixer == MIXER_ATTENTION && l->latent.n_kv == 0 && owner(m, k) == owner(m, i) &&
            kv_heads(l).per > p.per)
            p.per = kv_heads(l).per;
    }
    return p;
}

// Keys with the heads that share them; out of order these lie apart, each run of whole blocks.
static struct parts delta_parts(const struct layer *l)
{
    const struct delta *d = &l->delta;
    const uint32_t n_shared = d->n_head / d->n_key_head;
    struct parts p = parts_of(l, "a delta net", "keys", ATTN_OUTPUT, d->n_key_head,
                              d->in_order ? n_shared * d->n_state : d->n_state);
    const bool apart = !d->in_order && n_shared > 1;
    if (apart && (d->n_key_head % p.per != 0 || n_shared + 2 > MAX_RUNS))
        p.per = d->n_key_head;
    return p;
}

static struct parts mixer_parts(const struct model *m, uint32_t i)
{
    const struct layer *l = &m->layers[i];
    if (l->mixer == MIXER_DELTA)
        return delta_parts(l);
    if (l->mixer == MIXER_CONV) {
        struct parts p = parts_of(l, "a short convolution", "channels", ATTN_OUTPUT, l->conv.n, 1);
        p.per = p.per > FF_UNIT ? p.per : FF_UNIT;
        return p;
    }
    if (l->mixer != MIXER_ATTENTION) // a matrix in the place of attention is everywhere
        return (struct parts){0};
    if (l->latent.n_kv > 0)
        return parts_of(l, "latent attention", "heads", ATTN_OUTPUT, l->n_head, l->latent.n_value);
    return attention_parts(m, i);
}

// Groups, or of the only one heads: then all have what these share.
static struct parts ssm_parts(const struct layer *l)
{
    const struct ssm *s = &l->ssm;
    if (s->n_head == 0)
        return (struct parts){0};
    return s->n_group > 1
               ? parts_of(l, "a state space", "groups", SSM_OUT, s->n_group,
                          s->n_inner / s->n_group)
               : parts_of(l, "a state space", "heads", SSM_OUT, s->n_head, s->n_inner / s->n_head);
}

static uint32_t n_units(const struct parts *p)
{
    return div_up(p->n, p->per);
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

static bool can_split_parts(const struct layer *l, uint32_t i, struct parts p, uint32_t n_rank,
                            struct error *err)
{
    return p.n == 0 || n_units(&p) >= n_rank ||
           error_set(err, ERR_MODEL,
                     "layer %u: %s of %u %s, each with %u columns of %s in blocks of %u, can be "
                     "split among at most %u of %u devices",
                     i, p.what, p.n, p.part, p.n_cols, l->w[p.out].name, block_elems(&l->w[p.out]),
                     n_units(&p), n_rank);
}

// what: an adjective. down absent: there is no such network.
static bool can_split_ff(uint32_t i, const char *what, const struct weight *down, uint32_t n_ff,
                         uint32_t n_rank, struct error *err)
{
    return n_ff == 0 || ff_units(down, n_ff) >= n_rank ||
           error_set(err, ERR_MODEL,
                     "layer %u: %s %u wide, in units of %u, can be split among at most %u of "
                     "%u devices",
                     i, what, n_ff, ff_unit(down), ff_units(down, n_ff), n_rank);
}

bool model_can_split(const struct model *m, uint32_t n_rank, struct error *err)
{
    if (n_rank > 1 && m->hp.n_side > 0)
        return error_set(err, ERR_MODEL,
                         "streams beside the residual one cannot be split among devices yet");
    for (uint32_t i = 0; n_rank > 1 && i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (!can_split_parts(l, i, mixer_parts(m, i), n_rank, err) ||
            !can_split_parts(l, i, ssm_parts(l), n_rank, err))
            return false;
        const struct experts *x = &l->experts;
        if (!can_split_ff(i, "a feed-forward network", &l->w[FFN_DOWN], l->n_ff, n_rank, err) ||
            !can_split_ff(i, "experts", &l->w[EXPERT_DOWN], x->n_ff, n_rank, err) ||
            !can_split_ff(i, "a shared expert", &l->w[SHARED_DOWN], x->n_ff_shared, n_rank, err))
            return false;
    }
    if (head_units(m) < n_rank)
        return error_set(err, ERR_MODEL,
                         "a vocabulary of %u tokens, in units of %u, can be split among at most "
                         "%u of %u devices",
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

// Of n things that come in units.
static struct weight_run run_of(uint32_t n_unit, uint32_t unit, uint32_t n,
                                const struct model_split *s, uint32_t rank)
{
    uint32_t begin[MODEL_MAX_RANKS + 1];
    split_units(n_unit, s, begin);
    const uint32_t from = begin[rank] * unit;
    const uint64_t to = (uint64_t)begin[rank + 1] * unit;
    return (struct weight_run){from, (to < n ? (uint32_t)to : n) - from};
}

static struct weight_run run_of_parts(const struct parts *p, const struct model_split *s,
                                      uint32_t rank)
{
    return run_of(n_units(p), p->per, p->n, s, rank);
}

void split_head(const struct model *m, const struct model_split *s, uint32_t *begin)
{
    for (uint32_t r = 0; r < s->n_rank; r++)
        begin[r] = run_of(head_units(m), HEAD_UNIT, m->hp.n_vocab, s, r).begin;
    begin[s->n_rank] = m->hp.n_vocab;
}

// ---- slices

static void rows(struct cutter *c, struct layer *l, enum layer_weight w, struct weight_run r)
{
    const struct runs one = runs_of_one(r);
    cut_rows(c, &l->w[w], &one);
}

static void columns(struct cutter *c, struct layer *l, enum layer_weight w, struct weight_run r)
{
    const struct runs one = runs_of_one(r);
    cut_columns(c, &l->w[w], &one);
}

static void slice_attention(struct cutter *c, struct layer *l, struct weight_run r)
{
    const bool shared = l->n_head_kv == 1;
    const struct weight_run kv = shared ? (struct weight_run){0, 1} : r;
    const struct weight_run heads = shared ? r : run_times(kv, l->n_head / l->n_head_kv);
    const uint32_t query = l->w[ATTN_Q].rows / l->n_head; // gated: twice as wide
    rows(c, l, ATTN_Q, run_times(heads, query));
    rows(c, l, ATTN_Q_BIAS, run_times(heads, query));
    for (enum layer_weight w = ATTN_K; w <= ATTN_V; w++)
        rows(c, l, w, run_times(kv, l->head_dim));
    for (enum layer_weight w = ATTN_K_BIAS; w <= ATTN_V_BIAS; w++)
        rows(c, l, w, run_times(kv, l->head_dim));
    if (l->qk_norm == QK_NORM_WHOLE || l->qk_norm == QK_NORM_HEADS) {
        rows(c, l, ATTN_Q_NORM, run_times(heads, l->head_dim));
        rows(c, l, ATTN_K_NORM, run_times(kv, l->head_dim));
    }
    rows(c, l, ATTN_SINKS, heads);
    columns(c, l, ATTN_OUTPUT, run_times(heads, l->head_dim));
    l->n_head = heads.n;
    l->n_head_kv = kv.n;
}

// All have what is kept of a token, and the cache of it.
static void slice_latent(struct cutter *c, struct layer *l, struct weight_run heads)
{
    const enum layer_weight query = l->latent.n_q > 0 ? ATTN_Q_B : ATTN_Q;
    rows(c, l, query, run_times(heads, l->w[query].rows / l->n_head));
    cut_stack(&l->w[ATTN_K_B], heads);
    cut_stack(&l->w[ATTN_V_B], heads);
    columns(c, l, ATTN_OUTPUT, run_times(heads, l->latent.n_value));
    l->n_head = heads.n;
}

static void slice_delta(struct cutter *c, struct layer *l, struct weight_run keys)
{
    struct delta *d = &l->delta;
    const uint32_t n_key = d->n_key_head, n_shared = d->n_head / n_key;
    struct runs heads = {0}, all = {0}; // of values; of queries, keys and values
    if (d->in_order)
        runs_add(&heads, 0, run_times(keys, n_shared));
    for (uint32_t i = 0; !d->in_order && i < n_shared; i++)
        runs_add(&heads, i * n_key, keys);
    runs_add(&all, 0, keys);
    runs_add(&all, n_key, keys);
    for (uint32_t i = 0; i < heads.n; i++)
        runs_add(&all, 2 * n_key, heads.run[i]);
    const struct runs channels = runs_times(&all, d->n_state);
    const struct runs taps = runs_times(&channels, d->n_conv);
    const struct runs values = runs_times(&heads, d->n_state);
    cut_rows(c, &l->w[DELTA_QKV], &channels);
    cut_rows(c, &l->w[DELTA_CONV], &taps);
    cut_rows(c, &l->w[DELTA_GATE], &values);
    for (enum layer_weight w = DELTA_BETA; w <= DELTA_ALPHA; w++)
        cut_rows(c, &l->w[w], &heads);
    rows(c, l, DELTA_BETA_ALPHA, run_times(keys, 2 * n_shared));
    cut_rows(c, &l->w[DELTA_DT], &heads);
    cut_rows(c, &l->w[DELTA_A], &heads);
    cut_columns(c, &l->w[ATTN_OUTPUT], &values);
    d->n_head = keys.n * n_shared;
    d->n_key_head = keys.n;
}

static void slice_conv(struct cutter *c, struct layer *l, struct weight_run r)
{
    struct runs in = {0};
    for (uint32_t i = 0; i < 3; i++)
        runs_add(&in, i * l->conv.n, r);
    cut_rows(c, &l->w[CONV_IN], &in);
    rows(c, l, CONV, run_times(r, l->conv.n_taps));
    columns(c, l, ATTN_OUTPUT, r);
    l->conv.n = r.n;
}

static void slice_ssm(struct cutter *c, struct layer *l, struct weight_run r)
{
    struct ssm *s = &l->ssm;
    const bool by_group = s->n_group > 1;
    const struct weight_run groups = by_group ? r : (struct weight_run){0, 1};
    const struct weight_run heads = by_group ? run_times(r, s->n_head / s->n_group) : r;
    const struct weight_run inner = run_times(heads, s->n_inner / s->n_head);
    const struct weight_run shared = run_times(groups, s->n_state);
    const uint32_t n_shared = s->n_group * s->n_state;
    struct runs channels = {0}, in = {0};
    runs_add(&channels, 0, inner);
    for (uint32_t i = 0; i < 2; i++)
        runs_add(&channels, s->n_inner + i * n_shared, shared);
    runs_add(&in, 0, inner);
    for (uint32_t i = 0; i < channels.n; i++)
        runs_add(&in, s->n_inner, channels.run[i]);
    runs_add(&in, 2 * (s->n_inner + n_shared), heads);
    const struct runs taps = runs_times(&channels, s->n_conv);
    cut_rows(c, &l->w[SSM_IN], &in);
    cut_rows(c, &l->w[SSM_CONV], &taps);
    cut_rows(c, &l->w[SSM_CONV_BIAS], &channels);
    for (enum layer_weight w = SSM_DT; w <= SSM_D; w++)
        rows(c, l, w, heads);
    rows(c, l, SSM_NORM, inner);
    columns(c, l, SSM_OUT, inner);
    s->n_inner = inner.n;
    s->n_head = heads.n;
    s->n_group = groups.n;
}

// m: the whole model, of which l is a copy of layer i.
static void slice_mixer(struct cutter *c, const struct model *m, uint32_t i, struct layer *l,
                        const struct model_split *s, uint32_t rank)
{
    const struct parts p = mixer_parts(m, i), states = ssm_parts(&m->layers[i]);
    const struct weight_run r = p.n > 0 ? run_of_parts(&p, s, rank) : (struct weight_run){0};
    if (l->mixer == MIXER_DELTA)
        slice_delta(c, l, r);
    else if (l->mixer == MIXER_CONV)
        slice_conv(c, l, r);
    else if (l->mixer == MIXER_ATTENTION && l->latent.n_kv > 0)
        slice_latent(c, l, r);
    else if (l->mixer == MIXER_ATTENTION)
        slice_attention(c, l, r);
    if (states.n > 0)
        slice_ssm(c, l, run_of_parts(&states, s, rank));
}

static struct weight_run ff_run(const struct weight *down, uint32_t n_ff,
                                const struct model_split *s, uint32_t rank)
{
    return run_of(ff_units(down, n_ff), ff_unit(down), n_ff, s, rank);
}

static void slice_feed_forward(struct cutter *c, struct layer *l, const struct model_split *s,
                               uint32_t rank)
{
    if (l->n_ff == 0)
        return;
    const struct weight_run ff = ff_run(&l->w[FFN_DOWN], l->n_ff, s, rank);
    rows(c, l, FFN_GATE, ff);
    rows(c, l, FFN_UP, ff);
    rows(c, l, FFN_GATE_BIAS, ff);
    rows(c, l, FFN_UP_BIAS, ff);
    columns(c, l, FFN_DOWN, ff);
    l->n_ff = ff.n;
}

// Each rank has a part of every expert, so that it does not matter which are chosen. Their weighted
// biases are added by rank 0 alone.
static void slice_experts(struct cutter *c, struct layer *l, const struct model_split *s,
                          uint32_t rank)
{
    struct experts *x = &l->experts;
    if (x->n == 0)
        return;
    const struct weight_run ff = ff_run(&l->w[EXPERT_DOWN], x->n_ff, s, rank);
    for (enum layer_weight w = EXPERT_GATE_BIAS; w <= EXPERT_UP_BIAS; w++)
        cut_of_each(c, &l->w[w], x->n_ff, ff);
    rows(c, l, EXPERT_GATE, ff);
    rows(c, l, EXPERT_UP, ff);
    columns(c, l, EXPERT_DOWN, ff);
    x->n_ff = ff.n;
    if (rank > 0)
        l->w[EXPERT_DOWN_BIAS].data = NULL;
    if (x->n_ff_shared == 0)
        return;
    const struct weight_run shared = ff_run(&l->w[SHARED_DOWN], x->n_ff_shared, s, rank);
    rows(c, l, SHARED_GATE, shared);
    rows(c, l, SHARED_UP, shared);
    columns(c, l, SHARED_DOWN, shared);
    x->n_ff_shared = shared.n;
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
    struct cutter c = {.slice = slice, .err = err};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        slice_mixer(&c, m, i, &layers[i], s, rank);
        slice_feed_forward(&c, &layers[i], s, rank);
        slice_experts(&c, &layers[i], s, rank);
    }
    uint32_t head[MODEL_MAX_RANKS + 1];
    split_head(m, s, head);
    const struct runs of_head =
        runs_of_one((struct weight_run){head[rank], head[rank + 1] - head[rank]});
    cut_rows(&c, &slice->output, &of_head);
    cut_rows(&c, &slice->output_bias, &of_head);
    if (c.failed) {
        model_slice_free(slice);
        return NULL;
    }
    slice->tied = false;
    slice->weight_bytes += m->grown_bytes - bytes_cut(m);
    slice->weight_bytes += bytes_cut(slice);
    slice->grown_bytes = 0; // is in it
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
