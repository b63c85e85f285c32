// The products of experts in float16, of many rows or of a few: what they read is laid out, gate
// and up are multiplied, and what these make with down.
#include "experts_turn.h"

static bool by_few(const struct turn *t, bool chosen)
{
    return chosen ? t->few : t->few_shared;
}

// The matrices of the shared expert, or of all that are chosen from, and where what they give goes.
struct expert_feed {
    bool chosen; // rows are grouped
    enum layer_weight gate, up, down;
    const float *gate_bias, *up_bias, *down_bias;
    float *gates, *ups, *out;
    __half *packed; // what is read
    float *undo;
};

static struct expert_feed shared_feed(const struct expert_scratch *s)
{
    return {
        false,          SHARED_GATE,  SHARED_UP,     SHARED_DOWN,      NULL,          NULL, NULL,
        s->shared_gate, s->shared_up, s->shared_out, s->shared_packed, s->shared_undo};
}

static struct expert_feed chosen_feed(const struct expert_scratch *s, const struct gpu_layer *l)
{
    return {true,
            EXPERT_GATE,
            EXPERT_UP,
            EXPERT_DOWN,
            l->v[EXPERT_GATE_BIAS],
            l->v[EXPERT_UP_BIAS],
            l->v[EXPERT_DOWN_BIAS],
            s->gate,
            s->up,
            s->out,
            s->packed,
            s->undo};
}

// Where a feed's launches go; what: see cuda_queue.
static const struct queue *queue_of(const struct turn *t, const struct expert_feed *f,
                                    const char *what)
{
    const struct queue *q = cuda_queue(t->e, what);
    return t->aside && !f->chosen ? &t->e->side.q : q;
}

static uint32_t places_of(const struct turn *t, const struct expert_feed *f)
{
    return f->chosen ? t->n * t->l->facts->experts.n_used : t->n;
}

// Packed by place: rows, or, where that is NULL, what is gated.
static bool pack(const struct turn *t, const struct queue *q, const struct expert_feed *f,
                 const struct rows_in *from, uint32_t n_cols, struct error *err)
{
    const struct experts *facts = &t->l->facts->experts;
    const struct expert_scratch *s = &t->e->experts;
    struct expert_pack p = {};
    if (by_few(t, f->chosen))
        return true;
    p.x = from ? from->x : f->gates;
    p.ld = from ? from->ld : n_cols;
    p.by_place = !from;
    p.n_cols = n_cols;
    p.norm = from ? from->norm : NULL;
    p.eps = t->e->hp.norm_eps;
    p.place = f->chosen ? s->place : NULL;
    p.rank = s->rank;
    p.weight = from && f->chosen && facts->weighs_input ? s->weight : NULL;
    p.n_used = from && f->chosen ? facts->n_used : 1;
    p.n_place = places_of(t, f);
    p.out = f->packed;
    p.undo = f->undo;
    return expert_pack_launch(q, &p, from ? t->n : p.n_place, err);
}

// The same times one of the matrices.
static struct expert_gemm half_of(const struct turn *t, const struct expert_feed *f,
                                  const struct rows_in *from, enum layer_weight w,
                                  const float *bias, float *y)
{
    const struct experts *facts = &t->l->facts->experts;
    const struct expert_scratch *s = &t->e->experts;
    struct expert_gemm m = {};
    m.w[0] = t->l->w[w];
    m.bias[0] = bias;
    m.y = y;
    m.n_place = places_of(t, f);
    if (f->chosen) {
        m.per_item = t->per_item;
        m.items = s->items;
        m.n_item = s->n_item;
        m.n_slot = expert_items(facts->n, m.n_place, m.per_item);
    } else { // one matrix alone has few tiles
        m.per_item = t->few_shared ? expert_few_rows(&t->e->q, m.w[0].n_cols, t->n, t->n)
                                   : lesser(expert_hopper_width(1, t->n), 64u);
        m.n_slot = div_up(m.n_place, m.per_item);
    }
    if (!by_few(t, f->chosen)) {
        m.x = f->packed;
        m.undo = f->undo;
    } else if (f->chosen && from && from->few) {
        m.x = s->few;
        m.undo = s->few_undo;
    }
    m.rows = from ? from->x : f->gates;
    m.ld = from ? from->ld : m.w[0].n_cols;
    if (from && f->chosen) {
        m.pair_at = s->pair_at;
        m.n_used = facts->n_used;
        m.weight = facts->weighs_input ? s->weight : NULL;
    }
    return m;
}

static bool multiply_half(const struct turn *t, const struct queue *q, const struct expert_gemm *m,
                          struct error *err)
{
    return by_few(t, m->items) ? expert_few_launch(q, m, err) : expert_hopper_launch(q, m, err);
}

// Where the largest of what expert_few makes of gate and up is found; NULL: nowhere.
static uint32_t *tops_of(const struct turn *t, const struct expert_feed *f)
{
    return f->chosen && t->few ? t->e->experts.few_tops : NULL;
}

// Whether one launch makes act(gate) * up.
static bool is_fused(const struct gpu_layer *l, const struct expert_feed *f)
{
    return l->facts->w[f->gate].data && same_range(&l->w[f->gate], &l->w[f->up]) &&
           expert_act_is_fused(l->facts->act);
}

// act(gate) * up of rows.
static bool gate_half(const struct turn *t, const struct expert_feed *f, const struct rows_in *from,
                      struct error *err)
{
    const struct gpu_layer *l = t->l;
    const struct layer *facts = l->facts;
    const struct wmat *up = &l->w[f->up];
    const bool has_gate = facts->w[f->gate].data;
    const struct queue *q = queue_of(t, f, group_of(l, f->up));
    struct expert_gemm g = half_of(t, f, from, f->gate, f->gate_bias, f->gates);
    const struct expert_gemm u =
        half_of(t, f, from, f->up, f->up_bias, has_gate ? f->ups : f->gates);
    if (!pack(t, q, f, from, up->n_cols, err))
        return false;
    if (is_fused(l, f)) {
        g.gated = true;
        g.y_top = tops_of(t, f);
        g.act = facts->act;
        g.w[1] = *up;
        g.bias[1] = u.bias[0];
        return multiply_half(t, q, &g, err);
    }
    return (!has_gate || multiply_half(t, q, &g, err)) && multiply_half(t, q, &u, err) &&
           gate_launch(q, facts->act, &facts->xielu, f->gates, has_gate ? f->ups : NULL,
                       (size_t)u.n_place * up->rows, err);
}

static bool feed_half(const struct turn *t, const struct expert_feed *f, const struct rows_in *from,
                      struct error *err)
{
    struct expert_gemm m = half_of(t, f, NULL, f->down, f->down_bias, f->out);
    m.top = is_fused(t->l, f) ? tops_of(t, f) : NULL;
    if (!gate_half(t, f, from, err))
        return false;
    const struct queue *q = queue_of(t, f, name_of(t->l, f->down));
    return pack(t, q, f, NULL, m.w[0].n_cols, err) && multiply_half(t, q, &m, err);
}

bool cuda_feed_shared_half(const struct turn *t, const struct rows_in *from, struct error *err)
{
    const struct expert_feed shared = shared_feed(&t->e->experts);
    return t->l->facts->experts.n_ff_shared == 0 || feed_half(t, &shared, from, err);
}

bool cuda_feed_chosen_half(const struct turn *t, const struct rows_in *from, struct error *err)
{
    const struct expert_feed chosen = chosen_feed(&t->e->experts, t->l);
    return feed_half(t, &chosen, from, err);
}
