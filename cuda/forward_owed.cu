// Sums that are owed. What a block gives is added to the stream by the block's last product, unless
// it is normed before: that takes all of the product, and so a launch of its own, some 2.5 us of a
// token's on an H200. But where a product with the stream comes next, each of its blocks reads the
// whole row, and what packs rows for products of many has them in registers: these make the sum
// themselves (added.cuh), and leave it for those who come after them.
#include "owed.h"

struct add_normed cuda_adding_normed(const struct cuda_engine *e, const struct gpu_layer *l,
                                     enum layer_weight w, const float *norm, float *x,
                                     const uint32_t *skip)
{
    const struct layer *f = l->facts;
    const enum layer_weight last = f->w[TOKEN_GATE].data ? TOKEN_PROJ
                                   : f->experts.n > 0    ? EXPERT_DOWN
                                                         : FFN_DOWN;
    struct add_normed a = {};
    a.norm = norm;
    a.eps = e->hp.norm_eps;
    a.scale = e->hp.residual_scale;
    a.times = w == last ? l->v[LAYER_SCALE] : NULL;
    a.x = x;
    a.skip = skip;
    return a;
}

bool cuda_add_normed(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                     const float *y, const float *norm, float *x, uint32_t n, const uint32_t *skip,
                     struct error *err)
{
    struct add_normed a = cuda_adding_normed(e, l, w, norm, x, skip);
    a.y = y;
    return add_normed_launch(cuda_queue(e, name_of(l, w)), &a, n, e->hp.n_embd, err);
}

// Whether the products of these matrices with the stream make it, in one launch.
static bool make_it(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight first,
                    uint32_t n_w, uint32_t n)
{
    struct matvec m = {};
    for (uint32_t i = 0; i < n_w; i++) {
        const struct wmat *w = &l->w[first + i];
        if (w->q && n > 0 && !cuda_takes_packed(e, w, n))
            return false;
        if (w->q)
            m.w[m.n_part++] = *w;
    }
    return n > 0 || matvec_row_fits(&e->q, &m);
}

static_assert(ATTN_K == ATTN_Q + 1 && ATTN_V == ATTN_Q + 2 && FFN_UP == FFN_GATE + 1,
              "they are gone through one after the other");

// The feed-forward network behind attention, which ends with a norm, too; there may be experts
// beside it, which read what it leaves.
static bool feed_makes_it(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n)
{
    const struct layer *f = l->facts;
    const bool gated = f->w[FFN_GATE].data;
    // (of one token `up` may take the place of what is added)
    return !f->parallel && f->n_ff > 0 && (f->experts.n == 0 || is_beside(f)) && f->n_laurel == 0 &&
           l->v[FFN_POST_NORM] && !l->v[FFN_NORM_BIAS] &&
           (n > 0 || !gated || (gate_is_fused(f) && l->w[FFN_GATE].type == l->w[FFN_UP].type)) &&
           make_it(e, l, gated ? FFN_GATE : FFN_UP, gated ? 2 : 1, n);
}

// The mixer of a layer, which ends with a norm, too.
static bool mixer_makes_it(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n)
{
    const struct layer *f = l->facts;
    return f->mixer == MIXER_ATTENTION && f->latent.n_kv == 0 && !f->parallel && f->n_laurel == 0 &&
           layer_state_size(f) == 0 && !input_is_kept(f) && l->v[ATTN_POST_NORM] &&
           !l->v[ATTN_NORM_BIAS] && make_it(e, l, ATTN_Q, 3, n);
}

static bool is_made_when_read(const struct cuda_engine *e, const struct gpu_layer *l,
                              enum layer_weight w, uint32_t n)
{
    const bool told = l->facts->w[TOKEN_GATE].data;
    if (e->rank || e->search || e->hp.norm != NORM_RMS || e->hp.n_side > 0 ||
        !add_is_made_by_readers(e->hp.n_embd))
        return false;
    return w == ATTN_OUTPUT        ? feed_makes_it(e, l, n)
           : w == FFN_DOWN && told ? make_it(e, l, TOKEN_GATE, 1, n)
           : w == FFN_DOWN || w == TOKEN_PROJ
               ? l + 1 < e->layers + e->hp.n_layer && mixer_makes_it(e, l + 1, n)
               : false;
}

float *cuda_stream(const struct cuda_engine *e)
{
    return e->x_is_away ? e->s.x_away : e->s.x;
}

bool cuda_add_block(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    const float *norm, uint32_t n, struct error *err)
{
    const bool later = is_made_when_read(e, l, w, n);
    struct add_normed a =
        cuda_adding_normed(e, l, w, norm, e->s.x, n == 0 ? &e->s.step->done : NULL);
    a.y = e->s.up;
    a.from = cuda_stream(e);
    if (n == 0) { // all blocks read it, so one of them must not write it to the same place
        e->x_is_away = later && !e->x_is_away;
        a.x = cuda_stream(e);
    }
    if (!later)
        return add_normed_launch(cuda_queue(e, name_of(l, w)), &a, rows_of_step(n), e->hp.n_embd,
                                 err);
    e->owed = a;
    return true;
}

void cuda_make_owed(struct cuda_engine *e, struct input *in)
{
    in->add = e->owed; // none, mostly
    if (in->add.y)
        in->x = in->add.from;
    e->owed.y = NULL;
}

void cuda_owe_nothing(struct cuda_engine *e)
{
    e->owed.y = NULL;
    e->x_is_away = false;
}
