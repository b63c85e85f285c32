// A mixture of experts as launches (struct experts in model/model.h), in the order of src/cpu: the
// router, the shared expert, the chosen ones, their sum. Once for a single token, and once for
// many, some rows at a time.
#include "experts_turn.h"
#include "owed.h"

// Gate and up are of one type: then one launch multiplies both.
static bool is_pair(const struct gpu_layer *l, enum layer_weight gate, enum layer_weight up)
{
    return l->facts->w[gate].data && l->w[gate].type == l->w[up].type;
}

// ---- what one token and many have in common

// The router's own, where it has one (see copy_vectors).
static const float *router_norm_of(const struct gpu_layer *l, const float *norm)
{
    return l->v[ROUTER_NORM] ? l->v[ROUTER_NORM] : norm;
}

static struct choice choice_of(const struct cuda_engine *e, const struct gpu_layer *l,
                               const float *x, const float *norm, const uint32_t *skip)
{
    const struct expert_scratch *s = &e->experts;
    struct choice c = {};
    c.facts = l->facts->experts;
    c.logits = s->logits;
    c.bias = l->v[ROUTER_CHOICE_BIAS];
    c.chosen = s->chosen;
    c.weight = s->weight;
    c.scale = l->v[EXPERT_DOWN_SCALE];
    c.router = l->v[SHARED_ROUTER];
    c.x = x;
    c.norm = norm;
    c.eps = e->hp.norm_eps;
    c.n_cols = e->hp.n_embd;
    c.shared = s->shared_weight;
    c.skip = skip;
    return c;
}

// To x, or, where that is normed first or is a part of a sum, to y.
static struct expert_sum sum_of(const struct cuda_engine *e, const struct gpu_layer *l, float *x,
                                float *y)
{
    const struct expert_scratch *s = &e->experts;
    const struct experts *f = &l->facts->experts;
    struct expert_sum sum = {};
    sum.weight = f->weighs_input ? NULL : s->weight;
    sum.shared = f->n_ff_shared > 0 ? s->shared_out : NULL;
    sum.shared_weight = l->v[SHARED_ROUTER] ? s->shared_weight : NULL;
    sum.add = !l->v[FFN_POST_NORM] && !e->rank;
    sum.scale = e->hp.residual_scale;
    sum.y = sum.add ? x : y;
    return sum;
}

// Where experts work on a latent, their sum is one, too; what it widens to is added as if one
// expert gave it.
static struct expert_sum latent_sum_of(const struct cuda_engine *e, const struct gpu_layer *l)
{
    struct expert_sum sum = {};
    sum.weight = l->facts->experts.weighs_input ? NULL : e->experts.weight;
    sum.y = e->experts.latent;
    return sum;
}

static bool add_widened(const struct cuda_engine *e, const struct gpu_layer *l, float *x, float *y,
                        uint32_t n, const uint32_t *skip, struct error *err)
{
    struct expert_sum sum = sum_of(e, l, x, y);
    sum.weight = NULL;
    return expert_sum_launch(&e->q, &sum, e->experts.out, NULL, n, 1, e->hp.n_embd, skip, err);
}

// The end of the block. x: rows of the stream.
static bool add_normed(const struct cuda_engine *e, const struct gpu_layer *l, const float *y,
                       float *x, uint32_t n, const uint32_t *skip, struct error *err)
{
    const uint32_t row0 = (uint32_t)((x - e->s.x) / e->hp.n_embd);
    if (is_beside(l->facts)) {
        struct join_normed j = {};
        cuda_queue(e, name_of(l, EXPERT_DOWN));
        j.a = e->s.beside + (x - e->s.x);
        j.a_norm = l->v[DENSE_POST_NORM];
        j.b = y;
        j.b_norm = l->v[EXPERT_POST_NORM];
        j.add = cuda_adding_normed(e, l, EXPERT_DOWN, l->v[FFN_POST_NORM], x, skip);
        j.add.from = e->x_is_away ? e->s.x_away : NULL;
        return cuda_sum_parts(e, row0, NULL, true, n, skip, err) &&
               join_normed_launch(&e->q, &j, n, e->hp.n_embd, err);
    }
    cuda_queue(e, name_of(l, EXPERT_DOWN));
    return cuda_sum_parts(e, row0, NULL, l->v[FFN_POST_NORM] != NULL, n, skip, err) &&
           (!l->v[FFN_POST_NORM] ||
            cuda_add_normed(e, l, EXPERT_DOWN, y, l->v[FFN_POST_NORM], x, n, skip, err));
}

// ---- many tokens

// Rows of activations in the forms that the matrices take; floats: as such, too.
static bool prepare(const struct cuda_engine *e, const struct gpu_layer *l, const float *x,
                    uint32_t n, uint32_t n_cols, const float *norm, const enum layer_weight *w,
                    size_t n_w, bool floats, struct error *err)
{
    const struct expert_scratch *s = &e->experts;
    void *act32 = NULL, *act_f32 = floats ? s->act_f32 : NULL;
    for (size_t i = 0; i < n_w; i++) {
        if (!l->facts->w[w[i]].data)
            continue;
        if (is_plain_type(&l->w[w[i]]))
            act_f32 = s->act_f32;
        else
            act32 = s->act32;
    }
    if (!act32 && !act_f32)
        return true;
    return act_launch(&e->q, x, n, n_cols, norm, e->hp.norm_eps, act32, act_f32, NULL, err);
}

static struct expert_rows rows_of(const struct turn *t, enum layer_weight w, const float *bias,
                                  float *y)
{
    struct expert_rows m = {};
    m.w[0] = t->l->w[w];
    m.bias[0] = bias;
    m.y[0] = y;
    m.n_part = 1;
    m.n_row = t->n;
    m.n_used = 1;
    m.per_item = expert_tiles_width(t->n);
    m.n_item = div_up(t->n, m.per_item);
    m.act32 = t->e->experts.act32;
    m.act_f32 = t->e->experts.act_f32;
    m.skip = t->skip;
    return m;
}

// The same of chosen experts; by place, or of the rows that the places belong to.
static struct expert_rows grouped_rows_of(const struct turn *t, enum layer_weight w,
                                          const float *bias, float *y, bool by_place)
{
    const struct experts *x = &t->l->facts->experts;
    const struct expert_scratch *s = &t->e->experts;
    struct expert_rows m = rows_of(t, w, bias, y);
    m.items = s->items;
    m.per_item = t->per_item;
    m.n_item = expert_items(x->n, t->n * x->n_used, t->per_item);
    if (!by_place) {
        m.pair_at = s->pair_at;
        m.n_used = x->n_used;
        m.weight = x->weighs_input ? s->weight : NULL;
    }
    return m;
}

// Whether the launch of gate and up leaves act(gate) * up.
static bool gates_at_once(const struct turn *t, enum layer_weight gate, enum layer_weight up)
{
    return is_pair(t->l, gate, up) && t->per_item > EXPERT_FEW && !is_plain_type(&t->l->w[up]);
}

// And whether as down takes it, where up's results would lie.
static bool feeds_down(const struct turn *t, enum layer_weight gate, enum layer_weight up,
                       enum layer_weight down)
{
    return gates_at_once(t, gate, up) && !is_plain_type(&t->l->w[down]);
}

// Of gate, if there is one, and up: with one launch where their types allow it.
static bool multiply_both(const struct turn *t, enum layer_weight gate, enum layer_weight up,
                          enum layer_weight down, const struct expert_rows &g,
                          const struct expert_rows &u, struct error *err)
{
    const struct queue *q = cuda_queue(t->e, group_of(t->l, up));
    if (is_pair(t->l, gate, up)) {
        struct expert_rows both = g;
        both.w[1] = u.w[0];
        both.bias[1] = u.bias[0];
        both.y[1] = u.y[0];
        both.n_part = 2;
        both.gated = gates_at_once(t, gate, up);
        both.act = t->l->facts->act;
        both.xielu = t->l->facts->xielu;
        both.out32 = feeds_down(t, gate, up, down) ? u.y[0] : NULL;
        return expert_rows_launch(q, &both, err);
    }
    return (!t->l->facts->w[gate].data || expert_rows_launch(q, &g, err)) &&
           expert_rows_launch(q, &u, err);
}

// Of the shared expert. Where there is no gate, what is activated is up.
static bool multiply_shared_up(const struct turn *t, struct error *err)
{
    const struct expert_scratch *s = &t->e->experts;
    float *up = t->l->facts->w[SHARED_GATE].data ? s->shared_up : s->shared_gate;
    return t->l->facts->experts.n_ff_shared == 0 ||
           multiply_both(t, SHARED_GATE, SHARED_UP, SHARED_DOWN,
                         rows_of(t, SHARED_GATE, NULL, s->shared_gate),
                         rows_of(t, SHARED_UP, NULL, up), err);
}

// The latent that the chosen ones read, from what is prepared.
static bool make_latent(const struct turn *t, struct error *err)
{
    const struct expert_rows narrow = rows_of(t, EXPERT_LATENT, NULL, t->e->experts.latent);
    return t->l->facts->experts.n_latent == 0 ||
           expert_rows_launch(cuda_queue(t->e, name_of(t->l, EXPERT_LATENT)), &narrow, err);
}

// Of the chosen ones, from what is prepared, or from a latent.
static bool multiply_up(const struct turn *t, struct error *err)
{
    static const enum layer_weight read[] = {EXPERT_GATE, EXPERT_UP};
    const struct expert_scratch *s = &t->e->experts;
    const struct gpu_layer *l = t->l;
    const uint32_t n_latent = l->facts->experts.n_latent;
    float *up = l->facts->w[EXPERT_GATE].data ? s->up : s->gate;
    if (n_latent > 0 && !prepare(t->e, l, s->latent, t->n, n_latent, NULL, read, 2, false, err))
        return false;
    return multiply_both(t, EXPERT_GATE, EXPERT_UP, EXPERT_DOWN,
                         grouped_rows_of(t, EXPERT_GATE, l->v[EXPERT_GATE_BIAS], s->gate, false),
                         grouped_rows_of(t, EXPERT_UP, l->v[EXPERT_UP_BIAS], up, false), err);
}

// act(gate) * up of n rows, unless that is done, and their products with down.
static bool multiply_down(const struct turn *t, enum layer_weight gate, enum layer_weight up,
                          enum layer_weight down, float *gates, const float *ups, uint32_t n,
                          struct expert_rows m, struct error *err)
{
    const struct layer *f = t->l->facts;
    const uint32_t n_ff = t->l->w[down].n_cols;
    const struct queue *q = cuda_queue(t->e, name_of(t->l, down));
    if (feeds_down(t, gate, up, down)) {
        m.act32 = ups;
        return expert_rows_launch(q, &m, err);
    }
    return (gates_at_once(t, gate, up) ||
            gate_launch(q, f->act, &f->xielu, gates, f->w[gate].data ? ups : NULL, (size_t)n * n_ff,
                        err)) &&
           prepare(t->e, t->l, gates, n, n_ff, NULL, &down, 1, false, err) &&
           expert_rows_launch(q, &m, err);
}

// x += scale * what all give, or where that is normed first, y = it.
static bool add_up(const struct turn *t, float *x, float *y, struct error *err)
{
    static const enum layer_weight up = EXPERT_LATENT_UP;
    const struct cuda_engine *e = t->e;
    const struct expert_scratch *s = &e->experts;
    const struct experts *f = &t->l->facts->experts;
    const bool latent = f->n_latent > 0;
    const struct expert_sum sum = latent ? latent_sum_of(e, t->l) : sum_of(e, t->l, x, y);
    const struct expert_rows widen = rows_of(t, up, NULL, s->out);
    return expert_sum_launch(&e->q, &sum, s->out, s->place, t->n, f->n_used,
                             latent ? f->n_latent : e->hp.n_embd, t->skip, err) &&
           (!latent || (prepare(e, t->l, s->latent, t->n, f->n_latent, NULL, &up, 1, false, err) &&
                        expert_rows_launch(cuda_queue(e, name_of(t->l, up)), &widen, err) &&
                        add_widened(e, t->l, x, y, t->n, t->skip, err)));
}

// The shared expert and the chosen ones, from what is prepared, or these rows.
static bool feed(const struct turn *t, const struct rows_in *from, struct error *err)
{
    const struct expert_scratch *s = &t->e->experts;
    const struct experts *f = &t->l->facts->experts;
    if (!make_latent(t, err))
        return false;
    if (t->half) {
        const struct rows_in latent = {s->latent, NULL, f->n_latent, false};
        return (t->aside || cuda_feed_shared_half(t, from, err)) &&
               cuda_feed_chosen_half(t, f->n_latent > 0 ? &latent : from, err);
    }
    return multiply_shared_up(t, err) && multiply_up(t, err) &&
           (f->n_ff_shared == 0 ||
            multiply_down(t, SHARED_GATE, SHARED_UP, SHARED_DOWN, s->shared_gate, s->shared_up,
                          t->n, rows_of(t, SHARED_DOWN, NULL, s->shared_out), err)) &&
           multiply_down(t, EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, s->gate, s->up, t->n * f->n_used,
                         grouped_rows_of(t, EXPERT_DOWN, t->l->v[EXPERT_DOWN_BIAS], s->out, true),
                         err);
}

bool cuda_experts_can_be_half(const struct cuda_engine *e, const struct gpu_layer *l)
{
    bool can = e->q.hopper;
    for (enum layer_weight w :
         {EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, SHARED_GATE, SHARED_UP, SHARED_DOWN})
        can &= !l->facts->w[w].data || l->w[w].type != QUANT_F32;
    return can;
}

// How many of n rows an item of expert_few.cu has; 0: expert_hopper.cu is to multiply them.
static uint32_t few_rows_of(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n)
{
    const struct experts *f = &l->facts->experts;
    const uint32_t likely = div_up(2 * n * f->n_used, f->n); // twice the mean
    uint32_t rows = n;
    for (enum layer_weight w : {EXPERT_GATE, EXPERT_UP, EXPERT_DOWN}) {
        if (!l->facts->w[w].data)
            continue;
        rows = expert_few_rows(&e->q, l->w[w].n_cols, rows, likely);
    }
    for (enum layer_weight w : {EXPERT_GATE, EXPERT_UP, EXPERT_DOWN})
        if (l->facts->w[w].data && !expert_few_suits(l->w[w].type, n, f->n_used, f->n, rows))
            return 0;
    return rows;
}

// Whether it is to multiply n rows with the shared expert.
static bool can_share_few(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n)
{
    bool can = n <= EXPERT_FEW_PASS;
    for (enum layer_weight w : {SHARED_GATE, SHARED_UP, SHARED_DOWN})
        can &= !l->facts->w[w].data || expert_few_rows(&e->q, l->w[w].n_cols, n, n) > 0;
    return can;
}

// n rows of x (n, n_embd); y the same, scratch.
static bool take_turn(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                      const float *norm, float *x, float *y, uint32_t n, const uint32_t *skip,
                      struct error *err)
{
    static const enum layer_weight read[] = {ROUTER,    EXPERT_LATENT, SHARED_GATE,
                                             SHARED_UP, EXPERT_GATE,   EXPERT_UP};
    const float *router_norm = router_norm_of(l, norm);
    const struct expert_scratch *s = &e->experts;
    const struct experts *f = &l->facts->experts;
    const uint32_t n_embd = e->hp.n_embd, n_pair = n * f->n_used;
    // About as many rows as an expert gets, or for expert_hopper as many as it is faster with; but
    // rows of several sequences are multiplied in one way however many there are, which gives each
    // its bits: in float16 where that can be, for which they are normed here.
    const bool more = n_pair > 2 * f->n, alike = cuda_rows_alike(e, skip);
    const bool half = (alike || more || n >= EXPERT_HOPPER_ROWS) && cuda_experts_can_be_half(e, l);
    const bool many = alike || half || more, one_bits = alike && half;
    const uint32_t few_rows = one_bits ? few_rows_of(e, l, n) : 0;
    const bool few = few_rows > 0, few_shared = one_bits && can_share_few(e, l, n);
    const uint32_t per_item = few     ? few_rows
                              : half  ? expert_hopper_width(f->n, n_pair)
                              : !many ? (uint32_t)EXPERT_FEW
                                      : expert_tiles_width(2 * n_pair / f->n);
    const bool one_norm = router_norm == norm, floats = one_bits && norm;
    const bool ready = few && f->n_latent == 0 && (!floats || one_norm); // before the choice
    const struct rows_in own = {in, norm, n_embd, ready};
    const struct rows_in normed = {(const float *)s->act_f32, NULL, act_f32_ld(n_embd), ready};
    const struct rows_in *from = floats ? &normed : &own;
    // The shared expert leaves room for the router and what follows it, which have little to do;
    // for a profile, one by one.
    const bool aside = half && f->n_ff_shared > 0 && !e->q.recorder && (!floats || one_norm);
    const struct turn t = {e, l, n, per_item, half, few, few_shared, aside, skip};
    const size_t n_read = half ? 2 : f->n_latent > 0 ? 4 : 6;
    const size_t n_router = one_norm ? n_read : 1; // what is read with that norm
    struct grouping g = {s->chosen, s->place, s->pair_at, s->rank,    s->items,
                         s->n_item, f->n,     n_pair,     t.per_item, skip};
    if (ready)
        g.few = {from->x, n, from->ld, n_embd, s->few, s->few_undo};
    g.top = few ? s->few_tops : NULL;
    struct expert_rows router = rows_of(&t, ROUTER, l->v[ROUTER_BIAS], s->logits);
    router.split = true;
    router.any_bits = !alike;
    const struct choice choice = choice_of(e, l, in, norm, skip);
    const auto shared_aside = [&] {
        const bool done = cuda_side_begin(e, err) && cuda_feed_shared_half(&t, from, err);
        cuda_queue(e, name_of(l, ROUTER)); // again
        return done;
    };
    cuda_queue(e, name_of(l, ROUTER));
    bool ok = (!aside || floats || shared_aside()) &&
              prepare(e, l, in, n, n_embd, router_norm, read, n_router, floats && one_norm, err) &&
              (!aside || !floats || shared_aside()) && expert_rows_launch(&e->q, &router, err) &&
              choose_group_launch(&e->q, &choice, &g, n, err) &&
              (one_norm || prepare(e, l, in, n, n_embd, norm, read + n_router, n_read - n_router,
                                   floats, err)) &&
              feed(&t, from, err);
    struct error mine = {};
    if (aside) // nothing may still be running when what it uses is used again
        ok = cuda_side_end(e, ok ? err : &mine) && ok;
    return ok && add_up(&t, x, y, err) && add_normed(e, l, y, x, n, skip, err);
}

bool cuda_experts_many(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                       const float *norm, uint32_t n, struct error *err)
{
    const size_t n_embd = e->hp.n_embd;
    const uint32_t step = expert_rows_at_once(e->base.n_batch, l->facts->experts.n_used);
    for (uint32_t i = 0; i < n; i += step)
        if (!take_turn(e, l, in + i * n_embd, norm, e->s.x + i * n_embd, e->s.up + i * n_embd,
                       lesser(n - i, step), NULL, err))
            return false;
    return true;
}

// ---- one token

static struct expert_row row_of(const struct cuda_engine *e, const struct gpu_layer *l,
                                enum expert_mode mode, const float *x, const float *norm)
{
    struct expert_row m = {};
    m.mode = mode;
    m.n_slot = 1;
    m.x = x;
    m.norm = norm;
    m.eps = e->hp.norm_eps;
    m.act = l->facts->act;
    m.xielu = l->facts->xielu;
    m.skip = &e->s.step->done;
    return m;
}

static void set_matrix(struct expert_row *m, int i, const struct gpu_layer *l, enum layer_weight w,
                       const float *bias)
{
    m->w[i] = l->w[w];
    m->bias[i] = bias;
}

// The launches of a token.
struct one_token {
    struct matvec router, narrow, widen;    // the last two: to and from a latent
    struct expert_row shared[3], chosen[3]; // gate (alone or with up), up (alone), down
    bool joined;                            // the shared expert is a slot of `chosen`
};

// Whether the shared expert is one more of the chosen ones, but that nobody chose it.
static bool joins(const struct gpu_layer *l)
{
    static const enum layer_weight pairs[][2] = {
        {EXPERT_GATE, SHARED_GATE}, {EXPERT_UP, SHARED_UP}, {EXPERT_DOWN, SHARED_DOWN}};
    const struct experts *x = &l->facts->experts;
    bool same = x->n_ff_shared == x->n_ff && x->n_latent == 0 && is_pair(l, EXPERT_GATE, EXPERT_UP);
    for (int i = 0; i < 3; i++)
        same = same && l->facts->w[pairs[i][1]].data &&
               l->w[pairs[i][0]].type == l->w[pairs[i][1]].type;
    return same;
}

static void join_shared(struct one_token *o, const struct gpu_layer *l)
{
    for (int i = 0; i < 3; i += 2) {
        o->chosen[i].shared = true;
        o->chosen[i].n_slot++;
    }
    o->chosen[0].w[2] = l->w[SHARED_GATE];
    o->chosen[0].w[3] = l->w[SHARED_UP];
    o->chosen[2].w[2] = l->w[SHARED_DOWN];
    o->chosen[2].sum.shared = NULL;
    o->joined = true;
}

// gates = act(gate) * up, if need be in launches of their own, and down.
static void set_one(struct expert_row out[3], const struct gpu_layer *l, enum layer_weight gate,
                    enum layer_weight up, enum layer_weight down, const float *const bias[3],
                    struct expert_row as, float *gates, float *ups)
{
    const bool pair = is_pair(l, gate, up);
    for (int i = 0; i < 3; i++)
        out[i] = as;
    out[0].mode = pair ? EXPERT_GATED : EXPERT_STORE;
    out[0].y = gates;
    set_matrix(&out[0], 0, l, gate, bias[0]);
    if (pair)
        set_matrix(&out[0], 1, l, up, bias[1]);
    out[1].y = l->facts->w[gate].data ? ups : gates;
    set_matrix(&out[1], 0, l, up, bias[1]);
    out[2].x = gates;
    out[2].norm = out[2].weight = NULL;
    out[2].own_rows = true;
    set_matrix(&out[2], 0, l, down, bias[2]);
}

static struct matvec product_of(const struct cuda_engine *e, const struct gpu_layer *l,
                                enum layer_weight w, const float *x, const float *norm, float *y)
{
    struct matvec m = {};
    m.mode = MATVEC_STORE;
    m.w[0] = l->w[w];
    m.y[0] = y;
    m.ld[0] = l->w[w].rows;
    m.n_part = m.n_col = 1;
    m.x = x;
    m.norm = norm;
    m.eps = e->hp.norm_eps;
    m.skip = &e->s.step->done;
    return m;
}

// Whether the router and the choice are one launch.
static bool is_route(const struct matvec *router)
{
    return is_routed(router->w[0].type, router->w[0].n_cols) && router->w[0].scale == 1.0f;
}

// Whether the products with what is chosen choose themselves.
static bool chooses_itself(const struct gpu_layer *l, const struct matvec *router)
{
    const struct experts *f = &l->facts->experts;
    return is_route(router) && choice_is_plain(*f) && !f->weighs_input;
}

static void set_launches(struct one_token *o, const struct cuda_engine *e,
                         const struct gpu_layer *l, const float *in, const float *norm)
{
    const struct expert_scratch *s = &e->experts;
    const struct experts *f = &l->facts->experts;
    static const float *const none[3] = {};
    const float *const bias[] = {l->v[EXPERT_GATE_BIAS], l->v[EXPERT_UP_BIAS],
                                 l->v[EXPERT_DOWN_BIAS]};
    o->router = product_of(e, l, ROUTER, in, router_norm_of(l, norm), s->logits);
    o->router.bias[0] = l->v[ROUTER_BIAS];
    struct expert_row as = row_of(e, l, EXPERT_STORE, in, norm);
    o->joined = false;
    if (f->n_ff_shared > 0 && !joins(l)) {
        set_one(o->shared, l, SHARED_GATE, SHARED_UP, SHARED_DOWN, none, as, s->shared_gate,
                s->shared_up);
        o->shared[2].y = s->shared_out;
        o->shared[0].input_ready = true; // after choose or route
        o->shared[2].choice_ready = o->shared[0].mode == EXPERT_GATED;
    }
    const bool latent = f->n_latent > 0;
    if (latent) {
        o->narrow = product_of(e, l, EXPERT_LATENT, in, norm, s->latent);
        o->widen = product_of(e, l, EXPERT_LATENT_UP, s->latent, NULL, s->out);
        as.x = s->latent;
        as.norm = NULL;
    }
    as.chosen = s->chosen;
    as.chooses = chooses_itself(l, &o->router);
    as.choice = choice_of(e, l, in, norm, as.skip);
    as.n_slot = f->n_used;
    as.weight = f->weighs_input ? s->weight : NULL;
    set_one(o->chosen, l, EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, bias, as, s->gate, s->up);
    o->chosen[0].input_ready = !latent; // after choose, route, or a product of these
    o->chosen[2].choice_ready = o->chosen[0].mode == EXPERT_GATED;
    o->chosen[2].mode = EXPERT_SUM;
    o->chosen[2].sum = latent ? latent_sum_of(e, l) : sum_of(e, l, e->s.x, e->s.up);
    if (f->n_ff_shared > 0 && joins(l))
        join_shared(o, l);
}

static bool launches_fit(const struct cuda_engine *e, const struct gpu_layer *l,
                         const struct one_token *o)
{
    bool fit = matvec_row_fits(&e->q, &o->router);
    if (l->facts->experts.n_latent > 0)
        fit &= matvec_row_fits(&e->q, &o->narrow) && matvec_row_fits(&e->q, &o->widen);
    for (int i = 0; i < 3; i++) {
        const bool shared = l->facts->experts.n_ff_shared > 0 && !o->joined;
        fit &= !shared || !o->shared[i].w[0].rows || expert_row_fits(&e->q, &o->shared[i]);
        fit &= !o->chosen[i].w[0].rows || expert_row_fits(&e->q, &o->chosen[i]);
    }
    return fit;
}

static bool route_one(const struct cuda_engine *e, const struct gpu_layer *l,
                      const struct one_token *o, struct error *err)
{
    const struct queue *q = cuda_queue(e, name_of(l, ROUTER));
    const struct matvec *router = &o->router;
    const struct expert_row *down = &o->chosen[2];
    if (!is_route(router))
        return matvec_launch(q, router, err) && choose_launch(q, &down->choice, 1, err);
    struct route r = {};
    r.choice = down->choice;
    r.chooses = !down->chooses;
    r.w = router->w[0];
    r.bias = router->bias[0];
    r.norm = router->norm;
    r.logits = e->experts.logits;
    r.counter = e->s.route_counter;
    return route_launch(q, &r, err);
}

static bool launch_one(const struct cuda_engine *e, const struct gpu_layer *l,
                       const struct expert_row m[3], enum layer_weight gate, enum layer_weight up,
                       enum layer_weight down, struct error *err)
{
    const struct layer *f = l->facts;
    const bool joined = m[0].shared;
    const struct queue *q = cuda_queue(
        e, joined ? "ffn_gate_exps+ffn_up_exps+ffn_gate_shexp+ffn_up_shexp" : group_of(l, up));
    const size_t n = (size_t)m[0].n_slot * l->w[up].rows;
    if (m[0].mode == EXPERT_GATED) {
        if (!expert_row_launch(q, &m[0], err))
            return false;
    } else if ((f->w[gate].data && !expert_row_launch(q, &m[0], err)) ||
               !expert_row_launch(q, &m[1], err) ||
               !gate_launch(q, f->act, &f->xielu, m[0].y, f->w[gate].data ? m[1].y : NULL, n,
                            err)) {
        return false;
    }
    q = cuda_queue(e, joined ? "ffn_down_exps+ffn_down_shexp" : name_of(l, down));
    return expert_row_launch(q, &m[2], err);
}

bool cuda_experts_one(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                      const float *norm, struct error *err)
{
    const uint32_t *skip = &e->s.step->done;
    struct one_token o;
    set_launches(&o, e, l, in, norm);
    if (!launches_fit(e, l, &o)) // wider than a block has room for
        return take_turn(e, l, in, norm, e->s.x, e->s.up, 1, skip, err);
    const bool latent = l->facts->experts.n_latent > 0;
    return route_one(e, l, &o, err) &&
           (l->facts->experts.n_ff_shared == 0 || o.joined ||
            launch_one(e, l, o.shared, SHARED_GATE, SHARED_UP, SHARED_DOWN, err)) &&
           (!latent || matvec_launch(cuda_queue(e, name_of(l, EXPERT_LATENT)), &o.narrow, err)) &&
           launch_one(e, l, o.chosen, EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, err) &&
           (!latent || (matvec_launch(cuda_queue(e, name_of(l, EXPERT_LATENT_UP)), &o.widen, err) &&
                        add_widened(e, l, e->s.x, e->s.up, 1, skip, err))) &&
           add_normed(e, l, e->s.up, e->s.x, 1, skip, err);
}
